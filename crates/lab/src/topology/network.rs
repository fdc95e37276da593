//! Boxes, the links between them and the relays in the links: what topologies are built of.

use std::net::Ipv4Addr;

use super::congestion::Congestion;
use super::line::{COMMAND, Line, Node, address};
use super::netns::Netns;
use super::owner::Owner;
use super::sites::Sites;
use crate::error::{LabError, Remedy};
use crate::process::{self, Journal};
use crate::relay::{ENDS, Link, Relay, RelaySpec};

/// A topology, as experiments see it.
pub trait Topology {
    /// Gateways of the topology, for the systems under test.
    fn sites(&self) -> Sites<'_>;

    /// Between whom traffic flows: one or more pairs of hosts.
    fn paths(&self) -> Vec<Path<'_>>;

    /// The commands that built it, and those run on it since.
    fn journal(&self) -> &Journal;

    /// Number of the topology among those of its owner.
    fn number(&self) -> u32;

    /// The relays in its outer links; none where these are not emulated.
    fn relays(&self) -> &[Relay] {
        &[]
    }
}

/// A host that sends or receives.
#[derive(Debug, Clone, Copy)]
pub struct Host<'a> {
    /// The box.
    pub netns: &'a Netns,
    /// The address that it has to use.
    pub address: Ipv4Addr,
}

/// Traffic from one host to another.
#[derive(Debug, Clone, Copy)]
pub struct Path<'a> {
    /// The sender.
    pub from: Host<'a>,
    /// The receiver.
    pub to: Host<'a>,
}

/// A link end: the number of a box, the device's name, its address with prefix length (none when
/// empty).
pub type LinkEnd<'a> = (usize, &'a str, &'a str);

/// Boxes and links. Dropping it removes them and every process inside.
#[derive(Debug)]
pub struct Network {
    // First: they work on links to the boxes.
    relays: Vec<Relay>,
    boxes: Vec<Netns>,
    journal: Journal,
    name: String,
    number: u32,
    congestion: Option<Congestion>,
}

impl Network {
    /// Programs and kernel features that building one needs and this machine lacks.
    pub fn lacks(relayed: bool) -> Vec<Remedy> {
        let mut needed = vec![("ip", "iproute2"), ("nft", "nftables")];
        if relayed {
            needed.push(("ethtool", "ethtool"));
        }
        needed
            .into_iter()
            .filter(|(program, _)| process::find(program).is_none())
            .map(|(program, package)| {
                Remedy::new(format!("`{program}` is not installed"), format!("apt-get install {package}"))
            })
            .collect()
    }

    /// An empty one under the name of `owner`.
    pub fn new(owner: &Owner) -> Self {
        let (name, number) = owner.next();
        Self {
            relays: Vec::new(),
            boxes: Vec::new(),
            journal: Journal::default(),
            name,
            number,
            congestion: owner.congestion().cloned(),
        }
    }

    /// Adds a box that checks no source addresses; returns its number.
    pub fn add(&mut self, name: &str) -> Result<usize, LabError> {
        let netns = self.netns(name)?;
        for scope in ["all", "default"] {
            netns.sysctl(&self.journal, &format!("net.ipv4.conf.{scope}.rp_filter"), "0")?;
        }
        self.boxes.push(netns);
        Ok(self.boxes.len() - 1)
    }

    fn netns(&self, name: &str) -> Result<Netns, LabError> {
        Netns::create(&self.journal, format!("{}-{name}", self.name), self.congestion.as_ref())
    }

    /// The box of that number.
    pub fn node(&self, number: usize) -> &Netns {
        &self.boxes[number]
    }

    /// The commands so far.
    pub fn journal(&self) -> &Journal {
        &self.journal
    }

    /// Number of the topology among those of its owner.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Relays of the topology, in the order in which they were put in.
    pub fn relays(&self) -> &[Relay] {
        &self.relays
    }

    /// Runs `ip` on a box.
    pub fn ip(&self, node: usize, arguments: &[&str]) -> Result<(), LabError> {
        self.ip_in(self.boxes[node].name(), arguments)
    }

    fn ip_in(&self, netns: &str, arguments: &[&str]) -> Result<(), LabError> {
        let argv: Vec<&str> = ["ip", "-n", netns].iter().chain(arguments).copied().collect();
        process::run(&self.journal, &argv, COMMAND).map(|_| ())
    }

    fn veth(&self, left: (&str, &str), right: (&str, &str)) -> Result<(), LabError> {
        let n = queues();
        let command = format!(
            "ip link add {} netns {} numrxqueues {n} numtxqueues {n} type veth \
             peer name {} netns {} numrxqueues {n} numtxqueues {n}",
            left.1, left.0, right.1, right.0
        );
        let argv: Vec<&str> = command.split(' ').collect();
        process::run(&self.journal, &argv, COMMAND)?;
        for (netns, device) in [left, right] {
            self.ip_in(netns, &["link", "set", device, "up"])?;
        }
        Ok(())
    }

    fn addressed(&self, (node, device, address): LinkEnd<'_>) -> Result<(), LabError> {
        if address.is_empty() { Ok(()) } else { self.ip(node, &["addr", "add", address, "dev", device]) }
    }

    /// A link between two boxes.
    pub fn connect(&self, left: LinkEnd<'_>, right: LinkEnd<'_>) -> Result<(), LabError> {
        self.veth((self.boxes[left.0].name(), left.1), (self.boxes[right.0].name(), right.1))?;
        self.addressed(left)?;
        self.addressed(right)
    }

