//! Rekeyings of one child that overlap, in every order of their messages and with any one of them
//! lost; and what must survive a rekeying: the selectors, the way out, and the child itself
//! whatever the peer's limits are (RFC 7296 sections 1.3.3, 2.8, 2.9.2, 2.25).

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

use ironswan_ike::event::{ChildState, Event};
use ironswan_keying::{Connection, Limits, Target};
use ironswan_testkit::{Forger, Verdict, World, config};
use ironswan_wire::iana::{ExchangeType, NotifyType, ProtocolId};
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::{Delete, Nonce, Notify};
use ironswan_wire::proposal::Proposal;
use ironswan_wire::sadb::Spi;
use ironswan_wire::selector::{AddrRange, TrafficSelector};

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

// ---- every order ----

/// Something that happens to a node: the `n`th datagram of `from` arrives, or its next rekeying is
/// asked for (`from` is the node itself). What happens to one node does not see what happens to the
/// other at the same moment.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Happens {
    at: usize,
    from: usize,
    n: usize,
}

/// A datagram that has been sent and not arrived.
struct Sent {
    ends: (SocketAddr, SocketAddr),
    payload: Vec<u8>,
}

/// Two nodes without a network: what they send waits until it is chosen.
struct Table {
    world: World,
    sent: [usize; 2],
    waiting: BTreeMap<Happens, Sent>,
    /// How many rekeyings each node has still to begin.
    to_begin: [usize; 2],
    /// The first datagram with this sender and number is lost.
    lost: Option<(usize, usize)>,
}

impl Table {
    fn new(seed: u64, to_begin: [usize; 2], lost: Option<(usize, usize)>) -> Self {
        let mut world = World::pair(seed, |_| {});
        world.establish(0).unwrap();
        Self { world, sent: [0; 2], waiting: BTreeMap::new(), to_begin, lost }
    }

    fn possible(&self) -> Vec<Happens> {
        let begin = (0..2).filter(|n| self.to_begin[*n] > 0);
        let begin = begin.map(|at| Happens { at, from: at, n: self.to_begin[at] });
        self.waiting.keys().copied().chain(begin).collect()
    }

    fn happen(&mut self, what: Happens) {
        let now = self.world.now();
        let endpoint = &mut self.world.nodes[what.at].endpoint;
        if let Some(sent) = self.waiting.remove(&what) {
            endpoint.call(now, |e| e.handle_datagram(now, sent.ends.0, sent.ends.1, &sent.payload));
        } else {
            let target = Target { child: Some("net".to_owned()), ..Target::default() };
            // There may be nothing to rekey at the moment.
            let _ = endpoint.rekey(now, &target, false);
            self.to_begin[what.at] -= 1;
        }
        for t in self.world.nodes[what.at].drain(now) {
            let n = self.sent[what.at];
            self.sent[what.at] += 1;
            if self.lost != Some((what.at, n)) {
                let key = Happens { at: 1 - what.at, from: what.at, n };
                self.waiting.insert(key, Sent { ends: (t.remote, t.local), payload: t.payload });
            }
        }
    }

    /// Time goes on: retransmissions, retries of what was refused, what is kept for a while.
    fn judge(mut self, path: &[Happens]) -> [usize; 2] {
        self.world.run(400 * S);
        let w = &self.world;
        let down = |n: &ironswan_testkit::Node| n.events.iter().any(|e| matches!(e, Event::ChildDown { .. }));
        let fault = w.fault().or(w.nodes.iter().any(down).then(|| "a child went down".to_owned()));
        if let Some(fault) = fault {
            w.dump();
            panic!("without {:?}, path {path:?}: {fault}", self.lost);
        }
        self.sent
    }
}

