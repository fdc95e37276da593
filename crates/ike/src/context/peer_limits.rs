//! Limits for each authenticated identity, on all of its IKE_SAs together.

use super::Context;
use crate::child::Child;
use crate::endpoint::unique::identities;
use crate::sa::IkeSa;
use ironswan_keying::diagnosis::KeyExchange;
use ironswan_keying::limits::{KEX_PER_ID, PIECES_PER_ID};

impl Context<'_> {
    /// A child of this IKE_SA has been installed (true) or has gone.
    pub(crate) fn count_child(&mut self, sa: &IkeSa, child: &Child, more: bool) {
        if let Some((_, peer)) = identities(sa) {
            self.shared.peers.count_child(&peer, child.selectors().pieces(), more);
        }
    }

    /// A key exchange that the peer of this IKE_SA has asked for begins to wait (true) or is over.
    pub(crate) fn count_computing(&mut self, sa: &IkeSa, more: bool) {
        if let Some((_, peer)) = identities(sa) {
            self.shared.peers.count_computing(&peer, more);
        }
    }

    /// True when the peer of this IKE_SA has asked for so many key exchanges, on all of its IKE_SAs
    /// together, that another has to wait until some are done.
    pub(crate) fn computes_enough(&self, sa: &IkeSa) -> bool {
        identities(sa).is_some_and(|(_, peer)| self.shared.peers.computing(&peer) >= KEX_PER_ID)
    }

    /// Why the peer gets no child besides those that it has.
    pub(crate) fn has_too_many_children(&self, sa: &IkeSa) -> Option<KeyExchange> {
        let (max, all) = (self.limits().child_sa_max, self.limits().child_sa_max_per_id);
        if sa.children().len() >= max {
            let (holder, setting) = ("this IKE_SA".to_owned(), "child_sa_max");
            return Some(KeyExchange::ChildLimit { holder, children: max, setting });
        }
        let (_, peer) = identities(sa)?;
        let children = self.shared.peers.children(&peer);
        let (holder, setting) = (format!("'{peer}'"), "child_sa_max_per_id");
        (all > 0 && children >= all).then_some(KeyExchange::ChildLimit { holder, children, setting })
    }

    /// Into how many more pieces the peer may cut the selectors of its children.
    pub(crate) fn pieces_left(&self, sa: &IkeSa) -> usize {
        let pieces = identities(sa).map_or(0, |(_, peer)| self.shared.peers.pieces(&peer));
        PIECES_PER_ID.saturating_sub(pieces)
    }
}
