//! Quick crash detection (RFC 6290) on one IKE_SA: our token is told, the peer's is kept, and a
//! token in clear that fits ends the IKE_SA.
//!
//! ```text
//! IKE_AUTH, either side:          HDR, SK {.., AUTH, N(QUICK_CRASH_DETECTION), ..}
//! CREATE_CHILD_SA, IKE_SA rekeyed:  <--  HDR, SK {SA, Nr, KEr, N(QUICK_CRASH_DETECTION)}
//!   then on the new IKE_SA:       HDR, SK {N(QUICK_CRASH_DETECTION)}  -->
//! after a crash of the maker:     <--  HDR, N(INVALID_IKE_SPI), N(QUICK_CRASH_DETECTION)
//! ```
//! With additional key exchanges the responder's token is in the response to the last
//! IKE_FOLLOWUP_KE, which makes the new IKE_SA.

use ironswan_wire::iana::ExchangeType;
use ironswan_wire::ike::{Message, Payload};

use super::state::Task;
use crate::context::Context;
use crate::endpoint::About;
use crate::event::{IkeState, Level};
use crate::qcd::{Token, has_token};
use crate::sa::{Datagram, IkeSa};
use ironswan_keying::diagnosis::KeyExchange;
use ironswan_keying::{Close, Diagnosis};

/// Our token for this IKE_SA, if peers get any.
pub(crate) fn token(cx: &Context<'_>, sa: &IkeSa) -> Option<Payload> {
    let maker = cx.token_maker()?;
    Some(Payload::Notify(maker.notify(sa.is_initiator(), (sa.spi_i(), sa.spi_r()))))
}

/// The IKE_SA has taken over from another one. "If the initiator is also a token maker, it SHOULD
/// initiate an INFORMATIONAL exchange immediately after the CREATE_CHILD_SA exchange" (RFC 6290
/// section 4.3).
pub(crate) fn announce(cx: &Context<'_>, sa: &mut IkeSa) {
    if sa.is_initiator() && cx.token_maker().is_some() {
        sa.work_mut().push_first(Task::QcdToken);
    }
}

/// Our INFORMATIONAL request with the token.
pub(crate) fn build(cx: &mut Context<'_>, sa: &mut IkeSa) {
    if !sa.stands() {
        return;
    }
    if let Some(token) = token(cx, sa) {
        cx.send_request(sa, ExchangeType::INFORMATIONAL, Task::QcdToken, &[token]);
    }
}

/// Keeps the peer's token from an authenticated message. "A token taker MUST accept such gratuitous
/// QCD_TOKEN notifications as long as they are carried in protected exchanges" (RFC 6290 section
/// 4.4). One in CREATE_CHILD_SA is of the successor.
pub(crate) fn keep(cx: &Context<'_>, sa: &mut IkeSa, exchange: ExchangeType, payloads: &[Payload]) {
    if matches!(exchange, ExchangeType::IKE_AUTH | ExchangeType::INFORMATIONAL)
        && let Some(token) = of_successor(cx, payloads)
    {
        sa.set_token(token);
    }
}

/// The peer's token for the successor of an IKE_SA, if tokens are kept.
pub(crate) fn of_successor(cx: &Context<'_>, payloads: &[Payload]) -> Option<Token> {
    cx.takes_tokens().then(|| Token::find(payloads)).flatten()
}

/// A message in clear, with both SPIs of an IKE_SA that has keys. Its address does not count: "The
/// token taker MUST accept such tokens from any IP address and port combination" (RFC 6290 section
/// 3).
pub(crate) fn judge(cx: &mut Context<'_>, sa: &mut IkeSa, d: &Datagram) {
    let payloads = match Message::parse(&d.bytes) {
        Ok(message) if message.header.flags.response() && has_token(&message.payloads) => message.payloads,
        _ => {
            cx.counters().invalid += 1;
            return;
        }
    };
    let Some(token) = sa.token().filter(|_| sa.is_up()) else {
        cx.counters().invalid += 1;
        return;
    };
    // "a token taker SHOULD limit the rate of QCD_TOKENs verified from a particular source" (RFC
    // 6290 section 8.1).
    if !cx.may_verify_token(d.remote.ip()) || !token.is_among(&payloads) {
        // "a response MUST NOT be sent, and the event may be logged" (RFC 6290 section 4.5).
        cx.counters().qcd_mismatched += 1;
        if cx.may_write(d.remote.ip(), About::Message) {
            let line = format!("QCD token from {} does not fit IKE_SA {}, ignored", d.remote, sa.name());
            cx.log(Level::Warn, sa, line);
        }
        return;
    }
    cx.counters().qcd_taken += 1;
    // "the receiver MUST silently discard the IKE SA and all associated Child SAs" (RFC 6290
    // section 4.5).
    let how = match sa.state() {
        IkeState::Rekeyed => Close::Replaced,
        _ if !sa.is_announced() => Close::Replaced,
        IkeState::Deleting => Close::ByUs,
        _ => {
            let why: Diagnosis = KeyExchange::PeerCrashed { remote: d.remote }.into();
            cx.log_why(Level::Warn, sa, "dropping the IKE_SA and its children", &why);
            Close::Lost(why)
        }
    };
    cx.close(sa, how);
}
