//! Figures and views of `lab topologies`: shares of plain, dips, and what the processor's crypto
//! instructions are worth. Pure.

use super::{ABOUT, TopologyLoad};
use crate::dut::Hardware;
use crate::experiment::campaign::Conclusion;
use crate::record::{
    Baseline, Columns, Derived, Factors, Figure, Historical, Plot, Record, Sample, Table, View, Which,
    factors, figures,
};
use crate::report::Warning;

/// A size is a dip when its share of plain is below this part of the shares of both its neighbours.
const DIP: f64 = 0.85;

/// Why a tunnel may carry more than plain forwarding, by load.
const WHY_UDP: &str = "one sender's plain packets are carried in its own context, on one processor, and a tunnel's by \
                       gateways on all of them";
const WHY_TCP: &str = "TCP joins small writes where the path is slower than the writer, so that the tunnel carried fewer \
                       and larger packets than plain";

/// Throughputs of tunnels above plain forwarding's: a doubt that explains them. The conclusions
/// leave them out.
pub(super) fn above_plain(samples: &[Sample], load: TopologyLoad) -> Option<Warning> {
    let baseline =
        ABOUT.baseline.map(|(factor, value)| Baseline { factor: factor.into(), value: value.into() });
    let all = figures(samples, baseline.as_ref());
    let ratio = |figure: &Figure| figure.number("gbps", Which::Ratio);
    let above: Vec<(&Figure, f64)> =
        all.iter().filter_map(|f| Some((f, ratio(f)?))).filter(|(_, ratio)| *ratio > 1.0).collect();
    let (worst, ratio_of_worst) = above.iter().max_by(|a, b| a.1.total_cmp(&b.1))?;
    let of = |factor: &str| worst.factors.get(factor).map_or("-", String::as_str);
    Some(Warning::AbovePlain {
        cells: above.len(),
        of: all.iter().filter(|f| ratio(f).is_some()).count(),
        worst: format!("{} of {} at {} B", of("system"), of("topology"), of("size")),
        ratio: *ratio_of_worst,
        why: if load == TopologyLoad::Udp { WHY_UDP } else { WHY_TCP },
    })
}

/// The sizes at which `shares` (by size, ascending) fall below [`DIP`] of both neighbours, with how
/// deep: the share over the lower neighbour's.
fn dips(shares: &[(u64, f64)]) -> Vec<(u64, f64)> {
    let part = |w: &[(u64, f64)]| w[1].1 / w[0].1.min(w[2].1);
    shares.windows(3).map(|w| (w[1].0, part(w))).filter(|(_, part)| *part < DIP).collect()
}

/// A number of every figure by size, of every system on every topology.
fn by_size(record: &Record, number: impl Fn(&Figure) -> Option<f64>) -> Vec<(Factors, Vec<(u64, f64)>)> {
    let mut all: Vec<(Factors, Vec<(u64, f64)>)> = Vec::new();
    for figure in &record.figures {
        let Some(value) = number(figure) else { continue };
        let Some(size) = figure.factors.get("size").and_then(|s| s.parse().ok()) else { continue };
        let mut key = figure.factors.clone();
        key.remove("size");
        match all.iter_mut().find(|(k, _)| *k == key) {
            Some((_, list)) => list.push((size, value)),
            None => all.push((key, vec![(size, value)])),
        }
    }
    all.iter_mut().for_each(|(_, list)| list.sort_by_key(|(size, _)| *size));
    all
}

/// Smallest and largest of some numbers.
fn range(all: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    all.into_iter().fold(None, |range: Option<(f64, f64)>, s| {
        Some(range.map_or((s, s), |(low, high)| (low.min(s), high.max(s))))
    })
}

/// Throughput with the processor's crypto instructions over that without, of the same system,
/// topology and size.
fn hardware(record: &Record, on: &Figure) -> Option<f64> {
    let mut factors = on.factors.clone();
    factors.get_mut("system")?.push_str(Hardware::OFF);
    let off = record.figure(&factors)?.number("gbps", Which::Median)?;
    Some(on.number("gbps", Which::Median)? / off)
}

