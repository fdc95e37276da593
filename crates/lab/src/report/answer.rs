//! The answer of an experiment in a sentence, for the top of its report: what it says of IronSwan,
//! or where IronSwan was not measured, of the first system behind the baseline. From the record
//! alone. Pure.

use super::confirmed;
use super::number::number;
use super::one_gateway;
use crate::record::{Factors, Figure, Record, Which, factors};

/// The answer to the question of a record. `None` where its figures are too few for one, and for
/// an experiment whose answer is a verdict of its own.
pub(super) fn answer(record: &Record) -> Option<String> {
    match record.experiment.as_str() {
        "line" => line(record),
        "topologies" => topologies(record),
        "transfer" => transfer(record),
        "background" => background(record),
        "driver" => driver(record),
        "rfc2544" => rfc2544(record),
        "flood" => flood(record),
        "fragments" => fragments(record),
        "compare" => compare(record),
        "compression" => compression(record),
        "tunnels" => tunnels(record),
        "profile" => one_gateway::profile(record),
        "lowend" => lowend(record),
        "cores" => one_gateway::cores(record),
        _ => None,
    }
}

/// The value of a factor that the answer is about: IronSwan with its usual settings, or with the
/// first others that were measured, or else the first value that is not the baseline's.
pub(super) fn ours<'a>(record: &'a Record, factor: &str, only: &Factors) -> Option<&'a str> {
    let values = record.values(factor, only);
    let begins = |value: &&&str| value.starts_with("ironswan");
    let baseline = record.baseline.as_ref().map(|b| b.value.as_str());
    let usual = values.iter().find(|value| **value == "ironswan").or_else(|| values.iter().find(begins));
    usual.or_else(|| values.iter().find(|value| Some(**value) != baseline)).copied()
}

/// The figure with exactly these factors.
pub(super) fn figure<'a, const N: usize>(record: &'a Record, of: [(&str, &str); N]) -> Option<&'a Figure> {
    record.figure(&factors(of))
}

pub(super) fn median(figure: &Figure, measure: &str) -> Option<f64> {
    figure.number(measure, Which::Median)
}

pub(super) fn percent(share: f64) -> String {
    format!("{} %", number(share * 100.0))
}

/// The smallest and the largest.
fn extremes(values: impl Iterator<Item = f64>) -> Option<(f64, f64)> {
    values.fold(None, |range, v| {
        Some(range.map_or((v, v), |(low, high): (f64, f64)| (low.min(v), high.max(v))))
    })
}

/// The first load at which as much is carried as goes: a rate that was offered is carried by all.
fn line(record: &Record) -> Option<String> {
    let loads = record.values("load", &Factors::new());
    loads.iter().filter(|load| !load.contains(", at ")).find_map(|load| {
        let dut = ours(record, "dut", &factors([("load", load)]))?;
        let tunnel = figure(record, [("dut", dut), ("load", load)])?;
        let plain = figure(record, [("dut", "plain"), ("load", load)])?;
        let mut text = format!(
            "Through {dut} TCP has {} of what plain forwarding carries ({} of {} Gb/s: {load})",
            percent(tunnel.number("gbps", Which::Ratio)?),
            number(median(tunnel, "gbps")?),
            number(median(plain, "gbps")?)
        );
        if let Some(added) = tunnel.number("machine_ns_per_byte", Which::Added) {
            text.push_str(&format!(", and a byte costs the machine {} ns more", number(added)));
        }
        Some(text + ".")
    })
}

