//! The route to a peer as the kernel has it, for packets given to it with their header: it does not
//! cut those, and lets them leave from any address.
//!
//! Whether they may leave is asked by a UDP socket that is bound and connected and never sends; how
//! long they may be, of the routing table. That socket's `IP_MTU` counts what the kernel has
//! learned from ICMP errors, which anybody can forge ([`crate::known`]). The answers are kept for a
//! moment, so that a stream of packets costs few questions.

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::route::Netlink;
use crate::{clock, sockopt};

/// Time for which the kernel's answer is used again.
const CACHE_TIME: Duration = Duration::from_millis(100);
/// Limits the cached answers: one for each pair of outer addresses of SAs, of which a large gateway
/// has no more at a time.
const MAX_CACHED: usize = 1 << 16;
/// Any port but 0, to which nothing is connected.
const DISCARD: u16 = 9;

/// MTUs of routes, asked from the kernel and cached for [`CACHE_TIME`].
#[derive(Debug, Default)]
pub(crate) struct RouteMtus {
    known: MtuCache,
    netlink: Option<Netlink>,
}

/// MTUs by our address and the peer's, and the time at which each expires.
#[derive(Debug, Default)]
struct MtuCache {
    by_ends: HashMap<(IpAddr, IpAddr), (usize, Instant)>,
    /// Time of the next search for expired ones.
    sweep: Option<Instant>,
}

impl MtuCache {
    fn get(&self, ends: (IpAddr, IpAddr), now: Instant) -> Option<usize> {
        self.by_ends.get(&ends).filter(|(_, until)| *until > now).map(|(mtu, _)| *mtu)
    }

    fn put(&mut self, ends: (IpAddr, IpAddr), mtu: usize, now: Instant) {
        if self.sweep.is_none_or(|at| at <= now) {
            self.by_ends.retain(|_, (_, until)| *until > now);
            self.sweep = Some(now + CACHE_TIME);
        }
        if self.by_ends.len() < MAX_CACHED {
            self.by_ends.insert(ends, (mtu, now + CACHE_TIME));
        }
    }
}

impl RouteMtus {
    /// The MTU of the route for packets with this mark, or of its link, in bytes.
    ///
    /// # Errors
    /// The error that sending a packet would have: no route, an address that is not this machine's.
    pub(crate) fn get(&mut self, mark: u32, local: IpAddr, remote: SocketAddr) -> io::Result<usize> {
        let now = clock::now();
        let to = remote.ip();
        if let Some(mtu) = self.known.get((local, to), now) {
            return Ok(mtu);
        }
        let ours = connected_socket(mark, local, remote)?;
        let mtu = match self.route_mtu(mark, local, to) {
            Some(mtu) => mtu,
            // A link-local address, or a kernel that does not answer.
            None => kernel_path_mtu(&ours, to.is_ipv6())?,
        };
        self.known.put((local, to), mtu, now);
        Ok(mtu)
    }

    /// MTU of the route, or of its link, from the routing table.
    fn route_mtu(&mut self, mark: u32, local: IpAddr, to: IpAddr) -> Option<usize> {
        if self.netlink.is_none() {
            self.netlink = Netlink::open().ok();
        }
        let netlink = self.netlink.as_mut()?;
        let mut mtu = netlink.configured_route(to, Some(local), mark).ok()??.mtu;
        if mtu == 0 {
            // Of several next hops this look-up chooses the one.
            let hop = netlink.lookup_route(to, Some(local), mark).ok()??;
            mtu = netlink.link_mtu(hop.link).ok()??;
        }
        (mtu != 0).then_some(mtu as usize)
    }
}

/// A UDP socket bound to `local` and connected to `remote`: the kernel has found a route, and
/// permits the source.
fn connected_socket(mark: u32, local: IpAddr, mut remote: SocketAddr) -> io::Result<OwnedFd> {
    let ipv6 = remote.is_ipv6();
    let family = if ipv6 { AddressFamily::INET6 } else { AddressFamily::INET };
    let fd: OwnedFd = rustix::net::socket_with(family, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    if mark != 0 {
        sockopt::set(fd.as_fd(), libc::SOL_SOCKET, libc::SO_MARK, mark.cast_signed())?;
    }
    if !local.is_unspecified() {
        let mut from = SocketAddr::new(local, 0);
        if let (SocketAddr::V6(from), SocketAddr::V6(to)) = (&mut from, &remote)
            && from.ip().is_unicast_link_local()
        {
            from.set_scope_id(to.scope_id());
        }
        rustix::net::bind(&fd, &from)?;
    }
    remote.set_port(DISCARD);
    rustix::net::connect(&fd, &remote)?;
    Ok(fd)
}

/// Path MTU of a connected socket, with what the kernel has learned from ICMP errors.
fn kernel_path_mtu(fd: &OwnedFd, ipv6: bool) -> io::Result<usize> {
    let (level, name) =
        if ipv6 { (libc::IPPROTO_IPV6, libc::IPV6_MTU) } else { (libc::IPPROTO_IP, libc::IP_MTU) };
    Ok(sockopt::get_words::<1>(fd.as_fd(), level, name)?[0] as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_of_very_many_peers_is_kept_for_its_time_and_not_longer() {
        let (mut known, began) = (MtuCache::default(), clock::now());
        let ends = |peer: u16| ([192, 0, 2, 1].into(), IpAddr::from([10, 0, (peer >> 8) as u8, peer as u8]));
        for peer in 0..5000 {
            known.put(ends(peer), usize::from(peer), began);
        }
        let later = began + CACHE_TIME - Duration::from_millis(1);
        assert!((0..5000).all(|peer| known.get(ends(peer), later) == Some(usize::from(peer))));
        // An answer replaces the one before.
        known.put(ends(7), 1400, later);
        assert_eq!(known.get(ends(7), began + CACHE_TIME), Some(1400));
        assert_eq!(known.get(ends(8), began + CACHE_TIME), None);
        known.put(ends(9), 1500, began + CACHE_TIME);
        assert_eq!(known.by_ends.len(), 2);
        for peer in 0..u32::try_from(MAX_CACHED).unwrap() + 10 {
            known.put((IpAddr::from([0; 4]), IpAddr::from(peer.to_be_bytes())), 1500, later);
        }
        assert_eq!(known.by_ends.len(), MAX_CACHED);
    }
}
