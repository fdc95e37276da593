//! `unique` and INITIAL_CONTACT (RFC 7296 section 2.4): describes the IKE_SAs with the same pair of
//! identities as a new one to `keying::choices::contact`, and carries out what that chooses.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Instant;

use ironswan_wire::id::Identity;

use super::close::remove_from;
use super::{Close, Endpoint};
use crate::child::Child;
use crate::context::lifecycle::names_in_work;
use crate::event::{ChildState, IkeId, IkeState, Level};
use crate::narrow;
use crate::sa::IkeSa;
use crate::task::{DeleteChild, DeleteIke, Task, liveness};
use crate::timer::Timer;
use ironswan_keying::Diagnosis;
use ironswan_keying::choices::contact::{self, Leaving, Older, Present, Room};
use ironswan_keying::diagnosis::Authentication;
use ironswan_keying::limits::TWIN_DELETE;

/// Both identities of an IKE_SA, as `Endpoint::by_ids` has them: names without regard to case.
pub(crate) fn identities(sa: &IkeSa) -> Option<(Identity, Identity)> {
    Some((sa.local_id().folded(), sa.remote_id()?.folded()))
}

impl Endpoint {
    /// An IKE_SA is established: it is found by its identities from now on.
    pub(crate) fn index_identities(&mut self, sa: &IkeSa) {
        let Some(ids) = identities(sa) else { return };
        self.shared.peers.add_sa(&ids.1, sa.id());
        self.by_ids.entry(ids).or_default().insert(sa.id());
    }

    /// An IKE_SA has ended, or been replaced.
    pub(crate) fn forget_identities(&mut self, sa: &IkeSa) {
        let Some(ids) = identities(sa) else { return };
        remove_from(&mut self.by_ids, &ids, sa.id());
        self.shared.peers.remove_sa(&ids.1, sa.id());
    }

    /// Decides whether the peer, which has just been authenticated, gets this IKE_SA, and ends the
    /// IKE_SAs that the new one replaces. The error says why the peer does not get it.
    pub(crate) fn admit(
        &mut self,
        now: Instant,
        sa: &mut IkeSa,
        peer: &Identity,
        initial_contact: bool,
    ) -> Result<(), Diagnosis> {
        let Some(leaving) = self.check_unique(sa, peer, initial_contact) else {
            return Err(Authentication::KeptOther.into());
        };
        // An IKE_SA of our own making is not limited.
        if !sa.is_initiator()
            && let Some(why) = self.make_room(now, sa, peer, &leaving)
        {
            self.shared.counters.id_refused += 1;
            return Err(why.into());
        }
        self.end_replaced(now, sa, peer, leaving);
        self.win_race(now, sa);
        Ok(())
    }

    /// Why the peer, which has just been authenticated, gets this IKE_SA not besides those that it
    /// has. Makes room for it, or asks for room to come, as [`Self::room_for`] says.
    fn make_room(
        &mut self,
        now: Instant,
        new: &IkeSa,
        peer: &Identity,
        leaving: &Leaving,
    ) -> Option<Authentication> {
        match self.room_for(now, new, peer, leaving) {
            Room::Enough => None,
            Room::Ending(old) => {
                self.work_on(now, old, |cx, old| cx.last_delete(old));
                None
            }
            Room::Dead(old) => {
                self.with_sa(now, old, |ep, old| {
                    let line = format!("'{peer}' does not answer, and has come back from the same address");
                    ep.log(Level::Info, old, line);
                    ep.close_ike(now, old, Close::Forgotten);
                });
                None
            }
            Room::Full(asked) => {
                for id in asked {
                    self.work_on(now, id, |_, sa| liveness::queue(sa));
                }
                let (max, setting) = (self.limits().ike_sa_max_per_id, "ike_sa_max_per_id");
                Some(Authentication::IkeLimit { peer: Some(peer.clone()), max, setting })
            }
        }
    }

    /// Describes the IKE_SAs of a peer that may have reached its limit, and has policy choose.
    fn room_for(&self, now: Instant, new: &IkeSa, peer: &Identity, leaving: &Leaving) -> Room {
        let (max, peer) = (self.limits().ike_sa_max_per_id, peer.folded());
        if !contact::is_full(self.shared.peers.sas(&peer).len(), max) {
            return Room::Enough;
        }
        let present = self.shared.peers.sas(&peer).filter_map(|id| self.sas.get(&id)).map(|sa| Present {
            id: sa.id(),
            stays: sa.stands()
                && !sa.roam().retired
                && !sa.work().queued().any(|t| matches!(t, Task::DeleteIke(_))),
            silent: now.saturating_duration_since(sa.signs().last_in),
            same_address: sa.remote().ip() == new.remote().ip(),
            same_port: sa.remote() == new.remote(),
            unanswered: sa.work().active().map(|active| active.tries),
            has_way: !sa.is_blocked(),
        });
        contact::room(max, &present.collect::<Vec<_>>(), leaving)
    }

