//! Systems under test, always as processes on the gateways of a topology. One file each; adding one
//! is that file and its line in [`NAMES`].
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `plain` | plain forwarding |
//! | `ironswan` | `ironswan run` |
//! | `strongswan` | strongSwan's charon |
//! | `libreswan` | Libreswan's pluto |
//! | `wireguard` | WireGuard in the kernel |
//! | `wireguard_go` | wireguard-go, and forks of it |
//! | `openvpn` | OpenVPN |
//! | `vici` | asks a daemon by VICI whether it is there |
//! | `engine` | counters of a system's packet engine |

mod engine;
pub(crate) mod ironswan;
mod libreswan;
mod openvpn;
mod plain;
pub(crate) mod strongswan;
pub(crate) mod vici;
mod wireguard;
mod wireguard_go;

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::time::Duration;

use crate::error::{LabError, LogTail, Remedy};
use crate::interrupt;
use crate::process::{self, Process};
use crate::topology::Sites;

pub use engine::{EngineCounts, StageTimes};

/// Algorithms of an IPsec tunnel, as swanctl.conf writes proposals.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Suite {
    /// Proposal of the IKE_SA.
    pub ike: String,
    /// Proposal of the CHILD_SA: what the traffic pays for.
    pub esp: String,
}

impl Default for Suite {
    fn default() -> Self {
        Self { ike: "aes128gcm16-prfsha256-curve25519".into(), esp: "aes128gcm16".into() }
    }
}

impl FromStr for Suite {
    type Err = String;

    /// `ESP` or `ESP/IKE`, for instance `aes128-sha256` or
    /// `chacha20poly1305/aes256gcm16-prfsha384-ecp384`.
    fn from_str(s: &str) -> Result<Self, String> {
        let (esp, ike) = match s.split_once('/') {
            Some((esp, ike)) => (esp, ike.to_string()),
            None => (s, Self::default().ike),
        };
        // Both end up in a configuration file.
        let sound = |p: &str| {
            !p.is_empty()
                && p.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "-_".contains(c))
        };
        if sound(esp) && sound(&ike) {
            Ok(Self { ike, esp: esp.into() })
        } else {
            Err(format!(
                "`{s}` is not a suite; write ESP or ESP/IKE, for instance aes128gcm16 or aes128-sha256"
            ))
        }
    }
}

/// Options of the systems under test; each system takes those that concern it.
#[derive(Debug, Clone)]
pub struct DutOptions {
    /// Algorithms of the IPsec systems: each is measured with every one of them. The first has the
    /// system's plain name.
    pub suites: Vec<Suite>,
    /// Settings of the data plane, `key = value` of the section `data`: ironswan is measured with
    /// each of them beside its defaults.
    pub data: Vec<DataSetting>,
    /// IPComp inside of the tunnels of ironswan.
    pub ipcomp: bool,
    /// The `ironswan` program; looked for when absent ([`DutOptions::gateway`]).
    pub ironswan: Option<PathBuf>,
    /// The `wireguard-go` program; looked for when absent.
    pub wireguard_go: Option<PathBuf>,
    /// Tailscale's `wireguard-go` program; looked for when absent.
    pub wireguard_go_tailscale: Option<PathBuf>,
}

impl Default for DutOptions {
    fn default() -> Self {
        let suites = vec![Suite::default()];
        Self {
            suites,
            data: vec![],
            ipcomp: false,
            ironswan: None,
            wireguard_go: None,
            wireguard_go_tailscale: None,
        }
    }
}

impl DutOptions {
    /// The `ironswan` program to measure: the one that was named, or the one that has started us
    /// (the variable `IRONSWAN`), or one beside us, or one on PATH.
    pub fn gateway(&self) -> Option<PathBuf> {
        let started_us = || std::env::var_os("IRONSWAN").filter(|p| !p.is_empty()).map(PathBuf::from);
        let beside = || Some(std::env::current_exe().ok()?.with_file_name("ironswan"));
        let beside = || beside().filter(|p| process::is_executable(p));
        self.ironswan.clone().or_else(started_us).or_else(beside).or_else(|| process::find("ironswan"))
    }

    /// The ESP proposals, for people.
    pub fn esp(&self) -> String {
        self.suites.iter().map(|s| s.esp.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// The IKE proposals, for people: each once.
    pub fn ike(&self) -> String {
        let mut all: Vec<&str> = self.suites.iter().map(|s| s.ike.as_str()).collect();
        all.dedup();
        all.join(", ")
    }
}

/// A setting of ironswan's data plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DataSetting {
    /// A key of the section `data` of ironswan.conf.
    pub key: String,
    /// Value of the option.
    pub value: String,
}

impl FromStr for DataSetting {
    type Err = String;

