//! Packets that wait for their SA.

use std::time::Duration;

use ironswan_ipsec::DropReason::*;
use ironswan_ipsec::{TxBatch, TxConfig, Worker};
use ironswan_wire::offload::Offload;
use ironswan_wire::sadb::{Action, Command, Direction, Entry, PolicyAdd, ReqId, Up};

use crate::common::*;

/// A without its SA.
fn waiting() -> Pair {
    let mut pair = Pair::new(Options::default());
    pair.a.apply(SECOND, &Command::SaDelete(pair.out_ref())).unwrap();
    pair.wa.begin(SECOND);
    pair
}

fn sa_comes(pair: &mut Pair, at: Duration) {
    let sa = pair.options.sa(Direction::Out, SPI, REQID, 42);
    pair.a.apply(at, &Command::SaAdd(Box::new(sa))).unwrap();
    pair.wa.begin(at);
}

fn give(pair: &mut Pair, frames: &[(Vec<u8>, Offload)]) {
    pair.tx.clear();
    for (frame, offload) in frames {
        assert!(pair.wa.outbound(&mut frame.clone(), offload, &mut pair.tx));
    }
    assert!(pair.tx.is_empty());
    pair.wa.seal(&mut pair.tx);
}

fn udp(port: u16) -> (Vec<u8>, Offload) {
    (Spec { ports: (port, 53), ..Spec::udp(40) }.build(), Offload::NONE)
}

/// Releases into batches, and opens what came out.
fn released(pair: &mut Pair) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    loop {
        pair.tx.clear();
        let more = pair.wa.release(&mut pair.tx);
        pair.wa.seal(&mut pair.tx);
        let esp = packets(&pair.tx);
        assert!(!more || !esp.is_empty(), "each turn makes progress");
        out.extend(pair.open_each(&esp));
        if !more {
            return out;
        }
    }
}

/// Held, dropped for want of an SA, dropped in all; the books balance.
fn books(pair: &Pair) -> (u64, u64, u64) {
    let c = pair.a.counters();
    assert!(c.balance(), "{c:?}");
    (c.held, c.dropped(OutNoStates), c.dropped_out())
}

#[test]
fn the_first_packets_wait_and_leave_in_order_before_newer_ones() {
    let mut pair = waiting();
    let frames: Vec<_> = (0..10).map(udp).collect();
    give(&mut pair, &frames);
    assert_eq!(books(&pair), (10, 0, 0));
    assert_eq!(pair.wa.next_due(), Some(SECOND * 6));
    assert!(released(&mut pair).is_empty(), "there is no SA yet");
    sa_comes(&mut pair, SECOND * 2);
    let mut out = released(&mut pair);
    out.push(pair.seal_one(&udp(10).0));
    let newest = out.pop().map(|p| pair.open_each(&[p]).remove(0));
    out.extend(newest);
    let want: Vec<_> = (0..11).map(|i| udp(i).0).collect();
    assert_eq!(out, want);
    assert_eq!((books(&pair), pair.wa.next_due()), ((0, 0, 0), None));
    assert_eq!(pair.a.counters().traffic.out_sent, 11);
}

#[test]
fn a_super_packet_is_cut_when_it_leaves() {
    let mut pair = waiting();
    let spec = Spec::tcp(20_000);
    give(&mut pair, &[spec.superpacket(1_348)]);
    assert_eq!(books(&pair), (1, 0, 0));
    sa_comes(&mut pair, SECOND * 2);
    assert_eq!(released(&mut pair), spec.segments(1_348));
    assert_eq!(books(&pair), (0, 0, 0));
}

#[test]
fn a_batch_that_is_full_is_no_loss_and_keeps_the_order() {
    let mut pair = waiting();
    let frames: Vec<_> =
        (0..12).map(|i| (Spec { ports: (i, 53), ..Spec::udp(1_000) }.build(), Offload::NONE)).collect();
    give(&mut pair, &frames);
    sa_comes(&mut pair, SECOND * 2);
    pair.tx = TxBatch::new(TxConfig { capacity: 3_000, ..TxConfig::default() });
    let out = released(&mut pair);
    assert!(out.iter().eq(frames.iter().map(|(f, _)| f)));
    assert_eq!(books(&pair), (0, 0, 0));
}

#[test]
fn those_for_another_sa_go_on_waiting() {
    let mut pair = waiting();
    let p = PolicyAdd {
        name: "other".into(),
        action: Action::Protect(ReqId(9)),
        local: ts("10.1.0.0/16"),
        remote: ts("10.2.9.0/24"),
        priority: 0,
        entry: Entry::default(),
    };
    pair.a.apply(SECOND, &Command::PolicyAdd(p)).unwrap();
    pair.wa.begin(SECOND);
    let other = (Spec { dst: ip("10.2.9.9"), ..Spec::udp(10) }.build(), Offload::NONE);
    give(&mut pair, &[other.clone(), udp(1), other.clone(), udp(2)]);
    sa_comes(&mut pair, SECOND * 2);
    assert_eq!(released(&mut pair), [udp(1).0, udp(2).0]);
    assert_eq!(books(&pair), (2, 0, 0));
    let sa = pair.options.sa(Direction::Out, SPI + 1, 9, 42);
    pair.a.apply(SECOND, &Command::SaAdd(Box::new(sa))).unwrap();
    pair.wa.begin(SECOND * 3);
    pair.tx.clear();
    assert!(!pair.wa.release(&mut pair.tx));
    pair.wa.seal(&mut pair.tx);
    assert_eq!((packets(&pair.tx).len(), books(&pair)), (2, (0, 0, 0)));
}

