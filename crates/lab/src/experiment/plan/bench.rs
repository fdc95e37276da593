//! Rigs side by side, and the loads of a calibration on each of them in turns.

use std::collections::HashMap;
use std::time::Duration;

use super::flows;
use super::loads::{CalibrateOptions, Load, MTU};
use super::soaked::Soaked;
use crate::dut::{self, Dut, DutOptions, Encap, Suite};
use crate::error::LabError;
use crate::experiment::placement::{Placement, Spread};
use crate::experiment::rig::Rig;
use crate::interrupt;
use crate::measure::Watch;
use crate::plan::cost::{BurstShare, FlowCost};
use crate::plan::model::{Cell, FLOWS, Path, Seen};
use crate::plan::suite::SuiteCost;
use crate::report::{Progress, Warning};
use crate::topology::{Mode, Owner};

/// Share of the machine that programs outside may use during a load.
const DISTURBED: f64 = 0.05;
/// Number of loads that are measured once more for that, so that a calibration comes to an end.
const AGAIN_AT_MOST: u32 = 12;

/// Packets a second that a search for the highest rate begins at, and the share of what the last of
/// the same gateway ended at, or of another.
pub(super) const FIRST: f64 = 60_000.0;
pub(super) const BELOW: f64 = 0.8;
const BELOW_OTHERS: f64 = 0.4;

/// Rigs that take turns, by suite and path: lines, or gateways that are alone with the tester.
pub(super) struct Bench {
    rigs: Vec<(String, Path, Rig)>,
    load: Duration,
    /// Of a search for a highest rate, at most.
    trials: u32,
    soaked: Option<Soaked>,
}

impl Bench {
    /// Starts the rigs that `loads` need, which are all for lines or all for one gateway.
    pub(super) fn start(
        owner: &Owner,
        o: &CalibrateOptions,
        suites: &[&str],
        loads: &[Load],
    ) -> Result<Self, LabError> {
        let alone = loads.iter().any(|l| l.alone().is_some());
        let placement = Placement::new(Spread::Free, crate::measure::cpus()).map_err(LabError::Usage)?;
        let soaked = o.soaker.then(Soaked::start).transpose()?;
        let mut rigs = Vec::new();
        for name in suites {
            for path in Path::BOTH {
                let encap = if path == Path::Udp { Encap::Udp } else { Encap::Raw };
                if !loads.iter().any(|l| l.is_for(name, path)) {
                    continue;
                }
                for dut in duts(o, &[encap], &[name])? {
                    let mut rig = if alone {
                        Rig::start_single(owner, dut.as_ref(), MTU, &placement)?
                    } else {
                        Rig::start(owner, dut.as_ref(), Mode::Wire, MTU, &placement)?
                    };
                    soaked.iter().for_each(|s| s.beside(&mut rig));
                    rigs.push(((*name).to_string(), path, rig));
                }
            }
        }
        Ok(Self { rigs, load: o.load(), trials: o.trials(), soaked })
    }

    /// All loads on all rigs that they are for, interleaved, several repeats; one cell for each.
    pub(super) fn cells(
        &mut self,
        loads: &[Load],
        repeats: u32,
        watch: &mut Watch,
        progress: &mut Progress,
    ) -> Result<Vec<Cell>, LabError> {
        let mut cells: Vec<Cell> = Vec::new();
        // Rate at which the last search of a rig and way ended.
        let mut ended: HashMap<(usize, &str), f64> = HashMap::new();
        // On a machine that is busy throughout nothing is gained by it.
        let mut spare = AGAIN_AT_MOST;
        for repeat in 0..repeats {
            let mut at = 0;
            for load in loads {
                for (nth, (suite, path, rig)) in self.rigs.iter_mut().enumerate() {
                    interrupt::check()?;
                    if !load.is_for(suite, *path) {
                        continue;
                    }
                    if repeat > 0 && !load.is_repeated() {
                        at += 1;
                        continue;
                    }
                    progress.says(&format!("{}, {}", rig.name(), load.name()));
                    let way = load.alone().map(|way| (nth, way.name()));
                    let low = way.map_or(FIRST, |way| begin(&ended, way));
                    let (time, trials) = (self.load, self.trials);
                    let measure = |rig: &mut Rig| one(rig, load, (FLOWS, 1), (low, time, trials));
                    let mut once = || match &mut self.soaked {
                        Some(soaked) => soaked.once(rig, load, measure),
                        None => measure(rig),
                    };
                    let mut seen = once()?;
                    // Once more, and the calmer of the two counts.
                    if seen.other_share > DISTURBED && spare > 0 {
                        spare -= 1;
                        let again = once()?;
                        seen = if again.other_share < seen.other_share { again } else { seen };
                    }
                    ended.extend(load.alone().zip(way).map(|(of, way)| (way, seen.side(of).pps)));
                    watch.look();
                    progress.step();
                    match cells.get_mut(at) {
                        Some(cell) => cell.seen.push(seen),
                        None => {
                            let (suite, path, offered) = (suite.clone(), *path, load.offered());
                            let (mix, alone) = (load.mix(), load.alone());
                            let (flows, burst) = (load.flows(), load.burst());
                            cells.push(Cell {
                                suite,
                                path,
                                mix,
                                flows,
                                burst,
                                offered,
                                alone,
                                seen: vec![seen],
                            });
                        }
                    }
                    at += 1;
                }
            }
        }
        Ok(cells)
    }

