//! The path to a peer as the kernel has it, for packets given to it with their header: it does not cut those, and lets
//! them leave from any address.
//!
//! It is asked by a UDP socket that is bound and connected and never sends. The answers are kept for a moment, so that a
//! stream of packets costs few questions.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use crate::{clock, sockopt};

/// How long an answer is believed, and how many are kept.
const BELIEVED: Duration = Duration::from_millis(100);
const KEPT: usize = 64;
/// Any port but 0, to which nothing is connected.
const DISCARD: u16 = 9;

/// What the kernel said of late.
#[derive(Debug, Default)]
pub(crate) struct PathMtus(Vec<(IpAddr, IpAddr, usize, Instant)>);

impl PathMtus {
    /// The path MTU for packets with this mark, in bytes.
    ///
    /// # Errors
    /// What a packet would be refused for: no route, an address that is not this machine's.
    pub(crate) fn get(&mut self, mark: u32, local: IpAddr, remote: SocketAddr) -> io::Result<usize> {
        let now = clock::now();
        let to = remote.ip();
        let known = self.0.iter().find(|(l, r, _, until)| (*l, *r) == (local, to) && *until > now);
        if let Some((_, _, mtu, _)) = known {
            return Ok(*mtu);
        }
        let mtu = ask(mark, local, remote)?;
        self.0.retain(|(l, r, _, until)| (*l, *r) != (local, to) && *until > now);
        if self.0.len() < KEPT {
            self.0.push((local, to, mtu, now + BELIEVED));
        }
        Ok(mtu)
    }
}

/// Asks the kernel.
fn ask(mark: u32, local: IpAddr, mut remote: SocketAddr) -> io::Result<usize> {
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
    let (level, name) =
        if ipv6 { (libc::IPPROTO_IPV6, libc::IPV6_MTU) } else { (libc::IPPROTO_IP, libc::IP_MTU) };
    Ok(sockopt::get_words::<1>(fd.as_fd(), level, name)?[0] as usize)
}
