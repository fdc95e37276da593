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
//! | `doubts` | what makes the measurements doubtful |
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
mod doubts;
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
use super::rig;
use super::tunnels;
use crate::clock::{self, Utc};
use crate::dut::Encap;
use crate::error::LabError;
use crate::interrupt;
use crate::load::Iperf3;
use crate::machine::{self, Fingerprint};
use crate::measure::Watch;
use crate::plan::model::{MODEL_SCHEMA, Model, Path, Way};
use crate::plan::paths::path_cost;
use crate::plan::rates;
use crate::plan::verified::{Drawn, Taken, Verification};
use crate::record::Record;
use crate::report::{Progress, Warning};
use crate::topology::{Line, Mode, Owner};
use bench::{Bench, duts};
use doubts::{calm, doubts};
use loads::{FITTED, KEPT_SUITE, Load, held_back};
use observe::LOSS;

pub use command::{PlanOptions, PlanWhat, plan_command};
pub use draw::Draw;
pub(super) use forward::forwarding_ns;
pub use loads::CalibrateOptions;
pub(super) use workers::with_workers;

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
    let forwarding = forward::measure(&owner, o.plain(), o.plain_rate(), o.plain_load(), o.plain_repeats())?;
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

    #[test]
    fn a_suite_that_does_not_exist_is_refused_before_anything_is_measured() {
        let o = CalibrateOptions { suites: vec!["rot13".into()], ..CalibrateOptions::default() };
        assert!(matches!(calibrate(&o), Err(LabError::Usage(_))));
    }
}
