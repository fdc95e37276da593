//! Makes the kernel as the plan says and keeps it so: carries out changes, at most one replacement of the nft table at a
//! time and none more often than it costs; restores what somebody removes.
//!
//! ```text
//! change ─▶ plan, close (rules, throw, unreachable) ─▶ nft, ingress: threads of their own ─▶ open ─▶ who waits is told
//!     ▲                                                                                 │
//!     └─── a pause of 20 ms, or of three times what that took but for the ingress; 1 s after a failure ◀┘
//! ```
//! So loading 10,000 connections one by one replaces the table some dozens of times. Until the table stands, the routes
//! that [`crate::guard::standing::Steering::loading`] set at once keep what is to be protected from leaving.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use ironswan_io::clock;
use ironswan_io::nft::Touch;
use tokio::sync::Notify;

use crate::driver::Driver;
use crate::guard::ingress::thread::Keeping;
use crate::guard::plan::from_config::{self, Configured};
use crate::guard::{Counters, Nft};
use crate::pool::Turn;

/// Shortest pause between two passes.
const PAUSE: Duration = Duration::from_millis(20);
/// A pass may take this part of the time: one of so many.
const SHARE: u32 = 4;
/// Pause after a failure, unless something changes.
const RETRY: Duration = Duration::from_secs(1);
/// How long commands wait for the kernel in all before they are answered without waiting, and how fast that grows back: a
/// client that loads one connection is told when it is guarded, one that loads thousands is not held up by each.
const PATIENCE: Duration = Duration::from_secs(1);
const PATIENCE_SHARE: u32 = 10;

/// So many commands may wait for the counters of the nft table.
const MAX_READERS: usize = 64;

/// Replaces the nft table by this text. Blocks; called by one thread at a time.
pub type Replace = Arc<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// As many of our own runs of `nft` are remembered.
const OWN: usize = 64;

/// The nft table, as the program `nft` replaces it; knows which changes of it are our own.
#[derive(Debug)]
pub struct Table {
    nft: Nft,
    own: Mutex<VecDeque<u32>>,
    /// The last table is on its way: whoever still waits to replace it has an older one.
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
    /// What the program says; or the last table is there, or on its way.
    pub fn replace(&self, text: &str) -> Result<(), String> {
        let own = self.own();
        match self.ended.load(SeqCst) {
            true => Err("the gateway has put its last table there".to_owned()),
            false => self.apply(own, text),
        }
    }

    /// Replaces the table for the last time: replacements that wait for a thread are not done any more.
    ///
    /// # Errors
    /// What the program says.
    pub fn replace_last(&self, text: &str) -> Result<(), String> {
        self.end();
        self.apply(self.own(), text)
    }

    /// What stands stays, unless [`Self::replace_last`] is called. One that runs is waited for there.
    pub fn end(&self) {
        self.ended.store(true, SeqCst);
    }

    /// The lock keeps it to one at a time, and who asks whose change it was waits for the answer.
    fn own(&self) -> MutexGuard<'_, VecDeque<u32>> {
        self.own.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn apply(&self, mut own: MutexGuard<'_, VecDeque<u32>>, text: &str) -> Result<(), String> {
        let pid = self.nft.apply(text).map_err(|e| e.to_string())?;
        own.push_back(pid);
        if own.len() > OWN {
            own.pop_front();
        }
        Ok(())
    }

