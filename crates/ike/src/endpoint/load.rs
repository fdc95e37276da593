//! Loading and unloading connections and keys, by difference; traps and shunts.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use ironswan_wire::sadb::{Action, ReqId};

use super::initiate::Start;
use super::lifecycle::{Todo, names_in_work};
use super::policy::Narrowed;
use super::{Endpoint, install};
use crate::event::{ChildId, ChildState, IkeId, IkeState, Level};
use crate::narrow;
use crate::sa::IkeSa;
use crate::task::delete::{DeleteChild, DeleteIke};
use crate::task::{Task, liveness};
use crate::timer::Timer;
use ironswan_keying::{AddrSpec, ChildAction, ChildConfig, ChildKind, Connection, Limits, SharedKey};

/// What those who wait for an attempt are told when a reload ends it.
const CHANGED: &str = "the connection has been changed";
const UNLOADED: &str = "the connection has been unloaded";

impl Endpoint {
    /// Loads a connection, or takes over the difference to the one of the same name. What has not changed is left alone
    /// with everything that runs on it; what concerns this end only (times, actions, `guard`) is taken over by what
    /// runs. The rest, what the peer has agreed to:
    ///
    /// | changed | child with `start_action = start` or `trap` | other children |
    /// |---|---|---|
    /// | a child | it is closed, and brought up or trapped anew on the same IKE_SA | runs on as agreed |
    /// | anything else of the connection | the same, with its IKE_SA | run on as agreed, and their IKE_SA |
    ///
    /// A child that has been removed is closed when it was started here, as charon does.
    pub fn load_connection(&mut self, now: Instant, conn: Connection) {
        if self.is_stopping() {
            return;
        }
        let conn = Arc::new(conn);
        match self.loaded.connections().get(&conn.name).cloned() {
            Some(old) if *old == *conn => return,
            Some(old) => self.change(now, &old, conn),
            None => {
                self.loaded.connections_mut().insert(conn.clone());
                self.watch_names(&conn);
                conn.children.iter().for_each(|child| self.begin_child(&conn.name, child));
            }
        }
        self.run_todo(now);
    }

    /// Unloads a connection: its traps and shunts go, what its `start_action` has started is closed, nothing new is
    /// initiated or accepted. Other SAs run on, as in charon.
    pub fn unload_connection(&mut self, now: Instant, name: &str) -> bool {
        let Some(old) = self.forget_connection(name) else { return false };
        for id in self.ids_of_conn(name) {
            self.with_sa(now, id, |ep, sa| {
                if Arc::ptr_eq(&sa.conn, &old) {
                    ep.close_begun(now, sa, UNLOADED, |action| action == ChildAction::Start);
                }
            });
        }
        self.run_todo(now);
        true
    }

    /// Takes a connection out, with its traps, shunts and attempts to come.
    pub(super) fn forget_connection(&mut self, name: &str) -> Option<Arc<Connection>> {
        let old = self.loaded.connections_mut().remove(name)?;
        for child in self.spd.traps_of_conn(name) {
            self.remove_trap(name, &child);
        }
        self.forget_waiting_traps(name);
        self.forget_names(&old);
        self.cancel_retries(name);
        self.troubles.forget(name, |_| false);
        Some(old)
    }

    fn forget_waiting_traps(&mut self, conn: &str) {
        let from = (conn.to_owned(), String::new());
        let of_conn = self.waiting_traps.range(from..).take_while(|(of, _)| of == conn).cloned();
        for key in of_conn.collect::<Vec<_>>() {
            self.waiting_traps.remove(&key);
        }
    }

    /// Takes over limits and timers; what runs already keeps the timers that it has set.
    pub fn set_limits(&mut self, limits: Limits) {
        self.limits = limits;
    }

    /// The connections, by name.
    pub fn connections(&self) -> impl Iterator<Item = &Connection> {
        self.loaded.connections().values().map(|c| &**c)
    }

    /// The connection of this name.
    pub fn connection(&self, name: &str) -> Option<&Connection> {
        self.loaded.connections().get(name).map(|c| &**c)
    }

    /// Loads a shared key, or replaces the one of the same name.
    pub fn load_shared(&mut self, key: SharedKey) {
        self.loaded.secrets_mut().insert(key);
    }

