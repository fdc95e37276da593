//! One line of the answer of `ironswan doctor`: what was looked at, how it is, what to do.

use std::fmt;

/// Result of a check.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Verdict {
    /// As it should be.
    Ok,
    /// Could not be looked at.
    Unknown,
    /// Something that a gateway can live with, or that is only likely.
    Warning,
    /// Something that keeps a gateway or a tunnel from working.
    Problem,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ok => "ok",
            Self::Unknown => "unknown",
            Self::Warning => "warning",
            Self::Problem => "problem",
        })
    }
}

/// One line of the answer. A check that finds several things makes several of them.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Check {
    /// Name of the check.
    pub name: &'static str,
    /// How it came out.
    pub verdict: Verdict,
    /// What was found.
    pub what: String,
    /// What to do about it: a command, where there is one. Empty where there is nothing to do.
    pub remedy: String,
}

impl Check {
    pub(super) fn ok(name: &'static str, what: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Ok, what: what.into(), remedy: String::new() }
    }

    pub(super) fn warning(name: &'static str, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Warning, what: what.into(), remedy: remedy.into() }
    }

    pub(super) fn problem(name: &'static str, what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self { name, verdict: Verdict::Problem, what: what.into(), remedy: remedy.into() }
    }

    /// A check whose facts could not be read, and why.
    pub(super) fn unknown(name: &'static str, why: &str) -> Self {
        let remedy = if why.contains("root") { "run `ironswan doctor` as root" } else { "" };
        Self { name, verdict: Verdict::Unknown, what: format!("not checked: {why}"), remedy: remedy.into() }
    }
}
