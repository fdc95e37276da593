use super::checksum::{be16, fold, pseudo, sum, update};
use super::*;

/// The definition of RFC 1071, word by word.
fn reference(data: &[u8]) -> u16 {
    let mut total = 0u32;
    for w in data.chunks(2) {
        total += u32::from(u16::from_be_bytes([w[0], *w.get(1).unwrap_or(&0)]));
        total = (total & 0xffff) + (total >> 16);
    }
    total as u16
}

fn bytes(len: usize, seed: u32) -> Vec<u8> {
    let mut x = seed | 1;
    (0..len)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 17;
            x ^= x << 5;
            x as u8
        })
        .collect()
}

#[test]
fn the_sum_is_that_of_rfc_1071_at_every_length_and_alignment() {
    let data = bytes(4200, 7);
    for start in 0..9 {
        for len in (0..300).chain([1348, 1400, 4096]) {
            let d = &data[start..start + len];
            assert_eq!(u16::from_be(fold(sum(d))), reference(d), "{start}+{len}");
        }
    }
    let ones = vec![0xff; 65_535];
    assert_eq!(u16::from_be(fold(sum(&ones))), reference(&ones));
    assert_eq!(fold(u64::MAX), 0xffff);
    assert_eq!(fold(0), 0);
}

#[test]
fn an_incremental_update_equals_a_new_sum() {
    let mut h = bytes(20, 3);
    v4::set_checksum(&mut h);
    assert!(v4::checksum_ok(&h));
    for v in [0u16, 1, 0x1234, 0xfffe, 0xffff, 20, 1400] {
        v4::set_total_len(&mut h, v);
        assert!(v4::checksum_ok(&h), "{v:04x}");
        v4::set_tos(&mut h, v as u8);
        assert!(v4::checksum_ok(&h), "{v:04x}");
    }
    assert_eq!(update([0, 0], [1, 2], [1, 2]), [0, 0]);
}

#[test]
fn a_pseudo_header_is_addresses_protocol_and_length() {
    let a = [10, 0, 0, 1, 10, 0, 0, 2];
    let by_hand = [10, 0, 0, 1, 10, 0, 0, 2, 0, 6, 5, 0x20];
    assert_eq!(u16::from_be(fold(pseudo(&a, 6) + be16(0x520))), reference(&by_hand));
}

fn packet_v4(protocol: u8, frag: u16, payload: &[u8]) -> Vec<u8> {
    let mut p = vec![0x45, 0, 0, 0, 0, 1, 0, 0, 64, protocol, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2];
    p[6..8].copy_from_slice(&frag.to_be_bytes());
    p.extend_from_slice(payload);
    let len = p.len() as u16;
    p[2..4].copy_from_slice(&len.to_be_bytes());
    v4::set_checksum(&mut p[..20]);
    p
}

#[test]
fn ports_show_in_whole_packets_and_first_fragments_only() {
    let udp = [0x12, 0x34, 0x56, 0x78, 0, 8, 0, 0];
    let p = packet_v4(17, v4::DF, &udp);
    let i = parse(&p).unwrap();
    assert_eq!(i.fragment, Fragment::No);
    assert_eq!(i.ports(&p), Some((0x1234, 0x5678)));
    let p = packet_v4(17, v4::MF, &udp);
    assert_eq!(parse(&p).unwrap().ports(&p), Some((0x1234, 0x5678)));
    let p = packet_v4(17, 1, &udp);
    let i = parse(&p).unwrap();
    assert_eq!((i.fragment, i.ports(&p)), (Fragment::Later, None));
    let p = packet_v4(1, 0, &[8, 0, 0, 0]);
    assert_eq!(parse(&p).unwrap().ports(&p), Some((0x0800, 0x0800)));
    let p = packet_v4(47, 0, &udp);
    assert_eq!(parse(&p).unwrap().ports(&p), None);
    let p = packet_v4(17, 0, &udp[..3]);
    assert_eq!(parse(&p).unwrap().ports(&p), None);
}

#[test]
fn bad_ipv4_headers_are_named() {
    let good = packet_v4(17, 0, &[0; 8]);
    assert_eq!(parse(&[]), Err(IpError::Truncated));
    for version in [0u8, 1, 5, 7, 15] {
        let mut p = good.clone();
        p[0] = version << 4 | 5;
        assert_eq!(parse(&p), Err(IpError::Version));
    }
    for len in 1..20 {
        assert_eq!(parse(&good[..len]), Err(IpError::Truncated));
    }
    for ihl in 0..5 {
        let mut p = good.clone();
        p[0] = 0x40 | ihl;
        assert_eq!(parse(&p), Err(IpError::HeaderLength));
    }
    let mut p = good.clone();
    p[0] = 0x4f; // 60 bytes of header in 28
    assert_eq!(parse(&p), Err(IpError::HeaderLength));
    for (total, error) in
        [(0u16, IpError::HeaderLength), (19, IpError::HeaderLength), (29, IpError::Truncated)]
    {
        let mut p = good.clone();
        p[2..4].copy_from_slice(&total.to_be_bytes());
        assert_eq!(parse(&p), Err(error));
    }
}