#[test]
fn who_waits_too_long_is_dropped() {
    let mut pair = waiting();
    give(&mut pair, &[udp(1)]);
    pair.wa.begin(SECOND * 3);
    give(&mut pair, &[udp(2)]);
    assert_eq!(pair.wa.next_due(), Some(SECOND * 6));
    pair.wa.begin(SECOND * 6);
    assert!(released(&mut pair).is_empty());
    assert_eq!((books(&pair), pair.wa.next_due()), ((1, 1, 1), Some(SECOND * 8)));
    sa_comes(&mut pair, SECOND * 7);
    assert_eq!(released(&mut pair), [udp(2).0]);
    assert_eq!(books(&pair), (0, 1, 1));
}

#[test]
fn who_may_not_ask_at_once_asks_later() {
    let mut pair = waiting();
    give(&mut pair, &[udp(1)]);
    assert_eq!(pair.a.take_up().len(), 1);
    // The SA comes, and is gone before the second in which nothing more is asked is over.
    sa_comes(&mut pair, SECOND);
    assert_eq!(released(&mut pair), [udp(1).0]);
    pair.a.apply(SECOND, &Command::SaDelete(pair.out_ref())).unwrap();
    let later = SECOND + SECOND / 2;
    pair.wa.begin(later);
    give(&mut pair, &[udp(2), udp(3)]);
    assert!(released(&mut pair).is_empty());
    assert!(!pair.a.take_up().iter().any(|up| matches!(up, Up::Acquire { .. })));
    assert_eq!(pair.wa.next_due(), Some(SECOND * 2));
    pair.wa.begin(SECOND * 2);
    assert!(released(&mut pair).is_empty());
    assert_eq!(
        pair.a.take_up().iter().filter(|up| matches!(up, Up::Acquire { reqid: ReqId(REQID), .. })).count(),
        1
    );
    // Asked once; from here on they only wait.
    assert_eq!(pair.wa.next_due(), Some(later + SECOND * 5));
    sa_comes(&mut pair, SECOND * 3);
    // B knows the first sequence number of this SA already, so its half is not asked.
    pair.tx.clear();
    assert!(!pair.wa.release(&mut pair.tx));
    pair.wa.seal(&mut pair.tx);
    assert_eq!(packets(&pair.tx).len(), 2);
    assert_eq!((books(&pair), pair.wa.next_due()), ((0, 0, 0), None));
}

#[test]
fn what_policy_no_longer_protects_does_not_leave() {
    let mut pair = waiting();
    give(&mut pair, &[udp(1), udp(2)]);
    for p in pair.options.policies(REQID) {
        pair.a.apply(SECOND, &Command::PolicyDelete(p)).unwrap();
    }
    sa_comes(&mut pair, SECOND * 2);
    assert!(released(&mut pair).is_empty());
    assert_eq!(books(&pair), (0, 0, 2));
    assert_eq!(pair.a.counters().dropped(OutNoPolicy), 2);
}

#[test]
fn a_flood_is_bounded_in_packets_of_one_policy_of_all_and_in_bytes() {
    let mut pair = waiting();
    give(&mut pair, &vec![udp(1); 100]);
    assert_eq!(books(&pair), (16, 84, 84));
    for i in 0..100u32 {
        let remote = ts(&format!("10.3.{i}.0/24"));
        let p = PolicyAdd {
            name: "p".into(),
            action: Action::Protect(ReqId(100 + i)),
            local: ts("10.1.0.0/16"),
            remote,
            priority: 0,
            entry: Entry::default(),
        };
        pair.a.apply(SECOND, &Command::PolicyAdd(p)).unwrap();
    }
    pair.wa.begin(SECOND);
    let to =
        |i: u8, len| (Spec { dst: [10, 3, i, 1].into(), df: false, ..Spec::udp(len) }.build(), Offload::NONE);
    for i in 0..100 {
        give(&mut pair, &vec![to(i, 10); 20]);
    }
    assert_eq!(books(&pair).0, 1_024);
    // All too old; then long ones: 4 MiB of 64 KB.
    pair.wa.begin(SECOND * 6);
    assert!(released(&mut pair).is_empty());
    assert_eq!(books(&pair).0, 0);
    for i in 0..100 {
        give(&mut pair, &vec![to(i, 65_000); 2]);
    }
    assert_eq!(books(&pair).0, 64);
}

#[test]
fn a_worker_that_ends_counts_what_it_held() {
    let mut pair = waiting();
    give(&mut pair, &[udp(1), udp(2)]);
    pair.wa = Worker::new(pair.a.clone());
    assert_eq!(books(&pair), (0, 2, 2));
}

#[test]
fn fragments_wait_with_their_first() {
    let mut pair = waiting();
    let whole = Spec { df: false, ..Spec::udp(56) }.build();
    let piece = |at: u16, range: std::ops::Range<usize>, more: u16| {
        let mut p = whole[..20].to_vec();
        p.extend_from_slice(&whole[20..][range]);
        let len = p.len() as u16;
        p[2..4].copy_from_slice(&len.to_be_bytes());
        p[6..8].copy_from_slice(&((at / 8) | more).to_be_bytes());
        ironswan_wire::ip::v4::set_checksum(&mut p[..20]);
        (p, Offload::NONE)
    };
    let f = [piece(0, 0..32, 0x2000), piece(32, 32..64, 0)];
    give(&mut pair, &f);
    sa_comes(&mut pair, SECOND * 2);
    assert_eq!(released(&mut pair), [f[0].0.clone(), f[1].0.clone()]);
}
