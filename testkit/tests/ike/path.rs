//! The size of packets that a path carries is measured: after set-up, after moves and every hour,
//! on wide and narrow paths, with losses, beside everything else that an IKE_SA does, and with
//! peers that refuse or answer wrongly.

use std::time::Duration;

use ironswan_ike::event::{Cut, Event, KnownPath, PathMtu};
use ironswan_keying::diagnosis::{Path, ProbeRefusal};
use ironswan_keying::{ChildAction, Connection, Diagnosis, Fragmentation, Limits};
use ironswan_testkit::net::Nat;
use ironswan_testkit::{Forger, Node, Seen, Verdict, World, config};
use ironswan_wire::iana::{ExchangeType, KeId, NotifyType};
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::{Delete, Notify};

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);
/// Longer than a search takes on any path of these stories.
const SEARCH: Duration = Duration::from_secs(20);

/// Two gateways, of which node 0 measures, or both.
fn world(seed: u64, both: bool, tweak: impl FnOnce(&mut [Connection; 2])) -> World {
    World::pair(seed, |c| {
        (c[0].path_probe, c[1].path_probe) = (true, both);
        tweak(c);
    })
}

/// The same with an IKE_SA, on a way from node 0 that is narrow.
fn narrow(seed: u64, mtu: usize, tweak: impl FnOnce(&mut [Connection; 2])) -> World {
    let mut w = world(seed, false, tweak);
    w.net.mtu.insert(0, mtu);
    w.establish(0).unwrap();
    w
}

/// Probes that a node has sent: bytes of each.
fn probes(w: &World, node: usize) -> Vec<usize> {
    let of = |s: &Seen| s.node == node && s.cut == Cut::Forbidden;
    w.net.log.iter().filter(|(s, _)| of(s)).map(|(s, _)| s.bytes).collect()
}

/// Result of the last measurement of a node.
fn found(w: &World, node: usize) -> Option<PathMtu> {
    w.up(node)[0].path_mtu
}

fn proven(w: &World, node: usize) -> Option<(u32, bool)> {
    found(w, node).map(|f| (f.proven, f.narrow))
}

/// Results that the data plane of a node was told.
fn told(node: &Node) -> Vec<Option<u32>> {
    let mtu = |e: &Event| if let Event::PathMtu { mtu, .. } = e { Some(*mtu) } else { None };
    node.events.iter().filter_map(mtu).collect()
}

/// Diagnoses about narrow paths.
fn narrows(node: &Node) -> Vec<(u32, u32)> {
    let of = |why: &Diagnosis| match why {
        Diagnosis::Path(Path::Narrow { believed, found, .. }) => Some((*believed, *found)),
        _ => None,
    };
    node.failures.iter().filter_map(of).collect()
}

/// Ways in which the peer of a node has refused.
fn refusals(node: &Node) -> Vec<ProbeRefusal> {
    let of = |why: &Diagnosis| match why {
        Diagnosis::Path(Path::ProbeRefused { how, .. }) => Some(*how),
        _ => None,
    };
    node.failures.iter().filter_map(of).collect()
}

#[test]
fn a_wide_path_takes_one_message_after_set_up_and_one_an_hour() {
    let mut w = world(1, true, |_| {});
    w.establish(0).unwrap();
    assert!(probes(&w, 0).is_empty(), "what is set up together goes first");
    w.run(5 * S);
    for node in 0..2 {
        assert_eq!(probes(&w, node), [1_500]);
        assert_eq!((proven(&w, node), narrows(&w.nodes[node])), (Some((1_500, false)), vec![]));
        assert_eq!(told(&w.nodes[node]), [None]);
    }
    let before = w.net.count;
    w.run(50 * 3_600 * S);
    for node in 0..2 {
        let count = probes(&w, node).len();
        assert!((1 + 40..1 + 67).contains(&count), "node {node}: {count} in 50 hours");
        assert!(found(&w, node).unwrap().age <= 75 * 60 * S);
    }
    assert_eq!(
        w.net.count - before,
        2 * (probes(&w, 0).len() + probes(&w, 1).len() - 2),
        "nothing else is sent"
    );
    w.assert_one();
    w.audit();
}

