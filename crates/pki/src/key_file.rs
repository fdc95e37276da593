//! Files of keys, certificates and lists: PEM or DER; private keys as PKCS#1, SEC 1 and PKCS#8, the
//! last one encrypted too; PKCS#12.
//!
//! ```text
//! file ─▶ PEM or DER ─┬─▶ key in clear ──────────────────────┐
//!                     ├─▶ EncryptedPrivateKeyInfo ─▶ opened ─┼─▶ PrivateKey
//!                     └─▶ PKCS#12 ─▶ opened ─────────────────┴─▶ and certificates
//! ```
//! An encrypted file says how often its passphrase is hashed. The number is looked at before
//! anything is computed. Not here: which files are read, and where passphrases come from.

use ironswan_crypto::container;
use ironswan_crypto::sign::{KeyFault, Legacy, PrivateKey, PublicKey};
use ironswan_wire::secret::Secret;

use crate::certificate::{Certificate, CertificateFault};
use crate::crl::{Crl, CrlFault, MAX_CRL};
use crate::der::{INTEGER, OCTET_STRING, Reader, SEQUENCE, explicit, small};
use crate::pem::blocks;

/// Longest file of keys or certificates, in bytes.
pub const MAX_FILE: usize = 1 << 20;
/// Most rounds by which a passphrase is hashed, in one file altogether. OpenSSL writes 2,048.
pub const MAX_ROUNDS: u64 = 2_000_000;
/// How deep elements may stand in each other in an encrypted file.
const MAX_DEPTH: usize = 32;
/// Tag of an OCTET STRING of BER that is made of others.
const IN_PIECES: u8 = OCTET_STRING | 0x20;

/// Why a file holds nothing of use.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileFault {
    /// The file has more bytes than the limit.
    TooLong {
        /// The limit.
        max: usize,
    },
    /// The file has more blocks of PEM than the limit.
    TooMany {
        /// The limit.
        max: usize,
    },
    /// A block of PEM has no end, or other characters than those of base64.
    Pem,
    /// The file is encrypted by headers of PEM: from MD5 of the passphrase, without any rounds.
    OldEncryption,
    /// The file is encrypted, and no passphrase is known.
    Encrypted,
    /// The passphrase is wrong, or the file is damaged, or holds a key of an unknown kind.
    Passphrase,
    /// The passphrase is hashed too often: it would take too long.
    Rounds {
        /// The limit.
        max: u64,
    },
    /// The encrypted file is not in DER.
    Malformed,
    /// The file holds a key that cannot be used.
    Key(KeyFault),
    /// The file holds no certificate.
    Certificate(CertificateFault),
    /// The file holds no revocation list.
    List(CrlFault),
}

impl std::fmt::Display for FileFault {
    /// The part of a sentence behind its subject, the file.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLong { max } => write!(f, "has more than {max} bytes"),
            Self::TooMany { max } => write!(f, "has more than {max} blocks of PEM"),
            Self::Pem => {
                f.write_str("has a block of PEM without its end, or with characters that are not base64")
            }
            Self::OldEncryption => f.write_str(
                "is encrypted by headers of PEM, which is weak: convert it with `openssl pkcs8 -topk8`",
            ),
            Self::Encrypted => f.write_str("is encrypted, and no passphrase is known for it"),
            Self::Passphrase => {
                f.write_str("cannot be decrypted: the passphrase is wrong, or the file is damaged")
            }
            Self::Rounds { max } => write!(f, "wants its passphrase hashed more than {max} times"),
            Self::Malformed => f.write_str("is not encrypted as PKCS#8 or PKCS#12 in DER"),
            Self::Key(fault) => write!(f, "holds no key of use: {fault}"),
            Self::Certificate(fault) => write!(f, "{fault}"),
            Self::List(fault) => write!(f, "{fault}"),
        }
    }
}

impl std::error::Error for FileFault {}

