//! A full mesh: N gateways on one network, a host behind each, a tunnel between every two.
//!
//! ```text
//!   h0 10.1.0.2 ---- 10.1.0.1 g0 192.0.2.10 ---+
//!   h1 10.1.1.2 ---- 10.1.1.1 g1 192.0.2.11 ---+  every one with every other
//!   h2 10.1.2.2 ---- 10.1.2.1 g2 192.0.2.12 ---+
//! ```

use super::network::{Host, Network, Path, Topology, ipv4};
use super::owner::Owner;
use super::sites::{Site, Sites};
use crate::error::LabError;
use crate::process::Journal;

/// Most gateways: 120 tunnels.
const MOST: usize = 16;

/// The mesh. Dropping it removes the boxes and every process inside.
#[derive(Debug)]
pub struct Mesh {
    network: Network,
    names: Vec<String>,
}

impl Mesh {
    /// Builds it with that many gateways under the name of `owner`.
    pub fn build(owner: &Owner, gateways: usize, inner_mtu: u32) -> Result<Self, LabError> {
        if !(2..=MOST).contains(&gateways) {
            return Err(LabError::Usage(format!(
                "the number of gateways of a mesh must be between 2 and {MOST}, not {gateways}"
            )));
        }
        let mut network = Network::new(owner);
        let names: Vec<String> = (0..gateways).map(|n| format!("g{n}")).collect();
        let mtu = inner_mtu.to_string();
        // Gateway n is box 2 n, its host the next.
        for (n, name) in names.iter().enumerate() {
            let gateway = network.add(name)?;
            let host = network.add(&format!("h{n}"))?;
            let (near, far) = (format!("10.1.{n}.1"), format!("10.1.{n}.2/24"));
            network.connect((gateway, "lan", &format!("{near}/24")), (host, "eth0", &far))?;
            network.ip(host, &["route", "add", "default", "via", &near, "mtu", &mtu])?;
            network.forwards(gateway)?;
        }
        let addresses: Vec<String> = (0..gateways).map(|n| format!("192.0.2.{}/24", n + 10)).collect();
        let ends: Vec<_> = addresses.iter().enumerate().map(|(n, a)| (2 * n, "wan", a.as_str())).collect();
        network.switch("net", &ends)?;
        Ok(Self { network, names })
    }

    fn host(&self, n: usize) -> Host<'_> {
        Host { netns: self.network.node(2 * n + 1), address: ipv4(&format!("10.1.{n}.2")) }
    }
}

/// Every two of `n`.
fn pairs(n: usize) -> Vec<(usize, usize)> {
    (0..n).flat_map(|a| (a + 1..n).map(move |b| (a, b))).collect()
}

impl Topology for Mesh {
    fn sites(&self) -> Sites<'_> {
        let site = |(n, name): (usize, &'_ String)| Site {
            name: &self.names[n],
            netns: self.network.node(2 * n),
            address: format!("192.0.2.{}", n + 10),
            networks: vec![format!("10.1.{}.0/24", name.trim_start_matches('g'))],
        };
        Sites {
            sites: self.names.iter().enumerate().map(site).collect(),
            tunnels: pairs(self.names.len()),
            journal: self.network.journal(),
            played: None,
        }
    }

    /// Between every two hosts, one way.
    fn paths(&self) -> Vec<Path<'_>> {
        pairs(self.names.len())
            .into_iter()
            .map(|(a, b)| Path { from: self.host(a), to: self.host(b) })
            .collect()
    }

    fn journal(&self) -> &Journal {
        self.network.journal()
    }

    fn number(&self) -> u32 {
        self.network.number()
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_mesh_joins_every_two_once() {
        assert_eq!(super::pairs(3), [(0, 1), (0, 2), (1, 2)]);
        assert_eq!(super::pairs(16).len(), 120);
    }
}
