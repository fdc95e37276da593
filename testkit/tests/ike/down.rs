//! Peers that are down, outages of every kind, restarts, and both sides at once: what comes back,
//! when, and at what price.

use std::net::IpAddr;
use std::time::Duration;

use ironswan_keying::{AddrSpec, ChildAction, Connection, Limits, TsSpec, Unique};
use ironswan_testkit::{Node, Verdict, World, config};
use ironswan_wire::iana::{ExchangeType, KeId};
use ironswan_wire::id::{IdPattern, Identity};

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
const N: usize = 500;

fn hub() -> IpAddr {
    config::ip("192.0.2.1")
}

fn spoke(i: usize) -> IpAddr {
    IpAddr::from([198, 51, 100 + (i / 250) as u8, (i % 250) as u8])
}

/// The connections of the hub and of spoke `i`. What should be up always is started by `starter`
/// (0: the hub).
fn pair(i: usize, starter: usize) -> [Connection; 2] {
    let mut conns = config::pair(hub(), spoke(i));
    let id = format!("spoke{i}.example");
    let net = format!("10.{}.{}.0/24", 100 + i / 250, i % 250);
    conns[0].remote_id = IdPattern::parse(&id).unwrap();
    conns[1].local_id = Identity::parse(&id);
    conns[0].children = vec![config::child("net", "10.1.0.0/24", &net)];
    conns[1].children = vec![config::child("net", &net, "10.1.0.0/24")];
    for (n, c) in conns.iter_mut().enumerate() {
        c.name = format!("c{i}");
        c.dpd_delay = 30 * S;
        c.local_addrs = vec![AddrSpec::Host(if n == 0 { hub() } else { spoke(i) })];
    }
    conns[starter].children[0].start_action = ChildAction::Start;
    conns[starter].children[0].dpd_action = ChildAction::Start;
    conns
}

fn keys(node: &mut Node) {
    for i in 0..N {
        let id = format!("spoke{i}.example");
        node.endpoint.load_shared(config::psk(&format!("ike-{i}"), &format!("s{i}"), &["g1.example", &id]));
    }
}

/// The hub, with every connection loaded, and all spokes as one node that has their addresses (or
/// nobody there).
fn star(seed: u64, starter: usize, there: bool) -> World {
    let spokes = (0..N).map(spoke).collect();
    let mut nodes = vec![Node::seeded(vec![hub()], seed, Limits::default())];
    if there {
        nodes.push(Node::seeded(spokes, seed + 1, Limits::default()));
    }
    let mut w = World::new(seed, nodes);
    let now = w.now();
    for node in w.nodes.iter_mut() {
        keys(node);
    }
    // Whoever answers knows its peers before they speak.
    for node in [1 - starter, starter] {
        for i in 0..N {
            if let Some(n) = w.nodes.get_mut(node) {
                n.endpoint.load_connection(now, pair(i, starter)[node].clone());
            }
        }
    }
    w
}

#[test]
fn five_hundred_dead_peers_cost_little() {
    let mut w = star(1, 0, false);
    w.run(3_600 * S);
    let c = *w.nodes[0].endpoint.protocol().counters();
    let attempts = w.nodes[0].count_logged("giving up after 5 retransmits");
    println!(
        "an hour of {N} dead peers: {} datagrams, {} key pairs, {} calls, {attempts} attempts, {} in the busiest second",
        w.net.sent.len(),
        c.kex_generated,
        w.nodes[0].calls,
        w.net.busiest_second(w.now() - 1_800 * S)
    );
    assert_eq!(c.kex_generated, N as u64, "one key pair each, for all attempts of an hour");
    // Six datagrams an attempt of 165 s, and pauses that grow to 300 s: 8 to 14 attempts an hour.
    assert!((8 * N..14 * N).contains(&attempts), "{attempts}");
    assert_eq!(w.net.sent.len() as u64, c.ike_init.out_req + c.retransmits_out);
    assert!(w.net.sent.len() <= (attempts + N) * 6, "{}", w.net.sent.len());
    assert!(w.nodes[0].calls <= w.net.sent.len() + 4 * attempts + 2 * N, "{}", w.nodes[0].calls);
    // At the start all speak at once, one datagram each; then they part.
    assert!(w.net.busiest_second(w.now() - 3_600 * S) <= N);
    assert!(w.net.busiest_second(w.now() - 1_800 * S) <= N / 8);
    // The same message each time, as a retransmission is.
    let first = |w: &World, to: IpAddr| {
        let mut all: Vec<_> =
            w.net.log.iter().filter(|(_, p)| p.to.ip() == to).map(|(_, p)| p.payload.clone()).collect();
        all.dedup();
        all.len()
    };
    assert_eq!((first(&w, spoke(0)), first(&w, spoke(499))), (1, 1));
    w.audit();
}

