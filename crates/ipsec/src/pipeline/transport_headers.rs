//! Transport mode: which headers of a packet stay in front of ESP or AH (RFC 4303 section 3.1.1,
//! RFC 4302 section 3.1.1), and what becomes of them.
//!
//! ```text
//! IPv4: header, options                                       | ESP or AH | payload
//! IPv6: header | hop-by-hop | destination options 1 | routing | ESP or AH | payload
//!                                         destination options 2 ---^
//!
//! destination options 1 are followed by a routing header; 2 are for the last destination
//! ```
//!
//! "Because ESP protects only fields after the ESP header, it generally will be desirable to place
//! the destination options header(s) after the ESP header" (RFC 4303 section 3.1.1): only those
//! that hosts on the way read stay (RFC 8200 section 4.1, note 1).
//!
//! Not here: fragments, which are put together before ([`crate::reasm`]).

use ironswan_wire::ip::{IpInfo, v4, v6};

const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
const DEST_OPTIONS: u8 = 60;
/// Offset in bytes of the protocol in an IPv4 header.
const PROTOCOL_V4: usize = 9;
const NEXT_HEADER_V6: usize = 6;

/// The headers of a packet that stay in front of ESP or AH, and the payload behind them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct HeaderSplit {
    /// Bytes that stay in front.
    pub(super) len: usize,
    /// Offset of the byte that names the next header.
    next_at: usize,
    /// Offset of the payload in bytes. Not always `len`: a fragment header that says that the
    /// packet is whole is left out.
    pub(super) payload: usize,
    /// Protocol number of the payload.
    pub(super) next_header: u8,
    ipv6: bool,
}

impl HeaderSplit {
    /// Of a whole packet, which was parsed.
    pub(super) fn of(packet: &[u8], info: &IpInfo) -> Option<Self> {
        if info.ipv6 {
            return of_v6(packet);
        }
        let next_header = *packet.get(PROTOCOL_V4)?;
        let len = info.upper;
        Some(Self { len, next_at: PROTOCOL_V4, payload: len, next_header, ipv6: false })
    }

    /// True when it is what a kernel writes by itself: no options, no extensions.
    pub(super) fn is_bare(&self) -> bool {
        self.len == if self.ipv6 { v6::HEADER } else { v4::MIN_HEADER }
    }

    /// Makes the kept header, `head`, that of a packet of `total` bytes which goes on with
    /// `protocol`. A non-zero `ident` takes the place of an IPv4 identification of zero.
    pub(super) fn emit(&self, head: &mut [u8], total: usize, protocol: u8, ident: u16) {
        head[self.next_at] = protocol;
        if self.ipv6 {
            head[4..6].copy_from_slice(&((total - v6::HEADER) as u16).to_be_bytes());
        } else {
            head[2..4].copy_from_slice(&(total as u16).to_be_bytes());
            if head[4..6] == [0; 2] {
                head[4..6].copy_from_slice(&ident.to_be_bytes());
            }
            v4::set_checksum(head);
        }
    }
}

fn of_v6(packet: &[u8]) -> Option<HeaderSplit> {
    let mut next = *packet.get(NEXT_HEADER_V6)?;
    let (mut at, mut next_at) = (v6::HEADER, NEXT_HEADER_V6);
    let mut kept = HeaderSplit { len: at, next_at, payload: at, next_header: next, ipv6: true };
    // `ip::parse` walked these before, so that they end.
    while matches!(next, HOP_BY_HOP | ROUTING | DEST_OPTIONS) {
        let stays = next != DEST_OPTIONS;
        let h = packet.get(at..)?.first_chunk::<2>()?;
        (next, next_at) = (h[0], at);
        at += 8 + usize::from(h[1]) * 8;
        if stays {
            kept = HeaderSplit { len: at, next_at, payload: at, next_header: next, ipv6: true };
        }
    }
    if next == FRAGMENT {
        // The headers in front of a fragment header were in front of every fragment.
        let next_header = *packet.get(at)?;
        kept = HeaderSplit { len: at, next_at, payload: at + 8, next_header, ipv6: true };
    }
    (kept.payload <= packet.len()).then_some(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironswan_wire::ip;

    /// An IPv6 packet of these extension headers, each of eight bytes, and four bytes of protocol
    /// 253.
    fn v6_packet(headers: &[u8]) -> Vec<u8> {
        let mut p = vec![0x60, 0, 0, 0, 0, (headers.len() * 8 + 4) as u8, 253, 64];
        p.extend_from_slice(&[9; 32]);
        let mut next_at = 6;
        for kind in headers {
            p[next_at] = *kind;
            next_at = p.len();
            p.extend_from_slice(&[253, 0, 0, 0, 0, 0, 0, 0]);
        }
        p.extend_from_slice(&[1, 2, 3, 4]);
        p
    }

    fn kept(p: &[u8]) -> (usize, usize, u8) {
        let k = HeaderSplit::of(p, &ip::parse(p).unwrap()).unwrap();
        (k.len, k.payload, k.next_header)
    }

    #[test]
    fn what_hosts_on_the_way_read_stays_in_front() {
        for (headers, want) in [
            (&[][..], (40, 40, 253)),
            (&[HOP_BY_HOP], (48, 48, 253)),
            (&[ROUTING], (48, 48, 253)),
            (&[DEST_OPTIONS], (40, 40, DEST_OPTIONS)),
            (&[HOP_BY_HOP, DEST_OPTIONS], (48, 48, DEST_OPTIONS)),
            (&[DEST_OPTIONS, ROUTING], (56, 56, 253)),
            (&[HOP_BY_HOP, DEST_OPTIONS, ROUTING, DEST_OPTIONS], (64, 64, DEST_OPTIONS)),
            (&[FRAGMENT], (40, 48, 253)),
            (&[HOP_BY_HOP, FRAGMENT, DEST_OPTIONS], (48, 56, DEST_OPTIONS)),
            (&[DEST_OPTIONS, FRAGMENT], (48, 56, 253)),
        ] {
            assert_eq!(kept(&v6_packet(headers)), want, "{headers:?}");
        }
    }

    #[test]
    fn a_kept_header_names_what_follows_and_its_length() {
        let p = v6_packet(&[HOP_BY_HOP, DEST_OPTIONS]);
        let k = HeaderSplit::of(&p, &ip::parse(&p).unwrap()).unwrap();
        assert!(!k.is_bare());
        let mut head = p[..k.len].to_vec();
        k.emit(&mut head, 148, 50, 7);
        assert_eq!((head[6], head[40], &head[4..6]), (HOP_BY_HOP, 50, &[0, 108][..]));
        for (id, want) in [([0, 0], [1, 2]), ([8, 9], [8, 9])] {
            let mut p =
                vec![0x46, 1, 0, 28, id[0], id[1], 0x40, 0, 64, 17, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 1, 1, 1, 0];
            p.extend_from_slice(&[1, 2, 3, 4]);
            let k = HeaderSplit::of(&p, &ip::parse(&p).unwrap()).unwrap();
            assert_eq!((k.len, k.payload, k.next_header), (24, 24, 17));
            let mut head = p[..24].to_vec();
            k.emit(&mut head, 300, 51, 0x0102);
            assert!(v4::checksum_ok(&head));
            assert_eq!((&head[2..4], &head[4..6], head[9]), (&[1, 44][..], &want[..], 51));
        }
    }
}
