//! The search for throughput: the highest rate at which no more than a given share of packets is
//! lost. It knows nothing of generators: it says what to try next and is told how much of it was
//! lost.
//!
//! ```text
//! flood ──> bracket (grow or shrink from what came through) ──> bisect to the width  short trials
//!       ──> decide (down while it fails, then bisect to the width)                   many packets
//! ```
//! Only a trial of the deciding kind makes a rate the throughput. Losses are taken to grow with the
//! rate; where a machine is disturbed they do not, so the number of trials is bounded, and a search
//! may end with no rate, or with one that is known less closely than asked for. Pure.

use serde::{Deserialize, Serialize};

/// Goals of the search.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Goal {
    /// Largest share of packets that may be lost; what was not sent counts as lost.
    pub loss: f64,
    /// The result is known to within this share of itself.
    pub width: f64,
    /// Packets of a deciding trial.
    pub packets: u64,
    /// Most trials, deciding ones included.
    pub trials: u32,
}

/// The next trial.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Step {
    /// A short trial at this rate, packets a second.
    Probe(f64),
    /// A trial of the goal's number of packets at this rate.
    Decide(f64),
    /// The search is over: the throughput, or none.
    Done(Option<f64>),
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Stage {
    Bracket,
    Bisect,
    Decide,
    Over(Option<f64>),
}

/// A search under way.
#[derive(Debug, Clone)]
pub struct Search {
    goal: Goal,
    stage: Stage,
    /// The rate to try next.
    at: f64,
    /// The highest rate that a short trial passed at.
    low: Option<f64>,
    /// The lowest that a trial failed at; while deciding, that a deciding one did.
    high: Option<f64>,
    /// The highest that a deciding trial passed at.
    decided: Option<f64>,
    /// No more than this can be offered.
    limit: f64,
    /// From one rate of the bracket to the next higher one.
    grow: f64,
    /// All steps of the bracket are of one size.
    steady: bool,
    trials: u32,
}

impl Search {
    /// Begins at the rate `guess` (what came through a flood, for instance); never asks for more
    /// than `limit`.
    pub fn new(goal: Goal, guess: f64, limit: f64) -> Self {
        let at = guess.min(limit).max(1.0);
        Self {
            goal,
            stage: Stage::Bracket,
            at,
            low: None,
            high: None,
            decided: None,
            limit: limit.max(1.0),
            grow: 1.5,
            steady: false,
            trials: 0,
        }
    }

    /// The same, going up from a rate that is too low in steps of the same size. A system that
    /// loses packets at some rate and carries higher ones again is found at the lower edge of that.
    pub fn upwards(goal: Goal, low: f64, limit: f64) -> Self {
        Self { grow: 1.3, steady: true, ..Self::new(goal, low, limit) }
    }

    /// The trial to make now.
    pub fn step(&self) -> Step {
        match self.stage {
            Stage::Bracket | Stage::Bisect => Step::Probe(self.at),
            Stage::Decide => Step::Decide(self.at),
            Stage::Over(result) => Step::Done(result),
        }
    }

    /// Takes in the share that was lost in the trial that [`Search::step`] asked for.
    pub fn tell(&mut self, lost: f64) {
        self.trials += 1;
        let passed = lost <= self.goal.loss;
        match self.stage {
            Stage::Over(_) => return,
            Stage::Decide => self.decide(lost, passed),
            Stage::Bracket | Stage::Bisect => self.narrow(lost, passed),
        }
        // The last third of the trials is for deciding: a search that never decides has no result.
        let probing = matches!(self.stage, Stage::Bracket | Stage::Bisect);
        if probing && self.trials * 3 >= self.goal.trials * 2 {
            self.decide_at(self.low.unwrap_or(self.at));
        }
        if !matches!(self.stage, Stage::Over(_)) && (self.trials >= self.goal.trials || self.at < 1.0) {
            self.stage = Stage::Over(self.decided);
        }
    }

    fn decide(&mut self, lost: f64, passed: bool) {
        if passed {
            self.decided = Some(self.at);
        } else {
            self.high = Some(self.at);
        }
        match (self.decided, self.high) {
            // One failure may be a moment's: what is far below it is not yet the throughput.
            (Some(low), Some(high)) if high > low * (1.0 + self.goal.width) => self.at = (low * high).sqrt(),
            (Some(low), _) => self.stage = Stage::Over(Some(low)),
            // Down by a width; by more when much was lost.
            (None, _) => self.at *= 1.0 - self.goal.width.max(lost.min(0.5)),
        }
    }

    fn narrow(&mut self, lost: f64, passed: bool) {
        if passed {
            self.low = Some(self.low.map_or(self.at, |l| l.max(self.at)));
        } else {
            self.high = Some(self.high.map_or(self.at, |h| h.min(self.at)));
        }
        match (self.low, self.high) {
            (Some(low), None) if low >= self.limit => self.decide_at(low),
            (Some(low), None) => {
                self.at = (low * self.grow).min(self.limit);
                // A first guess may be far too low: steps become longer.
                if !self.steady {
                    self.grow = (self.grow * self.grow).min(16.0);
                }
            }
            // The rate that came through is a good guess for the limit, unless the system collapses
            // under load.
            (None, _) => self.at *= (1.0 - lost).clamp(1.0 / 3.0, 1.0 - self.goal.width / 2.0),
            (Some(low), Some(high)) if high <= low * (1.0 + self.goal.width) => self.decide_at(low),
            (Some(low), Some(high)) => {
                self.stage = Stage::Bisect;
                self.at = (low * high).sqrt();
            }
        }
    }

