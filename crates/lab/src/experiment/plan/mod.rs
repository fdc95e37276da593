//! Experiment E12, the measurements behind `ironswan plan`: crypto alone, tunnels brought up and
//! rekeyed, plain forwarding, and short loads over a line of four boxes, and the highest rates
//! of one gateway alone. Calibrating fits a model to them; verifying predicts other loads, which
//! were named beforehand and kept out of the fit, and measures them.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `alone` | a suite by itself, and with many SAs |
//! | `bench` | rigs that take turns with the loads |
//! | `command` | `ironswan plan` |
//! | `draw` | loads of a verification that a seed draws |
//! | `loads` | loads of a calibration, and of its verification |
//! | `made` | a calibration, judged, compared with the one before, and stored |
//! | `observe` | one load, and its cost on each gateway |
//! | `forward` | cost of forwarding a packet without a tunnel |
//! | `flows` | cost of many flows, and what bursts share |
//! | `soaked` | the same loads beside a CPU soaker |
//! | `systems` | another system than IronSwan |
//! | `workers` | one gateway alone with one worker and with two |

mod alone;
mod bench;
mod command;
mod draw;
mod flows;
mod forward;
mod loads;
mod made;
mod observe;
mod soaked;
mod systems;
mod workers;

use std::time::Duration;

use super::driver::{self, suite};
use super::general_doubts;
use super::general_doubts::is_debug;
use super::rig;
use super::tunnels;
use crate::clock::{self, Utc};
use crate::dut::{self, Dut, DutOptions, Encap, Suite};
use crate::error::LabError;
use crate::interrupt;
use crate::load::Iperf3;
use crate::machine::{self, Fingerprint};
use crate::measure::Watch;
use crate::measure::counters::CpuTicks;
use crate::plan::calm::Calm;
use crate::plan::model::{Cell, MODEL_SCHEMA, Model, Path, Way};
use crate::plan::paths::path_cost;
use crate::plan::rates;
use crate::plan::verified::{Drawn, Taken, Verification};
use crate::record::Record;
use crate::report::{Progress, Warning};
use crate::stats;
use crate::topology::{Line, Mode, Owner};
use bench::Bench;
use loads::{FITTED, KEPT_SUITE, Load, held_back};
use observe::LOSS;

pub use command::{PlanOptions, PlanWhat, plan_command};
pub use draw::Draw;
pub use loads::CalibrateOptions;

fn duts(o: &CalibrateOptions, encaps: &[Encap], suites: &[&str]) -> Result<Vec<Box<dyn Dut>>, LabError> {
    let suites =
        suites.iter().map(|s| s.parse::<Suite>()).collect::<Result<_, _>>().map_err(LabError::Usage)?;
    let options = DutOptions { suites, ..o.gateway() };
    dut::by_name("ironswan", encaps, &options)
}

fn fit_to_measure(o: &CalibrateOptions) -> Result<(), LabError> {
    let mut lacks = machine::lacks_privilege();
    lacks.extend(Line::lacks(Mode::Wire));
    lacks.extend(Iperf3::lacks());
    for dut in duts(o, &[Encap::Udp], &FITTED)? {
        lacks.extend(dut.lacks());
    }
    super::line::once(&mut lacks);
    if lacks.is_empty() { Ok(()) } else { Err(LabError::Unfit(lacks)) }
}

