//! Experiment E12, the measurements behind `ironswan plan`: crypto alone, tunnels brought up and
//! rekeyed, plain forwarding, and short loads over a line of four boxes, and the highest rates
//! of one gateway alone. Calibrating fits a model to them; verifying predicts other loads, which
//! were named beforehand and kept out of the fit, and measures them.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
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

use std::collections::HashMap;
use std::time::Duration;

use ironswan_crypto::engines::{EngineId, Engines};

use super::driver::{self, suite, work::Work};
use super::general_doubts;
use super::general_doubts::is_debug;
use super::placement::{Placement, Spread};
use super::rig::{self, Rig};
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
use crate::plan::cost::{BurstShare, FlowCost};
use crate::plan::fit;
use crate::plan::model::{Cell, FLOWS, Handshake, MODEL_SCHEMA, ManySas, Model, Path, Seen, TunnelCost, Way};
use crate::plan::paths::path_cost;
use crate::plan::rates;
use crate::plan::suite::{BURSTS, Burst, Linear, SuiteCost};
use crate::plan::verified::{Drawn, Taken, Verification};
use crate::record::Record;
use crate::report::{Progress, Warning};
use crate::stats;
use crate::topology::{Line, Mode, Owner};
use loads::{FITTED, KEPT_SUITE, Load, MTU, held_back};
use observe::LOSS;
use soaked::Soaked;

pub use command::{PlanOptions, PlanWhat, plan_command};
pub use draw::Draw;
pub use loads::CalibrateOptions;

/// Sizes at which a suite is measured alone, bytes of text.
const TEXTS: [u32; 4] = [64, 400, 800, 1408];
/// Share of the machine that programs outside may use during a load.
const DISTURBED: f64 = 0.05;
/// Number of loads that are measured once more for that, so that a calibration comes to an end.
const AGAIN_AT_MOST: u32 = 12;
/// Numbers of SAs.
const SAS: [u16; 4] = [1, 100, 1_000, 10_000];

/// Packets a second that a search for the highest rate begins at, and the share of what the last of
/// the same gateway ended at, or of another.
const FIRST: f64 = 60_000.0;
const BELOW: f64 = 0.8;
const BELOW_OTHERS: f64 = 0.4;

/// Rigs that take turns, by suite and path: lines, or gateways that are alone with the tester.
struct Bench {
    rigs: Vec<(String, Path, Rig)>,
    load: Duration,
    /// Of a search for a highest rate, at most.
    trials: u32,
    soaked: Option<Soaked>,
}

