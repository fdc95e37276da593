//! One trial of a flood, and what the trials of a system say together. Pure but for the trial
//! itself.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::super::alone;
use super::super::passed::Cost;
use super::super::placement::Spread;
use super::super::throughput::Carrier;
use crate::error::LabError;
use crate::load::frame::{Family, Shape};
use crate::load::{Direction, Offer, Received, Sent};
use crate::measure::places::{Account, Ends};
use crate::topology::Mode;

/// The packets of a trial, and how they cross the line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Load {
    /// Which processors the parts have.
    pub(super) placement: Spread,
    /// How packets cross the links.
    pub(super) mode: Mode,
    /// Bytes of UDP payload.
    pub(super) payload: u32,
    /// How many flows.
    pub(super) flows: u32,
}

impl fmt::Display for Load {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = if self.flows == 1 { "" } else { "s" };
        let Self { placement, mode, payload, flows } = self;
        write!(f, "{payload} B of payload, {flows} flow{s}, placement {placement}, {mode} mode")
    }
}

/// Purpose of a trial.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Purpose {
    /// As fast as the generator can, to begin the search with.
    Flood,
    /// A short one of the search.
    Probe,
    /// A long one of the search.
    Decide,
    /// A point of the curve past the throughput.
    Curve,
}

/// One trial; a line of the file of its system and load in `raw/`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Trial {
    /// The system under test.
    pub(super) dut: String,
    /// Packets of the trial.
    pub(super) load: Load,
    /// Purpose of the trial.
    pub(super) purpose: Purpose,
    /// The loss that the search allowed, for trials of a search.
    pub(super) goal: Option<f64>,
    /// The multiple of the throughput, for points of the curve.
    pub(super) multiple: Option<f64>,
    /// When it began, seconds since the run began.
    pub(super) began: f64,
    /// Packets a second that were offered; as many as go out when absent.
    pub(super) offered_pps: Option<f64>,
    /// Share of the intended packets that did not arrive, unsent ones included.
    pub(super) loss: f64,
    /// Packets a second that arrived.
    pub(super) forwarded_pps: f64,
    /// Counts of the generator.
    pub(super) sent: Sent,
    /// Counts of the receiver.
    pub(super) received: Received,
    /// Places where the difference was dropped.
    pub(super) account: Account,
    /// CPU.
    pub(super) cost: Cost,
}

impl Trial {
    /// Offers packets of that load from a to b.
    pub(super) fn make(carrier: &mut dyn Carrier, load: Load, offer: Offer) -> Result<Self, LabError> {
        let shape = Shape {
            payload: load.payload as usize,
            mix: None,
            flows: load.flows,
            family: Family::V4,
            tag: 0,
        };
        let passed = carrier.pass(shape, offer, Direction::Forward)?;
        let Some((sent, counted)) = passed.ways.first() else {
            return Err(LabError::Measurement("a trial from a to b has one direction".into()));
        };
        let ends = Ends {
            sent: sent.sent,
            received: counted.received.unique,
            corrupt: counted.received.corrupt,
            socket_drops: counted.socket_drops,
        };
        // The tester alone has but one link.
        let account = passed.account.unwrap_or_else(|| Account::of_link(ends, sent.refused));
        let ends = (*sent, counted.received);
        Ok(Self::new(carrier.name().into(), load, offer.rate, ends, account, passed.cost))
    }

    /// From the two ends and the counters between them.
    pub(super) fn new(
        dut: String,
        load: Load,
        offered_pps: Option<f64>,
        (sent, received): (Sent, Received),
        account: Account,
        cost: Cost,
    ) -> Self {
        let seconds = sent.seconds.max(received.seconds);
        Self {
            dut,
            load,
            purpose: Purpose::Probe,
            goal: None,
            multiple: None,
            began: 0.0,
            offered_pps,
            // A loss of exactly what is allowed is no more than that: 25 of 5,000 are 0.5 %.
            loss: (sent.intended as f64 - received.unique as f64) / sent.intended.max(1) as f64,
            forwarded_pps: if seconds > 0.0 { received.unique as f64 / seconds } else { 0.0 },
            sent,
            received,
            account,
            cost,
        }
    }

    /// Packets a second that the generator sent.
    pub(super) fn sent_pps(&self) -> f64 {
        self.sent.sent as f64 / self.sent.seconds.max(1e-9)
    }
}

