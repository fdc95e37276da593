//! A fixed number of batches, which bounds both the memory and how far one thread gets ahead of
//! another.

use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

/// The batches that nobody works on. A thread takes the one that it took last, which its own cache
/// still has, before those of others.
#[derive(Debug)]
pub(super) struct Pool<T> {
    free: Mutex<Free<T>>,
    back: Condvar,
    waiting: AtomicUsize,
}

#[derive(Debug)]
struct Free<T> {
    batches: Vec<Box<T>>,
    /// Of every batch, by its address, who took it last.
    takers: Vec<(usize, Option<ThreadId>)>,
}

impl<T> Free<T> {
    /// The last one put back of those that this thread took last, or else of all.
    fn take(&mut self) -> Option<Box<T>> {
        let me = Some(std::thread::current().id());
        let own = |batch: usize| self.takers.iter().any(|(at, taker)| *at == batch && *taker == me);
        let mine = self.batches.iter().rposition(|b| own(address(&**b)));
        let at = mine.or(self.batches.len().checked_sub(1))?;
        let batch = self.batches.remove(at);
        if let Some((_, taker)) = self.takers.iter_mut().find(|(at, _)| *at == address(&*batch)) {
            *taker = me;
        }
        Some(batch)
    }
}

fn address<T>(batch: &T) -> usize {
    std::ptr::from_ref(batch).addr()
}

impl<T> Pool<T> {
    pub(super) fn new(size: usize, make: impl FnMut() -> Box<T>) -> Self {
        let batches: Vec<Box<T>> = std::iter::repeat_with(make).take(size).collect();
        let takers = batches.iter().map(|b| (address(&**b), None)).collect();
        Self {
            free: Mutex::new(Free { batches, takers }),
            back: Condvar::new(),
            waiting: AtomicUsize::new(0),
        }
    }

    /// `None` when all are being worked on.
    pub(super) fn take(&self) -> Option<Box<T>> {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// `None` when no more than one is free: that is left to a thread that has more than one thing
    /// to do.
    pub(super) fn take_spare(&self) -> Option<Box<T>> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.batches.len() > 1 { free.take() } else { None }
    }

    /// Waits so long for one.
    pub(super) fn take_within(&self, patience: Duration) -> Option<Box<T>> {
        let mut free = self.free.lock().unwrap_or_else(PoisonError::into_inner);
        if free.batches.is_empty() {
            self.waiting.fetch_add(1, Relaxed);
            let waited = self.back.wait_timeout_while(free, patience, |free| free.batches.is_empty());
            free = waited.unwrap_or_else(PoisonError::into_inner).0;
            self.waiting.fetch_sub(1, Relaxed);
        }
        free.take()
    }

    pub(super) fn put(&self, batch: Box<T>) {
        self.free.lock().unwrap_or_else(PoisonError::into_inner).batches.push(batch);
        if self.waiting.load(Relaxed) != 0 {
            self.back.notify_one();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicBool;

    use super::*;

    const SOON: Duration = Duration::from_millis(1);

    #[test]
    fn there_are_no_more_than_were_made_and_what_is_put_back_is_taken_again() {
        let mut made = 0;
        let pool = Pool::new(3, || {
            made += 1;
            Box::new(made)
        });
        let mut taken: Vec<Box<i32>> = std::iter::from_fn(|| pool.take()).collect();
        assert_eq!(taken.len(), 3);
        assert!(pool.take().is_none() && pool.take_within(SOON).is_none() && pool.take_spare().is_none());
        let last = taken.pop().unwrap();
        let name = *last;
        pool.put(last);
        assert!(pool.take_spare().is_none(), "the last one is not for everybody");
        assert_eq!(*pool.take_within(SOON).unwrap(), name);
        taken.into_iter().for_each(|batch| pool.put(batch));
        assert!(pool.take_spare().is_some() && pool.take_spare().is_none() && pool.take().is_some());
        assert_eq!(made, 3);
    }

    #[test]
    fn a_thread_gets_back_what_it_took_last_and_what_others_took_when_that_is_all() {
        let mut made = 0;
        let pool = Pool::new(2, || {
            made += 1;
            Box::new(made)
        });
        let mine = pool.take().unwrap();
        let name = *mine;
        std::thread::scope(|s| {
            let other = s.spawn(|| pool.take().unwrap()).join().unwrap();
            pool.put(mine);
            pool.put(other);
            // Theirs is the last one put back.
            let again = pool.take_spare().unwrap();
            assert_eq!(*again, name);
            assert_ne!(*pool.take().unwrap(), name);
            pool.put(again);
            let other = s.spawn(|| pool.take_within(SOON).unwrap()).join().unwrap();
            assert_eq!(*other, name, "another's, as there is no more");
        });
    }

    #[test]
    fn who_waits_gets_what_is_put_back_meanwhile() {
        let pool = Pool::new(1, || Box::new(7));
        let (taken, waits) = (pool.take().unwrap(), AtomicBool::new(false));
        std::thread::scope(|s| {
            let waiter = s.spawn(|| {
                waits.store(true, Relaxed);
                pool.take_within(Duration::from_secs(60))
            });
            while !waits.load(Relaxed) || pool.waiting.load(Relaxed) == 0 {
                std::thread::yield_now();
            }
            pool.put(taken);
            assert_eq!(waiter.join().unwrap(), Some(Box::new(7)));
        });
        assert_eq!(pool.waiting.load(Relaxed), 0);
    }
}
