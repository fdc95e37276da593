//! `recvmmsg` and `sendmmsg`, with the control messages that say which of our addresses, which TOS,
//! which segment size.
//!
//! The memory of messages is lent by the caller; what is here is only the headers that describe it
//! to the kernel, kept between calls so that nothing is allocated per packet.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

use crate::error::Error;
use crate::{sockaddr, sockopt};

/// Room for the control messages of one datagram: packet info of either family, TOS, segment size,
/// time of arrival.
const CONTROL: usize = 128;

/// Aligned as `cmsghdr` needs it.
#[repr(C, align(8))]
#[derive(Clone, Copy)]
struct Control([u8; CONTROL]);

/// One received buffer: a datagram, or several of equal length (the last may be shorter) that the
/// kernel merged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Received {
    /// Offset in the lent memory, in bytes.
    pub offset: usize,
    /// Bytes, at most the slot size.
    pub len: usize,
    /// Length of each merged datagram; equal to `len` when there is one.
    pub segment: usize,
    /// Our address that it was sent to; unspecified when the kernel did not say.
    pub local: IpAddr,
    /// The sender. The port is 0 (or the protocol) for raw sockets.
    pub remote: SocketAddr,
    /// The whole TOS or traffic class byte of the outer header (of all the merged datagrams: others
    /// are not merged).
    pub tos: u8,
    /// The datagram was larger than the slot, and its end is lost.
    pub truncated: bool,
}

/// The arrays that `sendmmsg` and `recvmmsg` read and write: headers, addresses and control data of
/// each message.
struct Slots {
    headers: Vec<libc::mmsghdr>,
    iovecs: Vec<libc::iovec>,
    names: Vec<libc::sockaddr_storage>,
    control: Vec<Control>,
}

// SAFETY: the pointers in `headers` and `iovecs` are written anew before each system call and never
// read otherwise; they are dead between calls, so moving the vectors to another thread moves
// nothing that is shared.
unsafe impl Send for Slots {}

impl Slots {
    fn new(n: usize) -> Self {
        let n = n.clamp(1, 1024);
        // SAFETY: all four are plain C structures for which all zeroes is valid.
        let (header, iovec, name) = unsafe { std::mem::zeroed() };
        Self {
            headers: vec![header; n],
            iovecs: vec![iovec; n],
            names: vec![name; n],
            control: vec![Control([0; CONTROL]); n],
        }
    }
}

/// Headers for receiving.
pub struct RecvSlots(Slots);

impl std::fmt::Debug for RecvSlots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "RecvSlots({})", self.0.headers.len())
    }
}

impl RecvSlots {
    /// For up to `n` messages a call.
    pub fn new(n: usize) -> Self {
        Self(Slots::new(n))
    }

    /// How many messages a call receives at most.
    pub fn capacity(&self) -> usize {
        self.0.headers.len()
    }

