//! The packet path from memory to memory, with an engine that neither encrypts nor authenticates:
//! what `scripts/budget` counts the instructions of. Nothing here depends on time, on chance or on
//! how fast the machine is.
//!
//! A turn is what a gateway does at once: frames in bursts, one batch sealed; a receive, opened and
//! merged. Valgrind counts while [`counted`] runs, and writes down what it has counted when
//! [`done`] returns. Printed are the names of these counts, in their order, with the packets of
//! each.
//!
//! `cargo build --release -p ironswan-ipsec --features null-engine --example budget`

#[path = "../tests/all/common.rs"]
mod common;
#[path = "../tests/all/out_common.rs"]
mod out_common;

use std::hint::black_box;

use common::*;
use ironswan_crypto::null;
use ironswan_crypto::rng::{Rng, Seeded};
use ironswan_ipsec::{Config, Datagram, Engine, Frame, TxBatch, TxConfig, Worker, demux};
use ironswan_wire::iana::ProtocolId;
use ironswan_wire::offload::Offload;
use ironswan_wire::sadb::{Action, Command, Entry, PolicyAdd, ReqId, SaAdd, SaOptions, Spi};
use ironswan_wire::selector::TrafficSelector;
use out_common::{Receiver, Sender, TRANSPORT, ah, between, inbound, outbound, with_keys};

/// What a gateway does at once (`crates/gateway/src/dataplane/userspace/outbound.rs`).
const BURST_FRAMES: usize = 64;
const BURST_BYTES: usize = 16 * 1024;
const TX: TxConfig = TxConfig { capacity: 256 * 1024, max_segments: 64, max_bytes: 65_400 };
const SLOTS: usize = 64;
const LARGE: u32 = 16 * 1024;
const LARGE_SLOTS: usize = 8;

/// Turns before the first that is counted: memory has grown to its size, flows are known.
const WARM: usize = 4;
const SAS: u32 = 10_000;

type Packet = (Vec<u8>, Offload);

struct Case {
    name: &'static str,
    sender: Sender,
    receiver: Receiver,
    /// The frames of each turn, in the buffer that they were read into.
    turns: Vec<(Vec<u8>, Vec<Frame>)>,
    /// ESP or AH packets of all turns.
    packets: u64,
    /// How often all turns are counted.
    times: usize,
}

/// Memory of the line between the two.
#[derive(Default)]
struct Lent {
    wire: Vec<u8>,
    received: Vec<Datagram>,
    esp: Vec<Datagram>,
}

impl Case {
    fn new(name: &'static str, sa: SaAdd, packets: u64, frames: Vec<Packet>) -> Self {
        let mut sender = Sender::new(SaAdd { udp_encap: sa.protocol == ProtocolId::ESP, ..sa });
        sender.tx = TxBatch::new(TX);
        let receiver = Receiver::of(&sender.sa, 4_096);
        Self { name, sender, receiver, turns: vec![turn(&frames)], packets, times: 16 }
    }

