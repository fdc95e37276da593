//! The history of each tunnel: since when it is up, or down and why, what was before, and when the
//! next try is.
//!
//! There is at most one entry for each child of a loaded connection, and one for the connection
//! itself, so the configuration bounds the table. Nothing that a stranger sends makes an entry.
//!
//! * A child is *down* from when an attempt of ours begins, and from when the child ends without
//!   having been closed here, whoever had initiated it: a child that road warriors bring up is
//!   listed after the last of them has closed it, until one comes again. It is no longer when the
//!   child is up, when somebody closes it here, and when the connection is unloaded.
//! * An IKE_SA that was asked for without child (`child` is `None`) is down while it is being
//!   brought up, or when that has failed. Once it has been up, its end makes no trouble: it carries
//!   nothing.
//! * What was before is one time up and one time down, and of the reason why each ended or lasted
//!   its entry alone, so that a tunnel that is well takes little.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use crate::Diagnosis;
use crate::diagnosis::Entry;

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
    /// The time that it was up before.
    pub before: Option<Before>,
}

impl Down {
    /// The reason in words, without a full stop.
    pub fn reason(&self) -> String {
        let progress = || self.progress.clone().unwrap_or_else(|| "waits for its turn".to_owned());
        self.why.as_ref().map_or_else(progress, Diagnosis::sentence)
    }
}

/// A tunnel that is up.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Up {
    /// Time since it is up, on whatever SAs.
    pub since: Duration,
    /// The time that it was down before.
    pub before: Option<Before>,
}

/// A time up or down that is over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Before {
    /// How long it lasted.
    pub lasted: Duration,
    /// Time since it ended.
    pub ended: Duration,
    /// Why the tunnel was down, or why the time up ended. `None`: its first attempt came up, or it
    /// was closed here.
    pub why: Option<Entry>,
}

/// The next try of a tunnel that is down.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// An attempt is under way.
    Trying,
    /// The next attempt begins after this time.
    In {
        /// The time.
        pause: Duration,
        /// Number of the attempt, from 1. Each of the peer's addresses counts.
        number: u32,
    },
    /// The next attempt begins with the next packet: the policy is installed as a trap.
    Packet,
    /// Nothing: the tunnel waits for the peer or for an operator.
    Nothing,
}

/// A time down that is not over.
pub(super) struct Trouble {
    pub since: Instant,
    /// Why the last attempt, or the SA itself, ended. `None` while the first attempt is under way.
    pub why: Option<Diagnosis>,
}

/// A time up or down that is over.
#[derive(Clone, Copy)]
struct Span {
    since: Instant,
    until: Instant,
    why: Option<Entry>,
}

impl Span {
    fn before(self, now: Instant) -> Before {
        let Self { since, until, why } = self;
        let lasted = until.saturating_duration_since(since);
        Before { lasted, ended: now.saturating_duration_since(until), why }
    }
}

/// One tunnel.
#[derive(Default)]
struct Tunnel {
    /// Number of SAs on which it stands.
    sas: usize,
    /// When it came up, while it stands.
    up: Option<Instant>,
    trouble: Option<Trouble>,
    /// The last time up and the last time down that are over.
    was_up: Option<Span>,
    was_down: Option<Span>,
}

impl Tunnel {
    fn is_empty(&self) -> bool {
        self.sas == 0 && self.trouble.is_none() && self.was_up.is_none() && self.was_down.is_none()
    }
}

/// A connection and a child of it; `None`: the connection's IKE_SA.
type Key = (String, Option<String>);

fn key(conn: &str, child: Option<&str>) -> Key {
    (conn.to_owned(), child.map(str::to_owned))
}

/// The history of all tunnels.
#[derive(Default)]
pub(super) struct Troubles(BTreeMap<Key, Tunnel>);

impl Troubles {
    /// Number of tunnels that are down.
    pub(super) fn len(&self) -> usize {
        self.0.values().filter(|tunnel| tunnel.trouble.is_some()).count()
    }

    /// Number of tunnels that are up.
    pub(super) fn standing(&self) -> usize {
        self.0.values().filter(|tunnel| tunnel.sas > 0).count()
    }

    /// Number of tunnels that are neither, of which something is remembered.
    pub(super) fn remembered(&self) -> usize {
        self.0.values().filter(|tunnel| tunnel.sas == 0 && tunnel.trouble.is_none()).count()
    }

