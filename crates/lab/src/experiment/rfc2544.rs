//! Experiment E6, `lab rfc2544`: throughput by frame size at bounded losses, latency below it and
//! the curve past it, gateway to gateway (RFC 2544 figure 3) or of one gateway alone (figure 2),
//! after Freescale's study of IPsec on its processors.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `work` | options become loads, and how long they take |
//! | `single` | measurements of one gateway alone |
//! | `beside` | latency below the throughput, and the curve past it |
//! | `limit` | what the tester carries without a gateway |
//! | `conclude` | figures and views, made of the samples |

mod beside;
mod conclude;
mod limit;
mod single;
mod work;

use std::time::Duration;

use super::alone::{self, Alone};
use super::bench::{Bench, Ready, ready};
use super::campaign::{About, Campaign, Common, Conclusion, Report};
use super::placement::{Placement, Spread};
use super::rig::{Bed, Rig};
use super::runner::{self, Method, Schedule};
use super::searched::{self, Load, Searched};
use super::throughput::{self, Care, Carrier, FrameSize, percent};
use super::traffic::{Traffic, TrafficOptions};
use super::trials;
use crate::error::LabError;
use crate::load::Direction;
use crate::load::frame::Shape;
use crate::measure::mlr::Found;
use crate::record::{Better, Factors, Record, factors};
use crate::report::{RunFolder, Warning};
use crate::topology::{Mode, Owner};

pub use single::Setup;

/// Options of the experiment. Empty lists: the experiment's own choice.
#[derive(Debug, Clone, Default)]
pub struct Rfc2544Options {
    /// Options that all experiments have; `duration` is the length of a full trial.
    pub common: Common,
    /// The gateways that are measured, and the box that measures them.
    pub setup: Setup,
    /// Frame sizes.
    pub sizes: Vec<FrameSize>,
    /// Directions; of one gateway, forward is encrypting and reverse decrypting.
    pub directions: Vec<Direction>,
    /// Flows of the traffic, by source port and address.
    pub flows: Option<u32>,
    /// Largest shares of loss.
    pub losses: Vec<f64>,
    /// Share by which a throughput may be off.
    pub width: Option<f64>,
    /// Captures, IPv6, bursts, threads and sockets.
    pub traffic: TrafficOptions,
    /// As RFC 2544 has it: no bad trial is forgiven, and one trial (of 60 s unless `duration` says
    /// otherwise) decides.
    pub strict: bool,
}

pub(super) const ABOUT: About = About {
    name: "rfc2544",
    number: "E6",
    question: "How many packets of each size does each gateway carry without loss, or with little, and what happens below and \
               above that?",
    measures: &MEASURES,
    baseline: Some(("dut", PLAIN)),
};

/// The system that the others are compared with.
const PLAIN: &str = "plain";

static MEASURES: [(&str, &str, &str, &str, Better); 17] = [
    ("kpps", "kpps", "1000 packets/s", "packets that arrived, both ways together", Better::More),
    ("inner_gbps", "inner Gb/s", "Gb/s", "the IP packets inside the tunnel", Better::More),
    (
        "outer_gbps",
        "outer Gb/s",
        "Gb/s",
        "frames on the outer link with their FCS, as the kernel counts them",
        Better::Neither,
    ),
    ("loss", "loss", "share", "of the intended packets, in the worse direction", Better::Less),
    ("busy", "busy", "share", "of the machine's capacity", Better::Less),
    ("machine_ns", "machine ns/p", "ns", "non-idle time of the machine for each packet", Better::Less),
    ("gateways_ns", "gateways ns/p", "ns", "time of the gateways' processes for each packet", Better::Less),
    (
        "bound_kpps",
        "up to kpps",
        "1000 packets/s",
        "each way: the lowest rate known to lose too much",
        Better::Neither,
    ),
    ("of_peak", "of peak", "share", "of the most that arrived in any trial", Better::More),
    (
        "p50_us",
        "50 % us",
        "us",
        "latency that half of the packets did not exceed (of the worse direction)",
        Better::Less,
    ),
    ("p90_us", "90 %", "us", "that of 90 of 100", Better::Less),
    ("p99_us", "99 %", "us", "that of 99 of 100", Better::Less),
    ("p999_us", "99.9 %", "us", "that of 999 of 1000", Better::Less),
    ("max_us", "max", "us", "the largest", Better::Less),
    ("sent_kpps", "sent kpps", "1000 packets/s", "packets that the tester gave to its link", Better::Neither),
    alone::MEASURES[0],
    alone::MEASURES[1],
];

