//! Many SAs: packets of 10,000 flows in random order, on one SA, and on 10,000 with a peer each.
//! Reads, batches and receives are as large as a gateway's. Both rows are measured in turns, each
//! beside sealing and opening alone with as many keys.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ironswan_crypto::batch::{self, EspKey, Job};
use ironswan_crypto::rng::{Rng, Seeded};
use ironswan_ipsec::{Datagram, Engine, Frame, RxBatch, TxBatch, TxConfig, Worker};
use ironswan_wire::offload::Offload;
use ironswan_wire::sadb::{Action, Command, Direction, Entry, PolicyAdd, ReqId, SaAdd};
use ironswan_wire::selector::{AddrRange, TrafficSelector};

use super::common::*;
use super::{CAPACITY, READ_BYTES, READ_FRAMES, TURN_FRAMES, key_of, layout, quiet};

const SAS: u32 = 10_000;
/// IPv4 and UDP.
const HEADERS: usize = 28;
/// What a gateway receives at once.
const RECEIVES: usize = 64;
const ROUNDS: usize = 60;

struct Row {
    name: &'static str,
    out: Worker,
    inb: Worker,
    /// What differs between the packets, in the order in which they leave.
    heads: Vec<[u8; HEADERS]>,
    /// For sealing and opening alone: of each packet.
    #[allow(clippy::vec_box, reason = "keys that move leave copies behind")]
    keys: Vec<Box<EspKey>>,
    of: Vec<usize>,
    times: [Vec<f64>; 4],
}

/// Flow number `i`: one address on either side.
fn flow(i: u32, size: usize) -> Vec<u8> {
    let (src, dst) = ((0x0a00_0000 + i).to_be_bytes().into(), (0x2000_0000 + i).to_be_bytes().into());
    Spec { src, dst, ports: (4_000, 53), ..Spec::udp(size - HEADERS) }.build()
}

fn network(addr: u32, len: u8) -> TrafficSelector {
    TrafficSelector::addresses(AddrRange::prefix(addr.to_be_bytes().into(), len).unwrap())
}

impl Row {
    fn new(name: &'static str, algorithm: Algorithm, sas: u32, size: usize) -> Self {
        let config = config();
        let engine = |seed| -> Arc<Engine> { Engine::new(Box::new(Seeded::new(seed)), config) };
        let (a, b) = (engine(1), engine(2));
        let mut keys = Vec::new();
        for k in 0..sas {
            // With one SA, it has all flows.
            let len = if sas == 1 { 8 } else { 32 };
            let (left, right) = (network(0x0a00_0000 + k, len), network(0x2000_0000 + k, len));
            let options = Options { algorithm, left: vec![left], right: vec![right], ..Options::default() };
            let reqid = k + 1;
            let peer = |sa: SaAdd| SaAdd { remote: (((203 << 24) + k).to_be_bytes(), 4_500).into(), ..sa };
            let out = peer(options.sa(Direction::Out, SPI + k, reqid, k.into()));
            let inb = peer(options.sa(Direction::In, SPI + k, reqid, k.into()));
            keys.push(key_of(&out));
            a.apply(SECOND, &Command::SaAdd(Box::new(out))).unwrap();
            b.apply(SECOND, &Command::SaAdd(Box::new(inb))).unwrap();
            let action = Action::Protect(ReqId(reqid));
            let policy = PolicyAdd {
                name: String::new(),
                action,
                local: left,
                remote: right,
                priority: 0,
                entry: Entry::default(),
            };
            a.apply(SECOND, &Command::PolicyAdd(policy)).unwrap();
        }
        let mut order: Vec<u32> = (0..SAS).collect();
        let mut rng = Seeded::new(7);
        for i in (1..order.len()).rev() {
            let mut b = [0; 4];
            rng.fill(&mut b);
            order.swap(i, u32::from_le_bytes(b) as usize % (i + 1));
        }
        Self {
            name,
            out: Worker::new(a),
            inb: Worker::new(b),
            heads: order.iter().map(|i| *flow(*i, size).first_chunk().unwrap()).collect(),
            keys,
            of: order.iter().map(|i| (i % sas) as usize).collect(),
            times: Default::default(),
        }
    }

