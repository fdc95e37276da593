//! An `AF_XDP` socket on one receive queue, for receiving only.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::time::Duration;

use super::frame::{self, Esp};
use super::ring::{Mapping, Ring};
use crate::mmsg::Received;
use crate::sockopt;

/// Frames of one socket. Both rings have as many entries: when all are taken, the kernel finds none
/// to fill and drops before it copies, which is the cheapest place.
pub(super) const FRAMES: u32 = 2048;
/// Bytes of a slot that holds any frame. Slots are not a power of two apart: the headers of small
/// packets would all fall into the same cache sets.
pub const SLOT: usize = 4096 - HEADROOM as usize + 64;
/// Bytes at the front of each frame that the kernel keeps for itself (`XDP_PACKET_HEADROOM`).
pub(super) const HEADROOM: u16 = 256;

/// How often, and how long apart, a queue that is taken is tried.
const BUSY_TRIES: u32 = 500;
const BUSY_PAUSE: Duration = Duration::from_millis(1);

/// Counters of one socket, since it was opened. What arrived is received or dropped, and dropped in
/// one place.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct XdpStats {
    /// Frames taken from the ring.
    pub frames: u64,
    /// Of these, dropped by us: headers that contradict each other, or a wrong IPv4 checksum.
    pub malformed: u64,
    /// Dropped by the kernel, since all frames were waiting for us: we did not keep up.
    pub no_frame: u64,
    /// Dropped by the kernel, since the receive ring was full.
    pub ring_full: u64,
    /// Dropped by the kernel for another reason.
    pub other: u64,
}

impl XdpStats {
    /// Each with its name.
    pub fn named(&self) -> [(&'static str, u64); 5] {
        [
            ("xdp-frames", self.frames),
            ("xdp-malformed", self.malformed),
            ("xdp-no-frame", self.no_frame),
            ("xdp-ring-full", self.ring_full),
            ("xdp-other", self.other),
        ]
    }

    /// All that was dropped.
    pub fn dropped(&self) -> u64 {
        self.malformed + self.no_frame + self.ring_full + self.other
    }
}

impl std::ops::Add for XdpStats {
    type Output = Self;
    fn add(self, b: Self) -> Self {
        Self {
            frames: self.frames + b.frames,
            malformed: self.malformed + b.malformed,
            no_frame: self.no_frame + b.no_frame,
            ring_full: self.ring_full + b.ring_full,
            other: self.other + b.other,
        }
    }
}

/// An open socket with its memory. It belongs to one thread at a time.
#[derive(Debug)]
pub struct XdpSocket {
    // The order is that of dropping: first the rings, then the socket, and its frames last.
    fill: Ring<u64>,
    receive: Ring<libc::xdp_desc>,
    fd: OwnedFd,
    memory: Mapping,
    frame: u32,
    index: u32,
    port: u16,
    frames: u64,
    malformed: u64,
}

/// Interface and queue that a socket is bound to.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueBinding {
    pub index: u32,
    pub queue: u32,
    /// Bytes of each frame, headroom included: 2,048 or 4,096.
    pub frame: u32,
    pub port: u16,
}

/// Binds, with patience: the kernel takes a socket that was closed off its queue some time after.
pub(super) fn bind(fd: BorrowedFd<'_>, address: &libc::sockaddr_xdp) -> io::Result<()> {
    let size = size_of::<libc::sockaddr_xdp>() as libc::socklen_t;
    let mut tries = BUSY_TRIES;
    loop {
        // SAFETY: the pointer is to a live sockaddr_xdp of that size, which the kernel reads.
        if unsafe { libc::bind(fd.as_raw_fd(), std::ptr::from_ref(address).cast(), size) } == 0 {
            return Ok(());
        }
        let error = io::Error::last_os_error();
        tries -= 1;
        if error.raw_os_error() != Some(libc::EBUSY) || tries == 0 {
            return Err(error);
        }
        std::thread::sleep(BUSY_PAUSE);
    }
}

