//! Describes a topology to a system under test: which boxes are its gateways, which networks are
//! behind each, and which gateways are to be joined by tunnels.

use ironswan_wire::secret::Secret;

use super::line::{COMMAND, address};
use super::{Line, Netns, Node};
use crate::error::LabError;
use crate::process::{self, Journal};

/// Gateways and the tunnels between them.
#[derive(Debug)]
pub struct Sites<'a> {
    /// The gateways.
    pub sites: Vec<Site<'a>>,
    /// Pairs of them by index; the first of each pair initiates.
    pub tunnels: Vec<(usize, usize)>,
    /// The list in which commands are noted.
    pub journal: &'a Journal,
    /// A site that the laboratory plays itself.
    pub played: Option<Played>,
}

/// A site on which no system is started: the laboratory's own IKE and ESP answer there.
#[derive(Debug, Clone)]
pub struct Played {
    /// Which.
    pub site: usize,
    /// The pre-shared key of its tunnels.
    pub secret: Secret,
}

/// A gateway.
#[derive(Debug)]
pub struct Site<'a> {
    /// Name, unique among the sites: `g1`.
    pub name: &'a str,
    /// The box.
    pub netns: &'a Netns,
    /// Address of the gateway towards the others.
    pub address: String,
    /// The networks behind it, as prefixes.
    pub networks: Vec<String>,
}

/// One end of a tunnel as its gateway sees it.
#[derive(Debug, Clone, Copy)]
pub struct End<'a> {
    /// The tunnel's name, the same on both ends: `net`, or `net-3` where there are several.
    pub tunnel: usize,
    /// This gateway.
    pub here: &'a Site<'a>,
    /// The other.
    pub there: &'a Site<'a>,
    /// This end initiates.
    pub initiates: bool,
}

impl Played {
    /// The pre-shared key as a configuration has it.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(self.secret.expose()).into_owned()
    }
}

impl Sites<'_> {
    /// The tunnels of a site.
    pub fn ends(&self, site: usize) -> Vec<End<'_>> {
        let all = self.tunnels.iter().enumerate();
        all.filter_map(|(tunnel, &(left, right))| {
            let (there, initiates) = match site {
                s if s == left => (right, true),
                s if s == right => (left, false),
                _ => return None,
            };
            Some(End { tunnel, here: self.sites.get(site)?, there: self.sites.get(there)?, initiates })
        })
        .collect()
    }

    /// The sites on which a system is started, with their indices.
    pub fn started(&self) -> impl Iterator<Item = (usize, &Site<'_>)> {
        let played = self.played.as_ref().map(|p| p.site);
        self.sites.iter().enumerate().filter(move |(index, _)| Some(*index) != played)
    }

    /// The name of a tunnel: `net` when it is the only one, `net-<n>` otherwise.
    pub fn tunnel_name(&self, tunnel: usize) -> String {
        if self.tunnels.len() == 1 { "net".into() } else { format!("net-{tunnel}") }
    }

    /// Runs `ip` on a gateway.
    pub fn ip(&self, site: &Site<'_>, arguments: &[&str]) -> Result<String, LabError> {
        let argv: Vec<&str> = ["ip", "-n", site.netns.name()].iter().chain(arguments).copied().collect();
        process::run(self.journal, &argv, COMMAND)
    }
}

impl Line {
    /// The two gateways in the middle, with the network behind each.
    pub fn sites(&self) -> Sites<'_> {
        let site = |node: Node, address: &str, network: &str| Site {
            name: node.name(),
            netns: self.node(node),
            address: address.into(),
            networks: vec![network.into()],
        };
        let sites =
            vec![site(Node::G1, address::G1, address::NET_A), site(Node::G2, address::G2, address::NET_B)];
        Sites { sites, tunnels: vec![(0, 1)], journal: self.journal(), played: None }
    }
}
