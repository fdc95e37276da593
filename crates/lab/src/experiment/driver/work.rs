//! A crypto engine at work: packets in memory, sealed or opened through the batch interface of the
//! data plane, and the processor time that this takes.

use std::fmt;
use std::hint::black_box;
use std::str::FromStr;
use std::time::Duration;

use ironswan_crypto::batch::{self, EspKey, Job};
use ironswan_crypto::engines::Engines;
use ironswan_crypto::rng::{Rng, Seeded};
use ironswan_wire::proposal::EspSuite;

use crate::clock;
use crate::error::LabError;
use crate::interrupt;

/// Memory of packets that stay in the processor's cache, and of those that do not, bytes.
pub(super) const CACHED: usize = 128 << 10;
pub(super) const LARGE: usize = 32 << 20;
/// Jobs name their bytes with 32 bits; a packet must also fit a lane of every engine.
pub(crate) const SIZES: std::ops::RangeInclusive<u32> = 16..=32_768;

/// Which way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Work {
    Seal,
    Open,
}

impl Work {
    pub(crate) const BOTH: [Self; 2] = [Self::Seal, Self::Open];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Seal => "seal",
            Self::Open => "open",
        }
    }
}

/// How operations are handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Dispatch {
    /// All in one call.
    All,
    /// One in a call, the next when the result of the one before has been looked at.
    After,
    /// Packets in one call.
    Burst(usize),
}

impl Dispatch {
    /// `all`, `after`, `burst`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::All => "all",
            Self::After => "after",
            Self::Burst(_) => "burst",
        }
    }

    /// Packets of a call, for the record.
    pub(crate) fn burst(self) -> String {
        match self {
            Self::All => "-".into(),
            Self::After => "1".into(),
            Self::Burst(n) => n.to_string(),
        }
    }
}

impl FromStr for Dispatch {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "all" => Ok(Self::All),
            "after" => Ok(Self::After),
            _ => match s.parse() {
                Ok(n @ 1..=4096) => Ok(Self::Burst(n)),
                _ => Err(format!(
                    "`{s}` is not a dispatch; write all, after, or packets of a burst (1 to 4096)"
                )),
            },
        }
    }
}

/// Placement of the packets in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Data {
    /// The same memory again and again: it stays in the cache.
    Same,
    /// Every operation has memory of its own, as far as 32 MiB go.
    Unique,
}

impl Data {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::Unique => "unique",
        }
    }
}

impl FromStr for Data {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "same" => Ok(Self::Same),
            "unique" => Ok(Self::Unique),
            _ => Err(format!("`{s}` is not a kind of data; write same or unique")),
        }
    }
}

/// When results are looked at, on the clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Check {
    /// Of each call, before the next.
    Inside,
    /// When all is done.
    After,
    /// Never.
    Never,
}

impl Check {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Inside => "inside",
            Self::After => "after",
            Self::Never => "never",
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Check {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "inside" => Ok(Self::Inside),
            "after" => Ok(Self::After),
            "never" => Ok(Self::Never),
            _ => Err(format!("`{s}` is not a time to check; write inside, after or never")),
        }
    }
}

/// Results of a measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Timed {
    /// Packets.
    pub(crate) operations: u64,
    /// Processor time of one, nanoseconds.
    pub(crate) ns: f64,
}

/// Packets of one size, ready to be sealed or opened.
pub(crate) struct Bench {
    #[allow(clippy::vec_box, reason = "keys that move leave copies behind")]
    keys: Vec<Box<EspKey>>,
    plain: Vec<u8>,
    sealed: Vec<u8>,
    buf: Vec<u8>,
    jobs: Vec<Job>,
    /// The order of keys among packets.
    seq: u64,
}

