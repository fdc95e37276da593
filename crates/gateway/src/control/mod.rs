//! The VICI server: strongSwan's control protocol over Unix sockets, for `swanctl`, exporters,
//! libraries and `ironswan`.
//!
//! | file | commands |
//! |---|---|
//! | `query`, `plane`, `replays` | version, stats, and our own ironswan-counters |
//! | `counters` | get-counters, reset-counters |
//! | `load` | load-, unload-, get- of conn and shared, clear-creds, and the like |
//! | `keys` | load-key, unload-key, get-keys |
//! | `authority` | an authority that a client has loaded |
//! | `certs` | load-cert, list-certs; load-, unload-, get- and list- of authorities |
//! | `run` | initiate, terminate, rekey |
//! | `routes` | install, uninstall, redirect |
//! | `algs` | get-algorithms, and our own ironswan-engines |
//! | `conns` | list-conns |
//! | `pols` | list-policies, and our own ironswan-policies |
//! | `troubles` | our own ironswan-troubles: what keeps traffic from passing |
//! | `explain` | our own ironswan-status and ironswan-explain: how each tunnel is, and why |
//! | `scrub` | our own ironswan-scrub: where in a text a loaded secret stands |
//! | `explain_packet` | our own ironswan-explain-packet: the way of one packet |
//! | `sas` | list-sas, and the sections that events share with it |
//! | `capture/` | our own ironswan-capture, and the event capture |
//! | `events` | log, control-log, ike-updown, ike-rekey, ike-update, child-updown, child-rekey |
//! | `alerts` | alert |
//! | `lines` | our own ironswan-log: the latest lines of the log, and those that come |
//!
//! A command that is not known is answered CMD_UNKNOWN; one that cannot be done, `success = no`
//! with an `errmsg`. A frame that is none closes its client and nobody else. What a client does not
//! read is bounded. A connection or an IKE_SA with more children than a frame can hold is listed in
//! several events, each with all else that is known of it.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `client` | one client: frames, commands, answers |
//! | `queue` | frames on their way to a client, bounded |
//! | `reads` | commands of clients that only read |
//! | `socket` | the socket file |

mod alerts;
mod algs;
mod authority;
mod capture;
mod certs;
mod client;
mod conns;
mod counters;
mod events;
mod explain;
mod explain_packet;
mod keys;
mod lines;
mod load;
mod plane;
mod pols;
mod query;
mod queue;
mod reads;
mod replays;
mod routes;
mod run;
mod sas;
mod scrub;
pub(crate) mod socket;
mod troubles;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::pin::Pin;
use std::rc::Rc;
use std::time::{Duration, Instant, SystemTime};

use ironswan_config::request::{flag, number, text};
use ironswan_ike::counters::IkeCounters;
use ironswan_ike::event::Level;
use ironswan_io::clock;
use ironswan_wire::id::IdPattern;
use ironswan_wire::vici::Section;
use tokio::sync::Semaphore;

pub(crate) use socket::try_connect;
pub use socket::{Listener, connect_within, is_alive};

use crate::driver::Driver;
use crate::observe::log::Repeated;
use crate::start::failure::NotReloaded;
use client::Client;
use socket::Access;

/// Clients at one time, over all sockets but those for reading.
const MAX_CLIENTS: usize = 1_000;

/// Clients at one time that only read.
const MAX_READERS: usize = 100;

/// Bytes of an `errmsg`. VICI allows 65,535, and nobody reads that many.
const MAX_ERRMSG: usize = 16 * 1024;

/// Pause after a client could not be accepted, which is so until the process has descriptors again.
/// The client waits as long.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);

/// A client for whom more bytes than these waited leaves freed memory that is worth giving back.
const LARGE_QUEUE: usize = 64 * 1024;

/// Freed memory is given back this long after such a client has gone, once for all that go
/// meanwhile.
const GIVE_BACK_AFTER: Duration = Duration::from_secs(1);

/// Names of events that can be registered for.
const EVENTS: &[&str] = &[
    "log",
    "log-line",
    "control-log",
    "list-sa",
    "list-policy",
    "list-trouble",
    "list-tunnel",
    "list-conn",
    "list-cert",
    "list-authority",
    "ike-updown",
    "ike-rekey",
    "ike-update",
    "child-updown",
    "child-rekey",
    "alert",
    "capture",
];

