//! Makes the warnings of a flood run for its reader. Pure.

use super::general_doubts::Facts;
use crate::dut::DutOptions;
use crate::measure::Seen;
use crate::report::Warning;
use crate::report::flood::{FloodRun, FloodTrial, Purpose, Throughput};

/// Warnings of a whole run; `seen` is the load of the machine that other programs made meanwhile.
pub(super) fn doubts(run: &FloodRun, smoke: bool, dut_options: &DutOptions, seen: Seen) -> Vec<Warning> {
    let most = |f: &dyn Fn(&FloodTrial) -> f64| run.trials.iter().map(f).fold(0.0, f64::max);
    let facts = Facts {
        smoke,
        machine: &run.machine,
        systems: run.trials.iter().map(|t| t.dut.as_str()).collect(),
        options: dut_options,
        repeats: run.settings.repeats,
        against_plain: true,
        // Only what other programs did within the trials counts.
        seen: Seen {
            others: most(&|t| t.cost.other_load_share),
            stolen: most(&|t| t.cost.stolen_share),
            ..seen
        },
    };
    let mut list = facts.doubts();
    // The number of packets that was asked for, or fewer when a trial was cut short.
    let decide = run.trials.iter().filter(|t| t.purpose == Purpose::Decide);
    let packets = decide.map(|t| t.sent.intended).min().unwrap_or(run.settings.packets);
    if packets < 1_000_000 {
        list.push(Warning::FewPackets { packets });
    }
    for cell in &run.results.cells {
        for row in &cell.rows {
            let (dut, name) = (row.dut.clone(), cell.key.to_string());
            for t in row.throughput.iter().filter(|t| t.pps.is_none()) {
                list.push(Warning::NoThroughput {
                    dut: dut.clone(),
                    cell: name.clone(),
                    goal: t.goal,
                    least: None,
                });
            }
            let own = || run.trials.iter().filter(|t| t.cell == cell.key && t.dut == row.dut);
            list.extend(row.throughput.iter().filter_map(|t| {
                let (pps, failed) = (t.pps?, failed_above(t, own())?.offered_pps?);
                // Some steps are the width of the upper rate. Rates are computed from one another.
                let wide = failed * (1.0 - run.settings.width) > pps * 1.000_001;
                let (dut, cell) = (dut.clone(), name.clone());
                wide.then_some(Warning::WideSearch { dut, cell, goal: t.goal, pps, failed })
            }));
            // The rate was held, but for what the generator itself left out.
            let late = own()
                .filter(|t| t.purpose == Purpose::Decide)
                .filter(|t| t.sent.unsent as f64 > t.goal.unwrap_or(0.0) * t.sent.intended as f64)
                .count();
            let most = || row.throughput.iter().any(|t| is_all_that_was_sent(t, own(), run.settings.width));
            if late > 0 || most() {
                list.push(Warning::TesterLimited { dut: dut.clone(), cell: name.clone(), trials: late });
            }
            let unexplained = own()
                .map(|t| t.account.unexplained.unsigned_abs() as f64 / t.account.sent.max(1) as f64)
                .fold(0.0, f64::max);
            if row.dut.starts_with("ironswan") && unexplained > 0.001 {
                list.push(Warning::Unexplained { dut, cell: name, share: unexplained });
            }
        }
    }
    list
}

/// The failed trial with the lowest rate above this throughput, among the trials of its search.
fn failed_above<'a>(
    found: &Throughput,
    trials: impl Iterator<Item = &'a FloodTrial>,
) -> Option<&'a FloodTrial> {
    let pps = found.pps?;
    let failed = trials.filter(|t| t.goal == Some(found.goal) && t.loss > found.goal);
    let above = failed.filter_map(|t| t.offered_pps.filter(|rate| *rate > pps).map(|rate| (rate, t)));
    above.min_by(|(a, _), (b, _)| a.total_cmp(b)).map(|(_, t)| t)
}

