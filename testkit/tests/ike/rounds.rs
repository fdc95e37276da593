//! Several rounds of IKE_AUTH (RFC 4739): as many on both sides, or more on one; each message lost,
//! doubled and late, in both roles; a round that fails; peers that have another number of rounds,
//! know of none, or do what they may not.

use std::net::SocketAddr;
use std::time::Duration;

use ironswan_keying::{AddrSpec, Auth, Childless, Connection, LocalRound, PrivateKey, RemoteRound};
use ironswan_testkit::{Forger, Verdict, World, config};
use ironswan_wire::iana::{AuthMethod, ExchangeType, KeId, NotifyType};
use ironswan_wire::id::{IdPattern, Identity};
use ironswan_wire::ike::payload::{Auth as AuthPayload, Id, Notify, find_notify};
use ironswan_wire::ike::{Message, Payload};
use ironswan_wire::secret::Secret;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
/// Longer than any exchange retransmits and any retry waits.
const REST: Duration = Duration::from_secs(1_000);

fn key(n: u8) -> PrivateKey {
    PrivateKey::ed25519(Secret::new(vec![n; 32])).unwrap()
}

/// Identity of a gateway in a round, from 0.
fn name(node: usize, round: usize) -> String {
    match round {
        0 => format!("g{}.example", node + 1),
        n => format!("g{}-{}.example", node + 1, n + 1),
    }
}

/// Gives a node so many rounds: the first by an Ed25519 key, all others by pre-shared keys.
fn add_rounds(c: &mut [Connection; 2], node: usize, rounds: usize) {
    let auth = Auth::pubkey(vec![key(node as u8 + 1).public().clone()]);
    (c[node].local_auth, c[1 - node].remote_auth) = (auth.clone(), auth);
    for round in 1..rounds {
        let name = name(node, round);
        c[node].local_rounds.push(LocalRound { auth: Auth::Psk, id: Identity::parse(&name) });
        let id = IdPattern::parse(&name).unwrap();
        c[1 - node].remote_rounds.push(RemoteRound { auth: Auth::Psk, id });
    }
}

/// Two gateways with these numbers of rounds.
fn world(seed: u64, rounds: [usize; 2], tweak: impl FnOnce(&mut [Connection; 2])) -> World {
    let mut w = World::pair(seed, |c| {
        (0..2).for_each(|node| add_rounds(c, node, rounds[node]));
        tweak(c);
    });
    for node in 0..2 {
        let e = &mut w.nodes[node].endpoint;
        e.load_private(key(node as u8 + 1));
        e.load_shared(config::psk("ike-rounds", "a secret of further rounds", &[]));
    }
    w
}

/// IKE_AUTH messages of a node, each once, as they were in clear.
fn auth_messages(w: &World, node: usize) -> Vec<Vec<Payload>> {
    let mut seen = Vec::new();
    for (s, packet) in &w.net.log {
        if s.node == node && s.exchange == ExchangeType::IKE_AUTH {
            let (header, payloads) = Forger::newest(&w.nodes[0]).open(&packet.payload).unwrap();
            if !seen.iter().any(|(mid, _)| *mid == header.message_id) {
                seen.push((header.message_id, payloads));
            }
        }
    }
    seen.into_iter().map(|(_, payloads)| payloads).collect()
}

fn has(payloads: &[Payload], kind: NotifyType) -> bool {
    find_notify(payloads, kind).is_some()
}

fn ids(payloads: &[Payload]) -> Vec<String> {
    let id = |p: &Payload| match p {
        Payload::IdI(id) | Payload::IdR(id) => Some(id.identity.to_string()),
        _ => None,
    };
    payloads.iter().filter_map(id).collect()
}

fn asks_for_child(payloads: &[Payload]) -> bool {
    payloads.iter().any(|p| matches!(p, Payload::Sa(_)))
}

