//! The machine's own clock, for tests of what waits for a thread. Simulations have a clock of their
//! own ([`crate::Clock`]).

use std::time::{Duration, Instant};

/// The time now, which passes by itself.
#[allow(clippy::disallowed_methods, reason = "a test that waits for a thread needs a clock that runs")]
pub fn now() -> Instant {
    Instant::now()
}

/// Time for which this thread has been on a processor, for measurements beside other programs.
pub fn of_this_thread() -> Duration {
    let t = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    let part = |v: i64| u64::try_from(v).expect("the clock of a thread begins at 0");
    Duration::from_secs(part(t.tv_sec)) + Duration::from_nanos(part(t.tv_nsec))
}
