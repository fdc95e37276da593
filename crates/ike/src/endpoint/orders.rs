//! Obeys the orders of policy ([`Tunnels`](ironswan_keying::Tunnels)): begins attempts, ends SAs,
//! installs traps, asks the world.

use std::sync::Arc;
use std::time::Instant;

use super::carried::{Carried, Kept};
use super::lifecycle::names_in_work;
use super::load::{CHANGED, UNLOADED};
use super::todo::Todo;
use super::{Endpoint, Pending};
use crate::event::{ChildState, IkeId, Level, Request};
use crate::sa::IkeSa;
use crate::task::{NewChild, Task};
use ironswan_keying::tunnels::{AttemptId, Order, Start, TERMINATED};
use ironswan_keying::{ChildAction, ChildConfig, ChildKind};

impl Endpoint {
    /// Does what has been put off, and obeys the orders of policy, until nothing is left.
    pub(crate) fn run_todo(&mut self, now: Instant) {
        loop {
            if let Some(todo) = self.todo.pop_front() {
                self.do_now(now, todo);
            } else if let Some(order) = self.tunnels.poll_order(now) {
                self.obey(now, order);
            } else {
                return;
            }
        }
    }

    fn do_now(&mut self, now: Instant, todo: Todo) {
        match todo {
            Todo::Retire { old, local, remote } => self.retire(now, old, local, remote),
            Todo::Stay(old) => self.stay(now, old),
            Todo::Collapse(id) => self.collapse(now, id, false),
            Todo::GiveUp(id) => self.with_sa(now, id, |ep, sa| ep.let_go(now, sa, TERMINATED)),
        }
    }

    pub(super) fn obey(&mut self, now: Instant, order: Order) {
        match order {
            Order::Start(start) => self.start_all(now, &start),
            Order::Cancel { id, ticket, why } => {
                self.carried.remove(&id);
                self.done(ticket, Err(why));
            }
            Order::Change { old, new } => {
                for id in self.ids_of_conn(&new.name) {
                    self.with_sa(now, id, |ep, sa| {
                        if sa.conn.is_same_to_peer(&new) {
                            ep.adopt(now, sa, &new);
                        } else if Arc::ptr_eq(&sa.conn, &old) {
                            ep.close_begun(now, sa, CHANGED, |action| action != ChildAction::None);
                        }
                    });
                }
            }
            Order::End(old) => {
                for id in self.ids_of_conn(&old.name) {
                    self.with_sa(now, id, |ep, sa| {
                        if Arc::ptr_eq(&sa.conn, &old) {
                            ep.close_begun(now, sa, UNLOADED, |action| action == ChildAction::Start);
                        }
                    });
                }
            }
            Order::Trap { conn, child, local, remote } => self.set_trap(&conn, &child, local, remote),
            Order::Untrap { conn, child } => self.clear_trap(&conn, &child),
            Order::Resolve(name) => {
                self.ask(Pending::Name(name.clone()), Request::Resolve { name });
            }
            Order::Route { conn, child, remote } => {
                self.ask(Pending::Trap { conn, child }, Request::Route { remote });
            }
            Order::Say { level, conn, text } => self.note(level, conn.as_deref(), text),
        }
    }

    fn ids_of_conn(&self, name: &str) -> Vec<IkeId> {
        self.by_conn.get(name).into_iter().flatten().copied().collect()
    }

    /// Keeps what an attempt to come will take over from an IKE_SA.
    pub(super) fn keep(&mut self, attempt: AttemptId, replaces: Option<IkeId>, kept: Option<Kept>) {
        if replaces.is_some() || kept.is_some() {
            self.carried.insert(attempt, Carried { replaces, kept });
        }
    }

    /// Begins an attempt for each of its children, or says why not.
    fn start_all(&mut self, now: Instant, start: &Start) {
        let mut carried = self.carried.remove(&start.id).unwrap_or_default();
        for child in start.children.iter().map(Option::as_deref) {
            if let Err(why) = self.start(now, start, child, &mut carried) {
                self.note(Level::Error, Some(&start.conn), why.clone());
                self.tunnels.refused(now, start, child, &why);
                self.done(start.ticket, Err(why));
            }
        }
    }

    /// Brings up a child on an IKE_SA of its connection, or on a new one.
    pub(crate) fn start(
        &mut self,
        now: Instant,
        start: &Start,
        child: Option<&str>,
        carried: &mut Carried,
    ) -> Result<(), String> {
        let Some(conn) = self.policy().connection(&start.conn).cloned() else {
            return Err(format!("connection {} is not loaded", start.conn));
        };
        let config = match child {
            None => None,
            Some(name) => match conn.child(name) {
                Some(c) if c.kind != ChildKind::Protect => {
                    return Err(format!("child {name} is a shunt, there is nothing to negotiate"));
                }
                Some(c) => Some(Arc::new(c.clone())),
                None => return Err(format!("connection {} has no child {name}", start.conn)),
            },
        };
        let existing = self
            .by_conn
            .get(&conn.name)
            .into_iter()
            .flatten()
            .copied()
            .find(|id| self.sas.get(id).is_some_and(|sa| sa.usable() && Arc::ptr_eq(&sa.conn, &conn)));
        if let Some(id) = existing {
            self.with_sa(now, id, |ep, sa| ep.join(sa, config, start));
            return Ok(());
        }
        let stands = |old: IkeId| self.sas.get(&old).map(|old| old.roam.leaving);
        if carried.replaces.and_then(stands) == Some(false) {
            // The old IKE_SA has found its way again.
            self.done(start.ticket, Ok(()));
            return Ok(());
        }
        // The IKE_SA that the new one should replace may be gone by now.
        let replaces = carried.replaces.filter(|old| self.sas.contains_key(old));
        self.tunnels.begun(now, start, child);
        self.begin(now, conn, config, start, Carried { replaces, kept: carried.kept.take() })
    }

    /// Adds a child to an IKE_SA that is there.
    fn join(&mut self, sa: &mut IkeSa, child: Option<Arc<ChildConfig>>, start: &Start) {
        match child {
            None if sa.is_up() => self.done(start.ticket, Ok(())),
            None if sa.ticket.is_none() => sa.ticket = start.ticket,
            None => self.done(start.ticket, Err("is being initiated already".to_owned())),
            Some(config) => {
                let stands = sa.children.values().any(|c| {
                    c.config == config
                        && matches!(
                            c.state,
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
                sa.queue.push_back(Task::Child(Box::new(new)));
            }
        }
    }
}
