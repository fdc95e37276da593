//! The experiments of the laboratory, one file each, and what they share: options with defaults, one measured trial.

mod demo;
mod doubts;
mod line;
mod trial;

pub use demo::{DemoOptions, demo};
pub use line::{LineOptions, LineReport, line, line_command, report_command};

#[cfg(test)]
pub(crate) use line::history_note;
