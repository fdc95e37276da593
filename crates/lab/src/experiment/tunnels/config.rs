//! Addresses, selectors and configuration files of thousands of tunnels between two gateways. Pure.
//!
//! ```text
//!   tunnel i:  10.128.0.0/30 + 4 i ── g1 (10.64.0.1 + i)
//!                                          ║
//!              10.192.0.0/30 + 4 i ── g2 (10.96.0.1 + i)
//! ```
//! Of each inner network the first address is the gateway's, the second the host's. Every tunnel
//! has addresses, identities, a key and selectors of its own: nothing is shared but the wire.

use std::fmt::Write;
use std::net::Ipv4Addr;
use std::ops::Range;

use super::credentials::{Credentials, HUB as HUB_IDENTITY, certificate_file};
use crate::dut::Suite;

/// Most tunnels: what the ranges of addresses hold.
pub(super) const MOST: u32 = 1_000_000;
/// Tunnels of a configuration file: the daemon takes no larger ones than 10 MB.
const PER_FILE: u32 = 10_000;
/// The ranges of outer addresses of g1 and g2, as prefixes.
pub(super) const OUTER: [&str; 2] = ["10.64.0.0/11", "10.96.0.0/11"];
/// The ranges of inner addresses behind g1 and g2.
pub(super) const INNER: [&str; 2] = ["10.128.0.0/10", "10.192.0.0/10"];

fn plus(base: [u8; 4], offset: u32) -> Ipv4Addr {
    Ipv4Addr::from(u32::from(Ipv4Addr::from(base)) + offset)
}

/// The outer address of a gateway (0: g1, 1: g2) for a tunnel, from 0.
pub(super) fn outer(side: usize, tunnel: u32) -> Ipv4Addr {
    plus(if side == 0 { [10, 64, 0, 0] } else { [10, 96, 0, 0] }, tunnel + 1)
}

fn network(side: usize, tunnel: u32) -> [Ipv4Addr; 3] {
    let base = if side == 0 { [10, 128, 0, 0] } else { [10, 192, 0, 0] };
    [0, 1, 2].map(|host| plus(base, 4 * tunnel + host))
}

/// The network behind it, of 30 bits.
pub(super) fn behind(side: usize, tunnel: u32) -> Ipv4Addr {
    network(side, tunnel)[0]
}

/// The host in that network.
pub(super) fn inner(side: usize, tunnel: u32) -> Ipv4Addr {
    network(side, tunnel)[2]
}

/// The identity of a gateway in a tunnel with a pre-shared key.
pub(super) fn identity(side: usize, tunnel: u32) -> String {
    format!("g{}-{tunnel}.example", side + 1)
}

/// The pre-shared key of a tunnel, of those of a run that begin with `key`.
pub(super) fn secret(key: &str, tunnel: u32) -> String {
    format!("{key}-{tunnel}")
}

/// Parameters of the configurations of two gateways with many tunnels.
#[derive(Debug, Clone)]
pub(super) struct Config<'a> {
    /// How many tunnels.
    pub tunnels: u32,
    /// The algorithms.
    pub suite: &'a Suite,
    /// Common beginning of all pre-shared keys.
    pub key: &'a str,
    /// Certificates in place of pre-shared keys.
    pub credentials: Option<&'a Credentials>,
    /// The side that initiates at load (`start_action = start`).
    pub initiator: usize,
    /// UDP encapsulation.
    pub encap: bool,
    /// One address and one network at the initiator for all tunnels, as of a gateway for road
    /// warriors.
    pub hub: bool,
    /// More lines of each connection.
    pub more: &'a str,
    /// Time after which the initiator rekeys a CHILD_SA, seconds; as long as usual when absent.
    pub rekey: Option<u32>,
}

/// The address of the initiator when it is a hub, and the network behind it.
pub(super) const HUB: [&str; 2] = ["192.0.2.1", "10.1.0.0/24"];

