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

/// How long an answer is believed.
const BELIEVED: Duration = Duration::from_millis(100);
/// How many answers are kept: each is of an SA's ends, of which there are not more at a time on a
/// large gateway.
const KEPT: usize = 1 << 16;
/// Any port but 0, to which nothing is connected.
const DISCARD: u16 = 9;

/// Path MTUs that the kernel has told lately.
#[derive(Debug, Default)]
pub(crate) struct PathMtus {
    known: Answers,
    netlink: Option<Netlink>,
}

/// MTUs by our address and the peer's, and until when each is believed.
#[derive(Debug, Default)]
struct Answers {
    by_ends: HashMap<(IpAddr, IpAddr), (usize, Instant)>,
    /// When those that are old are looked for next.
    sweep: Option<Instant>,
}

impl Answers {
    fn get(&self, ends: (IpAddr, IpAddr), now: Instant) -> Option<usize> {
        self.by_ends.get(&ends).filter(|(_, until)| *until > now).map(|(mtu, _)| *mtu)
    }

    fn put(&mut self, ends: (IpAddr, IpAddr), mtu: usize, now: Instant) {
        if self.sweep.is_none_or(|at| at <= now) {
            self.by_ends.retain(|_, (_, until)| *until > now);
            self.sweep = Some(now + BELIEVED);
        }
        if self.by_ends.len() < KEPT {
            self.by_ends.insert(ends, (mtu, now + BELIEVED));
        }
    }
}

impl PathMtus {
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
        let ours = permitted(mark, local, remote)?;
        let mtu = match self.configured(mark, local, to) {
            Some(mtu) => mtu,
            // An address of one link only, or a kernel that does not tell.
            None => path_mtu(&ours, to.is_ipv6())?,
        };
        self.known.put((local, to), mtu, now);
        Ok(mtu)
    }

    /// Asks the routing table.
    fn configured(&mut self, mark: u32, local: IpAddr, to: IpAddr) -> Option<usize> {
        if self.netlink.is_none() {
            self.netlink = Netlink::open().ok();
        }
        let netlink = self.netlink.as_mut()?;
        let mut mtu = netlink.configured_route(to, Some(local), mark).ok()??.mtu;
        if mtu == 0 {
            // Of several next hops this names the one.
            let hop = netlink.lookup_route(to, Some(local), mark).ok()??;
            mtu = netlink.link_mtu(hop.link).ok()??;
        }
        (mtu != 0).then_some(mtu as usize)
    }
}

/// A socket that could send to `remote` from `local`.
fn permitted(mark: u32, local: IpAddr, mut remote: SocketAddr) -> io::Result<OwnedFd> {
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

/// The path MTU as the kernel has it.
fn path_mtu(fd: &OwnedFd, ipv6: bool) -> io::Result<usize> {
    let (level, name) =
        if ipv6 { (libc::IPPROTO_IPV6, libc::IPV6_MTU) } else { (libc::IPPROTO_IP, libc::IP_MTU) };
    Ok(sockopt::get_words::<1>(fd.as_fd(), level, name)?[0] as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_said_of_very_many_peers_is_kept_for_its_time_and_not_longer() {
        let (mut known, began) = (Answers::default(), clock::now());
        let ends = |peer: u16| ([192, 0, 2, 1].into(), IpAddr::from([10, 0, (peer >> 8) as u8, peer as u8]));
        for peer in 0..5000 {
            known.put(ends(peer), usize::from(peer), began);
        }
        let later = began + BELIEVED - Duration::from_millis(1);
        assert!((0..5000).all(|peer| known.get(ends(peer), later) == Some(usize::from(peer))));
        // An answer replaces the one before.
        known.put(ends(7), 1400, later);
        assert_eq!(known.get(ends(7), began + BELIEVED), Some(1400));
        assert_eq!(known.get(ends(8), began + BELIEVED), None);
        known.put(ends(9), 1500, began + BELIEVED);
        assert_eq!(known.by_ends.len(), 2);
        for peer in 0..u32::try_from(KEPT).unwrap() + 10 {
            known.put((IpAddr::from([0; 4]), IpAddr::from(peer.to_be_bytes())), 1500, later);
        }
        assert_eq!(known.by_ends.len(), KEPT);
    }
}
