//! How much an SA has carried, and which of its limits were reported.

use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::Relaxed};

use ironswan_wire::sadb::{Lifetime, SaStats};

/// How much an SA has carried, and which limits were reported.
#[derive(Default)]
#[repr(C)]
pub(crate) struct Usage {
    packets: AtomicU64,
    bytes: AtomicU64,
    pub(super) last_use: AtomicU64,
    raised: AtomicU8,
    /// There are limits: of the others, the limits are never looked at.
    limited: bool,
}

const SOFT: u8 = 1;
const HARD: u8 = 2;

/// Which limits have just been reached for the first time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LimitsReached {
    pub(crate) soft: bool,
    pub(crate) hard: bool,
}

impl LimitsReached {
    #[inline]
    pub(crate) fn any(self) -> bool {
        self.soft || self.hard
    }
}

#[inline]
fn at(limit: u64, value: u64) -> bool {
    limit != 0 && value >= limit
}

#[inline]
fn beyond(limit: u64, used: u64, more: u64) -> bool {
    limit != 0 && used.saturating_add(more) > limit
}

impl Usage {
    /// Nothing so far, of an SA with these limits. They are the same in all calls.
    pub(crate) fn new(limits: &Lifetime) -> Self {
        Self { limited: *limits != Lifetime::default(), ..Self::default() }
    }

    /// True when earlier traffic has reached a hard limit.
    #[inline]
    pub(crate) fn hard_limit_reached(&self, limits: &Lifetime) -> bool {
        self.limited
            && (at(limits.hard_packets, self.packets.load(Relaxed))
                || at(limits.hard_bytes, self.bytes.load(Relaxed)))
    }

    /// True when this much more would go beyond a hard limit. One worker at a time asks this of an
    /// SA and counts the packets that then leave.
    #[inline]
    pub(crate) fn would_exceed(&self, limits: &Lifetime, packets: u64, bytes: u64) -> bool {
        self.limited
            && (beyond(limits.hard_packets, self.packets.load(Relaxed), packets)
                || beyond(limits.hard_bytes, self.bytes.load(Relaxed), bytes))
    }

    /// True when there are limits.
    #[inline]
    pub(crate) fn is_limited(&self) -> bool {
        self.limited
    }

    /// Counts traffic and says which limits it reached.
    #[inline(always)]
    pub(crate) fn add(&self, limits: &Lifetime, packets: u64, bytes: u64, now: u64) -> LimitsReached {
        // Once a second: it may lie in another cache line than the counters.
        if self.last_use.load(Relaxed) != now {
            self.last_use.store(now, Relaxed);
        }
        self.add_unused(limits, packets, bytes)
    }

    /// Counts traffic that is no use of the SA: dummy packets, and packets that its selectors or
    /// policy refuse.
    #[inline(always)]
    pub(crate) fn add_unused(&self, limits: &Lifetime, packets: u64, bytes: u64) -> LimitsReached {
        let packets = self.packets.fetch_add(packets, Relaxed) + packets;
        let bytes = self.bytes.fetch_add(bytes, Relaxed) + bytes;
        if !self.limited {
            return LimitsReached { soft: false, hard: false };
        }
        let soft = at(limits.soft_packets, packets) || at(limits.soft_bytes, bytes);
        let hard = at(limits.hard_packets, packets) || at(limits.hard_bytes, bytes);
        if soft || hard { self.raise(soft, hard) } else { LimitsReached { soft: false, hard: false } }
    }

    /// Notes limits as reached, and returns those that were not reached before.
    #[cold]
    pub(crate) fn raise(&self, soft: bool, hard: bool) -> LimitsReached {
        let bits = if soft { SOFT } else { 0 } | if hard { HARD } else { 0 };
        let before = self.raised.fetch_or(bits, Relaxed);
        LimitsReached { soft: soft && before & SOFT == 0, hard: hard && before & HARD == 0 }
    }

    pub(crate) fn stats(&self) -> SaStats {
        SaStats {
            packets: self.packets.load(Relaxed),
            bytes: self.bytes.load(Relaxed),
            last_use: self.last_use.load(Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_limit_is_reported_once() {
        let limits = Lifetime { soft_packets: 3, hard_packets: 5, soft_bytes: 0, hard_bytes: 1000 };
        let usage = Usage::new(&limits);
        let reached = |soft, hard| LimitsReached { soft, hard };
        assert_eq!(usage.add(&limits, 2, 10, 1), reached(false, false));
        assert_eq!(usage.add(&limits, 1, 10, 1), reached(true, false));
        assert_eq!(usage.add(&limits, 1, 10, 1), reached(false, false));
        assert!(!usage.hard_limit_reached(&limits));
        assert_eq!(usage.add(&limits, 1, 10, 7), reached(false, true));
        assert!(usage.hard_limit_reached(&limits));
        assert_eq!(usage.add(&limits, 1, 1000, 8), reached(false, false));
        assert_eq!(usage.stats(), SaStats { packets: 6, bytes: 1040, last_use: 8 });
    }

    #[test]
    fn no_limit_is_never_reached() {
        let usage = Usage::default();
        assert!(!usage.add(&Lifetime::default(), u64::MAX / 2, u64::MAX / 2, 0).any());
        assert!(!usage.hard_limit_reached(&Lifetime::default()));
    }
}
