//! Peers that are configured by DNS name: looked up for every attempt and every minute, and never
//! because a stranger speaks.

use std::net::IpAddr;
use std::time::Duration;

use ironswan_keying::{AddrSpec, ChildAction, TsSpec};
use ironswan_testkit::{World, config};

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn ip(text: &str) -> IpAddr {
    config::ip(text)
}

fn name(text: &str) -> AddrSpec {
    AddrSpec::Name(text.to_owned())
}

/// Node 0 knows node 1 as `hub.example`; nobody has been asked for it yet.
fn by_name(seed: u64, answer: &[&str], tweak: impl FnOnce(&mut ironswan_keying::Connection)) -> World {
    let mut w = World::pair(seed, |c| c[1].remote_addrs = vec![AddrSpec::Any]);
    let now = w.now();
    let mut conn = w.nodes[0].connection("gw");
    w.nodes[0].endpoint.unload_connection(now, "gw");
    conn.remote_addrs = vec![name("hub.example")];
    tweak(&mut conn);
    resolve(&mut w, 0, "hub.example", answer);
    w.nodes[0].endpoint.load_connection(now, conn);
    w
}

fn resolve(w: &mut World, node: usize, name: &str, answer: &[&str]) {
    w.nodes[node].names.insert(name.to_owned(), answer.iter().map(|a| ip(a)).collect());
}

#[test]
fn a_name_is_looked_up_at_load_and_again_for_every_attempt() {
    let mut w = by_name(1, &["192.0.2.2"], |_| {});
    w.run(MS);
    assert_eq!(w.nodes[0].resolved, 1);
    w.establish(0).unwrap();
    assert_eq!(w.nodes[0].resolved, 2);
    w.assert_one();
    // From time to time, however long it is up.
    w.run(3_600 * S);
    assert!((60..=76).contains(&(w.nodes[0].resolved - 2)), "{} in an hour", w.nodes[0].resolved - 2);
    w.audit();
}

#[test]
fn the_addresses_of_a_name_are_asked_one_after_the_other_and_side_by_side() {
    // Nobody is at the first, nor at the second; the third is of a family without a route.
    let mut w = by_name(2, &["198.51.100.1", "2001:db8::77", "192.0.2.2"], |c| {
        c.children[0].start_action = ChildAction::Start;
        c.local_addrs = vec![AddrSpec::Any];
    });
    assert!(w.run_until(5 * S, |w| w.fault().is_none()), "{:?}", w.fault());
    assert_eq!(w.nodes[0].endpoint.protocol().counters().kex_generated, 1);
}

#[test]
fn a_name_that_cannot_be_resolved_says_so_once_and_is_asked_less_and_less() {
    let mut w = by_name(3, &[], |c| {
        c.keyingtries = 0;
        c.children[0].start_action = ChildAction::Start;
    });
    w.run(3_600 * S);
    let why = "the name 'hub.example' cannot be resolved: no such name; correct it in remote_addrs";
    assert_eq!(w.nodes[0].count_logged(&format!("s: {why}")), 1, "of the look-ups that keep it fresh");
    assert!(w.nodes[0].logged(&format!("establishing IKE_SA failed: {why}")));
    assert!(w.nodes[0].resolved < 60, "{} in an hour", w.nodes[0].resolved);
    assert_eq!(w.nodes[0].endpoint.protocol().counters().kex_generated, 0);
    // It is there at last: no operator is needed.
    resolve(&mut w, 0, "hub.example", &["192.0.2.2"]);
    w.run(330 * S);
    w.assert_one();
    // On command the answer is immediate.
    let mut w = by_name(4, &[], |_| {});
    let error = w.establish(0).unwrap_err();
    assert!(error.contains("hub.example") && error.contains("resolve"), "{error}");
    assert!(w.now() - w.now() < S);
    w.audit();
}

#[test]
fn one_name_that_takes_for_ever_blocks_no_other() {
    let mut w = by_name(5, &["192.0.2.2"], |_| {});
    // Answers of the resolver never come: the rest of the endpoint does not care.
    w.nodes[0].mute_names.insert("slow.example".to_owned());
    let now = w.now();
    let mut slow = w.nodes[0].connection("gw");
    slow.name = "slow".to_owned();
    slow.remote_addrs = vec![name("slow.example")];
    slow.children[0].start_action = ChildAction::Start;
    w.nodes[0].endpoint.load_connection(now, slow);
    w.establish(0).unwrap();
    w.run(10 * S);
    assert_eq!(w.up(0).len(), 1);
    assert_eq!(w.up(1).len(), 1);
}

