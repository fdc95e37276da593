//! Loading and unloading connections and keys: policy finds the difference, and what runs here
//! follows.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use ironswan_wire::sadb::{Action, ReqId};

use super::lifecycle::names_in_work;
use super::spd::Narrowed;
use super::{Endpoint, install};
use crate::event::{ChildId, ChildState, IkeState, Level};
use crate::narrow;
use crate::sa::IkeSa;
use crate::task::{DeleteChild, DeleteIke, Task, liveness};
use ironswan_keying::{ChildAction, ChildKind, Connection, Fingerprint, Limits, PrivateKey, SharedKey};

/// What those who wait for an attempt are told when a reload ends it.
pub(super) const CHANGED: &str = "the connection has been changed";
pub(super) const UNLOADED: &str = "the connection has been unloaded";

impl Endpoint {
    /// Loads a connection by difference, as [`Tunnels::load`](ironswan_keying::Tunnels::load) says.
    pub fn load_connection(&mut self, now: Instant, conn: Connection) {
        self.tunnels.load(conn);
        self.run_todo(now);
    }

    /// Unloads a connection, as [`Tunnels::unload`](ironswan_keying::Tunnels::unload) says.
    pub fn unload_connection(&mut self, now: Instant, name: &str) -> bool {
        let known = self.tunnels.unload(name);
        self.run_todo(now);
        known
    }

    /// Takes over limits and timers; what runs already keeps the timers that it has set.
    pub fn set_limits(&mut self, limits: Limits) {
        self.tunnels.set_limits(limits);
    }

    /// The connections, by name.
    pub fn connections(&self) -> impl Iterator<Item = &Connection> {
        self.tunnels.policy().connections().values().map(|c| &**c)
    }

    /// The connection of this name.
    pub fn connection(&self, name: &str) -> Option<&Connection> {
        self.tunnels.policy().connections().get(name).map(|c| &**c)
    }

    /// Loads a shared key, or replaces the one of the same name.
    pub fn load_shared(&mut self, key: SharedKey) {
        self.tunnels.load_shared(key);
    }

    /// Unloads a shared key. What was authenticated with it goes on.
    pub fn unload_shared(&mut self, name: &str) -> bool {
        self.tunnels.unload_shared(name)
    }

    /// Names of the shared keys.
    pub fn shared_names(&self) -> impl Iterator<Item = &str> {
        self.tunnels.policy().secrets().names()
    }

    /// Loads a private key of ours, or replaces the same one.
    pub fn load_private(&mut self, key: PrivateKey) {
        self.tunnels.load_private(key);
    }

    /// Unloads a private key. What was authenticated with it goes on.
    pub fn unload_private(&mut self, id: &Fingerprint) -> bool {
        self.tunnels.unload_private(id)
    }

    /// Ids of our private keys.
    pub fn private_ids(&self) -> impl Iterator<Item = &Fingerprint> {
        self.tunnels.policy().private_keys().ids()
    }

    /// Installs the trap or shunt of a child, as
    /// [`Tunnels::install_trap`](ironswan_keying::Tunnels::install_trap) says.
    pub fn install_trap(&mut self, now: Instant, conn: &str, child: &str) {
        self.tunnels.install_trap(conn, child);
        self.run_todo(now);
    }

    /// True when a child's trap or shunt is installed.
    pub fn has_trap(&self, conn: &str, child: &str) -> bool {
        self.tunnels.has_trap(conn, child)
    }

    /// Removes the policies of a trap or shunt.
    pub(super) fn clear_trap(&mut self, conn: &str, child: &str) {
        for p in self.spd.take_trap(conn, child).into_iter().flatten() {
            if let Some(command) = self.spd.remove(&p) {
                self.sadb(command);
            }
        }
    }

    /// Installs the policies of a trap or shunt, for these addresses of both ends.
    pub(super) fn set_trap(&mut self, conn: &Connection, child: &str, local: IpAddr, remote: IpAddr) {
        let Some(config) = conn.child(child) else { return };
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

    /// An IKE_SA whose connection has changed in nothing that the peer has agreed to goes on under
    /// the new one.
    pub(super) fn adopt(&mut self, now: Instant, sa: &mut IkeSa, new: &Arc<Connection>) {
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

    /// Compares a child with what is loaded under its name now: it takes over what concerns this
    /// end only, or is closed when the peer has agreed to something else and it is up to us to
    /// bring it up again. True when it is closed.
    pub(crate) fn catch_up(&mut self, sa: &mut IkeSa, id: ChildId) -> bool {
        let Some(conn) = self
            .tunnels
            .policy()
            .connections()
            .get(&sa.conn.name)
            .filter(|c| Arc::ptr_eq(c, &sa.conn))
            .cloned()
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
            self.tunnels.start_action(&conn.name, config);
        }
        true
    }

    /// Closes the children of an IKE_SA whose configured `start_action` is one of these; with the
    /// last one the IKE_SA.
    pub(super) fn close_begun(
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
