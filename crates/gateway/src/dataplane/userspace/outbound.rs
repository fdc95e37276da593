//! The outbound lane: frames from the TUN device to the sockets.

use std::io::ErrorKind;
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use ironswan_io::known::KnownPaths;
use ironswan_io::mmsg::Outgoing;
use ironswan_io::send::Sender;
use ironswan_io::tun::{READ_SIZE, VNET_HEADER};
use ironswan_ipsec::{Engine, Frame, Stage, StageTimes, TxBatch, TxConfig, Worker};
use ironswan_wire::offload::Offload;

use super::lanes::{BATCH_WAIT, Lanes, lock};
use super::notice::WorkerNotice;
use super::packet_io::{Device, PacketIo};
use super::sampling::Sampling;
use super::stats::WorkerStats;
use crate::dataplane::userspace::offloads::Slower;

/// Frames that are read before the engine looks at them, unless they are large: then they are still
/// in the cache when they are sealed.
const BURST_FRAMES: usize = 64;
const BURST_BYTES: usize = 16 * 1024;
/// Most frames of one turn, and the bytes after which it ends.
const TURN_FRAMES: usize = 256;
const TURN_BYTES: usize = 512 * 1024;
/// Bytes of frames after which a batch of several workers is complete.
const SHARED_BYTES: usize = 64 * 1024;
/// Room for a frame of 64 KB, with the overhead of segments of 536 bytes, and for a burst of small
/// ones. One that takes more is copied for the next batch.
const ROOM_LARGE: usize = 108 * 1024;
const ROOM_SMALL: usize = 28 * 1024;
/// Another worker is called for a backlog when a batch takes as long as this many bytes, of which a
/// packet costs some.
const WORTH: usize = 16 * 1024;
const PACKET: usize = 256;
/// After so many of these in a row, of this turn or of the last ones.
const BACKLOG: u32 = 2;
/// A peer's narrow path is reported no more often than this, and so many peers' in that time.
const NARROW_INTERVAL: Duration = Duration::from_millis(100);
const NARROW_PEERS: usize = 256;

/// Result of the last read of the TUN device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    HasMore,
    Empty,
    Gone,
}

/// A batch on its way.
pub(super) struct OutBatch {
    /// Bytes that were read, and the frames among them.
    read: Vec<u8>,
    frames: Vec<Frame>,
    tx: TxBatch,
    /// Frames, and their bytes.
    taken: usize,
    bytes: usize,
    now: Duration,
}

impl OutBatch {
    pub(super) fn new(capacity: usize, max_segments: u16) -> Box<Self> {
        let capacity = capacity.max(ROOM_LARGE + ROOM_SMALL);
        Box::new(Self {
            // Zeroed memory of this size comes from the kernel page by page as it is touched: what
            // an idle or a small gateway never uses is never resident.
            read: vec![0; SHARED_BYTES + BURST_BYTES + 2 * READ_SIZE],
            frames: Vec::with_capacity(BURST_FRAMES),
            tx: TxBatch::new(TxConfig { capacity, max_segments, ..TxConfig::default() }),
            taken: 0,
            bytes: 0,
            now: Duration::ZERO,
        })
    }
}

/// Frames that did not fit their batch, for the next one.
#[derive(Default)]
struct Left {
    bytes: Vec<u8>,
    frames: Vec<Frame>,
}

/// State of reading and planning, under the lane's lock.
pub(super) struct OutLane<D> {
    pub(super) device: Arc<D>,
    worker: Worker,
    left: Left,
    /// Batches in a row that were worth sharing and left more in the device.
    full: u32,
    ticket: u64,
    sampling: Sampling,
    pub(super) stats: WorkerStats,
}

impl<D: Device> OutLane<D> {
    pub(super) fn new(device: Arc<D>, engine: Arc<Engine>) -> Self {
        Self {
            device,
            worker: Worker::new(engine),
            left: Left::default(),
            full: 0,
            ticket: 0,
            sampling: Sampling::default(),
            stats: WorkerStats::default(),
        }
    }

