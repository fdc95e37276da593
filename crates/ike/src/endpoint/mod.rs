//! All IKE_SAs of one gateway, as a state machine without clock, socket or thread.
//!
//! Methods are of four kinds: commands (what an operator wants), `handle_*` and `complete` (what happened outside),
//! `poll_*` (what the driver must do now), and views. After any of the first two kinds, poll in this order until all are
//! empty: **events, requests, transmits**, then the timeout. Events come first because an inbound SA must stand before the
//! peer is told of it.
//!
//! ```text
//! datagram -> receive -> IKE_SA by SPI -> window -> open -> task::*::answer (request) or ::process (response)
//!                                                              |-> install -> Event::Sadb
//! command, timer ------> lifecycle -----> queue -> task::*::build -> send -> Transmit
//! ```
//!
//! Not here: what each exchange says (`task`), and how an IKE_SA looks (`sa`).
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `close` | the end of an IKE_SA |
//! | `commands` | initiate, terminate, rekey |
//! | `halfopen` | half-open IKE_SAs and their limits |
//! | `initiate` | from the order for an IKE_SA to IKE_SA_INIT |
//! | `install` | tells the packet engine about CHILD_SAs |
//! | `lifecycle` | the queue of tasks, establishment, heirs |
//! | `load` | SAs and policies follow what is loaded |
//! | `old_inbound` | inbound SAs of rekeyed children |
//! | `orders` | obeys policy: begins and ends |
//! | `own` | recognises our own datagrams when they come back |
//! | `progress` | how far the protocol is with what policy wants |
//! | `race` | several addresses of one peer, side by side |
//! | `receive` | from a datagram to its task |
//! | `roam` | our own addresses and routes change |
//! | `select` | asks policy which connection a peer belongs to |
//! | `send` | makes and queues messages |
//! | `spd` | installed policies, reqids |
//! | `strangers` | limits what unauthenticated senders may cost |
//! | `timeout` | what a timer starts, and notices of the engine |
//! | `unique` | `unique` and INITIAL_CONTACT |
//! | `view` | snapshots for people and VICI |

mod close;
mod commands;
mod halfopen;
mod initiate;
mod install;
mod lifecycle;
mod load;
mod old_inbound;
mod orders;
mod own;
mod progress;
mod race;
mod receive;
mod roam;
mod select;
mod send;
mod spd;
mod strangers;
mod timeout;
mod unique;
mod view;

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};
use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use ironswan_crypto::rng::Rng;
use ironswan_wire::id::Identity;
use ironswan_wire::sadb::{ReqId, SaRef, Spi, Up};

use crate::cookie::Cookies;
use crate::counters::Counters;
use crate::event::{
    ChildId, Completion, Event, IkeId, IkeSaInfo, Level, Request, RequestId, Ticket, Transmit,
};
use crate::sa::IkeSa;
use crate::timer::Timers;
use ironswan_keying::tunnels::AttemptId;
use ironswan_keying::{Limits, Policy, Ports, Tunnels};

pub use commands::Target;
pub(crate) use halfopen::{HalfOpen, Room};
pub(crate) use install::NewSas;
pub(crate) use ironswan_keying::Close;
pub use ironswan_keying::{CommandError, Down, Next, STOPPING};
use old_inbound::OldInbounds;
pub(crate) use roam::Roam;
pub(crate) use spd::{Narrowed, Spd};
pub(crate) use strangers::About;

/// Settings of an endpoint that do not change while it lives.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Options {
    /// Emit [`Event::KeyLog`].
    pub keylog: bool,
    /// Our UDP ports.
    pub ports: Ports,
}

/// All IKE_SAs of one gateway.
pub struct Endpoint {
    pub(crate) options: Options,
    pub(crate) rng: Box<dyn Rng>,
    /// Policy: it gives orders, and answers questions.
    tunnels: Tunnels,

