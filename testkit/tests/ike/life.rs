//! What timers, actions and the packet engine bring about: liveness, rekeying by time, traps,
//! retries, reload.

use std::time::Duration;

use ironswan_ike::event::{Event, IkeState};
use ironswan_keying::diagnosis::{Configuration, NotDone, RequestFault};
use ironswan_keying::{ChildAction, ChildKind, Limits, Target};
use ironswan_testkit::{Verdict, World, config};
use ironswan_wire::iana::ExchangeType;
use ironswan_wire::sadb::{Action, Direction, ReqId, SaRef, Up};
use ironswan_wire::selector::PacketSelector;

const S: Duration = Duration::from_secs(1);

fn cut(w: &mut World) {
    w.net.rules.push(Box::new(|_| Verdict::Drop));
}

fn mend(w: &mut World) {
    w.net.rules.clear();
}

fn acquire(w: &mut World, node: usize, reqid: ReqId) {
    let packet = PacketSelector {
        src: config::ip("10.1.0.7"),
        dst: config::ip("10.2.0.7"),
        protocol: 17,
        src_port: Some(1),
        dst_port: Some(2),
    };
    let now = w.now();
    w.nodes[node].endpoint.call(now, |e| e.handle_engine(now, Up::Acquire { reqid, packet }));
}

#[test]
fn a_silent_peer_is_asked_and_a_talking_one_is_not() {
    let mut w = World::pair(1, |c| c.iter_mut().for_each(|c| c.dpd_delay = 30 * S));
    w.establish(0).unwrap();
    w.traffic = Some(S);
    let before = w.net.count;
    w.run(600 * S);
    assert_eq!(w.net.count, before, "ESP is life enough");
    w.traffic = None;
    w.run(600 * S);
    let asked = w.nodes[0].endpoint.protocol().counters().info.out_req
        + w.nodes[1].endpoint.protocol().counters().info.out_req;
    assert!((15..=45).contains(&asked), "{asked} in 600 s");
    w.assert_one();
}

#[test]
fn the_schedule_of_retransmissions_is_charons() {
    let mut w = World::pair(2, |_| {});
    cut(&mut w);
    let t0 = w.now();
    w.initiate(0);
    assert!(w.run_until(400 * S, |w| w.nodes[0].logged("giving up after 5 retransmits")));
    let took = (w.now() - t0).as_secs_f64();
    assert!((165.0..166.0).contains(&took), "{took}: 4 s, factor 1.8, 5 tries");
    assert_eq!(w.nodes[0].count_logged("retransmit 5 of request with message ID 0"), 1);
    assert_eq!(w.net.count, 6);
    w.assert_empty();
    assert_eq!(w.nodes[0].done.len(), 1);
    assert!(w.nodes[0].done.values().all(|r| r.as_ref().is_err_and(|e| e.contains("peer not responding"))));
}

#[test]
fn dpd_actions() {
    for (action, again) in [
        (ChildAction::None, false),
        (ChildAction::Start, true),
        (ChildAction::Trap, false),
        (ChildAction::TrapAndStart, true),
    ] {
        let mut w = World::pair(3, |c| {
            c[0].dpd_delay = 20 * S;
            c[0].keyingtries = 0;
            c[0].children[0].dpd_action = action;
        });
        w.establish(0).unwrap();
        cut(&mut w);
        assert!(w.run_until(600 * S, |w| w.up(0).is_empty()));
        assert!(w.nodes[0].logged("giving up after 5 retransmits"));
        w.run(S);
        assert!(w.nodes[0].engine.inbound.is_empty());
        assert_eq!(w.nodes[0].engine.policies.len(), usize::from(action.traps()));
        w.run(1_000 * S);
        mend(&mut w);
        w.run(1_000 * S);
        assert_eq!(w.up(0).len(), usize::from(again), "{action:?}");
        if again {
            w.run(400 * S);
            w.assert_one();
        }
    }
}

