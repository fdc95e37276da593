//! One gateway per network namespace: rules, table 220 and the nft table are the namespace's, and two would take them from each
//! other for ever. The claim is an abstract Unix socket: it belongs to the namespace, and goes with the process, however that
//! ends.

use std::io::ErrorKind;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use rustix::net::sockopt::socket_peercred;

const NAME: &[u8] = b"ironswan-gateway";

/// This process is the network namespace's gateway for as long as it holds this.
#[derive(Debug)]
pub struct Claim(#[expect(dead_code, reason = "held, never used")] Option<UnixListener>);

impl Claim {
    /// Claims the namespace of the calling thread.
    ///
    /// # Errors
    /// Another gateway has it; the message says which process, and what to do.
    pub fn take() -> Result<Self, String> {
        match name().and_then(|n| UnixListener::bind_addr(&n)) {
            Ok(listener) => Ok(Self(Some(listener))),
            Err(e) if e.kind() == ErrorKind::AddrInUse => match holder() {
                Some(pid) => Err(format!(
                    "another gateway (process {pid}) runs in this network namespace, and both would claim table 220 and the \
                     guard: stop it, or run this one in a namespace of its own"
                )),
                None => {
                    tracing::warn!(
                        "a process that is not root's holds the name @{} (`ss -xlp`); that is no gateway, going on",
                        String::from_utf8_lossy(NAME)
                    );
                    Ok(Self(None))
                }
            },
            // A kernel without abstract sockets: two gateways are told apart by their ports as ever.
            Err(_) => Ok(Self(None)),
        }
    }
}

/// The process that is this namespace's gateway. Anyone may bind such a name: only root's, or our own user's, counts.
pub fn holder() -> Option<i32> {
    let stream = UnixStream::connect_addr(&name().ok()?).ok()?;
    let peer = socket_peercred(&stream).ok()?;
    let ours = rustix::process::geteuid();
    (peer.uid.is_root() || peer.uid == ours).then(|| peer.pid.as_raw_nonzero().get())
}

fn name() -> std::io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(NAME)
}