#[test]
fn without_path_probe_nothing_is_measured_and_a_reload_obeys() {
    let mut w = World::pair(2, |_| {});
    w.establish(0).unwrap();
    w.run(10 * 3_600 * S);
    assert!(probes(&w, 0).is_empty() && probes(&w, 1).is_empty());
    let reload = |w: &mut World, on| {
        let now = w.now();
        let conn = Connection { path_probe: on, ..w.nodes[0].connection("gw") };
        w.nodes[0].endpoint.load_connection(now, conn);
        w.run(5 * S);
    };
    let before = w.up(0)[0].id;
    reload(&mut w, true);
    assert_eq!(probes(&w, 0).len(), 1);
    reload(&mut w, false);
    w.run(10 * 3_600 * S);
    assert_eq!((probes(&w, 0).len(), w.up(0)[0].id), (1, before), "the IKE_SA goes on");
    w.audit();
}

#[test]
fn a_narrow_path_is_found_told_once_and_ends_nothing() {
    for (mtu, exact) in [(1_300, 1_300), (1_499, 1_492), (1_433, 1_420), (1_310, 1_300), (600, 576)] {
        let mut w = narrow(3, mtu, |_| {});
        w.run(SEARCH);
        assert_eq!(proven(&w, 0), Some((exact, true)), "{mtu}: {:?}", probes(&w, 0));
        assert_eq!(told(&w.nodes[0]), [Some(exact)]);
        assert_eq!(narrows(&w.nodes[0]), [(1_500, exact)]);
        let searched = probes(&w, 0).len();
        assert!(searched <= 11, "{:?}", probes(&w, 0));
        // It stays so: an hour later three messages say the same, and nobody hears of it again. Of
        // 1,492 bytes, the next larger size is what we believe.
        w.run(75 * 60 * S);
        let again = if exact == 1_492 { 2 } else { 3 };
        assert_eq!(probes(&w, 0).len(), searched + again, "{:?}", probes(&w, 0));
        assert_eq!((proven(&w, 0), narrows(&w.nodes[0]).len()), (Some((exact, true)), 1));
        w.assert_one();
        w.terminate(0, false);
        w.run(S);
        assert_eq!(told(&w.nodes[0]).last(), Some(&None), "nobody measures it any more");
        w.audit();
    }
}

#[test]
fn a_path_that_is_wide_again_is_found_and_one_that_becomes_narrow_later() {
    let mut w = narrow(4, 1_300, |_| {});
    w.run(SEARCH);
    w.net.mtu.clear();
    w.run(80 * 60 * S);
    assert_eq!(told(&w.nodes[0]), [Some(1_300), None]);
    assert_eq!(proven(&w, 0), Some((1_500, false)));
    assert!(w.nodes[0].logged("the path to 192.0.2.2 carries packets of 1500 bytes"));
    w.net.mtu.insert(0, 1_420);
    w.run(80 * 60 * S);
    assert_eq!(told(&w.nodes[0]), [Some(1_300), None, Some(1_420)]);
    assert_eq!(narrows(&w.nodes[0]), [(1_500, 1_300), (1_500, 1_420)]);
    w.assert_one();
    w.audit();
}

#[test]
fn only_the_direction_to_the_peer_is_measured() {
    let mut w = world(5, true, |_| {});
    w.net.mtu.insert(1, 1_300);
    w.establish(0).unwrap();
    w.run(SEARCH);
    assert_eq!((proven(&w, 0), proven(&w, 1)), (Some((1_500, false)), Some((1_300, true))));
    assert!(narrows(&w.nodes[0]).is_empty());
    w.assert_one();
    w.audit();
}

#[test]
fn a_path_that_is_narrow_both_ways_and_drops_fragments_of_ip_ends_nothing() {
    // With fragments of IKE, with an end that sends none, and with one that takes none.
    for (seed, of) in [(6, Fragmentation::Yes), (7, Fragmentation::Accept), (8, Fragmentation::No)] {
        for no_fragments in [false, true] {
            let mut w = world(seed, true, |c| c[0].fragmentation = of);
            w.net.mtu.extend([(0, 1_300), (1, 1_350)]);
            w.net.no_fragments = no_fragments;
            w.establish(0).unwrap();
            w.run(100 * S);
            assert_eq!((proven(&w, 0), proven(&w, 1)), (Some((1_300, true)), Some((1_350, true))), "{of:?}");
            w.run(3 * 3_600 * S);
            assert!(w.nodes.iter().all(|n| refusals(n).is_empty()));
            w.assert_one();
            w.audit();
        }
    }
}

