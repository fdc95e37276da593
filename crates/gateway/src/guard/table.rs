//! The nft table as the daemon replaces it: one run of the program `nft` at a time.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ironswan_io::nft::TableChange;
use ironswan_keying::diagnosis::Guard;

use super::nft::{Counters, Nft};

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
    pub fn replace(&self, text: &str) -> Result<(), Guard> {
        let own = self.own();
        match self.ended.load(SeqCst) {
            true => Err(Guard::Ended),
            false => self.apply(own, text),
        }
    }

    /// Replaces the table for the last time: replacements that wait for a thread are not done any
    /// more.
    ///
    /// # Errors
    /// The error of `nft`.
    pub fn replace_last(&self, text: &str) -> Result<(), Guard> {
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

    fn apply(&self, mut own: MutexGuard<'_, VecDeque<u32>>, text: &str) -> Result<(), Guard> {
        let pid = self.nft.apply(text)?;
        own.push_back(pid);
        if own.len() > MAX_OWN_RUNS {
            own.pop_front();
        }
        Ok(())
    }

    /// Says in words how another program has touched the table; `None` when it was ourselves. Ask
    /// it while no replacement runs.
    pub fn judge(&self, touch: &TableChange) -> Option<String> {
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
    pub fn remove(&self) -> Result<(), Guard> {
        self.end();
        let _own = self.own();
        self.nft.remove().map(drop)
    }
}