#[test]
fn close_actions() {
    for (action, child) in [
        (ChildAction::None, true),
        (ChildAction::Start, true),
        (ChildAction::Start, false),
        (ChildAction::Trap, true),
        (ChildAction::Trap, false),
        (ChildAction::TrapAndStart, true),
        (ChildAction::TrapAndStart, false),
    ] {
        let mut w = World::pair(4, |c| c[0].children[0].close_action = action);
        w.establish(0).unwrap();
        w.terminate(1, child);
        w.run(5 * S);
        match action {
            ChildAction::Start => w.assert_one(),
            // The trap stays below the child, and brings it up again when it ends.
            ChildAction::TrapAndStart => {
                w.assert_one();
                w.terminate(0, true);
                w.run(5 * S);
                assert!(w.nodes[0].engine.outbound.is_empty());
                let Action::Protect(reqid) = w.nodes[0].engine.policies[0].action else { panic!() };
                acquire(&mut w, 0, reqid);
                w.run(5 * S);
                w.assert_one();
            }
            ChildAction::Trap => {
                assert_eq!(w.nodes[0].engine.policies.len(), 1);
                assert!(w.nodes[0].engine.outbound.is_empty());
                let Action::Protect(reqid) = w.nodes[0].engine.policies[0].action else { panic!() };
                acquire(&mut w, 0, reqid);
                w.run(5 * S);
                assert!(w.nodes[0].engine.sending().is_some());
            }
            ChildAction::None => assert!(w.up(0)[0].children.is_empty()),
        }
        w.terminate(0, false);
        w.run(5 * S);
        assert!(
            w.up(0).is_empty() && w.up(1).is_empty(),
            "{action:?}: our own command is no reason to begin again"
        );
    }
}

#[test]
fn a_child_that_carries_nothing_is_closed_and_stays_closed() {
    for closer in 0..2 {
        let mut w = World::pair(6, |c| {
            c[closer].children[0].inactivity = 60 * S;
            c[closer].children[0].close_action = ChildAction::Start;
            c[closer].children[0].start_action = ChildAction::Start;
        });
        w.establish(closer).unwrap();
        w.run(50 * S);
        // A packet that arrives begins the time anew.
        w.nodes[closer].last_esp = Some(w.now());
        w.run(55 * S);
        assert_eq!(w.up(closer)[0].children.len(), 1, "at most 55 s without a packet");
        assert!(w.run_until(10 * S, |w| w.up(closer)[0].children.is_empty()));
        assert!(w.nodes[closer].logged("after 60 s of inactivity"));
        w.run(600 * S);
        for node in 0..2 {
            assert!(w.up(node)[0].children.is_empty(), "the IKE_SA stays, and the child is not restarted");
            assert!(w.nodes[node].engine.inbound.is_empty() && w.nodes[node].engine.policies.is_empty());
        }
    }
}

#[test]
fn a_trap_brings_an_inactive_child_up_again() {
    let mut w = World::pair(6, |c| {
        c[0].children[0].inactivity = 60 * S;
        c[0].children[0].start_action = ChildAction::TrapAndStart;
    });
    assert!(w.run_until(5 * S, |w| w.up(0).iter().any(|ike| !ike.children.is_empty())), "started at load");
    assert!(w.run_until(70 * S, |w| w.up(0)[0].children.is_empty()));
    let Action::Protect(reqid) = w.nodes[0].engine.policies[0].action else { panic!() };
    acquire(&mut w, 0, reqid);
    w.run(5 * S);
    w.assert_one();
}

#[test]
fn start_action_start_keeps_trying_with_pauses() {
    let mut w = World::pair(5, |c| {
        c[0].keyingtries = 0;
        c[1].children[0].start_action = ChildAction::None;
    });
    cut(&mut w);
    let mut conn = config::pair(config::ip("192.0.2.1"), config::ip("192.0.2.2"))[0].clone();
    conn.keyingtries = 0;
    conn.children[0].start_action = ChildAction::Start;
    let now = w.now();
    w.nodes[0].endpoint.load_connection(now, conn);
    w.run(3_600 * S);
    let tries = w.nodes[0].count_logged("giving up after 5 retransmits");
    assert!((8..20).contains(&tries), "{tries} in an hour: 165 s each, and pauses that grow to 300 s");
    mend(&mut w);
    w.run(500 * S);
    w.assert_one();
}

