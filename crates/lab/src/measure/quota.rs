//! Processes held to a share of a core: a control group with a quota of processor time, in version
//! 2 (`cpu.max`) where its CPU controller is there, else in version 1 (`cpu.cfs_quota_us`).
//!
//! The scheduler lets the group run until its quota of a period is spent and then stops it until
//! the next one begins. A short period makes these stalls short; they are counted, for they are
//! none of the system's own.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use crate::clock;
use crate::error::{LabError, Remedy};

/// Folder in which control groups are mounted.
const MOUNTS: [(&str, Version); 3] = [
    ("/sys/fs/cgroup", Version::Two),
    ("/sys/fs/cgroup/cpu", Version::One),
    ("/sys/fs/cgroup/cpu,cpuacct", Version::One),
];

/// From one allotment to the next.
pub const PERIOD: Duration = Duration::from_millis(10);

/// The file with the controllers that a group hands down.
const HANDED: &str = "cgroup.subtree_control";

/// The CPU controller was handed down by this process, which takes it back with its last group. The
/// hierarchy is the whole machine's, hence a static.
static HANDED_DOWN: Mutex<bool> = Mutex::new(false);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    One,
    Two,
}

/// A control group with a quota; dropping it frees what is inside and removes it.
#[derive(Debug)]
pub struct Quota {
    dir: PathBuf,
    /// Group that processes return to when they are freed.
    parent: PathBuf,
    version: Version,
}

/// Counters of the scheduler for the group: periods, throttled periods and time.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Stalls {
    /// Periods in which it wanted to run.
    pub periods: u64,
    /// Of these: periods in which it was stopped since its quota was spent.
    pub throttled: u64,
    /// How long it was stopped, seconds, over all processors.
    pub seconds: f64,
}

fn mount() -> Option<(PathBuf, Version)> {
    MOUNTS.iter().find_map(|(path, version)| {
        let path = Path::new(path);
        let usable = match version {
            Version::One => path.join("cpu.cfs_quota_us").exists() || path.join("cpu.shares").exists(),
            Version::Two => {
                // Perhaps not yet handed down, but there.
                has_cpu(&path.join(HANDED)) || has_cpu(&path.join("cgroup.controllers"))
            }
        };
        usable.then(|| (path.to_path_buf(), *version))
    })
}

/// Whether a file that lists controllers has that of processor time.
fn has_cpu(list: &Path) -> bool {
    fs::read_to_string(list).is_ok_and(|c| c.split_whitespace().any(|c| c == "cpu"))
}

impl Quota {
    /// Lists what this machine lacks for a quota. Tries by making a control group and removing it.
    pub fn lacks() -> Vec<Remedy> {
        // Several threads of one process may ask at once.
        let name = format!("ironlab-probe-{}-{}", std::process::id(), clock::since_epoch().as_nanos());
        match Self::new(&name, 0.5) {
            Ok(_) => vec![],
            Err(e) => vec![Remedy::new(
                format!("processes cannot be held to a share of a core: {e}"),
                "run it where control groups with the CPU controller are writable: on the machine itself, or in a container \
                 with `--privileged --cgroupns=host`",
            )],
        }
    }

    /// Makes a group of that name that may run for `cores` of a core (more than one is possible).
    pub fn new(name: &str, cores: f64) -> Result<Self, LabError> {
        let (parent, version) = mount().ok_or_else(|| {
            LabError::Measurement("there is no control group file system with the CPU controller".into())
        })?;
        let mut handed_down = HANDED_DOWN.lock().unwrap_or_else(PoisonError::into_inner);
        let list = parent.join(HANDED);
        if version == Version::Two && !has_cpu(&list) {
            // Refused by a manager above us, perhaps: the group's own files show.
            *handed_down |= fs::write(list, "+cpu").is_ok();
        }
        sweep(&parent);
        let dir = parent.join(name);
        fs::create_dir(&dir).map_err(LabError::io(format!("creating {}", dir.display())))?;
        let quota = Self { dir, parent, version };
        // Dropping a group wants it.
        drop(handed_down);
        quota.set(cores)?;
        Ok(quota)
    }

