//! Figures and views of `lab tunnels`, made of its samples. Pure.

use crate::experiment::campaign::Conclusion;
use crate::record::{Columns, Derived, Factors, Historical, Plot, Record, Table, View, Which, factors};

/// Tables, plots, derived numbers, and what was published.
pub(super) fn conclude(record: &Record) -> Conclusion {
    Conclusion { derived: derived(record), views: views(record), history: history(record) }
}

fn only(what: &str) -> Factors {
    factors([("what", what)])
}

fn table(title: &str, what: &str, rows: &[&str], measures: &[&str]) -> View {
    View::Table(Table {
        title: title.into(),
        only: only(what),
        rows: rows.iter().map(ToString::to_string).collect(),
        columns: Columns::Measures(measures.iter().map(|m| ((*m).to_string(), Which::Median)).collect()),
    })
}

fn plot(name: &str, title: &str, what: &str, (x, x_label): (&str, &str), y: &str, series: &[&str]) -> Plot {
    Plot {
        name: name.into(),
        title: title.into(),
        only: only(what),
        x: x.into(),
        x_label: x_label.into(),
        y: y.into(),
        which: Which::Median,
        series: series.iter().map(ToString::to_string).collect(),
        log_x: true,
        log_y: false,
    }
}

fn views(record: &Record) -> Vec<View> {
    let both = ["dut", "tunnels"];
    let mut views = vec![
        table(
            "All tunnels up, as after a reboot",
            "bring-up",
            &both,
            &["up_s", "ready_s", "setups_per_s", "cpu_us", "growth", "kib_loaded", "kib_per_tunnel"],
        ),
        View::Plot(Plot {
            log_y: true,
            ..plot(
                "up",
                "Time until all tunnels are up",
                "bring-up",
                ("tunnels", "tunnels"),
                "up_s",
                &["dut"],
            )
        }),
        View::Plot(Plot {
            log_x: false,
            ..plot(
                "tenths",
                "Processor time of a tunnel, by tenths of the tunnels",
                "bring-up by tenths",
                ("tenth", "tenth of the tunnels"),
                "tenth_us",
                &both,
            )
        }),
        table("Signatures alone", "signatures", &["auth"], &["sign_us", "verify_us", "signatures_us"]),
        table(
            "Packets, each over a random tunnel",
            "traffic",
            &both,
            &["ns_per_packet", "cycles_per_packet", "loss", "offered", "carried"],
        ),
        table("The initiating gateway restarted", "restart", &both, &["restart_s", "stop_s"]),
        table("Peers that are gone", "dead", &both, &["dead_us", "dead_packets"]),
        table(
            "One gateway, simulated peers",
            "simulated peers",
            &["tunnels"],
            &["up_s", "setups_per_s", "cpu_us", "growth", "kib_loaded", "kib_per_tunnel"],
        ),
        View::Table(Table {
            title: "A cache of keys: hit rate by its entries (LRU)".into(),
            only: only("key cache"),
            rows: vec!["trace".into(), "tunnels".into()],
            columns: Columns::Factor {
                factor: "entries".into(),
                measure: "hit_rate".into(),
                which: Which::Median,
            },
        }),
        View::Plot(plot(
            "key-cache",
            "Hit rate of a cache of keys",
            "key cache",
            ("entries", "entries of the cache"),
            "hit_rate",
            &["trace"],
        )),
    ];
    views.retain(|v| match v {
        View::Table(t) => record.figures_with(&t.only).next().is_some(),
        View::Plot(p) => record.figures_with(&p.only).next().is_some(),
        View::Derived { .. } => true,
    });
    let derived = derived(record);
    let titles = [
        ("us_per_tunnel", "The cost of one more tunnel"),
        (
            "of_signatures",
            "What certificates cost beyond pre-shared keys, by what their signatures cost alone",
        ),
    ];
    for (name, title) in titles.into_iter().filter(|(name, _)| derived.iter().any(|d| d.name == *name)) {
        views.insert(2, View::Derived { title: title.into(), names: vec![name.into()] });
    }
    views
}

/// A measure of one system with so many tunnels.
fn median(record: &Record, what: &str, dut: &str, tunnels: &str, measure: &str) -> Option<f64> {
    record
        .figure(&factors([("what", what), ("dut", dut), ("tunnels", tunnels)]))?
        .number(measure, Which::Median)
}

