//! The helper's side: carries out requests.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ironswan_config::Daemon;
use ironswan_config::file_system::{Direct, FileSystem};
use ironswan_io::Error as IoError;
use ironswan_io::helper::server::{Outcome, serve};
use ironswan_io::helper::{Channel, client};
use ironswan_io::ingress::{IngressError, kernel};
use ironswan_io::route::Link;
use ironswan_io::xdp::serve as xdp;
use ironswan_io::{napi, privileges, signals, sysctl, tun, udp};
use ironswan_keying::diagnosis::{FileFault, Machine};
use ironswan_wire::helper::{Reply, Request};

use rustix::process::Pid;

use super::folders::{Folders, Wanted};
use super::qcd_secret;
use crate::control::socket::{SocketFile, number_of};
use crate::guard::nft;

/// Limits the lines about refused requests: a daemon that somebody has taken over must not fill the
/// log.
const MAX_LINES: u32 = 100;

/// Limits the control sockets of a daemon.
const MAX_SOCKETS: usize = 16;

/// Limits the bytes of a script for `nft`: 10,000 tunnels take a few million.
const MAX_SCRIPT: u64 = 256 << 20;
/// The word by which a script reads other files.
const INCLUDE: &[u8] = b"include";

/// The helper, with what it remembers between requests.
struct Server {
    folders: Folders,
    /// The program that [`Request::FindNft`] has found.
    nft: Mutex<Option<PathBuf>>,
    /// Files of control sockets.
    sockets: Mutex<Vec<SocketFile>>,
    /// The daemon has had the QCD secret.
    secret_given: AtomicBool,
    refusals: Refusals,
}

/// Lines about refused requests, on standard error.
pub(super) struct Refusals {
    /// The process that refuses.
    process: &'static str,
    count: AtomicU32,
}

impl Refusals {
    pub(super) fn of(process: &'static str) -> Self {
        Self { process, count: AtomicU32::new(0) }
    }

    pub(super) fn say(&self, why: &str) {
        let before = self.count.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |n| n.checked_add(1));
        let more = match before {
            Ok(n) if n + 1 < MAX_LINES => "",
            Ok(n) if n + 1 == MAX_LINES => "; more will not be logged",
            _ => return,
        };
        // Nobody may read standard error.
        let _ = writeln!(io::stderr(), "ironswan {}: error: refused: {why}{more}", self.process);
    }
}

/// Carries out the requests that come by standard input, until the daemon has ended. `config`: the
/// configuration's folder.
///
/// # Errors
/// A sentence: standard input is not the socket of a daemon, or the socket fails.
pub fn run(config: &Path) -> Result<(), String> {
    let foreign = |_| "this command is started by `ironswan run` alone".to_owned();
    let input = io::stdin().as_fd().try_clone_to_owned().map_err(|e| e.to_string())?;
    let channel = Channel::from_descriptor(input).map_err(foreign)?;
    signals::ignore_ends().map_err(|e| e.to_string())?;
    let server = Server::new(config);
    let said = Refusals::of("helper");
    serve(&channel, move |request, fds| server.carry_out(request, fds), |why| said.say(why))
        .map_err(|e| e.to_string())
}

fn done() -> Outcome {
    Ok((Reply::Done { descriptors: 0 }, Vec::new()))
}

fn with_descriptor(fd: impl Into<OwnedFd>) -> Outcome {
    Ok((Reply::Done { descriptors: 1 }, vec![fd.into()]))
}

fn flag(yes: bool) -> Outcome {
    Ok((Reply::Flag { yes, descriptor: false }, Vec::new()))
}

fn path_of(bytes: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(bytes))
}

/// Names of interfaces are ASCII; others are none.
fn name_of(bytes: Vec<u8>) -> io::Result<String> {
    String::from_utf8(bytes).map_err(|_| io::ErrorKind::InvalidInput.into())
}

/// The kernel's number for an error, from which the daemon makes the same error again.
fn number(e: &IoError) -> io::Error {
    e.errno().map_or_else(|| io::Error::other(e.to_string()), io::Error::from_raw_os_error)
}

impl Server {
    fn new(config: &Path) -> Self {
        Self {
            folders: Folders::new(config),
            nft: Mutex::default(),
            sockets: Mutex::default(),
            secret_given: AtomicBool::new(false),
            refusals: Refusals::of("helper"),
        }
    }