    /// What happened to the table, when it was not us: "changed by ...", "lost". `None` when all is well. To be asked
    /// while no replacement runs.
    pub fn judge(&self, touch: &Touch) -> Option<String> {
        let own = self.own();
        if own.iter().any(|pid| touch.is_by(*pid)) {
            return None;
        }
        if touch.lost {
            // Most likely our own large table made more notices than the kernel keeps: a look decides.
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

    /// Takes the table away, for good.
    ///
    /// # Errors
    /// What the program says.
    pub fn remove(&self) -> Result<(), String> {
        self.end();
        let _own = self.own();
        self.nft.remove().map(|_| ()).map_err(|e| e.to_string())
    }
}

/// Who waits for whom.
#[derive(Default)]
pub struct Enforcing {
    running: Cell<bool>,
    /// What replaces the table, and counts.
    table: RefCell<Option<Arc<Table>>>,
    /// The table is being replaced now.
    replacing: Cell<bool>,
    /// The newest change that has been announced.
    announced: Cell<u64>,
    changed: Notify,
    /// The change up to which a pass went, successful or not.
    passed: Cell<u64>,
    pass: Notify,
    /// Waiting that was spent, as of then.
    spent: Cell<Option<(Instant, Duration)>>,
}

impl Enforcing {
    /// What is wanted has changed for the so many-th time.
    pub(crate) fn wanted(&self, change: u64) {
        if self.announced.replace(change) != change {
            self.changed.notify_one();
        }
    }
}

impl Driver {
    /// Runs until it is dropped. From the call on, [`Self::guarded`] waits for it.
    pub fn enforce(&self, replace: Replace) -> impl Future<Output = ()> + 'static {
        self.enforcing().running.set(true);
        let driver = self.clone();
        async move { driver.keep_enforcing(replace).await }
    }

    async fn keep_enforcing(&self, replace: Replace) {
        loop {
            if !self.installed(|i| i.steering().is_due()) {
                self.enforcing().changed.notified().await;
                continue;
            }
            let began = clock::now();
            let (generation, table) = self.close();
            let ingress = self.installed(|i| i.steering().keeping().map(Keeping::settled));
            if let Some(text) = table {
                let (replace, text) = (replace.clone(), Arc::<str>::from(text));
                let shared = text.clone();
                self.enforcing().replacing.set(true);
                let result = match self.pools().nft.run(Turn::First, usize::MAX, move || replace(&shared)) {
                    Ok(replaced) => replaced.await.unwrap_or_else(|_| Err("nft ended badly".to_owned())),
                    Err(why) => Err(why.to_string()),
                };
                self.enforcing().replacing.set(false);
                self.install(|i| i.steering_mut().table_replaced(&text, result));
            }
            // A table that is lost meanwhile is not to wait for what the ingress costs: its thread shares the processor by itself.
            let cost = clock::now().saturating_duration_since(began);
            if let Some(settled) = ingress {
                settled.await;
            }
            self.open(generation);
            tokio::time::sleep(PAUSE.max(cost * (SHARE - 1))).await;
            if self.installed(|i| i.steering().problem().is_some()) {
                tokio::select! {
                    () = tokio::time::sleep(RETRY) => {}
                    () = self.enforcing().changed.notified() => {}
                }
            }
        }
    }

    /// One pass, now, blocking, with this as the configuration: at start, before it is loaded, and at the end.
    ///
    /// # Errors
    /// The first thing that the kernel refused.
    pub fn enforce_now(&self, replace: &Replace, loaded: Configured) -> Result<(), String> {
        let (generation, table) = self.install(|i| (i.replan(loaded), i.steering_mut().begin_table()));
        if let Some(text) = table {
            let result = replace(&text);
            self.install(|i| i.steering_mut().table_replaced(&text, result));
        }
        self.install(|i| {
            i.steering().keeping().into_iter().for_each(Keeping::settle);
            i.steering_mut().ingress_kept();
        });
        self.open(generation);
        self.installed(|i| i.steering().problem().map_or(Ok(()), |p| Err(p.to_owned())))
    }

    fn close(&self) -> (u64, Option<String>) {
        self.both(|endpoint, installer| {
            let generation = installer.replan(from_config::configured(endpoint.connections()));
            (generation, installer.steering_mut().begin_table())
        })
    }

    fn open(&self, generation: u64) {
        self.install(|i| i.open(generation));
        self.enforcing().passed.set(generation);
        self.enforcing().pass.notify_waiters();
    }

    /// What the guard dropped; `None` without a guard, or when too many others ask.
    pub async fn guard_counters(&self) -> Option<Counters> {
        let table = self.enforcing().table.borrow().clone()?;
        // After a replacement that is due, and not for more clients than a few.
        let counted = self.pools().nft.run(Turn::Later(0), MAX_READERS, move || table.counters());
        let counters = counted.ok()?.await.ok()?;
        Some(counters.and(self.installed(|i| i.steering().dropped_at_ingress())))
    }

    /// [`Self::enforce`] has been dropped. A table that was being replaced then may stand, or the one before.
    pub fn enforces_no_more(&self) {
        self.enforcing().running.set(false);
        if self.enforcing().replacing.replace(false) {
            self.install(|i| i.steering_mut().table_lost());
        }
    }

    /// This table is the guard's.
    pub fn guard_is(&self, table: Arc<Table>) {
        self.enforcing().table.replace(Some(table));
    }

    /// Waits until the nft table is not being replaced.
    pub async fn replaced(&self) {
        loop {
            let pass = self.enforcing().pass.notified();
            if !self.enforcing().replacing.get() {
                return;
            }
            pass.await;
        }
    }

    /// Waits until the nft table stands as it should.
    pub async fn table_stands(&self) {
        loop {
            let pass = self.enforcing().pass.notified();
            if self.installed(|i| i.steering().table().is_none()) {
                return;
            }
            pass.await;
        }
    }

    /// Waits until all that is wanted now stands in the kernel.
    ///
    /// # Errors
    /// Why it does not, when it was tried in vain.
    pub async fn guarded(&self) -> Result<(), String> {
        let enforcing = self.enforcing();
        let wanted = self.installed(|i| i.steering().progress().0);
        while enforcing.running.get() {
            let pass = enforcing.pass.notified();
            let (stands, problem) = self.installed(|i| {
                let s = i.steering();
                (s.progress().1, s.problem().map(str::to_owned))
            });
            match problem {
                _ if stands >= wanted => break,
                Some(why) if enforcing.passed.get() >= wanted => return Err(why),
                _ => pass.await,
            }
        }
        Ok(())
    }

    /// [`Self::guarded`], as far as patience goes.
    pub async fn guarded_soon(&self) {
        let enforcing = self.enforcing();
        let now = clock::now();
        let spent = enforcing.spent.get().map_or(Duration::ZERO, |(at, spent)| {
            spent.saturating_sub(now.saturating_duration_since(at) / PATIENCE_SHARE)
        });
        let left = PATIENCE.saturating_sub(spent);
        // Less is no time to do anything.
        if left < PAUSE {
            return;
        }
        // Whoever waits in vain has been logged.
        let _ = tokio::time::timeout(left, self.guarded()).await;
        let took = clock::now().saturating_duration_since(now);
        enforcing.spent.set(Some((clock::now(), spent + took)));
    }
}

#[cfg(test)]
#[path = "apply_tests.rs"]
mod tests;
