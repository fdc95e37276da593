//! One network namespace, by `ip netns`, with what is needed to work inside it.

use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::congestion::Congestion;
use crate::error::LabError;
use crate::process::{self, Journal};

/// Folder in which iproute2 keeps named network namespaces.
pub(crate) const NETNS_DIR: &str = "/run/netns";
const COMMAND: Duration = Duration::from_secs(10);

/// A network namespace; dropping it kills the processes inside and removes it.
#[derive(Debug)]
pub struct Netns {
    name: String,
    removed: bool,
}

impl Netns {
    /// Makes a new one with that TCP congestion control; the machine's when absent.
    pub(crate) fn create(
        journal: &Journal,
        name: String,
        congestion: Option<&Congestion>,
    ) -> Result<Self, LabError> {
        // The guard comes first: the command may have done its work when a signal stops it.
        let netns = Self { name, removed: false };
        process::run(journal, &["ip", "netns", "add", &netns.name], COMMAND)?;
        process::run(journal, &["ip", "-n", &netns.name, "link", "set", "lo", "up"], COMMAND)?;
        congestion.map_or(Ok(()), |c| c.set(journal, &netns))?;
        Ok(netns)
    }

    /// Takes over one that exists.
    pub(crate) fn adopt(name: String) -> Self {
        Self { name, removed: false }
    }

    /// Name under `ip netns`.
    pub fn name(&self) -> &str {
        &self.name
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(NETNS_DIR).join(&self.name)
    }

    /// The command line that runs `argv` inside.
    pub fn exec<S: AsRef<str>>(&self, argv: &[S]) -> Vec<String> {
        ["ip", "netns", "exec", &self.name]
            .into_iter()
            .chain(argv.iter().map(AsRef::as_ref))
            .map(String::from)
            .collect()
    }

    /// Calls `work` on a thread inside the namespace.
    pub fn inside<T: Send>(&self, work: impl FnOnce() -> T + Send) -> Result<T, LabError> {
        let path = self.path();
        let ns = File::open(&path).map_err(LabError::io(format!("opening {}", path.display())))?;
        thread::scope(|scope| {
            let worker = scope.spawn(move || {
                move_into_link_name_space(ns.as_fd(), Some(LinkNameSpaceType::Network))
                    .map(|()| work())
                    .map_err(|e| LabError::io(format!("entering {}", path.display()))(e.into()))
            });
            match worker.join() {
                Ok(result) => result,
                Err(panic) => std::panic::resume_unwind(panic),
            }
        })
    }

    /// Opens a file of /proc/net or /proc/sys/net as the namespace shows it. It stays bound to the
    /// namespace.
    pub fn open(&self, path: &str) -> Result<File, LabError> {
        self.inside(|| File::open(path))?.map_err(LabError::io(format!("opening {path} in {}", self.name)))
    }

    /// Reads such a file.
    pub fn read(&self, path: &str) -> Result<String, LabError> {
        self.inside(|| fs::read_to_string(path))?
            .map_err(LabError::io(format!("reading {path} in {}", self.name)))
    }

    /// Sets a network parameter, named as by sysctl(8).
    pub(crate) fn sysctl(&self, journal: &Journal, name: &str, value: &str) -> Result<(), LabError> {
        journal.note(process::quoted(&self.exec(&["sysctl", "-w", &format!("{name}={value}")])));
        let path = format!("/proc/sys/{}", name.replace('.', "/"));
        self.inside(|| fs::write(&path, value))?
            .map_err(LabError::io(format!("setting {name} in {}", self.name)))
    }

    /// The processes whose main thread is inside.
    pub fn pids(&self) -> Vec<u32> {
        let Ok(ns) = fs::metadata(self.path()) else { return Vec::new() };
        let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
        entries
            .filter_map(|e| e.ok()?.file_name().to_str()?.parse().ok())
            .filter(|pid| {
                fs::metadata(format!("/proc/{pid}/ns/net"))
                    .is_ok_and(|m| (m.dev(), m.ino()) == (ns.dev(), ns.ino()))
            })
            .collect()
    }

    /// Kills what is inside and removes the namespace; false when it was not there any more.
    pub(crate) fn remove(mut self) -> bool {
        self.clear()
    }

    fn clear(&mut self) -> bool {
        if std::mem::replace(&mut self.removed, true) || !self.path().exists() {
            return false;
        }
        // A process may fork between the listing and the kill: until none is left, but not for
        // ever.
        for _ in 0..100 {
            let pids = self.pids();
            if pids.is_empty() {
                break;
            }
            for pid in pids.iter().filter_map(|p| Pid::from_raw(i32::try_from(*p).ok()?)) {
                let _ = kill_process(pid, Signal::KILL);
            }
            thread::sleep(Duration::from_millis(5));
        }
        process::run_regardless(&["ip", "netns", "del", &self.name], COMMAND)
            .is_ok_and(|done| done.status.success())
    }
}

impl Drop for Netns {
    fn drop(&mut self) {
        self.clear();
    }
}
