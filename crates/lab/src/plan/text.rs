//! Answers for people: the reasoning line by line, with the numbers in the formula.

use super::answer::{Carried, Need, cores, tunnels};
use super::ask::Ask;
use super::mix::Mix;
use super::model::{Model, Point, Way};
use super::store::Doubts;
use super::verified::{MEDIAN, MOST, REPEATS, Verification, WORST};
use super::workers::Gain;
use crate::report::{Table, number};

/// About the model: where and when, and what speaks against it.
pub fn about(model: &Model, doubts: &Doubts) -> Vec<String> {
    let of = model.system.as_ref().map(|s| format!("{} ({}) on ", s.name, s.version)).unwrap_or_default();
    let mut lines = vec![format!(
        "model of {of}{} ({}), ironswan {}",
        model.machine.one_line(),
        model.made,
        model.program.version
    )];
    if !doubts.machine.is_empty() {
        lines.push(format!(
            "warning: this is another machine ({}); what follows is about the one of the model",
            doubts.machine.join("; ")
        ));
    }
    lines.extend(doubts.others.iter().map(|d| format!("warning: {d}")));
    lines
}

/// Names the part of a load that lies beyond the measured loads: its rate, or its frames.
fn beyond(model: &Model, ask: &Ask, mix: &Mix, pps: f64) -> Vec<String> {
    let mut why = Vec::new();
    let rates = |curve: &[Point]| {
        let rates = || curve.iter().map(|p| p.pps);
        (rates().fold(f64::MAX, f64::min), rates().fold(0.0, f64::max))
    };
    // Which both gateways were seen to handle.
    let both =
        Way::BOTH.map(|way| model.path(ask.path, way).map(|p| rates(p.curve(mix))).unwrap_or((0.0, 0.0)));
    let (least, most) = (both[0].0.max(both[1].0), both[0].1.min(both[1].1));
    if mix.merged {
        let mbps = |pps: f64| pps * mix.bytes() * 8.0 / 1e6;
        // TCP keeps to a rate only about.
        if pps > most * 1.1 || pps < least / 1.1 {
            why.push(format!(
                "TCP at {} to {} Mbit/s was measured: its segments are taken to merge, faster or slower, as they did there",
                number(mbps(least)),
                number(mbps(most))
            ));
        }
        return why;
    }
    if pps > most {
        why.push(format!(
            "more than the {} packets a second that went when they were measured: each is taken to cost as there",
            number(most)
        ));
    }
    let own = || model.cells.iter().filter(|c| c.path == ask.path && !c.mix.merged);
    let frames = || own().flat_map(|c| c.mix.parts.iter().map(|p| p.frame));
    let (small, large) = (frames().min().unwrap_or(0), frames().max().unwrap_or(0));
    let sizes = mix.parts.iter().map(|p| p.frame);
    if let Some(size) = sizes.clone().find(|s| !(small..=large).contains(s)) {
        why.push(format!("frames of {size} B: {small} to {large} B were measured"));
    }
    why
}

/// Why an answer goes beyond what was measured; nothing when it does not. `loads` are packets a
/// second that the answer is about.
pub fn extrapolation(model: &Model, ask: &Ask, needed: Option<&Need>, loads: &[(&Mix, f64)]) -> Vec<String> {
    let mut why = Vec::new();
    let needs = needed.map(|n| (&ask.mix, n.pps.max(n.back_pps)));
    for (mix, pps) in needs.into_iter().chain(loads.iter().copied()) {
        why.extend(beyond(model, ask, mix, pps).into_iter().filter(|w| !why.contains(w)).collect::<Vec<_>>());
    }
    if let Some(system) = &model.system {
        why.push(format!(
            "set-up, rekeying and memory of {} were not measured and are left out; each direction is taken to cost half of both",
            system.name
        ));
    }
    if ask.ipv6 {
        why.push("IPv6 was not measured: its packets are taken to cost what those of IPv4 do".into());
    }
    let at_once = model.bursts.last().map(|b| b.at_once);
    if ask.burst > 1 && at_once.is_none_or(|most| ask.burst > most) {
        why.push(match at_once {
            Some(most) => format!(
                "bursts of {} packets: {most} were measured, more are taken to share calls as these, and to find room in every queue",
                ask.burst
            ),
            None => format!("bursts of {} packets: none were measured, all are taken to share a call", ask.burst),
        });
    }
    let flows = model.flows.last().map(|f| f.flows);
    if let Some(asked) = ask.flows.filter(|asked| flows.is_none_or(|most| *asked > most)) {
        why.push(match flows {
            Some(most) => format!("{asked} flows: {most} were measured, more are taken to cost as these"),
            None => format!("{asked} flows: the model has one number of flows alone; calibrate again"),
        });
    }
    if ask.keepalive.is_some() {
        why.push(
            "NAT keepalives were not measured: each is taken to cost the way of a received packet".into(),
        );
    }
    let here = model.machine.cpus as f64;
    if ask.cores.is_some_and(|c| c != here) {
        let asked = number(ask.cores.unwrap_or(here));
        why.push(match Gain::of(&model.workers) {
            Some(gain) => format!(
                "{asked} processors, of which {here} were measured: each doubling is taken to carry {:.2} times, as two workers do \
                 beside one",
                gain.times
            ),
            None => format!(
                "{asked} processors, of which {here} were measured: shared caches, memory and locks are taken to scale"
            ),
        });
    }
    if let Some(ghz) = ask.ghz {
        why.push(format!(
            "a clock of {ghz} GHz: another processor does more or less in a cycle, and memory does not follow the clock"
        ));
    }
    if let Some(n) = needed.filter(|n| n.cores > here) {
        why.push(format!(
            "{} processors are needed and {here} were measured, and the rate is beyond what this machine was measured at",
            number(n.cores)
        ));
    }
    if model.many_sas.last().is_some_and(|m| ask.tunnels > m.sas) {
        why.push("more SAs than were measured cost no more than the most that were".into());
    }
    why
}

