//! Reauthentication: another IKE_SA takes over before the old one ends, by `reauth_time` and by
//! AUTH_LIFETIME (RFC 4478), under loss, in both roles, and whatever the peer names.

use std::time::Duration;

use ironswan_keying::diagnosis::KeyExchange;
use ironswan_keying::{AddrSpec, Connection, Diagnosis, Limits, Target, Unique};
use ironswan_testkit::{Forger, Seen, Verdict, World, config};
use ironswan_wire::iana::{ExchangeType, NotifyType};
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::Notify;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// Two gateways of which `of` makes the IKE_SA anew every 100 s.
fn world(seed: u64, of: usize, tweak: impl FnOnce(&mut [Connection; 2])) -> World {
    let limits = Limits { retransmit_tries: 5, retransmit_base: 1.2, ..Limits::default() };
    World::pair_at(seed, config::ip("192.0.2.1"), config::ip("192.0.2.2"), limits, |c| {
        (c[of].reauth_time, c[of].over_time, c[of].rand_time) = (100 * S, 60 * S, 10 * S);
        tweak(c);
    })
}

/// A peer that takes anyone and can initiate to nobody.
fn passive(conn: &mut Connection) {
    conn.remote_addrs = vec![AddrSpec::Any];
}

/// The old inbound SA goes some seconds after its IKE_SA.
fn settle(w: &mut World) {
    w.run_until(10 * S, |w| w.fault().is_none());
    w.assert_one();
}

fn id(w: &World, node: usize) -> u64 {
    let up = w.up(node);
    assert_eq!(up.len(), 1, "{up:?}");
    up[0].id.0
}

/// The peer's last word to node 0, as if it had sent it.
fn told(w: &mut World, seconds: &[u8]) {
    let mut forge = Forger::newest(&w.nodes[1]);
    let notify = Payload::Notify(Notify::new(NotifyType::AUTH_LIFETIME, seconds));
    let bytes = forge.message(false, ExchangeType::INFORMATIONAL, false, 0, &[notify]);
    let up = w.up(1);
    w.inject(up[0].local, up[0].remote, bytes);
    w.run(100 * MS);
}

#[test]
fn an_ike_sa_is_made_anew_in_time_without_the_loss_of_a_packet() {
    for unique in [Unique::No, Unique::Replace, Unique::Never] {
        let mut w = world(1, 0, |c| c.iter_mut().for_each(|c| c.unique = unique));
        w.net.delay = 20 * MS;
        w.establish(0).unwrap();
        w.traffic = Some(5 * MS);
        let mut last = id(&w, 0);
        for round in 0..20 {
            w.run(110 * S);
            settle(&mut w);
            assert_ne!(id(&w, 0), last, "round {round}");
            last = id(&w, 0);
        }
        let lost = (w.nodes[0].esp.1, w.nodes[1].esp.1);
        assert_eq!(lost, (0, 0), "{unique:?}: every packet has met its SA");
        w.traffic = None;
        w.run(20 * S);
        w.audit();
    }
}

#[test]
fn packets_of_one_direction_alone_are_not_lost_either() {
    // Only node 1 sends: it never sees a packet on the new SA.
    let mut w = world(2, 0, |_| {});
    w.net.delay = 20 * MS;
    w.establish(0).unwrap();
    w.traffic = Some(5 * MS);
    w.quiet.insert(0);
    w.run(500 * S);
    w.assert_one();
    assert!(w.nodes[0].esp.0 > 90_000, "{:?}", w.nodes[0].esp);
    assert_eq!((w.nodes[0].esp.1, w.nodes[1].esp.0), (0, 0));
}

