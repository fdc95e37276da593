//! The end of an IKE_SA from which another one has taken over: its DELETE waits until the packets
//! that are under way on its CHILD_SAs have arrived, whatever else happens meanwhile.

use std::time::Duration;

use ironswan_crypto::kex;
use ironswan_ike::event::IkeSaInfo;
use ironswan_keying::limits::RETIRED_DELETE;
use ironswan_keying::{ChildAction, Connection, Limits, Target, Unique};
use ironswan_testkit::{Forger, Seen, Verdict, World, config};
use ironswan_wire::iana::{ExchangeType, KeId, NotifyType};
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::{Delete, Ke, Nonce, Notify};
use ironswan_wire::proposal::Proposal;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// Two gateways of which `of` makes the IKE_SA anew after 100 s. Neither keeps an SA that is
/// deleted, and ESP packets are slower than IKE messages.
fn world(seed: u64, of: usize, tweak: impl FnOnce(&mut [Connection; 2])) -> World {
    let limits = Limits { delete_rekeyed_delay: Duration::ZERO, ..Limits::default() };
    let mut w = World::pair_at(seed, config::ip("192.0.2.1"), config::ip("192.0.2.2"), limits, |c| {
        (c[of].reauth_time, c[of].over_time, c[of].rand_time) = (100 * S, 60 * S, Duration::ZERO);
        tweak(c);
    });
    w.net.delay = 20 * MS;
    w.esp_late = 300 * MS;
    w
}

/// The IKE_SAs of a node, the oldest first.
fn ike_sas(w: &World, node: usize) -> Vec<IkeSaInfo> {
    let mut up = w.up(node);
    up.sort_by_key(|sa| sa.id);
    up
}

/// Two gateways in the time between the new IKE_SA and the DELETE of the old one, which node 0 is
/// to send.
fn between(seed: u64, tweak: impl FnOnce(&mut [Connection; 2])) -> World {
    between_in(world(seed, 0, tweak))
}

/// The same in this world.
fn between_in(mut w: World) -> World {
    w.establish(0).unwrap();
    w.traffic = Some(5 * MS);
    assert!(w.run_until(110 * S, |w| w.nodes[0].logged("which is deleted in 2s")));
    assert_eq!((w.up(0).len(), w.up(1).len()), (2, 2));
    w
}

fn terminate(w: &mut World, node: usize, target: &Target) {
    let now = w.now();
    w.nodes[node].endpoint.terminate(now, target, false).unwrap();
}

fn lost(w: &World) -> (usize, usize) {
    (w.nodes[0].esp.1, w.nodes[1].esp.1)
}

/// One IKE_SA is left, which is not the old one, and it began no other.
fn assert_taken_over(w: &mut World, old: &IkeSaInfo) {
    w.run(10 * S);
    w.assert_one();
    let left = w.up(0);
    assert_ne!(left[0].id, old.id);
    assert_eq!(w.nodes[0].count_logged("IKE_SA gw[3]"), 0, "no third IKE_SA");
    w.traffic = None;
    w.audit();
}

#[test]
fn packets_that_are_slower_than_the_delete_are_not_lost() {
    for unique in [Unique::No, Unique::Replace, Unique::Never] {
        for of in 0..2 {
            // Both send, or one alone.
            for quiet in [None, Some(0), Some(1)] {
                let mut w = world(1, of, |c| c.iter_mut().for_each(|c| c.unique = unique));
                w.establish(0).unwrap();
                w.quiet.extend(quiet);
                w.traffic = Some(5 * MS);
                w.run(350 * S);
                let made = w.nodes[of].count_logged("reauthentication is due");
                assert_eq!(made, 3, "{unique:?}, {of}, {quiet:?}");
                assert_eq!(lost(&w), (0, 0), "{unique:?}, {of}, {quiet:?}");
                w.run(20 * S);
                w.assert_one();
                w.audit();
            }
        }
    }
}

#[test]
fn messages_may_be_lost_or_late_in_both_roles_and_no_packet_is_lost() {
    for of in 0..2 {
        let life = |w: &mut World| {
            w.establish(0).unwrap();
            w.traffic = Some(10 * MS);
            w.run(200 * S);
        };
        let mut plain = world(2, of, |_| {});
        life(&mut plain);
        let total = plain.net.count;
        assert!((10..20).contains(&total), "{total}");
        for k in 4..total {
            for verdict in [Verdict::Drop, Verdict::Delay(3 * S), Verdict::Delay(20 * S)] {
                let mut w = world(2, of, |_| {});
                let rule = move |s: &Seen| if s.index == k { verdict } else { Verdict::Pass };
                w.net.rules.push(Box::new(rule));
                life(&mut w);
                w.run_until(60 * S, |w| w.fault().is_none());
                w.assert_one();
                assert_eq!(lost(&w), (0, 0), "of {of}, message {k}: {verdict:?}");
            }
        }
    }
}