#[test]
fn over_ipv6_no_router_makes_fragments_and_no_ike_sa_ends() {
    for fragmentation in [Fragmentation::Yes, Fragmentation::No] {
        let (a, b) = (config::ip("2001:db8::1"), config::ip("2001:db8::2"));
        let mut w = World::pair_at(9, a, b, Limits::default(), |c| {
            c[0].path_probe = true;
            c[0].fragmentation = fragmentation;
        });
        w.net.mtu.insert(0, 1_300);
        w.establish(0).unwrap();
        w.run(12 * S);
        assert_eq!(proven(&w, 0), Some((1_300, true)), "{fragmentation:?}");
        w.assert_one();
        w.audit();
    }
}

#[test]
fn the_size_is_that_of_the_ip_packet_in_every_shape() {
    // Without marker and with it, AEAD and CBC, whose messages grow by 16 bytes.
    for (seed, encap, cbc, want) in [
        (10, false, false, 1_500),
        (11, true, false, 1_500),
        (12, false, true, 1_500),
        (13, true, true, 1_488),
    ] {
        let mut w = world(seed, false, |c| {
            for c in c {
                c.encap = encap;
                if cbc {
                    c.proposals = vec![config::ike_proposal_cbc(&[KeId::CURVE_25519])];
                }
            }
        });
        w.establish(0).unwrap();
        w.run(5 * S);
        assert_eq!((probes(&w, 0), proven(&w, 0)), (vec![want], Some((want as u32, false))));
        w.audit();
    }
}

#[test]
fn what_is_believed_is_tried_first_and_an_icmp_error_is_told() {
    for (mtu, passes) in [(1_400, true), (9_000, true), (65_535, true), (1_400, false)] {
        let mut w = world(14, false, |_| {});
        w.nodes[0].known_path = Some(KnownPath { mtu, told: Some(1_250) });
        if !passes {
            w.net.mtu.insert(0, 1_200);
        }
        w.establish(0).unwrap();
        w.run(SEARCH);
        let most = mtu.min(9_000);
        assert_eq!(probes(&w, 0)[0], most as usize);
        if passes {
            assert_eq!(proven(&w, 0), Some((most, false)));
        } else {
            let told = Some(1_250);
            let (local, remote) = (config::ip("192.0.2.1"), config::ip("192.0.2.2"));
            let why = Path::Narrow { local, remote, believed: 1_400, found: 1_200, told };
            assert!(w.nodes[0].failures.contains(&why.into()), "{:?}", w.nodes[0].failures);
        }
        w.audit();
    }
    // Nothing is measured where a result could not be used, and it is asked again.
    let mut w = world(15, false, |_| {});
    w.nodes[0].known_path = None;
    w.establish(0).unwrap();
    w.run(SEARCH);
    assert!(probes(&w, 0).is_empty());
    w.nodes[0].known_path = Some(KnownPath { mtu: 1_500, told: None });
    w.run(80 * 60 * S);
    assert_eq!(probes(&w, 0), [1_500]);
    w.audit();
}

#[test]
fn every_datagram_of_a_measurement_may_be_lost_or_late() {
    for mtu in [1_500, 1_300] {
        let mut w = narrow(16, mtu, |_| {});
        let first = w.net.count;
        w.run(SEARCH);
        let total = w.net.count;
        assert!(total > first);
        for k in first..total {
            for verdict in [Verdict::Drop, Verdict::Delay(300 * MS), Verdict::Delay(2 * S)] {
                let mut w = world(16, false, |_| {});
                w.net.mtu.insert(0, mtu);
                w.net.rules.push(Box::new(move |s| if s.index == k { verdict } else { Verdict::Pass }));
                w.establish(0).unwrap();
                w.run(40 * S);
                let what = format!("{mtu}, {k} of {total}: {verdict:?}");
                assert_eq!(proven(&w, 0), Some((mtu as u32, mtu < 1_500)), "{what}: {:?}", probes(&w, 0));
                assert_eq!(narrows(&w.nodes[0]).len(), usize::from(mtu < 1_500), "{what}");
                w.assert_one();
                w.audit();
            }
        }
    }
}

