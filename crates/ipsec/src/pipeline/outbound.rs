//! TUN to ESP or AH: inner header, SPD, SA, MSS, sequence numbers, split, checksums, trailer (RFC
//! 4301 section 5.1, RFC 4303 section 3.3). The inner TTL is as it came: the kernel has decremented
//! it when it routed the packet to the TUN device.
//!
//! Here is the fast path: tunnel mode ESP whose outer IP header is the kernel's. All else goes by
//! [`super::general`].

use std::sync::Arc;

use ironswan_wire::ip::{self, Fragment, IpInfo};
use ironswan_wire::offload::{Gso, Offload};

use super::burst::Frame;
use super::decide::by_quoted;
use super::split::{self, Cut};
use crate::batch::{PlannedFrame, TxBatch};
use crate::counters::DropReason;
use crate::engine::Engine;
use crate::mss;
use crate::sa::{LimitsReached, OutSa};
use crate::stages::{NoTimer, Stage, StageTimer};
use crate::verdict::Verdict;
use crate::worker::Worker;

/// Result of planning a frame.
enum FrameStep {
    /// The frame is planned, written or held (true), or `tx` has no room and nothing has happened.
    Done(bool),
    /// The SA of the frame is not plain.
    NotPlain(IpInfo, Cut, Arc<OutSa>),
}

impl Worker {
    /// Takes one read of the TUN device: a packet, or a super-packet that is cut here. ESP packets
    /// are appended to `tx`, numbered but not yet sealed. The packet is counted, as sent or under
    /// one [`DropReason`].
    ///
    /// False, and nothing has happened, when `tx` has no room: seal, send, clear, and call again.
    /// Ask [`TxBatch::has_room`] first where that is easier.
    #[must_use]
    pub fn outbound(&mut self, frame: &mut [u8], offload: &Offload, tx: &mut TxBatch) -> bool {
        // The bound is a rough one: a frame beyond it may still fit an empty batch.
        if !tx.has_room(frame.len(), offload) && !tx.is_empty() {
            return false;
        }
        match self.process_frame(frame, offload, tx) {
            Ok(true) => {}
            Ok(false) => return false,
            Err(reason) => self.drop_frame(reason, None, frame, tx),
        }
        self.tally.traffic.out_frames += 1;
        true
    }

    /// The first half of [`Self::outbound_burst`], all that has an order: decides, counts and
    /// numbers the packets of these frames of `buf`. The second half is [`TxBatch::emit`] with the
    /// same `buf`, then [`TxBatch::seal`], which other threads may do at the same time for batches
    /// that were planned before and after. Batches of one SA have to leave in the order in which
    /// they were planned.
    ///
    /// Returns how many frames were taken. When these are not all, `tx` is full, and the others are
    /// for the next one.
    #[must_use]
    pub fn plan(&mut self, buf: &mut [u8], frames: &[Frame], tx: &mut TxBatch) -> usize {
        self.prefetch_outbound(buf, frames);
        match tx.timer.take() {
            None => self.plan_all(buf, frames, tx, &mut NoTimer),
            Some(mut timer) => {
                let (packets, bytes) = (self.tally.traffic.out_sent, self.tally.traffic.out_bytes);
                let taken = self.plan_all(buf, frames, tx, &mut timer);
                timer.times.packets += self.tally.traffic.out_sent - packets;
                timer.times.bytes += self.tally.traffic.out_bytes - bytes;
                tx.timer = Some(timer);
                taken
            }
        }
    }

    #[inline(always)]
    fn plan_all<T: StageTimer>(
        &mut self,
        buf: &mut [u8],
        frames: &[Frame],
        tx: &mut TxBatch,
        timer: &mut T,
    ) -> usize {
        for (i, frame) in frames.iter().enumerate() {
            if !tx.has_room(frame.len, &frame.offload) && !tx.is_empty() {
                return i;
            }
            let bytes = frame.of(buf).unwrap_or_default();
            let step = match self.plan_frame::<T, true>(bytes, frame.start as u32, &frame.offload, tx, timer)
            {
                Ok(FrameStep::NotPlain(info, cut, sa)) => {
                    // `send_general` writes at once, so the packets planned before have to be
                    // written first.
                    tx.emit(buf);
                    let packet = &mut frame.of(buf).unwrap_or_default()[..info.total_len];
                    let done = self.send_general(packet, &info, &frame.offload, &cut, &sa, tx);
                    timer.lap(Stage::Encapsulation);
                    done.map(FrameStep::Done)
                }
                step => step,
            };
            match step {
                Ok(FrameStep::Done(false)) => return i,
                Ok(_) => {}
                Err(reason) => {
                    let bytes = frame.of(buf).unwrap_or_default();
                    self.drop_frame(reason, None, bytes, tx);
                }
            }
            self.tally.traffic.out_frames += 1;
        }
        frames.len()
    }

    /// False, and nothing has happened, when `tx` has no room.
    #[inline(always)]
    pub(crate) fn process_frame(
        &mut self,
        all: &mut [u8],
        offload: &Offload,
        tx: &mut TxBatch,
    ) -> Result<bool, DropReason> {
        match self.plan_frame::<_, false>(all, 0, offload, tx, &mut NoTimer)? {
            FrameStep::Done(done) => Ok(done),
            FrameStep::NotPlain(info, cut, sa) => {
                self.send_general(&mut all[..info.total_len], &info, offload, &cut, &sa, tx)
            }
        }
    }

