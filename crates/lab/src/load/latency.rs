//! A histogram of latencies with a constant relative error, and the percentiles of it. Pure.

use serde::{Deserialize, Serialize};

/// Buckets per power of two: a value is known to within 1/64.
const STEPS: u64 = 64;
const STEP_BITS: u32 = 6;
/// Up to 2^40 ns, a quarter of an hour.
const BUCKETS: usize = ((40 - STEP_BITS as usize) + 1) * STEPS as usize;

/// Counts of latencies.
#[derive(Debug, Clone)]
pub struct Histogram {
    counts: Vec<u64>,
    samples: u64,
    min: u64,
    max: u64,
}

/// Percentiles of latencies, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Latency {
    /// How many packets.
    pub samples: u64,
    /// The smallest.
    pub min_us: f64,
    /// Half of the packets took no longer.
    pub p50_us: f64,
    /// 90 of 100.
    pub p90_us: f64,
    /// 99 of 100.
    pub p99_us: f64,
    /// 999 of 1,000.
    pub p999_us: f64,
    /// The largest.
    pub max_us: f64,
}

impl Default for Histogram {
    fn default() -> Self {
        Self { counts: vec![0; BUCKETS], samples: 0, min: u64::MAX, max: 0 }
    }
}

impl Histogram {
    /// Counts one latency, nanoseconds.
    pub fn record(&mut self, ns: u64) {
        self.counts[bucket(ns)] += 1;
        self.samples += 1;
        self.min = self.min.min(ns);
        self.max = self.max.max(ns);
    }

    /// Adds the latencies of another.
    pub fn merge(&mut self, other: &Self) {
        self.counts.iter_mut().zip(&other.counts).for_each(|(own, more)| *own += more);
        self.samples += other.samples;
        self.min = self.min.min(other.min);
        self.max = self.max.max(other.max);
    }

    /// The smallest value, nanoseconds, that at least the share `q` of all do not exceed; to within
    /// 1/64.
    pub fn quantile(&self, q: f64) -> Option<u64> {
        let wanted = ((self.samples as f64 * q).ceil() as u64).max(1);
        let mut below = 0;
        let at = self.counts.iter().position(|c| {
            below += c;
            below >= wanted
        })?;
        Some(upper_bound(at).min(self.max))
    }

    /// The figures of it; `None` of nothing.
    pub fn summary(&self) -> Option<Latency> {
        let us = |q| Some(self.quantile(q)? as f64 / 1e3);
        Some(Latency {
            samples: self.samples,
            min_us: (self.samples > 0).then_some(self.min as f64 / 1e3)?,
            p50_us: us(0.5)?,
            p90_us: us(0.9)?,
            p99_us: us(0.99)?,
            p999_us: us(0.999)?,
            max_us: self.max as f64 / 1e3,
        })
    }
}

/// Values below [`STEPS`] have buckets of their own; above, each power of two has as many.
fn bucket(ns: u64) -> usize {
    let at = if ns < STEPS {
        ns
    } else {
        let power = ns.ilog2() - STEP_BITS;
        u64::from(power + 1) * STEPS + ((ns >> power) - STEPS)
    };
    (at as usize).min(BUCKETS - 1)
}

/// The largest value of a bucket.
fn upper_bound(at: usize) -> u64 {
    let (group, step) = (at as u64 / STEPS, at as u64 % STEPS);
    match group {
        0 => step,
        _ => ((STEPS + step + 1) << (group - 1)) - 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_lies_in_its_bucket_and_buckets_are_a_64th_wide() {
        for ns in (0..200_000).chain([1 << 20, (1 << 30) + 12_345, (1 << 39) + 1]) {
            let top = upper_bound(bucket(ns));
            assert!(top >= ns && top as f64 <= ns as f64 * (1.0 + 1.0 / 64.0) + 1.0, "{ns}: {top}");
        }
        assert_eq!(bucket(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn parts_together_are_the_whole() {
        let (mut whole, mut parts) = (Histogram::default(), [Histogram::default(), Histogram::default()]);
        for us in 1..=1000u64 {
            whole.record(us * 1000);
            parts[usize::from(us % 3 == 0)].record(us * 1000);
        }
        let [mut all, more] = parts;
        all.merge(&more);
        assert_eq!((all.summary(), all.counts == whole.counts), (whole.summary(), true));
        // Nothing changes nothing.
        all.merge(&Histogram::default());
        assert_eq!(all.summary(), whole.summary());
    }

    #[test]
    fn percentiles_of_a_known_distribution_are_right_to_their_resolution() {
        let mut h = Histogram::default();
        assert_eq!(h.summary(), None);
        (1..=100_000u64).for_each(|us| h.record(us * 1000));
        let s = h.summary().expect("a summary");
        for (got, wanted) in [(s.p50_us, 5e4), (s.p90_us, 9e4), (s.p99_us, 9.9e4), (s.p999_us, 9.99e4)] {
            assert!((got / wanted - 1.0).abs() <= 1.0 / 64.0, "{got} for {wanted}");
        }
        assert_eq!((s.samples, s.min_us, s.max_us), (100_000, 1.0, 1e5));
    }
}
