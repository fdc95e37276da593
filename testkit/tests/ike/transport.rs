//! Transport mode (RFC 7296 sections 1.3.1 and 2.23.1): asked for, answered, kept by rekeying,
//! declined; and through NATs in all four places, where each end has to read the other's selectors
//! and checksums with its own eyes.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ironswan_keying::{AddrSpec, Connection};
use ironswan_testkit::net::Nat;
use ironswan_testkit::{Forger, World, config};
use ironswan_wire::iana::{ExchangeType, NotifyType};
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::{Nonce, Notify};
use ironswan_wire::proposal::Proposal;
use ironswan_wire::sadb::{Mode, OriginalAddresses, SaAdd};
use ironswan_wire::selector::{AddrRange, TrafficSelector};

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

const A: &str = "192.0.2.1";
const B: &str = "192.0.2.2";
/// Outside of the NAT in front of each.
const NA: &str = "203.0.113.1";
const NB: &str = "203.0.113.2";

/// Two hosts with a transport-mode child between them.
fn hosts(seed: u64, tweak: impl FnOnce(&mut [Connection; 2])) -> World {
    World::pair(seed, |c| {
        c.iter_mut().for_each(config::transport);
        tweak(c);
    })
}

/// The same with NATs in front of node 0 (the initiator) and node 1, of those that are asked for.
fn through(seed: u64, nat0: bool, nat1: bool, tweak: impl FnOnce(&mut [Connection; 2])) -> World {
    let mut w = hosts(seed, |c| {
        c[0].remote_addrs = vec![AddrSpec::Host(config::ip(if nat1 { NB } else { B }))];
        c[1].remote_addrs = vec![AddrSpec::Any];
        tweak(c);
    });
    w.net.nat = nat0.then(|| Nat::new(config::ip(A), config::ip(NA)));
    w.net.far = nat1.then(|| Nat::forwarding(config::ip(B), config::ip(NB)));
    w
}

const PLACES: [(bool, bool); 4] = [(false, false), (true, false), (false, true), (true, true)];

fn inner(payload: &[u8]) -> &[u8] {
    payload.strip_prefix(&[0; 4]).unwrap_or(payload)
}

fn host(addr: &str) -> TrafficSelector {
    TrafficSelector::addresses(AddrRange::host(config::ip(addr)))
}

fn inbound(w: &World, node: usize) -> SaAdd {
    w.nodes[node].engine.inbound[&w.child(node).spi_in].clone()
}

/// Everything that the ends have said to each other.
fn said(w: &World, exchange: ExchangeType, response: bool) -> Vec<Payload> {
    let f = Forger::newest(&w.nodes[0]);
    let of = w.net.log.iter().filter(|(s, _)| (s.exchange, s.response) == (exchange, response));
    of.filter_map(|(_, p)| f.open(inner(&p.payload))).flat_map(|(_, p)| p).collect()
}

fn selectors(payloads: &[Payload]) -> (Vec<TrafficSelector>, Vec<TrafficSelector>) {
    let (mut i, mut r) = (Vec::new(), Vec::new());
    for p in payloads {
        match p {
            Payload::TsI(list) => i.clone_from(list),
            Payload::TsR(list) => r.clone_from(list),
            _ => {}
        }
    }
    (i, r)
}

#[test]
fn transport_mode_is_used_when_both_want_it() {
    for (a, b, want) in [
        (Mode::Transport, Mode::Transport, Mode::Transport),
        (Mode::Transport, Mode::Tunnel, Mode::Tunnel),
        (Mode::Tunnel, Mode::Transport, Mode::Tunnel),
    ] {
        let mut w = hosts(60, |c| (c[0].children[0].mode, c[1].children[0].mode) = (a, b));
        w.traffic = Some(50 * MS);
        w.establish(0).unwrap();
        w.assert_one();
        assert_eq!((w.child(0).mode, w.child(1).mode), (want, want));
        for node in [0, 1, 0] {
            w.rekey_child(node);
            w.run(8 * S);
            w.assert_one();
            assert_eq!((w.child(0).mode, w.child(1).mode), (want, want));
        }
        assert!(w.nodes.iter().all(|n| n.esp.0 > 100 && n.esp.1 == 0));
        if a == Mode::Transport && b == Mode::Tunnel {
            assert!(w.nodes[0].logged("the peer does not agree to transport mode, using tunnel mode"));
            assert!(w.nodes[1].logged("the peer asks for transport mode, CHILD_SA net is for tunnel mode"));
        }
        if a == Mode::Tunnel {
            assert!(w.nodes[1].logged("the peer does not ask for transport mode, using tunnel mode"));
        }
        w.audit();
    }
}

