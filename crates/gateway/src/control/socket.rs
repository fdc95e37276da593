//! The socket file: mode 0600, or 0660 for a group that only reads; that of a dead daemon replaced,
//! that of a living one respected.

use std::io::{Error, ErrorKind};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::{UnixListener as BlockingListener, UnixStream as BlockingStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use ironswan_io::clock;
use ironswan_io::helper::client::{self, Helper};
use ironswan_io::privileges;
use ironswan_keying::diagnosis::{Machine, SocketFault};
use ironswan_wire::helper::{Reply, Request};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
use tokio::net::{UnixListener, UnixStream};

/// A listening socket; its file goes with it.
#[derive(Debug)]
pub struct Listener {
    socket: UnixListener,
    path: PathBuf,
    /// `None` when the helper has made the file.
    file: Option<SocketFile>,
    /// Power of its clients.
    pub(super) access: Access,
}

/// Power of the clients of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Access {
    /// Every command.
    #[default]
    Full,
    /// Commands that change nothing and tell no secret.
    ReadOnly,
}

/// How long to wait before trying again to connect to a daemon with as many clients waiting as it
/// may have.
const CONNECT_PAUSE: Duration = Duration::from_millis(20);

/// Connects without waiting, by a socket that does not block. EAGAIN: as many clients wait there as
/// may.
pub(crate) fn try_connect(addr: &SocketAddrUnix) -> Result<OwnedFd, Errno> {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    connect(&socket, addr)?;
    Ok(socket)
}

/// True when a daemon listens at this path. One that is stopped, with as many clients waiting as it
/// may have, is not waited for.
pub fn is_alive(path: &Path) -> bool {
    matches!(SocketAddrUnix::new(path).and_then(|addr| try_connect(&addr)), Ok(_) | Err(Errno::AGAIN))
}

/// A blocking connection to the daemon at this path. While the daemon's queue of clients is full,
/// the connection is tried again until this time has passed. A plain connect would wait for ever
/// when the daemon is stopped.
///
/// # Errors
/// The error that the kernel returned; `TimedOut` when the time has passed.
pub fn connect_within(path: &Path, time: Duration) -> Result<BlockingStream, Error> {
    let begun = clock::now();
    let addr = SocketAddrUnix::new(path)?;
    loop {
        match try_connect(&addr) {
            Ok(socket) => {
                let stream = BlockingStream::from(socket);
                stream.set_nonblocking(false)?;
                return Ok(stream);
            }
            Err(Errno::AGAIN) if clock::now().saturating_duration_since(begun) < time => {
                std::thread::sleep(CONNECT_PAUSE);
            }
            Err(Errno::AGAIN) => return Err(ErrorKind::TimedOut.into()),
            Err(e) => return Err(e.into()),
        }
    }
}

/// A socket file that this process has made, with its device and inode: another daemon may have put
/// its own there since.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct SocketFile {
    path: PathBuf,
    file: (u64, u64),
}

