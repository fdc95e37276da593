//! Messages of the worker threads to the control plane, and why they could not be started.

use std::net::IpAddr;

use ironswan_io::Error as IoError;
use ironswan_wire::sadb::Up;

use super::offloads::Slower;

/// From the workers to the control plane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum WorkerNotice {
    /// From the engine.
    Up(Vec<Up>),
    /// The path to these peers has become narrower, or packets to them are larger than the path MTU
    /// and are dropped: ask the routing table and `Workers::paths` for the path MTU and lower
    /// the routes to the device, so that the kernel tells the senders.
    NarrowPath(Vec<IpAddr>),
    /// A worker has ended by a defect of ours: nothing can be relied on to be carried any more.
    Ended,
    /// The TUN device was deleted by someone; IKE goes on, packets do not until
    /// `Workers::replace_device`.
    DeviceGone,
    /// The kernel refuses something that was faster; packets go the slower way. Once for each, not
    /// for each packet.
    Slower(Slower),
}

/// Why the data plane did not start. The message says what to do.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// A kernel object could not be had.
    Io(IoError),
    /// The thread could not be started.
    Thread(std::io::Error),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(e) => e.fmt(f),
            Self::Thread(e) => {
                write!(f, "a data plane thread could not be started: {e} (look at `ulimit -u`)")
            }
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(e) => Some(e),
            Self::Thread(e) => Some(e),
        }
    }
}

impl From<IoError> for StartError {
    fn from(e: IoError) -> Self {
        Self::Io(e)
    }
}
