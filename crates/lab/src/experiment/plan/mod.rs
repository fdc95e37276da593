//! Experiment E12, the measurements behind `ironswan plan`: crypto alone, IKE in memory, and short loads over a line of
//! four boxes, at fixed rates below saturation. Calibrating fits a model to them; verifying predicts other loads, which were named
//! beforehand and kept out of the fit, and measures them.

mod command;
mod handshake;
mod observe;

use std::time::Duration;

use ironswan_crypto::engines::{EngineId, Engines};

use super::driver::{self, suite, work::Work};
use super::placement::{Placement, Spread};
use super::rig::Rig;
use crate::clock::{self, Utc};
use crate::dut::{self, Dut, DutOptions, Encap, Suite};
use crate::error::LabError;
use crate::interrupt;
use crate::load::Iperf3;
use crate::machine::{self, Fingerprint};
use crate::plan::fit;
use crate::plan::model::{
    Cell, LARGEST, Linear, MODEL_SCHEMA, ManySas, Mix, Model, Path, Seen, SuiteCost, Way,
};
use crate::plan::paths::path_cost;
use crate::plan::verified::{Predicted, Verification};
use crate::report::{Progress, Warning};
use crate::topology::{Line, Mode, Owner};

pub use command::{PlanOptions, PlanWhat, plan_command};

/// Suites that the paths are fitted with: one that costs little beside the path, and one that costs much.
const FITTED: [&str; 2] = ["aes128gcm16", "aes128-sha256"];
/// Sizes and loads that are kept back.
const KEPT_FRAMES: [u32; 2] = [390, 1280];
/// The suite that is kept back.
const KEPT_SUITE: &str = "chacha20poly1305";
/// Frames that the paths are fitted with.
const FRAMES: [u32; 4] = [64, 256, 768, LARGEST];
/// Three sizes in a row, as a frame.
const ROWS: u32 = 0;
/// Packets a second that the paths are fitted with, and the frames at each: from a gateway that is woken for every packet to one that
/// finds many. The rates are more than a decade apart, or the window in which packets gather could not be told from their cost;
/// what cannot be carried at the highest is left out of the fit.
const LOADS: [(f64, &[u32]); 4] = [
    (2_000.0, &[64, LARGEST]),
    (8_000.0, &[256, LARGEST, ROWS]),
    (25_000.0, &[64, 768, ROWS]),
    (60_000.0, &[64, 256, LARGEST]),
];
/// Rates that are kept back.
const KEPT_RATES: [f64; 2] = [15_000.0, 40_000.0];
/// Packets a second without a tunnel.
const PLAIN_RATE: f64 = 25_000.0;
/// So few that a debug build on a busy machine carries them.
const SMOKE_RATE: f64 = 1_000.0;
/// Around a load of packets: until the way is quiet, and the daemons have told their counters.
const AROUND: Duration = Duration::from_millis(550);
/// MTU of the hosts' routes.
const MTU: u32 = 1400;
/// Of TCP, 10^6 bits per second.
const STREAM: u32 = 500;
/// Sizes at which a suite is measured alone, bytes of text.
const TEXTS: [u32; 4] = [64, 400, 800, 1408];
/// Numbers of SAs.
const SAS: [u16; 4] = [1, 100, 1_000, 10_000];

/// How thoroughly.
#[derive(Debug, Clone)]
pub struct CalibrateOptions {
    /// Suites to measure besides those that the paths are fitted with; the usual ones when empty.
    pub suites: Vec<String>,
    /// The `ironswan` program; the running one when absent.
    pub program: Option<std::path::PathBuf>,
    /// Repeats of each load.
    pub repeats: u32,
    /// Length of a load.
    pub load: Duration,
    /// Some seconds: shows that everything works, its figures mean nothing.
    pub smoke: bool,
}

impl Default for CalibrateOptions {
    fn default() -> Self {
        Self { suites: vec![], program: None, repeats: 2, load: Duration::from_millis(300), smoke: false }
    }
}

impl CalibrateOptions {
    fn repeats(&self) -> u32 {
        if self.smoke { 1 } else { self.repeats.max(1) }
    }

