//! Consequences of each report of a protocol, and views of the tunnels that are down.

use std::net::IpAddr;
use std::time::Instant;

use ironswan_crypto::rng::Rng;
use ironswan_wire::selector::PacketSelector;

use super::later::Later;
use super::{Before, Close, Down, Due, Ended, IkeId, Next, Order, Report, Start, Ticket, Tried, Tunnels, Up};
use crate::diagnosis::{KeyExchange, Path, Unresolved};
use crate::limits::{ADDRESSES_PER_NAME, RETRY_SOON};
use crate::{ChildAction, ChildConfig, Diagnosis, Level, Policy, jitter};

impl Tunnels {
    /// Takes a report of a protocol. `at_work` says whether the protocol is bringing a child
    /// (`None`: an IKE_SA) of a connection up. Take all orders afterwards.
    pub fn report(
        &mut self,
        now: Instant,
        rng: &mut dyn Rng,
        report: Report,
        at_work: &dyn Fn(&str, Option<&str>) -> bool,
    ) {
        match report {
            Report::Begun { start, child } => self.begun(now, &start, child.as_deref()),
            Report::Refused { start, child, why } => {
                self.pace.over(start.id);
                self.failed(now, &start.conn, child.as_deref(), &why);
            }
            Report::Over(id) => self.pace.over(id),
            Report::TakeOver { ike, conn, children, prefer } => self.take_over(ike, &conn, children, prefer),
            Report::Acquired { conn, child, packet } => self.acquired(&conn, &child, packet),
            Report::Up { conn, child } => self.troubles.up(now, &conn, child.as_deref()),
            Report::Gone { conn, child } => {
                let loaded = self.is_loaded(&conn, child.as_deref());
                self.troubles.gone(now, &conn, child.as_deref(), loaded);
            }
            Report::Failed { conn, child, why } => self.failed(now, &conn, child.as_deref(), &why),
            Report::Expired { conn, child } => self.expired(now, &conn, &child),
            Report::Unwanted { conn, child } => {
                let child = child.as_deref();
                self.unwanted(&conn, child, || at_work(&conn, child));
            }
            Report::Busy { ike, conn, child, ticket } => self.busy(now, rng, ike, (&conn, &child), ticket),
            Report::Act { conn, child, action } => self.act(&conn, &child, action),
            Report::Changed { conn, child } => self.start_action(&conn, &child),
            Report::Ended(ended) => self.ended(now, rng, ended, at_work),
            Report::Resolved { name, addrs, ike } => {
                if ike.is_none() {
                    self.names.no_longer_asked(&name);
                }
                self.resolved(now, rng, &name, addrs);
                self.orders.extend(ike.map(Order::GoOn));
            }
            Report::TrapRouted { conn, child, local } => self.trap_routed(&conn, &child, local),
        }
    }

    // ---- attempts ----

    /// An attempt begins for this child of it (`None`: for the IKE_SA alone).
    fn begun(&mut self, now: Instant, start: &Start, child: Option<&str>) {
        self.troubles.wanted(now, &start.conn, child);
        if super::pace::Pace::concerns(start) {
            self.pace.begun(now, start.id);
        }
    }

    /// Tunnels that stand on an IKE_SA are to move: an automatic attempt that takes over begins at
    /// once.
    fn take_over(&mut self, ike: IkeId, conn: &str, children: Vec<Option<String>>, prefer: Option<IpAddr>) {
        let start = Start::automatic(self.new_id(), conn, children);
        self.begin(Start { prefer, takes_over: Some(ike), ..start });
    }

    /// A packet asks for a child whose trap stands. Ignored while an attempt for its connection
    /// waits for its time, because the peer did not answer just now.
    fn acquired(&mut self, conn: &str, child: &str, packet: PacketSelector) {
        if self.laters.of(conn).next().is_none() {
            let start = Start::automatic(self.new_id(), conn, vec![Some(child.to_owned())]);
            self.begin(Start { packet: Some(packet), ..start });
        }
    }

    // ---- tunnels ----

    /// True when the connection is loaded, and has the child.
    fn is_loaded(&self, conn: &str, child: Option<&str>) -> bool {
        self.loaded.connection(conn).is_some_and(|c| child.is_none_or(|name| c.child(name).is_some()))
    }

    /// A child, or an attempt to bring it up, has failed or ended for this reason.
    fn failed(&mut self, now: Instant, conn: &str, child: Option<&str>, why: &Diagnosis) {
        if self.is_loaded(conn, child) {
            self.troubles.ended(now, conn, child, why);
        }
    }

