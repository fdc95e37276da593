//! Turns measurements and answers of the planner into a record of the laboratory
//! (`ironswan.lab/1`), from which plots and page are made. Pure.

use std::collections::BTreeMap;

use super::answer::{self, Carried, Need};
use super::ask::{Ask, Demand};
use super::links::{FREESWAN_CYCLES, FREESWAN_MHZ};
use super::mix::{LARGEST, Mix};
use super::model::{Cell, Model, Path, Way};
use super::rates::Rate;
use super::verified::Verification;
use crate::record::{
    Baseline, Better, Columns, Derived, Factors, Historical, LAB_SCHEMA, Measure, Plot, Record, Sample,
    Table, View, WarningRecord, Which, factors, figures,
};

/// Measures of all these records: name, heading, unit, what it is, which way is good.
const MEASURES: [(&str, &str, &str, &str, Better); 16] = [
    ("ns", "ns/packet", "ns", "processor time of a gateway for a packet", Better::Less),
    ("pps", "packets/s", "packets/s", "packets a second that the gateway handled", Better::Neither),
    ("calls", "calls", "1", "its calls and wakings for a packet", Better::Less),
    ("burst", "burst", "packets", "packets that share a call of the crypto engine", Better::Neither),
    ("loss", "loss", "share", "of the packets that were to be sent", Better::Less),
    ("other_share", "others", "share", "of the machine, that programs outside used", Better::Less),
    ("kpps", "kpps", "1000 packets/s", "the highest rate of one gateway", Better::More),
    ("mbps", "Mbit/s each way", "Mbit/s", "inner packets that it carries, both ways at once", Better::More),
    (
        "carried",
        "packets/s",
        "packets/s",
        "packets that it carries each way, both ways at once",
        Better::More,
    ),
    ("out_mbps", "out only", "Mbit/s", "inner packets that it carries out, one way alone", Better::More),
    ("in_mbps", "in only", "Mbit/s", "inner packets that it carries in, one way alone", Better::More),
    ("tunnels", "tunnels", "tunnels", "as many as processors and memory allow", Better::More),
    ("link_pps", "packets/s", "packets/s", "packets of the full link each way", Better::Neither),
    ("inner_mbps", "inner Mbit/s", "Mbit/s", "inner packets of the full link each way", Better::Neither),
    ("bare_cores", "processors", "processors", "needed, without safety and share", Better::Less),
    ("cores", "with safety and share", "processors", "needed", Better::Less),
];

/// When and by whom, for a record.
pub struct Told {
    /// The command line.
    pub command_line: Vec<String>,
    /// When it began, UTC, RFC 3339.
    pub started: String,
    /// How long it took, seconds.
    pub seconds: f64,
}

/// A record with what all of them have; its measures are those that its samples have.
fn record(model: &Model, told: Told, question: &str, samples: Vec<Sample>, compared: bool) -> Record {
    let baseline = compared.then(|| Baseline { factor: "of".into(), value: "measured".into() });
    let used = |name: &str| samples.iter().any(|s| s.measures.contains_key(name));
    let measures = MEASURES.iter().filter(|m| used(m.0)).map(|(name, heading, unit, what, better)| Measure {
        name: (*name).into(),
        heading: (*heading).into(),
        unit: (*unit).into(),
        what: (*what).into(),
        better: *better,
    });
    Record {
        schema: LAB_SCHEMA.into(),
        experiment: "plan".into(),
        number: "E12".into(),
        question: question.into(),
        program: model.program.clone(),
        command_line: told.command_line,
        started: told.started,
        seconds: told.seconds,
        machine: model.machine.clone(),
        versions: BTreeMap::from([("ironswan".to_string(), format!("ironswan {}", model.program.version))]),
        settings: BTreeMap::from([
            ("model made".to_string(), model.made.clone()),
            ("kept back from it".to_string(), model.held_back.join(", ")),
        ]),
        measures: measures.collect(),
        figures: figures(&samples, baseline.as_ref()),
        baseline,
        samples,
        derived: vec![],
        views: vec![],
        history: vec![],
        commands: vec![],
        warnings: vec![],
    }
}