    /// Decides about one frame, which begins at `start` of its buffer, and plans its packets
    /// (`PLAN_ONLY`) or writes them. Whatever can fail fails before that.
    #[inline(always)]
    fn plan_frame<T: StageTimer, const PLAN_ONLY: bool>(
        &mut self,
        all: &mut [u8],
        start: u32,
        offload: &Offload,
        tx: &mut TxBatch,
        timer: &mut T,
    ) -> Result<FrameStep, DropReason> {
        let info = ip::parse(all).map_err(|_| DropReason::OutHdrError)?;
        let whole = all.len();
        let frame = &mut all[..info.total_len];
        timer.lap(Stage::Parse);
        let place = match self.verdict(frame, &info)? {
            Verdict::Sa(place) => place,
            Verdict::Drop(reason) | Verdict::AsFirstFragment(reason) => {
                by_quoted(&self.snap, frame, &info, reason)?
            }
            Verdict::Acquire(reqid) => return self.acquire(reqid, &info, all, offload).map(FrameStep::Done),
        };
        let sa = self.snap.places.get(place).ok_or(DropReason::OutNoStates)?;
        timer.lap(Stage::Policy);
        let cut = match offload.gso {
            Gso::None => Cut::Whole,
            // The kernel leaves only whole packets to be cut, and never fragments.
            _ if info.total_len != whole || info.fragment != Fragment::No => {
                return Err(DropReason::OutOffloadError);
            }
            _ => Cut::plan(frame, &info, offload).ok_or(DropReason::OutOffloadError)?,
        };
        if mss::is_syn(frame, &info)
            && let Some(largest) = sa.inner_max()
        {
            mss::clamp(frame, &info, largest, offload.csum.is_none());
        }
        let packets = cut.packets();
        let state = &*sa.state;
        if !state.plain {
            return Ok(FrameStep::NotPlain(info, cut, sa.clone()));
        }
        let longest = state.esp_len(cut.longest(frame.len()));
        if longest > split::MAX_ESP {
            return Err(DropReason::OutTooBig);
        }
        if longest * packets as usize > tx.room() {
            return if tx.is_empty() { Err(DropReason::OutTooBig) } else { Ok(FrameStep::Done(false)) };
        }
        if matches!(cut, Cut::Whole) && !split::is_valid_checksum_offload(offload.csum, frame, &info) {
            return Err(DropReason::OutOffloadError);
        }
        timer.lap(Stage::Encapsulation);
        let sequence = take_numbers(&self.engine, sa, packets, cut.bytes(frame.len()))?;
        let (planned, bytes) = PlannedFrame::new((start, frame), &info, offload, &cut, sa, sequence, tx);
        self.tally.traffic.out_made += packets - 1;
        self.tally.traffic.out_sent += packets;
        self.tally.traffic.out_bytes += bytes;
        let reached = state.usage.add(&state.parameters.lifetime, packets, bytes, self.now.as_secs());
        report_limits(&self.engine, sa, reached, sequence);
        timer.lap(Stage::Sequence);
        match PLAN_ONLY {
            true => tx.plan.push(planned),
            false => planned.emit(frame, sa, tx),
        }
        Ok(FrameStep::Done(true))
    }

    /// Seals everything in the batch that is not sealed yet. After it the sends are complete.
    pub fn seal(&mut self, tx: &mut TxBatch) {
        tx.seal();
        self.count_unsealed(tx);
        self.flush();
    }

    /// Counts the packets of this batch that were not sealed. Whoever calls [`TxBatch::seal`] calls
    /// this before the batch is used again.
    #[inline]
    pub fn count_unsealed(&mut self, tx: &mut TxBatch) {
        let unsealed = tx.take_unsealed();
        if unsealed != 0 {
            self.tally.unsealed(unsealed);
        }
    }
}

/// Takes sequence numbers for `packets` with `bytes` of inner packets together, and returns the
/// first. A hard limit lets at most as much through as it says: a frame that would become more
/// packets than are left is not sent in part, and the SA is at its end.
#[inline(always)]
pub(super) fn take_numbers(
    engine: &Engine,
    sa: &OutSa,
    packets: u64,
    bytes: usize,
) -> Result<u64, DropReason> {
    let state = &*sa.state;
    if state.usage.would_exceed(&state.parameters.lifetime, packets, bytes as u64) {
        return Err(report_exhausted(engine, sa, DropReason::OutStateExpired));
    }
    state.take_sequence(packets).ok_or_else(|| report_exhausted(engine, sa, DropReason::OutStateSeqError))
}

/// Reports an SA that can carry no more, once.
#[cold]
fn report_exhausted(engine: &Engine, sa: &OutSa, reason: DropReason) -> DropReason {
    let reached = sa.state.usage.raise(true, true);
    if reached.any() {
        engine.reached(sa.name(), reached);
    }
    reason
}

/// Reports the limits that an SA has reached, by what was counted and by its sequence number.
#[inline(always)]
pub(super) fn report_limits(engine: &Engine, sa: &OutSa, mut reached: LimitsReached, sequence: u64) {
    let state = &*sa.state;
    if state.sequence_low(sequence) {
        reached.soft |= state.usage.raise(true, false).soft;
    }
    if reached.any() {
        engine.reached(sa.name(), reached);
    }
}
