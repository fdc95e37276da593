//! Makes the warnings of a run for its reader, from the record alone. Pure.

use std::time::Duration;

use super::general_doubts::Facts;
use super::line::LineOptions;
use crate::machine::Fingerprint;
use crate::measure::Seen;
use crate::report::{CellKey, NOISE, Results, Row, Trial, Warning};
use crate::topology::Mode;

/// Everything about the run that a reader should doubt.
pub(super) fn doubts(
    o: &LineOptions,
    machine: &Fingerprint,
    trials: &[Trial],
    results: &Results,
    seen: Seen,
) -> Vec<Warning> {
    let most = |f: &dyn Fn(&Trial) -> f64| trials.iter().map(f).fold(0.0, f64::max);
    let facts = Facts {
        smoke: o.smoke,
        machine,
        systems: trials.iter().map(|t| t.dut.as_str()).collect(),
        options: &o.dut_options,
        repeats: o.repeats,
        against_plain: true,
        // Only what other programs did within the windows counts.
        seen: Seen {
            others: most(&|t| t.window.other_load_share),
            stolen: most(&|t| t.window.cpu.steal as f64 / t.window.cpu.total().max(1) as f64),
            ..seen
        },
    };
    let mut doubts = facts.doubts();
    if o.duration < Duration::from_secs(2) {
        doubts.push(Warning::ShortWindow { seconds: o.duration.as_secs_f64() });
    }
    let backlog = trials.iter().map(|t| t.window.backlog_drops).sum();
    if backlog > 0 {
        doubts.push(Warning::BacklogDrops { packets: backlog });
    }
    for cell in &results.cells {
        for row in &cell.rows {
            doubts.extend(row_doubts(o.inner_mtu, cell.key, row, trials));
        }
    }
    doubts
}

fn row_doubts(inner_mtu: u32, key: CellKey, row: &Row, trials: &[Trial]) -> Vec<Warning> {
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
        // A tunnel may deliver packet by packet; that is its own figure, and no doubt about the
        // links.
        Mode::Offload => row.dut == "plain" && bytes_per_buffer < 4.0 * f64::from(inner_mtu),
        // Acknowledgements make the mean smaller, never larger than a packet with its Ethernet
        // header.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::measure::Sample;
    use crate::report::sample;

    fn kinds(change: impl Fn(&mut Vec<Trial>), options: &LineOptions) -> Vec<&'static str> {
        kinds_seen(change, options, Seen::default())
    }

    fn kinds_seen(change: impl Fn(&mut Vec<Trial>), options: &LineOptions, seen: Seen) -> Vec<&'static str> {
        let mut run = sample::run();
        (run.machine.cpus, run.machine.governor) = (64, None);
        run.machine.clocksource = Some("tsc".into());
        change(&mut run.trials);
        let results = Results::of(&run.trials, None);
        doubts(options, &run.machine, &run.trials, &results, seen).iter().map(Warning::kind).collect()
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
    fn what_was_seen_of_the_machine_and_a_smoke_run_are_said() {
        let seen = |seen| kinds_seen(|t| calm(t), &quiet(), seen);
        assert_eq!(seen(Seen { quota: Duration::from_secs(1), ..Seen::default() }), ["throttled"]);
        assert_eq!(seen(Seen { mhz: Some((2000.0, 3000.0)), ..Seen::default() }), ["frequency-scaling"]);
        // Outside of the windows nothing disturbs.
        assert_eq!(seen(Seen { others: 0.5, stolen: 0.5, ..Seen::default() }), [""; 0]);
        assert_eq!(kinds(|t| calm(t), &LineOptions { smoke: true, ..quiet() }), ["smoke"]);
    }

    #[test]
    fn each_doubt_has_its_cause() {
        type Change = fn(&mut Trial);
        let cases: [(&str, Change); 7] = [
            // Two thirds of it in the first half.
            ("unsteady", |t| {
                let half = Sample {
                    t: t.window.seconds / 2.0,
                    bytes: t.window.bytes / 3 * 2,
                    buffers: 1,
                    busy_ticks: 1,
                };
                t.window.samples = vec![half];
            }),
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
        assert_eq!(found, ["debug-build", "few-repeats", "no-plain", "short-window"]);
    }
}