#[test]
fn the_delete_waits_and_traffic_does_not() {
    let mut w = between(3, |_| {});
    let (start, old) = (w.now(), ike_sas(&w, 0).remove(0));
    let sending = w.nodes[0].engine.sending().unwrap().spi;
    assert_ne!(sending, old.children[0].spi_out, "sends on the new CHILD_SA at once");
    let deletes = |w: &World| w.nodes[0].logged(&format!("deleting IKE_SA gw[{}]", old.id.0));
    assert!(w.run_until(10 * S, deletes));
    assert_eq!(w.now() - start, RETIRED_DELETE);
    assert_taken_over(&mut w, &old);
}

#[test]
fn the_peer_may_delete_the_old_one_first() {
    for action in [ChildAction::None, ChildAction::Trap, ChildAction::Start] {
        let mut w = between(4, |c| c[0].children[0].close_action = action);
        let olds = [0, 1].map(|node| ike_sas(&w, node).remove(0));
        w.run(1_500 * MS);
        terminate(&mut w, 1, &Target { ike_id: Some(olds[1].id.0), ..Target::default() });
        assert!(w.run_until(S, |w| w.up(0).len() == 1), "the peer was first");
        w.run(5 * S);
        assert_eq!(lost(&w), (0, 0), "{action:?}");
        if action == ChildAction::Trap {
            // The trap would stand beside the child: the peer has not closed its tunnel.
            assert_eq!(w.nodes[0].engine.policies.len(), 1);
        }
        assert_taken_over(&mut w, &olds[0]);
    }
}

#[test]
fn an_end_by_command_ends_both_at_once() {
    for node in 0..2 {
        let mut w = between(5, |_| {});
        terminate(&mut w, node, &Target { ike: Some("gw".to_owned()), ..Target::default() });
        w.run(500 * MS);
        assert!(w.up(0).is_empty() && w.up(1).is_empty(), "node {node}");
        w.traffic = None;
        w.audit();
    }
}

#[test]
fn an_unloaded_connection_ends_both_at_once() {
    let mut w = between(6, |c| c[0].children[0].start_action = ChildAction::Start);
    let now = w.now();
    w.nodes[0].endpoint.unload_connection(now, "gw");
    w.run(500 * MS);
    assert!(w.up(0).is_empty() && w.up(1).is_empty());
    w.audit();
}

#[test]
fn a_lifetime_that_is_over_does_not_wait() {
    // The new IKE_SA stands within 100 ms of the soft end; the hard one comes before the DELETE.
    let mut w = between(7, |c| {
        c[0].over_time = S;
        c[0].children[0].start_action = ChildAction::Start;
    });
    let old = ike_sas(&w, 0).remove(0);
    w.run(1_100 * MS);
    assert!(w.nodes[0].logged("IKE_SA lifetime is over") && w.up(0).len() == 1);
    assert_taken_over(&mut w, &old);
}

#[test]
fn nothing_new_begins_on_the_old_one() {
    let mut w = between(8, |_| {});
    let olds = [0, 1].map(|node| ike_sas(&w, node).remove(0));
    // The peer does not know that it goes.
    let target = Target { child_id: Some(olds[1].children[0].id.0), ..Target::default() };
    let now = w.now();
    let (_, child) = w.nodes[1].endpoint.rekey(now, &target, false).unwrap();
    w.run(100 * MS);
    assert!(w.nodes[1].done[&child].is_err());
    let target = Target { ike_id: Some(olds[1].id.0), ..Target::default() };
    let now = w.now();
    let (_, ike) = w.nodes[1].endpoint.rekey(now, &target, false).unwrap();
    w.run(100 * MS);
    assert!(w.nodes[1].done[&ike].is_err());
    // A command here means the new one alone.
    let now = w.now();
    let target = Target { ike: Some("gw".to_owned()), ..Target::default() };
    assert_eq!(w.nodes[0].endpoint.rekey(now, &target, false).unwrap().0, 1);
    w.run(10 * S);
    w.assert_one();
    assert_eq!(lost(&w), (0, 0));
    w.traffic = None;
    w.audit();
}

