//! Two `ironswan run` gateways with a configuration folder each, a tunnel between the networks behind them, PSK.
//! Driven by the same program's operator commands, as an administrator would.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{Dut, Encap, Pair, Running, Suite, vici};
use crate::error::{LabError, Remedy};
use crate::interrupt;
use crate::machine;
use crate::process::{self, Journal, Process};
use crate::topology::{Line, Node, address};

/// IronSwan as the system under test.
pub(super) struct IronSwan {
    program: Option<PathBuf>,
    suite: Suite,
    encap: Encap,
}

impl IronSwan {
    pub(super) fn new(program: Option<PathBuf>, suite: Suite, encap: Encap) -> Self {
        Self { program, suite, encap }
    }

    fn program(&self) -> Result<String, LabError> {
        let path = match &self.program {
            Some(p) => p.clone(),
            None => std::env::current_exe().map_err(LabError::io("finding the path of this program"))?,
        };
        Ok(path.to_string_lossy().into_owned())
    }

    fn swanctl_conf(&self, gateway: Node, psk: &str) -> String {
        let Suite { ike, esp } = &self.suite;
        let encap = if self.encap == Encap::Udp { "yes" } else { "no" };
        let (me, peer, here, there, my_id, peer_id) = match gateway {
            Node::G2 | Node::B => {
                (address::G2, address::G1, address::NET_B, address::NET_A, "g2.example", "g1.example")
            }
            Node::A | Node::G1 => {
                (address::G1, address::G2, address::NET_A, address::NET_B, "g1.example", "g2.example")
            }
        };
        format!(
            "connections {{
  net {{
    version = 2
    proposals = {ike}
    local_addrs = {me}
    remote_addrs = {peer}
    encap = {encap}
    local {{
      auth = psk
      id = {my_id}
    }}
    remote {{
      auth = psk
      id = {peer_id}
    }}
    children {{
      net {{
        local_ts = {here}
        remote_ts = {there}
        esp_proposals = {esp}
        start_action = none
      }}
    }}
  }}
}}
secrets {{
  ike-1 {{
    secret = \"{psk}\"
    id-1 = {my_id}
    id-2 = {peer_id}
  }}
}}
"
        )
    }
}

impl Dut for IronSwan {
    fn name(&self) -> String {
        match self.encap {
            Encap::Udp => "ironswan".into(),
            Encap::Raw => "ironswan-raw".into(),
        }
    }

    fn lacks(&self) -> Vec<Remedy> {
        let mut lacks = machine::lacks_tun();
        if let Some(p) = self.program.as_deref().filter(|p| !process::is_executable(p)) {
            lacks.push(Remedy::new(
                format!("there is no program {}", p.display()),
                "build it with `make build`, or name another",
            ));
        }
        lacks
    }

    fn version(&self) -> Option<String> {
        let done =
            process::run_regardless(&[&self.program().ok()?, "--version"], Duration::from_secs(5)).ok()?;
        done.status.success().then(|| done.stdout.lines().next().unwrap_or_default().trim().to_string())
    }

    fn start(&self, line: &Line, dir: &Path) -> Result<Box<dyn Running>, LabError> {
        let program = self.program()?;
        let psk = random_secret()?;
        let mut pair = Pair::new(self.name());
        for gateway in [Node::G1, Node::G2] {
            let config = dir.join(gateway.name());
            fs::DirBuilder::new()
                .mode(0o700)
                .create(&config)
                .map_err(LabError::io(format!("creating {}", config.display())))?;
            write_private(&config.join("swanctl.conf"), &self.swanctl_conf(gateway, &psk))?;
            let argv = [&program, "run", "--config", &config.to_string_lossy(), "--vici", &uri(dir, gateway)]
                .map(ToString::to_string);
            let log = dir.join(format!("{}.log", gateway.name()));
            pair.add(Process::start(line.journal(), gateway.name(), &line.node(gateway).exec(&argv), &log)?);
        }
        for gateway in [Node::G1, Node::G2] {
            let socket = socket(dir, gateway);
            let ready = interrupt::wait_until(Duration::from_secs(10), || {
                pair.alive()?;
                Ok(vici::answers(&socket))
            })?;
            if !ready {
                return Err(pair.failed(format!("{} did not answer on VICI within 10 s", gateway.name())));
            }
        }
        let journal = line.journal().clone();
        let mut running = Gateways { pair, program, g1: uri(dir, Node::G1), journal };
        running.up()?;
        Ok(Box::new(running))
    }
}

