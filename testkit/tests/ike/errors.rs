//! Errors after authentication (RFC 7296 sections 2.21.2 and 2.21.3): INVALID_SYNTAX ends the
//! IKE_SA at both ends without a DELETE, other errors do not, and what the configuration wants up
//! comes back.

use std::net::SocketAddr;
use std::time::Duration;

use ironswan_keying::{ChildAction, Connection};
use ironswan_testkit::{Forger, Verdict, World, config};
use ironswan_wire::iana::{ExchangeType, KeId, NotifyType, PayloadType, ProtocolId};
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::{Ke, Nonce, Notify};
use ironswan_wire::proposal::Proposal;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
const CREATE: ExchangeType = ExchangeType::CREATE_CHILD_SA;
const INFO: ExchangeType = ExchangeType::INFORMATIONAL;

fn a() -> SocketAddr {
    "192.0.2.1:500".parse().unwrap()
}

fn b() -> SocketAddr {
    "192.0.2.2:500".parse().unwrap()
}

fn up(seed: u64, tweak: impl FnOnce(&mut [Connection; 2])) -> (World, Forger) {
    let mut w = World::pair(seed, tweak);
    w.traffic = Some(100 * MS);
    w.establish(0).unwrap();
    let f = Forger::newest(&w.nodes[0]);
    (w, f)
}

fn notify(kind: NotifyType) -> Payload {
    Payload::Notify(Notify::new(kind, []))
}

/// What a node has sent since datagram `from`, opened, retransmissions included.
fn sent(w: &World, f: &Forger, node: usize, from: usize) -> Vec<Vec<Payload>> {
    let log = w.net.log[from..].iter().filter(|(s, _)| s.node == node);
    log.filter_map(|(_, p)| f.open(&p.payload)).map(|(_, payloads)| payloads).collect()
}

/// The requests that cannot be read: a child and an IKE_SA's rekeying, each without one of its
/// payloads or with an SPI that cannot be.
fn unreadable(w: &World) -> Vec<(String, Vec<Payload>)> {
    let c = w.child(0);
    let esp = |spi: u32| {
        Payload::Sa(vec![Proposal { spi: spi.to_be_bytes().to_vec(), ..config::esp_proposal(&[]) }])
    };
    let ike = |spi: u64| {
        Payload::Sa(vec![Proposal {
            spi: spi.to_be_bytes().to_vec(),
            ..config::ike_proposal(&[KeId::CURVE_25519])
        }])
    };
    let nonce = Payload::Nonce(Nonce(vec![1; 32]));
    let ke = |data| Payload::Ke(Ke { group: KeId::CURVE_25519, data });
    let child = [
        esp(0xc111_1111),
        nonce.clone(),
        Payload::TsI(c.local_ts.clone()),
        Payload::TsR(c.remote_ts.clone()),
    ];
    let rekey = [ike(7), nonce.clone(), ke(vec![9; 32])];
    let without = |all: &[Payload], n: usize| {
        let mut all = all.to_vec();
        all.remove(n);
        all
    };
    let mut out: Vec<(String, Vec<Payload>)> = Vec::new();
    out.extend((0..4).map(|n| (format!("a child without {n}"), without(&child, n))));
    let mut reserved = child.to_vec();
    reserved[0] = esp(255);
    out.push(("a child with a reserved SPI".to_owned(), reserved));
    out.extend((1..3).map(|n| (format!("a rekeying without {n}"), without(&rekey, n))));
    out.push(("a rekeying with SPI 0".to_owned(), vec![ike(0), nonce.clone(), ke(vec![9; 32])]));
    out.push(("a rekeying with a short value".to_owned(), vec![ike(7), nonce.clone(), ke(vec![9; 31])]));
    out.push(("a rekeying with the point 0".to_owned(), vec![ike(7), nonce, ke(vec![0; 32])]));
    out
}

