//! Months of life in seconds: a pair of gateways with two children rekeys, is made anew, moves to
//! other addresses and crashes at random moments, while a tenth of all messages is lost. At rest
//! there is one IKE_SA with one child for each policy, and nothing else. The same seed gives the
//! same trace.
//!
//! | lifetimes | IKE_SA | reauthentication | CHILD_SAs | asked for life | a run is |
//! |---|---|---|---|---|---|
//! | default | 4 h | none, or 24 h | 1 h | 10 min | 90 days |
//! | short | 10 min | none, or 25 min | 4 min | 30 s | 4 days |

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::time::Duration;

use ironswan_crypto::rng::{Rng, Seeded};
use ironswan_ike::Options;
use ironswan_ike::event::{ChildState, IkeState};
use ironswan_keying::{AddrSpec, ChildAction, Connection, Limits, Target, Unique};
use ironswan_testkit::{World, config};
use ironswan_wire::secret::Secret;

const S: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(86_400);
/// Of a thousand messages, so many are lost.
const LOSS: u32 = 100;
/// Names of the children.
const CHILDREN: [&str; 2] = ["net", "other"];

/// Times of a connection, and of a run.
#[derive(Clone, Copy)]
struct Lifetimes {
    ike: Duration,
    reauth: Duration,
    child: Duration,
    dpd: Duration,
    /// Length of the run, and of its parts, at the end of which all comes to rest.
    run: Duration,
    part: Duration,
    /// The longest pause between two events.
    pause: Duration,
}

const DEFAULT: Lifetimes = Lifetimes {
    ike: Duration::from_secs(4 * 3_600),
    reauth: Duration::from_secs(24 * 3_600),
    child: HOUR,
    dpd: Duration::from_secs(600),
    run: Duration::from_secs(90 * 86_400),
    part: Duration::from_secs(10 * 86_400),
    pause: Duration::from_secs(12 * 3_600),
};
const SHORT: Lifetimes = Lifetimes {
    ike: Duration::from_secs(600),
    reauth: Duration::from_secs(1_500),
    child: Duration::from_secs(240),
    dpd: Duration::from_secs(30),
    run: Duration::from_secs(4 * 86_400),
    part: Duration::from_secs(12 * 3_600),
    pause: HOUR,
};

/// Features of a run, by its seed.
#[derive(Clone, Copy, Debug)]
struct Kind {
    reauth: bool,
    mobike: bool,
    tokens: bool,
    both_start: bool,
    replace: bool,
}

impl Kind {
    fn of(seed: u64) -> Self {
        let bit = |n: u64| seed >> n & 1 == 1;
        Self { mobike: !bit(0), tokens: !bit(1), reauth: bit(2), both_start: bit(3), replace: bit(4) }
    }
}

fn connections(life: Lifetimes, kind: Kind) -> [Connection; 2] {
    let mut conns = config::pair(config::ip("192.0.2.1"), config::ip("192.0.2.2"));
    let others = [("10.1.7.0/24", "10.2.7.0/24"), ("10.2.7.0/24", "10.1.7.0/24")];
    for (n, (c, (ours, theirs))) in conns.iter_mut().zip(others).enumerate() {
        c.mobike = kind.mobike;
        c.dpd_delay = life.dpd;
        c.keyingtries = 0;
        c.unique = if kind.replace { Unique::Replace } else { Unique::No };
        // A tenth, as by default.
        (c.rekey_time, c.over_time, c.rand_time) = (life.ike, life.ike / 10, life.ike / 10);
        c.reauth_time = if kind.reauth { life.reauth } else { Duration::ZERO };
        c.children.push(config::child(CHILDREN[1], ours, theirs));
        for child in &mut c.children {
            (child.rekey_time, child.life_time) = (life.child, life.child + life.child / 10);
            child.rand_time = life.child / 10;
            if n == 0 || kind.both_start {
                (child.start_action, child.dpd_action) = (ChildAction::Start, ChildAction::Start);
                child.close_action = ChildAction::Start;
            }
        }
    }
    conns[0].local_addrs = vec![AddrSpec::Any];
    conns[1].remote_addrs = vec![AddrSpec::Any, AddrSpec::Host(config::ip("192.0.2.1"))];
    conns
}

