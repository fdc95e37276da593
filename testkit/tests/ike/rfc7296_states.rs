//! RFC 7296 sections 1.4.1, 2.1, 2.11, 2.25 and 3.14, mostly with a peer that is played by hand:
//! what a request is answered with while something of our own is under way, what becomes of a child
//! that is closed while it is rekeyed, who repeats what, where an answer goes, and what protects a
//! message.
//!
//! Both sides as they are, acting at once, are in `collision`; single exchanges in
//! `rfc7296_exchanges`.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use ironswan_crypto::kex;
use ironswan_testkit::{Forger, Verdict, World, config};
use ironswan_wire::iana::{ExchangeType, KeId, NotifyType, PayloadType, ProtocolId};
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::{Delete, Ke, Nonce, Notify};
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

/// What node 0 has under way, which node 1 has not heard of.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Busy {
    CreatingChild,
    RekeyingChild,
    ClosingChild,
    RekeyingIke,
    ClosingIke,
}

/// What node 1 asks for meanwhile.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Asked {
    CreateChild,
    RekeyChild,
    CloseChild,
    RekeyIke,
    CloseIke,
}

/// What node 0 answers.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Says {
    /// The payloads of an agreement.
    Yes,
    /// TEMPORARY_FAILURE alone.
    Busy,
    /// DELETE with its own SPI of the child.
    Closed,
    /// Nothing, in an answer all the same.
    Nothing,
}

fn begin(w: &mut World, busy: Busy) {
    match busy {
        Busy::CreatingChild => {
            let now = w.now();
            w.nodes[0].endpoint.initiate(now, Some("gw"), Some("more")).unwrap();
            w.run(MS);
        }
        Busy::RekeyingChild => drop(w.rekey_child(0)),
        Busy::ClosingChild => drop(w.terminate(0, true)),
        Busy::RekeyingIke => drop(w.rekey_ike(0)),
        Busy::ClosingIke => drop(w.terminate(0, false)),
    }
    w.run(20 * MS);
    assert_eq!(w.up(0)[0].tasks_active.len(), 1, "{busy:?} is under way");
}

fn request(w: &World, asked: Asked) -> (ExchangeType, Vec<Payload>) {
    let c = w.up(0)[0].children.iter().find(|c| c.name == "net").unwrap().clone();
    let esp = Proposal { spi: vec![0xc1, 1, 1, 1], ..config::esp_proposal(&[]) };
    let nonce = Payload::Nonce(Nonce(vec![1; 32]));
    let child = [
        Payload::Sa(vec![esp]),
        nonce.clone(),
        Payload::TsI(c.remote_ts.clone()),
        Payload::TsR(c.local_ts.clone()),
    ];
    match asked {
        Asked::CreateChild => (CREATE, child.to_vec()),
        Asked::RekeyChild => {
            let rekey = Notify::about(NotifyType::REKEY_SA, ProtocolId::ESP, c.spi_out.0);
            (CREATE, [vec![Payload::Notify(rekey)], child.to_vec()].concat())
        }
        Asked::CloseChild => (INFO, vec![Payload::Delete(Delete::children(ProtocolId::ESP, [c.spi_out]))]),
        Asked::RekeyIke => {
            let (_, data) = kex::generate(KeId::CURVE_25519, &[5; 32]).unwrap();
            let ike = Proposal { spi: vec![7; 8], ..config::ike_proposal(&[KeId::CURVE_25519]) };
            let ke = Payload::Ke(Ke { group: KeId::CURVE_25519, data });
            (CREATE, vec![Payload::Sa(vec![ike]), nonce, ke])
        }
        Asked::CloseIke => (INFO, vec![Payload::Delete(Delete::ike_sa())]),
    }
}

