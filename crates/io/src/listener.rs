//! Finds the user who owns a listening Unix socket. `sock_diag` answers also when the queue of the
//! listener is full, and nobody can connect any more.
//!
//! ```text
//! request: nlmsghdr 16 | family 1, protocol 1, padding 2, states 4, inode 4, show 4, cookie 8
//! answer:  nlmsghdr 16 | family 1, type 1, state 1, padding 1, inode 4, cookie 8 | attributes
//! attribute: length 2, type 2, value
//! ```

use std::io;
use std::time::Duration;

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_SOCK_DIAG};
use rustix::net::sockopt;

use crate::ingress::tc::ends;
use crate::route::{attribute, split};

// linux/sock_diag.h, linux/unix_diag.h
const BY_FAMILY: u16 = 20;
const SHOW_NAME: u32 = 1;
const SHOW_UID: u32 = 0x40;
const NAME: u16 = 0;
const UID: u16 = 7;
/// `1 << TCP_LISTEN`.
const LISTENING: u32 = 1 << 10;

/// The user whose socket listens at this abstract name, in the network namespace of the calling
/// thread; `None` when there is none, or the kernel does not say whose it is (before Linux 5.3).
///
/// # Errors
/// The error that the kernel returned: it may have no `CONFIG_UNIX_DIAG`.
pub fn owner(name: &[u8]) -> io::Result<Option<u32>> {
    let mut socket = Socket::new(NETLINK_SOCK_DIAG)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    sockopt::set_socket_timeout(&socket, sockopt::Timeout::Recv, Some(Duration::from_secs(10)))?;
    socket.send(&request(), 0)?;
    let mut found = None;
    loop {
        let bytes = match socket.recv_from_full() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            other => other?.0,
        };
        for message in split(&bytes) {
            match ends(message) {
                Some(ended) => return ended.map(|()| found),
                None => found = found.or_else(|| uid(message, name)),
            }
        }
    }
}

/// All sockets that listen.
fn request() -> Vec<u8> {
    let mut m = vec![0; 40];
    m[..4].copy_from_slice(&40u32.to_ne_bytes());
    m[4..6].copy_from_slice(&BY_FAMILY.to_ne_bytes());
    m[6..8].copy_from_slice(&((libc::NLM_F_REQUEST | libc::NLM_F_DUMP) as u16).to_ne_bytes());
    m[16] = libc::AF_UNIX as u8;
    m[20..24].copy_from_slice(&LISTENING.to_ne_bytes());
    m[28..32].copy_from_slice(&(SHOW_NAME | SHOW_UID).to_ne_bytes());
    m
}

/// The owner of the socket that a message shows, if it has this name.
fn uid(message: &[u8], name: &[u8]) -> Option<u32> {
    let attributes = message.get(32..)?;
    let (zero, its) = attribute(attributes, NAME)?.split_first()?;
    let uid = attribute(attributes, UID)?.first_chunk()?;
    (*zero == 0 && its == name).then(|| u32::from_ne_bytes(*uid))
}

#[cfg(test)]
mod tests {
    use std::os::linux::net::SocketAddrExt;
    use std::os::unix::net::{SocketAddr, UnixListener};

    use super::*;

    #[test]
    fn whose_a_listener_is_is_known_and_of_nobody_nothing() {
        let in_namespace = || {
            crate::namespace::unshare().expect("these tests need root: they make network namespaces");
            assert_eq!(owner(b"here").unwrap(), None);
            let listen =
                |name| UnixListener::bind_addr(&SocketAddr::from_abstract_name(name).unwrap()).unwrap();
            let (here, _longer) = (listen("here"), listen("here and there"));
            assert_eq!(owner(b"here").unwrap(), Some(0));
            std::os::unix::fs::fchown(&here, Some(65_534), None).unwrap();
            assert_eq!(owner(b"here").unwrap(), Some(65_534));
            assert_eq!(owner(b"here and there").unwrap(), Some(0));
            assert_eq!(owner(b"her").unwrap(), None);
        };
        std::thread::spawn(in_namespace).join().unwrap();
    }

    #[test]
    fn lengths_that_lie_are_survived() {
        let mut whole = vec![0; 32];
        whole.extend([[8, 0, 7, 0], [3, 0, 0, 0], [6, 0, 0, 0], [0, b'n', 0, 0]].concat());
        assert_eq!(uid(&whole, b"n"), Some(3));
        for n in 0..whole.len() - 2 {
            assert_eq!(uid(&whole[..n], b"n"), None, "{n}");
        }
        for at in 32..whole.len() {
            for value in [0, 1, 3, 4, 255] {
                let mut bad = whole.clone();
                bad[at] = value;
                let _ = uid(&bad, b"n");
            }
        }
    }
}