#[test]
fn every_message_of_a_reauthentication_may_be_lost_doubled_or_late_in_both_roles() {
    for of in 0..2 {
        let life = |w: &mut World| {
            w.establish(0).unwrap();
            w.run(600 * S);
        };
        let mut plain = world(3, of, |_| {});
        life(&mut plain);
        let total = plain.net.count;
        assert!(total > 20, "{total}");
        let story = |what: &str, with: &dyn Fn(&mut World)| {
            let mut w = world(3, of, |_| {});
            with(&mut w);
            life(&mut w);
            if let Some(fault) = w.fault() {
                w.dump();
                panic!("role {of}, {what}: {fault}");
            }
        };
        for k in 4..total.min(20) {
            for verdict in [Verdict::Drop, Verdict::Delay(3 * S), Verdict::Delay(20 * S)] {
                let rule = move |s: &Seen| if s.index == k { verdict } else { Verdict::Pass };
                story(&format!("message {k}: {verdict:?}"), &|w| w.net.rules.push(Box::new(rule)));
            }
        }
        story("all doubled", &|w| (w.net.duplicate, w.net.jitter) = (1_000, 200 * MS));
    }
}

#[test]
fn both_ends_may_begin_at_once() {
    for seed in 0..20 {
        let mut w = world(100 + seed, 0, |c| {
            for c in c.iter_mut() {
                (c.reauth_time, c.over_time, c.rand_time) = (100 * S, 60 * S, Duration::ZERO);
            }
        });
        w.net.delay = 10 * MS;
        w.establish(0).unwrap();
        w.run(1_000 * S);
        w.run_until(50 * S, |w| w.fault().is_none());
        w.assert_one();
    }
}

#[test]
fn an_end_that_cannot_begin_names_the_time_and_the_other_keeps_to_it() {
    let mut w = world(4, 1, |c| passive(&mut c[1]));
    w.establish(0).unwrap();
    assert!(w.nodes[1].logged("sending AUTH_LIFETIME of 100s"));
    assert!(w.nodes[0].logged("received AUTH_LIFETIME of 100s"));
    w.traffic = Some(10 * MS);
    for _ in 0..10 {
        let before = id(&w, 0);
        w.run(102 * S);
        settle(&mut w);
        assert_ne!(id(&w, 0), before, "within the time that was named");
    }
    assert_eq!((w.nodes[0].esp.1, w.nodes[1].esp.1), (0, 0));
}

#[test]
fn an_end_that_can_begin_does_so_itself_and_names_nothing() {
    let mut w = world(5, 1, |_| {});
    w.establish(0).unwrap();
    let before = id(&w, 1);
    w.run(110 * S);
    w.assert_one();
    assert_ne!(id(&w, 1), before);
    assert!(!w.nodes[1].logged("AUTH_LIFETIME") && w.up(1)[0].initiator);
}

#[test]
fn an_initiator_that_does_not_keep_to_the_time_is_deleted_at_its_end() {
    let mut w = world(6, 1, |c| {
        passive(&mut c[1]);
        c[0].over_time = 60 * S;
    });
    w.establish(0).unwrap();
    w.net.rules.push(Box::new(|s| match s.exchange {
        ExchangeType::IKE_SA_INIT => Verdict::Drop,
        _ => Verdict::Pass,
    }));
    w.run(159 * S);
    assert_eq!(w.up(1).len(), 1);
    w.run(2 * S);
    assert!(w.up(1).is_empty() && w.nodes[1].logged("IKE_SA lifetime is over"));
}

#[test]
fn the_time_goes_on_through_rekeyings() {
    let mut w = world(7, 0, |c| c[0].rekey_time = 30 * S);
    w.establish(0).unwrap();
    w.run(85 * S);
    assert!(w.nodes[0].count_logged("rekeyed between") >= 2, "rekeyings between");
    assert!(!w.nodes[0].logged("reauthentication is due"));
    w.run(20 * S);
    assert!(w.nodes[0].logged("reauthentication is due"), "100 s after IKE_AUTH");
    w.run(500 * S);
    w.run_until(50 * S, |w| w.fault().is_none());
    w.assert_one();
}

