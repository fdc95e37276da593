//! Possessions of each authenticated identity, on whatever connection: IKE_SAs, children, pieces of
//! selectors, and key exchanges that are being computed. The limits for each identity need it.

use std::collections::{BTreeMap, BTreeSet};

use ironswan_wire::id::Identity;

use crate::event::IkeId;

/// Possessions of one identity.
#[derive(Default)]
struct Held {
    sas: BTreeSet<IkeId>,
    children: usize,
    /// Pairs of selectors of these children beyond those that are configured.
    pieces: usize,
    /// Key exchanges that it has asked for and that are not done.
    computing: usize,
}

/// The identities that have something. Identities are without regard to case
/// ([`Identity::folded`]).
#[derive(Default)]
pub(crate) struct Peers(BTreeMap<Identity, Held>);

impl Peers {
    /// Changes what an identity has, and forgets an identity that has nothing.
    fn change(&mut self, peer: &Identity, change: impl FnOnce(&mut Held)) {
        let held = self.0.entry(peer.clone()).or_default();
        change(held);
        if held.sas.is_empty() && held.children == 0 && held.computing == 0 {
            self.0.remove(peer);
        }
    }

    /// An IKE_SA with this identity is established.
    pub(crate) fn add_sa(&mut self, peer: &Identity, id: IkeId) {
        self.change(peer, |held| _ = held.sas.insert(id));
    }

    /// An IKE_SA with this identity has ended.
    pub(crate) fn remove_sa(&mut self, peer: &Identity, id: IkeId) {
        self.change(peer, |held| _ = held.sas.remove(&id));
    }

    /// A child with so many pieces has been installed (`more`) or has gone.
    pub(crate) fn count_child(&mut self, peer: &Identity, pieces: usize, more: bool) {
        self.change(peer, |held| {
            if more {
                held.children += 1;
                held.pieces += pieces;
            } else {
                held.children = held.children.saturating_sub(1);
                held.pieces = held.pieces.saturating_sub(pieces);
            }
        });
    }

    /// A key exchange begins to wait (`more`) or is over.
    pub(crate) fn count_computing(&mut self, peer: &Identity, more: bool) {
        self.change(peer, |held| {
            held.computing = if more { held.computing + 1 } else { held.computing.saturating_sub(1) };
        });
    }

    /// The IKE_SAs of an identity.
    pub(crate) fn sas(&self, peer: &Identity) -> impl ExactSizeIterator<Item = IkeId> {
        static NONE: BTreeSet<IkeId> = BTreeSet::new();
        self.0.get(peer).map_or(&NONE, |held| &held.sas).iter().copied()
    }

    /// Number of children of an identity.
    pub(crate) fn children(&self, peer: &Identity) -> usize {
        self.0.get(peer).map_or(0, |held| held.children)
    }

    /// Pieces of selectors of an identity.
    pub(crate) fn pieces(&self, peer: &Identity) -> usize {
        self.0.get(peer).map_or(0, |held| held.pieces)
    }

    /// Key exchanges that an identity has asked for and that are not done.
    pub(crate) fn computing(&self, peer: &Identity) -> usize {
        self.0.get(peer).map_or(0, |held| held.computing)
    }

    /// Number of identities.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}
