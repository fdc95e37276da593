//! ICMP errors (RFC 792, RFC 4443): the packet that they quote.
//!
//! ```text
//! IP header | type, code, checksum, 4 more bytes | IP header of the quoted packet, ..
//! ```
//!
//! A quoted packet is cut off somewhere, but its IP header has to be whole. Its IPv6 extension
//! headers are walked as far as they are there.

use std::net::{IpAddr, SocketAddr};

use super::checksum::{fold, sum};
use super::{Fragment, IpInfo, ext, protocol, udp, v4, v6};
use crate::sadb::Spi;
use crate::selector::PacketSelector;

/// Bytes in front of what is quoted.
const HEADER: usize = 8;

/// True for a packet of ICMP, of its own family.
#[inline(always)]
pub fn is_icmp(info: &IpInfo) -> bool {
    info.protocol == if info.ipv6 { protocol::ICMPV6 } else { protocol::ICMP }
}

/// True for the errors: IPv4 destination unreachable, source quench, time exceeded, parameter
/// problem; IPv6 those below 128 (RFC 4443 section 2.1). A redirect quotes a packet too, but is of
/// a router on the receiver's own link (RFC 1122 section 3.2.2.2), in whose name nobody may speak
/// from behind a tunnel.
pub fn is_error(packet: &[u8], info: &IpInfo) -> bool {
    let kind = packet.get(info.upper).filter(|_| is_icmp(info) && info.fragment != Fragment::Later);
    kind.is_some_and(|kind| if info.ipv6 { *kind < 128 } else { matches!(kind, 3 | 4 | 11 | 12) })
}

/// The selectors of the packet that an ICMP error quotes, turned around, as if it were the answer
/// to it: what RFC 4301 section 6.2 looks the error up by. `None` for all other packets, for
/// fragments, and unless the error goes to the sender of what it quotes.
pub fn quoted_answer(packet: &[u8], info: &IpInfo) -> Option<PacketSelector> {
    if info.fragment != Fragment::No || !is_error(packet, info) {
        return None;
    }
    let message = packet.get(info.upper..info.total_len)?;
    let quoted = message.get(HEADER..)?;
    let header = header(quoted, info.ipv6)?;
    let selector = header.selector(quoted)?;
    let (_, to) = info.addresses(packet)?;
    (selector.src == to).then_some(PacketSelector {
        src: selector.dst,
        dst: selector.src,
        protocol: selector.protocol,
        src_port: selector.dst_port,
        dst_port: selector.src_port,
    })
}

/// A router's word that a packet of ESP or AH was too large for the next link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TooBig {
    /// Bytes that the link takes; 0 where the router does not say (before RFC 1191).
    pub mtu: u32,
    /// The packet's sender.
    pub from: IpAddr,
    /// Destination of the quoted packet.
    pub to: IpAddr,
    /// The protocol that has the SPI, [`protocol::ESP`] or [`protocol::AH`]; of what is in UDP this
    /// is not known, and ESP is assumed.
    pub protocol: u8,
    /// UDP ports, source and destination, where the packet was one of UDP.
    pub ports: Option<(u16, u16)>,
    /// The SPI, or in UDP the non-ESP marker of IKE, which is 0. `None` when the quote ends before
    /// it: routers must quote 8 bytes behind the IP header (RFC 792), which are all of a UDP
    /// header, and should quote more (RFC 1812 section 4.3.2.3).
    pub spi: Option<Spi>,
}

