//! Who is told that a peer has a new address, and who cannot make the engine say so: `Up::Moved`
//! (RFC 7296 section 2.23).

use std::net::SocketAddr;
use std::time::Duration;

use ironswan_ipsec::{Carrier, Datagram, DropReason};
use ironswan_wire::offload::Offload;
use ironswan_wire::sadb::{Command, Direction, Spi, Up};

use crate::common::*;

/// Addresses of a family: the SA's own, and two new ones that differ in the port only, and in the
/// address.
struct Places {
    home: SocketAddr,
    port: SocketAddr,
    address: SocketAddr,
}

fn places(outer_v6: bool) -> Places {
    let at = |s: &str| s.parse().unwrap();
    if outer_v6 {
        Places {
            home: at("[2001:db8::1]:4500"),
            port: at("[2001:db8::1]:61234"),
            address: at("[2001:db8::77]:4500"),
        }
    } else {
        Places { home: at("192.0.2.1:4500"), port: at("192.0.2.1:61234"), address: at("198.51.100.7:4500") }
    }
}

fn moved(remote: SocketAddr) -> Up {
    Up::Moved { spi: Spi(SPI), remote }
}

/// `n` packets of the SA.
fn packets(pair: &mut Pair, n: usize) -> Vec<Vec<u8>> {
    pair.seal(&vec![(Spec::udp(20).build(), Offload::NONE); n])
}

/// Opens packets as one batch, each from a source of its own, and returns how many were delivered
/// and what came up.
fn open_from(pair: &mut Pair, from: &[(&[u8], SocketAddr)], udp_encap: bool) -> (usize, Vec<Up>) {
    let mut buf = Vec::new();
    let mut datagrams = Vec::new();
    let (_, local) = pair.options.outer();
    for (p, remote) in from {
        let (offset, len) = (buf.len() as u32, p.len() as u32);
        datagrams.push(Datagram {
            offset,
            len,
            segment_size: 0,
            local,
            remote: *remote,
            carrier: carrier(udp_encap),
            tos: 0,
        });
        buf.extend_from_slice(p);
    }
    pair.rx.clear();
    let before = pair.in_stats().packets;
    pair.wb.inbound(&mut buf, &datagrams, &mut pair.rx);
    ((pair.in_stats().packets - before) as usize, commands(&pair.b))
}

fn open_one(pair: &mut Pair, p: &[u8], remote: SocketAddr) -> (usize, Vec<Up>) {
    open_from(pair, &[(p, remote)], true)
}

/// Moves B's SA, as the key daemon does when it follows.
fn follow(pair: &mut Pair, remote: SocketAddr, udp_encap: bool) {
    let (_, local) = pair.options.outer();
    let sa = pair.in_ref();
    pair.b.apply(SECOND, &Command::SaUpdate { sa, local, remote, udp_encap }).unwrap();
    pair.wb.begin(SECOND);
}

#[test]
fn a_new_address_or_port_is_told_once() {
    for outer_v6 in [false, true] {
        let mut pair = Pair::new(Options { outer_v6, ..Options::default() });
        let to = places(outer_v6);
        let p = packets(&mut pair, 8);
        assert_eq!(open_one(&mut pair, &p[0], to.home), (1, vec![]));
        assert_eq!(open_one(&mut pair, &p[1], to.port), (1, vec![moved(to.port)]));
        assert_eq!(open_one(&mut pair, &p[2], to.port), (1, vec![]));
        assert_eq!(open_one(&mut pair, &p[3], to.address), (1, vec![moved(to.address)]));
        // Back and forth between what is known: nothing new.
        assert_eq!(open_one(&mut pair, &p[4], to.port), (1, vec![]));
        assert_eq!(open_one(&mut pair, &p[5], to.home), (1, vec![]));
        assert_eq!(open_one(&mut pair, &p[6], to.address), (1, vec![]));
    }
}

