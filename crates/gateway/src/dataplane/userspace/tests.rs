//! Two data planes at a time, in network namespaces. Needs root.

mod harness;
mod kinds;

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use ironswan_crypto::rng::Seeded;
use ironswan_ike::event::Cut;
use ironswan_io::route::Netlink;
use ironswan_ipsec::{Config, DropReason, Engine};
use ironswan_wire::iana::{EncrId, ProtocolId};
use ironswan_wire::proposal::EspSuite;
use ironswan_wire::sadb::{Direction, Mode, ReqId, Up};

use super::*;
use crate::dataplane::IkeDatagram;
use harness::*;
use std::net::SocketAddr;

#[test]
fn datagrams_and_streams_cross_over_every_kind_of_outer_packet() {
    for outer in [Outer::V4Encap, Outer::V4Raw, Outer::V6Encap, Outer::V6Raw] {
        two_sides(|a, b| {
            for side in [&a, &b] {
                for command in [sa(side.n, 1, outer), sa(side.n, 2, outer), policy(side.n)] {
                    side.engine.apply(Duration::ZERO, &command).unwrap();
                }
            }
            let mut buf = [0; 2000];
            // Datagrams; one that is fragmented inside the tunnel too, since it is larger than its
            // MTU.
            for len in [0, 1, 1300, 1900] {
                let sent: Vec<u8> = (0..len).map(|i| i as u8).collect();
                a.udp.send_to(&sent, "10.2.0.1:7000").unwrap();
                let (n, from) = receive(&b.udp, &mut buf);
                assert_eq!((&buf[..n], from), (&sent[..], "10.1.0.1:7000".parse().unwrap()));
                b.udp.send_to(&sent, from).unwrap();
                let (n, _) = receive(&a.udp, &mut buf);
                assert_eq!(&buf[..n], &sent[..]);
            }
            // A stream, whose super-packets are cut and merged.
            const LEN: usize = 8 << 20;
            let data: Vec<u8> =
                (0..LEN as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
            std::thread::scope(|s| {
                let received = s.spawn(|| {
                    let (mut stream, _) = b.tcp.accept().unwrap();
                    let mut all = Vec::new();
                    stream.read_to_end(&mut all).unwrap();
                    all
                });
                // This thread is in the first namespace.
                let mut stream = TcpStream::connect("10.2.0.1:7000").unwrap();
                stream.write_all(&data).unwrap();
                drop(stream);
                assert!(received.join().unwrap() == data, "the stream arrived changed");
            });
            eventually("all is counted", || b.engine.counters().traffic.in_bytes > LEN as u64);
            let (sent, received) = (a.plane.stats(), b.plane.stats());
            assert_eq!(
                sent.send.dropped_error + sent.send.dropped_full + sent.tun_read_errors,
                0,
                "{sent:?}"
            );
            assert_eq!(received.tun_write_errors + received.receive_errors, 0, "{received:?}");
            let packets = LEN as u64 / 1400;
            assert!(sent.send.datagrams > packets, "{sent:?}");
            assert!(received.tun_writes < packets / 4, "packets are merged: {received:?}");
            if outer == Outer::V4Encap || outer == Outer::V6Encap {
                assert!(sent.send.messages < packets / 4, "and sent many at a time: {sent:?}");
                assert!(received.received < packets / 4, "and received so: {received:?}");
            }
        });
    }
}

#[test]
fn ike_messages_come_up_without_marker_and_keepalives_are_absorbed() {
    two_sides(|a, b| {
        let to = |n: u8, port| SocketAddr::new(outer_address(n, Outer::V4Encap), port);
        let sender = a.plane.ike_sender();
        sender.send((to(1, 500), to(2, 500)), 0, b"plain", Cut::Allowed).unwrap();
        let got = b.ike.recv_timeout(TIME_LIMIT).unwrap();
        assert_eq!(got, IkeDatagram { local: to(2, 500), remote: to(1, 500), payload: b"plain".to_vec() });
        sender.send((to(1, 4500), to(2, 4500)), 0, b"\0\0\0\0marked", Cut::Allowed).unwrap();
        let got = b.ike.recv_timeout(TIME_LIMIT).unwrap();
        assert_eq!(got, IkeDatagram { local: to(2, 4500), remote: to(1, 4500), payload: b"marked".to_vec() });
        // Larger than the link: in fragments. From the address the routing table chooses.
        let large = [&[0; 4][..], &[7; 5000]].concat();
        sender.send(("0.0.0.0:4500".parse().unwrap(), to(2, 4500)), 0, &large, Cut::Allowed).unwrap();
        let got = b.ike.recv_timeout(TIME_LIMIT).unwrap();
        assert_eq!((got.payload, got.remote), (vec![7; 5000], to(1, 4500)));
        sender.send((to(1, 4500), to(2, 4500)), 0, &[0xff], Cut::Allowed).unwrap();
        eventually("the keepalive is counted", || b.plane.stats().keepalives == 1);
        // ESP that nobody asked for.
        sender.send((to(1, 4500), to(2, 4500)), 0, &[1; 60], Cut::Allowed).unwrap();
        eventually("the packet is counted", || {
            b.plane.refresh();
            b.engine.counters().dropped(DropReason::InNoStates) == 1
        });
        assert!(b.ike.try_recv().is_err());
        assert_eq!(
            sender.send((to(1, 999), to(2, 500)), 0, b"x", Cut::Allowed).unwrap_err().kind(),
            std::io::ErrorKind::NotConnected
        );
        // Both kinds in one send, which the kernel merges again on arrival.
        let other =
            ironswan_io::udp::UdpSocket::bind(ironswan_io::udp::UdpConfig::esp(false, 4600, 0)).unwrap();
        let mixed = [[0; 60], [2; 60], [0; 60], [0; 60]].concat();
        let m = ironswan_io::mmsg::Outgoing {
            offset: 0,
            len: mixed.len(),
            segment: 60,
            local: to(1, 0).ip(),
            remote: to(2, 4500),
            tos: 0,
            fragmentable: 0,
        };
        let before = b.plane.stats();
        ironswan_io::send::Sender::new().send(ironswan_io::send::Outlet::Udp(&other), &mixed, &[m]);
        eventually("three messages are taken", || {
            let now = b.plane.stats();
            now.ike + now.ike_dropped == before.ike + before.ike_dropped + 3
        });
        assert_eq!(b.plane.stats().received, before.received + 1, "they came merged");
        while let Ok(got) = b.ike.try_recv() {
            assert_eq!(got.payload, [0; 56]);
        }
        eventually("the ESP packet is counted", || {
            b.plane.refresh();
            b.engine.counters().dropped(DropReason::InNoStates) == 2
        });
        let before = b.plane.stats();
        // A control plane that does not keep up loses messages, and they are counted.
        for _ in 0..5 {
            sender.send((to(1, 500), to(2, 500)), 0, b"flood", Cut::Allowed).unwrap();
        }
        eventually("the flood is counted", || b.plane.stats().ike_dropped == before.ike_dropped + 3);
        assert_eq!(b.plane.stats().ike, before.ike + 2);
    });
}

#[test]
fn a_packet_without_sa_raises_an_acquire_at_once() {
    two_sides(|a, _b| {
        a.engine.apply(Duration::ZERO, &policy(1)).unwrap();
        a.udp.send_to(b"x", "10.2.0.1:7000").unwrap();
        let Ok(WorkerNotice::Up(up)) = a.notices.recv_timeout(TIME_LIMIT) else { panic!("no acquire") };
        assert!(matches!(up[0], Up::Acquire { reqid: ReqId(1), .. }), "{up:?}");
    });
}

#[test]
fn a_packet_wider_than_the_path_is_dropped_and_reported_and_never_fragmented_outside() {
    const NARROW: u32 = 1320;
    for routed in [false, true] {
        for outer in [Outer::V4Encap, Outer::V4Raw, Outer::V6Encap, Outer::V6Raw] {
            sides(routed.then_some(NARROW), |a, b| {
                for side in [&a, &b] {
                    for command in [sa(side.n, 1, outer), sa(side.n, 2, outer), policy(side.n)] {
                        side.engine.apply(Duration::ZERO, &command).unwrap();
                    }
                }
                count_fragments();
                let peer = outer_address(2, outer);
                let mut netlink = Netlink::open().unwrap();
                let mut path = || netlink.lookup(peer, None, 0).unwrap().unwrap().mtu;
                let say = |text: &[u8]| a.udp.send_to(text, "10.2.0.1:7000").unwrap();
                let mut buf = [0; 2000];
                say(b"short");
                assert_eq!(receive(&b.udp, &mut buf).0, 5);
                if routed {
                    // These meet the narrow link, and the router tells. As long as nobody has said
                    // that the SPI is ours, it is not believed, though the kernel believes it.
                    for n in 1..=2 {
                        say(&[3; 1300]);
                        eventually("it is refused", || a.plane.paths().counters()[1].1 == n);
                    }
                    assert_eq!((path(), a.plane.paths().known().mtu(peer)), (NARROW, None), "{peer}");
                    assert!(a.notices.try_recv().is_err());
                    assert_eq!(a.plane.stats().send.dropped_narrow, 0);
                    quotable(&a, outer, 50);
                    say(&[3; 1300]);
                    assert_eq!(
                        a.notices.recv_timeout(TIME_LIMIT).unwrap(),
                        WorkerNotice::NarrowPath(vec![peer])
                    );
                    assert_eq!(a.plane.paths().counters().map(|(_, n)| n), [1, 2]);
                    assert_eq!(a.plane.paths().known().mtu(peer), Some(NARROW), "for the key daemon");
                } else {
                    ip(&format!("link set eth0 mtu {NARROW}"));
                    assert_eq!(path(), NARROW, "what the key daemon will find out, {peer}");
                }
                assert!(a.notices.try_recv().is_err());
                say(&[4; 1300]);
                assert_eq!(a.notices.recv_timeout(TIME_LIMIT).unwrap(), WorkerNotice::NarrowPath(vec![peer]));
                // The counters of a round are published at its end, after the notice.
                eventually("the packet is counted", || a.plane.stats().send.dropped_narrow == 1);
                // The key daemon lowers the route. Then the kernel cuts the datagram before it is
                // encapsulated.
                let suite =
                    EspSuite { encr: EncrId::AES_GCM_16, key_bits: 128, integ: None, ke: None, esn: true };
                let udp_encap = matches!(outer, Outer::V4Encap | Outer::V6Encap);
                let mtu = ironswan_ipsec::mtu::Encapsulation {
                    protocol: ProtocolId::ESP,
                    mode: Mode::Tunnel,
                    suite,
                    outer_ipv6: peer.is_ipv6(),
                    udp_encap,
                }
                .inner_max(NARROW);
                ip(&format!("route replace 10.2.0.0/24 dev ipsec0 src 10.1.0.1 table 220 mtu {mtu}"));
                // Exactly as long as fits, and longer.
                for len in [mtu as usize - 28, 1300, 1900] {
                    say(&vec![5; len]);
                    assert_eq!(receive(&b.udp, &mut buf).0, len);
                }
                let sent = a.plane.stats().send;
                assert_eq!((sent.fragmented, sent.dropped_error), (0, 0), "{sent:?}");
                assert_eq!(fragments_sent(), 0, "routed: {routed}");
                // An IKE message may always be fragmented: this one shows that the counter counts.
                let from = SocketAddr::new(outer_address(1, outer), 4500);
                let message = [&[0; 4][..], &[7; 3000]].concat();
                a.plane
                    .ike_sender()
                    .send((from, SocketAddr::new(peer, 4500)), 0, &message, Cut::Allowed)
                    .unwrap();
                assert_eq!(b.ike.recv_timeout(TIME_LIMIT).unwrap().payload.len(), 3000);
                assert!(fragments_sent() >= 3);
                // ICMP errors wait on some sockets until they are taken off, and keep them ready.
                let rounds = a.plane.stats().rounds;
                std::thread::sleep(Duration::from_millis(100));
                assert!(a.plane.stats().rounds - rounds < 10, "it spins");
            });
        }
    }
}

#[test]
fn a_packet_that_no_sender_has_to_make_smaller_crosses_the_narrowest_path_in_fragments() {
    for outer in [Outer::V4Encap, Outer::V4Raw] {
        two_sides(|a, b| {
            for side in [&a, &b] {
                for command in [sa(side.n, 1, outer), sa(side.n, 2, outer), policy(side.n)] {
                    side.engine.apply(Duration::ZERO, &command).unwrap();
                }
            }
            count_fragments();
            ip("link set eth0 mtu 600");
            let mut buf = [0; 2000];
            a.udp.send_to(&[3; 576 - 28], "10.2.0.1:7000").unwrap();
            assert_eq!(receive(&b.udp, &mut buf).0, 576 - 28);
            eventually("it is counted", || a.plane.stats().send.fragmented == 1);
            assert!(fragments_sent() >= 2);
            a.udp.send_to(&[3; 590 - 28], "10.2.0.1:7000").unwrap();
            eventually("a longer one is dropped", || a.plane.stats().send.dropped_narrow == 1);
        });
    }
}

#[test]
fn of_a_stream_over_a_path_that_becomes_narrow_nothing_leaves_in_fragments_and_all_arrives() {
    two_sides(|a, b| {
        for side in [&a, &b] {
            for command in [sa(side.n, 1, Outer::V4Encap), sa(side.n, 2, Outer::V4Encap), policy(side.n)] {
                side.engine.apply(Duration::ZERO, &command).unwrap();
            }
        }
        count_fragments();
        const LEN: usize = 4 << 20;
        std::thread::scope(|s| {
            let received = s.spawn(|| {
                let (mut stream, _) = b.tcp.accept().unwrap();
                let mut all = Vec::new();
                stream.read_to_end(&mut all).unwrap();
                all.len()
            });
            let mut stream = TcpStream::connect("10.2.0.1:7000").unwrap();
            stream.write_all(&[1; LEN / 2]).unwrap();
            ip("link set eth0 mtu 1320");
            stream.write_all(&[2; 64 << 10]).unwrap();
            let narrow = WorkerNotice::NarrowPath(vec![outer_address(2, Outer::V4Encap)]);
            assert_eq!(a.notices.recv_timeout(TIME_LIMIT).unwrap(), narrow);
            ip("route replace 10.2.0.0/24 dev ipsec0 src 10.1.0.1 table 220 mtu 1258");
            stream.write_all(&[3; LEN / 2 - (64 << 10)]).unwrap();
            drop(stream);
            assert_eq!(received.join().unwrap(), LEN);
        });
        let sent = a.plane.stats().send;
        assert!(sent.dropped_narrow > 0 && sent.fragmented == 0, "{sent:?}");
        assert_eq!(fragments_sent(), 0);
    });
}

#[test]
fn nothing_is_sent_from_another_address_when_ours_is_gone() {
    for outer in [Outer::V4Encap, Outer::V4Raw, Outer::V6Encap, Outer::V6Raw] {
        two_sides(|a, b| {
            for side in [&a, &b] {
                for command in [sa(side.n, 1, outer), sa(side.n, 2, outer), policy(side.n)] {
                    side.engine.apply(Duration::ZERO, &command).unwrap();
                }
            }
            ip("addr add 192.0.2.11/24 dev eth0");
            ip("addr add 2001:db8::11/64 dev eth0 nodad");
            ip("addr del 192.0.2.1/24 dev eth0");
            ip("addr del 2001:db8::1/64 dev eth0");
            // The other address of the link may have been the first one's secondary, and gone with
            // it.
            ip("addr replace 192.0.2.11/24 dev eth0");
            for _ in 0..3 {
                a.udp.send_to(b"from where?", "10.2.0.1:7000").unwrap();
            }
            eventually("they are counted", || a.plane.stats().send.dropped_source == 3);
            let sent = a.plane.stats().send;
            assert_eq!((sent.datagrams, sent.dropped_error), (0, 0), "{sent:?}");
            assert_eq!(b.engine.counters().traffic.in_packets, 0);
        });
    }
}

#[test]
fn an_idle_gateway_sleeps() {
    two_sides(|a, b| {
        std::thread::sleep(Duration::from_millis(300));
        let before = (a.plane.stats().rounds, b.plane.stats().rounds);
        std::thread::sleep(Duration::from_millis(2000));
        let after = (a.plane.stats().rounds, b.plane.stats().rounds);
        // The kernel itself sends a router solicitation into the device now and then.
        assert!(after.0 - before.0 < 4 && after.1 - before.1 < 4, "{before:?} {after:?}");
    });
}

#[test]
fn a_device_that_is_deleted_is_reported_and_ike_goes_on() {
    two_sides(|a, b| {
        ip("link del ipsec0");
        assert_eq!(a.notices.recv_timeout(TIME_LIMIT).unwrap(), WorkerNotice::DeviceGone);
        let rounds = a.plane.stats().rounds;
        std::thread::sleep(Duration::from_millis(200));
        assert!(a.plane.stats().rounds - rounds < 10, "it spins");
        let to = |n: u8| SocketAddr::new(outer_address(n, Outer::V4Encap), 500);
        b.plane.ike_sender().send((to(2), to(1)), 0, b"still there?", Cut::Allowed).unwrap();
        assert_eq!(a.ike.recv_timeout(TIME_LIMIT).unwrap().payload, b"still there?");
        assert!(a.plane.is_running());
        drop(a);
    });
}

#[test]
fn a_second_daemon_is_told_which_port_is_taken_and_leaves_nothing() {
    two_sides(|a, _b| {
        let start = || {
            let engine = Engine::new(Box::new(Seeded::new(9)), Config::default());
            let mut config = WorkersConfig::default();
            config.device.name = "ipsec1".into();
            Workers::start(&config, engine, |_| true, |_| ())
        };
        // A child process that another test has just forked keeps device and sockets until it
        // begins its program.
        let soon = |met: &mut dyn FnMut() -> bool| {
            (0..500).any(|_| {
                let met = met();
                if !met {
                    std::thread::sleep(Duration::from_millis(10));
                }
                met
            })
        };
        let text = start().unwrap_err().to_string();
        assert!(text.contains("4500") && text.contains("ss -ulpn"), "{text}");
        assert!(soon(&mut || Netlink::open().unwrap().link("ipsec1").is_err()), "its device stays");
        // When the first has stopped, its device is gone and the ports are free.
        let Side { plane, .. } = a;
        drop(plane);
        assert!(soon(&mut || Netlink::open().unwrap().link("ipsec0").is_err()), "the device stays");
        let mut again = None;
        assert!(soon(&mut || start().map(|plane| again = Some(plane)).is_ok()), "the ports stay taken");
        drop(again.unwrap());
    });
}

#[test]
fn a_deleted_device_is_replaced_under_the_running_worker_and_the_sas_go_on() {
    two_sides(|a, b| {
        // The policies and SAs of `a` and `b` stand; only the device and what the kernel knows of
        // it go.
        for s in [&a, &b] {
            let other = 3 - s.n;
            for command in [sa(s.n, s.n, Outer::V4Encap), sa(s.n, other, Outer::V4Encap), policy(s.n)] {
                s.engine.apply(Duration::ZERO, &command).unwrap();
            }
        }
        let say = |text: &str| {
            a.udp.send_to(text.as_bytes(), "10.2.0.1:7000").unwrap();
            let mut buf = [0; 100];
            let n = receive(&b.udp, &mut buf).0;
            assert_eq!(&buf[..n], text.as_bytes());
        };
        say("before");
        ip("link del ipsec0");
        assert_eq!(a.notices.recv_timeout(TIME_LIMIT).unwrap(), WorkerNotice::DeviceGone);
        let old = a.plane.device_index();
        let new = a.plane.replace_device(&WorkersConfig::default().device).unwrap();
        assert!(new != old && a.plane.device_index() == new);
        ip("route add 10.2.0.0/24 dev ipsec0 src 10.1.0.1 table 220");
        say("after");
        // And the other way, through the new device.
        b.udp.send_to(b"back", "10.1.0.1:7000").unwrap();
        let mut buf = [0; 100];
        assert_eq!(receive(&a.udp, &mut buf).0, 4);
        let out = a.engine.sas().into_iter().find(|s| s.sa.direction == Direction::Out).unwrap();
        assert_eq!(out.sequence, 2, "the same SA goes on counting");
        assert!(a.notices.try_recv().is_err(), "and nothing else is reported");
    });
}

#[test]
fn a_worker_that_panics_is_reported_and_the_data_plane_can_still_be_stopped() {
    std::thread::spawn(|| {
        enter_namespace();
        let engine = Engine::new(Box::new(Seeded::new(1)), Config::default());
        let (notices_in, notices) = std::sync::mpsc::sync_channel(10);
        let ike_sink = |_: IkeDatagram| -> bool { panic!("a defect, for this test") };
        let config = WorkersConfig::default();
        let plane =
            Workers::start(&config, engine, ike_sink, move |n| notices_in.send(n).unwrap_or(())).unwrap();
        assert!(plane.is_running());
        let socket = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.send_to(b"an IKE message", "127.0.0.1:500").unwrap();
        assert_eq!(notices.recv_timeout(TIME_LIMIT).unwrap(), WorkerNotice::Ended);
        eventually("the thread has ended", || !plane.is_running());
        drop(plane);
        assert!(notices.recv_timeout(TIME_LIMIT).is_err(), "it is said once");
    })
    .join()
    .unwrap();
}
