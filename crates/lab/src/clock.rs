//! The only place of the laboratory that reads a clock.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How many times as long as usual commands, starts and ends may take: more than once where the
/// processor is slow on purpose.
static PATIENCE: AtomicU32 = AtomicU32::new(1);

/// From now on commands, starts and ends may take so many times as long as usual.
pub(crate) fn be_patient(times: u32) {
    PATIENCE.store(times.max(1), Ordering::Relaxed);
}

/// A time limit, or a pause between two looks, on this machine.
pub(crate) fn patiently(usual: Duration) -> Duration {
    usual.saturating_mul(PATIENCE.load(Ordering::Relaxed))
}

/// Monotonic time, for intervals.
#[allow(
    clippy::disallowed_methods,
    reason = "the laboratory measures real time; everything else takes it from here"
)]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Processor time of this thread, for work that is to be measured beside other programs: what they
/// take is not in it.
pub(crate) fn of_this_thread() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let part = |v: i64| u64::try_from(v).unwrap_or_default();
    Duration::from_secs(part(t.tv_sec)) + Duration::from_nanos(part(t.tv_nsec))
}

/// Time since the Unix epoch, for naming and dating runs.
#[allow(clippy::disallowed_methods, reason = "runs are dated; everything else takes it from here")]
pub(crate) fn since_epoch() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default()
}

/// The usual time limit of a command that brings a tunnel up, in its own option, seconds.
pub(crate) fn tunnel_limit() -> String {
    patiently(Duration::from_secs(10)).as_secs().to_string()
}

/// A date and time in UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Utc {
    year: u64,
    month: u64,
    day: u64,
    hour: u64,
    minute: u64,
    second: u64,
}

impl Utc {
    /// Splits a time since the Unix epoch by the proleptic Gregorian calendar.
    pub(crate) fn from_epoch(t: Duration) -> Self {
        let s = t.as_secs();
        let (mut year, mut days) = (1970, s / 86_400);
        let leap = |y: u64| y.is_multiple_of(4) && (!y.is_multiple_of(100) || y.is_multiple_of(400));
        while days >= 365 + u64::from(leap(year)) {
            days -= 365 + u64::from(leap(year));
            year += 1;
        }
        let lengths = [31, 28 + u64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let mut month = 1;
        for length in lengths {
            if days < length {
                break;
            }
            days -= length;
            month += 1;
        }
        Self { year, month, day: days + 1, hour: s / 3600 % 24, minute: s / 60 % 60, second: s % 60 }
    }

    /// As in RFC 3339: `2026-11-21T21:22:36Z`.
    pub(crate) fn rfc3339(&self) -> String {
        let Self { year, month, day, hour, minute, second } = self;
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }

    /// Time since the Unix epoch of a date as [`Self::rfc3339`] writes it; `None` for any other
    /// text and for days that no calendar has.
    pub(crate) fn parse(text: &str) -> Option<Duration> {
        let part = |from: usize, to: usize| text.get(from..to)?.parse::<u64>().ok();
        let [year, month, day] = [part(0, 4)?, part(5, 7)?, part(8, 10)?];
        let [hour, minute, second] = [part(11, 13)?, part(14, 16)?, part(17, 19)?];
        if !(1970..=9999).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
            return None;
        }
        // Days before the year and the month, with a year that begins in March.
        let (y, m) = if month < 3 { (year - 1, month + 9) } else { (year, month - 3) };
        let days = 365 * y + y / 4 - y / 100 + y / 400 + (153 * m + 2) / 5 + day - 1;
        let at = Duration::from_secs((days - 719_468) * 86_400 + hour * 3_600 + minute * 60 + second);
        (Self::from_epoch(at).rfc3339() == text).then_some(at)
    }

    /// For file names: `20261121-212236`.
    pub(crate) fn compact(&self) -> String {
        let Self { year, month, day, hour, minute, second } = self;
        format!("{year:04}{month:02}{day:02}-{hour:02}{minute:02}{second:02}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_follow_the_calendar() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (1_795_296_156, "2026-11-21T21:22:36Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(Utc::from_epoch(Duration::from_secs(seconds)).rfc3339(), expected);
            assert_eq!(Utc::parse(expected), Some(Duration::from_secs(seconds)));
        }
        for bad in [
            "",
            "soon",
            "2026-02-30T00:00:00Z",
            "2026-11-21T25:00:00Z",
            "2026-11-21 21:22:36Z",
            "0000-00-00T00:00:00Z",
        ] {
            assert_eq!(Utc::parse(bad), None, "{bad}");
        }
        assert_eq!(Utc::from_epoch(Duration::from_secs(1_795_296_156)).compact(), "20261121-212236");
    }
}