    /// The peer has just been authenticated: other IKE_SAs with the same pair of identities that
    /// end once this one is let in ([`Self::end_replaced`]). `None`: it is refused.
    fn check_unique(&mut self, sa: &IkeSa, remote_id: &Identity, initial_contact: bool) -> Option<Leaving> {
        let ids = self.by_ids.get(&(sa.local_id().folded(), remote_id.folded())).into_iter().flatten();
        let asked = |other: &IkeSa| other.asked().zip(sa.asked()).map(|(other, new)| other.at.cmp(&new.at));
        let others = ids.filter(|id| **id != sa.id()).filter_map(|id| self.sas.get(id)).map(|other| Older {
            id: other.id(),
            stands: other.stands(),
            before: other.established().is_some_and(|at| at <= sa.created())
                || asked(other) == Some(Ordering::Less),
            later: asked(other) == Some(Ordering::Greater),
            initial_contact: other.asked().is_some_and(|asked| asked.initial_contact),
            // [`Self::collapse`] settles these.
            crossed: crossed(sa, other),
        });
        let leaving = contact::duplicates(sa.conn().unique, initial_contact, &others.collect::<Vec<_>>());
        if leaving.is_none() {
            let line = format!("keeping existing IKE_SA for peer '{remote_id}', refusing the new one");
            self.log(Level::Warn, sa, line);
        }
        leaving
    }

    /// Ends what a new IKE_SA replaces.
    fn end_replaced(&mut self, now: Instant, sa: &IkeSa, remote_id: &Identity, leaving: Leaving) {
        for id in leaving.forgotten {
            let line =
                format!("destroying duplicate IKE_SA for peer '{remote_id}', received INITIAL_CONTACT");
            self.log(Level::Info, sa, line);
            self.with_sa(now, id, |ep, old| ep.close_ike(now, old, Close::Forgotten));
        }
        for id in leaving.replaced {
            let line = format!("deleting duplicate IKE_SA for peer '{remote_id}' due to uniqueness policy");
            self.log(Level::Info, sa, line);
            self.work_on(now, id, |cx, old| cx.retire(old, old.shares_path(sa)));
        }
    }

    /// Both sides have initiated at once, and both IKE_SAs are up with the same children: the
    /// initiator of the one with the lower SPI deletes that one. Both sides know both SPIs, so they
    /// agree without a word. A peer that knows nothing of this is given some time, then (`late`)
    /// its IKE_SA is deleted from here.
    pub(crate) fn collapse(&mut self, now: Instant, id: IkeId, late: bool) {
        self.collapse_children(now, id);
        let Some(sa) = self.sas.get(&id) else { return };
        if !contact::counts_identities(sa.conn().unique) || !settled(sa) {
            return;
        }
        let Some(ids) = identities(sa) else { return };
        if let Some(attempt) = self.needless_attempt(sa) {
            self.with_sa(now, attempt, |ep, sa| {
                ep.log(
                    Level::Info,
                    sa,
                    "the peer has initiated meanwhile, this attempt is not needed any more",
                );
                for task in sa.work_mut().take_queue() {
                    if let Task::Child(new) = task {
                        ep.abandon(&new);
                        ep.done(new.ticket, Ok(()));
                    }
                }
                let ticket = sa.attempt_mut().ticket.take();
                ep.done(ticket, Ok(()));
                ep.close_ike(now, sa, Close::Replaced);
            });
            // There may be another, at another address.
            return self.collapse(now, id, late);
        }
        let twins = self.by_ids.get(&ids).into_iter().flatten();
        let twin = twins
            .filter_map(|other| self.sas.get(other))
            .find(|o| o.id() != id && crossed(sa, o) && settled(o) && Arc::ptr_eq(o.conn(), sa.conn()));
        let Some(twin) = twin else { return };
        let (loser, winner) = if sa.spi_i() < twin.spi_i() { (sa, twin) } else { (twin, sa) };
        let covered = |c: &Child| {
            winner.children().any(|w| {
                w.config().name == c.config().name
                    && w.agreed().local_ts == c.agreed().local_ts
                    && w.agreed().remote_ts == c.agreed().remote_ts
            })
        };
        if !loser.children().all(covered) || (late && loser.id() != id) {
            return;
        }
        if !loser.is_initiator() && !late {
            let id = loser.id();
            return self.shared.timers.set(Timer::Twin(id), now + TWIN_DELETE);
        }
        let line =
            format!("both sides have initiated, IKE_SA {} stays and {} goes", winner.name(), loser.name());
        let loser = loser.id();
        self.with_sa(now, loser, |ep, sa| {
            ep.log(Level::Info, sa, line);
            sa.work_mut().push(Task::DeleteIke(DeleteIke::default()));
        });
    }
}

