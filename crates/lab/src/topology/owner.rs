//! Who made a namespace: names that carry the maker's process id and start time, and the removal of
//! what dead makers left behind.
//!
//! ```text
//! ironlab-<pid>-<start time of that process, clock ticks since boot>-<8 hex digits>[-<node>]
//! ```
//! A process id alone comes back; together with the start time it does not. Not here: processes of
//! another PID namespace that shares this /run/netns (they would look dead).

use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

use super::congestion::Congestion;
use super::netns::{NETNS_DIR, Netns};
use crate::error::LabError;

const PREFIX: &str = "ironlab-";
const ESRCH: i32 = rustix::io::Errno::SRCH.raw_os_error();

/// A unique name for everything that one run makes, and a private directory for its files. Dropping
/// it removes the directory; the namespaces are removed by the topologies.
#[derive(Debug)]
pub struct Owner {
    name: String,
    dir: PathBuf,
    congestion: Option<Congestion>,
    /// Topologies made so far, each with a name of its own: a removed one may linger in the kernel
    /// for a while.
    made: AtomicU32,
}

/// Leftovers of dead runs that [`sweep`] has found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Swept {
    /// Network namespaces removed.
    pub namespaces: usize,
    /// Directories removed.
    pub directories: usize,
}

impl Owner {
    /// Removes what dead runs left, then takes a new name. Its namespaces have the usual congestion
    /// control, except on a kernel without that.
    pub fn claim() -> Result<Self, LabError> {
        let usual = Congestion::default();
        Self::with(usual.check().is_ok().then_some(usual))
    }

    /// The same for boxes whose TCP counts: with that congestion control, or an error that says
    /// which there are.
    pub fn claim_for_tcp(congestion: &Congestion) -> Result<Self, LabError> {
        congestion.check()?;
        Self::with(Some(congestion.clone()))
    }

    fn with(congestion: Option<Congestion>) -> Result<Self, LabError> {
        sweep()?;
        let pid = std::process::id();
        let none = || LabError::Measurement("this process has no start time".into());
        let start =
            start_time(pid).map_err(LabError::io(format!("reading /proc/{pid}/stat")))?.ok_or_else(none)?;
        let mut random = [0; 4];
        fs::File::open("/dev/urandom")
            .and_then(|mut f| f.read_exact(&mut random))
            .map_err(LabError::io("reading /dev/urandom"))?;
        let name = format!("{PREFIX}{pid}-{start}-{:08x}", u32::from_be_bytes(random));
        let dir = std::env::temp_dir().join(&name);
        // Pre-shared keys are kept in it.
        fs::DirBuilder::new()
            .mode(0o700)
            .create(&dir)
            .map_err(LabError::io(format!("creating {}", dir.display())))?;
        Ok(Self { name, dir, congestion, made: AtomicU32::new(0) })
    }

    /// A private directory (mode 0700), removed with the owner.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// A name for the next topology: unique on this machine, and a number for its files.
    pub(crate) fn next(&self) -> (String, u32) {
        let n = self.made.fetch_add(1, Ordering::Relaxed);
        (format!("{}-{n}", self.name), n)
    }

    /// The congestion control of its namespaces; the machine's when absent.
    pub(crate) fn congestion(&self) -> Option<&Congestion> {
        self.congestion.as_ref()
    }
}

