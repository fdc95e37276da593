//! The program in the kernel's own hands (`BPF_PROG_TEST_RUN`): packets of every kind, and its
//! verdict. Needs root.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use ironswan_wire::selector::AddrRange;

use super::super::{Family, Filter, Ingress, List, Program, Row};
use super::*;

const US: &str = "192.0.2.1";
const US6: &str = "2001:db8::1";

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

fn prefix(text: &str) -> AddrRange {
    let (a, len) = text.split_once('/').unwrap();
    AddrRange::prefix(ip(a), len.parse().unwrap()).unwrap()
}

fn drop(local: &str) -> Row {
    let local = prefix(local);
    Row { local, drop: true, ..Row::all(local.is_ipv6()) }
}

fn all_views(rows: Vec<Row>) -> List {
    List { ports: rows.clone(), protocol: rows.clone(), addresses: rows.clone(), fragments: rows }
}

/// All from `remote` to `local` is dropped.
fn net(remote: &str, local: &str) -> Family {
    let rows = vec![drop(local)];
    let list = all_views(rows);
    Family { intervals: vec![(prefix(remote), 0)], lists: vec![list] }
}

fn filter(families: [Family; 2]) -> Filter {
    let own = BTreeSet::from([ip(US), ip(US6)]);
    Filter { families, ports: [500, 4500], own }
}

fn load(filter: &Filter) -> Program {
    Program::load(filter).expect("these tests need root, or CAP_BPF and CAP_NET_ADMIN: they load a program")
}

fn ethernet(kind: u16, packet: &[u8]) -> Vec<u8> {
    [&[0; 12][..], &kind.to_be_bytes(), packet].concat()
}

fn v4(from: &str, to: &str, protocol: u8, body: &[u8]) -> Vec<u8> {
    let mut p = vec![0x45, 0, 0, 0, 0, 1, 0, 0, 64, protocol, 0, 0];
    for a in [from, to] {
        let IpAddr::V4(a) = ip(a) else { panic!("{a}") };
        p.extend(a.octets());
    }
    p.extend(body);
    let len = p.len() as u16;
    p[2..4].copy_from_slice(&len.to_be_bytes());
    ethernet(0x0800, &p)
}

fn v6(from: &str, to: &str, protocol: u8, body: &[u8]) -> Vec<u8> {
    let mut p = vec![0x60, 0, 0, 0];
    p.extend((body.len() as u16).to_be_bytes());
    p.extend([protocol, 255]);
    for a in [from, to] {
        let IpAddr::V6(a) = ip(a) else { panic!("{a}") };
        p.extend(a.octets());
    }
    p.extend(body);
    ethernet(0x86dd, &p)
}

fn ports(source: u16, destination: u16) -> Vec<u8> {
    [source.to_be_bytes(), destination.to_be_bytes(), [0, 8], [0, 0]].concat()
}

fn with(mut frame: Vec<u8>, at: usize, bytes: &[u8]) -> Vec<u8> {
    frame[at..at + bytes.len()].copy_from_slice(bytes);
    frame
}

