//! INFORMATIONAL (RFC 7296 section 1.4): DELETE of children and of the IKE_SA, and every request
//! that holds neither.
//!
//! A DELETE names the sender's inbound SPIs; the answer names the other halves of the pairs. When
//! both sides delete the same child at once, the answers name nothing (section 1.4.1).

use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::KeyExchange;
use ironswan_wire::iana::{ExchangeType, NotifyType, ProtocolId};
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::{Delete, notifies};
use ironswan_wire::sadb::Spi;
use std::collections::HashSet;
use std::sync::Arc;

use super::auth;
use super::mobike;
use super::state::{DeleteChild, DeleteIke, NewChild, Task};
use crate::child::Child;
use crate::context::Context;
use crate::endpoint::Close;
use crate::event::{ChildId, ChildState, IkeState, Level};
use crate::sa::{Active, IkeSa};
use crate::timer::Timer;
use ironswan_keying::{ChildAction, ChildConfig};

/// A DELETE payload for each protocol that has SPIs here.
fn payloads(spis: &[(ProtocolId, Spi)]) -> Vec<Payload> {
    let of = |protocol| spis.iter().filter(move |(p, _)| *p == protocol).map(|(_, spi)| *spi);
    [ProtocolId::ESP, ProtocolId::AH]
        .into_iter()
        .filter(|p| of(*p).next().is_some())
        .map(|p| Payload::Delete(Delete::children(p, of(p))))
        .collect()
}

// ---- our requests ----

pub(crate) fn build_child(cx: &mut Context<'_>, sa: &mut IkeSa, mut task: DeleteChild) {
    task.ids.retain(|id| sa.has_child(*id));
    // The peer has rekeyed a child and may not have our answer yet, which makes the new one: it
    // would not know what we mean, and have that child for itself when the answer comes.
    let unknown = task.ids.iter().find(|id| {
        let successor = sa.children().any(|c| c.replaced_by() == Some(**id));
        let held = |c: &Child| c.is_held_back() && c.replaced_by().is_none();
        successor && sa.child(**id).is_some_and(held)
    });
    if let Some(child) = unknown.copied().and_then(|id| sa.child_mut(id)) {
        return child.hold_close(task);
    }
    let mut spis = task.spis.clone();
    let mut lines = Vec::new();
    for id in &task.ids {
        if let Some(child) = sa.child_mut(*id) {
            child.begin_deleting();
            spis.push((child.agreed().protocol, child.spi_in()));
            lines.push(format!("closing CHILD_SA {} with {}", child.name(), child.spis_and_selectors()));
        }
    }
    if spis.is_empty() {
        return cx.done(task.ticket, Ok(()));
    }
    for line in lines {
        cx.log(Level::Info, sa, line);
    }
    cx.send_request(sa, ExchangeType::INFORMATIONAL, Task::DeleteChild(task), &payloads(&spis));
}

/// Whatever the answer says, they are closed.
pub(crate) fn process_child(cx: &mut Context<'_>, sa: &mut IkeSa, task: DeleteChild, _payloads: &[Payload]) {
    for id in task.ids {
        cx.remove_child(sa, id);
    }
    cx.log(Level::Debug, sa, "CHILD_SA closed");
    cx.done(task.ticket, Ok(()));
}

pub(crate) fn build_ike(cx: &mut Context<'_>, sa: &mut IkeSa, task: DeleteIke) {
    // "Deleting": nothing new begins on it. One that was replaced is told by its state already.
    if sa.state() != IkeState::Rekeyed {
        sa.set_state(IkeState::Deleting);
        let line = format!("deleting IKE_SA {} between {}", sa.name(), sa.ends());
        cx.log(Level::Info, sa, line);
    }
    if sa.is_blocked() {
        // Nothing gets to the peer, and there may never be a way again.
        return process_ike(cx, sa, task);
    }
    // The peer may drop its SAs with its answer: nothing is sent on them any more then.
    cx.take_up_heirs(sa);
    let payload = Payload::Delete(Delete::ike_sa());
    cx.send_request(sa, ExchangeType::INFORMATIONAL, Task::DeleteIke(task), &[payload]);
}

/// The peer has deleted the IKE_SA as well, or cannot be told.
pub(crate) fn process_ike(cx: &mut Context<'_>, sa: &mut IkeSa, task: DeleteIke) {
    cx.log(Level::Info, sa, "IKE_SA deleted");
    let how = if sa.is_announced() { Close::ByUs } else { Close::Replaced };
    cx.close(sa, how);
    cx.obeyed(task.ticket);
}

