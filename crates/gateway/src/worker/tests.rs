//! Two data planes in network namespaces joined by a veth pair. Needs root.

use std::io::{Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::Command as Process;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use ironswan_crypto::rng::Seeded;
use ironswan_io::namespace;
use ironswan_io::route::{Destination, Netlink, PROTOCOL, Route, RouteKind, Rule, TABLE};
use ironswan_ipsec::{Config, DropReason, Engine};
use ironswan_wire::iana::{EncrId, ProtocolId};
use ironswan_wire::proposal::EspSuite;
use ironswan_wire::sadb::{
    Action, Command, Direction, Lifetime, Mode, PolicyAdd, ReqId, SaAdd, SaOptions, Spi, Up,
};
use ironswan_wire::secret::Secret;
use ironswan_wire::selector::{AddrRange, TrafficSelector};

use super::*;

const PATIENCE: Duration = Duration::from_secs(3);

/// What joins the two sides.
#[derive(Clone, Copy, PartialEq)]
enum Outer {
    V4Encap,
    V4Raw,
    V6Encap,
    V6Raw,
}

/// One gateway, which is its own host: 10.`n`.0.1 behind 192.0.2.`n` (or 2001:db8::`n`).
struct Side {
    engine: Arc<Engine>,
    plane: DataPlane,
    ike: Receiver<IkeDatagram>,
    notices: Receiver<Notice>,
    udp: UdpSocket,
    tcp: TcpListener,
    n: u8,
}

/// Runs `ip` in the namespace of this thread.
/// Receives, also when the end of some other test's child process interrupts (a socket with a timeout is not restarted).
fn receive(socket: &UdpSocket, buf: &mut [u8]) -> (usize, SocketAddr) {
    loop {
        match socket.recv_from(buf) {
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            other => return other.unwrap(),
        }
    }
}

fn ip(args: &str) {
    let out = Process::new("ip").args(args.split_whitespace()).output().expect("iproute2 is needed");
    assert!(out.status.success(), "ip {args}: {}", String::from_utf8_lossy(&out.stderr));
}

fn enter_namespace() -> i32 {
    namespace::unshare().expect("these tests need root: they make network namespaces and TUN devices");
    ip("link set lo up");
    rustix::thread::gettid().as_raw_nonzero().get()
}

fn outer_address(n: u8, outer: Outer) -> IpAddr {
    match outer {
        Outer::V4Encap | Outer::V4Raw => IpAddr::from([192, 0, 2, n]),
        Outer::V6Encap | Outer::V6Raw => format!("2001:db8::{n}").parse().unwrap(),
    }
}

fn inside(n: u8) -> TrafficSelector {
    TrafficSelector::addresses(AddrRange::prefix(IpAddr::from([10, n, 0, 0]), 24).unwrap())
}

/// Counts what leaves through `eth0` in fragments: a device's egress is behind the place where the kernel cuts.
fn count_fragments() {
    nft("table netdev test {
        chain c {
            type filter hook egress device eth0 priority 0
            ip frag-off & 0x3fff != 0 counter
            ip6 nexthdr 44 counter
        }
    }");
}

/// The fragments that have left the namespace of this thread.
fn fragments_sent() -> u64 {
    let text = nft("list table netdev test");
    let words: Vec<&str> = text.split_whitespace().collect();
    let packets = words.windows(2).filter(|w| w[0] == "packets").map(|w| w[1].parse::<u64>().unwrap());
    packets.sum()
}

/// Runs `nft` in the namespace of this thread.
fn nft(script: &str) -> String {
    let out = Process::new("nft").arg(script).output().expect("nft is needed");
    assert!(out.status.success(), "nft {script}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// The SA that carries packets of side `from`, as side `me` has it.
fn sa(me: u8, from: u8, outer: Outer) -> Command {
    let other = 3 - me;
    let suite = EspSuite { encr: EncrId::AES_GCM_16, key_bits: 128, integ: None, ke: None, esn: true };
    Command::SaAdd(Box::new(SaAdd {
        direction: if from == me { Direction::Out } else { Direction::In },
        protocol: ProtocolId::ESP,
        spi: Spi(0x1000 + u32::from(from)),
        reqid: ReqId(1),
        local: SocketAddr::new(outer_address(me, outer), 4500),
        remote: SocketAddr::new(outer_address(other, outer), 4500),
        udp_encap: matches!(outer, Outer::V4Encap | Outer::V6Encap),
        mode: Mode::Tunnel,
        suite,
        options: SaOptions::default(),
        encr_key: Secret::new(vec![from; 20]),
        integ_key: Secret::default(),
        replay_window: 1024,
        local_ts: vec![inside(me)],
        remote_ts: vec![inside(other)],
        lifetime: Lifetime::default(),
        notify_first_use: false,
    }))
}

fn policy(me: u8) -> Command {
    Command::PolicyAdd(PolicyAdd {
        name: "net".into(),
        action: Action::Protect(ReqId(1)),
        local: inside(me),
        remote: inside(3 - me),
        priority: 0,
    })
}

/// In the namespace of the calling thread, where `eth0` is. `routed`: the other side is behind a router.
fn side(n: u8, routed: bool) -> Side {
    let (v4, v6) = if routed { (32, 128) } else { (24, 64) };
    ip(&format!("addr add 192.0.2.{n}/{v4} dev eth0"));
    ip(&format!("addr add 2001:db8::{n}/{v6} dev eth0 nodad"));
    ip(&format!("addr add 10.{n}.0.1/32 dev lo"));
    ip("link set eth0 up");
    if routed {
        ip("route add 192.0.2.254 dev eth0");
        ip("route add default via 192.0.2.254");
        ip("-6 route add default via fe80::1 dev eth0");
    }
    // IPv6 takes a moment before it uses an address.
    let mut netlink = Netlink::open().unwrap();
    let v6 = outer_address(n, Outer::V6Encap);
    while !netlink.lookup(v6, None, 0).unwrap().is_some_and(|hop| hop.local) {
        std::thread::sleep(Duration::from_millis(5));
    }
    let engine = Engine::new(Box::new(Seeded::new(n.into())), Config::default());
    let config = DataPlaneConfig::default();
    let (ike_in, ike): (SyncSender<IkeDatagram>, _) = sync_channel(2);
    let (notices_in, notices) = sync_channel(1000);
    let plane = DataPlane::start(
        &config,
        engine.clone(),
        move |m| ike_in.try_send(m).is_ok(),
        move |notice| notices_in.send(notice).unwrap_or(()),
    )
    .unwrap();
    netlink.add_rule(&Rule::steering(false, config.mark)).unwrap();
    let source = IpAddr::from([10, n, 0, 1]);
    netlink
        .set_route(&Route {
            table: TABLE,
            destination: Destination { ip: IpAddr::from([10, 3 - n, 0, 0]), prefix_len: 24 },
            kind: RouteKind::Device(plane.device_index()),
            metric: 0,
            source: Some(source),
            mtu: 0,
            protocol: PROTOCOL,
        })
        .unwrap();
    let udp = UdpSocket::bind((source, 7000)).unwrap();
    udp.set_read_timeout(Some(PATIENCE)).unwrap();
    let tcp = TcpListener::bind((source, 7000)).unwrap();
    Side { engine, plane, ike, notices, udp, tcp, n }
}

/// Runs `f` with both sides, on a thread in the namespace of the first.
fn two_sides(f: impl FnOnce(Side, Side) + Send) {
    sides(None, f);
}

/// In a namespace of the calling thread: the router between the namespaces of two threads.
fn router(ids: [i32; 2], mtu: u32) {
    for (i, id) in ids.iter().enumerate() {
        let n = i + 1;
        ip(&format!("link add r{n} type veth peer name eth0 netns {id}"));
        ip(&format!("addr add fe80::1/64 dev r{n} nodad"));
        ip(&format!("link set r{n} up"));
        ip(&format!("route add 192.0.2.{n} dev r{n}"));
        ip(&format!("-6 route add 2001:db8::{n} dev r{n}"));
    }
    ip("addr add 192.0.2.254/32 dev lo");
    ip("addr add 2001:db8::fe/128 dev lo nodad");
    ip(&format!("link set r2 mtu {mtu}"));
    for what in ["ipv4/ip_forward", "ipv6/conf/all/forwarding"] {
        std::fs::write(format!("/proc/sys/net/{what}"), "1").unwrap();
    }
}

/// With a router between them, if `routed` says what the MTU of its link to the second side is.
fn sides(routed: Option<u32>, f: impl FnOnce(Side, Side) + Send) {
    std::thread::scope(|s| {
        let run = s.spawn(|| {
            enter_namespace();
            let (id_in, id) = sync_channel(1);
            let (go, wait) = sync_channel::<()>(1);
            let second = s.spawn(move || {
                id_in.send(enter_namespace()).unwrap();
                wait.recv().unwrap();
                side(2, routed.is_some())
            });
            let id = id.recv().unwrap();
            // The router's namespace lasts as long as its thread, which waits for the end.
            let (end, ended) = sync_channel::<()>(0);
            if let Some(mtu) = routed {
                let own = rustix::thread::gettid().as_raw_nonzero().get();
                let (ready_in, ready) = sync_channel(1);
                s.spawn(move || {
                    enter_namespace();
                    router([own, id], mtu);
                    ready_in.send(()).unwrap();
                    let _ = ended.recv();
                });
                ready.recv().unwrap();
            } else {
                ip(&format!("link add eth0 type veth peer name eth0 netns {id}"));
            }
            let first = side(1, routed.is_some());
            go.send(()).unwrap();
            f(first, second.join().unwrap());
            drop(end);
        });
        run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// Waits until `condition` holds.
fn eventually(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..300 {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what}: it did not happen");
}

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
            // Datagrams; one that is fragmented inside the tunnel too, since it is larger than its MTU.
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
        sender.send(to(1, 500), to(2, 500), b"plain").unwrap();
        let got = b.ike.recv_timeout(PATIENCE).unwrap();
        assert_eq!(got, IkeDatagram { local: to(2, 500), remote: to(1, 500), payload: b"plain".to_vec() });
        sender.send(to(1, 4500), to(2, 4500), b"\0\0\0\0marked").unwrap();
        let got = b.ike.recv_timeout(PATIENCE).unwrap();
        assert_eq!(got, IkeDatagram { local: to(2, 4500), remote: to(1, 4500), payload: b"marked".to_vec() });
        // Larger than the link: in fragments. From the address the routing table chooses.
        let large = [&[0; 4][..], &[7; 5000]].concat();
        sender.send("0.0.0.0:4500".parse().unwrap(), to(2, 4500), &large).unwrap();
        let got = b.ike.recv_timeout(PATIENCE).unwrap();
        assert_eq!((got.payload, got.remote), (vec![7; 5000], to(1, 4500)));
        sender.send(to(1, 4500), to(2, 4500), &[0xff]).unwrap();
        eventually("the keepalive is counted", || b.plane.stats().keepalives == 1);
        // ESP that nobody asked for.
        sender.send(to(1, 4500), to(2, 4500), &[1; 60]).unwrap();
        eventually("the packet is counted", || {
            b.plane.refresh();
            b.engine.counters().dropped(DropReason::InNoStates) == 1
        });
        assert!(b.ike.try_recv().is_err());
        assert_eq!(
            sender.send(to(1, 999), to(2, 500), b"x").unwrap_err().kind(),
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
            sender.send(to(1, 500), to(2, 500), b"flood").unwrap();
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
        let Ok(Notice::Up(up)) = a.notices.recv_timeout(PATIENCE) else { panic!("no acquire") };
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
                    // This one meets the narrow link, and the router tells.
                    say(&[3; 1300]);
                    for _ in 0..300 {
                        if path() == NARROW {
                            break;
                        }
                        std::thread::sleep(Duration::from_millis(10));
                    }
                } else {
                    ip(&format!("link set eth0 mtu {NARROW}"));
                }
                assert_eq!(path(), NARROW, "what the key daemon will find out, routed: {routed}, {peer}");
                assert!(a.notices.try_recv().is_err());
                say(&[4; 1300]);
                assert_eq!(a.notices.recv_timeout(PATIENCE).unwrap(), Notice::NarrowPath(vec![peer]));
                // The counters of a round are published at its end, after the notice.
                eventually("the packet is counted", || a.plane.stats().send.dropped_narrow == 1);
                // What the key daemon does about it. The kernel then cuts the datagram before it is encapsulated.
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
                // That the counter counts: an IKE message is fragmented, as it always may be.
                let from = SocketAddr::new(outer_address(1, outer), 4500);
                let message = [&[0; 4][..], &[7; 3000]].concat();
                a.plane.ike_sender().send(from, SocketAddr::new(peer, 4500), &message).unwrap();
                assert_eq!(b.ike.recv_timeout(PATIENCE).unwrap().payload.len(), 3000);
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
            let narrow = Notice::NarrowPath(vec![outer_address(2, Outer::V4Encap)]);
            assert_eq!(a.notices.recv_timeout(PATIENCE).unwrap(), narrow);
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
            // The other address of the link may have been the first one's secondary, and gone with it.
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
        assert_eq!(a.notices.recv_timeout(PATIENCE).unwrap(), Notice::DeviceGone);
        let rounds = a.plane.stats().rounds;
        std::thread::sleep(Duration::from_millis(200));
        assert!(a.plane.stats().rounds - rounds < 10, "it spins");
        let to = |n: u8| SocketAddr::new(outer_address(n, Outer::V4Encap), 500);
        b.plane.ike_sender().send(to(2), to(1), b"still there?").unwrap();
        assert_eq!(a.ike.recv_timeout(PATIENCE).unwrap().payload, b"still there?");
        assert!(a.plane.is_running());
        a.plane.stop();
    });
}

#[test]
fn a_second_daemon_is_told_which_port_is_taken_and_leaves_nothing() {
    two_sides(|a, _b| {
        let start = || {
            let engine = Engine::new(Box::new(Seeded::new(9)), Config::default());
            let mut config = DataPlaneConfig::default();
            config.device.name = "ipsec1".into();
            DataPlane::start(&config, engine, |_| true, |_| ())
        };
        let text = start().unwrap_err().to_string();
        assert!(text.contains("4500") && text.contains("ss -ulpn"), "{text}");
        assert!(Netlink::open().unwrap().link("ipsec1").is_err());
        // When the first has stopped, its device is gone and the ports are free.
        let Side { plane, .. } = a;
        plane.stop();
        assert!(Netlink::open().unwrap().link("ipsec0").is_err());
        start().unwrap().stop();
    });
}

#[test]
fn a_deleted_device_is_replaced_under_the_running_worker_and_the_sas_go_on() {
    two_sides(|a, b| {
        // The policies and SAs of `a` and `b` stand; only the device and what the kernel knows of it go.
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
        assert_eq!(a.notices.recv_timeout(PATIENCE).unwrap(), Notice::DeviceGone);
        let old = a.plane.device_index();
        let new = a.plane.replace_device(&DataPlaneConfig::default().device).unwrap();
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
