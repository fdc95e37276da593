//! Dummy packets (RFC 4303 section 2.6): when they are due, what they look like, and that nothing
//! else changes by them.

use std::time::Duration;

use ironswan_ipsec::{DropReason, TxBatch, TxConfig, Worker};
use ironswan_wire::sadb::{Command, Dscp, Lifetime, SaAdd, SaOptions, Tfc, Up};

use crate::common::*;
use crate::out_common::*;

const INTERVAL: Duration = Duration::from_millis(100);
const NO_NEXT_HEADER: u8 = 59;

fn with_dummies(options: SaOptions) -> SaAdd {
    SaAdd { options: SaOptions { dummies: Some(INTERVAL), ..options }, ..outbound(false) }
}

/// Lets a worker make what is due.
fn at(s: &mut Sender, now: Duration) -> (Option<Duration>, Vec<Sent>) {
    s.tx.clear();
    s.worker.begin(now);
    let next = s.worker.dummies(&mut s.tx);
    s.worker.seal(&mut s.tx);
    s.balance();
    (next, s.sent())
}

#[test]
fn a_silent_sa_sends_dummies_which_its_peer_absorbs() {
    let mut s = Sender::new(with_dummies(SaOptions::default()));
    let mut r = Receiver::of(&s.sa, 64);
    // The SA was added at one second.
    assert_eq!(at(&mut s, SECOND), (Some(SECOND + INTERVAL), vec![]));
    assert_eq!(at(&mut s, SECOND + INTERVAL / 2), (Some(SECOND + INTERVAL), vec![]));
    let (next, sent) = at(&mut s, SECOND + INTERVAL);
    assert_eq!(next, Some(SECOND + 2 * INTERVAL));
    assert_eq!(sent.len(), 1);
    let inside = open_esp(&s.sa, &sent[0].bytes, 1);
    assert_eq!((inside.next_header, inside.body.len()), (NO_NEXT_HEADER, 576));
    assert!(r.open(&sent).is_empty());
    // Whoever sends has no need of one for a while.
    let late = SECOND + INTERVAL + INTERVAL * 3 / 4;
    s.worker.begin(late);
    let packet = s.one(&udp_between(false, 10).build());
    assert_eq!(r.each(&[packet]).len(), 1);
    assert_eq!(at(&mut s, SECOND + 2 * INTERVAL), (Some(late + INTERVAL), vec![]));
    let (next, sent) = at(&mut s, late + INTERVAL);
    assert_eq!((next, sent.len()), (Some(late + 2 * INTERVAL), 1));
    assert!(r.open(&sent).is_empty());
    let c = s.engine.counters();
    assert_eq!((c.traffic.out_frames, c.traffic.out_dummies, c.traffic.out_sent), (1, 2, 3));
    let c = r.engine.counters();
    assert_eq!((c.traffic.in_dummies, c.dropped_in()), (2, 0));
    // They are no use of the SA: it may expire idle.
    let stats = s.engine.sa_stats(s.name()).unwrap();
    assert_eq!((stats.packets, stats.last_use), (3, late.as_secs()));
}

#[test]
fn they_look_like_everything_else_that_is_padded() {
    let esp_len = |tfc, path: Option<u32>| {
        let options = SaOptions { tfc, dscp_out: Dscp::Set(46), ..SaOptions::default() };
        let mut s = Sender::new(with_dummies(options));
        if let Some(path) = path {
            s.path_mtu(path);
        }
        let packet = s.one(&udp_between(false, 10).build());
        let (_, dummies) = at(&mut s, SECOND * 2);
        assert_eq!(dummies.len(), 1);
        let same = (packet.send.tos, packet.send.fragmentable, packet.send.carrier);
        assert_eq!((dummies[0].send.tos, dummies[0].send.fragmentable, dummies[0].send.carrier), same);
        (packet.bytes.len(), dummies[0].bytes.len())
    };
    for (tfc, path) in [(Tfc::To(800), None), (Tfc::Mtu, Some(1_400)), (Tfc::To(2_000), Some(1_000))] {
        let (packet, dummy) = esp_len(tfc, path);
        assert_eq!(packet, dummy, "{tfc:?} {path:?}");
    }
    // On a path that is narrower than what every host takes.
    assert!(esp_len(Tfc::None, Some(300)).1 + 20 <= 300);
}

