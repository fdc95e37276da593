//! Predictions against what was measured afterwards. Pure.

use schemars::JsonSchema;
use serde::Serialize;

use super::model::{Cell, Model, Path, Way};
use super::rates::Rate;
pub use super::schemas::VERIFY_SCHEMA;
use crate::error::LabError;
use crate::machine::Fingerprint;
use crate::record::{Program, WarningRecord};
use crate::schema::TIME;
use crate::stats;

/// Largest median of the errors' sizes that meets the goal.
pub const MEDIAN: f64 = 0.10;
/// Error that [`MOST`] of the predictions may have.
pub const WORST: f64 = 0.25;
/// Share of the predictions that has to be within [`WORST`].
pub const MOST: f64 = 0.9;
/// Median spread of the repeats up to which errors are the model's, and not the machine's.
pub const REPEATS: f64 = 0.05;

/// What a verification says of the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Both goals are met.
    Met,
    /// One of them is missed.
    Missed,
    /// The machine does not repeat itself well enough to judge a model.
    CannotTell,
}

impl Verdict {
    /// `met`, `missed`, `cannot tell`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Met => "met",
            Self::Missed => "missed",
            Self::CannotTell => "cannot tell",
        }
    }
}

/// A prediction that is off by more than a quarter.
#[derive(Debug, Clone, PartialEq)]
pub struct Beyond {
    /// The load or rate that was predicted.
    pub what: String,
    /// Predicted over measured, less one.
    pub error: f64,
    /// Range of the repeats over their median; absent where there was one.
    pub spread: Option<f64>,
}

/// One load and direction.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize)]
#[schemars(deny_unknown_fields)]
pub struct Predicted {
    /// The suite.
    pub suite: String,
    /// How ESP was carried.
    pub path: Path,
    /// Which way.
    pub way: Way,
    /// The packets.
    pub mix: String,
    /// How many a second were offered over a line; absent where it was the highest rate of one
    /// gateway alone.
    pub offered: Option<f64>,
    /// How many a second this gateway handled.
    #[schemars(range(min = 0))]
    pub pps: f64,
    /// Prediction of the model, nanoseconds per packet.
    #[schemars(range(min = 0))]
    pub predicted_ns: f64,
    /// The median of what was measured.
    #[schemars(range(min = 0))]
    pub measured_ns: f64,
    /// Range of the repeats over their median.
    #[schemars(range(min = 0))]
    pub spread: f64,
    /// Predicted over measured, less one.
    #[schemars(range(min = -1))]
    pub error: f64,
}

/// Loads of the calibration, measured again when it is verified: what the machine itself makes of
/// the same packets.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize)]
#[schemars(deny_unknown_fields)]
pub struct Again {
    /// How many, each direction by itself.
    #[schemars(range(min = 1))]
    pub loads: usize,
    /// The median of what they cost now over then, less one.
    #[schemars(range(min = -1))]
    pub shift: f64,
    /// The median of the differences' sizes.
    #[schemars(range(min = 0))]
    pub median: f64,
    /// The largest.
    #[schemars(range(min = 0))]
    pub worst: f64,
}

impl Again {
    /// From what they cost now over then; `None` without any.
    pub fn of(now_over_then: &[f64]) -> Option<Self> {
        let off: Vec<f64> = now_over_then.iter().map(|r| (r - 1.0).abs()).collect();
        Some(Self {
            loads: now_over_then.len(),
            shift: stats::median(now_over_then)? - 1.0,
            median: stats::median(&off)?,
            worst: stats::quantile(&off, 1.0)?,
        })
    }
}

/// Loads that were drawn when the calibration had been made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, JsonSchema, Serialize)]
#[schemars(deny_unknown_fields)]
pub struct Drawn {
    /// They follow from it.
    pub seed: u64,
    /// How many were to be drawn.
    #[schemars(range(min = 1))]
    pub loads: u32,
}

/// Parts from which a verification is made.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize)]
#[schemars(deny_unknown_fields)]
pub struct Taken {
    /// The program that measured.
    pub program: Program,
    /// When, UTC, RFC 3339.
    #[schemars(regex(pattern = TIME))]
    pub made: String,
    /// How long it took, seconds.
    #[schemars(range(min = 0))]
    pub seconds: f64,
    /// Machine on which the verification was measured.
    pub machine: Fingerprint,
    /// When the model was made that predicted.
    #[schemars(regex(pattern = TIME))]
    pub model_made: String,
    /// Everything that was measured, each repeat by itself: what was kept back, and loads of the
    /// calibration again.
    #[schemars(length(min = 1))]
    pub measured: Vec<Cell>,
    /// The draw that the loads are of; absent where they are those that the program names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drawn: Option<Drawn>,
    /// The run that the highest rates are of, when it began; absent where none was named.
    #[schemars(regex(pattern = TIME))]
    pub against: Option<String>,
    /// Highest rates of one gateway.
    pub rates: Vec<Rate>,
    /// Doubts about the measurements.
    pub warnings: Vec<WarningRecord>,
}

