//! Obeys the orders of policy: begins attempts, ends SAs, installs traps, asks the world. Policy
//! sees the endpoint as a [`Protocol`].

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use super::load::close_begun;
use super::todo::Todo;
use super::unanswered::UnansweredInit;
use super::{Endpoint, Pending};
use crate::context::failure::Subject;
use crate::context::lifecycle::names_in_work;
use crate::event::{ChildState, Event, IkeId, Level, Request, Ticket};
use crate::sa::IkeSa;
use crate::task::{NewChild, Task, liveness};
use crate::timer::Timer;
use ironswan_keying::diagnosis::NotDone;
use ironswan_keying::tunnels::Start;
use ironswan_keying::{
    ChildAction, ChildConfig, ChildKind, Connection, Diagnosis, Limits, Order, Protocol, Report, Target,
};

impl Protocol for Endpoint {
    fn obey(&mut self, now: Instant, order: Order) {
        match order {
            Order::Start(start) => self.start_all(now, &start),
            Order::Cancel { repeats, stays, ticket, why } => {
                self.forget_unanswered(repeats);
                self.done(ticket, Err(why));
                self.shared.todo.extend(stays.map(Todo::Stay));
            }
            Order::GivenUp { ike, stays } => {
                self.forget_unanswered(Some(ike));
                self.shared.todo.extend(stays.map(Todo::Stay));
            }
            Order::GoOn(ike) => self.go_on(now, ike),
            Order::Change { old, new } => self.change(now, &old, &new),
            Order::End(old) => self.end(now, &old),
            Order::Trap { conn, child, local, remote } => self.set_trap(&conn, &child, local, remote),
            Order::Untrap { conn, child } => self.clear_trap(&conn, &child),
            Order::Resolve(name) => {
                self.ask(Pending::Name(name.clone()), Request::Resolve { name });
            }
            Order::Route { conn, child, remote } => {
                self.ask(Pending::Trap { conn, child }, Request::Route { remote });
            }
            Order::Say { level, conn, ike, text } => {
                self.emit(Event::Log { level, conn, ike, text, why: None, stranger: None })
            }
            Order::SayWhy { level, conn, context, why } => {
                let of = Subject { conn: conn.as_deref(), ..Subject::default() };
                self.note_why(level, of, &context, &why);
            }
        }
        self.run_todo(now);
    }

    fn poll_report(&mut self) -> Option<Report> {
        self.shared.outbox.poll_report()
    }

    fn initiate(&mut self, now: Instant, start: Start) -> Result<Ticket, Diagnosis> {
        let ticket = self.open_ticket(1);
        let start = Start { ticket: Some(ticket), ..start };
        let begun =
            start.children.iter().try_for_each(|child| self.start(now, &start, child.as_deref(), &mut None));
        self.run_todo(now);
        begun.map(|()| ticket).inspect_err(|_| self.shared.tickets.forget(ticket))
    }

    fn terminate(
        &mut self,
        now: Instant,
        target: &Target,
        force: bool,
    ) -> Result<(usize, Ticket), Diagnosis> {
        self.close_matching(now, target, force)
    }

    fn rekey(&mut self, now: Instant, target: &Target, reauth: bool) -> Result<(usize, Ticket), Diagnosis> {
        self.rekey_matching(now, target, reauth)
    }

    fn shutdown(&mut self, now: Instant) {
        for id in self.ids_of_sas() {
            self.work_on(now, id, |cx, sa| cx.last_delete(sa));
        }
        while let Some(id) = self.shared.old_inbound.first() {
            self.shared.timers.cancel(Timer::OldInbound(id));
            self.aside(now, |cx| cx.drop_old_inbound(id));
        }
        // Policy has forgotten all connections, without a word about each.
        let counted: Vec<String> = self.counters_by_connection().map(|(conn, _)| conn.to_owned()).collect();
        counted.iter().for_each(|conn| self.forget_counters(conn));
    }

