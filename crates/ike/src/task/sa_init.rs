//! IKE_SA_INIT (RFC 7296 section 1.2): proposals, key exchange, nonces, NAT detection; COOKIE (2.6) and
//! INVALID_KE_PAYLOAD (1.2, 2.7).
//!
//! ```text
//! HDR(SPIi, 0), [N(COOKIE)], SAi1, KEi, Ni, N(NATD)*2  -->
//!                      <--  HDR(SPIi, 0), N(COOKIE)            nothing is kept for it
//!                      <--  HDR(SPIi, 0), N(INVALID_KE_PAYLOAD)
//!                      <--  HDR(SPIi, SPIr), SAr1, KEr, Nr, N(NATD)*2, N(CHILDLESS)
//! ```
//!
//! Nothing here is authenticated. The responder computes nothing expensive before the initiator has shown that it is
//! where it says (when asked for cookies), and the shared secret when IKE_AUTH comes, once.

use std::net::SocketAddr;
use std::time::Instant;

use ironswan_crypto::kex;
use ironswan_wire::iana::{ExchangeType, KeId, NotifyType, PayloadType};
use ironswan_wire::ike::payload::{Ke, Nonce, Notify, find_notify, notifies};
use ironswan_wire::ike::{HEADER_LEN, Header, Message, Payload};
use ironswan_wire::proposal::Proposal;
use ironswan_wire::secret::Secret;

use super::{Kont, Task};
use crate::endpoint::{Close, Endpoint, HalfOpen};
use crate::event::{Event, IkeState, KeyLog, Level, Request};
use crate::keymat::SkeySeed;
use crate::natd;
use crate::negotiate::{self, KeRule, NONCE_LEN};
use crate::sa::{Answering, Datagram, IkeSa, Init, NatState};
use crate::timer::Timer;
use crate::window::digest;

/// A responder may send us back this often (COOKIE, INVALID_KE_PAYLOAD) before the attempt is over.
const MAX_ROUNDS: u32 = 6;

/// No more connections than this are compared with the proposals of one request: nobody is authenticated yet.
const MAX_CANDIDATES: usize = 64;

pub(crate) type KeyPair = Option<(Secret, Vec<u8>)>;

// ---- initiator ----

/// Begins: a key pair for the first method that is configured.
pub(crate) fn build(ep: &mut Endpoint, now: Instant, sa: &mut IkeSa) {
    let proposals = negotiate::offer(&sa.conn.proposals, &[], KeRule::Prefer(None));
    let ke = negotiate::first_ke(&proposals).unwrap_or(KeId::NONE);
    let ni = ep.random(NONCE_LEN);
    let here = (sa.local, sa.remote);
    let init = sa.init.get_or_insert_default();
    sa.state = IkeState::Connecting;
    if init.private.is_some() && init.proposals == proposals {
        // An attempt that nobody has answered is made again with the same SPI and key pair. Between the same addresses
        // it is the same message, so that a responder knows it; elsewhere "nonces ... MUST be randomly chosen" anew
        // (RFC 7296 section 2.10).
        if init.sent != Some(here) {
            (init.ni, init.sent) = (ni, Some(here));
        }
        (init.cookie, init.rounds) = (None, 0);
        return send(ep, now, sa);
    }
    (init.proposals, init.ke, init.ni, init.sent) = (proposals, ke, ni, Some(here));
    (init.cookie, init.rounds) = (None, 0);
    ep.wait_for_key(sa, ke, Kont::InitKey);
}

pub(crate) fn have_key(ep: &mut Endpoint, now: Instant, sa: &mut IkeSa, pair: KeyPair) {
    let (Some((private, public)), Some(init)) = (pair, sa.init.as_mut()) else {
        return ep.close_ike(now, sa, Close::Failed("no key pair could be made".to_owned()));
    };
    (init.private, init.public) = (Some(private), public);
    send(ep, now, sa);
}

/// Sends the request, also again with a cookie or another method: it is message 0 each time.
fn send(ep: &mut Endpoint, now: Instant, sa: &mut IkeSa) {
    let Some(init) = sa.init.as_ref() else { return };
    let mut payloads = Vec::new();
    if let Some(cookie) = &init.cookie {
        // "the same IKE_SA_INIT with ... the COOKIE notification as the first payload and all other payloads unchanged".
        payloads.push(Payload::Notify(Notify::new(NotifyType::COOKIE, cookie.clone())));
    }
    payloads.push(Payload::Sa(init.proposals.clone()));
    payloads.push(Payload::Ke(Ke { group: init.ke, data: init.public.clone() }));
    payloads.push(Payload::Nonce(Nonce(init.ni.clone())));
    payloads.extend(natd::payloads(sa.spi_i, 0, sa.local, sa.remote, sa.conn.encap));
    ep.send_request(now, sa, ExchangeType::IKE_SA_INIT, Task::Init, &payloads);
}

