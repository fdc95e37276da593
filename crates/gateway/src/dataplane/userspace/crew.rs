//! The workers beside the first: they sleep until there is more to do than one can, and sleep again
//! when there is not. How many there are.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use ironswan_config::tuning::Tuning;

/// More workers than this share one lane's locks with less and less gain.
const MOST: usize = 8;

/// How many threads move packets, on so many processors: on few of them the kernel's own work for
/// the same packets (softirq) and the control plane want their share, so half of them; one where
/// there is one.
pub(super) fn workers(tuning: &Tuning, processors: usize) -> usize {
    match tuning.workers {
        0 => processors.div_ceil(2).clamp(1, MOST),
        n => n,
    }
}

/// The workers beside the first, which sleep until a turn leaves a backlog.
#[derive(Debug, Default)]
pub(super) struct Crew {
    /// How many there are.
    size: usize,
    /// How many of them sleep: a hint.
    asleep: AtomicUsize,
    /// How many are to wake, and whether for good.
    calls: Mutex<Calls>,
    called: Condvar,
    ended: AtomicBool,
}

#[derive(Debug, Default)]
struct Calls {
    pending: usize,
    asleep: usize,
}

impl Crew {
    /// A crew of so many beside the first, all awake.
    pub(super) fn new(size: usize) -> Self {
        Self { size, ..Self::default() }
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// True when somebody beside the first is at work.
    #[inline]
    pub(super) fn is_awake(&self) -> bool {
        self.size > self.asleep.load(Relaxed)
    }

    /// Wakes one, if any sleeps. When one falls asleep just now it may go unheard: there will be
    /// more of what it was for.
    #[inline]
    pub(super) fn call(&self) {
        if self.asleep.load(Relaxed) != 0 {
            self.wake_one();
        }
    }

    #[cold]
    fn wake_one(&self) {
        let mut calls = self.lock();
        if calls.pending < calls.asleep {
            calls.pending += 1;
            self.called.notify_one();
        }
    }

    /// Sleeps until called. False when it is for the last time.
    pub(super) fn sleep(&self) -> bool {
        let mut calls = self.lock();
        calls.asleep += 1;
        self.asleep.store(calls.asleep, Relaxed);
        while calls.pending == 0 && !self.ended.load(Relaxed) {
            calls = self.called.wait(calls).unwrap_or_else(PoisonError::into_inner);
        }
        calls.pending = calls.pending.saturating_sub(1);
        calls.asleep -= 1;
        self.asleep.store(calls.asleep, Relaxed);
        !self.ended.load(Relaxed)
    }

    /// Ends everybody's work.
    pub(super) fn end(&self) {
        let _calls = self.lock();
        self.ended.store(true, Relaxed);
        self.called.notify_all();
    }

    /// True when everybody is to stop.
    pub(super) fn has_ended(&self) -> bool {
        self.ended.load(Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_number_of_workers_follows_the_processors_up_to_a_bound_and_a_setting_beats_it() {
        let auto = Tuning { workers: 0, ..Tuning::default() };
        let chosen = [1, 2, 4, 8, 16, 64].map(|n| workers(&auto, n));
        assert_eq!(chosen, [1, 1, 2, 4, 8, 8]);
        assert_eq!(workers(&auto, 0), 1);
        assert_eq!(workers(&Tuning { workers: 3, ..Tuning::default() }, 1), 3);
    }

    #[test]
    fn whoever_sleeps_wakes_when_called_and_at_the_end() {
        let crew = Crew::new(2);
        crew.call();
        assert!(crew.is_awake());
        std::thread::scope(|s| {
            let sleepers = [0, 1].map(|_| {
                s.spawn(|| {
                    let mut woken = 0;
                    while crew.sleep() {
                        woken += 1;
                    }
                    woken
                })
            });
            while crew.is_awake() {
                std::thread::yield_now();
            }
            crew.call();
            crew.call();
            loop {
                let calls = crew.lock();
                if calls.pending == 0 && calls.asleep == 2 {
                    break;
                }
                drop(calls);
                std::thread::yield_now();
            }
            crew.end();
            let woken: u32 = sleepers.map(|t| t.join().unwrap()).into_iter().sum();
            assert!((1..=2).contains(&woken), "{woken}");
        });
        assert!(crew.has_ended());
    }
}