#[test]
fn what_cannot_be_read_in_create_child_sa_ends_the_ike_sa_without_a_delete() {
    let cases = unreadable(&up(1, |_| {}).0).len();
    for n in 0..cases {
        let (mut w, mut f) = up(1, |_| {});
        let (what, payloads) = unreadable(&w).swap_remove(n);
        let from = w.net.log.len();
        let bytes = f.message(true, CREATE, false, 2, &payloads);
        w.inject(a(), b(), bytes.clone());
        w.run(50 * MS);
        assert!(w.nodes[1].sas(w.now()).is_empty(), "{what}: the IKE_SA stands");
        let e = &w.nodes[1].engine;
        assert_eq!((e.inbound.len(), e.outbound.len(), e.policies.len()), (0, 0, 0), "{what}");
        assert_eq!(sent(&w, &f, 1, from), [[notify(NotifyType::INVALID_SYNTAX)]], "{what}: and no DELETE");
        // The answer is still there for a peer that did not get it.
        w.inject(a(), b(), bytes);
        w.run(50 * MS);
        assert_eq!(sent(&w, &f, 1, from).len(), 2, "{what}");
    }
}

/// Node 0's next request of this exchange, which `act` brings about, is lost and answered with
/// INVALID_SYNTAX all the same.
fn cannot_be_read(w: &mut World, f: &mut Forger, exchange: ExchangeType, act: impl FnOnce(&mut World)) {
    w.net.rules.push(Box::new(move |s| match s.exchange == exchange && !s.response && s.node == 0 {
        true => Verdict::Drop,
        false => Verdict::Pass,
    }));
    let asked = |w: &World| w.net.log.iter().filter(|(s, _)| s.exchange == exchange && !s.response).count();
    let before = asked(w);
    act(w);
    assert!(w.run_until(60 * S, |w| asked(w) > before), "node 0 asks nothing");
    w.net.rules.clear();
    // Node 1 has dropped it: it sends and takes nothing on it any more.
    let conn = w.nodes[1].connection("gw");
    w.restart(1, 77, conn);
    let mid = w.net.log.last().unwrap().0.mid;
    w.inject(b(), a(), f.message(false, exchange, true, mid, &[notify(NotifyType::INVALID_SYNTAX)]));
    w.run(MS);
}

#[test]
fn an_ike_sa_whose_peer_cannot_read_a_request_is_dropped_and_comes_back_soon() {
    type Tweak = fn(&mut Connection);
    let actions: [Tweak; 3] = [
        |c| c.children[0].dpd_action = ChildAction::Start,
        |c| c.children[0].close_action = ChildAction::Start,
        |c| c.children[0].dpd_action = ChildAction::Trap,
    ];
    for (n, action) in actions.into_iter().enumerate() {
        for what in ["a child", "the IKE_SA", "a sign of life"] {
            let (mut w, mut f) = up(2, |c| {
                action(&mut c[0]);
                c[0].dpd_delay = if what == "a sign of life" { 10 * S } else { Duration::ZERO };
            });
            let from = w.net.log.len();
            let exchange = if what == "a sign of life" { INFO } else { CREATE };
            cannot_be_read(&mut w, &mut f, exchange, |w| match what {
                "a child" => drop(w.rekey_child(0)),
                "the IKE_SA" => drop(w.rekey_ike(0)),
                _ => w.traffic = None,
            });
            assert!(w.nodes[0].sas(w.now()).is_empty(), "{what}: the IKE_SA stands");
            assert!(w.nodes[0].engine.inbound.is_empty() && w.nodes[0].engine.outbound.is_empty(), "{what}");
            let said = sent(&w, &f, 0, from);
            assert!(!said.iter().flatten().any(|p| matches!(p, Payload::Delete(_))), "{what}: {said:?}");
            w.traffic = Some(100 * MS);
            let (began, lost) = (w.now(), w.nodes[1].esp.1);
            assert!(w.run_until(60 * S, |w| w.fault().is_none()), "{what}, action {n}: {:?}", w.fault());
            let took = w.now() - began;
            println!("{what}, action {n}: back after {took:?}");
            assert!(took < 30 * S, "{what}, action {n}: back after {took:?}");
            assert_eq!(w.nodes[1].esp.1, lost, "{what}, action {n}: packets to SAs that are dead");
            w.audit();
        }
    }
}