impl Bench {
    /// Packets with `size` bytes of text (a multiple of 16), in as much memory as `data`,
    /// `dispatch` and `operations` want; keys are taken in turns at random when there are several.
    pub(crate) fn new(
        suite: &EspSuite,
        engines: &Engines,
        size: u32,
        way: (Data, Dispatch),
        operations: u64,
        keys: u16,
    ) -> Result<Self, LabError> {
        let unsupported = || LabError::Measurement(format!("no engine has the suite {suite}"));
        let (encr_len, integ_len) = batch::keymat_lens(suite).ok_or_else(unsupported)?;
        let mut rng = Seeded::new(1);
        let mut material = |len: usize| {
            let mut bytes = vec![0; len];
            rng.fill(&mut bytes);
            bytes
        };
        let keys: Vec<Box<EspKey>> = (0..keys.max(1))
            .map(|n| {
                let (encr, integ) = (material(encr_len), material(integ_len));
                EspKey::with_engines(suite, &encr, &integ, &mut Seeded::new(u64::from(n)), engines)
            })
            .collect::<Option<_>>()
            .ok_or_else(unsupported)?;
        let packet = 8 + keys[0].iv_len() + size as usize + keys[0].icv_len();
        let packets = packets(packet, way, operations);
        // Any text does; a random one for 32 MiB would take longer than the measurement.
        let plain: Vec<u8> = (0..packets * packet).map(|i| (i ^ (i >> 8)) as u8).collect();
        let mut pick = [0; 2];
        let jobs: Vec<Job> = (0..packets)
            .map(|i| {
                rng.fill(&mut pick);
                let key = u16::from_le_bytes(pick) % u16::try_from(keys.len()).unwrap_or(u16::MAX);
                Job { start: (i * packet) as u32, len: packet as u32, seq: i as u64, key, ok: false }
            })
            .collect();
        let mut bench =
            Self { keys, buf: plain.clone(), sealed: Vec::new(), plain, jobs, seq: packets as u64 };
        bench.prove(suite)?;
        Ok(bench)
    }

    /// Seals all, sees that every text changed where the suite hides it, opens all, and sees the
    /// same text again.
    fn prove(&mut self, suite: &EspSuite) -> Result<(), LabError> {
        let wrong = |what: &str| Err(LabError::Measurement(format!("{suite}: the engine {what}")));
        let keys: Vec<&EspKey> = self.keys.iter().map(|key| &**key).collect();
        batch::seal(&mut self.buf, &mut self.jobs, &keys);
        if !self.jobs.iter().all(|j| j.ok) || self.buf == self.plain {
            return wrong("did not seal");
        }
        self.sealed = self.buf.clone();
        batch::open(&mut self.buf, &mut self.jobs, &keys);
        let (iv, icv) = (keys[0].iv_len(), keys[0].icv_len());
        let text = |j: &Job| j.start as usize + 8 + iv..(j.start + j.len) as usize - icv;
        if !self.jobs.iter().all(|j| j.ok && self.buf[text(j)] == self.plain[text(j)]) {
            return wrong("did not open what it sealed");
        }
        Ok(())
    }

    /// Does `operations`, or as many as `at_most` of processor time allows, in whole rounds over
    /// all packets.
    pub(crate) fn time(
        &mut self,
        work: Work,
        dispatch: Dispatch,
        check: Check,
        operations: u64,
        at_most: Duration,
    ) -> Result<Timed, LabError> {
        let keys: Vec<&EspKey> = self.keys.iter().map(|key| &**key).collect();
        let call = match work {
            Work::Seal => batch::seal,
            Work::Open => batch::open,
        };
        let burst = match dispatch {
            Dispatch::All => self.jobs.len(),
            Dispatch::After => 1,
            Dispatch::Burst(n) => n,
        };
        let inside = check == Check::Inside || dispatch == Dispatch::After;
        let (mut done, mut spent) = (0u64, Duration::ZERO);
        let cost = reading();
        loop {
            match work {
                // A number never comes twice with a key.
                Work::Seal => {
                    for job in &mut self.jobs {
                        (job.seq, job.ok) = (self.seq, false);
                        self.seq += 1;
                    }
                }
                Work::Open => {
                    self.buf.copy_from_slice(&self.sealed);
                    (0..).zip(&mut self.jobs).for_each(|(i, job)| (job.seq, job.ok) = (i, false));
                }
            }
            let mut good = true;
            let began = clock::of_this_thread();
            for some in self.jobs.chunks_mut(burst) {
                call(&mut self.buf, some, &keys);
                if inside {
                    good &= black_box(some.iter().all(|j| j.ok));
                }
            }
            if check == Check::After {
                good &= black_box(self.jobs.iter().all(|j| j.ok));
            }
            spent += (clock::of_this_thread() - began).saturating_sub(cost);
            if !good || !self.jobs.iter().all(|j| j.ok) {
                return Err(LabError::Measurement(
                    "an engine gave a wrong result in the middle of a run".into(),
                ));
            }
            done += self.jobs.len() as u64;
            interrupt::check()?;
            if done >= operations || spent >= at_most {
                return Ok(Timed { operations: done, ns: spent.as_nanos() as f64 / done as f64 });
            }
        }
    }
}

