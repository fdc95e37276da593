//! Lines that something outside can cause without end: the first few are written, then every
//! hundredth, with its number, and of these no more than one in ten seconds.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use ironswan_ike::event::Level;
use ironswan_io::clock;

/// The first lines of a kind are written one by one, up to this many.
const FIRST: u64 = 3;
/// After them one line in this many is written,
const EVERY: u64 = 100;
/// and at most one in this time.
const BETWEEN: Duration = Duration::from_secs(10);
/// A kind of line that did not occur for this long counts from one again.
const FORGOTTEN: Duration = Duration::from_secs(60);

#[derive(Clone, Copy, Default)]
struct Count {
    lines: u64,
    last: Option<Instant>,
    written: Option<Instant>,
}

impl Count {
    /// Counts one more; its number if it is to be written.
    fn admit(&mut self, now: Instant) -> Option<u64> {
        if self.last.is_none_or(|last| now.saturating_duration_since(last) >= FORGOTTEN) {
            self.lines = 0;
        }
        self.last = Some(now);
        self.lines += 1;
        let rested = self.written.is_none_or(|at| now.saturating_duration_since(at) >= BETWEEN);
        let due = self.lines <= FIRST || (self.lines.is_multiple_of(EVERY) && rested);
        if due {
            self.written = Some(now);
        }
        due.then_some(self.lines)
    }
}

fn numbered(text: String, n: u64) -> String {
    if n <= FIRST { text } else { format!("{text} (number {n} of such lines)") }
}

/// The lines of one kind.
pub struct Repeated(Mutex<Count>);

impl Repeated {
    /// None yet.
    pub const fn new() -> Self {
        Self(Mutex::new(Count { lines: 0, last: None, written: None }))
    }

    /// Writes the line, or counts it only; then its text is not made.
    pub fn line(&self, level: Level, text: impl FnOnce() -> String) {
        let due = self.0.lock().unwrap_or_else(PoisonError::into_inner).admit(clock::now());
        if let Some(n) = due {
            super::line(level, None, &numbered(text(), n), None);
        }
    }
}

impl Default for Repeated {
    fn default() -> Self {
        Self::new()
    }
}

/// The lines of one kind, counted for each of a few causes: a cause that is loud does not silence
/// the others.
pub struct RepeatedBy<K> {
    counts: HashMap<K, Count>,
    /// For all causes that find no room above.
    others: Count,
}

/// Limits how many causes are told apart.
const CAUSES: usize = 32;

impl<K: Eq + Hash> RepeatedBy<K> {
    /// Counts one more line of this cause. What to do with its text when it is to be written.
    pub fn admit(&mut self, cause: K, now: Instant) -> Option<impl FnOnce(String) -> String + use<K>> {
        if !self.counts.contains_key(&cause) && self.counts.len() >= CAUSES {
            self.counts
                .retain(|_, c| c.last.is_some_and(|last| now.saturating_duration_since(last) < FORGOTTEN));
        }
        let room = self.counts.len() < CAUSES || self.counts.contains_key(&cause);
        let count = if room { self.counts.entry(cause).or_default() } else { &mut self.others };
        count.admit(now).map(|n| move |text| numbered(text, n))
    }
}

impl<K> Default for RepeatedBy<K> {
    fn default() -> Self {
        Self { counts: HashMap::new(), others: Count::default() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_three_are_written_then_every_hundredth_and_after_a_quiet_minute_three_again() {
        let mut count = Count::default();
        let now = clock::now();
        let second = |n: u64| now + Duration::from_secs(n);
        let written: Vec<u64> = (0..1_000).filter_map(|n| count.admit(second(n))).collect();
        assert_eq!(written[..5], [1, 2, 3, 100, 200]);
        assert_eq!(written.len(), 3 + 10);
        assert_eq!(count.admit(second(1_058)), None);
        assert_eq!(count.admit(second(1_118)), Some(1));
        // Ten thousand a second are one line in ten seconds.
        let mut loud = Count::default();
        let tick = |n: u32| now + n * Duration::from_micros(100);
        let written = (0..600_000).filter(|n| loud.admit(tick(*n)).is_some()).count();
        assert!(written <= 3 + 6, "{written} lines in a minute");
        assert_eq!(numbered("x".into(), 2), "x");
        assert_eq!(numbered("x".into(), 200), "x (number 200 of such lines)");
    }

    #[test]
    fn many_causes_share_one_count_and_a_few_have_their_own() {
        let mut by = RepeatedBy::default();
        let now = clock::now();
        let mut written = |cause: usize| by.admit(cause, now).is_some();
        assert_eq!((0..50).filter(|_| written(7)).count(), 3);
        assert!(written(8));
        // Ten thousand made-up causes: three lines each for those that find room, then every
        // hundredth of the rest.
        let n = (0..10_000).filter(|n| written(100 + n)).count();
        assert!(n <= CAUSES + 3, "{n}");
        assert!(written(8));
        // A minute later there is room again.
        assert!(by.admit(99_999, now + FORGOTTEN).is_some());
        assert!(by.counts.len() < CAUSES);
    }
}