/// What "fragmentation needed" of IPv4 (RFC 1191) or "packet too big" of IPv6 (RFC 4443 section
/// 3.2) says, if it is about a packet that may have an SPI: the first fragment of one at least.
/// `message` begins with the ICMP header and may be cut off.
pub fn too_big(message: &[u8], ipv6: bool) -> Option<TooBig> {
    let fixed = message.first_chunk::<HEADER>()?;
    let mtu = match (ipv6, fixed[0], fixed[1]) {
        (false, 3, 4) => u32::from(u16::from_be_bytes([fixed[6], fixed[7]])),
        (true, 2, _) => u32::from_be_bytes([fixed[4], fixed[5], fixed[6], fixed[7]]),
        _ => return None,
    };
    let quoted = message.get(HEADER..)?;
    let info = header(quoted, ipv6)?;
    if info.fragment == Fragment::Later {
        return None;
    }
    let word = |at: usize| quoted.get(info.upper + at..)?.first_chunk::<4>().map(|w| u32::from_be_bytes(*w));
    let (kind, ports, spi) = match info.protocol {
        protocol::ESP => (protocol::ESP, None, word(0)),
        // RFC 4302 section 2: next header, length and two reserved bytes stand in front.
        protocol::AH => (protocol::AH, None, word(4)),
        protocol::UDP => {
            let ports = word(0)?;
            (protocol::ESP, Some(((ports >> 16) as u16, ports as u16)), word(udp::HEADER))
        }
        _ => return None,
    };
    let (from, to) = info.addresses(quoted)?;
    Some(TooBig { mtu, from, to, protocol: kind, ports, spi: spi.map(Spi) })
}

/// A box's word that it did not pass a UDP datagram on, or did not take it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Undelivered<'a> {
    /// Type of the error: of IPv4 3 (destination unreachable) or 11 (time exceeded), of IPv6 1 or
    /// 3.
    pub kind: u8,
    /// Code of the error.
    pub code: u8,
    /// Sender of the datagram.
    pub from: SocketAddr,
    /// Its destination.
    pub to: SocketAddr,
    /// Payload of the datagram, as far as it is quoted: nothing where the box quotes the 8 bytes
    /// that RFC 792 asks for.
    pub payload: &'a [u8],
}

/// What "destination unreachable" and "time exceeded in transit" say about a UDP datagram or its
/// first fragment. "Fragmentation needed" is none of them: see [`too_big`]. `message` begins with
/// the ICMP header and may be cut off.
pub fn undelivered(message: &[u8], ipv6: bool) -> Option<Undelivered<'_>> {
    let fixed = message.first_chunk::<HEADER>()?;
    let (kind, code) = (fixed[0], fixed[1]);
    // RFC 4884: the length of the quote in words, where something else follows it.
    let words = match (ipv6, kind, code) {
        (false, 3, 4) => return None,
        (false, 3, _) | (false, 11, 0) => usize::from(fixed[5]) * 4,
        (true, 1, _) | (true, 3, 0) => usize::from(fixed[4]) * 8,
        _ => return None,
    };
    let quoted = message.get(HEADER..)?;
    let quoted = quoted.get(..words).filter(|quoted| !quoted.is_empty()).unwrap_or(quoted);
    let info = header(quoted, ipv6)?;
    if info.protocol != protocol::UDP || info.fragment == Fragment::Later {
        return None;
    }
    let ports = quoted.get(info.upper..)?.first_chunk::<4>()?;
    let [from_port, to_port] = [[ports[0], ports[1]], [ports[2], ports[3]]].map(u16::from_be_bytes);
    let (from, to) = info.addresses(quoted)?;
    let payload = quoted.get(info.upper + udp::HEADER..).unwrap_or_default();
    Some(Undelivered {
        kind,
        code,
        from: SocketAddr::new(from, from_port),
        to: SocketAddr::new(to, to_port),
        payload,
    })
}

/// True when the checksum of a whole ICMP message for IPv4 is right.
pub fn is_sound(message: &[u8]) -> bool {
    fold(sum(message)) == 0xffff
}

/// The header of a packet that may be cut off behind it.
fn header(packet: &[u8], ipv6: bool) -> Option<IpInfo> {
    let first = *packet.first()?;
    if ipv6 {
        let fixed = packet.first_chunk::<{ v6::HEADER }>()?;
        if first >> 4 != 6 {
            return None;
        }
        let ext::UpperLayer { upper, protocol, fragment } = ext::walk(packet, v6::HEADER, fixed[6]).ok()?;
        return Some(IpInfo { ipv6, tos: 0, total_len: packet.len(), upper, protocol, fragment });
    }
    let fixed = packet.first_chunk::<{ v4::MIN_HEADER }>()?;
    let upper = usize::from(first & 0x0f) * 4;
    if first >> 4 != 4 || upper < v4::MIN_HEADER || upper > packet.len() {
        return None;
    }
    let field = u16::from_be_bytes([fixed[6], fixed[7]]);
    let fragment = match (field & 0x1fff != 0, field & v4::MF != 0) {
        (true, _) => Fragment::Later,
        (false, true) => Fragment::First,
        (false, false) => Fragment::No,
    };
    Some(IpInfo { ipv6, tos: 0, total_len: packet.len(), upper, protocol: fixed[9], fragment })
}

