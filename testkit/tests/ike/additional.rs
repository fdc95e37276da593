//! Additional key exchanges (RFC 9370) in IKE_INTERMEDIATE (RFC 9242): each message lost, doubled,
//! late, in both roles; and peers that do what they may not.

use std::net::SocketAddr;
use std::time::Duration;

use ironswan_ike::event::KeyLog;
use ironswan_keying::Limits;
use ironswan_testkit::{Forger, Verdict, World, config};
use ironswan_wire::iana::{ExchangeType, KeId, NotifyType, TransformType};
use ironswan_wire::ike::payload::{Ke, find_notify};
use ironswan_wire::ike::{Message, Payload};
use ironswan_wire::proposal::{Proposal, Transform};

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
/// Longer than any exchange retransmits and any retry waits.
const REST: Duration = Duration::from_secs(1_000);
const X25519: KeId = KeId::CURVE_25519;
const MLKEM: KeId = KeId::ML_KEM_768;

fn a() -> SocketAddr {
    "192.0.2.1:500".parse().unwrap()
}

fn b() -> SocketAddr {
    "192.0.2.2:500".parse().unwrap()
}

fn proposals(list: &[&[(u8, KeId)]]) -> Vec<Proposal> {
    let numbered = (1..).zip(list);
    numbered.map(|(number, add)| Proposal { number, ..config::ike_proposal_with(&[X25519], add) }).collect()
}

fn world(seed: u64, ours: &[&[(u8, KeId)]], theirs: &[&[(u8, KeId)]]) -> World {
    World::pair(seed, |c| {
        c[0].proposals = proposals(ours);
        c[1].proposals = proposals(theirs);
    })
}

fn suite(w: &World) -> String {
    assert_eq!(w.up(0)[0].suite, w.up(1)[0].suite);
    w.up(0)[0].suite.unwrap().to_string()
}

/// Exchanges of this type that node 0 has begun.
fn requests(w: &World, exchange: ExchangeType) -> usize {
    let of = |(s, _): &&(ironswan_testkit::Seen, ironswan_testkit::Packet)| {
        s.node == 0 && s.exchange == exchange && !s.response
    };
    let mids: std::collections::BTreeSet<u32> = w.net.log.iter().filter(of).map(|(s, _)| s.mid).collect();
    mids.len()
}

#[test]
fn ml_kem_takes_place_beside_x25519() {
    for ke in [KeId::ML_KEM_512, MLKEM, KeId::ML_KEM_1024] {
        let mut w = world(1, &[&[(1, ke)]], &[&[(1, ke)]]);
        w.establish(0).unwrap();
        w.assert_one();
        assert_eq!(suite(&w), format!("IKE:AES_GCM_16_128/PRF_HMAC_SHA2_256/CURVE_25519/KE1_{ke}"));
        assert_eq!(requests(&w, ExchangeType::IKE_INTERMEDIATE), 1);
        // Each side has had the keys of both exchanges, and the same ones.
        let keys = |n: usize| -> Vec<KeyLog> {
            w.nodes[n].keys.iter().filter(|k| matches!(k, KeyLog::Ike { .. })).cloned().collect()
        };
        assert_eq!(keys(0).len(), 2);
        assert_eq!(keys(0), keys(1));
        assert_ne!(keys(0)[0], keys(0)[1]);
    }
}

#[test]
fn seven_exchanges_take_place_in_the_order_of_their_numbers() {
    let all = [
        (7, KeId::ECP_256),
        (2, KeId::ML_KEM_1024),
        (1, MLKEM),
        (4, KeId::MODP_2048),
        (3, KeId::ML_KEM_512),
        (6, KeId::ECP_384),
        (5, KeId::ECP_521),
    ];
    let mut w = world(2, &[&all], &[&all]);
    w.establish(1).unwrap();
    w.assert_one();
    assert!(
        suite(&w).ends_with(
            "KE1_ML_KEM_768/KE2_ML_KEM_1024/KE3_ML_KEM_512/KE4_MODP_2048/KE5_ECP_521/KE6_ECP_384/KE7_ECP_256"
        ),
        "{}",
        suite(&w)
    );
}

