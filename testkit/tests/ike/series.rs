//! Additional key exchanges of CHILD_SAs (RFC 9370 section 2.2.4): when one is created and when it
//! is rekeyed, each message lost, doubled, late, in both roles; and peers that forget.

use std::net::SocketAddr;
use std::time::Duration;

use ironswan_ike::event::KeyLog;
use ironswan_testkit::{Forger, Verdict, World, config};
use ironswan_wire::iana::{ExchangeType, KeId, NotifyType};
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::{Notify, find_notify};
use ironswan_wire::proposal::{Additional, Proposal, Transform};

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
/// Longer than any exchange retransmits and any retry waits.
const REST: Duration = Duration::from_secs(1_000);
const X25519: KeId = KeId::CURVE_25519;
const ADD: &[(u8, KeId)] = &[(1, KeId::ML_KEM_768), (4, KeId::ECP_256)];

fn a() -> SocketAddr {
    "192.0.2.1:500".parse().unwrap()
}

fn b() -> SocketAddr {
    "192.0.2.2:500".parse().unwrap()
}

fn world(seed: u64, ours: Vec<Proposal>, theirs: Vec<Proposal>) -> World {
    World::pair(seed, |c| {
        (c[0].children[0].proposals, c[1].children[0].proposals) = (ours, theirs);
    })
}

/// Both sides with these additional key exchanges.
fn both(seed: u64, add: &[(u8, KeId)]) -> World {
    let proposals = || vec![config::esp_proposal_with(&[X25519], add)];
    world(seed, proposals(), proposals())
}

fn additional(add: &[(u8, KeId)]) -> Additional {
    Additional::of(&add.iter().map(|(n, id)| Transform::AddKe(*n, *id)).collect::<Vec<_>>())
}

fn good(w: &World, what: &str) {
    if let Some(fault) = w.fault() {
        w.dump();
        panic!("{what}: {fault}");
    }
}

/// A child of IKE_AUTH, which is rekeyed by both sides, closed, created anew in CREATE_CHILD_SA by
/// either side, and rekeyed again. `check` is called when all is at rest.
fn life(w: &mut World, mut check: impl FnMut(&World, &str)) {
    w.establish(0).unwrap();
    for node in 0..2 {
        w.rekey_child(node);
        w.run(REST);
        check(w, &format!("rekeyed by {node}"));
        w.terminate(node, true);
        w.run(REST);
        w.initiate(1 - node);
        w.run(REST);
        check(w, &format!("created by {}", 1 - node));
    }
}

#[test]
fn a_child_has_them_when_it_is_created_and_rekeyed_by_either_side() {
    let mut w = both(1, ADD);
    w.traffic = Some(100 * MS);
    life(&mut w, |w, step| {
        good(w, step);
        assert_eq!(w.child(0).additional, additional(ADD), "{step}");
        assert_eq!(w.child(1).additional, additional(ADD), "{step}");
        assert!(w.nodes[0].logged("ESP:AES_GCM_16_128/CURVE_25519/KE1_ML_KEM_768/KE4_ECP_256/NO_EXT_SEQ"));
    });
    let of = |exchange| {
        let sent = w.net.log.iter().filter(|(s, _)| s.exchange == exchange && !s.response);
        sent.map(|(s, _)| (s.node, s.mid)).collect::<std::collections::BTreeSet<_>>().len()
    };
    assert_eq!((of(ExchangeType::CREATE_CHILD_SA), of(ExchangeType::IKE_FOLLOWUP_KE)), (4, 8));
    assert!(w.nodes.iter().all(|n| n.esp.1 == 0), "no packet is lost");
}

#[test]
fn the_first_child_has_none_since_its_keys_are_those_of_the_ike_sa() {
    let mut w = both(2, ADD);
    w.establish(0).unwrap();
    w.assert_one();
    assert_eq!(w.child(0).additional, Additional::NONE);
}

#[test]
fn every_message_may_be_doubled_and_each_lost_or_late_once() {
    let mut w = both(3, ADD);
    w.net.duplicate = 1_000;
    life(&mut w, good);
    let mut w = both(3, ADD);
    life(&mut w, good);
    let total = w.net.count;
    for k in 0..total {
        for verdict in [Verdict::Drop, Verdict::Delay(20 * MS), Verdict::Delay(6 * S)] {
            let mut w = both(3, ADD);
            w.net.rules.push(Box::new(move |s| if s.index == k { verdict } else { Verdict::Pass }));
            life(&mut w, |w, step| {
                good(w, &format!("message {k} {verdict:?}, {step}"));
                assert_eq!(w.child(0).additional, additional(ADD));
            });
        }
    }
}

