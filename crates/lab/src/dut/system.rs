//! The interface of a system under test: how the laboratory starts it, asks it, and ends it.

use std::path::Path;
use std::time::Duration;

use super::engine::EngineCounts;
use super::options::{Encap, Suite};
use crate::error::{LabError, LogTail, Remedy};
use crate::interrupt;
use crate::topology::Sites;

/// A system under test.
pub trait Dut {
    /// Name in tables and records.
    fn name(&self) -> String;

    /// Programs and kernel features that this machine lacks, each with its remedy.
    fn lacks(&self) -> Vec<Remedy>;

    /// Version, as the system reports it.
    fn version(&self) -> Option<String>;

    /// Algorithms and form of ESP that the system agrees on with a peer by IKEv2; `None` for a
    /// system that does not use IPsec.
    fn ipsec(&self) -> Option<(&Suite, Encap)> {
        None
    }

    /// Starts it on all gateways (but the one that is played) and waits until traffic can flow
    /// through every tunnel. `dir` is for its files and logs.
    fn start(&self, sites: &Sites<'_>, dir: &Path) -> Result<Box<dyn Running>, LabError>;
}

/// How long a process may be about to end.
const ENDING: Duration = Duration::from_millis(500);

/// A system at work; dropping it ends it.
pub trait Running {
    /// The interface on the first gateway through which the traffic must go.
    fn tunnel_device(&self) -> Option<String>;

    /// Whether that interface is to be given the MTU of larger inner packets than usual. Not that
    /// of a system which keeps its interface as it made it, and whose routes have the MTU that fits
    /// the path.
    fn takes_mtu(&self) -> bool {
        true
    }

    /// The system's own status of the tunnel, for the record and for people.
    fn describe(&mut self) -> Result<String, LabError>;

    /// Counters of the packet engine on each gateway; empty for a system that has none.
    fn engines(&mut self) -> Result<Vec<EngineCounts>, LabError> {
        Ok(Vec::new())
    }

    /// An error, with the end of the logs, once one of its processes has ended.
    fn alive(&mut self) -> Result<(), LabError>;

    /// The end of the log of each of its processes; none of a system that has none.
    fn logs(&self) -> Vec<LogTail> {
        Vec::new()
    }

    /// Finds the cause of a failure while the system named `dut` carried traffic. If one of its
    /// processes has ended, that is the cause; else it is `error`, with the end of the system's
    /// logs.
    fn failed(&mut self, dut: &str, error: LabError) -> LabError {
        let mut ended = None;
        // A process closes its sockets some time before it has ended, so give it [`ENDING`].
        let waited = interrupt::wait_until(ENDING, || {
            ended = self.alive().err();
            Ok(ended.is_some())
        });
        match (error, ended) {
            (LabError::Interrupted, _) => LabError::Interrupted,
            _ if waited.is_err() => LabError::Interrupted,
            (_, Some(ended)) => ended,
            (LabError::Measurement(why), _) => LabError::Dut { dut: dut.into(), why, logs: self.logs() },
            (other, _) => other,
        }
    }

    /// Ends it; returns the processes that did not end when asked.
    fn stop(self: Box<Self>) -> Vec<String>;
}
