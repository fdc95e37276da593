//! Nodes, network and clock together.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `esp` | packets between the engines of the nodes |
//! | `rest` | the world at rest: exactly one IKE_SA and one CHILD_SA, or nothing |

mod esp;
mod rest;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use ironswan_crypto::rng::Seeded;
use ironswan_ike::Options;
use ironswan_ike::event::{ChildSaInfo, IkeSaInfo, Ticket};
use ironswan_keying::diagnosis::{Path, SendFault};
use ironswan_keying::{Connection, Limits, Target};
use ironswan_wire::sadb::ReqId;

use crate::config;
use crate::net::{Net, Packet};
use crate::node::Node;
pub use esp::Esp;

/// A clock that stands until it is moved.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    now: Instant,
}

impl Clock {
    /// Starts at some instant; which one cannot be seen.
    #[allow(
        clippy::disallowed_methods,
        reason = "an Instant cannot be made otherwise; only differences count"
    )]
    #[allow(clippy::new_without_default, reason = "it reads the clock")]
    pub fn new() -> Self {
        let start = Instant::now();
        Self { start, now: start }
    }

    /// The present.
    pub fn now(&self) -> Instant {
        self.now
    }

    /// Since the start.
    pub fn elapsed(&self) -> Duration {
        self.now - self.start
    }
}

/// Everything.
pub struct World {
    /// The clock.
    pub clock: Clock,
    /// The network.
    pub net: Net,
    /// The gateways.
    pub nodes: Vec<Node>,
    /// When set, each node sends a packet through its tunnel this often, as long as it has an
    /// outbound SA.
    pub traffic: Option<Duration>,
    /// Nodes that send no packets through their tunnels.
    pub quiet: BTreeSet<usize>,
    /// Children have policies, so that one at rest has one.
    pub policies: bool,
    /// ESP packets travel this much longer than IKE messages.
    pub esp_late: Duration,
    next_traffic: Instant,
    esp: Vec<Esp>,
    /// ESP packets that have arrived before their SA, and wait for it.
    pub early: Vec<Esp>,
    /// The last ESP packet that each node has sent.
    pub last_esp: BTreeMap<usize, Esp>,
    seq: u64,
    acquired: BTreeMap<(usize, ReqId), Instant>,
}

impl World {
    /// Nodes on a network.
    pub fn new(seed: u64, nodes: Vec<Node>) -> Self {
        let clock = Clock::new();
        Self {
            clock,
            net: Net::new(seed),
            nodes,
            traffic: None,
            quiet: BTreeSet::new(),
            policies: true,
            esp_late: Duration::ZERO,
            next_traffic: clock.now(),
            esp: Vec::new(),
            early: Vec::new(),
            last_esp: BTreeMap::new(),
            seq: 0,
            acquired: BTreeMap::new(),
        }
    }

    /// Two gateways with the connections of [`config::pair`] (changed by `tweak`) and one PSK,
    /// loaded.
    pub fn pair(seed: u64, tweak: impl FnOnce(&mut [Connection; 2])) -> Self {
        Self::pair_at(seed, config::ip("192.0.2.1"), config::ip("192.0.2.2"), Limits::default(), tweak)
    }

    /// The same at other addresses and with other limits.
    pub fn pair_at(
        seed: u64,
        a: IpAddr,
        b: IpAddr,
        limits: Limits,
        tweak: impl FnOnce(&mut [Connection; 2]),
    ) -> Self {
        let options = Options { keylog: true, ..Options::default() };
        Self::pair_with(seed, (a, b), limits, options, tweak)
    }

    /// The same with these options of both endpoints.
    pub fn pair_with(
        seed: u64,
        (a, b): (IpAddr, IpAddr),
        limits: Limits,
        options: Options,
        tweak: impl FnOnce(&mut [Connection; 2]),
    ) -> Self {
        let node =
            |addr, seed| Node::with_options(vec![addr], Box::new(Seeded::new(seed)), limits.clone(), options);
        let seeds = [1, 2].map(|n| seed.wrapping_mul(2).wrapping_add(n));
        let mut world = Self::new(seed, vec![node(a, seeds[0]), node(b, seeds[1])]);
        let mut conns = config::pair(a, b);
        tweak(&mut conns);
        world.load(conns);
        world
    }

    /// Gives node 0 and 1 the PSK and their connections.
    pub fn load(&mut self, conns: [Connection; 2]) {
        let now = self.now();
        for (node, conn) in self.nodes.iter_mut().zip(conns) {
            node.endpoint.load_shared(config::psk(
                "ike-gw",
                "a secret of both",
                &["g1.example", "g2.example"],
            ));
            node.endpoint.load_connection(now, conn);
        }
        self.settle_outputs();
    }

