//! Steps that the kernel refused, and lines for the log. Each refusal is logged once, and once more
//! when the step succeeds.

use std::collections::BTreeMap;

/// Refused steps by name.
#[derive(Debug, Default)]
pub(super) struct Problems {
    /// Refusals since the last plan.
    open: BTreeMap<String, String>,
    /// Refusals from before the last plan. Their steps are tried again where the plan still wants
    /// them.
    before: BTreeMap<String, String>,
    /// Lines for the log that nobody has taken yet.
    log: Vec<String>,
}

impl Problems {
    /// The reason of the first refusal.
    pub(super) fn first(&self) -> Option<&str> {
        self.open.values().next().map(String::as_str)
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

    pub(super) fn say(&mut self, line: String) {
        self.log.push(line);
    }

    pub(super) fn take_log(&mut self) -> Vec<String> {
        std::mem::take(&mut self.log)
    }

    /// The step has succeeded.
    pub(super) fn solved(&mut self, step: &str) {
        if self.open.remove(step).or(self.before.remove(step)).is_some() {
            self.log.push(format!("{step}: done at last"));
        }
    }

    /// The step was refused. Returns whether it had not been refused before.
    pub(super) fn failed(&mut self, step: String, why: String) -> bool {
        let before = self.open.get(&step).or(self.before.get(&step)).cloned();
        if before.as_ref() != Some(&why) {
            self.log.push(format!("{step}: {why}; what it protects goes nowhere until it succeeds"));
        }
        self.open.insert(step, why);
        before.is_none()
    }
}
