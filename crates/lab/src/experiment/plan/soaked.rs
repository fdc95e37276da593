//! The planner's loads beside a CPU soaker: where the kernel's accounting, from which the model is
//! made, and the soaker disagree.

use std::sync::Arc;

use super::super::rig::Rig;
use super::Load;
use crate::error::LabError;
use crate::measure::Meter;
use crate::measure::soaker::{Busy, Soak};
use crate::plan::model::Seen;
use crate::report::{Warning, accounting};

/// A soaker at work beside loads, and what is to be doubted for it.
pub(super) struct Soaked {
    soak: Arc<Soak>,
    doubts: Vec<Warning>,
    /// The load at which they differ most, by how much more than is explained, and how many do.
    worst: Option<(Busy, String)>,
    apart: usize,
}

impl Soaked {
    /// Starts it, when nothing else is at work yet.
    pub(super) fn start() -> Result<Self, LabError> {
        let soak = Soak::start()?;
        let doubts = accounting::calibration_doubts(soak.calibration()).into_iter().collect();
        Ok(Self { soak: Arc::new(soak), doubts, worst: None, apart: 0 })
    }

    /// The soaker works beside the loads on this rig; its time is in no cost.
    pub(super) fn beside(&self, rig: &mut Rig) {
        rig.soak = Some(self.soak.clone());
    }

    /// Makes one load, and compares.
    pub(super) fn once(
        &mut self,
        rig: &mut Rig,
        load: &Load,
        once: impl FnOnce(&mut Rig) -> Result<Seen, LabError>,
    ) -> Result<Seen, LabError> {
        let meter = Meter::start(&rig.line.boxes(), &[], Some(&self.soak))?;
        let seen = once(rig)?;
        let used = meter.stop(&rig.line.boxes())?;
        if let Some(busy) = used.both.filter(|busy| busy.unexplained() > 0.0) {
            self.apart += 1;
            if self.worst.as_ref().is_none_or(|(worst, _)| busy.unexplained() > worst.unexplained()) {
                self.worst = Some((busy, format!("{}, {}", rig.name(), load.name())));
            }
        }
        Ok(seen)
    }

    /// Warnings that follow from the soaker's share.
    pub(super) fn doubts(self) -> Vec<Warning> {
        let worst = self.worst.map(|(busy, cell)| doubt(&busy, cell, self.apart));
        self.doubts.into_iter().chain(worst).collect()
    }
}

/// The worst of so many loads.
fn doubt(busy: &Busy, cell: String, of: usize) -> Warning {
    let cell = if of > 1 { format!("{cell} (the worst of {of} such loads)") } else { cell };
    accounting::doubt(busy, cell)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_doubted_whose_soaker_got_less_than_accounting_says() {
        let busy = |soaker| Busy { accounting: 0.3, soaker, apart: 0.1 };
        assert!(busy(0.39).unexplained() < 0.0 && busy(0.8).unexplained() > busy(0.5).unexplained());
        let text = |of| doubt(&busy(0.8), "ironswan, 64 B".into(), of).text();
        assert!(text(1).starts_with("ironswan, 64 B: 30 % of the processors were busy"), "{}", text(1));
        assert!(text(37).starts_with("ironswan, 64 B (the worst of 37 such loads): 30 %"), "{}", text(37));
    }
}