    /// The present.
    pub fn now(&self) -> Instant {
        self.clock.now()
    }

    fn settle_outputs(&mut self) {
        let now = self.now();
        for i in 0..self.nodes.len() {
            for t in self.nodes[i].drain(now) {
                let mut local = t.local;
                if local.ip().is_unspecified() {
                    local.set_ip(self.nodes[i].addrs.first().copied().unwrap_or(local.ip()));
                }
                // A kernel sends from no address that is not its own.
                if self.nodes[i].addrs.contains(&local.ip()) {
                    self.net.send(now, i, local, t.remote, (t.payload, t.cut));
                } else {
                    self.nodes[i].unsendable += 1;
                    let why = SendFault::NotOurs("EADDRNOTAVAIL".to_owned());
                    let why = Path::NotSent { local, remote: t.remote, why };
                    if let Some(ike) = t.ike {
                        self.nodes[i].endpoint.call(now, |e| e.not_sent(ike, why.into()));
                    }
                }
            }
        }
    }

    /// When something happens next.
    fn next_event(&self) -> Option<Instant> {
        let nodes = self.nodes.iter().flat_map(|n| {
            [n.endpoint.poll_timeout(), n.answers.front().map(|(at, ..)| *at)].into_iter().flatten()
        });
        let traffic = self.traffic.map(|_| self.next_traffic);
        nodes.chain(self.net.next()).chain(traffic).chain(self.esp.iter().map(|e| e.at)).min()
    }

    /// Lets everything happen that happens within `time`.
    pub fn run(&mut self, time: Duration) {
        let end = self.now() + time;
        self.settle_outputs();
        // A bound on steps finds loops that take no time.
        for _ in 0..2_000_000 {
            match self.next_event() {
                Some(at) if at <= end => {
                    self.clock.now = self.clock.now.max(at);
                    self.step();
                }
                _ => {
                    self.clock.now = end;
                    return;
                }
            }
        }
        panic!("the world does not come to rest");
    }

    /// Time passes, and every gateway is asleep: all that was to happen happens late, when the
    /// world runs again.
    pub fn sleep(&mut self, time: Duration) {
        self.settle_outputs();
        self.clock.now += time;
    }

    /// Runs until `done` or for `limit` at most; whether it was done.
    pub fn run_until(&mut self, limit: Duration, mut done: impl FnMut(&Self) -> bool) -> bool {
        let end = self.now() + limit;
        self.settle_outputs();
        for _ in 0..2_000_000 {
            if done(self) {
                return true;
            }
            match self.next_event() {
                Some(at) if at <= end => {
                    self.clock.now = self.clock.now.max(at);
                    self.step();
                }
                _ => {
                    self.clock.now = end;
                    return done(self);
                }
            }
        }
        panic!("the world does not come to rest");
    }

    fn step(&mut self) {
        let now = self.now();
        while let Some(packet) = self.net.arrived(now) {
            self.deliver(packet);
            self.settle_outputs();
        }
        self.carry_esp(now);
        for i in 0..self.nodes.len() {
            if self.nodes[i].endpoint.poll_timeout().is_some_and(|at| at <= now) {
                self.nodes[i].calls += 1;
                self.nodes[i].endpoint.handle_timeout(now);
            }
        }
        self.settle_outputs();
    }

    fn deliver(&mut self, packet: Packet) {
        let now = self.now();
        let Some(node) = self.nodes.iter_mut().find(|n| n.addrs.contains(&packet.to.ip())) else { return };
        let message = if packet.to.port() == node.endpoint.protocol().options().ports.natt {
            match packet.payload.strip_prefix(&[0; 4]) {
                Some(message) => message,
                None => return,
            }
        } else {
            &packet.payload[..]
        };
        node.calls += 1;
        node.endpoint.call(now, |e| e.handle_datagram(now, packet.to, packet.from, message));
    }

    /// Tells a node that its addresses, links or routes have changed.
    pub fn network_changed(&mut self, node: usize) {
        let (now, addrs) = (self.now(), self.nodes[node].addrs.clone());
        self.nodes[node].endpoint.network_changed(now, &addrs);
        self.settle_outputs();
    }

    /// A node has other addresses from now on, and is told so.
    pub fn readdress(&mut self, node: usize, addrs: Vec<IpAddr>) {
        self.nodes[node].addrs = addrs;
        self.network_changed(node);
    }

