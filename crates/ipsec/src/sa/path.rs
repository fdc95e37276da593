//! The outer addresses of an SA, and the sources that were reported as the peer's new address.

use std::net::SocketAddr;
use std::sync::Mutex;
use std::time::Duration;

/// Outer addresses, and how packets go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Path {
    pub(crate) local: SocketAddr,
    pub(crate) remote: SocketAddr,
    pub(crate) udp_encap: bool,
}

impl Path {
    /// True when a packet in UDP from `source` shows another address or port of the peer. An SA
    /// without encapsulation has no NAT on its path, so none whose mapping could change. Only
    /// address and port count: a scope is ours, not the peer's.
    #[inline]
    pub(crate) fn has_other_source(&self, source: SocketAddr) -> bool {
        self.udp_encap && (self.remote.port() != source.port() || self.remote.ip() != source.ip())
    }
}

/// The sources that were reported of one SA on its present path. They are few, and each is reported
/// again only after a while, so that a NAT that changes its mind with every packet does not flood
/// the key daemon.
#[derive(Default)]
pub(crate) struct ReportedSources(Mutex<[Option<(SocketAddr, Duration)>; ReportedSources::MAX]>);

impl ReportedSources {
    /// Most sources that are remembered.
    const MAX: usize = 4;
    /// Time after which a source is reported again: the key daemon may have had a reason not to
    /// follow, which has gone.
    const REPEAT_AFTER: Duration = Duration::from_secs(10);

    /// Returns true at most once per source and 10 s, and for at most 4 sources at a time.
    #[cold]
    pub(crate) fn should_report(&self, now: Duration, source: SocketAddr) -> bool {
        let mut known = self.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let is_recent = |at: Duration| now.saturating_sub(at) < Self::REPEAT_AFTER;
        if known.iter().flatten().any(|(known, at)| *known == source && is_recent(*at)) {
            return false;
        }
        let free = known.iter_mut().find(|slot| !slot.is_some_and(|(_, at)| is_recent(at)));
        let Some(slot) = free else { return false };
        *slot = Some((source, now));
        true
    }
}