    /// Suites that the paths are fitted with.
    fn fitted(&self) -> &'static [&'static str] {
        if self.smoke { &FITTED[..1] } else { &FITTED }
    }

    /// Frames that are forwarded without a tunnel.
    fn plain(&self) -> &'static [u32] {
        if self.smoke { &FRAMES[..1] } else { &FRAMES }
    }

    /// Loads that the paths are fitted with.
    fn loads(&self) -> Vec<Load> {
        let mix = |frame: u32| match frame {
            ROWS => Mix::rows("rows", [64, 256, 768]),
            frame => Mix::frames(frame),
        };
        let smoke: [(f64, &[u32]); 1] = [(SMOKE_RATE, &[64])];
        let all: &[(f64, &[u32])] = if self.smoke { &smoke } else { &LOADS };
        let packets = all.iter().flat_map(|(rate, frames)| frames.iter().map(|f| (mix(*f), *rate)));
        packets.map(|(mix, rate)| Load::Packets(mix, rate)).chain([Load::Tcp(STREAM)]).collect()
    }

    /// About how long the loads of a calibration take, with starting the gateways.
    fn guess(&self) -> Duration {
        let rigs = self.fitted().len() as u32 * 2;
        let one = |load: &Load| match load {
            Load::Packets(..) => self.load() + AROUND,
            // iperf3 counts in whole seconds.
            Load::Tcp(_) => Duration::from_secs((self.load() * 2).as_secs() + 2) + AROUND,
        };
        let loads: Duration = self.loads().iter().map(one).sum();
        let plain = (self.load() + AROUND) * (self.plain().len() as u32 * self.repeats());
        loads * rigs * self.repeats() + plain + Duration::from_millis(800) * (rigs + 1)
    }

    fn load(&self) -> Duration {
        if self.smoke { Duration::from_millis(100) } else { self.load }
    }
}

/// What a load is.
#[derive(Debug, Clone)]
enum Load {
    Packets(Mix, f64),
    Tcp(u32),
}

/// Rigs that take turns, by suite and path.
struct Bench {
    rigs: Vec<(String, Path, Rig)>,
    load: Duration,
}

impl Bench {
    fn start(owner: &Owner, o: &CalibrateOptions, suites: &[&str]) -> Result<Self, LabError> {
        let placement = Placement::new(Spread::Free, crate::measure::cpus()).map_err(LabError::Usage)?;
        let mut rigs = Vec::new();
        for name in suites {
            for path in Path::BOTH {
                let encap = if path == Path::Udp { Encap::Udp } else { Encap::Raw };
                for dut in duts("ironswan", o, &[encap], &[name])? {
                    let rig = Rig::start(owner, dut.as_ref(), Mode::Wire, MTU, &placement)?;
                    rigs.push(((*name).to_string(), path, rig));
                }
            }
        }
        Ok(Self { rigs, load: o.load() })
    }

    /// All loads on all rigs, interleaved, several repeats; one cell for each.
    fn cells(
        &mut self,
        loads: &[Load],
        repeats: u32,
        progress: &mut Progress,
    ) -> Result<Vec<Cell>, LabError> {
        let mut cells: Vec<Cell> = Vec::new();
        for _ in 0..repeats {
            let mut at = 0;
            for load in loads {
                for (suite, path, rig) in &mut self.rigs {
                    interrupt::check()?;
                    progress.says(&format!("{}, {}", rig.name(), load.name()));
                    let (seen, mix, pps) = match load {
                        Load::Packets(mix, pps) => (rig.packets(mix, *pps, self.load)?, mix.clone(), *pps),
                        Load::Tcp(mbps) => {
                            let seen = rig.stream(*mbps, f64::from(MTU), self.load * 2)?;
                            (seen, Mix::tcp(), seen.packets / seen.seconds)
                        }
                    };
                    progress.step();
                    match cells.get_mut(at) {
                        Some(cell) => cell.seen.push(seen),
                        None => {
                            let (suite, path) = (suite.clone(), *path);
                            cells.push(Cell { suite, path, mix, pps, seen: vec![seen] });
                        }
                    }
                    at += 1;
                }
            }
        }
        Ok(cells)
    }
}