#[test]
fn what_is_optional_takes_place_where_both_have_it_and_no_method_twice() {
    let none = KeId::NONE;
    let optional: &[(u8, KeId)] = &[(1, MLKEM), (1, none)];
    let either: &[(u8, KeId)] = &[(1, MLKEM), (1, KeId::ML_KEM_512), (2, MLKEM)];
    for (ours, theirs, agreed) in [
        (&[optional][..], &[optional][..], Some("KE1_ML_KEM_768")),
        (&[optional], &[&[]], Some("")),
        (&[&[]], &[optional], Some("")),
        (&[&[(1, MLKEM)]], &[&[]], None),
        (&[&[]], &[&[(1, MLKEM)]], None),
        (&[&[(1, MLKEM)], &[]], &[&[]], Some("")),
        (&[&[(2, MLKEM)]], &[&[(1, MLKEM)]], None),
        // X25519 is the first exchange already, and one method does not serve two numbers.
        (&[&[(1, X25519), (1, MLKEM)]], &[&[(1, X25519), (1, MLKEM)]], Some("KE1_ML_KEM_768")),
        (&[&[(1, X25519)]], &[&[(1, X25519)]], None),
        (&[&[(1, MLKEM), (3, MLKEM)]], &[&[(1, MLKEM), (3, MLKEM)]], None),
        // Whoever takes the first one of each number finds nothing for the last number.
        (&[either], &[either], Some("KE1_ML_KEM_512/KE2_ML_KEM_768")),
        (
            &[&[(1, MLKEM), (1, none), (3, MLKEM)]],
            &[&[(1, MLKEM), (1, none), (3, MLKEM)]],
            Some("KE3_ML_KEM_768"),
        ),
    ] {
        let mut w = world(3, ours, theirs);
        let result = w.establish(0);
        match agreed {
            Some(agreed) => {
                result.unwrap();
                w.assert_one();
                let whole = suite(&w);
                assert_eq!(whole.split_once("CURVE_25519").unwrap().1.trim_start_matches('/'), agreed);
            }
            None => {
                assert!(result.is_err(), "{ours:?} {theirs:?}");
            }
        }
    }
}

#[test]
fn the_exchange_is_announced_by_who_proposes_it_and_by_who_takes_it() {
    let announced = |w: &World, node: usize| {
        let (_, p) = w.net.log.iter().find(|(s, _)| s.node == node).unwrap();
        let message = Message::parse(&p.payload).unwrap();
        find_notify(&message.payloads, NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED).is_some()
    };
    let with: &[&[(u8, KeId)]] = &[&[(1, MLKEM)], &[]];
    let none: &[&[(u8, KeId)]] = &[&[(1, KeId::NONE)]];
    for (ours, theirs, expected) in [
        (with, with, [true, true]),
        (with, &[&[]], [true, false]),
        (&[&[]], with, [false, false]),
        // A transform of this kind is what has to be announced, whatever it says.
        (none, &[&[]], [true, true]),
    ] {
        let mut w = world(4, ours, theirs);
        w.establish(0).unwrap();
        assert_eq!([announced(&w, 0), announced(&w, 1)], expected);
    }
}

