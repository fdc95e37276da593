//! Experiment E5, `lab driver`: the crypto engine alone, through the batch interface that the data
//! plane uses, after Freescale's driver-level test of an accelerator (50,000 operations). No packet
//! crosses anything: what is measured is what a suite costs by size, engine and direction, and what
//! handing over many packets at once is worth. With the feature `cryptodev` the same is asked of a
//! device beside the processor.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `suite` | suites of ESP, by their names in `swanctl.conf` |
//! | `engine` | the engines by their names |
//! | `work` | a crypto engine of the processor at work |
//! | `device` | a look-aside device at work, asked by polling and by waiting |
//! | `costs` | costs of a packet, for the planner |
//! | `conclude` | figures and views, made of the samples |
//! | `look_aside` | figures and views of the device |

mod conclude;
mod costs;
mod device;
mod engine;
mod look_aside;
pub(super) mod suite;
pub(super) mod work;

use std::time::Duration;

use ironswan_crypto::engines::{EngineId, Engines};
use ironswan_wire::proposal::EspSuite;

use super::campaign::{About, Campaign, Common, Conclusion, Report};
use super::general_doubts;
use super::line::once;
use super::runner::{self, Method, Schedule};
use crate::error::LabError;
use crate::record::{Better, Factors, Record, factors};
use crate::report::Warning;
pub(super) use costs::{costs, spread};
use device::Device;
use engine::Engine;
use work::{Bench, Check, Data, Dispatch, Work};

/// Options of the experiment. Empty lists: the experiment's own choice.
#[derive(Debug, Clone, Default)]
pub struct DriverOptions {
    /// Options that all experiments have; systems and encapsulations have no meaning here.
    pub common: Common,
    /// Suites of ESP as `swanctl.conf` writes them.
    pub suites: Vec<String>,
    /// Bytes of text of a packet, multiples of 16.
    pub sizes: Vec<u32>,
    /// Engines by name; all of the processor when empty. `cryptodev` is a device beside it.
    pub engines: Vec<String>,
    /// How packets are handed over: `all`, `after`, or packets of a burst. With this list every
    /// combination of everything is measured.
    pub dispatch: Vec<String>,
    /// `same` or `unique` memory.
    pub data: Vec<String>,
    /// When results are looked at: `inside`, `after`, `never`.
    pub check: Vec<String>,
    /// Operations of a cell.
    pub operations: Option<u64>,
}

const ABOUT: About = About {
    name: "driver",
    number: "E5",
    question: "What does each suite cost in each crypto engine, and what is it worth to hand over many packets at once?",
    measures: MEASURES.split_at(4).0,
    baseline: None,
};

/// Measures of every engine, and behind them those of a device alone.
const MEASURES: &[(&str, &str, &str, &str, Better)] = &[
    ("mb_per_s", "MB/s", "MB/s", "text sealed or opened, 10^6 bytes a second, one core", Better::More),
    ("ns_per_op", "ns/op", "ns", "processor time of one packet", Better::Less),
    (
        "cycles_per_op",
        "cycles/op",
        "cycles",
        "the same in cycles of the clock that the kernel shows",
        Better::Less,
    ),
    ("operations", "ops", "1", "packets measured", Better::Neither),
    (
        "elapsed_ns_per_op",
        "elapsed/op",
        "ns",
        "cryptodev: time that passes for one packet, of which its MB/s are made; its ns/op are those of the asking thread",
        Better::Less,
    ),
    (
        "latency_ns",
        "latency",
        "ns",
        "cryptodev: from handing a request over until its answer is seen, median",
        Better::Less,
    ),
    ("latency_p99_ns", "latency 99%", "ns", "the same, 99th percentile", Better::Less),
    (
        "sleeps_per_op",
        "sleeps/op",
        "1",
        "cryptodev-wait: sleeps of the asking thread for one packet",
        Better::Less,
    ),
];

/// Suites whose dispatch and data are varied.
const CLOSER: [&str; 2] = ["aes128gcm16", "aes128-sha256"];
const SIZES: [u32; 8] = [64, 128, 256, 512, 1024, 2048, 4096, 8192];
const BURSTS: [usize; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// The burst of the first sweep: what a gateway reads before it looks.
const USUAL: Dispatch = Dispatch::Burst(64);

/// One measurement.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Cell {
    suite: usize,
    engine: Engine,
    work: Work,
    size: u32,
    dispatch: Dispatch,
    data: Data,
    check: Check,
}