#[test]
fn invalid_syntax_in_an_informational_request_ends_the_ike_sa_and_other_errors_do_not() {
    for kind in [1, 5, 7, 9, 11, 14, 17, 24, 34, 37, 38, 43, 44].map(NotifyType) {
        let (mut w, mut f) = up(3, |_| {});
        // The first request after IKE_AUTH is another: see below.
        for mid in 2..4 {
            let payloads = if mid == 2 { vec![] } else { vec![notify(kind)] };
            w.inject(a(), b(), f.message(true, INFO, false, mid, &payloads));
            w.run(50 * MS);
        }
        let ends = [NotifyType::INVALID_SYNTAX, NotifyType::AUTHENTICATION_FAILED].contains(&kind);
        assert_eq!(w.nodes[1].sas(w.now()).is_empty(), ends, "{kind}");
        assert_eq!(w.nodes[1].engine.inbound.is_empty(), ends, "{kind}");
    }
    // "in the INFORMATIONAL exchange immediately following" IKE_AUTH: the initiator could not read
    // the response.
    for mid in 2..4 {
        let (mut w, mut f) = up(4, |_| {});
        for m in 2..=mid {
            let payloads =
                if m == mid { vec![notify(NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD)] } else { vec![] };
            w.inject(a(), b(), f.message(true, INFO, false, m, &payloads));
            w.run(50 * MS);
        }
        assert_eq!(w.nodes[1].sas(w.now()).is_empty(), mid == 2, "request {mid}");
    }
}

#[test]
fn a_response_that_cannot_be_read_ends_the_ike_sa_and_the_peer_is_told() {
    let (mut w, mut f) = up(5, |c| c[0].children[0].dpd_action = ChildAction::Start);
    w.net
        .rules
        .push(Box::new(|s| if s.exchange == CREATE && s.node == 1 { Verdict::Drop } else { Verdict::Pass }));
    w.rekey_child(0);
    w.run(50 * MS);
    let mid = w.net.log.last().unwrap().0.mid;
    let from = w.net.log.len();
    let bytes = f.raw(false, CREATE, true, mid, PayloadType::SA, &[0, 0, 0, 200, 3]);
    w.net.rules.clear();
    w.inject(b(), a(), bytes);
    w.run(50 * MS);
    assert!(w.nodes[0].sas(w.now()).is_empty() && w.nodes[1].sas(w.now()).is_empty());
    let said = sent(&w, &f, 0, from);
    assert!(matches!(&said[..], [p] if matches!(p[..], [Payload::Delete(_)])), "{said:?}");
    assert!(w.run_until(30 * S, |w| w.fault().is_none()), "{:?}", w.fault());
}

/// Holds the IKE_AUTH message of a node back, and gives what it says, to be sent otherwise.
fn held_auth(w: &mut World, node: usize) -> (Forger, Vec<Payload>) {
    w.net.rules.push(Box::new(move |s| match s.exchange == ExchangeType::IKE_AUTH && s.node == node {
        true => Verdict::Drop,
        false => Verdict::Pass,
    }));
    w.initiate(0);
    w.run(100 * MS);
    let f = Forger::newest(&w.nodes[0]);
    let (_, p) = w.net.log.iter().rfind(|(s, _)| s.node == node).unwrap();
    let (_, payloads) = f.open(&p.payload).expect("IKE_AUTH");
    w.net.rules.clear();
    (f, payloads)
}

