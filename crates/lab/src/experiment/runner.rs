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
