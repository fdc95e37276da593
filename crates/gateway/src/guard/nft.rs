//! Finds the program `nft`, checks its version and runs it. Every call blocks for some
//! milliseconds, so the caller uses a thread that may block.

use std::ffi::OsString;
use std::fmt;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use ironswan_io::helper::client;
use ironswan_keying::diagnosis::Guard;
use ironswan_wire::helper::{NftRun, ProgramEnd, Reply, Request};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};

/// The guard's table, of the family `inet`.
pub use crate::guard::plan::TABLE as NAME;
/// The table by which packets of one flow are followed for a while, of the family `inet`.
pub(crate) const TRACE_NAME: &str = "ironswan_trace";
/// Oldest version of `nft` that understands the text of the guard's table.
pub const NEEDED: Version = Version(0, 9, 3);
/// Folders in which `nft` is searched besides PATH: services and users often have no `sbin` in it.
const PLACES: [&str; 3] = ["/usr/sbin", "/sbin", "/usr/local/sbin"];
/// How long one run of `nft` may take. A run takes milliseconds, and tenths of a second with 10,000
/// tunnels.
const NFT_TIMEOUT: Duration = Duration::from_secs(30);
/// How long listing other programs' rules may take. They serve for warnings only, so the start does
/// not wait longer.
const RULESET_TIMEOUT: Duration = Duration::from_secs(3);
/// Limits the bytes that a run of `nft` may write.
const MAX_OUTPUT: u64 = 1 << 30;
/// How many characters of an error message of `nft` are passed on.
const COMPLAINT: usize = 400;

/// A version of `nft`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub struct Version(pub u16, pub u16, pub u16);

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.0, self.1, self.2)
    }
}

/// Packets that the guard has dropped in one direction.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Count {
    /// Packets.
    pub packets: u64,
    /// Sum of their lengths in bytes.
    pub bytes: u64,
}

/// The guard's counters.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counters {
    /// Dropped on the way out: they would have left in clear.
    pub out_clear: Count,
    /// Dropped on the way in: they came in clear.
    pub in_clear: Count,
}

impl Counters {
    /// Adds the packets that the programs at the ingress have dropped.
    #[must_use]
    pub fn and(mut self, ingress: Count) -> Self {
        self.in_clear.packets += ingress.packets;
        self.in_clear.bytes += ingress.bytes;
        self
    }
}

/// The program `nft`, checked.
#[derive(Clone, Debug)]
pub struct Nft {
    program: PathBuf,
    version: Version,
}

/// How a run of `nft` ended.
struct Run {
    pid: u32,
    ok: bool,
    stdout: String,
    stderr: String,
}

impl Nft {
    /// Looks for `nft` in the absolute folders of PATH, then in the folders where it usually is,
    /// and checks its version.
    ///
    /// # Errors
    /// [`Guard::NftMissing`], [`Guard::NftTooOld`], [`Guard::NftBroken`].
    pub fn find() -> Result<Self, Guard> {
        match client::get() {
            // The helper runs what it has found itself, and nothing else.
            Some(helper) => {
                let found = helper.path(&Request::FindNft).map_err(unasked)?;
                Self::checked((!found.as_os_str().is_empty()).then_some(found))
            }
            None => Self::find_in(std::env::var_os("PATH")),
        }
    }

    pub(crate) fn find_in(path: Option<OsString>) -> Result<Self, Guard> {
        Self::checked(locate(path))
    }

    /// Checks the version of a program that was looked for.
    pub(crate) fn checked(program: Option<PathBuf>) -> Result<Self, Guard> {
        let mut nft = Self { program: program.ok_or_else(missing)?, version: NEEDED };
        let run = nft.run(NftRun::Version, None)?;
        let Some(found) = run.ok.then(|| version(&run.stdout)).flatten() else {
            return Err(nft.broken(format!("does not tell its version ({})", complaint(&run))));
        };
        if found < NEEDED {
            let program = nft.program.display().to_string();
            return Err(Guard::NftTooOld { program, found: found.to_string(), needed: NEEDED.to_string() });
        }
        nft.version = found;
        Ok(nft)
    }

    /// The version of the program.
    pub fn version(&self) -> Version {
        self.version
    }

    /// The path of the program.
    pub fn program(&self) -> &Path {
        &self.program
    }

