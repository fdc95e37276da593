//! From authentic bytes to the packet that is delivered.
//!
//! ```text
//! ESP, tunnel:     SPI, sequence | IV | inner packet | trailer | ICV   delivered in place
//! AH, tunnel:      IP | AH | inner packet                              delivered in place
//! AH, transport:   IP | AH | payload       ->  IP | payload            header moved to the payload
//! ESP, transport:  .. | IV | payload | ..  ->  new IP | payload        copied to `RxBatch::extra`
//! IPComp, any:     .. | IPComp | data      ->  (IP |) inflated data    written to `RxBatch::extra`
//! ```
//!
//! A packet that cannot be delivered in place is made in `RxBatch::extra`, in one piece. So
//! merging, policy and checksums see one kind of packet.

use ironswan_crypto::batch::Job;
use ironswan_wire::esp;
use ironswan_wire::ip::{self, Fragment, IpInfo, protocol, v4, v6};
use ironswan_wire::sadb::Mode;

use super::accept::accept;
use super::context::InboundContext;
use super::merge::InnerPacket;
use super::{merge, transport};
use crate::batch::{Checksum, OuterHeader, RxBatch};
use crate::counters::DropReason;
use crate::ecn;
use crate::ipcomp::Compressor;
use crate::mss;
use crate::sa::{InSa, InState};
use crate::stages::{Stage, StageTimer};

/// Bytes that ESP (with its padding) or AH protects in the packet.
pub(super) fn text_len(job: &Job, outer: Option<&OuterHeader>, state: &InState) -> u64 {
    match outer.and_then(|outer| outer.ah.as_ref()) {
        Some(ah) => ah.end.saturating_sub(ah.at + ah.len) as u64,
        None => {
            let around = esp::HEADER + state.iv_len() + esp::TRAILER + state.icv_len();
            u64::from(job.len).saturating_sub(around as u64)
        }
    }
}

/// The payload of a decrypted ESP packet: where it begins, its length, its next header.
#[inline(always)]
pub(super) fn text(buf: &[u8], job: &Job, state: &InState) -> Result<(usize, usize, u8), DropReason> {
    let start = job.start as usize + esp::HEADER + state.iv_len();
    let end = (job.start + job.len) as usize - state.icv_len();
    let text = buf.get(start..end).ok_or(DropReason::InHdrError)?;
    let (len, next_header) = esp::parse_trailer(text).map_err(|_| DropReason::InTrailerError)?;
    Ok((start, len, next_header))
}

/// Verifies the inner TCP or UDP checksum of an opened packet of a plain SA. Nothing else of the
/// packet is checked yet.
#[inline]
pub(super) fn checksum(buf: &[u8], job: &Job, state: &InState) -> Checksum {
    let Ok((start, len, _)) = text(buf, job, state) else { return Checksum::Unknown };
    let Some(packet) = buf.get(start..start + len) else { return Checksum::Unknown };
    let Ok(info) = ip::parse(packet) else { return Checksum::Unknown };
    let covered = matches!(info.protocol, protocol::TCP | protocol::UDP);
    if !covered || info.fragment != Fragment::No {
        return Checksum::Unknown;
    }
    if merge::checksum_ok(&packet[..info.total_len], &info) { Checksum::Right } else { Checksum::Wrong }
}

/// Finds the inner packet of a plain SA. `None` for a dummy.
#[inline(always)]
pub(super) fn plain<T: StageTimer>(
    context: &mut InboundContext<'_, T>,
    buf: &mut [u8],
    job: &Job,
    sa: &InSa,
    tos: u8,
) -> Result<Option<InnerPacket>, DropReason> {
    let (start, len, next_header) = text(buf, job, &sa.state)?;
    // "the receiver MUST be prepared to discard such packets without indicating an error" (RFC 4303
    // section 2.6).
    if next_header == protocol::NONE {
        return Ok(None);
    }
    let packet = buf.get_mut(start..start + len).ok_or(DropReason::InHdrError)?;
    let (info, flow) = context.tunnel(packet, next_header, sa, tos)?;
    Ok(Some(InnerPacket { at: start as u32, info, flow }))
}

/// Finds or makes the inner packet of an SA that is not plain. `None` for a dummy.
#[inline(never)]
pub(super) fn general<T: StageTimer>(
    context: &mut InboundContext<'_, T>,
    compressor: &mut Compressor,
    (buf, extra): (&mut [u8], &mut Vec<u8>),
    (job, outer): (&Job, &OuterHeader),
    sa: &InSa,
    tos: u8,
) -> Result<Option<InnerPacket>, DropReason> {
    let from = extra.len();
    let state = &*sa.state;
    let (start, len, next_header) = match &outer.ah {
        Some(ah) => {
            let start = ah.at + ah.len;
            (job.start as usize + start, ah.end.saturating_sub(start), ah.next_header)
        }
        None => text(buf, job, state)?,
    };
    if next_header == protocol::NONE && outer.ah.is_none() {
        return Ok(None);
    }
    let made = if next_header == protocol::IPCOMP
        || (state.parameters.mode == Mode::Transport && outer.ah.is_none())
    {
        make(compressor, buf, extra, (start, len, next_header), (job, outer), state, tos)
            .map(|next_header| (RxBatch::EXTRA + from as u32, next_header))
    } else if let (Mode::Transport, Some(ah)) = (state.parameters.mode, &outer.ah) {
        let outer_at = job.start as usize;
        let head = start - ah.at;
        buf.copy_within(outer_at..outer_at + ah.at, head);
        Ok((head as u32, next_header))
    } else {
        Ok((start as u32, next_header))
    };
    let opened = made.and_then(|(at, next_header)| {
        let packet = match at.checked_sub(RxBatch::EXTRA) {
            Some(_) => extra.get_mut(from..),
            None => buf.get_mut(at as usize..start + len),
        };
        let packet = packet.ok_or(DropReason::InHdrError)?;
        let (info, flow) = match state.parameters.mode {
            Mode::Tunnel => context.tunnel(packet, next_header, sa, tos)?,
            Mode::Transport => context.transport(packet, next_header, outer, sa)?,
        };
        Ok(Some(InnerPacket { at, info, flow }))
    });
    if opened.is_err() {
        extra.truncate(from);
    }
    opened
}

