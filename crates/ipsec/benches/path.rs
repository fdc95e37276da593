//! The packet path, one thread, from memory to memory: nanoseconds per packet, beside sealing and
//! opening alone with the same keys on the same buffers, interleaved; then by the number of SAs,
//! and of policies. `[IRONSWAN_ENGINE=vaes] cargo bench -p ironswan-ipsec --bench path [-- NAME]`.
#![allow(clippy::disallowed_methods, reason = "a bench reads the clock")]

#[path = "../tests/all/common.rs"]
mod common;
#[path = "path/many.rs"]
mod many;
#[path = "path/policies.rs"]
mod policies;

use std::time::{Duration, Instant};

use common::*;
use ironswan_crypto::batch::{self, EspKey, Job};
use ironswan_crypto::engines::Engines;
use ironswan_crypto::rng::Seeded;
use ironswan_ipsec::{Datagram, Frame, Send, TxBatch, TxConfig};
use ironswan_wire::offload::Offload;
use ironswan_wire::sadb::{Direction, SaAdd};

const ROUNDS: usize = 80;
/// What a gateway reads before it looks, and seals at once.
const READ_FRAMES: usize = 64;
const READ_BYTES: usize = 16 * 1024;
const TURN_FRAMES: usize = 256;
const CAPACITY: usize = 256 * 1024;

/// The key of this SA.
fn key_of(sa: &SaAdd) -> Box<EspKey> {
    let (encr, integ) = (sa.encr_key.expose(), sa.integ_key.expose());
    EspKey::with_engines(&sa.suite, encr, integ, &mut Seeded::new(9), &Engines::of_environment())
        .expect("a key of ours")
}

struct Case {
    name: &'static str,
    frames: Vec<(Vec<u8>, Offload)>,
    packets: usize,
    bytes: usize,
}

fn cases() -> Vec<Case> {
    let tcp: Vec<_> = (0..3u32)
        .map(|i| Spec { seq: i * 64_704, id: (i * 48) as u16, ..Spec::tcp(64_704) }.superpacket(1_348))
        .collect();
    let tcp6: Vec<_> = (0..3u32)
        .map(|i| Spec { seq: i * 64_704, ..Spec::tcp(64_704) }.over_v6().superpacket(1_328))
        .collect();
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
    for algorithm in [AES128GCM, AES256GCM, CHACHA, CBC_SHA1, CBC_SHA256] {
        for case in cases() {
            let name = format!("{} {}", algorithm.name, case.name);
            if filter.iter().all(|f| name.contains(f.as_str())) {
                run(algorithm, &case);
            }
        }
    }
    many::run(|name| filter.iter().all(|f| name.contains(f.as_str())));
    policies::run(|name| filter.iter().all(|f| name.contains(f.as_str())));
}

fn run(algorithm: Algorithm, case: &Case) {
    let tx = TxConfig { capacity: CAPACITY, ..TxConfig::default() };
    let engines = Engines::of_environment();
    let mut pair = Pair::new(Options { algorithm, tx, window: 0, engines, ..Options::default() });
    let mut wire = vec![0; CAPACITY];
    let key = key_of(&pair.options.sa(Direction::Out, SPI, REQID, 42));
    let mut reads = turns(case);
    let mut jobs: Vec<Job> = Vec::new();
    let mut received: Vec<Datagram> = Vec::new();
    let mut times: [Vec<f64>; 4] = Default::default();
    let repeat = (1_000 / case.packets).max(1);
    let mut writes = 0;
    for round in 0..ROUNDS + 2 {
        let mut spent = [Duration::ZERO; 4];
        writes = 0;
        for turn in 0..repeat * reads.len() {
            // The whole path out. The device's copy into the frame is not part of it, so frames are
            // restored outside the clock.
            pair.tx.clear();
            let turn = turn % reads.len();
            for (buf, frames, original) in &mut reads[turn] {
                buf.copy_from_slice(original);
                let t = Instant::now();
                pair.wa.begin(SECOND);
                assert_eq!(pair.wa.outbound_burst(buf, frames, &mut pair.tx), frames.len());
                spent[0] += t.elapsed();
            }
            let t = Instant::now();
            pair.wa.seal(&mut pair.tx);
            spent[0] += t.elapsed();
            // Sealing alone, on the same packets.
            layout(&pair.tx, &mut jobs);
            let used = pair.tx.used();
            wire[..used].copy_from_slice(&pair.tx.buf[..used]);
            let t = Instant::now();
            batch::seal(&mut wire, &mut jobs, &[&key]);
            spent[1] += t.elapsed();
            // The whole path in, and opening alone.
            received.clear();
            received.extend(pair.tx.sends.iter().map(datagram));
            wire[..used].copy_from_slice(&pair.tx.buf[..used]);
            pair.rx.clear();
            let t = Instant::now();
            pair.wb.begin(SECOND);
            pair.wb.inbound(&mut wire, &received, &mut pair.rx);
            spent[2] += t.elapsed();
            let delivered: usize = pair.rx.writes.iter().map(|w| w.total as usize).sum();
            assert!(delivered > case.bytes / reads.len() / 2);
            writes += pair.rx.writes.len();
            wire[..used].copy_from_slice(&pair.tx.buf[..used]);
            let t = Instant::now();
            batch::open(&mut wire, &mut jobs, &[&key]);
            spent[3] += t.elapsed();
            assert!(jobs.iter().all(|j| j.ok));
        }
        if round >= 2 {
            for (times, spent) in times.iter_mut().zip(spent) {
                times.push(spent.as_nanos() as f64 / (repeat * case.packets) as f64);
            }
        }
    }
    let [o, s, i, p] = times.map(quiet);
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
        writes / repeat
    );
}

/// What is read before it is looked at: the buffer, the frames in it, and the bytes that the device
/// puts there.
type Read = (Vec<u8>, Vec<Frame>, Vec<u8>);

/// The frames of a case as a gateway reads them, and after which reads it seals.
fn turns(case: &Case) -> Vec<Vec<Read>> {
    let mut turns: Vec<Vec<Read>> = Vec::new();
    let (mut frames, mut room) = (0, 0);
    for (bytes, offload) in &case.frames {
        let needs = bytes.len() + 100 * (1 + bytes.len() / 1_300);
        if frames == TURN_FRAMES || room < needs {
            turns.push(Vec::new());
            (frames, room) = (0, CAPACITY);
        }
        frames += 1;
        room -= needs;
        let turn = turns.last_mut().unwrap();
        if turn.last().is_none_or(|(_, frames, all)| frames.len() == READ_FRAMES || all.len() > READ_BYTES) {
            turn.push(Default::default());
        }
        let (_, frames, all) = turn.last_mut().unwrap();
        frames.push(Frame { start: all.len(), len: bytes.len(), offload: *offload });
        all.extend_from_slice(bytes);
    }
    turns.iter_mut().flatten().for_each(|(buf, _, all)| buf.clone_from(all));
    turns
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
