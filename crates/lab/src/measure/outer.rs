//! Classifies the packets that cross the link between the gateways. The kernel counts them, outside
//! of every program under test, by nftables counters where packets enter a gateway from that link.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use serde_json::Value;

use crate::error::{LabError, Remedy};
use crate::process;
use crate::topology::{Line, Node, address};

const TABLE: &str = "ironlab_outer";
const COMMAND: Duration = Duration::from_secs(5);

/// Counters at work on both gateways of a line. They go with its boxes.
#[derive(Debug)]
pub struct OuterWatch;

/// Packets that arrived from the link, both ways together, since the watch began. Packets that the
/// kernel merged on arrival count once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Crossed {
    /// ESP, IKE, and both in UDP (port 4500).
    pub ipsec: u64,
    /// The UDP of WireGuard (51820) and OpenVPN (1194).
    pub tunnels: u64,
    /// ARP, and IPv6 looking for its neighbours.
    pub neighbours: u64,
    /// The gateways' own ICMP errors: a kernel answers ESP for which the socket has no room as if
    /// nobody spoke it.
    pub errors: u64,
    /// All but the first fragments of whatever it was.
    pub fragments: u64,
    /// Everything else: what should have been protected, for a system that protects.
    pub other: u64,
}

impl OuterWatch {
    /// Programs and kernel features that this machine lacks, each with its remedy.
    pub fn lacks() -> Vec<Remedy> {
        match process::find("nft") {
            Some(_) => vec![],
            None => vec![Remedy::new("`nft` is not installed", "apt-get install nftables")],
        }
    }

    /// Begins to count.
    pub fn start(line: &Line) -> Result<Self, LabError> {
        let rules = format!(
            "ip frag-off & 0x1fff != 0 counter name fragments accept
            ip protocol esp counter name protected accept
            udp dport {{ 500, 4500 }} counter name protected accept
            udp dport {{ 1194, 51820 }} counter name tunnels accept
            meta protocol arp counter name neighbours accept
            meta protocol ip6 icmpv6 type {{ nd-neighbor-solicit, nd-neighbor-advert, nd-router-solicit, mld2-listener-report }} counter name neighbours accept
            icmp type destination-unreachable ip saddr {{ {}, {} }} counter name errors accept
            counter name other",
            address::G1,
            address::G2
        );
        let counters: String = ["protected", "tunnels", "neighbours", "errors", "fragments", "other"]
            .iter()
            .map(|name| format!("counter {name} {{ }}\n"))
            .collect();
        let script = format!(
            "table netdev {TABLE} {{\n{counters}chain arrivals {{\n\
             type filter hook ingress device \"wan\" priority 0; policy accept;\n{rules}\n}}\n}}\n"
        );
        for node in [Node::G1, Node::G2] {
            let argv = line.node(node).exec(&["nft", "-f", "/dev/stdin"]);
            process::run_with(line.journal(), &argv, &script, COMMAND)?;
        }
        Ok(Self)
    }

    /// Reads the counters.
    pub fn read(&self, line: &Line) -> Result<Crossed, LabError> {
        let mut sum = Crossed::default();
        for node in [Node::G1, Node::G2] {
            let argv = line.node(node).exec(&["nft", "-j", "list", "table", "netdev", TABLE]);
            // Read many times: not worth a line of the journal each.
            let text = process::run(&process::Journal::default(), &argv, COMMAND)?;
            sum.add(&parse(&text));
        }
        Ok(sum)
    }
}

impl Crossed {
    fn add(&mut self, counters: &BTreeMap<String, u64>) {
        let n = |name: &str| counters.get(name).copied().unwrap_or(0);
        self.ipsec += n("protected");
        self.tunnels += n("tunnels");
        self.neighbours += n("neighbours");
        self.errors += n("errors");
        self.fragments += n("fragments");
        self.other += n("other");
    }

    /// Number of packets that the system named `dut` should not have let across; `None` for plain
    /// forwarding, which lets everything across.
    pub fn unprotected(&self, dut: &str) -> Option<u64> {
        match dut {
            "plain" => None,
            d if ["wireguard", "kernel-wireguard", "openvpn"].iter().any(|t| d.starts_with(t)) => {
                Some(self.other + self.ipsec)
            }
            _ => Some(self.other + self.tunnels),
        }
    }
}

impl fmt::Display for Crossed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ipsec, tunnels, neighbours, errors, fragments, other } = self;
        write!(
            f,
            "{ipsec} ESP or IKE, {tunnels} WireGuard or OpenVPN, {neighbours} neighbour discovery, {errors} ICMP errors of the \
             gateways, {fragments} later fragments, {other} other"
        )
    }
}

fn parse(json: &str) -> BTreeMap<String, u64> {
    let json: Value = serde_json::from_str(json).unwrap_or_default();
    let list = json.get("nftables").and_then(Value::as_array);
    let counter = |entry: &Value| {
        let c = entry.get("counter")?;
        Some((c.get("name")?.as_str()?.to_string(), c.get("packets")?.as_u64()?))
    };
    list.into_iter().flatten().filter_map(counter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn named_counters_are_found_and_what_is_not_the_systems_own_protocol_is_unprotected() {
        let text = r#"{"nftables": [{"metainfo": {}}, {"counter": {"name": "protected", "packets": 7, "bytes": 1}},
            {"counter": {"name": "other", "packets": 2, "bytes": 1}}, {"counter": {"name": "tunnels", "packets": 3}}, {"counter": {"name": "errors", "packets": 4}}]}"#;
        let mut crossed = Crossed::default();
        crossed.add(&parse(text));
        assert_eq!((crossed.ipsec, crossed.other, crossed.tunnels, crossed.errors), (7, 2, 3, 4));
        assert_eq!(crossed.unprotected("plain"), None);
        assert_eq!(crossed.unprotected("ironswan-raw"), Some(5));
        assert_eq!(crossed.unprotected("wireguard-go"), Some(9));
        assert!(parse("no json").is_empty());
    }
}
