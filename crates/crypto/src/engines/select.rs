//! The self-test of engines at start: what answers wrongly is not used, of the rest the fastest is.
//!
//! ```text
//! for each class of suites and each engine that has it
//!   known answers, and a batch of mixed lengths, with wrong ICVs in it, against aws-lc's
//!     -> an engine that answers wrongly is never used, and there is a warning
//!   32 packets of 64 and of 1,400 bytes of text, sealed and opened, the least of 3 runs
//!     -> nanoseconds per packet
//! ```
//!
//! Engines take turns within a run, so that whatever else the machine does meets all of them. 3DES
//! is timed with one integrity algorithm and in two runs: with tables it takes longer than
//! everything else together.
//!
//! Not here: the clock. The caller's stopwatch says how many nanoseconds have passed since any
//! moment.

use ironswan_wire::proposal::EspSuite;

use super::{CipherClass, EngineChoice, EngineId, Engines, SuiteClass};
use crate::batch::{self, EspKey, Job};
use crate::rng::{Rng, Seeded};
use crate::selftest;

/// Packets of a batch.
const BATCH: usize = 32;
/// Bytes of text.
const SIZES: [usize; 2] = [64, 1400];
/// Number of runs; the fastest one counts.
const RUNS: usize = 3;
/// Part of the other engine's time that an engine must save to be chosen for one size only.
const MIN_ADVANTAGE: f64 = 0.1;

/// Measured time of an engine for one suite and size.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Speed {
    /// The engine.
    pub engine: EngineId,
    /// Nanoseconds per packet to seal, in batches of 32.
    pub seal_ns: u32,
    /// Nanoseconds per packet to open, in batches of 32.
    pub open_ns: u32,
}

impl Speed {
    /// Both directions.
    fn sum(&self) -> f64 {
        f64::from(self.seal_ns) + f64::from(self.open_ns)
    }
}

/// A line of `ironswan list algs`: a suite, a size, and the time of each engine.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MeasuredSuite {
    /// The suite as `swanctl.conf` writes it. AES with other key lengths than 128 goes by the same
    /// choice, except AES-GCM.
    pub suite: String,
    /// Bytes of text.
    pub size: usize,
    /// The engine that gets packets of this size.
    pub chosen: EngineId,
    /// All engines that have the suite and answered rightly, `aws-lc` first. Empty when it was not
    /// timed.
    pub speeds: Vec<Speed>,
    /// An engine was asked for that does not have the suite.
    pub falls_back: bool,
}

/// Result of the self-test: the engine of each suite and size.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EngineSelection {
    /// To make keys with.
    pub engines: Engines,
    /// For `ironswan list algs`.
    pub table: Vec<MeasuredSuite>,
    /// Engines that answered wrongly, and an engine that was asked for and cannot be used. For the
    /// log.
    pub warnings: Vec<String>,
}

