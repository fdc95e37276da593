//! Rekeying and moving SAs of AH and transport mode: make before break loses no packet, and a move
//! changes what is sent from the next packet on.

use std::net::SocketAddr;

use ironswan_ipsec::{ApplyError, DropReason};
use ironswan_wire::iana::ProtocolId;
use ironswan_wire::offload::Offload;
use ironswan_wire::sadb::{Command, SaAdd, SaOptions, SaRef, Spi};

use crate::common::*;
use crate::out_common::*;

fn kinds() -> [SaAdd; 5] {
    [
        ah(false),
        ah(true),
        SaAdd { mode: TRANSPORT, ..outbound(true) },
        SaAdd { mode: TRANSPORT, udp_encap: true, ..outbound(false) },
        SaAdd { mode: TRANSPORT, ..ah(false) },
    ]
}

#[test]
fn a_rekey_loses_no_packet() {
    for kind in kinds() {
        let v6 = kind.remote.is_ipv6();
        let mut s = Sender::new(kind);
        let mut r = Receiver::of(&s.sa, 64);
        let packet = udp_between(v6, 30).build();
        let old = s.sa.clone();
        let new = SaAdd {
            spi: Spi(old.spi.0 + 1),
            integ_key: ironswan_wire::secret::Secret::new(
                old.integ_key.expose().iter().rev().copied().collect::<Vec<_>>(),
            ),
            ..old.clone()
        };
        let mut sent = vec![s.one(&packet)];
        // The new SA is there to receive before anyone sends on it.
        r.engine
            .apply(SECOND, &Command::SaAdd(Box::new(SaAdd { replay_window: 64, ..inbound(&new) })))
            .unwrap();
        r.worker.begin(SECOND);
        sent.push(s.one(&packet));
        s.engine.apply(SECOND, &Command::SaAdd(Box::new(new.clone()))).unwrap();
        // A worker's snapshot lasts for its batch.
        sent.push(s.one(&packet));
        s.worker.begin(SECOND);
        sent.push(s.one(&packet));
        s.engine.apply(SECOND, &Command::SaDelete(s.name())).unwrap();
        s.worker.begin(SECOND);
        sent.push(s.one(&packet));
        let spi_at = |bytes: &[u8], sent: &Sent| {
            let at = match (is_whole(sent), v6, s.sa.protocol) {
                (false, ..) => 0,
                (_, true, ProtocolId::AH) => 44,
                (_, false, ProtocolId::AH) => 24,
                (_, true, _) => 40,
                (_, false, _) => 20,
            };
            u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap())
        };
        let spis: Vec<_> = sent.iter().map(|p| spi_at(&p.bytes, p)).collect();
        let (o, n) = (old.spi.0, new.spi.0);
        assert_eq!(spis, [o, o, o, n, n]);
        // The newest arrives first, the old ones are still taken.
        sent.reverse();
        assert_eq!(r.each(&sent).len(), 5);
        // Until the old SA is gone.
        r.engine.apply(SECOND, &Command::SaDelete(r.name())).unwrap();
        r.worker.begin(SECOND);
        assert!(r.each(&sent[4..]).is_empty());
        assert_eq!(r.engine.counters().dropped(DropReason::InNoStates), 1);
    }
}

#[test]
fn a_move_changes_the_headers_we_make() {
    for (kind, local, remote) in [
        (ah(false), "198.51.100.1:500", "198.51.100.2:500"),
        // From one family to the other: the padding of AH changes with it.
        (ah(false), "[2001:db8:1::1]:500", "[2001:db8:1::2]:500"),
        (ah(true), "198.51.100.1:500", "198.51.100.2:500"),
    ] {
        let (local, remote): (SocketAddr, SocketAddr) = (local.parse().unwrap(), remote.parse().unwrap());
        let mut s = Sender::new(kind);
        let packet = Spec::udp(50).build();
        s.one(&packet);
        let name = s.name();
        let update = Command::SaUpdate { sa: name, local, remote, udp_encap: false };
        s.engine.apply(SECOND, &update).unwrap();
        s.worker.begin(SECOND);
        let sent = s.one(&packet);
        assert_eq!((sent.send.local, sent.send.remote), (local, remote));
        let at = if local.is_ipv4() { 20 } else { 40 };
        let inside = open_ah(&s.sa, &sent.bytes, at, 2);
        assert_eq!(inside.body, packet);
        let ends: Vec<u8> = match (local.ip(), remote.ip()) {
            (std::net::IpAddr::V4(a), std::net::IpAddr::V4(b)) => [a.octets(), b.octets()].concat(),
            (std::net::IpAddr::V6(a), std::net::IpAddr::V6(b)) => [a.octets(), b.octets()].concat(),
            _ => unreachable!(),
        };
        assert_eq!(addresses(&sent.bytes), ends);
        // It never moves into UDP.
        let moved = SaRef { remote: remote.ip(), ..name };
        let update = Command::SaUpdate { sa: moved, local, remote, udp_encap: true };
        assert_eq!(s.engine.apply(SECOND, &update), Err(ApplyError::Encap));
        assert!(!s.engine.sas()[0].udp_encap);
    }
}

