//! Identities (RFC 7296 section 3.5) as they are written in a configuration and on the wire.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::iana::IdType;
use crate::name::Name;
use crate::name_text;

/// An identity: type and the bytes that go on the wire (and under AUTH).
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Identity {
    /// Type.
    pub kind: IdType,
    /// Data as on the wire.
    pub data: Vec<u8>,
}

impl Identity {
    /// An address as identity.
    pub fn from_addr(addr: IpAddr) -> Self {
        match addr {
            IpAddr::V4(a) => Self { kind: IdType::IPV4_ADDR, data: a.octets().to_vec() },
            IpAddr::V6(a) => Self { kind: IdType::IPV6_ADDR, data: a.octets().to_vec() },
        }
    }

    /// Reads what people write, by strongSwan's rules: an IP address; `@#hex` a key id; `@name` and
    /// `name` an FQDN; `user@name` an RFC 822 address; text with `=` a distinguished name
    /// (`C=CH, O=example`); `keyid:`, `fqdn:`, `email:`, `ipv4:`, `ipv6:`, `asn1dn:` prefixes force
    /// the type, the last one before a name or before `#` and the hexadecimal digits of its DER.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        // "The string MUST NOT contain any terminators (e.g., NULL, CR, etc.)" (RFC 7296 section
        // 3.5).
        if text.is_empty() || text.contains(char::is_control) {
            return None;
        }
        if let Ok(addr) = text.parse::<IpAddr>() {
            return Some(Self::from_addr(addr));
        }
        let typed = |kind, data: &str| Some(Self { kind, data: data.as_bytes().to_vec() });
        if let Some((prefix, rest)) = text.split_once(':') {
            match prefix.to_ascii_lowercase().as_str() {
                "fqdn" => return typed(IdType::FQDN, rest),
                "email" | "rfc822" | "userfqdn" => return typed(IdType::RFC822_ADDR, rest),
                "keyid" => return typed(IdType::KEY_ID, rest),
                "ipv4" | "ipv4addr" => {
                    return rest.parse::<Ipv4Addr>().ok().map(|a| Self::from_addr(a.into()));
                }
                "ipv6" | "ipv6addr" => {
                    return rest.parse::<Ipv6Addr>().ok().map(|a| Self::from_addr(a.into()));
                }
                "asn1dn" => {
                    let der = match rest.strip_prefix('#') {
                        Some(digits) => parse_hex(digits)?,
                        None => name_text::parse(rest)?,
                    };
                    return Name::from_der(&der).is_some().then(|| Self::name(der));
                }
                _ => {}
            }
        }
        if text.contains('=') {
            return name_text::parse(text).map(Self::name);
        }
        if let Some(hex) = text.strip_prefix("@#") {
            return Some(Self { kind: IdType::KEY_ID, data: parse_hex(hex)? });
        }
        if let Some(rfc822) = text.strip_prefix("@@") {
            return typed(IdType::RFC822_ADDR, rfc822);
        }
        if let Some(name) = text.strip_prefix('@') {
            return typed(IdType::FQDN, name);
        }
        typed(if text.contains('@') { IdType::RFC822_ADDR } else { IdType::FQDN }, text)
    }

    /// A distinguished name in DER as identity.
    pub fn name(der: Vec<u8>) -> Self {
        Self { kind: IdType::DER_ASN1_DN, data: der }
    }

    /// The distinguished name, when this is one.
    pub fn as_name(&self) -> Option<Name<'_>> {
        (self.kind == IdType::DER_ASN1_DN).then(|| Name::from_der(&self.data)).flatten()
    }

    /// True for a distinguished name with a value `*`. Nobody is called so: a peer that claims such
    /// a name would claim all that fit.
    pub fn has_wildcard(&self) -> bool {
        self.as_name().is_some_and(|name| name.attributes().any(|attribute| attribute.value == b"*"))
    }

    /// The address, when this is one.
    pub fn addr(&self) -> Option<IpAddr> {
        match self.kind {
            IdType::IPV4_ADDR => <[u8; 4]>::try_from(self.data.as_slice()).ok().map(IpAddr::from),
            IdType::IPV6_ADDR => <[u8; 16]>::try_from(self.data.as_slice()).ok().map(IpAddr::from),
            _ => None,
        }
    }

    /// The form that equal identities have in common: names in lower case, since they compare
    /// without regard to it. The form of a distinguished name is for comparisons alone, and no DER.
    #[must_use]
    pub fn folded(&self) -> Self {
        let mut id = self.clone();
        if let Some(name) = self.as_name() {
            id.data = name.folded();
        }
        if matches!(id.kind, IdType::FQDN | IdType::RFC822_ADDR) {
            id.data.make_ascii_lowercase();
        }
        id
    }
}

