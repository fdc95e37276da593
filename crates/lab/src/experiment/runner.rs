//! The runner of experiments: options that have been checked become a record.
//!
//! ```text
//!   run ── begin a campaign ── prepare ──┬── trial, trial, trial ...   one round: every cell once
//!                                        ├── trial, trial, trial ...   next round
//!                                        └── end ── judge ── record, plots, page
//! ```
//! Rounds are the outer loop: whatever else the machine does meets all cells, and the systems are
//! interleaved.

use std::time::Duration;

use super::campaign::{About, Campaign, Common, Conclusion, Report};
use crate::error::LabError;
use crate::record::Record;

/// The measurements of an experiment, and how long they take.
pub(super) struct Schedule<'a, C> {
    /// Name, question and measures.
    pub about: About,
    /// Options that all experiments share.
    pub common: &'a Common,
    /// The cells of one round, in their order.
    pub cells: Vec<C>,
    /// Number of rounds.
    pub repeats: u32,
    /// Number of samples that all rounds take.
    pub samples: usize,
    /// Estimated time of one sample.
    pub guess: Duration,
}

/// An experiment as the runner knows it.
pub(super) trait Method {
    /// One or several measurements that belong together, such as all loads on the same boxes.
    type Cell;
    /// Everything that stands during all rounds. Dropping it removes it.
    type Bench;

    /// Notes the settings of the run, raises the doubts that are known before anything is measured,
    /// and makes ready what stands during all rounds.
    fn prepare(&self, c: &mut Campaign) -> Result<Self::Bench, LabError>;

    /// Measures one cell and takes its samples down.
    fn trial(
        &self,
        c: &mut Campaign,
        bench: &mut Self::Bench,
        cell: &Self::Cell,
        repeat: u32,
    ) -> Result<(), LabError>;

    /// Ends what `prepare` has made ready, when all rounds are over. Not called after an error.
    fn end(&self, _c: &mut Campaign, _bench: Self::Bench) -> Result<(), LabError> {
        Ok(())
    }

    /// Conclusions from the record with all figures, and how they are shown.
    fn judge(record: &Record) -> Conclusion;
}

/// Makes an experiment.
pub(super) fn run<M: Method>(schedule: Schedule<'_, M::Cell>, method: &M) -> Result<Report, LabError> {
    let Schedule { about, common, cells, repeats, samples, guess } = schedule;
    let mut c = Campaign::begin(about, common, samples, guess)?;
    let mut bench = method.prepare(&mut c)?;
    for repeat in 0..repeats {
        for cell in &cells {
            method.trial(&mut c, &mut bench, cell, repeat)?;
        }
    }
    method.end(&mut c, bench)?;
    c.finish(M::judge)
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::fs;
    use std::path::PathBuf;

    use super::*;
    use crate::record::{Better, factors};

    const ABOUT: About = About {
        name: "rounds",
        number: "E0",
        question: "In which order are cells measured?",
        measures: &[("nth", "nth", "1", "place in the order", Better::Neither)],
        baseline: None,
    };

    /// Writes down its calls; the trial `fails_at` fails.
    #[derive(Default)]
    struct Calls {
        said: RefCell<Vec<String>>,
        fails_at: Option<usize>,
    }

    impl Method for Calls {
        type Cell = &'static str;
        /// Number of trials so far.
        type Bench = usize;

        fn prepare(&self, _: &mut Campaign) -> Result<usize, LabError> {
            self.said.borrow_mut().push("prepare".into());
            Ok(0)
        }

        fn trial(
            &self,
            c: &mut Campaign,
            nth: &mut usize,
            cell: &&'static str,
            repeat: u32,
        ) -> Result<(), LabError> {
            if self.fails_at == Some(*nth) {
                return Err(LabError::Measurement("as asked".into()));
            }
            self.said.borrow_mut().push(format!("{cell}{repeat}"));
            c.sample(factors([("cell", *cell)]), repeat, c.elapsed(), &[("nth", *nth as f64)], vec![]);
            *nth += 1;
            Ok(())
        }

        fn end(&self, _: &mut Campaign, trials: usize) -> Result<(), LabError> {
            self.said.borrow_mut().push(format!("end after {trials}"));
            Ok(())
        }

        fn judge(_: &Record) -> Conclusion {
            Conclusion::default()
        }
    }

    fn out(name: &str) -> PathBuf {
        std::env::temp_dir().join(format!("ironlab-runner-{name}-{}", std::process::id()))
    }

    fn made(name: &str, calls: &Calls) -> Result<Report, LabError> {
        let common = Common { out: Some(out(name)), ..Common::default() };
        let (cells, guess) = (vec!["a", "b"], Duration::ZERO);
        run(Schedule { about: ABOUT, common: &common, cells, repeats: 2, samples: 4, guess }, calls)
    }

    #[test]
    fn every_round_measures_every_cell_before_the_next_begins() {
        let calls = Calls::default();
        let report = made("order", &calls).expect("a run");
        assert_eq!(calls.said.into_inner(), ["prepare", "a0", "b0", "a1", "b1", "end after 4"]);
        let order = report.record.samples.iter().map(|s| (s.factors["cell"].as_str(), s.repeat));
        assert_eq!(order.collect::<Vec<_>>(), [("a", 0), ("b", 0), ("a", 1), ("b", 1)]);
        fs::remove_dir_all(&report.folder).expect("removed");
    }

    #[test]
    fn a_trial_that_fails_ends_the_run_and_leaves_no_folder() {
        let calls = Calls { fails_at: Some(1), ..Calls::default() };
        assert!(matches!(made("failed", &calls), Err(LabError::Measurement(_))));
        assert_eq!(calls.said.into_inner(), ["prepare", "a0"]);
        assert!(!out("failed").exists());
    }
}