#[cfg(test)]
mod tests {
    use super::super::parse;
    use super::*;

    /// UDP from 10.1.0.1:1000 to 10.2.0.2:53 quoted by `router` towards `to`, cut off `keep` bytes
    /// behind its IP header.
    fn v4_error(kind: u8, to: u8, keep: usize) -> Vec<u8> {
        let mut quoted = vec![0x45, 0, 5, 0, 0, 1, 0x40, 0, 63, 17, 0, 0, 10, 1, 0, 1, 10, 2, 0, 2];
        quoted.extend([3, 232, 0, 53, 4, 236, 0, 0]);
        quoted.truncate(20 + keep);
        let mut p =
            vec![0x45, 0, 0, (28 + quoted.len()) as u8, 0, 0, 0, 0, 64, 1, 0, 0, 172, 16, 0, 9, 10, 1, 0, to];
        p.extend([kind, 4, 0, 0, 0, 0, 0x05, 0x14]);
        p.extend(quoted);
        p
    }

    fn answer(packet: &[u8]) -> Option<String> {
        let s = quoted_answer(packet, &parse(packet).unwrap())?;
        Some(format!("{} {:?} > {} {:?} {}", s.src, s.src_port, s.dst, s.dst_port, s.protocol))
    }

    #[test]
    fn an_error_is_looked_up_as_the_answer_to_what_it_quotes() {
        for kind in [3, 4, 11, 12] {
            assert_eq!(
                answer(&v4_error(kind, 1, 8)).as_deref(),
                Some("10.2.0.2 Some(53) > 10.1.0.1 Some(1000) 17"),
                "{kind}"
            );
        }
        assert_eq!(
            answer(&v4_error(3, 1, 0)).as_deref(),
            Some("10.2.0.2 None > 10.1.0.1 None 17"),
            "no ports to see"
        );
    }

    #[test]
    fn no_error_and_one_that_goes_elsewhere_speak_for_nobody() {
        for kind in [0, 5, 8, 13, 30] {
            assert_eq!(answer(&v4_error(kind, 1, 8)), None, "{kind}");
        }
        assert_eq!(answer(&v4_error(3, 7, 8)), None, "not to the sender of what it quotes");
        let mut udp = v4_error(3, 1, 8);
        udp[9] = 17;
        assert_eq!(answer(&udp), None);
        let mut fragment = v4_error(3, 1, 8);
        fragment[6] = 0x20;
        assert_eq!(answer(&fragment), None);
    }

    /// "Too big" about `upper` in a packet of `protocol` from 192.0.2.1 to 192.0.2.2, or the IPv6
    /// addresses that end so.
    fn too_big_about(ipv6: bool, protocol: u8, upper: &[u8]) -> Vec<u8> {
        let mut m = if ipv6 { vec![2, 0, 0, 0, 0, 0, 5, 20] } else { vec![3, 4, 0, 0, 0, 0, 5, 20] };
        if ipv6 {
            m.extend([0x60, 0, 0, 0, 5, 0, protocol, 63]);
            m.extend([[0; 15], [1; 15]].map(|a| [&[0x20][..], &a].concat()).concat());
        } else {
            m.extend([0x45, 0, 5, 0, 0, 0, 0x40, 0, 63, protocol, 0, 0, 192, 0, 2, 1, 192, 0, 2, 2]);
        }
        m.extend(upper);
        m
    }

