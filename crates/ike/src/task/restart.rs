//! What an initiator makes of responses to IKE_SA_INIT that may be forged. Nobody has authenticated
//! them, so "the recipient should continue trying for some time before giving up" (RFC 7296 section
//! 2.21.1), and section 2.4 has it wait for the real one.
//!
//! * A forged error is noted. While somebody waits for the result, the request goes out again after
//!   [`FORGED_REPEAT`], and the waiting one is told after [`FORGED_VERDICT`]. Otherwise the usual
//!   schedule goes on, and at its end the error is the reason.
//! * INVALID_KE_PAYLOAD is obeyed at once. The answer to the request before is still taken.
//! * A COOKIE is obeyed at once. Our AUTH covers the request, so the peer refuses it when the
//!   cookie was forged. Then the attempt begins once more, and a cookie waits for
//!   [`FORGED_REPEAT`].
//! * A whole response is taken, as it came first. When another one has come, the peer has to
//!   authenticate itself within [`FORGED_REPEAT`] of that, or of our IKE_AUTH if that is sent
//!   later. If it does not, or answers what is of no use, the attempt begins again, and the peer is
//!   sent a DELETE where IKE_AUTH was sent, as the first response may have been its own.
//!
//! A new start has a new SPI, nonce and key pair, so who forges has to see the new request. After
//! [`RESTARTS`] the attempt goes on as if there were no doubt: somebody who sees each request,
//! and answers before the peer does, stops it.

use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::{Forgery, KeyExchange};
use ironswan_wire::iana::NotifyType;

use super::state::{NewChild, Task};
use crate::context::{Context, Effect};
use crate::endpoint::Close;
use crate::event::{ChildId, Level};
use crate::sa::{Active, IkeSa};
use crate::timer::Timer;
use ironswan_keying::limits::{FORGED_REPEAT, FORGED_VERDICT, RESTARTS};

/// The failure that this error means, which came as a response.
pub(super) fn peer_error(sa: &IkeSa, kind: NotifyType) -> Diagnosis {
    let proposed = match (kind, sa.init()) {
        (NotifyType::NO_PROPOSAL_CHOSEN, Some(init)) => init.proposals.clone(),
        _ => Vec::new(),
    };
    KeyExchange::PeerError { kind, authentic: false, proposed, selectors: None }.into()
}

/// An error came as a response, or a response that cannot be taken for this reason.
pub(super) fn refused(cx: &mut Context<'_>, sa: &mut IkeSa, why: Diagnosis) {
    let hurry = in_a_hurry(sa);
    let Some(init) = sa.init_mut().filter(|init| init.refusal.is_none()) else { return };
    init.refusal = Some((cx.now(), why.clone()));
    cx.log_why(Level::Error, sa, "waiting for another response", &why);
    if hurry {
        cx.set_timer(Timer::Retransmit(sa.id()), cx.now() + FORGED_REPEAT);
    }
}

/// Somebody waits for the result, or other addresses of the peer wait for their turn.
fn in_a_hurry(sa: &IkeSa) -> bool {
    let child = |t: &Task| matches!(t, Task::Child(n) if n.ticket.is_some());
    sa.attempt().ticket.is_some() || sa.attempt().choices > 1 || sa.work().queued().any(child)
}