impl Load {
    fn name(&self) -> String {
        match self {
            Self::Packets(mix, pps) => format!("{} at {pps:.0} packets/s", mix.name),
            Self::Tcp(mbps) => format!("TCP at {mbps} Mb/s"),
        }
    }
}

fn duts(
    name: &str,
    o: &CalibrateOptions,
    encaps: &[Encap],
    suites: &[&str],
) -> Result<Vec<Box<dyn Dut>>, LabError> {
    let suites =
        suites.iter().map(|s| s.parse::<Suite>()).collect::<Result<_, _>>().map_err(LabError::Usage)?;
    let options = DutOptions { suites, ironswan: o.program.clone(), ..DutOptions::default() };
    dut::by_name(name, encaps, &options)
}

fn fit_to_measure(o: &CalibrateOptions) -> Result<(), LabError> {
    let mut lacks = machine::lacks_privilege();
    lacks.extend(Line::lacks(Mode::Wire));
    lacks.extend(Iperf3::lacks());
    for dut in duts("ironswan", o, &[Encap::Udp], &FITTED)? {
        lacks.extend(dut.lacks());
    }
    super::line::once(&mut lacks);
    if lacks.is_empty() { Ok(()) } else { Err(LabError::Unfit(lacks)) }
}

/// Measures and fits.
pub fn calibrate(o: &CalibrateOptions) -> Result<Model, LabError> {
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
    let (machine, began) = (Fingerprint::take(), clock::now());
    let made = Utc::from_epoch(clock::since_epoch()).rfc3339();
    let loads = o.loads();
    let repeats = o.repeats() as usize;
    let steps = (loads.len() * o.fitted().len() * 2 + o.plain().len()) * repeats + names.len() + 2;
    let mut progress = Progress::new(steps, o.guess() / steps as u32);
    let stretch = if o.smoke { 1 } else { 15 };
    let time = Duration::from_millis(stretch);
    let engines = engines();
    let mut suites = Vec::new();
    for name in &names {
        progress.says(&format!("{name} alone"));
        suites.push(alone(name, &engines, time)?);
        progress.step();
    }
    progress.says("many SAs");
    let many_sas = many_sas(&engines, time, o.smoke)?;
    progress.step();
    progress.says("IKE");
    let handshake = handshake::measure(Duration::from_millis(20 * stretch))?;
    progress.step();
    let kernel_ns = kernel(&owner, o, &mut progress)?;
    progress.says("starting gateways");
    let cells = Bench::start(&owner, o, o.fitted())?.cells(&loads, o.repeats(), &mut progress)?;
    drop(progress);
    let mut paths = Vec::new();
    for path in Path::BOTH {
        for way in Way::BOTH {
            paths.push(path_cost(path, way, &cells, &suites)?);
        }
    }
    Ok(Model {
        schema: MODEL_SCHEMA.into(),
        program: super::line::program(),
        made,
        seconds: (clock::now() - began).as_secs_f64(),
        machine,
        suites,
        paths,
        kernel_ns,
        handshake,
        many_sas,
        warnings: doubts(&cells).iter().map(Warning::record).collect(),
        cells,
        held_back: held_back(),
    })
}

/// What is kept out of the fit, for people.
fn held_back() -> Vec<String> {
    let frames = KEPT_FRAMES.map(|f| format!("frames of {f} B")).into_iter();
    let rates = KEPT_RATES.map(|r| format!("{r:.0} packets/s")).into_iter();
    let more = ["imix".to_string(), format!("all of {KEPT_SUITE} but its crypto alone")];
    frames.chain(rates).chain(more).collect()
}

/// As the daemon chooses them when it starts.
fn engines() -> Engines {
    let began = clock::now();
    let mut stopwatch = || u64::try_from((clock::now() - began).as_nanos()).unwrap_or(u64::MAX);
    Engines::select(&mut stopwatch, None).engines
}

