//! Hashes and signature algorithms, and their `AlgorithmIdentifier` in DER (RFC 7427 appendix A,
//! RFC 8410 section 3), as AUTH of RFC 7427 and certificates name them.

use super::der::{self, INTEGER, SEQUENCE, element, only};
use super::ed25519::ED25519_ALGORITHM;
use crate::engine::aws_lc_sys::rsa::Digest;

/// A hash function of signatures.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Hash {
    /// SHA-1: only for somebody who has asked for it by [`Legacy`].
    Sha1,
    /// SHA2-256.
    Sha256,
    /// SHA2-384.
    Sha384,
    /// SHA2-512.
    Sha512,
    /// "Identity" (RFC 8420 section 2): the algorithm takes the message itself.
    Identity,
}

impl Hash {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Sha1, Self::Sha256, Self::Sha384, Self::Sha512, Self::Identity];

    /// Its number in SIGNATURE_HASH_ALGORITHMS (RFC 7427 section 7, RFC 8420 section 4).
    pub fn number(self) -> u16 {
        match self {
            Self::Sha1 => 1,
            Self::Sha256 => 2,
            Self::Sha384 => 3,
            Self::Sha512 => 4,
            Self::Identity => 5,
        }
    }

    /// The hash of a number in SIGNATURE_HASH_ALGORITHMS. `None` for those that are not here.
    pub fn from_number(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|hash| hash.number() == number)
    }

    /// Length of the digest in bytes. `None` for "Identity", which has none.
    pub fn digest_len(self) -> Option<u16> {
        match self {
            Self::Sha1 => Some(20),
            Self::Sha256 => Some(32),
            Self::Sha384 => Some(48),
            Self::Sha512 => Some(64),
            Self::Identity => None,
        }
    }

    pub(super) fn digest(self) -> Option<Digest> {
        match self {
            Self::Sha1 => Some(Digest::Sha1),
            Self::Sha256 => Some(Digest::Sha256),
            Self::Sha384 => Some(Digest::Sha384),
            Self::Sha512 => Some(Digest::Sha512),
            Self::Identity => None,
        }
    }
}

impl std::fmt::Display for Hash {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Sha1 => "SHA-1",
            Self::Sha256 => "SHA2-256",
            Self::Sha384 => "SHA2-384",
            Self::Sha512 => "SHA2-512",
            Self::Identity => "Identity",
        })
    }
}

/// Weak algorithms that somebody has asked for by name. Without any, [`Legacy::default`], SHA-1 and
/// short keys are refused.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Legacy {
    /// Signatures over SHA-1.
    pub sha1: bool,
    /// RSA of 1,024 to 2,047 bits.
    pub short_rsa: bool,
}

/// A signature algorithm.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Scheme {
    /// RSASSA-PKCS1-v1_5.
    RsaPkcs1(Hash),
    /// RSASSA-PSS with MGF1 of the same hash, and the trailer field 1.
    RsaPss {
        /// Hash of the message, and of MGF1.
        hash: Hash,
        /// Length of the salt in bytes.
        salt_len: u16,
    },
    /// ECDSA, the signature as `Ecdsa-Sig-Value` in DER (RFC 3279 section 2.2.3).
    Ecdsa(Hash),
    /// ECDSA, the signature as r | s of fixed length (RFC 4754 section 7). It has no
    /// `AlgorithmIdentifier`: authentication methods 9, 10 and 11 mean it.
    EcdsaFixed(Hash),
    /// Ed25519.
    Ed25519,
}

impl std::fmt::Display for Scheme {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::RsaPkcs1(hash) => write!(f, "RSA PKCS#1 v1.5 with {hash}"),
            Self::RsaPss { hash, salt_len } => {
                write!(f, "RSA PSS with {hash} and a salt of {salt_len} bytes")
            }
            Self::Ecdsa(hash) => write!(f, "ECDSA with {hash}"),
            Self::EcdsaFixed(hash) => write!(f, "ECDSA of RFC 4754 with {hash}"),
            Self::Ed25519 => f.write_str("Ed25519"),
        }
    }
}

/// Algorithms whose `AlgorithmIdentifier` has no parameters that matter: appendix A.1, A.3 of RFC
/// 7427, and RFC 8410.
const PLAIN: [(Scheme, &[u8]); 9] = [
    (Scheme::RsaPkcs1(Hash::Sha1), b"\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x05\x05\x00"),
    (Scheme::RsaPkcs1(Hash::Sha256), b"\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0b\x05\x00"),
    (Scheme::RsaPkcs1(Hash::Sha384), b"\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0c\x05\x00"),
    (Scheme::RsaPkcs1(Hash::Sha512), b"\x30\x0d\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0d\x05\x00"),
    (Scheme::Ecdsa(Hash::Sha1), b"\x30\x09\x06\x07\x2a\x86\x48\xce\x3d\x04\x01"),
    (Scheme::Ecdsa(Hash::Sha256), b"\x30\x0a\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x02"),
    (Scheme::Ecdsa(Hash::Sha384), b"\x30\x0a\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x03"),
    (Scheme::Ecdsa(Hash::Sha512), b"\x30\x0a\x06\x08\x2a\x86\x48\xce\x3d\x04\x03\x04"),
    (Scheme::Ed25519, &ED25519_ALGORITHM),
];