/// Bytes of a packet beside its text, and what the text is a multiple of.
pub(crate) fn layout(suite: &EspSuite) -> Result<(u32, u32), LabError> {
    let unsupported = || LabError::Measurement(format!("no engine has the suite {suite}"));
    let (encr, integ) = batch::keymat_lens(suite).ok_or_else(unsupported)?;
    let (encr, integ) = (vec![1; encr], vec![2; integ]);
    // Any key that 3DES does not refuse for being weak.
    let encr: Vec<u8> = (1..).zip(encr).map(|(i, b): (u8, u8)| i.wrapping_mul(37) ^ b).collect();
    let key = EspKey::new(suite, &encr, &integ, &mut Seeded::new(1)).ok_or_else(unsupported)?;
    Ok(((8 + key.iv_len() + key.icv_len()) as u32, key.block_len() as u32))
}

/// How many packets lie in memory.
fn packets(packet: usize, (data, dispatch): (Data, Dispatch), operations: u64) -> usize {
    let burst = match dispatch {
        Dispatch::Burst(n) => n,
        _ => 1,
    };
    let most = usize::try_from(operations).unwrap_or(usize::MAX).max(1);
    // All at once means memory for each, as far as it goes.
    let wanted = match (data, dispatch) {
        (Data::Unique, _) | (_, Dispatch::All) => LARGE / packet,
        (Data::Same, _) => CACHED / packet,
    };
    wanted.clamp(1, most).max(burst.min(LARGE / packet)).max(1)
}

/// Cost of reading the clock.
fn reading() -> Duration {
    let one = || {
        let began = clock::of_this_thread();
        clock::of_this_thread() - began
    };
    (0..16).map(|_| one()).min().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use ironswan_crypto::engines::EngineId;

    use super::super::suite;
    use super::*;

    #[test]
    fn memory_is_as_the_data_and_the_dispatch_want_it() {
        let count = |data, dispatch, ops| packets(1024, (data, dispatch), ops);
        assert_eq!(count(Data::Same, Dispatch::After, 50_000), 128);
        // A burst is never cut short by the cache.
        assert_eq!(count(Data::Same, Dispatch::Burst(200), 50_000), 200);
        assert_eq!(count(Data::Unique, Dispatch::Burst(64), 50_000), 32_768);
        assert_eq!(count(Data::Same, Dispatch::All, 50_000), 32_768);
        assert_eq!(count(Data::Unique, Dispatch::All, 100), 100);
    }

    #[test]
    fn every_way_of_handing_over_does_all_operations_and_takes_time() {
        let suite = suite::by_name("aes128gcm16").expect("a suite");
        for dispatch in [Dispatch::All, Dispatch::After, Dispatch::Burst(3)] {
            for data in [Data::Same, Data::Unique] {
                let engines = Engines::only(EngineId::AwsLc);
                let mut bench = Bench::new(&suite, &engines, 64, (data, dispatch), 20, 1).expect("a bench");
                for work in Work::BOTH {
                    for check in [Check::Inside, Check::After, Check::Never] {
                        let t = bench.time(work, dispatch, check, 50, Duration::from_secs(1)).expect("timed");
                        assert!(t.operations >= 50 && t.ns > 1.0, "{t:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn every_suite_says_what_it_adds_to_a_packet() {
        let of = |name: &str| layout(&suite::by_name(name).expect(name)).expect(name);
        assert_eq!(of("aes128gcm16"), (8 + 8 + 16, 4));
        assert_eq!(of("3des-sha1"), (8 + 8 + 12, 8));
        assert_eq!(of("aes128-sha256"), (8 + 16 + 16, 16));
        for name in suite::ALL {
            assert!(of(name).0 >= 8 + 12, "{name}");
        }
    }

    #[test]
    fn names_are_read_back() {
        assert_eq!("all".parse(), Ok(Dispatch::All));
        assert_eq!("16".parse(), Ok(Dispatch::Burst(16)));
        assert!("0".parse::<Dispatch>().is_err() && "soon".parse::<Dispatch>().is_err());
        assert!("old".parse::<Data>().is_err() && "often".parse::<Check>().is_err());
    }
}
