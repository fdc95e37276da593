//! A peer has just been authenticated: what its new IKE_SA means for older ones of the same peer
//! (`unique`, INITIAL_CONTACT of RFC 7296 section 2.4, and `ike_sa_max_per_id`).

use std::cmp::Reverse;
use std::time::Duration;

use ironswan_wire::id::IdPattern;

use crate::limits::{ENDING_PER_ID, FULL_PROBES, FULL_SILENCE, UNANSWERED_DEAD};
use crate::{IkeId, Unique};

/// An older IKE_SA with the same pair of identities as a new one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Older {
    /// The IKE_SA.
    pub id: IkeId,
    /// It is not on its way out.
    pub stands: bool,
    /// The peer knew it when it asked for the new one: it was established before the new one was
    /// begun, or the peer had asked for it before.
    pub before: bool,
    /// The peer has asked for it after the new one, whose proof took longer to be verified.
    pub later: bool,
    /// The peer has sent INITIAL_CONTACT with it.
    pub initial_contact: bool,
    /// Both sides have begun at once: one of the two ends later, alike on both sides.
    pub crossed: bool,
}

/// IKE_SAs that end for a new one.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Leaving {
    /// The peer has lost these.
    pub forgotten: Vec<IkeId>,
    /// The new one replaces these: they are deleted.
    pub replaced: Vec<IkeId>,
}

impl Leaving {
    /// True when this IKE_SA ends.
    pub fn has(&self, id: IkeId) -> bool {
        self.forgotten.contains(&id) || self.replaced.contains(&id)
    }
}

/// Whether IKE_SAs with one pair of identities mean anything to each other.
pub fn counts_identities(unique: Unique) -> bool {
    unique != Unique::Never
}

/// Older IKE_SAs that end for a new one of a connection with this `unique`; `None`: the new one is
/// refused. `initial_contact`: the peer says that it has no other.
pub fn duplicates(unique: Unique, initial_contact: bool, older: &[Older]) -> Option<Leaving> {
    let ids = |which: &dyn Fn(&Older) -> bool| older.iter().filter(|o| which(o)).map(|o| o.id).collect();
    // The peer has restarted, or tried again, and wants the one that it has asked for last.
    let overtaken = |o: &Older| o.stands && o.later && (o.initial_contact || unique == Unique::Replace);
    if unique != Unique::Never && older.iter().any(overtaken) {
        return None;
    }
    match (unique, initial_contact) {
        (Unique::Never, _) => Some(Leaving::default()),
        // The notification speaks of what its sender knew: of IKE_SAs that stood before this one
        // was begun. With both sides initiating at once, one that was established meanwhile is not
        // meant.
        (_, true) => Some(Leaving { forgotten: ids(&|o| o.before), ..Leaving::default() }),
        (Unique::Keep, false) if older.iter().any(|o| o.stands && !o.crossed) => None,
        (Unique::Replace, false) => Some(Leaving { replaced: ids(&|o| !o.crossed), ..Leaving::default() }),
        (Unique::Keep | Unique::No, false) => Some(Leaving::default()),
    }
}

/// An IKE_SA of an identity that may have reached its limit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Present {
    /// The IKE_SA.
    pub id: IkeId,
    /// It is not on its way out.
    pub stays: bool,
    /// Time since anything was heard on it.
    pub silent: Duration,
    /// The peer is at the address of the newcomer.
    pub same_address: bool,
    /// The peer is at the address and port of the newcomer.
    pub same_port: bool,
    /// Retransmissions of a request of ours that has no answer yet; `None`: there is no such
    /// request.
    pub unanswered: Option<u32>,
    /// There is a way to the peer.
    pub has_way: bool,
}

/// Whether an authenticated peer gets an IKE_SA besides those that it has.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Room {
    /// The peer gets it.
    Enough,
    /// The peer gets it in place of this one, whose DELETE the peer does not answer.
    Ending(IkeId),
    /// The peer gets it in place of this one at its own address, which is dead.
    Dead(IkeId),
    /// The peer does not get it. These IKE_SAs have been silent and are asked whether they live.
    Full(Vec<IkeId>),
}

/// Whether an identity with so many IKE_SAs has reached its limit of `max` (0: none), so that
/// [`room`] chooses.
pub fn is_full(count: usize, max: usize) -> bool {
    max > 0 && count >= max
}

/// Room for a new IKE_SA of an identity that has reached its limit of `max`.
///
/// IKE_SAs on their way out do not count, and one that takes the place of another (`leaving`) is
/// let in, also when the limit has been lowered meanwhile; a rekeying never comes here.
///
/// Dead ones do not keep the peer out for hours: some of those that have been silent are asked
/// whether they live, those at the address of the newcomer first, and one there that has not
/// answered for a while gives way at once.
pub fn room(max: usize, present: &[Present], leaving: &Leaving) -> Room {
    let stay: Vec<&Present> = present.iter().filter(|sa| sa.stays).collect();
    if stay.iter().any(|sa| leaving.has(sa.id)) || stay.len() < max {
        // A peer need not answer a DELETE.
        let many = present.len() - stay.len() >= max.saturating_add(ENDING_PER_ID);
        let old = present.iter().find(|sa| many && !sa.stays);
        return old.map_or(Room::Enough, |sa| Room::Ending(sa.id));
    }
    let mut silent: Vec<&Present> = stay.into_iter().filter(|sa| sa.silent >= FULL_SILENCE).collect();
    silent.sort_unstable_by_key(|sa| (!sa.same_address, !sa.same_port, Reverse(sa.silent), sa.id));
    let mute = |sa: &&&Present| sa.unanswered.is_some_and(|tries| tries >= UNANSWERED_DEAD);
    if let Some(dead) = silent.iter().take_while(|sa| sa.same_address).find(mute) {
        return Room::Dead(dead.id);
    }
    let idle = silent.into_iter().filter(|sa| sa.unanswered.is_none() && sa.has_way);
    Room::Full(idle.take(FULL_PROBES).map(|sa| sa.id).collect())
}

/// Whether two IKE_SAs may be with one peer, by the identities that each may have. Two names are
/// the same peer or not; where one is open, the address tells: `here` says that the other IKE_SA's
/// peer is at an address of the first one's.
pub fn may_be_one_peer(first: &IdPattern, other: &IdPattern, here: bool) -> bool {
    match (first, other) {
        (IdPattern::Exact(_), IdPattern::Exact(id)) => first.matches(id),
        (pattern, IdPattern::Exact(id)) | (IdPattern::Exact(id), pattern) => here && pattern.matches(id),
        _ => here,
    }
}
