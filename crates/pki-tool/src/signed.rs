//! Bodies with their signature: what certificates, requests and revocation lists have in common.
//!
//! ```text
//! SEQUENCE { body, AlgorithmIdentifier, BIT STRING }
//! ```

use der::asn1::{Any, BitString};
use der::{Decode, Encode, Sequence};
use ironswan_crypto::sign::{Hash, Legacy, PrivateKey, PublicKey, Scheme, SignatureFault};

use crate::args::{Digest, Padding, Signing};
use crate::failure::Failure;

/// Weak algorithms are shown, and named as weak.
pub(crate) const SHOW_ALL: Legacy = Legacy { sha1: true, short_rsa: true };

#[derive(Sequence)]
struct Envelope {
    body: Any,
    algorithm: Any,
    signature: BitString,
}

/// The error of an encoding that this program makes itself.
pub(crate) fn encoding(e: der::Error) -> Failure {
    Failure::internal(&format!("the encoding ({e})"))
}

/// The algorithm of a signature by this key, as the command line asks for it.
///
/// # Errors
/// The key does not go with the hash.
pub(crate) fn scheme(key: &PublicKey, signing: &Signing) -> Result<Scheme, Failure> {
    let hash = match signing.digest {
        Some(Digest::Sha256) => Hash::Sha256,
        Some(Digest::Sha384) => Hash::Sha384,
        Some(Digest::Sha512) => Hash::Sha512,
        None => key.hashes()[0],
    };
    key.scheme(hash, signing.rsa_padding == Padding::Pss).ok_or_else(|| {
        Failure::usage(format!("a key of {} does not sign with {hash}: leave --digest out", key.kind()))
    })
}

/// The algorithm as `AlgorithmIdentifier`.
pub(crate) fn algorithm(scheme: Scheme) -> Result<Any, Failure> {
    let der = scheme.to_der().ok_or_else(|| Failure::internal("naming the signature algorithm"))?;
    Any::from_der(&der).map_err(encoding)
}

/// Signs a body, which names the same algorithm inside where it has a place for it.
pub(crate) fn sign(body: &impl Encode, key: &PrivateKey, scheme: Scheme) -> Result<Vec<u8>, Failure> {
    let body = body.to_der().map_err(encoding)?;
    let signature = key
        .sign(scheme, Legacy::default(), &body)
        .map_err(|e| Failure::usage(format!("the key of {} cannot sign: {e}", key.public().kind())))?;
    let envelope = || {
        let signature = BitString::from_bytes(&signature)?;
        let body = Any::from_der(&body)?;
        Ok((body, signature))
    };
    let (body, signature) = envelope().map_err(encoding)?;
    Envelope { body, algorithm: algorithm(scheme)?, signature }.to_der().map_err(encoding)
}

/// The algorithm of what is signed. `None` when it is not known here.
pub(crate) fn scheme_of(der: &[u8]) -> Option<Scheme> {
    let envelope = Envelope::from_der(der).ok()?;
    Scheme::from_der(&envelope.algorithm.to_der().ok()?)
}

/// Verifies the signature of what is signed.
///
/// # Errors
/// The signature is not one by this key, or its algorithm is not accepted.
pub(crate) fn verify(der: &[u8], key: &PublicKey, legacy: Legacy) -> Result<(), SignatureFault> {
    let envelope = Envelope::from_der(der).map_err(|_| SignatureFault::Encoding)?;
    let (Ok(body), Ok(algorithm)) = (envelope.body.to_der(), envelope.algorithm.to_der()) else {
        return Err(SignatureFault::Encoding);
    };
    let scheme = Scheme::from_der(&algorithm).ok_or(SignatureFault::Scheme)?;
    let signature = envelope.signature.as_bytes().ok_or(SignatureFault::Encoding)?;
    key.verify(scheme, legacy, &body, signature)
}