impl XdpSocket {
    /// Opens a socket that is on no queue: something to put into a map.
    pub(super) fn unbound() -> io::Result<OwnedFd> {
        // SAFETY: no addresses; a descriptor that it gives is ours alone.
        unsafe {
            match libc::socket(libc::AF_XDP, libc::SOCK_RAW | libc::SOCK_CLOEXEC, 0) {
                -1 => Err(io::Error::last_os_error()),
                fd => Ok(OwnedFd::from_raw_fd(fd)),
            }
        }
    }

    /// Opens and binds one, with all its frames given to the kernel.
    pub(super) fn open(place: QueueBinding) -> io::Result<Self> {
        let fd = Self::unbound()?;
        let memory = Mapping::anonymous(FRAMES as usize * place.frame as usize)?;
        // Nothing is sent, but the kernel wants a completion ring.
        share(fd.as_fd(), &memory, place.frame, [FRAMES, 1])?;
        set(fd.as_fd(), libc::XDP_RX_RING, &FRAMES)?;
        let offsets: libc::xdp_mmap_offsets = get(fd.as_fd(), libc::XDP_MMAP_OFFSETS)?;
        let fill_offset = libc::XDP_UMEM_PGOFF_FILL_RING as i64;
        let mut fill = Ring::map(fd.as_fd(), fill_offset, &offsets.fr, FRAMES)?;
        let receive = Ring::map(fd.as_fd(), libc::XDP_PGOFF_RX_RING, &offsets.rx, FRAMES)?;
        (0..FRAMES).for_each(|i| fill.push(u64::from(i) * u64::from(place.frame)));
        fill.publish();
        let address = libc::sockaddr_xdp {
            sxdp_family: libc::AF_XDP as u16,
            // Neither copy nor zero-copy is asked for: the driver does what it can.
            sxdp_flags: libc::XDP_USE_NEED_WAKEUP,
            sxdp_ifindex: place.index,
            sxdp_queue_id: place.queue,
            sxdp_shared_umem_fd: 0,
        };
        bind(fd.as_fd(), &address)?;
        Ok(Self {
            fill,
            receive,
            fd,
            memory,
            frame: place.frame,
            index: place.index,
            port: place.port,
            frames: 0,
            malformed: 0,
        })
    }

    /// Copies the ESP packets that are waiting into consecutive slots of `slot` bytes of `buf`, as
    /// many as fit, without blocking; each with the headers in front of it. A slot of [`SLOT`]
    /// bytes holds whatever comes. Appends one [`Received`] each to `out`: the sender's port is 0
    /// for ESP without UDP, and only for that. Returns how many frames were taken from the ring, of
    /// which some may have been malformed.
    pub fn recv(&mut self, buf: &mut [u8], slot: usize, out: &mut Vec<Received>) -> usize {
        let fit = u32::try_from(buf.len().checked_div(slot).unwrap_or(0)).unwrap_or(u32::MAX);
        let n = self.receive.available().min(fit);
        let mut start = 0;
        for _ in 0..n {
            let entry = self.receive.pop();
            self.frames += 1;
            match self.take(entry, &mut buf[start..start + slot]) {
                Some(esp) => {
                    let len = esp.range.len();
                    out.push(Received {
                        offset: start + esp.range.start,
                        len,
                        segment: len,
                        local: esp.local,
                        remote: esp.remote,
                        tos: esp.tos,
                        truncated: false,
                    });
                    start += slot;
                }
                None => self.malformed += 1,
            }
            // Back to the kernel, as the start of its frame.
            self.fill.push(entry.addr - entry.addr % u64::from(self.frame));
        }
        if n != 0 {
            self.receive.release();
            self.fill.publish();
        }
        // The kernel reads the ring after it has set the flag; we write the ring before we read it.
        std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
        if self.fill.needs_wakeup() {
            // Drivers with zero-copy may stop when they have no frames; a receive that takes
            // nothing starts them.
            let _ = rustix::net::recv(&self.fd, &mut [0u8; 0], rustix::net::RecvFlags::DONTWAIT);
        }
        n as usize
    }