#[test]
fn on_lossy_paths_nothing_is_called_wider_than_it_is_and_no_ike_sa_ends() {
    for seed in 0..40 {
        let mtu = [1_500, 1_420, 1_300, 1_000][seed as usize % 4];
        let mut w = world(100 + seed, true, |_| {});
        w.net.mtu.insert(0, mtu);
        (w.net.loss, w.net.duplicate, w.net.jitter) = (100, 100, 40 * MS);
        // Its commands may fail.
        let _ = w.establish(0);
        if w.up(0).is_empty() || w.up(1).is_empty() {
            continue;
        }
        let id = w.up(0)[0].id;
        w.run(5 * 3_600 * S);
        assert_eq!(w.up(0)[0].id, id, "seed {seed}");
        let f = found(&w, 0);
        assert!(f.is_none_or(|f| f.proven as usize <= mtu), "seed {seed}: {f:?}");
        (w.net.loss, w.net.duplicate) = (0, 0);
        w.run(200 * S);
        w.assert_one();
        w.audit();
    }
}

#[test]
fn answers_that_come_after_a_second_say_nothing() {
    // A satellite, 1.2 s there and back; and a way of 0.8 s that is narrow.
    for (seed, delay, mtu) in [(17, 600 * MS, 1_500), (18, 600 * MS, 1_300), (19, 400 * MS, 1_300)] {
        let mut w = world(seed, false, |_| {});
        w.net.delay = delay;
        w.net.mtu.insert(0, mtu);
        w.establish(0).unwrap();
        w.run(60 * S);
        assert!(!probes(&w, 0).is_empty());
        assert_eq!((found(&w, 0), told(&w.nodes[0])), (None, vec![]), "{delay:?}, {mtu}");
        w.assert_one();
        w.audit();
    }
    // The same way when it is wide: an answer before the second copy is proof.
    let mut w = world(20, false, |_| {});
    w.net.delay = 400 * MS;
    w.establish(0).unwrap();
    w.run(60 * S);
    assert_eq!(proven(&w, 0), Some((1_500, false)));
    w.audit();
}

/// Runs until node 0 has sent its first probe, and a moment more.
fn until_probe(w: &mut World) {
    assert!(w.run_until(60 * S, |w| !probes(w, 0).is_empty()));
    w.run(100 * MS);
}

#[test]
fn rekeying_and_liveness_wait_a_second_at_most() {
    for round in 0..4 {
        let mut w = narrow(21, 1_300, |c| c[0].dpd_delay = 1_200 * MS);
        until_probe(&mut w);
        let began = w.now();
        let ticket = match round {
            0 => Some(w.rekey_child(0)),
            1 => Some(w.rekey_ike(0)),
            2 => Some(w.terminate(0, true)),
            // The liveness check is due.
            _ => None,
        };
        let asked = w.net.count;
        let done = match ticket {
            Some(ticket) => w.run_until(60 * S, |w| w.nodes[0].done.contains_key(&ticket)),
            None => {
                w.run_until(60 * S, |w| w.net.log[asked..].iter().any(|(s, _)| s.node == 1 && s.response))
            }
        };
        let took = w.now() - began;
        assert!(done && took <= 1_200 * MS, "round {round}: {took:?}");
        w.run(60 * S);
        if round != 2 {
            // The measurement goes on behind it.
            assert_eq!(proven(&w, 0), Some((1_300, true)), "round {round}");
            w.assert_one();
        }
        w.audit();
    }
}

