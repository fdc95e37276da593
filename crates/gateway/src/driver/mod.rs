//! The loop around policy (`keying::Tunnels`) and protocol (`ike::Endpoint`), which only the driver
//! holds both, as a `keying::Joined`. Datagrams, timers, commands, notices of the data plane and
//! finished computations go in; events, requests and datagrams come out.
//!
//! ```text
//! data plane ─ notices ──────▶ ┌────────┐ ─ commands ──▶ data plane
//! timer ─────────────────────▶ │ Joined │ ─ events ────▶ log, key log, VICI, waiting commands
//! VICI, signals ─ commands ──▶ │        │ ─ requests ──▶ threads, data plane, routing table
//!                              └────────┘ ─ transmits ─▶ data plane (its sockets)
//! ```
//! One thread, nothing in it blocks. Every command has been applied before the next datagram
//! leaves: an inbound SA stands before the peer learns of it (ARCHITECTURE.md, the control path).
//! While the data plane applies commands, nothing is taken from the endpoint.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `fetches` | fetches revocation lists and responses of OCSP, on threads of its own |
//! | `names` | looks up the names of peers, on threads of its own |
//! | `once` | questions that are asked once at a time, whoever asks |
//! | `plane` | commands to the data plane, notices and counters from it |
//! | `pool` | bounded groups of threads for work that takes long or may hang |
//! | `pools` | all of these groups |
//! | `tapped` | copies of packets and of IKE messages, for captures |
//! | `unsent` | datagrams that could not be sent: log lines, and who waits for the peer |

use crate::diagnosis::of_kernel;
use ironswan_keying::diagnosis::{KeyExchange, Uncomputed};
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::Rc;
use std::time::{Duration, Instant};

use ironswan_ike::Endpoint;
use ironswan_ike::event::{Completion, Event, Level, Request, RequestId, Ticket};
use ironswan_io::{Error as IoError, clock};
use ironswan_keying::limits::KEY_PAIRS_WAITING_PER_SITE;
use ironswan_keying::{Connection, Diagnosis, Joined};
use ironswan_pki::fetch::Fetch;
use ironswan_wire::sadb::Command;
use tokio::sync::{Notify, oneshot};

use crate::dataplane::DataPlane;
use crate::dataplane::captured::IkeCopy;
use crate::driver::pool::{Place, Turn};
use crate::driver::pools::Pools;
use crate::driver::unsent::Unsent;
use crate::guard::passes::Passes;
use crate::guard::plan::from_config::{self, Configured};
use crate::guard::shared::SharedGuard;
use crate::guard::standing::StandingGuard;
use crate::network::Kernel;
use crate::observe::keylog::KeyLogger;
use crate::observe::log::{self, Repeated};
use crate::observe::records::Records;

/// Hears of every event but the commands to the data plane, after it has been applied.
pub trait Observer {
    /// Called for each event. `driver` may be asked for views, not for changes.
    fn event(&self, driver: &Driver, event: &Event);

    /// Called for each IKE message that comes or leaves while [`Driver::tap_ike`] is on.
    fn datagram(&self, _: IkeCopy) {}
}

/// How a command ended.
pub type Outcome = Result<(), Diagnosis>;

struct State {
    endpoint: Joined<Endpoint>,
    plane: Box<dyn DataPlane>,
    /// Commands that the data plane is applying.
    under_way: Vec<Command>,
    /// An event of the endpoint behind commands that are applied first.
    held: Option<Event>,
    keylog: Option<KeyLogger>,
    waiting: HashMap<Ticket, oneshot::Sender<Outcome>>,
}

struct Inner {
    state: RefCell<State>,
    guard: SharedGuard,
    passes: Passes,
    pools: Pools,
    observers: RefCell<Vec<Rc<dyn Observer>>>,
    deadline: Cell<Option<Instant>>,
    deadline_moved: Notify,
    /// Places in the queue of the key exchanges that are not done.
    computing: RefCell<HashMap<RequestId, Place>>,
    unsent: Unsent,
    /// Woken when somebody has deleted the device of the data plane.
    device_gone: Notify,
    records: Records,
    /// Observers get copies of IKE messages.
    tapped: Cell<bool>,
}

/// A handle to the control plane. Lives on one thread, inside a `LocalSet`.
#[derive(Clone)]
pub struct Driver(Rc<Inner>);

