//! Commands, reloads and other addresses of the peer while a key or a signature is being computed,
//! and gateways whose timers are late: whatever waits is answered once, and nothing is left.

use std::time::Duration;

use ironswan_ike::event::{Completion, Event, Request, RequestId};
use ironswan_keying::{AddrSpec, ChildAction, Childless, Limits, Target, Unique};
use ironswan_testkit::{WALL, World, config};
use ironswan_wire::iana::KeId;

use super::keyed::pair;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// Lets the computations of a node be done until the `n`th (from 1) waits.
fn hold(w: &mut World, node: usize, n: usize, begin: impl FnOnce(&mut World)) {
    w.nodes[node].held = Some(Vec::new());
    begin(w);
    let waits = |w: &World| w.nodes[node].held.as_ref().is_some_and(|h| !h.is_empty());
    for done in 1..=n {
        assert!(w.run_until(S, waits), "computation {done} of node {node}");
        if done < n {
            let now = w.now();
            w.nodes[node].release(now);
            w.nodes[node].held = Some(Vec::new());
        }
    }
}

/// Nothing is under way at node 0, and nothing of an attempt is left there.
fn assert_no_attempt(w: &World) {
    let of_attempts = [
        "requests outside",
        "tickets",
        "races",
        "reports",
        "orders",
        "things to do",
        "requests kept for the next attempt",
        "attempts to come",
        "attempts that wait for their turn",
        "tunnels that are down",
    ];
    let tables = w.nodes[0].endpoint.tables();
    for name in of_attempts {
        assert!(tables.contains(&(name, 0)), "{name}: {tables:?}");
    }
}

#[test]
fn an_attempt_whose_connection_is_changed_or_unloaded_ends_as_the_new_configuration_says() {
    for (automatic, unload) in [(true, true), (true, false), (false, true), (false, false)] {
        for computation in 1..=4 {
            let story = format!("automatic {automatic}, unload {unload}, computation {computation}");
            let mut w = pair(1, |_| {});
            let mut conn = w.nodes[0].connection("gw");
            if automatic {
                conn.children[0].start_action = ChildAction::Start;
            }
            let mut ticket = None;
            hold(&mut w, 0, computation, |w| {
                let now = w.now();
                w.nodes[0].endpoint.load_connection(now, conn.clone());
                if !automatic {
                    ticket = Some(w.initiate(0));
                }
            });
            let now = w.now();
            if unload {
                w.nodes[0].endpoint.unload_connection(now, "gw");
            } else {
                conn.unique = Unique::Replace;
                conn.rekey_time += S;
                conn.proposals = conn.proposals.iter().rev().cloned().collect();
                conn.childless = Childless::Prefer;
                w.nodes[0].endpoint.load_connection(now, conn.clone());
            }
            let now = w.now();
            w.nodes[0].release(now);
            w.run(400 * S);
            if unload {
                w.assert_empty();
            } else {
                w.assert_one();
            }
            let result = match unload {
                true => Err("the connection has been unloaded".to_owned()),
                false => Ok(()),
            };
            assert_eq!(ticket.and_then(|t| w.nodes[0].done.get(&t)), ticket.map(|_| &result), "{story}");
            assert_no_attempt(&w);
            w.audit();
        }
    }
}

/// "the responder MAY begin sending on an SA as soon as it sends its response" (RFC 7296 section
/// 2.8).
/// `computation`: the one of the initiator that is held when the responder has the child.
fn early_packets_wait(childless: Childless, computation: usize) {
    let mut w = pair(1, |c| {
        for conn in c {
            conn.childless = childless;
            conn.children[0].proposals = vec![config::esp_proposal(&[KeId::CURVE_25519])];
        }
    });
    hold(&mut w, 0, computation, |w| _ = w.initiate(0));
    assert!(w.nodes[0].engine.inbound.is_empty() && w.nodes[1].engine.inbound.len() == 1);
    w.traffic = Some(20 * MS);
    w.run(200 * MS);
    assert!(w.early.len() >= 5, "{childless:?}: {} packets wait", w.early.len());
    assert_eq!(w.nodes[0].esp, (0, 0), "{childless:?}");
    let (early, now) = (w.early.len(), w.now());
    w.nodes[0].release(now);
    w.run(200 * MS);
    assert!(w.early.is_empty() && w.nodes[0].esp.0 > early, "{childless:?}: {:?}", w.nodes[0].esp);
    assert_eq!((w.nodes[0].esp.1, w.nodes[1].esp.1), (0, 0), "{childless:?}: none was lost");
    w.assert_one();
}

#[test]
fn packets_that_arrive_while_the_initiator_computes_wait_for_the_sa() {
    // The verification of the responder's signature, and the key exchange of a CREATE_CHILD_SA.
    early_packets_wait(Childless::Allow, 4);
    early_packets_wait(Childless::Force, 6);
}

