//! What `lab line` measures, and the tables, plots and history that follow from its samples. Pure.

use crate::experiment::campaign::{About, Conclusion};
use crate::record::{
    Better, Columns, Derived, Factors, Figure, Historical, Plot, Record, Table, View, Which, factors,
};
use crate::report::{history::line as published, number};

/// The experiment; the demonstration has a name of its own.
pub(super) const ABOUT: About = About {
    name: "line",
    number: "E1",
    question: "What does a tunnel between the inner two of four boxes in a line cost TCP?",
    measures: &MEASURES,
    baseline: Some(("dut", "plain")),
};

static MEASURES: [(&str, &str, &str, &str, Better); 8] = [
    ("gbps", "Gb/s", "Gb/s", "TCP payload that the receiving hosts had", Better::More),
    (
        "machine_ns_per_byte",
        "ns/byte",
        "ns/byte",
        "busy time of the whole machine, hosts and kernel included, per byte of payload: the figure to compare",
        Better::Less,
    ),
    (
        "gateways_ns_per_byte",
        "gateways",
        "ns/byte",
        "CPU time of the gateways' processes per byte of payload; software interrupts of any box may be charged to them",
        Better::Less,
    ),
    (
        "softirq_share",
        "softirq",
        "share",
        "software interrupts in the busy time of the machine",
        Better::Neither,
    ),
    (
        "bytes_per_buffer",
        "B/buffer",
        "bytes",
        "mean size in which packets reached the receiving host",
        Better::Neither,
    ),
    ("setup_seconds", "setup", "s", "time from starting a system until its tunnel was up", Better::Less),
    ("resident_kib", "resident", "KiB", "largest resident size of a gateway's process", Better::Less),
    ("retransmits", "again", "1", "segments that iperf3 sent again in its whole run", Better::Less),
];

/// What follows from the samples of a run.
pub(super) fn conclude(record: &Record) -> Conclusion {
    let derived = added_cycles(record);
    Conclusion { views: views(record, &derived), history: history(record).into_iter().collect(), derived }
}

/// The added cost in clock cycles, where the clock is known.
fn added_cycles(record: &Record) -> Vec<Derived> {
    let of = |figure: &Figure| {
        let added = figure.number("machine_ns_per_byte", Which::Added)?;
        Some(Derived {
            name: "added_cycles_per_byte".into(),
            factors: figure.factors.clone(),
            value: added * record.machine.mhz? / 1e3,
            unit: "cycles/byte".into(),
            how: "what the system adds to plain forwarding, by the clock of this machine".into(),
        })
    };
    record.figures.iter().filter_map(of).collect()
}

fn views(record: &Record, derived: &[Derived]) -> Vec<View> {
    use Which::{Added, Median, Ratio};
    let columns = [
        ("gbps", Median),
        ("gbps", Ratio),
        ("machine_ns_per_byte", Median),
        ("machine_ns_per_byte", Added),
        ("gateways_ns_per_byte", Median),
        ("bytes_per_buffer", Median),
    ];
    let table = |load: &&str| {
        View::Table(Table {
            title: format!("TCP, {load}"),
            only: factors([("load", load)]),
            rows: vec!["dut".into()],
            columns: Columns::Measures(columns.map(|(name, which)| (name.into(), which)).to_vec()),
        })
    };
    let mut views: Vec<View> = record.values("load", &Factors::new()).iter().map(table).collect();
    views.push(bars("throughput", "TCP throughput", "gbps", Median));
    views.push(bars("cost", "What a byte costs the whole machine", "machine_ns_per_byte", Median));
    if record.figures.iter().any(|f| f.number("machine_ns_per_byte", Added).is_some()) {
        views.push(bars("added", "What a system adds to plain forwarding", "machine_ns_per_byte", Added));
    }
    if !derived.is_empty() {
        views.push(View::Derived {
            title: "The added cost in clock cycles".into(),
            names: vec!["added_cycles_per_byte".into()],
        });
    }
    views
}