fn topologies(record: &Record) -> Option<String> {
    let system = ours(record, "system", &Factors::new())?;
    let of = |topology: &&str| {
        let only = factors([("system", system), ("topology", topology)]);
        let ratios = record.figures_with(&only).filter_map(|f| f.number("gbps", Which::Ratio));
        // More than plain is a doubt, and no answer.
        let (low, high) = extremes(ratios.filter(|ratio| *ratio <= 1.0))?;
        let (low, high) = (percent(low), percent(high));
        let range = if low == high { low } else { format!("{low} to {high}") };
        Some(format!("{range} on {topology}"))
    };
    let list: Vec<String> = record.values("topology", &Factors::new()).iter().filter_map(of).collect();
    let udp = record.settings.get("load").is_some_and(|load| load == "udp");
    let load = if udp { "UDP" } else { "TCP" };
    (!list.is_empty())
        .then(|| format!("Through {system} {load} has, by size, of what plain carries: {}.", list.join("; ")))
}

fn transfer(record: &Record) -> Option<String> {
    let topology = *record.values("topology", &Factors::new()).first()?;
    let store = *record.values("store", &factors([("topology", topology)])).first()?;
    let only = factors([("topology", topology), ("store", store)]);
    // Those that do not protect what they carry are no answer.
    let mut protected: Vec<(f64, &str)> = record
        .figures_with(&only)
        .filter_map(|f| Some((median(f, "elapsed_ns")?, f.factors.get("method")?.as_str())))
        .filter(|(_, method)| !["ftp", "http"].contains(method))
        .collect();
    protected.sort_by(|a, b| a.0.total_cmp(&b.0));
    let ((least, first), (most, last)) = (*protected.first()?, *protected.last()?);
    Some(format!(
        "Of what protects a file on its way ({topology}), {first} is the fastest with {} ns a byte, and {last} takes {} \
         times as long.",
        number(least),
        number(most / least)
    ))
}

fn background(record: &Record) -> Option<String> {
    let traffic = ours(record, "traffic", &Factors::new())?;
    // The last load is the highest one.
    let beside = record.figures_with(&factors([("traffic", traffic)])).last()?;
    let mut text = format!(
        "Beside {} Mbit/s of {traffic} a sieve takes {} times as long as alone",
        number(median(beside, "mbps")?),
        number(beside.number("sieve_s", Which::Ratio)?)
    );
    if let Some(left) = median(beside, "soaker_left") {
        text.push_str(&format!(", and {} of the machine is left", percent(left)));
    }
    Some(text + ".")
}

fn driver(record: &Record) -> Option<String> {
    let both = [engines(record), device(record)];
    let list: Vec<String> = both.into_iter().flatten().collect();
    (!list.is_empty()).then(|| list.join(" "))
}

/// The rates of one core that seals the first suite, by the fastest engine.
fn engines(record: &Record) -> Option<String> {
    let suite = *record.values("suite", &Factors::new()).first()?;
    let usual = [("suite", suite), ("dispatch", "burst"), ("data", "same"), ("direction", "seal")];
    let size = |text: &&str| text.parse::<u64>().unwrap_or(0);
    let sizes = record.values("size", &factors(usual));
    let best = |size: &str| {
        let only: Factors = factors(usual).into_iter().chain(factors([("size", size)])).collect();
        let all = record
            .figures_with(&only)
            .filter_map(|f| Some((median(f, "mb_per_s")?, f.factors.get("engine")?.as_str())))
            .filter(|(_, engine)| !engine.starts_with("cryptodev"));
        all.max_by(|a, b| a.0.total_cmp(&b.0))
    };
    let (small, large) = (*sizes.iter().min_by_key(|s| size(s))?, *sizes.iter().max_by_key(|s| size(s))?);
    let ((rate, engine), (slow, by)) = (best(large)?, best(small)?);
    Some(format!(
        "One core seals {suite} at {} MB/s in packets of {large} B ({engine}), and at {} MB/s in packets of {small} B ({by}).",
        number(rate),
        number(slow)
    ))
}