    /// Begins a batch with what has waited for an SA, which leaves before new frames of its flow.
    /// True when that fills it.
    fn begin(&mut self, b: &mut OutBatch, now: Duration) -> bool {
        b.tx.clear();
        b.frames.clear();
        (b.taken, b.bytes, b.now) = (0, 0, now);
        self.worker.count_unsealed(&mut b.tx);
        self.worker.begin(now);
        self.worker.release(&mut b.tx)
    }

    /// Fills a batch. `later`: its packets are written by [`TxBatch::emit`] without the lock.
    fn fill(&mut self, b: &mut OutBatch, later: bool) -> State {
        let mut at = self.left.bytes.len();
        if !self.take_left(b) {
            return State::HasMore;
        }
        loop {
            if !later {
                b.tx.emit(&mut b.read);
                at = 0;
            }
            let large = b.frames.last().is_some_and(|f| f.len > BURST_BYTES);
            let room = if large { ROOM_LARGE } else { ROOM_SMALL };
            if b.tx.room() < room
                || at + BURST_BYTES + READ_SIZE > b.read.len()
                || b.taken >= TURN_FRAMES
                || b.bytes >= if later { SHARED_BYTES } else { TURN_BYTES }
            {
                return State::HasMore;
            }
            b.frames.clear();
            let state = self.read(b, &mut at);
            b.tx.lap(Stage::Receive);
            if !self.plan(b) {
                return State::HasMore;
            }
            if state != State::HasMore {
                return state;
            }
        }
    }

    /// Plans the frames that did not fit the batch before, at the front of the buffer. False when
    /// this one is full too.
    fn take_left(&mut self, b: &mut OutBatch) -> bool {
        if self.left.frames.is_empty() {
            return true;
        }
        b.read[..self.left.bytes.len()].copy_from_slice(&self.left.bytes);
        std::mem::swap(&mut b.frames, &mut self.left.frames);
        self.left.bytes.clear();
        self.left.frames.clear();
        self.plan(b)
    }

    /// True when something is to leave that no event will tell of.
    pub(super) fn is_owed(&self) -> bool {
        !self.left.frames.is_empty() || self.worker.next_due().is_some()
    }

    /// Plans the frames that were read. False when the batch is full, and what did not fit has been
    /// put aside.
    fn plan(&mut self, b: &mut OutBatch) -> bool {
        let taken = self.worker.plan(&mut b.read, &b.frames, &mut b.tx);
        if taken == b.frames.len() {
            return true;
        }
        self.set_aside(b, taken);
        false
    }

    #[cold]
    fn set_aside(&mut self, b: &OutBatch, taken: usize) {
        let Left { bytes, frames } = &mut self.left;
        bytes.clear();
        frames.clear();
        for frame in &b.frames[taken..] {
            frames.push(Frame { start: bytes.len(), ..*frame });
            bytes.extend_from_slice(&b.read[frame.start..frame.start + frame.len]);
        }
    }

    /// Reads frames until the device is empty, there is enough for a while, or a large one comes.
    fn read(&mut self, b: &mut OutBatch, at: &mut usize) -> State {
        let end = *at + BURST_BYTES;
        for _ in 0..BURST_FRAMES {
            let read = &mut b.read[*at..*at + READ_SIZE];
            let n = match self.device.read(read) {
                Ok(n) => n,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return State::Empty,
                // While it is down.
                Err(e) if e.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {
                    return State::Empty;
                }
                // Anything else (EBADFD) means that it was deleted.
                Err(_) => return State::Gone,
            };
            self.stats.tun_reads += 1;
            self.stats.tun_read_bytes += n as u64;
            b.taken += 1;
            b.bytes += n;
            // A frame that fills the buffer to the last byte was cut.
            let parsed = (n < READ_SIZE).then(|| Offload::parse(&read[..n]));
            if let Some(Ok(offload)) = parsed {
                b.frames.push(Frame { start: *at + VNET_HEADER, len: n - VNET_HEADER, offload });
            } else {
                self.stats.tun_read_errors += 1;
            }
            *at += n;
            if *at > end {
                break;
            }
        }
        State::HasMore
    }
}