#[test]
fn sides_may_have_as_many_rounds_or_one_more_than_the_other() {
    for rounds in [[2, 2], [2, 1], [1, 2], [3, 2], [1, 3], [4, 4]] {
        for node in 0..2 {
            let mut w = world(1, rounds, |_| {});
            assert_eq!(w.establish(node), Ok(()), "{rounds:?} from {node}");
            w.assert_one();
            let (requests, responses) = (auth_messages(&w, node), auth_messages(&w, 1 - node));
            let most = rounds[0].max(rounds[1]);
            assert_eq!((requests.len(), responses.len()), (most, most), "{rounds:?}");
            for (who, messages) in [(node, &requests), (1 - node, &responses)] {
                for (n, payloads) in messages.iter().enumerate() {
                    // "the next IKE_AUTH message(s) sent by this end point will contain a second
                    // identity payload (IDi or IDr)" (RFC 4739 section 2.1).
                    let named = ids(payloads).contains(&name(who, n));
                    assert_eq!(named, n < rounds[who], "{rounds:?} {who} {n}: {payloads:?}");
                    let proof = payloads.iter().any(|p| matches!(p, Payload::Auth(_)));
                    assert_eq!(proof, n < rounds[who], "{rounds:?} {who} {n}");
                    let follows = has(payloads, NotifyType::ANOTHER_AUTH_FOLLOWS);
                    assert_eq!(follows, n + 1 < rounds[who], "{rounds:?} {who} {n}");
                }
            }
            // The child is asked for first, and made last.
            for n in 0..most {
                assert_eq!(asks_for_child(&requests[n]), n == 0);
                assert_eq!(asks_for_child(&responses[n]), n + 1 == most);
            }
            assert!(has(&requests[0], NotifyType::MULTIPLE_AUTH_SUPPORTED));
            // Identities are the first ones.
            for node in 0..2 {
                let sa = &w.up(node)[0];
                assert_eq!(sa.local_id, Identity::parse(&name(node, 0)));
                assert_eq!(sa.remote_id, Identity::parse(&name(1 - node, 0)));
            }
            w.traffic = Some(100 * MS);
            w.run(3 * S);
            w.nodes.iter().for_each(|n| assert!(n.esp.0 > 10 && n.esp.1 == 0));
            w.rekey_ike(0);
            w.run(3 * S);
            w.rekey_ike(1);
            w.run(3 * S);
            w.assert_one();
        }
    }
}

#[test]
fn one_round_announces_nothing() {
    let mut w = world(2, [1, 1], |_| {});
    assert_eq!(w.establish(0), Ok(()));
    let init = w.net.log.iter().filter(|(s, _)| s.exchange == ExchangeType::IKE_SA_INIT);
    for (_, packet) in init {
        let payloads = Message::parse(&packet.payload).unwrap().payloads;
        assert!(!has(&payloads, NotifyType::MULTIPLE_AUTH_SUPPORTED));
    }
    assert!(!has(&auth_messages(&w, 0)[0], NotifyType::MULTIPLE_AUTH_SUPPORTED));
}

#[test]
fn each_message_may_be_lost_doubled_or_late() {
    for rounds in [[2, 2], [2, 1], [1, 2]] {
        let whole = {
            let mut w = world(3, rounds, |_| {});
            assert_eq!(w.establish(0), Ok(()));
            w.net.count
        };
        for verdict in [Verdict::Drop, Verdict::Delay(7 * S)] {
            for index in 0..whole {
                let mut w = world(3, rounds, |_| {});
                w.net.rules.push(Box::new(move |s| if s.index == index { verdict } else { Verdict::Pass }));
                w.initiate(0);
                w.run(REST);
                w.assert_one();
                assert_eq!(w.nodes[1].endpoint.protocol().counters().auth_failed, 0, "message {index}");
            }
        }
        for seed in 0..10 {
            let mut w = world(seed, rounds, |_| {});
            w.net.duplicate = 1_000;
            w.initiate(0);
            w.run(REST);
            w.assert_one();
        }
    }
}

#[test]
fn a_round_that_fails_lets_nobody_in_and_says_which() {
    // The secret of further rounds differs.
    for node in 0..2 {
        let mut w = world(4, [2, 2], |_| {});
        w.nodes[node].endpoint.load_shared(config::psk("ike-rounds", "another secret", &[]));
        assert!(w.establish(0).is_err());
        assert!(
            w.nodes[1].logged("authentication of 'g1-2.example' with pre-shared key failed"),
            "{:#?}",
            w.nodes[1].log
        );
        assert!(w.nodes[0].logged("the peer did not accept 'g1-2.example' (looking for 'g2-2.example')"));
        w.run(REST);
        w.assert_empty();
    }
    // Only the responder's second round: the initiator refuses.
    let mut w = world(5, [1, 2], |_| {});
    w.nodes[1].endpoint.load_shared(config::psk("ike-rounds", "another secret", &[]));
    assert!(w.establish(0).is_err());
    assert!(
        w.nodes[0].logged("authentication of 'g2-2.example' with pre-shared key failed"),
        "{:#?}",
        w.nodes[0].log
    );
    w.run(REST);
    w.assert_empty();
}

