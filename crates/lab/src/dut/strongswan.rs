//! strongSwan's charon on the gateways, with its ESP in user space (plugin kernel-libipsec), which
//! always encapsulates in UDP, or with the kernel's where the kernel has XFRM. Each charon gets a
//! /run of its own for its fixed file names, and is configured by swanctl.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Dut, Encap, Pair, Running, Suite, vici};
use crate::clock;
use crate::error::{LabError, LogTail, Remedy};
use crate::interrupt;
use crate::machine;
use crate::process::{self, Journal, Process};
use crate::topology::{Netns, Sites};

/// The daemon in its two packagings. The second logs to the journal too, and reads its settings
/// from a section of its own name.
const CHARONS: [&str; 2] = ["/usr/lib/ipsec/charon", "/usr/sbin/charon-systemd"];
const LIBIPSEC: &str = "/usr/lib/ipsec/plugins/libstrongswan-kernel-libipsec.so";
const INSTALL: &str = "apt-get install strongswan-swanctl charon-systemd libstrongswan-standard-plugins libcharon-extra-plugins";

fn charon() -> Option<&'static str> {
    CHARONS.into_iter().find(|c| process::is_executable(Path::new(c)))
}

/// strongSwan as the system under test.
pub(super) struct StrongSwan {
    name: String,
    suite: Suite,
    encap: Encap,
    /// The kernel does the ESP.
    kernel: bool,
}

impl StrongSwan {
    pub(super) fn new(name: String, suite: Suite) -> Self {
        Self { name, suite, encap: Encap::Udp, kernel: false }
    }

    /// With the kernel's ESP.
    pub(super) fn in_kernel(name: String, suite: Suite, encap: Encap) -> Self {
        Self { name, suite, encap, kernel: true }
    }

    fn charon_conf(socket: &str, kernel: bool) -> String {
        // The plugins that these tunnels need, and no others: what else is installed may differ
        // between machines. The second half is for certificates.
        let plugins = "random nonce aes gcm sha1 sha2 hmac kdf openssl curve25519 x509 constraints pubkey pkcs1 pkcs8 pem";
        let kernel = if kernel { "kernel-netlink" } else { "kernel-libipsec kernel-netlink" };
        let section = if charon() == Some(CHARONS[1]) { "charon-systemd" } else { "charon" };
        format!(
            "{section} {{\n  load = {plugins} {kernel} socket-default vici\n  install_routes = yes\n  \
             plugins {{\n    vici {{\n      socket = {socket}\n    }}\n  }}\n  \
             filelog {{\n    stderr {{\n      default = 1\n    }}\n  }}\n}}\n"
        )
    }

    /// The connections of one gateway.
    fn swanctl_conf(&self, sites: &Sites<'_>, site: usize) -> String {
        let Suite { ike, esp } = &self.suite;
        let encap = if self.encap == Encap::Udp { "yes" } else { "no" };
        let more = super::pair::lasting(sites);
        let secret = match &sites.played {
            Some(played) => played.text(),
            None => "a pre-shared key of the laboratory".into(),
        };
        let connections = sites.ends(site).into_iter().map(|end| {
            let name = sites.tunnel_name(end.tunnel);
            format!(
                "  {name} {{
    version = 2
    proposals = {ike}
    local_addrs = {}
    remote_addrs = {}
    encap = {encap}
    local {{
      auth = psk
      id = {}.example
    }}
    remote {{
      auth = psk
      id = {}.example
    }}
    children {{
      {name} {{
        local_ts = {}
        remote_ts = {}
        esp_proposals = {esp}
{more}      }}
    }}
  }}
",
                end.here.address,
                end.there.address,
                end.here.name,
                end.there.name,
                end.here.networks.join(","),
                end.there.networks.join(","),
            )
        });
        format!(
            "connections {{\n{}}}\nsecrets {{\n  ike-lab {{\n    secret = \"{secret}\"\n  }}\n}}\n",
            connections.collect::<String>()
        )
    }
}

impl Dut for StrongSwan {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn lacks(&self) -> Vec<Remedy> {
        let mut lacks = if self.kernel { lacks_xfrm() } else { machine::lacks_tun() };
        if charon().is_none() {
            lacks.push(Remedy::new("strongSwan's charon is not installed", INSTALL));
        } else if !self.kernel && !Path::new(LIBIPSEC).exists() {
            lacks.push(Remedy::new("strongSwan's plugin kernel-libipsec is not installed", INSTALL));
        }
        if process::find("swanctl").is_none() {
            lacks.push(Remedy::new("`swanctl` is not installed", INSTALL));
        }
        lacks
    }

    fn version(&self) -> Option<String> {
        let done = process::run_regardless(&["swanctl", "--help"], Duration::from_secs(5)).ok()?;
        let text = format!("{}{}", done.stdout, done.stderr);
        text.lines().find(|l| l.contains("strongSwan")).map(|l| l.trim().to_string())
    }

    fn ipsec(&self) -> Option<(&Suite, Encap)> {
        Some((&self.suite, self.encap))
    }

