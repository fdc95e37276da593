//! The general path of packets that leave: what the fast path of [`super::outbound`] does not do.
//! In this order (RFC 4301 section 5.1, RFC 4303 section 3.3):
//!
//! ```text
//! transport mode:                 each packet whole, in scratch memory      super::encapsulate
//! addresses, reassembly  -->  cut into packets --> IPComp --> TFC padding  -->  ESP or AH
//! ```
//!
//! "Transport mode ESP is applied only to whole IP datagrams (not to IP fragments)" (RFC 4303
//! section 3.3.4; RFC 4302 section 3.3.4 says the same of AH).

use std::sync::Arc;

use ironswan_wire::ip::{self, Fragment, IpInfo, protocol};
use ironswan_wire::offload::Offload;
use ironswan_wire::sadb::{Mode, Tfc};

use super::encapsulate::{Encapsulator, PlainPacket};
use super::outbound::{report_limits, take_numbers};
use super::split::{self, Cut};
use super::tapped::name_out;
use crate::batch::{MAX_OVERHEAD, TxBatch};
use crate::counters::DropReason;
use crate::flow::FlowKey;
use crate::reasm::PushResult;
use crate::sa::OutSa;
use crate::scratch::OutboundScratch;
use crate::tap::Fate;
use crate::verdict::Verdict;
use crate::worker::Worker;

/// The longest IP packet.
const MAX_IP: usize = 65_535;

/// The length up to which a packet's payload is padded (RFC 4303 section 2.7): never beyond what
/// fits the path.
pub(super) fn padded(sa: &OutSa) -> usize {
    let to = match sa.state.parameters.options.tfc {
        Tfc::None => return 0,
        Tfc::To(len) => usize::from(len),
        Tfc::Mtu => usize::MAX,
    };
    match sa.inner_max() {
        Some(fits) => to.min(fits as usize),
        None if to == usize::MAX => 0,
        None => to,
    }
}

impl Worker {
    /// Carries a frame by an SA that is not `plain`. True when the frame is done with; false, and
    /// nothing has happened, when `tx` has too little room.
    pub(super) fn send_general(
        &mut self,
        frame: &mut [u8],
        info: &IpInfo,
        offload: &Offload,
        cut: &Cut,
        sa: &Arc<OutSa>,
        tx: &mut TxBatch,
    ) -> Result<bool, DropReason> {
        if sa.state.parameters.mode == Mode::Transport {
            if !info.addresses(frame).is_some_and(|ends| sa.is_between(ends)) {
                return Err(DropReason::OutTransport);
            }
            if info.fragment != Fragment::No {
                // A fragment's checksum was completed before the packet was cut.
                return match offload.csum {
                    Some(_) => Err(DropReason::OutOffloadError),
                    None => self.send_fragment(frame, info, sa, tx),
                };
            }
        }
        self.send_packet(frame, info, offload, cut, sa, false, tx)
    }

    /// Takes a fragment for transport mode, and carries the packet when it was the last one
    /// missing.
    fn send_fragment(
        &mut self,
        frame: &[u8],
        info: &IpInfo,
        sa: &Arc<OutSa>,
        tx: &mut TxBatch,
    ) -> Result<bool, DropReason> {
        if tx.room() < MAX_IP + MAX_OVERHEAD && !tx.is_empty() {
            return Ok(false);
        }
        match self.outbound.reassembler.push(self.now, frame, info, &mut self.tally) {
            PushResult::Held | PushResult::Dropped => return Ok(true),
            PushResult::Whole => {}
        }
        let mut packet = std::mem::take(self.outbound.reassembler.packet_mut());
        let result = self.send_reassembled(&mut packet, sa, tx);
        *self.outbound.reassembler.packet_mut() = packet;
        result
    }

