//! Random parts of times, so that thousands of peers do not all act at the same moment.

use std::time::Duration;

use ironswan_crypto::rng::Rng;

use crate::limits::{BUSY_PAUSE, BUSY_PAUSE_SPREAD};

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// A random number below `n` (0 when `n` is 0). The bias of the modulus does not matter for jitter.
pub fn below(rng: &mut dyn Rng, n: u64) -> u64 {
    if n == 0 { 0 } else { rng.u64() % n }
}

/// A random part of this time, in whole milliseconds; less than all of it.
pub fn part(rng: &mut dyn Rng, of: Duration) -> Duration {
    Duration::from_millis(below(rng, millis(of)))
}

/// A random part of this time, in whole milliseconds; perhaps all of it.
pub fn up_to(rng: &mut dyn Rng, of: Duration) -> Duration {
    Duration::from_millis(below(rng, millis(of).saturating_add(1)))
}

/// `time` less a random part of `spread`, and never less than a tenth of `time`.
pub fn less(rng: &mut dyn Rng, time: Duration, spread: Duration) -> Duration {
    time.saturating_sub(up_to(rng, spread)).max(time / 10)
}

/// Between 5 and 15 seconds: when to repeat a request that found the peer busy.
pub fn busy_pause(rng: &mut dyn Rng) -> Duration {
    BUSY_PAUSE + part(rng, BUSY_PAUSE_SPREAD)
}
