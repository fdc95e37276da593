//! Our own addresses and routes change: what that means for every IKE_SA.
//!
//! ```text
//! network_changed -> Request::Route, one for each peer -> for each IKE_SA of that peer:
//!   no route, or no address of ours for it     nothing is sent; the SAs stay until there is a way again, or until one to
//!                                              another address of the peer (another IP version) is found: as below
//!   the address is there and still the source  nothing; the peer is asked whether it lives when it has been silent
//!   another source, or the address is gone     a new IKE_SA from the new address, with all the children; then the old
//!                                              one is deleted, from the new address as well
//! ```
//!
//! `keying::choices::way` chooses between the lines of this table. The new IKE_SA is made by
//! whoever can initiate. MOBIKE (RFC 4555) is not here. `receive` follows a peer that moves behind
//! a NAT, and `unique` one that comes with a new IKE_SA.

use ironswan_keying::diagnosis::{NotDone, Path};
use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::Instant;

use super::context::Context;
use super::lifecycle::names_in_work;
use super::todo::Todo;
use super::{Close, Endpoint, Pending};
use crate::event::{ChildState, IkeId, IkeState, Level, Request};
use crate::sa::IkeSa;
use crate::task::{DeleteIke, Task, liveness};
use crate::timer::Timer;
use ironswan_keying::choices::way::{self, Addresses, Way};
use ironswan_keying::limits::{ROAM_PROBE_SPREAD, ROUTE_POLL};
use ironswan_keying::{Report, jitter};

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
    pub(super) fn retire(&mut self, now: Instant, old: IkeId, local: IpAddr, remote: IpAddr) {
        let Some(old) = self.heir(old) else { return };
        self.work_on(now, old, |cx, sa| {
            // One that it has not come to take over from goes with it.
            if let Some(older) = sa.roam_mut().replaces.take() {
                cx.todo.push_back(Todo::Retire { old: older, local, remote });
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
            if !matches!(sa.state(), IkeState::Deleting | IkeState::Rekeyed) {
                sa.work_mut().push_first(Task::DeleteIke(DeleteIke::default()));
            }
        });
    }

    /// The IKE_SA that should have taken over does not come up, and no more attempts are made.
    pub(super) fn stay(&mut self, now: Instant, old: IkeId) {
        let Some(old) = self.heir(old) else { return };
        self.work_on(now, old, |cx, sa| {
            sa.roam_mut().leaving = false;
            if matches!(sa.state(), IkeState::Established | IkeState::Rekeying)
                && !cx.is_ours(sa.local().ip())
            {
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
            self.timers.set(Timer::Paths, now + ROUTE_POLL);
            self.ask_paths(|sa| sa.is_blocked());
        }
    }
}

impl Context<'_> {
    /// True when this address is ours, as far as we have been told: of those that other machines
    /// can be reached from.
    pub(crate) fn is_ours(&self, addr: IpAddr) -> bool {
        self.addresses.has(addr)
    }

    /// The routing table would send from `route` to the peer; `None`: it has no route.
    fn judge_path(&mut self, sa: &mut IkeSa, route: Option<IpAddr>) {
        let ours = sa.local().ip();
        let chosen = way::choose(self.policy, sa.conn(), self.addresses, ours, route);
        let Way::From { to, there } = chosen else {
            return if chosen == Way::Same { self.have_path(sa) } else { self.lose_path(sa) };
        };
        if sa.is_up() {
            if !sa.roam().leaving {
                self.move_to(sa, to, there);
            }
        } else if sa.spi_r() != 0 {
            // The peer may have established it already. It is brought to its end from here, so that
            // it can be deleted, and made anew then.
            sa.path().set_local_ip(to);
            sa.roam_mut().misplaced = true;
            sa.path().unblock();
            self.send_again(sa);
        } else {
            let why = Path::AddressChanged { from: ours, to };
            self.close(sa, Close::Rerouted(why.into()));
        }
    }

    /// Nothing can be sent: what is under way waits, and nothing is held against the peer.
    fn lose_path(&mut self, sa: &mut IkeSa) {
        self.timers.set(Timer::Paths, self.now + ROUTE_POLL);
        if sa.path().block() {
            return;
        }
        for timer in [Timer::Retransmit(sa.id()), Timer::Keepalive(sa.id()), Timer::Liveness(sa.id())] {
            self.timers.cancel(timer);
        }
        let why = Path::NoWay { remote: sa.remote().ip(), ike: sa.name() };
        self.log_why(Level::Warn, sa, "", &why.into());
        let other = way::elsewhere(self.policy, &sa.conn().name, sa.remote().ip());
        if sa.is_up() && !sa.roam().leaving && other.is_some() {
            let roam = sa.roam_mut();
            (roam.leaving, roam.elsewhere) = (true, true);
            self.succeed(sa, other);
        }
    }

    fn have_path(&mut self, sa: &mut IkeSa) {
        if !sa.path().unblock() {
            if sa.is_up() && way::asks_for_life(self.now.saturating_duration_since(sa.signs().last_in)) {
                sa.roam_mut().probe = true;
                let at = self.now + jitter::part(&mut self.rng, ROAM_PROBE_SPREAD);
                self.timers.set(Timer::Liveness(sa.id()), at);
            }
            return;
        }
        let line = format!("there is a way to {} again, IKE_SA {} goes on", sa.remote().ip(), sa.name());
        self.log(Level::Info, sa, line);
        if std::mem::take(&mut sa.roam_mut().elsewhere) {
            // Attempts to come find that nobody is leaving any more.
            sa.roam_mut().leaving = false;
        }
        self.send_again(sa);
        if sa.is_up() {
            if sa.work().active().is_none() {
                liveness::queue(sa);
            }
            liveness::rearm(self, sa);
            liveness::rearm_keepalive(self, sa);
        }
    }

    /// Another IKE_SA, from the address that is right now, takes over.
    fn move_to(&mut self, sa: &mut IkeSa, to: IpAddr, there: bool) {
        let possible = way::can_take_over(self.policy, &sa.conn().name);
        let line =
            format!("our address for {} has changed from {} to {to}", sa.remote().ip(), sa.local().ip());
        self.log(Level::Info, sa, line);
        if !possible {
            self.log_why(Level::Warn, sa, "the peer has to initiate anew", &NotDone::NoAddress.into());
            return;
        }
        sa.roam_mut().leaving = true;
        if !there {
            // The old way is gone; the request in flight waits for the new address.
            self.lose_path(sa);
        }
        self.succeed(sa, Some(sa.remote().ip()));
    }

    /// Begins the IKE_SA that is to take over, with all the children, to this address of the peer
    /// first.
    fn succeed(&mut self, sa: &IkeSa, prefer: Option<IpAddr>) {
        let (conn, children) = (sa.conn().name.clone(), children_wanted(sa));
        self.report(Report::TakeOver { ike: sa.id(), conn, children, prefer });
    }

    /// This IKE_SA cannot be rekeyed, for this reason: a new one, with all the children, takes over
    /// before the old one ends. A peer may take no successor of what it has ("minimal
    /// implementations", RFC 7296 section 4).
    pub(crate) fn renew(&mut self, sa: &mut IkeSa, why: &str) {
        if !way::can_take_over(self.policy, &sa.conn().name) {
            self.log_why(Level::Warn, sa, why, &NotDone::NoAddress.into());
        } else if !std::mem::replace(&mut sa.roam_mut().leaving, true) {
            let line = format!("{why}, a new IKE_SA takes over from {}", sa.name());
            self.log(Level::Info, sa, line);
            self.succeed(sa, Some(sa.remote().ip()));
        }
    }

    /// Called when something has been done on an IKE_SA. If it was made to take over from another,
    /// and has nothing left to do, that one can go.
    pub(crate) fn moved_on(&mut self, sa: &mut IkeSa) {
        if sa.is_dead() {
            return;
        }
        if sa.is_up() && std::mem::take(&mut sa.roam_mut().misplaced) {
            self.move_to(sa, sa.local().ip(), true);
        }
        if sa.is_up()
            && sa.is_idle()
            && let Some(old) = sa.roam_mut().replaces.take()
        {
            self.todo.push_back(Todo::Retire { old, local: sa.local().ip(), remote: sa.remote().ip() });
        }
    }

    /// Sends the request in flight once more, and counts its retransmissions from the beginning.
    fn send_again(&mut self, sa: &mut IkeSa) {
        let (local, remote) = (sa.local(), sa.remote());
        let Some(active) = sa.work_mut().active_mut() else { return };
        (active.tries, active.unsent) = (0, None);
        let bytes = active.bytes.clone();
        self.transmit_of(sa, local, remote, &bytes);
        self.timers.set(Timer::Retransmit(sa.id()), self.now + self.limits().retransmit_timeout);
    }
}

/// One that a change of ways means something to: established, or an attempt of ours.
fn concerned(sa: &IkeSa) -> bool {
    !sa.is_dead()
        && !sa.remote().ip().is_unspecified()
        && match sa.state() {
            IkeState::Established | IkeState::Rekeying => true,
            IkeState::Created | IkeState::Connecting => {
                sa.is_initiator() && !sa.is_up() && !sa.local().ip().is_unspecified()
            }
            IkeState::Rekeyed | IkeState::Deleting => false,
        }
}

/// Names of the children that stand or are on their way; `None` alone for an IKE_SA without any.
fn children_wanted(sa: &IkeSa) -> Vec<Option<String>> {
    let live = |s| matches!(s, ChildState::Installed | ChildState::Rekeying | ChildState::Installing);
    let standing = sa.children().filter(|c| live(c.state)).map(|c| c.config.name.as_str());
    let names: BTreeSet<&str> = standing.chain(names_in_work(sa)).collect();
    match names.is_empty() {
        true => vec![None],
        false => names.into_iter().map(|n| Some(n.to_owned())).collect(),
    }
}
