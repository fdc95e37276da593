//! The highest rates of one gateway: what the model says, beside a verification's own measurements
//! of them and beside a stored run of `lab rfc2544 --topology single`. Pure.
//!
//! The tester and its links are on the same processors as the gateway, and the model knows nothing
//! of them. So what the machine took for a packet beside the gateway's processes is the run's, and
//! the gateway's part is the model's:
//!
//! ```text
//! packets a second x (the gateway's cost by the model + what was beside it)
//!     = processors x the share of them that is busy then
//! ```
//!
//! Not all of the processors can be busy while nothing is lost: who has work waits for its turn,
//! and queues run over. How much can is what the calibration saw of the same gateway at its highest
//! rates.

use schemars::JsonSchema;
use serde::Serialize;

use super::mix::Mix;
use super::model::{Cell, Model, Path, Seen, Way};
use super::store;
use crate::dut::Suite;
use crate::error::LabError;
use crate::record::{Figure, Record, Which};
use crate::stats::{self, Summary};

/// One size and direction.
#[derive(Debug, Clone, PartialEq, JsonSchema, Serialize)]
#[schemars(deny_unknown_fields)]
pub struct Rate {
    /// The system, as the run calls it; of a verification's own, `ironswan`.
    #[schemars(length(min = 1))]
    pub dut: String,
    /// Suite of the rate.
    #[schemars(length(min = 1))]
    pub suite: String,
    /// How ESP was carried.
    pub path: Path,
    /// Which way: out was encrypting, in decrypting.
    pub way: Way,
    /// The packets.
    pub mix: Mix,
    /// The loss that was allowed, as the run writes it.
    #[schemars(length(min = 1))]
    pub loss: String,
    /// Packets a second that were carried.
    #[schemars(range(min = 0))]
    pub measured_pps: f64,
    /// How far the rates that several searches found lie apart, as a share of their median; absent
    /// where there was one search.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub spread: Option<f64>,
    /// Time of the machine for one packet at that rate, nanoseconds.
    #[schemars(range(min = 0))]
    pub machine_ns: f64,
    /// Of this the gateway's processes.
    #[schemars(range(min = 0))]
    pub measured_ns: f64,
    /// The rest: the tester, and the kernel's way to the gateway.
    pub beside_ns: f64,
    /// Share of the processors that can be busy while nothing is lost.
    #[schemars(range(min = 0, max = 1))]
    pub busy_at_most: f64,
    /// Packets a second by the model.
    #[schemars(range(min = 0))]
    pub predicted_pps: f64,
    /// The gateway's cost by the model at the rate that was carried, nanoseconds.
    #[schemars(range(min = 0))]
    pub predicted_ns: f64,
    /// Predicted over measured cost, less one.
    #[schemars(range(min = -1))]
    pub ns_error: f64,
    /// Predicted over measured rate, less one.
    #[schemars(range(min = -1))]
    pub error: f64,
}

/// Highest rates of a run, at the largest loss that it allowed.
pub fn rates(model: &Model, run: &Record) -> Result<Vec<Rate>, LabError> {
    let wrong = |why: String| Err(LabError::Usage(format!("--against: {why}")));
    let other = store::doubts(model, &run.machine, &run.program.version).machine;
    if !other.is_empty() {
        return wrong(format!("the run was made on another machine than the model ({})", other.join("; ")));
    }
    let suites = suites(&run.command_line)?;
    let mut rates: Vec<(f64, Rate)> = Vec::new();
    for figure in &run.figures {
        let Some((loss, rate)) = rate(model, &suites, figure)? else { continue };
        let same = |r: &Rate| (&r.dut, r.way, &r.mix.name) == (&rate.dut, rate.way, &rate.mix.name);
        match rates.iter_mut().find(|(_, r)| same(r)) {
            Some(best) if best.0 < loss => *best = (loss, rate),
            Some(_) => {}
            None => rates.push((loss, rate)),
        }
    }
    if rates.is_empty() {
        return wrong(format!(
            "the run is `{}` and has no throughput of a single gateway with a suite of the model; make one with `ironswan lab rfc2544 \
             --topology single`",
            run.experiment
        ));
    }
    Ok(rates.into_iter().map(|(_, rate)| rate).collect())
}

