//! Policies that cover this machine's own address, or the peer's: everything through the tunnel,
//! and transport mode.

use std::io::IoSlice;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::time::Duration;

use ironswan_io::mmsg::Outgoing;
use ironswan_io::raw::{RawSocket, WITH_HEADER};
use ironswan_io::send::{Outlet, Sender};
use ironswan_io::tun::VNET_HEADER;
use ironswan_wire::ip::checksum;

use super::super::Verdict;
use super::harness::*;

/// The interface by which a packet leaves that `send` sends.
fn sent(b: &Box, send: impl FnOnce()) -> Option<Went> {
    b.left();
    send();
    b.left().into_iter().find(|(_, p)| p.ends_with(b"steering")).map(|(went, _)| went)
}

/// A socket on a port whose last socket was closed just now: a program that another test is
/// starting has a copy of it until it runs.
fn free(at: (IpAddr, u16)) -> UdpSocket {
    for _ in 0..500 {
        match UdpSocket::bind(at) {
            Err(e) if e.kind() == std::io::ErrorKind::AddrInUse => {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            bound => return bound.unwrap(),
        }
    }
    panic!("{at:?} stays in use");
}

#[test]
fn a_host_sends_everything_through_the_tunnel_but_what_carries_the_tunnel() {
    let all = policies(&[(Verdict::Protect, "192.0.2.1/32", "0.0.0.0/0")]);
    in_box(&all, |b| {
        for v6 in [false, true] {
            let (own, far) = (family(v6, "192.0.2.1"), family(v6, "198.51.100.7"));
            let bound = || UdpSocket::bind((own, 0)).unwrap();
            let to = |s: &UdpSocket| s.send_to(b"steering", (far, 9)).map(drop).unwrap();
            assert_eq!(sent(b, || to(&bound())), Some(Tunnel), "bound");
            let any = if v6 { "[::]:0" } else { "0.0.0.0:0" };
            assert_eq!(sent(b, || to(&UdpSocket::bind(any).unwrap())), Some(Tunnel), "unconnected");
            let connected = UdpSocket::bind(any).unwrap();
            connected.connect((far, 9)).unwrap();
            for _ in 0..2 {
                assert_eq!(
                    sent(b, || assert!(connected.send(b"steering").is_ok())),
                    Some(Tunnel),
                    "connected"
                );
            }
            // A SYN, which nobody answers.
            b.left();
            let domain =
                if v6 { rustix::net::AddressFamily::INET6 } else { rustix::net::AddressFamily::INET };
            let flags = rustix::net::SocketFlags::NONBLOCK;
            let tcp = rustix::net::socket_with(domain, rustix::net::SocketType::STREAM, flags, None).unwrap();
            let _ = rustix::net::connect(&tcp, &std::net::SocketAddr::new(far, 80));
            let syn = |p: &[u8]| p[if v6 { 6 } else { 9 }] == 6;
            let all = b.left();
            assert!(all.iter().any(|(went, p)| *went == Tunnel && syn(p)), "SYN {all:x?}");
            assert!(!all.iter().any(|(went, p)| *went == Wide && syn(p)), "SYN {all:x?}");
            // Ours: both the mark and the port; one alone is not enough.
            let marked = |port| {
                ironswan_io::udp::UdpSocket::bind(ironswan_io::udp::UdpConfig::esp(v6, port, 0x220)).unwrap()
            };
            let send = |s: &ironswan_io::udp::UdpSocket| {
                let remote = std::net::SocketAddr::new(far, 9);
                rustix::net::sendto(s, b"steering", rustix::net::SendFlags::empty(), &remote).unwrap();
            };
            assert_eq!(sent(b, || send(&marked(4500))), Some(Wide), "ours");
            assert_eq!(sent(b, || send(&marked(4501))), Some(Tunnel), "another port");
            assert_eq!(sent(b, || to(&free((own, 4500)))), Some(Tunnel), "no mark");
        }
        assert_eq!(b.counted(), (0, 0));
        fragments_and_errors_of_outer_packets_get_in(b);
    });
}

/// Outer packets of the tunnel get in also in fragments, and so do errors about them. Fragments and
/// errors of other packets do not.
fn fragments_and_errors_of_outer_packets_get_in(b: &mut Box) {
    // Fragments of IPv6 come in one by one: of an IKE message, and of something else, whose
    // first one does not get in.
    let (own, far) = (family(true, "192.0.2.1"), family(true, "198.51.100.7"));
    for (upper, want) in
        [(Later(17), Nowhere), (First(9, 4500), Nowhere), (First(9, 53), ClearIn), (Later(6), ClearIn)]
    {
        assert_eq!(b.send(Wide, far, own, upper), want, "{upper:?}");
    }
    // An error about an outer packet gets in, whoever sends it; another one does not.
    let before = b.counted();
    for (quoted, want) in [((4500u16, 9u16), 0), ((53, 9), 1)] {
        let inner =
            packet(family(false, "192.0.2.1"), family(false, "198.51.100.7"), Udp(quoted.0, quoted.1), 7);
        let error = too_big(family(false, "198.51.100.1"), family(false, "192.0.2.1"), &inner);
        b.wan.write(&[IoSlice::new(&[0; VNET_HEADER]), IoSlice::new(&error)]).unwrap();
        assert_eq!(b.counted().1 - before.1, want, "about a packet from port {}", quoted.0);
    }
}

/// An ICMP error with which `router` tells `own` that the quoted packet is too long for its next
/// link.
fn too_big(router: IpAddr, own: IpAddr, quoted: &[u8]) -> Vec<u8> {
    let icmp = if own.is_ipv6() { [2, 0, 0, 0, 0, 0, 5, 0] } else { [3, 4, 0, 0, 0, 0, 5, 0] };
    let mut icmp = [&icmp[..], &quoted[..quoted.len().min(60)]].concat();
    let mut error = packet(router, own, Proto(if own.is_ipv6() { 58 } else { 1 }), 7);
    let len = icmp.len() as u8;
    let mut pseudo = 0;
    if own.is_ipv6() {
        error.truncate(40);
        error[5] = len;
        pseudo = checksum::pseudo(&error[8..40], 58) + checksum::be16(len.into());
    } else {
        error.truncate(20);
        error[3] = 20 + len;
        (error[10], error[11]) = (0, 0);
        let sum = !checksum::fold(checksum::sum(&error));
        error[10..12].copy_from_slice(&sum.to_ne_bytes());
    }
    let sum = !checksum::fold(checksum::sum(&icmp) + pseudo);
    icmp[2..4].copy_from_slice(&sum.to_ne_bytes());
    error.extend(icmp);
    error
}

/// A router behind this gateway, with an address that no policy covers, speaks of a packet that
/// came through the tunnel.
#[test]
fn an_error_takes_the_way_of_what_it_quotes() {
    let far_side = "198.51.100.0/24";
    for (local, remote, what) in [
        ("10.1.2.0/24", far_side, "a network"),
        ("10.1.2.3/32", far_side, "a host"),
        ("10.1.2.0/24[17/any]", "198.51.100.0/24[17/any]", "a protocol"),
        ("10.1.2.0/24[17/53]", "198.51.100.0/24[17/any]", "a port"),
    ] {
        in_box(&policies(&[(Verdict::Protect, local, remote)]), |b| {
            for v6 in [false, true] {
                let (router, far) = (family(v6, "10.1.9.9"), family(v6, "198.51.100.7"));
                let other = if local.contains('[') { Tcp(9, 53) } else { Udp(9, 53) };
                for (host, upper, want) in [
                    ("10.1.2.3", Udp(9, 53), Tunnel),
                    ("10.1.3.3", Udp(9, 53), Wide),
                    ("10.1.2.3", other, if local.contains('[') { Wide } else { Tunnel }),
                ] {
                    let quoted = packet(far, family(v6, host), upper, 7);
                    let error = too_big(router, far, &quoted);
                    let before = b.counted();
                    b.left();
                    b.lan.write(&[IoSlice::new(&[0; VNET_HEADER]), IoSlice::new(&error)]).unwrap();
                    let end = &error[error.len() - 32..];
                    let went = b.left().into_iter().find(|(_, p)| p.ends_with(end)).map(|(went, _)| went);
                    assert_eq!(went, Some(want), "{what}: {upper:?} from {far} to {host}");
                    assert_eq!(b.counted(), before, "{what}");
                }
            }
            // Some versions of the program die of what they cannot name.
            assert!(run("nft", "list table inet ironswan").contains("in_clear"), "{what}");
        });
    }
}

#[test]
fn transport_mode_between_two_hosts_lets_esp_and_ah_pass_and_nothing_else() {
    let all = policies(&[(Verdict::Protect, "192.0.2.1/32", "198.51.100.7/32")]);
    in_box(&all, |b| {
        for v6 in [false, true] {
            let (own, far) = (family(v6, "192.0.2.1"), family(v6, "198.51.100.7"));
            let header = if v6 { 40 } else { 20 };
            let before = b.counted();
            for protocol in [50, 51] {
                let p = [packet(own, far, Proto(protocol), 0), vec![0; 40], b"steering".to_vec()].concat();
                let p = lengthened(p);
                let m = |offset, len| Outgoing {
                    offset,
                    len,
                    segment: 0,
                    local: own,
                    remote: SocketAddr::new(far, 0),
                    tos: 0,
                    fragmentable: 0,
                };
                for (mark, want) in [(0x220, Wide), (0, Tunnel)] {
                    let open = |protocol| RawSocket::open(v6, protocol, mark, 1 << 20).unwrap();
                    let (raw, with) = (open(protocol), open(WITH_HEADER));
                    let mut sender = Sender::new();
                    let what = format!("protocol {protocol}, mark {mark:#x}, {own}");
                    let body = m(header, p.len() - header);
                    assert_eq!(sent(b, || sender.send(Outlet::Raw(&raw), &p, &[body])), Some(want), "{what}");
                    let whole = m(0, p.len());
                    assert_eq!(
                        sent(b, || sender.send(Outlet::Ip(&with), &p, &[whole])),
                        Some(want),
                        "{what}"
                    );
                    // In fragments.
                    let long = lengthened([&p[..], &[0; 3000], b"steering"].concat());
                    let len = long.len();
                    let whole = Outgoing { fragmentable: len, ..m(0, len) };
                    assert_eq!(
                        sent(b, || sender.send(Outlet::Ip(&with), &long, &[whole])),
                        Some(want),
                        "{what}"
                    );
                    assert_eq!((sender.stats().fragmented, sender.stats().datagrams), (1, 3), "{what}");
                }
                // Packets of the peer get in, and so do errors about ours. A socket takes them,
                // because otherwise the kernel would answer.
                let _taker = RawSocket::open(v6, protocol, 0x220, 1 << 20).unwrap();
                assert_eq!(b.send(Wide, far, own, Proto(protocol)), Nowhere);
                assert_eq!(b.send(Wide, far, own, Later(protocol)), Nowhere);
                let error = too_big(far, own, &p);
                b.wan.write(&[IoSlice::new(&[0; VNET_HEADER]), IoSlice::new(&error)]).unwrap();
            }
            assert_eq!(b.counted(), before, "{own}");
            nothing_else_gets_in(b, own, far);
        }
    });
}

/// UDP, TCP and an error about a TCP packet come in clear, and are dropped and counted.
fn nothing_else_gets_in(b: &mut Box, own: IpAddr, far: IpAddr) {
    let before = b.counted();
    assert_eq!(b.send(Wide, far, own, Udp(1, 2)), ClearIn);
    assert_eq!(b.send(Wide, far, own, Tcp(1, 2)), ClearIn);
    let tcp = too_big(far, own, &packet(own, far, Tcp(1, 2), 7));
    b.wan.write(&[IoSlice::new(&[0; VNET_HEADER]), IoSlice::new(&tcp)]).unwrap();
    assert_eq!(b.counted(), (before.0, before.1 + 3));
}

/// Corrects the length in the packet's header.
fn lengthened(mut packet: Vec<u8>) -> Vec<u8> {
    let (at, len) = if packet[0] >> 4 == 6 { (4, packet.len() - 40) } else { (2, packet.len()) };
    packet[at..at + 2].copy_from_slice(&(len as u16).to_be_bytes());
    packet
}

/// Of this kind, a packet that `from` sends in clear.
#[derive(Clone, Copy, Debug)]
enum Sent {
    As(Upper),
    /// IPv4 with four bytes of options; IPv6 as it is.
    Optioned(Upper),
    /// An error about this packet of the receiver's.
    About(Upper),
    /// Neighbour discovery with this hop limit; in IPv4 an echo reply.
    Neighbour(u8),
}

fn made(kind: Sent, from: IpAddr, to: IpAddr) -> Vec<u8> {
    match kind {
        Sent::As(upper) => packet(from, to, upper, 7),
        Sent::About(upper) => too_big(from, to, &packet(to, from, upper, 7)),
        Sent::Neighbour(_) if to.is_ipv4() => packet(from, to, EchoReply, 7),
        Sent::Neighbour(hops) => {
            let mut p = packet(from, to, Proto(58), 7);
            (p[7], p[40]) = (hops, 135);
            p
        }
        Sent::Optioned(upper) => {
            let mut p = packet(from, to, upper, 7);
            if to.is_ipv4() {
                p.splice(20..20, [1, 1, 1, 0]);
                p[0] += 1;
                (p[10], p[11]) = (0, 0);
                p = lengthened(p);
                let sum = !checksum::fold(checksum::sum(&p[..24]));
                p[10..12].copy_from_slice(&sum.to_ne_bytes());
            }
            p
        }
    }
}

/// Packets that come in clear, and whether they are dropped: for the gateway itself, and for a host
/// behind it.
const TO_US: &[(Sent, bool, bool)] = &[
    (Sent::As(Udp(1, 2)), true, true),
    (Sent::As(Udp(9, 500)), false, true),
    (Sent::As(Udp(500, 9)), true, true),
    (Sent::As(Udp(9, 4500)), false, true),
    (Sent::As(Tcp(9, 500)), true, true),
    (Sent::As(Options(9, 500)), true, true),
    (Sent::As(Short), true, true),
    (Sent::As(Echo), true, true),
    (Sent::As(Proto(50)), false, true),
    (Sent::As(Proto(51)), false, true),
    (Sent::As(Proto(108)), true, true),
    (Sent::As(Proto(47)), true, true),
    (Sent::Optioned(Udp(1, 2)), true, true),
    (Sent::Optioned(Udp(9, 500)), false, true),
    (Sent::Optioned(Proto(50)), false, true),
    (Sent::About(Proto(50)), false, true),
    (Sent::About(Proto(51)), false, true),
    (Sent::About(Udp(4500, 9)), false, true),
    (Sent::About(Udp(1, 2)), true, true),
    (Sent::About(Tcp(4500, 9)), true, true),
    (Sent::Neighbour(64), true, true),
];

#[test]
fn table_and_program_decide_alike_about_what_comes_in_clear() {
    let all = policies(&[
        (Verdict::Protect, "192.0.2.1/32", "198.51.100.0/24"),
        (Verdict::Protect, "10.1.0.0/16", "198.51.100.0/24"),
    ]);
    in_box(&all, |b| {
        let dropped = |b: &mut Box, packet: &[u8]| {
            let before = b.counted();
            b.wan.write(&[IoSlice::new(&[0; VNET_HEADER]), IoSlice::new(packet)]).unwrap();
            for _ in 0..3 {
                if b.counted().1 != before.1 {
                    break;
                }
                std::thread::sleep(Duration::from_millis(1));
            }
            b.counted().1 - before.1
        };
        let mut wrong = Vec::new();
        let mut check = |b: &mut Box, who: &str| {
            for v6 in [false, true] {
                let from = family(v6, "198.51.100.7");
                for (kind, own, behind) in TO_US {
                    for (to, want) in [("192.0.2.1", own), ("10.1.0.5", behind)] {
                        let to = family(v6, to);
                        let n = dropped(b, &made(*kind, from, to));
                        if n != u64::from(*want) {
                            wrong.push(format!("{who}: {kind:?} to {to} was dropped {n} times"));
                        }
                    }
                }
                // Hop limit 255: no router has forwarded the packet. Only the gateway itself may
                // receive it.
                let neighbour = |to: &str| made(Sent::Neighbour(255), from, family(v6, to));
                let (own, behind) = (neighbour("192.0.2.1"), neighbour("10.1.0.5"));
                if (dropped(b, &own), dropped(b, &behind)) != (u64::from(!v6), 1) {
                    wrong.push(format!("{who}: neighbour discovery {v6}"));
                }
            }
        };
        b.nft.remove().unwrap();
        check(b, "the program");
        b.install(&all);
        let mut keeper = crate::guard::ingress::Keeper::open("ipsec0").unwrap();
        assert_eq!(keeper.keep(&Default::default()).problem, None);
        check(b, "the table");
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    });
}