#[test]
fn a_probe_waits_for_everything_else() {
    let mut w = world(22, false, |_| {});
    w.establish(0).unwrap();
    // A rekeying stays without answer for a while.
    w.net.rules.push(Box::new(|s| match s.exchange == ExchangeType::CREATE_CHILD_SA && s.index < 30 {
        true => Verdict::Delay(3 * S),
        false => Verdict::Pass,
    }));
    w.rekey_child(0);
    w.run(2 * S);
    assert!(probes(&w, 0).is_empty());
    w.run(20 * S);
    assert_eq!(probes(&w, 0), [1_500]);
    w.assert_one();
    w.audit();
}

#[test]
fn the_peer_may_rekey_move_and_close_while_a_probe_is_in_flight() {
    for round in 0..3 {
        let mut w = narrow(23, 1_300, |_| {});
        until_probe(&mut w);
        match round {
            0 => _ = w.rekey_ike(1),
            1 => _ = w.rekey_child(1),
            _ => _ = w.terminate(1, false),
        }
        w.run(40 * S);
        if round == 2 {
            w.assert_empty();
        } else {
            assert_eq!(proven(&w, 0), Some((1_300, true)), "round {round}");
            w.assert_one();
        }
        w.audit();
    }
}

#[test]
fn the_successor_of_an_ike_sa_keeps_result_and_hour() {
    let mut w = narrow(24, 1_300, |_| {});
    w.run(SEARCH);
    let count = probes(&w, 0).len();
    for node in [0, 1, 0, 1, 0, 1] {
        w.rekey_ike(node);
        w.run(9 * 60 * S);
        assert_eq!(proven(&w, 0), Some((1_300, true)), "after a rekeying by {node}");
    }
    w.run(30 * 60 * S);
    let more = probes(&w, 0).len() - count;
    assert!((1..=6).contains(&more), "rekeyings put it off no more, and ask for none: {more}");
    assert_eq!(narrows(&w.nodes[0]).len(), 1);
    assert!(told(&w.nodes[0]).iter().all(|mtu| *mtu == Some(1_300)));
    w.assert_one();
    w.audit();
}

#[test]
fn a_move_in_the_middle_of_a_probe_measures_the_new_path() {
    let mut w = narrow(25, 1_300, |c| c.iter_mut().for_each(|c| (c.mobike, c.local_addrs) = (true, vec![])));
    w.network_changed(0);
    until_probe(&mut w);
    w.readdress(0, vec![config::ip("198.51.100.20")]);
    w.net.mtu.insert(0, 1_420);
    w.run(40 * S);
    assert_eq!(proven(&w, 0), Some((1_420, true)), "{:?}", probes(&w, 0));
    assert_eq!(narrows(&w.nodes[0]), [(1_500, 1_420)]);
    w.assert_one();
    // And once more, to a wide one.
    w.readdress(0, vec![config::ip("198.51.100.21")]);
    w.net.mtu.clear();
    w.run(40 * S);
    assert_eq!((proven(&w, 0), told(&w.nodes[0])), (Some((1_500, false)), vec![Some(1_420), None]));
    w.audit();
}

#[test]
fn a_peer_behind_a_nat_that_comes_from_another_port_is_measured_anew() {
    let mut w = World::pair(26, |c| {
        c[1].path_probe = true;
        c[0].dpd_delay = 30 * S;
        c[1].remote_addrs = vec![];
    });
    w.net.nat = Some(Nat::new(config::ip("192.0.2.1"), config::ip("203.0.113.9")));
    w.establish(0).unwrap();
    w.run(20 * S);
    assert_eq!(probes(&w, 1), [1_500]);
    if let Some(nat) = &mut w.net.nat {
        nat.rebind();
    }
    w.net.mtu.insert(1, 1_300);
    w.run(100 * S);
    assert_eq!(proven(&w, 1), Some((1_300, true)), "{:?}", probes(&w, 1));
    w.assert_one();
    w.audit();
}

/// Node 0 has an IKE_SA and a probe in flight that node 1 does not see. Keys of both.
fn unseen(seed: u64, tweak: impl FnOnce(&mut [Connection; 2])) -> (World, Forger, u32) {
    let mut w = world(seed, false, tweak);
    w.establish(0).unwrap();
    w.net.rules.push(Box::new(|s| match s.node == 0 && s.exchange == ExchangeType::INFORMATIONAL {
        true => Verdict::Drop,
        false => Verdict::Pass,
    }));
    until_probe(&mut w);
    let f = Forger::newest(&w.nodes[0]);
    let mid = w.net.log.last().unwrap().0.mid;
    (w, f, mid)
}