/// Suites that a run was made with: the first has the system's plain name.
fn suites(command_line: &[String]) -> Result<Vec<Suite>, LabError> {
    let at = command_line.iter().position(|a| a == "--suite" || a.starts_with("--suite="));
    let named = at.and_then(|n| match command_line[n].split_once('=') {
        Some((_, value)) => Some(value),
        None => command_line.get(n + 1).map(String::as_str),
    });
    named.map_or_else(|| Ok(vec![Suite::default()]), |text| Suite::list(text).map_err(LabError::Usage))
}

/// The system of a figure, as far as it is one of ours with its usual settings: suite and path.
fn system<'a>(suites: &'a [Suite], dut: &str) -> Option<(&'a str, Path)> {
    let rest = dut.strip_prefix("ironswan")?;
    let (path, rest) = match rest.strip_prefix("-raw") {
        Some(rest) => (Path::Raw, rest),
        None => (Path::Udp, rest),
    };
    let suite = match rest.strip_prefix('-') {
        None if rest.is_empty() => suites.first(),
        None => None,
        // Shortened for tables.
        Some(name) => suites.iter().find(|s| s.esp.trim_end_matches("poly1305") == name),
    };
    suite.map(|s| (s.esp.as_str(), path))
}

/// Key in the model of the rate that a figure shows, with the loss that it allows; `None` for a
/// figure of something else.
fn rate(model: &Model, suites: &[Suite], figure: &Figure) -> Result<Option<(f64, Rate)>, LabError> {
    let factor = |name: &str| figure.factors.get(name).map(String::as_str);
    let way = match (factor("part"), factor("topology"), factor("direction")) {
        (Some("throughput"), Some("single gateway"), Some("encrypting")) => Way::Out,
        (Some("throughput"), Some("single gateway"), Some("decrypting")) => Way::In,
        _ => return Ok(None),
    };
    let of = |name: &str| figure.number(name, Which::Median).filter(|v| *v > 0.0);
    let known = factor("dut").and_then(|dut| Some((dut, system(suites, dut)?)));
    let (Some((dut, (suite, path))), Some(size), Some(loss)) = (known, factor("size"), factor("loss")) else {
        return Ok(None);
    };
    let measured = (of("kpps"), of("machine_ns"), of("gateways_ns"));
    let (Some(kpps), Some(machine_ns), Some(measured_ns)) = measured else { return Ok(None) };
    let mix = match size.parse::<u32>() {
        Ok(frame) => Mix::frames(frame),
        // As the experiment has it.
        Err(_) => Mix::rows(size, [64, 570, 1518]),
    };
    let allowed = loss.trim_end_matches('%').parse().unwrap_or(0.0);
    let spread = figure.measures.get("kpps").and_then(|q| spread(&q.summary));
    let (pps, gateway_ns) = (kpps * 1e3, measured_ns);
    let load = Load { dut, suite, path, way, mix, loss, pps, spread, machine_ns, gateway_ns };
    Ok(Some((allowed, load.rate(model)?)))
}

/// How far repeats lie apart, where there were several.
fn spread(repeats: &Summary) -> Option<f64> {
    (repeats.n > 1).then(|| repeats.relative_range())
}

/// Measurement of a highest rate.
struct Load<'a> {
    dut: &'a str,
    suite: &'a str,
    path: Path,
    way: Way,
    mix: Mix,
    loss: &'a str,
    pps: f64,
    spread: Option<f64>,
    machine_ns: f64,
    gateway_ns: f64,
}

impl Load<'_> {
    /// Prediction of the model for that rate.
    fn rate(self, model: &Model) -> Result<Rate, LabError> {
        let Self { dut, suite, path, way, mix, loss, spread, machine_ns, .. } = self;
        let (measured_pps, measured_ns) = (self.pps, self.gateway_ns);
        let beside_ns = machine_ns - measured_ns;
        let cost = model.suite(suite)?;
        let of_gateway = |pps: f64| Ok(model.cost(cost, path, way, (&mix, pps), 1.0)?.total());
        let busy_at_most = model.busy_at_most(path, way);
        let processors = model.machine.cpus as f64 * busy_at_most;
        let predicted_pps = highest(processors, |pps| Ok(of_gateway(pps)? + beside_ns.max(0.0)))?;
        let predicted_ns = of_gateway(measured_pps)?;
        Ok(Rate {
            dut: dut.into(),
            suite: suite.into(),
            path,
            way,
            loss: loss.into(),
            measured_pps,
            spread,
            machine_ns,
            measured_ns,
            beside_ns,
            busy_at_most,
            predicted_pps,
            predicted_ns,
            ns_error: predicted_ns / measured_ns - 1.0,
            error: predicted_pps / measured_pps - 1.0,
            mix,
        })
    }
}