// ---- the peer's requests ----

/// Any INFORMATIONAL request.
pub(crate) fn answer(cx: &mut Context<'_>, sa: &mut IkeSa, payloads: &[Payload]) {
    let deletes = || payloads.iter().filter_map(|p| if let Payload::Delete(d) = p { Some(d) } else { None });
    let after_auth = sa.half_open().is_some() && sa.work().answering().is_some_and(|a| a.mid == 2);
    let error = notifies(payloads).map(|n| n.kind).find(|kind| match *kind {
        NotifyType::AUTHENTICATION_FAILED | NotifyType::INVALID_SYNTAX => true,
        kind => after_auth && auth::is_fatal(kind),
    });
    if let Some(kind) = error {
        cx.log_why(Level::Error, sa, "", &KeyExchange::peer_error(kind).into());
    }
    if error == Some(NotifyType::INVALID_SYNTAX) {
        cx.respond(sa, &[]);
        cx.bury(sa);
        let why: Diagnosis = KeyExchange::PeerCannotRead { exchange: None }.into();
        cx.log_why(Level::Error, sa, "both ends drop the IKE_SA", &why);
        return cx.close(sa, Close::Syntax(why));
    }
    if error.is_some() || deletes().any(|d| d.protocol == ProtocolId::IKE) {
        return delete_asked(cx, sa);
    }
    cx.read_auth_lifetime(sa, payloads);
    // Each once, however often the message names it: while we delete a child ourselves, it stays.
    let (mut spis, mut seen) = (Vec::new(), HashSet::new());
    for delete in deletes() {
        for spi in delete.child_spis().filter(|spi| seen.insert((delete.protocol, *spi))) {
            let ours = answer_child(cx, sa, delete.protocol, spi);
            spis.extend(ours.map(|ours| (delete.protocol, ours)));
        }
    }
    let mut response = self::payloads(&spis);
    response.extend(mobike::answer(cx, sa, payloads));
    cx.respond(sa, &response);
}

/// The peer closes the IKE_SA. The answer waits for packets that are under way.
fn delete_asked(cx: &mut Context<'_>, sa: &mut IkeSa) {
    forget_rekeying(cx, sa);
    if let Some(at) = cx.take_up_heirs(sa) {
        sa.roam_mut().leave();
        return cx.set_timer(Timer::AnswerDelete(sa.id()), at);
    }
    answer_ike(cx, sa);
}

/// Our own rekeying of an IKE_SA that the peer closes comes to nothing.
fn forget_rekeying(cx: &mut Context<'_>, sa: &mut IkeSa) {
    // "If a peer receives a request to close an IKE SA that it is currently rekeying, it SHOULD
    // reply as usual, and forget about its own rekeying request" (RFC 7296 section 2.25.2). If the
    // peer's own rekeying came meanwhile, it has settled on that one.
    if let Some(Active { task: Task::RekeyIke(_), .. }) = sa.work().active()
        && let Some(Active { task: Task::RekeyIke(ours), .. }) = sa.work_mut().take_active()
    {
        cx.free_ike_spi(ours.spi);
        match &ours.collision {
            Some(c) if cx.others().stands(c.new) => {
                let new = c.new;
                cx.bequeath(sa, new);
                cx.obeyed(ours.ticket);
            }
            _ => cx.done(ours.ticket, Err(KeyExchange::PeerDeleted { child: false }.into())),
        }
    }
}

/// Answers the peer's DELETE of the IKE_SA, which ends it.
pub(crate) fn answer_ike(cx: &mut Context<'_>, sa: &mut IkeSa) {
    cx.respond(sa, &[]);
    cx.bury(sa);
    match sa.state() {
        IkeState::Rekeyed => cx.close(sa, Close::Replaced),
        // It was on its way to being adopted, or redundant.
        _ if !sa.is_announced() => cx.close(sa, Close::Replaced),
        IkeState::Deleting => cx.close(sa, Close::ByUs),
        _ => {
            let line = format!("received DELETE for IKE_SA {}", sa.name());
            cx.log(Level::Info, sa, line);
            cx.close(sa, Close::ByPeer);
        }
    }
}

