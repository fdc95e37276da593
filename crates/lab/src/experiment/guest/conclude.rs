//! What the counts show, what they do not say, and the published figures beside them. Pure.

use super::super::campaign::Conclusion;
use crate::plan::fit;
use crate::record::{Columns, Derived, Factors, Historical, Plot, Record, Table, View, Which, factors};

/// What no count of instructions says; beside each table.
pub(super) const SILENT: &str = "Instructions, not time: caches and what a wake-up costs are not in them, and an AES \
                      instruction counts as much as an addition, a copied word (`rep movs`) as an instruction of its own";

/// The engines of a suite, as a setting of the run.
pub(super) fn engines(guest: &str, here: &str, kernel: &str) -> String {
    format!("IronSwan's {guest} in the guest, {here} on this machine; the guest's kernel's {kernel}")
}

/// The engines of all suites, for people.
pub(super) fn engines_used(record: &Record) -> String {
    let of_suite = |(k, v): (&String, &String)| Some(format!("{}: {v}", k.strip_prefix("engines, ")?));
    record.settings.iter().filter_map(of_suite).collect::<Vec<_>>().join("; ")
}

pub(super) fn conclude(record: &Record) -> Conclusion {
    let beside = format!("{SILENT}. Engines: {}", engines_used(record));
    let table = |title: &str, traffic: &str, measure: &str, which| {
        View::Table(Table {
            title: format!("{title}. {beside}"),
            only: factors([("traffic", traffic)]),
            rows: vec!["system".into()],
            columns: Columns::Factor { factor: "load".into(), measure: measure.into(), which },
        })
    };
    let has = |traffic: &str| record.figures.iter().any(|f| f.factors["traffic"] == traffic);
    let plain = record.figures.iter().any(|f| f.factors["system"] == "plain");
    let mut views = Vec::new();
    for (traffic, measure, unit) in [("UDP", "per_packet", "packet"), ("TCP", "per_byte", "byte")] {
        if !has(traffic) {
            continue;
        }
        views.push(table(
            &format!("Instructions per {unit} of {traffic}, the whole line"),
            traffic,
            measure,
            Which::Median,
        ));
        if plain {
            let title = format!("Instructions per {unit} of {traffic} beyond plain forwarding");
            views.push(table(&title, traffic, measure, Which::Added));
        }
    }
    if record.figures.iter().any(|f| f.number("switches", Which::Median).is_some()) {
        let title = "Switches from one thread to another per packet of UDP: a gateway in user space takes the packets that wait \
                     when it is woken, so a burst that is sent in pieces costs more wake-ups";
        views.push(View::Table(Table {
            title: title.into(),
            only: factors([("traffic", "UDP")]),
            rows: vec!["system".into()],
            columns: Columns::Factor {
                factor: "load".into(),
                measure: "switches".into(),
                which: Which::Median,
            },
        }));
    }
    let derived = by_size(record);
    if !derived.is_empty() {
        views.push(View::Derived {
            title: format!(
                "Instructions of a UDP packet = for_packet + for_byte x size of the frame, by least squares over the sizes. {SILENT}"
            ),
            names: vec![FOR_PACKET.into(), FOR_BYTE.into()],
        });
    }
    for (traffic, measure, unit) in [("UDP", "per_packet", "packet"), ("TCP", "per_byte", "byte")] {
        if has(traffic) {
            views.push(View::Plot(Plot {
                name: traffic.to_ascii_lowercase(),
                title: format!("Instructions per {unit} of {traffic}"),
                only: factors([("traffic", traffic)]),
                x: "load".into(),
                x_label: "load".into(),
                y: measure.into(),
                which: Which::Median,
                series: vec!["system".into()],
                log_x: false,
                log_y: false,
            }));
        }
    }
    Conclusion { derived, views, history: vec![history(record)] }
}

/// The parts of a packet's instructions.
const FOR_PACKET: &str = "for_packet";
const FOR_BYTE: &str = "for_byte";

/// Per system and number of packets in a burst: instructions of a packet without its bytes, and of
/// a byte.
fn by_size(record: &Record) -> Vec<Derived> {
    let mut groups: Vec<(Factors, Vec<(f64, f64)>)> = Vec::new();
    for figure in record.figures_with(&factors([("traffic", "UDP")])) {
        // As the orders name a load: size, then packets at a time.
        let Some((size, burst)) = figure.factors["load"].split_once(" B, ") else { continue };
        let Some(point) = size.parse().ok().zip(figure.number("per_packet", Which::Median)) else { continue };
        let key = factors([("packets", burst), ("system", &*figure.factors["system"])]);
        match groups.iter_mut().find(|(k, _)| *k == key) {
            Some((_, points)) => points.push(point),
            None => groups.push((key, vec![point])),
        }
    }
    let mut derived = Vec::new();
    for (factors, points) in groups {
        let Some(line) = fit::line(&points) else { continue };
        let how = format!("least squares over {} sizes", points.len());
        for (name, value, unit) in
            [(FOR_PACKET, line.intercept, "instructions"), (FOR_BYTE, line.slope, "instructions/byte")]
        {
            derived.push(Derived {
                name: name.into(),
                factors: factors.clone(),
                value,
                unit: unit.into(),
                how: how.clone(),
            });
        }
    }
    derived
}

