//! Result of parsing an IP packet: its upper-layer header, fragmentation, ports and selectors.

use std::net::IpAddr;

use crate::selector::PacketSelector;

/// Upper-layer protocol numbers that the packet path looks into.
pub mod protocol {
    /// ICMP for IPv4.
    pub const ICMP: u8 = 1;
    /// IPv4 in IP, the next header of ESP tunnel mode.
    pub const IPV4: u8 = 4;
    /// TCP.
    pub const TCP: u8 = 6;
    /// UDP.
    pub const UDP: u8 = 17;
    /// IPv6 in IP, the next header of ESP tunnel mode.
    pub const IPV6: u8 = 41;
    /// Generic routing encapsulation.
    pub const GRE: u8 = 47;
    /// ESP.
    pub const ESP: u8 = 50;
    /// AH.
    pub const AH: u8 = 51;
    /// ICMPv6.
    pub const ICMPV6: u8 = 58;
    /// No next header: a dummy packet inside ESP (RFC 4303 section 2.6).
    pub const NONE: u8 = 59;
    /// DCCP.
    pub const DCCP: u8 = 33;
    /// IPComp (RFC 3173).
    pub const IPCOMP: u8 = 108;
    /// SCTP.
    pub const SCTP: u8 = 132;
    /// Mobility header (RFC 6275).
    pub const MH: u8 = 135;
    /// UDP-Lite.
    pub const UDPLITE: u8 = 136;
}

/// Why bytes are not an IP packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum IpError {
    /// Neither version 4 nor version 6.
    Version,
    /// Shorter than its header, or than its header says.
    Truncated,
    /// A header length below the minimum, or beyond the packet's own length.
    HeaderLength,
    /// More IPv6 extension headers than any real packet has.
    Extensions,
}

/// Which piece of a datagram a packet is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Fragment {
    /// Whole.
    No,
    /// The first of several: the upper-layer header is here.
    First,
    /// A later one: ports cannot be seen.
    Later,
}

/// Result of `parse`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct IpInfo {
    /// True for IPv6.
    pub ipv6: bool,
    /// TOS or traffic class: DSCP and ECN.
    pub tos: u8,
    /// Length of the packet as its header says, at most the bytes given.
    pub total_len: usize,
    /// Offset of the upper-layer header, at most `total_len`.
    pub upper: usize,
    /// Upper-layer protocol, behind extension headers.
    pub protocol: u8,
    /// Fragmentation.
    pub fragment: Fragment,
}

impl IpInfo {
    /// Source and destination port where this packet shows them; for ICMP `type << 8 | code` in
    /// both, for the mobility header `type << 8` in both (RFC 4301 section 4.4.1.1).
    #[inline]
    pub fn ports(&self, packet: &[u8]) -> Option<(u16, u16)> {
        if self.fragment == Fragment::Later {
            return None;
        }
        let upper = packet.get(self.upper..self.total_len)?;
        match self.protocol {
            protocol::TCP | protocol::UDP | protocol::SCTP | protocol::DCCP | protocol::UDPLITE => {
                let p = upper.first_chunk::<4>()?;
                Some((u16::from_be_bytes([p[0], p[1]]), u16::from_be_bytes([p[2], p[3]])))
            }
            protocol::ICMP | protocol::ICMPV6 => {
                let p = upper.first_chunk::<2>()?;
                let v = u16::from_be_bytes(*p);
                Some((v, v))
            }
            protocol::MH => {
                let p = upper.first_chunk::<3>()?;
                let v = u16::from(p[2]) << 8;
                Some((v, v))
            }
            _ => None,
        }
    }

    /// Source and destination address.
    #[inline]
    pub fn addresses(&self, packet: &[u8]) -> Option<(IpAddr, IpAddr)> {
        if self.ipv6 {
            let src: [u8; 16] = *packet.get(8..24)?.first_chunk()?;
            let dst: [u8; 16] = *packet.get(24..40)?.first_chunk()?;
            Some((IpAddr::from(src), IpAddr::from(dst)))
        } else {
            let src: [u8; 4] = *packet.get(12..16)?.first_chunk()?;
            let dst: [u8; 4] = *packet.get(16..20)?.first_chunk()?;
            Some((IpAddr::from(src), IpAddr::from(dst)))
        }
    }

    /// The packet's selectors.
    pub fn selector(&self, packet: &[u8]) -> Option<PacketSelector> {
        let (src, dst) = self.addresses(packet)?;
        let ports = self.ports(packet);
        Some(PacketSelector {
            src,
            dst,
            protocol: self.protocol,
            src_port: ports.map(|p| p.0),
            dst_port: ports.map(|p| p.1),
        })
    }
}