    /// Unloads a shared key. What was authenticated with it goes on.
    pub fn unload_shared(&mut self, name: &str) -> bool {
        self.loaded.secrets_mut().remove(name)
    }

    /// Names of the shared keys.
    pub fn shared_names(&self) -> impl Iterator<Item = &str> {
        self.loaded.secrets().names()
    }

    /// Installs the policies of a child that is not up, so that traffic brings it up (or, for a shunt, passes or is
    /// dropped). Does nothing when it has them.
    pub fn install_trap(&mut self, conn: &str, child: &str) {
        if self.spd.has_trap(conn, child) {
            return;
        }
        let Some(conn) = self.loaded.connections().get(conn).cloned() else { return };
        let Some(config) = conn.children.iter().find(|c| c.name == child).cloned() else { return };
        if !config.policies {
            let line = format!("no trap for {child}: it is configured without policies (policies = no)");
            return self.note(Level::Warn, Some(&conn.name), line);
        }
        let key = (conn.name.clone(), config.name.clone());
        self.waiting_traps.remove(&key);
        let here = self.loaded.connections().hosts(&conn.local_addrs).next();
        let named = conn.remote_addrs.iter().any(|s| matches!(s, AddrSpec::Name(_)));
        let needed = narrow::any_dynamic(&config.remote_ts)
            || (here.is_none() && narrow::any_dynamic(&config.local_ts));
        let remote = self.loaded.connections().hosts(&conn.remote_addrs).next();
        let remote = match remote {
            // Its selectors do not depend on where the peer is.
            None if config.kind != ChildKind::Protect || (named && !needed) => {
                here.unwrap_or_else(|| IpAddr::from([0u8; 4]))
            }
            None if named => {
                self.waiting_traps.insert(key);
                let line = format!("trap {child} waits until the peer's name is resolved");
                return self.note(Level::Info, Some(&conn.name), line);
            }
            None => {
                let line = format!("installing trap {child} failed, remote address unknown");
                return self.note(Level::Error, Some(&conn.name), line);
            }
            Some(remote) => remote,
        };
        let local =
            self.loaded.connections().hosts(&conn.local_addrs).find(|a| a.is_ipv4() == remote.is_ipv4());
        match local {
            None if narrow::any_dynamic(&config.local_ts) && config.kind == ChildKind::Protect => {
                self.ask_route_for_trap(&conn.name, child, remote);
            }
            local => self.set_trap(&conn, &config, local.unwrap_or(remote), remote),
        }
    }

    /// True when a child's trap or shunt is installed.
    pub fn has_trap(&self, conn: &str, child: &str) -> bool {
        self.spd.has_trap(conn, child)
    }

    /// Removes a child's trap or shunt. False when there is none.
    pub fn remove_trap(&mut self, conn: &str, child: &str) -> bool {
        self.waiting_traps.remove(&(conn.to_owned(), child.to_owned()));
        let Some(policies) = self.spd.take_trap(conn, child) else { return false };
        for p in policies {
            if let Some(command) = self.spd.remove(&p) {
                self.sadb(command);
            }
        }
        true
    }

    pub(super) fn trap_routed(&mut self, conn: &str, child: &str, local: Option<IpAddr>) {
        let Some(conn) = self.loaded.connections().get(conn).cloned() else { return };
        let Some(config) = conn.children.iter().find(|c| c.name == child).cloned() else { return };
        let remote = self.loaded.connections().hosts(&conn.remote_addrs).next();
        match (local, remote) {
            (Some(local), Some(remote)) if !self.spd.has_trap(&conn.name, child) => {
                self.set_trap(&conn, &config, local, remote);
            }
            (None, _) => self.note(
                Level::Error,
                Some(&conn.name),
                format!("installing trap {child} failed, no route to the peer"),
            ),
            _ => {}
        }
    }