#[test]
fn five_hundred_peers_that_die_at_once_and_return_at_once_make_no_storm() {
    for starter in 0..2 {
        let mut w = star(2, starter, true);
        w.run(90 * S);
        assert_eq!((w.up(0).len(), w.up(1).len()), (N, N), "starter {starter}");
        // Alive and idle: those who came up in one second are not asked in one second.
        let idle = w.now();
        w.run(300 * S);
        println!(
            "starter {starter}: {} datagrams in the busiest second of an idle star",
            w.net.busiest_second(idle)
        );
        assert!(w.net.busiest_second(idle) <= N, "{}", w.net.busiest_second(idle));
        // Those who answer lose everything.
        let dead = 1 - starter;
        let addrs = std::mem::take(&mut w.nodes[dead].addrs);
        w.nodes[dead] = Node::seeded(Vec::new(), 77, Limits::default());
        let died = w.now();
        w.run(900 * S);
        println!("starter {starter}: {} in the busiest second of their absence", w.net.busiest_second(died));
        assert!(w.net.busiest_second(died) <= N / 2, "{}", w.net.busiest_second(died));
        assert_eq!(w.up(starter).len(), 0);
        keys(&mut w.nodes[dead]);
        w.nodes[dead].addrs = addrs;
        let now = w.now();
        for i in 0..N {
            w.nodes[dead].endpoint.load_connection(now, pair(i, starter)[dead].clone());
        }
        w.run(480 * S);
        println!("starter {starter}: {} in the busiest second of their return", w.net.busiest_second(now));
        // Six datagrams a tunnel, both ways and with a cookie: they come back over minutes.
        assert!(w.net.busiest_second(now) <= N, "{}", w.net.busiest_second(now));
        assert_eq!(
            (w.up(0).len(), w.up(1).len()),
            (N, N),
            "starter {starter}: all are back without an operator"
        );
        w.audit();
    }
}

#[test]
fn a_dead_peer_is_asked_at_the_configured_time_and_given_up_in_time() {
    let mut w = World::pair(3, |c| c[0].dpd_delay = 30 * S);
    w.establish(0).unwrap();
    let since = w.now();
    w.net.mute.insert(1);
    assert!(w.run_until(100 * S, |w| w.nodes[0].logged("sending DPD request")));
    let after = w.now() - since;
    assert!((26 * S..=30 * S).contains(&after), "{after:?}");
    assert!(w.run_until(400 * S, |w| w.up(0).is_empty()));
    let after = w.now() - since;
    assert!((190 * S..=196 * S).contains(&after), "{after:?}");
}

/// A tunnel that should always be up, by the initiator's configuration; the other side only forgets
/// dead peers.
fn kept_up(seed: u64, both: bool) -> World {
    World::pair(seed, |c| {
        for (n, c) in c.iter_mut().enumerate() {
            c.dpd_delay = 30 * S;
            if n == 0 || both {
                c.children[0].start_action = ChildAction::Start;
                c.children[0].dpd_action = ChildAction::Start;
                c.children[0].close_action = ChildAction::Start;
            }
        }
    })
}

