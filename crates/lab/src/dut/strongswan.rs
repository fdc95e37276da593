//! strongSwan's charon on both gateways with its ESP in user space (plugin kernel-libipsec), which always encapsulates in
//! UDP. Each charon gets a /run of its own for its fixed file names, and is configured by swanctl.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Dut, Pair, Running, Suite, vici};
use crate::error::{LabError, Remedy};
use crate::interrupt;
use crate::machine;
use crate::process::{self, Journal, Process};
use crate::topology::{Line, Node, address};

/// The daemon in its two packagings. The second logs to the journal too, and reads its settings from a section of its own name.
const CHARONS: [&str; 2] = ["/usr/lib/ipsec/charon", "/usr/sbin/charon-systemd"];
const LIBIPSEC: &str = "/usr/lib/ipsec/plugins/libstrongswan-kernel-libipsec.so";
const INSTALL: &str = "apt-get install strongswan-swanctl charon-systemd libstrongswan-standard-plugins libcharon-extra-plugins";

fn charon() -> Option<&'static str> {
    CHARONS.into_iter().find(|c| process::is_executable(Path::new(c)))
}

/// strongSwan as the system under test.
pub(super) struct StrongSwan {
    suite: Suite,
}

impl StrongSwan {
    pub(super) fn new(suite: Suite) -> Self {
        Self { suite }
    }

    fn charon_conf(socket: &str) -> String {
        // The plugins that this tunnel needs, and no others: what else is installed may differ between machines.
        let plugins = "random nonce aes gcm sha1 sha2 hmac kdf openssl curve25519 kernel-libipsec kernel-netlink \
                       socket-default vici";
        let section = if charon() == Some(CHARONS[1]) { "charon-systemd" } else { "charon" };
        format!(
            "{section} {{\n  load = {plugins}\n  install_routes = yes\n  \
             plugins {{\n    vici {{\n      socket = {socket}\n    }}\n  }}\n  \
             filelog {{\n    stderr {{\n      default = 1\n    }}\n  }}\n}}\n"
        )
    }

    fn swanctl_conf(&self, gateway: Node) -> String {
        let (me, peer, here, there) = if gateway == Node::G1 {
            (address::G1, address::G2, address::NET_A, address::NET_B)
        } else {
            (address::G2, address::G1, address::NET_B, address::NET_A)
        };
        let Suite { ike, esp } = &self.suite;
        format!(
            "connections {{
  net {{
    version = 2
    proposals = {ike}
    local_addrs = {me}
    remote_addrs = {peer}
    encap = yes
    local {{
      auth = psk
      id = {}.example
    }}
    remote {{
      auth = psk
    }}
    children {{
      net {{
        local_ts = {here}
        remote_ts = {there}
        esp_proposals = {esp}
      }}
    }}
  }}
}}
secrets {{
  ike-line {{
    secret = \"a pre-shared key of the laboratory\"
  }}
}}
",
            gateway.name()
        )
    }
}

impl Dut for StrongSwan {
    fn name(&self) -> String {
        "strongswan".into()
    }

    fn lacks(&self) -> Vec<Remedy> {
        let mut lacks = machine::lacks_tun();
        if charon().is_none() {
            lacks.push(Remedy::new("strongSwan's charon is not installed", INSTALL));
        } else if !Path::new(LIBIPSEC).exists() {
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

    fn start(&self, line: &Line, dir: &Path) -> Result<Box<dyn Running>, LabError> {
        let charon = charon().ok_or_else(|| LabError::Unfit(self.lacks()))?;
        let journal = line.journal();
        let mut pair = Pair::new(self.name());
        for gateway in [Node::G1, Node::G2] {
            let name = gateway.name();
            let conf = dir.join(format!("{name}.strongswan.conf"));
            write(&conf, &Self::charon_conf(&uri(dir, gateway)))?;
            write(&dir.join(format!("{name}.swanctl.conf")), &self.swanctl_conf(gateway))?;
            let log = dir.join(format!("{name}.log"));
            let command = line.node(gateway).exec(&[
                "sh",
                "-c",
                &format!("mount -t tmpfs tmpfs /run && exec {charon}"),
            ]);
            let environment = [("STRONGSWAN_CONF", &*conf.to_string_lossy())];
            pair.add(Process::start_in(journal, name, &command, &environment, &log)?);
        }
        let mut running = Charons { pair, dir: dir.into(), journal: journal.clone() };
        for gateway in [Node::G1, Node::G2] {
            let socket = socket(dir, gateway);
            let up = interrupt::wait_until(Duration::from_secs(10), || {
                running.pair.alive()?;
                Ok(vici::answers(&socket))
            })?;
            if !up {
                return Err(running.pair.failed("charon did not answer on VICI within 10 s"));
            }
            let file = dir.join(format!("{}.swanctl.conf", gateway.name()));
            running.swanctl(gateway, &["--load-all", "--file", &file.to_string_lossy()])?;
        }
        running.swanctl(Node::G1, &["--initiate", "--child", "net", "--timeout", "10"])?;
        Ok(Box::new(running))
    }
}

fn socket(dir: &Path, gateway: Node) -> PathBuf {
    dir.join(format!("{}.vici", gateway.name()))
}

fn uri(dir: &Path, gateway: Node) -> String {
    format!("unix://{}", socket(dir, gateway).display())
}

fn write(path: &Path, text: &str) -> Result<(), LabError> {
    std::fs::write(path, text).map_err(LabError::io(format!("writing {}", path.display())))
}

struct Charons {
    pair: Pair,
    dir: PathBuf,
    journal: Journal,
}

impl Charons {
    fn swanctl(&self, gateway: Node, arguments: &[&str]) -> Result<String, LabError> {
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
        Some("ipsec0".into())
    }

    fn describe(&mut self) -> Result<String, LabError> {
        Ok(self.swanctl(Node::G1, &["--list-sas"])?.trim_end().to_string())
    }

    fn alive(&mut self) -> Result<(), LabError> {
        self.pair.alive()
    }

    fn stop(self: Box<Self>) -> Vec<String> {
        self.pair.stop()
    }
}