    /// Receives what is waiting into consecutive slots of `slot` bytes of `buf`, as many as fit,
    /// without blocking. The first `head` bytes of each slot are left free. Appends one
    /// [`Received`] each to `out`; returns how many there were.
    ///
    /// # Errors
    /// `WouldBlock` when nothing is waiting, and what else `recvmmsg` says.
    pub fn recv(
        &mut self,
        fd: BorrowedFd<'_>,
        buf: &mut [u8],
        slot: usize,
        head: usize,
        out: &mut Vec<Received>,
    ) -> io::Result<usize> {
        let n = self.0.headers.len().min(buf.len().checked_div(slot).unwrap_or(0));
        if n == 0 || head >= slot {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        for (i, chunk) in buf.chunks_exact_mut(slot).take(n).enumerate() {
            let room = &mut chunk[head..];
            self.0.iovecs[i] = libc::iovec { iov_base: room.as_mut_ptr().cast(), iov_len: room.len() };
            // Zeroed first: an unknown source leaves the family unspecified instead of the last
            // caller's address.
            self.0.names[i].ss_family = libc::AF_UNSPEC as libc::sa_family_t;
            let h = &mut self.0.headers[i].msg_hdr;
            h.msg_name = (&raw mut self.0.names[i]).cast();
            h.msg_namelen = size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            h.msg_iov = &raw mut self.0.iovecs[i];
            h.msg_iovlen = 1;
            h.msg_control = (&raw mut self.0.control[i]).cast();
            h.msg_controllen = CONTROL as _;
            h.msg_flags = 0;
        }
        // SAFETY: the first `n` headers were filled above with pointers into vectors of this
        // structure and into `buf`, which is borrowed mutably for the call; all lengths are those
        // of the memory pointed at.
        let got = unsafe {
            libc::recvmmsg(
                fd.as_raw_fd(),
                self.0.headers.as_mut_ptr(),
                n as libc::c_uint,
                libc::MSG_DONTWAIT as _,
                std::ptr::null_mut(),
            )
        };
        let got = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
        for i in 0..got.min(n) {
            let len = (self.0.headers[i].msg_len as usize).min(slot - head);
            let mut r = Received {
                offset: i * slot + head,
                len,
                segment: len,
                local: Ipv4Addr::UNSPECIFIED.into(),
                remote: sockaddr::read(&self.0.names[i], self.0.headers[i].msg_hdr.msg_namelen)
                    .unwrap_or(SocketAddr::new(Ipv4Addr::UNSPECIFIED.into(), 0)),
                tos: 0,
                truncated: self.0.headers[i].msg_hdr.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0,
            };
            let used = self.0.headers[i].msg_hdr.msg_controllen.min(CONTROL);
            for (level, kind, data) in ControlMessages(&self.0.control[i].0[..used]) {
                parse_control(level, kind, data, &mut r);
            }
            out.push(r);
        }
        Ok(got)
    }

    /// When the kernel took message `n` of the last [`recv`](Self::recv) from its link, since 1970
    /// by its clock: the first of merged datagrams. `None` unless the socket was told to
    /// [`stamp_arrivals`].
    pub fn arrived(&self, n: usize) -> Option<Duration> {
        let used = self.0.headers.get(n)?.msg_hdr.msg_controllen.min(CONTROL);
        let messages = ControlMessages(&self.0.control[n].0[..used]);
        messages
            .filter(|(level, kind, _)| (*level, *kind) == (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS))
            .find_map(|(_, _, data)| {
                // A timespec.
                let part = |at: usize| data.get(at..)?.first_chunk().map(|b| i64::from_ne_bytes(*b));
                let (seconds, nanoseconds) = (part(0)?, part(8)?);
                Some(Duration::new(seconds.try_into().ok()?, u32::try_from(nanoseconds).ok()?))
            })
    }
}

/// Has the kernel note when it takes each datagram from its link, for [`RecvSlots::arrived`]. Where
/// no other socket of the machine has asked for it the kernel begins a moment later; datagrams of
/// before carry the time at which they are read.
///
/// # Errors
/// The error that the kernel returned.
pub fn stamp_arrivals(fd: BorrowedFd<'_>) -> Result<(), Error> {
    sockopt::set(fd, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
        .map_err(|e| Error::system("setting SO_TIMESTAMPNS", e))
}

/// Takes what one control message says into `r`.
fn parse_control(level: i32, kind: i32, data: &[u8], r: &mut Received) {
    let int = || data.first_chunk::<4>().map(|b| i32::from_ne_bytes(*b));
    match (level, kind) {
        // in_pktinfo: interface index, local address of the route, address in the header.
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
            if let Some(a) = data.get(8..).and_then(|d| d.first_chunk::<4>()) {
                r.local = Ipv4Addr::from(*a).into();
            }
        }
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
            if let Some(a) = data.first_chunk::<16>() {
                r.local = Ipv6Addr::from(*a).into();
            }
        }
        // One byte, unlike everything else.
        (libc::IPPROTO_IP, libc::IP_TOS) => r.tos = data.first().copied().unwrap_or(0),
        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => r.tos = int().unwrap_or(0) as u8,
        (libc::SOL_UDP, libc::UDP_GRO) => {
            if let Some(size @ 1..) = int().and_then(|v| usize::try_from(v).ok()) {
                r.segment = size.min(r.len.max(1));
            }
        }
        _ => {}
    }
}

/// Walks control messages by checked lengths.
struct ControlMessages<'a>(&'a [u8]);

/// `cmsghdr`: a `size_t` length, two `int`s.
const CMSG_HEADER: usize = size_of::<libc::cmsghdr>();

