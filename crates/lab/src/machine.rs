//! The machine's fingerprint: what a reader must know to place the figures of a run, and what this
//! user may do here.

use std::fs;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::error::{LabError, Remedy};
use crate::process;

/// The machine a run was made on.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Fingerprint {
    /// The processor's name.
    #[schemars(length(min = 1))]
    pub cpu_model: String,
    /// Logical processors.
    #[schemars(range(min = 1))]
    pub cpus: usize,
    /// Clock of the first processor, MHz, as the kernel shows it.
    #[schemars(range(min = 0))]
    pub mhz: Option<f64>,
    /// Instruction sets that the crypto engines care about, of those present.
    pub cpu_flags: Vec<String>,
    /// A virtual machine.
    pub virtual_machine: bool,
    /// Memory, KiB.
    pub memory_kib: Option<u64>,
    /// Kernel release and version.
    #[schemars(length(min = 1))]
    pub kernel: String,
    /// The distribution.
    pub os: Option<String>,
    /// Clock source of the kernel.
    pub clocksource: Option<String>,
    /// Frequency governor of the first processor, where there is one.
    pub governor: Option<String>,
    /// Load average over a minute when the run began.
    #[schemars(range(min = 0))]
    pub load_average: Option<f64>,
}

const FLAGS: [&str; 12] = [
    "aes",
    "pclmulqdq",
    "vaes",
    "vpclmulqdq",
    "avx2",
    "avx512f",
    "avx512bw",
    "avx512vl",
    "avx512ifma",
    "gfni",
    "sha_ni",
    "asimd",
];

impl Fingerprint {
    /// Of this machine, now.
    pub fn take() -> Self {
        let read = |path: &str| fs::read_to_string(path).ok();
        let cpuinfo = read("/proc/cpuinfo").unwrap_or_default();
        let value = |key: &str| cpu_value(&cpuinfo, key);
        let all_flags = value("flags").or_else(|| value("Features")).unwrap_or_default();
        let present: Vec<&str> = all_flags.split_whitespace().collect();
        let line = |path: &str| read(path).map(|s| s.trim().to_string());
        let cpus = crate::measure::cpus();
        Self {
            cpu_model: value("model name").unwrap_or_else(|| std::env::consts::ARCH.into()),
            cpus,
            mhz: value("cpu MHz").and_then(|v| v.parse().ok()),
            cpu_flags: FLAGS.iter().filter(|f| present.contains(f)).map(ToString::to_string).collect(),
            virtual_machine: present.contains(&"hypervisor"),
            memory_kib: memory_kib("MemTotal:"),
            kernel: [line("/proc/sys/kernel/osrelease"), line("/proc/sys/kernel/version")]
                .into_iter()
                .flatten()
                .collect::<Vec<_>>()
                .join(" "),
            os: read("/etc/os-release").and_then(|t| {
                t.lines().find_map(|l| Some(l.strip_prefix("PRETTY_NAME=")?.trim_matches('"').to_string()))
            }),
            clocksource: line("/sys/devices/system/clocksource/clocksource0/current_clocksource"),
            governor: line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            load_average: read("/proc/loadavg").and_then(|l| l.split(' ').next()?.parse().ok()),
        }
    }

    /// One line for people.
    pub fn one_line(&self) -> String {
        let crypto: Vec<String> = self
            .cpu_flags
            .iter()
            .filter(|f| ["aes", "vaes", "avx512f"].contains(&f.as_str()))
            .map(|f| f.trim_end_matches('f').to_uppercase())
            .collect();
        let mut parts = vec![
            format!("{} x {}", self.cpus, self.cpu_model),
            format!("kernel {}", self.kernel.split(' ').next().unwrap_or_default()),
        ];
        if !crypto.is_empty() {
            parts.insert(1, crypto.join(" "));
        }
        if self.virtual_machine {
            parts.push("virtual machine".into());
        }
        parts.join(", ")
    }
}

fn cpu_value(cpuinfo: &str, key: &str) -> Option<String> {
    cpuinfo.lines().find_map(|l| {
        let (k, v) = l.split_once(':')?;
        (k.trim() == key).then(|| v.trim().to_string())
    })
}

/// A line of the kernel's account of the memory, KiB.
fn memory_kib(name: &str) -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|l| l.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Memory that programs can still have, KiB.
pub(crate) fn available_kib() -> Option<u64> {
    memory_kib("MemAvailable:")
}

/// A usage error when what an option asks for takes more memory than programs can still have.
pub(crate) fn has_room(option: &str, bytes: u64) -> Result<(), LabError> {
    let (needed, free) = (bytes / 1_000_000, available_kib().map_or(u64::MAX, |kib| kib * 1024) / 1_000_000);
    if needed <= free {
        return Ok(());
    }
    Err(LabError::Usage(format!(
        "{option}: it takes {needed} MB of memory, and {free} MB are free: ask for less"
    )))
}

/// Requirements of network namespaces that this user or machine lacks.
pub fn lacks_privilege() -> Vec<Remedy> {
    if !rustix::process::geteuid().is_root() {
        let again = format!("sudo {}", process::own_command_line().join(" "));
        return vec![Remedy::new(
            "network namespaces and TUN devices need root",
            format!("run `{}`", again.trim()),
        )];
    }
    const CAP_NET_ADMIN: u32 = 12;
    const CAP_SYS_ADMIN: u32 = 21;
    let held = fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|s| effective_capabilities(&s))
        .unwrap_or(u64::MAX);
    if held >> CAP_NET_ADMIN & 1 == 0 || held >> CAP_SYS_ADMIN & 1 == 0 {
        return vec![Remedy::new(
            "root here lacks the capabilities CAP_NET_ADMIN and CAP_SYS_ADMIN (a container?)",
            "give them to it: `docker run --cap-add NET_ADMIN --cap-add SYS_ADMIN --device /dev/net/tun ...`",
        )];
    }
    Vec::new()
}

/// Requirements of a TUN device that this machine lacks.
pub fn lacks_tun() -> Vec<Remedy> {
    let opened = fs::OpenOptions::new().read(true).write(true).open("/dev/net/tun");
    match opened {
        Ok(_) => Vec::new(),
        Err(e) => vec![Remedy::new(
            format!("/dev/net/tun cannot be opened ({e})"),
            "load the driver with `modprobe tun`; in a container start it with `--device /dev/net/tun`",
        )],
    }
}

fn effective_capabilities(status: &str) -> Option<u64> {
    let hex = status.lines().find_map(|l| l.strip_prefix("CapEff:"))?;
    u64::from_str_radix(hex.trim(), 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_fingerprint() {
        let f = Fingerprint::take();
        assert!(f.cpus >= 1);
        assert!(!f.cpu_model.is_empty() && !f.kernel.is_empty());
        assert!(f.one_line().contains("kernel "));
    }

    #[test]
    fn capabilities_are_read_from_the_status_file() {
        assert_eq!(effective_capabilities("Name:\tx\nCapEff:\t000001ffffffffff\n"), Some(0x1ff_ffff_ffff));
        assert_eq!(effective_capabilities("Name:\tx\n"), None);
    }
}
