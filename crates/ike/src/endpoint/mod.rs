//! All IKE_SAs of one gateway, as a state machine without clock, socket or thread.
//!
//! Methods are of four kinds: orders and commands of policy
//! ([`Protocol`](ironswan_keying::Protocol)), `handle_*` and `complete` (what happened outside),
//! `poll_*` (what the driver must do now), and views. After any of the first two kinds, first
//! carry the reports to policy and obey its orders, as [`Joined`](ironswan_keying::Joined) does.
//! Then poll in this order until all are empty: **events, requests, transmits**, then the timeout.
//! Events come first because an inbound SA must stand before the peer is told of it.
//!
//! ```text
//! datagram -> receive -> IKE_SA by SPI -> window -> open -> task::*::answer, or ::process
//!                                                              |-> install -> Event::Sadb
//! order, timer --------> lifecycle -----> queue -> task::*::build -> send -> Transmit
//! ```
//!
//! Not here: what each exchange says (`task`), and how an IKE_SA looks (`sa`).
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `admit` | asks what an unauthenticated sender may cost |
//! | `close` | the end of an IKE_SA |
//! | `commands` | terminate and rekey |
//! | `complete` | who gets the answer to a request |
//! | `effects` | lends an IKE_SA its surroundings, and carries out its effects |
//! | `failure` | lines and notifications of a diagnosis |
//! | `halfopen` | half-open IKE_SAs and their limits |
//! | `handover` | children of one tunnel on two IKE_SAs |
//! | `init_requests` | IKE_SA_INIT requests from anyone |
//! | `icmp` | ICMP errors about our requests: noted, never acted on |
//! | `initiate` | from the order for an IKE_SA to IKE_SA_INIT |
//! | `lifecycle` | the queue of tasks, establishment, heirs |
//! | `load` | SAs, traps and shunts follow what is loaded |
//! | `old_inbound` | inbound SAs of rekeyed children |
//! | `orders` | the endpoint as policy sees it: obeys orders, begins and ends |
//! | `others` | answers about other IKE_SAs |
//! | `outbox` | reports, events, requests and datagrams that the driver takes next |
//! | `own` | recognises our own datagrams when they come back |
//! | `peers` | what each authenticated identity has |
//! | `probes` | pace of measurements of paths, and peers that refuse them |
//! | `progress` | how far the protocol is with what policy wants |
//! | `race` | several addresses of one peer, side by side |
//! | `reached` | ports at which peers were reached |
//! | `receive` | from a datagram to its IKE_SA |
//! | `roam` | our own addresses and routes change |
//! | `send` | makes and queues messages |
//! | `shared` | state that all IKE_SAs share |
//! | `spd` | installed policies, reqids |
//! | `spis` | SPIs and CPIs: which number belongs to whom |
//! | `strangers` | limits what unauthenticated senders may cost |
//! | `tickets` | commands that are not over |
//! | `timeout` | what a timer starts, and notices of the engine |
//! | `todo` | work that is put off until an IKE_SA is back in its place |
//! | `tombs` | last answers of IKE_SAs that are gone |
//! | `unknown` | requests of IKE_SAs that are not there |
//! | `unanswered` | the request of an attempt that nobody answered, for the next attempt |
//! | `unique` | `unique` and INITIAL_CONTACT |
//! | `view` | snapshots for people and VICI |

mod admit;
mod close;
mod commands;
mod complete;
mod effects;
mod failure;
mod halfopen;
pub(crate) mod handover;
mod icmp;
mod init_requests;
mod initiate;
mod lifecycle;
mod load;
pub(crate) mod old_inbound;
mod orders;
mod others;
pub(crate) mod outbox;
pub(crate) mod own;
pub(crate) mod peers;
pub(crate) mod probes;
mod progress;
mod race;
pub(crate) mod reached;
mod receive;
mod roam;
mod send;
pub(crate) mod shared;
pub(crate) mod spd;
pub(crate) mod spis;
pub(crate) mod strangers;
pub(crate) mod tickets;
mod timeout;
pub(crate) mod todo;
pub(crate) mod tombs;
pub(crate) mod unanswered;
pub(crate) mod unique;
mod unknown;
pub(crate) mod view;

use ironswan_keying::diagnosis::{KeyExchange, Uncomputed};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

use ironswan_crypto::rng::Rng;
use ironswan_wire::id::Identity;
use ironswan_wire::sadb::Up;

