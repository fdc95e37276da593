//! IKE_FOLLOWUP_KE (RFC 9370 section 2.2.4): the additional key exchanges of a CREATE_CHILD_SA, one
//! after the other behind it.
//!
//! ```text
//!                      <--  HDR, SK {SA, Nr, KEr, [TSi, TSr,] N(ADDITIONAL_KEY_EXCHANGE)(link 1)}
//! HDR, SK {KEi(1), N(ADDITIONAL_KEY_EXCHANGE)(link 1)}  -->
//!                      <--  HDR, SK {KEr(1), N(ADDITIONAL_KEY_EXCHANGE)(link 2)}
//! HDR, SK {KEi(2), N(ADDITIONAL_KEY_EXCHANGE)(link 2)}  -->
//!                      <--  HDR, SK {KEr(2)}                          the new SA stands
//!                      <--  HDR, SK {N(STATE_NOT_FOUND)}              for a link that is not known
//! ```
//! The link is the responder's: random bytes, new ones each time. Other exchanges may come in
//! between, so the responder keeps the series in the IKE_SA (`series`). It makes the new IKE_SA or
//! CHILD_SA with the last secret only.

use ironswan_crypto::kex;
use ironswan_wire::iana::{ExchangeType, KeId, NotifyType};
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::{Ke, notifies};

use super::exchange::Exchange;
use super::link::{link, linked, new_link, no_link, rearm};
use super::series::{Agreement, Awaited, FollowUp, Making};
use super::state::{NewChild, Task};
use super::{answer_child, create_child, qcd, rekey_ike};
use crate::context::Context;
use crate::event::{Completion, KeyPair, Level, Request, SharedSecret};
use crate::sa::IkeSa;
use ironswan_keying::diagnosis::{KeyExchange, NotDone};
use ironswan_keying::limits::SERIES_FORGOTTEN;
use ironswan_keying::{Close, Diagnosis};

/// Our exchange, while something is computed for it.
enum Following {
    /// The request needs a key pair.
    NeedsKeyPair(Box<FollowUp>, KeId),
    /// The response is here.
    NeedsSharedSecret(Box<FollowUp>, KeId),
}

impl Following {
    fn series(&self) -> &FollowUp {
        let (Self::NeedsKeyPair(follow, _) | Self::NeedsSharedSecret(follow, _)) = self;
        follow
    }
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
        self.series().name()
    }

    fn rekeys_ike(&self) -> bool {
        self.child().is_none()
    }

    fn child(&self) -> Option<&NewChild> {
        self.series().child()
    }

    fn child_mut(&mut self) -> Option<&mut NewChild> {
        let (Self::NeedsKeyPair(follow, _) | Self::NeedsSharedSecret(follow, _)) = self;
        follow.child_mut()
    }

    fn into_task(self: Box<Self>) -> Option<Task> {
        let (Self::NeedsKeyPair(follow, _) | Self::NeedsSharedSecret(follow, _)) = *self;
        Some(Task::FollowUp(follow))
    }
}

// ---- initiator ----

/// All secrets are there: makes the new SA.
fn finish(cx: &mut Context<'_>, sa: &mut IkeSa, follow: FollowUp) {
    sa.signs_mut().forgotten = 0;
    let FollowUp { making, shared, more, .. } = follow;
    match making {
        Making::Ike(task, answered) => rekey_ike::finish(cx, sa, *task, answered, (&shared, &more)),
        Making::Child(new, answered) => {
            create_child::finish(cx, sa, new, *answered, (Some(&shared), &more));
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
            let link = std::mem::take(&mut follow.link);
            let payloads = [Payload::Ke(Ke { group: ke, data: public }), linked(link)];
            cx.send_request(sa, ExchangeType::IKE_FOLLOWUP_KE, Task::FollowUp(follow), &payloads);
        }
        Err(why) => failed(cx, sa, *follow, &why),
    }
}

