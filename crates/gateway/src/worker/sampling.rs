//! Which batches of a lane are measured: one in [`EACH`], and one in each [`INTERVAL`], so that a short load of large batches is
//! seen too. Only batches with packets in them count: where every second one is empty, it would else be the empty ones that are
//! measured, each time.

use std::time::Duration;

/// One batch in so many is measured,
const EACH: u32 = 64;
/// or one in this time, if these are fewer.
const INTERVAL: Duration = Duration::from_millis(10);

/// What has passed since the last batch that was measured.
#[derive(Debug, Default)]
pub(super) struct Sampling {
    batches: u32,
    last: Option<Duration>,
}

impl Sampling {
    /// True when the batch that begins now is to be measured.
    #[inline]
    pub(super) fn is_due(&self, now: Duration) -> bool {
        self.batches + 1 >= EACH || self.last.is_none_or(|last| now.saturating_sub(last) >= INTERVAL)
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

    /// How many of these batches (their times, and whether there is something in them) are measured.
    fn measured(batches: impl Iterator<Item = (Duration, bool)>) -> usize {
        let mut sampling = Sampling::default();
        let mut sum = 0;
        for (now, has_packets) in batches {
            let due = sampling.is_due(now);
            if has_packets {
                sampling.filled(now, due);
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
}
