//! Children of one tunnel on two IKE_SAs, of which the younger one is to take over.
//!
//! Whoever has asked for the younger IKE_SA sends on its child at once. The other end sends on the
//! old one until it sees a packet on the new one, or until the old one goes, so that no packet
//! arrives before its SA.
//!
//! ```text
//! IKE_SA 1       IKE_SA 2       IKE_SA 3        the next one may come before the first has gone:
//! child A  --->  child B  --->  child C         each has one heir
//! child A  ------------------>  child C         B has gone first: its heir is that of A
//! ```

use std::collections::BTreeMap;
use std::time::Instant;

use ironswan_wire::sadb::Spi;

use crate::event::ChildId;
use ironswan_keying::limits::HANDOVER;

/// Which child takes over from which.
#[derive(Default)]
pub(crate) struct Handovers(BTreeMap<ChildId, Handover>);

/// The child that takes over.
#[derive(Clone)]
struct Handover {
    heir: ChildId,
    /// When we began to send on it, or on an heir of it.
    begun: Option<Instant>,
    /// Packets may be under way on the old one then: both IKE_SAs are between the same addresses.
    carries: bool,
    /// We have asked for the younger IKE_SA: the peer sends on the old child for longer than we do.
    by_us: bool,
}

/// An older child of the same tunnel.
pub(crate) struct Older {
    pub child: ChildId,
    /// The SPI that it sends with. A peer that has lost it may give the same one to the new child.
    pub spi_out: Spi,
    /// The engine has its outbound SA.
    pub sends: bool,
    /// Its IKE_SA is between the same addresses and ports.
    pub same_path: bool,
}

impl Handovers {
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// `heir` is to take over from `old`, on which packets may be under way (`carries`). `by_us`:
    /// on an IKE_SA that we have asked for.
    pub(crate) fn insert(&mut self, old: ChildId, heir: ChildId, carries: bool, by_us: bool) {
        self.0.insert(old, Handover { heir, begun: None, carries, by_us });
    }

    /// `new` has replaced `old` on its IKE_SA, and has the same heir.
    pub(crate) fn inherit(&mut self, old: ChildId, new: ChildId) {
        if let Some(handover) = self.0.get(&old).cloned() {
            self.0.insert(new, handover);
        }
    }

    /// The child that is to take over from this one.
    pub(crate) fn heir(&self, old: ChildId) -> Option<ChildId> {
        self.0.get(&old).map(|handover| handover.heir)
    }

    /// True when this child is to take over from another.
    pub(crate) fn is_heir(&self, child: ChildId) -> bool {
        self.0.values().any(|handover| handover.heir == child)
    }

    /// We begin to send on this child, in place of all from which it takes over, one by way of
    /// another. Gives those.
    pub(crate) fn begin(&mut self, heir: ChildId, now: Instant) -> Vec<ChildId> {
        let (mut before, mut heirs) = (Vec::new(), vec![heir]);
        while let Some(heir) = heirs.pop() {
            for (old, handover) in self.0.iter_mut().filter(|(_, h)| h.heir == heir) {
                handover.begun.get_or_insert(now);
                before.push(*old);
                heirs.push(*old);
            }
        }
        before
    }

    /// True when we send on a child that takes over from this one.
    pub(crate) fn is_over(&self, old: ChildId) -> bool {
        self.0.get(&old).is_some_and(|handover| handover.begun.is_some())
    }

    /// The last time before `now` at which an end may have sent on this child, if another takes
    /// over from it and packets may have been under way on it then. `None`: we still send on it.
    pub(crate) fn last_sent(&self, old: ChildId, now: Instant) -> Option<Instant> {
        let handover = self.0.get(&old).filter(|handover| handover.carries)?;
        handover.begun.map(|at| if handover.by_us { now.min(at + HANDOVER) } else { at })
    }

    /// This child has gone. `next`, if there is one, takes over from those that it was the heir of.
    /// Gives those that have no heir any more.
    pub(crate) fn forget(&mut self, child: ChildId, next: Option<ChildId>) -> Vec<ChildId> {
        self.0.remove(&child);
        let of: Vec<ChildId> = self.0.iter().filter(|(_, h)| h.heir == child).map(|(old, _)| *old).collect();
        for old in &of {
            match (next, self.0.get_mut(old)) {
                (Some(next), Some(handover)) => handover.heir = next,
                _ => drop(self.0.remove(old)),
            }
        }
        if next.is_some() { Vec::new() } else { of }
    }
}
