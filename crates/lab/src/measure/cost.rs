//! Whether processor time is enough for a cost. /proc/stat counts in clock ticks (10 ms each where
//! there are 100 a second), so a cost that rests on a few of them is mostly rounding. Here is the
//! only copy of that decision. Time of processes that schedstat counts in nanoseconds needs no
//! decision. Pure, but for the number of ticks in a second.

use super::counters::CpuTicks;

/// The fewest clock ticks of processor time that a cost may rest on.
pub(crate) const FEWEST_TICKS: u64 = 10;

/// Value of a cost whose processor time was too short for it. It stays the same when it is divided
/// by packets or bytes, or added to other costs. No figure is made of it.
pub(crate) const TOO_SHORT: f64 = f64::NEG_INFINITY;

/// Seconds of processor time by ticks as they may be used for a cost: themselves, or
/// [`TOO_SHORT`].
pub(crate) fn seconds(used: f64) -> f64 {
    in_ticks(used, rustix::param::clock_ticks_per_second())
}

/// A share of the ticks that were accounted as work, or [`TOO_SHORT`].
pub(crate) fn share(part: u64, of: &CpuTicks) -> f64 {
    if of.busy() < FEWEST_TICKS { TOO_SHORT } else { part as f64 / of.busy() as f64 }
}

/// The same with `hertz` ticks a second.
fn in_ticks(used: f64, hertz: u64) -> f64 {
    // Seconds were made of whole ticks, or of a clock less whole ticks: a billionth is no
    // difference.
    if used * hertz as f64 + 1e-9 < FEWEST_TICKS as f64 { TOO_SHORT } else { used }
}

/// Processor time of one or several processes, as the kernel counts it in two ways.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Account {
    /// Of the processes and of their children that have ended and been waited for, clock ticks.
    pub ticks: u64,
    /// The part of `ticks` that children had which have ended.
    pub reaped: u64,
    /// Of the processes' threads, nanoseconds, by schedstat: without children that have ended, and
    /// without threads that have.
    pub ns: u64,
}

impl Account {
    /// Both together.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { ticks: self.ticks + other.ticks, reaped: self.reaped + other.reaped, ns: self.ns + other.ns }
    }

    /// Seconds since `earlier` as they may be used for a cost: by ticks where there are enough, by
    /// schedstat where that counts the same, or [`TOO_SHORT`].
    pub(crate) fn seconds_since(self, earlier: Self) -> f64 {
        self.since(earlier, rustix::param::clock_ticks_per_second())
    }

    fn since(self, earlier: Self, hertz: u64) -> f64 {
        let ticks = self.ticks.saturating_sub(earlier.ticks);
        if ticks >= FEWEST_TICKS {
            return ticks as f64 / hertz as f64;
        }
        let (by_ticks, exact) = (ticks as f64, self.ns.saturating_sub(earlier.ns) as f64 / 1e9);
        // Ticks are rounded at both ends. What differs by more was of a thread that has ended.
        // A kernel without schedstat counts no nanosecond for anything.
        let counts = self.ns > 0 || self.ticks == 0;
        let same = counts && self.ns >= earlier.ns && (exact * hertz as f64 - by_ticks).abs() <= 2.0;
        if self.reaped == earlier.reaped && same { exact } else { TOO_SHORT }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_than_ten_ticks_are_too_short_for_a_cost() {
        assert_eq!((in_ticks(0.1, 100), in_ticks(0.3, 100)), (0.1, 0.3));
        assert_eq!(
            (in_ticks(0.09, 100), in_ticks(0.0, 100), in_ticks(0.09, 1000)),
            (TOO_SHORT, TOO_SHORT, 0.09)
        );
        // Ten ticks that a subtraction has made a little less.
        assert_eq!(in_ticks(2.1 - 2.0, 100), 2.1 - 2.0);
        // It stays what it is on its way to a figure.
        assert_eq!((TOO_SHORT * 1e9 / 7.0, TOO_SHORT + 3.0), (TOO_SHORT, TOO_SHORT));
    }

    #[test]
    fn a_share_of_few_ticks_is_too_short() {
        let ticks = |user, softirq| CpuTicks { user, softirq, idle: 500, ..CpuTicks::default() };
        assert_eq!(share(4, &ticks(6, 4)), 0.4);
        assert_eq!(share(4, &ticks(5, 4)), TOO_SHORT);
        assert_eq!(share(0, &ticks(0, 0)), TOO_SHORT);
    }

    #[test]
    fn a_process_of_few_ticks_is_measured_by_schedstat_where_that_counts_the_same() {
        let account = |ticks, reaped, ms: u64| Account { ticks, reaped, ns: ms * 1_000_000 };
        let from = account(7, 2, 1_005);
        let used = |ticks, reaped, ms| account(ticks, reaped, ms).since(from, 100);
        // Enough ticks: these, with what ended children had.
        assert_eq!(used(27, 12, 1_100), 0.2);
        assert_eq!(used(10, 2, 1_037), 0.032);
        assert_eq!(used(7, 2, 1_005), 0.0);
        // A child has ended, which only ticks count; a thread has.
        assert_eq!(used(10, 4, 1_017), TOO_SHORT);
        assert_eq!(used(15, 2, 1_017), TOO_SHORT);
        assert_eq!(used(9, 2, 900), TOO_SHORT);
        // Schedstat is switched off.
        assert_eq!(account(2, 0, 0).since(account(1, 0, 0), 100), TOO_SHORT);
        assert_eq!(Account::default().since(Account::default(), 100), 0.0);
        assert_eq!(account(1, 1, 2).and(account(2, 0, 3)), account(3, 1, 5));
    }
}
