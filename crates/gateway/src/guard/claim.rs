//! One gateway per network namespace: rules, table 220 and the nft table are the namespace's, and two would take them from each
//! other for ever. The claim is an abstract Unix socket: it belongs to the namespace, and goes with the process, however that
//! ends.
//!
//! Anybody may connect to an abstract socket, or bind the name before us. Each look leaves a connection in the holder's queue until
//! that is accepted, so the gateway takes them out ([`Claim::keep_free`]); nobody waits for a queue that is full.

use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};
use std::time::Duration;

use rustix::net::SocketAddrUnix;
use rustix::net::sockopt::socket_peercred;

use crate::control::try_connect;

const NAME: &[u8] = b"ironswan-gateway";

/// The gateway pauses for this long each time it has taken connections out of its queue.
const PAUSE: Duration = Duration::from_secs(1);

/// At most this many are taken out at a time: enough for every honest look, and little work when somebody connects without end.
const AT_ONCE: usize = 500;

/// This process is the network namespace's gateway for as long as it holds this.
#[derive(Debug)]
pub struct Claim(Option<UnixListener>);

impl Claim {
    /// Claims the namespace of the calling thread.
    ///
    /// # Errors
    /// Another gateway has it; the message says which process, and what to do.
    pub fn take() -> Result<Self, String> {
        match name().and_then(|n| UnixListener::bind_addr(&n)) {
            Ok(listener) => {
                listener
                    .set_nonblocking(true)
                    .map_err(|e| format!("cannot claim this network namespace: {e}"))?;
                Ok(Self(Some(listener)))
            }
            Err(e) if e.kind() == ErrorKind::AddrInUse => match holder() {
                Some(pid) => Err(format!(
                    "another gateway (process {pid}) runs in this network namespace, and both would claim table 220 and the \
                     guard: stop it, or run this one in a namespace of its own"
                )),
                None => {
                    tracing::warn!(
                        "the name @{} is held by a process that is not root's, or that takes no connections (`ss -xlp`); \
                         that is no gateway, going on",
                        String::from_utf8_lossy(NAME)
                    );
                    Ok(Self(None))
                }
            },
            // A kernel without abstract sockets: two gateways are told apart by their ports as ever.
            Err(_) => Ok(Self(None)),
        }
    }

    /// Takes connections out of the queue for as long as this process is the gateway. Costs nothing while nobody connects.
    pub async fn keep_free(&self) {
        if self.0.is_none() {
            return;
        }
        let listener = self.0.as_ref().and_then(|l| l.try_clone().ok());
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
        if let Some(listener) = &self.0 {
            (0..AT_ONCE).take_while(|_| listener.accept().is_ok()).for_each(drop);
        }
    }
}

/// The process that is this namespace's gateway. Anyone may bind such a name: only root's, or our own user's, counts. Of a holder
/// whose queue is full nothing is known, and it does not count either.
pub fn holder() -> Option<i32> {
    let stream = try_connect(&SocketAddrUnix::new_abstract_name(NAME).ok()?).ok()?;
    let peer = socket_peercred(&stream).ok()?;
    let ours = rustix::process::geteuid();
    (peer.uid.is_root() || peer.uid == ours).then(|| peer.pid.as_raw_nonzero().get())
}

fn name() -> std::io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(NAME)
}
