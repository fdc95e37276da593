//! Measurements of paths, of all IKE_SAs together: their pace, and the peers that refuse them.

use std::collections::{BTreeSet, VecDeque};
use std::time::{Duration, Instant};

use ironswan_keying::limits::{PATH_PROBE_FIRST, PATH_PROBE_REFUSERS, PATH_PROBES_PER_SECOND};
use ironswan_wire::id::Identity;

use crate::window::digest;

/// Pace and refusals.
#[derive(Default)]
pub(crate) struct Probes {
    /// No first measurement begins before this time.
    free: Option<Instant>,
    /// Digests of the identities of peers that refuse. Two peers with one digest are measured
    /// neither.
    refusers: BTreeSet<u64>,
    /// The same, the oldest first.
    order: VecDeque<u64>,
}

impl Probes {
    /// The time at which one more first measurement begins.
    pub(crate) fn time(&mut self, now: Instant) -> Instant {
        let first = now + PATH_PROBE_FIRST;
        let at = self.free.map_or(first, |free| free.max(first));
        self.free = Some(at + Duration::from_secs(1) / PATH_PROBES_PER_SECOND);
        at
    }

    /// True when a peer of this identity has refused.
    pub(crate) fn refuses(&self, peer: &Identity) -> bool {
        self.refusers.contains(&of(peer))
    }

    /// A peer of this identity refuses.
    pub(crate) fn refused(&mut self, peer: &Identity) {
        if !self.refusers.insert(of(peer)) {
            return;
        }
        self.order.push_back(of(peer));
        if self.order.len() > PATH_PROBE_REFUSERS
            && let Some(oldest) = self.order.pop_front()
        {
            self.refusers.remove(&oldest);
        }
    }
}

fn of(peer: &Identity) -> u64 {
    digest(peer.to_string().as_bytes())
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test needs some instant to count from")]
mod tests {
    use super::*;

    #[test]
    fn refusals_are_remembered_up_to_the_limit_and_the_oldest_goes_first() {
        let mut probes = Probes::default();
        let peer = |n: usize| Identity::parse(&format!("peer{n}.example")).unwrap();
        for n in 0..PATH_PROBE_REFUSERS + 3 {
            probes.refused(&peer(n));
            probes.refused(&peer(n));
        }
        assert!((0..3).all(|n| !probes.refuses(&peer(n))));
        assert!((3..PATH_PROBE_REFUSERS + 3).all(|n| probes.refuses(&peer(n))));
        assert_eq!((probes.refusers.len(), probes.order.len()), (PATH_PROBE_REFUSERS, PATH_PROBE_REFUSERS));
    }

    #[test]
    fn many_first_measurements_are_spread() {
        let (mut probes, now) = (Probes::default(), Instant::now());
        let times: Vec<Instant> = (0..1_000).map(|_| probes.time(now)).collect();
        assert_eq!(times[0], now + PATH_PROBE_FIRST);
        let per_second = PATH_PROBES_PER_SECOND as usize;
        assert_eq!(times[per_second], now + PATH_PROBE_FIRST + Duration::from_secs(1));
        // Later there is nothing to wait for.
        let later = now + Duration::from_secs(3_600);
        assert_eq!(probes.time(later), later + PATH_PROBE_FIRST);
    }
}
