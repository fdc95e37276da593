//! Inbound SAs of rekeyed children, which are kept a while: each as long as its heir, whose
//! policies say what may come out of it.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use ironswan_wire::sadb::SaRef;

use crate::event::ChildId;

/// The inbound SA of a rekeyed child.
pub(crate) struct OldInbound {
    pub sa: SaRef,
    pub heir: ChildId,
    /// Our CPI of that child.
    pub cpi: Option<u16>,
}

/// All of them, also by heir: peers choose how many there are, and every child that is closed asks
/// for its own.
#[derive(Default)]
pub(crate) struct OldInbounds {
    all: BTreeMap<ChildId, OldInbound>,
    of_heir: HashMap<ChildId, BTreeSet<ChildId>>,
}

impl OldInbounds {
    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn first(&self) -> Option<ChildId> {
        self.all.keys().next().copied()
    }

    /// The heir of a child that was rekeyed.
    pub(crate) fn heir(&self, id: ChildId) -> Option<ChildId> {
        self.all.get(&id).map(|old| old.heir)
    }

    pub(crate) fn insert(&mut self, id: ChildId, old: OldInbound) {
        self.remove(id);
        self.of_heir.entry(old.heir).or_default().insert(id);
        self.all.insert(id, old);
    }

    pub(crate) fn remove(&mut self, id: ChildId) -> Option<OldInbound> {
        let old = self.all.remove(&id)?;
        if let Some(ids) = self.of_heir.get_mut(&old.heir) {
            ids.remove(&id);
            if ids.is_empty() {
                self.of_heir.remove(&old.heir);
            }
        }
        Some(old)
    }

    /// The children that have this heir.
    pub(crate) fn of(&self, heir: ChildId) -> Vec<ChildId> {
        self.of_heir.get(&heir).into_iter().flatten().copied().collect()
    }

    /// Children that had one heir have another one.
    pub(crate) fn pass_on(&mut self, from: ChildId, to: ChildId) {
        if from == to {
            return;
        }
        let ids = self.of_heir.remove(&from).unwrap_or_default();
        for id in &ids {
            if let Some(old) = self.all.get_mut(id) {
                old.heir = to;
            }
        }
        if !ids.is_empty() {
            self.of_heir.entry(to).or_default().extend(ids);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ironswan_wire::sadb::{Direction, ReqId, Spi};

    fn old(heir: u64) -> OldInbound {
        let remote = [192, 0, 2, 1].into();
        let sa = SaRef { direction: Direction::In, spi: Spi(7), reqid: ReqId(1), remote };
        OldInbound { sa, heir: ChildId(heir), cpi: None }
    }

    #[test]
    fn each_heir_has_its_own_and_what_is_gone_leaves_nothing() {
        let mut all = OldInbounds::default();
        for id in 1..=6 {
            all.insert(ChildId(id), old(10 + id % 2));
        }
        assert_eq!(all.of(ChildId(10)), [ChildId(2), ChildId(4), ChildId(6)]);
        all.pass_on(ChildId(10), ChildId(11));
        all.pass_on(ChildId(12), ChildId(13));
        assert_eq!((all.of(ChildId(10)).len(), all.of(ChildId(11)).len()), (0, 6));
        assert!((1..=6).all(|id| all.heir(ChildId(id)) == Some(ChildId(11))));
        all.insert(ChildId(1), old(20));
        assert_eq!((all.of(ChildId(11)).len(), all.of(ChildId(20)).len()), (5, 1));
        while let Some(id) = all.first() {
            assert!(all.remove(id).is_some() && all.remove(id).is_none());
        }
        assert!(all.len() == 0 && all.of_heir.is_empty());
    }
}
