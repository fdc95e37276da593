//! What the endpoint says of a tunnel that should be up and is not: since when, why, and what is
//! being done about it.

use std::time::Duration;

use ironswan_keying::diagnosis::Entry;
use ironswan_keying::{AddrSpec, ChildAction, Connection, Down, Limits, Next, Target, Unique};
use ironswan_testkit::{Clock, Verdict, World, config};
use ironswan_wire::iana::ExchangeType;

const S: Duration = Duration::from_secs(1);

fn down(w: &World, node: usize) -> Vec<Down> {
    w.nodes[node].endpoint.down(w.now())
}

fn obstacle(w: &World, node: usize) -> Option<String> {
    w.nodes[node].endpoint.obstacle(["gw"].into_iter(), Some("net"))
}

fn one(w: &World, node: usize) -> Down {
    let all = down(w, node);
    assert_eq!(all.len(), 1, "{all:?}");
    let one = all.into_iter().next().unwrap();
    assert_eq!((one.conn.as_str(), one.child.as_deref()), ("gw", Some("net")));
    one
}

#[test]
fn a_silent_peer_is_named_with_what_was_sent_to_it_and_when_it_is_tried_again() {
    let mut w = World::pair(71, |c| {
        c[0].keyingtries = 0;
        c[0].children[0].start_action = ChildAction::Start;
    });
    assert!(down(&w, 1).is_empty(), "nobody wants it there");
    w.net.mute.insert(1);
    w.run(10 * S);
    let d = one(&w, 0);
    assert_eq!(d.next, Next::Trying);
    assert_eq!(d.reason(), "peer not responding: no answer from 192.0.2.2:500 to IKE_SA_INIT, sent 2 times");
    assert_eq!(obstacle(&w, 0).as_ref(), Some(&d.reason()), "what `up` says when its time is over");
    assert!(d.since >= 9 * S && d.since <= 11 * S, "{:?}", d.since);
    // The schedule is over after 165 s; then there is a pause.
    assert!(w.run_until(200 * S, |w| matches!(down(w, 0)[0].next, Next::In { .. })));
    let d = one(&w, 0);
    let why = "peer not responding: no answer to IKE_SA_INIT from 192.0.2.1:500 to \
               192.0.2.2:500, sent 6 times, no ICMP";
    assert_eq!(d.reason(), why);
    assert!(
        matches!(d.next, Next::In { pause, .. } if pause <= Limits::default().retry_initial),
        "{:?}",
        d.next
    );
    assert!(d.since > 150 * S, "down since the first attempt began, not since the last one: {:?}", d.since);
    w.net.mute.clear();
    assert!(w.run_until(60 * S, |w| down(w, 0).is_empty()));
    w.assert_one();
}

#[test]
fn a_refusal_is_told_until_the_tunnel_is_up_or_the_connection_is_gone() {
    let mut w = World::pair(72, |c| c[1].children[0].local_ts = vec![config::net("10.9.0.0/24")]);
    let _ = w.establish(0);
    let d = one(&w, 0);
    assert!(d.reason().contains("TS_UNACCEPTABLE"), "{}", d.reason());
    assert_eq!(d.next, Next::Nothing);
    let before = d.since;
    w.run(5 * S);
    assert_eq!(one(&w, 0).since, before + 5 * S);
    assert!(down(&w, 1).is_empty(), "the responder did not ask for it");
    let now = w.now();
    w.nodes[0].endpoint.unload_connection(now, "gw");
    assert!(down(&w, 0).is_empty());
}

#[test]
fn a_lost_tunnel_is_down_since_it_was_lost_and_a_closed_one_is_not_in_trouble() {
    let mut w = World::pair(73, |c| {
        c[0].dpd_delay = S;
        c[0].children[0].dpd_action = ChildAction::Start;
        c[0].keyingtries = 0;
    });
    w.establish(0).unwrap();
    assert!(down(&w, 0).is_empty() && obstacle(&w, 0).is_none());
    w.run(100 * S);
    w.net.mute.insert(1);
    assert!(w.run_until(400 * S, |w| !down(w, 0).is_empty()));
    let d = one(&w, 0);
    assert!(d.reason().starts_with("the peer does not respond: no answer to "), "{d:?}");
    assert_eq!(d.next, Next::Trying);
    assert!(d.since <= S, "not since the start: {:?}", d.since);
    let before = d.before.expect("it was up");
    assert!(before.lasted >= 100 * S && before.ended <= S, "{before:?}");
    assert_eq!(before.why.map(Entry::name), Some("peer-dead"));
    w.net.mute.clear();
    assert!(w.run_until(400 * S, |w| down(w, 0).is_empty()));
    let now = w.now();
    let all = Target { ike: Some("gw".into()), ..Target::default() };
    w.nodes[0].endpoint.terminate(now, &all, false).unwrap();
    w.run(5 * S);
    assert!(w.up(0).is_empty() && down(&w, 0).is_empty(), "the operator closed it");
}