#[test]
fn what_comes_while_something_is_under_way_is_answered_by_the_table_of_section_2_25() {
    let table: [(Busy, [(Asked, Says); 5]); 5] = [
        (
            Busy::CreatingChild,
            [
                (Asked::CreateChild, Says::Yes),
                (Asked::RekeyChild, Says::Yes),
                (Asked::CloseChild, Says::Closed),
                (Asked::RekeyIke, Says::Busy),
                (Asked::CloseIke, Says::Nothing),
            ],
        ),
        (
            Busy::RekeyingChild,
            [
                (Asked::CreateChild, Says::Yes),
                (Asked::RekeyChild, Says::Yes),
                (Asked::CloseChild, Says::Closed),
                (Asked::RekeyIke, Says::Busy),
                (Asked::CloseIke, Says::Nothing),
            ],
        ),
        (
            Busy::ClosingChild,
            [
                (Asked::CreateChild, Says::Yes),
                (Asked::RekeyChild, Says::Busy),
                (Asked::CloseChild, Says::Nothing),
                (Asked::RekeyIke, Says::Busy),
                (Asked::CloseIke, Says::Nothing),
            ],
        ),
        (
            Busy::RekeyingIke,
            [
                (Asked::CreateChild, Says::Busy),
                (Asked::RekeyChild, Says::Busy),
                (Asked::CloseChild, Says::Closed),
                (Asked::RekeyIke, Says::Yes),
                (Asked::CloseIke, Says::Nothing),
            ],
        ),
        (
            Busy::ClosingIke,
            [
                (Asked::CreateChild, Says::Busy),
                (Asked::RekeyChild, Says::Busy),
                (Asked::CloseChild, Says::Closed),
                (Asked::RekeyIke, Says::Busy),
                (Asked::CloseIke, Says::Nothing),
            ],
        ),
    ];
    for (busy, row) in table {
        for (asked, says) in row {
            let mut w = World::pair(1, |c| {
                c[0].children.push(config::child("more", "10.1.9.0/24", "10.2.9.0/24"));
            });
            w.establish(0).unwrap();
            let mut f = Forger::newest(&w.nodes[0]);
            w.net.rules.push(Box::new(|s| if s.node == 0 { Verdict::Drop } else { Verdict::Pass }));
            let ours = w.child(0).spi_in;
            begin(&mut w, busy);
            let (exchange, payloads) = request(&w, asked);
            let before = w.net.log.len();
            w.inject(b(), a(), f.message(false, exchange, false, 0, &payloads));
            w.run(20 * MS);
            let mut answers = w.net.log[before..].iter().filter(|(s, _)| s.node == 0 && s.response);
            let (_, answer) = answers.find_map(|(_, p)| f.open(&p.payload)).expect("an answer");
            let got = match &answer[..] {
                [] => Says::Nothing,
                [Payload::Notify(n)] if n.kind == NotifyType::TEMPORARY_FAILURE => Says::Busy,
                [Payload::Delete(d)] if d.child_spis().eq([ours]) => Says::Closed,
                all if all.iter().any(|p| p.kind() == PayloadType::SA) => Says::Yes,
                other => panic!("{busy:?}, {asked:?}: {other:?}"),
            };
            assert_eq!(got, says, "while {busy:?}, {asked:?}");
            // "forget about its own": a closed IKE_SA is gone at once, whatever was under way.
            let gone = asked == Asked::CloseIke;
            assert_eq!(w.up(0).is_empty(), gone, "while {busy:?}, {asked:?}");
            assert!(!gone || w.nodes[0].engine.inbound.is_empty());
        }
    }
}

#[test]
fn nothing_is_begun_on_an_ike_sa_that_is_being_rekeyed() {
    for node in 0..2 {
        let mut w = World::pair(6, |_| {});
        w.establish(0).unwrap();
        let old = w.up(0)[0].spi_i;
        // The rekeying takes two seconds. Meanwhile both ends want to rekey the child.
        w.net.rules.push(Box::new(move |s| {
            if s.exchange == CREATE && s.spi_i == old && s.response {
                Verdict::Delay(2 * S)
            } else {
                Verdict::Pass
            }
        }));
        w.rekey_ike(node);
        w.run(S);
        let before = w.net.log.len();
        for n in 0..2 {
            w.rekey_child_if_any(n);
        }
        w.run(60 * S);
        w.assert_one();
        let begun = w.net.log[before..].iter().filter(|(s, _)| s.exchange == CREATE && !s.response);
        let spis: Vec<u64> = begun.map(|(s, _)| s.spi_i).collect();
        assert!(!spis.is_empty() && !spis.contains(&old), "node {node}: the child waits for the new IKE_SA");
    }
}