#[test]
fn the_new_one_may_end_before_the_old_one_has() {
    for action in [ChildAction::None, ChildAction::Start] {
        let mut w = between(9, |c| c[0].children[0].close_action = action);
        let new = ike_sas(&w, 1).remove(1);
        terminate(&mut w, 1, &Target { ike_id: Some(new.id.0), ..Target::default() });
        w.traffic = None;
        w.run(20 * S);
        match action {
            ChildAction::None => w.assert_empty(),
            _ => w.assert_one(),
        }
        w.audit();
    }
}

#[test]
fn an_address_that_goes_meanwhile_leaves_nothing_behind() {
    let mut w = between(10, |c| c.iter_mut().for_each(|c| c.mobike = true));
    let old = ike_sas(&w, 0).remove(0);
    w.readdress(0, vec![config::ip("192.0.2.7")]);
    w.run(5 * S);
    assert_eq!(w.up(0).len(), 1, "no DELETE waits for an answer at an address that is not ours");
    assert_ne!(w.up(0)[0].id, old.id);
}

#[test]
fn a_peer_that_breaks_before_it_makes_is_left_with_one() {
    for action in [ChildAction::None, ChildAction::Trap, ChildAction::Start] {
        let mut w = world(11, 1, |c| {
            c[1].reauth_time = Duration::ZERO;
            c[0].children[0].close_action = action;
        });
        w.establish(1).unwrap();
        w.traffic = Some(5 * MS);
        for _ in 0..5 {
            w.run(30 * S);
            terminate(&mut w, 1, &Target { ike: Some("gw".to_owned()), ..Target::default() });
            assert!(w.run_until(S, |w| w.nodes[1].logged("IKE_SA deleted")));
            w.initiate(1);
            // A half-open IKE_SA of an attempt that was given up ends within 30 s.
            w.run(35 * S);
            w.assert_one();
        }
        w.traffic = None;
        w.audit();
    }
}

#[test]
fn the_lost_delete_is_sent_again_and_costs_no_packet() {
    let mut w = between(12, |_| {});
    let old = ike_sas(&w, 0).remove(0);
    let mut left = 2;
    w.net.rules.push(Box::new(move |s: &Seen| match s.exchange {
        ExchangeType::INFORMATIONAL if left > 0 => {
            left -= 1;
            Verdict::Drop
        }
        _ => Verdict::Pass,
    }));
    w.run(30 * S);
    assert_eq!(lost(&w), (0, 0));
    assert_taken_over(&mut w, &old);
}

/// Like [`between`], and node 0 does not wait with the DELETE of the old IKE_SA, nor keeps its SAs.
fn hasty(seed: u64, quiet: &[usize]) -> World {
    let mut w = world(seed, 0, |_| {});
    w.esp_late = 150 * MS;
    w = between_in(w);
    w.quiet.extend(quiet);
    let old = ike_sas(&w, 0).remove(0);
    terminate(&mut w, 0, &Target { ike_id: Some(old.id.0), ..Target::default() });
    w
}

#[test]
fn the_answer_to_a_hasty_delete_waits_for_packets_that_are_under_way() {
    for quiet in [&[][..], &[0]] {
        for lose in [None, Some(false), Some(true)] {
            let mut w = hasty(13, quiet);
            // The DELETE itself, or the answer to it.
            let mut left = lose.is_some();
            w.net.rules.push(Box::new(move |s: &Seen| {
                let it = s.exchange == ExchangeType::INFORMATIONAL && lose == Some(s.response);
                if it && std::mem::take(&mut left) { Verdict::Drop } else { Verdict::Pass }
            }));
            let start = w.now();
            assert!(w.run_until(10 * S, |w| w.up(0).len() == 1));
            let took = w.now() - start;
            assert!(took >= 200 * MS && (lose.is_some() || took < S), "{took:?}");
            w.run(5 * S);
            assert_eq!(lost(&w), (0, 0), "{quiet:?}, {lose:?}");
            w.assert_one();
            w.traffic = None;
            w.audit();
        }
    }
}

#[test]
fn an_end_by_command_while_the_answer_waits_leaves_nothing() {
    for force in [false, true] {
        let mut w = hasty(14, &[]);
        w.run(100 * MS);
        assert_eq!(w.up(1).len(), 2, "the answer waits");
        let now = w.now();
        let target = Target { ike: Some("gw".to_owned()), ..Target::default() };
        w.nodes[1].endpoint.terminate(now, &target, force).unwrap();
        w.traffic = None;
        w.run(10 * S);
        w.assert_empty();
        w.audit();
    }
}