impl Drop for Owner {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

/// Removes namespaces, with the processes inside, and directories of runs whose process is gone.
pub fn sweep() -> Result<Swept, LabError> {
    let mut swept = Swept::default();
    for name in dead_names(Path::new(NETNS_DIR))? {
        // Another run may be sweeping too.
        swept.namespaces += usize::from(Netns::adopt(name).remove());
    }
    // Files that are to be in memory are kept in the second.
    for base in [std::env::temp_dir(), "/dev/shm".into()] {
        for name in dead_names(&base)? {
            swept.directories += usize::from(fs::remove_dir_all(base.join(name)).is_ok());
        }
    }
    Ok(swept)
}

fn dead_names(dir: &Path) -> Result<Vec<String>, LabError> {
    let entries = match fs::read_dir(dir) {
        Ok(entries) => entries,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(LabError::io(format!("listing {}", dir.display()))(e)),
    };
    Ok(entries
        .filter_map(|e| e.ok()?.file_name().into_string().ok())
        .filter(|name| maker(name).is_some_and(|(pid, start)| gone(start, &start_time(pid))))
        .collect())
}

/// Whether a maker that began at `start` is no more, by what is found under its process id. What
/// cannot be read says nothing: a run that lives is never swept up.
fn gone(start: u64, found: &io::Result<Option<u64>>) -> bool {
    found.as_ref().is_ok_and(|now| *now != Some(start))
}

/// The process id and start time in a name of ours; `None` for any other name.
fn maker(name: &str) -> Option<(u32, u64)> {
    let mut parts = name.strip_prefix(PREFIX)?.splitn(4, '-');
    let (pid, start) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let random = parts.next()?;
    (random.len() == 8 && random.chars().all(|c| c.is_ascii_hexdigit())).then_some((pid, start))
}

/// Field 22 of /proc/PID/stat (proc(5)); `None` when there is no such process, or only its unreaped
/// remains.
fn start_time(pid: u32) -> io::Result<Option<u64>> {
    match fs::read(format!("/proc/{pid}/stat")) {
        Ok(stat) => parse_stat(&String::from_utf8_lossy(&stat))
            .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not as in proc(5)")),
        // The process may also end between opening the file and reading it.
        Err(e) if e.kind() == io::ErrorKind::NotFound || e.raw_os_error() == Some(ESRCH) => Ok(None),
        Err(e) => Err(e),
    }
}

/// The start time in a line of that file, none of a zombie; `None` for what is no such line.
fn parse_stat(stat: &str) -> Option<Option<u64>> {
    // The name in field 2 may contain anything; the rest follows its last parenthesis.
    let mut rest = stat.rsplit_once(") ")?.1.split(' ');
    if rest.next()? == "Z" {
        return Some(None);
    }
    rest.nth(18)?.parse().ok().map(Some)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_ours_have_a_maker() {
        assert_eq!(maker("ironlab-12-3456-00ff00ff"), Some((12, 3456)));
        assert_eq!(maker("ironlab-12-3456-00ff00ff-0-g1"), Some((12, 3456)));
        for other in ["ironlab-12-3456", "ironlab-x-1-00ff00ff", "ironlab-1-2-00ff00fg", "lng1", "ironlab-"] {
            assert_eq!(maker(other), None, "{other}");
        }
    }

    #[test]
    fn this_process_lives_and_an_impossible_one_does_not() {
        assert!(start_time(std::process::id()).expect("read").is_some());
        assert_eq!(start_time(u32::MAX).expect("read"), None);
    }

    #[test]
    fn only_a_process_known_to_be_no_more_is_gone() {
        assert!(!gone(7, &Ok(Some(7))));
        // Another with its number, or none.
        assert!(gone(7, &Ok(Some(8))) && gone(7, &Ok(None)));
        for unreadable in
            [io::ErrorKind::PermissionDenied, io::ErrorKind::OutOfMemory, io::ErrorKind::InvalidData]
        {
            assert!(!gone(7, &Err(unreadable.into())), "{unreadable}");
        }
    }

    #[test]
    fn a_start_time_is_read_whatever_the_name() {
        let line = |state| format!("12 (a) b ({state}) {state} 1{} 3456 0", " 0".repeat(17));
        assert_eq!(parse_stat(&line("S")), Some(Some(3456)));
        assert_eq!(parse_stat(&line("Z")), Some(None));
        assert_eq!((parse_stat("12 (a) S 1"), parse_stat("")), (None, None));
    }
}
