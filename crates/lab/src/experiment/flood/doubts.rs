//! Makes the doubts of a flood that no other experiment has, from its trials. Pure.

use std::time::Duration;

use super::FloodOptions;
use super::trial::{Purpose, Series, Trial};
use crate::experiment::campaign::Campaign;
use crate::report::Warning;

/// Raises everything about the run that a reader should doubt, beside what holds for any run.
pub(super) fn raise(o: &FloodOptions, trials: &[Trial], campaign: &mut Campaign) {
    doubts(o, trials).into_iter().for_each(|doubt| campaign.doubt(doubt));
    let most = |share: &dyn Fn(&Trial) -> f64| trials.iter().map(share).fold(0.0, f64::max);
    let decide = trials.iter().filter(|t| t.purpose == Purpose::Decide);
    decide.for_each(|t| campaign.trials_last(Duration::from_secs_f64(t.sent.seconds.max(0.0))));
    campaign.disturbed_by(most(&|t| t.cost.other_load_share), most(&|t| t.cost.stolen_share));
}

fn doubts(o: &FloodOptions, trials: &[Trial]) -> Vec<Warning> {
    let mut list = Vec::new();
    // The number of packets that was asked for, or fewer when a trial was cut short.
    let decide = trials.iter().filter(|t| t.purpose == Purpose::Decide);
    let packets = decide.map(|t| t.sent.intended).min().unwrap_or(o.packets);
    if packets < 1_000_000 {
        list.push(Warning::FewPackets { packets });
    }
    Series::of(trials).iter().for_each(|series| list.extend(of_series(o, series)));
    list
}

/// Doubts about one system under one load.
fn of_series(o: &FloodOptions, series: &Series<'_>) -> Vec<Warning> {
    let mut list = Vec::new();
    let (dut, cell) = (|| series.dut.to_string(), || series.load.to_string());
    for goal in o.goals.iter().copied() {
        let Some(pps) = series.throughput(goal) else {
            list.push(Warning::NoThroughput { dut: dut(), cell: cell(), goal, least: None });
            continue;
        };
        let failed = failed_above(series, goal, pps).and_then(|t| t.offered_pps);
        // Some steps are the width of the upper rate. Rates are computed from one another.
        if let Some(failed) = failed.filter(|failed| failed * (1.0 - o.width) > pps * 1.000_001) {
            list.push(Warning::WideSearch { dut: dut(), cell: cell(), goal, pps, failed });
        }
    }
    // The rate was held, but for what the generator itself left out.
    let late = series
        .trials
        .iter()
        .filter(|t| t.purpose == Purpose::Decide)
        .filter(|t| t.sent.unsent as f64 > t.goal.unwrap_or(0.0) * t.sent.intended as f64)
        .count();
    if late > 0 || o.goals.iter().any(|goal| is_all_that_was_sent(series, *goal, o.width)) {
        list.push(Warning::TesterLimited { dut: dut(), cell: cell(), trials: late });
    }
    let share = |t: &&Trial| t.account.unexplained.unsigned_abs() as f64 / t.account.sent.max(1) as f64;
    let share = series.trials.iter().map(share).fold(0.0, f64::max);
    if series.dut.starts_with("ironswan") && share > 0.001 {
        list.push(Warning::Unexplained { dut: dut(), cell: cell(), share });
    }
    list
}

/// The failed trial with the lowest rate above this throughput, among the trials of its search.
fn failed_above<'a>(series: &Series<'a>, goal: f64, pps: f64) -> Option<&'a Trial> {
    let failed = series.trials.iter().copied().filter(|t| t.goal == Some(goal) && t.loss > goal);
    let above = failed.filter_map(|t| t.offered_pps.filter(|rate| *rate > pps).map(|rate| (rate, t)));
    above.min_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, t)| t)
}

