//! Two hosts on one link and no gateway between them: where the tester alone is measured.
//!
//! ```text
//!   a  10.1.0.2 eth0 ---- eth0 10.2.0.2  b
//! ```
//! The link is a veth pair like those of a [`super::Line`], and the hosts have the addresses of its
//! hosts, so the tester sends and receives here what it sends and receives there.

use super::ipv6::beside;
use super::line::{Mode, address};
use super::netns::Netns;
use super::network::{Network, separate_packets};
use super::owner::Owner;
use crate::error::LabError;
use crate::process::Journal;

/// The device of each host.
pub const DEVICE: &str = "eth0";

/// MTU of a link as it is made.
const ORDINARY_MTU: u32 = 1500;

/// Two hosts and their link. Dropping it removes them.
#[derive(Debug)]
pub struct Direct(Network);

impl Direct {
    /// Builds it under the name of `owner`; its link carries packets of up to `mtu` bytes. The
    /// hosts have IPv6 addresses too.
    pub fn build(owner: &Owner, mode: Mode, mtu: u32) -> Result<Self, LabError> {
        let mut network = Network::new(owner);
        let (a, b) = (network.add("a")?, network.add("b")?);
        let ends = [address::A, address::B].map(|host| format!("{host}/24"));
        network.connect((a, DEVICE, &ends[0]), (b, DEVICE, &ends[1]))?;
        for (host, far, own) in [(a, address::NET_B, &ends[0]), (b, address::NET_A, &ends[1])] {
            if mtu > ORDINARY_MTU {
                network.ip(host, &["link", "set", DEVICE, "mtu", &mtu.to_string()])?;
            }
            network.ip(host, &["route", "add", far, "dev", DEVICE])?;
            // A kernel without IPv6 carries none, and is asked for none otherwise.
            let _ = beside(network.journal(), network.node(host), DEVICE, own);
            if mode == Mode::Wire {
                separate_packets(network.journal(), network.node(host), DEVICE)?;
            }
        }
        Ok(Self(network))
    }

    /// Host a.
    pub fn a(&self) -> &Netns {
        self.0.node(0)
    }

    /// Host b.
    pub fn b(&self) -> &Netns {
        self.0.node(1)
    }

    /// The commands that built it.
    pub fn journal(&self) -> &Journal {
        self.0.journal()
    }

    /// Number of the topology among those of its owner.
    pub fn number(&self) -> u32 {
        self.0.number()
    }
}
