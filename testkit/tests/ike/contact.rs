//! INITIAL_CONTACT (RFC 7296 section 2.4) is said when it is true: no other IKE_SA with the same
//! peer stands, ends or is being initiated, of whatever connection and however the connection
//! writes the peer's identity.

use std::time::Duration;

use ironswan_ike::event::IkeState;
use ironswan_keying::{AddrSpec, ChildAction, Connection, Limits, Target, Unique};
use ironswan_testkit::{Forger, Node, Verdict, World, config};
use ironswan_wire::iana::{ExchangeType, NotifyType};
use ironswan_wire::id::{IdPattern, Identity};
use ironswan_wire::ike::Payload;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn pattern(text: &str) -> IdPattern {
    IdPattern::parse(text).unwrap()
}

/// For each IKE_SA that a node has initiated, in order: whether it said INITIAL_CONTACT.
fn said(w: &World, node: usize) -> Vec<bool> {
    let mut seen = Vec::new();
    let mut out = Vec::new();
    for (s, p) in &w.net.log {
        if s.node != node || s.exchange != ExchangeType::IKE_AUTH || s.response || seen.contains(&s.spi_i) {
            continue;
        }
        seen.push(s.spi_i);
        let message = if p.from.port() == 4500 { &p.payload[4..] } else { &p.payload[..] };
        let (_, payloads) = Forger::of(&w.nodes[node], Some(s.spi_i)).open(message).expect("IKE_AUTH");
        let initial = |p: &Payload| matches!(p, Payload::Notify(n) if n.kind == NotifyType::INITIAL_CONTACT);
        out.push(payloads.iter().any(initial));
    }
    out
}

/// A second connection of node 0, and of node 1 its other end, with networks of its own.
fn second(w: &World, tweak: impl Fn(usize, &mut Connection)) -> [Connection; 2] {
    [0, 1].map(|i| {
        let mut c = w.nodes[i].connection("gw");
        let nets = [("10.3.0.0/24", "10.4.0.0/24"), ("10.4.0.0/24", "10.3.0.0/24")][i];
        c.children = vec![config::child("other", nets.0, nets.1)];
        c.name = "two".to_owned();
        tweak(i, &mut c);
        c
    })
}

fn load(w: &mut World, conns: [Connection; 2]) {
    let now = w.now();
    for (node, conn) in w.nodes.iter_mut().zip(conns) {
        node.endpoint.load_connection(now, conn);
    }
}

fn initiate(w: &mut World, conn: &str, child: &str) {
    let now = w.now();
    w.nodes[0].endpoint.initiate(now, Some(conn), Some(child)).unwrap();
    w.run(S);
}

#[test]
fn two_connections_to_one_peer_stand_beside_each_other_however_its_identity_is_written() {
    for (one, two) in [
        ("g2.example", "g2.example"),
        ("g2.example", "G2.Example"),
        ("G2.EXAMPLE", "g2.example"),
        ("%any", "%any"),
        ("%any", "g2.example"),
        ("g2.example", "%any"),
        ("*.example", "%any"),
        ("*.EXAMPLE", "g2.example"),
    ] {
        let mut w = World::pair(1, |c| {
            c[0].remote_id = pattern(one);
            c[1].children.push(config::child("other", "10.4.0.0/24", "10.3.0.0/24"));
        });
        for n in &mut w.nodes {
            n.endpoint.load_shared(config::psk("any", "a secret of both", &[]));
        }
        w.establish(0).unwrap();
        let conns = second(&w, |i, c| {
            if i == 0 {
                c.remote_id = pattern(two);
            }
        });
        load(&mut w, conns);
        initiate(&mut w, "two", "other");
        assert_eq!(said(&w, 0), [true, false], "{one}, {two}");
        for round in 0..10 {
            let ikes = w.up(round % 2);
            let child = |c: &str| Target { child: Some(c.to_owned()), ..Target::default() };
            let ike = |id| Target { ike_id: Some(id), ..Target::default() };
            let targets = ["net", "other"].map(child).into_iter().chain(ikes.iter().map(|sa| ike(sa.id.0)));
            for target in targets {
                let now = w.now();
                w.nodes[round % 2].endpoint.rekey(now, &target, false).unwrap();
                w.run(20 * S);
            }
        }
        for node in 0..2 {
            let up = w.up(node);
            let kids: Vec<usize> = up.iter().map(|s| s.children.len()).collect();
            assert_eq!(kids, [1, 1], "{one}, {two}: {up:?}");
            assert_eq!(w.nodes[node].engine.outbound.len(), 2);
            assert!(!w.nodes[node].logged("received INITIAL_CONTACT"));
        }
        // Once both are gone it is true again.
        let now = w.now();
        for conn in ["gw", "two"] {
            let target = Target { ike: Some(conn.to_owned()), ..Target::default() };
            w.nodes[0].endpoint.terminate(now, &target, false).unwrap();
        }
        w.run(5 * S);
        initiate(&mut w, "two", "other");
        initiate(&mut w, "gw", "net");
        assert_eq!(said(&w, 0)[2..], [true, false], "{one}, {two}");
    }
}