#[test]
fn attempts_that_begin_at_one_moment_do_not_go_on_in_step() {
    let mut times = Vec::new();
    for seed in 0..20 {
        let mut w = World::pair(seed, |_| {});
        cut(&mut w);
        let mut conn = config::pair(config::ip("192.0.2.1"), config::ip("192.0.2.2"))[0].clone();
        conn.children[0].start_action = ChildAction::Start;
        let begin = w.now();
        w.nodes[0].endpoint.load_connection(begin, conn);
        assert!(w.run_until(10 * S, |w| w.net.count == 2));
        times.push((w.now() - begin).as_millis());
    }
    assert!(times.iter().all(|t| (3_600..=4_010).contains(t)), "{times:?}");
    times.sort_unstable();
    times.dedup();
    assert!(times.len() > 15, "{times:?}");
}

#[test]
fn keyingtries_ends_the_attempts() {
    let mut w = World::pair(6, |c| c[0].keyingtries = 3);
    cut(&mut w);
    w.initiate(0);
    w.run(3_600 * S);
    assert_eq!(w.nodes[0].count_logged("giving up after 5 retransmits"), 3);
    w.assert_empty();
    assert!(w.nodes[0].endpoint.poll_timeout().is_none());
}

#[test]
fn traffic_brings_a_trapped_child_up() {
    let mut w = World::pair(7, |c| c[0].children[0].start_action = ChildAction::Trap);
    assert_eq!(w.nodes[0].engine.policies.len(), 1);
    let reqid = match w.nodes[0].engine.policies[0].action {
        Action::Protect(r) => r,
        other => panic!("{other:?}"),
    };
    for _ in 0..10 {
        acquire(&mut w, 0, reqid);
    }
    w.run(5 * S);
    w.assert_one();
    assert_eq!(w.child(0).reqid, reqid);
    assert_eq!(w.net.count, 4, "ten packets, one negotiation");
    // The trap outlives the child.
    w.terminate(0, false);
    w.run(5 * S);
    assert_eq!(w.nodes[0].engine.policies.len(), 1);
    acquire(&mut w, 0, reqid);
    w.run(5 * S);
    w.assert_one();
    let now = w.now();
    assert!(w.nodes[0].endpoint.unload_connection(now, "gw"));
    assert!(!w.nodes[0].endpoint.unload_connection(now, "gw"));
    w.run(S);
    w.assert_one();
    w.terminate(0, false);
    w.run(S);
    w.assert_empty();
}

#[test]
fn shunts_are_policies_and_nothing_more() {
    let mut w = World::pair(8, |c| {
        let mut pass = config::child("lan", "10.1.0.0/24", "10.1.0.0/24");
        (pass.kind, pass.start_action) = (ChildKind::Pass, ChildAction::Trap);
        let mut drop = config::child("never", "10.1.0.0/24", "10.66.0.0/16");
        (drop.kind, drop.start_action) = (ChildKind::Drop, ChildAction::Trap);
        c[0].children.extend([pass, drop]);
    });
    let actions: Vec<_> = w.nodes[0].engine.policies.iter().map(|p| p.action).collect();
    assert_eq!(actions, [Action::Bypass, Action::Discard]);
    let now = w.now();
    let err = w.nodes[0].endpoint.initiate(now, Some("gw"), Some("lan")).unwrap_err();
    assert_eq!(err, NotDone::Shunt("lan".to_owned()).into());
    w.establish(0).unwrap();
    assert_eq!(w.nodes[0].engine.policies.len(), 3);
}