    /// The lifetime of a child was over before it had been rekeyed. It is made anew if it should be
    /// up.
    fn expired(&mut self, now: Instant, conn: &str, child: &ChildConfig) {
        let why = KeyExchange::LifetimeOver { child: true }.into();
        self.failed(now, conn, Some(&child.name), &why);
        if child.start_action.starts() {
            self.act(conn, &child.name, child.start_action);
        }
    }

    /// Somebody has closed a child (`None`: an IKE_SA) here. `at_work`: the protocol brings it up
    /// again already. It counts as down all the same while it is made anew, as after a change of
    /// the configuration.
    fn unwanted(&mut self, conn: &str, child: Option<&str>, at_work: impl FnOnce() -> bool) {
        // Ask the troubles first: `at_work` may have any number of SAs to look through.
        if self.troubles.has(conn, child) {
            let name = child.map(str::to_owned);
            let to_come = self.laters.of(conn).any(|later| later.start.children.contains(&name))
                || self.pace.waits(conn, &name);
            if !to_come && !at_work() {
                self.troubles.remove(conn, child);
            }
        }
    }

    /// A new child found its peer busy: it is asked for once more, after a pause.
    fn busy(
        &mut self,
        now: Instant,
        rng: &mut dyn Rng,
        ike: IkeId,
        (conn, child): (&str, &str),
        ticket: Option<Ticket>,
    ) {
        let pause = jitter::busy_pause(rng);
        let line = format!("the peer is busy, trying CHILD_SA {child} again in {} seconds", pause.as_secs());
        self.say_of(ike, conn, line);
        let start = Start::automatic(self.new_id(), conn, vec![Some(child.to_owned())]);
        self.later(now + pause, Start { ticket, ..start }, false);
    }

    /// An IKE_SA or an attempt has ended. The table in `close` says what follows.
    fn ended(
        &mut self,
        now: Instant,
        rng: &mut dyn Rng,
        ended: Ended,
        at_work: &dyn Fn(&str, Option<&str>) -> bool,
    ) {
        let Ended { ike, conn, end, lost, tried } = ended;
        let name = &conn.name;
        let failed = tried.iter().flat_map(|tried| tried.children.iter().map(Option::as_deref));
        for child in lost.iter().map(|child| Some(child.name.as_str())).chain(failed) {
            match end {
                Close::ByUs | Close::LetGo(_) => self.unwanted(name, child, || at_work(name, child)),
                // The new one has, or is about to have, what this one had.
                Close::Replaced | Close::Rerouted(_) => {}
                _ => self.failed(now, name, child, &end.reason()),
            }
        }
        let mut later = Vec::new();
        for child in &lost {
            match (&end, end.action(child)) {
                // The message that nobody could read may come again: not in a loop that takes no
                // time.
                (Close::Syntax(_), action) if action.starts() => {
                    if action.traps() {
                        self.act(name, &child.name, ChildAction::Trap);
                    }
                    later.push(Some(child.name.clone()));
                }
                (_, action) => self.act(name, &child.name, action),
            }
        }
        if !later.is_empty() && self.loaded.connection(name).is_some() {
            let pause = self.limits.retry_initial;
            let pause = jitter::less(rng, pause, pause / 2);
            self.say_of(ike, name, format!("bringing it up again in {:.1}s", pause.as_secs_f64()));
            let start = Start::automatic(self.new_id(), name, later);
            self.later(now + pause, start, false);
        }
        let Some(tried) = tried.filter(|tried| !tried.goes_on) else { return };
        if tried.again(&conn, &end) && self.loaded.connection(name).is_some() {
            self.try_again(now, rng, ike, &conn, &end, tried);
        } else {
            self.orders.push_back(Order::GivenUp { ike, stays: tried.takes_over });
        }
    }

    /// Makes another attempt in place of one that has ended, after a pause.
    fn try_again(
        &mut self,
        now: Instant,
        rng: &mut dyn Rng,
        ike: IkeId,
        conn: &crate::Connection,
        end: &Close,
        tried: Tried,
    ) {
        let addresses = tried.addresses.max(1);
        let rounds = tried.number.saturating_sub(1) / addresses;
        let same_round = matches!(end, Close::NoAnswer(_)) && !tried.number.is_multiple_of(addresses);
        let pause = match end {
            Close::Rerouted(_) => RETRY_SOON,
            // The next of the peer's addresses.
            _ if same_round => RETRY_SOON,
            _ => (self.limits.retry_initial * 2u32.pow(rounds.min(16))).min(self.limits.retry_max),
        };
        // Between half and all of it, so that the peers of a gateway that was away do not come back
        // all at once.
        let half = pause / 2;
        let pause = half + jitter::up_to(rng, half);
        let number = if matches!(end, Close::Rerouted(_)) { tried.number } else { tried.number + 1 };
        let of = match tried.tries(conn) {
            0 => "forever".to_owned(),
            tries => tries.saturating_mul(addresses).to_string(),
        };
        let line = format!("trying again in {:.1}s ({number}/{of})", pause.as_secs_f64());
        self.say_of(ike, &conn.name, line);
        let start = Start {
            number,
            automatic: tried.automatic,
            prefer: tried.prefer,
            takes_over: tried.takes_over,
            repeats: Some(ike),
            ..Start::automatic(self.new_id(), &conn.name, tried.children)
        };
        self.later(now + pause, start, matches!(end, Close::NoRoute(_)));
    }