/// Node 1's answer to node 0's IKE_SA_INIT request with another INTERMEDIATE_EXCHANGE_SUPPORTED, or
/// without it.
fn answer_to(
    ours: &[&[(u8, KeId)]],
    theirs: &[&[(u8, KeId)]],
    announced: Option<&[u8]>,
) -> (World, Vec<Payload>) {
    let mut w = world(11, ours, theirs);
    w.net.rules.push(Box::new(|s| if s.node == 0 { Verdict::Drop } else { Verdict::Pass }));
    w.initiate(0);
    w.run(100 * MS);
    let mut message = Message::parse(&w.net.log[0].1.payload).unwrap();
    let kind = NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED;
    message.payloads.retain(|p| !matches!(p, Payload::Notify(n) if n.kind == kind));
    let other = announced.map(|data| Payload::Notify(ironswan_wire::ike::payload::Notify::new(kind, data)));
    message.payloads.extend(other);
    w.inject(a(), b(), message.emit().unwrap());
    w.run(100 * MS);
    let (_, p) = w.net.log.iter().find(|(s, _)| s.node == 1).expect("an answer");
    let payloads = Message::parse(&p.payload).unwrap().payloads;
    (w, payloads)
}

fn answered(payloads: &[Payload]) -> Option<&Proposal> {
    payloads.iter().find_map(|p| if let Payload::Sa(list) = p { list.first() } else { None })
}

#[test]
fn without_ike_intermediate_proposals_with_additional_key_exchanges_are_passed_over() {
    let with: &[(u8, KeId)] = &[(1, MLKEM)];
    let (_, answer) = answer_to(&[with, &[]], &[with, &[]], None);
    assert_eq!(answered(&answer).map(|p| p.number), Some(2), "{answer:?}");
    assert!(find_notify(&answer, NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED).is_none());
    // Transforms that say NONE are of an unknown type then, too.
    for list in [with, &[(1, MLKEM), (1, KeId::NONE)], &[(1, KeId::NONE)]] {
        let (w, answer) = answer_to(&[list], &[with, list, &[]], None);
        assert!(find_notify(&answer, NotifyType::NO_PROPOSAL_CHOSEN).is_some(), "{answer:?}");
        assert!(w.nodes[1].logged("lacks one of INTERMEDIATE_EXCHANGE_SUPPORTED"));
    }
}

#[test]
fn data_in_the_announcement_is_ignored() {
    let with: &[(u8, KeId)] = &[(1, MLKEM)];
    let (_, answer) = answer_to(&[with, &[]], &[with, &[]], Some(b"of a later document"));
    assert_eq!(answered(&answer).map(|p| p.number), Some(1), "{answer:?}");
}

#[test]
fn none_that_was_offered_in_words_is_answered_in_words() {
    let none = Transform::AddKe(1, KeId::NONE);
    let optional: &[(u8, KeId)] = &[(1, MLKEM), (1, KeId::NONE)];
    let (_, answer) = answer_to(&[optional], &[&[]], Some(b""));
    assert!(answered(&answer).unwrap().transforms.contains(&none), "{answer:?}");
    assert!(find_notify(&answer, NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED).is_some());
    // A responder that leaves it out means the same.
    let (_, answer) = answer_to(&[&[]], &[optional], None);
    assert!(!answered(&answer).unwrap().transforms.contains(&none), "{answer:?}");
}

#[test]
fn ike_intermediate_in_clear_or_with_another_message_id_than_the_next_is_passed_over() {
    let (mut w, mut f) = before(12, &[&[(1, MLKEM)]]);
    let own = w.net.log.iter().find(|(s, _)| s.exchange == ExchangeType::IKE_INTERMEDIATE);
    let header = Message::parse(&own.expect("a request").1.payload).unwrap().header;
    let mut messages = vec![Message { header, payloads: vec![public(MLKEM)] }.emit().unwrap()];
    messages.extend(
        [0, 2, 3].map(|mid| f.message(true, ExchangeType::IKE_INTERMEDIATE, false, mid, &[public(MLKEM)])),
    );
    for (n, bytes) in messages.into_iter().enumerate() {
        let before = w.net.log.len();
        w.inject(a(), b(), bytes);
        w.run(100 * MS);
        assert!(!w.net.log[before..].iter().any(|(s, _)| s.node == 1), "{n}");
    }
    w.net.rules.clear();
    w.run(30 * S);
    w.assert_one();
}

