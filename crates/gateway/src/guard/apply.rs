//! Runs the passes that make the kernel as the plan says: at most one replacement of the nft table
//! at a time, in at most a quarter of the time. Commands wait here until their change stands.
//!
//! ```text
//! change ──▶ plan ──▶ close ──▶ nft, ingress ──▶ open ──▶ who waits is told
//!    ▲                                             │
//!    └────────────────── a pause ──────────────────┘
//! ```
//! To close is to set rules, throw and unreachable routes. `nft` and the ingress have threads of
//! their own. The pause is 20 ms, or three times as long as the work without the ingress took;
//! after a failure it is 1 s.
//!
//! So loading 10,000 connections one by one replaces the table some dozens of times. Until the
//! table stands, the routes that [`crate::guard::standing::StandingGuard::loading`] set at once
//! keep what is to be protected from leaving.

use std::sync::Arc;
use std::time::Duration;

use ironswan_io::clock;
use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::Guard;

use super::ingress::thread::KeeperThread;
use super::nft::Counters;
use super::plan::from_config::{self, Configured};
use super::table::Table;
use crate::driver::Driver;
use crate::driver::pool::Turn;

/// Shortest pause between two passes.
const PAUSE: Duration = Duration::from_millis(20);
/// A pass may use at most one part in this many of the time: after a pass of t follows a pause of 3
/// t.
const PASS_SHARE: u32 = 4;
/// Pause after a failure, unless something changes.
const RETRY: Duration = Duration::from_secs(1);
/// How long all commands together wait for the kernel; further ones are answered without waiting.
/// So a client that loads one connection is told when it is guarded, and one that loads thousands
/// is not held up by each.
const COMMAND_WAIT: Duration = Duration::from_secs(1);
/// The waiting time grows back by 1 s in this many seconds.
const COMMAND_WAIT_REGROWTH: u32 = 10;

/// How many commands may wait for the counters of the nft table.
const MAX_READERS: usize = 64;

/// The entry for a run of `nft` that was not begun, or of which nobody knows the end.
fn no_run(why: impl std::fmt::Display) -> Guard {
    Guard::NftBroken { program: "nft".to_owned(), why: why.to_string() }
}

/// Replaces the nft table by this text. Blocks; called by one thread at a time.
pub type Replace = Arc<dyn Fn(&str) -> Result<(), Guard> + Send + Sync>;

