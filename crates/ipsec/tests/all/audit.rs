//! What was dropped on its way in is told, with one packet's name, and not too often (RFC 4301
//! section 9).

use std::time::Duration;

use ironswan_ipsec::DropReason::{self, InNoStates, InStateMismatch, InStateProtoError, InStateSeqDuplicate};
use ironswan_wire::sadb::{RejectedPackets, Spi, Up};

use crate::common::*;

fn told(pair: &Pair) -> Vec<RejectedPackets> {
    let rejected = |up| match up {
        Up::Rejected(r) => Some(r),
        _ => None,
    };
    pair.b.take_up().into_iter().filter_map(rejected).collect()
}

fn event(pair: &Pair, reason: DropReason, count: u64, spi: u32, sequence: u64) -> RejectedPackets {
    let (remote, local) = pair.options.outer();
    let (name, sentence) = (reason.name(), reason.sentence());
    RejectedPackets {
        reason: name,
        sentence,
        count,
        spi: Spi(spi),
        sequence,
        local: local.ip(),
        remote: remote.ip(),
    }
}

#[test]
fn a_dropped_packet_is_told_with_spi_number_and_addresses() {
    let mut pair = Pair::new(Options { esn: true, ..Options::default() });
    let frame = Spec::udp(100).build();
    let good = pair.seal_one(&frame);
    let mut forged = pair.seal_one(&frame);
    forged[40] ^= 1;
    let mut unknown = good.clone();
    unknown[..4].copy_from_slice(&0xdead_beef_u32.to_be_bytes());
    assert_eq!(pair.open(&[good.clone(), forged, unknown, good]).len(), 1);
    let mut events = told(&pair);
    events.sort_by_key(|e| e.reason);
    let want = [
        event(&pair, InNoStates, 1, 0xdead_beef, 1),
        event(&pair, InStateProtoError, 1, SPI, 2),
        event(&pair, InStateSeqDuplicate, 1, SPI, 1),
    ];
    assert_eq!(events, want);
}

#[test]
fn an_authentic_packet_outside_of_its_selectors_is_told() {
    let mut pair = Pair::new(Options::default());
    let wide = Options { left: vec![ts("0.0.0.0/0")], right: vec![ts("0.0.0.0/0")], ..Options::default() };
    let mut sender = Pair::new(wide);
    let esp = sender.seal_one(&Spec { src: ip("10.9.0.1"), ..Spec::udp(10) }.build());
    assert!(pair.open(&[esp]).is_empty());
    assert_eq!(told(&pair), [event(&pair, InStateMismatch, 1, SPI, 1)]);
}

#[test]
fn a_flood_is_told_once_in_ten_seconds_and_counted() {
    let mut pair = Pair::new(Options::default());
    let mut garbage = pair.seal_one(&Spec::udp(10).build());
    garbage[..4].copy_from_slice(&[0xaa; 4]);
    let flood = vec![garbage.clone(); 100];
    let mut at = |seconds: u64, n: usize| {
        pair.wb.begin(Duration::from_secs(seconds));
        pair.open(&flood[..n]);
        told(&pair).iter().map(|e| e.count).collect::<Vec<_>>()
    };
    assert_eq!(at(1, 100), [1]);
    assert!(at(5, 100).is_empty());
    assert_eq!(at(11, 1), [200]);
    assert!(at(20, 1).is_empty());
    assert_eq!(at(1000, 1), [2]);
    assert_eq!(pair.dropped(), Some((InNoStates, 203)));
}