impl Endpoint {
    /// Both sides have asked for one child at once, on one IKE_SA, and both have got it: the one
    /// whose initiator has the lower SPI goes, by its initiator. A peer that knows nothing of this
    /// leaves its own, which does no harm.
    fn collapse_children(&mut self, now: Instant, id: IkeId) {
        let Some(sa) = self.sas.get(&id).filter(|sa| sa.stands()) else { return };
        let stand = |c: &&Child| c.is_announced() && c.state() == ChildState::Installed;
        let lower = |ours: &Child, theirs: &Child| {
            ours.config().name == theirs.config().name
                && ours.agreed().local_ts == theirs.agreed().local_ts
                && ours.agreed().remote_ts == theirs.agreed().remote_ts
                && ours.spi_in() < theirs.spi_out()
        };
        let begun = |by_us: bool| sa.children().filter(stand).filter(move |c| c.begun_by_us() == Some(by_us));
        let Some(loser) = begun(true).find(|ours| begun(false).any(|theirs| lower(ours, theirs))) else {
            return;
        };
        let line = format!("both sides have initiated, CHILD_SA {} goes", loser.name());
        let task = Task::DeleteChild(DeleteChild::of(vec![loser.id()], None));
        self.with_sa(now, id, |ep, sa| {
            ep.log(Level::Info, sa, line);
            sa.work_mut().push(task);
        });
    }

    /// An attempt of ours that the peer has not answered yet, while `up` has come up at the peer's
    /// initiative with all that the attempt is for. (Once it is answered, both sides may have it,
    /// and [`Endpoint::collapse`] decides.)
    fn needless_attempt(&self, up: &IkeSa) -> Option<IkeId> {
        if up.is_initiator() {
            return None;
        }
        // With all that is configured: the peer may have asked for less than it would have given.
        let whole = |c: &Child| {
            let ours = narrow::resolve(&c.config().local_ts, up.local().ip());
            let theirs = narrow::resolve(&c.config().remote_ts, up.remote().ip());
            narrow::covers(&c.agreed().local_ts, &ours) && narrow::covers(&c.agreed().remote_ts, &theirs)
        };
        let stands =
            |name: &str| up.children().any(|c| c.config().name == name && c.is_announced() && whole(c));
        // Of a connection that is open to others as well, it may be one of these.
        if !self.policy().hosts(&up.conn().remote_addrs).contains(&up.remote().ip()) {
            return None;
        }
        let needless = |sa: &&IkeSa| {
            sa.is_initiator()
                && !sa.is_up()
                && !sa.is_dead()
                && sa.spi_r() == 0
                && sa.roam().replaces.is_none()
                && Arc::ptr_eq(sa.conn(), up.conn())
                && names_in_work(sa).all(stands)
                && (names_in_work(sa).next().is_some() || sa.attempt().ticket.is_some())
        };
        let same = self.by_conn.get(&up.conn().name).into_iter().flatten();
        same.filter_map(|id| self.sas.get(id).map(|sa| &**sa)).find(needless).map(|sa| sa.id())
    }
}

/// Established, and with nothing on its way.
fn settled(sa: &IkeSa) -> bool {
    sa.state() == IkeState::Established && sa.is_idle()
}

/// Each was begun by another side, before the other one was up, and both are with one peer: between
/// the same addresses, or of a connection that is for one peer only, which may have several
/// addresses. One that another takes over from ends by that: the peer may have rekeyed it
/// meanwhile, so that it has another initiator.
fn crossed(a: &IkeSa, b: &IkeSa) -> bool {
    let before = |x: &IkeSa, y: &IkeSa| y.established().is_none_or(|t| x.created() <= t);
    let same_addrs = a.remote().ip() == b.remote().ip() && a.local().ip() == b.local().ip();
    let leaving = a.roam().leaving || b.roam().leaving;
    a.is_initiator() != b.is_initiator()
        && !leaving
        && (same_addrs || (Arc::ptr_eq(a.conn(), b.conn()) && a.conn().is_for_one_peer()))
        && before(a, b)
        && before(b, a)
}