#[test]
fn what_is_to_be_protected_is_dropped_and_nothing_else() {
    let p = load(&filter([net("10.2.0.0/16", "10.1.0.0/16"), net("fd00:2::/64", "fd00:1::/64")]));
    let u = ports(1, 2);
    for (want, what, frame) in [
        (true, "UDP", v4("10.2.0.9", "10.1.0.5", 17, &u)),
        (true, "first address", v4("10.2.0.0", "10.1.0.0", 17, &u)),
        (true, "last address", v4("10.2.255.255", "10.1.255.255", 17, &u)),
        (false, "before", v4("10.1.255.255", "10.1.0.5", 17, &u)),
        (false, "behind", v4("10.3.0.0", "10.1.0.5", 17, &u)),
        (false, "to others", v4("10.2.0.9", "10.0.255.255", 17, &u)),
        (false, "to others behind", v4("10.2.0.9", "10.2.0.0", 17, &u)),
        (false, "highest source", v4("255.255.255.255", "10.1.0.5", 17, &u)),
        (false, "lowest source", v4("0.0.0.0", "10.1.0.5", 17, &u)),
        (true, "only a header", v4("10.2.0.9", "10.1.0.5", 17, &[])),
        (true, "a later fragment", with(v4("10.2.0.9", "10.1.0.5", 17, &u), 20, &[0, 9])),
        (true, "options", with(v4("10.2.0.9", "10.1.0.5", 17, &[0; 60]), 14, &[0x4f])),
        (true, "ESP for somebody behind us", v4("10.2.0.9", "10.1.0.5", 50, &u)),
        (true, "IKE for somebody behind us", v4("10.2.0.9", "10.1.0.5", 17, &ports(500, 500))),
        (false, "to another station", with(v4("10.2.0.9", "10.1.0.5", 17, &u), 0, &[2])),
        (false, "ARP", ethernet(0x0806, &[0; 28])),
        (true, "IPv6", v6("fd00:2::9", "fd00:1::5", 17, &u)),
        (true, "last of IPv6", v6("fd00:2::ffff:ffff:ffff:ffff", "fd00:1::ffff:ffff:ffff:ffff", 17, &u)),
        (false, "behind, IPv6", v6("fd00:2:0:1::", "fd00:1::5", 17, &u)),
        (false, "before, IPv6", v6("fd00:1:ffff:ffff:ffff:ffff:ffff:ffff", "fd00:1::5", 17, &u)),
        (false, "to others, IPv6", v6("fd00:2::9", "fd00:1:0:1::", 17, &u)),
        (true, "options, IPv6", v6("fd00:2::9", "fd00:1::5", 60, &[17, 0, 1, 4, 0, 0, 0, 0, 0, 1, 0, 2])),
        (
            true,
            "a neighbour of somebody behind us",
            v6("fd00:2::9", "fd00:1::5", 58, &[135, 0, 0, 0, 0, 0, 0, 0]),
        ),
        (false, "DHCP's answer", v4("10.2.0.9", "10.1.0.5", 17, &ports(67, 68))),
        (true, "a later fragment of it", with(v4("10.2.0.9", "10.1.0.5", 17, &ports(67, 68)), 20, &[0, 9])),
        (true, "to DHCP's port", v4("10.2.0.9", "10.1.0.5", 17, &ports(68, 68))),
        (true, "from DHCP's port", v4("10.2.0.9", "10.1.0.5", 17, &ports(67, 67))),
        (true, "DHCP's ports over TCP", v4("10.2.0.9", "10.1.0.5", 6, &ports(67, 68))),
        (true, "DHCP's ports over IPv6", v6("fd00:2::9", "fd00:1::5", 17, &ports(67, 68))),
        (true, "an echo request", v6("fd00:2::9", "fd00:1::5", 58, &[128, 0, 0, 0, 0, 0, 0, 0])),
        // Tags: the kernel takes away a second one without coming here again where neither names a
        // VLAN.
        (true, "two tags of no VLAN", ethernet(0x8100, &[&[0xe0, 0, 8, 0][..], &[0x45; 30]].concat())),
        (true, "two tags of no VLAN", ethernet(0x88a8, &[&[0, 0, 8, 0][..], &[0x45; 30]].concat())),
        (false, "a tag of VLAN 1", ethernet(0x8100, &[&[0xe0, 1, 8, 0][..], &[0x45; 30]].concat())),
    ] {
        assert_eq!(p.drops(&frame).unwrap(), want, "{what}");
    }
}

#[test]
fn every_length_of_a_packet_is_dropped_or_too_short_for_a_header() {
    let p = load(&filter([net("10.2.0.0/16", "10.1.0.0/16"), net("fd00:2::/64", "fd00:1::/64")]));
    let fragment = [&[17, 0, 0, 0, 0, 0, 0, 1][..], &ports(1, 2)].concat();
    for (frame, header) in [
        (v4("10.2.0.9", "10.1.0.5", 1, &[8; 40]), 34),
        (v6("fd00:2::9", "fd00:1::5", 44, &fragment), 54),
        (v6("fd00:2::9", "fd00:1::5", 58, &[128; 40]), 54),
    ] {
        // The kernel itself may refuse to run a program on less than an IP header.
        for len in 14..frame.len() {
            match p.drops(&frame[..len]) {
                Ok(dropped) => assert_eq!(dropped, len >= header, "{len}"),
                Err(e) => assert!(len < header, "{len}: {e}"),
            }
        }
    }
}

