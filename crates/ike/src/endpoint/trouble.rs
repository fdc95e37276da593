//! Why a tunnel that should be up is not: since when, for what reason, and when it is tried again.
//!
//! There is at most one entry for each child of a loaded connection, and one for the connection itself, so the configuration
//! bounds the table. What a stranger sends never makes an entry.
//!
//! * A child has one from when an attempt of ours begins, and from when it ends without having been closed here, whoever had
//!   initiated it: a child that road warriors bring up is listed after the last of them has closed it, until one comes again. It goes
//!   when the child is up, when somebody closes it here, and when the connection is unloaded.
//! * An IKE_SA that was asked for without child has one (`child` is `None`) while it is being brought up, or when that has
//!   failed. Once it has been up, its end makes none: it carries nothing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::Endpoint;
use super::lifecycle::names_in_work;
use crate::event::IkeState;
use crate::sa::IkeSa;
use crate::timer::Timer;

/// A tunnel that should be up and is not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Down {
    /// The connection's name.
    pub conn: String,
    /// The child's name; `None`: an IKE_SA alone was asked for.
    pub child: Option<String>,
    /// For how long it has been down.
    pub since: Duration,
    /// Why, as far as is known; without a full stop.
    pub why: String,
    /// What is being done about it.
    pub next: Next,
}

/// What is being done about a tunnel that is down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// An attempt is under way.
    Trying,
    /// The next attempt begins after this time.
    In(Duration),
    /// It begins with the next packet: the policy is installed as a trap.
    Packet,
    /// Nothing: it waits for the peer or for an operator.
    Nothing,
}

struct Trouble {
    since: Instant,
    /// Why the last attempt, or the SA itself, ended. `None` while the first attempt is under way.
    why: Option<String>,
}

/// The table, by connection and child.
#[derive(Default)]
pub(crate) struct Troubles(BTreeMap<(String, Option<String>), Trouble>);

impl Troubles {
    /// How many entries there are.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// This is up, or is not wanted any more. An IKE_SA was asked for alone only until any child is up on it.
    pub(super) fn remove(&mut self, conn: &str, child: &str) {
        self.0.remove(&(conn.to_owned(), Some(child.to_owned())));
        self.remove_alone(conn);
    }

    /// True when there is an entry for this child or for the connection alone.
    fn has(&self, conn: &str, child: &Option<String>) -> bool {
        let has = |child: Option<String>| self.0.contains_key(&(conn.to_owned(), child));
        has(None) || (child.is_some() && has(child.clone()))
    }

    /// An IKE_SA of this connection is up, or is not wanted any more.
    pub(super) fn remove_alone(&mut self, conn: &str) {
        self.0.remove(&(conn.to_owned(), None));
    }

    /// Forgets this connection, or only those children of it that `keep` does not keep.
    pub(super) fn forget(&mut self, conn: &str, keep: impl Fn(&str) -> bool) {
        let from = (conn.to_owned(), None);
        let of_conn = self.0.range(from..).map(|(key, _)| key).take_while(|(of, _)| of == conn);
        let gone = of_conn.filter(|(_, child)| !child.as_deref().is_some_and(&keep)).cloned();
        for key in gone.collect::<Vec<_>>() {
            self.0.remove(&key);
        }
    }
}

impl Endpoint {
    /// An attempt to bring this up begins.
    pub(super) fn wanted(&mut self, now: Instant, conn: &str, child: Option<&str>) {
        let key = (conn.to_owned(), child.map(str::to_owned));
        self.troubles.0.entry(key).or_insert(Trouble { since: now, why: None });
    }

    /// This has ended, or an attempt to bring it up has. When it is up on another IKE_SA, that is no trouble.
    pub(crate) fn ended(&mut self, now: Instant, conn: &str, child: Option<&str>, why: &str) {
        let loaded = self
            .loaded
            .connections()
            .get(conn)
            .is_some_and(|c| child.is_none_or(|name| c.children.iter().any(|k| k.name == name)));
        if loaded && !self.stands(conn, child) {
            self.wanted(now, conn, child);
            let key = (conn.to_owned(), child.map(str::to_owned));
            if let Some(trouble) = self.troubles.0.get_mut(&key) {
                trouble.why = Some(why.to_owned());
            }
        }
    }

    /// Every tunnel that should be up and is not, by connection and child.
    pub fn down(&self, now: Instant) -> Vec<Down> {
        self.troubles.0.iter().filter_map(|((conn, child), t)| self.one_down(now, conn, child, t)).collect()
    }

