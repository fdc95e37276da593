//! Raw sockets: ESP without UDP (IP protocol 50), AH (51), and one that sends packets which have
//! their IP header already. The kernel reassembles fragments; there is no segmentation or merging
//! here: every packet is a message of its own.
//!
//! | socket | what is sent begins with | what is received begins with |
//! |---|---|---|
//! | 50 | ESP: the kernel builds the header | ESP, after [`RawSocket::strip`] |
//! | 51 | (nothing is sent) | the IP header, after [`RawSocket::whole`]: AH covers it |
//! | [`WITH_HEADER`] | the IP header | (nothing is received) |
//! | [`RawSocket::for_icmp_errors`] | (nothing is sent) | ICMP, after [`RawSocket::strip`] |
//!
//! Of a header that is given to it the kernel fills in length and checksum of IPv4, and an
//! identification where that is 0: AH, which covers the identification, must bring one. It does not
//! fragment such packets ([`crate::fragment`]).

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard};

use socket2::{Domain, Protocol, Socket, Type};

use crate::error::Error;
use crate::mmsg::{Outgoing, Received};
use crate::sockopt;
use crate::udp::{common_options, hold, receive_drops, send_one, set_dont_fragment};

/// The protocol of a socket that sends packets with their IP header (IPPROTO_RAW).
pub const WITH_HEADER: u8 = libc::IPPROTO_RAW as u8;
/// Bytes in front of what an IPv6 socket receives that [`RawSocket::whole`] needs.
pub const HEAD: usize = 40;

/// ICMP errors that are taken off a socket's queue in one go.
const ERRORS_AT_ONCE: usize = 64;

/// linux/icmp.h, and netinet/icmp6.h
const ICMP_FILTER: i32 = 1;
const ICMP6_FILTER: i32 = 1;
/// Bytes of receive buffer for ICMP errors: a flood of them is lost beyond this.
const ICMP_BUFFER: u32 = 128 << 10;

/// A socket that gets every packet of a protocol that arrives for this machine.
#[derive(Debug)]
pub struct RawSocket {
    fd: OwnedFd,
    ipv6: bool,
    protocol: u8,
    mark: u32,
    fragmenting: Mutex<()>,
}

