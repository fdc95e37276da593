//! What IPComp (RFC 3173) costs and gains on the packet path, one thread, from memory to memory:
//! the whole way out and in of an SA with and without it, interleaved.
//! `cargo bench -p ironswan-ipsec --bench ipcomp`.
//!
//! "over none" is the way out with IPComp, of 1 without: what random data must keep below 1.1,
//! since the adaptive rule hardly tries.
#![allow(clippy::disallowed_methods, reason = "a bench reads the clock")]

#[path = "../tests/all/common.rs"]
mod common;

use std::time::Instant;

use common::*;
use ironswan_crypto::rng::{Rng, Seeded};
use ironswan_ipsec::{Config, Datagram, Engine, RxBatch, TxBatch, TxConfig, Worker};
use ironswan_wire::offload::Offload;
use ironswan_wire::sadb::{Command, Direction, SaOptions};

const ROUNDS: usize = 25;
/// Packets of a batch, as many as a gateway seals at a time.
const PACKETS: usize = 160;
/// Batches of a round of random data: 2,560 packets, so that some are tried in every round. Of text
/// all are: one will do.
const BATCHES: usize = 16;

struct Ends {
    out: Worker,
    inb: Worker,
    tx: TxBatch,
    rx: RxBatch,
    wire: Vec<u8>,
}

impl Ends {
    fn new(algorithm: Algorithm, ipcomp: Option<u16>) -> Self {
        let options = Options { algorithm, window: 0, ..Options::default() };
        let worker = |direction| {
            let engine = Engine::new(Box::new(Seeded::new(1)), Config::default());
            let mut sa = options.sa(direction, SPI, REQID, 42);
            sa.options = SaOptions { ipcomp, ..SaOptions::default() };
            for policy in options.policies(REQID) {
                engine.apply(SECOND, &Command::PolicyAdd(policy)).unwrap();
            }
            engine.apply(SECOND, &Command::SaAdd(Box::new(sa))).unwrap();
            Worker::new(engine)
        };
        let tx = TxBatch::new(TxConfig { capacity: 4 << 20, ..TxConfig::default() });
        Self {
            out: worker(Direction::Out),
            inb: worker(Direction::In),
            tx,
            rx: RxBatch::new(),
            wire: Vec::new(),
        }
    }

    /// Nanoseconds per packet out and in, and bytes sent.
    fn round(&mut self, batches: usize, frames: &[Vec<u8>], copies: &mut [Vec<u8>]) -> (f64, f64, usize) {
        let (mut out, mut inb, mut bytes) = (0, 0, 0);
        for _ in 0..batches {
            for (copy, frame) in copies.iter_mut().zip(frames) {
                copy.copy_from_slice(frame);
            }
            let t = Instant::now();
            self.tx.clear();
            self.out.begin(SECOND);
            for frame in copies.iter_mut() {
                assert!(self.out.outbound(frame, &Offload::NONE, &mut self.tx));
            }
            self.out.seal(&mut self.tx);
            out += t.elapsed().as_nanos();
            bytes += self.tx.used();
            self.wire.clear();
            self.wire.extend_from_slice(&self.tx.buf[..self.tx.used()]);
            let received: Vec<Datagram> = self.tx.sends.iter().map(datagram).collect();
            let t = Instant::now();
            self.rx.clear();
            self.inb.begin(SECOND);
            self.inb.inbound(&mut self.wire, &received, &mut self.rx);
            inb += t.elapsed().as_nanos();
            assert!(!self.rx.writes.is_empty());
        }
        let per = |total: u128| total as f64 / (batches * frames.len()) as f64;
        (per(out), per(inb), bytes)
    }
}

/// The second best of the rounds: what the code takes when the machine does nothing else.
fn quiet(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[1]
}

/// Makes a payload of so many bytes, different for each number.
type Make = fn(usize, usize) -> Vec<u8>;

/// Words of this repository's own documentation, from different places.
fn text(len: usize, at: usize) -> Vec<u8> {
    let all = include_bytes!("../../../ARCHITECTURE.md");
    let start = at * 977 % (all.len() - len);
    all[start..start + len].to_vec()
}

fn noise(len: usize, at: usize) -> Vec<u8> {
    let mut out = vec![0; len];
    Seeded::new(at as u64).fill(&mut out);
    out
}

fn main() {
    println!(
        "ns per packet, second best of {ROUNDS} rounds of {PACKETS} packets of text, {} of random data",
        BATCHES * PACKETS
    );
    println!(
        "{:<18}{:<8}{:>6}{:>10}{:>10}{:>11}{:>11}{:>11}{:>8}",
        "suite", "payload", "bytes", "out", "IPComp", "over none", "in", "IPComp", "size"
    );
    for algorithm in [AES128GCM, CBC_SHA256] {
        for (name, make, batches) in [("text", text as Make, 1), ("random", noise, BATCHES)] {
            for size in [64, 512, 1_400] {
                run(algorithm, name, size, make, batches);
            }
        }
    }
}

fn run(algorithm: Algorithm, name: &str, size: usize, make: Make, batches: usize) {
    let one = |i| Spec { payload: make(size - 28, i), ports: (i as u16 % 7, 9), ..Spec::udp(0) }.build();
    let frames: Vec<Vec<u8>> = (0..PACKETS).map(one).collect();
    let mut copies = frames.clone();
    let mut plain = Ends::new(algorithm, None);
    let mut compressing = Ends::new(algorithm, Some(0x1234));
    let (mut none, mut with, mut in_none, mut in_with) = (vec![], vec![], vec![], vec![]);
    let (mut bytes, mut bytes_with) = (0, 0);
    // In the first rounds more is tried.
    for round in 0..ROUNDS + 2 {
        let (out, inb, used) = plain.round(batches, &frames, &mut copies);
        let (out_with, in_of_it, used_with) = compressing.round(batches, &frames, &mut copies);
        if round >= 2 {
            none.push(out);
            in_none.push(inb);
            with.push(out_with);
            in_with.push(in_of_it);
            bytes += used;
            bytes_with += used_with;
        }
    }
    let (none, with) = (quiet(none), quiet(with));
    println!(
        "{:<18}{name:<8}{size:>6}{none:>10.0}{with:>10.0}{:>11.3}{:>11.0}{:>11.0}{:>8.3}",
        algorithm.name,
        with / none,
        quiet(in_none),
        quiet(in_with),
        bytes_with as f64 / bytes as f64,
    );
}
