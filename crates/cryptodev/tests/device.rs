//! The device against our own engine, octet for octet. Built with the feature `dpdk` alone.

#![cfg(feature = "dpdk")]

use ironswan_crypto::batch::{self, EspKey, Job};
use ironswan_crypto::engines::Engines;
use ironswan_crypto::rng::Seeded;
use ironswan_cryptodev::{Answer, DEVICE, Direction, Key, MOST_ANSWERS, Packets, start};
use ironswan_wire::iana::{EncrId, IntegId};
use ironswan_wire::proposal::EspSuite;

/// Texts of packets: whole blocks of AES.
const TEXTS: [usize; 7] = [16, 64, 256, 1408, 4096, 8192, 32_768];
/// Packets of each size: more than the lanes of the library, and than answers come at once.
const PACKETS: u32 = 40;

/// Keys, and the engine of ours that has them.
struct Sa {
    encr: Vec<u8>,
    integ: Vec<u8>,
    own: Box<EspKey>,
}

impl Sa {
    fn new(encr: EncrId, bits: u16, integ: Option<IntegId>) -> Self {
        let suite = EspSuite { encr, key_bits: bits, integ, ke: None, esn: false };
        let (encr_len, integ_len) = batch::keymat_lens(&suite).expect("a suite of ESP");
        let bytes = |len: usize, from: u8| {
            (0..len).map(|i| from.wrapping_add((i as u8).wrapping_mul(29))).collect::<Vec<_>>()
        };
        let (encr, integ) = (bytes(encr_len, 3), bytes(integ_len, 77));
        let own = EspKey::with_engines(&suite, &encr, &integ, &mut Seeded::new(5), &Engines::portable());
        Self { own: own.expect("a key"), encr, integ }
    }

    fn key(&self) -> Key<'_> {
        match self.encr.split_last_chunk() {
            Some((key, salt)) if self.integ.is_empty() => Key::Gcm { key, salt: *salt },
            _ => Key::CbcSha256 { key: &self.encr, mac: &self.integ },
        }
    }

    /// Length of a packet with a text of this length.
    fn packet_len(&self, text: usize) -> usize {
        8 + self.own.iv_len() + text + self.own.icv_len()
    }

    /// Packets before and after our engine has sealed them, numbered from 0.
    fn packets(&self, text: usize) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
        let len = self.packet_len(text);
        let one = |n: u32| {
            let mut plain: Vec<u8> = (0..len).map(|i| (i as u32 * 7 + n) as u8).collect();
            plain[4..8].copy_from_slice(&n.to_be_bytes());
            let mut sealed = plain.clone();
            let mut job = [Job { start: 0, len: len as u32, seq: n.into(), key: 0, ok: false }];
            batch::seal(&mut sealed, &mut job, &[&self.own]);
            assert!(job[0].ok);
            let iv = 8..8 + self.own.iv_len();
            plain[iv.clone()].copy_from_slice(&sealed[iv]);
            (plain, sealed)
        };
        (0..PACKETS).map(one).unzip()
    }
}

/// Writes packets, hands them over, and returns the results and the packets by slot.
fn through(set: &mut Packets, packets: &[Vec<u8>]) -> (Vec<bool>, Vec<Vec<u8>>) {
    let count = packets.len() as u32;
    let mut oks = vec![None; packets.len()];
    let (mut requests, mut answers) = set.ends();
    (0..).zip(packets).for_each(|(slot, packet)| requests.write(slot, packet));
    assert_eq!(requests.submit(0, count, 0), count);
    // They are with the device: none is taken twice.
    assert_eq!(requests.submit(0, count, 0), 0);
    let mut some = [Answer::default(); MOST_ANSWERS];
    while oks.contains(&None) {
        let n = answers.poll(&mut some);
        for answer in &some[..n] {
            assert_eq!(oks[answer.slot() as usize].replace(answer.ok()), None, "it came back twice");
        }
    }
    assert_eq!(answers.poll(&mut some), 0);
    let read = |slot: usize| {
        let mut packet = vec![0; packets[0].len()];
        set.read(slot as u32, &mut packet);
        packet
    };
    let packets = (0..packets.len()).map(read).collect();
    (oks.into_iter().map(|ok| ok == Some(true)).collect(), packets)
}

fn suites() -> Vec<Sa> {
    let cbc = Some(IntegId::HMAC_SHA2_256_128);
    vec![
        Sa::new(EncrId::AES_GCM_16, 128, None),
        Sa::new(EncrId::AES_GCM_16, 192, None),
        Sa::new(EncrId::AES_GCM_16, 256, None),
        Sa::new(EncrId::AES_CBC, 128, cbc),
        Sa::new(EncrId::AES_CBC, 256, cbc),
    ]
}

#[test]
fn the_device_seals_what_our_engine_seals_and_opens_it() {
    start(DEVICE).expect("the device");
    for sa in suites() {
        for text in TEXTS {
            let (plain, sealed) = sa.packets(text);
            let open = |way| Packets::open(sa.key(), way, PACKETS, sa.packet_len(text)).expect("packets");
            let (oks, got) = through(&mut open(Direction::Seal), &plain);
            assert!(oks.iter().all(|ok| *ok) && got == sealed, "{:?}, {text} B", sa.key());
            let (oks, got) = through(&mut open(Direction::Open), &sealed);
            let inner = 8 + sa.own.iv_len()..sa.packet_len(text) - sa.own.icv_len();
            let same = got.iter().zip(&plain).all(|(got, plain)| got[inner.clone()] == plain[inner.clone()]);
            assert!(oks.iter().all(|ok| *ok) && same, "{:?}, {text} B", sa.key());
        }
    }
}

