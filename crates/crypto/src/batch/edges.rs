//! Packets, headers, keys and ICVs between pages that fault: no engine reads or writes in front of
//! a buffer or behind it, whatever the suite and the length.

use ironswan_wire::iana::IntegId;

use super::tests::suites;
use super::{EspKey, Job, keymat_lens, open, seal};
use crate::engine::guarded::{End, Guarded};
use crate::engines::{EngineId, Engines};
use crate::icv::{self, IcvJob, IcvKey};
use crate::message::{self, MessageKey};
use crate::rng::{Rng, Seeded};
use crate::testing::count;

/// The longest packet, and the longest text of a message.
const LONGEST: usize = 700;

/// `len` packets from the lengths of a batch, one behind another; those that are long enough have
/// SPI and sequence number.
fn jobs(lens: &[usize]) -> Vec<Job> {
    let mut start = 0;
    let job = |(i, len): (usize, &usize)| {
        let job = Job { start, len: *len as u32, seq: 0x5_0000_0000 + i as u64, key: 0, ok: false };
        start += job.len;
        job
    };
    lens.iter().enumerate().map(job).collect()
}

fn plain(jobs: &[Job]) -> Vec<u8> {
    let mut out = Vec::new();
    for job in jobs {
        let mut packet = count(job.len as u8, job.len as usize);
        if let Some(low) = packet.get_mut(4..8) {
            low.copy_from_slice(&(job.seq as u32).to_be_bytes());
        }
        out.extend(packet);
    }
    out
}

/// Seals and opens a batch whose first packet begins behind a guard or whose last one ends in front
/// of one, in place, and compares all bytes with what aws-lc makes of the same batch in ordinary
/// memory.
fn seal_and_open(memory: &mut Guarded, end: End, lens: &[usize], key: &EspKey, theirs: &EspKey, what: &str) {
    let mut jobs = jobs(lens);
    let plain = plain(&jobs);
    let (mut expected, mut wanted) = (plain.clone(), jobs.clone());
    seal(&mut expected, &mut wanted, &[theirs]);
    let buf = memory.copy(end, &plain);
    seal(buf, &mut jobs, &[key]);
    assert_eq!(jobs, wanted, "{what}");
    assert!(buf == expected, "{what} {lens:?}: other bytes than aws-lc's");
    open(buf, &mut jobs, &[key]);
    assert_eq!(jobs, wanted, "{what}");
    for job in jobs.iter().filter(|job| job.ok) {
        let text = job.start as usize + 8 + key.iv_len()..(job.start + job.len) as usize - key.icv_len();
        assert_eq!(buf[text.clone()], plain[text], "{what}");
    }
}

/// The keying material at the ends of pages: expanding a key reads no byte more than it.
fn guarded_key(
    keymat: [&mut Guarded; 2],
    end: End,
    suite: &ironswan_wire::proposal::EspSuite,
    engines: &Engines,
) -> Box<EspKey> {
    let (encr_len, integ_len) = keymat_lens(suite).expect("a suite that there is");
    let [encr, integ] = keymat;
    let (encr, integ) = (encr.copy(end, &count(3, encr_len)), integ.copy(end, &count(0x83, integ_len)));
    EspKey::with_engines(suite, encr, integ, &mut Seeded::new(1), engines).expect("a key")
}

#[test]
fn no_engine_touches_a_byte_in_front_of_a_packet_or_behind_it() {
    let mut memory = Guarded::new(16 * LONGEST);
    let mut keymat = [Guarded::new(64), Guarded::new(64)];
    for id in EngineId::available() {
        let engines = Engines::only(id);
        for suite in suites().iter().filter(|suite| engines.engine(suite, LONGEST) == id) {
            let [encr, integ] = &mut keymat;
            let theirs = guarded_key([encr, integ], End::Front, suite, &Engines::portable());
            let key = guarded_key([encr, integ], End::Back, suite, &engines);
            let what = format!("{id} {suite}");
            for end in End::BOTH {
                for len in 0..=LONGEST {
                    seal_and_open(&mut memory, end, &[len], &key, &theirs, &what);
                }
                // Side by side: each of a batch's packets is the last once.
                let least = 8 + key.iv_len() + key.icv_len();
                let mut rng = Seeded::new(5);
                for i in 0..20 {
                    let mut text = || 4 + rng.u32() as usize % 600;
                    let lens: Vec<usize> =
                        (0..1 + i % 9).map(|_| least + text().next_multiple_of(key.block_len())).collect();
                    seal_and_open(&mut memory, end, &lens, &key, &theirs, &what);
                }
            }
        }
    }
}