    /// Every IKE_SA but the one being worked on.
    pub(crate) sas: BTreeMap<IkeId, Box<IkeSa>>,
    /// Our SPI to IKE_SA. Never iterated, so its order cannot show.
    pub(crate) by_spi: HashMap<u64, IkeId>,
    pub(crate) by_conn: BTreeMap<String, BTreeSet<IkeId>>,
    /// Established IKE_SAs by (local, remote) identity, as [`unique::identities`] writes them.
    pub(crate) by_ids: BTreeMap<(Identity, Identity), BTreeSet<IkeId>>,
    /// Attempts for one tunnel at several addresses of the peer, by the first of them.
    pub(crate) races: BTreeMap<IkeId, race::Race>,
    /// What each authenticated identity has.
    pub(crate) by_peer: BTreeMap<Identity, unique::Held>,
    pub(crate) half_open: HalfOpen,
    pub(crate) tombs: receive::Tombs,
    /// Our nonces and public values that are under way. Never iterated.
    pub(crate) own: HashSet<own::Own>,

    /// Our inbound SPIs, reserved or installed.
    pub(crate) spis_in: HashMap<Spi, ChildId>,
    pub(crate) spis_out: HashMap<SaRef, ChildId>,
    /// Our CPIs, reserved or installed.
    pub(crate) cpis: HashMap<u16, ChildId>,
    pub(crate) child_home: HashMap<ChildId, IkeId>,
    /// Inbound SAs of rekeyed children that are kept a while.
    pub(crate) old_inbound: OldInbounds,
    pub(crate) spd: Spd,

    pub(crate) timers: Timers,
    pub(crate) cookies: Cookies,
    pub(crate) todo: VecDeque<lifecycle::Todo>,
    /// What attempts to come take over from IKE_SAs that have ended or are to move.
    carried: BTreeMap<AttemptId, orders::Carried>,
    pub(crate) tickets: BTreeMap<Ticket, lifecycle::Waiting>,
    pub(crate) pending: BTreeMap<RequestId, Pending>,
    pub(crate) counters: Counters,
    /// Our addresses, once we have been told ([`Self::network_changed`]).
    pub(crate) addresses: Option<BTreeSet<IpAddr>>,
    /// Limits what those who are not authenticated cost.
    pub(crate) strangers: strangers::Strangers,

    events: VecDeque<Event>,
    requests: VecDeque<(RequestId, Request)>,
    transmits: VecDeque<Transmit>,

    next_ike: u64,
    next_child: u64,
    next_request: u64,
    next_ticket: u64,
}

/// Who asked.
pub(crate) enum Pending {
    /// An IKE_SA that waits for it.
    Sa(IkeId),
    /// A liveness check that goes on meanwhile.
    Usage(IkeId),
    /// The way to a peer, for these IKE_SAs.
    Path {
        /// The peer.
        remote: IpAddr,
        /// IKE_SAs that had it there when it was asked for.
        sas: Vec<IkeId>,
    },
    /// A DNS name that is kept fresh.
    Name(String),
    /// A trap whose local address has to be known.
    Trap {
        /// Connection.
        conn: String,
        /// Child.
        child: String,
    },
}

impl Endpoint {
    /// An endpoint without connections.
    pub fn new(limits: Limits, rng: Box<dyn Rng>, options: Options) -> Self {
        Self {
            options,
            rng,
            tunnels: Tunnels::new(limits),
            carried: BTreeMap::new(),
            sas: BTreeMap::new(),
            by_spi: HashMap::new(),
            by_conn: BTreeMap::new(),
            by_ids: BTreeMap::new(),
            races: BTreeMap::new(),
            by_peer: BTreeMap::new(),
            half_open: HalfOpen::default(),
            tombs: receive::Tombs::default(),
            own: HashSet::new(),
            spis_in: HashMap::new(),
            spis_out: HashMap::new(),
            cpis: HashMap::new(),
            child_home: HashMap::new(),
            old_inbound: OldInbounds::default(),
            spd: Spd::default(),
            timers: Timers::default(),
            cookies: Cookies::default(),
            todo: VecDeque::new(),
            tickets: BTreeMap::new(),
            pending: BTreeMap::new(),
            counters: Counters::default(),
            addresses: None,
            strangers: strangers::Strangers::default(),
            events: VecDeque::new(),
            requests: VecDeque::new(),
            transmits: VecDeque::new(),
            next_ike: 0,
            next_child: 0,
            next_request: 0,
            next_ticket: 0,
        }
    }

    // ---- what happened outside ----

    /// A datagram has come to `local` from `remote`. `payload` is without the non-ESP marker.
    pub fn handle_datagram(&mut self, now: Instant, local: SocketAddr, remote: SocketAddr, payload: &[u8]) {
        self.receive(now, local, remote, payload);
        self.run_todo(now);
    }