#[test]
fn what_is_only_being_initiated_counts_too() {
    for (one, two) in [("g2.example", "G2.example"), ("%any", "%any"), ("%any", "g2.example")] {
        let mut w = World::pair(2, |c| {
            c[0].remote_id = pattern(one);
            c[0].children[0].start_action = ChildAction::Start;
        });
        for n in &mut w.nodes {
            n.endpoint.load_shared(config::psk("any", "a secret of both", &[]));
        }
        let conns = second(&w, |i, c| {
            if i == 0 {
                c.remote_id = pattern(two);
                c.children[0].start_action = ChildAction::Start;
            }
        });
        load(&mut w, conns);
        // Messages of one of them are lost, so that any INITIAL_CONTACT comes late.
        w.net.rules.push(Box::new(|s| match s.exchange == ExchangeType::IKE_AUTH && s.index % 3 == 0 {
            true => Verdict::Drop,
            false => Verdict::Pass,
        }));
        w.run(60 * S);
        assert_eq!(said(&w, 0), [false, false], "{one}, {two}");
        assert_eq!((w.up(0).len(), w.up(1).len()), (2, 2), "{one}, {two}");
    }
}

#[test]
fn what_ends_and_is_not_yet_gone_counts_too() {
    let mut w = World::pair(3, |_| {});
    w.establish(0).unwrap();
    // The answer to the DELETE is lost for now.
    w.net.mute.insert(1);
    w.terminate(0, false);
    w.run(S);
    w.net.mute.clear();
    let conns = second(&w, |_, _| {});
    load(&mut w, conns);
    initiate(&mut w, "two", "other");
    assert_eq!(said(&w, 0), [true, false]);
}

#[test]
fn an_attempt_that_was_let_go_does_not_count_and_is_shown_as_ending() {
    let mut w = World::pair(9, |_| {});
    w.net.rules.push(Box::new(|s| match s.node == 1 && s.exchange == ExchangeType::IKE_AUTH {
        true => Verdict::Drop,
        false => Verdict::Pass,
    }));
    let ticket = w.initiate(0);
    w.run(S);
    // The peer has it, and hears nothing of its end for now.
    assert_eq!((w.up(0).len(), w.up(1).len()), (0, 1));
    w.net.mute.insert(1);
    w.terminate(0, false);
    w.run(100 * MS);
    assert_eq!(w.nodes[0].done[&ticket], Err("the IKE_SA was terminated".to_owned()));
    let states: Vec<IkeState> = w.nodes[0].sas(w.now()).iter().map(|sa| sa.state).collect();
    assert_eq!(states, [IkeState::Deleting]);
    w.net.mute.clear();
    w.net.rules.clear();
    let now = w.now();
    w.nodes[0].endpoint.initiate(now, Some("gw"), Some("net")).unwrap();
    w.run(500 * MS);
    assert_eq!(said(&w, 0), [true, true]);
    assert_eq!(w.up(1).len(), 1, "the old one has made room");
    w.run(200 * S);
    w.assert_one();
    w.audit();
}

#[test]
fn never_means_never() {
    let mut w = World::pair(4, |c| c[0].unique = Unique::Never);
    w.establish(0).unwrap();
    assert_eq!(said(&w, 0), [false]);
}