fn packet_v6(next: u8, payload: &[u8]) -> Vec<u8> {
    let mut p = vec![0x6a, 0xb0, 0, 1, 0, 0, next, 64];
    p[4..6].copy_from_slice(&(payload.len() as u16).to_be_bytes());
    p.extend_from_slice(&[0xfd; 16]);
    p.extend_from_slice(&[0xfc; 16]);
    p.extend_from_slice(payload);
    p
}

#[test]
fn ipv6_extension_headers_are_walked() {
    let udp = [0, 53, 0, 54, 0, 8, 0, 0];
    let mut payload = vec![43, 0, 1, 4, 0, 0, 0, 0]; // hop by hop -> routing
    payload.extend_from_slice(&[60, 1]); // routing, 16 bytes -> destination options
    payload.extend_from_slice(&[0; 14]);
    payload.extend_from_slice(&[17, 0, 1, 4, 0, 0, 0, 0]);
    payload.extend_from_slice(&udp);
    let p = packet_v6(0, &payload);
    let i = parse(&p).unwrap();
    assert_eq!((i.protocol, i.upper, i.tos), (17, 40 + 32, 0xab));
    assert_eq!(i.ports(&p), Some((53, 54)));
    for cut in 0..32 {
        let p = packet_v6(0, &payload[..cut]);
        assert_eq!(parse(&p), Err(IpError::Truncated), "{cut}");
    }
}

#[test]
fn ipv6_fragments_hide_ports_behind_the_first() {
    let mut first = vec![17, 0, 0, 1, 0, 0, 0, 9];
    first.extend_from_slice(&[0, 53, 0, 54, 0, 8, 0, 0]);
    let p = packet_v6(44, &first);
    let i = parse(&p).unwrap();
    assert_eq!((i.fragment, i.ports(&p)), (Fragment::First, Some((53, 54))));
    first[3] = 8;
    let p = packet_v6(44, &first);
    let i = parse(&p).unwrap();
    assert_eq!((i.fragment, i.protocol, i.ports(&p)), (Fragment::Later, 17, None));
    first[3] = 0; // atomic fragment
    let p = packet_v6(44, &first);
    assert_eq!(parse(&p).unwrap().fragment, Fragment::No);
}

#[test]
fn an_endless_chain_of_extension_headers_is_refused() {
    let payload = [60, 0, 0, 0, 0, 0, 0, 0].repeat(100);
    assert_eq!(parse(&packet_v6(60, &payload)), Err(IpError::Extensions));
    let mut short = packet_v6(17, &[0; 8]);
    short.truncate(47);
    assert_eq!(parse(&short), Err(IpError::Truncated));
}

#[test]
fn traffic_class_is_stored_where_it_is_read() {
    let mut p = packet_v6(17, &[0; 8]);
    for class in [0u8, 1, 3, 0xb8, 0xff] {
        v6::set_traffic_class(&mut p, class);
        assert_eq!(parse(&p).unwrap().tos, class);
        assert_eq!((p[0] >> 4, p[1] & 0x0f, p[3]), (6, 0, 1));
    }
}

proptest::proptest! {
    #[test]
    fn any_bytes_give_a_value_or_an_error(data: Vec<u8>, version in 0u8..16) {
        let mut data = data;
        if let Some(b) = data.first_mut() { *b = version << 4 | *b & 0x0f; }
        if let Ok(i) = parse(&data) {
            proptest::prop_assert!(i.upper <= i.total_len && i.total_len <= data.len());
            let _ = i.selector(&data);
        }
    }
}

#[test]
fn a_fragment_header_is_found_with_what_announces_it() {
    let packet = |first: u8, headers: &[&[u8]]| {
        let mut p = vec![0; 40];
        p[6] = first;
        headers.iter().for_each(|h| p.extend_from_slice(h));
        p
    };
    let options = |next: u8| [next, 0, 1, 4, 0, 0, 0, 0];
    let fragment = [17, 0, 0, 1, 0, 0, 0, 9];
    let found = |at, announced_at| Some(ext::FragmentHeader { at, announced_at });
    assert_eq!(ext::fragment_header(&packet(44, &[&fragment])), found(40, 6));
    assert_eq!(ext::fragment_header(&packet(0, &[&options(44), &fragment])), found(48, 40));
    assert_eq!(ext::fragment_header(&packet(0, &[&options(60), &options(44), &fragment])), found(56, 48));
    assert_eq!(ext::fragment_header(&packet(17, &[&fragment])), None);
    assert_eq!(ext::fragment_header(&packet(0, &[&options(17), &fragment])), None);
    assert_eq!(ext::fragment_header(&packet(44, &[&fragment[..7]])), None);
    assert_eq!(ext::fragment_header(&packet(0, &[])), None);
    assert_eq!(ext::fragment_header(&packet(60, &[&options(60).repeat(20)])), None);
}
