//! Judges a trial where the generator shares the machine of the system under test. RFC 2544 defines
//! the throughput as the rate at which all frames *that were sent* come out. So packets that the
//! generator left out are no loss of the system, and a trial in which it left out more than a
//! little was not a trial at the rate that was asked for.
//!
//! ```text
//! left out: little ──> the loss of what was sent; throughput: the rate less what was left out
//!           more   ──> says nothing: the trial is repeated, so many times
//!                      and then the rate cannot be offered: what was left out counts as lost
//! ```
//! Pure.

/// Repeats in a row of a trial that says nothing.
const REPEATS: u32 = 2;

/// The trials of one search, as its generator made them.
#[derive(Debug, Clone)]
pub(super) struct Judge {
    /// Largest share of a trial's packets that may be left out.
    most: f64,
    /// Trials in a row that said nothing.
    again: u32,
    /// Trials in all.
    made: u32,
    repeated: u32,
}

/// Shares of the packets that a trial was to send, in its worse direction.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Shares {
    /// Never sent.
    pub unsent: f64,
    /// Sent and lost, of those sent.
    pub lost: f64,
}

impl Judge {
    /// Of a search to within `width`: what is left out must not move the result by more than half
    /// of that.
    pub(super) fn new(width: f64) -> Self {
        Self { most: width / 2.0, again: 0, made: 0, repeated: 0 }
    }

    /// The loss that the search is to be told of; `None` when the trial has to be repeated.
    pub(super) fn loss(&mut self, trial: Shares) -> Option<f64> {
        self.made += 1;
        let kept = self.kept(trial);
        if !kept && self.again < REPEATS {
            (self.again, self.repeated) = (self.again + 1, self.repeated + 1);
            return None;
        }
        self.again = 0;
        Some(if kept { trial.lost } else { trial.intended() })
    }

    /// Whether the generator kept the rate.
    pub(super) fn kept(&self, trial: Shares) -> bool {
        trial.unsent <= self.most
    }

    /// The largest share that may be left out.
    pub(super) fn most(&self) -> f64 {
        self.most
    }

    /// Trials so far, repeated ones included.
    pub(super) fn made(&self) -> u32 {
        self.made
    }

    /// Trials that said nothing and were made again.
    pub(super) fn repeated(&self) -> u32 {
        self.repeated
    }
}

/// Rate that was carried. A `throughput` counts all packets of its trials as sent; this takes off
/// the share that the worst of these trials left out.
pub(super) fn carried(throughput: f64, trials: impl IntoIterator<Item = Shares>) -> f64 {
    throughput * (1.0 - trials.into_iter().map(|t| t.unsent).fold(0.0, f64::max))
}

impl Shares {
    /// Lost with all that was not sent.
    fn intended(self) -> f64 {
        1.0 - (1.0 - self.unsent) * (1.0 - self.lost)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::mlr::{Found, Goal, Plan, Search};

    /// A search as a quick run makes it: no loss, two trials decide, one may be bad.
    const GOAL: Goal = Goal {
        loss_ratio: 0.0,
        exceed_ratio: 0.5,
        width: 0.05,
        initial_trial: 0.075,
        final_trial: 0.25,
        duration_sum: 0.5,
    };
    const TRIALS: u32 = 22;
    const LIMIT: f64 = 300e3;

    struct Run {
        found: Found,
        judge: Judge,
        /// Of each full trial that counted: its rate, and what it was.
        full: Vec<(f64, Shares)>,
    }

    impl Run {
        fn throughput(&self) -> Option<f64> {
            let at = self.full.iter().filter(|(load, _)| Some(*load) == self.found.bounds.lower);
            Some(carried(self.found.conditional_throughput?, at.map(|(_, shares)| *shares)))
        }
    }

    /// Searches in a system that forwards up to [`LIMIT`] of what is sent, where a generator leaves
    /// out `unsent(rate, trial)`. Without a judge what is left out is lost.
    fn run(judged: bool, mut unsent: impl FnMut(f64, u32) -> f64) -> Run {
        let plan =
            Plan { goals: vec![GOAL], min_load: 500.0, max_load: 1e6, coarse_stages: 1, most_trials: TRIALS };
        let (mut search, mut judge) = (Search::new(plan).expect("a plan"), Judge::new(GOAL.width));
        let mut full = Vec::new();
        while let Some(ask) = search.ask() {
            let unsent = unsent(ask.load, judge.made());
            let sent = ask.load * (1.0 - unsent);
            let shares = Shares { unsent, lost: (1.0 - LIMIT / sent).max(0.0) };
            let loss = judge.loss(shares);
            let Some(loss) = (if judged { loss } else { Some(shares.intended()) }) else {
                search.void();
                continue;
            };
            search.tell(ask, loss);
            if ask.duration == GOAL.final_trial {
                full.push((ask.load, shares));
            }
        }
        Run { found: search.found()[0], judge, full }
    }

    #[test]
    fn a_generator_that_always_leaves_a_little_out_hides_no_throughput() {
        let little = |_: f64, _: u32| 0.01;
        assert_eq!(run(false, little).throughput(), None);
        let run = run(true, little);
        let found = run.throughput().expect("a throughput");
        assert!(run.found.complete && run.judge.repeated() == 0, "{:?}", run.found);
        // No more than was sent and came out.
        assert!((LIMIT * 0.93..=LIMIT).contains(&found), "{found}");
    }

    #[test]
    fn a_trial_with_a_long_pause_is_made_again() {
        // Every third is one.
        let pauses = |_: f64, trial: u32| if trial % 3 == 1 { 0.3 } else { 0.0 };
        let run = run(true, pauses);
        let found = run.throughput().expect("a throughput");
        assert!(run.judge.repeated() > 2 && run.judge.made() <= TRIALS, "{:?}", run.judge);
        assert!((LIMIT * 0.93..=LIMIT).contains(&found), "{found}");
        assert!(run.full.iter().all(|(_, shares)| run.judge.kept(*shares)));
    }

    #[test]
    fn a_generator_that_pauses_in_two_trials_of_three_leaves_enough_of_them_to_decide() {
        // A third of 22 trials says anything.
        for first in 0..3 {
            let run = run(true, |_, trial| if trial % 3 == first { 0.0 } else { 0.3 });
            let found = run.throughput().expect("a throughput");
            assert!(run.judge.made() <= TRIALS, "{:?}", run.judge);
            assert!((LIMIT * 0.5..=LIMIT).contains(&found), "{found}");
        }
    }

    #[test]
    fn a_rate_that_the_generator_never_keeps_is_no_throughput() {
        let most = 200e3;
        let run = run(true, |load, _| (1.0 - most / load).max(0.0));
        let found = run.throughput().expect("a throughput");
        assert!((most * 0.9..=most).contains(&found), "{found}");
        // The judge has the trial repeated, and counts the shortage as loss when it stays too
        // large.
        assert!(run.judge.repeated() >= 2 && run.full.iter().any(|(_, shares)| !run.judge.kept(*shares)));
    }

    #[test]
    fn what_a_system_loses_of_what_was_sent_is_never_forgiven() {
        let mut judge = Judge::new(0.05);
        assert_eq!(judge.loss(Shares { unsent: 0.01, lost: 0.2 }), Some(0.2));
        let paused = Shares { unsent: 0.5, lost: 0.2 };
        assert_eq!([0; 4].map(|_| judge.loss(paused)), [None, None, Some(0.6), None]);
        assert_eq!((judge.made(), judge.repeated()), (5, 3));
    }
}