#[test]
fn what_comes_to_us_in_clear_by_right_comes_in() {
    let p = load(&filter([net("0.0.0.0/0", "192.0.2.0/24"), net("::/0", "2001:db8::/64")]));
    let peer = "198.51.100.7";
    let error = |kind: u8, protocol: u8, sport: u16| {
        let quoted = v4(US, peer, protocol, &ports(sport, 4500));
        [&[kind, 4, 0, 0, 0, 0, 5, 0][..], &quoted[14..]].concat()
    };
    let error6 = |kind: u8, protocol: u8, sport: u16| {
        let quoted = v6(US6, "2001:db8:9::2", protocol, &ports(sport, 4500));
        [&[kind, 0, 0, 0, 0, 0, 5, 0][..], &quoted[14..]].concat()
    };
    let first = |next: u8, offset: u8, body: &[u8]| [&[next, 0, 0, offset, 0, 0, 0, 1], body].concat();
    let router = "203.0.113.9";
    let from6 = "2001:db8:9::2";
    for (want, what, frame) in [
        (false, "IKE", v4(peer, US, 17, &ports(500, 500))),
        (false, "encapsulated", v4(peer, US, 17, &ports(1024, 4500))),
        (true, "from port 500", v4(peer, US, 17, &ports(500, 501))),
        (true, "TCP to port 500", v4(peer, US, 6, &ports(1, 500))),
        (false, "ESP", v4(peer, US, 50, &[1; 40])),
        (false, "AH", v4(peer, US, 51, &[1; 40])),
        (true, "ESP to a neighbour", v4(peer, "192.0.2.2", 50, &[1; 40])),
        (true, "IKE to a neighbour", v4(peer, "192.0.2.2", 17, &ports(500, 500))),
        (false, "IKE, later fragment", with(v4(peer, US, 17, &[1; 40]), 20, &[0, 185])),
        (false, "IKE, first fragment", with(v4(peer, US, 17, &ports(500, 500)), 20, &[0x20, 0])),
        (true, "first fragment", with(v4(peer, US, 17, &ports(500, 53)), 20, &[0x20, 0])),
        (true, "later fragment of TCP", with(v4(peer, US, 6, &[1; 40]), 20, &[0, 185])),
        (true, "UDP without ports", v4(peer, US, 17, &[1; 3])),
        (false, "too big, about ESP", v4(router, US, 1, &error(3, 50, 0))),
        (false, "too big, about UDP", v4(router, US, 1, &error(3, 17, 4500))),
        (false, "time exceeded", v4(router, US, 1, &error(11, 51, 0))),
        (true, "about others", v4(router, US, 1, &error(3, 17, 4501))),
        (true, "about TCP", v4(router, US, 1, &error(3, 6, 4500))),
        (true, "cut before the port", v4(router, US, 1, &error(3, 17, 4500)[..29])),
        (true, "echo", v4(router, US, 1, &error(8, 50, 0))),
        (true, "redirect", v4(router, US, 1, &error(5, 50, 0))),
        (false, "IKE over IPv6", v6(from6, US6, 17, &ports(500, 500))),
        (false, "ESP over IPv6", v6(from6, US6, 50, &[1; 40])),
        (false, "AH over IPv6", v6(from6, US6, 51, &[1; 40])),
        (true, "ESP over IPv6 to a neighbour", v6(from6, "2001:db8::2", 50, &[1; 40])),
        (false, "first fragment over IPv6", v6(from6, US6, 44, &first(17, 1, &ports(500, 500)))),
        (true, "first fragment over IPv6", v6(from6, US6, 44, &first(17, 1, &ports(500, 53)))),
        (false, "later fragment over IPv6", v6(from6, US6, 44, &first(17, 16, &[1; 20]))),
        (false, "fragment of AH", v6(from6, US6, 44, &first(51, 16, &[1; 20]))),
        (true, "later fragment of TCP over IPv6", v6(from6, US6, 44, &first(6, 16, &[1; 20]))),
        (false, "too big over IPv6", v6(from6, US6, 58, &error6(2, 50, 0))),
        (false, "too big over IPv6, about UDP", v6(from6, US6, 58, &error6(2, 17, 500))),
        (true, "about others over IPv6", v6(from6, US6, 58, &error6(2, 17, 501))),
        (false, "a neighbour", v6(from6, US6, 58, &[135, 0, 0, 0, 0, 0, 0, 0])),
        (true, "a neighbour far away", with(v6(from6, US6, 58, &[135, 0, 0, 0, 0, 0, 0, 0]), 21, &[254])),
        (true, "echo over IPv6", v6(from6, US6, 58, &error6(128, 50, 0))),
    ] {
        assert_eq!(p.drops(&frame).unwrap(), want, "{what}");
    }
}

