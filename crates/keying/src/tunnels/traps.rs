//! Traps: policies of children that are not up, so that traffic brings them up; and shunts. A trap
//! may have to wait for an address: of the peer, whose name is not resolved yet, or of ours, which
//! the routing table knows.

use crate::diagnosis::{NotDone, Selectors, TrapFault};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::Tunnels;
use super::order::Order;
use crate::{AddrSpec, ChildKind, Connection, Diagnosis, Level, Policy, TsSpec};

/// How far a trap is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trap {
    /// The peer's name has to be resolved.
    WaitsForName,
    /// The routing table has been asked for our address.
    WaitsForRoute,
    /// The policies are installed.
    Stands,
}

/// Traps and shunts, by connection and child.
#[derive(Default)]
pub(super) struct Traps(BTreeMap<(String, String), Trap>);

impl Traps {
    fn get(&self, conn: &str, child: &str) -> Option<Trap> {
        self.0.get(&(conn.to_owned(), child.to_owned())).copied()
    }

    fn set(&mut self, conn: &str, child: &str, trap: Trap) {
        self.0.insert((conn.to_owned(), child.to_owned()), trap);
    }

    /// True when the policies of this child are installed as a trap or shunt.
    pub(super) fn stands(&self, conn: &str, child: &str) -> bool {
        self.get(conn, child) == Some(Trap::Stands)
    }

    /// Children of a connection whose trap or shunt stands or waits.
    pub(super) fn of(&self, conn: &str) -> Vec<String> {
        let of_conn = self.0.range((conn.to_owned(), String::new())..).take_while(|((c, _), _)| c == conn);
        of_conn.map(|((_, child), _)| child.clone()).collect()
    }

    /// Number of traps and shunts.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// True when one of these selectors depends on an outer address.
fn any_dynamic(specs: &[TsSpec]) -> bool {
    specs.iter().any(|s| matches!(s, TsSpec::Dynamic { .. }))
}

impl Tunnels {
    /// Installs the policies of a child that is not up, so that traffic brings it up (or, for a
    /// shunt, passes or is dropped). Does nothing when the child has them. When it cannot be done,
    /// the log says why.
    pub fn install_trap(&mut self, conn: &str, child: &str) {
        // The reason has been said.
        let _ = self.route(conn, child);
    }

    /// The same, with the reason why there is no trap. A trap that waits for an address is no
    /// failure.
    fn route(&mut self, conn: &str, child: &str) -> Result<(), Diagnosis> {
        if self.traps.stands(conn, child) {
            return Ok(());
        }
        let conn = self.loaded.connection(conn).ok_or_else(|| NotDone::NotLoaded(conn.to_owned()))?;
        let config = conn.child(child).ok_or_else(|| NotDone::NoChild(child.to_owned()))?;
        if !config.policies {
            return Err(self.no_trap(Level::Warn, &conn, child, TrapFault::NoPolicies));
        }
        let locals = self.loaded.hosts(&conn.local_addrs);
        let here = locals.first().copied();
        let remote = self.loaded.hosts(&conn.remote_addrs).first().copied();
        let named = conn.remote_addrs.iter().any(|s| matches!(s, AddrSpec::Name(_)));
        let needed = any_dynamic(&config.remote_ts) || (here.is_none() && any_dynamic(&config.local_ts));
        let remote = match remote {
            // The selectors do not depend on where the peer is.
            None if config.kind != ChildKind::Protect || (named && !needed) => {
                here.unwrap_or_else(|| IpAddr::from([0u8; 4]))
            }
            None if named => {
                self.traps.set(&conn.name, child, Trap::WaitsForName);
                let line = format!("trap {child} waits until the peer's name is resolved");
                self.say(Level::Info, Some(&conn.name), line);
                return Ok(());
            }
            None => return Err(self.no_trap(Level::Error, &conn, child, TrapFault::NoRemote)),
            Some(remote) => remote,
        };
        let local = locals.into_iter().find(|a| a.is_ipv4() == remote.is_ipv4());
        if local.is_none() && any_dynamic(&config.local_ts) && config.kind == ChildKind::Protect {
            self.traps.set(&conn.name, child, Trap::WaitsForRoute);
            let (conn, child) = (conn.name.clone(), child.to_owned());
            self.orders.push_back(Order::Route { conn, child, remote });
            return Ok(());
        }
        self.set_trap(conn, child, local.unwrap_or(remote), remote);
        Ok(())
    }