/// The response. With an error, nothing is made on either side.
pub(crate) fn process(cx: &mut Context<'_>, sa: &mut IkeSa, mut follow: Box<FollowUp>, payloads: &[Payload]) {
    let Some(method) = follow.method() else { return };
    let why: Diagnosis = match (notifies(payloads).find(|n| n.kind.is_error()), key_exchange(payloads)) {
        (Some(n), _) => return refused(cx, sa, *follow, n.kind),
        (None, Some(ke)) if ke.group == method && kex::response_len(method) == Some(ke.data.len()) => {
            match link(payloads) {
                Some(link) => follow.link = link,
                None if follow.is_last() => {}
                None => return failed(cx, sa, *follow, &no_link().into()),
            }
            if let (true, Making::Ike(_, answered)) = (follow.is_last(), &mut follow.making) {
                answered.token = qcd::of_successor(cx, payloads);
            }
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
            match follow.method() {
                Some(_) => sa.work_mut().push_first(Task::FollowUp(follow)),
                None => finish(cx, sa, *follow),
            }
        }
        Err(why) => unusable(cx, sa, *follow, &why),
    }
}

/// The peer's answer is an error. "If the initiator receives this notification [STATE_NOT_FOUND]
/// ... it MUST cancel this exchange and MUST treat the whole series of exchanges started from the
/// CREATE_CHILD_SA exchange as having failed" (RFC 9370 section 2.2.4).
fn refused(cx: &mut Context<'_>, sa: &mut IkeSa, follow: FollowUp, kind: NotifyType) {
    let why: Diagnosis = KeyExchange::peer_error(kind).into();
    cx.log_why(Level::Error, sa, "", &why);
    let later = matches!(kind, NotifyType::STATE_NOT_FOUND | NotifyType::TEMPORARY_FAILURE);
    match follow.making {
        Making::Child(new, _) if later && new.rekey.is_none() => cx.child_later(sa, new),
        making => failed(cx, sa, FollowUp { making, ..follow }, &why),
    }
    if kind != NotifyType::STATE_NOT_FOUND {
        return;
    }
    let signs = sa.signs_mut();
    signs.forgotten += 1;
    // "If the initiator continues to receive STATE_NOT_FOUND notifications after several retries,
    // it MUST treat this situation as a fatal error and delete the IKE SA by sending a DELETE
    // payload" (RFC 9370 section 2.2.4).
    if signs.forgotten >= SERIES_FORGOTTEN {
        cx.say_deleted(sa);
        cx.close(sa, Close::Syntax(why));
    }
}

/// Nothing has been made on either side.
fn failed(cx: &mut Context<'_>, sa: &mut IkeSa, follow: FollowUp, why: &Diagnosis) {
    match follow.making {
        Making::Ike(task, _) => rekey_ike::failed(cx, sa, *task, why),
        Making::Child(new, _) => create_child::fail(cx, sa, new, why),
    }
}

/// The response is of no use. After the last one the peer has made the new SA.
fn unusable(cx: &mut Context<'_>, sa: &mut IkeSa, follow: FollowUp, why: &Diagnosis) {
    if !follow.is_last() {
        return failed(cx, sa, follow, why);
    }
    match follow.making {
        Making::Ike(task, _) => rekey_ike::unusable(cx, sa, *task, why),
        Making::Child(new, _) => create_child::reject(cx, sa, new, why),
    }
}

fn key_exchange(payloads: &[Payload]) -> Option<&Ke> {
    payloads.iter().find_map(|p| if let Payload::Ke(ke) = p { Some(ke) } else { None })
}

// ---- responder ----

/// The peer's exchange by this method, while our part is computed. Its series has this link.
struct Responding {
    method: KeId,
    link: Vec<u8>,
    name: &'static str,
}

impl Exchange for Responding {
    fn resume(self: Box<Self>, cx: &mut Context<'_>, sa: &mut IkeSa, completion: Completion) {
        respond(cx, sa, self.method, &self.link, completion);
    }

    fn name(&self) -> &'static str {
        self.name
    }

    fn is_of_peer(&self) -> bool {
        true
    }
}

