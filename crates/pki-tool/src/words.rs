//! Extensions and algorithms in words.

use ironswan_crypto::sign::{Curve, Hash, KeyKind, Scheme};
use x509_cert::ext::pkix::KeyUsages;
use x509_cert::ext::pkix::name::GeneralName;

/// Purposes of `extKeyUsage`: name on the command line, object identifier, and who asks for it.
pub(crate) const PURPOSES: &[(&str, &str, &str)] = &[
    ("serverAuth", "1.3.6.1.5.5.7.3.1", "a TLS server, and a gateway for Windows, macOS and iOS"),
    ("clientAuth", "1.3.6.1.5.5.7.3.2", "a TLS client, and a client for Windows servers"),
    ("ikeIntermediate", "1.3.6.1.5.5.8.2.2", "a gateway for old macOS"),
    ("ipsecIKE", "1.3.6.1.5.5.7.3.17", "a peer of IKE (RFC 4945)"),
    ("ocspSigning", "1.3.6.1.5.5.7.3.9", "signs responses of OCSP"),
    ("codeSigning", "1.3.6.1.5.5.7.3.3", "signs programs"),
    ("emailProtection", "1.3.6.1.5.5.7.3.4", "protects e-mail"),
    ("timeStamping", "1.3.6.1.5.5.7.3.8", "signs times"),
    ("msSmartcardLogon", "1.3.6.1.4.1.311.20.2.2", "logs on to Windows"),
    ("anyPurpose", "2.5.29.37.0", "everything"),
];

/// Bits of `keyUsage` in words.
const USES: &[(KeyUsages, &str)] = &[
    (KeyUsages::DigitalSignature, "signatures (IKE, TLS)"),
    (KeyUsages::NonRepudiation, "signatures that bind (nonRepudiation)"),
    (KeyUsages::KeyEncipherment, "encrypting keys"),
    (KeyUsages::DataEncipherment, "encrypting data"),
    (KeyUsages::KeyAgreement, "agreeing on keys"),
    (KeyUsages::KeyCertSign, "issuing certificates"),
    (KeyUsages::CRLSign, "issuing revocation lists"),
    (KeyUsages::EncipherOnly, "only encrypting"),
    (KeyUsages::DecipherOnly, "only decrypting"),
];

/// Extensions that are shown without their content.
const OTHER_EXTENSIONS: &[(&str, &str)] = &[
    ("2.5.29.18", "issuerAltName"),
    ("2.5.29.9", "subjectDirectoryAttributes"),
    ("2.5.29.33", "policyMappings"),
    ("2.5.29.36", "policyConstraints"),
    ("2.5.29.54", "inhibitAnyPolicy"),
    ("2.5.29.46", "freshestCRL"),
    ("2.5.29.27", "deltaCRLIndicator"),
    ("2.5.29.28", "issuingDistributionPoint"),
    ("1.3.6.1.5.5.7.1.11", "subjectInfoAccess"),
    ("1.3.6.1.5.5.7.1.24", "TLS feature"),
    ("1.3.6.1.5.5.7.48.1.5", "ocspNoCheck"),
    ("1.3.6.1.4.1.11129.2.4.2", "signed certificate timestamps"),
    ("2.16.840.1.113730.1.1", "netscapeCertType"),
    ("2.16.840.1.113730.1.13", "netscapeComment"),
    ("1.3.6.1.4.1.311.20.2", "Microsoft's template name"),
    ("1.3.6.1.4.1.311.21.7", "Microsoft's template"),
];

/// Hexadecimal digits.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Hexadecimal digits with colons, as fingerprints are written. Of a long one the beginning.
pub(crate) fn colons(bytes: &[u8]) -> String {
    let shown: Vec<String> = bytes.iter().take(64).map(|byte| format!("{byte:02x}")).collect();
    shown.join(":") + if bytes.len() > 64 { ":..." } else { "" }
}

/// A subject, also one without a name.
pub(crate) fn subject(name: &ironswan_pki::Name<'_>) -> String {
    if name.is_empty() { "nobody by name".into() } else { name.to_string() }
}

/// A key and its strength (NIST SP 800-57 part 1, table 2).
pub(crate) fn key(kind: KeyKind) -> String {
    let strength = match kind {
        KeyKind::Rsa(..2048) => return format!("{kind}, weak: peers refuse it, make a new one of 3072 bits"),
        KeyKind::Rsa(..3072) => 112,
        KeyKind::Rsa(..7680) | KeyKind::Ecdsa(Curve::P256) | KeyKind::Ed25519 => 128,
        KeyKind::Rsa(..15360) | KeyKind::Ecdsa(Curve::P384) => 192,
        KeyKind::Rsa(_) | KeyKind::Ecdsa(Curve::P521) => 256,
    };
    format!("{kind}, about {strength} bits of strength")
}