/// Text about the rates that a machine carries, by itself and with the share; the mixes are those
/// of the answers, in their order.
pub fn carries(model: &Model, ask: &Ask, all: &[Carried], loads: &[(&Mix, f64)]) -> Vec<String> {
    let have = cores(model, ask);
    let mut lines = vec![format!(
        "all: {} processors / safety {} = {} for IPsec, no firewall; share: x {}, where a firewall and all else have the rest, = {}; {} \
         tunnels, rekeyed every {} s; {}",
        number(have),
        ask.safety,
        number(have / ask.safety),
        ask.share,
        number(have * ask.share / ask.safety),
        ask.tunnels,
        number(ask.rekey),
        if ask.path == super::model::Path::Udp { "in UDP" } else { "raw ESP" }
    )];
    let mut table = Table::with_names(2);
    let of = |who: &str| {
        ["Mbit/s each way", "packets/s", "out only", "in only", "tunnels"]
            .map(|what| format!("{who}: {what}"))
    };
    let reasons = ["ns out", "ns in", "bursts out, in", "most of it"].map(|what| format!("share: {what}"));
    table.row(
        ["suite", "mix"].map(String::from).into_iter().chain(of("all")).chain(of("share")).chain(reasons),
    );
    for c in all {
        let p = &c.shared.packet;
        let (what, ns) = p.out.plus(&p.into).dominant();
        let share = ns / (p.out.total() + p.into.total()).max(f64::MIN_POSITIVE);
        let mut row = vec![c.suite.clone(), c.mix.clone()];
        for each in c.both() {
            row.extend([each.mbps, each.pps, each.out_mbps, each.in_mbps, each.tunnels].map(number));
        }
        row.extend([
            number(p.out.total()),
            number(p.into.total()),
            p.burst.map(number).join(", "),
            format!("{what} {:.0} %", share * 100.0),
        ]);
        table.row(row);
    }
    lines.extend(table.render(" ").lines().map(String::from));
    lines.push("Mbit/s are those of inner IP packets; out only and in only: one way alone, in Mbit/s".into());
    for (who, share) in [("all", 1.0), ("share", ask.share)] {
        lines.push(format!("tunnels, {who}: {}", short_first(model, &Ask { share, ..ask.clone() })));
    }
    lines.extend(extrapolation(model, ask, None, loads).iter().map(|w| format!("extrapolation: {w}")));
    lines
}

/// How many tunnels there may be, and what sets that.
fn short_first(model: &Model, ask: &Ask) -> String {
    let found = tunnels(model, ask);
    let processors = format!(
        "{} by processors (rekeying takes a tenth of what IPsec may use)",
        number(found.of_processors)
    );
    let memory = match found.of_memory {
        Some(most) => format!(
            "{} by memory (({} MiB x share {} - {} MiB) / {} KiB)",
            number(most),
            number(model.machine.memory_kib.unwrap_or(0) as f64 / 1024.0),
            ask.share,
            number(model.tunnel.base_kib / 1024.0),
            number(model.tunnel.kib)
        ),
        None => "this machine's memory is not known".into(),
    };
    format!("{}, which {} sets: {processors}, {memory}", number(found.most), found.limit.name())
}

