//! Key exchange methods (RFC 7296 section 2.7, transform type 4): X25519 (RFC 8031), ECP (RFC
//! 5903), MODP (RFC 3526), with the checks of RFC 6989, and ML-KEM (FIPS 203).
//!
//! ```text
//! initiator                                                       responder
//! generate (seed) -> private, public     -- KE: public -->
//!                                       <-- KE: response --       respond (seed, public)
//! agree (private, response) -> secret                               -> response, secret
//! ```
//!
//! Of a Diffie-Hellman method the response is a public value like the initiator's: a responder may
//! also generate and agree. ML-KEM has two kinds of values, so a responder has to respond:
//! encapsulate.
//!
//! A private key is derived from a 32-byte seed, so that the caller's randomness decides and a
//! simulation replays. Not here: which methods are offered, and the KE payload around the public
//! value.
//!
//! | | methods |
//! |---|---|
//! | negotiated ([`supported`]) | X25519, ECP-256, -384, -521, MODP-2048 to -8192 |
//! | the same, and weak | MODP-1024, MODP-1536, and the groups of RFC 5114 |
//! | negotiated as additional exchanges (RFC 9370) | ML-KEM-512, -768, -1024 |

use ironswan_wire::iana::{KeId, PrfId};
use ironswan_wire::secret::{Secret, ct_eq};

use crate::engine::aws_lc::{self, Curve};
use crate::engine::aws_lc_sys::kem::{self, Kem};
use crate::engine::aws_lc_sys::modp::Group;
use crate::prf;
use crate::wipe;

/// Length of a seed in bytes.
pub const SEED_LEN: usize = 32;
/// How much of the stack is overwritten after a computation: big numbers take the most.
const KEX_STACK: usize = 64 * 1024;

/// Why a key exchange failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum KexError {
    /// This method is not in this crate (our caller's fault: it must not have been negotiated).
    Unsupported(KeId),
    /// The public value has the wrong length for the method (the peer's fault).
    Length {
        /// Bytes the method takes.
        expected: usize,
        /// Bytes that came.
        got: usize,
    },
    /// The public value is refused: out of range, not on the curve, or of small order (the peer's
    /// fault).
    PublicValue,
    /// The private key does not belong to the method, or the library failed (our fault).
    Internal,
}

impl std::fmt::Display for KexError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Unsupported(ke) => write!(f, "key exchange method {ke} is not supported"),
            Self::Length { expected, got } => {
                write!(f, "key exchange data of {got} bytes where the method takes {expected}")
            }
            Self::PublicValue => {
                f.write_str("the peer's public value is not valid for the key exchange method")
            }
            Self::Internal => f.write_str("key exchange failed on our side"),
        }
    }
}

impl std::error::Error for KexError {}

#[derive(Clone, Copy)]
enum Method {
    Curve(Curve),
    Modp(Group),
    Kem(Kem),
}

fn method(ke: KeId) -> Option<Method> {
    Some(match ke {
        KeId::CURVE_25519 => Method::Curve(Curve::X25519),
        KeId::ECP_256 => Method::Curve(Curve::P256),
        KeId::ECP_384 => Method::Curve(Curve::P384),
        KeId::ECP_521 => Method::Curve(Curve::P521),
        KeId::MODP_1024 => Method::Modp(Group::Modp1024),
        KeId::MODP_1536 => Method::Modp(Group::Modp1536),
        KeId::MODP_2048 => Method::Modp(Group::Modp2048),
        KeId::MODP_3072 => Method::Modp(Group::Modp3072),
        KeId::MODP_4096 => Method::Modp(Group::Modp4096),
        KeId::MODP_6144 => Method::Modp(Group::Modp6144),
        KeId::MODP_8192 => Method::Modp(Group::Modp8192),
        KeId::MODP_1024_160 => Method::Modp(Group::Modp1024Sub160),
        KeId::MODP_2048_224 => Method::Modp(Group::Modp2048Sub224),
        KeId::MODP_2048_256 => Method::Modp(Group::Modp2048Sub256),
        KeId::ML_KEM_512 => Method::Kem(Kem::MlKem512),
        KeId::ML_KEM_768 => Method::Kem(Kem::MlKem768),
        KeId::ML_KEM_1024 => Method::Kem(Kem::MlKem1024),
        _ => return None,
    })
}

/// True when IKE_SA_INIT and CREATE_CHILD_SA may negotiate the method. Additional key exchanges may
/// use every method of this crate.
pub fn supported(ke: KeId) -> bool {
    matches!(method(ke), Some(Method::Curve(_) | Method::Modp(_)))
}

/// Length of the initiator's Key Exchange Data, in bytes: a public value. `None` for methods that
/// this crate does not have.
pub fn public_len(ke: KeId) -> Option<usize> {
    Some(match method(ke)? {
        Method::Curve(curve) => curve.public_len(),
        Method::Modp(group) => group.len(),
        Method::Kem(kem) => kem.public_len(),
    })
}

/// Length of the responder's Key Exchange Data, in bytes: a public value, or a ciphertext of
/// ML-KEM.
pub fn response_len(ke: KeId) -> Option<usize> {
    match method(ke)? {
        Method::Kem(kem) => Some(kem.ciphertext_len()),
        _ => public_len(ke),
    }
}

/// Makes a key pair: the private key, and the public value as on the wire in IKE (u; x||y; or
/// padded to the group size; an encapsulation key). The same seed gives the same pair, so a seed
/// must be random, secret and used once: [`SEED_LEN`] bytes.
pub fn generate(ke: KeId, seed: &[u8]) -> Result<(Secret, Vec<u8>), KexError> {
    if seed.len() != SEED_LEN {
        return Err(KexError::Internal);
    }
    wipe::after::<KEX_STACK, _>(|| key_pair(ke, seed))
}