    /// Time has passed: fires every timer that is due. Call it when [`Self::poll_timeout`] says, or at any time.
    pub fn handle_timeout(&mut self, now: Instant) {
        loop {
            let policy = self.tunnels.poll_timeout().filter(|at| *at <= now);
            let first = self.timers.next().filter(|at| policy.is_none_or(|policy| *at <= policy));
            if let Some(timer) = first.and_then(|_| self.timers.pop(now)) {
                self.fire(now, timer);
            } else if policy.is_some() {
                self.tunnels.handle_timeout(now);
            } else {
                return;
            }
            self.run_todo(now);
        }
    }

    /// The packet engine has something to say.
    pub fn handle_engine(&mut self, now: Instant, up: Up) {
        self.engine(now, up);
        self.run_todo(now);
    }

    /// The answer to a request. One that is not expected any more is dropped.
    pub fn complete(&mut self, now: Instant, id: RequestId, completion: Completion) {
        match self.pending.remove(&id) {
            Some(Pending::Sa(ike)) => self.with_sa(now, ike, |ep, sa| ep.resume(now, sa, id, completion)),
            Some(Pending::Usage(ike)) => {
                if let Completion::Usage { last_inbound } = completion {
                    self.with_sa(now, ike, |ep, sa| crate::task::liveness::judge(ep, now, sa, last_inbound));
                }
            }
            Some(Pending::Path { remote, sas }) => {
                if let Completion::Route { local } = completion {
                    self.path_known(now, remote, &sas, local);
                }
            }
            Some(Pending::Name(name)) => {
                let (addrs, error) = addresses(completion);
                self.tunnels.looked_up(now, &mut self.rng, &name, &addrs, error);
            }
            Some(Pending::Trap { conn, child }) => {
                let local = if let Completion::Route { local } = completion { local } else { None };
                self.tunnels.trap_routed(&conn, &child, local);
            }
            None => {}
        }
        self.run_todo(now);
    }

    /// When a request is for a peer that has begun and that nobody knows yet, a number for the site (/48, /16) that it is in. Such
    /// a request goes after all others, and sites take turns: one that sends many holds up no other.
    pub fn stranger(&self, id: RequestId) -> Option<u64> {
        let sa = match self.pending.get(&id) {
            Some(Pending::Sa(ike)) => self.sas.get(ike)?,
            _ => return None,
        };
        (!sa.initiator && !sa.is_up()).then(|| halfopen::site_number(sa.remote.ip()))
    }

    /// Too much waits already, and this request of a stranger's will not be answered: its half-open IKE_SA ends without a
    /// word. An honest peer asks again.
    pub fn refuse(&mut self, now: Instant, id: RequestId) {
        self.counters.half_open_refused += 1;
        self.complete(now, id, Completion::Failed { error: "too many wait".to_owned() });
    }

    // ---- what the driver must do, in this order ----

    /// The next event. Drain these before anything else.
    pub fn poll_event(&mut self) -> Option<Event> {
        self.events.pop_front()
    }

    /// The next piece of work for outside.
    pub fn poll_request(&mut self) -> Option<(RequestId, Request)> {
        self.requests.pop_front()
    }

    /// The next datagram to send.
    pub fn poll_transmit(&mut self) -> Option<Transmit> {
        self.transmits.pop_front()
    }

    /// When [`Self::handle_timeout`] must be called next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next().into_iter().chain(self.tunnels.poll_timeout()).min()
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

    /// A snapshot of one IKE_SA.
    pub fn ike_sa(&self, now: Instant, id: IkeId) -> Option<IkeSaInfo> {
        self.sas.get(&id).map(|sa| self.snapshot(now, sa))
    }

    /// How many IKE_SAs there are, half-open ones included.
    pub fn ike_sa_count(&self) -> usize {
        self.sas.len()
    }

    /// Counters since the start.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    // ---- for the rest of the crate ----

    /// Policy: which connection, which secret, and whether an identity may stand.
    pub(crate) fn policy(&self) -> &dyn Policy {
        self.tunnels.policy()
    }

    pub(crate) fn limits(&self) -> &Limits {
        self.tunnels.limits()
    }

    pub(crate) fn emit(&mut self, event: Event) {
        self.events.push_back(event);
    }

