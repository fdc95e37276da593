//! What a reader of a run should doubt: from its record to its warnings. Pure.

use std::path::Path;
use std::time::Duration;

use super::line::LineOptions;
use crate::machine::Fingerprint;
use crate::report::{CellKey, Results, Row, Trial, Warning};
use crate::topology::Mode;

/// Everything about the run that a reader should doubt.
pub(super) fn doubts(
    o: &LineOptions,
    machine: &Fingerprint,
    trials: &[Trial],
    results: &Results,
) -> Vec<Warning> {
    let mut doubts = Vec::new();
    let debug = match &o.dut_options.ironswan {
        None => cfg!(debug_assertions),
        Some(program) => is_debug_path(program),
    };
    if debug && trials.iter().any(|t| t.dut.starts_with("ironswan")) {
        doubts.push(Warning::DebugBuild);
    }
    if o.duration < Duration::from_secs(2) {
        doubts.push(Warning::ShortWindow { seconds: o.duration.as_secs_f64() });
    }
    if o.repeats < 3 {
        doubts.push(Warning::FewRepeats { repeats: o.repeats });
    }
    if machine.cpus < 8 {
        doubts.push(Warning::SharedCores { cpus: machine.cpus });
    }
    if let Some(source) = machine.clocksource.as_deref().filter(|c| !["tsc", "arch_sys_counter"].contains(c))
    {
        doubts.push(Warning::ClockUnstable { clocksource: source.into() });
    }
    let most = |f: &dyn Fn(&Trial) -> f64| trials.iter().map(f).fold(0.0, f64::max);
    let other = most(&|t| t.window.other_load_share);
    if other > 0.03 {
        doubts.push(Warning::OtherLoad { share: other });
    }
    let stolen = most(&|t| t.window.cpu.steal as f64 / t.window.cpu.total().max(1) as f64);
    if stolen > 0.02 {
        doubts.push(Warning::Stolen { share: stolen });
    }
    let backlog = trials.iter().map(|t| t.window.backlog_drops).sum();
    if backlog > 0 {
        doubts.push(Warning::BacklogDrops { packets: backlog });
    }
    if !results.cells.iter().any(|c| c.row("plain").is_some()) {
        doubts.push(Warning::NoPlain);
    }
    for cell in &results.cells {
        for row in &cell.rows {
            doubts.extend(row_doubts(o.inner_mtu, cell.key, row, trials));
        }
    }
    doubts
}

fn row_doubts(inner_mtu: u32, key: CellKey, row: &Row, trials: &[Trial]) -> Vec<Warning> {
    /// Range over median from which a cell is called noisy.
    const NOISE: f64 = 0.2;
    let mut doubts = Vec::new();
    let (dut, cell) = (row.dut.clone(), key.to_string());
    let (gbps, cost) = (row.gbps.relative_range(), row.machine_ns_per_byte.relative_range());
    if gbps.max(cost) > NOISE {
        doubts.push(Warning::NoisyRepeats { dut: dut.clone(), cell: cell.clone(), gbps, cost });
    }
    if let Some(rate) = key.rate_mbps.filter(|rate| row.gbps.median * 1e3 < 0.95 * f64::from(*rate)) {
        doubts.push(Warning::RateNotReached { dut: dut.clone(), cell: cell.clone(), rate_mbps: rate });
    }
    let unsteady = trials.iter().filter(|t| t.dut == row.dut && t.cell == key && !is_steady(t)).count();
    if unsteady > 0 {
        doubts.push(Warning::Unsteady { dut: dut.clone(), cell: cell.clone(), trials: unsteady });
    }
    let bytes_per_buffer = row.bytes_per_buffer.median;
    let odd = match key.mode {
        // A tunnel may deliver packet by packet; that is its own figure, and no doubt about the links.
        Mode::Offload => row.dut == "plain" && bytes_per_buffer < 4.0 * f64::from(inner_mtu),
        // Acknowledgements make the mean smaller, never larger than a packet with its Ethernet header.
        Mode::Wire => bytes_per_buffer > f64::from(inner_mtu + 18),
    };
    if odd {
        doubts.push(Warning::OffloadOff { dut, cell, bytes_per_buffer });
    }
    doubts
}