/// The measurements of a run: suites, cells and operations of each.
struct Plan {
    suites: Vec<(String, EspSuite)>,
    cells: Vec<Cell>,
    operations: u64,
    repeats: u32,
    at_most: Duration,
}

/// Makes the experiment.
pub fn driver(options: DriverOptions) -> Result<Report, LabError> {
    let plan = Plan::new(&options)?;
    engine::start(plan.cells.iter().map(|cell| cell.engine))?;
    let device = plan.cells.iter().any(|cell| matches!(cell.engine, Engine::Device(_)));
    let schedule = Schedule {
        about: if device { About { measures: MEASURES, ..ABOUT } } else { ABOUT },
        common: &options.common,
        cells: plan.cells.clone(),
        repeats: plan.repeats,
        samples: plan.cells.len() * plan.repeats as usize,
        guess: Duration::from_millis(30),
    };
    runner::run(schedule, &plan)
}

impl Method for Plan {
    type Cell = Cell;
    type Bench = ();

    fn prepare(&self, c: &mut Campaign) -> Result<(), LabError> {
        c.settings.insert("operations".into(), self.operations.to_string());
        c.settings.insert("repeats".into(), self.repeats.to_string());
        let longest = format!("{} s of processor time", self.at_most.as_secs_f64());
        c.settings.insert("longest cell".into(), longest);
        c.versions.insert("ironswan".into(), env!("CARGO_PKG_VERSION").into());
        for id in EngineId::ALL {
            c.versions.insert(format!("engine {id}"), id.missing().unwrap_or("available").into());
        }
        let (load, cpus) = (c.machine().load_average.unwrap_or(0.0), c.machine().cpus as f64);
        if load > 0.5 * cpus {
            c.doubt(Warning::OtherLoad { share: (load / cpus).min(1.0) });
        }
        if self.repeats < general_doubts::FEWEST_REPEATS {
            c.doubt(Warning::FewRepeats { repeats: self.repeats });
        }
        Ok(())
    }

    fn trial(&self, c: &mut Campaign, (): &mut (), cell: &Cell, repeat: u32) -> Result<(), LabError> {
        let (name, suite) = &self.suites[cell.suite];
        c.says(&format!("{name}, {} B, {}", cell.size, cell.engine.name()))?;
        let (began, mhz) = (c.elapsed(), c.machine().mhz);
        let (memory, limits) = ((cell.data, cell.dispatch), (self.operations, self.at_most));
        let measured = match cell.engine {
            Engine::Processor(id) => {
                let mut bench = Bench::new(suite, &Engines::only(id), cell.size, memory, self.operations, 1)?;
                of_processor(&mut bench, cell, limits)?
            }
            Engine::Device(ask) => {
                let mut device = Device::new(suite, (ask, cell.work), cell.size, memory, self.operations)?;
                of_device(&mut device, cell, limits)?
            }
        };
        // Not finite, so left out, where the clock is not known.
        let cycles = mhz.map_or(f64::NAN, |mhz| measured.ns * mhz / 1e3);
        let mut measures = vec![
            ("mb_per_s", f64::from(cell.size) * 1e3 / measured.elapsed_ns),
            ("ns_per_op", measured.ns),
            ("cycles_per_op", cycles),
            ("operations", measured.operations as f64),
        ];
        measures.extend(measured.more);
        c.sample(cell.factors(name), repeat, began, &measures, vec![]);
        Ok(())
    }

    fn judge(record: &Record) -> Conclusion {
        conclude::conclude(record)
    }
}