const SIZES: [&str; 11] = ["64", "128", "256", "390", "512", "1024", "1280", "1424", "1456", "1518", "imix"];
/// Losses of Freescale's study, and one of today's.
pub(super) const LOSSES: [f64; 3] = [0.0, 0.000_01, 0.001];
/// Shares of the throughput at which latency is measured.
const LOADS: [(f64, &str); 3] = [(0.1, "10%"), (0.5, "50%"), (0.9, "90%")];
/// Multiples of the throughput that are offered, and those of the shortest run.
const MULTIPLES: [(f64, &str); 3] = [(1.0, "1"), (1.5, "1.5"), (2.0, "2")];
const FEW_MULTIPLES: [(f64, &str); 2] = [(1.0, "1"), (2.0, "2")];

/// For how long the tester's own limit is measured, at each size.
const OWN_LIMIT: Duration = Duration::from_millis(40);

/// A load: size of the frames, direction, and the packets in the frames.
type Cell = (FrameSize, Direction, Shape);

/// The measurements of a run, worked off one after the other.
struct Work {
    setup: Setup,
    /// Shares of the throughput at which latency is measured.
    loads: &'static [(f64, &'static str)],
    /// Multiples of it that are offered.
    multiples: &'static [(f64, &'static str)],
    /// Most trials of the tester's own search.
    alone: u32,
    cells: Vec<Cell>,
    care: Care,
    latency: Duration,
    curve: Duration,
    /// How often latency and curve are measured at most: again where they lowered a throughput.
    passes: u32,
    repeats: u32,
    traffic: Traffic,
}

/// Makes the experiment.
pub fn rfc2544(options: Rfc2544Options) -> Result<Report, LabError> {
    let mut work = Work::new(&options)?;
    let lacks = work.traffic.lacks();
    if !lacks.is_empty() {
        return Err(LabError::Unfit(lacks));
    }
    let setup = options.setup;
    let names = match (options.common.duts.as_slice(), setup) {
        // A short run has no time for more where there are two directions.
        ([], Setup::Single) if options.common.quick || options.common.smoke => vec!["ironswan".into()],
        ([], _) => vec![PLAIN.into(), "ironswan".into()],
        (names, _) => names.to_vec(),
    };
    let Ready { duts, mut doubts } = ready(&names, &options.common)?;
    let (duts, left_out) = setup.able(duts);
    if duts.is_empty() {
        let why: Vec<String> = left_out.iter().map(Warning::text).collect();
        return Err(LabError::Usage(format!("nothing to measure: {}", why.join("; "))));
    }
    doubts.extend(left_out);
    let compared = duts.len() > 1 && duts.iter().any(|dut| dut.name() == PLAIN);
    work.alone = alone::most_trials(&options.common, compared);
    if !options.strict {
        work.fit(&options.common, duts.len() as u32);
    }
    let schedule = Schedule {
        about: if setup == Setup::Single { single::SINGLE } else { ABOUT },
        common: &options.common,
        cells: work.cells.clone(),
        repeats: work.repeats,
        samples: work.cells.len() * work.repeats as usize * duts.len(),
        guess: work.care.guess() + work.latency * 3 + work.curve * 3 + Duration::from_secs(2),
    };
    runner::run(schedule, &Systems { work, ready: Ready { duts, doubts } })
}

/// The experiment under way.
struct Systems {
    work: Work,
    ready: Ready,
}

impl Method for Systems {
    type Cell = Cell;
    type Bench = Bench;

    fn prepare(&self, c: &mut Campaign) -> Result<Bench, LabError> {
        let Self { work, ready } = self;
        work.care.describe(c);
        ready.introduce(c, work.settings());
        let placement = Placement::new(Spread::Free, crate::measure::cpus()).map_err(LabError::Usage)?;
        let mut bench = Bench::new(Owner::claim()?);
        let inner_mtu = work.traffic.inner_mtu;
        for dut in &ready.duts {
            c.says(&format!("starting {}", dut.name()))?;
            let rig = match work.setup {
                Setup::Line => {
                    let bed = Bed { family: work.traffic.family, ..Bed::usual(Mode::Wire, inner_mtu) };
                    Rig::start_on(&bench.owner, dut.as_ref(), bed, &placement)?
                }
                Setup::Single => Rig::start_single(&bench.owner, dut.as_ref(), inner_mtu, &placement)?,
            };
            bench.add(c, rig)?;
        }
        c.says(&format!("starting {}", alone::NAME))?;
        bench.alone = Some(Alone::start(&bench.owner, Mode::Wire, inner_mtu, &placement, work.alone)?);
        if work.setup == Setup::Single {
            for (size, shape) in work.sizes() {
                single::own_limits(c, &ready.duts, size, shape, OWN_LIMIT)?;
            }
        }
        Ok(bench)
    }

