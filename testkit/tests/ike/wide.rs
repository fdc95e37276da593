//! A peer with wide selectors beside others: whatever it has its own narrowed to, the order of
//! policies is that of who configured them (RFC 4301 section 4.4.1). Endpoints negotiate, and
//! packet engines with the SAs and policies that come of it say whose packets pass and which way
//! they leave.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use ironswan_crypto::rng::Seeded;
use ironswan_ipsec::{Carrier, Config, Datagram, DropReason, Engine, RxBatch, TxBatch, TxConfig, Worker};
use ironswan_keying::{ChildAction, ChildKind, Connection, Limits, Target};
use ironswan_testkit::{Node, World, config};
use ironswan_wire::ip::v4;
use ironswan_wire::offload::Offload;
use ironswan_wire::sadb::Command;

const S: Duration = Duration::from_secs(1);

/// The spoke, the hub, and two peers with networks of their own.
const SPOKE: usize = 0;
const HUB: usize = 1;
const B: usize = 2;
const C: usize = 3;

/// What hub, `b` and `c` may ask for, by the name of the child that does.
const ASKED: [(&str, &str); 5] = [
    ("half-of-b", "10.3.0.0/17"),
    ("whole-of-b", "10.3.0.0/16"),
    ("host-of-b", "10.3.0.1/32"),
    ("half-of-pass", "10.4.0.0/17"),
    ("half-of-drop", "10.5.0.0/17"),
];

fn address(node: usize) -> IpAddr {
    [192, 0, 2, node as u8 + 1].into()
}

fn name(node: usize) -> String {
    format!("{}.example", ["spoke", "hub", "b", "c"][node])
}

/// The spoke's side of a connection, with the child `net`.
fn to(node: usize, remote: &str) -> Connection {
    let ids = (name(SPOKE), name(node));
    let nets = ("10.1.0.0/16", remote);
    let conn = config::connection(address(SPOKE), address(node), (&ids.0, &ids.1), nets);
    Connection { name: name(node), ..conn }
}

/// What is loaded at a peer of the spoke: the same the other way round, and what it may ask for.
fn from(node: usize, local: &str) -> Connection {
    let ids = (name(node), name(SPOKE));
    let mut conn =
        config::connection(address(node), address(SPOKE), (&ids.0, &ids.1), (local, "10.1.0.0/16"));
    conn.children.extend(ASKED.map(|(name, local)| config::child(name, local, "10.1.0.0/16")));
    conn
}

/// Nothing is up yet. `tweak` has the spoke's connections to the hub, to `b` and to `c`.
fn world(seed: u64, tweak: impl FnOnce(&mut [Connection; 3])) -> World {
    let node = |n: usize| Node::seeded(vec![address(n)], seed * 10 + n as u64, Limits::default());
    let mut w = World::new(seed, (SPOKE..=C).map(node).collect());
    let now = w.now();
    let mut ours = [to(HUB, "0.0.0.0/0"), to(B, "10.3.0.0/16"), to(C, "10.6.0.0/16")];
    tweak(&mut ours);
    for node in [HUB, B, C] {
        let key = || config::psk(&name(node), &format!("of {node}"), &[&name(SPOKE), &name(node)]);
        w.nodes[SPOKE].endpoint.load_shared(key());
        w.nodes[node].endpoint.load_shared(key());
        let theirs = from(node, if node == C { "10.6.0.0/16" } else { "0.0.0.0/0" });
        w.nodes[node].endpoint.load_connection(now, theirs);
    }
    for conn in ours {
        w.nodes[SPOKE].endpoint.load_connection(now, conn);
    }
    let mut shunts = to(HUB, "10.4.0.0/16");
    shunts.name = "shunts".to_owned();
    shunts.children.push(config::child("drop", "10.1.0.0/16", "10.5.0.0/16"));
    for (child, kind) in shunts.children.iter_mut().zip([ChildKind::Pass, ChildKind::Drop]) {
        (child.kind, child.start_action) = (kind, ChildAction::Trap);
    }
    w.nodes[SPOKE].endpoint.load_connection(now, shunts);
    w
}

/// Brings a child up from one of the peers.
fn up(w: &mut World, node: usize, child: &str) {
    let now = w.now();
    let conn = w.nodes[node].endpoint.connections()[0].name.clone();
    let ticket = w.nodes[node].endpoint.initiate(now, Some(&conn), Some(child)).unwrap();
    w.run(5 * S);
    assert_eq!(w.nodes[node].done.get(&ticket), Some(&Ok(())), "{child} of {}", name(node));
}