    /// Changes what it may use.
    pub fn set(&self, cores: f64) -> Result<(), LabError> {
        let period = PERIOD.as_micros() as u64;
        // The kernel takes no quota below a millisecond.
        let quota = ((period as f64 * cores).round() as u64).max(1000);
        match self.version {
            Version::Two => self.write("cpu.max", &format!("{quota} {period}")),
            Version::One => {
                // A period is refused that would make the present quota more than the processors
                // there are.
                self.write("cpu.cfs_quota_us", "-1")?;
                self.write("cpu.cfs_period_us", &period.to_string())?;
                self.write("cpu.cfs_quota_us", &quota.to_string())
            }
        }
    }

    /// Puts processes with all their threads into it.
    pub fn hold(&self, pids: &[u32]) -> Result<(), LabError> {
        pids.iter().try_for_each(|pid| self.write("cgroup.procs", &pid.to_string()))
    }

    fn write(&self, file: &str, value: &str) -> Result<(), LabError> {
        let path = self.dir.join(file);
        fs::write(&path, value).map_err(LabError::io(format!("writing {value} to {}", path.display())))
    }

    /// Reads the counters of the scheduler for the group.
    pub fn stalls(&self) -> Stalls {
        Stalls::parse(&fs::read_to_string(self.dir.join("cpu.stat")).unwrap_or_default())
    }
}

/// The groups of the laboratory's runs, by name.
fn own(parent: &Path) -> impl Iterator<Item = (String, PathBuf)> {
    let all = fs::read_dir(parent).into_iter().flatten().flatten();
    all.map(|e| (e.file_name().to_string_lossy().into_owned(), e.path()))
        .filter(|(name, _)| name.starts_with("ironlab-"))
}

/// Removes empty groups of runs whose process is gone; their name begins with `ironlab-`, the
/// process's id (or `probe-` and that).
fn sweep(parent: &Path) {
    for (name, path) in own(parent) {
        let Some(rest) = name.strip_prefix("ironlab-") else { continue };
        let pid = rest.strip_prefix("probe-").unwrap_or(rest).split('-').next();
        if pid.and_then(|p| p.parse::<u32>().ok()).is_some_and(|p| !Path::new(&format!("/proc/{p}")).exists())
        {
            let _ = fs::remove_dir(path);
        }
    }
}

impl Drop for Quota {
    fn drop(&mut self) {
        // Move remaining processes out of the group first, because only an empty group can be
        // removed. A process may be ending just now, so try again for a while.
        for _ in 0..100 {
            let inside = fs::read_to_string(self.dir.join("cgroup.procs")).unwrap_or_default();
            for pid in inside.lines() {
                let _ = fs::write(self.parent.join("cgroup.procs"), pid);
            }
            if fs::remove_dir(&self.dir).is_ok() || !self.dir.exists() {
                break;
            }
            thread::sleep(Duration::from_millis(5));
        }
        let mut handed_down = HANDED_DOWN.lock().unwrap_or_else(PoisonError::into_inner);
        // Not from under the groups that are left, of this run or of another.
        if *handed_down && own(&self.parent).next().is_none() {
            *handed_down = fs::write(self.parent.join(HANDED), "-cpu").is_err();
        }
    }
}

impl Stalls {
    /// Both versions' cpu.stat: version 1 has nanoseconds, version 2 microseconds.
    fn parse(stat: &str) -> Self {
        let value = |name: &str| {
            stat.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' ')?.trim().parse::<u64>().ok())
        };
        let seconds = match (value("throttled_usec"), value("throttled_time")) {
            (Some(us), _) => us as f64 / 1e6,
            (None, ns) => ns.unwrap_or(0) as f64 / 1e9,
        };
        Self {
            periods: value("nr_periods").unwrap_or(0),
            throttled: value("nr_throttled").unwrap_or(0),
            seconds,
        }
    }

    /// The difference to `earlier`.
    pub fn since(&self, earlier: &Self) -> Self {
        Self {
            periods: self.periods.saturating_sub(earlier.periods),
            throttled: self.throttled.saturating_sub(earlier.throttled),
            seconds: (self.seconds - earlier.seconds).max(0.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_versions_say_the_same_of_stalls() {
        let one = Stalls::parse("nr_periods 10\nnr_throttled 4\nthrottled_time 2500000000\n");
        let two = Stalls::parse(
            "usage_usec 5\nnr_periods 10\nnr_throttled 4\nthrottled_usec 2500000\nnr_bursts 0\n",
        );
        assert_eq!((one.periods, one.throttled, one.seconds), (10, 4, 2.5));
        assert_eq!(one, two);
        assert_eq!(one.since(&two), Stalls::default());
        assert_eq!(Stalls::parse(""), Stalls::default());
    }
}
