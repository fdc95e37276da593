//! DNS names in `local_addrs` and `remote_addrs`, and when to look each up again.
//!
//! A name is looked up when its connection is loaded, for every attempt to initiate, and every
//! minute (a resolver does not tell how long its answer holds). Nothing that a stranger sends
//! causes a look-up. A look-up that fails leaves what was known; a name that cannot be resolved
//! holds up nothing but its own connection.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::limits::{NAME_PERIOD, NAME_PERIOD_EACH, NAME_RETRY, NAME_RETRY_MAX};

/// A name that some connection has.
#[derive(Default)]
struct Name {
    /// A look-up is under way that keeps the name fresh. Attempts to initiate ask by themselves.
    asked: bool,
    /// Look-ups in a row that have failed.
    failures: u32,
}

/// All names that connections have.
#[derive(Default)]
pub(super) struct Names(BTreeMap<String, Name>);

/// Consequences of an answer of the resolver.
pub(super) struct Answered {
    /// Time until the next look-up, without jitter.
    pub period: Duration,
    /// The name begins to fail with this answer.
    pub begins_to_fail: bool,
}

impl Names {
    /// Number of names.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// Watches a name. True when it has to be looked up now.
    pub(super) fn watch(&mut self, name: &str) -> bool {
        let name = self.0.entry(name.to_owned()).or_default();
        !std::mem::replace(&mut name.asked, true)
    }

    /// The time of a name has come. True when it has to be looked up now.
    pub(super) fn due(&mut self, name: &str) -> bool {
        self.0.get_mut(name).is_some_and(|name| !std::mem::replace(&mut name.asked, true))
    }

    /// Forgets a name.
    pub(super) fn forget(&mut self, name: &str) {
        self.0.remove(name);
    }

    /// The look-up that keeps a name fresh has been answered.
    pub(super) fn no_longer_asked(&mut self, name: &str) {
        if let Some(name) = self.0.get_mut(name) {
            name.asked = false;
        }
    }

    /// Counts an answer, whoever asked. `None` for a name that no connection has.
    pub(super) fn answered(&mut self, name: &str, has_address: bool) -> Option<Answered> {
        let all = u32::try_from(self.0.len()).unwrap_or(u32::MAX).min(100_000);
        let known = self.0.get_mut(name)?;
        let before = known.failures;
        known.failures = if has_address { 0 } else { before.saturating_add(1) };
        let period = match known.failures {
            0 => NAME_PERIOD.max(NAME_PERIOD_EACH * all),
            n => (NAME_RETRY * 2u32.pow(n.min(12) - 1)).min(NAME_RETRY_MAX),
        };
        Some(Answered { period, begins_to_fail: !has_address && before == 0 })
    }
}