/// Goes every path that some node can tell from the others: after an event, those of the other node
/// that were possible before and have been tried first come to the same (sleep sets). How many
/// paths, and the most datagrams that a node has sent.
fn explore(seed: u64, to_begin: [usize; 2], lost: Option<(usize, usize)>) -> (usize, [usize; 2]) {
    let (mut paths, mut most) = (0, [0; 2]);
    let mut todo: Vec<(Vec<Happens>, BTreeSet<Happens>)> = vec![(Vec::new(), BTreeSet::new())];
    while let Some((mut path, mut asleep)) = todo.pop() {
        let mut table = Table::new(seed, to_begin, lost);
        path.iter().for_each(|what| table.happen(*what));
        loop {
            let possible = table.possible();
            let mut awake = possible.iter().filter(|e| !asleep.contains(e));
            let Some(&first) = awake.next() else {
                if possible.is_empty() {
                    paths += 1;
                    let sent = table.judge(&path);
                    most = [most[0].max(sent[0]), most[1].max(sent[1])];
                }
                break;
            };
            let after = |asleep: &BTreeSet<Happens>, what: Happens| {
                asleep.iter().copied().filter(|e| e.at != what.at).collect::<BTreeSet<_>>()
            };
            let mut tried = asleep.clone();
            tried.insert(first);
            for &other in awake {
                let mut longer = path.clone();
                longer.push(other);
                todo.push((longer, after(&tried, other)));
                tried.insert(other);
            }
            asleep = after(&asleep, first);
            path.push(first);
            table.happen(first);
        }
    }
    (paths, most)
}

#[test]
fn every_order_of_the_messages_of_overlapping_rekeyings_leaves_one_child() {
    let mut all = 0;
    for to_begin in [[1, 1], [2, 1], [1, 2]] {
        for seed in 1..4 {
            let (paths, _) = explore(seed, to_begin, None);
            println!("{to_begin:?} rekeyings, seed {seed}: {paths} orders");
            all += paths;
        }
    }
    assert!(all > 30, "{all} orders");
}

#[test]
fn every_message_of_overlapping_rekeyings_may_be_lost_in_every_order() {
    let mut all = 0;
    for to_begin in [[1, 1], [2, 1]] {
        let (_, most) = explore(1, to_begin, None);
        for (node, sent) in most.into_iter().enumerate() {
            for n in 0..sent {
                all += explore(1, to_begin, Some((node, n))).0;
            }
        }
        println!("{to_begin:?} rekeyings, {most:?} messages: {all} orders with a loss");
    }
    assert!(all > 100, "{all} orders");
}

// ---- a peer that does otherwise: its messages are forged ----

fn up(seed: u64, tweak: impl FnOnce(&mut [Connection; 2])) -> (World, Forger) {
    let mut w = World::pair(seed, tweak);
    w.establish(0).unwrap();
    let f = Forger::newest(&w.nodes[0]);
    (w, f)
}

fn notify(kind: NotifyType) -> Payload {
    Payload::Notify(Notify::new(kind, []))
}

/// The payloads of a rekeying of the child with this SPI of its sender.
fn rekeying(old: Spi, new: u32, tsi: Vec<TrafficSelector>, tsr: Vec<TrafficSelector>) -> Vec<Payload> {
    let rekey = Notify::about(NotifyType::REKEY_SA, ProtocolId::ESP, old.0);
    let proposal = Proposal { spi: new.to_be_bytes().to_vec(), ..config::esp_proposal(&[]) };
    vec![
        Payload::Notify(rekey),
        Payload::Sa(vec![proposal]),
        Payload::Nonce(Nonce(vec![3; 32])),
        Payload::TsI(tsi),
        Payload::TsR(tsr),
    ]
}

/// What a node has answered last.
fn last_answer(w: &World, f: &Forger, node: usize) -> Vec<Payload> {
    let (_, p) = w.net.log.iter().rfind(|(s, _)| s.node == node && s.response).expect("an answer");
    f.open(&p.payload).expect("of this IKE_SA").1
}

fn error_in(payloads: &[Payload]) -> Option<NotifyType> {
    payloads.iter().find_map(|p| match p {
        Payload::Notify(n) if n.kind.is_error() => Some(n.kind),
        _ => None,
    })
}