#[test]
fn a_hub_that_has_moved_is_found_where_its_name_is_now() {
    let mut w = by_name(6, &["192.0.2.2"], |c| {
        c.dpd_delay = 10 * S;
        c.children[0].start_action = ChildAction::Start;
        c.children[0].dpd_action = ChildAction::Start;
    });
    let now = w.now();
    let mut hub = w.nodes[1].connection("gw");
    hub.local_addrs = vec![AddrSpec::Any];
    w.nodes[1].endpoint.load_connection(now, hub);
    w.run(S);
    w.assert_one();
    // The hub is somewhere else from now on, with the same state, and cannot tell anyone.
    w.nodes[1].addrs = vec![ip("203.0.113.9")];
    resolve(&mut w, 0, "hub.example", &["203.0.113.9"]);
    assert!(w.run_until(250 * S, |w| w.up(0).iter().any(|s| s.remote.ip() == ip("203.0.113.9"))));
    w.run(S);
    assert_eq!(w.up(0).len(), 1);
    assert!(w.nodes[0].logged("the name 'hub.example' stands for 203.0.113.9"));
}

#[test]
fn who_speaks_to_us_is_matched_by_the_name_that_it_has_now() {
    let mut w = World::pair(7, |_| {});
    let now = w.now();
    let mut hub = w.nodes[1].connection("gw");
    w.nodes[1].endpoint.unload_connection(now, "gw");
    hub.remote_addrs = vec![name("branch.example")];
    resolve(&mut w, 1, "branch.example", &["192.0.2.99"]);
    w.nodes[1].endpoint.load_connection(now, hub);
    w.run(S);
    // Not that address yet; within a minute the name is looked up, and the next attempt is welcome.
    resolve(&mut w, 1, "branch.example", &["192.0.2.1"]);
    let error = w.establish(0).unwrap_err();
    assert!(error.contains("NO_PROPOSAL_CHOSEN"), "{error}");
    w.run(60 * S);
    w.establish(0).unwrap();
    w.assert_one();
    // Strangers do not make it ask.
    let before = w.nodes[1].resolved;
    for n in 0..500u64 {
        let mut bytes = w.net.log[0].1.payload.clone();
        bytes[..8].copy_from_slice(&(n + 1).to_be_bytes());
        w.inject("198.51.100.7:500".parse().unwrap(), "192.0.2.2:500".parse().unwrap(), bytes);
        w.run(100 * MS);
    }
    assert!(w.nodes[1].resolved - before <= 2, "{} in 50 s", w.nodes[1].resolved - before);
    w.audit();
}

#[test]
fn a_resolver_that_fails_leaves_what_was_known() {
    let mut w = by_name(8, &["192.0.2.2"], |_| {});
    w.establish(0).unwrap();
    w.terminate(0, false);
    w.run(S);
    resolve(&mut w, 0, "hub.example", &[]);
    w.establish(0).unwrap();
    w.assert_one();
    assert!(w.nodes[0].logged("using what it stood for before"));
}

#[test]
fn traps_work_with_a_name_and_wait_for_it_when_they_must() {
    // The selectors are written out: the trap stands before any resolver has answered.
    let trap = |c: &mut ironswan_keying::Connection| c.children[0].start_action = ChildAction::Trap;
    let mut w = by_name(9, &[], trap);
    w.run(S);
    assert_eq!(w.nodes[0].engine.policies.len(), 1);
    resolve(&mut w, 0, "hub.example", &["192.0.2.2"]);
    w.traffic = Some(100 * MS);
    w.run(10 * S);
    w.assert_one();
    // They come from the peer's address: not before that is known, and anew when it changes.
    let dynamic = |c: &mut ironswan_keying::Connection| {
        c.children[0].start_action = ChildAction::Trap;
        c.children[0].remote_ts = vec![TsSpec::Dynamic { protocol: 0, start_port: 0, end_port: 65_535 }];
    };
    let mut w = by_name(10, &[], dynamic);
    w.run(S);
    assert!(w.nodes[0].engine.policies.is_empty());
    assert!(w.nodes[0].logged("trap net waits until the peer's name is resolved"));
    for at in ["192.0.2.2", "203.0.113.9"] {
        resolve(&mut w, 0, "hub.example", &[at]);
        w.run(310 * S);
        let p = &w.nodes[0].engine.policies;
        assert_eq!((p.len(), p[0].remote.range.start()), (1, ip(at)));
    }
    w.audit();
    // Unloaded while it waits.
    let mut w = by_name(11, &[], dynamic);
    w.run(S);
    w.audit();
}

