//! Errors of the laboratory, sorted by who has to act: the caller, the owner of the machine, or
//! whoever looks after the system under test.

use std::fmt;
use std::io;

/// Something the machine lacks, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Remedy {
    /// The missing thing, as a short statement.
    pub lack: String,
    /// The command or action that supplies it.
    pub action: String,
}

impl Remedy {
    /// A lack with its remedy.
    pub fn new(lack: impl Into<String>, action: impl Into<String>) -> Self {
        Self { lack: lack.into(), action: action.into() }
    }
}

/// The last lines of one log, shown when a system under test fails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogTail {
    /// Name of the process whose log this is, for instance `g1`.
    pub of: String,
    /// Last lines of the log, oldest first.
    pub lines: Vec<String>,
}

/// An experiment that could not be done.
#[derive(Debug)]
pub enum LabError {
    /// The options contradict each other or name what does not exist.
    Usage(String),
    /// The machine is not fit: everything it lacks, at once.
    Unfit(Vec<Remedy>),
    /// Ctrl-C, SIGTERM or SIGHUP. What was built is removed by the guards while this travels up.
    Interrupted,
    /// A helper command (`ip`, `ethtool`, `wg` ...) failed.
    Command {
        /// The command as typed.
        command: String,
        /// Message of the process, or how it ended.
        why: String,
    },
    /// The system under test did not start, or did not do its job.
    Dut {
        /// Name of the process.
        dut: String,
        /// The failure, in words.
        why: String,
        /// The end of its logs.
        logs: Vec<LogTail>,
    },
    /// Traffic could not be generated or measured.
    Measurement(String),
    /// A file or kernel interface.
    Io {
        /// The action that was under way.
        what: String,
        /// The system's answer.
        source: io::Error,
    },
}

impl LabError {
    /// For `map_err`: attaches what was being done.
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source }
    }

    /// The exit status for it: 2 when the user or the machine has to change first, 130 after an
    /// interrupt, else 1.
    pub fn exit_code(&self) -> i32 {
        match self {
            Self::Usage(_) | Self::Unfit(_) => 2,
            Self::Interrupted => 130,
            Self::Command { .. } | Self::Dut { .. } | Self::Measurement(_) | Self::Io { .. } => 1,
        }
    }
}

impl fmt::Display for LabError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Usage(why) => f.write_str(why),
            Self::Unfit(remedies) => {
                f.write_str("this machine is not ready for it:")?;
                for r in remedies {
                    write!(f, "\n  - {}\n      {}", r.lack, r.action)?;
                }
                Ok(())
            }
            Self::Interrupted => f.write_str("interrupted; namespaces and processes have been removed"),
            Self::Command { command, why } => write!(f, "`{command}` failed: {why}"),
            Self::Dut { dut, why, logs } => {
                write!(f, "{dut}: {why}")?;
                for log in logs {
                    write!(f, "\n  last lines of {}:", log.of)?;
                    if log.lines.is_empty() {
                        f.write_str("\n    (nothing was logged)")?;
                    }
                    for line in &log.lines {
                        write!(f, "\n    {line}")?;
                    }
                }
                Ok(())
            }
            Self::Measurement(why) => f.write_str(why),
            Self::Io { what, source } => write!(f, "{what}: {source}"),
        }
    }
}

impl std::error::Error for LabError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_missing_is_named_in_one_message_with_its_remedy() {
        let e = LabError::Unfit(vec![
            Remedy::new("not root", "run it with sudo"),
            Remedy::new("iperf3 is not installed", "apt-get install iperf3"),
        ]);
        let text = e.to_string();
        assert_eq!(e.exit_code(), 2);
        for part in ["not root", "run it with sudo", "iperf3 is not installed", "apt-get install iperf3"] {
            assert!(text.contains(part), "{part} is not in {text}");
        }
    }

    #[test]
    fn a_failed_system_under_test_shows_the_end_of_each_log() {
        let e = LabError::Dut {
            dut: "ironswan".into(),
            why: "the tunnel did not come up".into(),
            logs: vec![
                LogTail { of: "g1".into(), lines: vec!["received NO_PROPOSAL_CHOSEN".into()] },
                LogTail { of: "g2".into(), lines: vec![] },
            ],
        };
        let text = e.to_string();
        assert_eq!(e.exit_code(), 1);
        assert!(text.contains("last lines of g1:\n    received NO_PROPOSAL_CHOSEN"));
        assert!(text.contains("last lines of g2:\n    (nothing was logged)"));
    }
}
