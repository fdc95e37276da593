//! Packets that wait for an SA: the first ones that a PROTECT policy without SA meets are kept
//! until the key daemon has made one, so that a connection does not begin with a loss and a
//! retransmission.
//!
//! Anyone who can send to the gateway's inside can make packets wait, so they are few ([`OF_ONE`],
//! [`PACKETS`], [`BYTES`]) and do not wait long ([`WAIT`]). What is too much or too old is dropped
//! under [`DropReason::OutNoStates`]; memory is taken for packets that wait, and given back. Each
//! worker has its own.
//!
//! Not here: fragments that wait for their packet's others (`reasm`).

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use ironswan_wire::ip;
use ironswan_wire::offload::Offload;
use ironswan_wire::sadb::ReqId;

use crate::batch::TxBatch;
use crate::counters::DropReason;
use crate::flow::FlowKey;
use crate::verdict::Verdict;
use crate::worker::Worker;

/// Frames that wait for one reqid.
const OF_ONE: u16 = 16;
/// Frames that wait.
const PACKETS: usize = 1024;
/// Bytes of all that wait.
const BYTES: usize = 4 << 20;
/// How long one waits: longer than a key exchange with retransmissions takes on most paths.
const WAIT: Duration = Duration::from_secs(5);

struct Waiting {
    frame: Vec<u8>,
    offload: Offload,
    reqid: ReqId,
    since: Duration,
}

/// The packets that wait, in the order in which they came.
#[derive(Default)]
pub(crate) struct Held {
    waiting: VecDeque<Waiting>,
    bytes: usize,
    of: HashMap<ReqId, u16>,
    /// Reqids with packets here of which none could ask for an SA, because one had been asked for
    /// (and made, and ended) just before; and when they may.
    unasked: Vec<(ReqId, Duration)>,
    /// As many of `waiting`, from the front, have been looked at since the last change of SAD and
    /// SPD.
    seen: usize,
    /// Which SAD and SPD that was.
    generation: u64,
}

impl Held {
    /// False when there are too many. `ask`: when it may be asked for an SA, if that could not be
    /// now.
    fn push(
        &mut self,
        frame: &[u8],
        offload: &Offload,
        reqid: ReqId,
        since: Duration,
        ask: Option<Duration>,
    ) -> bool {
        let of = self.of.get(&reqid).copied().unwrap_or(0);
        if of >= OF_ONE || self.waiting.len() >= PACKETS || self.bytes + frame.len() > BYTES {
            return false;
        }
        // Not when another one here has asked: the answer is for all of them.
        if let (0, Some(at)) = (of, ask) {
            self.unasked.push((reqid, at));
        }
        self.of.insert(reqid, of + 1);
        self.bytes += frame.len();
        self.waiting.push_back(Waiting { frame: frame.to_vec(), offload: *offload, reqid, since });
        true
    }

    /// Puts one back to where it was removed.
    fn put_back(&mut self, at: usize, waiting: Waiting) {
        *self.of.entry(waiting.reqid).or_default() += 1;
        self.bytes += waiting.frame.len();
        self.waiting.insert(at, waiting);
        self.seen = at;
    }

    fn remove(&mut self, at: usize) -> Option<Waiting> {
        let waiting = self.waiting.remove(at)?;
        self.bytes -= waiting.frame.len();
        match self.of.get_mut(&waiting.reqid) {
            Some(of) if *of > 1 => *of -= 1,
            _ => {
                self.of.remove(&waiting.reqid);
                self.unasked.retain(|(reqid, _)| *reqid != waiting.reqid);
            }
        }
        if self.waiting.is_empty() {
            *self = Self { generation: self.generation, ..Self::default() };
        }
        Some(waiting)
    }
}

impl Worker {
    /// Keeps a frame until there is an SA for this reqid, and counts it as held. False when there
    /// are too many. `ask`: when it may be asked for that SA, if that could not be now.
    pub(crate) fn hold(
        &mut self,
        frame: &[u8],
        offload: &Offload,
        reqid: ReqId,
        ask: Option<Duration>,
    ) -> bool {
        let held = self.held.push(frame, offload, reqid, self.now, ask);
        self.tally.held += i64::from(held);
        held
    }