#[test]
fn an_identity_of_a_further_round_has_to_fit() {
    for node in 0..2 {
        let mut w = world(6, [2, 2], |c| c[node].local_rounds[0].id = Identity::parse("g9.example"));
        assert!(w.establish(0).is_err());
        let line = format!("the peer says it is 'g9.example', '{}' is required", name(node, 1));
        assert!(w.nodes[1 - node].logged(&line), "{:#?}", w.nodes[1 - node].log);
        w.run(REST);
        w.assert_empty();
    }
}

#[test]
fn another_number_of_rounds_is_refused_and_said() {
    for (ours, configured, line) in [
        (1, 2, "'g1.example' ends its authentication after round 1, and 2 rounds are configured"),
        (2, 3, "'g1.example' ends its authentication after round 2, and 3 rounds are configured"),
        (3, 2, "'g1.example' begins round 3 of its authentication, and 2 are configured"),
    ] {
        // The initiator has a second round of ours to wait for, so both know of rounds.
        let mut w = world(7, [configured, 2], |c| {
            let last = c[0].local_rounds[0].clone();
            c[0].local_rounds.resize(ours - 1, last);
        });
        assert!(w.establish(0).is_err());
        assert!(w.nodes[1].logged(line), "{line}: {:#?}", w.nodes[1].log);
        w.run(REST);
        w.assert_empty();
    }
    // The responder has one less or one more than the initiator asks for.
    for (theirs, configured, line) in [
        (1, 2, "'g2.example' ends its authentication after round 1, and 2 rounds are configured"),
        (3, 2, "'g2.example' begins round 3 of its authentication, and 2 are configured"),
    ] {
        let mut w = world(8, [2, configured], |c| {
            let last = c[1].local_rounds[0].clone();
            c[1].local_rounds.resize(theirs - 1, last);
        });
        assert!(w.establish(0).is_err());
        assert!(w.nodes[0].logged(line), "{line}: {:#?}", w.nodes[0].log);
        w.run(REST);
        w.assert_empty();
    }
}

#[test]
fn a_peer_that_knows_of_no_rounds_is_refused_by_either_role() {
    for node in 0..2 {
        // Node `node` has the connection with rounds, the other one has not.
        let mut w = world(9, [2, 2], |c| {
            (c[1 - node].local_rounds, c[1 - node].remote_rounds) = (Vec::new(), Vec::new());
        });
        assert!(w.establish(0).is_err());
        assert!(w.nodes[node].logged("the peer has not sent MULTIPLE_AUTH_SUPPORTED (RFC 4739)"));
        w.run(REST);
        w.assert_empty();
    }
}

#[test]
fn the_connection_is_chosen_by_all_rounds() {
    // Two connections for the same first identity: only the second round tells them apart.
    let mut w = world(10, [2, 2], |c| c[0].remote_addrs = vec![AddrSpec::Host(config::ip("192.0.2.2"))]);
    let now = w.now();
    let right = w.nodes[1].connection("gw");
    let mut other = right.clone();
    other.name = "another".to_owned();
    other.remote_rounds[0].id = IdPattern::parse("g7.example").unwrap();
    other.children = vec![config::child("other", "10.2.7.0/24", "10.1.7.0/24")];
    w.nodes[1].endpoint.load_connection(now, other);
    let mut single = right.clone();
    single.name = "a-single".to_owned();
    (single.local_rounds, single.remote_rounds) = (Vec::new(), Vec::new());
    w.nodes[1].endpoint.load_connection(now, single);
    assert_eq!(w.establish(0), Ok(()));
    assert_eq!(w.up(1)[0].conn, "gw");
    // And the peer of the other one gets its selectors, and no others.
    let mut w2 = world(11, [2, 2], |c| c[0].local_rounds[0].id = Identity::parse("g7.example"));
    let now = w2.now();
    let mut other = w2.nodes[1].connection("gw");
    other.name = "zz".to_owned();
    other.remote_rounds[0].id = IdPattern::parse("g7.example").unwrap();
    other.children = vec![config::child("other", "10.2.0.0/24", "10.1.0.0/28")];
    w2.nodes[1].endpoint.load_connection(now, other);
    assert_eq!(w2.establish(0), Ok(()));
    let sa = &w2.up(1)[0];
    assert_eq!((sa.conn.as_str(), sa.children[0].name.as_str()), ("zz", "other"));
}