    fn carry_out(&self, request: Request, descriptors: Vec<OwnedFd>) -> Outcome {
        match request {
            Request::Open(path) => self.open(path_of(&path)),
            Request::Canonical(path) => {
                let path = Direct.canonical(self.allowed(&path, Wanted::Name)?)?;
                Ok((Reply::Path(client::bytes(&path)), Vec::new()))
            }
            Request::Exists(path) => flag(Direct.exists(self.allowed(&path, Wanted::Name)?)?),
            Request::List(path) => match Direct.list(self.allowed(&path, Wanted::Name)?)? {
                None => flag(false),
                Some(paths) => list(&paths),
            },
            Request::FindNft => {
                let found = nft::locate(std::env::var_os("PATH"));
                let path = found.as_deref().map(client::bytes).unwrap_or_default();
                *self.nft.lock().unwrap_or_else(PoisonError::into_inner) = found;
                Ok((Reply::Path(path), Vec::new()))
            }
            Request::RunNft { run, seconds } => {
                let program = self.nft.lock().unwrap_or_else(PoisonError::into_inner).clone();
                let program = program.ok_or(io::ErrorKind::NotFound)?;
                let [script, stdout, stderr] =
                    descriptors.try_into().map_err(|_| io::ErrorKind::InvalidInput)?;
                let streams = [own_script(script)?, stdout, stderr];
                // This thread ends with the request.
                privileges::keep_net_admin()?;
                let (pid, end) = nft::start(&program, run, Duration::from_secs(seconds.into()), streams);
                Ok((Reply::Ended { pid, end }, Vec::new()))
            }
            Request::OpenTun(name) => with_descriptor(tun::open(&name_of(name)?).map_err(|e| number(&e))?),
            Request::SetDevice { name, setting } => {
                sysctl::set_device(&name_of(name)?, setting)?;
                done()
            }
            Request::SetThreaded { name, index, address, on } => {
                let link = Link { name: name_of(name)?, index, address, ..Link::default() };
                napi::write_threaded(&link, on)?;
                done()
            }
            Request::SetNice { thread, nice } => {
                let thread = of_daemon(thread)?;
                rustix::process::setpriority_process(Some(thread), nice.into())?;
                done()
            }
            Request::Listen { path, group } => self.listen(path_of(&path), group),
            Request::Unlisten(path) => {
                let mut files = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
                let at = files.iter().position(|file| file.path() == path_of(&path));
                files.remove(at.ok_or(io::ErrorKind::NotFound)?).remove();
                done()
            }
            Request::QcdSecret(path) => self.qcd_secret(path_of(&path)),
            request => programs(request, descriptors),
        }
    }

    /// Makes the socket file of a control socket. The daemon does so at its start alone.
    fn listen(&self, path: &Path, group: Option<u32>) -> Outcome {
        let mut files = self.sockets.lock().unwrap_or_else(PoisonError::into_inner);
        if files.len() >= MAX_SOCKETS {
            self.refusals.say(&format!("{}: more control sockets than may be", path.display()));
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        match SocketFile::listen(path, group) {
            Ok((socket, file)) => {
                files.push(file);
                with_descriptor(socket)
            }
            Err(Machine::ViciSocket { why, .. }) => {
                let (errno, reason) = number_of(&why);
                let errno = errno.raw_os_error().unsigned_abs();
                Ok((Reply::Failed { errno, reason }, Vec::new()))
            }
            Err(other) => Err(io::Error::other(other.to_string())),
        }
    }

    /// Opens the file of the QCD secret. The daemon asks for it at its start, before anything comes
    /// from the network.
    fn qcd_secret(&self, path: &Path) -> Outcome {
        let may = path == Daemon::default().qcd_secret || self.folders.is_named(path);
        if !may || self.secret_given.swap(true, Ordering::Relaxed) {
            self.refusals.say(&format!("{}: no file of the configuration names this secret", path.display()));
            return Err(io::ErrorKind::PermissionDenied.into());
        }
        with_descriptor(qcd_secret::open_or_make(path)?)
    }

    /// The path, when the helper may look at it.
    fn allowed<'a>(&self, path: &'a [u8], wanted: Wanted) -> io::Result<&'a Path> {
        let path = path_of(path);
        self.folders
            .allow(path, wanted)
            .inspect_err(|e| self.refusals.say(&format!("{}: {e}", path.display())))?;
        Ok(path)
    }

    fn open(&self, path: &Path) -> Outcome {
        match Direct.open(self.allowed(path.as_os_str().as_bytes(), Wanted::Content)?) {
            Ok(file) => {
                self.folders.learn(path, &file);
                with_descriptor(file)
            }
            Err(FileFault::NotRegular) => Ok((Reply::NotRegular, Vec::new())),
            Err(FileFault::Missing(why)) => Err(io::Error::new(io::ErrorKind::NotFound, why)),
            Err(FileFault::System(why)) => Err(io::Error::other(why)),
            Err(other) => Err(io::Error::other(other.to_string())),
        }
    }
}

