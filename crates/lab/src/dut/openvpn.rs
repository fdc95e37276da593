//! OpenVPN in user space: a process for each end of a tunnel, TLS between the two, each knowing the
//! other's certificate by its fingerprint. The certificates are made on the spot.

use std::path::Path;
use std::time::Duration;

use super::{Dut, Pair, Running};
use crate::error::{LabError, LogTail, Remedy};
use crate::interrupt;
use crate::machine;
use crate::process::{self, Process};
use crate::topology::{End, Sites};

const COMMAND: Duration = Duration::from_secs(10);
/// The port of the first tunnel.
const PORT: usize = 1194;

/// OpenVPN as the system under test.
pub(super) struct OpenVpn;

impl Dut for OpenVpn {
    fn name(&self) -> String {
        "openvpn".into()
    }

    fn lacks(&self) -> Vec<Remedy> {
        let mut lacks = machine::lacks_tun();
        for tool in ["openvpn", "openssl"] {
            if process::find(tool).is_none() {
                lacks.push(Remedy::new(
                    format!("`{tool}` is not installed"),
                    format!("apt-get install {tool}"),
                ));
            }
        }
        lacks
    }

    fn version(&self) -> Option<String> {
        let said = process::run_regardless(&["openvpn", "--version"], COMMAND).ok()?;
        Some(said.stdout.split_whitespace().take(2).collect::<Vec<_>>().join(" "))
    }

    fn start(&self, sites: &Sites<'_>, dir: &Path) -> Result<Box<dyn Running>, LabError> {
        let mut fingerprints = Vec::new();
        for site in &sites.sites {
            let (key, certificate) =
                (file(dir, &format!("{}.key", site.name)), file(dir, &format!("{}.crt", site.name)));
            let subject = format!("/CN={}.example", site.name);
            let mut argv = vec!["openssl", "req", "-x509", "-newkey", "ec", "-nodes", "-days", "2"];
            argv.extend(["-pkeyopt", "ec_paramgen_curve:prime256v1", "-subj", &subject]);
            argv.extend(["-keyout", &key, "-out", &certificate]);
            process::run(sites.journal, &argv, COMMAND)?;
            let argv = ["openssl", "x509", "-noout", "-fingerprint", "-sha256", "-in", &certificate];
            let said = process::run(sites.journal, &argv, COMMAND)?;
            let print = said.trim().split_once('=').map(|(_, print)| print.to_string());
            fingerprints.push(print.ok_or_else(|| {
                LabError::Measurement(format!("openssl said no fingerprint: {}", said.trim()))
            })?);
        }
        let mut running = Tunnels { pair: Pair::new(self.name()), logs: Vec::new() };
        for (index, site) in sites.sites.iter().enumerate() {
            for end in sites.ends(index) {
                let there = sites.sites.iter().position(|s| s.name == end.there.name).unwrap_or_default();
                let command = command(dir, &end, &fingerprints[there]);
                let log = dir.join(format!("{}-{}.log", site.name, end.tunnel));
                let argv = site.netns.exec(&command);
                running.pair.add(Process::start(sites.journal, site.name, &argv, &log)?);
                running.logs.push(log);
            }
        }
        let up = interrupt::wait_until(Duration::from_secs(20), || {
            running.pair.alive()?;
            Ok(running.logs.iter().all(|log| {
                std::fs::read_to_string(log).is_ok_and(|t| t.contains("Initialization Sequence Completed"))
            }))
        })?;
        if !up {
            return Err(running.pair.failed("not all tunnels came up within 20 s"));
        }
        for end in (0..sites.sites.len()).flat_map(|site| sites.ends(site)) {
            for network in &end.there.networks {
                sites.ip(end.here, &["route", "add", network, "dev", &device(end.tunnel)])?;
            }
        }
        Ok(Box::new(running))
    }
}

fn file(dir: &Path, name: &str) -> String {
    dir.join(name).to_string_lossy().into_owned()
}

fn device(tunnel: usize) -> String {
    format!("ovpn{tunnel}")
}

/// The command line of one end.
fn command(dir: &Path, end: &End<'_>, peer: &str) -> Vec<String> {
    let port = (PORT + end.tunnel).to_string();
    let inside = |low: bool| {
        let number = end.tunnel * 2 + if low { 1 } else { 2 };
        format!("10.255.{}.{}", number / 256, number % 256)
    };
    let words = [
        ("--dev", device(end.tunnel)),
        ("--dev-type", "tun".into()),
        ("--proto", "udp".into()),
        ("--local", end.here.address.clone()),
        ("--lport", port.clone()),
        ("--remote", end.there.address.clone()),
        ("--rport", port),
        ("--cert", file(dir, &format!("{}.crt", end.here.name))),
        ("--key", file(dir, &format!("{}.key", end.here.name))),
        ("--peer-fingerprint", peer.into()),
        ("--cipher", "AES-128-GCM".into()),
        ("--data-ciphers", "AES-128-GCM".into()),
        // The hosts send smaller packets, or the outer link carries larger ones, so OpenVPN need
        // not fragment. The MSS of TCP is left alone, as for every other system.
        ("--tun-mtu", "1500".into()),
        ("--mssfix", "0".into()),
        ("--verb", "3".into()),
    ];
    let mut command = vec!["openvpn".to_string()];
    command.extend(words.into_iter().flat_map(|(k, v)| [k.to_string(), v]));
    command.extend(["--ifconfig".into(), inside(end.initiates), inside(!end.initiates)]);
    // One with a kernel module of its own would be another system.
    command.push("--disable-dco".into());
    let role: &[&str] = if end.initiates { &["--tls-client"] } else { &["--tls-server", "--dh", "none"] };
    command.extend(role.iter().map(ToString::to_string));
    command
}

struct Tunnels {
    pair: Pair,
    logs: Vec<std::path::PathBuf>,
}

impl Running for Tunnels {
    fn tunnel_device(&self) -> Option<String> {
        Some(device(0))
    }

    fn describe(&mut self) -> Result<String, LabError> {
        let log = self.logs.first().map(|log| std::fs::read_to_string(log).unwrap_or_default());
        let log = log.unwrap_or_default();
        let told = |line: &&str| line.contains("Data Channel") || line.contains("Control Channel");
        Ok(log.lines().filter(told).collect::<Vec<_>>().join("\n"))
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