    /// One packet of each flow.
    fn round(&mut self, memory: &mut Memory, size: usize) {
        let Memory { read, frames, tx, rx, wire, jobs } = memory;
        let mut spent = [Duration::ZERO; 4];
        let mut timed = |at: usize, t: Instant| spent[at] += t.elapsed();
        let at_once = TURN_FRAMES.min(CAPACITY / (size + 100));
        let mut received: Vec<Datagram> = Vec::new();
        for (heads, of) in self.heads.chunks(at_once).zip(self.of.chunks(at_once)) {
            tx.clear();
            for some in heads.chunks(frames.len()) {
                // The device's copy.
                for (frame, head) in frames.iter().zip(some) {
                    read[frame.start..frame.start + HEADERS].copy_from_slice(head);
                }
                let t = Instant::now();
                self.out.begin(SECOND);
                assert_eq!(self.out.outbound_burst(read, &frames[..some.len()], tx), some.len());
                timed(0, t);
            }
            let t = Instant::now();
            self.out.seal(tx);
            timed(0, t);

            received.clear();
            // From the peer that each was for, back to where it came from.
            received.extend(tx.sends.iter().map(|s| Datagram { remote: s.remote, ..datagram(s) }));
            wire[..tx.used()].copy_from_slice(&tx.buf[..tx.used()]);
            let mut delivered = 0;
            for some in received.chunks(RECEIVES) {
                rx.clear();
                let t = Instant::now();
                self.inb.begin(SECOND);
                self.inb.inbound(wire, some, rx);
                timed(2, t);
                delivered += rx.writes.len();
            }
            assert_eq!(delivered, heads.len());

            layout(tx, jobs);
            let keys: Vec<&EspKey> = of.iter().map(|k| &*self.keys[*k]).collect();
            jobs.iter_mut().enumerate().for_each(|(i, job)| job.key = i as u16);
            let t = Instant::now();
            batch::seal(&mut tx.buf, jobs, &keys);
            timed(1, t);
            let t = Instant::now();
            batch::open(&mut tx.buf, jobs, &keys);
            timed(3, t);
            assert!(jobs.len() == heads.len() && jobs.iter().all(|job| job.ok));
        }
        for (times, spent) in self.times.iter_mut().zip(spent) {
            times.push(spent.as_nanos() as f64 / f64::from(SAS));
        }
    }
}

/// What all rows use.
struct Memory {
    read: Vec<u8>,
    frames: Vec<Frame>,
    tx: TxBatch,
    rx: RxBatch,
    wire: Vec<u8>,
    jobs: Vec<Job>,
}

impl Memory {
    fn new(size: usize) -> Self {
        let frames = READ_FRAMES.min(READ_BYTES / size + 1);
        let one = flow(0, size);
        Self {
            read: one.repeat(frames),
            frames: (0..frames)
                .map(|i| Frame { start: i * size, len: size, offload: Offload::NONE })
                .collect(),
            tx: TxBatch::new(TxConfig { capacity: CAPACITY, ..TxConfig::default() }),
            rx: RxBatch::new(),
            wire: vec![0; CAPACITY],
            jobs: Vec::new(),
        }
    }
}

/// Prints the table.
pub fn run(wanted: impl Fn(&str) -> bool) {
    println!(
        "\nns per packet, {SAS} flows in random order (second best of {ROUNDS} rounds in turns), and how many times what one SA costs"
    );
    println!(
        "{:<18}{:<10}{:<10}{:>9}{:>8}{:>8}{:>8}{:>9}{:>8}{:>8}{:>8}",
        "suite", "bytes", "SAs", "outbound", "seal", "added", "", "inbound", "open", "added", ""
    );
    for algorithm in [AES128GCM, CBC_SHA1] {
        for size in [64, 1_400] {
            if !wanted(&format!("many SAs {} {size} B", algorithm.name)) {
                continue;
            }
            let mut rows = [Row::new("one", algorithm, 1, size), Row::new("one each", algorithm, SAS, size)];
            let mut memory = Memory::new(size);
            for round in 0..=ROUNDS {
                for row in &mut rows {
                    row.round(&mut memory, size);
                    if round == 0 {
                        row.times = Default::default();
                    }
                }
            }
            let mut first = None;
            for row in rows {
                let [o, s, i, p] = row.times.map(quiet);
                let (of_o, of_i) = *first.get_or_insert((o, i));
                println!(
                    "{:<18}{:<10}{:<10}{:>9.1}{:>8.1}{:>8.1}{:>7.2}x{:>9.1}{:>8.1}{:>8.1}{:>7.2}x",
                    algorithm.name,
                    size,
                    row.name,
                    o,
                    s,
                    o - s,
                    o / of_o,
                    i,
                    p,
                    i - p,
                    i / of_i
                );
            }
        }
    }
}
