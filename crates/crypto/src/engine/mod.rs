//! The libraries behind the algorithms, one file each, with safe functions over borrowed slices.
//!
//! `aws_lc` is what aws-lc-rs offers safely (system randomness, X25519, ECDH); `aws_lc_sys` is the
//! rest of AWS-LC, called directly where aws-lc-rs has no interface (finite-field DH, bare CBC,
//! resumable HMAC, RSA of every length and salt, ECDSA over digests) or a slower one (AEAD in
//! place, tag apart). `ipsec_mb` is Intel's multi-buffer library. Figures are in [`crate::batch`].
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `aws_lc` | what aws-lc-rs offers safely |
//! | `aws_lc_sys` | AWS-LC, called directly |
//! | `vaes/` | AES-GCM with VAES and AVX2 |
//! | `avx2/` | 3DES with AVX2 |
//! | `ipsec_mb/` | Intel's multi-buffer library |
//! | `sum` | the Internet checksum with AVX2 |
//! | `prefetch` | asks the processor for memory ahead of use |
//! | `registers` | empties the registers that held secrets |
//! | `guarded` | memory between two pages that fault, for tests |

#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "the fence: AVX2")]
pub(crate) mod avx2;
pub(crate) mod aws_lc;
#[allow(unsafe_code, reason = "the fence: calls into AWS-LC's C interface")]
pub(crate) mod aws_lc_sys;
#[cfg(ipsec_mb)]
#[allow(unsafe_code, reason = "the fence: calls into libipsec-mb")]
pub(crate) mod ipsec_mb;
#[allow(unsafe_code, reason = "the fence: a processor hint")]
pub(crate) mod prefetch;
#[allow(unsafe_code, reason = "the fence: registers")]
pub(crate) mod registers;
#[allow(unsafe_code, reason = "the fence: AVX2")]
pub(crate) mod sum;
#[cfg(target_arch = "x86_64")]
#[allow(unsafe_code, reason = "the fence: AVX2, VAES and VPCLMULQDQ")]
pub(crate) mod vaes;

#[cfg(test)]
#[allow(unsafe_code, reason = "the fence: pages without access")]
pub(crate) mod guarded;
#[cfg(test)]
mod tests;
