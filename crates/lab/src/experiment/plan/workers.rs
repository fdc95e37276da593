//! Measures one gateway alone at its highest rates with one worker and with two, in turns.

use super::super::placement::{Placement, Spread};
use super::super::rig::Rig;
use super::bench::{BELOW, FIRST};
use super::loads::CalibrateOptions;
use super::loads::{FITTED, MTU};
use crate::dut::{self, Dut, DutOptions, Encap};
use crate::error::LabError;
use crate::interrupt;
use crate::plan::mix::Mix;
use crate::plan::model::{Seen, Way};
use crate::plan::workers::WorkerCost;
use crate::stats::{self, Summary};
use crate::topology::Owner;

/// Workers of the gateways, of those that the machine has processors for.
const COUNTS: [u32; 2] = [1, 2];
/// Frames of the loads.
const FRAME: u32 = 256;

/// Measures them, `rounds` times each.
pub(super) fn measure(owner: &Owner, o: &CalibrateOptions, rounds: u32) -> Result<Vec<WorkerCost>, LabError> {
    let cpus = crate::measure::cpus();
    let counts: Vec<u32> = COUNTS.into_iter().filter(|n| *n as usize <= cpus.max(1)).collect();
    let placement = Placement::new(Spread::Free, cpus).map_err(LabError::Usage)?;
    let suites = vec![FITTED[0].parse().map_err(LabError::Usage)?];
    let options = DutOptions { suites, ..o.gateway() };
    let mut rigs = Vec::new();
    for workers in &counts {
        let dut = with_workers(&options, Encap::Udp, *workers)?;
        rigs.push(Rig::start_single(owner, dut.as_ref(), MTU, &placement)?);
    }
    let mut seen: Vec<[Vec<Seen>; 2]> = counts.iter().map(|_| Default::default()).collect();
    for _ in 0..rounds {
        for (n, way) in Way::BOTH.into_iter().enumerate() {
            for (rig, seen) in rigs.iter_mut().zip(&mut seen) {
                interrupt::check()?;
                let low = seen[n].last().map_or(FIRST, |s| s.side(way).pps * BELOW).max(1.0);
                seen[n].push(rig.highest(&Mix::frames(FRAME), way, low, o.load(), o.trials())?);
            }
        }
    }
    Ok(counts.iter().zip(&seen).map(|(workers, seen)| cost(*workers, seen)).collect())
}

/// The gateway of the first suite of `options` with so many workers.
pub(in crate::experiment) fn with_workers(
    options: &DutOptions,
    encap: Encap,
    workers: u32,
) -> Result<Box<dyn Dut>, LabError> {
    let data = vec![format!("workers={workers}").parse().map_err(LabError::Usage)?];
    let suites = options.suites.iter().take(1).cloned().collect();
    let options = DutOptions { data, suites, ..options.clone() };
    // The last one has the setting.
    let dut = dut::by_name("ironswan", &[encap], &options)?.pop();
    dut.ok_or_else(|| LabError::Usage("nothing to measure: name a suite".into()))
}

/// Medians of the rounds.
fn cost(workers: u32, seen: &[Vec<Seen>; 2]) -> WorkerCost {
    let of = |value: fn(&Seen, Way) -> f64| {
        [0, 1].map(|n| seen[n].iter().map(|s| value(s, Way::BOTH[n])).collect::<Vec<f64>>())
    };
    let costs = of(|s, way| s.side(way).ns);
    let half = |costs: &Vec<f64>| Summary::of(costs).map_or(0.0, |s| s.half_range());
    let median = |values: &Vec<f64>| stats::median(values).unwrap_or(0.0);
    let pps = of(|s, way| s.side(way).pps);
    WorkerCost {
        workers,
        pps: [0, 1].map(|n| median(&pps[n])),
        ns: [0, 1].map(|n| median(&costs[n])),
        within: [0, 1].map(|n| half(&costs[n])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::model::Side;
    use crate::plan::sample;

    #[test]
    fn a_cost_is_the_median_of_its_rounds_each_way_by_itself() {
        let side = |pps, ns| Side { pps, ns, ..Side::default() };
        let out = [4_000.0, 4_400.0].map(|ns| Seen { out: side(1e5, ns), ..sample::EMPTY }).to_vec();
        let into = vec![Seen { into: side(9e4, 6_000.0), out: side(1.0, 1.0), ..sample::EMPTY }];
        let found = cost(2, &[out, into]);
        assert_eq!((found.workers, found.pps, found.ns), (2, [1e5, 9e4], [4_200.0, 6_000.0]));
        assert!((found.within[0] - 200.0).abs() < 1e-9 && found.within[1] == 0.0, "{found:?}");
        assert_eq!(cost(1, &[vec![], vec![]]).ns, [0.0; 2]);
    }
}
