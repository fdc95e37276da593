//! Why a command did not do what it was asked.

/// A command that did not do what it was asked.
#[derive(Debug)]
pub(crate) struct Failure {
    /// Exit status.
    pub(crate) status: u8,
    /// Lines for people; each says what to do, where something can be done.
    pub(crate) lines: Vec<String>,
}

impl Failure {
    /// The answer is no: exit status 1.
    pub(crate) fn no(line: impl Into<String>) -> Self {
        Self { status: 1, lines: vec![line.into()] }
    }

    /// An error in the command line, or a file that cannot be read or written: exit status 2.
    pub(crate) fn usage(line: impl Into<String>) -> Self {
        Self { status: 2, lines: vec![line.into()] }
    }

    /// The library failed where nothing that somebody gave us can be wrong.
    pub(crate) fn internal(what: &str) -> Self {
        Self::usage(format!("{what} failed inside this program; please report it"))
    }
}
