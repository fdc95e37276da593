//! How capacity grows with processors, by what one and two workers of a gateway were seen to cost.
//! Pure.
//!
//! ```text
//! gain     = 2 x cost of a packet with one worker / cost with two
//! capacity = of the machine that was measured x (processors / its processors) ^ log2(gain)
//! ```
//! So each doubling carries `gain` times as much. It was measured from one worker to two; beyond
//! the machine's processors it is an extrapolation.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::schema::never_negative;

/// One gateway alone at its highest rates, with a number of workers.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[schemars(transform = never_negative)]
pub struct WorkerCost {
    /// Workers of its data plane.
    #[schemars(range(min = 1))]
    pub workers: u32,
    /// Packets a second that it carried: sealed, opened. The tester is on the same processors.
    pub pps: [f64; 2],
    /// Processor time of its processes for each, nanoseconds.
    pub ns: [f64; 2],
    /// Half of what the repeats of `ns` differ by.
    pub within: [f64; 2],
}

/// Growth of capacity from one worker to two.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize)]
#[schemars(deny_unknown_fields)]
#[schemars(transform = never_negative)]
pub struct Gain {
    /// What two workers carry beside what one does: 2 where none is in the other's way.
    pub times: f64,
    /// Half of its interval.
    pub within: f64,
}

/// A second worker that adds less than this is not a ground to say what a third would add.
const LEAST: f64 = 1.1;

impl Gain {
    /// From the measurements; `None` without one of one worker and one of two.
    pub fn of(measured: &[WorkerCost]) -> Option<Self> {
        let with = |workers| measured.iter().find(|w| w.workers == workers);
        let (one, two) = (with(1)?, with(2)?);
        let sum = |ns: [f64; 2]| ns.iter().sum::<f64>();
        let times = 2.0 * sum(one.ns) / sum(two.ns);
        let share = |w: &WorkerCost| w.within[0].hypot(w.within[1]) / sum(w.ns);
        let within = times * share(one).hypot(share(two));
        times.is_finite().then(|| Self { times: times.clamp(LEAST, 2.0), within })
    }

    fn exponent(gain: Option<Self>) -> f64 {
        gain.map_or(1.0, |g| g.times.log2())
    }
}

/// A machine that was measured, as far as its processors go.
#[derive(Debug, Clone, Copy)]
pub struct Measured<'a> {
    /// Its processors.
    pub cpus: usize,
    /// One worker and two.
    pub workers: &'a [WorkerCost],
}

impl Measured<'_> {
    /// Processors of this machine that so many of the kind are worth.
    pub fn worth(&self, processors: f64) -> f64 {
        let here = self.cpus.max(1) as f64;
        here * (processors / here).powf(Gain::exponent(Gain::of(self.workers)))
    }

    /// Relative error of [`worth`](Self::worth), by what the gain is unsure of: none for the
    /// processors that were measured, more for each doubling from there.
    pub fn unsure(&self, processors: f64) -> f64 {
        let doublings = (processors / self.cpus.max(1) as f64).log2().abs();
        Gain::of(self.workers).map_or(0.0, |gain| doublings * gain.within / gain.times)
    }

    /// Processors that are worth so many of this machine: the other way round.
    pub fn processors(&self, worth: f64) -> f64 {
        let here = self.cpus.max(1) as f64;
        here * (worth / here).powf(1.0 / Gain::exponent(Gain::of(self.workers)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(workers: u32, ns: f64) -> WorkerCost {
        WorkerCost { workers, pps: [1e5; 2], ns: [ns, ns * 1.5], within: [0.01 * ns, 0.01 * ns] }
    }

    #[test]
    fn each_doubling_carries_what_the_second_worker_added() {
        // Two processors; each packet a quarter dearer with both.
        let workers = [seen(1, 2_000.0), seen(2, 2_500.0)];
        let gain = Gain::of(&workers).expect("measured");
        let m = Measured { cpus: 2, workers: &workers };
        assert!((gain.times - 1.6).abs() < 1e-9 && gain.within > 0.005 && gain.within < 0.02, "{gain:?}");
        let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-9;
        assert!(near(m.worth(1.0), 2.0 / 1.6) && near(m.worth(2.0), 2.0));
        assert!(near(m.worth(4.0), 3.2) && near(m.worth(16.0), 2.0 * 1.6f64.powi(3)));
        // Two doublings from the processors that were measured.
        assert!(near(m.unsure(8.0), 2.0 * gain.within / 1.6) && near(m.unsure(0.5), m.unsure(8.0)));
        assert_eq!((m.unsure(2.0), Measured { cpus: 2, workers: &[] }.unsure(64.0)), (0.0, 0.0));
        for n in [0.3, 1.0, 2.0, 7.5, 1e4] {
            assert!(near(m.processors(m.worth(n)), n), "{n}");
        }
    }

    #[test]
    fn a_gain_is_never_more_than_two_and_without_one_everything_is_taken_to_scale() {
        let of = |one, two| Gain::of(&[seen(1, one), seen(2, two)]).map(|g| g.times);
        assert_eq!((of(2_000.0, 1_500.0), of(2_000.0, 9_000.0)), (Some(2.0), Some(LEAST)));
        assert_eq!((Gain::of(&[seen(1, 2_000.0)]), Gain::of(&[])), (None, None));
        assert_eq!(of(2_000.0, 0.0), None);
        let none = Measured { cpus: 2, workers: &[] };
        assert_eq!((none.worth(64.0), none.processors(64.0)), (64.0, 64.0));
    }
}
