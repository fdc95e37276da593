//! How far behind the window dropped packets were, and what a forger can do to these counts:
//! nothing but fill the ones that say so.

use ironswan_ipsec::DropReason::*;
use ironswan_wire::sadb::{Command, ReqId};

use crate::common::*;
use crate::in_common::{Receiver, ah};

const WINDOW: u32 = 32;

fn pair(esn: bool) -> Pair {
    Pair::new(Options { window: WINDOW, esn, ..Options::default() })
}

/// This many packets of A, the first with number 1.
fn sealed(pair: &mut Pair, n: usize) -> Vec<Vec<u8>> {
    (0..n).map(|_| pair.seal_one(&Spec::udp(20).build())).collect()
}

/// The filled buckets of the late packets.
fn late(pair: &Pair) -> Vec<(Option<u64>, u64)> {
    pair.b.replay_drops().late.buckets().filter(|(_, n)| *n != 0).collect()
}

#[test]
fn late_packets_are_counted_by_their_distance_to_the_window() {
    for esn in [false, true] {
        let mut pair = pair(esn);
        let esp = sealed(&mut pair, 300);
        // The newest first: the window is 269 to 300.
        pair.open_each(&esp[299..]);
        // With extended numbers a late packet is known by a second opening, which begins in the
        // batch after the first one that was refused.
        let warm = u64::from(esn);
        if esn {
            pair.open_each(&esp[..1]);
            assert_eq!(late(&pair), []);
            // Others in between do not end that.
            assert_eq!(pair.open_each(&esp[290..299]).len(), 9);
        }
        pair.open_each(&[esp[267].clone(), esp[265].clone(), esp[100].clone()]);
        assert_eq!(late(&pair), [(Some(1), 1), (Some(4), 1), (Some(256), 1)], "{esn}");
        assert_eq!(pair.open_each(&esp[268..269]).len(), 1, "the left edge is inside");
        let needs = pair.b.window_needs();
        assert_eq!(needs.len(), 1);
        assert_eq!((needs[0].0, needs[0].1.window, needs[0].1.duplicates), (ReqId(REQID), WINDOW, 0));
        // 33, 35 and 200 packets from the newest.
        assert_eq!(needs[0].1.kept_by(64), (2, 3));
        assert_eq!(needs[0].1.advice(65_536), Some(256));
        let drops = pair.b.replay_drops();
        assert_eq!((drops.duplicates, drops.forged), (0, 0));
        let c = pair.b.counters();
        let reason = if esn { InStateProtoError } else { InStateSeqOld };
        assert_eq!(c.dropped(reason), 3 + warm, "they are dropped as before");
        assert!(c.balance());
        // An SA with the window that is named keeps them.
        let wide = Options { window: 256, ..pair.options.clone() };
        let mut other = Pair::new(wide);
        assert_eq!(
            other.open_each(&[esp[299].clone(), esp[267].clone(), esp[265].clone(), esp[100].clone()]).len(),
            4
        );
    }
}

#[test]
fn duplicates_are_counted_apart() {
    let mut pair = pair(false);
    let esp = sealed(&mut pair, 40);
    pair.open_each(&esp);
    pair.open_each(&esp[35..]);
    // Twice in one batch: the second is refused when the windows move.
    let newest = sealed(&mut pair, 1);
    assert_eq!(pair.open(&[newest[0].clone(), newest[0].clone()]).len(), 1);
    let drops = pair.b.replay_drops();
    assert_eq!((drops.duplicates, drops.late.total()), (6, 0));
    assert_eq!(pair.b.window_needs()[0].1.duplicates, 6);
}

#[test]
fn a_forger_fills_no_histogram() {
    for esn in [false, true] {
        let mut pair = pair(esn);
        let esp = sealed(&mut pair, 300);
        pair.open_each(&esp[299..]);
        let forged = |packet: &[u8]| {
            let mut packet = packet.to_vec();
            *packet.last_mut().unwrap() ^= 1;
            packet
        };
        let bad: Vec<_> = esp[..200].iter().map(|p| forged(p)).collect();
        // Each alone, then all at once, of which few are opened.
        pair.open_each(&bad);
        pair.open(&bad);
        let drops = pair.b.replay_drops();
        assert_eq!((drops.late.total(), drops.duplicates), (0, 0), "{esn}");
        assert!(pair.b.window_needs().is_empty());
        assert!(drops.forged > 0);
        if !esn {
            // Every one of them is in one count.
            assert_eq!(drops.forged + drops.late_unverified, 400);
            assert_eq!(drops.forged, 200 + 8, "one each, and few of a batch");
        }
        // What is authentic among them is found all the same.
        pair.open_each(&esp[199..200]);
        assert_eq!(pair.b.replay_drops().late.total(), 1);
    }
}

#[test]
fn what_an_sa_has_dropped_outlives_it_with_its_policy() {
    let mut pair = pair(false);
    let esp = sealed(&mut pair, 300);
    pair.open_each(&esp[299..]);
    pair.open_each(&esp[..1]);
    pair.b.apply(SECOND, &Command::SaDelete(pair.in_ref())).unwrap();
    let needs = pair.b.window_needs();
    assert_eq!((needs[0].1.needed.total(), needs[0].1.window), (1, WINDOW));
    let mut again = pair.options.sa(ironswan_wire::sadb::Direction::In, SPI + 1, REQID, 43);
    again.replay_window = 4096;
    pair.b.apply(SECOND, &Command::SaAdd(Box::new(again))).unwrap();
    let needs = pair.b.window_needs();
    // The window is that of the SA that is there.
    assert_eq!((needs.len(), needs[0].1.needed.total(), needs[0].1.window), (1, 1, 4096));
}

#[test]
fn late_packets_of_ah_are_counted_and_not_verified() {
    let mut make = ah();
    make.options.window = WINDOW;
    let mut r = Receiver::new(make);
    let packets = [300, 7, 300].map(|n| r.ah(n, &Spec::udp(20).build(), 4));
    assert_eq!(r.each(&packets).len(), 1);
    let drops = r.engine.replay_drops();
    assert_eq!((drops.late_unverified, drops.duplicates_unverified), (1, 1));
    assert_eq!((drops.late.total(), drops.duplicates), (0, 0));
}
