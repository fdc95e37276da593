//! Lists policies and SAs of the kernel's own IPsec (`NETLINK_XFRM`). IronSwan makes none: each is
//! another program's, and takes packets that an operator may believe to be in a tunnel of ours.
//!
//! ```text
//! request: nlmsghdr 16 (XFRM_MSG_GETPOLICY or XFRM_MSG_GETSA, dump)
//! policy:  nlmsghdr 16 | selector 56, lifetimes 64 + 32, priority 4, index 4, direction 1,
//!          action 1 ..
//! SA:      nlmsghdr 16 | selector 56, destination 16, SPI 4, protocol 1, padding 3, source 16 ..
//! selector: destination 16, source 16, ports 8, family 2, prefix lengths 2, protocol 1, padding 3,
//!           interface 4, user 4
//! ```
//! Policies of single sockets, by which a key daemon exempts its own packets, are left out.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_XFRM};
use rustix::net::sockopt;

use crate::ingress::tc::ends;
use crate::route::split;

// linux/xfrm.h
const NEW_SA: u16 = 16;
const GET_SA: u16 = 18;
const NEW_POLICY: u16 = 19;
const GET_POLICY: u16 = 21;
/// Directions of policies that are not of one socket: in, out, forward.
const DIRECTIONS: [&str; 3] = ["in", "out", "fwd"];
/// Offsets of a policy's direction and action.
const DIRECTION: usize = 160;
const ACTION: usize = 161;

/// Time that we wait for a reply.
const REPLY_TIMEOUT: Duration = Duration::from_secs(5);
/// Limits how many policies are listed; further ones are counted.
const MAX_LISTED: usize = 16;

/// Policies and SAs of the kernel's IPsec.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Kernel {
    /// The first policies as `DIRECTION SOURCE => DESTINATION`, and `block` behind those that drop.
    pub policies: Vec<String>,
    /// Number of all policies.
    pub policy_count: usize,
    /// Number of SAs.
    pub sa_count: usize,
}

/// Asks the kernel, in the network namespace of the calling thread. A kernel without IPsec has none
/// of both. Needs CAP_NET_ADMIN.
///
/// # Errors
/// The error that the kernel returned.
pub fn look() -> io::Result<Kernel> {
    let mut all = Kernel::default();
    let socket = match Socket::new(NETLINK_XFRM) {
        Ok(socket) => socket,
        Err(e) if matches!(e.raw_os_error(), Some(libc::EPROTONOSUPPORT | libc::EAFNOSUPPORT)) => {
            return Ok(all);
        }
        Err(e) => return Err(e),
    };
    let mut socket = socket;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(REPLY_TIMEOUT))?;
    list(&socket, GET_POLICY, &mut |message| {
        if let Some(line) = policy(message) {
            all.policy_count += 1;
            if all.policies.len() < MAX_LISTED {
                all.policies.push(line);
            }
        }
    })?;
    list(&socket, GET_SA, &mut |message| all.sa_count += usize::from(kind(message) == Some(NEW_SA)))?;
    Ok(all)
}

/// Asks for a list, and gives each message of the answer to `take`.
fn list(socket: &Socket, kind: u16, take: &mut dyn FnMut(&[u8])) -> io::Result<()> {
    socket.send(&request(kind), 0)?;
    loop {
        let bytes = match socket.recv_from_full() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            other => other?.0,
        };
        for message in split(&bytes) {
            match ends(message) {
                Some(ended) => return ended,
                None => take(message),
            }
        }
    }
}

/// A request for a whole list.
fn request(kind: u16) -> Vec<u8> {
    let mut m = vec![0; 16];
    m[..4].copy_from_slice(&16u32.to_ne_bytes());
    m[4..6].copy_from_slice(&kind.to_ne_bytes());
    m[6..8].copy_from_slice(&((libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16).to_ne_bytes());
    m
}

fn kind(message: &[u8]) -> Option<u16> {
    Some(u16::from_ne_bytes(*message.get(4..)?.first_chunk()?))
}

/// One policy in words. `None` for a policy of a single socket, and for bytes that are no policy.
fn policy(message: &[u8]) -> Option<String> {
    if kind(message) != Some(NEW_POLICY) {
        return None;
    }
    let body = message.get(16..)?;
    let direction = DIRECTIONS.get(usize::from(*body.get(DIRECTION)?))?;
    let family = i32::from(u16::from_ne_bytes(*body.get(40..)?.first_chunk()?));
    let end = |at: usize, len: usize| {
        let bytes: &[u8; 16] = body.get(at..)?.first_chunk()?;
        let ip: IpAddr = match family {
            libc::AF_INET6 => Ipv6Addr::from(*bytes).into(),
            _ => Ipv4Addr::from(*bytes.first_chunk::<4>()?).into(),
        };
        Some(format!("{ip}/{}", body.get(len)?))
    };
    let (destination, source) = (end(0, 42)?, end(16, 43)?);
    let blocks = if *body.get(ACTION)? == 1 { " block" } else { "" };
    Some(format!("{direction} {source} => {destination}{blocks}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(direction: u8, action: u8) -> Vec<u8> {
        let mut m = vec![0; 16 + 168];
        let len = m.len() as u32;
        m[..4].copy_from_slice(&len.to_ne_bytes());
        m[4..6].copy_from_slice(&NEW_POLICY.to_ne_bytes());
        let body = &mut m[16..];
        body[..4].copy_from_slice(&[10, 2, 0, 0]);
        body[16..20].copy_from_slice(&[10, 1, 0, 0]);
        body[40..42].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        (body[42], body[43]) = (24, 16);
        (body[DIRECTION], body[ACTION]) = (direction, action);
        m
    }

    #[test]
    fn a_policy_is_shown_by_its_selector_and_one_of_a_socket_is_not() {
        assert_eq!(policy(&message(1, 0)).as_deref(), Some("out 10.1.0.0/16 => 10.2.0.0/24"));
        assert_eq!(policy(&message(0, 1)).as_deref(), Some("in 10.1.0.0/16 => 10.2.0.0/24 block"));
        for of_a_socket in [3, 4, 255] {
            assert_eq!(policy(&message(of_a_socket, 0)), None);
        }
    }

    #[test]
    fn bytes_that_are_cut_short_are_no_policy() {
        let whole = message(1, 0);
        for n in 0..16 + ACTION {
            assert_eq!(policy(&whole[..n]), None, "{n}");
        }
    }

    #[test]
    fn a_new_namespace_has_neither_policies_nor_sas() {
        let in_namespace = || {
            crate::namespace::unshare().expect("these tests need root: they make network namespaces");
            assert_eq!(look().expect("the kernel answers"), Kernel::default());
        };
        std::thread::spawn(in_namespace).join().expect("the thread ends");
    }
}
