use super::*;
use crate::engine::aws_lc_sys::des;
use crate::rng::{Rng, Seeded};
use crate::testing::{count, hex};

#[test]
fn blocks_are_those_of_aws_lc() {
    if !available() {
        return;
    }
    let mut rng = Seeded::new(1);
    for blocks in [1, 2, 7, 31, 32, 33, 64, 65, 190] {
        let (mut key, mut iv) = ([0; 24], [0; 8]);
        rng.fill(&mut key);
        rng.fill(&mut iv);
        let (ours, theirs) = (TripleDesKey::new(&key).unwrap(), des::TripleDesKey::new(&key).unwrap());
        let plain = count(3, blocks * 8);
        let mut expected = plain.clone();
        theirs.encrypt(&iv, &mut expected);
        let mut text = plain.clone();
        let len = text.len();
        encrypt(&mut text, std::iter::once(Text { key: &ours, at: 0, len, iv }));
        assert_eq!(text, expected, "{blocks} blocks");
        ours.decrypt(&iv, &mut text);
        assert_eq!(text, plain, "{blocks} blocks");
    }
}

#[test]
fn a_block_is_that_of_sp_800_67() {
    if !available() {
        return;
    }
    // NIST SP 800-67 appendix B.1: three keys, ECB, which is CBC of one block with an IV of zeros.
    let key = hex("0123456789abcdef 23456789abcdef01 456789abcdef0123");
    let key = TripleDesKey::new(&key).unwrap();
    for (plain, cipher) in [
        ("5468652071756663", "a826fd8ce53b855f"),
        ("6b2062726f776e20", "cce21c8112256fe6"),
        ("666f78206a756d70", "68d5c05dd9b6b900"),
    ] {
        let mut text = hex(plain);
        encrypt(&mut text, std::iter::once(Text { key: &key, at: 0, len: 8, iv: [0; 8] }));
        assert_eq!(text, hex(cipher));
        key.decrypt(&[0; 8], &mut text);
        assert_eq!(text, hex(plain));
    }
}

#[test]
fn lanes_take_packets_of_all_lengths_and_keys_one_after_another() {
    if !available() {
        return;
    }
    let mut rng = Seeded::new(2);
    let keys: Vec<[u8; 24]> = (0..5).map(|_| std::array::from_fn(|_| rng.u32() as u8)).collect();
    let ours: Vec<TripleDesKey> = keys.iter().map(|k| TripleDesKey::new(k).unwrap()).collect();
    for packets in [1, 5, 31, 32, 33, 100] {
        let (mut buf, mut texts, mut expected) = (Vec::new(), Vec::new(), Vec::new());
        for i in 0..packets {
            let len = rng.u32() as usize % 40 * 8;
            let iv = rng.u64().to_le_bytes();
            let mut text = count(i as u8, len);
            texts.push((i % 5, buf.len(), len, iv));
            buf.extend(&text);
            des::TripleDesKey::new(&keys[i % 5]).unwrap().encrypt(&iv, &mut text);
            expected.extend(text);
            // The byte between two packets stays as it is.
            buf.push(0xa5);
            expected.push(0xa5);
        }
        let texts = texts.into_iter().map(|(key, at, len, iv)| Text { key: &ours[key], at, len, iv });
        encrypt(&mut buf, texts);
        assert_eq!(buf, expected, "{packets} packets");
    }
}

#[test]
fn a_key_has_one_length() {
    for len in 0..40 {
        assert_eq!(TripleDesKey::new(&vec![1; len]).is_some(), len == 24 && available(), "{len}");
    }
}