/// A message from node 1 to node 0.
fn from_peer(w: &mut World, bytes: Vec<u8>) {
    let (to, from) = (w.up(0)[0].local, w.up(0)[0].remote);
    w.inject(from, to, bytes);
    w.run(100 * MS);
}

#[test]
fn wrong_answers_change_nothing() {
    const INFO: ExchangeType = ExchangeType::INFORMATIONAL;
    let other = Payload::Notify(Notify::new(NotifyType::INITIAL_CONTACT, []));
    let huge = Payload::Notify(Notify::new(NotifyType(50_001), vec![7; 9_000]));
    let mine = Payload::Notify(Notify::new(NotifyType::PATH_PROBE, vec![7; 10]));
    for round in 0..8 {
        let (mut w, mut f, mid) = unseen(27, |_| {});
        let id = w.up(0)[0].id;
        let wrong = match round {
            0 => f.message(false, INFO, true, mid + 1, &[]),
            1 => f.message(false, INFO, true, mid - 1, &[]),
            2 => f.message(false, ExchangeType::CREATE_CHILD_SA, true, mid, &[]),
            3 => vec![0xa5; 1_400],
            4 => {
                let mut bytes = f.message(false, INFO, true, mid, &[]);
                *bytes.last_mut().unwrap() ^= 1;
                bytes
            }
            5 => f.message(false, INFO, true, mid, std::slice::from_ref(&other)),
            6 => f.message(false, INFO, true, mid, std::slice::from_ref(&huge)),
            _ => f.message(false, INFO, true, mid, std::slice::from_ref(&mine)),
        };
        from_peer(&mut w, wrong);
        // An authentic answer is one, whatever it says besides.
        let want = if round >= 5 { Some((1_500, false)) } else { None };
        assert_eq!((proven(&w, 0), w.up(0)[0].id), (want, id), "round {round}");
        w.net.rules.clear();
        w.run(60 * S);
        assert_eq!(w.up(0)[0].id, id, "round {round}");
        assert_eq!((proven(&w, 0), narrows(&w.nodes[0])), (Some((1_500, false)), vec![]), "round {round}");
        assert!(refusals(&w.nodes[0]).is_empty());
    }
}

#[test]
fn an_answer_that_says_no_or_cannot_be_read_ends_the_measuring_and_nothing_else() {
    for unreadable in [false, true] {
        let (mut w, mut f, mid) = unseen(28, |_| {});
        let id = w.up(0)[0].id;
        let no = Payload::Notify(Notify::new(NotifyType::INVALID_SELECTORS, []));
        let (bytes, how) = match unreadable {
            // A payload that is longer than the message.
            true => {
                let first = ironswan_wire::iana::PayloadType::NOTIFY;
                let bytes = f.raw(false, ExchangeType::INFORMATIONAL, true, mid, first, &[0, 0, 99, 99]);
                (bytes, ProbeRefusal::Unreadable)
            }
            false => {
                let bytes = f.message(false, ExchangeType::INFORMATIONAL, true, mid, &[no]);
                (bytes, ProbeRefusal::Error(NotifyType::INVALID_SELECTORS))
            }
        };
        from_peer(&mut w, bytes);
        w.net.rules.clear();
        assert_eq!((refusals(&w.nodes[0]), found(&w, 0), w.up(0)[0].id), (vec![how], None, id));
        let count = probes(&w, 0).len();
        w.run(10 * 3_600 * S);
        assert_eq!((probes(&w, 0).len(), w.up(0)[0].id), (count, id), "it is asked no more");
    }
}

