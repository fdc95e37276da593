//! ICMP errors (RFC 792, RFC 4443): the packet that they quote.
//!
//! ```text
//! IP header | type, code, checksum, 4 more bytes | IP header of the packet in question, and what follows of it
//! ```
//!
//! A quoted packet is cut off somewhere, but its IP header has to be whole. Its IPv6 extension headers are walked as far as they
//! are there.

use super::{Fragment, IpInfo, ext, protocol, v4, v6};
use crate::selector::PacketSelector;

/// Bytes in front of what is quoted.
const HEADER: usize = 8;

/// True for a packet of ICMP, of its own family.
#[inline(always)]
pub fn is_icmp(info: &IpInfo) -> bool {
    info.protocol == if info.ipv6 { protocol::ICMPV6 } else { protocol::ICMP }
}

/// True for the errors: IPv4 destination unreachable, source quench, time exceeded, parameter problem; IPv6 those below 128 (RFC
/// 4443 section 2.1). A redirect quotes a packet too, but is of a router on the receiver's own link (RFC 1122 section 3.2.2.2),
/// in whose name nobody may speak from behind a tunnel.
pub fn is_error(packet: &[u8], info: &IpInfo) -> bool {
    let kind = packet.get(info.upper).filter(|_| is_icmp(info) && info.fragment != Fragment::Later);
    kind.is_some_and(|kind| if info.ipv6 { *kind < 128 } else { matches!(kind, 3 | 4 | 11 | 12) })
}

/// The selectors of the packet that an ICMP error quotes, turned around, as if it were the answer to it: what RFC 4301 section
/// 6.2 looks the error up by. `None` for all other packets, for fragments, and unless the error goes to the sender of what
/// it quotes.
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

/// The header of a packet that may be cut off behind it.
fn header(packet: &[u8], ipv6: bool) -> Option<IpInfo> {
    let first = *packet.first()?;
    if ipv6 {
        let fixed = packet.first_chunk::<{ v6::HEADER }>()?;
        if first >> 4 != 6 {
            return None;
        }
        let ext::Upper { upper, protocol, fragment } = ext::walk(packet, v6::HEADER, fixed[6]).ok()?;
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

    /// UDP from 10.1.0.1:1000 to 10.2.0.2:53 quoted by `router` towards `to`, cut off `keep` bytes behind its IP header.
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
