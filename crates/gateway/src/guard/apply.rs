//! Runs the passes that make the kernel as the plan says: at most one replacement of the nft table
//! at a time, in at most a quarter of the time. Commands wait here until their change stands.
//!
//! ```text
//! change ─▶ plan, close (rules, throw, unreachable) ─▶ nft, ingress: threads of their own ─▶ open ─▶ who waits is told
//!     ▲                                                                                 │
//!     └─── a pause of 20 ms, or of three times what that took but for the ingress; 1 s after a failure ◀┘
//! ```
//! So loading 10,000 connections one by one replaces the table some dozens of times. Until the
//! table stands, the routes that [`crate::guard::standing::StandingGuard::loading`] set at once
//! keep what is to be protected from leaving.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ironswan_io::clock;
use ironswan_io::nft::Touch;
use tokio::sync::Notify;

use crate::driver::Driver;
use crate::driver::pool::Turn;
use crate::guard::ingress::thread::KeeperThread;
use crate::guard::plan::from_config::{self, Configured};
use crate::guard::{Counters, Nft};

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

/// Replaces the nft table by this text. Blocks; called by one thread at a time.
pub type Replace = Arc<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// How many of our own runs of `nft` are remembered.
const MAX_OWN_RUNS: usize = 64;

/// Replaces and removes the nft table by the program `nft`. Remembers its own runs, to tell other
/// programs' changes from ours.
#[derive(Debug)]
pub struct Table {
    nft: Nft,
    own: Mutex<VecDeque<u32>>,
    /// The daemon ends: its last table is being written. Replacements that still wait have an older
    /// text.
    ended: AtomicBool,
}

impl Table {
    /// With this program.
    pub fn new(nft: Nft) -> Arc<Self> {
        Arc::new(Self { nft, own: Mutex::default(), ended: AtomicBool::new(false) })
    }

    /// Replaces the table. Blocks for as long as the program takes.
    ///
    /// # Errors
    /// `nft` refused the text, or the daemon's last table has been written or is being written.
    pub fn replace(&self, text: &str) -> Result<(), String> {
        let own = self.own();
        match self.ended.load(SeqCst) {
            true => Err("the gateway has put its last table there".to_owned()),
            false => self.apply(own, text),
        }
    }

    /// Replaces the table for the last time: replacements that wait for a thread are not done any
    /// more.
    ///
    /// # Errors
    /// The error of `nft`.
    pub fn replace_last(&self, text: &str) -> Result<(), String> {
        self.end();
        self.apply(self.own(), text)
    }

    /// Refuses all further replacements but [`Self::replace_last`], which waits for one that runs.
    pub fn end(&self) {
        self.ended.store(true, SeqCst);
    }

    /// Our own runs of `nft`. The lock allows one run at a time; [`Self::judge`] waits for its end.
    fn own(&self) -> MutexGuard<'_, VecDeque<u32>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply(&self, mut own: MutexGuard<'_, VecDeque<u32>>, text: &str) -> Result<(), String> {
        let pid = self.nft.apply(text).map_err(|e| e.to_string())?;
        own.push_back(pid);
        if own.len() > MAX_OWN_RUNS {
            own.pop_front();
        }
        Ok(())
    }

    /// Says in words how another program has touched the table; `None` when it was ourselves. Ask
    /// it while no replacement runs.
    pub fn judge(&self, touch: &Touch) -> Option<String> {
        let own = self.own();
        if own.iter().any(|pid| touch.is_by(*pid)) {
            return None;
        }
        if touch.lost {
            // A large table of our own makes more notices than the kernel keeps, so look whether
            // the table stands.
            return match self.nft.present() {
                Ok(true) => None,
                _ => Some("removed by somebody".to_owned()),
            };
        }
        Some(format!("changed or removed by {touch}"))
    }

    /// The counters of what the guard dropped.
    pub fn counters(&self) -> Counters {
        self.nft.counters().ok().flatten().unwrap_or_default()
    }

    /// Removes the table, and refuses further replacements.
    ///
    /// # Errors
    /// `nft` refused.
    pub fn remove(&self) -> Result<(), String> {
        self.end();
        let _own = self.own();
        self.nft.remove().map(|_| ()).map_err(|e| e.to_string())
    }
}

