//! What this kernel does with packets that have their IP header already, and with AH that arrives.
//! Needs root.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{address, in_namespace, ip};
use ironswan_io::clock;
use ironswan_io::known::KnownPaths;
use ironswan_io::mmsg::{Outgoing, Received, RecvSlots};
use ironswan_io::poller::{Poller, Ready};
use ironswan_io::raw::{HEAD, RawSocket, WITH_HEADER};
use ironswan_io::send::{Outlet, Sender};

const AH: u8 = 51;
const BUFFER: u32 = 1 << 20;

/// An IP packet of protocol 51 from `from` to `to`.
fn packet(from: IpAddr, to: IpAddr, dont_fragment: bool, payload: usize) -> Vec<u8> {
    let mut p = match (from, to) {
        (IpAddr::V4(from), IpAddr::V4(to)) => {
            let flags = if dont_fragment { 0x40 } else { 0 };
            let mut p = vec![0x45, 0x2e, 0, 0, 0x12, 0x34, flags, 0, 61, AH, 0, 0];
            p.extend([from.octets(), to.octets()].concat());
            p[2..4].copy_from_slice(&(20 + payload as u16).to_be_bytes());
            p
        }
        (IpAddr::V6(from), IpAddr::V6(to)) => {
            let mut p = vec![0x62, 0xe0, 0, 0, 0, 0, AH, 61];
            p.extend([from.octets(), to.octets()].concat());
            p[4..6].copy_from_slice(&(payload as u16).to_be_bytes());
            p
        }
        _ => panic!("one family"),
    };
    p.extend((0..payload).map(|i| (i / 7) as u8));
    p
}

fn outgoing(packet: &[u8], local: IpAddr, remote: IpAddr, fragmentable: usize) -> Outgoing {
    let remote = SocketAddr::new(remote, 4500);
    Outgoing { offset: 0, len: packet.len(), segment: packet.len(), local, remote, tos: 0x2e, fragmentable }
}

/// What arrives within a second: one packet from its IP header on, or nothing.
fn receive(socket: &RawSocket) -> Option<(Vec<u8>, Received)> {
    let poller = Poller::new().unwrap();
    poller.add(socket, 1).unwrap();
    let mut ready = Ready::with_capacity(1);
    poller.wait(&mut ready, Some(Duration::from_secs(1))).unwrap();
    let (mut slots, mut buf, mut got) = (RecvSlots::new(1), vec![0; 65_600], Vec::new());
    slots.recv(socket.as_fd(), &mut buf, 65_600, HEAD, &mut got).ok()?;
    let mut r = got[0];
    assert!(!r.truncated && socket.whole(&mut buf, &mut r));
    Some((buf[r.offset..r.offset + r.len].to_vec(), r))
}

fn hosts() -> [IpAddr; 2] {
    [Ipv4Addr::LOCALHOST.into(), "2001:db8::1".parse().unwrap()]
}

/// What AH covers of a header, as far as the kernel could have changed it: all but TTL and
/// checksum, flow label and hop limit; DF too may be lost.
fn covered(packet: &[u8]) -> Vec<u8> {
    let mut p = packet.to_vec();
    let mutable: &[usize] = if p[0] >> 4 == 4 { &[6, 8, 10, 11] } else { &[7] };
    mutable.iter().for_each(|at| p[*at] = 0);
    p
}

#[test]
fn a_packet_with_its_header_arrives_with_the_same_one() {
    in_namespace(|| {
        address("2001:db8::1", 128, "lo");
        for host in hosts() {
            let v6 = host.is_ipv6();
            let out = RawSocket::open(v6, WITH_HEADER, 0, BUFFER).unwrap();
            let ah = RawSocket::open(v6, AH, 0, BUFFER).unwrap();
            assert_eq!((out.protocol(), ah.protocol()), (255, 51));
            let mut sender = Sender::new();
            for (len, df) in [(24, true), (1200, false), (60_000, true)] {
                let p = packet(host, host, df, len);
                sender.send(Outlet::Ip(&out), &p, &[outgoing(&p, host, host, 0)]);
                let (got, r) = receive(&ah).expect("it arrives");
                assert_eq!(covered(&got), covered(&p));
                assert_eq!((r.local, r.remote.ip(), r.tos, r.segment), (host, host, 0x2e, r.len));
            }
            let stats = sender.stats();
            assert_eq!((stats.datagrams, stats.fragmented, stats.dropped_error), (3, 0, 0), "{stats:?}");
        }
    });
}

