//! Frames that wait for an SA ([`crate::held`]): keeps them, and sends them when there is one.

use std::time::Duration;

use ironswan_wire::ip;
use ironswan_wire::offload::Offload;
use ironswan_wire::sadb::ReqId;

use crate::batch::TxBatch;
use crate::counters::DropReason;
use crate::flow::FlowKey;
use crate::verdict::Verdict;
use crate::worker::Worker;

impl Worker {
    /// Keeps a frame until there is an SA for this reqid, and counts it as held. False when there
    /// are too many. `acquire_at`: the time from which that SA may be asked for, if that could not
    /// be now.
    pub(super) fn hold(
        &mut self,
        frame: &[u8],
        offload: &Offload,
        reqid: ReqId,
        acquire_at: Option<Duration>,
    ) -> bool {
        let held = self.held.push(frame, offload, reqid, self.now, acquire_at);
        self.tally.held += i64::from(held);
        held
    }

    /// Sends the frames that waited for an SA that is there now, and drops those that have waited
    /// too long. Call it after each [`Self::begin`] and before new frames, which would otherwise
    /// overtake.
    ///
    /// True when `tx` is full and there is more: seal, send, clear, and call again.
    #[must_use]
    #[inline]
    pub fn release(&mut self, tx: &mut TxBatch) -> bool {
        !self.held.is_empty() && self.release_some(tx)
    }

    #[cold]
    fn release_some(&mut self, tx: &mut TxBatch) -> bool {
        while let Some(frame) = self.held.remove_expired(self.now) {
            self.tally.held -= 1;
            self.drop_frame(DropReason::OutNoStates, Some(frame.reqid), &frame.bytes, tx);
        }
        self.held.begin_scan(self.snap.generation);
        while let Some(at) = self.held.next_unseen() {
            if self.flow_without_sa(at).is_some() {
                self.held.mark_seen();
                continue;
            }
            let fits = self.held.get(at).is_some_and(|f| tx.has_room(f.bytes.len(), &f.offload));
            if !fits && !tx.is_empty() {
                return true;
            }
            let Some(mut frame) = self.held.remove(at) else { break };
            match self.send_held(&mut frame.bytes, &frame.offload, tx) {
                Ok(true) => {}
                Ok(false) => {
                    // Frames leave in the order in which they came: this one goes back to its
                    // place.
                    self.held.put_back(at, frame);
                    return true;
                }
                Err(reason) => self.drop_frame(reason, Some(frame.reqid), &frame.bytes, tx),
            }
            self.tally.held -= 1;
        }
        self.flush();
        self.retry_acquires();
        false
    }

    /// [`Self::process_frame`], not inlined: a held frame does not hurry.
    #[cold]
    #[inline(never)]
    fn send_held(
        &mut self,
        frame: &mut [u8],
        offload: &Offload,
        tx: &mut TxBatch,
    ) -> Result<bool, DropReason> {
        self.process_frame(frame, offload, tx)
    }

    /// Asks for the SAs that could not be asked for when their first frames came.
    fn retry_acquires(&mut self) {
        while let Some((reqid, first)) = self.held.take_acquire(self.now) {
            let Some(key) = first.and_then(|at| self.flow_without_sa(at)) else { continue };
            if let Err(at) = self.engine.up.acquire(self.now, reqid, key.selector()) {
                self.held.retry_acquire(reqid, at);
            }
        }
    }

    /// The flow of a held frame, when there is no SA for it yet.
    fn flow_without_sa(&mut self, at: usize) -> Option<FlowKey> {
        let frame = std::mem::take(&mut self.held.get_mut(at)?.bytes);
        let key = ip::parse(&frame).ok().and_then(|info| self.flow(&frame[..info.total_len], &info).ok());
        let waits = key.filter(|key| matches!(self.flows.get(&self.snap, key), Verdict::Acquire(_)));
        if let Some(held) = self.held.get_mut(at) {
            held.bytes = frame;
        }
        waits
    }

    /// Time at which a held frame or fragment is due, on the clock of [`Self::begin`]: an idle
    /// driver should then call [`Self::begin`] and the functions that follow it. `None` while
    /// nothing waits.
    pub fn next_due(&self) -> Option<Duration> {
        let partial = self.outbound.reassembler.next_expiry();
        self.held.next_due().into_iter().chain(partial).min()
    }

    /// Drops everything that waits.
    pub(crate) fn drop_held(&mut self) {
        for _ in 0..self.held.clear() {
            self.tally.held -= 1;
            self.tally.drop(DropReason::OutNoStates);
        }
    }
}