/// A calibration: what was measured, and what the fit says of the same loads.
pub fn calibrated(model: &Model, told: Told) -> Record {
    let samples =
        model.cells.iter().flat_map(|c| Way::BOTH.map(|way| of_cell(model, c, way, "fitted"))).flatten();
    let question = "What does a packet cost this machine, by suite, path, direction, size and rate, and which model fits that?";
    let mut record = record(model, told, question, samples.collect(), true);
    record.derived = parts(model);
    record.views = loads("measured and fitted", "The fit");
    let names = |of: &[&str]| of.iter().map(ToString::to_string).collect();
    record.views.push(View::Derived {
        title: "Crypto alone, by the packets that share a call".into(),
        names: names(&["seal_ns_per_packet", "seal_ns_per_byte", "open_ns_per_packet", "open_ns_per_byte"]),
    });
    record.views.push(View::Derived {
        title: "Forwarding, IKE, a tunnel".into(),
        names: names(&["forwarding_ns", "rekey_us", "tunnel_kib", "tunnel_us"]),
    });
    record.views.extend(plots(&record, "fitted", "Cost of a packet by the rate, measured and fitted"));
    record.history = history(model).into_iter().collect();
    record.warnings = model.warnings.clone();
    record
}

/// A verification: what was measured, and what the model had predicted.
pub fn verified(model: &Model, v: &Verification, told: Told) -> Record {
    let kept = v.taken.measured.iter().flat_map(|cell| Way::BOTH.map(|way| (cell, way)));
    let kept = kept.filter(|(c, way)| {
        let same = |p: &super::verified::Predicted| {
            (&p.suite, p.path, p.way, &p.mix, p.offered) == (&c.suite, c.path, *way, &c.mix.name, c.offered)
        };
        c.is_of(*way) && v.cells.iter().any(same)
    });
    let mut samples: Vec<Sample> = kept.flat_map(|(c, way)| of_cell(model, c, way, "predicted")).collect();
    samples.extend(v.taken.rates.iter().flat_map(of_rate));
    let question = "How far is what the planner predicts from what is measured, at loads that its calibration never saw?";
    let mut record = record(model, told, question, samples, true);
    record.program = v.taken.program.clone();
    record.machine = v.taken.machine.clone();
    let how = [
        ("median_error", v.median_error, "median of the errors' sizes, predicted over measured less one"),
        ("worst_error", v.worst_error, "the largest of them"),
        ("within", v.within, "share of the predictions that are off by a quarter at most"),
        ("median_spread", v.median_spread, "median over the loads of range by median of the repeats"),
        (
            "again_median",
            v.again.median,
            "loads of the calibration measured again: median of the differences' sizes",
        ),
        ("again_worst", v.again.worst, "the largest of them"),
    ];
    record.derived = how.map(|(name, value, how)| derived(name, Factors::new(), value, "share", how)).into();
    record.views = vec![View::Derived {
        title: "The planner's error".into(),
        names: how.iter().map(|(name, ..)| (*name).to_string()).collect(),
    }];
    if !v.taken.rates.is_empty() {
        record.views.push(factor_table(
            "Highest rates of one gateway",
            "highest rate",
            "kpps",
            Which::Median,
        ));
        record.views.push(factor_table("Predicted over measured", "highest rate", "kpps", Which::Ratio));
    }
    record.views.extend(loads("measured and predicted", "Predicted"));
    record.views.extend(plots(&record, "predicted", "Cost of a packet by the rate, predicted and measured"));
    record.warnings = v.taken.warnings.clone();
    record
}

/// Record of an answer about a machine.
pub fn carried(model: &Model, all: &[Carried], told: Told) -> Record {
    let sample = |c: &Carried, of: &str, each: &answer::Carries| {
        let measures = [
            ("mbps", each.mbps),
            ("carried", each.pps),
            ("out_mbps", each.out_mbps),
            ("in_mbps", each.in_mbps),
            ("tunnels", each.tunnels),
        ];
        single(factors([("suite", &c.suite), ("mix", &c.mix), ("machine", of)]), &measures)
    };
    let both = |c: &Carried| {
        [sample(c, "all of it", &c.whole), sample(c, &format!("share {}", c.shared.share), &c.shared)]
    };
    let question = "What does this machine carry of each suite and mix, by itself and beside a firewall?";
    let mut record = record(model, told, question, all.iter().flat_map(both).collect(), false);
    record.views = vec![View::Table(Table {
        title: "Carried".into(),
        only: Factors::new(),
        rows: ["suite", "mix", "machine"].map(String::from).into(),
        columns: Columns::Measures(
            ["mbps", "carried", "out_mbps", "in_mbps", "tunnels"]
                .map(|m| (m.to_string(), Which::Median))
                .into(),
        ),
    })];
    for mix in record.values("mix", &Factors::new()).into_iter().map(String::from).collect::<Vec<_>>() {
        record.views.push(View::Plot(Plot {
            name: as_file(&format!("carried {mix}")),
            title: format!("Inner packets each way, both ways at once, mix {mix}"),
            only: factors([("mix", &mix)]),
            x: "suite".into(),
            x_label: "suite".into(),
            y: "mbps".into(),
            which: Which::Median,
            series: vec!["machine".into()],
            log_x: false,
            log_y: false,
        }));
    }
    record
}

