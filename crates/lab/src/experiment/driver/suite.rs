//! Suites of ESP by the names that `swanctl.conf` gives them.

use ironswan_wire::iana::{EncrId, IntegId};
use ironswan_wire::proposal::EspSuite;

use crate::error::LabError;

/// Everything that is measured unless told otherwise: one of each kind that the engines have, the
/// ones of the historical measurements among them.
pub(crate) const ALL: [&str; 16] = [
    "aes128gcm16",
    "aes192gcm16",
    "aes256gcm16",
    "chacha20poly1305",
    "aes128gmac",
    "aes128ccm16",
    "aes128-sha1",
    "aes128-sha256",
    "aes256-sha256",
    "aes256-sha512",
    "aes128-aesxcbc",
    "aes128ctr-sha256",
    "3des-sha1",
    "3des-md5",
    "null-sha1",
    "null-sha256",
];

/// The suite of that name, with 32-bit sequence numbers.
pub(crate) fn by_name(name: &str) -> Result<EspSuite, LabError> {
    parse(name).ok_or_else(|| {
        LabError::Usage(format!(
            "`{name}` is not a suite of ESP; write for instance aes128gcm16, chacha20poly1305, aes128-sha256, 3des-sha1 \
             or null-sha256"
        ))
    })
}

fn parse(name: &str) -> Option<EspSuite> {
    let (cipher, integ) = match name.split_once('-') {
        Some((cipher, integ)) => (cipher, Some(self::integ(integ)?)),
        None => (name, None),
    };
    let (encr, key_bits) = match cipher {
        "null" => (EncrId::NULL, 0),
        "3des" => (EncrId::DES3, 0),
        "chacha20poly1305" => (EncrId::CHACHA20_POLY1305, 256),
        _ => {
            let rest = cipher.strip_prefix("aes")?;
            let (bits, kind) = rest.split_at_checked(3)?;
            let bits = bits.parse().ok().filter(|b| [128, 192, 256].contains(b))?;
            let encr = match kind {
                "" => EncrId::AES_CBC,
                "ctr" => EncrId::AES_CTR,
                "gcm8" => EncrId::AES_GCM_8,
                "gcm12" => EncrId::AES_GCM_12,
                "gcm16" => EncrId::AES_GCM_16,
                "ccm8" => EncrId::AES_CCM_8,
                "ccm12" => EncrId::AES_CCM_12,
                "ccm16" => EncrId::AES_CCM_16,
                "gmac" => EncrId::NULL_AES_GMAC,
                _ => return None,
            };
            (encr, bits)
        }
    };
    // A cipher without authentication, or one with two.
    (encr.is_aead() != integ.is_some()).then_some(EspSuite { encr, key_bits, integ, ke: None, esn: false })
}

fn integ(name: &str) -> Option<IntegId> {
    Some(match name {
        "md5" => IntegId::HMAC_MD5_96,
        "sha1" => IntegId::HMAC_SHA1_96,
        "sha256" => IntegId::HMAC_SHA2_256_128,
        "sha384" => IntegId::HMAC_SHA2_384_192,
        "sha512" => IntegId::HMAC_SHA2_512_256,
        "aesxcbc" => IntegId::AES_XCBC_96,
        "aescmac" => IntegId::AES_CMAC_96,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use ironswan_crypto::batch;

    use super::*;

    #[test]
    fn every_suite_that_is_measured_exists() {
        for name in ALL {
            let suite = by_name(name).expect(name);
            assert!(batch::keymat_lens(&suite).is_some(), "{name}");
        }
    }

    #[test]
    fn a_name_says_cipher_key_length_and_integrity() {
        let s = by_name("aes256-sha512").expect("a suite");
        assert_eq!((s.encr, s.key_bits, s.integ), (EncrId::AES_CBC, 256, Some(IntegId::HMAC_SHA2_512_256)));
        let s = by_name("aes192gcm16").expect("a suite");
        assert_eq!((s.encr, s.key_bits, s.integ), (EncrId::AES_GCM_16, 192, None));
    }

    #[test]
    fn what_is_no_suite_is_answered_with_examples() {
        for bad in [
            "",
            "aes",
            "aes128",
            "aes129gcm16",
            "aes128gcm16-sha256",
            "null",
            "3des",
            "aes128-crc",
            "rot13-md5",
        ] {
            let e = by_name(bad).expect_err(bad);
            assert!(matches!(&e, LabError::Usage(t) if t.contains("aes128gcm16")), "{e}");
        }
    }
}