#[test]
fn invalid_syntax_in_ike_auth_leaves_no_ike_sa() {
    // A child without a traffic selector.
    let mut w = World::pair(6, |_| {});
    let (mut f, mut payloads) = held_auth(&mut w, 0);
    payloads.retain(|p| !matches!(p, Payload::TsI(_)));
    w.inject(a(), b(), f.message(true, ExchangeType::IKE_AUTH, false, 1, &payloads));
    w.run(100 * MS);
    assert!(w.nodes[1].sas(w.now()).is_empty());
    assert_eq!(sent(&w, &f, 1, 0), [[notify(NotifyType::INVALID_SYNTAX)]]);
    w.run(400 * S);
    w.assert_empty();
    // The responder proves who it is, and says so in place of its child: it has no IKE_SA. Any
    // other error is about the child alone.
    for (kind, stays) in [
        (NotifyType::INVALID_SYNTAX, false),
        (NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD, false),
        (NotifyType::TS_UNACCEPTABLE, true),
    ] {
        let mut w = World::pair(7, |_| {});
        let (mut f, mut payloads) = held_auth(&mut w, 1);
        payloads.retain(|p| matches!(p, Payload::IdR(_) | Payload::Auth(_)));
        payloads.push(notify(kind));
        w.inject(b(), a(), f.message(false, ExchangeType::IKE_AUTH, true, 1, &payloads));
        let from = w.net.log.len();
        w.run(100 * MS);
        assert_eq!(w.up(0).len(), usize::from(stays), "{kind}");
        assert!(sent(&w, &f, 0, from).is_empty(), "{kind}: nothing is said to it");
    }
}

#[test]
fn an_ike_auth_response_that_is_of_no_use_leaves_nothing_at_the_peer() {
    // The peer has established the IKE_SA, and its answer cannot be read, proves nothing, or says
    // that something else has failed.
    for (what, keep, error, readable) in [
        ("cannot be read", true, None, false),
        ("has no AUTH", true, None, true),
        ("is empty", false, None, true),
        ("has another error alone", false, Some(NotifyType::TS_UNACCEPTABLE), true),
    ] {
        let mut w = World::pair(8, |_| {});
        let (mut f, mut payloads) = held_auth(&mut w, 1);
        payloads.retain(|p| keep && !matches!(p, Payload::Auth(_)));
        payloads.extend(error.map(notify));
        let bytes = match readable {
            true => f.message(false, ExchangeType::IKE_AUTH, true, 1, &payloads),
            false => f.raw(false, ExchangeType::IKE_AUTH, true, 1, PayloadType::SA, &[0, 0, 0, 200, 3]),
        };
        assert_eq!(w.up(1).len(), 1);
        let from = w.net.log.len();
        w.inject(b(), a(), bytes);
        w.run(50 * MS);
        let said = sent(&w, &f, 0, from);
        println!("an IKE_AUTH response that {what}: {said:?}");
        assert!(matches!(&said[..], [p] if matches!(p[..], [Payload::Delete(_)])), "{what}: {said:?}");
        assert!(w.nodes[0].sas(w.now()).is_empty() && w.up(1).is_empty(), "{what}");
    }
}

#[test]
fn a_peer_that_can_never_read_what_it_needs_is_not_asked_without_end() {
    let mut w = World::pair(8, |c| {
        for (i, c) in c.iter_mut().enumerate() {
            let nets = [("10.3.0.0/24", "10.4.0.0/24"), ("10.4.0.0/24", "10.3.0.0/24")][i];
            c.children.push(config::child("second", nets.0, nets.1));
            for child in &mut c.children {
                child.close_action = if i == 0 { ChildAction::Start } else { ChildAction::None };
                child.start_action = child.close_action;
            }
        }
    });
    w.net
        .rules
        .push(Box::new(|s| if s.exchange == CREATE && s.node == 0 { Verdict::Drop } else { Verdict::Pass }));
    let (end, mut seen) = (w.now() + 60 * S, 0);
    while w.now() < end {
        w.run(20 * MS);
        if w.net.log.len() > seen
            && let Some((s, _)) = w.net.log[seen..].iter().rfind(|(s, _)| s.exchange == CREATE)
        {
            let (spi, mid) = (s.spi_i, s.mid);
            let mut f = Forger::of(&w.nodes[0], Some(spi));
            w.inject(b(), a(), f.message(false, CREATE, true, mid, &[notify(NotifyType::INVALID_SYNTAX)]));
        }
        seen = w.net.log.len();
    }
    let made = w.nodes[0].count_logged("established between");
    assert!((5..=30).contains(&made), "{made} IKE_SAs in 60 s");
    let delete = |p: &Payload| matches!(p, Payload::Delete(d) if d.protocol == ProtocolId::IKE);
    let f = Forger::newest(&w.nodes[0]);
    assert!(!sent(&w, &f, 0, 0).iter().flatten().any(delete));
}
