//! Cuts an IP packet into fragments (RFC 791 section 3.2, RFC 8200 section 4.5): what leaves through a socket to which it
//! is given with its header is not cut by the kernel.
//!
//! ```text
//! IPv4  header, all options | 8n bytes           header, copied options, others NOP | the next 8n bytes ..
//! IPv6  header, unfragmentable extensions | fragment header | 8n bytes              same | fragment header | ..
//! ```
//!
//! Not here: when something may be cut ([`crate::send`]).

use std::ops::Range;

/// DF and MF in the third word of an IPv4 header.
const DF: u16 = 0x4000;
const MF: u16 = 0x2000;
/// Bytes of the IPv6 fragment header.
const FRAGMENT_HEADER: usize = 8;
/// IPv6 next headers that stay in front of the fragment header.
const HOP_BY_HOP: u8 = 0;
const ROUTING: u8 = 43;
const DESTINATION: u8 = 60;
/// The fragment header's own number.
const FRAGMENT: u8 = 44;

/// Writes the fragments of `packet`, each at most `mtu` bytes, into `out`, and where each stands into `each`. `id` names
/// an IPv6 packet; one of IPv4 has its name in the header. DF is taken off: whoever asks has decided. False, and nothing is
/// written, when `packet` is no whole IP packet, is a fragment itself, or `mtu` is too small for eight bytes of it.
pub fn cut(packet: &[u8], mtu: usize, id: u32, out: &mut Vec<u8>, each: &mut Vec<Range<usize>>) -> bool {
    let written = match packet.first().map(|b| b >> 4) {
        Some(4) => cut_v4(packet, mtu, out, each),
        Some(6) => cut_v6(packet, mtu, id, out, each),
        _ => None,
    };
    written.is_some()
}