/// Bars: the loads in groups, a colour for each system.
fn bars(name: &str, title: &str, y: &str, which: Which) -> View {
    View::Plot(Plot {
        name: name.into(),
        title: title.into(),
        only: Factors::new(),
        x: "load".into(),
        x_label: "load".into(),
        y: y.into(),
        which,
        series: vec!["dut".into()],
        log_x: false,
        log_y: false,
    })
}

/// The published figures beside those of the first load that has both plain forwarding and a
/// tunnel. At an offered rate both carry the same, which is not what was compared then.
fn history(record: &Record) -> Option<Historical> {
    let all = Factors::new();
    let loads = record.values("load", &all);
    let now = loads.iter().filter(|load| !load.contains(", at ")).find_map(|load| {
        let figure = |dut: &str| record.figure(&factors([("dut", dut), ("load", load)]));
        let of_load = factors([("load", load)]);
        let tunnel = figure("ironswan").or_else(|| {
            record.figures_with(&of_load).find(|f| f.factors.get("dut").is_some_and(|d| d != "plain"))
        })?;
        let median = |figure: &Figure| figure.number("gbps", Which::Median);
        let mut now = format!(
            "plain {} Gb/s, {} {} Gb/s: {} of plain ({load})",
            number(median(figure("plain")?)?),
            tunnel.factors.get("dut")?,
            number(median(tunnel)?),
            number(tunnel.number("gbps", Which::Ratio)?),
        );
        let added = tunnel.number("machine_ns_per_byte", Which::Added);
        if let Some((added, mhz)) = added.zip(record.machine.mhz) {
            now.push_str(&format!("; {} cycles per byte added by both gateways", number(added * mhz / 1e3)));
        }
        Some(now)
    });
    let gbps = |(low, high)| format!("{:.3} to {:.3} Gb/s", published::gbps(low), published::gbps(high));
    Some(Historical {
        source: published::SOURCE.into(),
        then: format!(
            "plain {}, tunnel {}: {:.2} of plain; {:.0} cycles of one gateway per byte",
            gbps(published::PLAIN_KB_S),
            gbps(published::TUNNEL_KB_S),
            published::ratio(),
            published::cycles_per_byte()
        ),
        now: now?,
        caveat: published::CAVEAT.into(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn a_table_for_each_load_plots_cycles_and_history_follow_from_the_figures() {
        let record = sample::record();
        let c = conclude(&record);
        assert_eq!((c.derived.len(), c.derived[0].value), (1, 2.0));
        let names = |plots: bool| {
            let name = |v: &View| match v {
                View::Plot(plot) => plots.then(|| plot.name.clone()),
                View::Table(table) => (!plots).then(|| table.title.clone()),
                View::Derived { .. } => None,
            };
            c.views.iter().filter_map(name).collect::<Vec<_>>()
        };
        assert_eq!(names(true), ["throughput", "cost", "added"]);
        assert_eq!(names(false), ["TCP, offload mode, 1 stream, a to b"]);
        let [h] = &c.history[..] else { panic!("{:?}", c.history) };
        assert!(h.then.contains("0.087 to 0.093 Gb/s") && h.then.contains("0.30 of plain"), "{}", h.then);
        let now = "plain 10.0 Gb/s, ironswan 6.00 Gb/s: 0.60 of plain (offload mode, 1 stream, a to b); 2.00 cycles";
        assert!(h.now.starts_with(now), "{}", h.now);
    }

    #[test]
    fn nothing_is_added_and_nothing_compared_without_plain_forwarding() {
        let mut record = sample::record();
        record.samples.retain(|s| s.factors["dut"] != "plain");
        record.figures = crate::record::figures(&record.samples, record.baseline.as_ref());
        let c = conclude(&record);
        assert!(c.derived.is_empty() && c.history.is_empty());
        assert!(!c.views.iter().any(|v| matches!(v, View::Plot(p) if p.name == "added")));
    }
}