impl Engines {
    /// Tests and times every engine that can be used here. With a wish that one does all it has, if
    /// it answers rightly.
    pub fn select(stopwatch: &mut dyn FnMut() -> u64, wish: Option<EngineId>) -> EngineSelection {
        let mut this = EngineSelection { engines: Self::portable(), table: Vec::new(), warnings: Vec::new() };
        if let Some(id) = wish
            && let Some(why) = id.missing()
        {
            this.warnings.push(format!("engine '{id}' cannot be used: {why}; aws-lc does its work"));
        }
        let mut triple_des = None;
        for class in SuiteClass::all() {
            let (suite, name) = class.suite();
            let engines: Vec<EngineId> = EngineId::available()
                .filter(|id| id.has(class))
                .filter(|id| match check(*id, class, &suite) {
                    Ok(()) => true,
                    Err(what) => {
                        let warning = format!("engine '{id}' is not used for {name}: {what}");
                        this.warnings.push(warning);
                        false
                    }
                })
                .collect();
            // The other 3DES suites do as the first does.
            let is_triple_des = matches!(class, SuiteClass::Both(CipherClass::TripleDes, _));
            let (choice, speeds) = match triple_des {
                Some(EngineChoice { small, large, from })
                    if is_triple_des && engines.contains(&small) && engines.contains(&large) =>
                {
                    (EngineChoice { small, large, from }, [Vec::new(), Vec::new()])
                }
                _ => {
                    let runs = if is_triple_des { 2 } else { RUNS };
                    let speeds = SIZES.map(|size| time(&engines, &suite, size, runs, stopwatch));
                    (fastest(&speeds, &suite), speeds)
                }
            };
            if is_triple_des {
                triple_des.get_or_insert(choice);
            }
            let choice = match wish {
                Some(id) if engines.contains(&id) => EngineChoice::one(id),
                Some(_) => EngineChoice::one(EngineId::AwsLc),
                None => choice,
            };
            this.engines.choices[class.index()] = choice;
            for (size, speeds) in SIZES.into_iter().zip(speeds) {
                let chosen = this.engines.engine(&suite, packet_len(&suite, size));
                let falls_back = wish.is_some_and(|id| id != chosen);
                this.table.push(MeasuredSuite { suite: name.clone(), size, chosen, speeds, falls_back });
            }
        }
        this
    }
}

/// Which engine is the fastest for small packets, which for large ones, and where the one overtakes
/// the other.
fn fastest(speeds: &[Vec<Speed>; 2], suite: &EspSuite) -> EngineChoice {
    let best = |list: &[Speed]| list.iter().copied().min_by(|a, b| a.sum().total_cmp(&b.sum()));
    let [Some(small), Some(large)] = [best(&speeds[0]), best(&speeds[1])] else {
        return EngineChoice::one(EngineId::AwsLc);
    };
    let at = |list: &[Speed], id| list.iter().find(|s| s.engine == id).map_or(f64::INFINITY, Speed::sum);
    // One engine for both, unless it is clearly the slower on one side.
    for id in [large.engine, small.engine] {
        if at(&speeds[0], id) <= small.sum() * (1.0 + MIN_ADVANTAGE)
            && at(&speeds[1], id) <= large.sum() * (1.0 + MIN_ADVANTAGE)
        {
            return EngineChoice::one(id);
        }
    }
    // Both take a + b * length: they meet where the lead of the one is used up.
    let lead = at(&speeds[0], large.engine) - small.sum();
    let behind = at(&speeds[1], small.engine) - large.sum();
    let (from, to) = (packet_len(suite, SIZES[0]) as f64, packet_len(suite, SIZES[1]) as f64);
    let meet = from + (to - from) * lead / (lead + behind);
    EngineChoice { small: small.engine, large: large.engine, from: meet as u16 }
}

/// A key with fixed bytes.
fn key(engines: &Engines, suite: &EspSuite, seed: u64) -> Option<Box<EspKey>> {
    let mut rng = Seeded::new(seed);
    let (encr_len, integ_len) = batch::keymat_lens(suite)?;
    let (mut encr, mut integ) = (vec![0; encr_len], vec![0; integ_len]);
    rng.fill(&mut encr);
    rng.fill(&mut integ);
    EspKey::with_engines(suite, &encr, &integ, &mut rng, engines)
}

/// From SPI to ICV.
fn packet_len(suite: &EspSuite, text: usize) -> usize {
    let Some(key) = key(&Engines::portable(), suite, 0) else { return 0 };
    8 + key.iv_len() + text.next_multiple_of(key.block_len()) + key.icv_len()
}

