//! A hard limit lets at most as much through as it says, and what counts is every authentic packet
//! (RFC 4301 section 4.4.2.1).

use ironswan_ipsec::DropReason::{InInnerMartian, InStateExpired, InStateMismatch, OutStateExpired};
use ironswan_ipsec::{Datagram, DropReason};
use ironswan_wire::ip::protocol;
use ironswan_wire::offload::Offload;
use ironswan_wire::sadb::{Direction, Lifetime, SaAdd, SaRef, SaStats, Spi, Up};

use crate::common::*;
use crate::in_common::{self, Make, Receiver};
use crate::out_common::{Sender, TRANSPORT, ah, between, outbound};

fn packets(hard: u64) -> Lifetime {
    Lifetime { hard_packets: hard, ..Lifetime::default() }
}

#[test]
fn a_frame_of_more_packets_than_are_left_is_not_sent_and_ends_the_sa() {
    let hosts = |sa: SaAdd| SaAdd { mode: TRANSPORT, ..sa };
    for sa in
        [SaAdd { udp_encap: true, ..outbound(false) }, ah(false), hosts(outbound(false)), hosts(ah(false))]
    {
        let one = (between(Spec::udp(20)).build(), Offload::NONE);
        let many = between(Spec::tcp(48 * 500)).superpacket(500);
        let mut s = Sender::new(SaAdd { lifetime: packets(10), ..sa.clone() });
        assert_eq!(s.send(std::slice::from_ref(&many)).len(), 0);
        let mut s2 = Sender::new(SaAdd { lifetime: packets(10), ..sa.clone() });
        let sent: usize =
            [one.clone(), many.clone(), one.clone(), many].map(|f| s2.send(&[f]).len()).into_iter().sum();
        assert_eq!(sent, 2);
        for s in [&mut s, &mut s2] {
            assert_eq!(
                s.engine.take_up(),
                [Up::Expire { sa: s.name(), hard: false }, Up::Expire { sa: s.name(), hard: true }]
            );
            // What is left is used, and no more.
            let left: usize = (0..20).map(|_| s.send(std::slice::from_ref(&one)).len()).sum();
            let carried = s.engine.sa_stats(s.name()).unwrap().packets;
            assert!(left <= 10 && carried == 10, "{left} {carried}");
            assert!(s.engine.counters().dropped(OutStateExpired) >= 10);
            assert_eq!(s.engine.take_up(), []);
        }
        // As many as there are.
        let mut s = Sender::new(SaAdd { lifetime: packets(48), ..sa.clone() });
        assert_eq!(s.send(&[between(Spec::tcp(48 * 500)).superpacket(500), one.clone()]).len(), 48);
        // Bytes likewise.
        let bytes = 3 * one.0.len() as u64;
        for (hard, count) in [(bytes - 1, 2), (bytes, 3), (bytes + 1, 3)] {
            let lifetime = Lifetime { hard_bytes: hard, ..Lifetime::default() };
            let mut s = Sender::new(SaAdd { lifetime, ..sa.clone() });
            assert_eq!((0..9).map(|_| s.send(std::slice::from_ref(&one)).len()).sum::<usize>(), count);
            assert_eq!(s.engine.take_up().len(), 2);
        }
    }
}

/// Dummy packets too.
#[test]
fn dummies_keep_to_the_limit() {
    let options = ironswan_wire::sadb::SaOptions { dummies: Some(SECOND), ..Default::default() };
    let mut s = Sender::new(SaAdd { lifetime: packets(3), options, ..outbound(false) });
    for i in 2..20 {
        s.worker.begin(SECOND * i);
        s.worker.dummies(&mut s.tx);
    }
    s.worker.seal(&mut s.tx);
    assert_eq!(s.sent().len(), 3);
}

fn stats(r: &Receiver) -> SaStats {
    let sa = SaRef {
        direction: Direction::In,
        spi: Spi(SPI),
        reqid: ironswan_wire::sadb::ReqId(REQID),
        remote: ip("192.0.2.1"),
    };
    r.engine.sa_stats(sa).unwrap()
}

#[test]
fn a_batch_of_more_packets_than_are_left_is_taken_as_far_as_the_limit() {
    for make in [Make::default(), in_common::ah()] {
        let is_ah = make.ah.is_some();
        let make = Make { options: Options { lifetime: packets(10), ..Options::default() }, ..make };
        // Two SAs by turns, so that the limited one comes several times in the batch.
        let other = Make { spi: SPI + 1, ..Make::default() };
        let mut r = Receiver::with(vec![make, other]);
        let packet = Spec::udp(20).build();
        let text = in_common::text(&packet, protocol::IPV4, 16);
        let mut all = Vec::new();
        for seq in 1..=15 {
            all.push(if is_ah { r.ah(seq, &packet, protocol::IPV4) } else { r.esp_of(0, seq, &text) });
            if seq % 4 == 0 {
                all.push(r.esp_of(1, seq, &text));
            }
        }
        r.take(&all);
        let c = r.engine.counters();
        assert_eq!((c.dropped(InStateExpired), stats(&r).packets), (5, 10));
        assert_eq!(c.traffic.in_writes + c.traffic.in_merged, 13);
    }
}