#[test]
fn a_peer_that_is_not_there_gets_more_attempts_until_the_end() {
    let mut w = world(8, 0, |c| c[0].over_time = 300 * S);
    w.establish(0).unwrap();
    w.net.rules.push(Box::new(|s| match s.exchange {
        ExchangeType::IKE_SA_INIT => Verdict::Drop,
        _ => Verdict::Pass,
    }));
    w.run(250 * S);
    assert!(w.nodes[0].count_logged("reauthentication failed, trying again") >= 2);
    assert_eq!(w.up(0).len(), 1, "the old one stands meanwhile");
    w.net.rules.clear();
    w.run(50 * S);
    w.assert_one();
}

#[test]
fn a_lifetime_that_a_peer_names_is_bounded_at_both_ends() {
    for seconds in [0, 1, 9] {
        let mut w = world(9, 0, |c| c[0].reauth_time = Duration::ZERO);
        w.establish(0).unwrap();
        told(&mut w, &u32::to_be_bytes(seconds));
        let why = Diagnosis::from(KeyExchange::ShortAuthLifetime { seconds, used: 10 });
        assert!(w.nodes[0].logged(&why.to_string()), "{seconds}");
        let before = w.net.count;
        w.run(6 * S);
        assert_eq!(w.net.count, before, "not at once");
        w.run(600 * S);
        settle(&mut w);
        // The new IKE_SA has no such lifetime: one reauthentication is all that it costs.
        assert!(w.net.count - before <= 6, "{}", w.net.count - before);
    }
    for far in [0x7fff_ffff, u32::MAX] {
        let mut w = world(10, 0, |_| {});
        w.establish(0).unwrap();
        told(&mut w, &far.to_be_bytes());
        assert!(w.nodes[0].logged("reauthentication comes earlier already"));
        w.run(105 * S);
        assert!(w.nodes[0].logged("reauthentication is due"), "our own time counts");
    }
    for wrong in [&[][..], &[0, 0, 1], &[0, 0, 0, 0, 1]] {
        let mut w = world(11, 0, |c| c[0].reauth_time = Duration::ZERO);
        w.establish(0).unwrap();
        let before = w.net.count;
        told(&mut w, wrong);
        w.run(1_000 * S);
        assert_eq!(w.net.count, before + 1, "answered, and without meaning");
    }
}

#[test]
fn a_responder_is_told_nothing_by_its_initiator() {
    let mut w = world(12, 0, |c| c[0].reauth_time = Duration::ZERO);
    w.establish(1).unwrap();
    told(&mut w, &20u32.to_be_bytes());
    w.run(100 * S);
    assert!(!w.nodes[0].logged("AUTH_LIFETIME") && !w.nodes[0].logged("reauthentication"));
}

#[test]
fn a_command_makes_an_ike_sa_anew_and_hears_of_its_end() {
    let mut w = World::pair(13, |_| {});
    w.establish(0).unwrap();
    let before = id(&w, 0);
    let now = w.now();
    let target = Target { ike: Some("gw".into()), ..Target::default() };
    let (count, ticket) = w.nodes[0].endpoint.rekey(now, &target, true).unwrap();
    assert_eq!(count, 1);
    w.run(S);
    settle(&mut w);
    assert_ne!(id(&w, 0), before);
    assert_eq!(w.nodes[0].done.get(&ticket), Some(&Ok(())));
    // Who has no address of the peer cannot.
    let mut w = World::pair(14, |c| passive(&mut c[1]));
    w.establish(0).unwrap();
    let now = w.now();
    let (_, ticket) = w.nodes[1].endpoint.rekey(now, &target, true).unwrap();
    w.run(S);
    assert!(w.nodes[1].done.get(&ticket).unwrap().as_ref().unwrap_err().contains("%any"));
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let trace = || {
        let mut w = world(15, 0, |_| {});
        w.net.loss = 100;
        let _ = w.establish(0);
        w.run(2_000 * S);
        let start = w.net.sent[0];
        let times: Vec<_> = w.net.sent.iter().map(|at| *at - start).collect();
        (times, w.net.log.iter().map(|(_, p)| p.payload.clone()).collect::<Vec<_>>())
    };
    let (first, second) = (trace(), trace());
    assert!(first.0.len() > 60 && first == second);
}