    /// Replaces the guard's table by `text` (as [`crate::guard::plan::Plan::nft`] has it), all or
    /// nothing. The old table is removed, even when a predecessor that was killed has left it, and
    /// its counters go on in the new one. Returns the process ID that netlink's notices will
    /// name ([`ironswan_io::nft::TableChange::is_by`]).
    ///
    /// # Errors
    /// [`Guard::NftRefused`] with what `nft` says, [`Guard::NftBroken`].
    pub fn apply(&self, text: &str) -> Result<u32, Guard> {
        let text = match self.counters() {
            Ok(Some(counters)) => with_counters(text, &counters),
            // The guard matters more than its counters: it is installed although they begin at 0.
            Ok(None) | Err(Guard::NftRefused { .. }) => text.to_owned(),
            Err(e) => return Err(e),
        };
        let run = self.run(NftRun::Script, Some(&text))?;
        if run.ok { Ok(run.pid) } else { Err(refused("install the guard", &run)) }
    }

    /// The counters; `None` when the table does not stand.
    ///
    /// # Errors
    /// As for [`Nft::apply`].
    pub fn counters(&self) -> Result<Option<Counters>, Guard> {
        // The program reads every rule first, so the kernel is asked directly. If the kernel does
        // not answer, the program is asked, and its error says why.
        if let Ok(known) = ask_counters() {
            return Ok(known);
        }
        self.counters_listed()
    }

    /// Reads the counters by the program.
    pub(super) fn counters_listed(&self) -> Result<Option<Counters>, Guard> {
        let run = self.run(NftRun::Counters, None)?;
        match run.ok {
            true => Ok(Some(counters(&run.stdout))),
            false if gone(&run) => Ok(None),
            false => Err(refused("list the guard's counters", &run)),
        }
    }

    /// True when the table stands.
    ///
    /// # Errors
    /// As for [`Nft::apply`].
    pub fn present(&self) -> Result<bool, Guard> {
        if let Ok(there) = ironswan_io::nft::has_table(NAME) {
            return Ok(there);
        }
        let run = self.run(NftRun::Tables, None)?;
        if !run.ok {
            return Err(refused("list the tables", &run));
        }
        Ok(run.stdout.lines().any(|l| l.trim() == format!("table inet {NAME}")))
    }

    /// All rules of all tables, without the elements of sets and maps, as `nft` shows them. Waits
    /// at most 3 s.
    ///
    /// # Errors
    /// As for [`Nft::apply`].
    pub fn ruleset(&self) -> Result<String, Guard> {
        let run = self.run_within(RULESET_TIMEOUT, NftRun::Ruleset, None)?;
        if run.ok { Ok(run.stdout) } else { Err(refused("list the rules", &run)) }
    }

    /// The rules of all tables with their handles, as `nft` shows them, without the elements of
    /// sets and maps.
    ///
    /// # Errors
    /// As for [`Nft::apply`].
    pub fn handles(&self) -> Result<String, Guard> {
        let run = self.run_within(RULESET_TIMEOUT, NftRun::Handles, None)?;
        if run.ok { Ok(run.stdout) } else { Err(refused("list the rules", &run)) }
    }

    /// Carries out a script that makes a table of another name than the guard's.
    ///
    /// # Errors
    /// As for [`Nft::apply`].
    pub fn script(&self, what: &'static str, text: &str) -> Result<(), Guard> {
        let run = self.run(NftRun::Script, Some(text))?;
        if run.ok { Ok(()) } else { Err(refused(what, &run)) }
    }

    /// The table as `nft` shows it; `None` when it does not stand.
    ///
    /// # Errors
    /// As for [`Nft::apply`].
    pub fn listing(&self) -> Result<Option<String>, Guard> {
        let run = self.run(NftRun::Table, None)?;
        match run.ok {
            true => Ok(Some(run.stdout)),
            false if gone(&run) => Ok(None),
            false => Err(refused("list the guard", &run)),
        }
    }

    /// Removes the table. A table that does not exist is no error. Returns the process ID as
    /// [`Nft::apply`] does.
    ///
    /// # Errors
    /// As for [`Nft::apply`].
    pub fn remove(&self) -> Result<u32, Guard> {
        let text = format!("table inet {NAME} {{ }}\ndelete table inet {NAME}\n");
        let run = self.run(NftRun::Script, Some(&text))?;
        if run.ok { Ok(run.pid) } else { Err(refused("remove the guard", &run)) }
    }

    fn broken(&self, why: impl Into<String>) -> Guard {
        Guard::NftBroken { program: self.program.display().to_string(), why: why.into() }
    }