    /// Counts one SA more that the tunnel stands on: it is not down any more. A child that is up
    /// also ends the trouble of the connection's IKE_SA.
    pub(super) fn up(&mut self, now: Instant, conn: &str, child: Option<&str>) {
        let tunnel = self.0.entry(key(conn, child)).or_default();
        if tunnel.sas == 0 {
            tunnel.up = Some(now);
            if let Some(Trouble { since, why }) = tunnel.trouble.take() {
                let why = why.as_ref().map(Diagnosis::entry);
                tunnel.was_down = Some(Span { since, until: now, why });
            }
        }
        tunnel.sas += 1;
        self.remove(conn, child);
    }

    /// Counts one SA less that the tunnel stands on. `loaded`: the connection has such a child; of
    /// others nothing is remembered.
    pub(super) fn gone(&mut self, now: Instant, conn: &str, child: Option<&str>, loaded: bool) {
        let key = key(conn, child);
        let Some(tunnel) = self.0.get_mut(&key).filter(|tunnel| tunnel.sas > 0) else { return };
        tunnel.sas -= 1;
        if tunnel.sas > 0 {
            return;
        }
        tunnel.was_up = tunnel.up.take().map(|since| Span { since, until: now, why: None });
        if !loaded {
            self.0.remove(&key);
        }
    }

    /// True when the tunnel stands on some SA.
    #[cfg(test)]
    pub(super) fn stands(&self, conn: &str, child: Option<&str>) -> bool {
        self.0.get(&key(conn, child)).is_some_and(|tunnel| tunnel.sas > 0)
    }

    /// A time down begins, unless one is under way: an attempt to bring this up begins.
    pub(super) fn wanted(&mut self, now: Instant, conn: &str, child: Option<&str>) {
        let tunnel = self.0.entry(key(conn, child)).or_default();
        tunnel.trouble.get_or_insert(Trouble { since: now, why: None });
    }

    /// The tunnel, or an attempt to bring it up, has ended. No trouble while it stands on another
    /// SA.
    pub(super) fn ended(&mut self, now: Instant, conn: &str, child: Option<&str>, why: &Diagnosis) {
        let tunnel = self.0.entry(key(conn, child)).or_default();
        if tunnel.sas == 0 {
            // The first reason is why the tunnel ended; later ones are why it does not come back.
            if tunnel.trouble.is_none()
                && let Some(was_up) = tunnel.was_up.as_mut().filter(|span| span.until == now)
            {
                was_up.why = Some(why.entry());
            }
            tunnel.trouble.get_or_insert(Trouble { since: now, why: None }).why = Some(why.clone());
        }
    }

    /// The child is not down, nor the connection's IKE_SA: the child is up, or nobody wants it any
    /// more.
    pub(super) fn remove(&mut self, conn: &str, child: Option<&str>) {
        for key in [key(conn, child), key(conn, None)] {
            if let Some(tunnel) = self.0.get_mut(&key) {
                tunnel.trouble = None;
                if tunnel.is_empty() {
                    self.0.remove(&key);
                }
            }
        }
    }

    /// True when this child or the connection's IKE_SA is down.
    pub(super) fn has(&self, conn: &str, child: Option<&str>) -> bool {
        let down = |key: &Key| self.0.get(key).is_some_and(|tunnel| tunnel.trouble.is_some());
        down(&key(conn, child)) || down(&key(conn, None))
    }

    /// True when a child of this connection, or its IKE_SA, is down.
    pub(super) fn has_any(&self, conn: &str) -> bool {
        let of_conn = self.0.range(key(conn, None)..).take_while(|((of, _), _)| of == conn);
        of_conn.into_iter().any(|(_, tunnel)| tunnel.sas == 0 && tunnel.trouble.is_some())
    }

    /// The reason why this tunnel is down.
    pub(super) fn why(&self, conn: &str, child: Option<&str>) -> Option<&Diagnosis> {
        self.0.get(&key(conn, child))?.trouble.as_ref()?.why.as_ref()
    }

    /// Forgets this connection, or only those children of it that `keep` does not keep. SAs on
    /// which they stand go on being counted.
    pub(super) fn forget(&mut self, conn: &str, keep: impl Fn(&str) -> bool) {
        let of_conn = self.0.range(key(conn, None)..).map(|(key, _)| key);
        let of_conn = of_conn.take_while(|(of, _)| of == conn);
        let gone: Vec<Key> =
            of_conn.filter(|(_, child)| !child.as_deref().is_some_and(&keep)).cloned().collect();
        for key in gone {
            if let Some(tunnel) = self.0.get_mut(&key) {
                (tunnel.trouble, tunnel.was_up, tunnel.was_down) = (None, None, None);
                if tunnel.is_empty() {
                    self.0.remove(&key);
                }
            }
        }
    }

