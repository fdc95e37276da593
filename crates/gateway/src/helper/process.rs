//! The daemon's side: starts the helper before anything else and the fetcher next, and sees them
//! end.

use std::ffi::OsStr;
use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use ironswan_io::helper::Channel;
use ironswan_io::helper::client;
use ironswan_io::privileges::Account;
use tokio::signal::unix::{SignalKind, signal};

/// This very program, also when its file was replaced since.
const PROGRAM: &str = "/proc/self/exe";

/// A process of this daemon, which ends with the daemon.
#[derive(Debug)]
pub(crate) struct Process {
    name: &'static str,
    child: Child,
}

impl Process {
    /// Starts the helper. Call this first: the process may have no other thread yet.
    ///
    /// # Errors
    /// The system starts no program, or a helper runs already.
    pub(crate) fn start_helper(config: &Path) -> io::Result<Self> {
        let (process, channel) = Self::start("helper", &["--config".as_ref(), config.as_os_str()])?;
        client::connect(channel)?;
        Ok(process)
    }

    /// Starts the fetcher, which becomes this user where it may. It enters the sandbox if it is to.
    ///
    /// # Errors
    /// The system starts no program, or a fetcher runs already.
    pub(crate) fn start_fetcher(account: Account, sandboxed: bool) -> io::Result<Self> {
        let [uid, gid] = [account.uid, account.gid].map(|id| id.to_string());
        let mut arguments = vec!["--uid", &uid, "--gid", &gid];
        arguments.extend((!sandboxed).then_some("--any-call"));
        let arguments: Vec<&OsStr> = arguments.into_iter().map(OsStr::new).collect();
        let (process, channel) = Self::start("fetcher", &arguments)?;
        client::connect_fetcher(channel)?;
        Ok(process)
    }

    fn start(name: &'static str, arguments: &[&OsStr]) -> io::Result<(Self, Channel)> {
        let (ours, theirs) = Channel::pair()?;
        let child = Command::new(PROGRAM)
            .arg(name)
            .args(arguments)
            .stdin(Stdio::from(theirs.into_descriptor()))
            .stdout(Stdio::null())
            .spawn()?;
        Ok((Self { name, child }, ours))
    }

    /// How the process has ended; `None` while it lives.
    fn end(&mut self) -> Option<String> {
        let name = format!("the {} process {}", self.name, self.child.id());
        match self.child.try_wait() {
            Ok(None) => None,
            Ok(Some(status)) => Some(format!("{name} has ended ({status})")),
            Err(e) => Some(format!("{name} cannot be watched ({e})")),
        }
    }
}

/// Waits until one of these processes has ended, and says which, and how.
pub(crate) async fn ended(processes: &mut [Process]) -> String {
    let mut changes = match signal(SignalKind::child()) {
        Ok(changes) => changes,
        Err(e) => return format!("the ends of processes cannot be watched ({e})"),
    };
    loop {
        // One may have ended before the signals were asked for.
        if let Some(why) = processes.iter_mut().find_map(Process::end) {
            return why;
        }
        changes.recv().await;
    }
}