#[test]
fn what_a_peer_closes_is_told_with_what_brings_it_back() {
    let mut w = World::pair(74, |c| c[0].children[0].close_action = ChildAction::Trap);
    w.establish(0).unwrap();
    w.terminate(1, false);
    w.run(5 * S);
    let d = one(&w, 0);
    assert_eq!((d.reason().as_str(), d.next), ("the peer deleted the IKE_SA", Next::Packet));
    assert_eq!(d.before.and_then(|before| before.why).map(Entry::name), Some("peer-deleted"));
    assert!(down(&w, 1).is_empty(), "there an operator closed it");
}

#[test]
fn an_ike_sa_that_was_asked_for_alone_is_not_down_for_ever_once_it_was_up() {
    for node in 0..2 {
        let mut w = World::pair(77, |_| {});
        let now = w.now();
        w.nodes[0].endpoint.initiate(now, Some("gw"), None).unwrap();
        assert_eq!(down(&w, 0).len(), 1, "it is on its way");
        w.run(S);
        assert_eq!((w.up(0).len(), down(&w, 0).len()), (1, 0));
        w.terminate(node, false);
        w.run(5 * S);
        assert!(w.up(0).is_empty() && down(&w, 0).is_empty(), "{:?}", down(&w, 0));
    }
}

#[test]
fn a_tunnel_whose_ike_sa_ran_over_its_time_is_down_for_that_reason() {
    // The rekeying is in flight when the time is over, or has just failed.
    for in_flight in [false, true] {
        for action in [ChildAction::None, ChildAction::Trap, ChildAction::Start] {
            let mut w = World::pair(79, |c| {
                (c[0].rekey_time, c[0].over_time, c[0].keyingtries) = (100 * S, 50 * S, 0);
                c[0].children[0].start_action = action;
            });
            w.establish(0).unwrap();
            w.nodes[0].no_keys = !in_flight;
            w.net.rules.push(Box::new(|s| match s.exchange {
                ExchangeType::CREATE_CHILD_SA | ExchangeType::IKE_SA_INIT => Verdict::Drop,
                _ => Verdict::Pass,
            }));
            w.run(152 * S);
            assert!(w.nodes[0].logged("IKE_SA lifetime is over") && w.up(0).is_empty());
            let d = one(&w, 0);
            println!("{action:?}, rekeying in flight: {in_flight}: {d:?}");
            let next = match action {
                ChildAction::None => d.next == Next::Nothing,
                ChildAction::Trap => d.next == Next::Packet,
                ChildAction::Start | ChildAction::TrapAndStart => {
                    matches!(d.next, Next::Trying | Next::In { .. })
                }
            };
            assert!(next, "{d:?}");
            let why = "the lifetime of the IKE_SA was over and no other had taken over";
            assert!(d.reason().starts_with(why) || action == ChildAction::Start, "{d:?}");
            assert!(d.since <= 3 * S, "{d:?}");
            // A peer that has not had our last request does not take the next one.
            assert_eq!(w.up(1).is_empty(), !in_flight);
        }
    }
}

#[test]
fn a_tunnel_that_is_made_anew_with_another_configuration_is_down_until_it_is_up() {
    let mut w = World::pair(80, |c| {
        c[0].children[0].start_action = ChildAction::Start;
        c[0].keyingtries = 0;
    });
    w.run(5 * S);
    w.assert_one();
    let now = w.now();
    let mut conn = w.nodes[0].connection("gw");
    conn.encap = true;
    w.net.rules.push(Box::new(|s| match s.exchange {
        ExchangeType::IKE_SA_INIT => Verdict::Drop,
        _ => Verdict::Pass,
    }));
    w.nodes[0].endpoint.load_connection(now, conn);
    w.run(S);
    assert!(w.up(0).is_empty(), "the old one is closed");
    assert_eq!(one(&w, 0).next, Next::Trying);
    w.net.rules.clear();
    w.run(10 * S);
    w.assert_one();
    assert!(down(&w, 0).is_empty());
}