/// FreeS/WAN's cycles per byte beside our instructions.
fn history(record: &Record) -> Historical {
    let of = |system: &str| {
        let f: Factors = factors([("traffic", "TCP"), ("load", "wire"), ("system", system)]);
        Some((system.to_string(), record.figure(&f)?.number("per_byte", Which::Median)?))
    };
    let systems: Vec<&str> = record.figures.iter().map(|f| f.factors["system"].as_str()).collect();
    let mut seen: Vec<&str> = Vec::new();
    systems.into_iter().for_each(|s| {
        if !seen.contains(&s) {
            seen.push(s);
        }
    });
    let now: Vec<String> = seen.into_iter().filter_map(of).map(|(s, n)| format!("{s} {n:.1}")).collect();
    let now = if now.is_empty() {
        "TCP on the wire was not measured".into()
    } else {
        format!("instructions per byte of TCP on the wire, four boxes together: {}", now.join(", "))
    };
    Historical {
        source: "FreeS/WAN, about 2000: cycles per byte of one Pentium II gateway".into(),
        then: "IP forwarding 5, IPsec without cryptography 11, with SHA-1 24, with 3DES and SHA-1 140".into(),
        now,
        caveat: "Theirs are cycles of one gateway, ours instructions of both gateways and both hosts, and with an AES that the \
                 processor has instructions for. What is beyond plain forwarding is two gateways' work: half of it is one's."
            .into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Baseline, Sample, figures};
    use crate::report::sample;

    fn record(systems: &[(&str, f64)]) -> Record {
        let mut record = sample::record();
        record.settings =
            [("engines, aes128gcm16".to_string(), engines("aws-lc", "vaes", "rfc4106-gcm-aesni"))].into();
        record.samples = systems
            .iter()
            .flat_map(|(system, n)| {
                [("UDP", "100 B, bursts of 32", "per_packet", 1000.0 * n), ("TCP", "wire", "per_byte", *n)]
                    .map(|(traffic, load, measure, value)| Sample {
                        factors: factors([("traffic", traffic), ("load", load), ("system", system)]),
                        repeat: 0,
                        began: 0.0,
                        measures: [(measure.to_string(), value)].into(),
                        absent: [].into(),
                        files: vec![],
                    })
            })
            .collect();
        let baseline = Baseline { factor: "system".into(), value: "plain".into() };
        record.figures = figures(&record.samples, Some(&baseline));
        record
    }

    #[test]
    fn beside_each_table_stands_what_it_does_not_say_and_which_engines_ran() {
        let made = conclude(&record(&[("plain", 14.0), ("ironswan", 33.2)]));
        let titles: Vec<&str> = made
            .views
            .iter()
            .filter_map(|v| if let View::Table(t) = v { Some(t.title.as_str()) } else { None })
            .collect();
        assert_eq!(titles.len(), 4);
        for part in [
            "caches",
            "wake-up",
            "rep movs",
            "aws-lc in the guest, vaes on this machine",
            "rfc4106-gcm-aesni",
        ] {
            assert!(titles.iter().all(|t| t.contains(part)), "{part}: {titles:?}");
        }
        assert!(made.history[0].now.ends_with("plain 14.0, ironswan 33.2"), "{}", made.history[0].now);
    }

    #[test]
    fn a_packets_instructions_are_divided_between_itself_and_its_bytes() {
        let mut record = record(&[("ironswan", 33.2)]);
        let mut small = record.samples[0].clone();
        small.factors.insert("load".into(), "600 B, bursts of 32".into());
        small.measures.insert("per_packet".into(), 43_200.0);
        record.samples.push(small);
        record.figures = figures(&record.samples, None);
        let parts = by_size(&record);
        let shown: Vec<(&str, f64)> =
            parts.iter().map(|d| (d.name.as_str(), (d.value * 1e6).round() / 1e6)).collect();
        assert_eq!(shown, [("for_packet", 31_200.0), ("for_byte", 20.0)]);
        assert_eq!(parts[0].factors, factors([("packets", "bursts of 32"), ("system", "ironswan")]));
        assert!(conclude(&record).views.iter().any(|v| matches!(v, View::Derived { .. })));
    }

    #[test]
    fn without_plain_nothing_is_beyond_it() {
        let made = conclude(&record(&[("ironswan", 33.2)]));
        let beyond = |v: &&View| matches!(v, View::Table(t) if t.title.contains("beyond"));
        assert_eq!((made.views.iter().filter(beyond).count(), made.views.len()), (0, 4));
    }
}
