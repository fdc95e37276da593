//! Validation of one path, from a CA of the configuration down to the peer's certificate: RFC 5280
//! section 6.1.
//!
//! The CA's key verifies first, so a certificate of a stranger costs one signature with a key that
//! the configuration names. Keys of strangers are used only below a signature that was verified.
//!
//! Not here: the search for a path (`chain`), and revocation.

use std::collections::HashMap;

use ironswan_crypto::sign::{PublicKey, Scheme, SignatureFault};

use crate::certificate::Certificate;
use crate::constraints::Constraints;
use crate::der::{OID, Reader, SEQUENCE};
use crate::extensions::KEY_CERT_SIGN;
use crate::fault::{ChainFault, Limit, Rule};
use crate::oid;
use crate::policies::Policies;
use crate::rules::{Purpose, Rules};
use crate::time::Time;

/// Verifies signatures of certificates and counts them. A pair of certificates is verified once.
pub(crate) struct Signatures {
    left: usize,
    max: usize,
    /// Results by the addresses of the two certificates, which live as long as the search.
    known: HashMap<(usize, usize), Result<(), Rule>>,
}

impl Signatures {
    /// Starts with so many signatures left.
    pub(crate) fn new(max: usize) -> Self {
        Self { left: max, max, known: HashMap::new() }
    }

    /// Signatures that were verified.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        self.max - self.left
    }

    /// Verifies the signature of a certificate, unless too many were verified.
    fn check(
        &mut self,
        certificate: &Certificate,
        issuer: &Certificate,
        key: &PublicKey,
        rules: &Rules,
    ) -> Result<(), Rule> {
        let pair = (certificate.der().as_ptr() as usize, issuer.der().as_ptr() as usize);
        if let Some(known) = self.known.get(&pair) {
            return known.clone();
        }
        self.left = self.left.checked_sub(1).ok_or(Rule::Limit { of: Limit::Signatures, max: self.max })?;
        let result =
            signature(certificate.algorithm(), key, certificate.signed(), certificate.signature(), rules);
        self.known.insert(pair, result.clone());
        result
    }
}

/// Verifies one signature. `algorithm` is an `AlgorithmIdentifier` in DER.
pub(crate) fn signature(
    algorithm: &[u8],
    key: &PublicKey,
    message: &[u8],
    signature: &[u8],
    rules: &Rules,
) -> Result<(), Rule> {
    let unknown = || {
        let name = Reader::new(algorithm).inside(SEQUENCE).and_then(|mut inside| inside.read(OID));
        Rule::UnknownAlgorithm { algorithm: oid::dotted(name.unwrap_or_default()) }
    };
    let scheme = Scheme::from_der(algorithm).ok_or_else(unknown)?;
    key.verify(scheme, rules.legacy, message, signature).map_err(|fault| match fault {
        SignatureFault::Scheme => unknown(),
        SignatureFault::Sha1 => Rule::WeakDigest,
        SignatureFault::Encoding | SignatureFault::Wrong | SignatureFault::Internal => Rule::Signature,
    })
}

/// Judges validity, at `now`.
fn validity(certificate: &Certificate, now: Time) -> Result<(), Rule> {
    if now > certificate.not_after() {
        return Err(Rule::Expired { since: certificate.not_after() });
    }
    if now < certificate.not_before() {
        return Err(Rule::NotYetValid { from: certificate.not_before() });
    }
    Ok(())
}

/// Judges a certificate without those above it.
pub(crate) fn alone(certificate: &Certificate, now: Time, rules: &Rules) -> Result<(), Rule> {
    validity(certificate, now)?;
    if let Some(extension) = &certificate.extensions().unknown_critical {
        return Err(Rule::UnknownCritical { extension: extension.to_string() });
    }
    certificate.key(rules.legacy).map_err(Rule::Key)?;
    purpose(certificate, rules.purpose)
}

