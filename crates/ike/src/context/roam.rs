//! One IKE_SA while our addresses and routes change.

use super::Context;
use super::lifecycle::names_in_work;
use crate::endpoint::todo::Todo;
use crate::event::{ChildState, IkeState, Level};
use crate::sa::IkeSa;
use crate::task::{DeleteIke, Task, liveness, path_probe};
use crate::timer::Timer;
use ironswan_keying::Close;
use ironswan_keying::choices::way::{self, Way};
use ironswan_keying::diagnosis::{NotDone, Path};
use ironswan_keying::limits::{RETIRED_DELETE, ROAM_PROBE_SPREAD, ROUTE_POLL};
use ironswan_keying::{Report, jitter};
use std::collections::BTreeSet;
use std::net::IpAddr;

impl Context<'_> {
    /// True when this address is ours, as far as we have been told: of those that other machines
    /// can be reached from.
    pub(crate) fn is_ours(&self, addr: IpAddr) -> bool {
        self.settings.addresses.has(addr)
    }

    /// The routing table would send from `route` to the peer; `None`: it has no route.
    pub(crate) fn judge_path(&mut self, sa: &mut IkeSa, route: Option<IpAddr>) {
        let ours = sa.local().ip();
        let chosen = way::choose(self.settings.policy, sa.conn(), self.settings.addresses, ours, route);
        let Way::From { to, there } = chosen else {
            if chosen == Way::Same {
                self.have_path(sa);
                return self.tell_addresses(sa);
            }
            return self.lose_path(sa);
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
        self.shared.timers.set(Timer::Paths, self.now + ROUTE_POLL);
        if sa.path().block() {
            return;
        }
        for timer in [Timer::Retransmit(sa.id()), Timer::Keepalive(sa.id()), Timer::Liveness(sa.id())] {
            self.shared.timers.cancel(timer);
        }
        let why = Path::NoWay { remote: sa.remote().ip(), ike: sa.name() };
        self.log_why(Level::Warn, sa, "", &why.into());
        let other = way::elsewhere(self.settings.policy, &sa.conn().name, sa.remote().ip());
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
                let at = self.now + jitter::part(&mut self.shared.rng, ROAM_PROBE_SPREAD);
                self.shared.timers.set(Timer::Liveness(sa.id()), at);
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
            path_probe::begin(self, sa);
        }
    }

    /// Another IKE_SA, from the address that is right now, takes over.
    fn move_to(&mut self, sa: &mut IkeSa, to: IpAddr, there: bool) {
        if self.can_move(sa) {
            return self.relocate(sa, to, sa.remote().ip());
        }
        let possible = way::can_take_over(self.settings.policy, &sa.conn().name);
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
        if !way::can_take_over(self.settings.policy, &sa.conn().name) {
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
            self.shared.todo.push_back(Todo::Retire { old, new: sa.id() });
        }
    }

    /// Another IKE_SA has taken over from this one, which is to be deleted. While packets may be
    /// under way on its CHILD_SAs (`carries`), the DELETE waits for them.
    pub(crate) fn retire(&mut self, sa: &mut IkeSa, carries: bool) {
        if !carries || !sa.stands() {
            return self.delete_retired(sa);
        }
        if !sa.roam_mut().leave() {
            let (name, seconds) = (sa.name(), RETIRED_DELETE.as_secs());
            let line = format!("another IKE_SA has taken over from {name}, which is deleted in {seconds}s");
            self.log(Level::Info, sa, line);
            self.shared.timers.set(Timer::Retire(sa.id()), self.now + RETIRED_DELETE);
        }
    }

    /// Deletes an IKE_SA from which another one has taken over, unless its end is under way.
    pub(crate) fn delete_retired(&mut self, sa: &mut IkeSa) {
        if !sa.stands() {
            return;
        }
        if !self.is_ours(sa.local().ip()) {
            // Our address has gone while the DELETE waited. The peer has the new IKE_SA.
            return self.last_delete(sa);
        }
        sa.work_mut().push_first(Task::DeleteIke(DeleteIke::default()));
    }

    /// Sends the request in flight once more, and counts its retransmissions from the beginning.
    pub(crate) fn send_again(&mut self, sa: &mut IkeSa) {
        let (local, remote) = (sa.local(), sa.remote());
        if path_probe::give_way(self, sa) {
            return;
        }
        let Some(active) = sa.work_mut().active_mut() else { return };
        active.elsewhere(self.now);
        let bytes = active.bytes.clone();
        self.transmit_all(sa, (local, remote), &bytes);
        self.test_paths(sa, 0, &bytes);
        self.shared.timers.set(Timer::Retransmit(sa.id()), self.now + self.limits().retransmit_timeout);
    }
}

/// One that a change of ways means something to: established, or an attempt of ours.
pub(crate) fn concerned(sa: &IkeSa) -> bool {
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
    let standing = sa.children().filter(|c| live(c.state())).map(|c| c.config().name.as_str());
    let names: BTreeSet<&str> = standing.chain(names_in_work(sa)).collect();
    match names.is_empty() {
        true => vec![None],
        false => names.into_iter().map(|n| Some(n.to_owned())).collect(),
    }
}