    /// Makes an attempt at this time.
    fn later(&mut self, at: Instant, start: Start, no_route: bool) {
        self.timers.set(Due::Attempt(start.id), at);
        self.laters.insert(Later { start, no_route });
    }

    // ---- names ----

    /// The resolver has said what a name stands for now, whoever asked. Servers put the addresses
    /// of one name in another order for each answer: known addresses keep their order, and new ones
    /// come last.
    fn resolved(
        &mut self,
        now: Instant,
        rng: &mut dyn Rng,
        name: &str,
        addrs: Result<Vec<IpAddr>, Unresolved>,
    ) {
        let Some(answered) = self.names.answered(name, addrs.is_ok()) else { return };
        let pause = jitter::less(rng, answered.period, answered.period / 5);
        self.timers.set(Due::Name(name.to_owned()), now + pause);
        let addrs = match addrs {
            Ok(addrs) => addrs,
            Err(why) if answered.begins_to_fail => {
                let context = format!("trying again in {:.0}s", pause.as_secs_f64());
                let why = Path::NoName { names: vec![name.to_owned()], why: Some(why) };
                return self.say_why(Level::Error, None, &context, why.into());
            }
            Err(_) => return,
        };
        let addrs = self.loaded.read().connections().in_known_order(name, &addrs, ADDRESSES_PER_NAME);
        let list: Vec<String> = addrs.iter().map(ToString::to_string).collect();
        let users = self.loaded.write().connections_mut().set_resolved(name, addrs);
        if let Some(users) = users {
            self.say(Level::Info, None, format!("the name '{name}' stands for {}", list.join(", ")));
            for conn in users {
                self.renew_traps(&conn);
            }
        }
    }

    // ---- views ----

    /// Every tunnel that should be up and is not, by connection and child. `progress` says how far
    /// the protocol is with bringing a tunnel up; `None`: it does not.
    pub fn down(&self, now: Instant, progress: impl Fn(&str, Option<&str>) -> Option<String>) -> Vec<Down> {
        let down = self.troubles.down(now).map(|(conn, child, trouble, before)| {
            let progress = progress(conn, child.as_deref());
            let to_come = self.laters.of(conn).filter(|later| later.start.children.contains(child));
            let at = to_come
                .filter_map(|later| {
                    let at = self.timers.get(Due::Attempt(later.start.id))?;
                    Some((at, later.start.number))
                })
                .min();
            let trapped = || child.as_ref().is_some_and(|c| self.traps.stands(conn, c));
            let next = match at {
                _ if progress.is_some() => Next::Trying,
                Some((at, number)) => Next::In { pause: at.saturating_duration_since(now), number },
                None if self.pace.waits(conn, child) => Next::Trying,
                None if trapped() => Next::Packet,
                None => Next::Nothing,
            };
            Down {
                conn: conn.to_owned(),
                child: child.clone(),
                since: now.saturating_duration_since(trouble.since),
                why: trouble.why.clone(),
                progress,
                next,
                before,
            }
        });
        down.collect()
    }

    /// Why the last attempt for this tunnel, or the tunnel itself, ended; `None` when it is not
    /// down, or the first attempt is under way.
    pub fn why_down(&self, conn: &str, child: Option<&str>) -> Option<&Diagnosis> {
        self.troubles.why(conn, child)
    }

    /// True when a tunnel of this connection should be up and is not.
    pub fn is_down(&self, conn: &str) -> bool {
        self.troubles.has_any(conn)
    }

    /// Since when a tunnel is up, and what was before; `None` when it is not up.
    pub fn up(&self, now: Instant, conn: &str, child: Option<&str>) -> Option<Up> {
        self.troubles.is_up(now, conn, child)
    }

    /// The time that a tunnel was up before; `None` when it was not, or is up now.
    pub fn was_up(&self, now: Instant, conn: &str, child: Option<&str>) -> Option<Before> {
        self.troubles.was_up(now, conn, child)
    }
}
