//! IKE_SA_INIT requests from anyone. The exchange of a request that is taken is in
//! `task::answer_init`.
//!
//! Nothing here is authenticated, so each step costs more than the one before it and is taken by
//! fewer:
//!
//! ```text
//! too short for a request            dropped
//! a repeated request                 its stored response, once a second
//! many half-open or refused          a cookie is asked for; nothing but the nonce has been read
//! refused with a cookie before       dropped, beyond a few a second from each network
//! a table that is full               dropped (see `endpoint::halfopen`)
//! proposals, nonce, KE do not fit    an answer that says so, a few a second to each network
//! a response of more than 1.2 times  a cookie is asked for
//! everything else                    a half-open IKE_SA, and a key pair
//! IKE_AUTH comes                     the shared secret, once
//! ```

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use ironswan_crypto::kex;
use ironswan_wire::iana::{ExchangeType, NotifyType, PayloadType};
use ironswan_wire::ike::payload::{Ke, find_notify};
use ironswan_wire::ike::{HEADER_LEN, Header, Message, ParseError, Payload, walk};
use ironswan_wire::proposal::{IkeSuite, Proposal};

use super::halfopen::Room;
use super::strangers::About;
use super::{Close, Endpoint};
use crate::auth::rounds::Rounds;
use crate::auth::{certificate, ppk, signature};
use crate::context::failure::Subject;
use crate::event::{IkeId, Level};
use crate::natd;
use crate::negotiate::{self, NONCE_LEN};
use crate::sa::{Answering, Half, IkeSa, Init, NatState};
use crate::task::answer_init;
use crate::timer::Timer;
use crate::window::digest;
use ironswan_keying::diagnosis::{Authentication, Guess, HalfOpenLimit, KeyExchange};
use ironswan_keying::limits::{COOKIE_THRESHOLD_PER_ADDR, INIT_REQUEST_BYTES, INIT_RESPONSE_REPEAT};
use ironswan_keying::{Childless, Connection, Diagnosis, Fit, Fragmentation, Policy};

/// UDP ports of IKE that a peer sends from (RFC 7296 section 2), the second with the non-ESP
/// marker.
const IKE_PORT: u16 = 500;
const NATT_PORT: u16 = 4500;

struct Request1<'a> {
    payloads: &'a [Payload],
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
    Some(Request1 { payloads: &message.payloads, proposals: proposals?, ke: ke?, nonce: nonce? })
}

/// What has to be known of a request to ask for a cookie or to check one.
struct Peek<'a> {
    nonce: &'a [u8],
    /// The data of the COOKIE notification that is the first payload.
    cookie: Option<&'a [u8]>,
}

fn peek<'a>(header: &Header, bytes: &'a [u8]) -> Option<Peek<'a>> {
    let mut payloads = walk(header.next_payload, bytes.get(HEADER_LEN..)?);
    let mut cookie = None;
    let first = payloads.next()?;
    if let (PayloadType::NOTIFY, [_, 0, high, low, data @ ..]) = first
        && u16::from_be_bytes([*high, *low]) == NotifyType::COOKIE.0
    {
        cookie = Some(data);
    }
    let (_, nonce) = std::iter::once(first).chain(payloads).find(|(kind, _)| *kind == PayloadType::NONCE)?;
    (16..=256).contains(&nonce.len()).then_some(Peek { nonce, cookie })
}

/// The sender of a request that belongs to no IKE_SA yet.
struct Stranger<'a> {
    local: SocketAddr,
    remote: SocketAddr,
    header: &'a Header,
    /// The whole request.
    bytes: &'a [u8],
    seen: Peek<'a>,
    /// It has brought a cookie back: it receives what is sent to its address.
    proved: bool,
}

/// A request that fits a connection of ours.
struct Accepted<'a> {
    request: &'a Request1<'a>,
    conn: Arc<Connection>,
    selected: negotiate::Selected<IkeSuite>,
    /// Bytes of our public value.
    public_len: usize,
    nat: natd::Nat,
}

