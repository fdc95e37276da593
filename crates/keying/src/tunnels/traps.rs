//! Traps: policies of children that are not up, so that traffic brings them up; and shunts. A trap
//! may have to wait for an address: of the peer, whose name is not resolved yet, or of ours, which
//! the routing table knows.

use crate::diagnosis::{Selectors, TrapFault};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use super::Tunnels;
use super::order::Order;
use crate::{AddrSpec, ChildKind, Connection, Level, Policy, TsSpec};

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
    /// shunt, passes or is dropped). Does nothing when the child has them.
    pub fn install_trap(&mut self, conn: &str, child: &str) {
        if self.traps.stands(conn, child) {
            return;
        }
        let Some(conn) = self.loaded.connection(conn) else { return };
        let Some(config) = conn.child(child) else { return };
        if !config.policies {
            return self.no_trap(Level::Warn, &conn, child, TrapFault::NoPolicies);
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
                return self.say(Level::Info, Some(&conn.name), line);
            }
            None => return self.no_trap(Level::Error, &conn, child, TrapFault::NoRemote),
            Some(remote) => remote,
        };
        let local = locals.into_iter().find(|a| a.is_ipv4() == remote.is_ipv4());
        if local.is_none() && any_dynamic(&config.local_ts) && config.kind == ChildKind::Protect {
            self.traps.set(&conn.name, child, Trap::WaitsForRoute);
            let (conn, child) = (conn.name.clone(), child.to_owned());
            return self.orders.push_back(Order::Route { conn, child, remote });
        }
        self.set_trap(conn, child, local.unwrap_or(remote), remote);
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
                self.no_trap(Level::Error, &conn, child, TrapFault::NoRoute(remote));
            }
            // The name of the peer has lost its addresses meanwhile.
            (_, None) => {}
        }
    }

    /// Says why a child has no trap.
    fn no_trap(&mut self, level: Level, conn: &Connection, child: &str, why: TrapFault) {
        let why = Selectors::NoTrap { child: child.to_owned(), why };
        self.say_why(level, Some(&conn.name), "", why.into());
    }

    fn set_trap(&mut self, conn: Arc<Connection>, child: &str, local: IpAddr, remote: IpAddr) {
        self.traps.set(&conn.name, child, Trap::Stands);
        self.orders.push_back(Order::Trap { conn, child: child.to_owned(), local, remote });
    }

    /// True when the trap or shunt of a child is installed.
    pub fn has_trap(&self, conn: &str, child: &str) -> bool {
        self.traps.stands(conn, child)
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
