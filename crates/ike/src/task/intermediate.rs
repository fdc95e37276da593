//! IKE_INTERMEDIATE (RFC 9242) with additional key exchanges (RFC 9370 section 2.2.2) and a
//! post-quantum preshared key (RFC 9867, `auth::ppk_int`), between IKE_SA_INIT and IKE_AUTH.
//!
//! ```text
//! HDR, SK {[KEi(n)], [N(PPK_IDENTITY_KEY)]}  -->
//!                      <--  HDR, SK {[KEr(n)], [N(PPK_IDENTITY)]}
//! SKEYSEED(n) = prf(SK_d(n-1), SK(n) | Ni | Nr)
//! {SK_d(n) | SK_ai(n) | ... } = prf+ (SKEYSEED(n), Ni | Nr | SPIi | SPIr)
//! ```
//! One exchange for each method, in the order of their numbers; the PPK is in the last one. Both
//! messages are under the keys of before, and later ones are under the new keys. AUTH covers all of
//! these messages (`auth::int_auth`).

use ironswan_crypto::kex;
use ironswan_wire::iana::{ExchangeType, KeId, NotifyType};
use ironswan_wire::ike::payload::{Ke, notifies};
use ironswan_wire::ike::{Header, Payload, emit_chain};
use ironswan_wire::secret::Secret;

use super::exchange::Exchange;
use super::sa_init::log_keys;
use super::state::{INTERMEDIATE_NAME, Task};
use crate::auth::int_auth;
use crate::auth::ppk::{Unused, Way};
use crate::auth::ppk_int::{self, Covered, Mixing};
use crate::context::Context;
use crate::endpoint::Close;
use crate::event::{Completion, KeyPair, Level, Request, SharedSecret};
use crate::keymat::{IkeKeys, SkeySeed};
use crate::sa::{IkeSa, Init, Inner};
use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::{Authentication, KeyExchange, PpkLack, Uncomputed};

/// Our IKE_INTERMEDIATE, while something is computed for it.
enum Initiating {
    /// The request needs a key pair.
    NeedsKeyPair(KeId),
    /// The response is here, and names this PPK.
    NeedsSharedSecret(KeId, Option<Mixing>),
}

impl Exchange for Initiating {
    fn resume(self: Box<Self>, cx: &mut Context<'_>, sa: &mut IkeSa, completion: Completion) {
        match *self {
            Self::NeedsKeyPair(ke) => have_key(cx, sa, ke, completion.key_pair()),
            Self::NeedsSharedSecret(ke, ppk) => have_shared(cx, sa, completion.shared_secret(ke), ppk),
        }
    }

    fn name(&self) -> &'static str {
        INTERMEDIATE_NAME
    }
}

/// The peer's IKE_INTERMEDIATE by this method and with this PPK, while our part of the key exchange
/// is computed.
struct Responding(KeId, Option<Mixing>);

impl Exchange for Responding {
    fn resume(self: Box<Self>, cx: &mut Context<'_>, sa: &mut IkeSa, completion: Completion) {
        match completion.response(self.0) {
            Ok((public, shared)) => {
                let ke = Ke { group: self.0, data: public };
                respond(cx, sa, Some((ke, shared)), self.1);
            }
            Err(why) => cx.refuse_syntax(sa, why),
        }
    }

    fn name(&self) -> &'static str {
        INTERMEDIATE_NAME
    }

    fn is_of_peer(&self) -> bool {
        true
    }
}

/// Contents of an exchange.
#[derive(Clone, Copy)]
pub(crate) struct Round {
    /// Method of the additional key exchange.
    ke: Option<KeId>,
    /// A post-quantum preshared key may be agreed on.
    ppk: bool,
}

/// The next exchange; `None` when IKE_AUTH follows. The PPK belongs to the exchange before IKE_AUTH
/// (RFC 9867 section 3.1).
pub(crate) fn next_round(sa: &IkeSa) -> Option<Round> {
    let (all, init) = (sa.suite()?.additional, sa.init()?);
    let ke = all.after(init.intermediate);
    let is_last = match ke {
        Some(_) => all.after(init.intermediate + 1).is_none(),
        None => init.intermediate == 0,
    };
    let ppk = is_last && init.ppk.way == Way::Intermediate;
    (ke.is_some() || ppk).then_some(Round { ke, ppk })
}

/// The task after a key exchange that is done.
pub(super) fn next_task(sa: &IkeSa) -> Task {
    match next_round(sa) {
        Some(_) => Task::Intermediate(Secret::default()),
        None => Task::Auth(None),
    }
}

/// The values that a PPK Confirmation covers.
fn covered(sa: &IkeSa) -> Option<Covered<'_>> {
    let (keys, init) = (sa.keys()?, sa.init()?);
    Some(Covered { prf: keys.prf, ni: &init.ni, nr: &init.nr, spis: (sa.spi_i(), sa.spi_r()) })
}

