//! What this kernel does: sockets, TUN, rtnetlink. Needs root.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{address, in_namespace, ip};
use ironswan_io::clock;
use ironswan_io::error::Error;
use ironswan_io::ingress::{Family, Filter, Ingress, List, Row};
use ironswan_io::known::KnownPaths;
use ironswan_io::mmsg::{Outgoing, Received, RecvSlots, stamp_arrivals};
use ironswan_io::poller::{Poller, Ready};
use ironswan_io::raw::RawSocket;
use ironswan_io::route::{
    Address, Destination, Netlink, PROTOCOL, Route, RouteKind, Rule, TABLE, UNREACHABLE_METRIC, Watch,
};
use ironswan_io::send::{Outlet, Sender};
use ironswan_io::tun::{READ_SIZE, Tun, TunConfig, VNET_HEADER};
use ironswan_io::udp::{UdpConfig, UdpSocket};
use ironswan_wire::selector::AddrRange;

fn v4(text: &str) -> IpAddr {
    text.parse::<Ipv4Addr>().unwrap().into()
}

/// Waits until `fd` is readable; fails after a second.
fn readable(fd: impl AsFd) {
    let poller = Poller::new().unwrap();
    poller.add(fd, 1).unwrap();
    let mut ready = Ready::with_capacity(1);
    poller.wait(&mut ready, Some(Duration::from_secs(1))).unwrap();
    assert_eq!(ready.tokens(), [1], "nothing arrived");
}

/// Everything that arrives until `datagrams` have.
fn receive(socket: &UdpSocket, datagrams: usize) -> (Vec<Received>, Vec<Vec<u8>>) {
    let (mut slots, mut buf) = (RecvSlots::new(8), vec![0; 8 * 65_536]);
    let (mut all, mut payloads): (Vec<Received>, Vec<Vec<u8>>) = (Vec::new(), Vec::new());
    while payloads.len() < datagrams {
        readable(socket);
        let mut got = Vec::new();
        slots.recv(socket.as_fd(), &mut buf, 65_536, 0, &mut got).unwrap();
        for r in got {
            assert!(!r.truncated);
            payloads.extend(buf[r.offset..r.offset + r.len].chunks(r.segment.max(1)).map(<[u8]>::to_vec));
            all.push(r);
        }
    }
    (all, payloads)
}

#[test]
fn a_segmented_send_arrives_as_the_same_datagrams_in_order() {
    in_namespace(|| {
        for ipv6 in [false, true] {
            let a = UdpSocket::bind(UdpConfig::esp(ipv6, 4500, 0)).unwrap();
            let b = UdpSocket::bind(UdpConfig::esp(ipv6, 4501, 0)).unwrap();
            assert!(a.max_segments() >= 64, "this kernel segments: {}", a.max_segments());
            let host: IpAddr = if ipv6 { Ipv6Addr::LOCALHOST.into() } else { Ipv4Addr::LOCALHOST.into() };
            let buf: Vec<u8> = (0..40_000u32).map(|i| (i / 7) as u8).collect();
            let whole = Outgoing {
                offset: 16,
                len: 39_000,
                segment: 1400,
                local: host,
                remote: SocketAddr::new(host, b.port()),
                tos: 0xb9,
                fragmentable: 0,
            };
            let single = Outgoing { offset: 0, len: 10, segment: 0, tos: 0, ..whole };
            let mut sender = Sender::new();
            sender.send(Outlet::Udp(&a), &buf, &[single, whole, single]);
            let stats = sender.stats();
            assert_eq!((stats.calls, stats.messages, stats.datagrams), (1, 3, 30), "{stats:?}");
            let (meta, payloads) = receive(&b, 30);
            let expected: Vec<Vec<u8>> = std::iter::once(buf[..10].to_vec())
                .chain(buf[16..39_016].chunks(1400).map(<[u8]>::to_vec))
                .chain(std::iter::once(buf[..10].to_vec()))
                .collect();
            assert_eq!(payloads, expected);
            assert!(meta.iter().all(|m| m.local == host && m.remote == SocketAddr::new(host, a.port())));
            assert!(
                meta.iter().any(|m| m.tos == 0xb9 && m.segment == 1400 && m.len > 1400),
                "merged: {meta:?}"
            );
            assert!(meta.iter().any(|m| m.tos == 0 && m.len == 10));
        }
    });
}