/// The state of the exchange as the responder begins it. Nonce and public value have only their
/// lengths yet.
fn begin_init(policy: &dyn Policy, from: &Stranger<'_>, accepted: &Accepted<'_>) -> Init {
    // Some post-quantum preshared key is loaded; whether one is for this peer shows in IKE_AUTH.
    let has_ppks = policy.has_ppks();
    Init {
        ni: accepted.request.nonce.to_vec(),
        nr: vec![0; NONCE_LEN],
        request: from.bytes.to_vec(),
        ke: accepted.selected.suite.ke,
        public: vec![0; accepted.public_len],
        peer_public: accepted.request.ke.data.clone(),
        // "For an initial IKE SA negotiation, this field [SPI Size] MUST be zero" (RFC 7296 section
        // 3.3.1).
        proposals: vec![Proposal { spi: Vec::new(), ..accepted.selected.answer.clone() }],
        natd: accepted.nat.supported,
        childless: accepted.conn.childless != Childless::Never,
        fragments: accepted.conn.fragmentation != Fragmentation::No
            && find_notify(accepted.request.payloads, NotifyType::IKEV2_FRAGMENTATION_SUPPORTED).is_some(),
        peer_hashes: signature::announced(accepted.request.payloads),
        our_hashes: signature::hashes(&accepted.conn, false),
        ppk: ppk::Agreement {
            way: if has_ppks { ppk::way(&accepted.conn, accepted.request.payloads) } else { ppk::Way::None },
            ..ppk::Agreement::default()
        },
        our_certreq: certificate::request(policy, &accepted.conn, false),
        // Which connection the peer belongs to shows in IKE_AUTH.
        auth: Rounds { responder: policy.have_rounds(), ..Rounds::default() },
        ..Init::default()
    }
}

/// Whether the response would be too long for an address that may be somebody else's: at most 1.2
/// times what came from there.
fn amplifies(from: &Stranger<'_>, init: &Init) -> bool {
    let payloads = answer_init::response(init, 0, 0, (from.local, from.remote), false);
    let response = Message { header: *from.header, payloads };
    let len = response.emit().map_or(usize::MAX, |r| r.len());
    len.saturating_mul(5) > from.bytes.len().saturating_mul(6)
}

impl Endpoint {
    /// A request, from anyone.
    pub(super) fn answer_init(
        &mut self,
        now: Instant,
        local: SocketAddr,
        remote: SocketAddr,
        header: &Header,
        bytes: &[u8],
    ) {
        if !header.opens_ike_sa() {
            self.shared.counters.out_of_order += 1;
            return;
        }
        let Some(seen) = peek(header, bytes).filter(|_| bytes.len() >= INIT_REQUEST_BYTES) else {
            self.shared.counters.invalid += 1;
            return;
        };
        let from = Stranger { local, remote, header, bytes, seen, proved: false };
        if let Some(id) = self.half_open.find(header.initiator_spi, remote) {
            return self.repeated_init(now, id, &from);
        }
        if self.shared.spis.ike(header.initiator_spi).is_some() || self.shared.own.has(from.seen.nonce) {
            return self.aside(now, |cx| cx.reflected(remote));
        }
        let Some(from) = self.asked_for_cookie(now, from) else { return };
        if from.proved && !self.may_compare(now, remote.ip()) {
            self.shared.counters.half_open_refused += 1;
            return;
        }
        let Some(message) = self.read_message(now, &from) else { return };
        let Some(request) = read_request(&message) else {
            self.shared.counters.invalid += 1;
            return;
        };
        if self.shared.own.has(&request.ke.data) {
            return self.aside(now, |cx| cx.reflected(remote));
        }
        let Some(gives_way) = self.room_for_stranger(now, remote) else {
            self.shared.counters.half_open_refused += 1;
            return;
        };
        let Some(accepted) = self.accept_request(now, &from, &request) else { return };
        let init = begin_init(self.policy(), &from, &accepted);
        if !from.proved && amplifies(&from, &init) {
            return self.ask_for_cookie(now, &from);
        }
        self.make_half_open(now, &from, accepted, init, gives_way);
    }

    /// Parses the request. One with a critical payload that is not known is refused; others that
    /// cannot be read are only counted.
    fn read_message(&mut self, now: Instant, from: &Stranger<'_>) -> Option<Message> {
        match Message::parse(from.bytes) {
            Ok(message) => return Some(message),
            Err(error @ ParseError::UnsupportedCritical(_)) => {
                let message = "IKE_SA_INIT request".to_owned();
                self.refuse_stranger(now, from, None, &KeyExchange::Unreadable { message, error }.into());
            }
            Err(_) => self.shared.counters.invalid += 1,
        }
        None
    }