/// The cost of polling and of waiting for a device beside the processor, with one request under way
/// and with the most: the first suite, the smallest packets.
fn device(record: &Record) -> Option<String> {
    let polled = factors([("engine", "cryptodev-poll"), ("direction", "seal")]);
    let suite = *record.values("suite", &polled).first()?;
    let sizes = record.values("size", &polled);
    let size = *sizes.iter().min_by_key(|size| size.parse::<u64>().unwrap_or(0))?;
    let under_way = |f: &&Figure| match f.factors.get("dispatch").map(String::as_str) {
        Some("all") => u64::MAX,
        _ => f.factors.get("burst").and_then(|burst| burst.parse().ok()).unwrap_or(0),
    };
    let of = |engine: &str| {
        let only = factors([("engine", engine), ("direction", "seal"), ("suite", suite), ("size", size)]);
        let all: Vec<&Figure> = record.figures_with(&only).collect();
        let (few, many) =
            (*all.iter().min_by_key(|f| under_way(f))?, *all.iter().max_by_key(|f| under_way(f))?);
        (under_way(&few) < under_way(&many)).then_some((few, many))
    };
    let ((one, all), (one_waited, all_waited)) = (of("cryptodev-poll")?, of("cryptodev-wait")?);
    let (few, many) = (under_way(&one), under_way(&all));
    let many = if many == u64::MAX { "all".into() } else { many.to_string() };
    let latency = |f| Some(number(median(f, "latency_ns")?));
    let elapsed = |f| Some(number(median(f, "elapsed_ns_per_op")?));
    let used = |f| Some(number(median(f, "ns_per_op")?));
    Some(format!(
        "A device beside the processor (cryptodev) has a packet of {size} B of {suite} back, with {few} under way, after {} ns \
         when its answer is polled and after {} ns when it is waited for; with {many} under way a packet takes {} and {} ns, of which \
         the asking thread works {} and {} ns.",
        latency(one)?,
        latency(one_waited)?,
        elapsed(all)?,
        elapsed(all_waited)?,
        used(all)?,
        used(all_waited)?
    ))
}

/// The rates of the smallest and the largest frames at the least loss that was asked for, in the
/// first direction.
fn rfc2544(record: &Record) -> Option<String> {
    let part = factors([("part", "throughput")]);
    let dut = ours(record, "dut", &part)?;
    let only: Factors = part.into_iter().chain(factors([("dut", dut)])).collect();
    let (loss, direction) =
        (*record.values("loss", &only).first()?, *record.values("direction", &only).first()?);
    let of = |size: &&str| {
        let here = factors([("size", size), ("loss", loss), ("direction", direction)]);
        let only: Factors = only.clone().into_iter().chain(here).collect();
        let found = record.figures_with(&only).next()?;
        let (kpps, gbps) = (median(found, "kpps")?, median(found, "inner_gbps")?);
        let confirmed = confirmed::text(found).map_or_else(String::new, |text| format!(", which {text}"));
        Some(format!(
            "{} thousand frames of {size} B a second ({} Gb/s{confirmed})",
            number(kpps),
            number(gbps)
        ))
    };
    let sizes = record.values("size", &only);
    let is_number = |size: &&&str| size.parse::<u32>().is_ok();
    let ends = [sizes.iter().find(is_number), sizes.iter().rev().find(is_number)];
    let mut list: Vec<String> = ends.into_iter().flatten().filter_map(of).collect();
    list.dedup();
    let loss = if loss == "0" { "without loss".into() } else { format!("with a loss of at most {loss}") };
    (!list.is_empty()).then(|| format!("{dut} carries, {loss}, {direction}: {}.", list.join(", and ")))
}

fn flood(record: &Record) -> Option<String> {
    let part = factors([("part", "throughput")]);
    let dut = ours(record, "dut", &part)?;
    let load = *record.values("load", &part).first()?;
    let loss = *record.values("loss", &factors([("part", "throughput"), ("load", load)])).first()?;
    let of = |dut: &str| {
        let found = figure(record, [("part", "throughput"), ("load", load), ("loss", loss), ("dut", dut)])?;
        median(found, "kpps")
    };
    let own = of(dut)?;
    // What carries less than a tunnel was held up by the tester.
    let plain = of("plain").filter(|pps| *pps > own);
    let plain = plain.map(|pps| format!(", plain forwarding {} thousand", number(pps)));
    Some(format!(
        "{dut} carries {} thousand packets a second with a loss of at most {loss}{} ({load}).",
        number(own),
        plain.unwrap_or_default()
    ))
}