    #[test]
    fn too_big_tells_mtu_addresses_ports_and_spi() {
        for ipv6 in [false, true] {
            let (ends, udp) = (
                if ipv6 {
                    ["2000::", "2001:101:101:101:101:101:101:101"]
                } else {
                    ["192.0.2.1", "192.0.2.2"]
                },
                { [0x11, 0x94, 0x11, 0x95, 0, 0, 0, 0, 0xc0, 1, 2, 3] },
            );
            let [from, to] = ends.map(|a| a.parse::<IpAddr>().unwrap());
            let spi = Some(Spi(0xc001_0203));
            let whole = TooBig { mtu: 1300, from, to, protocol: protocol::ESP, ports: None, spi };
            let told = |protocol, upper: &[u8]| too_big(&too_big_about(ipv6, protocol, upper), ipv6);
            assert_eq!(told(protocol::ESP, &udp[8..]), Some(whole));
            assert_eq!(told(protocol::ESP, &udp[8..11]), Some(TooBig { spi: None, ..whole }));
            let ah = [4, 4, 0, 0, 0xc0, 1, 2, 3];
            assert_eq!(told(protocol::AH, &ah), Some(TooBig { protocol: protocol::AH, ..whole }));
            let in_udp = TooBig { ports: Some((4500, 4501)), ..whole };
            assert_eq!(told(protocol::UDP, &udp), Some(in_udp));
            for len in 4..12 {
                assert_eq!(told(protocol::UDP, &udp[..len]), Some(TooBig { spi: None, ..in_udp }), "{len}");
            }
            assert_eq!(told(protocol::UDP, &udp[..3]), None);
            assert_eq!(told(protocol::TCP, &udp), None);
        }
    }

    #[test]
    fn what_is_not_too_big_or_quotes_no_beginning_tells_nothing() {
        for ipv6 in [false, true] {
            let whole = too_big_about(ipv6, protocol::ESP, &[0xc0, 1, 2, 3]);
            for len in 0..whole.len() - 4 {
                assert_eq!(too_big(&whole[..len], ipv6), None, "{len}");
            }
            assert_eq!(too_big(&whole, !ipv6), None, "of the other family");
            for kind in (0..=255u8).filter(|kind| *kind != whole[0]) {
                let other = [&[kind], &whole[1..]].concat();
                assert_eq!(too_big(&other, ipv6), None, "{kind}");
            }
        }
        let mut later = too_big_about(false, protocol::ESP, &[0xc0, 1, 2, 3]);
        later[8 + 7] = 1;
        assert_eq!(too_big(&later, false), None);
        // The host is unreachable, not the packet too big.
        later[8 + 7] = 0;
        later[1] = 1;
        assert_eq!(too_big(&later, false), None);
        // The second fragment of two, and the first.
        for (offset, spi) in [(8, None), (0, Some(Some(Spi(0xc001_0203))))] {
            let fragment = [50, 0, 0, offset | 1, 0, 0, 0, 7, 0xc0, 1, 2, 3];
            assert_eq!(too_big(&too_big_about(true, 44, &fragment), true).map(|t| t.spi), spi);
        }
    }

    /// An error of this type and code about `upper` in a packet of UDP.
    fn error_about(ipv6: bool, (kind, code): (u8, u8), upper: &[u8]) -> Vec<u8> {
        let mut m = too_big_about(ipv6, protocol::UDP, upper);
        m[..8].copy_from_slice(&[kind, code, 0, 0, 0, 0, 0, 0]);
        m
    }