#[test]
fn through_a_nat_ike_intermediate_goes_from_and_to_port_4500() {
    let mut w = World::pair(13, |c| {
        c.iter_mut().for_each(|c| c.proposals = proposals(&[&[(1, MLKEM)]]));
        c[1].remote_addrs = vec![ironswan_keying::AddrSpec::Any];
    });
    w.net.nat = Some(ironswan_testkit::net::Nat::new(a().ip(), config::ip("203.0.113.1")));
    w.establish(0).unwrap();
    let of = |s: &&(ironswan_testkit::Seen, ironswan_testkit::Packet)| {
        s.0.exchange == ExchangeType::IKE_INTERMEDIATE && s.0.node == 0
    };
    let sent: Vec<_> = w.net.log.iter().filter(of).map(|(_, p)| (p.from.port(), p.to.port())).collect();
    assert!(!sent.is_empty() && sent.iter().all(|ports| *ports == (4500, 4500)), "{sent:?}");
    assert!(suite(&w).ends_with("KE1_ML_KEM_768"));
}

#[test]
fn every_message_may_be_lost_or_come_late_once() {
    let add: &[&[(u8, KeId)]] = &[&[(1, MLKEM), (2, KeId::ECP_256)]];
    for initiator in 0..2 {
        let mut w = world(5, add, add);
        w.establish(initiator).unwrap();
        let total = w.net.count;
        assert!(total >= 9, "{total}");
        for k in 0..total {
            for late in [None, Some(20 * MS), Some(6 * S)] {
                let mut w = world(5, add, add);
                w.net.rules.push(Box::new(move |s| match late {
                    _ if s.index != k => Verdict::Pass,
                    Some(late) => Verdict::Delay(late),
                    None => Verdict::Drop,
                }));
                w.establish(initiator).unwrap();
                w.run(REST);
                w.assert_one();
                assert_eq!(w.net.lost, usize::from(late.is_none()));
            }
        }
    }
}

#[test]
fn doubled_reordered_and_lost_messages_in_tiny_fragments_leave_one_sa() {
    for seed in 0..20 {
        let limits = Limits { fragment_size: 300, ..Limits::default() };
        let mut w = World::pair_at(seed, a().ip(), b().ip(), limits, |c| {
            c.iter_mut().for_each(|c| c.proposals = proposals(&[&[(1, MLKEM), (2, KeId::ML_KEM_512)]]));
        });
        (w.net.loss, w.net.duplicate, w.net.jitter) = (20, 200, 30 * MS);
        let result = w.establish(0);
        w.run(REST);
        if result.is_ok() { w.assert_one() } else { w.assert_empty() }
    }
}

/// A world in which the initiator has keys and everything that it sends next is lost, and the
/// forger of both ends.
fn before(seed: u64, add: &[&[(u8, KeId)]]) -> (World, Forger) {
    let mut w = world(seed, add, add);
    w.net.rules.push(Box::new(|s| {
        if s.node == 0 && s.exchange != ExchangeType::IKE_SA_INIT { Verdict::Drop } else { Verdict::Pass }
    }));
    w.initiate(0);
    w.run(S);
    let f = Forger::newest(&w.nodes[0]);
    (w, f)
}

fn ke(group: KeId, len: usize) -> Payload {
    Payload::Ke(Ke { group, data: vec![1; len] })
}

/// Gives node 1 a request of this exchange, and returns the error that it answers with.
fn give(w: &mut World, f: &mut Forger, exchange: ExchangeType, payloads: &[Payload]) -> Option<Vec<Payload>> {
    let bytes = f.message(true, exchange, false, 1, payloads);
    let before = w.net.log.len();
    w.inject(a(), b(), bytes);
    w.run(100 * MS);
    let answer = w.net.log[before..].iter().find(|(s, _)| s.node == 1 && s.response);
    answer.and_then(|(_, p)| f.open(&p.payload)).map(|(_, payloads)| payloads)
}

