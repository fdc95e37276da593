//! Answers about other IKE_SAs, from the table.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use ironswan_wire::id::{IdPattern, Identity};
use ironswan_wire::sadb::{Mode, ReqId};
use ironswan_wire::selector::TrafficSelector;

use super::handover::Older;
use super::unique::identities;
use crate::child::{Agreed, Child};
use crate::context::Others;
use crate::event::{ChildId, ChildState, IkeId, IkeState};
use crate::sa::IkeSa;
use crate::task::Task;
use ironswan_keying::Policy;
use ironswan_keying::choices::contact;

/// The table of IKE_SAs, without the one that asks.
pub(super) struct Neighbours<'a> {
    pub(super) sas: &'a BTreeMap<IkeId, Box<IkeSa>>,
    pub(super) by_conn: &'a BTreeMap<String, BTreeSet<IkeId>>,
    pub(super) by_ids: &'a BTreeMap<(Identity, Identity), BTreeSet<IkeId>>,
}

impl Others for Neighbours<'_> {
    fn stands(&self, id: IkeId) -> bool {
        self.sas.contains_key(&id)
    }

    fn predecessors(&self, of: &IkeSa, most: usize) -> usize {
        let there = |id: &IkeId| self.sas.contains_key(id);
        let before = |id: &IkeId| self.sas.get(id).and_then(|sa| sa.predecessor()).filter(there);
        std::iter::successors(of.predecessor().filter(there), before).take(most).count()
    }

    /// Another peer that has a transport-mode child with some of the same selectors: two hosts
    /// behind one NAT. What is sent to their common address would reach one of them only, or the
    /// wrong one; "implementors MUST devise ways of preventing this from occurring" (RFC 3948
    /// section 5.2).
    fn same_host(&self, sa: &IkeSa, agreed: &Agreed) -> Option<String> {
        if agreed.mode != Mode::Transport || !sa.nat().remote {
            return None;
        }
        let meet = |a: &[TrafficSelector], b: &[TrafficSelector]| {
            a.iter().any(|a| b.iter().any(|b| a.intersect(b).is_some()))
        };
        let same = |c: &Child| {
            let c = c.agreed();
            c.mode == Mode::Transport
                && meet(&c.remote_ts, &agreed.remote_ts)
                && meet(&c.local_ts, &agreed.local_ts)
        };
        let there = |o: &IkeSa| o.remote().ip() == sa.remote().ip() && o.remote_id() != sa.remote_id();
        let other = |o: &IkeSa| there(o) && o.children().any(same);
        self.sas.values().find(|o| other(o)).map(|o| o.ends())
    }

    /// True when this attempt is the only IKE_SA between us and the peer: no other stands, is on
    /// its way out, or is being initiated, of whatever connection. Where the connection does not
    /// name one identity, the peer is whoever is at its addresses. What others initiate counts only
    /// when it is authenticated.
    fn is_initial_contact(&self, sa: &IkeSa, policy: &dyn Policy) -> bool {
        if !contact::counts_identities(sa.conn().unique) {
            return false;
        }
        let ours = sa.local_id().folded();
        if let IdPattern::Exact(id) = &sa.conn().remote_id
            && let Some(ids) = self.by_ids.get(&(ours.clone(), id.folded()))
            && ids.iter().any(|id| *id != sa.id())
        {
            return false;
        }
        let here: BTreeSet<IpAddr> =
            policy.hosts(&sa.conn().remote_addrs).into_iter().chain([sa.remote().ip()]).collect();
        let same_peer = |o: &IkeSa| {
            // Only one of those that are for the same tunnel will stand: the first that has come so
            // far may say it.
            let beside =
                sa.attempt().race.is_some() && o.attempt().race == sa.attempt().race && !asks_to_be_let_in(o);
            if o.id() == sa.id() || beside || o.is_dead() || taken_back(o) || o.local_id().folded() != ours {
                return false;
            }
            let id = match o.remote_id() {
                Some(id) => IdPattern::Exact(id.clone()),
                None => o.conn().remote_id.clone(),
            };
            let here = here.contains(&o.remote().ip());
            (o.is_up() || o.is_initiator()) && contact::may_be_one_peer(&sa.conn().remote_id, &id, here)
        };
        let names = policy.that_may_meet(sa.conn(), &here);
        let known = names.iter().filter_map(|name| self.by_conn.get(name)).flatten();
        let moved = self.by_conn.get(&sa.conn().name).into_iter().flatten();
        !known.chain(moved).filter_map(|id| self.sas.get(id)).any(|o| same_peer(o))
    }

    fn older(
        &self,
        sa: &IkeSa,
        (reqid, agreed): (ReqId, &Agreed),
        has_heir: &dyn Fn(ChildId) -> bool,
    ) -> Option<Older> {
        let ids = self.by_ids.get(&identities(sa)?)?;
        let same = |c: &&Child| {
            c.reqid() == reqid
                && c.replaced_by().is_none()
                && !has_heir(c.id())
                && c.state() != ChildState::Deleting
                && c.agreed().local_ts == agreed.local_ts
                && c.agreed().remote_ts == agreed.remote_ts
        };
        let others = ids.iter().filter(|id| **id != sa.id()).filter_map(|id| self.sas.get(id));
        others.filter(|o| o.stands()).find_map(|o| {
            let child = o.children().find(same)?;
            let (sends, same_path) = (child.sends(), o.shares_path(sa));
            Some(Older { child: child.id(), spi_out: child.spi_out(), sends, same_path })
        })
    }

    fn sender(&self, ike: IkeId, child: ChildId) -> Option<(String, bool)> {
        let sa = self.sas.get(&ike)?;
        let installed = sa.child(child).is_some_and(Child::sends);
        Some((sa.conn().name.clone(), installed))
    }
}

/// An attempt of ours that was let go: it does not stand here, and is not to stand at the peer.
fn taken_back(sa: &IkeSa) -> bool {
    sa.state() == IkeState::Rekeyed && !sa.is_up()
}

/// IKE_AUTH is under way.
fn asks_to_be_let_in(sa: &IkeSa) -> bool {
    sa.work().active().is_some_and(|a| matches!(a.task, Task::Auth(_)))
}