    /// A link between two boxes with a relay in it.
    pub fn connect_through(
        &mut self,
        left: LinkEnd<'_>,
        right: LinkEnd<'_>,
        spec: RelaySpec,
    ) -> Result<(), LabError> {
        let relay = self.netns(&format!("relay{}", self.relays.len()))?;
        silence(&self.journal, &relay);
        for ((node, device, address), end) in [left, right].into_iter().zip(ENDS) {
            self.veth((self.boxes[node].name(), device), (relay.name(), end))?;
            beside_relay(&self.journal, &self.boxes[node], device)?;
            self.addressed((node, device, address))?;
        }
        self.relays.push(Relay::start(relay, spec)?);
        Ok(())
    }

    /// A switch with one link to each of these ends.
    pub fn switch(&mut self, name: &str, ends: &[LinkEnd<'_>]) -> Result<(), LabError> {
        self.switch_through(name, ends, None)
    }

    /// The same, with a relay in each link but the first.
    pub fn switch_through(
        &mut self,
        name: &str,
        ends: &[LinkEnd<'_>],
        link: Option<&Link>,
    ) -> Result<(), LabError> {
        let switch = self.add(name)?;
        self.ip(switch, &["link", "add", "br0", "type", "bridge"])?;
        self.ip(switch, &["link", "set", "br0", "up"])?;
        for (n, end) in ends.iter().enumerate() {
            let port = format!("p{n}");
            match link.filter(|_| n > 0) {
                Some(link) => self.connect_through(*end, (switch, &port, ""), link.relay(n - 1))?,
                None => self.connect(*end, (switch, &port, ""))?,
            }
            self.ip(switch, &["link", "set", &port, "master", "br0"])?;
        }
        Ok(())
    }

    /// Lets a box forward packets.
    pub fn forwards(&self, node: usize) -> Result<(), LabError> {
        self.boxes[node].sysctl(&self.journal, "net.ipv4.ip_forward", "1")
    }

    /// Gives a box an inner address of its own, and has its TCP keep to `inner_mtu` (by the segment
    /// size that it announces), since routes belong to the system under test.
    pub fn inner(&self, node: usize, address: &str, inner_mtu: u32) -> Result<(), LabError> {
        self.ip(node, &["addr", "add", address, "dev", "lo"])?;
        let size = inner_mtu.saturating_sub(40);
        let rules = format!(
            "add table ip lab; add chain ip lab out {{ type filter hook output priority 0; }}; \
             add rule ip lab out tcp flags syn tcp option maxseg size set {size}"
        );
        process::run(&self.journal, &self.boxes[node].exec(&["nft", &rules]), COMMAND).map(|_| ())
    }
}

/// Queues at each end of a link, so that as many cores can work on it: two at least.
pub fn queues() -> usize {
    std::thread::available_parallelism().map_or(2, usize::from).clamp(2, 16)
}

/// Keeps the kernel of a relay's namespace from saying anything itself, as it does with IPv6. One
/// without IPv6 has no such parameter.
pub(super) fn silence(journal: &Journal, relay: &Netns) {
    let _ = relay.sysctl(journal, "net.ipv6.conf.all.disable_ipv6", "1");
}

/// Readies a link end for a relay at the other: packets leave one by one, with their checksums.
pub(super) fn beside_relay(journal: &Journal, netns: &Netns, device: &str) -> Result<(), LabError> {
    let argv = ["ethtool", "-K", device, "tx", "off", "tso", "off", "gso", "off", "gro", "off"];
    process::run(journal, &netns.exec(&argv), COMMAND).map(|_| ())
}

/// Turns segmentation offload off on a link end, leaving GRO on: packets cross one by one.
pub(super) fn separate_packets(journal: &Journal, netns: &Netns, device: &str) -> Result<(), LabError> {
    let ethtool = |features: &[&str]| {
        let argv: Vec<&str> = ["ethtool", "-K", device].iter().chain(features).copied().collect();
        process::run(journal, &netns.exec(&argv), COMMAND)
    };
    ethtool(&["tso", "off", "gso", "off", "gro", "on"])?;
    // Not every kernel's veth knows this one; without it there is nothing to turn off.
    let _ = ethtool(&["tx-udp-segmentation", "off"]);
    Ok(())
}

/// An IPv4 address that the laboratory made up itself.
pub(super) fn ipv4(text: &str) -> Ipv4Addr {
    text.parse().unwrap_or(Ipv4Addr::UNSPECIFIED)
}

impl<T: Topology + ?Sized> Topology for Box<T> {
    fn sites(&self) -> Sites<'_> {
        (**self).sites()
    }

    fn paths(&self) -> Vec<Path<'_>> {
        (**self).paths()
    }

    fn journal(&self) -> &Journal {
        (**self).journal()
    }

    fn number(&self) -> u32 {
        (**self).number()
    }

    fn relays(&self) -> &[Relay] {
        (**self).relays()
    }
}

impl Topology for Line {
    fn sites(&self) -> Sites<'_> {
        Self::sites(self)
    }

    fn paths(&self) -> Vec<Path<'_>> {
        let host = |node, address| Host { netns: self.node(node), address: ipv4(address) };
        vec![Path { from: host(Node::A, address::A), to: host(Node::B, address::B) }]
    }

    fn journal(&self) -> &Journal {
        Self::journal(self)
    }

    fn number(&self) -> u32 {
        Self::number(self)
    }

    fn relays(&self) -> &[Relay] {
        Self::relays(self)
    }
}
