//! TCP congestion control of the boxes. A new network namespace takes over what the machine is set
//! to, and with it the shape of the traffic: pacing (bbr) sends small bursts by timers, which cost
//! more than the gateways between. So every namespace is set to the same one, whatever the
//! machine's is.

use std::fmt;
use std::fs;
use std::str::FromStr;

use super::netns::Netns;
use crate::error::LabError;
use crate::process::Journal;

/// The sysctl of each namespace.
const SYSCTL: &str = "net.ipv4.tcp_congestion_control";
/// Congestion controls that the kernel has.
const AVAILABLE: &str = "/proc/sys/net/ipv4/tcp_available_congestion_control";
/// Congestion controls that namespaces may be set to.
const ALLOWED: &str = "/proc/sys/net/ipv4/tcp_allowed_congestion_control";
/// TCP_CA_NAME_MAX of the kernel, with the NUL at its end.
const NAME_MAX: usize = 16;

/// A congestion control of the kernel's TCP, by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Congestion(String);

/// Linux's own where namespaces of this machine can be set to it, else reno, which every kernel
/// lets them have.
impl Default for Congestion {
    fn default() -> Self {
        let usual = Self("cubic".into());
        if usual.check().is_ok() { usual } else { Self("reno".into()) }
    }
}

impl fmt::Display for Congestion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Congestion {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let sound = |c: char| c.is_ascii_alphanumeric() || "_-".contains(c);
        if name.is_empty() || name.len() >= NAME_MAX || !name.chars().all(sound) {
            return Err(format!(
                "`{name}` is no name of a TCP congestion control; those of this kernel are in {AVAILABLE}"
            ));
        }
        Ok(Self(name.into()))
    }
}

impl Congestion {
    /// The setting of a run that names it.
    pub(crate) const SETTING: &str = "TCP congestion control";

    /// An error with its remedy unless namespaces of this machine can be set to it.
    pub fn check(&self) -> Result<(), LabError> {
        let read = |path: &str| fs::read_to_string(path).map_err(LabError::io(format!("reading {path}")));
        self.among(&read(AVAILABLE)?, &read(ALLOWED)?).map_err(LabError::Usage)
    }

    /// The same by what those two files say.
    fn among(&self, available: &str, allowed: &str) -> Result<(), String> {
        let name = &self.0;
        let has = |list: &str| list.split_whitespace().any(|n| n == name);
        let there = allowed.split_whitespace().collect::<Vec<_>>().join(", ");
        if has(allowed) {
            Ok(())
        } else if has(available) {
            Err(format!(
                "the kernel does not let network namespaces use the TCP congestion control `{name}`; it lets them use \
                 {there}: choose one of these (--congestion), or `sysctl -w net.ipv4.tcp_allowed_congestion_control=\"{} {name}\"`",
                allowed.trim()
            ))
        } else {
            Err(format!(
                "the kernel has no TCP congestion control `{name}`; there are {there}: choose one of these (--congestion), or \
                 load it with `modprobe tcp_{name}`"
            ))
        }
    }

    /// Sets a namespace to it.
    pub(super) fn set(&self, journal: &Journal, netns: &Netns) -> Result<(), LabError> {
        netns.sysctl(journal, SYSCTL, &self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_kernel_lacks_or_does_not_allow_is_named_beside_what_there_is() {
        let check = |name: &str| Congestion(name.into()).among("reno bbr cubic\n", "reno cubic\n");
        assert_eq!(check("cubic"), Ok(()));
        let lacking = check("vegas").expect_err("not there");
        assert!(
            lacking.contains("there are reno, cubic") && lacking.contains("modprobe tcp_vegas"),
            "{lacking}"
        );
        let kept = check("bbr").expect_err("not for namespaces");
        assert!(kept.contains("tcp_allowed_congestion_control=\"reno cubic bbr\""), "{kept}");
    }

    #[test]
    fn a_name_is_a_word_that_the_kernel_could_have() {
        assert_eq!("bbr".parse(), Ok(Congestion("bbr".into())));
        for wrong in ["", "a b", "x;y", "sixteen-letters-"] {
            assert!(wrong.parse::<Congestion>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn namespaces_of_this_machine_can_be_set_to_the_usual_one() {
        Congestion::default().check().expect("cubic or reno");
    }
}