    fn set_trap(&mut self, conn: &Connection, config: &ChildConfig, local: IpAddr, remote: IpAddr) {
        let selectors = Narrowed::whole((
            narrow::resolve(&config.local_ts, local),
            narrow::resolve(&config.remote_ts, remote),
        ));
        let (reqid, action) = match config.kind {
            ChildKind::Protect => {
                let reqid = self.spd.reqid(&selectors, config.reqid);
                (reqid, Action::Protect(reqid))
            }
            ChildKind::Pass => (ReqId(0), Action::Bypass),
            ChildKind::Drop => (ReqId(0), Action::Discard),
        };
        let policies = install::policies(&self.spd, &conn.name, config, action, &selectors);
        for p in &policies {
            if let Some(command) = self.spd.add(p.clone()) {
                self.sadb(command);
            }
        }
        self.spd.set_trap((conn.name.clone(), config.name.clone()), reqid, selectors, policies);
    }

    fn begin_child(&mut self, conn: &str, child: &ChildConfig) {
        match (child.kind, child.start_action) {
            (ChildKind::Pass | ChildKind::Drop, ChildAction::None) => {}
            // A shunt has nothing to start: installing it is all.
            (ChildKind::Pass | ChildKind::Drop, _) => self.install_trap(conn, &child.name),
            (ChildKind::Protect, ChildAction::Start) => {
                let start = Start::automatic(conn.to_owned(), Some(child.name.clone()));
                self.todo.push_back(Todo::Start(Start { at_load: true, ..start }));
            }
            (ChildKind::Protect, action) => self.act(conn, &child.name, action),
        }
    }

    fn change(&mut self, now: Instant, old: &Arc<Connection>, new: Arc<Connection>) {
        let name = new.name.clone();
        let same_peer = old.is_same_to_peer(&new);
        // The old form of a child that goes on as it is.
        let kept = |child: &ChildConfig| {
            old.child(&child.name).filter(|before| same_peer && before.is_same_to_peer(child))
        };
        for trap in self.spd.traps_of_conn(&name) {
            let stays = new.child(&trap).is_some_and(|child| {
                let shunt = child.kind != ChildKind::Protect && child.start_action != ChildAction::None;
                kept(child).is_some_and(|before| {
                    shunt
                        || child.start_action == ChildAction::Trap
                        || child.start_action == before.start_action
                })
            });
            if !stays {
                self.remove_trap(&name, &trap);
            }
        }
        self.forget_waiting_traps(&name);
        self.loaded.connections_mut().insert(new.clone());
        let negotiated = |child: &str| new.child(child).is_some_and(|c| c.kind == ChildKind::Protect);
        self.troubles.forget(&name, negotiated);
        if old.remote_addrs != new.remote_addrs || old.local_addrs != new.local_addrs {
            self.forget_names(old);
            self.watch_names(&new);
        }
        // What starts below is not to wait twice, and a shunt has nothing to start.
        let starts = |child: &str| {
            let child = new.child(child).filter(|c| c.kind == ChildKind::Protect);
            child.is_some_and(|c| {
                c.start_action == ChildAction::Start
                    && kept(c).is_some_and(|b| b.start_action == c.start_action)
            })
        };
        self.pace.forget_loaded(&name, starts);
        self.change_retries(&new, !same_peer);
        for id in self.ids_of_conn(&name) {
            self.with_sa(now, id, |ep, sa| {
                if sa.conn.is_same_to_peer(&new) {
                    ep.adopt(now, sa, &new);
                } else if Arc::ptr_eq(&sa.conn, old) {
                    ep.close_begun(now, sa, CHANGED, |action| action != ChildAction::None);
                }
            });
        }
        for child in &new.children {
            if kept(child).is_none_or(|before| before.start_action != child.start_action) {
                self.begin_child(&name, child);
            }
        }
    }

    fn ids_of_conn(&self, name: &str) -> Vec<IkeId> {
        self.by_conn.get(name).into_iter().flatten().copied().collect()
    }

    /// Attempts to come forget the children that are no more. With `now` they do not wait for their time: what they
    /// failed for may have been mended.
    fn change_retries(&mut self, new: &Connection, now: bool) {
        let ids: Vec<u64> = self.retries.of(&new.name).map(|(id, _)| id).collect();
        for id in ids {
            let Some(retry) = self.retries.get_mut(id) else { continue };
            let before = retry.children.len();
            retry.children.retain(|c| c.as_ref().is_none_or(|c| new.child(c).is_some()));
            if retry.children.is_empty() && before > 0 {
                self.cancel_retry(id, "the child is not configured any more");
            } else if now {
                retry.attempt = 1;
                self.timers.cancel(Timer::Retry(id));
                self.retry(id);
            }
        }
    }