#[test]
fn every_outage_ends_with_one_tunnel_and_without_an_operator() {
    let mut seed = 100;
    for both in [false, true] {
        for (secs, bound) in [(5u64, 10u64), (60, 60), (600, 330)] {
            for mute in [&[0usize, 1][..], &[0], &[1]] {
                for act in ["idle", "load", "rekey child", "rekey ike", "rekeyed by the other"] {
                    seed += 1;
                    let mut w = kept_up(seed, both);
                    w.run(40 * S);
                    w.assert_one();
                    w.traffic = (act == "load").then_some(100 * MS);
                    w.run(S);
                    match act {
                        "rekey child" => drop(w.rekey_child(0)),
                        "rekey ike" => drop(w.rekey_ike(0)),
                        "rekeyed by the other" => drop(w.rekey_ike(1)),
                        _ => {}
                    }
                    // In the midst of it.
                    w.run(Duration::from_millis(seed % 14));
                    w.net.mute = mute.iter().copied().collect();
                    w.run(Duration::from_secs(secs));
                    w.net.mute.clear();
                    let what = format!("{secs} s, mute {mute:?}, {act}, both {both}");
                    let mended = w.now();
                    let back = w.run_until(Duration::from_secs(bound), |w| {
                        let newest = |n: usize| w.up(n).last().map(|s| (s.spi_i, s.children.len()));
                        newest(0).is_some_and(|(_, kids)| kids > 0) && newest(0) == newest(1)
                    });
                    if !back {
                        w.dump();
                    }
                    assert!(back, "{what}: not back within {bound} s");
                    // Everything else has run out: one tunnel, the same on both sides, and packets
                    // in it.
                    w.run_until(600 * S, |w| w.now() - mended > 60 * S && w.fault().is_none());
                    if let Some(fault) = w.fault() {
                        w.dump();
                        panic!("{what}: {fault}");
                    }
                    w.traffic = Some(100 * MS);
                    let got = (w.nodes[0].esp.0, w.nodes[1].esp.0);
                    w.run(2 * S);
                    assert!(w.nodes[0].esp.0 >= got.0 + 18 && w.nodes[1].esp.0 >= got.1 + 18, "{what}");
                    w.audit();
                }
            }
        }
    }
}

#[test]
fn a_peer_that_loses_its_state_silently_is_noticed_and_the_tunnel_is_back() {
    for lost in 0..2 {
        for both in [false, true] {
            let mut w = kept_up(4, both);
            w.run(40 * S);
            let conn = w.nodes[lost].connection("gw");
            w.restart(lost, 4_000, conn);
            let since = w.now();
            let back = w.run_until(230 * S, |w| w.fault().is_none());
            if !back {
                w.dump();
            }
            assert!(back, "lost {lost}, both {both}: {:?}", w.fault());
            // Who starts comes back at once, with INITIAL_CONTACT; who does not is found out by its
            // peer's liveness check.
            if lost == 0 || both {
                assert!(w.now() - since <= 5 * S, "{:?}", w.now() - since);
            }
            w.run(600 * S);
            w.assert_one();
            w.audit();
        }
    }
}

#[test]
fn after_a_restart_of_ours_a_trap_brings_the_tunnel_back_with_the_first_packet() {
    let mut w = World::pair(5, |c| c[0].children[0].start_action = ChildAction::Trap);
    w.traffic = Some(100 * MS);
    w.run(S);
    w.assert_one();
    let conn = w.nodes[0].connection("gw");
    w.restart(0, 5_000, conn);
    w.run(3 * S);
    assert_eq!(w.up(1).len(), 1, "INITIAL_CONTACT has taken the old one away");
    w.assert_one();
    w.audit();
}