#[test]
fn a_peer_that_rekeys_one_child_again_and_again_while_ours_is_under_way_gets_one() {
    let (mut w, mut f) = up(20, |_| {});
    let old = w.child(0);
    w.net.rules.push(Box::new(|s| if s.node == 0 && !s.response { Verdict::Drop } else { Verdict::Pass }));
    w.rekey_child(0);
    w.run(20 * MS);
    let mut made = Vec::new();
    for n in 0..6 {
        let (tsi, tsr) = (old.remote_ts.clone(), old.local_ts.clone());
        // The old one, and in the end the one that the first request has made.
        let spi = if n == 5 { Spi(0xc700_0000) } else { old.spi_out };
        let payloads = rekeying(spi, 0xc700_0000 + n, tsi, tsr);
        w.inject(b(), a(), f.message(false, CREATE, false, n, &payloads));
        w.run(20 * MS);
        made.push(error_in(&last_answer(&w, &f, 0)));
    }
    assert_eq!(made[0], None);
    assert_eq!(made[1..], [Some(NotifyType::TEMPORARY_FAILURE); 5]);
    assert_eq!(w.nodes[0].engine.inbound.len(), 2);
    // The peer settles on its own.
    let delete = Payload::Delete(Delete::children(ProtocolId::ESP, [old.spi_out]));
    w.inject(b(), a(), f.message(false, INFO, false, 6, &[delete]));
    w.run(20 * MS);
    w.inject(b(), a(), f.message(false, CREATE, true, 2, &[notify(NotifyType::CHILD_SA_NOT_FOUND)]));
    w.net.rules.clear();
    w.run(20 * S);
    assert_eq!(w.child(0).spi_out, Spi(0xc700_0000));
    assert_eq!((w.nodes[0].engine.inbound.len(), w.nodes[0].engine.outbound.len()), (1, 1));
}

#[test]
fn a_peer_that_never_deletes_what_it_has_rekeyed_meets_a_limit_and_is_helped() {
    let limits = Limits { child_sa_max: 1, ..Limits::default() };
    let mut w = World::pair_at(21, a().ip(), b().ip(), limits, |_| {});
    w.establish(0).unwrap();
    let mut f = Forger::newest(&w.nodes[0]);
    let c = w.child(0);
    let mut refused = Vec::new();
    for n in 0..8 {
        let old = if n == 0 { c.spi_in } else { Spi(0xc600_0000 + n - 1) };
        let payloads = rekeying(old, 0xc600_0000 + n, c.local_ts.clone(), c.remote_ts.clone());
        w.inject(a(), b(), f.message(true, CREATE, false, 2 + n, &payloads));
        w.run(20 * MS);
        refused.push(error_in(&last_answer(&w, &f, 1)));
    }
    assert_eq!(refused[..3], [None; 3], "a limit of one child does not refuse what replaces one");
    assert_eq!(refused[3], Some(NotifyType::TEMPORARY_FAILURE));
    assert_eq!(w.nodes[1].engine.inbound.len(), 4);
    // They are deleted from here in the end, and the newest sends.
    let deletes = |w: &World| w.net.log.iter().filter(|(s, _)| s.node == 1 && !s.response).count();
    let before = deletes(&w);
    for n in 0..4 {
        w.run_until(300 * S, |w| deletes(w) > before + n);
        w.inject(a(), b(), f.message(true, INFO, true, n as u32, &[]));
        w.run(20 * MS);
    }
    w.run(20 * S);
    let engine = &w.nodes[1].engine;
    let kids: Vec<_> = w.up(1)[0].children.iter().map(|c| (c.state, c.spi_out)).collect();
    assert_eq!(kids, [(ChildState::Installed, Spi(0xc600_0002))]);
    assert_eq!((engine.inbound.len(), engine.outbound.len()), (1, 1));
    assert_eq!(engine.outbound[0].spi, Spi(0xc600_0002));
}

