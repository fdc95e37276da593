//! `ironswan run` gateways with a configuration folder each, tunnels between the networks behind
//! them, PSK. Driven by the same program's operator commands, as an administrator would.

use std::fs;
use std::io::Write;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::{DataSetting, Dut, Encap, EngineCounts, Pair, Running, Suite, vici};
use crate::clock;
use crate::error::{LabError, LogTail, Remedy};
use crate::interrupt;
use crate::machine;
use crate::process::{self, Journal, Process};
use crate::topology::Sites;

/// IronSwan as the system under test.
pub(super) struct IronSwan {
    name: String,
    program: Option<PathBuf>,
    suite: Suite,
    encap: Encap,
    data: Option<DataSetting>,
    ipcomp: bool,
    /// Without the processor's crypto instructions.
    software: bool,
}

/// Setting of the environment by which AWS-LC does without the processor's instructions for AES,
/// carry-less multiplication (GHASH) and SHA. Its code for vectors stays in use. `None` where there
/// is no such setting.
pub const SOFTWARE_ENVIRONMENT: Option<&str> = if cfg!(target_arch = "x86_64") {
    // CPUID 1, ECX: bits 25 (AES) and 1 (PCLMULQDQ). CPUID 7, EBX: bit 29 (SHA); ECX: bits 9 (VAES)
    // and 10 (VPCLMULQDQ).
    Some("OPENSSL_ia32cap=~0x200000200000000:~0x60020000000")
} else if cfg!(target_arch = "aarch64") {
    // AES, SHA-1, SHA-256, PMULL, SHA-512, SHA-3.
    Some("OPENSSL_armcap=~0x87c")
} else {
    None
};
/// Engine of a gateway that does without these instructions: the only one that heeds the setting.
const SOFTWARE_ENGINE: (&str, &str) = ("engine", "aws-lc");

impl IronSwan {
    pub(super) fn new(
        name: String,
        program: Option<PathBuf>,
        suite: Suite,
        encap: Encap,
        data: Option<DataSetting>,
    ) -> Self {
        Self { name, program, suite, encap, data, ipcomp: false, software: false }
    }

    /// Without the processor's crypto instructions, or with them.
    pub(super) fn software(self, software: bool) -> Self {
        Self { software, ..self }
    }

    /// With IPComp, or without.
    pub(super) fn ipcomp(self, ipcomp: bool) -> Self {
        Self { ipcomp, ..self }
    }

    fn program(&self) -> Result<String, LabError> {
        let path = self.program.as_deref().ok_or_else(|| LabError::Unfit(vec![not_found()]))?;
        Ok(path.to_string_lossy().into_owned())
    }

    /// The section `data` of ironswan.conf; empty when the defaults are measured.
    fn data_section(&self) -> String {
        let software = self.software.then_some(SOFTWARE_ENGINE);
        let own = self.data.as_ref().map(|d| (d.key.as_str(), d.value.as_str()));
        let keys: String =
            software.into_iter().chain(own).map(|(key, value)| format!("  {key} = {value}\n")).collect();
        if keys.is_empty() { keys } else { format!("data {{\n{keys}}}\n") }
    }

    /// The connections of one gateway.
    fn swanctl_conf(&self, sites: &Sites<'_>, site: usize, psk: &str) -> String {
        let Suite { ike, esp } = &self.suite;
        let encap = if self.encap == Encap::Udp { "yes" } else { "no" };
        let ipcomp = if self.ipcomp { "yes" } else { "no" };
        let more = super::pair::lasting(sites);
        let (mut connections, mut secrets) = (String::new(), String::new());
        for end in sites.ends(site) {
            let name = sites.tunnel_name(end.tunnel);
            let (me, peer) = (&end.here.address, &end.there.address);
            let (my_id, peer_id) = (end.here.name, end.there.name);
            let (here, there) = (end.here.networks.join(","), end.there.networks.join(","));
            connections.push_str(&format!(
                "  {name} {{
    version = 2
    proposals = {ike}
    local_addrs = {me}
    remote_addrs = {peer}
    encap = {encap}
    local {{
      auth = psk
      id = {my_id}.example
    }}
    remote {{
      auth = psk
      id = {peer_id}.example
    }}
    children {{
      {name} {{
        local_ts = {here}
        remote_ts = {there}
        esp_proposals = {esp}
        ipcomp = {ipcomp}
        start_action = none
{more}      }}
    }}
  }}
"
            ));
            secrets.push_str(&format!(
                "  ike-{} {{\n    secret = \"{psk}\"\n    id-1 = {my_id}.example\n    id-2 = {peer_id}.example\n  }}\n",
                end.tunnel
            ));
        }
        format!("connections {{\n{connections}}}\nsecrets {{\n{secrets}}}\n")
    }
}

