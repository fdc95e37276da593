//! What is special about rekeying a CHILD_SA (RFC 7296 sections 1.3.3, 2.8, 2.8.1, 2.25.1).
//!
//! ```text
//! initiator: new in and out installed, old out removed -> DELETE(old) -> old in kept some seconds
//! responder: new in installed -> response -> new out installed
//! ```
//! The responder installs its new outbound SA at the first packet on the new inbound one, or at
//! DELETE of the old.
//!
//! Both at once: four nonces, two new children. "The SA created with the lowest of the four nonces
//! used in the two exchanges SHOULD be closed by the endpoint that created it", and the endpoint
//! that created the other one closes the old. With additional key exchanges neither child is made
//! in CREATE_CHILD_SA: the initiator of the exchange with the lowest nonce "just stops the rekeying
//! process, and it MUST NOT initiate the IKE_FOLLOWUP_KE exchange" (RFC 9370 section 2.2.4).

use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::KeyExchange;
use ironswan_wire::iana::NotifyType;
use ironswan_wire::ike::payload::Notify;
use ironswan_wire::sadb::Spi;

use super::create_child::sas;
use super::delete::closed_by_peer;
use super::refused;
use super::state::{AnsweredChild, ChildCollision, DeleteChild, NewChild, Task};
use crate::child::Child;
use crate::context::Context;
use crate::event::{ChildId, ChildState, Level};
use crate::keymat::ChildKeys;
use crate::sa::IkeSa;
use crate::timer::Timer;
use ironswan_keying::limits::{PREDECESSORS, REDUNDANT_DELETE};

/// True when the exchange with these nonces has the lowest of all four.
pub(crate) fn has_lowest(mine: [&[u8]; 2], other: [&[u8]; 2]) -> bool {
    mine.iter().min() < other.iter().min()
}

/// The peer's rekeying of the child that ours rekeys, as far as it stands: a child, or what
/// additional key exchanges make one of.
fn collision<'a>(sa: &IkeSa, new: &'a NewChild) -> Option<&'a ChildCollision> {
    let promised = |id: ChildId| !new.old_gone && sa.follow_ups().make(id);
    let stands = |c: &&ChildCollision| sa.has_child(c.child) || promised(c.child);
    new.collision.as_ref().filter(stands)
}

/// True when the peer's rekeying of the same child is to stay, and not ours.
pub(super) fn is_lost(sa: &IkeSa, new: &NewChild, answer: &AnsweredChild) -> bool {
    collision(sa, new).is_some_and(|c| {
        // When the peer has closed the old one already it has settled on its own.
        new.old_gone && sa.has_child(c.child) || has_lowest([&new.nonce, &answer.nonce], [&c.ni, &c.nr])
    })
}

/// Our rekeying is not to go on, and nothing has been made for it. The peer's takes its place.
pub(super) fn stop(cx: &mut Context<'_>, sa: &mut IkeSa, new: Box<NewChild>) {
    let line = format!("CHILD_SA rekey collision lost, stopping ours of {}{{{}}}", new.config.name, new.id.0);
    cx.log(Level::Info, sa, line);
    cx.abandon(&new);
    give_way(cx, sa, &new);
    cx.done(new.ticket, Ok(()));
}

/// The peer's rekeying takes the place of ours, which is over. Before its child is made the old one
/// goes on, and is rekeyed by us after all when the peer does not complete it.
fn give_way(cx: &mut Context<'_>, sa: &mut IkeSa, new: &NewChild) {
    let (Some(old), Some(theirs)) = (new.rekey, new.collision.as_ref().map(|c| c.child)) else { return };
    if new.old_gone {
        return;
    }
    if sa.has_child(theirs) {
        cx.replace_child(sa, old, theirs);
        await_delete(cx, old);
    } else if sa.child_mut(old).is_some_and(Child::end_rekeying) {
        let pause = cx.soon();
        cx.set_timer(Timer::RekeyChild(old), cx.now() + pause);
    }
}

/// The peer is about to rekey this child: ours comes later if it is still needed.
pub(super) fn put_off(cx: &mut Context<'_>, sa: &mut IkeSa, new: Box<NewChild>, old: ChildId) {
    cx.abandon(&new);
    if let Some(child) = sa.child_mut(old) {
        child.end_rekeying();
        let pause = cx.soon();
        cx.set_timer(Timer::RekeyChild(old), cx.now() + pause);
    }
    cx.done(new.ticket, Ok(()));
}