#[test]
fn any_number_of_intervals_is_searched_as_by_hand() {
    for count in [1u32, 2, 3, 7, 8, 9, 1000] {
        // 10.0.1.0/25 and so on: every second one; drops only where the list's number is even.
        let intervals: Vec<_> = (0..count)
            .map(|i| {
                let start = 0x0a00_0000 + 256 * i;
                let range =
                    AddrRange::new(IpAddr::V4(start.into()), IpAddr::V4((start + 127).into())).unwrap();
                (range, i as usize % 3)
            })
            .collect();
        let six = |a: IpAddr| match a {
            IpAddr::V4(a) => IpAddr::V6((u128::from(u32::from(a)) << 93 | 7).into()),
            a => a,
        };
        let intervals6 = intervals
            .iter()
            .map(|(r, n)| (AddrRange::new(six(r.start()), six(r.end())).unwrap(), *n))
            .collect();
        let list = |drop: bool, v6: bool| {
            let rows = vec![Row { drop, ..Row::all(v6) }];
            all_views(rows)
        };
        let lists = |v6: bool| vec![list(true, v6), list(false, v6), list(true, v6)];
        let p = load(&filter([
            Family { intervals, lists: lists(false) },
            Family { intervals: intervals6, lists: lists(true) },
        ]));
        for i in (0..count + 2).step_by(1 + count as usize / 40) {
            for last in [0, 1, 127, 128, 255] {
                let a = IpAddr::V4((0x0a00_0000 + 256 * i + last).into());
                let want = i < count && last < 128 && i % 3 != 1;
                let frame = v4(&a.to_string(), "1.2.3.4", 17, &ports(1, 2));
                assert_eq!(p.drops(&frame).unwrap(), want, "{count} {a}");
                let a = six(a);
                let frame = v6(&a.to_string(), "fd00::1", 17, &ports(1, 2));
                assert_eq!(p.drops(&frame).unwrap(), want, "{count} {a}");
            }
        }
    }
}

#[test]
fn the_longest_lists_are_taken_and_one_more_row_is_refused() {
    let family = |rows: usize, remote: &str, local: &str| {
        let row = |n: usize| Row { destination: (n as u16, n as u16), shows: Some(true), ..drop(local) };
        let list = List { ports: (0..rows).map(row).collect(), ..List::default() };
        Family { intervals: vec![(prefix(remote), 0)], lists: vec![list] }
    };
    let of = move |rows: usize| {
        filter([family(rows, "10.2.0.0/16", "10.1.0.0/16"), family(rows, "fd00:2::/64", "fd00:1::/64")])
    };
    // The most rows that load with the capabilities of our systemd units, which lack CAP_PERFMON:
    // without it the verifier also follows paths that a processor would only guess.
    let few_rights = std::thread::spawn(move || {
        use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
        let mut sets = capabilities(None).unwrap();
        sets.effective &= !(CapabilitySet::PERFMON | CapabilitySet::SYS_ADMIN);
        set_capabilities(None, sets).unwrap();
        assert!(!may_loop());
        load(&of(UNROLLED - 1));
        let e = Program::load(&of(UNROLLED)).unwrap_err().to_string();
        assert!(e.contains("128 policies cover one address"), "{e}");
    });
    few_rights.join().unwrap();
    if !may_loop() {
        return;
    }
    let p = load(&of(MAX_ROWS - 1));
    for (port, want) in [(0, true), (MAX_ROWS - 2, true), (MAX_ROWS - 1, false)] {
        let body = ports(9, port as u16);
        assert_eq!(p.drops(&v4("10.2.0.9", "10.1.0.5", 17, &body)).unwrap(), want, "{port}");
        assert_eq!(p.drops(&v6("fd00:2::9", "fd00:1::5", 17, &body)).unwrap(), want, "{port}");
    }
    let e = Program::load(&of(MAX_ROWS)).unwrap_err().to_string();
    assert!(e.contains("1024 policies cover one address"), "{e}");
}

#[test]
fn the_digest_differs_when_anything_does() {
    let of = |f: &Filter| ProgramImage::new(f).unwrap().digest();
    let f = filter([net("10.2.0.0/16", "10.1.0.0/16"), Family::default()]);
    assert_eq!(of(&f), of(&f.clone()));
    let mut others = vec![f.clone(); 3];
    others[0].ports[1] = 4501;
    others[1].own.insert(ip("10.9.9.9"));
    others[2].families[0].lists[0].ports[0].drop = false;
    for other in others {
        assert_ne!(of(&f), of(&other));
    }
}

