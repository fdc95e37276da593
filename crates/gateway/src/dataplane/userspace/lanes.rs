//! The two lanes, outbound and inbound, on which any number of threads carry packets without
//! changing their order.
//!
//! ```text
//!             under the lane's lock           by many at a time    in the order of tickets
//! outbound    read, plan (numbers), ticket    emit, seal           send
//! inbound     receive, ticket                 demux, open          deliver, write
//! ```
//! To deliver is to commit to the replay windows, to ask the policy and to merge packets.
//!
//! The first worker waits in epoll and carries everything when there is little to do; whenever a
//! turn leaves a backlog it calls another, which takes batches from the same lanes until there is
//! none and sleeps again. Nothing is locked, allocated or called for a single packet.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ironswan_io::known::KnownPaths;
use ironswan_ipsec::{Engine, Stopwatch};

use super::crew::Crew;
use super::inbound::{InBatch, InExit, InLane};
use super::notice::WorkerNotice;
use super::order::Order;
use super::outbound::{OutBatch, OutExit, OutLane};
use super::packet_io::PacketIo;
use super::pool::Pool;
use super::sampling::Took;
use super::stats::WorkerStats;
use crate::dataplane::IkeDatagram;
use crate::dataplane::captured::Rings;

/// Batches beyond one for each worker.
const SPARE: usize = 2;
/// How long the first worker waits for a batch while others have them all: once in a round, so that
/// it is soon at the next source however many are ready.
pub(super) const BATCH_WAIT: Duration = Duration::from_millis(1);

/// State that all workers share.
pub(super) struct Lanes<I: PacketIo> {
    pub(super) io: I,
    pub(super) engine: Arc<Engine>,
    /// Copies of packets for captures.
    pub(super) copies: Rings,
    pub(super) crew: Crew,
    pub(super) stopwatch: Stopwatch,
    pub(super) out: Mutex<OutLane<I::Device>>,
    pub(super) out_order: Order<Box<OutBatch>>,
    pub(super) out_exit: Mutex<OutExit>,
    pub(super) out_pool: Pool<OutBatch>,
    pub(super) out_took: Took,
    pub(super) input: Mutex<InLane>,
    pub(super) in_order: Order<Box<InBatch>>,
    pub(super) in_exit: Mutex<InExit<I::Device>>,
    pub(super) in_pool: Pool<InBatch>,
    pub(super) in_took: Took,
    /// How many batches each lane has: the first worker lets no more leave at a time, since it has
    /// other things to do.
    pub(super) batches: usize,
    /// The device has more than one worker takes.
    pub(super) out_more: AtomicBool,
    /// The source that has more than one worker takes; 0 for none.
    pub(super) in_more: AtomicU64,
    notices: Mutex<Box<dyn FnMut(WorkerNotice) + Send>>,
    rounds: AtomicU64,
    /// Times the first worker found no batch, and whether it has waited for one in this round.
    exhausted: AtomicU64,
    pub(super) waited: AtomicBool,
}

