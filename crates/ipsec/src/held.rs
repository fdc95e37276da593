//! Packets that wait for an SA: the first ones that a PROTECT policy without SA meets are kept
//! until the key daemon has made one, so that a connection does not begin with a loss and a
//! retransmission.
//!
//! Anyone who can send to the gateway's inside can make packets wait, so they are few
//! ([`MAX_PER_REQID`], [`MAX_FRAMES`], [`MAX_BYTES`]) and do not wait long ([`HOLD_TIMEOUT`]). A
//! frame that is one too many, or too old, is dropped under
//! [`OutNoStates`](crate::DropReason::OutNoStates). Memory is taken for frames that wait, and given
//! back. Each worker has its own queue.
//!
//! Not here: sending the frames when there is an SA (`pipeline::release`); fragments that wait for
//! the others of their packet (`reasm`).

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use ironswan_wire::offload::Offload;
use ironswan_wire::sadb::ReqId;

/// Most frames that wait for one reqid.
const MAX_PER_REQID: u16 = 16;
/// Most frames that wait.
const MAX_FRAMES: usize = 1024;
/// Most bytes of all frames that wait.
const MAX_BYTES: usize = 4 << 20;
/// Time that a frame may wait: longer than a key exchange with retransmissions takes on most paths.
const HOLD_TIMEOUT: Duration = Duration::from_secs(5);

/// A frame that waits.
pub(crate) struct HeldFrame {
    pub(crate) bytes: Vec<u8>,
    pub(crate) offload: Offload,
    pub(crate) reqid: ReqId,
    since: Duration,
}

/// Queue of the frames of one worker that wait for an SA, in the order in which they came.
#[derive(Default)]
pub(crate) struct HeldQueue {
    frames: VecDeque<HeldFrame>,
    bytes: usize,
    count: HashMap<ReqId, u16>,
    /// Reqids with frames here for which no SA could be asked for, because one had been asked for
    /// (and made, and ended) just before; and the time from which one may be.
    acquires_due: Vec<(ReqId, Duration)>,
    /// Frames at the front that have been looked at since the last change of SAD and SPD.
    seen: usize,
    /// Generation of the snapshot with which they were looked at.
    generation: u64,
}

impl HeldQueue {
    pub(crate) fn is_empty(&self) -> bool {
        self.frames.is_empty()
    }

    /// Keeps a frame; false when there are too many. `acquire_at`: the time from which an SA may be
    /// asked for, if that could not be now.
    pub(crate) fn push(
        &mut self,
        frame: &[u8],
        offload: &Offload,
        reqid: ReqId,
        since: Duration,
        acquire_at: Option<Duration>,
    ) -> bool {
        let count = self.count.get(&reqid).copied().unwrap_or(0);
        if count >= MAX_PER_REQID || self.frames.len() >= MAX_FRAMES || self.bytes + frame.len() > MAX_BYTES {
            return false;
        }
        // Only for the first frame of a reqid: the SA that it asks for is for all of them.
        if let (0, Some(at)) = (count, acquire_at) {
            self.acquires_due.push((reqid, at));
        }
        self.count.insert(reqid, count + 1);
        self.bytes += frame.len();
        self.frames.push_back(HeldFrame { bytes: frame.to_vec(), offload: *offload, reqid, since });
        true
    }

    /// Puts a frame back to the place that it was taken from, as not yet looked at.
    pub(crate) fn put_back(&mut self, at: usize, frame: HeldFrame) {
        *self.count.entry(frame.reqid).or_default() += 1;
        self.bytes += frame.bytes.len();
        self.frames.insert(at, frame);
        self.seen = at;
    }

    pub(crate) fn get(&self, at: usize) -> Option<&HeldFrame> {
        self.frames.get(at)
    }

    pub(crate) fn get_mut(&mut self, at: usize) -> Option<&mut HeldFrame> {
        self.frames.get_mut(at)
    }

    pub(crate) fn remove(&mut self, at: usize) -> Option<HeldFrame> {
        let frame = self.frames.remove(at)?;
        self.bytes -= frame.bytes.len();
        match self.count.get_mut(&frame.reqid) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                self.count.remove(&frame.reqid);
                self.acquires_due.retain(|(reqid, _)| *reqid != frame.reqid);
            }
        }
        if self.frames.is_empty() {
            *self = Self { generation: self.generation, ..Self::default() };
        }
        Some(frame)
    }

    /// Removes the oldest frame if it has waited too long; `None` when none has.
    pub(crate) fn remove_expired(&mut self, now: Duration) -> Option<HeldFrame> {
        self.frames.front().filter(|frame| frame.since + HOLD_TIMEOUT <= now)?;
        let frame = self.remove(0);
        self.seen = self.seen.saturating_sub(1);
        frame
    }

    /// Removes all frames, and returns how many.
    pub(crate) fn clear(&mut self) -> usize {
        std::mem::take(self).frames.len()
    }

    /// Makes all frames count as not yet looked at, when the snapshot has changed.
    pub(crate) fn begin_scan(&mut self, generation: u64) {
        if self.generation != generation {
            self.generation = generation;
            self.seen = 0;
        }
    }

    /// Index of the first frame that has not been looked at.
    pub(crate) fn next_unseen(&self) -> Option<usize> {
        (self.seen < self.frames.len()).then_some(self.seen)
    }

    /// Notes that there is still no SA for the first frame that has not been looked at.
    pub(crate) fn mark_seen(&mut self) {
        self.seen += 1;
    }

    /// Takes a reqid for which an SA may be asked for now, with the index of its first frame.
    pub(crate) fn take_acquire(&mut self, now: Duration) -> Option<(ReqId, Option<usize>)> {
        let i = self.acquires_due.iter().position(|(_, at)| *at <= now)?;
        let (reqid, _) = self.acquires_due.swap_remove(i);
        Some((reqid, self.frames.iter().position(|frame| frame.reqid == reqid)))
    }

    /// Asks again for an SA for this reqid, at `at`.
    pub(crate) fn retry_acquire(&mut self, reqid: ReqId, at: Duration) {
        self.acquires_due.push((reqid, at));
    }

    /// Time at which a frame expires or an SA may be asked for; `None` while nothing waits.
    pub(crate) fn next_due(&self) -> Option<Duration> {
        let expiry = self.frames.front().map(|frame| frame.since + HOLD_TIMEOUT);
        let acquire = self.acquires_due.iter().map(|(_, at)| *at).min();
        expiry.into_iter().chain(acquire).min()
    }
}