    fn run(&self, run: NftRun, input: Option<&str>) -> Result<Run, Guard> {
        self.run_within(NFT_TIMEOUT, run, input)
    }

    /// Runs the program, here or by the helper. Its three streams are files in memory, so that
    /// nobody has to read and write while it runs.
    fn run_within(&self, timeout: Duration, run: NftRun, input: Option<&str>) -> Result<Run, Guard> {
        let unable = |e: io::Error| self.broken(format!("cannot be run ({e})"));
        let file = |text: &str| client::memory_file(text.as_bytes()).map_err(unable);
        let (input, stdout, stderr) = (file(input.unwrap_or_default())?, file("")?, file("")?);
        let (pid, end) = match client::get() {
            Some(helper) => {
                let seconds = timeout.as_secs().try_into().unwrap_or(u8::MAX);
                let streams = [input.as_fd(), stdout.as_fd(), stderr.as_fd()];
                match helper.ask(&Request::RunNft { run, seconds }, &streams).map_err(unable)? {
                    (Reply::Ended { pid, end }, _) => (pid, end),
                    _ => return Err(unable(io::ErrorKind::InvalidData.into())),
                }
            }
            None => {
                let copy = |fd: &OwnedFd| fd.try_clone().map_err(unable);
                start(&self.program, run, timeout, [input, copy(&stdout)?, copy(&stderr)?])
            }
        };
        let text =
            |fd| client::contents(fd, MAX_OUTPUT).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
        let (stdout, stderr) = (text(stdout).map_err(unable)?, text(stderr).map_err(unable)?);
        let ok = match end {
            ProgramEnd::Success => true,
            ProgramEnd::Failure => false,
            ProgramEnd::TimedOut => {
                return Err(self.broken(format!("did not end within {} s", timeout.as_secs())));
            }
            ProgramEnd::Unknown { started: false, reason } => {
                return Err(self.broken(format!("cannot be run ({reason})")));
            }
            ProgramEnd::Unknown { started: true, reason } => {
                return Err(self.broken(format!("cannot be waited for ({reason})")));
            }
        };
        Ok(Run { pid, ok, stdout, stderr })
    }
}

/// Looks for `nft` in the absolute folders of PATH, then in the folders where it usually is.
pub(crate) fn locate(path: Option<OsString>) -> Option<PathBuf> {
    let path = path.unwrap_or_default();
    // An empty or relative entry of PATH would depend on the daemon's working directory.
    let folders = std::env::split_paths(&path).filter(|f| f.is_absolute()).chain(PLACES.map(PathBuf::from));
    folders.map(|f| f.join("nft")).find(|p| is_program(p))
}

/// The arguments of a run.
fn arguments(run: NftRun) -> &'static [&'static str] {
    match run {
        NftRun::Version => &["--version"],
        NftRun::Script => &["-f", "-"],
        NftRun::Counters => &["list", "counters", "table", "inet", NAME],
        NftRun::Tables => &["list", "tables"],
        NftRun::Ruleset => &["-t", "-n", "list", "ruleset"],
        NftRun::Table => &["list", "table", "inet", NAME],
        NftRun::Handles => &["-a", "-t", "-n", "list", "ruleset"],
    }
}

/// Runs the program in this process's place, with its standard input, output and error, and waits
/// until it has ended. Returns its process ID, which is 0 when it was not started.
pub(crate) fn start(
    program: &Path,
    run: NftRun,
    timeout: Duration,
    streams: [OwnedFd; 3],
) -> (u32, ProgramEnd) {
    let [stdin, stdout, stderr] = streams;
    let spawned = Command::new(program)
        .args(arguments(run))
        // The messages are parsed, so they have to be English.
        .env("LC_ALL", "C")
        .stdin(Stdio::from(stdin))
        .stdout(Stdio::from(stdout))
        .stderr(Stdio::from(stderr))
        .spawn();
    let unknown = |started: bool, e: io::Error| ProgramEnd::Unknown { started, reason: e.to_string() };
    let mut child = match spawned {
        Ok(child) => child,
        Err(e) => return (0, unknown(false, e)),
    };
    let ended = ends_in_time(&child, timeout);
    if !ended {
        let _ = child.kill();
    }
    let end = match child.wait() {
        Ok(_) if !ended => ProgramEnd::TimedOut,
        Ok(status) if status.success() => ProgramEnd::Success,
        Ok(_) => ProgramEnd::Failure,
        Err(e) => unknown(true, e),
    };
    (child.id(), end)
}

