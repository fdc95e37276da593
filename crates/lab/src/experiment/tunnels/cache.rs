//! Computes the hit rate of LRU caches of keys over traces of SPIs: would a crypto accelerator that
//! has room for some SAs be worth its price (Bellovin's question of key agility)? Pure.

use std::collections::HashMap;
use std::hash::Hash;

/// The trace of which SA each packet used.
pub(super) type Trace = Vec<u32>;

/// A cache of some entries with least recently used replacement, which begins empty.
#[derive(Debug)]
pub(super) struct Lru<K> {
    entries: usize,
    // A list in two arrays: neighbours by slot, the most recent first; slot `entries` is its head.
    next: Vec<usize>,
    previous: Vec<usize>,
    key_of: Vec<K>,
    slots: HashMap<K, usize>,
}

impl<K: Copy + Eq + Hash> Lru<K> {
    pub(super) fn new(entries: usize) -> Self {
        let head = entries;
        Self {
            entries,
            next: vec![head; entries + 1],
            previous: vec![head; entries + 1],
            key_of: Vec::new(),
            slots: HashMap::new(),
        }
    }

    /// Looks a key up, and keeps it; whether it was there.
    pub(super) fn hit(&mut self, key: K) -> bool {
        let Self { entries: head, next, previous, key_of, slots } = self;
        let head = *head;
        let found = slots.get(&key).copied();
        let slot = match found {
            Some(slot) => {
                (next[previous[slot]], previous[next[slot]]) = (next[slot], previous[slot]);
                slot
            }
            None if head == 0 => return false,
            None if key_of.len() < head => {
                key_of.push(key);
                key_of.len() - 1
            }
            None => {
                let oldest = previous[head];
                slots.remove(&key_of[oldest]);
                (next[previous[oldest]], previous[head]) = (head, previous[oldest]);
                oldest
            }
        };
        (key_of[slot], next[slot], previous[slot]) = (key, next[head], head);
        previous[next[head]] = slot;
        next[head] = slot;
        slots.insert(key, slot);
        found.is_some()
    }
}

/// The share of packets whose keys are in a cache of `entries`.
pub(super) fn hit_rate(trace: &[u32], entries: usize) -> f64 {
    let mut cache = Lru::new(entries);
    let hits = trace.iter().filter(|key| cache.hit(**key)).count();
    hits as f64 / trace.len().max(1) as f64
}

/// A small generator of numbers (xorshift64*), the same on every machine.
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    /// From a seed other than 0.
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.max(1))
    }

    /// The next 32 bits.
    pub(super) fn next(&mut self) -> u32 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 32) as u32
    }

    /// Below `n`, which is not 0.
    pub(super) fn below(&mut self, n: u32) -> u32 {
        ((u64::from(self.next()) * u64::from(n)) >> 32) as u32
    }
}

/// Packets over `keys` SAs of which the k-th most popular has a share of 1/k (Zipf), in trains of
/// `train` packets on average that belong together.
pub(super) fn zipf(keys: u32, packets: usize, train: u32, seed: u64) -> Trace {
    let mut random = Random::new(seed);
    let mut sums = Vec::with_capacity(keys as usize);
    let mut sum = 0.0;
    for k in 1..=keys {
        sum += 1.0 / f64::from(k);
        sums.push(sum);
    }
    let mut trace = Vec::with_capacity(packets);
    let mut key = 0;
    while trace.len() < packets {
        if trace.is_empty() || random.below(train.max(1)) == 0 {
            let at = f64::from(random.next()) / f64::from(u32::MAX) * sum;
            key = sums.partition_point(|s| *s < at).min(sums.len().saturating_sub(1)) as u32;
        }
        trace.push(key);
    }
    trace
}

#[cfg(test)]
mod tests {
    use super::*;

    /// LRU as one would define it.
    fn naive(trace: &[u32], entries: usize) -> f64 {
        let mut order: Vec<u32> = Vec::new();
        let mut hits = 0;
        for key in trace {
            if let Some(at) = order.iter().position(|k| k == key) {
                order.remove(at);
                hits += 1;
            } else if order.len() == entries {
                order.pop();
            }
            if entries > 0 {
                order.insert(0, *key);
            }
        }
        f64::from(hits) / trace.len().max(1) as f64
    }

    #[test]
    fn the_hit_rate_is_that_of_the_definition() {
        let mut random = Random::new(7);
        let uniform: Trace = (0..3000).map(|_| random.below(40)).collect();
        for trace in [uniform, zipf(40, 3000, 4, 3), vec![1, 2, 3, 1, 2, 3], vec![], vec![5]] {
            for entries in [0, 1, 2, 3, 7, 39, 40, 100] {
                let (ours, theirs) = (hit_rate(&trace, entries), naive(&trace, entries));
                assert!((ours - theirs).abs() < 1e-12, "{entries}: {ours} {theirs}");
            }
        }
    }

    #[test]
    fn known_answers() {
        // In turn over one key more than there is room for, LRU never hits.
        let turn: Trace = (0..100).map(|n| n % 5).collect();
        assert_eq!(hit_rate(&turn, 4), 0.0);
        assert!((hit_rate(&turn, 5) - 0.95).abs() < 1e-12);
        // Uniform: the share of keys that fit, but for the beginning.
        let mut random = Random::new(1);
        let uniform: Trace = (0..200_000).map(|_| random.below(1000)).collect();
        assert!((hit_rate(&uniform, 100) - 0.1).abs() < 0.01);
        assert!(hit_rate(&zipf(1000, 200_000, 1, 1), 100) > 0.5, "the popular ones stay");
        assert!(hit_rate(&zipf(1000, 200_000, 16, 1), 1) > 0.9, "trains hit");
    }
}