#[test]
fn transport_mode_needs_two_hosts() {
    // Networks, on either side or both: nobody can be meant by the outer addresses.
    for wide in [[true, false], [false, true], [true, true]] {
        let mut w = hosts(61, |c| {
            for (conn, wide) in c.iter_mut().zip(wide) {
                if wide {
                    conn.children[0].local_ts = vec![config::net("192.0.2.0/24")];
                    conn.children[0].remote_ts = vec![config::net("192.0.2.0/24")];
                }
            }
        });
        w.establish(0).unwrap();
        w.assert_one();
        // Node 0 asks for it only with host selectors; node 1 narrows them to hosts, or is told of
        // tunnel mode.
        let want = if wide[0] { Mode::Tunnel } else { Mode::Transport };
        assert_eq!((w.child(0).mode, w.child(1).mode), (want, want), "{wide:?}");
        assert_eq!(w.nodes[0].logged("not using transport mode, not host-to-host"), wide[0]);
    }
}

#[test]
fn protocols_and_ports_stay_in_transport_mode_through_nat() {
    for (nat0, nat1) in PLACES {
        let mut w = through(62, nat0, nat1, |c| {
            c[0].children[0].remote_ts = vec![config::dynamic(6, 80), config::dynamic(17, 1701)];
            c[1].children[0].local_ts = vec![config::dynamic(6, 80), config::dynamic(17, 1701)];
        });
        w.policies = false;
        w.establish(0).unwrap();
        let (a, b) = (w.child(0), w.child(1));
        assert_eq!((a.mode, b.mode), (Mode::Transport, Mode::Transport));
        let ports = |list: &[TrafficSelector]| -> Vec<_> {
            list.iter().map(|t| (t.protocol, t.start_port, t.end_port)).collect()
        };
        assert_eq!(ports(&a.remote_ts), [(6, 80, 80), (17, 1701, 1701)]);
        assert_eq!(ports(&b.local_ts), ports(&a.remote_ts));
    }
}

#[test]
fn each_end_sees_the_other_where_it_is_through_nats_in_all_places() {
    for (nat0, nat1) in PLACES {
        let mut w = through(63, nat0, nat1, |_| {});
        w.traffic = Some(50 * MS);
        w.establish(0).unwrap();
        w.run(2 * S);
        w.assert_one();
        // Addresses of each as the other sees it.
        let (seen0, seen1) = (if nat0 { NA } else { A }, if nat1 { NB } else { B });
        let (a, b) = (w.child(0), w.child(1));
        assert_eq!((a.mode, b.mode), (Mode::Transport, Mode::Transport));
        assert_eq!((a.local_ts, a.remote_ts), (vec![host(A)], vec![host(seen1)]), "{nat0} {nat1}");
        assert_eq!((b.local_ts, b.remote_ts), (vec![host(B)], vec![host(seen0)]), "{nat0} {nat1}");
        // On the wire each side says what it sees itself.
        assert_eq!(
            selectors(&said(&w, ExchangeType::IKE_AUTH, false)),
            (vec![host(A)], vec![host(seen1)]),
            "request"
        );
        assert_eq!(
            selectors(&said(&w, ExchangeType::IKE_AUTH, true)),
            (vec![host(seen0)], vec![host(B)]),
            "response"
        );
        // The addresses that checksums of arriving packets were made with.
        let original = |local, remote| {
            (nat0 || nat1).then(|| OriginalAddresses { local: config::ip(local), remote: config::ip(remote) })
        };
        assert_eq!(inbound(&w, 0).options.original, original(seen0, B));
        assert_eq!(inbound(&w, 1).options.original, original(seen1, A));
        for n in &w.nodes {
            assert_eq!(n.logged("transport mode through NAT, the peer's packets are from"), nat0 || nat1);
        }
        // Rekeyed by both, with what is on the wire read in the same way.
        for node in [0, 1] {
            w.rekey_child(node);
            w.run(8 * S);
            w.assert_one();
            assert_eq!(inbound(&w, 0).options.original, original(seen0, B));
            assert_eq!(inbound(&w, 1).options.original, original(seen1, A));
        }
        w.rekey_ike(0);
        w.run(8 * S);
        w.rekey_child(1);
        w.run(8 * S);
        w.assert_one();
        assert_eq!((w.child(0).mode, w.child(1).mode), (Mode::Transport, Mode::Transport));
        for n in &w.nodes {
            assert!(n.esp.0 > 300 && n.esp.1 == 0, "{nat0} {nat1}: {:?}", n.esp);
        }
        w.audit();
    }
}

