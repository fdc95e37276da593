//! Frames into ESP packets, directly in the send buffer: super-packets are cut as the kernel's GSO
//! would (TCP: RFC 9293 with the flags of RFC 3168; UDP: `UDP_SEGMENT`), unfinished checksums are
//! completed, the payload is copied once.

use std::sync::Arc;

use ironswan_crypto::batch::Job;
use ironswan_crypto::sum::sum;
use ironswan_wire::esp;
use ironswan_wire::ip::checksum::{be16, fold, pseudo};
use ironswan_wire::ip::{Fragment, IpInfo, protocol, tcp, udp, v4, v6};
use ironswan_wire::offload::{Gso, Offload};

use crate::batch::{MAX_HEADERS, PlannedFrame, TxBatch};
use crate::counters::DropReason;
use crate::sa::OutSa;
use crate::stages::Stage;

/// The longest ESP packet: what fits a UDP datagram over IPv4.
pub(super) const MAX_ESP: usize = 65_507;

/// How a frame is cut.
pub(super) enum Cut {
    /// Not at all.
    Whole,
    /// By payload bytes.
    Segments {
        /// Offset of the payload, in bytes.
        header: usize,
        /// Payload bytes of each segment.
        size: usize,
        segments: usize,
    },
}

impl Cut {
    /// Checks what the offload header says against the packet: protocol, family, and where the
    /// checksum is. Its `hdr_len` is a hint of the kernel's (bytes that lie together in its memory)
    /// and is not looked at.
    pub(super) fn plan(frame: &[u8], info: &IpInfo, offload: &Offload) -> Option<Self> {
        let upper = frame.get(info.upper..)?;
        let length = match (offload.gso, info.protocol, info.ipv6) {
            (Gso::TcpV4, protocol::TCP, false) | (Gso::TcpV6, protocol::TCP, true) => tcp::header_len(upper)?,
            (Gso::UdpL4, protocol::UDP, _) if upper.len() >= udp::HEADER => udp::HEADER,
            _ => return None,
        };
        let header = info.upper + length;
        let size = usize::from(offload.segment_size);
        if !is_valid_checksum_offload(offload.csum, frame, info)
            || offload.csum.is_some_and(|c| usize::from(c.0) != info.upper)
        {
            return None;
        }
        if header > MAX_HEADERS || size == 0 {
            return None;
        }
        let segments = (frame.len() - header).div_ceil(size).max(1);
        Some(Self::Segments { header, size, segments })
    }

    pub(super) fn packets(&self) -> u64 {
        match self {
            Self::Whole => 1,
            Self::Segments { segments, .. } => *segments as u64,
        }
    }

    /// Bytes of all packets together.
    pub(super) fn bytes(&self, frame: usize) -> usize {
        match self {
            Self::Whole => frame,
            Self::Segments { header, segments, .. } => frame + (segments - 1) * header,
        }
    }

    /// Length of the longest packet.
    pub(super) fn longest(&self, frame: usize) -> usize {
        match self {
            Self::Whole => frame,
            Self::Segments { header, size, .. } => (header + size).min(frame),
        }
    }
}

impl PlannedFrame {
    /// Takes room for the packets in `tx`, which has it, and returns the inner bytes. `start`: of
    /// the frame in its buffer.
    #[inline(always)]
    pub(super) fn new(
        (start, frame): (u32, &[u8]),
        info: &IpInfo,
        offload: &Offload,
        cut: &Cut,
        sa: &Arc<OutSa>,
        sequence: u64,
        tx: &mut TxBatch,
    ) -> (Self, u64) {
        let state = &*sa.state;
        let at = tx.used as u32;
        let len = frame.len();
        let (header, size, csum, bytes, used) = match *cut {
            Cut::Whole => (0, 0, offload.csum, len, state.esp_len(len)),
            Cut::Segments { header, size, segments, .. } => {
                let others = segments - 1;
                let last = len - others * size;
                let used = others * state.esp_len(header + size) + state.esp_len(last);
                (header as u16, size as u16, None, len + others * header, used)
            }
        };
        tx.used += used;
        let planned = Self {
            start,
            len: len as u32,
            at,
            upper: info.upper as u32,
            sequence,
            csum,
            header,
            size,
            key: tx.key_of(sa),
            fragmentable: state.fragmentable[usize::from(info.ipv6)],
            tos: state.outer_tos(info.tos),
            protocol: info.protocol,
            ipv6: info.ipv6,
        };
        (planned, bytes as u64)
    }