/// Highest rates that a verification has measured itself and that lost at most `loss`.
pub fn own(model: &Model, cells: &[Cell], loss: &str) -> Result<Vec<Rate>, LabError> {
    let rate = |(cell, way): (&Cell, Way)| {
        let median = |of: fn(&Seen) -> f64| stats::median(&cell.seen.iter().map(of).collect::<Vec<_>>());
        let found = cell
            .median(way)
            .zip(median(|s| s.machine_ns))
            .filter(|(side, _)| side.pps > 0.0 && side.ns > 0.0);
        found.map(|(side, machine_ns)| {
            let (dut, suite, mix) = ("ironswan", cell.suite.as_str(), cell.mix.clone());
            let load = Load {
                dut,
                suite,
                path: cell.path,
                way,
                mix,
                loss,
                pps: side.pps,
                spread: cell.rates(way).as_ref().and_then(spread),
                machine_ns,
                gateway_ns: side.ns,
            };
            load.rate(model)
        })
    };
    cells.iter().filter_map(|cell| Some((cell, cell.alone?))).filter_map(rate).collect()
}

/// Rates between which an answer is looked for, packets per second.
const HIGHEST: f64 = 1e12;
const LOWEST: f64 = 1e-3;
/// From one to the next.
const STEP: f64 = 1.01;

/// The highest rate whose packets fit into `budget` processors. Packets that gather may take less
/// time in all than fewer that do not, so it is looked for from above: in steps of a hundredth, and
/// by halving within the step.
fn highest(budget: f64, ns: impl Fn(f64) -> Result<f64, LabError>) -> Result<f64, LabError> {
    let fits = |pps: f64| Ok::<_, LabError>(pps * ns(pps)? / 1e9 <= budget);
    let mut high = HIGHEST;
    let mut low = high / STEP;
    while low > LOWEST && !fits(low)? {
        high = low;
        low /= STEP;
    }
    for _ in 0..40 {
        let middle = (low + high) / 2.0;
        if fits(middle)? { low = middle } else { high = middle }
    }
    Ok(low)
}

#[cfg(test)]
mod tests {
    use super::super::model::Side;
    use super::super::sample;
    use super::*;
    use crate::record::{Sample, factors, figures};
    use crate::report;

    /// A run of such samples: direction, size, loss, system, and packets a second in thousands;
    /// 8,000 ns of the machine for each, of them 5,000 of the gateway.
    fn run(model: &Model, found: &[(&str, &str, &str, &str, f64)]) -> Record {
        let mut run = report::sample::record();
        run.machine = model.machine.clone();
        run.samples = found.iter().map(|of| sample_of(*of)).collect();
        run.figures = figures(&run.samples, None);
        run.command_line = ["ironswan", "--suite", "aes128gcm16,3des-sha1"].map(String::from).into();
        run
    }

    fn sample_of((direction, size, loss, dut, kpps): (&str, &str, &str, &str, f64)) -> Sample {
        let own = [("direction", direction), ("size", size), ("loss", loss), ("dut", dut)];
        let all = [("part", "throughput"), ("topology", "single gateway")];
        let measures = [("kpps", kpps), ("machine_ns", 8_000.0), ("gateways_ns", 5_000.0)];
        Sample {
            factors: factors::<6>([all[0], all[1], own[0], own[1], own[2], own[3]]),
            repeat: 0,
            began: 0.0,
            measures: measures.map(|(k, v)| (k.to_string(), v)).into(),
            absent: [].into(),
            files: vec![],
        }
    }