impl RawSocket {
    /// Opens the socket for `protocol`: 50 is ESP, 51 is AH, and [`WITH_HEADER`].
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
        if ipv6 && protocol != WITH_HEADER && i32::from(protocol) != libc::IPPROTO_ICMPV6 {
            // Linux takes a new path MTU from an ICMPv6 error for a raw socket only when that wants
            // to know of errors (rawv6_err). They come up as errors of the next call, which says
            // nothing about that call, and in a queue that has to be emptied.
            sockopt::set(fd.as_fd(), libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1)
                .map_err(|e| Error::system("setting IPV6_RECVERR", e))?;
        }
        Ok(Self { fd, ipv6, protocol, mark, fragmenting: Mutex::new(()) })
    }

    /// A socket that gets no packets, and is there for what ICMPv6 errors say of the path MTU. The
    /// kernel steps over AH in the packet that they quote, and asks the sockets of the protocol
    /// behind it whether they want to know: for AH in tunnel mode, of IP in IP (4 and 41). Need not
    /// be read.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn for_errors(protocol: u8, mark: u32) -> Result<Self, Error> {
        // Errors queue up to this many bytes; nobody takes them.
        let socket = Self::open(true, protocol, mark, 4096)?;
        sockopt::refuse_all(socket.as_fd()).map_err(|e| Error::system("attaching a filter", e))?;
        Ok(socket)
    }

    /// A socket that gets the ICMP errors about narrow paths and about packets that did not get
    /// through: of IPv4 "destination unreachable" (type 3) and "time exceeded" (11), of IPv6
    /// "destination unreachable" (1), "packet too big" (2) and "time exceeded" (3). The kernel has
    /// not looked at the checksum of those of IPv4.
    ///
    /// Errors come here and not to the sockets that send (`IP_RECVERR`): there an error that
    /// anybody can send would be the result of the next send, which may be to another peer.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn for_icmp_errors(ipv6: bool) -> Result<Self, Error> {
        let protocol = if ipv6 { libc::IPPROTO_ICMPV6 } else { libc::IPPROTO_ICMP };
        let socket = Self::open(ipv6, protocol as u8, 0, ICMP_BUFFER)?;
        // A bit for each type that is not wanted.
        let set = if ipv6 {
            let mut types = [u32::MAX; 8];
            types[0] &= !(1 << 1 | 1 << 2 | 1 << 3);
            sockopt::set_words(socket.as_fd(), libc::IPPROTO_ICMPV6, ICMP6_FILTER, &types)
        } else {
            sockopt::set_words(socket.as_fd(), libc::SOL_RAW, ICMP_FILTER, &[!(1 << 3 | 1 << 11)])
        };
        set.map_err(|e| Error::system("setting ICMP_FILTER", e))?;
        Ok(socket)
    }

    /// The IP protocol.
    pub fn protocol(&self) -> u8 {
        self.protocol
    }

    /// The mark of what is sent.
    pub(crate) fn mark(&self) -> u32 {
        self.mark
    }

    /// IPv6 or IPv4.
    pub fn is_ipv6(&self) -> bool {
        self.ipv6
    }

    /// Makes `r` describe the packet behind the IP header, which IPv4 raw sockets deliver too.
    /// False when there is none.
    pub fn strip(&self, buf: &[u8], r: &mut Received) -> bool {
        self.ipv6 || {
            let header = ipv4_header(buf, r);
            r.offset += header;
            r.len -= header.min(r.len);
            r.segment = r.len;
            header != 0
        }
    }

    /// Makes `r` describe the whole packet, from its IP header on. IPv4 sockets deliver that. Of
    /// IPv6 one is written into the [`HEAD`] bytes in front of `r`, from what the kernel said
    /// beside: addresses, length and class are the packet's, flow label and hop limit are 0 (AH
    /// covers neither). Extension headers in front cannot be seen, so AH behind some never
    /// verifies. False when there is no packet.
    pub fn whole(&self, buf: &mut [u8], r: &mut Received) -> bool {
        if self.ipv6 { prepend_ipv6(buf, r, self.protocol) } else { ipv4_header(buf, r) != 0 }
    }

    /// Sends one packet that may be fragmented on its way.
    ///
    /// # Errors
    /// The error that the kernel returned.
    pub fn send_fragmentable(
        &self,
        local: IpAddr,
        remote: IpAddr,
        tos: u8,
        payload: &[u8],
    ) -> io::Result<()> {
        let remote = SocketAddr::new(remote, 0);
        let m = Outgoing::single(payload.len(), local, remote, tos);
        send_one(self.fd.as_fd(), self.ipv6, Some(&self.fragmenting), payload, m, false)
    }

    /// Keeps the socket from allowing fragmentation as long as the guard is held.
    pub(crate) fn unfragmented(&self) -> MutexGuard<'_, ()> {
        hold(&self.fragmenting)
    }

    /// Empties the queue of ICMP errors, of which the kernel has taken notice. As long as there are
    /// some the socket is ready.
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

    /// Bytes of receive and send buffer that were granted.
    pub fn buffers(&self) -> [u32; 2] {
        sockopt::granted_buffers(self.fd.as_fd())
    }

    /// Packets that the kernel dropped because the receive buffer was full, since the socket was
    /// made.
    pub fn drops(&self) -> u64 {
        receive_drops(self.fd.as_fd())
    }
}