#[test]
fn the_new_child_sends_when_the_old_one_expires_before_the_peer_has_deleted_it() {
    for limit in ["time", "packets"] {
        let mut w = World::pair(22, |c| {
            let child = &mut c[1].children[0];
            match limit {
                "time" => child.life_time = 20 * S,
                _ => child.lifetime.hard_packets = 200,
            }
        });
        w.establish(0).unwrap();
        w.run(15 * S);
        // The peer's DELETE does not come, nor anything on the new SA.
        w.net.rules.push(Box::new(|s| {
            if s.node == 0 && s.exchange == INFO && !s.response { Verdict::Drop } else { Verdict::Pass }
        }));
        w.rekey_child(0);
        w.run(S);
        let new = w.up(1)[0].children.iter().find(|c| c.state == ChildState::Installed).unwrap().clone();
        assert!(!w.nodes[1].engine.outbound.iter().any(|o| o.spi == new.spi_out), "it is waited for");
        if limit == "packets" {
            let sa = w.nodes[1].engine.outbound[0].clone();
            for _ in 0..200 {
                let now = w.now();
                if let (Some(up), _) = w.nodes[1].engine.count(&sa) {
                    w.nodes[1].endpoint.call(now, |e| e.handle_engine(now, up));
                }
            }
        }
        w.run(5 * S);
        let out: Vec<_> = w.nodes[1].engine.outbound.iter().map(|o| o.spi).collect();
        assert!(out.contains(&new.spi_out), "{limit}: sends on {out:?}, the new one is {}", new.spi_out);
        w.net.rules.clear();
        w.traffic = Some(10 * MS);
        w.run(S);
        assert!(w.nodes.iter().all(|n| n.esp.0 > 90 && n.esp.1 == 0), "{limit}");
    }
}

fn network(text: &str, len: u8) -> TrafficSelector {
    TrafficSelector::addresses(AddrRange::prefix(config::ip(text), len).unwrap())
}

#[test]
fn a_rekeying_that_would_narrow_the_selectors_is_refused_in_both_roles() {
    let half = || vec![network("10.1.0.0", 25)];
    let halves = || vec![network("10.1.0.0", 25), network("10.1.0.128", 25)];
    // As responder: half of the network is refused, and two halves are as good as the whole.
    for (tsi, good) in [(half(), false), (halves(), true), (vec![network("10.0.0.0", 8)], true)] {
        let (mut w, mut f) = up(23, |_| {});
        let old = w.child(1);
        let payloads = rekeying(old.spi_out, 0xc600_0000, tsi.clone(), old.local_ts.clone());
        w.inject(a(), b(), f.message(true, CREATE, false, 2, &payloads));
        w.run(20 * MS);
        let error = error_in(&last_answer(&w, &f, 1));
        assert_eq!(error, (!good).then_some(NotifyType::TS_UNACCEPTABLE), "{tsi:?}");
        if !good {
            let now = w.child(1);
            assert_eq!((now.spi_in, now.state), (old.spi_in, ChildState::Installed), "the old one goes on");
            assert!(w.nodes[1].logged("which a rekeying must not narrow"));
        }
    }
    // As initiator: the peer's new child is deleted, and the old one goes on.
    for (tsi, good) in [(half(), false), (halves(), true)] {
        let (mut w, mut f) = up(24, |_| {});
        let old = w.child(0);
        w.net.rules.push(Box::new(|s| if s.node == 0 { Verdict::Drop } else { Verdict::Pass }));
        w.rekey_child(0);
        w.run(20 * MS);
        let answer = rekeying(old.spi_in, 0xc600_0000, tsi.clone(), old.remote_ts.clone()).split_off(1);
        w.inject(b(), a(), f.message(false, CREATE, true, 2, &answer));
        w.run(20 * MS);
        let engine = &w.nodes[0].engine;
        assert_eq!(engine.outbound.last().unwrap().spi == old.spi_out, !good, "{tsi:?}");
        assert!(engine.inbound.contains_key(&old.spi_in) || good);
        let (_, p) = w.net.log.iter().rfind(|(s, _)| s.node == 0).unwrap();
        let told = f.open(&p.payload).unwrap().1;
        let Payload::Delete(d) = &told[0] else { panic!("{told:?}") };
        assert_eq!(
            d.child_spis().any(|spi| spi == old.spi_in),
            good,
            "{tsi:?}: the new one is deleted, or the old"
        );
        assert_eq!(w.nodes[0].logged("which are narrower than"), !good);
    }
}

