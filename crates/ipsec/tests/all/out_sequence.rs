//! Sequence numbers near 2^32, where those that are not extended end and the others go on: every
//! protocol and mode, with what gets lost, comes twice or overtakes on the way, in both directions.

use ironswan_crypto::rng::{Rng, Seeded};
use ironswan_ipsec::DropReason;
use ironswan_wire::offload::Offload;
use ironswan_wire::proposal::EspSuite;
use ironswan_wire::sadb::{SaAdd, Up};

use crate::common::*;
use crate::out_common::*;

const WINDOWS: [u32; 4] = [32, 64, 4_096, 65_536];
const WRAP: u64 = 1 << 32;

/// Every protocol and mode.
fn kinds() -> [SaAdd; 5] {
    [
        outbound(false),
        ah(false),
        SaAdd { mode: TRANSPORT, ..outbound(true) },
        SaAdd { mode: TRANSPORT, udp_encap: true, ..outbound(false) },
        SaAdd { mode: TRANSPORT, ..ah(true) },
    ]
}

fn with_esn(sa: SaAdd, esn: bool) -> SaAdd {
    SaAdd { suite: EspSuite { esn, ..sa.suite }, ..sa }
}

/// The n-th packet of a flow that the SA carries.
fn packet(sa: &SaAdd, n: u64) -> Vec<u8> {
    let spec = udp_between(sa.remote.is_ipv6(), 0);
    Spec { payload: n.to_be_bytes().to_vec(), ..spec }.build()
}

/// Of what [`packet`] makes: ESP in transport mode has no header to bring.
fn payload(packet: &[u8]) -> &[u8] {
    &packet[packet.len() - 8..]
}

/// An SA's two ends, both at this sequence number.
fn line(sa: SaAdd, window: u32, at: u64) -> (Sender, Receiver) {
    let s = Sender::new(sa);
    let r = Receiver::of(&s.sa, window);
    s.engine.advance_sequence(s.name(), at).unwrap();
    r.engine.advance_sequence(r.name(), at).unwrap();
    (s, r)
}

/// The other direction of an SA, of keys of its own.
fn back(sa: &SaAdd) -> SaAdd {
    let spi = ironswan_wire::sadb::Spi(sa.spi.0 + 1);
    SaAdd { spi, local: sa.remote, remote: sa.local, ..sa.clone() }
}

#[test]
fn what_is_lost_and_what_overtakes_around_the_wrap_harms_nothing() {
    for kind in kinds() {
        for window in WINDOWS {
            for (direction, sa) in [kind.clone(), back(&kind)].into_iter().enumerate() {
                let sa = with_esn(sa, true);
                let mut rng = Seeded::new(u64::from(window) + direction as u64);
                // A third is sent before the wrap.
                let count = u64::from(window.min(300)) * 3;
                let (mut s, mut r) = line(sa, window, WRAP - count / 3);
                let reversed = direction == 1;
                let mut frames: Vec<_> = (0..count).map(|n| packet(&s.sa, n)).collect();
                if reversed {
                    for frame in &mut frames {
                        *frame = Spec { src: read(frame).dst, dst: read(frame).src, ..read(frame) }.build();
                    }
                }
                let sent: Vec<_> = frames.iter().map(|f| s.one(f)).collect();
                assert!(s.engine.take_up().is_empty(), "nothing runs out");
                // Each is lost, comes once or twice, and late by less than a window.
                let mut arrivals: Vec<(u64, usize)> = Vec::new();
                for i in 0..sent.len() {
                    for _ in 0..[0, 1, 1, 2][rng.u32() as usize % 4] {
                        arrivals.push((i as u64 + u64::from(rng.u32() % (window.min(300) - 1)), i));
                    }
                }
                arrivals.sort_by_key(|(at, _)| *at);
                let mut seen = vec![false; sent.len()];
                for (_, i) in arrivals {
                    let got = r.each(std::slice::from_ref(&sent[i]));
                    if seen[i] {
                        assert!(got.is_empty(), "{i} a second time");
                    } else {
                        assert_eq!(got.len(), 1, "window {window}, {i}");
                        assert_eq!(payload(&got[0]), payload(&frames[i]));
                    }
                    seen[i] = true;
                }
                let c = r.engine.counters();
                let reasons: Vec<_> = c.drops().filter(|(_, n)| *n != 0).map(|(r, _)| r).collect();
                assert_eq!(reasons, [DropReason::InStateSeqDuplicate]);
                assert!(seen.iter().filter(|s| !**s).count() as u64 > count / 10, "some were lost");
                assert!(r.engine.sas()[0].sequence > WRAP);
            }
        }
    }
}