#[test]
fn both_rekey_at_once_in_transport_mode_through_nats() {
    for (nat0, nat1) in PLACES {
        for seed in 0..4 {
            let mut w = through(100 + seed, nat0, nat1, |_| {});
            w.traffic = Some(20 * MS);
            w.establish(0).unwrap();
            w.run(S);
            w.rekey_child(0);
            w.rekey_child(1);
            w.run(30 * S);
            w.assert_one();
            assert!(w.nodes[0].logged("CHILD_SA rekey collision detected"));
            assert_eq!((w.child(0).mode, w.child(1).mode), (Mode::Transport, Mode::Transport));
            assert!(w.nodes.iter().all(|n| n.esp.1 == 0), "{nat0} {nat1} {seed}");
            w.audit();
        }
    }
}

#[test]
fn transport_mode_comes_up_over_a_bad_line() {
    for seed in 0..12 {
        let (nat0, nat1) = PLACES[seed as usize % 4];
        let mut w = through(200 + seed, nat0, nat1, |_| {});
        (w.net.loss, w.net.duplicate, w.net.jitter) = (200, 200, 20 * MS);
        w.traffic = Some(200 * MS);
        w.establish(0).unwrap();
        for _ in 0..2 {
            w.rekey_child_if_any(0);
            w.rekey_child_if_any(1);
            w.run(60 * S);
        }
        (w.net.loss, w.net.duplicate, w.net.jitter) = (0, 0, Duration::ZERO);
        w.run(200 * S);
        w.assert_one();
        assert_eq!((w.child(0).mode, w.child(1).mode), (Mode::Transport, Mode::Transport), "seed {seed}");
    }
}

#[test]
fn tunnel_mode_through_nats_keeps_the_selectors_as_they_are() {
    // One side wants transport mode, the other tunnel mode: the selectors are those on the wire, as
    // in any tunnel.
    for (nat0, nat1) in [(true, false), (false, true), (true, true)] {
        let fixed = |addr: &str| vec![config::net(&format!("{addr}/32"))];
        let seen1 = if nat1 { NB } else { B };
        let mut w = through(64, nat0, nat1, |c| {
            c[1].children[0].mode = Mode::Tunnel;
            c[1].children[0].local_ts = fixed(seen1);
            c[1].children[0].remote_ts = fixed(A);
        });
        w.establish(0).unwrap();
        w.assert_one();
        let (a, b) = (w.child(0), w.child(1));
        assert_eq!((a.mode, b.mode), (Mode::Tunnel, Mode::Tunnel));
        assert_eq!((a.local_ts, a.remote_ts), (vec![host(A)], vec![host(seen1)]));
        assert_eq!((b.remote_ts, b.local_ts), (vec![host(A)], vec![host(seen1)]));
        assert_eq!(inbound(&w, 0).options.original, None);
    }
}

