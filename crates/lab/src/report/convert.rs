//! The records of `line` and `flood`, which have shapes of their own, in the shape that all
//! experiments share: for their plots and pages, and to be laid beside other runs. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::accounting;
use super::flood::{FloodRun, FloodTrial, Purpose};
use super::number::{number, percent};
use super::run::{Run, Trial};
use crate::measure::soaker::Busy;
use crate::record::{
    Baseline, Better, Columns, Derived, Factors, Historical, LAB_SCHEMA, Measure, Plot, Record, Sample,
    Table, View, Which, factors, figures,
};
use crate::topology::Congestion;

fn measure((name, heading, unit, what, better): (&str, &str, &str, &str, Better)) -> Measure {
    Measure { name: name.into(), heading: heading.into(), unit: unit.into(), what: what.into(), better }
}

fn plain() -> Option<Baseline> {
    Some(Baseline { factor: "dut".into(), value: "plain".into() })
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

impl From<&Run> for Record {
    fn from(run: &Run) -> Self {
        let baseline = plain();
        let samples: Vec<Sample> = run.trials.iter().map(line_sample).collect();
        let s = &run.settings;
        let mut record = Self {
            schema: LAB_SCHEMA.into(),
            experiment: run.experiment.clone(),
            number: "E1".into(),
            question: "What does a tunnel between the inner two of four boxes in a line cost TCP?".into(),
            program: run.program.clone(),
            command_line: run.command_line.clone(),
            started: run.started.clone(),
            seconds: run.seconds,
            machine: run.machine.clone(),
            versions: run.versions.clone(),
            settings: settings([
                ("systems", s.duts.join(", ")),
                ("ESP proposal", s.esp_proposal.clone()),
                ("IKE proposal", s.ike_proposal.clone()),
                ("window, s", s.duration.to_string()),
                ("repeats", s.repeats.to_string()),
                ("inner MTU, bytes", s.inner_mtu.to_string()),
            ]),
            measures: LINE_MEASURES.into_iter().map(measure).collect(),
            figures: figures(&samples, baseline.as_ref()),
            baseline,
            samples,
            derived: line_derived(run),
            views: Vec::new(),
            history: line_history(run).into_iter().collect(),
            commands: line_commands(&run.trials),
            warnings: run.warnings.clone(),
        };
        let congestion = s.congestion.iter().map(|name| (Congestion::SETTING.to_string(), name.clone()));
        record.settings.extend(congestion);
        record.views = line_views(&record);
        accounting::show(&mut record);
        record
    }
}

const LINE_MEASURES: [(&str, &str, &str, &str, Better); 6] = [
    ("gbps", "Gb/s", "Gb/s", "TCP payload that the receiving hosts had", Better::More),
    (
        "machine_ns_per_byte",
        "ns/byte",
        "ns/byte",
        "busy time of the whole machine, hosts and kernel included, per byte of payload",
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
];

fn settings<const N: usize>(pairs: [(&str, String); N]) -> BTreeMap<String, String> {
    pairs.into_iter().map(|(k, v)| (k.to_string(), v)).collect()
}

/// Measures that have a value.
fn known<'a>(measures: impl IntoIterator<Item = (&'a str, f64)>) -> BTreeMap<String, f64> {
    measures.into_iter().filter(|(_, v)| v.is_finite()).map(|(k, v)| (k.to_string(), v)).collect()
}

fn line_sample(t: &Trial) -> Sample {
    let w = &t.window;
    let own = [
        ("gbps", w.gbps),
        ("machine_ns_per_byte", w.machine_ns_per_byte),
        ("gateways_ns_per_byte", w.gateways_ns_per_byte),
        ("softirq_share", w.softirq_share),
        ("bytes_per_buffer", w.bytes_per_buffer),
        ("setup_seconds", t.setup_seconds),
    ];
    Sample {
        factors: factors([("dut", &t.dut), ("load", &t.cell.to_string())]),
        repeat: t.repeat,
        began: t.began,
        measures: known(own.into_iter().chain(Busy::measures(w.busy.as_ref()))),
        files: t.files.clone(),
    }
}

fn line_derived(run: &Run) -> Vec<Derived> {
    let rows = run.results.cells.iter().flat_map(|c| c.rows.iter().map(move |r| (c.key.to_string(), r)));
    rows.filter_map(|(load, row)| {
        Some(Derived {
            name: "added_cycles_per_byte".into(),
            factors: factors([("dut", &row.dut), ("load", &load)]),
            value: row.added_cycles_per_byte?,
            unit: "cycles/byte".into(),
            how: "what the system adds to plain forwarding, by the clock of this machine".into(),
        })
    })
    .collect()
}