#[test]
#[allow(clippy::disallowed_methods, reason = "the kernel's clock is compared with it")]
fn the_kernel_says_when_a_datagram_came_where_it_is_asked() {
    in_namespace(|| {
        let [asked, other] = [(); 2].map(|()| UdpSocket::bind(UdpConfig::esp(false, 0, 0)).unwrap());
        stamp_arrivals(asked.as_fd()).unwrap();
        let sender = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        let today = || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap();
        let (mut slots, mut buf, mut got) = (RecvSlots::new(2), vec![0; 2 * 65_536], Vec::new());
        // The kernel does not begin at once.
        let begun = (0..500).any(|_| {
            sender.send_to(b"now?", ("127.0.0.1", asked.port())).unwrap();
            std::thread::sleep(Duration::from_millis(5));
            let read = today();
            slots.recv(asked.as_fd(), &mut buf, 65_536, 0, &mut got).unwrap();
            slots.arrived(0).unwrap() < read
        });
        assert!(begun, "no arrival was noted before it was read");
        let before = today();
        for b in [&asked, &other] {
            sender.send_to(b"now", ("127.0.0.1", b.port())).unwrap();
            readable(b);
        }
        let after = today();
        // The time of its arrival, not that of its reading.
        std::thread::sleep(Duration::from_millis(20));
        assert_eq!(slots.recv(asked.as_fd(), &mut buf, 65_536, 0, &mut got).unwrap(), 1);
        let at = slots.arrived(0).unwrap();
        assert!(before <= at && at <= after, "{before:?} {at:?} {after:?}");
        assert_eq!(slots.arrived(2), None);
        assert_eq!(slots.recv(other.as_fd(), &mut buf, 65_536, 0, &mut got).unwrap(), 1);
        assert_eq!(slots.arrived(0), None);
    });
}

#[test]
fn more_segments_than_the_kernel_takes_are_sent_in_several_goes() {
    in_namespace(|| {
        let a = UdpSocket::bind(UdpConfig::esp(false, 0, 0)).unwrap();
        let b = UdpSocket::bind(UdpConfig::esp(false, 0, 0)).unwrap();
        let buf: Vec<u8> = (0..60_000u32).map(|i| (i / 100) as u8).collect();
        let local = v4("127.0.0.1");
        let remote = SocketAddr::new(local, b.port());
        let m = Outgoing { offset: 0, len: 60_000, segment: 100, local, remote, tos: 0, fragmentable: 0 };
        let mut sender = Sender::new();
        sender.send(Outlet::Udp(&a), &buf, &[m]);
        assert_eq!(sender.stats().datagrams, 600, "{:?}", sender.stats());
        let (_, payloads) = receive(&b, 600);
        assert_eq!(payloads.concat(), buf);
    });
}

#[test]
fn a_datagram_wider_than_the_path_is_dropped_and_reported() {
    in_namespace(|| {
        ip("link set lo mtu 1400");
        address("2001:db8::1", 128, "lo");
        for local in [v4("127.0.0.1"), "2001:db8::1".parse().unwrap()] {
            let a = UdpSocket::bind(UdpConfig::esp(local.is_ipv6(), 0, 0)).unwrap();
            let b = UdpSocket::bind(UdpConfig::esp(local.is_ipv6(), 0, 0)).unwrap();
            let remote = SocketAddr::new(local, b.port());
            let buf: Vec<u8> = (0..6000u32).map(|i| (i / 3) as u8).collect();
            let mut sender = Sender::new();
            // Segments of 1,450 bytes cannot be; the last, short one goes.
            let wide =
                Outgoing { offset: 0, len: 3000, segment: 1450, local, remote, tos: 0, fragmentable: 0 };
            sender.send(Outlet::Udp(&a), &buf, &[wide]);
            let stats = sender.stats();
            assert_eq!((stats.dropped_narrow, stats.unsegmented, stats.datagrams), (2, 1, 1), "{stats:?}");
            assert_eq!(stats.fragmented + stats.dropped_error + stats.dropped_full, 0, "{stats:?}");
            assert_eq!(sender.take_narrow(), Some(vec![local]));
            assert_eq!(sender.take_narrow(), None);
            assert_eq!(receive(&b, 1).1.concat(), buf[2900..3000]);
            // The kernel is asked once about four of one length.
            let before = sender.stats().calls;
            let m = Outgoing { len: 6000, segment: 1450, ..wide };
            sender.send(Outlet::Udp(&a), &buf, &[m]);
            assert_eq!(sender.stats().dropped_narrow, 2 + 4, "{:?}", sender.stats());
            assert!(sender.stats().calls <= before + 3, "{:?}", sender.stats());
            assert_eq!(receive(&b, 1).1.concat(), buf[5800..]);
            // And the next one that fits is segmented again.
            sender.send(Outlet::Udp(&a), &buf, &[Outgoing { segment: 1000, ..wide }]);
            assert_eq!(sender.stats().unsegmented, 2);
            assert_eq!(receive(&b, 3).1.concat(), buf[..3000]);
        }
    });
}

