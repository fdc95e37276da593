//! Tunnels that should be up and are not: since when, for what reason, and when the next try is.
//!
//! There is at most one entry for each child of a loaded connection, and one for the connection
//! itself, so the configuration bounds the table. Nothing that a stranger sends makes an entry.
//!
//! * A child has an entry from when an attempt of ours begins, and from when the child ends without
//!   having been closed here, whoever had initiated it: a child that road warriors bring up is
//!   listed after the last of them has closed it, until one comes again. The entry goes when the
//!   child is up, when somebody closes it here, and when the connection is unloaded.
//! * An IKE_SA that was asked for without child has an entry (`child` is `None`) while it is being
//!   brought up, or when that has failed. Once it has been up, its end makes none: it carries
//!   nothing.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::Diagnosis;

/// A tunnel that should be up and is not.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Down {
    /// The connection's name.
    pub conn: String,
    /// The child's name; `None`: only an IKE_SA was asked for.
    pub child: Option<String>,
    /// Time since it is down.
    pub since: Duration,
    /// Why the last attempt, or the SA itself, ended. `None` while the first attempt is under way.
    pub why: Option<Diagnosis>,
    /// How far the attempt under way is; without a full stop.
    pub progress: Option<String>,
    /// The next try.
    pub next: Next,
}

impl Down {
    /// The reason in words, without a full stop.
    pub fn reason(&self) -> String {
        let progress = || self.progress.clone().unwrap_or_else(|| "waits for its turn".to_owned());
        self.why.as_ref().map_or_else(progress, Diagnosis::sentence)
    }
}

/// The next try of a tunnel that is down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// An attempt is under way.
    Trying,
    /// The next attempt begins after this time.
    In(Duration),
    /// The next attempt begins with the next packet: the policy is installed as a trap.
    Packet,
    /// Nothing: the tunnel waits for the peer or for an operator.
    Nothing,
}

/// One entry.
pub(super) struct Trouble {
    pub since: Instant,
    /// Why the last attempt, or the SA itself, ended. `None` while the first attempt is under way.
    pub why: Option<Diagnosis>,
}

/// A connection and a child of it; `None`: the connection's IKE_SA.
type Key = (String, Option<String>);

fn key(conn: &str, child: Option<&str>) -> Key {
    (conn.to_owned(), child.map(str::to_owned))
}

/// Tunnels that are down, and the number of SAs on which each tunnel stands.
#[derive(Default)]
pub(super) struct Troubles {
    down: BTreeMap<Key, Trouble>,
    up: BTreeMap<Key, usize>,
}

impl Troubles {
    /// Number of tunnels that are down.
    pub(super) fn len(&self) -> usize {
        self.down.len()
    }

    /// Number of tunnels that are counted as up.
    pub(super) fn standing(&self) -> usize {
        self.up.len()
    }

    /// Counts one SA more that the tunnel stands on, and removes its entry. A child that is up also
    /// removes the entry of the connection's IKE_SA.
    pub(super) fn up(&mut self, conn: &str, child: Option<&str>) {
        *self.up.entry(key(conn, child)).or_default() += 1;
        self.remove(conn, child);
    }

    /// Counts one SA less that the tunnel stands on.
    pub(super) fn gone(&mut self, conn: &str, child: Option<&str>) {
        let key = key(conn, child);
        if let Some(count) = self.up.get_mut(&key) {
            *count -= 1;
            if *count == 0 {
                self.up.remove(&key);
            }
        }
    }

    /// True when the tunnel stands on some SA.
    pub(super) fn stands(&self, conn: &str, child: Option<&str>) -> bool {
        self.up.contains_key(&key(conn, child))
    }

    /// Adds an entry, unless there is one: an attempt to bring this up begins.
    pub(super) fn wanted(&mut self, now: Instant, conn: &str, child: Option<&str>) {
        self.down.entry(key(conn, child)).or_insert(Trouble { since: now, why: None });
    }

    /// The tunnel, or an attempt to bring it up, has ended. No trouble while it stands on another
    /// SA.
    pub(super) fn ended(&mut self, now: Instant, conn: &str, child: Option<&str>, why: &Diagnosis) {
        if !self.stands(conn, child) {
            let entry = self.down.entry(key(conn, child)).or_insert(Trouble { since: now, why: None });
            entry.why = Some(why.clone());
        }
    }

    /// Removes the entry of this child, and that of the connection's IKE_SA: the child is up, or
    /// nobody wants it any more.
    pub(super) fn remove(&mut self, conn: &str, child: Option<&str>) {
        self.down.remove(&key(conn, child));
        self.down.remove(&key(conn, None));
    }

    /// True when there is an entry for this child or for the connection's IKE_SA.
    pub(super) fn has(&self, conn: &str, child: Option<&str>) -> bool {
        self.down.contains_key(&key(conn, child)) || self.down.contains_key(&key(conn, None))
    }

    /// The reason in the entry of this tunnel.
    pub(super) fn why(&self, conn: &str, child: Option<&str>) -> Option<&Diagnosis> {
        self.down.get(&key(conn, child))?.why.as_ref()
    }

    /// Forgets this connection, or only those children of it that `keep` does not keep.
    pub(super) fn forget(&mut self, conn: &str, keep: impl Fn(&str) -> bool) {
        let of_conn = self.down.range(key(conn, None)..).map(|(key, _)| key);
        let of_conn = of_conn.take_while(|(of, _)| of == conn);
        let gone: Vec<Key> =
            of_conn.filter(|(_, child)| !child.as_deref().is_some_and(&keep)).cloned().collect();
        for key in gone {
            self.down.remove(&key);
        }
    }

    /// The entries of tunnels that stand on no SA, by connection and child.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &Option<String>, &Trouble)> {
        let down = self.down.iter().filter(|(key, _)| !self.up.contains_key(*key));
        down.map(|((conn, child), trouble)| (conn.as_str(), child, trouble))
    }
}
