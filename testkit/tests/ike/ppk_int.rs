//! Post-quantum preshared keys in IKE_INTERMEDIATE (RFC 9867): both roles, required or optional,
//! known, unknown or wrong, beside additional key exchanges and alone; each message lost and
//! doubled; and peers that do what they may not.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::Duration;

use ironswan_ike::event::KeyLog;
use ironswan_keying::{Connection, Ppk};
use ironswan_testkit::{Forger, Verdict, World, config};
use ironswan_wire::iana::{ExchangeType, KeId, NotifyType};
use ironswan_wire::id::Identity;
use ironswan_wire::ike::payload::{Nonce, Notify, find_notify};
use ironswan_wire::ike::{Message, Payload};
use ironswan_wire::proposal::Proposal;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
/// Longer than any exchange retransmits and any retry waits.
const REST: Duration = Duration::from_secs(1_000);
const ID: &str = "office.ppk";

/// Additional key exchanges of a proposal.
type Add<'a> = &'a [(u8, KeId)];

/// Two gateways with these PPKs, by number and identifier, of which each may require one.
fn world(
    seed: u64,
    keys: [Option<(&str, u8)>; 2],
    required: [bool; 2],
    add: Add<'_>,
    tweak: impl FnOnce(&mut [Connection; 2]),
) -> World {
    let mut w = World::pair(seed, |c| {
        for (n, c) in c.iter_mut().enumerate() {
            c.ppk_id = keys[n].and_then(|(id, _)| Identity::parse(id));
            c.ppk_required = required[n];
            c.proposals = vec![config::ike_proposal_with(&[KeId::CURVE_25519], add)];
        }
        tweak(c);
    });
    for (node, key) in w.nodes.iter_mut().zip(keys) {
        let key: Option<Ppk> = key.map(|(id, byte)| config::ppk(id, byte));
        key.into_iter().for_each(|key| node.endpoint.load_ppk(key));
    }
    w
}

fn same(seed: u64, add: Add<'_>) -> World {
    world(seed, [Some((ID, 1)); 2], [false; 2], add, |_| {})
}

fn ppks(w: &World) -> [bool; 2] {
    [w.up(0)[0].ppk, w.up(1)[0].ppk]
}

fn rows(w: &World, node: usize) -> Vec<KeyLog> {
    w.nodes[node].keys.iter().filter(|k| matches!(k, KeyLog::Ike { .. })).cloned().collect()
}

/// Number of requests of node 0 in this exchange, which may be in fragments.
fn requests(w: &World, exchange: ExchangeType) -> usize {
    let all = w.net.log.iter().filter(|(s, _)| s.node == 0 && s.exchange == exchange && !s.response);
    all.map(|(s, _)| s.mid).collect::<BTreeSet<_>>().len()
}

/// Payloads of the first IKE_SA_INIT message of a node.
fn init_message(w: &World, node: usize) -> Vec<Payload> {
    let (_, packet) = w.net.log.iter().find(|(s, _)| s.node == node).unwrap();
    Message::parse(&packet.payload).unwrap().payloads
}

const MLKEM: (u8, KeId) = (1, KeId::ML_KEM_768);
const P256: (u8, KeId) = (2, KeId::ECP_256);

