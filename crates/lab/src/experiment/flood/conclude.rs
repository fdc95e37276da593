//! What `lab flood` measures: samples from its trials, and the tables and plots that follow. Pure.

use std::collections::BTreeMap;

use super::trial::{Purpose, Series, Trial};
use crate::experiment::campaign::{About, Conclusion};
use crate::measure::soaker::Busy;
use crate::record::{
    Better, Columns, Derived, Factors, Figure, Plot, Record, TESTER_KPPS, Table, View, Which, factors,
};
use crate::report::percent;

pub(super) const ABOUT: About = About {
    name: "flood",
    number: "E6",
    question: "How many packets a second does a gateway carry, and what does it still carry when it is offered more?",
    measures: &MEASURES,
    baseline: Some(("dut", PLAIN)),
};

/// The system that the others are compared with.
pub(super) const PLAIN: &str = "plain";

static MEASURES: [(&str, &str, &str, &str, Better); 9] = [
    (
        "kpps",
        "kpps",
        "1000 packets/s",
        "packets that arrived; with a bounded loss the highest rate at which no more was lost, where packets that the generator \
         could not send count as lost; with any loss the most that arrived in any trial",
        Better::More,
    ),
    ("sent_kpps", "sent kpps", "1000 packets/s", "packets that the generator sent", Better::Neither),
    ("loss", "loss", "share", "packets that did not arrive, of those intended", Better::Less),
    ("of_peak", "of peak", "share", "of the most that arrived in any trial", Better::More),
    ("p50_us", "50 % us", "us", "time that half of the packets took at most", Better::Less),
    ("p99_us", "99 %", "us", "time that 99 of 100 packets took at most", Better::Less),
    ("lost", "lost", "share", "packets that were dropped at one place, of those sent", Better::Less),
    crate::experiment::alone::MEASURES[0],
    crate::experiment::alone::MEASURES[1],
];

/// The loss of the figure that is bounded by none.
const ANY: &str = "any";
/// The part of figures of the tester without a gateway.
const ALONE: &str = "alone";
/// The place of packets that no counter explains.
const UNKNOWN: &str = "without a counter";