/// The timer of a request without an answer has fired. True when that has been dealt with; else its
/// bytes are sent again by the usual schedule.
pub(crate) fn unanswered(cx: &mut Context<'_>, sa: &mut IkeSa) -> bool {
    let in_init = matches!(sa.work().active(), Some(a) if matches!(a.task, Task::Init));
    let in_intermediate = matches!(sa.work().active(), Some(a) if matches!(a.task, Task::Intermediate(_)));
    let in_auth = matches!(sa.work().active(), Some(a) if matches!(a.task, Task::Auth(_)));
    let (hurry, restarts) = (in_a_hurry(sa), sa.attempt().restarts);
    let Some(init) = sa.init_mut() else { return false };
    if in_auth && init.contested && restarts < RESTARTS {
        // If the first one was the peer's own, it may have established what we leave.
        cx.say_deleted(sa);
        if let Some(Active { task: Task::Auth(child), .. }) = sa.work_mut().take_active() {
            start_again(cx, sa, child, Forgery::NoAnswer);
        }
        return true;
    }
    if in_intermediate && init.contested && restarts < RESTARTS {
        sa.work_mut().take_active();
        start_again(cx, sa, None, Forgery::NoAnswer);
        return true;
    }
    if !in_init {
        return false;
    }
    if let Some(cookie) = init.doubtful_cookie.take() {
        init.cookie = Some(cookie);
        sa.work_mut().take_active();
        super::sa_init::send(cx, sa);
        return true;
    }
    match &init.refusal {
        Some((since, why)) if hurry => {
            if cx.now().saturating_duration_since(*since) >= FORGED_VERDICT {
                let why = why.clone();
                cx.close(sa, Close::Failed(why));
            } else if let Some(active) = sa.work_mut().active_mut() {
                active.again(cx.now());
                let bytes = active.bytes.clone();
                cx.counters().retransmits_out += 1;
                cx.transmit_all(sa, (sa.local(), sa.remote()), &bytes);
                cx.set_timer(Timer::Retransmit(sa.id()), cx.now() + FORGED_REPEAT);
            }
            true
        }
        _ => false,
    }
}

/// IKE_AUTH or IKE_INTERMEDIATE has been sent. Where another response had come by then, the peer
/// has less time than usual to answer: the first response may be the forged one.
pub(super) fn hurry_auth(cx: &mut Context<'_>, sa: &IkeSa) {
    let contested = sa.init().is_some_and(|init| init.contested);
    let timer = Timer::Retransmit(sa.id());
    // Without a way to the peer nothing has been sent, and no timer is set.
    let in_intermediate = matches!(sa.work().active(), Some(a) if matches!(a.task, Task::Intermediate(_)));
    if contested && (in_intermediate || sa.may_be_up_there()) && cx.has_timer(timer) {
        cx.set_timer(timer, cx.now() + FORGED_REPEAT);
    }
}

/// The peer has not authenticated itself, or has refused us. When that may be because somebody has
/// interfered with IKE_SA_INIT, begins again; else gives the child back.
pub(crate) fn doubted(
    cx: &mut Context<'_>,
    sa: &mut IkeSa,
    child: Option<Box<NewChild>>,
    refused: bool,
) -> Option<Option<Box<NewChild>>> {
    let (contested, cookie) = sa.init().map_or((false, false), |i| (i.contested, i.cookie.is_some()));
    if contested && sa.attempt().restarts < RESTARTS {
        start_again(cx, sa, child, Forgery::NotThePeer);
    } else if refused && cookie && sa.attempt().restarts == 0 {
        start_again(cx, sa, child, Forgery::Cookie);
    } else {
        return Some(child);
    }
    None
}

/// The shared secret could not be computed from the peer's public value. True when another attempt
/// is made.
pub(super) fn unusable(cx: &mut Context<'_>, sa: &mut IkeSa) -> bool {
    let again = sa.attempt().restarts < RESTARTS;
    if again {
        start_again(cx, sa, None, Forgery::PublicValue);
    }
    again
}

/// Begins this attempt again: as if nothing had been sent, and for the same who wait for it.
fn start_again(cx: &mut Context<'_>, sa: &mut IkeSa, child: Option<Box<NewChild>>, sign: Forgery) {
    let nth = sa.attempt().restarts + 1;
    let context = format!("starting IKE_SA_INIT again ({nth} of {RESTARTS})");
    cx.log_why(Level::Warn, sa, &context, &KeyExchange::Forged { sign }.into());
    cx.cancel_timer(Timer::Retransmit(sa.id()));
    if let Some(mut child) = child {
        cx.abandon(&child);
        (child.id, child.cpi_in) = (ChildId(0), None);
        sa.work_mut().push_first(Task::Child(child));
    }
    if let Some(init) = sa.take_init() {
        cx.disown(&init, true);
    }
    if let Some(race) = sa.attempt().race {
        cx.effect(Effect::KeepOwn { race });
    }
    cx.free_ike_spi(sa.spi_i());
    let spi = cx.new_ike_spi(sa.id());
    sa.start_over(spi);
    let (local, remote) = (cx.ports().of(sa.conn()), sa.conn().remote_port);
    sa.path().set_local_port(local);
    sa.path().set_remote_port(remote);
    sa.work_mut().push_first(Task::Init);
}