/// One run.
struct Run {
    w: World,
    kind: Kind,
    conns: [Connection; 2],
    rng: Seeded,
    /// Of all messages and of the time at which each was sent.
    trace: DefaultHasher,
    traced: usize,
    restarts: u64,
}

impl Run {
    fn new(seed: u64, life: Lifetimes) -> Self {
        let kind = Kind::of(seed);
        let conns = connections(life, kind);
        let ends = (config::ip("192.0.2.1"), config::ip("192.0.2.2"));
        let options = Options { take_qcd_tokens: kind.tokens, ..Options::default() };
        let w = World::pair_with(seed, ends, Limits::default(), options, |c| *c = conns.clone());
        let rng = Seeded::new(seed ^ 0x0070_0000);
        let mut run = Self { w, kind, conns, rng, trace: DefaultHasher::new(), traced: 0, restarts: 0 };
        (0..2).for_each(|node| run.begin(node));
        run
    }

    /// Tells a node that has just started what it finds on its machine.
    fn begin(&mut self, node: usize) {
        let now = self.w.now();
        if self.kind.tokens {
            let secret = Secret::new(vec![0x30 + u8::try_from(node).unwrap(); 32]);
            self.w.nodes[node].endpoint.call(now, |e| e.make_qcd_tokens(secret));
        }
        self.w.network_changed(node);
    }

    fn below(&mut self, n: u64) -> u64 {
        self.rng.u64() % n
    }

    /// Something that operators, networks and power supplies do.
    fn event(&mut self) {
        let node = usize::from(self.below(2) == 1);
        let child = CHILDREN[usize::from(self.below(2) == 1)].to_owned();
        let now = self.w.now();
        match self.below(8) {
            0 | 1 => {
                let target = Target { child: Some(child), ..Target::default() };
                // There may be none at this moment.
                let _ = self.w.nodes[node].endpoint.rekey(now, &target, false);
            }
            2 | 3 => {
                let target = Target { ike: Some("gw".to_owned()), ..Target::default() };
                let _ = self.w.nodes[node].endpoint.rekey(now, &target, false);
            }
            4 => {
                let target = Target { ike: Some("gw".to_owned()), ..Target::default() };
                let _ = self.w.nodes[node].endpoint.rekey(now, &target, true);
            }
            5 | 6 => {
                let host = u8::try_from(self.below(250)).unwrap() + 1;
                self.w.readdress(0, vec![IpAddr::from([198, 51, 100, host])]);
            }
            _ => {
                self.restarts += 1;
                let seed = 1_000_000 + self.restarts;
                self.w.restart(node, seed, self.conns[node].clone());
                self.begin(node);
            }
        }
    }

    /// Random events until a part of the run is over.
    fn part(&mut self, life: Lifetimes) {
        let end = self.w.now() + life.part;
        self.w.net.loss = LOSS;
        while self.w.now() < end {
            let pause = life.pause.as_millis() as u64;
            let pause = Duration::from_millis(self.below(pause));
            self.w.run(pause);
            self.event();
            self.note();
        }
        self.w.net.loss = 0;
    }

    /// Enters into the trace what was sent since.
    fn note(&mut self) {
        for (seen, packet) in self.w.net.log.drain(..) {
            self.traced += 1;
            (seen.node, seen.index, &packet.payload, packet.from, packet.to).hash(&mut self.trace);
        }
        let (now, elapsed) = (self.w.now(), self.w.clock.elapsed());
        for at in self.w.net.sent.drain(..) {
            (elapsed - now.duration_since(at)).hash(&mut self.trace);
        }
    }

