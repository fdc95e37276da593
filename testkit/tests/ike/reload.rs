//! A changed configuration, and what it does to what runs: by difference, and to nothing else.

use std::collections::HashSet;
use std::time::Duration;

use ironswan_ike::event::ChildState;
use ironswan_keying::{AddrSpec, ChildAction, Connection};
use ironswan_testkit::{Verdict, World, config};
use ironswan_wire::iana::ExchangeType;

const S: Duration = Duration::from_secs(1);

/// Two children, `net` and `lab`, on one connection.
fn two(c: &mut [Connection; 2]) {
    c[0].children.push(config::child("lab", "10.1.0.0/24", "10.3.0.0/24"));
    c[1].children.push(config::child("lab", "10.3.0.0/24", "10.1.0.0/24"));
}

fn started(action: ChildAction) -> (World, Connection) {
    let tweak = |c: &mut [Connection; 2]| {
        two(c);
        c[0].children.iter_mut().for_each(|k| k.start_action = action);
    };
    let mut w = World::pair(1, tweak);
    w.run(5 * S);
    if action != ChildAction::Start {
        for name in ["net", "lab"] {
            initiate(&mut w, name);
            w.run(5 * S);
        }
    }
    let mut conns = config::pair(config::ip("192.0.2.1"), config::ip("192.0.2.2"));
    tweak(&mut conns);
    let [ours, _] = conns;
    (w, ours)
}

fn initiate(w: &mut World, child: &str) {
    let now = w.now();
    w.nodes[0].endpoint.initiate(now, Some("gw"), Some(child)).unwrap();
}

fn load(w: &mut World, conn: &Connection) {
    let now = w.now();
    w.nodes[0].endpoint.load_connection(now, conn.clone());
    w.run(5 * S);
}

/// (IKE_SA, [(child, its inbound SPI)]) of node 0.
fn state(w: &World) -> (Vec<u64>, Vec<(String, u32)>) {
    let up = w.up(0);
    let children = up.iter().flat_map(|sa| &sa.children).filter(|c| c.state == ChildState::Installed);
    let mut list: Vec<_> = children.map(|c| (c.name.clone(), c.spi_in.0)).collect();
    list.sort();
    (up.iter().map(|sa| sa.id.0).collect(), list)
}

fn spi(state: &(Vec<u64>, Vec<(String, u32)>), name: &str) -> Option<u32> {
    state.1.iter().find(|(n, _)| n == name).map(|(_, spi)| *spi)
}

/// Both ends and their engines have the same SAs, and nothing else.
fn assert_same(w: &World, when: &str) {
    let pairs = |node: usize, mirrored: bool| {
        let up = w.up(node);
        let mut list: Vec<_> = up
            .iter()
            .flat_map(|sa| &sa.children)
            .map(|c| if mirrored { (c.spi_out, c.spi_in) } else { (c.spi_in, c.spi_out) })
            .collect();
        list.sort_unstable();
        list
    };
    assert_eq!(pairs(0, false), pairs(1, true), "{when}");
    for node in &w.nodes {
        let children = pairs(0, false).len();
        assert_eq!((node.engine.inbound.len(), node.engine.outbound.len()), (children, children), "{when}");
    }
}

#[test]
fn what_waits_for_its_turn_to_start_does_not_when_loading_starts_it_no_more() {
    let mut w = World::pair(1, |_| {});
    let [ours, _] = config::pair(config::ip("192.0.2.1"), config::ip("192.0.2.2"));
    // More than begin at once; nobody is there.
    let many: Vec<Connection> = (0..200)
        .map(|n| {
            let mut conn = Connection { name: format!("c{n}"), ..ours.clone() };
            conn.remote_addrs = vec![AddrSpec::Host(config::ip(&format!("203.0.113.{n}")))];
            conn.children[0].start_action = ChildAction::Start;
            conn
        })
        .collect();
    let now = w.now();
    let endpoint = &mut w.nodes[0].endpoint;
    many.iter().for_each(|c| endpoint.load_connection(now, c.clone()));
    let [mut stopped, mut again] = [190, 191].map(|n: usize| many[n].clone());
    for conn in [&mut stopped, &mut again] {
        conn.children[0].start_action = ChildAction::None;
        endpoint.load_connection(now, conn.clone());
    }
    endpoint.load_connection(now, many[191].clone());
    // One that has begun goes on.
    let mut begun = many[0].clone();
    begun.children[0].start_action = ChildAction::None;
    endpoint.load_connection(now, begun);
    w.run(3 * S);
    let now = w.now();
    let tried: HashSet<String> = w.nodes[0]
        .endpoint
        .protocol()
        .ike_sas(now)
        .into_iter()
        .map(|sa| sa.conn)
        .filter(|c| c != "gw")
        .collect();
    assert_eq!(tried.len(), 199);
    assert!(!tried.contains("c190"));
}

