//! Public keys as `SubjectPublicKeyInfo` (RFC 5280 section 4.1.2.7; RSA: RFC 3279 section 2.3.1,
//! curves: RFC 5480, Ed25519: RFC 8410).
//!
//! ```text
//! SEQUENCE { AlgorithmIdentifier, BIT STRING { RSAPublicKey | 4 x y | point of Ed25519 } }
//! ```
//!
//! A key has exactly one encoding here: everything but DER and uncompressed points is refused, so
//! equal keys are equal bytes.

use std::sync::Arc;

use ironswan_wire::iana::AuthMethod;

use super::der::{self, SEQUENCE, bit_len, only, unsigned, whole_bits, write, write_unsigned};
use super::ed25519::{self, ED25519_ALGORITHM};
use super::fault::{KeyFault, MAX_RSA_BITS, MIN_RSA_BITS, MIN_SHORT_RSA_BITS, SignatureFault};
use super::scheme::{Hash, Legacy, PSS_OID, Scheme};
use crate::engine::aws_lc;
use crate::engine::aws_lc_sys::ecdsa::{EcKey, Nist};
use crate::engine::aws_lc_sys::rsa::RsaKey;

/// The longest public exponent that is taken, in bits. The time of a verification grows with it.
const MAX_EXPONENT_BITS: usize = 33;

/// A curve of ECDSA.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Curve {
    /// P-256, also named secp256r1 and prime256v1.
    P256,
    /// P-384.
    P384,
    /// P-521.
    P521,
}

impl Curve {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::P256, Self::P384, Self::P521];

    /// Its object identifier as an element (RFC 5480 section 2.1.1.1).
    pub(super) fn oid(self) -> &'static [u8] {
        match self {
            Self::P256 => b"\x06\x08\x2a\x86\x48\xce\x3d\x03\x01\x07",
            Self::P384 => b"\x06\x05\x2b\x81\x04\x00\x22",
            Self::P521 => b"\x06\x05\x2b\x81\x04\x00\x23",
        }
    }

    pub(super) fn nist(self) -> Nist {
        match self {
            Self::P256 => Nist::P256,
            Self::P384 => Nist::P384,
            Self::P521 => Nist::P521,
        }
    }

    /// Length of a scalar and of each half of a signature, in bytes.
    pub fn scalar_len(self) -> usize {
        self.nist().len()
    }
}

/// The algorithm that a key is for.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum KeyKind {
    /// RSA with a modulus of this many bits.
    Rsa(usize),
    /// ECDSA over this curve.
    Ecdsa(Curve),
    /// Ed25519.
    Ed25519,
}

impl std::fmt::Display for KeyKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Rsa(bits) => write!(f, "RSA {bits}"),
            Self::Ecdsa(Curve::P256) => f.write_str("ECDSA P-256"),
            Self::Ecdsa(Curve::P384) => f.write_str("ECDSA P-384"),
            Self::Ecdsa(Curve::P521) => f.write_str("ECDSA P-521"),
            Self::Ed25519 => f.write_str("Ed25519"),
        }
    }
}

/// `AlgorithmIdentifier` of RSA keys: rsaEncryption with NULL (RFC 3279 section 2.3.1: "the
/// parameters field MUST have ASN.1 type NULL").
pub(super) const RSA_ALGORITHM: &[u8] = b"\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x01\x05\x00";
/// The object identifier id-ecPublicKey as an element.
pub(super) const EC_OID: &[u8] = b"\x06\x07\x2a\x86\x48\xce\x3d\x02\x01";