#[test]
fn later_fragments_have_rows_of_their_own() {
    let mut f = filter([net("10.2.0.0/16", "10.1.0.0/16"), net("fd00:2::/64", "fd00:1::/64")]);
    let pass = |local| Row { protocol: Some(17), drop: false, ..drop(local) };
    f.families[0].lists[0].fragments.insert(0, pass("10.1.0.0/16"));
    f.families[1].lists[0].fragments.insert(0, pass("fd00:1::/64"));
    let p = load(&f);
    let four = |protocol: u8, at: [u8; 2]| with(v4("10.2.0.9", "10.1.0.5", protocol, &ports(1, 2)), 20, &at);
    let six = |protocol: u8, at: u8| {
        let fragment = [&[protocol, 0, 0, at, 0, 0, 0, 1], &ports(1, 2)[..]].concat();
        v6("fd00:2::9", "fd00:1::5", 44, &fragment)
    };
    for (want, what, frame) in [
        (true, "whole", four(17, [0, 0])),
        (true, "first", four(17, [0x20, 0])),
        (false, "later", four(17, [0x20, 1])),
        (false, "the last of all", four(17, [0x1f, 0xff])),
        (true, "of another protocol", four(6, [0, 1])),
        (true, "too short", v4("10.2.0.9", "10.1.0.5", 17, &[1; 3])),
        (true, "first, IPv6", six(17, 1)),
        (false, "later, IPv6", six(17, 9)),
        (true, "of another protocol, IPv6", six(6, 9)),
        (true, "of what hides behind options, IPv6", six(60, 9)),
    ] {
        assert_eq!(p.drops(&frame).unwrap(), want, "{what}");
    }
}

/// Runs with or without CAP_BPF, CAP_PERFMON and what contains them; `false`: without.
fn may_load(may: bool) {
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    let mut sets = capabilities(None).unwrap();
    let rights = CapabilitySet::BPF | CapabilitySet::PERFMON | CapabilitySet::SYS_ADMIN;
    sets.effective.set(rights & sets.permitted, may);
    set_capabilities(None, sets).unwrap();
}

#[test]
fn what_the_kernel_cannot_have_is_wanted_no_more_and_not_tried_at_once_again() {
    let mut ingress = Ingress::open().unwrap();
    let own = BTreeSet::from([ip(US), ip("10.1.0.1"), ip("10.3.0.1")]);
    let of = |remote| Arc::new(filter([net(remote, "10.1.0.0/16"), Family::default()]));
    let first = of("10.2.0.0/16");
    ingress.set_filter(&first, &own, &[]).expect("these tests need root: they load a program");
    let wanted = ingress.desired.as_ref().unwrap();
    assert_eq!(wanted.fitted.own, BTreeSet::from([ip("10.1.0.1")]));
    let program = wanted.program.fd.as_raw_fd();
    let others = BTreeSet::from([ip("10.1.0.1"), ip("10.4.0.1")]);
    ingress.set_filter(&first, &others, &[]).unwrap();
    let still = ingress.desired.as_ref().unwrap();
    assert!(still.program.fd.as_raw_fd() == program, "another program for an address that no policy reaches");

    may_load(false);
    let e = ingress.set_filter(&of("10.3.0.0/16"), &own, &[]).unwrap_err().to_string();
    assert!(e.contains("CAP_BPF") && !ingress.has_filter(), "{e}");
    let until = ingress.refused.as_ref().unwrap().2;
    may_load(true);
    assert_eq!(ingress.set_filter(&of("10.3.0.0/16"), &own, &[]).unwrap_err().to_string(), e);
    assert_eq!(ingress.refused.as_ref().unwrap().2, until, "it was tried again");
    ingress.set_filter(&first, &own, &[]).unwrap();
    assert!(ingress.has_filter() && ingress.refused.is_none());
}

#[test]
#[ignore = "prints what a packet costs"]
fn what_a_packet_costs() {
    for count in [1u32, 10, 100, 1000, 10_000] {
        let intervals =
            (0..count).map(|i| (AddrRange::host(IpAddr::V4((0x0a00_0000 + 256 * i).into())), 0)).collect();
        let mut f = filter([net("10.2.0.0/16", "10.1.0.0/16"), Family::default()]);
        f.families[0].intervals = intervals;
        let p = load(&f);
        let esp = v4("198.51.100.7", US, 50, &[1; 1400]);
        let hit = v4("10.0.0.0", "10.1.0.5", 17, &ports(1, 2));
        let ns = |frame: &[u8]| p.run_time(frame, 1_000_000).unwrap();
        println!("{count} policies: another's packet {} ns, one that is dropped {} ns", ns(&esp), ns(&hit));
    }
}