/// SPI to ICV are one buffer above; additional data, IV, text and ICV of IKE messages are four.
#[test]
fn no_engine_touches_a_byte_around_the_parts_of_a_message() {
    let mut memory = [(); 4].map(|()| Guarded::new(LONGEST));
    let mut keymat = [Guarded::new(64), Guarded::new(64)];
    for suite in suites().iter().filter(|suite| !suite.esn) {
        let Some(encr_len) = message::encr_key_len(suite.encr, suite.key_bits) else { continue };
        let integ_len = suite.integ.map_or(Some(0), message::integ_key_len).expect("an algorithm");
        for end in End::BOTH {
            let [encr, integ] = &mut keymat;
            let encr = encr.copy(end, &count(3, encr_len));
            let integ = integ.copy(end, &count(0x83, integ_len));
            let key = MessageKey::new(suite.encr, suite.key_bits, suite.integ, encr, integ).expect("a key");
            for len in (key.block_len()..=LONGEST).step_by(key.block_len()) {
                let [aad, iv, text, icv] = &mut memory;
                let aad = aad.copy(end, &count(1, len % 70));
                let iv = iv.copy(end, &count(2, key.iv_len()));
                let text = text.copy(end, &count(3, len));
                let icv = icv.at(end, key.icv_len());
                key.seal(aad, iv, text, icv);
                assert_ne!(text, count(3, len));
                assert_eq!(key.open(aad, iv, text, icv), Ok(()), "{suite} {len}");
                assert_eq!(text, count(3, len), "{suite}");
            }
        }
    }
}

#[test]
fn no_engine_touches_a_byte_around_an_ah_packet() {
    let mut memory = [Guarded::new(LONGEST), Guarded::new(LONGEST)];
    let mut keymat = Guarded::new(64);
    for integ in IntegId::ALL.iter().copied() {
        let Some(key_len) = icv::key_len(integ) else { continue };
        for (end, esn) in End::BOTH.into_iter().zip([false, true]) {
            let key = IcvKey::new(integ, keymat.copy(end, &count(3, key_len)), esn).expect("a key");
            for len in 12 + key.field_len()..=LONGEST {
                let [heads, buf] = &mut memory;
                let heads = heads.copy(end, &count(1, 20 + len % 40));
                let buf = buf.copy(end, &count(2, len));
                // The field in the middle, or at the end of the packet.
                for field in [12, len - key.field_len()] {
                    let mut jobs = [IcvJob {
                        head: 0,
                        head_len: heads.len() as u32,
                        start: 0,
                        len: len as u32,
                        field: field as u32,
                        seq: 0x5_0000_0007,
                        key: 0,
                        ok: false,
                    }];
                    icv::sign(heads, buf, &mut jobs, &[&key]);
                    assert!(jobs[0].ok);
                    icv::verify(heads, buf, &mut jobs, &[&key]);
                    assert!(jobs[0].ok, "{integ} {len}");
                }
            }
        }
    }
}

/// The rule by which a packet is kept from an engine that may read a few bytes behind what it
/// signs, on any processor: CMAC takes the last block whole, and what is behind it in memory has to
/// be there.
#[cfg(ipsec_mb)]
#[test]
fn a_packet_with_cmac_at_the_end_of_the_buffer_goes_alone() {
    use ironswan_wire::iana::EncrId;

    use super::lanes::goes_alone;
    use super::tests::{key, number, packet, suite};

    assert_eq!(EngineId::IpsecMb.missing(), None, "this processor has AES instructions");
    super::across::ENGINES.set(Engines::only(EngineId::IpsecMb));
    for esn in [false, true] {
        for (encr, bits) in [(EncrId::NULL, 0), (EncrId::AES_CTR, 128), (EncrId::AES_CBC, 128)] {
            for integ in IntegId::ALL.iter().copied().filter(|id| *id != IntegId::NONE) {
                let suite = suite(encr, bits, Some(integ), esn);
                if keymat_lens(&suite).is_none() {
                    continue;
                }
                let key = key(&suite, 1);
                for text in 16..48 {
                    let packet = packet(&key, "00001001", number(&suite, 7), &count(0, text));
                    let job = Job { start: 0, len: packet.len() as u32, seq: 7, key: 0, ok: false };
                    // Up to the end of the block in which the signed bytes end.
                    let signed = packet.len() - key.icv_len() + if esn { 4 } else { 0 };
                    for behind in 0..=16 {
                        let last_block = signed.next_multiple_of(16);
                        let may_fault = integ == IntegId::AES_CMAC_96 && last_block > packet.len() + behind;
                        let alone = goes_alone(packet.len() + behind, &job, &key);
                        assert!(alone || !may_fault, "{suite} {text} {behind}");
                        // With a block behind the packet nothing is kept back, nor with another
                        // MAC.
                        assert!(!alone || behind < 16, "{suite} {text}");
                        assert!(
                            !alone || matches!(integ, IntegId::AES_CMAC_96 | IntegId::AES_XCBC_96),
                            "{suite}"
                        );
                    }
                }
            }
        }
    }
    super::across::ENGINES.set(Engines::portable());
}
