//! Tells what emulated links did to packets during a measurement, and whether the links could keep
//! up.

use crate::relay::{DirectionCounts, Relay};
use crate::report::Warning;

/// A relay that did not wait for a tenth of a window has nothing left: what it was given waits in
/// front of it.
const WORN_OUT: f64 = 0.9;

/// The directions of some relays at one time.
#[derive(Debug, Clone)]
pub(super) struct Emulated(Vec<DirectionCounts>);

/// Frames that links have carried and lost in one window.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Crossed {
    /// Share of the frames that the links lost, as they were told to or since their queue was full
    /// or the frame too big.
    pub lost: f64,
    /// The largest share of the window for which a direction did not wait.
    pub busy: f64,
    /// Frames that were lost since a relay, or the link behind it, was too slow.
    pub missed: u64,
}

impl Emulated {
    /// As they are now.
    pub(super) fn look(relays: &[Relay]) -> Self {
        Self(relays.iter().flat_map(|r| [r.counts().there, r.counts().back]).collect())
    }

    /// Frames since `before`, a reading of `seconds` ago.
    pub(super) fn since(&self, before: &Self, seconds: f64) -> Crossed {
        let mut crossed = Crossed { lost: f64::NAN, busy: 0.0, missed: 0 };
        let (mut offered, mut lost) = (0, 0);
        for (now, then) in self.0.iter().zip(&before.0) {
            let gone = |c: &DirectionCounts| c.shaper.lost + c.shaper.queue_full + c.shaper.too_big;
            let missed = |c: &DirectionCounts| c.overrun + c.refused;
            offered +=
                now.shaper.offered + now.shaper.duplicated - then.shaper.offered - then.shaper.duplicated;
            lost += gone(now) - gone(then);
            crossed.missed += missed(now) - missed(then);
            let idle = (now.idle_us - then.idle_us) as f64 / 1e6;
            crossed.busy = crossed.busy.max((1.0 - idle / seconds).clamp(0.0, 1.0));
        }
        // Not finite, so left out, where nothing came.
        crossed.lost = lost as f64 / offered as f64;
        crossed
    }
}

impl Crossed {
    /// The doubt of a figure that is the relay's own.
    pub(super) fn doubt(&self, dut: &str, cell: &str) -> Option<Warning> {
        (self.busy >= WORN_OUT || self.missed > 0).then(|| Warning::RelayLimited {
            dut: dut.into(),
            cell: cell.into(),
            busy: self.busy,
            frames: self.missed,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(offered: u64, lost: u64, overrun: u64, idle_us: u64) -> DirectionCounts {
        let mut counts = DirectionCounts { overrun, idle_us, ..DirectionCounts::default() };
        (counts.shaper.offered, counts.shaper.lost) = (offered, lost);
        counts
    }

    #[test]
    fn a_relay_that_never_waits_or_loses_what_it_should_not_is_said() {
        let before = Emulated(vec![counts(100, 10, 1, 500_000), counts(0, 0, 0, 500_000)]);
        let after =
            |overrun, idle| Emulated(vec![counts(300, 20, overrun, idle), counts(0, 0, 0, 2_500_000)]);
        let calm = after(1, 1_500_000).since(&before, 2.0);
        assert_eq!(calm, Crossed { lost: 0.05, busy: 0.5, missed: 0 });
        assert_eq!(calm.doubt("plain", "line"), None);
        let worn = after(1, 600_000).since(&before, 2.0).doubt("plain", "line").expect("a doubt");
        assert!(worn.kind() == "relay-limited" && worn.text().contains("at work for 95 % of a window"));
        let missed = after(4, 1_500_000).since(&before, 2.0);
        assert!(missed.doubt("plain", "line").is_some_and(|d| d.text().contains("lost 3 frames")));
        assert!(before.since(&before, 2.0).lost.is_nan());
    }
}
