//! Names that people write, as certificates hold them.

use std::net::IpAddr;

use der::Decode;
use der::asn1::{Any, Ia5String, OctetString};
use ironswan_wire::iana::IdType;
use ironswan_wire::id::Identity;
use ironswan_wire::name_text;
use x509_cert::ext::pkix::constraints::name::GeneralSubtree;
use x509_cert::ext::pkix::name::GeneralName;
use x509_cert::name::Name;

use crate::failure::Failure;
use crate::signed::encoding;

/// A distinguished name. The empty text is the empty name.
pub(crate) fn distinguished(text: &str) -> Result<Any, Failure> {
    const EMPTY: &[u8] = &[0x30, 0];
    let der = if text.trim().is_empty() { Some(EMPTY.to_vec()) } else { name_text::parse(text) };
    let der = der.ok_or_else(|| {
        Failure::usage(format!(
            "--dn {text:?} is no distinguished name: write it as \"C=CH, O=Example, CN=gw.example\""
        ))
    })?;
    Any::from_der(&der).map_err(encoding)
}

/// A name for `subjectAltName`, read as an identity is: `gw.example`, `192.0.2.1`,
/// `admin@example.com`, `C=CH, O=Example`; a type may stand before it (`dns:`, `ip:`, `email:`,
/// `uri:`).
pub(crate) fn general(text: &str) -> Result<GeneralName, Failure> {
    read_general(text).ok_or_else(|| {
        Failure::usage(format!(
            "--san {text:?} is no name for a certificate: write a DNS name, an IP address, an e-mail address or a distinguished name"
        ))
    })
}

fn read_general(text: &str) -> Option<GeneralName> {
    let ia5 = |text: &[u8]| std::str::from_utf8(text).ok().and_then(|text| Ia5String::new(text).ok());
    if let Some((kind, rest)) = text.split_once(':') {
        match kind.to_ascii_lowercase().as_str() {
            "uri" => {
                return ia5(rest.as_bytes())
                    .filter(|_| !rest.is_empty())
                    .map(GeneralName::UniformResourceIdentifier);
            }
            "ip" => return rest.parse::<IpAddr>().ok().map(GeneralName::from),
            "dns" => return read_general(&format!("fqdn:{rest}")),
            _ => {}
        }
    }
    let id = Identity::parse(text).filter(|id| !id.data.is_empty())?;
    match id.kind {
        IdType::FQDN => ia5(&id.data).map(GeneralName::DnsName),
        IdType::RFC822_ADDR => ia5(&id.data).map(GeneralName::Rfc822Name),
        IdType::IPV4_ADDR | IdType::IPV6_ADDR => id.addr().map(GeneralName::from),
        IdType::DER_ASN1_DN => Name::from_der(&id.data).ok().map(GeneralName::DirectoryName),
        _ => None,
    }
}

/// A subtree for `nameConstraints`: a DNS domain, a network with its prefix, an address, an e-mail
/// domain or address after `email:`, or a distinguished name.
pub(crate) fn subtree(option: &str, text: &str) -> Result<GeneralSubtree, Failure> {
    let base = network(text)
        .or_else(|| match text.split_once(':') {
            Some((kind, rest)) if kind.eq_ignore_ascii_case("email") && !rest.is_empty() => {
                Ia5String::new(rest).ok().map(GeneralName::Rfc822Name)
            }
            _ => read_general(text),
        })
        .ok_or_else(|| {
            Failure::usage(format!(
                "{option} {text:?} is no name for a constraint: write example.com, 10.1.0.0/16, email:example.com or \"O=Example\""
            ))
        })?;
    Ok(GeneralSubtree { base, minimum: 0, maximum: None })
}

/// Address and mask of a network: `10.1.0.0/16`, or one address.
fn network(text: &str) -> Option<GeneralName> {
    let (addr, prefix) = match text.split_once('/') {
        Some((addr, prefix)) => (addr, Some(prefix.parse::<u32>().ok()?)),
        None => (text, None),
    };
    let bytes = match addr.parse::<IpAddr>().ok()? {
        IpAddr::V4(addr) => addr.octets().to_vec(),
        IpAddr::V6(addr) => addr.octets().to_vec(),
    };
    let bits = 8 * bytes.len() as u32;
    let prefix = prefix.unwrap_or(bits);
    if prefix > bits {
        return None;
    }
    let mask = (0..bytes.len() as u32).map(|n| {
        let set = prefix.saturating_sub(8 * n).min(8);
        (0xff00u16 >> set) as u8
    });
    let both: Vec<u8> = bytes.iter().copied().chain(mask).collect();
    // A network is written without host bits: all others would be permitted, and not be meant.
    let has_host_bits =
        both[..bytes.len()].iter().zip(&both[bytes.len()..]).any(|(addr, mask)| addr & !mask != 0);
    if has_host_bits { None } else { OctetString::new(both).ok().map(GeneralName::IpAddress) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(text: &str) -> &'static str {
        match read_general(text) {
            Some(GeneralName::DnsName(_)) => "dns",
            Some(GeneralName::Rfc822Name(_)) => "email",
            Some(GeneralName::IpAddress(addr)) if addr.as_bytes().len() == 4 => "ipv4",
            Some(GeneralName::IpAddress(_)) => "ipv6",
            Some(GeneralName::DirectoryName(_)) => "dn",
            Some(GeneralName::UniformResourceIdentifier(_)) => "uri",
            _ => "none",
        }
    }

    #[test]
    fn a_name_has_the_type_that_an_identity_of_this_text_has() {
        let names = [
            ("gw.example", "dns"),
            ("@gw.example", "dns"),
            ("dns:gw.example", "dns"),
            ("192.0.2.1", "ipv4"),
            ("ip:2001:db8::1", "ipv6"),
            ("2001:db8::1", "ipv6"),
            ("admin@example.com", "email"),
            ("C=CH, O=Example", "dn"),
            ("uri:https://gw.example/", "uri"),
            ("", "none"),
            ("ip:gw", "none"),
            ("@#0102", "none"),
            ("gw.exämple", "none"),
        ];
        for (text, expected) in names {
            assert_eq!(kind(text), expected, "{text}");
        }
    }

    #[test]
    fn a_network_becomes_address_and_mask() {
        let bytes = |text| match network(text) {
            Some(GeneralName::IpAddress(bytes)) => Some(bytes.as_bytes().to_vec()),
            _ => None,
        };
        assert_eq!(bytes("10.1.0.0/16"), Some(vec![10, 1, 0, 0, 255, 255, 0, 0]));
        assert_eq!(bytes("10.1.2.3"), Some(vec![10, 1, 2, 3, 255, 255, 255, 255]));
        assert_eq!(bytes("10.1.2.0/23"), Some(vec![10, 1, 2, 0, 255, 255, 254, 0]));
        assert_eq!(bytes("0.0.0.0/0"), Some(vec![0; 8]));
        assert_eq!(
            bytes("2001:db8::/33").map(|b| b[16..22].to_vec()),
            Some(vec![255, 255, 255, 255, 0x80, 0])
        );
        for bad in ["10.1.0.0/33", "10.1.2.3/16", "example.com", "10.1.0.0/x"] {
            assert_eq!(bytes(bad), None, "{bad}");
        }
    }
}