use crate::cookie::Cookies;
use crate::counters::{Counters, IkeCounters};
use crate::event::{Completion, Event, IkeId, IkeSaInfo, Level, Request, RequestId, Transmit};
use crate::options::Options;
use crate::sa::IkeSa;
use ironswan_keying::choices::way::Addresses;
use ironswan_keying::{Diagnosis, Limits, Policy, Report};

pub(crate) use crate::sa::Roam;
pub(crate) use complete::addresses;
pub(crate) use halfopen::HalfOpen;
pub(crate) use ironswan_keying::Close;
pub(crate) use outbox::Pending;
use shared::Shared;
pub(crate) use spd::Narrowed;
pub(crate) use strangers::About;

/// All IKE_SAs of one gateway.
pub struct Endpoint {
    options: Options,
    /// Policy, to be asked.
    policy: Arc<dyn Policy>,
    limits: Limits,
    /// Our addresses, once we have been told.
    addresses: Addresses,

    /// Every IKE_SA but the one being worked on.
    sas: BTreeMap<IkeId, Box<IkeSa>>,
    by_conn: BTreeMap<String, BTreeSet<IkeId>>,
    /// Established IKE_SAs by (local, remote) identity, as [`unique::identities`] writes them.
    by_ids: BTreeMap<(Identity, Identity), BTreeSet<IkeId>>,
    /// Attempts for one tunnel at several addresses of the peer, by the first of them.
    races: BTreeMap<IkeId, todo::Race>,
    half_open: HalfOpen,
    cookies: Cookies,
    /// Requests without an answer of attempts that may be repeated, by the IKE_SA of the attempt.
    unanswered: BTreeMap<IkeId, unanswered::UnansweredInit>,
    /// State that every IKE_SA reads and changes while it works.
    shared: Shared,
}

impl Endpoint {
    /// An endpoint without IKE_SAs that asks this policy.
    pub fn new(policy: Arc<dyn Policy>, limits: Limits, rng: Box<dyn Rng>, options: Options) -> Self {
        Self {
            options,
            policy,
            limits,
            addresses: Addresses::default(),
            unanswered: BTreeMap::new(),
            sas: BTreeMap::new(),
            by_conn: BTreeMap::new(),
            by_ids: BTreeMap::new(),
            races: BTreeMap::new(),
            half_open: HalfOpen::default(),
            cookies: Cookies::default(),
            shared: Shared::new(rng),
        }
    }

    // ---- what happened outside ----

    /// A datagram has come to `local` from `remote`. `payload` is without the non-ESP marker.
    pub fn handle_datagram(&mut self, now: Instant, local: SocketAddr, remote: SocketAddr, payload: &[u8]) {
        self.receive(now, local, remote, payload);
        self.run_todo(now);
    }

    /// The packet engine has something to say.
    pub fn handle_engine(&mut self, now: Instant, up: Up) {
        self.engine(now, up);
        self.run_todo(now);
    }

    /// When a request is for a peer that has begun and that nobody knows yet, a number for the site
    /// (/48, /16) that it is in. Such a request goes after all others, and sites take turns: one
    /// that sends many holds up no other.
    pub fn stranger(&self, id: RequestId) -> Option<u64> {
        let sa = match self.shared.outbox.pending(id) {
            Some(Pending::Sa(ike)) => self.sas.get(ike)?,
            _ => return None,
        };
        (!sa.is_initiator() && !sa.is_up()).then(|| halfopen::site_number(sa.remote().ip()))
    }

    /// Too much waits already, and this request of a stranger's will not be answered: its half-open
    /// IKE_SA ends without a word. An honest peer asks again.
    pub fn refuse(&mut self, now: Instant, id: RequestId) {
        self.shared.counters.half_open_refused += 1;
        self.complete(
            now,
            id,
            Completion::Failed { why: KeyExchange::NotComputed { why: Uncomputed::TooMany }.into() },
        );
    }

    /// The operating system has not sent a datagram of this IKE_SA to its peer. Whoever asks how
    /// far the request in flight is hears this reason, until the request is sent again.
    pub fn not_sent(&mut self, ike: IkeId, why: Diagnosis) {
        let active = self.sas.get_mut(&ike).and_then(|sa| sa.work_mut().active_mut());
        if let Some(active) = active {
            active.unsent = Some(why);
        }
    }

    /// Tells the keys of IKE_SAs and CHILD_SAs from now on by [`Event::KeyLog`], or no longer. Keys
    /// of SAs that are there already are not kept.
    pub fn set_keylog(&mut self, on: bool) {
        self.options.keylog = on;
    }

    // ---- what the driver must do, in this order ----