/// Adds a request or response to what AUTH covers, under the keys that stand now.
fn cover(sa: &mut IkeSa, response: bool, front: &[u8], inner: &[u8]) {
    let (mut keys, ours) = (None, response != sa.is_initiator());
    if let Some(k) = sa.keys() {
        keys = Some((k.prf, if ours { k.p_ours.clone() } else { k.p_theirs.clone() }));
    }
    if let (Some((prf, sk_p)), Some(init)) = (keys, sa.init_mut()) {
        init.int_auth.add(prf, &sk_p, response, front, inner);
    }
}

/// The same for a message of ours.
fn cover_ours(sa: &mut IkeSa, header: &Header, payloads: &[Payload]) {
    if let Ok((first, inner)) = emit_chain(payloads) {
        cover(sa, header.is_response(), &int_auth::front(header, first), &inner);
    }
}

/// Replaces the keys that stand by those of this seed.
fn replace_keys(sa: &mut IkeSa, seed: impl Fn(&IkeKeys, &Init) -> SkeySeed) -> Result<(), Diagnosis> {
    let keys = match (sa.suite(), sa.init(), sa.keys()) {
        (Some(suite), Some(init), Some(keys)) => {
            let (ni, nr, spis) = (&init.ni, &init.nr, (sa.spi_i(), sa.spi_r()));
            seed(keys, init).expand(&suite, ni, nr, spis.0, spis.1, sa.is_initiator())
        }
        _ => None,
    };
    let Some(keys) = keys else { return Err(KeyExchange::NotComputed { why: Uncomputed::Suite }.into()) };
    sa.crypt().set_keys(Some(keys));
    Ok(())
}

/// The next keys, from those that stand, the secret of the key exchange, and then the PPK.
fn derive(
    cx: &mut Context<'_>,
    sa: &mut IkeSa,
    shared: Option<&Secret>,
    ppk: Option<Mixing>,
) -> Result<(), Diagnosis> {
    if let Some(shared) = shared {
        // The formula is that of a rekeying (RFC 7296 section 2.18).
        replace_keys(sa, |keys, init| SkeySeed::rekeyed(keys, &init.ni, &init.nr, shared, &[]))?;
    }
    if let Some(ppk) = &ppk {
        replace_keys(sa, |keys, _| SkeySeed::with_ppk(keys, &ppk.secret))?;
    }
    if shared.is_some() || ppk.is_some() {
        log_keys(cx, sa);
    }
    if let Some(init) = sa.init_mut() {
        init.intermediate += 1;
        init.ppk.mixed = ppk.map(|ppk| ppk.id);
    }
    Ok(())
}

fn key_exchange(payloads: &[Payload]) -> Option<&Ke> {
    payloads.iter().find_map(|p| if let Payload::Ke(ke) = p { Some(ke) } else { None })
}

// ---- initiator ----

/// Begins the next exchange, with a key pair if it has a key exchange.
pub(crate) fn build(cx: &mut Context<'_>, sa: &mut IkeSa) {
    match next_round(sa) {
        Some(Round { ke: Some(ke), .. }) => cx.wait_for_key(sa, ke, Initiating::NeedsKeyPair(ke)),
        Some(Round { ke: None, .. }) => send(cx, sa, Secret::default(), Vec::new()),
        None => sa.work_mut().push_first(Task::Auth(None)),
    }
}

fn have_key(cx: &mut Context<'_>, sa: &mut IkeSa, ke: KeId, pair: KeyPair) {
    match pair {
        Ok((private, public)) => send(cx, sa, private, vec![Payload::Ke(Ke { group: ke, data: public })]),
        Err(why) => cx.close(sa, Close::Failed(why)),
    }
}

/// Sends the request, with the PPK if it belongs there.
fn send(cx: &mut Context<'_>, sa: &mut IkeSa, private: Secret, mut payloads: Vec<Payload>) {
    if let (Some(Round { ppk: true, .. }), Some(covered)) = (next_round(sa), covered(sa)) {
        match ppk_int::offer(cx.policy(), sa.conn(), &covered) {
            Ok(offer) => payloads.extend(offer),
            Err(why) => return fail(cx, sa, why),
        }
    }
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
    inner: &Inner,
    payloads: &[Payload],
) {
    let Some(round) = next_round(sa) else { return };
    match read_response(cx, sa, round, payloads) {
        Ok((ke, ppk)) => {
            cover(sa, true, &inner.front, &inner.bytes);
            match ke {
                Some(Ke { group: ke, data: peer_public }) => {
                    let request = Request::Agree { ke, private, peer_public };
                    cx.wait_for(sa, request, Initiating::NeedsSharedSecret(ke, ppk));
                }
                None => conclude(cx, sa, None, ppk),
            }
        }
        Err(why) => doubt(cx, sa, why),
    }
}

