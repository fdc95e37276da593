//! Derives figures, tables and plots from the samples of `lab rfc2544`. Pure.

use super::single::{ALONE, SINGLE_GATEWAY, Setup};
use crate::experiment::campaign::Conclusion;
use crate::load::Direction;
use crate::record::{
    Columns, Derived, Factors, Figure, Historical, Plot, Record, Table, View, Which, factors,
};

pub(super) fn conclude(record: &Record) -> Conclusion {
    let derived = derive(record);
    let mut views = Vec::new();
    let setup = setup(record);
    let only = |part: &str, direction: &str| factors([("part", part), ("direction", direction)]);
    for direction in record.values("direction", &Factors::new()) {
        let columns = |names: &[(&str, Which)]| {
            Columns::Measures(names.iter().map(|(n, w)| ((*n).to_string(), *w)).collect())
        };
        let rows = |names: &[&str]| names.iter().map(|n| (*n).to_string()).collect();
        use Which::{Median, Ratio};
        views.push(View::Table(Table {
            title: format!("Throughput by the loss that is allowed, {direction}"),
            only: only("throughput", direction),
            rows: rows(&["size", "loss", "dut"]),
            columns: columns(&[
                ("kpps", Median),
                ("kpps", Ratio),
                ("inner_gbps", Median),
                ("outer_gbps", Median),
                ("busy", Median),
                ("machine_ns", Median),
                ("gateways_ns", Median),
            ]),
        }));
        views.push(View::Table(Table {
            title: format!(
                "The tester alone, without a gateway (flood: all that the generator sends), {direction}"
            ),
            only: only(ALONE, direction),
            rows: rows(&["size", "loss"]),
            columns: columns(&[
                ("sent_kpps", Median),
                ("kpps", Median),
                ("inner_gbps", Median),
                ("bound_kpps", Median),
                ("loss", Median),
            ]),
        }));
        views.push(View::Table(Table {
            title: format!(
                "Latency below the throughput (of the strictest loss that was reached), {direction}"
            ),
            only: only("latency", direction),
            rows: rows(&["size", "load", "dut"]),
            columns: columns(&[
                ("p50_us", Median),
                ("p90_us", Median),
                ("p99_us", Median),
                ("p999_us", Median),
                ("max_us", Median),
                ("loss", Median),
            ]),
        }));
        let mut shown = vec![
            ("kpps", Median),
            ("inner_gbps", Median),
            ("loss", Median),
            ("of_peak", Median),
            ("busy", Median),
        ];
        if setup == Setup::Single {
            shown.insert(0, ("sent_kpps", Median));
            // Packets that the gateway has opened carry no ESP sequence numbers, so none can be
            // seen to be missing.
            let sealed = direction != setup.direction(Direction::Reverse);
            shown.extend(sealed.then_some([("missing", Median), ("unopened", Median)]).into_iter().flatten());
        }
        views.push(View::Table(Table {
            title: format!("At and past the throughput (offered: multiples of it; flood: all that the generator sends), {direction}"),
            only: only("curve", direction),
            rows: rows(&["size", "offered", "dut"]),
            columns: columns(&shown),
        }));
        let slug = direction.replace(' ', "-");
        for (part, by, name) in [("throughput", "loss", "throughput"), ("curve", "offered", "curve")] {
            views.push(View::Plot(Plot {
                name: format!("{name}-{slug}"),
                title: format!("Packets a second by frame size, {direction}"),
                only: only(part, direction),
                x: "size".into(),
                x_label: "frame, bytes".into(),
                y: "kpps".into(),
                which: Which::Median,
                series: vec!["dut".into(), by.into()],
                log_x: true,
                log_y: true,
            }));
        }
    }
    if record.figures_with(&factors([("part", "tester")])).next().is_some() {
        let shown = ["seal_kpps", "open_kpps"].map(|name| (name.to_string(), Which::Median));
        views.push(View::Table(Table {
            title: "The tester's own cryptography, by size and the system whose algorithms they are".into(),
            only: factors([("part", "tester")]),
            rows: vec!["size".into(), "dut".into()],
            columns: Columns::Measures(shown.to_vec()),
        }));
    }
    if !derived.is_empty() {
        views.push(View::Derived {
            title: "A loss of 0.001 % allowed, against none".into(),
            names: vec!["gain_of_little_loss".into()],
        });
    }
    Conclusion { history: history(record, &derived), derived, views }
}

/// The throughput with that loss over the throughput with none, by size, direction and system.
fn derive(record: &Record) -> Vec<Derived> {
    let strict = factors([("part", "throughput"), ("loss", "0")]);
    let gain = |figure: &crate::record::Figure| {
        let mut little = figure.factors.clone();
        little.insert("loss".into(), "0.001%".into());
        let (none, some) =
            (figure.number("kpps", Which::Median)?, record.figure(&little)?.number("kpps", Which::Median)?);
        let mut to = figure.factors.clone();
        to.retain(|k, _| ["size", "direction", "dut", "topology"].contains(&k.as_str()));
        (none > 0.0).then(|| Derived {
            name: "gain_of_little_loss".into(),
            factors: to,
            value: some / none,
            unit: "1".into(),
            how: "kpps at a loss of at most 0.001 % over kpps at none".into(),
        })
    };
    record.figures_with(&strict).filter_map(gain).collect()
}

/// The setup of a run, read from a factor of its figures.
fn setup(record: &Record) -> Setup {
    match record.figures_with(&factors([("topology", SINGLE_GATEWAY)])).next() {
        Some(_) => Setup::Single,
        None => Setup::Line,
    }
}