/// A response, which anyone may have written who has seen the request.
pub(crate) fn process(ep: &mut Endpoint, now: Instant, sa: &mut IkeSa, header: &Header, d: &Datagram) {
    let in_flight = matches!(&sa.active, Some(a) if matches!(a.task, Task::Init));
    if !in_flight || header.message_id != 0 || !sa.initiator || d.remote.ip() != sa.remote.ip() {
        ep.counters.out_of_order += 1;
        return;
    }
    let Ok(message) = Message::parse(&d.bytes) else {
        ep.counters.invalid += 1;
        return;
    };
    let payloads = &message.payloads;
    let Some(init) = sa.init.as_mut() else { return };

    if let Some(n) = find_notify(payloads, NotifyType::COOKIE) {
        // "The data associated with this notification MUST be between 1 and 64 octets in length".
        if !(1..=64).contains(&n.data.len()) || init.rounds >= MAX_ROUNDS {
            ep.counters.invalid += 1;
            return;
        }
        // The answer to another copy of the request without one: a responder that refuses the cookie under way says so again
        // when that is sent again.
        if init.cookie.is_some() && sa.active.as_ref().is_some_and(|a| a.tries == 0) {
            ep.counters.out_of_order += 1;
            return;
        }
        init.rounds += 1;
        init.cookie = Some(n.data.clone());
        ep.log(Level::Info, sa, "received COOKIE notify, sending the request again with it");
        sa.active = None;
        return send(ep, now, sa);
    }
    if let Some(n) = find_notify(payloads, NotifyType::INVALID_KE_PAYLOAD) {
        let wanted = <[u8; 2]>::try_from(n.data.as_slice()).map(|b| KeId(u16::from_be_bytes(b)));
        match wanted {
            // A method that we did not offer is a lie or a downgrade, and passed over.
            Ok(ke) if ke != init.ke && negotiate::has_ke(&init.proposals, ke) && init.rounds < MAX_ROUNDS => {
                init.rounds += 1;
                let line = format!("peer didn't accept key exchange method {}, it requested {ke}", init.ke);
                (init.ke, init.private) = (ke, None);
                ep.log(Level::Info, sa, line);
                ep.timers.cancel(Timer::Retransmit(sa.id));
                sa.active = None;
                ep.wait_for_key(sa, ke, Kont::InitKey);
            }
            _ => ep.counters.invalid += 1,
        }
        return;
    }
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
        // An unprotected error is a hint at best. NO_PROPOSAL_CHOSEN in an otherwise sound response ends the attempt,
        // for an operator is better served by it than by a timeout; nothing else does.
        if find_notify(payloads, NotifyType::NO_PROPOSAL_CHOSEN).is_some() {
            let line = format!(
                "received NO_PROPOSAL_CHOSEN notify error, proposed was {}",
                negotiate::list(&init.proposals)
            );
            ep.log(Level::Error, sa, line);
            return ep.close_ike(
                now,
                sa,
                Close::Failed("received NO_PROPOSAL_CHOSEN notify error".to_owned()),
            );
        }
        ep.counters.invalid += 1;
        if let Some(n) = notifies(payloads).find(|n| n.kind.is_error())
            && ep.junk.take(now)
        {
            ep.log(Level::Warn, sa, format!("received unprotected {} notify error, ignored", n.kind));
        }
        return;
    };
    let Some((suite, _)) = negotiate::check_ike(&init.proposals, answer) else {
        ep.counters.invalid += 1;
        return ep.log(Level::Warn, sa, "received a proposal that was never offered, ignored");
    };
    if header.responder_spi == 0 || suite.ke != init.ke || ke.group != init.ke {
        ep.counters.invalid += 1;
        return;
    }
    init.nr.clone_from(&nonce.0);
    init.response.clone_from(&d.bytes);
    init.peer_public.clone_from(&ke.data);
    init.childless = find_notify(payloads, NotifyType::CHILDLESS_IKEV2_SUPPORTED).is_some();
    let private = init.private.take().unwrap_or_default();
    sa.spi_r = header.responder_spi;
    sa.suite = Some(suite);
    sa.active = None;
    ep.timers.cancel(Timer::Retransmit(sa.id));
    sa.window.response_seen();

    let nat = natd::detect(payloads, sa.spi_i, sa.spi_r, d.local, d.remote);
    sa.nat = NatState { local: nat.local, remote: nat.remote, fake: sa.conn.encap && nat.supported };
    if nat.local {
        ep.log(Level::Info, sa, "local host is behind NAT, sending keep alives");
    }
    if nat.remote {
        ep.log(Level::Info, sa, "remote host is behind NAT");
    }
    if sa.nat.encap() {
        // "the initiator ... MUST ... use UDP port 4500 for all further traffic" (RFC 7296 section 2.23).
        if sa.local.port() == ep.options.port {
            sa.local.set_port(ep.options.natt_port);
        }
        if sa.remote.port() == ep.options.port {
            sa.remote.set_port(ep.options.natt_port);
        }
    }
    let peer_public = ke.data.clone();
    ep.wait_for(sa, Request::Agree { ke: suite.ke, private, peer_public }, Kont::InitShared);
}