/// The value of the key exchange and the PPK of a response.
fn read_response(
    cx: &Context<'_>,
    sa: &mut IkeSa,
    round: Round,
    payloads: &[Payload],
) -> Result<(Option<Ke>, Option<Mixing>), Diagnosis> {
    if let Some(n) = notifies(payloads).find(|n| n.kind.is_error()) {
        return Err(match n.kind {
            // A responder that requires a PPK may say so as early as here.
            NotifyType::AUTHENTICATION_FAILED if round.ppk => {
                Authentication::PeerLacksPpk { lack: PpkLack::Refused }.into()
            }
            kind => KeyExchange::peer_error(kind).into(),
        });
    }
    let ke = match round.ke {
        Some(method) => {
            Some(fitting(payloads, method, kex::response_len(method), "IKE_INTERMEDIATE response")?)
        }
        None => None,
    };
    let ppk = if round.ppk { ppk_int::answered(cx.policy(), sa.conn(), payloads)? } else { None };
    let unused = sa.conn().ppk_id.clone().filter(|_| round.ppk && ppk.is_none());
    if let Some(init) = sa.init_mut() {
        init.ppk.unused = unused.map(Unused::Unconfirmed);
    }
    Ok((ke.cloned(), ppk))
}

/// The peer's value of this method, which must have this length.
fn fitting<'a>(
    payloads: &'a [Payload],
    method: KeId,
    len: Option<usize>,
    message: &'static str,
) -> Result<&'a Ke, KeyExchange> {
    match key_exchange(payloads) {
        Some(ke) if ke.group == method && len == Some(ke.data.len()) => Ok(ke),
        Some(ke) if ke.group != method => {
            Err(KeyExchange::OtherMethod { received: Some(ke.group), wanted: method })
        }
        Some(_) => Err(KeyExchange::BadValue { method }),
        None => Err(KeyExchange::MissingPayload { message, needs: "KE" }),
    }
}

fn have_shared(cx: &mut Context<'_>, sa: &mut IkeSa, shared: SharedSecret, ppk: Option<Mixing>) {
    match shared {
        Ok(shared) => conclude(cx, sa, Some(&shared), ppk),
        Err(why) => doubt(cx, sa, why),
    }
}

/// The exchange is done: goes on with the next one.
fn conclude(cx: &mut Context<'_>, sa: &mut IkeSa, shared: Option<&Secret>, ppk: Option<Mixing>) {
    match derive(cx, sa, shared, ppk) {
        Ok(()) => {
            let next = next_task(sa);
            sa.work_mut().push_first(next);
        }
        Err(why) => fail(cx, sa, why),
    }
}

/// The response is of no use. It may be that of a forger of IKE_SA_INIT.
fn doubt(cx: &mut Context<'_>, sa: &mut IkeSa, why: Diagnosis) {
    if super::restart::doubted(cx, sa, None, false).is_some() {
        fail(cx, sa, why);
    }
}

fn fail(cx: &mut Context<'_>, sa: &mut IkeSa, why: Diagnosis) {
    cx.log_why(Level::Error, sa, "establishing IKE_SA failed,", &why);
    cx.close(sa, Close::Failed(why));
}

// ---- responder ----

/// The peer's request.
pub(crate) fn answer(cx: &mut Context<'_>, sa: &mut IkeSa, inner: &Inner, payloads: &[Payload]) {
    let Some(round) = next_round(sa) else { return };
    let ke = match round.ke {
        Some(method) => {
            match fitting(payloads, method, kex::public_len(method), "IKE_INTERMEDIATE request") {
                Ok(ke) => Some(ke),
                Err(why) => return cx.refuse_syntax(sa, why),
            }
        }
        None => None,
    };
    let ppk = select(cx, sa, round, payloads);
    cover(sa, false, &inner.front, &inner.bytes);
    match ke {
        Some(ke) => cx.wait_for_response(sa, ke.group, ke.data.clone(), Responding(ke.group, ppk)),
        None => respond(cx, sa, None, ppk),
    }
}

/// The PPK of the request that we have as well.
fn select(cx: &Context<'_>, sa: &mut IkeSa, round: Round, payloads: &[Payload]) -> Option<Mixing> {
    let selected = ppk_int::select(cx.policy(), &covered(sa).filter(|_| round.ppk)?, payloads);
    match selected {
        Ok(ppk) => Some(ppk),
        Err(unused) => {
            if let Some(init) = sa.init_mut() {
                init.ppk.unused = unused;
            }
            None
        }
    }
}

/// Responds with our value of the key exchange, whose secret is there, and with the PPK.
fn respond(cx: &mut Context<'_>, sa: &mut IkeSa, ke: Option<(Ke, Secret)>, ppk: Option<Mixing>) {
    let (ke, shared) = ke.unzip();
    let payloads: Vec<Payload> =
        ke.map(Payload::Ke).into_iter().chain(ppk.as_ref().map(ppk_int::selected)).collect();
    if let Some(answering) = sa.work().answering() {
        let header = sa.header(ExchangeType::IKE_INTERMEDIATE, true, answering.mid);
        cover_ours(sa, &header, &payloads);
    }
    cx.respond(sa, &payloads);
    if let Err(why) = derive(cx, sa, shared.as_ref(), ppk) {
        cx.close(sa, Close::Failed(why));
    }
}