    /// An IKE_SA whose connection has changed in nothing that the peer has agreed to goes on under the new one.
    fn adopt(&mut self, now: Instant, sa: &mut IkeSa, new: &Arc<Connection>) {
        let old = std::mem::replace(&mut sa.conn, new.clone());
        if old.dpd_delay != new.dpd_delay && sa.is_up() {
            liveness::rearm(self, sa);
        }
        let had_work = names_in_work(sa).next().is_some();
        for mut task in std::mem::take(&mut sa.queue) {
            if let Task::Child(n) = &mut task
                && n.rekey.is_none()
                && n.id == ChildId(0)
            {
                match new.child(&n.config.name) {
                    Some(config) => n.config = Arc::new(config.clone()),
                    None => {
                        self.fail_task(task, "the child is not configured any more");
                        continue;
                    }
                }
            }
            sa.queue.push_back(task);
        }
        let ids: Vec<ChildId> = sa.children.keys().copied().collect();
        let closing = ids.iter().filter(|id| self.catch_up(sa, **id)).count();
        // An IKE_SA is kept for its children, unless it never had any.
        let idle = names_in_work(sa).next().is_none();
        let more = new.children.iter().any(|c| c.start_action != ChildAction::None);
        if idle && !more && (closing > 0 || had_work) && closing == ids.len() {
            if sa.is_up() {
                sa.queue.push_back(Task::DeleteIke(DeleteIke::default()));
            } else {
                self.give_up(now, sa, CHANGED);
            }
        }
    }

    /// Ends an IKE_SA that is being set up by itself.
    fn give_up(&mut self, now: Instant, sa: &mut IkeSa, why: &'static str) {
        if sa.initiator && sa.automatic && matches!(sa.state, IkeState::Created | IkeState::Connecting) {
            self.let_go(now, sa, why);
        }
    }

    /// Compares a child with what is loaded under its name now: it takes over what concerns this end only, or is closed
    /// when the peer has agreed to something else and it is up to us to bring it up again. True when it is closed.
    pub(crate) fn catch_up(&mut self, sa: &mut IkeSa, id: ChildId) -> bool {
        let Some(conn) =
            self.loaded.connections().get(&sa.conn.name).filter(|c| Arc::ptr_eq(c, &sa.conn)).cloned()
        else {
            return false;
        };
        let Some(child) = sa.children.get_mut(&id) else { return false };
        let loaded = conn.child(&child.config.name);
        if let Some(config) = loaded.filter(|c| child.config.is_same_to_peer(c)) {
            if *config != *child.config {
                child.config = Arc::new(config.clone());
            }
            return false;
        }
        let (before, line) = (child.config.start_action, child.name());
        let ours = match loaded {
            Some(_) => before != ChildAction::None,
            None => before == ChildAction::Start,
        };
        if !ours || child.state == ChildState::Deleting || child.replaced_by.is_some() {
            return false;
        }
        self.log(Level::Info, sa, format!("configuration of CHILD_SA {line} has changed, closing it"));
        sa.queue.push_back(Task::DeleteChild(DeleteChild::of(vec![id], None)));
        if let Some(config) = loaded {
            self.begin_child(&conn.name, config);
        }
        true
    }

    /// Closes the children of an IKE_SA whose configured `start_action` is one of these; with the last one the IKE_SA.
    fn close_begun(
        &mut self,
        now: Instant,
        sa: &mut IkeSa,
        why: &'static str,
        begun: impl Fn(ChildAction) -> bool,
    ) {
        if !sa.is_up() {
            return self.give_up(now, sa, why);
        }
        let (close, keep): (Vec<_>, Vec<_>) =
            sa.children.values().partition(|c| begun(c.config.start_action));
        let close: Vec<_> = close.iter().map(|c| c.id).collect();
        if close.is_empty() {
            return;
        }
        let task = match keep.is_empty() {
            true => Task::DeleteIke(DeleteIke::default()),
            false => Task::DeleteChild(DeleteChild::of(close, None)),
        };
        sa.queue.push_back(task);
    }
}