pub(crate) fn have_shared(ep: &mut Endpoint, now: Instant, sa: &mut IkeSa, shared: Option<Secret>) {
    if !derive(ep, sa, shared) {
        let why = "the peer's key exchange value is not acceptable".to_owned();
        return ep.close_ike(now, sa, Close::Failed(why));
    }
    sa.queue.push_front(Task::Auth(None));
}

/// SKEYSEED and everything from it. False when there is no shared secret.
fn derive(ep: &mut Endpoint, sa: &mut IkeSa, shared: Option<Secret>) -> bool {
    let (Some(shared), Some(suite), Some(init)) = (shared, sa.suite, sa.init.as_ref()) else { return false };
    sa.keys = SkeySeed::initial(&suite, &init.ni, &init.nr, &shared)
        .and_then(|seed| seed.expand(&suite, &init.ni, &init.nr, sa.spi_i, sa.spi_r, sa.initiator));
    log_keys(ep, sa);
    sa.keys.is_some()
}

/// Gives the keys to the key log, or forgets that copy.
pub(crate) fn log_keys(ep: &mut Endpoint, sa: &mut IkeSa) {
    let keys = sa.keys.as_mut().and_then(|k| k.log.take());
    if let (Some(keys), Some(suite), true) = (keys, sa.suite, ep.options.keylog) {
        ep.emit(Event::KeyLog(KeyLog::Ike { spi_i: sa.spi_i, spi_r: sa.spi_r, suite, keys }));
    }
}

// ---- responder ----

struct Request1<'a> {
    proposals: &'a [Proposal],
    ke: &'a Ke,
    nonce: &'a [u8],
}

fn read_request(message: &Message) -> Option<Request1<'_>> {
    let (mut proposals, mut ke, mut nonce) = (None, None, None);
    for p in &message.payloads {
        match p {
            Payload::Sa(list) => proposals = Some(list.as_slice()),
            Payload::Ke(p) => ke = Some(p),
            Payload::Nonce(p) => nonce = Some(p.0.as_slice()),
            _ => {}
        }
    }
    Some(Request1 { proposals: proposals?, ke: ke?, nonce: nonce? })
}

