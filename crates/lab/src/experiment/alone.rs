//! The tester alone: generator and receiver of the trials with packets on one link, with no gateway
//! between them. What it carries there is the most that any system can be seen to carry, and a
//! baseline that comes close to it is the tester's figure, not the device's.
//!
//! ```text
//!   a ---- b       every other trial:   a ---- gateway ==== gateway ---- b
//! ```
//! It is searched as the systems are, in the same rounds: whatever else the machine does meets it
//! too.

use std::time::{Duration, Instant};

use super::campaign::Common;
use super::passed::{Cost, Passed, Time};
use super::placement::Placement;
use super::rig::{self, PORT};
use super::searched::Searched;
use super::throughput::{Carrier, percent};
use super::traffic::Manner;
use super::ways::{Way, lanes, send};
use crate::clock;
use crate::error::LabError;
use crate::load::frame::{Family, Route, Shape};
use crate::load::{self, Direction, Offer, Receiver};
use crate::measure;
use crate::record::{Better, TESTER_KPPS, TESTER_LIMITED};
use crate::report::Warning;
use crate::topology::{DIRECT_DEVICE, Direct, Mode, Owner, address};

/// Its name where systems are named.
pub(super) const NAME: &str = "the tester alone";
/// Measures of a throughput that say whether it is the tester's own.
pub(super) const MEASURES: [(&str, &str, &str, &str, Better); 2] = [
    (
        TESTER_KPPS,
        "tester kpps",
        "1000 packets/s",
        "what the tester carries alone under the same load and for the same loss, without a gateway",
        Better::Neither,
    ),
    (
        TESTER_LIMITED,
        "by the tester",
        "1",
        "1 where the tester set the limit of the throughput, 0 where the system did",
        Better::Neither,
    ),
];
/// A baseline that carries this share of what the tester carries alone is limited by the tester.
const NEAR: f64 = 0.9;
/// Most trials of its search in a run of a minute.
pub(super) const QUICK_TRIALS: u32 = 6;
/// Most later trials of it in such a run.
pub(super) const QUICK_LATER: u32 = 2;
/// The first packets are not measured.
const WARM_UP: Offer = Offer { rate: Some(1000.0), packets: 20, at_most: Duration::from_millis(50) };

/// The tester at work on a link of its own.
pub(super) struct Alone {
    pair: Direct,
    placement: Placement,
    there: Route,
    back: Route,
    trials: u32,
    most_trials: u32,
    /// How packets of a trial are sent and received.
    pub(super) manner: Manner,
}

/// Most trials of the search of the tester alone: as many as of a system's in a long run, few in a
/// short one in which a ratio depends on it, else none: then it is flooded, and that is all.
pub(super) fn most_trials(common: &Common, compared: bool) -> u32 {
    common.by_care(u32::MAX, if compared { QUICK_TRIALS } else { 0 }, 0)
}

/// Trials of a search of so many and the later ones, in a run of a minute.
pub(super) fn in_all(trials: u32) -> u32 {
    trials + trials.min(QUICK_LATER)
}

impl Alone {
    /// Builds the link, for packets of up to `mtu` bytes, and sends the first packets over it.
    pub(super) fn start(
        owner: &Owner,
        mode: Mode,
        mtu: u32,
        placement: &Placement,
        most_trials: u32,
    ) -> Result<Self, LabError> {
        let pair = Direct::build(owner, mode, mtu)?;
        placement.steer(&pair)?;
        let ethernet = |node| rig::ethernet(pair.journal(), node, DIRECT_DEVICE);
        let there = load::route(ethernet(pair.b())?, address::B, PORT)?;
        let back = load::route(ethernet(pair.a())?, address::A, PORT)?;
        let (placement, manner) = (placement.clone(), Manner::default());
        let mut alone = Self { pair, placement, there, back, trials: 0, most_trials, manner };
        let shape = Shape { payload: 64, mix: None, flows: 1, family: Family::V4, tag: 0 };
        let passed = alone.pass(shape, WARM_UP, Direction::Both)?;
        if passed.ways.iter().any(|(_, counted)| counted.arrived() == 0) {
            return Err(LabError::Measurement(format!("{NAME} carries nothing over a link of its own")));
        }
        Ok(alone)
    }

