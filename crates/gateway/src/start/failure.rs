//! Reasons why the daemon does not start, has to end, or does not reload, as lines for people.

use std::fmt;

use ironswan_keying::Diagnosis;

/// Why the daemon could not start, or had to end.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RunError {
    /// For people, each with the remedy.
    pub lines: Vec<String>,
    /// The daemon had started, and something that it cannot live without went away.
    pub started: bool,
    /// The reason may pass by itself, as a file system that is late at boot does: a second try is
    /// worth it.
    pub passes: bool,
}

impl RunError {
    /// An error that may pass by itself.
    pub(crate) fn passing(line: String) -> Self {
        Self { passes: true, ..line.into() }
    }
}

impl From<Diagnosis> for RunError {
    fn from(why: Diagnosis) -> Self {
        why.to_string().into()
    }
}

impl From<String> for RunError {
    fn from(line: String) -> Self {
        Self { lines: vec![line], started: false, passes: false }
    }
}

/// Reasons why a reload has changed nothing. The log has them already.
#[derive(Debug)]
pub struct NotReloaded(RunError);

impl NotReloaded {
    /// Writes the reasons into the log, each in a line of its own.
    pub(crate) fn logged(reasons: impl Into<RunError>) -> Self {
        let reasons = reasons.into();
        for line in &reasons.lines {
            tracing::error!("{line}");
        }
        tracing::error!("configuration not reloaded, what runs is unchanged");
        Self(reasons)
    }
}

impl fmt::Display for NotReloaded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "configuration not reloaded, what runs is unchanged: {}", self.0.lines.join("; "))
    }
}