    fn trial(&self, c: &mut Campaign, bench: &mut Bench, cell: &Cell, repeat: u32) -> Result<(), LabError> {
        self.work.cell(c, bench, *cell, repeat)
    }

    fn end(&self, c: &mut Campaign, bench: Bench) -> Result<(), LabError> {
        bench.stop(c)
    }

    fn judge(record: &Record) -> Conclusion {
        conclude::conclude(record)
    }
}

/// Warns when the trials that decided had so few packets that fewer than ten might have been lost:
/// such a share says little.
fn few_packets(found: &Found) -> Option<Warning> {
    let packets = (found.bounds.lower? * found.goal.duration_sum) as u64;
    let few = packets > 0 && found.goal.loss_ratio > 0.0 && packets as f64 * found.goal.loss_ratio < 10.0;
    few.then_some(Warning::FewPackets { packets })
}

impl Work {
    /// All systems under one load.
    fn cell(
        &self,
        c: &mut Campaign,
        bench: &mut Bench,
        (size, direction, shape): Cell,
        repeat: u32,
    ) -> Result<(), LabError> {
        let setup = self.setup;
        let named = setup.direction(direction);
        let cell = format!("{size} B, {named}");
        let began = c.elapsed();
        bench.send_so(self.traffic.manner(size));
        let mut all: Vec<&mut dyn Carrier> = Vec::new();
        all.extend(bench.alone.as_mut().map(|alone| alone as &mut dyn Carrier));
        all.extend(bench.rigs.iter_mut().map(|rig| rig as &mut dyn Carrier));
        let load = Load { shape, direction, cell: &cell };
        let mut searched = searched::search(c, &mut all, load, &self.care)?;
        let tester = bench.alone.is_some().then(|| searched.remove(0));
        let beside = self.beside(c, &mut bench.rigs, load, &mut searched)?;
        let rigs = &bench.rigs;
        for (rig, s) in rigs.iter().zip(&searched).filter(|(_, s)| s.repeated > 0) {
            let n = s.repeated;
            c.settings
                .insert(format!("repeated, {}, {cell}", rig.name()), format!("{n} trials of the search"));
        }
        let of = |dut: &str, part: &str, more: &[(&str, &str)]| -> Factors {
            let mut all =
                factors([("part", part), ("size", &size.to_string()), ("direction", &named), ("dut", dut)]);
            all.extend(setup.factors());
            all.extend(more.iter().map(|(k, v)| ((*k).to_string(), (*v).to_string())));
            all
        };
        let file = |dut: &str| trials::file(&[&size.to_string(), &named, dut], repeat);
        let files = |dut: &str| vec![RunFolder::raw(&file(dut))];
        if let Some(tester) = &tester {
            self.tester(c, tester, shape, (&size.to_string(), &named), (repeat, began))?;
        }
        for (rig, s) in rigs.iter().zip(&searched) {
            let dut = rig.name();
            let withheld = alone::doubt(tester.as_ref(), s, dut, &cell).filter(|_| dut == PLAIN);
            withheld.into_iter().for_each(|d| c.doubt(d));
            s.doubts(dut, &cell).into_iter().for_each(|d| c.doubt(d));
            s.trials.impossible(dut, &cell).into_iter().for_each(|d| c.doubt(d));
            c.keep(&file(dut), s.trials.csv().as_bytes())?;
            let of = |goal: &str| of(dut, "throughput", &[("loss", goal)]);
            self.throughput(c, (s, tester.as_ref()), &shape, of, (repeat, began, files(dut)));
        }
        for (rig, beside) in rigs.iter().zip(&beside) {
            for t in &beside.latency {
                let mut measures = throughput::latencies(&t.passed);
                measures.extend([("kpps", t.passed.forwarded_pps() / 1e3), ("loss", t.passed.loss())]);
                let of = of(rig.name(), "latency", &[("load", t.name)]);
                c.sample(of, repeat, t.began, &measures, files(rig.name()));
            }
        }
        for ((rig, s), beside) in rigs.iter().zip(&searched).zip(&beside) {
            let (dut, peak) = (rig.name(), s.peak_pps(beside));
            let curve = beside.curve.iter().map(|t| (t.name, t.began, &t.passed));
            for (name, began, passed) in curve.chain([("flood", began, &s.flood)]) {
                let mut measures = setup.measures(&shape, passed);
                measures.push(("of_peak", passed.forwarded_pps() / peak.max(1.0)));
                c.sample(of(dut, "curve", &[("offered", name)]), repeat, began, &measures, files(dut));
            }
        }
        Ok(())
    }

