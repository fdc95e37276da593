//! Measurements of the path to the peer of one IKE_SA: the search under way, and the last result.
//! The messages stand in `task::path_probe`.

use std::net::IpAddr;
use std::time::Instant;

use super::IkeSa;
use crate::event::PathMtu;
use crate::search::Search;

/// Bytes of a notification in front of its data, with its generic header, without SPI.
const NOTIFY_HEADER: usize = 8;
/// Bytes of a UDP header.
const UDP: usize = 8;
/// Bytes of the non-ESP marker.
const MARKER: usize = 4;

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

impl IkeSa {
    /// A message for an IP packet that is as large as it can be within `bytes`: bytes of data in
    /// its notification, and of the packet. `natt`: our port for NAT traversal.
    pub(crate) fn probe_size(&self, bytes: u32, natt: u16) -> Option<(usize, u32)> {
        let ip = if self.remote().is_ipv4() { 20 } else { 40 };
        let headers = ip + UDP + if self.local().port() == natt { MARKER } else { 0 };
        let (room, len) = self.crypt.room((bytes as usize).checked_sub(headers)?)?;
        Some((room.checked_sub(NOTIFY_HEADER)?, u32::try_from(headers + len).ok()?))
    }
}
