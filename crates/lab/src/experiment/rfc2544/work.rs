//! From the options of a run to its loads, what it says of them, and how long they take.

use std::time::Duration;

use super::{FEW_MULTIPLES, LOADS, LOSSES, MULTIPLES, OWN_LIMIT, Rfc2544Options, SIZES, Setup, Work};
use crate::error::LabError;
use crate::experiment::alone;
use crate::experiment::budget;
use crate::experiment::campaign::Common;
use crate::experiment::throughput::{self, Care, FRAMING, FrameSize};
use crate::experiment::traffic::{Traffic, Wanted};
use crate::load::frame::Shape;
use crate::load::{Direction, SendBy};
use crate::topology::Mode;

impl Work {
    pub(super) fn new(o: &Rfc2544Options) -> Result<Self, LabError> {
        let common = &o.common;
        o.check()?;
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
        let mut care = Care::of(common, losses);
        care.width = o.width.unwrap_or(care.width);
        if !(0.001..0.5).contains(&care.width) {
            return Err(LabError::Usage("the width must be between 0.1 and 50 percent".into()));
        }
        if o.strict {
            care = care.strict(common.duration.map_or(60.0, |d| d.as_secs_f64()));
        }
        let usual: &[&str] = common.by_care(&SIZES, &["64", "1424"], &["512"]);
        let wanted = Wanted { sizes: &o.sizes, usual, flows: o.flows };
        // Every link carries the largest frame whole.
        let inner_mtu = |largest: u32| largest.max(throughput::LARGEST) - FRAMING;
        let traffic = Traffic::of(&o.traffic, wanted, inner_mtu)?;
        let sizes = || traffic.sizes.iter();
        let cells = directions.iter().flat_map(|way| sizes().map(|(size, shape)| (*size, *way, *shape)));
        let cells = cells.collect();
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
            traffic,
        })
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
            ("frames", "with FCS, as in RFC 2544; the inner packet is 18 bytes smaller".to_string()),
            ("IMIX", "7 x 64, 4 x 570, 1 x 1518 bytes, those of a size in a row".into()),
            (
                "inner MTU",
                format!("{}; the outer link's is larger: nothing is fragmented", self.traffic.inner_mtu),
            ),
            ("mode", Mode::Wire.to_string()),
            ("latency trial", format!("{} s", self.latency.as_secs_f64())),
        ];
        all.extend(self.traffic.settings());
        all
    }
}

impl Rfc2544Options {
    /// Options that make no sense for one gateway alone.
    fn check(&self) -> Result<(), LabError> {
        let tester = "the tester of one gateway alone (--topology single)";
        let traffic = &self.traffic;
        let wrong = match self.setup {
            Setup::Single if traffic.ipv6 => format!("--ipv6: {tester} speaks IPv4 inside"),
            Setup::Single if traffic.threads.is_some_and(|n| n > 1) => {
                format!("--threads: {tester} seals the packets of an SA in their order, with one thread")
            }
            Setup::Single if traffic.generator == SendBy::Xdp => format!(
                "--generator af_xdp: {tester} has the link cut and finish what it seals, which AF_XDP does not"
            ),
            _ => return Ok(()),
        };
        Err(LabError::Usage(format!("{wrong}; leave one of them out")))
    }
}
