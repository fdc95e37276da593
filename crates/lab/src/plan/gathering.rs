//! At the end of a curve a gateway carries as much as it can, and packets wait for it: the more
//! crypto takes, the more of them share the next call. So a suite that costs more there has fewer
//! calls and larger bursts, and each is cheaper than alone. Pure.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::fit;
use super::model::{ALONE, Point};
use crate::schema::never_negative;

/// How packets gather at the end of a curve, by what crypto takes for each: straight lines of the
/// logarithms between two ends.
#[derive(Debug, Clone, Copy, PartialEq, JsonSchema, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[schemars(transform = never_negative)]
pub struct Gathering {
    /// Time that crypto takes for the cheapest and for the dearest packet that was measured, sealed
    /// or opened by itself, nanoseconds. Cheaper and dearer ones are taken to gather as these.
    pub crypto: [f64; 2],
    /// Calls and wakings for a packet there.
    pub calls: [f64; 2],
    /// Packets that share a call of the crypto engine there.
    pub burst: [f64; 2],
    /// Time that one more call for a packet adds to the base, nanoseconds.
    pub per_call: f64,
}

/// Calls and wakings for a packet from which on there is something to save by gathering more.
const TO_SAVE: f64 = 0.1;

/// One load at the highest rate.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load<'a> {
    pub(super) suite: &'a str,
    /// Time that crypto takes for a packet by itself, nanoseconds.
    pub(super) crypto: f64,
    /// The measurement; `ns` is the base.
    pub(super) seen: Point,
}

impl Gathering {
    /// From the loads at the highest rates. `None` where fewer than two suites were measured, where
    /// dearer packets did not gather more, or where ten and more shared a call as it was: then the
    /// end of the curve is the same for all.
    pub(super) fn of(loads: &[Load<'_>]) -> Option<Self> {
        let first = loads.first()?;
        if loads.iter().all(|l| l.suite == first.suite) {
            return None;
        }
        let line = |y: fn(&Point) -> f64| {
            fit::line(&loads.iter().map(|l| (l.crypto, y(&l.seen))).collect::<Vec<_>>())
        };
        let (calls, burst) = (line(|p| p.calls.ln())?, line(|p| p.burst.ln())?);
        if !(calls.slope < 0.0 && burst.slope > 0.0) {
            return None;
        }
        let dearer = fit::line(&loads.iter().map(|l| (l.seen.calls, l.seen.ns)).collect::<Vec<_>>())?;
        let costs = || loads.iter().map(|l| l.crypto);
        let crypto = [costs().fold(f64::INFINITY, f64::min), costs().fold(0.0, f64::max)];
        let at = |l: fit::Line| crypto.map(|c| (l.intercept + l.slope * c).exp());
        if at(calls)[0] < TO_SAVE {
            return None;
        }
        Some(Self {
            crypto,
            calls: at(calls).map(|n| n.min(ALONE)),
            burst: at(burst).map(|n| n.max(1.0)),
            per_call: dearer.slope.max(0.0),
        })
    }

    /// The end of the curve for packets that crypto takes so long for, nanoseconds, each by itself.
    pub(super) fn end(&self, end: &Point, crypto: f64) -> Point {
        let [low, high] = self.crypto;
        let share = ((crypto - low) / (high - low)).clamp(0.0, 1.0);
        let between = |[a, b]: [f64; 2]| a * (b / a).powf(share);
        let calls = between(self.calls);
        let ns = (end.ns + self.per_call * (calls - end.calls)).max(0.0);
        Point { ns, calls, burst: between(self.burst), ..*end }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(suite: &str, crypto: f64, calls: f64, burst: f64) -> Load<'_> {
        Load {
            suite,
            crypto,
            seen: Point { pps: 1e5, ns: 1_000.0 + 500.0 * calls, calls, burst, within: None },
        }
    }

    /// A quarter of the calls and four times the burst for a microsecond of crypto more.
    fn gathers(suite: &str, crypto: f64) -> Load<'_> {
        let times = 4f64.powf(crypto / 1_000.0);
        load(suite, crypto, 1.6 / times, 2.0 * times)
    }

    #[test]
    fn a_gateway_whose_dearer_packets_gather_more_is_known_between_its_loads_and_no_further() {
        let loads = [gathers("a", 100.0), gathers("a", 400.0), gathers("b", 700.0), gathers("b", 2_000.0)];
        let g = Gathering::of(&loads).expect("they gather");
        assert!((g.per_call - 500.0).abs() < 1e-6, "{g:?}");
        let end = Point { pps: 2e5, ns: 1_400.0, calls: 0.8, burst: 4.0, within: None };
        for crypto in [100.0, 250.0, 1_300.0, 2_000.0] {
            let (found, known) = (g.end(&end, crypto), gathers("", crypto).seen);
            let near = |a: f64, b: f64| (a / b - 1.0).abs() < 1e-9;
            assert!(near(found.calls, known.calls) && near(found.burst, known.burst), "{crypto}: {found:?}");
            assert!(near(found.ns, known.ns) && found.pps == end.pps, "{crypto}: {found:?} {known:?}");
        }
        assert_eq!(g.end(&end, 1.0), g.end(&end, 100.0));
        assert_eq!(g.end(&end, 9_000.0), g.end(&end, 2_000.0));
        // A base that a line makes less than nothing is nothing.
        assert_eq!(g.end(&Point { ns: 10.0, ..end }, 2_000.0).ns, 0.0);
    }

    #[test]
    fn one_suite_or_packets_that_do_not_gather_more_say_nothing() {
        assert_eq!(Gathering::of(&[]), None);
        assert_eq!(Gathering::of(&[gathers("a", 100.0), gathers("a", 900.0)]), None);
        assert_eq!(Gathering::of(&[load("a", 100.0, 1.0, 2.0), load("b", 900.0, 1.5, 1.5)]), None);
        assert_eq!(Gathering::of(&[load("a", 100.0, 1.0, 2.0), load("b", 900.0, 0.5, 2.0)]), None);
        // If many packets share a call already, the difference has another cause.
        assert_eq!(Gathering::of(&[load("a", 100.0, 0.02, 90.0), load("b", 900.0, 0.01, 190.0)]), None);
        // No crypto, or no calls, are no ground for a line.
        assert_eq!(Gathering::of(&[load("a", 100.0, 1.0, 2.0), load("b", 100.0, 0.5, 4.0)]), None);
        assert_eq!(Gathering::of(&[load("a", 100.0, 0.0, 2.0), load("b", 900.0, 0.5, 4.0)]), None);
    }
}
