//! Places that a certificate names for its status, and which of them may be asked.
//!
//! A certificate comes from outside, also one below a CA of the configuration: a place that it
//! names must not lead the fetcher to files, to this machine, or to an endless number of servers.
//! Not here: the fetching.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::certificate::Certificate;
use crate::ocsp;

/// Most places of one certificate, for lists and for responses each.
const MAX_PLACES: usize = 4;
/// Longest URI in bytes.
const MAX_URI: usize = 512;

/// One thing to fetch.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Fetch {
    /// Place to ask.
    pub place: Place,
    /// Request of OCSP to POST, of type `application/ocsp-request`. `None`: GET a revocation list.
    pub request: Option<Vec<u8>>,
}

/// A place of the web that may be asked: an URI of `http`.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Place {
    uri: String,
    /// Name or address, without brackets.
    host: String,
    port: u16,
    /// The configuration names the place, not a certificate.
    is_ours: bool,
}

/// Places that the configuration names for the certificates of one CA.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Places {
    /// Places of revocation lists.
    pub lists: Vec<Place>,
    /// Responders of OCSP.
    pub responders: Vec<Place>,
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
/// before lists, and places of the configuration, `ours`, before those of the certificate. The
/// second list has the URIs of the certificate from which nothing is fetched, and why.
pub fn wanted(
    certificate: &Certificate,
    issuer: &Certificate,
    ours: &Places,
    nonce: Option<&[u8]>,
) -> (Vec<Fetch>, Vec<(String, Refused)>) {
    let request = ocsp::request(certificate, issuer, nonce);
    let (mut list, mut refused) = (Vec::new(), Vec::new());
    let mut add = |of: &[Place], uris: &mut dyn Iterator<Item = &[u8]>, request: Option<&Vec<u8>>| {
        let mut places = of.to_vec();
        for uri in uris.take(MAX_PLACES) {
            match Place::of_certificate(uri) {
                Ok(place) if !places.iter().any(|known| known.uri == place.uri) => places.push(place),
                Ok(_) => {}
                Err(why) => refused.push((shown(uri), why)),
            }
        }
        list.extend(places.into_iter().map(|place| Fetch { place, request: request.cloned() }));
    };
    add(&ours.responders, &mut certificate.ocsp_uris(), Some(&request));
    add(&ours.lists, &mut certificate.crl_uris(), None);
    (list, refused)
}

/// The begin of a URI of a certificate, for people.
fn shown(uri: &[u8]) -> String {
    uri.escape_ascii().take(MAX_URI).map(char::from).collect()
}

impl Place {
    /// Judges a URI of a certificate: it must not lead to this machine.
    ///
    /// # Errors
    /// The reason why nothing is fetched from there.
    pub fn of_certificate(uri: &[u8]) -> Result<Self, Refused> {
        let place = Self::read(uri, false)?;
        let allowed = match place.host.parse::<IpAddr>() {
            Ok(addr) => may_ask(addr),
            Err(_) => is_host(&place.host),
        };
        if allowed { Ok(place) } else { Err(Refused::Host) }
    }

    /// Judges a URI of the configuration, which may lead to this machine.
    ///
    /// # Errors
    /// The reason why nothing is fetched from there.
    pub fn of_configuration(uri: &[u8]) -> Result<Self, Refused> {
        Self::read(uri, true)
    }

    fn read(uri: &[u8], is_ours: bool) -> Result<Self, Refused> {
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
                host.parse::<Ipv6Addr>().map_err(|_| Refused::Authority)?;
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
        if host.is_empty() {
            return Err(Refused::Host);
        }
        let number = |port: &str| {
            let digits = port.bytes().all(|b| b.is_ascii_digit());
            port.parse::<u16>().ok().filter(|port| digits && *port > 0).ok_or(Refused::Authority)
        };
        let port = port.map_or(Ok(80), number)?;
        Ok(Self { uri: text.to_owned(), host: host.to_owned(), port, is_ours })
    }

    /// The URI, of `http`.
    pub fn uri(&self) -> &str {
        &self.uri
    }

    /// Name or address of the server, an IPv6 address without brackets.
    pub fn host(&self) -> &str {
        &self.host
    }

    /// Port of the server.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// True for a place that the configuration names.
    pub fn is_ours(&self) -> bool {
        self.is_ours
    }

    /// Host and port as the URI has them: the value of `Host` (RFC 9112 section 3.2).
    pub fn authority(&self) -> &str {
        self.uri[7..].split(['/', '?', '#']).next().unwrap_or_default()
    }

