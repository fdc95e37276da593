use ironswan_wire::iana::{EncrId, IntegId};

use super::{MessageKey, OpenError, encr_key_len, icv_len, integ_key_len};
use crate::testing::count;

const INTEGS: [(IntegId, usize, usize); 7] = [
    (IntegId::HMAC_MD5_96, 16, 12),
    (IntegId::AES_XCBC_96, 16, 12),
    (IntegId::AES_CMAC_96, 16, 12),
    (IntegId::HMAC_SHA1_96, 20, 12),
    (IntegId::HMAC_SHA2_256_128, 32, 16),
    (IntegId::HMAC_SHA2_384_192, 48, 24),
    (IntegId::HMAC_SHA2_512_256, 64, 32),
];

/// Every suite with counting keys.
fn suites() -> Vec<(EncrId, u16, Option<IntegId>)> {
    let mut out = vec![(EncrId::CHACHA20_POLY1305, 256, None)];
    out.extend(INTEGS.map(|(integ, ..)| (EncrId::DES3, 0, Some(integ))));
    for bits in [128, 192, 256] {
        out.extend([EncrId::AES_GCM_8, EncrId::AES_GCM_12, EncrId::AES_GCM_16].map(|id| (id, bits, None)));
        out.extend([EncrId::AES_CCM_8, EncrId::AES_CCM_12, EncrId::AES_CCM_16].map(|id| (id, bits, None)));
        out.extend(INTEGS.map(|(integ, ..)| (EncrId::AES_CBC, bits, Some(integ))));
        out.extend(INTEGS.map(|(integ, ..)| (EncrId::AES_CTR, bits, Some(integ))));
    }
    out
}

fn key((encr, bits, integ): (EncrId, u16, Option<IntegId>), from: u8) -> MessageKey {
    let encr_key = count(from, encr_key_len(encr, bits).unwrap());
    let integ_key = count(from ^ 0x80, integ.map_or(0, |id| integ_key_len(id).unwrap()));
    MessageKey::new(encr, bits, integ, &encr_key, &integ_key).unwrap()
}

/// aad, IV, text and ICV of a sealed message.
fn sealed(key: &MessageKey) -> [Vec<u8>; 4] {
    let (aad, iv) = (count(1, 32), count(0x30, key.iv_len()));
    let (mut text, mut icv) = (count(0x50, 48), vec![0; key.icv_len()]);
    key.seal(&aad, &iv, &mut text, &mut icv);
    assert_ne!(text, count(0x50, 48));
    [aad, iv, text, icv]
}

#[test]
fn what_is_sealed_opens() {
    for suite in suites() {
        let [aad, iv, mut text, icv] = sealed(&key(suite, 0));
        assert_eq!(key(suite, 0).open(&aad, &iv, &mut text, &icv), Ok(()), "{suite:?}");
        assert_eq!(text, count(0x50, 48));
    }
}

#[test]
fn every_bit_counts() {
    for suite in suites() {
        let key = key(suite, 0);
        let whole = sealed(&key);
        for part in 0..whole.len() {
            for bit in 0..whole[part].len() * 8 {
                let mut forged = whole.clone();
                forged[part][bit / 8] ^= 1 << (bit % 8);
                let [aad, iv, mut text, icv] = forged;
                assert_eq!(
                    key.open(&aad, &iv, &mut text, &icv),
                    Err(OpenError),
                    "{suite:?} part {part} bit {bit}"
                );
                assert_ne!(text, count(0x50, 48), "nothing is given away");
            }
        }
    }
}

#[test]
fn cbc_verifies_before_it_decrypts() {
    let key = key((EncrId::AES_CBC, 128, Some(IntegId::HMAC_SHA2_256_128)), 0);
    let [aad, iv, text, mut icv] = sealed(&key);
    icv[5] ^= 1;
    let mut opened = text.clone();
    assert_eq!(key.open(&aad, &iv, &mut opened, &icv), Err(OpenError));
    assert_eq!(opened, text, "still the ciphertext");
}

#[test]
fn another_key_does_not_open() {
    for suite in suites() {
        let [aad, iv, mut text, icv] = sealed(&key(suite, 0));
        assert_eq!(key(suite, 1).open(&aad, &iv, &mut text, &icv), Err(OpenError), "{suite:?}");
    }
}