    /// As many SAs as there are flows, each to a peer of its own.
    fn many(name: &'static str, per_turn: usize) -> Self {
        let engine = |seed| Engine::new(Box::new(Seeded::new(seed)), Config::default());
        let (out, inb) = (engine(1), engine(2));
        let base = with_keys(SaAdd { udp_encap: true, ..outbound(false) });
        let host = |k: u32| ip(&format!("10.2.{}.{}", k >> 8, k & 255));
        for k in 0..SAS {
            let mut sa = SaAdd { spi: Spi(SPI + k), reqid: ReqId(k + 1), ..base.clone() };
            sa.remote.set_ip(ip(&format!("198.18.{}.{}", k >> 8, k & 255)));
            let local = ts("10.1.0.0/16");
            let remote = ts(&format!("{}/32", host(k)));
            (sa.local_ts, sa.remote_ts) = (vec![local], vec![remote]);
            let action = Action::Protect(sa.reqid);
            let policy = |local: TrafficSelector, remote| PolicyAdd {
                name: String::new(),
                action,
                local,
                remote,
                priority: 0,
                entry: Entry::default(),
            };
            out.apply(SECOND, &Command::PolicyAdd(policy(local, remote))).expect("a policy");
            let other = SaAdd { replay_window: 4_096, ..inbound(&sa) };
            inb.apply(SECOND, &Command::SaAdd(Box::new(other))).expect("an inbound SA");
            out.apply(SECOND, &Command::SaAdd(Box::new(sa))).expect("an outbound SA");
        }
        let mut order: Vec<u32> = (0..SAS).collect();
        let mut rng = Seeded::new(7);
        for i in (1..order.len()).rev() {
            let mut b = [0; 4];
            rng.fill(&mut b);
            order.swap(i, u32::from_le_bytes(b) as usize % (i + 1));
        }
        let frames: Vec<Packet> = order.iter().map(|k| udp(36, |s| s.dst = host(*k))).collect();
        let worker = |engine: &std::sync::Arc<Engine>| Worker::new(engine.clone());
        let sender = Sender { sa: base.clone(), worker: worker(&out), engine: out, tx: TxBatch::new(TX) };
        let mut receiver = Receiver::of(&base, 0);
        (receiver.worker, receiver.engine) = (worker(&inb), inb);
        let turns = frames.chunks(per_turn).map(turn).collect();
        Self { name, sender, receiver, turns, packets: u64::from(SAS), times: 2 }
    }

    /// Runs all turns once, out and in; counts one of the two, or neither.
    fn run(&mut self, lent: &mut Lent, out: bool, inb: bool) {
        let Self { sender, receiver, turns, .. } = self;
        let Lent { wire, received, esp } = lent;
        for (read, frames) in turns {
            // The path changes frames: the device writes new ones.
            let mut buf = read.clone();
            maybe_counted(out, || out_turn(sender, &mut buf, frames));
            wire.clear();
            wire.extend_from_slice(&sender.tx.buf[..sender.tx.used()]);
            received.clear();
            received.extend(sender.tx.sends.iter().map(datagram));
            maybe_counted(inb, || in_turn(receiver, wire, received, esp));
        }
    }

    fn count(mut self) {
        let mut lent = Lent::default();
        for (out, inb, what) in [(false, false, ""), (true, false, "out"), (false, true, "in")] {
            let times = if what.is_empty() { WARM } else { self.times };
            (0..times).for_each(|_| self.run(&mut lent, out, inb));
            if !what.is_empty() {
                println!("{what}\t{}\t{}", self.packets * times as u64, self.name);
                done();
            }
        }
        // A path that drops is short.
        let packets = self.packets * (WARM + 2 * self.times) as u64;
        for counters in [self.sender.engine.counters(), self.receiver.engine.counters()] {
            assert!(counters.balance(), "{}: {counters:?}", self.name);
            assert_eq!(counters.dropped_out() + counters.dropped_in(), 0, "{}: {counters:?}", self.name);
        }
        assert_eq!(self.sender.engine.counters().traffic.out_sent, packets, "{}", self.name);
        assert_eq!(self.receiver.engine.counters().traffic.in_packets, packets, "{}", self.name);
    }
}

/// Frames as a gateway reads them, one behind the other.
fn turn(packets: &[Packet]) -> (Vec<u8>, Vec<Frame>) {
    let (mut read, mut frames) = (Vec::new(), Vec::new());
    for (bytes, offload) in packets {
        frames.push(Frame { start: read.len(), len: bytes.len(), offload: *offload });
        read.extend_from_slice(bytes);
    }
    (read, frames)
}

/// From frames to a sealed batch.
fn out_turn(sender: &mut Sender, buf: &mut [u8], frames: &[Frame]) {
    let Sender { worker, tx, .. } = sender;
    tx.clear();
    worker.begin(SECOND);
    assert!(!worker.release(tx), "nothing waits");
    let mut rest = frames;
    while let Some(first) = rest.first() {
        let full = |f: &Frame| f.start + f.len - first.start > BURST_BYTES;
        let burst = rest.iter().position(full).map_or(rest.len(), |i| i + 1).min(BURST_FRAMES);
        let (now, later) = rest.split_at(burst);
        assert_eq!(worker.outbound_burst(buf, now, tx), burst, "a turn is one batch");
        rest = later;
    }
    worker.seal(tx);
}

