//! The memory that an `AF_XDP` socket shares with the kernel: frames (the UMEM), the rings that
//! give them to the kernel to be filled or sent, and the rings on which they come back
//! (Documentation/networking/af_xdp.rst).
//!
//! ```text
//!        fill ring: addresses of free frames          receive ring: address and length
//! we ──────────────────────────────────────▶ kernel ──────────────────────────────────▶ we
//!        send ring: address and length                completion ring: addresses
//! ```
//!
//! Each ring is an array with two counters that only grow (and wrap): the producer's and the
//! consumer's. The kernel is a reader or writer on the other side at any time, so counters are
//! atomic, and frames are copied by raw pointers and never borrowed as slices of one whole.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// Memory from `mmap`, unmapped when dropped.
#[derive(Debug)]
pub(super) struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: it is memory that belongs to this value alone; whoever writes to it has the value or is
// the kernel.
unsafe impl Send for Mapping {}

impl Mapping {
    /// Fresh zeroed memory, at the start of a page.
    pub(super) fn anonymous(len: usize) -> io::Result<Self> {
        Self::map(len, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0)
    }

    /// A ring of a socket.
    fn ring(fd: BorrowedFd<'_>, len: usize, page_offset: i64) -> io::Result<Self> {
        Self::map(len, libc::MAP_SHARED | libc::MAP_POPULATE, fd.as_raw_fd(), page_offset)
    }

    fn map(len: usize, flags: i32, fd: i32, offset: i64) -> io::Result<Self> {
        // SAFETY: a new mapping at an address of the kernel's choice touches no memory that exists.
        let at = unsafe {
            libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, fd, offset)
        };
        match NonNull::new(at.cast()) {
            Some(start) if at != libc::MAP_FAILED => Ok(Self { start, len }),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// Address of the memory, as the kernel is told it.
    pub(super) fn address(&self) -> u64 {
        self.start.as_ptr() as u64
    }

    /// Bytes.
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// The place of `len` bytes at `at`; `None` when they are not all inside.
    fn inside(&self, at: u64, len: usize) -> Option<usize> {
        usize::try_from(at).ok().filter(|at| at.checked_add(len).is_some_and(|end| end <= self.len))
    }

    /// Copies `from` to the bytes at `at`. False when they are not all inside.
    pub(super) fn copy_from(&mut self, at: u64, from: &[u8]) -> bool {
        let Some(at) = self.inside(at, from.len()) else { return false };
        // SAFETY: the destination is inside the mapping, as was just checked; the source is a live
        // slice elsewhere. The kernel does not look there meanwhile: the frame is not in the send
        // ring yet, and it is not before it came back by the completion ring.
        unsafe { std::ptr::copy_nonoverlapping(from.as_ptr(), self.start.as_ptr().add(at), from.len()) };
        true
    }

    /// Copies the bytes at `at` to `to`. False when they are not all inside.
    pub(super) fn copy_to(&self, at: u64, to: &mut [u8]) -> bool {
        let Some(at) = self.inside(at, to.len()) else { return false };
        // SAFETY: the source is inside the mapping, as was just checked; the destination is a live
        // slice elsewhere. The kernel does not write there meanwhile: the frame came out of the
        // receive ring and is not yet in the fill ring.
        unsafe { std::ptr::copy_nonoverlapping(self.start.as_ptr().add(at), to.as_mut_ptr(), to.len()) };
        true
    }

    /// The `T` at byte `at`.
    fn at<T>(&self, at: usize) -> io::Result<NonNull<T>> {
        let inside = at.checked_add(size_of::<T>()).is_some_and(|end| end <= self.len);
        match inside && at.is_multiple_of(align_of::<T>()) {
            // SAFETY: inside the mapping and aligned (the mapping is, to a page).
            true => Ok(unsafe { self.start.add(at).cast() }),
            false => Err(io::ErrorKind::InvalidData.into()),
        }
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what was mapped, and nothing refers to it any more: rings own
        // their mapping.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
    }
}

/// One ring of `T`.
#[derive(Debug)]
pub(super) struct Ring<T> {
    producer: NonNull<AtomicU32>,
    consumer: NonNull<AtomicU32>,
    flags: NonNull<AtomicU32>,
    entries: NonNull<T>,
    /// Number of entries, a power of two, less one.
    mask: u32,
    /// Our own counter: the next to be written or read.
    next: u32,
    _mapping: Mapping,
}

// SAFETY: the pointers are into the mapping that the value owns.
unsafe impl<T: Send> Send for Ring<T> {}

impl<T: Copy> Ring<T> {
    /// Maps the ring of `fd` at `page_offset`, which has `count` entries laid out as `offsets`
    /// says.
    pub(super) fn map(
        fd: BorrowedFd<'_>,
        page_offset: i64,
        offsets: &libc::xdp_ring_offset,
        count: u32,
    ) -> io::Result<Self> {
        let at =
            |offset: u64| usize::try_from(offset).map_err(|_| io::Error::from(io::ErrorKind::InvalidData));
        let (first, size) = (at(offsets.desc)?, count as usize * size_of::<T>());
        let mapping = Mapping::ring(fd, first + size, page_offset)?;
        // The last entry is inside too, then.
        mapping.at::<T>(first + size - size_of::<T>())?;
        Ok(Self {
            producer: mapping.at(at(offsets.producer)?)?,
            consumer: mapping.at(at(offsets.consumer)?)?,
            flags: mapping.at(at(offsets.flags)?)?,
            entries: mapping.at(first)?,
            mask: count - 1,
            next: 0,
            _mapping: mapping,
        })
    }

