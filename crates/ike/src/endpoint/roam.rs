//! Our own addresses and routes change: what that means for every IKE_SA.
//!
//! ```text
//! network_changed -> Request::Route, one for each peer -> for each IKE_SA of that peer:
//!   no route, or no address of ours for it     nothing is sent, and the SAs stay
//!   the address is there and still the source  nothing; a silent peer is asked whether it lives
//!   another source, or the address is gone     with MOBIKE it moves (`context::mobike`); else a
//!                                              new IKE_SA from the new address, with all
//!                                              children; then the old one is deleted from there
//! ```
//! Without a route the SAs wait until there is a way again. A way to another address of the peer,
//! of the other IP version perhaps, counts as another source.
//!
//! `keying::choices::way` chooses between the lines of this table. The new IKE_SA is made by
//! whoever can initiate. `receive` follows a peer that moves behind
//! a NAT, and `unique` one that comes with a new IKE_SA.

use ironswan_keying::diagnosis::{NotDone, Path};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Instant;

use super::todo::Todo;
use super::{Close, Endpoint, Pending};
use crate::context::roam::concerned;
use crate::event::{IkeId, Request};
use crate::sa::IkeSa;
use crate::task::Task;
use crate::timer::Timer;
use ironswan_keying::choices::way::Addresses;
use ironswan_keying::limits::ROUTE_POLL;

impl Endpoint {
    /// Links, addresses or routes have changed; `addresses` are all addresses that are ours now.
    /// Cheap when nothing matters: one [`Request::Route`] for each distinct peer.
    pub(super) fn ways_changed(&mut self, addresses: &[IpAddr]) {
        self.addresses = Addresses::known(addresses);
        self.ask_paths(|_| true);
    }

    fn ask_paths(&mut self, which: impl Fn(&IkeSa) -> bool) {
        let mut peers: BTreeMap<IpAddr, Vec<IkeId>> = BTreeMap::new();
        for sa in self.sas.values().filter(|sa| concerned(sa) && which(sa)) {
            peers.entry(sa.remote().ip()).or_default().push(sa.id());
        }
        for (remote, sas) in peers {
            self.ask(Pending::Path { remote, sas }, Request::Route { remote });
        }
    }

    /// The routing table has said what it would send from to this peer.
    pub(super) fn path_known(&mut self, now: Instant, remote: IpAddr, sas: &[IkeId], route: Option<IpAddr>) {
        for id in sas {
            self.work_on(now, *id, |cx, sa| {
                if sa.remote().ip() == remote && concerned(sa) {
                    cx.judge_path(sa, route);
                }
            });
        }
    }

    /// The successor stands: deletes the old IKE_SA, from where we are now ("respond to the address
    /// and port from which the request was received", RFC 7296 section 2.11).
    pub(super) fn retire(&mut self, now: Instant, old: IkeId, new: IkeId) {
        let (Some(old), Some(successor)) = (self.heir(old), self.sas.get(&new)) else { return };
        let (local, remote) = (successor.local().ip(), successor.remote().ip());
        let carries = self.sas.get(&old).is_some_and(|old| old.shares_path(successor));
        self.work_on(now, old, |cx, sa| {
            // One that it has not come to take over from goes with it.
            if let Some(older) = sa.roam_mut().replaces.take() {
                cx.put_off(Todo::Retire { old: older, new });
            }
            let there = sa.remote().ip();
            if sa.is_blocked() && there != remote && !cx.move_clashes(sa, remote) {
                // Nothing gets to where the peer was, so that its end is told where it is now.
                sa.path().set_local_ip(local);
                sa.path().set_remote_ip(remote);
                cx.move_children(sa, there);
            } else if !cx.is_ours(sa.local().ip()) {
                sa.path().set_local_ip(local);
            }
            if sa.path().unblock() {
                cx.send_again(sa);
            }
            let ticket = sa.roam_mut().ticket.take();
            cx.done(ticket, Ok(()));
            cx.retire(sa, carries);
        });
    }

    /// The IKE_SA that should have taken over does not come up, and no more attempts are made.
    pub(super) fn stay(&mut self, now: Instant, old: IkeId) {
        let Some(old) = self.heir(old) else { return };
        self.work_on(now, old, |cx, sa| {
            if sa.roam().retired {
                return;
            }
            sa.roam_mut().leaving = false;
            let ticket = sa.roam_mut().ticket.take();
            cx.done(ticket, Err(NotDone::NotReplaced.into()));
            cx.reauthenticate_later(sa);
            if sa.stands() && !cx.is_ours(sa.local().ip()) {
                if sa.work().queued().any(|t| matches!(t, Task::DeleteIke(_))) {
                    return cx.close(sa, Close::ByUs);
                }
                let address = sa.local().ip();
                cx.close(sa, Close::Lost(Path::AddressGone { address }.into()));
            }
        });
    }

    /// The IKE_SA that has the children of this one: itself, or the last of those that it has been
    /// rekeyed to. `None`: it has ended.
    pub(super) fn heir(&self, of: IkeId) -> Option<IkeId> {
        let mut id = of;
        while self.sas.get(&id).is_none_or(|sa| sa.successor().is_some()) {
            id = self.sas.values().find(|sa| sa.predecessor() == Some(id) && sa.id() > id)?.id();
        }
        Some(id)
    }

    /// Somebody may have failed to tell that there is a way again.
    pub(super) fn ask_lost_paths(&mut self, now: Instant) {
        if self.sas.values().any(|sa| sa.is_blocked() && concerned(sa)) {
            self.shared.timers.set(Timer::Paths, now + ROUTE_POLL);
            self.ask_paths(|sa| sa.is_blocked());
        }
    }
}
