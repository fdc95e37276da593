//! Loading and unloading connections and keys; traps and shunts.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use ironswan_wire::sadb::{Action, ReqId};

use super::lifecycle::host;
use super::{Endpoint, install};
use crate::config::{ChildAction, ChildConfig, ChildKind, Connection, SharedKey};
use crate::event::{IkeId, Level};
use crate::narrow;
use crate::task::Task;
use crate::task::delete::{DeleteChild, DeleteIke};

impl Endpoint {
    /// Loads a connection, or replaces the one of the same name. One that has not changed is left alone, with everything
    /// that runs on it. One that has changed: traps and shunts are installed anew, what its `start_action` had started
    /// is closed and started again under the new configuration; everything else runs on under the old.
    pub fn load_connection(&mut self, now: Instant, conn: Connection) {
        let conn = Arc::new(conn);
        if let Some(old) = self.conns.get(&conn.name).cloned() {
            if *old == *conn {
                return;
            }
            self.remove_traps(&conn.name);
            self.cancel_retries(&conn.name);
            self.close_started(now, &old);
        }
        let name = conn.name.clone();
        let actions: Vec<_> =
            conn.children.iter().map(|c| (c.name.clone(), c.kind, c.start_action)).collect();
        self.conns.insert(conn);
        for (child, kind, action) in actions {
            match (kind, action) {
                (ChildKind::Pass | ChildKind::Drop, ChildAction::None) => {}
                // A shunt has nothing to start: installing it is all.
                (ChildKind::Pass | ChildKind::Drop, _) => self.install_trap(&name, &child),
                (ChildKind::Protect, action) => self.act(&name, &child, action),
            }
        }
        self.run_todo(now);
    }

    /// Unloads a connection: its traps and shunts go, nothing new is initiated or accepted; SAs that run go on.
    pub fn unload_connection(&mut self, now: Instant, name: &str) -> bool {
        let known = self.conns.remove(name).is_some();
        if known {
            self.remove_traps(name);
            self.cancel_retries(name);
            self.run_todo(now);
        }
        known
    }

    /// The connections, by name.
    pub fn connections(&self) -> impl Iterator<Item = &Connection> {
        self.conns.values().map(|c| &**c)
    }

    /// The connection of this name.
    pub fn connection(&self, name: &str) -> Option<&Connection> {
        self.conns.get(name).map(|c| &**c)
    }

    /// Loads a shared key, or replaces the one of the same name.
    pub fn load_shared(&mut self, key: SharedKey) {
        self.secrets.insert(key);
    }

    /// Unloads a shared key. What was authenticated with it goes on.
    pub fn unload_shared(&mut self, name: &str) -> bool {
        self.secrets.remove(name)
    }

    /// Names of the shared keys.
    pub fn shared_names(&self) -> impl Iterator<Item = &str> {
        self.secrets.names()
    }

    /// Installs the policies of a child that is not up, so that traffic brings it up (or, for a shunt, passes or is
    /// dropped). Does nothing when it has them.
    pub fn install_trap(&mut self, conn: &str, child: &str) {
        if self.spd.has_trap(conn, child) {
            return;
        }
        let Some(conn) = self.conns.get(conn).cloned() else { return };
        let Some(config) = conn.children.iter().find(|c| c.name == child).cloned() else { return };
        let remote = conn.remote_addrs.iter().find_map(host);
        let remote = remote.or_else(|| (config.kind != ChildKind::Protect).then(|| IpAddr::from([0u8; 4])));
        let Some(remote) = remote else {
            self.note(
                Level::Error,
                Some(&conn.name),
                format!("installing trap {child} failed, remote address unknown"),
            );
            return;
        };
        let local = conn.local_addrs.iter().filter_map(host).find(|a| a.is_ipv4() == remote.is_ipv4());
        match local {
            None if narrow::any_dynamic(&config.local_ts) && config.kind == ChildKind::Protect => {
                self.ask_route_for_trap(&conn.name, child, remote);
            }
            local => self.set_trap(&conn, &config, local.unwrap_or(remote), remote),
        }
    }

    /// Removes a child's trap or shunt. False when there is none.
    pub fn remove_trap(&mut self, conn: &str, child: &str) -> bool {
        let Some(policies) = self.spd.take_trap(conn, child) else { return false };
        for p in policies {
            if let Some(command) = self.spd.remove(&p) {
                self.sadb(command);
            }
        }
        true
    }

    fn remove_traps(&mut self, conn: &str) {
        for child in self.spd.traps_of_conn(conn) {
            self.remove_trap(conn, &child);
        }
    }

    pub(super) fn trap_routed(&mut self, conn: &str, child: &str, local: Option<IpAddr>) {
        let Some(conn) = self.conns.get(conn).cloned() else { return };
        let Some(config) = conn.children.iter().find(|c| c.name == child).cloned() else { return };
        match (local, conn.remote_addrs.iter().find_map(host)) {
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
        let selectors =
            (narrow::resolve(&config.local_ts, local), narrow::resolve(&config.remote_ts, remote));
        let (reqid, action) = match config.kind {
            ChildKind::Protect => {
                let reqid = self.spd.reqid(&selectors, config.reqid);
                (reqid, Action::Protect(reqid))
            }
            ChildKind::Pass => (ReqId(0), Action::Bypass),
            ChildKind::Drop => (ReqId(0), Action::Discard),
        };
        let policies = install::policies(config, action, &selectors.0, &selectors.1);
        for p in &policies {
            if let Some(command) = self.spd.add(p.clone()) {
                self.sadb(command);
            }
        }
        self.spd.set_trap((conn.name.clone(), config.name.clone()), reqid, selectors, policies);
    }

    /// Closes what the old configuration's `start_action = start` had brought up.
    fn close_started(&mut self, now: Instant, old: &Arc<Connection>) {
        let started =
            |name: &str| old.children.iter().any(|c| c.name == name && c.start_action == ChildAction::Start);
        let ids: Vec<IkeId> = self.by_conn.get(&old.name).into_iter().flatten().copied().collect();
        for id in ids {
            self.with_sa(now, id, |ep, sa| {
                if !Arc::ptr_eq(&sa.conn, old) {
                    return;
                }
                if !sa.is_up() && sa.initiator && sa.automatic {
                    return ep.close_ike(now, sa, super::Close::ByUs);
                }
                let (close, keep): (Vec<_>, Vec<_>) =
                    sa.children.values().partition(|c| started(&c.config.name));
                let close: Vec<_> = close.iter().map(|c| c.id).collect();
                if close.is_empty() {
                    return;
                }
                let task = match keep.is_empty() {
                    true => Task::DeleteIke(DeleteIke::default()),
                    false => Task::DeleteChild(DeleteChild::of(close, None)),
                };
                sa.queue.push_back(task);
            });
        }
    }
}
