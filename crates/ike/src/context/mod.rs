//! The surroundings in which one IKE_SA works: the time, answers of policy, the queues to the
//! driver, and the numbers, timers and counters that all IKE_SAs share. The table of IKE_SAs is not
//! among them.
//!
//! ```text
//! Endpoint ── on ──▶ Context + IkeSa ──▶ tasks and exchanges
//!    ▲                  │    └─ Others: a few answers about other IKE_SAs
//!    └── carry_out ◀─ Effect, in order: whatever concerns the table or another IKE_SA
//! ```
//! An IKE_SA does more than its exchanges: it takes messages in, sends, and tells the packet engine
//! about its children. The files below do that. Nothing here names the endpoint or sees another
//! IKE_SA.
//!
//! Not here: how the endpoint carries effects out (`endpoint/effects`), and the answers about other
//! IKE_SAs (`endpoint/others`).
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `admit` | limits on the cost of senders that nobody has authenticated |
//! | `close` | tasks and children of an IKE_SA that ends |
//! | `failure` | lines and notifications of a diagnosis |
//! | `flow` | looks whether packets come back on the children |
//! | `inactivity` | children that carry nothing for `inactivity` are closed |
//! | `initiate` | from the wish for an IKE_SA to IKE_SA_INIT |
//! | `install` | tells the packet engine about CHILD_SAs |
//! | `lifecycle` | the queue of tasks, establishment, heirs |
//! | `load` | a child follows the connection that is loaded |
//! | `mobike` | when an IKE_SA moves to other addresses |
//! | `peer_limits` | limits for each authenticated identity |
//! | `process` | messages of one IKE_SA, from the datagram to the task |
//! | `race` | when another address of the peer is asked as well |
//! | `reauth` | an IKE_SA is made anew in time |
//! | `roam` | one IKE_SA while our own addresses and routes change |
//! | `select` | asks policy which connection a peer belongs to |
//! | `send` | makes and queues messages |
//! | `timeout` | work when a timer fires |

mod admit;
mod close;
pub(crate) mod failure;
mod flow;
mod inactivity;
pub(crate) mod initiate;
pub(crate) mod install;
pub(crate) mod lifecycle;
mod load;
mod mobike;
mod peer_limits;
mod process;
mod race;
mod reauth;
pub(crate) mod roam;
mod select;
mod send;
mod timeout;

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use ironswan_crypto::rng::Rng;
use ironswan_wire::id::Identity;
use ironswan_wire::sadb::{ReqId, Spi};

use crate::child::{Agreed, Children};
use crate::counters::Counters;
use crate::endpoint::handover::Older;
use crate::endpoint::outbox::Pending;
use crate::endpoint::shared::Shared;
use crate::endpoint::todo::Todo;
use crate::event::{ChildId, Event, IkeId, IkeSaInfo, Level, Request, RequestId, Ticket};
use crate::init::Init;
use crate::options::Options;
use crate::qcd::TokenMaker;
use crate::sa::{IkeSa, Probing};
use crate::task::{Agreement, NewChild, Task};
use crate::timer::Timer;
use ironswan_keying::choices::way::Addresses;
use ironswan_keying::{Close, Diagnosis, Limits, Policy, Ports, Report, jitter};

/// Answers about other IKE_SAs that an exchange needs.
pub(crate) trait Others {
    /// True when this IKE_SA is there.
    fn stands(&self, id: IkeId) -> bool;

    /// Number of IKE_SAs, one rekeyed after the other, that led to this one and that the peer has
    /// not deleted yet; at most `most` are counted.
    fn predecessors(&self, of: &IkeSa, most: usize) -> usize;

    /// True when this attempt is the only IKE_SA between us and the peer (RFC 7296 section 2.4).
    fn is_initial_contact(&self, sa: &IkeSa, policy: &dyn Policy) -> bool;

    /// Addresses and identities of another peer that has transport mode with some of the same
    /// selectors at the same address.
    fn same_host(&self, sa: &IkeSa, agreed: &Agreed) -> Option<String>;

    /// A child of the same tunnel on another IKE_SA with the same peer, from which no other takes
    /// over.
    fn older(
        &self,
        sa: &IkeSa,
        tunnel: (ReqId, &Agreed),
        has_heir: &dyn Fn(ChildId) -> bool,
    ) -> Option<Older>;

