//! What a packet costs on its way out by the number of policies: 64-byte packets of 100,000 flows
//! in random order, spread evenly over all policies, in bursts of 256. All rows of a shape are
//! measured in turns, and compared with one policy.

use std::sync::Arc;
use std::time::Instant;

use ironswan_crypto::rng::{Rng, Seeded};
use ironswan_ipsec::{Config, Engine, Frame, TxBatch, TxConfig, Worker};
use ironswan_wire::offload::Offload;
use ironswan_wire::sadb::{Action, Command, Direction, Entry, PolicyAdd, ReqId};
use ironswan_wire::selector::{AddrRange, TrafficSelector};

use super::common::*;
use super::quiet;

const FLOWS: u32 = 100_000;
const COUNTS: [u32; 5] = [1, 10, 1_000, 10_000, 100_000];
const BURST: usize = 256;
const PACKET: usize = 64;
/// Frames that a gateway reads before it looks at them.
const READ: usize = 64;
const FRAMES: [Frame; READ] = {
    let mut frames = [Frame { start: 0, len: PACKET, offload: Offload::NONE }; READ];
    let mut i = 0;
    while i < READ {
        frames[i].start = i * PACKET;
        i += 1;
    }
    frames
};
const ROUNDS: usize = 12;

/// One kind of SPD: the policies number `k` of `n` (the first is the one that its flows get), and
/// flow number `o` of it.
struct Shape {
    name: &'static str,
    policies: fn(k: u32, n: u32) -> Vec<PolicyAdd>,
    flow: fn(k: u32, n: u32, o: u32) -> Vec<u8>,
}

fn range(start: u32, end: u32) -> AddrRange {
    AddrRange::new(start.to_be_bytes().into(), end.to_be_bytes().into()).unwrap()
}

fn any() -> TrafficSelector {
    TrafficSelector::addresses(AddrRange::any(false))
}

fn addresses(start: u32, end: u32) -> TrafficSelector {
    TrafficSelector::addresses(range(start, end))
}

fn protect(k: u32, local: TrafficSelector, remote: TrafficSelector, priority: u32) -> PolicyAdd {
    PolicyAdd {
        name: String::new(),
        action: Action::Protect(ReqId(k + 1)),
        local,
        remote,
        priority,
        entry: Entry::default(),
    }
}

const LOCAL: u32 = 0x0a00_0000;
const REMOTE: u32 = 0x2000_0000;

fn udp(src: u32, dst: u32, ports: (u16, u16)) -> Vec<u8> {
    let (src, dst) = (src.to_be_bytes().into(), dst.to_be_bytes().into());
    Spec { src, dst, ports, ..Spec::udp(PACKET - 28) }.build()
}

fn icmp(src: u32, dst: u32, kind: u16) -> Vec<u8> {
    let mut p = udp(src, dst, (kind, 0));
    p[9] = 1;
    p
}

/// A grid of port ranges: its cells a side, and the ports of one.
fn grid(n: u32) -> (u32, u32) {
    let side = (1..=65_536).find(|s| s * s >= n).unwrap_or(1);
    (side, 65_536 / side)
}

fn ports(host: u32, first: u32, count: u32) -> TrafficSelector {
    let (start_port, end_port) = (first as u16, (first + count - 1) as u16);
    TrafficSelector { range: range(host, host), protocol: 17, start_port, end_port }
}

const SHAPES: &[Shape] = &[
    Shape {
        name: "remote prefixes",
        policies: |k, _| vec![protect(k, any(), addresses(REMOTE + k * 16, REMOTE + k * 16 + 15), 0)],
        flow: |k, _, o| udp(LOCAL + o, REMOTE + k * 16 + o % 16, (4_000, 53)),
    },
    Shape {
        name: "local prefixes",
        policies: |k, _| vec![protect(k, addresses(LOCAL + k * 16, LOCAL + k * 16 + 15), any(), 0)],
        flow: |k, _, o| udp(LOCAL + k * 16 + o % 16, REMOTE + o, (4_000, 53)),
    },
    Shape {
        name: "port ranges",
        policies: |k, n| {
            let (side, count) = grid(n);
            vec![protect(k, ports(LOCAL, k % side * count, count), ports(REMOTE, k / side * count, count), 0)]
        },
        flow: |k, n, o| {
            let (side, count) = grid(n);
            let port = |cell: u32, o: u32| (cell * count + o % count) as u16;
            udp(LOCAL, REMOTE, (port(k % side, o), port(k / side, o / count)))
        },
    },
    Shape {
        name: "address ranges",
        policies: |k, _| vec![protect(k, any(), addresses(REMOTE + k * 64 + 3, REMOTE + k * 64 + 49), 0)],
        flow: |k, _, o| udp(LOCAL + o, REMOTE + k * 64 + 3 + o % 47, (4_000, 53)),
    },
    Shape {
        name: "nested exceptions",
        policies: |k, _| {
            // A BYPASS host in a PROTECT /24 in a DISCARD /23.
            let at = REMOTE + k * 512;
            let hole = |t, action| PolicyAdd { action, ..protect(k, any(), t, 0) };
            vec![
                protect(k, any(), addresses(at, at + 255), 0),
                hole(addresses(at, at + 511), Action::Discard),
                hole(addresses(at + 9, at + 9), Action::Bypass),
            ]
        },
        flow: |k, _, o| udp(LOCAL + o, REMOTE + k * 512 + 16 + o % 200, (4_000, 53)),
    },
    Shape {
        name: "ICMP type and code",
        policies: |k, _| {
            let kind = k as u16;
            let remote = addresses(REMOTE + k / 65_536, REMOTE + k / 65_536);
            let side = |t| TrafficSelector { protocol: 1, start_port: kind, end_port: kind, ..t };
            vec![protect(k, side(any()), side(remote), 0)]
        },
        flow: |k, _, o| icmp(LOCAL + o, REMOTE + k / 65_536, k as u16),
    },
    Shape {
        name: "with priorities",
        policies: |k, _| {
            let remote = addresses(REMOTE + k * 16, REMOTE + k * 16 + 15);
            let mut p = protect(k, any(), remote, 1 + k.wrapping_mul(2_654_435_761) % 1_000);
            if k % 2 == 1 {
                (p.remote.protocol, p.remote.start_port, p.remote.end_port) = (17, 1, 60_000);
            }
            vec![p]
        },
        flow: |k, _, o| udp(LOCAL + o, REMOTE + k * 16 + o % 16, (4_000, 53)),
    },
];