    /// The frame, in the buffer that `start` is an offset in.
    #[inline]
    pub(crate) fn frame<'a>(&self, buf: &'a mut [u8]) -> Option<&'a mut [u8]> {
        buf.get_mut(self.start as usize..)?.get_mut(..self.len as usize)
    }

    /// Index of the SA in the batch.
    #[inline]
    pub(crate) fn key(&self) -> usize {
        usize::from(self.key)
    }

    /// Writes the ESP packets of the frame, except what sealing writes.
    #[inline(always)]
    pub(crate) fn emit(&self, frame: &mut [u8], sa: &OutSa, tx: &mut TxBatch) {
        let next_header = if self.ipv6 { protocol::IPV6 } else { protocol::IPV4 };
        let mut writer =
            EspWriter { planned: self, sa, next_header, sequence: self.sequence, at: self.at as usize };
        if self.size == 0 {
            let inner = writer.begin_packet(tx, frame.len());
            match self.csum {
                None => inner.copy_from_slice(frame),
                Some((start, offset)) => {
                    copy_with_checksum(inner, frame, usize::from(start), usize::from(offset))
                }
            }
            writer.finish_packet(tx, frame.len());
            return;
        }
        let (header, size) = (usize::from(self.header), usize::from(self.size));
        let mut template = Template::new(frame, self.upper as usize, header, self.protocol, self.ipv6);
        let (head, payload) = frame.split_at(header);
        let mut rest = payload;
        loop {
            let (body, after) = rest.split_at(size.min(rest.len()));
            let inner = writer.begin_packet(tx, header + body.len());
            let (inner_head, inner_body) = inner.split_at_mut(header);
            inner_head.copy_from_slice(head);
            // Two passes, which the processor overlaps: the copy waits for stores, the sum for
            // nothing.
            inner_body.copy_from_slice(body);
            let payload_sum = sum(body);
            template.patch(inner_head, body.len(), payload_sum, after.is_empty());
            writer.finish_packet(tx, header + body.len());
            rest = after;
            if rest.is_empty() {
                return;
            }
        }
    }
}

impl TxBatch {
    /// Writes the packets of the frames that [`crate::Worker::plan`] has taken from `buf`. Needs
    /// nothing that threads share: several may do so at a time, each with its own batch.
    pub fn emit(&mut self, buf: &mut [u8]) {
        if self.plan.is_empty() {
            return;
        }
        let (mut plan, sas) = (std::mem::take(&mut self.plan), std::mem::take(&mut self.sas));
        for planned in &plan {
            if let (Some(frame), Some(sa)) = (planned.frame(buf), sas.get(planned.key())) {
                planned.emit(frame, sa, self);
            }
        }
        plan.clear();
        (self.plan, self.sas) = (plan, sas);
        self.lap(Stage::Encapsulation);
    }
}

/// Offset of the checksum in the header of a protocol whose checksum a kernel leaves to the device.
#[inline]
fn checksum_of(protocol: u8) -> Option<usize> {
    match protocol {
        protocol::TCP => Some(tcp::CHECKSUM),
        protocol::UDP => Some(udp::CHECKSUM),
        _ => None,
    }
}

/// True when the field that an offload header wants completed is the checksum of the packet's TCP
/// or UDP: `csum` is the offset of the upper-layer header, and from there the offset of the field.
/// Any other place would let a sender overwrite bytes that policy has decided about, such as ports.
#[inline]
pub(super) fn is_valid_checksum_offload(csum: Option<(u16, u16)>, frame: &[u8], info: &IpInfo) -> bool {
    let Some((start, offset)) = csum else { return true };
    let (start, offset) = (usize::from(start), usize::from(offset));
    // A fragment's checksum was completed before the packet was cut.
    let whole = info.fragment == Fragment::No && start + offset + 2 <= frame.len();
    whole
        && (start == info.upper && checksum_of(info.protocol) == Some(offset)
            || is_inner_checksum(frame, info, start, offset))
}