    #[test]
    fn an_error_tells_the_ends_of_a_datagram_and_what_it_quotes() {
        let datagram = [1, 244, 0x11, 0x94, 0, 20, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
        for (ipv6, kinds) in [
            (false, &[(3, 0), (3, 1), (3, 3), (3, 9), (3, 10), (3, 13), (11, 0)][..]),
            (true, &[(1, 0), (1, 1), (1, 3), (1, 4), (1, 5), (1, 6), (3, 0)][..]),
        ] {
            for (kind, code) in kinds.iter().copied() {
                let m = error_about(ipv6, (kind, code), &datagram);
                let told = undelivered(&m, ipv6).unwrap();
                assert_eq!((told.kind, told.code, told.payload), (kind, code, &datagram[8..]));
                assert_eq!((told.from.port(), told.to.port()), (500, 4500));
                assert_eq!(told.to.ip().is_ipv6(), ipv6);
                // As RFC 792 asks, and less.
                for quoted in 4..=8 {
                    let m = error_about(ipv6, (kind, code), &datagram[..quoted]);
                    assert_eq!(undelivered(&m, ipv6).unwrap().payload, b"", "{quoted}");
                }
                for quoted in 0..4 {
                    assert_eq!(
                        undelivered(&error_about(ipv6, (kind, code), &datagram[..quoted]), ipv6),
                        None
                    );
                }
                assert_eq!(undelivered(&m, !ipv6), None, "of the other family");
            }
        }
    }

    #[test]
    fn what_is_no_error_about_udp_tells_nothing_of_a_datagram() {
        let datagram = [1, 244, 0x11, 0x94, 0, 20, 0, 0, 1, 2, 3, 4];
        for (ipv6, kinds) in
            [(false, [(3, 4), (11, 1), (0, 0), (5, 1)]), (true, [(2, 0), (3, 1), (128, 0), (4, 0)])]
        {
            for kind in kinds {
                assert_eq!(undelivered(&error_about(ipv6, kind, &datagram), ipv6), None, "{kind:?}");
            }
        }
        let mut tcp = error_about(false, (3, 3), &datagram);
        tcp[8 + 9] = protocol::TCP;
        assert_eq!(undelivered(&tcp, false), None);
        let mut later = error_about(false, (3, 3), &datagram);
        later[8 + 7] = 1;
        assert_eq!(undelivered(&later, false), None);
    }

    #[test]
    fn extensions_behind_a_quote_are_no_part_of_it() {
        let datagram = [1, 244, 1, 244, 0, 20, 0, 0, 1, 2, 3, 4];
        let mut m = error_about(false, (3, 3), &[&datagram[..], &[0x20, 0, 0, 0]].concat());
        m[5] = 8; // 32 bytes: the IP header, and the datagram
        assert_eq!(undelivered(&m, false).unwrap().payload, &datagram[8..]);
        // A length that is more than there is.
        m[5] = 200;
        assert_eq!(undelivered(&m, false).unwrap().payload.len(), 8);
    }

    #[test]
    fn a_checksum_covers_the_whole_message() {
        let mut m = too_big_about(false, protocol::ESP, &[0xc0, 1, 2, 3, 9]);
        assert!(!is_sound(&m));
        let checksum = (!fold(sum(&m))).to_ne_bytes();
        m[2..4].copy_from_slice(&checksum);
        assert!(is_sound(&m));
        for at in 0..m.len() {
            let mut damaged = m.clone();
            damaged[at] ^= 0x10;
            assert!(!is_sound(&damaged), "{at}");
        }
    }

    #[test]
    fn a_quoted_header_that_is_cut_or_lies_is_none() {
        let whole = v4_error(3, 1, 8);
        for len in 20..48 {
            let mut p = whole[..len].to_vec();
            p[3] = len as u8;
            assert_eq!(answer(&p), None, "{len}");
        }
        for (at, value) in [(28, 0x65), (28, 0x44), (28, 0x4f)] {
            let mut p = whole.clone();
            p[at] = value;
            assert_eq!(answer(&p), None, "byte {at} = {value:#x}");
        }
    }

    #[test]
    fn ipv6_errors_quote_with_extension_headers() {
        let (a, b) = (
            [0xfd, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1],
            [0xfd, 2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 2],
        );
        let mut quoted = vec![0x60, 0, 0, 0, 4, 0, 60, 63];
        quoted.extend(a);
        quoted.extend(b);
        quoted.extend([6, 0, 1, 4, 0, 0, 0, 0, 3, 232, 0, 80]);
        let mut p = vec![0x60, 0, 0, 0, 0, (8 + quoted.len()) as u8, 58, 64];
        p.extend(b);
        p.extend(a);
        p.extend([2, 0, 0, 0, 0, 0, 5, 0]);
        p.extend(&quoted);
        assert_eq!(answer(&p).as_deref(), Some("fd02::2 Some(80) > fd01::1 Some(1000) 6"));
        p[40] = 128;
        assert_eq!(answer(&p), None, "an echo request");
    }
}