    /// Chooses connection and suite, and compares nonce and KE with the suite; or refuses the
    /// request.
    fn accept_request<'a>(
        &mut self,
        now: Instant,
        from: &Stranger<'_>,
        request: &'a Request1<'a>,
    ) -> Option<Accepted<'a>> {
        let (conn, selected) = self.choose_for_stranger(now, from, request)?;
        let suite = selected.suite;
        if request.ke.group != suite.ke {
            let why = KeyExchange::OtherMethod { received: Some(request.ke.group), wanted: suite.ke };
            self.refuse_stranger(now, from, Some(&conn.name), &why.into());
            return None;
        }
        // "Nonces used in IKEv2 MUST ... be at least half the key size of the negotiated
        // pseudorandom function" (RFC 7296 section 2.10).
        if !negotiate::nonce_fits(suite.prf, request.nonce) {
            self.shared.counters.invalid += 1;
            let why = KeyExchange::ShortNonce { bytes: request.nonce.len(), prf: suite.prf };
            self.refuse_stranger(now, from, Some(&conn.name), &why.into());
            return None;
        }
        let Some(public_len) = kex::public_len(suite.ke).filter(|len| *len == request.ke.data.len()) else {
            self.shared.counters.invalid += 1;
            return None;
        };
        let nat = natd::detect(request.payloads, from.header.initiator_spi, 0, from.local, from.remote);
        Some(Accepted { request, conn, selected, public_len, nat })
    }

    /// Makes a half-open IKE_SA, in the place of another one if need be, and begins to answer.
    fn make_half_open(
        &mut self,
        now: Instant,
        from: &Stranger<'_>,
        accepted: Accepted<'_>,
        mut init: Init,
        gives_way: Option<IkeId>,
    ) {
        let Stranger { local, remote, header, bytes, .. } = *from;
        let Accepted { conn, nat, .. } = accepted;
        let suite = accepted.selected.suite;
        init.nr = self.aside(now, |cx| cx.random(NONCE_LEN));
        init.public.clear();
        if let Some(id) = gives_way {
            self.shared.counters.half_open_displaced += 1;
            self.drop_half_open(now, id, HalfOpenLimit::Displaced);
        }

        let (id, spi_r) = self.aside(now, |cx| cx.new_ike());
        let request =
            Answering { mid: 0, exchange: ExchangeType::IKE_SA_INIT, digest: digest(bytes), local, remote };
        let nat = NatState { local: nat.local, remote: nat.remote, fake: conn.encap && nat.supported };
        let spis = (header.initiator_spi, spi_r);
        let mut sa = Box::new(IkeSa::respond(id, conn, spis, Half { suite, nat, init, request }, now));
        self.half_open.add(now, header.initiator_spi, remote, id);
        self.shared.counters.half_open = self.half_open.count() as u64;
        self.shared.timers.set(Timer::HalfOpen(id), now + self.limits().half_open_timeout);
        self.by_conn.entry(sa.conn().name.clone()).or_default().insert(id);
        self.log(Level::Debug, &sa, format!("{remote} is initiating an IKE_SA"));
        self.on(now, &mut sa, |cx, sa| answer_init::begin(cx, sa, suite.ke));
        self.settle(sa);
    }

    /// Asks for a cookie when it has to be; gives the stranger back when its request is to be
    /// looked at.
    fn asked_for_cookie<'a>(&mut self, now: Instant, from: Stranger<'a>) -> Option<Stranger<'a>> {
        let remote = from.remote.ip();
        let threshold = self.limits().cookie_threshold;
        let per_addr = COOKIE_THRESHOLD_PER_ADDR.min(self.limits().half_open_per_addr);
        let demanded = threshold < usize::MAX
            && (self.half_open.count() >= threshold
                || self.half_open.from(remote) >= per_addr
                || self.refuses_many(now));
        let spi = from.header.initiator_spi;
        let valid = |c: &[u8]| self.cookies.check(now, c, from.seen.nonce, remote, spi);
        let proved = from.seen.cookie.is_some_and(valid);
        if demanded && !proved {
            self.ask_for_cookie(now, &from);
            return None;
        }
        Some(Stranger { proved, ..from })
    }

    /// Whether one more may become half-open, and which other one gives way to it.
    fn room_for_stranger(&mut self, now: Instant, remote: SocketAddr) -> Option<Option<IkeId>> {
        // Two for each that comes, so that they become fewer.
        for _ in 0..2 {
            if let Some(id) = self.half_open.stale(now, self.limits()) {
                self.shared.counters.half_open_expired += 1;
                self.drop_half_open(now, id, HalfOpenLimit::UnderLoad);
            }
        }
        if self.sas.len() >= self.limits().ike_sa_max {
            return None;
        }
        match self.half_open.room(now, remote.ip(), self.limits()) {
            Room::Free => Some(None),
            // Also while a key exchange is computed for it, which is not wanted any more then: so
            // no more of them wait than there are entries.
            Room::InsteadOf(id) => Some(Some(id)),
            Room::None => None,
        }
    }

    fn drop_half_open(&mut self, now: Instant, id: IkeId, limit: HalfOpenLimit) {
        self.work_on(now, id, |cx, sa| {
            let why: Diagnosis = Authentication::NotInTime { limit }.into();
            cx.log_why(Level::Debug, sa, "deleting half open IKE_SA", &why);
            cx.close(sa, Close::Failed(why));
        });
    }

    /// Finds the connection and the suite, or refuses the request.
    fn choose_for_stranger(
        &mut self,
        now: Instant,
        from: &Stranger<'_>,
        request: &Request1<'_>,
    ) -> Option<(Arc<Connection>, negotiate::Selected<IkeSuite>)> {
        let (local, remote) = (from.local.ip(), from.remote.ip());
        let group = request.ke.group;
        let mut compared = 0;
        let intermediate =
            find_notify(request.payloads, NotifyType::INTERMEDIATE_EXCHANGE_SUPPORTED).is_some();
        let offered = negotiate::counting(request.proposals, intermediate);
        let mut fit = |list: &[_]| negotiate::fit_ike(list, &offered, Some(group), &mut compared);
        let chosen = self.policy().for_proposals(local, remote, &mut |list| fit(list).is_some());
        let selected = match chosen {
            Fit::Connection(conn) => fit(&conn.proposals).map(|selected| (conn, selected)),
            Fit::NoProposal | Fit::NoConnection => None,
        };
        self.shared.counters.compared += compared;
        if selected.is_some() {
            return selected;
        }
        self.shared.counters.no_proposal += 1;
        self.count_refusal(now, remote, from.proved);
        // Saying why costs more than all of the above.
        if self.may_write(now, remote, About::Message) {
            let best = self.policy().for_addresses(local, remote, 1).pop();
            match best {
                None => {
                    let guess = self.guess_peer(now, from, request.payloads).map(Box::new);
                    let why = Authentication::NoConnection { local, remote, guess };
                    let of = Subject { stranger: Some(remote), ..Subject::default() };
                    self.note_why(Level::Error, of, "", &why.into());
                }
                Some(conn) => {
                    let passed_over = offered.len() < request.proposals.len();
                    let whole = || {
                        negotiate::fit_ike(&conn.proposals, request.proposals, Some(group), &mut 0).is_some()
                    };
                    let why = match passed_over && whole() {
                        true => KeyExchange::MissingPayload {
                            message: "IKE_SA_INIT request",
                            needs: "INTERMEDIATE_EXCHANGE_SUPPORTED",
                        },
                        false => negotiate::why_not_ike(&conn.proposals, request.proposals, Some(group)),
                    };
                    let context = format!(
                        "refused an IKE_SA_INIT request of {}, sending NO_PROPOSAL_CHOSEN",
                        from.remote
                    );
                    let of = Subject { conn: Some(&conn.name), ike: None, stranger: Some(remote) };
                    self.note_why(Level::Error, of, &context, &why.into());
                }
            }
        }
        if self.may_answer(now, remote) {
            self.respond_stateless(from.local, from.remote, from.header, NotifyType::NO_PROPOSAL_CHOSEN, []);
        }
        None
    }

    /// The configured peer whose address a stranger gives for its own: that peer may be behind a
    /// NAT, or have another outer address. Nobody has authenticated this, and nothing follows from
    /// it.
    fn guess_peer(&mut self, now: Instant, from: &Stranger<'_>, payloads: &[Payload]) -> Option<Guess> {
        let (spi_i, remote) = (from.header.initiator_spi, from.remote);
        if !natd::claims_some_source(payloads) || natd::claims_source(payloads, spi_i, 0, remote) {
            return None;
        }
        // A host sends to a port of ours from the same one of its own, before a NAT.
        let port = if from.local.port() == self.options.ports.natt { NATT_PORT } else { IKE_PORT };
        let policy = self.policy.clone();
        self.shared.strangers.guess(now, |after, most, used| {
            let (found, last) = policy.find_peer(after, most, &mut |addr| {
                *used += 1;
                let source = SocketAddr::new(addr, port);
                addr.is_ipv4() == remote.is_ipv4() && natd::claims_source(payloads, spi_i, 0, source)
            });
            (found.map(|(address, conn)| Guess { conn, address }), last)
        })
    }

    /// A request with the SPI and from the address of one that was taken: a retransmission, which
    /// has its answer stored; or the same with a cookie, as two copies of the request were answered
    /// differently; or nothing that this initiator would send.
    fn repeated_init(&mut self, now: Instant, id: IkeId, from: &Stranger<'_>) {
        let Stranger { local, remote, header, bytes, seen, .. } = from;
        let first = self.sas.get(&id).and_then(|sa| sa.init());
        let may_be_twin = first.is_some_and(|init| init.request != *bytes && is_twin(&init.request, bytes));
        let valid = |c: &[u8]| self.cookies.check(now, c, seen.nonce, remote.ip(), header.initiator_spi);
        let twin = may_be_twin && seen.cookie.is_some_and(valid);
        let init = self.sas.get_mut(&id).and_then(|sa| sa.init_mut());
        let Some(init) = init.filter(|init| twin || init.request == *bytes) else {
            self.shared.counters.out_of_order += 1;
            return;
        };
        self.shared.counters.retransmits_in += 1;
        let due = init.answered.is_none_or(|t| now.saturating_duration_since(t) >= INIT_RESPONSE_REPEAT);
        // Who brings its first cookie has perhaps not got the answer to the copy without.
        let due = due || (twin && init.twin.is_empty());
        if twin {
            init.twin = bytes.to_vec();
        }
        // Without a response, it is being made.
        if due && !init.response.is_empty() {
            init.answered = Some(now);
            let response = init.response.clone();
            self.transmit(*local, *remote, &response);
        }
    }

    /// Sends a cookie. Nothing is kept for it.
    fn ask_for_cookie(&mut self, now: Instant, from: &Stranger<'_>) {
        self.shared.counters.cookies_invalid += u64::from(from.seen.cookie.is_some());
        self.shared.counters.cookies_sent += 1;
        let spi = from.header.initiator_spi;
        let cookie = self.cookies.make(now, &mut self.shared.rng, from.seen.nonce, from.remote.ip(), spi);
        self.respond_stateless(from.local, from.remote, from.header, NotifyType::COOKIE, cookie);
    }

    /// Refuses the request, which would belong to this connection. The line that says why is made
    /// only if it is written.
    fn refuse_stranger(&mut self, now: Instant, from: &Stranger<'_>, conn: Option<&str>, why: &Diagnosis) {
        let Some(notify) = why.notify() else { return };
        self.count_refusal(now, from.remote.ip(), from.proved);
        if self.may_write(now, from.remote.ip(), About::Message) {
            let asks_again = notify.kind == NotifyType::INVALID_KE_PAYLOAD;
            let level = if asks_again { Level::Info } else { Level::Error };
            let context =
                format!("refused an IKE_SA_INIT request of {}, sending {}", from.remote, notify.kind);
            let of = Subject { conn, ike: None, stranger: Some(from.remote.ip()) };
            self.note_why(level, of, &context, why);
        }
        if self.may_answer(now, from.remote.ip()) {
            self.respond_stateless(from.local, from.remote, from.header, notify.kind, notify.data);
        }
    }
}

/// True when two IKE_SA_INIT requests differ in nothing but a COOKIE in front of the payloads of
/// either.
fn is_twin(one: &[u8], other: &[u8]) -> bool {
    let parts = |bytes: &[u8]| -> Option<(Vec<u8>, Vec<u8>)> {
        let (header, body) = bytes.split_at_checked(HEADER_LEN)?;
        let notify = header[16] == PayloadType::NOTIFY.0;
        let cookie = notify && body.get(6..8)? == NotifyType::COOKIE.0.to_be_bytes();
        // SPIs and the first payload's type; version, exchange, flags and message ID. The length
        // follows from the rest.
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