/// True when the field is the checksum of TCP or UDP in a packet that this one carries (VXLAN,
/// Geneve, GRE, IP in IP), which Linux leaves to a device since 6.17. The IP header of that inner
/// packet must stand right before the covered bytes and name the protocol.
#[cold]
fn is_inner_checksum(frame: &[u8], info: &IpInfo, start: usize, offset: usize) -> bool {
    let headers = match info.protocol {
        protocol::UDP => info.upper + udp::HEADER,
        protocol::GRE | protocol::IPV4 | protocol::IPV6 => info.upper,
        _ => return false,
    };
    let Some(between) = frame.get(headers..start) else { return false };
    let is = |protocol: u8| checksum_of(protocol) == Some(offset);
    let v6 = between.last_chunk::<{ v6::HEADER }>().is_some_and(|h| h[0] >> 4 == 6 && is(h[6]));
    let v4 = (v4::MIN_HEADER..=60).step_by(4).any(|len| {
        let h = between.len().checked_sub(len).map(|at| &between[at..]);
        h.is_some_and(|h| usize::from(h[0]) == 0x40 + len / 4 && is(h[9]))
    });
    v4 || v6
}

/// Copies a packet and completes its checksum, whose field holds the sum of the pseudo-header
/// ([`is_valid_checksum_offload`]).
fn copy_with_checksum(inner: &mut [u8], frame: &[u8], start: usize, offset: usize) {
    let field = start + offset;
    let (head, covered) = frame.split_at(start);
    inner[..start].copy_from_slice(head);
    inner[start..].copy_from_slice(covered);
    let value = udp::no_zero(!fold(sum(covered)));
    inner[field..field + 2].copy_from_slice(&value.to_ne_bytes());
}

/// Completes the checksum of a packet where it is, as [`copy_with_checksum`] does.
pub(super) fn complete_checksum(frame: &mut [u8], info: &IpInfo, (start, offset): (u16, u16)) -> Option<()> {
    if !is_valid_checksum_offload(Some((start, offset)), frame, info) {
        return None;
    }
    let (start, offset) = (usize::from(start), usize::from(offset));
    let covered = frame.get_mut(start..)?;
    let value = udp::no_zero(!fold(sum(covered)));
    covered.get_mut(offset..offset + 2)?.copy_from_slice(&value.to_ne_bytes());
    Some(())
}

/// Cuts a super-packet into `scratch`, one packet after the other, and shows each to `each` until
/// that fails.
pub(super) fn each_segment(
    frame: &mut [u8],
    info: &IpInfo,
    (header, size): (usize, usize),
    scratch: &mut Vec<u8>,
    mut each: impl FnMut(&[u8]) -> Result<(), DropReason>,
) -> Result<(), DropReason> {
    let mut template = Template::new(frame, info.upper, header, info.protocol, info.ipv6);
    let (head, mut rest) = frame.split_at(header);
    loop {
        let (body, after) = rest.split_at(size.min(rest.len()));
        scratch.clear();
        scratch.extend_from_slice(head);
        scratch.extend_from_slice(body);
        template.patch(&mut scratch[..header], body.len(), sum(body), after.is_empty());
        each(scratch)?;
        rest = after;
        if rest.is_empty() {
            return Ok(());
        }
    }
}

/// Writes the ESP packets of a frame, one after the other.
struct EspWriter<'a> {
    planned: &'a PlannedFrame,
    sa: &'a OutSa,
    next_header: u8,
    sequence: u64,
    at: usize,
}

impl EspWriter<'_> {
    /// Writes the ESP header and trailer around `inner` bytes, and returns the room for these.
    #[inline(always)]
    fn begin_packet<'b>(&self, tx: &'b mut TxBatch, inner: usize) -> &'b mut [u8] {
        let state = &*self.sa.state;
        let tail = esp::pad_len(inner, state.block_len()) + esp::TRAILER;
        let start = esp::HEADER + state.iv_len();
        let out = &mut tx.buf[self.at..self.at + start + inner + tail + state.icv_len()];
        out[..4].copy_from_slice(&state.spi.0.to_be_bytes());
        out[4..8].copy_from_slice(&(self.sequence as u32).to_be_bytes());
        let (inner, rest) = out[start..].split_at_mut(inner);
        esp::emit_trailer(&mut rest[..tail], self.next_header);
        inner
    }

    /// Enters the packet that has just been written.
    #[inline(always)]
    fn finish_packet(&mut self, tx: &mut TxBatch, inner: usize) {
        let len = self.sa.state.esp_len(inner);
        let PlannedFrame { key, tos, fragmentable, .. } = *self.planned;
        tx.push_send((self.at, len), key, self.sa, tos, fragmentable);
        tx.jobs.push(Job { start: self.at as u32, len: len as u32, seq: self.sequence, key, ok: false });
        self.at += len;
        // Wrapping is harmless: no packet follows the one with the last number.
        self.sequence = self.sequence.wrapping_add(1);
    }
}

