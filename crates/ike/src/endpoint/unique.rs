//! `unique` and INITIAL_CONTACT (RFC 7296 section 2.4): what a new IKE_SA means for those with the
//! same pair of identities.

use std::sync::Arc;
use std::time::Instant;

use ironswan_wire::id::Identity;

use super::close::remove_from;
use super::lifecycle::names_in_work;
use super::{Close, Endpoint};
use crate::child::Child;
use crate::event::{IkeId, IkeState, Level};
use crate::narrow;
use crate::sa::IkeSa;
use crate::task::{DeleteIke, Task, liveness};
use crate::timer::Timer;
use ironswan_keying::diagnosis::Authentication;
use ironswan_keying::limits::{ENDING_PER_ID, FULL_PROBES, FULL_SILENCE, TWIN_DELETE, UNANSWERED_DEAD};
use ironswan_keying::{Diagnosis, Unique};

/// Both identities of an IKE_SA, as `Endpoint::by_ids` has them: names without regard to case.
pub(crate) fn identities(sa: &IkeSa) -> Option<(Identity, Identity)> {
    Some((sa.local_id.folded(), sa.remote_id.as_ref()?.folded()))
}

/// Whether an authenticated peer gets an IKE_SA besides those that it has.
enum Room {
    Enough,
    /// The peer gets it in place of this one, whose DELETE the peer does not answer.
    Ending(IkeId),
    /// The peer gets it in place of this one at its own address, which is dead.
    Dead(IkeId),
    /// The peer does not get it. These IKE_SAs have been silent and are asked whether they live.
    Full(Vec<IkeId>),
}

/// IKE_SAs that end for a new one.
#[derive(Default)]
pub(crate) struct Leaving {
    /// The peer has lost these.
    forgotten: Vec<IkeId>,
    /// The new one replaces these: they are deleted.
    replaced: Vec<IkeId>,
}

impl Leaving {
    fn has(&self, id: IkeId) -> bool {
        self.forgotten.contains(&id) || self.replaced.contains(&id)
    }
}

impl Endpoint {
    /// An IKE_SA is established: it is found by its identities from now on.
    pub(crate) fn index_identities(&mut self, sa: &IkeSa) {
        let Some(ids) = identities(sa) else { return };
        self.peers.add_sa(&ids.1, sa.id);
        self.by_ids.entry(ids).or_default().insert(sa.id);
    }

    /// An IKE_SA has ended, or been replaced.
    pub(crate) fn forget_identities(&mut self, sa: &IkeSa) {
        let Some(ids) = identities(sa) else { return };
        remove_from(&mut self.by_ids, &ids, sa.id);
        self.peers.remove_sa(&ids.1, sa.id);
    }