#[test]
fn both_sides_that_start_at_once_have_one_tunnel_in_the_end() {
    for unique in [Unique::No, Unique::Replace, Unique::Keep] {
        for seed in 0..60u64 {
            let mut w = World::pair(1_000 + seed, |c| {
                for c in c.iter_mut() {
                    c.unique = unique;
                    c.children[0].close_action = ChildAction::Start;
                    c.children[0].dpd_action = ChildAction::Start;
                }
            });
            w.net.jitter = Duration::from_millis(seed % 12);
            w.initiate(0);
            w.run(Duration::from_micros(700 * (seed % 30)));
            if w.up(1).is_empty() {
                w.initiate(1);
            }
            w.run(60 * S);
            if let Some(fault) = w.fault() {
                w.dump();
                panic!("{unique:?}, seed {seed}: {fault}");
            }
            let before = w.up(0)[0].id;
            w.run(600 * S);
            assert_eq!(w.up(0)[0].id, before, "and it is at rest");
            w.audit();
        }
    }
}

#[test]
fn both_sides_that_start_at_once_between_different_addresses_have_one_tunnel_in_the_end() {
    for unique in [Unique::No, Unique::Replace, Unique::Keep] {
        for seed in 0..20u64 {
            let mut w = World::pair(3_000 + seed, |c| {
                for c in c.iter_mut() {
                    c.unique = unique;
                    c.children[0].close_action = ChildAction::Start;
                    c.children[0].dpd_action = ChildAction::Start;
                }
                // Node 0 asks node 1 at its second address, from which node 1 does not begin.
                let addrs = ["192.0.2.3", "192.0.2.2"].map(|a| AddrSpec::Host(config::ip(a)));
                c[0].remote_addrs = addrs.into();
                c[1].local_addrs = vec![];
            });
            w.nodes[1].addrs = vec![config::ip("192.0.2.2"), config::ip("192.0.2.3")];
            w.net.jitter = Duration::from_millis(seed % 12);
            w.initiate(0);
            w.run(Duration::from_micros(700 * (seed % 30)));
            if w.up(1).is_empty() {
                w.initiate(1);
            }
            w.run(60 * S);
            if let Some(fault) = w.fault() {
                w.dump();
                panic!("{unique:?}, seed {seed}: {fault}");
            }
            let before = w.up(0)[0].id;
            w.run(600 * S);
            assert_eq!(w.up(0)[0].id, before, "and it is at rest");
            w.audit();
        }
    }
}

#[test]
fn another_peer_of_an_open_connection_does_not_end_the_attempt_for_the_configured_one() {
    let mut w = World::pair(31, |c| {
        c[0].remote_addrs = vec![AddrSpec::Host(config::ip("192.0.2.9")), AddrSpec::Any];
        c[0].remote_id = IdPattern::Any;
    });
    let ticket = w.initiate(0);
    w.run(S);
    w.establish(1).unwrap();
    w.run(5 * S);
    assert!(!w.nodes[0].done.contains_key(&ticket), "{:?}", w.nodes[0].done);
    w.audit();
}

#[test]
fn a_peer_that_comes_up_with_less_than_configured_does_not_end_the_attempt_for_all_of_it() {
    let mut w = World::pair(32, |_| {});
    let wide = w.nodes[1].connection("gw");
    let mut less = wide.clone();
    less.children = vec![config::child("net", "10.2.0.0/25", "10.1.0.0/24")];
    let now = w.now();
    w.nodes[1].endpoint.load_connection(now, less);
    w.net.rules.push(Box::new(|s| {
        match s.exchange == ExchangeType::IKE_SA_INIT && s.node == 0 && !s.response {
            true => Verdict::Drop,
            false => Verdict::Pass,
        }
    }));
    let ticket = w.initiate(0);
    w.run(S);
    w.establish(1).unwrap();
    assert!(!w.nodes[0].done.contains_key(&ticket), "{:?}", w.nodes[0].done);
    let now = w.now();
    w.nodes[1].endpoint.load_connection(now, wide);
    w.net.rules.clear();
    w.run(30 * S);
    assert_eq!(w.nodes[0].done.get(&ticket), Some(&Ok(())));
    let nets: Vec<_> = w.up(0).iter().flat_map(|sa| &sa.children).flat_map(|c| c.remote_ts.clone()).collect();
    let whole = config::child("net", "10.1.0.0/24", "10.2.0.0/24").remote_ts;
    assert!(nets.iter().any(|ts| whole.contains(&TsSpec::Fixed(*ts))), "{nets:?}");
    w.audit();
}