/// Record of an answer about links: name, suite, mix and need of each.
pub fn needed(model: &Model, all: &[(String, Ask, Need)], told: Told) -> Record {
    let sample = |(link, ask, n): &(String, Ask, Need)| {
        let of = [("link", link.as_str()), ("suite", &ask.suite), ("mix", &ask.mix.name)];
        let mbps = format!("{}", n.link_mbps);
        let measures = [
            ("link_pps", n.pps),
            ("inner_mbps", n.inner_mbps),
            ("bare_cores", n.bare_cores),
            ("cores", n.cores),
        ];
        single(factors::<4>([of[0], of[1], of[2], ("mbit_s", &mbps)]), &measures)
    };
    let question = "How many processors of this kind does a full link need?";
    let mut record = record(model, told, question, all.iter().map(sample).collect(), false);
    record.views = vec![
        View::Table(Table {
            title: "Needed".into(),
            only: Factors::new(),
            rows: ["link", "suite", "mix"].map(String::from).into(),
            columns: Columns::Measures(
                ["link_pps", "inner_mbps", "bare_cores", "cores"]
                    .map(|m| (m.to_string(), Which::Median))
                    .into(),
            ),
        }),
        View::Plot(Plot {
            name: "needed".into(),
            title: "Processors that a full link needs, with safety and share".into(),
            only: Factors::new(),
            x: "mbit_s".into(),
            x_label: "link, Mbit/s each way".into(),
            y: "cores".into(),
            which: Which::Median,
            series: ["suite", "mix"].map(String::from).into(),
            log_x: true,
            log_y: true,
        }),
    ];
    record.history = history(model).into_iter().collect();
    record
}

impl Record {
    /// With doubts of which only the sentences are known.
    pub fn doubted(mut self, sentences: &[String]) -> Self {
        let doubt = |text: &String| WarningRecord { kind: "model".into(), text: text.clone() };
        self.warnings.extend(sentences.iter().map(doubt));
        self
    }
}

fn single(factors: Factors, measures: &[(&str, f64)]) -> Sample {
    let finite = measures.iter().filter(|(_, v)| v.is_finite());
    let measures = finite.map(|(name, value)| ((*name).to_string(), *value)).collect();
    Sample { factors, repeat: 0, began: 0.0, measures, absent: [].into(), files: vec![] }
}

/// One direction of a load: its repeats, and what the model says.
fn of_cell(model: &Model, cell: &Cell, way: Way, said: &str) -> Vec<Sample> {
    let rate = cell.median(way).map_or(0.0, |s| s.pps);
    let of = |of: &str| {
        let mut all = factors([
            ("part", "load"),
            ("suite", &cell.suite),
            ("path", cell.path.name()),
            ("way", way.name()),
            ("mix", &cell.mix.name),
            ("offered", &cell.offered.map_or_else(|| "highest".into(), |pps| format!("{pps:.0}"))),
            ("rate", &format!("{rate:.0}")),
            ("of", of),
        ]);
        all.insert("kind".into(), if cell.mix.merged { "merged" } else { "packets" }.into());
        all
    };
    let mut samples: Vec<Sample> = Vec::new();
    for (seen, repeat) in cell.seen.iter().zip(0..) {
        let side = seen.side(way);
        let measures = [
            ("ns", side.ns),
            ("pps", side.pps),
            ("calls", side.calls),
            ("burst", side.burst),
            ("loss", seen.loss),
            ("other_share", seen.other_share),
        ];
        samples.push(Sample { repeat, ..single(of("measured"), &measures) });
    }
    samples.extend(model.predicts(cell, way).ok().map(|(_, ns)| single(of(said), &[("ns", ns)])));
    samples
}

fn of_rate(r: &Rate) -> [Sample; 2] {
    let of = |of: &str, pps: f64, ns: f64| {
        let all = factors([
            ("part", "highest rate"),
            ("suite", &r.suite),
            ("path", r.path.name()),
            ("way", r.way.name()),
            ("mix", &r.mix.name),
            ("loss", &r.loss),
            ("of", of),
        ]);
        single(all, &[("kpps", pps / 1e3), ("ns", ns)])
    };
    [of("measured", r.measured_pps, r.measured_ns), of("predicted", r.predicted_pps, r.predicted_ns)]
}

