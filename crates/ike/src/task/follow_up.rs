//! IKE_FOLLOWUP_KE (RFC 9370 section 2.2.4): the additional key exchanges of a rekeying of the
//! IKE_SA, one after the other behind its CREATE_CHILD_SA.
//!
//! ```text
//!                      <--  HDR, SK {SA, Nr, KEr, N(ADDITIONAL_KEY_EXCHANGE)(link 1)}
//! HDR, SK {KEi(1), N(ADDITIONAL_KEY_EXCHANGE)(link 1)}  -->
//!                      <--  HDR, SK {KEr(1), N(ADDITIONAL_KEY_EXCHANGE)(link 2)}
//! HDR, SK {KEi(2), N(ADDITIONAL_KEY_EXCHANGE)(link 2)}  -->
//!                      <--  HDR, SK {KEr(2)}                          the successor stands
//!                      <--  HDR, SK {N(STATE_NOT_FOUND)}              for a link that is not known
//! ```
//! The link is the responder's: random bytes, new ones each time. Other exchanges may come in
//! between, so the responder keeps the rekeying in the IKE_SA, one at most. It makes the successor
//! with the last secret only.

use ironswan_crypto::kex;
use ironswan_wire::iana::{ExchangeType, KeId, NotifyType};
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::{Ke, Notify, find_notify, notifies};
use ironswan_wire::secret::Secret;

use super::exchange::Exchange;
use super::rekey_ike;
use super::state::{AgreedIke, AnsweredIke, Awaited, FollowUp, REKEY_IKE_NAME, RekeyIke, Task};
use crate::context::Context;
use crate::event::{Completion, KeyPair, Level, Request, SharedSecret};
use crate::sa::IkeSa;
use crate::timer::Timer;
use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::{KeyExchange, NotDone};

/// Bytes of a link.
const LINK_LEN: usize = 8;

/// Our exchange, while something is computed for it.
enum Following {
    /// The request needs a key pair.
    NeedsKeyPair(Box<FollowUp>, KeId),
    /// The response is here.
    NeedsSharedSecret(Box<FollowUp>, KeId),
}

impl Exchange for Following {
    fn resume(self: Box<Self>, cx: &mut Context<'_>, sa: &mut IkeSa, completion: Completion) {
        match *self {
            Self::NeedsKeyPair(follow, ke) => have_key(cx, sa, follow, ke, completion.key_pair()),
            Self::NeedsSharedSecret(follow, ke) => {
                have_shared(cx, sa, follow, completion.shared_secret(ke));
            }
        }
    }

    fn name(&self) -> &'static str {
        REKEY_IKE_NAME
    }

    fn rekeys_ike(&self) -> bool {
        true
    }

    fn into_task(self: Box<Self>) -> Option<Task> {
        let (Self::NeedsKeyPair(follow, _) | Self::NeedsSharedSecret(follow, _)) = *self;
        Some(Task::FollowUp(follow))
    }
}

// ---- initiator ----

/// The secret of CREATE_CHILD_SA is there, and additional key exchanges are agreed on.
pub(super) fn begin(
    cx: &mut Context<'_>,
    sa: &mut IkeSa,
    task: RekeyIke,
    answered: AnsweredIke,
    shared: Secret,
) {
    let (task, more, private) = (Box::new(task), Vec::new(), Secret::default());
    go_on(cx, sa, Box::new(FollowUp { task, answered, shared, more, private }));
}

/// Queues the next exchange before all others, or makes the successor.
fn go_on(cx: &mut Context<'_>, sa: &mut IkeSa, follow: Box<FollowUp>) {
    match (follow.method(), &follow.answered.link) {
        (None, _) => {
            let FollowUp { task, answered, shared, more, .. } = *follow;
            rekey_ike::finish(cx, sa, *task, &answered, (&shared, &more));
        }
        (Some(_), Some(_)) => sa.work_mut().push_first(Task::FollowUp(follow)),
        (Some(_), None) => {
            let (message, needs) = ("response", "ADDITIONAL_KEY_EXCHANGE");
            rekey_ike::failed(cx, sa, *follow.task, &KeyExchange::MissingPayload { message, needs }.into());
        }
    }
}

