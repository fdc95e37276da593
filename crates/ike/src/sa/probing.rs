//! Measurements of the path to the peer of one IKE_SA: the search under way, and the last result.
//! The messages stand in `task::path_probe`.

use std::net::IpAddr;
use std::time::Instant;

use crate::event::PathMtu;
use crate::search::Search;

/// Result of a measurement.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Found {
    /// Bytes of the largest IP packet that has passed.
    pub proven: u32,
    /// Bytes of the largest IP packet that we believed to pass.
    pub believed: u32,
    /// Packets of `believed` bytes do not pass.
    pub narrow: bool,
    pub at: Instant,
}

/// Measurements of the path of one IKE_SA.
#[derive(Default)]
pub(crate) struct Probing {
    /// The search under way.
    pub search: Option<Box<Search>>,
    /// The last result.
    pub found: Option<Found>,
    /// Address of the peer for which the data plane has been told a result that is narrow.
    pub told: Option<IpAddr>,
    /// When a measurement begins, or the present one goes on.
    pub next: Option<Instant>,
    /// When the last measurement began.
    pub begun: Option<Instant>,
    /// The driver has been asked for what is known of the path, and has not answered.
    pub asked: bool,
    /// The peer has answered a probe, on this IKE_SA or on one before it.
    pub answered: bool,
}

impl Probing {
    /// The last result.
    pub(crate) fn found(&self, now: Instant) -> Option<PathMtu> {
        self.found.map(|Found { proven, believed, narrow, at }| {
            let age = now.saturating_duration_since(at);
            PathMtu { proven, believed, narrow, age }
        })
    }
}