/// A responder that does not know section 2.23.1 and sends the selectors back as they came is
/// understood as well.
#[test]
fn a_responder_that_answers_what_it_was_asked_is_understood() {
    for (nat0, nat1) in [(true, false), (true, true)] {
        let mut w = through(65, nat0, nat1, |_| {});
        w.establish(0).unwrap();
        let mut f = Forger::newest(&w.nodes[0]);
        let (local, remote): (SocketAddr, SocketAddr) = (w.up(0)[0].local, w.up(0)[0].remote);
        // Node 0 rekeys, and node 1's answer is another's.
        w.net.rules.push(Box::new(|s| match s.node == 0 && s.exchange == ExchangeType::CREATE_CHILD_SA {
            true => ironswan_testkit::Verdict::Drop,
            false => ironswan_testkit::Verdict::Pass,
        }));
        w.rekey_child(0);
        w.run(10 * MS);
        let request = said(&w, ExchangeType::CREATE_CHILD_SA, false);
        let (tsi, tsr) = selectors(&request);
        let answer = [
            Payload::Notify(Notify::new(NotifyType::USE_TRANSPORT_MODE, [])),
            Payload::Sa(vec![Proposal { spi: vec![0xc2, 2, 2, 2], ..config::esp_proposal(&[]) }]),
            Payload::Nonce(Nonce(vec![2; 32])),
            Payload::TsI(tsi.clone()),
            Payload::TsR(tsr.clone()),
        ];
        let bytes = f.message(false, ExchangeType::CREATE_CHILD_SA, true, 2, &answer);
        w.inject(remote, local, [&[0; 4], &bytes[..]].concat());
        w.run(10 * MS);
        let e = &w.nodes[0].engine;
        let new = e.outbound.iter().find(|sa| sa.spi.0 == 0xc202_0202).expect("the new SA");
        assert_eq!((new.mode, &new.local_ts, &new.remote_ts), (Mode::Transport, &tsi, &tsr));
    }
}

#[test]
fn an_answer_for_more_or_less_than_was_asked_is_refused_in_transport_mode_too() {
    let wide = TrafficSelector::addresses(AddrRange::prefix(config::ip("0.0.0.0"), 0).unwrap());
    let udp = TrafficSelector { protocol: 17, ..host(B) };
    for (tsi, tsr, good) in [
        (vec![host(NA)], vec![host(B)], true),
        // A rekeying must not narrow (RFC 7296 section 2.9.2).
        (vec![host(NA)], vec![udp], false),
        // Node 1 is not behind a NAT: its address is not replaced.
        (vec![host(NA)], vec![host("198.51.100.9")], false),
        (vec![host(NA)], vec![wide], false),
        (vec![wide], vec![host(B)], false),
        (vec![host(NA), host("198.51.100.9")], vec![host(B)], false),
    ] {
        let mut w = through(66, true, false, |_| {});
        w.establish(0).unwrap();
        let mut f = Forger::newest(&w.nodes[0]);
        let (local, remote) = (w.up(0)[0].local, w.up(0)[0].remote);
        w.net.rules.push(Box::new(|s| match s.node == 0 && s.exchange == ExchangeType::CREATE_CHILD_SA {
            true => ironswan_testkit::Verdict::Drop,
            false => ironswan_testkit::Verdict::Pass,
        }));
        w.rekey_child(0);
        w.run(10 * MS);
        let answer = [
            Payload::Notify(Notify::new(NotifyType::USE_TRANSPORT_MODE, [])),
            Payload::Sa(vec![Proposal { spi: vec![0xc2, 2, 2, 2], ..config::esp_proposal(&[]) }]),
            Payload::Nonce(Nonce(vec![2; 32])),
            Payload::TsI(tsi.clone()),
            Payload::TsR(tsr.clone()),
        ];
        let bytes = f.message(false, ExchangeType::CREATE_CHILD_SA, true, 2, &answer);
        w.inject(remote, local, [&[0; 4], &bytes[..]].concat());
        w.run(10 * MS);
        let installed = w.nodes[0].engine.outbound.iter().any(|sa| sa.spi.0 == 0xc202_0202);
        assert_eq!(installed, good, "{tsi:?} {tsr:?}");
    }
}

