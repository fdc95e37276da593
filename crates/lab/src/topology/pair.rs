//! Host to host: two hosts, each its own gateway, on one link, with a relay in it if wanted.
//!
//! ```text
//!   a  10.1.0.2 (inner)  192.0.2.1 ==== [relay] ==== 192.0.2.2  (inner) 10.2.0.2  b
//! ```
//! Traffic runs between the inner addresses, so that every system carries the same.

use super::network::{Host, Network, Path, Topology, ipv4, separate_packets};
use super::owner::Owner;
use super::sites::{Site, Sites};
use crate::error::LabError;
use crate::process::Journal;
use crate::relay::{Relay, RelaySpec};

const INNER: [&str; 2] = ["10.1.0.2", "10.2.0.2"];

/// Two hosts. Dropping it removes them and every process inside.
#[derive(Debug)]
pub struct HostToHost(Network);

impl HostToHost {
    /// Builds it under the name of `owner`.
    pub fn build(owner: &Owner, inner_mtu: u32, relay: Option<RelaySpec>) -> Result<Self, LabError> {
        let mut network = Network::new(owner);
        let (a, b) = (network.add("a")?, network.add("b")?);
        let (left, right) = ((a, "wan", "192.0.2.1/24"), (b, "wan", "192.0.2.2/24"));
        match relay {
            Some(spec) => network.connect_through(left, right, spec)?,
            None => network.connect(left, right)?,
        }
        network.inner(a, "10.1.0.2/32", inner_mtu)?;
        network.inner(b, "10.2.0.2/32", inner_mtu)?;
        Ok(Self(network))
    }

    /// Turns segmentation offload off on both ends of the link, as on a wire.
    pub fn separate_packets(&self) -> Result<(), LabError> {
        (0..2).try_for_each(|n| separate_packets(self.0.journal(), self.0.node(n), "wan"))
    }

    /// The relay in the link.
    pub fn relay(&self) -> Option<&Relay> {
        self.0.relays().first()
    }
}

impl Topology for HostToHost {
    fn sites(&self) -> Sites<'_> {
        let site = |n: usize, name, address: &str, network: &str| Site {
            name,
            netns: self.0.node(n),
            address: address.into(),
            networks: vec![network.into()],
        };
        Sites {
            sites: vec![site(0, "a", "192.0.2.1", "10.1.0.0/24"), site(1, "b", "192.0.2.2", "10.2.0.0/24")],
            tunnels: vec![(0, 1)],
            journal: self.0.journal(),
            played: None,
        }
    }

    fn paths(&self) -> Vec<Path<'_>> {
        let host = |n: usize| Host { netns: self.0.node(n), address: ipv4(INNER[n]) };
        vec![Path { from: host(0), to: host(1) }]
    }

    fn journal(&self) -> &Journal {
        self.0.journal()
    }

    fn number(&self) -> u32 {
        self.0.number()
    }

    fn relays(&self) -> &[Relay] {
        self.0.relays()
    }
}