#[test]
fn limits_that_the_engine_counts_rekey_and_then_close() {
    for direction in [Direction::In, Direction::Out] {
        let mut w = World::pair(9, |_| {});
        w.establish(0).unwrap();
        let sa_ref = |w: &World| {
            let c = w.child(0);
            let spi = if direction == Direction::In { c.spi_in } else { c.spi_out };
            SaRef { direction, spi, reqid: c.reqid, remote: config::ip("192.0.2.2") }
        };
        let (old, now) = (sa_ref(&w), w.now());
        for _ in 0..3 {
            w.nodes[0].endpoint.call(now, |e| e.handle_engine(now, Up::Expire { sa: old, hard: false }));
        }
        w.run(20 * S);
        w.assert_one();
        assert_ne!(sa_ref(&w), old);
        assert_eq!(w.nodes[0].endpoint.protocol().counters().child_rekey, 1);
        let (sa, now) = (sa_ref(&w), w.now());
        w.nodes[0].endpoint.call(now, |e| e.handle_engine(now, Up::Expire { sa, hard: true }));
        w.run(20 * S);
        assert!(w.up(0)[0].children.is_empty() && w.up(1)[0].children.is_empty());
    }
}

#[test]
fn an_ike_sa_that_cannot_be_rekeyed_ends_at_over_time() {
    let mut w = World::pair(10, |c| {
        c[0].rekey_time = 100 * S;
        c[0].over_time = 50 * S;
        c[0].children[0].start_action = ChildAction::Start;
    });
    w.run(5 * S);
    w.assert_one();
    let first = w.up(0)[0].spi_i;
    // The peer's answers to rekeying are lost, and nothing else.
    w.net.rules.push(Box::new(|s| {
        if s.exchange == ExchangeType::CREATE_CHILD_SA { Verdict::Drop } else { Verdict::Pass }
    }));
    w.run(160 * S);
    mend(&mut w);
    w.run(20 * S);
    assert!(w.nodes[0].logged("IKE_SA lifetime is over"));
    w.assert_one();
    assert_ne!(first, w.up(0)[0].spi_i);
}

#[test]
fn loading_the_same_again_touches_nothing_and_a_change_starts_anew() {
    let mut w = World::pair(11, |c| c[0].children[0].start_action = ChildAction::Start);
    w.run(5 * S);
    w.assert_one();
    let (count, child) = (w.net.count, w.child(0).spi_in);
    let mut conn = config::pair(config::ip("192.0.2.1"), config::ip("192.0.2.2"))[0].clone();
    conn.children[0].start_action = ChildAction::Start;
    let now = w.now();
    w.nodes[0].endpoint.load_connection(now, conn.clone());
    w.run(5 * S);
    assert_eq!((w.net.count, w.child(0).spi_in), (count, child));
    conn.children[0].replay_window = 64;
    let now = w.now();
    w.nodes[0].endpoint.load_connection(now, conn);
    w.run(5 * S);
    w.assert_one();
    assert_ne!(w.child(0).spi_in, child);
    assert_eq!(w.nodes[0].engine.inbound.values().next().unwrap().replay_window, 64);
}

#[test]
fn commands_say_what_they_do_not_find() {
    let mut w = World::pair(12, |_| {});
    let now = w.now();
    let e = &mut w.nodes[0].endpoint;
    let no_child = Err(NotDone::NoChild("nope".to_owned()).into());
    assert_eq!(e.initiate(now, Some("nope"), None), Err(NotDone::NotLoaded("nope".to_owned()).into()));
    assert_eq!(e.initiate(now, Some("gw"), Some("nope")), no_child);
    assert_eq!(e.initiate(now, None, Some("nope")), no_child);
    let nothing = Configuration::BadRequest { why: RequestFault::NoSelector };
    assert_eq!(e.initiate(now, None, None), Err(nothing.into()));
    let terminated = e.terminate(now, &Target::default(), false);
    assert_eq!(terminated, Err(NotDone::NoMatch { to: "terminate" }.into()));
    let all = Target { ike: Some("gw".into()), ..Target::default() };
    assert_eq!(e.rekey(now, &all, false), Err(NotDone::NoMatch { to: "rekey" }.into()));
    assert_eq!(e.rekey(now, &all, true), Err(NotDone::NoMatch { to: "reauthenticate" }.into()));
    assert!(e.initiate(now, None, Some("net")).is_ok());
}