/// Reads a private key in PEM or DER. Of several blocks of PEM the first that is a private key by
/// its label counts.
///
/// # Errors
/// The file holds no private key of use, or is encrypted and the passphrase is missing or wrong.
pub fn private_key(
    file: &[u8],
    passphrase: Option<&Secret>,
    legacy: Legacy,
) -> Result<PrivateKey, FileFault> {
    if file.len() > MAX_FILE {
        return Err(FileFault::TooLong { max: MAX_FILE });
    }
    let blocks = blocks(file)?;
    let block = blocks.iter().find(|block| block.label.is_empty() || block.label.ends_with("PRIVATE KEY"));
    let der = &block.ok_or(FileFault::Key(KeyFault::Malformed))?.der;
    if !is_encrypted(der) {
        return PrivateKey::from_der(der, legacy).map_err(FileFault::Key);
    }
    let passphrase = passphrase.ok_or(FileFault::Encrypted)?;
    check_rounds(der)?;
    let plain = container::open_pkcs8(der, passphrase).ok_or(FileFault::Passphrase)?;
    PrivateKey::from_der(plain.expose(), legacy).map_err(FileFault::Key)
}

/// Reads a public key in PEM or DER: `SubjectPublicKeyInfo`, or `RSAPublicKey` (RFC 8017 appendix
/// A.1.1). Of several blocks of PEM the first that is a public key by its label counts.
///
/// # Errors
/// The file holds no public key of use.
pub fn public_key(file: &[u8], legacy: Legacy) -> Result<PublicKey, FileFault> {
    if file.len() > MAX_FILE {
        return Err(FileFault::TooLong { max: MAX_FILE });
    }
    let blocks = blocks(file)?;
    let block = blocks.iter().find(|block| block.label.is_empty() || block.label.ends_with("PUBLIC KEY"));
    let der = &block.ok_or(FileFault::Key(KeyFault::Malformed))?.der;
    match rsa_parts(der) {
        Some((modulus, exponent)) => PublicKey::rsa(modulus, exponent, legacy),
        None => PublicKey::from_spki(der, legacy),
    }
    .map_err(FileFault::Key)
}

/// Modulus and exponent of an `RSAPublicKey`, without the sign bytes of DER.
fn rsa_parts(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut file = Reader::new(der);
    let mut numbers = file.inside(SEQUENCE).ok().filter(|_| file.is_empty())?;
    let mut number = || {
        let value = numbers.read(INTEGER).ok()?;
        // An INTEGER of DER has no byte too much, and this one is not negative.
        match value {
            [0, rest @ ..] if rest.first().is_some_and(|first| first & 0x80 != 0) => Some(rest),
            [first, ..] if *first > 0 && first & 0x80 == 0 => Some(value),
            _ => None,
        }
    };
    let parts = (number()?, number()?);
    numbers.is_empty().then_some(parts)
}

/// Key and certificates of a file of PKCS#12.
#[derive(Debug)]
pub struct Contents {
    /// The private key, if there is one.
    pub key: Option<PrivateKey>,
    /// The certificates, in the order of the file.
    pub certificates: Vec<Certificate>,
}

/// Reads PKCS#12 in DER, or in PEM with any label.
///
/// # Errors
/// The file is none, or the passphrase is wrong, or what it holds is of no use.
pub fn pkcs12(file: &[u8], passphrase: &Secret, legacy: Legacy) -> Result<Contents, FileFault> {
    if file.len() > MAX_FILE {
        return Err(FileFault::TooLong { max: MAX_FILE });
    }
    let blocks = blocks(file)?;
    let der = &blocks.first().ok_or(FileFault::Malformed)?.der;
    check_rounds(der)?;
    let (key, certificates) = container::open_pkcs12(der, passphrase).ok_or(FileFault::Passphrase)?;
    let key =
        key.map(|key| PrivateKey::from_der(key.expose(), legacy)).transpose().map_err(FileFault::Key)?;
    let certificates: Result<Vec<_>, _> = certificates.iter().map(|der| Certificate::from_der(der)).collect();
    Ok(Contents { key, certificates: certificates.map_err(FileFault::Certificate)? })
}

