//! epoll, level-triggered, and the eventfd that wakes it.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::time::Duration;

use rustix::event::{EventfdFlags, epoll};

use crate::error::Error;

/// linux/eventpoll.h: `_IOW(0x8A, 0x01, struct epoll_params)`
const EPIOCSPARAMS: u32 = 0x4008_8a01;
/// Packets of one poll of a card: the most that takes no privilege.
const BUSY_BUDGET: u16 = 64;

/// `struct epoll_params`
#[repr(C)]
struct EpollParams {
    usecs: u32,
    budget: u16,
    prefer: u8,
    pad: u8,
}

/// A set of descriptors to wait for. Each is known by a number of the caller's.
#[derive(Debug)]
pub struct Poller {
    epoll: OwnedFd,
}

impl Poller {
    /// An empty set.
    ///
    /// # Errors
    /// When the system has no more descriptors.
    pub fn new() -> Result<Self, Error> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)
            .map_err(|e| Error::System { what: "epoll_create", source: e.into() })?;
        Ok(Self { epoll })
    }

    /// Lets a wait poll the network cards of the sockets it waits for, for up to `time`, before it
    /// sleeps. False where the kernel cannot (before 6.9) or where nothing is asked for.
    pub fn busy_poll(&self, time: Duration) -> bool {
        let usecs = u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        if usecs == 0 {
            return false;
        }
        let params = EpollParams { usecs, budget: BUSY_BUDGET, prefer: 1, pad: 0 };
        // SAFETY: EPIOCSPARAMS reads one epoll_params, which lives through the call; the descriptor
        // is open.
        let r = unsafe { libc::ioctl(self.epoll.as_raw_fd(), EPIOCSPARAMS as _, &raw const params) };
        r == 0
    }

    /// Waits for `fd` to become readable, from now on. It must outlive the set or be removed by
    /// being closed.
    ///
    /// # Errors
    /// When `fd` cannot be waited for.
    pub fn add(&self, fd: impl AsFd, token: u64) -> Result<(), Error> {
        epoll::add(&self.epoll, fd, epoll::EventData::new_u64(token), epoll::EventFlags::IN)
            .map_err(|e| Error::System { what: "epoll_ctl", source: e.into() })
    }

    /// Waits for `fd` no more.
    pub fn remove(&self, fd: impl AsFd) {
        // Removing can only fail when the descriptor was not there.
        let _ = epoll::delete(&self.epoll, fd);
    }

    /// Blocks until something is readable or `timeout` has passed (`None`: for ever), and writes
    /// the numbers of what is readable (or broken) into `ready`. Being interrupted by a signal
    /// counts as nothing ready.
    ///
    /// # Errors
    /// An error of `epoll_wait`, which only a mistake of the caller can cause.
    pub fn wait(&self, ready: &mut Ready, timeout: Option<Duration>) -> io::Result<()> {
        ready.tokens.clear();
        let timeout = timeout.map(|d| rustix::event::Timespec {
            tv_sec: i64::try_from(d.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(d.subsec_nanos()),
        });
        match epoll::wait(&self.epoll, rustix::buffer::spare_capacity(&mut ready.events), timeout.as_ref()) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => return Ok(()),
            Err(e) => return Err(e.into()),
        }
        ready.tokens.extend(ready.events.drain(..).map(|e| e.data.u64()));
        Ok(())
    }
}

/// The result of [`Poller::wait`], kept between calls so that waiting allocates nothing.
pub struct Ready {
    events: Vec<epoll::Event>,
    tokens: Vec<u64>,
}

impl std::fmt::Debug for Ready {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Ready").field(&self.tokens).finish()
    }
}

impl Ready {
    /// Room for `n` at a time; more are reported by the next wait.
    pub fn with_capacity(n: usize) -> Self {
        Self { events: Vec::with_capacity(n.max(1)), tokens: Vec::with_capacity(n.max(1)) }
    }

    /// The numbers of what is ready.
    pub fn tokens(&self) -> &[u64] {
        &self.tokens
    }
}

/// Wakes a thread that waits in a [`Poller`].
#[derive(Debug)]
pub struct Waker(OwnedFd);

impl Waker {
    /// A new one, not raised.
    ///
    /// # Errors
    /// When the system has no more descriptors.
    pub fn new() -> Result<Self, Error> {
        rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)
            .map(Self)
            .map_err(|e| Error::System { what: "eventfd", source: e.into() })
    }

    /// Raises it. Cannot fail in a way that matters: a full counter is raised already.
    pub fn wake(&self) {
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }

    /// Lowers it; true when it was raised.
    pub fn clear(&self) -> bool {
        rustix::io::read(&self.0, &mut [0u8; 8]).is_ok()
    }
}

impl AsFd for Waker {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raised_waker_stays_ready_until_cleared() {
        let (poller, waker) = (Poller::new().unwrap(), Waker::new().unwrap());
        poller.add(&waker, 7).unwrap();
        let mut ready = Ready::with_capacity(4);
        poller.wait(&mut ready, Some(Duration::ZERO)).unwrap();
        assert!(ready.tokens().is_empty());
        waker.wake();
        waker.wake();
        for _ in 0..2 {
            poller.wait(&mut ready, None).unwrap();
            assert_eq!(ready.tokens(), [7]);
        }
        assert!(waker.clear());
        assert!(!waker.clear());
        poller.wait(&mut ready, Some(Duration::from_millis(1))).unwrap();
        assert!(ready.tokens().is_empty());
    }
}
