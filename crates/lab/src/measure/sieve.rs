//! Fixed work for a processor: the sieve of Eratosthenes, as in the study that is repeated.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use crate::clock;
use crate::error::LabError;
use crate::interrupt;

/// Numbers that one round sieves: its table fits into a second-level cache.
const NUMBERS: usize = 1 << 20;

/// How many primes there are below `limit`.
pub fn primes_below(limit: usize) -> usize {
    let mut composite = vec![false; limit];
    let mut count = 0;
    for n in 2..limit {
        if !composite[n] {
            count += 1;
            (n * n..limit).step_by(n).for_each(|m| composite[m] = true);
        }
    }
    count
}

/// How long `rounds` of the sieve take on every processor at once, until the last is done; an error
/// when a signal comes.
pub fn run(rounds: u32) -> Result<Duration, LabError> {
    let (start, stop) = (clock::now(), AtomicBool::new(false));
    thread::scope(|scope| {
        let one = || {
            sift(rounds, &stop);
            clock::now()
        };
        let work: Vec<_> = (0..super::cpus()).map(|_| scope.spawn(one)).collect();
        while !work.iter().all(|w| w.is_finished()) {
            if let Err(e) = interrupt::pause(Duration::from_millis(10)) {
                // The scope waits for the rounds that have begun.
                stop.store(true, Ordering::Relaxed);
                return Err(e);
            }
        }
        let ends = work.into_iter().map(|thread| match thread.join() {
            Ok(end) => end,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        Ok(ends.max().map_or(Duration::ZERO, |end| end - start))
    })
}

/// Rounds of the sieve on this thread, until it is told to stop; how many it made.
fn sift(rounds: u32, stop: &AtomicBool) -> u32 {
    let mut made = 0;
    while made < rounds && !stop.load(Ordering::Relaxed) {
        std::hint::black_box(primes_below(NUMBERS));
        made += 1;
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_numbers_of_primes_are_the_known_ones() {
        for (limit, primes) in [(0, 0), (2, 0), (3, 1), (100, 25), (1000, 168), (1_000_000, 78_498)] {
            assert_eq!(primes_below(limit), primes, "below {limit}");
        }
    }

    #[test]
    fn more_rounds_take_more_of_a_processor() {
        let cost = |rounds| {
            let before = clock::of_this_thread();
            sift(rounds, &AtomicBool::new(false));
            clock::of_this_thread() - before
        };
        assert!(cost(0) < cost(2));
        assert!(run(1).expect("no signal") > Duration::ZERO);
    }

    #[test]
    fn it_stops_between_rounds() {
        assert_eq!(sift(3, &AtomicBool::new(false)), 3);
        assert_eq!(sift(u32::MAX, &AtomicBool::new(true)), 0);
    }
}
