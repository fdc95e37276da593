//! Public keys (`SubjectPublicKeyInfo`) and algorithms of signatures (`AlgorithmIdentifier`):
//! RFC 3279, 4055, 5480, 5758 and 8410.
//!
//! Not here: the mathematics. Whoever verifies implements [`Verify`].

use crate::der::{
    BIT_STRING, INTEGER, Malformed, NULL, OID, Read, Reader, SEQUENCE, explicit, octets, only, small,
    unsigned,
};
use crate::oid;

/// Verifies signatures: the one thing that this crate leaves to its caller.
pub trait Verify {
    /// True when `signature` is one of `message` by the owner of `key`. The key is of the kind that
    /// the algorithm names, and its length was judged.
    fn verify(
        &mut self,
        algorithm: SignatureAlgorithm,
        key: PublicKey<'_>,
        message: &[u8],
        signature: &[u8],
    ) -> bool;
}

/// Hash of a signature.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Hash {
    /// SHA-1: refused unless the rules allow it by name.
    Sha1,
    /// SHA-256.
    Sha256,
    /// SHA-384.
    Sha384,
    /// SHA-512.
    Sha512,
}

/// Algorithm of a signature.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum SignatureAlgorithm {
    /// RSASSA-PKCS1-v1_5 (RFC 8017 section 8.2).
    RsaPkcs1(Hash),
    /// RSASSA-PSS (RFC 8017 section 8.1), with MGF1 over the same hash, and a salt of so many
    /// bytes.
    RsaPss(Hash, u32),
    /// ECDSA; the signature is a SEQUENCE of two INTEGERs (RFC 5758).
    Ecdsa(Hash),
    /// Ed25519 (RFC 8410).
    Ed25519,
}

impl SignatureAlgorithm {
    /// Reads an `AlgorithmIdentifier`, tag and length included. `Ok(None)` when it names an
    /// algorithm that is not built.
    pub(crate) fn read(der: &[u8]) -> Read<Option<Self>> {
        let mut reader = Reader::new(only(der, SEQUENCE)?);
        let name = reader.read(OID)?;
        let parameters = if reader.is_empty() { None } else { Some(reader.element()?) };
        reader.end()?;
        // RFC 4055 section 5: parameters of PKCS#1 are NULL, and absent ones are accepted too.
        let without = parameters.is_none_or(|p| p.tag == NULL && p.value.is_empty());
        Ok(match name {
            oid::RSA_PSS => match parameters {
                Some(parameters) => pss(parameters.whole)?,
                None => None,
            },
            oid::ECDSA_SHA1 if without => Some(Self::Ecdsa(Hash::Sha1)),
            oid::ED25519 if parameters.is_none() => Some(Self::Ed25519),
            [front @ .., last] if front == oid::PKCS1 && without => match last {
                5 => Some(Self::RsaPkcs1(Hash::Sha1)),
                11 => Some(Self::RsaPkcs1(Hash::Sha256)),
                12 => Some(Self::RsaPkcs1(Hash::Sha384)),
                13 => Some(Self::RsaPkcs1(Hash::Sha512)),
                _ => None,
            },
            [front @ .., last] if front == oid::ECDSA_SHA2 && without => match last {
                2 => Some(Self::Ecdsa(Hash::Sha256)),
                3 => Some(Self::Ecdsa(Hash::Sha384)),
                4 => Some(Self::Ecdsa(Hash::Sha512)),
                _ => None,
            },
            _ => None,
        })
    }

    /// Hash of the signature. `None` for Ed25519, which has its own.
    pub fn hash(self) -> Option<Hash> {
        match self {
            Self::RsaPkcs1(hash) | Self::RsaPss(hash, _) | Self::Ecdsa(hash) => Some(hash),
            Self::Ed25519 => None,
        }
    }

    /// True when a key of this kind makes such signatures.
    pub(crate) fn fits(self, kind: KeyKind) -> bool {
        match self {
            Self::RsaPkcs1(_) | Self::RsaPss(..) => matches!(kind, KeyKind::Rsa { .. }),
            Self::Ecdsa(_) => matches!(kind, KeyKind::P256 | KeyKind::P384 | KeyKind::P521),
            Self::Ed25519 => kind == KeyKind::Ed25519,
        }
    }
}

/// Reads `RSASSA-PSS-params` (RFC 4055 section 3.1). `None` for parameters that nobody uses:
/// another mask than MGF1 over the same hash, another trailer.
fn pss(der: &[u8]) -> Read<Option<SignatureAlgorithm>> {
    let mut reader = Reader::new(only(der, SEQUENCE)?);
    let hash = match reader.optional(explicit(0))? {
        Some(der) => hash(der)?,
        None => Some(Hash::Sha1),
    };
    let mask = match reader.optional(explicit(1))? {
        Some(der) => {
            let mut mask = Reader::new(only(der, SEQUENCE)?);
            let name = mask.read(OID)?;
            let inner = mask.whole(SEQUENCE)?;
            mask.end()?;
            if name == oid::MGF1 { self::hash(inner)? } else { None }
        }
        None => Some(Hash::Sha1),
    };
    let salt = match reader.optional(explicit(2))? {
        Some(der) => small(only(der, INTEGER)?)?,
        None => 20,
    };
    let trailer = match reader.optional(explicit(3))? {
        Some(der) => small(only(der, INTEGER)?)?,
        None => 1,
    };
    reader.end()?;
    let usual = hash == mask && trailer == 1 && salt <= 512;
    Ok(hash.filter(|_| usual).map(|hash| SignatureAlgorithm::RsaPss(hash, salt)))
}