/// A peer that asks for transport mode with selectors that are none.
#[test]
fn a_request_with_several_addresses_gets_tunnel_mode_or_nothing() {
    let mut w = through(67, true, false, |c| {
        c[1].children[0].remote_ts.push(config::net("10.9.0.0/16"));
    });
    w.establish(0).unwrap();
    let mut f = Forger::newest(&w.nodes[0]);
    let peer = w.up(1)[0].remote;
    let net = TrafficSelector::addresses(AddrRange::prefix(config::ip("10.9.0.0"), 16).unwrap());
    let mut ask = |w: &mut World, mid, tsi: Vec<TrafficSelector>| {
        let request = [
            Payload::Notify(Notify::new(NotifyType::USE_TRANSPORT_MODE, [])),
            Payload::Sa(vec![Proposal { spi: vec![0xc3, 3, 3, mid as u8], ..config::esp_proposal(&[]) }]),
            Payload::Nonce(Nonce(vec![3; 32])),
            Payload::TsI(tsi),
            Payload::TsR(vec![host(B)]),
        ];
        let bytes = f.message(true, ExchangeType::CREATE_CHILD_SA, false, mid, &request);
        w.inject(peer, "192.0.2.2:4500".parse().unwrap(), [&[0; 4], &bytes[..]].concat());
        w.run(100 * MS);
        let answer = w.net.log.iter().find_map(|(s, p)| {
            (s.node == 1 && s.response && s.mid == mid).then(|| f.open(inner(&p.payload))).flatten()
        });
        let kinds = |p: &Payload| if let Payload::Notify(n) = p { Some(n.kind) } else { None };
        answer.expect("an answer").1.iter().filter_map(kinds).collect::<Vec<_>>()
    };
    assert_eq!(ask(&mut w, 2, vec![net]), [], "tunnel mode");
    assert_eq!(ask(&mut w, 3, vec![host(A)]), [NotifyType::USE_TRANSPORT_MODE]);
    assert_eq!(ask(&mut w, 4, vec![host("10.9.0.1"), host("10.9.0.2")]), [], "tunnel mode");
    assert!(w.nodes[1].logged("not using transport mode, not host-to-host"));
    // The address of a host behind the NAT means what it comes from, and nothing else.
    assert_eq!(ask(&mut w, 5, vec![host("8.8.8.8")]), [NotifyType::USE_TRANSPORT_MODE]);
    let all: Vec<_> = w.nodes[1].engine.inbound.values().filter(|sa| sa.mode == Mode::Transport).collect();
    assert!(all.iter().all(|sa| sa.remote_ts == [host(NA)]), "{all:?}");
}

/// Two hosts behind one NAT, each in transport mode to the same host, which has one address for
/// both. The ports that the first and the second want to send from; 0 for everything.
fn two_behind_one_nat(first: u16, port: u16) -> (World, Result<(), String>) {
    let mut w = through(68, true, false, |c| {
        c[1].remote_id = ironswan_wire::id::IdPattern::Any;
        if first != 0 {
            c[0].children[0].local_ts = vec![config::dynamic(17, first)];
            c[0].children[0].remote_ts = vec![config::dynamic(17, 0)];
        }
    });
    let mut third = ironswan_testkit::Node::seeded(vec![config::ip("192.0.2.3")], 99, Default::default());
    let mut conn = config::pair(config::ip("192.0.2.3"), config::ip(B))[0].clone();
    config::transport(&mut conn);
    if port != 0 {
        conn.children[0].local_ts = vec![config::dynamic(17, port)];
        conn.children[0].remote_ts = vec![config::dynamic(17, 0)];
    }
    conn.local_id = ironswan_wire::id::Identity::parse("g3.example");
    for n in [&mut third, &mut w.nodes[1]] {
        n.endpoint.load_shared(config::psk("any", "a secret of all", &[]));
    }
    let now = w.now();
    third.endpoint.load_connection(now, conn);
    w.nodes.push(third);
    w.net.nat.as_mut().unwrap().inside.push(config::ip("192.0.2.3"));
    w.establish(0).unwrap();
    let result = w.establish(2);
    (w, result)
}

#[test]
fn two_hosts_behind_one_nat_cannot_have_the_same_selectors() {
    let (mut w, result) = two_behind_one_nat(0, 0);
    assert!(result.unwrap_err().contains("TS_UNACCEPTABLE"));
    assert!(w.nodes[1].logged("hosts behind one NAT need ports of their own"));
    assert_eq!(w.nodes[1].engine.inbound.len(), 1);
    // The first one goes on, and may begin anew.
    w.rekey_child(0);
    w.run(10 * S);
    w.terminate(0, false);
    w.run(S);
    w.establish(0).unwrap();
    // Once it is gone, it is the other's turn.
    w.terminate(0, false);
    w.run(S);
    w.terminate(2, false);
    w.run(S);
    w.establish(2).unwrap();
}