/// Appends a packet to `extra`, in transport mode with the header that it will have (unfinished),
/// and returns its next header.
fn make(
    compressor: &mut Compressor,
    buf: &[u8],
    extra: &mut Vec<u8>,
    (start, len, next_header): (usize, usize, u8),
    (job, outer): (&Job, &OuterHeader),
    state: &InState,
    tos: u8,
) -> Result<u8, DropReason> {
    if extra.len() > RxBatch::MAX_EXTRA {
        return Err(DropReason::InBufferError);
    }
    let payload = buf.get(start..start + len).ok_or(DropReason::InHdrError)?;
    if state.parameters.mode == Mode::Transport {
        match &outer.ah {
            Some(ah) => {
                let outer_at = job.start as usize;
                extra.extend_from_slice(buf.get(outer_at..outer_at + ah.at).ok_or(DropReason::InHdrError)?);
            }
            None => transport::fresh(extra, outer.remote, outer.local, tos).ok_or(DropReason::InHdrError)?,
        }
    }
    if next_header != protocol::IPCOMP {
        extra.extend_from_slice(payload);
        return Ok(next_header);
    }
    let cpi = state.parameters.options.ipcomp.ok_or(DropReason::InIpcompError)?;
    match compressor.expand(payload, cpi, extra) {
        // IPComp is applied once (RFC 3173 section 2), so it holds a packet or a payload, never
        // IPComp again.
        Some((next_header, _)) if next_header != protocol::IPCOMP => Ok(next_header),
        _ => Err(DropReason::InIpcompError),
    }
}

impl<T: StageTimer> InboundContext<'_, T> {
    /// Checks the inner packet that `packet` begins with. Bytes behind it are traffic flow
    /// confidentiality padding (RFC 4303 section 2.7): the header's own length counts.
    #[inline(always)]
    fn tunnel(
        &mut self,
        packet: &mut [u8],
        next_header: u8,
        sa: &InSa,
        outer_tos: u8,
    ) -> Result<(IpInfo, u16), DropReason> {
        let ipv6 = match next_header {
            protocol::IPV4 => false,
            protocol::IPV6 => true,
            // On an SA without IPComp.
            protocol::IPCOMP => return Err(DropReason::InIpcompError),
            _ => return Err(DropReason::InStateModeError),
        };
        match packet.first().map(|b| b >> 4) {
            Some(4) if !ipv6 => {}
            Some(6) if ipv6 => {}
            _ => return Err(DropReason::InInnerVersion),
        }
        let info = ip::parse(packet).map_err(|_| DropReason::InInnerHdrError)?;
        let packet = &mut packet[..info.total_len];
        if !ipv6 && !v4::checksum_ok(&packet[..info.upper]) {
            return Err(DropReason::InInnerChecksum);
        }
        self.timer.lap(Stage::Encapsulation);
        let flow = accept(self, packet, &info, sa)?;
        self.timer.lap(Stage::Policy);
        if sa.state.plain {
            if !ecn::apply(packet, ipv6, info.tos, outer_tos) {
                return Err(DropReason::InEcnError);
            }
        } else if !ecn::apply_options(packet, ipv6, info.tos, outer_tos, &sa.state.parameters.options) {
            return Err(DropReason::InEcnError);
        }
        self.clamp(packet, &info, sa);
        Ok((info, flow))
    }

    /// Completes a packet between two hosts: `packet` begins with the IP header in front of AH, or
    /// with a fresh one.
    fn transport(
        &mut self,
        packet: &mut [u8],
        next_header: u8,
        outer: &OuterHeader,
        sa: &InSa,
    ) -> Result<(IpInfo, u16), DropReason> {
        let fresh = if outer.remote.is_ipv6() { v6::HEADER } else { v4::MIN_HEADER };
        let head = outer.ah.as_ref().map_or(fresh, |ah| ah.at);
        transport::finish(packet, head, next_header).ok_or(DropReason::InInnerHdrError)?;
        let info = ip::parse(packet).map_err(|_| DropReason::InInnerHdrError)?;
        // RFC 4301 section 7: transport mode carries whole datagrams only.
        if info.fragment != Fragment::No {
            return Err(DropReason::InFragment);
        }
        let flow = accept(self, packet, &info, sa)?;
        if let Some(original) = &sa.state.parameters.options.original {
            transport::repair(packet, &info, original);
        }
        self.clamp(packet, &info, sa);
        Ok((info, flow))
    }

    /// Lowers the MSS of a TCP SYN to what fits the path back, if that is known.
    #[inline(always)]
    fn clamp(&self, packet: &mut [u8], info: &IpInfo, sa: &InSa) {
        if mss::is_syn(packet, info) {
            self.clamp_syn(packet, info, sa);
        }
    }

    #[cold]
    #[inline(never)]
    fn clamp_syn(&self, packet: &mut [u8], info: &IpInfo, sa: &InSa) {
        if let Some(back) = self.snap.outbound.get(sa.state.reqid.0)
            && let Some(largest) = back.last().and_then(|sa| sa.inner_max())
        {
            mss::clamp(packet, info, largest, true);
        }
    }
}
