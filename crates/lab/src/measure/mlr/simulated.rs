//! Systems with a known throughput, to search in. Their randomness is seeded.

/// A simulated system: the share it loses of a trial at this load for so many seconds.
pub(super) trait System {
    fn lose(&mut self, load: f64, seconds: f64) -> f64;
}

/// Numbers from 0 to 1 (xorshift64*).
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(super) fn next(&mut self) -> f64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 11) as f64 / (1u64 << 53) as f64
    }
}

/// Forwards up to its limit and drops the rest.
pub(super) struct HardLimit(pub f64);

impl System for HardLimit {
    fn lose(&mut self, load: f64, _: f64) -> f64 {
        (1.0 - self.0 / load).max(0.0)
    }
}

/// A hard limit that is another one in every trial, evenly spread around `middle`.
pub(super) struct Noisy {
    pub middle: f64,
    pub spread: f64,
    pub random: Random,
}

impl System for Noisy {
    fn lose(&mut self, load: f64, seconds: f64) -> f64 {
        let limit = self.middle * (1.0 + self.spread * (2.0 * self.random.next() - 1.0));
        HardLimit(limit).lose(load, seconds)
    }
}

/// Takes more than it forwards until its buffer is full: short trials lose nothing.
pub(super) struct Bufferbloated {
    pub limit: f64,
    pub buffer: f64,
}

impl System for Bufferbloated {
    fn lose(&mut self, load: f64, seconds: f64) -> f64 {
        (((load - self.limit) * seconds - self.buffer) / (load * seconds)).max(0.0)
    }
}

/// Past its peak it forwards less the more arrives, as a gateway that drops only after the work is
/// done.
pub(super) struct Degrading {
    pub peak: f64,
}

impl System for Degrading {
    fn lose(&mut self, load: f64, _: f64) -> f64 {
        if load <= self.peak {
            return 0.0;
        }
        let forwarded = self.peak * (1.0 - 0.6 * ((load / self.peak - 1.0) / 4.0).min(1.0)).max(0.1);
        1.0 - forwarded / load
    }
}

/// Has one of two limits, by chance, for a whole trial.
pub(super) struct Bimodal {
    pub slow: f64,
    pub fast: f64,
    /// Share of slow trials.
    pub share: f64,
    pub random: Random,
}

impl System for Bimodal {
    fn lose(&mut self, load: f64, seconds: f64) -> f64 {
        let limit = if self.random.next() < self.share { self.slow } else { self.fast };
        HardLimit(limit).lose(load, seconds)
    }
}

/// A hard limit below which a little is lost now and then, whatever the load.
pub(super) struct Leaky {
    pub limit: f64,
    /// Share of trials with such a loss.
    pub share: f64,
    pub random: Random,
}

impl System for Leaky {
    fn lose(&mut self, load: f64, seconds: f64) -> f64 {
        let leak = if self.random.next() < self.share { 0.0002 } else { 0.0 };
        HardLimit(self.limit).lose(load, seconds).max(leak)
    }
}