/// A packet engine with what a node's endpoint has told to the model of one.
struct Plane {
    engine: Arc<Engine>,
    worker: Worker,
}

impl Plane {
    fn of(node: &Node) -> Self {
        let engine = Engine::new(Box::new(Seeded::new(1)), Config::default());
        let sas = node.engine.inbound.values().chain(&node.engine.outbound);
        let sas = sas.map(|sa| Command::SaAdd(Box::new(sa.clone())));
        let policies = node.engine.policies.iter().map(|p| Command::PolicyAdd(p.clone()));
        for command in sas.chain(policies) {
            engine.apply(S, &command).unwrap();
        }
        let mut worker = Worker::new(engine.clone());
        worker.begin(S);
        Self { engine, worker }
    }

    /// The only reason for which something was dropped.
    fn dropped(&self) -> Option<DropReason> {
        let counters = self.engine.counters();
        assert!(counters.balance(), "{counters:?}");
        let all: Vec<_> = counters.drops().filter(|(_, n)| *n != 0).collect();
        assert!(all.len() <= 1, "{all:?}");
        all.first().map(|(reason, _)| *reason)
    }

    /// Where a packet goes that leaves, sealed.
    fn send(&mut self, packet: &[u8]) -> Result<(IpAddr, Vec<u8>), Option<DropReason>> {
        let mut tx = TxBatch::new(TxConfig::default());
        let _ = self.worker.outbound(&mut packet.to_vec(), &Offload::NONE, &mut tx);
        self.worker.seal(&mut tx);
        match tx.sends.first() {
            Some(sent) => Ok((sent.remote.ip(), tx.bytes(sent).to_vec())),
            None => Err(self.dropped()),
        }
    }
}

/// An empty UDP datagram.
fn packet(from: &str, to: &str) -> Vec<u8> {
    let mut p = vec![0x45, 0, 0, 28, 0, 1, 0, 0, 64, 17, 0, 0];
    for addr in [from, to] {
        let IpAddr::V4(addr) = config::ip(addr) else { unreachable!() };
        p.extend(addr.octets());
    }
    v4::set_checksum(&mut p);
    p.extend([0x10, 0, 0x20, 0, 0, 8, 0, 0]);
    p
}

/// What the spoke does with a packet from `source` that comes by this child of `node`. It is sealed
/// without the sender's policies: who means harm has none.
fn arrives(w: &World, node: usize, child: &str, source: &str) -> Result<(), DropReason> {
    let spi = w.nodes[node]
        .sas(w.now())
        .iter()
        .flat_map(|sa| &sa.children)
        .find(|c| c.name == child)
        .map(|c| c.spi_out)
        .expect("a child of that name");
    let sender = Engine::new(Box::new(Seeded::new(2)), Config::default());
    let mut sa = w.nodes[node].engine.outbound.iter().find(|sa| sa.spi == spi).unwrap().clone();
    let any = config::net("0.0.0.0/0");
    let ironswan_keying::TsSpec::Fixed(any) = any else { unreachable!() };
    sa.local_ts = vec![any];
    let policy = ironswan_wire::sadb::PolicyAdd {
        name: String::new(),
        action: ironswan_wire::sadb::Action::Protect(sa.reqid),
        local: any,
        remote: any,
        priority: 0,
        entry: ironswan_wire::sadb::Entry::default(),
    };
    sender.apply(S, &Command::SaAdd(Box::new(sa))).unwrap();
    sender.apply(S, &Command::PolicyAdd(policy)).unwrap();
    let mut worker = Worker::new(sender.clone());
    worker.begin(S);
    let mut sender = Plane { engine: sender, worker };
    let packet = packet(source, "10.1.0.1");
    let (_, mut sealed) = sender.send(&packet).expect("it has an SA");
    let mut spoke = Plane::of(&w.nodes[SPOKE]);
    let datagram = Datagram {
        offset: 0,
        len: sealed.len() as u32,
        segment_size: 0,
        local: (address(SPOKE), 500).into(),
        remote: (address(node), 500).into(),
        carrier: Carrier::Esp,
        tos: 0,
    };
    let mut rx = RxBatch::new();
    spoke.worker.inbound(&mut sealed, &[datagram], &mut rx);
    match rx.writes.first() {
        Some(write) => {
            assert_eq!(rx.gather(&sealed, write), packet);
            assert_eq!(spoke.dropped(), None);
            Ok(())
        }
        None => Err(spoke.dropped().expect("a reason")),
    }
}

