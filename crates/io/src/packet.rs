//! A packet socket (packet(7)) for sending whole Ethernet frames in batches, past the routing table
//! and the queueing discipline: the cheapest way for a load generator to put packets on a link. One
//! that was opened to listen also hands over every frame that arrives on its interface
//! ([`crate::mmsg::RecvSlots`] takes them in).

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};

use socket2::{Domain, Socket, Type};

use crate::error::Error;
use crate::sockopt;

/// linux/if_packet.h; the second since Linux 4.20.
const PACKET_VNET_HDR: i32 = 15;
const PACKET_IGNORE_OUTGOING: i32 = 23;

/// Sends frames through one interface, and takes in those that arrive there if it listens.
pub struct PacketSocket {
    fd: OwnedFd,
    headers: Vec<libc::mmsghdr>,
    iovecs: Vec<libc::iovec>,
}

// SAFETY: the pointers in `headers` and `iovecs` are written anew before each system call and never
// read otherwise; they are dead between calls, so moving the vectors to another thread moves
// nothing that is shared.
unsafe impl Send for PacketSocket {}

impl std::fmt::Debug for PacketSocket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PacketSocket({})", self.headers.len())
    }
}

impl PacketSocket {
    /// A socket on the interface of that name in the caller's network namespace, for up to `batch`
    /// frames a call and
    /// `buffer` bytes in flight.
    ///
    /// # Errors
    /// The error that the kernel returned: no such interface, no privilege (CAP_NET_RAW).
    pub fn open(interface: &str, batch: usize, buffer: u32) -> Result<Self, Error> {
        // Protocol 0: nothing is ever received.
        Self::with_protocol(interface, batch, buffer, 0)
    }

    /// As [`PacketSocket::open`], and receives every frame that arrives on the interface, of
    /// whatever protocol and for whomever it is; what this machine sends there is not among them.
    ///
    /// # Errors
    /// The error that the kernel returned, as for [`PacketSocket::open`].
    pub fn listen(interface: &str, batch: usize, buffer: u32) -> Result<Self, Error> {
        let socket = Self::with_protocol(interface, batch, buffer, libc::ETH_P_ALL as u16)?;
        sockopt::set(socket.fd.as_fd(), libc::SOL_PACKET, PACKET_IGNORE_OUTGOING, 1)
            .map_err(|e| Error::system("leaving sent frames out of a packet socket", e))?;
        Ok(socket)
    }

    /// From now on each frame that is sent begins with a header that says what the kernel has to
    /// finish (`ironswan_wire::offload`, positions counted from the Ethernet header): a checksum,
    /// and cutting it into packets, as it does for local sockets. Frames pass the queueing
    /// discipline then, since past it nothing is cut.
    ///
    /// # Errors
    /// The kernel cannot (before Linux 2.6.27; UDP is cut since 6.2).
    pub fn offload(&self) -> Result<(), Error> {
        let fd = self.fd.as_fd();
        // A kernel without this option has never bypassed the queue, so a failure changes nothing.
        let _ = sockopt::set(fd, libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 0);
        sockopt::set(fd, libc::SOL_PACKET, PACKET_VNET_HDR, 1)
            .map_err(|e| Error::system("asking a packet socket for offload", e))
    }

    fn with_protocol(interface: &str, batch: usize, buffer: u32, protocol: u16) -> Result<Self, Error> {
        let socket = Socket::new(Domain::PACKET, Type::RAW.nonblocking().cloexec(), None)
            .map_err(|e| Error::system("creating a packet socket", e))?;
        let fd = OwnedFd::from(socket);
        let index = rustix::net::netdevice::name_to_index(&fd, interface)
            .map_err(|e| Error::system("finding an interface for a packet socket", e.into()))?;
        // Before Linux 3.14 there is none; frames pass the queueing discipline then.
        let _ = sockopt::set(fd.as_fd(), libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1);
        sockopt::buffers(fd.as_fd(), i32::try_from(buffer).unwrap_or(i32::MAX))
            .map_err(|e| Error::system("setting socket buffers", e))?;
        bind(&fd, index, protocol).map_err(|e| Error::system("binding a packet socket", e))?;
        let n = batch.clamp(1, 1024);
        // SAFETY: both are plain C structures for which all zeroes is valid.
        let (header, iovec) = unsafe { std::mem::zeroed() };
        Ok(Self { fd, headers: vec![header; n], iovecs: vec![iovec; n] })
    }

    /// Frames that arrived and were lost since the buffer was full, since the last call of this.
    pub fn take_drops(&self) -> u32 {
        // struct tpacket_stats: packets, drops.
        sockopt::get_words::<2>(self.fd.as_fd(), libc::SOL_PACKET, libc::PACKET_STATISTICS)
            .map_or(0, |w| w[1])
    }

    /// How many frames a call sends at most.
    pub fn batch(&self) -> usize {
        self.headers.len()
    }

    /// Sends `count` frames of `len` bytes, which stand `stride` bytes apart in `frames`, without
    /// blocking; returns how many the kernel took.
    ///
    /// # Errors
    /// Why the *first* frame was not taken: `WouldBlock` when too much is in flight, `ENOBUFS` when
    /// the link dropped it.
    pub fn send(&mut self, frames: &[u8], stride: usize, len: usize, count: usize) -> io::Result<usize> {
        self.send_each(frames, stride, std::iter::repeat_n(len, count))
    }

    /// The same for frames of different lengths, one for each of `lens`.
    ///
    /// # Errors
    /// As for [`PacketSocket::send`].
    pub fn send_each(
        &mut self,
        frames: &[u8],
        stride: usize,
        lens: impl Iterator<Item = usize>,
    ) -> io::Result<usize> {
        let mut n = 0;
        for (i, len) in lens.take(self.headers.len()).enumerate() {
            let frame = i.checked_mul(stride).and_then(|start| frames.get(start..)?.get(..len));
            let Some(frame) = frame.filter(|_| len <= stride) else {
                return Err(io::ErrorKind::InvalidInput.into());
            };
            n += 1;
            self.iovecs[i] = libc::iovec { iov_base: frame.as_ptr().cast_mut().cast(), iov_len: len };
            let h = &mut self.headers[i].msg_hdr;
            h.msg_iov = &raw mut self.iovecs[i];
            h.msg_iovlen = 1;
        }
        if n == 0 {
            return Ok(0);
        }
        // SAFETY: the first `n` headers point to their iovecs, which were written above and point
        // to bytes inside `frames` (checked), borrowed for the call; the kernel only reads through
        // iov_base when sending. Names and control messages are null with length zero since the
        // headers were made.
        let sent = unsafe {
            libc::sendmmsg(
                self.fd.as_raw_fd(),
                self.headers.as_mut_ptr(),
                n as libc::c_uint,
                libc::MSG_DONTWAIT as _,
            )
        };
        usize::try_from(sent).map_err(|_| io::Error::last_os_error())
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn bind(fd: &OwnedFd, index: u32, protocol: u16) -> io::Result<()> {
    // SAFETY: a plain C structure for which all zeroes is valid.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = protocol.to_be();
    address.sll_ifindex = index.cast_signed();
    // SAFETY: the pointer is to a live sockaddr_ll and the length is its size; the descriptor is
    // open.
    let r = unsafe {
        libc::bind(
            fd.as_raw_fd(),
            (&raw const address).cast(),
            size_of::<libc::sockaddr_ll>() as libc::socklen_t,
        )
    };
    if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
