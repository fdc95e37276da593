//! The loop around `ike::Endpoint`: datagrams, timers, engine notices and finished computations go in; events, requests
//! and datagrams come out.
//!
//! ```text
//! data plane ─ datagrams, notices ─▶ ┌──────────┐ ─ events ─▶ install, key log, log, VICI events, waiting commands
//! timer ───────────────────────────▶ │ Endpoint │ ─ requests ─▶ threads (key exchange), engine, routing table
//! VICI, signals ── commands ───────▶ └──────────┘ ─ transmits ─▶ sockets
//! ```
//! One thread, nothing in it blocks. Every event is applied before the next datagram leaves: an inbound SA stands before
//! the peer learns of it (ARCHITECTURE.md, the control path).
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `names` | looks up the names of peers, on threads of its own |
//! | `pool` | bounded groups of threads for work that takes long or may hang |

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use ironswan_crypto::kex;
use ironswan_ike::event::{
    Completion, Event, IkeSaInfo, IkeState, Level, Request, RequestId, Ticket, Transmit,
};
use ironswan_ike::{CommandError, Endpoint};
use ironswan_io::clock;
use ironswan_ipsec::Engine;
use ironswan_keying::Connection;
use ironswan_wire::sadb::{Command, Direction, ReqId, SaAdd, SaRef, SaStats, Up};
use tokio::sync::{Notify, oneshot};

use crate::dataplane::userspace::install::Installer;
use crate::driver::pool::{Place, Pools, Turn};
use crate::guard::apply::Passes;
use crate::guard::plan::from_config;
use crate::observe::keylog::KeyLogger;
use crate::observe::log::{self, Repeated, RepeatedBy};

/// So many key pairs for strangers of one site may wait for a thread; for more, half-open IKE_SAs end before they are answered.
/// With the slowest group that is a second's work.
const STRANGERS_WAITING: usize = 256;

/// How long after the kernel has forgotten a path MTU it is looked up again, at most.
const PATHS: Duration = Duration::from_secs(10);

/// Sends one IKE datagram.
pub type Send = Box<dyn FnMut(&Transmit) -> io::Result<()>>;

/// Hears of every event, after it has been applied.
pub trait Observer {
    /// Called for each. `driver` may be asked for views, not for changes.
    fn event(&self, driver: &Driver, event: &Event);
}

/// How a command ended.
pub type Outcome = Result<(), String>;

struct State {
    endpoint: Endpoint,
    installer: Installer,
    send: Send,
    keylog: Option<KeyLogger>,
    waiting: HashMap<Ticket, oneshot::Sender<Outcome>>,
}

struct Inner {
    state: RefCell<State>,
    passes: Passes,
    pools: Pools,
    observers: RefCell<Vec<Rc<dyn Observer>>>,
    engine: Arc<Engine>,
    /// Zero of the engine's clock.
    epoch: Instant,
    deadline: Cell<Option<Instant>>,
    deadline_moved: Notify,
    /// Lines about sends that failed, for each peer: retransmissions to many that cannot be reached would be many lines.
    send_lines: RefCell<RepeatedBy<IpAddr>>,
    /// The same of answers to strangers, all together: a stranger chooses the address that is answered, and there are as many
    /// as there are addresses.
    stranger_lines: RefCell<RepeatedBy<()>>,
    /// Where the key exchanges of strangers wait that are not done.
    computing: RefCell<HashMap<RequestId, Place>>,
    /// The last thing that could not be sent: to whom, and why. `None` after a send that worked.
    send_error: RefCell<Option<(IpAddr, String)>>,
    /// Sends that failed, in all.
    send_errors: Cell<u64>,
    /// Woken by each of them.
    send_failed: Notify,
}

/// A handle to the control plane. Lives on one thread, inside a `LocalSet`.
#[derive(Clone)]
pub struct Driver(Rc<Inner>);

