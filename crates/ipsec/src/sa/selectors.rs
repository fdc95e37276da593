//! The traffic selectors of an SA.

use ironswan_wire::sadb::SaAdd;
use ironswan_wire::selector::{PacketSelector, TrafficSelector};

/// The selectors that the peers agreed on.
pub(crate) struct Selectors {
    pub(crate) local: Box<[TrafficSelector]>,
    pub(crate) remote: Box<[TrafficSelector]>,
}

impl Selectors {
    pub(super) fn new(sa: &SaAdd) -> Self {
        Self { local: sa.local_ts.clone().into(), remote: sa.remote_ts.clone().into() }
    }

    /// True when a packet that leaves is covered.
    #[inline]
    pub(crate) fn covers_out(&self, p: &PacketSelector) -> bool {
        self.local.iter().any(|t| t.matches(p.src, p.protocol, p.src_port))
            && self.remote.iter().any(|t| t.matches(p.dst, p.protocol, p.dst_port))
    }

    /// True when a packet that arrived is covered.
    #[inline]
    pub(crate) fn covers_in(&self, p: &PacketSelector) -> bool {
        self.remote.iter().any(|t| t.matches(p.src, p.protocol, p.src_port))
            && self.local.iter().any(|t| t.matches(p.dst, p.protocol, p.dst_port))
    }
}
