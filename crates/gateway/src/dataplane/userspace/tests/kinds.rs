//! Every kind of SA between two data planes, and what leaves by itself: held packets and dummies.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use ironswan_wire::iana::{EncrId, IntegId, ProtocolId};
use ironswan_wire::proposal::EspSuite;
use ironswan_wire::sadb::{Command, Direction, Mode, ReqId, SaAdd, SaRef, Spi};
use ironswan_wire::secret::Secret;

use super::harness::*;
use super::*;

/// Protocol, mode and compression of an SA.
#[derive(Clone, Copy, Debug)]
struct Kind {
    protocol: ProtocolId,
    mode: Mode,
    ipcomp: bool,
}

const ESP: ProtocolId = ProtocolId::ESP;
const AH: ProtocolId = ProtocolId::AH;

/// The SA from `from`, as `me` has it.
fn sa_of(me: u8, from: u8, outer: Outer, kind: Kind) -> SaAdd {
    let mut sa = plain_sa(me, from, outer);
    sa.mode = kind.mode;
    if kind.mode == Mode::Transport {
        (sa.local_ts, sa.remote_ts) = (vec![host(me, outer)], vec![host(3 - me, outer)]);
    }
    if kind.protocol == AH {
        let integ = Some(IntegId::HMAC_SHA2_256_128);
        sa.protocol = AH;
        sa.suite = EspSuite { encr: EncrId::NULL, key_bits: 0, integ, ke: None, esn: true };
        (sa.encr_key, sa.integ_key) = (Secret::default(), Secret::new(vec![from; 32]));
    }
    sa.options.ipcomp = kind.ipcomp.then_some(0x1000 + u16::from(from));
    sa
}

/// Installs both SAs and the policy on both sides, and tells the path MTU.
fn install(side: &Side, outer: Outer, kind: Kind) {
    let mut add = vec![sa_of(side.n, side.n, outer, kind), sa_of(side.n, 3 - side.n, outer, kind)];
    let peer = add[0].remote.ip();
    let sa = SaRef { direction: Direction::Out, spi: add[0].spi, reqid: ReqId(1), remote: peer };
    let mut commands: Vec<Command> = add.drain(..).map(|sa| Command::SaAdd(Box::new(sa))).collect();
    commands.push(Command::SaPathMtu { sa, mtu: 1500 });
    let Command::PolicyAdd(mut policy) = policy(side.n) else { unreachable!() };
    if kind.mode == Mode::Transport {
        (policy.local, policy.remote) = (host(side.n, outer), host(3 - side.n, outer));
    }
    commands.push(Command::PolicyAdd(policy));
    for command in commands {
        side.engine.apply(Duration::ZERO, &command).unwrap();
    }
}