#[test]
fn doubled_reordered_and_lost_messages_leave_one_child() {
    for seed in 0..30 {
        let mut w = both(100 + seed, ADD);
        w.establish(0).unwrap();
        (w.net.loss, w.net.duplicate, w.net.jitter) = (20, 200, 30 * MS);
        for round in 0..4 {
            w.rekey_child_if_any(0);
            w.run(u32::try_from(7 * seed).unwrap() * MS);
            w.rekey_child_if_any(1);
            w.run(REST);
            good(&w, &format!("seed {seed}, round {round}"));
        }
    }
}

#[test]
fn what_one_side_does_without_is_not_agreed_on_and_none_is_optional() {
    let with = |add: &[(u8, KeId)]| config::esp_proposal_with(&[X25519], add);
    let mlkem = (1, KeId::ML_KEM_768);
    let optional = [mlkem, (1, KeId::NONE)];
    for (ours, theirs, agreed) in [
        (with(&optional), with(&[]), Some(&[][..])),
        (with(&[]), with(&optional), Some(&[])),
        (with(&optional), with(&[mlkem]), Some(&[mlkem])),
        (with(&[mlkem]), with(&[]), None),
        (with(&[]), with(&[mlkem]), None),
        // X25519 is the first method already.
        (with(&[(1, X25519)]), with(&[(1, X25519)]), None),
    ] {
        let what = format!("{ours} {theirs}");
        let mut w = world(4, vec![ours], vec![theirs]);
        w.establish(0).unwrap();
        let before = w.child(0);
        w.rekey_child(0);
        w.run(30 * S);
        match agreed {
            Some(agreed) => {
                good(&w, &what);
                assert_ne!(w.child(0).spi_in, before.spi_in);
                assert_eq!(w.child(0).additional, additional(agreed), "{what}");
            }
            None => {
                assert_eq!(w.child(0).spi_in, before.spi_in, "{what}");
                assert!(w.nodes[0].logged("NO_PROPOSAL_CHOSEN"), "{what}");
            }
        }
    }
}

#[test]
fn an_answer_with_one_method_twice_begins_no_series() {
    let (first, second) = (KeId::ML_KEM_768, KeId::ML_KEM_512);
    for twice in [false, true] {
        let mut w = both(13, &[(1, first), (1, second), (4, first), (4, second)]);
        w.establish(0).unwrap();
        let (mut f, before) = (Forger::newest(&w.nodes[0]), w.child(0).spi_in);
        w.net.rules.push(Box::new(|s| if s.node == 1 { Verdict::Drop } else { Verdict::Pass }));
        w.rekey_child(0);
        w.run(S);
        let of_1 = |s: &&(ironswan_testkit::Seen, ironswan_testkit::Packet)| {
            s.0.node == 1 && s.0.exchange == ExchangeType::CREATE_CHILD_SA
        };
        let (seen, packet) = w.net.log.iter().find(of_1).expect("a response");
        let (_, mut payloads) = f.open(&packet.payload).unwrap();
        for p in &mut payloads {
            if let Payload::Sa(list) = p
                && twice
            {
                let wrong = Transform::AddKe(4, first);
                list[0].transforms.retain(|t| !matches!(t, Transform::AddKe(4, _)));
                list[0].transforms.push(wrong);
            }
        }
        let (mid, before_answer) = (seen.mid, w.net.log.len());
        let bytes = f.message(false, ExchangeType::CREATE_CHILD_SA, true, mid, &payloads);
        w.inject(b(), a(), bytes);
        w.run(100 * MS);
        let begun =
            w.net.log[before_answer..].iter().any(|(s, _)| s.exchange == ExchangeType::IKE_FOLLOWUP_KE);
        assert_eq!(begun, !twice);
        assert_eq!(w.child(0).spi_in, before);
    }
}