#[test]
fn only_what_nobody_makes_smaller_leaves_in_fragments() {
    in_namespace(|| {
        ip("link set lo mtu 1400");
        address("2001:db8::1", 128, "lo");
        for local in [v4("127.0.0.1"), "2001:db8::1".parse().unwrap()] {
            let a = UdpSocket::bind(UdpConfig::esp(local.is_ipv6(), 0, 0)).unwrap();
            let b = UdpSocket::bind(UdpConfig::esp(local.is_ipv6(), 0, 0)).unwrap();
            let remote = SocketAddr::new(local, b.port());
            let buf: Vec<u8> = (0..6000u32).map(|i| (i / 3) as u8).collect();
            let mut sender = Sender::new();
            let m =
                Outgoing { offset: 0, len: 3000, segment: 1450, local, remote, tos: 0, fragmentable: 1450 };
            sender.send(Outlet::Udp(&a), &buf, &[m]);
            let stats = sender.stats();
            assert_eq!((stats.fragmented, stats.dropped_narrow, stats.datagrams), (2, 0, 3), "{stats:?}");
            assert_eq!(sender.take_narrow(), Some(vec![local]));
            assert_eq!(receive(&b, 3).1.concat(), buf[..3000]);
            // One byte more is one that somebody can make smaller.
            let m = Outgoing { len: 1451, segment: 0, ..m };
            sender.send(Outlet::Udp(&a), &buf, &[m]);
            assert_eq!((sender.stats().fragmented, sender.stats().dropped_narrow), (2, 1));
        }
    });
}

#[test]
fn what_is_known_of_a_path_counts_as_the_links_mtu_does() {
    in_namespace(|| {
        address("2001:db8::1", 128, "lo");
        let buf: Vec<u8> = (0..6000u32).map(|i| (i / 3) as u8).collect();
        for local in [v4("127.0.0.1"), "2001:db8::1".parse().unwrap()] {
            let ipv6 = local.is_ipv6();
            let a = UdpSocket::bind(UdpConfig::esp(ipv6, 0, 0)).unwrap();
            let b = UdpSocket::bind(UdpConfig::esp(ipv6, 0, 0)).unwrap();
            let raw = RawSocket::open(ipv6, 50, 0, 1 << 20).unwrap();
            let remote = SocketAddr::new(local, b.port());
            let known = Arc::new(KnownPaths::default());
            let header = if ipv6 { 48 } else { 28 };
            for learned in [false, true] {
                let mut sender = Sender::with_paths(known.clone());
                let m =
                    Outgoing { offset: 0, len: 3000, segment: 1450, local, remote, tos: 0, fragmentable: 0 };
                sender.send(Outlet::Udp(&a), &buf, &[m]);
                assert_eq!((sender.stats().datagrams, sender.take_narrow()), (3, None));
                assert_eq!(receive(&b, 3).1.concat(), buf[..3000]);
                let least = 1450 + header as u32 - 1;
                match learned {
                    true => {
                        assert!(known.learn_icmp_mtu(local, least, clock::now() + Duration::from_secs(60)))
                    }
                    false => known.set_route_mtu(local, Some(least)),
                }
                // Two datagrams are a byte too long, the third is not.
                sender.send(Outlet::Udp(&a), &buf, &[m]);
                let stats = sender.stats();
                assert_eq!((stats.dropped_narrow, stats.fragmented, stats.datagrams), (2, 0, 4), "{stats:?}");
                assert_eq!(sender.take_narrow(), Some(vec![local]));
                assert_eq!(receive(&b, 1).1.concat(), buf[2900..3000]);
                // One that fits exactly, one more, and one that may be fragmented; in order.
                let fits = Outgoing { len: 1449, segment: 0, ..m };
                let long = Outgoing { len: 1450, segment: 0, ..m };
                let list = [fits, long, Outgoing { fragmentable: 1450, ..long }, fits];
                sender.send(Outlet::Udp(&a), &buf, &list);
                let stats = sender.stats();
                assert_eq!((stats.dropped_narrow, stats.fragmented, stats.datagrams), (3, 1, 7), "{stats:?}");
                let lens: Vec<usize> = receive(&b, 3).1.iter().map(Vec::len).collect();
                assert_eq!(lens, [1449, 1450, 1449]);
                // Segmented, and all of them may be fragmented.
                sender.send(Outlet::Udp(&a), &buf, &[Outgoing { fragmentable: 1450, ..m }]);
                assert_eq!((sender.stats().fragmented, sender.stats().datagrams), (3, 10));
                assert_eq!(receive(&b, 3).1.concat(), buf[..3000]);
                // Without UDP there are 8 bytes more.
                sender.send(Outlet::Raw(&raw), &buf, &[Outgoing { len: 1457, segment: 0, ..m }]);
                sender.send(Outlet::Raw(&raw), &buf, &[Outgoing { len: 1458, segment: 0, ..m }]);
                assert_eq!((sender.stats().dropped_narrow, sender.stats().datagrams), (4, 11));
                known.set_route_mtu(local, None);
                known.forget_expired(clock::now() + Duration::from_secs(61));
                sender.send(Outlet::Udp(&a), &buf, &[long]);
                assert_eq!(sender.stats().datagrams, 12);
                assert_eq!(receive(&b, 1).1.concat().len(), 1450);
            }
        }
    });
}

