//! One thread's view of the engine, and its scratch memory.

use std::sync::Arc;
use std::time::Duration;

use crate::audit::Audit;
use crate::counters::Tally;
use crate::engine::Engine;
use crate::flow::AcceptedFlows;
use crate::fragment::FirstFragments;
use crate::held::HeldQueue;
use crate::scratch::{InboundScratch, OutboundScratch, PrefetchScratch};
use crate::snapshot::Snapshot;
use crate::verdict::FlowCache;

/// The packet path of one thread.
///
/// Threads that share one tunnel keep the order of its packets so. Outbound: one lock around a
/// worker, under which a thread takes frames, calls [`Self::plan`] (which hands out sequence
/// numbers) and takes a ticket; without it [`TxBatch::emit`](crate::TxBatch::emit) and
/// [`TxBatch::seal`](crate::TxBatch::seal); then the batches are sent in the order of tickets.
/// Inbound: datagrams and a ticket are taken under a lock; [`RxBatch::open`](crate::RxBatch::open)
/// without it; then [`Self::deliver`] of one worker, and the write, in the order of tickets.
pub struct Worker {
    pub(crate) engine: Arc<Engine>,
    pub(crate) snap: Arc<Snapshot>,
    pub(crate) now: Duration,
    /// Decisions for flows that leave.
    pub(crate) flows: FlowCache,
    /// Inner flows that came out of inbound SAs and were accepted.
    pub(crate) accepted: AcceptedFlows,
    /// First fragments of packets that leave, whose flows later fragments take.
    pub(crate) fragments_out: FirstFragments,
    /// First fragments of packets that came out of inbound SAs.
    pub(crate) fragments_in: FirstFragments,
    /// Frames that wait for an SA.
    pub(crate) held: HeldQueue,
    pub(crate) prefetch_scratch: PrefetchScratch,
    /// Counts that the engine's totals do not contain yet ([`Self::flush`]).
    pub(crate) tally: Tally,
    pub(crate) audit: Audit,
    pub(crate) inbound: InboundScratch,
    pub(crate) outbound: OutboundScratch,
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
            accepted: AcceptedFlows::new(),
            fragments_out: FirstFragments::default(),
            fragments_in: FirstFragments::default(),
            held: HeldQueue::default(),
            prefetch_scratch: PrefetchScratch::default(),
            tally: Tally::default(),
            audit: Audit::default(),
            inbound: InboundScratch::default(),
            outbound: OutboundScratch::default(),
        };
        worker.schedule_dummies();
        worker
    }

    /// Begins a batch: takes the engine's present SAD and SPD. `now` is the driver's monotonic
    /// time.
    ///
    /// A worker holds SAs that were deleted, with their keys, until its next call: let an idle one
    /// call it once a second.
    pub fn begin(&mut self, now: Duration) {
        self.now = now;
        if self.engine.generation() != self.snap.generation {
            self.snap = self.engine.snapshot();
            self.accepted.clear();
            self.schedule_dummies();
        }
        self.outbound.reassembler.expire(now, &mut self.tally);
        self.flush();
    }

    /// Adds this worker's counts to the engine's totals, as [`Self::begin`], [`Self::seal`] and
    /// [`Self::deliver`] do.
    pub fn flush(&mut self) {
        self.engine.totals.add(&mut self.tally);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.drop_held();
        self.flush();
    }
}