#[test]
fn an_spi_is_free_again_when_the_exchange_that_named_it_fails() {
    let mut w = pair(1, |c| {
        for (conn, ke) in c.iter_mut().zip([KeId::CURVE_25519, KeId::ECP_256]) {
            conn.childless = Childless::Force;
            conn.children[0].proposals = vec![config::esp_proposal(&[ke])];
        }
    });
    w.initiate(0);
    w.run(5 * S);
    assert!(w.nodes[0].engine.reserved.is_empty(), "{:?}", w.nodes[0].engine.reserved);
    w.net.mute.insert(1);
    w.initiate(0);
    w.run(400 * S);
    assert!(w.nodes[0].engine.reserved.is_empty(), "{:?}", w.nodes[0].engine.reserved);
}

/// Node 0 knows its peer at two addresses, at each of which it is.
fn two_addresses(seed: u64) -> World {
    let mut w = pair(seed, |c| {
        c[0].remote_addrs = ["192.0.2.2", "192.0.2.3"].map(|a| AddrSpec::Host(config::ip(a))).into();
        c[1].local_addrs = vec![AddrSpec::Any];
    });
    w.nodes[1].addrs.push(config::ip("192.0.2.3"));
    w
}

/// Of two addresses, the first has let us wait for our signature, and the signature that came from
/// the second is being verified: both computations, in this order.
fn two_wait(seed: u64) -> (World, Vec<(RequestId, Request)>) {
    let mut w = two_addresses(seed);
    hold(&mut w, 0, 3, |w| _ = w.initiate(0));
    let mut held = w.nodes[0].held.take().unwrap();
    w.run(1_900 * MS);
    hold(&mut w, 0, 4, |_| ());
    held.extend(w.nodes[0].held.take().unwrap());
    assert!(matches!(held[..], [(_, Request::Sign { .. }), (_, Request::Verify { .. })]));
    (w, held)
}

#[test]
fn of_two_addresses_whose_signatures_are_judged_at_once_the_first_verdict_wins() {
    for first in 0..2 {
        let (mut w, mut held) = two_wait(2);
        let verify = held.pop();
        hold(&mut w, 0, 1, |w| {
            let now = w.now();
            w.nodes[0].held = Some(held);
            w.nodes[0].release(now);
            w.nodes[0].held = Some(Vec::new());
        });
        let mut held = w.nodes[0].held.take().unwrap();
        held.extend(verify);
        assert_eq!(held.len(), 2);
        let late = held.remove(1 - first);
        for (pause, held) in [(S, held), (400 * S, vec![late])] {
            let now = w.now();
            w.nodes[0].held = Some(held);
            w.nodes[0].release(now);
            w.run(pause);
        }
        w.assert_one();
        let up = w.nodes[0].events.iter().filter(|e| matches!(e, Event::IkeUp(_))).count();
        assert_eq!(up, 1);
        assert_no_attempt(&w);
        w.audit();
    }
}

#[test]
fn down_while_two_addresses_are_asked_and_a_signature_is_judged_ends_both() {
    for force in [false, true] {
        let (mut w, held) = two_wait(3);
        let now = w.now();
        let target = Target { ike: Some("gw".to_owned()), ..Target::default() };
        w.nodes[0].endpoint.terminate(now, &target, force).unwrap();
        w.run(MS);
        let now = w.now();
        w.nodes[0].held = Some(held);
        w.nodes[0].release(now);
        w.run(400 * S);
        assert!(!w.nodes[0].events.iter().any(|e| matches!(e, Event::IkeUp(_))));
        w.assert_empty();
        assert_no_attempt(&w);
        w.audit();
    }
}

#[test]
fn while_a_signature_is_judged_no_other_address_is_asked_and_afterwards_if_it_is_wrong() {
    for right in [true, false] {
        let mut w = two_addresses(7);
        let mut conn = w.nodes[1].connection("gw");
        conn.unique = Unique::Replace;
        let now = w.now();
        w.nodes[1].endpoint.load_connection(now, conn);
        hold(&mut w, 0, 4, |w| _ = w.initiate(0));
        w.run(10 * S);
        assert!(w.net.log.iter().all(|(_, p)| p.to.ip() != config::ip("192.0.2.3")));
        let now = w.now();
        if right {
            w.nodes[0].release(now);
        } else {
            for (id, _) in w.nodes[0].held.take().unwrap() {
                w.nodes[0].endpoint.call(now, |e| e.complete(now, id, Completion::Verified(false)));
            }
        }
        w.run(400 * S);
        w.assert_one();
        assert_eq!(w.up(0)[0].remote.ip() == config::ip("192.0.2.2"), right);
        assert_no_attempt(&w);
    }
}