#[test]
fn no_other_datagram_is_fragmented_while_an_ike_message_may_be() {
    in_namespace(|| {
        ip("link set lo mtu 1400");
        let a = UdpSocket::bind(UdpConfig::esp(false, 0, 0)).unwrap();
        let b = UdpSocket::bind(UdpConfig::esp(false, 0, 0)).unwrap();
        let local = v4("127.0.0.1");
        let remote = SocketAddr::new(local, b.port());
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|s| {
            s.spawn(|| {
                for _ in 0..5_000 {
                    let _ = a.send_fragmentable(local, remote, 0, &[1; 20]);
                }
                done.store(true, std::sync::atomic::Ordering::Relaxed);
            });
            let mut sender = Sender::new();
            let m = Outgoing { offset: 0, len: 1450, segment: 0, local, remote, tos: 0, fragmentable: 0 };
            let mut sent = 0;
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                sender.send(Outlet::Udp(&a), &[0; 1450], &[m]);
                sent += 1;
            }
            let stats = sender.stats();
            assert_eq!((stats.dropped_narrow, stats.datagrams), (sent, 0), "{stats:?}");
        });
    });
}

#[test]
fn what_cannot_be_sent_is_counted_and_the_rest_goes_on() {
    in_namespace(|| {
        let a = UdpSocket::bind(UdpConfig::esp(false, 0, 0)).unwrap();
        let b = UdpSocket::bind(UdpConfig::esp(false, 0, 0)).unwrap();
        let local = v4("127.0.0.1");
        let good = Outgoing {
            offset: 0,
            len: 100,
            segment: 0,
            local,
            remote: SocketAddr::new(local, b.port()),
            tos: 0,
            fragmentable: 0,
        };
        let no_route = Outgoing {
            len: 300,
            segment: 100,
            remote: "198.51.100.1:4500".parse().unwrap(),
            local: v4("0.0.0.0"),
            ..good
        };
        let not_ours = Outgoing { local: v4("203.0.113.9"), ..good };
        let mut sender = Sender::new();
        sender.send(Outlet::Udp(&a), &[7; 400], &[no_route, good, not_ours, good]);
        let stats = sender.stats();
        assert_eq!((stats.datagrams, stats.dropped_route, stats.dropped_source), (2, 3, 1), "{stats:?}");
        assert_eq!(receive(&b, 2).1.len(), 2);
        // Our address goes away under a segmented send: it is not sent from another one.
        address("192.0.2.9", 32, "lo");
        let from = Outgoing { local: v4("192.0.2.9"), len: 300, segment: 100, ..good };
        sender.send(Outlet::Udp(&a), &[7; 400], &[from]);
        assert_eq!(receive(&b, 3).0[0].remote.ip(), v4("192.0.2.9"));
        ip("addr del 192.0.2.9/32 dev lo");
        sender.send(Outlet::Udp(&a), &[7; 400], &[from, good]);
        assert_eq!(sender.stats().dropped_source, 1 + 3, "{:?}", sender.stats());
        assert_eq!(receive(&b, 1).0[0].remote.ip(), local);
        // The same over IPv6, and without UDP.
        address("2001:db8::9", 128, "lo");
        let raw = RawSocket::open(false, 50, 0, 1 << 20).unwrap();
        let a6 = UdpSocket::bind(UdpConfig::esp(true, 0, 0)).unwrap();
        let gone: IpAddr = "2001:db8::77".parse().unwrap();
        let to: IpAddr = "2001:db8::9".parse().unwrap();
        let from = Outgoing { local: gone, remote: SocketAddr::new(to, 4500), ..from };
        sender.send(Outlet::Udp(&a6), &[7; 400], &[from]);
        sender.send(Outlet::Raw(&raw), &[7; 400], &[not_ours]);
        assert_eq!(sender.stats().dropped_source, 4 + 3 + 1, "{:?}", sender.stats());
        assert_eq!(sender.stats().dropped_error, 0);
    });
}

#[test]
fn what_must_not_wait_for_buffer_space_does_not() {
    in_namespace(|| {
        ip("link add silent type veth peer name beyond");
        ip("link set silent up");
        ip("link set beyond up");
        address("192.0.2.1", 24, "silent");
        for config in [UdpConfig::esp(false, 0, 0), UdpConfig::ike(false, 0, 0)] {
            let a = UdpSocket::bind(UdpConfig { buffer: 4096, ..config }).unwrap();
            // What waits for a neighbour that does not answer stays in the buffer.
            let remote: SocketAddr = "192.0.2.2:4500".parse().unwrap();
            let began = ironswan_io::clock::now();
            let full = (0..200).filter(|_| {
                let sent = a.send_fragmentable_now(v4("0.0.0.0"), remote, 0, &[5; 1000]);
                matches!(sent, Err(e) if e.kind() == std::io::ErrorKind::WouldBlock)
            });
            let full = full.count();
            let took = began.elapsed();
            println!("{full} of 200 found no room, in {took:?}");
            assert!(full > 100, "{full}");
            // With the wait of 20 ms for each this was 2 s at least.
            assert!(took < Duration::from_secs(1), "{took:?}");
        }
    });
}

