//! Starts that happen by themselves, so many at a time: after a reboot thousands of connections would begin at once, their
//! requests would overrun every buffer between us and the peers, and most would then wait for seconds to be sent again.
//!
//! ```text
//! start_action, retries ─▶ waiting ─▶ under way ─▶ established, or failed
//!                                         └───────▶ no longer counted after a while: a dead peer keeps nobody waiting for long
//! ```
//! Commands and traffic do not wait.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use super::Endpoint;
use super::initiate::Start;
use crate::event::IkeId;
use crate::timer::Timer;
use ironswan_keying::limits::{START_COUNTED, STARTS_AT_ONCE};

/// The table.
#[derive(Default)]
pub(crate) struct Pace {
    /// By the order in which they came.
    waiting: BTreeMap<u64, Start>,
    /// Their numbers, by the connection's name; no entry is empty.
    by_conn: BTreeMap<String, BTreeSet<u64>>,
    last: u64,
    /// Since when. In the order in which they began, as ids grow.
    under_way: BTreeMap<IkeId, Instant>,
}

impl Pace {
    /// True for those that wait for their turn.
    pub(crate) fn concerns(start: &Start) -> bool {
        start.automatic && start.ticket.is_none() && start.packet.is_none() && start.replaces.is_none()
    }

    /// One more that waits.
    pub(crate) fn push(&mut self, start: Start) {
        self.last += 1;
        self.by_conn.entry(start.conn.clone()).or_default().insert(self.last);
        self.waiting.insert(self.last, start);
    }

    /// Those of a connection.
    fn of(&self, conn: &str) -> impl Iterator<Item = (u64, &Start)> {
        let numbers = self.by_conn.get(conn).into_iter().flatten();
        numbers.filter_map(|n| self.waiting.get(n).map(|start| (*n, start)))
    }

    fn remove(&mut self, number: u64) -> Option<Start> {
        let start = self.waiting.remove(&number)?;
        if let Some(numbers) = self.by_conn.get_mut(&start.conn) {
            numbers.remove(&number);
            if numbers.is_empty() {
                self.by_conn.remove(&start.conn);
            }
        }
        Some(start)
    }

    /// True when this child (or with `None`, the IKE_SA) of a connection waits for its turn.
    pub(crate) fn waits(&self, conn: &str, child: Option<&str>) -> bool {
        self.of(conn).any(|(_, s)| s.child.as_deref() == child)
    }

    /// This one has begun.
    pub(crate) fn begun(&mut self, now: Instant, id: IkeId) {
        self.under_way.insert(id, now);
    }

    /// This one has come up, or ended.
    pub(crate) fn over(&mut self, id: IkeId) {
        self.under_way.remove(&id);
    }

    /// This connection waits no more.
    pub(crate) fn forget(&mut self, conn: &str) {
        for number in self.by_conn.remove(conn).into_iter().flatten() {
            self.waiting.remove(&number);
        }
    }

    /// What waits because this connection has been loaded waits no more, except children of which `starts` says that loading
    /// starts them still.
    pub(crate) fn forget_loaded(&mut self, conn: &str, starts: impl Fn(&str) -> bool) {
        let stays = |s: &Start| !s.at_load || s.child.as_deref().is_some_and(&starts);
        let gone: Vec<u64> = self.of(conn).filter(|(_, s)| !stays(s)).map(|(number, _)| number).collect();
        for number in gone {
            self.remove(number);
        }
    }

    /// Nobody waits any more.
    pub(crate) fn clear(&mut self) {
        self.waiting.clear();
        self.by_conn.clear();
    }

    /// Whose turn it is, if it is somebody's.
    fn next(&mut self, now: Instant) -> Option<Start> {
        while let Some((&id, &since)) = self.under_way.first_key_value()
            && now.saturating_duration_since(since) >= START_COUNTED
        {
            self.under_way.remove(&id);
        }
        let first = self.waiting.first_key_value().map(|(number, _)| *number)?;
        if self.under_way.len() < STARTS_AT_ONCE { self.remove(first) } else { None }
    }

    /// When somebody's turn comes at the latest.
    fn due(&self) -> Option<Instant> {
        let since = self.under_way.first_key_value().map(|(_, since)| *since)?;
        (!self.waiting.is_empty()).then(|| since + START_COUNTED)
    }
}

