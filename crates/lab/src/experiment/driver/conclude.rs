//! Figures and views of `lab driver`: slopes over the sizes, what dispatch is worth, tables and
//! plots.

use super::look_aside;
use crate::experiment::campaign::Conclusion;
use crate::plan::fit;
use crate::record::{Columns, Derived, Factors, Historical, Plot, Record, Table, View, Which, factors};

/// Slopes, what dispatch is worth, the tables and plots, and what Freescale saw.
pub(super) fn conclude(record: &Record) -> Conclusion {
    let usual = factors([("dispatch", "burst"), ("burst", "64"), ("data", "same"), ("check", "after")]);
    let mut derived = lines(record, &usual);
    derived.extend(worth(record));
    derived.extend(look_aside::derived(record));
    let table = |title: &str, only: Factors, rows: &[&str], columns| {
        let rows = rows.iter().map(ToString::to_string).collect();
        View::Table(Table { title: title.into(), only, rows, columns })
    };
    let by = |factor: &str, measure: &str| Columns::Factor {
        factor: factor.into(),
        measure: measure.into(),
        which: Which::Median,
    };
    let with = |base: &Factors, more: &[(&str, &str)]| -> Factors {
        let more = more.iter().map(|(k, v)| ((*k).to_string(), (*v).to_string()));
        base.clone().into_iter().chain(more).collect()
    };
    let unique = factors([("data", "unique"), ("dispatch", "burst"), ("check", "after")]);
    let keys = ["suite", "engine", "direction"];
    let sized = ["suite", "engine", "direction", "size"];
    let has = |only: &Factors| record.figures_with(only).next().is_some();
    let mut views = Vec::new();
    if has(&usual) {
        views.push(table(
            "In bursts of 64, memory in the cache",
            usual.clone(),
            &keys,
            by("size", "mb_per_s"),
        ));
        views.push(table("The same", usual.clone(), &keys, by("size", "ns_per_op")));
    }
    if !derived.iter().all(|d| d.name != "ns_per_byte") {
        views.push(View::Derived {
            title: "Cost of a packet = ns_per_packet + ns_per_byte x size, by least squares over the sizes"
                .into(),
            names: ["ns_per_packet", "ns_per_byte", "residual"].map(String::from).into(),
        });
    }
    let several = record.values("burst", &unique).len() > 1;
    if several {
        views.push(table(
            "By packets in a burst, memory of its own for each",
            unique.clone(),
            &sized,
            by("burst", "ns_per_op"),
        ));
    }
    if derived.iter().any(|d| d.name == "all_over_after") {
        views.push(View::Derived {
            title: "All at once: its rate over that of n+1 after n".into(),
            names: vec!["all_over_after".into()],
        });
    }
    views.extend(look_aside::views(record));
    let sixtyfour = factors([("dispatch", "burst"), ("burst", "64")]);
    let varied = record.values("check", &sixtyfour).len() > 1;
    if varied {
        let never = with(&sixtyfour, &[("check", "never")]);
        for suite in record.values("suite", &never) {
            let rows = ["engine", "direction", "size", "data"];
            let only = with(&sixtyfour, &[("suite", suite)]);
            views.push(table(
                &format!("{suite}: by when results are looked at"),
                only,
                &rows,
                by("check", "ns_per_op"),
            ));
        }
    }
    let plot = |name: &str, title: &str, only: Factors, x: (&str, &str), y: &str, series: &[&str]| {
        View::Plot(Plot {
            name: name.into(),
            title: title.into(),
            only,
            x: x.0.into(),
            x_label: x.1.into(),
            y: y.into(),
            which: Which::Median,
            series: series.iter().map(ToString::to_string).collect(),
            log_x: true,
            log_y: true,
        })
    };
    for direction in ["seal", "open"] {
        let only = with(&usual, &[("direction", direction)]);
        if has(&only) {
            let title = format!("Rate of one core by size, {direction}, in bursts of 64");
            let x = ("size", "text, bytes");
            views.push(plot(&format!("rate-{direction}"), &title, only, x, "mb_per_s", &["suite", "engine"]));
        }
        let only = with(&unique, &[("direction", direction)]);
        if several && has(&only) {
            let title = format!("Time of a packet by packets in a burst, {direction}");
            let x = ("burst", "packets in a burst");
            let series = ["suite", "engine", "size"];
            views.push(plot(&format!("burst-{direction}"), &title, only, x, "ns_per_op", &series));
        }
    }
    Conclusion { history: vec![history(&derived, look_aside::measured(record))], derived, views }
}