/// A request, from anyone.
pub(crate) fn answer(
    ep: &mut Endpoint,
    now: Instant,
    local: SocketAddr,
    remote: SocketAddr,
    header: &Header,
    bytes: &[u8],
) {
    if !header.opens_ike_sa() {
        ep.counters.out_of_order += 1;
        return;
    }
    if let Some(id) = ep.half_open.find(header.initiator_spi, remote) {
        // Either a retransmission, which has its answer stored; or the same with a cookie, as two copies of the request were
        // answered differently; or nothing that this initiator would send.
        let first = ep.sas.get(&id).and_then(|sa| sa.init.as_ref());
        let twin = first.is_some_and(|init| init.request != bytes && is_twin(&init.request, bytes))
            && brings_cookie(ep, now, remote, header, bytes);
        let init = ep.sas.get_mut(&id).and_then(|sa| sa.init.as_mut());
        let stored = init.filter(|init| twin || init.request == bytes).map(|init| {
            if twin {
                init.twin = bytes.to_vec();
            }
            init.response.clone()
        });
        match stored {
            Some(response) if !response.is_empty() => {
                ep.counters.retransmits_in += 1;
                ep.transmit(local, remote, &response);
            }
            // The answer is being made.
            Some(_) => ep.counters.retransmits_in += 1,
            None => ep.counters.out_of_order += 1,
        }
        return;
    }
    let Ok(message) = Message::parse(bytes) else {
        ep.counters.invalid += 1;
        return;
    };
    let Some(request) = read_request(&message) else {
        ep.counters.invalid += 1;
        return;
    };
    if !admit(ep, now, local, remote, header, &message, request.nonce) {
        return;
    }

    let (mut refusal, mut chosen, mut any) = (None, None, false);
    for conn in ep.conns.for_addrs(local.ip(), remote.ip()).take(MAX_CANDIDATES) {
        any = true;
        match negotiate::select_ike(&conn.proposals, request.proposals, Some(request.ke.group)) {
            Ok(selected) => {
                chosen = Some((conn.clone(), selected));
                break;
            }
            Err(no) => {
                refusal.get_or_insert((conn.name.clone(), no));
            }
        }
    }
    if !any {
        ep.look_up_for_stranger(now);
        ep.counters.no_proposal += 1;
        if ep.junk.take(now) {
            let line = format!(
                "no IKE config found for {}...{}, sending NO_PROPOSAL_CHOSEN",
                local.ip(),
                remote.ip()
            );
            ep.note(Level::Error, None, line);
            ep.respond_stateless(local, remote, header, NotifyType::NO_PROPOSAL_CHOSEN, []);
        }
        return;
    }
    let Some((conn, selected)) = chosen else {
        ep.counters.no_proposal += 1;
        if let Some((name, no)) = refusal
            && ep.junk.take(now)
        {
            ep.note(
                Level::Error,
                Some(&name),
                format!("no acceptable proposal found for {remote}, sending NO_PROPOSAL_CHOSEN"),
            );
            for line in no.lines {
                ep.note(Level::Error, Some(&name), line);
            }
            ep.respond_stateless(local, remote, header, NotifyType::NO_PROPOSAL_CHOSEN, []);
        }
        return;
    };
    let suite = selected.suite;
    if request.ke.group != suite.ke {
        if ep.junk.take(now) {
            let line =
                format!("key exchange method {} unacceptable, requesting {}", request.ke.group, suite.ke);
            ep.note(Level::Info, Some(&conn.name), line);
        }
        ep.respond_stateless(local, remote, header, NotifyType::INVALID_KE_PAYLOAD, suite.ke.0.to_be_bytes());
        return;
    }
    if kex::public_len(suite.ke) != Some(request.ke.data.len()) {
        ep.counters.invalid += 1;
        return;
    }

    let id = ep.new_ike_id();
    let spi_r = ep.new_ike_spi(id);
    let nat = natd::detect(&message.payloads, header.initiator_spi, 0, local, remote);
    let init = Init {
        ni: request.nonce.to_vec(),
        nr: ep.random(NONCE_LEN),
        request: bytes.to_vec(),
        ke: suite.ke,
        peer_public: request.ke.data.clone(),
        proposals: vec![selected.answer],
        ..Init::default()
    };
    let answering =
        Answering { mid: 0, exchange: ExchangeType::IKE_SA_INIT, digest: digest(bytes), local, remote };
    let mut sa = Box::new(IkeSa {
        state: IkeState::Connecting,
        suite: Some(suite),
        answering: Some(answering),
        nat: NatState { local: nat.local, remote: nat.remote, fake: conn.encap && nat.supported },
        init: Some(Box::new(init)),
        half_open: Some((header.initiator_spi, remote)),
        ..IkeSa::new(id, conn, false, (header.initiator_spi, spi_r), (local, remote), now)
    });
    ep.half_open.add(header.initiator_spi, remote, id);
    ep.counters.half_open = ep.half_open.count() as u64;
    ep.timers.set(Timer::HalfOpen(id), now + ep.limits.half_open_timeout);
    ep.by_conn.entry(sa.conn.name.clone()).or_default().insert(id);
    ep.log(Level::Debug, &sa, format!("{remote} is initiating an IKE_SA"));
    ep.wait_for_key(&mut sa, suite.ke, Kont::AnswerInitKey);
    ep.settle(sa);
}