/// The peer to which the spoke sends what is for this address.
fn leaves(w: &World, to: &str) -> Result<usize, Option<DropReason>> {
    let (peer, _) = Plane::of(&w.nodes[SPOKE]).send(&packet("10.1.0.1", to))?;
    Ok((SPOKE..=C).find(|n| address(*n) == peer).unwrap())
}

/// The hub has what is its own, `b` what is configured for `b`, and nobody what is to pass or to be
/// dropped. `at_hub`: the hub's children.
fn all_have_their_own(w: &World, at_hub: &[&str]) {
    use DropReason::{InPolBlock, InStateMismatch, InTmplMismatch, OutPolBlock, OutPolBypass};
    assert_eq!(arrives(w, B, "net", "10.3.0.1"), Ok(()));
    assert_eq!(arrives(w, B, "net", "10.3.200.1"), Ok(()));
    for child in at_hub {
        let covers = |source: &str| {
            let asked = ASKED.iter().find(|(name, _)| name == child);
            let ironswan_keying::TsSpec::Fixed(ts) = config::net(asked.map_or("0.0.0.0/0", |a| a.1)) else {
                unreachable!()
            };
            ts.range.contains(config::ip(source))
        };
        for (source, refused) in
            [("10.3.0.1", InTmplMismatch), ("10.4.0.1", InTmplMismatch), ("10.5.0.1", InPolBlock)]
        {
            let refused = if covers(source) { refused } else { InStateMismatch };
            assert_eq!(arrives(w, HUB, child, source), Err(refused), "{source} by {child}");
        }
    }
    for (to, way) in [
        ("10.3.0.1", Ok(B)),
        ("10.3.200.1", Ok(B)),
        ("10.4.0.1", Err(Some(OutPolBypass))),
        ("10.5.0.1", Err(Some(OutPolBlock))),
    ] {
        assert_eq!(leaves(w, to), way, "to {to}");
    }
}

#[test]
fn a_peer_with_wide_selectors_gets_nobody_s_network_by_asking_for_less() {
    let mut w = world(1, |_| {});
    up(&mut w, HUB, "net");
    up(&mut w, B, "net");
    all_have_their_own(&w, &["net"]);
    let mut at_hub = vec!["net"];
    for (child, _) in ASKED {
        up(&mut w, HUB, child);
        at_hub.push(child);
        all_have_their_own(&w, &at_hub);
    }
    // What is nobody else's is the hub's.
    assert_eq!((arrives(&w, HUB, "net", "10.9.0.1"), leaves(&w, "10.9.0.1")), (Ok(()), Ok(HUB)));
    // It stays so when SAs are made again.
    for node in [HUB, SPOKE, B] {
        for child in ["net", "half-of-b", "whole-of-b", "half-of-pass"] {
            let target = Target { child: Some(child.to_owned()), ..Target::default() };
            let now = w.now();
            let _ = w.nodes[node].endpoint.rekey(now, &target, false);
            w.run(20 * S);
        }
        all_have_their_own(&w, &at_hub);
    }
    w.audit();
}

#[test]
fn nor_by_being_first() {
    for children in [&["half-of-b", "net"][..], &["whole-of-b"], &["host-of-b", "half-of-drop"]] {
        let mut w = world(2, |_| {});
        for child in children {
            up(&mut w, HUB, child);
        }
        up(&mut w, B, "net");
        all_have_their_own(&w, children);
        w.audit();
    }
}

#[test]
fn nor_by_answering_with_less() {
    for (local, child) in [("10.3.0.0/17", "half-of-b"), ("10.3.0.0/16", "whole-of-b")] {
        let mut w = world(3, |_| {});
        // The hub has nothing but this to give.
        let now = w.now();
        w.nodes[HUB].endpoint.load_connection(now, {
            let mut conn = from(HUB, local);
            conn.children.truncate(1);
            conn
        });
        let ticket = w.nodes[SPOKE].endpoint.initiate(now, Some("hub.example"), Some("net")).unwrap();
        w.run(5 * S);
        assert_eq!(w.nodes[SPOKE].done.get(&ticket), Some(&Ok(())), "{child}");
        up(&mut w, B, "net");
        let refused = Err(DropReason::InTmplMismatch);
        assert_eq!(arrives(&w, HUB, "net", "10.3.0.1"), refused);
        all_have_their_own(&w, &[]);
        w.audit();
    }
}

