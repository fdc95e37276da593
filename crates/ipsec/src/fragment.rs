//! Fragments as tunnels carry them (RFC 4301 section 7): a later fragment shows no ports, and
//! the decision about it may depend on them.
//!
//! * Where no policy for its addresses looks at ports, it is decided like any packet (section 7.1).
//!   An OPAQUE policy is for such fragments alone (section 7.2).
//! * Where some policy looks at ports, it takes the decision of its first fragment (sections 7.3
//!   and 7.4). The flow of the first fragment is remembered here by addresses and identification,
//!   for [`FIRST_TIMEOUT`]. Without a known first fragment it is dropped.
//!
//! A first fragment that does not have the whole upper-layer header hides its ports and counts as a
//! later one (RFC 1858, RFC 7112); a later one that overlaps the first could change those ports,
//! and is dropped.
//!
//! Memory is of fixed size, taken with the first fragment that comes. A sender who makes many
//! packets collide loses fragments, nothing else. Each worker has its own.
//!
//! Not here: putting fragments together for transport mode (`reasm`).

use std::time::Duration;

use ironswan_wire::ip::{Fragment, IpInfo, ext, protocol};

use crate::flow::FlowKey;

/// Time for which a first fragment is remembered. Linux waits as long for the rest of a packet.
const FIRST_TIMEOUT: Duration = Duration::from_secs(30);
/// Places for packets, by `WAYS`, a power of two.
const SETS: usize = 256;
/// Packets of one place.
const WAYS: usize = 4;

/// True when the packet shows its ports: it is whole, or it is a first fragment with the whole
/// upper-layer header.
#[inline]
pub(crate) fn shows_ports(packet: &[u8], info: &IpInfo) -> bool {
    match info.fragment {
        Fragment::No => true,
        Fragment::First => upper_is_whole(packet, info),
        Fragment::Later => false,
    }
}

fn upper_is_whole(packet: &[u8], info: &IpInfo) -> bool {
    let upper = packet.get(info.upper..info.total_len).unwrap_or(&[]);
    let needed = match info.protocol {
        protocol::TCP => upper.get(12).map_or(20, |b| usize::from(b >> 4).max(5) * 4),
        protocol::UDP | protocol::UDPLITE | protocol::ICMP | protocol::ICMPV6 | protocol::MH => 8,
        protocol::SCTP | protocol::DCCP => 12,
        _ => 1,
    };
    upper.len() >= needed
}

/// Identifies the packet that a fragment belongs to. RFC 791: addresses, protocol, identification;
/// RFC 8200 section 4.5: not the protocol.
#[derive(Clone, Copy, PartialEq, Eq)]
struct PacketId {
    addresses: (u128, u128),
    id: u32,
    protocol: u8,
    ipv6: bool,
    /// Reqid of the SA that the fragment came out of; 0 for packets that leave.
    scope: u32,
}

/// The packet that a fragment belongs to, and its place in it.
struct FragmentInfo {
    packet: PacketId,
    /// Offset in bytes of its data in the packet's data, and the offset of the byte after it.
    start: usize,
    end: usize,
}

impl FragmentInfo {
    fn read(packet: &[u8], info: &IpInfo, scope: u32) -> Option<Self> {
        let addresses = FlowKey::addresses(info, packet)?;
        let (id, protocol, units, head) = if info.ipv6 {
            let at = ext::fragment_header(packet)?.at;
            let h: &[u8; 8] = packet.get(at..)?.first_chunk()?;
            let units = u16::from_be_bytes([h[2], h[3]]) >> 3;
            (u32::from_be_bytes([h[4], h[5], h[6], h[7]]), 0, units, at + 8)
        } else {
            let h: &[u8; 8] = packet.first_chunk()?;
            let units = u16::from_be_bytes([h[6], h[7]]) & 0x1fff;
            (u16::from_be_bytes([h[4], h[5]]).into(), info.protocol, units, info.upper)
        };
        let start = usize::from(units) * 8;
        let end = start + info.total_len.checked_sub(head)?;
        Some(Self { packet: PacketId { addresses, id, protocol, ipv6: info.ipv6, scope }, start, end })
    }
}

/// A first fragment.
#[derive(Clone, Copy)]
struct FirstFragment {
    packet: PacketId,
    flow: FlowKey,
    end: usize,
    at: Duration,
}

/// The first fragments that went through lately.
#[derive(Default)]
pub(crate) struct FirstFragments {
    /// Empty until there is one.
    sets: Vec<[Option<FirstFragment>; WAYS]>,
}

impl FirstFragments {
    /// Notes the flow of a first fragment.
    #[cold]
    pub(crate) fn remember(
        &mut self,
        now: Duration,
        packet: &[u8],
        info: &IpInfo,
        scope: u32,
        flow: FlowKey,
    ) {
        let Some(fragment) = FragmentInfo::read(packet, info, scope) else { return };
        if self.sets.is_empty() {
            self.sets = vec![[None; WAYS]; SETS];
        }
        let Some(set) = self.sets.get_mut(place(&fragment.packet)) else { return };
        let first = FirstFragment { packet: fragment.packet, flow, end: fragment.end, at: now };
        // The same packet again, or an empty way, or the oldest.
        let age = |f: &Option<FirstFragment>| (f.is_none_or(|f| f.packet != first.packet), f.map(|f| f.at));
        if let Some(way) = set.iter_mut().min_by_key(|f| age(f)) {
            *way = Some(first);
        }
    }

    /// The flow of the first fragment of this later one's packet.
    #[cold]
    pub(crate) fn flow(&self, now: Duration, packet: &[u8], info: &IpInfo, scope: u32) -> Option<FlowKey> {
        let fragment = FragmentInfo::read(packet, info, scope)?;
        let set = self.sets.get(place(&fragment.packet))?;
        let first = set.iter().flatten().find(|f| f.packet == fragment.packet)?;
        let fresh = now.saturating_sub(first.at) < FIRST_TIMEOUT;
        (fresh && info.fragment == Fragment::Later && fragment.start >= first.end).then_some(first.flow)
    }
}

fn place(packet: &PacketId) -> usize {
    let rest = u64::from(packet.id) << 32 | u64::from(packet.scope);
    FlowKey::from_parts(packet.addresses, rest ^ u64::from(packet.protocol)).slot(SETS)
}

#[cfg(test)]
mod tests;
