//! Keys and connections that are withdrawn, peers that restart, and threads that are lost while a
//! key exchange or a signature is being computed: nobody is let in who is not configured any more,
//! one IKE_SA remains, and nothing is left.

use std::time::Duration;

use ironswan_ike::event::{Completion, Event, Request, RequestId, Ticket};
use ironswan_keying::diagnosis::{KeyExchange, Uncomputed};
use ironswan_keying::{Target, Unique};
use ironswan_testkit::{Verdict, WALL, World, config};
use ironswan_wire::iana::{ExchangeType, KeId};

use super::keyed::{by, key, pair};

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// The first computations of a node are done, until the `n`th (from 1) waits.
fn hold(w: &mut World, node: usize, n: usize) {
    for done in 1..=n {
        let waits = |w: &World| w.nodes[node].held.as_ref().is_some_and(|h| !h.is_empty());
        assert!(w.run_until(S, waits), "computation {done} of node {node}");
        if done < n {
            let now = w.now();
            w.nodes[node].release(now);
            w.nodes[node].held = Some(Vec::new());
        }
    }
}

/// Node 0 initiates, and the `n`th computation of a node waits.
fn initiate_and_hold(w: &mut World, node: usize, n: usize) -> Ticket {
    w.nodes[node].held = Some(Vec::new());
    let ticket = w.initiate(0);
    hold(w, node, n);
    ticket
}

/// Gives these answers now.
fn answer(w: &mut World, node: usize, held: Vec<(RequestId, Request)>) {
    let now = w.now();
    for (id, request) in held {
        let answer = request.compute(WALL).expect("a computation");
        w.nodes[node].endpoint.call(now, |e| e.complete(now, id, answer));
    }
}

fn ups(w: &World, node: usize) -> usize {
    w.nodes[node].events.iter().filter(|e| matches!(e, Event::IkeUp(_))).count()
}

// ---- what is not configured any more ----

#[test]
fn a_command_whose_connection_is_unloaded_meanwhile_fails_and_says_why() {
    for computation in 1..=4 {
        let mut w = pair(1, |_| {});
        let ticket = initiate_and_hold(&mut w, 0, computation);
        let late = w.nodes[0].held.clone().unwrap();
        let now = w.now();
        w.nodes[0].endpoint.unload_connection(now, "gw");
        w.run(MS);
        let ended = Err("the connection has been unloaded".to_owned());
        assert_eq!(w.nodes[0].done.get(&ticket), Some(&ended), "computation {computation}");
        w.nodes[0].held = None;
        answer(&mut w, 0, late);
        w.run(400 * S);
        assert_eq!(ups(&w, 0), 0, "computation {computation}");
        w.assert_empty();
        w.audit();
    }
}

#[test]
fn a_command_whose_connection_is_unloaded_while_the_peer_is_silent_fails_too() {
    for exchange in [ExchangeType::IKE_SA_INIT, ExchangeType::IKE_AUTH] {
        let mut w = World::pair(2, |_| {});
        w.net.rules.push(Box::new(move |s| match s.node == 1 && s.exchange == exchange {
            true => Verdict::Drop,
            false => Verdict::Pass,
        }));
        let ticket = w.initiate(0);
        w.run(S);
        let now = w.now();
        let ended = Err("the connection has been unloaded".to_owned());
        w.nodes[0].endpoint.unload_connection(now, "gw");
        w.run(MS);
        assert_eq!(w.nodes[0].done.get(&ticket), Some(&ended));
        w.net.rules.clear();
        w.run(400 * S);
        assert_eq!(ups(&w, 0), 0);
        w.assert_empty();
        w.audit();
    }
}

#[test]
fn a_peer_whose_key_goes_while_its_signature_is_judged_is_not_believed_by_a_command_either() {
    for computation in 1..=4 {
        let mut w = pair(3, |_| {});
        let ticket = initiate_and_hold(&mut w, 0, computation);
        let mut conn = w.nodes[0].connection("gw");
        conn.remote_auth = by(3);
        let now = w.now();
        w.nodes[0].endpoint.load_connection(now, conn);
        w.nodes[0].release(now);
        w.run(400 * S);
        let ended = Err("the connection has been changed".to_owned());
        assert_eq!(w.nodes[0].done.get(&ticket), Some(&ended), "computation {computation}");
        assert_eq!(ups(&w, 0), 0, "computation {computation}");
        w.assert_empty();
        w.audit();
    }
}

