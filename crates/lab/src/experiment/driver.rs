//! Experiment E5, `lab driver`: the crypto engine alone, through the batch interface that the data
//! plane uses, after Freescale's driver-level test of an accelerator (50,000 operations). No packet
//! crosses anything: what is measured is what a suite costs by size, engine and direction, and what
//! handing over many packets at once is worth.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `suite` | suites of ESP, by their names in `swanctl.conf` |
//! | `work` | a crypto engine at work |

pub(super) mod suite;
pub(super) mod work;

use std::time::Duration;

use ironswan_crypto::engines::{EngineId, Engines};
use ironswan_wire::proposal::EspSuite;

use super::campaign::{About, Campaign, Common, Conclusion, Report};
use super::line::once;
use crate::clock;
use crate::error::LabError;
use crate::plan::fit;
use crate::record::{
    Better, Columns, Derived, Factors, Historical, Plot, Record, Table, View, Which, factors,
};
use crate::report::Warning;
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
    /// Engines by name; all that this machine has when empty.
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
    measures: &[
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
    ],
    baseline: None,
};

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
    engine: EngineId,
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
    let steps = plan.cells.len() * plan.repeats as usize;
    let mut c = Campaign::begin(ABOUT, &options.common, steps, Duration::from_millis(30))?;
    c.settings.insert("operations".into(), plan.operations.to_string());
    c.settings.insert("repeats".into(), plan.repeats.to_string());
    c.settings.insert("longest cell".into(), format!("{} s of processor time", plan.at_most.as_secs_f64()));
    c.versions.insert("ironswan".into(), env!("CARGO_PKG_VERSION").into());
    for id in EngineId::ALL {
        c.versions.insert(format!("engine {id}"), id.missing().unwrap_or("available").into());
    }
    let mhz = c.machine().mhz;
    let (load, cpus) = (c.machine().load_average.unwrap_or(0.0), c.machine().cpus as f64);
    if load > 0.5 * cpus {
        c.doubt(Warning::OtherLoad { share: (load / cpus).min(1.0) });
    }
    if plan.repeats < 3 {
        c.doubt(Warning::FewRepeats { repeats: plan.repeats });
    }
    // Repeats are the outer loop: whatever else the machine does meets all cells.
    for repeat in 0..plan.repeats {
        for cell in &plan.cells {
            let (name, suite) = &plan.suites[cell.suite];
            c.says(&format!("{name}, {} B, {}", cell.size, cell.engine))?;
            let began = c.elapsed();
            let engines = Engines::only(cell.engine);
            let memory = (cell.data, cell.dispatch);
            let mut bench = Bench::new(suite, &engines, cell.size, memory, plan.operations, 1)?;
            // The first round pays for page faults and a sleeping processor.
            bench.time(cell.work, cell.dispatch, cell.check, 1, plan.at_most)?;
            let t = bench.time(cell.work, cell.dispatch, cell.check, plan.operations, plan.at_most)?;
            let measures = [
                ("mb_per_s", f64::from(cell.size) * 1e3 / t.ns),
                ("ns_per_op", t.ns),
                // Not finite, so left out, where the clock is not known.
                ("cycles_per_op", mhz.map_or(f64::NAN, |mhz| t.ns * mhz / 1e3)),
                ("operations", t.operations as f64),
            ];
            c.sample(cell.factors(name), repeat, began, &measures, vec![]);
        }
    }
    c.finish(conclude)
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
        let engines: Vec<EngineId> =
            if o.engines.is_empty() { EngineId::available().collect() } else { parsed(&o.engines)? };
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
        engines: &[EngineId],
        sizes: &[u32],
        dispatch: &[Dispatch],
        data: &[Data],
        check: &[Check],
        of: impl Fn(&str) -> bool,
    ) {
        for (suite, (_, esp)) in self.suites.iter().enumerate().filter(|(_, (name, _))| of(name)) {
            for &size in sizes {
                // An engine that lacks a suite would have aws-lc do it.
                for &engine in engines.iter().filter(|e| Engines::only(**e).engine(esp, size as usize) == **e)
                {
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

/// Slopes, what dispatch is worth, the tables and plots, and what Freescale saw.
fn conclude(record: &Record) -> Conclusion {
    let usual = factors([("dispatch", "burst"), ("burst", "64"), ("data", "same"), ("check", "after")]);
    let mut derived = lines(record, &usual);
    derived.extend(worth(record));
    let table = |title: &str, only: Factors, rows: &[&str], columns| {
        let rows = rows.iter().map(ToString::to_string).collect();
        View::Table(Table { title: title.into(), only, rows, columns })
    };
    let by = |factor: &str, measure: &str| Columns::Factor {
        factor: factor.into(),
        measure: measure.into(),
        which: Which::Median,
    };
    let with = |base: &Factors, more: &[(&str, &str)]| -> Factors {
        let more = more.iter().map(|(k, v)| ((*k).to_string(), (*v).to_string()));
        base.clone().into_iter().chain(more).collect()
    };
    let unique = factors([("data", "unique"), ("dispatch", "burst"), ("check", "after")]);
    let keys = ["suite", "engine", "direction"];
    let sized = ["suite", "engine", "direction", "size"];
    let has = |only: &Factors| record.figures_with(only).next().is_some();
    let mut views = Vec::new();
    if has(&usual) {
        views.push(table(
            "In bursts of 64, memory in the cache",
            usual.clone(),
            &keys,
            by("size", "mb_per_s"),
        ));
        views.push(table("The same", usual.clone(), &keys, by("size", "ns_per_op")));
    }
    if !derived.iter().all(|d| d.name != "ns_per_byte") {
        views.push(View::Derived {
            title: "Cost of a packet = ns_per_packet + ns_per_byte x size, by least squares over the sizes"
                .into(),
            names: ["ns_per_packet", "ns_per_byte", "residual"].map(String::from).into(),
        });
    }
    let several = record.values("burst", &unique).len() > 1;
    if several {
        views.push(table(
            "By packets in a burst, memory of its own for each",
            unique.clone(),
            &sized,
            by("burst", "ns_per_op"),
        ));
    }
    if derived.iter().any(|d| d.name == "all_over_after") {
        views.push(View::Derived {
            title: "All at once: its rate over that of n+1 after n".into(),
            names: vec!["all_over_after".into()],
        });
    }
    let sixtyfour = factors([("dispatch", "burst"), ("burst", "64")]);
    let varied = record.values("check", &sixtyfour).len() > 1;
    if varied {
        let never = with(&sixtyfour, &[("check", "never")]);
        for suite in record.values("suite", &never) {
            let rows = ["engine", "direction", "size", "data"];
            let only = with(&sixtyfour, &[("suite", suite)]);
            views.push(table(
                &format!("{suite}: by when results are looked at"),
                only,
                &rows,
                by("check", "ns_per_op"),
            ));
        }
    }
    let plot = |name: &str, title: &str, only: Factors, x: (&str, &str), y: &str, series: &[&str]| {
        View::Plot(Plot {
            name: name.into(),
            title: title.into(),
            only,
            x: x.0.into(),
            x_label: x.1.into(),
            y: y.into(),
            which: Which::Median,
            series: series.iter().map(ToString::to_string).collect(),
            log_x: true,
            log_y: true,
        })
    };
    for direction in ["seal", "open"] {
        let only = with(&usual, &[("direction", direction)]);
        if has(&only) {
            let title = format!("Rate of one core by size, {direction}, in bursts of 64");
            let x = ("size", "text, bytes");
            views.push(plot(&format!("rate-{direction}"), &title, only, x, "mb_per_s", &["suite", "engine"]));
        }
        let only = with(&unique, &[("direction", direction)]);
        if several && has(&only) {
            let title = format!("Time of a packet by packets in a burst, {direction}");
            let x = ("burst", "packets in a burst");
            let series = ["suite", "engine", "size"];
            views.push(plot(&format!("burst-{direction}"), &title, only, x, "ns_per_op", &series));
        }
    }
    Conclusion { history: vec![history(&derived)], derived, views }
}

/// Per suite, engine and direction: slope and intercept over the sizes.
fn lines(record: &Record, usual: &Factors) -> Vec<Derived> {
    let mut groups: Vec<(Factors, Vec<(f64, f64)>)> = Vec::new();
    for figure in record.figures_with(usual) {
        let key: Factors = ["suite", "engine", "direction"]
            .iter()
            .filter_map(|k| Some(((*k).to_string(), figure.factors.get(*k)?.clone())))
            .collect();
        let size = figure.factors.get("size").and_then(|s| s.parse::<f64>().ok());
        let Some(point) = size.zip(figure.number("ns_per_op", Which::Median)) else { continue };
        match groups.iter_mut().find(|(k, _)| *k == key) {
            Some((_, points)) => points.push(point),
            None => groups.push((key, vec![point])),
        }
    }
    let mut derived = Vec::new();
    for (key, points) in groups {
        let Some(line) = fit::line(&points) else { continue };
        let how = format!("least squares over {} sizes", points.len());
        for (name, value, unit) in [
            ("ns_per_packet", line.intercept, "ns"),
            ("ns_per_byte", line.slope, "ns"),
            ("residual", line.residual, "ns, root mean square"),
        ] {
            derived.push(Derived {
                name: name.into(),
                factors: key.clone(),
                value,
                unit: unit.into(),
                how: how.clone(),
            });
        }
    }
    derived
}

/// The rate of all at once over that of n+1 after n.
fn worth(record: &Record) -> Vec<Derived> {
    let all = factors([("dispatch", "all")]);
    let ratio = |figure: &crate::record::Figure| {
        let mut one = figure.factors.clone();
        one.insert("dispatch".into(), "after".into());
        one.insert("burst".into(), "1".into());
        one.insert("check".into(), "inside".into());
        let after = record.figure(&one)?.number("ns_per_op", Which::Median)?;
        let factors = ["suite", "engine", "direction", "size"]
            .iter()
            .filter_map(|k| Some(((*k).to_string(), figure.factors.get(*k)?.clone())))
            .collect();
        let value = after / figure.number("ns_per_op", Which::Median)?;
        let how =
            "ns/op of `after` over ns/op of `all`, both with memory of their own for each packet".into();
        Some(Derived { name: "all_over_after".into(), factors, value, unit: "times".into(), how })
    };
    let mut derived: Vec<Derived> = Vec::new();
    for d in record.figures_with(&all).filter_map(ratio) {
        if !derived.iter().any(|known| known.factors == d.factors) {
            derived.push(d);
        }
    }
    derived
}

fn history(derived: &[Derived]) -> Historical {
    let at = |size: &str| -> Vec<String> {
        derived
            .iter()
            .filter(|d| d.name == "all_over_after")
            .filter(|d| d.factors.get("size").is_some_and(|s| s == size))
            .filter(|d| d.factors.get("direction").is_some_and(|s| s == "seal"))
            .map(|d| {
                let of = |k: &str| d.factors.get(k).map_or("-", String::as_str);
                format!("{} by {}: {:.2}", of("suite"), of("engine"), d.value)
            })
            .collect()
    };
    let (small, large) = (at("64"), at("1024"));
    let now = if small.is_empty() && large.is_empty() {
        "both ways of dispatch were not among what was measured".into()
    } else {
        let or = |list: Vec<String>| if list.is_empty() { "not measured".into() } else { list.join("; ") };
        format!("all at once over n+1 after n, sealing 64 B: {}. 1,024 B: {}", or(small), or(large))
    };
    Historical {
        source: "Freescale, driver-level test of a security engine (SEC of the MPC85xx), 50,000 operations".into(),
        then: "all at once about 4 times n+1 after n for small data; the gap closed by 1 KB".into(),
        now,
        caveat: "theirs is a device beside the processor: n+1 after n waits for its interrupt or its answer each time. Here \
                 the processor itself does the work and a call ends with the result, so only the call and idle lanes are saved: \
                 a packet-by-packet engine shows about 1, one that works on packets side by side shows its lanes at every size"
            .into(),
    }
}

/// Nanoseconds of processor time for a packet of each size, in bursts of so many packets from
/// memory in the cache: what the planner builds on.
pub(super) fn costs(
    suite: &EspSuite,
    engines: &Engines,
    sizes: &[u32],
    (work, burst): (Work, u32),
    at_most: Duration,
) -> Result<Vec<(f64, f64)>, LabError> {
    let memory = (Data::Same, Dispatch::Burst(burst as usize));
    let of = |size: &u32| Ok((f64::from(*size), least(suite, engines, (*size, memory), (work, 1), at_most)?));
    sizes.iter().map(of).collect()
}

/// The same for one size in bursts of 64, where every packet has memory of its own and one of
/// several keys at random.
pub(super) fn spread(
    suite: &EspSuite,
    engines: &Engines,
    size: u32,
    (work, keys): (Work, u16),
    at_most: Duration,
) -> Result<f64, LabError> {
    least(suite, engines, (size, (Data::Unique, USUAL)), (work, keys), at_most)
}

/// The least of some short runs: what the machine does beside it adds, and never takes away.
fn least(
    suite: &EspSuite,
    engines: &Engines,
    (size, memory): (u32, (Data, Dispatch)),
    (work, keys): (Work, u16),
    at_most: Duration,
) -> Result<f64, LabError> {
    let (_, dispatch) = memory;
    let mut bench = Bench::new(suite, engines, size, memory, 20_000, keys)?;
    bench.time(work, dispatch, Check::After, 1, at_most)?;
    let mut least = f64::INFINITY;
    let end = clock::now() + at_most;
    let mut runs = 0;
    while runs < 3 || clock::now() < end {
        least = least.min(bench.time(work, dispatch, Check::After, 256, at_most / 4)?.ns);
        runs += 1;
    }
    Ok(least)
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
            assert_eq!(Engines::only(cell.engine).engine(esp, cell.size as usize), cell.engine);
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
