//! Queue of messages for the key daemon, until it takes them.

use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::Mutex;
use std::sync::atomic::{
    AtomicBool,
    Ordering::{Acquire, Release},
};
use std::time::Duration;

use ironswan_wire::sadb::{RejectedPackets, ReqId, SaRef, Spi, Up};
use ironswan_wire::selector::PacketSelector;

/// Most acquires that wait. Expire and FirstUse are not limited here: there are at most three for
/// each SA; nor Moved, which [`crate::sa::ReportedSources`] limits, and Rejected, which
/// [`crate::audit::Audit`] limits.
const MAX_ACQUIRES: usize = 1024;

type Waker = Box<dyn Fn() + std::marker::Send + Sync>;

#[derive(Default)]
struct QueueState {
    queue: VecDeque<Up>,
    acquires: usize,
    last_acquire: HashMap<ReqId, Duration>,
}

/// The queue.
pub(crate) struct UpQueue {
    inner: Mutex<QueueState>,
    /// True while messages wait, so that an empty queue is asked without its lock.
    pending: AtomicBool,
    interval: Duration,
    waker: Mutex<Option<Waker>>,
}

impl UpQueue {
    pub(crate) fn new(interval: Duration) -> Self {
        Self { inner: Mutex::default(), pending: AtomicBool::new(false), interval, waker: Mutex::new(None) }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, QueueState> {
        self.inner.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    pub(crate) fn set_waker(&self, waker: Waker) {
        *self.waker.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = Some(waker);
    }

    fn wake(&self) {
        self.pending.store(true, Release);
        if let Some(waker) = &*self.waker.lock().unwrap_or_else(std::sync::PoisonError::into_inner) {
            waker();
        }
    }

    /// Queues an acquire: at most one for each reqid and interval, and as many as the queue takes.
    /// A suppressed one may be tried again at the time in `Err`.
    #[cold]
    pub(crate) fn acquire(
        &self,
        now: Duration,
        reqid: ReqId,
        packet: PacketSelector,
    ) -> Result<(), Duration> {
        let mut inner = self.lock();
        if let Some(last) = inner.last_acquire.get(&reqid)
            && now < *last + self.interval
        {
            return Err(*last + self.interval);
        }
        if inner.acquires >= MAX_ACQUIRES {
            return Err(now + self.interval);
        }
        if inner.last_acquire.len() >= 2 * MAX_ACQUIRES {
            let interval = self.interval;
            inner.last_acquire.retain(|_, at| now < *at + interval);
        }
        inner.last_acquire.insert(reqid, now);
        inner.acquires += 1;
        inner.queue.push_back(Up::Acquire { reqid, packet });
        drop(inner);
        self.wake();
        Ok(())
    }

    #[cold]
    pub(crate) fn expire(&self, sa: SaRef, hard: bool) {
        self.lock().queue.push_back(Up::Expire { sa, hard });
        self.wake();
    }

    #[cold]
    pub(crate) fn first_use(&self, spi: Spi) {
        self.lock().queue.push_back(Up::FirstUse { spi });
        self.wake();
    }

    #[cold]
    pub(crate) fn moved(&self, spi: Spi, remote: SocketAddr) {
        self.lock().queue.push_back(Up::Moved { spi, remote });
        self.wake();
    }

    #[cold]
    pub(crate) fn rejected(&self, rejected: RejectedPackets) {
        self.lock().queue.push_back(Up::Rejected(rejected));
        self.wake();
    }

    pub(crate) fn take(&self) -> Vec<Up> {
        if !self.pending.swap(false, Acquire) {
            return Vec::new();
        }
        let mut inner = self.lock();
        inner.acquires = 0;
        inner.queue.drain(..).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn packet() -> PacketSelector {
        let a = "10.0.0.1".parse().unwrap();
        PacketSelector { src: a, dst: a, protocol: 6, src_port: None, dst_port: None }
    }

    #[test]
    fn acquires_are_limited_by_reqid_and_in_number() {
        let q = UpQueue::new(Duration::from_secs(1));
        let s = Duration::from_secs;
        assert_eq!(q.acquire(s(10), ReqId(1), packet()), Ok(()));
        assert_eq!(q.acquire(s(10), ReqId(1), packet()), Err(s(11)));
        assert_eq!(q.acquire(s(10), ReqId(2), packet()), Ok(()));
        assert_eq!(q.acquire(s(11), ReqId(1), packet()), Ok(()));
        assert_eq!(q.take().len(), 3);
        assert_eq!(q.take().len(), 0);
        let taken = (0..5000).filter(|i| q.acquire(s(20), ReqId(*i), packet()).is_ok()).count();
        assert_eq!(taken, MAX_ACQUIRES);
        // A full queue of acquires does not keep an expire out.
        q.first_use(Spi(300));
        assert_eq!(q.take().len(), MAX_ACQUIRES + 1);
        assert_eq!(q.acquire(s(21), ReqId(7), packet()), Ok(()));
    }

    #[test]
    fn the_waker_is_called_for_each_event() {
        let q = UpQueue::new(Duration::from_secs(1));
        let n = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
        let n2 = n.clone();
        q.set_waker(Box::new(move || {
            n2.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        }));
        q.first_use(Spi(300));
        q.first_use(Spi(301));
        assert_eq!(n.load(std::sync::atomic::Ordering::Relaxed), 2);
    }
}