fn socket(dir: &Path, gateway: Node) -> PathBuf {
    dir.join(format!("{}.vici", gateway.name()))
}

fn uri(dir: &Path, gateway: Node) -> String {
    format!("unix://{}", socket(dir, gateway).display())
}

struct Gateways {
    pair: Pair,
    program: String,
    g1: String,
    journal: Journal,
}

impl Gateways {
    fn operator(&self, arguments: &[&str], timeout: u64) -> Result<process::Finished, LabError> {
        let argv: Vec<&str> =
            [self.program.as_str()].iter().chain(arguments).copied().chain(["--vici", &self.g1]).collect();
        process::finish(&self.journal, &argv, "", Duration::from_secs(timeout))
    }

    fn up(&mut self) -> Result<(), LabError> {
        let done = match self.operator(&["up", "net", "--timeout", "10"], 15) {
            Err(LabError::Command { why, .. }) => {
                return Err(self.pair.failed(format!("the tunnel did not come up: {why}")));
            }
            other => other?,
        };
        if !done.status.success() {
            let why = done.complaint();
            return Err(self.pair.failed(format!("the tunnel did not come up: {why}")));
        }
        Ok(())
    }
}

impl Running for Gateways {
    fn tunnel_device(&self) -> Option<String> {
        Some("ipsec0".into())
    }

    fn describe(&mut self) -> Result<String, LabError> {
        let done = self.operator(&["status"], 5)?;
        if done.status.success() {
            Ok(done.stdout.trim_end().to_string())
        } else {
            Err(self.pair.failed(format!("`ironswan status`: {}", done.complaint())))
        }
    }

    fn alive(&mut self) -> Result<(), LabError> {
        self.pair.alive()
    }

    fn stop(self: Box<Self>) -> Vec<String> {
        self.pair.stop()
    }
}

/// Creates a file that only its owner can read: the daemon refuses secrets that others can.
fn write_private(path: &Path, text: &str) -> Result<(), LabError> {
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut f| f.write_all(text.as_bytes()))
        .map_err(LabError::io(format!("writing {}", path.display())))
}

/// 256 bits in hexadecimal, from the kernel.
fn random_secret() -> Result<String, LabError> {
    use std::io::Read;
    let mut bytes = [0; 32];
    fs::File::open("/dev/urandom")
        .and_then(|mut f| f.read_exact(&mut bytes))
        .map_err(LabError::io("reading /dev/urandom"))?;
    Ok(bytes.iter().map(|b| format!("{b:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt;

    use super::*;

    #[test]
    fn the_configurations_of_both_ends_mirror_each_other() {
        let dut = IronSwan::new(None, Suite::default(), Encap::Raw);
        let (g1, g2) = (dut.swanctl_conf(Node::G1, "x"), dut.swanctl_conf(Node::G2, "x"));
        for (one, other) in [
            ("local_addrs = 192.0.2.1", "remote_addrs = 192.0.2.1"),
            ("local_ts = 10.1.0.0/24", "remote_ts = 10.1.0.0/24"),
            ("esp_proposals = aes128gcm16", "esp_proposals = aes128gcm16"),
            ("encap = no", "encap = no"),
            ("id-1 = g1.example", "id-2 = g1.example"),
        ] {
            assert!(g1.contains(one) && g2.contains(other), "{one} / {other}");
        }
    }

    #[test]
    fn secrets_are_written_for_the_owner_only_and_never_over_a_file() {
        let path = std::env::temp_dir().join(format!("ironlab-private-{}", std::process::id()));
        write_private(&path, "secret").expect("write");
        assert_eq!(fs::metadata(&path).expect("metadata").mode() & 0o777, 0o600);
        assert!(write_private(&path, "again").is_err());
        fs::remove_file(&path).expect("remove");
        assert_ne!(random_secret().expect("random"), random_secret().expect("random"));
    }
}