/// The response is good: decide what stays, and install it.
pub(crate) fn finish(
    cx: &mut Context<'_>,
    sa: &mut IkeSa,
    new: Box<NewChild>,
    answer: AnsweredChild,
    keys: ChildKeys,
) {
    let Some(old) = new.rekey else { return };
    if is_lost(sa, &new, &answer) {
        let line = format!(
            "CHILD_SA rekey collision lost, deleting redundant child {}{{{}}}",
            new.config.name, new.id.0
        );
        cx.log(Level::Info, sa, line);
        // Nothing was installed for it, and the peer will not send on it before we do.
        sa.work_mut().push_first(Task::DeleteChild(DeleteChild::of_unborn(&new)));
        give_way(cx, sa, &new);
        cx.abandon(&new);
        return cx.done(new.ticket, Ok(()));
    }
    win_over(cx, sa, &new);
    let theirs = collision(sa, &new).map(|c| c.child);
    let reqid = sa.child(old).map(|c| c.reqid());
    let id = new.id;
    cx.install(sa, sas(&new, answer, keys, reqid));
    if sa.has_child(old) {
        cx.replace_child(sa, old, id);
        sa.work_mut().push_first(Task::DeleteChild(DeleteChild::of(vec![old], None)));
    } else {
        cx.announce_child(sa, id);
    }
    if let Some(theirs) = theirs {
        cx.log(Level::Info, sa, "CHILD_SA rekey collision won, the peer deletes its redundant child");
        if let Some(child) = sa.child_mut(theirs) {
            child.make_redundant(id);
        }
        cx.set_timer(Timer::Redundant(theirs), cx.now() + REDUNDANT_DELETE);
        cx.cancel_timer(Timer::RekeyChild(theirs));
    }
    cx.done(new.ticket, Ok(()));
}

/// Ours stays. If additional key exchanges of the peer's own are not done, it stops them.
pub(super) fn win_over(cx: &mut Context<'_>, sa: &mut IkeSa, new: &NewChild) {
    let Some(theirs) = new.collision.as_ref().map(|c| c.child) else { return };
    if let Some(awaited) = sa.follow_ups_mut().take(|a| a.child().is_some_and(|c| c.id == theirs)) {
        cx.release(&awaited.agreement);
        cx.log(Level::Info, sa, "CHILD_SA rekey collision won, the peer stops its own");
    }
}

/// The peer refused.
pub(crate) fn refused(
    cx: &mut Context<'_>,
    sa: &mut IkeSa,
    new: Box<NewChild>,
    kind: NotifyType,
    why: &Diagnosis,
) {
    if kind == NotifyType::CHILD_SA_NOT_FOUND && !collided(sa, &new) {
        let Some(old) = new.rekey else { return };
        cx.abandon(&new);
        match sa.child(old) {
            // "SHOULD silently delete the Child SA ... and ... MUST send a request to create a new
            // Child SA from scratch" (RFC 7296 section 2.25).
            Some(child) if child.replaced_by().is_none() => {
                let config = child.config().clone();
                cx.log_why(Level::Warn, sa, "establishing a new CHILD_SA in place of one", why);
                cx.remove_child(sa, old);
                let fresh = NewChild::new(config, None, new.ticket);
                sa.work_mut().push(Task::Child(Box::new(fresh)));
            }
            _ => {
                if new.old_gone {
                    closed_by_peer(cx, sa, new.config.clone());
                }
                cx.done(new.ticket, Ok(()));
            }
        }
        return;
    }
    if kind == NotifyType::NO_ADDITIONAL_SAS && !collided(sa, &new) {
        cx.renew(sa, "the peer takes no rekeying");
    }
    failed(cx, sa, new, why);
}

/// The peer has rekeyed this one, and owes its DELETE.
fn await_delete(cx: &mut Context<'_>, old: ChildId) {
    let span = cx.retransmission_span();
    cx.set_timer(Timer::Redundant(old), cx.now() + span);
}

fn collided(sa: &IkeSa, new: &NewChild) -> bool {
    collision(sa, new).is_some()
}

/// Our rekeying came to nothing. The peer's stands if there is one; else ours is tried again soon.
pub(crate) fn failed(cx: &mut Context<'_>, sa: &mut IkeSa, new: Box<NewChild>, why: &Diagnosis) {
    cx.abandon(&new);
    let Some(old) = new.rekey else { return };
    if collided(sa, &new) {
        give_way(cx, sa, &new);
        return cx.done(new.ticket, Ok(()));
    }
    let name = sa.child(old).map(Child::name);
    let refused = refused::rekeying(cx, Timer::LifeChild(old), name, &new.proposals, why);
    let why = refused.as_ref().unwrap_or(why);
    if let Some(child) = sa.child_mut(old)
        && child.end_rekeying()
    {
        if refused.is_some() {
            child.refuse_rekeying();
        }
        let pause = cx.soon();
        cx.set_timer(Timer::RekeyChild(old), cx.now() + pause);
        let context = format!("CHILD_SA rekeying failed, trying again in {} seconds", pause.as_secs());
        cx.log_why(Level::Warn, sa, &context, why);
    }
    if new.old_gone {
        closed_by_peer(cx, sa, new.config.clone());
    }
    cx.done(new.ticket, Err(why.clone()));
}