#[test]
fn each_pair_of_sides_agrees_or_is_refused() {
    let (one, wrong, other) = (Some((ID, 1)), Some((ID, 2)), Some(("other.ppk", 3)));
    let no = [false, false];
    for add in [&[][..], &[MLKEM], &[MLKEM, P256]] {
        for (keys, required, up) in [
            ([one, one], no, Some(true)),
            ([one, one], [true, false], Some(true)),
            ([one, one], [false, true], Some(true)),
            ([one, one], [true, true], Some(true)),
            // Its confirmation tells a wrong PPK from a wrong proof.
            ([one, wrong], no, Some(false)),
            ([one, wrong], [true, false], None),
            ([one, wrong], [false, true], None),
            ([one, other], no, Some(false)),
            ([one, other], [true, false], None),
            ([one, other], [false, true], None),
            ([one, None], no, Some(false)),
            ([one, None], [true, false], None),
            ([None, one], no, Some(false)),
            ([None, one], [false, true], None),
        ] {
            let mut w = world(1, keys, required, add, |_| {});
            let result = w.establish(0);
            assert_eq!(result.is_ok(), up.is_some(), "{keys:?} {required:?} {add:?}: {result:?}");
            let Some(up) = up else {
                w.run(REST);
                w.assert_empty();
                continue;
            };
            w.assert_one();
            assert_eq!(ppks(&w), [up; 2], "{keys:?} {required:?} {add:?}");
            assert_eq!(rows(&w, 0), rows(&w, 1));
            // No message more than the additional key exchanges need, but where there are none.
            let alone = keys.iter().all(Option::is_some) && add.is_empty();
            let exchanges = add.len() + usize::from(alone);
            assert_eq!(requests(&w, ExchangeType::IKE_INTERMEDIATE), exchanges, "{keys:?} {add:?}");
            w.traffic = Some(100 * MS);
            w.run(5 * S);
            w.nodes.iter().for_each(|n| assert!(n.esp.0 > 10 && n.esp.1 == 0));
        }
    }
}

#[test]
fn the_way_that_protects_more_is_chosen_where_both_have_it() {
    let has = |payloads: &[Payload], kind| find_notify(payloads, kind).is_some();
    for (ours, theirs) in [(true, true), (true, false), (false, true), (false, false)] {
        let mut w = world(2, [Some((ID, 1)); 2], [true; 2], &[], |c| {
            (c[0].ppk_intermediate, c[1].ppk_intermediate) = (ours, theirs);
        });
        w.establish(0).unwrap();
        assert_eq!(ppks(&w), [true; 2]);
        let (request, response) = (init_message(&w, 0), init_message(&w, 1));
        assert!(has(&request, NotifyType::USE_PPK), "for a responder that knows RFC 8784 alone");
        assert_eq!(has(&request, NotifyType::USE_PPK_INT), ours);
        assert_eq!(has(&request, NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED), ours);
        let both = ours && theirs;
        assert_eq!(has(&response, NotifyType::USE_PPK_INT), both);
        assert_eq!(has(&response, NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED), both);
        assert_eq!(has(&response, NotifyType::USE_PPK), !both, "one way is chosen");
        assert_eq!(requests(&w, ExchangeType::IKE_INTERMEDIATE), usize::from(both));
        // IKE_AUTH is under keys with the PPK where the way is IKE_INTERMEDIATE.
        let (_, auth) = w.net.log.iter().find(|(s, _)| s.exchange == ExchangeType::IKE_AUTH).unwrap();
        let first = Forger::with(&rows(&w, 0)[0]).unwrap();
        assert_eq!(first.open(&auth.payload).is_none(), both);
    }
}

#[test]
fn a_connection_of_the_responder_judges_when_the_peer_is_known() {
    // The responder's connection requires another PPK than the one that both have and have used.
    let mut w = world(3, [Some((ID, 1)), Some((ID, 1))], [false, true], &[], |c| {
        c[1].ppk_id = Identity::parse("other.ppk");
    });
    assert!(w.establish(0).is_err());
    assert!(w.nodes[1].logged("the peer has another PPK: it names 'office.ppk', here ppk_id = other.ppk"));
    w.assert_empty();
}

#[test]
fn rekeyings_keep_the_ppk() {
    for from in 0..2 {
        let mut w = same(4, &[MLKEM]);
        w.establish(from).unwrap();
        w.traffic = Some(100 * MS);
        w.rekey_child(1 - from);
        w.run(20 * S);
        w.rekey_ike(from);
        w.run(20 * S);
        w.assert_one();
        assert_eq!(ppks(&w), [true; 2]);
        assert_eq!(rows(&w, 0), rows(&w, 1));
        w.nodes.iter().for_each(|n| assert_eq!(n.esp.1, 0));
        w.audit();
    }
}

