//! Merges delivered packets into few writes to the TUN device, by the rules of the kernel's GRO, so
//! that cutting the merged packet again gives the same bytes: TCP runs become one TSO packet, UDP
//! runs one USO packet.
//!
//! A packet joins its flow's run when all of this holds: same SA, addresses, ports, TTL, TOS and
//! ECN, DF, flow label; for IPv4 no options, and DF or the next identification (with DF it means
//! nothing, RFC 6864 section 4.1: Linux sends 0 from sockets that are not connected, and who cuts
//! the merged packet counts up from the first one's); for TCP the next sequence number, same
//! acknowledgment, window, options and flags, none but ACK, ECE, PSH and FIN, and some payload; no
//! longer than the first; and its checksum is right, which is verified here, because the device
//! takes a merged packet's checksum as valid. A run ends with a shorter packet, PSH or FIN, and
//! with any packet of its flow that does not join: a flow is never reordered.

use ironswan_crypto::sum::sum;
use ironswan_wire::ip::checksum::{be16, fold, pseudo};
use ironswan_wire::ip::{Fragment, IpInfo, protocol, tcp, udp, v4, v6};
use ironswan_wire::offload::{Gso, Offload};

use crate::batch::{Checksum, MAX_SUPER, RxBatch, Write};

/// `UDP_MAX_SEGMENTS` of the kernels that this runs on is 64 or 128.
const MAX_UDP_SEGMENTS: u32 = 64;
/// Ranges of one `writev` stay below IOV_MAX with the offload header.
const MAX_TCP_SEGMENTS: u32 = 128;
/// Flows that are followed at a time. A power of two.
const SLOTS: usize = 64;
const NO_INDEX: u32 = u32::MAX;
/// Don't Fragment, in the sixth byte of an IPv4 header.
const DF: u8 = 0x40;

/// The packets of one write.
#[derive(Clone, Copy)]
struct Run {
    /// The first packet, as `RxBatch::slice` reads it.
    first: u32,
    /// Bytes of its headers.
    header: u16,
    upper: u16,
    protocol: u8,
    ipv6: bool,
    spi: u32,
    /// Upper-layer payload of the first packet: all others' but the last's.
    size: u32,
    /// Bytes of the merged packet.
    total: u32,
    packets: u32,
    /// Of the next packet.
    next_sequence: u32,
    next_id: u16,
    /// FIN and PSH of the last packet.
    last_flags: u8,
    /// Takes no more packets.
    closed: bool,
    /// State of the checksum of the first packet.
    sum: Checksum,
    head: u32,
    tail: u32,
}

/// A piece of a run, as `RxBatch::slice` reads it.
#[derive(Clone, Copy)]
struct Piece {
    offset: u32,
    len: u32,
    next: u32,
}

/// A packet to deliver.
pub(super) struct InnerPacket {
    /// Offset of the packet, as `RxBatch::slice` reads it.
    pub(super) at: u32,
    pub(super) info: IpInfo,
    /// Hash of its flow.
    pub(super) flow: u16,
}

/// The properties of a packet that merging compares.
struct Candidate {
    header: usize,
    body: usize,
    sequence: u32,
    flags: u8,
}

/// The runs of one batch.
pub(crate) struct Merger {
    runs: Vec<Run>,
    pieces: Vec<Piece>,
    /// By hash of the flow: index of its run.
    slots: [u32; SLOTS],
    /// Which protocols are merged.
    pub(super) tcp: bool,
    pub(super) udp: bool,
}

impl Default for Merger {
    fn default() -> Self {
        Self { runs: Vec::new(), pieces: Vec::new(), slots: [NO_INDEX; SLOTS], tcp: true, udp: true }
    }
}