#[test]
fn lengths_from_the_peer_are_errors_and_no_panics() {
    for suite in suites() {
        let key = key(suite, 0);
        let [aad, iv, text, icv] = sealed(&key);
        for len in (0..40).filter(|len| *len != iv.len()) {
            assert_eq!(
                key.open(&aad, &vec![0; len], &mut text.clone(), &icv),
                Err(OpenError),
                "{suite:?} IV {len}"
            );
        }
        for len in (0..80).filter(|len| *len != icv.len()) {
            let mut other = icv.clone();
            other.resize(len, 0);
            assert_eq!(key.open(&aad, &iv, &mut text.clone(), &other), Err(OpenError), "{suite:?} ICV {len}");
        }
        for len in 0..text.len() {
            assert_eq!(
                key.open(&aad, &iv, &mut text[..len].to_vec(), &icv),
                Err(OpenError),
                "{suite:?} text {len}"
            );
        }
        assert_eq!(key.open(&[], &iv, &mut text.clone(), &icv), Err(OpenError), "{suite:?} no aad");
    }
}

#[test]
fn an_authentic_cbc_text_must_still_be_whole_blocks() {
    // A peer that has the keys, but not our rules: the ICV is right, the ciphertext is not whole
    // blocks or empty.
    use crate::suite::IntegKey;
    let key = key((EncrId::AES_CBC, 128, Some(IntegId::HMAC_SHA2_256_128)), 0);
    let integ = IntegKey::new(IntegId::HMAC_SHA2_256_128, &count(0x80, 32)).unwrap();
    for len in [0, 1, 15, 17, 31, 16] {
        let (aad, iv, mut text, mut icv) = (count(1, 32), count(3, 16), count(9, len), vec![0; 16]);
        integ.sign(&[&aad, &iv, &text], &mut icv);
        assert_eq!(key.open(&aad, &iv, &mut text, &icv).is_ok(), len == 16, "{len} bytes");
    }
}

#[test]
fn lengths_are_those_of_the_rfcs() {
    for (suite, iv, icv, block, encr) in [
        ((EncrId::AES_GCM_16, 128, None), 8, 16, 1, 20),
        ((EncrId::AES_GCM_16, 192, None), 8, 16, 1, 28),
        ((EncrId::AES_GCM_16, 256, None), 8, 16, 1, 36),
        ((EncrId::AES_GCM_8, 128, None), 8, 8, 1, 20),
        ((EncrId::AES_CCM_12, 256, None), 8, 12, 1, 35),
        ((EncrId::CHACHA20_POLY1305, 256, None), 8, 16, 1, 36),
        ((EncrId::AES_CBC, 128, Some(IntegId::HMAC_SHA2_256_128)), 16, 16, 16, 16),
        ((EncrId::AES_CBC, 192, Some(IntegId::HMAC_SHA2_384_192)), 16, 24, 16, 24),
        ((EncrId::AES_CBC, 256, Some(IntegId::HMAC_SHA2_512_256)), 16, 32, 16, 32),
    ] {
        let k = key(suite, 0);
        assert_eq!((k.iv_len(), k.icv_len(), k.block_len()), (iv, icv, block), "{suite:?}");
        assert_eq!(encr_key_len(suite.0, suite.1), Some(encr), "{suite:?}");
    }
    // Ciphers of old peers: 3DES (RFC 2451), AES-CTR with its nonce (RFC 3686).
    for (suite, iv, icv, block, encr) in [
        ((EncrId::DES3, 0, Some(IntegId::HMAC_SHA1_96)), 8, 12, 8, 24),
        ((EncrId::AES_CTR, 128, Some(IntegId::AES_XCBC_96)), 8, 12, 1, 20),
        ((EncrId::AES_CTR, 256, Some(IntegId::HMAC_SHA2_256_128)), 8, 16, 1, 36),
    ] {
        let k = key(suite, 0);
        assert_eq!((k.iv_len(), k.icv_len(), k.block_len()), (iv, icv, block), "{suite:?}");
        assert_eq!(encr_key_len(suite.0, suite.1), Some(encr), "{suite:?}");
    }
    for (id, key, icv) in INTEGS {
        assert_eq!((integ_key_len(id), icv_len(id)), (Some(key), Some(icv)), "{id}");
    }
}