fn fragments(record: &Record) -> Option<String> {
    let dut = ours(record, "dut", &Factors::new())?;
    let cut = record.figures_with(&factors([("dut", dut)])).find_map(|f| {
        let ratio = f.number("kpps", Which::Ratio)?;
        Some((ratio, f.factors.get("size")?, f.factors.get("link")?))
    });
    let (ratio, size, link) = cut?;
    Some(format!(
        "{dut} carries {} as many packets of {size} B over a link of {link} as over one that takes them whole.",
        percent(ratio)
    ))
}

fn compare(record: &Record) -> Option<String> {
    let load = *record.values("load", &Factors::new()).first()?;
    let only = factors([("load", load)]);
    let tunnels = record.figures_with(&only).filter_map(|f| {
        let dut = f.factors.get("dut").filter(|dut| *dut != "plain")?;
        Some((dut.as_str(), median(f, "gbps")?))
    });
    let mut tunnels: Vec<(&str, f64)> = tunnels.collect();
    tunnels.sort_by(|a, b| b.1.total_cmp(&a.1));
    let list: Vec<String> =
        tunnels.iter().map(|(dut, gbps)| format!("{dut} {} Gb/s", number(*gbps))).collect();
    let load = if load.parse::<u32>().is_ok() { format!("frames of {load} B") } else { load.to_string() };
    (!list.is_empty()).then(|| format!("Of {load}, the tunnels carry: {}.", list.join(", ")))
}

fn compression(record: &Record) -> Option<String> {
    let (data, link) =
        (*record.values("data", &Factors::new()).first()?, *record.values("link", &Factors::new()).first()?);
    let with = |ends: &str| {
        let only = factors([("data", data), ("link", link)]);
        let found = record.figures_with(&only).find(|f| {
            f.factors.get("system").is_some_and(|s| s.starts_with("ironswan") && s.ends_with(ends))
        })?;
        median(found, "kb_s")
    };
    let (on, off) = (with("ipcomp")?, with("ironswan")?);
    Some(format!(
        "With IPComp, {data} crosses a link of {link} at {} kB/s, {} times as fast as without.",
        number(on),
        number(on / off)
    ))
}

fn tunnels(record: &Record) -> Option<String> {
    let only = factors([("what", "bring-up")]);
    let dut = ours(record, "dut", &only)?;
    let only = factors([("what", "bring-up"), ("dut", dut)]);
    let most = record
        .figures_with(&only)
        .filter(|f| median(f, "up_s").is_some())
        .max_by_key(|f| f.factors.get("tunnels").and_then(|n| n.parse::<u32>().ok()).unwrap_or(0))?;
    let count = most.factors.get("tunnels")?;
    let mut text =
        format!("{dut} has {count} tunnels up {} s after its start", number(median(most, "up_s")?));
    let again = factors([("what", "restart"), ("dut", dut), ("tunnels", count)]);
    if let Some(restart) = record.figures_with(&again).find_map(|f| median(f, "restart_s")) {
        text.push_str(&format!(", and {} s after a restart", number(restart)));
    }
    if let Some(kib) = median(most, "kib_per_tunnel") {
        text.push_str(&format!("; each takes {} KiB", number(kib)));
    }
    Some(text + ".")
}