    fn network_changed(&mut self, now: Instant, addresses: &[IpAddr]) {
        self.ways_changed(addresses);
        self.run_todo(now);
    }

    fn set_limits(&mut self, now: Instant, limits: Limits) {
        let before = std::mem::replace(&mut self.limits, limits).keep_alive;
        let after = self.limits.keep_alive;
        // A timer of a shorter time fires in time, and the longer one follows. Without a timer, or
        // with that of a longer time, the packet engine is asked now when ESP left last.
        if !after.is_zero() && (before.is_zero() || after < before) {
            for id in self.ids_of_sas() {
                self.work_on(now, id, |cx, sa| {
                    if sa.nat().local && sa.stands() {
                        liveness::ask_keepalive(cx, sa);
                    }
                });
            }
            self.run_todo(now);
        }
    }

    fn handle_timeout(&mut self, now: Instant) {
        while let Some(timer) = self.shared.timers.pop(now) {
            self.fire(now, timer);
            self.run_todo(now);
        }
    }

    fn poll_timeout(&self) -> Option<Instant> {
        self.shared.timers.next()
    }

    fn progress(&self, conn: &str, child: Option<&str>) -> Option<String> {
        self.progress_with(conn, child)
    }

    fn under_way(&self, conn: &str) -> Option<String> {
        self.waits(conn)
    }

    fn tables(&self) -> Vec<(&'static str, usize)> {
        self.sizes()
    }
}

impl Endpoint {
    /// Does what has been put off, until nothing is left.
    pub(crate) fn run_todo(&mut self, now: Instant) {
        while let Some(todo) = self.shared.todo.pop_front() {
            match todo {
                Todo::Retire { old, new } => self.retire(now, old, new),
                Todo::Stay(old) => self.stay(now, old),
                Todo::Collapse(id) => self.collapse(now, id, false),
                Todo::TakeUp(child) => self.with_child(now, child, |cx, sa| cx.activate(sa, child)),
                Todo::GiveUp(id) => self.with_sa(now, id, |ep, sa| ep.let_go(now, sa, NotDone::Terminated)),
            }
        }
    }

    /// A connection has been loaded anew.
    fn change(&mut self, now: Instant, old: &Arc<Connection>, new: &Arc<Connection>) {
        for id in self.ids_of_conn(&new.name) {
            self.with_sa(now, id, |ep, sa| {
                if sa.conn().is_same_to_peer(new) {
                    ep.adopt(now, sa, new);
                } else if !sa.is_up() {
                    // An attempt on command goes on as it has begun, unless somebody is to prove
                    // something else by now.
                    if sa.attempt().automatic || !sa.conn().authenticates_like(new) {
                        ep.give_up(now, sa, NotDone::Changed);
                    }
                } else if Arc::ptr_eq(sa.conn(), old) {
                    close_begun(sa, |action| action != ChildAction::None);
                }
            });
        }
    }

    /// A connection has been unloaded. Attempts end, whoever has begun them.
    fn end(&mut self, now: Instant, old: &Arc<Connection>) {
        for id in self.ids_of_conn(&old.name) {
            self.with_sa(now, id, |ep, sa| {
                if !sa.is_up() {
                    ep.give_up(now, sa, NotDone::Unloaded);
                } else if Arc::ptr_eq(sa.conn(), old) {
                    close_begun(sa, ChildAction::starts);
                }
            });
        }
        self.forget_counters(&old.name);
    }

    fn ids_of_conn(&self, name: &str) -> Vec<IkeId> {
        self.by_conn.get(name).into_iter().flatten().copied().collect()
    }

    /// No attempt repeats the one of this IKE_SA.
    fn forget_unanswered(&mut self, ike: Option<IkeId>) {
        ike.and_then(|ike| self.unanswered.remove(&ike));
    }