/// All of them.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize)]
#[schemars(deny_unknown_fields)]
pub struct Verification {
    /// [`VERIFY_SCHEMA`].
    #[schemars(extend("const" = VERIFY_SCHEMA))]
    pub schema: String,
    /// Parts from which the verification is made.
    #[serde(flatten)]
    pub taken: Taken,
    /// Each load and direction.
    #[schemars(length(min = 1))]
    pub cells: Vec<Predicted>,
    /// The median of the errors' sizes, those of the highest rates among them.
    #[schemars(range(min = 0))]
    pub median_error: f64,
    /// The largest.
    #[schemars(range(min = 0))]
    pub worst_error: f64,
    /// The median of the repeats' spreads.
    #[schemars(range(min = 0))]
    pub median_spread: f64,
    /// The largest.
    #[schemars(range(min = 0))]
    pub worst_spread: f64,
    /// Share of the predictions, those of the highest rates among them, that are off by at most a
    /// quarter.
    #[schemars(range(min = 0, max = 1))]
    pub within: f64,
    /// Median error at most 10 %, and nine in ten within a quarter; `cannot-tell` where the median
    /// spread of the repeats is above 5 %.
    pub verdict: Verdict,
    /// Loads of the calibration, measured again.
    pub again: Again,
}

impl Verification {
    /// Compares predictions with measurements; `None` without any. A load that the calibration had,
    /// too, is no test of the model, but of the machine.
    pub fn made(model: &Model, taken: Taken) -> Result<Option<Self>, LabError> {
        let then = |c: &Cell| {
            let same = |m: &&Cell| {
                (&m.suite, m.path, &m.mix, m.flows, m.burst, m.offered, m.alone)
                    == (&c.suite, c.path, &c.mix, c.flows, c.burst, c.offered, c.alone)
            };
            model.cells.iter().find(same)
        };
        let (mut predicted, mut ratios) = (Vec::new(), Vec::new());
        for cell in &taken.measured {
            for way in Way::BOTH {
                let Some((measured, spread)) = cell.measured(way) else { continue };
                if let Some((before, _)) = then(cell).and_then(|c| c.measured(way)) {
                    ratios.push(measured / before);
                    continue;
                }
                let (pps, ns) = model.predicts(cell, way)?;
                predicted.push(Predicted {
                    suite: cell.suite.clone(),
                    path: cell.path,
                    way,
                    mix: cell.mix.name.clone(),
                    offered: cell.offered,
                    pps,
                    predicted_ns: ns,
                    measured_ns: measured,
                    spread,
                    error: ns / measured - 1.0,
                });
            }
        }
        Ok(Again::of(&ratios).and_then(|again| Self::of(predicted, again, taken)))
    }

    /// Judges them; `None` without any.
    pub fn of(cells: Vec<Predicted>, again: Again, taken: Taken) -> Option<Self> {
        let rates = taken.rates.iter().map(|r| r.error.abs());
        let errors: Vec<f64> = cells.iter().map(|c| c.error.abs()).chain(rates).collect();
        let spreads: Vec<f64> = cells.iter().map(|c| c.spread).collect();
        let (median_error, worst_error) = (stats::median(&errors)?, stats::quantile(&errors, 1.0)?);
        let (median_spread, worst_spread) = (stats::median(&spreads)?, stats::quantile(&spreads, 1.0)?);
        let within = errors.iter().filter(|e| **e <= WORST).count() as f64 / errors.len() as f64;
        // A load that was measured once does not say how far it repeats itself.
        let repeated = taken.measured.iter().any(|c| c.seen.len() > 1);
        let verdict = match (repeated && median_spread <= REPEATS, median_error <= MEDIAN && within >= MOST) {
            (false, _) => Verdict::CannotTell,
            (true, true) => Verdict::Met,
            (true, false) => Verdict::Missed,
        };
        Some(Self {
            schema: VERIFY_SCHEMA.into(),
            taken,
            cells,
            median_error,
            worst_error,
            median_spread,
            worst_spread,
            within,
            verdict,
            again,
        })
    }

