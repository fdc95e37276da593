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
use ironswan_wire::sadb::{Action, Command, Direction, Lifetime, Mode, PolicyAdd, ReqId, SaAdd, Spi, Up};
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

/// In the namespace of the calling thread, where `eth0` is.
fn side(n: u8) -> Side {
    ip(&format!("addr add 192.0.2.{n}/24 dev eth0"));
    ip(&format!("addr add 2001:db8::{n}/64 dev eth0 nodad"));
    ip(&format!("addr add 10.{n}.0.1/32 dev lo"));
    ip("link set eth0 up");
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
    std::thread::scope(|s| {
        let run = s.spawn(|| {
            enter_namespace();
            let (id_in, id) = sync_channel(1);
            let (go, wait) = sync_channel::<()>(1);
            let second = s.spawn(move || {
                id_in.send(enter_namespace()).unwrap();
                wait.recv().unwrap();
                side(2)
            });
            let id = id.recv().unwrap();
            ip(&format!("link add eth0 type veth peer name eth0 netns {id}"));
            let first = side(1);
            go.send(()).unwrap();
            f(first, second.join().unwrap());
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
                let (n, from) = b.udp.recv_from(&mut buf).unwrap();
                assert_eq!((&buf[..n], from), (&sent[..], "10.1.0.1:7000".parse().unwrap()));
                b.udp.send_to(&sent, from).unwrap();
                let (n, _) = a.udp.recv_from(&mut buf).unwrap();
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
fn a_narrower_path_is_reported_and_packets_still_arrive() {
    two_sides(|a, b| {
        for side in [&a, &b] {
            for command in [sa(side.n, 1, Outer::V4Encap), sa(side.n, 2, Outer::V4Encap), policy(side.n)] {
                side.engine.apply(Duration::ZERO, &command).unwrap();
            }
        }
        ip("link set eth0 mtu 1200");
        a.udp.send_to(&[3; 1300], "10.2.0.1:7000").unwrap();
        let mut buf = [0; 2000];
        assert_eq!(b.udp.recv_from(&mut buf).unwrap().0, 1300);
        let narrow = Notice::NarrowPath(vec![outer_address(2, Outer::V4Encap)]);
        assert_eq!(a.notices.recv_timeout(PATIENCE).unwrap(), narrow);
        // The counters of a round are published at its end, after the notice.
        eventually("the fragmented packet is counted", || a.plane.stats().send.fragmented == 1);
    });
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