/// Numbers of tunnels that a system was measured with, in order.
fn numbers(record: &Record, what: &str, dut: &str) -> Vec<u32> {
    let only = factors([("what", what), ("dut", dut)]);
    let mut all: Vec<u32> =
        record.values("tunnels", &only).into_iter().filter_map(|n| n.parse().ok()).collect();
    all.sort_unstable();
    all
}

/// Cost of one more tunnel, between the two largest numbers of tunnels of each system, so that
/// costs that occur once are not in it.
fn derived(record: &Record) -> Vec<Derived> {
    let mut all = Vec::new();
    for dut in record.values("dut", &only("bring-up")) {
        if let [.., few, many] = numbers(record, "bring-up", dut).as_slice() {
            let us =
                |n: &u32| Some(median(record, "bring-up", dut, &n.to_string(), "cpu_us")? * f64::from(*n));
            if let (Some(a), Some(b)) = (us(few), us(many)) {
                all.push(Derived {
                    name: "us_per_tunnel".into(),
                    factors: factors([("dut", dut)]),
                    value: (b - a) / f64::from(many - few),
                    unit: "us".into(),
                    how: format!(
                        "processor time with {many} tunnels less that with {few}, over the difference"
                    ),
                });
            }
        }
    }
    all.extend(of_signatures(record));
    all
}

/// Processor time of a tunnel with certificates less that of one with a pre-shared key, by that of
/// its signatures alone.
fn of_signatures(record: &Record) -> Vec<Derived> {
    let mut all = Vec::new();
    for auth in record.values("auth", &only("signatures")) {
        let alone = record.figure(&factors([("what", "signatures"), ("auth", auth)]));
        let alone = alone.and_then(|figure| figure.number("signatures_us", Which::Median));
        for dut in record.values("dut", &only("bring-up")) {
            let Some(system) = dut.strip_suffix(auth).and_then(|dut| dut.strip_suffix('-')) else { continue };
            let Some(most) = numbers(record, "bring-up", dut).last().map(u32::to_string) else { continue };
            let us = |dut: &str| median(record, "bring-up", dut, &most, "cpu_us");
            if let (Some(with), Some(without), Some(alone)) = (us(dut), us(system), alone) {
                all.push(Derived {
                    name: "of_signatures".into(),
                    factors: factors([("dut", dut), ("tunnels", &*most)]),
                    value: (with - without) / alone,
                    unit: "1".into(),
                    how: "us/tunnel less that with pre-shared keys, over the time of the signatures alone"
                        .into(),
                });
            }
        }
    }
    all
}

fn history(record: &Record) -> Vec<Historical> {
    let most = numbers(record, "bring-up", "ironswan").last().map(u32::to_string).unwrap_or_default();
    let of = |what: &str, measure: &str| median(record, what, "ironswan", &most, measure);
    let number = |v: Option<f64>, digits: usize| v.map_or("not measured".into(), |v| format!("{v:.digits$}"));
    let caveat = "then a Pentium-class machine, 3DES and 1,024-bit or larger Diffie-Hellman in one process, and a routing table \
                  searched from its beginning; now two gateways on one machine that share its processors with the laboratory";
    vec![
        Historical {
            source: "FreeS/WAN, \"many tunnels\" (Denker 2000)".into(),
            then: "200 tunnels took several minutes at each restart, and the time grew with the square of their number"
                .into(),
            now: format!(
                "{most} tunnels are up {} s after the start and {} s after a restart; a tunnel of the last tenth costs {} times \
                 one of the second",
                number(of("bring-up", "up_s"), 2),
                number(of("restart", "restart_s"), 2),
                number(of("bring-up", "growth"), 2)
            ),
            caveat: caveat.into(),
        },
        Historical {
            source: "FreeS/WAN, the same".into(),
            then: "a tunnel to a dead peer cost half a key exchange every 90 seconds".into(),
            now: format!(
                "a dead peer costs {} us of processor time and {} packets a second while it is tried for the first time",
                number(of("dead", "dead_us"), 1),
                number(of("dead", "dead_packets"), 3)
            ),
            caveat: "the window is the first one after the start, when requests are sent again after 4, 7 and 13 s; later attempts \
                     are up to 300 s apart, and the key pair of an unanswered attempt is used again"
                .into(),
        },
    ]
}
