//! Puts fragments together in front of transport mode, which applies "only to whole IP datagrams
//! (not to IP fragments)" (RFC 4303 section 3.3.4, RFC 4302 section 3.3.4). RFC 791 section 3.2,
//! RFC 8200 section 4.5, RFC 5722 (no overlaps).
//!
//! ```text
//! fragments -> one of MAX_PACKETS slots (addresses, id) -> header | data at its offset -> packet
//!              `-- at most MAX_BYTES together, TIMEOUT each --'
//!              an overlap or a lie drops the whole packet
//! ```
//!
//! Slots are few and searched one by one: nothing is hashed, so no choice of addresses makes it
//! slow.
//!
//! The books: a fragment that waits counts in `held`; when its packet is whole, all but one of its
//! fragments leave `held` as `out_absorbed`, and the last one stands for the packet; when it is
//! given up, each is dropped under `OutReassembly`.
//!
//! Not here: fragments that tunnel mode carries as they are (RFC 4301 section 7), and making
//! fragments.

use std::time::Duration;

use ironswan_wire::ip::{Fragment, IpInfo, ext, v4, v6};

use crate::counters::{DropReason, Tally};
use crate::fragment::shows_ports;

/// Packets that wait for fragments at one time.
const MAX_PACKETS: usize = 64;
/// Bytes that they may take together.
const MAX_BYTES: usize = 1 << 20;
/// Time that a packet waits from its first fragment on. RFC 8200 has 60 s, RFC 1122 section 3.3.2
/// wants 60 to 120; Linux takes 30.
const TIMEOUT: Duration = Duration::from_secs(30);
/// Fragments of one packet; at the least data a link carries, this is more than any packet needs.
const MAX_FRAGMENTS: usize = 256;
/// Longest IPv4 packet, and longest payload of an IPv6 packet.
const MAX_PACKET: usize = 65_535;
/// Buffers that are kept for the next packets.
const MAX_SPARE: usize = 8;

/// Result of [`Reassembler::push`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PushResult {
    /// The fragment waits for the others, and was counted as held.
    Held,
    /// The packet of the fragment is whole: [`Reassembler::packet_mut`]. The caller counts it as
    /// one packet.
    Whole,
    /// The fragment was counted as dropped, with the others of its packet.
    Dropped,
}

/// Which packet a fragment is of: addresses, identification, and for IPv4 the protocol.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    ipv6: bool,
    protocol: u8,
    id: u32,
    addresses: [u8; 32],
}

/// The packet that a fragment belongs to, and its place in it.
struct FragmentInfo<'a> {
    key: Key,
    /// Offset of its data in the packet's data, in bytes.
    offset: usize,
    last: bool,
    /// Length of what will stand in front of the packet's data.
    head_len: usize,
    /// Which byte of that, for IPv6, gets which next header in place of the fragment header.
    next: Option<(usize, u8)>,
    data: &'a [u8],
}

/// A packet that is not whole yet.
struct PartialPacket {
    key: Key,
    since: Duration,
    /// Fragments that came, duplicates too: so many are held.
    fragments: usize,
    /// Data that has come, as (offset, length) in bytes, in order of offset.
    pieces: Vec<(u16, u16)>,
    /// Bytes of `pieces` together.
    filled: usize,
    /// Length of all the data, once the last fragment came.
    total: Option<usize>,
    /// Header of the first fragment; empty until it came.
    head: Vec<u8>,
    data: Vec<u8>,
    /// Bit `1 << n` for ECN codepoint n of a fragment.
    ecn: u8,
    /// "the entire datagram (and any constituent fragments, including those not yet received) MUST
    /// be silently discarded" (RFC 5722 section 4): what else comes of it is dropped until its time
    /// is up.
    given_up: bool,
}

/// Packets of which fragments are missing, and the last one that became whole.
#[derive(Default)]
pub(crate) struct Reassembler {
    /// The oldest first.
    partial: Vec<PartialPacket>,
    /// Bytes allocated for data in `partial`.
    bytes: usize,
    /// Memory of former packets.
    spare: Vec<PartialPacket>,
    whole: Vec<u8>,
}