#[test]
fn a_command_that_is_refused_leaves_no_tunnel_that_waits() {
    let mut w = pair(6, |c| c[0].remote_addrs = vec![AddrSpec::Any]);
    let now = w.now();
    assert!(w.nodes[0].endpoint.initiate(now, Some("gw"), Some("net")).is_err());
    assert_no_attempt(&w);
    let mut w = pair(6, |_| {});
    let now = w.now();
    w.nodes[0].endpoint.set_limits(now, Limits { ike_sa_max: 0, ..Limits::default() });
    assert!(w.nodes[0].endpoint.initiate(now, Some("gw"), Some("net")).is_err());
    assert_no_attempt(&w);
}

#[test]
fn a_command_to_rekey_is_done_after_the_successor_is_there() {
    let mut w = pair(5, |_| {});
    w.establish(0).unwrap();
    hold(&mut w, 0, 2, |w| _ = w.rekey_ike(0));
    let held = w.nodes[0].held.take().unwrap();
    let now = w.now();
    for (id, request) in held {
        let answer = request.compute(WALL).unwrap();
        w.nodes[0].endpoint.call(now, |e| e.complete(now, id, answer));
    }
    let mut told = Vec::new();
    while let Some(event) = w.nodes[0].endpoint.outputs().poll_event() {
        match event {
            Event::IkeRekeyed { .. } => told.push("rekeyed"),
            Event::Done { .. } => told.push("done"),
            _ => {}
        }
    }
    assert_eq!(told, ["rekeyed", "done"]);
}

#[test]
fn after_a_sleep_of_any_length_there_is_one_tunnel_and_nothing_else() {
    for time in [5 * S, 170 * S, 1_000 * S, 3_700 * S, 16_000 * S, 200_000 * S] {
        for seed in 10..20 {
            let mut w = World::pair(seed, |c| {
                for c in c.iter_mut() {
                    c.unique = Unique::Replace;
                    c.dpd_delay = 30 * S;
                }
                for c in c.iter_mut() {
                    (c.rekey_time, c.over_time, c.rand_time) = (14_400 * S, 1_440 * S, 1_440 * S);
                    let child = &mut c.children[0];
                    (child.rekey_time, child.life_time, child.rand_time) = (3_600 * S, 3_960 * S, 360 * S);
                }
                let child = &mut c[0].children[0];
                (child.start_action, child.dpd_action, child.close_action) =
                    (ChildAction::Start, ChildAction::Start, ChildAction::Start);
            });
            // In the middle of something, or not.
            w.run((seed as u32 % 5) * 700 * MS);
            w.sleep(time);
            w.run(300 * S);
            let (up, there) = (w.up(0), w.up(1));
            assert_eq!((up.len(), there.len()), (1, 1), "{time:?} {seed}: {up:?} {there:?}");
            assert_eq!((up[0].children.len(), there[0].children.len()), (1, 1), "{time:?} {seed}");
            w.audit();
        }
    }
}

/// Node 0 may be anywhere, and knows its addresses.
fn warrior(seed: u64) -> World {
    let mut w = pair(seed, |c| {
        c[0].local_addrs = vec![AddrSpec::Any];
        c[1].remote_addrs = vec![AddrSpec::Any];
    });
    w.network_changed(0);
    w
}

#[test]
fn a_gateway_that_moves_while_something_is_computed_or_sent_again_has_one_tunnel_at_its_new_address() {
    let (old, new) = (config::ip("192.0.2.1"), config::ip("198.51.100.20"));
    for there in [false, true] {
        let addrs: Vec<_> = [new].into_iter().chain(there.then_some(old)).collect();
        for (node, computation) in (0..2).flat_map(|node| (1..=4).map(move |n| (node, n))) {
            let mut w = warrior(8);
            hold(&mut w, node, computation, |w| _ = w.initiate(0));
            w.readdress(0, addrs.clone());
            w.run(3 * S);
            let now = w.now();
            w.nodes[node].release(now);
            w.run(400 * S);
            w.assert_one();
            assert_eq!(w.up(0)[0].local.ip(), new, "there {there}, node {node}, computation {computation}");
            w.audit();
        }
        for rekeys in [World::rekey_ike, World::rekey_child] {
            let mut w = warrior(9);
            w.establish(0).unwrap();
            w.net.mute.insert(1);
            rekeys(&mut w, 0);
            w.run(10 * S);
            w.readdress(0, addrs.clone());
            w.run(S);
            w.net.mute.clear();
            w.run(400 * S);
            w.assert_one();
            assert_eq!(w.up(0)[0].local.ip(), new, "there {there}");
            assert_no_attempt(&w);
            w.audit();
        }
    }
}
