//! What makes the measurements of a calibration doubtful: haste, the build, what else the machine
//! did, and loads that were lost although far more goes. Pure.

use super::loads::CalibrateOptions;
use crate::experiment::general_doubts::{self, is_debug};
use crate::machine::Fingerprint;
use crate::measure::Watch;
use crate::measure::counters::CpuTicks;
use crate::plan::calm::Calm;
use crate::plan::model::{Cell, Way};
use crate::report::Warning;
use crate::stats;

/// State of the machine during a calibration: by the processors' time, and by its loads.
pub(super) fn calm(ticks: &CpuTicks, cells: &[Cell]) -> Calm {
    let seen = || cells.iter().flat_map(|c| &c.seen).map(|s| s.other_share);
    let spreads =
        cells.iter().filter(|c| c.seen.len() > 1).flat_map(|c| Way::BOTH.map(|way| c.measured(way)));
    let spreads: Vec<f64> = spreads.flatten().map(|(_, spread)| spread).collect();
    Calm {
        others: seen().sum::<f64>() / seen().count().max(1) as f64,
        stolen: ticks.steal as f64 / ticks.total().max(1) as f64,
        spread: stats::median(&spreads),
    }
}

/// Warns that less was measured than a calibration wants.
pub(super) fn haste(o: &CalibrateOptions) -> Option<Warning> {
    if o.smoke { Some(Warning::Smoke) } else { o.quick.then_some(Warning::Quick) }
}

/// Warns of everything that makes the measurements doubtful: the build, what else the machine did,
/// and loads that were lost although far more goes.
pub(super) fn doubts(
    o: &CalibrateOptions,
    machine: &Fingerprint,
    watch: Watch,
    cells: &[Cell],
) -> Vec<Warning> {
    let mut doubts: Vec<Warning> = haste(o).into_iter().collect();
    if cfg!(debug_assertions) || is_debug(&o.gateway()) {
        doubts.push(Warning::DebugBuild);
    }
    doubts.extend(general_doubts::machine(machine, &watch.finish()));
    doubts.extend(lost(cells));
    doubts
}

/// Loads of at most half of what the same gateways carried that lost packets all the same.
pub(super) fn lost(cells: &[Cell]) -> Option<Warning> {
    let handled = |c: &Cell| c.median(Way::In).map_or(0.0, |s| s.pps);
    let most = |cell: &Cell| {
        let same =
            |c: &&Cell| c.path == cell.path && c.suite == cell.suite && c.alone.is_none() && !c.mix.merged;
        let own = cells.iter().filter(same);
        own.map(handled).fold(0.0, f64::max)
    };
    let small = cells.iter().filter(|c| c.offered.is_some_and(|pps| pps <= most(c) / 2.0));
    let share = small.flat_map(|c| &c.seen).map(|s| s.loss).fold(0.0, f64::max);
    (share > 0.01).then_some(Warning::Saturated { share })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::model::{Seen, Side};
    use crate::plan::sample;

    #[test]
    fn a_load_is_doubted_that_loses_packets_where_twice_as_many_go() {
        let cell = |offered, pps, loss| {
            let into = Side { pps, ..Side::default() };
            let seen = vec![Seen { into, loss, ..sample::EMPTY }];
            Cell { offered, seen, ..sample::model().cells[0].clone() }
        };
        let flood = cell(None, 80_000.0, 0.4);
        let slow = cell(Some(25_000.0), 24_000.0, 0.05);
        let fast = cell(Some(60_000.0), 50_000.0, 0.05);
        assert_eq!(lost(&[fast.clone(), flood.clone()]), None);
        assert_eq!(lost(&[slow.clone(), flood]), Some(Warning::Saturated { share: 0.05 }));
        // Nothing says that more would go.
        assert_eq!(lost(&[slow]), None);
    }

    #[test]
    fn a_calibration_knows_what_was_taken_from_it_and_how_far_its_repeats_lie_apart() {
        let seen =
            |ns, other_share| Seen { out: Side { ns, ..Side::default() }, other_share, ..sample::EMPTY };
        let cell = |seen| Cell { alone: Some(Way::Out), seen, ..sample::model().cells[0].clone() };
        let cells = [cell(vec![seen(100.0, 0.1), seen(110.0, 0.0)]), cell(vec![seen(100.0, 0.2)])];
        let ticks = CpuTicks { user: 90, steal: 10, ..CpuTicks::default() };
        let found = calm(&ticks, &cells);
        assert!((found.others - 0.1).abs() < 1e-9 && found.stolen == 0.1, "{found:?}");
        assert!(found.spread.is_some_and(|s| (s - 10.0 / 105.0).abs() < 1e-9), "{found:?}");
        let none = calm(&CpuTicks::default(), &[]);
        assert_eq!((none.others, none.stolen, none.spread), (0.0, 0.0, None));
    }

    #[test]
    fn a_hasty_calibration_says_so() {
        let of = |smoke, quick| haste(&CalibrateOptions { smoke, quick, ..CalibrateOptions::default() });
        let kinds = [(false, false), (false, true), (true, false)].map(|(s, q)| of(s, q).map(|w| w.kind()));
        assert_eq!(kinds, [None, Some("quick"), Some("smoke")]);
    }
}
