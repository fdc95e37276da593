//! Each kind of selector (RFC 4301 section 4.4.1.1): what is in it, the one below, the one above.

use ironswan_wire::sadb::{Entry, ReqId};
use ironswan_wire::selector::AddrRange;

use super::*;

const P: Action = Action::Protect(ReqId(1));

fn ts(a: &str, b: &str, protocol: u8, (start_port, end_port): (u16, u16)) -> TrafficSelector {
    let range = AddrRange::new(a.parse().unwrap(), b.parse().unwrap()).unwrap();
    TrafficSelector { range, protocol, start_port, end_port }
}

fn spd(policies: &[(Action, TrafficSelector, TrafficSelector, u32)]) -> Spd {
    let mut spd = Spd::default();
    for (serial, (action, local, remote, priority)) in policies.iter().enumerate() {
        let (name, action, local, remote, priority) = (String::new(), *action, *local, *remote, *priority);
        spd.add(&PolicyAdd { name, action, local, remote, priority, entry: Entry::default() }, serial as u64);
    }
    spd
}

fn packet(src: &str, dst: &str, protocol: u8, ports: Option<(u16, u16)>) -> PacketSelector {
    PacketSelector {
        src: src.parse().unwrap(),
        dst: dst.parse().unwrap(),
        protocol,
        src_port: ports.map(|p| p.0),
        dst_port: ports.map(|p| p.1),
    }
}

const ANY: (u16, u16) = (0, 65_535);
const OPAQUE: (u16, u16) = (65_535, 0);

fn all(v6: bool) -> TrafficSelector {
    TrafficSelector::addresses(AddrRange::any(v6))
}

/// In both directions.
fn covers(spd: &Spd, p: PacketSelector) -> bool {
    let back = PacketSelector { src: p.dst, dst: p.src, src_port: p.dst_port, dst_port: p.src_port, ..p };
    let out = spd.lookup_out(&p).is_some();
    assert_eq!(out, spd.lookup_in(&back).is_some());
    out
}

#[test]
fn addresses() {
    for (v6, below, first, last, above, here) in [
        (false, "10.2.0.9", "10.2.0.10", "10.2.1.3", "10.2.1.4", "10.1.0.1"),
        (false, "10.1.255.255", "10.2.0.0", "10.2.255.255", "10.3.0.0", "10.1.0.1"),
        (true, "fd02::f", "fd02::10", "fd02::1:0", "fd02::1:1", "fd01::1"),
    ] {
        let remote = spd(&[(P, all(v6), ts(first, last, 0, ANY), 0)]);
        let local = spd(&[(P, ts(first, last, 0, ANY), all(v6), 0)]);
        for (addr, inside) in [(below, false), (first, true), (last, true), (above, false)] {
            assert_eq!(covers(&remote, packet(here, addr, 17, Some((1, 2)))), inside, "{addr}");
            assert_eq!(covers(&local, packet(addr, here, 17, Some((1, 2)))), inside, "{addr}");
        }
    }
    let v4 = spd(&[(P, all(false), all(false), 0)]);
    assert!(!covers(&v4, packet("::1", "::2", 17, None)), "the other family");
}

#[test]
fn protocol() {
    let s = spd(&[(P, all(false), ts("0.0.0.0", "255.255.255.255", 17, ANY), 0)]);
    for (protocol, inside) in [(16, false), (17, true), (18, false), (0, false), (255, false)] {
        assert_eq!(covers(&s, packet("10.0.0.1", "10.0.0.2", protocol, None)), inside, "{protocol}");
    }
}

#[test]
fn ports_and_those_that_cannot_be_seen() {
    let with = |p| ts("0.0.0.0", "255.255.255.255", 6, p);
    let (a, b) = ("10.0.0.1", "10.0.0.2");
    let ends = [(Some(79), false), (Some(80), true), (Some(90), true), (Some(91), false), (None, false)];
    let any = [(Some(0), true), (Some(65_535), true), (None, true)];
    let opaque = [(Some(0), false), (Some(65_535), false), (None, true)];
    for (selector, cases) in [((80, 90), &ends[..]), (ANY, &any), (OPAQUE, &opaque)] {
        let (remote, local) =
            (spd(&[(P, with(ANY), with(selector), 0)]), spd(&[(P, with(selector), with(ANY), 0)]));
        for (port, inside) in cases {
            let ports = |p: (u16, u16)| port.map(|_| p);
            let port = port.unwrap_or(0);
            assert_eq!(covers(&remote, packet(a, b, 6, ports((7, port)))), *inside);
            assert_eq!(covers(&local, packet(a, b, 6, ports((port, 7)))), *inside);
        }
    }
}

#[test]
fn icmp_type_and_code_and_mobility_header_type() {
    let v4 = |p| ts("0.0.0.0", "255.255.255.255", 1, p);
    // Echo request with code 0; destination unreachable with any code.
    for (selector, inside, outside) in [
        ((0x0800, 0x0800), vec![0x0800], vec![0x07ff, 0x0801]),
        ((0x0300, 0x03ff), vec![0x0300, 0x0304, 0x03ff], vec![0x02ff, 0x0400]),
    ] {
        let s = spd(&[(P, v4(selector), v4(selector), 0)]);
        let p = |v| packet("10.0.0.1", "10.0.0.2", 1, Some((v, v)));
        assert!(inside.iter().all(|v| covers(&s, p(*v))) && !outside.iter().any(|v| covers(&s, p(*v))));
    }
    let mh = |p| ts("::", "ffff:ffff:ffff:ffff:ffff:ffff:ffff:ffff", 135, p);
    let s = spd(&[(P, mh((0x0500, 0x05ff)), mh((0x0500, 0x05ff)), 0)]);
    for (kind, inside) in [(4u16, false), (5, true), (6, false)] {
        assert_eq!(covers(&s, packet("fd01::1", "fd02::1", 135, Some((kind << 8, kind << 8)))), inside);
    }
}

#[test]
fn a_hole_in_a_net_in_a_larger_one_with_and_without_priorities() {
    let host = ts("10.2.0.9", "10.2.0.9", 0, ANY);
    let net = ts("10.2.0.0", "10.2.0.255", 0, ANY);
    let two = ts("10.2.0.0", "10.2.1.255", 0, ANY);
    let all = all(false);
    // Priorities of host, net and two nets; what a packet to .0.9, .0.8, .1.8 and one beyond gets.
    type Got = [Option<Action>; 4];
    let (h, n, t) = (Some(Action::Bypass), Some(P), Some(Action::Discard));
    let cases: [((u32, u32, u32), Got); 4] = [
        ((0, 0, 0), [h, n, t, None]),
        ((1, 2, 3), [h, n, t, None]),
        ((3, 2, 1), [t, t, t, None]),
        ((0, 5, 400_000), [n, n, t, None]),
    ];
    for ((a, b, c), want) in cases {
        let one = (Action::Bypass, all, host, a);
        let two = [(P, all, net, b), (Action::Discard, all, two, c)];
        // With an explicit order, the order of adding does not matter.
        for policies in [[one, two[0], two[1]], [two[1], two[0], one], [two[0], one, two[1]]] {
            let s = spd(&policies);
            let got = ["10.2.0.9", "10.2.0.8", "10.2.1.8", "10.2.2.8"]
                .map(|dst| s.lookup_out(&packet("10.1.0.1", dst, 17, Some((1, 2)))));
            assert_eq!(got, want, "{a} {b} {c}");
        }
    }
}
