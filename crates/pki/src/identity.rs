//! Identities of IKE (RFC 7296 section 3.5) and the certificates that speak for them, by RFC 4945
//! section 3 and as strongSwan compares them.
//!
//! | type | fits |
//! |---|---|
//! | ID_DER_ASN1_DN | the subject or a directoryName; `*` for any value of an RDN |
//! | ID_FQDN | a dNSName, without regard to case |
//! | ID_RFC822_ADDR | an rfc822Name, without regard to case |
//! | ID_IPV4_ADDR, ID_IPV6_ADDR | an iPAddress |
//! | ID_KEY_ID | the key's identifier, or SHA-1 of key, SubjectPublicKeyInfo or certificate |
//!
//! A `*` in a certificate means nothing: a name that a CA wrote is one name. The common name is
//! part of the subject, and stands for no FQDN.

use ironswan_crypto::hash::sha1;
use ironswan_wire::iana::IdType;
use ironswan_wire::id::{IdPattern, Identity};

use crate::certificate::Certificate;
use crate::constraints;
use crate::general_name::GeneralName;
use crate::name::Name;

/// True when a certificate speaks for an identity: the peer claims it in IDi or IDr, or the
/// configuration asks for it. Values `*` of a distinguished name stand for any value, so ask with
/// the identity of a peer only when it has none ([`Identity::has_wildcard`]).
pub fn speaks_for(certificate: &Certificate, id: &Identity) -> bool {
    let text = |name: &[u8]| name.eq_ignore_ascii_case(&id.data);
    match id.kind {
        IdType::DER_ASN1_DN => Name::from_der(&id.data).is_some_and(|wanted| {
            certificate.subject().fits(&wanted)
                || certificate.alt_names().any(|name| match name {
                    GeneralName::Directory(name) => name.fits(&wanted),
                    _ => false,
                })
        }),
        IdType::FQDN => certificate.alt_names().any(|name| match name {
            GeneralName::Dns(name) => text(name),
            _ => false,
        }),
        IdType::RFC822_ADDR => certificate.alt_names().any(|name| match name {
            GeneralName::Email(name) => text(name),
            _ => false,
        }),
        IdType::IPV4_ADDR | IdType::IPV6_ADDR => certificate.alt_names().any(|name| match name {
            GeneralName::Ip(addr) => addr == id.data,
            _ => false,
        }),
        IdType::KEY_ID => {
            certificate.subject_key_id().is_some_and(|key| key == id.data)
                || certificate.key_id() == *id.data
                || sha1(certificate.key_info()) == *id.data
                || sha1(certificate.der()) == *id.data
        }
        _ => false,
    }
}

/// True when a certificate has a name that a configuration accepts.
pub fn fits(certificate: &Certificate, pattern: &IdPattern) -> bool {
    match pattern {
        IdPattern::Any => true,
        IdPattern::Exact(id) => speaks_for(certificate, id),
        IdPattern::Name(name) => {
            speaks_for(certificate, &Identity { kind: IdType::DER_ASN1_DN, data: name.clone() })
        }
        IdPattern::Suffix(kind, suffix) => certificate.alt_names().any(|name| {
            let (of, name) = match name {
                GeneralName::Dns(name) => (IdType::FQDN, name),
                GeneralName::Email(name) => (IdType::RFC822_ADDR, name),
                _ => return false,
            };
            let start = name.len().checked_sub(suffix.len());
            of == *kind && start.is_some_and(|start| name[start..].eq_ignore_ascii_case(suffix))
        }),
    }
}

/// True when a CA may issue a certificate for this identity: its name constraints allow the name.
/// Constraints do not limit identities of type ID_KEY_ID.
pub fn may_certify(ca: &Certificate, id: &Identity) -> bool {
    let name = match id.kind {
        IdType::DER_ASN1_DN => Name::from_der(&id.data).map(GeneralName::Directory),
        IdType::FQDN => Some(GeneralName::Dns(&id.data)),
        IdType::RFC822_ADDR => Some(GeneralName::Email(&id.data)),
        IdType::IPV4_ADDR | IdType::IPV6_ADDR => Some(GeneralName::Ip(&id.data)),
        _ => None,
    };
    name.is_none_or(|name| constraints::allows(ca, &name))
}

#[cfg(test)]
#[path = "identity_tests.rs"]
mod tests;