/// State of sending, used by one thread at a time.
pub(super) struct OutExit {
    sender: Sender,
    outgoing: Vec<Outgoing>,
    /// Peers whose narrow path was just reported, and when.
    narrow_reported: Vec<(IpAddr, Duration)>,
    seals: u64,
    stages: StageTimes,
}

impl OutExit {
    pub(super) fn new(known: Arc<KnownPaths>) -> Self {
        Self {
            sender: Sender::with_paths(known),
            outgoing: Vec::new(),
            narrow_reported: Vec::new(),
            seals: 0,
            stages: StageTimes::default(),
        }
    }

    pub(super) fn stats(&self) -> WorkerStats {
        let mut stats =
            WorkerStats { seals: self.seals, send: self.sender.stats(), ..WorkerStats::default() };
        stats.stages.outbound = self.stages;
        stats
    }

    /// Sends a batch. What its stages took, if it was measured.
    fn send<I: PacketIo>(&mut self, io: &I, b: &mut OutBatch) -> Option<StageTimes> {
        self.seals += 1;
        b.tx.resume();
        let mut sends = &b.tx.sends[..];
        while let Some(first) = sends.first() {
            // Runs for one socket, so that order is kept within an SA.
            let (carrier, ipv6) = (first.carrier, first.remote.is_ipv6());
            let same = |s: &ironswan_ipsec::Send| s.carrier == carrier && s.remote.is_ipv6() == ipv6;
            let run = sends.iter().position(|s| !same(s)).unwrap_or(sends.len());
            self.outgoing.clear();
            self.outgoing.extend(sends[..run].iter().map(|s| Outgoing {
                offset: s.offset as usize,
                len: s.len as usize,
                segment: s.segment_size.into(),
                local: s.local.ip(),
                remote: s.remote,
                tos: s.tos,
                fragmentable: s.fragmentable.into(),
            }));
            io.send(&mut self.sender, carrier, ipv6, &b.tx.buf, &self.outgoing);
            sends = &sends[run..];
        }
        b.tx.lap(Stage::Send);
        let times = b.tx.times();
        if let Some(times) = &times {
            self.stages.merge(times);
        }
        times
    }

    /// Reports what sending has found out: peers whose path has become narrow, and peers to which
    /// segmented sends are refused. A peer with a narrow path is reported at most once per
    /// [`NARROW_INTERVAL`], because every packet finds the same until the routes are lowered.
    fn news(&mut self, now: Duration, mut notice: impl FnMut(WorkerNotice)) {
        if let Some(mut peers) = self.sender.take_narrow() {
            self.narrow_reported.retain(|(_, at)| now.saturating_sub(*at) < NARROW_INTERVAL);
            let known = &mut self.narrow_reported;
            peers.retain(|peer| known.len() < NARROW_PEERS && !known.iter().any(|(known, _)| known == peer));
            known.extend(peers.iter().map(|peer| (*peer, now)));
            if !peers.is_empty() {
                notice(WorkerNotice::NarrowPath(peers));
            }
        }
        while let Some(peer) = self.sender.take_unsegmentable() {
            notice(WorkerNotice::Slower(Slower::Segmentation(peer)));
        }
    }
}

impl<I: PacketIo> Lanes<I> {
    /// The first worker's turn: frames until the device is empty or the turn is over. False when
    /// the device is gone.
    pub(super) fn turn_out(&self, now: Duration) -> bool {
        let (mut frames, mut bytes) = (0, 0);
        let mut state = State::HasMore;
        while state == State::HasMore && frames < TURN_FRAMES && bytes < TURN_BYTES {
            let Some(mut b) = self.batch(&self.out_pool) else {
                break;
            };
            let (ticket, next, full) = self.take_out(&mut b, now);
            state = next;
            frames += b.taken;
            bytes += b.bytes;
            if full >= BACKLOG {
                self.crew.call();
            }
            self.finish_out(b, ticket, self.batches);
        }
        if state == State::Gone {
            self.notice(WorkerNotice::DeviceGone);
        }
        state != State::Gone
    }