#[test]
fn a_peer_that_ends_the_ike_sa_at_a_probe_gets_it_back_and_no_probe_any_more() {
    const INFO: ExchangeType = ExchangeType::INFORMATIONAL;
    // An error that ends it at both sides, a DELETE, and no answer at all.
    for (round, how) in
        [ProbeRefusal::Error(NotifyType::INVALID_SYNTAX), ProbeRefusal::Deleted, ProbeRefusal::Silent]
            .into_iter()
            .enumerate()
    {
        for dpd_action in [ChildAction::None, ChildAction::Start] {
            let (mut w, mut f, mid) = unseen(29, |c| {
                c[0].dpd_delay = 3_600 * 24 * S;
                c[0].children[0].dpd_action = dpd_action;
                // A peer that closes a tunnel may do so on somebody's command: it comes back if it
                // is to be up always.
                c[0].children[0].start_action = ChildAction::Start;
                c[1].unique = ironswan_keying::Unique::Replace;
            });
            let first = w.up(0)[0].id;
            let bytes = match round {
                0 => {
                    let syntax = Payload::Notify(Notify::new(NotifyType::INVALID_SYNTAX, []));
                    Some(f.message(false, INFO, true, mid, &[syntax]))
                }
                1 => Some(f.message(false, INFO, false, 0, &[Payload::Delete(Delete::ike_sa())])),
                _ => None,
            };
            if let Some(bytes) = bytes {
                from_peer(&mut w, bytes);
            } else {
                w.run(200 * S);
            }
            w.net.rules.clear();
            w.run(20 * S);
            assert_eq!(refusals(&w.nodes[0]), [how]);
            if how == ProbeRefusal::Silent && dpd_action == ChildAction::None {
                // It may as well have been dead, and then nothing is asked for.
                assert_eq!(w.up(0).len(), 0);
                continue;
            }
            assert!(w.up(0).len() == 1 && w.up(0)[0].id != first, "{how:?}: the tunnel is there again");
            let count = probes(&w, 0).len();
            w.run(10 * 3_600 * S);
            assert_eq!(probes(&w, 0).len(), count, "{how:?}: it is remembered");
            w.assert_one();
            w.audit();
        }
    }
}

#[test]
fn a_peer_that_has_answered_probes_and_dies_later_is_measured_again() {
    let mut w = world(30, false, |c| {
        c[0].dpd_delay = 30 * S;
        c[0].children[0].dpd_action = ChildAction::Start;
        c[0].keyingtries = 0;
    });
    w.establish(0).unwrap();
    w.run(5 * S);
    assert_eq!(proven(&w, 0), Some((1_500, false)));
    // From the next probe on it is dead.
    assert!(w.run_until(100 * 60 * S, |w| probes(w, 0).len() == 2 || w.nodes[0].sas(w.now()).is_empty()));
    w.net.mute.insert(1);
    w.run(400 * S);
    w.net.mute.clear();
    w.run(900 * S);
    assert_eq!(proven(&w, 0), Some((1_500, false)), "on the next IKE_SA");
    assert!(refusals(&w.nodes[0]).is_empty());
}

#[test]
fn without_liveness_checks_a_silent_peer_loses_nothing_by_a_probe() {
    let mut w = world(31, false, |_| {});
    w.establish(0).unwrap();
    w.run(5 * S);
    let id = w.up(0)[0].id;
    assert!(w.run_until(100 * 60 * S, |w| probes(w, 0).len() == 2));
    w.net.mute.insert(0);
    w.run(3_600 * S);
    w.net.mute.clear();
    w.run(200 * S);
    assert_eq!((w.up(0)[0].id, w.up(1).len()), (id, 1), "an hour without a way is over");
    w.run(80 * 60 * S);
    assert_eq!(proven(&w, 0), Some((1_500, false)));
    w.assert_one();
    // A rekeying that waits behind the probe is another matter.
    let count = probes(&w, 0).len();
    assert!(w.run_until(100 * 60 * S, |w| probes(w, 0).len() > count));
    w.net.mute.insert(0);
    w.run(10 * S);
    w.rekey_child(0);
    w.run(200 * S);
    assert!(w.up(0).is_empty());
}

#[test]
fn a_shutdown_in_the_middle_of_a_probe_is_heard_by_the_peer() {
    let mut w = narrow(32, 1_300, |_| {});
    until_probe(&mut w);
    let now = w.now();
    w.nodes[0].endpoint.shutdown(now);
    w.run(S);
    assert!(w.up(1).is_empty(), "the DELETE comes behind the probe, which passes now");
    w.audit();
}
