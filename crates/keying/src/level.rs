//! Levels of lines for the log.

/// How much a line matters.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    /// Something failed.
    Error,
    /// Something is odd, and goes on.
    Warn,
    /// An SA has been made, changed or ended.
    Info,
    /// Every message.
    Debug,
}