impl Driver {
    /// A driver of this endpoint, its policy and this data plane.
    pub fn new(
        endpoint: Joined<Endpoint>,
        plane: Box<dyn DataPlane>,
        guard: SharedGuard,
        keylog: Option<KeyLogger>,
    ) -> Self {
        let (under_way, held, waiting) = (Vec::new(), None, HashMap::new());
        let state = State { endpoint, plane, under_way, held, keylog, waiting };
        Self(Rc::new(Inner {
            state: RefCell::new(state),
            guard,
            passes: Passes::default(),
            pools: Pools::default(),
            observers: RefCell::default(),
            deadline: Cell::new(None),
            deadline_moved: Notify::new(),
            computing: RefCell::default(),
            unsent: Unsent::default(),
            device_gone: Notify::new(),
            records: Records::default(),
            tapped: Cell::new(false),
        }))
    }

    /// Adds an observer.
    pub fn observe(&self, observer: Rc<dyn Observer>) {
        self.0.observers.borrow_mut().push(observer);
    }

    /// What has been told about connections and strangers.
    pub(crate) fn records(&self) -> &Records {
        &self.0.records
    }

    /// Looks at the endpoint and its policy.
    pub fn view<R>(&self, f: impl FnOnce(&Joined<Endpoint>, Instant) -> R) -> R {
        f(&self.0.state.borrow().endpoint, clock::now())
    }

    /// Changes something at the endpoint or its policy, and carries out what follows.
    pub fn act<R>(&self, f: impl FnOnce(&mut Joined<Endpoint>, Instant) -> R) -> R {
        let now = clock::now();
        let result = f(&mut self.0.state.borrow_mut().endpoint, now);
        self.pump(now);
        result
    }

    /// A command that ends later: what it matched, and its end.
    pub fn command(
        &self,
        f: impl FnOnce(&mut Joined<Endpoint>, Instant) -> Result<(usize, Ticket), Diagnosis>,
    ) -> Result<(usize, oneshot::Receiver<Outcome>), Diagnosis> {
        let now = clock::now();
        let (tx, rx) = oneshot::channel();
        let begun = {
            let mut state = self.0.state.borrow_mut();
            let begun = f(&mut state.endpoint, now);
            if let Ok((_, ticket)) = &begun {
                state.waiting.insert(*ticket, tx);
            }
            begun
        };
        self.pump(now);
        begun.map(|(matches, _)| (matches, rx))
    }

    /// Ends the key log, once it is written.
    pub fn end_keylog(&self) {
        let keylog = self.0.state.borrow_mut().keylog.take();
        drop(keylog);
    }

    /// Looks at the guard.
    pub fn guard<R>(&self, f: impl FnOnce(&StandingGuard) -> R) -> R {
        self.0.guard.look(f)
    }

    /// Changes something at the guard, and sees to what follows.
    pub fn change_guard<R>(&self, f: impl FnOnce(&mut StandingGuard, &mut dyn Kernel) -> R) -> R {
        let result = self.0.guard.change(f);
        self.steered();
        result
    }

    /// Makes the guard's plan anew, and carries out what closes ([`StandingGuard::replan`]).
    pub fn replan(&self, loaded: Configured) -> u64 {
        let generation = self.0.guard.change(|guard, kernel| guard.replan(kernel, loaded));
        self.change_plane(|plane| plane.guard_changed());
        generation
    }

    /// Restores missing rules and routes in the kernel. Names them.
    ///
    /// # Errors
    /// The kernel does not list its rules or routes.
    pub fn restore_routing(&self) -> Result<Vec<String>, IoError> {
        let (mut missing, routes) = self.0.guard.restore()?;
        missing.extend(self.change_plane(|plane| plane.restore_routes(&routes)));
        Ok(missing)
    }

    /// Logs the guard's new lines, and wakes the task that runs its passes when a change is wanted.
    fn steered(&self) {
        let (lines, wanted) = self.0.guard.change(|guard, _| (guard.take_log(), guard.progress().0));
        lines.iter().for_each(|line| log::line(Level::Warn, None, &line.to_string(), line.why()));
        self.0.passes.wanted(wanted);
    }

    /// The threads for what blocks.
    pub(crate) fn pools(&self) -> &Pools {
        &self.0.pools
    }

    /// State of the guard's passes.
    pub(crate) fn guard_passes(&self) -> &Passes {
        &self.0.passes
    }

    /// These connections are about to be loaded, or others unloaded: closes the way for what they
    /// are to protect.
    pub fn loading(&self, conns: &[Connection]) {
        self.change_guard(|guard, kernel| {
            for conn in conns {
                guard.loading(kernel, &from_config::of_connection(conn));
            }
            guard.unloaded();
        });
    }

