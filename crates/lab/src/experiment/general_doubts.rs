//! Makes the warnings that any experiment can have, from its record and from what the machine did
//! meanwhile. Pure.

use std::path::Path;
use std::time::Duration;

use super::campaign::Common;
use crate::dut::{DutOptions, LIBIPSEC, XFRM};
use crate::machine::Fingerprint;
use crate::measure::Seen;
use crate::record::{Better, Columns, Figure, Record, View, factors_text};
use crate::report::{NOISE, Warning};

/// Fewest repeats of figures that are published, and the shortest of their trials.
pub(super) const FEWEST_REPEATS: u32 = 5;
const SHORTEST_TRIAL: Duration = Duration::from_secs(10);

/// The doubt that trials are shorter than those of published figures.
pub(super) fn short_trials(shortest: Option<Duration>) -> Option<Warning> {
    let short = shortest.filter(|length| *length < SHORTEST_TRIAL)?;
    Some(Warning::ShortTrials { seconds: short.as_secs_f64() })
}

/// Everything that holds for all experiments; `record` has its figures and views, `systems` are
/// those that were measured beside those that its samples name, each in boxes on this machine.
pub(super) fn doubts(record: &Record, systems: &[String], common: &Common, seen: &Seen) -> Vec<Warning> {
    let mut all: Vec<&str> = systems.iter().map(String::as_str).collect();
    all.extend(record.samples.iter().filter_map(|s| Some(s.factors.get("dut")?.as_str())));
    let mut list = Vec::new();
    if common.smoke {
        list.push(Warning::Smoke);
    }
    if all.iter().any(|d| d.starts_with("ironswan")) && is_debug(&common.dut_options) {
        list.push(Warning::DebugBuild);
    }
    if !all.is_empty() && record.machine.cpus < 8 {
        list.push(Warning::SharedCores { cpus: record.machine.cpus });
    }
    let repeats = record.samples.iter().map(|s| s.repeat + 1).max().unwrap_or(0);
    if (1..FEWEST_REPEATS).contains(&repeats) {
        list.push(Warning::FewRepeats { repeats });
    }
    let against_plain =
        record.baseline.as_ref().is_some_and(|b| (b.factor.as_str(), b.value.as_str()) == ("dut", "plain"));
    if against_plain && !all.is_empty() && !all.contains(&"plain") {
        list.push(Warning::NoPlain);
    }
    let measured = |system: &str| all.iter().any(|dut| dut.starts_with(system));
    if measured(LIBIPSEC) && !measured(XFRM) {
        list.push(Warning::LibipsecAlone { measured: LIBIPSEC, usual: XFRM });
    }
    let short = |figure: &&Figure| !figure.absent.is_empty();
    let (figures, of) = (record.figures.iter().filter(short).count(), record.figures.len());
    if let Some(first) = record.figures.iter().find(short) {
        list.push(Warning::TooShort { figures, of, first: factors_text(first) });
    }
    list.extend(machine(&record.machine, seen));
    list.extend(noise(record));
    list
}

/// Doubts about the machine.
pub(super) fn machine(machine: &Fingerprint, seen: &Seen) -> Vec<Warning> {
    let mut list: Vec<Warning> = clock_doubt(machine).into_iter().collect();
    if seen.others > 0.03 {
        list.push(Warning::OtherLoad { share: seen.others });
    }
    if seen.stolen > 0.02 {
        list.push(Warning::Stolen { share: seen.stolen });
    }
    if seen.quota > Duration::from_millis(10) {
        let what = format!("a CPU quota held the laboratory back for {:.2} s", seen.quota.as_secs_f64());
        list.push(Warning::Throttled { what });
    }
    if seen.heat > 0 {
        let what = format!("the processor slowed itself down {} times because of heat", seen.heat);
        list.push(Warning::Throttled { what });
    }
    let governor = machine.governor.as_deref().filter(|g| *g != "performance");
    let changed = seen.mhz.filter(|(first, last)| (last / first - 1.0).abs() > 0.05);
    if let Some(governor) = governor {
        list.push(Warning::FrequencyScaling { what: format!("the frequency governor is {governor}") });
    } else if let Some((first, last)) = changed {
        let what = format!("the clock was {first:.0} MHz at the beginning and {last:.0} MHz at the end");
        list.push(Warning::FrequencyScaling { what });
    }
    list
}

