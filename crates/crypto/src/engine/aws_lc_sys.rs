//! AWS-LC's C interface, called directly. All the `unsafe` of this crate is in the files below.
//!
//! ```text
//! aead.rs   EVP_AEAD_CTX: AES-GCM, ChaCha20-Poly1305, in place, the tag in its own slice
//! aes.rs    AES_KEY: CBC in place, one block, counter mode, CBC-MAC's chain
//! bn.rs     BIGNUM
//! container.rs PKCS8, PKCS12: key files under a passphrase
//! des.rs    DES_key_schedule: 3DES-CBC in place
//! ecdsa.rs  EC_KEY: ECDSA over the NIST curves
//! hmac.rs   SHA*_CTX: HMAC whose key is absorbed once
//! kem.rs    EVP_PKEY: ML-KEM, from seeds
//! modp.rs   BIGNUM: modular exponentiation in MODP groups
//! rsa.rs    RSA: PKCS#1 v1.5 and PSS
//! stream.rs the ChaCha20 keystream behind the seeded generator
//! ```
//!
//! Rules for all of them: a Rust slice gives pointer and length, both for the duration of the call
//! only; output never overlaps input except where it is the same slice; sizes are checked before
//! the call, so that a return value of 0 means the peer's data (open) or a broken library
//! (everything else).
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `aead` | AES-GCM and ChaCha20-Poly1305 |
//! | `aes` | AES: blocks, CBC, counter mode |
//! | `bn` | big numbers, wiped when dropped |
//! | `container` | key files under a passphrase |
//! | `des` | 3DES in CBC mode |
//! | `ecdsa` | ECDSA over P-256, P-384 and P-521 |
//! | `hmac` | HMAC, with the key absorbed once |
//! | `kem` | ML-KEM |
//! | `modp` | modular exponentiation in MODP groups |
//! | `rsa` | RSA signatures |
//! | `stream` | the ChaCha20 key stream, for the seeded generator |

pub(crate) mod aead;
pub(crate) mod aes;
mod bn;
pub(crate) mod container;
pub(crate) mod des;
pub(crate) mod ecdsa;
pub(crate) mod hmac;
pub(crate) mod kem;
pub(crate) mod modp;
pub(crate) mod rsa;
pub(crate) mod stream;

use aws_lc_sys as sys;

use ironswan_wire::secret::Secret;

/// Moves memory that the library has allocated into a [`Secret`]. The memory is overwritten as it
/// is freed.
///
/// # Safety
/// `bytes` points at `len` bytes that the library has allocated, and nobody else uses them.
unsafe fn take_secret(bytes: *mut u8, len: usize) -> Secret {
    // SAFETY: the caller says so; the slice is gone before the memory is freed.
    unsafe {
        let secret = Secret::from(std::slice::from_raw_parts(bytes, len));
        sys::OPENSSL_free(bytes.cast());
        secret
    }
}
