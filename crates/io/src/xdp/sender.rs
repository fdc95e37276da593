//! An `AF_XDP` socket on one send queue, for sending only: frames are copied into memory that is
//! shared with the kernel, and a system call has it take what is there. For the load generator of
//! the laboratory; the gateway sends nothing this way. The interface needs no program.
//!
//! ```text
//!     send ring: address and length         completion ring: addresses of frames that are gone
//! we ──────────────────────────────▶ kernel ─────────────────────────────────────────────────▶ we
//! ```
//! The socket asks for the kernel's copying mode, which every interface has: the kernel copies each
//! frame within the call, so the send ring is empty afterwards, and what the interface dropped at
//! once is known. The memory of a frame is free again when the packet has been received by the
//! network stack at the other end of a veth pair, or has left a network card.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use super::ring::{Mapping, Ring};
use super::socket::{XdpSocket, bind, get, set, share};
use super::{SetupStep, XdpError};
use crate::route::Netlink;
use crate::sockopt;

/// Pieces of the shared memory, and entries of both rings: more frames than queues on the way hold.
const PIECES: u32 = 4096;
/// Bytes of a piece that holds any ordinary frame, and of one for larger frames. The kernel allows
/// no piece larger than a page.
const ORDINARY: u32 = 2048;
const LARGE: u32 = 4096;
/// How long the kernel may take none of the frames of a call. It takes every frame unless it is
/// out of memory.
const STUCK_AT_MOST: Duration = Duration::from_millis(100);

/// What became of the frames of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Handed {
    /// Frames that the kernel took, the first ones of those given.
    pub frames: usize,
    /// Of these: dropped by the interface at once.
    pub refused: usize,
}

/// An open socket with its memory. It belongs to one thread at a time.
#[derive(Debug)]
pub struct XdpSender {
    // The order is that of dropping: first the rings, then the socket, and its memory last.
    ring: Ring<libc::xdp_desc>,
    completed: Ring<u64>,
    fd: OwnedFd,
    memory: Mapping,
    /// Bytes of a piece.
    piece: u32,
    /// Addresses of pieces that hold no frame.
    free: Vec<u64>,
}

impl XdpSender {
    /// A socket on a send queue of the interface of that name in the caller's network namespace,
    /// for frames of up to `largest` bytes and `buffer` bytes in flight. A queue has one such
    /// socket at a time; one that was closed just now is waited for.
    ///
    /// # Errors
    /// Names what is missing, with the remedy.
    pub fn open(interface: &str, queue: u32, largest: usize, buffer: u32) -> Result<Self, XdpError> {
        let refused =
            |source| XdpError::Refused { interface: interface.to_string(), step: SetupStep::Socket, source };
        let fd = XdpSocket::unbound().map_err(refused)?;
        let link = Netlink::open().and_then(|mut netlink| netlink.ethernet(interface));
        let link = link.map_err(XdpError::Interface)?;
        let link = link.ok_or_else(|| XdpError::NotEthernet { interface: interface.to_string() })?;
        Self::on(fd, (link.index, queue), largest, buffer).map_err(refused)
    }

