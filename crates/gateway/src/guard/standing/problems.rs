//! Steps that the kernel refused, and lines for the log. Each refusal is logged once, and once more
//! when the step succeeds.

use std::collections::BTreeMap;
use std::fmt;

use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::Guard;

/// A line for the log.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum LogLine {
    /// Something failed.
    Failure(Diagnosis),
    /// Anything else.
    Text(String),
}

impl LogLine {
    /// The failure, when the line is about one.
    pub fn why(&self) -> Option<&Diagnosis> {
        match self {
            Self::Failure(why) => Some(why),
            Self::Text(_) => None,
        }
    }
}

impl fmt::Display for LogLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Failure(why) => why.fmt(f),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl<D: Into<Diagnosis>> From<D> for LogLine {
    fn from(why: D) -> Self {
        Self::Failure(why.into())
    }
}

/// Refused steps by name.
#[derive(Debug, Default)]
pub(super) struct Problems {
    /// Refusals since the last plan.
    open: BTreeMap<String, Diagnosis>,
    /// Refusals from before the last plan. Their steps are tried again where the plan still wants
    /// them.
    before: BTreeMap<String, Diagnosis>,
    /// Lines for the log that nobody has taken yet.
    log: Vec<LogLine>,
}

impl Problems {
    /// The reason of the first refusal.
    pub(super) fn first(&self) -> Option<&Diagnosis> {
        self.open.values().next()
    }

    /// A new plan begins: refused steps that it does not want any more are forgotten.
    pub(super) fn begin_plan(&mut self) {
        self.before = std::mem::take(&mut self.open);
    }

    /// True when no step is refused. Then refusals from before the plan are forgotten.
    pub(super) fn settle(&mut self) -> bool {
        if self.open.is_empty() {
            self.before.clear();
        }
        self.open.is_empty()
    }

    pub(super) fn say(&mut self, line: impl Into<LogLine>) {
        self.log.push(line.into());
    }

    pub(super) fn take_log(&mut self) -> Vec<LogLine> {
        std::mem::take(&mut self.log)
    }

    /// The step has succeeded.
    pub(super) fn solved(&mut self, step: &str) {
        if self.open.remove(step).or(self.before.remove(step)).is_some() {
            self.log.push(LogLine::Text(format!("{step}: done at last")));
        }
    }

    /// The step was refused. Returns whether it had not been refused before.
    pub(super) fn failed(&mut self, step: String, why: Diagnosis) -> bool {
        let before = self.open.get(&step).or(self.before.get(&step)).cloned();
        if before.as_ref() != Some(&why) {
            let refused = Guard::StepRefused { step: step.clone(), why: why.to_string() };
            self.log.push(refused.into());
        }
        self.open.insert(step, why);
        before.is_none()
    }
}