    /// A line about this IKE_SA.
    pub(crate) fn log(&mut self, level: Level, sa: &IkeSa, text: impl Into<String>) {
        let conn = (!sa.conn.name.is_empty()).then(|| sa.conn.name.clone());
        self.emit(Event::Log { level, conn, ike: Some(sa.id), text: text.into() });
    }

    /// A line about no IKE_SA.
    pub(crate) fn note(&mut self, level: Level, conn: Option<&str>, text: impl Into<String>) {
        self.emit(Event::Log { level, conn: conn.map(str::to_owned), ike: None, text: text.into() });
    }

    pub(crate) fn new_ike_id(&mut self) -> IkeId {
        self.next_ike += 1;
        IkeId(self.next_ike)
    }

    pub(crate) fn new_child_id(&mut self) -> ChildId {
        self.next_child += 1;
        ChildId(self.next_child)
    }

    pub(crate) fn new_ticket(&mut self) -> Ticket {
        self.next_ticket += 1;
        Ticket(self.next_ticket)
    }

    /// Asks outside, and remembers who asked.
    pub(crate) fn ask(&mut self, who: Pending, request: Request) -> RequestId {
        self.next_request += 1;
        let id = RequestId(self.next_request);
        match request {
            Request::GenerateKey { .. } => self.counters.kex_generated += 1,
            Request::Agree { .. } => self.counters.kex_agreed += 1,
            Request::Usage { .. } | Request::Route { .. } | Request::Resolve { .. } => {}
        }
        self.pending.insert(id, who);
        self.requests.push_back((id, request));
        id
    }

    /// Nobody waits for the answer any more.
    pub(crate) fn forget_request(&mut self, id: RequestId) {
        if self.pending.remove(&id).is_none() {
            return;
        }
        match self.requests.iter().rposition(|(of, _)| *of == id) {
            // Nobody has seen it yet.
            Some(at) => _ = self.requests.remove(at),
            None => self.emit(Event::Unwanted(id)),
        }
    }

    /// Random bytes.
    pub(crate) fn random(&mut self, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.rng.fill(&mut out);
        out
    }

    /// An IKE SPI that is not in use; never 0.
    pub(crate) fn new_ike_spi(&mut self, id: IkeId) -> u64 {
        loop {
            let spi = self.rng.u64();
            if spi != 0 && !self.by_spi.contains_key(&spi) && !self.tombs.knows(spi) {
                self.by_spi.insert(spi, id);
                return spi;
            }
        }
    }

    /// An inbound SPI, for ESP or AH, that is not in use. In charon's range, 0xc0000000 to 0xcfffffff: far from 1 to 255, which
    /// are reserved, and easy to tell from the peer's in a log.
    pub(crate) fn new_child_spi(&mut self, id: ChildId) -> Spi {
        loop {
            let spi = Spi(0xc000_0000 | (self.rng.u32() & 0x0fff_ffff));
            if let Entry::Vacant(free) = self.spis_in.entry(spi) {
                free.insert(id);
                return spi;
            }
        }
    }

    /// Works on one IKE_SA, which is out of the table meanwhile, and then starts what waits in its queue.
    pub(crate) fn with_sa(&mut self, now: Instant, id: IkeId, work: impl FnOnce(&mut Self, &mut IkeSa)) {
        let Some(mut sa) = self.sas.remove(&id) else { return };
        work(self, &mut sa);
        self.pump(now, &mut sa);
        self.moved_on(now, &mut sa);
        self.settle(sa);
    }

    /// Puts an IKE_SA into the table; a dead one only leaves the indexes.
    pub(crate) fn settle(&mut self, sa: Box<IkeSa>) {
        if !sa.dead {
            self.sas.insert(sa.id, sa);
        }
    }

    pub(crate) fn reqid_trap(&self, reqid: ReqId) -> Option<(String, String)> {
        self.spd.trap_of(reqid)
    }
}

/// What the resolver has said; nothing, for an answer to something else.
pub(crate) fn addresses(completion: Completion) -> (Vec<IpAddr>, Option<String>) {
    match completion {
        Completion::Addresses { addrs, error } => (addrs, error),
        Completion::Failed { error } => (Vec::new(), Some(error)),
        _ => (Vec::new(), None),
    }
}