/// A signature algorithm.
pub(crate) fn signature(scheme: Option<Scheme>) -> String {
    match scheme {
        Some(scheme) if scheme.hash() == Hash::Sha1 => format!("{scheme}, weak: peers refuse it"),
        Some(scheme) => scheme.to_string(),
        None => "an algorithm that is not known here: peers of this program refuse it".into(),
    }
}

/// The purpose of an object identifier.
pub(crate) fn purpose(oid: &str) -> String {
    match PURPOSES.iter().find(|(_, known, _)| *known == oid) {
        Some((name, _, meaning)) => format!("{name}: {meaning}"),
        None => oid.to_owned(),
    }
}

/// Bits of `keyUsage`.
pub(crate) fn uses(usage: x509_cert::ext::pkix::KeyUsage) -> Vec<String> {
    USES.iter().filter(|(bit, _)| usage.0.contains(*bit)).map(|(_, words)| (*words).to_owned()).collect()
}

/// The name of an extension.
pub(crate) fn extension(oid: &str) -> String {
    OTHER_EXTENSIONS.iter().find(|(known, _)| *known == oid).map_or(oid, |(_, name)| name).to_owned()
}

/// A name of an extension, with its type before it. Text of somebody else is escaped and cut.
pub(crate) fn name(name: &GeneralName) -> String {
    match name {
        GeneralName::DnsName(text) => format!("dns {}", text_of(text.as_str())),
        GeneralName::Rfc822Name(text) => format!("email {}", text_of(text.as_str())),
        GeneralName::UniformResourceIdentifier(text) => format!("uri {}", text_of(text.as_str())),
        GeneralName::IpAddress(bytes) => address(bytes.as_bytes()),
        GeneralName::DirectoryName(name) => {
            let der = der::Encode::to_der(name).unwrap_or_default();
            let shown = ironswan_pki::Name::from_der(&der).map(|name| name.to_string());
            format!("dn {}", shown.unwrap_or_else(|| "(malformed)".into()))
        }
        GeneralName::RegisteredId(oid) => format!("id {oid}"),
        GeneralName::OtherName(other) => format!("a name of type {}", other.type_id),
        GeneralName::EdiPartyName(_) => "an EDI party".into(),
    }
}

/// An IP address, or a network when a mask follows.
fn address(bytes: &[u8]) -> String {
    let addr = |bytes: &[u8]| -> Option<std::net::IpAddr> {
        let v4 = <[u8; 4]>::try_from(bytes).map(std::net::IpAddr::from);
        v4.or_else(|_| <[u8; 16]>::try_from(bytes).map(std::net::IpAddr::from)).ok()
    };
    if let Some(addr) = addr(bytes) {
        return format!("ip {addr}");
    }
    let (front, mask) = bytes.split_at(bytes.len() / 2);
    match addr(front).filter(|_| front.len() == mask.len()) {
        Some(addr) => {
            let prefix = mask.iter().map(|byte| byte.count_ones()).sum::<u32>();
            format!("network {addr}/{prefix}")
        }
        None => format!("an address of {} bytes", bytes.len()),
    }
}

/// Text of somebody else: without control characters, and at most 256 characters.
pub(crate) fn text_of(text: &str) -> String {
    let mut out: String = text.chars().take(256).flat_map(char::escape_default).collect();
    if text.chars().count() > 256 {
        out.push_str("...");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use der::asn1::Ia5String;

    #[test]
    fn strengths_follow_the_table_of_nist() {
        assert!(key(KeyKind::Rsa(1024)).contains("weak"));
        assert_eq!(key(KeyKind::Rsa(2048)), "RSA 2048, about 112 bits of strength");
        assert_eq!(key(KeyKind::Rsa(4096)), "RSA 4096, about 128 bits of strength");
        assert_eq!(key(KeyKind::Ecdsa(Curve::P521)), "ECDSA P-521, about 256 bits of strength");
    }

    #[test]
    fn text_of_others_cannot_change_the_terminal() {
        let hostile = Ia5String::new("\x1b[2Jgw\n").unwrap();
        assert_eq!(name(&GeneralName::DnsName(hostile)), "dns \\u{1b}[2Jgw\\n");
        assert!(text_of(&"x".repeat(10_000)).len() < 300);
        assert_eq!(address(&[10, 1, 0, 0, 255, 255, 0, 0]), "network 10.1.0.0/16");
        assert_eq!(address(&[1, 2, 3]), "an address of 3 bytes");
    }
}
