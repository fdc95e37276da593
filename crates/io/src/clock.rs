//! The one place that reads the clock. Everything else is told what time it is.

use std::sync::OnceLock;
use std::time::{Instant, SystemTime};

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