#[test]
fn what_ends_while_it_stands_on_another_ike_sa_is_not_down() {
    let mut w = World::pair(81, |c| c.iter_mut().for_each(|c| c.unique = Unique::Never));
    w.establish(0).unwrap();
    // The peer makes another one with the same child, and closes the first later.
    let mut now = w.now();
    let mut conn = w.nodes[1].connection("gw");
    conn.encap = true;
    w.nodes[1].endpoint.load_connection(now, conn);
    w.establish(1).unwrap();
    assert_eq!((w.up(0).len(), w.up(1).len()), (2, 2));
    let first = Target { ike_id: Some(w.up(1)[0].id.0), ..Target::default() };
    now = w.now();
    w.nodes[1].endpoint.terminate(now, &first, false).unwrap();
    w.run(100 * S);
    assert_eq!((w.up(0).len(), down(&w, 0)), (1, vec![]));
    w.net.mute.insert(0);
    w.terminate(1, false);
    w.run(2 * S);
    let d = one(&w, 0);
    assert!(d.since <= 2 * S, "since it went, not since the first one went: {d:?}");
}

/// So many connections to peers whose names cannot be resolved: node 0 tries them again and again.
/// How long the calls took.
fn many_down(count: usize) -> Vec<(&'static str, Duration)> {
    let mut w = World::pair(78, |_| {});
    let now = w.now();
    let mut conn = w.nodes[0].connection("gw");
    w.nodes[0].endpoint.unload_connection(now, "gw");
    conn.keyingtries = 0;
    conn.children[0].start_action = ChildAction::Start;
    let mut conns: Vec<Connection> = (0..count)
        .map(|n| Connection {
            name: format!("peer{n}"),
            remote_addrs: vec![AddrSpec::Name(format!("peer{n}.example"))],
            ..conn.clone()
        })
        .collect();
    let mut took = Vec::new();
    let mut time = |what, clock: Clock| took.push((what, Clock::new().now() - clock.now()));
    let load = |w: &mut World, conns: &[Connection]| {
        let now = w.now();
        conns.iter().for_each(|conn| w.nodes[0].endpoint.load_connection(now, conn.clone()));
    };
    let clock = Clock::new();
    load(&mut w, &conns);
    time("load", clock);
    let clock = Clock::new();
    let waiting = down(&w, 0);
    time("status while they wait for their turn", clock);
    assert!(
        (1..count).contains(&waiting.len()),
        "an entry is made when its attempt begins: {}",
        waiting.len()
    );
    // The first attempt of each has failed, and the second is to come.
    w.run(5 * S);
    let clock = Clock::new();
    let all = down(&w, 0);
    time("status", clock);
    assert_eq!(all.len(), count);
    for d in &all {
        assert!(matches!(d.next, Next::In { .. } | Next::Trying), "{d:?}");
        assert_eq!(
            (d.child.as_deref(), d.reason().contains("cannot be resolved")),
            (Some("net"), true),
            "{d:?}"
        );
    }
    assert!(all.iter().filter(|d| matches!(d.next, Next::In { .. })).count() > count / 2);
    // One that is not configured any more is not tried again, and the others are.
    conns.iter_mut().for_each(|conn| conn.dpd_delay = S);
    let clock = Clock::new();
    load(&mut w, &conns);
    time("reload", clock);
    let clock = Clock::new();
    for conn in &conns {
        let now = w.now();
        w.nodes[0].endpoint.initiate(now, Some(&conn.name), Some("net")).unwrap();
    }
    time("up", clock);
    let clock = Clock::new();
    for conn in &conns[1..] {
        let now = w.now();
        assert!(w.nodes[0].endpoint.unload_connection(now, &conn.name));
    }
    time("unload", clock);
    w.run(60 * S);
    let left = down(&w, 0);
    assert_eq!(left.iter().map(|d| d.conn.as_str()).collect::<Vec<_>>(), ["peer0"]);
    w.audit();
    took
}

#[test]
fn thousands_that_are_down_are_each_looked_up_under_their_own_name() {
    for (few, many) in many_down(300).into_iter().zip(many_down(3_000)) {
        let times = many.1.as_secs_f64() / few.1.as_secs_f64();
        println!("{}: {:?} for 300, {:?} for 3,000, {times:.0} times", few.0, few.1, many.1);
    }
}