/// The least and the largest of these over the sizes, for each system on each topology.
fn worth(record: &Record) -> Vec<Derived> {
    let mut derived = Vec::new();
    for (key, list) in by_size(record, |figure| hardware(record, figure)) {
        let Some((least, most)) = range(list.iter().map(|(_, times)| *times)) else { continue };
        for (name, value) in [("hardware_least", least), ("hardware_most", most)] {
            derived.push(Derived {
                name: name.into(),
                factors: key.clone(),
                value,
                unit: "times".into(),
                how: format!(
                    "Gb/s with the processor's crypto instructions over Gb/s without, over {} sizes",
                    list.len()
                ),
            });
        }
    }
    derived
}

pub(super) fn conclude(record: &Record) -> Conclusion {
    let udp = record.settings.get("load").is_some_and(|load| load == &TopologyLoad::Udp.to_string());
    // A share above 1 is explained by the warning, and no conclusion is drawn from it.
    let share = |figure: &Figure| figure.number("gbps", Which::Ratio).filter(|share| *share <= 1.0);
    let shares = by_size(record, share);
    let mut derived = Vec::new();
    let mut found = Vec::new();
    for (key, list) in &shares {
        for (size, part) in dips(list) {
            derived.push(Derived {
                name: "dip".into(),
                factors: key
                    .iter()
                    .map(|(k, v)| (k.clone(), v.clone()))
                    .chain([("size".into(), size.to_string())])
                    .collect(),
                value: part,
                unit: "of the lower neighbour's share".into(),
                how: format!("the share of plain is below {DIP} of both neighbouring sizes'"),
            });
            found.push(format!("{} B ({}, {})", size, key["topology"], key["system"]));
        }
    }
    let worth = worth(record);
    let mut views = views(record, udp);
    if !worth.is_empty() {
        views.push(View::Derived {
            title: "What the processor's crypto instructions are worth: throughput with over without".into(),
            names: vec!["hardware_least".into(), "hardware_most".into()],
        });
    }
    if !derived.is_empty() {
        views.push(View::Derived { title: "Dips".into(), names: vec!["dip".into()] });
    }
    let all = shares.iter().flat_map(|(_, list)| list.iter().map(|(_, share)| *share));
    let measured = range(all).map_or_else(
        || "no share of plain was measured".to_string(),
        |(low, high)| format!("{:.0} to {:.0} % of plain over all cells", low * 100.0, high * 100.0),
    );
    let dip = if shares.iter().all(|(_, list)| list.len() < 3) {
        "too few sizes to look for dips".to_string()
    } else if found.is_empty() {
        format!("no size is a dip (below {DIP} of both its neighbours' shares)")
    } else {
        format!("dips (below {DIP} of both neighbours' shares) at {}", found.join(", "))
    };
    let hardware = range(worth.iter().map(|d| d.value)).map_or_else(
        || "the hardware was not measured on and off".to_string(),
        |(least, most)| {
            format!(
                "the processor's crypto instructions are worth {least:.2} to {most:.2} times the software"
            )
        },
    );
    let packets = if udp {
        "a size is that of a packet, up to 1,372 B; theirs up to 8 KB were writes, which TCP or fragments carried."
    } else {
        "TCP joins small writes when the path is slower than the writer, whatever TCP_NODELAY says: with small writes the \
         cost of the system call hides that of the tunnel, and 64 KB buffers cross the links."
    };
    let history = vec![Historical {
        source: "Miltchev, Ioannidis, Keromytis, USENIX FREENIX 2002: ttcp, OpenBSD, 100 Mbit/s Ethernet".into(),
        then: "IPsec with a crypto card had 40 % of plain with small writes and 30 % with 8 KB; the card more than \
               doubled software; a dip at writes of 512 B"
            .into(),
        now: format!("{measured}; {hardware}; {dip}"),
        caveat: format!(
            "Then the wire limited plain and the processor IPsec, on a machine each; here all boxes share the processors \
             of one machine. Their hardware was a card beside the processor, ours are instructions. Here {packets}"
        ),
    }];
    derived.extend(worth);
    Conclusion { derived, views, history }
}

