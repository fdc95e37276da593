//! WireGuard in the kernel, where the kernel has it.

use std::path::Path;
use std::time::Duration;

use super::{Dut, Running};
use crate::error::{LabError, Remedy};
use crate::process::{self, Journal};
use crate::topology::Sites;

const DEVICE: &str = "wg0";
const COMMAND: Duration = Duration::from_secs(5);

/// The kernel's WireGuard as the system under test.
pub(super) struct WireGuard;

impl Dut for WireGuard {
    fn name(&self) -> String {
        "kernel-wireguard".into()
    }

    fn lacks(&self) -> Vec<Remedy> {
        let mut lacks = Vec::new();
        for (tool, package) in [("wg", "wireguard-tools"), ("unshare", "util-linux")] {
            if process::find(tool).is_none() {
                lacks.push(Remedy::new(
                    format!("`{tool}` is not installed"),
                    format!("apt-get install {package}"),
                ));
            }
        }
        // In a network namespace of its own, which ends with the command.
        let probe = ["unshare", "--net", "ip", "link", "add", DEVICE, "type", "wireguard"];
        let there = process::run_regardless(&probe, COMMAND).is_ok_and(|done| done.status.success());
        if process::find("unshare").is_some() && !there {
            lacks.push(Remedy::new("this kernel has no WireGuard", "modprobe wireguard, or another kernel"));
        }
        lacks
    }

    fn version(&self) -> Option<String> {
        let release = std::fs::read_to_string("/proc/sys/kernel/osrelease").ok()?;
        Some(format!("Linux {}", release.trim()))
    }

    fn start(&self, sites: &Sites<'_>, _dir: &Path) -> Result<Box<dyn Running>, LabError> {
        let journal = sites.journal;
        let mut keys = Vec::new();
        for _ in &sites.sites {
            let private = process::run(journal, &["wg", "genkey"], COMMAND)?;
            let public = process::run_with(journal, &["wg", "pubkey"], &private, COMMAND)?;
            keys.push((private, public.trim().to_string()));
        }
        for (index, site) in sites.sites.iter().enumerate() {
            sites.ip(site, &["link", "add", DEVICE, "type", "wireguard"])?;
            let wg = |arguments: &[&str], input: &str| {
                let argv: Vec<&str> = ["wg", "set", DEVICE].iter().chain(arguments).copied().collect();
                process::run_with(journal, &site.netns.exec(&argv), input, COMMAND)
            };
            wg(&["listen-port", "51820", "private-key", "/dev/stdin"], &keys[index].0)?;
            sites.ip(site, &["link", "set", DEVICE, "mtu", "1400", "up"])?;
            for &(left, right) in sites.tunnels.iter().filter(|(l, r)| [*l, *r].contains(&index)) {
                let other = if left == index { right } else { left };
                let there = &sites.sites[other];
                let (endpoint, networks) = (format!("{}:51820", there.address), there.networks.join(","));
                wg(&["peer", &keys[other].1, "allowed-ips", &networks, "endpoint", &endpoint], "")?;
                for network in &there.networks {
                    sites.ip(site, &["route", "add", network, "dev", DEVICE])?;
                }
            }
        }
        let first = sites.sites.first().map(|s| s.netns.exec(&["wg", "show", DEVICE])).unwrap_or_default();
        Ok(Box::new(Devices { show: first, journal: journal.clone() }))
    }
}

struct Devices {
    /// Command that shows the first gateway's tunnel.
    show: Vec<String>,
    journal: Journal,
}

impl Running for Devices {
    fn tunnel_device(&self) -> Option<String> {
        Some(DEVICE.into())
    }

    fn describe(&mut self) -> Result<String, LabError> {
        Ok(process::run(&self.journal, &self.show, COMMAND)?.trim_end().to_string())
    }

    fn alive(&mut self) -> Result<(), LabError> {
        Ok(())
    }

    fn stop(self: Box<Self>) -> Vec<String> {
        // The devices go with their boxes.
        Vec::new()
    }
}
