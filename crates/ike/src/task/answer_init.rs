//! IKE_SA_INIT as responder: requests from anyone. The exchange itself stands in `sa_init`.
//!
//! Nothing here is authenticated, and nothing expensive is computed before the initiator has shown that it is where it says
//! (when cookies are asked for); the shared secret when IKE_AUTH comes, once.

use std::net::SocketAddr;
use std::time::Instant;

use ironswan_crypto::kex;
use ironswan_wire::iana::{ExchangeType, NotifyType, PayloadType};
use ironswan_wire::ike::payload::{Ke, Nonce, Notify};
use ironswan_wire::ike::{HEADER_LEN, Header, Message, Payload};
use ironswan_wire::proposal::Proposal;
use ironswan_wire::secret::Secret;

use super::Kont;
use super::sa_init::{KeyPair, derive};
use crate::endpoint::{Close, Endpoint, HalfOpen};
use crate::event::{IkeState, Level, Request};
use crate::natd;
use crate::negotiate::{self, NONCE_LEN};
use crate::sa::{Answering, IkeSa, Init, NatState};
use crate::timer::Timer;
use crate::window::digest;

/// No more connections than this are compared with the proposals of one request: nobody is authenticated yet.
const MAX_CANDIDATES: usize = 64;

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
        // "For an initial IKE SA negotiation, this field [SPI Size] MUST be zero" (RFC 7296 section 3.3.1).
        proposals: vec![Proposal { spi: Vec::new(), ..selected.answer }],
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

pub(crate) fn have_key(ep: &mut Endpoint, now: Instant, sa: &mut IkeSa, pair: KeyPair) {
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

pub(crate) fn have_shared(ep: &mut Endpoint, now: Instant, sa: &mut IkeSa, shared: Option<Secret>) {
    if !derive(ep, sa, shared) {
        let why = "the peer's key exchange value is not acceptable".to_owned();
        ep.close_ike(now, sa, Close::Failed(why));
    }
}