    /// Path and query: the target of the request (RFC 9112 section 3.2.1).
    pub fn target(&self) -> String {
        let rest = &self.uri[7 + self.authority().len()..];
        let rest = rest.split('#').next().unwrap_or_default();
        if rest.starts_with('/') { rest.to_owned() } else { format!("/{rest}") }
    }

    /// True when the server may have this address. Ask for each address to which the host resolves:
    /// a name may lead to this machine too.
    pub fn allows(&self, addr: IpAddr) -> bool {
        self.is_ours || may_ask(addr)
    }
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

/// True when a place of a certificate may have this address.
fn may_ask(addr: IpAddr) -> bool {
    match addr {
        IpAddr::V4(v4) => {
            let nowhere = v4.octets()[0] == 0 || v4.octets()[0] >= 240;
            !(nowhere || v4.is_loopback() || v4.is_link_local() || v4.is_multicast())
        }
        IpAddr::V6(v6) => match inside(v6) {
            Some(v4) => may_ask(v4.into()),
            None => !(v6.is_multicast() || v6.is_unicast_link_local()),
        },
    }
}

/// The IPv4 address to which an IPv6 address leads: mapped, compatible, by NAT64 (64:ff9b::/96, RFC
/// 6052), or by 6to4 (2002::/16, RFC 3056).
fn inside(v6: Ipv6Addr) -> Option<Ipv4Addr> {
    let [a, b, c, d, e, f, g, h] = v6.segments();
    let of = |high: u16, low: u16| Ipv4Addr::from(u32::from(high) << 16 | u32::from(low));
    match (a, b) {
        (0x64, 0xff9b) if [c, d, e, f] == [0; 4] => Some(of(g, h)),
        (0x2002, _) => Some(of(b, c)),
        _ => v6.to_ipv4(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(uri: &str) -> Result<String, Refused> {
        Place::of_certificate(uri.as_bytes()).map(|place| place.uri().to_owned())
    }

    #[test]
    fn only_http_to_another_machine_is_fetched() {
        for uri in [
            "http://crl.example/a.crl",
            "HTTP://crl.example:8080",
            "http://192.0.2.1/x?y#z",
            "http://[2001:db8::1]:80/",
            "http://[64:ff9b::192.0.2.1]/",
            "http://10.0.0.1/internal.crl",
        ] {
            assert_eq!(place(uri), Ok(uri.to_owned()));
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
            ("http://[64:ff9b::169.254.169.254]/", Refused::Host),
            ("http://[2002:7f00:1::1]/", Refused::Host),
            ("http://169.254.169.254/latest", Refused::Host),
            ("http://a@crl.example/", Refused::Authority),
            ("http://crl.example:x/", Refused::Authority),
            ("http://crl.example:0/", Refused::Authority),
            ("http://[::1", Refused::Authority),
            ("http://crl.example/\r\nHost: x", Refused::NoUri),
            ("http://crl.example/ x", Refused::NoUri),
        ] {
            assert_eq!(place(uri), Err(why), "{uri}");
        }
        assert_eq!(place(&format!("http://a.example/{}", "x".repeat(500))), Err(Refused::NoUri));
    }

    #[test]
    fn a_place_of_the_configuration_may_be_this_machine_and_is_of_http_too() {
        for (uri, host, port, authority, target) in [
            ("http://127.0.0.1:8080/a.crl", "127.0.0.1", 8080, "127.0.0.1:8080", "/a.crl"),
            ("http://localhost", "localhost", 80, "localhost", "/"),
            ("HTTP://[::1]:81?x=/#y", "::1", 81, "[::1]:81", "/?x=/"),
        ] {
            let place = Place::of_configuration(uri.as_bytes()).unwrap();
            assert_eq!((place.host(), place.port(), place.authority()), (host, port, authority));
            assert_eq!(place.target(), target);
            assert!(place.allows([127, 0, 0, 1].into()));
        }
        for (uri, why) in [
            ("file:///etc/passwd", Refused::Scheme),
            ("https://ca.example/", Refused::Scheme),
            ("http:///x", Refused::Host),
            ("http://[127.0.0.1]/", Refused::Authority),
        ] {
            assert_eq!(Place::of_configuration(uri.as_bytes()), Err(why), "{uri}");
        }
        let certificate = Place::of_certificate(b"http://ca.example/").unwrap();
        assert!(certificate.allows([192, 0, 2, 1].into()));
        for local in
            ["127.0.0.1", "169.254.1.1", "0.0.0.0", "224.0.0.1", "::1", "fe80::1", "::ffff:127.0.0.1"]
        {
            assert!(!certificate.allows(local.parse().unwrap()), "{local}");
        }
    }
}