    /// Begins an attempt for each of its children, or says why not.
    fn start_all(&mut self, now: Instant, start: &Start) {
        let mut unanswered = start.repeats.and_then(|ike| self.unanswered.remove(&ike));
        let mut begun = false;
        for child in &start.children {
            let Err(why) = self.start(now, start, child.as_deref(), &mut unanswered) else {
                begun = true;
                continue;
            };
            let of = Subject { conn: Some(&start.conn), ..Subject::default() };
            self.note_why(Level::Error, of, "", &why);
            self.report(Report::Refused { start: start.clone(), child: child.clone(), why: why.clone() });
            self.done(start.ticket, Err(why));
        }
        if !begun {
            self.shared.todo.extend(start.takes_over.map(Todo::Stay));
        }
    }

    /// Brings up a child on an IKE_SA of its connection, or on a new one.
    fn start(
        &mut self,
        now: Instant,
        start: &Start,
        child: Option<&str>,
        unanswered: &mut Option<UnansweredInit>,
    ) -> Result<(), Diagnosis> {
        let Some(conn) = self.policy().connection(&start.conn) else {
            return Err(NotDone::NotLoaded(start.conn.clone()).into());
        };
        self.say_acquired(start, child);
        let config = match child {
            None => None,
            Some(name) => match conn.child(name) {
                Some(c) if c.kind != ChildKind::Protect => {
                    return Err(NotDone::Shunt(name.to_owned()).into());
                }
                Some(c) => Some(Arc::new(c.clone())),
                None => return Err(NotDone::NoChild(name.to_owned()).into()),
            },
        };
        let existing = self
            .by_conn
            .get(&conn.name)
            .into_iter()
            .flatten()
            .copied()
            .find(|id| self.sas.get(id).is_some_and(|sa| sa.usable() && Arc::ptr_eq(sa.conn(), &conn)));
        if let Some(id) = existing {
            self.with_sa(now, id, |ep, sa| ep.join(sa, config, start));
            return Ok(());
        }
        let stands =
            |old: IkeId| self.heir(old).and_then(|old| self.sas.get(&old)).map(|old| old.roam().leaving);
        if start.takes_over.and_then(stands) == Some(false) {
            // The old IKE_SA has found its way again.
            self.done(start.ticket, Ok(()));
            return Ok(());
        }
        self.may_begin(&conn)?;
        self.report(Report::Begun { start: start.clone(), child: child.map(str::to_owned) });
        self.begin(now, conn, config, start, unanswered.take());
        Ok(())
    }

    /// A line about the packet that asks for a child.
    fn say_acquired(&mut self, start: &Start, child: Option<&str>) {
        let (Some(packet), Some(child)) = (start.packet, child) else { return };
        let Some(reqid) = self.shared.spd.reqid_of_trap(&start.conn, child) else { return };
        let (from, to) = (packet.src, packet.dst);
        let line = format!("creating acquire job for policy {from} === {to} with reqid {{{}}}", reqid.0);
        self.note(Level::Info, Some(&start.conn), line);
    }

    /// Adds a child to an IKE_SA that is there.
    fn join(&mut self, sa: &mut IkeSa, child: Option<Arc<ChildConfig>>, start: &Start) {
        match child {
            None if sa.is_up() => self.done(start.ticket, Ok(())),
            None if sa.attempt().ticket.is_none() => sa.attempt_mut().ticket = start.ticket,
            None => self.done(start.ticket, Err(NotDone::Initiating.into())),
            Some(config) => {
                let stands = sa.children().any(|c| {
                    *c.config() == config
                        && matches!(
                            c.state(),
                            ChildState::Installed | ChildState::Rekeying | ChildState::Installing
                        )
                });
                if stands {
                    return self.done(start.ticket, Ok(()));
                }
                if start.automatic && start.ticket.is_none() && names_in_work(sa).any(|n| n == config.name) {
                    return;
                }
                let new = NewChild { packet: start.packet, ..NewChild::new(config, None, start.ticket) };
                sa.work_mut().push(Task::Child(Box::new(new)));
            }
        }
    }
}
