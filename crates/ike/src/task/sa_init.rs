//! IKE_SA_INIT (RFC 7296 section 1.2): proposals, key exchange, nonces, NAT detection; COOKIE (2.6)
//! and INVALID_KE_PAYLOAD (1.2, 2.7).
//!
//! ```text
//! HDR(SPIi, 0), [N(COOKIE)], SAi1, KEi, Ni, N(NATD)*2, [N(USE_PPK)]  -->
//!                      <--  HDR(SPIi, 0), N(COOKIE)            nothing is kept for it
//!                      <--  HDR(SPIi, 0), N(INVALID_KE_PAYLOAD)
//!                      <--  HDR(SPIi, SPIr), SAr1, KEr, Nr, [CERTREQ], N(NATD)*2, N(CHILDLESS),
//!                               [N(USE_PPK)]
//! ```
//!
//! Here is the initiator's part. What the responder does with a request stands in `answer_init`.
//! Nothing in this exchange is authenticated.

use std::net::SocketAddr;

use ironswan_crypto::kex;
use ironswan_keying::diagnosis::{Authentication, Forgery, KeyExchange, Uncomputed};
use ironswan_keying::{Diagnosis, Fragmentation};
use ironswan_wire::iana::{ExchangeType, KeId, NotifyType};
use ironswan_wire::ike::payload::{Ke, Nonce, Notify, find_notify, notifies};
use ironswan_wire::ike::{Header, Message, Payload};
use ironswan_wire::proposal::IkeSuite;

use super::exchange::Exchange;
use super::intermediate;
use super::restart;
use super::state::Task;
use crate::auth::{certificate, ppk, signature};
use crate::context::Context;
use crate::endpoint::About;
use crate::endpoint::Close;
use crate::event::{Completion, Event, IkeState, KeyLog, KeyPair, Level, Request};
use crate::keymat::SkeySeed;
use crate::natd;
use crate::negotiate::{self, KeRule, NONCE_LEN};
use crate::sa::{Datagram, Earlier, IkeSa, Init, NatState};
use crate::timer::Timer;
use ironswan_keying::limits::{FORGED_REPEAT, INIT_ROUNDS};

/// UDP ports of IKE (RFC 7296 section 2), the second with the non-ESP marker.
const IKE_PORT: u16 = 500;
const NATT_PORT: u16 = 4500;

/// IKE_SA_INIT of an initiator, while something is computed for it. The rest of its state is in
/// `init::Init`.
enum InitiateInit {
    /// The request needs a key pair.
    NeedsKeyPair,
    /// The response is here.
    NeedsSharedSecret,
}

impl Exchange for InitiateInit {
    fn resume(self: Box<Self>, cx: &mut Context<'_>, sa: &mut IkeSa, completion: Completion) {
        match *self {
            Self::NeedsKeyPair => have_key(cx, sa, completion.key_pair()),
            Self::NeedsSharedSecret => have_shared(cx, sa, completion),
        }
    }

    fn name(&self) -> &'static str {
        Task::Init.name()
    }
}

/// Begins: a key pair for the first method that is configured.
pub(crate) fn build(cx: &mut Context<'_>, sa: &mut IkeSa) {
    let proposals = negotiate::offer(&sa.conn().proposals, &[], KeRule::Prefer(None));
    let ke = negotiate::first_ke(&proposals).unwrap_or(KeId::NONE);
    let ni = cx.random(NONCE_LEN);
    let here = (sa.local(), sa.remote());
    sa.set_state(IkeState::Connecting);
    let offers_ppk = match offer_ppk(cx, sa) {
        Ok(offers) => offers,
        Err(why) => return cx.close(sa, Close::Failed(why)),
    };
    let init = sa.begin_init();
    // What it has kept of an attempt before is made known again when it is sent.
    cx.disown(init, true);
    (init.refusal, init.doubtful_cookie, init.contested) = (None, None, false);
    init.earlier.clear();
    let same = init.proposals == proposals && init.ppk.offered == offers_ppk;
    init.ppk.offered = offers_ppk;
    if init.private.is_some() && same {
        // An attempt that nobody has answered is made again with the same SPI and key pair. Between
        // the same addresses it is the same message, so that a responder knows it; elsewhere
        // "nonces ... MUST be randomly chosen" anew (RFC 7296 section 2.10).
        if init.sent != Some(here) {
            (init.ni, init.sent) = (ni, Some(here));
        }
        (init.cookie, init.rounds) = (None, 0);
        return send(cx, sa);
    }
    (init.proposals, init.ke, init.ni, init.sent) = (proposals, ke, ni, Some(here));
    (init.cookie, init.rounds) = (None, 0);
    cx.wait_for_key(sa, ke, InitiateInit::NeedsKeyPair);
}