/// The peer wants to rekey the child of this REKEY_SA. Which one it is, or the notification that
/// refuses.
pub(crate) fn admit(cx: &mut Context<'_>, sa: &mut IkeSa, n: &Notify) -> Result<ChildId, Notify> {
    let found = n.child_spi().and_then(|spi| sa.child_by_spi_out(n.protocol, Spi(spi)));
    let Some(child) = found.and_then(|id| sa.child(id)) else {
        if sa.work().active().is_some_and(|a| a.task.makes_child()) {
            // Its request has overtaken its response to ours, which makes that child.
            return Err(Notify::new(NotifyType::TEMPORARY_FAILURE, []));
        }
        let (protocol, spi) = (n.protocol, n.child_spi().unwrap_or(0));
        cx.log_why(Level::Warn, sa, "", &KeyExchange::NoSuchChild { protocol, spi }.into());
        return Err(Notify::about(NotifyType::CHILD_SA_NOT_FOUND, protocol, spi));
    };
    // "the CREATE_CHILD_SA exchange initiated by this peer has already been completed, and the
    // series of IKE_FOLLOWUP_KE exchanges is in progress ... In this case, a TEMPORARY_FAILURE
    // notification MUST be sent in response to such a request" (RFC 9370 section 2.2.4).
    let in_series = sa.following_up().is_some_and(|ours| ours.rekey == Some(child.id()));
    // While our own rekeying is in flight the peer has one of its own, which is not rekeyed before
    // it is settled which of the two stays.
    let unsettled = sa.rekeying().is_some_and(|ours| {
        let theirs = collision(sa, ours).map(|c| c.child);
        theirs.is_some_and(|theirs| theirs == child.id() || ours.rekey == Some(child.id()))
    });
    if !may_be_replaced(child) || in_series || unsettled || predecessors(sa, child.id()) >= PREDECESSORS {
        return Err(Notify::new(NotifyType::TEMPORARY_FAILURE, []));
    }
    Ok(child.id())
}

/// True unless "it is currently trying to close" (RFC 7296 section 2.25.1): also when it has been
/// rekeyed, or lost a collision.
pub(super) fn may_be_replaced(child: &Child) -> bool {
    matches!(child.state(), ChildState::Installed | ChildState::Rekeying) && child.redundant_to().is_none()
}

/// How many generations before this child the peer has rekeyed and not yet deleted.
fn predecessors(sa: &IkeSa, id: ChildId) -> usize {
    let before = |id: &ChildId| sa.children().find(|c| c.replaced_by() == Some(*id)).map(|c| c.id());
    std::iter::successors(Some(id), before).skip(1).take(PREDECESSORS).count()
}

/// We have agreed to the peer's rekeying of `old` by `new`, which is made or will be after
/// additional key exchanges.
pub(crate) fn answered(
    cx: &mut Context<'_>,
    sa: &mut IkeSa,
    old: ChildId,
    new: ChildId,
    ni: Vec<u8>,
    nr: Vec<u8>,
) {
    if let Some(ours) = sa.rekeying_mut(old) {
        // "... prepare to close redundant SAs later": ours may yet win. Until then the peer's is no
        // one's successor.
        let before = ours.collision.replace(ChildCollision { child: new, ni, nr });
        if before.is_none_or(|c| c.child != new) {
            cx.log(Level::Info, sa, "CHILD_SA rekey collision detected");
        }
        return;
    }
    if !sa.has_child(new) {
        return;
    }
    // A rekeying of ours that still waits in the queue finds that it has been done.
    cx.replace_child(sa, old, new);
    await_delete(cx, old);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_exchange_with_the_lowest_nonce_loses() {
        let (a, b, c, d): (&[u8], &[u8], &[u8], &[u8]) = (&[1; 16], &[2; 16], &[3; 16], &[4; 16]);
        assert!(has_lowest([a, b], [c, d]));
        assert!(has_lowest([d, a], [b, c]));
        assert!(!has_lowest([b, c], [a, d]));
        assert!(!has_lowest([b, c], [d, a]));
        assert!(has_lowest([&[1; 15], d], [a, b]), "a shorter one that is a prefix is lower");
    }
}
