//! Network namespaces, and the mounts that go with them.

use crate::error::Error;

/// Moves the calling thread, and none other, into a new network namespace with nothing but a
/// loopback interface that is down. Sockets and devices made before stay where they were; those
/// made from now on are in the new one, which lives as long as a thread or socket is in it.
///
/// # Errors
/// [`Error::Privilege`].
pub fn unshare() -> Result<(), Error> {
    // SAFETY: what makes unsharing unsafe is that descriptors or memory could stop being shared
    // with other threads; a network namespace is neither, and only says where later sockets belong.
    unsafe { rustix::thread::unshare_unsafe(rustix::thread::UnshareFlags::NEWNET) }
        .map_err(|e| Error::system("making a network namespace", e.into()))
}

/// As [`unshare`], and the thread's mounts are its own too: a `/sys` that it mounts is of the new
/// network namespace.
///
/// # Errors
/// [`Error::Privilege`].
pub fn unshare_with_mounts() -> Result<(), Error> {
    let flags = rustix::thread::UnshareFlags::NEWNET | rustix::thread::UnshareFlags::NEWNS;
    // SAFETY: as above; with the mounts the thread gets a working directory and a umask of its own,
    // which are neither descriptors nor memory.
    unsafe { rustix::thread::unshare_unsafe(flags) }
        .map_err(|e| Error::system("making a network namespace", e.into()))
}