/// True when our request offers a post-quantum preshared key. The error: the connection requires
/// one, and it is not loaded.
fn offer_ppk(cx: &mut Context<'_>, sa: &IkeSa) -> Result<bool, Diagnosis> {
    let conn = sa.conn();
    if conn.ppk_id.is_none() && !conn.ppk_required {
        return Ok(false);
    }
    match ppk::is_loaded(cx.policy(), conn) {
        Ok(()) => Ok(true),
        Err(why) if conn.ppk_required => {
            let why = why.into();
            cx.log_why(Level::Error, sa, "establishing IKE_SA failed,", &why);
            Err(why)
        }
        Err(why) => {
            cx.log_why(Level::Warn, sa, "going without a PPK, which ppk_required = no allows:", &why.into());
            Ok(false)
        }
    }
}

fn have_key(cx: &mut Context<'_>, sa: &mut IkeSa, pair: KeyPair) {
    let (private, public) = match pair {
        Ok(pair) => pair,
        Err(why) => return cx.close(sa, Close::Failed(why)),
    };
    let Some(init) = sa.init_mut() else { return };
    (init.private, init.public) = (Some(private), public);
    send(cx, sa);
}

/// Sends the request, also again with a cookie or another method: it is message 0 each time.
pub(super) fn send(cx: &mut Context<'_>, sa: &mut IkeSa) {
    let Some(init) = sa.init() else { return };
    cx.own(init, true);
    let mut payloads = Vec::new();
    if let Some(cookie) = &init.cookie {
        // "the same IKE_SA_INIT with ... the COOKIE notification as the first payload and all other
        // payloads unchanged".
        payloads.push(Payload::Notify(Notify::new(NotifyType::COOKIE, cookie.clone())));
    }
    payloads.push(Payload::Sa(init.proposals.clone()));
    payloads.push(Payload::Ke(Ke { group: init.ke, data: init.public.clone() }));
    payloads.push(Payload::Nonce(Nonce(init.ni.clone())));
    payloads.extend(natd::payloads(sa.spi_i(), 0, sa.local(), sa.remote(), sa.conn().encap));
    if sa.conn().fragmentation != Fragmentation::No {
        payloads.push(Payload::Notify(Notify::new(NotifyType::IKEV2_FRAGMENTATION_SUPPORTED, [])));
    }
    if negotiate::has_additional(&init.proposals) || (init.ppk.offered && sa.conn().ppk_intermediate) {
        payloads.push(Payload::Notify(Notify::new(NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED, [])));
    }
    if init.ppk.offered {
        payloads.extend(ppk::offer(sa.conn()));
    }
    if sa.conn().has_signatures() {
        payloads.push(signature::announcement(&signature::hashes(sa.conn(), true)));
    }
    cx.send_request(sa, ExchangeType::IKE_SA_INIT, Task::Init, &payloads);
}

