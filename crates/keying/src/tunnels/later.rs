//! Attempts that wait for their time: another one after a failure, or a child that found its peer
//! busy. Thousands of peers may be down, so each connection finds its own attempts by an index.

use std::collections::{BTreeMap, BTreeSet};

use super::order::{AttemptId, Start};

/// An attempt that waits for its time.
#[derive(Debug)]
pub(super) struct Later {
    pub start: Start,
    /// The attempt before had no route: this one is made as soon as there may be one.
    pub no_route: bool,
}

/// The attempts that wait. Their timers are [`super::Due::Attempt`].
#[derive(Default)]
pub(super) struct Laters {
    by_id: BTreeMap<AttemptId, Later>,
    /// By the connection's name; no entry is empty.
    by_conn: BTreeMap<String, BTreeSet<AttemptId>>,
}

impl Laters {
    pub(super) fn insert(&mut self, later: Later) {
        let (id, conn) = (later.start.id, later.start.conn.clone());
        self.by_conn.entry(conn).or_default().insert(id);
        self.by_id.insert(id, later);
    }

    pub(super) fn remove(&mut self, id: AttemptId) -> Option<Later> {
        let later = self.by_id.remove(&id)?;
        if let Some(ids) = self.by_conn.get_mut(&later.start.conn) {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_conn.remove(&later.start.conn);
            }
        }
        Some(later)
    }

    /// One attempt, to change it. Its connection and id stay.
    pub(super) fn get_mut(&mut self, id: AttemptId) -> Option<&mut Later> {
        self.by_id.get_mut(&id)
    }

    /// The attempts of a connection, by id.
    pub(super) fn of(&self, conn: &str) -> impl Iterator<Item = &Later> {
        let ids = self.by_conn.get(conn).into_iter().flatten();
        ids.filter_map(|id| self.by_id.get(id))
    }

    /// All attempts, by id.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Later> {
        self.by_id.values()
    }

    /// Number of entries in both tables.
    pub(super) fn len(&self) -> usize {
        self.by_id.len() + self.by_conn.len()
    }
}