#[test]
fn none_that_was_offered_in_words_is_answered_in_words() {
    let optional = config::esp_proposal_with(&[X25519], &[(1, KeId::ML_KEM_768), (1, KeId::NONE)]);
    let mut w = world(14, vec![optional], vec![config::esp_proposal(&[X25519])]);
    w.establish(0).unwrap();
    let f = Forger::newest(&w.nodes[0]);
    w.rekey_child(0);
    w.run(REST);
    good(&w, "rekeyed");
    let said = w.net.log.iter().any(|(s, p)| {
        let opened =
            f.open(&p.payload).filter(|_| s.node == 1 && s.exchange == ExchangeType::CREATE_CHILD_SA);
        let none = Transform::AddKe(1, KeId::NONE);
        let has = |p: &Payload| matches!(p, Payload::Sa(list) if list[0].transforms.contains(&none));
        opened.is_some_and(|(_, payloads)| payloads.iter().any(has))
    });
    assert!(said);
}

#[test]
fn ml_kem_may_be_the_first_method_too_and_needs_no_other() {
    let proposals = || vec![config::esp_proposal_with(&[KeId::ML_KEM_512], &[(1, KeId::ML_KEM_1024)])];
    let mut w = world(5, proposals(), proposals());
    life(&mut w, |w, step| {
        good(w, step);
        assert_eq!(w.child(0).suite.ke, Some(KeId::ML_KEM_512), "{step}");
    });
    let alone = || vec![config::esp_proposal(&[KeId::ML_KEM_768])];
    life(&mut world(6, alone(), alone()), good);
}

#[test]
fn a_child_that_the_peer_does_not_complete_is_forgotten_with_its_numbers() {
    for rekeying in [true, false] {
        let mut w = both(7, ADD);
        w.establish(0).unwrap();
        if !rekeying {
            w.terminate(0, true);
            w.run(REST);
        }
        w.net.rules.push(Box::new(|s| {
            if s.node == 0 && s.exchange == ExchangeType::IKE_FOLLOWUP_KE {
                Verdict::Drop
            } else {
                Verdict::Pass
            }
        }));
        if rekeying {
            w.rekey_child(0);
        } else {
            w.initiate(0);
        }
        w.run(S);
        w.net.mute.insert(0);
        w.run(200 * S);
        assert!(w.nodes[1].logged("the peer has not completed its CHILD_SA"), "{rekeying}");
        w.net.mute.clear();
        w.net.rules.clear();
        w.run(REST);
        // 0 has given the IKE_SA up. Whatever is left ends, and nothing is left over.
        for node in 0..2 {
            if !w.up(node).is_empty() {
                w.terminate(node, false);
                w.run(REST);
            }
        }
        w.assert_empty();
    }
}

/// Waits for the next IKE_FOLLOWUP_KE of node 0, and answers it with this error. Returns false when
/// none comes.
fn answer_with(w: &mut World, f: &mut Forger, kind: NotifyType) -> bool {
    let before = w.net.log.len();
    let sent = |w: &World| {
        let of = |s: &&(ironswan_testkit::Seen, ironswan_testkit::Packet)| {
            s.0.node == 0 && s.0.exchange == ExchangeType::IKE_FOLLOWUP_KE
        };
        w.net.log[before..].iter().find(of).map(|(s, _)| s.mid)
    };
    w.run_until(30 * S, |w| sent(w).is_some());
    let Some(mid) = sent(w) else { return false };
    let error = [Payload::Notify(Notify::new(kind, []))];
    let bytes = f.message(false, ExchangeType::IKE_FOLLOWUP_KE, true, mid, &error);
    w.inject(b(), a(), bytes);
    w.run(10 * MS);
    true
}

/// A world whose node 0 hears no answer to IKE_FOLLOWUP_KE.
fn deaf(seed: u64) -> (World, Forger) {
    let mut w = both(seed, ADD);
    w.establish(0).unwrap();
    let f = Forger::newest(&w.nodes[0]);
    w.net.rules.push(Box::new(|s| {
        if s.node == 1 && s.exchange == ExchangeType::IKE_FOLLOWUP_KE { Verdict::Drop } else { Verdict::Pass }
    }));
    (w, f)
}

#[test]
fn a_peer_that_has_forgotten_once_is_asked_again_later() {
    let (mut w, mut f) = deaf(8);
    let before = w.child(0).spi_in;
    w.rekey_child(0);
    assert!(answer_with(&mut w, &mut f, NotifyType::STATE_NOT_FOUND));
    assert!(w.nodes[0].logged("CHILD_SA rekeying failed, trying again"));
    w.net.rules.clear();
    w.run(REST);
    good(&w, "rekeyed again");
    assert_ne!(w.child(0).spi_in, before);
}