/// Object identifiers of keys that are not here, as elements, for a message that names them.
const OTHERS: [(&str, &[u8]); 10] = [
    ("RSASSA-PSS alone", PSS_OID),
    ("DSA", b"\x06\x07\x2a\x86\x48\xce\x38\x04\x01"),
    ("finite-field Diffie-Hellman", b"\x06\x07\x2a\x86\x48\xce\x3e\x02\x01"),
    ("X25519", b"\x06\x03\x2b\x65\x6e"),
    ("X448", b"\x06\x03\x2b\x65\x6f"),
    ("Ed448", b"\x06\x03\x2b\x65\x71"),
    ("ML-DSA-44", b"\x06\x09\x60\x86\x48\x01\x65\x03\x04\x03\x11"),
    ("ML-DSA-65", b"\x06\x09\x60\x86\x48\x01\x65\x03\x04\x03\x12"),
    ("ML-DSA-87", b"\x06\x09\x60\x86\x48\x01\x65\x03\x04\x03\x13"),
    ("GOST R 34.10", b"\x06\x08\x2a\x85\x03\x07\x01\x01\x01\x01"),
];

/// Beginnings of the object identifiers of encryption by a passphrase: PKCS#5 and PKCS#12.
const ENCRYPTION: [&[u8]; 2] = [
    &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x05],
    &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x0c, 0x01],
];

/// A public key that may be used. Cheap to clone.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PublicKey {
    kind: KeyKind,
    /// `SubjectPublicKeyInfo` in DER.
    spki: Arc<[u8]>,
    /// Offset in `spki` of the bytes of `subjectPublicKey`, which go to the end.
    key: u16,
}

impl std::fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PublicKey({})", self.kind)
    }
}

/// The algorithm of an `AlgorithmIdentifier` element of a key; for RSA without the length.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Algorithm {
    Rsa,
    Ecdsa(Curve),
    Ed25519,
}

impl Algorithm {
    /// Splits the content of a `SubjectPublicKeyInfo` or of a `OneAsymmetricKey` behind its version
    /// into the algorithm and the bytes behind it.
    pub(super) fn split(content: &[u8]) -> Result<(Self, &[u8]), KeyFault> {
        let (fields, rest) = der::element(SEQUENCE, content).ok_or(KeyFault::Malformed)?;
        let whole = &content[..content.len() - rest.len()];
        if whole == RSA_ALGORITHM {
            return Ok((Self::Rsa, rest));
        }
        if whole == ED25519_ALGORITHM {
            return Ok((Self::Ed25519, rest));
        }
        if let Some(curve) = fields.strip_prefix(EC_OID) {
            let named = Curve::ALL.into_iter().find(|named| named.oid() == curve);
            return named.map(|curve| (Self::Ecdsa(curve), rest)).ok_or(KeyFault::Curve);
        }
        let other = OTHERS.iter().find(|(_, oid)| fields.starts_with(oid));
        Err(other.map_or(KeyFault::Malformed, |(name, _)| KeyFault::Algorithm(name)))
    }

    fn der(self) -> Vec<u8> {
        match self {
            Self::Rsa => RSA_ALGORITHM.to_vec(),
            Self::Ecdsa(curve) => write(SEQUENCE, &[EC_OID, curve.oid()]),
            Self::Ed25519 => ED25519_ALGORITHM.to_vec(),
        }
    }
}

/// The modulus and the exponent of an `RSAPublicKey` in DER, each without leading zeros.
fn rsa_parts(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (modulus, rest) = unsigned(only(SEQUENCE, der)?)?;
    let (exponent, rest) = unsigned(rest)?;
    rest.is_empty().then_some((modulus, exponent))
}

/// Checks a modulus and an exponent before anything is computed with them. Gives the bits of the
/// modulus.
pub(super) fn check_rsa(modulus: &[u8], exponent: &[u8], legacy: Legacy) -> Result<usize, KeyFault> {
    let bits = bit_len(modulus);
    let least = if legacy.short_rsa { MIN_SHORT_RSA_BITS } else { MIN_RSA_BITS };
    if bits < least || bits > MAX_RSA_BITS {
        return Err(KeyFault::RsaSize(bits));
    }
    if modulus.last().is_none_or(|last| last % 2 == 0) {
        return Err(KeyFault::RsaModulus);
    }
    let odd = exponent.last().is_some_and(|last| last % 2 == 1);
    if !odd || exponent == [1] || bit_len(exponent) > MAX_EXPONENT_BITS {
        return Err(KeyFault::RsaExponent);
    }
    Ok(bits)
}

