//! Measures how many packets share a call when they come at once, and the cost that the number of
//! flows adds to a packet: the same load in one flow, in as many as every other load of a
//! calibration has, and in thousands, over a line of two gateways.

use std::time::Duration;

use super::super::rig::Rig;
use crate::error::LabError;
use crate::interrupt;
use crate::plan::cost::{BurstShare, FlowCost};
use crate::plan::mix::Mix;
use crate::plan::model::{FLOWS, Seen, Way};
use crate::plan::suite::SuiteCost;
use crate::stats::{self, Summary};

/// Flows that are measured.
pub(super) const COUNTS: [u32; 3] = [1, FLOWS, 4_096];
/// Frames of these loads.
const FRAME: u32 = 256;

/// Measures all counts in turns, `repeats` times, at `pps`.
pub(super) fn measure(
    rig: &mut Rig,
    pps: f64,
    duration: Duration,
    repeats: u32,
) -> Result<Vec<FlowCost>, LabError> {
    let mix = Mix::frames(FRAME);
    let mut seen: [Vec<Seen>; COUNTS.len()] = Default::default();
    for _ in 0..repeats {
        for (flows, seen) in COUNTS.iter().zip(&mut seen) {
            interrupt::check()?;
            seen.push(rig.packets_of(&mix, (*flows, 1), pps, duration)?);
        }
    }
    Ok(added(&seen))
}

/// Lengths of bursts that are measured, beside evenly spaced packets.
pub(super) const LENGTHS: [u32; 4] = [1, 4, 16, 64];

/// Packets that share a call when so many come at once, and what the base is beside that of evenly
/// spaced ones, at `pps`: a rate at which hardly any share a call by themselves. `suite` is the one
/// of the rig.
pub(super) fn measure_bursts(
    rig: &mut Rig,
    suite: &SuiteCost,
    pps: f64,
    duration: Duration,
    repeats: u32,
) -> Result<Vec<BurstShare>, LabError> {
    let mix = Mix::frames(FRAME);
    let mut seen: [Vec<Seen>; LENGTHS.len()] = Default::default();
    for _ in 0..repeats {
        for (at_once, seen) in LENGTHS.iter().zip(&mut seen) {
            interrupt::check()?;
            seen.push(rig.packets_of(&mix, (FLOWS, *at_once), pps, duration)?);
        }
    }
    Ok(shared(&seen, |way, burst| suite.of_mix(way, &mix, burst)))
}

/// Medians of the repeats, of costs without crypto. Longer bursts never share calls less nor cost
/// more, and none shares more than it has.
fn shared(seen: &[Vec<Seen>; LENGTHS.len()], crypto: impl Fn(Way, f64) -> f64) -> Vec<BurstShare> {
    let median = |seen: &[Seen], of: &dyn Fn(&Seen) -> f64| {
        stats::median(&seen.iter().map(of).collect::<Vec<_>>()).unwrap_or(1.0)
    };
    let base = |seen: &[Seen], way: Way| {
        median(seen, &|s| (s.side(way).ns - crypto(way, s.side(way).burst)).max(1.0))
    };
    let (mut shared, mut ratio) = ([1.0; 2], [1.0; 2]);
    let one = |(at_once, own): (&u32, &Vec<Seen>)| {
        for (n, way) in Way::BOTH.into_iter().enumerate() {
            let most = f64::from(*at_once).max(shared[n]);
            shared[n] = median(own, &|s| s.side(way).burst).clamp(shared[n], most);
            ratio[n] = (base(own, way) / base(&seen[0], way)).clamp(LEAST, ratio[n]);
        }
        BurstShare { at_once: *at_once, shared, ratio }
    };
    LENGTHS.iter().zip(seen).skip(1).map(one).collect()
}

/// No base is less than this part of that of evenly spaced packets.
const LEAST: f64 = 0.01;