/// All trials of one system under one load, in the order in which they were made.
#[derive(Debug)]
pub(super) struct Series<'a> {
    pub(super) dut: &'a str,
    pub(super) load: Load,
    pub(super) trials: Vec<&'a Trial>,
}

impl<'a> Series<'a> {
    /// Sorts trials by load and system, in the order of their first appearance.
    pub(super) fn of(trials: &'a [Trial]) -> Vec<Self> {
        let mut all: Vec<Self> = Vec::new();
        for trial in trials {
            match all.iter_mut().find(|s| (s.dut, s.load) == (&trial.dut, trial.load)) {
                Some(series) => series.trials.push(trial),
                None => all.push(Self { dut: &trial.dut, load: trial.load, trials: vec![trial] }),
            }
        }
        all
    }

    /// The highest rate that a deciding trial carried with a loss of at most `goal`, packets a
    /// second. A search for a smaller loss decides for a larger one, too.
    pub(super) fn throughput(&self, goal: f64) -> Option<f64> {
        let decide =
            self.trials.iter().filter(|t| t.purpose == Purpose::Decide && t.goal.is_some_and(|g| g <= goal));
        decide.filter(|t| t.loss <= goal).filter_map(|t| t.offered_pps).max_by(f64::total_cmp)
    }

    /// The series under this load of the tester alone, of all of a run.
    pub(super) fn tester(all: &[Self], load: Load) -> Option<&Self> {
        all.iter().find(|series| series.is_tester() && series.load == load)
    }

    /// Whether it is of the tester alone, without a gateway.
    pub(super) fn is_tester(&self) -> bool {
        self.dut == alone::NAME
    }

    /// Whether a rate, packets a second, is all that the generator sends: but for `width`, what it
    /// sent in the flood.
    pub(super) fn is_all_that_was_sent(&self, pps: f64, width: f64) -> bool {
        let flood = self.trials.iter().rfind(|t| t.purpose == Purpose::Flood);
        flood.is_some_and(|t| pps >= t.sent_pps() * (1.0 - width))
    }