    fn start(&self, sites: &Sites<'_>, dir: &Path) -> Result<Box<dyn Running>, LabError> {
        if charon().is_none() {
            return Err(LabError::Unfit(self.lacks()));
        }
        let journal = sites.journal;
        let mut pair = Pair::new(self.name());
        for (index, site) in sites.started() {
            write(&dir.join(format!("{}.swanctl.conf", site.name)), &self.swanctl_conf(sites, index))?;
            let log = dir.join(format!("{}.log", site.name));
            pair.add(start(journal, site.netns, site.name, dir, &log, self.kernel)?);
        }
        let first = sites.sites.first().map(|s| s.name.to_string()).unwrap_or_default();
        let device = (!self.kernel).then(|| "ipsec0".to_string());
        let mut running = Charons { pair, first, device, dir: dir.into(), journal: journal.clone() };
        for (_, site) in sites.started() {
            let socket = socket(dir, site.name);
            let up = interrupt::wait_until(Duration::from_secs(10), || {
                running.pair.alive()?;
                Ok(vici::answers(&socket))
            })?;
            if !up {
                return Err(running.pair.failed("charon did not answer on VICI within 10 s"));
            }
            let file = dir.join(format!("{}.swanctl.conf", site.name));
            running.swanctl(site.name, &["--load-all", "--file", &file.to_string_lossy()])?;
        }
        for (tunnel, (left, _)) in sites.tunnels.iter().enumerate() {
            let name = sites.tunnel_name(tunnel);
            let initiator = sites.sites[*left].name;
            let limit = clock::tunnel_limit();
            running.swanctl(initiator, &["--initiate", "--child", &name, "--timeout", &limit])?;
        }
        Ok(Box::new(running))
    }
}

/// Whether the kernel takes an ESP SA, in a network namespace of its own that ends with the
/// command.
pub(super) fn lacks_xfrm() -> Vec<Remedy> {
    let (key, name) = (format!("0x{}", "00".repeat(20)), "rfc4106(gcm(aes))");
    let mut probe =
        vec!["unshare", "--net", "ip", "xfrm", "state", "add", "src", "192.0.2.1", "dst", "192.0.2.2"];
    probe.extend(["proto", "esp", "spi", "1", "mode", "tunnel", "aead", name, &key, "128"]);
    let there =
        process::run_regardless(&probe, Duration::from_secs(5)).is_ok_and(|done| done.status.success());
    if there {
        return vec![];
    }
    vec![Remedy::new("this kernel has no ESP (XFRM)", "modprobe -a xfrm_user esp4, or another kernel")]
}

/// Starts charon on a gateway, without connections; it will answer on [`socket`].
pub(crate) fn start_charon(
    journal: &Journal,
    netns: &Netns,
    gateway: &str,
    dir: &Path,
    log: &Path,
) -> Result<Process, LabError> {
    start(journal, netns, gateway, dir, log, false)
}

/// As [`start_charon`], with ESP in the kernel or not.
fn start(
    journal: &Journal,
    netns: &Netns,
    gateway: &str,
    dir: &Path,
    log: &Path,
    kernel: bool,
) -> Result<Process, LabError> {
    let charon = charon()
        .ok_or_else(|| LabError::Unfit(vec![Remedy::new("strongSwan's charon is not installed", INSTALL)]))?;
    let conf = dir.join(format!("{gateway}.strongswan.conf"));
    write(&conf, &StrongSwan::charon_conf(&uri(dir, gateway), kernel))?;
    let command = netns.exec(&["sh", "-c", &format!("mount -t tmpfs tmpfs /run && exec {charon}")]);
    let environment = [("STRONGSWAN_CONF", &*conf.to_string_lossy())];
    Process::start_in(journal, gateway, &command, &environment, log)
}

/// Path of the VICI socket.
pub(crate) fn socket(dir: &Path, gateway: &str) -> PathBuf {
    dir.join(format!("{gateway}.vici"))
}

/// The same as swanctl takes it.
pub(crate) fn uri(dir: &Path, gateway: &str) -> String {
    format!("unix://{}", socket(dir, gateway).display())
}

fn write(path: &Path, text: &str) -> Result<(), LabError> {
    std::fs::write(path, text).map_err(LabError::io(format!("writing {}", path.display())))
}

struct Charons {
    pair: Pair,
    /// The first gateway's name.
    first: String,
    /// The device of ESP in user space.
    device: Option<String>,
    dir: PathBuf,
    journal: Journal,
}

impl Charons {
    fn swanctl(&self, gateway: &str, arguments: &[&str]) -> Result<String, LabError> {
        let uri = uri(&self.dir, gateway);
        let argv: Vec<&str> = ["swanctl"].iter().chain(arguments).copied().chain(["--uri", &uri]).collect();
        let done = process::finish(&self.journal, &argv, "", Duration::from_secs(15))?;
        if done.status.success() {
            Ok(done.stdout)
        } else {
            Err(self.pair.failed(format!("`swanctl {}`: {}", arguments[0], done.complaint())))
        }
    }
}

impl Running for Charons {
    fn tunnel_device(&self) -> Option<String> {
        self.device.clone()
    }

    fn describe(&mut self) -> Result<String, LabError> {
        Ok(self.swanctl(&self.first, &["--list-sas"])?.trim_end().to_string())
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
