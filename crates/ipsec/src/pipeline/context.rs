//! The state of a worker that inner packets are checked against.

use std::time::Duration;

use crate::engine::Engine;
use crate::flow::AcceptedFlows;
use crate::fragment::FirstFragments;
use crate::snapshot::Snapshot;

/// Everything that processing a decrypted packet needs beside the packet and its SA.
pub(super) struct InboundContext<'a, T> {
    pub(super) snap: &'a Snapshot,
    pub(super) engine: &'a Engine,
    pub(super) accepted: &'a mut AcceptedFlows,
    pub(super) fragments: &'a mut FirstFragments,
    /// The driver's monotonic time.
    pub(super) now: Duration,
    pub(super) timer: &'a mut T,
}