/// Loss of the figures that stand beside published ones. Of two directions only one is shown: that
/// of the traffic, or that of encrypting.
const LOSS: &str = "0.001%";

fn history(record: &Record, derived: &[Derived]) -> Vec<Historical> {
    let setup = setup(record);
    let direction = setup.direction(Direction::Forward);
    let source = "Freescale, IPsec on the MPC8548E, gateway to gateway (RFC 2544 figure 3)";
    let gains: Vec<f64> = derived.iter().filter(|d| d.factors["dut"] != "plain").map(|d| d.value).collect();
    let tunnel = |size: &str| {
        let only =
            factors([("part", "throughput"), ("size", size), ("direction", &direction), ("loss", LOSS)]);
        // The figure with the usual settings, or else the first.
        let mut ours: Vec<_> =
            record.figures_with(&only).filter(|f| f.factors["dut"].starts_with("ironswan")).collect();
        ours.sort_by_key(|f| f.factors["dut"] != "ironswan");
        ours.into_iter().find_map(|f| Some((f.clone(), f.number("inner_gbps", Which::Median)?)))
    };
    let cell = |figure: &Figure| {
        let of = |factor: &str| &figure.factors[factor];
        format!("{}, {} bytes, {}, a loss of at most {}", of("dut"), of("size"), of("direction"), of("loss"))
    };
    let gain = match gains.iter().copied().fold((f64::INFINITY, 0.0_f64), |(a, b), g| (a.min(g), b.max(g))) {
        (low, high) if high > 0.0 => format!("{:+.0} to {:+.0} %", (low - 1.0) * 100.0, (high - 1.0) * 100.0),
        _ => "no system reached both".into(),
    };
    let mut list = vec![Historical {
        source: source.into(),
        then: "the throughput at a loss of 0.001 % was about 25 % better than at none".into(),
        now: format!("{gain} (all systems but plain, all sizes)"),
        caveat: "Then a rare loss had a cause of its own in the hardware; here hosts and gateways share processors, and what is \
                 lost at low rates is mostly the scheduler's doing."
            .into(),
    }];
    if let Some((figure, gbps)) = tunnel("64").filter(|(_, gbps)| *gbps > 0.0) {
        let outer = figure.number("outer_gbps", Which::Median).unwrap_or(f64::NAN);
        list.push(Historical {
            source: source.into(),
            then: "with frames of 64 bytes the link outside carried nearly twice the Mbit/s of the plaintext inside".into(),
            now: format!(
                "{}: {outer:.2} Gb/s outside, {gbps:.2} Gb/s inside: {:.2} times",
                cell(&figure),
                outer / gbps
            ),
            caveat: "The proportion follows from the headers: an inner packet of 46 bytes, here AES-GCM, there 3DES or AES-CBC \
                     with SHA-1."
                .into(),
        });
    }
    if let Some((figure, gbps)) = tunnel("1456").or_else(|| tunnel("1424")) {
        let busy = figure.number("busy", Which::Median).unwrap_or(f64::NAN);
        list.push(Historical {
            source: source.into(),
            then: "MPC8548E, 1456 bytes: 1,057 Mbit/s using 38 % of the CPU (NanoSec), 69 % (Openswan)".into(),
            now: format!(
                "{}: {:.0} Mbit/s using {:.0} % of the machine",
                cell(&figure),
                gbps * 1e3,
                busy * 100.0
            ),
            caveat: match setup {
                Setup::Line => "Then one gateway's CPU with a crypto accelerator and a tester of its own; here the whole \
                                machine, which also is the tester, both hosts and the other gateway.",
                Setup::Single => "Then gateway to gateway, one gateway's CPU with a crypto accelerator and a tester of its own; \
                                  here one gateway that only encrypts, on the whole machine, which also is the tester.",
            }
            .into(),
        });
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::{Sample, figures};
    use crate::report::sample;

    #[test]
    fn history_is_set_beside_one_direction_one_system_and_one_loss() {
        let mut record = sample::record();
        let sample = |direction: &str, dut: &str, loss: &str, inner: f64| Sample {
            factors: factors([
                ("part", "throughput"),
                ("size", "64"),
                ("direction", direction),
                ("dut", dut),
                ("loss", loss),
            ]),
            repeat: 0,
            began: 0.0,
            measures: [("inner_gbps".to_string(), inner), ("outer_gbps".to_string(), 2.0 * inner)].into(),
            absent: [].into(),
            files: vec![],
        };
        record.samples = vec![
            sample("a to b", "plain", "0.001%", 9.0),
            sample("a to b", "ironswan-raw", "0.001%", 4.0),
            sample("a to b", "ironswan", "0.001%", 1.0),
            sample("a to b", "ironswan", "0.1%", 2.0),
            sample("a to b", "strongswan", "0.001%", 3.0),
            sample("both ways", "ironswan", "0.001%", 5.0),
        ];
        record.figures = figures(&record.samples, None);
        let history = history(&record, &[]);
        let now = "ironswan, 64 bytes, a to b, a loss of at most 0.001%: 2.00 Gb/s outside, 1.00 Gb/s inside: 2.00 times";
        assert_eq!((history.len(), history[1].now.as_str()), (2, now));
        record.figures.retain(|f| !f.factors["dut"].starts_with("ironswan"));
        assert_eq!(super::history(&record, &[]).len(), 1);
    }
}
