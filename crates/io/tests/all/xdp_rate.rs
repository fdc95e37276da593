//! Compares `AF_XDP` on a veth with UDP sockets: the rate received at each rate offered, with
//! the receive softirq on the receiver's own processor. A measurement, not a test; it prints a
//! table:
//!
//! `cargo test --release -p ironswan-io --test all xdp_rate -- --ignored --nocapture`
//!
//! ```text
//! processor 0: sender (UDP_SEGMENT, cut before the veth) ──veth──▶ processor 1: softirq, receiver
//! ```
//!
//! The softirq is put on processor 1 by a router in between whose receive packet steering says so,
//! as a NIC's interrupt would be bound; the router's work is on processor 1 too, the same for all.
//! The receiver spends a fixed time on each packet, which stands for opening it and writing it to
//! the TUN device.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use crate::common::{address, in_namespace, ip};
use ironswan_io::clock;
use ironswan_io::mmsg::{Outgoing, RecvSlots};
use ironswan_io::poller::{Poller, Ready};
use ironswan_io::route::Netlink;
use ironswan_io::send::{Outlet, Sender};
use ironswan_io::udp::{UdpConfig, UdpSocket};
use ironswan_io::xdp::{GenericXdp, SLOT, XdpAttachment, XdpConfig, XdpSocket};

const RUN: Duration = Duration::from_millis(400);
const RATES: [u64; 9] = [100, 200, 300, 400, 600, 800, 1200, 1600, 2400];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    /// Datagrams one by one.
    Udp,
    /// Merged by the interface (GRO), as a NIC's driver does.
    UdpGro,
    Xdp,
}

/// Runs `sh` with this thread's network namespace and its `/sys`.
fn sys(script: &str) {
    let script = format!("mount -t sysfs sysfs /sys && {script}");
    let out = Command::new("unshare").args(["-m", "sh", "-c", &script]).output().unwrap();
    assert!(out.status.success(), "{script}: {}", String::from_utf8_lossy(&out.stderr));
}

fn pin(processor: usize) {
    let mut set = rustix::thread::CpuSet::new();
    set.set(processor);
    rustix::thread::sched_setaffinity(None, &set).unwrap();
}

fn own_namespace() -> String {
    format!("/proc/{}/task/{}/ns/net", std::process::id(), rustix::thread::gettid().as_raw_nonzero())
}

/// Some arithmetic that takes `rounds` times a fixed time.
fn spin(rounds: u64) {
    let mut x = rounds;
    for _ in 0..rounds {
        x = std::hint::black_box(x.wrapping_mul(3) ^ 1);
    }
}

/// Rounds of [`spin`] in a microsecond.
fn rounds_per_us() -> f64 {
    (0..20)
        .map(|_| {
            let begun = clock::now();
            spin(100_000);
            100_000.0 / (begun.elapsed().as_nanos() as f64 / 1e3)
        })
        .fold(0.0, f64::max)
}

enum Source {
    Udp(UdpSocket, RecvSlots, Vec<u8>),
    Xdp { sockets: Vec<XdpSocket>, buf: Vec<u8>, _attachment: XdpAttachment },
}

impl Source {
    fn open(kind: Kind) -> Self {
        match kind {
            Kind::Xdp => {
                let config = XdpConfig {
                    interface: "wan".into(),
                    natt_port: 4500,
                    raw_esp: true,
                    generic: GenericXdp::Hardware,
                };
                let (attachment, sockets) = XdpAttachment::open(&config).unwrap();
                Self::Xdp { sockets, buf: vec![0; 64 * SLOT], _attachment: attachment }
            }
            _ => {
                sys(if kind == Kind::UdpGro { "ethtool -K wan gro on" } else { "ethtool -K wan gro off" });
                let socket = UdpSocket::bind(UdpConfig::esp(false, 4500, 0)).unwrap();
                Self::Udp(socket, RecvSlots::new(64), vec![0; 64 * (65_536 + 320)])
            }
        }
    }