/// Whether the generator's own maximum ended the search among these trials: the result is what it
/// sends at most, or nothing but packets that it left out made the next higher rate fail.
fn is_all_that_was_sent(series: &Series<'_>, goal: f64, width: f64) -> bool {
    let Some(pps) = series.throughput(goal) else { return false };
    let flood = series.trials.iter().rfind(|t| t.purpose == Purpose::Flood);
    let most = flood.map_or(f64::INFINITY, |t| t.sent_pps());
    let lost = |t: &Trial| t.sent.sent.saturating_sub(t.received.unique) as f64;
    let by_generator = |t: &Trial| lost(t) <= goal * t.sent.intended as f64;
    pps >= most * (1.0 - width) || failed_above(series, goal, pps).is_some_and(by_generator)
}

#[cfg(test)]
mod tests {
    use super::super::trial::tests::trial;
    use super::*;

    const GOAL: f64 = 0.005;

    fn options() -> FloodOptions {
        FloodOptions { goals: vec![GOAL], ..FloodOptions::default() }
    }

    /// A search of `dut` that carried 100,000 packets/s and lost at 104,000, decided by a million
    /// packets, and a flood of twice as many: nothing to doubt.
    fn calm(dut: &str) -> Vec<Trial> {
        let of = |purpose, offered: Option<f64>, lost: u64| {
            let mut t = trial(dut, None, 1_000_000, 1_000_000 - lost);
            (t.purpose, t.goal, t.offered_pps) = (purpose, offered.map(|_| GOAL), offered);
            (t.sent.intended, t.sent.unsent, t.loss) = (1_000_000, 0, lost as f64 / 1e6);
            t.sent.seconds = 1e6 / offered.unwrap_or(2e5);
            t.account.unexplained = 0;
            t
        };
        vec![
            of(Purpose::Flood, None, 500_000),
            of(Purpose::Decide, Some(1e5), 0),
            of(Purpose::Probe, Some(1.04e5), 100_000),
        ]
    }

    fn kinds(o: &FloodOptions, trials: &[Trial]) -> Vec<&'static str> {
        doubts(o, trials).iter().map(Warning::kind).collect()
    }

    #[test]
    fn a_calm_flood_has_no_doubt_and_each_doubt_has_its_cause() {
        let both = || [calm("plain"), calm("ironswan")].concat();
        assert_eq!(kinds(&options(), &both()), [""; 0]);
        type Change = fn(&mut Vec<Trial>);
        let cases: [(&str, Change); 5] = [
            // A million were asked for.
            ("few-packets", |t| t[1].sent.intended = 5000),
            ("no-throughput", |t| t[1].loss = 0.5),
            ("tester-limited", |t| t[1].sent.unsent = t[1].sent.intended),
            // Above the throughput everything fails by far: rates in between were never tried.
            ("wide-search", |t| t[2].offered_pps = Some(2e5)),
            ("unexplained-loss", |t| t[4].account.unexplained = t[4].account.sent as i64 / 10),
        ];
        for (kind, change) in cases {
            let mut trials = both();
            change(&mut trials);
            assert_eq!(kinds(&options(), &trials), [kind]);
        }
    }

    #[test]
    fn a_throughput_that_is_the_generator_s_own_is_doubted() {
        // A flood that was no faster, or by less than the width of a result; and one that was much
        // faster.
        for (times, expected) in [(1.0, true), (1.02, true), (2.0, false)] {
            let mut trials = calm("plain");
            trials[0].sent.seconds = 1e6 / (1e5 * times);
            assert_eq!(kinds(&options(), &trials) == ["tester-limited"], expected, "{times}");
        }
        // The short trial above the result failed: by what the generator left out, or by what the
        // system lost.
        for (arrived, expected) in [(900, true), (800, false)] {
            let mut trials = calm("plain");
            let probe = &mut trials[2];
            (probe.sent.intended, probe.sent.sent, probe.sent.unsent) = (1000, 900, 100);
            (probe.received.unique, probe.loss) = (arrived, 1.0 - arrived as f64 / 1000.0);
            assert_eq!(kinds(&options(), &trials) == ["tester-limited"], expected, "{arrived}");
        }
    }
}