    fn on(fd: OwnedFd, (index, queue): (u32, u32), largest: usize, buffer: u32) -> io::Result<Self> {
        let piece = if largest <= ORDINARY as usize { ORDINARY } else { LARGE };
        let memory = Mapping::anonymous(PIECES as usize * piece as usize)?;
        // Nothing is received, but the kernel wants a fill ring.
        share(fd.as_fd(), &memory, piece, [1, PIECES])?;
        set(fd.as_fd(), libc::XDP_TX_RING, &PIECES)?;
        sockopt::buffers(fd.as_fd(), i32::try_from(buffer).unwrap_or(i32::MAX))?;
        let offsets: libc::xdp_mmap_offsets = get(fd.as_fd(), libc::XDP_MMAP_OFFSETS)?;
        let completion_offset = libc::XDP_UMEM_PGOFF_COMPLETION_RING as i64;
        let completed = Ring::map(fd.as_fd(), completion_offset, &offsets.cr, PIECES)?;
        let ring = Ring::map(fd.as_fd(), libc::XDP_PGOFF_TX_RING, &offsets.tx, PIECES)?;
        let several = if largest > LARGE as usize { libc::XDP_USE_SG } else { 0 };
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: libc::XDP_COPY | several,
            sxdp_ifindex: index,
            sxdp_queue_id: queue,
            sxdp_shared_umem_fd: 0,
        };
        bind(fd.as_fd(), &address)?;
        // The piece that came back last is used first: it is still in the processor's cache.
        let free = (0..PIECES).rev().map(|n| u64::from(n) * u64::from(piece)).collect();
        Ok(Self { ring, completed, fd, memory, piece, free })
    }

    /// Why frames of up to `largest` bytes cannot be sent on this machine; `None` when they can, as
    /// far as that shows without an interface.
    pub fn lacks(largest: usize) -> Option<io::Error> {
        let fd = match XdpSocket::unbound() {
            Ok(fd) => fd,
            Err(e) => return Some(e),
        };
        if largest <= LARGE as usize {
            return None;
        }
        // No interface has this number: what a kernel that knows the flag says is that.
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            sxdp_flags: libc::XDP_COPY | libc::XDP_USE_SG,
            sxdp_ifindex: 0,
            sxdp_queue_id: 0,
            sxdp_shared_umem_fd: 0,
        };
        let refused = bind(fd.as_fd(), &address).err();
        refused.filter(|e| e.raw_os_error() == Some(libc::EINVAL))
    }

    /// Sends frames that stand `stride` bytes apart in `frames`, one for each of `lens`, as many as
    /// there is memory for.
    ///
    /// # Errors
    /// `WouldBlock` when all memory is in flight; else why the kernel takes no frames.
    pub fn send_each(
        &mut self,
        frames: &[u8],
        stride: usize,
        lens: impl Iterator<Item = usize>,
    ) -> io::Result<Handed> {
        for _ in 0..self.completed.available() {
            let gone = self.completed.pop();
            self.free.push(gone - gone % u64::from(self.piece));
        }
        self.completed.release();
        let mut handed = Handed::default();
        for (i, len) in lens.enumerate() {
            let frame = i.checked_mul(stride).and_then(|start| frames.get(start..)?.get(..len));
            let frame = frame.filter(|_| (1..=stride).contains(&len));
            let frame = frame.ok_or(io::ErrorKind::InvalidInput)?;
            if !self.push(frame) {
                break;
            }
            handed.frames += 1;
        }
        if handed.frames == 0 {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.ring.publish();
        handed.refused = self.flush()?;
        Ok(handed)
    }

    /// Copies a frame into as many pieces as it needs; false when there are not as many.
    fn push(&mut self, frame: &[u8]) -> bool {
        let pieces = frame.chunks(self.piece as usize);
        if pieces.len() > self.free.len() {
            return false;
        }
        let mut left = pieces.len();
        for bytes in pieces {
            left -= 1;
            let Some(addr) = self.free.pop() else { return false };
            self.memory.copy_from(addr, bytes);
            let options = if left > 0 { libc::XDP_PKT_CONTD } else { 0 };
            self.ring.push(libc::xdp_desc { addr, len: bytes.len() as u32, options });
        }
        true
    }

    /// Has the kernel take all that is in the send ring; how many frames the interface dropped at
    /// once.
    fn flush(&mut self) -> io::Result<usize> {
        let mut refused = 0;
        let mut stuck: Option<Instant> = None;
        loop {
            let before = self.ring.unread();
            let sent = rustix::net::send(&self.fd, &[], rustix::net::SendFlags::DONTWAIT);
            let dropped = sent == Err(rustix::io::Errno::BUSY);
            refused += usize::from(dropped);
            match sent {
                Ok(_) => {}
                // A call takes some tens of frames, and ends at one that is dropped. Without memory
                // for a packet it takes none.
                Err(
                    rustix::io::Errno::AGAIN
                    | rustix::io::Errno::BUSY
                    | rustix::io::Errno::INTR
                    | rustix::io::Errno::NOMEM
                    | rustix::io::Errno::NOBUFS,
                ) => {}
                Err(e) => return Err(e.into()),
            }
            let left = self.ring.unread();
            if left == 0 {
                return Ok(refused);
            }
            // The kernel does not show at once that it took a frame which was dropped.
            if dropped || left < before {
                stuck = None;
                continue;
            }
            let now = crate::clock::now();
            if now - *stuck.get_or_insert(now) > STUCK_AT_MOST {
                return Err(io::ErrorKind::TimedOut.into());
            }
            std::thread::yield_now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_interface_is_an_error_and_frames_of_a_page_need_nothing_more() {
        let refused = XdpSender::open("no-such-device", 0, 1514, 1 << 20).map(|_| ());
        let said = refused.expect_err("no interface").to_string();
        // Without the privilege there is not even a socket.
        assert!(said.contains("no-such-device"), "{said}");
        let errors = [1514, 4096].map(|largest| XdpSender::lacks(largest).and_then(|e| e.raw_os_error()));
        assert_eq!(errors[0], errors[1]);
        assert_ne!(errors[0], Some(libc::EINVAL));
    }
}