#[test]
fn an_exchange_that_was_not_agreed_on_is_passed_over() {
    let (mut w, mut f) = before(6, &[&[]]);
    assert_eq!(give(&mut w, &mut f, ExchangeType::IKE_INTERMEDIATE, &[ke(MLKEM, 1_184)]), None);
    // The peer still gets in.
    w.net.rules.clear();
    w.run(30 * S);
    w.assert_one();
}

#[test]
fn ike_auth_before_its_turn_is_passed_over() {
    let (mut w, mut f) = before(7, &[&[(1, MLKEM)]]);
    assert_eq!(give(&mut w, &mut f, ExchangeType::IKE_AUTH, &[]), None);
    assert_eq!(give(&mut w, &mut f, ExchangeType::CREATE_CHILD_SA, &[]), None);
    assert_eq!(give(&mut w, &mut f, ExchangeType::IKE_FOLLOWUP_KE, &[ke(MLKEM, 1_184)]), None);
    w.net.rules.clear();
    w.run(30 * S);
    w.assert_one();
    assert!(suite(&w).ends_with("KE1_ML_KEM_768"));
}

#[test]
fn a_value_of_another_method_or_length_or_none_ends_the_attempt_with_invalid_syntax() {
    for payloads in [
        vec![],
        vec![ke(MLKEM, 1_183)],
        vec![ke(MLKEM, 1_185)],
        vec![ke(MLKEM, 0)],
        vec![ke(X25519, 32)],
        vec![ke(KeId::ML_KEM_1024, 1_568)],
        // Numbers that are not reduced (FIPS 203 section 7.2).
        vec![Payload::Ke(Ke { group: MLKEM, data: vec![0xff; 1_184] })],
    ] {
        let (mut w, mut f) = before(8, &[&[(1, MLKEM)]]);
        let answer = give(&mut w, &mut f, ExchangeType::IKE_INTERMEDIATE, &payloads).expect("an answer");
        assert!(find_notify(&answer, NotifyType::INVALID_SYNTAX).is_some(), "{answer:?}");
        assert!(w.nodes[1].sas(w.now()).is_empty());
    }
}

#[test]
fn a_response_that_is_of_no_use_ends_the_attempt() {
    for payloads in [
        vec![],
        vec![ke(MLKEM, 1_184)],
        vec![ke(X25519, 32)],
        vec![Payload::Notify(ironswan_wire::ike::payload::Notify::new(NotifyType::INVALID_SYNTAX, []))],
    ] {
        let (mut w, mut f) = before(9, &[&[(1, MLKEM)]]);
        let bytes = f.message(false, ExchangeType::IKE_INTERMEDIATE, true, 1, &payloads);
        w.inject(b(), a(), bytes);
        w.run(S);
        assert!(w.nodes[0].sas(w.now()).is_empty(), "{payloads:?}");
        assert!(w.nodes[0].logged("establishing IKE_SA failed"));
    }
}

#[test]
fn a_ciphertext_for_another_key_authenticates_nobody() {
    let (mut w, mut f) = before(10, &[&[(1, MLKEM)]]);
    // Of the right length: the initiator gets a secret that nobody has (implicit rejection).
    let bytes = f.message(false, ExchangeType::IKE_INTERMEDIATE, true, 1, &[ke(MLKEM, 1_088)]);
    w.inject(b(), a(), bytes);
    w.run(REST);
    w.net.rules.clear();
    assert!(w.up(0).is_empty() && w.up(1).is_empty());
    w.assert_empty();
}

/// `proposals = default` of the configuration.
fn defaults() -> Vec<Proposal> {
    let text = "connections {\n net {\n local {\n auth = psk\n}\n remote {\n auth = psk\n}\n }\n}\n";
    let mut diags = ironswan_config::diag::Diagnostics::default();
    let root = ironswan_config::parse_text("swanctl.conf", text.as_bytes(), &mut diags);
    let config = ironswan_config::Config::from_tree(&root, &mut diags);
    let conn = config.connections.first();
    conn.unwrap_or_else(|| panic!("{:?}", diags.iter().map(ToString::to_string).collect::<Vec<_>>()))
        .proposals
        .clone()
}

