//! The one place that reads the clock. Everything else is told what time it is.

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