/// A suite, as the data plane would have it done.
fn alone(name: &str, engines: &Engines, time: Duration) -> Result<SuiteCost, LabError> {
    let esp = suite::by_name(name)?;
    let linear = |work| -> Result<Linear, LabError> {
        let points = driver::costs(&esp, engines, &TEXTS, (work, 1), time)?;
        let line = fit::line(&points)
            .ok_or_else(|| LabError::Measurement(format!("{name}: its times are no line")))?;
        Ok(Linear { per_packet: line.intercept, per_byte: line.slope, residual: line.residual })
    };
    let (fixed_bytes, block) = driver::work::layout(&esp)?;
    let (small, large) = (engines.engine(&esp, 100), engines.engine(&esp, 1400));
    let chosen = |a: EngineId, b: EngineId| if a == b { a.to_string() } else { format!("{a}, {b}") };
    Ok(SuiteCost {
        suite: name.into(),
        engines: chosen(small, large),
        seal: linear(Work::Seal)?,
        open: linear(Work::Open)?,
        fixed_bytes,
        block,
    })
}

/// What it adds when every packet has another key.
fn many_sas(engines: &Engines, time: Duration, smoke: bool) -> Result<Vec<ManySas>, LabError> {
    let esp = suite::by_name(FITTED[0])?;
    let mut all: Vec<ManySas> = Vec::new();
    let mut base = None;
    for sas in &SAS[..if smoke { 2 } else { SAS.len() }] {
        let mut ns = 0.0;
        for work in Work::BOTH {
            // With one key as with many, every packet has memory of its own.
            let points = driver::spread(&esp, engines, 400, (work, *sas), time)?;
            ns += points / 2.0;
        }
        let base = *base.get_or_insert(ns);
        // More SAs never cost less: what falls is noise.
        let least = all.last().map_or(0.0, |m| m.added);
        all.push(ManySas { sas: u32::from(*sas), added: (ns - base).max(least) });
    }
    Ok(all)
}

/// What the kernel takes for a packet without a tunnel at one gateway: half of the time in which the machine was busy for all of the
/// line, by its own books and without what other programs took. The hosts are in it, which nothing tells apart: an upper bound.
fn kernel(owner: &Owner, o: &CalibrateOptions, progress: &mut Progress) -> Result<f64, LabError> {
    let placement = Placement::new(Spread::Free, crate::measure::cpus()).map_err(LabError::Usage)?;
    let plain = duts("plain", o, &[Encap::Udp], &FITTED[..1])?;
    let dut = plain.first().ok_or_else(|| LabError::Measurement("there is no plain forwarding".into()))?;
    let mut rig = Rig::start(owner, dut.as_ref(), Mode::Wire, MTU, &placement)?;
    let mut all = Vec::new();
    for _ in 0..o.repeats() {
        for &frame in o.plain() {
            progress.says(&format!("plain forwarding, {frame} B"));
            let rate = if o.smoke { SMOKE_RATE } else { PLAIN_RATE };
            all.push(rig.packets(&Mix::frames(frame), rate, o.load())?);
            progress.step();
        }
    }
    of_plain(&all).ok_or_else(|| LabError::Measurement("plain forwarding was not measured".into()))
}

/// Half of what a packet took: of all loads together, since the books are kept in ticks that are long beside one of them.
fn of_plain(all: &[Seen]) -> Option<f64> {
    let packets: f64 = all.iter().map(|s| s.packets).sum();
    let busy: f64 = all.iter().map(|s| s.machine_ns * s.packets).sum();
    (packets > 0.0).then(|| busy / packets / 2.0)
}

fn doubts(cells: &[Cell]) -> Vec<Warning> {
    let mut doubts = Vec::new();
    if cfg!(debug_assertions) {
        doubts.push(Warning::DebugBuild);
    }
    let share = cells.iter().flat_map(|c| &c.seen).map(|s| s.other_share).fold(0.0, f64::max);
    if share > 0.05 {
        doubts.push(Warning::OtherLoad { share });
    }
    let lost = cells.iter().flat_map(|c| &c.seen).map(|s| s.loss).fold(0.0, f64::max);
    if lost > 0.01 {
        doubts.push(Warning::Saturated { share: lost });
    }
    doubts
}