/// Predictions against measurements.
pub fn verification(v: &Verification) -> Vec<String> {
    let mut table = Table::default();
    table.row(
        [
            "suite",
            "path",
            "way",
            "mix",
            "offered/s",
            "packets/s",
            "predicted ns",
            "measured ns",
            "spread",
            "error",
        ]
        .map(String::from),
    );
    for c in &v.cells {
        let way = if c.way == Way::Out { "out" } else { "in" };
        table.row([
            c.suite.clone(),
            c.path.name().into(),
            way.into(),
            c.mix.clone(),
            c.offered.map_or_else(|| "highest".into(), number),
            number(c.pps),
            number(c.predicted_ns),
            number(c.measured_ns),
            format!("{:.0} %", c.spread * 100.0),
            format!("{:+.0} %", c.error * 100.0),
        ]);
    }
    let drawn = v.taken.drawn.map(|d| {
        format!(
            "{} loads, drawn after the calibration from seed {} (`--verify --draw {} --seed {}` measures the same)",
            d.loads, d.seed, d.loads, d.seed
        )
    });
    let mut lines: Vec<String> = drawn.into_iter().collect();
    lines.extend(table.render(" ").lines().map(String::from));
    lines.extend(rates(v));
    lines.push(format!(
        "median error {:.1} % (goal {:.0} %), {:.0} % of the predictions within {:.0} % (goal {:.0} %), worst {:.1} % of all: {}",
        v.median_error * 100.0,
        MEDIAN * 100.0,
        v.within * 100.0,
        WORST * 100.0,
        MOST * 100.0,
        v.worst_error * 100.0,
        v.verdict.name()
    ));
    lines.push(format!(
        "repeats lie {:.1} % apart (median; the largest {:.0} %): above {:.0} % no model can be judged, and the answer is \
         \"cannot tell\"",
        v.median_spread * 100.0,
        v.worst_spread * 100.0,
        REPEATS * 100.0
    ));
    lines.extend(v.beyond().iter().map(|b| {
        let (off, apart) = (b.error * 100.0, b.spread.map(|s| s * 100.0));
        let apart = apart.map_or("measured once".into(), |s| format!("its repeats lie {s:.0} % apart"));
        format!(" off by more than {:.0} %: {}, {off:+.1} %; {apart}", WORST * 100.0, b.what)
    }));
    lines.push(format!(
        "loads of the calibration measured again beside them: {} ({} loads, median {:.1} %, worst {:.1} %): the part of the errors \
         that is the machine's",
        if v.again.shift >= 0.0 {
            format!("they cost {:.1} % more now", v.again.shift * 100.0)
        } else {
            format!("they cost {:.1} % less now", -v.again.shift * 100.0)
        },
        v.again.loads,
        v.again.median * 100.0,
        v.again.worst * 100.0
    ));
    lines.extend(v.taken.warnings.iter().map(|w| format!("warning: {}", w.text)));
    lines
}

/// The highest rates of one gateway, and what the errors are without them.
fn rates(v: &Verification) -> Vec<String> {
    if v.taken.rates.is_empty() {
        return vec![];
    }
    let against =
        v.taken.against.as_ref().map(|run| format!(", and by the run of {run}")).unwrap_or_default();
    let mut table = Table::with_names(4);
    table.row(
        [
            "system",
            "suite",
            "path",
            "way",
            "mix",
            "loss",
            "predicted kpps",
            "measured kpps",
            "spread",
            "error",
            "gateway: predicted ns",
            "measured ns",
            "error",
            "beside it: ns",
            "busy",
        ]
        .map(String::from),
    );
    for r in &v.taken.rates {
        table.row([
            r.dut.clone(),
            r.suite.clone(),
            r.path.name().into(),
            r.way.name().into(),
            r.mix.name.clone(),
            r.loss.clone(),
            number(r.predicted_pps / 1e3),
            number(r.measured_pps / 1e3),
            r.spread.map_or_else(|| "-".into(), |s| format!("{:.0} %", s * 100.0)),
            format!("{:+.0} %", r.error * 100.0),
            number(r.predicted_ns),
            number(r.measured_ns),
            format!("{:+.0} %", r.ns_error * 100.0),
            number(r.beside_ns),
            format!("{:.0} %", r.busy_at_most * 100.0),
        ]);
    }
    let mut lines = vec![format!(
        "highest rates of one gateway, encrypting (out) and decrypting (in), as measured now{against}: what fills as much of the \
         processors as was busy at such rates when the model was made, with the gateway's cost by the model and what was taken \
         beside it"
    )];
    lines.extend(table.render(" ").lines().map(String::from));
    let (median, worst) = v.of_loads();
    lines.push(format!(
        "without these rates: median error {:.1} %, worst {:.1} %; with them:",
        median * 100.0,
        worst * 100.0
    ));
    lines
}