impl SocketFile {
    /// Makes the file, replaces that of a dead daemon, and listens. `group`: members of this group
    /// may connect, too.
    ///
    /// # Errors
    /// The reason, with the remedy.
    pub(crate) fn listen(path: &Path, group: Option<u32>) -> Result<(BlockingListener, Self), Machine> {
        let fault = |why| Machine::ViciSocket { path: path.to_owned(), why };
        if let Ok(meta) = std::fs::symlink_metadata(path) {
            if !meta.file_type().is_socket() {
                return Err(fault(SocketFault::NoSocket));
            }
            if is_alive(path) {
                return Err(fault(SocketFault::Alive));
            }
            // Nobody listens: a daemon that was killed left it.
            std::fs::remove_file(path).map_err(|e| fault(SocketFault::Stale(e.to_string())))?;
        }
        let mode = Mode::from_raw_mode(if group.is_some() { 0o660 } else { 0o600 });
        let bound = match group {
            Some(group) => privileges::with_group(group, || bind_with(path, mode)).flatten(),
            None => bind_with(path, mode),
        };
        let socket = bound.map_err(|e| {
            fault(match e.kind() {
                ErrorKind::NotFound => SocketFault::NoFolder,
                ErrorKind::PermissionDenied => SocketFault::Denied(e.to_string()),
                _ => SocketFault::System(e.to_string()),
            })
        })?;
        let meta =
            std::fs::symlink_metadata(path).map_err(|e| fault(SocketFault::Vanished(e.to_string())))?;
        let file = Self { path: path.to_owned(), file: (meta.dev(), meta.ino()) };
        if group.is_some_and(|group| meta.gid() != group) {
            file.remove();
            return Err(fault(SocketFault::OtherGroup));
        }
        // A umask may have taken bits away.
        if meta.mode() & 0o777 != mode.as_raw_mode()
            && let Err(e) = file.set_mode(mode)
        {
            file.remove();
            return Err(fault(SocketFault::System(e.to_string())));
        }
        Ok((socket, file))
    }

