//! The libraries behind the algorithms, one file each, with safe functions over borrowed slices.
//!
//! `aws_lc` is what aws-lc-rs offers safely (system randomness, X25519, ECDH); `aws_lc_sys` is the rest of AWS-LC,
//! called directly where aws-lc-rs has no interface (finite-field DH, bare CBC, resumable HMAC) or a slower one
//! (AEAD in place, tag apart). Figures are in [`crate::batch`].

pub(crate) mod aws_lc;
#[allow(unsafe_code, reason = "the fence: calls into AWS-LC's C interface")]
pub(crate) mod aws_lc_sys;
#[allow(unsafe_code, reason = "the fence: a processor hint")]
pub(crate) mod prefetch;
#[allow(unsafe_code, reason = "the fence: AVX2")]
pub(crate) mod sum;

#[cfg(test)]
mod tests;