    #[test]
    fn the_highest_rate_is_what_fills_the_machine_beside_the_tester() {
        let model = sample::model();
        let all = [
            ("encrypting", "256", "0", "ironswan", 100.0),
            ("encrypting", "256", "0.1%", "ironswan", 200.0),
            ("decrypting", "256", "0.001%", "ironswan-raw-3des-sha1", 150.0),
            ("encrypting", "256", "0", "ironswan workers=2", 1.0),
            ("both at once", "256", "0", "ironswan", 1.0),
            ("encrypting", "256", "0", "plain", 1.0),
        ];
        let found = rates(&model, &run(&model, &all)).expect("rates");
        assert_eq!(found.len(), 2, "{found:?}");
        let [gcm, des] = [&found[0], &found[1]];
        // 238 bytes: at the end of the curve 1,500, a quarter for each byte, 40 and a tenth of 240
        // for crypto.
        let ns = 1_500.0 + 238.0 * 0.25 + 40.0 + 24.0;
        assert_eq!((gcm.loss.as_str(), gcm.measured_pps, gcm.beside_ns), ("0.1%", 200_000.0, 3_000.0));
        assert!((gcm.predicted_ns - ns).abs() < 1e-6 && (gcm.ns_error - (ns / 5_000.0 - 1.0)).abs() < 1e-9);
        assert!((gcm.predicted_pps / (2e9 / (ns + 3_000.0)) - 1.0).abs() < 1e-6, "{gcm:?}");
        assert!((gcm.error - (gcm.predicted_pps / 200_000.0 - 1.0)).abs() < 1e-12);
        assert_eq!((des.suite.as_str(), des.path, des.way), ("3des-sha1", Path::Raw, Way::In));
    }

    #[test]
    fn the_highest_rate_is_found_where_a_lower_one_takes_more() {
        // 0.5 processors at 60,000 packets a second, 0.3 at 100,000, from there 3 us each.
        let ns = |pps: f64| Ok(if pps < 100_000.0 { 5e8 / pps } else { 3_000.0 });
        let found = highest(0.45, ns).expect("a rate");
        assert!((found - 150_000.0).abs() < 1.0, "{found}");
        let none = highest(1e-9, |_| Ok(1e12)).expect("a rate");
        assert!(none < 0.01, "{none}");
    }

    #[test]
    fn a_verification_has_rates_of_its_own_and_no_more_of_the_processors_than_were_busy() {
        let mut model = sample::model();
        let side = Side { pps: 200_000.0, ns: 5_000.0, calls: 0.1, burst: 20.0 };
        let seen = Seen { seconds: 0.3, packets: 60_000.0, into: side, machine_ns: 8_000.0, ..sample::EMPTY };
        let cell = Cell {
            mix: Mix::frames(256),
            offered: None,
            alone: Some(Way::In),
            seen: vec![seen],
            ..model.cells[0].clone()
        };
        let of = |model: &Model| own(model, &[model.cells[0].clone(), cell.clone()], "0.5%").expect("rates");
        let full = of(&model);
        assert_eq!((full.len(), full[0].way, full[0].busy_at_most), (1, Way::In, 1.0), "{full:?}");
        let ns = 1_500.0 + 238.0 * 0.25 + 40.0 + 24.0;
        assert!((full[0].predicted_pps / (2e9 / (ns + 3_000.0)) - 1.0).abs() < 1e-6, "{full:?}");
        assert_eq!(full[0].spread, None);
        // Three searches: their median, and how far they are apart.
        let found = [180_000.0, 210_000.0, 200_000.0];
        let found = found.map(|pps| Seen { into: Side { pps, ..side }, ..seen }).into();
        let [thrice] = &own(&model, &[Cell { seen: found, ..cell.clone() }], "0.5%").expect("rates")[..]
        else {
            panic!("one rate")
        };
        assert_eq!((thrice.measured_pps, thrice.spread), (200_000.0, Some(0.15)));
        // 60,000 x 8 us in 0.3 s: 1.6 of two processors. A search that ended early, by half of
        // that, says nothing.
        let early = cell.seen.iter().map(|s| Seen { packets: s.packets / 2.0, ..*s }).collect();
        model.cells.extend([cell.clone(), Cell { seen: early, ..cell.clone() }]);
        let less = of(&model);
        assert!((less[0].busy_at_most - 0.8).abs() < 1e-9, "{less:?}");
        assert!((less[0].predicted_pps / full[0].predicted_pps - 0.8).abs() < 1e-6, "{less:?}");
    }

    #[test]
    fn a_run_of_another_machine_or_another_experiment_is_refused() {
        let model = sample::model();
        let mut other = run(&model, &[("encrypting", "256", "0", "ironswan", 100.0)]);
        other.machine.cpus += 1;
        let e = rates(&model, &other).expect_err("another machine");
        assert!(e.to_string().contains("another machine") && e.exit_code() == 2, "{e}");
        let e = rates(&model, &run(&model, &[("both at once", "256", "0", "ironswan", 1.0)]));
        assert!(e.is_err_and(|e| e.to_string().contains("--topology single")));
    }
}
