use std::net::IpAddr;

use ironswan_wire::ip;

use super::*;

const S: Duration = Duration::from_secs(1);

/// A fragment of an IPv4 UDP packet: `at` and `len` in bytes.
fn v4(id: u16, at: u16, len: usize, more: bool) -> Vec<u8> {
    let mut p = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0, 10, 1, 0, 1, 10, 2, 0, 1];
    p.resize(20 + len, 7);
    let total = p.len() as u16;
    p[2..4].copy_from_slice(&total.to_be_bytes());
    p[4..6].copy_from_slice(&id.to_be_bytes());
    p[6..8].copy_from_slice(&((at / 8) | if more { 0x2000 } else { 0 }).to_be_bytes());
    p
}

/// A fragment of an IPv6 packet; `next` is what the fragment header announces.
fn v6(id: u32, next: u8, at: u16, data: &[u8], more: bool) -> Vec<u8> {
    let mut p = vec![0x60, 0, 0, 0, 0, (8 + data.len()) as u8, 44, 64];
    for a in ["fd01::1", "fd02::1"] {
        let IpAddr::V6(a) = a.parse().unwrap() else { panic!() };
        p.extend_from_slice(&a.octets());
    }
    p.extend_from_slice(&[next, 0]);
    p.extend_from_slice(&(at | u16::from(more)).to_be_bytes());
    p.extend_from_slice(&id.to_be_bytes());
    p.extend_from_slice(data);
    p
}

fn note(f: &mut FirstFragments, now: Duration, packet: &[u8]) -> FlowKey {
    let info = ip::parse(packet).unwrap();
    let key = FlowKey::new(&info, packet).unwrap();
    f.remember(now, packet, &info, 0, key);
    key
}

fn flow(f: &FirstFragments, now: Duration, packet: &[u8]) -> Option<FlowKey> {
    f.flow(now, packet, &ip::parse(packet).unwrap(), 0)
}

#[test]
fn a_later_fragment_finds_its_first_for_thirty_seconds() {
    let mut f = FirstFragments::default();
    assert_eq!(flow(&f, S, &v4(7, 24, 8, false)), None);
    let key = note(&mut f, S, &v4(7, 0, 24, true));
    assert_eq!(flow(&f, S, &v4(7, 24, 8, true)), Some(key));
    assert_eq!(flow(&f, S * 30, &v4(7, 48, 8, false)), Some(key));
    assert_eq!(flow(&f, S * 31, &v4(7, 48, 8, false)), None);
    assert_eq!(flow(&f, S, &v4(8, 24, 8, false)), None, "another packet");
    let mut other = v4(7, 24, 8, false);
    other[9] = 6;
    assert_eq!(flow(&f, S, &other), None, "another protocol");
    other = v4(7, 24, 8, false);
    other[15] = 9;
    assert_eq!(flow(&f, S, &other), None, "another sender");
    let (info, p) = (ip::parse(&v4(7, 24, 8, false)).unwrap(), v4(7, 24, 8, false));
    assert_eq!(f.flow(S, &p, &info, 1), None, "another SA");
}

#[test]
fn what_overlaps_the_first_fragment_finds_nothing() {
    let mut f = FirstFragments::default();
    note(&mut f, S, &v4(7, 0, 24, true));
    assert_eq!(flow(&f, S, &v4(7, 8, 8, true)), None);
    assert_eq!(flow(&f, S, &v4(7, 16, 16, true)), None);
    assert!(flow(&f, S, &v4(7, 24, 16, true)).is_some());
}

#[test]
fn ipv6_fragments_are_named_without_their_protocol() {
    let mut f = FirstFragments::default();
    // Destination options are in front of UDP: in the first fragment only.
    let mut data = vec![17, 0, 1, 4, 0, 0, 0, 0];
    data.extend_from_slice(&[0x10, 0, 0, 53, 0, 16, 0, 0]);
    let first = v6(0x1_0007, 60, 0, &data, true);
    assert_eq!(ip::parse(&first).unwrap().protocol, 17);
    let key = note(&mut f, S, &first);
    assert_eq!(key.selector().dst_port, Some(53));
    assert_eq!(flow(&f, S, &v6(0x1_0007, 60, 16, &[1; 8], false)), Some(key));
    assert_eq!(flow(&f, S, &v6(0x1_0007, 17, 16, &[1; 8], false)), Some(key));
    assert_eq!(
        flow(&f, S, &v6(0x0007, 60, 16, &[1; 8], false)),
        None,
        "all 32 bits of the identification count"
    );
    assert_eq!(
        flow(&f, S, &v6(0x1_0007, 60, 8, &[1; 8], false)),
        None,
        "it could put other ports over UDP's"
    );
}

#[test]
fn a_first_fragment_has_to_show_the_whole_upper_header() {
    let shown = |p: &[u8]| shows_ports(p, &ip::parse(p).unwrap());
    assert!(shown(&v4(7, 0, 8, true)) && !shown(&v4(7, 0, 7, true)) && !shown(&v4(7, 8, 100, true)));
    assert!(shown(&v4(7, 0, 3, false)), "what is whole hides nothing");
    let tcp = |len: usize, words: u8| {
        let mut p = v4(7, 0, len, true);
        p[9] = 6;
        if len > 12 {
            p[32] = words << 4;
        }
        p
    };
    assert!(!shown(&tcp(8, 5)), "the tiny fragment of RFC 1858");
    assert!(!shown(&tcp(19, 5)) && shown(&tcp(20, 5)) && !shown(&tcp(24, 8)) && shown(&tcp(32, 8)));
    assert!(!shown(&tcp(19, 0)), "a data offset that cannot be does not make it shorter");
    let other = |protocol: u8, len: usize| {
        let mut p = v4(7, 0, len, true);
        p[9] = protocol;
        p
    };
    // UDP-Lite, ICMP, ICMPv6, Mobile IPv6; SCTP, DCCP; GRE.
    for (needs, protocols) in [(8, &[17, 136, 1, 58, 135][..]), (12, &[132, 33]), (1, &[47])] {
        for protocol in protocols {
            assert!(!shown(&other(*protocol, needs - 1)) && shown(&other(*protocol, needs)), "{protocol}");
        }
    }
}

#[test]
fn memory_is_bounded_and_the_oldest_go_first() {
    let mut f = FirstFragments::default();
    assert_eq!(f.sets.capacity(), 0, "none for who sends no fragments");
    for id in 0..60_000u16 {
        note(&mut f, S + Duration::from_micros(id.into()), &v4(id, 0, 24, true));
    }
    assert_eq!(f.sets.len() * WAYS, 1024);
    let known = |id: u16| flow(&f, S * 2, &v4(id, 24, 8, false)).is_some();
    let found = (0..60_000).filter(|id| known(*id)).count();
    assert!((900..=1024).contains(&found), "{found}");
    assert!((59_900..60_000).filter(|id| known(*id)).count() >= 95, "the newest are there");
}