#[test]
fn after_the_sa_was_moved_its_old_source_is_a_new_one() {
    let mut pair = Pair::new(Options::default());
    let to = places(false);
    let p = packets(&mut pair, 6);
    assert_eq!(open_one(&mut pair, &p[0], to.port).1, [moved(to.port)]);
    follow(&mut pair, to.port, true);
    assert_eq!(open_one(&mut pair, &p[1], to.port).1, []);
    assert_eq!(open_one(&mut pair, &p[2], to.home).1, [moved(to.home)]);
    // An update to where it is already forgets what was told, and nothing else.
    follow(&mut pair, to.port, true);
    assert_eq!(open_one(&mut pair, &p[3], to.home).1, [moved(to.home)]);
    assert_eq!(pair.in_stats().packets, 4);
    // Without encapsulation there is no NAT on the path, and nothing to tell.
    follow(&mut pair, to.port, false);
    assert_eq!(open_one(&mut pair, &p[4], to.home), (1, vec![]));
}

#[test]
fn a_forged_packet_moves_nobody() {
    let mut pair = Pair::new(Options::default());
    let to = places(false);
    let p = packets(&mut pair, 3);
    for at in [4, 8, p[0].len() / 2, p[0].len() - 1] {
        let mut forged = p[0].clone();
        forged[at] ^= 1;
        assert_eq!(open_one(&mut pair, &forged, to.address), (0, vec![]), "byte {at}");
    }
    // In one batch with genuine ones, before and after: one that would be newer, and a copy of the
    // newest.
    let mut forged = p[2].clone();
    *forged.last_mut().unwrap() ^= 1;
    let mut copy = p[1].clone();
    *copy.last_mut().unwrap() ^= 1;
    let batch = [
        (&forged[..], to.address),
        (&copy[..], to.port),
        (&p[0][..], to.home),
        (&p[1][..], to.home),
        (&copy[..], to.port),
        (&forged[..], to.address),
    ];
    assert_eq!(open_from(&mut pair, &batch, true), (2, vec![]));
    assert_eq!(pair.dropped(), Some((DropReason::InStateProtoError, 8)));
}

#[test]
fn a_replayed_or_late_packet_moves_nobody() {
    for esn in [false, true] {
        let mut pair = Pair::new(Options { esn, window: 64, ..Options::default() });
        let to = places(false);
        let p = packets(&mut pair, 100);
        // 1 to 99 but for 90 arrive, then 90 from elsewhere: authentic, in the window, older than
        // the newest.
        let genuine: Vec<_> =
            p[..99].iter().enumerate().filter(|(i, _)| *i != 89).map(|(_, p)| (&p[..], to.home)).collect();
        assert_eq!(open_from(&mut pair, &genuine, true), (98, vec![]));
        assert_eq!(open_one(&mut pair, &p[89], to.address), (1, vec![]));
        // Again, and the newest again, and one that has left the window.
        for replayed in [89, 98, 3] {
            assert_eq!(open_one(&mut pair, &p[replayed], to.address), (0, vec![]), "{replayed}");
        }
        // The copy in the same batch as its original.
        let batch = [(&p[99][..], to.home), (&p[99][..], to.address)];
        assert_eq!(open_from(&mut pair, &batch, true), (1, vec![]));
    }
}

#[test]
fn without_a_replay_window_the_newest_packet_again_moves_nobody() {
    let mut pair = Pair::new(Options { window: 0, ..Options::default() });
    let to = places(false);
    let p = packets(&mut pair, 3);
    assert_eq!(open_one(&mut pair, &p[1], to.home), (1, vec![]));
    assert_eq!(open_one(&mut pair, &p[1], to.address), (1, vec![]));
    assert_eq!(open_one(&mut pair, &p[0], to.address), (1, vec![]));
    assert_eq!(open_one(&mut pair, &p[2], to.address), (1, vec![moved(to.address)]));
}