    /// Cost of many flows, and what bursts share, on the rig of the first suite in UDP.
    pub(super) fn flows(
        &mut self,
        o: &CalibrateOptions,
        suite: &SuiteCost,
    ) -> Result<(Vec<FlowCost>, Vec<BurstShare>), LabError> {
        let own = self.rigs.iter_mut().find(|(name, path, _)| *name == suite.suite && *path == Path::Udp);
        let Some((_, _, rig)) = own else { return Ok((vec![], vec![])) };
        let flows = flows::measure(rig, o.plain_rate(), self.load, o.repeats())?;
        Ok((flows, flows::measure_bursts(rig, suite, o.burst_rate(), self.load, o.repeats())?))
    }

    /// Doubts about the loads that follow from the share that a soaker got beside them.
    pub(super) fn doubts(self) -> Vec<Warning> {
        self.soaked.map(Soaked::doubts).unwrap_or_default()
    }
}

pub(super) fn duts(
    o: &CalibrateOptions,
    encaps: &[Encap],
    suites: &[&str],
) -> Result<Vec<Box<dyn Dut>>, LabError> {
    let suites =
        suites.iter().map(|s| s.parse::<Suite>()).collect::<Result<_, _>>().map_err(LabError::Usage)?;
    let options = DutOptions { suites, ..o.gateway() };
    dut::by_name("ironswan", encaps, &options)
}

/// One load, `of` so many flows and with so many packets at once. A search begins at `low`; each
/// repeat searches by itself, so that one which a disturbance ended early is one of several.
fn one(
    rig: &mut Rig,
    load: &Load,
    of: (u32, u32),
    (low, time, trials): (f64, Duration, u32),
) -> Result<Seen, LabError> {
    match load {
        Load::Packets(mix, pps) => rig.packets_of(mix, of, *pps, time),
        Load::Highest(mix, way) => rig.highest(mix, *way, low, time, trials),
        Load::Tcp(mbps) => rig.stream(*mbps, f64::from(MTU), time * 2),
        Load::Only { load, flows, burst, .. } => one(rig, load, (*flows, *burst), (low, time, trials)),
    }
}

/// Rate at which the search of this rig and way begins, from the rates at which others ended.
fn begin(ended: &HashMap<(usize, &str), f64>, (rig, way): (usize, &str)) -> f64 {
    let others = ended.iter().filter(|((_, of), _)| *of == way).map(|(_, pps)| *pps).reduce(f64::min);
    let own = ended.get(&(rig, way)).map(|pps| pps * BELOW);
    own.or(others.map(|pps| pps * BELOW_OTHERS)).map_or(FIRST, |pps| pps.max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_begins_below_where_others_ended() {
        let ended = HashMap::from([((0, "out"), 5e5), ((1, "out"), 2e5), ((1, "in"), 1e5)]);
        assert_eq!(
            [begin(&ended, (1, "out")), begin(&ended, (2, "out")), begin(&ended, (0, "in"))],
            [1.6e5, 8e4, 4e4]
        );
        assert_eq!(begin(&HashMap::new(), (0, "out")), FIRST);
        // Of a gateway that let nothing by.
        assert_eq!(begin(&HashMap::from([((0, "out"), 0.0)]), (0, "out")), 1.0);
    }
}
