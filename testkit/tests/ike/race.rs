//! A peer with several addresses: the next one is asked after two seconds without giving up the
//! first, the first that authenticates wins, and nothing is left of the others.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ironswan_keying::{AddrSpec, ChildAction, Limits, Target};
use ironswan_testkit::net::Nat;
use ironswan_testkit::{Forger, Node, Seen, Verdict, World, config};
use ironswan_wire::iana::{ExchangeType, NotifyType};
use ironswan_wire::ike::payload::Notify;
use ironswan_wire::ike::{Flags, Header, Message, Payload};

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn ip(text: &str) -> IpAddr {
    config::ip(text)
}

/// Node 0 knows its peer at these addresses. Nodes 1 and 2 are the same gateway, g2.example, at
/// 192.0.2.2 and 192.0.2.3.
fn world(seed: u64, addrs: &[&str]) -> World {
    let mut w = World::pair(seed, |c| {
        c[0].remote_addrs = addrs.iter().map(|a| AddrSpec::Host(ip(a))).collect();
    });
    let mut node = Node::seeded(vec![ip("192.0.2.3")], seed + 1_000, Limits::default());
    node.endpoint.load_shared(config::psk("ike-gw", "a secret of both", &["g1.example", "g2.example"]));
    let mut conn = w.nodes[1].connection("gw");
    conn.local_addrs = vec![AddrSpec::Host(ip("192.0.2.3"))];
    let now = w.now();
    node.endpoint.load_connection(now, conn);
    w.nodes.push(node);
    w
}

/// Initiates and waits until it is up or has failed: how long that took.
fn bring_up(w: &mut World) -> (Duration, Result<(), String>) {
    let began = w.now();
    let ticket = w.initiate(0);
    w.run_until(600 * S, |w| w.nodes[0].done.contains_key(&ticket));
    let took = w.now() - began;
    println!("{took:?}: {:?}", w.nodes[0].done.get(&ticket));
    (took, w.nodes[0].done.get(&ticket).cloned().expect("an end"))
}

/// Nothing but the one IKE_SA with its child is left, of node 0 with this one.
fn one_with(w: &World, peer: usize) {
    let here = w.nodes[0].sas(w.now());
    assert_eq!(here.len(), 1, "{here:?}");
    assert_eq!(here[0].children.len(), 1);
    assert_eq!(here[0].remote.ip(), w.nodes[peer].addrs[0]);
    for node in 1..3 {
        let there = w.nodes[node].sas(w.now()).len();
        assert_eq!(there, usize::from(node == peer), "node {node} has {there}");
        assert_eq!(w.nodes[node].engine.inbound.len(), usize::from(node == peer));
    }
    let races = w.nodes[0].endpoint.tables().into_iter().find(|(name, _)| *name == "races");
    assert_eq!(races, Some(("races", 0)));
}

#[test]
fn behind_a_silent_address_the_next_is_asked_after_two_seconds() {
    let mut w = world(1, &["198.51.100.1", "192.0.2.2"]);
    let (took, end) = bring_up(&mut w);
    end.unwrap();
    assert!((1_900 * MS..3 * S).contains(&took), "{took:?}");
    w.run(200 * S);
    one_with(&w, 1);
    assert_eq!(w.nodes[0].endpoint.protocol().counters().kex_generated, 1, "one key pair for both");
    w.audit();
    // Five silent ones: two seconds each.
    let silent =
        ["198.51.100.1", "198.51.100.2", "198.51.100.3", "198.51.100.4", "198.51.100.5", "192.0.2.2"];
    let mut w = world(2, &silent);
    let (took, end) = bring_up(&mut w);
    end.unwrap();
    assert!((9 * S..11 * S).contains(&took), "{took:?}");
    w.run(200 * S);
    one_with(&w, 1);
    w.audit();
}

#[test]
fn where_the_first_answers_no_other_is_asked() {
    let mut w = world(3, &["192.0.2.2", "192.0.2.3"]);
    let (took, end) = bring_up(&mut w);
    end.unwrap();
    assert!(took < 100 * MS);
    w.run(100 * S);
    one_with(&w, 1);
    assert!(w.net.log.iter().all(|(_, p)| p.to.ip() != ip("192.0.2.3")));
}

