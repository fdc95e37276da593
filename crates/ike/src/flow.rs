//! Finds CHILD_SAs on which packets go out and none comes back, from the counters of both SAs.
//! Pure: the time and the counters are arguments.
//!
//! ```text
//! packet in ──▶ well                                   ┌─ IKE has been heard since ─▶ one way
//! packets out, none in, for some time ─▶ suspect ──────┤
//! ```
//! Counters cannot tell a filter from traffic that is one-way by its nature, such as a log that is
//! sent to a collector: so this is said, and never acted on.

use std::time::{Duration, Instant};

use ironswan_keying::limits::{ONE_WAY_NEVER, ONE_WAY_PACKETS, ONE_WAY_SILENCE};

/// Packets of a CHILD_SA, since it was made.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Counted {
    pub inbound: u64,
    pub outbound: u64,
}

/// What the counters of one CHILD_SA say.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Flow {
    /// Nothing has been sent since a packet came.
    Idle,
    /// Packets come in.
    Well,
    /// Packets come in again after [`Flow::OneWay`] has been said.
    Cleared,
    /// Packets go out and none comes back, not long enough to be sure, or it has been said.
    Suspect,
    /// Packets go out and none comes back. Said once.
    OneWay {
        /// Packets sent since one came in last.
        sent: u64,
        /// Time since then, or since the CHILD_SA was made.
        silent: Duration,
    },
}

/// Watches one CHILD_SA.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    /// The counters when a packet had come in last, or nothing had been sent since.
    last: Counted,
    since: Instant,
    told: bool,
}

impl Watch {
    /// A CHILD_SA whose counters are 0.
    pub(crate) fn new(now: Instant) -> Self {
        Self { last: Counted::default(), since: now, told: false }
    }

    /// The CHILD_SA takes over from another one, for which it may have been said.
    pub(crate) fn take_over(&mut self, from: Self) {
        self.told |= from.told;
    }

    /// Judges the counters. `heard`: the last message of IKE from the peer; `None`: it is not asked
    /// for signs of life, so that its silence says nothing.
    pub(crate) fn look(&mut self, now: Instant, counted: Counted, heard: Option<Instant>) -> Flow {
        if counted.inbound > self.last.inbound {
            (self.last, self.since) = (counted, now);
            return if std::mem::take(&mut self.told) { Flow::Cleared } else { Flow::Well };
        }
        let sent = counted.outbound.saturating_sub(self.last.outbound);
        if sent == 0 {
            self.since = now;
            return Flow::Idle;
        }
        let silent = now.saturating_duration_since(self.since);
        let enough = if counted.inbound == 0 { ONE_WAY_NEVER } else { ONE_WAY_SILENCE };
        let alive = heard.is_none_or(|heard| heard > self.since);
        if self.told || sent < ONE_WAY_PACKETS || silent < enough || !alive {
            return Flow::Suspect;
        }
        self.told = true;
        Flow::OneWay { sent, silent }
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "a test needs some instant to count from")]
mod tests {
    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    fn counted(inbound: u64, outbound: u64) -> Counted {
        Counted { inbound, outbound }
    }

    #[test]
    fn packets_that_never_come_back_are_said_once_and_cleared_by_the_first_that_does() {
        let t0 = Instant::now();
        let mut watch = Watch::new(t0);
        assert_eq!(
            watch.look(t0 + MINUTE / 2, counted(0, 100), Some(t0 + MINUTE / 3)),
            Flow::Suspect,
            "too soon"
        );
        let flow = watch.look(t0 + MINUTE, counted(0, 200), Some(t0 + MINUTE / 3));
        assert_eq!(flow, Flow::OneWay { sent: 200, silent: MINUTE });
        assert!(watch.told);
        assert_eq!(watch.look(t0 + 2 * MINUTE, counted(0, 300), Some(t0 + MINUTE)), Flow::Suspect, "once");
        assert_eq!(watch.look(t0 + 3 * MINUTE, counted(1, 400), None), Flow::Cleared);
        assert!(!watch.told);
        assert_eq!(watch.look(t0 + 4 * MINUTE, counted(2, 401), None), Flow::Well);
    }

    #[test]
    fn nothing_is_said_of_an_idle_tunnel_however_long() {
        let t0 = Instant::now();
        let mut watch = Watch::new(t0);
        for n in 1..100 {
            assert_eq!(watch.look(t0 + n * MINUTE, counted(0, 0), None), Flow::Idle);
        }
        // The silence counts from when packets go out.
        assert_eq!(
            watch.look(t0 + 100 * MINUTE, counted(0, 50), None),
            Flow::OneWay { sent: 50, silent: MINUTE }
        );
    }

    #[test]
    fn a_few_packets_and_a_short_silence_after_traffic_say_nothing() {
        let t0 = Instant::now();
        let mut watch = Watch::new(t0);
        assert_eq!(watch.look(t0 + 9 * MINUTE, counted(0, ONE_WAY_PACKETS - 1), None), Flow::Suspect);
        let mut watch = Watch::new(t0);
        assert_eq!(watch.look(t0 + MINUTE, counted(1000, 1000), None), Flow::Well);
        for n in 2..6 {
            assert_eq!(
                watch.look(t0 + n * MINUTE, counted(1000, 1000 * u64::from(n)), None),
                Flow::Suspect,
                "{n}"
            );
        }
        let flow = watch.look(t0 + 6 * MINUTE, counted(1000, 6000), None);
        assert_eq!(flow, Flow::OneWay { sent: 5000, silent: 5 * MINUTE });
    }

    #[test]
    fn a_peer_that_is_dead_to_ike_as_well_is_not_a_one_way_tunnel() {
        let t0 = Instant::now();
        let mut watch = Watch::new(t0);
        for n in 1..5 {
            assert_eq!(watch.look(t0 + n * MINUTE, counted(0, 1000), Some(t0)), Flow::Suspect, "{n}");
        }
        let flow = watch.look(t0 + 5 * MINUTE, counted(0, 1000), Some(t0 + 4 * MINUTE));
        assert_eq!(flow, Flow::OneWay { sent: 1000, silent: 5 * MINUTE });
    }

    #[test]
    fn a_rekeying_says_it_no_second_time_and_the_new_sa_clears_it() {
        let t0 = Instant::now();
        let mut old = Watch::new(t0);
        assert!(matches!(old.look(t0 + MINUTE, counted(0, 200), None), Flow::OneWay { .. }));
        let mut new = Watch::new(t0 + MINUTE);
        new.take_over(old);
        assert_eq!(new.look(t0 + 9 * MINUTE, counted(0, 500), None), Flow::Suspect);
        assert_eq!(new.look(t0 + 10 * MINUTE, counted(3, 600), None), Flow::Cleared);
    }
}