/// Reads the `AlgorithmIdentifier` of a hash. `Ok(None)` when it is not built.
pub(crate) fn hash(der: &[u8]) -> Read<Option<Hash>> {
    let mut reader = Reader::new(only(der, SEQUENCE)?);
    let name = reader.read(OID)?;
    let without = reader.optional(NULL)?.is_none_or(<[u8]>::is_empty);
    reader.end()?;
    if !without {
        return Err(Malformed);
    }
    Ok(match name {
        oid::SHA1 => Some(Hash::Sha1),
        [front @ .., last] if front == oid::SHA2 => match last {
            1 => Some(Hash::Sha256),
            2 => Some(Hash::Sha384),
            3 => Some(Hash::Sha512),
            _ => None,
        },
        _ => None,
    })
}

/// Kind of a public key.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum KeyKind {
    /// RSA; length of the modulus in bits.
    Rsa {
        /// Length of the modulus in bits.
        bits: u32,
    },
    /// The NIST curve P-256.
    P256,
    /// The NIST curve P-384.
    P384,
    /// The NIST curve P-521.
    P521,
    /// Ed25519.
    Ed25519,
    /// A kind that is not built: Ed448, DSA, another curve.
    Other,
}

impl std::fmt::Display for KeyKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Rsa { bits } => write!(f, "RSA of {bits} bits"),
            Self::P256 => f.write_str("ECDSA over P-256"),
            Self::P384 => f.write_str("ECDSA over P-384"),
            Self::P521 => f.write_str("ECDSA over P-521"),
            Self::Ed25519 => f.write_str("Ed25519"),
            Self::Other => f.write_str("a kind that is not built"),
        }
    }
}

/// A public key as it stands in a certificate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PublicKey<'a> {
    /// `SubjectPublicKeyInfo`, tag and length included.
    info: &'a [u8],
    /// Object identifier of the algorithm.
    algorithm: &'a [u8],
    /// Kind.
    kind: KeyKind,
    /// The bits of the key: `RSAPublicKey`, a point, or 32 bytes.
    bits: &'a [u8],
}

impl<'a> PublicKey<'a> {
    /// Reads `SubjectPublicKeyInfo` in DER. `None` when the bytes are something else.
    pub fn from_der(der: &'a [u8]) -> Option<Self> {
        Self::read(der).ok()
    }

    /// Reads `SubjectPublicKeyInfo`.
    pub(crate) fn read(info: &'a [u8]) -> Read<Self> {
        let mut reader = Reader::new(only(info, SEQUENCE)?);
        let mut identifier = reader.inside(SEQUENCE)?;
        let bits = octets(reader.read(BIT_STRING)?)?;
        reader.end()?;
        let algorithm = identifier.read(OID)?;
        let parameters = if identifier.is_empty() { None } else { Some(identifier.element()?) };
        identifier.end()?;
        let kind = match (algorithm, parameters) {
            // RFC 4055 section 1.2: parameters of a PSS key limit its signatures; without effect
            // here, since the length of a salt is no matter of safety.
            (oid::RSA | oid::RSA_PSS, _) => KeyKind::Rsa { bits: modulus_bits(bits)? },
            (oid::EC, Some(curve)) if curve.tag == OID => match curve.value {
                oid::P256 => KeyKind::P256,
                oid::P384 => KeyKind::P384,
                oid::P521 => KeyKind::P521,
                _ => KeyKind::Other,
            },
            (oid::ED25519, None) if bits.len() == 32 => KeyKind::Ed25519,
            (oid::ED25519, _) => return Err(Malformed),
            _ => KeyKind::Other,
        };
        Ok(Self { info, algorithm, kind, bits })
    }

    /// `SubjectPublicKeyInfo` in DER: the form in which a raw public key is configured.
    pub fn info(&self) -> &'a [u8] {
        self.info
    }

    /// Kind, and for RSA the length.
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// The bits of the key: `RSAPublicKey` in DER, the point of a curve (0x04, x, y), or the 32
    /// bytes of Ed25519.
    pub fn bits(&self) -> &'a [u8] {
        self.bits
    }

    /// SHA-1 of the bits: the key identifier of RFC 5280 section 4.2.1.2, method 1, by which OCSP
    /// and CERTREQ (over `info` there) name keys.
    pub fn bits_sha1(&self) -> [u8; 20] {
        ironswan_crypto::hash::sha1(self.bits)
    }

    /// SHA-1 of `SubjectPublicKeyInfo`: the name of a CA in CERTREQ (RFC 7296 section 3.7).
    pub fn info_sha1(&self) -> [u8; 20] {
        ironswan_crypto::hash::sha1(self.info)
    }

    /// What a person calls the algorithm of this key.
    pub(crate) fn described(&self) -> String {
        match (self.kind, self.algorithm) {
            (KeyKind::Other, oid::ED448) => "Ed448".into(),
            (KeyKind::Other, oid::EC) => "ECDSA over a curve that is not built".into(),
            (KeyKind::Other, other) => format!("algorithm {}", oid::dotted(other)),
            (kind, _) => kind.to_string(),
        }
    }
}

/// Length of the modulus of an `RSAPublicKey`, in bits.
fn modulus_bits(der: &[u8]) -> Read<u32> {
    let mut reader = Reader::new(only(der, SEQUENCE)?);
    let modulus = unsigned(reader.read(INTEGER)?)?;
    let exponent = unsigned(reader.read(INTEGER)?)?;
    reader.end()?;
    let (Some(first), Some(_)) = (modulus.first(), exponent.first()) else { return Err(Malformed) };
    let bits = modulus.len() * 8 - first.leading_zeros() as usize;
    u32::try_from(bits).map_err(|_| Malformed)
}