    /// Sends what waited for an SA that is there now, and drops what has waited too long. Call it
    /// after each [`Self::begin`] and before new frames, which would otherwise overtake.
    ///
    /// True when `tx` is full and there is more: seal, send, clear, and call again.
    #[must_use]
    #[inline]
    pub fn release(&mut self, tx: &mut TxBatch) -> bool {
        !self.held.waiting.is_empty() && self.release_some(tx)
    }

    #[cold]
    fn release_some(&mut self, tx: &mut TxBatch) -> bool {
        while self.held.waiting.front().is_some_and(|w| w.since + WAIT <= self.now) {
            self.held.remove(0);
            self.held.seen = self.held.seen.saturating_sub(1);
            self.tally.held -= 1;
            self.tally.drop(DropReason::OutNoStates);
        }
        if self.held.generation != self.snap.generation {
            self.held.generation = self.snap.generation;
            self.held.seen = 0;
        }
        while self.held.seen < self.held.waiting.len() {
            let at = self.held.seen;
            if self.still_waits(at).is_some() {
                self.held.seen += 1;
                continue;
            }
            let fits = self.held.waiting.get(at).is_some_and(|w| tx.has_room(w.frame.len(), &w.offload));
            if !fits && !tx.is_empty() {
                return true;
            }
            let Some(mut waiting) = self.held.remove(at) else { break };
            match self.waited(&mut waiting.frame, &waiting.offload, tx) {
                Ok(true) => {}
                Ok(false) => {
                    // The order is kept: it goes back to where it was.
                    self.held.put_back(at, waiting);
                    return true;
                }
                Err(reason) => self.tally.drop(reason),
            }
            self.tally.held -= 1;
        }
        self.flush();
        self.ask_again();
        false
    }

    /// [`Self::frame`] for what does not hurry.
    #[cold]
    #[inline(never)]
    fn waited(&mut self, frame: &mut [u8], offload: &Offload, tx: &mut TxBatch) -> Result<bool, DropReason> {
        self.frame(frame, offload, tx)
    }

    /// Asks for the SAs that could not be asked for when their first packets came.
    fn ask_again(&mut self) {
        while let Some(i) = self.held.unasked.iter().position(|(_, at)| *at <= self.now) {
            let (reqid, _) = self.held.unasked.swap_remove(i);
            let first = self.held.waiting.iter().position(|w| w.reqid == reqid);
            let Some(key) = first.and_then(|at| self.still_waits(at)) else { continue };
            if let Err(at) = self.engine.up.acquire(self.now, reqid, key.selector()) {
                self.held.unasked.push((reqid, at));
            }
        }
    }

    /// The flow of this one, when there is no SA for it yet.
    fn still_waits(&mut self, at: usize) -> Option<FlowKey> {
        let waiting = self.held.waiting.get_mut(at)?;
        let frame = std::mem::take(&mut waiting.frame);
        let key = ip::parse(&frame).ok().and_then(|info| self.flow(&frame[..info.total_len], &info).ok());
        let waits = key.filter(|key| matches!(self.flows.get(&self.snap, key), Verdict::Acquire(_)));
        if let Some(waiting) = self.held.waiting.get_mut(at) {
            waiting.frame = frame;
        }
        waits
    }

    /// When something here is due, on the clock of [`Self::begin`], which an idle driver should
    /// call then with what follows it; `None` while there is nothing.
    pub fn next_due(&self) -> Option<Duration> {
        let held = self.held.waiting.front().map(|w| w.since + WAIT);
        let ask = self.held.unasked.iter().map(|(_, at)| *at).min();
        let partial = self.outbound.reassembler.next_expiry();
        held.into_iter().chain(ask).chain(partial).min()
    }

    /// Drops everything that waits.
    pub(crate) fn drop_held(&mut self) {
        for _ in std::mem::take(&mut self.held).waiting {
            self.tally.held -= 1;
            self.tally.drop(DropReason::OutNoStates);
        }
    }
}
