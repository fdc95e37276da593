//! Hashes without a key.
//!
//! Not here: HMAC, and the PRFs that are made of it ([`crate::prf`]).

use crate::engine::aws_lc;
use crate::engine::aws_lc_sys::rsa::Digest;

/// SHA-1 (FIPS 180-4) of `bytes`. Only where it protects nothing: NAT detection (RFC 7296 section
/// 2.23), and names of public keys.
pub fn sha1(bytes: &[u8]) -> [u8; 20] {
    aws_lc::sha1(bytes)
}

/// SHA2-256 (FIPS 180-4) of `bytes`.
pub fn sha256(bytes: &[u8]) -> [u8; 32] {
    let mut out = [0; 32];
    out.copy_from_slice(aws_lc::hash(Digest::Sha256, bytes).as_ref());
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::hex;

    #[test]
    fn sha1_gives_the_answers_of_fips_180() {
        for (text, digest) in [
            ("abc", "a9993e364706816aba3e25717850c26c9cd0d89d"),
            ("", "da39a3ee5e6b4b0d3255bfef95601890afd80709"),
            (
                "abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq",
                "84983e441c3bd26ebaae4aa1f95129e5e54670f1",
            ),
        ] {
            assert_eq!(sha1(text.as_bytes())[..], hex(digest));
        }
    }

    #[test]
    fn sha256_gives_the_answer_of_fips_180() {
        let digest = hex("ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
        assert_eq!(sha256(b"abc")[..], digest);
    }
}