    /// Takes down the throughput for each goal.
    fn throughput(
        &self,
        c: &mut Campaign,
        (s, tester): (&Searched, Option<&Searched>),
        shape: &Shape,
        of: impl Fn(&str) -> Factors,
        (repeat, began, files): (u32, f64, Vec<String>),
    ) {
        for (nth, (f, at)) in s.found.iter().zip(&s.at).enumerate() {
            let loss = f.goal.loss_ratio;
            let trials: Vec<_> = at.iter().map(|p| self.setup.measures(shape, p)).collect();
            let mut measures = throughput::medians(&trials);
            if let Some(pps) = f.conditional_throughput {
                let all = pps * s.flood.ways.len() as f64;
                // The result of the search; the trials at its rate show what belongs to a packet.
                let kpps = measures.iter().find(|(name, _)| *name == "kpps");
                let shown = kpps.map_or(f64::INFINITY, |(_, kpps)| kpps * 1e3);
                for (_, value) in measures.iter_mut().filter(|(name, _)| *name == "outer_gbps") {
                    *value *= all / shown;
                }
                measures.retain(|(name, _)| !["kpps", "inner_gbps"].contains(name));
                measures.extend([("kpps", all / 1e3), ("inner_gbps", throughput::inner_gbps(shape, all))]);
            }
            measures.extend(s.confirmed(nth));
            measures.extend(f.bounds.upper.map(|u| ("bound_kpps", u / 1e3)));
            measures.extend(alone::measures(tester, s, nth));
            few_packets(f).into_iter().for_each(|d| c.doubt(d));
            c.sample(of(&percent(loss)), repeat, began, &measures, files.clone());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::budget;
    use super::*;

    #[test]
    fn short_runs_are_short() {
        for (quick, time) in [(true, budget::QUICK), (false, budget::SMOKE)] {
            let common = Common { quick, smoke: !quick, ..Common::default() };
            let options = Rfc2544Options { common: common.clone(), ..Rfc2544Options::default() };
            let mut work = Work::new(&options).expect("work");
            work.fit(&common, 2);
            let trial = Duration::from_secs_f64(work.care.last);
            let searches =
                budget::trials(&[trial]) * (work.care.trials + work.care.later) * 2 * work.cells.len() as u32;
            assert!(work.others(2) + searches <= time, "{:?} + {searches:?}", work.others(2));
        }
    }

    #[test]
    fn a_small_loss_of_few_packets_is_a_doubt() {
        let kind = |loss_ratio, lower| {
            let goal =
                crate::measure::mlr::Goal { loss_ratio, ..crate::measure::mlr::Goal::rfc2544(2.0, 0.05) };
            let bounds = crate::measure::mlr::Bounds { lower, upper: None };
            few_packets(&Found { goal, bounds, conditional_throughput: lower, complete: true })
                .map(|w| w.kind())
        };
        // Of a million packets ten may be lost, of fewer not even that; where none may, the first
        // tells.
        assert_eq!(
            (kind(0.000_01, Some(500_000.0)), kind(0.0, Some(10.0)), kind(0.001, None)),
            (None, None, None)
        );
        assert_eq!(kind(0.000_01, Some(499_000.0)), Some("few-packets"));
    }

    #[test]
    fn strict_is_rfc_2544_and_every_smaller_run_is_shorter() {
        let common = |quick, smoke| Common { quick, smoke, ..Common::default() };
        let guess = |c: &Common| Care::of(c, LOSSES.to_vec()).guess();
        let (full, quick, smoke) = (common(false, false), common(true, false), common(false, true));
        assert!(guess(&full) > guess(&quick) && guess(&quick) > guess(&smoke));
        let strict = Care::of(&full, vec![0.0]).strict(60.0);
        assert_eq!(
            (strict.exceed, strict.initial, strict.last, strict.sum, strict.coarse),
            (0.0, 60.0, 60.0, 60.0, 0)
        );
    }
}
