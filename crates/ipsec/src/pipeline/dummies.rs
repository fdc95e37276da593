//! Dummy packets (RFC 4303 section 2.6): while nothing else leaves by an SA that wants them,
//! packets of next header 59 do, which the peer discards. Together with padding
//! ([`super::general::padded`]) they hide whether and how much is being said.
//!
//! Their content is zeros, which nobody sees: it is encrypted like any other. One SA's clock for
//! all workers: whoever sends moves it ([`crate::sa::OutState::set_sent_at`]), and whoever finds it
//! due claims it.

use std::sync::Arc;
use std::time::Duration;

use ironswan_wire::ip::protocol;

use super::encapsulate::{Encapsulator, PlainPacket};
use super::general::padded;
use super::outbound::{report_limits, take_numbers};
use crate::batch::TxBatch;
use crate::mtu;
use crate::sa::OutSa;
use crate::worker::Worker;

impl Worker {
    /// Appends a dummy packet for each SA that has sent nothing for the interval that its options
    /// ask for. Returns when it wants to be called again, on the clock of [`Self::begin`]; `None`
    /// while no SA wants any. When that is not later than now, `tx` is full: seal, send, clear, and
    /// call again.
    ///
    /// Cheap: it may be called in every round, after [`Self::begin`].
    pub fn dummies(&mut self, tx: &mut TxBatch) -> Option<Duration> {
        let due = self.outbound.dummies_due?;
        if due <= self.now {
            self.outbound.dummies_due = self.make_dummies(tx);
        }
        self.outbound.dummies_due
    }

    /// Sees whether any SA of a new snapshot wants dummy packets.
    pub(crate) fn schedule_dummies(&mut self) {
        self.outbound.dummies_due = (self.snap.dummies != 0).then_some(self.now);
    }

    #[cold]
    fn make_dummies(&mut self, tx: &mut TxBatch) -> Option<Duration> {
        let snap = self.snap.clone();
        let mut next: Option<Duration> = None;
        for sa in snap.outbound.values().flat_map(|list| list.iter()) {
            let Some(interval) = sa.state.parameters.options.dummies else { continue };
            let mut due = sa.state.sent_at().saturating_add(interval);
            if due <= self.now {
                if !self.dummy(sa, tx) {
                    return Some(self.now);
                }
                due = self.now.saturating_add(interval);
            }
            next = Some(next.map_or(due, |next| next.min(due)));
        }
        next
    }

    /// Sends one. False when `tx` is full.
    fn dummy(&mut self, sa: &Arc<OutSa>, tx: &mut TxBatch) -> bool {
        let state = &*sa.state;
        let before = state.sent_at();
        // As long as any other: what padding says, or what every host takes.
        let fits = sa.inner_max().map_or(usize::MAX, |fits| fits as usize);
        let len = match padded(sa) {
            0 => mtu::MIN_MTU_V4.min(fits),
            padded => padded,
        };
        let encapsulator = Encapsulator::dummy(sa);
        let Some(needs) = encapsulator.len(0, len) else { return true };
        if needs > tx.room() {
            return tx.is_empty();
        }
        // Another worker has sent meanwhile.
        if !state.claim_dummy(before, self.now) {
            return true;
        }
        let Ok(sequence) = take_numbers(&self.engine, sa, 1, len) else { return true };
        let packet = PlainPacket {
            whole: &[],
            body: &[],
            next_header: protocol::NONE,
            padded: len,
            sequence,
            ident: self.outbound.ident.next(),
        };
        if encapsulator.emit(tx, &packet).is_ok() {
            self.tally.traffic.out_dummies += 1;
            self.tally.traffic.out_sent += 1;
            // The key has worked, but nobody has used the SA: it may expire idle.
            let reached = state.usage.add_unused(&state.parameters.lifetime, 1, len as u64);
            report_limits(&self.engine, sa, reached, sequence);
        }
        true
    }
}
