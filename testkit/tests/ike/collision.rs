//! Both sides rekey at once (RFC 7296 sections 2.8.1 and 2.8.2), and rekeying meets deletion
//! (2.25): in all four orders of the nonces, and with every message of the collision lost once or
//! late.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ironswan_crypto::rng::{Rng, Seeded};
use ironswan_ike::event::{ChildState, Event};
use ironswan_keying::Limits;
use ironswan_testkit::{Node, Seen, Verdict, World, config};
use ironswan_wire::iana::{ExchangeType, KeId};
use ironswan_wire::proposal::Proposal;

const S: Duration = Duration::from_secs(1);
const MS: Duration = Duration::from_millis(1);

/// Gives chosen first bytes to the next nonces (the only 32 bytes that are asked for in a
/// `Vec`-sized piece while a rekeying has no key exchange of its own; with one, seeds come between,
/// so they are told apart by order).
#[derive(Clone)]
struct Chosen {
    inner: Arc<Mutex<Seeded>>,
    first: Arc<Mutex<VecDeque<u8>>>,
    /// Which of the 32-byte pieces are nonces: true for each that is.
    pattern: Arc<Mutex<VecDeque<bool>>>,
}

impl Rng for Chosen {
    fn fill(&mut self, out: &mut [u8]) {
        self.inner.lock().unwrap().fill(out);
        if out.len() == 32
            && self.pattern.lock().unwrap().pop_front().unwrap_or(false)
            && let Some(b) = self.first.lock().unwrap().pop_front()
        {
            out[0] = b;
        }
    }
}

struct Setup {
    world: World,
    rngs: [Chosen; 2],
}

/// Proposals of both sides.
#[derive(Clone, PartialEq)]
struct Offers {
    ike: [Vec<Proposal>; 2],
    esp: [Vec<Proposal>; 2],
}

/// Both sides have these methods for the child.
fn pfs(ke: &[KeId]) -> Offers {
    Offers {
        ike: [(); 2].map(|()| vec![config::ike_proposal(&[KeId::CURVE_25519])]),
        esp: [(); 2].map(|()| vec![config::esp_proposal(ke)]),
    }
}

const ADD: [(u8, KeId); 2] = [(1, KeId::ML_KEM_768), (3, KeId::ECP_256)];

/// Both sides have two additional key exchanges for the child.
fn series() -> Offers {
    let esp = [(); 2].map(|()| vec![config::esp_proposal_with(&[KeId::CURVE_25519], &ADD)]);
    Offers { esp, ..pfs(&[]) }
}

/// Both sides have two additional key exchanges for the IKE_SA.
fn ike_series() -> Offers {
    let ike = [(); 2].map(|()| vec![config::ike_proposal_with(&[KeId::CURVE_25519], &ADD)]);
    Offers { ike, ..pfs(&[]) }
}

/// Each side prefers another one of these, and who responds decides: 0 begins without additional
/// key exchanges, and 1 with them.
fn preferred(with: Proposal, without: Proposal) -> [Vec<Proposal>; 2] {
    let second = |p: &Proposal| Proposal { number: 2, ..p.clone() };
    [vec![with.clone(), second(&without)], vec![without, second(&with)]]
}

/// Only what 1 begins for the child has an additional key exchange.
fn series_of_one() -> Offers {
    let with = config::esp_proposal_with(&[KeId::CURVE_25519], &[(1, KeId::ML_KEM_512)]);
    Offers { esp: preferred(with, config::esp_proposal(&[KeId::CURVE_25519])), ..pfs(&[]) }
}

/// Only what 1 begins for the IKE_SA has an additional key exchange.
fn ike_series_of_one() -> Offers {
    let with = config::ike_proposal_with(&[KeId::CURVE_25519], &[(1, KeId::ML_KEM_512)]);
    Offers { ike: preferred(with, config::ike_proposal(&[KeId::CURVE_25519])), ..pfs(&[]) }
}