#[test]
fn a_child_that_is_to_be_closed_while_it_is_rekeyed_is_closed_with_its_successor() {
    for (rekeyed_by, closed_by) in [(0, 0), (1, 0), (0, 1)] {
        for gap in [0, 3, 8, 12, 17, 40] {
            let mut w = World::pair(7, |_| {});
            w.establish(0).unwrap();
            // Something is in flight, so that the command has to wait.
            w.rekey_child(rekeyed_by);
            w.run(gap * MS);
            let Ok((_, ticket)) = ({
                let now = w.now();
                let target = ironswan_keying::Target { child: Some("net".to_owned()), ..Default::default() };
                w.nodes[closed_by].endpoint.terminate(now, &target, false)
            }) else {
                panic!("there is a child")
            };
            w.run(60 * S);
            assert_eq!(w.nodes[closed_by].done[&ticket], Ok(()));
            for n in 0..2 {
                let what = format!("rekeyed by {rekeyed_by}, closed by {closed_by} after {gap} ms, node {n}");
                assert!(w.up(n)[0].children.is_empty(), "{what}: {:?}", w.up(n)[0].children);
                assert!(
                    w.nodes[n].engine.inbound.is_empty() && w.nodes[n].engine.policies.is_empty(),
                    "{what}"
                );
            }
        }
    }
}

#[test]
fn a_child_that_is_closed_before_its_maker_has_heard_of_it_is_closed_at_both_ends() {
    // Node 1 rekeys, node 0's answer is lost, and node 0 closes the child before it is asked again.
    for gap in [0, 6, 20, 3_000] {
        let mut w = World::pair(8, |_| {});
        w.establish(0).unwrap();
        let mut lost = false;
        w.net.rules.push(Box::new(move |s| {
            let first = s.exchange == CREATE && s.response && !std::mem::replace(&mut lost, true);
            if first { Verdict::Drop } else { Verdict::Pass }
        }));
        w.rekey_child(1);
        w.run(6 * MS + gap * MS);
        w.terminate(0, true);
        w.run(400 * S);
        for n in 0..2 {
            assert!(w.up(n)[0].children.is_empty(), "after {gap} ms, node {n}: {:?}", w.up(n)[0].children);
            assert!(w.nodes[n].engine.inbound.is_empty() && w.nodes[n].engine.policies.is_empty());
        }
    }
}

#[test]
fn a_child_that_the_peer_closes_while_it_is_rekeyed_is_closed_as_the_configuration_says() {
    for gap in [0, 3, 6, 12] {
        let mut w = World::pair(9, |c| {
            c[1].children[0].close_action = ironswan_keying::ChildAction::Start;
        });
        w.establish(0).unwrap();
        w.terminate(0, true);
        w.run(gap * MS);
        w.rekey_child_if_any(1);
        w.run(100 * S);
        assert!(w.fault().is_none(), "after {gap} ms: {:?}", w.fault());
    }
}

