//! UDP and raw sockets of this kernel: batches, segmentation, path MTUs, fragments. Needs root.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use crate::common::{address, in_namespace, ip, readable, receive, v4};
use ironswan_io::clock;
use ironswan_io::error::Error;
use ironswan_io::known::KnownPaths;
use ironswan_io::mmsg::{Outgoing, RecvSlots, stamp_arrivals};
use ironswan_io::raw::RawSocket;
use ironswan_io::send::{Outlet, Sender};
use ironswan_io::udp::{UdpConfig, UdpSocket};

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
fn one_datagram_is_never_fragmented_whatever_the_socket_does() {
    in_namespace(|| {
        ip("link set lo mtu 1400");
        address("2001:db8::1", 128, "lo");
        for config in [UdpConfig::ike, UdpConfig::esp] {
            for ipv6 in [false, true] {
                let host: IpAddr = if ipv6 { "2001:db8::1".parse().unwrap() } else { v4("127.0.0.1") };
                let a = UdpSocket::bind(config(ipv6, 0, 0)).unwrap();
                let b = UdpSocket::bind(UdpConfig::ike(ipv6, 0, 0)).unwrap();
                let remote = SocketAddr::new(host, b.port());
                let headers = if ipv6 { 48 } else { 28 };
                let before = fragments(ipv6);
                // As long as the link allows: whole.
                a.send_unfragmented_now(host, remote, 0, &vec![1; 1_400 - headers]).unwrap();
                assert_eq!(receive(&b, 1).1, [vec![1; 1_400 - headers]]);
                let refused =
                    a.send_unfragmented_now(host, remote, 0, &vec![2; 1_401 - headers]).unwrap_err();
                assert_eq!(refused.raw_os_error(), Some(libc::EMSGSIZE), "ipv6: {ipv6}");
                assert_eq!(fragments(ipv6), before);
                // Others go on as before, and so does this socket.
                a.send_fragmentable_now(host, remote, 0, &[3; 3_000]).unwrap();
                assert_eq!(receive(&b, 1).1, [[3; 3_000]]);
                assert_eq!(fragments(ipv6), before + 3);
            }
        }
    });
}

/// The option of a socket is changed for one datagram: another thread's keeps what it should have.
#[test]
fn a_datagram_with_df_forbids_fragments_to_no_other() {
    in_namespace(|| {
        ip("link set lo mtu 1400");
        let a = UdpSocket::bind(UdpConfig::ike(false, 0, 0)).unwrap();
        let b = UdpSocket::bind(UdpConfig::ike(false, 0, 0)).unwrap();
        let (local, remote) = (v4("127.0.0.1"), SocketAddr::new(v4("127.0.0.1"), b.port()));
        std::thread::scope(|s| {
            s.spawn(|| (0..3_000).for_each(|_| a.send_unfragmented_now(local, remote, 0, &[1; 20]).unwrap()));
            (0..3_000).for_each(|_| a.send_fragmentable_now(local, remote, 0, &[2; 1_500]).unwrap());
        });
    });
}

/// Fragments that this namespace has made.
fn fragments(ipv6: bool) -> u64 {
    let (file, name) = match ipv6 {
        true => ("/proc/thread-self/net/snmp6", "Ip6FragCreates"),
        false => ("/proc/thread-self/net/snmp", "FragCreates"),
    };
    let text = std::fs::read_to_string(file).unwrap();
    if ipv6 {
        let line = text.lines().find(|line| line.starts_with(name)).unwrap();
        return line.split_whitespace().nth(1).unwrap().parse().unwrap();
    }
    let mut ip = text.lines().filter(|line| line.starts_with("Ip:"));
    let (names, values) = (ip.next().unwrap(), ip.next().unwrap());
    let at = names.split_whitespace().position(|n| n == name).unwrap();
    values.split_whitespace().nth(at).unwrap().parse().unwrap()
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