/// Whether the `ironswan` that is measured was built without optimisation.
pub(super) fn is_debug(options: &DutOptions) -> bool {
    options.gateway().is_some_and(|program| is_debug_path(&program))
}

fn clock_doubt(machine: &Fingerprint) -> Option<Warning> {
    let source = machine.clocksource.as_deref().filter(|c| !["tsc", "arch_sys_counter"].contains(c))?;
    Some(Warning::ClockUnstable { clocksource: source.into() })
}

/// Cargo builds without optimisation into a folder of this name.
fn is_debug_path(program: &Path) -> bool {
    program.components().any(|c| c.as_os_str() == "debug")
}

/// Figures that are shown, and have a better way, whose repeats differ much. Shares are left out: a
/// small one may double without meaning anything.
fn noise(record: &Record) -> Option<Warning> {
    let shown = |name: &str| {
        record.views.iter().any(|view| match view {
            View::Table(t) => match &t.columns {
                Columns::Factor { measure, .. } => measure == name,
                Columns::Measures(list) => list.iter().any(|(m, _)| m == name),
            },
            View::Plot(p) => p.y == name,
            View::Derived { .. } => false,
        })
    };
    let judged = |name: &str| {
        record.measure(name).is_some_and(|m| m.better != Better::Neither && m.unit != "share") && shown(name)
    };
    let (mut noisy, mut of, mut worst) = (0, 0, (String::new(), 0.0));
    for figure in &record.figures {
        for (name, quantity) in figure.measures.iter().filter(|(name, _)| judged(name)) {
            if quantity.summary.n < 2 {
                continue;
            }
            of += 1;
            let range = quantity.summary.relative_range();
            if range > NOISE {
                noisy += 1;
                if range > worst.1 {
                    worst = (format!("{name} of {}", factors_text(figure)), range);
                }
            }
        }
    }
    (noisy > 0).then_some(Warning::NoisyFigures { noisy, of, worst: worst.0, range: worst.1 })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Absent, Baseline, Factors, Sample, Table, Which, factors, figures};
    use crate::report::sample;

    /// Nothing to doubt: five repeats, near each other, of a large quiet machine.
    fn calm() -> (Record, Common, Seen) {
        let mut record = sample::record();
        (record.machine.cpus, record.machine.governor) = (64, None);
        record.machine.clocksource = Some("tsc".into());
        let values = [1.0, 1.05, 1.1, 1.0, 1.1];
        record.samples = (0..5)
            .map(|repeat| Sample {
                factors: factors([("dut", "plain"), ("load", "some")]),
                repeat,
                began: 0.0,
                measures: [("gbps".to_string(), values[repeat as usize])].into(),
                absent: [].into(),
                files: vec![],
            })
            .collect();
        record.baseline = None;
        record.views = vec![View::Table(Table {
            title: "Rates".into(),
            only: Factors::new(),
            rows: vec!["dut".into()],
            columns: Columns::Measures(vec![("gbps".into(), Which::Median)]),
        })];
        (record, Common::default(), Seen::default())
    }

    fn kinds(change: impl Fn(&mut Record, &mut Common, &mut Seen)) -> Vec<&'static str> {
        let (mut record, mut common, mut seen) = calm();
        change(&mut record, &mut common, &mut seen);
        record.figures = figures(&record.samples, None);
        doubts(&record, &[], &common, &seen).iter().map(Warning::kind).collect()
    }

    #[test]
    fn a_calm_run_has_no_doubt_and_each_doubt_has_its_cause() {
        assert_eq!(kinds(|_, _, _| {}), [""; 0]);
        type Change = fn(&mut Record, &mut Common, &mut Seen);
        let cases: [(&str, Change); 14] = [
            ("too-short", |r, _, _| {
                let short = Sample { measures: [].into(), ..r.samples[0].clone() };
                let absent = [("machine_ns".to_string(), Absent::TooShort)].into();
                r.samples.push(Sample { absent, ..short });
            }),
            ("smoke", |_, c, _| c.smoke = true),
            ("few-repeats", |r, _, _| r.samples.truncate(4)),
            ("shared-cores", |r, _, _| r.machine.cpus = 2),
            ("noisy-repeats", |r, _, _| {
                r.samples[0].measures.insert("gbps".into(), 5.0);
            }),
            ("clock-unstable", |r, _, _| r.machine.clocksource = Some("hpet".into())),
            ("other-load", |_, _, s| s.others = 0.1),
            ("stolen-time", |_, _, s| s.stolen = 0.1),
            ("throttled", |_, _, s| s.quota = Duration::from_secs(1)),
            ("throttled", |_, _, s| s.heat = 2),
            ("frequency-scaling", |r, _, _| r.machine.governor = Some("powersave".into())),
            ("frequency-scaling", |_, _, s| s.mhz = Some((2000.0, 3000.0))),
            ("debug-build", |r, c, _| {
                r.samples
                    .iter_mut()
                    .for_each(|s| s.factors = factors([("dut", "ironswan"), ("load", "some")]));
                c.dut_options.ironswan = Some("/x/target/debug/ironswan".into());
            }),
            ("other-load", |_, _, s| (s.others, s.stolen) = (0.5, 0.01)),
        ];
        for (kind, change) in cases {
            assert_eq!(kinds(change), [kind]);
        }
    }

    #[test]
    fn trials_shorter_than_those_of_published_figures_are_a_doubt() {
        let kind = |shortest: Option<u64>| {
            short_trials(shortest.map(Duration::from_millis)).map(|warning| (warning.kind(), warning.text()))
        };
        assert_eq!((kind(None), kind(Some(10_000))), (None, None));
        let (kind, text) = kind(Some(9_990)).expect("a doubt");
        assert!(kind == "short-trials" && text.starts_with("trials of 9.99 s: "), "{kind}, {text}");
    }

    #[test]
    fn systems_that_are_no_factor_are_doubted_too_and_plain_is_missed_where_it_is_compared_with() {
        let (mut record, mut common, seen) = calm();
        record.samples.iter_mut().for_each(|s| s.factors = factors([("method", "ftp over ironswan")]));
        (record.machine.cpus, record.figures) = (2, vec![]);
        common.dut_options.ironswan = Some("/x/target/debug/ironswan".into());
        let kinds = |record: &Record, systems: &[&str]| -> Vec<&'static str> {
            let systems: Vec<String> = systems.iter().map(ToString::to_string).collect();
            doubts(record, &systems, &common, &seen).iter().map(Warning::kind).collect()
        };
        assert_eq!(kinds(&record, &[]), [""; 0]);
        assert_eq!(kinds(&record, &["ironswan"]), ["debug-build", "shared-cores"]);
        record.baseline = Some(Baseline { factor: "dut".into(), value: "plain".into() });
        assert_eq!(kinds(&record, &["ironswan"]), ["debug-build", "shared-cores", "no-plain"]);
        assert_eq!(kinds(&record, &["plain"]), ["shared-cores"]);
        // What few people run says nothing about strongSwan, beside which it stands.
        assert_eq!(kinds(&record, &["plain", LIBIPSEC]), ["shared-cores", "libipsec-alone"]);
        assert_eq!(kinds(&record, &["plain", LIBIPSEC, "strongswan-kernel-raw"]), ["shared-cores"]);
    }

    #[test]
    fn noise_of_what_is_not_shown_or_has_no_better_way_is_passed_over() {
        let noisy = |r: &mut Record, name: &str| {
            r.samples.iter_mut().enumerate().for_each(|(i, s)| {
                s.measures.insert(name.into(), 1.0 + i as f64);
            });
        };
        assert_eq!(kinds(|r, _, _| noisy(r, "machine_ns_per_byte")), [""; 0]);
        let shown = |r: &mut Record, name: &str| {
            let View::Table(t) = &mut r.views[0] else { panic!("a table") };
            t.columns = Columns::Measures(vec![(name.into(), Which::Median)]);
            noisy(r, name);
        };
        assert_eq!(kinds(|r, _, _| shown(r, "softirq_share")), [""; 0]);
        assert_eq!(kinds(|r, _, _| shown(r, "machine_ns_per_byte")), ["noisy-repeats"]);
    }
}