#[test]
fn without_an_sa_that_wants_them_nothing_is_due() {
    let mut s = Sender::new(outbound(false));
    assert_eq!(at(&mut s, SECOND * 50), (None, vec![]));
    // One comes and goes.
    let reqid = ironswan_wire::sadb::ReqId(7);
    let sa = with_keys(SaAdd { reqid, ..with_dummies(SaOptions::default()) });
    s.engine.apply(SECOND * 60, &Command::SaAdd(Box::new(sa))).unwrap();
    assert_eq!(at(&mut s, SECOND * 60), (Some(SECOND * 60 + INTERVAL), vec![]));
    // A worker that is made now sees it, too.
    let mut other = Worker::new(s.engine.clone());
    other.begin(SECOND * 60);
    assert_eq!(other.dummies(&mut s.tx), Some(SECOND * 60 + INTERVAL));
    // It moves, and goes on.
    let name = ironswan_wire::sadb::SaRef { reqid, ..s.name() };
    let update = Command::SaUpdate { sa: name, local: s.sa.local, remote: s.sa.remote, udp_encap: true };
    s.engine.apply(SECOND * 60, &update).unwrap();
    let (_, sent) = at(&mut s, SECOND * 61);
    assert_eq!((sent.len(), sent[0].send.carrier), (1, carrier(true)));
    s.engine.apply(SECOND * 60, &Command::SaDelete(name)).unwrap();
    assert_eq!(at(&mut s, SECOND * 70), (None, vec![]));
}

#[test]
fn two_workers_make_one_dummy() {
    let mut s = Sender::new(with_dummies(SaOptions::default()));
    let mut other = Worker::new(s.engine.clone());
    let mut tx = TxBatch::new(TxConfig::default());
    for round in 2..6 {
        let now = SECOND * round;
        other.begin(now);
        let (next, sent) = at(&mut s, now);
        assert_eq!((next, sent.len()), (Some(now + INTERVAL), 1));
        assert_eq!(other.dummies(&mut tx), Some(now + INTERVAL));
        assert!(tx.is_empty());
    }
}

#[test]
fn a_full_batch_asks_to_be_called_again() {
    let mut s = Sender::new(with_dummies(SaOptions { tfc: Tfc::To(40_000), ..SaOptions::default() }));
    for i in 0..3u32 {
        let sa = SaAdd { reqid: ironswan_wire::sadb::ReqId(20 + i), ..s.sa.clone() };
        s.engine.apply(SECOND, &Command::SaAdd(Box::new(sa))).unwrap();
    }
    s.tx = TxBatch::new(TxConfig { capacity: 100_000, ..TxConfig::default() });
    let now = SECOND * 2;
    let (next, sent) = at(&mut s, now);
    assert_eq!((next, sent.len()), (Some(now), 2));
    let (next, sent) = at(&mut s, now);
    assert_eq!((next, sent.len()), (Some(now + INTERVAL), 2));
    // A batch that is too small for any of them loses nothing but dummies.
    s.tx = TxBatch::new(TxConfig { capacity: 1_000, ..TxConfig::default() });
    let (next, sent) = at(&mut s, SECOND * 3);
    assert_eq!((next, sent.len()), (Some(SECOND * 3 + INTERVAL), 0));
}

#[test]
fn limits_and_numbers_hold_for_dummies_too() {
    let lifetime = Lifetime { soft_packets: 1, hard_packets: 2, ..Lifetime::default() };
    let mut s = Sender::new(SaAdd { lifetime, ..with_dummies(SaOptions::default()) });
    let sent: usize = (2..7).map(|round| at(&mut s, SECOND * round).1.len()).sum();
    assert_eq!(sent, 2);
    let sa = s.name();
    assert_eq!(s.engine.take_up(), [Up::Expire { sa, hard: false }, Up::Expire { sa, hard: true }]);
    assert_eq!(s.engine.counters().dropped(DropReason::OutStateExpired), 0, "there was nothing to drop");
    let mut s = Sender::new(with_dummies(SaOptions::default()));
    s.engine.advance_sequence(s.name(), 0xffff_ffff).unwrap();
    let sent: usize = (2..7).map(|round| at(&mut s, SECOND * round).1.len()).sum();
    assert_eq!(sent, 0);
    let packet = udp_between(false, 10).build();
    assert_eq!(s.refused(&packet), DropReason::OutStateSeqError);
}

#[test]
fn only_tunnel_mode_esp_may_ask_for_them() {
    use ironswan_ipsec::ApplyError;
    let s = Sender::new(outbound(false));
    let options = SaOptions { dummies: Some(INTERVAL), ..SaOptions::default() };
    for sa in [
        SaAdd { options, mode: TRANSPORT, ..outbound(false) },
        SaAdd { options, ..ah(false) },
        SaAdd { options: SaOptions { dummies: Some(Duration::ZERO), ..options }, ..outbound(false) },
        SaAdd {
            options: SaOptions { tfc: Tfc::Mtu, ..SaOptions::default() },
            mode: TRANSPORT,
            ..outbound(false)
        },
    ] {
        let sa = with_keys(SaAdd { reqid: ironswan_wire::sadb::ReqId(9), ..sa });
        assert_eq!(s.engine.apply(SECOND, &Command::SaAdd(Box::new(sa))), Err(ApplyError::Options));
    }
}