fn parse_hex(text: &str) -> Option<Vec<u8>> {
    if text.is_empty() || !text.len().is_multiple_of(2) || !text.is_ascii() {
        return None;
    }
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).ok()).collect()
}

impl std::fmt::Display for Identity {
    /// Printable text; control and non-ASCII bytes are escaped, so that no identity can split a log
    /// line.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if let Some(addr) = self.addr() {
            return write!(f, "{addr}");
        }
        if let Some(name) = self.as_name().filter(|name| !name.is_empty()) {
            return write!(f, "{name}");
        }
        match self.kind {
            IdType::FQDN | IdType::RFC822_ADDR => {
                for &b in self.data.iter().take(256) {
                    match b {
                        0x20..=0x7e if b != b'\\' => write!(f, "{}", b as char)?,
                        _ => write!(f, "\\x{b:02x}")?,
                    }
                }
                if self.data.len() > 256 { f.write_str("...") } else { Ok(()) }
            }
            kind => {
                if kind != IdType::KEY_ID {
                    write!(f, "{kind}:")?;
                }
                for b in self.data.iter().take(64) {
                    write!(f, "{b:02x}")?;
                }
                if self.data.len() > 64 { f.write_str("...") } else { Ok(()) }
            }
        }
    }
}

impl std::fmt::Debug for Identity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}({self})", self.kind)
    }
}

/// Pattern of the identities that a configuration accepts from a peer.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub enum IdPattern {
    /// `%any`.
    #[default]
    Any,
    /// Exactly this.
    Exact(Identity),
    /// A distinguished name in DER with values `*`, each of which stands for any value.
    Name(Vec<u8>),
    /// `*.example.com` or `*@example.com`: everything that ends so, of the same type.
    Suffix(IdType, Vec<u8>),
}

impl IdPattern {
    /// Reads a pattern: `%any` or empty, `*...` a suffix, else an identity. `None` when it is none
    /// of these.
    pub fn parse(text: &str) -> Option<Self> {
        let text = text.trim();
        if text.is_empty() || text == "%any" {
            return Some(Self::Any);
        }
        if let Some(suffix) = text.strip_prefix('*') {
            let kind = if suffix.starts_with('@') { IdType::RFC822_ADDR } else { IdType::FQDN };
            return Some(Self::Suffix(kind, suffix.as_bytes().to_vec()));
        }
        let id = Identity::parse(text)?;
        Some(if id.has_wildcard() { Self::Name(id.data) } else { Self::Exact(id) })
    }

    /// True when `id` is accepted. Names compare without regard to ASCII case.
    pub fn matches(&self, id: &Identity) -> bool {
        match self {
            Self::Any => true,
            Self::Exact(want) => {
                want.kind == id.kind
                    && match want.kind {
                        IdType::FQDN | IdType::RFC822_ADDR => want.data.eq_ignore_ascii_case(&id.data),
                        IdType::DER_ASN1_DN => want.data == id.data || want.folded() == id.folded(),
                        _ => want.data == id.data,
                    }
            }
            Self::Name(pattern) => match (id.as_name(), Name::from_der(pattern)) {
                (Some(name), Some(pattern)) => name.fits(&pattern),
                _ => false,
            },
            Self::Suffix(kind, suffix) => {
                *kind == id.kind
                    && id.data.len() >= suffix.len()
                    && id.data[id.data.len() - suffix.len()..].eq_ignore_ascii_case(suffix)
            }
        }
    }

    /// The form that patterns for the same identities have in common.
    #[must_use]
    pub fn folded(&self) -> Self {
        match self {
            Self::Any => Self::Any,
            Self::Exact(id) => Self::Exact(id.folded()),
            Self::Name(der) => Self::Name(Identity::name(der.clone()).folded().data),
            Self::Suffix(kind, suffix) => Self::Suffix(*kind, suffix.to_ascii_lowercase()),
        }
    }
}