#[test]
fn a_responder_repeats_its_answer_only_when_it_is_asked_again() {
    let mut w = World::pair(2, |_| {});
    // The initiator says nothing behind its first message.
    w.net.rules.push(Box::new(|s| match (s.node, s.exchange) {
        (0, ExchangeType::IKE_SA_INIT) => Verdict::Pass,
        (0, _) => Verdict::Drop,
        _ => Verdict::Pass,
    }));
    w.initiate(0);
    w.run(28 * S);
    let sent = |w: &World| w.net.log.iter().filter(|(s, _)| s.node == 1).count();
    assert_eq!(sent(&w), 1, "once");
    let request = w.net.log[0].1.clone();
    w.inject(request.from, request.to, request.payload);
    w.run(MS);
    let answers: Vec<_> = w.net.log.iter().filter(|(s, _)| s.node == 1).map(|(_, p)| &p.payload).collect();
    assert_eq!(answers.len(), 2, "once more");
    assert_eq!(answers[0], answers[1], "the same bytes");
    assert_eq!(w.nodes[1].kex, 1, "nothing was computed again");
    // Established: the answer to the last request stays until the next one comes, and older ones
    // are not answered.
    let mut w = World::pair(3, |_| {});
    w.establish(0).unwrap();
    let mut f = Forger::newest(&w.nodes[0]);
    let requests: Vec<Vec<u8>> = (2..4).map(|mid| f.message(true, INFO, false, mid, &[])).collect();
    let mut ask = |n: usize| {
        let before = w.net.log.len();
        w.inject(a(), b(), requests[n].clone());
        w.run(200 * S);
        w.net.log[before..].iter().map(|(_, p)| p.payload.clone()).collect::<Vec<_>>()
    };
    let first = ask(0);
    assert_eq!(first.len(), 1);
    assert_eq!(ask(0), first);
    assert_eq!(ask(1).len(), 1);
    assert!(ask(0).is_empty(), "it is forgotten, and no new one is made");
}

#[test]
fn an_answer_goes_where_the_request_came_from_and_leaves_where_it_came_in() {
    let mut w = World::pair(4, |c| (c[1].local_addrs, c[1].remote_addrs) = (vec![], vec![]));
    w.nodes[1].addrs.push(config::ip("192.0.2.202"));
    w.net.rules.push(Box::new(|s| if s.node == 0 { Verdict::Drop } else { Verdict::Pass }));
    w.initiate(0);
    w.run(MS);
    let request = w.net.log[0].1.payload.clone();
    let marked = [vec![0; 4], request.clone()].concat();
    let case = |from: &str, to: &str, payload: &[u8]| {
        (from.parse::<SocketAddr>().unwrap(), to.parse::<SocketAddr>().unwrap(), payload.to_vec())
    };
    // Not from port 500 or 4500, to either port, and to an address that is not the first.
    let cases = [
        case("198.51.100.1:1", "192.0.2.2:500", &request),
        case("198.51.100.1:65535", "192.0.2.2:4500", &marked),
        case("198.51.100.2:500", "192.0.2.202:500", &request),
        case("198.51.100.2:4501", "192.0.2.202:4500", &marked),
    ];
    for (from, to, payload) in cases {
        w.inject(from, to, payload);
        w.run(MS);
        let (s, p) = w.net.log.last().unwrap();
        assert!(s.response, "{from} to {to}");
        assert_eq!((p.from, p.to), (to, from));
        assert_eq!(p.payload.starts_with(&[0; 4]), to.port() == 4500, "the non-ESP marker");
    }
}

#[test]
fn no_iv_is_used_twice_and_those_of_a_block_cipher_cannot_be_foretold() {
    for cbc in [false, true] {
        let mut w = World::pair(5, |c| {
            if cbc {
                c.iter_mut().for_each(|c| c.proposals = vec![config::ike_proposal_cbc(&[KeId::CURVE_25519])]);
            }
        });
        w.establish(0).unwrap();
        for _ in 0..20 {
            w.rekey_child(0);
            w.run(10 * S);
        }
        let len = if cbc { 16 } else { 8 };
        let ivs: Vec<(usize, Vec<u8>)> = w
            .net
            .log
            .iter()
            .filter(|(s, _)| s.exchange != ExchangeType::IKE_SA_INIT)
            .map(|(s, p)| (s.node, p.payload[32..32 + len].to_vec()))
            .collect();
        assert!(ivs.len() > 80);
        assert_eq!(ivs.iter().collect::<BTreeSet<_>>().len(), ivs.len(), "an IV twice from one end");
        if cbc {
            // Of 8 * 16 bits each differs between neighbours about every other time.
            let ours: Vec<_> = ivs.iter().filter(|(n, _)| *n == 0).map(|(_, iv)| iv).collect();
            let bits = |a: &[u8], b: &[u8]| a.iter().zip(b).map(|(a, b)| (a ^ b).count_ones()).sum::<u32>();
            assert!(ours.windows(2).all(|p| bits(p[0], p[1]) > 20), "IVs that follow from one another");
        }
    }
}