impl Driver {
    /// Repeats passes whenever a change is wanted, until the future is dropped. From the call on,
    /// [`Self::guarded`] waits for the passes.
    pub fn run_guard_passes(&self, replace: Replace) -> impl Future<Output = ()> + 'static {
        self.guard_passes().running.set(true);
        let driver = self.clone();
        async move { driver.repeat_guard_passes(replace).await }
    }

    async fn repeat_guard_passes(&self, replace: Replace) {
        loop {
            if !self.guard(|g| g.is_due()) {
                self.guard_passes().changed.notified().await;
                continue;
            }
            let began = clock::now();
            let (generation, table) = self.close();
            let ingress = self.guard(|g| g.keeper_thread().map(KeeperThread::settled));
            if let Some(text) = table {
                let (replace, text) = (replace.clone(), Arc::<str>::from(text));
                let shared = text.clone();
                self.guard_passes().replacing.set(true);
                let result = match self.pools().nft.run(Turn::First, usize::MAX, move || replace(&shared)) {
                    Ok(replaced) => {
                        replaced.await.unwrap_or_else(|_| Err(no_run("the thread of the run has failed")))
                    }
                    Err(why) => Err(no_run(why)),
                };
                self.guard_passes().replacing.set(false);
                self.change_guard(|g, _| g.table_replaced(&text, result));
            }
            // The ingress does not count: its thread limits its own share of the time, and a lost
            // table must not wait for it.
            let cost = clock::now().saturating_duration_since(began);
            if let Some(settled) = ingress {
                settled.await;
            }
            self.open(generation);
            tokio::time::sleep(PAUSE.max(cost * (PASS_SHARE - 1))).await;
            if self.guard(|g| g.problem().is_some()) {
                tokio::select! {
                    () = tokio::time::sleep(RETRY) => {}
                    () = self.guard_passes().changed.notified() => {}
                }
            }
        }
    }

    /// One pass, now, blocking, with this as the configuration: at start, before it is loaded, and
    /// at the end.
    ///
    /// # Errors
    /// The first thing that the kernel refused.
    pub fn guard_pass_now(&self, replace: &Replace, loaded: Configured) -> Result<(), Diagnosis> {
        let generation = self.replan(loaded);
        let table = self.change_guard(|g, _| g.begin_table());
        if let Some(text) = table {
            let result = replace(&text);
            self.change_guard(|g, _| g.table_replaced(&text, result));
        }
        self.change_guard(|g, _| {
            g.keeper_thread().into_iter().for_each(KeeperThread::settle);
            g.ingress_kept();
        });
        self.open(generation);
        self.guard(|g| g.problem().map_or(Ok(()), |p| Err(p.clone())))
    }

    fn close(&self) -> (u64, Option<String>) {
        let loaded = self.view(|e, _| from_config::configured(e.connections().iter().map(|c| &**c)));
        let generation = self.replan(loaded);
        (generation, self.change_guard(|g, _| g.begin_table()))
    }

    fn open(&self, generation: u64) {
        self.change_guard(|guard, kernel| guard.open(kernel, generation));
        self.guard_passes().passed.set(generation);
        self.guard_passes().pass.notify_waiters();
    }

    /// Packets that the guard dropped; `None` without a guard, or when too many others ask.
    pub async fn guard_counters(&self) -> Option<Counters> {
        let table = self.guard_passes().table.borrow().clone()?;
        // After a replacement that is due, and not for more clients than a few.
        let counted = self.pools().nft.run(Turn::Later(0), MAX_READERS, move || table.counters());
        let counters = counted.ok()?.await.ok()?;
        Some(counters.and(self.guard(|g| g.dropped_at_ingress())))
    }

    /// Tells that [`Self::run_guard_passes`] was dropped. Where that interrupted a replacement,
    /// either table may stand.
    pub fn guard_passes_ended(&self) {
        self.guard_passes().running.set(false);
        if self.guard_passes().replacing.replace(false) {
            self.change_guard(|g, _| g.table_lost());
        }
    }

    /// Sets the table from which [`Self::guard_counters`] reads.
    pub fn set_guard_table(&self, table: Arc<Table>) {
        self.guard_passes().table.replace(Some(table));
    }

    /// Waits until the nft table is not being replaced.
    pub async fn replaced(&self) {
        loop {
            let pass = self.guard_passes().pass.notified();
            if !self.guard_passes().replacing.get() {
                return;
            }
            pass.await;
        }
    }

    /// Waits until the nft table stands as it should.
    pub async fn table_stands(&self) {
        loop {
            let pass = self.guard_passes().pass.notified();
            if self.guard(|g| g.table().is_none()) {
                return;
            }
            pass.await;
        }
    }

    /// Waits until everything that is wanted now stands in the kernel.
    ///
    /// # Errors
    /// The reason why a pass has failed to set it.
    pub async fn guarded(&self) -> Result<(), Diagnosis> {
        let passes = self.guard_passes();
        let wanted = self.guard(|g| g.progress().0);
        while passes.running.get() {
            let pass = passes.pass.notified();
            let (stands, problem) = self.guard(|g| (g.progress().1, g.problem().cloned()));
            match problem {
                _ if stands >= wanted => break,
                Some(why) if passes.passed.get() >= wanted => return Err(why),
                _ => pass.await,
            }
        }
        Ok(())
    }

    /// Waits for [`Self::guarded`], but no longer than `COMMAND_WAIT` allows.
    pub async fn guarded_soon(&self) {
        let passes = self.guard_passes();
        let now = clock::now();
        let spent = passes.spent.get().map_or(Duration::ZERO, |(at, spent)| {
            spent.saturating_sub(now.saturating_duration_since(at) / COMMAND_WAIT_REGROWTH)
        });
        let left = COMMAND_WAIT.saturating_sub(spent);
        // A pass takes at least this long.
        if left < PAUSE {
            return;
        }
        // A failure has been logged already.
        let _ = tokio::time::timeout(left, self.guarded()).await;
        let took = clock::now().saturating_duration_since(now);
        passes.spent.set(Some((clock::now(), spent + took)));
    }
}

#[cfg(test)]
#[path = "apply_tests.rs"]
mod tests;
