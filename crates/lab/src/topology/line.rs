//! The four boxes in a line of the FreeS/WAN measurements (Metheringham 2001):
//!
//! ```text
//!   a 10.1.0.2 ---- 10.1.0.1 g1 192.0.2.1 ---- 192.0.2.2 g2 10.2.0.1 ---- 10.2.0.2 b
//!     eth0               lan    wan                  wan    lan               eth0
//! ```
//! The gateways forward between their links but have no route to the far host: that is the business
//! of the system under test. Both hosts keep their packets to the inner MTU, so every system
//! carries the same packets. All four boxes run on the processors of this one machine.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::netns::Netns;
use super::network::{beside_relay, queues, separate_packets, silence};
use super::owner::Owner;
use crate::error::{LabError, Remedy};
use crate::process::{self, Journal};
use crate::relay::{ENDS, Relay, RelaySpec};

pub(super) const COMMAND: Duration = Duration::from_secs(10);

/// The addresses of the line.
pub mod address {
    /// Host a.
    pub const A: &str = "10.1.0.2";
    /// Host b.
    pub const B: &str = "10.2.0.2";
    /// Gateway g1 towards g2.
    pub const G1: &str = "192.0.2.1";
    /// Gateway g2 towards g1.
    pub const G2: &str = "192.0.2.2";
    /// The network behind g1.
    pub const NET_A: &str = "10.1.0.0/24";
    /// The network behind g2.
    pub const NET_B: &str = "10.2.0.0/24";
}

/// One of the four boxes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Node {
    /// The sending host.
    A,
    /// The gateway in front of it.
    G1,
    /// The gateway in front of the receiving host.
    G2,
    /// The receiving host.
    B,
}

impl Node {
    /// All four, in the order in which a packet meets them.
    pub const ALL: [Self; 4] = [Self::A, Self::G1, Self::G2, Self::B];

    /// `a`, `g1`, `g2`, `b`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::A => "a",
            Self::G1 => "g1",
            Self::G2 => "g2",
            Self::B => "b",
        }
    }
}

/// In what form packets cross the links.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mode {
    /// Segmentation offload on: TCP crosses in buffers of up to 64 KB, as between virtual machines
    /// of one host.
    Offload,
    /// Segmentation offload off (GRO on): every packet crosses by itself, as on a wire.
    Wire,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Offload => "offload",
            Self::Wire => "wire",
        })
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "offload" => Ok(Self::Offload),
            "wire" => Ok(Self::Wire),
            _ => Err(format!("`{s}` is not a mode; the modes are offload and wire")),
        }
    }
}

/// Options of a line.
#[derive(Debug, Clone, Copy)]
pub struct LineSpec {
    /// The form in which packets cross the links.
    pub mode: Mode,
    /// MTU of the routes of both hosts, bytes.
    pub inner_mtu: u32,
}

/// Four boxes in a line. Dropping it removes them and every process inside.
#[derive(Debug)]
pub struct Line {
    // First: it works on a link between the boxes.
    relays: Vec<Relay>,
    nodes: [Netns; 4],
    journal: Journal,
    number: u32,
    /// Receive queues, and send queues, at each end of a link.
    queues: usize,
}

pub(super) struct Link {
    pub(super) left: (Node, &'static str, &'static str),
    pub(super) right: (Node, &'static str, &'static str),
}

pub(super) const LINKS: [Link; 3] = [
    Link { left: (Node::A, "eth0", "10.1.0.2/24"), right: (Node::G1, "lan", "10.1.0.1/24") },
    Link { left: (Node::G1, "wan", "192.0.2.1/24"), right: (Node::G2, "wan", "192.0.2.2/24") },
    Link { left: (Node::G2, "lan", "10.2.0.1/24"), right: (Node::B, "eth0", "10.2.0.2/24") },
];

impl Line {
    /// Programs and kernel features that building one needs and this machine lacks.
    pub fn lacks(mode: Mode) -> Vec<Remedy> {
        let mut lacks = Vec::new();
        if process::find("ip").is_none() {
            lacks.push(Remedy::new("`ip` is not installed", "apt-get install iproute2"));
        }
        if mode == Mode::Wire && process::find("ethtool").is_none() {
            lacks.push(Remedy::new(
                "`ethtool` is not installed (wire mode, polling by threads)",
                "apt-get install ethtool",
            ));
        }
        lacks
    }

    /// Builds a line under the name of `owner`.
    pub fn build(owner: &Owner, spec: LineSpec) -> Result<Self, LabError> {
        Self::build_over(owner, spec, None)
    }

    /// The same, with so many queues at each end of a link.
    pub fn build_with_queues(owner: &Owner, spec: LineSpec, queues: usize) -> Result<Self, LabError> {
        Self::made(owner, spec, None, queues)
    }

    /// The same, with a relay in the link between the gateways, g1 on its left.
    pub fn build_over(owner: &Owner, spec: LineSpec, relay: Option<RelaySpec>) -> Result<Self, LabError> {
        Self::made(owner, spec, relay, queues())
    }