fn cut_v4(packet: &[u8], mtu: usize, out: &mut Vec<u8>, each: &mut Vec<Range<usize>>) -> Option<()> {
    let header_len = usize::from(packet.first()? & 15) * 4;
    let header = packet.get(..header_len).filter(|h| h.len() >= 20)?;
    let flags = u16::from_be_bytes([header[6], header[7]]) & !DF;
    if flags != 0 || usize::from(u16::from_be_bytes([header[2], header[3]])) != packet.len() {
        return None;
    }
    let step = whole_eights(mtu.checked_sub(header_len)?)?;
    let payload = &packet[header_len..];
    let mut at = 0;
    while at < payload.len() || at == 0 {
        let chunk = &payload[at..payload.len().min(at + step)];
        let more = at + chunk.len() < payload.len();
        let start = out.len();
        out.extend_from_slice(header);
        out.extend_from_slice(chunk);
        let h = &mut out[start..start + header_len];
        h[2..4].copy_from_slice(&((header_len + chunk.len()) as u16).to_be_bytes());
        let field = (at / 8) as u16 | if more { MF } else { 0 };
        h[6..8].copy_from_slice(&field.to_be_bytes());
        if at != 0 {
            keep_copied_options(&mut h[20..]);
        }
        h[10..12].fill(0);
        let sum = h.chunks_exact(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum::<u32>();
        let sum = (sum & 0xffff) + (sum >> 16);
        h[10..12].copy_from_slice(&(!((sum & 0xffff) + (sum >> 16)) as u16).to_be_bytes());
        each.push(start..out.len());
        at += chunk.len().max(1);
    }
    Some(())
}

/// "Copied flag: 0 = not copied" into fragments but the first (RFC 791 section 3.1). What is not becomes NOP.
fn keep_copied_options(options: &mut [u8]) {
    let mut at = 0;
    while let Some(&kind) = options.get(at) {
        let len = match kind {
            0 => return,
            1 => 1,
            _ => match options.get(at + 1) {
                Some(&len) if len >= 2 && at + usize::from(len) <= options.len() => usize::from(len),
                _ => return,
            },
        };
        if kind & 0x80 == 0 {
            options[at..at + len].fill(1);
        }
        at += len;
    }
}

fn cut_v6(packet: &[u8], mtu: usize, id: u32, out: &mut Vec<u8>, each: &mut Vec<Range<usize>>) -> Option<()> {
    let payload_len = usize::from(u16::from_be_bytes([*packet.get(4)?, *packet.get(5)?]));
    if packet.len() != 40 + payload_len {
        return None;
    }
    // What every router looks at stays in front: "all headers up to and including the Routing header if present, else the
    // Hop-by-Hop Options header if present" (RFC 8200 section 4.5).
    let (mut end, mut link) = (40, 6);
    let (mut at, mut next_at) = (40, 6);
    loop {
        let next = *packet.get(next_at)?;
        if next == FRAGMENT {
            return None;
        }
        if !matches!(next, HOP_BY_HOP | ROUTING | DESTINATION) {
            break;
        }
        let len = (usize::from(*packet.get(at + 1)?) + 1) * 8;
        next_at = at;
        at += len;
        if next != DESTINATION {
            (end, link) = (at, next_at);
        }
    }
    let (front, payload) = packet.split_at_checked(end)?;
    let first = front[link];
    let step = whole_eights(mtu.checked_sub(end + FRAGMENT_HEADER)?)?;
    for (i, chunk) in payload.chunks(step).enumerate() {
        let start = out.len();
        let more = i * step + chunk.len() < payload.len();
        out.extend_from_slice(front);
        out.extend_from_slice(&[first, 0]);
        out.extend_from_slice(&((i * step) as u16 | u16::from(more)).to_be_bytes());
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(chunk);
        let len = (out.len() - start - 40) as u16;
        out[start + 4..start + 6].copy_from_slice(&len.to_be_bytes());
        out[start + link] = FRAGMENT;
        each.push(start..out.len());
    }
    Some(())
}

/// "An integer multiple of 8 octets": the most that fits, if any does.
fn whole_eights(room: usize) -> Option<usize> {
    Some(room & !7).filter(|step| *step != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fragments(packet: &[u8], mtu: usize) -> Option<Vec<Vec<u8>>> {
        let (mut out, mut each) = (vec![9; 3], Vec::new());
        let done = cut(packet, mtu, 0x0102_0304, &mut out, &mut each);
        assert_eq!((&out[..3], done), (&[9; 3][..], !each.is_empty()));
        done.then(|| each.into_iter().map(|r| out[r].to_vec()).collect())
    }

    fn v4(options: &[u8], payload: usize) -> Vec<u8> {
        let header_len = 20 + options.len();
        let mut p = vec![0x40 | (header_len / 4) as u8, 0x2e, 0, 0, 0x12, 0x34, 0x40, 0, 64, 51, 0, 0];
        p.extend([192, 0, 2, 1, 192, 0, 2, 2]);
        p.extend(options);
        p.extend((0..payload).map(|i| (i / 3) as u8));
        let len = p.len() as u16;
        p[2..4].copy_from_slice(&len.to_be_bytes());
        p
    }

    fn v6(extensions: &[u8], first: u8, payload: usize) -> Vec<u8> {
        let mut p = vec![0x60, 0, 0, 0, 0, 0, first, 64];
        p.extend([0x20; 16]);
        p.extend([0x21; 16]);
        p.extend(extensions);
        p.extend((0..payload).map(|i| (i / 3) as u8));
        let len = (p.len() - 40) as u16;
        p[4..6].copy_from_slice(&len.to_be_bytes());
        p
    }

    fn word(p: &[u8], at: usize) -> usize {
        usize::from(u16::from_be_bytes([p[at], p[at + 1]]))
    }

    /// The one's complement sum of a header with its checksum is all ones.
    fn checksum_ok(header: &[u8]) -> bool {
        let sum: usize = (0..header.len()).step_by(2).map(|at| word(header, at)).sum();
        (sum & 0xffff) + (sum >> 16) == 0xffff
    }

    #[test]
    fn the_pieces_of_ipv4_make_the_packet_again() {
        for (len, mtu) in [(1480, 1500), (1481, 1500), (3000, 1400), (100, 28), (9, 28), (65_515, 1501)] {
            let packet = v4(&[], len);
            let parts = fragments(&packet, mtu).unwrap();
            assert_eq!(parts.len(), len.div_ceil((mtu - 20) & !7), "{len} {mtu}");
            let mut payload: Vec<u8> = Vec::new();
            for (i, p) in parts.iter().enumerate() {
                assert!(p.len() <= mtu && word(p, 2) == p.len() && checksum_ok(&p[..20]));
                assert_eq!(word(p, 6) & 0x1fff, payload.len() / 8);
                assert_eq!(word(p, 6) & 0xe000, if i + 1 < parts.len() { 0x2000 } else { 0 }, "DF is off");
                assert_eq!((&p[..2], &p[4..6], &p[8..10]), (&packet[..2], &packet[4..6], &packet[8..10]));
                assert_eq!(p[12..20], packet[12..20]);
                payload.extend(&p[20..]);
            }
            assert_eq!(payload, packet[20..]);
        }
    }

    #[test]
    fn options_go_into_later_fragments_if_they_are_to_be_copied() {
        // Router alert (copied), record route (not), end.
        let packet = v4(&[0x94, 4, 0, 0, 7, 7, 4, 0, 0, 0, 0, 0], 100);
        let parts = fragments(&packet, 32 + 48).unwrap();
        assert_eq!(parts[0][20..32], packet[20..32]);
        for later in &parts[1..] {
            assert_eq!(later[20..32], [0x94, 4, 0, 0, 1, 1, 1, 1, 1, 1, 1, 0]);
            assert!(checksum_ok(&later[..32]));
        }
        // Lengths that lead out of the header end the walk.
        for bad in [[7, 9, 4, 0], [7, 1, 0, 0], [1, 1, 1, 7]] {
            assert!(fragments(&v4(&bad, 100), 80).is_some());
        }
    }

    #[test]
    fn the_pieces_of_ipv6_make_the_packet_again() {
        // Destination options, hop-by-hop options and routing header; what they are followed by; how long what stays in
        // front is.
        let hop = [60, 0, 1, 4, 0, 0, 0, 0];
        let dst_routing = [[43, 0, 1, 4, 0, 0, 0, 0], [51, 0, 0, 0, 0, 0, 0, 0]].concat();
        let dst = [51, 0, 1, 4, 0, 0, 0, 0];
        for (extensions, first, front) in [
            (vec![], 51, 40),
            ([hop.to_vec(), dst_routing.clone()].concat(), 0, 64),
            (dst_routing, 60, 56),
            (dst.to_vec(), 60, 40),
            ([hop.to_vec(), dst.to_vec()].concat(), 0, 48),
        ] {
            let packet = v6(&extensions, first, 3000);
            let parts = fragments(&packet, 1280).unwrap();
            let (mut payload, mut inner_first) = (Vec::<u8>::new(), 0);
            for (i, p) in parts.iter().enumerate() {
                assert!(p.len() <= 1280 && word(p, 4) == p.len() - 40);
                let header = &p[front..front + 8];
                assert_eq!(word(header, 2) & !7, payload.len());
                assert_eq!(word(header, 2) & 7, usize::from(i + 1 < parts.len()));
                assert_eq!((header[1], &header[4..]), (0, &[1, 2, 3, 4][..]));
                inner_first = header[0];
                payload.extend(&p[front + 8..]);
            }
            let mut whole = parts[0][..front].to_vec();
            let link = (0..front).find(|at| whole[*at] != packet[*at] && !(4..6).contains(at)).unwrap();
            assert_eq!(whole[link], 44);
            whole[link] = inner_first;
            whole[4..6].copy_from_slice(&packet[4..6]);
            whole.extend(payload);
            assert_eq!(whole, packet, "{extensions:?}");
        }
    }

    #[test]
    fn what_is_no_packet_or_has_no_room_is_left_alone() {
        let (four, six) = (v4(&[], 100), v6(&[], 51, 100));
        for len in 0..four.len() {
            assert_eq!(fragments(&four[..len], 60), None);
        }
        for len in 0..six.len() {
            assert_eq!(fragments(&six[..len], 60), None);
        }
        assert_eq!((fragments(&four, 27), fragments(&six, 55)), (None, None));
        assert!(fragments(&four, 28).is_some() && fragments(&six, 56).is_some());
        // A fragment already.
        let mut part = four.clone();
        part[6] = 0x20;
        assert_eq!(fragments(&part, 60), None);
        assert_eq!(fragments(&v6(&[51, 0, 0, 0, 0, 0, 0, 0], 44, 100), 100), None);
        // Extensions that lead out of the packet.
        assert_eq!(fragments(&v6(&[0, 200, 0, 0, 0, 0, 0, 0], 0, 10), 100), None);
        assert_eq!(fragments(&[0x50; 100], 60), None);
    }
}