#[test]
fn nor_with_a_trap() {
    let mut w = world(4, |conns| {
        for conn in conns {
            conn.children[0].start_action = ChildAction::Trap;
        }
    });
    up(&mut w, HUB, "net");
    up(&mut w, HUB, "half-of-b");
    // `b` is not up, and what is for it waits.
    assert_eq!(leaves(&w, "10.3.0.1"), Err(None));
    assert_eq!(arrives(&w, HUB, "half-of-b", "10.3.0.1"), Err(DropReason::InTmplMismatch));
    up(&mut w, B, "net");
    up(&mut w, HUB, "whole-of-b");
    all_have_their_own(&w, &["net", "half-of-b", "whole-of-b"]);
    w.audit();
}

#[test]
fn nor_with_the_reqid_that_another_has_configured() {
    let mut w = world(5, |conns| conns[1].children[0].reqid = 1);
    up(&mut w, HUB, "net");
    up(&mut w, B, "net");
    let target = Target { child: Some("net".to_owned()), ..Target::default() };
    let now = w.now();
    w.nodes[HUB].endpoint.rekey(now, &target, false).unwrap();
    w.run(20 * S);
    all_have_their_own(&w, &["net"]);
    w.audit();
}

/// Of what is configured as specific, what is older comes first, and what was narrowed is as old as
/// what it was narrowed from.
#[test]
fn of_two_that_cross_the_older_is_first_whatever_is_asked_for() {
    for first in [HUB, C] {
        // As many bits are open on both sides together.
        let mut w = world(6, |conns| {
            conns[0].children[0] = config::child("net", "10.1.0.0/24", "10.0.0.0/8");
            conns[2].children[0] = config::child("net", "10.1.0.0/16", "10.6.0.0/16");
        });
        let other = HUB + C - first;
        up(&mut w, first, "net");
        up(&mut w, other, "net");
        assert_eq!(leaves(&w, "10.6.0.1"), Ok(first));
        let now = w.now();
        let mut conn = (*w.nodes[other].endpoint.connections()[0]).clone();
        conn.children.push(config::child("less", "10.6.0.0/28", "10.1.0.0/24"));
        w.nodes[other].endpoint.load_connection(now, conn);
        up(&mut w, other, "less");
        assert_eq!(leaves(&w, "10.6.0.1"), Ok(first));
        assert_eq!(arrives(&w, other, "less", "10.6.0.1"), Err(DropReason::InTmplMismatch));
        assert_eq!(arrives(&w, first, "net", "10.6.0.1"), Ok(()));
        w.audit();
    }
}

/// Peers of one connection have equal rights: each has what is asked for, the more specific before
/// the wider.
#[test]
fn peers_of_one_connection_have_what_each_asks_for() {
    let mut w = world(7, |conns| {
        conns[1].remote_id = ironswan_wire::id::IdPattern::parse("%any").unwrap();
        conns[1].remote_addrs = vec![];
        conns[1].children[0] = config::child("net", "10.1.0.0/16", "10.0.0.0/8");
        // Nobody has this one.
        conns[0].remote_id = ironswan_wire::id::IdPattern::parse("nobody.example").unwrap();
        conns[2].remote_id = ironswan_wire::id::IdPattern::parse("nobody.example").unwrap();
    });
    up(&mut w, B, "net");
    up(&mut w, C, "net");
    assert_eq!((leaves(&w, "10.6.0.1"), leaves(&w, "10.7.0.1")), (Ok(C), Ok(B)));
    assert_eq!(arrives(&w, C, "net", "10.6.0.1"), Ok(()));
    assert_eq!(arrives(&w, B, "net", "10.7.0.1"), Ok(()));
    assert_eq!(arrives(&w, B, "net", "10.6.0.1"), Err(DropReason::InTmplMismatch));
    w.audit();
}

/// The child that a peer's selectors are for is the one whose policy covers them first.
#[test]
fn what_lies_in_two_children_is_the_more_specific_one_s() {
    let mut w = world(8, |conns| conns[0].children.push(config::child("lan", "10.1.0.0/16", "10.3.0.0/16")));
    up(&mut w, HUB, "net");
    up(&mut w, HUB, "whole-of-b");
    up(&mut w, HUB, "half-of-b");
    let sas = w.nodes[SPOKE].sas(w.now());
    let names: Vec<_> = sas.iter().flat_map(|sa| &sa.children).map(|c| c.name.as_str()).collect();
    assert_eq!(names, ["net", "lan", "lan"]);
    assert_eq!(arrives(&w, HUB, "half-of-b", "10.3.0.1"), Ok(()));
    assert_eq!(leaves(&w, "10.3.0.1"), Ok(HUB));
    w.audit();
}
