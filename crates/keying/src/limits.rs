//! Limits and timers that whoever runs the gateway may set, with their defaults.

use std::time::Duration;

/// Limits and timers of the whole endpoint. Defaults are charon's, where there is one.
#[derive(Clone, PartialEq, Debug)]
pub struct Limits {
    /// First retransmission (4 s).
    pub retransmit_timeout: Duration,
    /// Factor from one retransmission to the next (1.8).
    pub retransmit_base: f64,
    /// Retransmissions before the peer is given up (5).
    pub retransmit_tries: u32,
    /// Half-open IKE_SAs (as responder) die after this (30 s), after a third of it while there are more than half of
    /// `half_open_max`.
    pub half_open_timeout: Duration,
    /// Cookies are asked for from this many half-open IKE_SAs on (30), of one address from three on, and while many requests
    /// are refused; `usize::MAX`: never because of any of these. A response that would be larger than its request by more
    /// than a fifth takes a cookie in any case.
    pub cookie_threshold: usize,
    /// No more half-open IKE_SAs than this at all (1,000).
    pub half_open_max: usize,
    /// No more half-open IKE_SAs than this from one network, a /24 or /64; 0: a quarter of `half_open_max`, at least
    /// `half_open_per_addr`.
    pub half_open_per_net: usize,
    /// No more half-open IKE_SAs than this from one address (200: many peers may be behind one NAT). From the fourth on,
    /// each must have brought a cookie back, so that no address can be made to use up its share by others.
    pub half_open_per_addr: usize,
    /// The old inbound CHILD_SA is kept this long after a rekey (5 s).
    pub delete_rekeyed_delay: Duration,
    /// First pause between two attempts of `keyingtries` (5 s), doubled each time with jitter.
    pub retry_initial: Duration,
    /// Longest pause (300 s).
    pub retry_max: Duration,
    /// No more IKE_SAs than this (100,000).
    pub ike_sa_max: usize,
    /// No more IKE_SAs with one authenticated identity than this (1,000), 0: as many as there may be at all. Many devices
    /// may share an identity, and one that authenticates anew has two for a moment.
    pub ike_sa_max_per_id: usize,
    /// No more CHILD_SAs per IKE_SA than this (1,000); then NO_ADDITIONAL_SAS. No limit refuses a rekeying.
    pub child_sa_max: usize,
    /// No more CHILD_SAs than this on all IKE_SAs with one authenticated identity (10,000), 0: no limit.
    pub child_sa_max_per_id: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            retransmit_timeout: Duration::from_secs(4),
            retransmit_base: 1.8,
            retransmit_tries: 5,
            half_open_timeout: Duration::from_secs(30),
            cookie_threshold: 30,
            half_open_max: 1_000,
            half_open_per_net: 0,
            half_open_per_addr: 200,
            delete_rekeyed_delay: Duration::from_secs(5),
            retry_initial: Duration::from_secs(5),
            retry_max: Duration::from_secs(300),
            ike_sa_max: 100_000,
            ike_sa_max_per_id: 1_000,
            child_sa_max: 1_000,
            child_sa_max_per_id: 10_000,
        }
    }
}

impl Limits {
    /// No more half-open IKE_SAs than this from one network.
    pub fn per_net(&self) -> usize {
        match self.half_open_per_net {
            0 => (self.half_open_max / 4).max(self.half_open_per_addr),
            n => n,
        }
    }

    /// No more half-open IKE_SAs than this from one site: half of all, or more if one network may have more.
    pub fn per_site(&self) -> usize {
        (self.half_open_max / 2).max(self.per_net())
    }
}