/// Whether the generator's own maximum ended the search among these trials: the result is what it
/// sends at most, or nothing but packets that it left out made the next higher rate fail.
fn is_all_that_was_sent<'a>(
    found: &Throughput,
    trials: impl Iterator<Item = &'a FloodTrial> + Clone,
    width: f64,
) -> bool {
    let Some(pps) = found.pps else { return false };
    let flood = trials.clone().filter(|t| t.purpose == Purpose::Flood).last();
    let most = flood.map_or(f64::INFINITY, |t| t.sent.sent as f64 / t.sent.seconds.max(1e-9));
    let lost = |t: &FloodTrial| t.sent.sent.saturating_sub(t.received.unique) as f64;
    let by_generator = |t: &FloodTrial| lost(t) <= found.goal * t.sent.intended as f64;
    pps >= most * (1.0 - width) || failed_above(found, trials).is_some_and(by_generator)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A stored run of plain, ironswan and wireguard-go, made quiet, large and thorough.
    fn calm() -> FloodRun {
        let mut run: FloodRun =
            serde_json::from_str(include_str!("../../tests/runs/flood/run.json")).expect("a run");
        (run.settings.repeats, run.settings.packets, run.machine.cpus) = (3, 1_000_000, 64);
        (run.machine.clocksource, run.machine.governor) = (Some("tsc".into()), None);
        for t in &mut run.trials {
            (t.cost.other_load_share, t.cost.stolen_share) = (0.0, 0.0);
            (t.sent.unsent, t.account.unexplained) = (0, 0);
            if t.purpose == Purpose::Decide {
                t.sent.intended = 1_000_000;
            }
            t.sent.sent = t.sent.intended;
        }
        run
    }

    fn kinds(change: impl Fn(&mut FloodRun)) -> Vec<&'static str> {
        let mut run = calm();
        change(&mut run);
        let options = DutOptions { ironswan: Some("/usr/bin/ironswan".into()), ..DutOptions::default() };
        doubts(&run, false, &options, Seen::default()).iter().map(Warning::kind).collect()
    }

    #[test]
    fn a_calm_flood_has_no_doubt_and_each_doubt_has_its_cause() {
        assert_eq!(kinds(|_| {}), [""; 0]);
        type Change = fn(&mut FloodRun);
        let cases: [(&str, Change); 11] = [
            ("few-repeats", |r| r.settings.repeats = 1),
            ("few-packets", |r| {
                // A million were asked for.
                let decide = r.trials.iter_mut().find(|t| t.purpose == Purpose::Decide).expect("a trial");
                decide.sent.intended = 5000;
            }),
            ("no-plain", |r| {
                r.trials.retain(|t| t.dut != "plain");
                r.results.cells.iter_mut().for_each(|c| c.rows.retain(|row| row.dut != "plain"));
            }),
            ("shared-cores", |r| r.machine.cpus = 2),
            ("clock-unstable", |r| r.machine.clocksource = Some("hpet".into())),
            ("other-load", |r| r.trials[0].cost.other_load_share = 0.1),
            ("stolen-time", |r| r.trials[0].cost.stolen_share = 0.1),
            ("no-throughput", |r| r.results.cells[0].rows[0].throughput[0].pps = None),
            ("tester-limited", |r| {
                let decide = r.trials.iter_mut().find(|t| t.purpose == Purpose::Decide).expect("a trial");
                decide.sent.unsent = decide.sent.intended;
            }),
            ("wide-search", |r| {
                // Above the throughput everything fails by far: what did at less was never tried.
                let row = &r.results.cells[0].rows[1];
                let (dut, goal) = (row.dut.clone(), Some(row.throughput[0].goal));
                let pps = row.throughput[0].pps.expect("a throughput");
                let above = |t: &&mut FloodTrial| t.offered_pps.is_some_and(|o| o > pps) && t.goal == goal;
                for t in r.trials.iter_mut().filter(|t| t.dut == dut).filter(above) {
                    t.offered_pps = t.offered_pps.map(|o| o * 2.0);
                }
            }),
            ("unexplained-loss", |r| {
                let ours = r.trials.iter_mut().find(|t| t.dut == "ironswan").expect("a trial");
                ours.account.unexplained = ours.account.sent as i64 / 10;
            }),
        ];
        for (kind, change) in cases {
            assert_eq!(kinds(change), [kind]);
        }
    }

    #[test]
    fn a_throughput_that_is_the_generator_s_own_is_doubted() {
        let limited = |change: &dyn Fn(&mut FloodRun)| kinds(change) == ["tester-limited"];
        // A flood that was no faster, or by less than the width of a result; and one that was much
        // faster.
        for (times, expected) in [(1.0, true), (1.02, true), (2.0, false)] {
            let flood = |r: &mut FloodRun| {
                let row = &r.results.cells[0].rows[0];
                let pps = row.throughput.iter().filter_map(|t| t.pps).fold(0.0, f64::max) * times;
                let mut flood = r.trials.iter().find(|t| t.dut == row.dut).cloned().expect("a trial");
                (flood.purpose, flood.goal, flood.offered_pps) = (Purpose::Flood, None, None);
                (flood.sent.sent, flood.sent.seconds) = (pps as u64, 1.0);
                r.trials.push(flood);
            };
            assert_eq!(limited(&flood), expected, "{times}");
        }
        // The short trial above the result failed: by what the generator left out, or by what the
        // system lost.
        for (arrived, expected) in [(900, true), (800, false)] {
            let probe = |r: &mut FloodRun| {
                let row = &r.results.cells[0].rows[0];
                let (goal, pps) = (row.throughput[0].goal, row.throughput[0].pps.expect("a throughput"));
                let mut probe = r.trials.iter().find(|t| t.dut == row.dut).cloned().expect("a trial");
                (probe.purpose, probe.goal, probe.offered_pps) =
                    (Purpose::Probe, Some(goal), Some(pps * 1.1));
                (probe.sent.intended, probe.sent.sent, probe.sent.unsent) = (1000, 900, 100);
                (probe.received.unique, probe.loss) = (arrived, 1.0 - arrived as f64 / 1000.0);
                r.trials.push(probe);
            };
            assert_eq!(limited(&probe), expected, "{arrived}");
        }
    }

    #[test]
    fn a_debug_build_is_said_where_ironswan_was_measured() {
        let options = DutOptions { ironswan: Some("/x/debug/ironswan".into()), ..DutOptions::default() };
        let own = |run: &FloodRun| doubts(run, false, &options, Seen::default());
        assert_eq!(own(&calm()), [Warning::DebugBuild]);
        let mut run = calm();
        run.trials.retain(|t| t.dut == "plain");
        assert_eq!(own(&run), []);
        let throttled = Seen { quota: std::time::Duration::from_secs(1), ..Seen::default() };
        let found = doubts(&run, true, &options, throttled);
        assert_eq!(found.iter().map(Warning::kind).collect::<Vec<_>>(), ["smoke", "throttled"]);
    }
}
