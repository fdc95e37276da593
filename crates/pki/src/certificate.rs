//! One certificate (RFC 5280 section 4.1), read and checked for its structure.
//!
//! ```text
//! Certificate = SEQUENCE { tbsCertificate, signatureAlgorithm, signature }
//!               tbsCertificate = version, serial, algorithm, issuer, validity, subject, key,
//!                                [1] [2] unique identifiers, [3] extensions
//! ```
//! A [`Certificate`] keeps its bytes once, however often it is cloned. Not here: whether anybody
//! should believe it (`chain`).

use std::sync::Arc;

use ironswan_crypto::hash::sha1;
use ironswan_crypto::sign::{KeyFault, Legacy, PublicKey};

use crate::der::{BIT_STRING, INTEGER, Read, Reader, SEQUENCE, explicit, implicit, integer, octets, small};
use crate::extensions::{Extensions, Span};
use crate::general_name::GeneralName;
use crate::name::Name;
use crate::oid;
use crate::time::Time;

/// Longest certificate in bytes. Those of gateways have one or two thousand.
pub const MAX_CERTIFICATE: usize = 64 << 10;

/// Why bytes are no certificate.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum CertificateFault {
    /// The bytes are longer than [`MAX_CERTIFICATE`]: their number.
    TooLong(usize),
    /// This part is not encoded as RFC 5280 says.
    Malformed(&'static str),
    /// The certificate names one algorithm of its signature inside, and another one outside.
    TwoAlgorithms,
}

impl std::fmt::Display for CertificateFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLong(len) => {
                write!(f, "has {len} bytes, and {MAX_CERTIFICATE} is the most that a certificate may have")
            }
            Self::Malformed(part) => write!(f, "is no certificate: its {part} is malformed"),
            Self::TwoAlgorithms => f.write_str("names two different algorithms for its signature"),
        }
    }
}

impl std::error::Error for CertificateFault {}

/// A certificate whose structure was checked.
#[derive(Clone)]
pub struct Certificate {
    der: Arc<[u8]>,
    signed: Span,
    serial: Span,
    algorithm: Span,
    issuer: Span,
    subject: Span,
    not_before: Time,
    not_after: Time,
    key: Span,
    signature: Span,
    extensions: Extensions,
}

impl Certificate {
    /// Reads a certificate in DER.
    ///
    /// # Errors
    /// The bytes are too long, or no certificate: the part that is malformed.
    pub fn from_der(der: &[u8]) -> Result<Self, CertificateFault> {
        use CertificateFault::Malformed as Bad;
        if der.len() > MAX_CERTIFICATE {
            return Err(CertificateFault::TooLong(der.len()));
        }
        let part = |name| move |_| Bad(name);
        let der: Arc<[u8]> = der.into();
        let bytes = &*der;
        let (signed, algorithm, signature) = envelope(bytes).map_err(part("outer structure"))?;
        let mut outer = Reader::new(signed);
        let mut fields = outer.inside(SEQUENCE).map_err(part("outer structure"))?;
        let version = fields.optional(explicit(0)).map_err(part("version"))?;
        let version = version.map_or(Ok(0), |v| crate::der::only(v, INTEGER).and_then(small));
        let version = version.map_err(part("version"))?;
        let serial = fields.read(INTEGER).and_then(integer).map_err(part("serial number"))?;
        let inner = fields.whole(SEQUENCE).map_err(part("algorithm"))?;
        // "This field MUST contain the same algorithm identifier as the signatureAlgorithm field".
        if inner != algorithm {
            return Err(CertificateFault::TwoAlgorithms);
        }
        let issuer = fields.whole(SEQUENCE).and_then(Name::check).map_err(part("issuer"))?;
        let mut validity = fields.inside(SEQUENCE).map_err(part("validity"))?;
        let not_before = Time::read(&mut validity).map_err(part("validity"))?;
        let not_after = Time::read(&mut validity).map_err(part("validity"))?;
        validity.end().map_err(part("validity"))?;
        let subject = fields.whole(SEQUENCE).and_then(Name::check).map_err(part("subject"))?;
        let key = fields.whole(SEQUENCE).map_err(part("public key"))?;
        key_bits(key).map_err(part("public key"))?;
        for number in [1, 2] {
            fields.optional(implicit(number)).map_err(part("unique identifier"))?;
        }
        let extensions = match fields.optional(explicit(3)).map_err(part("list of extensions"))? {
            // "When extensions are used [...] version MUST be 3 (value is 2)."
            Some(_) if version != 2 => return Err(Bad("version")),
            Some(list) => {
                let list = crate::der::only(list, SEQUENCE).map_err(part("list of extensions"))?;
                Extensions::read(bytes, Reader::new(list)).map_err(Bad)?
            }
            None => Extensions::default(),
        };
        fields.end().map_err(part("end"))?;
        let span = |part| Span::of(bytes, part);
        let (issuer, subject, key) = (span(issuer.der()), span(subject.der()), span(key));
        let (signed, serial, algorithm) = (span(signed), span(serial), span(algorithm));
        let signature = span(signature);
        Ok(Self {
            der: Arc::clone(&der),
            signed,
            serial,
            algorithm,
            issuer,
            subject,
            not_before,
            not_after,
            key,
            signature,
            extensions,
        })
    }

    /// The certificate in DER.
    pub fn der(&self) -> &[u8] {
        &self.der
    }

