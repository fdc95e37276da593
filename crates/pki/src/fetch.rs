//! Places that a certificate names for its status, and which of them may be asked.
//!
//! A certificate comes from outside, also one below a CA of the configuration: a place that it
//! names must not lead the fetcher to files, to this machine, or to an endless number of servers.
//! Not here: the fetching.

use std::net::IpAddr;

use crate::certificate::Certificate;
use crate::ocsp;

/// Most places of one certificate, for lists and for responses each.
const MAX_PLACES: usize = 4;
/// Longest URI in bytes.
const MAX_URI: usize = 512;

/// One thing to fetch.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub enum Fetch {
    /// GET a revocation list.
    List {
        /// URI, of `http`.
        uri: String,
    },
    /// POST a request of OCSP.
    Status {
        /// URI, of `http`.
        uri: String,
        /// Body, of type `application/ocsp-request`.
        request: Vec<u8>,
    },
}

/// Why nothing is fetched from a place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Refused {
    /// The URI is longer than 512 bytes, or has bytes that no URI has.
    NoUri,
    /// The scheme is not `http`: the answer is signed, so nothing else is needed.
    Scheme,
    /// The URI names a user, or a port that is no number.
    Authority,
    /// The host is this machine, or no single machine.
    Host,
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::NoUri => "is no URI, or longer than 512 bytes",
            Self::Scheme => "does not begin with http://",
            Self::Authority => "has a user or a malformed port",
            Self::Host => "names this machine, or no single machine",
        })
    }
}

/// Things to fetch for the status of `certificate`, which `issuer` has issued: responses of OCSP
/// first. Places from which nothing is fetched are left out.
pub fn wanted(certificate: &Certificate, issuer: &Certificate, nonce: Option<&[u8]>) -> Vec<Fetch> {
    let request = || ocsp::request(certificate, issuer, nonce);
    let responders = certificate.ocsp_uris().take(MAX_PLACES).filter_map(|uri| place(uri).ok());
    let mut list: Vec<Fetch> = responders.map(|uri| Fetch::Status { uri, request: request() }).collect();
    let lists = certificate.crl_uris().take(MAX_PLACES).filter_map(|uri| place(uri).ok());
    list.extend(lists.map(|uri| Fetch::List { uri }));
    list
}

/// Judges a URI.
///
/// # Errors
/// The reason why nothing is fetched from there.
pub fn place(uri: &[u8]) -> Result<String, Refused> {
    let text = std::str::from_utf8(uri).map_err(|_| Refused::NoUri)?;
    if text.len() > MAX_URI
        || !text.bytes().all(|b| b.is_ascii_graphic())
        || text.contains(['"', '\\', '<', '>'])
    {
        return Err(Refused::NoUri);
    }
    let scheme = text.get(..7).filter(|scheme| scheme.eq_ignore_ascii_case("http://"));
    let rest = &text[scheme.ok_or(Refused::Scheme)?.len()..];
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err(Refused::Authority);
    }
    let (host, port) = match authority.strip_prefix('[') {
        Some(v6) => {
            let (host, rest) = v6.split_once(']').ok_or(Refused::Authority)?;
            let port = match rest.strip_prefix(':') {
                Some(port) => Some(port),
                None if rest.is_empty() => None,
                None => return Err(Refused::Authority),
            };
            (host, port)
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let is_port =
        |port: &str| port.bytes().all(|b| b.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|p| p > 0);
    if port.is_some_and(|port| !is_port(port)) {
        return Err(Refused::Authority);
    }
    let allowed = match host.parse::<IpAddr>() {
        Ok(addr) => may_ask(addr),
        Err(_) => is_host(host),
    };
    if allowed { Ok(text.to_owned()) } else { Err(Refused::Host) }
}

/// True for the name of a host that is not this machine by its name alone. A name that ends in a
/// number is an address in one of its odd forms (127.1, 0x7f000001), which some resolvers take.
fn is_host(host: &str) -> bool {
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let letters = host.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'.' | b'_'));
    let last = host.rsplit('.').next().unwrap_or_default();
    let number = last.starts_with(|c: char| c.is_ascii_digit());
    letters
        && !last.is_empty()
        && !number
        && last != "localhost"
        && host != "ip6-localhost"
        && host != "ip6-loopback"
}

/// True when a fetcher may connect to this address. Ask for each address to which a name of
/// [`place`] resolves: a name may lead to this machine too.
pub fn may_ask(addr: IpAddr) -> bool {
    match addr {
        IpAddr::V4(v4) => {
            let nowhere = v4.octets()[0] == 0 || v4.octets()[0] >= 240;
            !(nowhere || v4.is_loopback() || v4.is_link_local() || v4.is_multicast())
        }
        IpAddr::V6(v6) => match v6.to_ipv4_mapped().or_else(|| v6.to_ipv4()) {
            Some(v4) => may_ask(v4.into()),
            None => !(v6.is_multicast() || v6.is_unicast_link_local()),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_http_to_another_machine_is_fetched() {
        for uri in [
            "http://crl.example/a.crl",
            "HTTP://crl.example:8080",
            "http://192.0.2.1/x?y#z",
            "http://[2001:db8::1]:80/",
            "http://10.0.0.1/internal.crl",
        ] {
            assert_eq!(place(uri.as_bytes()), Ok(uri.to_owned()));
        }
        for (uri, why) in [
            ("file:///etc/passwd", Refused::Scheme),
            ("ldap://crl.example/", Refused::Scheme),
            ("https://crl.example/", Refused::Scheme),
            ("", Refused::Scheme),
            ("http://", Refused::Host),
            ("http:///x", Refused::Host),
            ("http://localhost/", Refused::Host),
            ("http://a.LOCALHOST./", Refused::Host),
            ("http://127.0.0.1/", Refused::Host),
            ("http://127.1/", Refused::Host),
            ("http://0x7f000001/", Refused::Host),
            ("http://2130706433/", Refused::Host),
            ("http://0.0.0.0/", Refused::Host),
            ("http://[::1]/", Refused::Host),
            ("http://[::ffff:127.0.0.1]/", Refused::Host),
            ("http://[fe80::1]/", Refused::Host),
            ("http://169.254.169.254/latest", Refused::Host),
            ("http://a@crl.example/", Refused::Authority),
            ("http://crl.example:x/", Refused::Authority),
            ("http://crl.example:0/", Refused::Authority),
            ("http://[::1", Refused::Authority),
            ("http://crl.example/\r\nHost: x", Refused::NoUri),
            ("http://crl.example/ x", Refused::NoUri),
        ] {
            assert_eq!(place(uri.as_bytes()), Err(why), "{uri}");
        }
        assert_eq!(place(format!("http://a.example/{}", "x".repeat(500)).as_bytes()), Err(Refused::NoUri));
    }
}