impl PublicKey {
    /// Reads `SubjectPublicKeyInfo` in DER.
    ///
    /// # Errors
    /// The bytes hold something else, or more, or a key that nobody should use.
    pub fn from_spki(spki: &[u8], legacy: Legacy) -> Result<Self, KeyFault> {
        let content = only(SEQUENCE, spki).ok_or(KeyFault::Malformed)?;
        let (algorithm, rest) = Algorithm::split(content)?;
        let (key, rest) = whole_bits(rest).ok_or(KeyFault::Malformed)?;
        if !rest.is_empty() {
            return Err(KeyFault::Malformed);
        }
        let kind = match algorithm {
            Algorithm::Rsa => {
                let (modulus, exponent) = rsa_parts(key).ok_or(KeyFault::Malformed)?;
                KeyKind::Rsa(check_rsa(modulus, exponent, legacy)?)
            }
            Algorithm::Ecdsa(curve) => {
                EcKey::from_public(curve.nist(), key).ok_or(KeyFault::Point)?;
                KeyKind::Ecdsa(curve)
            }
            Algorithm::Ed25519 => {
                let point = key.try_into().map_err(|_| KeyFault::Malformed)?;
                if ed25519::is_weak(point) {
                    return Err(KeyFault::Weak);
                }
                KeyKind::Ed25519
            }
        };
        let at = u16::try_from(spki.len() - key.len()).map_err(|_| KeyFault::Malformed)?;
        Ok(Self { kind, spki: spki.into(), key: at })
    }

    /// The key of an algorithm and the bytes of its `subjectPublicKey`.
    fn from_bits(algorithm: Algorithm, key: &[u8], legacy: Legacy) -> Result<Self, KeyFault> {
        let bits = write(der::BIT_STRING, &[&[0], key]);
        Self::from_spki(&write(SEQUENCE, &[&algorithm.der(), &bits]), legacy)
    }

    /// The key of a modulus and an exponent in network order, as in `RSAPublicKey`.
    ///
    /// # Errors
    /// Their sizes or values are not those of a key that may be used.
    pub fn rsa(modulus: &[u8], exponent: &[u8], legacy: Legacy) -> Result<Self, KeyFault> {
        // Before anything is written: a length that DER cannot have is no key.
        if modulus.len().max(exponent.len()) > MAX_RSA_BITS / 8 + 1 {
            return Err(KeyFault::RsaSize(8 * modulus.len()));
        }
        let key = write(SEQUENCE, &[&write_unsigned(modulus), &write_unsigned(exponent)]);
        Self::from_bits(Algorithm::Rsa, &key, legacy)
    }

    /// The key of a point of this curve: 4 | x | y.
    ///
    /// # Errors
    /// The bytes are not such a point.
    pub fn ecdsa(curve: Curve, point: &[u8]) -> Result<Self, KeyFault> {
        if point.len() != 1 + 2 * curve.scalar_len() {
            return Err(KeyFault::Point);
        }
        Self::from_bits(Algorithm::Ecdsa(curve), point, Legacy::default())
    }

    /// The key of a point of Ed25519.
    ///
    /// # Errors
    /// The point has small order.
    pub fn ed25519(point: &[u8; ed25519::PUBLIC_LEN]) -> Result<Self, KeyFault> {
        Self::from_bits(Algorithm::Ed25519, point, Legacy::default())
    }

    /// What the key is for.
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// `SubjectPublicKeyInfo` in DER.
    pub fn spki(&self) -> &[u8] {
        &self.spki
    }

    /// The bytes of `subjectPublicKey`: `RSAPublicKey` in DER, 4 | x | y, or the point of Ed25519.
    pub fn key_bits(&self) -> &[u8] {
        &self.spki[usize::from(self.key)..]
    }

