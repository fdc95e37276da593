use ironswan_wire::algorithm;
use ironswan_wire::iana::{EncrId, IntegId};
use ironswan_wire::proposal::EspSuite;

use super::across::{new_key, with_every_engine};
use super::vectors::Counting;
use super::{EspKey, Job, keymat_lens, open, seal};
use crate::rng::{Rng, Seeded};
use crate::testing::{count, hex};

const INTEGS: [IntegId; 7] = [
    IntegId::HMAC_MD5_96,
    IntegId::HMAC_SHA1_96,
    IntegId::AES_XCBC_96,
    IntegId::AES_CMAC_96,
    IntegId::HMAC_SHA2_256_128,
    IntegId::HMAC_SHA2_384_192,
    IntegId::HMAC_SHA2_512_256,
];

pub(super) fn suite(encr: EncrId, key_bits: u16, integ: Option<IntegId>, esn: bool) -> EspSuite {
    EspSuite { encr, key_bits, integ, ke: None, esn }
}

pub(super) fn suites() -> Vec<EspSuite> {
    let mut out = Vec::new();
    for esn in [false, true] {
        for encr in EncrId::ALL.iter().copied() {
            for bits in algorithm::encr(encr).unwrap().key_bits {
                if encr.is_aead() {
                    out.push(suite(encr, *bits, None, esn));
                } else {
                    out.extend(INTEGS.map(|integ| suite(encr, *bits, Some(integ), esn)));
                }
            }
        }
    }
    out
}

/// Counting keys from these bytes.
pub(super) fn key_from(suite: &EspSuite, encr: u8, integ: u8, rng: &mut dyn Rng) -> Box<EspKey> {
    let (encr_len, integ_len) = keymat_lens(suite).unwrap();
    new_key(suite, &count(encr, encr_len), &count(integ, integ_len), rng).unwrap()
}

pub(super) fn key(suite: &EspSuite, from: u8) -> Box<EspKey> {
    key_from(suite, from, from ^ 0x80, &mut Seeded::new(u64::from(from)))
}

/// A packet ready for sealing.
pub(super) fn packet(key: &EspKey, spi: &str, seq: u64, text: &[u8]) -> Vec<u8> {
    let mut out = hex(spi);
    out.extend((seq as u32).to_be_bytes());
    out.resize(8 + key.iv_len(), 0xee);
    out.extend(text);
    out.resize(out.len() + key.icv_len(), 0xee);
    out
}

pub(super) fn job(packet: &[u8], seq: u64) -> Job {
    Job { start: 0, len: packet.len() as u32, seq, key: 0, ok: false }
}

pub(super) fn seal_one(key: &EspKey, packet: &mut [u8], seq: u64) -> bool {
    let mut jobs = [job(packet, seq)];
    seal(packet, &mut jobs, &[key]);
    jobs[0].ok
}

pub(super) fn open_one(key: &EspKey, packet: &mut [u8], seq: u64) -> bool {
    let mut jobs = [job(packet, seq)];
    open(packet, &mut jobs, &[key]);
    jobs[0].ok
}

pub(super) fn text<'a>(key: &EspKey, packet: &'a [u8]) -> &'a [u8] {
    &packet[8 + key.iv_len()..packet.len() - key.icv_len()]
}