#[test]
fn of_a_batch_only_the_newest_packet_says_where_the_peer_is() {
    let mut pair = Pair::new(Options::default());
    let to = places(false);
    let p = packets(&mut pair, 12);
    // Every packet from another place; the last of them counts.
    let batch = [(&p[0][..], to.port), (&p[1][..], to.address), (&p[2][..], to.port)];
    assert_eq!(open_from(&mut pair, &batch, true), (3, vec![moved(to.port)]));
    // The newest is not the last of the batch.
    let batch = [(&p[4][..], to.address), (&p[3][..], to.port)];
    assert_eq!(open_from(&mut pair, &batch, true), (2, vec![moved(to.address)]));
    // The newest came from home.
    let mut fresh = Pair::new(Options::default());
    let batch = [(&p[5][..], to.port), (&p[7][..], to.home), (&p[6][..], to.address)];
    assert_eq!(open_from(&mut fresh, &batch, true), (3, vec![]));
}

#[test]
fn runs_of_two_sas_in_a_batch_do_not_speak_for_each_other() {
    let mut pair = Pair::new(Options::default());
    let to = places(false);
    let other = pair.options.sa(Direction::In, SPI + 1, REQID, 43);
    pair.b.apply(SECOND, &Command::SaAdd(Box::new(other))).unwrap();
    pair.wb.begin(SECOND);
    let first = packets(&mut pair, 2);
    let out = pair.options.sa(Direction::Out, SPI + 1, REQID, 43);
    pair.a.apply(SECOND, &Command::SaAdd(Box::new(out))).unwrap();
    pair.wa.begin(SECOND);
    let second = packets(&mut pair, 1);
    let batch = [(&first[0][..], to.port), (&second[0][..], to.address), (&first[1][..], to.home)];
    let (_, up) = open_from(&mut pair, &batch, true);
    assert_eq!(up, [Up::Moved { spi: Spi(SPI + 1), remote: to.address }]);
}

#[test]
fn an_esp_packet_without_udp_moves_nobody_and_one_in_udp_no_sa_without() {
    let mut pair = Pair::new(Options::default());
    let to = places(false);
    let p = packets(&mut pair, 1);
    let mut raw = to.address;
    raw.set_port(0);
    assert_eq!(open_from(&mut pair, &[(&p[0], raw)], false), (1, vec![]));
    let mut pair = Pair::new(Options { udp_encap: false, ..Options::default() });
    let p = packets(&mut pair, 1);
    assert_eq!(open_from(&mut pair, &[(&p[0], to.address)], true), (1, vec![]));
}

#[test]
fn a_merged_receive_counts_as_one_source() {
    let mut pair = Pair::new(Options::default());
    let to = places(false);
    let p = packets(&mut pair, 5);
    let mut buf = p.concat();
    let datagram = Datagram {
        offset: 0,
        len: buf.len() as u32,
        segment_size: p[0].len() as u16,
        local: pair.options.outer().1,
        remote: to.port,
        carrier: Carrier::Udp,
        tos: 0,
    };
    pair.wb.inbound(&mut buf, &[datagram], &mut pair.rx);
    assert_eq!(pair.b.take_up(), [moved(to.port)]);
    assert_eq!(pair.in_stats().packets, 5);
}

#[test]
fn a_nat_that_changes_with_every_packet_does_not_flood_the_key_daemon() {
    let mut pair = Pair::new(Options::default());
    let from = |i: usize| format!("192.0.2.1:{}", 10_000 + i).parse().unwrap();
    let p = packets(&mut pair, 2_000);
    let mut told = 0;
    for (i, p) in p.iter().enumerate() {
        // A hundred packets a second.
        pair.wb.begin(SECOND + Duration::from_millis(10) * i as u32);
        told += open_one(&mut pair, p, from(i)).1.len();
    }
    assert_eq!(told, 8, "four in each of two times ten seconds");
    assert_eq!(pair.in_stats().packets, 2_000);
    // One that stays is told again after a while: the key daemon may have missed its moment.
    let mut pair = Pair::new(Options::default());
    let p = packets(&mut pair, 25);
    let mut told = Vec::new();
    for (i, p) in p.iter().enumerate() {
        pair.wb.begin(SECOND * (i as u32 + 1));
        if !open_one(&mut pair, p, from(0)).1.is_empty() {
            told.push(i);
        }
    }
    assert_eq!(told, [0, 10, 20]);
}