/// Datagrams both ways, some longer than any link, and a stream.
fn exchange(what: &str, a: (&UdpSocket, &Side), b: (&UdpSocket, &TcpListener, &Side)) {
    let mut buf = [0; 9000];
    let to = b.0.local_addr().unwrap();
    for len in [0, 1, 1300, 1900, 8000] {
        let sent: Vec<u8> = (0..len).map(|i| (i / 5) as u8).collect();
        a.0.send_to(&sent, to).unwrap();
        let (n, from) = receive(b.0, &mut buf);
        assert!(buf[..n] == sent && from == a.0.local_addr().unwrap(), "{what}: {n} of {len} from {from}");
        b.0.send_to(&sent, from).unwrap();
        let (n, _) = receive(a.0, &mut buf);
        assert!(buf[..n] == sent, "{what}: {n} of {len} back");
    }
    const LEN: usize = 1 << 20;
    let data: Vec<u8> = (0..LEN as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    std::thread::scope(|s| {
        let received = s.spawn(|| {
            let (mut stream, _) = b.1.accept().unwrap();
            let mut all = Vec::new();
            stream.read_to_end(&mut all).unwrap();
            all
        });
        let mut stream = TcpStream::connect(b.1.local_addr().unwrap()).unwrap();
        stream.write_all(&data).unwrap();
        drop(stream);
        assert!(received.join().unwrap() == data, "{what}: the stream arrived changed");
    });
    for side in [a.1, b.2] {
        let (stats, counters) = (side.plane.stats(), side.engine.counters());
        let sent = stats.send;
        let lost = sent.dropped_error + sent.dropped_narrow + sent.dropped_full + sent.dropped_source;
        assert_eq!(lost + stats.receive_errors + stats.tun_write_errors, 0, "{what}: {stats:?}");
        for reason in DropReason::ALL {
            // The kernel says something about itself on a new device.
            let own = matches!(reason, DropReason::OutNoPolicy);
            assert!(own || counters.dropped(*reason) == 0, "{what}: {reason:?} {counters:?}");
        }
    }
}

/// The kind over each kind of outer packet that it can have.
fn crosses(kind: Kind) {
    let outers = [Outer::V4Raw, Outer::V6Raw, Outer::V4Encap, Outer::V6Encap];
    // AH is not put into UDP.
    for outer in &outers[..if kind.protocol == AH { 2 } else { 4 }] {
        let what = format!("{kind:?} {outer:?}");
        if kind.mode == Mode::Transport {
            two_hosts(|a, b| {
                install(&a, *outer, kind);
                install(&b, *outer, kind);
                let of = |side: &'_ Side| usize::from(outer_address(side.n, *outer).is_ipv6());
                let (x, y) = (&a.hosts[of(&a)], &b.hosts[of(&b)]);
                exchange(&what, (&x.udp, &a), (&y.udp, &y.tcp, &b));
            });
        } else {
            two_sides(|a, b| {
                install(&a, *outer, kind);
                install(&b, *outer, kind);
                exchange(&what, (&a.udp, &a), (&b.udp, &b.tcp, &b));
            });
        }
    }
}

#[test]
fn ah_in_tunnel_mode_crosses() {
    crosses(Kind { protocol: AH, mode: Mode::Tunnel, ipcomp: false });
}

#[test]
fn ah_in_transport_mode_crosses() {
    crosses(Kind { protocol: AH, mode: Mode::Transport, ipcomp: false });
}

#[test]
fn esp_in_transport_mode_crosses() {
    crosses(Kind { protocol: ESP, mode: Mode::Transport, ipcomp: false });
}

#[test]
fn compressed_packets_cross_in_every_kind() {
    for protocol in [ESP, AH] {
        for mode in [Mode::Tunnel, Mode::Transport] {
            crosses(Kind { protocol, mode, ipcomp: true });
        }
    }
}

#[test]
fn dummies_leave_at_their_interval_and_only_while_nothing_else_does() {
    const EVERY: Duration = Duration::from_millis(50);
    two_sides(|a, b| {
        let kind = Kind { protocol: ESP, mode: Mode::Tunnel, ipcomp: false };
        install(&b, Outer::V4Raw, kind);
        install(&a, Outer::V4Raw, kind);
        let quiet = a.plane.stats().rounds;
        std::thread::sleep(10 * EVERY);
        assert!(a.plane.stats().rounds - quiet <= 2, "without dummies it sleeps");
        // A successor that wants them.
        let mut sa = sa_of(1, 1, Outer::V4Raw, kind);
        (sa.spi, sa.options.dummies) = (Spi(0x2001), Some(EVERY));
        let mut peer = sa_of(2, 1, Outer::V4Raw, kind);
        peer.spi = sa.spi;
        b.engine.apply(Duration::ZERO, &Command::SaAdd(Box::new(peer))).unwrap();
        a.engine.apply(Duration::ZERO, &Command::SaAdd(Box::new(sa))).unwrap();
        a.plane.refresh();
        let dummies = || a.engine.counters().traffic.out_dummies;
        let (rounds, before) = (a.plane.stats().rounds, dummies());
        std::thread::sleep(20 * EVERY);
        a.plane.refresh();
        eventually("they leave", || dummies() > before + 5);
        let made = dummies() - before;
        assert!(made <= 22, "{made} in a second, of one each 50 ms");
        assert!(a.plane.stats().rounds - rounds <= 2 * made + 4, "it does not spin");
        eventually("they are absorbed there", || {
            b.plane.refresh();
            b.engine.counters().traffic.in_dummies + 1 >= made
        });
        assert_eq!(b.plane.stats().tun_writes, 0);
        // While it has something to say, none.
        let before = dummies();
        let mut buf = [0; 100];
        for _ in 0..100 {
            a.udp.send_to(b"x", "10.2.0.1:7000").unwrap();
            receive(&b.udp, &mut buf);
            std::thread::sleep(EVERY / 10);
        }
        a.plane.refresh();
        eventually("the round is over", || a.engine.counters().traffic.out_sent > 100);
        let between = dummies() - before;
        assert!(between <= 3, "{between} in half a second of traffic");
    });
}

#[test]
fn the_first_packets_wait_for_their_sa_and_leave_before_all_others() {
    let kind = Kind { protocol: ESP, mode: Mode::Tunnel, ipcomp: false };
    two_sides(|a, b| {
        install(&b, Outer::V4Raw, kind);
        a.engine.apply(Duration::ZERO, &policy(1)).unwrap();
        let say = |n: u8| a.udp.send_to(&[n; 9], "10.2.0.1:7000").unwrap();
        for n in 0..3 {
            say(n);
        }
        let Ok(WorkerNotice::Up(up)) = a.notices.recv_timeout(TIME_LIMIT) else { panic!("no acquire") };
        assert!(matches!(up[0], ironswan_wire::sadb::Up::Acquire { reqid: ReqId(1), .. }), "{up:?}");
        eventually("they wait", || {
            a.plane.refresh();
            a.engine.counters().held == 3
        });
        // The SA comes, and the worker is told so: nobody else sends anything.
        a.engine.apply(Duration::ZERO, &Command::SaAdd(Box::new(sa_of(1, 1, Outer::V4Raw, kind)))).unwrap();
        a.plane.refresh();
        let mut buf = [0; 100];
        for n in 0..3 {
            assert_eq!((receive(&b.udp, &mut buf).0, buf[0]), (9, n));
        }
        say(3);
        assert_eq!((receive(&b.udp, &mut buf).0, buf[0]), (9, 3));
        eventually("nothing waits", || {
            a.plane.refresh();
            let counters = a.engine.counters();
            counters.held == 0 && counters.dropped(DropReason::OutNoStates) == 0
        });
    });
}

#[test]
fn a_packet_that_waits_in_vain_is_dropped_in_time_though_nothing_wakes_the_gateway() {
    two_sides(|a, _b| {
        a.engine.apply(Duration::ZERO, &policy(1)).unwrap();
        a.udp.send_to(b"x", "10.2.0.1:7000").unwrap();
        eventually("it waits", || {
            a.plane.refresh();
            a.engine.counters().held == 1
        });
        let rounds = a.plane.stats().rounds;
        std::thread::sleep(Duration::from_millis(5500));
        let counters = a.engine.counters();
        assert_eq!((counters.held, counters.dropped(DropReason::OutNoStates)), (0, 1), "{counters:?}");
        assert!(a.plane.stats().rounds - rounds <= 3, "one look was enough");
    });
}

#[test]
fn what_a_router_says_about_ah_is_learned_and_reported() {
    const NARROW: u32 = 1320;
    let kind = Kind { protocol: AH, mode: Mode::Tunnel, ipcomp: false };
    for outer in [Outer::V4Raw, Outer::V6Raw] {
        sides(Some(NARROW), |a, b| {
            install(&a, outer, kind);
            install(&b, outer, kind);
            let peer = outer_address(2, outer);
            let say = |len: usize| a.udp.send_to(&vec![5; len], "10.2.0.1:7000").unwrap();
            let mut buf = [0; 2000];
            // The router is believed only when the SPI is known to be ours.
            say(1300);
            eventually("it is refused", || a.plane.paths().counters()[1].1 == 1);
            say(1300);
            eventually("it is refused again", || a.plane.paths().counters()[1].1 == 2);
            assert_eq!(a.plane.stats().send.dropped_narrow, 0);
            quotable(&a, outer, 51);
            say(1300);
            assert_eq!(a.notices.recv_timeout(TIME_LIMIT).unwrap(), WorkerNotice::NarrowPath(vec![peer]));
            let path = a.plane.paths().known().mtu(peer).unwrap();
            assert_eq!(path, NARROW, "{outer:?}");
            say(1300);
            assert_eq!(a.notices.recv_timeout(TIME_LIMIT).unwrap(), WorkerNotice::NarrowPath(vec![peer]));
            eventually("it is dropped", || a.plane.stats().send.dropped_narrow == 1);
            // The key daemon lowers the SA's path MTU and the route.
            let sa = plain_sa(1, 1, outer);
            let sa = SaRef { direction: Direction::Out, spi: sa.spi, reqid: ReqId(1), remote: peer };
            a.engine.apply(Duration::ZERO, &Command::SaPathMtu { sa, mtu: path }).unwrap();
            ip("route replace 10.2.0.0/24 dev ipsec0 src 10.1.0.1 table 220 mtu 1240");
            say(1300);
            assert_eq!(receive(&b.udp, &mut buf).0, 1300);
            assert_eq!(a.plane.stats().send.fragmented, 0);
            let rounds = a.plane.stats().rounds;
            std::thread::sleep(Duration::from_millis(100));
            assert!(a.plane.stats().rounds - rounds < 10, "it spins");
        });
    }
}
