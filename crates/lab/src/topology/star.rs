//! Topologies with one box in the middle: road warriors, and a hub with spokes.

use super::network::{Host, Network, Path, Topology, ipv4};
use super::owner::Owner;
use super::sites::{Site, Sites};
use crate::error::LabError;
use crate::process::Journal;
use crate::relay::{Link, Relay};

/// Hosts far from home, each with a tunnel of its own to one gateway, and a server behind that:
///
/// ```text
///   h0 10.1.0.2  192.0.2.10 ---+
///   h1 10.1.1.2  192.0.2.11 ---+--- 192.0.2.1 gw 10.2.0.1 ---- 10.2.0.2 server
///   h2 10.1.2.2  192.0.2.12 ---+
/// ```
/// Dropping it removes the boxes and every process inside.
#[derive(Debug)]
pub struct RoadWarriors {
    network: Network,
    names: Vec<String>,
}

/// A hub and its spokes; traffic from spoke to spoke goes through the hub:
///
/// ```text
///   s0 10.1.0.2  192.0.2.10 ---+
///   s1 10.1.1.2  192.0.2.11 ---+--- 192.0.2.1 hub (10.0.0.0/8)
///   s2 10.1.2.2  192.0.2.12 ---+
/// ```
/// Dropping it removes the boxes and every process inside.
#[derive(Debug)]
pub struct HubSpokes {
    network: Network,
    names: Vec<String>,
}

/// Most outer boxes: the addresses 192.0.2.10 to 192.0.2.249.
pub const MOST: usize = 240;

fn outside(n: usize) -> String {
    format!("192.0.2.{}", n + 10)
}

fn inside(n: usize) -> String {
    format!("10.1.{n}.2")
}

/// The outer boxes and the switch that joins them with `middle`, with a relay in the link of each
/// outer box if wanted.
fn star(
    network: &mut Network,
    names: &[String],
    middle: usize,
    inner_mtu: u32,
    link: Option<&Link>,
) -> Result<Vec<usize>, LabError> {
    let mut outer = Vec::new();
    for (n, name) in names.iter().enumerate() {
        let node = network.add(name)?;
        network.inner(node, &format!("{}/32", inside(n)), inner_mtu)?;
        outer.push(node);
    }
    let addresses: Vec<String> = (0..names.len()).map(|n| format!("{}/24", outside(n))).collect();
    let mut ends = vec![(middle, "wan", "192.0.2.1/24")];
    ends.extend(outer.iter().zip(&addresses).map(|(node, address)| (*node, "wan", address.as_str())));
    network.switch_through("net", &ends, link)?;
    network.forwards(middle)?;
    Ok(outer)
}

fn names(letter: char, count: usize) -> Result<Vec<String>, LabError> {
    if !(1..=MOST).contains(&count) {
        return Err(LabError::Usage(format!(
            "the number of hosts must be between 1 and {MOST}, not {count}"
        )));
    }
    Ok((0..count).map(|n| format!("{letter}{n}")).collect())
}

/// The middle box first in the network, last among the sites: each outer box initiates.
fn sites<'a>(network: &'a Network, names: &'a [String], middle: &'a str, behind: &str) -> Sites<'a> {
    let mut sites: Vec<Site<'a>> = names
        .iter()
        .enumerate()
        .map(|(n, name)| Site {
            name,
            netns: network.node(n + 1),
            address: outside(n),
            networks: vec![format!("10.1.{n}.0/24")],
        })
        .collect();
    sites.push(Site {
        name: middle,
        netns: network.node(0),
        address: "192.0.2.1".into(),
        networks: vec![behind.into()],
    });
    let tunnels = (0..names.len()).map(|n| (n, names.len())).collect();
    Sites { tunnels, sites, journal: network.journal(), played: None }
}

fn host(network: &Network, n: usize) -> Host<'_> {
    Host { netns: network.node(n + 1), address: ipv4(&inside(n)) }
}

impl RoadWarriors {
    /// Builds it with `hosts` warriors under the name of `owner`.
    pub fn build(owner: &Owner, hosts: usize, inner_mtu: u32) -> Result<Self, LabError> {
        Self::build_over(owner, hosts, inner_mtu, None)
    }

    /// The same, with an emulated link from each warrior to the switch.
    pub fn build_over(
        owner: &Owner,
        hosts: usize,
        inner_mtu: u32,
        link: Option<&Link>,
    ) -> Result<Self, LabError> {
        let names = names('h', hosts)?;
        let mut network = Network::new(owner);
        let gateway = network.add("gw")?;
        star(&mut network, &names, gateway, inner_mtu, link)?;
        let server = network.add("server")?;
        network.connect((gateway, "lan", "10.2.0.1/24"), (server, "eth0", "10.2.0.2/24"))?;
        let mtu = inner_mtu.to_string();
        network.ip(server, &["route", "add", "default", "via", "10.2.0.1", "mtu", &mtu])?;
        Ok(Self { network, names })
    }
}

impl Topology for RoadWarriors {
    fn sites(&self) -> Sites<'_> {
        sites(&self.network, &self.names, "gw", "10.2.0.0/24")
    }

    /// From each warrior to the server.
    fn paths(&self) -> Vec<Path<'_>> {
        // Behind the gateway, the warriors and the switch.
        let server = Host { netns: self.network.node(self.names.len() + 2), address: ipv4("10.2.0.2") };
        (0..self.names.len()).map(|n| Path { from: host(&self.network, n), to: server }).collect()
    }

    fn journal(&self) -> &Journal {
        self.network.journal()
    }

    fn number(&self) -> u32 {
        self.network.number()
    }

    fn relays(&self) -> &[Relay] {
        self.network.relays()
    }
}

impl HubSpokes {
    /// Builds it with `spokes` of them under the name of `owner`.
    pub fn build(owner: &Owner, spokes: usize, inner_mtu: u32) -> Result<Self, LabError> {
        let names = names('s', spokes)?;
        let mut network = Network::new(owner);
        let hub = network.add("hub")?;
        star(&mut network, &names, hub, inner_mtu, None)?;
        Ok(Self { network, names })
    }
}

impl Topology for HubSpokes {
    fn sites(&self) -> Sites<'_> {
        sites(&self.network, &self.names, "hub", "10.0.0.0/8")
    }

    /// From each spoke with an even number to the next.
    fn paths(&self) -> Vec<Path<'_>> {
        let pairs = (0..self.names.len() / 2).map(|n| (2 * n, 2 * n + 1));
        pairs.map(|(a, b)| Path { from: host(&self.network, a), to: host(&self.network, b) }).collect()
    }

    fn journal(&self) -> &Journal {
        self.network.journal()
    }

    fn number(&self) -> u32 {
        self.network.number()
    }
}