#[test]
fn a_port_in_use_is_refused_by_name() {
    in_namespace(|| {
        for ipv6 in [false, true] {
            let _first = UdpSocket::bind(UdpConfig::ike(ipv6, 500, 0)).unwrap();
            match UdpSocket::bind(UdpConfig::ike(ipv6, 500, 0)) {
                Err(Error::PortInUse { port: 500, ipv6: family }) => assert_eq!(family, ipv6),
                other => panic!("{other:?}"),
            }
        }
    });
}

#[test]
fn an_ike_message_may_be_fragmented_on_a_socket_that_forbids_it() {
    in_namespace(|| {
        ip("link set lo mtu 1400");
        let a = UdpSocket::bind(UdpConfig::esp(false, 0, 0)).unwrap();
        let b = UdpSocket::bind(UdpConfig::esp(false, 0, 0)).unwrap();
        let remote = SocketAddr::new(v4("127.0.0.1"), b.port());
        a.send_fragmentable(v4("0.0.0.0"), remote, 0, &[5; 4000]).unwrap();
        assert_eq!(receive(&b, 1).1, [vec![5; 4000]]);
        // Fragmentation is forbidden again afterwards.
        let mut sender = Sender::new();
        let m = Outgoing {
            offset: 0,
            len: 4000,
            segment: 0,
            local: v4("127.0.0.1"),
            remote,
            tos: 0,
            fragmentable: 0,
        };
        sender.send(Outlet::Udp(&a), &[5; 4000], &[m]);
        assert!(sender.take_narrow().is_some());
    });
}

#[test]
fn raw_esp_arrives_without_its_ip_header() {
    in_namespace(|| {
        address("2001:db8::1", 128, "lo");
        for (ipv6, host) in [(false, v4("127.0.0.1")), (true, "2001:db8::1".parse().unwrap())] {
            let s = RawSocket::open(ipv6, 50, 0, 1 << 20).unwrap();
            let payload: Vec<u8> = (0..200).collect();
            let m = Outgoing {
                offset: 0,
                len: 200,
                segment: 100,
                local: host,
                remote: SocketAddr::new(host, 4500),
                tos: 0x2a,
                fragmentable: 0,
            };
            let mut sender = Sender::new();
            sender.send(Outlet::Raw(&s), &payload, &[m]);
            assert_eq!(sender.stats().datagrams, 2, "{:?}", sender.stats());
            let (mut slots, mut buf) = (RecvSlots::new(8), vec![0; 8 * 2048]);
            let mut got = Vec::new();
            while got.len() < 2 {
                readable(&s);
                slots.recv(s.as_fd(), &mut buf, 2048, 0, &mut got).unwrap();
            }
            for (r, expected) in got.iter_mut().zip(payload.chunks(100)) {
                assert!(s.strip(&buf, r));
                assert_eq!(&buf[r.offset..r.offset + r.len], expected);
                assert_eq!((r.local, r.remote.ip(), r.tos), (host, host, 0x2a));
            }
        }
    });
}

#[test]
fn a_tun_device_carries_packets_both_ways() {
    in_namespace(|| {
        let tun = Tun::create(&TunConfig {
            name: "ipsec0".into(),
            mtu: 1300,
            queue_len: 777,
            ..TunConfig::default()
        })
        .unwrap();
        assert!(tun.offloads().checksum && tun.offloads().tso, "{:?}", tun.offloads());
        let mut netlink = Netlink::open().unwrap();
        let link = netlink.link("ipsec0").unwrap();
        assert_eq!((link.index, link.mtu, link.up, link.queue_len), (tun.index(), 1300, true, 777));
        assert!(netlink.addresses().unwrap().iter().all(|a| a.link != link.index), "no address but ours");
        netlink.add_address(Address::new(link.index, v4("10.9.0.1"), 24)).unwrap();
        // Out: a datagram of ours, its checksum left to us.
        let s = std::net::UdpSocket::bind("10.9.0.1:1000").unwrap();
        s.send_to(b"hello", "10.9.0.2:2000").unwrap();
        let mut buf = vec![0; READ_SIZE];
        let n = loop {
            readable(&tun);
            let n = tun.read(&mut buf).unwrap();
            if buf[VNET_HEADER] >> 4 == 4 {
                break n;
            }
        };
        let mut packet = buf[VNET_HEADER..n].to_vec();
        assert_eq!((packet[9], &packet[28..]), (17, &b"hello"[..]));
        // In: the same datagram turned round, without a UDP checksum.
        packet[12..20].rotate_left(4);
        packet[20..24].rotate_left(2);
        packet[26..28].fill(0);
        let header = [0u8; VNET_HEADER];
        tun.write(&[std::io::IoSlice::new(&header), std::io::IoSlice::new(&packet)]).unwrap();
        s.set_read_timeout(Some(Duration::from_secs(1))).unwrap();
        let mut reply = [0; 16];
        let (n, from) = s.recv_from(&mut reply).unwrap();
        assert_eq!((&reply[..n], from), (&b"hello"[..], "10.9.0.2:2000".parse().unwrap()));
        // A read into too little memory takes the packet's beginning, fills the buffer, and leaves
        // the device working.
        s.send_to(&[1; 500], "10.9.0.2:2000").unwrap();
        s.send_to(b"next", "10.9.0.2:2000").unwrap();
        readable(&tun);
        assert_eq!(tun.read(&mut buf[..100]).unwrap(), 100);
        let n = tun.read(&mut buf).unwrap();
        assert_eq!(&buf[n - 4..n], b"next");
        assert!(matches!(tun.read(&mut buf), Err(e) if e.kind() == std::io::ErrorKind::WouldBlock));
        // The name is taken while the device lives, and free when it is gone.
        assert!(matches!(Tun::create(&TunConfig::default()), Err(Error::DeviceBusy { .. })));
        drop(tun);
        // A program that another test is starting has a copy of it until it runs.
        let free = (0..500).any(|_| match Tun::create(&TunConfig::default()) {
            Err(Error::DeviceBusy { .. }) => {
                std::thread::sleep(Duration::from_millis(10));
                false
            }
            made => made.is_ok(),
        });
        assert!(free, "the name stays taken");
    });
}

