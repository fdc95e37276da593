//! Levels that are raised for one connection or one peer, for a while. While nothing is raised, a
//! line below the level of the log costs the look at one number.

use std::net::IpAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ironswan_ike::event::Level;

/// Limits how many levels are raised at one time.
const MAX_RAISED: usize = 32;

/// A raised level, and for which lines. One of connection and peer is named at least; with both, a
/// line needs both.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Raise {
    /// Name of the connection.
    pub(crate) conn: Option<String>,
    /// Address of the peer.
    pub(crate) peer: Option<IpAddr>,
    /// The level.
    pub(crate) level: Level,
}

/// All raised levels.
pub(crate) struct Raised {
    /// How many there are, for the first look.
    count: AtomicUsize,
    list: Mutex<Vec<(u64, Raise)>>,
}

/// Lowers the level when it is dropped.
pub(crate) struct Guard {
    raised: &'static Raised,
    number: u64,
}

impl Raised {
    /// Nothing is raised.
    pub(crate) const fn new() -> Self {
        Self { count: AtomicUsize::new(0), list: Mutex::new(Vec::new()) }
    }

    fn list(&self) -> MutexGuard<'_, Vec<(u64, Raise)>> {
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Raises a level until the guard is dropped. `None`: too many are raised already.
    pub(crate) fn raise(&'static self, raise: Raise) -> Option<Guard> {
        let mut list = self.list();
        if list.len() >= MAX_RAISED {
            return None;
        }
        let number = list.iter().map(|(number, _)| number + 1).max().unwrap_or(0);
        list.push((number, raise));
        self.count.store(list.len(), Ordering::Relaxed);
        Some(Guard { raised: self, number })
    }

    /// True when a line of this level is raised. `peer` is asked only when that depends on it.
    pub(crate) fn covers(
        &self,
        level: Level,
        conn: Option<&str>,
        peer: &dyn Fn() -> Option<IpAddr>,
        text: &str,
    ) -> bool {
        if self.count.load(Ordering::Relaxed) == 0 {
            return false;
        }
        self.list().iter().any(|(_, raise)| {
            level <= raise.level
                && raise.conn.as_deref().is_none_or(|name| conn == Some(name))
                && raise.peer.is_none_or(|addr| peer() == Some(addr) || mentions(text, addr))
        })
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let mut list = self.raised.list();
        list.retain(|(number, _)| *number != self.number);
        self.raised.count.store(list.len(), Ordering::Relaxed);
    }
}

/// True when a text names this address, alone or with a port: the lines about strangers belong to
/// no IKE_SA.
pub(crate) fn mentions(text: &str, addr: IpAddr) -> bool {
    let word = addr.to_string();
    // Characters that would make it another address.
    let part = |c: char| match addr {
        IpAddr::V4(_) => c.is_ascii_alphanumeric() || c == '.',
        IpAddr::V6(_) => c.is_ascii_alphanumeric() || c == ':' || c == '.',
    };
    text.match_indices(&word).any(|(at, _)| {
        let before = text[..at].chars().next_back();
        let mut after = text[at + word.len()..].chars();
        let next = after.next();
        // The end of a sentence.
        let ends = matches!(next, Some('.' | ':')) && !after.next().is_some_and(part);
        // 192.0.2.1:500
        let port = addr.is_ipv4() && next == Some(':');
        !before.is_some_and(part) && (ends || port || !next.is_some_and(part))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_found_as_a_whole_only() {
        let a: IpAddr = "192.0.2.1".parse().unwrap();
        for text in [
            "from 192.0.2.1[500] to 192.0.2.2",
            "192.0.2.1",
            "to 192.0.2.1:4500,",
            "(192.0.2.1)",
            "no route to 192.0.2.1.",
            "192.0.2.11 and 192.0.2.1",
        ] {
            assert!(mentions(text, a), "{text}");
        }
        for text in ["192.0.2.11", "1192.0.2.1", "192.0.2.1.5", "10.192.0.2.1", "", "x192.0.2.1"] {
            assert!(!mentions(text, a), "{text}");
        }
        let b: IpAddr = "2001:db8::1".parse().unwrap();
        assert!(mentions("to [2001:db8::1]:500", b) && mentions("peer 2001:db8::1: silent", b));
        assert!(
            !mentions("2001:db8::12", b) && !mentions("2001:db8::1:2", b) && !mentions("a2001:db8::1", b)
        );
    }

    #[test]
    fn a_level_is_raised_for_what_was_named_and_ends_with_its_guard() {
        static RAISED: Raised = Raised::new();
        let unasked = || -> Option<IpAddr> { panic!("asked for the peer") };
        assert!(!RAISED.covers(Level::Debug, Some("net"), &unasked, "x"));
        let net = Raise { conn: Some("net".into()), peer: None, level: Level::Debug };
        let guard = RAISED.raise(net.clone()).unwrap();
        assert!(RAISED.covers(Level::Debug, Some("net"), &unasked, "x"));
        assert!(!RAISED.covers(Level::Debug, Some("other"), &unasked, "x"));
        assert!(!RAISED.covers(Level::Debug, None, &unasked, "x"));
        let (at, elsewhere) = ("192.0.2.1".parse().ok(), "192.0.2.2".parse().ok());
        let peer = RAISED.raise(Raise { conn: None, peer: at, level: Level::Info }).unwrap();
        drop(guard);
        assert!(!RAISED.covers(Level::Debug, Some("net"), &unasked, "x"));
        assert!(RAISED.covers(Level::Info, Some("net"), &|| at, "x"));
        assert!(!RAISED.covers(Level::Info, Some("net"), &|| elsewhere, "x"));
        assert!(RAISED.covers(Level::Info, None, &|| None, "from 192.0.2.1[500]"));
        drop(peer);
        assert_eq!(RAISED.count.load(Ordering::Relaxed), 0);
        let all: Vec<_> = (0..MAX_RAISED).map(|_| RAISED.raise(net.clone()).unwrap()).collect();
        assert!(RAISED.raise(net.clone()).is_none());
        drop(all);
        assert!(RAISED.raise(net).is_some());
    }
}