    /// The connection of another IKE_SA, and whether its child has an outbound SA in the engine.
    fn sender(&self, ike: IkeId, child: ChildId) -> Option<(String, bool)>;
}

/// Children, tasks and measurements that a rekeyed IKE_SA leaves to its successor, and its last
/// state.
pub(crate) struct Estate {
    pub children: Children,
    pub tasks: VecDeque<Task>,
    pub probing: Probing,
    pub snapshot: Box<IkeSaInfo>,
}

/// Goes on with IKE_AUTH when the endpoint has said whether the peer gets an IKE_SA; the error is
/// the reason why not.
pub(crate) type Admitted = Box<dyn FnOnce(&mut Context<'_>, &mut IkeSa, Result<(), Diagnosis>)>;

/// Something that an exchange wants done to its own IKE_SA's place in the table, or to another
/// IKE_SA. The endpoint carries effects out in their order, as soon as the exchange returns.
pub(crate) enum Effect {
    /// The IKE_SA has ended.
    Close(Close),
    /// A command has been obeyed. It is told after the effects before it.
    Done(Ticket),
    /// The peer is authenticated. Decides whether it gets this IKE_SA besides others, and ends
    /// those that the new one replaces.
    Admit {
        peer: Identity,
        /// The peer has sent INITIAL_CONTACT.
        initial_contact: bool,
        then: Admitted,
    },
    /// The IKE_SA is established.
    Established,
    /// The IKE_SA belonged to this connection, and belongs to another one now.
    LeftConnection(String),
    /// A rekeying has made this IKE_SA.
    Adopt(Box<IkeSa>),
    /// This IKE_SA takes over from the one at hand.
    Inherit { heir: IkeId, estate: Box<Estate> },
    /// The engine does not send on this child of another IKE_SA any more.
    Silenced { ike: IkeId, child: ChildId },
    /// One of the attempts at several addresses has let go of the key pair that they share.
    KeepOwn { race: IkeId },
}

/// Effects that wait to be carried out.
pub(crate) type Effects = VecDeque<Effect>;

/// Settings that every IKE_SA reads and none changes.
#[derive(Clone, Copy)]
pub(crate) struct Settings<'a> {
    pub options: Options,
    pub policy: &'a dyn Policy,
    pub limits: &'a Limits,
    /// Our addresses, once we have been told.
    pub addresses: &'a Addresses,
}

/// The surroundings of one IKE_SA while it works.
pub(crate) struct Context<'a> {
    now: Instant,
    settings: Settings<'a>,
    others: &'a dyn Others,
    effects: &'a mut Effects,
    shared: &'a mut Shared,
}

