//! Links between CREATE_CHILD_SA and the additional key exchanges behind it: the responder's
//! N(ADDITIONAL_KEY_EXCHANGE) (RFC 9370 section 2.2.4), and the time for which it is good.

use std::time::Instant;

use ironswan_keying::diagnosis::KeyExchange;
use ironswan_wire::iana::NotifyType;
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::{Notify, find_notify};
use ironswan_wire::secret::Secret;

use super::series::{Agreement, Awaited};
use crate::context::Context;
use crate::sa::IkeSa;
use crate::timer::Timer;

/// Bytes of a link.
const LINK_LEN: usize = 8;

/// The link in a message.
pub(super) fn link(payloads: &[Payload]) -> Option<Vec<u8>> {
    find_notify(payloads, NotifyType::ADDITIONAL_KEY_EXCHANGE).map(|n| n.data.clone())
}

/// The payload with a link.
pub(super) fn linked(link: Vec<u8>) -> Payload {
    Payload::Notify(Notify::new(NotifyType::ADDITIONAL_KEY_EXCHANGE, link))
}

/// A response says that a series follows, and has no link to it.
pub(super) fn no_link() -> KeyExchange {
    KeyExchange::MissingPayload { message: "response", needs: "ADDITIONAL_KEY_EXCHANGE" }
}

/// A new link, and the time until which the peer may use it: the peer has as long as it
/// retransmits. "The responder MUST handle this situation gracefully and delete the associated
/// state if it does not receive the next expected IKE_FOLLOWUP_KE request after some reasonable
/// period of time" (RFC 9370 section 2.2.4).
pub(super) fn new_link(cx: &mut Context<'_>) -> (Vec<u8>, Instant) {
    (cx.random(LINK_LEN), cx.now() + cx.retransmission_span())
}

/// Sets the timer for the series that is to be forgotten first.
pub(super) fn rearm(cx: &mut Context<'_>, sa: &IkeSa) {
    match sa.follow_ups().due() {
        Some(at) => cx.set_timer(Timer::FollowUp(sa.id()), at),
        None => cx.cancel_timer(Timer::FollowUp(sa.id())),
    }
}

/// Keeps the peer's series until its first additional key exchange comes. `shared`: secret of
/// CREATE_CHILD_SA. Returns the payload with the link.
pub(super) fn await_first(
    cx: &mut Context<'_>,
    sa: &mut IkeSa,
    agreement: Agreement,
    shared: Secret,
) -> Payload {
    let (link, until) = new_link(cx);
    let payload = linked(link.clone());
    let awaited = Awaited { agreement, link, shared, more: Vec::new(), until };
    if let Some(before) = sa.follow_ups_mut().keep(awaited) {
        cx.release(&before.agreement);
    }
    rearm(cx, sa);
    payload
}