/// One measurement of an engine.
struct Measured {
    operations: u64,
    /// Processor time of a packet, and the time that its rate is made of.
    ns: f64,
    elapsed_ns: f64,
    /// What a device has beside.
    more: Vec<(&'static str, f64)>,
}

fn of_processor(
    bench: &mut Bench,
    cell: &Cell,
    (operations, at_most): (u64, Duration),
) -> Result<Measured, LabError> {
    // The first round pays for page faults and a sleeping processor.
    bench.time(cell.work, cell.dispatch, cell.check, 1, at_most)?;
    let t = bench.time(cell.work, cell.dispatch, cell.check, operations, at_most)?;
    Ok(Measured { operations: t.operations, ns: t.ns, elapsed_ns: t.ns, more: vec![] })
}

/// Its packets have all been to the device before.
fn of_device(
    device: &mut Device,
    cell: &Cell,
    (operations, at_most): (u64, Duration),
) -> Result<Measured, LabError> {
    let t = device.time(cell.check, operations, at_most)?;
    let latency = device.latency(operations, at_most)?;
    let mut more = vec![
        ("elapsed_ns_per_op", t.elapsed_ns),
        ("latency_ns", latency.median),
        ("latency_p99_ns", latency.p99),
    ];
    if cell.engine == Engine::Device(engine::Ask::Wait) {
        more.push(("sleeps_per_op", t.sleeps));
    }
    Ok(Measured { operations: t.operations, ns: t.ns, elapsed_ns: t.elapsed_ns, more })
}

impl Cell {
    fn factors(&self, suite: &str) -> Factors {
        factors([
            ("suite", suite),
            ("engine", self.engine.name()),
            ("direction", self.work.name()),
            ("size", &self.size.to_string()),
            ("dispatch", self.dispatch.name()),
            ("burst", &self.dispatch.burst()),
            ("data", self.data.name()),
            ("check", self.check.name()),
        ])
    }
}

fn parsed<T: std::str::FromStr<Err = String> + PartialEq>(list: &[String]) -> Result<Vec<T>, LabError> {
    let mut all =
        list.iter().map(|s| s.parse()).collect::<Result<Vec<T>, String>>().map_err(LabError::Usage)?;
    once(&mut all);
    Ok(all)
}

impl Plan {
    fn new(o: &DriverOptions) -> Result<Self, LabError> {
        let c = &o.common;
        let chosen = |given: &[String], own: &[&str]| -> Vec<String> {
            let mut all =
                if given.is_empty() { own.iter().map(ToString::to_string).collect() } else { given.to_vec() };
            once(&mut all);
            all
        };
        let own = c.by_care(
            &suite::ALL[..],
            &["aes128gcm16", "chacha20poly1305", "aes128-sha256", "3des-sha1"],
            &["aes128gcm16", "aes128-sha256"],
        );
        let suites = chosen(&o.suites, own)
            .into_iter()
            .map(|name| Ok((name.clone(), suite::by_name(&name)?)))
            .collect::<Result<Vec<_>, LabError>>()?;
        let mut sizes = if o.sizes.is_empty() {
            c.by_care(&SIZES[..], &[64, 256, 1024, 8192], &[64, 1024]).to_vec()
        } else {
            o.sizes.clone()
        };
        once(&mut sizes);
        if let Some(bad) = sizes.iter().find(|s| !work::SIZES.contains(s) || !s.is_multiple_of(16)) {
            return Err(LabError::Usage(format!(
                "a size of {bad} bytes cannot be measured: sizes are multiples of 16 (whole blocks of every cipher) from \
                 {} to {}",
                work::SIZES.start(),
                work::SIZES.end()
            )));
        }
        let operations = o.operations.unwrap_or(c.by_care(50_000, 1_000, 200));
        if !(1..=100_000_000).contains(&operations) {
            return Err(LabError::Usage("--operations is 1 to 100,000,000".into()));
        }
        let engines = engine::named(&o.engines)?;
        let mut plan = Self {
            suites,
            cells: Vec::new(),
            operations,
            repeats: c.repeats.unwrap_or(c.by_care(5, 3, 1)),
            at_most: c.duration.unwrap_or(c.by_care(
                Duration::from_secs(2),
                Duration::from_millis(5),
                Duration::from_millis(5),
            )),
        };
        let (dispatch, data, check) = (parsed(&o.dispatch)?, parsed(&o.data)?, parsed(&o.check)?);
        if !dispatch.is_empty() || !data.is_empty() || !check.is_empty() {
            let or = |list: Vec<Dispatch>| if list.is_empty() { vec![USUAL] } else { list };
            let data = if data.is_empty() { vec![Data::Same] } else { data };
            let check = if check.is_empty() { vec![Check::After] } else { check };
            plan.add(&engines, &sizes, &or(dispatch), &data, &check, |_| true);
        } else {
            plan.add(&engines, &sizes, &[USUAL], &[Data::Same], &[Check::After], |_| true);
            let closer = |name: &str| CLOSER.contains(&name) || !o.suites.is_empty();
            let some: Vec<u32> =
                sizes.iter().copied().filter(|s| [64, 256, 1024, 8192].contains(s)).collect();
            let some = if o.sizes.is_empty() { some } else { sizes };
            let bursts: Vec<usize> = c.by_care(&BURSTS[..], &[1, 4, 16, 64, 128], &[1, 32]).to_vec();
            let ways: Vec<Dispatch> = [Dispatch::All, Dispatch::After]
                .into_iter()
                .chain(bursts.into_iter().map(Dispatch::Burst))
                .collect();
            plan.add(&engines, &some, &ways, &[Data::Unique], &[Check::After], closer);
            if !c.smoke {
                let (data, check) = ([Data::Same, Data::Unique], [Check::Inside, Check::After, Check::Never]);
                plan.add(&engines, &some, &[USUAL], &data, &check, closer);
            }
        }
        if plan.cells.is_empty() {
            let names: Vec<&str> = engines.iter().map(|e| e.name()).collect();
            return Err(LabError::Usage(format!(
                "nothing to measure: {} has none of these suites; leave --engine out, or name aws-lc, which has all",
                names.join(", ")
            )));
        }
        Ok(plan)
    }