impl Driver {
    /// A driver of this endpoint. `epoch` is the zero of the engine's clock.
    pub fn new(
        endpoint: Endpoint,
        engine: Arc<Engine>,
        installer: Installer,
        send: Send,
        keylog: Option<KeyLogger>,
        epoch: Instant,
    ) -> Self {
        let state = State { endpoint, installer, send, keylog, waiting: HashMap::new() };
        Self(Rc::new(Inner {
            state: RefCell::new(state),
            passes: Passes::default(),
            pools: Pools::default(),
            observers: RefCell::default(),
            engine,
            epoch,
            deadline: Cell::new(None),
            deadline_moved: Notify::new(),
            send_lines: RefCell::default(),
            stranger_lines: RefCell::default(),
            computing: RefCell::default(),
            send_error: RefCell::default(),
            send_errors: Cell::new(0),
            send_failed: Notify::new(),
        }))
    }

    /// Adds an observer.
    pub fn observe(&self, observer: Rc<dyn Observer>) {
        self.0.observers.borrow_mut().push(observer);
    }

    /// Looks at the endpoint.
    pub fn view<R>(&self, f: impl FnOnce(&Endpoint, Instant) -> R) -> R {
        f(&self.0.state.borrow().endpoint, clock::now())
    }

    /// Changes something at the endpoint, and carries out what follows.
    pub fn act<R>(&self, f: impl FnOnce(&mut Endpoint, Instant) -> R) -> R {
        let now = clock::now();
        let result = f(&mut self.0.state.borrow_mut().endpoint, now);
        self.pump(now);
        result
    }