    fn send_reassembled(
        &mut self,
        packet: &mut [u8],
        sa: &Arc<OutSa>,
        tx: &mut TxBatch,
    ) -> Result<bool, DropReason> {
        let info = ip::parse(packet).map_err(|_| DropReason::OutHdrError)?;
        if info.fragment != Fragment::No {
            return Err(DropReason::OutTransport);
        }
        // A later fragment has no ports, and in IPv6 says which protocol it likes: only now is it
        // known whose packet it is.
        let key = FlowKey::new(&info, packet).ok_or(DropReason::OutHdrError)?;
        if self.flows.get(&self.snap, &key) != Verdict::Sa(sa.place) {
            return Err(DropReason::OutStateMismatch);
        }
        self.send_packet(packet, &info, &Offload::NONE, &Cut::Whole, sa, true, tx)
    }

    /// Carries a packet or super-packet that is no fragment, or may be one in tunnel mode.
    #[allow(clippy::too_many_arguments, reason = "what is known of a frame")]
    fn send_packet(
        &mut self,
        frame: &mut [u8],
        info: &IpInfo,
        offload: &Offload,
        cut: &Cut,
        sa: &Arc<OutSa>,
        reassembled: bool,
        tx: &mut TxBatch,
    ) -> Result<bool, DropReason> {
        let state = &*sa.state;
        let encapsulator = Encapsulator::plan(sa, frame, info, reassembled)?;
        let padded = padded(sa);
        let packets = cut.packets();
        let longest = encapsulator.len(cut.longest(frame.len()), padded).ok_or(DropReason::OutTooBig)?;
        if longest * packets as usize > tx.room() {
            return if tx.is_empty() { Err(DropReason::OutTooBig) } else { Ok(false) };
        }
        if let (Cut::Whole, Some(csum)) = (cut, offload.csum) {
            split::complete_checksum(frame, info, csum).ok_or(DropReason::OutOffloadError)?;
        }
        let first = take_numbers(&self.engine, sa, packets, cut.bytes(frame.len()))?;
        let OutboundScratch { segment, compressor, ident, .. } = &mut self.outbound;
        // Compression would take away the length that padding is to hide.
        let ipcomp = state.parameters.options.ipcomp.filter(|_| state.parameters.options.tfc == Tfc::None);
        let (mut sent, mut bytes) = (0, 0);
        let mut each = |packet: &[u8]| {
            let payload = packet.get(encapsulator.payload..).ok_or(DropReason::OutTransport)?;
            // "IP payload compression ... MUST be done before" encryption and authentication (RFC
            // 3173 section 2.2).
            let shorter = ipcomp
                .and_then(|cpi| compressor.compress(&state.adaptive, cpi, encapsulator.next_header, payload));
            let (body, next_header) = match shorter {
                Some(body) => (body, protocol::IPCOMP),
                None => (payload, encapsulator.next_header),
            };
            let ident = ident.next();
            let sequence = first + sent;
            if let Some(tap) = &mut tx.tap {
                tap.inner(name_out(sa, sequence), Fate::Passed, packet, None);
            }
            encapsulator
                .emit(tx, &PlainPacket { whole: packet, body, next_header, padded, sequence, ident })?;
            sent += 1;
            bytes += packet.len() as u64;
            Ok(())
        };
        let result = match *cut {
            Cut::Whole => each(frame),
            Cut::Segments { header, size, .. } => {
                split::each_segment(frame, info, (header, size), segment, each)
            }
        };
        // Should one of them fail, it is what is dropped, and those before it were made.
        self.tally.traffic.out_made += if result.is_ok() { packets - 1 } else { sent };
        self.tally.traffic.out_sent += sent;
        self.tally.traffic.out_bytes += bytes;
        if state.parameters.options.dummies.is_some() {
            state.set_sent_at(self.now);
        }
        let reached = state.usage.add(&state.parameters.lifetime, sent, bytes, self.now.as_secs());
        report_limits(&self.engine, sa, reached, first);
        result.map(|()| true)
    }
}