/// Costs beside those of one flow, by the medians of the repeats. More flows never cost less, and a
/// difference that the repeats hide is none.
fn added(seen: &[Vec<Seen>; COUNTS.len()]) -> Vec<FlowCost> {
    let of = |seen: &[Seen], way: Way| {
        let costs: Vec<f64> = seen.iter().map(|s| s.side(way).ns).collect();
        let half = Summary::of(&costs).map_or(0.0, |s| s.half_range());
        (stats::median(&costs).unwrap_or(0.0), half)
    };
    let mut all: Vec<FlowCost> = Vec::new();
    for (flows, own) in COUNTS.iter().zip(seen) {
        let both = Way::BOTH.map(|way| {
            let ((one, apart), (many, own_apart)) = (of(&seen[0], way), of(own, way));
            (many - one, apart.hypot(own_apart))
        });
        let least = all.last().map_or([0.0; 2], |f| f.added);
        // One repeat does not say what it hides.
        let told = |n: usize| {
            let (more, within) = both[n];
            if own.len() > 1 && more > within { more.max(least[n]) } else { least[n] }
        };
        all.push(FlowCost {
            flows: *flows,
            added: [told(0), told(1)],
            within: both.map(|(_, within)| within),
        });
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::model::Side;
    use crate::plan::sample;

    fn seen(costs: [f64; 2]) -> Vec<Seen> {
        let side = |ns| Side { ns, ..Side::default() };
        costs.map(|ns| Seen { out: side(ns), into: side(5_000.0), ..sample::EMPTY }).into()
    }

    #[test]
    fn longer_bursts_share_calls_more_cost_less_and_share_no_more_than_they_have() {
        let of = |out: (f64, f64), into: (f64, f64)| {
            let side = |(burst, ns)| Side { burst, ns, ..Side::default() };
            vec![Seen { out: side(out), into: side(into), ..sample::EMPTY }; 2]
        };
        let even = of((1.0, 9_000.0), (1.2, 5_000.0));
        let seen = [
            even,
            of((3.0, 5_000.0), (9.0, 5_500.0)),
            of((2.0, 6_000.0), (5.0, 3_000.0)),
            of((10.0, 1_000.0), (20.0, 2_000.0)),
        ];
        // A microsecond of crypto each.
        let found = shared(&seen, |_, _| 1_000.0);
        assert_eq!(found.iter().map(|b| b.at_once).collect::<Vec<_>>(), LENGTHS[1..]);
        assert_eq!(
            found.iter().map(|b| b.shared).collect::<Vec<_>>(),
            [[3.0, 4.0], [3.0, 5.0], [10.0, 20.0]]
        );
        let ratios: Vec<[f64; 2]> = found.iter().map(|b| b.ratio).collect();
        assert_eq!(ratios, [[0.5, 1.0], [0.5, 0.5], [LEAST, 0.25]]);
    }

    #[test]
    fn flows_add_what_repeats_do_not_hide_and_more_of_them_never_less() {
        let found = added(&[seen([1_000.0, 1_020.0]), seen([1_005.0, 1_035.0]), seen([1_400.0, 1_440.0])]);
        let of = |n: usize| (found[n].flows, found[n].added);
        assert_eq!([of(0), of(1), of(2)], [(1, [0.0; 2]), (64, [0.0; 2]), (4_096, [410.0, 0.0])]);
        assert!(
            (found[1].within[0] - 10f64.hypot(15.0)).abs() < 1e-9 && found[2].within[1] == 0.0,
            "{found:?}"
        );
        let falling = added(&[seen([1_000.0; 2]), seen([1_100.0; 2]), seen([1_050.0; 2])]);
        assert_eq!((falling[1].added[0], falling[2].added[0]), (100.0, 100.0));
        let once = |ns| seen([ns; 2])[..1].to_vec();
        let untold = added(&[once(1_000.0), once(1_100.0), once(9_000.0)]);
        assert!(untold.iter().all(|f| f.added == [0.0; 2]), "{untold:?}");
    }
}