fn not_found() -> Remedy {
    Remedy::new(
        "the program ironswan is neither beside ironswan-lab nor on PATH",
        "install it there (`make build` makes both), or name it with --program",
    )
}

impl Dut for IronSwan {
    fn name(&self) -> String {
        self.name.clone()
    }

    fn lacks(&self) -> Vec<Remedy> {
        let mut lacks = machine::lacks_tun();
        match &self.program {
            Some(p) if process::is_executable(p) => {}
            Some(p) => lacks.push(Remedy::new(
                format!("there is no program {}", p.display()),
                "build it with `make build`, or name another",
            )),
            None => lacks.push(not_found()),
        }
        if self.software && SOFTWARE_ENVIRONMENT.is_none() {
            lacks.push(Remedy::new(
                "crypto instructions cannot be switched off on this kind of processor",
                "measure with the hardware on",
            ));
        }
        lacks
    }

    fn version(&self) -> Option<String> {
        let done =
            process::run_regardless(&[&self.program().ok()?, "--version"], Duration::from_secs(5)).ok()?;
        done.status.success().then(|| done.stdout.lines().next().unwrap_or_default().trim().to_string())
    }

    fn ipsec(&self) -> Option<(&Suite, Encap)> {
        Some((&self.suite, self.encap))
    }

    fn start(&self, sites: &Sites<'_>, dir: &Path) -> Result<Box<dyn Running>, LabError> {
        let program = self.program()?;
        let psk = match &sites.played {
            Some(played) => played.text(),
            None => random_secret()?,
        };
        let mut pair = Pair::new(self.name());
        for (index, site) in sites.started() {
            let config = dir.join(site.name);
            fs::DirBuilder::new()
                .mode(0o700)
                .create(&config)
                .map_err(LabError::io(format!("creating {}", config.display())))?;
            write_private(&config.join("swanctl.conf"), &self.swanctl_conf(sites, index, &psk))?;
            // Nothing is kept outside of the run's folder.
            let mut settings = format!("qcd_secret = {}\n", config.join("qcd-secret").display());
            settings += &self.data_section();
            write_private(&config.join("ironswan.conf"), &settings)?;
            let run =
                [&program, "run", "--config", &config.to_string_lossy(), "--vici", &uri(dir, site.name)];
            let environment = self.software.then_some(SOFTWARE_ENVIRONMENT).flatten();
            let without = environment.map(|setting| ["env", setting]);
            let argv: Vec<String> =
                without.into_iter().flatten().chain(run).map(ToString::to_string).collect();
            let log = dir.join(format!("{}.log", site.name));
            pair.add(Process::start(sites.journal, site.name, &site.netns.exec(&argv), &log)?);
        }
        for (_, site) in sites.started() {
            let socket = socket(dir, site.name);
            let ready = interrupt::wait_until(Duration::from_secs(10), || {
                pair.alive()?;
                Ok(vici::answers(&socket))
            })?;
            if !ready {
                return Err(pair.failed(format!("{} did not answer on VICI within 10 s", site.name)));
            }
        }
        let uris = sites.started().map(|(_, s)| uri(dir, s.name)).collect();
        let mut running = Gateways { pair, program, uris, journal: sites.journal.clone() };
        for (tunnel, (initiator, _)) in sites.tunnels.iter().enumerate() {
            running.up(*initiator, &sites.tunnel_name(tunnel))?;
        }
        Ok(Box::new(running))
    }
}

fn socket(dir: &Path, gateway: &str) -> PathBuf {
    dir.join(format!("{gateway}.vici"))
}

fn uri(dir: &Path, gateway: &str) -> String {
    format!("unix://{}", socket(dir, gateway).display())
}

struct Gateways {
    pair: Pair,
    program: String,
    /// Of the gateways' VICI sockets.
    uris: Vec<String>,
    journal: Journal,
}

impl Gateways {
    /// Runs one of the program's own commands on the first gateway.
    fn operator(&self, arguments: &[&str], timeout: u64) -> Result<process::Finished, LabError> {
        self.operator_of(&self.uris[0], arguments, timeout)
    }

    fn operator_of(
        &self,
        uri: &str,
        arguments: &[&str],
        timeout: u64,
    ) -> Result<process::Finished, LabError> {
        let argv: Vec<&str> =
            [self.program.as_str()].iter().chain(arguments).copied().chain(["--vici", uri]).collect();
        process::finish(&self.journal, &argv, "", Duration::from_secs(timeout)).map_err(|e| match e {
            // Whoever does not answer is the gateway.
            LabError::Command { why, .. } => {
                self.pair.failed(format!("`ironswan {}`: {why}", arguments.join(" ")))
            }
            other => other,
        })
    }

    fn counters(&self, uri: &str) -> Result<EngineCounts, LabError> {
        let done = self.operator_of(uri, &["list", "counters", "--json"], 5)?;
        let counts = serde_json::from_str(&done.stdout).ok().as_ref().and_then(EngineCounts::parse);
        counts.ok_or_else(|| {
            self.pair.failed(format!("`ironswan list counters` is not as expected: {}", done.complaint()))
        })
    }