#[test]
fn names_that_are_no_tun_device_are_refused() {
    in_namespace(|| {
        let create = |name: &str| Tun::create(&TunConfig { name: name.into(), ..TunConfig::default() });
        for name in ["", "a/b", "sixteen-letters-", "a b", "..", "x%d"] {
            assert!(matches!(create(name), Err(Error::DeviceName { .. })), "{name:?}");
        }
        assert!(matches!(create("lo"), Err(Error::DeviceBusy { .. })), "{:?}", create("lo"));
        let kept = create("lo").unwrap_err().to_string();
        assert!(kept.contains("ip link del lo"), "{kept}");
    });
}

#[test]
fn routes_and_rules_are_made_listed_and_removed() {
    in_namespace(|| {
        address("10.1.0.1", 24, "lo");
        address("fd01::1", 128, "lo");
        let tun = Tun::create(&TunConfig::default()).unwrap();
        let mut netlink = Netlink::open().unwrap();
        let cases: [(IpAddr, u8, IpAddr); 2] = [
            (v4("10.2.0.0"), 24, v4("10.1.0.1")),
            ("fd02::".parse().unwrap(), 64, "fd01::1".parse().unwrap()),
        ];
        for (net, prefix_len, source) in cases {
            let route = Route {
                table: TABLE,
                destination: Destination { ip: net, prefix_len },
                kind: RouteKind::Device(tun.index()),
                metric: 100,
                source: Some(source),
                mtu: 1322,
                protocol: PROTOCOL,
            };
            let below = Route {
                kind: RouteKind::Unreachable,
                metric: UNREACHABLE_METRIC,
                source: None,
                mtu: 0,
                ..route.clone()
            };
            netlink.set_route(&route).unwrap();
            netlink.set_route(&below).unwrap();
            // Again, with another MTU: replaced, not doubled.
            let route = Route { mtu: 1300, ..route };
            netlink.set_route(&route).unwrap();
            let listed: Vec<_> = netlink
                .routes(TABLE)
                .unwrap()
                .into_iter()
                .filter(|r| r.destination == route.destination)
                .collect();
            assert_eq!(listed, [route.clone(), below.clone()]);

            let rule = Rule::fallback(net.is_ipv6(), 0x220, false);
            netlink.add_rule(&rule).unwrap();
            netlink.add_rule(&rule).unwrap();
            assert_eq!(netlink.rules().unwrap().iter().filter(|r| **r == rule).count(), 1);
            let to = match net {
                IpAddr::V4(_) => v4("10.2.0.7"),
                IpAddr::V6(_) => "fd02::7".parse().unwrap(),
            };
            let hop = netlink.lookup(to, None, 0).unwrap().expect("a route");
            assert_eq!((hop.link, hop.source, hop.mtu, hop.local), (tun.index(), Some(source), 1300, false));
            // What carries the mark does not see the table, and there is no other route.
            assert_eq!(netlink.lookup(to, None, 0x220).unwrap(), None);
            // Without the device's route the unreachable one holds.
            netlink.delete_route(&route).unwrap();
            assert_eq!(netlink.lookup(to, None, 0).unwrap(), None);
            netlink.delete_route(&below).unwrap();
            netlink.delete_route(&below).unwrap();
            assert_eq!(netlink.delete_rule(&rule).unwrap(), 1);
            assert_eq!(netlink.delete_rule(&rule).unwrap(), 0);
            assert!(!netlink.rules().unwrap().contains(&rule));
        }
        assert_eq!(netlink.routes(TABLE).unwrap(), []);
    });
}

#[test]
fn a_route_with_a_source_that_is_not_ours_is_refused_with_its_text() {
    in_namespace(|| {
        let mut netlink = Netlink::open().unwrap();
        let route = Route {
            table: TABLE,
            destination: Destination { ip: v4("10.2.0.0"), prefix_len: 24 },
            kind: RouteKind::Device(1),
            metric: 0,
            source: Some(v4("203.0.113.9")),
            mtu: 0,
            protocol: PROTOCOL,
        };
        let text = netlink.set_route(&route).unwrap_err().to_string();
        assert!(text.contains("10.2.0.0/24") && text.contains("203.0.113.9"), "{text}");
    });
}

