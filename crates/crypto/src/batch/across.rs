//! Keys of every engine, and engines against each other: the same batches, the same bytes.

use std::cell::Cell;

use ironswan_wire::proposal::EspSuite;

use super::tests::{key, number, open_one, packet, seal_one, suites, text};
use super::{EspKey, Job, open, seal};
use crate::engines::{EngineId, Engines};
use crate::rng::{Rng, Seeded};
use crate::testing::count;

thread_local! {
    pub(super) static ENGINES: Cell<Engines> = const { Cell::new(Engines::portable()) };
}

/// Runs a test once for each engine that can be used here: keys made by it are that engine's.
pub(super) fn with_every_engine(test: impl Fn()) {
    for id in EngineId::available() {
        println!("engine {id}");
        ENGINES.set(Engines::only(id));
        test();
    }
    ENGINES.set(Engines::portable());
}

/// A key of the engine whose turn it is.
pub(super) fn new_key(
    suite: &EspSuite,
    encr_key: &[u8],
    integ_key: &[u8],
    rng: &mut dyn Rng,
) -> Option<Box<EspKey>> {
    EspKey::with_engines(suite, encr_key, integ_key, rng, &ENGINES.get())
}

#[test]
fn engines_do_the_same_to_a_batch_of_many_sas_and_lengths() {
    let every_choice = every_choice();
    for packets in [1, 2, 3, 4, 5, 8, 31, 32, 33, 64, 300] {
        for round in 0..3u64 {
            let mut rng = Seeded::new(packets as u64 * 10 + round);
            // Few SAs fill the lanes of an engine with one suite; many mix them.
            let mut chosen = suites();
            let sas = [1, 4, chosen.len()][round as usize];
            chosen.sort_by_cached_key(|_| rng.u64());
            chosen.truncate(sas);
            let lens: Vec<usize> = (0..packets).map(|_| 2 + rng.u32() as usize % 1500).collect();
            let picks: Vec<u16> = (0..packets).map(|_| (rng.u32() as usize % sas) as u16).collect();
            let damage: Vec<Option<u32>> =
                (0..packets).map(|_| rng.u32().is_multiple_of(3).then(|| rng.u32())).collect();
            let mut expected: Option<(Vec<u8>, Vec<Job>, Vec<u8>)> = None;
            for engines in &every_choice {
                ENGINES.set(*engines);
                let keys: Vec<Box<EspKey>> = chosen.iter().zip(0..).map(|(s, i)| key(s, i)).collect();
                let keys: Vec<&EspKey> = keys.iter().map(|key| &**key).collect();
                let (mut buf, mut jobs) = (Vec::new(), Vec::new());
                for (i, (len, pick)) in lens.iter().zip(&picks).enumerate() {
                    let key = keys[usize::from(*pick)];
                    let seq = number(&chosen[usize::from(*pick)], 0x1_0000_0000 + i as u64);
                    let plain = count(i as u8, len.next_multiple_of(key.block_len()));
                    let packet = packet(key, "00001001", seq, &plain);
                    let (start, len) = (buf.len() as u32, packet.len() as u32);
                    jobs.push(Job { start, len, seq, key: *pick, ok: false });
                    buf.extend(packet);
                }
                seal(&mut buf, &mut jobs, &keys);
                assert!(jobs.iter().all(|job| job.ok));
                let sealed = buf.clone();
                for (job, damage) in jobs.iter().zip(&damage) {
                    if let Some(bit) = damage {
                        let bit = bit % (job.len * 8);
                        buf[(job.start + bit / 8) as usize] ^= 1 << (bit % 8);
                    }
                }
                open(&mut buf, &mut jobs, &keys);
                for ((i, job), damage) in jobs.iter().enumerate().zip(&damage) {
                    assert_eq!(job.ok, damage.is_none(), "{} packet {i}", chosen[usize::from(job.key)]);
                    let text = text(
                        keys[usize::from(job.key)],
                        &buf[job.start as usize..(job.start + job.len) as usize],
                    );
                    assert!(!job.ok || text == count(i as u8, text.len()));
                }
                match &expected {
                    None => expected = Some((sealed, jobs, buf)),
                    Some((bytes, done, opened)) => {
                        assert_eq!((&sealed, &jobs), (bytes, done), "{engines:?}");
                        for job in jobs.iter().filter(|job| job.ok) {
                            let range = job.start as usize..(job.start + job.len) as usize;
                            assert_eq!(buf[range.clone()], opened[range], "ICV and all");
                        }
                    }
                }
            }
            ENGINES.set(Engines::portable());
        }
    }
}

/// Ways to choose engines: aws-lc alone, and for each engine the engine alone, as the daemon uses
/// it, and for packets below or from 500 bytes.
fn every_choice() -> Vec<Engines> {
    let mut now = 0;
    let mut stopwatch = || {
        now += 1000;
        now
    };
    let mut out = vec![Engines::portable()];
    for id in EngineId::available() {
        out.push(Engines::only(id));
        out.push(Engines::select(&mut stopwatch, Some(id)).engines);
        out.push(Engines::by_size(EngineId::AwsLc, id, 500));
        out.push(Engines::by_size(id, EngineId::AwsLc, 500));
    }
    out
}