/// Packets one behind another, ready for sealing: these bytes of text each.
fn packets(key: &EspKey, texts: impl Iterator<Item = usize>) -> (Vec<u8>, Vec<Job>) {
    let (mut buf, mut jobs) = (Vec::new(), Vec::new());
    for (i, text) in texts.enumerate() {
        let start = buf.len();
        buf.extend([1, 2, 3, 4, 0, 0, 0, i as u8]);
        let len = 8 + key.iv_len() + text.next_multiple_of(key.block_len()) + key.icv_len();
        buf.extend((8..len).map(|at| (at * 7 + i) as u8));
        jobs.push(Job {
            start: start as u32,
            len: len as u32,
            seq: 0x5_0000_0000 + i as u64,
            key: 0,
            ok: false,
        });
    }
    (buf, jobs)
}

/// Known answers, and the same bytes as aws-lc for a batch of mixed lengths, of which some are
/// damaged before they are opened.
fn check(id: EngineId, class: SuiteClass, suite: &EspSuite) -> Result<(), String> {
    let engines = Engines::only(id);
    selftest::packets(&engines, |answered| SuiteClass::of(answered) == Some(class))?;
    if id == EngineId::AwsLc {
        return Ok(());
    }
    let missing = || "keys refused".to_owned();
    let theirs = key(&Engines::portable(), suite, 3).ok_or_else(missing)?;
    let ours = key(&engines, suite, 3).ok_or_else(missing)?;
    let (mut expected, mut jobs) = packets(&theirs, (0..BATCH + 1).map(|i| 16 + i * i));
    let (mut buf, plain) = (expected.clone(), expected.clone());
    batch::seal(&mut expected, &mut jobs, &[&theirs]);
    batch::seal(&mut buf, &mut jobs, &[&ours]);
    if buf != expected || jobs.iter().any(|job| !job.ok) {
        return Err("sealed to other bytes than aws-lc".into());
    }
    let last = |job: &Job| (job.start + job.len) as usize - 1;
    for (i, job) in jobs.iter().enumerate().filter(|(i, _)| i % 5 == 0) {
        buf[if i % 2 == 0 { last(job) } else { job.start as usize + 8 + theirs.iv_len() }] ^= 0x40;
    }
    batch::open(&mut buf, &mut jobs, &[&ours]);
    for (i, job) in jobs.iter().enumerate() {
        if job.ok != (i % 5 != 0) {
            return Err(if job.ok { "opened a wrong ICV" } else { "did not open what it sealed" }.into());
        }
        let text = job.start as usize + 8 + theirs.iv_len()..last(job) + 1 - theirs.icv_len();
        if job.ok && buf[text.clone()] != plain[text] {
            return Err("opened to another text".into());
        }
    }
    Ok(())
}

/// Times engines in turns. Those that refuse the keys are left out.
fn time(
    ids: &[EngineId],
    suite: &EspSuite,
    size: usize,
    runs: usize,
    stopwatch: &mut dyn FnMut() -> u64,
) -> Vec<Speed> {
    let keys: Vec<(EngineId, Box<EspKey>)> =
        ids.iter().filter_map(|id| Some((*id, key(&Engines::forced(*id), suite, 1)?))).collect();
    let mut least = vec![[u64::MAX; 2]; keys.len()];
    let Some((_, first)) = keys.first() else { return Vec::new() };
    let (plain, mut jobs) = packets(first, std::iter::repeat_n(size, BATCH));
    let mut buf = plain.clone();
    for _ in 0..runs {
        for ((_, key), least) in keys.iter().zip(&mut least) {
            buf.copy_from_slice(&plain);
            for (work, least) in [batch::seal, batch::open].into_iter().zip(least) {
                let began = stopwatch();
                work(&mut buf, &mut jobs, &[key]);
                *least = (*least).min(stopwatch().saturating_sub(began));
            }
        }
    }
    let each = |total: u64| u32::try_from(total / BATCH as u64).unwrap_or(u32::MAX);
    let speed = |(engine, [seal, open]): (EngineId, [u64; 2])| Speed {
        engine,
        seal_ns: each(seal),
        open_ns: each(open),
    };
    keys.iter().map(|(id, _)| *id).zip(least).map(speed).collect()
}
