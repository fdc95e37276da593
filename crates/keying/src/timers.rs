//! Timers: a table of what runs out and when. Setting, cancelling and finding the next one are
//! O(log n) in the number of timers.

use std::borrow::Borrow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

/// The table. A key of it has one timer at most.
#[derive(Debug)]
pub struct Timers<K> {
    at: BTreeMap<K, Instant>,
    order: BTreeSet<(Instant, K)>,
}

impl<K> Default for Timers<K> {
    fn default() -> Self {
        Self { at: BTreeMap::new(), order: BTreeSet::new() }
    }
}

impl<K: Ord + Clone> Timers<K> {
    /// Sets the timer, or moves it.
    pub fn set(&mut self, timer: K, at: Instant) {
        self.cancel(&timer);
        self.at.insert(timer.clone(), at);
        self.order.insert((at, timer));
    }

    /// Stops the timer, if it is set.
    pub fn cancel(&mut self, timer: impl Borrow<K>) {
        if let Some((timer, at)) = self.at.remove_entry(timer.borrow()) {
            self.order.remove(&(at, timer));
        }
    }

    /// Number of timers that are set.
    pub fn len(&self) -> usize {
        self.at.len()
    }

    /// True when no timer is set.
    pub fn is_empty(&self) -> bool {
        self.at.is_empty()
    }

    /// When this timer fires.
    pub fn get(&self, timer: impl Borrow<K>) -> Option<Instant> {
        self.at.get(timer.borrow()).copied()
    }

    /// When the first timer fires.
    pub fn next(&self) -> Option<Instant> {
        self.order.first().map(|(at, _)| *at)
    }

    /// Takes out the first timer that is due.
    pub fn pop(&mut self, now: Instant) -> Option<K> {
        if self.next()? > now {
            return None;
        }
        let (_, timer) = self.order.pop_first()?;
        self.at.remove(&timer);
        Some(timer)
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test needs some instant to count from")]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn timers_fire_in_order_and_once_and_can_move() {
        let t0 = Instant::now();
        let s = Duration::from_secs(1);
        let mut t = Timers::default();
        t.set(1, t0 + 3 * s);
        t.set(2, t0 + 2 * s);
        t.set(3, t0 + s);
        t.set(3, t0 + 4 * s);
        t.cancel(9);
        assert_eq!((t.next(), t.len()), (Some(t0 + 2 * s), 3));
        assert_eq!(t.pop(t0 + s), None);
        let all: Vec<_> = std::iter::from_fn(|| t.pop(t0 + 9 * s)).collect();
        assert_eq!(all, [2, 1, 3]);
        assert!(t.is_empty() && t.next().is_none() && t.at.is_empty());
    }
}