fn setup(seed: u64, offers: Offers) -> Setup {
    let rng = |n| Chosen {
        inner: Arc::new(Mutex::new(Seeded::new(seed * 2 + n))),
        first: Arc::default(),
        pattern: Arc::default(),
    };
    let rngs = [rng(0), rng(1)];
    let addrs = [config::ip("192.0.2.1"), config::ip("192.0.2.2")];
    let nodes =
        (0..2).map(|i| Node::new(vec![addrs[i]], Box::new(rngs[i].clone()), Limits::default())).collect();
    let mut world = World::new(seed, nodes);
    let mut conns = config::pair(addrs[0], addrs[1]);
    for ((c, ike), esp) in conns.iter_mut().zip(offers.ike).zip(offers.esp) {
        c.proposals = ike;
        c.children[0].proposals = esp;
    }
    world.load(conns);
    world.establish(0).unwrap();
    world.assert_one();
    Setup { world, rngs }
}

impl Setup {
    /// The next nonces of node `i`: that of its request, then that of its response.
    fn nonces(&self, i: usize, request: u8, response: u8, with_kex: bool) {
        *self.rngs[i].first.lock().unwrap() = [request, response].into();
        // Request: nonce, then the seed of a key pair. Response: the same.
        *self.rngs[i].pattern.lock().unwrap() =
            if with_kex { [true, false, true, false].into() } else { [true, true].into() };
    }
}

/// The lowest nonce in each of the four places: 0's request, 0's response, 1's request, 1's
/// response.
const ORDERS: [[u8; 4]; 4] = [[1, 8, 5, 6], [8, 1, 5, 6], [5, 6, 1, 8], [5, 6, 8, 1]];

#[test]
fn a_child_rekey_collision_is_settled_by_the_lowest_nonce() {
    for esp in [pfs(&[]), pfs(&[KeId::CURVE_25519]), series(), series_of_one()] {
        for order in ORDERS {
            let mut s = setup(11, esp.clone());
            let with_kex = esp != pfs(&[]);
            s.nonces(0, order[0], order[1], with_kex);
            s.nonces(1, order[2], order[3], with_kex);
            let old = s.world.child(0);
            s.world.traffic = Some(MS);
            s.world.run(S);
            s.world.rekey_child(0);
            s.world.rekey_child(1);
            s.world.run(30 * S);
            s.world.assert_one();
            let new = s.world.child(0);
            assert_ne!(old.spi_in, new.spi_in);
            // Exchange of 0: its request's nonce and 1's response's. The lowest loses.
            let zero_loses = order[0].min(order[3]) < order[2].min(order[1]);
            let lost = |n: usize| s.world.nodes[n].logged("CHILD_SA rekey collision lost");
            assert_eq!((lost(0), lost(1)), (zero_loses, !zero_loses), "{order:?}");
            for n in &s.world.nodes {
                assert!(n.logged("CHILD_SA rekey collision detected"));
                assert_eq!(n.esp.1, 0, "lost ESP in {order:?}");
                let told = n.events.iter().filter(|e| matches!(e, Event::ChildRekeyed { .. })).count();
                assert_eq!(told, 1, "told once");
                assert!(!n.events.iter().any(|e| matches!(e, Event::ChildDown { .. })));
            }
        }
    }
}

#[test]
fn an_ike_rekey_collision_is_settled_by_the_lowest_nonce() {
    let offers = [pfs(&[]), ike_series(), ike_series_of_one()];
    for (order, offers) in ORDERS.into_iter().flat_map(|order| offers.clone().map(|o| (order, o))) {
        let mut s = setup(12, offers);
        s.nonces(0, order[0], order[1], true);
        s.nonces(1, order[2], order[3], true);
        let (ike, child) = (s.world.up(0)[0].spi_i, s.world.child(0).spi_in);
        s.world.traffic = Some(10 * MS);
        s.world.rekey_ike(0);
        s.world.rekey_ike(1);
        s.world.run(30 * S);
        s.world.assert_one();
        assert_ne!(ike, s.world.up(0)[0].spi_i);
        assert_eq!(child, s.world.child(0).spi_in, "inherited as it was");
        let zero_loses = order[0].min(order[3]) < order[2].min(order[1]);
        assert_eq!(s.world.up(0)[0].initiator, !zero_loses, "{order:?}");
        for n in &s.world.nodes {
            assert!(n.logged("IKE_SA rekey collision detected"));
            let told = n.events.iter().filter(|e| matches!(e, Event::IkeRekeyed { .. })).count();
            assert_eq!(told, 1, "told once");
            assert!(!n.events.iter().any(|e| matches!(e, Event::IkeDown(_) | Event::ChildDown { .. })));
            assert_eq!(n.esp.1, 0);
        }
        // The survivor works: children and IKE_SA can be rekeyed again, by both.
        for node in 0..2 {
            s.world.rekey_child(node);
            s.world.run(30 * S);
            s.world.rekey_ike(node);
            s.world.run(30 * S);
            s.world.assert_one();
        }
    }
}

