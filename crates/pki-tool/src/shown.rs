//! Certificates, requests, revocation lists and keys as rows of words: a label, and one or more
//! lines. Text and JSON are both made from the rows.

use der::{Decode, oid::AssociatedOid};
use ironswan_crypto::sign::PublicKey;
use ironswan_pki::{Certificate, Crl, GeneralName as Read, Time};
use x509_cert::certificate::{CertificateInner, Raw};
use x509_cert::crl::CertificateList;
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::name::{DistributionPointName, GeneralName};
use x509_cert::ext::pkix::{
    AuthorityInfoAccessSyntax, AuthorityKeyIdentifier, BasicConstraints, CertificatePolicies,
    CrlDistributionPoints, CrlNumber, CrlReason, ExtendedKeyUsage, KeyUsage, NameConstraints, SubjectAltName,
    SubjectKeyIdentifier,
};

use crate::dates;
use crate::request::Request;
use crate::signed::SHOW_ALL;
use crate::{signed, words};

/// Entries of a list that are shown.
const MAX_ENTRIES: usize = 1_000;
/// Most lines of one row.
const MAX_LINES: usize = 100;

/// One thing, ready to be printed.
pub(crate) struct Shown {
    /// What it is.
    pub(crate) kind: String,
    /// Label, and lines of its value.
    pub(crate) rows: Vec<(&'static str, Vec<String>)>,
}

impl Shown {
    fn new(kind: impl Into<String>) -> Self {
        Self { kind: kind.into(), rows: Vec::new() }
    }

    fn row(&mut self, label: &'static str, value: impl Into<String>) {
        self.rows.push((label, vec![value.into()]));
    }

    fn lines(&mut self, label: &'static str, mut lines: Vec<String>) {
        if lines.len() > MAX_LINES {
            let more = lines.len() - MAX_LINES;
            lines.truncate(MAX_LINES);
            lines.push(format!("and {more} more"));
        }
        if !lines.is_empty() {
            self.rows.push((label, lines));
        }
    }