#[test]
fn chacha20_poly1305_gives_the_packet_of_rfc_7634() {
    with_every_engine(|| {
        // RFC 7634 appendix A. Its IV is not its sequence number, so `seq` here is the IV, and the
        // header holds 5.
        let suite = suite(EncrId::CHACHA20_POLY1305, 256, None, false);
        let key = new_key(&suite, &count(0x80, 36), &[], &mut Seeded::new(0)).unwrap();
        let ping = [
            hex("45000054a6f200004001e778c6336405c000020508005b7a3a080000553bec1000073627"),
            count(8, 0x30),
            hex("01020204"),
        ]
        .concat();
        let iv = 0x1011_1213_1415_1617;
        let mut packet = packet(&key, "01020304", 5, &ping);
        assert!(seal_one(&key, &mut packet, iv));
        let answer = hex("0102030400000005 1011121314151617
         24039428b97f417e3c13753a4f05087b67c352e6a7fab1b982d466ef407ae5c614ee8099d52844eb61aa95dfab4c02f7
         2aa71e7c4c4f64c9befe2facc638e8f3cbec163fac469b502773f6fb94e664da9165b82829f641e0
         76aaa8266b7fb0f7b11b369907e1ad43");
        assert_eq!(packet, answer);
        assert!(open_one(&key, &mut packet, 5));
        assert_eq!(text(&key, &packet), ping);
    });
}

#[test]
fn aes_gcm_gives_the_packet_of_draft_mcgrew_gcm_test() {
    with_every_engine(|| {
        // The first test case: extended sequence numbers, whose value 8765432100000000 is not the
        // IV either.
        let suite = suite(EncrId::AES_GCM_16, 128, None, true);
        let keymat = hex("4c80cdefbb5d10da906ac73c3613a634 2e443b68");
        let key = new_key(&suite, &keymat, &[], &mut Seeded::new(0)).unwrap();
        let mut packet = hex("00004321 00000000 4956ed7e3b244cfe
         fecf537e729d5b07dc30df528dd22b768d1b98736696a6fd348509fa13ceac34cfa2436f14a3f3cf65925bf1f4a13c5d
         15b21e1884f5ff6247aeabb786b93bce61bc17d768fd9732459018148f6cbe722fd04796562dfdb4");
        assert!(open_one(&key, &mut packet, 0x8765_4321_0000_0000));
        let plain = hex("45000048699a000080114db7c0a80102c0a801010a9bf15638d3010000010000
         00000000045f736970045f756470037369700963796265726369747902646b0000210001 01020201");
        assert_eq!(text(&key, &packet), plain);
    });
}

/// The packet of SPI 01020304, sequence number 0x500000007 and the text 40 41 .. 5f under the keys
/// 00 01 .. (with salt) and 80 81 .., without and with ESN, computed with OpenSSL's ciphers and
/// hmac through Python. For CBC the IV's key is c0 c1 .. cf.
#[test]
fn packets_are_those_of_another_implementation() {
    with_every_engine(|| {
        let cases: [(EncrId, u16, Option<IntegId>, [&str; 2]); 11] = [
        (
            EncrId::AES_GCM_16,
            128,
            None,
            [
                "01020304000000070000000500000007103f5f985b772962cb4a7db05130195d9d8d4841454a36c3aad68d6ac9
                 f59588a5cc222979eb98408b828048be5dd206",
                "01020304000000070000000500000007103f5f985b772962cb4a7db05130195d9d8d4841454a36c3aad68d6ac9
                 f59588f890006cc6acd6a69d011a3d15b144ca",
            ],
        ),
        (
            EncrId::AES_GCM_16,
            256,
            None,
            [
                "0102030400000007000000050000000701044e88a7878610a95e155dd2349865db527c304b787f51c57e85b429
                 96a1d7c1a7786489ddf17d9ee6a63914233fc2",
                "0102030400000007000000050000000701044e88a7878610a95e155dd2349865db527c304b787f51c57e85b429
                 96a1d786316b558c9044ff3f1e87c49491f141",
            ],
        ),
        (
            EncrId::CHACHA20_POLY1305,
            256,
            None,
            [
                "0102030400000007000000050000000789e1b119b3c77fb3ec1b1b2ace65ef8e9066ad57de153a62d91471ea48
                 f1d4302b046f84c511de8c9dfd322733081427",
                "0102030400000007000000050000000789e1b119b3c77fb3ec1b1b2ace65ef8e9066ad57de153a62d91471ea48
                 f1d430d5f3fa7fa1f7de556aafd460b8ddac1e",
            ],
        ),
        (
            EncrId::NULL,
            0,
            Some(IntegId::HMAC_SHA1_96),
            [
                "0102030400000007404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f1eeb7b431d
                 a4ce6a855ef50b",
                "0102030400000007404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f5719d76198
                 715805bcdc3b70",
            ],
        ),
        (
            EncrId::AES_CBC,
            128,
            Some(IntegId::HMAC_SHA1_96),
            [
                "010203040000000711b0f43db20e54cf0f2d2ce60bdc3a9652a371640a70edeba1612f2971ee9723fb6468c441
                 6c62e3f265670c126c2296aa3504361180e98f8173feac",
                "010203040000000711b0f43db20e54cf0f2d2ce60bdc3a9652a371640a70edeba1612f2971ee9723fb6468c441
                 6c62e3f265670c126c22960db669982c8adb40bb719fb7",
            ],
        ),
        (
            EncrId::NULL,
            0,
            Some(IntegId::HMAC_SHA2_256_128),
            [
                "0102030400000007404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f5752d4b779
                 d5fb1918b4bec8610ce408",
                "0102030400000007404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5faf1bc034e0
                 2475d442d9d8988c32a6b1",
            ],
        ),
        (
            EncrId::AES_CBC,
            128,
            Some(IntegId::HMAC_SHA2_256_128),
            [
                "010203040000000711b0f43db20e54cf0f2d2ce60bdc3a9652a371640a70edeba1612f2971ee9723fb6468c441
                 6c62e3f265670c126c2296c344ac71771707f07c40ce7cc8df304b",
                "010203040000000711b0f43db20e54cf0f2d2ce60bdc3a9652a371640a70edeba1612f2971ee9723fb6468c441
                 6c62e3f265670c126c2296300c6a7a8222615c643e14f21333de32",
            ],
        ),
        (
            EncrId::NULL,
            0,
            Some(IntegId::HMAC_SHA2_384_192),
            [
                "0102030400000007404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f441cdd4fe9
                 9ced005cc4331eb6df96e3aa4df9290ea88495",
                "0102030400000007404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f1154024878
                 dfe023817b06e8f6c301ea19987c01bf587a15",
            ],
        ),
        (
            EncrId::AES_CBC,
            128,
            Some(IntegId::HMAC_SHA2_384_192),
            [
                "010203040000000711b0f43db20e54cf0f2d2ce60bdc3a9652a371640a70edeba1612f2971ee9723fb6468c441
                 6c62e3f265670c126c2296db7367dc07db4cf217d512da7ec2436f805157d84afce30c",
                "010203040000000711b0f43db20e54cf0f2d2ce60bdc3a9652a371640a70edeba1612f2971ee9723fb6468c441
                 6c62e3f265670c126c2296c5976401bf5b9d9038eb3d0b063a2afd523ee539e3138632",
            ],
        ),
        (
            EncrId::NULL,
            0,
            Some(IntegId::HMAC_SHA2_512_256),
            [
                "0102030400000007404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f962dade112
                 56ff21686316eb0cf38c7b7adc8fa3345048554824154565414cf0",
                "0102030400000007404142434445464748494a4b4c4d4e4f505152535455565758595a5b5c5d5e5f8a84ff0358
                 1151830198f0b23b50dc7f1f798125ea51ff7919fa9bd377b27241",
            ],
        ),
        (
            EncrId::AES_CBC,
            128,
            Some(IntegId::HMAC_SHA2_512_256),
            [
                "010203040000000711b0f43db20e54cf0f2d2ce60bdc3a9652a371640a70edeba1612f2971ee9723fb6468c441
                 6c62e3f265670c126c22960625533c12bd8ddd3404b3209860a79c9b6c70ae95eb45bfe6ae3e851986d5d9",
                "010203040000000711b0f43db20e54cf0f2d2ce60bdc3a9652a371640a70edeba1612f2971ee9723fb6468c441
                 6c62e3f265670c126c229655d1c4147d7879797f2fe42d7a36a689bf14839170a418ff966ae97597733ec6",
            ],
        ),
    ];
        for (encr, bits, integ, answers) in cases {
            for (esn, answer) in [false, true].into_iter().zip(answers) {
                let key = key_from(&suite(encr, bits, integ, esn), 0, 0x80, &mut Counting);
                let seq = 0x5_0000_0007;
                let mut packet = packet(&key, "01020304", seq, &count(0x40, 32));
                assert!(seal_one(&key, &mut packet, seq));
                assert_eq!(packet, hex(answer), "{encr}_{bits} {integ:?} esn {esn}");
                assert!(open_one(&key, &mut packet, seq));
                assert_eq!(text(&key, &packet), count(0x40, 32));
            }
        }
    });
}

#[test]
fn what_is_sealed_opens() {
    with_every_engine(|| {
        for suite in suites() {
            let key = key(&suite, 3);
            for blocks in [1, 2, 3, 5, 22, 88, 350] {
                let plain = count(7, blocks * key.block_len());
                let mut packet = packet(&key, "deadbeef", 9, &plain);
                assert!(seal_one(&key, &mut packet, 9), "{suite}");
                let in_clear = matches!(suite.encr, EncrId::NULL | EncrId::NULL_AES_GMAC);
                assert_eq!(text(&key, &packet) == plain, in_clear, "{suite}");
                assert!(open_one(&key, &mut packet, 9), "{suite}");
                assert_eq!(text(&key, &packet), plain, "{suite}");
            }
        }
    });
}

/// The number, or its low half where an implicit IV has no more (RFC 8750 section 3).
pub(super) fn number(suite: &EspSuite, seq: u64) -> u64 {
    let short = !suite.esn && suite.encr.is_aead() && algorithm::encr(suite.encr).unwrap().iv_len == 0;
    if short { u64::from(seq as u32) } else { seq }
}

#[test]
fn every_bit_of_a_packet_counts() {
    with_every_engine(|| {
        for suite in suites() {
            let key = key(&suite, 0);
            let seq = number(&suite, 0x1_0000_0002);
            let mut sealed = packet(&key, "00001001", seq, &count(0, 32));
            assert!(seal_one(&key, &mut sealed, seq));
            for bit in 0..sealed.len() * 8 {
                let mut forged = sealed.clone();
                forged[bit / 8] ^= 1 << (bit % 8);
                assert!(!open_one(&key, &mut forged, seq), "{suite}: bit {bit}");
            }
            assert!(open_one(&key, &mut sealed, seq));
        }
    });
}

#[test]
fn the_high_half_counts_with_esn_only() {
    with_every_engine(|| {
        for suite in suites() {
            let key = key(&suite, 0);
            let seq = number(&suite, 0x1_0000_0002);
            let mut sealed = packet(&key, "00001001", seq, &count(0, 32));
            assert!(seal_one(&key, &mut sealed, seq));
            for other in [2, 0x2_0000_0002, 0x8000_0001_0000_0002] {
                assert_eq!(open_one(&key, &mut sealed.clone(), other), !suite.esn, "{suite}");
            }
            // The low half is the one in the packet, which a forger cannot change; the job's is not
            // asked.
            assert!(open_one(&key, &mut sealed, 0x1_0000_0000), "{suite}");
        }
    });
}

#[test]
fn a_packet_cut_short_is_refused() {
    with_every_engine(|| {
        for suite in suites() {
            let key = key(&suite, 0);
            let mut sealed = packet(&key, "00001001", 1, &count(0, 32));
            assert!(seal_one(&key, &mut sealed, 1));
            for len in 0..sealed.len() {
                let mut cut = sealed[..len].to_vec();
                assert!(!open_one(&key, &mut cut, 1), "{suite}: opened {len} bytes");
                let block = match suite.encr {
                    EncrId::AES_CBC => 16,
                    EncrId::DES3 => 8,
                    _ => 1,
                };
                let text_len = len.checked_sub(8 + key.iv_len() + key.icv_len());
                let fits = text_len.is_some_and(|n| n >= 2 && n.is_multiple_of(block));
                let before = cut.clone();
                assert_eq!(seal_one(&key, &mut cut, 1), fits, "{suite}: sealed {len} bytes");
                assert!(fits || cut == before, "{suite}: touched what it refused");
            }
        }
    });
}

#[test]
fn jobs_outside_the_buffer_or_without_a_key_are_refused() {
    with_every_engine(|| {
        let suite = suite(EncrId::AES_GCM_16, 128, None, false);
        let key = key(&suite, 0);
        let mut buf = vec![0x55; 100];
        let mut jobs = [
            Job { start: 0, len: 101, ..Job::default() },
            Job { start: 100, len: 1, ..Job::default() },
            Job { start: 101, len: 0, ..Job::default() },
            Job { start: 60, len: 41, ..Job::default() },
            Job { start: u32::MAX, len: u32::MAX, ..Job::default() },
            Job { start: 0, len: u32::MAX, ..Job::default() },
            Job { start: 0, len: 100, key: 1, ..Job::default() },
            Job { start: 0, len: 100, key: u16::MAX, ..Job::default() },
        ];
        for work in [seal, open] {
            jobs.iter_mut().for_each(|j| j.ok = true);
            work(&mut buf, &mut jobs, &[&key]);
            assert!(jobs.iter().all(|j| !j.ok), "{jobs:?}");
            assert!(buf.iter().all(|b| *b == 0x55), "untouched");
            jobs.iter_mut().for_each(|j| j.ok = true);
            work(&mut buf, &mut jobs, &[]);
            assert!(jobs.iter().all(|j| !j.ok), "{jobs:?}");
            work(&mut [], &mut [], &[]);
        }
    });
}

#[test]
fn a_batch_is_the_same_as_its_packets_one_by_one() {
    with_every_engine(|| {
        let suites = suites();
        let keys: Vec<Box<EspKey>> = suites.iter().enumerate().map(|(i, s)| key(s, i as u8)).collect();
        let keys: Vec<&EspKey> = keys.iter().map(|key| &**key).collect();
        let (mut buf, mut jobs, mut alone) = (Vec::new(), Vec::new(), Vec::new());
        for i in 0..300usize {
            // Gaps between packets, which must stay as they are.
            buf.extend(vec![0xa5; i % 5]);
            let key = keys[i * 7 % keys.len()];
            let mut packet = packet(key, "01020304", i as u64, &count(i as u8, (1 + i % 20) * 16));
            jobs.push(Job {
                start: buf.len() as u32,
                len: packet.len() as u32,
                seq: i as u64,
                key: (i * 7 % keys.len()) as u16,
                ok: false,
            });
            buf.extend(&packet);
            assert!(seal_one(key, &mut packet, i as u64));
            alone.push(packet);
        }
        let plain = buf.clone();
        seal(&mut buf, &mut jobs, &keys);
        let mut end = 0;
        for (job, alone) in jobs.iter().zip(&alone) {
            let range = job.start as usize..(job.start + job.len) as usize;
            assert!(job.ok);
            assert!(buf[end..range.start].iter().all(|b| *b == 0xa5), "the gap is untouched");
            end = range.end;
            assert_eq!(&buf[range], &alone[..]);
        }
        // Every seventh is damaged: only it fails.
        for job in jobs.iter().step_by(7) {
            buf[(job.start + job.len) as usize - 1] ^= 0x10;
        }
        open(&mut buf, &mut jobs, &keys);
        for (i, job) in jobs.iter().enumerate() {
            assert_eq!(job.ok, i % 7 != 0, "packet {i}");
            if job.ok {
                let key = keys[usize::from(job.key)];
                let range = job.start as usize..(job.start + job.len) as usize;
                assert_eq!(text(key, &buf[range.clone()]), text(key, &plain[range]), "packet {i}");
            }
        }
    });
}

#[test]
fn an_iv_that_must_be_unique_is_the_sequence_number() {
    with_every_engine(|| {
        for suite in suites() {
            let key = key(&suite, 0);
            if key.iv_len() != 8 || suite.encr == EncrId::DES3 {
                continue;
            }
            let seq = 0x0102_0304_0506_0708;
            let mut packet = packet(&key, "00001001", seq, &count(0, 32));
            assert!(seal_one(&key, &mut packet, seq));
            assert_eq!(packet[8..16], seq.to_be_bytes(), "{suite}");
        }
    });
}

#[test]
fn cbc_ivs_differ_by_packet_and_by_sa() {
    with_every_engine(|| {
        for (encr, bits) in [(EncrId::AES_CBC, 128), (EncrId::DES3, 0)] {
            let suite = suite(encr, bits, Some(IntegId::HMAC_SHA2_256_128), false);
            let mut seen = std::collections::HashSet::new();
            for sa in 0..4 {
                // The same keys, another random generator: the IVs come from the generator.
                let key = key_from(&suite, 0, 0x80, &mut Seeded::new(sa));
                for seq in 0..100u64 {
                    let mut packet = packet(&key, "00001001", seq, &count(0, 16));
                    assert!(seal_one(&key, &mut packet, seq));
                    let iv = &packet[8..8 + key.iv_len()];
                    assert!(!iv.ends_with(&seq.to_be_bytes()), "an IV that can be foretold");
                    assert!(seen.insert(iv.to_vec()), "an IV came twice");
                }
            }
        }
    });
}

#[test]
fn an_implicit_iv_is_the_number_that_the_receiver_sees() {
    with_every_engine(|| {
        for encr in [EncrId::AES_CCM_8_IIV, EncrId::AES_GCM_16_IIV, EncrId::CHACHA20_POLY1305_IIV] {
            let bits = algorithm::encr(encr).unwrap().key_bits[0];
            for esn in [false, true] {
                let key = key(&suite(encr, bits, None, esn), 0);
                let plain = packet(&key, "00001001", 5, &count(0, 32));
                assert_eq!(plain.len(), 8 + 32 + key.icv_len(), "no IV in the packet");
                // Beyond 32 bits an IV would come twice without ESN; and one that is not the
                // header's never opens.
                for (seq, good) in [(5, true), (0x1_0000_0005, esn), (6, false)] {
                    let mut packet = plain.clone();
                    assert_eq!(seal_one(&key, &mut packet, seq), good, "{encr} {seq:#x}");
                    assert!(good || packet == plain, "touched what it refused");
                    assert!(!good || open_one(&key, &mut packet, seq));
                }
            }
            // The algorithm is the same as with an IV in the packet.
            let twin = match encr {
                EncrId::AES_CCM_8_IIV => EncrId::AES_CCM_8,
                EncrId::AES_GCM_16_IIV => EncrId::AES_GCM_16,
                _ => EncrId::CHACHA20_POLY1305,
            };
            let (with, without) =
                (key(&suite(twin, bits, None, true), 0), key(&suite(encr, bits, None, true), 0));
            let seq = 0x7_0000_0009;
            let mut explicit = packet(&with, "00001001", seq, &count(0, 32));
            let mut implicit = packet(&without, "00001001", seq, &count(0, 32));
            assert!(seal_one(&with, &mut explicit, seq) && seal_one(&without, &mut implicit, seq));
            explicit.drain(8..16);
            assert_eq!(explicit, implicit, "{encr}");
        }
    });
}

#[test]
fn what_is_not_authentic_is_not_decrypted() {
    with_every_engine(|| {
        // Wrong padding can then not be told from a wrong ICV: nobody sees either text.
        for suite in suites().into_iter().filter(|s| !s.encr.is_aead() && s.encr != EncrId::NULL) {
            let key = key(&suite, 0);
            let mut sealed = packet(&key, "00001001", 1, &count(0, 32));
            assert!(seal_one(&key, &mut sealed, 1));
            *sealed.last_mut().unwrap() ^= 1;
            let before = sealed.clone();
            assert!(!open_one(&key, &mut sealed, 1));
            // An engine that decrypts while it hashes wipes what it then finds wrong.
            let mut wiped = before.clone();
            let text = 8 + key.iv_len()..before.len() - key.icv_len();
            wiped[text].fill(0);
            assert!(sealed == before || sealed == wiped, "{suite}");
        }
    });
}

#[test]
fn lengths_are_those_of_the_rfcs() {
    for (encr, bits, integ, lens) in [
        (EncrId::AES_GCM_16, 128, None, (8, 16, 4)),
        (EncrId::CHACHA20_POLY1305, 256, None, (8, 16, 4)),
        (EncrId::AES_CBC, 256, Some(IntegId::HMAC_SHA2_256_128), (16, 16, 16)),
        (EncrId::AES_CBC, 128, Some(IntegId::HMAC_SHA2_384_192), (16, 24, 16)),
        (EncrId::AES_CBC, 128, Some(IntegId::HMAC_SHA2_512_256), (16, 32, 16)),
        (EncrId::AES_CBC, 128, Some(IntegId::HMAC_SHA1_96), (16, 12, 16)),
        (EncrId::NULL, 0, Some(IntegId::HMAC_SHA2_256_128), (0, 16, 4)),
        (EncrId::NULL, 0, Some(IntegId::HMAC_MD5_96), (0, 12, 4)),
        (EncrId::NULL, 0, Some(IntegId::AES_XCBC_96), (0, 12, 4)),
        (EncrId::NULL, 0, Some(IntegId::AES_CMAC_96), (0, 12, 4)),
        (EncrId::NULL_AES_GMAC, 256, None, (8, 16, 4)),
        (EncrId::AES_GCM_8, 128, None, (8, 8, 4)),
        (EncrId::AES_GCM_12, 192, None, (8, 12, 4)),
        (EncrId::AES_CCM_8, 256, None, (8, 8, 4)),
        (EncrId::AES_CCM_12, 128, None, (8, 12, 4)),
        (EncrId::AES_CCM_16, 128, None, (8, 16, 4)),
        (EncrId::AES_CCM_8_IIV, 128, None, (0, 8, 4)),
        (EncrId::AES_GCM_16_IIV, 128, None, (0, 16, 4)),
        (EncrId::CHACHA20_POLY1305_IIV, 0, None, (0, 16, 4)),
        (EncrId::AES_CTR, 128, Some(IntegId::HMAC_SHA2_256_128), (8, 16, 4)),
        (EncrId::DES3, 0, Some(IntegId::HMAC_SHA1_96), (8, 12, 8)),
    ] {
        let key = key(&suite(encr, bits, integ, false), 0);
        assert_eq!((key.iv_len(), key.icv_len(), key.block_len()), lens, "{encr} {integ:?}");
    }
}

#[test]
fn suites_and_keys_that_do_not_fit_are_refused() {
    with_every_engine(|| {
        let sha256 = Some(IntegId::HMAC_SHA2_256_128);
        for (encr, bits, integ, encr_key, integ_key) in [
            (EncrId::AES_GCM_16, 128, None, 16, 0),
            (EncrId::AES_GCM_16, 128, sha256, 20, 32),
            (EncrId::AES_GCM_16, 128, None, 20, 32),
            (EncrId::AES_GCM_12, 128, None, 19, 0),
            (EncrId::AES_GCM_8, 0, None, 20, 0),
            (EncrId::AES_CCM_16, 128, None, 20, 0),
            (EncrId::AES_CCM_16, 128, sha256, 19, 32),
            (EncrId::NULL_AES_GMAC, 128, None, 16, 0),
            (EncrId::NULL_AES_GMAC, 128, sha256, 20, 32),
            (EncrId::AES_CTR, 128, None, 20, 0),
            (EncrId::AES_CTR, 128, Some(IntegId::NONE), 20, 0),
            (EncrId::AES_CTR, 128, sha256, 16, 32),
            (EncrId::AES_CBC, 128, Some(IntegId::AES_128_GMAC), 16, 20), // AH's only (RFC 4543)
            (EncrId(99), 128, sha256, 16, 32),
            (EncrId::CHACHA20_POLY1305, 256, None, 32, 0),
            (EncrId::AES_CBC, 128, None, 16, 0),
            (EncrId::AES_CBC, 256, sha256, 16, 32),
            (EncrId::AES_CBC, 128, sha256, 16, 16),
            (EncrId::NULL, 0, None, 0, 0),
            (EncrId::NULL, 0, Some(IntegId::NONE), 0, 0),
            (EncrId::NULL, 0, sha256, 16, 32),
            (EncrId::NULL, 0, sha256, 0, 20),
            (EncrId::DES3, 0, sha256, 24, 32), // three keys of zeros: single DES
            (EncrId::DES3, 0, sha256, 21, 32), // without parity
            (EncrId::DES3, 0, None, 24, 0),
        ] {
            let suite = suite(encr, bits, integ, false);
            let made = new_key(&suite, &vec![0; encr_key], &vec![0; integ_key], &mut Seeded::new(0));
            assert!(made.is_none(), "{suite} {encr_key} {integ_key}");
        }
    });
}