/// Tables of loads: what was measured beside what the model says, and the one over the other.
fn loads(both: &str, said: &str) -> Vec<View> {
    vec![
        factor_table(&format!("Cost of a packet, {both}"), "load", "ns", Which::Median),
        factor_table(&format!("{said} over measured"), "load", "ns", Which::Ratio),
    ]
}

fn factor_table(title: &str, part: &str, measure: &str, which: Which) -> View {
    let rows: &[&str] = match part {
        "load" => &["suite", "path", "way", "mix", "offered", "rate"],
        _ => &["suite", "path", "way", "mix"],
    };
    View::Table(Table {
        title: title.into(),
        only: factors([("part", part)]),
        rows: rows.iter().map(ToString::to_string).collect(),
        columns: Columns::Factor { factor: "of".into(), measure: measure.into(), which },
    })
}

/// A plot for each suite, path and direction: measured and what the model says, a line for each
/// mix, over the rate.
fn plots(record: &Record, said: &str, title: &str) -> Vec<View> {
    let kind = || factors([("part", "load"), ("kind", "packets"), ("of", said)]);
    let mut all = Vec::new();
    for figure in record.figures_with(&kind()) {
        let of = |name: &str| figure.factors.get(name).map_or("", String::as_str);
        let (suite, path, way) = (of("suite"), of("path"), of("way"));
        let mut only = factors([("part", "load"), ("kind", "packets"), ("suite", suite)]);
        only.extend(factors([("path", path), ("way", way)]));
        let name = as_file(&format!("{suite} {path} {way}"));
        if all.iter().any(|p: &Plot| p.name == name) {
            continue;
        }
        all.push(Plot {
            name,
            title: format!("{title}: {suite}, {path}, {way}"),
            only,
            x: "rate".into(),
            x_label: "packets a second that the gateway handled".into(),
            y: "ns".into(),
            which: Which::Median,
            series: ["mix", "of"].map(String::from).into(),
            log_x: true,
            log_y: true,
        });
    }
    all.into_iter().map(View::Plot).collect()
}

/// A name as one of a file.
fn as_file(name: &str) -> String {
    let lower = name.to_ascii_lowercase();
    let words: Vec<&str> =
        lower.split(|c: char| !c.is_ascii_alphanumeric()).filter(|w| !w.is_empty()).collect();
    words.join("-")
}

fn derived(name: &str, factors: Factors, value: f64, unit: &str, how: &str) -> Derived {
    Derived { name: name.into(), factors, value, unit: unit.into(), how: how.into() }
}

/// Figures of the model other than those of the paths.
fn parts(model: &Model) -> Vec<Derived> {
    let mut all = Vec::new();
    for suite in &model.suites {
        for burst in &suite.bursts {
            let of = factors([("suite", suite.suite.as_str()), ("burst", &burst.packets.to_string())]);
            for (work, line) in [("seal", &burst.seal), ("open", &burst.open)] {
                for (what, value) in [("packet", line.per_packet), ("byte", line.per_byte)] {
                    let how = "least squares of the relative error over four sizes";
                    all.push(derived(&format!("{work}_ns_per_{what}"), of.clone(), value, "ns", how));
                }
            }
        }
    }
    for (name, value, unit, how) in [
        (
            "forwarding_ns",
            model.forwarding.ns,
            "ns",
            "a quarter of what four boxes add to two hosts, for a packet",
        ),
        (
            "rekey_us",
            model.handshake.rekey_us,
            "us",
            "processor time of a daemon for a rekeying of a CHILD_SA",
        ),
        ("tunnel_kib", model.tunnel.kib, "KiB", "memory of many tunnels less that of few, by their number"),
        (
            "tunnel_us",
            model.tunnel.setup_us,
            "us",
            "processor time until many are up less that of few, by their number",
        ),
    ] {
        all.push(derived(name, Factors::new(), value, unit, how));
    }
    all
}

