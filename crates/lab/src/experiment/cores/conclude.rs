//! Figures and views of `lab cores`: how many times as much a gateway carries with more workers,
//! queues and flows, and the gain that the planner builds on. Pure.

use crate::experiment::campaign::Conclusion;
use crate::plan::workers::{Gain, WorkerCost};
use crate::record::{
    Columns, Derived, Factors, Figure, Historical, Plot, Record, Table, View, Which, factors,
};
use crate::stats;

/// The factors of which one is varied.
const VARIED: [&str; 3] = ["workers", "queues", "flows"];

pub(super) fn conclude(record: &Record) -> Conclusion {
    let mut derived: Vec<Derived> = VARIED.iter().flat_map(|varied| times(record, varied)).collect();
    let gains = gains(record);
    let now = summary(record, &derived, &gains);
    derived.extend(gains);
    let history = vec![Historical {
        source: "Freescale, gateway to gateway (RFC 2544), MPC8548E: one core".into(),
        then: "1,057 Mbit/s in packets of 1,456 B, with 38 % (NanoSec) or 69 % (Openswan) of the one core busy".into(),
        now,
        caveat: "Then two gateways with wires, each on a machine of its own, and a device for the cryptography. Here one \
                 gateway in software, whose tester shares the processors: with as many workers as processors the tester takes \
                 turns with them."
            .into(),
    }];
    Conclusion { views: views(record, &derived), derived, history }
}

/// A factor of a figure as a number.
fn number(figure: &Figure, factor: &str) -> Option<u32> {
    figure.factors.get(factor)?.parse().ok()
}

/// How many times as much is carried as with the fewest of what is varied, all else being equal.
fn times(record: &Record, varied: &str) -> Vec<Derived> {
    let own: Vec<&Figure> = record.figures_with(&factors([("varied", varied)])).collect();
    let kpps = |figure: &Figure| figure.number("kpps", Which::Median);
    let load = |figure: &Figure| ["size", "direction"].map(|k| figure.factors.get(k).cloned());
    let mut derived = Vec::new();
    for figure in &own {
        let fewest = own.iter().filter(|f| load(f) == load(figure)).min_by_key(|f| number(f, varied));
        let Some(fewest) = fewest.filter(|f| number(f, varied) < number(figure, varied)) else { continue };
        let Some(least) = number(fewest, varied) else { continue };
        let Some(value) = kpps(figure).zip(kpps(fewest)).map(|(more, few)| more / few) else { continue };
        derived.push(Derived {
            name: "times".into(),
            factors: figure.factors.clone(),
            value,
            unit: "times".into(),
            how: format!("kpps over kpps with {}", super::count(least, varied.trim_end_matches('s'))),
        });
    }
    derived
}

/// For each size: the gain from one worker to two that the planner computes capacities with.
fn gains(record: &Record) -> Vec<Derived> {
    let mut derived = Vec::new();
    for size in record.values("size", &Factors::new()) {
        let cost = |workers: u32| {
            let way = |direction: &str| {
                let only = factors([
                    ("varied", "workers"),
                    ("workers", &workers.to_string()),
                    ("size", size),
                    ("direction", direction),
                ]);
                let figure = record.figures_with(&only).next()?;
                let ns: Vec<f64> = record
                    .samples
                    .iter()
                    .filter(|s| s.factors == figure.factors)
                    .filter_map(|s| s.measures.get("gateways_ns").copied())
                    .collect();
                let half = stats::Summary::of(&ns).map_or(0.0, |s| s.half_range());
                Some((figure.number("kpps", Which::Median)? * 1e3, stats::median(&ns)?, half))
            };
            let (out, into) = (way("encrypting")?, way("decrypting")?);
            Some(WorkerCost { workers, pps: [out.0, into.0], ns: [out.1, into.1], within: [out.2, into.2] })
        };
        let measured: Vec<WorkerCost> = [1, 2].into_iter().filter_map(cost).collect();
        let Some(gain) = Gain::of(&measured) else { continue };
        derived.push(Derived {
            name: "gain".into(),
            factors: factors([("size", size)]),
            value: gain.times,
            unit: "times".into(),
            how: format!(
                "2 x the gateway's ns of a packet with one worker over that with two, both ways, as the planner has it; within \
                 {:.2} by the repeats",
                gain.within
            ),
        });
    }
    derived
}

fn summary(record: &Record, times: &[Derived], gains: &[Derived]) -> String {
    let most = record
        .figures
        .iter()
        .filter_map(|f| Some((f, f.number("inner_gbps", Which::Median)?)))
        .max_by(|a, b| a.1.total_cmp(&b.1));
    let Some((figure, gbps)) = most else { return "no rate was found".into() };
    let of = |name: &str| figure.factors.get(name).map_or("-", String::as_str);
    let mut text = format!(
        "at most {:.0} Mbit/s, {} frames of {} B with {}, {:.0} % of the machine busy",
        gbps * 1e3,
        of("direction"),
        of("size"),
        number(figure, "workers").map_or_else(String::new, |n| super::count(n, "worker")),
        figure.number("busy", Which::Median).unwrap_or(0.0) * 100.0
    );
    let by_workers: Vec<f64> = times
        .iter()
        .filter(|d| d.factors.get("varied").is_some_and(|v| v == "workers"))
        .map(|d| d.value)
        .collect();
    if let Some(median) = stats::median(&by_workers) {
        text += &format!("; more workers carried {median:.2} times as much as the fewest (median)");
    }
    if let Some(gain) = stats::median(&gains.iter().map(|d| d.value).collect::<Vec<_>>()) {
        text += &format!("; by its cost a second worker is worth {:.2} of the first", gain - 1.0);
    }
    text
}

fn views(record: &Record, derived: &[Derived]) -> Vec<View> {
    let shown = ["kpps", "inner_gbps", "gateways_ns", "machine_ns", "busy", "loss"];
    let mut views = Vec::new();
    for varied in VARIED {
        let only = factors([("varied", varied)]);
        if record.figures_with(&only).next().is_none() {
            continue;
        }
        views.push(View::Table(Table {
            title: format!("By {varied}, with the most of the others"),
            only: only.clone(),
            rows: ["size", "direction", "workers", "queues", "flows"].map(String::from).to_vec(),
            columns: Columns::Measures(shown.map(|m| (m.to_string(), Which::Median)).to_vec()),
        }));
        views.push(View::Plot(Plot {
            name: varied.into(),
            title: format!("Carried by {varied}"),
            only,
            x: varied.into(),
            x_label: varied.into(),
            y: "kpps".into(),
            which: Which::Median,
            series: vec!["size".into(), "direction".into()],
            log_x: true,
            log_y: false,
        }));
    }
    for (name, title) in [
        ("times", "Times as much as with the fewest"),
        ("gain", "Gain of the second worker, by the cost of a packet (2 is the most)"),
    ] {
        if derived.iter().any(|d| d.name == name) {
            views.push(View::Derived { title: title.into(), names: vec![name.into()] });
        }
    }
    views
}