/// From what was received to what the device is given.
fn in_turn(receiver: &mut Receiver, wire: &mut [u8], received: &[Datagram], esp: &mut Vec<Datagram>) {
    let Receiver { worker, rx, .. } = receiver;
    worker.begin(SECOND);
    let large = received.iter().map(|d| d.len).sum::<u32>() > LARGE * received.len() as u32;
    for slots in received.chunks(if large { LARGE_SLOTS } else { SLOTS }) {
        rx.clear();
        match slots[0].carrier {
            ironswan_ipsec::Carrier::Udp => {
                esp.clear();
                for datagram in slots {
                    demux(wire, datagram, esp, |_, _| ());
                }
                worker.inbound(wire, esp, rx);
            }
            _ => worker.inbound(wire, slots, rx),
        }
        black_box(&rx.writes);
    }
}

fn maybe_counted(count: bool, mut work: impl FnMut()) {
    if count { counted(&mut work) } else { work() }
}

/// Valgrind counts in here, and nowhere else (`--toggle-collect`).
#[inline(never)]
fn counted(work: &mut dyn FnMut()) {
    black_box(work)();
}

/// Valgrind writes down what it has counted (`--dump-after`).
#[inline(never)]
fn done() {
    black_box(());
}

fn udp(len: usize, change: impl FnOnce(&mut Spec)) -> Packet {
    let mut spec = Spec::udp(len);
    change(&mut spec);
    (spec.build(), Offload::NONE)
}

fn several(count: u16, len: usize, change: impl Fn(u16, &mut Spec)) -> Vec<Packet> {
    let packet = |i| {
        udp(len, |spec| {
            spec.id = i;
            change(i, spec);
        })
    };
    (0..count).map(packet).collect()
}

fn main() {
    eprintln!("{}", null::choose());
    // Whole segments of 1,400 bytes of inner packet.
    let tcp: Vec<_> = (0..3u32)
        .map(|i| Spec { seq: i * 64_704, id: (i * 48) as u16, ..Spec::tcp(64_704) }.superpacket(1_348))
        .collect();
    let tcp6: Vec<_> = (0..3u32)
        .map(|i| Spec { seq: i * 64_704, ..Spec::tcp(64_704) }.over_v6().superpacket(1_328))
        .collect();
    let flow = |_: u16, _: &mut Spec| ();
    let tunnel = || outbound(false);
    let transport = SaAdd { mode: TRANSPORT, ..tunnel() };
    let compressed = SaAdd { options: SaOptions { ipcomp: Some(7), ..SaOptions::default() }, ..tunnel() };
    Case::new("TCP 64 KB super-packets, 1,400 B", tunnel(), 3 * 48, tcp).count();
    Case::new("TCP 64 KB super-packets over IPv6, 1,400 B", tunnel(), 3 * 49, tcp6).count();
    Case::new("UDP 1,400 B, one flow", tunnel(), 160, several(160, 1_372, flow)).count();
    Case::new("UDP 64 B, one flow", tunnel(), 256, several(256, 36, flow)).count();
    let many_flows: Vec<_> = several(1_024, 36, |i, s| s.ports.0 = i);
    let mut flows = Case::new("UDP 64 B, 1,024 flows", tunnel(), 1_024, Vec::new());
    (flows.turns, flows.times) = (many_flows.chunks(256).map(turn).collect(), 4);
    flows.count();
    Case::many("UDP 64 B, 10,000 SAs at random", 256).count();
    Case::new("AH, UDP 1,400 B", ah(false), 160, several(160, 1_372, flow)).count();
    let hosts = several(160, 1_372, |_, s| *s = between(s.clone()));
    Case::new("transport mode, UDP 1,400 B", transport, 160, hosts).count();
    Case::new("IPComp that does not pay, UDP 64 B", compressed, 256, several(256, 36, flow)).count();
}
