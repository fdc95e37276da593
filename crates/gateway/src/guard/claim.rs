//! Allows one gateway per network namespace. Rules, table 220 and the nft table belong to the
//! namespace, and two gateways would remove each other's for ever. The claim is an abstract Unix
//! socket, which belongs to the namespace and ends with its process.
//!
//! Anybody may connect to an abstract socket, or bind its name before the gateway does. [`holder`]
//! connects to find the gateway, and each connection stays in the gateway's queue until it is
//! accepted; so the gateway takes them out ([`Claim::keep_free`]). Nobody waits for a full queue.
//!
//! If the queue is full, the kernel tells whose socket it is. The gateway's is of root or of our
//! own user, and no other user can have a socket that looks so. A kernel that does not tell (before
//! Linux 5.3, or without CONFIG_UNIX_DIAG) leaves that open. Then a full queue counts as nobody's,
//! because otherwise every local user could keep the gateway from starting; the price is that
//! somebody who keeps the queue full can have a second gateway start.

use std::fmt;
use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::Duration;

use ironswan_io::listener;
use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::{Guard, Machine};
use rustix::io::Errno;
use rustix::net::SocketAddrUnix;
use rustix::net::sockopt::socket_peercred;

use crate::control::try_connect;

const NAME: &[u8] = b"ironswan-gateway";

/// Pause of the gateway each time after it has taken connections out of its queue.
const PAUSE: Duration = Duration::from_secs(1);

/// Limits how many connections are taken out of the queue at a time: enough for every honest look,
/// and little work when somebody connects without end.
const AT_ONCE: usize = 500;

/// The claim. This process is the namespace's gateway for as long as it holds the claim.
#[derive(Debug)]
pub struct Claim {
    /// `None`: nothing was claimed, and this gateway goes on without.
    listener: Option<UnixListener>,
    /// Reason why nothing was claimed. `None` also for a kernel without abstract sockets.
    doubt: Option<Guard>,
}

impl Claim {
    /// Claims the namespace of the calling thread.
    ///
    /// # Errors
    /// Another gateway holds the claim; the message says which process, and what to do.
    pub fn take() -> Result<Self, Diagnosis> {
        match name().and_then(|n| UnixListener::bind_addr(&n)) {
            Ok(listener) => {
                listener.set_nonblocking(true).map_err(|e| Machine::SystemCall {
                    action: "claiming this network namespace".to_owned(),
                    why: e.to_string(),
                })?;
                Ok(Self { listener: Some(listener), doubt: None })
            }
            Err(e) if e.kind() == ErrorKind::AddrInUse => match holder() {
                Some(holder) => Err(Guard::OtherGateway { holder: holder.to_string() }.into()),
                None => {
                    let name = String::from_utf8_lossy(NAME).into_owned();
                    Ok(Self { listener: None, doubt: Some(Guard::NameHeld { name }) })
                }
            },
            // This kernel has no abstract sockets. Two gateways then collide at their UDP ports.
            Err(_) => Ok(Self { listener: None, doubt: None }),
        }
    }

    /// Reason why the namespace could not be claimed although no gateway is known to hold it.
    pub fn doubt(&self) -> Option<&Guard> {
        self.doubt.as_ref()
    }

    /// Takes connections out of the queue for as long as this process is the gateway. Costs nothing
    /// while nobody connects.
    pub async fn keep_free(&self) {
        if self.listener.is_none() {
            return;
        }
        let listener = self.listener.as_ref().and_then(|l| l.try_clone().ok());
        let listener = listener.and_then(|l| tokio::net::UnixListener::from_std(l).ok());
        loop {
            // Without a descriptor for waiting, the queue is looked at after each pause.
            if let Some(listener) = &listener {
                drop(listener.accept().await);
            }
            self.take_out();
            tokio::time::sleep(PAUSE).await;
        }
    }

    fn take_out(&self) {
        if let Some(listener) = &self.listener {
            (0..AT_ONCE).take_while(|_| listener.accept().is_ok()).for_each(drop);
        }
    }
}

/// The gateway of this namespace, as far as it can be told.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Holder {
    /// A process with this ID.
    Process(i32),
    /// A process that takes no connections now: it is stopped, or somebody connects without end.
    Full,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process(pid) => write!(f, "process {pid}"),
            Self::Full => write!(
                f,
                "the holder of the socket @{}, whose queue is full: `ss -xlp` names it",
                String::from_utf8_lossy(NAME)
            ),
        }
    }
}

/// Finds this namespace's gateway. Anybody may bind such a name: only a socket of root or of our
/// own user counts.
pub fn holder() -> Option<Holder> {
    let ours = rustix::process::geteuid();
    match try_connect(&SocketAddrUnix::new_abstract_name(NAME).ok()?) {
        Ok(stream) => {
            let peer = socket_peercred(&stream).ok()?;
            let counts = peer.uid.is_root() || peer.uid == ours;
            counts.then(|| Holder::Process(peer.pid.as_raw_nonzero().get()))
        }
        Err(Errno::AGAIN) => {
            let uid = listener::owner(NAME).ok()??;
            (uid == 0 || uid == ours.as_raw()).then_some(Holder::Full)
        }
        Err(_) => None,
    }
}

fn name() -> std::io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(NAME)
}
