//! Signatures and the keys that make them: RSA (PKCS#1 v1.5 and PSS, RFC 8017), ECDSA over P-256,
//! P-384 and P-521 (FIPS 186-5), Ed25519 (RFC 8032).
//!
//! ```text
//! key file, certificate                 AUTH, certificate
//!   SubjectPublicKeyInfo  -> PublicKey    AlgorithmIdentifier -> Scheme
//!   PKCS#8, PKCS#1, SEC 1 -> PrivateKey   message, signature
//!
//! PrivateKey::sign (Scheme, message)             -> signature
//! PublicKey::verify (Scheme, message, signature) -> yes, or why not
//! ```
//!
//! A key comes from somebody else: lengths, ranges and the curve's equation are checked before
//! anything is computed with the key. SHA-1 and RSA below 2,048 bits need a [`Legacy`] that names
//! them.
//!
//! Not here: what is signed (RFC 7296 section 2.15), which notification announces the hashes (RFC
//! 7427 section 4), certificates, PEM, and encrypted key files.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `der` | elements of DER, read strictly and written |
//! | `ed25519` | Ed25519 by seed and point, and the files of its private keys |
//! | `fault` | why a key or a signature is refused, and limits of keys of RSA |
//! | `private` | private keys, and the files that hold them |
//! | `public` | public keys as `SubjectPublicKeyInfo` |
//! | `scheme` | hashes and signature algorithms with their encodings |

mod der;
mod ed25519;
mod fault;
mod private;
mod public;
mod scheme;
#[cfg(test)]
mod tests;

pub use fault::{KeyFault, MAX_RSA_BITS, MIN_RSA_BITS, MIN_SHORT_RSA_BITS, SignatureFault};
pub use private::PrivateKey;
pub use public::{Curve, KeyKind, PublicKey};
pub use scheme::{Hash, Legacy, Scheme};