impl<'a> Iterator for ControlMessages<'a> {
    type Item = (i32, i32, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let len = usize::from_ne_bytes(*self.0.first_chunk()?);
        let int = |at: usize| self.0.get(at..)?.first_chunk().map(|b| i32::from_ne_bytes(*b));
        let (level, kind) = (int(size_of::<usize>())?, int(size_of::<usize>() + 4)?);
        let data = self.0.get(CMSG_HEADER..len)?;
        self.0 = self.0.get(len.next_multiple_of(size_of::<usize>())..).unwrap_or(&[]);
        Some((level, kind, data))
    }
}

/// One message to send: a datagram, or several of equal length that the kernel cuts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outgoing {
    /// Offset in the lent memory, in bytes.
    pub offset: usize,
    /// Bytes.
    pub len: usize,
    /// Cut into datagrams of this length (the last may be shorter); 0, or at least `len`: one
    /// datagram.
    pub segment: usize,
    /// Source address; unspecified leaves the choice to the routing table.
    pub local: IpAddr,
    /// Destination. The port is ignored by raw sockets.
    pub remote: SocketAddr,
    /// The whole TOS or traffic class byte.
    pub tos: u8,
    /// Datagrams of up to this length may leave in fragments when the path is narrower; longer ones
    /// are dropped then.
    pub fragmentable: usize,
}

impl Outgoing {
    /// One datagram, which is the whole buffer of this length.
    pub(crate) fn single(len: usize, local: IpAddr, remote: SocketAddr, tos: u8) -> Self {
        Self { offset: 0, len, segment: 0, local, remote, tos, fragmentable: 0 }
    }

    /// True when the kernel has to cut.
    pub fn is_segmented(&self) -> bool {
        self.segment != 0 && self.segment < self.len
    }

    /// How many datagrams this is.
    pub fn datagrams(&self) -> usize {
        if self.is_segmented() { self.len.div_ceil(self.segment) } else { 1 }
    }

    /// The datagrams one by one.
    pub fn split(self) -> impl Iterator<Item = Self> {
        let step = if self.is_segmented() { self.segment } else { self.len.max(1) };
        (0..self.datagrams()).map(move |i| Self {
            offset: self.offset + i * step,
            len: step.min(self.len - i * step),
            segment: 0,
            ..self
        })
    }
}

/// Headers for sending.
pub struct SendSlots(Slots);

impl std::fmt::Debug for SendSlots {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "SendSlots({})", self.0.headers.len())
    }
}

impl SendSlots {
    /// For up to `n` messages a call.
    pub fn new(n: usize) -> Self {
        Self(Slots::new(n))
    }

    /// How many messages a call sends at most.
    pub fn capacity(&self) -> usize {
        self.0.headers.len()
    }