#[test]
fn a_peer_that_does_not_settle_it_is_helped() {
    for seed in 0..40u64 {
        // Node 1 is as charon: it keeps what it has.
        let mut w = World::pair(2_000 + seed, |c| c[1].unique = Unique::Never);
        w.initiate(0);
        w.initiate(1);
        w.run(2 * S);
        assert!(!w.up(0).is_empty());
        w.run(60 * S);
        w.assert_one();
        w.audit();
    }
}

#[test]
fn who_wants_both_keeps_both() {
    let mut w = World::pair(6, |c| c.iter_mut().for_each(|c| c.unique = Unique::Never));
    w.initiate(0);
    w.initiate(1);
    w.run(60 * S);
    assert_eq!((w.up(0).len(), w.up(1).len()), (2, 2));
    w.audit();
}

#[test]
fn a_key_pair_that_cannot_be_made_leaves_nothing_waiting() {
    for broken in 0..2 {
        // For the first exchange.
        let mut w = World::pair(7, |_| {});
        w.nodes[broken].no_keys = true;
        let now = w.now();
        let mut conn = w.nodes[0].connection("gw");
        (conn.children[0].start_action, conn.children[0].dpd_action) =
            (ChildAction::Start, ChildAction::Start);
        w.nodes[0].endpoint.load_connection(now, conn);
        w.run(100 * S);
        assert_eq!((w.up(0).len(), w.up(1).len()), (0, 0));
        w.nodes[broken].no_keys = false;
        assert!(w.run_until(400 * S, |w| w.fault().is_none()), "node {broken}: {:?}", w.fault());
        w.audit();
        // For rekeyings, of both kinds, begun by either.
        for (ike, by) in [(false, 0), (false, 1), (true, 0), (true, 1)] {
            let mut w = World::pair(8, |c| {
                for c in c.iter_mut() {
                    c.children[0].proposals = vec![config::esp_proposal(&[KeId::CURVE_25519])];
                }
            });
            w.establish(0).unwrap();
            w.nodes[broken].no_keys = true;
            if ike {
                w.rekey_ike(by)
            } else {
                w.rekey_child(by)
            };
            w.run(60 * S);
            w.nodes[broken].no_keys = false;
            w.run(60 * S);
            w.assert_one();
            if ike {
                w.rekey_ike(by)
            } else {
                w.rekey_child(by)
            };
            w.run(60 * S);
            w.assert_one();
            w.audit();
        }
    }
}

#[test]
fn what_is_to_be_up_always_is_tried_for_ever_and_a_command_as_often_as_configured() {
    // `keyingtries` is 1 in all of them.
    for (start, dpd, forever) in [
        (ChildAction::Start, ChildAction::Start, true),
        (ChildAction::Start, ChildAction::None, false),
        (ChildAction::None, ChildAction::Start, false),
    ] {
        let mut w = World::pair(9, |_| {});
        w.net.mute.insert(1);
        let now = w.now();
        let mut conn = w.nodes[0].connection("gw");
        (conn.children[0].start_action, conn.children[0].dpd_action) = (start, dpd);
        w.nodes[0].endpoint.load_connection(now, conn);
        if start == ChildAction::None {
            w.initiate(0);
        }
        w.run(7_200 * S);
        let tries = w.nodes[0].count_logged("giving up after 5 retransmits");
        assert_eq!(tries > 5, forever, "{start:?} {dpd:?}: {tries}");
        w.net.mute.clear();
        w.run(400 * S);
        assert_eq!(w.up(0).len(), usize::from(forever));
        w.audit();
    }
}
