//! Limits how many automatic attempts are under way at a time. After a reboot thousands of
//! connections would begin at once, their requests would overrun every buffer between us and the
//! peers, and most would then wait for seconds to be sent again.
//!
//! ```text
//! start_action, retries ─▶ waiting ─▶ under way ─▶ established, or failed
//!                                         └───────▶ no longer counted after START_COUNTED
//! ```
//! An attempt is counted for that time at most, so that a dead peer keeps nobody waiting for long.
//! Commands and traffic do not wait.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use super::order::{AttemptId, Start};
use crate::limits::{START_COUNTED, STARTS_AT_ONCE};

/// Attempts that wait for their turn, and those that count as under way.
#[derive(Default)]
pub(super) struct Pace {
    /// In the order in which they came.
    waiting: BTreeMap<u64, Start>,
    /// Keys of `waiting`, by the connection's name; no entry is empty.
    by_conn: BTreeMap<String, BTreeSet<u64>>,
    last: u64,
    /// When each attempt under way began.
    under_way: BTreeMap<AttemptId, Instant>,
    /// The same, the oldest first.
    oldest: BTreeSet<(Instant, AttemptId)>,
}

impl Pace {
    /// True for an attempt that has to wait for its turn.
    pub(super) fn concerns(start: &Start) -> bool {
        start.automatic && start.ticket.is_none() && start.packet.is_none() && start.takes_over.is_none()
    }

    /// Adds an attempt to those that wait.
    pub(super) fn push(&mut self, start: Start) {
        self.last += 1;
        self.by_conn.entry(start.conn.clone()).or_default().insert(self.last);
        self.waiting.insert(self.last, start);
    }

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

    /// True when this child (with `None`, the IKE_SA) of a connection waits for its turn.
    pub(super) fn waits(&self, conn: &str, child: &Option<String>) -> bool {
        self.of(conn).any(|(_, s)| s.children.contains(child))
    }

    /// An attempt has begun.
    pub(super) fn begun(&mut self, now: Instant, id: AttemptId) {
        self.over(id);
        self.under_way.insert(id, now);
        self.oldest.insert((now, id));
    }

    /// An attempt has come up, or ended.
    pub(super) fn over(&mut self, id: AttemptId) {
        if let Some(since) = self.under_way.remove(&id) {
            self.oldest.remove(&(since, id));
        }
    }

    /// Takes out all waiting attempts of a connection.
    pub(super) fn forget(&mut self, conn: &str) -> Vec<Start> {
        let numbers = self.by_conn.remove(conn).unwrap_or_default();
        numbers.into_iter().filter_map(|n| self.waiting.remove(&n)).collect()
    }

    /// Takes out the attempts that wait because this connection has been loaded, except those of
    /// children of which `starts` says that loading still starts them.
    pub(super) fn forget_loaded(&mut self, conn: &str, starts: impl Fn(&str) -> bool) -> Vec<Start> {
        let stays = |s: &Start| !s.at_load || s.children.iter().flatten().any(|child| starts(child));
        let gone: Vec<u64> = self.of(conn).filter(|(_, s)| !stays(s)).map(|(number, _)| number).collect();
        gone.into_iter().filter_map(|number| self.remove(number)).collect()
    }

    /// Takes out every waiting attempt.
    pub(super) fn clear(&mut self) -> Vec<Start> {
        self.by_conn.clear();
        std::mem::take(&mut self.waiting).into_values().collect()
    }

    /// The next attempt, if one may begin now.
    pub(super) fn next(&mut self, now: Instant) -> Option<Start> {
        while let Some(&(since, id)) = self.oldest.first()
            && now.saturating_duration_since(since) >= START_COUNTED
        {
            self.over(id);
        }
        let first = self.waiting.first_key_value().map(|(number, _)| *number)?;
        if self.under_way.len() < STARTS_AT_ONCE { self.remove(first) } else { None }
    }

    /// When the next attempt may begin at the latest.
    pub(super) fn due(&self) -> Option<Instant> {
        let (since, _) = self.oldest.first()?;
        (!self.waiting.is_empty()).then(|| *since + START_COUNTED)
    }

    /// Number of attempts that wait.
    pub(super) fn len(&self) -> usize {
        self.waiting.len() + self.by_conn.len()
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test needs some instant to count from")]
mod tests {
    use super::*;

    fn start(conn: &str, child: Option<&str>, at_load: bool) -> Start {
        let child = child.map(str::to_owned);
        Start { at_load, ..Start::automatic(AttemptId(0), conn, vec![child]) }
    }

    #[test]
    fn so_many_begin_at_once_and_the_next_when_one_has_ended_or_taken_too_long() {
        let t0 = Instant::now();
        let mut pace = Pace::default();
        for n in 0..3 * STARTS_AT_ONCE {
            pace.push(start(&n.to_string(), None, false));
        }
        let mut id = 0;
        let mut run = |pace: &mut Pace, at| {
            let mut names = Vec::new();
            while let Some(start) = pace.next(at) {
                id += 1;
                pace.begun(at, AttemptId(id));
                names.push(start.conn);
            }
            names
        };
        let names = |from: usize, to: usize| (from..to).map(|n| n.to_string()).collect::<Vec<_>>();
        assert_eq!(run(&mut pace, t0), names(0, STARTS_AT_ONCE));
        assert_eq!(pace.due(), Some(t0 + START_COUNTED));
        let later = t0 + START_COUNTED / 2;
        pace.over(AttemptId(2));
        pace.over(AttemptId(7));
        pace.over(AttemptId(7));
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
        assert_eq!(pace.len(), 0);
    }

    #[test]
    fn each_connection_has_what_waits_of_it_and_no_more() {
        let mut pace = Pace::default();
        for (conn, child, at_load) in
            [("a", "x", true), ("b", "x", true), ("a", "y", true), ("a", "z", false)]
        {
            pace.push(start(conn, Some(child), at_load));
        }
        let waits = |pace: &Pace, conn, child: Option<&str>| pace.waits(conn, &child.map(str::to_owned));
        assert!(waits(&pace, "a", Some("y")) && waits(&pace, "b", Some("x")));
        assert!(!waits(&pace, "b", Some("y")) && !waits(&pace, "a", None) && !waits(&pace, "c", Some("x")));
        pace.forget_loaded("a", |child| child == "x");
        let left = |pace: &Pace| {
            let name = |s: &Start| format!("{}.{}", s.conn, s.children[0].as_deref().unwrap());
            pace.waiting.values().map(name).collect::<Vec<_>>()
        };
        assert_eq!(left(&pace), ["a.x", "b.x", "a.z"]);
        pace.forget("a");
        assert_eq!(left(&pace), ["b.x"]);
        assert_eq!(pace.next(Instant::now()).map(|s| s.conn), Some("b".to_owned()));
        assert_eq!(pace.len(), 0);
    }
}