impl Config<'_> {
    /// The configuration of one gateway, in files of [`PER_FILE`] tunnels.
    pub(super) fn files(&self, side: usize) -> Vec<String> {
        let starts = (0..self.tunnels).step_by(PER_FILE as usize);
        starts.map(|first| self.text(side, first..self.tunnels.min(first + PER_FILE))).collect()
    }

    fn text(&self, side: usize, range: Range<u32>) -> String {
        let (mut connections, mut secrets) = (String::new(), String::new());
        let action = if side == self.initiator { "start" } else { "none" };
        let encap = if self.encap { "yes" } else { "no" };
        let more = self.more;
        let own = self.rekey.filter(|_| side == self.initiator);
        let rekey = own.map_or_else(String::new, |seconds| {
            format!("        rekey_time = {seconds}s\n        rand_time = 0s\n")
        });
        let Suite { ike, esp } = self.suite;
        let ends = |side: usize, tunnel: u32| match self.hub && side == self.initiator {
            true => (HUB[0].to_owned(), HUB[1].to_owned()),
            false => (outer(side, tunnel).to_string(), format!("{}/30", behind(side, tunnel))),
        };
        for tunnel in range {
            let ((me, here), (peer, there)) = (ends(side, tunnel), ends(1 - side, tunnel));
            let (my_id, peer_id) = (self.identity(side, tunnel), self.identity(1 - side, tunnel));
            let [my_auth, peer_auth] = self.auth(side, tunnel);
            // Writing to a String cannot fail.
            let _ = write!(
                connections,
                "  t{tunnel} {{
    version = 2
    proposals = {ike}
    local_addrs = {me}
    remote_addrs = {peer}
    encap = {encap}
    keyingtries = 0
{more}    local {{
{my_auth}      id = {my_id}
    }}
    remote {{
{peer_auth}      id = {peer_id}
    }}
    children {{
      t{tunnel} {{
        local_ts = {here}
        remote_ts = {there}
        esp_proposals = {esp}
        start_action = {action}
{rekey}      }}
    }}
  }}
"
            );
            if self.credentials.is_some() {
                continue;
            }
            let secret = secret(self.key, tunnel);
            let _ = write!(
                secrets,
                "  ike-{tunnel} {{\n    secret = \"{secret}\"\n    id-1 = {my_id}\n    id-2 = {peer_id}\n  }}\n"
            );
        }
        format!("connections {{\n{connections}}}\nsecrets {{\n{secrets}}}\n")
    }
}

impl Config<'_> {
    /// With certificates, the initiator has one identity in all tunnels.
    fn identity(&self, side: usize, tunnel: u32) -> String {
        match (self.credentials, side) {
            (Some(_), 0) => HUB_IDENTITY.into(),
            _ => identity(side, tunnel),
        }
    }

    /// Lines of `local` and of `remote` about authentication.
    fn auth(&self, side: usize, tunnel: u32) -> [String; 2] {
        if self.credentials.is_none() {
            return ["      auth = psk\n".to_owned(), "      auth = psk\n".to_owned()];
        }
        let file = certificate_file(side, tunnel);
        [format!("      auth = pubkey\n      certs = {file}\n"), "      auth = pubkey\n".to_owned()]
    }
}

/// Input of `ip -batch` for a gateway: its own addresses, and routes to the other gateway's
/// addresses behind the one neighbour of the link.
pub(super) fn batch(side: usize, tunnels: u32) -> String {
    let mut text = String::new();
    for tunnel in 0..tunnels {
        let _ = writeln!(text, "addr add {}/32 dev wan", outer(side, tunnel));
        let _ = writeln!(text, "addr add {}/32 dev lan", network(side, tunnel)[1]);
    }
    let _ = writeln!(text, "route add {} via 192.0.2.{} dev wan", OUTER[1 - side], 2 - side);
    let _ = writeln!(text, "route add {} via 10.{}.0.2 dev lan", INNER[side], side + 1);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_mirror_each_other_and_only_one_starts() {
        let suite = Suite::default();
        let config = Config {
            tunnels: 300,
            suite: &suite,
            key: "k",
            credentials: None,
            initiator: 0,
            encap: false,
            hub: false,
            more: "",
            rekey: Some(3),
        };
        let [left, right] = [0, 1].map(|side| config.files(side).concat());
        for (l, r) in [
            ("local_addrs = 10.64.1.44\n", "remote_addrs = 10.64.1.44\n"),
            ("remote_ts = 10.192.0.4/30\n", "local_ts = 10.192.0.4/30\n"),
            ("id = g1-299.example\n", "id = g1-299.example\n"),
            ("secret = \"k-7\"\n", "secret = \"k-7\"\n"),
        ] {
            assert!(left.contains(l) && right.contains(r), "{l} {r}");
        }
        assert_eq!((left.matches("= start").count(), right.matches("= start").count()), (300, 0));
        assert_eq!((left.matches("rekey_time = 3s").count(), right.matches("rekey_time").count()), (300, 0));
        let hub = Config { hub: true, ..config.clone() }.files(0).concat();
        assert_eq!(hub.matches("local_addrs = 192.0.2.1\n").count(), 300);
        let many = Config { tunnels: 25_000, ..config }.files(0);
        assert_eq!(
            many.iter().map(|f| f.matches("version = 2").count()).collect::<Vec<_>>(),
            [10_000, 10_000, 5_000]
        );
        assert!(many.iter().all(|f| f.len() < 10_000_000) && many[2].contains("t24999 {"));
        assert!(hub.contains("remote_addrs = 10.96.0.1\n") && hub.contains("local_ts = 10.1.0.0/24\n"));
    }

    #[test]
    fn no_two_ranges_overlap_and_all_tunnels_fit() {
        let all = [outer(0, 0), outer(0, MOST), outer(1, 0), outer(1, MOST), inner(0, 0), inner(0, MOST)];
        assert!(all.windows(2).all(|w| w[0] < w[1]));
        assert!(inner(1, MOST).octets()[0] == 10);
        assert_eq!(batch(1, 3).lines().count(), 8);
        assert!(batch(0, 1).contains("10.96.0.0/11 via 192.0.2.2"));
    }
}
