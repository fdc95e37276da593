//! Fragments against the packet that they were, field by field.

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
    // Destination options, hop-by-hop options and routing header; what they are followed by; how
    // long what stays in front is.
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