#[cfg(ipsec_mb)]
#[test]
fn the_engine_that_is_asked_for_is_the_one_that_works() {
    use ironswan_wire::iana::{EncrId, IntegId};

    use super::tests::suite;

    assert_eq!(EngineId::IpsecMb.missing(), None, "this processor has AES instructions");
    let cbc = suite(EncrId::AES_CBC, 128, Some(IntegId::HMAC_SHA1_96), false);
    for (engines, lanes, span) in [
        (Engines::portable(), 0, 0),
        (Engines::only(EngineId::AwsLc), 0, 0),
        (Engines::only(EngineId::IpsecMb), 1, super::MAX_SECOND_LEN),
        (Engines::by_size(EngineId::IpsecMb, EngineId::AwsLc, 300), 8, 300),
    ] {
        ENGINES.set(engines);
        let key = key(&cbc, 0);
        assert_eq!((key.params.lanes, key.params.second_span), (lanes, span), "{engines:?}");
    }
}

/// An engine that works on packets side by side has a longest packet, and one that begins at some
/// length is not asked for more than that either: every packet is sealed, whatever its length.
#[cfg(ipsec_mb)]
#[test]
fn packets_around_the_longest_of_an_engine_are_sealed_by_one_or_the_other() {
    use ironswan_wire::iana::{EncrId, IntegId};

    use super::tests::suite;
    use crate::engines::WORTH;

    let null = suite(EncrId::NULL, 0, Some(IntegId::HMAC_SHA1_96), false);
    ENGINES.set(Engines::by_size(EngineId::AwsLc, EngineId::IpsecMb, 330));
    let key = key(&null, 0);
    for len in [329, 330, 0xefff, 0xf000, 0xf001, 0xf000 + 329, 65_507u32] {
        let mut buf = vec![7; usize::from(WORTH) * len as usize];
        let job = |i: u32| super::Job { start: i * len, len, seq: u64::from(i) + 1, key: 0, ok: false };
        let mut jobs: Vec<super::Job> = (0..u32::from(WORTH)).map(job).collect();
        for (job, packet) in jobs.iter().zip(buf.chunks_exact_mut(len as usize)) {
            packet[4..8].copy_from_slice(&(job.seq as u32).to_be_bytes());
        }
        super::seal(&mut buf, &mut jobs, &[&key]);
        assert!(jobs.iter().all(|job| job.ok), "{len}");
        super::open(&mut buf, &mut jobs, &[&key]);
        assert!(jobs.iter().all(|job| job.ok), "{len}");
    }
}

/// Prefetches of a key begin at cache lines: the first line, then the powers of H and the round
/// keys, either those that a short packet needs or all.
#[cfg(target_arch = "x86_64")]
#[test]
fn of_a_key_of_our_own_engine_no_line_is_fetched_that_a_packet_does_not_need() {
    use ironswan_wire::iana::EncrId;

    use super::tests::suite;

    if EngineId::Vaes.missing().is_some() {
        return;
    }
    for (bits, rounds) in [(128, 10), (192, 12), (256, 14)] {
        ENGINES.set(Engines::only(EngineId::Vaes));
        let hot = key(&suite(EncrId::AES_GCM_16, bits, None, false), 0).prefetch_range();
        assert_eq!((hot.short_len, hot.short_from), (8 + 8 + 96 + 16, 64 + 128));
        assert_eq!(hot.to, 64 + 256 + 16 * (rounds + 1));
        ENGINES.set(Engines::portable());
        let hot = key(&suite(EncrId::AES_GCM_16, bits, None, false), 0).prefetch_range();
        assert_eq!((hot.short_len, hot.to), (0, super::PREFETCH_LEN));
    }
}

#[test]
fn a_key_is_shared_by_threads_and_can_be_moved() {
    with_every_engine(|| {
        for suite in suites() {
            let moved = Box::new([Some(key(&suite, 5))]);
            let key = std::sync::Arc::new({ moved }[0].take().unwrap());
            let threads: Vec<_> = (0..3u64)
                .map(|n| {
                    let key = key.clone();
                    std::thread::spawn(move || {
                        (0..20).all(|i| {
                            let seq = n * 1000 + i;
                            let mut packet = packet(&key, "00001001", seq, &count(i as u8, 64));
                            seal_one(&key, &mut packet, seq)
                                && open_one(&key, &mut packet, seq)
                                && text(&key, &packet) == count(i as u8, 64)
                        })
                    })
                })
                .collect();
            for thread in threads {
                assert!(thread.join().unwrap(), "{suite}");
            }
        }
    });
}

#[test]
fn a_key_is_small_enough_for_the_slab() {
    assert!(size_of::<EspKey>() <= 1536, "{} bytes", size_of::<EspKey>());
}
