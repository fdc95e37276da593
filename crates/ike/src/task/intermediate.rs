//! IKE_INTERMEDIATE (RFC 9242) with additional key exchanges (RFC 9370 section 2.2.2), between
//! IKE_SA_INIT and IKE_AUTH.
//!
//! ```text
//! HDR, SK {KEi(n)}  -->
//!                      <--  HDR, SK {KEr(n)}
//! SKEYSEED(n) = prf(SK_d(n-1), SK(n) | Ni | Nr)
//! {SK_d(n) | SK_ai(n) | ... } = prf+ (SKEYSEED(n), Ni | Nr | SPIi | SPIr)
//! ```
//! One exchange for each method, in the order of their numbers. Both messages are under the keys of
//! before, and what follows is under the new ones. AUTH covers all of these messages
//! (`auth::int_auth`).

use ironswan_crypto::kex;
use ironswan_wire::iana::{ExchangeType, KeId};
use ironswan_wire::ike::payload::{Ke, notifies};
use ironswan_wire::ike::{Header, Payload, emit_chain};
use ironswan_wire::secret::Secret;

use super::exchange::Exchange;
use super::sa_init::log_keys;
use super::state::{INTERMEDIATE_NAME, Task};
use crate::context::Context;
use crate::endpoint::Close;
use crate::event::{Completion, KeyPair, Level, Request, SharedSecret};
use crate::keymat::SkeySeed;
use crate::sa::{IkeSa, Inner};
use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::{KeyExchange, Uncomputed};

/// Our IKE_INTERMEDIATE, while something is computed for it.
enum Initiating {
    /// The request needs a key pair.
    NeedsKeyPair(KeId),
    /// The response is here.
    NeedsSharedSecret(KeId),
}

impl Exchange for Initiating {
    fn resume(self: Box<Self>, cx: &mut Context<'_>, sa: &mut IkeSa, completion: Completion) {
        match *self {
            Self::NeedsKeyPair(ke) => have_key(cx, sa, ke, completion.key_pair()),
            Self::NeedsSharedSecret(ke) => have_shared(cx, sa, completion.shared_secret(ke)),
        }
    }

    fn name(&self) -> &'static str {
        INTERMEDIATE_NAME
    }
}

/// The peer's IKE_INTERMEDIATE by this method, while our part of the key exchange is computed.
struct Responding(KeId);

impl Exchange for Responding {
    fn resume(self: Box<Self>, cx: &mut Context<'_>, sa: &mut IkeSa, completion: Completion) {
        respond(cx, sa, self.0, completion);
    }

    fn name(&self) -> &'static str {
        INTERMEDIATE_NAME
    }

    fn is_of_peer(&self) -> bool {
        true
    }
}

/// The method of the next exchange; `None` when IKE_AUTH follows.
pub(crate) fn next_method(sa: &IkeSa) -> Option<KeId> {
    sa.suite()?.additional.after(sa.init()?.intermediate)
}

/// The task after a key exchange that is done.
pub(super) fn next_task(sa: &IkeSa) -> Task {
    match next_method(sa) {
        Some(_) => Task::Intermediate(Secret::default()),
        None => Task::Auth(None),
    }
}

/// Adds a message to what AUTH covers, under the keys that stand now.
fn cover(sa: &mut IkeSa, header: &Header, inner: (ironswan_wire::iana::PayloadType, &[u8])) {
    let (mut keys, ours) = (None, header.flags.initiator() == sa.is_initiator());
    if let Some(k) = sa.keys() {
        keys = Some((k.prf, if ours { k.p_ours.clone() } else { k.p_theirs.clone() }));
    }
    if let (Some((prf, sk_p)), Some(init)) = (keys, sa.init_mut()) {
        init.int_auth.add(prf, &sk_p, header, inner);
    }
}

/// The same for a message of ours.
fn cover_ours(sa: &mut IkeSa, header: &Header, payloads: &[Payload]) {
    if let Ok((first, inner)) = emit_chain(payloads) {
        cover(sa, header, (first, &inner));
    }
}

/// The next keys, from those that stand and this secret.
fn derive(cx: &mut Context<'_>, sa: &mut IkeSa, shared: &Secret) -> Result<(), Diagnosis> {
    let seed = match (sa.suite(), sa.init(), sa.keys()) {
        (Some(suite), Some(init), Some(keys)) => {
            // The formula is that of a rekeying (RFC 7296 section 2.18).
            let seed = SkeySeed::rekeyed(keys, &init.ni, &init.nr, shared, &[]);
            seed.expand(&suite, &init.ni, &init.nr, sa.spi_i(), sa.spi_r(), sa.is_initiator())
        }
        _ => None,
    };
    let Some(keys) = seed else { return Err(KeyExchange::NotComputed { why: Uncomputed::Suite }.into()) };
    sa.crypt().set_keys(Some(keys));
    log_keys(cx, sa);
    if let Some(init) = sa.init_mut() {
        init.intermediate += 1;
    }
    Ok(())
}

