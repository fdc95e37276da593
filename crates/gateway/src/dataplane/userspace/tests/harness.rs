//! Two data planes in network namespaces joined by a veth pair, or by a router.

use std::net::{IpAddr, SocketAddr, TcpListener, UdpSocket};
use std::process::Command as Process;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

use ironswan_crypto::engines::Engines;
use ironswan_crypto::rng::Seeded;
use ironswan_io::namespace;
use ironswan_io::route::{Destination, Netlink, PROTOCOL, Route, RouteKind, Rule, TABLE};
use ironswan_ipsec::{Config, Engine};
use ironswan_wire::iana::{EncrId, ProtocolId};
use ironswan_wire::proposal::EspSuite;
use ironswan_wire::sadb::{
    Action, Command, Direction, Entry, Lifetime, Mode, PolicyAdd, ReqId, SaAdd, SaOptions, SaRef, Spi,
};
use ironswan_wire::secret::Secret;
use ironswan_wire::selector::{AddrRange, TrafficSelector};

use super::super::*;
use crate::dataplane::IkeDatagram;

/// Longest time that a notice or a datagram may take to arrive.
pub(super) const TIME_LIMIT: Duration = Duration::from_secs(3);

/// Connection between the two sides.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Outer {
    V4Encap,
    V4Raw,
    V6Encap,
    V6Raw,
}

/// Sockets on an outer address, for what is carried in transport mode.
pub(super) struct Host {
    pub(super) udp: UdpSocket,
    pub(super) tcp: TcpListener,
}

/// One gateway, which is its own host: 10.`n`.0.1 behind 192.0.2.`n` (or 2001:db8::`n`).
pub(super) struct Side {
    pub(super) engine: Arc<Engine>,
    pub(super) plane: Workers,
    pub(super) ike: Receiver<IkeDatagram>,
    pub(super) notices: Receiver<WorkerNotice>,
    pub(super) udp: UdpSocket,
    pub(super) tcp: TcpListener,
    /// Of IPv4 and IPv6, between [`two_hosts`].
    pub(super) hosts: Vec<Host>,
    pub(super) n: u8,
}

/// Receives, also when the end of some other test's child process interrupts (a socket with a
/// timeout is not restarted).
pub(super) fn receive(socket: &UdpSocket, buf: &mut [u8]) -> (usize, SocketAddr) {
    loop {
        match socket.recv_from(buf) {
            Err(e) if e.kind() == std::io::ErrorKind::Interrupted => {}
            other => return other.unwrap(),
        }
    }
}

/// Runs `ip` in the namespace of this thread.
pub(super) fn ip(args: &str) {
    let out = Process::new("ip").args(args.split_whitespace()).output().expect("iproute2 is needed");
    assert!(out.status.success(), "ip {args}: {}", String::from_utf8_lossy(&out.stderr));
}

pub(super) fn enter_namespace() -> i32 {
    namespace::unshare().expect("these tests need root: they make network namespaces and TUN devices");
    ip("link set lo up");
    rustix::thread::gettid().as_raw_nonzero().get()
}

pub(super) fn outer_address(n: u8, outer: Outer) -> IpAddr {
    match outer {
        Outer::V4Encap | Outer::V4Raw => IpAddr::from([192, 0, 2, n]),
        Outer::V6Encap | Outer::V6Raw => format!("2001:db8::{n}").parse().unwrap(),
    }
}

pub(super) fn inside(n: u8) -> TrafficSelector {
    TrafficSelector::addresses(AddrRange::prefix(IpAddr::from([10, n, 0, 0]), 24).unwrap())
}

/// Counts what leaves through `eth0` in fragments: a device's egress is behind the place where the
/// kernel cuts.
pub(super) fn count_fragments() {
    nft("table netdev test {
        chain c {
            type filter hook egress device eth0 priority 0
            ip frag-off & 0x3fff != 0 counter
            ip6 nexthdr 44 counter
        }
    }");
}

/// The fragments that have left the namespace of this thread.
pub(super) fn fragments_sent() -> u64 {
    let text = nft("list table netdev test");
    let words: Vec<&str> = text.split_whitespace().collect();
    let packets = words.windows(2).filter(|w| w[0] == "packets").map(|w| w[1].parse::<u64>().unwrap());
    packets.sum()
}