#[test]
fn a_changed_child_touches_only_itself() {
    for action in [ChildAction::Start, ChildAction::Trap] {
        let (mut w, mut conn) = started(action);
        let before = state(&w);
        assert_eq!((before.0.len(), before.1.len()), (1, 2), "{before:?}");
        conn.children[0].replay_window = 64;
        load(&mut w, &conn);
        if action == ChildAction::Trap {
            assert_eq!(spi(&state(&w), "net"), None, "closed; traffic brings it up");
            initiate(&mut w, "net");
            w.run(5 * S);
        }
        let after = state(&w);
        assert_eq!(after.0, before.0, "the IKE_SA goes on");
        assert_eq!(spi(&after, "lab"), spi(&before, "lab"), "and so does its sibling");
        assert!(spi(&after, "net").is_some_and(|s| Some(s) != spi(&before, "net")));
        assert_eq!(w.nodes[0].engine.inbound.len(), 2);
        assert_same(&w, "");
    }
}

#[test]
fn what_runs_on_request_or_by_the_peer_runs_on_as_agreed() {
    let (mut w, mut conn) = started(ChildAction::None);
    let before = state(&w);
    let count = w.net.count;
    conn.children[0].replay_window = 64;
    load(&mut w, &conn);
    conn.encap = !conn.encap;
    load(&mut w, &conn);
    conn.children.clear();
    load(&mut w, &conn);
    assert_eq!((state(&w), w.net.count), (before, count));
}

#[test]
fn what_concerns_this_end_only_is_taken_over_without_a_message() {
    let (mut w, mut conn) = started(ChildAction::Start);
    let (before, count) = (state(&w), w.net.count);
    conn.dpd_delay = 30 * S;
    conn.keyingtries = 7;
    conn.rekey_time = 4_000 * S;
    for child in &mut conn.children {
        child.rekey_time = 1_000 * S;
        child.dpd_action = ChildAction::Start;
        child.guard = false;
    }
    load(&mut w, &conn);
    assert_eq!((state(&w), w.net.count), (before, count));
    w.run(30 * S);
    assert_eq!(w.net.count, count + 2, "liveness is asked for by the new delay");
    assert_same(&w, "");
}

#[test]
fn a_child_more_and_a_child_less_leave_the_others_alone() {
    let (mut w, mut conn) = started(ChildAction::Start);
    let before = state(&w);
    let lab = conn.children.pop().unwrap();
    load(&mut w, &conn);
    let without = state(&w);
    assert_eq!((without.0.clone(), spi(&without, "lab")), (before.0.clone(), None));
    conn.children.push(lab);
    load(&mut w, &conn);
    let again = state(&w);
    assert_eq!(again.0, before.0);
    assert_eq!(spi(&again, "net"), spi(&before, "net"));
    assert!(spi(&again, "lab").is_some_and(|s| Some(s) != spi(&before, "lab")));
    assert_same(&w, "");
}

#[test]
fn with_its_last_child_the_ike_sa_goes() {
    let (mut w, mut conn) = started(ChildAction::Start);
    conn.children.clear();
    load(&mut w, &conn);
    w.assert_empty();
}

#[test]
fn what_the_peers_have_agreed_on_is_agreed_on_anew() {
    let (mut w, mut conn) = started(ChildAction::Start);
    let before = state(&w);
    conn.encap = !conn.encap;
    load(&mut w, &conn);
    let after = state(&w);
    assert_eq!((after.0.len(), after.1.len()), (1, 2), "{after:?}");
    assert_ne!(after.0, before.0);
    assert_same(&w, "");
}

#[test]
fn unloading_closes_what_loading_had_started_and_nothing_else() {
    for (action, left) in [(ChildAction::Start, 0), (ChildAction::Trap, 2), (ChildAction::None, 2)] {
        let (mut w, _) = started(action);
        let now = w.now();
        assert!(w.nodes[0].endpoint.unload_connection(now, "gw"));
        w.run(5 * S);
        assert_eq!(state(&w).1.len(), left, "{action:?}");
    }
}

#[test]
fn a_trap_that_has_not_changed_is_not_touched() {
    let (mut w, mut conn) = started(ChildAction::Trap);
    let now = w.now();
    let target = ironswan_keying::Target { ike: Some("gw".to_owned()), ..Default::default() };
    w.nodes[0].endpoint.terminate(now, &target, false).unwrap();
    w.run(5 * S);
    let policies = w.nodes[0].engine.policies.clone();
    assert_eq!(policies.len(), 2);
    conn.children[1].replay_window = 64;
    conn.children.push(config::child("more", "10.1.0.0/24", "10.4.0.0/24"));
    let now = w.now();
    let endpoint = &mut w.nodes[0].endpoint;
    endpoint.load_connection(now, conn);
    let mut removed = Vec::new();
    while let Some(event) = endpoint.outputs().poll_event() {
        if let ironswan_ike::event::Event::Sadb(ironswan_wire::sadb::Command::PolicyDelete(p)) = event {
            removed.push(p.name);
        }
    }
    assert!(removed.iter().all(|name| !name.contains("net")), "{removed:?}");
    assert_eq!(removed.len(), 1, "{removed:?}");
}