impl AsFd for RawSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Takes what the IPv4 header says about destination, TOS and length into `r`. Its length, 0 when
/// it makes no sense.
fn ipv4_header(buf: &[u8], r: &mut Received) -> usize {
    let Some(packet) = r.offset.checked_add(r.len).and_then(|end| buf.get(r.offset..end)) else {
        return 0;
    };
    let Some(header) = packet.first_chunk::<20>() else { return 0 };
    let header_len = usize::from(header[0] & 0x0f) * 4;
    let total = usize::from(u16::from_be_bytes([header[2], header[3]]));
    if header[0] >> 4 != 4 || header_len < 20 || total < header_len || total > packet.len() {
        return 0;
    }
    r.tos = header[1];
    r.local = Ipv4Addr::new(header[16], header[17], header[18], header[19]).into();
    r.len = total;
    r.segment = total;
    header_len
}

/// Writes the IPv6 header that the kernel took off in front of a packet.
fn prepend_ipv6(buf: &mut [u8], r: &mut Received, next_header: u8) -> bool {
    let (IpAddr::V6(src), IpAddr::V6(dst)) = (r.remote.ip(), r.local) else { return false };
    let Some(at) = r.offset.checked_sub(HEAD) else { return false };
    let (Some(header), Ok(len)) = (buf.get_mut(at..r.offset), u16::try_from(r.len)) else { return false };
    let class = u32::from(r.tos) << 20;
    header[..4].copy_from_slice(&(6 << 28 | class).to_be_bytes());
    header[4..6].copy_from_slice(&len.to_be_bytes());
    header[6..8].copy_from_slice(&[next_header, 0]);
    header[8..24].copy_from_slice(&src.octets());
    header[24..].copy_from_slice(&dst.octets());
    r.offset = at;
    r.len += HEAD;
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

    /// Without a socket: whether it is one, and the rest after stripping.
    fn strip(buf: &[u8], r: &mut Received) -> bool {
        let header = ipv4_header(buf, r);
        (r.offset, r.len) = (r.offset + header, r.len - header.min(r.len));
        header != 0
    }

    #[test]
    fn the_header_options_and_padding_are_taken_off() {
        let (p, mut r) = (packet(), received(40));
        assert!(strip(&p, &mut r));
        assert_eq!((&p[r.offset..r.offset + r.len], r.tos), (&[1, 2, 3, 4, 5, 6][..], 0x2e));
        assert_eq!(r.local.to_string(), "192.0.2.1");
        // Or kept, without the padding.
        let mut r = received(40);
        assert_eq!(ipv4_header(&p, &mut r), 24);
        assert_eq!((r.offset, r.len, r.segment), (8, 30, 30));
    }

    #[test]
    fn headers_that_lie_are_refused() {
        for (at, value) in [(8, 0x66), (8, 0x44), (11, 200), (11, 10)] {
            let (mut p, mut r) = (packet(), received(40));
            p[at] = value;
            assert!(!strip(&p, &mut r), "byte {at} = {value}");
        }
        for len in 0..20 {
            assert!(!strip(&packet(), &mut received(len)));
        }
    }

    #[test]
    fn an_ipv6_header_is_made_from_what_the_kernel_says() {
        let r = Received {
            offset: 40,
            len: 24,
            segment: 24,
            local: "2001:db8::1".parse().unwrap(),
            remote: "[2001:db8::2]:0".parse().unwrap(),
            tos: 0x2e,
            truncated: false,
        };
        let (mut buf, mut got) = (vec![7; 64], r);
        assert!(prepend_ipv6(&mut buf, &mut got, 51));
        assert_eq!((got.offset, got.len, got.segment), (0, 64, 64));
        assert_eq!(buf[..8], [0x62, 0xe0, 0, 0, 0, 24, 51, 0]);
        assert_eq!((buf[23], buf[39], buf[40]), (2, 1, 7));
        // No room in front, no addresses.
        assert!(!prepend_ipv6(&mut buf, &mut Received { offset: 39, ..r }, 51));
        let unknown = Ipv4Addr::UNSPECIFIED.into();
        assert!(!prepend_ipv6(&mut buf, &mut Received { local: unknown, ..r }, 51));
        assert!(!prepend_ipv6(&mut [0; 70_000], &mut Received { len: 65_536, ..r }, 51));
    }
}