/// Per suite, engine and direction: slope and intercept over the sizes.
fn lines(record: &Record, usual: &Factors) -> Vec<Derived> {
    let mut groups: Vec<(Factors, Vec<(f64, f64)>)> = Vec::new();
    for figure in record.figures_with(usual).filter(|figure| !look_aside::only_asks(figure)) {
        let key: Factors = ["suite", "engine", "direction"]
            .iter()
            .filter_map(|k| Some(((*k).to_string(), figure.factors.get(*k)?.clone())))
            .collect();
        let size = figure.factors.get("size").and_then(|s| s.parse::<f64>().ok());
        let Some(point) = size.zip(figure.number("ns_per_op", Which::Median)) else { continue };
        match groups.iter_mut().find(|(k, _)| *k == key) {
            Some((_, points)) => points.push(point),
            None => groups.push((key, vec![point])),
        }
    }
    let mut derived = Vec::new();
    for (key, points) in groups {
        let Some(line) = fit::line(&points) else { continue };
        let how = format!("least squares over {} sizes", points.len());
        for (name, value, unit) in [
            ("ns_per_packet", line.intercept, "ns"),
            ("ns_per_byte", line.slope, "ns"),
            ("residual", line.residual, "ns, root mean square"),
        ] {
            derived.push(Derived {
                name: name.into(),
                factors: key.clone(),
                value,
                unit: unit.into(),
                how: how.clone(),
            });
        }
    }
    derived
}

/// The rate of all at once over that of n+1 after n.
fn worth(record: &Record) -> Vec<Derived> {
    let all = factors([("dispatch", "all")]);
    let ratio = |figure: &crate::record::Figure| {
        let mut one = figure.factors.clone();
        one.insert("dispatch".into(), "after".into());
        one.insert("burst".into(), "1".into());
        one.insert("check".into(), "inside".into());
        let after = look_aside::time(record.figure(&one)?)?;
        let factors = ["suite", "engine", "direction", "size"]
            .iter()
            .filter_map(|k| Some(((*k).to_string(), figure.factors.get(*k)?.clone())))
            .collect();
        let value = after / look_aside::time(figure)?;
        let how = "ns/op (of cryptodev, elapsed/op) of `after` over that of `all`, both with memory of their own for \
                   each packet"
            .into();
        Some(Derived { name: "all_over_after".into(), factors, value, unit: "times".into(), how })
    };
    let mut derived: Vec<Derived> = Vec::new();
    for d in record.figures_with(&all).filter_map(ratio) {
        if !derived.iter().any(|known| known.factors == d.factors) {
            derived.push(d);
        }
    }
    derived
}

fn history(derived: &[Derived], device: bool) -> Historical {
    let at = |size: &str| -> Vec<String> {
        derived
            .iter()
            .filter(|d| d.name == "all_over_after")
            .filter(|d| d.factors.get("size").is_some_and(|s| s == size))
            .filter(|d| d.factors.get("direction").is_some_and(|s| s == "seal"))
            .map(|d| {
                let of = |k: &str| d.factors.get(k).map_or("-", String::as_str);
                format!("{} by {}: {:.2}", of("suite"), of("engine"), d.value)
            })
            .collect()
    };
    let (small, large) = (at("64"), at("1024"));
    let now = if small.is_empty() && large.is_empty() {
        "both ways of dispatch were not among what was measured".into()
    } else {
        let or = |list: Vec<String>| if list.is_empty() { "not measured".into() } else { list.join("; ") };
        format!("all at once over n+1 after n, sealing 64 B: {}. 1,024 B: {}", or(small), or(large))
    };
    let caveat = "theirs is a device beside the processor: n+1 after n waits for its interrupt or its answer each time. Here \
                  the processor itself does the work and a call ends with the result, so only the call and idle lanes are saved: \
                  a packet-by-packet engine shows about 1, one that works on packets side by side shows its lanes at every size";
    let likeness = if device { format!(". {}", look_aside::LIKENESS) } else { String::new() };
    Historical {
        source: "Freescale, driver-level test of a security engine (SEC of the MPC85xx), 50,000 operations"
            .into(),
        then: "all at once about 4 times n+1 after n for small data; the gap closed by 1 KB".into(),
        now,
        caveat: format!("{caveat}{likeness}"),
    }
}