#[test]
fn a_slow_first_address_is_dropped_without_a_trace_wherever_it_has_got_to() {
    for (exchange, response) in [
        (ExchangeType::IKE_SA_INIT, false),
        (ExchangeType::IKE_SA_INIT, true),
        (ExchangeType::IKE_AUTH, false),
        (ExchangeType::IKE_AUTH, true),
    ] {
        for delay in [1_500 * MS, 1_990 * MS, 2_003 * MS, 2_008 * MS, 2_013 * MS, 2_018 * MS, 3 * S, 6 * S] {
            for lose in [false, true] {
                let mut w = world(4, &["192.0.2.2", "192.0.2.3"]);
                let mut held = None;
                w.net.rules.push(Box::new(move |s| {
                    let between = held.is_none_or(|spi| spi == s.spi_i);
                    if s.exchange != exchange || s.response != response || !between || s.node == 2 {
                        return Verdict::Pass;
                    }
                    held = Some(s.spi_i);
                    if lose { Verdict::Drop } else { Verdict::Delay(delay) }
                }));
                let (took, end) = bring_up(&mut w);
                end.unwrap();
                assert!(took < 3 * S, "{exchange} {response} {delay:?}: {took:?}");
                w.run(S);
                let with = if w.up(0)[0].remote.ip() == ip("192.0.2.2") { 1 } else { 2 };
                assert_eq!(w.nodes[0].engine.outbound.len(), 1);
                w.run(200 * S);
                one_with(&w, with);
                let f = |spi| Forger::of(&w.nodes[0], Some(spi));
                let first = w
                    .net
                    .log
                    .iter()
                    .filter(|(s, _)| s.node == 0 && s.exchange == ExchangeType::IKE_AUTH && !s.response);
                let mut spis: Vec<u64> = first.clone().map(|(s, _)| s.spi_i).collect();
                spis.dedup();
                let initial =
                    |p: &Payload| matches!(p, Payload::Notify(n) if n.kind == NotifyType::INITIAL_CONTACT);
                let says = first
                    .filter(|(s, p)| f(s.spi_i).open(&p.payload).is_some_and(|(_, p)| p.iter().any(initial)))
                    .map(|(s, _)| s.spi_i)
                    .collect::<std::collections::BTreeSet<_>>();
                assert_eq!(says.len(), 1, "INITIAL_CONTACT is said for one of {}", spis.len());
                w.audit();
            }
        }
    }
}

#[test]
fn who_answers_first_and_cannot_authenticate_does_not_win() {
    // Another key, and a liar that says nothing more after IKE_SA_INIT.
    for silent in [false, true] {
        let mut w = world(5, &["192.0.2.2", "192.0.2.3"]);
        let key = config::psk("ike-gw", "a guess", &["g1.example", "g2.example"]);
        w.nodes[1].endpoint.load_shared(key);
        w.net.rules.push(Box::new(move |s| {
            match silent && s.node == 1 && s.exchange == ExchangeType::IKE_AUTH {
                true => Verdict::Drop,
                false => Verdict::Pass,
            }
        }));
        let (took, end) = bring_up(&mut w);
        end.unwrap();
        assert!(took < 3 * S && (took > S) == silent, "{took:?}");
        w.run(200 * S);
        one_with(&w, 2);
        w.audit();
    }
    // An error that anybody can send, for the first address.
    let mut w = world(6, &["198.51.100.1", "192.0.2.3"]);
    let ticket = w.initiate(0);
    let spi = w.nodes[0].sas(w.now())[0].spi_i;
    let header = Header::new(spi, 0, ExchangeType::IKE_SA_INIT, Flags::new(false, true), 0);
    let payloads = vec![Payload::Notify(Notify::new(NotifyType::NO_PROPOSAL_CHOSEN, []))];
    let (from, to): (SocketAddr, SocketAddr) =
        ("198.51.100.1:500".parse().unwrap(), "192.0.2.1:500".parse().unwrap());
    w.inject(from, to, Message { header, payloads }.emit().unwrap());
    w.run(3 * S);
    assert_eq!(w.nodes[0].done.get(&ticket), Some(&Ok(())));
    one_with(&w, 2);
}

#[test]
fn it_works_through_a_nat() {
    let mut w = world(7, &["198.51.100.1", "192.0.2.2"]);
    let now = w.now();
    let mut conn = w.nodes[1].connection("gw");
    conn.remote_addrs = vec![];
    w.nodes[1].endpoint.load_connection(now, conn);
    w.net.nat = Some(Nat::new(ip("192.0.2.1"), ip("203.0.113.9")));
    let (took, end) = bring_up(&mut w);
    end.unwrap();
    assert!(took < 3 * S, "{took:?}");
    w.run(100 * S);
    one_with(&w, 1);
    assert!(w.up(0)[0].nat_local);
    w.audit();
}