/// The object identifier of RSASSA-PSS, as an element (RFC 8017 appendix C).
pub(super) const PSS_OID: &[u8] = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x0a";
/// The object identifier of MGF1, as an element.
const MGF1_OID: &[u8] = b"\x06\x09\x2a\x86\x48\x86\xf7\x0d\x01\x01\x08";

/// Hashes of RSASSA-PSS as `AlgorithmIdentifier`. Parameters are NULL in the examples of RFC 7427
/// appendix A.4.3; RFC 4055 section 2.1 has implementations take them absent too.
const PSS_HASHES: [(Hash, &[u8]); 4] = [
    (Hash::Sha1, b"\x06\x05\x2b\x0e\x03\x02\x1a"),
    (Hash::Sha256, b"\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x01"),
    (Hash::Sha384, b"\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x02"),
    (Hash::Sha512, b"\x06\x09\x60\x86\x48\x01\x65\x03\x04\x02\x03"),
];
const NULL: &[u8] = &[0x05, 0x00];

impl Scheme {
    /// Its hash.
    pub fn hash(self) -> Hash {
        match self {
            Self::RsaPkcs1(hash) | Self::RsaPss { hash, .. } | Self::Ecdsa(hash) | Self::EcdsaFixed(hash) => {
                hash
            }
            Self::Ed25519 => Hash::Identity,
        }
    }

    /// RSASSA-PSS as RFC 7427 appendix A.4.3 has it: the salt is as long as the hash. `None` for
    /// "Identity".
    pub fn pss(hash: Hash) -> Option<Self> {
        Some(Self::RsaPss { hash, salt_len: hash.digest_len()? })
    }

    /// Its `AlgorithmIdentifier` in DER. `None` for [`Scheme::EcdsaFixed`] and for hashes that the
    /// algorithm does not go with.
    pub fn to_der(self) -> Option<Vec<u8>> {
        let Self::RsaPss { hash, salt_len } = self else {
            return PLAIN.iter().find(|(scheme, _)| *scheme == self).map(|(_, der)| der.to_vec());
        };
        let (_, oid) = PSS_HASHES.iter().find(|(of, _)| *of == hash)?;
        let digest = der::write(SEQUENCE, &[oid, NULL]);
        let mut parameters = Vec::new();
        // DER leaves out what has its default: SHA-1, a salt of 20 bytes, and the trailer field 1.
        if hash != Hash::Sha1 {
            parameters.extend(der::write(0xa0, &[&digest]));
            parameters.extend(der::write(0xa1, &[&der::write(SEQUENCE, &[MGF1_OID, &digest])]));
        }
        if salt_len != 20 {
            parameters.extend(der::write(0xa2, &[&der::write_unsigned(&salt_len.to_be_bytes())]));
        }
        Some(der::write(SEQUENCE, &[PSS_OID, &der::write(SEQUENCE, &[&parameters])]))
    }

    /// The algorithm of an `AlgorithmIdentifier` in DER. `None` for those that are not here, and
    /// for RSASSA-PSS whose MGF1 has another hash.
    pub fn from_der(der: &[u8]) -> Option<Self> {
        let plain = PLAIN.iter().find(|(_, of)| *of == der).map(|(scheme, _)| *scheme);
        plain.or_else(|| pss_from_der(der))
    }
}

/// Reads `RSASSA-PSS-params` (RFC 8017 appendix A.2.3). A peer may write what has its default: RFC
/// 7427 appendix A.4.3 does so with the trailer field.
fn pss_from_der(der: &[u8]) -> Option<Scheme> {
    let mut rest = only(SEQUENCE, only(SEQUENCE, der)?.strip_prefix(PSS_OID)?)?;
    let mut field = |tag| match element(tag, rest) {
        Some((content, after)) => {
            rest = after;
            Some(content)
        }
        None => None,
    };
    let (hash, mgf, salt, trailer) = (field(0xa0), field(0xa1), field(0xa2), field(0xa3));
    if !rest.is_empty() {
        return None;
    }
    let hash = hash.map_or(Some(Hash::Sha1), pss_hash)?;
    let mgf_hash = match mgf {
        Some(mgf) => pss_hash(only(SEQUENCE, mgf)?.strip_prefix(MGF1_OID)?)?,
        None => Hash::Sha1,
    };
    let salt_len = match salt {
        Some(salt) => match der::unsigned(salt)? {
            ([], []) => 0,
            ([low], []) => u16::from(*low),
            ([high, low], []) => u16::from_be_bytes([*high, *low]),
            _ => return None,
        },
        None => 20,
    };
    if trailer.is_some_and(|trailer| trailer != [INTEGER, 1, 1]) || mgf_hash != hash {
        return None;
    }
    Some(Scheme::RsaPss { hash, salt_len })
}

/// The hash of an `AlgorithmIdentifier` in the parameters of RSASSA-PSS.
fn pss_hash(der: &[u8]) -> Option<Hash> {
    let content = only(SEQUENCE, der)?;
    let of = |oid: &[u8]| content.strip_prefix(oid).is_some_and(|after| after.is_empty() || after == NULL);
    PSS_HASHES.iter().find(|(_, oid)| of(oid)).map(|(hash, _)| *hash)
}