#[test]
fn suites_and_keys_that_do_not_fit_are_refused() {
    let sha256 = Some(IntegId::HMAC_SHA2_256_128);
    for (encr, bits, integ, encr_key, integ_key) in [
        (EncrId::AES_GCM_16, 128, None, 16, 0),             // no salt
        (EncrId::AES_GCM_16, 128, None, 36, 0),             // the key of AES-256
        (EncrId::AES_GCM_16, 129, None, 20, 0),             // no such key length
        (EncrId::AES_GCM_16, 0, None, 20, 0),               // none said
        (EncrId::AES_GCM_16, 128, sha256, 20, 32),          // AEAD and integrity
        (EncrId::AES_GCM_16, 128, None, 20, 32),            // a key for nothing
        (EncrId::AES_GCM_8, 128, None, 19, 0),              // no salt
        (EncrId::AES_CCM_8, 128, None, 20, 0),              // CCM's salt has three bytes
        (EncrId::AES_GCM_16_IIV, 128, None, 20, 0),         // not for IKE (RFC 8750 section 7)
        (EncrId::NULL_AES_GMAC, 128, None, 20, 0),          // encrypts nothing
        (EncrId::CHACHA20_POLY1305, 256, None, 32, 0),      // no salt
        (EncrId::CHACHA20_POLY1305, 128, None, 20, 0),      // no such key length
        (EncrId::AES_CBC, 128, None, 16, 0),                // no integrity
        (EncrId::AES_CBC, 128, Some(IntegId::NONE), 16, 0), // no integrity
        (EncrId::AES_CBC, 128, sha256, 24, 32),             // the key of AES-192
        (EncrId::AES_CBC, 0, sha256, 0, 32),                // none said
        (EncrId::AES_CBC, 128, sha256, 16, 31),
        (EncrId::AES_CBC, 128, sha256, 16, 33),
        (EncrId::AES_CBC, 128, Some(IntegId::AES_128_GMAC), 16, 20), // for AH only
        (EncrId::AES_CTR, 128, sha256, 16, 32),                      // no nonce
        (EncrId::AES_CTR, 128, None, 20, 0),                         // no integrity
        (EncrId::NULL, 0, sha256, 0, 32),                            // not for IKE (RFC 7296 section 3.3.2)
        (EncrId::DES3, 0, sha256, 24, 32),                           // three times the same key
        (EncrId::DES3, 0, sha256, 16, 32),                           // two keys
    ] {
        let made = MessageKey::new(encr, bits, integ, &vec![0; encr_key], &vec![0; integ_key]);
        assert!(made.is_none(), "{encr} {bits} {integ:?} {encr_key} {integ_key}");
    }
    assert!(
        MessageKey::new(EncrId::AES_GCM_16, 128, Some(IntegId::NONE), &[0; 20], &[]).is_some(),
        "NONE spelt out"
    );
    assert_eq!((encr_key_len(EncrId::NULL, 0), encr_key_len(EncrId::AES_GCM_16, 512)), (None, None));
    assert_eq!((integ_key_len(IntegId::NONE), icv_len(IntegId(77))), (None, None));
}

#[test]
#[should_panic(expected = "room for icv_len bytes")]
fn sealing_into_too_little_room_is_the_callers_bug() {
    let key = key((EncrId::AES_CBC, 128, Some(IntegId::HMAC_SHA2_256_128)), 0);
    key.seal(&[], &[0; 16], &mut [0; 16], &mut [0; 12]);
}

/// 3DES as in the engine's own test (`des-ede3-cbc` of OpenSSL), AES-CTR by RFC 3686 section 6,
/// test vector 2.
#[test]
fn ciphers_of_old_peers_are_those_of_their_rfcs() {
    use crate::testing::hex;
    let integ = Some(IntegId::HMAC_SHA1_96);
    for (encr, bits, key, iv, plain, cipher) in [
        (
            EncrId::DES3,
            0,
            "0123456789abcdef23456789abcdef01456789abcdef0123",
            "3031323334353637",
            count(0, 40),
            "d59b2615ba7174d5ab73b866bec4f4a13b436d04061875173899b871b73a59f37003f1f0b185d981",
        ),
        (
            EncrId::AES_CTR,
            128,
            "7e24067817fae0d743d6ce1f32539163006cb6db",
            "c0543b59da48d90b",
            count(0, 32),
            "5104a106168a72d9790d41ee8edad388eb2e1efc46da57c8fce630df9141be28",
        ),
    ] {
        let key = MessageKey::new(encr, bits, integ, &hex(key), &[7; 20]).expect("a key");
        let (mut text, mut icv, iv) = (plain.clone(), vec![0; 12], hex(iv));
        key.seal(b"header", &iv, &mut text, &mut icv);
        assert_eq!(text, hex(cipher), "{encr}");
        assert_eq!(key.open(b"header", &iv, &mut text, &icv), Ok(()));
        assert_eq!(text, plain);
    }
}