/// The peer has not gone on.
pub(crate) fn forget(cx: &mut Context<'_>, sa: &mut IkeSa) {
    let now = cx.now();
    while let Some(awaited) = sa.follow_ups_mut().take(|a| a.until <= now) {
        cx.release(&awaited.agreement);
        let what = if awaited.child().is_some() { "CHILD_SA" } else { "rekeying of the IKE_SA" };
        cx.log(Level::Info, sa, format!("the peer has not completed its {what}"));
    }
    rearm(cx, sa);
}

/// The peer's request.
pub(crate) fn answer(cx: &mut Context<'_>, sa: &mut IkeSa, payloads: &[Payload]) {
    let link = link(payloads);
    let awaited = link.as_deref().and_then(|link| sa.follow_ups().find(link));
    let (Some(awaited), Some(link)) = (awaited, &link) else {
        return cx.respond_notify(sa, NotifyType::STATE_NOT_FOUND, []);
    };
    let Some(method) = awaited.method() else {
        return cx.respond_notify(sa, NotifyType::STATE_NOT_FOUND, []);
    };
    // Something that stands against the new SA may have begun since.
    let name = awaited.name();
    let may_go_on = match &awaited.agreement {
        Agreement::Child(child) => answer_child::may_go_on(cx, sa, child) && !cx.computes_enough(sa),
        Agreement::Ike(agreed) => rekey_ike::may_go_on(cx, sa, agreed.id),
    };
    if !may_go_on {
        return cx.respond_notify(sa, NotifyType::TEMPORARY_FAILURE, []);
    }
    let why = match key_exchange(payloads) {
        Some(ke) if ke.group == method && kex::public_len(method) == Some(ke.data.len()) => {
            let exchange = Responding { method, link: link.clone(), name };
            return cx.wait_for_response(sa, method, ke.data.clone(), exchange);
        }
        Some(ke) if ke.group != method => {
            KeyExchange::OtherMethod { received: Some(ke.group), wanted: method }
        }
        Some(_) => KeyExchange::BadValue { method },
        None => KeyExchange::MissingPayload { message: "IKE_FOLLOWUP_KE request", needs: "KE" },
    };
    cx.refuse_syntax(sa, why);
}

fn respond(cx: &mut Context<'_>, sa: &mut IkeSa, ke: KeId, link: &[u8], completion: Completion) {
    let (public, shared) = match completion.response(ke) {
        Ok(both) => both,
        Err(why) => return cx.refuse_uncomputed(sa, why),
    };
    let (next, until) = new_link(cx);
    let Some(awaited) = sa.follow_ups_mut().find_mut(link) else {
        return cx.respond_notify(sa, NotifyType::STATE_NOT_FOUND, []);
    };
    awaited.more.push(shared);
    let mut payloads = vec![Payload::Ke(Ke { group: ke, data: public })];
    if awaited.method().is_some() {
        awaited.link.clone_from(&next);
        awaited.until = until;
        payloads.push(linked(next));
        rearm(cx, sa);
        return cx.respond(sa, &payloads);
    }
    let Some(done) = sa.follow_ups_mut().take(|a| a.link == link) else {
        return cx.respond_notify(sa, NotifyType::STATE_NOT_FOUND, []);
    };
    rearm(cx, sa);
    let Awaited { agreement, shared, more, .. } = done;
    match agreement {
        // The child may have lost its place while the last secret was computed.
        Agreement::Child(agreed) if !answer_child::may_go_on(cx, sa, &agreed) => {
            cx.release(&Agreement::Child(agreed));
            cx.respond_notify(sa, NotifyType::TEMPORARY_FAILURE, []);
        }
        Agreement::Ike(agreed) => rekey_ike::conclude(cx, sa, &agreed, (&shared, &more), &payloads),
        Agreement::Child(agreed) => {
            answer_child::conclude(cx, sa, *agreed, (Some(&shared), &more), &payloads);
        }
    }
}
