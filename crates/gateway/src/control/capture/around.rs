//! The IP header, and for UDP the UDP header, that an outer packet has on the wire. The kernel
//! makes them, so captures make them again.
//!
//! What the kernel alone chooses (identification, hop limit, flow label) is 0 or 64. Checksums are
//! right; that of UDP is 0 over IPv4, "none", when the copy is cut short.

use std::net::{IpAddr, SocketAddr};

use ironswan_wire::ip::checksum::{be16, fold, pseudo, sum};
use ironswan_wire::ip::udp::no_zero;
use ironswan_wire::ip::{protocol, v4};

const UDP_HEADER: usize = 8;
const HOP_LIMIT: u8 = 64;

/// The headers in front of a payload of this length, of which the copy has a part. `udp`: a UDP
/// header too.
pub(super) fn headers(
    (from, to): (SocketAddr, SocketAddr),
    (next, tos): (u8, u8),
    copy: &[u8],
    len: usize,
) -> Vec<u8> {
    let udp = next == protocol::UDP;
    let upper = len + if udp { UDP_HEADER } else { 0 };
    let word = |n: usize| u16::try_from(n).unwrap_or(u16::MAX);
    let mut out = Vec::with_capacity(48);
    let addresses = match (from.ip(), to.ip()) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            out.extend_from_slice(&[0x45, tos]);
            out.extend_from_slice(&word(20 + upper).to_be_bytes());
            out.extend_from_slice(&[0, 0, 0, 0, HOP_LIMIT, next, 0, 0]);
            out.extend_from_slice(&from.octets());
            out.extend_from_slice(&to.octets());
            v4::set_checksum(&mut out);
            12..20
        }
        (from, to) => {
            let v6 = |ip: IpAddr| match ip {
                IpAddr::V4(ip) => ip.to_ipv6_mapped().octets(),
                IpAddr::V6(ip) => ip.octets(),
            };
            out.extend_from_slice(&(6 << 28 | u32::from(tos) << 20).to_be_bytes());
            out.extend_from_slice(&word(upper).to_be_bytes());
            out.extend_from_slice(&[next, HOP_LIMIT]);
            out.extend_from_slice(&v6(from));
            out.extend_from_slice(&v6(to));
            8..40
        }
    };
    if udp {
        let mut header = [0; UDP_HEADER];
        header[..2].copy_from_slice(&from.port().to_be_bytes());
        header[2..4].copy_from_slice(&to.port().to_be_bytes());
        header[4..6].copy_from_slice(&word(upper).to_be_bytes());
        if copy.len() == len {
            let all = pseudo(&out[addresses], next) + be16(word(upper)) + sum(&header) + sum(copy);
            header[6..].copy_from_slice(&no_zero(!fold(all)).to_ne_bytes());
        }
        out.extend_from_slice(&header);
    }
    out
}

#[cfg(test)]
mod tests {
    use ironswan_wire::ip;

    use super::*;

    fn ends(v6: bool) -> (SocketAddr, SocketAddr) {
        let (a, b) = if v6 { ("[2001:db8::1]", "[2001:db8::2]") } else { ("192.0.2.1", "192.0.2.2") };
        (format!("{a}:4500").parse().unwrap(), format!("{b}:1025").parse().unwrap())
    }

    /// The sum over a datagram with its checksum and pseudo-header is all ones.
    fn sums_up(packet: &[u8]) -> bool {
        let info = ip::parse(packet).unwrap();
        let (addresses, upper) = if packet[0] >> 4 == 4 { (12..20, 20) } else { (8..40, 40) };
        let body = &packet[upper..info.total_len];
        fold(pseudo(&packet[addresses], 17) + be16(body.len() as u16) + sum(body)) == 0xffff
    }

    #[test]
    fn headers_of_both_families_are_whole_and_their_checksums_right() {
        for v6 in [false, true] {
            for len in [1, 100, 1_001] {
                let payload: Vec<u8> = (0..len).map(|n| (n as u8).wrapping_mul(7)).collect();
                let mut packet = headers(ends(v6), (protocol::UDP, 0xb8), &payload, payload.len());
                packet.extend_from_slice(&payload);
                let info = ip::parse(&packet).unwrap();
                assert_eq!(info.total_len, packet.len());
                assert!(sums_up(&packet), "{v6} {len}");
                if !v6 {
                    assert!(v4::checksum_ok(&packet[..20]));
                    assert_eq!(packet[1], 0xb8);
                }
                assert_eq!(info.ports(&packet), Some((4500, 1025)));
                let mut packet = headers(ends(v6), (protocol::ESP, 0), &payload, payload.len());
                packet.extend_from_slice(&payload);
                assert_eq!(ip::parse(&packet).unwrap().total_len, packet.len());
                assert_eq!(packet.len(), len + if v6 { 40 } else { 20 });
            }
        }
    }

    #[test]
    fn a_copy_that_is_cut_short_keeps_its_lengths() {
        let packet = headers(ends(false), (protocol::UDP, 0), &[1; 10], 1_000);
        assert_eq!(packet.len(), 28);
        assert_eq!((&packet[2..4], &packet[24..28]), (&[4, 4][..], &[3, 240, 0, 0][..]));
    }
}