/// Function that `reload-settings` runs; its result is the answer.
pub type Reload = Box<dyn Fn() -> Pin<Box<dyn Future<Output = Result<(), NotReloaded>>>>>;

/// State that all clients share.
pub struct Control {
    driver: Driver,
    clients: RefCell<BTreeMap<u64, Rc<Client>>>,
    /// Freed memory will be given back to the kernel.
    giving_back: Cell<bool>,
    started: Instant,
    started_at: SystemTime,
    reload: Reload,
    /// Names of the shared keys that came without an id, by their kind (true: post-quantum) and
    /// their owners.
    unnamed: RefCell<BTreeMap<(bool, Vec<IdPattern>), String>>,
    /// The authorities that clients have loaded, by name.
    authorities: RefCell<BTreeMap<String, authority::Authority>>,
    /// Counters as they were when clients reset them.
    resets: Resets,
    /// Turns of the clients that only read.
    reading: Semaphore,
    /// The captures that are on.
    captures: Rc<capture::captures::Captures>,
}

/// Values of counters when they were reset.
#[derive(Default)]
pub(super) struct Resets {
    all: RefCell<IkeCounters>,
    by_connection: RefCell<BTreeMap<String, IkeCounters>>,
}

impl Control {
    /// A server of this driver; it becomes one of its observers.
    pub fn new(driver: Driver, reload: Reload) -> Rc<Self> {
        let control = Rc::new(Self {
            driver: driver.clone(),
            clients: RefCell::default(),
            giving_back: Cell::default(),
            started: clock::now(),
            started_at: clock::wall(),
            reload,
            unnamed: RefCell::default(),
            authorities: RefCell::default(),
            resets: Resets::default(),
            reading: Semaphore::new(reads::AT_A_TIME),
            captures: Rc::default(),
        });
        driver.observe(control.clone());
        control
    }