    fn made(
        owner: &Owner,
        spec: LineSpec,
        relay: Option<RelaySpec>,
        queues: usize,
    ) -> Result<Self, LabError> {
        let journal = Journal::default();
        let (name, number) = owner.next();
        // Each is a guard from the moment it exists: an error further down removes the ones before.
        let make =
            |node: Node| Netns::create(&journal, format!("{name}-{}", node.name()), owner.congestion());
        let nodes = [make(Node::A)?, make(Node::G1)?, make(Node::G2)?, make(Node::B)?];
        let mut line = Self { relays: Vec::new(), nodes, journal, number, queues };
        for link in &LINKS {
            match relay.filter(|_| link.left.1 == "wan") {
                Some(spec) => {
                    let between = Netns::create(&line.journal, format!("{name}-relay0"), owner.congestion())?;
                    line.connect_through(link, between, spec)?;
                }
                None => line.connect(link)?,
            }
        }
        let mtu = spec.inner_mtu.to_string();
        for (host, gateway) in [(Node::A, "10.1.0.1"), (Node::B, "10.2.0.1")] {
            line.ip(host, &["route", "add", "default", "via", gateway, "mtu", &mtu])?;
        }
        for gateway in [Node::G1, Node::G2] {
            for (name, value) in [
                ("net.ipv4.ip_forward", "1"),
                ("net.ipv4.conf.all.rp_filter", "0"),
                ("net.ipv4.conf.default.rp_filter", "0"),
                // Made before `default` was set.
                ("net.ipv4.conf.lan.rp_filter", "0"),
                ("net.ipv4.conf.wan.rp_filter", "0"),
            ] {
                line.node(gateway).sysctl(&line.journal, name, value)?;
            }
        }
        if spec.mode == Mode::Wire {
            line.separate_packets()?;
        }
        Ok(line)
    }

    fn connect(&self, link: &Link) -> Result<(), LabError> {
        let ((ln, ldev, laddr), (rn, rdev, raddr)) = (link.left, link.right);
        self.veth((self.node(ln).name(), ldev), (self.node(rn).name(), rdev))?;
        for (node, dev, addr) in [(ln, ldev, laddr), (rn, rdev, raddr)] {
            self.ip(node, &["addr", "add", addr, "dev", dev])?;
            self.ip(node, &["link", "set", dev, "up"])?;
        }
        Ok(())
    }

    fn veth(&self, (lns, ldev): (&str, &str), (rns, rdev): (&str, &str)) -> Result<(), LabError> {
        let n = self.queues;
        let command = format!(
            "ip link add {ldev} netns {lns} numrxqueues {n} numtxqueues {n} type veth \
             peer name {rdev} netns {rns} numrxqueues {n} numtxqueues {n}"
        );
        let argv: Vec<&str> = command.split(' ').collect();
        process::run(&self.journal, &argv, COMMAND).map(|_| ())
    }

    fn connect_through(&mut self, link: &Link, between: Netns, spec: RelaySpec) -> Result<(), LabError> {
        silence(&self.journal, &between);
        for ((node, dev, addr), end) in [link.left, link.right].into_iter().zip(ENDS) {
            self.veth((self.node(node).name(), dev), (between.name(), end))?;
            beside_relay(&self.journal, self.node(node), dev)?;
            self.ip(node, &["addr", "add", addr, "dev", dev])?;
            self.ip(node, &["link", "set", dev, "up"])?;
            process::run(&self.journal, &["ip", "-n", between.name(), "link", "set", end, "up"], COMMAND)?;
        }
        self.relays.push(Relay::start(between, spec)?);
        Ok(())
    }

    /// The relay between the gateways, when there is one.
    pub fn relays(&self) -> &[Relay] {
        &self.relays
    }

    /// Turns segmentation offload off on every link end, leaving GRO on.
    fn separate_packets(&self) -> Result<(), LabError> {
        for (node, dev, _) in LINKS.iter().flat_map(|l| [l.left, l.right]) {
            separate_packets(&self.journal, self.node(node), dev)?;
        }
        Ok(())
    }

    /// All boxes, by name.
    pub fn boxes(&self) -> [(&'static str, &Netns); 4] {
        Node::ALL.map(|node| (node.name(), self.node(node)))
    }

    /// The namespace of a box.
    pub fn node(&self, node: Node) -> &Netns {
        match node {
            Node::A => &self.nodes[0],
            Node::G1 => &self.nodes[1],
            Node::G2 => &self.nodes[2],
            Node::B => &self.nodes[3],
        }
    }

    /// Runs `ip` on a box.
    pub fn ip(&self, node: Node, arguments: &[&str]) -> Result<String, LabError> {
        let argv: Vec<&str> = ["ip", "-n", self.node(node).name()].iter().chain(arguments).copied().collect();
        process::run(&self.journal, &argv, COMMAND)
    }

    /// The commands that built it, and those run on it since.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Number of the topology among those of its owner.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Ids of the processes on all four boxes.
    pub fn pids(&self) -> Vec<u32> {
        self.nodes.iter().flat_map(Netns::pids).collect()
    }
}
