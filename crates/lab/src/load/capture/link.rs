//! The IP packet in a captured frame: where it begins by the kind of link, how many bytes it has,
//! and which flow it belongs to. Frames may be anything. Pure.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Types of links (the registry of link-layer header types).
const ETHERNET: u16 = 1;
const RAW: [u16; 3] = [101, 12, 14];
const IPV4: u16 = 228;
const IPV6: u16 = 229;
const COOKED: u16 = 113;
const COOKED_2: u16 = 276;

/// EtherTypes.
const TYPE_IPV4: u16 = 0x0800;
const TYPE_IPV6: u16 = 0x86dd;
const TYPES_VLAN: [u16; 3] = [0x8100, 0x88a8, 0x9100];
/// Tags that a frame may have.
const MOST_TAGS: usize = 4;

/// Protocols with ports at the same place.
const WITH_PORTS: [u8; 4] = [6, 17, 132, 136];
/// Headers between that of IPv6 and the upper layer: hop-by-hop, routing, destination options.
const EXTENSIONS: [u8; 3] = [0, 43, 60];
const FRAGMENT: u8 = 44;
/// So many are looked at.
const MOST_EXTENSIONS: usize = 8;

/// What tells a flow from another. The ports are 0 where there are none, or were not captured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Flow {
    pub(super) source: IpAddr,
    pub(super) destination: IpAddr,
    pub(super) protocol: u8,
    pub(super) ports: [u16; 2],
}

/// An IP packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Packet {
    /// Bytes, its header included.
    pub(super) size: u32,
    pub(super) flow: Flow,
    pub(super) is_ipv6: bool,
}

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Seen {
    Packet(Packet),
    /// Something else than IP.
    NotIp,
    /// An IP header that cannot be, or that was not captured.
    Damaged,
    /// On a link of a type that is not known.
    Link,
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|b| u16::from_be_bytes(*b))
}

/// The packet in a frame of which `bytes` were captured, of `original`.
pub(super) fn packet(link: u16, bytes: &[u8], original: u32) -> Seen {
    let Some(start) = start(link, bytes) else {
        // Too short for the header of its link.
        return if is_known(link) { Seen::Damaged } else { Seen::Link };
    };
    let Some(start) = start else { return Seen::NotIp };
    let packet = bytes.get(start..).unwrap_or_default();
    let around = u32::try_from(start).unwrap_or(u32::MAX);
    let original = original.saturating_sub(around);
    let parsed = match packet.first().map(|b| b >> 4) {
        Some(4) => ipv4(packet, original),
        Some(6) => ipv6(packet, original),
        _ => None,
    };
    parsed.map_or(Seen::Damaged, Seen::Packet)
}

fn is_known(link: u16) -> bool {
    RAW.contains(&link) || [ETHERNET, IPV4, IPV6, COOKED, COOKED_2].contains(&link)
}

/// Where the packet begins: none for a frame that is too short, or on an unknown link; nothing
/// inside for one that has something else than IP.
fn start(link: u16, bytes: &[u8]) -> Option<Option<usize>> {
    let typed = |kind: u16, at: usize| {
        let is_ip = [TYPE_IPV4, TYPE_IPV6].contains(&kind);
        Some(if is_ip { Some(at) } else { None })
    };
    match link {
        ETHERNET => {
            let mut at = 12;
            for _ in 0..=MOST_TAGS {
                let kind = half(bytes, at)?;
                if !TYPES_VLAN.contains(&kind) {
                    return typed(kind, at + 2);
                }
                at += 4;
            }
            Some(None)
        }
        COOKED => typed(half(bytes, 14)?, 16),
        COOKED_2 => typed(half(bytes, 0)?, 20),
        IPV4 | IPV6 => Some(Some(0)),
        raw if RAW.contains(&raw) => Some(Some(0)),
        _ => None,
    }
}

fn ports(protocol: u8, upper: &[u8]) -> [u16; 2] {
    let known = |at| half(upper, at).filter(|_| WITH_PORTS.contains(&protocol)).unwrap_or(0);
    [known(0), known(2)]
}

fn ipv4(packet: &[u8], original: u32) -> Option<Packet> {
    let header = packet.get(..20)?;
    let length = usize::from(header[0] & 0xf) * 4;
    // A packet that the kernel has not cut yet may have no length.
    let total = match half(header, 2)? {
        0 => original,
        total => u32::from(total),
    };
    if length < 20 || (total as usize) < length {
        return None;
    }
    let address = |at: usize| Some(Ipv4Addr::from(*header.get(at..)?.first_chunk::<4>()?));
    let later = half(header, 6)? & 0x1fff != 0;
    let upper = packet.get(length..).filter(|_| !later).unwrap_or_default();
    let (source, destination) = (address(12)?.into(), address(16)?.into());
    let flow = Flow { source, destination, protocol: header[9], ports: ports(header[9], upper) };
    Some(Packet { size: total, flow, is_ipv6: false })
}

fn ipv6(packet: &[u8], original: u32) -> Option<Packet> {
    let header = packet.get(..40)?;
    let size = match half(header, 4)? {
        // A jumbogram, or one that the kernel has not cut yet.
        0 => original.max(40),
        payload => 40 + u32::from(payload),
    };
    let address = |at: usize| Some(Ipv6Addr::from(*header.get(at..)?.first_chunk::<16>()?));
    let (mut protocol, mut at) = (header[6], 40);
    let mut later = false;
    for _ in 0..MOST_EXTENSIONS {
        let Some(extension) = packet.get(at..).filter(|rest| rest.len() >= 8) else { break };
        if EXTENSIONS.contains(&protocol) {
            at += 8 + 8 * usize::from(extension[1]);
        } else if protocol == FRAGMENT {
            later = half(extension, 2)? & 0xfff8 != 0;
            at += 8;
        } else {
            break;
        }
        protocol = extension[0];
    }
    let upper = packet.get(at..).filter(|_| !later).unwrap_or_default();
    let (source, destination) = (address(8)?.into(), address(24)?.into());
    let flow = Flow { source, destination, protocol, ports: ports(protocol, upper) };
    Some(Packet { size, flow, is_ipv6: true })
}