    fn poller(&self) -> Poller {
        let poller = Poller::new().unwrap();
        match self {
            Self::Udp(s, ..) => poller.add(s, 1).unwrap(),
            Self::Xdp { sockets, .. } => poller.add(&sockets[0], 1).unwrap(),
        }
        poller
    }

    /// Datagrams received.
    fn recv(&mut self, got: &mut Vec<ironswan_io::mmsg::Received>) -> u64 {
        got.clear();
        match self {
            Self::Udp(s, slots, buf) => {
                let _ = slots.recv(s.as_fd(), buf, 65_536 + 320, 0, got);
            }
            Self::Xdp { sockets, buf, .. } => {
                sockets[0].recv(buf, SLOT, got);
            }
        }
        got.iter().map(|r| r.len.div_ceil(r.segment.max(1)) as u64).sum()
    }

    /// Dropped at the socket.
    fn drops(&self) -> u64 {
        match self {
            Self::Udp(s, ..) => s.drops(),
            Self::Xdp { sockets, .. } => sockets[0].stats().dropped(),
        }
    }
}

/// The state that both sides share.
#[derive(Default)]
struct Shared {
    /// Packets a second, in thousands.
    rate: AtomicU64,
    sent: AtomicU64,
    stop: AtomicBool,
    end: AtomicBool,
}

/// Sends at the rate that is asked for.
fn send(shared: &Shared, size: usize, start: &Barrier) {
    pin(0);
    let socket = UdpSocket::bind(UdpConfig::esp(false, 4501, 0)).unwrap();
    let mut esp = vec![0, 0, 0x10, 0, 0, 0, 0, 1];
    esp.resize(size, 0x55);
    let (per_send, mut sender) = (32, Sender::new());
    let buf: Vec<u8> = std::iter::repeat_n(&esp[..], per_send).flatten().copied().collect();
    let message = Outgoing {
        offset: 0,
        len: buf.len(),
        segment: size,
        local: "10.9.1.1".parse().unwrap(),
        remote: SocketAddr::new("10.9.2.2".parse().unwrap(), 4500),
        tos: 0,
        fragmentable: 0,
    };
    loop {
        start.wait();
        if shared.end.load(Relaxed) {
            return;
        }
        let begun = clock::now();
        let rate = shared.rate.load(Relaxed) * 1000;
        let mut sent = 0u64;
        while !shared.stop.load(Relaxed) {
            let due = begun + Duration::from_nanos(sent * 1_000_000_000 / rate);
            while clock::now() < due && !shared.stop.load(Relaxed) {
                std::hint::spin_loop();
            }
            sender.send(Outlet::Udp(&socket), &buf, &[message]);
            sent += per_send as u64;
        }
        shared.sent.store(sent, Relaxed);
        start.wait();
    }
}

/// One point: received per second, and where the rest went.
fn point(source: &mut Source, shared: &Shared, rate: u64, spend: u64, start: &Barrier) -> (f64, f64, f64) {
    let poller = source.poller();
    let (mut ready, mut got) = (Ready::with_capacity(4), Vec::new());
    // What is left from before.
    while source.recv(&mut got) > 0 {}
    shared.rate.store(rate, Relaxed);
    shared.stop.store(false, Relaxed);
    let drops = source.drops();
    start.wait();
    let begun: Instant = clock::now();
    let mut received = 0;
    while begun.elapsed() < RUN {
        poller.wait(&mut ready, Some(Duration::from_millis(5))).unwrap();
        let n = source.recv(&mut got);
        received += n;
        spin(n * spend);
    }
    let took = begun.elapsed().as_secs_f64();
    shared.stop.store(true, Relaxed);
    start.wait();
    let sent = shared.sent.load(Relaxed) as f64;
    (received as f64 / took / 1e3, sent / took / 1e3, (source.drops() - drops) as f64 / sent)
}