/// One sample of a run: factors, repeat, when it began, measures.
pub(super) type Sampled = (Factors, u32, f64, Vec<(&'static str, f64)>);

/// The samples that follow from the trials of the tester alone under one load.
fn alone(series: &Series<'_>, goals: &[f64]) -> Vec<Sampled> {
    let of = |loss: &str| factors([("load", &series.load.to_string()), ("part", ALONE), ("loss", loss)]);
    let sample = |loss: &str, pps: f64| (of(loss), 0, 0.0, vec![("kpps", pps / 1e3)]);
    let found = goals.iter().filter_map(|goal| Some(sample(&percent(*goal), series.throughput(*goal)?)));
    let mut samples: Vec<Sampled> = found.collect();
    samples.push(sample(ANY, series.peak()));
    samples
}

/// The samples that follow from the trials of one system under one load, beside what the tester
/// carries alone under it; throughputs are known to within `width`.
pub(super) fn samples(
    series: &Series<'_>,
    tester: Option<&Series<'_>>,
    goals: &[f64],
    width: f64,
) -> Vec<Sampled> {
    if series.is_tester() {
        return alone(series, goals);
    }
    let load = series.load.to_string();
    let of = |part: &str, more: &[(&str, &str)]| {
        let mut of = factors([("dut", series.dut), ("load", &load), ("part", part)]);
        of.extend(more.iter().map(|(k, v)| ((*k).to_string(), (*v).to_string())));
        of
    };
    let mut samples: Vec<Sampled> = Vec::new();
    for goal in goals {
        if let Some(pps) = series.throughput(*goal) {
            let mut measures = vec![("kpps", pps / 1e3)];
            measures.extend(series.beside(tester, Some(*goal), width));
            samples.push((of("throughput", &[("loss", &percent(*goal))]), 0, 0.0, measures));
        }
    }
    let peak = series.peak();
    let mut measures = vec![("kpps", peak / 1e3)];
    measures.extend(series.beside(tester, None, width));
    samples.push((of("throughput", &[("loss", ANY)]), 0, 0.0, measures));
    let mut repeats: BTreeMap<String, Vec<&Trial>> = BTreeMap::new();
    for trial in series.trials.iter().filter(|t| t.purpose == Purpose::Curve) {
        let offered = trial.multiple.unwrap_or(0.0).to_string();
        let own = repeats.entry(offered.clone()).or_default();
        let measures = curve_measures(trial, peak);
        samples.push((of("curve", &[("offered", &offered)]), own.len() as u32, trial.began, measures));
        own.push(trial);
    }
    for (offered, trials) in &repeats {
        let mut places: Vec<&str> =
            trials.iter().flat_map(|t| t.account.places.iter().map(|p| &*p.place)).collect();
        places.sort_unstable();
        places.dedup();
        places.push(UNKNOWN);
        for (nth, trial) in (0..).zip(trials) {
            for place in &places {
                let of = of("places", &[("offered", offered), ("place", place)]);
                samples.push((of, nth, trial.began, vec![("lost", lost_at(trial, place))]));
            }
        }
    }
    samples
}

fn curve_measures(t: &Trial, peak: f64) -> Vec<(&'static str, f64)> {
    let latency = t.received.latency.as_ref();
    let own = [
        ("sent_kpps", t.sent_pps() / 1e3),
        ("kpps", t.forwarded_pps / 1e3),
        // Rounding may leave a loss a little below nothing.
        ("loss", t.loss.clamp(0.0, 1.0)),
        ("of_peak", if peak > 0.0 { t.forwarded_pps / peak } else { 0.0 }),
        ("p50_us", latency.map_or(f64::NAN, |l| l.p50_us)),
        ("p99_us", latency.map_or(f64::NAN, |l| l.p99_us)),
    ];
    own.into_iter().chain(Busy::measures(t.cost.busy.as_ref())).collect()
}

/// Share of the packets sent that was lost at that place. More may have been counted there than is
/// missing, which the warning of unexplained losses says.
fn lost_at(t: &Trial, place: &str) -> f64 {
    let packets = match place {
        UNKNOWN => t.account.unexplained.max(0) as u64,
        _ => t.account.places.iter().filter(|p| p.place == place).map(|p| p.packets).sum(),
    };
    (packets as f64 / t.account.sent.max(1) as f64).min(1.0)
}

/// What follows from the samples of a run.
pub(super) fn conclude(record: &Record) -> Conclusion {
    let derived = of_wireguard_go(record);
    let mut views = Vec::new();
    let all = Factors::new();
    for load in record.values("load", &all) {
        views.extend(tables(record, load));
    }
    if !derived.is_empty() {
        views.push(View::Derived {
            title: "Throughput over that of wireguard-go".into(),
            names: vec!["of_wireguard_go".into()],
        });
    }
    views.extend(plots(record));
    Conclusion { derived, views, history: Vec::new() }
}

/// The throughput of each system over that of wireguard-go under the same load.
fn of_wireguard_go(record: &Record) -> Vec<Derived> {
    let part = factors([("part", "throughput")]);
    let of = |figure: &Figure| {
        if figure.factors.get("loss")? == ANY || figure.factors.get("dut")? == "wireguard-go" {
            return None;
        }
        let mut other = figure.factors.clone();
        other.insert("dut".into(), "wireguard-go".into());
        let theirs = record.figure(&other)?.number("kpps", Which::Median).filter(|pps| *pps > 0.0)?;
        let mut of = figure.factors.clone();
        of.remove("part");
        Some(Derived {
            name: "of_wireguard_go".into(),
            factors: of,
            value: figure.number("kpps", Which::Median)? / theirs,
            unit: "1".into(),
            how: "kpps over those of wireguard-go at the same loss".into(),
        })
    };
    record.figures_with(&part).filter_map(of).collect()
}

fn tables(record: &Record, load: &str) -> Vec<View> {
    let only = |part: &str| factors([("part", part), ("load", load)]);
    let table = |title: String, only: Factors, rows: &[&str], columns: Columns| {
        View::Table(Table { title, only, rows: rows.iter().map(ToString::to_string).collect(), columns })
    };
    let by_loss = Columns::Factor { factor: "loss".into(), measure: "kpps".into(), which: Which::Median };
    let mut views = vec![table(
        format!("Throughput by the loss that is allowed, {load}"),
        only("throughput"),
        &["dut"],
        by_loss.clone(),
    )];
    let beside = [("kpps", Which::Median), ("kpps", Which::Ratio), (TESTER_KPPS, Which::Median)];
    views.push(table(
        format!("Throughput beside plain forwarding, and what the tester carries alone, {load}"),
        only("throughput"),
        &["loss", "dut"],
        Columns::Measures(beside.map(|(name, which)| (name.to_string(), which)).to_vec()),
    ));
    views.push(table(
        format!("The tester alone, without a gateway, by the loss that is allowed, {load}"),
        only(ALONE),
        &["part"],
        by_loss,
    ));
    let curve = only("curve");
    let most =
        record.values("offered", &curve).into_iter().max_by(|a, b| as_number(a).total_cmp(&as_number(b)));
    if let Some(most) = most {
        let shown = ["sent_kpps", "kpps", "loss", "of_peak", "p50_us", "p99_us"];
        let columns = Columns::Measures(shown.map(|name| (name.to_string(), Which::Median)).to_vec());
        let title = format!("Offered so many times the throughput, {load}");
        views.push(table(title, curve.clone(), &["offered", "dut"], columns));
        let mut places = only("places");
        places.insert("offered".into(), most.into());
        let lost = Columns::Measures(vec![("lost".into(), Which::Median)]);
        let title = format!("Where packets are lost when {most} times the throughput is offered, {load}");
        views.push(table(title, places, &["dut", "place"], lost));
    }
    views
}

fn as_number(text: &str) -> f64 {
    text.parse().unwrap_or(0.0)
}

fn plots(record: &Record) -> Vec<View> {
    let plot = |name: String, title: String, only: Factors, x: &str, x_label: &str, log_x| {
        View::Plot(Plot {
            name,
            title,
            only,
            x: x.into(),
            x_label: x_label.into(),
            y: "kpps".into(),
            which: Which::Median,
            series: vec!["dut".into()],
            log_x,
            log_y: false,
        })
    };
    let throughput = factors([("part", "throughput")]);
    let bounded = record.values("loss", &throughput).into_iter().filter(|loss| *loss != ANY);
    let mut views: Vec<View> = bounded
        .map(|loss| {
            let name = format!("throughput-{}", loss.trim_end_matches(" %").replace('.', "-"));
            let only = factors([("part", "throughput"), ("loss", loss)]);
            plot(name, format!("Throughput with a loss of at most {loss}"), only, "load", "load", false)
        })
        .collect();
    let curve = factors([("part", "curve")]);
    let curves = record.values("load", &curve).into_iter().enumerate().map(|(nth, load)| {
        let (name, only) = (format!("curve-{}", nth + 1), factors([("part", "curve"), ("load", load)]));
        let title = format!("What arrives past the throughput: {load}");
        plot(name, title, only, "offered", "offered, as a multiple of the throughput", true)
    });
    views.extend(curves);
    views
}

#[cfg(test)]
mod tests {
    use super::super::trial::tests::trial;
    use super::*;
    use crate::record::{Sample, figures};
    use crate::report::sample;

    /// The record of these trials, with what follows.
    fn record(trials: &[Trial]) -> Record {
        let mut record = sample::record();
        let all = Series::of(trials);
        let taken = |s: &Series<'_>| samples(s, Series::tester(&all, s.load), &[0.005, 0.000_01], 0.05);
        let taken = all.iter().flat_map(taken).collect::<Vec<_>>();
        let sample = |(factors, repeat, began, measures): Sampled| Sample {
            factors,
            repeat,
            began,
            measures: measures
                .into_iter()
                .filter(|m| m.1.is_finite())
                .map(|(k, v)| (k.to_string(), v))
                .collect(),
            absent: [].into(),
            files: vec![],
        };
        record.samples = taken.into_iter().map(sample).collect();
        record.figures = figures(&record.samples, record.baseline.as_ref());
        let c = conclude(&record);
        (record.views, record.derived) = (c.views, c.derived);
        record
    }

    #[test]
    fn what_the_tester_carries_alone_stands_beside_every_throughput_and_withholds_ratios_to_it() {
        let of = |alone: u64| {
            let mut record = sample::record();
            let tester = trial(crate::experiment::alone::NAME, None, alone + 1, alone);
            let trials = [tester, trial("plain", None, 100_001, 100_000), trial("x", None, 50_001, 50_000)];
            let all = Series::of(&trials);
            let taken = all.iter().flat_map(|s| samples(s, Series::tester(&all, s.load), &[0.005], 0.05));
            record.samples = taken
                .map(|(factors, repeat, began, measures)| Sample {
                    factors,
                    repeat,
                    began,
                    measures: measures.into_iter().map(|(k, v)| (k.to_string(), v)).collect(),
                    absent: [].into(),
                    files: vec![],
                })
                .collect();
            let baseline = crate::record::Baseline { factor: "dut".into(), value: "plain".into() };
            record.figures = figures(&record.samples, Some(&baseline));
            record.views = conclude(&record).views;
            record
        };
        for (alone, withheld) in [(105_000, true), (200_000, false)] {
            let record = of(alone);
            let only = factors([("dut", "x"), ("part", "throughput"), ("loss", "0.5 %")]);
            let [figure] = &record.figures_with(&only).collect::<Vec<_>>()[..] else { panic!("{only:?}") };
            assert_eq!(figure.number(TESTER_KPPS, Which::Median), Some(alone as f64 / 1e3));
            assert_eq!(figure.number("kpps", Which::Ratio).is_none(), withheld);
            let reason = format!("the tester alone carries {}.0 kpps", alone / 1000);
            assert_eq!(figure.withheld.as_deref(), withheld.then_some(reason.as_str()));
            let alone = factors([("part", ALONE), ("loss", ANY)]);
            assert_eq!(record.figures_with(&alone).count(), 1);
            let text = crate::report::record_text(&record, 120);
            assert!(text.contains("The tester alone, without a gateway"), "{text}");
        }
    }

    #[test]
    fn throughputs_shares_of_the_peak_and_places_follow_from_the_trials() {
        let record = record(&[
            trial("wireguard-go", None, 20_001, 20_000),
            trial("wireguard-go", Some(4.0), 80_000, 10_000),
            trial("ironswan", None, 120_001, 120_000),
            trial("ironswan", Some(4.0), 480_000, 60_000),
        ]);
        let number = |pairs: &[(&str, &str)], measure: &str| {
            let only = pairs.iter().map(|(k, v)| ((*k).to_string(), (*v).to_string())).collect();
            let found: Vec<f64> =
                record.figures_with(&only).filter_map(|f| f.number(measure, Which::Median)).collect();
            found
        };
        assert_eq!(number(&[("dut", "ironswan"), ("loss", "0.5 %")], "kpps"), [120.0]);
        // The search for the smaller loss carried nothing.
        assert!(number(&[("loss", "0.001 %")], "kpps").is_empty());
        assert_eq!(number(&[("dut", "ironswan"), ("loss", "any")], "kpps"), [120.0]);
        assert_eq!(number(&[("dut", "ironswan"), ("part", "curve")], "of_peak"), [0.5]);
        let at = |place| number(&[("dut", "ironswan"), ("place", place)], "lost");
        assert_eq!(at("queue of ipsec0 on g1"), [420_001.0 / 480_000.0]);
        assert_eq!(at("without a counter"), [0.0]);
        let [over] = &record.derived[..] else { panic!("{:?}", record.derived) };
        assert_eq!((over.factors["dut"].as_str(), over.value), ("ironswan", 6.0));
        let text = crate::report::record_text(&record, 100);
        for part in ["0.5 %", "any", "queue of ipsec0 on g1", "of wireguard go", "6.00"] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
    }
}