fn key_exchange(payloads: &[Payload]) -> Option<&Ke> {
    payloads.iter().find_map(|p| if let Payload::Ke(ke) = p { Some(ke) } else { None })
}

// ---- initiator ----

/// Begins the next exchange with a key pair.
pub(crate) fn build(cx: &mut Context<'_>, sa: &mut IkeSa) {
    match next_method(sa) {
        Some(ke) => cx.wait_for_key(sa, ke, Initiating::NeedsKeyPair(ke)),
        None => sa.work_mut().push_first(Task::Auth(None)),
    }
}

fn have_key(cx: &mut Context<'_>, sa: &mut IkeSa, ke: KeId, pair: KeyPair) {
    let (private, public) = match pair {
        Ok(pair) => pair,
        Err(why) => return cx.close(sa, Close::Failed(why)),
    };
    let payloads = [Payload::Ke(Ke { group: ke, data: public })];
    if let Some(mid) = sa.work().next_mid() {
        let header = sa.header(ExchangeType::IKE_INTERMEDIATE, false, mid);
        cover_ours(sa, &header, &payloads);
    }
    cx.send_request(sa, ExchangeType::IKE_INTERMEDIATE, Task::Intermediate(private), &payloads);
    super::restart::hurry_auth(cx, sa);
}

/// The response. Its sender has the keys, and is not authenticated: nothing but the attempt ends
/// when it is of no use.
pub(crate) fn process(
    cx: &mut Context<'_>,
    sa: &mut IkeSa,
    private: Secret,
    (header, inner): (&Header, &Inner),
    payloads: &[Payload],
) {
    let Some(method) = next_method(sa) else { return };
    let why: Diagnosis = match (notifies(payloads).find(|n| n.kind.is_error()), key_exchange(payloads)) {
        (Some(n), _) => KeyExchange::peer_error(n.kind).into(),
        (None, Some(ke)) if ke.group == method && kex::response_len(method) == Some(ke.data.len()) => {
            cover(sa, header, (inner.first, &inner.bytes));
            let request = Request::Agree { ke: method, private, peer_public: ke.data.clone() };
            return cx.wait_for(sa, request, Initiating::NeedsSharedSecret(method));
        }
        (None, Some(ke)) if ke.group != method => {
            KeyExchange::OtherMethod { received: Some(ke.group), wanted: method }.into()
        }
        (None, Some(_)) => KeyExchange::BadValue { method }.into(),
        (None, None) => {
            KeyExchange::MissingPayload { message: "IKE_INTERMEDIATE response", needs: "KE" }.into()
        }
    };
    fail(cx, sa, why);
}

fn have_shared(cx: &mut Context<'_>, sa: &mut IkeSa, shared: SharedSecret) {
    match shared.and_then(|shared| derive(cx, sa, &shared)) {
        Ok(()) => {
            let next = next_task(sa);
            sa.work_mut().push_first(next);
        }
        Err(why) => fail(cx, sa, why),
    }
}

fn fail(cx: &mut Context<'_>, sa: &mut IkeSa, why: Diagnosis) {
    cx.log_why(Level::Error, sa, "establishing IKE_SA failed,", &why);
    cx.close(sa, Close::Failed(why));
}

// ---- responder ----

/// The peer's request.
pub(crate) fn answer(
    cx: &mut Context<'_>,
    sa: &mut IkeSa,
    (header, inner): (&Header, &Inner),
    payloads: &[Payload],
) {
    let Some(method) = next_method(sa) else { return };
    let why = match key_exchange(payloads) {
        Some(ke) if ke.group == method && kex::public_len(method) == Some(ke.data.len()) => {
            cover(sa, header, (inner.first, &inner.bytes));
            return cx.wait_for_response(sa, method, ke.data.clone(), Responding(method));
        }
        Some(ke) if ke.group != method => {
            KeyExchange::OtherMethod { received: Some(ke.group), wanted: method }
        }
        Some(_) => KeyExchange::BadValue { method },
        None => KeyExchange::MissingPayload { message: "IKE_INTERMEDIATE request", needs: "KE" },
    };
    cx.refuse_syntax(sa, why);
}

fn respond(cx: &mut Context<'_>, sa: &mut IkeSa, ke: KeId, completion: Completion) {
    let (public, shared) = match completion.response(ke) {
        Ok(both) => both,
        Err(why) => return cx.refuse_syntax(sa, why),
    };
    let payloads = [Payload::Ke(Ke { group: ke, data: public })];
    if let Some(answering) = sa.work().answering() {
        let header = sa.header(ExchangeType::IKE_INTERMEDIATE, true, answering.mid);
        cover_ours(sa, &header, &payloads);
    }
    cx.respond(sa, &payloads);
    if let Err(why) = derive(cx, sa, &shared) {
        cx.close(sa, Close::Failed(why));
    }
}
