//! Loads and unloads connections by difference, and answers commands about them.

use std::sync::Arc;

use ironswan_crypto::rng::Rng;

use super::order::{AttemptId, Order, Start};
use super::{Due, Tunnels};
use crate::diagnosis::{Configuration, NotDone, RequestFault};
use crate::{
    Certificates, ChildAction, ChildConfig, ChildKind, Connection, Diagnosis, Fingerprint, Policy, Ppk,
    PrivateKey, SharedKey,
};

impl Tunnels {
    /// Loads a connection, or takes over the difference to the loaded one of the same name. Nothing
    /// happens to what has not changed. Times, actions and `guard` concern this end only: they
    /// apply at once. For the rest, which the peer has agreed to:
    ///
    /// | changed | children with `start_action` start or trap | others |
    /// |---|---|---|
    /// | a child | closed, and brought up or trapped anew, same IKE_SA | run on as agreed |
    /// | anything else | the same, with the IKE_SA | run on, and the IKE_SA |
    ///
    /// A child that has been removed is closed when it was started here, as charon does. An attempt
    /// on command goes on, unless identities, methods of authentication or public keys have
    /// changed.
    pub fn load(&mut self, conn: Connection) {
        if self.stopping {
            return;
        }
        let conn = Arc::new(conn);
        match self.loaded.connection(&conn.name) {
            Some(old) if *old == *conn => {}
            Some(old) => self.change(&old, conn),
            None => {
                self.loaded.write().connections_mut().insert(conn.clone());
                self.watch_names(&conn);
                conn.children.iter().for_each(|child| self.start_action(&conn.name, child));
            }
        }
    }

    /// Unloads a connection: its traps and shunts go, children that its `start_action` has started
    /// are closed, attempts of ours that have not come up end, also those on command, and nothing
    /// new is initiated or accepted. Other SAs run on, as in charon. False when no connection has
    /// this name.
    pub fn unload(&mut self, name: &str) -> bool {
        let Some(old) = self.forget_connection(name) else { return false };
        self.orders.push_back(Order::End(old));
        true
    }

    /// Loads a shared key, or replaces the one of the same name.
    pub fn load_shared(&mut self, key: SharedKey) {
        let mut loaded = self.loaded.write();
        loaded.ppks_mut().remove(&key.name);
        loaded.secrets_mut().insert(key);
    }

    /// Loads a post-quantum preshared key, or replaces the shared key of the same name.
    pub fn load_ppk(&mut self, key: Ppk) {
        let mut loaded = self.loaded.write();
        loaded.secrets_mut().remove(&key.name);
        loaded.ppks_mut().insert(key);
    }

    /// Unloads a shared key of either kind; false when there is none. SAs that were authenticated
    /// with it go on.
    pub fn unload_shared(&mut self, name: &str) -> bool {
        let mut loaded = self.loaded.write();
        loaded.secrets_mut().remove(name) || loaded.ppks_mut().remove(name)
    }

    /// Loads a private key of ours, or replaces the same one.
    pub fn load_private(&mut self, key: PrivateKey) {
        self.loaded.write().private_keys_mut().insert(key);
    }

    /// Unloads a private key; false when there is none. SAs that were authenticated with it go on.
    pub fn unload_private(&mut self, id: &Fingerprint) -> bool {
        self.loaded.write().private_keys_mut().remove(id)
    }

    /// Loads and unloads certificates. SAs that were authenticated with them go on.
    pub fn change_certificates<T>(&mut self, change: impl FnOnce(&mut Certificates) -> T) -> T {
        change(self.loaded.write().certificates_mut())
    }

    /// True after [`Self::stop`].
    pub fn is_stopping(&self) -> bool {
        self.stopping
    }

    /// Unloads everything, and loads and begins nothing from now on. SAs are the protocol's to end.
    pub fn stop(&mut self) {
        self.stopping = true;
        self.orders
            .retain(|order| !matches!(order, Order::Start(_) | Order::Resolve(_) | Order::Route { .. }));
        for start in self.pace.clear() {
            self.cancelled(start, NotDone::Cancelled);
        }
        let ids: Vec<AttemptId> = self.laters.iter().map(|later| later.start.id).collect();
        for id in ids {
            self.cancel_later(id, NotDone::Cancelled);
        }
        let names: Vec<String> = self.loaded.read().connections().values().map(|c| c.name.clone()).collect();
        for name in names {
            self.forget_connection(&name);
        }
    }

    /// A command to bring up a child, or with `child` `None` the IKE_SA alone. `conn` may be left
    /// out when a connection has the child. The attempt that results is for the protocol to begin
    /// at once; attempts to come of the connection are overtaken.
    ///
    /// # Errors
    /// When nothing has this name, or it cannot be initiated.
    pub fn command(&mut self, conn: Option<&str>, child: Option<&str>) -> Result<Start, Diagnosis> {
        if self.stopping {
            return Err(NotDone::Stopping.into());
        }
        let no_child = |child: &str| NotDone::NoChild(child.to_owned());
        let conn = match (conn, child) {
            (Some(name), _) => {
                self.loaded.connection(name).ok_or_else(|| NotDone::NotLoaded(name.to_owned()))?
            }
            (None, Some(child)) => {
                let loaded = self.loaded.read();
                let mut all = loaded.connections().values();
                all.find(|c| c.child(child).is_some()).cloned().ok_or_else(|| no_child(child))?
            }
            (None, None) => return Err(Configuration::BadRequest { why: RequestFault::NoSelector }.into()),
        };
        if let Some(child) = child
            && conn.child(child).ok_or_else(|| no_child(child))?.kind != ChildKind::Protect
        {
            return Err(NotDone::Shunt(child.to_owned()).into());
        }
        self.cancel(&conn.name);
        let start = Start::automatic(self.new_id(), &conn.name, vec![child.map(str::to_owned)]);
        Ok(Start { automatic: false, ..start })
    }