/// Measures and fits.
pub fn calibrate(o: &CalibrateOptions) -> Result<Model, LabError> {
    if let Some(name) = &o.dut {
        return systems::calibrate(o, name);
    }
    let mut names: Vec<String> = FITTED.iter().chain([&KEPT_SUITE]).map(ToString::to_string).collect();
    let usual = [
        "aes256gcm16",
        "aes128-sha1",
        "aes256-sha256",
        "aes256-sha512",
        "3des-sha1",
        "aes128gmac",
        "null-sha256",
    ];
    names.extend(if o.suites.is_empty() { usual.map(String::from).into() } else { o.suites.clone() });
    super::line::once(&mut names);
    names.iter().try_for_each(|n| suite::by_name(n).map(|_| ()))?;
    fit_to_measure(o)?;
    interrupt::install()?;
    interrupt::check()?;
    let owner = Owner::claim()?;
    let (machine, began, ticks) = (Fingerprint::take(), clock::now(), rig::cpu()?);
    let mut watch = Watch::begin(&machine);
    let made = Utc::from_epoch(clock::since_epoch()).rfc3339();
    let steps = o.steps() + names.len() + 6;
    let mut progress = Progress::new(steps, o.guess() / steps as u32);
    let time = Duration::from_millis(o.by_care(7, 4, 1));
    let engines = alone::engines();
    let mut suites = Vec::new();
    for name in &names {
        progress.says(&format!("{name} alone"));
        suites.push(alone::cost(name, &engines, time)?);
        watch.look();
        progress.step();
    }
    progress.says("many SAs");
    let many_sas = alone::many_sas(&engines, time, o.smoke)?;
    progress.step();
    progress.says("many tunnels");
    // The program was there when the machine was found fit.
    let program = o.gateway().gateway().unwrap_or_default();
    let program = program.to_string_lossy();
    let tunnel = tunnels::one_more(&owner, &program, o.tunnels())?;
    progress.step();
    progress.says("rekeying");
    let handshake = tunnels::rekeyed(&owner, &program, (o.tunnels()[0], o.rounds()), tunnel.setup_us)?;
    watch.look();
    progress.step();
    progress.says("plain forwarding");
    let forwarding = forward::measure(&owner, o.plain(), o.plain_rate(), o.load(), o.plain_repeats())?;
    watch.look();
    progress.step();
    progress.says("starting gateways");
    let (mut cells, mut soaked) = (Vec::new(), Vec::new());
    let (mut flows, mut bursts) = (Vec::new(), Vec::new());
    for (loads, repeats) in [(o.loads(), o.repeats()), (o.highest(), 1)] {
        let mut bench = Bench::start(&owner, o, o.fitted(), &loads)?;
        cells.extend(bench.cells(&loads, repeats, &mut watch, &mut progress)?);
        if flows.is_empty() {
            progress.says("flows and bursts");
            if let Some(first) = suites.first() {
                (flows, bursts) = bench.flows(o, first)?;
            }
            watch.look();
            progress.step();
        }
        soaked.extend(bench.doubts());
    }
    progress.says("workers");
    let workers = workers::measure(&owner, o, o.by_care(2, 1, 1))?;
    watch.look();
    progress.step();
    drop(progress);
    let calm = calm(&rig::cpu()?.since(&ticks), &cells);
    let mut paths = Vec::new();
    for path in Path::BOTH {
        for way in Way::BOTH {
            paths.push(path_cost(path, way, &cells, &suites)?);
        }
    }
    Ok(Model {
        schema: MODEL_SCHEMA.into(),
        program: crate::record::Program::own(),
        made,
        seconds: (clock::now() - began).as_secs_f64(),
        warnings: doubts(o, &machine, watch, &cells).iter().chain(&soaked).map(Warning::record).collect(),
        machine,
        system: None,
        suites,
        paths,
        forwarding,
        handshake,
        tunnel,
        many_sas,
        flows,
        bursts,
        workers,
        cells,
        held_back: held_back(),
        calm: Some(calm),
        agreement: None,
    })
}

