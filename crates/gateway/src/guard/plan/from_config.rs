//! From what is configured to policies that stand whatever the tunnels' state: what the guard holds
//! from load to unload, and what the boot unit can install before any daemon runs.

use std::collections::HashMap;
use std::net::IpAddr;

use ironswan_keying::{AddrSpec, ChildAction, ChildConfig, ChildKind, Connection, TsSpec};
use ironswan_wire::selector::{AddrRange, TrafficSelector};

use super::{Policy, Settings, Verdict};
use ironswan_config::Daemon;

/// Device, marks and ports of `ironswan.conf`, as the plan needs them.
pub fn settings(daemon: &Daemon) -> Settings {
    Settings {
        device: daemon.device.clone(),
        mark: daemon.mark,
        steer_mark: daemon.steer_mark,
        ports: [daemon.port_ike, daemon.port_natt],
        vrf: false,
        nft: daemon.guard,
    }
}

/// The guard's view of the loaded connections.
#[derive(Clone, Debug, Default)]
pub struct Configured {
    /// The policies that are known before anything is negotiated ([`policies`]).
    pub policies: Vec<Policy>,
    /// By the name of a child (`connection.child`): whether it is guarded.
    pub guards: HashMap<String, bool>,
}

/// Collects policies and guard settings of all loaded connections.
pub fn configured<'a>(connections: impl IntoIterator<Item = &'a Connection>) -> Configured {
    let mut out = Configured::default();
    for conn in connections {
        out.policies.extend(of_connection(conn));
        for child in &conn.children {
            // Names that come by VICI may have dots: of two that read the same, the guarded one
            // counts.
            *out.guards.entry(name(&conn.name, child)).or_default() |= child.guard;
        }
    }
    out
}

/// The policies of all connections that are known before anything is negotiated.
pub fn policies<'a>(connections: impl IntoIterator<Item = &'a Connection>) -> Vec<Policy> {
    connections.into_iter().flat_map(of_connection).collect()
}

/// The policies of one connection: of its children to be protected unless `guard = no` or `policies
/// = no`, where both sides' selectors are written out or follow from the one address that the
/// connection names for that end; and of its shunts that are installed at load (`start_action`).
pub fn of_connection(conn: &Connection) -> Vec<Policy> {
    let (local, remote) = (only_host(&conn.local_addrs), only_host(&conn.remote_addrs));
    conn.children.iter().flat_map(|child| of_child(&conn.name, child, local, remote)).collect()
}

/// The name of a child's policies, as the engine's have it.
fn name(conn: &str, child: &ChildConfig) -> String {
    format!("{conn}.{}", child.name)
}

fn of_child(conn: &str, child: &ChildConfig, local: Option<IpAddr>, remote: Option<IpAddr>) -> Vec<Policy> {
    let verdict = match child.kind {
        ChildKind::Protect if child.guard && child.policies => Verdict::Protect,
        ChildKind::Pass if child.start_action != ChildAction::None => Verdict::Bypass,
        ChildKind::Drop if child.start_action != ChildAction::None => Verdict::Discard,
        ChildKind::Protect | ChildKind::Pass | ChildKind::Drop => return Vec::new(),
    };
    let mut out = Vec::new();
    for local in child.local_ts.iter().filter_map(|ts| resolve(ts, local)) {
        for remote in child.remote_ts.iter().filter_map(|ts| resolve(ts, remote)) {
            // Selectors of two families never meet in one packet.
            if local.range.is_ipv6() == remote.range.is_ipv6() {
                out.push(Policy {
                    name: name(conn, child),
                    verdict,
                    local,
                    remote,
                    priority: child.priority,
                    open: 0,
                    guard: child.guard,
                });
            }
        }
    }
    out
}

/// The one address that an end can have; `None` when there is a choice, or only the network knows.
fn only_host(addrs: &[AddrSpec]) -> Option<IpAddr> {
    match addrs {
        [AddrSpec::Host(ip)] if !ip.is_unspecified() => Some(*ip),
        _ => None,
    }
}