#[test]
fn each_message_may_be_lost_doubled_or_late() {
    for add in [&[][..], &[MLKEM, P256]] {
        let whole = {
            let mut w = same(5, add);
            w.establish(0).unwrap();
            w.net.count
        };
        for verdict in [Verdict::Drop, Verdict::Delay(7 * S)] {
            for index in 0..whole {
                let mut w = same(5, add);
                w.net.rules.push(Box::new(move |s| if s.index == index { verdict } else { Verdict::Pass }));
                let _ = w.establish(0);
                w.run(REST);
                w.assert_one();
                assert_eq!(ppks(&w), [true; 2], "message {index}");
                assert_eq!(w.nodes[1].endpoint.protocol().counters().auth_failed, 0, "message {index}");
            }
        }
        for seed in 0..10 {
            let mut w = same(seed, add);
            w.net.duplicate = 1_000;
            let _ = w.establish(0);
            w.run(REST);
            w.assert_one();
            assert_eq!(ppks(&w), [true; 2], "seed {seed}");
        }
    }
}

#[test]
fn a_key_that_goes_away_meanwhile_is_not_used() {
    for (node, required, up) in
        [(0, false, Some(false)), (0, true, None), (1, false, Some(false)), (1, true, None)]
    {
        let mut w = world(6, [Some((ID, 1)); 2], [required, false], &[], |_| {});
        w.nodes.iter_mut().for_each(|n| n.work = S);
        w.initiate(0);
        w.run_until(10 * S, |w| w.net.log.iter().any(|(s, _)| s.node == 1));
        w.nodes[node].endpoint.unload_shared("ppk-office.ppk");
        w.run(REST);
        match up {
            Some(up) => {
                w.assert_one();
                assert_eq!(ppks(&w), [up; 2]);
            }
            None => w.assert_empty(),
        }
    }
}

fn a() -> SocketAddr {
    "192.0.2.1:500".parse().unwrap()
}

fn b() -> SocketAddr {
    "192.0.2.2:500".parse().unwrap()
}

/// Node 0 has sent IKE_INTERMEDIATE, which was lost: the payloads of that request, and a forger.
fn asked(w: &mut World) -> (Vec<Payload>, Forger) {
    w.net.rules.push(Box::new(|s| match s.node == 0 && s.exchange == ExchangeType::IKE_INTERMEDIATE {
        true => Verdict::Drop,
        false => Verdict::Pass,
    }));
    w.initiate(0);
    w.run(100 * MS);
    let (_, packet) = w.net.log.iter().find(|(s, _)| s.exchange == ExchangeType::IKE_INTERMEDIATE).unwrap();
    let f = Forger::newest(&w.nodes[0]);
    (f.open(&packet.payload).unwrap().1, f)
}

#[test]
fn strange_offers_are_passed_over() {
    let key = |data: &[u8]| Payload::Notify(Notify::new(NotifyType::PPK_IDENTITY_KEY, data.to_vec()));
    let good = {
        let mut w = same(7, &[]);
        let (payloads, _) = asked(&mut w);
        find_notify(&payloads, NotifyType::PPK_IDENTITY_KEY).unwrap().data.clone()
    };
    let with = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut data = good.clone();
        change(&mut data);
        data
    };
    let last = good.len() - 1;
    let strange = with(&|d| d[last] ^= 1);
    for (offers, selected) in [
        (vec![good.clone()], true),
        // An opaque identifier of the same bytes names the same PPK.
        (vec![with(&|d| d[0] = 1)], true),
        (vec![with(&|d| d[0] = 0)], false),
        (vec![with(&|d| d[0] = 200)], false),
        (vec![strange.clone()], false),
        (vec![with(&|d| d.truncate(last))], false),
        (vec![with(&|d| d.push(0))], false),
        (vec![with(&|d| d.truncate(8))], false),
        (vec![Vec::new()], false),
        (vec![], false),
        // One of several; of very many none but the first few.
        (vec![strange.clone(), good.clone()], true),
        ([vec![strange.clone(); 100], vec![good.clone()]].concat(), false),
    ] {
        let mut w = same(7, &[]);
        let (_, mut f) = asked(&mut w);
        let payloads: Vec<Payload> = offers.iter().map(|data| key(data)).collect();
        let bytes = f.message(true, ExchangeType::IKE_INTERMEDIATE, false, 1, &payloads);
        w.inject(a(), b(), bytes);
        w.run(100 * MS);
        let (_, packet) = w
            .net
            .log
            .iter()
            .find(|(s, _)| s.node == 1 && s.exchange == ExchangeType::IKE_INTERMEDIATE)
            .expect("a response");
        let (_, payloads) = f.open(&packet.payload).unwrap();
        let named = find_notify(&payloads, NotifyType::PPK_IDENTITY).map(|n| n.data.clone());
        assert_eq!(named, selected.then(|| b"\x02office.ppk".to_vec()), "{} offers", offers.len());
        assert_eq!(rows(&w, 1).len(), 1 + usize::from(selected));
    }
}