fn views(record: &Record, udp: bool) -> Vec<View> {
    let size = if udp { "bytes per message" } else { "bytes per write" };
    let mut views = Vec::new();
    for topology in record.values("topology", &Factors::new()) {
        let only = factors([("topology", topology)]);
        let mut table = |what: &str, measure: &str, which| {
            views.push(View::Table(Table {
                title: format!("{topology}: {what}"),
                only: only.clone(),
                rows: vec!["system".into()],
                columns: Columns::Factor { factor: "size".into(), measure: measure.into(), which },
            }));
        };
        table(&format!("throughput by {size}"), "gbps", Which::Median);
        table("share of plain", "gbps", Which::Ratio);
        table("cost", "machine_ns", Which::Median);
        if record.measure("rtt_ms").is_some() {
            views.push(View::Table(Table {
                title: format!("{topology}: the emulated link ({})", record.settings["link"]),
                only: only.clone(),
                rows: vec!["system".into(), "size".into()],
                columns: Columns::Measures(
                    ["rtt_ms", "link_lost", "relay_busy"].map(|m| (m.into(), Which::Median)).to_vec(),
                ),
            }));
        }
        views.push(View::Plot(Plot {
            name: topology.into(),
            title: format!("{topology}: throughput as a share of plain"),
            only,
            x: "size".into(),
            x_label: size.into(),
            y: "gbps".into(),
            which: Which::Ratio,
            series: vec!["system".into()],
            log_x: true,
            log_y: false,
        }));
    }
    views
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample(system: &str, size: &str, gbps: f64) -> Sample {
        Sample {
            factors: factors([("topology", "line"), ("system", system), ("size", size)]),
            repeat: 0,
            began: 0.0,
            measures: [("gbps".to_string(), gbps)].into(),
            absent: [].into(),
            files: vec![],
        }
    }

    #[test]
    fn a_dip_is_below_both_neighbours_by_the_stated_part() {
        let shares = [(64, 0.40), (256, 0.40), (512, 0.20), (1024, 0.35), (8192, 0.30)];
        let all = dips(&shares);
        assert_eq!(all.len(), 1);
        assert_eq!(all[0].0, 512);
        assert!((all[0].1 - 0.2 / 0.35).abs() < 1e-9);
        // Falling, rising, flat, or too little.
        assert!(dips(&[(1, 0.9), (2, 0.6), (3, 0.3)]).is_empty());
        assert!(dips(&[(1, 0.3), (2, 0.6), (3, 0.9)]).is_empty());
        assert!(dips(&[(1, 0.5), (2, 0.43), (3, 0.5)]).is_empty());
        assert!(dips(&[(1, 0.5), (2, 0.1)]).is_empty());
    }

    #[test]
    fn more_than_plain_is_explained_by_the_load() {
        let samples = [sample("plain", "64", 1.0), sample("x", "64", 2.5), sample("y", "64", 0.5)];
        assert_eq!(above_plain(&samples[2..], TopologyLoad::Udp), None);
        assert_eq!(above_plain(&[samples[0].clone(), samples[2].clone()], TopologyLoad::Udp), None);
        for (load, why) in
            [(TopologyLoad::Udp, "in its own context"), (TopologyLoad::Tcp, "joins small writes")]
        {
            let doubt = above_plain(&samples, load).expect("a doubt");
            assert_eq!(doubt.kind(), "above-plain");
            let text = doubt.text();
            assert!(text.contains("1 of 2") && text.contains("x of line at 64 B: 2.50 times"), "{text}");
            assert!(text.contains(why), "{text}");
        }
    }
}