#[test]
fn a_private_key_that_is_unloaded_while_it_signs_proves_nothing() {
    for node in 0..2 {
        let mut w = pair(4, |_| {});
        let ticket = initiate_and_hold(&mut w, node, 3 + node);
        let held = w.nodes[node].held.as_ref().unwrap();
        assert!(matches!(held[..], [(_, Request::Sign { .. })]));
        assert!(w.nodes[node].endpoint.unload_private(&key(1 + node as u8).public().id()));
        let now = w.now();
        w.nodes[node].release(now);
        w.run(400 * S);
        assert!(w.nodes[0].done[&ticket].is_err());
        assert!(w.nodes[node].logged("no private key found for"), "node {node}: {:?}", w.nodes[node].log);
        assert_eq!((ups(&w, 0), ups(&w, 1)), (0, 0));
        w.assert_empty();
        w.audit();
    }
}

// ---- a peer that restarts ----

#[test]
fn a_peer_that_restarts_while_its_first_signature_is_judged_has_one_ike_sa() {
    for unique in [Unique::Replace, Unique::No, Unique::Keep] {
        for (first, contact) in [(0, true), (1, true), (0, false), (1, false)] {
            // Without INITIAL_CONTACT, and where several IKE_SAs of one peer may stand, nothing
            // tells that one is stale.
            if !contact && unique != Unique::Replace {
                continue;
            }
            let story = format!("{unique:?}, verdict {first} first, INITIAL_CONTACT {contact}");
            let mut w = pair(5, |c| {
                c.iter_mut().for_each(|c| c.unique = unique);
                if !contact {
                    c[0].unique = Unique::Never;
                }
            });
            let conn = w.nodes[0].connection("gw");
            initiate_and_hold(&mut w, 1, 3);
            let mut verdicts = w.nodes[1].held.replace(Vec::new()).unwrap();
            w.restart(0, 77, conn);
            w.nodes[0].endpoint.load_private(key(1));
            w.initiate(0);
            hold(&mut w, 1, 3);
            verdicts.extend(w.nodes[1].held.take().unwrap());
            assert!(matches!(verdicts[..], [(_, Request::Verify { .. }), (_, Request::Verify { .. })]));
            let second = verdicts.split_off(1);
            let order = if first == 0 { [verdicts, second] } else { [second, verdicts] };
            for held in order {
                answer(&mut w, 1, held);
                w.run(300 * MS);
            }
            // Nobody answers a DELETE of the stale one.
            w.run(if contact { 2 * S } else { 300 * S });
            let there = w.up(1);
            assert_eq!(there.len(), 1, "{story}: {there:?}");
            assert_eq!(w.up(0).iter().map(|s| s.spi_i).collect::<Vec<_>>(), [there[0].spi_i], "{story}");
            w.run(300 * S);
            w.assert_one();
            w.audit();
        }
    }
}

// ---- both ends at once ----

#[test]
fn two_ends_whose_signatures_cross_have_one_tunnel_that_carries() {
    for unique in [Unique::Replace, Unique::No, Unique::Keep] {
        for seed in 0..4 {
            for order in [[0, 1], [1, 0]] {
                let story = format!("{unique:?}, seed {seed}, order {order:?}");
                let mut w = pair(60 + seed, |c| c.iter_mut().for_each(|c| c.unique = unique));
                w.nodes.iter_mut().for_each(|n| n.held = Some(Vec::new()));
                w.initiate(0);
                w.initiate(1);
                // Each has a key pair and two shared secrets to make, and a signature: then both
                // IKE_AUTH requests are out.
                let asked = |w: &World| {
                    let asks = |n: usize| {
                        w.net
                            .log
                            .iter()
                            .any(|(s, _)| s.node == n && s.exchange == ExchangeType::IKE_AUTH && !s.response)
                    };
                    asks(0) && asks(1)
                };
                for _ in 0..100 {
                    for node in 0..2 {
                        let held = w.nodes[node].held.replace(Vec::new()).unwrap();
                        let (later, now): (Vec<_>, Vec<_>) =
                            held.into_iter().partition(|(_, r)| matches!(r, Request::Verify { .. }));
                        w.nodes[node].held = Some(later);
                        answer(&mut w, node, now);
                    }
                    w.run(10 * MS);
                    if asked(&w) {
                        break;
                    }
                }
                assert!(asked(&w), "{story}");
                w.run(50 * MS);
                w.nodes.iter().for_each(|n| assert_eq!(n.held.as_ref().unwrap().len(), 1, "{story}"));
                for node in order {
                    let now = w.now();
                    w.nodes[node].release(now);
                    w.run(20 * MS);
                }
                w.run(60 * S);
                w.assert_one();
                w.nodes.iter().for_each(|n| assert!(n.done.values().all(Result::is_ok), "{story}"));
                let before: Vec<_> = w.nodes.iter().map(|n| n.esp).collect();
                w.traffic = Some(10 * MS);
                w.run(S);
                for (node, before) in w.nodes.iter().zip(before) {
                    assert!(node.esp.0 > before.0 + 90 && node.esp.1 == before.1, "{story}: {:?}", node.esp);
                }
                w.audit();
            }
        }
    }
}

