//! A soaker's word on a part of an experiment, beside the kernel's accounting, where no window of
//! its own measures it.

use super::campaign::Campaign;
use crate::error::LabError;
use crate::measure::Meter;
use crate::measure::soaker::Busy;
use crate::topology::Line;

/// Under way; of no value where no soaker is at work.
#[derive(Debug)]
pub(super) struct Beside(Option<Meter>);

impl Beside {
    /// Begins on a line. `own` are processes that belong to the experiment and are on none of its
    /// boxes.
    pub(super) fn start(c: &Campaign, line: &Line, own: &[u32]) -> Result<Self, LabError> {
        // Looking through all processes takes time that a run without a soaker does not have to
        // spend.
        let start = |soak| Meter::start(&line.boxes(), own, Some(soak));
        Ok(Self(c.soak().map(start).transpose()?))
    }

    /// The share of the processors that was busy since, by accounting and by the soaker, as
    /// measures.
    pub(super) fn stop(self, line: &Line) -> Result<[(&'static str, f64); 3], LabError> {
        let used = self.0.map(|meter| meter.stop(&line.boxes())).transpose()?;
        Ok(used.map_or_else(|| Busy::measures(None), |used| used.by_soaker()))
    }
}