    /// Loads a connection. First the way is closed for what it is to protect, then the endpoint may
    /// begin.
    pub fn load_connection(&self, conn: Connection) {
        self.loading(std::slice::from_ref(&conn));
        self.act(|e, now| e.load_connection(now, conn));
    }

    /// Unloads a connection. False when there is none.
    pub fn unload_connection(&self, name: &str) -> bool {
        let known = self.act(|e, now| e.unload_connection(now, name));
        if known {
            self.0.records.forget_unless(|conn| conn != name);
            self.change_guard(|guard, _| guard.unloaded());
        }
        known
    }

    /// Calls the endpoint when its time comes; runs until it is dropped.
    pub async fn timers(&self) {
        loop {
            match self.0.deadline.get() {
                None => self.0.deadline_moved.notified().await,
                Some(at) => {
                    tokio::select! {
                        () = self.0.deadline_moved.notified() => {}
                        () = tokio::time::sleep_until(at.into()) => self.act(|e, now| e.handle_timeout(now)),
                    }
                }
            }
        }
    }

    /// Carries out all that the endpoint asks for, in its order, until it asks for nothing more.
    fn pump(&self, now: Instant) {
        while !self.is_applying() && self.step(now) {}
        self.steered();
        let next = self.0.state.borrow().endpoint.poll_timeout();
        if self.0.deadline.replace(next) != next {
            self.0.deadline_moved.notify_one();
        }
    }

    /// Carries out the next thing that the endpoint asks for. False when there is none.
    fn step(&self, now: Instant) -> bool {
        // One borrow at a time: observers and completions come back to the driver.
        let commands = self.0.state.borrow_mut().poll_commands();
        if !commands.is_empty() {
            self.submit(commands);
            return true;
        }
        let event = self.0.state.borrow_mut().held.take();
        if let Some(event) = event {
            self.apply(&event);
            return true;
        }
        let request = self.0.state.borrow_mut().endpoint.outputs().poll_request();
        if let Some((id, request)) = request {
            self.serve(now, id, request);
            return true;
        }
        let transmit = self.0.state.borrow_mut().endpoint.outputs().poll_transmit();
        if let Some(transmit) = &transmit {
            self.leaves(transmit);
            self.transmit(transmit);
        }
        transmit.is_some()
    }

    /// Carries out an event that is no command.
    fn apply(&self, event: &Event) {
        match event {
            Event::Log { level, conn, ike, text, why, stranger } => {
                let of_ike = || self.view(|e, _| e.protocol().peer_of((*ike)?)).map(|peer| peer.ip());
                let peer = || stranger.or_else(of_ike);
                log::line_of(*level, conn.as_deref(), &peer, text, why.as_deref());
            }
            Event::KeyLog(entry) => {
                let keylog = &mut self.0.state.borrow_mut().keylog;
                if let Some(Err(e)) = keylog.as_mut().map(|k| k.write(entry)) {
                    let text = format!("the key log cannot be written ({e}) and is off from now on");
                    log::line(Level::Error, None, &text, None);
                    *keylog = None;
                }
            }
            Event::Done { ticket, result } => {
                let waiting = self.0.state.borrow_mut().waiting.remove(ticket);
                // The client may have gone.
                let _ = waiting.map(|waiting| waiting.send(result.clone()));
            }
            Event::PathMtu { remote, mtu, .. } => {
                self.change_plane(|plane| plane.path_measured(*remote, *mtu));
            }
            Event::Unwanted(id) => {
                let place = self.0.computing.borrow_mut().remove(id);
                place.into_iter().for_each(|place| self.0.pools.kex.cancel(place));
            }
            _ => {}
        }
        // Observers look at the driver, so nothing is borrowed here.
        self.announce(event);
    }

    /// Tells the observers.
    pub(crate) fn announce(&self, event: &Event) {
        self.0.records.hear(self, event);
        let observers = self.0.observers.borrow().clone();
        observers.iter().for_each(|o| o.event(self, event));
    }