    /// Decides whether the peer, which has just been authenticated, gets this IKE_SA, and ends the
    /// IKE_SAs that the new one replaces. The error says why the peer does not get it.
    pub(super) fn admit(
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
        if !sa.initiator
            && let Some(why) = self.make_room(now, sa, peer, &leaving)
        {
            self.counters.id_refused += 1;
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

    /// IKE_SAs that are on their way out do not count, and one that takes the place of another is
    /// let in, also when the limit has been lowered meanwhile; a rekeying never comes here.
    ///
    /// Dead ones do not keep the peer out for hours: some of those that have been silent are asked
    /// whether they live, those at the address of the newcomer first, and one there that has not
    /// answered for a while gives way at once.
    fn room_for(&self, now: Instant, new: &IkeSa, peer: &Identity, leaving: &Leaving) -> Room {
        let max = self.limits().ike_sa_max_per_id;
        let peer = peer.folded();
        let count = self.peers.sas(&peer).len();
        if max == 0 || count < max {
            return Room::Enough;
        }
        let stays = |sa: &&IkeSa| {
            matches!(sa.state, IkeState::Established | IkeState::Rekeying)
                && !sa.queue.iter().any(|t| matches!(t, Task::DeleteIke(_)))
        };
        let all = || self.peers.sas(&peer).filter_map(|id| self.sas.get(&id)).map(|sa| &**sa);
        let stay: Vec<&IkeSa> = all().filter(stays).collect();
        let replaces = stay.iter().any(|sa| leaving.has(sa.id));
        if replaces || stay.len() < max {
            // A peer need not answer a DELETE.
            let many = count - stay.len() >= max.saturating_add(ENDING_PER_ID);
            let old = all().find(|sa| many && !stays(sa));
            return old.map_or(Room::Enough, |sa| Room::Ending(sa.id));
        }
        let silent = |sa: &&IkeSa| now.saturating_duration_since(sa.last_in) >= FULL_SILENCE;
        let elsewhere = |sa: &IkeSa| (sa.remote.ip() != new.remote.ip(), sa.remote != new.remote);
        let mut silent: Vec<&IkeSa> = stay.into_iter().filter(silent).collect();
        silent.sort_unstable_by_key(|sa| (elsewhere(sa), sa.last_in, sa.id));
        let mute = |sa: &&&IkeSa| sa.active.as_ref().is_some_and(|a| a.tries >= UNANSWERED_DEAD);
        if let Some(dead) = silent.iter().take_while(|sa| !elsewhere(sa).0).find(mute) {
            return Room::Dead(dead.id);
        }
        let idle = silent.into_iter().filter(|sa| sa.active.is_none() && !sa.roam.no_path);
        Room::Full(idle.take(FULL_PROBES).map(|sa| sa.id).collect())
    }

    /// The peer has just been authenticated: what becomes of other IKE_SAs with the same pair of
    /// identities, once this one is let in ([`Self::end_replaced`]). `None`: it is refused.
    fn check_unique(&mut self, sa: &IkeSa, remote_id: &Identity, initial_contact: bool) -> Option<Leaving> {
        let others: Vec<IkeId> = self
            .by_ids
            .get(&(sa.local_id.folded(), remote_id.folded()))
            .into_iter()
            .flatten()
            .copied()
            .filter(|id| *id != sa.id)
            .collect();
        // The notification speaks of what its sender knew: of IKE_SAs that stood before this one
        // was begun. With both sides initiating at once, one that was established meanwhile is not
        // meant.
        let before =
            |id: &IkeId| self.sas.get(id).is_some_and(|o| o.established.is_some_and(|t| t <= sa.created));
        let forgotten = |others: Vec<IkeId>| match initial_contact {
            true => others.into_iter().filter(before).collect(),
            false => Vec::new(),
        };
        // IKE_SAs that both sides have begun at once are settled by [`Self::collapse`], alike on
        // both.
        let others: Vec<IkeId> = match initial_contact {
            true => others,
            false => {
                others.into_iter().filter(|id| !self.sas.get(id).is_some_and(|o| crossed(sa, o))).collect()
            }
        };
        let stands = |id: &IkeId| {
            let state = self.sas.get(id).map(|o| o.state);
            matches!(state, Some(IkeState::Established | IkeState::Rekeying))
        };
        match sa.conn.unique {
            Unique::Never => Some(Leaving::default()),
            Unique::Keep if !initial_contact && others.iter().any(stands) => {
                let line = format!("keeping existing IKE_SA for peer '{remote_id}', refusing the new one");
                self.log(Level::Warn, sa, line);
                None
            }
            Unique::Replace if !initial_contact => Some(Leaving { replaced: others, ..Leaving::default() }),
            Unique::Keep | Unique::No | Unique::Replace => {
                Some(Leaving { forgotten: forgotten(others), ..Leaving::default() })
            }
        }
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
            self.with_sa(now, id, |_, old| {
                if matches!(old.state, IkeState::Established | IkeState::Rekeying) {
                    old.queue.push_back(Task::DeleteIke(DeleteIke::default()));
                }
            });
        }
    }

    /// Both sides have initiated at once, and both IKE_SAs are up with the same children: the
    /// initiator of the one with the lower SPI deletes that one. Both sides know both SPIs, so they
    /// agree without a word. A peer that knows nothing of this is given some time, then (`late`)
    /// its IKE_SA is deleted from here.
    pub(super) fn collapse(&mut self, now: Instant, id: IkeId, late: bool) {
        let Some(sa) = self.sas.get(&id) else { return };
        if sa.conn.unique == Unique::Never || !settled(sa) {
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
                for task in std::mem::take(&mut sa.queue) {
                    if let Task::Child(new) = task {
                        ep.abandon(&new);
                        ep.done(new.ticket, Ok(()));
                    }
                }
                let ticket = sa.ticket.take();
                ep.done(ticket, Ok(()));
                ep.close_ike(now, sa, Close::Replaced);
            });
            // There may be another, at another address.
            return self.collapse(now, id, late);
        }
        let twins = self.by_ids.get(&ids).into_iter().flatten();
        let twin = twins
            .filter_map(|other| self.sas.get(other))
            .find(|o| o.id != id && crossed(sa, o) && settled(o) && Arc::ptr_eq(&o.conn, &sa.conn));
        let Some(twin) = twin else { return };
        let (loser, winner) = if sa.spi_i < twin.spi_i { (sa, twin) } else { (twin, sa) };
        let covered = |c: &Child| {
            winner.children.values().any(|w| {
                w.config.name == c.config.name
                    && w.agreed.local_ts == c.agreed.local_ts
                    && w.agreed.remote_ts == c.agreed.remote_ts
            })
        };
        if !loser.children.values().all(covered) || (late && loser.id != id) {
            return;
        }
        if !loser.initiator && !late {
            let id = loser.id;
            return self.timers.set(Timer::Twin(id), now + TWIN_DELETE);
        }
        let line =
            format!("both sides have initiated, IKE_SA {} stays and {} goes", winner.name(), loser.name());
        let loser = loser.id;
        self.with_sa(now, loser, |ep, sa| {
            ep.log(Level::Info, sa, line);
            sa.queue.push_back(Task::DeleteIke(DeleteIke::default()));
        });
    }
}