/// Waits until a process has ended, for `limit` at most, and returns whether it has. A kernel
/// without pidfds cannot wait with a limit: then the result is true at once, and the caller's
/// `wait` has no limit.
fn ends_in_time(child: &Child, limit: Duration) -> bool {
    let Some(fd) = Pid::from_raw(child.id() as i32).and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok())
    else {
        return true;
    };
    let timeout = Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: 0 };
    loop {
        match poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&timeout)) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(0) => return false,
            _ => return true,
        }
    }
}

fn is_program(path: &Path) -> bool {
    path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
}

/// The error for a helper that cannot be asked.
fn unasked(e: io::Error) -> Guard {
    Guard::NftBroken { program: "nft".to_owned(), why: format!("cannot be run ({e})") }
}

/// The error for an `nft` that is in none of the folders.
fn missing() -> Guard {
    Guard::NftMissing { folders: PLACES.join(", ") }
}

/// Whether the run failed because the table does not exist.
fn gone(run: &Run) -> bool {
    run.stderr.contains("No such file or directory")
}

fn refused(what: &'static str, run: &Run) -> Guard {
    Guard::NftRefused { request: what, why: complaint(run) }
}

/// The error message of `nft` on one line, without control characters, at most [`COMPLAINT`] long.
fn complaint(run: &Run) -> String {
    let text = if run.stderr.trim().is_empty() { &run.stdout } else { &run.stderr };
    // A line of ^^^^ points at a place in the line above.
    let lines =
        text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.chars().all(|c| "^~ ".contains(c)));
    let text: String = lines.take(4).collect::<Vec<_>>().join("; ");
    let text: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).take(COMPLAINT).collect();
    if text.is_empty() { "it gave no reason".to_owned() } else { text }
}

/// Reads the version from a line such as `nftables v1.0.6 (Lester Gooch #5)`.
fn version(text: &str) -> Option<Version> {
    let numbers = text.split_whitespace().find_map(|w| w.strip_prefix('v'))?;
    let mut parts = numbers.split('.').map(|p| {
        let end = p.find(|c: char| !c.is_ascii_digit()).unwrap_or(p.len());
        p[..end].parse::<u16>().ok()
    });
    Some(Version(parts.next()??, parts.next()??, parts.next().flatten().unwrap_or(0)))
}

/// Byte range of the values of the counter `name`, which stand between its braces, in a listing or
/// in the text of a table.
fn braces(text: &str, name: &str) -> Option<std::ops::Range<usize>> {
    let head = format!("counter {name} {{");
    let start = text.find(&head)? + head.len();
    Some(start..start + text.get(start..)?.find('}')?)
}

/// Reads the counters from the kernel; `None` when the table does not stand.
fn ask_counters() -> Result<Option<Counters>, ironswan_io::Error> {
    use ironswan_io::nft::{counter, has_table};
    if !has_table(NAME)? {
        return Ok(None);
    }
    let count = |name| {
        let (packets, bytes) = counter(NAME, name)?.unwrap_or_default();
        Ok::<_, ironswan_io::Error>(Count { packets, bytes })
    };
    Ok(Some(Counters { out_clear: count("out_clear")?, in_clear: count("in_clear")? }))
}

/// Reads the counters from a listing of `nft`. A counter that is not in it is 0.
pub(super) fn counters(listing: &str) -> Counters {
    let count = |name| {
        let mut words = braces(listing, name).map(|at| listing[at].split_whitespace()).into_iter().flatten();
        let mut after =
            |key: &str| words.find(|w| *w == key).and_then(|_| words.next()?.parse().ok()).unwrap_or(0);
        Count { packets: after("packets"), bytes: after("bytes") }
    };
    Counters { out_clear: count("out_clear"), in_clear: count("in_clear") }
}

/// Writes values into the counters of a table's text.
fn with_counters(text: &str, counters: &Counters) -> String {
    let mut text = text.to_owned();
    for (name, c) in [("out_clear", counters.out_clear), ("in_clear", counters.in_clear)] {
        if let Some(at) = braces(&text, name) {
            text.replace_range(at, &format!(" packets {} bytes {} ", c.packets, c.bytes));
        }
    }
    text
}

#[cfg(test)]
#[path = "nft_tests.rs"]
mod tests;