/// The curve of one kind.
fn curve(kind: Kind, size: usize, work_ns: u64, rounds: f64) -> Vec<(f64, f64, f64)> {
    in_namespace(|| {
        pin(1);
        let here = own_namespace();
        let shared = Shared::default();
        let (made, ready, start) = (Barrier::new(2), Barrier::new(2), Barrier::new(2));
        let (shared, made, ready, start, here) = (&shared, &made, &ready, &start, &here);
        std::thread::scope(|s| {
            s.spawn(move || {
                in_namespace(|| {
                    // The router, with the sender's end in a namespace of its own.
                    let router = own_namespace();
                    ip("link add r1 type veth peer name wan");
                    ip(&format!("link set wan netns {here}"));
                    ip("addr add 10.9.2.1/24 dev r1");
                    ip("link set r1 up");
                    std::thread::scope(|s| {
                        s.spawn(|| {
                            in_namespace(|| {
                                ip("link add s0 type veth peer name r0");
                                ip(&format!("link set r0 netns {router}"));
                                ip("addr add 10.9.1.1/24 dev s0");
                                ip("link set s0 up");
                                ip("route add default via 10.9.1.2");
                                sys("ethtool -K s0 tso off gso off tx-udp-segmentation off");
                                // The other end is there; it has its address; the receiver is
                                // ready.
                                made.wait();
                                made.wait();
                                ready.wait();
                                send(shared, size, start);
                            });
                        });
                        made.wait();
                        ip("addr add 10.9.1.2/24 dev r0");
                        ip("link set r0 up");
                        sys("sysctl -qw net.ipv4.ip_forward=1; echo 2 > /sys/class/net/r0/queues/rx-0/rps_cpus");
                        made.wait();
                    });
                });
            });
            while Netlink::open().unwrap().link("wan").is_err() {
                std::thread::sleep(Duration::from_millis(10));
            }
            address("10.9.2.2", 24, "wan");
            ip("link set wan up");
            ip("route add default via 10.9.2.1");
            let mut source = Source::open(kind);
            ready.wait();
            std::thread::sleep(Duration::from_millis(300));
            let spend = (rounds * work_ns as f64 / 1e3) as u64;
            point(&mut source, shared, 100, spend, start);
            let all = RATES.iter().map(|r| point(&mut source, shared, *r, spend, start)).collect();
            shared.end.store(true, Relaxed);
            start.wait();
            all
        })
    })
}

#[test]
#[ignore = "a measurement of a minute or more; see the head of the file"]
fn received_at_each_rate_offered() {
    let rounds = rounds_per_us();
    let repeats: usize = std::env::var("REPEATS").ok().and_then(|r| r.parse().ok()).unwrap_or(3);
    for (size, work) in [(64, 500), (1400, 500), (64, 3000), (1400, 3000)] {
        let kinds = [Kind::Udp, Kind::UdpGro, Kind::Xdp];
        let mut best: [Vec<(f64, f64, f64)>; 3] = Default::default();
        for _ in 0..repeats {
            for (kind, best) in kinds.into_iter().zip(&mut best) {
                let curve = curve(kind, size, work, rounds);
                if best.is_empty() {
                    *best = curve;
                } else {
                    best.iter_mut().zip(curve).for_each(|(b, c)| {
                        if c.0 > b.0 {
                            *b = c;
                        }
                    });
                }
            }
        }
        println!(
            "\n{size} B, {work} ns of work a packet; thousands a second: offered -> received (dropped at the socket)"
        );
        for (kind, curve) in kinds.into_iter().zip(best) {
            let peak = curve.iter().map(|p| p.0).fold(0.0, f64::max);
            print!("{kind:?}: peak {peak:.0};");
            for (got, sent, drops) in curve {
                print!(" {sent:.0}->{got:.0} ({:.0} %, {:.0} %)", 100.0 * got / peak, 100.0 * drops);
            }
            println!();
        }
    }
}