    /// One batch of another worker's. False when there was none.
    pub(super) fn assist_out(&self, now: Duration) -> bool {
        let Some(mut b) = self.out_pool.take_spare() else { return false };
        let (ticket, state, full) = self.take_out(&mut b, now);
        if state == State::HasMore && full != 0 {
            self.crew.call();
        }
        let worked = ticket.is_some();
        self.finish_out(b, ticket, usize::MAX);
        worked
    }

    /// Takes a batch from the device, and its ticket unless it is empty. Also how many in a row
    /// were worth sharing.
    fn take_out(&self, b: &mut OutBatch, now: Duration) -> (Option<u64>, State, u32) {
        let mut lane = lock(&self.out);
        let measured = lane.sampling.is_due(now, &self.out_took);
        if measured {
            b.tx.measure(self.stopwatch);
        }
        if let Some(wanted) = self.copies.wanted() {
            b.tx.tap(wanted);
        }
        let full = lane.begin(b, now);
        let state = if full { State::HasMore } else { lane.fill(b, self.crew.is_awake()) };
        let worth = state == State::HasMore && b.bytes + b.taken * PACKET >= WORTH;
        lane.full = if worth { lane.full.saturating_add(1) } else { 0 };
        let full = lane.full;
        // Under the lock, so that what was seen last is what stands.
        self.out_more.store(state == State::HasMore, Relaxed);
        let ticket = ticket(&mut lane, b);
        if ticket.is_some() {
            lane.sampling.filled(now, measured);
        }
        (ticket, state, full)
    }

    /// Does what needs no lock, and lets the batch leave when it is its turn, with at most so many
    /// beside it.
    fn finish_out(&self, mut b: Box<OutBatch>, ticket: Option<u64>, most: usize) {
        let Some(ticket) = ticket else {
            b.tx.times();
            self.copies.put(b.tx.take_tap());
            return self.out_pool.put(b);
        };
        b.tx.resume();
        let OutBatch { tx, read, .. } = &mut *b;
        self.io.pause();
        tx.emit(read);
        tx.seal();
        self.io.pause();
        self.out_order.complete(ticket, b, most, |b| self.leave_out(b));
    }

    /// Sends a batch whose turn it is.
    pub(super) fn leave_out(&self, mut b: Box<OutBatch>) {
        let mut exit = lock(&self.out_exit);
        if let Some(times) = exit.send(&self.io, &mut b) {
            self.out_took.is(&times);
        }
        exit.news(b.now, |notice| self.notice(notice));
        drop(exit);
        self.copies.put(b.tx.take_tap());
        b.tx.clear();
        self.out_pool.put(b);
    }

    /// Sends what leaves by itself, and says when something does again.
    pub(super) fn out_due(&self, now: Duration) -> Option<Duration> {
        loop {
            // All batches are with others: then there will be another round soon.
            let Some(mut b) = self.batch(&self.out_pool) else {
                return Some(now + BATCH_WAIT);
            };
            if let Some(wanted) = self.copies.wanted() {
                b.tx.tap(wanted);
            }
            let mut lane = lock(&self.out);
            let mut again = lane.begin(&mut b, now) || !lane.take_left(&mut b);
            let mut due = None;
            if !again {
                due = lane.worker.dummies(&mut b.tx);
                again = due.is_some_and(|at| at <= now) && !b.tx.is_empty();
            }
            let due = due.into_iter().chain(lane.worker.next_due()).min();
            let ticket = ticket(&mut lane, &b);
            drop(lane);
            self.finish_out(b, ticket, self.batches);
            if !again {
                return due;
            }
        }
    }
}

/// The next ticket, for a batch in which there is something.
fn ticket<D>(lane: &mut OutLane<D>, b: &OutBatch) -> Option<u64> {
    lane.worker.flush();
    if b.tx.is_empty() {
        return None;
    }
    lane.ticket += 1;
    Some(lane.ticket - 1)
}
