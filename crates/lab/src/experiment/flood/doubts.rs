//! Makes the doubts of a flood that no other experiment has, from its trials. Pure.

use std::time::Duration;

use super::FloodOptions;
use super::conclude::PLAIN;
use super::trial::{Purpose, Series, Trial};
use crate::experiment::alone;
use crate::experiment::campaign::Campaign;
use crate::report::{Warning, percent};

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
    let all = Series::of(trials);
    for series in all.iter().filter(|series| !series.is_tester()) {
        list.extend(of_series(o, series));
        list.extend(withheld(o, series, Series::tester(&all, series.load)));
    }
    list
}

/// Says for which losses plain forwarding is withheld from comparison.
fn withheld(o: &FloodOptions, series: &Series<'_>, tester: Option<&Series<'_>>) -> Option<Warning> {
    let is_limited = |goal: &f64| alone::is_limited(&series.beside(tester, Some(*goal), o.width));
    let goals: Vec<f64> = o.goals.iter().copied().filter(is_limited).collect();
    let carried = tester.and_then(|t| t.throughput(*goals.first()?));
    let losses: Vec<String> = goals.iter().map(|goal| percent(*goal)).collect();
    let withheld = alone::withheld(&losses, carried, series.dut, &series.load.to_string());
    withheld.filter(|_| series.dut == PLAIN)
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
        let failed = series.failed_above(goal, pps).and_then(|t| t.offered_pps);
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
    if late > 0 || o.goals.iter().any(|goal| series.is_limited(*goal, o.width)) {
        list.push(Warning::TesterLimited { dut: dut(), cell: cell(), trials: late });
    }
    let share = |t: &&Trial| t.account.unexplained.unsigned_abs() as f64 / t.account.sent.max(1) as f64;
    let share = series.trials.iter().map(share).fold(0.0, f64::max);
    if series.dut.starts_with("ironswan") && share > 0.001 {
        list.push(Warning::Unexplained { dut: dut(), cell: cell(), share });
    }
    list
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
            // Nothing is compared with it then.
            let limited = ["tester-limited", "withheld"];
            assert_eq!(kinds(&options(), &trials) == limited, expected, "{times}");
        }
        // The short trial above the result failed: by what the generator left out, or by what the
        // system lost.
        for (arrived, expected) in [(900, true), (800, false)] {
            let mut trials = calm("plain");
            let probe = &mut trials[2];
            (probe.sent.intended, probe.sent.sent, probe.sent.unsent) = (1000, 900, 100);
            (probe.received.unique, probe.loss) = (arrived, 1.0 - arrived as f64 / 1000.0);
            let limited = ["tester-limited", "withheld"];
            assert_eq!(kinds(&options(), &trials) == limited, expected, "{arrived}");
        }
    }

    #[test]
    fn a_baseline_near_what_the_tester_carries_alone_is_withheld_and_the_tester_is_not_doubted() {
        for (times, expected) in [(1.05, true), (1.2, false)] {
            let mut tester = calm(alone::NAME);
            tester[1].offered_pps = Some(1e5 * times);
            // Whatever the tester alone cannot do is no doubt of its own.
            tester[1].account.unexplained = 7;
            let trials = [tester, calm("plain"), calm("ironswan")].concat();
            let list = doubts(&options(), &trials);
            assert_eq!(list.iter().map(Warning::kind).eq(["withheld"]), expected, "{times}: {list:?}");
            let said: Vec<String> = list.iter().map(Warning::text).collect();
            assert!(
                said.iter().all(|t| t.starts_with("plain, ") && t.contains("carries 105.0 kpps")),
                "{said:?}"
            );
        }
    }
}
