//! Frames that were read together leave as they do one by one, whatever was foreseen of them.

use std::sync::Arc;

use ironswan_crypto::rng::Seeded;
use ironswan_ipsec::{Config, Counters, Engine, Frame, TxBatch, TxConfig, Worker};
use ironswan_wire::offload::Offload;
use ironswan_wire::sadb::{Action, Command, Direction, Entry, PolicyAdd, ReqId};
use ironswan_wire::selector::{AddrRange, TrafficSelector};

use super::common::*;

/// So many that memory is asked for ahead.
const SAS: u32 = 600;
const REMOTE: u32 = 0x2000_0000;

fn engine() -> Arc<Engine> {
    let engine = Engine::new(Box::new(Seeded::new(1)), Config::default());
    let any = TrafficSelector::addresses(AddrRange::any(false));
    let options = Options { left: vec![any], right: vec![any], ..Options::default() };
    for k in 0..SAS {
        let sa = options.sa(Direction::Out, SPI + k, k + 1, k.into());
        engine.apply(SECOND, &Command::SaAdd(Box::new(sa))).unwrap();
        let host = (REMOTE + k).to_be_bytes().into();
        let remote = TrafficSelector::addresses(AddrRange::new(host, host).unwrap());
        let action = Action::Protect(ReqId(k + 1));
        let policy = PolicyAdd {
            name: String::new(),
            action,
            local: any,
            remote,
            priority: 0,
            entry: Entry::default(),
        };
        engine.apply(SECOND, &Command::PolicyAdd(policy)).unwrap();
    }
    engine
}

/// For SAs in disorder, for none, fragments, and what is no packet.
fn frames() -> Vec<Vec<u8>> {
    (0..400u32)
        .map(|i| {
            let dst = (REMOTE + i * 7_919 % (SAS + 20)).to_be_bytes().into();
            let mut frame = Spec { dst, ports: (i as u16, 53), ..Spec::udp(36 + i as usize % 50) }.build();
            match i % 11 {
                3 => frame[6..8].copy_from_slice(&[0x20, 0]),
                4 => frame[6..8].copy_from_slice(&[0, 9]),
                5 => frame.truncate(11),
                6 => frame.clear(),
                _ => {}
            }
            frame
        })
        .collect()
}

/// Everything that was sent, and what was counted.
fn run(
    mut outbound: impl FnMut(&mut Worker, &mut TxBatch, &mut dyn FnMut(&mut Worker, &mut TxBatch)),
) -> (Vec<Vec<u8>>, Counters) {
    let engine = engine();
    let mut worker = Worker::new(engine.clone());
    worker.begin(SECOND);
    let mut tx = TxBatch::new(TxConfig { capacity: 4_096, ..TxConfig::default() });
    let mut sent = Vec::new();
    let mut flush = |worker: &mut Worker, tx: &mut TxBatch| {
        worker.seal(tx);
        sent.extend(tx.sends.iter().map(|s| tx.bytes(s).to_vec()));
        tx.clear();
    };
    outbound(&mut worker, &mut tx, &mut flush);
    flush(&mut worker, &mut tx);
    drop(worker);
    (sent, engine.counters())
}

#[test]
fn a_burst_leaves_as_its_frames_do() {
    let one_by_one = run(|worker, tx, flush| {
        for mut frame in frames() {
            while !worker.outbound(&mut frame, &Offload::NONE, tx) {
                flush(worker, tx);
            }
        }
    });
    let together = run(|worker, tx, flush| {
        let mut buf = Vec::new();
        let mut places = Vec::new();
        for frame in frames() {
            places.push(Frame { start: buf.len(), len: frame.len(), offload: Offload::NONE });
            buf.extend_from_slice(&frame);
        }
        for mut rest in places.chunks(64) {
            loop {
                rest = &rest[worker.outbound_burst(&mut buf, rest, tx)..];
                if rest.is_empty() {
                    break;
                }
                flush(worker, tx);
            }
        }
    });
    let bytes: usize = one_by_one.0.iter().map(Vec::len).sum();
    assert!(bytes > 20_000, "{bytes}");
    assert_eq!(one_by_one, together);
}

#[test]
fn a_frame_that_is_not_in_the_buffer_is_dropped() {
    let (sent, counters) = run(|worker, tx, _| {
        let beyond = Frame { start: 90, len: 60, offload: Offload::NONE };
        let far = Frame { start: usize::MAX, len: usize::MAX, ..beyond };
        assert_eq!(worker.outbound_burst(&mut [0x45; 100], &[beyond, far], tx), 2);
    });
    assert_eq!((sent.len(), counters.traffic.out_frames), (0, 2));
}