/// Begins the next exchange with a key pair.
pub(crate) fn build(cx: &mut Context<'_>, sa: &mut IkeSa, follow: Box<FollowUp>) {
    match follow.method() {
        Some(ke) => cx.wait_for_key(sa, ke, Following::NeedsKeyPair(follow, ke)),
        None => cx.fail_task(Task::FollowUp(follow), &NotDone::Replacing.into()),
    }
}

fn have_key(cx: &mut Context<'_>, sa: &mut IkeSa, mut follow: Box<FollowUp>, ke: KeId, pair: KeyPair) {
    match pair {
        Ok((private, public)) => {
            follow.private = private;
            let link = follow.answered.link.clone().unwrap_or_default();
            let payloads = [
                Payload::Ke(Ke { group: ke, data: public }),
                Payload::Notify(Notify::new(NotifyType::ADDITIONAL_KEY_EXCHANGE, link)),
            ];
            cx.send_request(sa, ExchangeType::IKE_FOLLOWUP_KE, Task::FollowUp(follow), &payloads);
        }
        Err(why) => rekey_ike::failed(cx, sa, *follow.task, &why),
    }
}

/// The response. With an error, no successor is made on either side.
pub(crate) fn process(cx: &mut Context<'_>, sa: &mut IkeSa, mut follow: Box<FollowUp>, payloads: &[Payload]) {
    let Some(method) = follow.method() else { return };
    let why: Diagnosis = match (notifies(payloads).find(|n| n.kind.is_error()), key_exchange(payloads)) {
        (Some(n), _) => {
            let why = KeyExchange::peer_error(n.kind).into();
            cx.log_why(Level::Error, sa, "", &why);
            return rekey_ike::failed(cx, sa, *follow.task, &why);
        }
        (None, Some(ke)) if ke.group == method && kex::response_len(method) == Some(ke.data.len()) => {
            let link = find_notify(payloads, NotifyType::ADDITIONAL_KEY_EXCHANGE);
            follow.answered.link = link.map(|n| n.data.clone());
            let private = std::mem::take(&mut follow.private);
            let request = Request::Agree { ke: method, private, peer_public: ke.data.clone() };
            return cx.wait_for(sa, request, Following::NeedsSharedSecret(follow, method));
        }
        (None, Some(ke)) if ke.group != method => {
            KeyExchange::OtherMethod { received: Some(ke.group), wanted: method }.into()
        }
        (None, Some(_)) => KeyExchange::BadValue { method }.into(),
        (None, None) => KeyExchange::MissingPayload { message: "response", needs: "KE" }.into(),
    };
    unusable(cx, sa, *follow, &why);
}

fn have_shared(cx: &mut Context<'_>, sa: &mut IkeSa, mut follow: Box<FollowUp>, shared: SharedSecret) {
    match shared {
        Ok(shared) => {
            follow.more.push(shared);
            go_on(cx, sa, follow);
        }
        Err(why) => unusable(cx, sa, *follow, &why),
    }
}

/// The response is of no use. After the last one the peer takes the IKE_SA for replaced.
fn unusable(cx: &mut Context<'_>, sa: &mut IkeSa, follow: FollowUp, why: &Diagnosis) {
    let last = follow.answered.suite.additional.after(follow.more.len() + 1).is_none();
    if last {
        rekey_ike::unusable(cx, sa, *follow.task, why);
    } else {
        rekey_ike::failed(cx, sa, *follow.task, why);
    }
}

fn key_exchange(payloads: &[Payload]) -> Option<&Ke> {
    payloads.iter().find_map(|p| if let Payload::Ke(ke) = p { Some(ke) } else { None })
}

// ---- responder ----

/// The peer's exchange by this method, while our part is computed.
struct Responding(KeId);

