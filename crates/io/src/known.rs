//! Path MTUs that are smaller than the links', by the peer's address.
//!
//! The kernel keeps such MTUs too, but it believes every ICMP error that quotes a packet with our
//! addresses. Our sockets ignore what it keeps (`IP_PMTUDISC_PROBE`), and with that the `mtu` of a
//! route. Both stand here instead, and only here is known who said it: the routing table, or an
//! ICMP error that the gateway found worthy of belief. [`crate::send::Sender`] reads what others
//! write.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use crate::udp::hold;

/// The MTUs known for one path, in bytes of IP packet.
#[derive(Clone, Copy, Debug, Default)]
struct Known {
    /// The `mtu` of the route.
    route: Option<u32>,
    /// The MTU that an ICMP error has told, and until when we believe it.
    learned: Option<(u32, Instant)>,
}

impl Known {
    fn least(&self) -> Option<u32> {
        let learned = self.learned.map(|(mtu, _)| mtu);
        self.route.into_iter().chain(learned).min()
    }
}

/// The paths that are known to be narrow. Shared by those who learn of them and those who send.
#[derive(Debug, Default)]
pub struct KnownPaths {
    paths: Mutex<HashMap<IpAddr, Known>>,
    /// How many there are: where there are none, nobody takes the lock.
    count: AtomicUsize,
}

impl KnownPaths {
    /// The largest IP packet that the path to `remote` is known to take; `None` when nothing is
    /// known.
    pub fn mtu(&self, remote: IpAddr) -> Option<u32> {
        if self.count.load(Relaxed) == 0 {
            return None;
        }
        hold(&self.paths).get(&remote).and_then(Known::least)
    }

    /// The MTU that an ICMP error has told about the path to `remote`.
    pub fn learned(&self, remote: IpAddr) -> Option<u32> {
        Some(hold(&self.paths).get(&remote)?.learned?.0)
    }

    /// An ICMP error says that the path takes `mtu` bytes, which holds until `until`. True if that
    /// is less than what was known. A larger one than another error's is ignored: a path is taken
    /// to be wider only when that is forgotten.
    pub fn learn(&self, remote: IpAddr, mtu: u32, until: Instant) -> bool {
        self.change(remote, |known| {
            let before = known.least();
            match known.learned {
                Some((least, _)) if least < mtu => return false,
                _ => known.learned = Some((mtu, until)),
            }
            before.is_none_or(|before| mtu < before)
        })
    }

    /// The routing table says that the path takes `mtu` bytes; `None`: it says nothing, so that the
    /// link decides.
    pub fn route(&self, remote: IpAddr, mtu: Option<u32>) {
        self.change(remote, |known| known.route = mtu);
    }

    /// Forgets what was learned and holds no longer. The peers of which something was.
    pub fn forget(&self, now: Instant) -> Vec<IpAddr> {
        let mut paths = hold(&self.paths);
        let mut forgotten = Vec::new();
        paths.retain(|remote, known| {
            if known.learned.is_some_and(|(_, until)| until <= now) {
                known.learned = None;
                forgotten.push(*remote);
            }
            known.least().is_some()
        });
        self.counted(&paths);
        forgotten
    }

    fn change<T>(&self, remote: IpAddr, f: impl FnOnce(&mut Known) -> T) -> T {
        let mut paths = hold(&self.paths);
        let known = paths.entry(remote).or_default();
        let result = f(known);
        if known.least().is_none() {
            paths.remove(&remote);
        }
        self.counted(&paths);
        result
    }

    fn counted(&self, paths: &HashMap<IpAddr, Known>) {
        self.count.store(paths.len(), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock;

    #[test]
    fn the_least_of_route_and_error_counts_and_errors_are_forgotten() {
        let (paths, now) = (KnownPaths::default(), clock::now());
        let peer: IpAddr = "192.0.2.2".parse().unwrap();
        let at = |s| now + Duration::from_secs(s);
        assert_eq!(paths.mtu(peer), None);
        assert!(paths.learn(peer, 1400, at(10)));
        assert!(!paths.learn(peer, 1400, at(20)), "the same, for longer");
        assert!(!paths.learn(peer, 1450, at(30)), "wider is not believed");
        assert_eq!(paths.learned(peer), Some(1400));
        paths.route(peer, Some(1300));
        assert!(!paths.learn(peer, 1350, at(20)), "the route is as narrow already");
        assert_eq!((paths.mtu(peer), paths.mtu("192.0.2.3".parse().unwrap())), (Some(1300), None));
        paths.route(peer, None);
        assert_eq!(paths.mtu(peer), Some(1350));
        assert!(paths.forget(at(19)).is_empty());
        assert_eq!(paths.mtu(peer), Some(1350));
        assert_eq!(paths.forget(at(20)), [peer]);
        assert_eq!((paths.mtu(peer), paths.count.load(Relaxed)), (None, 0));
        paths.route(peer, None);
        assert_eq!(paths.count.load(Relaxed), 0, "what says nothing is not kept");
    }
}