/// FreeS/WAN's estimate beside ours, for a link full of the largest packets.
fn history(model: &Model) -> Option<Historical> {
    let suite = ["3des-sha1"].into_iter().chain(model.suites.first().map(|s| s.suite.as_str()));
    let suite = suite.into_iter().find(|s| model.suite(s).is_ok())?;
    let need =
        answer::need(model, &Ask::of(suite, Path::Udp, Mix::frames(LARGEST)), Demand::full(1e8)).ok()?;
    let [ip, ipsec, sha1, des] = FREESWAN_CYCLES;
    Some(Historical {
        source: "FreeS/WAN, CPU estimate for a Pentium II".into(),
        then: format!(
            "cycles per byte: IP stack {ip}, IPsec without cryptography {ipsec}, with SHA-1 {sha1}, 3DES {des} more: {}; MHz for each \
             Mbit/s: {}, {} without safety",
            sha1 + des,
            FREESWAN_MHZ.0,
            FREESWAN_MHZ.1
        ),
        now: format!(
            "{suite}, frames of {LARGEST} B at 100 Mbit/s both ways: {:.1} cycles per byte and direction, {:.2} MHz for each Mbit/s \
             without share and safety",
            need.cycles_per_byte?,
            need.mhz_per_mbps?
        ),
        caveat: "then one processor without instructions for ciphers; the rule does not say whether links were full both ways, ours are"
            .into(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::super::verified::{Again, Predicted, Taken};
    use super::*;
    use crate::report::rendered;
    use crate::schema::breaches;

    fn told() -> Told {
        Told { command_line: vec!["ironswan".into()], started: "2026-11-22T10:00:00Z".into(), seconds: 1.0 }
    }

    fn sound(record: &Record) -> String {
        assert_eq!(breaches(&serde_json::to_value(record).expect("JSON")), [""; 0]);
        assert_eq!(record.faults(), [""; 0]);
        let files = rendered(record).expect("drawn");
        assert!(files.iter().any(|(name, _)| name.ends_with(".svg")), "no plot");
        files.into_iter().find(|(name, _)| name == "index.html").expect("a page").1
    }

    /// The sample's model with a load of two repeats.
    fn model() -> Model {
        let mut model = sample::model();
        let seen = |ns| {
            let mut seen = model.cells[0].seen[0];
            for side in [&mut seen.out, &mut seen.into] {
                (side.ns, side.pps, side.calls) = (ns, 9_990.0, 1.2);
            }
            seen
        };
        model.cells[0].seen = vec![seen(4_000.0), seen(5_000.0)];
        model
    }

    #[test]
    fn a_calibration_shows_what_was_measured_beside_the_fit() {
        let model = model();
        let record = calibrated(&model, told());
        // Two repeats each way, and the fit.
        assert_eq!(record.samples.len(), 6);
        let fitted =
            record.figures_with(&factors([("of", "fitted"), ("way", "out")])).next().cloned().expect("a fit");
        let (_, ns) = model.predicts(&model.cells[0], Way::Out).expect("a prediction");
        assert!((fitted.number("ns", Which::Ratio).expect("over measured") - ns / 4_500.0).abs() < 1e-12);
        let page = sound(&record);
        assert!(page.contains("seal ns per byte") && page.contains("3DES 116 more"), "{page}");
    }

    #[test]
    fn a_verification_shows_predictions_beside_measurements_and_rates_beside_both() {
        let model = model();
        let cell = |way| Predicted {
            suite: "aes128gcm16".into(),
            path: Path::Udp,
            way,
            mix: "64".into(),
            offered: Some(1e4),
            pps: 9_990.0,
            predicted_ns: 4_000.0,
            measured_ns: 4_500.0,
            spread: 0.1,
            error: -0.1,
        };
        let taken = Taken {
            measured: model.cells.clone(),
            rates: vec![sample::rate()],
            against: Some("2026-11-22T10:00:00Z".into()),
            ..sample::taken()
        };
        let v = Verification::of(Way::BOTH.map(cell).into(), Again::of(&[1.0]).expect("one"), taken)
            .expect("cells");
        let page = sound(&verified(&model, &v, told()));
        assert!(
            page.contains("Highest rates of one gateway") && page.contains("aes128gcm16-udp-out.svg"),
            "{page}"
        );
    }

    #[test]
    fn answers_are_records_as_well() {
        let model = sample::model();
        let ask = |mix| Ask::of("aes128gcm16", Path::Udp, mix);
        let asks = [ask(Mix::frames(64)), ask(Mix::parse("64:7,594:4").expect("a mix"))];
        let all = asks.clone().map(|a| answer::carries(&model, &a).expect("an answer"));
        let page = sound(&carried(&model, &all, told()).doubted(&["an old kernel".into()]));
        assert!(page.contains("carried-64-7-594-4.svg") && page.contains("an old kernel"), "{page}");
        let links = [("T1", 1.544e6), ("1G", 1e9)];
        let needs = links.map(|(name, bits)| {
            (
                name.to_string(),
                asks[0].clone(),
                answer::need(&model, &asks[0], Demand::full(bits)).expect("an answer"),
            )
        });
        assert!(sound(&needed(&model, &needs, told())).contains("needed.svg"));
    }
}
