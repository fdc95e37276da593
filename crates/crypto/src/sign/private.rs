//! Private keys, and the unencrypted files that hold them: `OneAsymmetricKey` (PKCS#8, RFC 5958),
//! `RSAPrivateKey` (PKCS#1, RFC 8017 appendix A.1.2), `ECPrivateKey` (SEC 1, RFC 5915).
//!
//! ```text
//! PKCS#8: SEQUENCE { 0 or 1, AlgorithmIdentifier, OCTET STRING { key }, [0] .., [1] public }
//! key:    RSAPrivateKey | ECPrivateKey | OCTET STRING { seed of Ed25519 }
//! ```
//!
//! The parts of RSA and ECDSA keys live in the library's memory, which overwrites them when the
//! last clone of a key is dropped; a seed of Ed25519 is a [`Secret`].

use std::sync::Arc;

use ironswan_wire::secret::Secret;

use super::der::{self, INTEGER, OCTET_STRING, SEQUENCE, element, only, unsigned, write};
use super::ed25519;
use super::fault::{KeyFault, MAX_RSA_BITS, MIN_RSA_BITS, SignatureFault};
use super::public::{Algorithm, Curve, KeyKind, PublicKey, allowed, check_rsa, fixed_to_der, why_not};
use super::scheme::{Legacy, Scheme};
use crate::engine::aws_lc;
use crate::engine::aws_lc_sys::ecdsa::EcKey;
use crate::engine::aws_lc_sys::rsa::RsaKey;
use crate::wipe;

/// Bytes of the stack that are overwritten after work with a private key: big numbers take the
/// most.
const SIGN_STACK: usize = 64 * 1024;

/// A private key with its public key. Cheap to clone; the clones share one secret.
#[derive(Clone)]
pub struct PrivateKey {
    public: PublicKey,
    secret: Arc<Parts>,
}

enum Parts {
    Rsa(RsaKey),
    Ecdsa(EcKey),
    Ed25519(Secret),
}

impl std::fmt::Debug for PrivateKey {
    /// Says what the key is for, and nothing of its secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PrivateKey({})", self.public.kind())
    }
}

impl PartialEq for PrivateKey {
    /// Keys with the same public key are the same.
    fn eq(&self, other: &Self) -> bool {
        self.public == other.public
    }
}

impl Eq for PrivateKey {}

impl PrivateKey {
    /// Reads a private key in DER: PKCS#8, PKCS#1 or SEC 1.
    ///
    /// # Errors
    /// The bytes hold something else, or more, or a key that nobody should use.
    pub fn from_der(der: &[u8], legacy: Legacy) -> Result<Self, KeyFault> {
        wipe::after::<SIGN_STACK, _>(|| Self::read(der, legacy))
    }

    fn read(der: &[u8], legacy: Legacy) -> Result<Self, KeyFault> {
        let content = only(SEQUENCE, der).ok_or_else(|| why_not(der))?;
        let Some((version, rest)) = element(INTEGER, content) else { return Err(why_not(der)) };
        match rest.first() {
            // PKCS#1 goes on with the modulus, SEC 1 with the scalar, PKCS#8 with the algorithm.
            Some(&INTEGER) => Self::read_rsa(der, legacy),
            Some(&OCTET_STRING) => Self::read_ec(der, None),
            Some(&SEQUENCE) if matches!(version, [0 | 1]) => Self::read_pkcs8(der, rest, legacy),
            _ => Err(KeyFault::Malformed),
        }
    }

    /// Reads PKCS#8, whose fields behind the version are `rest`.
    fn read_pkcs8(der: &[u8], rest: &[u8], legacy: Legacy) -> Result<Self, KeyFault> {
        let (algorithm, rest) = Algorithm::split(rest)?;
        if algorithm == Algorithm::Ed25519 {
            return Self::ed25519(ed25519::private_from_der(der)?.0);
        }
        let (wrapped, mut rest) = element(OCTET_STRING, rest).ok_or(KeyFault::Malformed)?;
        // Attributes say nothing about the key.
        if let Some((_, after)) = element(0xa0, rest) {
            rest = after;
        }
        let mut written = None;
        if let Some((bits, after)) = element(0x81, rest) {
            let [0, key @ ..] = bits else { return Err(KeyFault::Malformed) };
            (written, rest) = (Some(key), after);
        }
        if !rest.is_empty() {
            return Err(KeyFault::Malformed);
        }
        let key = match algorithm {
            Algorithm::Ecdsa(curve) => Self::read_ec(wrapped, Some(curve))?,
            _ => Self::read_rsa(wrapped, legacy)?,
        };
        match written {
            Some(written) if written != key.public.key_bits() => Err(KeyFault::Mismatch),
            _ => Ok(key),
        }
    }

