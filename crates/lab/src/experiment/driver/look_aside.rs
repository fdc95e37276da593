//! Figures and views of a look-aside device: polling against waiting, and what it is worth to have
//! many requests under way.

use crate::record::{Columns, Derived, Factors, Figure, Plot, Record, Table, View, Which, factors};

/// Differences of the device of cryptodev from a card, for the report.
pub(super) const LIKENESS: &str = "cryptodev's device is like a look-aside card in what a program sees: requests go into a \
    queue, several are under way, an answer is polled or waited for. It is unlike one behind the queue: software on a processor of \
    this machine instead of an engine of its own, packets in a shared cache instead of DMA over a bus, and a wake-up by another \
    thread instead of an interrupt. cryptodev-inline has no second thread: the software works where it is polled";

/// Time that passes for one packet: a measure that only the device has.
const ELAPSED: &str = "elapsed_ns_per_op";

/// True when the device is among what was measured.
pub(super) fn measured(record: &Record) -> bool {
    record.figures.iter().any(|figure| figure.measures.contains_key(ELAPSED))
}

/// True for figures whose processor time is that of a thread which only asks.
pub(super) fn only_asks(figure: &Figure) -> bool {
    let engine = figure.factors.get("engine").map_or("", String::as_str);
    ["cryptodev-poll", "cryptodev-wait"].contains(&engine)
}

/// Time of a packet by which ways to hand over are compared: of the device, the time that passes.
pub(super) fn time(figure: &Figure) -> Option<f64> {
    figure.number(ELAPSED, Which::Median).or_else(|| figure.number("ns_per_op", Which::Median))
}

/// Waiting over polling, for all that was measured in both ways: time that passes, processor time
/// of the asking thread, latency.
pub(super) fn derived(record: &Record) -> Vec<Derived> {
    let polled = factors([("engine", "cryptodev-poll")]);
    let mut derived = Vec::new();
    for figure in record.figures_with(&polled) {
        let mut other = figure.factors.clone();
        other.insert("engine".into(), "cryptodev-wait".into());
        let Some(waited) = record.figure(&other) else { continue };
        let mut same = figure.factors.clone();
        same.remove("engine");
        for (name, measure) in [
            ("wait_over_poll", ELAPSED),
            ("wait_over_poll_cpu", "ns_per_op"),
            ("wait_over_poll_latency", "latency_ns"),
        ] {
            let of = |figure: &Figure| figure.number(measure, Which::Median);
            let Some((poll, wait)) = of(figure).zip(of(waited)).filter(|(poll, _)| *poll > 0.0) else {
                continue;
            };
            derived.push(Derived {
                name: name.into(),
                factors: same.clone(),
                value: wait / poll,
                unit: "times".into(),
                how: format!("{measure} of cryptodev-wait over that of cryptodev-poll"),
            });
        }
    }
    derived
}

/// Tables and plots of the device: time and latency by requests under way, and what waiting costs.
pub(super) fn views(record: &Record) -> Vec<View> {
    if !measured(record) {
        return vec![];
    }
    let mut views = Vec::new();
    let engines = record.values("engine", &Factors::new());
    for engine in engines.iter().filter(|engine| engine.starts_with("cryptodev")) {
        for (data, place) in [("unique", "memory of its own for each"), ("same", "memory in the cache")] {
            let only = factors([("engine", engine), ("data", data)]);
            if record.values("burst", &only).len() < 2 {
                continue;
            }
            for (measure, what) in
                [(ELAPSED, "time that passes for a packet"), ("latency_ns", "latency of a request")]
            {
                let title = format!("{engine}: {what} by requests under way (-: all at once), {place}");
                views.push(by_burst(title, only.clone(), measure));
            }
        }
        let only =
            factors([("engine", engine), ("data", "unique"), ("dispatch", "burst"), ("check", "after")]);
        if record.values("burst", &only).len() > 1 {
            views.push(plot(engine, only));
        }
    }
    if derived(record).iter().any(|d| d.name == "wait_over_poll") {
        views.push(View::Derived {
            title: "Waiting over polling: time that passes, processor time of the asking thread, latency"
                .into(),
            names: ["wait_over_poll", "wait_over_poll_cpu", "wait_over_poll_latency"]
                .map(String::from)
                .into(),
        });
    }
    views
}

fn by_burst(title: String, only: Factors, measure: &str) -> View {
    View::Table(Table {
        title,
        only,
        rows: ["suite", "direction", "size", "check"].map(String::from).into(),
        columns: Columns::Factor { factor: "burst".into(), measure: measure.into(), which: Which::Median },
    })
}

fn plot(engine: &str, only: Factors) -> View {
    View::Plot(Plot {
        name: format!("under-way-{engine}"),
        title: format!("{engine}: time that passes for a packet by requests under way"),
        only,
        x: "burst".into(),
        x_label: "requests under way".into(),
        y: ELAPSED.into(),
        which: Which::Median,
        series: ["suite", "direction", "size"].map(String::from).into(),
        log_x: true,
        log_y: true,
    })
}
