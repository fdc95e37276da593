//! TUN to ESP or AH: inner header, SPD, SA, MSS, sequence numbers, split, checksums, trailer (RFC 4301 section 5.1, RFC 4303
//! section 3.3). The inner TTL is as it came: the kernel has decremented it when it routed the packet to the TUN device.
//!
//! Here is the fast path: tunnel mode ESP whose outer IP header is the kernel's. All else goes by [`super::general`].

use ironswan_crypto::{batch, icv};
use ironswan_wire::ip::{self, Fragment};
use ironswan_wire::offload::{Gso, Offload};

use super::decide::by_quoted;
use super::split::{self, Cut};
use crate::batch::TxBatch;
use crate::counters::DropReason;
use crate::engine::{Engine, out_ref};
use crate::flow::Verdict;
use crate::mss;
use crate::sa::{OutSa, Reached};
use crate::worker::Worker;

impl Worker {
    /// Takes one read of the TUN device: a packet, or a super-packet that is cut here. ESP packets are appended to `tx`,
    /// numbered but not yet sealed. The packet is counted, as sent or under one [`DropReason`].
    ///
    /// False, and nothing has happened, when `tx` has no room: seal, send, clear, and call again. Ask
    /// [`TxBatch::has_room`] first where that is easier.
    #[must_use]
    pub fn outbound(&mut self, frame: &mut [u8], offload: &Offload, tx: &mut TxBatch) -> bool {
        // The bound is a rough one: what does not keep it may still fit an empty batch.
        if !tx.has_room(frame.len(), offload) && !tx.is_empty() {
            return false;
        }
        match self.frame(frame, offload, tx) {
            Ok(true) => {}
            Ok(false) => return false,
            Err(reason) => self.tally.drop(reason),
        }
        self.tally.traffic.out_frames += 1;
        true
    }

    /// False, and nothing has happened, when `tx` has no room.
    #[inline(always)]
    pub(crate) fn frame(
        &mut self,
        all: &mut [u8],
        offload: &Offload,
        tx: &mut TxBatch,
    ) -> Result<bool, DropReason> {
        let info = ip::parse(all).map_err(|_| DropReason::OutHdrError)?;
        let whole = all.len();
        let frame = &mut all[..info.total_len];
        let place = match self.verdict(frame, &info)? {
            Verdict::Sa(place) => place,
            Verdict::Drop(reason) | Verdict::AsFirst(reason) => by_quoted(&self.snap, frame, &info, reason)?,
            Verdict::Acquire(reqid) => return self.acquire(reqid, &info, all, offload),
        };
        let sa = self.snap.places.get(place).ok_or(DropReason::OutNoStates)?;
        let cut = match offload.gso {
            Gso::None => Cut::Whole,
            // What the kernel cuts is all there and never a fragment.
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
            let sa = sa.clone();
            return self.general(frame, &info, offload, &cut, &sa, tx);
        }
        let longest = state.esp_len(cut.longest(frame.len()));
        if longest > split::MAX_ESP {
            return Err(DropReason::OutTooBig);
        }
        if longest * packets as usize > tx.room() {
            return if tx.is_empty() { Err(DropReason::OutTooBig) } else { Ok(false) };
        }
        let sequence = numbers(&self.engine, sa, packets)?;
        let bytes = split::emit(frame, &info, offload, &cut, sa, sequence, tx)?;
        self.tally.traffic.out_made += packets - 1;
        self.tally.traffic.out_sent += packets;
        self.tally.traffic.out_bytes += bytes;
        let reached = state.usage.add(&state.lifetime, packets, bytes, self.now.as_secs());
        report(&self.engine, sa, reached, sequence);
        Ok(true)
    }

    /// Seals everything in the batch that is not sealed yet. After it the sends are complete.
    pub fn seal(&mut self, tx: &mut TxBatch) {
        let sas = std::mem::take(&mut tx.sas);
        let mut keys = self.take_keys();
        keys.extend(sas.iter().filter_map(|sa| sa.state.key.esp()));
        batch::seal(&mut tx.buf, &mut tx.jobs, &keys);
        self.give_keys(keys);
        tx.sas = sas;
        if !tx.ah_jobs.is_empty() {
            self.sign(tx);
        }
        tx.sealed();
        self.flush();
    }

    /// Writes the ICVs of AH.
    #[cold]
    fn sign(&mut self, tx: &mut TxBatch) {
        let sas = std::mem::take(&mut tx.ah_sas);
        let mut keys = self.take_icv_keys();
        keys.extend(sas.iter().filter_map(|sa| sa.state.key.ah()));
        icv::sign(&tx.heads, &mut tx.buf, &mut tx.ah_jobs, &keys);
        self.give_icv_keys(keys);
        tx.ah_sas = sas;
    }
}

/// Sequence numbers for `packets`, the first of them.
#[inline(always)]
pub(super) fn numbers(engine: &Engine, sa: &OutSa, packets: u64) -> Result<u64, DropReason> {
    let state = &*sa.state;
    if state.usage.spent(&state.lifetime) {
        return Err(DropReason::OutStateExpired);
    }
    state.take_sequence(packets).ok_or_else(|| {
        let reached = state.usage.raise(true, true);
        if reached.any() {
            engine.reached(out_ref(sa), reached);
        }
        DropReason::OutStateSeqError
    })
}

/// Reports the limits that an SA has reached, by what was counted and by its sequence number.
#[inline(always)]
pub(super) fn report(engine: &Engine, sa: &OutSa, mut reached: Reached, sequence: u64) {
    let state = &*sa.state;
    if state.sequence_low(sequence) {
        reached.soft |= state.usage.raise(true, false).soft;
    }
    if reached.any() {
        engine.reached(out_ref(sa), reached);
    }
}
