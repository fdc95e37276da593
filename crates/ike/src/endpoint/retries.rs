//! Attempts to come: another one after a failure, or a child that found its peer busy. When thousands of peers are down, so many
//! wait here: what concerns one connection looks only at its own.

use std::collections::{BTreeMap, BTreeSet};

use super::close::Retry;

/// The table.
#[derive(Default)]
pub(crate) struct Retries {
    by_id: BTreeMap<u64, Retry>,
    /// By the connection's name; no entry is empty.
    by_conn: BTreeMap<String, BTreeSet<u64>>,
}

impl Retries {
    /// One more. Its timer is the caller's.
    pub(super) fn insert(&mut self, id: u64, retry: Retry) {
        self.by_conn.entry(retry.conn.clone()).or_default().insert(id);
        self.by_id.insert(id, retry);
    }

    /// Takes one out.
    pub(super) fn remove(&mut self, id: u64) -> Option<Retry> {
        let retry = self.by_id.remove(&id)?;
        if let Some(ids) = self.by_conn.get_mut(&retry.conn) {
            ids.remove(&id);
            if ids.is_empty() {
                self.by_conn.remove(&retry.conn);
            }
        }
        Some(retry)
    }

    /// What is to be changed of one. Its connection is not.
    pub(super) fn get_mut(&mut self, id: u64) -> Option<&mut Retry> {
        self.by_id.get_mut(&id)
    }

    /// Those of a connection, by id.
    pub(super) fn of(&self, conn: &str) -> impl Iterator<Item = (u64, &Retry)> {
        let ids = self.by_conn.get(conn).into_iter().flatten();
        ids.filter_map(|id| self.by_id.get(id).map(|retry| (*id, retry)))
    }

    /// All of them, by id.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Retry)> {
        self.by_id.iter().map(|(id, retry)| (*id, retry))
    }

    /// How much is remembered.
    pub(super) fn len(&self) -> usize {
        self.by_id.len() + self.by_conn.len()
    }
}