#[test]
fn the_same_addresses_in_another_order_are_nothing_new() {
    let orders = [["192.0.2.2", "192.0.2.3"], ["192.0.2.3", "192.0.2.2"]];
    let mut w = by_name(14, &orders[0], |c| {
        c.children[0].start_action = ChildAction::Trap;
        c.children[0].remote_ts = vec![TsSpec::Dynamic { protocol: 0, start_port: 0, end_port: 65_535 }];
    });
    for turn in 0..60 {
        resolve(&mut w, 0, "hub.example", &orders[turn % 2]);
        w.run(10 * S);
        let p = &w.nodes[0].engine.policies;
        assert_eq!((p.len(), p[0].remote.range.start()), (1, ip("192.0.2.2")), "in turn {turn}");
    }
    println!("{} look-ups", w.nodes[0].resolved);
    assert!(w.nodes[0].resolved > 8);
    assert_eq!(w.nodes[0].count_logged("the name 'hub.example' stands for"), 1);
    // What is new comes last, and what is gone goes; an address that the answer repeats is one.
    resolve(&mut w, 0, "hub.example", &["192.0.2.4", "192.0.2.3", "192.0.2.4"]);
    w.run(70 * S);
    assert!(w.nodes[0].logged("the name 'hub.example' stands for 192.0.2.3, 192.0.2.4"));
    assert_eq!(w.nodes[0].engine.policies[0].remote.range.start(), ip("192.0.2.3"));
    w.audit();
}

#[test]
fn an_attempt_asks_each_address_once_whatever_order_another_look_up_has() {
    let mut w = by_name(15, &["198.51.100.1", "192.0.2.2"], |_| {});
    let now = w.now();
    let ticket = w.nodes[0].endpoint.initiate(now, Some("gw"), Some("net")).unwrap();
    w.run(S);
    // Another connection with this name is loaded, so that it is looked up.
    resolve(&mut w, 0, "hub.example", &["192.0.2.2", "198.51.100.1"]);
    let now = w.now();
    let mut more = w.nodes[0].connection("gw");
    more.name = "more".to_owned();
    w.nodes[0].endpoint.load_connection(now, more);
    w.run(3 * S);
    let asked: Vec<IpAddr> = w.net.log.iter().filter(|(s, _)| s.mid == 0).map(|(_, p)| p.to.ip()).collect();
    println!("asked: {asked:?}");
    assert_eq!(w.nodes[0].done.get(&ticket), Some(&Ok(())));
    w.audit();
}

#[test]
fn thousands_of_names_are_ten_look_ups_a_second_and_strangers_make_none_more() {
    let mut w = by_name(13, &["192.0.2.2"], |_| {});
    w.establish(0).unwrap();
    let now = w.now();
    let conn = w.nodes[0].connection("gw");
    for n in 0..3_000 {
        let mut more = conn.clone();
        (more.name, more.remote_addrs) = (format!("c{n}"), vec![name(&format!("n{n}.example"))]);
        resolve(&mut w, 0, &format!("n{n}.example"), &["192.0.2.3"]);
        w.nodes[0].endpoint.load_connection(now, more);
    }
    w.run(S);
    let loaded = w.nodes[0].resolved;
    assert_eq!(loaded, 3_002);
    // None is due yet, and a stranger changes nothing about that.
    w.run(31 * S);
    let before = w.nodes[0].resolved;
    for n in 0..100u64 {
        let mut bytes = w.net.log[0].1.payload.clone();
        bytes[..8].copy_from_slice(&(n + 1).to_be_bytes());
        w.inject("198.51.100.7:500".parse().unwrap(), "192.0.2.1:500".parse().unwrap(), bytes);
        w.run(10 * MS);
    }
    assert!(w.nodes[0].logged("no IKE config found for 192.0.2.1...198.51.100.7"));
    assert_eq!(w.nodes[0].resolved, before);
    w.run(600 * S);
    let in_ten_minutes = w.nodes[0].resolved - loaded;
    assert!((4_000..=9_000).contains(&in_ten_minutes), "{in_ten_minutes}");
}

#[test]
fn a_name_used_by_many_is_looked_up_once_and_forgotten_with_the_last() {
    let mut w = by_name(12, &["192.0.2.2"], |_| {});
    let now = w.now();
    let conn = w.nodes[0].connection("gw");
    for n in 0..200 {
        let mut more = conn.clone();
        more.name = format!("c{n}");
        w.nodes[0].endpoint.load_connection(now, more);
    }
    w.run(MS);
    assert_eq!(w.nodes[0].resolved, 1);
    for n in 0..200 {
        w.nodes[0].endpoint.unload_connection(now, &format!("c{n}"));
    }
    w.run(3_600 * S);
    assert!(w.nodes[0].resolved > 10);
    let now = w.now();
    w.nodes[0].endpoint.unload_connection(now, "gw");
    let asked = w.nodes[0].resolved;
    w.run(3_600 * S);
    assert_eq!(w.nodes[0].resolved, asked);
    assert!(w.nodes[0].endpoint.poll_timeout().is_none());
}