    /// Reads PKCS#1. The sizes of all numbers are checked before the library computes with them.
    fn read_rsa(der: &[u8], legacy: Legacy) -> Result<Self, KeyFault> {
        let read = || {
            let (version, mut rest) = element(INTEGER, only(SEQUENCE, der)?)?;
            // Version 1 has more than two primes, which nothing of today makes.
            (version == [0]).then_some(())?;
            let mut numbers = [&[][..]; 8];
            for number in &mut numbers {
                (*number, rest) = unsigned(rest)?;
            }
            rest.is_empty().then_some(numbers)
        };
        let [modulus, exponent, private @ ..] = read().ok_or(KeyFault::Malformed)?;
        check_rsa(modulus, exponent, legacy)?;
        if private.iter().any(|number| number.is_empty() || number.len() > modulus.len()) {
            return Err(KeyFault::Mismatch);
        }
        let public = PublicKey::rsa(modulus, exponent, legacy)?;
        let secret = RsaKey::from_private(der).ok_or(KeyFault::Mismatch)?;
        Ok(Self { public, secret: Arc::new(Parts::Rsa(secret)) })
    }

    /// Reads SEC 1. The curve stands inside, or in PKCS#8 around it, or in both.
    fn read_ec(der: &[u8], outer: Option<Curve>) -> Result<Self, KeyFault> {
        let content = only(SEQUENCE, der).ok_or(KeyFault::Malformed)?;
        let (version, rest) = element(INTEGER, content).ok_or(KeyFault::Malformed)?;
        let (scalar, mut rest) = element(OCTET_STRING, rest).ok_or(KeyFault::Malformed)?;
        let mut curve = outer;
        if let Some((oid, after)) = element(0xa0, rest) {
            let inner = Curve::ALL.into_iter().find(|curve| curve.oid() == oid).ok_or(KeyFault::Curve)?;
            if outer.is_some_and(|outer| outer != inner) {
                return Err(KeyFault::Mismatch);
            }
            (curve, rest) = (Some(inner), after);
        }
        let mut written = None;
        if let Some((bits, after)) = element(0xa1, rest) {
            let (point, behind) = der::whole_bits(bits).ok_or(KeyFault::Malformed)?;
            if !behind.is_empty() {
                return Err(KeyFault::Malformed);
            }
            (written, rest) = (Some(point), after);
        }
        let curve = curve.ok_or(KeyFault::Curve)?;
        // RFC 5915 section 3: the scalar is as long as the order.
        if version != [1] || !rest.is_empty() || scalar.len() != curve.scalar_len() {
            return Err(KeyFault::Malformed);
        }
        let secret = EcKey::from_private(curve.nist(), scalar).ok_or(KeyFault::Mismatch)?;
        let point = secret.point().ok_or(KeyFault::Mismatch)?;
        if written.is_some_and(|written| written != point) {
            return Err(KeyFault::Mismatch);
        }
        let public = PublicKey::ecdsa(curve, &point)?;
        Ok(Self { public, secret: Arc::new(Parts::Ecdsa(secret)) })
    }

    /// Makes a new key from the system's randomness. RSA takes long: seconds for 4,096 bits.
    ///
    /// # Errors
    /// [`KeyFault::RsaSize`] for lengths of RSA below [`MIN_RSA_BITS`] or above [`MAX_RSA_BITS`],
    /// and for those that are not a multiple of 128.
    pub fn generate(kind: KeyKind) -> Result<Self, KeyFault> {
        wipe::after::<SIGN_STACK, _>(|| match kind {
            KeyKind::Rsa(bits) => {
                let fits = (MIN_RSA_BITS..=MAX_RSA_BITS).contains(&bits) && bits % 128 == 0;
                let secret = fits.then(|| RsaKey::generate(bits)).flatten().ok_or(KeyFault::RsaSize(bits))?;
                let (modulus, exponent) = secret.public_parts().ok_or(KeyFault::Malformed)?;
                let public = PublicKey::rsa(&modulus, &exponent, Legacy::default())?;
                Ok(Self { public, secret: Arc::new(Parts::Rsa(secret)) })
            }
            KeyKind::Ecdsa(curve) => {
                let secret = EcKey::generate(curve.nist()).ok_or(KeyFault::Malformed)?;
                let public = PublicKey::ecdsa(curve, &secret.point().ok_or(KeyFault::Point)?)?;
                Ok(Self { public, secret: Arc::new(Parts::Ecdsa(secret)) })
            }
            KeyKind::Ed25519 => Self::ed25519(Secret::filled(ed25519::SEED_LEN, aws_lc::random)),
        })
    }