#[test]
fn a_response_that_names_what_was_not_offered_ends_the_attempt() {
    for data in [&b"\x02other.ppk"[..], b"", b"\x02", b"\x00office.ppk", b"\xff\x00\n"] {
        let mut w = same(8, &[]);
        let (_, mut f) = asked(&mut w);
        let identity = Payload::Notify(Notify::new(NotifyType::PPK_IDENTITY, data.to_vec()));
        let bytes = f.message(false, ExchangeType::IKE_INTERMEDIATE, true, 1, &[identity]);
        w.inject(b(), a(), bytes);
        w.run(REST);
        assert!(w.nodes[0].logged("the peer requires a PPK that is not here"), "{data:?}");
        w.assert_empty();
    }
}

#[test]
fn a_peer_that_refuses_our_ppk_at_once_ends_the_attempt() {
    let mut w = same(9, &[]);
    let (_, mut f) = asked(&mut w);
    let refusal = Payload::Notify(Notify::new(NotifyType::AUTHENTICATION_FAILED, []));
    let bytes = f.message(false, ExchangeType::IKE_INTERMEDIATE, true, 1, &[refusal]);
    w.inject(b(), a(), bytes);
    w.run(REST);
    assert!(w.nodes[0].logged("the peer requires a PPK, and does not have ours"));
    w.assert_empty();
}

#[test]
fn each_side_says_why_there_is_no_common_ppk() {
    let (one, wrong, other) = (Some((ID, 1)), Some((ID, 2)), Some(("other.ppk", 3)));
    let no = [false; 2];
    let optional = "neither side requires it";
    for (keys, required, node, words) in [
        ([one, wrong], no, 0, ["does not have it or has another secret for it", optional]),
        ([one, wrong], no, 1, ["the peer has another secret for it", optional]),
        ([one, other], no, 1, ["PPK 'office.ppk', which one side does not have", "neither requires"]),
        ([one, wrong], [true, false], 0, ["ppk_required = yes", "or has another secret for it"]),
        ([one, wrong], [false, true], 1, ["ppk_required = yes", "another secret for PPK 'office.ppk'"]),
        ([one, other], [false, true], 1, ["it names 'office.ppk'", "here ppk_id = other.ppk"]),
        ([None, one], [false, true], 1, ["ppk_required = yes", "not both announced PPKs"]),
        ([one, None], [true, false], 0, ["ppk_required = yes", "not both announced PPKs"]),
    ] {
        let mut w = world(10, keys, required, &[], |_| {});
        let _ = w.establish(0);
        w.run(60 * S);
        for words in words {
            assert!(w.nodes[node].logged(words), "{keys:?} {required:?}, node {node}: {words}");
        }
    }
}

/// Node that sends this IKE_SA_INIT message, when node 0 initiates. `None`: another message.
fn init_of(bytes: &[u8]) -> Option<usize> {
    let message = Message::parse(bytes).ok()?;
    let is_init = message.header.exchange == ExchangeType::IKE_SA_INIT;
    is_init.then(|| usize::from(message.header.flags.response()))
}