#[test]
fn a_long_silence_across_the_wrap_is_bridged() {
    // Everything is lost but the first and the last.
    for kind in kinds() {
        for window in WINDOWS {
            let (mut s, mut r) = line(with_esn(kind.clone(), true), window, WRAP - 10);
            let frame = packet(&s.sa, 1);
            let first = s.one(&frame);
            assert_eq!(r.each(std::slice::from_ref(&first)).len(), 1);
            s.engine.advance_sequence(s.name(), WRAP + 1_000_000).unwrap();
            let last = s.one(&frame);
            assert_eq!(r.each(std::slice::from_ref(&last)).len(), 1);
            assert_eq!(r.engine.sas()[0].sequence, WRAP + 1_000_001);
            assert!(r.each(&[first, last]).is_empty());
        }
    }
}

#[test]
fn without_extended_numbers_the_last_is_the_last() {
    for kind in kinds() {
        for window in WINDOWS {
            let (mut s, mut r) = line(with_esn(kind.clone(), false), window, WRAP - 41);
            let frames: Vec<_> = (0..40).map(|n| packet(&s.sa, n)).collect();
            let sent: Vec<_> = frames.iter().map(|f| s.one(f)).collect();
            // Every third is lost, the rest comes in pairs that have changed places.
            let mut arrivals: Vec<_> = (0..40).filter(|i| i % 3 != 1).collect();
            for pair in arrivals.chunks_mut(2) {
                pair.reverse();
            }
            for i in &arrivals {
                let got = r.each(&sent[*i..=*i]);
                assert_eq!((got.len(), payload(&got[0])), (1, payload(&frames[*i])));
            }
            assert_eq!(r.engine.sas()[0].sequence, WRAP - 1);
            // "the sender MUST NOT send a packet on an SA if doing so would cause the sequence
            // number to cycle".
            for _ in 0..3 {
                assert_eq!(s.refused(&frames[0]), DropReason::OutStateSeqError);
            }
            let sa = s.name();
            let ups = s.engine.take_up();
            assert_eq!(ups, [Up::Expire { sa, hard: false }, Up::Expire { sa, hard: true }]);
            assert_eq!(s.engine.sas()[0].sequence, WRAP - 1);
            for i in arrivals {
                assert!(r.each(&sent[i..=i]).is_empty());
            }
        }
    }
}

#[test]
fn a_superpacket_across_the_wrap_goes_whole_or_not_at_all() {
    for (sa, v6) in [(ah(false), false), (SaAdd { mode: TRANSPORT, ..outbound(true) }, true)] {
        let spec = Spec::tcp(10_000);
        let frame = between(if v6 { spec.over_v6() } else { spec }).superpacket(1_000);
        let (mut s, mut r) = line(with_esn(sa.clone(), true), 64, WRAP - 5);
        let sent = s.send(std::slice::from_ref(&frame));
        assert_eq!(sent.len(), 10);
        assert_eq!(r.open(&sent).len(), 1, "one write again");
        assert_eq!(r.engine.counters().traffic.in_merged, 9);
        let (mut s, _) = line(with_esn(sa, false), 64, WRAP - 5);
        assert!(s.send(std::slice::from_ref(&frame)).is_empty());
        assert_eq!(s.engine.counters().dropped(DropReason::OutStateSeqError), 1);
        let small = packet(&s.sa, 0);
        assert_eq!(s.send(&vec![(small, Offload::NONE); 4]).len(), 4);
    }
}

#[test]
fn numbers_never_come_back_when_they_are_moved() {
    for kind in kinds() {
        let (mut s, _) = line(with_esn(kind, true), 64, 1_000);
        s.engine.advance_sequence(s.name(), 5).unwrap();
        let frame = packet(&s.sa, 0);
        s.one(&frame);
        assert_eq!(s.engine.sas()[0].sequence, 1_001);
        s.engine.advance_sequence(s.name(), u64::MAX - 1).unwrap();
        s.one(&frame);
        assert_eq!(s.refused(&frame), DropReason::OutStateSeqError);
    }
}