#[test]
fn other_peers_and_other_identities_of_ours_do_not_count() {
    // A third gateway, whose IKE_SA with node 0 is there first.
    for remote in ["%any", "*.example", "g2.example"] {
        let mut w = World::pair(5, |c| c[0].remote_id = pattern(remote));
        let third = config::ip("192.0.2.3");
        w.nodes.push(Node::seeded(vec![third], 55, Limits::default()));
        for n in &mut w.nodes {
            n.endpoint.load_shared(config::psk("any", "a secret of both", &[]));
        }
        let mut conns = second(&w, |i, c| {
            c.remote_id = pattern("%any");
            match i {
                0 => c.remote_addrs = vec![AddrSpec::Host(third)],
                _ => (c.local_addrs, c.local_id) = (vec![], Identity::parse("g3.example")),
            }
        });
        let now = w.now();
        w.nodes[2].endpoint.load_connection(now, conns[1].clone());
        w.nodes[0].endpoint.load_connection(now, conns[0].clone());
        initiate(&mut w, "two", "other");
        assert_eq!(w.up(2).len(), 1, "{remote}");
        w.establish(0).unwrap();
        assert_eq!(said(&w, 0), [true, true], "{remote}");
        // And one with the same peer as somebody else.
        conns[0].name = "three".to_owned();
        conns[0].remote_addrs = vec![AddrSpec::Host(config::ip("192.0.2.2"))];
        conns[0].local_id = Identity::parse("g1b.example");
        conns[1].name = "three".to_owned();
        conns[1].local_id = Identity::parse("g2.example");
        let now = w.now();
        w.nodes[1].endpoint.load_connection(now, conns[1].clone());
        w.nodes[0].endpoint.load_connection(now, conns[0].clone());
        initiate(&mut w, "three", "other");
        assert_eq!(said(&w, 0), [true, true, true], "{remote}");
        assert_eq!(w.up(1).len(), 2, "{remote}");
    }
}

#[test]
fn what_strangers_begin_does_not_silence_it() {
    let mut w = World::pair(6, |c| c[0].remote_id = pattern("%any"));
    for n in &mut w.nodes {
        n.endpoint.load_shared(config::psk("any", "a secret of both", &[]));
    }
    // Half-open IKE_SAs from the peer's address, which anybody can make.
    w.net.rules.push(Box::new(|s| match s.node == 0 && s.response {
        true => Verdict::Drop,
        false => Verdict::Pass,
    }));
    w.initiate(1);
    w.run(50 * MS);
    assert_eq!(w.nodes[0].sas(w.now()).len(), 1);
    w.terminate(1, false);
    w.net.rules.clear();
    w.initiate(0);
    w.run(S);
    assert_eq!(w.nodes[0].sas(w.now()).len(), 2, "the half-open one is still there");
    assert_eq!(said(&w, 0), [true]);
}

#[test]
fn a_peer_that_counts_its_spis_anew_has_its_tunnel() {
    let mut w = World::pair(7, |c| c.iter_mut().for_each(|c| c.unique = Unique::Never));
    let conn = w.nodes[0].connection("gw");
    w.restart(0, 99, conn.clone());
    w.establish(0).unwrap();
    let spi = w.child(0).spi_in;
    let old = w.up(1)[0].id;
    w.run(60 * S);
    // With the same seed it makes the same SPIs, and node 1 knows nothing of its end.
    w.restart(0, 99, conn);
    w.establish(0).unwrap();
    assert_eq!(w.child(0).spi_in, spi, "the same SPI");
    let new = w.up(1).into_iter().find(|sa| sa.id != old).expect("another IKE_SA");
    assert_eq!((w.up(1).len(), new.children.len()), (2, 1));
    assert_eq!(w.nodes[1].engine.outbound.len(), 1, "one SA has this name");
    let key = w.nodes[1].engine.outbound[0].encr_key.clone();
    assert!(w.nodes[0].engine.inbound[&spi].encr_key == key, "the new one");
    // The end of the old one takes nothing from the new one.
    let now = w.now();
    let target = Target { ike_id: Some(old.0), ..Target::default() };
    w.nodes[1].endpoint.terminate(now, &target, true).unwrap();
    w.run(300 * S);
    w.assert_one();
    w.audit();
}