impl Endpoint {
    /// An attempt of ours that the peer has not answered yet, while `up` has come up at the peer's
    /// initiative with all that the attempt is for. (Once it is answered, both sides may have it,
    /// and [`Endpoint::collapse`] decides.)
    fn needless_attempt(&self, up: &IkeSa) -> Option<IkeId> {
        if up.initiator {
            return None;
        }
        // With all that is configured: the peer may have asked for less than it would have given.
        let whole = |c: &Child| {
            let ours = narrow::resolve(&c.config.local_ts, up.local.ip());
            let theirs = narrow::resolve(&c.config.remote_ts, up.remote.ip());
            narrow::covers(&c.agreed.local_ts, &ours) && narrow::covers(&c.agreed.remote_ts, &theirs)
        };
        let stands =
            |name: &str| up.children.values().any(|c| c.config.name == name && c.announced && whole(c));
        // Of a connection that is open to others as well, it may be one of these.
        if !self.policy().hosts(&up.conn.remote_addrs).contains(&up.remote.ip()) {
            return None;
        }
        let needless = |sa: &&IkeSa| {
            sa.initiator
                && !sa.is_up()
                && !sa.dead
                && sa.spi_r == 0
                && sa.roam.replaces.is_none()
                && Arc::ptr_eq(&sa.conn, &up.conn)
                && names_in_work(sa).all(stands)
                && (names_in_work(sa).next().is_some() || sa.ticket.is_some())
        };
        let same = self.by_conn.get(&up.conn.name).into_iter().flatten();
        same.filter_map(|id| self.sas.get(id).map(|sa| &**sa)).find(needless).map(|sa| sa.id)
    }
}

/// Established, and with nothing on its way.
fn settled(sa: &IkeSa) -> bool {
    sa.state == IkeState::Established && sa.active.is_none() && sa.wait.is_none() && sa.queue.is_empty()
}

/// Each was begun by another side, before the other one was up, and both are with one peer: between
/// the same addresses, or of a connection that is for one peer only, which may have several
/// addresses.
fn crossed(a: &IkeSa, b: &IkeSa) -> bool {
    let before = |x: &IkeSa, y: &IkeSa| y.established.is_none_or(|t| x.created <= t);
    let same_addrs = a.remote.ip() == b.remote.ip() && a.local.ip() == b.local.ip();
    a.initiator != b.initiator
        && (same_addrs || (Arc::ptr_eq(&a.conn, &b.conn) && a.conn.is_for_one_peer()))
        && before(a, b)
        && before(b, a)
}
