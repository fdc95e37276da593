//! IPv6 beside the IPv4 of a line: every address and network of IPv4 has one of IPv6 that is made
//! of it.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::line::{COMMAND, LINKS, Line, Node};
use super::netns::Netns;
use super::sites::Sites;
use crate::error::LabError;
use crate::process::{self, Journal};

/// The IPv6 address that goes with one of IPv4: of 10.1.0.2 it is fd00:a:1::2.
pub fn ipv6_of(address: Ipv4Addr) -> Ipv6Addr {
    let [a, b, c, d] = address.octets().map(u16::from);
    Ipv6Addr::new(0xfd00, a, b, c, 0, 0, 0, d)
}

/// The same of an address or a network of /24 as text, whose IPv6 network is one of /64.
pub fn ipv6_text(text: &str) -> Option<String> {
    match text.split_once('/') {
        None => text.parse().ok().map(|address| ipv6_of(address).to_string()),
        Some((address, "24")) => address.parse().ok().map(|address| format!("{}/64", ipv6_of(address))),
        Some(_) => None,
    }
}

impl Line {
    /// Gives every link end an IPv6 address beside that of IPv4, has both gateways forward IPv6,
    /// and both hosts send it to their gateway, in packets of at most `mtu` bytes.
    pub fn add_ipv6(&self, mtu: u32) -> Result<(), LabError> {
        for (node, device, v4) in LINKS.iter().flat_map(|l| [l.left, l.right]) {
            beside(self.journal(), self.node(node), device, v4)?;
        }
        for gateway in [Node::G1, Node::G2] {
            self.node(gateway).sysctl(self.journal(), "net.ipv6.conf.all.forwarding", "1")?;
        }
        for (host, gateway) in [(Node::A, "10.1.0.1"), (Node::B, "10.2.0.1")] {
            let via = ipv6_text(gateway).unwrap_or_default();
            let mtu = mtu.to_string();
            self.ip(host, &["-6", "route", "add", "default", "via", &via, "dev", "eth0", "mtu", &mtu])?;
        }
        Ok(())
    }

    /// Has every link but the one between the gateways carry packets of `mtu` bytes.
    pub fn widen(&self, mtu: u32) -> Result<(), LabError> {
        let ends = LINKS.iter().flat_map(|l| [l.left, l.right]).filter(|(_, device, _)| *device != "wan");
        for (node, device, _) in ends {
            self.ip(node, &["link", "set", device, "mtu", &mtu.to_string()])?;
        }
        Ok(())
    }
}

impl Sites<'_> {
    /// The same sites with the IPv6 networks of their hosts beside those of IPv4.
    pub fn with_ipv6(mut self) -> Self {
        for site in &mut self.sites {
            let more: Vec<String> = site.networks.iter().filter_map(|network| ipv6_text(network)).collect();
            site.networks.extend(more);
        }
        self
    }
}

/// Gives a link end the IPv6 address that goes with this of IPv4.
pub(super) fn beside(journal: &Journal, netns: &Netns, device: &str, v4: &str) -> Result<(), LabError> {
    let Some(v6) = ipv6_text(v4) else { return Ok(()) };
    // No other host has it.
    let argv = ["ip", "-n", netns.name(), "addr", "add", &v6, "dev", device, "nodad"];
    process::run(journal, &argv, COMMAND).map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::super::line::address;
    use super::*;

    #[test]
    fn addresses_and_networks_of_ipv6_are_made_of_those_of_ipv4() {
        assert_eq!(ipv6_text(address::A).as_deref(), Some("fd00:a:1::2"));
        assert_eq!(ipv6_text(address::NET_B).as_deref(), Some("fd00:a:2::/64"));
        assert_eq!(ipv6_text("192.0.2.1/24").as_deref(), Some("fd00:c0:0:2::1/64"));
        assert_eq!((ipv6_text("10.1.0.0/16"), ipv6_text("x")), (None, None));
    }
}