/// The halves of a window carried about the same.
fn is_steady(trial: &Trial) -> bool {
    let w = &trial.window;
    let Some(middle) = w.samples.iter().find(|s| s.t >= w.seconds / 2.0 - 0.01) else { return true };
    let (first, second) =
        (middle.bytes as f64 / middle.t, (w.bytes - middle.bytes) as f64 / (w.seconds - middle.t));
    // A window of one sample has no second half.
    !second.is_finite() || (second / first - 1.0).abs() <= 0.25
}

/// Cargo builds without optimisation into a folder of this name.
fn is_debug_path(program: &Path) -> bool {
    program.components().any(|c| c.as_os_str() == "debug")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Sample;
    use crate::report::sample;

    fn kinds(change: impl Fn(&mut Vec<Trial>), options: &LineOptions) -> Vec<&'static str> {
        let mut run = sample::run();
        run.machine.cpus = 64;
        run.machine.clocksource = Some("tsc".into());
        change(&mut run.trials);
        let results = Results::of(&run.trials, None);
        doubts(options, &run.machine, &run.trials, &results).iter().map(Warning::kind).collect()
    }

    fn quiet() -> LineOptions {
        LineOptions {
            dut_options: crate::dut::DutOptions {
                ironswan: Some("/usr/bin/ironswan".into()),
                ..Default::default()
            },
            ..LineOptions::default()
        }
    }

    /// Every trial of a system like its first.
    fn calm(trials: &mut [Trial]) {
        for t in trials {
            t.window.gbps = if t.dut == "plain" { 10.0 } else { 6.0 };
        }
    }

    #[test]
    fn a_calm_run_on_a_large_machine_has_no_warning() {
        assert_eq!(kinds(|t| calm(t), &quiet()), Vec::<&str>::new());
    }

    #[test]
    fn each_doubt_has_its_cause() {
        type Change = fn(&mut Trial);
        let cases: [(&str, Change); 6] = [
            ("other-load", |t| t.window.other_load_share = 0.1),
            ("stolen-time", |t| (t.window.cpu.steal, t.window.cpu.idle) = (10, 90)),
            ("backlog-drops", |t| t.window.backlog_drops = 1),
            ("offload-off", |t| t.window.bytes_per_buffer = 1414.0),
            ("rate-not-reached", |t| t.cell.rate_mbps = Some(20_000)),
            ("noisy-repeats", |t| t.window.machine_ns_per_byte *= 1.0 + f64::from(t.repeat)),
        ];
        for (kind, change) in cases {
            let found = kinds(
                |trials| {
                    calm(trials);
                    trials.iter_mut().for_each(change);
                },
                &quiet(),
            );
            assert!(found.contains(&kind), "{kind}: {found:?}");
            assert!(found.iter().all(|k| *k == kind), "{kind} alone: {found:?}");
        }
    }

    #[test]
    fn a_rate_that_falls_by_half_within_the_window_is_unsteady() {
        let mut t = sample::run().trials.remove(0);
        let at = |t: f64, bytes: u64| Sample { t, bytes, buffers: 1, busy_ticks: 1 };
        t.window.bytes = 3000;
        t.window.samples = vec![at(1.0, 1500), at(2.0, 3000)];
        assert!(is_steady(&t));
        t.window.samples = vec![at(1.0, 2000), at(2.0, 3000)];
        assert!(!is_steady(&t));
    }

    #[test]
    fn a_debug_build_few_repeats_and_no_plain_are_said() {
        let o = LineOptions {
            dut_options: crate::dut::DutOptions {
                ironswan: Some("/x/target/debug/ironswan".into()),
                ..Default::default()
            },
            repeats: 2,
            duration: Duration::from_secs(1),
            ..LineOptions::default()
        };
        let found = kinds(
            |t| {
                calm(t);
                t.retain(|t| t.dut != "plain");
            },
            &o,
        );
        assert_eq!(found, ["debug-build", "short-window", "few-repeats", "no-plain"]);
    }
}
