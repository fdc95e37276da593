//! Children of one tunnel on two IKE_SAs, of which the younger one is to take over.
//!
//! Whoever has asked for the younger IKE_SA sends on its child at once. The other end sends on the
//! old one until it sees a packet on the new one, or until the old one goes, so that no packet
//! arrives before its SA.

use std::collections::BTreeMap;
use std::time::Instant;

use ironswan_wire::sadb::Spi;

use crate::event::ChildId;

/// Which child takes over from which.
#[derive(Default)]
pub(crate) struct Handovers(BTreeMap<ChildId, Handover>);

/// The child that takes over.
struct Handover {
    heir: ChildId,
    /// When we began to send on it, if we had let the old one go on before.
    begun: Option<Instant>,
}

/// An older child of the same tunnel.
pub(crate) struct Older {
    pub child: ChildId,
    /// The SPI that it sends with. A peer that has lost it may give the same one to the new child.
    pub spi_out: Spi,
    /// It sends, and its IKE_SA is between the same addresses and ports.
    pub carries: bool,
}

impl Handovers {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// `heir` is to take over from `old`.
    pub(crate) fn insert(&mut self, old: ChildId, heir: ChildId) {
        self.0.insert(old, Handover { heir, begun: None });
    }

    /// The child that is to take over from this one.
    pub(crate) fn heir(&self, old: ChildId) -> Option<ChildId> {
        self.0.get(&old).map(|handover| handover.heir)
    }

    /// We begin to send on this child in place of the old one.
    pub(crate) fn begin(&mut self, heir: ChildId, now: Instant) {
        self.0.values_mut().filter(|handover| handover.heir == heir).for_each(|h| h.begun = Some(now));
    }

    /// When we began to send on the child that takes over from this one, if we had let this one go
    /// on before.
    pub(crate) fn begun(&self, old: ChildId) -> Option<Instant> {
        self.0.get(&old)?.begun
    }

    /// This child has gone: nothing takes over from it, and it takes over from nothing.
    pub(crate) fn forget(&mut self, child: ChildId) {
        self.0.retain(|old, handover| *old != child && handover.heir != child);
    }
}