    /// The tunnels that are down and stand on no SA, by connection and child, each with the time
    /// that it was up before.
    pub(super) fn down(
        &self,
        now: Instant,
    ) -> impl Iterator<Item = (&str, &Option<String>, &Trouble, Option<Before>)> {
        self.0.iter().filter(|(_, tunnel)| tunnel.sas == 0).filter_map(move |((conn, child), tunnel)| {
            let before = tunnel.was_up.map(|span| span.before(now));
            Some((conn.as_str(), child, tunnel.trouble.as_ref()?, before))
        })
    }

    /// A tunnel that is up.
    pub(super) fn is_up(&self, now: Instant, conn: &str, child: Option<&str>) -> Option<Up> {
        let tunnel = self.0.get(&key(conn, child))?;
        let since = now.saturating_duration_since(tunnel.up?);
        Some(Up { since, before: tunnel.was_down.map(|span| span.before(now)) })
    }

    /// The time that a tunnel was up before; `None` when it was not, or is up.
    pub(super) fn was_up(&self, now: Instant, conn: &str, child: Option<&str>) -> Option<Before> {
        let tunnel = self.0.get(&key(conn, child)).filter(|tunnel| tunnel.sas == 0)?;
        tunnel.was_up.map(|span| span.before(now))
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test needs some instant to count from")]
mod tests {
    use super::*;
    use crate::diagnosis::{KeyExchange, Path};

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn a_tunnel_remembers_one_time_up_and_one_time_down() {
        let (mut t, at) = (Troubles::default(), Instant::now());
        let (conn, child) = ("c", Some("net"));
        let lost = Diagnosis::from(KeyExchange::PeerRestarted);
        let no_route = Diagnosis::from(Path::NoRoute { remote: [192, 0, 2, 1].into() });
        t.wanted(at, conn, child);
        t.up(at + S, conn, child);
        let up = t.is_up(at + 10 * S, conn, child).unwrap();
        assert_eq!(up.since, 9 * S);
        assert_eq!(up.before, Some(Before { lasted: S, ended: 9 * S, why: None }));
        // A rekeying is no end.
        t.up(at + 20 * S, conn, child);
        t.gone(at + 21 * S, conn, child, true);
        assert_eq!(t.is_up(at + 30 * S, conn, child).unwrap().since, 29 * S);
        t.gone(at + 31 * S, conn, child, true);
        t.ended(at + 31 * S, conn, child, &lost);
        t.ended(at + 41 * S, conn, child, &no_route);
        assert!(t.is_up(at + 41 * S, conn, child).is_none() && t.has_any(conn) && !t.has_any("d"));
        let (of, named, trouble, before) = t.down(at + 51 * S).next().unwrap();
        assert_eq!((of, named.as_deref(), trouble.since), (conn, child, at + 31 * S));
        assert_eq!(trouble.why, Some(no_route.clone()));
        assert_eq!(before, Some(Before { lasted: 30 * S, ended: 20 * S, why: Some(lost.entry()) }));
        t.up(at + 61 * S, conn, child);
        let before = t.is_up(at + 61 * S, conn, child).unwrap().before.unwrap();
        assert_eq!((before.lasted, before.why), (30 * S, Some(no_route.entry())));
        assert_eq!((t.len(), t.standing(), t.remembered()), (0, 1, 0));
    }

    #[test]
    fn nothing_is_remembered_of_what_is_not_loaded() {
        let (mut t, at) = (Troubles::default(), Instant::now());
        t.up(at, "c", Some("net"));
        t.forget("c", |_| false);
        assert!(t.stands("c", Some("net")));
        t.gone(at + S, "c", Some("net"), false);
        t.gone(at + S, "c", Some("net"), false);
        t.wanted(at, "c", Some("net"));
        t.forget("c", |_| false);
        assert!(t.0.is_empty());
        // A tunnel that is closed here is not down, and is remembered while it is loaded.
        t.up(at, "c", Some("net"));
        t.gone(at + S, "c", Some("net"), true);
        assert_eq!((t.len(), t.standing(), t.remembered()), (0, 0, 1));
        assert_eq!(
            t.was_up(at + 3 * S, "c", Some("net")),
            Some(Before { lasted: S, ended: 2 * S, why: None })
        );
        // An attempt that is refused later is not why it has ended.
        t.ended(at + 2 * S, "c", Some("net"), &KeyExchange::PeerRestarted.into());
        assert_eq!(t.down(at + 3 * S).next().and_then(|(_, _, _, before)| before?.why), None);
        t.forget("c", |_| false);
        assert!(t.0.is_empty());
    }
}