    fn counter(&self, which: NonNull<AtomicU32>) -> &AtomicU32 {
        // SAFETY: points into the mapping that `self` owns, aligned; the kernel, too, accesses it
        // atomically.
        unsafe { which.as_ref() }
    }

    fn entry(&self, i: u32) -> NonNull<T> {
        // SAFETY: the mask keeps the index below the number of entries, all of which are inside the
        // mapping.
        unsafe { self.entries.add((i & self.mask) as usize) }
    }

    /// Writes `value` behind the last one. The caller never has more entries in the ring than it
    /// holds. The kernel sees it after [`Self::publish`].
    pub(super) fn push(&mut self, value: T) {
        // SAFETY: inside the mapping; the kernel does not read entries that the producer counter
        // has not passed.
        unsafe { self.entry(self.next).write(value) };
        self.next = self.next.wrapping_add(1);
    }

    /// Shows the kernel what was pushed.
    pub(super) fn publish(&self) {
        self.counter(self.producer).store(self.next, Ordering::Release);
    }

    /// How many published entries the kernel has not read.
    pub(super) fn unread(&self) -> u32 {
        self.next.wrapping_sub(self.counter(self.consumer).load(Ordering::Acquire))
    }

    /// How many entries the kernel has written that we have not read. More than the ring holds
    /// cannot be.
    pub(super) fn available(&self) -> u32 {
        self.counter(self.producer).load(Ordering::Acquire).wrapping_sub(self.next).min(self.mask + 1)
    }

    /// The next entry that is available.
    pub(super) fn pop(&mut self) -> T {
        // SAFETY: inside the mapping, and written by the kernel before it moved the producer
        // counter past it, which
        // `available` has seen; any bit pattern is a valid entry (of integers only).
        let value = unsafe { self.entry(self.next).read() };
        self.next = self.next.wrapping_add(1);
        value
    }

    /// Gives the kernel back the room of what was popped.
    pub(super) fn release(&self) {
        self.counter(self.consumer).store(self.next, Ordering::Release);
    }

    /// The kernel sleeps, and is to be called to look at the ring.
    pub(super) fn needs_wakeup(&self) -> bool {
        self.counter(self.flags).load(Ordering::Relaxed) & libc::XDP_RING_NEED_WAKEUP != 0
    }
}