    fn key(&mut self, key: &PublicKey) {
        self.row("key", words::key(key.kind()));
        self.row("key id", words::colons(&key.id()));
        self.row("key SHA2-256", words::colons(&key.fingerprint()));
    }
}

/// A certificate.
pub(crate) fn certificate(certificate: &Certificate, now: Time) -> Shown {
    let mut shown = Shown::new(match (certificate.is_ca(), certificate.is_self_issued()) {
        (true, true) => "certificate of a root CA",
        (true, false) => "certificate of an intermediate CA",
        (false, true) => "self-signed certificate",
        (false, false) => "certificate",
    });
    shown.row("subject", words::subject(&certificate.subject()));
    shown.row("issuer", words::subject(&certificate.issuer()));
    let (from, until) = (certificate.not_before(), certificate.not_after());
    let begins = if from > now { format!(", begins {}", dates::distance(from, now)) } else { String::new() };
    shown.row("valid from", format!("{from}{begins}"));
    let ends = if until < now { "EXPIRED" } else { "expires" };
    shown.row("valid until", format!("{until}, {ends} {}", dates::distance(until.plus(1), now)));
    shown.row("serial", words::colons(certificate.serial()));
    match certificate.key(SHOW_ALL) {
        Ok(key) => shown.key(&key),
        Err(fault) => shown.row("key", format!("cannot be used: {fault}")),
    }
    if !certificate.is_ca() {
        shown.lines("identities of IKE", identities(certificate));
    }
    match CertificateInner::<Raw>::from_der(certificate.der()) {
        Ok(read) => extensions(&mut shown, read.tbs_certificate().extensions().map_or(&[][..], |list| list)),
        Err(_) => shown.row("extensions", "encoded in a way that is not shown here"),
    }
    shown.row("signature", words::signature(signed::scheme_of(certificate.der())));
    shown.row("SHA2-256", words::colons(&sha256(certificate.der())));
    shown
}

/// Identities that a peer with this certificate may claim, as `local.id` and `remote.id` write them
/// (`ironswan_pki::identity` compares them).
fn identities(certificate: &Certificate) -> Vec<String> {
    let mut list: Vec<String> = certificate
        .alt_names()
        .filter(|name| matches!(name, Read::Dns(_) | Read::Email(_)) || name.ip().is_some())
        .map(|name| name.to_string())
        .collect();
    if !certificate.subject().is_empty() {
        list.push(format!("\"{}\"", certificate.subject()));
    }
    list
}

fn sha256(bytes: &[u8]) -> [u8; 32] {
    ironswan_crypto::hash::sha256(bytes)
}

/// A request.
pub(crate) fn request(request: &Request) -> Shown {
    let mut shown = Shown::new("certificate request");
    shown.row("subject", words::subject(&request.subject()));
    match request.key(SHOW_ALL) {
        Ok(key) => shown.key(&key),
        Err(fault) => shown.row("key", format!("cannot be used: {fault}")),
    }
    extensions(&mut shown, request.extensions());
    let good = match request.verify() {
        Ok(()) => "by the key of the request".into(),
        Err(fault) => format!("WRONG: {fault}; do not issue a certificate for this request"),
    };
    shown.row("signature", format!("{}, {good}", words::signature(signed::scheme_of(request.der()))));
    shown
}

/// A revocation list.
pub(crate) fn list(list: &Crl, now: Time) -> Shown {
    let kind = if list.is_delta() { "revocation list of differences" } else { "revocation list" };
    let mut shown = Shown::new(kind);
    shown.row("issuer", words::subject(&list.issuer()));
    shown.row("issued", list.this_update().to_string());
    match list.next_update() {
        Some(next) => {
            let due = if next < now { "OVERDUE: was due" } else { "due" };
            shown.row("next list", format!("{next}, {due} {}", dates::distance(next, now)));
        }
        None => shown.row("next list", "not said"),
    }
    let read = CertificateList::<Raw>::from_der(list.der());
    let Ok(read) = read.map(|read| read.tbs_cert_list) else {
        shown.row("entries", "encoded in a way that is not shown here");
        return shown;
    };
    extensions(&mut shown, read.crl_extensions.as_deref().unwrap_or_default());
    let entries = read.revoked_certificates.unwrap_or_default();
    let mut lines = Vec::new();
    for entry in entries.iter().take(MAX_ENTRIES.min(MAX_LINES)) {
        let reason = entry.crl_entry_extensions.iter().flatten().find(|e| e.extn_id == CrlReason::OID);
        let reason = reason.and_then(|e| CrlReason::from_der(e.extn_value.as_bytes()).ok());
        let reason =
            reason.map_or(ironswan_pki::status::Reason::NONE, |r| ironswan_pki::status::Reason(r as u8));
        let at = i64::try_from(entry.revocation_date.to_unix_duration().as_secs()).unwrap_or(i64::MAX);
        lines.push(format!(
            "{}  revoked {}, {reason}",
            words::colons(entry.serial_number.as_bytes()),
            Time(at)
        ));
    }
    if entries.len() > lines.len() {
        lines.push(format!("and {} more", entries.len() - lines.len()));
    }
    if lines.is_empty() {
        lines.push("none: nothing is revoked".into());
    }
    shown.rows.push(("entries", lines));
    shown.row("signature", words::signature(signed::scheme_of(list.der())));
    shown.row("SHA2-256", words::colons(&sha256(list.der())));
    shown
}

/// A key. `kind` says whether it is a public or private one.
pub(crate) fn key(kind: &str, key: &PublicKey) -> Shown {
    let mut shown = Shown::new(kind);
    shown.key(key);
    shown
}

/// Adds a row for each extension.
fn extensions(shown: &mut Shown, list: &[Extension]) {
    let mut others = Vec::new();
    for extension in list {
        if !known(shown, extension) {
            let critical = if extension.critical { " (critical)" } else { "" };
            others.push(format!("{}{critical}", words::extension(&extension.extn_id.to_string())));
        }
    }
    shown.lines("other extensions", others);
}

/// Adds the row of an extension whose content is shown. False for all others.
fn known(shown: &mut Shown, extension: &Extension) -> bool {
    let value = extension.extn_value.as_bytes();
    let row: Option<(&'static str, Vec<String>)> = match extension.extn_id {
        SubjectAltName::OID => {
            SubjectAltName::from_der(value).ok().map(|names| ("names", names_of(&names.0)))
        }
        KeyUsage::OID => {
            KeyUsage::from_der(value).ok().map(|usage| ("key may be used for", words::uses(usage)))
        }
        ExtendedKeyUsage::OID => ExtendedKeyUsage::from_der(value).ok().map(|purposes| {
            ("purposes", purposes.0.iter().map(|oid| words::purpose(&oid.to_string())).collect())
        }),
        BasicConstraints::OID => BasicConstraints::from_der(value).ok().map(|basic| {
            let below = match (basic.ca, basic.path_len_constraint) {
                (false, _) => "no".into(),
                (true, None) => "yes, with any number of CAs below".into(),
                (true, Some(0)) => "yes, with no CA below".into(),
                (true, Some(1)) => "yes, with at most 1 CA below".into(),
                (true, Some(number)) => format!("yes, with at most {number} CAs below, one under another"),
            };
            ("CA", vec![below])
        }),
        NameConstraints::OID => NameConstraints::from_der(value).ok().map(|constraints| {
            let line = |word: &'static str| {
                move |tree: &x509_cert::ext::pkix::constraints::name::GeneralSubtree| {
                    format!("{word} {}", words::name(&tree.base))
                }
            };
            let permitted = constraints.permitted_subtrees.iter().flatten().map(line("only"));
            let excluded = constraints.excluded_subtrees.iter().flatten().map(line("not"));
            ("names below", permitted.chain(excluded).collect())
        }),
        SubjectKeyIdentifier::OID => SubjectKeyIdentifier::from_der(value)
            .ok()
            .map(|id| ("subject key id", vec![words::colons(id.0.as_bytes())])),
        AuthorityKeyIdentifier::OID => AuthorityKeyIdentifier::from_der(value).ok().and_then(|id| {
            let id = id.key_identifier?;
            Some(("issuer key id", vec![words::colons(id.as_bytes())]))
        }),
        CrlDistributionPoints::OID => CrlDistributionPoints::from_der(value).ok().map(|points| {
            let names = points.0.iter().filter_map(|point| match &point.distribution_point {
                Some(DistributionPointName::FullName(names)) => Some(names_of(names)),
                _ => None,
            });
            ("revocation list at", names.flatten().map(without_type).collect())
        }),
        AuthorityInfoAccessSyntax::OID => AuthorityInfoAccessSyntax::from_der(value).ok().map(|entries| {
            let line = |entry: &x509_cert::ext::pkix::AccessDescription| {
                let method = match entry.access_method.to_string().as_str() {
                    "1.3.6.1.5.5.7.48.1" => "OCSP".to_owned(),
                    "1.3.6.1.5.5.7.48.2" => "certificate of the issuer".to_owned(),
                    other => other.to_owned(),
                };
                format!("{method} at {}", without_type(words::name(&entry.access_location)))
            };
            ("about the issuer", entries.0.iter().map(line).collect())
        }),
        CertificatePolicies::OID => CertificatePolicies::from_der(value).ok().map(|policies| {
            ("policies", policies.0.iter().map(|policy| policy.policy_identifier.to_string()).collect())
        }),
        CrlNumber::OID => {
            CrlNumber::from_der(value).ok().map(|number| ("number", vec![words::hex(number.0.as_bytes())]))
        }
        _ => None,
    };
    match row {
        Some((label, lines)) => {
            shown.lines(label, lines);
            true
        }
        None => false,
    }
}

/// The address of a URI alone: the row says already that it is one.
fn without_type(name: String) -> String {
    name.strip_prefix("uri ").map(str::to_owned).unwrap_or(name)
}

fn names_of(names: &[GeneralName]) -> Vec<String> {
    names.iter().map(words::name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_has_a_limit() {
        let mut shown = Shown::new("x");
        shown.lines("y", vec!["z".into(); 500]);
        shown.lines("none", Vec::new());
        assert_eq!(shown.rows.len(), 1);
        assert_eq!(shown.rows[0].1.len(), MAX_LINES + 1);
        assert_eq!(shown.rows[0].1[MAX_LINES], "and 400 more");
        let empty = ironswan_pki::Name::from_der(&[0x30, 0]).unwrap();
        assert_eq!(words::subject(&empty), "nobody by name");
    }
}