#[test]
fn sixteen_silent_addresses_are_eight_attempts_at_most_and_end() {
    let addrs: Vec<String> = (1..=16).map(|n| format!("198.51.100.{n}")).collect();
    let addrs: Vec<&str> = addrs.iter().map(String::as_str).collect();
    let mut w = world(8, &addrs);
    let ticket = w.initiate(0);
    let mut most = 0;
    for _ in 0..600 {
        w.run(S);
        most = most.max(w.nodes[0].sas(w.now()).len());
    }
    assert_eq!(most, 8);
    let asked: std::collections::BTreeSet<IpAddr> = w.net.log.iter().map(|(_, p)| p.to.ip()).collect();
    assert_eq!(asked.len(), 16);
    assert!(w.nodes[0].done[&ticket].is_err());
    assert!(w.net.log.len() <= 16 * 6, "{} datagrams", w.net.log.len());
    w.audit();
}

#[test]
fn several_children_and_commands_go_with_whoever_wins() {
    let mut w = world(9, &["198.51.100.1", "198.51.100.2", "192.0.2.2"]);
    for i in 0..2 {
        let now = w.now();
        let mut conn = w.nodes[i].connection("gw");
        let nets = [("10.3.0.0/24", "10.4.0.0/24"), ("10.4.0.0/24", "10.3.0.0/24")][i];
        conn.children.push(config::child("other", nets.0, nets.1));
        w.nodes[i].endpoint.load_connection(now, conn);
    }
    let first = w.initiate(0);
    w.run(3 * S);
    // In the middle of it: another child, the same once more, and the IKE_SA alone.
    let now = w.now();
    let more: Vec<_> = [Some("other"), Some("net"), None]
        .into_iter()
        .map(|child| w.nodes[0].endpoint.initiate(now, Some("gw"), child).unwrap())
        .collect();
    w.run(10 * S);
    for ticket in more.iter().chain([&first]) {
        assert_eq!(w.nodes[0].done.get(ticket), Some(&Ok(())));
    }
    assert_eq!((w.up(0).len(), w.up(1).len()), (1, 1));
    assert_eq!((w.up(0)[0].children.len(), w.up(1)[0].children.len()), (2, 2));
    w.run(200 * S);
    w.audit();
}

#[test]
fn a_command_ends_all_attempts() {
    let mut w = world(10, &["198.51.100.1", "198.51.100.2", "198.51.100.3"]);
    for by_id in [false, true] {
        let ticket = w.initiate(0);
        w.run(5 * S);
        let sas = w.nodes[0].sas(w.now());
        assert_eq!(sas.len(), 3);
        let target = match by_id {
            true => Target { ike_id: Some(sas[1].id.0), ..Target::default() },
            false => Target { ike: Some("gw".to_owned()), ..Target::default() },
        };
        let now = w.now();
        w.nodes[0].endpoint.terminate(now, &target, false).unwrap();
        w.run(MS);
        assert!(w.nodes[0].sas(w.now()).is_empty());
        assert!(w.nodes[0].done[&ticket].is_err());
    }
    w.audit();
}

/// What is done while the peer's IKE_AUTH response is under way from the first address, and the
/// second address has been asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ended {
    Name {
        force: bool,
    },
    Id {
        auth: bool,
    },
    Reload,
    Unload,
    Shutdown,
    /// The response does not come at all.
    Time,
}