#[test]
fn announcements_that_somebody_takes_away_do_not_lead_to_less() {
    let all = [NotifyType::USE_PPK, NotifyType::USE_PPK_INT, NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED];
    for required in [false, true] {
        for node in 0..2 {
            for taken in [&all[..], &all[1..], &all[1..2], &all[2..]] {
                let mut w = world(11, [Some((ID, 1)); 2], [required; 2], &[], |_| {});
                let taken_away = taken.to_vec();
                w.net.tamper = Some(Box::new(move |bytes| {
                    if init_of(bytes) == Some(node) {
                        let mut m = Message::parse(bytes).unwrap();
                        m.payloads
                            .retain(|p| !matches!(p, Payload::Notify(n) if taken_away.contains(&n.kind)));
                        *bytes = m.emit().unwrap();
                    }
                }));
                assert!(w.establish(0).is_err(), "{required} {node} {taken:?}");
                w.run(REST);
                w.assert_empty();
                w.nodes.iter().for_each(|n| assert!(!n.logged("] established between"), "{taken:?}"));
            }
        }
    }
}

#[test]
fn who_has_broken_the_key_exchange_cannot_take_the_offer_out() {
    // An attacker in the middle that knows the keys of IKE_SA_INIT answers each side for the other:
    // the initiator that the PPK is not here, the responder that there is no PPK. AUTH is left.
    let mut w = same(12, &[]);
    let (_, mut f) = asked(&mut w);
    let bytes = f.message(true, ExchangeType::IKE_INTERMEDIATE, false, 1, &[]);
    w.inject(a(), b(), bytes);
    w.run(100 * MS);
    let bytes = f.message(false, ExchangeType::IKE_INTERMEDIATE, true, 1, &[]);
    w.inject(b(), a(), bytes);
    w.run(REST);
    assert!(w.nodes[1].endpoint.protocol().counters().auth_failed >= 1, "IntAuth differs");
    w.nodes.iter().for_each(|n| assert!(!n.logged("established between")));
    w.assert_empty();
}

#[test]
fn offers_in_create_child_sa_are_passed_over() {
    let mut w = same(13, &[]);
    w.establish(0).unwrap();
    let mut f = Forger::newest(&w.nodes[0]);
    let mid = w.net.log.iter().map(|(s, _)| s.mid).max().unwrap() + 1;
    let child = w.child(0);
    let payloads = vec![
        Payload::Sa(vec![Proposal { spi: vec![0xc1, 1, 1, 1], ..config::esp_proposal(&[]) }]),
        Payload::Nonce(Nonce(vec![1; 32])),
        Payload::TsI(child.local_ts),
        Payload::TsR(child.remote_ts),
        Payload::Notify(Notify::new(NotifyType::PPK_IDENTITY_KEY, b"\x02office.ppk12345678".to_vec())),
    ];
    w.inject(a(), b(), f.message(true, ExchangeType::CREATE_CHILD_SA, false, mid, &payloads));
    w.run(100 * MS);
    let (_, packet) =
        w.net.log.iter().find(|(s, _)| s.exchange == ExchangeType::CREATE_CHILD_SA && s.response).unwrap();
    let (_, answer) = f.open(&packet.payload).unwrap();
    assert!(answer.iter().any(|p| matches!(p, Payload::Sa(_))), "the CHILD_SA is made");
    assert!(find_notify(&answer, NotifyType::PPK_IDENTITY).is_none(), "and no PPK is mixed in");
}

#[test]
fn rekeyings_at_once_of_both_sides_leave_one_of_each() {
    for seed in 0..8 {
        let mut w = same(20 + seed, &[MLKEM]);
        w.establish(0).unwrap();
        w.traffic = Some(100 * MS);
        for what in [0, 1] {
            for node in 0..2 {
                if what == 0 {
                    w.rekey_child(node);
                } else {
                    w.rekey_ike(node);
                }
                w.run(Duration::from_millis(7 * seed));
            }
            w.run(120 * S);
            w.assert_one();
        }
        assert_eq!(ppks(&w), [true; 2]);
        w.nodes.iter().for_each(|n| assert_eq!(n.esp.1, 0));
        w.audit();
    }
}