#[test]
fn a_wrong_icv_a_wrong_text_and_a_wrong_header_are_refused_each_alone() {
    start(DEVICE).expect("the device");
    for sa in suites() {
        let (_, sealed) = sa.packets(64);
        let len = sa.packet_len(64);
        for at in [0, 8 + sa.own.iv_len(), len - 16, len - 1] {
            let mut forged = sealed.clone();
            forged[17][at] ^= 0x40;
            let mut set = Packets::open(sa.key(), Direction::Open, PACKETS, len).expect("packets");
            let (oks, _) = through(&mut set, &forged);
            let refused: Vec<usize> = (0..oks.len()).filter(|i| !oks[*i]).collect();
            assert_eq!(refused, [17], "{:?}, octet {at}", sa.key());
        }
    }
}

#[test]
fn numbers_of_packets_go_on_from_the_first() {
    start(DEVICE).expect("the device");
    let sa = Sa::new(EncrId::AES_GCM_16, 128, None);
    let (plain, _) = sa.packets(64);
    let mut set = Packets::open(sa.key(), Direction::Seal, PACKETS, plain[0].len()).expect("packets");
    let (mut requests, mut answers) = set.ends();
    requests.write(3, &plain[3]);
    requests.write(4, &plain[4]);
    assert_eq!(requests.submit(3, 2, 0x1_0000_0007), 2);
    let (mut some, mut back) = ([Answer::default(); MOST_ANSWERS], 0);
    while back < 2 {
        back += answers.poll(&mut some);
    }
    let mut packet = vec![0; plain[0].len()];
    set.read(4, &mut packet);
    assert_eq!(packet[4..16], [0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 0, 8]);
}

#[test]
fn packets_that_are_dropped_with_the_device_leave_its_queue_free_for_others() {
    start(DEVICE).expect("the device");
    let sa = Sa::new(EncrId::AES_CBC, 128, Some(IntegId::HMAC_SHA2_256_128));
    let (plain, sealed) = sa.packets(256);
    for _ in 0..3 {
        let mut set = Packets::open(sa.key(), Direction::Seal, PACKETS, plain[0].len()).expect("packets");
        let (mut requests, _) = set.ends();
        (0..).zip(&plain).for_each(|(slot, packet)| requests.write(slot, packet));
        assert_eq!(requests.submit(0, PACKETS, 0), PACKETS);
    }
    let mut set = Packets::open(sa.key(), Direction::Seal, PACKETS, plain[0].len()).expect("packets");
    assert!(through(&mut set, &plain).1 == sealed);
}

#[test]
fn two_threads_may_have_an_end_each() {
    start(DEVICE).expect("the device");
    let sa = Sa::new(EncrId::AES_GCM_16, 256, None);
    let (plain, _) = sa.packets(1408);
    let mut set = Packets::open(sa.key(), Direction::Seal, PACKETS, plain[0].len()).expect("packets");
    let (mut requests, mut answers) = set.ends();
    (0..).zip(&plain).for_each(|(slot, packet)| requests.write(slot, packet));
    let rounds = 200;
    std::thread::scope(|scope| {
        let all = scope.spawn(move || {
            let (mut some, mut good) = ([Answer::default(); MOST_ANSWERS], 0);
            while good < rounds * PACKETS {
                let n = answers.poll(&mut some);
                assert!(some[..n].iter().all(|answer| answer.ok()));
                good += n as u32;
            }
            good
        });
        let mut taken = 0;
        while taken < rounds * PACKETS {
            let slot = taken % PACKETS;
            taken += requests.submit(slot, PACKETS - slot, taken.into());
        }
        assert_eq!(all.join().expect("the thread of the device"), taken);
    });
}

#[test]
fn what_the_device_cannot_do_is_refused_with_the_reason() {
    start(DEVICE).expect("the device");
    let sa = Sa::new(EncrId::AES_GCM_16, 128, None);
    let open =
        |slots, len| Packets::open(sa.key(), Direction::Seal, slots, len).expect_err("refused").to_string();
    assert!(open(0, 96).contains("1 to 16384 packets, not 0"));
    assert!(open(16_385, 96).contains("not 16385"));
    assert!(open(1, 32).contains("33 to 40000 bytes, not 32"));
    // More than DPDK's memory has room for: refused, and nothing of it stays.
    assert!(open(16_384, 40_000).contains("takes no 16384 packets of 40000 bytes"));
    Packets::open(sa.key(), Direction::Seal, PACKETS, 96).expect("packets");
}

#[test]
#[should_panic(expected = "slot 40 of 40")]
fn a_slot_that_is_not_there_is_not_written() {
    start(DEVICE).expect("the device");
    let sa = Sa::new(EncrId::AES_GCM_16, 128, None);
    let mut set = Packets::open(sa.key(), Direction::Seal, PACKETS, 96).expect("packets");
    set.ends().0.write(PACKETS, &[0; 96]);
}

/// DPDK usually keeps files of a process in `/var/run/dpdk`, and huge pages in mounted files.
#[test]
fn nothing_is_left_in_the_file_system() {
    start(DEVICE).expect("the device");
    for folder in ["/var/run/dpdk", "/run/dpdk"] {
        assert!(!std::path::Path::new(folder).exists(), "{folder}");
    }
    let maps = std::fs::read_to_string("/proc/self/maps").expect("our own maps");
    assert!(!maps.contains("hugepages") && !maps.contains("rtemap"), "{maps}");
}