impl Merger {
    /// Takes a packet; true when it joined an earlier one.
    #[inline(always)]
    pub(super) fn push(
        &mut self,
        memory: (&[u8], &[u8]),
        opened: &InnerPacket,
        spi: u32,
        sum: Checksum,
    ) -> bool {
        let InnerPacket { at: start, info, flow } = opened;
        let start = *start;
        let packet = bytes(memory, start, info.total_len);
        let follow = info.fragment == Fragment::No
            && (self.tcp && info.protocol == protocol::TCP || self.udp && info.protocol == protocol::UDP);
        if !follow {
            self.open(start, info, spi, None, sum);
            return false;
        }
        let slot = usize::from(*flow) % SLOTS;
        let candidate = candidate(packet, info);
        if let (Some(c), Some(run)) = (&candidate, self.runs.get_mut(self.slots[slot] as usize))
            && !run.closed
            && run.spi == spi
            && matches(run, memory, packet, info, c)
        {
            // The cheap tests have passed: now the checksums, of the run's first packet once.
            if run.sum == Checksum::Unknown {
                let right = checksum_ok(bytes(memory, run.first, run.total as usize), info);
                run.sum = if right { Checksum::Right } else { Checksum::Wrong };
            }
            run.closed = run.sum != Checksum::Right;
            if !run.closed
                && (sum == Checksum::Right || sum == Checksum::Unknown && checksum_ok(packet, info))
            {
                let piece = self.pieces.len() as u32;
                self.pieces.push(Piece {
                    offset: start + c.header as u32,
                    len: c.body as u32,
                    next: NO_INDEX,
                });
                self.pieces[run.tail as usize].next = piece;
                run.tail = piece;
                run.packets += 1;
                run.total += c.body as u32;
                run.next_sequence = run.next_sequence.wrapping_add(c.body as u32);
                run.next_id = run.next_id.wrapping_add(1);
                run.last_flags = c.flags & (tcp::FIN | tcp::PSH);
                let limit = if run.protocol == protocol::TCP { MAX_TCP_SEGMENTS } else { MAX_UDP_SEGMENTS };
                run.closed = (c.body as u32) < run.size || run.last_flags != 0 || run.packets >= limit;
                return true;
            }
        }
        self.slots[slot] = self.runs.len() as u32;
        if let (Some(c), 4..) = (&candidate, packet.len())
            && !info.ipv6
        {
            let id = u16::from_be_bytes([packet[4], packet[5]]);
            self.open(start, info, spi, Some((c, id.wrapping_add(1))), sum);
        } else {
            self.open(start, info, spi, candidate.as_ref().map(|c| (c, 0)), sum);
        }
        false
    }

    /// Begins a run.
    fn open(
        &mut self,
        start: u32,
        info: &IpInfo,
        spi: u32,
        candidate: Option<(&Candidate, u16)>,
        sum: Checksum,
    ) {
        let piece = self.pieces.len() as u32;
        self.pieces.push(Piece { offset: start, len: info.total_len as u32, next: NO_INDEX });
        let (header, body, next_sequence, flags, next_id) = match candidate {
            Some((c, id)) => (c.header, c.body, c.sequence.wrapping_add(c.body as u32), c.flags, id),
            None => (0, 0, 0, 0, 0),
        };
        self.runs.push(Run {
            first: start,
            header: header as u16,
            upper: info.upper as u16,
            protocol: info.protocol,
            ipv6: info.ipv6,
            spi,
            size: body as u32,
            total: info.total_len as u32,
            packets: 1,
            next_sequence,
            next_id,
            last_flags: 0,
            closed: candidate.is_none() || flags & (tcp::FIN | tcp::PSH) != 0,
            sum,
            head: piece,
            tail: piece,
        });
    }

    /// Turns the runs into writes, and returns how many.
    pub(super) fn finish(
        &mut self,
        buf: &mut [u8],
        extra: &mut [u8],
        iov: &mut Vec<(u32, u32)>,
        out: &mut Vec<Write>,
    ) -> u64 {
        for run in &self.runs {
            let begin = iov.len() as u32;
            let mut at = run.head;
            while let Some(piece) = self.pieces.get(at as usize) {
                iov.push((piece.offset, piece.len));
                at = piece.next;
            }
            let offload = match run.first.checked_sub(RxBatch::EXTRA) {
                _ if run.packets == 1 => Offload::NONE,
                None => seal_run(run, &mut buf[run.first as usize..]),
                Some(first) => seal_run(run, &mut extra[first as usize..]),
            };
            out.push(Write { offload, iov: begin..iov.len() as u32, total: run.total });
        }
        let writes = self.runs.len() as u64;
        self.runs.clear();
        self.pieces.clear();
        self.slots = [NO_INDEX; SLOTS];
        writes
    }
}

/// Bytes of the receive buffer or of the batch's own, as `RxBatch::slice` tells them apart.
#[inline]
fn bytes<'a>((buf, extra): (&'a [u8], &'a [u8]), at: u32, len: usize) -> &'a [u8] {
    match at.checked_sub(RxBatch::EXTRA) {
        None => &buf[at as usize..at as usize + len],
        Some(at) => &extra[at as usize..at as usize + len],
    }
}

