//! Raw sockets for ESP without UDP (IP protocol 50). The kernel builds and takes off the outer IP header, and
//! reassembles fragments. There is no segmentation or merging here: every packet is a message of its own.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard};

use socket2::{Domain, Protocol, Socket, Type};

use crate::error::Error;
use crate::mmsg::{Outgoing, Received};
use crate::sockopt;
use crate::udp::{common_options, hold, receive_drops, send_one, set_dont_fragment};

/// ICMP errors that are taken off a socket's queue in one go.
const ERRORS_AT_ONCE: usize = 64;

/// A socket that gets every ESP packet that arrives for this machine.
#[derive(Debug)]
pub struct RawSocket {
    fd: OwnedFd,
    ipv6: bool,
    fragmenting: Mutex<()>,
}

impl RawSocket {
    /// Opens the socket for `protocol` (50 is ESP, 51 is AH).
    ///
    /// # Errors
    /// [`Error::Privilege`], [`Error::NoFamily`].
    pub fn open(ipv6: bool, protocol: u8, mark: u32, buffer: u32) -> Result<Self, Error> {
        let domain = if ipv6 { Domain::IPV6 } else { Domain::IPV4 };
        let kind = Type::RAW.nonblocking().cloexec();
        let socket =
            Socket::new(domain, kind, Some(Protocol::from(i32::from(protocol)))).map_err(|e| {
                match e.raw_os_error() {
                    Some(libc::EAFNOSUPPORT) => Error::NoFamily { ipv6 },
                    _ => Error::system("opening a raw socket", e),
                }
            })?;
        let fd = OwnedFd::from(socket);
        common_options(fd.as_fd(), ipv6, mark, buffer)?;
        set_dont_fragment(fd.as_fd(), ipv6, true).map_err(|e| Error::system("setting IP_MTU_DISCOVER", e))?;
        if ipv6 {
            // Linux takes a new path MTU from an ICMPv6 error for a raw socket only when that wants to know of errors
            // (rawv6_err). They come up as errors of the next call, which says nothing about that call, and in a queue
            // that has to be emptied.
            sockopt::set(fd.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1)
                .map_err(|e| Error::system("setting IPV6_RECVERR", e))?;
        }
        Ok(Self { fd, ipv6, fragmenting: Mutex::new(()) })
    }

    /// IPv6 or IPv4.
    pub fn is_ipv6(&self) -> bool {
        self.ipv6
    }

    /// Makes `r` describe the packet behind the IP header, which IPv4 raw sockets deliver too. False when there is none.
    pub fn strip(&self, buf: &[u8], r: &mut Received) -> bool {
        self.ipv6 || strip_ipv4(buf, r)
    }

    /// Sends one packet that may be fragmented on its way.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn send_fragmentable(
        &self,
        local: IpAddr,
        remote: IpAddr,
        tos: u8,
        payload: &[u8],
    ) -> io::Result<()> {
        let remote = SocketAddr::new(remote, 0);
        let m = Outgoing { offset: 0, len: payload.len(), segment: 0, local, remote, tos, fragmentable: 0 };
        send_one(self.fd.as_fd(), self.ipv6, Some(&self.fragmenting), payload, m, false)
    }

    /// Keeps the socket from allowing fragmentation as long as the guard is held.
    pub(crate) fn unfragmented(&self) -> MutexGuard<'_, ()> {
        hold(&self.fragmenting)
    }

    /// Empties the queue of ICMP errors, of which the kernel has taken notice. As long as there are some the socket is
    /// ready.
    pub fn clear_errors(&self) {
        use rustix::net::{RecvFlags, recv};
        let mut quoted = [0u8; 64];
        for _ in 0..ERRORS_AT_ONCE {
            if !self.ipv6
                || recv(&self.fd, &mut quoted[..], RecvFlags::ERRQUEUE | RecvFlags::DONTWAIT).is_err()
            {
                return;
            }
        }
    }

    /// Packets that the kernel dropped because the receive buffer was full, since the socket was made.
    pub fn drops(&self) -> u64 {
        receive_drops(self.fd.as_fd())
    }
}

impl AsFd for RawSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Takes the IPv4 header off, and what it says about destination, TOS and length into `r`.
fn strip_ipv4(buf: &[u8], r: &mut Received) -> bool {
    let Some(packet) = r.offset.checked_add(r.len).and_then(|end| buf.get(r.offset..end)) else {
        return false;
    };
    let Some(header) = packet.first_chunk::<20>() else { return false };
    let header_len = usize::from(header[0] & 0x0f) * 4;
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if header[0] >> 4 != 4 || header_len < 20 || total < header_len || total > packet.len() {
        return false;
    }
    r.tos = header[1];
    r.local = Ipv4Addr::new(header[16], header[17], header[18], header[19]).into();
    r.offset += header_len;
    r.len = total - header_len;
    r.segment = r.len;
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(len: usize) -> Received {
        Received {
            offset: 8,
            len,
            segment: len,
            local: Ipv4Addr::UNSPECIFIED.into(),
            remote: "192.0.2.2:0".parse().unwrap(),
            tos: 0,
            truncated: false,
        }
    }

    fn packet() -> Vec<u8> {
        let mut p = vec![0u8; 8];
        p.extend([0x46, 0x2e, 0, 30, 0, 0, 0, 0, 64, 50, 0, 0, 192, 0, 2, 2, 192, 0, 2, 1, 1, 1, 1, 0]);
        p.extend([1, 2, 3, 4, 5, 6]);
        // Padding behind the datagram, as short Ethernet frames have it.
        p.extend([9; 10]);
        p
    }

    #[test]
    fn the_header_options_and_padding_are_taken_off() {
        let (p, mut r) = (packet(), received(40));
        assert!(strip_ipv4(&p, &mut r));
        assert_eq!((&p[r.offset..r.offset + r.len], r.tos), (&[1, 2, 3, 4, 5, 6][..], 0x2e));
        assert_eq!(r.local.to_string(), "192.0.2.1");
    }

    #[test]
    fn headers_that_lie_are_refused() {
        for (at, value) in [(8, 0x66), (8, 0x44), (11, 200), (11, 10)] {
            let (mut p, mut r) = (packet(), received(40));
            p[at] = value;
            assert!(!strip_ipv4(&p, &mut r), "byte {at} = {value}");
        }
        for len in 0..20 {
            assert!(!strip_ipv4(&packet(), &mut received(len)));
        }
    }
}