impl std::fmt::Display for IdPattern {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Any => f.write_str("%any"),
            Self::Exact(id) => write!(f, "{id}"),
            Self::Name(der) => write!(f, "{}", Identity::name(der.clone())),
            Self::Suffix(kind, s) => write!(f, "*{}", Identity { kind: *kind, data: s.clone() }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_becomes_the_type_that_strongswan_would_choose() {
        let kind = |t: &str| Identity::parse(t).unwrap().kind;
        assert_eq!(kind("192.0.2.1"), IdType::IPV4_ADDR);
        assert_eq!(kind("2001:db8::1"), IdType::IPV6_ADDR);
        assert_eq!(kind("@g1.example"), IdType::FQDN);
        assert_eq!(kind("g1.example"), IdType::FQDN);
        assert_eq!(kind("joe@example.com"), IdType::RFC822_ADDR);
        assert_eq!(kind("@#c0ffee"), IdType::KEY_ID);
        assert_eq!(kind("keyid:joe"), IdType::KEY_ID);
        assert_eq!(kind("C=CH, O=x"), IdType::DER_ASN1_DN);
        assert_eq!(kind("asn1dn:#300d310b3009060355040613024348"), IdType::DER_ASN1_DN);
        for text in ["C=CH", "ASN1DN:/C=CH", "c=CH", " C = CH "] {
            assert_eq!(
                Identity::parse(text),
                Identity::parse("asn1dn:#300d310b3009060355040613024348"),
                "{text}"
            );
        }
        for bad in ["C=CH, x", "unknown=CH", "asn1dn:", "asn1dn:x", "asn1dn:#3001", "asn1dn:#3000ff", "x="] {
            assert_eq!(Identity::parse(bad), None, "{bad}");
        }
        assert_eq!(Identity::parse(""), None);
        for bad in ["a\0b", "fqdn:a\rb", "email:a@b\nc", "@a\x7f"] {
            assert_eq!(Identity::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn a_name_with_a_star_is_recognised() {
        let has = |text: &str| Identity::parse(text).unwrap().has_wildcard();
        assert!(has("C=CH, CN=*"));
        assert!(!has("C=CH, CN=a*") && !has("keyid:*"));
    }

    #[test]
    fn nothing_in_an_identity_can_split_a_log_line() {
        let id = Identity { kind: IdType::FQDN, data: b"a\nb\x1b[31m$(x)".to_vec() };
        assert_eq!(id.to_string(), "a\\x0ab\\x1b[31m$(x)");
    }

    #[test]
    fn patterns_match_by_type_and_without_case() {
        let p = IdPattern::parse("*.example.com").unwrap();
        assert!(p.matches(&Identity::parse("GW.Example.COM").unwrap()));
        assert!(!p.matches(&Identity::parse("gw@x.example.com").unwrap()));
        assert!(!p.matches(&Identity::parse("example.com").unwrap()));
        assert!(IdPattern::Any.matches(&Identity::parse("10.0.0.1").unwrap()));
        let folded = |text: &str| IdPattern::parse(text).unwrap().folded();
        assert_eq!(folded("*.Example.COM"), folded("*.example.com"));
        assert_eq!(folded("GW.example"), folded("gw.EXAMPLE"));
        let star = IdPattern::parse("C=CH, O=*, CN=x").unwrap();
        assert!(matches!(star, IdPattern::Name(_)));
        for (name, fits) in [("C=CH, O=a, CN=X", true), ("C=CH, CN=x", false), ("C=DE, O=a, CN=x", false)] {
            assert_eq!(star.matches(&Identity::parse(name).unwrap()), fits, "{name}");
        }
        let name = IdPattern::parse("C=CH, O=Some  Body").unwrap();
        assert!(name.matches(&Identity::parse("c=ch, o=some body").unwrap()));
        assert_eq!(folded("C=CH, O=a"), folded("C=ch, O=A"));
        assert_eq!(name.to_string(), "C=CH, O=Some  Body");
        // The bytes of a key id are no letters.
        assert_ne!(folded("keyid:joe"), folded("keyid:JOE"));
    }
}