/// The thread of this number, which must be one of the daemon's.
fn of_daemon(thread: u32) -> io::Result<Pid> {
    let daemon = rustix::process::getppid().ok_or(io::ErrorKind::NotFound)?;
    std::fs::metadata(format!("/proc/{}/task/{thread}", daemon.as_raw_nonzero()))?;
    i32::try_from(thread).ok().and_then(Pid::from_raw).ok_or_else(|| io::ErrorKind::InvalidInput.into())
}

/// A copy of a script that the daemon cannot change any more. `nft` reads other files when a script
/// includes them, and shows parts of them in its errors: scripts of the daemon include none.
fn own_script(script: OwnedFd) -> io::Result<OwnedFd> {
    let text = client::contents(script, MAX_SCRIPT)?;
    if text.windows(INCLUDE.len()).any(|word| word == INCLUDE) {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, "the script includes other files"));
    }
    client::memory_file(&text)
}

/// Requests about programs in the kernel, and about sockets, which the helper remembers nothing of.
fn programs(request: Request, descriptors: Vec<OwnedFd>) -> Outcome {
    let mut descriptors = descriptors.into_iter();
    let mut next = || descriptors.next().ok_or_else(|| io::Error::from(io::ErrorKind::InvalidInput));
    match request {
        Request::MayLoop => flag(kernel::serve_may_loop()),
        Request::MakeCounter => with_descriptor(kernel::serve_counter()?),
        Request::ReadCounter => {
            let (packets, bytes) = kernel::serve_count(next()?)?;
            Ok((Reply::Count { packets, bytes }, Vec::new()))
        }
        Request::CounterOf(program) => with_descriptor(kernel::serve_counter_of(program)?),
        Request::LoadIngress => {
            let loaded = kernel::serve_load(next()?, next()?);
            with_descriptor(loaded.map_err(IngressError::into_reason)?)
        }
        Request::CountTcx(index) => {
            let packets = kernel::serve_tcx(index)?.into();
            Ok((Reply::Count { packets, bytes: 0 }, Vec::new()))
        }
        Request::MakeXdpMaps(queues) => Ok((Reply::Done { descriptors: 2 }, xdp::maps(queues)?.into())),
        Request::LoadXdp { mac, frame, port, raw_esp } => {
            with_descriptor(xdp::load(mac, frame, port, raw_esp, [next()?, next()?])?)
        }
        Request::SetXdpSocket(queue) => {
            xdp::set_socket(queue, next()?, next()?)?;
            done()
        }
        Request::SetXdpAddress { address, ours } => {
            xdp::set_address(address, ours, next()?)?;
            done()
        }
        Request::AttachXdp { index, generic } => with_descriptor(xdp::attach(next()?, index, generic)?),
        Request::BindUdp { ipv6, port } => {
            udp::serve_bind(next()?.as_fd(), ipv6, port)?;
            done()
        }
        _ => Err(io::ErrorKind::InvalidInput.into()),
    }
}

/// A folder's paths may be longer together than a message: they travel in a file.
fn list(paths: &[PathBuf]) -> Outcome {
    let mut text = Vec::new();
    for path in paths {
        text.extend_from_slice(path.as_os_str().as_bytes());
        text.push(0);
    }
    let file: File = client::memory_file(&text)?.into();
    Ok((Reply::Flag { yes: true, descriptor: true }, vec![file.into()]))
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
