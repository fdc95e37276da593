//! The state of the guard's passes. The driver announces changes here; `apply` runs the passes.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::Notify;

use super::table::Table;

/// State of the passes, and of the commands that wait for them.
#[derive(Default)]
pub struct Passes {
    pub(super) running: Cell<bool>,
    /// The table, when there is a guard.
    pub(super) table: RefCell<Option<Arc<Table>>>,
    /// The table is being replaced now.
    pub(super) replacing: Cell<bool>,
    /// The newest change that has been announced.
    announced: Cell<u64>,
    pub(super) changed: Notify,
    /// The number of the change up to which the last pass went, successful or not.
    pub(super) passed: Cell<u64>,
    pub(super) pass: Notify,
    /// Time that commands have waited of the time that they may, and when that was written down.
    pub(super) spent: Cell<Option<(Instant, Duration)>>,
}

impl Passes {
    /// Announces a change of the wanted state by its number.
    pub(crate) fn wanted(&self, change: u64) {
        if self.announced.replace(change) != change {
            self.changed.notify_one();
        }
    }
}
