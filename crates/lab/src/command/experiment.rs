//! The trait of an experiment on the command line.

use crate::{LabError, Report};

/// An experiment as the command line asks for it.
pub(super) trait Experiment {
    /// Name of the command after `ironswan lab`.
    const NAME: &'static str;
    /// Options of the experiment itself.
    type Options;

    /// Whether the record is printed as JSON instead of text.
    fn json(&self) -> bool;

    /// Options of the experiment from those of the command line. The error says which option of the
    /// command line is refused, and why.
    fn options(self) -> Result<Self::Options, String>;

    /// Makes the experiment.
    fn make(options: Self::Options) -> Result<Report, LabError>;
}