impl Exchange for Responding {
    fn resume(self: Box<Self>, cx: &mut Context<'_>, sa: &mut IkeSa, completion: Completion) {
        respond(cx, sa, self.0, completion);
    }

    fn name(&self) -> &'static str {
        REKEY_IKE_NAME
    }

    fn is_of_peer(&self) -> bool {
        true
    }
}

/// Keeps the peer's rekeying, in the place of one before, until its first additional key exchange
/// comes. Returns the payload with the link.
pub(super) fn await_first(cx: &mut Context<'_>, sa: &mut IkeSa, agreed: AgreedIke) -> Payload {
    let link = cx.random(LINK_LEN);
    let payload = Payload::Notify(Notify::new(NotifyType::ADDITIONAL_KEY_EXCHANGE, link.clone()));
    if let Some(before) = sa.set_follow_up(Some(Awaited { agreed, more: Vec::new(), link })) {
        cx.free_ike_spi(before.spi());
    }
    rearm(cx, sa);
    payload
}

/// The peer has as long as it retransmits.
fn rearm(cx: &mut Context<'_>, sa: &IkeSa) {
    let at = cx.now() + cx.retransmission_span();
    cx.set_timer(Timer::FollowUp(sa.id()), at);
}

/// The peer has not gone on.
pub(crate) fn forget(cx: &mut Context<'_>, sa: &mut IkeSa) {
    if let Some(awaited) = sa.set_follow_up(None) {
        cx.free_ike_spi(awaited.spi());
        cx.log(Level::Info, sa, "the peer has not completed its rekeying of the IKE_SA");
    }
}

/// The peer's request.
pub(crate) fn answer(cx: &mut Context<'_>, sa: &mut IkeSa, payloads: &[Payload]) {
    let link = find_notify(payloads, NotifyType::ADDITIONAL_KEY_EXCHANGE);
    let awaited = sa.follow_up().filter(|f| link.is_some_and(|n| n.data == f.link));
    let Some(method) = awaited.and_then(Awaited::method) else {
        return cx.respond_notify(sa, NotifyType::STATE_NOT_FOUND, []);
    };
    // What puts a rekeying off may have begun since.
    if rekey_ike::is_put_off(cx, sa) {
        return cx.respond_notify(sa, NotifyType::TEMPORARY_FAILURE, []);
    }
    let why = match key_exchange(payloads) {
        Some(ke) if ke.group == method && kex::public_len(method) == Some(ke.data.len()) => {
            return cx.wait_for_response(sa, method, ke.data.clone(), Responding(method));
        }
        Some(ke) if ke.group != method => {
            KeyExchange::OtherMethod { received: Some(ke.group), wanted: method }
        }
        Some(_) => KeyExchange::BadValue { method },
        None => KeyExchange::MissingPayload { message: "IKE_FOLLOWUP_KE request", needs: "KE" },
    };
    cx.refuse_syntax(sa, why);
}

fn respond(cx: &mut Context<'_>, sa: &mut IkeSa, ke: KeId, completion: Completion) {
    let (public, shared) = match completion.response(ke) {
        Ok(both) => both,
        Err(why) => return cx.refuse_uncomputed(sa, why),
    };
    let link = cx.random(LINK_LEN);
    let Some(awaited) = sa.follow_up_mut() else {
        return cx.respond_notify(sa, NotifyType::STATE_NOT_FOUND, []);
    };
    awaited.more.push(shared);
    let mut payloads = vec![Payload::Ke(Ke { group: ke, data: public })];
    if awaited.method().is_some() {
        awaited.link.clone_from(&link);
        payloads.push(Payload::Notify(Notify::new(NotifyType::ADDITIONAL_KEY_EXCHANGE, link)));
        rearm(cx, sa);
        return cx.respond(sa, &payloads);
    }
    cx.cancel_timer(Timer::FollowUp(sa.id()));
    if let Some(awaited) = sa.set_follow_up(None) {
        rekey_ike::conclude(cx, sa, &awaited.agreed, &awaited.more, &payloads);
    }
}