#[test]
fn a_peer_that_takes_no_rekeying_gets_a_new_ike_sa_before_the_old_one_ends() {
    for ike in [false, true] {
        let (mut w, mut f) = up(25, |_| {});
        w.traffic = Some(10 * MS);
        w.run(S);
        let old = w.up(0)[0].clone();
        w.net.rules.push(Box::new(move |s| {
            if s.node == 0 && s.exchange == CREATE { Verdict::Drop } else { Verdict::Pass }
        }));
        if ike {
            w.rekey_ike(0);
        } else {
            w.rekey_child(0);
        }
        w.run(20 * MS);
        w.inject(b(), a(), f.message(false, CREATE, true, 2, &[notify(NotifyType::NO_ADDITIONAL_SAS)]));
        // The peer has seen a request with this ID.
        w.inject(a(), b(), f.message(true, INFO, false, 2, &[]));
        let two = |w: &World| w.up(0).len() == 2 && w.up(1).len() == 2;
        assert!(w.run_until(S, two), "ike {ike}: the new one stands before the old one goes");
        w.run(30 * S);
        w.assert_one();
        assert_ne!(w.up(0)[0].spi_i, old.spi_i);
        for n in &w.nodes {
            assert!(n.esp.0 > 2_900 && n.esp.1 == 0, "ike {ike}: {:?} packets", n.esp);
            assert!(!n.logged("received INITIAL_CONTACT"));
        }
        w.audit();
    }
}

#[test]
fn where_no_new_ike_sa_can_be_made_the_old_one_goes_on() {
    let (mut w, _) = up(26, |_| {});
    w.traffic = Some(100 * MS);
    let old = w.up(0)[0].clone();
    let now = w.now();
    // The peer takes nobody any more.
    w.nodes[1].endpoint.unload_shared("ike-gw");
    w.net
        .rules
        .push(Box::new(|s| if s.node == 0 && s.exchange == CREATE { Verdict::Drop } else { Verdict::Pass }));
    w.rekey_child(0);
    let mut answered = 0;
    while w.now() < now + 120 * S {
        w.run(100 * MS);
        let asked = w.net.log.iter().filter(|(s, _)| s.node == 0 && s.exchange == CREATE);
        let Some(mid) = asked.map(|(s, _)| s.mid).max().filter(|mid| *mid >= 2 + answered) else { continue };
        answered = mid - 1;
        let mut f = Forger::of(&w.nodes[0], Some(old.spi_i));
        w.inject(b(), a(), f.message(false, CREATE, true, mid, &[notify(NotifyType::NO_ADDITIONAL_SAS)]));
    }
    assert!((5..30).contains(&answered), "asked {answered} times in two minutes");
    let made = w.nodes[0].count_logged("initiating IKE_SA");
    assert!((3..30).contains(&made), "{made} attempts");
    assert_eq!(w.child(0).spi_in, old.children[0].spi_in);
    assert!(w.nodes.iter().all(|n| n.esp.0 > 1_000 && n.esp.1 == 0));
}

#[test]
fn a_child_goes_on_when_the_peer_deletes_its_successor_instead_of_it() {
    let (mut w, mut f) = up(27, |_| {});
    let old = w.child(1);
    let payloads = rekeying(old.spi_out, 0xc600_0000, old.remote_ts.clone(), old.local_ts.clone());
    w.inject(a(), b(), f.message(true, CREATE, false, 2, &payloads));
    w.run(20 * MS);
    let delete = Payload::Delete(Delete::children(ProtocolId::ESP, [Spi(0xc600_0000)]));
    w.inject(a(), b(), f.message(true, INFO, false, 3, &[delete]));
    w.run(20 * MS);
    let now = w.child(1);
    assert_eq!((now.spi_in, now.spi_out, now.state), (old.spi_in, old.spi_out, ChildState::Installed));
    assert_eq!(w.nodes[1].engine.outbound.len(), 1);
}
