//! From the options of a run to its loads, what it says of them, and how long they take.

use std::time::Duration;

use super::{FEW_MULTIPLES, LOADS, LOSSES, MULTIPLES, OWN_LIMIT, Rfc2544Options, SIZES, Setup, Work};
use crate::error::LabError;
use crate::experiment::alone;
use crate::experiment::budget;
use crate::experiment::campaign::Common;
use crate::experiment::own_traffic;
use crate::experiment::throughput::{self, Care, FRAMING, FrameSize};
use crate::load::Direction;
use crate::load::capture::Pace;
use crate::load::frame::{Family, Shape};
use crate::topology::Mode;

/// Most packets of a burst: more than queues on the way have room for.
pub(crate) const MOST_AT_ONCE: u32 = 10_000;

/// Most threads that send one way.
const MOST_THREADS: u32 = 64;

/// A usual size, or the smallest over that version of IP where that is larger.
fn at_least(size: FrameSize, family: Family) -> FrameSize {
    match size {
        FrameSize::Bytes(n) => FrameSize::Bytes(n.max(throughput::smallest(family))),
        other => other,
    }
}

impl Work {
    pub(super) fn new(o: &Rfc2544Options) -> Result<Self, LabError> {
        let common = &o.common;
        let family = if o.ipv6 { Family::V6 } else { Family::V4 };
        Self::check(o, family)?;
        let mut sizes: Vec<FrameSize> = match (o.sizes.is_empty(), &o.mix) {
            (false, _) => o.sizes.clone(),
            (true, Some(_)) => vec![],
            (true, None) => {
                let names: &[&str] = common.by_care(&SIZES, &["64", "1424"], &["512"]);
                let usual = names.iter().map(|s| s.parse().map(|size| at_least(size, family)));
                usual.collect::<Result<_, String>>().map_err(LabError::Usage)?
            }
        };
        let one = vec![Direction::Forward];
        let directions = match (o.directions.as_slice(), o.setup) {
            ([], Setup::Line) => common.by_care(vec![Direction::Forward, Direction::Both], one.clone(), one),
            ([], Setup::Single) => vec![Direction::Forward, Direction::Reverse],
            (named, _) => named.to_vec(),
        };
        let mut losses = if o.losses.is_empty() { LOSSES.to_vec() } else { o.losses.clone() };
        // Strictest first, whatever the order on the command line: latency is measured below the
        // first one's throughput.
        losses.sort_by(f64::total_cmp);
        losses.dedup();
        if losses.iter().any(|l| !(0.0..0.5).contains(l)) {
            return Err(LabError::Usage("a loss must be at least 0 and below 50 percent".into()));
        }
        // Each thread has flows of its own, as many as any other.
        let threads = o.threads.unwrap_or(1);
        let flows = o.flows.unwrap_or(64).next_multiple_of(threads.max(1));
        if !(1..=1_000_000).contains(&flows) {
            return Err(LabError::Usage("the number of flows must be between 1 and 1,000,000".into()));
        }
        let mut care = Care::of(common, losses);
        care.width = o.width.unwrap_or(care.width);
        if !(0.001..0.5).contains(&care.width) {
            return Err(LabError::Usage("the width must be between 0.1 and 50 percent".into()));
        }
        if o.strict {
            care = care.strict(common.duration.map_or(60.0, |d| d.as_secs_f64()));
        }
        // Every link carries the largest frame whole.
        let largest =
            sizes.iter().filter_map(|size| if let FrameSize::Bytes(n) = size { Some(*n) } else { None });
        let inner_mtu = largest.max().unwrap_or(0).max(throughput::LARGEST) - FRAMING;
        let own = o.mix.as_ref().map(|path| own_traffic::read(path, family, inner_mtu)).transpose()?;
        sizes.extend(own.as_ref().map(|own| own.size));
        let shape = |size: &FrameSize| {
            size.shape_of(family, inner_mtu, flows).ok_or_else(|| {
                let least = throughput::smallest(family);
                LabError::Usage(format!("frames of {size} bytes do not fit: write {least} or more"))
            })
        };
        let mut cells = Vec::new();
        for &direction in &directions {
            for size in &sizes {
                cells.push((*size, direction, shape(size)?));
            }
        }
        let ms = Duration::from_millis;
        Ok(Self {
            setup: o.setup,
            loads: common.by_care(&LOADS[..], &LOADS[..], &LOADS[..1]),
            multiples: common.by_care(&MULTIPLES[..], &MULTIPLES[..], &FEW_MULTIPLES[..]),
            alone: alone::most_trials(common, false),
            cells,
            care,
            latency: common.by_care(ms(3000), ms(500), ms(100)),
            curve: common.by_care(ms(1500), ms(400), ms(100)),
            passes: common.by_care(2, 1, 1),
            repeats: common.repeats.unwrap_or(1),
            inner_mtu,
            family,
            pace: o.burst.map_or(Pace::Even, Pace::Bursts),
            own,
            threads,
        })
    }

