//! Extensions of certificates and requests (RFC 5280 section 4.2), made from what the command line
//! says.

use der::asn1::{Ia5String, ObjectIdentifier, OctetString};
use der::{Encode, oid::AssociatedOid};
use x509_cert::ext::Extension;
use x509_cert::ext::pkix::certpolicy::PolicyInformation;
use x509_cert::ext::pkix::crl::dp::DistributionPoint;
use x509_cert::ext::pkix::name::{DistributionPointName, GeneralName};
use x509_cert::ext::pkix::{
    AccessDescription, AuthorityInfoAccessSyntax, AuthorityKeyIdentifier, BasicConstraints,
    CertificatePolicies, CrlDistributionPoints, ExtendedKeyUsage, KeyUsage, KeyUsages, NameConstraints,
    SubjectAltName, SubjectKeyIdentifier,
};

use crate::args::Content;
use crate::failure::Failure;
use crate::names;
use crate::signed::encoding;
use crate::words::PURPOSES;

/// Access method of an OCSP responder.
const ACCESS_OCSP: ObjectIdentifier = ObjectIdentifier::new_unwrap("1.3.6.1.5.5.7.48.1");

/// One extension.
pub(crate) fn extension<T: AssociatedOid + Encode>(critical: bool, value: &T) -> Result<Extension, Failure> {
    let value = value.to_der().and_then(OctetString::new).map_err(encoding)?;
    Ok(Extension { extn_id: T::OID, critical, extn_value: value })
}

/// A purpose of `extKeyUsage`, by its name or its number.
pub(crate) fn purpose(text: &str) -> Result<ObjectIdentifier, Failure> {
    let known = PURPOSES.iter().find(|(name, _, _)| name.eq_ignore_ascii_case(text));
    let oid = known.map_or(text, |(_, oid, _)| oid);
    ObjectIdentifier::new(oid).map_err(|_| {
        let names: Vec<&str> = PURPOSES.iter().map(|(name, _, _)| *name).collect();
        Failure::usage(format!(
            "--flag {text:?} is no purpose: write {}, or an object identifier",
            names.join(", ")
        ))
    })
}

/// Extensions that a request asks for and a certificate has: purposes and names. "If the subject
/// field contains an empty sequence, [...] the subjectAltName extension [...] MUST be marked as
/// critical".
pub(crate) fn of_subject(
    names: &[GeneralName],
    purposes: &[ObjectIdentifier],
    empty_subject: bool,
) -> Result<Vec<Extension>, Failure> {
    let mut list = Vec::new();
    if !purposes.is_empty() {
        list.push(extension(false, &ExtendedKeyUsage(purposes.to_vec()))?);
    }
    if !names.is_empty() {
        list.push(extension(empty_subject, &SubjectAltName(names.to_vec()))?);
    }
    Ok(list)
}

/// Extensions that say what the certificate is good for: `basicConstraints`, `keyUsage`, and those
/// of a CA alone.
pub(crate) fn of_use(content: &Content) -> Result<Vec<Extension>, Failure> {
    let mut list = Vec::new();
    if content.ca {
        let basic = BasicConstraints { ca: true, path_len_constraint: content.pathlen };
        list.push(extension(true, &basic)?);
        list.push(extension(true, &KeyUsage(KeyUsages::KeyCertSign | KeyUsages::CRLSign))?);
    } else {
        list.push(extension(true, &KeyUsage(KeyUsages::DigitalSignature.into()))?);
    }
    let subtrees = |option: &str, list: &[String]| -> Result<_, Failure> {
        let list: Vec<_> = list.iter().map(|text| names::subtree(option, text)).collect::<Result<_, _>>()?;
        Ok((!list.is_empty()).then_some(list))
    };
    let permitted_subtrees = subtrees("--nc-permitted", &content.nc_permitted)?;
    let excluded_subtrees = subtrees("--nc-excluded", &content.nc_excluded)?;
    if permitted_subtrees.is_some() || excluded_subtrees.is_some() {
        // "Conforming CAs MUST mark this extension as critical".
        list.push(extension(true, &NameConstraints { permitted_subtrees, excluded_subtrees })?);
    }
    Ok(list)
}

/// Extensions that name keys: the subject's and the issuer's.
pub(crate) fn of_keys(subject: &[u8], issuer: &[u8]) -> Result<Vec<Extension>, Failure> {
    let octets = |bytes: &[u8]| OctetString::new(bytes).map_err(encoding);
    let issuer = AuthorityKeyIdentifier { key_identifier: Some(octets(issuer)?), ..Default::default() };
    Ok(vec![extension(false, &SubjectKeyIdentifier(octets(subject)?))?, extension(false, &issuer)?])
}

/// Extensions that say where to ask about revocation, and the policies.
pub(crate) fn of_issuer(content: &Content) -> Result<Vec<Extension>, Failure> {
    let mut list = Vec::new();
    let uri = |option: &str, text: &String| {
        let usable = ironswan_pki::fetch::Place::of_certificate(text.as_bytes());
        usable.map_err(|e| Failure::usage(format!("{option} {text:?}: {e}; write http://HOST/FILE")))?;
        Ia5String::new(text).map(GeneralName::UniformResourceIdentifier).map_err(encoding)
    };
    if !content.crl.is_empty() {
        // Each address is a point of its own, so that each of the lists alone is enough.
        let point = |text: &String| -> Result<_, Failure> {
            let name = Some(DistributionPointName::FullName(vec![uri("--crl", text)?]));
            Ok(DistributionPoint { distribution_point: name, reasons: None, crl_issuer: None })
        };
        let points = content.crl.iter().map(point).collect::<Result<_, _>>()?;
        list.push(extension(false, &CrlDistributionPoints(points))?);
    }
    if !content.ocsp.is_empty() {
        let entry = |text: &String| -> Result<_, Failure> {
            Ok(AccessDescription { access_method: ACCESS_OCSP, access_location: uri("--ocsp", text)? })
        };
        let entries = content.ocsp.iter().map(entry).collect::<Result<_, _>>()?;
        list.push(extension(false, &AuthorityInfoAccessSyntax(entries))?);
    }
    if !content.cert_policy.is_empty() {
        let policy = |text: &String| {
            let oid = ObjectIdentifier::new(text).map_err(|_| {
                Failure::usage(format!(
                    "--cert-policy {text:?} is no object identifier: write numbers with dots"
                ))
            })?;
            Ok(PolicyInformation { policy_identifier: oid, policy_qualifiers: None })
        };
        let policies = content.cert_policy.iter().map(policy).collect::<Result<_, Failure>>()?;
        list.push(extension(false, &CertificatePolicies(policies))?);
    }
    Ok(list)
}