/// The settings of the lanes.
pub(super) struct LanesConfig {
    pub(super) workers: usize,
    pub(super) batch_bytes: usize,
    pub(super) stopwatch: Stopwatch,
    /// The path MTUs that are known.
    pub(super) known: Arc<KnownPaths>,
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<I: PacketIo> Lanes<I> {
    pub(super) fn new(
        io: I,
        device: Arc<I::Device>,
        engine: Arc<Engine>,
        config: &LanesConfig,
        ike_sink: Box<dyn FnMut(IkeDatagram) -> bool + Send>,
        notice_sink: Box<dyn FnMut(WorkerNotice) + Send>,
    ) -> Self {
        let workers = config.workers.max(1);
        let batches = if workers == 1 { 1 } else { workers + SPARE };
        let max_segments = io.max_segments();
        let mut resident = true;
        Self {
            out: Mutex::new(OutLane::new(device.clone(), engine.clone())),
            out_order: Order::new(batches),
            out_exit: Mutex::new(OutExit::new(config.known.clone())),
            out_pool: Pool::new(batches, || OutBatch::new(config.batch_bytes, max_segments)),
            out_took: Took::default(),
            input: Mutex::new(InLane::new()),
            in_order: Order::new(batches),
            in_exit: Mutex::new(InExit::new(device, engine.clone(), ike_sink)),
            in_pool: Pool::new(batches, || InBatch::new(std::mem::take(&mut resident))),
            in_took: Took::default(),
            batches,
            out_more: AtomicBool::new(false),
            in_more: AtomicU64::new(0),
            crew: Crew::new(workers - 1),
            stopwatch: config.stopwatch,
            notices: Mutex::new(notice_sink),
            rounds: AtomicU64::new(0),
            exhausted: AtomicU64::new(0),
            waited: AtomicBool::new(false),
            copies: Rings::default(),
            engine,
            io,
        }
    }

    /// A batch for the first worker. The others leave it one ([`Pool::take_spare`]), so that none
    /// is free only while its own are with others for their turn.
    pub(super) fn batch<T>(&self, pool: &Pool<T>) -> Option<Box<T>> {
        pool.take().or_else(|| {
            self.exhausted.fetch_add(1, Relaxed);
            if self.waited.swap(true, Relaxed) { None } else { pool.take_within(BATCH_WAIT) }
        })
    }

    /// Tells the control plane.
    pub(super) fn notice(&self, notice: WorkerNotice) {
        lock(&self.notices)(notice);
    }

    /// Tells the control plane what came up in the engine, in its order.
    pub(super) fn tell(&self) {
        let mut sink = lock(&self.notices);
        let up = self.engine.take_up();
        if !up.is_empty() {
            sink(WorkerNotice::Up(up));
        }
    }

    /// Goes on with another device.
    pub(super) fn replace_device(&self, device: Arc<I::Device>) {
        lock(&self.out).device = device.clone();
        lock(&self.in_exit).replace_device(device);
    }

    /// The first worker ends a round: what leaves by itself does, what has been deleted is let go
    /// of, and what came up goes to the control plane. Says how long until something has to leave
    /// by itself again; `None` for never.
    pub(super) fn end_round(&self, now: Duration, seen: &mut u64) -> Option<Duration> {
        self.rounds.fetch_add(1, Relaxed);
        let generation = self.engine.generation();
        if *seen != generation {
            *seen = generation;
            lock(&self.in_exit).begin(now);
        }
        let due = self.out_due(now);
        self.waited.store(false, Relaxed);
        // Let those batches leave that other workers completed while this one was delivering.
        let behind = self.in_order.go_on(self.batches, |b| self.leave_in(b))
            | self.out_order.go_on(self.batches, |b| self.leave_out(b));
        self.tell();
        if behind {
            return Some(Duration::ZERO);
        }
        due.map(|at| at.saturating_sub(now))
    }

    /// Work of a worker beside the first: handles batches of either lane, as long as there are more
    /// than the first can carry. `wake` wakes the first worker when something was left for it to
    /// do.
    pub(super) fn assist(&self, now: impl Fn() -> Duration, wake: impl Fn()) {
        while self.crew.sleep() {
            loop {
                let mut worked = false;
                if self.out_more.load(Relaxed) {
                    worked |= self.assist_out(now());
                }
                let source = self.in_more.load(Relaxed);
                if source != 0 {
                    worked |= self.assist_in(source, now());
                }
                if !worked || self.crew.has_ended() {
                    break;
                }
                self.tell();
            }
            self.tell();
            if lock(&self.out).is_owed() {
                wake();
            }
        }
    }

    /// Counters since the start.
    pub(super) fn stats(&self) -> WorkerStats {
        let (rounds, exhausted) = (self.rounds.load(Relaxed), self.exhausted.load(Relaxed));
        let mut all = WorkerStats { rounds, exhausted, ..WorkerStats::default() };
        all.merge(&lock(&self.out).stats);
        all.merge(&lock(&self.out_exit).stats());
        all.merge(&lock(&self.input).stats);
        all.merge(&lock(&self.in_exit).stats);
        all
    }
}
