//! The packet path, one thread, from memory to memory: nanoseconds per packet, beside sealing and opening alone with the
//! same keys on the same buffers, interleaved; then by the number of policies. `cargo bench -p ironswan-ipsec [-- NAME]`.
#![allow(clippy::disallowed_methods, reason = "a bench reads the clock")]

#[path = "../tests/all/common.rs"]
mod common;
#[path = "path/policies.rs"]
mod policies;

use std::time::Instant;

use common::*;
use ironswan_crypto::batch::{self, EspKey, Job};
use ironswan_crypto::rng::Seeded;
use ironswan_ipsec::{Datagram, Send, TxBatch, TxConfig};
use ironswan_wire::offload::Offload;
use ironswan_wire::sadb::Direction;

const ROUNDS: usize = 25;

struct Case {
    name: &'static str,
    frames: Vec<(Vec<u8>, Offload)>,
    packets: usize,
    bytes: usize,
}

fn cases() -> Vec<Case> {
    let tcp: Vec<_> = (0..4u32)
        .map(|i| Spec { seq: i * 64_704, id: (i * 48) as u16, ..Spec::tcp(64_704) }.superpacket(1_348))
        .collect();
    let tcp6: Vec<_> = (0..4u32)
        .map(|i| Spec { seq: i * 64_704, ..Spec::tcp(64_704) }.over_v6().superpacket(1_328))
        .collect();
    // As many as a gateway seals at a time.
    let single = |payload: usize, flows: u16, count: u16| -> Vec<_> {
        (0..count)
            .map(|i| (Spec { ports: (i % flows, 53), id: i, ..Spec::udp(payload) }.build(), Offload::NONE))
            .collect()
    };
    let case = |name, frames: Vec<(Vec<u8>, Offload)>, per: usize| Case {
        name,
        packets: frames.len() * per,
        bytes: frames.iter().map(|f| f.0.len()).sum(),
        frames,
    };
    vec![
        case("TCP 64 KB super-packets, 1,400 B", tcp, 48),
        case("TCP over IPv6, 1,400 B", tcp6, 49),
        case("UDP 1,400 B, one flow", single(1_372, 1, 160), 1),
        case("UDP 1,400 B, 64 flows", single(1_372, 64, 160), 1),
        case("UDP 64 B, one flow", single(36, 1, 256), 1),
        case("UDP 64 B, 1,024 flows", single(36, 1024, 1024), 1),
    ]
}

/// The second best of the rounds: what the code takes when the machine does nothing else.
fn quiet(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[1]
}

fn main() {
    let filter: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    println!(
        "ns per packet (second best of {ROUNDS} rounds); 'added' is the path less sealing or opening alone"
    );
    println!(
        "{:<18}{:<34}{:>9}{:>8}{:>8}{:>9}{:>8}{:>8}",
        "suite", "packets", "outbound", "seal", "added", "inbound", "open", "added"
    );
    for algorithm in [AES128GCM, AES256GCM, CHACHA, CBC_SHA256] {
        for case in cases() {
            let name = format!("{} {}", algorithm.name, case.name);
            if filter.iter().all(|f| name.contains(f.as_str())) {
                run(algorithm, &case);
            }
        }
    }
    policies::run(|name| filter.iter().all(|f| name.contains(f.as_str())));
}

fn run(algorithm: Algorithm, case: &Case) {
    let tx = TxConfig { capacity: 4 << 20, max_segments: 64, max_bytes: 65_507 };
    let mut pair = Pair::new(Options { algorithm, tx, window: 0, ..Options::default() });
    let mut copies = case.frames.clone();
    let mut wire = vec![0; 4 << 20];
    let sa = pair.options.sa(Direction::Out, SPI, REQID, 42);
    let key =
        EspKey::new(&sa.suite, sa.encr_key.expose(), sa.integ_key.expose(), &mut Seeded::new(9)).unwrap();
    let mut jobs: Vec<Job> = Vec::new();
    let mut received: Vec<Datagram> = Vec::new();
    let (mut outbound, mut seal, mut inbound, mut open) = (vec![], vec![], vec![], vec![]);
    let repeat = (3_000 / case.packets).max(1);
    let per = |t: Instant| t.elapsed().as_nanos() as f64 / (repeat * case.packets) as f64;
    for round in 0..ROUNDS + 2 {
        // The whole path out. The device's copy into the frame is not part of it, so frames are restored outside the clock.
        let mut total = 0.0;
        for _ in 0..repeat {
            for (copy, frame) in copies.iter_mut().zip(&case.frames) {
                copy.0.copy_from_slice(&frame.0);
            }
            let t = Instant::now();
            pair.tx.clear();
            pair.wa.begin(SECOND);
            for (frame, offload) in &mut copies {
                assert!(pair.wa.outbound(frame, offload, &mut pair.tx));
            }
            pair.wa.seal(&mut pair.tx);
            total += per(t);
        }
        let out = total;
        // Sealing alone, on the same packets.
        layout(&pair.tx, &mut jobs);
        assert_eq!(jobs.len(), case.packets);
        wire[..pair.tx.used()].copy_from_slice(&pair.tx.buf[..pair.tx.used()]);
        let mut total = 0.0;
        for _ in 0..repeat {
            let t = Instant::now();
            batch::seal(&mut wire, &mut jobs, &[&key]);
            total += per(t);
        }
        let sealed = total;
        // The whole path in, and opening alone.
        received.clear();
        received.extend(pair.tx.sends.iter().map(datagram));
        let mut total = 0.0;
        for _ in 0..repeat {
            wire[..pair.tx.used()].copy_from_slice(&pair.tx.buf[..pair.tx.used()]);
            let t = Instant::now();
            pair.rx.clear();
            pair.wb.begin(SECOND);
            pair.wb.inbound(&mut wire, &received, &mut pair.rx);
            total += per(t);
        }
        let inb = total;
        let delivered: usize = pair.rx.writes.iter().map(|w| w.total as usize).sum();
        assert!(delivered > case.bytes / 2);
        let mut total = 0.0;
        for _ in 0..repeat {
            wire[..pair.tx.used()].copy_from_slice(&pair.tx.buf[..pair.tx.used()]);
            let t = Instant::now();
            batch::open(&mut wire, &mut jobs, &[&key]);
            total += per(t);
        }
        assert!(jobs.iter().all(|j| j.ok));
        if round >= 2 {
            outbound.push(out);
            seal.push(sealed);
            inbound.push(inb);
            open.push(total);
        }
    }
    let (o, s, i, p) = (quiet(outbound), quiet(seal), quiet(inbound), quiet(open));
    println!(
        "{:<18}{:<34}{:>9.1}{:>8.1}{:>8.1}{:>9.1}{:>8.1}{:>8.1}   {} writes",
        algorithm.name,
        case.name,
        o,
        s,
        o - s,
        i,
        p,
        i - p,
        pair.rx.writes.len()
    );
}

/// Jobs for the packets of a batch.
fn layout(tx: &TxBatch, jobs: &mut Vec<Job>) {
    jobs.clear();
    for s in &tx.sends {
        let Send { offset, len, segment_size, .. } = *s;
        let mut at = offset;
        while at < offset + len {
            let len = u32::from(segment_size).min(offset + len - at);
            let seq = u32::from_be_bytes(tx.buf[at as usize + 4..at as usize + 8].try_into().unwrap());
            jobs.push(Job { start: at, len, seq: u64::from(seq), key: 0, ok: false });
            at += len;
        }
    }
}