    fn up(&mut self, site: usize, tunnel: &str) -> Result<(), LabError> {
        let up = ["up", tunnel, "--timeout", &clock::tunnel_limit()];
        let done = self.operator_of(&self.uris[site], &up, 15)?;
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

    fn takes_mtu(&self) -> bool {
        false
    }

    fn describe(&mut self) -> Result<String, LabError> {
        // Of the daemon with its data plane, and of the tunnel.
        let mut whole = Vec::new();
        for command in [&["status"][..], &["status", "net"]] {
            let done = self.operator(command, 5)?;
            if !done.status.success() {
                let command = command.join(" ");
                return Err(self.pair.failed(format!("`ironswan {command}`: {}", done.complaint())));
            }
            whole.push(done.stdout.trim_end().to_string());
        }
        Ok(whole.join("\n\n"))
    }

    fn engines(&mut self) -> Result<Vec<EngineCounts>, LabError> {
        self.uris.iter().take(2).map(|uri| self.counters(uri)).collect()
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

/// Creates a file that only its owner can read: the daemon refuses secrets that others can.
pub(crate) fn write_private(path: &Path, text: &str) -> Result<(), LabError> {
    fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)
        .and_then(|mut f| f.write_all(text.as_bytes()))
        .map_err(LabError::io(format!("writing {}", path.display())))
}

/// 256 bits in hexadecimal, from the kernel.
pub(crate) fn random_secret() -> Result<String, LabError> {
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
    use crate::topology::{Netns, Played, Site};

    #[test]
    fn the_configurations_of_both_ends_mirror_each_other_and_a_hub_has_one_for_each_spoke() {
        let netns: Vec<Netns> = (0..3).map(|n| Netns::adopt(format!("ironlab-test-of-names-{n}"))).collect();
        let journal = Journal::default();
        let site = |n: usize, name: &'static str| Site {
            name,
            netns: &netns[n],
            address: format!("192.0.2.{}", n + 1),
            networks: vec![format!("10.{}.0.0/24", n + 1)],
        };
        let sites = Sites {
            sites: vec![site(0, "g1"), site(1, "hub"), site(2, "g3")],
            tunnels: vec![(0, 1), (2, 1)],
            journal: &journal,
            played: None,
        };
        let dut = IronSwan::new("x".into(), None, Suite::default(), Encap::Raw, None);
        let [spoke, hub, other] = [0, 1, 2].map(|n| dut.swanctl_conf(&sites, n, "x"));
        for (one, mirrored) in [
            ("net-0 {", "net-0 {"),
            ("local_addrs = 192.0.2.1", "remote_addrs = 192.0.2.1"),
            ("local_ts = 10.1.0.0/24", "remote_ts = 10.1.0.0/24"),
            ("esp_proposals = aes128gcm16", "esp_proposals = aes128gcm16"),
            ("encap = no", "encap = no"),
            ("id-1 = g1.example", "id-2 = g1.example"),
        ] {
            assert!(spoke.contains(one) && hub.contains(mirrored), "{one} / {mirrored}");
            assert!(!other.contains(one) || one.contains(" = a") || one.contains("= no"), "{one}");
        }
        assert_eq!((hub.matches("version = 2").count(), spoke.matches("version = 2").count()), (2, 1));
        assert!(hub.contains("remote_addrs = 192.0.2.3") && other.contains("net-1 {"));
        assert_eq!(sites.ends(1).iter().filter(|e| e.initiates).count(), 0);
        // With one end played, the other is started alone and keeps its keys.
        let played = Some(Played { site: 1, secret: b"x".as_slice().into() });
        let sites = Sites { played, ..sites };
        assert_eq!(sites.started().map(|(n, _)| n).collect::<Vec<_>>(), [0, 2]);
        assert!(dut.swanctl_conf(&sites, 0, "x").contains("rekey_time = 0") && !spoke.contains("rekey_time"));
    }

    #[test]
    fn a_gateway_without_crypto_instructions_has_the_engine_that_heeds_the_setting() {
        let dut = |data: Option<&str>| {
            let data = data.map(|d| d.parse().expect("a setting"));
            IronSwan::new("x".into(), None, Suite::default(), Encap::Udp, data)
        };
        assert_eq!(dut(None).data_section(), "");
        assert_eq!(dut(Some("workers=2")).data_section(), "data {\n  workers = 2\n}\n");
        assert_eq!(dut(None).software(true).data_section(), "data {\n  engine = aws-lc\n}\n");
        assert_eq!(
            dut(Some("workers=2")).software(true).data_section(),
            "data {\n  engine = aws-lc\n  workers = 2\n}\n"
        );
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
