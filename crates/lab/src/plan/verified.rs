//! Predictions against what was measured afterwards. Pure.

use serde::Serialize;

use super::model::{Path, Way};
use crate::report::WarningRecord;
use crate::stats;

/// Errors that are good enough: of the median cell, and of the worst.
pub const MEDIAN: f64 = 0.10;
/// The worst cell's.
pub const WORST: f64 = 0.25;

/// One load and direction.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Predicted {
    /// The suite.
    pub suite: String,
    /// How ESP was carried.
    pub path: Path,
    /// Which way.
    pub way: Way,
    /// The packets.
    pub mix: String,
    /// How many a second.
    pub pps: f64,
    /// What the model said, nanoseconds per packet.
    pub predicted_ns: f64,
    /// The median of what was measured.
    pub measured_ns: f64,
    /// Range of the repeats over their median.
    pub spread: f64,
    /// Predicted over measured, less one.
    pub error: f64,
}

/// All of them.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Verification {
    /// `ironswan.plan-verify/1`.
    pub schema: String,
    /// Each load and direction.
    pub cells: Vec<Predicted>,
    /// The median of the errors' sizes.
    pub median_error: f64,
    /// The largest.
    pub worst_error: f64,
    /// The median of the repeats' spreads.
    pub median_spread: f64,
    /// What the median error may be: 10 %, or twice the median spread where that is more.
    pub median_goal: f64,
    /// What the worst may be.
    pub worst_goal: f64,
    /// Both goals were met.
    pub met: bool,
    /// Doubts about the measurements.
    pub warnings: Vec<WarningRecord>,
}

impl Verification {
    /// Judges them; `None` without any.
    pub fn of(cells: Vec<Predicted>, warnings: Vec<WarningRecord>) -> Option<Self> {
        let errors: Vec<f64> = cells.iter().map(|c| c.error.abs()).collect();
        let spreads: Vec<f64> = cells.iter().map(|c| c.spread).collect();
        let (median_error, worst_error) = (stats::median(&errors)?, stats::quantile(&errors, 1.0)?);
        let median_spread = stats::median(&spreads)?;
        let median_goal = MEDIAN.max(2.0 * median_spread);
        Some(Self {
            schema: "ironswan.plan-verify/1".into(),
            met: median_error <= median_goal && worst_error <= WORST,
            cells,
            median_error,
            worst_error,
            median_spread,
            median_goal,
            worst_goal: WORST,
            warnings,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(predicted_ns: f64, measured_ns: f64, spread: f64) -> Predicted {
        Predicted {
            suite: "aes128gcm16".into(),
            path: Path::Udp,
            way: Way::Out,
            mix: "390".into(),
            pps: 10_000.0,
            predicted_ns,
            measured_ns,
            spread,
            error: predicted_ns / measured_ns - 1.0,
        }
    }

    #[test]
    fn the_goal_is_a_tenth_or_twice_the_spread_and_the_worst_a_quarter() {
        let good = Verification::of(vec![cell(105.0, 100.0, 0.02), cell(92.0, 100.0, 0.02)], vec![]);
        assert!(good.is_some_and(|v| v.met && v.median_goal == MEDIAN));
        // Off by 15 % where repeats differ by 4 %: missed. By 10 %: twice that is what can be asked for.
        let missed = Verification::of(vec![cell(115.0, 100.0, 0.04)], vec![]);
        assert!(missed.is_some_and(|v| !v.met));
        let noisy = Verification::of(vec![cell(115.0, 100.0, 0.10)], vec![]);
        assert!(noisy.is_some_and(|v| v.met && v.median_goal == 0.2));
        // One bad cell is enough, whatever the others.
        let worst = vec![cell(100.0, 100.0, 0.0), cell(100.0, 100.0, 0.0), cell(70.0, 100.0, 0.0)];
        assert!(Verification::of(worst, vec![]).is_some_and(|v| !v.met && v.worst_error > 0.29));
        assert_eq!(Verification::of(vec![], vec![]), None);
    }
}