/// The parts of the headers that all segments share, and their checksums.
struct Template {
    ipv6: bool,
    tcp: bool,
    upper: usize,
    /// IPv4 header without total length, identification and checksum.
    ip_sum: u64,
    id: u16,
    /// Upper-layer header without the fields below, and the pseudo-header without length.
    upper_sum: u64,
    sequence: u32,
    /// Data offset and flags.
    flags: [u8; 2],
}

impl Template {
    /// Clears the fields of `frame` that [`Self::patch`] writes, and sums the rest.
    fn new(frame: &mut [u8], upper: usize, header: usize, protocol: u8, ipv6: bool) -> Self {
        let tcp = protocol == protocol::TCP;
        let mut t = Self { ipv6, tcp, upper, ip_sum: 0, id: 0, upper_sum: 0, sequence: 0, flags: [0; 2] };
        if ipv6 {
            t.upper_sum = pseudo(&frame[8..v6::HEADER], protocol);
        } else {
            t.id = u16::from_be_bytes([frame[4], frame[5]]);
            frame[2..6].fill(0);
            frame[10..12].fill(0);
            t.ip_sum = sum(&frame[..upper]);
            t.upper_sum = pseudo(&frame[12..20], protocol);
        }
        let h = &mut frame[upper..header];
        if tcp {
            t.sequence = u32::from_be_bytes([h[4], h[5], h[6], h[7]]);
            t.flags = [h[12], h[13]];
            h[4..8].fill(0);
            h[12..14].fill(0);
            h[tcp::CHECKSUM..tcp::CHECKSUM + 2].fill(0);
        } else {
            h[4..8].fill(0);
        }
        t.upper_sum += sum(h);
        t
    }

    /// Completes the headers of the next segment.
    #[inline]
    fn patch(&mut self, head: &mut [u8], body: usize, payload_sum: u64, last: bool) {
        let (ip, h) = head.split_at_mut(self.upper);
        let upper_len = (h.len() + body) as u16;
        if self.ipv6 {
            let length = (self.upper - v6::HEADER) as u16 + upper_len;
            ip[4..6].copy_from_slice(&length.to_be_bytes());
        } else {
            let length = self.upper as u16 + upper_len;
            ip[2..4].copy_from_slice(&length.to_be_bytes());
            ip[4..6].copy_from_slice(&self.id.to_be_bytes());
            let check = !fold(self.ip_sum + be16(length) + be16(self.id));
            ip[10..12].copy_from_slice(&check.to_ne_bytes());
            self.id = self.id.wrapping_add(1);
        }
        let total = self.upper_sum + payload_sum + be16(upper_len);
        if self.tcp {
            let [offset, mut flags] = self.flags;
            if !last {
                flags &= !(tcp::FIN | tcp::PSH);
            }
            let total = total
                + be16((self.sequence >> 16) as u16)
                + be16(self.sequence as u16)
                + be16(u16::from_be_bytes([offset, flags]));
            h[4..8].copy_from_slice(&self.sequence.to_be_bytes());
            h[12..14].copy_from_slice(&[offset, flags]);
            h[tcp::CHECKSUM..tcp::CHECKSUM + 2].copy_from_slice(&(!fold(total)).to_ne_bytes());
            self.sequence = self.sequence.wrapping_add(body as u32);
            // "The CWR flag ... only in the first": the sender reduces its window once (RFC 3168
            // section 6.1.2).
            self.flags[1] &= !tcp::CWR;
        } else {
            h[4..6].copy_from_slice(&upper_len.to_be_bytes());
            // The length counts in the header and in the pseudo-header.
            let check = udp::no_zero(!fold(total + be16(upper_len)));
            h[udp::CHECKSUM..udp::CHECKSUM + 2].copy_from_slice(&check.to_ne_bytes());
        }
    }
}