impl Reassembler {
    /// Takes a fragment, or a packet whose fragment header says that it is whole (RFC 6946). `info`
    /// is what [`ironswan_wire::ip::parse`] says of `packet`, which is as long as its header says.
    pub(crate) fn push(
        &mut self,
        now: Duration,
        packet: &[u8],
        info: &IpInfo,
        tally: &mut Tally,
    ) -> PushResult {
        self.expire(now, tally);
        if info.fragment == Fragment::No {
            self.whole.clear();
            self.whole.extend_from_slice(packet);
            if info.ipv6 {
                drop_fragment_header(&mut self.whole);
            }
            return PushResult::Whole;
        }
        let Some(piece) = FragmentInfo::read(packet, info) else {
            tally.drop(DropReason::OutReassembly);
            return PushResult::Dropped;
        };
        let at = match self.partial.iter().rposition(|p| p.key == piece.key) {
            Some(at) => at,
            None => self.begin(now, piece.key, tally),
        };
        let partial = &mut self.partial[at];
        if partial.given_up {
            tally.drop(DropReason::OutReassembly);
            return PushResult::Dropped;
        }
        partial.fragments += 1;
        tally.held += 1;
        let before = partial.data.capacity();
        let taken = partial.take(&piece, packet, info.tos);
        self.bytes = self.bytes + partial.data.capacity() - before;
        if !taken {
            self.give_up(at, tally);
            return PushResult::Dropped;
        }
        if partial.is_whole() {
            return self.finish(at, tally);
        }
        // The oldest make room. The newest stays: alone it is shorter than the bound.
        while self.bytes > MAX_BYTES && self.partial.len() > 1 {
            self.remove(0, tally);
        }
        PushResult::Held
    }

    /// The packet that became whole by the last [`Self::push`], with a right header.
    pub(crate) fn packet_mut(&mut self) -> &mut Vec<u8> {
        &mut self.whole
    }

    /// Gives up packets that have waited too long.
    pub(crate) fn expire(&mut self, now: Duration, tally: &mut Tally) {
        while self.partial.first().is_some_and(|p| now.saturating_sub(p.since) >= TIMEOUT) {
            self.remove(0, tally);
        }
    }

    /// When [`Self::expire`] has something to do; `None` when nothing waits.
    pub(crate) fn next_expiry(&self) -> Option<Duration> {
        self.partial.first().map(|p| p.since + TIMEOUT)
    }

    /// A slot for a packet whose first fragment this is.
    fn begin(&mut self, now: Duration, key: Key, tally: &mut Tally) -> usize {
        if self.partial.len() >= MAX_PACKETS {
            self.remove(0, tally);
        }
        let mut partial = self.spare.pop().unwrap_or_else(|| PartialPacket::new(key));
        partial.reset(key, now);
        self.bytes += partial.data.capacity();
        self.partial.push(partial);
        self.partial.len() - 1
    }

    /// Drops the fragments of a packet that have come, and remembers to drop all further ones.
    fn give_up(&mut self, at: usize, tally: &mut Tally) {
        let partial = &mut self.partial[at];
        tally.held -= partial.fragments as i64;
        for _ in 0..std::mem::take(&mut partial.fragments) {
            tally.drop(DropReason::OutReassembly);
        }
        partial.given_up = true;
        self.bytes -= partial.data.capacity();
        partial.data = Vec::new();
    }

    /// Forgets a packet, and drops its fragments.
    fn remove(&mut self, at: usize, tally: &mut Tally) {
        if !self.partial[at].given_up {
            self.give_up(at, tally);
        }
        self.recycle(at);
    }

    fn recycle(&mut self, at: usize) {
        let partial = self.partial.remove(at);
        self.bytes -= partial.data.capacity();
        if self.spare.len() < MAX_SPARE {
            self.spare.push(partial);
        }
    }

    fn finish(&mut self, at: usize, tally: &mut Tally) -> PushResult {
        if !self.partial[at].assemble(&mut self.whole) {
            self.give_up(at, tally);
            return PushResult::Dropped;
        }
        let fragments = self.partial[at].fragments;
        tally.held -= fragments as i64;
        // The one that completed it is the packet.
        tally.traffic.out_absorbed += fragments as u64 - 1;
        self.recycle(at);
        PushResult::Whole
    }
}

impl PartialPacket {
    fn new(key: Key) -> Self {
        Self {
            key,
            since: Duration::ZERO,
            fragments: 0,
            pieces: Vec::new(),
            filled: 0,
            total: None,
            head: Vec::new(),
            data: Vec::new(),
            ecn: 0,
            given_up: false,
        }
    }

    fn reset(&mut self, key: Key, now: Duration) {
        self.pieces.clear();
        self.head.clear();
        self.data.clear();
        (self.key, self.since, self.fragments, self.filled) = (key, now, 0, 0);
        (self.total, self.ecn, self.given_up) = (None, 0, false);
    }