    /// Why the world is not at rest with one IKE_SA and one child for each policy.
    fn fault(&self) -> Option<String> {
        let mut ends = Vec::new();
        for (i, node) in self.w.nodes.iter().enumerate() {
            let sas = node.sas(self.w.now());
            let [sa] = &sas[..] else {
                return Some(format!("node {i} has {} IKE_SAs", sas.len()));
            };
            if sa.state != IkeState::Established || !sa.tasks_active.is_empty() {
                return Some(format!("node {i}: IKE_SA is {} with {:?}", sa.state, sa.tasks_active));
            }
            let names: Vec<_> = sa.children.iter().map(|c| c.name.as_str()).collect();
            if names.len() != CHILDREN.len() || CHILDREN.iter().any(|name| !names.contains(name)) {
                return Some(format!("node {i} has the children {names:?}"));
            }
            if let Some(child) = sa.children.iter().find(|c| c.state != ChildState::Installed) {
                return Some(format!("node {i}: {} is {}", child.name, child.state));
            }
            let e = &node.engine;
            let counts = [e.inbound.len(), e.outbound.len(), e.policies.len()];
            if counts != [CHILDREN.len(); 3] {
                return Some(format!("node {i}: the engine has {counts:?} in, out and policies"));
            }
            let spis = sa.children.iter().map(|c| (c.spi_in, c.spi_out));
            let spis: BTreeSet<_> = spis.map(|(i_, o)| if i == 0 { (i_, o) } else { (o, i_) }).collect();
            ends.push(((sa.spi_i, sa.spi_r), spis));
        }
        (ends[0] != ends[1]).then(|| "the two ends have different SAs".to_owned())
    }

    fn comes_to_rest(&mut self, what: &str) {
        // The longest pause between two attempts, two rounds of retransmissions, and SAs that are
        // kept a while.
        let rests = (0..120).any(|_| {
            self.w.run(10 * S);
            self.fault().is_none()
        });
        if !rests {
            self.w.dump();
            panic!("{what} {:?}: {:?}", self.kind, self.fault());
        }
        self.note();
    }

    fn end(mut self) -> (u64, usize) {
        self.w.audit();
        self.note();
        (self.trace.finish(), self.traced)
    }
}

fn live(seed: u64, life: Lifetimes) -> (u64, usize) {
    let mut run = Run::new(seed, life);
    run.comes_to_rest(&format!("seed {seed} at the start"));
    let parts = life.run.as_secs() / life.part.as_secs();
    for part in 0..parts {
        run.part(life);
        run.comes_to_rest(&format!("seed {seed}, part {part}"));
    }
    let (trace, sent) = run.end();
    (trace, sent)
}

/// Seeds of a test: so many, or with FULL=1 so many more in the environment.
fn seeds(few: u64, full: u64) -> std::ops::Range<u64> {
    0..if std::env::var_os("FULL").is_some() { full } else { few }
}

#[test]
fn months_with_the_default_lifetimes_end_with_one_ike_sa_and_one_child_for_each_policy() {
    for seed in seeds(1, 16) {
        let (_, sent) = live(seed, DEFAULT);
        assert!(sent > 20_000, "seed {seed}: {sent} messages");
    }
}

#[test]
fn days_with_short_lifetimes_end_likewise() {
    // 26 and 38 have found a fault each.
    for seed in seeds(0, 128).chain([26, 38]).map(|n| 100 + n) {
        let (_, sent) = live(seed, SHORT);
        assert!(sent > 10_000, "seed {seed}: {sent} messages");
    }
}

#[test]
fn the_same_seed_gives_the_same_trace() {
    let life = Lifetimes { run: DAY, part: 12 * HOUR, ..SHORT };
    let first: Vec<_> = (0..2).map(|seed| live(seed, life)).collect();
    let again: Vec<_> = (0..2).map(|seed| live(seed, life)).collect();
    assert_eq!(first, again);
    assert!(first.iter().collect::<BTreeSet<_>>().len() == 2, "another seed, another trace");
}