/// Like [`hasty`], with the DELETE of node 1, which has answered the new IKE_SA: traffic of node 1
/// moves when it sees that node 0 has the new CHILD_SA.
fn hasty_responder(seed: u64, quiet: &[usize]) -> World {
    let mut w = world(seed, 0, |_| {});
    w.esp_late = 150 * MS;
    w = between_in(w);
    w.quiet.extend(quiet);
    let old = ike_sas(&w, 1).remove(0);
    terminate(&mut w, 1, &Target { ike_id: Some(old.id.0), ..Target::default() });
    w
}

#[test]
fn an_initiator_answers_a_hasty_delete_no_sooner_than_a_responder() {
    for quiet in [&[][..], &[0], &[1]] {
        let mut w = hasty_responder(15, quiet);
        let start = w.now();
        assert!(w.run_until(10 * S, |w| w.up(0).len() == 1));
        let took = w.now() - start;
        assert!(took >= 150 * MS && took < S, "{quiet:?}, {took:?}");
        w.run(5 * S);
        assert_eq!(lost(&w), (0, 0), "{quiet:?}");
        w.assert_one();
        w.traffic = None;
        w.audit();
    }
}

/// A request of node 1 on the old IKE_SA, which node 0 has initiated.
fn of_old(w: &World, old: &IkeSaInfo, payloads: &[Payload]) -> Vec<u8> {
    let mut forger = Forger::of(&w.nodes[1], Some(old.spi_i));
    forger.message(false, ExchangeType::INFORMATIONAL, false, 0, payloads)
}

#[test]
fn a_request_that_comes_again_while_the_answer_waits_is_worked_on_once() {
    let error = Payload::Notify(Notify::new(NotifyType::AUTHENTICATION_FAILED, []));
    for payloads in [vec![error], vec![Payload::Delete(Delete::ike_sa())]] {
        let mut w = between(16, |_| {});
        let old = ike_sas(&w, 0).remove(0);
        let (bytes, lines) = (of_old(&w, &old, &payloads), w.nodes[0].log.len());
        for _ in 0..300 {
            w.inject(old.remote, old.local, bytes.clone());
        }
        // Another request under the same message ID is not worked on at all.
        let other = of_old(&w, &old, &[]);
        w.inject(old.remote, old.local, other);
        w.run(100 * MS);
        assert!(w.nodes[0].log.len() <= lines + 2, "{:?}", &w.nodes[0].log[lines..][..4]);
        assert_eq!(w.up(0).len(), 2, "the answer waits");
        w.run(S);
        assert_eq!(w.up(0).len(), 1);
        let ours = |s: &Seen| s.node == 0 && s.response && s.mid == 0;
        let of_this = |p: &[u8]| p.starts_with(&old.spi_i.to_be_bytes());
        let answers = w.net.log.iter().filter(|(s, p)| ours(s) && of_this(&p.payload));
        assert_eq!(answers.count(), 1);
    }
}

#[test]
fn a_rekeying_that_is_answered_after_the_delete_leaves_no_ike_sa() {
    // Node 1 has made the IKE_SA anew, and sends nothing through it yet.
    let mut w = world(17, 1, |_| {});
    w.establish(0).unwrap();
    w.quiet.insert(1);
    w.traffic = Some(5 * MS);
    assert!(w.run_until(110 * S, |w| w.nodes[1].logged("which is deleted in 2s")));
    let old = ike_sas(&w, 0).remove(0);
    // Our request to rekey the old one is under way when its DELETE comes, and is granted then.
    let target = Target { ike_id: Some(old.id.0), ..Target::default() };
    let now = w.now();
    w.nodes[0].endpoint.rekey(now, &target, false).unwrap();
    w.net.mute.insert(1);
    w.run(5 * MS);
    let delete = of_old(&w, &old, &[Payload::Delete(Delete::ike_sa())]);
    w.inject(old.remote, old.local, delete);
    w.run(50 * MS);
    let granted = [
        Payload::Sa(vec![Proposal { spi: vec![7; 8], ..config::ike_proposal(&[KeId::CURVE_25519]) }]),
        Payload::Nonce(Nonce(vec![1; 32])),
        Payload::Ke(Ke {
            group: KeId::CURVE_25519,
            data: kex::generate(KeId::CURVE_25519, &[5; 32]).unwrap().1,
        }),
    ];
    let mut forger = Forger::of(&w.nodes[1], Some(old.spi_i));
    let answer = forger.message(false, ExchangeType::CREATE_CHILD_SA, true, 2, &granted);
    w.inject(old.remote, old.local, answer);
    w.run(S);
    assert_eq!(w.up(0).len(), 1, "{:?}", w.nodes[0].log.iter().rev().take(9).collect::<Vec<_>>());
    assert!(w.up(0)[0].id > old.id && w.nodes[0].count_logged(" rekeyed between") == 0);
    w.net.mute.clear();
    w.run(200 * S);
    w.traffic = None;
    w.audit();
}