    /// Sends the first messages of `list` (at most the capacity) without blocking; returns how many
    /// were taken. `ports` says whether the destination's port means something (UDP) or must be 0
    /// (raw).
    ///
    /// # Errors
    /// Why the *first* message was not taken; an error of a later one shows when it is first.
    pub fn send(
        &mut self,
        fd: BorrowedFd<'_>,
        buf: &[u8],
        list: &[Outgoing],
        ports: bool,
    ) -> io::Result<usize> {
        let n = list.len().min(self.0.headers.len());
        for (i, m) in list[..n].iter().enumerate() {
            let Some(bytes) = m.offset.checked_add(m.len).and_then(|end| buf.get(m.offset..end)) else {
                return Err(io::ErrorKind::InvalidInput.into());
            };
            self.0.iovecs[i] =
                libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
            let mut remote = m.remote;
            if !ports {
                remote.set_port(0);
            }
            let name_len = sockaddr::write(&remote, &mut self.0.names[i]);
            let used = write_control(&mut self.0.control[i].0, m);
            let h = &mut self.0.headers[i].msg_hdr;
            h.msg_name = (&raw mut self.0.names[i]).cast();
            h.msg_namelen = name_len;
            h.msg_iov = &raw mut self.0.iovecs[i];
            h.msg_iovlen = 1;
            h.msg_control =
                if used == 0 { std::ptr::null_mut() } else { (&raw mut self.0.control[i]).cast() };
            h.msg_controllen = used as _;
            h.msg_flags = 0;
        }
        // SAFETY: the first `n` headers were filled above with pointers into vectors of this
        // structure and into `buf`, borrowed for the call; the kernel only reads through iov_base
        // when sending. All lengths are right.
        let sent = unsafe {
            libc::sendmmsg(
                fd.as_raw_fd(),
                self.0.headers.as_mut_ptr(),
                n as libc::c_uint,
                libc::MSG_DONTWAIT as _,
            )
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

/// Writes the control messages of `m`, returns how many bytes.
fn write_control(control: &mut [u8; CONTROL], m: &Outgoing) -> usize {
    let mut at = 0;
    let mut put = |level: i32, kind: i32, data: &[u8]| {
        let len = CMSG_HEADER + data.len();
        let end = at + len.next_multiple_of(size_of::<usize>());
        let Some(room) = control.get_mut(at..end) else { return };
        room.fill(0);
        room[..size_of::<usize>()].copy_from_slice(&len.to_ne_bytes());
        room[size_of::<usize>()..][..4].copy_from_slice(&level.to_ne_bytes());
        room[size_of::<usize>() + 4..][..4].copy_from_slice(&kind.to_ne_bytes());
        room[CMSG_HEADER..len].copy_from_slice(data);
        at = end;
    };
    match m.local {
        IpAddr::V4(a) if !a.is_unspecified() => {
            // in_pktinfo: no interface, the source in ipi_spec_dst.
            let mut info = [0; 12];
            info[4..8].copy_from_slice(&a.octets());
            put(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
        }
        IpAddr::V6(a) if !a.is_unspecified() => {
            // in6_pktinfo: the source, and the interface, which a link-local source cannot do
            // without.
            let mut info = [0; 20];
            info[..16].copy_from_slice(&a.octets());
            if let (true, SocketAddr::V6(remote)) = (a.is_unicast_link_local(), m.remote) {
                info[16..].copy_from_slice(&remote.scope_id().to_ne_bytes());
            }
            put(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
        }
        _ => {}
    }
    if m.tos != 0 {
        let (level, kind) = match m.remote {
            SocketAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_TOS),
            SocketAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
        };
        put(level, kind, &i32::from(m.tos).to_ne_bytes());
    }
    if let (true, Ok(segment)) = (m.is_segmented(), u16::try_from(m.segment)) {
        put(libc::SOL_UDP, libc::UDP_SEGMENT, &segment.to_ne_bytes());
    }
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outgoing(len: usize, segment: usize) -> Outgoing {
        Outgoing {
            offset: 100,
            len,
            segment,
            local: "192.0.2.1".parse().unwrap(),
            remote: "192.0.2.2:4500".parse().unwrap(),
            tos: 0x2e,
            fragmentable: 0,
        }
    }

    #[test]
    fn control_messages_written_are_the_ones_read() {
        let mut c = [0xff; CONTROL];
        let used = write_control(&mut c, &outgoing(3000, 1400));
        let all: Vec<_> = ControlMessages(&c[..used]).collect();
        assert_eq!(all.len(), 3);
        assert_eq!(
            (all[0].0, all[0].1, &all[0].2[4..8]),
            (libc::IPPROTO_IP, libc::IP_PKTINFO, &[192, 0, 2, 1][..])
        );
        assert_eq!(all[1], (libc::IPPROTO_IP, libc::IP_TOS, &0x2ei32.to_ne_bytes()[..]));
        assert_eq!(all[2], (libc::SOL_UDP, libc::UDP_SEGMENT, &1400u16.to_ne_bytes()[..]));
    }

    #[test]
    fn damaged_control_messages_end_the_walk() {
        for len in [0usize, 3, CMSG_HEADER - 1, 1000, usize::MAX] {
            let mut c = [0u8; 32];
            c[..size_of::<usize>()].copy_from_slice(&len.to_ne_bytes());
            assert_eq!(ControlMessages(&c).count(), 0, "{len}");
        }
        assert_eq!(ControlMessages(&[1, 2, 3]).count(), 0);
    }

    #[test]
    fn splitting_covers_every_byte_once() {
        for (len, segment, n) in [(3000, 1400, 3), (2800, 1400, 2), (1400, 1400, 1), (10, 0, 1), (0, 0, 1)] {
            let m = outgoing(len, segment);
            let parts: Vec<_> = m.split().collect();
            assert_eq!((parts.len(), m.datagrams()), (n, n));
            let mut at = 100;
            for p in parts {
                assert_eq!((p.offset, p.is_segmented()), (at, false));
                at += p.len;
            }
            assert_eq!(at, 100 + len);
        }
    }
}