/// A response, which anyone may have written who has seen the request.
pub(crate) fn process(cx: &mut Context<'_>, sa: &mut IkeSa, header: &Header, d: &Datagram) {
    let in_flight = matches!(sa.work().active(), Some(a) if matches!(a.task, Task::Init));
    if header.message_id != 0 || !sa.is_initiator() || d.remote.ip() != sa.remote().ip() {
        cx.counters().out_of_order += 1;
        return;
    }
    if !in_flight {
        cx.counters().out_of_order += 1;
        return another(cx, sa, header, d);
    }
    let Ok(message) = Message::parse(&d.bytes) else {
        cx.counters().invalid += 1;
        return;
    };
    let payloads = &message.payloads;
    if let Some(n) = find_notify(payloads, NotifyType::COOKIE) {
        return bring_cookie(cx, sa, n);
    }
    if let Some(n) = find_notify(payloads, NotifyType::INVALID_KE_PAYLOAD) {
        return change_method(cx, sa, n);
    }
    let Some(answer) = read_answer(cx, sa, header, payloads, d.remote) else { return };
    let Answer { suite, ke, nonce } = answer;
    let offered = sa.init().is_some_and(|init| init.ppk.offered);
    let way = if offered { ppk::way(sa.conn(), payloads) } else { ppk::Way::None };
    let Some(init) = sa.init_mut() else { return };
    answered_by(init, suite.ke);
    init.nr.clone_from(&nonce.0);
    init.response.clone_from(&d.bytes);
    init.peer_public.clone_from(&ke.data);
    init.childless = find_notify(payloads, NotifyType::CHILDLESS_IKEV2_SUPPORTED).is_some();
    init.auth.responder = find_notify(payloads, NotifyType::MULTIPLE_AUTH_SUPPORTED).is_some();
    init.fragments = find_notify(payloads, NotifyType::IKEV2_FRAGMENTATION_SUPPORTED).is_some();
    init.peer_hashes = signature::announced(payloads);
    init.ppk.way = way;
    init.peer_asks = certificate::asked(payloads);
    let private = init.private.take().unwrap_or_default();
    let fragments = init.fragments && sa.conn().fragmentation != Fragmentation::No;
    sa.agree_fragments(fragments);
    sa.crypt().agree(header.responder_spi, suite);
    sa.note_answer(cx.now());
    sa.work_mut().answered();
    cx.cancel_timer(Timer::Retransmit(sa.id()));
    detect_nat(cx, sa, payloads, d);
    let peer_public = ke.data.clone();
    cx.wait_for(sa, Request::Agree { ke: suite.ke, private, peer_public }, InitiateInit::NeedsSharedSecret);
}

/// The responder asks for its cookie: the request is sent again with it.
fn bring_cookie(cx: &mut Context<'_>, sa: &mut IkeSa, n: &Notify) {
    let (restarts, tries) = (sa.attempt().restarts, sa.work().active().map(|a| a.tries));
    let Some(init) = sa.init_mut() else { return };
    // "The data associated with this notification MUST be between 1 and 64 octets in length".
    if !(1..=64).contains(&n.data.len()) || init.rounds >= INIT_ROUNDS {
        cx.counters().invalid += 1;
        return;
    }
    // The answer to another copy of the request without one: a responder that refuses the cookie
    // under way says so again when that is sent again.
    if init.cookie.is_some() && tries == Some(0) {
        cx.counters().out_of_order += 1;
        return;
    }
    init.rounds += 1;
    if restarts > 0 && init.cookie.is_none() {
        // Perhaps a forgery has been the reason for the new start: first see what else comes.
        init.doubtful_cookie = Some(n.data.clone());
        cx.set_timer(Timer::Retransmit(sa.id()), cx.now() + FORGED_REPEAT);
        return;
    }
    init.cookie = Some(n.data.clone());
    cx.log(Level::Info, sa, "received COOKIE notify, sending the request again with it");
    sa.note_answer(cx.now());
    sa.work_mut().take_active();
    send(cx, sa);
}

/// The responder wants another key exchange method: the request is made again with it.
fn change_method(cx: &mut Context<'_>, sa: &mut IkeSa, n: &Notify) {
    let Some(init) = sa.init_mut() else { return };
    let wanted = <[u8; 2]>::try_from(n.data.as_slice()).map(|b| KeId(u16::from_be_bytes(b)));
    match wanted {
        // A method that we did not offer is a lie or a downgrade, and passed over.
        Ok(ke) if ke != init.ke && negotiate::has_ke(&init.proposals, ke) && init.rounds < INIT_ROUNDS => {
            init.rounds += 1;
            let line = format!("peer didn't accept key exchange method {}, it requested {ke}", init.ke);
            let request = std::mem::take(&mut init.request);
            let public = std::mem::take(&mut init.public);
            init.earlier.push(Earlier { ke: init.ke, private: init.private.take(), public, request });
            init.ke = ke;
            cx.log(Level::Info, sa, line);
            cx.cancel_timer(Timer::Retransmit(sa.id()));
            sa.note_answer(cx.now());
            sa.work_mut().take_active();
            cx.wait_for_key(sa, ke, InitiateInit::NeedsKeyPair);
        }
        _ => cx.counters().invalid += 1,
    }
}