/// Makes the newest IKE_SA anew at this node, by a command.
fn renew(w: &mut World, node: usize) {
    let (now, newest) = (w.now(), ike_sas(w, node).pop().unwrap().id);
    let target = Target { ike_id: Some(newest.0), ..Target::default() };
    w.nodes[node].endpoint.rekey(now, &target, true).unwrap();
    assert!(w.run_until(S, |w| (0..2).all(|n| ike_sas(w, n).last().unwrap().id > newest)));
}

#[test]
fn an_ike_sa_that_has_taken_over_may_be_replaced_before_the_first_has_gone() {
    for action in [ChildAction::Trap, ChildAction::Start] {
        for of in 0..2 {
            for (quiet, pause) in [(None, 10), (None, 250), (Some(0), 10), (Some(1), 10), (Some(of), 600)] {
                let mut w = world(18, of, |c| c.iter_mut().for_each(|c| c.children[0].close_action = action));
                w.establish(0).unwrap();
                w.quiet.extend(quiet);
                w.traffic = Some(5 * MS);
                for _ in 0..3 {
                    w.run(pause * MS);
                    renew(&mut w, of);
                }
                assert_eq!(w.up(of).len(), 4);
                w.run(20 * S);
                let case = format!("{action:?}, of {of}, {quiet:?}, {pause}");
                assert_eq!(lost(&w), (0, 0), "{case}");
                w.assert_one();
                for node in 0..2 {
                    assert_eq!(w.nodes[node].count_logged("IKE_SA gw[5]"), 0, "{case}, node {node}");
                    assert_eq!(w.nodes[node].engine.policies.len(), 1, "{case}, node {node}");
                }
                w.audit();
            }
        }
    }
}

#[test]
fn a_chain_may_end_in_any_order() {
    for of in 0..2 {
        for by in 0..2 {
            for first in 0..3 {
                let mut w = world(19, of, |c| {
                    c.iter_mut().for_each(|c| c.children[0].close_action = ChildAction::Start);
                });
                w.esp_late = 150 * MS;
                w.establish(0).unwrap();
                w.traffic = Some(5 * MS);
                (0..2).for_each(|_| renew(&mut w, of));
                let (last, gone) = (ike_sas(&w, of).pop().unwrap().id, ike_sas(&w, by).remove(first));
                terminate(&mut w, by, &Target { ike_id: Some(gone.id.0), ..Target::default() });
                w.run(20 * S);
                let case = format!("of {of}, by {by}, first {first}");
                w.assert_one();
                if first < 2 {
                    assert_eq!(w.up(of)[0].id, last, "{case}");
                    assert_eq!(lost(&w), (0, 0), "{case}");
                }
                let got = (w.nodes[0].esp.0, w.nodes[1].esp.0);
                w.run(S);
                assert!(w.nodes[0].esp.0 > got.0 && w.nodes[1].esp.0 > got.1, "{case}");
                w.audit();
            }
        }
    }
}

#[test]
fn the_child_that_takes_over_may_be_rekeyed_before_the_old_one_has_gone() {
    for of in 0..2 {
        for by in 0..2 {
            let mut w = world(20, of, |c| {
                c.iter_mut().for_each(|c| c.children[0].close_action = ChildAction::Start);
            });
            w.establish(0).unwrap();
            w.traffic = Some(5 * MS);
            renew(&mut w, of);
            w.run(600 * MS);
            let (now, new) = (w.now(), ike_sas(&w, by).pop().unwrap());
            let target = Target { child_id: Some(new.children[0].id.0), ..Target::default() };
            w.nodes[by].endpoint.rekey(now, &target, false).unwrap();
            w.run(20 * S);
            w.assert_one();
            assert!((0..2).all(|n| w.nodes[n].count_logged("IKE_SA gw[3]") == 0), "of {of}, by {by}");
            w.audit();
        }
    }
}
