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

/// Lengths of bursts that are measured.
pub(super) const LENGTHS: [u32; 3] = [4, 16, 64];

/// Packets that share a call when so many come at once, at `pps`: a rate at which hardly any share
/// one by themselves.
pub(super) fn measure_bursts(
    rig: &mut Rig,
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
    Ok(shared(&seen))
}

/// Medians of the repeats. Longer bursts never share calls less, and none shares more than it has.
fn shared(seen: &[Vec<Seen>; LENGTHS.len()]) -> Vec<BurstShare> {
    let mut least = [1.0; 2];
    let one = |(at_once, seen): (&u32, &Vec<Seen>)| {
        let of = |way: Way| stats::median(&seen.iter().map(|s| s.side(way).burst).collect::<Vec<_>>());
        for (least, way) in least.iter_mut().zip(Way::BOTH) {
            *least = of(way).unwrap_or(1.0).clamp(*least, f64::from(*at_once).max(*least));
        }
        BurstShare { at_once: *at_once, shared: least }
    };
    LENGTHS.iter().zip(seen).map(one).collect()
}

/// Costs beside those of one flow, by the medians of the repeats. More flows never cost less, and a
/// difference that the repeats hide is none.
fn added(seen: &[Vec<Seen>; COUNTS.len()]) -> Vec<FlowCost> {
    let of = |seen: &[Seen], way: Way| {
        let costs: Vec<f64> = seen.iter().map(|s| s.side(way).ns).collect();
        let half = Summary::of(&costs).map_or(0.0, |s| s.relative_range() * s.median / 2.0);
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
    fn longer_bursts_share_calls_more_and_none_more_than_it_has() {
        let of = |out, into| {
            let side = |burst| Side { burst, ..Side::default() };
            vec![Seen { out: side(out), into: side(into), ..sample::EMPTY }; 2]
        };
        let found = shared(&[of(3.0, 9.0), of(2.0, 5.0), of(10.0, 20.0)]);
        assert_eq!(found.iter().map(|b| b.at_once).collect::<Vec<_>>(), LENGTHS);
        assert_eq!(
            found.iter().map(|b| b.shared).collect::<Vec<_>>(),
            [[3.0, 4.0], [3.0, 5.0], [10.0, 20.0]]
        );
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