    /// A command that ends later: what it matched, and its end.
    pub fn command(
        &self,
        f: impl FnOnce(&mut Endpoint, Instant) -> Result<(usize, Ticket), CommandError>,
    ) -> Result<(usize, oneshot::Receiver<Outcome>), CommandError> {
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

    /// An IKE message has arrived.
    pub fn datagram(&self, local: SocketAddr, remote: SocketAddr, payload: &[u8]) {
        self.act(|e, now| e.handle_datagram(now, local, remote, payload));
    }

    /// The engine has something to say.
    pub fn engine_up(&self, list: Vec<Up>) {
        self.act(|e, now| list.into_iter().for_each(|up| e.handle_engine(now, up)));
    }

    /// The path to these peers has become narrower.
    pub fn narrowed(&self, peers: &[IpAddr]) {
        self.install(|i| i.narrowed(peers));
    }

    /// Looks path MTUs up again when the kernel has forgotten what it had learned of them. Never ends.
    pub async fn paths(&self) {
        loop {
            tokio::time::sleep(PATHS).await;
            self.install(|i| i.forgotten(clock::now()));
        }
    }

    /// Ends the key log, once it is written.
    pub fn end_keylog(&self) {
        let keylog = self.0.state.borrow_mut().keylog.take();
        drop(keylog);
    }

    /// Looks at the installer.
    pub fn installed<R>(&self, f: impl FnOnce(&Installer) -> R) -> R {
        f(&self.0.state.borrow().installer)
    }

    /// Changes something at the installer, and sees to what follows.
    pub fn install<R>(&self, f: impl FnOnce(&mut Installer) -> R) -> R {
        let result = f(&mut self.0.state.borrow_mut().installer);
        self.steered();
        result
    }

    /// Logs the guard's new lines, and wakes the task that runs its passes when a change is wanted.
    fn steered(&self) {
        let (lines, wanted) = {
            let state = &mut *self.0.state.borrow_mut();
            let guard = state.installer.guard_mut();
            (guard.take_log(), guard.progress().0)
        };
        lines.iter().for_each(|l| log::line(Level::Warn, None, l));
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

    /// Endpoint and installer together.
    pub(crate) fn both<R>(&self, f: impl FnOnce(&Endpoint, &mut Installer) -> R) -> R {
        let result = {
            let state = &mut *self.0.state.borrow_mut();
            f(&state.endpoint, &mut state.installer)
        };
        self.steered();
        result
    }

    /// These connections are about to be loaded, or others unloaded: closes the way for what they are to protect.
    pub fn loading(&self, conns: &[Connection]) {
        self.install(|installer| {
            for conn in conns {
                installer.loading(&from_config::of_connection(conn));
            }
            installer.guard_mut().unloaded();
        });
    }

    /// Loads a connection. First the way is closed for what it is to protect, then the endpoint may begin.
    pub fn load_connection(&self, conn: Connection) {
        self.loading(std::slice::from_ref(&conn));
        self.act(|e, now| e.load_connection(now, conn));
    }

    /// Unloads a connection. False when there is none.
    pub fn unload_connection(&self, name: &str) -> bool {
        let known = self.act(|e, now| e.unload_connection(now, name));
        if known {
            self.install(|i| i.guard_mut().unloaded());
        }
        known
    }

    /// Every IKE_SA with the engine's counters filled in, and the time on the engine's clock in seconds.
    pub fn ike_sas(&self) -> (Vec<IkeSaInfo>, u64) {
        let mut list = self.view(|e, now| e.ike_sas(now));
        list.iter_mut().for_each(|sa| self.fill(sa));
        (list, self.engine_now().as_secs())
    }

    /// Fills in the counters of one IKE_SA's children.
    pub fn fill(&self, sa: &mut IkeSaInfo) {
        let remote = sa.remote.ip();
        for child in &mut sa.children {
            let reqid = child.reqid;
            let of = |direction, spi| self.0.engine.sa_stats(SaRef { direction, spi, reqid, remote });
            let (i, o) = (of(Direction::In, child.spi_in), of(Direction::Out, child.spi_out));
            if i.is_some() || o.is_some() {
                child.stats = Some((i.unwrap_or_default(), o.unwrap_or_default()));
            }
        }
    }

    /// The packet engine.
    pub fn engine(&self) -> &Arc<Engine> {
        &self.0.engine
    }

    /// The engine's clock.
    pub fn engine_now(&self) -> Duration {
        clock::now().saturating_duration_since(self.0.epoch)
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
        loop {
            // One borrow a step: observers and completions come back to the driver.
            let event = self.0.state.borrow_mut().endpoint.poll_event();
            if let Some(event) = event {
                self.apply(&event);
                continue;
            }
            let request = self.0.state.borrow_mut().endpoint.poll_request();
            if let Some((id, request)) = request {
                self.serve(now, id, request);
                continue;
            }
            let transmit = {
                let state = &mut *self.0.state.borrow_mut();
                state.installer.wake();
                state.endpoint.poll_transmit()
            };
            match transmit {
                Some(t) => self.transmit(&t),
                None => break,
            }
        }
        self.steered();
        let next = self.0.state.borrow().endpoint.poll_timeout();
        if self.0.deadline.replace(next) != next {
            self.0.deadline_moved.notify_one();
        }
    }

    fn apply(&self, event: &Event) {
        {
            let state = &mut *self.0.state.borrow_mut();
            match event {
                Event::Sadb(command) => {
                    if let Err(e) = state.installer.apply(self.engine_now(), command) {
                        log::line(Level::Error, None, &e);
                        // A CHILD_SA without one of its SAs carries nothing: to its owner, that SA has come to its end.
                        if let Command::SaAdd(sa) = command {
                            let SaAdd { direction, spi, reqid, .. } = **sa;
                            let sa = SaRef { direction, spi, reqid, remote: sa.remote.ip() };
                            state.endpoint.handle_engine(clock::now(), Up::Expire { sa, hard: true });
                        }
                    }
                }
                Event::Log { level, conn, text, .. } => log::line(*level, conn.as_deref(), text),
                Event::KeyLog(entry) => {
                    if let Some(Err(e)) = state.keylog.as_mut().map(|k| k.write(entry)) {
                        log::line(
                            Level::Error,
                            None,
                            &format!("the key log cannot be written ({e}) and is off from now on"),
                        );
                        state.keylog = None;
                    }
                }
                Event::Done { ticket, result } => {
                    if let Some(waiting) = state.waiting.remove(ticket) {
                        // The client may have gone.
                        let _ = waiting.send(result.clone());
                    }
                }
                Event::Unwanted(id) => {
                    let place = self.0.computing.borrow_mut().remove(id);
                    place.into_iter().for_each(|place| self.0.pools.kex.cancel(place));
                }
                _ => {}
            }
        }
        // Observers look at the driver, so nothing is borrowed here.
        self.announce(event);
    }

    /// Tells the observers.
    pub(crate) fn announce(&self, event: &Event) {
        let observers = self.0.observers.borrow().clone();
        observers.iter().for_each(|o| o.event(self, event));
    }

    fn serve(&self, now: Instant, id: RequestId, request: Request) {
        match request {
            Request::GenerateKey { ke, seed } => {
                self.compute(now, id, STRANGERS_WAITING, move || match kex::generate(ke, seed.expose()) {
                    Ok((private, public)) => Completion::KeyPair { private, public },
                    Err(e) => {
                        static LINES: Repeated = Repeated::new();
                        LINES.line(Level::Error, || format!("unable to make a {ke} key: {e}"));
                        Completion::Failed { error: e.to_string() }
                    }
                })
            }
            // A stranger that has come so far has been answered, and there are no more of them than half-open IKE_SAs: what one of
            // these waits for is cancelled when it ends.
            Request::Agree { ke, private, peer_public } => self.compute(now, id, usize::MAX, move || {
                Completion::SharedSecret(kex::agree(ke, &private, &peer_public).ok())
            }),
            Request::Usage { spis } => {
                // Inbound SPIs are ours and unique, whoever sends on them.
                let remote = std::net::Ipv4Addr::UNSPECIFIED.into();
                let stats = spis.into_iter().filter_map(|spi| {
                    self.0.engine.sa_stats(SaRef { direction: Direction::In, spi, reqid: ReqId(0), remote })
                });
                let last = stats.filter(|s: &SaStats| s.packets > 0).map(|s| s.last_use).max();
                let last_inbound = last.map(|secs| self.0.epoch + Duration::from_secs(secs));
                self.0.state.borrow_mut().endpoint.complete(now, id, Completion::Usage { last_inbound });
            }
            Request::Resolve { name } => self.resolve(id, &name),
            Request::Route { remote } => {
                let state = &mut *self.0.state.borrow_mut();
                // That there is none is an answer; where the kernel gave none, the endpoint goes by what it knows.
                let completion = match state.installer.source_to(remote) {
                    Ok(local) => Completion::Route { local },
                    Err(e) => Completion::Failed { error: e.to_string() },
                };
                state.endpoint.complete(now, id, completion);
            }
        }
    }

    /// Looks a name up; however long that takes, nothing else waits.
    fn resolve(&self, id: RequestId, name: &str) {
        let driver = self.clone();
        let found = self.0.pools.names.look_up(name);
        tokio::task::spawn_local(async move {
            let completion = match found.await {
                Ok(addrs) => Completion::Addresses { addrs, error: None },
                Err(e) => Completion::Addresses { addrs: Vec::new(), error: Some(e) },
            };
            driver.act(|e, now| e.complete(now, id, completion));
        });
    }

    /// Runs an expensive computation on another thread: for peers that are established and for our own attempts before
    /// those for strangers, of which at most `room` wait for each site.
    fn compute(
        &self,
        now: Instant,
        id: RequestId,
        room: usize,
        work: impl FnOnce() -> Completion + std::marker::Send + 'static,
    ) {
        let stranger = self.0.state.borrow().endpoint.stranger(id);
        let (turn, room) = match stranger {
            Some(site) => (Turn::Later(site), room),
            None => (Turn::First, usize::MAX),
        };
        let computed = match self.0.pools.kex.put(turn, room, work) {
            Ok((computed, place)) => {
                self.0.computing.borrow_mut().extend(place.map(|place| (id, place)));
                computed
            }
            Err(_) if stranger.is_some() => return self.0.state.borrow_mut().endpoint.refuse(now, id),
            Err(why) => {
                let completion = Completion::Failed { error: why.to_string() };
                return self.0.state.borrow_mut().endpoint.complete(now, id, completion);
            }
        };
        let driver = self.clone();
        tokio::task::spawn_local(async move {
            let computed = computed.await;
            driver.0.computing.borrow_mut().remove(&id);
            let completion = computed.unwrap_or_else(|_| {
                // The panic itself has been logged.
                Completion::Failed { error: "the key exchange ended badly".to_owned() }
            });
            driver.act(|e, now| e.complete(now, id, completion));
        });
    }

    fn transmit(&self, t: &Transmit) {
        let sent = (self.0.state.borrow_mut().send)(t);
        let Err(e) = sent else {
            self.0.send_error.replace(None);
            return;
        };
        let remote = t.remote.ip();
        let now = clock::now();
        // Nobody waits for a stranger, and this may be so for every address that there is: nothing is looked for.
        let due = match t.ike {
            None => self.0.stranger_lines.borrow_mut().admit((), now).map(|numbered| numbered(unsent(t, &e))),
            Some(_) => {
                self.cannot_send(remote, unsent(t, &e));
                self.0.send_lines.borrow_mut().admit(remote, now).map(|numbered| numbered(unsent(t, &e)))
            }
        };
        if let Some(text) = due {
            let sa = t.ike.and_then(|ike| self.view(|e, now| e.ike_sa(now, ike)));
            let (conn, ike) = sa.map_or((None, None), |sa| (Some(sa.conn), Some(sa.id)));
            self.apply(&Event::Log { level: Level::Warn, conn, ike, text });
        }
    }

    fn cannot_send(&self, remote: IpAddr, why: String) {
        self.0.send_error.replace(Some((remote, why)));
        self.0.send_errors.set(self.0.send_errors.get() + 1);
        self.0.send_failed.notify_waiters();
    }

    /// Sends that failed, in all: where [`Self::unreachable`] begins to look.
    pub fn send_errors(&self) -> u64 {
        self.0.send_errors.get()
    }

    /// Waits until something cannot be sent to a peer with which one of these connections is connecting, and says why.
    /// Failures up to number `seen` are old.
    pub async fn unreachable(&self, conns: &HashSet<String>, mut seen: u64) -> String {
        loop {
            let failed = self.0.send_failed.notified();
            if self.0.send_errors.get() != seen {
                seen = self.0.send_errors.get();
                let error = self.0.send_error.borrow().clone();
                // The snapshot of all IKE_SAs is for failures that may be meant only.
                if let Some((remote, why)) = error
                    && self.view(|e, _| conns.iter().any(|c| may_be_at(e, c, remote)))
                    && self.view(|e, now| e.ike_sas(now)).iter().any(|sa| {
                        let begins = matches!(sa.state, IkeState::Created | IkeState::Connecting);
                        begins && sa.remote.ip() == remote && conns.contains(&sa.conn)
                    })
                {
                    return why;
                }
            }
            failed.await;
        }
    }
}

/// What is said of a datagram that could not be sent.
fn unsent(t: &Transmit, e: &io::Error) -> String {
    let (local, remote) = (t.local.ip(), t.remote.ip());
    match e.kind() {
        io::ErrorKind::NetworkUnreachable | io::ErrorKind::HostUnreachable => format!(
            "error writing to socket: no route to {remote} from {local} ({e}); add a route, or correct local_addrs"
        ),
        io::ErrorKind::AddrNotAvailable => format!(
            "error writing to socket: {local} is no address of this machine ({e}); correct local_addrs"
        ),
        _ => format!("error writing to socket: {e} (packet from {} to {})", t.local, t.remote),
    }
}

/// True when the peer of this connection may have that address.
fn may_be_at(endpoint: &Endpoint, conn: &str, remote: IpAddr) -> bool {
    endpoint.connection(conn).is_some_and(|c| c.remote_addrs.iter().any(|a| a.matches(remote)))
}

mod names;
pub(crate) mod pool;
#[cfg(test)]
pub(crate) mod tests;