/// What the responder has agreed to.
struct Answer<'a> {
    suite: IkeSuite,
    ke: &'a Ke,
    nonce: &'a Nonce,
}

/// Reads the answer to one of our requests, if this is one that can be taken.
fn read_answer<'a>(
    cx: &mut Context<'_>,
    sa: &mut IkeSa,
    header: &Header,
    payloads: &'a [Payload],
    remote: SocketAddr,
) -> Option<Answer<'a>> {
    let (mut answer, mut ke, mut nonce) = (None, None, None);
    for p in payloads {
        match p {
            Payload::Sa(list) => answer = Some(list),
            Payload::Ke(p) => ke = Some(p),
            Payload::Nonce(p) => nonce = Some(p),
            _ => {}
        }
    }
    let (Some(answer), Some(ke), Some(nonce)) = (answer, ke, nonce) else {
        // An unprotected error is a hint at best.
        match notifies(payloads).find(|n| n.kind.is_error()) {
            Some(n) => {
                let why = restart::peer_error(sa, n.kind);
                restart::refused(cx, sa, why);
            }
            None => cx.counters().invalid += 1,
        }
        return None;
    };
    let init = sa.init()?;
    let Some((suite, _)) = negotiate::check_ike(&init.proposals, answer) else {
        cx.counters().invalid += 1;
        if cx.may_write(remote.ip(), About::Message) {
            let why = KeyExchange::NeverOffered { answer: answer.to_vec() };
            cx.log_why(Level::Warn, sa, "ignored a response", &why.into());
        }
        return None;
    };
    // Of several requests with different methods, any may be the one that is answered.
    let expected = suite.ke == init.ke || init.earlier.iter().any(|e| e.ke == suite.ke);
    // Additional key exchanges take place in IKE_INTERMEDIATE, and that only where both announce
    // it.
    let possible = suite.additional.is_none()
        || find_notify(payloads, NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED).is_some();
    if !acceptable(header, &suite, ke, nonce) || !expected || !possible {
        cx.counters().invalid += 1;
        return None;
    }
    if cx.knows_ike_spi(header.responder_spi) || cx.is_own(&nonce.0) || cx.is_own(&ke.data) {
        cx.reflected(remote);
        return None;
    }
    // The response is not authenticated, so another one may still come.
    if let Err(why) = suits(sa, payloads) {
        restart::refused(cx, sa, why);
        return None;
    }
    Some(Answer { suite, ke, nonce })
}

/// Whether the responder knows what the connection requires: post-quantum preshared keys, several
/// rounds of IKE_AUTH.
fn suits(sa: &IkeSa, payloads: &[Payload]) -> Result<(), Diagnosis> {
    ppk::judge_response(sa.conn(), payloads)?;
    let knows_rounds = find_notify(payloads, NotifyType::MULTIPLE_AUTH_SUPPORTED).is_some();
    match sa.conn().has_rounds() && !knows_rounds {
        true => Err(Authentication::PeerLacksRounds.into()),
        false => Ok(()),
    }
}

/// Goes on with the request of this method, which need not be the last one.
fn answered_by(init: &mut Init, ke: KeId) {
    let at = init.earlier.iter().position(|e| e.ke == ke);
    if let Some(at) = at.filter(|_| ke != init.ke) {
        let e = init.earlier.swap_remove(at);
        let public = std::mem::replace(&mut init.public, e.public);
        let request = std::mem::replace(&mut init.request, e.request);
        let private = std::mem::replace(&mut init.private, e.private);
        let ke = std::mem::replace(&mut init.ke, e.ke);
        init.earlier.push(Earlier { ke, private, public, request });
    }
}