#[test]
fn a_change_while_the_old_form_is_being_set_up_ends_in_the_new_form() {
    // At every moment of the setup, each of its messages included.
    for millis in (0..200).step_by(5) {
        let mut w = World::pair(3, |c| {
            two(c);
            c[0].children.iter_mut().for_each(|k| k.start_action = ChildAction::Start);
        });
        w.run(Duration::from_millis(millis));
        let mut conns = config::pair(config::ip("192.0.2.1"), config::ip("192.0.2.2"));
        two(&mut conns);
        let [mut conn, _] = conns;
        conn.children.iter_mut().for_each(|k| k.start_action = ChildAction::Start);
        conn.children[0].replay_window = 64;
        conn.children[1].replay_window = 96;
        load(&mut w, &conn);
        w.run(30 * S);
        let now = state(&w);
        assert_eq!((now.0.len(), now.1.len()), (1, 2), "changed after {millis} ms: {now:?}");
        let mut windows: Vec<u32> = w.nodes[0].engine.inbound.values().map(|sa| sa.replay_window).collect();
        windows.sort_unstable();
        assert_eq!(windows, [64, 96], "changed after {millis} ms");
        assert_same(&w, &format!("changed after {millis} ms"));
    }
}

#[test]
fn who_waits_for_an_attempt_that_a_reload_ends_is_told_so() {
    for (asked, unload, why) in [
        (ExchangeType::IKE_SA_INIT, false, "the connection has been changed"),
        (ExchangeType::IKE_AUTH, false, "the connection has been changed"),
        (ExchangeType::IKE_SA_INIT, true, "the connection has been unloaded"),
        (ExchangeType::IKE_AUTH, true, "the connection has been unloaded"),
    ] {
        let mut w = World::pair(21, |c| c[0].children[0].start_action = ChildAction::Start);
        w.net.rules.push(Box::new(move |s| match s.node == 1 && s.exchange == asked {
            true => Verdict::Drop,
            false => Verdict::Pass,
        }));
        let ticket = w.initiate(0);
        w.run(S);
        let now = w.now();
        let mut conn = w.nodes[0].connection("gw");
        conn.encap = true;
        match unload {
            true => assert!(w.nodes[0].endpoint.unload_connection(now, "gw")),
            false => w.nodes[0].endpoint.load_connection(now, conn),
        }
        w.run(S);
        assert_eq!(w.nodes[0].done.get(&ticket), Some(&Err(why.to_owned())), "{asked}");
    }
}

#[test]
fn back_to_what_was_agreed_is_no_change() {
    let (mut w, conn) = started(ChildAction::None);
    let (before, count) = (state(&w), w.net.count);
    let mut other = conn.clone();
    other.encap = !other.encap;
    load(&mut w, &other);
    load(&mut w, &conn);
    // It is adopted again: a new child joins it.
    let mut more = conn;
    let mut child = config::child("more", "10.1.0.0/24", "10.3.0.0/24");
    child.start_action = ChildAction::Start;
    more.children.push(child);
    assert_eq!((state(&w), w.net.count), (before.clone(), count));
    load(&mut w, &more);
    assert_eq!(state(&w).0, before.0);
    assert_eq!(state(&w).1.len(), 3);
}

#[test]
fn a_new_key_alone_touches_nothing_that_runs() {
    let (mut w, _) = started(ChildAction::Start);
    let (before, count) = (state(&w), w.net.count);
    w.nodes[0].endpoint.load_shared(config::psk("psk", "another", &[]));
    w.run(5 * S);
    assert_eq!((state(&w), w.net.count), (before, count));
}

#[test]
fn any_sequence_of_changes_ends_with_one_of_each_child() {
    for seed in 0..60u64 {
        let (mut w, mut conn) = started(ChildAction::Start);
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        let mut draw = move |n: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % n
        };
        let all = conn.children.clone();
        for _ in 0..12 {
            match draw(6) {
                0 => conn.children[0].replay_window = [32, 64, 128][draw(3) as usize],
                1 => conn.children[0].rekey_time = (1_000 + draw(100)) as u32 * S,
                2 if conn.children.len() > 1 => drop(conn.children.pop()),
                2 => conn.children.push(all[1].clone()),
                3 => conn.encap = !conn.encap,
                4 => conn.dpd_delay = (60 + draw(60)) as u32 * S,
                _ => {}
            }
            let now = w.now();
            w.nodes[0].endpoint.load_connection(now, conn.clone());
            w.run(Duration::from_millis(draw(120)));
        }
        w.run(60 * S);
        let now = state(&w);
        assert_eq!((now.0.len(), now.1.len()), (1, conn.children.len()), "seed {seed}: {now:?}");
        assert_eq!(w.nodes[0].engine.inbound.len(), conn.children.len(), "seed {seed}");
        let windows: Vec<_> = w.nodes[0].engine.inbound.values().map(|sa| sa.replay_window).collect();
        assert!(windows.contains(&conn.children[0].replay_window), "seed {seed}: {windows:?}");
        assert_same(&w, &format!("seed {seed}"));
    }
}