    /// Predictions that are off by more than a quarter, the worst first.
    pub fn beyond(&self) -> Vec<Beyond> {
        let cost = |c: &Predicted| {
            let at = c.offered.map_or_else(|| "the highest rate".into(), |pps| format!("{pps:.0} packets/s"));
            let what =
                format!("the cost of {} {} {} {} at {at}", c.suite, c.path.name(), c.way.name(), c.mix);
            Beyond { what, error: c.error, spread: Some(c.spread) }
        };
        let rate = |r: &Rate| {
            let (path, way) = (r.path.name(), r.way.name());
            let what = format!("the highest rate of {} {} {path} {way} {}", r.dut, r.suite, r.mix.name);
            Beyond { what, error: r.error, spread: r.spread }
        };
        let all = self.cells.iter().map(cost).chain(self.taken.rates.iter().map(rate));
        let mut beyond: Vec<Beyond> = all.filter(|b| b.error.abs() > WORST).collect();
        beyond.sort_by(|a, b| b.error.abs().total_cmp(&a.error.abs()));
        beyond
    }

    /// Median and worst of the loads' errors alone, without those of the highest rates.
    pub fn of_loads(&self) -> (f64, f64) {
        let errors: Vec<f64> = self.cells.iter().map(|c| c.error.abs()).collect();
        (stats::median(&errors).unwrap_or(0.0), stats::quantile(&errors, 1.0).unwrap_or(0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    fn cell(predicted_ns: f64, measured_ns: f64, spread: f64) -> Predicted {
        Predicted {
            suite: "aes128gcm16".into(),
            path: Path::Udp,
            way: Way::Out,
            mix: "390".into(),
            offered: Some(10_000.0),
            pps: 10_000.0,
            predicted_ns,
            measured_ns,
            spread,
            error: predicted_ns / measured_ns - 1.0,
        }
    }

    fn judged(cells: Vec<Predicted>) -> Option<Verification> {
        Verification::of(cells, Again::of(&[1.0])?, sample::taken())
    }

    #[test]
    fn loads_measured_again_say_how_far_the_machine_has_moved() {
        let again = Again::of(&[1.1, 0.8, 1.1]).expect("three");
        assert!((again.shift - 0.1).abs() < 1e-9 && (again.median - 0.1).abs() < 1e-9, "{again:?}");
        assert!((again.worst - 0.2).abs() < 1e-9 && again.loads == 3, "{again:?}");
        assert_eq!(Again::of(&[]), None);
    }

    #[test]
    fn the_goal_is_a_tenth_and_nine_in_ten_within_a_quarter_and_no_noise_moves_it() {
        let good = judged(vec![cell(105.0, 100.0, 0.02), cell(92.0, 100.0, 0.02)]);
        assert!(good.is_some_and(|v| v.verdict == Verdict::Met && v.within == 1.0));
        let missed = judged(vec![cell(115.0, 100.0, 0.04)]);
        assert!(missed.is_some_and(|v| v.verdict == Verdict::Missed));
        // Where repeats lie 6 % apart neither a hit nor a miss is the model's.
        for predicted in [100.0, 115.0, 300.0] {
            let noisy = judged(vec![cell(predicted, 100.0, 0.06)]);
            assert!(noisy.is_some_and(|v| v.verdict == Verdict::CannotTell), "{predicted}");
        }
        assert_eq!(judged(vec![]), None);
        // One in ten may be far off, two may not.
        let of = |bad: usize| {
            let all = (0..10).map(|n| cell(if n < bad { 70.0 } else { 100.0 }, 100.0, 0.0)).collect();
            judged(all).map(|v| (v.verdict, v.beyond().len()))
        };
        assert_eq!((of(1), of(2)), (Some((Verdict::Met, 1)), Some((Verdict::Missed, 2))));
        let worst = judged(vec![cell(70.0, 100.0, 0.0)]).expect("judged");
        assert_eq!(worst.beyond()[0].what, "the cost of aes128gcm16 udp out 390 at 10000 packets/s");
    }

    #[test]
    fn rates_count_as_loads_do_and_one_measurement_of_each_says_nothing_of_repeats() {
        let of = |taken: Taken| Verification::of(vec![cell(100.0, 100.0, 0.0)], Again::of(&[1.0])?, taken);
        let mut taken = sample::taken();
        taken.rates = vec![Rate { error: 0.4, ..sample::rate() }];
        let rate = of(taken).expect("judged");
        assert!(rate.verdict == Verdict::Missed && rate.within == 0.5, "{rate:?}");
        assert!(rate.worst_error == 0.4 && rate.of_loads() == (0.0, 0.0), "{rate:?}");
        let mut once = sample::taken();
        once.measured.iter_mut().for_each(|c| c.seen.truncate(1));
        assert!(of(once).is_some_and(|v| v.verdict == Verdict::CannotTell));
    }
}