impl Bench {
    /// Starts the rigs that `loads` need, which are all for lines or all for one gateway.
    fn start(owner: &Owner, o: &CalibrateOptions, suites: &[&str], loads: &[Load]) -> Result<Self, LabError> {
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
    fn cells(
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
    fn flows(
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
    fn doubts(self) -> Vec<Warning> {
        self.soaked.map(Soaked::doubts).unwrap_or_default()
    }
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

/// Measures and fits another system than IronSwan.
fn calibrate_system(o: &CalibrateOptions, name: &str) -> Result<Model, LabError> {
    systems::fit_to_measure(name, o)?;
    interrupt::install()?;
    interrupt::check()?;
    let owner = Owner::claim()?;
    let (machine, began, ticks) = (Fingerprint::take(), clock::now(), rig::cpu()?);
    let mut watch = Watch::begin(&machine);
    let made = Utc::from_epoch(clock::since_epoch()).rfc3339();
    let mut progress = Progress::new(systems::steps(o), Duration::from_millis(1_500));
    let measured = systems::measure(name, &owner, o, &mut watch, &mut progress)?;
    drop(progress);
    let systems::Measured { system, suite, forwarding, cells, paths } = measured;
    let suites = vec![suite];
    let ways = paths.iter().flat_map(|path| Way::BOTH.map(|way| (*path, way)));
    let paths = ways.map(|(path, way)| path_cost(path, way, &cells, &suites)).collect::<Result<_, _>>()?;
    let nothing =
        TunnelCost { tunnels: [0, 0], kib: 0.0, base_kib: 0.0, setup_us: 0.0, setup_within_us: None };
    let what = "not measured".into();
    let mut warnings: Vec<Warning> = haste(o).into_iter().collect();
    warnings.extend(general_doubts::machine(&machine, &watch.finish()));
    warnings.extend(lost(&cells));
    Ok(Model {
        schema: MODEL_SCHEMA.into(),
        program: crate::record::Program::own(),
        made,
        seconds: (clock::now() - began).as_secs_f64(),
        machine,
        system: Some(system),
        suites,
        paths,
        forwarding,
        handshake: Handshake { what, setup_us: 0.0, rekey_us: 0.0, rekey_within_us: None, samples: 0 },
        tunnel: nothing,
        many_sas: vec![ManySas { sas: 1, added: 0.0, within: None }],
        flows: vec![],
        bursts: vec![],
        workers: vec![],
        calm: Some(calm(&rig::cpu()?.since(&ticks), &cells)),
        agreement: None,
        cells,
        held_back: vec![],
        warnings: warnings.iter().map(Warning::record).collect(),
    })
}

/// Measures and fits.
pub fn calibrate(o: &CalibrateOptions) -> Result<Model, LabError> {
    if let Some(name) = &o.dut {
        return calibrate_system(o, name);
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
    let engines = engines();
    let mut suites = Vec::new();
    for name in &names {
        progress.says(&format!("{name} alone"));
        suites.push(alone(name, &engines, time)?);
        watch.look();
        progress.step();
    }
    progress.says("many SAs");
    let many_sas = many_sas(&engines, time, o.smoke)?;
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

/// As the daemon chooses them when it starts.
fn engines() -> Engines {
    let began = clock::now();
    let mut stopwatch = || u64::try_from((clock::now() - began).as_nanos()).unwrap_or(u64::MAX);
    Engines::select(&mut stopwatch, None).engines
}

/// A suite, as the data plane would have it done: bursts that are too small for an engine that
/// works side by side go packet by packet.
fn alone(name: &str, engines: &Engines, time: Duration) -> Result<SuiteCost, LabError> {
    let esp = suite::by_name(name)?;
    let linear = |work, burst| -> Result<Linear, LabError> {
        let points = driver::costs(&esp, engines, &TEXTS, (work, burst), time)?;
        // The relative error counts, and neither part is negative: small packets are as many as
        // large ones.
        let (rows, y): (Vec<Vec<f64>>, Vec<f64>) = points.iter().map(|(x, y)| (vec![1.0, *x], *y)).unzip();
        let costs = fit::non_negative(&rows, &y);
        let Some([per_packet, per_byte]) = costs.as_deref().and_then(|c| <[f64; 2]>::try_from(c).ok()) else {
            return Err(LabError::Measurement(format!("{name}: its times are no line")));
        };
        let off = points.iter().map(|(x, y)| (per_packet + per_byte * x - y).powi(2)).sum::<f64>();
        Ok(Linear { per_packet, per_byte, residual: (off / points.len() as f64).sqrt() })
    };
    let burst = |packets| -> Result<Burst, LabError> {
        Ok(Burst { packets, seal: linear(Work::Seal, packets)?, open: linear(Work::Open, packets)? })
    };
    let [one, most_alone, fewest, lanes, full] = BURSTS.map(burst);
    let (fixed_bytes, block) = driver::work::layout(&esp)?;
    let (small, large) = (engines.engine(&esp, 100), engines.engine(&esp, 1400));
    let chosen = |a: EngineId, b: EngineId| if a == b { a.to_string() } else { format!("{a}, {b}") };
    Ok(SuiteCost {
        suite: name.into(),
        engines: chosen(small, large),
        bursts: [one?, most_alone?, fewest?, lanes?, full?],
        fixed_bytes,
        block,
    })
}

/// Measures the cost that is added when every packet has another key, twice: by how far the two lie
/// apart it is unsure.
fn many_sas(engines: &Engines, time: Duration, smoke: bool) -> Result<Vec<ManySas>, LabError> {
    let esp = suite::by_name(FITTED[0])?;
    let counts = &SAS[..if smoke { 2 } else { SAS.len() }];
    let mut rounds = [Vec::new(), Vec::new()];
    for round in &mut rounds {
        for sas in counts {
            let mut ns = 0.0;
            for work in Work::BOTH {
                // With one key as with many, every packet has memory of its own.
                ns += driver::spread(&esp, engines, 400, (work, *sas), time / 2)? / 2.0;
            }
            round.push(ns);
        }
    }
    Ok(of_sas(counts, &rounds))
}

/// The mean of two rounds beside what one SA costs.
fn of_sas(counts: &[u16], [first, second]: &[Vec<f64>; 2]) -> Vec<ManySas> {
    let mut all: Vec<ManySas> = Vec::new();
    let (Some(a), Some(b)) = (first.first(), second.first()) else { return all };
    for ((sas, one), other) in counts.iter().zip(first).zip(second) {
        let each = [one - a, other - b];
        // More SAs never cost less: what falls is noise.
        let least = all.last().map_or(0.0, |m| m.added);
        let added = (each.iter().sum::<f64>() / 2.0).max(least);
        let within = Some((each[0] - each[1]).abs() / 2.0);
        all.push(ManySas { sas: u32::from(*sas), added, within });
    }
    all
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
    use crate::plan::model::Side;
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

    #[test]
    fn many_sas_cost_the_mean_of_two_rounds_and_are_unsure_by_what_these_differ() {
        let found = of_sas(&[1, 100, 1_000], &[vec![200.0, 230.0, 220.0], vec![210.0, 230.0, 228.0]]);
        let of = |n: usize| (found[n].sas, found[n].added, found[n].within);
        assert_eq!([of(0), of(1)], [(1, 0.0, Some(0.0)), (100, 25.0, Some(5.0))]);
        assert_eq!(of(2), (1_000, 25.0, Some(1.0)), "never less");
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