/// Predicts what was kept back and measures it.
pub fn verify(model: &Model, o: &CalibrateOptions) -> Result<Verification, LabError> {
    fit_to_measure(o)?;
    interrupt::install()?;
    interrupt::check()?;
    let owner = Owner::claim()?;
    let rates: &[f64] = if o.smoke { &[SMOKE_RATE] } else { &KEPT_RATES };
    let (mut sizes, mut whole) = (Vec::new(), Vec::new());
    for rate in rates {
        let kept = KEPT_FRAMES.map(Mix::frames).into_iter().chain([Mix::imix()]);
        sizes.extend(kept.map(|mix| Load::Packets(mix, *rate)));
        let frames = if o.smoke { &FRAMES[..1] } else { &FRAMES };
        whole.extend(frames.iter().map(|f| Load::Packets(Mix::frames(*f), *rate)));
    }
    let repeats = if o.smoke { 1 } else { o.repeats.max(3) };
    let steps = (sizes.len() * o.fitted().len() + whole.len()) * 2 * repeats as usize;
    let mut progress = Progress::new(steps, Duration::from_millis(900));
    progress.says("starting gateways");
    let mut cells = Bench::start(&owner, o, o.fitted())?.cells(&sizes, repeats, &mut progress)?;
    cells.extend(Bench::start(&owner, o, &[KEPT_SUITE])?.cells(&whole, repeats, &mut progress)?);
    drop(progress);
    let mut predicted = Vec::new();
    for cell in &cells {
        for way in Way::BOTH {
            let Some((measured, spread)) = cell.measured(way) else { continue };
            let ns = model.predicts(cell, way)?;
            predicted.push(Predicted {
                suite: cell.suite.clone(),
                path: cell.path,
                way,
                mix: cell.mix.name.clone(),
                pps: cell.pps,
                predicted_ns: ns,
                measured_ns: measured,
                spread,
                error: ns / measured - 1.0,
            });
        }
    }
    Verification::of(predicted, doubts(&cells).iter().map(Warning::record).collect())
        .ok_or_else(|| LabError::Measurement("nothing was measured".into()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::sample;

    #[test]
    fn loads_that_were_lost_and_other_programs_make_doubts() {
        let cell = |seen: Seen| vec![Cell { seen: vec![seen], ..sample::model().cells[0].clone() }];
        let kinds = |seen| -> Vec<&str> {
            doubts(&cell(seen)).iter().map(Warning::kind).filter(|k| *k != "debug-build").collect()
        };
        assert_eq!(kinds(sample::EMPTY), [""; 0]);
        assert_eq!(kinds(Seen { loss: 0.05, ..sample::EMPTY }), ["saturated"]);
        assert_eq!(kinds(Seen { other_share: 0.3, ..sample::EMPTY }), ["other-load"]);
    }

    #[test]
    fn what_is_kept_back_is_in_no_load_of_the_calibration() {
        assert!(!FITTED.contains(&KEPT_SUITE));
        assert!(KEPT_FRAMES.iter().all(|f| !FRAMES.contains(f)));
        assert!(LOADS.iter().all(|(rate, _)| !KEPT_RATES.contains(rate)));
        assert!(LOADS[0].0 * 10.0 < LOADS[3].0, "more than a decade");
        assert!(held_back().iter().any(|h| h.contains("390")) && held_back().contains(&"imix".to_string()));
    }

    #[test]
    fn a_calibration_takes_less_than_two_minutes_and_its_smoke_ten_seconds() {
        let guess = |smoke| CalibrateOptions { smoke, ..CalibrateOptions::default() }.guess();
        assert!(guess(false) < Duration::from_secs(115), "{:?}", guess(false));
        assert!(guess(true) <= Duration::from_secs(10), "{:?}", guess(true));
    }

    #[test]
    fn plain_forwarding_is_half_of_the_machine_s_time_for_all_packets_together() {
        let seen = |packets, machine_ns| Seen { packets, machine_ns, ..sample::EMPTY };
        assert_eq!(of_plain(&[seen(100.0, 1_000.0), seen(300.0, 5_000.0)]), Some(2_000.0));
        assert_eq!(of_plain(&[]), None);
    }

    #[test]
    fn a_suite_that_does_not_exist_is_refused_before_anything_is_measured() {
        let o = CalibrateOptions { suites: vec!["rot13".into()], ..CalibrateOptions::default() };
        assert!(matches!(calibrate(&o), Err(LabError::Usage(_))));
    }
}