    /// The failed trial with the lowest rate above this throughput, among the trials of its search.
    pub(super) fn failed_above(&self, goal: f64, pps: f64) -> Option<&'a Trial> {
        let failed = self.trials.iter().copied().filter(|t| t.goal == Some(goal) && t.loss > goal);
        let above = failed.filter_map(|t| t.offered_pps.filter(|rate| *rate > pps).map(|rate| (rate, t)));
        above.min_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, t)| t)
    }

    /// Whether the generator's own maximum ended the search: the result is what it sends at most,
    /// or nothing but packets that it left out made the next higher rate fail.
    pub(super) fn is_limited(&self, goal: f64, width: f64) -> bool {
        let Some(pps) = self.throughput(goal) else { return false };
        let lost = |t: &Trial| t.sent.sent.saturating_sub(t.received.unique) as f64;
        let by_generator = |t: &Trial| lost(t) <= goal * t.sent.intended as f64;
        self.is_all_that_was_sent(pps, width) || self.failed_above(goal, pps).is_some_and(by_generator)
    }

    /// What says whether the throughput with that loss, or without one the peak, is the tester's
    /// own: `width` is that of the search, `tester` the series of the tester alone.
    pub(super) fn beside(
        &self,
        tester: Option<&Self>,
        goal: Option<f64>,
        width: f64,
    ) -> Vec<(&'static str, f64)> {
        let rate = |series: &Self| match goal {
            Some(goal) => series.throughput(goal),
            None => Some(series.peak()),
        };
        let own = rate(self);
        let limited = match goal {
            Some(goal) => self.is_limited(goal, width),
            None => own.is_some_and(|pps| self.is_all_that_was_sent(pps, width)),
        };
        alone::compared(tester.and_then(rate), own, limited)
    }

    /// The highest rate at which packets arrived in any trial, packets a second.
    pub(super) fn peak(&self) -> f64 {
        self.trials.iter().map(|t| t.forwarded_pps).fold(0.0, f64::max)
    }

    /// The name of the file of its trials, a line of JSON each.
    pub(super) fn file(&self) -> String {
        let Load { placement, mode, payload, flows } = self.load;
        let dut: String = self
            .dut
            .chars()
            .map(|c| if c.is_ascii_alphanumeric() || "._-".contains(c) { c } else { '_' })
            .collect();
        format!("{payload}-{flows}-{placement}-{mode}-{dut}.jsonl")
    }

    /// Contents of that file.
    pub(super) fn lines(&self) -> Result<String, LabError> {
        let line = |trial: &&Trial| serde_json::to_string(trial).map(|text| text + "\n");
        let lines: Result<String, _> = self.trials.iter().map(line).collect();
        lines.map_err(|e| LabError::Measurement(format!("a trial cannot be written as JSON: {e}")))
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use crate::load::Latency;
    use crate::measure::places::Place;

    pub(in super::super) const LOAD: Load =
        Load { placement: Spread::OwnCore, mode: Mode::Offload, payload: 18, flows: 1000 };

    /// Sent for a second: `sent` packets of which `got` arrived, the rest dropped in a queue.
    pub(in super::super) fn trial(dut: &str, multiple: Option<f64>, sent: u64, got: u64) -> Trial {
        let account = Account {
            sent,
            received: got,
            places: vec![Place {
                place: "queue of ipsec0 on g1".into(),
                packets: sent - got + 1,
                buffers: Some(sent - got + 1),
            }],
            unexplained: -1,
            softnet_dropped: 0,
        };
        let sent = Sent { intended: sent + 10, sent, unsent: 10, seconds: 1.0, cpu_seconds: 0.5, refused: 0 };
        let latency = Latency {
            samples: got,
            min_us: 1.0,
            p50_us: 20.0,
            p90_us: 30.0,
            p99_us: 40.0,
            p999_us: 50.0,
            max_us: 60.0,
        };
        let received = Received { unique: got, seconds: 1.0, latency: Some(latency), ..Received::default() };
        let mut t = Trial::new(dut.into(), LOAD, Some(1e5), (sent, received), account, Cost::default());
        t.multiple = multiple;
        t.purpose = if multiple.is_some() { Purpose::Curve } else { Purpose::Decide };
        if multiple.is_none() {
            (t.goal, t.offered_pps) = (Some(0.005), Some(got as f64));
        }
        t
    }

    #[test]
    fn a_search_for_a_smaller_loss_decides_for_a_larger_one() {
        let decided = |goal, rate: f64, loss| {
            let mut t = trial("ironswan", None, 120_001, 120_000);
            (t.goal, t.offered_pps, t.loss) = (Some(goal), Some(rate), loss);
            t
        };
        let (large, small) = (0.005, 0.000_01);
        let cases = [
            (vec![decided(large, 1e5, 0.0), decided(small, 9e4, 0.0)], [Some(1e5), Some(9e4)]),
            // The search for the larger loss was disturbed, and ended lower.
            (vec![decided(large, 1e5, 0.0), decided(small, 1.2e5, 0.0)], [Some(1.2e5), Some(1.2e5)]),
            (vec![decided(large, 1e5, 0.01), decided(small, 1.2e5, 0.004)], [Some(1.2e5), None]),
            // But not the other way round: that would be more trials for the smaller loss than its
            // own.
            (vec![decided(large, 1e5, 0.0), decided(small, 9e4, 0.1)], [Some(1e5), None]),
        ];
        for (trials, want) in cases {
            let all = Series::of(&trials);
            assert_eq!([large, small].map(|goal| all[0].throughput(goal)), want);
        }
    }

    #[test]
    fn trials_are_sorted_by_load_and_system_and_written_a_line_each() {
        let mut trials =
            vec![trial("x", None, 100, 50), trial("y z", None, 10, 5), trial("x", Some(2.0), 10, 9)];
        trials[1].load.flows = 1;
        let all = Series::of(&trials);
        assert_eq!(all.iter().map(|s| (s.dut, s.trials.len())).collect::<Vec<_>>(), [("x", 2), ("y z", 1)]);
        assert_eq!(all[1].file(), "18-1-own-core-offload-y_z.jsonl");
        let lines = all[0].lines().expect("JSON");
        let back: Vec<Trial> = lines.lines().map(|l| serde_json::from_str(l).expect("a trial")).collect();
        assert_eq!(back.iter().collect::<Vec<_>>(), all[0].trials);
        // Of 5,000 exactly as many were lost as may be.
        let mut edge = trial("x", None, 4_990, 4_975);
        edge.goal = Some(0.005);
        assert_eq!(Series::of(&[edge])[0].throughput(0.005), Some(4_975.0));
        // Packets that were not sent count as lost.
        assert!((back[0].loss - 60.0 / 110.0).abs() < 1e-12 && all[0].peak() == 50.0);
    }
}