/// One receive that GRO merged.
#[test]
fn a_merged_receive_is_taken_as_far_as_the_limit() {
    let mut sender = Pair::new(Options::default());
    let mut pair = Pair::new(Options { lifetime: packets(10), ..Options::default() });
    let esp = sender.seal(&[Spec::tcp(48 * 500).superpacket(500)]);
    let (remote, local) = pair.options.outer();
    let mut buf = esp.concat();
    let datagram = Datagram {
        offset: 0,
        len: buf.len() as u32,
        segment_size: esp[0].len() as u16,
        local,
        remote,
        carrier: carrier(true),
        tos: 0,
    };
    pair.wb.inbound(&mut buf, &[datagram], &mut pair.rx);
    let c = pair.b.counters();
    assert_eq!((c.traffic.in_writes + c.traffic.in_merged, c.dropped(InStateExpired)), (10, 38));
    assert!(c.balance());
    assert_eq!(pair.b.take_up().len(), 2, "the limit, and the audit's word");
}

#[test]
fn authentic_packets_that_are_refused_and_dummies_count() {
    for make in [Make::default(), in_common::ah()] {
        let is_ah = make.ah.is_some();
        let mut r = Receiver::new(make);
        let seal = |r: &Receiver, seq, packet: &[u8], next| {
            if is_ah { r.ah(seq, packet, next) } else { r.esp(seq, packet, next) }
        };
        let foreign = Spec { src: ip("10.9.0.1"), ..Spec::udp(100) }.build();
        r.refuses(&seal(&r, 1, &foreign, protocol::IPV4), InStateMismatch);
        let one = stats(&r);
        assert_eq!((one.packets, one.last_use), (1, 0));
        assert!((128..128 + 16).contains(&one.bytes), "{}", one.bytes);
        if !is_ah {
            assert!(r.take(&[seal(&r, 2, &[0; 100], protocol::NONE)]).is_empty());
            assert_eq!((stats(&r).packets, stats(&r).last_use), (2, 0));
        }
        let before = stats(&r);
        let good = Spec::udp(100).build();
        assert_eq!(r.delivers(&seal(&r, 3, &good, protocol::IPV4)), good);
        assert_eq!(
            (stats(&r).packets, stats(&r).bytes, stats(&r).last_use),
            (before.packets + 1, before.bytes + 128, 1)
        );
        // What is not authentic does not.
        let mut bad = seal(&r, 4, &good, protocol::IPV4);
        *bad.bytes.last_mut().unwrap() ^= 1;
        r.refuses(&bad, DropReason::InStateProtoError);
        assert_eq!(stats(&r).packets, before.packets + 1);
    }
}

/// A limit is reached by what is refused, too: a peer does not keep an SA alive by sending what
/// nobody takes.
#[test]
fn refused_packets_end_an_sa() {
    let make = Make { options: Options { lifetime: packets(3), ..Options::default() }, ..Make::default() };
    let mut r = Receiver::new(make);
    let foreign = Spec { src: ip("10.9.0.1"), ..Spec::udp(100) }.build();
    for seq in 1..=3 {
        r.refuses(&r.esp(seq, &foreign, protocol::IPV4), InStateMismatch);
    }
    r.refuses(&r.esp(4, &Spec::udp(10).build(), protocol::IPV4), InStateExpired);
    let expired = r.engine.take_up().into_iter().filter(|up| matches!(up, Up::Expire { .. })).count();
    assert_eq!(expired, 1);
}

#[test]
fn sources_that_nobody_has_are_refused_where_selectors_are_wide() {
    let options = Options {
        left: vec![ts("0.0.0.0/0"), ts("::/0")],
        right: vec![ts("0.0.0.0/0"), ts("::/0")],
        ..Options::default()
    };
    let mut r = Receiver::new(Make { options, ..Make::default() });
    let mut seq = 0;
    let mut one = |r: &mut Receiver, src: &str, refused: bool| {
        let v6 = src.contains(':');
        let dst = ip(if v6 { "fd02::1" } else { "10.2.0.1" });
        let packet = Spec { v6, src: ip(src), dst, ..Spec::udp(10) }.build();
        seq += 1;
        let arriving = r.esp(seq, &packet, if v6 { protocol::IPV6 } else { protocol::IPV4 });
        if refused {
            r.refuses(&arriving, InInnerMartian)
        } else {
            assert_eq!(r.delivers(&arriving), packet, "{src}")
        }
    };
    for src in [
        "0.0.0.0",
        "0.0.0.1",
        "0.255.255.255",
        "127.0.0.1",
        "127.255.255.255",
        "224.0.0.1",
        "239.255.255.255",
        "240.0.0.1",
        "250.1.2.3",
        "255.255.255.254",
        "255.255.255.255",
        "::",
        "::1",
        "ff02::1",
        "ff0e::1",
    ] {
        one(&mut r, src, true);
    }
    for src in [
        "1.0.0.0",
        "126.255.255.255",
        "128.0.0.1",
        "223.255.255.255",
        "::2",
        "::1:0:0:0",
        "fe80::1",
        "fd00::1",
    ] {
        one(&mut r, src, false);
    }
}
