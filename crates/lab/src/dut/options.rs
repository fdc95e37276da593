//! The choices that a user has for the systems under test: algorithms, encapsulation, settings of
//! the data plane, and paths of programs.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use crate::process;

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
    /// Whether ironswan is measured with the processor's crypto instructions, without, or both.
    pub hardware: Hardware,
    /// IPComp inside of the tunnels of ironswan.
    pub ipcomp: bool,
    /// The `ironswan` program; looked for when absent ([`DutOptions::gateway`]).
    pub ironswan: Option<PathBuf>,
    /// The `wireguard-go` program; looked for when absent ([`DutOptions::wireguard_go`]).
    pub wireguard_go: Option<PathBuf>,
    /// Tailscale's `wireguard-go` program; looked for when absent
    /// ([`DutOptions::wireguard_go_tailscale`]).
    pub wireguard_go_tailscale: Option<PathBuf>,
}

impl Default for DutOptions {
    fn default() -> Self {
        let suites = vec![Suite::default()];
        Self {
            suites,
            data: vec![],
            hardware: Hardware::default(),
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
        let started_us = || variable("IRONSWAN");
        let beside = || Some(std::env::current_exe().ok()?.with_file_name("ironswan"));
        let beside = || beside().filter(|p| process::is_executable(p));
        self.ironswan.clone().or_else(started_us).or_else(beside).or_else(|| process::find("ironswan"))
    }

    /// The program of wireguard-go: the one that was named, or the one in the variable
    /// `WIREGUARD_GO`, or one on PATH by the name of Debian's package or of the Go module.
    pub fn wireguard_go(&self) -> Option<PathBuf> {
        let named = self.wireguard_go.clone().or_else(|| variable("WIREGUARD_GO"));
        named.or_else(|| ["wireguard-go", "wireguard"].into_iter().find_map(process::find))
    }

    /// The program of Tailscale's fork of it: the one that was named, or the one in the variable
    /// `WIREGUARD_GO_TAILSCALE`, or one on PATH.
    pub fn wireguard_go_tailscale(&self) -> Option<PathBuf> {
        let named = self.wireguard_go_tailscale.clone().or_else(|| variable("WIREGUARD_GO_TAILSCALE"));
        named.or_else(|| process::find("wireguard-go-tailscale"))
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

/// The program that a variable of the environment names.
fn variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name).filter(|path| !path.is_empty()).map(PathBuf::from)
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

/// Use of the processor's crypto instructions (AES, carry-less multiplication, SHA) by ironswan.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Hardware {
    /// As the gateway chooses: the fastest engine, with every instruction that the processor has.
    #[default]
    On,
    /// AWS-LC for every suite, without these instructions.
    Off,
    /// Two systems: one with, one without.
    Both,
}

impl Hardware {
    /// Ending of the name of a system that does without the instructions.
    pub const OFF: &'static str = " software";

    /// The systems to make of one: true for the system that does without the instructions.
    pub(super) fn variants(self) -> &'static [bool] {
        match self {
            Self::On => &[false],
            Self::Off => &[true],
            Self::Both => &[false, true],
        }
    }
}

impl fmt::Display for Hardware {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::On => "on",
            Self::Off => "off",
            Self::Both => "both",
        })
    }
}

impl FromStr for Hardware {
    type Err = String;

    fn from_str(s: &str) -> Result<Self, String> {
        match s {
            "on" => Ok(Self::On),
            "off" => Ok(Self::Off),
            "both" => Ok(Self::Both),
            _ => Err(format!("`{s}` is not a use of the hardware; write on, off or both")),
        }
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
    fn the_hardware_is_on_off_or_both_and_each_name_is_read_back() {
        for (hardware, variants) in
            [(Hardware::On, &[false][..]), (Hardware::Off, &[true]), (Hardware::Both, &[false, true])]
        {
            assert_eq!(hardware.to_string().parse(), Ok(hardware));
            assert_eq!(hardware.variants(), variants);
        }
        assert!("maybe".parse::<Hardware>().is_err());
    }

    #[test]
    fn encapsulation_is_yes_no_or_both() {
        assert_eq!(Encap::list("yes"), Ok(vec![Encap::Udp]));
        assert_eq!(Encap::list("no"), Ok(vec![Encap::Raw]));
        assert_eq!(Encap::list("both"), Ok(vec![Encap::Udp, Encap::Raw]));
        assert_eq!(Encap::list("udp,raw"), Ok(vec![Encap::Udp, Encap::Raw]));
        assert!(Encap::list("maybe").is_err());
    }
}