#[test]
fn addresses_come_and_go_and_are_noticed() {
    in_namespace(|| {
        let watch = Watch::open().unwrap();
        let mut netlink = Netlink::open().unwrap();
        assert!(watch.take().is_empty());
        let address = Address::new(1, v4("10.77.0.1"), 32);
        netlink.add_address(address).unwrap();
        netlink.add_address(address).unwrap();
        assert!(watch.wait(Duration::from_secs(1)).addresses);
        assert!(netlink.addresses().unwrap().contains(&address));
        let hop = netlink.lookup(address.ip, None, 0).unwrap().unwrap();
        assert!(hop.local);
        netlink.delete_address(address).unwrap();
        netlink.delete_address(address).unwrap();
        assert!(watch.wait(Duration::from_secs(1)).addresses);
        assert!(!netlink.addresses().unwrap().contains(&address));
        assert!(matches!(netlink.link("nothere0"), Err(Error::NoDevice { .. })));
        ip("rule add fwmark 7 lookup 99");
        assert!(watch.wait(Duration::from_secs(1)).rules);
    });
}

#[test]
fn what_one_socket_changes_is_not_told_and_what_others_change_is() {
    in_namespace(|| {
        let (mut ours, mut other) = (Netlink::open().unwrap(), Netlink::open().unwrap());
        assert_ne!(ours.port().unwrap(), other.port().unwrap());
        let watch = Watch::open().unwrap().ignore_own_routing(ours.port().unwrap());
        let route = Route {
            table: TABLE,
            destination: Destination { ip: v4("10.2.0.0"), prefix_len: 24 },
            kind: RouteKind::Unreachable,
            metric: UNREACHABLE_METRIC,
            source: None,
            mtu: 0,
            protocol: PROTOCOL,
        };
        let rule = Rule::fallback(false, 0x220, false);
        ours.set_route(&route).unwrap();
        ours.add_rule(&rule).unwrap();
        assert!(watch.wait(Duration::from_millis(200)).is_empty());
        other.delete_route(&route).unwrap();
        other.delete_rule(&rule).unwrap();
        let change = watch.wait(Duration::from_secs(1));
        assert!(change.table && (change.rules || watch.wait(Duration::from_secs(1)).rules), "{change:?}");
        // Addresses are told whoever changes them.
        ours.add_address(Address::new(1, v4("10.77.0.1"), 32)).unwrap();
        assert!(watch.wait(Duration::from_secs(1)).addresses);
    });
}

#[test]
fn an_interface_says_of_what_it_is_part() {
    in_namespace(|| {
        ip("link add br0 type bridge");
        ip("link add v0 type veth peer name v1");
        ip("link set v0 master br0");
        let links = Netlink::open().unwrap().links().unwrap();
        let link = |name| links.iter().find(|l| l.name == name).unwrap();
        let (bridge, part, alone) = (link("br0"), link("v0"), link("v1"));
        assert_eq!((part.controller, part.part_of.as_deref()), (Some(bridge.index), Some("bridge")));
        assert_eq!((alone.controller, &alone.part_of), (None, &None));
    });
}

#[test]
fn what_holds_filters_goes_with_ours_when_it_was_made_for_it() {
    let run = |args: &str| {
        let done = std::process::Command::new("tc").args(args.split(' ')).output().unwrap();
        assert!(done.status.success(), "tc {args}");
        String::from_utf8_lossy(&done.stdout).into_owned()
    };
    let row = Row { drop: true, ..Row::all(false) };
    let list = List { ports: vec![row], ..List::default() };
    let family = Family { intervals: vec![(AddrRange::any(false), 0)], lists: vec![list] };
    let filter = |port| {
        let families = [family.clone(), Family::default()];
        Arc::new(Filter { families, ports: [port; 2], ..Filter::default() })
    };
    let lo: &[(u32, &str)] = &[(1, "lo")];
    let stand = |port: u16| {
        let mut ingress = Ingress::open().unwrap();
        ingress.set_filter(&filter(port), &BTreeSet::new(), lo).unwrap();
        assert_eq!(ingress.reconcile(lo, &[]).set, ["lo"]);
    };
    // As another process takes it away.
    let remove = || assert_eq!(Ingress::open().unwrap().reconcile(&[], lo).removed, ["lo"]);
    let holds = || run("qdisc show dev lo").contains("clsact");
    in_namespace(|| {
        stand(1);
        // Another process sets another one in its place.
        stand(2);
        assert!(run("filter show dev lo ingress").contains("ironswan:"));
        remove();
        assert!(!holds(), "made for it");

        run("qdisc add dev lo clsact");
        stand(1);
        stand(2);
        remove();
        assert!(holds(), "somebody else's");
        run("qdisc del dev lo clsact");

        stand(1);
        run("filter add dev lo ingress pref 7 protocol ip u32 match u32 0 0 flowid 1:1");
        remove();
        assert!(run("filter show dev lo ingress").contains("pref 7"));
        run("qdisc del dev lo clsact");

        // Somebody takes the filter alone away: what held it is still there for it.
        let mut ingress = Ingress::open().unwrap();
        ingress.set_filter(&filter(1), &BTreeSet::new(), lo).unwrap();
        assert_eq!(ingress.reconcile(lo, &[]).set, ["lo"]);
        run("filter del dev lo ingress pref 2");
        assert_eq!(ingress.reconcile(lo, &[]).lost, ["lo"]);
        remove();
        assert!(!holds(), "made for the one that was lost");
        assert_eq!(ingress.reconcile(lo, &[]).lost, ["lo"]);
        run("filter del dev lo ingress pref 2");
        assert!(ingress.reconcile(&[], lo).removed.is_empty());
        assert!(!holds(), "made for one that is not wanted any more");
        // What somebody else put in its place is his.
        assert_eq!(ingress.reconcile(lo, &[]).set, ["lo"]);
        run("qdisc del dev lo clsact");
        run("qdisc add dev lo ingress");
        assert_eq!(ingress.reconcile(lo, &[]).lost, ["lo"]);
        remove();
        assert!(run("qdisc show dev lo").contains("ingress"));
    });
}