#[test]
fn a_peer_that_forgets_again_and_again_loses_the_ike_sa_by_a_delete() {
    let (mut w, mut f) = deaf(9);
    w.rekey_child(0);
    for n in 0..4 {
        assert_eq!(w.up(0).len(), 1, "{n}");
        assert!(answer_with(&mut w, &mut f, NotifyType::STATE_NOT_FOUND), "{n}");
    }
    w.run(S);
    assert!(w.up(0).is_empty() && w.up(1).is_empty());
    // Any other error is told likewise, and ends nothing.
    let (mut w, mut f) = deaf(10);
    w.rekey_child(0);
    for n in 0..6 {
        assert!(answer_with(&mut w, &mut f, NotifyType::TEMPORARY_FAILURE), "{n}");
    }
    assert_eq!(w.up(0).len(), 1);
}

#[test]
fn a_series_goes_on_with_its_own_link_only() {
    let (mut w, mut f) = deaf(11);
    w.net.rules.clear();
    w.net.rules.push(Box::new(|s| {
        if s.node == 0 && s.exchange == ExchangeType::IKE_FOLLOWUP_KE { Verdict::Drop } else { Verdict::Pass }
    }));
    w.rekey_child(0);
    w.run(S);
    let answers = |w: &World, f: &Forger, from: usize| -> Vec<Vec<Payload>> {
        let of_1 = w.net.log[from..].iter().filter(|(s, _)| s.node == 1 && s.response);
        of_1.filter_map(|(_, p)| f.open(&p.payload)).map(|(_, payloads)| payloads).collect()
    };
    let link = |payloads: &[Payload]| {
        find_notify(payloads, NotifyType::ADDITIONAL_KEY_EXCHANGE).map(|n| n.data.clone())
    };
    let first = answers(&w, &f, 0).iter().filter_map(|p| link(p)).next_back().expect("a link");
    let public = |group: KeId| {
        let data = ironswan_crypto::kex::generate(group, &[3; 32]).unwrap().1;
        Payload::Ke(ironswan_wire::ike::payload::Ke { group, data })
    };
    let linked =
        |data: &[u8]| Payload::Notify(Notify::new(NotifyType::ADDITIONAL_KEY_EXCHANGE, data.to_vec()));
    // IKE_SA_INIT, IKE_AUTH, CREATE_CHILD_SA.
    let mut mid = 2;
    let mut ask = |w: &mut World, f: &mut Forger, payloads: &[Payload]| {
        mid += 1;
        let (from, bytes) =
            (w.net.log.len(), f.message(true, ExchangeType::IKE_FOLLOWUP_KE, false, mid, payloads));
        w.inject(a(), b(), bytes);
        w.run(100 * MS);
        answers(w, f, from).remove(0)
    };
    let wrong = ask(&mut w, &mut f, &[public(KeId::ML_KEM_768), linked(b"of nobody")]);
    assert!(find_notify(&wrong, NotifyType::STATE_NOT_FOUND).is_some());
    let next = ask(&mut w, &mut f, &[public(KeId::ML_KEM_768), linked(&first)]);
    let second = link(&next).expect("a link to the second exchange");
    assert_ne!(first, second);
    let last = ask(&mut w, &mut f, &[public(KeId::ECP_256), linked(&second)]);
    assert!(link(&last).is_none() && last.iter().any(|p| matches!(p, Payload::Ke(_))), "{last:?}");
    let installed = w.nodes[1].keys.iter().filter(|k| matches!(k, KeyLog::Child { .. })).count();
    assert_eq!(installed, 4, "two children with two SAs each");
    let late = ask(&mut w, &mut f, &[public(KeId::ECP_256), linked(&second)]);
    assert!(find_notify(&late, NotifyType::STATE_NOT_FOUND).is_some());
}

#[test]
fn a_child_without_a_first_method_is_not_agreed_on() {
    let without = || vec![config::esp_proposal_with(&[], &[(1, KeId::ML_KEM_768)])];
    let mut w = world(12, without(), without());
    w.establish(0).unwrap();
    let before = w.child(0).spi_in;
    w.rekey_child(0);
    w.run(3 * S);
    assert_eq!(w.child(0).spi_in, before);
}
