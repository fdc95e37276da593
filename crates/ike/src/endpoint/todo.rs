//! Work that is put off until the IKE_SA at hand is back in its place; and attempts for one tunnel
//! that race.

use std::collections::BTreeSet;

use crate::event::{ChildId, IkeId};

/// Something to do with another IKE_SA.
pub(crate) enum Todo {
    /// This IKE_SA has its successor: delete it.
    Retire {
        /// The old one.
        old: IkeId,
        /// The successor.
        new: IkeId,
    },
    /// Nothing will take over from this IKE_SA.
    Stay(IkeId),
    /// This one has just come up, or a child of it: perhaps both sides began at once.
    Collapse(IkeId),
    /// The child from which this one takes over has gone.
    TakeUp(ChildId),
    /// This attempt is not wanted any more.
    GiveUp(IkeId),
}

/// The attempts for one tunnel that are under way.
pub(crate) struct Race {
    pub(crate) members: BTreeSet<IkeId>,
    /// The attempt of the last address that was begun.
    pub(crate) last: u32,
}