fn key_pair(ke: KeId, seed: &[u8]) -> Result<(Secret, Vec<u8>), KexError> {
    match method(ke).ok_or(KexError::Unsupported(ke))? {
        Method::Curve(curve) => {
            // A NIST scalar must be in 1..n-1; a candidate outside (less than once in 2^32) is
            // followed by the next.
            for attempt in 0..=255 {
                let candidate = expand(ke, seed, attempt, curve.private_len());
                let scalar = Secret::filled(candidate.len(), |out| {
                    out.copy_from_slice(candidate.expose());
                    out[0] &= curve.first_byte();
                });
                if let Some(public) = aws_lc::public(curve, scalar.expose()) {
                    return Ok((scalar, public));
                }
            }
            Err(KexError::Internal)
        }
        Method::Modp(group) => {
            let mut exponent = expand(ke, seed, 0, group.exponent_len()).expose().to_vec();
            // All exponents have the same number of bits, so that the time of an exponentiation
            // tells nothing.
            exponent[0] |= 0x80;
            let exponent = Secret::new(exponent);
            let public = group.power(group.generator(), exponent.expose()).ok_or(KexError::Internal)?;
            Ok((exponent, public))
        }
        Method::Kem(kem) => {
            let private = expand(ke, seed, 0, kem::KEY_SEED_LEN);
            let public = kem.public(private.expose()).ok_or(KexError::Internal)?;
            Ok((private, public))
        }
    }
}

/// The responder's part in one: its Key Exchange Data for an initiator's public value, and the
/// shared secret. The seed is one as for [`generate`].
pub fn respond(ke: KeId, seed: &[u8], peer: &[u8]) -> Result<(Vec<u8>, Secret), KexError> {
    if seed.len() != SEED_LEN {
        return Err(KexError::Internal);
    }
    wipe::after::<KEX_STACK, _>(|| match method(ke).ok_or(KexError::Unsupported(ke))? {
        Method::Kem(kem) => {
            check_len(kem.public_len(), peer)?;
            let message = expand(ke, seed, 0, kem::MESSAGE_LEN);
            // FIPS 203 section 7.2: the library refuses keys with numbers that are not reduced.
            kem.encapsulate(peer, message.expose()).ok_or(KexError::PublicValue)
        }
        _ => {
            let (private, public) = key_pair(ke, seed)?;
            Ok((public, shared_secret(ke, &private, peer)?))
        }
    })
}

/// Agrees on the shared secret `g^ir`, as RFC 7296 section 2.14 takes it: u (X25519), the x
/// coordinate (ECP, RFC 5903 section 7), or the value "padded with zeros if necessary to make it
/// the length of the modulus" (MODP). Of ML-KEM `peer` is the ciphertext: only its length can be
/// wrong, another one for another key gives a secret that nobody else has.
///
/// RFC 6989: the peer's value is checked every time, also when our private key is used once.
pub fn agree(ke: KeId, private: &Secret, peer: &[u8]) -> Result<Secret, KexError> {
    wipe::after::<KEX_STACK, _>(|| shared_secret(ke, private, peer))
}

fn shared_secret(ke: KeId, private: &Secret, peer: &[u8]) -> Result<Secret, KexError> {
    let method = method(ke).ok_or(KexError::Unsupported(ke))?;
    check_len(response_len(ke).ok_or(KexError::Unsupported(ke))?, peer)?;
    match method {
        Method::Curve(curve) => {
            if private.len() != curve.private_len() {
                return Err(KexError::Internal);
            }
            let shared = aws_lc::agree(curve, private.expose(), peer).ok_or(KexError::PublicValue)?;
            // The all-zero result of a small-order point (RFC 7748 section 6.1). The library
            // refuses it; this is the second lock on the door. (On the NIST curves x = 0 is a point
            // like any other.)
            if curve == Curve::X25519 && ct_eq(shared.expose(), &[0; 32]) {
                return Err(KexError::PublicValue);
            }
            Ok(shared)
        }
        Method::Modp(group) => {
            if private.len() != group.exponent_len() {
                return Err(KexError::Internal);
            }
            // RFC 6989 section 2.1, groups with safe primes: 1 < r < p-1 MUST be checked. Section
            // 2.2, groups with small subgroups: r^q = 1 (mod p) as well.
            if !group.in_range(peer) || !group.in_subgroup(peer) {
                return Err(KexError::PublicValue);
            }
            group.power(peer, private.expose()).map(Secret::new).ok_or(KexError::Internal)
        }
        Method::Kem(kem) => kem.decapsulate(private.expose(), peer).ok_or(KexError::Internal),
    }
}

/// The error for Key Exchange Data of another length.
fn check_len(expected: usize, peer: &[u8]) -> Result<(), KexError> {
    if peer.len() == expected { Ok(()) } else { Err(KexError::Length { expected, got: peer.len() }) }
}

/// Stretches the seed to a private key: prf+ with labels, so that no two methods share bytes of one
/// seed.
fn expand(ke: KeId, seed: &[u8], attempt: u8, len: usize) -> Secret {
    let prf = prf::get(PrfId::HMAC_SHA2_256).expect("HMAC-SHA2-256 is built in");
    prf::prf_plus(prf, seed, &[b"IronSwan key exchange", &ke.0.to_be_bytes(), &[attempt]], len)
}

#[cfg(test)]
mod tests;