/// Finds out whether a NAT is between, and goes on by UDP port 4500 then.
fn detect_nat(cx: &mut Context<'_>, sa: &mut IkeSa, payloads: &[Payload], d: &Datagram) {
    let nat = natd::detect(payloads, sa.spi_i(), sa.spi_r(), d.local, d.remote);
    let fake = sa.conn().encap && nat.supported;
    sa.path().set_nat(NatState { local: nat.local, remote: nat.remote, fake });
    if nat.local {
        cx.log(Level::Info, sa, "local host is behind NAT, sending keep alives");
    }
    if nat.remote {
        cx.log(Level::Info, sa, "remote host is behind NAT");
    }
    // MOBIKE: "the initiator ... MUST change to use port 4500 ... even if no NAT was detected" (RFC
    // 4555 section 3.3).
    if sa.nat().encap() || (sa.conn().mobike && nat.supported) {
        // "the initiator ... MUST ... use UDP port 4500 for all further traffic" (RFC 7296 section
        // 2.23).
        if sa.local().port() == cx.ports().ike {
            sa.path().set_local_port(cx.ports().natt);
        }
        // The peer's ports may be others than ours; where they are ours, both are.
        match sa.remote().port() {
            IKE_PORT => sa.path().set_remote_port(NATT_PORT),
            port if port == cx.ports().ike => sa.path().set_remote_port(cx.ports().natt),
            _ => {}
        }
    }
}

/// What every response has that can be taken.
fn acceptable(header: &Header, suite: &IkeSuite, ke: &Ke, nonce: &Nonce) -> bool {
    header.responder_spi != 0
        && ke.group == suite.ke
        && kex::public_len(suite.ke) == Some(ke.data.len())
        // "at least half the key size of the negotiated pseudorandom function" (RFC 7296 section
        // 2.10).
        && negotiate::nonce_fits(suite.prf, &nonce.0)
}

/// A response after one that was taken. When it could have been taken as well, one of the two is
/// forged.
fn another(cx: &mut Context<'_>, sa: &mut IkeSa, header: &Header, d: &Datagram) {
    let Some(init) = sa.init_mut().filter(|i| !i.response.is_empty() && i.response != d.bytes) else {
        return;
    };
    let Ok(message) = Message::parse(&d.bytes) else { return };
    let (mut answer, mut ke, mut nonce) = (None, None, None);
    for p in &message.payloads {
        match p {
            Payload::Sa(list) => answer = negotiate::check_ike(&init.proposals, list),
            Payload::Ke(p) => ke = Some(p),
            Payload::Nonce(p) => nonce = Some(p),
            _ => {}
        }
    }
    let (Some((suite, _)), Some(ke), Some(nonce)) = (answer, ke, nonce) else { return };
    if init.contested || !acceptable(header, &suite, ke, nonce) {
        return;
    }
    init.contested = true;
    let why = KeyExchange::Forged { sign: Forgery::TwoResponses };
    cx.log_why(Level::Warn, sa, "going on with the first response", &why.into());
    restart::hurry_auth(cx, sa);
}

fn have_shared(cx: &mut Context<'_>, sa: &mut IkeSa, completion: Completion) {
    match derive(cx, sa, completion) {
        Ok(()) => {
            let next = intermediate::next_task(sa);
            sa.work_mut().push_first(next);
        }
        Err(_) if restart::unusable(cx, sa) => {}
        Err(why) => cx.close(sa, Close::Failed(why)),
    }
}

/// SKEYSEED and everything from it, with the shared secret that has been computed.
pub(super) fn derive(cx: &mut Context<'_>, sa: &mut IkeSa, completion: Completion) -> Result<(), Diagnosis> {
    let none = || KeyExchange::NotComputed { why: Uncomputed::Suite }.into();
    let (Some(suite), Some(init)) = (sa.suite(), sa.init()) else { return Err(none()) };
    let shared = completion.shared_secret(suite.ke)?;
    let keys = SkeySeed::initial(&suite, &init.ni, &init.nr, &shared)
        .and_then(|seed| seed.expand(&suite, &init.ni, &init.nr, sa.spi_i(), sa.spi_r(), sa.is_initiator()));
    sa.crypt().set_keys(keys);
    log_keys(cx, sa);
    sa.keys().map(|_| ()).ok_or_else(none)
}

/// Gives the keys to the key log, or forgets that copy.
pub(crate) fn log_keys(cx: &mut Context<'_>, sa: &mut IkeSa) {
    let keys = sa.crypt().take_key_log();
    if let (Some(keys), Some(suite), true) = (keys, sa.suite(), cx.logs_keys()) {
        if let Some(init) = sa.init_mut().filter(|init| init.ppk.way == ppk::Way::Auth) {
            init.logged = Some(keys.clone());
        }
        let (ike, spi_i, spi_r) = (sa.id(), sa.spi_i(), sa.spi_r());
        cx.emit(Event::KeyLog(KeyLog::Ike { ike, spi_i, spi_r, suite, keys }));
    }
}