#[test]
fn the_defaults_agree_on_ml_kem_with_each_other_and_on_less_with_a_peer_without_it() {
    let mut w = World::pair(90, |c| c.iter_mut().for_each(|c| c.proposals = defaults()));
    w.establish(0).unwrap();
    w.assert_one();
    assert!(suite(&w).ends_with("/CURVE_25519/KE1_ML_KEM_768"), "{}", suite(&w));
    // A peer of before, in both roles.
    for initiator in 0..2 {
        let mut w = World::pair(91, |c| {
            (c[0].proposals, c[1].proposals) = (defaults(), defaults().split_off(2));
        });
        w.establish(initiator).unwrap();
        w.assert_one();
        assert!(suite(&w).ends_with("/CURVE_25519"), "{}", suite(&w));
    }
}

#[test]
fn ike_sa_init_of_the_defaults_fits_into_1280_bytes_and_is_never_answered_with_more() {
    // 40 bytes of IPv6, 8 of UDP; with cookies, and sent back to the longest of our methods.
    for (theirs, threshold) in [(vec![], 30), (vec![KeId::MODP_3072], 30), (vec![KeId::MODP_3072], 0)] {
        let limits = Limits { cookie_threshold: threshold, ..Limits::default() };
        let mut w = World::pair_at(92, a().ip(), b().ip(), limits, |c| {
            c[0].proposals = defaults();
            c[1].proposals = defaults();
            for p in c[1].proposals.iter_mut().filter(|_| !theirs.is_empty()) {
                p.transforms.retain(|t| match t {
                    Transform::Ke(id) => theirs.contains(id),
                    Transform::AddKe(..) => false,
                    _ => true,
                });
            }
            c[1].proposals.retain(|p| p.of_type(TransformType::KE).next().is_some());
        });
        w.establish(0).unwrap();
        let of_init = |s: &&(ironswan_testkit::Seen, ironswan_testkit::Packet)| {
            s.0.exchange == ExchangeType::IKE_SA_INIT
        };
        let (mut asked, mut with_cookie) = (0, 0);
        for (s, p) in w.net.log.iter().filter(of_init) {
            assert!(p.payload.len() + 48 <= 1_280, "{} bytes", p.payload.len());
            let payloads = Message::parse(&p.payload).unwrap().payloads;
            match s.response {
                false => {
                    asked = p.payload.len();
                    with_cookie += usize::from(find_notify(&payloads, NotifyType::COOKIE).is_some());
                }
                true => assert!(p.payload.len() <= asked, "{} bytes for {asked}", p.payload.len()),
            }
        }
        assert_eq!(with_cookie > 0, threshold == 0);
    }
}

/// A life with rekeyings of the IKE_SA from both sides.
fn life(w: &mut World, mut check: impl FnMut(&mut World, &str)) {
    w.establish(0).unwrap();
    for node in [0, 1, 1] {
        w.rekey_ike(node);
        w.run(REST);
        check(w, &format!("rekeyed by {node}"));
        w.rekey_child(1 - node);
        w.run(REST);
        check(w, "child rekeyed");
    }
}

fn good(w: &World, what: &str) {
    if let Some(fault) = w.fault() {
        w.dump();
        panic!("{what}: {fault}");
    }
}