impl<'a> Context<'a> {
    pub(crate) fn new(
        now: Instant,
        settings: Settings<'a>,
        others: &'a dyn Others,
        effects: &'a mut Effects,
        shared: &'a mut Shared,
    ) -> Self {
        Self { now, settings, others, effects, shared }
    }

    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    /// Policy: which connection, which secret, and whether an identity may stand.
    pub(crate) fn policy(&self) -> &'a dyn Policy {
        self.settings.policy
    }

    pub(crate) fn limits(&self) -> &'a Limits {
        self.settings.limits
    }

    /// Our UDP ports.
    pub(crate) fn ports(&self) -> Ports {
        self.settings.options.ports
    }

    /// Makes our QCD tokens; `None`: no peer gets one.
    pub(crate) fn token_maker(&self) -> Option<&TokenMaker> {
        self.shared.tokens.as_ref()
    }

    /// True when QCD tokens of peers are kept.
    pub(crate) fn takes_tokens(&self) -> bool {
        self.settings.options.take_qcd_tokens
    }

    /// True when keys go to the key log.
    pub(crate) fn logs_keys(&self) -> bool {
        self.settings.options.keylog
    }

    /// Answers about other IKE_SAs.
    pub(crate) fn others(&self) -> &'a dyn Others {
        self.others
    }

    pub(crate) fn counters(&mut self) -> &mut Counters {
        &mut self.shared.counters
    }

    /// Counts a rekeyed IKE_SA; `ours`: we have begun the rekeying.
    pub(crate) fn count_ike_rekey(&mut self, sa: &IkeSa, ours: bool) {
        let counters = &mut self.shared.counters;
        *(if ours { &mut counters.ike_rekey_init } else { &mut counters.ike_rekey_resp }) += 1;
        self.shared.by_connection.count(&sa.conn().name, |c| {
            *(if ours { &mut c.ike_rekey_init } else { &mut c.ike_rekey_resp }) += 1;
        });
    }

    // ---- the end of the exchange ----

    /// Ends the IKE_SA at hand. The endpoint does the rest when the exchange returns.
    pub(crate) fn close(&mut self, sa: &mut IkeSa, how: Close) {
        if !sa.die() {
            self.effects.push_back(Effect::Close(how));
        }
    }

    /// Has the endpoint do something after the exchange returns.
    pub(crate) fn effect(&mut self, effect: Effect) {
        self.effects.push_back(effect);
    }

    /// Puts work with another IKE_SA off until this one is back in its place.
    pub(crate) fn put_off(&mut self, todo: Todo) {
        self.shared.todo.push_back(todo);
    }

    /// A command has been obeyed. It is told after the effects so far.
    pub(crate) fn obeyed(&mut self, ticket: Option<Ticket>) {
        self.effects.extend(ticket.map(Effect::Done));
    }

    // ---- messages to the driver and to policy ----

    pub(crate) fn emit(&mut self, event: Event) {
        self.shared.outbox.emit(event);
    }

    /// A line about this IKE_SA.
    pub(crate) fn log(&mut self, level: Level, sa: &IkeSa, text: impl Into<String>) {
        self.shared.outbox.emit(line(level, sa, text));
    }

    /// A line about no IKE_SA.
    pub(crate) fn note(&mut self, level: Level, conn: Option<&str>, text: impl Into<String>) {
        let conn = conn.map(str::to_owned);
        self.emit(Event::Log { level, conn, ike: None, text: text.into(), why: None, stranger: None });
    }

    /// Reports to policy.
    pub(crate) fn report(&mut self, report: Report) {
        self.shared.outbox.report(report);
    }

    /// One of the ticket's things has ended.
    pub(crate) fn done(&mut self, ticket: Option<Ticket>, result: Result<(), Diagnosis>) {
        self.shared.outbox.extend(self.shared.tickets.done(ticket, result));
    }

    /// Asks outside, and remembers who asked.
    pub(crate) fn ask(&mut self, who: Pending, request: Request) -> RequestId {
        self.shared.counters.count_request(&request);
        self.shared.outbox.ask(who, request)
    }

    /// Nobody waits for the answer any more.
    pub(crate) fn forget_request(&mut self, id: RequestId) {
        self.shared.outbox.forget(id);
    }

    // ---- timers ----

    pub(crate) fn set_timer(&mut self, timer: Timer, at: Instant) {
        self.shared.timers.set(timer, at);
    }

    pub(crate) fn cancel_timer(&mut self, timer: Timer) {
        self.shared.timers.cancel(timer);
    }

    /// Time until this timer fires; `None` when it does not run.
    pub(crate) fn time_left(&self, timer: Timer) -> Option<Duration> {
        Some(self.shared.timers.get(timer)?.saturating_duration_since(self.now))
    }

    /// True when this timer runs.
    pub(crate) fn has_timer(&self, timer: Timer) -> bool {
        self.shared.timers.get(timer).is_some()
    }

    /// `time` less a random part of `rand`, and never less than a tenth of it.
    pub(crate) fn less_jitter(&mut self, time: Duration, rand: Duration) -> Duration {
        jitter::less(&mut self.shared.rng, time, rand)
    }

    /// The time at which the path of an IKE_SA is measured for the first time.
    pub(crate) fn probe_time(&mut self) -> Instant {
        self.shared.probes.time(self.now)
    }

    /// True when a peer of this identity has refused messages that measure the path.
    pub(crate) fn refuses_probes(&self, peer: &Identity) -> bool {
        self.shared.probes.refuses(peer)
    }

    /// A peer of this identity refuses messages that measure the path.
    pub(crate) fn remember_refusal(&mut self, peer: &Identity) {
        self.shared.probes.refused(peer);
    }

    /// Between 5 and 15 seconds: when to try a rekeying again that found the peer busy.
    pub(crate) fn soon(&mut self) -> Duration {
        jitter::busy_pause(&mut self.shared.rng)
    }

    /// Time for which a request is retransmitted until the peer is given up.
    pub(crate) fn retransmission_span(&self) -> Duration {
        (0..=self.settings.limits.retransmit_tries).map(|n| self.settings.limits.retransmit_delay(n)).sum()
    }

    /// Time to wait for an answer to the `n`th retransmission (0: the first transmission) of this
    /// IKE_SA. An attempt that begins by itself may be one of hundreds that began at the same
    /// moment and get no answer: up to a tenth less, so that they do not all send at once for ever.
    pub(crate) fn until_retransmit(&mut self, sa: &IkeSa, n: u32) -> Duration {
        let delay = self.settings.limits.retransmit_delay(n);
        if sa.attempt().automatic && !sa.is_up() { self.less_jitter(delay, delay / 10) } else { delay }
    }

    // ---- numbers ----

    /// Random bytes.
    pub(crate) fn random(&mut self, len: usize) -> Vec<u8> {
        let mut out = vec![0; len];
        self.shared.rng.fill(&mut out);
        out
    }

    /// Reserves an id and an SPI for a new IKE_SA.
    pub(crate) fn new_ike(&mut self) -> (IkeId, u64) {
        let id = self.shared.spis.new_ike_id();
        (id, self.new_ike_spi(id))
    }

    /// Reserves an IKE SPI.
    pub(crate) fn new_ike_spi(&mut self, id: IkeId) -> u64 {
        let tombs = &self.shared.tombs;
        self.shared.spis.new_ike(&mut self.shared.rng, id, |spi| tombs.knows(spi))
    }

    /// True when this is an IKE SPI of ours that is in use.
    pub(crate) fn knows_ike_spi(&self, spi: u64) -> bool {
        self.shared.spis.ike(spi).is_some()
    }

    /// Gives an IKE SPI back.
    pub(crate) fn free_ike_spi(&mut self, spi: u64) {
        self.shared.spis.free_ike(spi);
    }

    /// Reserves an id and an inbound SPI for a child.
    pub(crate) fn new_child(&mut self) -> (ChildId, Spi) {
        let id = self.shared.spis.new_child_id();
        (id, self.shared.spis.new_inbound(&mut self.shared.rng, id))
    }

    /// Reserves a CPI for a child; [`Self::free_cpi`] gives it back. `None`: the child goes without
    /// IPComp.
    pub(crate) fn new_cpi(&mut self, id: ChildId) -> Option<u16> {
        self.shared.spis.new_cpi(&mut self.shared.rng, id)
    }

    /// Gives a CPI of this child back.
    pub(crate) fn free_cpi(&mut self, id: ChildId, cpi: Option<u16>) {
        self.shared.spis.free_cpi(id, cpi);
    }

    /// Gives back the numbers that a child which will not be has reserved.
    pub(crate) fn abandon(&mut self, child: &NewChild) {
        self.shared.free_reserved(child.id, child.spi_in, child.cpi_in);
    }

    /// Gives back our numbers for what was agreed on and will not be.
    pub(crate) fn release(&mut self, agreement: &Agreement) {
        self.shared.release(agreement);
    }

    // ---- our own values under way ----

    /// Remembers the nonce and public values that we send for this IKE_SA.
    pub(crate) fn own(&mut self, init: &Init, initiator: bool) {
        self.shared.own.add(init, initiator);
    }

    /// Forgets the values of an IKE_SA whose peer is authenticated, or that is gone.
    pub(crate) fn disown(&mut self, init: &Init, initiator: bool) {
        self.shared.own.remove(init, initiator);
    }

    /// True when we are sending this nonce or public value ourselves.
    pub(crate) fn is_own(&self, value: &[u8]) -> bool {
        self.shared.own.has(value)
    }

    /// Keeps the last answer of an IKE_SA that is going.
    pub(crate) fn bury(&mut self, sa: &IkeSa) {
        self.shared.tombs.bury(self.now, sa.our_spi(), sa.work().window());
        if let Some(at) = self.shared.tombs.due() {
            self.shared.timers.set(Timer::Tombs, at);
        }
    }
}

/// The event of a line about this IKE_SA.
pub(crate) fn line(level: Level, sa: &IkeSa, text: impl Into<String>) -> Event {
    let conn = (!sa.conn().name.is_empty()).then(|| sa.conn().name.clone());
    Event::Log { level, conn, ike: Some(sa.id()), text: text.into(), why: None, stranger: None }
}