    /// From here on only deciding trials count: many packets have more chances to be lost than a
    /// few.
    fn decide_at(&mut self, rate: f64) {
        (self.stage, self.at, self.high) = (Stage::Decide, rate, None);
    }

    /// Trials so far.
    pub fn trials(&self) -> u32 {
        self.trials
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOAL: Goal = Goal { loss: 0.005, width: 0.05, packets: 1_000_000, trials: 30 };

    fn run(goal: Goal, guess: f64, limit: f64, loss: impl Fn(f64, u32) -> f64) -> (Option<f64>, u32) {
        ended(Search::new(goal, guess, limit), limit, loss)
    }

    fn ended(mut search: Search, limit: f64, loss: impl Fn(f64, u32) -> f64) -> (Option<f64>, u32) {
        loop {
            match search.step() {
                Step::Probe(rate) | Step::Decide(rate) => {
                    assert!(rate <= limit.max(1.0) * 1.000_001, "{rate}");
                    search.tell(loss(rate, search.trials()));
                }
                Step::Done(result) => return (result, search.trials()),
            }
        }
    }

    /// Forwards up to `capacity`, drops the rest.
    fn ideal(capacity: f64) -> impl Fn(f64, u32) -> f64 {
        move |rate, _| (1.0 - capacity / rate).max(0.0)
    }

    #[test]
    fn an_ideal_system_is_found_to_within_the_width_wherever_the_search_begins() {
        for guess in [1.0, 5e3, 1e5, 9e5] {
            for capacity in [20e3, 100e3, 333e3] {
                let (result, trials) = run(GOAL, guess, 1e6, ideal(capacity));
                let found = result.expect("a rate");
                // The loss that is allowed lies above the capacity.
                assert!(found <= capacity * 1.0051 && found >= capacity * 0.94, "{found} of {capacity}");
                assert!(trials <= 30);
            }
        }
    }

    #[test]
    fn a_system_that_takes_all_that_can_be_offered_ends_at_the_limit() {
        let (result, trials) = run(GOAL, 1e5, 3e5, ideal(1e9));
        assert_eq!(result, Some(3e5));
        assert!(trials <= 5, "{trials}");
    }

    #[test]
    fn a_system_that_collapses_past_its_peak_is_found_below_it() {
        // Past 100 kpps only a tenth gets through: the flood's guess is far too low.
        let loss = |rate: f64, _| if rate <= 1e5 { 0.0 } else { 1.0 - 1e4 / rate };
        let (result, _) = run(GOAL, 1e4, 1e6, loss);
        let found = result.expect("a rate");
        assert!((0.94e5..=1e5).contains(&found), "{found}");
    }

    #[test]
    fn upwards_the_lower_edge_is_found_of_a_system_that_carries_higher_rates_again() {
        let loss =
            |rate: f64, _| if (1.9e5..3e5).contains(&rate) { 0.3 } else { (1.0 - 4e5 / rate).max(0.0) };
        let from_above = run(GOAL, 4e5, 1e6, loss).0.expect("a rate");
        assert!(from_above > 3e5, "{from_above}");
        for low in [2e3, 6e4, 1.8e5, 2.2e5] {
            let (found, trials) = ended(Search::upwards(GOAL, low, 1e6), 1e6, loss);
            let found = found.expect("a rate");
            assert!((1.7e5..=1.9e5).contains(&found) && trials <= 25, "{found} after {trials} from {low}");
        }
    }

    #[test]
    fn a_system_that_always_loses_has_no_throughput_and_the_search_ends() {
        let (result, trials) = run(GOAL, 1e5, 1e6, |_, _| 0.01);
        assert_eq!((result, trials <= 30), (None, true));
    }

    #[test]
    fn one_disturbed_trial_does_not_decide_the_throughput() {
        // The first deciding trial is disturbed: two fifths are lost at a rate that is carried
        // else.
        let mut search = Search::new(GOAL, 1e5, 1e6);
        let mut decided = 0;
        let result = loop {
            let rate = match search.step() {
                Step::Probe(rate) => rate,
                Step::Decide(rate) => {
                    decided += 1;
                    rate
                }
                Step::Done(result) => break result,
            };
            search.tell(if decided == 1 { 0.4 } else { (1.0 - 1.5e5 / rate).max(0.0) });
        };
        let found = result.expect("a rate");
        assert!(found > 1.5e5 * 0.85, "{found} after {decided}");
        assert!(search.trials() <= GOAL.trials);
    }

    #[test]
    fn a_loss_only_seen_in_many_packets_lowers_the_deciding_rate() {
        // Short trials never see it; deciding ones do above 80 kpps.
        let mut search = Search::new(GOAL, 9e4, 1e5);
        let result = loop {
            match search.step() {
                Step::Probe(_) => search.tell(0.0),
                Step::Decide(rate) => search.tell(if rate > 8e4 { 0.006 } else { 0.0 }),
                Step::Done(result) => break result,
            }
        };
        let found = result.expect("a rate");
        assert!((7.5e4..=8e4).contains(&found), "{found}");
    }
}
