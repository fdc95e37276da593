//! The daemon's side: starts the helper before anything else, and sees it end.

use std::io;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use ironswan_io::helper::Channel;
use ironswan_io::helper::client;
use tokio::signal::unix::{SignalKind, signal};

/// This very program, also when its file was replaced since.
const PROGRAM: &str = "/proc/self/exe";

/// The helper of this daemon. The helper ends with the daemon.
#[derive(Debug)]
pub(crate) struct Process {
    child: Child,
}

impl Process {
    /// Starts the helper. Call this first: the process may have no other thread yet.
    ///
    /// # Errors
    /// The system starts no program, or a helper runs already.
    pub(crate) fn start(config: &Path) -> io::Result<Self> {
        let (ours, theirs) = Channel::pair()?;
        let child = Command::new(PROGRAM)
            .arg("helper")
            .arg("--config")
            .arg(config)
            .stdin(Stdio::from(theirs.into_descriptor()))
            .stdout(Stdio::null())
            .spawn()?;
        client::connect(ours)?;
        Ok(Self { child })
    }

    /// Waits until the helper has ended, and says how.
    pub(crate) async fn ended(&mut self) -> String {
        let name = format!("the helper process {}", self.child.id());
        let mut changes = match signal(SignalKind::child()) {
            Ok(changes) => changes,
            Err(e) => return format!("{name} cannot be watched ({e})"),
        };
        loop {
            // The helper may have ended before the signals were asked for.
            match self.child.try_wait() {
                Ok(None) => changes.recv().await,
                Ok(Some(status)) => return format!("{name} has ended ({status})"),
                Err(e) => return format!("{name} has ended ({e})"),
            };
        }
    }
}