    /// Copies the frame of one entry to the beginning of `slot`, and looks at the copy.
    fn take(&self, entry: libc::xdp_desc, slot: &mut [u8]) -> Option<Esp> {
        let frame = slot.get_mut(..entry.len as usize)?;
        self.memory.copy_to(entry.addr, frame).then(|| frame::parse(frame, self.index, self.port))?
    }

    /// True, once, when the kernel has taken it off its queue: the interface is gone, whatever has
    /// its name and number now.
    pub fn is_unbound(&self) -> bool {
        sockopt::get_words::<1>(self.fd.as_fd(), libc::SOL_SOCKET, libc::SO_ERROR)
            .is_ok_and(|[error]| error != 0)
    }

    /// Counters, of our side and the kernel's.
    pub fn stats(&self) -> XdpStats {
        let ours = XdpStats { frames: self.frames, malformed: self.malformed, ..XdpStats::default() };
        // A kernel before 5.9 gives fewer counters, which is an error here; it has no links to
        // attach by, either.
        let Ok(kernel) = get::<libc::xdp_statistics>(self.fd.as_fd(), libc::XDP_STATISTICS) else {
            return ours;
        };
        // The kernel counts a packet that found no free frame twice: there and in rx_dropped.
        let no_frame = kernel.rx_fill_ring_empty_descs.min(kernel.rx_dropped);
        XdpStats {
            no_frame,
            ring_full: kernel.rx_ring_full,
            other: kernel.rx_dropped - no_frame + kernel.rx_invalid_descs,
            ..ours
        }
    }
}

impl AsFd for XdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Gives the kernel `memory`, in frames of so many bytes, with a fill and a completion ring of so
/// many entries.
pub(super) fn share(
    fd: BorrowedFd<'_>,
    memory: &Mapping,
    frame: u32,
    [fill, completion]: [u32; 2],
) -> io::Result<()> {
    let umem = libc::xdp_umem_reg {
        addr: memory.address(),
        len: memory.len() as u64,
        chunk_size: frame,
        headroom: 0,
        flags: 0,
        tx_metadata_len: 0,
    };
    set(fd, libc::XDP_UMEM_REG, &umem)?;
    set(fd, libc::XDP_UMEM_FILL_RING, &fill)?;
    set(fd, libc::XDP_UMEM_COMPLETION_RING, &completion)
}

/// `setsockopt` of a plain C structure.
pub(super) fn set<T>(fd: BorrowedFd<'_>, name: i32, value: &T) -> io::Result<()> {
    let size = size_of::<T>() as libc::socklen_t;
    // SAFETY: the pointer is to a live T and the length is its size; the kernel reads it.
    let r = unsafe {
        libc::setsockopt(fd.as_raw_fd(), libc::SOL_XDP, name, std::ptr::from_ref(value).cast(), size)
    };
    if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Structures of integers that the kernel fills in.
pub(super) trait Plain {}
impl Plain for libc::xdp_mmap_offsets {}
impl Plain for libc::xdp_statistics {}

/// `getsockopt` of one; an error when the kernel gives less.
pub(super) fn get<T: Plain>(fd: BorrowedFd<'_>, name: i32) -> io::Result<T> {
    // SAFETY: a structure of integers, for which all zeroes is valid.
    let mut value: T = unsafe { std::mem::zeroed() };
    let mut len = size_of::<T>() as libc::socklen_t;
    // SAFETY: both pointers are to live variables, and `len` is the size of the first.
    let r = unsafe {
        libc::getsockopt(fd.as_raw_fd(), libc::SOL_XDP, name, (&raw mut value).cast(), &raw mut len)
    };
    match r {
        0 if len as usize == size_of::<T>() => Ok(value),
        0 => Err(io::ErrorKind::Unsupported.into()),
        _ => Err(io::Error::last_os_error()),
    }
}
