//! Path MTUs that are smaller than the links', by the peer's address.
//!
//! The kernel keeps such MTUs too, but it believes every ICMP error that quotes a packet with our
//! addresses. Our sockets ignore what it keeps (`IP_PMTUDISC_PROBE`), and with that the `mtu` of a
//! route. Both stand here instead, and only here is known who said it: the routing table, an ICMP
//! error that the gateway found worthy of belief, or a measurement of the gateway's own.
//! [`crate::send::Sender`] reads what others write.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use crate::udp::hold;

/// The MTUs known for one path, in bytes of an IP packet.
#[derive(Clone, Copy, Debug, Default)]
struct PathLimits {
    /// The `mtu` of the route.
    route: Option<u32>,
    /// The MTU that an ICMP error has told, and until when we believe it.
    learned: Option<(u32, Instant)>,
    /// The MTU that a measurement has found.
    measured: Option<u32>,
}

impl PathLimits {
    fn mtu(&self) -> Option<u32> {
        let learned = self.learned.map(|(mtu, _)| mtu);
        self.route.into_iter().chain(learned).chain(self.measured).min()
    }
}

/// Path MTUs by peer. Threads that learn MTUs and threads that send share it.
#[derive(Debug, Default)]
pub struct KnownPaths {
    paths: Mutex<HashMap<IpAddr, PathLimits>>,
    /// Number of `paths`. When it is 0, a look-up does not take the lock.
    count: AtomicUsize,
}

impl KnownPaths {
    /// The largest IP packet that the path to `remote` is known to take; `None` when nothing is
    /// known.
    pub fn mtu(&self, remote: IpAddr) -> Option<u32> {
        if self.count.load(Relaxed) == 0 {
            return None;
        }
        hold(&self.paths).get(&remote).and_then(PathLimits::mtu)
    }

    /// The MTU that an ICMP error has told about the path to `remote`.
    pub fn icmp_mtu(&self, remote: IpAddr) -> Option<u32> {
        Some(hold(&self.paths).get(&remote)?.learned?.0)
    }

    /// Notes the MTU of an ICMP error, which is believed until `until`. Returns true when the path
    /// MTU became smaller. An MTU larger than that of an earlier error is ignored: a path counts as
    /// wider only when the earlier one has expired.
    pub fn learn_icmp_mtu(&self, remote: IpAddr, mtu: u32, until: Instant) -> bool {
        self.change(remote, |known| {
            let before = known.mtu();
            match known.learned {
                Some((least, _)) if least < mtu => return false,
                _ => known.learned = Some((mtu, until)),
            }
            before.is_none_or(|before| mtu < before)
        })
    }

    /// Notes the `mtu` of the route to a peer; `None` when the route has none, so that the link
    /// decides.
    pub fn set_route_mtu(&self, remote: IpAddr, mtu: Option<u32>) {
        self.change(remote, |known| known.route = mtu);
    }

    /// The MTU that a measurement of the path to `remote` has found.
    pub fn measured_mtu(&self, remote: IpAddr) -> Option<u32> {
        hold(&self.paths).get(&remote)?.measured
    }

    /// Notes the MTU that a measurement has found; `None` when the path is as wide as the rest
    /// says. Returns true when the measurement before had found another one.
    pub fn set_measured_mtu(&self, remote: IpAddr, mtu: Option<u32>) -> bool {
        self.change(remote, |known| std::mem::replace(&mut known.measured, mtu) != mtu)
    }

    /// Forgets MTUs of ICMP errors whose time is over. Returns their peers.
    pub fn forget_expired(&self, now: Instant) -> Vec<IpAddr> {
        let mut paths = hold(&self.paths);
        let mut forgotten = Vec::new();
        paths.retain(|remote, known| {
            if known.learned.is_some_and(|(_, until)| until <= now) {
                known.learned = None;
                forgotten.push(*remote);
            }
            known.mtu().is_some()
        });
        self.update_count(&paths);
        forgotten
    }

    fn change<T>(&self, remote: IpAddr, f: impl FnOnce(&mut PathLimits) -> T) -> T {
        let mut paths = hold(&self.paths);
        let known = paths.entry(remote).or_default();
        let result = f(known);
        if known.mtu().is_none() {
            paths.remove(&remote);
        }
        self.update_count(&paths);
        result
    }

    fn update_count(&self, paths: &HashMap<IpAddr, PathLimits>) {
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
        assert!(paths.learn_icmp_mtu(peer, 1400, at(10)));
        assert!(!paths.learn_icmp_mtu(peer, 1400, at(20)), "the same, for longer");
        assert!(!paths.learn_icmp_mtu(peer, 1450, at(30)), "wider is not believed");
        assert_eq!(paths.icmp_mtu(peer), Some(1400));
        paths.set_route_mtu(peer, Some(1300));
        assert!(!paths.learn_icmp_mtu(peer, 1350, at(20)), "the route is as narrow already");
        assert_eq!((paths.mtu(peer), paths.mtu("192.0.2.3".parse().unwrap())), (Some(1300), None));
        paths.set_route_mtu(peer, None);
        assert_eq!(paths.mtu(peer), Some(1350));
        assert!(paths.forget_expired(at(19)).is_empty());
        assert_eq!(paths.mtu(peer), Some(1350));
        assert_eq!(paths.forget_expired(at(20)), [peer]);
        assert_eq!((paths.mtu(peer), paths.count.load(Relaxed)), (None, 0));
        paths.set_route_mtu(peer, None);
        assert_eq!(paths.count.load(Relaxed), 0, "what says nothing is not kept");
    }

    #[test]
    fn a_measurement_holds_until_the_next_one_whatever_becomes_of_errors() {
        let (paths, now) = (KnownPaths::default(), clock::now());
        let peer: IpAddr = "192.0.2.2".parse().unwrap();
        assert!(!paths.set_measured_mtu(peer, None));
        assert_eq!(paths.count.load(Relaxed), 0);
        assert!(paths.set_measured_mtu(peer, Some(1300)));
        assert!(!paths.set_measured_mtu(peer, Some(1300)), "the same");
        assert!(!paths.learn_icmp_mtu(peer, 1400, now), "it is as narrow already");
        assert_eq!((paths.mtu(peer), paths.icmp_mtu(peer)), (Some(1300), Some(1400)));
        assert_eq!(paths.forget_expired(now), [peer]);
        assert_eq!((paths.mtu(peer), paths.measured_mtu(peer)), (Some(1300), Some(1300)));
        assert!(paths.set_measured_mtu(peer, None));
        assert_eq!((paths.mtu(peer), paths.count.load(Relaxed)), (None, 0));
    }
}