    /// True when this is up on an IKE_SA other than the one that is worked on.
    fn stands(&self, conn: &str, child: Option<&str>) -> bool {
        let up = |sa: &IkeSa| match child {
            Some(name) => sa.children.values().any(|c| c.announced && c.config.name == name),
            None => sa.is_up(),
        };
        self.sas_of(conn).any(up)
    }

    /// The IKE_SA that brings this up, or is about to.
    fn attempt_at(&self, conn: &str, child: Option<&str>) -> Option<&IkeSa> {
        let wants = |sa: &IkeSa| child.is_none_or(|name| names_in_work(sa).any(|n| n == name));
        self.sas_of(conn).filter(|sa| sa.initiator && !is_going(sa)).find(|sa| wants(sa))
    }

    /// Attempts to come for this.
    fn retries_for(&self, conn: &str, child: &Option<String>) -> impl Iterator<Item = u64> {
        self.retries.of(conn).filter(|(_, r)| r.children.contains(child)).map(|(id, _)| id)
    }

    /// Somebody has closed this here. It is down all the same while it is made anew, as after a change of the configuration.
    pub(super) fn unwanted(&mut self, conn: &str, child: &Option<String>) {
        // Asked first: a connection may have any number of IKE_SAs to look through, and all of them may end at once.
        if self.troubles.has(conn, child) && !self.is_on_its_way(conn, child) {
            self.troubles.remove(conn, child.as_deref().unwrap_or_default());
        }
    }

    /// True when something is being done by itself to bring this up, on another IKE_SA than the one that is worked on.
    fn is_on_its_way(&self, conn: &str, child: &Option<String>) -> bool {
        self.attempt_at(conn, child.as_deref()).is_some()
            || self.retries_for(conn, child).next().is_some()
            || self.pace.waits(conn, child.as_deref())
    }

    fn sas_of(&self, conn: &str) -> impl Iterator<Item = &IkeSa> {
        self.by_conn.get(conn).into_iter().flatten().filter_map(|id| self.sas.get(id).map(|sa| &**sa))
    }

    fn one_down(&self, now: Instant, conn: &str, child: &Option<String>, t: &Trouble) -> Option<Down> {
        if self.stands(conn, child.as_deref()) {
            return None;
        }
        let attempt = self.attempt_at(conn, child.as_deref());
        let retry = self.retries_for(conn, child).filter_map(|id| self.timers.get(Timer::Retry(id))).min();
        let queued = self.pace.waits(conn, child.as_deref());
        let trapped = child.as_ref().is_some_and(|c| self.spd.has_trap(conn, c));
        let next = match (attempt, retry) {
            (Some(_), _) => Next::Trying,
            (None, Some(at)) => Next::In(at.saturating_duration_since(now)),
            (None, None) if queued => Next::Trying,
            (None, None) if trapped => Next::Packet,
            (None, None) => Next::Nothing,
        };
        let why = match (&t.why, attempt) {
            (Some(why), _) => why.clone(),
            (None, Some(sa)) => progress(sa),
            (None, None) => "waits for its turn".to_owned(),
        };
        Some(Down {
            conn: conn.to_owned(),
            child: child.clone(),
            since: now.saturating_duration_since(t.since),
            why,
            next,
        })
    }

    /// What stands between now and this child (or with `None`, the IKE_SA) of one of these connections being up: how far the
    /// attempt under way is, or else why the last one ended. `None` when nothing is known.
    pub fn obstacle(
        &self,
        mut conns: impl Iterator<Item = impl AsRef<str>>,
        child: Option<&str>,
    ) -> Option<String> {
        conns.find_map(|conn| {
            let conn = conn.as_ref();
            let under_way = self
                .sas_of(conn)
                .filter(|sa| sa.initiator && !is_going(sa) && (sa.active.is_some() || sa.wait.is_some()));
            let last = || {
                let key = (conn.to_owned(), child.map(str::to_owned));
                self.troubles.0.get(&key).and_then(|t| t.why.clone())
            };
            under_way.map(progress).next().or_else(last)
        })
    }
}

/// Nothing new comes up on this one.
fn is_going(sa: &IkeSa) -> bool {
    matches!(sa.state, IkeState::Rekeyed | IkeState::Deleting)
}

/// How far the work of an IKE_SA of ours is: what it waits for.
fn progress(sa: &IkeSa) -> String {
    match (&sa.active, sa.wait.as_ref().map(|w| &w.exchange)) {
        (Some(active), _) if active.tries == 0 => {
            format!("no answer yet from {} to {}", sa.remote, active.exchange)
        }
        (Some(active), _) => format!(
            "peer not responding: no answer from {} to {}, sent {} times",
            sa.remote,
            active.exchange,
            active.tries + 1
        ),
        (None, Some(exchange)) => exchange.waits_for(),
        (None, None) => "waiting to begin".to_owned(),
    }
}
