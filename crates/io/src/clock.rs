//! The one place that reads the clock. Everything else is told what time it is.

use std::io;
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime};

/// linux/timex.h: the clock is not synchronised.
const STA_UNSYNC: i32 = 0x40;

/// How well the kernel knows the time of day.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Discipline {
    /// A program (NTP, PTP, or the like) keeps the clock right.
    pub synchronised: bool,
    /// Largest error that this program expects.
    pub error: Duration,
}

/// Asks the kernel how well it knows the time of day. Needs no privilege.
///
/// # Errors
/// The error that the kernel returned.
pub fn discipline() -> io::Result<Discipline> {
    // SAFETY: all zeroes is a valid timex, and with `modes` 0 the call only reads.
    let mut timex: libc::timex = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes one timex, which lives through it.
    if unsafe { libc::adjtimex(&raw mut timex) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Discipline {
        synchronised: timex.status & STA_UNSYNC == 0,
        error: Duration::from_micros(u64::try_from(timex.maxerror).unwrap_or(0)),
    })
}

/// The monotonic clock.
#[allow(clippy::disallowed_methods, reason = "the clock is read here and nowhere else in this crate")]
pub fn now() -> Instant {
    Instant::now()
}

/// The wall clock, for logs, certificates and names of files. It jumps: never measure with it.
#[allow(clippy::disallowed_methods, reason = "the clock is read here and nowhere else in this crate")]
pub fn wall() -> SystemTime {
    SystemTime::now()
}

/// Nanoseconds of the monotonic clock since the first call, for what is over in microseconds.
pub fn nanoseconds() -> u64 {
    static START: OnceLock<Instant> = OnceLock::new();
    let now = now();
    now.saturating_duration_since(*START.get_or_init(|| now)).as_nanos() as u64
}

/// Cost of one reading of [`nanoseconds`]: the shortest of many, in nanoseconds.
pub fn reading_cost() -> u64 {
    let mut last = nanoseconds();
    let mut least = u64::MAX;
    for _ in 0..1_000 {
        let next = nanoseconds();
        least = least.min(next - last);
        last = next;
    }
    least
}
