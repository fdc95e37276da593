//! Tests of the target itself: any input holds, and every kind of SA delivers.

use ironswan_wire::ip::protocol;
use ironswan_wire::sadb::Mode;

use super::*;
use crate::mutate::Rng;

fn record(kind: u8, bytes: &[u8]) -> Vec<u8> {
    [&[kind][..], &(bytes.len() as u16).to_be_bytes(), bytes].concat()
}

#[test]
fn the_target_holds_on_any_input() {
    let mut rng = Rng::new(1);
    for _ in 0..1_000 {
        let mut data = Vec::new();
        for _ in 0..rng.below(20) {
            let mut bytes: Vec<u8> = (0..rng.below(100)).map(|_| rng.number() as u8).collect();
            let (kind, valid) = (rng.number() as u8, rng.below(2) == 0);
            // Half of the records look like the end of a packet, so that the steps behind the
            // trailer are reached.
            if valid && bytes.len() > 30 {
                bytes[0] = 0x45;
                let len = bytes.len() as u16 - 2;
                bytes[2..4].copy_from_slice(&len.to_be_bytes());
                v4::set_checksum(&mut bytes[..20]);
                let n = bytes.len();
                bytes[n - 2..].copy_from_slice(&[0, 4]);
            }
            data.extend(record(if valid { kind % 9 } else { kind % 0x48 }, &bytes));
        }
        run(&data);
    }
}

/// Well-formed plaintext must come out of every SA, or the target tests nothing.
#[test]
fn every_kind_of_sa_delivers() {
    let mut packet =
        vec![0x45, 0, 0, 28, 0, 1, 0, 0, 64, 17, 0, 0, 10, 0, 0, 1, 10, 0, 0, 2, 0, 1, 0, 2, 0, 8, 0, 0];
    v4::set_checksum(&mut packet[..20]);
    for n in 0..SA_COUNT {
        let sa = sa(n);
        let (payload, next) = match sa.mode {
            Mode::Tunnel => (&packet[..], 4),
            Mode::Transport => (&packet[20..], 17),
        };
        // Without compression, and stored in a block of DEFLATE.
        let mut stored = vec![next, 0, 0x43, 0x21, 1];
        stored.extend_from_slice(&(payload.len() as u16).to_le_bytes());
        stored.extend_from_slice(&(!(payload.len() as u16)).to_le_bytes());
        stored.extend_from_slice(payload);
        let mut texts = vec![(payload.to_vec(), next)];
        if sa.options.ipcomp.is_some() {
            texts.push((stored, protocol::IPCOMP));
        }
        for (payload, next) in texts {
            for first in if is_ah(n) { 0..4 } else { 0..1 } {
                let text = if is_ah(n) {
                    [&[first], &payload[..], &[next]].concat()
                } else {
                    let mut text = payload.clone();
                    let pad = (14usize.wrapping_sub(text.len()) % 16) as u8;
                    text.extend(1..=pad);
                    text.extend_from_slice(&[pad, next]);
                    text
                };
                let engine = engine();
                let mut worker = Worker::new(engine.clone());
                let mut buf = Vec::new();
                let carrier = seal(&mut buf, n, 1, &text);
                let (remote, local) = path(false);
                let len = buf.len() as u32;
                let d = Datagram { offset: 0, len, segment_size: 0, local, remote, carrier, tos: 0 };
                let mut rx = RxBatch::new();
                worker.inbound(&mut buf, &[d], &mut rx);
                assert_eq!(rx.writes.len(), 1, "{n} {first}: {:?}", engine.counters());
                run(&record(0x10 + n as u8, &text));
            }
        }
    }
}
