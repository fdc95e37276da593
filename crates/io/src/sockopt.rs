//! Socket options: integers, words, and a filter.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::time::Duration;

/// asm-generic/socket.h
const SO_PREFER_BUSY_POLL: i32 = 69;

/// `setsockopt` with an `int`.
pub(crate) fn set(fd: BorrowedFd<'_>, level: i32, name: i32, value: i32) -> io::Result<()> {
    // SAFETY: the pointer is to a live i32 and the length is its size; the descriptor is open for
    // the borrow's life.
    let r = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            size_of::<i32>() as libc::socklen_t,
        )
    };
    if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// `setsockopt` with 32-bit words.
pub(crate) fn set_words(fd: BorrowedFd<'_>, level: i32, name: i32, words: &[u32]) -> io::Result<()> {
    let len = size_of_val(words) as libc::socklen_t;
    // SAFETY: the pointer is to live words and the length is theirs; the descriptor is open for the
    // borrow's life.
    let r = unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, words.as_ptr().cast(), len) };
    if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// `getsockopt` of `N` 32-bit words; an error when the kernel gives fewer.
pub(crate) fn get_words<const N: usize>(fd: BorrowedFd<'_>, level: i32, name: i32) -> io::Result<[u32; N]> {
    let mut value = [0u32; N];
    let mut len = size_of::<[u32; N]>() as libc::socklen_t;
    // SAFETY: both pointers are to live variables, and `len` is the size of the first.
    let r = unsafe { libc::getsockopt(fd.as_raw_fd(), level, name, value.as_mut_ptr().cast(), &raw mut len) };
    match r {
        0 if len as usize == size_of::<[u32; N]>() => Ok(value),
        0 => Err(io::ErrorKind::Unsupported.into()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Keeps everything that arrives out of the socket.
pub(crate) fn refuse_all(fd: BorrowedFd<'_>) -> io::Result<()> {
    // BPF_RET | BPF_K: this many bytes of the packet.
    filter(fd, &mut [libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: 0 }])
}

/// Lets into the socket what these instructions say.
pub(crate) fn filter(fd: BorrowedFd<'_>, instructions: &mut [libc::sock_filter]) -> io::Result<()> {
    let len = u16::try_from(instructions.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    let program = libc::sock_fprog { len, filter: instructions.as_mut_ptr() };
    // SAFETY: the pointer is to a live sock_fprog of that size, whose filter points to as many live
    // instructions as it counts; the kernel copies both. The descriptor is open for the borrow's
    // life.
    let r = unsafe {
        libc::setsockopt(
            fd.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_ATTACH_FILTER,
            (&raw const program).cast(),
            size_of::<libc::sock_fprog>() as libc::socklen_t,
        )
    };
    if r == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Asks for a socket buffer of `bytes` past the system's limit, and within the limit when that is
/// not permitted.
pub(crate) fn buffers(fd: BorrowedFd<'_>, bytes: i32) -> io::Result<()> {
    for (force, plain) in [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)] {
        if set(fd, libc::SOL_SOCKET, force, bytes).is_err() {
            set(fd, libc::SOL_SOCKET, plain, bytes)?;
        }
    }
    Ok(())
}

/// Bytes of receive and send buffer in use. The kernel doubles what is asked for, for its own
/// bookkeeping; here it is what was asked for.
pub(crate) fn granted_buffers(fd: BorrowedFd<'_>) -> [u32; 2] {
    [libc::SO_RCVBUF, libc::SO_SNDBUF]
        .map(|name| get_words::<1>(fd, libc::SOL_SOCKET, name).map_or(0, |w| w[0] / 2))
}

/// Lets a read that finds nothing poll the network card, and interrupts wait while it does; nothing
/// at zero. Kernels without either (5.11 has both) sleep instead.
pub(crate) fn busy_poll(fd: BorrowedFd<'_>, time: Duration) {
    let Ok(usecs @ 1..) = i32::try_from(time.as_micros()) else { return };
    let _ = set(fd, libc::SOL_SOCKET, libc::SO_BUSY_POLL, usecs);
    let _ = set(fd, libc::SOL_SOCKET, SO_PREFER_BUSY_POLL, 1);
}