/// Reads certificates: one in DER, or blocks of PEM. There is one at least.
///
/// # Errors
/// The file holds something else beside or instead of certificates.
pub fn certificates(file: &[u8]) -> Result<Vec<Certificate>, FileFault> {
    if file.len() > MAX_FILE {
        return Err(FileFault::TooLong { max: MAX_FILE });
    }
    let blocks = blocks(file)?;
    blocks.iter().map(|block| Certificate::from_der(&block.der).map_err(FileFault::Certificate)).collect()
}

/// Reads a revocation list in PEM or DER. Of several blocks of PEM the first counts.
///
/// # Errors
/// The file holds no list.
pub fn list(file: &[u8]) -> Result<Crl, FileFault> {
    // PEM is a third longer.
    if file.len() > 2 * MAX_CRL {
        return Err(FileFault::TooLong { max: 2 * MAX_CRL });
    }
    let blocks = blocks(file)?;
    Crl::from_der(&blocks.first().ok_or(FileFault::Pem)?.der).map_err(FileFault::List)
}

/// True for `EncryptedPrivateKeyInfo`: an `AlgorithmIdentifier` and a string. All private keys in
/// clear begin with a version.
fn is_encrypted(der: &[u8]) -> bool {
    let Ok(mut fields) = Reader::new(der).inside(SEQUENCE) else { return false };
    fields.read(SEQUENCE).is_ok() && fields.read(OCTET_STRING).is_ok() && fields.is_empty()
}

/// How often a file wants its passphrase hashed, as far as it says so in clear: 0 for a file that
/// is not encrypted. Rounds in parts that are encrypted stay unseen. The MAC of PKCS#12 is verified
/// before these parts are opened, so whoever wrote them knows the passphrase.
///
/// # Errors
/// The file is too long, or neither PEM nor DER.
pub fn rounds(file: &[u8]) -> Result<u64, FileFault> {
    if file.len() > MAX_FILE {
        return Err(FileFault::TooLong { max: MAX_FILE });
    }
    blocks(file)?.iter().try_fold(0, |sum: u64, block| Ok(sum.saturating_add(count_rounds(&block.der)?)))
}

/// Refuses a file that wants its passphrase hashed too often.
fn check_rounds(der: &[u8]) -> Result<(), FileFault> {
    if count_rounds(der)? > MAX_ROUNDS { Err(FileFault::Rounds { max: MAX_ROUNDS }) } else { Ok(()) }
}

/// Adds up the rounds of one file: each INTEGER behind the OCTET STRING of a salt.
fn count_rounds(der: &[u8]) -> Result<u64, FileFault> {
    let mut rounds = 0u64;
    // Readers, one inside the other, and whether each has just read an OCTET STRING.
    let mut stack = vec![(Reader::new(der), false)];
    while let Some((reader, after_salt)) = stack.last_mut() {
        if reader.is_empty() {
            stack.pop();
            continue;
        }
        let element = reader.element().map_err(|_| FileFault::Malformed)?;
        if element.tag == INTEGER && *after_salt {
            let number = small(element.value).map_err(|_| FileFault::Malformed)?;
            rounds = rounds.saturating_add(u64::from(number));
        }
        *after_salt = element.tag == OCTET_STRING;
        match element.tag {
            // A string in pieces is no DER; the library would put them together.
            IN_PIECES => return Err(FileFault::Malformed),
            // The parts of PKCS#12 that are not encrypted stand in such strings.
            OCTET_STRING if has_elements(element.value) => stack.push((Reader::new(element.value), false)),
            SEQUENCE => stack.push((Reader::new(element.value), false)),
            tag if tag == explicit(0) => stack.push((Reader::new(element.value), false)),
            _ => {}
        }
        if stack.len() > MAX_DEPTH {
            return Err(FileFault::Malformed);
        }
    }
    Ok(rounds)
}

/// True when bytes are elements of DER from end to end, the first one a SEQUENCE.
fn has_elements(bytes: &[u8]) -> bool {
    let mut reader = Reader::new(bytes);
    if reader.peek() != Some(SEQUENCE) {
        return false;
    }
    while !reader.is_empty() {
        if reader.element().is_err() {
            return false;
        }
    }
    true
}

#[cfg(test)]
#[path = "key_file_tests.rs"]
mod tests;