/// What both sides do at the same moment.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Act {
    RekeyChild,
    RekeyIke,
    DeleteChild,
    DeleteIke,
}

fn act(w: &mut World, node: usize, act: Act) {
    match act {
        Act::RekeyChild => drop(w.rekey_child(node)),
        Act::RekeyIke => drop(w.rekey_ike(node)),
        Act::DeleteChild => drop(w.terminate(node, true)),
        Act::DeleteIke => drop(w.terminate(node, false)),
    }
}

/// At rest: one IKE_SA with one child; or after a deletion what it leaves.
fn judge(w: &World, acts: [Act; 2], what: &str) {
    let fault = if acts.contains(&Act::DeleteIke) {
        w.remains()
    } else if acts.contains(&Act::DeleteChild) {
        // The child is gone or, where rekeying won, there; the same on both sides in any case.
        let kids = |n: usize| w.up(n).iter().map(|s| s.children.len()).sum::<usize>();
        match (w.up(0).len(), w.up(1).len(), kids(0), kids(1)) {
            (1, 1, 0, 0) => (!w.nodes[0].engine.inbound.is_empty()).then(|| "an SA is left over".to_owned()),
            (1, 1, 1, 1) => w.fault(),
            other => Some(format!("IKE_SAs and children: {other:?}")),
        }
    } else {
        w.fault()
    };
    if let Some(fault) = fault {
        w.dump();
        panic!("{what}: {fault}");
    }
}

/// Runs the pair of acts with a rule on the messages behind the set-up.
fn scene(
    seed: u64,
    offers: Offers,
    acts: [Act; 2],
    gap: Duration,
    rule: impl FnMut(&Seen) -> Verdict + 'static,
) -> (World, usize) {
    let mut s = setup(seed, offers);
    let first = s.world.net.count;
    s.world.net.rules.push(Box::new(rule));
    act(&mut s.world, 0, acts[0]);
    s.world.run(gap);
    if s.world.up(1).iter().any(|sa| sa.children.iter().any(|c| c.state == ChildState::Installed)) {
        act(&mut s.world, 1, acts[1]);
    }
    // Until the last retransmission of anything, the redundant SAs' timers and the retries are
    // over.
    s.world.run(400 * S);
    (s.world, first)
}

const PAIRS: [[Act; 2]; 9] = [
    [Act::RekeyChild, Act::RekeyChild],
    [Act::RekeyIke, Act::RekeyIke],
    [Act::RekeyChild, Act::RekeyIke],
    [Act::RekeyIke, Act::RekeyChild],
    [Act::RekeyChild, Act::DeleteChild],
    [Act::DeleteChild, Act::DeleteChild],
    [Act::RekeyIke, Act::DeleteIke],
    [Act::RekeyChild, Act::DeleteIke],
    [Act::DeleteIke, Act::DeleteIke],
];

#[test]
fn every_pair_of_acts_at_once_ends_clean() {
    for acts in PAIRS {
        for seed in 0..6 {
            for gap in [0, 3, 5, 8, 12] {
                let (w, _) = scene(100 + seed, pfs(&[KeId::CURVE_25519]), acts, gap * MS, |_| Verdict::Pass);
                judge(&w, acts, &format!("{acts:?} seed {seed} gap {gap}"));
            }
        }
    }
}

#[test]
fn every_message_of_every_collision_may_be_lost_once() {
    for acts in PAIRS {
        for seed in 0..4 {
            let (w, first) = scene(200 + seed, pfs(&[]), acts, Duration::ZERO, |_| Verdict::Pass);
            let total = w.net.count;
            for k in first..total {
                let (w, _) = scene(200 + seed, pfs(&[]), acts, Duration::ZERO, move |s| {
                    if s.index == k { Verdict::Drop } else { Verdict::Pass }
                });
                judge(&w, acts, &format!("{acts:?} seed {seed} without message {k} of {first}..{total}"));
            }
        }
    }
}

