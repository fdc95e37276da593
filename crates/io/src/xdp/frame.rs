//! A frame from the interface, checked as the kernel would have checked it before it gave the
//! payload to a socket.
//!
//! Nothing is taken from the program's word: lengths, protocols and addresses are looked at again
//! here. The checksum of an IPv4 header must be right. That of UDP is not looked at: what it
//! protects is ESP, which is authenticated, and RFC 3948 section 2.1 has it ignored; in a virtual
//! network it is often not even filled in.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::ops::Range;

/// An ESP packet found in a frame.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Esp {
    /// Bytes of the frame that hold the ESP packet.
    pub range: Range<usize>,
    /// Our address.
    pub local: IpAddr,
    /// The sender; port 0 for ESP without UDP.
    pub remote: SocketAddr,
    /// TOS or traffic class.
    pub tos: u8,
}

const ETHERNET: usize = 14;
const UDP: usize = 8;
const PROTOCOL_UDP: u8 = 17;
const PROTOCOL_ESP: u8 = 50;

/// Takes a frame apart that came in on interface `index`. `None` when its headers contradict each
/// other, the frame or the standards, or it is not ESP.
pub(super) fn parse(frame: &[u8], index: u32, port: u16) -> Option<Esp> {
    let ip = frame.get(ETHERNET..)?;
    match u16::from_be_bytes([*frame.get(12)?, *frame.get(13)?]) {
        0x0800 => v4(ip, port),
        0x86dd => v6(ip, index, port),
        _ => None,
    }
}

fn v4(ip: &[u8], port: u16) -> Option<Esp> {
    let header: &[u8; 20] = ip.first_chunk()?;
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    let fragment = u16::from_be_bytes([header[6], header[7]]) & 0x3fff;
    if header[0] != 0x45 || fragment != 0 || total < 20 || total > ip.len() || !checksum_is_right(header) {
        return None;
    }
    let address = |at: usize| Ipv4Addr::new(header[at], header[at + 1], header[at + 2], header[at + 3]);
    let source = address(12);
    // Sources that the kernel calls martian (RFC 1812 section 5.3.7).
    if source.octets()[0] == 0 || source.is_multicast() || source.is_broadcast() || source.is_loopback() {
        return None;
    }
    let (range, source_port) = upper(&ip[..total], 20, header[9], port)?;
    Some(Esp {
        range: range.start + ETHERNET..range.end + ETHERNET,
        local: address(16).into(),
        remote: SocketAddr::new(source.into(), source_port),
        tos: header[1],
    })
}

fn v6(ip: &[u8], index: u32, port: u16) -> Option<Esp> {
    let header: &[u8; 40] = ip.first_chunk()?;
    let total = 40 + usize::from(u16::from_be_bytes([header[4], header[5]]));
    if header[0] >> 4 != 6 || total > ip.len() {
        return None;
    }
    let address = |at: usize| header[at..].first_chunk::<16>().map(|a| Ipv6Addr::from(*a));
    let (source, local) = (address(8)?, address(24)?);
    if source.is_unspecified()
        || source.is_multicast()
        || source.is_loopback()
        || source.to_ipv4_mapped().is_some()
        || local.to_ipv4_mapped().is_some()
    {
        return None;
    }
    let (range, source_port) = upper(&ip[..total], 40, header[6], port)?;
    // The kernel's sockets say where a link-local address holds, too.
    let scope = if source.is_unicast_link_local() { index } else { 0 };
    Some(Esp {
        range: range.start + ETHERNET..range.end + ETHERNET,
        local: local.into(),
        remote: SocketAddrV6::new(source, source_port, 0, scope).into(),
        tos: header[0] << 4 | header[1] >> 4,
    })
}

/// The ESP packet in an IP packet, whose upper layer begins at `at`, and the source port.
fn upper(ip: &[u8], at: usize, protocol: u8, port: u16) -> Option<(Range<usize>, u16)> {
    let (range, source) = match protocol {
        PROTOCOL_ESP => (at..ip.len(), 0),
        PROTOCOL_UDP => {
            let udp: &[u8; UDP] = ip.get(at..)?.first_chunk()?;
            let half = |i: usize| u16::from_be_bytes([udp[i], udp[i + 1]]);
            let len = usize::from(half(4));
            // Port 0 is what tells ESP without UDP from ESP with it.
            if len < UDP || len > ip.len() - at || half(0) == 0 || half(2) != port {
                return None;
            }
            (at + UDP..at + len, half(0))
        }
        _ => return None,
    };
    let esp = &ip[range.clone()];
    // SPI and sequence number; no SPI below 256 is anyone's (RFC 4303 section 2.1), and 0 marks
    // IKE.
    let spi = u32::from_be_bytes(*esp.first_chunk()?);
    (esp.len() >= 8 && spi >= 256).then_some((range, source))
}

/// The one's complement sum of a header with a right checksum is all ones (RFC 1071).
fn checksum_is_right(header: &[u8; 20]) -> bool {
    let sum: u32 = header.chunks_exact(2).map(|h| u32::from(u16::from_be_bytes([h[0], h[1]]))).sum();
    let sum = (sum & 0xffff) + (sum >> 16);
    (sum & 0xffff) + (sum >> 16) == 0xffff
}

#[cfg(test)]
#[path = "frame_tests.rs"]
pub(super) mod tests;
