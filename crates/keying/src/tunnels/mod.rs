//! The tunnels that should be up: a state machine without clock, socket, SA or message. A protocol
//! and the world report to it, and it gives orders; one protocol or several may obey.
//!
//! ```text
//! load, unload, commands ─┐                        ┌─▶ Start, Cancel   (attempts)
//! reports of a protocol ──┤                        ├─▶ GivenUp, GoOn   (waiting IKE_SAs)
//! routes have changed ────┼─▶ Tunnels ─ poll_order ┼─▶ Change, End     (SAs of a connection)
//! time ───────────────────┘      │                 ├─▶ Trap, Untrap    (policies)
//!                                └ poll_timeout    ├─▶ Resolve, Route  (questions to the world)
//!                                                  └─▶ Say             (log)
//! ```
//! After each report, take all orders ([`Tunnels::poll_order`]) and obey them in their order, as
//! [`Joined`](crate::Joined) does. `now` and the source of randomness are arguments.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `close` | the ways in which an IKE_SA ends, and what follows from each |
//! | `later` | attempts that wait for their time |
//! | `load` | loads and unloads connections by difference |
//! | `names` | DNS names, and when to look them up again |
//! | `order` | orders to a protocol |
//! | `pace` | limits how many automatic attempts are under way |
//! | `report` | reports of a protocol |
//! | `reports` | what follows from each report |
//! | `traps` | traps and shunts |
//! | `trouble` | the history of each tunnel: up or down, since when, why, and what was before |

mod close;
mod later;
mod load;
mod names;
mod order;
mod pace;
mod report;
mod reports;
mod traps;
mod trouble;

use std::collections::VecDeque;
use std::time::Instant;

use crate::diagnosis::NotDone;
use crate::{Diagnosis, Level, Limits, Policy, Shared, Timers};

pub use close::{Close, Ended, Tried};
pub use order::{AttemptId, IkeId, Order, Start, Ticket};
pub use report::Report;
pub use trouble::{Before, Down, Next, Up};

/// Work that a timer starts.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
enum Due {
    /// An attempt that waits for its time is made.
    Attempt(AttemptId),
    /// A DNS name is looked up again.
    Name(String),
}

/// The tunnels that should be up.
#[derive(Default)]
pub struct Tunnels {
    loaded: Shared,
    limits: Limits,
    laters: later::Laters,
    pace: pace::Pace,
    troubles: trouble::Troubles,
    names: names::Names,
    traps: traps::Traps,
    timers: Timers<Due>,
    orders: VecDeque<Order>,
    last_id: u64,
    /// After [`Tunnels::stop`]: nothing is loaded and nothing begins any more.
    stopping: bool,
}

impl Tunnels {
    /// Without connections.
    pub fn new(limits: Limits) -> Self {
        Self { limits, ..Self::default() }
    }

    /// The connections and keys that are loaded: the answers to a protocol's questions. A protocol
    /// gets a clone of this handle.
    pub fn policy(&self) -> &Shared {
        &self.loaded
    }

    /// Limits and times that whoever runs the gateway has set.
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Takes over limits and times. Timers that are set already stay.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// The next order. Take all of them after each report.
    pub fn poll_order(&mut self, now: Instant) -> Option<Order> {
        if let Some(order) = self.orders.pop_front() {
            return Some(order);
        }
        let start = self.pace.next(now)?;
        // The connection or the child may have been unloaded meanwhile.
        let known = self
            .loaded
            .connection(&start.conn)
            .is_some_and(|conn| start.children.iter().flatten().all(|name| conn.child(name).is_some()));
        if !known {
            self.cancelled(start, NotDone::Unloaded);
            return self.orders.pop_front();
        }
        Some(Order::Start(start))
    }

    /// When [`Self::handle_timeout`] must be called next.
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.timers.next().into_iter().chain(self.pace.due()).min()
    }

    /// Report: time has passed.
    pub fn handle_timeout(&mut self, now: Instant) {
        while let Some(due) = self.timers.pop(now) {
            match due {
                Due::Attempt(id) => self.make(id),
                Due::Name(name) => {
                    if self.names.due(&name) {
                        self.orders.push_back(Order::Resolve(name));
                    }
                }
            }
        }
    }

    /// Number of entries in every table that a report, a command or time may fill, by name. Loaded
    /// connections are not in it.
    pub fn tables(&self) -> Vec<(&'static str, usize)> {
        let names = self.loaded.read().connections().names();
        // A child and the IKE_SA alone are tunnels.
        let loaded = self.loaded.read().connections().values().map(|conn| 1 + conn.children.len()).sum();
        vec![
            ("attempts to come", self.laters.len()),
            ("attempts that wait for their turn", self.pace.len()),
            ("tunnels that are down", self.troubles.len()),
            ("tunnels that are up", self.troubles.standing()),
            (
                "tunnels that are remembered, without connection",
                self.troubles.remembered().saturating_sub(loaded),
            ),
            ("traps", self.traps.len()),
            ("names without connection", self.names.len().saturating_sub(names)),
            ("orders", self.orders.len()),
            ("times of policy", self.timers.len()),
        ]
    }

    /// A number for an attempt.
    fn new_id(&mut self) -> AttemptId {
        self.last_id += 1;
        AttemptId(self.last_id)
    }

    /// Begins an attempt now, or when its turn comes.
    fn begin(&mut self, start: Start) {
        if self.stopping {
            self.cancelled(start, NotDone::Stopping);
        } else if pace::Pace::concerns(&start) {
            self.pace.push(start);
        } else {
            self.orders.push_back(Order::Start(start));
        }
    }

    /// Begins an automatic attempt for one child.
    fn begin_child(&mut self, conn: &str, child: &str, at_load: bool) {
        let start = Start::automatic(self.new_id(), conn, vec![Some(child.to_owned())]);
        self.begin(Start { at_load, ..start });
    }

    /// Makes an attempt that waited for its time.
    fn make(&mut self, id: AttemptId) {
        self.timers.cancel(Due::Attempt(id));
        if let Some(later) = self.laters.remove(id) {
            self.begin(later.start);
        }
    }

    /// Says that an attempt will not be made.
    fn cancelled(&mut self, start: Start, why: NotDone) {
        let Start { repeats, takes_over: stays, ticket, .. } = start;
        self.orders.push_back(Order::Cancel { repeats, stays, ticket, why: why.into() });
    }

    /// Forgets an attempt that waits for its time.
    fn cancel_later(&mut self, id: AttemptId, why: NotDone) {
        self.timers.cancel(Due::Attempt(id));
        if let Some(later) = self.laters.remove(id) {
            self.cancelled(later.start, why);
        }
    }

    fn say(&mut self, level: Level, conn: Option<&str>, text: impl Into<String>) {
        let (conn, text) = (conn.map(str::to_owned), text.into());
        self.orders.push_back(Order::Say { level, conn, ike: None, text });
    }

    /// Lines that say why something has failed, with this text before the reason.
    fn say_why(&mut self, level: Level, conn: Option<&str>, context: &str, why: Diagnosis) {
        let (conn, context) = (conn.map(str::to_owned), context.to_owned());
        self.orders.push_back(Order::SayWhy { level, conn, context, why });
    }

    /// A line about one IKE_SA.
    fn say_of(&mut self, ike: IkeId, conn: &str, text: String) {
        let (level, conn, ike) = (Level::Info, Some(conn.to_owned()), Some(ike));
        self.orders.push_back(Order::Say { level, conn, ike, text });
    }
}