fn line_views(record: &Record) -> Vec<View> {
    let mut views = vec![View::Table(Table {
        title: "TCP through each system".into(),
        only: Factors::new(),
        rows: vec!["load".into(), "dut".into()],
        columns: Columns::Measures(vec![
            ("gbps".into(), Which::Median),
            ("gbps".into(), Which::Ratio),
            ("machine_ns_per_byte".into(), Which::Median),
            ("machine_ns_per_byte".into(), Which::Added),
            ("gateways_ns_per_byte".into(), Which::Median),
        ]),
    })];
    views.push(bars("throughput", "TCP throughput", "gbps", Which::Median));
    views.push(bars("cost", "What a byte costs the whole machine", "machine_ns_per_byte", Which::Median));
    if record.figures.iter().any(|f| f.number("machine_ns_per_byte", Which::Added).is_some()) {
        views.push(bars(
            "added",
            "What a system adds to plain forwarding",
            "machine_ns_per_byte",
            Which::Added,
        ));
    }
    if !record.derived.is_empty() {
        views.push(View::Derived {
            title: "The added cost in clock cycles".into(),
            names: vec!["added_cycles_per_byte".into()],
        });
    }
    views
}

/// The published figures beside those of the first load, unlimited, that has both plain forwarding
/// and a tunnel.
fn line_history(run: &Run) -> Option<Historical> {
    let h = &run.history;
    let mut unlimited = run.results.cells.iter().filter(|c| c.key.rate_mbps.is_none());
    let now = unlimited.find_map(|c| {
        let plain = c.row("plain")?;
        let tunnel = c.row("ironswan").or_else(|| c.rows.iter().find(|r| r.dut != "plain"))?;
        let mut now = format!(
            "plain {} Gb/s, {} {} Gb/s: {} of plain ({})",
            number(plain.gbps.median),
            tunnel.dut,
            number(tunnel.gbps.median),
            number(tunnel.ratio?),
            c.key
        );
        if let Some(cycles) = tunnel.added_cycles_per_byte {
            now.push_str(&format!("; {} cycles per byte added by both gateways", number(cycles)));
        }
        Some(now)
    });
    Some(Historical {
        source: h.source.clone(),
        then: format!(
            "plain {:.3} to {:.3} Gb/s, tunnel {:.3} to {:.3} Gb/s: {:.2} of plain; {:.0} cycles of one gateway per byte",
            h.plain_gbps.0, h.plain_gbps.1, h.tunnel_gbps.0, h.tunnel_gbps.1, h.ratio, h.cycles_per_byte
        ),
        now: now?,
        caveat: h.caveat.clone(),
    })
}

/// The commands of the first trial of each system.
fn line_commands(trials: &[Trial]) -> Vec<String> {
    let mut seen = BTreeSet::new();
    let first = trials.iter().filter(|t| seen.insert(&t.dut));
    first
        .flat_map(|t| [format!("# {}, {}", t.dut, t.cell)].into_iter().chain(t.commands.iter().cloned()))
        .collect()
}

impl From<&FloodRun> for Record {
    fn from(run: &FloodRun) -> Self {
        let baseline = plain();
        let samples = flood_samples(run);
        let s = &run.settings;
        let list = |values: Vec<String>| values.join(", ");
        let mut record = Self {
            schema: LAB_SCHEMA.into(),
            experiment: run.experiment.clone(),
            number: "E6".into(),
            question: "How many packets a second does a gateway carry, and what does it still carry when it is offered more?"
                .into(),
            program: run.program.clone(),
            command_line: run.command_line.clone(),
            started: run.started.clone(),
            seconds: run.seconds,
            machine: run.machine.clone(),
            versions: run.versions.clone(),
            settings: settings([
                ("systems", s.duts.join(", ")),
                ("ESP proposal", s.esp_proposal.clone()),
                ("losses allowed", list(s.goals.iter().map(|g| percent(*g)).collect())),
                ("width of a result", percent(s.width)),
                ("packets of a deciding trial", s.packets.to_string()),
                ("short trial, s", s.probe.to_string()),
                ("multiples of the throughput", list(s.multiples.iter().map(ToString::to_string).collect())),
                ("trials at each multiple", s.repeats.to_string()),
                ("inner MTU, bytes", s.inner_mtu.to_string()),
            ]),
            measures: FLOOD_MEASURES.into_iter().map(measure).collect(),
            figures: figures(&samples, baseline.as_ref()),
            baseline,
            samples,
            derived: Vec::new(),
            views: Vec::new(),
            history: Vec::new(),
            commands: run
                .commands
                .iter()
                .flat_map(|(of, list)| [format!("# {of}")].into_iter().chain(list.iter().cloned()))
                .collect(),
            warnings: run.warnings.clone(),
        };
        record.views = flood_views(&record);
        accounting::show(&mut record);
        record
    }
}