    /// Gives the file this mode. Whoever may write to the folder can put another file, or a
    /// symbolic link, at the path meanwhile, so the file's device and inode are compared first.
    ///
    /// # Errors
    /// Another file is at the path (`NotFound`), or the kernel refuses a step.
    fn set_mode(&self, mode: Mode) -> Result<(), Error> {
        let file =
            rustix::fs::open(&self.path, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
        let found = rustix::fs::fstat(&file)?;
        if (found.st_dev, found.st_ino) != self.file {
            return Err(ErrorKind::NotFound.into());
        }
        // A descriptor of O_PATH takes no fchmod, its link in /proc does.
        Ok(rustix::fs::chmod(format!("/proc/self/fd/{}", file.as_raw_fd()), mode)?)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Removes the file if it is still ours.
    pub(crate) fn remove(&self) {
        let ours = std::fs::symlink_metadata(&self.path).is_ok_and(|m| (m.dev(), m.ino()) == self.file);
        if ours {
            let _ = std::fs::remove_file(&self.path);
        }
    }
}

/// Binds and listens. The kernel gives the file the mode of the socket, less the umask, so that
/// nobody can connect to it before a chmod, and the umask of other threads stays as it is.
fn bind_with(path: &Path, mode: Mode) -> Result<BlockingListener, Error> {
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    rustix::fs::fchmod(&socket, mode)?;
    rustix::net::bind(&socket, &SocketAddrUnix::new(path)?)?;
    // The kernel takes `net.core.somaxconn` when that is less.
    rustix::net::listen(&socket, i32::MAX)?;
    Ok(socket.into())
}

impl Listener {
    /// Binds the path, by the helper where there is one. Call it on the runtime.
    ///
    /// # Errors
    /// The reason, with the remedy.
    pub fn bind(path: &Path) -> Result<Self, Machine> {
        Self::bind_for(path, None, Access::Full)
    }

    /// The same for clients who only read. `group`: its members may connect, too.
    ///
    /// # Errors
    /// The reason, with the remedy.
    pub fn bind_to_read(path: &Path, group: Option<u32>) -> Result<Self, Machine> {
        Self::bind_for(path, group, Access::ReadOnly)
    }

    fn bind_for(path: &Path, group: Option<u32>, access: Access) -> Result<Self, Machine> {
        let fault =
            |e: Error| Machine::ViciSocket { path: path.to_owned(), why: SocketFault::System(e.to_string()) };
        let (socket, file) = match client::get() {
            Some(helper) => (listen_by(helper, path, group)?, None),
            None => {
                let (socket, file) = SocketFile::listen(path, group)?;
                (socket, Some(file))
            }
        };
        socket.set_nonblocking(true).map_err(fault)?;
        let socket = UnixListener::from_std(socket).map_err(fault)?;
        Ok(Self { socket, path: path.to_owned(), file, access })
    }

    pub(super) async fn accept(&self) -> Result<UnixStream, Error> {
        self.socket.accept().await.map(|(stream, _)| stream)
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        match (&self.file, client::get()) {
            (Some(file), _) => file.remove(),
            (None, Some(helper)) => {
                // When the helper has gone, the next daemon removes the file.
                let _ = helper.order(&Request::Unlisten(client::bytes(&self.path)));
            }
            (None, None) => {}
        }
    }
}

/// Has the helper make the socket file and listen.
fn listen_by(helper: &Helper, path: &Path, group: Option<u32>) -> Result<BlockingListener, Machine> {
    let fault = |why| Machine::ViciSocket { path: path.to_owned(), why };
    let system = |e: Error| fault(SocketFault::System(e.to_string()));
    let (reply, mut descriptors) =
        helper.reply(&Request::Listen { path: client::bytes(path), group }, &[]).map_err(system)?;
    match (reply, descriptors.pop()) {
        (Reply::Done { .. }, Some(socket)) => Ok(socket.into()),
        (Reply::Failed { errno, reason }, None) => Err(fault(fault_of(errno, reason))),
        _ => Err(system(ErrorKind::InvalidData.into())),
    }
}

/// The number by which the helper says what is wrong with a socket file, and the kernel's words.
pub(crate) fn number_of(why: &SocketFault) -> (Errno, String) {
    match why {
        SocketFault::NoSocket => (Errno::NOTSOCK, String::new()),
        SocketFault::Alive => (Errno::ADDRINUSE, String::new()),
        SocketFault::NoFolder => (Errno::NOENT, String::new()),
        SocketFault::Stale(words) => (Errno::BUSY, words.clone()),
        SocketFault::Denied(words) => (Errno::ACCESS, words.clone()),
        SocketFault::Vanished(words) => (Errno::STALE, words.clone()),
        SocketFault::System(words) => (Errno::IO, words.clone()),
        SocketFault::NoGroup(words) => (Errno::SRCH, words.clone()),
        SocketFault::OtherGroup => (Errno::XDEV, String::new()),
    }
}

/// The inverse of [`number_of`].
fn fault_of(errno: u32, words: String) -> SocketFault {
    match Errno::from_raw_os_error(i32::try_from(errno).unwrap_or_default()) {
        Errno::NOTSOCK => SocketFault::NoSocket,
        Errno::ADDRINUSE => SocketFault::Alive,
        Errno::NOENT => SocketFault::NoFolder,
        Errno::BUSY => SocketFault::Stale(words),
        Errno::ACCESS => SocketFault::Denied(words),
        Errno::STALE => SocketFault::Vanished(words),
        Errno::SRCH => SocketFault::NoGroup(words),
        Errno::XDEV => SocketFault::OtherGroup,
        _ => SocketFault::System(words),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;
    use std::process::Command;

    use super::*;
    use ironswan_testkit::scratch::Scratch;

    #[test]
    fn a_daemon_that_accepts_nobody_is_alive_and_not_waited_for() {
        let dir = Scratch::new();
        let path = dir.path().join("x.vici");
        let addr = SocketAddrUnix::new(&path).unwrap();
        let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
        let socket = || socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None).unwrap();
        let listener = socket();
        rustix::net::bind(&listener, &addr).unwrap();
        rustix::net::listen(&listener, 1).unwrap();
        // Clients of before, until there is no room for more.
        let mut waiting = Vec::new();
        let full = (0..9).any(|_| {
            let socket = socket();
            let connected = connect(&socket, &addr);
            waiting.push(socket);
            connected == Err(Errno::AGAIN)
        });
        assert!(full && is_alive(&path));
        // Whoever has something to say to it waits, and not for ever.
        let (begun, time) = (clock::now(), Duration::from_millis(200));
        let e = connect_within(&path, time).unwrap_err();
        let waited = clock::now().saturating_duration_since(begun);
        println!("gave up after {waited:?}");
        assert_eq!(e.kind(), ErrorKind::TimedOut);
        assert!(waited >= time && waited < 5 * time, "{waited:?}");
        // Somebody is taken: there is room.
        rustix::net::accept(&listener).unwrap();
        connect_within(&path, time).unwrap();
    }

    #[tokio::test]
    async fn a_socket_for_a_group_has_its_mode_and_group_from_the_beginning() {
        if !privileges::is_root() {
            eprintln!("skipped: this needs root");
            return;
        }
        let dir = Scratch::new();
        let path = dir.path().join("ro.vici");
        let listener = Listener::bind_to_read(&path, Some(4711)).unwrap();
        let meta = std::fs::metadata(&path).unwrap();
        assert_eq!((meta.permissions().mode() & 0o777, meta.gid(), meta.uid()), (0o660, 4711, 0));
        assert_eq!(listener.access, Access::ReadOnly);
        drop(listener);
        // Without a group it is root's alone, and this thread has its own group again.
        let listener = Listener::bind_to_read(&path, None).unwrap();
        let meta = std::fs::metadata(&path).unwrap();
        assert_eq!((meta.permissions().mode() & 0o777, meta.gid()), (0o600, 0));
        assert!(
            Listener::bind_to_read(&path, Some(4711)).unwrap_err().to_string().contains("already running")
        );
        drop(listener);
        // A folder that gives its own group to new files.
        std::fs::set_permissions(dir.path(), std::fs::Permissions::from_mode(0o2755)).unwrap();
        let e = Listener::bind_to_read(&path, Some(4711)).unwrap_err().to_string();
        assert!(e.contains("gets the group of its folder") && !path.exists(), "{e}");
    }

    #[test]
    fn a_narrow_umask_does_not_narrow_the_mode_of_a_socket() {
        // The umask is the whole process's, so another process runs the test above.
        let test = "control::socket::tests::a_socket_for_a_group_has_its_mode_and_group_from_the_beginning";
        let output = Command::new("sh")
            .args(["-c", "umask 077; exec \"$0\" --exact \"$1\""])
            .arg(std::env::current_exe().unwrap())
            .arg(test)
            .output()
            .unwrap();
        let words = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && words.contains("1 passed"), "{words}");
    }

    #[test]
    fn the_mode_is_never_given_to_another_file() {
        let dir = Scratch::new();
        let (path, other) = (dir.path().join("x.vici"), dir.path().join("other"));
        let (_socket, file) = SocketFile::listen(&path, None).unwrap();
        std::fs::write(&other, "").unwrap();
        std::fs::set_permissions(&other, std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::remove_file(&path).unwrap();
        std::os::unix::fs::symlink(&other, &path).unwrap();
        assert_eq!(file.set_mode(Mode::from_raw_mode(0o660)).unwrap_err().kind(), ErrorKind::NotFound);
        std::fs::remove_file(&path).unwrap();
        std::fs::rename(&other, &path).unwrap();
        assert_eq!(file.set_mode(Mode::from_raw_mode(0o660)).unwrap_err().kind(), ErrorKind::NotFound);
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[tokio::test]
    async fn a_dead_socket_is_replaced_a_living_one_is_not_and_a_file_never() {
        let dir = Scratch::new();
        let path = dir.path().join("x.vici");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let listener = Listener::bind(&path).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let e = Listener::bind(&path).unwrap_err().to_string();
        assert!(e.contains("already running"), "{e}");
        drop(listener);
        assert!(!path.exists());
        std::fs::write(&path, "x").unwrap();
        assert!(Listener::bind(&path).unwrap_err().to_string().contains("not a socket"));
        let e = Listener::bind(&dir.path().join("no/such/x.vici")).unwrap_err().to_string();
        assert!(e.contains("no such folder"), "{e}");
    }
}