struct Row {
    worker: Worker,
    frames: Vec<[u8; PACKET]>,
    times: Vec<f64>,
}

impl Row {
    fn new(shape: &Shape, n: u32, sa_each: bool) -> Self {
        let engine: Arc<Engine> = Engine::new(Box::new(Seeded::new(1)), Config::default());
        let options = Options { left: vec![any()], right: vec![any()], ..Options::default() };
        for k in 0..if sa_each { n } else { 1 } {
            let sa = options.sa(Direction::Out, SPI + k, k + 1, k.into());
            engine.apply(SECOND, &Command::SaAdd(Box::new(sa))).unwrap();
        }
        for k in 0..n {
            for mut p in (shape.policies)(k, n) {
                if !sa_each && p.action == Action::Protect(ReqId(k + 1)) {
                    p.action = Action::Protect(ReqId(1));
                }
                engine.apply(SECOND, &Command::PolicyAdd(p)).unwrap();
            }
        }
        let mut frames: Vec<[u8; PACKET]> =
            (0..FLOWS).map(|i| (shape.flow)(i % n, n, i / n)[..].try_into().unwrap()).collect();
        let mut rng = Seeded::new(7);
        for i in (1..frames.len()).rev() {
            let mut b = [0; 4];
            rng.fill(&mut b);
            frames.swap(i, u32::from_le_bytes(b) as usize % (i + 1));
        }
        Self { worker: Worker::new(engine), frames, times: Vec::new() }
    }

    /// Nanoseconds of a packet, each flow having one.
    fn round(&mut self, tx: &mut TxBatch) -> f64 {
        let mut buf = [0; READ * PACKET];
        let t = Instant::now();
        let mut sent = 0;
        for burst in self.frames.chunks(BURST) {
            tx.clear();
            self.worker.begin(SECOND);
            for read in burst.chunks(READ) {
                // As the device's reads do.
                for (to, from) in buf.chunks_exact_mut(PACKET).zip(read) {
                    to.copy_from_slice(from);
                }
                assert_eq!(self.worker.outbound_burst(&mut buf, &FRAMES[..read.len()], tx), read.len());
            }
            self.worker.seal(tx);
            sent += tx.sends.iter().map(|s| usize::from(s.segments)).sum::<usize>();
        }
        assert_eq!(sent, self.frames.len());
        t.elapsed().as_nanos() as f64 / f64::from(FLOWS)
    }
}

/// Prints the table.
pub fn run(wanted: impl Fn(&str) -> bool) {
    println!(
        "\nns per 64-byte packet out, {FLOWS} flows (second best of {ROUNDS} rounds in turns), and how many times what 1 policy costs"
    );
    print!("{:<20}{:<8}", "policies differ in", "SAs");
    COUNTS.iter().for_each(|n| print!("{n:>16}"));
    println!();
    for shape in SHAPES {
        for sa_each in [false, true] {
            let sas = if sa_each { "one each" } else { "one" };
            if wanted(&format!("policies {} {sas}", shape.name)) {
                print!("{:<20}{sas:<8}", shape.name);
                let mut rows: Vec<_> = COUNTS.iter().map(|n| Row::new(shape, *n, sa_each)).collect();
                let mut tx = TxBatch::new(TxConfig::default());
                for round in 0..=ROUNDS {
                    for row in &mut rows {
                        let time = row.round(&mut tx);
                        if round > 0 {
                            row.times.push(time);
                        }
                    }
                }
                let times: Vec<f64> = rows.iter_mut().map(|r| quiet(std::mem::take(&mut r.times))).collect();
                times.iter().for_each(|t| print!("{t:>9.1} {:>5.2}x", t / times[0]));
                println!();
            }
        }
    }
}
