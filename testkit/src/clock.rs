//! The machine's own clock, for tests of what waits for a thread. Simulations have a clock of their
//! own ([`crate::Clock`]).

use std::time::Instant;

/// The time now, which passes by itself.
#[allow(clippy::disallowed_methods, reason = "a test that waits for a thread needs a clock that runs")]
pub fn now() -> Instant {
    Instant::now()
}