/// The peer closes one child. Our half of it for the answer, unless we are deleting it ourselves.
fn answer_child(cx: &mut Context<'_>, sa: &mut IkeSa, protocol: ProtocolId, spi: Spi) -> Option<Spi> {
    let id = sa.child_by_spi_out(protocol, spi)?;
    let child = sa.child(id)?;
    let (ours, replaced_by, announced) = (child.spi_in(), child.replaced_by(), child.is_announced());
    let config = child.config().clone();
    let line = format!("received DELETE for {protocol} CHILD_SA with SPI {spi} ({})", child.name());
    cx.log(Level::Info, sa, line);

    let deleting = match sa.work().active() {
        Some(Active { task: Task::DeleteChild(d), .. }) => d.ids.contains(&id),
        _ => false,
    };
    if deleting {
        // Both sides delete it: "it MUST delete the outgoing SAs while processing the request and
        // the incoming SAs while processing the response. In that case, the responses MUST NOT
        // include Delete payloads for the deleted SAs" (RFC 7296 section 1.4.1).
        cx.remove_outbound(sa, id);
        return None;
    }
    if let Some(new) = replaced_by {
        // The peer has moved to the new one, so now we do.
        cx.activate(sa, new);
        cx.remove_child(sa, id);
        return Some(ours);
    }
    if in_rekeying(sa, id).is_none() && hand_back(cx, sa, id) {
        return Some(ours);
    }
    // Both rekey it, and the peer has settled before our answer came: on its own child if there is
    // one, else it just closes this one.
    let rekeying = in_rekeying(sa, id);
    if let Some(new) = rekeying {
        new.old_gone = true;
        let theirs = new.collision.as_ref().map(|c| c.child);
        if let Some(theirs) = theirs.filter(|t| sa.has_child(*t)) {
            cx.replace_child(sa, id, theirs);
            cx.activate(sa, theirs);
            cx.remove_child(sa, id);
            return Some(ours);
        }
    }
    let rekeying = in_rekeying(sa, id).is_some();
    cx.remove_child(sa, id);
    if announced && !rekeying {
        closed_by_peer(cx, sa, config);
    }
    Some(ours)
}

/// `close_action` of a child that the peer has closed.
pub(crate) fn closed_by_peer(cx: &mut Context<'_>, sa: &mut IkeSa, config: Arc<ChildConfig>) {
    cx.ended(&sa.conn().name, Some(&config.name), &KeyExchange::PeerDeleted { child: true }.into());
    if config.close_action.traps() {
        cx.act(&sa.conn().name.clone(), &config.name, ChildAction::Trap);
    }
    if config.close_action.starts() {
        sa.work_mut().push(Task::Child(Box::new(NewChild::new(config, None, None))));
    }
}

/// The peer closes a child that has taken over from another, or been kept instead of another, which
/// is still there: that other one goes on. False when there is none.
fn hand_back(cx: &mut Context<'_>, sa: &mut IkeSa, id: ChildId) -> bool {
    let closing = |sa: &IkeSa, id: ChildId| {
        let queued = |t: &Task| matches!(t, Task::DeleteChild(d) if d.ids.contains(&id));
        sa.work().queued().any(queued) || sa.work().active().is_some_and(|a| queued(&a.task))
    };
    let rival = sa.children().find(|c| c.redundant_to() == Some(id) && !closing(sa, c.id())).map(|c| c.id());
    if let Some(rival) = rival {
        for before in sa.children_mut().filter(|c| c.replaced_by() == Some(id)) {
            before.pass_on_to(rival);
        }
        cx.log(Level::Info, sa, "the peer keeps its own child of the rekey collision");
        cx.replace_child(sa, id, rival);
        cx.remove_child(sa, id);
        return true;
    }
    let before = sa.children().find(|c| {
        c.replaced_by() == Some(id) && c.state() == ChildState::Rekeyed && c.sends() && !closing(sa, c.id())
    });
    let Some(before) = before.map(|c| c.id()) else { return false };
    cx.remove_child(sa, id);
    if let Some(child) = sa.child_mut(before) {
        child.stand_again();
        let line = format!("the peer has closed the successor of CHILD_SA {}, which goes on", child.name());
        cx.log(Level::Warn, sa, line);
    }
    cx.cancel_timer(Timer::Redundant(before));
    let pause = cx.soon();
    cx.set_timer(Timer::RekeyChild(before), cx.now() + pause);
    cx.announce_child(sa, before);
    true
}

/// Our rekeying of this child that is under way.
fn in_rekeying(sa: &mut IkeSa, id: ChildId) -> Option<&mut NewChild> {
    sa.rekeying_mut(id)
}
