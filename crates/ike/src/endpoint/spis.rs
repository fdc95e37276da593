//! Ids and SPIs of IKE_SAs and CHILD_SAs, and CPIs: which number belongs to whom. No table here is
//! ever iterated, so its order cannot show.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use ironswan_crypto::rng::Rng;
use ironswan_wire::sadb::{SaRef, Spi};

use crate::event::{ChildId, IkeId};
use crate::ipcomp::NEGOTIATED;
use ironswan_keying::limits::CPI_DRAWS;

/// The numbers in use.
#[derive(Default)]
pub(crate) struct Spis {
    /// Our SPIs of IKE_SAs.
    ike: HashMap<u64, IkeId>,
    /// Our inbound SPIs, reserved or installed.
    inbound: HashMap<Spi, ChildId>,
    /// Outbound SAs that are installed or held back.
    outbound: HashMap<SaRef, ChildId>,
    /// Our CPIs, reserved or installed.
    cpis: HashMap<u16, ChildId>,
    /// The IKE_SA of each child.
    homes: HashMap<ChildId, IkeId>,
    last_ike: u64,
    last_child: u64,
}

impl Spis {
    // ---- IKE_SAs ----

    /// A new id for an IKE_SA.
    pub(crate) fn new_ike_id(&mut self) -> IkeId {
        self.last_ike += 1;
        IkeId(self.last_ike)
    }

    /// The IKE_SA that has this SPI of ours.
    pub(crate) fn ike(&self, spi: u64) -> Option<IkeId> {
        self.ike.get(&spi).copied()
    }

    /// Reserves a new SPI for an IKE_SA: never 0, and none that `taken` knows.
    pub(crate) fn new_ike(&mut self, rng: &mut dyn Rng, id: IkeId, taken: impl Fn(u64) -> bool) -> u64 {
        loop {
            let spi = rng.u64();
            if spi != 0 && !taken(spi) && self.take_ike(spi, id) {
                return spi;
            }
        }
    }

    /// Reserves this SPI for an IKE_SA. False when it is in use.
    pub(crate) fn take_ike(&mut self, spi: u64, id: IkeId) -> bool {
        match self.ike.entry(spi) {
            Entry::Occupied(_) => false,
            Entry::Vacant(free) => {
                free.insert(id);
                true
            }
        }
    }

    /// Gives an SPI of an IKE_SA back.
    pub(crate) fn free_ike(&mut self, spi: u64) {
        self.ike.remove(&spi);
    }

    // ---- CHILD_SAs ----

    /// A new id for a child.
    pub(crate) fn new_child_id(&mut self) -> ChildId {
        self.last_child += 1;
        ChildId(self.last_child)
    }

    /// Reserves a new inbound SPI, for ESP or AH. In charon's range, 0xc0000000 to 0xcfffffff: far
    /// from 1 to 255, which are reserved, and easy to tell from the peer's in a log.
    pub(crate) fn new_inbound(&mut self, rng: &mut dyn Rng, id: ChildId) -> Spi {
        loop {
            let spi = Spi(0xc000_0000 | (rng.u32() & 0x0fff_ffff));
            if let Entry::Vacant(free) = self.inbound.entry(spi) {
                free.insert(id);
                return spi;
            }
        }
    }

    /// The child of an inbound SPI.
    pub(crate) fn inbound(&self, spi: Spi) -> Option<ChildId> {
        self.inbound.get(&spi).copied()
    }

    /// Gives an inbound SPI back.
    pub(crate) fn free_inbound(&mut self, spi: Spi) {
        self.inbound.remove(&spi);
    }

    /// Gives back what a child has reserved that will not be installed. False when it had not
    /// reserved this SPI.
    pub(super) fn free_reserved(&mut self, id: ChildId, spi_in: Spi, cpi_in: Option<u16>) -> bool {
        let reserved = self.inbound(spi_in) == Some(id);
        if reserved {
            self.free_inbound(spi_in);
        }
        self.free_cpi(id, cpi_in);
        reserved
    }

    /// The child that sends with this SA.
    pub(crate) fn outbound(&self, sa: &SaRef) -> Option<ChildId> {
        self.outbound.get(sa).copied()
    }

    /// A child has been installed in this IKE_SA.
    pub(crate) fn install(&mut self, id: ChildId, home: IkeId, spi_in: Spi, outbound: SaRef) {
        self.inbound.insert(spi_in, id);
        self.outbound.insert(outbound, id);
        self.homes.insert(id, home);
    }

    /// The peer of a child has moved, and its outbound SA has another name with it. Nothing changes
    /// when another child has the old name by now.
    pub(crate) fn rename_outbound(&mut self, id: ChildId, before: &SaRef, after: SaRef) {
        if self.outbound(before) == Some(id) {
            self.outbound.remove(before);
            self.outbound.insert(after, id);
        }
    }

    /// A child is gone. Its inbound SPI may stay reserved.
    pub(crate) fn remove(&mut self, id: ChildId, outbound: &SaRef) {
        if self.outbound(outbound) == Some(id) {
            self.outbound.remove(outbound);
        }
        self.homes.remove(&id);
    }

    /// The IKE_SA of a child.
    pub(crate) fn home(&self, id: ChildId) -> Option<IkeId> {
        self.homes.get(&id).copied()
    }

    /// A child has gone over to the successor of its IKE_SA.
    pub(crate) fn move_home(&mut self, id: ChildId, home: IkeId) {
        self.homes.insert(id, home);
    }

    // ---- CPIs ----

    /// Reserves a CPI that this child receives under. `None` when hardly any is left: the child
    /// goes without IPComp then.
    pub(crate) fn new_cpi(&mut self, rng: &mut dyn Rng, id: ChildId) -> Option<u16> {
        let count = u32::from(NEGOTIATED.end() - NEGOTIATED.start()) + 1;
        for _ in 0..CPI_DRAWS {
            // Below `count`, so it fits.
            let cpi = NEGOTIATED.start() + (rng.u32() % count) as u16;
            if let Entry::Vacant(free) = self.cpis.entry(cpi) {
                free.insert(id);
                return Some(cpi);
            }
        }
        None
    }

    /// Gives a CPI of this child back.
    pub(crate) fn free_cpi(&mut self, id: ChildId, cpi: Option<u16>) {
        if let Some(cpi) = cpi
            && self.cpis.get(&cpi) == Some(&id)
        {
            self.cpis.remove(&cpi);
        }
    }

    /// Number of entries in each table, by name.
    pub(crate) fn tables(&self) -> [(&'static str, usize); 5] {
        [
            ("IKE SPIs", self.ike.len()),
            ("inbound SPIs", self.inbound.len()),
            ("outbound SPIs", self.outbound.len()),
            ("CPIs", self.cpis.len()),
            ("homes of children", self.homes.len()),
        ]
    }
}
