//! Makes the doubts of a `line` run that no other experiment has, from its trials. Pure.

use std::time::Duration;

use super::LineOptions;
use super::trial::Trial;
use crate::experiment::campaign::Campaign;
use crate::report::Warning;
use crate::stats;
use crate::topology::Mode;

/// Raises everything about the run that a reader should doubt, beside what holds for any run.
pub(super) fn raise(o: &LineOptions, trials: &[Trial], campaign: &mut Campaign) {
    doubts(o, trials).into_iter().for_each(|doubt| campaign.doubt(doubt));
    campaign.trials_last(o.duration);
    let most = |share: &dyn Fn(&Trial) -> f64| trials.iter().map(share).fold(0.0, f64::max);
    campaign.disturbed_by(
        most(&|t| t.window.other_load_share),
        most(&|t| t.window.cpu.steal as f64 / t.window.cpu.total().max(1) as f64),
    );
}

fn doubts(o: &LineOptions, trials: &[Trial]) -> Vec<Warning> {
    let mut doubts = Vec::new();
    if o.duration < Duration::from_secs(2) {
        doubts.push(Warning::ShortWindow { seconds: o.duration.as_secs_f64() });
    }
    let backlog = trials.iter().map(|t| t.window.backlog_drops).sum();
    if backlog > 0 {
        doubts.push(Warning::BacklogDrops { packets: backlog });
    }
    for (nth, trial) in trials.iter().enumerate() {
        let same = |t: &&Trial| (&t.dut, t.load) == (&trial.dut, trial.load);
        // The first of a system under a load stands for all repeats of it.
        if !trials[..nth].iter().any(|t| same(&t)) {
            doubts.extend(of_repeats(o.inner_mtu, &trials.iter().filter(same).collect::<Vec<_>>()));
        }
    }
    doubts
}

/// Doubts about the repeats of one system under one load.
fn of_repeats(inner_mtu: u32, repeats: &[&Trial]) -> Vec<Warning> {
    let mut doubts = Vec::new();
    let Some(Trial { dut, load, .. }) = repeats.first() else { return doubts };
    let (dut, cell) = (dut.clone(), load.to_string());
    let median = |of: &dyn Fn(&Trial) -> f64| {
        stats::median(&repeats.iter().map(|t| of(t)).collect::<Vec<_>>()).unwrap_or(0.0)
    };
    let gbps = median(&|t| t.window.gbps);
    if let Some(rate) = load.rate_mbps.filter(|rate| gbps * 1e3 < 0.95 * f64::from(*rate)) {
        doubts.push(Warning::RateNotReached { dut: dut.clone(), cell: cell.clone(), rate_mbps: rate });
    }
    let unsteady = repeats.iter().filter(|t| !is_steady(t)).count();
    if unsteady > 0 {
        doubts.push(Warning::Unsteady { dut: dut.clone(), cell: cell.clone(), trials: unsteady });
    }
    let bytes_per_buffer = median(&|t| t.window.bytes_per_buffer);
    let odd = match load.mode {
        // A tunnel may deliver packet by packet; that is its own figure, and no doubt about the
        // links.
        Mode::Offload => dut == "plain" && bytes_per_buffer < 4.0 * f64::from(inner_mtu),
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
    use super::super::trial::tests::trial;
    use super::*;
    use crate::measure::Sample;

    /// Three repeats of plain forwarding and of a tunnel, each like the first.
    fn calm() -> Vec<Trial> {
        (0..3).flat_map(|_| [trial("plain", 10.0, 1.0), trial("ironswan", 6.0, 2.0)]).collect()
    }

    fn kinds(o: &LineOptions, trials: &[Trial]) -> Vec<&'static str> {
        doubts(o, trials).iter().map(Warning::kind).collect()
    }

    #[test]
    fn a_calm_run_has_no_doubt_and_each_doubt_has_its_cause() {
        let o = LineOptions::default();
        assert_eq!(kinds(&o, &calm()), [""; 0]);
        assert_eq!(
            kinds(&LineOptions { duration: Duration::from_secs(1), ..o.clone() }, &calm()),
            ["short-window"]
        );
        type Change = fn(&mut Trial);
        let cases: [(&str, Change); 4] = [
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
            ("backlog-drops", |t| t.window.backlog_drops = 1),
            ("offload-off", |t| t.window.bytes_per_buffer = 1414.0),
            ("rate-not-reached", |t| t.load.rate_mbps = Some(20_000)),
        ];
        for (kind, change) in cases {
            let mut trials = calm();
            trials.iter_mut().for_each(change);
            let found = kinds(&o, &trials);
            assert!(!found.is_empty() && found.iter().all(|k| *k == kind), "{kind} alone: {found:?}");
        }
    }

    #[test]
    fn a_rate_that_falls_by_half_within_the_window_is_unsteady() {
        let mut t = trial("plain", 10.0, 1.0);
        let at = |t: f64, bytes: u64| Sample { t, bytes, buffers: 1, busy_ticks: 1 };
        t.window.bytes = 3000;
        t.window.samples = vec![at(1.0, 1500), at(2.0, 3000)];
        assert!(is_steady(&t));
        t.window.samples = vec![at(1.0, 2000), at(2.0, 3000)];
        assert!(!is_steady(&t));
    }
}