#[test]
fn an_inbound_ah_sa_never_moves_into_udp_either() {
    let s = Sender::new(ah(false));
    let r = Receiver::of(&s.sa, 64);
    let (local, remote) = (r.sa.local, r.sa.remote);
    let update = Command::SaUpdate { sa: r.name(), local, remote, udp_encap: true };
    assert_eq!(r.engine.apply(SECOND, &update), Err(ApplyError::Encap));
}

#[test]
fn a_moved_transport_mode_sa_is_for_its_new_ends() {
    for kind in [SaAdd { mode: TRANSPORT, ..outbound(false) }, SaAdd { mode: TRANSPORT, ..ah(false) }] {
        let mut s = Sender::new(kind);
        let old = udp_between(false, 8);
        s.one(&old.build());
        let new = Spec { dst: ip("192.0.2.77"), ..old.clone() };
        assert_eq!(s.refused(&new.build()), DropReason::OutTransport);
        let remote = "192.0.2.77:500".parse().unwrap();
        let update = Command::SaUpdate { sa: s.name(), local: s.sa.local, remote, udp_encap: false };
        s.engine.apply(SECOND, &update).unwrap();
        s.worker.begin(SECOND);
        assert_eq!(s.one(&new.build()).send.remote, remote);
        assert_eq!(s.refused(&old.build()), DropReason::OutTransport);
    }
}

#[test]
fn a_nat_that_appears_puts_transport_mode_into_udp_and_back() {
    let mut s = Sender::new(SaAdd { mode: TRANSPORT, ..outbound(false) });
    let packet = udp_between(false, 8).build();
    for (seq, udp_encap) in [(1, false), (2, true), (3, false)] {
        let (local, remote) = (s.sa.local, s.sa.remote);
        s.engine.apply(SECOND, &Command::SaUpdate { sa: s.name(), local, remote, udp_encap }).unwrap();
        s.worker.begin(SECOND);
        let sent = s.one(&packet);
        assert_eq!(is_whole(&sent), !udp_encap);
        let inside = open_esp(&s.sa, &sent.bytes[if udp_encap { 0 } else { 20 }..], seq);
        assert_eq!(inside.body, packet[20..]);
    }
}

#[test]
fn a_narrower_path_changes_what_is_padded_from_the_next_packet_on() {
    // No snapshot changes by it: no worker has to begin anew.
    let options = SaOptions { tfc: ironswan_wire::sadb::Tfc::Mtu, ..SaOptions::default() };
    let mut s = Sender::new(SaAdd { options, ..outbound(false) });
    let frame = (Spec::udp(50).build(), Offload::NONE);
    let mut lens = Vec::new();
    for mtu in [1_500, 1_400, 1_300] {
        s.path_mtu(mtu);
        lens.push(s.send(std::slice::from_ref(&frame))[0].bytes.len() as u32);
    }
    assert!(lens[0] > lens[1] && lens[1] > lens[2] && lens[2] > 1_200, "{lens:?}");
    assert_eq!(s.engine.sas()[0].path_mtu, 1_300);
    // Of an SA that is not there.
    let gone = SaRef { spi: Spi(9_999), ..s.name() };
    let told = s.engine.apply(SECOND, &Command::SaPathMtu { sa: gone, mtu: 1_000 });
    assert_eq!(told, Err(ApplyError::NotFound));
}
