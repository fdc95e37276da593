//! Nodes, network and clock together, and what must hold when everything is quiet.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use ironswan_crypto::rng::Seeded;
use ironswan_ike::Options;
use ironswan_ike::event::{ChildSaInfo, ChildState, IkeSaInfo, IkeState, Ticket};
use ironswan_keying::diagnosis::{Path, SendFault};
use ironswan_keying::{Connection, Limits, Target};
use ironswan_wire::sadb::{Action, ReqId, SaAdd, Spi, Up};
use ironswan_wire::selector::PacketSelector;

use crate::config;
use crate::engine::Sealed;
use crate::net::{Net, Packet};
use crate::node::Node;

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

/// An ESP or AH packet of the simulation.
#[derive(Clone, Debug)]
pub struct Esp {
    /// When it arrives.
    pub at: Instant,
    /// From where, as the receiver will see it.
    pub from: SocketAddr,
    /// To where.
    pub to: SocketAddr,
    /// SPI.
    pub spi: Spi,
    /// What the receiver can judge.
    pub sealed: Sealed,
    /// Sequence number.
    pub seq: u64,
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
                    self.net.send(now, i, local, t.remote, t.payload);
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

    /// ESP and AH in the model: it leaves through the newest outbound SA, and must meet an inbound
    /// SA with the same SPI and key.
    fn carry_esp(&mut self, now: Instant) {
        if let Some(every) = self.traffic
            && self.next_traffic <= now
        {
            self.next_traffic = now + every;
            let quiet = self.quiet.clone();
            for i in (0..self.nodes.len()).filter(|i| !quiet.contains(i)) {
                let Some(sa) = self.nodes[i].engine.sending() else {
                    self.acquire(now, i);
                    continue;
                };
                let sa = sa.clone();
                self.seq += 1;
                let (spi, sealed, seq) = (sa.spi, Sealed::by(&sa), self.seq);
                let (from, to) = (sa.local, sa.remote);
                if !self.count(now, i, &sa) {
                    continue;
                }
                let there = self.nodes[i].addrs.contains(&from.ip()) && !self.net.mute.contains(&i);
                let Some((from, to)) = self.net.translate(from, to).filter(|_| there) else { continue };
                let esp = Esp { at: now + self.net.delay, from, to, spi, sealed, seq };
                self.last_esp.insert(i, esp.clone());
                self.esp.push(esp);
            }
        }
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.esp).into_iter().partition(|e| e.at <= now);
        self.esp = later;
        // Packets that have waited are opened before newer ones.
        for e in std::mem::take(&mut self.early).into_iter().chain(due) {
            self.open_esp(now, &e);
            self.settle_outputs();
        }
    }

    fn open_esp(&mut self, now: Instant, e: &Esp) {
        let Some(i) = self.nodes.iter().position(|n| n.addrs.contains(&e.to.ip())) else { return };
        let engine = &self.nodes[i].engine;
        let taken =
            engine.inbound.get(&e.spi).filter(|sa| e.sealed.opens(sa, e.from.ip(), e.to.ip()).is_ok());
        // Not a replay, and within the limits of the SA.
        let new = engine.newest.get(&e.spi).is_none_or(|newest| e.seq > *newest);
        let Some(sa) = taken.filter(|_| new).cloned() else {
            if engine.reserved.get(&e.spi) == Some(&e.from.ip()) {
                self.early.push(e.clone());
                return;
            }
            self.nodes[i].esp.1 += 1;
            return;
        };
        if !self.count(now, i, &sa) {
            return;
        }
        let node = &mut self.nodes[i];
        node.engine.newest.insert(e.spi, e.seq);
        node.esp.0 += 1;
        node.last_esp = Some(now);
        if sa.udp_encap && sa.remote != e.from && node.engine.told.insert((e.spi, e.from)) {
            node.endpoint.call(now, |ep| ep.handle_engine(now, Up::Moved { spi: e.spi, remote: e.from }));
        }
        if sa.notify_first_use && !node.engine.used.contains(&e.spi) {
            node.engine.used.push(e.spi);
            node.endpoint.call(now, |ep| ep.handle_engine(now, Up::FirstUse { spi: e.spi }));
        }
    }

    /// Counts a packet, and tells the endpoint when a limit is reached. Whether the packet is
    /// carried.
    fn count(&mut self, now: Instant, node: usize, sa: &SaAdd) -> bool {
        let (told, carried) = self.nodes[node].engine.count(sa);
        if let Some(up) = told {
            self.nodes[node].endpoint.call(now, |e| e.handle_engine(now, up));
            self.settle_outputs();
        }
        carried
    }

    /// A packet has met a policy without an SA.
    fn acquire(&mut self, now: Instant, node: usize) {
        let protect = self.nodes[node].engine.policies.iter().find_map(|p| match p.action {
            Action::Protect(r) => Some((r, p.local.range.start(), p.remote.range.start())),
            _ => None,
        });
        let Some((reqid, src, dst)) = protect else { return };
        let due = self.acquired.get(&(node, reqid)).is_none_or(|t| now - *t >= Duration::from_secs(1));
        if due {
            self.acquired.insert((node, reqid), now);
            let packet = PacketSelector { src, dst, protocol: 1, src_port: None, dst_port: None };
            self.nodes[node].calls += 1;
            self.nodes[node].endpoint.call(now, |e| e.handle_engine(now, Up::Acquire { reqid, packet }));
        }
    }

    /// Sends an ESP packet that no engine has sent now.
    pub fn inject_esp(&mut self, esp: Esp) {
        self.esp.push(esp);
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

    /// Why the world is not at rest with exactly one IKE_SA and one CHILD_SA, the same on both
    /// sides.
    pub fn fault(&self) -> Option<String> {
        let all: Vec<_> = (0..2).map(|i| self.nodes[i].sas(self.now())).collect();
        for (i, sas) in all.iter().enumerate() {
            let [sa] = sas.as_slice() else {
                let list: Vec<_> = sas
                    .iter()
                    .map(|s| format!("{:016x} {} {:?}", s.spi_i, s.state, s.tasks_active))
                    .collect();
                return Some(format!("node {i} has {} IKE_SAs: {list:?}", sas.len()));
            };
            if sa.state != IkeState::Established || !sa.tasks_active.is_empty() || !sa.tasks_queued.is_empty()
            {
                return Some(format!("node {i}: IKE_SA is {} with {:?}", sa.state, sa.tasks_active));
            }
            let [child] = sa.children.as_slice() else {
                let list: Vec<_> =
                    sa.children.iter().map(|c| format!("{} {}/{}", c.state, c.spi_in, c.spi_out)).collect();
                return Some(format!("node {i} has {} CHILD_SAs: {list:?}", sa.children.len()));
            };
            if child.state != ChildState::Installed {
                return Some(format!("node {i}: CHILD_SA is {}", child.state));
            }
            let e = &self.nodes[i].engine;
            if !e.reserved.is_empty() {
                return Some(format!("node {i}: SPIs are still reserved: {:?}", e.reserved));
            }
            let wanted = usize::from(self.policies);
            if e.inbound.len() != 1 || e.outbound.len() != 1 || e.policies.len() != wanted {
                return Some(format!(
                    "node {i}: engine has {} in, {} out, {} policies",
                    e.inbound.len(),
                    e.outbound.len(),
                    e.policies.len()
                ));
            }
            if !e.inbound.contains_key(&child.spi_in) || e.outbound[0].spi != child.spi_out {
                return Some(format!("node {i}: the engine has other SPIs"));
            }
        }
        let (a, b) = (&all[0][0], &all[1][0]);
        if (a.spi_i, a.spi_r) != (b.spi_i, b.spi_r) || a.initiator == b.initiator {
            return Some("two different IKE_SAs".to_owned());
        }
        let (ca, cb) = (&a.children[0], &b.children[0]);
        if (ca.spi_in, ca.spi_out) != (cb.spi_out, cb.spi_in)
            || (self.net.whole() && (&ca.local_ts, &ca.remote_ts) != (&cb.remote_ts, &cb.local_ts))
            || ca.suite != cb.suite
            || (ca.protocol, ca.mode) != (cb.protocol, cb.mode)
            || (ca.cpi_in, ca.cpi_out) != (cb.cpi_out, cb.cpi_in)
            || ca.cpi_in.is_some() != ca.cpi_out.is_some()
        {
            return Some("two different CHILD_SAs".to_owned());
        }
        let (ea, eb) = (&self.nodes[0].engine, &self.nodes[1].engine);
        let keys = |out: &crate::Engine, inb: &crate::Engine| {
            let sent = &out.outbound[0];
            let opened = &inb.inbound[&sent.spi];
            sent.encr_key == opened.encr_key && sent.integ_key == opened.integ_key
        };
        if !keys(ea, eb) || !keys(eb, ea) {
            return Some("the keys differ".to_owned());
        }
        None
    }

    /// Asserts that there is exactly one IKE_SA and one CHILD_SA.
    pub fn assert_one(&self) {
        if let Some(fault) = self.fault() {
            self.dump();
            panic!("{fault}");
        }
    }

    /// Why the world is not empty: no SA anywhere, no policy but those of traps.
    pub fn remains(&self) -> Option<String> {
        for (i, node) in self.nodes.iter().enumerate() {
            let sas = node.sas(self.now());
            if !sas.is_empty() {
                return Some(format!("node {i} has {} IKE_SAs", sas.len()));
            }
            let e = &node.engine;
            let sas = !e.inbound.is_empty() || !e.outbound.is_empty() || !e.reserved.is_empty();
            if sas || !e.policies.is_empty() {
                return Some(format!("node {i}: the engine is not empty: {e:?}"));
            }
        }
        None
    }

    /// Asserts that nothing is left.
    pub fn assert_empty(&self) {
        if let Some(fault) = self.remains() {
            self.dump();
            panic!("{fault}");
        }
    }

    /// Prints what was sent and logged.
    pub fn dump(&self) {
        for (seen, packet) in self.net.log.iter().rev().take(40).rev() {
            eprintln!(
                "#{} node {} {}->{} {} {} mid {}",
                seen.index,
                seen.node,
                packet.from,
                packet.to,
                seen.exchange,
                if seen.response { "rsp" } else { "req" },
                seen.mid
            );
        }
        for (i, node) in self.nodes.iter().enumerate() {
            for (level, line) in node.log.iter().rev().take(60).rev() {
                eprintln!("node {i} {level:?} {line}");
            }
        }
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