    /// A command to install the trap or shunt of a child. `conn` may be left out when a connection
    /// has the child. Returns the connection's name.
    ///
    /// # Errors
    /// Nothing has this name, or there can be no trap.
    pub fn route_command(&mut self, conn: Option<&str>, child: &str) -> Result<String, Diagnosis> {
        if self.stopping {
            return Err(NotDone::Stopping.into());
        }
        let name = match conn {
            Some(conn) => conn.to_owned(),
            None => {
                let loaded = self.loaded.read();
                let found = loaded.connections().values().find(|c| c.child(child).is_some());
                found.ok_or_else(|| NotDone::NoChild(child.to_owned()))?.name.clone()
            }
        };
        self.route(&name, child)?;
        Ok(name)
    }

    /// A command to remove the trap or shunt of a child, also one that waits for an address. With
    /// several of this name it is a shunt before a trap, as in charon. False when there is none.
    pub fn unroute_command(&mut self, conn: Option<&str>, child: &str) -> bool {
        let fits = |(c, k): &&(String, String)| k == child && conn.is_none_or(|conn| c == conn);
        let found: Vec<String> = self.traps.0.keys().filter(fits).map(|(c, _)| c.clone()).collect();
        let is_shunt = |conn: &&String| {
            let conn = self.loaded.connection(conn);
            conn.is_some_and(|c| c.child(child).is_some_and(|k| k.kind != ChildKind::Protect))
        };
        let Some(conn) = found.iter().find(is_shunt).or(found.first()) else { return false };
        self.remove_trap(conn, child);
        true
    }

    /// The routing table has named our address for a trap; `None`: it knows no route.
    pub(super) fn trap_routed(&mut self, conn: &str, child: &str, local: Option<IpAddr>) {
        if self.traps.get(conn, child) != Some(Trap::WaitsForRoute) {
            return;
        }
        self.traps.0.remove(&(conn.to_owned(), child.to_owned()));
        let Some(conn) = self.loaded.connection(conn) else { return };
        let remote = self.loaded.hosts(&conn.remote_addrs).first().copied();
        match (local, remote) {
            (Some(local), Some(remote)) => self.set_trap(conn, child, local, remote),
            (None, Some(remote)) => {
                let _ = self.no_trap(Level::Error, &conn, child, TrapFault::NoRoute(remote));
            }
            // The name of the peer has lost its addresses meanwhile.
            (_, None) => {}
        }
    }

    /// Says why a child has no trap.
    fn no_trap(&mut self, level: Level, conn: &Connection, child: &str, why: TrapFault) -> Diagnosis {
        let why = Diagnosis::from(Selectors::NoTrap { child: child.to_owned(), why });
        self.say_why(level, Some(&conn.name), "", why.clone());
        why
    }

    fn set_trap(&mut self, conn: Arc<Connection>, child: &str, local: IpAddr, remote: IpAddr) {
        self.traps.set(&conn.name, child, Trap::Stands);
        self.orders.push_back(Order::Trap { conn, child: child.to_owned(), local, remote });
    }

    /// True when the trap or shunt of a child is installed.
    pub fn has_trap(&self, conn: &str, child: &str) -> bool {
        self.traps.stands(conn, child)
    }

    /// True when the trap or shunt of a child is installed, or will be once an address is known.
    pub fn wants_trap(&self, conn: &str, child: &str) -> bool {
        self.traps.get(conn, child).is_some()
    }

    /// Removes the trap or shunt of a child. False when none is installed.
    pub fn remove_trap(&mut self, conn: &str, child: &str) -> bool {
        let trap = self.traps.0.remove(&(conn.to_owned(), child.to_owned()));
        if trap != Some(Trap::Stands) {
            return false;
        }
        self.orders.push_back(Order::Untrap { conn: conn.to_owned(), child: child.to_owned() });
        true
    }

    /// A name of this connection has other addresses: traps that waited for the name are installed,
    /// and traps whose selectors come from it are installed anew.
    pub(super) fn renew_traps(&mut self, conn: &Connection) {
        for child in conn.children.iter().filter(|c| c.kind == ChildKind::Protect) {
            match self.traps.get(&conn.name, &child.name) {
                Some(Trap::Stands) if any_dynamic(&child.remote_ts) => {
                    self.remove_trap(&conn.name, &child.name);
                    self.install_trap(&conn.name, &child.name);
                }
                Some(Trap::WaitsForName) => {
                    self.remove_trap(&conn.name, &child.name);
                    self.install_trap(&conn.name, &child.name);
                }
                _ => {}
            }
        }
    }
}
