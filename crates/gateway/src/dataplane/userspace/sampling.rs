//! Which batches of a lane are measured: one in [`EACH`], and one in each [`INTERVAL`], so that a
//! short load of large batches is seen too; but no more than one [`EACH`]th of the time, as far as
//! the last one tells, for a batch that is measured takes up to twice as long. Only batches with
//! packets in them count: where every second one is empty, it would else be the empty ones that are
//! measured, each time.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use ironswan_ipsec::StageTimes;

/// One batch in so many is measured,
const EACH: u32 = 128;
/// or one in this time, if these are fewer.
const INTERVAL: Duration = Duration::from_millis(10);

/// How long the last batch that was measured took, nanoseconds: known when it has left, which need
/// not be under the lane's lock.
#[derive(Debug, Default)]
pub(super) struct Took(AtomicU64);

impl Took {
    /// A measured batch has left.
    pub(super) fn is(&self, times: &StageTimes) {
        self.0.store(times.ns.iter().sum(), Relaxed);
    }

    fn last(&self) -> Duration {
        Duration::from_nanos(self.0.load(Relaxed))
    }
}

/// Number of batches and time since the last batch that was measured.
#[derive(Debug, Default)]
pub(super) struct Sampling {
    batches: u32,
    last: Option<Duration>,
}

impl Sampling {
    /// True when the batch that begins now is to be measured.
    #[inline]
    pub(super) fn is_due(&self, now: Duration, took: &Took) -> bool {
        self.batches + 1 >= EACH
            || self.last.is_none_or(|last| {
                let since = now.saturating_sub(last);
                since >= INTERVAL && since >= took.last() * EACH
            })
    }

    /// A batch with packets has been filled, measured or not.
    #[inline]
    pub(super) fn filled(&mut self, now: Duration, measured: bool) {
        if measured {
            (self.batches, self.last) = (0, Some(now));
        } else {
            self.batches += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// How many of these batches (their times, and whether there is something in them) are
    /// measured, none of which takes long.
    fn measured(batches: impl Iterator<Item = (Duration, bool)>) -> usize {
        measured_of(Duration::from_micros(5), batches)
    }

    /// The same of batches that take this long when they are measured.
    fn measured_of(time: Duration, batches: impl Iterator<Item = (Duration, bool)>) -> usize {
        let (mut sampling, took) = (Sampling::default(), Took::default());
        let mut sum = 0;
        for (now, has_packets) in batches {
            let due = sampling.is_due(now, &took);
            if has_packets {
                sampling.filled(now, due);
                if due {
                    took.is(&StageTimes {
                        ns: [0, 0, 0, 0, 0, time.as_nanos() as u64, 0],
                        ..StageTimes::default()
                    });
                }
                sum += usize::from(due);
            }
        }
        sum
    }

    #[test]
    fn one_in_so_many_is_measured_wherever_the_empty_ones_are() {
        let now = Duration::from_secs(1);
        let each = EACH as usize;
        assert_eq!(measured((0..10 * each).map(|_| (now, true))), 10);
        for period in 2..=5 {
            for at in 0..period {
                let batches = (0..10 * each * period).map(|i| (now, i % period == at));
                assert_eq!(measured(batches), 10, "every {period}th has packets, from {at}");
            }
        }
        assert_eq!(measured((0..100).map(|_| (now, false))), 0);
    }

    #[test]
    fn of_a_load_of_few_batches_some_are_measured_and_of_a_heavy_one_no_more_than_its_share() {
        let every = |pause: Duration| (0..40).map(move |i| (pause * i, true));
        assert_eq!(measured(every(Duration::from_millis(5))), 20, "39 batches in 0.2 s");
        assert_eq!(measured(every(INTERVAL)), 40);
        let heavy = (0..100_000).map(|i| (Duration::from_micros(5) * i, true));
        assert_eq!(measured(heavy), 100_000usize.div_ceil(EACH as usize), "a batch each 5 us");
    }

    #[test]
    fn large_batches_are_measured_no_more_often_than_their_share_of_the_time() {
        let large = Duration::from_micros(500);
        let busy = measured_of(large, (0..10_000).map(|i| (large * i, true)));
        assert_eq!(busy, 10_000usize.div_ceil(EACH as usize), "not each 10 ms");
        let idle = measured_of(large, (0..100).map(|i| (Duration::from_millis(70) * i, true)));
        assert_eq!(idle, 100);
    }
}