    /// Takes a fragment; false when the packet has to be given up for it.
    fn take(&mut self, piece: &FragmentInfo<'_>, packet: &[u8], tos: u8) -> bool {
        let (start, end) = (piece.offset, piece.offset + piece.data.len());
        self.ecn |= 1 << (tos & 3);
        let at = self.pieces.partition_point(|(offset, _)| usize::from(*offset) < start);
        if let Some((offset, len)) = self.pieces.get(at).map(|(o, l)| (usize::from(*o), usize::from(*l)))
            && offset < end
        {
            // "an implementation may choose to detect this case and drop exact duplicate fragments
            // while keeping the other fragments belonging to the same packet" (RFC 8200 section
            // 4.5). Anything else overlaps.
            return offset == start
                && len == piece.data.len()
                && self.data[start..end] == *piece.data
                && piece.last == (self.total == Some(end));
        }
        let before = at.checked_sub(1).map(|i| self.pieces[i]);
        if before.is_some_and(|(offset, len)| usize::from(offset) + usize::from(len) > start) {
            return false;
        }
        // Only one end, and nothing behind it.
        let fits = match self.total {
            Some(total) => !piece.last && end <= total,
            None => !piece.last || at == self.pieces.len(),
        };
        if !fits || end > MAX_PACKET || self.pieces.len() == MAX_FRAGMENTS {
            return false;
        }
        if piece.last {
            self.total = Some(end);
        }
        if start == 0 {
            self.head.extend_from_slice(&packet[..piece.head_len]);
            if let Some((at, next)) = piece.next {
                self.head[at] = next;
            }
        }
        if self.data.len() < end {
            self.data.resize(end, 0);
        }
        self.data[start..end].copy_from_slice(piece.data);
        self.pieces.insert(at, (start as u16, piece.data.len() as u16));
        self.filled += piece.data.len();
        true
    }

    fn is_whole(&self) -> bool {
        self.total == Some(self.filled)
    }

    /// Writes the packet; false when it would be no packet.
    fn assemble(&self, whole: &mut Vec<u8>) -> bool {
        whole.clear();
        whole.extend_from_slice(&self.head);
        whole.extend_from_slice(&self.data);
        let ipv6 = self.key.ipv6;
        let len = whole.len() - if ipv6 { v6::HEADER } else { 0 };
        if len > MAX_PACKET {
            return false;
        }
        // Congestion that one fragment has met counts for the packet (RFC 3168 section 5.3). A
        // fragment without ECN beside it cannot be from the same sender.
        let congested = self.ecn & 1 << 3 != 0;
        if congested && self.ecn & 1 != 0 {
            return false;
        }
        let length = (len as u16).to_be_bytes();
        if ipv6 {
            whole[4..6].copy_from_slice(&length);
            if congested {
                whole[1] |= 0x30;
            }
        } else {
            whole[2..4].copy_from_slice(&length);
            whole[6] &= (v4::DF >> 8) as u8 | 0x80;
            whole[7] = 0;
            if congested {
                whole[1] |= 3;
            }
            v4::set_checksum(&mut whole[..self.head.len()]);
        }
        true
    }
}

impl<'a> FragmentInfo<'a> {
    /// `None` when no packet has such a fragment.
    fn read(packet: &'a [u8], info: &IpInfo) -> Option<Self> {
        let mut addresses = [0; 32];
        let (key, field, more, head_len, next, data) = if info.ipv6 {
            let fragment = ext::fragment_header(packet)?;
            let h: &[u8; 8] = packet.get(fragment.at..)?.first_chunk()?;
            addresses.copy_from_slice(packet.get(8..40)?);
            let id = u32::from_be_bytes([h[4], h[5], h[6], h[7]]);
            let field = u16::from_be_bytes([h[2], h[3]]);
            let key = Key { ipv6: true, protocol: 0, id, addresses };
            let next = Some((fragment.announced_at, h[0]));
            (key, field & 0xfff8, field & 1 != 0, fragment.at, next, packet.get(fragment.at + 8..)?)
        } else {
            let h: &[u8; v4::MIN_HEADER] = packet.first_chunk()?;
            let head_len = usize::from(h[0] & 0x0f) * 4;
            addresses[..8].copy_from_slice(&h[12..20]);
            let id = u32::from(u16::from_be_bytes([h[4], h[5]]));
            let field = u16::from_be_bytes([h[6], h[7]]);
            let key = Key { ipv6: false, protocol: h[9], id, addresses };
            (key, (field & 0x1fff) << 3, field & v4::MF != 0, head_len, None, packet.get(head_len..)?)
        };
        let offset = usize::from(field);
        // Every fragment but the last is whole units of 8 bytes; one without data says nothing.
        let sound = !data.is_empty() && (!more || data.len() % 8 == 0);
        // "it MUST include the entire IPv6 Header Chain in the First Fragment" (RFC 7112 section
        // 5): the policy is chosen by it.
        let shown = offset != 0 || shows_ports(packet, info);
        (sound && shown).then_some(Self { key, offset, last: !more, head_len, next, data })
    }
}

/// Takes out the fragment header of an IPv6 packet, if it has one.
fn drop_fragment_header(packet: &mut Vec<u8>) {
    if let Some(fragment) = ext::fragment_header(packet)
        && let Some(next) = packet.get(fragment.at).copied()
    {
        packet[fragment.announced_at] = next;
        packet.drain(fragment.at..fragment.at + 8);
        let payload = (packet.len() - v6::HEADER) as u16;
        packet[4..6].copy_from_slice(&payload.to_be_bytes());
    }
}

#[cfg(test)]
mod tests;