#[test]
fn every_message_of_every_collision_may_be_late() {
    for acts in PAIRS {
        for seed in 0..4 {
            let (w, first) = scene(300 + seed, pfs(&[]), acts, Duration::ZERO, |_| Verdict::Pass);
            let total = w.net.count;
            for k in first..total {
                for late in [7, 40, 4_500] {
                    let (w, _) = scene(300 + seed, pfs(&[]), acts, Duration::ZERO, move |s| {
                        if s.index == k { Verdict::Delay(late * MS) } else { Verdict::Pass }
                    });
                    judge(&w, acts, &format!("{acts:?} seed {seed} message {k} late by {late}"));
                }
            }
        }
    }
}

#[test]
fn rekeying_a_child_and_the_ike_sa_at_once_is_refused_by_both_and_done_later() {
    let (w, _) = scene(500, pfs(&[]), [Act::RekeyChild, Act::RekeyIke], Duration::ZERO, |_| Verdict::Pass);
    w.assert_one();
    for n in &w.nodes {
        assert_eq!(n.count_logged("rekeying failed, trying again in"), 1);
    }
    let c = w.nodes[0].endpoint.protocol().counters();
    assert_eq!((c.child_rekey, c.ike_rekey_resp), (1, 1), "both came to be");
}

#[test]
fn a_peer_that_does_not_notice_the_collision_answers_temporary_failure() {
    // 1's request is kept back until 0 has finished its own rekeying.
    for ike in [false, true] {
        let a = if ike { Act::RekeyIke } else { Act::RekeyChild };
        let mut held = false;
        let (w, _) = scene(400, pfs(&[]), [a, a], Duration::ZERO, move |s| {
            if s.node == 1 && s.exchange == ExchangeType::CREATE_CHILD_SA && !s.response && !held {
                held = true;
                return Verdict::Delay(Duration::from_millis(200));
            }
            Verdict::Pass
        });
        w.assert_one();
        assert!(!w.nodes[0].logged("collision detected"), "0 is done before it hears of it");
        assert!(w.nodes[1].logged("collision detected"));
    }
}

/// Acts that meet a series of additional key exchanges.
const SERIES: [[Act; 2]; 6] = [
    [Act::RekeyChild, Act::RekeyChild],
    [Act::RekeyIke, Act::RekeyIke],
    [Act::RekeyChild, Act::RekeyIke],
    [Act::RekeyIke, Act::RekeyChild],
    [Act::RekeyChild, Act::DeleteChild],
    [Act::RekeyIke, Act::DeleteIke],
];

#[test]
fn series_of_both_sides_at_once_end_clean_however_far_the_other_has_come() {
    for offers in [series(), series_of_one(), ike_series(), ike_series_of_one()] {
        for acts in SERIES {
            for seed in 0..3 {
                for gap in (0..60).step_by(3) {
                    let (w, _) = scene(600 + seed, offers.clone(), acts, gap * MS, |_| Verdict::Pass);
                    judge(&w, acts, &format!("{acts:?} seed {seed} gap {gap}"));
                }
            }
        }
    }
}

#[test]
fn every_message_of_crossing_series_may_be_lost_or_late() {
    for offers in [series(), series_of_one(), ike_series(), ike_series_of_one()] {
        for acts in SERIES {
            for seed in 0..2 {
                let (w, first) = scene(700 + seed, offers.clone(), acts, Duration::ZERO, |_| Verdict::Pass);
                let total = w.net.count;
                for k in first..total {
                    for late in [None, Some(7 * MS), Some(40 * MS), Some(4_500 * MS)] {
                        let (w, _) =
                            scene(700 + seed, offers.clone(), acts, Duration::ZERO, move |s| match late {
                                _ if s.index != k => Verdict::Pass,
                                Some(late) => Verdict::Delay(late),
                                None => Verdict::Drop,
                            });
                        judge(&w, acts, &format!("{acts:?} seed {seed} message {k} late by {late:?}"));
                    }
                }
            }
        }
    }
}