    fn serve(&self, now: Instant, id: RequestId, request: Request) {
        match request {
            Request::GenerateKey { .. } => self.compute(now, id, KEY_PAIRS_WAITING_PER_SITE, request),
            // A stranger that has come so far has been answered, and there are no more of them than
            // half-open IKE_SAs: what one of these waits for is cancelled when it ends.
            Request::Agree { .. }
            | Request::Respond { .. }
            | Request::Sign { .. }
            | Request::Verify { .. }
            | Request::Certify(_) => {
                self.compute(now, id, usize::MAX, request);
            }
            Request::Usage { sas } => {
                let last_use = self.last_use(&sas);
                self.complete(now, id, Completion::Usage { last_use });
            }
            Request::Packets { sas } => {
                let packets = self.packets(&sas);
                self.complete(now, id, Completion::Packets(packets));
            }
            Request::Resolve { name } => self.resolve(id, &name),
            Request::Fetch { wanted, limit } => self.fetch(id, &wanted, limit),
            Request::Route { remote } => {
                // "No route" is an answer too. When the kernel gives no answer, the endpoint goes
                // by what it knows.
                let completion = match self.0.guard.lookup(remote, None) {
                    Ok(hop) => Completion::Route { local: hop.and_then(|hop| hop.source) },
                    Err(e) => Completion::Failed { why: of_kernel(&e) },
                };
                self.complete(now, id, completion);
            }
            Request::PathMtu { local, remote } => {
                let known = self.change_plane(|plane| plane.known_path(local, remote));
                self.complete(now, id, Completion::PathMtu(known));
            }
        }
    }

    fn complete(&self, now: Instant, id: RequestId, completion: Completion) {
        self.0.state.borrow_mut().endpoint.call(now, |e| e.complete(now, id, completion));
    }

    /// Looks a name up; however long that takes, nothing else waits.
    fn resolve(&self, id: RequestId, name: &str) {
        let driver = self.clone();
        let found = self.0.pools.names.look_up(name);
        tokio::task::spawn_local(async move {
            let completion = Completion::Addresses(found.await);
            driver.act(|e, now| e.call(now, |e| e.complete(now, id, completion)));
        });
    }

    /// Asks servers of the web; however long that takes, nothing else waits.
    fn fetch(&self, id: RequestId, wanted: &[Fetch], limit: Duration) {
        let driver = self.clone();
        let fetched = self.0.pools.fetches.fetch(wanted, limit);
        tokio::task::spawn_local(async move {
            let (answers, took) = fetched.await;
            let completion = Completion::Fetched { answers, took };
            driver.act(|e, now| e.call(now, |e| e.complete(now, id, completion)));
        });
    }

    /// Runs an expensive computation on another thread: for peers that are established and for our
    /// own attempts before those for strangers, of which at most `room` wait for each site.
    fn compute(&self, now: Instant, id: RequestId, room: usize, request: Request) {
        let work = move || {
            let answer = request.compute(clock::wall().into()).expect("a computation");
            if let Completion::Failed { why } = &answer {
                static LINES: Repeated = Repeated::new();
                LINES.line(Level::Error, || why.to_string());
            }
            answer
        };
        let stranger = self.0.state.borrow().endpoint.protocol().stranger(id);
        let (turn, room) = match stranger {
            Some(site) => (Turn::Later(site), room),
            None => (Turn::First, usize::MAX),
        };
        let computed = match self.0.pools.kex.put(turn, room, work) {
            Ok((computed, place)) => {
                self.0.computing.borrow_mut().extend(place.map(|place| (id, place)));
                computed
            }
            Err(_) if stranger.is_some() => {
                let endpoint = &mut self.0.state.borrow_mut().endpoint;
                return endpoint.call(now, |e| e.refuse(now, id));
            }
            Err(why) => {
                let why = KeyExchange::NotComputed { why: Uncomputed::NotStarted(why.to_string()) };
                return self.complete(now, id, Completion::Failed { why: why.into() });
            }
        };
        let driver = self.clone();
        tokio::task::spawn_local(async move {
            let computed = computed.await;
            driver.0.computing.borrow_mut().remove(&id);
            let completion = computed.unwrap_or_else(|_| {
                // The panic itself has been logged.
                Completion::Failed { why: KeyExchange::NotComputed { why: Uncomputed::Panicked }.into() }
            });
            driver.act(|e, now| e.call(now, |e| e.complete(now, id, completion)));
        });
    }
}

impl State {
    /// Takes the commands up to the endpoint's next other event, which is held.
    fn poll_commands(&mut self) -> Vec<Command> {
        let mut commands = Vec::new();
        while self.held.is_none() {
            match self.endpoint.outputs().poll_event() {
                Some(Event::Sadb(command)) => commands.push(command),
                Some(event) => self.held = Some(event),
                None => break,
            }
        }
        commands
    }
}

mod fetches;
pub(crate) mod names;
mod once;
mod plane;
pub(crate) mod pool;
pub(crate) mod pools;
mod tapped;
#[cfg(test)]
pub(crate) mod tests;
mod unsent;