    fn add(
        &mut self,
        engines: &[Engine],
        sizes: &[u32],
        dispatch: &[Dispatch],
        data: &[Data],
        check: &[Check],
        of: impl Fn(&str) -> bool,
    ) {
        for (suite, (_, esp)) in self.suites.iter().enumerate().filter(|(_, (name, _))| of(name)) {
            for &size in sizes {
                for &engine in engines.iter().filter(|engine| engine.has(esp, size as usize)) {
                    for work in Work::BOTH {
                        for &dispatch in dispatch {
                            for &data in data {
                                // All at once has memory for each operation.
                                let data = if dispatch == Dispatch::All { Data::Unique } else { data };
                                for &check in check {
                                    let check =
                                        if dispatch == Dispatch::After { Check::Inside } else { check };
                                    self.cells.push(Cell {
                                        suite,
                                        engine,
                                        work,
                                        size,
                                        dispatch,
                                        data,
                                        check,
                                    });
                                }
                            }
                        }
                    }
                }
            }
        }
        once(&mut self.cells);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> DriverOptions {
        DriverOptions { common: Common { smoke: true, ..Common::default() }, ..DriverOptions::default() }
    }

    #[test]
    fn no_cell_is_measured_twice_and_engines_do_what_they_have() {
        let plan = Plan::new(&small()).expect("a plan");
        assert!(!plan.cells.is_empty());
        for (i, cell) in plan.cells.iter().enumerate() {
            assert!(!plan.cells[i + 1..].contains(cell), "{cell:?}");
            let esp = &plan.suites[cell.suite].1;
            assert!(cell.engine.has(esp, cell.size as usize), "{cell:?}");
        }
    }

    #[test]
    fn lists_multiply() {
        let o = DriverOptions {
            suites: vec!["aes128-sha1".into()],
            engines: vec!["aws-lc".into()],
            sizes: vec![64, 128],
            dispatch: vec!["all".into(), "8".into()],
            data: vec!["same".into(), "unique".into()],
            check: vec!["inside".into(), "never".into()],
            ..small()
        };
        // All at once has memory for each operation: `same` falls together with `unique`.
        let burst = 2 * 2 * 2 * 2;
        assert_eq!(Plan::new(&o).expect("a plan").cells.len(), burst + 2 * 2 * 2);
    }

    #[test]
    fn options_that_make_no_sense_are_refused() {
        for change in [
            |o: &mut DriverOptions| o.suites = vec!["rot13".into()],
            |o: &mut DriverOptions| o.sizes = vec![100],
            |o: &mut DriverOptions| o.sizes = vec![1 << 20],
            |o: &mut DriverOptions| o.engines = vec!["steam".into()],
            |o: &mut DriverOptions| o.dispatch = vec!["0".into()],
            |o: &mut DriverOptions| o.operations = Some(0),
        ] {
            let mut o = small();
            change(&mut o);
            assert!(matches!(Plan::new(&o), Err(LabError::Usage(_))));
        }
    }
}