#[test]
fn what_may_be_fragmented_is_cut_and_arrives_whole_and_the_rest_is_reported() {
    in_namespace(|| {
        ip("link set lo mtu 1400");
        address("2001:db8::1", 128, "lo");
        for host in hosts() {
            let v6 = host.is_ipv6();
            let out = RawSocket::open(v6, WITH_HEADER, 0, BUFFER).unwrap();
            let ah = RawSocket::open(v6, AH, 0, BUFFER).unwrap();
            let mut sender = Sender::new();
            for (n, len) in [2000, 1400 - 20 - 7, 60_000].into_iter().enumerate() {
                let p = packet(host, host, false, len);
                let before = sender.stats().fragmented;
                sender.send(Outlet::Ip(&out), &p, &[outgoing(&p, host, host, p.len())]);
                let (got, _) = receive(&ah).expect("it is put together");
                assert_eq!(covered(&got), covered(&p));
                assert_eq!(sender.stats().datagrams, n as u64 + 1);
                assert_eq!(sender.stats().fragmented - before, u64::from(p.len() > 1400));
            }
            assert_eq!(sender.take_narrow(), None);
            // One byte more than may be, and what must not be at all, between others.
            let (long, short) = (packet(host, host, true, 1500), packet(host, host, true, 100));
            let buf = [&long[..], &short[..]].concat();
            let a = outgoing(&long, host, host, long.len() - 1);
            let b = Outgoing { offset: long.len(), ..outgoing(&short, host, host, 0) };
            sender.send(Outlet::Ip(&out), &buf, &[b, a, b, Outgoing { fragmentable: 0, ..a }]);
            assert_eq!(sender.stats().dropped_narrow, 2, "{:?}", sender.stats());
            assert_eq!(sender.take_narrow(), Some(vec![host]));
            assert_eq!([receive(&ah).unwrap().0.len(), receive(&ah).unwrap().0.len()], [short.len(); 2]);
        }
    });
}

#[test]
fn the_path_mtu_of_the_route_counts_and_not_the_devices() {
    in_namespace(|| {
        ip("link add d0 type veth peer name d1");
        ip("link set d1 up");
        ip("link set d0 up");
        address("192.0.2.1", 24, "d0");
        address("2001:db8::1", 64, "d0");
        ip("route add 198.51.100.0/24 dev d0 mtu 1300");
        ip("route add 2001:db8:1::/64 dev d0 mtu 1300");
        for (local, remote) in [("192.0.2.1", "198.51.100.1"), ("2001:db8::1", "2001:db8:1::1")] {
            let (local, remote): (IpAddr, IpAddr) = (local.parse().unwrap(), remote.parse().unwrap());
            let out = RawSocket::open(local.is_ipv6(), WITH_HEADER, 0, BUFFER).unwrap();
            let header = if local.is_ipv6() { 40 } else { 20 };
            let mut sender = Sender::new();
            let (fits, long) =
                (packet(local, remote, true, 1300 - header), packet(local, remote, true, 1301 - header));
            sender.send(Outlet::Ip(&out), &fits, &[outgoing(&fits, local, remote, 0)]);
            sender.send(Outlet::Ip(&out), &long, &[outgoing(&long, local, remote, 0)]);
            let stats = sender.stats();
            assert_eq!((stats.datagrams, stats.dropped_narrow), (1, 1), "{stats:?}");
            assert_eq!(sender.take_narrow(), Some(vec![remote]));
            sender.send(Outlet::Ip(&out), &long, &[outgoing(&long, local, remote, long.len())]);
            assert_eq!(sender.stats().fragmented, 1, "{:?}", sender.stats());
            // And what an ICMP error said of the path behind.
            let known = Arc::new(KnownPaths::default());
            known.learn_icmp_mtu(remote, 1299, clock::now() + Duration::from_secs(60));
            let mut sender = Sender::with_paths(known);
            sender.send(Outlet::Ip(&out), &fits, &[outgoing(&fits, local, remote, 0)]);
            assert_eq!((sender.stats().dropped_narrow, sender.take_narrow()), (1, Some(vec![remote])));
            sender.send(Outlet::Ip(&out), &fits, &[outgoing(&fits, local, remote, fits.len())]);
            assert_eq!(sender.stats().fragmented, 1, "{:?}", sender.stats());
        }
    });
}

#[test]
fn nothing_leaves_from_an_address_that_is_not_ours() {
    in_namespace(|| {
        address("2001:db8::1", 128, "lo");
        for (host, foreign) in hosts().into_iter().zip(["203.0.113.9", "2001:db8::77"]) {
            let foreign: IpAddr = foreign.parse().unwrap();
            let out = RawSocket::open(host.is_ipv6(), WITH_HEADER, 0, BUFFER).unwrap();
            let mut sender = Sender::new();
            let p = packet(foreign, host, true, 100);
            for fragmentable in [0, 1000] {
                sender.send(Outlet::Ip(&out), &p, &[outgoing(&p, foreign, host, fragmentable)]);
            }
            assert_eq!(sender.stats().dropped_source, 2, "{:?}", sender.stats());
        }
    });
}