#[test]
fn initiating_what_is_up_is_done_at_once() {
    let mut w = World::pair(13, |_| {});
    w.establish(0).unwrap();
    let count = w.net.count;
    w.establish(0).unwrap();
    w.establish(1).unwrap();
    assert_eq!(w.net.count, count);
}

#[test]
fn initiating_twice_at_once_makes_one_child() {
    let mut w = World::pair(17, |_| {});
    let tickets = [w.initiate(0), w.initiate(0), w.initiate(0)];
    w.run(5 * S);
    w.assert_one();
    assert!(tickets.iter().all(|t| w.nodes[0].done[t] == Ok(())));
}

#[test]
fn termination_by_id_and_by_force() {
    let mut w = World::pair(14, |_| {});
    w.establish(0).unwrap();
    let now = w.now();
    let by = |ike_id, child_id| Target { ike_id, child_id, ..Target::default() };
    assert!(w.nodes[0].endpoint.terminate(now, &by(Some(9), None), false).is_err());
    let id = w.child(0).id.0;
    let (n, t) = w.nodes[0].endpoint.terminate(now, &by(None, Some(id)), true).unwrap();
    assert_eq!(n, 1);
    w.run(S);
    assert_eq!(w.nodes[0].done[&t], Ok(()));
    assert!(w.up(1)[0].children.is_empty(), "the peer is told all the same");
    cut(&mut w);
    let (id, now) = (w.up(0)[0].id.0, w.now());
    let (_, t) = w.nodes[0].endpoint.terminate(now, &by(Some(id), None), true).unwrap();
    w.run(Duration::from_millis(1));
    assert_eq!(w.nodes[0].done[&t], Ok(()), "nothing is waited for");
    assert!(w.nodes[0].sas(w.now()).is_empty());
}

#[test]
fn a_delete_that_nobody_answers_ends_as_well() {
    let mut w = World::pair(15, |_| {});
    w.establish(0).unwrap();
    cut(&mut w);
    let t = w.terminate(0, false);
    assert_eq!(w.up(0)[0].state, IkeState::Deleting);
    w.run(200 * S);
    assert_eq!(w.nodes[0].done[&t], Ok(()));
    assert!(w.nodes[0].sas(w.now()).is_empty() && w.nodes[0].engine.inbound.is_empty());
}

#[test]
fn nothing_is_left_set_after_the_end() {
    let limits = Limits::default();
    let (a, b) = (config::ip("192.0.2.1"), config::ip("192.0.2.2"));
    let mut w = World::pair_at(16, a, b, limits, |c| {
        for c in c.iter_mut() {
            c.dpd_delay = 10 * S;
            c.rekey_time = 1_000 * S;
            c.over_time = 100 * S;
            c.children[0].rekey_time = 500 * S;
            c.children[0].life_time = 600 * S;
        }
    });
    for _ in 0..3 {
        w.establish(0).unwrap();
        w.rekey_child(1);
        w.run(20 * S);
        w.rekey_ike(0);
        w.run(20 * S);
        w.terminate(0, false);
        w.run(100 * S);
        w.assert_empty();
        for n in &w.nodes {
            assert_eq!(n.endpoint.poll_timeout(), None, "a timer of something that is gone");
        }
    }
    for n in &w.nodes {
        let (ups, downs) = n.events.iter().fold((0, 0), |(u, d), e| match e {
            Event::ChildUp { .. } => (u + 1, d),
            Event::ChildDown { .. } => (u, d + 1),
            _ => (u, d),
        });
        assert_eq!((ups, downs), (3, 3), "as many downs as ups");
    }
}