    /// The next event. Drain these before anything else.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.shared.outbox.poll_event()
    }

    /// The next piece of work for outside.
    pub fn poll_request(&mut self) -> Option<(RequestId, Request)> {
        self.shared.outbox.poll_request()
    }

    /// The next datagram to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.shared.outbox.poll_transmit()
    }

    // ---- views ----

    /// What it was told at its making.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// A snapshot of every IKE_SA, by id.
    pub fn ike_sas(&self, now: Instant) -> Vec<IkeSaInfo> {
        self.sas.values().map(|sa| self.snapshot(now, sa)).collect()
    }

    /// A snapshot of every IKE_SA of a connection, by id.
    pub fn ike_sas_of(&self, now: Instant, conn: &str) -> Vec<IkeSaInfo> {
        let ids = self.by_conn.get(conn).into_iter().flatten();
        ids.filter_map(|id| self.ike_sa(now, *id)).collect()
    }

    /// A snapshot of one IKE_SA.
    pub fn ike_sa(&self, now: Instant, id: IkeId) -> Option<IkeSaInfo> {
        self.sas.get(&id).map(|sa| self.snapshot(now, sa))
    }

    /// The IKE_SA of a message between us and `remote` with these SPIs in its header.
    pub fn ike_of(&self, spi_i: u64, spi_r: u64, remote: SocketAddr) -> Option<IkeId> {
        let spis = &self.shared.spis;
        spis.ike(spi_r).or_else(|| spis.ike(spi_i)).or_else(|| self.half_open.find(spi_i, remote))
    }

    /// Name of the connection of an IKE_SA. Before the peer has said who it is, the one that its
    /// addresses suggest.
    pub fn conn_of(&self, id: IkeId) -> Option<&str> {
        self.sas.get(&id).map(|sa| sa.conn().name.as_str())
    }

    /// How many IKE_SAs there are, half-open ones included.
    pub fn ike_sa_count(&self) -> usize {
        self.sas.len()
    }

    /// Counters since the start.
    pub fn counters(&self) -> &Counters {
        &self.shared.counters
    }

    /// Counters of one connection since it was loaded; `None`: nothing was counted for it.
    pub fn counters_of(&self, conn: &str) -> Option<IkeCounters> {
        self.shared.by_connection.of(conn)
    }

    /// Counters of all connections for which something was counted, by name.
    pub fn counters_by_connection(&self) -> impl Iterator<Item = (&str, IkeCounters)> {
        self.shared.by_connection.all()
    }

    /// The peer's address and port of an IKE_SA; `None`: there is no such IKE_SA.
    pub fn peer_of(&self, id: IkeId) -> Option<SocketAddr> {
        self.sas.get(&id).map(|sa| sa.remote())
    }

    // ---- for the rest of the crate ----

    /// Policy: which connection, which secret, and whether an identity may stand.
    pub(crate) fn policy(&self) -> &dyn Policy {
        &*self.policy
    }

    pub(crate) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Reports to policy.
    pub(crate) fn report(&mut self, report: Report) {
        self.shared.outbox.report(report);
    }

    pub(crate) fn emit(&mut self, event: Event) {
        self.shared.outbox.emit(event);
    }

    /// A line about this IKE_SA.
    pub(crate) fn log(&mut self, level: Level, sa: &IkeSa, text: impl Into<String>) {
        self.emit(crate::context::line(level, sa, text));
    }

    /// A line about no IKE_SA.
    pub(crate) fn note(&mut self, level: Level, conn: Option<&str>, text: impl Into<String>) {
        self.emit(Event::Log {
            level,
            conn: conn.map(str::to_owned),
            ike: None,
            text: text.into(),
            why: None,
            stranger: None,
        });
    }

    /// Asks outside, and remembers who asked.
    pub(crate) fn ask(&mut self, who: Pending, request: Request) -> RequestId {
        self.shared.counters.count_request(&request);
        self.shared.outbox.ask(who, request)
    }

    /// Puts an IKE_SA into the table; a dead one only leaves the indexes.
    pub(crate) fn settle(&mut self, sa: Box<IkeSa>) {
        if !sa.is_dead() {
            self.sas.insert(sa.id(), sa);
        } else {
            self.forget_counters(&sa.conn().name);
        }
    }

    /// The counters of a connection go with it, once it has no IKE_SA left.
    pub(crate) fn forget_counters(&mut self, conn: &str) {
        if !self.by_conn.contains_key(conn) && self.policy.connection(conn).is_none() {
            self.shared.by_connection.forget(conn);
        }
    }
}
