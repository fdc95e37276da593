//! AWS-LC through aws-lc-rs: system randomness, SHA-1 and SHA-2, X25519 (RFC 8031), ECDH over the
//! NIST curves (RFC 5903), and Ed25519 (RFC 8032).
//!
//! Safe code only. Not here: everything that aws-lc-rs has no interface for (`aws_lc_sys`).

use aws_lc_rs::agreement::{
    self, Algorithm, ECDH_P256, ECDH_P384, ECDH_P521, PrivateKey, UnparsedPublicKey, X25519,
};
use aws_lc_rs::digest::{self, SHA1_FOR_LEGACY_USE_ONLY};
use aws_lc_rs::signature::{self, ED25519, Ed25519KeyPair, KeyPair};
use ironswan_wire::secret::Secret;

use super::aws_lc_sys::rsa::Digest;

/// A curve as IKE names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Curve {
    X25519,
    P256,
    P384,
    P521,
}

impl Curve {
    fn algorithm(self) -> &'static Algorithm {
        match self {
            Self::X25519 => &X25519,
            Self::P256 => &ECDH_P256,
            Self::P384 => &ECDH_P384,
            Self::P521 => &ECDH_P521,
        }
    }

    /// Length of a private key: the scalar.
    pub(crate) fn private_len(self) -> usize {
        match self {
            Self::X25519 | Self::P256 => 32,
            Self::P384 => 48,
            Self::P521 => 66,
        }
    }

    /// The bits of a private key's first byte that may be set: the order of P-521 has 521 bits, in
    /// 66 bytes.
    pub(crate) fn first_byte(self) -> u8 {
        if self == Self::P521 { 0x01 } else { 0xff }
    }

    /// Length of the Key Exchange Data: u, or x||y (RFC 5903 section 7 has no leading 0x04).
    pub(crate) fn public_len(self) -> usize {
        match self {
            Self::X25519 => 32,
            Self::P256 => 64,
            Self::P384 => 96,
            Self::P521 => 132,
        }
    }

    /// True when the encoding in the library starts with 0x04 and the one in IKE does not.
    fn is_nist(self) -> bool {
        self != Self::X25519
    }
}

/// SHA-1 of `bytes`.
pub(crate) fn sha1(bytes: &[u8]) -> [u8; 20] {
    let mut out = [0; 20];
    out.copy_from_slice(hash(Digest::Sha1, bytes).as_ref());
    out
}

/// The digest of `bytes`.
pub(crate) fn hash(by: Digest, bytes: &[u8]) -> digest::Digest {
    let algorithm = match by {
        Digest::Sha1 => &SHA1_FOR_LEGACY_USE_ONLY,
        Digest::Sha256 => &digest::SHA256,
        Digest::Sha384 => &digest::SHA384,
        Digest::Sha512 => &digest::SHA512,
    };
    digest::digest(algorithm, bytes)
}

/// Fills `out` from the system's generator. AWS-LC aborts the process when there is none, so this
/// cannot fail quietly.
pub(crate) fn random(out: &mut [u8]) {
    aws_lc_rs::rand::fill(out).expect("the system's random generator works");
}

/// The public value of a scalar as on the wire in IKE; `None` when the scalar is out of range for
/// the curve.
pub(crate) fn public(curve: Curve, scalar: &[u8]) -> Option<Vec<u8>> {
    let private = PrivateKey::from_private_key(curve.algorithm(), scalar).ok()?;
    let public = private.compute_public_key().ok()?;
    let bytes = public.as_ref();
    let bytes = if curve.is_nist() { bytes.strip_prefix(&[4])? } else { bytes };
    (bytes.len() == curve.public_len()).then(|| bytes.to_vec())
}

/// The shared secret: u (X25519) or the x coordinate. `None` when the peer's value is refused: not
/// on the curve, or an all-zero X25519 result.
pub(crate) fn agree(curve: Curve, scalar: &[u8], peer: &[u8]) -> Option<Secret> {
    if peer.len() != curve.public_len() {
        return None;
    }
    let private = PrivateKey::from_private_key(curve.algorithm(), scalar).ok()?;
    let mut encoded = Vec::with_capacity(1 + peer.len());
    if curve.is_nist() {
        encoded.push(4);
    }
    encoded.extend_from_slice(peer);
    let peer = UnparsedPublicKey::new(curve.algorithm(), encoded);
    agreement::agree(&private, peer, (), |shared| Ok(Secret::from(shared))).ok()
}

/// The public key of Ed25519 that belongs to a seed. `None` when the seed has not 32 bytes.
pub(crate) fn ed25519_public(seed: &Secret) -> Option<[u8; 32]> {
    let pair = Ed25519KeyPair::from_seed_unchecked(seed.expose()).ok()?;
    pair.public_key().as_ref().try_into().ok()
}

/// Signs a message by Ed25519. `None` when the seed has not 32 bytes.
pub(crate) fn ed25519_sign(seed: &Secret, message: &[u8]) -> Option<Vec<u8>> {
    let pair = Ed25519KeyPair::from_seed_unchecked(seed.expose()).ok()?;
    Some(pair.sign(message).as_ref().to_vec())
}

/// True when `signature` is one of this message by this public key of Ed25519.
pub(crate) fn ed25519_verify(public: &[u8; 32], message: &[u8], signature: &[u8]) -> bool {
    signature::UnparsedPublicKey::new(&ED25519, public).verify(message, signature).is_ok()
}
