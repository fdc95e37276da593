//! One thread's view of the engine, and its scratch memory.

use std::sync::Arc;
use std::time::Duration;

use ironswan_crypto::batch::EspKey;
use ironswan_crypto::icv::IcvKey;

use crate::audit::Audit;
use crate::counters::Tally;
use crate::engine::{Engine, Snapshot};
use crate::flow::{Accepted, FlowCache};
use crate::fragment::Fragments;
use crate::held::Held;
use crate::pipeline::{Burst, Inbound, Outbound};

/// The packet path of one thread.
///
/// Threads that share one tunnel keep the order of its packets so: take the frames (or datagrams) and a ticket under one
/// lock, call [`Self::outbound`] for all of them still under it (it hands out sequence numbers), [`Self::seal`] without
/// it, then send in the order of tickets. Inbound: [`Self::inbound_open`] without the lock, [`Self::inbound_deliver`] and
/// the write in the order of tickets.
pub struct Worker {
    pub(crate) engine: Arc<Engine>,
    pub(crate) snap: Arc<Snapshot>,
    pub(crate) now: Duration,
    pub(crate) flows: FlowCache,
    pub(crate) accepted: Accepted,
    pub(crate) fragments_out: Fragments,
    pub(crate) fragments_in: Fragments,
    pub(crate) held: Held,
    pub(crate) burst: Burst,
    pub(crate) tally: Tally,
    pub(crate) audit: Audit,
    pub(crate) inbound: Inbound,
    pub(crate) outbound: Outbound,
    keys: Vec<&'static EspKey>,
    icv_keys: Vec<&'static IcvKey>,
}

impl Worker {
    /// A worker of this engine.
    pub fn new(engine: Arc<Engine>) -> Self {
        let snap = engine.snapshot();
        let mut worker = Self {
            engine,
            snap,
            now: Duration::ZERO,
            flows: FlowCache::new(),
            accepted: Accepted::new(),
            fragments_out: Fragments::default(),
            fragments_in: Fragments::default(),
            held: Held::default(),
            burst: Burst::default(),
            tally: Tally::default(),
            audit: Audit::default(),
            inbound: Inbound::default(),
            outbound: Outbound::default(),
            keys: Vec::new(),
            icv_keys: Vec::new(),
        };
        worker.watch_dummies();
        worker
    }

    /// Begins a batch: takes the engine's present SAD and SPD. `now` is the driver's monotonic time.
    ///
    /// A worker holds SAs that were deleted, with their keys, until its next call: let an idle one call it once a second.
    pub fn begin(&mut self, now: Duration) {
        self.now = now;
        if self.engine.generation() != self.snap.generation {
            self.snap = self.engine.snapshot();
            self.accepted.clear();
            self.watch_dummies();
        }
        self.outbound.reassembler.expire(now, &mut self.tally);
        self.flush();
    }

    /// Adds what was counted to the engine's totals.
    pub(crate) fn flush(&mut self) {
        self.engine.totals.add(&mut self.tally);
    }

    /// An empty list of keys that reuses the memory of the last one.
    pub(crate) fn take_keys<'a>(&mut self) -> Vec<&'a EspKey> {
        recycle(std::mem::take(&mut self.keys))
    }

    pub(crate) fn give_keys(&mut self, keys: Vec<&EspKey>) {
        self.keys = recycle(keys);
    }

    /// The same for the keys of AH.
    pub(crate) fn take_icv_keys<'a>(&mut self) -> Vec<&'a IcvKey> {
        recycle(std::mem::take(&mut self.icv_keys))
    }

    pub(crate) fn give_icv_keys(&mut self, keys: Vec<&IcvKey>) {
        self.icv_keys = recycle(keys);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.drop_held();
        self.flush();
    }
}

/// Changes the lifetime of an empty vector's type. Collecting in place keeps the allocation (std does so since 1.5x for
/// items of the same size; were it to stop, the allocation test would tell).
fn recycle<'a, Key>(mut keys: Vec<&Key>) -> Vec<&'a Key> {
    keys.clear();
    keys.into_iter().map_while(|_| None).collect()
}