#[test]
fn a_second_host_behind_one_nat_cannot_have_a_part_of_the_firsts_selectors() {
    for (first, second) in [(0, 4_001), (4_001, 0), (4_001, 4_001)] {
        let (w, result) = two_behind_one_nat(first, second);
        assert!(result.unwrap_err().contains("TS_UNACCEPTABLE"), "{first} {second}");
        let reqid = w.child(1).reqid;
        assert!(w.nodes[1].engine.inbound.values().all(|sa| sa.reqid == reqid), "{first} {second}");
    }
}

#[test]
fn two_hosts_behind_one_nat_are_told_apart_by_ports() {
    let (w, result) = two_behind_one_nat(4_000, 4_001);
    result.unwrap();
    let inbound: Vec<&SaAdd> = w.nodes[1].engine.inbound.values().collect();
    let remote = |sa: &&SaAdd| sa.options.original.map(|o| o.remote);
    let mut originals: Vec<Option<IpAddr>> = inbound.iter().map(remote).collect();
    originals.sort_unstable();
    assert_eq!(originals, [Some(config::ip(A)), Some(config::ip("192.0.2.3"))]);
    assert!(inbound.iter().all(|sa| sa.remote_ts[0].range == host(NA).range && sa.mode == Mode::Transport));
    assert_ne!(inbound[0].reqid, inbound[1].reqid);
}

#[test]
fn traffic_brings_a_transport_child_up_with_the_packets_selectors_first() {
    for (nat0, nat1) in PLACES {
        let mut w = through(69, nat0, nat1, |_| {});
        let now = w.now();
        w.nodes[0].endpoint.install_trap(now, "gw", "net");
        w.traffic = Some(50 * MS);
        w.run(2 * S);
        w.traffic = None;
        w.run(S);
        let (tsi, tsr) = selectors(&said(&w, ExchangeType::IKE_AUTH, false));
        let seen1 = if nat1 { NB } else { B };
        let icmp = |addr| TrafficSelector { protocol: 1, ..host(addr) };
        assert_eq!(tsi, [icmp(A), host(A)], "{nat0} {nat1}");
        assert_eq!(tsr, [icmp(seen1), host(seen1)]);
        assert_eq!(w.child(0).mode, Mode::Transport);
        assert_eq!((w.child(0).local_ts, w.child(0).remote_ts), (vec![host(A)], vec![host(seen1)]));
        assert_eq!(w.nodes[0].engine.policies.len(), 1, "the trap's and the child's are one");
        assert!(w.nodes.iter().all(|n| n.esp.1 == 0));
    }
}

#[test]
fn a_transport_child_follows_its_peer_to_another_address_of_a_nat() {
    for nat1 in [false, true] {
        let mut w = through(70, true, nat1, |_| {});
        w.traffic = Some(50 * MS);
        w.establish(0).unwrap();
        w.run(S);
        let reqid = w.child(1).reqid;
        // Another port: nothing but the SAs' ends changes.
        w.net.nat.as_mut().unwrap().rebind();
        w.run(S);
        assert!(w.nodes[1].logged("remote endpoint changed"));
        assert!(w.nodes.iter().all(|n| n.esp.1 == 0 && n.endpoint.protocol().counters().child_rekey == 0));
        // Another address: the next IKE message tells of it.
        let nat = w.net.nat.as_mut().unwrap();
        nat.rebind();
        nat.outside = config::ip("203.0.113.77");
        w.rekey_ike(0);
        w.run(10 * S);
        let (a, b) = (w.child(0), w.child(1));
        assert_eq!((b.local_ts, b.remote_ts), (vec![host(B)], vec![host("203.0.113.77")]));
        assert_eq!((a.mode, b.mode, b.reqid), (Mode::Transport, Mode::Transport, reqid));
        assert_eq!(inbound(&w, 0).options.original.unwrap().local, config::ip("203.0.113.77"));
        assert_eq!(inbound(&w, 1).remote_ts, [host("203.0.113.77")]);
        assert_eq!(w.nodes[1].engine.policies[0].remote, host("203.0.113.77"));
        let before = (w.nodes[0].esp, w.nodes[1].esp);
        w.run(10 * S);
        w.assert_one();
        assert!(w.nodes[0].esp.0 > before.0.0 + 190 && w.nodes[1].esp.0 > before.1.0 + 190);
        assert_eq!((w.nodes[0].esp.1, w.nodes[1].esp.1), (before.0.1, before.1.1));
        w.audit();
    }
}