const FLOOD_MEASURES: [(&str, &str, &str, &str, Better); 6] = [
    (
        "throughput",
        "throughput",
        "packets/s",
        "highest rate at which no more than the allowed share was lost; what the generator could not send counts as lost",
        Better::More,
    ),
    ("sent", "sent", "packets/s", "packets that the generator sent", Better::Neither),
    ("forwarded", "forwarded", "packets/s", "packets that arrived", Better::More),
    ("loss", "loss", "share", "packets that did not arrive, of those intended", Better::Less),
    ("latency_p50", "p50", "us", "time that half of the packets took at most", Better::Less),
    ("latency_p99", "p99", "us", "time that 99 of 100 packets took at most", Better::Less),
];

fn flood_samples(run: &FloodRun) -> Vec<Sample> {
    let sample = |dut: &str, load: String, (name, value): (&str, String), repeat, began, measures| Sample {
        factors: factors([("dut", dut), ("load", load.as_str()), (name, value.as_str())]),
        repeat,
        began,
        measures,
        files: Vec::new(),
    };
    let mut samples = Vec::new();
    for cell in &run.results.cells {
        for row in &cell.rows {
            for t in &row.throughput {
                let measures = t.pps.map(|pps| ("throughput".to_string(), pps)).into_iter().collect();
                samples.push(sample(
                    &row.dut,
                    cell.key.to_string(),
                    ("loss", percent(t.goal)),
                    0,
                    0.0,
                    measures,
                ));
            }
        }
    }
    let mut counts: BTreeMap<(String, String, String), u32> = BTreeMap::new();
    for t in run.trials.iter().filter(|t| t.purpose == Purpose::Curve) {
        let multiple = t.multiple.unwrap_or(0.0).to_string();
        let nth = counts.entry((t.dut.clone(), t.cell.to_string(), multiple.clone())).or_default();
        let measures = curve_measures(t);
        samples.push(sample(&t.dut, t.cell.to_string(), ("multiple", multiple), *nth, t.began, measures));
        *nth += 1;
    }
    samples
}

fn curve_measures(t: &FloodTrial) -> BTreeMap<String, f64> {
    let mut measures = vec![
        ("sent", t.sent.sent as f64 / t.sent.seconds.max(1e-9)),
        ("forwarded", t.forwarded_pps),
        // Rounding may leave a loss a little below nothing.
        // A share for sure: where the trial has another, `recompute.py` says so of the trial
        // itself.
        ("loss", t.loss.clamp(0.0, 1.0)),
    ];
    if let Some(l) = &t.received.latency {
        measures.extend([("latency_p50", l.p50_us), ("latency_p99", l.p99_us)]);
    }
    known(measures.into_iter().chain(Busy::measures(t.cost.busy.as_ref())))
}

fn flood_views(record: &Record) -> Vec<View> {
    let all = Factors::new();
    let loads = record.values("load", &all);
    let mut views = Vec::new();
    for load in &loads {
        let only = factors([("load", load)]);
        if record.figures_with(&only).any(|f| f.measures.contains_key("throughput")) {
            views.push(View::Table(Table {
                title: format!("Throughput at bounded loss: {load}"),
                only: only.clone(),
                rows: vec!["dut".into()],
                columns: Columns::Factor {
                    factor: "loss".into(),
                    measure: "throughput".into(),
                    which: Which::Median,
                },
            }));
        }
    }
    for loss in record.values("loss", &all) {
        let name = format!("throughput-{}", loss.trim_end_matches(" %").replace('.', "-"));
        let title = format!("Throughput with a loss of at most {loss}");
        let only = factors([("loss", loss)]);
        if record.figures_with(&only).any(|f| f.measures.contains_key("throughput"))
            && let View::Plot(plot) = bars(&name, &title, "throughput", Which::Median)
        {
            views.push(View::Plot(Plot { only, ..plot }));
        }
    }
    let lines = |(nth, load): (usize, &&str), name: &str, title: &str, y: &str| {
        View::Plot(Plot {
            name: format!("{name}-{}", nth + 1),
            title: format!("{title}: {load}"),
            only: factors([("load", load)]),
            x: "multiple".into(),
            x_label: "offered, as a multiple of the throughput".into(),
            y: y.into(),
            which: Which::Median,
            series: vec!["dut".into()],
            log_x: true,
            log_y: false,
        })
    };
    let curves = loads.iter().enumerate().filter(|(_, load)| {
        record.figures_with(&factors([("load", load)])).any(|f| f.factors.contains_key("multiple"))
    });
    views.extend(curves.map(|load| lines(load, "curve", "What arrives past the throughput", "forwarded")));
    views
}
