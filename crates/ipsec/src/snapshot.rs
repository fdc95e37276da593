//! The SAD and the SPD at one moment: what all workers share, and what a command replaces by a
//! changed copy.

use std::sync::Arc;

use ironswan_wire::sadb::SaRef;

use crate::sa::{InSa, OutSa};
use crate::sad::{CowMap, CowVec};
use crate::spd::Spd;

/// The SAD and SPD at one moment.
#[derive(Default, Clone)]
pub(crate) struct Snapshot {
    pub(crate) generation: u64,
    /// By SPI.
    pub(crate) inbound: CowMap<Arc<InSa>>,
    /// By reqid, the oldest first.
    pub(crate) outbound: CowMap<Arc<Vec<Arc<OutSa>>>>,
    /// The same SAs by [`OutSa::place`].
    pub(crate) places: CowVec<Arc<OutSa>>,
    /// How many of `outbound` want dummy packets.
    pub(crate) dummies: usize,
    pub(crate) spd: Spd,
}

impl Snapshot {
    /// The outbound SA of this name.
    pub(crate) fn outbound_sa(&self, name: &SaRef) -> Option<&Arc<OutSa>> {
        self.outbound.get(name.reqid.0)?.iter().find(|sa| sa.has_name(name))
    }
}