/// Judges whether a certificate may issue others.
fn issues(certificate: &Certificate) -> Result<(), Rule> {
    if !certificate.is_ca() {
        return Err(Rule::NotCa);
    }
    match certificate.extensions().key_usage {
        Some(usage) if usage & KEY_CERT_SIGN == 0 => {
            Err(Rule::KeyUsage { needed: "signatures of certificates" })
        }
        _ => Ok(()),
    }
}

/// Validates a path at `now`. `path` begins with the peer's own certificate; each certificate has
/// the name of the next one as its issuer, and the last one that of `anchor`.
///
/// # Errors
/// The fault that was found first on the way down, and how many certificates were good until then.
pub(crate) fn validate(
    path: &[&Certificate],
    anchor: &Certificate,
    now: Time,
    rules: &Rules,
    signatures: &mut Signatures,
) -> Result<(), (usize, ChainFault)> {
    let top = path.len();
    let at_anchor = |rule| (0, ChainFault::new(anchor, top, rule));
    issues(anchor).and_then(|()| validity(anchor, now)).map_err(at_anchor)?;
    let key = |certificate: &Certificate| certificate.key(rules.legacy).map_err(Rule::Key);
    let mut issuer_key = key(anchor).map_err(at_anchor)?;
    let mut policies = Policies::new(&rules.policies, top);
    let mut constraints = Constraints::new(rules.limits.comparisons);
    // The constraints of a CA of the configuration hold too, although section 6.1 does not ask for
    // it (RFC 5937).
    constraints.add(anchor);
    let allowed =
        |certificate: &Certificate| certificate.extensions().basic.and_then(|basic| basic.path_length);
    let mut length = allowed(anchor);
    let mut issuer = anchor;
    for (position, &certificate) in path.iter().enumerate().rev() {
        let last = position == 0;
        let mut step = || {
            signatures.check(certificate, issuer, &issuer_key, rules)?;
            validity(certificate, now)?;
            let self_issued = certificate.is_self_issued();
            if last || !self_issued {
                constraints.check(certificate)?;
            }
            if let Some(extension) = &certificate.extensions().unknown_critical {
                return Err(Rule::UnknownCritical { extension: extension.to_string() });
            }
            policies.process(certificate, last)?;
            issuer_key = key(certificate)?;
            if last {
                return purpose(certificate, rules.purpose);
            }
            policies.prepare(certificate)?;
            constraints.add(certificate);
            issues(certificate)?;
            if !self_issued {
                length = match length {
                    Some(0) => return Err(Rule::PathLength { limit: 0 }),
                    other => other.map(|n| n - 1),
                };
            }
            length = match (length, allowed(certificate)) {
                (Some(a), Some(b)) => Some(a.min(b)),
                (a, b) => a.or(b),
            };
            Ok(())
        };
        step().map_err(|rule| (top - position, ChainFault::new(certificate, position, rule)))?;
        issuer = certificate;
    }
    policies.finish(issuer).map_err(|rule| (top, ChainFault::new(issuer, 0, rule)))
}

/// Judges whether the key of the first certificate may be used for this purpose.
fn purpose(certificate: &Certificate, purpose: Purpose) -> Result<(), Rule> {
    let extensions = certificate.extensions();
    if let (Some(usage), Some((bits, needed))) = (extensions.key_usage, purpose.key_usage())
        && usage & bits == 0
    {
        return Err(Rule::KeyUsage { needed });
    }
    let allowed = match certificate.part(extensions.purposes) {
        Some(list) => {
            let mut reader = Reader::new(list);
            std::iter::from_fn(|| reader.read(OID).ok()).any(|name| purpose.allowed(name))
        }
        // "OCSP signing delegation SHALL be designated by the inclusion of id-kp-OCSPSigning".
        None => purpose != Purpose::Ocsp,
    };
    if allowed { Ok(()) } else { Err(Rule::Purpose { needed: purpose.name() }) }
}