    /// SHA-1 of `subjectPublicKey`, which VICI and the subject key identifiers of certificates have
    /// (RFC 5280 section 4.2.1.2, method 1). It names a key; it proves nothing.
    pub fn id(&self) -> [u8; 20] {
        aws_lc::sha1(self.key_bits())
    }

    /// SHA-1 of the whole `SubjectPublicKeyInfo`, as CERTREQ (RFC 7296 section 3.7) and identities
    /// of type ID_KEY_ID have it.
    pub fn info(&self) -> [u8; 20] {
        aws_lc::sha1(&self.spki)
    }

    /// SHA2-256 of the whole `SubjectPublicKeyInfo`.
    pub fn fingerprint(&self) -> [u8; 32] {
        crate::hash::sha256(&self.spki)
    }

    /// The hashes that the owner of this key may sign over by RFC 7427, the best one first: those
    /// of the key's strength and above for ECDSA, all of SHA-2 for RSA.
    pub fn hashes(&self) -> &'static [Hash] {
        use Hash::{Identity, Sha256, Sha384, Sha512};
        match self.kind {
            KeyKind::Rsa(..=3072) => &[Sha256, Sha384, Sha512],
            KeyKind::Rsa(..=7680) => &[Sha384, Sha512, Sha256],
            KeyKind::Rsa(_) => &[Sha512, Sha384, Sha256],
            KeyKind::Ecdsa(Curve::P256) => &[Sha256, Sha384, Sha512],
            KeyKind::Ecdsa(Curve::P384) => &[Sha384, Sha512],
            KeyKind::Ecdsa(Curve::P521) => &[Sha512],
            KeyKind::Ed25519 => &[Identity],
        }
    }

    /// The algorithm of this key with a hash, by RFC 7427. `pss` chooses RSASSA-PSS for RSA. `None`
    /// for a hash that the key does not go with.
    pub fn scheme(&self, hash: Hash, pss: bool) -> Option<Scheme> {
        match (self.kind, hash) {
            (KeyKind::Ed25519, Hash::Identity) => Some(Scheme::Ed25519),
            (KeyKind::Ed25519, _) | (_, Hash::Identity) => None,
            (KeyKind::Rsa(_), _) if pss => Scheme::pss(hash),
            (KeyKind::Rsa(_), _) => Some(Scheme::RsaPkcs1(hash)),
            (KeyKind::Ecdsa(_), _) => Some(Scheme::Ecdsa(hash)),
        }
    }

    /// The authentication method of this key from before RFC 7427, and its algorithm: RFC 4754
    /// section 3 fixes the hash of each curve; RFC 7296 section 3.8 has SHA-1 as the default of
    /// RSA. `None` for Ed25519, which has none.
    pub fn old_method(&self) -> Option<(AuthMethod, Scheme)> {
        Some(match self.kind {
            KeyKind::Rsa(_) => (AuthMethod::RSA, Scheme::RsaPkcs1(Hash::Sha1)),
            KeyKind::Ecdsa(Curve::P256) => (AuthMethod::ECDSA_256, Scheme::EcdsaFixed(Hash::Sha256)),
            KeyKind::Ecdsa(Curve::P384) => (AuthMethod::ECDSA_384, Scheme::EcdsaFixed(Hash::Sha384)),
            KeyKind::Ecdsa(Curve::P521) => (AuthMethod::ECDSA_521, Scheme::EcdsaFixed(Hash::Sha512)),
            KeyKind::Ed25519 => return None,
        })
    }

    /// Verifies a signature of this message.
    ///
    /// # Errors
    /// The signature is not one by this key, or the algorithm does not fit the key, or needs a
    /// [`Legacy`] that is not given.
    pub fn verify(
        &self,
        scheme: Scheme,
        legacy: Legacy,
        message: &[u8],
        signature: &[u8],
    ) -> Result<(), SignatureFault> {
        let good = match (self.kind, scheme) {
            (KeyKind::Ed25519, Scheme::Ed25519) => {
                if signature.len() != ed25519::SIGNATURE_LEN {
                    return Err(SignatureFault::Encoding);
                }
                self.key_bits().try_into().is_ok_and(|point| ed25519::verify(point, message, signature))
            }
            (KeyKind::Rsa(bits), Scheme::RsaPkcs1(_) | Scheme::RsaPss { .. }) => {
                let by = allowed(scheme, legacy)?;
                // RFC 8017 sections 8.1.2 and 8.2.2, step 1: the signature has the modulus' length.
                if signature.len() != bits.div_ceil(8) {
                    return Err(SignatureFault::Encoding);
                }
                let (modulus, exponent) = rsa_parts(self.key_bits()).ok_or(SignatureFault::Internal)?;
                let key = RsaKey::from_public(modulus, exponent).ok_or(SignatureFault::Internal)?;
                let digest = aws_lc::hash(by, message);
                match scheme {
                    Scheme::RsaPss { salt_len, .. } => {
                        key.verify_pss(by, salt_len, digest.as_ref(), signature)
                    }
                    _ => key.verify_pkcs1(by, digest.as_ref(), signature),
                }
            }
            (KeyKind::Ecdsa(curve), Scheme::Ecdsa(_) | Scheme::EcdsaFixed(_)) => {
                let by = allowed(scheme, legacy)?;
                let fixed = match scheme {
                    Scheme::Ecdsa(_) => fixed_from_der(curve, signature),
                    _ => (signature.len() == 2 * curve.scalar_len()).then(|| signature.to_vec()),
                };
                let fixed = fixed.ok_or(SignatureFault::Encoding)?;
                let key =
                    EcKey::from_public(curve.nist(), self.key_bits()).ok_or(SignatureFault::Internal)?;
                key.verify(aws_lc::hash(by, message).as_ref(), &fixed)
            }
            _ => return Err(SignatureFault::Scheme),
        };
        if good { Ok(()) } else { Err(SignatureFault::Wrong) }
    }
}

