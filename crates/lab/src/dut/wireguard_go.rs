//! WireGuard tunnels between the gateways by wireguard-go. Its control socket has a fixed place in
//! /run, so each end gets a /run of its own in the mount namespace that `ip netns exec` makes
//! anyway; `wg` is run inside it by nsenter.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Dut, Pair, Running};
use crate::error::{LabError, LogTail, Remedy};
use crate::interrupt;
use crate::machine;
use crate::process::{self, Journal, Process};
use crate::topology::{Site, Sites};

const DEVICE: &str = "wg0";
const COMMAND: Duration = Duration::from_secs(5);

/// wireguard-go, or Tailscale's fork of it, as the system under test.
pub(super) struct WireGuardGo {
    name: &'static str,
    /// Command that builds it.
    remedy: &'static str,
    program: Option<PathBuf>,
}

impl WireGuardGo {
    /// wireguard-go, with its program if there is one.
    pub(super) fn new(program: Option<PathBuf>) -> Self {
        let remedy = "GOFLAGS=-mod=mod go install golang.zx2c4.com/wireguard@latest, then name it in WIREGUARD_GO \
                      (Debian's package wireguard-go is from 2022)";
        Self { name: "wireguard-go", remedy, program }
    }

    /// Tailscale's fork of it, with its program if there is one.
    pub(super) fn tailscale(program: Option<PathBuf>) -> Self {
        let name = "wireguard-go-tailscale";
        let remedy =
            "build it with scripts/peers/wireguard-go-tailscale, then name it in WIREGUARD_GO_TAILSCALE";
        Self { name, remedy, program }
    }
}

impl Dut for WireGuardGo {
    fn name(&self) -> String {
        self.name.into()
    }

    fn lacks(&self) -> Vec<Remedy> {
        let mut lacks = machine::lacks_tun();
        if !self.program.as_deref().is_some_and(process::is_executable) {
            lacks.push(Remedy::new(format!("`{}` is not installed", self.name), self.remedy));
        }
        for (tool, package) in [("wg", "wireguard-tools"), ("nsenter", "util-linux")] {
            if process::find(tool).is_none() {
                lacks.push(Remedy::new(
                    format!("`{tool}` is not installed"),
                    format!("apt-get install {package}"),
                ));
            }
        }
        lacks
    }

    fn version(&self) -> Option<String> {
        let program = self.program.as_ref()?.to_string_lossy().into_owned();
        // The program does not know its module's version; the toolchain that built it wrote it into
        // the file.
        let built = process::run_regardless(&["go", "version", "-m", &program], COMMAND).ok();
        let module = built.filter(|b| b.status.success()).and_then(|b| {
            let line = b.stdout.lines().find(|l| l.trim_start().starts_with("mod\t"))?.to_string();
            Some(line.split('\t').filter(|w| !w.is_empty()).skip(1).take(2).collect::<Vec<_>>().join(" "))
        });
        module.or_else(|| {
            let said = process::run_regardless(&[&program, "--version"], COMMAND).ok()?;
            Some(said.stdout.lines().next()?.trim().to_string())
        })
    }

    fn start(&self, sites: &Sites<'_>, dir: &Path) -> Result<Box<dyn Running>, LabError> {
        let program = self
            .program
            .as_ref()
            .ok_or_else(|| LabError::Unfit(self.lacks()))?
            .to_string_lossy()
            .into_owned();
        let journal = sites.journal;
        let mut keys = Vec::new();
        for _ in &sites.sites {
            let private = process::run(journal, &["wg", "genkey"], COMMAND)?;
            let public = process::run_with(journal, &["wg", "pubkey"], &private, COMMAND)?;
            keys.push((private, public.trim().to_string()));
        }
        let mut running = Tunnel { pair: Pair::new(self.name()), journal: journal.clone(), pids: Vec::new() };
        for (index, site) in sites.sites.iter().enumerate() {
            running.start(site, &program, dir)?;
            let key = ["set", DEVICE, "listen-port", "51820", "private-key", "/dev/stdin"];
            running.wg(index, &key, &keys[index].0)?;
            sites.ip(site, &["link", "set", DEVICE, "mtu", "1400", "up"])?;
            for &(left, right) in sites.tunnels.iter().filter(|(l, r)| [*l, *r].contains(&index)) {
                let other = if left == index { right } else { left };
                let there = &sites.sites[other];
                let (endpoint, networks) = (format!("{}:51820", there.address), there.networks.join(","));
                let peer = ["set", DEVICE, "peer", &keys[other].1, "allowed-ips", &networks];
                running.wg(index, &[&peer[..], &["endpoint", &endpoint]].concat(), "")?;
                for network in &there.networks {
                    sites.ip(site, &["route", "add", network, "dev", DEVICE])?;
                }
            }
        }
        Ok(Box::new(running))
    }
}

struct Tunnel {
    pair: Pair,
    journal: Journal,
    /// Of the gateways.
    pids: Vec<u32>,
}

impl Tunnel {
    fn start(&mut self, site: &Site<'_>, program: &str, dir: &Path) -> Result<(), LabError> {
        // The new /run hides the names of the namespaces too: it is mounted once inside.
        let script = format!("mount -t tmpfs tmpfs /run && exec {} {DEVICE}", process::quoted(&[program]));
        let process = Process::start_in(
            &self.journal,
            site.name,
            &site.netns.exec(&["sh", "-c", &script]),
            &[("WG_PROCESS_FOREGROUND", "1"), ("LOG_LEVEL", "error")],
            &dir.join(format!("{}.log", site.name)),
        )?;
        let pid = process.id();
        self.pids.push(pid);
        self.pair.add(process);
        // Seen from outside: its root shows the /run it mounted.
        let socket = PathBuf::from(format!("/proc/{pid}/root/run/wireguard/{DEVICE}.sock"));
        let up = interrupt::wait_until(Duration::from_secs(5), || {
            self.pair.alive()?;
            Ok(socket.exists())
        })?;
        if up { Ok(()) } else { Err(self.pair.failed("the control socket did not appear within 5 s")) }
    }

    fn wg(&self, site: usize, arguments: &[&str], input: &str) -> Result<String, LabError> {
        let pid = self.pids[site].to_string();
        let argv: Vec<&str> = ["nsenter", "--target", &pid, "--mount", "--net", "wg"]
            .iter()
            .chain(arguments)
            .copied()
            .collect();
        process::run_with(&self.journal, &argv, input, COMMAND)
    }
}

impl Running for Tunnel {
    fn tunnel_device(&self) -> Option<String> {
        Some(DEVICE.into())
    }

    fn describe(&mut self) -> Result<String, LabError> {
        Ok(self.wg(0, &["show", DEVICE], "")?.trim_end().to_string())
    }

    fn alive(&mut self) -> Result<(), LabError> {
        self.pair.alive()
    }

    fn logs(&self) -> Vec<LogTail> {
        self.pair.logs()
    }

    fn stop(self: Box<Self>) -> Vec<String> {
        self.pair.stop()
    }
}