#[test]
fn a_rekeying_has_the_same_exchanges_and_every_message_may_be_lost_or_come_late_once() {
    let add: &[&[(u8, KeId)]] = &[&[(1, MLKEM), (2, KeId::ECP_256)]];
    let mut w = world(20, add, add);
    life(&mut w, |w, step| {
        good(w, step);
        assert!(suite(w).ends_with("CURVE_25519/KE1_ML_KEM_768/KE2_ECP_256"));
    });
    let follow_ups =
        w.net.log.iter().filter(|(s, _)| s.exchange == ExchangeType::IKE_FOLLOWUP_KE && !s.response);
    assert!(follow_ups.count() >= 6);
    let total = w.net.count;
    for k in 0..total {
        for late in [None, Some(6 * S)] {
            let mut w = world(20, add, add);
            w.net.rules.push(Box::new(move |s| match late {
                _ if s.index != k => Verdict::Pass,
                Some(late) => Verdict::Delay(late),
                None => Verdict::Drop,
            }));
            life(&mut w, |w, step| good(w, &format!("message {k} late by {late:?}, {step}")));
            assert!(suite(&w).ends_with("KE1_ML_KEM_768/KE2_ECP_256"));
        }
    }
}

#[test]
fn rekeyings_of_both_sides_at_once_leave_one_sa() {
    let add: &[&[(u8, KeId)]] = &[&[(1, MLKEM)]];
    for offset in 0..40 {
        let mut w = world(30 + offset, add, add);
        w.net.jitter = 3 * MS;
        w.establish(0).unwrap();
        w.rekey_ike(0);
        w.run(u32::try_from(offset).unwrap() * MS);
        if let Some(info) = w.up(1).first()
            && info.state == ironswan_ike::event::IkeState::Established
        {
            w.rekey_ike(1);
        }
        w.run(REST);
        good(&w, &format!("{offset} ms apart"));
        assert!(suite(&w).ends_with("KE1_ML_KEM_768"));
    }
}

/// A world with an established IKE_SA, of which node 0's rekeying has been answered with this link;
/// and the forger of its ends. Everything that node 0 sends is lost from now on.
fn rekeying(seed: u64) -> (World, Forger, Vec<u8>) {
    let add: &[&[(u8, KeId)]] = &[&[(1, MLKEM), (2, KeId::ECP_256)]];
    let mut w = world(seed, add, add);
    w.establish(0).unwrap();
    let f = Forger::newest(&w.nodes[0]);
    w.net.rules.push(Box::new(|s| {
        if s.node == 0 && s.exchange == ExchangeType::IKE_FOLLOWUP_KE { Verdict::Drop } else { Verdict::Pass }
    }));
    w.rekey_ike(0);
    w.run(S);
    let mut answers =
        w.net.log.iter().filter(|(s, _)| s.node == 1 && s.exchange == ExchangeType::CREATE_CHILD_SA);
    let (_, p) = answers.next_back().unwrap();
    let (_, payloads) = f.open(&p.payload).unwrap();
    let link = find_notify(&payloads, NotifyType::ADDITIONAL_KEY_EXCHANGE).unwrap().data.clone();
    assert!(!link.is_empty());
    (w, f, link)
}

/// Message ID of the first request after IKE_SA_INIT, IKE_INTERMEDIATE twice, IKE_AUTH and
/// CREATE_CHILD_SA.
const MID: u32 = 5;

fn ask(w: &mut World, f: &mut Forger, mid: u32, payloads: &[Payload]) -> Vec<Payload> {
    let bytes = f.message(true, ExchangeType::IKE_FOLLOWUP_KE, false, mid, payloads);
    let before = w.net.log.len();
    w.inject(a(), b(), bytes);
    w.run(100 * MS);
    let answer = w.net.log[before..].iter().find(|(s, _)| s.node == 1 && s.response).expect("an answer");
    f.open(&answer.1.payload).unwrap().1
}

fn linked(link: &[u8]) -> Payload {
    let kind = NotifyType::ADDITIONAL_KEY_EXCHANGE;
    Payload::Notify(ironswan_wire::ike::payload::Notify::new(kind, link))
}

/// A public value of this method.
fn public(group: KeId) -> Payload {
    Payload::Ke(Ke { group, data: ironswan_crypto::kex::generate(group, &[3; 32]).unwrap().1 })
}