    /// Options that make no sense together.
    fn check(o: &Rfc2544Options, family: Family) -> Result<(), LabError> {
        let wrong = |why: &str| Err(LabError::Usage(why.into()));
        if family == Family::V6 && o.setup == Setup::Single {
            return wrong(
                "--ipv6: the tester of one gateway alone (--topology single) speaks IPv4 inside; leave one of them out",
            );
        }
        if o.mix.is_some() && o.burst.is_some() {
            return wrong("--burst: packets of --mix come as they were captured; leave one of them out");
        }
        let several = o.threads.is_some_and(|n| n > 1);
        if several && o.setup == Setup::Single {
            return wrong(
                "--threads: the tester of one gateway alone (--topology single) seals the packets of an SA in their order, with one thread; leave one of them out",
            );
        }
        if several && o.mix.is_some() {
            return wrong(
                "--threads: packets of --mix have the order of the capture, which one thread keeps; leave one of them out",
            );
        }
        if o.threads.is_some_and(|n| !(1..=MOST_THREADS).contains(&n)) {
            return Err(LabError::Usage(format!("--threads: it is a number from 1 to {MOST_THREADS}")));
        }
        if o.mix.is_some() && o.flows.is_some() && o.sizes.is_empty() {
            return wrong("--flows: packets of --mix have the flows of the capture; leave it out");
        }
        if o.burst.is_some_and(|n| !(1..=MOST_AT_ONCE).contains(&n)) {
            return Err(LabError::Usage(format!("--burst: it is a number from 1 to {MOST_AT_ONCE}")));
        }
        Ok(())
    }

    /// So few trials that a short run keeps to its time with so many systems.
    pub(super) fn fit(&mut self, common: &Common, systems: u32) {
        let searches = systems * self.cells.len() as u32 * self.repeats;
        self.care = budget::least(common, &self.care, self.others(systems), searches);
    }

    /// About what all but the searches takes: each system is started, flooded, and has its latency
    /// and its curve measured.
    pub(super) fn others(&self, systems: u32) -> Duration {
        let flood = Duration::from_secs_f64(self.care.last);
        let mut lengths = vec![flood];
        lengths.extend(self.loads.iter().map(|_| self.latency));
        lengths.extend(self.multiples.iter().map(|_| self.curve));
        let cell = budget::trials(&lengths);
        let own = match self.setup {
            Setup::Line => Duration::ZERO,
            Setup::Single => OWN_LIMIT * self.sizes().len() as u32,
        };
        let searched = vec![flood; 1 + alone::in_all(self.alone.min(alone::QUICK_TRIALS)) as usize];
        let alone = Duration::from_millis(200) + budget::trials(&searched) * self.cells.len() as u32;
        (Duration::from_millis(900) + own + cell * self.cells.len() as u32 * self.repeats) * systems + alone
    }

    /// The sizes, each once.
    pub(super) fn sizes(&self) -> Vec<(FrameSize, Shape)> {
        let first = self.cells.first().map(|(_, direction, _)| *direction);
        let of_first = self.cells.iter().filter(|(_, direction, _)| Some(*direction) == first);
        of_first.map(|(size, _, shape)| (*size, *shape)).collect()
    }

    /// The settings of the run, for the record.
    pub(super) fn settings(&self) -> Vec<(&'static str, String)> {
        let mut all = vec![
            ("topology", self.setup.to_string()),
            ("IP inside", if self.family == Family::V6 { "IPv6" } else { "IPv4" }.to_string()),
            ("frames", "with FCS, as in RFC 2544; the inner packet is 18 bytes smaller".to_string()),
            ("IMIX", "7 x 64, 4 x 570, 1 x 1518 bytes, those of a size in a row".into()),
            ("inner MTU", format!("{}; the outer link's is larger: nothing is fragmented", self.inner_mtu)),
            ("mode", Mode::Wire.to_string()),
            ("flows", self.cells.first().map_or(0, |(.., s)| s.flows).to_string()),
            ("latency trial", format!("{} s", self.latency.as_secs_f64())),
        ];
        all.extend(match self.pace {
            Pace::Bursts(packets) => Some(("bursts", format!("{packets} packets at once, evenly spaced"))),
            _ => None,
        });
        if self.threads > 1 {
            let threads = format!(
                "{0} that send and {0} that receive each way, each with flows of its own",
                self.threads
            );
            all.push(("threads", threads));
        }
        all.extend(self.own.as_ref().map(|own| ("mix", own.said.clone())));
        all
    }
}
