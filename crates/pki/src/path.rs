//! Validation of one path, from a CA of the configuration down to the peer's certificate: RFC 5280
//! section 6.1.
//!
//! The CA's key verifies first, so a certificate of a stranger costs one signature with a key that
//! the configuration names. Keys of strangers are used only below a signature that was verified.
//!
//! Not here: the search for a path (`chain`), and revocation.

use std::collections::HashMap;

use crate::certificate::Certificate;
use crate::constraints::Constraints;
use crate::der::{OID, Reader};
use crate::extensions::KEY_CERT_SIGN;
use crate::fault::{ChainFault, Limit, Rule};
use crate::key::{Hash, KeyKind, PublicKey, SignatureAlgorithm, Verify};
use crate::oid;
use crate::policies::Policies;
use crate::rules::{MAX_RSA, Purpose, Rules};
use crate::time::Time;

/// Verifies signatures and counts them. A pair of certificates is verified once.
pub(crate) struct Signatures<'v> {
    verify: &'v mut dyn Verify,
    left: usize,
    max: usize,
    /// Results by the addresses of signed bytes and of the key: both live as long as the search.
    known: HashMap<(usize, usize), bool>,
}

impl<'v> Signatures<'v> {
    /// Starts with so many signatures left.
    pub(crate) fn new(verify: &'v mut dyn Verify, max: usize) -> Self {
        Self { verify, left: max, max, known: HashMap::new() }
    }

    /// Verifies one signature, unless too many were verified.
    pub(crate) fn check(
        &mut self,
        algorithm: SignatureAlgorithm,
        key: PublicKey<'_>,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), Rule> {
        let pair = (message.as_ptr() as usize, key.info().as_ptr() as usize);
        let good = match self.known.get(&pair) {
            Some(&good) => good,
            None => {
                self.left =
                    self.left.checked_sub(1).ok_or(Rule::Limit { of: Limit::Signatures, max: self.max })?;
                let good = self.verify.verify(algorithm, key, message, signature);
                self.known.insert(pair, good);
                good
            }
        };
        if good { Ok(()) } else { Err(Rule::Signature) }
    }
}

/// Judges an `AlgorithmIdentifier` of a signature for a key of this kind.
pub(crate) fn algorithm(der: &[u8], kind: KeyKind, rules: &Rules) -> Result<SignatureAlgorithm, Rule> {
    let unknown = || {
        let name = Reader::new(der).inside(crate::der::SEQUENCE).and_then(|mut inside| inside.read(OID));
        Rule::UnknownAlgorithm { algorithm: oid::dotted(name.unwrap_or_default()) }
    };
    let algorithm = SignatureAlgorithm::read(der).ok().flatten().ok_or_else(unknown)?;
    if !algorithm.fits(kind) {
        return Err(unknown());
    }
    if algorithm.hash() == Some(Hash::Sha1) && !rules.allow_sha1 {
        return Err(Rule::WeakDigest);
    }
    Ok(algorithm)
}

/// Judges the kind and length of a key.
pub(crate) fn key(key: PublicKey<'_>, rules: &Rules) -> Result<(), Rule> {
    match key.kind() {
        KeyKind::Rsa { bits } if bits < rules.min_rsa() => Err(Rule::ShortKey { bits, min: rules.min_rsa() }),
        KeyKind::Rsa { bits } if bits > MAX_RSA => Err(Rule::LongKey { bits, max: MAX_RSA }),
        KeyKind::Other => Err(Rule::UnknownKey { algorithm: key.described() }),
        _ => Ok(()),
    }
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
    signatures: &mut Signatures<'_>,
) -> Result<(), (usize, ChainFault)> {
    let top = path.len();
    let at_anchor = |rule| (0, ChainFault::new(anchor, top, rule));
    issues(anchor)
        .and_then(|()| validity(anchor, now))
        .and_then(|()| key(anchor.key(), rules))
        .map_err(at_anchor)?;
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
            let algorithm = algorithm(certificate.algorithm(), issuer.key().kind(), rules)?;
            signatures.check(algorithm, issuer.key(), certificate.signed(), certificate.signature())?;
            validity(certificate, now)?;
            let self_issued = certificate.is_self_issued();
            if last || !self_issued {
                constraints.check(certificate)?;
            }
            if let Some(extension) = &certificate.extensions().unknown_critical {
                return Err(Rule::UnknownCritical { extension: extension.to_string() });
            }
            policies.process(certificate, last)?;
            key(certificate.key(), rules)?;
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