fn resolve(ts: &TsSpec, host: Option<IpAddr>) -> Option<TrafficSelector> {
    match *ts {
        TsSpec::Fixed(ts) => Some(ts),
        TsSpec::Dynamic { protocol, start_port, end_port } => {
            host.map(|ip| TrafficSelector { range: AddrRange::host(ip), protocol, start_port, end_port })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironswan_config::diag::Diagnostics;
    use ironswan_config::load_files;

    /// The policies of one connection in words; `conn` and `children` are written into its text.
    fn lines(conn: &str, children: &str) -> Vec<String> {
        let text = format!(
            "connections {{ net {{ {conn}\n local {{ auth = psk }}\n remote {{ auth = psk }}\n children {{ {children} }} }} }}"
        );
        let dir = ironswan_testkit::scratch::Scratch::new();
        let file = dir.write("swanctl.conf", &text);
        let mut diags = Diagnostics::default();
        let config = load_files(ironswan_io::clock::now, &[file], &mut diags).unwrap();
        assert_eq!(diags.errors(), 0, "{:?}", diags.error_lines());
        policies(&config.connections)
            .into_iter()
            .map(|p| {
                let guard = if p.guard { "" } else { " unguarded" };
                format!("{} {:?} {} === {} {}{guard}", p.name, p.verdict, p.local, p.remote, p.priority)
            })
            .collect()
    }

    const HOSTS: &str = "local_addrs = 192.0.2.1\n remote_addrs = 192.0.2.2";

    #[test]
    fn known_selectors_are_guarded_whatever_the_start_action() {
        let child =
            "a { local_ts = 10.1.0.0/16, fd01::/64\n remote_ts = 10.2.0.0/16, fd02::/64\n priority = 7 }";
        let want = [
            "net.a Protect 10.1.0.0/16 === 10.2.0.0/16 7".to_owned(),
            "net.a Protect fd01::/64 === fd02::/64 7".to_owned(),
        ];
        assert_eq!(lines(HOSTS, child), want);
        assert_eq!(lines("remote_addrs = %any", child), want);
    }

    #[test]
    fn dynamic_is_the_one_address_of_that_end_or_unknown() {
        let child = "a { remote_ts = dynamic[tcp/80] }";
        assert_eq!(lines(HOSTS, child), ["net.a Protect 192.0.2.1/32 === 192.0.2.2/32[tcp/80] 0"]);
        for unknown in [
            "remote_addrs = 192.0.2.2",
            "local_addrs = 192.0.2.1",
            "local_addrs = 192.0.2.1, 192.0.2.9\n remote_addrs = 192.0.2.2",
            "local_addrs = 192.0.2.1\n remote_addrs = 192.0.2.0/24",
            "local_addrs = 192.0.2.1\n remote_addrs = %any",
        ] {
            assert_eq!(lines(unknown, child), [""; 0], "{unknown}");
        }
    }

    #[test]
    fn guard_no_opts_out_and_shunts_count_when_they_are_installed() {
        let ts = "local_ts = 10.1.0.0/16\n remote_ts = 10.2.0.0/16";
        assert_eq!(lines(HOSTS, &format!("a {{ {ts}\n guard = no }}")), [""; 0]);
        assert_eq!(lines(HOSTS, &format!("a {{ {ts}\n policies = no }}")), [""; 0]);
        assert_eq!(lines(HOSTS, &format!("a {{ {ts}\n mode = pass }}")), [""; 0]);
        for (mode, verdict) in [("pass", "Bypass"), ("drop", "Discard")] {
            assert_eq!(
                lines(HOSTS, &format!("a {{ {ts}\n mode = {mode}\n start_action = trap }}")),
                [format!("net.a {verdict} 10.1.0.0/16 === 10.2.0.0/16 0")]
            );
        }
    }
}