/// True when two IKE_SA_INIT requests differ in nothing but a COOKIE in front of the payloads of either.
fn is_twin(one: &[u8], other: &[u8]) -> bool {
    let parts = |bytes: &[u8]| -> Option<(Vec<u8>, Vec<u8>)> {
        let (header, body) = bytes.split_at_checked(HEADER_LEN)?;
        let notify = header[16] == PayloadType::NOTIFY.0;
        let cookie = notify && body.get(6..8)? == NotifyType::COOKIE.0.to_be_bytes();
        // SPIs and the first payload's type; version, exchange, flags and message ID. The length follows from the rest.
        let (first, rest) = match cookie {
            true => {
                let length = u16::from_be_bytes([*body.get(2)?, *body.get(3)?]);
                (*body.first()?, body.get(usize::from(length.max(8))..)?)
            }
            false => (header[16], body),
        };
        Some(([&header[..16], &[first], &header[17..24]].concat(), rest.to_vec()))
    };
    matches!((parts(one), parts(other)), (Some(a), Some(b)) if a == b)
}

/// True when the first payload of a request is a cookie that we have made for its sender.
fn brings_cookie(ep: &mut Endpoint, now: Instant, remote: SocketAddr, header: &Header, bytes: &[u8]) -> bool {
    let Ok(message) = Message::parse(bytes) else { return false };
    let (Some(request), Some(Payload::Notify(n))) = (read_request(&message), message.payloads.first()) else {
        return false;
    };
    n.kind == NotifyType::COOKIE
        && ep.cookies.check(now, &n.data, request.nonce, remote.ip(), header.initiator_spi)
}

/// Cookies and limits. False: the request has been dealt with, or is dropped.
fn admit(
    ep: &mut Endpoint,
    now: Instant,
    local: SocketAddr,
    remote: SocketAddr,
    header: &Header,
    message: &Message,
    nonce: &[u8],
) -> bool {
    let from_addr = ep.half_open.from(remote.ip());
    let crowded = |h: &HalfOpen, threshold| h.count() >= threshold;
    if crowded(&ep.half_open, ep.limits.cookie_threshold)
        || (ep.limits.cookie_threshold < usize::MAX
            && from_addr >= crate::endpoint::COOKIE_THRESHOLD_ADDR.min(ep.limits.half_open_per_addr))
    {
        let brought = match message.payloads.first() {
            Some(Payload::Notify(n)) if n.kind == NotifyType::COOKIE => Some(n.data.as_slice()),
            _ => None,
        };
        let spi = header.initiator_spi;
        let valid = brought.is_some_and(|c| ep.cookies.check(now, c, nonce, remote.ip(), spi));
        if !valid {
            ep.counters.cookies_invalid += u64::from(brought.is_some());
            ep.counters.cookies_sent += 1;
            let cookie = ep.cookies.make(now, &mut ep.rng, nonce, remote.ip(), spi);
            ep.respond_stateless(local, remote, header, NotifyType::COOKIE, cookie);
            return false;
        }
    }
    if crowded(&ep.half_open, ep.limits.half_open_max)
        || from_addr >= ep.limits.half_open_per_addr
        || ep.sas.len() >= ep.limits.ike_sa_max
    {
        ep.counters.half_open_refused += 1;
        return false;
    }
    true
}

pub(crate) fn answer_have_key(ep: &mut Endpoint, now: Instant, sa: &mut IkeSa, pair: KeyPair) {
    let Some((private, public)) = pair else {
        return ep.close_ike(now, sa, Close::Failed("no key pair could be made".to_owned()));
    };
    let Some(init) = sa.init.as_mut() else { return };
    (init.private, init.public) = (Some(private), public.clone());
    let mut payloads = vec![
        Payload::Sa(init.proposals.clone()),
        Payload::Ke(Ke { group: init.ke, data: public }),
        Payload::Nonce(Nonce(init.nr.clone())),
    ];
    payloads.extend(natd::payloads(sa.spi_i, sa.spi_r, sa.local, sa.remote, sa.nat.fake));
    payloads.push(Payload::Notify(Notify::new(NotifyType::CHILDLESS_IKEV2_SUPPORTED, [])));
    ep.respond(sa, &payloads);
}

/// Asks for the shared secret, when IKE_AUTH comes. False when it has been asked for before: then it was no good.
pub(crate) fn agree(ep: &mut Endpoint, sa: &mut IkeSa) -> bool {
    let Some(init) = sa.init.as_mut() else { return false };
    let Some(private) = init.private.take() else { return false };
    let (ke, peer_public) = (init.ke, init.peer_public.clone());
    ep.wait_for(sa, Request::Agree { ke, private, peer_public }, Kont::AnswerInitShared);
    true
}

pub(crate) fn answer_have_shared(ep: &mut Endpoint, now: Instant, sa: &mut IkeSa, shared: Option<Secret>) {
    if !derive(ep, sa, shared) {
        let why = "the peer's key exchange value is not acceptable".to_owned();
        ep.close_ike(now, sa, Close::Failed(why));
    }
}