#[test]
fn a_follow_up_with_a_stale_link_or_none_is_not_found() {
    let (mut w, mut f, link) = rekeying(40);
    let not_found = |answer: &[Payload]| find_notify(answer, NotifyType::STATE_NOT_FOUND).is_some();
    assert!(not_found(&ask(&mut w, &mut f, MID, &[public(MLKEM)])));
    assert!(not_found(&ask(&mut w, &mut f, MID + 1, &[public(MLKEM), linked(b"")])));
    assert!(not_found(&ask(&mut w, &mut f, MID + 2, &[public(MLKEM), linked(b"of nobody")])));
    let answer = ask(&mut w, &mut f, MID + 3, &[public(MLKEM), linked(&link)]);
    let next = find_notify(&answer, NotifyType::ADDITIONAL_KEY_EXCHANGE).expect("a link").data.clone();
    assert_ne!(next, link);
    assert!(not_found(&ask(&mut w, &mut f, MID + 4, &[public(KeId::ECP_256), linked(&link)])));
    let answer = ask(&mut w, &mut f, MID + 5, &[public(KeId::ECP_256), linked(&next)]);
    assert!(answer.iter().any(|p| matches!(p, Payload::Ke(_))), "{answer:?}");
    assert!(find_notify(&answer, NotifyType::ADDITIONAL_KEY_EXCHANGE).is_none(), "it was the last one");
    // The successor stands; whoever asks on is too late.
    assert!(not_found(&ask(&mut w, &mut f, MID + 6, &[public(KeId::ECP_256), linked(&next)])));
}

#[test]
fn a_follow_up_of_another_method_or_length_ends_the_ike_sa() {
    for (n, payload) in [(0, vec![]), (1, vec![ke(MLKEM, 7)]), (2, vec![public(KeId::ECP_256)])] {
        let (mut w, mut f, link) = rekeying(50 + n);
        let payloads: Vec<Payload> = payload.into_iter().chain([linked(&link)]).collect();
        let answer = ask(&mut w, &mut f, MID, &payloads);
        assert!(find_notify(&answer, NotifyType::INVALID_SYNTAX).is_some(), "{answer:?}");
        assert!(w.up(1).is_empty());
    }
}

#[test]
fn a_rekeying_that_the_peer_does_not_complete_is_forgotten() {
    let (mut w, mut f, link) = rekeying(60);
    // Longer than a peer retransmits.
    w.net.mute.insert(0);
    w.run(300 * S);
    assert!(w.nodes[1].logged("the peer has not completed its rekeying"));
    w.net.mute.clear();
    let answer = ask(&mut w, &mut f, MID, &[public(MLKEM), linked(&link)]);
    assert!(find_notify(&answer, NotifyType::STATE_NOT_FOUND).is_some());
}

#[test]
fn a_responder_that_has_forgotten_leaves_the_old_ike_sa_which_is_rekeyed_again() {
    let add: &[&[(u8, KeId)]] = &[&[(1, MLKEM)]];
    let mut w = world(70, add, add);
    w.establish(0).unwrap();
    let mut f = Forger::newest(&w.nodes[0]);
    w.net.rules.push(Box::new(|s| {
        if s.exchange == ExchangeType::IKE_FOLLOWUP_KE && !s.response { Verdict::Drop } else { Verdict::Pass }
    }));
    w.rekey_ike(0);
    w.run(S);
    let kind = NotifyType::STATE_NOT_FOUND;
    let error = [Payload::Notify(ironswan_wire::ike::payload::Notify::new(kind, []))];
    // After IKE_SA_INIT, IKE_INTERMEDIATE, IKE_AUTH and CREATE_CHILD_SA.
    let bytes = f.message(false, ExchangeType::IKE_FOLLOWUP_KE, true, 4, &error);
    w.inject(b(), a(), bytes);
    w.run(100 * MS);
    assert!(w.nodes[0].logged("IKE_SA rekeying failed, trying again"));
    assert_eq!(w.up(0).len(), 1);
}