    /// Forgets attempts to come of a connection.
    pub fn cancel(&mut self, conn: &str) {
        for start in self.pace.forget(conn) {
            self.cancelled(start, NotDone::Cancelled);
        }
        let ids: Vec<AttemptId> = self.laters.of(conn).map(|later| later.start.id).collect();
        for id in ids {
            self.cancel_later(id, NotDone::Cancelled);
        }
    }

    /// Does what the configuration says for an event of a child: `start_action`, `close_action`,
    /// `dpd_action`.
    pub(super) fn act(&mut self, conn: &str, child: &str, action: ChildAction) {
        if action.traps() {
            self.install_trap(conn, child);
        }
        if action.starts() {
            self.begin_child(conn, child, false);
        }
    }

    /// Begins what `start_action` says.
    pub(super) fn start_action(&mut self, conn: &str, child: &ChildConfig) {
        match (child.kind, child.start_action) {
            (ChildKind::Pass | ChildKind::Drop, ChildAction::None) => {}
            // A shunt has nothing to start: installing it is all.
            (ChildKind::Pass | ChildKind::Drop, _) => self.install_trap(conn, &child.name),
            (ChildKind::Protect, action) => {
                if action.traps() {
                    self.install_trap(conn, &child.name);
                }
                if action.starts() {
                    self.begin_child(conn, &child.name, true);
                }
            }
        }
    }

    /// Takes a connection out, with its traps, shunts, names and attempts to come.
    fn forget_connection(&mut self, name: &str) -> Option<Arc<Connection>> {
        let old = self.loaded.write().connections_mut().remove(name)?;
        for child in self.traps.of(name) {
            self.remove_trap(name, &child);
        }
        self.forget_names(&old);
        self.cancel(name);
        self.troubles.forget(name, |_| false);
        Some(old)
    }

    fn change(&mut self, old: &Arc<Connection>, new: Arc<Connection>) {
        let name = new.name.clone();
        let same_peer = old.is_same_to_peer(&new);
        // The old form of a child that goes on as it is.
        let kept = |child: &ChildConfig| {
            old.child(&child.name).filter(|before| same_peer && before.is_same_to_peer(child))
        };
        for trap in self.traps.of(&name) {
            let stays = new.child(&trap).is_some_and(|child| {
                let shunt = child.kind != ChildKind::Protect && child.start_action != ChildAction::None;
                kept(child).is_some_and(|before| {
                    shunt || child.start_action.traps() || child.start_action == before.start_action
                })
            });
            if !stays {
                self.remove_trap(&name, &trap);
            }
        }
        self.loaded.write().connections_mut().insert(new.clone());
        let negotiated = |child: &str| new.child(child).is_some_and(|c| c.kind == ChildKind::Protect);
        self.troubles.forget(&name, negotiated);
        if old.remote_addrs != new.remote_addrs || old.local_addrs != new.local_addrs {
            self.forget_names(old);
            self.watch_names(&new);
        }
        // What starts below must not wait twice, and a shunt has nothing to start.
        let starts = |child: &str| {
            let child = new.child(child).filter(|c| c.kind == ChildKind::Protect);
            child.is_some_and(|c| {
                c.start_action.starts() && kept(c).is_some_and(|b| b.start_action == c.start_action)
            })
        };
        for start in self.pace.forget_loaded(&name, starts) {
            self.cancelled(start, NotDone::Cancelled);
        }
        self.orders.push_back(Order::Change { old: old.clone(), new: new.clone() });
        self.change_laters(&new, !same_peer);
        for child in &new.children {
            if kept(child).is_none_or(|before| before.start_action != child.start_action) {
                self.start_action(&name, child);
            }
        }
    }

    /// Attempts to come forget the children that are no more. With `now` they do not wait for their
    /// time: the reason why they failed may have been mended.
    fn change_laters(&mut self, new: &Connection, now: bool) {
        let ids: Vec<AttemptId> = self.laters.of(&new.name).map(|later| later.start.id).collect();
        for id in ids {
            let Some(later) = self.laters.get_mut(id) else { continue };
            let children = &mut later.start.children;
            children.retain(|c| c.as_ref().is_none_or(|c| new.child(c).is_some()));
            if children.is_empty() {
                self.cancel_later(id, NotDone::ChildRemoved);
            } else if now {
                later.start.number = 1;
                self.make(id);
            }
        }
    }

    /// Looks the names of a connection up, now and from time to time.
    fn watch_names(&mut self, conn: &Connection) {
        for name in conn.dns_names() {
            if self.names.watch(&name) {
                self.orders.push_back(Order::Resolve(name));
            }
        }
    }

    /// Forgets the names of a connection that no other connection has.
    fn forget_names(&mut self, conn: &Connection) {
        for name in conn.dns_names() {
            let unused = self.loaded.read().connections().using(&name).is_empty();
            if unused {
                self.names.forget(&name);
                self.timers.cancel(Due::Name(name.clone()));
                self.loaded.write().connections_mut().set_resolved(&name, Vec::new());
            }
        }
    }

    /// Report: links, addresses or routes of this machine have changed. Attempts that had no route
    /// are made soon, each at a random moment.
    pub fn routes_changed(&mut self, now: std::time::Instant, rng: &mut dyn Rng) {
        let ids = self.laters.iter().filter(|later| later.no_route).map(|later| later.start.id);
        for id in ids.collect::<Vec<_>>() {
            let pause = crate::jitter::part(rng, crate::limits::RETRY_ROUTED);
            self.timers.set(Due::Attempt(id), now + pause);
        }
    }
}