// ---- whatever ends while something is computed ----

/// What is under way.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Busy {
    SetUp,
    RekeyIke,
    RekeyChild,
}

/// What happens meanwhile at the node that computes.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Meanwhile {
    /// The thread is lost.
    Lost,
    /// `down`, here and at the peer, with and without waiting.
    Down,
    Destroy,
    DownThere,
    DestroyThere,
    Unload,
    Restart,
}

const ALL: [Meanwhile; 7] = {
    use Meanwhile::*;
    [Lost, Down, Destroy, DownThere, DestroyThere, Unload, Restart]
};

/// Node 0 begins, and the `n`th computation of a node waits; `None` when there are fewer.
fn busy(seed: u64, busy: Busy, node: usize, n: usize) -> Option<World> {
    let mut w = pair(seed, |c| {
        for c in c {
            // A peer that could not be told finds out by itself.
            (c.unique, c.dpd_delay) = (Unique::Replace, 30 * S);
            c.children[0].proposals = vec![config::esp_proposal(&[KeId::CURVE_25519])];
        }
    });
    if busy != Busy::SetUp {
        w.establish(0).unwrap();
    }
    w.nodes[node].held = Some(Vec::new());
    match busy {
        Busy::SetUp => w.initiate(0),
        Busy::RekeyIke => w.rekey_ike(0),
        Busy::RekeyChild => w.rekey_child(0),
    };
    for done in 1..=n {
        let waits = |w: &World| w.nodes[node].held.as_ref().is_some_and(|h| !h.is_empty());
        if !w.run_until(S, waits) {
            return None;
        }
        if done < n {
            let now = w.now();
            w.nodes[node].release(now);
            w.nodes[node].held = Some(Vec::new());
        }
    }
    Some(w)
}

#[test]
fn whatever_ends_while_something_is_computed_leaves_nothing() {
    let mut stories = 0;
    for (under_way, node, n) in [Busy::SetUp, Busy::RekeyIke, Busy::RekeyChild]
        .into_iter()
        .flat_map(|b| (0..2).flat_map(move |node| (1..=4).map(move |n| (b, node, n))))
    {
        for meanwhile in ALL {
            let Some(mut w) = busy(7, under_way, node, n) else { continue };
            stories += 1;
            let story = format!("{under_way:?}, computation {n} of node {node}, {meanwhile:?}");
            let late = w.nodes[node].held.take().unwrap();
            let now = w.now();
            let target = Target { ike: Some("gw".to_owned()), ..Target::default() };
            let down = |w: &mut World, node: usize, force| {
                _ = w.nodes[node].endpoint.terminate(now, &target, force);
            };
            match meanwhile {
                Meanwhile::Lost => {
                    for (id, _) in &late {
                        let why = KeyExchange::NotComputed { why: Uncomputed::Panicked };
                        let lost = Completion::Failed { why: why.into() };
                        w.nodes[node].endpoint.call(now, |e| e.complete(now, *id, lost));
                    }
                }
                Meanwhile::Down => down(&mut w, node, false),
                Meanwhile::Destroy => down(&mut w, node, true),
                Meanwhile::DownThere => down(&mut w, 1 - node, false),
                Meanwhile::DestroyThere => down(&mut w, 1 - node, true),
                Meanwhile::Unload => _ = w.nodes[node].endpoint.unload_connection(now, "gw"),
                Meanwhile::Restart => {
                    let conn = w.nodes[1 - node].connection("gw");
                    w.restart(1 - node, 99, conn);
                }
            }
            w.run(100 * MS);
            answer(&mut w, node, late);
            w.run(400 * S);
            let counts = [w.up(0).len(), w.up(1).len()];
            match (meanwhile, under_way) {
                (Meanwhile::Restart, _) => assert_eq!(counts[1 - node], 0, "{story}"),
                // A peer whose request had no answer asks again, and what only one side knows is
                // not closed by the other.
                (_, Busy::SetUp) => assert_eq!(counts[0], counts[1], "{story}"),
                // An IKE_SA that stands is not touched by a computation that failed, nor by an
                // unloading.
                (Meanwhile::Lost | Meanwhile::Unload, _) => w.assert_one(),
                _ => assert_eq!(counts, [0, 0], "{story}"),
            }
            w.audit();
        }
    }
    assert!(stories > 80, "{stories}");
}
