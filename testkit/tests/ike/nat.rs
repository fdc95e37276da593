//! A NAT between gateways gives out another port or address: who is followed, who is not, and that
//! peers behind one NAT are never taken for each other (RFC 7296 section 2.23). A gateway whose UDP
//! ports are not 500 and 4500.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ironswan_crypto::rng::Seeded;
use ironswan_ike::Options;
use ironswan_ike::event::IkeSaInfo;
use ironswan_keying::{AddrSpec, Connection, Limits, Ports};
use ironswan_testkit::net::Nat;
use ironswan_testkit::{Node, World, config};
use ironswan_wire::iana::{ExchangeType, KeId};
use ironswan_wire::id::{IdPattern, Identity};
use ironswan_wire::ike::payload::{Ke, Nonce};
use ironswan_wire::ike::{Flags, Header, Message, Payload};

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

fn addr(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Node 0 has the ports 1500 and 14500, node 1 the usual ones.
fn own_ports(seed: u64, tweak: impl Fn(&mut [Connection; 2])) -> World {
    let mut w = World::pair(seed, tweak);
    let conn = w.nodes[0].connection("gw");
    let options = Options { ports: Ports { ike: 1500, natt: 14500 }, ..Options::default() };
    let addrs = w.nodes[0].addrs.clone();
    let mut node = Node::with_options(addrs, Box::new(Seeded::new(seed + 100)), Limits::default(), options);
    node.endpoint.load_shared(config::psk("ike-gw", "a secret of both", &["g1.example", "g2.example"]));
    let now = w.now();
    node.endpoint.load_connection(now, conn);
    w.nodes[0] = node;
    w
}

#[test]
fn a_gateway_with_ports_of_its_own_initiates_from_them() {
    // Without a NAT, with encapsulation all the same, and encapsulated from the start.
    for (seed, encap, from_start) in [(1, false, false), (2, true, false), (3, false, true)] {
        let mut w = own_ports(seed, |c| {
            c[0].encap = encap;
            if from_start {
                (c[0].local_port, c[0].remote_port) = (Some(14500), 4500);
            }
        });
        w.establish(0).unwrap();
        let first = &w.net.log[0].1;
        let ports = |sa: &IkeSaInfo| (sa.local.port(), sa.remote.port());
        println!("{} -> {}, then {:?}", first.from, first.to, ports(&w.up(0)[0]));
        assert_eq!(first.from.port(), if from_start { 14500 } else { 1500 });
        let (ours, theirs) = if encap || from_start { (14500, 4500) } else { (1500, 500) };
        assert_eq!((ports(&w.up(0)[0]), ports(&w.up(1)[0])), ((ours, theirs), (theirs, ours)));
        w.rekey_ike(1);
        w.run(20 * S);
        w.assert_one();
        w.audit();
    }
}

#[test]
fn attempts_at_other_addresses_leave_from_our_port_too() {
    let mut w = own_ports(4, |c| {
        c[0].remote_addrs =
            ["192.0.2.7", "192.0.2.8", "192.0.2.2"].map(|a| AddrSpec::Host(config::ip(a))).to_vec();
        c[0].keyingtries = 2;
    });
    w.establish(0).unwrap();
    assert!(w.net.log.iter().filter(|(_, p)| p.from.ip() == config::ip("192.0.2.1")).count() >= 4);
    assert!(
        w.net
            .log
            .iter()
            .all(|(_, p)| p.from.port() == if p.from.ip() == config::ip("192.0.2.1") { 1500 } else { 500 })
    );
    w.assert_one();
}

#[test]
fn an_attempt_that_begins_again_leaves_from_our_port_too() {
    let mut w = own_ports(6, |_| {});
    let ticket = w.initiate(0);
    // Faster than the peer, with a public value that is no point.
    let header = Header::new(
        w.nodes[0].sas(w.now())[0].spi_i,
        77,
        ExchangeType::IKE_SA_INIT,
        Flags::new(false, true),
        0,
    );
    let group = KeId::CURVE_25519;
    let payloads = vec![
        Payload::Sa(vec![config::ike_proposal(&[group])]),
        Payload::Ke(Ke { group, data: vec![0; 32] }),
        Payload::Nonce(Nonce(vec![6; 32])),
    ];
    w.inject(addr("192.0.2.2:500"), addr("192.0.2.1:1500"), Message { header, payloads }.emit().unwrap());
    w.run(10 * S);
    assert_eq!(w.nodes[0].done.get(&ticket), Some(&Ok(())));
    assert!(w.nodes[0].logged("starting IKE_SA_INIT again"));
    assert!(w.net.log.iter().filter(|(s, _)| s.node == 0).all(|(_, p)| p.from.port() == 1500));
    // What the first request has left behind at the peer is gone after a while.
    w.run(30 * S);
    w.assert_one();
}

#[test]
fn a_port_that_is_none_of_ours_is_said_and_nothing_is_sent() {
    let mut w = own_ports(5, |c| c[0].local_port = Some(500));
    let now = w.now();
    let why = w.nodes[0].endpoint.initiate(now, Some("gw"), Some("net")).unwrap_err().to_string();
    w.run(S);
    println!("{why}");
    assert!(why.contains("UDP port 500 is none of this gateway's, 1500 and 14500"), "{why}");
    assert!(w.net.log.is_empty());
    // As responder it goes on.

    let mut theirs = w.nodes[1].connection("gw");
    theirs.remote_port = 1500;
    let now = w.now();
    w.nodes[1].endpoint.load_connection(now, theirs);
    w.establish(1).unwrap();
    w.assert_one();
}

/// Node 0 is behind a NAT, node 1 is not, the tunnel is up and carries traffic.
fn behind_nat(seed: u64) -> World {
    let mut w = World::pair(seed, |c| c[1].remote_addrs = vec![AddrSpec::Any]);
    w.net.nat = Some(Nat::new(config::ip("192.0.2.1"), config::ip("203.0.113.1")));
    w.traffic = Some(100 * MS);
    w.establish(0).unwrap();
    assert!(w.up(1)[0].nat_remote && !w.up(1)[0].nat_local);
    w
}

fn where_node_0_is(w: &World) -> (SocketAddr, Vec<SocketAddr>) {
    let e = &w.nodes[1].engine;
    let sas = e.inbound.values().map(|s| s.remote).chain(e.outbound.iter().map(|s| s.remote)).collect();
    (w.up(1)[0].remote, sas)
}

#[test]
fn esp_or_ike_from_a_new_mapping_moves_the_ike_sa_and_every_child() {
    for by_esp in [true, false] {
        for new_address in [false, true] {
            let mut w = behind_nat(1);
            w.traffic = None;
            w.run(S);
            let (before, _) = where_node_0_is(&w);
            let nat = w.net.nat.as_mut().unwrap();
            nat.rebind();
            if new_address {
                nat.outside = config::ip("203.0.113.77");
            }
            if by_esp {
                w.traffic = Some(100 * MS);
                w.run(300 * MS);
            } else {
                w.rekey_child(0);
                w.run(S);
            }
            let (after, sas) = where_node_0_is(&w);
            assert_ne!(before, after, "by ESP {by_esp}");
            assert_eq!(after.ip(), config::ip(if new_address { "203.0.113.77" } else { "203.0.113.1" }));
            assert!(sas.len() >= 2 && sas.iter().all(|s| *s == after), "{sas:?} are not all at {after}");
            assert!(w.nodes[1].logged("remote endpoint changed from"));
            // And traffic flows both ways.
            w.traffic = Some(100 * MS);
            w.run(S);
            let got = (w.nodes[0].esp.0, w.nodes[1].esp.0);
            w.run(S);
            assert!(w.nodes[0].esp.0 >= got.0 + 9 && w.nodes[1].esp.0 >= got.1 + 9);
            w.run(6 * S);
            w.assert_one();
            w.audit();
        }
    }
}

#[test]
fn a_packet_that_does_not_open_or_is_old_or_came_first_moves_nothing() {
    let mut w = behind_nat(2);
    w.run(S);
    let (before, _) = where_node_0_is(&w);
    let attacker = addr("198.51.100.66:4500");
    let newest = w.last_esp[&0].clone();
    let at = w.now() + 6 * MS;
    // Sealed with no key of ours, however new.
    w.inject_esp(ironswan_testkit::Esp {
        at,
        from: attacker,
        sealed: ironswan_testkit::Sealed { key: vec![0; 20], ..newest.sealed.clone() },
        seq: u64::MAX / 2,
        ..newest.clone()
    });
    // The newest packet once more, and an older one.
    w.inject_esp(ironswan_testkit::Esp { at, from: attacker, ..newest.clone() });
    w.inject_esp(ironswan_testkit::Esp { at, from: attacker, seq: newest.seq - 4, ..newest });
    w.run(50 * MS);
    assert_eq!(where_node_0_is(&w).0, before);
    // The same for IKE messages: each one that node 0 has sent, from elsewhere, whole and broken.
    let old: Vec<_> = w.net.log.iter().filter(|(s, _)| s.node == 0).map(|(_, p)| p.clone()).collect();
    for p in old {
        for flip in [false, true] {
            let mut payload = p.payload.clone();
            if flip {
                *payload.last_mut().unwrap() ^= 1;
            }
            w.inject(attacker, p.to, payload);
            w.run(20 * MS);
            assert_eq!(where_node_0_is(&w).0, before);
        }
    }
    assert!(!w.nodes[1].logged("remote endpoint changed"));
    // The copy of the IKE_SA_INIT request was answered, as any would be, and came to nothing.
    w.run(40 * S);
    w.assert_one();
}

#[test]
fn a_peer_that_is_not_behind_a_nat_stays_where_it_is() {
    // Behind no NAT at all, and: it is us who are behind one.
    for ours in [false, true] {
        let mut w = World::pair(3, |c| c[1].remote_addrs = vec![AddrSpec::Any]);
        if ours {
            w.net.nat = Some(Nat::new(config::ip("192.0.2.1"), config::ip("203.0.113.1")));
        }
        w.traffic = Some(100 * MS);
        w.establish(0).unwrap();
        let from = addr("198.51.100.66:4500");
        // What node 1 sends comes to node 0 from elsewhere: fresh, authentic, and first.
        let mut esp = w.last_esp[&1].clone();
        let before = w.up(0)[0].remote;
        (esp.at, esp.from, esp.seq) = (w.now() + MS, from, esp.seq + 1_000);
        w.inject_esp(esp);
        w.run(50 * MS);
        assert_eq!(w.up(0)[0].remote, before, "behind a NAT ourselves: {ours}");
    }
}

#[test]
fn both_behind_a_nat_the_initiator_is_still_followed() {
    // `encap = yes` of node 1 is a NAT as far as node 0 can see; node 0 is behind a real one.
    let mut w = World::pair(4, |c| {
        c[1].remote_addrs = vec![AddrSpec::Any];
        c[1].encap = true;
    });
    w.net.nat = Some(Nat::new(config::ip("192.0.2.1"), config::ip("203.0.113.1")));
    w.traffic = Some(100 * MS);
    w.establish(0).unwrap();
    assert!(w.up(0)[0].nat_local && w.up(0)[0].nat_remote);
    w.net.nat.as_mut().unwrap().rebind();
    w.run(S);
    w.assert_one();
    let got = w.nodes[0].esp.0;
    w.run(S);
    assert!(w.nodes[0].esp.0 >= got + 9);
}

#[test]
fn many_peers_behind_one_nat_are_told_apart_and_moved_apart() {
    const N: usize = 40;
    let hub = config::ip("192.0.2.254");
    let spoke = |i: usize| IpAddr::from([10, 99, 0, 1 + i as u8]);
    // As the daemon comes: the limits are those that everyone has.
    let mut nodes = vec![Node::seeded(vec![hub], 1, Limits::default())];
    nodes.extend((0..N).map(|i| Node::seeded(vec![spoke(i)], 2 + i as u64, Limits::default())));
    let mut w = World::new(5, nodes);
    let mut nat = Nat::new(spoke(0), config::ip("203.0.113.1"));
    nat.inside = (0..N).map(spoke).collect();
    w.net.nat = Some(nat);
    let now = w.now();
    for i in 0..N {
        let (id, net) = (format!("spoke{i}.example"), format!("10.2.{i}.0/24"));
        let mut conns = config::pair(hub, spoke(i));
        conns[0].name = format!("c{i}");
        conns[0].remote_addrs = vec![AddrSpec::Any];
        conns[0].remote_id = IdPattern::parse(&id).unwrap();
        conns[0].children = vec![config::child("net", "10.1.0.0/24", &net)];
        conns[1].local_id = Identity::parse(&id);
        conns[1].children = vec![config::child("net", &net, "10.1.0.0/24")];
        let [ours, theirs] = conns;
        let key = config::psk(&format!("ike-{i}"), &format!("secret {i}"), &["g1.example", &id]);
        w.nodes[0].endpoint.load_shared(key.clone());
        w.nodes[0].endpoint.load_connection(now, ours);
        w.nodes[1 + i].endpoint.load_shared(key);
        w.nodes[1 + i].endpoint.load_connection(now, theirs);
    }
    (1..=N).for_each(|i| {
        w.initiate(i);
    });
    w.run(60 * S);
    assert_eq!(w.up(0).len(), N, "all at once, from one address, within a minute");
    let paired = |w: &World| {
        for i in 0..N {
            let theirs = &w.up(1 + i)[0];
            let ours: Vec<_> = w.up(0).into_iter().filter(|s| s.spi_i == theirs.spi_i).collect();
            assert_eq!((ours.len(), ours[0].conn.clone()), (1, format!("c{i}")));
            let out = ours[0].children[0].spi_out;
            assert_eq!(out, theirs.children[0].spi_in);
            let sa = w.nodes[0].engine.outbound.iter().find(|s| s.spi == out).unwrap();
            assert_eq!(sa.remote, ours[0].remote, "c{i}: the child is where its IKE_SA is");
        }
        let mut at: Vec<_> = w.up(0).iter().map(|s| s.remote).collect();
        at.sort_unstable();
        at.dedup();
        assert_eq!(at.len(), N, "everyone has a port of its own");
    };
    paired(&w);
    // The NAT forgets everything; the peers speak in another order.
    w.net.nat.as_mut().unwrap().rebind();
    for i in (1..=N).rev() {
        w.rekey_child(i);
        w.run(100 * MS);
    }
    w.run(20 * S);
    paired(&w);
    // One of them restarts: INITIAL_CONTACT is about it alone.
    let conn = w.nodes[3].connection("gw");
    let (addrs, key) =
        (w.nodes[3].addrs.clone(), config::psk("k", "secret 2", &["g1.example", "spoke2.example"]));
    w.nodes[3] = Node::seeded(addrs, 777, Limits::default());
    let now = w.now();
    w.nodes[3].endpoint.load_shared(key);
    w.nodes[3].endpoint.load_connection(now, conn);
    w.initiate(3);
    w.run(20 * S);
    paired(&w);
    assert_eq!(w.up(0).len(), N);
    w.audit();
}

/// Node 0 behind a NAT, its tunnel up; with this `keep_alive` there.
fn keeping_alive(seed: u64, keep_alive: Duration) -> World {
    let limits = Limits { keep_alive, ..Limits::default() };
    let mut w = World::pair_at(seed, config::ip("10.9.0.2"), config::ip("192.0.2.2"), limits, |c| {
        c[1].remote_addrs = vec![AddrSpec::Any];
        c.iter_mut().for_each(|c| c.dpd_delay = Duration::ZERO);
    });
    w.net.nat = Some(Nat::new(config::ip("10.9.0.2"), config::ip("203.0.113.1")));
    w.establish(0).unwrap();
    w
}

#[test]
fn keepalives_go_only_when_nothing_else_has_gone_for_the_configured_time() {
    let keepalives = |w: &mut World, time: Duration| {
        let before = w.nodes[0].keepalives;
        w.run(time);
        assert_eq!(w.nodes[1].keepalives, 0, "node 1 is not behind a NAT");
        w.nodes[0].keepalives - before
    };
    for every in [2 * S, 20 * S] {
        let mut w = keeping_alive(40, every);
        assert_eq!(keepalives(&mut w, 10 * every), 10, "an idle link");
        // ESP of ours keeps the mapping, ESP of the peer does not.
        w.traffic = Some(every / 4);
        w.quiet = [1].into();
        assert_eq!(keepalives(&mut w, 10 * every), 0, "ESP goes out");
        w.quiet = [0].into();
        let sent = keepalives(&mut w, 10 * every);
        assert!((9..=10).contains(&sent), "{sent}: ESP comes in alone");
        w.traffic = None;
        // So do IKE messages, requests and responses.
        for node in [0, 1, 0, 1, 0, 1, 0, 1] {
            w.rekey_child(node);
            assert_eq!(keepalives(&mut w, every / 2), 0, "IKE messages go out");
        }
        // ESP that goes out more rarely leaves gaps: each has the keepalive that falls into it.
        w.traffic = Some(every + every / 2);
        w.quiet = [1].into();
        let sent = keepalives(&mut w, 15 * every);
        assert!((9..=11).contains(&sent), "{sent}: ESP every {:?}", every + every / 2);
        w.traffic = None;
        w.run(20 * S);
        w.audit();
    }
    let mut w = keeping_alive(41, Duration::ZERO);
    assert_eq!(keepalives(&mut w, 300 * S), 0, "switched off");
    w.audit();
}

/// A reload reaches the IKE_SAs that stand.
#[test]
fn another_time_between_keepalives_holds_for_standing_ike_sas_at_once() {
    for (before, after) in [(Duration::ZERO, 20 * S), (300 * S, 20 * S), (2 * S, 20 * S)] {
        let mut w = keeping_alive(43, before);
        w.run(30 * S);
        let now = w.now();
        w.nodes[0].endpoint.set_limits(now, Limits { keep_alive: after, ..Limits::default() });
        w.run(2 * S);
        let sent = w.nodes[0].keepalives;
        w.run(10 * after);
        assert_eq!(w.nodes[0].keepalives - sent, 10, "{before:?} to {after:?}");
        assert_eq!(w.nodes[1].keepalives, 0, "node 1 is not behind a NAT");
        let now = w.now();
        w.nodes[0].endpoint.set_limits(now, Limits { keep_alive: Duration::ZERO, ..Limits::default() });
        w.run(after);
        let sent = w.nodes[0].keepalives;
        w.run(10 * after);
        assert_eq!(w.nodes[0].keepalives, sent, "switched off");
        w.audit();
    }
}

#[test]
fn keepalives_go_on_after_rekeyings_and_without_children() {
    let mut w = keeping_alive(42, 2 * S);
    for _ in 0..3 {
        w.rekey_ike(0);
        w.rekey_ike(1);
        w.run(20 * S);
    }
    let before = w.nodes[0].keepalives;
    w.run(20 * S);
    assert_eq!(w.nodes[0].keepalives - before, 10);
    w.terminate(0, true);
    w.run(S);
    let before = w.nodes[0].keepalives;
    w.run(20 * S);
    assert_eq!(w.nodes[0].keepalives - before, 10, "the IKE_SA alone");
    w.audit();
}
