//! The daemon gives up what it needs no more: it becomes another user, with two capabilities, and
//! makes no system calls but those that it needs.

use std::time::Duration;

use ironswan_config::Daemon;
use ironswan_io::privileges::{self, Account};
use ironswan_io::sandbox;
use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::Machine;

use crate::dataplane::userspace::scheduling;
use crate::start::failure::RunError;

/// User of the daemon unless the configuration names one.
const USER: &str = "ironswan";
/// How long a thread that has read files may take to end, in steps of 1 ms.
const MAX_WAITS: u32 = 1_000;

/// The user that the daemon becomes.
pub(crate) struct User {
    /// `None`: it stays who it is.
    account: Option<Account>,
    /// A line for the log, which is not there yet.
    line: Option<String>,
}

impl User {
    /// Finds the user.
    ///
    /// # Errors
    /// The one that the configuration names is not there.
    pub(crate) fn find(settings: &Daemon) -> Result<Self, RunError> {
        let (account, line) = match privileges::is_root() {
            true => account(settings.user.as_deref())?,
            false => (None, None),
        };
        Ok(Self { account, line })
    }

    /// The user of the fetcher: the same, but never root.
    pub(crate) fn of_fetcher(&self) -> Account {
        self.account.unwrap_or(privileges::NOBODY)
    }

    /// Makes this process, which has no other thread, the daemon of this user. Returns lines for
    /// the log.
    ///
    /// # Errors
    /// The kernel refuses a step.
    pub(crate) fn become_daemon(self, settings: &Daemon) -> Result<Vec<String>, RunError> {
        scheduling::prefer_session(settings.tuning.nice);
        privileges::dump_no_core().map_err(|e| refused("forbidding core dumps", &e))?;
        // The memory of AF_XDP is locked, and counted where the capability is missing.
        let locks_memory = !settings.tuning.xdp.is_empty() && !privileges::unlimit_locked_memory();
        alone()?;
        privileges::become_daemon(self.account, locks_memory)
            .map_err(|e| refused("giving up privileges", &e))?;
        let why = match settings.sandbox {
            // A kernel without seccomp has no other answer than an error.
            true => sandbox::enter().err().map(|e| format!("{e} (seccomp)")),
            false => Some("sandbox = no".to_owned()),
        };
        let sandbox = why.map(|why| format!("the daemon may make any system call: {why}"));
        Ok(self.line.into_iter().chain(sandbox).collect())
    }
}

/// The user that the daemon becomes, and a line when it stays root although nobody asked for that.
fn account(named: Option<&str>) -> Result<(Option<Account>, Option<String>), RunError> {
    let name = named.unwrap_or(USER);
    let found = privileges::find_account(name).map_err(|e| refused("reading /etc/passwd", &e))?;
    match (found, named) {
        (Some(account), None) if !privileges::may_become(account) => {
            let line = format!(
                "the daemon stays root: becoming {USER} needs CAP_SETUID and CAP_SETGID, in a user namespace that maps \
                 this user and lets groups be changed"
            );
            Ok((None, Some(line)))
        }
        (Some(account), _) => Ok(((account.uid != 0).then_some(account), None)),
        (None, Some(name)) => Err(format!(
            "user = {name}: there is no user of that name in /etc/passwd; make one (`useradd --system --no-create-home \
             --shell /usr/sbin/nologin {name}`), or write `user = root`"
        )
        .into()),
        (None, None) => {
            let line = format!(
                "the daemon stays root, with CAP_NET_ADMIN and CAP_NET_RAW alone: there is no user {USER} (`useradd --system \
                 --no-create-home --shell /usr/sbin/nologin {USER}` makes one)"
            );
            Ok((None, Some(line)))
        }
    }
}

/// Waits until this process has one thread: others would keep what this one gives up.
fn alone() -> Result<(), RunError> {
    for _ in 0..MAX_WAITS {
        match privileges::threads() {
            Ok(1) => return Ok(()),
            Ok(_) => std::thread::sleep(Duration::from_millis(1)),
            Err(e) => return Err(refused("counting the threads of this process", &e)),
        }
    }
    Err("privileges cannot be given up, because a thread that reads files does not end".to_owned().into())
}

fn refused(action: &str, e: &std::io::Error) -> RunError {
    Diagnosis::from(Machine::SystemCall { action: action.to_owned(), why: e.to_string() }).into()
}
