//! Packets that arrive before their SA.

use ironswan_ipsec::DropReason::InNoStates;
use ironswan_wire::offload::Offload;
use ironswan_wire::sadb::{Command, Direction, Spi};

use crate::common::*;

/// B without its SA, whose SPI is reserved for A.
fn reserving() -> Pair {
    let pair = Pair::new(Options::default());
    pair.b.apply(SECOND, &Command::SaDelete(pair.in_ref())).unwrap();
    let remote = pair.options.outer().0.ip();
    pair.b.apply(SECOND, &Command::SpiReserve { spi: Spi(SPI), remote }).unwrap();
    pair
}

fn sa_comes(pair: &mut Pair) {
    let sa = pair.options.sa(Direction::In, SPI, REQID, 42);
    pair.b.apply(SECOND, &Command::SaAdd(Box::new(sa))).unwrap();
    pair.wb.begin(SECOND);
}

fn udp(port: u16) -> Vec<u8> {
    Spec { ports: (port, 53), ..Spec::udp(40) }.build()
}

/// Opens what has waited, with a buffer of so many bytes for each batch.
fn taken(pair: &mut Pair, room: usize) -> Vec<Vec<u8>> {
    let mut out = Vec::new();
    while pair.b.has_early() {
        let (mut buf, mut datagrams) = (vec![0; room], Vec::new());
        pair.b.take_early(&mut buf, &mut datagrams);
        assert!(!datagrams.is_empty(), "each turn makes progress");
        pair.rx.clear();
        pair.rx.open_early(&pair.b, SECOND, &mut buf, &datagrams);
        pair.wb.deliver(&mut buf, &mut pair.rx);
        out.extend(pair.rx.writes.iter().map(|w| pair.rx.gather(&buf, w)));
    }
    out
}

/// Received, waiting, dropped for want of an SA, written; the books balance.
fn books(pair: &mut Pair) -> (u64, u64, u64, u64) {
    pair.wb.begin(SECOND);
    let c = pair.b.counters();
    assert!(c.balance(), "{c:?}");
    assert_eq!(c.dropped(InNoStates), c.dropped_in());
    (c.traffic.in_packets, c.in_held, c.dropped_in(), c.traffic.in_writes)
}

#[test]
fn early_packets_are_opened_in_order_when_the_sa_is_installed() {
    let mut pair = reserving();
    let esp: Vec<_> = (0..6).map(|n| pair.seal_one(&udp(n))).collect();
    assert!(pair.open(&esp[..3]).is_empty() && pair.open(&esp[3..5]).is_empty());
    assert_eq!(books(&mut pair), (5, 5, 0, 0));
    assert!(!pair.b.has_early() && pair.b.take_up().is_empty(), "no drop is reported");
    sa_comes(&mut pair);
    // Room for two of them at a time.
    let mut out = taken(&mut pair, 2 * esp[0].len() + 1);
    out.extend(pair.open(&esp[5..]).into_iter().map(|(_, packet)| packet));
    assert_eq!(out, (0..6).map(udp).collect::<Vec<_>>());
    assert_eq!(books(&mut pair), (6, 0, 0, 6));
    // The windows have moved: none of them is taken twice.
    assert!(pair.open(&esp[..1]).is_empty());
}

#[test]
fn packets_from_elsewhere_or_with_an_spi_that_was_freed_are_dropped() {
    let mut pair = reserving();
    let esp: Vec<_> = (0..3).map(|n| pair.seal_one(&udp(n))).collect();
    let remote = "203.0.113.9".parse().unwrap();
    pair.b.apply(SECOND, &Command::SpiReserve { spi: Spi(SPI), remote }).unwrap();
    assert!(pair.open(&esp[..1]).is_empty());
    assert_eq!(books(&mut pair), (1, 0, 1, 0));
    let remote = pair.options.outer().0.ip();
    pair.b.apply(SECOND, &Command::SpiReserve { spi: Spi(SPI), remote }).unwrap();
    assert!(pair.open(&esp[1..2]).is_empty());
    assert_eq!(books(&mut pair), (2, 1, 1, 0));
    pair.b.apply(SECOND, &Command::SpiFree(Spi(SPI))).unwrap();
    assert!(pair.open(&esp[2..]).is_empty());
    assert_eq!(books(&mut pair), (3, 0, 3, 0));
    sa_comes(&mut pair);
    assert!(taken(&mut pair, 9_000).is_empty());
}

#[test]
fn forged_packets_that_waited_are_dropped_when_they_are_opened() {
    let mut pair = reserving();
    let good = pair.seal_one(&udp(1));
    let mut forged = good.clone();
    forged[4..8].copy_from_slice(&9u32.to_be_bytes());
    assert!(pair.open(&[forged, good]).is_empty());
    sa_comes(&mut pair);
    assert_eq!(taken(&mut pair, 9_000), [udp(1)]);
    let c = pair.b.counters();
    assert!(c.balance() && c.dropped_in() == 1 && c.in_held == 0, "{c:?}");
}

#[test]
fn the_reservation_of_an_sa_that_the_engine_refuses_ends_with_its_deletion() {
    let mut pair = reserving();
    let esp = pair.seal(&[(udp(1), Offload::NONE), (udp(2), Offload::NONE)]);
    assert!(pair.open(&esp[..1]).is_empty());
    let mut sa = pair.options.sa(Direction::In, SPI, REQID, 42);
    sa.remote_ts.clear();
    assert!(pair.b.apply(SECOND, &Command::SaAdd(Box::new(sa))).is_err());
    assert!(pair.b.apply(SECOND, &Command::SaDelete(pair.in_ref())).is_err());
    assert!(pair.open(&esp[1..]).is_empty());
    assert_eq!(books(&mut pair), (2, 0, 2, 0));
}