#[test]
fn of_traffic_control_only_our_filters_are_told() {
    let tc = |args: &str| {
        let done = std::process::Command::new("tc").args(args.split(' ')).status().unwrap();
        assert!(done.success(), "tc {args}");
    };
    let wait = |watch: &Watch| watch.wait(Duration::from_secs(5)).filters;
    let quiet = |watch: &Watch| !watch.wait(Duration::from_millis(100)).filters;
    in_namespace(|| {
        let mut ingress = Ingress::open().unwrap();
        let watch = Watch::open().unwrap().ignore_own_filters(ingress.port().unwrap());
        let others = Watch::open().unwrap();
        tc("qdisc add dev lo root pfifo limit 10");
        tc("qdisc change dev lo root pfifo limit 20");
        tc("qdisc del dev lo root");
        tc("qdisc add dev lo clsact");
        tc("filter add dev lo ingress pref 7 protocol ip u32 match u32 0 0 flowid 1:1");
        assert!(quiet(&watch));
        let row = Row { drop: true, ..Row::all(false) };
        let list = List { ports: vec![row], ..List::default() };
        let v4 = Family { intervals: vec![(AddrRange::any(false), 0)], lists: vec![list] };
        let filter = Filter { families: [v4, Family::default()], ..Filter::default() };
        ingress.set_filter(&Arc::new(filter), &BTreeSet::new(), &[]).unwrap();
        assert_eq!(ingress.reconcile(&[(1, "lo")], &[]).set, ["lo"]);
        assert!(quiet(&watch), "our own");
        assert!(wait(&others), "for whoever did not ask to be spared");
        for what in
            ["filter del dev lo ingress pref 2", "filter del dev lo ingress", "qdisc del dev lo clsact"]
        {
            tc(what);
            assert!(wait(&watch), "{what}");
            assert_eq!(ingress.reconcile(&[(1, "lo")], &[]).lost, ["lo"], "{what}");
            assert!(quiet(&watch));
        }
        tc("filter add dev lo egress pref 2 protocol ip u32 match u32 0 0 flowid 1:1");
        tc("filter del dev lo egress pref 2");
        assert!(quiet(&watch), "what leaves is nothing of ours");
        // A queueing discipline that takes any number of its handle for its ingress.
        tc("qdisc del dev lo clsact");
        tc("qdisc add dev lo ingress");
        assert!(wait(&watch));
        assert_eq!(ingress.reconcile(&[(1, "lo")], &[]).lost, ["lo"]);
        tc("filter del dev lo parent ffff:");
        assert!(wait(&watch), "all filters of the ingress");
        assert_eq!(ingress.reconcile(&[(1, "lo")], &[]).lost, ["lo"]);
    });
}

#[test]
fn a_list_is_whole_while_the_tables_change() {
    in_namespace(|| {
        let mut netlink = Netlink::open().unwrap();
        let route = |i: u8, j: u8| Route {
            table: TABLE,
            destination: Destination { ip: IpAddr::from([10, i, j, 0]), prefix_len: 24 },
            kind: RouteKind::Unreachable,
            metric: UNREACHABLE_METRIC,
            source: None,
            mtu: 0,
            protocol: PROTOCOL,
        };
        for i in 0..4 {
            (0..=255).for_each(|j| netlink.set_route(&route(i, j)).unwrap());
        }
        let mut other = Netlink::open().unwrap();
        std::thread::scope(|s| {
            s.spawn(move || {
                for _ in 0..300 {
                    other.set_route(&route(9, 9)).unwrap();
                    other.delete_route(&route(9, 9)).unwrap();
                }
            });
            for _ in 0..20 {
                let all = netlink.routes(TABLE).unwrap();
                let ours = all.iter().filter(|r| **r != route(9, 9)).count();
                assert_eq!(ours, 4 * 256);
            }
        });
    });
}