/// A responder whose second connection, `zz`, has the first round of `gw` and another identity in
/// the second, which the initiator has.
fn with_another(
    seed: u64,
    tweak: impl FnOnce(&mut [Connection; 2]),
    zz: impl FnOnce(&mut Connection),
) -> World {
    let mut w = world(seed, [2, 2], |c| {
        c[0].local_rounds[0].id = Identity::parse("g7.example");
        tweak(c);
    });
    let now = w.now();
    let mut other = w.nodes[1].connection("gw");
    other.name = "zz".to_owned();
    other.remote_rounds[0].id = IdPattern::parse("g7.example").unwrap();
    zz(&mut other);
    w.nodes[1].endpoint.load_connection(now, other);
    w
}

/// The responder takes nobody in, and says why.
fn assert_refused(w: &mut World, line: &str) {
    assert!(w.establish(0).is_err());
    assert!(w.nodes[1].logged(line), "{line}: {:#?}", w.nodes[1].log);
    w.run(REST);
    w.assert_empty();
}

#[test]
fn a_further_round_leads_past_no_ppk_that_its_connection_requires() {
    let id = || Identity::parse("office.ppk");
    let requires = |c: &mut Connection| (c.ppk_id, c.ppk_required) = (id(), true);
    // The initiator knows of no PPK.
    let mut w = with_another(18, |_| {}, requires);
    w.nodes[1].endpoint.load_ppk(config::ppk("office.ppk", 1));
    assert_refused(&mut w, "the two sides have not both announced PPKs");
    for intermediate in [false, true] {
        let ways = |c: &mut [Connection; 2]| {
            for c in c.iter_mut() {
                (c.ppk_id, c.ppk_intermediate) = (id(), intermediate);
            }
        };
        let mut w = with_another(19, ways, requires);
        w.nodes.iter_mut().for_each(|n| n.endpoint.load_ppk(config::ppk("office.ppk", 1)));
        assert_eq!(w.establish(0), Ok(()));
        assert!(w.up(1)[0].ppk && w.up(1)[0].conn == "zz");
        // The initiator has another PPK, and neither side needs one in `gw`.
        let tweak = |c: &mut [Connection; 2]| {
            ways(c);
            c[0].ppk_id = Identity::parse("other.ppk");
        };
        let mut w = with_another(19, tweak, requires);
        w.nodes[0].endpoint.load_ppk(config::ppk("other.ppk", 1));
        w.nodes[1].endpoint.load_ppk(config::ppk("office.ppk", 1));
        assert_refused(&mut w, "it names 'other.ppk', here ppk_id = office.ppk");
        // Both have the PPK of `gw`, and `zz` requires another one.
        let requires = |c: &mut Connection| (c.ppk_id, c.ppk_required) = (Identity::parse("zz.ppk"), true);
        let mut w = with_another(20, ways, requires);
        w.nodes.iter_mut().for_each(|n| n.endpoint.load_ppk(config::ppk("office.ppk", 1)));
        w.nodes[1].endpoint.load_ppk(config::ppk("zz.ppk", 2));
        assert_refused(&mut w, "it names 'office.ppk', here ppk_id = zz.ppk");
    }
}

#[test]
fn a_further_round_leads_past_no_rule_about_childless_ike_sas() {
    for (theirs, alone) in [(Childless::Force, false), (Childless::Never, true)] {
        let mut w = with_another(21, |_| {}, |c| c.childless = theirs);
        let now = w.now();
        let ticket = w.nodes[0].endpoint.initiate(now, Some("gw"), (!alone).then_some("net")).unwrap();
        w.run(30 * S);
        assert!(w.nodes[0].done[&ticket].is_err(), "{theirs:?}");
        assert!(w.up(1).is_empty() && w.nodes[1].engine.inbound.is_empty());
        w.run(REST);
        w.assert_empty();
    }
}

#[test]
fn a_ppk_is_in_the_proofs_of_all_rounds() {
    for intermediate in [false, true] {
        let mut w = world(12, [2, 2], |c| {
            for c in c.iter_mut() {
                c.ppk_id = Identity::parse("office.ppk");
                (c.ppk_required, c.ppk_intermediate) = (true, intermediate);
            }
        });
        w.nodes.iter_mut().for_each(|n| n.endpoint.load_ppk(config::ppk("office.ppk", 1)));
        assert_eq!(w.establish(0), Ok(()));
        w.assert_one();
        assert!(w.up(0)[0].ppk && w.up(1)[0].ppk);
    }
}