/// State of the machine during a calibration: by the processors' time, and by its loads.
fn calm(ticks: &CpuTicks, cells: &[Cell]) -> Calm {
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
fn haste(o: &CalibrateOptions) -> Option<Warning> {
    if o.smoke { Some(Warning::Smoke) } else { o.quick.then_some(Warning::Quick) }
}

/// Warns of everything that makes the measurements doubtful: the build, what else the machine did,
/// and loads that were lost although far more goes.
fn doubts(o: &CalibrateOptions, machine: &Fingerprint, watch: Watch, cells: &[Cell]) -> Vec<Warning> {
    let mut doubts: Vec<Warning> = haste(o).into_iter().collect();
    if cfg!(debug_assertions) || is_debug(&o.gateway()) {
        doubts.push(Warning::DebugBuild);
    }
    doubts.extend(general_doubts::machine(machine, &watch.finish()));
    doubts.extend(lost(cells));
    doubts
}

/// Loads of at most half of what the same gateways carried that lost packets all the same.
fn lost(cells: &[Cell]) -> Option<Warning> {
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

/// Loads of a verification, by the suites that they are for: those that were kept back or those of
/// a draw, and loads of the calibration again.
fn to_verify(o: &CalibrateOptions, drawn: Option<Draw>) -> Vec<(Vec<&'static str>, Vec<Load>)> {
    let with_again = |loads: Vec<Load>| loads.into_iter().chain(o.again()).collect();
    let Some(d) = drawn else {
        return vec![(o.fitted().to_vec(), with_again(o.kept_sizes())), (vec![KEPT_SUITE], o.kept_suite())];
    };
    let drawn = draw::draw(d, o.smoke);
    let of = |suite: &'static str| -> Vec<Load> {
        drawn.iter().filter(|l| l.only().is_some_and(|(own, _)| own == suite)).cloned().collect()
    };
    let both = draw::SUITES.map(|suite| {
        let own = of(suite);
        (vec![suite], if o.fitted().contains(&suite) { with_again(own) } else { own })
    });
    both.into_iter().filter(|(_, loads)| !loads.is_empty()).collect()
}

/// Predicts what was kept back, or what is drawn, and measures it, and loads of the calibration
/// again; `against` a run of one gateway alone, its highest rates, too.
pub fn verify(
    model: &Model,
    o: &CalibrateOptions,
    against: Option<&Record>,
    drawn: Option<Draw>,
) -> Result<Verification, LabError> {
    let mut highest = against.map(|run| rates::rates(model, run)).transpose()?.unwrap_or_default();
    fit_to_measure(o)?;
    interrupt::install()?;
    interrupt::check()?;
    let owner = Owner::claim()?;
    let (machine, began) = (Fingerprint::take(), clock::now());
    let made = Utc::from_epoch(clock::since_epoch()).rfc3339();
    let mut watch = Watch::begin(&machine);
    let repeats = if o.smoke { 1 } else { o.repeats.max(3) };
    let parts = to_verify(o, drawn);
    let steps = parts.iter().map(|(suites, loads)| loads::measurements(loads, suites)).sum::<usize>();
    let mut progress = Progress::new(steps * repeats as usize, Duration::from_millis(1_000));
    progress.says("starting gateways");
    let (mut all, mut soaked) = (Vec::new(), Vec::new());
    for (suites, loads) in parts {
        let (alone, lines): (Vec<Load>, Vec<Load>) = loads.into_iter().partition(|l| l.alone().is_some());
        for loads in [lines, alone].iter().filter(|loads| !loads.is_empty()) {
            let mut bench = Bench::start(&owner, o, &suites, loads)?;
            all.extend(bench.cells(loads, repeats, &mut watch, &mut progress)?);
            soaked.extend(bench.doubts());
        }
    }
    drop(progress);
    highest.extend(rates::own(model, &all, LOSS)?);
    let warnings = doubts(o, &machine, watch, &all).iter().chain(&soaked).map(Warning::record).collect();
    let taken = Taken {
        program: crate::record::Program::own(),
        made,
        seconds: (clock::now() - began).as_secs_f64(),
        machine,
        model_made: model.made.clone(),
        measured: all,
        drawn: drawn.map(|d| Drawn { seed: d.seed, loads: d.count }),
        against: against.map(|run| run.started.clone()),
        rates: highest,
        warnings,
    };
    Verification::made(model, taken)?.ok_or_else(|| LabError::Measurement("nothing was measured".into()))
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

    #[test]
    fn a_suite_that_does_not_exist_is_refused_before_anything_is_measured() {
        let o = CalibrateOptions { suites: vec!["rot13".into()], ..CalibrateOptions::default() };
        assert!(matches!(calibrate(&o), Err(LabError::Usage(_))));
    }
}