fn lowend(record: &Record) -> Option<String> {
    let part = factors([("part", "carried")]);
    let dut = ours(record, "dut", &part)?;
    let share = *record.values("share", &part).first()?;
    let only = factors([("part", "carried"), ("dut", dut), ("share", share)]);
    let list: Vec<String> = record
        .figures_with(&only)
        .filter_map(|f| Some(format!("{} Mbit/s of {}", number(median(f, "mbps")?), f.factors.get("load")?)))
        .collect();
    (!list.is_empty()).then(|| format!("With {share} of a core {dut} carries {}.", list.join(", ")))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::sample;
    use super::*;
    use crate::record::{Baseline, Sample, figures};

    /// Factors and measures of a sample.
    pub type Of<'a> = (&'a [(&'a str, &'a str)], &'a [(&'a str, f64)]);

    /// A record of an experiment with one sample for each of these.
    pub fn record(experiment: &str, baseline: Option<(&str, &str)>, samples: &[Of<'_>]) -> Record {
        let owned = |name: &str| name.to_string();
        let sample = |(of, measures): &Of<'_>| Sample {
            factors: of.iter().map(|(k, v)| (owned(k), owned(v))).collect(),
            repeat: 0,
            began: 0.0,
            measures: measures.iter().map(|(k, v)| (owned(k), *v)).collect(),
            absent: [].into(),
            files: Vec::new(),
        };
        let samples: Vec<Sample> = samples.iter().map(sample).collect();
        let baseline =
            baseline.map(|(factor, value)| Baseline { factor: owned(factor), value: owned(value) });
        let figures = figures(&samples, baseline.as_ref());
        Record { experiment: owned(experiment), samples, figures, baseline, ..sample::record() }
    }

    pub fn says(record: &Record, expected: &str) {
        assert_eq!(answer(record).as_deref(), Some(expected), "{}", record.experiment);
    }

    const PLAIN: Option<(&str, &str)> = Some(("dut", "plain"));

    #[test]
    fn rates_are_answered_by_a_share_of_plain() {
        says(
            &sample::record(),
            "Through ironswan TCP has 60.0 % of what plain forwarding carries (6.00 of 10.0 Gb/s: offload mode, 1 stream, a to \
             b), and a byte costs the machine 1.00 ns more.",
        );
        let of = |system, size, gbps| {
            ([("topology", "line"), ("system", system), ("size", size)], [("gbps", gbps)])
        };
        let cells = [
            of("plain", "64", 1.0),
            of("plain", "128", 4.0),
            of("ironswan", "64", 0.5),
            of("ironswan", "128", 1.0),
            of("plain", "256", 4.0),
            of("ironswan", "256", 5.0),
        ];
        let cells: Vec<(&[_], &[_])> = cells.iter().map(|(of, m)| (&of[..], &m[..])).collect();
        says(
            &record("topologies", Some(("system", "plain")), &cells),
            "Through ironswan TCP has, by size, of what plain carries: 25.0 % to 50.0 % on line.",
        );
        says(
            &record(
                "compare",
                PLAIN,
                &[
                    (&[("load", "TCP"), ("dut", "plain")], &[("gbps", 9.0)]),
                    (&[("load", "TCP"), ("dut", "openvpn")], &[("gbps", 0.5)]),
                    (&[("load", "TCP"), ("dut", "ironswan")], &[("gbps", 5.0)]),
                ],
            ),
            "Of TCP, the tunnels carry: ironswan 5.00 Gb/s, openvpn 0.50 Gb/s.",
        );
    }

    #[test]
    fn packets_are_answered_at_the_least_loss_and_a_baseline_below_the_tunnel_is_left_out() {
        let flood = |plain| {
            let of = |dut| [("part", "throughput"), ("load", "18 B"), ("loss", "0.5 %"), ("dut", dut)];
            record(
                "flood",
                PLAIN,
                &[(&of("plain"), &[("kpps", plain)]), (&of("ironswan"), &[("kpps", 300.0)])],
            )
        };
        let whole = "ironswan carries 300 thousand packets a second with a loss of at most 0.5 %";
        says(&flood(450.0), &format!("{whole}, plain forwarding 450 thousand (18 B)."));
        says(&flood(200.0), &format!("{whole} (18 B)."));
        let of = |size, loss| {
            [
                ("part", "throughput"),
                ("dut", "ironswan"),
                ("size", size),
                ("loss", loss),
                ("direction", "a to b"),
            ]
        };
        says(
            &record(
                "rfc2544",
                PLAIN,
                &[
                    (&of("64", "0"), &[("kpps", 100.0), ("inner_gbps", 0.05)]),
                    (&of("64", "0.1%"), &[("kpps", 150.0), ("inner_gbps", 0.07)]),
                    (&of("1424", "0"), &[("kpps", 90.0), ("inner_gbps", 1.0)]),
                    (&of("IMIX", "0"), &[("kpps", 95.0), ("inner_gbps", 0.4)]),
                ],
            ),
            "ironswan carries, without loss, a to b: 100 thousand frames of 64 B a second (0.0500 Gb/s), and 90.0 thousand \
             frames of 1424 B a second (1.00 Gb/s).",
        );
        let of = |link| [("dut", "ironswan"), ("size", "1518"), ("link", link)];
        says(
            &record(
                "fragments",
                Some(("link", "whole")),
                &[(&of("whole"), &[("kpps", 100.0)]), (&of("MTU 1400"), &[("kpps", 40.0)])],
            ),
            "ironswan carries 40.0 % as many packets of 1518 B over a link of MTU 1400 as over one that takes them whole.",
        );
        let of = |load| [("part", "carried"), ("share", "10%"), ("dut", "ironswan"), ("load", load)];
        says(
            &record("lowend", None, &[(&of("TCP"), &[("mbps", 800.0)]), (&of("64 B"), &[("mbps", 25.0)])]),
            "With 10% of a core ironswan carries 800 Mbit/s of TCP, 25.0 Mbit/s of 64 B.",
        );
    }

    #[test]
    fn costs_are_answered_by_the_best_and_the_worst() {
        let of = |method, ns| {
            ([("topology", "host-to-host"), ("store", "memory"), ("method", method)], [("elapsed_ns", ns)])
        };
        let cells = [of("ftp", 0.5), of("scp", 3.0), of("https", 1.0), of("ftp over ironswan", 0.75)];
        let cells: Vec<(&[_], &[_])> = cells.iter().map(|(of, m)| (&of[..], &m[..])).collect();
        says(
            &record("transfer", Some(("method", "ftp")), &cells),
            "Of what protects a file on its way (host-to-host), ftp over ironswan is the fastest with 0.75 ns a byte, and scp \
             takes 4.00 times as long.",
        );
        says(
            &record(
                "background",
                Some(("traffic", "none")),
                &[
                    (&[("load", "10 %"), ("traffic", "none")], &[("sieve_s", 2.0)]),
                    (&[("load", "10 %"), ("traffic", "ironswan")], &[("sieve_s", 2.1), ("mbps", 20.0)]),
                    (&[("load", "100 %"), ("traffic", "none")], &[("sieve_s", 2.0)]),
                    (
                        &[("load", "100 %"), ("traffic", "ironswan")],
                        &[("sieve_s", 2.2), ("mbps", 200.0), ("soaker_left", 0.9)],
                    ),
                ],
            ),
            "Beside 200 Mbit/s of ironswan a sieve takes 1.10 times as long as alone, and 90.0 % of the machine is left.",
        );
        let of = |engine, size| {
            let usual = [("dispatch", "burst"), ("data", "same"), ("direction", "seal")];
            [usual[0], usual[1], usual[2], ("suite", "aes128gcm16"), ("engine", engine), ("size", size)]
        };
        says(
            &record(
                "driver",
                None,
                &[
                    (&of("aws-lc", "64"), &[("mb_per_s", 800.0)]),
                    (&of("vaes", "64"), &[("mb_per_s", 2_000.0)]),
                    (&of("aws-lc", "1024"), &[("mb_per_s", 9_000.0)]),
                ],
            ),
            "One core seals aes128gcm16 at 9,000 MB/s in packets of 1024 B (aws-lc), and at 2,000 MB/s in packets of 64 B (vaes).",
        );
        let of = |system| [("data", "text"), ("link", "10 Mbit/s"), ("system", system)];
        says(
            &record(
                "compression",
                Some(("system", "ironswan")),
                &[
                    (&of("plain"), &[("kb_s", 1_200.0)]),
                    (&of("ironswan"), &[("kb_s", 1_000.0)]),
                    (&of("ironswan ipcomp"), &[("kb_s", 1_500.0)]),
                ],
            ),
            "With IPComp, text crosses a link of 10 Mbit/s at 1,500 kB/s, 1.50 times as fast as without.",
        );
        says(
            &record(
                "tunnels",
                None,
                &[
                    (&[("what", "bring-up"), ("dut", "ironswan"), ("tunnels", "10")], &[("up_s", 0.1)]),
                    (
                        &[("what", "bring-up"), ("dut", "ironswan"), ("tunnels", "1000")],
                        &[("up_s", 2.0), ("kib_per_tunnel", 16.0)],
                    ),
                    (&[("what", "restart"), ("dut", "ironswan"), ("tunnels", "1000")], &[("restart_s", 3.0)]),
                ],
            ),
            "ironswan has 1000 tunnels up 2.00 s after its start, and 3.00 s after a restart; each takes 16.0 KiB.",
        );
    }

    #[test]
    fn a_run_without_the_figures_for_it_has_no_answer() {
        for experiment in [
            "line",
            "topologies",
            "transfer",
            "background",
            "driver",
            "rfc2544",
            "flood",
            "fragments",
            "compare",
            "compression",
            "tunnels",
            "profile",
            "lowend",
            "cores",
            "other",
        ] {
            assert_eq!(answer(&record(experiment, None, &[])), None, "{experiment}");
            let odd: [Of<'_>; 1] = [(&[("dut", "x"), ("load", "y")], &[("z", 1.0)])];
            assert_eq!(answer(&record(experiment, None, &odd)), None, "{experiment}");
        }
    }

    #[test]
    fn a_device_is_answered_by_what_polling_and_waiting_take() {
        let factors = |engine, dispatch, burst| {
            [
                ("suite", "aes128gcm16"),
                ("engine", engine),
                ("direction", "seal"),
                ("size", "64"),
                ("dispatch", dispatch),
                ("burst", burst),
            ]
        };
        let measures =
            |elapsed, ns| [("elapsed_ns_per_op", elapsed), ("ns_per_op", ns), ("latency_ns", elapsed)];
        let cells = [
            (factors("cryptodev-poll", "burst", "64"), measures(90.0, 90.0)),
            (factors("cryptodev-poll", "after", "1"), measures(400.0, 400.0)),
            (factors("cryptodev-poll", "all", "-"), measures(80.0, 80.0)),
            (factors("cryptodev-wait", "after", "1"), measures(9000.0, 3000.0)),
            (factors("cryptodev-wait", "all", "-"), measures(85.0, 30.0)),
        ];
        let cells: Vec<(&[_], &[_])> = cells.iter().map(|(of, m)| (&of[..], &m[..])).collect();
        says(
            &record("driver", None, &cells),
            "A device beside the processor (cryptodev) has a packet of 64 B of aes128gcm16 back, with 1 under way, after 400 ns when \
             its answer is polled and after 9,000 ns when it is waited for; with all under way a packet takes 80.0 and 85.0 ns, of which \
             the asking thread works 80.0 and 30.0 ns.",
        );
        // Polling alone compares nothing.
        assert_eq!(answer(&record("driver", None, &cells[..3])), None);
    }
}