/// State of the passes ([`Driver::run_guard_passes`]), and of the commands that wait for them.
#[derive(Default)]
pub struct Passes {
    running: Cell<bool>,
    /// The table, when there is a guard.
    table: RefCell<Option<Arc<Table>>>,
    /// The table is being replaced now.
    replacing: Cell<bool>,
    /// The newest change that has been announced.
    announced: Cell<u64>,
    changed: Notify,
    /// The number of the change up to which the last pass went, successful or not.
    passed: Cell<u64>,
    pass: Notify,
    /// How much of [`COMMAND_WAIT`] was used, and when that was written down.
    spent: Cell<Option<(Instant, Duration)>>,
}

impl Passes {
    /// Announces a change of the wanted state by its number.
    pub(crate) fn wanted(&self, change: u64) {
        if self.announced.replace(change) != change {
            self.changed.notify_one();
        }
    }
}

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
            if !self.installed(|i| i.guard().is_due()) {
                self.guard_passes().changed.notified().await;
                continue;
            }
            let began = clock::now();
            let (generation, table) = self.close();
            let ingress = self.installed(|i| i.guard().keeper_thread().map(KeeperThread::settled));
            if let Some(text) = table {
                let (replace, text) = (replace.clone(), Arc::<str>::from(text));
                let shared = text.clone();
                self.guard_passes().replacing.set(true);
                let result = match self.pools().nft.run(Turn::First, usize::MAX, move || replace(&shared)) {
                    Ok(replaced) => replaced.await.unwrap_or_else(|_| Err("nft ended badly".to_owned())),
                    Err(why) => Err(why.to_string()),
                };
                self.guard_passes().replacing.set(false);
                self.install(|i| i.guard_mut().table_replaced(&text, result));
            }
            // The ingress does not count: its thread limits its own share of the time, and a lost
            // table must not wait for it.
            let cost = clock::now().saturating_duration_since(began);
            if let Some(settled) = ingress {
                settled.await;
            }
            self.open(generation);
            tokio::time::sleep(PAUSE.max(cost * (PASS_SHARE - 1))).await;
            if self.installed(|i| i.guard().problem().is_some()) {
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
    pub fn guard_pass_now(&self, replace: &Replace, loaded: Configured) -> Result<(), String> {
        let (generation, table) = self.install(|i| (i.replan(loaded), i.guard_mut().begin_table()));
        if let Some(text) = table {
            let result = replace(&text);
            self.install(|i| i.guard_mut().table_replaced(&text, result));
        }
        self.install(|i| {
            i.guard().keeper_thread().into_iter().for_each(KeeperThread::settle);
            i.guard_mut().ingress_kept();
        });
        self.open(generation);
        self.installed(|i| i.guard().problem().map_or(Ok(()), |p| Err(p.to_owned())))
    }

    fn close(&self) -> (u64, Option<String>) {
        self.both(|endpoint, installer| {
            let generation = installer.replan(from_config::configured(endpoint.connections()));
            (generation, installer.guard_mut().begin_table())
        })
    }

    fn open(&self, generation: u64) {
        self.install(|i| i.open(generation));
        self.guard_passes().passed.set(generation);
        self.guard_passes().pass.notify_waiters();
    }

    /// Packets that the guard dropped; `None` without a guard, or when too many others ask.
    pub async fn guard_counters(&self) -> Option<Counters> {
        let table = self.guard_passes().table.borrow().clone()?;
        // After a replacement that is due, and not for more clients than a few.
        let counted = self.pools().nft.run(Turn::Later(0), MAX_READERS, move || table.counters());
        let counters = counted.ok()?.await.ok()?;
        Some(counters.and(self.installed(|i| i.guard().dropped_at_ingress())))
    }

    /// Tells that [`Self::run_guard_passes`] was dropped. Where that interrupted a replacement,
    /// either table may stand.
    pub fn guard_passes_ended(&self) {
        self.guard_passes().running.set(false);
        if self.guard_passes().replacing.replace(false) {
            self.install(|i| i.guard_mut().table_lost());
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
            if self.installed(|i| i.guard().table().is_none()) {
                return;
            }
            pass.await;
        }
    }

    /// Waits until everything that is wanted now stands in the kernel.
    ///
    /// # Errors
    /// The reason why a pass has failed to set it.
    pub async fn guarded(&self) -> Result<(), String> {
        let passes = self.guard_passes();
        let wanted = self.installed(|i| i.guard().progress().0);
        while passes.running.get() {
            let pass = passes.pass.notified();
            let (stands, problem) = self.installed(|i| {
                let s = i.guard();
                (s.progress().1, s.problem().map(str::to_owned))
            });
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