/// The digest of an algorithm, if nothing in it is forbidden.
pub(super) fn allowed(
    scheme: Scheme,
    legacy: Legacy,
) -> Result<crate::engine::aws_lc_sys::rsa::Digest, SignatureFault> {
    if scheme.hash() == Hash::Sha1 && !legacy.sha1 {
        return Err(SignatureFault::Sha1);
    }
    scheme.hash().digest().ok_or(SignatureFault::Scheme)
}

/// `Ecdsa-Sig-Value` in DER as r | s. `None` when the bytes are anything else, or a number is
/// longer than the curve's.
fn fixed_from_der(curve: Curve, der: &[u8]) -> Option<Vec<u8>> {
    let (r, rest) = unsigned(only(SEQUENCE, der)?)?;
    let (s, rest) = unsigned(rest)?;
    let len = curve.scalar_len();
    if !rest.is_empty() || r.len() > len || s.len() > len {
        return None;
    }
    let mut out = vec![0; 2 * len];
    out[len - r.len()..len].copy_from_slice(r);
    out[2 * len - s.len()..].copy_from_slice(s);
    Some(out)
}

/// r | s as `Ecdsa-Sig-Value` in DER.
pub(super) fn fixed_to_der(fixed: &[u8]) -> Vec<u8> {
    let (r, s) = fixed.split_at(fixed.len() / 2);
    write(SEQUENCE, &[&write_unsigned(r), &write_unsigned(s)])
}

/// Why bytes that should begin with a key's algorithm do not: encrypted, or something else.
pub(super) fn why_not(der: &[u8]) -> KeyFault {
    // The object identifier stands near the beginning.
    let head = &der[..der.len().min(64)];
    let names = |oid: &&[u8]| head.windows(oid.len()).any(|window| window == *oid);
    if ENCRYPTION.iter().any(names) { KeyFault::Encrypted } else { KeyFault::Malformed }
}