impl Endpoint {
    /// Begins the next of those that wait, if it has its turn. One whose connection or child has been unloaded meanwhile is
    /// passed over.
    pub(super) fn start_next(&mut self, now: Instant) -> bool {
        let Some(start) = self.pace.next(now) else {
            match self.pace.due() {
                Some(at) if self.timers.get(Timer::Pace) == Some(at) => {}
                Some(at) => self.timers.set(Timer::Pace, at),
                None => self.timers.cancel(Timer::Pace),
            }
            return false;
        };
        let known = self.loaded.connections().get(&start.conn).is_some_and(|conn| {
            start.child.as_ref().is_none_or(|name| conn.children.iter().any(|c| c.name == *name))
        });
        if known {
            self.start_or_say(now, start);
        }
        true
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test needs some instant to count from")]
mod tests {
    use super::*;

    #[test]
    fn so_many_begin_at_once_and_the_next_when_one_has_ended_or_taken_too_long() {
        let t0 = Instant::now();
        let mut pace = Pace::default();
        for n in 0..3 * STARTS_AT_ONCE {
            pace.push(Start::automatic(n.to_string(), None));
        }
        let mut id = 0;
        let mut run = |pace: &mut Pace, at| {
            let mut names = Vec::new();
            while let Some(start) = pace.next(at) {
                id += 1;
                pace.begun(at, IkeId(id));
                names.push(start.conn);
            }
            names
        };
        let names = |from: usize, to: usize| (from..to).map(|n| n.to_string()).collect::<Vec<_>>();
        assert_eq!(run(&mut pace, t0), names(0, STARTS_AT_ONCE));
        assert_eq!(pace.due(), Some(t0 + START_COUNTED));
        let later = t0 + START_COUNTED / 2;
        pace.over(IkeId(2));
        pace.over(IkeId(7));
        pace.over(IkeId(7));
        assert_eq!(run(&mut pace, later), names(STARTS_AT_ONCE, STARTS_AT_ONCE + 2));
        // Nobody answers: the first go out of the count, and those that began later stay in it.
        assert_eq!(run(&mut pace, t0 + START_COUNTED), names(STARTS_AT_ONCE + 2, 2 * STARTS_AT_ONCE));
        assert_eq!(pace.due(), Some(later + START_COUNTED));
        assert_eq!(run(&mut pace, later + START_COUNTED), names(2 * STARTS_AT_ONCE, 2 * STARTS_AT_ONCE + 2));
        pace.forget(&(2 * STARTS_AT_ONCE + 2).to_string());
        assert_eq!(run(&mut pace, later + 2 * START_COUNTED)[0], (2 * STARTS_AT_ONCE + 3).to_string());
        for n in 0..3 * STARTS_AT_ONCE {
            pace.forget(&n.to_string());
        }
        assert_eq!((pace.due(), run(&mut pace, t0 + 9 * START_COUNTED)), (None, vec![]));
        assert!(pace.by_conn.is_empty());
    }

    #[test]
    fn each_connection_has_what_waits_of_it_and_no_more() {
        let child = |conn: &str, child: &str, at_load| Start {
            at_load,
            ..Start::automatic(conn.to_owned(), Some(child.to_owned()))
        };
        let mut pace = Pace::default();
        for start in
            [child("a", "x", true), child("b", "x", true), child("a", "y", true), child("a", "z", false)]
        {
            pace.push(start);
        }
        assert!(pace.waits("a", Some("y")) && pace.waits("b", Some("x")));
        assert!(!pace.waits("b", Some("y")) && !pace.waits("a", None) && !pace.waits("c", Some("x")));
        pace.forget_loaded("a", |child| child == "x");
        let left = |pace: &Pace| {
            pace.waiting.values().map(|s| (s.conn.clone(), s.child.clone().unwrap())).collect::<Vec<_>>()
        };
        let pairs = |all: &[(&str, &str)]| {
            all.iter().map(|(conn, child)| (conn.to_string(), child.to_string())).collect::<Vec<_>>()
        };
        assert_eq!(left(&pace), pairs(&[("a", "x"), ("b", "x"), ("a", "z")]));
        pace.forget("a");
        assert_eq!(left(&pace), pairs(&[("b", "x")]));
        assert_eq!(pace.next(Instant::now()).map(|s| s.conn), Some("b".to_owned()));
        assert!(pace.by_conn.is_empty() && pace.waiting.is_empty());
    }
}