    /// Ends the story: everything is taken down, and nothing may be left in any table of any
    /// endpoint.
    ///
    /// # Panics
    /// When something is.
    pub fn audit(&mut self) {
        self.traffic = None;
        for i in 0..self.nodes.len() {
            let now = self.now();
            self.nodes[i].endpoint.shutdown(now);
        }
        self.run(Duration::from_secs(200));
        self.assert_empty();
        for (i, node) in self.nodes.iter().enumerate() {
            for (table, len) in node.endpoint.tables() {
                assert_eq!(len, 0, "node {i}: {table}");
            }
        }
    }

    /// Initiates `net` of `gw` on a node.
    pub fn initiate(&mut self, node: usize) -> Ticket {
        let now = self.now();
        let ticket = self.nodes[node].endpoint.initiate(now, Some("gw"), Some("net")).expect("a connection");
        self.settle_outputs();
        ticket
    }

    /// Initiates, and runs until the command has ended and everything is quiet. Its result.
    pub fn establish(&mut self, node: usize) -> Result<(), String> {
        let ticket = self.initiate(node);
        self.run_until(Duration::from_secs(400), |w| w.nodes[node].done.contains_key(&ticket));
        self.run(Duration::from_millis(500));
        self.nodes[node].done.get(&ticket).cloned().unwrap_or(Err("not done".to_owned()))
    }

    /// Rekeys every CHILD_SA named `net` on a node.
    pub fn rekey_child(&mut self, node: usize) -> Ticket {
        let target = Target { child: Some("net".to_owned()), ..Target::default() };
        self.rekey(node, &target)
    }

    /// The same, when there is one to rekey.
    pub fn rekey_child_if_any(&mut self, node: usize) -> Option<Ticket> {
        let target = Target { child: Some("net".to_owned()), ..Target::default() };
        let now = self.now();
        let ticket = self.nodes[node].endpoint.rekey(now, &target, false).ok().map(|(_, t)| t);
        self.settle_outputs();
        ticket
    }

    /// Rekeys every IKE_SA of `gw` on a node.
    pub fn rekey_ike(&mut self, node: usize) -> Ticket {
        let target = Target { ike: Some("gw".to_owned()), ..Target::default() };
        self.rekey(node, &target)
    }

    fn rekey(&mut self, node: usize, target: &Target) -> Ticket {
        let now = self.now();
        let (_, ticket) = self.nodes[node].endpoint.rekey(now, target, false).expect("something to rekey");
        self.settle_outputs();
        ticket
    }

    /// Terminates `gw` (or its child `net`) on a node.
    pub fn terminate(&mut self, node: usize, child: bool) -> Ticket {
        let target = match child {
            true => Target { child: Some("net".to_owned()), ..Target::default() },
            false => Target { ike: Some("gw".to_owned()), ..Target::default() },
        };
        let now = self.now();
        let (_, ticket) =
            self.nodes[node].endpoint.terminate(now, &target, false).expect("something to terminate");
        self.settle_outputs();
        ticket
    }

    /// What the endpoint of a node has, without half-open IKE_SAs.
    pub fn up(&self, node: usize) -> Vec<IkeSaInfo> {
        let mut sas = self.nodes[node].sas(self.now());
        sas.retain(|sa| sa.established.is_some());
        sas
    }

    /// The one CHILD_SA of a node.
    pub fn child(&self, node: usize) -> ChildSaInfo {
        let mut children: Vec<_> = self.up(node).into_iter().flat_map(|sa| sa.children).collect();
        assert_eq!(children.len(), 1, "node {node} has {} children", children.len());
        children.remove(0)
    }

    /// Loses everything that a node knows: it starts again with the connection and key of its side.
    pub fn restart(&mut self, node: usize, seed: u64, conn: Connection) {
        let (addrs, options) =
            (self.nodes[node].addrs.clone(), *self.nodes[node].endpoint.protocol().options());
        let rng = Box::new(Seeded::new(seed));
        self.nodes[node] = Node::with_options(addrs, rng, Limits::default(), options);
        let now = self.now();
        let key = config::psk("ike-gw", "a secret of both", &["g1.example", "g2.example"]);
        self.nodes[node].endpoint.load_shared(key);
        self.nodes[node].endpoint.load_connection(now, conn);
        self.settle_outputs();
    }

    /// Sends a datagram that no node has made.
    pub fn inject(&mut self, from: SocketAddr, to: SocketAddr, payload: Vec<u8>) {
        let now = self.now();
        self.net.inject(now, Packet { from, to, payload });
    }
}
