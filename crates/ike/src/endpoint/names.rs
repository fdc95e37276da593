//! DNS names in `local_addrs` and `remote_addrs`: what they stand for, asked of the driver ([`Request::Resolve`]).
//!
//! A name is looked up when its connection is loaded, for every attempt to initiate, and every minute (how long an answer
//! holds is not told). Nothing that a stranger sends causes a look-up. An answer that fails leaves what was known; one name
//! that cannot be resolved holds up nothing but its own connection. Servers put the addresses of one name in another order for
//! each answer: those that are known keep theirs, and what is new comes last.

use std::collections::BTreeMap;
use std::time::Instant;

use super::{Endpoint, Pending};
use crate::event::{Level, Request};
use crate::narrow;
use crate::timer::Timer;
use ironswan_keying::limits::{
    ADDRESSES_PER_NAME, NAME_PERIOD, NAME_PERIOD_EACH, NAME_RETRY, NAME_RETRY_MAX,
};
use ironswan_keying::{ChildKind, Connection};

/// One name that some connection has.
struct Name {
    id: u64,
    /// Being looked up (not for an attempt to initiate, which asks for itself).
    asked: bool,
    /// How often in a row it could not be resolved.
    failures: u32,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Names {
    by_name: BTreeMap<String, Name>,
    by_id: BTreeMap<u64, String>,
    next: u64,
}

impl Names {
    pub(crate) fn len(&self) -> usize {
        self.by_name.len()
    }
}

impl Endpoint {
    /// A connection has been loaded: its names are looked up now, and from time to time.
    pub(super) fn watch_names(&mut self, conn: &Connection) {
        for name in conn.dns_names() {
            if !self.names.by_name.contains_key(&name) {
                self.names.next += 1;
                let id = self.names.next;
                self.names.by_id.insert(id, name.clone());
                self.names.by_name.insert(name.clone(), Name { id, asked: false, failures: 0 });
            }
            self.look_up(&name);
        }
    }

    /// A connection has gone: names that no other has are forgotten.
    pub(super) fn forget_names(&mut self, conn: &Connection) {
        for name in conn.dns_names() {
            if !self.loaded.connections().using(&name).is_empty() {
                continue;
            }
            if let Some(known) = self.names.by_name.remove(&name) {
                self.names.by_id.remove(&known.id);
                self.timers.cancel(Timer::Name(known.id));
            }
            self.loaded.connections_mut().set_resolved(&name, Vec::new());
        }
    }

    fn look_up(&mut self, name: &str) {
        if let Some(known) = self.names.by_name.get_mut(name)
            && !std::mem::replace(&mut known.asked, true)
        {
            let name = name.to_owned();
            self.ask(Pending::Name(name.clone()), Request::Resolve { name });
        }
    }

    /// The timer of a name has fired.
    pub(super) fn look_up_again(&mut self, id: u64) {
        if let Some(name) = self.names.by_id.get(&id).cloned() {
            self.look_up(&name);
        }
    }

    /// The resolver has answered the look-up that keeps a name fresh.
    pub(super) fn looked_up(
        &mut self,
        now: Instant,
        name: &str,
        addrs: Vec<std::net::IpAddr>,
        error: Option<String>,
    ) {
        if let Some(known) = self.names.by_name.get_mut(name) {
            known.asked = false;
        }
        self.resolved(now, name, addrs, error);
    }

    /// What a name stands for now, whoever asked. Sets the time of the next look-up.
    pub(super) fn resolved(
        &mut self,
        now: Instant,
        name: &str,
        addrs: Vec<std::net::IpAddr>,
        error: Option<String>,
    ) {
        let all = u32::try_from(self.names.len()).unwrap_or(u32::MAX).min(100_000);
        let Some(known) = self.names.by_name.get_mut(name) else { return };
        let (id, before) = (known.id, known.failures);
        known.failures = if addrs.is_empty() { before.saturating_add(1) } else { 0 };
        let period = match known.failures {
            0 => NAME_PERIOD.max(NAME_PERIOD_EACH * all),
            n => (NAME_RETRY * 2u32.pow(n.min(12) - 1)).min(NAME_RETRY_MAX),
        };
        let pause = self.less_jitter(period, period / 5);
        self.timers.set(Timer::Name(id), now + pause);
        if addrs.is_empty() {
            // Once for each time that it begins to fail.
            if before == 0 {
                let why = error.unwrap_or_else(|| "it has no address".to_owned());
                let line = format!(
                    "the name '{name}' cannot be resolved: {why}; check it and the resolver; trying again in {:.0}s",
                    pause.as_secs_f64()
                );
                self.note(Level::Error, None, line);
            }
            return;
        }
        let addrs = self.loaded.connections().in_known_order(name, &addrs, ADDRESSES_PER_NAME);
        let list: Vec<String> = addrs.iter().map(ToString::to_string).collect();
        if let Some(users) = self.loaded.connections_mut().set_resolved(name, addrs) {
            self.note(Level::Info, None, format!("the name '{name}' stands for {}", list.join(", ")));
            for conn in users {
                self.renew_traps(&conn);
            }
        }
    }

    /// A name of this connection has other addresses: traps that waited for one are installed, and those whose selectors
    /// come from it are installed anew.
    fn renew_traps(&mut self, conn: &Connection) {
        for child in conn.children.iter().filter(|c| c.kind == ChildKind::Protect) {
            let key = (conn.name.clone(), child.name.clone());
            let waits = self.waiting_traps.contains(&key);
            if self.spd.has_trap(&conn.name, &child.name) && narrow::any_dynamic(&child.remote_ts) {
                self.remove_trap(&conn.name, &child.name);
                self.install_trap(&conn.name, &child.name);
            } else if waits {
                self.install_trap(&conn.name, &child.name);
            }
        }
    }
}