    /// The commands that built its link.
    pub(super) fn commands(&self) -> Vec<String> {
        self.pair.journal().lines()
    }

    /// Source and receiver of each of these directions, the first trial of which has that number.
    fn ways(
        &self,
        shape: Shape,
        directions: &[Direction],
        epoch: Instant,
        first: u32,
    ) -> Result<Vec<Way<'_>>, LabError> {
        let (a, b) = (self.pair.a(), self.pair.b());
        let way = |(direction, trial): (&Direction, u32)| {
            let shape = Shape { tag: self.pair.number() << 16 | trial, ..shape };
            let (from, to, route) = match direction {
                Direction::Reverse => (b, a, self.back),
                _ => (a, b, self.there),
            };
            let cpus = self.placement.receiver();
            let receiver = Receiver::start_many(to, (PORT, self.manner.threads), shape, epoch, cpus)?;
            let frames = lanes(shape, route, self.manner.threads);
            Way::open((from, DIRECT_DEVICE), frames, self.manner.by, receiver)
        };
        directions.iter().zip(first..).map(way).collect()
    }
}

impl Carrier for Alone {
    fn name(&self) -> &str {
        NAME
    }

    fn pass(&mut self, shape: Shape, offer: Offer, direction: Direction) -> Result<Passed, LabError> {
        let directions = match direction {
            Direction::Both => vec![Direction::Forward, Direction::Reverse],
            one => vec![one],
        };
        let first = self.trials + 1;
        self.trials += directions.len() as u32;
        let epoch = clock::now();
        let mut ways = self.ways(shape, &directions, epoch, first)?;
        let (before, start) = (rig::cpu()?, clock::now());
        let sent = send(&mut ways, (offer, self.manner.pace), epoch, self.placement.generator())?;
        let (cpu, seconds) = (rig::cpu()?.since(&before), (clock::now() - start).as_secs_f64());
        let counted = ways.into_iter().map(|way| way.receiver.finish());
        let ways = sent.into_iter().zip(counted).collect();
        let hertz = rustix::param::clock_ticks_per_second() as f64;
        let capacity = (measure::cpus() as f64 * seconds).max(1e-9);
        let busy_seconds = cpu.busy_seconds(capacity, hertz);
        Ok(Passed {
            ways,
            account: None,
            engines: Vec::new(),
            cost: Cost { busy_share: busy_seconds / capacity, ..Cost::default() },
            busy_seconds,
            time: Time {
                machine: capacity,
                idle: (cpu.idle + cpu.iowait) as f64 / hertz,
                stolen: cpu.steal as f64 / hertz,
            },
            stopped: 0.0,
            outer: (0, 0),
        })
    }

    fn most_trials(&self) -> u32 {
        self.most_trials
    }

    fn most_later(&self) -> u32 {
        if self.most_trials == u32::MAX { u32::MAX } else { self.most_trials.min(QUICK_LATER) }
    }
}

/// What the tester carried alone for a goal, packets a second, all ways together.
pub(super) fn carried(tester: &Searched, goal: usize) -> Option<f64> {
    let pps = tester.found.get(goal)?.conditional_throughput?;
    Some(pps * tester.flood.ways.len() as f64)
}

/// The measures of a system's throughput for a goal that say whether it is the tester's own.
pub(super) fn measures(tester: Option<&Searched>, s: &Searched, goal: usize) -> Vec<(&'static str, f64)> {
    let alone = tester.and_then(|t| carried(t, goal));
    compared(alone, carried(s, goal), s.limited.get(goal).copied().unwrap_or(false))
}

