//! Signals that a process ignores.

use std::io;

/// Ignores the signals by which a terminal or a service manager ends or reloads a daemon: SIGINT,
/// SIGTERM, SIGHUP and SIGQUIT. Programs that this process starts ignore them as well.
///
/// # Errors
/// The kernel refuses.
pub fn ignore_ends() -> io::Result<()> {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT] {
        // SAFETY: ignoring a signal runs no code of ours in a handler.
        if unsafe { libc::signal(signal, libc::SIG_IGN) } == libc::SIG_ERR {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