/// The properties of a packet that may be merged; `None` for one that never may.
#[inline]
fn candidate(packet: &[u8], info: &IpInfo) -> Option<Candidate> {
    // No IPv4 options, no extension headers.
    if info.upper != if info.ipv6 { v6::HEADER } else { v4::MIN_HEADER } {
        return None;
    }
    let upper = &packet[info.upper..];
    if info.protocol == protocol::TCP {
        let length = tcp::header_len(upper)?;
        let flags = upper[13];
        let body = upper.len() - length;
        let plain = flags & !(tcp::FIN | tcp::PSH | tcp::ECE) == tcp::ACK;
        (plain && body != 0).then(|| Candidate {
            header: info.upper + length,
            body,
            sequence: u32::from_be_bytes([upper[4], upper[5], upper[6], upper[7]]),
            flags,
        })
    } else {
        let h = upper.first_chunk::<{ udp::HEADER }>()?;
        let whole = usize::from(u16::from_be_bytes([h[4], h[5]])) == upper.len();
        let body = upper.len() - udp::HEADER;
        // A datagram without checksum cannot be told from a damaged one.
        (whole && body != 0 && h[6..8] != [0, 0]).then_some(Candidate {
            header: info.upper + udp::HEADER,
            body,
            sequence: 0,
            flags: 0,
        })
    }
}

/// True when the packet continues the run, its checksum aside.
#[inline(always)]
fn matches(run: &Run, memory: (&[u8], &[u8]), packet: &[u8], info: &IpInfo, c: &Candidate) -> bool {
    let (header, upper) = (usize::from(run.header), usize::from(run.upper));
    if run.ipv6 != info.ipv6 || run.protocol != info.protocol || header != c.header || upper != info.upper {
        return false;
    }
    let (a, b) = (bytes(memory, run.first, header), &packet[..header]);
    let ip = if run.ipv6 {
        // Version, traffic class, flow label; next header, hop limit, addresses.
        a[..4] == b[..4] && a[6..40] == b[6..40]
    } else {
        // Version, TOS; fragment field, TTL, protocol; addresses.
        a[..2] == b[..2]
            && a[6..10] == b[6..10]
            && a[12..20] == b[12..20]
            && (b[6] & DF != 0 || b[4..6] == run.next_id.to_be_bytes())
    };
    if !ip || c.body > run.size as usize || run.total as usize + c.body > MAX_SUPER {
        return false;
    }
    let (a, b) = (&a[upper..], &b[upper..]);
    if run.protocol == protocol::TCP {
        const ENDS: u8 = tcp::FIN | tcp::PSH;
        // Ports; acknowledgment and data offset; flags; window; urgent pointer and options.
        a[..4] == b[..4]
            && a[8..13] == b[8..13]
            && (a[13] ^ b[13]) & !ENDS == 0
            && a[14..16] == b[14..16]
            && a[18..] == b[18..]
            && c.sequence == run.next_sequence
    } else {
        a[..4] == b[..4]
    }
}

/// Verifies the TCP or UDP checksum of a whole packet.
#[inline(always)]
pub(super) fn checksum_ok(packet: &[u8], info: &IpInfo) -> bool {
    let addresses = if info.ipv6 { &packet[8..40] } else { &packet[12..20] };
    let upper = &packet[info.upper..];
    fold(pseudo(addresses, info.protocol) + be16(upper.len() as u16) + sum(upper)) == 0xffff
}

/// Makes the first packet's headers those of the whole run, with the checksum left to the device.
/// `first` begins with the first packet.
fn seal_run(run: &Run, first: &mut [u8]) -> Offload {
    let (header, upper) = (usize::from(run.header), usize::from(run.upper));
    let h = &mut first[..header];
    let upper_len = (run.total as usize - upper) as u16;
    let addresses = if run.ipv6 {
        h[4..6].copy_from_slice(&upper_len.to_be_bytes());
        &h[8..40]
    } else {
        v4::set_total_len(&mut h[..upper], run.total as u16);
        &h[12..20]
    };
    let partial = fold(pseudo(addresses, run.protocol) + be16(upper_len)).to_ne_bytes();
    let u = &mut h[upper..];
    let (gso, offset) = if run.protocol == protocol::TCP {
        u[13] |= run.last_flags;
        (if run.ipv6 { Gso::TcpV6 } else { Gso::TcpV4 }, tcp::CHECKSUM)
    } else {
        u[4..6].copy_from_slice(&upper_len.to_be_bytes());
        (Gso::UdpL4, udp::CHECKSUM)
    };
    u[offset..offset + 2].copy_from_slice(&partial);
    Offload {
        gso,
        ecn: false,
        segment_size: run.size as u16,
        hdr_len: run.header,
        csum: Some((run.upper, offset as u16)),
        data_valid: false,
    }
}
