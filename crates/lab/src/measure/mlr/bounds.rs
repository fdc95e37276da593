//! Classifies a load by its trials, as draft-ietf-bmwg-mlrsearch defines: load classification,
//! relevant bounds, conditional throughput.

use serde::{Deserialize, Serialize};

/// Goals of the search.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goal {
    /// A trial that lost a larger share than this is a bad one.
    pub loss_ratio: f64,
    /// Share of the duration sum that bad trials may make up at a load that still counts as
    /// carried.
    pub exceed_ratio: f64,
    /// The result is known when its two bounds are no further apart than this share of the upper
    /// one.
    pub width: f64,
    /// Length of the first trials, seconds.
    pub initial_trial: f64,
    /// Trials of this length, seconds, count fully; shorter ones only when more than their
    /// allowance is bad.
    pub final_trial: f64,
    /// Seconds of such trials that decide about a load.
    pub duration_sum: f64,
}

/// One trial.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trial {
    /// Offered load, packets a second.
    pub load: f64,
    /// How long, seconds.
    pub duration: f64,
    /// Share of the intended packets that did not arrive; what was not sent counts as lost.
    pub loss: f64,
}

/// Class of a load, for one goal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Carried, whatever further trials show.
    Lower,
    /// Not carried, whatever further trials show.
    Upper,
    /// More trials are needed.
    Undecided,
}

/// The two loads that matter for a goal.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bounds {
    /// The highest load below `upper` that is carried.
    pub lower: Option<f64>,
    /// The lowest load that is not.
    pub upper: Option<f64>,
}

/// Seconds of trials at one load, by length and outcome.
#[derive(Debug, Default)]
struct Sums {
    good_long: f64,
    bad_long: f64,
    good_short: f64,
    bad_short: f64,
}

impl Goal {
    /// RFC 2544's throughput: no loss in one trial of `duration` seconds, by bisection down to
    /// `width`.
    pub fn rfc2544(duration: f64, width: f64) -> Self {
        Self {
            loss_ratio: 0.0,
            exceed_ratio: 0.0,
            width,
            initial_trial: duration,
            final_trial: duration,
            duration_sum: duration,
        }
    }

    /// A contradiction in the goal, if there is one.
    pub fn check(&self) -> Result<(), String> {
        let share = |name: &str, v: f64| match v {
            v if (0.0..1.0).contains(&v) => Ok(()),
            v => Err(format!("the {name} must be at least 0 and below 1, not {v}")),
        };
        share("loss ratio", self.loss_ratio)?;
        share("exceed ratio", self.exceed_ratio)?;
        share("width", self.width)?;
        let ordered = 0.0 < self.initial_trial
            && self.initial_trial <= self.final_trial
            && self.final_trial <= self.duration_sum;
        if self.width == 0.0 || !ordered {
            return Err(format!(
                "a goal needs a width above 0 and 0 < initial trial <= final trial <= duration sum, not {}, {}, {}, {}",
                self.width, self.initial_trial, self.final_trial, self.duration_sum
            ));
        }
        Ok(())
    }

    /// Whether a trial is long enough to count fully.
    pub(super) fn is_full(&self, trial: &Trial) -> bool {
        trial.duration >= self.final_trial * (1.0 - 1e-9)
    }

    /// Classifies a load, from all the trials at it.
    pub fn classify<'a>(&self, trials: impl IntoIterator<Item = &'a Trial>) -> Class {
        let mut sums = Sums::default();
        for trial in trials {
            let sum = match (self.is_full(trial), trial.loss <= self.loss_ratio) {
                (true, true) => &mut sums.good_long,
                (true, false) => &mut sums.bad_long,
                (false, true) => &mut sums.good_short,
                (false, false) => &mut sums.bad_short,
            };
            *sum += trial.duration;
        }
        // Short trials can speak against a load, as far as they are worse than the allowance; never
        // for it.
        let allowance = sums.good_short * self.exceed_ratio / (1.0 - self.exceed_ratio);
        let bad = sums.bad_long + (sums.bad_short - allowance).max(0.0);
        let whole = (sums.good_long + bad).max(self.duration_sum);
        // Durations are added up in whatever order: a billionth is no difference.
        let allowed = whole * self.exceed_ratio + whole * 1e-9;
        // If all that is missing were good; if all of it were bad.
        match (bad <= allowed, whole - sums.good_long <= allowed) {
            (true, true) => Class::Lower,
            (false, _) => Class::Upper,
            (true, false) => Class::Undecided,
        }
    }

    /// The bounds that matter among all trials.
    pub fn bounds(&self, trials: &[Trial]) -> Bounds {
        let mut loads: Vec<f64> = trials.iter().map(|t| t.load).collect();
        loads.sort_by(f64::total_cmp);
        loads.dedup();
        let mut bounds = Bounds::default();
        for load in loads {
            match self.classify(trials.iter().filter(|t| t.load == load)) {
                Class::Lower => bounds.lower = Some(load),
                Class::Undecided => {}
                // An upper bound was found: trials at higher loads do not count, also those that
                // lost nothing.
                Class::Upper => {
                    bounds.upper = Some(load);
                    break;
                }
            }
        }
        bounds
    }

    /// Share of the load at the lower bound that arrived in the worst long trial, apart from those
    /// that the exceed ratio forgives.
    pub fn conditional_throughput(&self, trials: &[Trial]) -> Option<f64> {
        let load = self.bounds(trials).lower?;
        let mut long: Vec<&Trial> = trials.iter().filter(|t| t.load == load && self.is_full(t)).collect();
        long.sort_by(|a, b| a.loss.total_cmp(&b.loss));
        let whole = long.iter().map(|t| t.duration).sum::<f64>().max(self.duration_sum);
        let mut remaining = whole * (1.0 - self.exceed_ratio);
        let mut loss = 1.0;
        for trial in long {
            loss = trial.loss;
            remaining -= trial.duration;
            if remaining <= whole * 1e-9 {
                return Some(load * (1.0 - loss));
            }
        }
        // A load may be a lower bound before its sum is complete only when the rest would be
        // forgiven.
        Some(load * (1.0 - loss))
    }
}