    /// `key=value`, for instance `workers=2`.
    fn from_str(s: &str) -> Result<Self, String> {
        let sound =
            |p: &str| !p.is_empty() && p.chars().all(|c| c.is_ascii_alphanumeric() || "_-.,:@".contains(c));
        match s.split_once('=') {
            // Both end up in a configuration file, where the daemon judges them.
            Some((key, value)) if sound(key) && sound(value) => {
                Ok(Self { key: key.into(), value: value.into() })
            }
            _ => Err(format!(
                "`{s}` is not a setting; write key=value of the section data, for instance workers=2"
            )),
        }
    }
}

impl fmt::Display for DataSetting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}={}", self.key, self.value)
    }
}

/// UDP encapsulation of ESP.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encap {
    /// In UDP (RFC 3948), also without a NAT.
    Udp,
    /// Raw ESP, IP protocol 50.
    Raw,
}

impl Suite {
    /// Suites separated by commas.
    pub fn list(text: &str) -> Result<Vec<Self>, String> {
        text.split(',').map(str::parse).collect()
    }
}

/// The name of a system with one of several suites: the first has none of its own.
fn suited(base: &str, index: usize, suite: &Suite) -> String {
    // Short names for tables: the record has the proposals in full.
    if index == 0 { base.into() } else { format!("{base}-{}", suite.esp.trim_end_matches("poly1305")) }
}

impl Encap {
    /// A choice as people write it: `yes` (or `udp`), `no` (or `raw`), `both`, or a list with
    /// commas.
    pub fn list(text: &str) -> Result<Vec<Self>, String> {
        let mut list = Vec::new();
        for word in text.split(',') {
            match word {
                "yes" | "udp" => list.push(Self::Udp),
                "no" | "raw" => list.push(Self::Raw),
                "both" => list.extend([Self::Udp, Self::Raw]),
                _ => return Err(format!("`{word}` is not an encapsulation; write yes, no or both")),
            }
        }
        Ok(list)
    }
}

/// A system under test.
pub trait Dut {
    /// Name in tables and records.
    fn name(&self) -> String;

    /// Programs and kernel features that this machine lacks, each with its remedy.
    fn lacks(&self) -> Vec<Remedy>;

    /// Version, as the system reports it.
    fn version(&self) -> Option<String>;

    /// Algorithms and form of ESP that the system agrees on with a peer by IKEv2; `None` for a
    /// system that does not use IPsec.
    fn ipsec(&self) -> Option<(&Suite, Encap)> {
        None
    }

    /// Starts it on all gateways (but the one that is played) and waits until traffic can flow
    /// through every tunnel. `dir` is for its files and logs.
    fn start(&self, sites: &Sites<'_>, dir: &Path) -> Result<Box<dyn Running>, LabError>;
}

/// How long a process may be about to end.
const ENDING: Duration = Duration::from_millis(500);

/// A system at work; dropping it ends it.
pub trait Running {
    /// The interface on the first gateway through which the traffic must go.
    fn tunnel_device(&self) -> Option<String>;

    /// Whether that interface is to be given the MTU of larger inner packets than usual. Not that
    /// of a system which keeps its interface as it made it, and whose routes have the MTU that fits
    /// the path.
    fn takes_mtu(&self) -> bool {
        true
    }

    /// The system's own status of the tunnel, for the record and for people.
    fn describe(&mut self) -> Result<String, LabError>;

    /// Counters of the packet engine on each gateway; empty for a system that has none.
    fn engines(&mut self) -> Result<Vec<EngineCounts>, LabError> {
        Ok(Vec::new())
    }

    /// An error, with the end of the logs, once one of its processes has ended.
    fn alive(&mut self) -> Result<(), LabError>;

    /// The end of the log of each of its processes; none of a system that has none.
    fn logs(&self) -> Vec<LogTail> {
        Vec::new()
    }

    /// Finds the cause of a failure while the system named `dut` carried traffic. If one of its
    /// processes has ended, that is the cause; else it is `error`, with the end of the system's
    /// logs.
    fn failed(&mut self, dut: &str, error: LabError) -> LabError {
        let mut ended = None;
        // A process closes its sockets some time before it has ended, so give it [`ENDING`].
        let waited = interrupt::wait_until(ENDING, || {
            ended = self.alive().err();
            Ok(ended.is_some())
        });
        match (error, ended) {
            (LabError::Interrupted, _) => LabError::Interrupted,
            _ if waited.is_err() => LabError::Interrupted,
            (_, Some(ended)) => ended,
            (LabError::Measurement(why), _) => LabError::Dut { dut: dut.into(), why, logs: self.logs() },
            (other, _) => other,
        }
    }