/// Runs `nft` in the namespace of this thread.
pub(super) fn nft(script: &str) -> String {
    let out = Process::new("nft").arg(script).output().expect("nft is needed");
    assert!(out.status.success(), "nft {script}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// The SA that carries packets of side `from`, as side `me` has it.
pub(super) fn sa(me: u8, from: u8, outer: Outer) -> Command {
    Command::SaAdd(Box::new(plain_sa(me, from, outer)))
}

/// Registers the SA of `side` as the installer does, so that errors that quote it are believed.
pub(super) fn quotable(side: &Side, outer: Outer, protocol: u8) {
    let sa = plain_sa(side.n, side.n, outer);
    let port = sa.udp_encap.then_some(sa.remote.port());
    let (spi, reqid, remote) = (sa.spi, sa.reqid, sa.remote.ip());
    let sa = SaRef { direction: Direction::Out, spi, reqid, remote };
    side.plane.paths().add(&sa, crate::dataplane::userspace::paths::Shape { protocol, port });
}

/// In tunnel mode, without options.
pub(super) fn plain_sa(me: u8, from: u8, outer: Outer) -> SaAdd {
    let other = 3 - me;
    let suite = EspSuite { encr: EncrId::AES_GCM_16, key_bits: 128, integ: None, ke: None, esn: true };
    SaAdd {
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
    }
}

/// The address of an outer packet's end, and nothing else.
pub(super) fn host(n: u8, outer: Outer) -> TrafficSelector {
    TrafficSelector::addresses(AddrRange::host(outer_address(n, outer)))
}

pub(super) fn policy(me: u8) -> Command {
    Command::PolicyAdd(PolicyAdd {
        name: "net".into(),
        action: Action::Protect(ReqId(1)),
        local: inside(me),
        remote: inside(3 - me),
        priority: 0,
        entry: Entry::default(),
    })
}

/// In the namespace of the calling thread, where `eth0` is. `routed`: the other side is behind a
/// router.
pub(super) fn side(n: u8, routed: bool, hosts: bool) -> Side {
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
    let config = Config { engines: Engines::of_environment(), ..Config::default() };
    let engine = Engine::new(Box::new(Seeded::new(n.into())), config);
    let config = WorkersConfig::default();
    let (ike_in, ike): (SyncSender<IkeDatagram>, _) = sync_channel(2);
    let (notices_in, notices) = sync_channel(1000);
    let plane = Workers::start(
        &config,
        engine.clone(),
        move |m| ike_in.try_send(m).is_ok(),
        move |notice| notices_in.send(notice).unwrap_or(()),
    )
    .unwrap();
    netlink.add_rule(&Rule::fallback(false, config.mark, false)).unwrap();
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
    udp.set_read_timeout(Some(TIME_LIMIT)).unwrap();
    let tcp = TcpListener::bind((source, 7000)).unwrap();
    let hosts = if hosts { host_sockets(n, &mut netlink, &plane, config.mark) } else { Vec::new() };
    Side { engine, plane, ike, notices, udp, tcp, hosts, n }
}

/// Leads what this host sends to the other one into the device.
fn host_sockets(n: u8, netlink: &mut Netlink, plane: &Workers, mark: u32) -> Vec<Host> {
    netlink.add_rule(&Rule::fallback(true, mark, false)).unwrap();
    let each = |outer| {
        let (own, peer) = (outer_address(n, outer), outer_address(3 - n, outer));
        netlink
            .set_route(&Route {
                table: TABLE,
                destination: Destination { ip: peer, prefix_len: if peer.is_ipv6() { 128 } else { 32 } },
                kind: RouteKind::Device(plane.device_index()),
                metric: 0,
                source: Some(own),
                // MTU that AES-GCM in UDP over IPv6 leaves of 1,500 bytes; every other kind leaves
                // more.
                mtu: 1400,
                protocol: PROTOCOL,
            })
            .unwrap();
        let udp = UdpSocket::bind((own, 7001)).unwrap();
        udp.set_read_timeout(Some(TIME_LIMIT)).unwrap();
        Host { udp, tcp: TcpListener::bind((own, 7001)).unwrap() }
    };
    [Outer::V4Raw, Outer::V6Raw].map(each).into()
}

/// Runs `f` with both sides, on a thread in the namespace of the first.
pub(super) fn two_sides(f: impl FnOnce(Side, Side) + Send) {
    build(None, false, f);
}

/// With what goes between the outer addresses led into the device, for transport mode.
pub(super) fn two_hosts(f: impl FnOnce(Side, Side) + Send) {
    build(None, true, f);
}

/// In a namespace of the calling thread: the router between the namespaces of two threads.
pub(super) fn router(ids: [i32; 2], mtu: u32) {
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
pub(super) fn sides(routed: Option<u32>, f: impl FnOnce(Side, Side) + Send) {
    build(routed, false, f);
}

fn build(routed: Option<u32>, hosts: bool, f: impl FnOnce(Side, Side) + Send) {
    std::thread::scope(|s| {
        let run = s.spawn(|| {
            enter_namespace();
            let (id_in, id) = sync_channel(1);
            let (go, wait) = sync_channel::<()>(1);
            let second = s.spawn(move || {
                id_in.send(enter_namespace()).unwrap();
                wait.recv().unwrap();
                side(2, routed.is_some(), hosts)
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
            let first = side(1, routed.is_some(), hosts);
            go.send(()).unwrap();
            f(first, second.join().unwrap());
            drop(end);
        });
        run.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    });
}

/// Waits until `condition` holds.
pub(super) fn eventually(what: &str, condition: impl Fn() -> bool) {
    for _ in 0..300 {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what}: it did not happen");
}