#[test]
fn additional_key_exchanges_go_before_all_rounds() {
    let additional = [(1, KeId::ML_KEM_768)];
    let mut w = world(13, [2, 2], |c| {
        for c in c.iter_mut() {
            c.proposals = vec![config::ike_proposal_with(&[KeId::CURVE_25519], &additional)];
        }
    });
    assert_eq!(w.establish(0), Ok(()));
    w.assert_one();
    assert_eq!(auth_messages(&w, 0).len(), 2);
}

/// A responder with two rounds of the peer's and one of its own, and a forger that has passed the
/// first one of node 0, whose second request was lost.
fn in_the_middle(seed: u64) -> (World, Forger) {
    let mut w = world(seed, [2, 1], |_| {});
    w.net.rules.push(Box::new(|s| {
        let second = s.node == 0 && s.exchange == ExchangeType::IKE_AUTH && s.mid == 2;
        if second { Verdict::Drop } else { Verdict::Pass }
    }));
    w.initiate(0);
    w.run(200 * MS);
    let f = Forger::newest(&w.nodes[0]);
    (w, f)
}

fn ends() -> (SocketAddr, SocketAddr) {
    (SocketAddr::new(config::ip("192.0.2.1"), 500), SocketAddr::new(config::ip("192.0.2.2"), 500))
}

#[test]
fn who_has_passed_one_round_has_nothing_and_cannot_leave_out_the_other() {
    let id = |name: &str| Payload::IdI(Id::new(Identity::parse(name).unwrap()));
    let auth = || Payload::Auth(AuthPayload { method: AuthMethod::PSK, data: vec![7; 32] });
    let follows = || Payload::Notify(Notify::new(NotifyType::ANOTHER_AUTH_FOLLOWS, []));
    let requests: &[(&str, Vec<Payload>)] = &[
        ("nothing", vec![]),
        ("no AUTH", vec![id("g1-2.example")]),
        ("the first identity again", vec![id("g1.example"), auth()]),
        ("a wrong proof", vec![id("g1-2.example"), auth()]),
        ("a third round", vec![id("g1-2.example"), auth(), follows()]),
        ("our own identity", vec![id("g2.example"), auth()]),
        ("AUTH alone", vec![auth()]),
    ];
    for (what, payloads) in requests {
        let (mut w, mut f) = in_the_middle(14);
        assert!(w.up(1).is_empty(), "the responder waits for the second round");
        assert!(w.nodes[1].engine.inbound.is_empty());
        let (a, b) = ends();
        w.inject(a, b, f.message(true, ExchangeType::IKE_AUTH, false, 2, payloads));
        w.run(100 * MS);
        assert!(w.up(1).is_empty(), "{what}");
        w.run(REST);
        assert!(w.nodes[1].engine.inbound.is_empty(), "{what}");
    }
    // Other exchanges do not come in between.
    for exchange in
        [ExchangeType::CREATE_CHILD_SA, ExchangeType::INFORMATIONAL, ExchangeType::IKE_INTERMEDIATE]
    {
        let (mut w, mut f) = in_the_middle(15);
        let (a, b) = ends();
        w.inject(a, b, f.message(true, exchange, false, 2, &[]));
        w.run(100 * MS);
        assert!(w.up(1).is_empty() && w.nodes[1].engine.inbound.is_empty(), "{exchange}");
    }
}

#[test]
fn a_peer_that_stops_between_its_rounds_is_forgotten_in_time() {
    let (mut w, _) = in_the_middle(16);
    w.run(40 * S);
    let now = w.now();
    assert!(w.nodes[1].sas(now).is_empty(), "{:?}", w.nodes[1].sas(now));
}

#[test]
fn a_connection_that_changes_between_the_rounds_lets_nobody_in() {
    let (mut w, _) = in_the_middle(17);
    let now = w.now();
    let mut changed = w.nodes[1].connection("gw");
    changed.remote_rounds[0].id = IdPattern::parse("g8.example").unwrap();
    w.nodes[1].endpoint.load_connection(now, changed);
    w.net.rules.clear();
    w.run(REST);
    assert!(w.up(1).is_empty() && w.nodes[1].engine.inbound.is_empty());
}