    /// Ends it; returns the processes that did not end when asked.
    fn stop(self: Box<Self>) -> Vec<String>;
}

/// The names of all systems, with one line about each.
pub const NAMES: [(&str, &str); 9] = [
    ("plain", "forwarding without a tunnel, by the kernel"),
    ("ironswan", "two `ironswan run` gateways, IKEv2, ESP in user space"),
    ("wireguard-go", "the reference WireGuard in user space"),
    ("wireguard-go-tailscale", "Tailscale's fork of it"),
    ("strongswan", "strongSwan with ESP in user space (kernel-libipsec; UDP encapsulation only)"),
    ("strongswan-kernel", "strongSwan with the ESP of the kernel (XFRM)"),
    ("libreswan", "Libreswan with the ESP of the kernel (XFRM)"),
    ("kernel-wireguard", "WireGuard in the kernel"),
    ("openvpn", "OpenVPN in user space, UDP, TLS between the two, AES-128-GCM"),
];

/// The system of that name, once for each encapsulation asked for where it has the choice.
pub fn by_name(name: &str, encaps: &[Encap], options: &DutOptions) -> Result<Vec<Box<dyn Dut>>, LabError> {
    let suites = || options.suites.iter().enumerate();
    Ok(match name {
        "plain" => vec![Box::new(plain::Plain)],
        "ironswan" => suites()
            .flat_map(|(i, suite)| encaps.iter().map(move |encap| (i, suite, *encap)))
            .flat_map(|(i, suite, encap)| {
                let name = suited(if encap == Encap::Raw { "ironswan-raw" } else { "ironswan" }, i, suite);
                let plain = (name.clone(), None);
                let with = options.data.iter().map(move |d| (format!("{name} {d}"), Some(d.clone())));
                std::iter::once(plain).chain(with).map(move |(name, data)| {
                    let program = options.gateway();
                    let dut = ironswan::IronSwan::new(name, program, suite.clone(), encap, data);
                    Box::new(dut.ipcomp(options.ipcomp)) as Box<dyn Dut>
                })
            })
            .collect(),
        "wireguard-go" => vec![Box::new(wireguard_go::WireGuardGo::new(options.wireguard_go.clone()))],
        "wireguard-go-tailscale" => {
            vec![Box::new(wireguard_go::WireGuardGo::tailscale(options.wireguard_go_tailscale.clone()))]
        }
        "strongswan" => suites()
            .map(|(i, suite)| {
                let name = suited("strongswan", i, suite);
                Box::new(strongswan::StrongSwan::new(name, suite.clone())) as Box<dyn Dut>
            })
            .collect(),
        "strongswan-kernel" => suites()
            .flat_map(|(i, suite)| encaps.iter().map(move |encap| (i, suite, *encap)))
            .map(|(i, suite, encap)| {
                let raw = encap == Encap::Raw;
                let name = suited(if raw { "strongswan-kernel-raw" } else { "strongswan-kernel" }, i, suite);
                Box::new(strongswan::StrongSwan::in_kernel(name, suite.clone(), encap)) as Box<dyn Dut>
            })
            .collect(),
        "libreswan" => suites()
            .flat_map(|(i, suite)| encaps.iter().map(move |encap| (i, suite, *encap)))
            .map(|(i, suite, encap)| {
                let name = suited(if encap == Encap::Raw { "libreswan-raw" } else { "libreswan" }, i, suite);
                Box::new(libreswan::Libreswan::new(name, suite.clone(), encap)) as Box<dyn Dut>
            })
            .collect(),
        "kernel-wireguard" => vec![Box::new(wireguard::WireGuard)],
        "openvpn" => vec![Box::new(openvpn::OpenVpn)],
        _ => {
            let known: Vec<&str> = NAMES.iter().map(|(n, _)| *n).collect();
            return Err(LabError::Usage(format!(
                "there is no system `{name}` to test; there are {} (and `all` for those installed)",
                known.join(", ")
            )));
        }
    })
}

/// Configuration of a CHILD_SA whose other end the laboratory plays: keys are never replaced,
/// because a trial must not meet a rekeying.
fn lasting(sites: &Sites<'_>) -> &'static str {
    if sites.played.is_some() { "        rekey_time = 0\n" } else { "" }
}

/// The processes of a system on its gateways, and what most systems do with them.
#[derive(Debug)]
pub(crate) struct Pair {
    dut: String,
    processes: Vec<Process>,
}

/// Lines of each log that a failure shows.
const TAIL: usize = 15;

impl Pair {
    pub(crate) fn new(dut: impl Into<String>) -> Self {
        Self { dut: dut.into(), processes: Vec::new() }
    }

    pub(crate) fn add(&mut self, process: Process) {
        self.processes.push(process);
    }

    pub(crate) fn logs(&self) -> Vec<LogTail> {
        self.processes.iter().map(|p| p.tail(TAIL)).collect()
    }

    /// The error of this system, with the end of its logs.
    pub(crate) fn failed(&self, why: impl Into<String>) -> LabError {
        LabError::Dut { dut: self.dut.clone(), why: why.into(), logs: self.logs() }
    }

    pub(crate) fn alive(&mut self) -> Result<(), LabError> {
        let ended = self.processes.iter_mut().find_map(|p| Some((p.ended()?, p.name().to_string())));
        match ended {
            Some((status, name)) => Err(self.failed(format!("the process of {name} ended ({status})"))),
            None => Ok(()),
        }
    }

    /// Ends all together.
    pub(crate) fn stop(mut self) -> Vec<String> {
        process::end_all(&mut self.processes, Duration::from_secs(3))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_suite_names_esp_first_and_ike_after_a_slash() {
        assert_eq!("aes128gcm16".parse(), Ok(Suite::default()));
        let both: Suite = "aes128-sha256/aes256gcm16-prfsha384-ecp384".parse().expect("a suite");
        assert_eq!((both.esp.as_str(), both.ike.as_str()), ("aes128-sha256", "aes256gcm16-prfsha384-ecp384"));
        for bad in ["", "/", "aes128\nsecrets", "aes 128", "aes128/"] {
            assert!(bad.parse::<Suite>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn several_suites_make_several_systems_with_names_of_their_own() {
        let suites = Suite::list("aes128gcm16,chacha20poly1305").expect("two suites");
        let options = DutOptions { suites, ..DutOptions::default() };
        let duts = by_name("ironswan", &[Encap::Udp, Encap::Raw], &options).expect("systems");
        let names: Vec<String> = duts.iter().map(|d| d.name()).collect();
        let wanted = ["ironswan", "ironswan-raw", "ironswan-chacha20", "ironswan-raw-chacha20"];
        assert_eq!(names, wanted);
        assert_eq!(options.esp(), "aes128gcm16, chacha20poly1305");
        assert_eq!(options.ike(), Suite::default().ike);
    }

    #[test]
    fn a_setting_of_the_data_plane_makes_a_system_beside_the_one_with_defaults() {
        let data = ["workers=2", "busy_poll=50us"].map(|s| s.parse().expect("a setting")).to_vec();
        let options = DutOptions { data, ..DutOptions::default() };
        let duts = by_name("ironswan", &[Encap::Udp], &options).expect("systems");
        let names: Vec<String> = duts.iter().map(|d| d.name()).collect();
        assert_eq!(names, ["ironswan", "ironswan workers=2", "ironswan busy_poll=50us"]);
        for bad in ["workers", "=2", "workers=", "a b=2", "workers=2\n}"] {
            assert!(bad.parse::<DataSetting>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn encapsulation_is_yes_no_or_both() {
        assert_eq!(Encap::list("yes"), Ok(vec![Encap::Udp]));
        assert_eq!(Encap::list("no"), Ok(vec![Encap::Raw]));
        assert_eq!(Encap::list("both"), Ok(vec![Encap::Udp, Encap::Raw]));
        assert_eq!(Encap::list("udp,raw"), Ok(vec![Encap::Udp, Encap::Raw]));
        assert!(Encap::list("maybe").is_err());
    }

    #[test]
    fn an_unknown_system_is_answered_with_the_known_ones() {
        let e = by_name("opensvan", &[Encap::Udp], &DutOptions::default()).err().expect("unknown");
        assert!(e.to_string().contains("ironswan"), "{e}");
        assert_eq!(e.exit_code(), 2);
    }

    #[test]
    fn every_listed_name_is_a_system_and_those_with_raw_esp_have_two_encapsulations() {
        for (name, _) in NAMES {
            let duts = by_name(name, &[Encap::Udp, Encap::Raw], &DutOptions::default()).expect(name);
            let raw = ["ironswan", "strongswan-kernel", "libreswan"].contains(&name);
            assert_eq!(duts.len(), if raw { 2 } else { 1 });
            assert_eq!(duts[0].name(), name);
        }
    }
}