    /// The key of Ed25519 with this seed.
    ///
    /// # Errors
    /// `seed` has not 32 bytes.
    pub fn ed25519(seed: Secret) -> Result<Self, KeyFault> {
        let point = ed25519::public(&seed).ok_or(KeyFault::Malformed)?;
        Ok(Self { public: PublicKey::ed25519(&point)?, secret: Arc::new(Parts::Ed25519(seed)) })
    }

    /// The public key.
    pub fn public(&self) -> &PublicKey {
        &self.public
    }

    /// The key as `OneAsymmetricKey` in DER, without its public key: what every program reads.
    /// `None` when memory runs out.
    pub fn to_pkcs8(&self) -> Option<Secret> {
        let (algorithm, key) = match (&*self.secret, self.public.kind()) {
            (Parts::Rsa(key), _) => (super::public::RSA_ALGORITHM.to_vec(), key.private_to_der()?),
            (Parts::Ecdsa(key), KeyKind::Ecdsa(curve)) => {
                let point = secret_element(0xa1, &[&write(der::BIT_STRING, &[&[0], self.public.key_bits()])]);
                let scalar = key.scalar()?;
                let scalar = secret_element(OCTET_STRING, &[scalar.expose()]);
                let key = secret_element(SEQUENCE, &[&[INTEGER, 1, 1], scalar.expose(), point.expose()]);
                (write(SEQUENCE, &[super::public::EC_OID, curve.oid()]), key)
            }
            (Parts::Ed25519(seed), _) => {
                (ed25519::ED25519_ALGORITHM.to_vec(), secret_element(OCTET_STRING, &[seed.expose()]))
            }
            (Parts::Ecdsa(_), _) => return None,
        };
        let wrapped = secret_element(OCTET_STRING, &[key.expose()]);
        Some(secret_element(SEQUENCE, &[&[INTEGER, 1, 0], &algorithm, wrapped.expose()]))
    }

    /// Signs a message. Signatures by ECDSA and RSASSA-PSS have random bytes of the library's own
    /// generator in them: the same message gives another one each time.
    ///
    /// # Errors
    /// The algorithm does not fit the key, or needs a [`Legacy`] that is not given.
    pub fn sign(&self, scheme: Scheme, legacy: Legacy, message: &[u8]) -> Result<Vec<u8>, SignatureFault> {
        wipe::after::<SIGN_STACK, _>(|| self.signature(scheme, legacy, message))
    }

    fn signature(&self, scheme: Scheme, legacy: Legacy, message: &[u8]) -> Result<Vec<u8>, SignatureFault> {
        match (&*self.secret, scheme) {
            (Parts::Ed25519(seed), Scheme::Ed25519) => {
                ed25519::sign(seed, message).ok_or(SignatureFault::Internal)
            }
            (Parts::Rsa(key), Scheme::RsaPkcs1(_) | Scheme::RsaPss { .. }) => {
                let by = allowed(scheme, legacy)?;
                let digest = aws_lc::hash(by, message);
                match scheme {
                    Scheme::RsaPss { salt_len, hash } => {
                        // RFC 8017 section 9.1.1 step 3: hash, salt and two bytes have to fit.
                        let needs = usize::from(salt_len) + usize::from(hash.digest_len().unwrap_or(0)) + 2;
                        if key.len() < needs {
                            return Err(SignatureFault::Scheme);
                        }
                        key.sign_pss(by, salt_len, digest.as_ref())
                    }
                    _ => key.sign_pkcs1(by, digest.as_ref()),
                }
                .ok_or(SignatureFault::Internal)
            }
            (Parts::Ecdsa(key), Scheme::Ecdsa(_) | Scheme::EcdsaFixed(_)) => {
                let by = allowed(scheme, legacy)?;
                let digest = aws_lc::hash(by, message);
                let fixed = key.sign(digest.as_ref()).ok_or(SignatureFault::Internal)?;
                Ok(match scheme {
                    Scheme::Ecdsa(_) => fixed_to_der(&fixed),
                    _ => fixed,
                })
            }
            _ => Err(SignatureFault::Scheme),
        }
    }
}

/// One element of DER that holds a secret.
fn secret_element(tag: u8, parts: &[&[u8]]) -> Secret {
    Secret::new(write(tag, parts))
}