    /// Serves one socket until it is dropped.
    pub async fn serve(self: Rc<Self>, listener: Listener) {
        let mut next_id = 0u64;
        loop {
            let stream = match listener.accept().await {
                Ok(stream) => stream,
                Err(e) => {
                    static LINES: Repeated = Repeated::new();
                    LINES.line(Level::Warn, || format!("cannot accept a VICI client: {e}"));
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            // Whoever only reads must not keep others away.
            let access = listener.access;
            let most = if access == Access::ReadOnly { MAX_READERS } else { MAX_CLIENTS };
            if self.count(access) >= most && !(access == Access::ReadOnly && self.end_an_idle_reader()) {
                static LINES: Repeated = Repeated::new();
                LINES.line(Level::Warn, || format!("a VICI client was turned away: there are {most}"));
                continue;
            }
            while self.clients.borrow().contains_key(&next_id) {
                next_id += 1;
            }
            let client = Rc::new(Client::new(access));
            self.clients.borrow_mut().insert(next_id, client.clone());
            let (control, id) = (self.clone(), next_id);
            next_id += 1;
            tokio::task::spawn_local(async move {
                client::serve(&control, &client, stream).await;
                control.clients.borrow_mut().remove(&id);
                let much = client.queue.most() > LARGE_QUEUE;
                drop(client);
                if much {
                    control.trim().await;
                }
            });
        }
    }

    fn count(&self, access: Access) -> usize {
        self.clients.borrow().values().filter(|c| c.access == access).count()
    }

    /// Ends the client that only reads and has been there for longest without asking for anything.
    /// False: there is none.
    fn end_an_idle_reader(&self) -> bool {
        let mut clients = self.clients.borrow_mut();
        let idle = |c: &&Rc<Client>| c.access == Access::ReadOnly && c.is_idle();
        let Some(id) = clients.iter().find(|(_, c)| idle(c)).map(|(id, _)| *id) else { return false };
        if let Some(client) = clients.remove(&id) {
            client.queue.close();
        }
        true
    }

    /// Gives freed memory back to the kernel, unless a call of a moment ago will.
    async fn trim(&self) {
        if !self.giving_back.replace(true) {
            tokio::time::sleep(GIVE_BACK_AFTER).await;
            self.giving_back.set(false);
            ironswan_io::malloc::trim();
        }
    }

    /// Carries out a command. `None`: there is no such command.
    async fn dispatch(&self, client: &Client, name: &str, message: Section) -> Option<Section> {
        if client.access == Access::ReadOnly && !reads::allowed(name, &message) {
            return Some(failure(reads::REFUSED));
        }
        Some(match name {
            "version" => self.version(),
            "stats" => self.stats().await,
            "get-counters" => self.get_counters(&message),
            "reset-counters" => self.reset_counters(&message),
            "get-algorithms" => self.get_algorithms(),
            "ironswan-engines" => self.ironswan_engines(),
            "ironswan-counters" => self.all_counters(&message).await,
            // Carried out also when the client does not wait for the end.
            "reload-settings" => match tokio::task::spawn_local((self.reload)()).await {
                Ok(Ok(())) => success(),
                Ok(Err(e)) => failure(e.to_string()),
                Err(e) => failure(format!("the configuration was not reloaded: {e}")),
            },
            "load-conn" => self.load_conn(message).await,
            "unload-conn" => self.unload_conn(&message).await,
            "get-conns" => self.get_conns(),
            "list-conns" => self.list_conns(client, &message).await,
            "load-shared" => self.load_shared(message),
            "unload-shared" => self.unload_shared(&message),
            "get-shared" => self.get_shared(),
            "clear-creds" => self.clear_creds(),
            "flush-certs" => self.flush_certs(&message),
            "load-key" => self.load_key(message),
            "unload-key" => self.unload_key(&message),
            "get-keys" => self.get_keys(),
            "load-cert" => self.load_cert(&message),
            "list-certs" => self.list_certs(client, &message).await,
            "load-authority" => self.load_authority(&message),
            "unload-authority" => self.unload_authority(&message),
            "get-authorities" => self.get_authorities(),
            "list-authorities" => self.list_authorities(client, &message).await,
            "get-pools" => Section::new(),
            "load-token" => failure("tokens are not built yet"),
            "load-pool" => failure("pools are not built yet"),
            "unload-pool" => failure("not found"),
            "initiate" => self.initiate(client, &message).await,
            "terminate" => self.terminate(client, &message).await,
            "rekey" => self.rekey(client, &message).await,
            "install" => self.install(&message).await,
            "uninstall" => self.uninstall(&message).await,
            "redirect" => self.redirect(&message),
            "list-sas" => self.list_sas(client, &message).await,
            "list-policies" => self.list_policies(client, &message).await,
            "ironswan-status" => self.status(client, &message).await,
            "ironswan-explain" => self.explain(&message),
            "ironswan-explain-packet" => self.explain_packet(&message).await,
            "ironswan-troubles" => self.troubles(client, &message).await,
            "ironswan-scrub" => self.scrub(&message).await,
            "ironswan-capture" => self.capture(client, &message).await,
            "ironswan-policies" => self.policies(client, &message).await,
            "ironswan-log" => self.log_lines(client, &message).await,
            _ => return None,
        })
    }
}

fn success() -> Section {
    Section::new().with("success", true)
}

fn failure(message: impl Into<String>) -> Section {
    Section::new().with("success", false).with("errmsg", errmsg(message.into()))
}

/// A reason as an answer holds it: a long list of sentences is cut behind one of them.
fn errmsg(mut message: String) -> String {
    if message.len() <= MAX_ERRMSG {
        return message;
    }
    let mut end = MAX_ERRMSG;
    while !message.is_char_boundary(end) {
        end -= 1;
    }
    let kept = message[..end].rfind("; ").unwrap_or(end);
    let left_out = message[kept..].trim_start_matches("; ").len();
    message.truncate(kept);
    message + &format!("; and {left_out} bytes more")
}

#[cfg(test)]
mod keys_tests;
#[cfg(test)]
mod lines_tests;
#[cfg(test)]
mod reads_tests;
#[cfg(test)]
mod recorded_tests;
#[cfg(test)]
mod routes_tests;
#[cfg(test)]
mod suite_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod wiped_tests;