#[test]
fn an_attempt_that_is_dropped_in_ike_auth_leaves_nothing_at_the_peer() {
    for how in [
        Ended::Name { force: false },
        Ended::Name { force: true },
        Ended::Id { auth: false },
        Ended::Id { auth: true },
        Ended::Reload,
        Ended::Unload,
        Ended::Shutdown,
        Ended::Time,
    ] {
        // The second address is silent, or as far.
        for (second, up) in [("198.51.100.1", 0), ("192.0.2.3", 1)] {
            let mut w = world(42, &["192.0.2.2", second]);
            let slow = |s: &Seen| s.exchange == ExchangeType::IKE_AUTH && s.response;
            w.net.rules.push(Box::new(move |s| match (slow(s), how) {
                (true, Ended::Time) => Verdict::Drop,
                (true, _) => Verdict::Delay(3 * S),
                _ => Verdict::Pass,
            }));
            let now = w.now();
            let mut conn = w.nodes[0].connection("gw");
            conn.children[0].start_action = ChildAction::Start;
            conn.keyingtries = 1;
            w.nodes[0].endpoint.load_connection(now, conn.clone());
            let ticket = w.initiate(0);
            w.run(2_500 * MS);
            let (now, here) = (w.now(), w.nodes[0].sas(w.now()));
            assert_eq!((here.len(), w.up(0).len(), w.up(1).len(), w.up(2).len()), (2, 0, 1, up), "{how:?}");
            let all = Target { ike: Some("gw".to_owned()), ..Target::default() };
            let one = |n: usize| Target { ike_id: Some(here[n].id.0), ..Target::default() };
            let endpoint = &mut w.nodes[0].endpoint;
            match how {
                Ended::Name { force } => drop(endpoint.terminate(now, &all, force).unwrap()),
                Ended::Id { auth: true } => drop(endpoint.terminate(now, &one(0), false).unwrap()),
                Ended::Id { auth: false } => drop(endpoint.terminate(now, &one(1), false).unwrap()),
                Ended::Reload => {
                    conn.encap = true;
                    conn.children[0].start_action = ChildAction::None;
                    endpoint.load_connection(now, conn);
                }
                Ended::Unload => assert!(endpoint.unload_connection(now, "gw")),
                Ended::Shutdown => endpoint.shutdown(now),
                Ended::Time => {}
            }
            let deletes = |w: &World| {
                let all = w.net.log.iter().filter(|(s, _)| s.node == 0);
                all.filter(|(s, _)| s.exchange == ExchangeType::INFORMATIONAL && !s.response).count()
            };
            w.run(if how == Ended::Time { 400 * S } else { S });
            assert!(w.nodes[0].done[&ticket].is_err(), "{how:?}: {:?}", w.nodes[0].done);
            assert_eq!((w.up(1).len(), w.up(2).len()), (0, 0), "{how:?}: the peer keeps what nobody has");
            assert_eq!(deletes(&w), 1 + up, "{how:?}: one each, that is answered");
            w.run(10 * S);
            assert!(w.nodes[0].sas(w.now()).is_empty() && w.up(1).is_empty(), "{how:?}");
            assert!(w.nodes[0].count_logged("deleting IKE_SA") <= 2, "{how:?}: said once");
            w.audit();
        }
    }
}

#[test]
fn both_sides_at_once_end_with_one() {
    for gap in [0, 1_000, 1_990, 2_000, 2_005, 2_010, 2_020] {
        let mut w = world(11, &["198.51.100.1", "192.0.2.2"]);
        w.initiate(0);
        w.run(gap * MS);
        w.initiate(1);
        w.run(60 * S);
        w.nodes.truncate(2);
        w.assert_one();
        assert_eq!(w.nodes[0].done.values().filter(|r| r.is_ok()).count(), 1, "gap {gap}");
        w.audit();
    }
}

#[test]
fn attempts_without_end_go_round_and_one_that_returns_is_found() {
    let mut w = world(12, &["198.51.100.1", "192.0.2.2"]);
    w.net.mute.insert(1);
    let now = w.now();
    let mut conn = w.nodes[0].connection("gw");
    conn.keyingtries = 0;
    conn.children[0].start_action = ChildAction::Start;
    w.nodes[0].endpoint.load_connection(now, conn);
    w.run(1_500 * S);
    let made = w.nodes[0].count_logged("initiating IKE_SA");
    assert!((8..=16).contains(&made), "{made} attempts in 1,500 s");
    w.net.mute.clear();
    w.run(400 * S);
    one_with(&w, 1);
    w.audit();
}

#[test]
fn the_ninth_address_is_asked_when_the_eighth_gives_up() {
    let silent: Vec<String> = (1..8).map(|n| format!("198.51.100.{n}")).collect();
    let mut addrs: Vec<&str> = silent.iter().map(String::as_str).collect();
    addrs.extend(["192.0.2.3", "192.0.2.2"]);
    let mut w = world(41, &addrs);
    // The eighth is another gateway, with another key.
    w.nodes[2].endpoint.load_shared(config::psk("ike-gw", "another secret", &["g1.example", "g2.example"]));
    let (took, end) = bring_up(&mut w);
    end.unwrap();
    assert!((13 * S..20 * S).contains(&took), "{took:?}");
    w.run(200 * S);
    one_with(&w, 1);
    w.audit();
}
