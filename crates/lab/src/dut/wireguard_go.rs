//! A WireGuard tunnel between the gateways by wireguard-go. Its control socket has a fixed place in /run, so each end gets a
//! /run of its own in the mount namespace that `ip netns exec` makes anyway; `wg` is run inside it by nsenter.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Dut, Pair, Running};
use crate::error::{LabError, Remedy};
use crate::interrupt;
use crate::machine;
use crate::process::{self, Journal, Process};
use crate::topology::{Line, Node, address};

const DEVICE: &str = "wg0";
const COMMAND: Duration = Duration::from_secs(5);
/// The names of the program: of Debian's package, and of the Go module's own build.
const PROGRAMS: [&str; 2] = ["wireguard-go", "wireguard"];

/// wireguard-go as the system under test.
pub(super) struct WireGuardGo {
    program: Option<PathBuf>,
}

impl WireGuardGo {
    /// Uses `program`, or else what the variable WIREGUARD_GO names, or what PATH has.
    pub(super) fn new(program: Option<PathBuf>) -> Self {
        let program = program
            .or_else(|| std::env::var_os("WIREGUARD_GO").map(PathBuf::from))
            .or_else(|| PROGRAMS.iter().find_map(|p| process::find(p)));
        Self { program }
    }
}

impl Dut for WireGuardGo {
    fn name(&self) -> String {
        "wireguard-go".into()
    }

    fn lacks(&self) -> Vec<Remedy> {
        let mut lacks = machine::lacks_tun();
        if !self.program.as_deref().is_some_and(process::is_executable) {
            lacks.push(Remedy::new(
                "`wireguard-go` is not installed",
                "GOFLAGS=-mod=mod go install golang.zx2c4.com/wireguard@latest, then name it in WIREGUARD_GO \
                 (Debian's package wireguard-go is from 2022)",
            ));
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
        // The program does not know its module's version; the toolchain that built it wrote it into the file.
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

    fn start(&self, line: &Line, dir: &Path) -> Result<Box<dyn Running>, LabError> {
        let program = self
            .program
            .as_ref()
            .ok_or_else(|| LabError::Unfit(self.lacks()))?
            .to_string_lossy()
            .into_owned();
        let journal = line.journal();
        let mut keys = Vec::new();
        for _ in 0..2 {
            let private = process::run(journal, &["wg", "genkey"], COMMAND)?;
            let public = process::run_with(journal, &["wg", "pubkey"], &private, COMMAND)?;
            keys.push((private, public.trim().to_string()));
        }
        let ends = [
            (Node::G1, address::G2, address::NET_B, &keys[0].0, &keys[1].1),
            (Node::G2, address::G1, address::NET_A, &keys[1].0, &keys[0].1),
        ];
        let mut running = Tunnel { pair: Pair::new(self.name()), journal: journal.clone(), pids: Vec::new() };
        for (gateway, peer, net, private, peer_public) in ends {
            running.start(line, gateway, &program, dir)?;
            let endpoint = format!("{peer}:51820");
            running.wg(
                gateway,
                &["set", DEVICE, "listen-port", "51820", "private-key", "/dev/stdin", "peer", peer_public]
                    .into_iter()
                    .chain(["allowed-ips", "0.0.0.0/0", "endpoint", &endpoint])
                    .collect::<Vec<_>>(),
                private,
            )?;
            line.ip(gateway, &["link", "set", DEVICE, "mtu", "1400", "up"])?;
            line.ip(gateway, &["route", "add", net, "dev", DEVICE])?;
        }
        Ok(Box::new(running))
    }
}

struct Tunnel {
    pair: Pair,
    journal: Journal,
    /// Of g1 and g2.
    pids: Vec<u32>,
}

impl Tunnel {
    fn start(&mut self, line: &Line, gateway: Node, program: &str, dir: &Path) -> Result<(), LabError> {
        let netns = line.node(gateway);
        // The new /run hides the names of the namespaces too: it is mounted once inside.
        let script = format!("mount -t tmpfs tmpfs /run && exec {} {DEVICE}", process::quoted(&[program]));
        let process = Process::start_in(
            &self.journal,
            gateway.name(),
            &netns.exec(&["sh", "-c", &script]),
            &[("WG_PROCESS_FOREGROUND", "1"), ("LOG_LEVEL", "error")],
            &dir.join(format!("{}.log", gateway.name())),
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

    fn wg(&self, gateway: Node, arguments: &[&str], input: &str) -> Result<String, LabError> {
        let pid = self.pids[usize::from(gateway == Node::G2)].to_string();
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
        Ok(self.wg(Node::G1, &["show", DEVICE], "")?.trim_end().to_string())
    }

    fn alive(&mut self) -> Result<(), LabError> {
        self.pair.alive()
    }

    fn stop(self: Box<Self>) -> Vec<String> {
        self.pair.stop()
    }
}