    /// Subject.
    pub fn subject(&self) -> Name<'_> {
        Name::checked(self.subject.within(&self.der))
    }

    /// Issuer.
    pub fn issuer(&self) -> Name<'_> {
        Name::checked(self.issuer.within(&self.der))
    }

    /// Serial number: two's complement, as it stands.
    pub fn serial(&self) -> &[u8] {
        self.serial.within(&self.der)
    }

    /// First second at which the certificate is valid.
    pub fn not_before(&self) -> Time {
        self.not_before
    }

    /// Last second at which the certificate is valid.
    pub fn not_after(&self) -> Time {
        self.not_after
    }

    /// Public key of the subject, if it is one that may be used.
    ///
    /// # Errors
    /// The key is of a kind that is not built, or weak.
    pub fn key(&self, legacy: Legacy) -> Result<PublicKey, KeyFault> {
        PublicKey::from_spki(self.key_info(), legacy)
    }

    /// `SubjectPublicKeyInfo` in DER.
    pub fn key_info(&self) -> &[u8] {
        self.key.within(&self.der)
    }

    /// SHA-1 of the bits of the key, by which OCSP and identities of type ID_KEY_ID name it.
    pub(crate) fn key_id(&self) -> [u8; 20] {
        sha1(key_bits(self.key_info()).unwrap_or_default())
    }

    /// Names of `subjectAltName`.
    pub fn alt_names(&self) -> impl Iterator<Item = GeneralName<'_>> {
        GeneralName::list(self.part(self.extensions.alt_names).unwrap_or_default())
    }

    /// `subjectKeyIdentifier`.
    pub fn subject_key_id(&self) -> Option<&[u8]> {
        self.part(self.extensions.subject_key)
    }

    /// `keyIdentifier` of `authorityKeyIdentifier`: which key of the issuer signed.
    pub fn issuer_key_id(&self) -> Option<&[u8]> {
        self.part(self.extensions.issuer_key)
    }

    /// True when `basicConstraints` says that this is the certificate of a CA.
    pub fn is_ca(&self) -> bool {
        self.extensions.basic.is_some_and(|basic| basic.ca)
    }

    /// True when issuer and subject are the same entity (RFC 5280 section 3.2).
    pub fn is_self_issued(&self) -> bool {
        self.issuer() == self.subject()
    }

    /// Places of OCSP responders, as `authorityInfoAccess` names them.
    pub fn ocsp_uris(&self) -> impl Iterator<Item = &[u8]> {
        let entries =
            crate::extensions::access(self.part(self.extensions.authority_info).unwrap_or_default());
        entries.filter_map(|entry| match entry {
            Ok((oid::ACCESS_OCSP, GeneralName::Uri(uri))) => Some(uri),
            _ => None,
        })
    }

    /// Places of CRLs, as `cRLDistributionPoints` names them.
    pub fn crl_uris(&self) -> impl Iterator<Item = &[u8]> {
        let full = self.crl_points().filter_map(|point| match point.name {
            Some(crate::extensions::PointName::Full(names)) => Some(names),
            _ => None,
        });
        full.flat_map(GeneralName::list).filter_map(|name| match name {
            GeneralName::Uri(uri) => Some(uri),
            _ => None,
        })
    }

    /// Points of `cRLDistributionPoints`.
    pub(crate) fn crl_points(&self) -> impl Iterator<Item = crate::extensions::CrlPoint<'_>> {
        let mut reader = Reader::new(self.part(self.extensions.crl_points).unwrap_or_default());
        std::iter::from_fn(move || crate::extensions::CrlPoint::read(&mut reader).ok())
    }

    /// The bytes that are signed.
    pub(crate) fn signed(&self) -> &[u8] {
        self.signed.within(&self.der)
    }

    /// The signature.
    pub(crate) fn signature(&self) -> &[u8] {
        self.signature.within(&self.der)
    }

    /// `AlgorithmIdentifier` of the signature.
    pub(crate) fn algorithm(&self) -> &[u8] {
        self.algorithm.within(&self.der)
    }

    /// Extensions.
    pub(crate) fn extensions(&self) -> &Extensions {
        &self.extensions
    }

    /// Bytes of an extension.
    pub(crate) fn part(&self, span: Option<Span>) -> Option<&[u8]> {
        span.map(|span| span.within(&self.der))
    }
}

impl PartialEq for Certificate {
    fn eq(&self, other: &Self) -> bool {
        self.der == other.der
    }
}

impl Eq for Certificate {}

impl std::fmt::Debug for Certificate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Certificate({}, serial {})", self.subject(), serial_shown(self.serial()))
    }
}

/// The three parts of what an authority signs: signed bytes, algorithm, and signature.
/// Certificates, CRLs and responses of OCSP begin so.
pub(crate) fn envelope(der: &[u8]) -> Read<(&[u8], &[u8], &[u8])> {
    let mut whole = Reader::new(der);
    let mut parts = whole.inside(SEQUENCE)?;
    whole.end()?;
    let signed = parts.whole(SEQUENCE)?;
    let algorithm = parts.whole(SEQUENCE)?;
    let signature = octets(parts.read(BIT_STRING)?)?;
    parts.end()?;
    Ok((signed, algorithm, signature))
}

/// The bits of the key in a `SubjectPublicKeyInfo`.
fn key_bits(info: &[u8]) -> Read<&[u8]> {
    let mut reader = Reader::new(crate::der::only(info, SEQUENCE)?);
    reader.read(SEQUENCE)?;
    let bits = octets(reader.read(BIT_STRING)?)?;
    reader.end()?;
    Ok(bits)
}

/// A serial number in hexadecimal digits. Of a long one the beginning is shown.
pub(crate) fn serial_shown(serial: &[u8]) -> String {
    let mut out: String = serial.iter().take(20).map(|byte| format!("{byte:02x}")).collect();
    if serial.len() > 20 {
        out.push_str("...");
    }
    out
}