/// The same of a throughput, and of what the tester carries alone for as little loss, packets a
/// second; `limited` where the system's own trials say that the tester set the limit.
pub(super) fn compared(alone: Option<f64>, own: Option<f64>, limited: bool) -> Vec<(&'static str, f64)> {
    let near = own.zip(alone).is_some_and(|(own, alone)| own >= alone * NEAR);
    let known = own.map(|_| (TESTER_LIMITED, f64::from(u8::from(near || limited))));
    alone.map(|pps| (TESTER_KPPS, pps / 1e3)).into_iter().chain(known).collect()
}

/// Whether these measures say that the tester set the limit.
pub(super) fn is_limited(measures: &[(&'static str, f64)]) -> bool {
    measures.iter().any(|(name, value)| *name == TESTER_LIMITED && *value > 0.0)
}

/// Says for which losses a baseline is withheld from comparison, of those for which it was found.
pub(super) fn doubt(tester: Option<&Searched>, s: &Searched, dut: &str, cell: &str) -> Option<Warning> {
    let goals: Vec<usize> =
        (0..s.found.len()).filter(|goal| is_limited(&measures(tester, s, *goal))).collect();
    let alone = tester.and_then(|t| carried(t, *goals.first()?));
    let losses: Vec<String> = goals.iter().map(|goal| percent(s.found[*goal].goal.loss_ratio)).collect();
    withheld(&losses, alone, dut, cell)
}

/// Says that a baseline is withheld for these losses, if any; for the first of them the tester
/// carries `alone`.
pub(super) fn withheld(losses: &[String], alone: Option<f64>, dut: &str, cell: &str) -> Option<Warning> {
    let of = || Warning::Withheld { dut: dut.into(), cell: cell.into(), losses: losses.join(", "), alone };
    (!losses.is_empty()).then(of)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::mlr::{Bounds, Found, Goal};

    /// A search that found these rates, each with whether the tester set its upper bound.
    fn searched(rates: &[(Option<f64>, bool)]) -> Searched {
        let goal = |n: usize| Goal { loss_ratio: [0.0, 0.001][n], ..Goal::rfc2544(1.0, 0.05) };
        let found = rates.iter().enumerate().map(|(n, (pps, _))| Found {
            goal: goal(n),
            bounds: Bounds { lower: *pps, upper: None },
            conditional_throughput: *pps,
            complete: true,
        });
        Searched::sample(found.collect(), rates.iter().map(|(_, limited)| *limited).collect())
    }

    #[test]
    fn a_baseline_at_the_tester_s_own_limit_is_withheld_and_one_far_below_is_not() {
        let tester = searched(&[(Some(100e3), false), (Some(150e3), false)]);
        let of = |rates: &[(Option<f64>, bool)]| {
            let s = searched(rates);
            let doubt = doubt(Some(&tester), &s, "plain", "64 B");
            assert!(doubt.iter().all(|w| w.kind() == "withheld"));
            let said = doubt.map(|w| w.text());
            (measures(Some(&tester), &s, 0), said)
        };
        // Half of what the tester carries, both ways together; near it; by its search.
        let (found, said) = of(&[(Some(50e3), false), (Some(60e3), false)]);
        assert_eq!((found, said), (vec![(TESTER_KPPS, 200.0), (TESTER_LIMITED, 0.0)], None));
        let (found, said) = of(&[(Some(91e3), false), (Some(92e3), false)]);
        assert_eq!(found, [(TESTER_KPPS, 200.0), (TESTER_LIMITED, 1.0)]);
        let said = said.expect("a doubt");
        assert!(said.contains("for a loss of 0 the tester") && said.contains("carries 200.0 kpps"), "{said}");
        let (_, said) = of(&[(Some(50e3), true), (Some(60e3), true)]);
        assert!(said.is_some_and(|said| said.contains("for a loss of 0, 0.1% the tester")));
        // What was not found cannot be compared with.
        assert_eq!(of(&[(None, false)]), (vec![(TESTER_KPPS, 200.0)], None));
        // The tester's own rate is not known.
        let limited = searched(&[(Some(50e3), true)]);
        assert_eq!(measures(None, &limited, 0), [(TESTER_LIMITED, 1.0)]);
    }
}
