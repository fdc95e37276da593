//! For people: what a calibration measured and fitted.

use super::cost::{BurstShare, FlowCost};
use super::model::{Cell, Model, PathCost, Seen};
use super::needs::give_or_take;
use super::workers::{Gain, WorkerCost};
use crate::report::{Table, number};
use crate::stats;

/// A fit, beside the measurements to which it was made.
pub fn fitted(model: &Model) -> Vec<String> {
    let mut lines = Vec::new();
    let mut suites = Table::default();
    suites.row(
        ["suite", "engine", "burst", "seal: ns/packet", "ns/byte", "open: ns/packet", "ns/byte"]
            .map(String::from),
    );
    for s in &model.suites {
        for (i, b) in s.bursts.iter().enumerate() {
            let once = |text: &String| if i == 0 { text.clone() } else { String::new() };
            suites.row([
                once(&s.suite),
                once(&s.engines),
                b.packets.to_string(),
                number(b.seal.per_packet),
                number(b.seal.per_byte),
                number(b.open.per_packet),
                number(b.open.per_byte),
            ]);
        }
    }
    // Another system's crypto is in its paths.
    if model.system.is_none() {
        lines.extend(suites.render(" ").lines().map(String::from));
    }
    let mut paths = Table::default();
    paths.row(
        [
            "path",
            "way",
            "packets/s",
            "base: ns",
            "calls",
            "burst",
            "of a core",
            "ns/byte",
            "ns/change",
            "misses by",
            "loads",
        ]
        .map(String::from),
    );
    for p in &model.paths {
        let points = p.packets.iter().map(|q| (q, "")).chain(p.merged.iter().map(|q| (q, " TCP")));
        for (n, (q, kind)) in points.enumerate() {
            let once = |text: String| if n == 0 { text } else { String::new() };
            paths.row([
                p.path.name().into(),
                p.way.name().into(),
                format!("{}{kind}", number(q.pps)),
                format!("{}{}", number(q.ns), give_or_take(q.within)),
                format!("{:.2}", q.calls),
                number(q.burst),
                format!("{:.0} %", q.pps * q.ns / 1e7),
                once(format!("{}{}", number(p.per_byte), give_or_take(p.per_byte_within))),
                once(format!("{}{}", number(p.per_change), give_or_take(p.per_change_within))),
                once(format!("{:.0} %", p.residual * 100.0)),
                once(p.cells.to_string()),
            ]);
        }
    }
    lines.extend(paths.render(" ").lines().map(String::from));
    lines.extend(model.paths.iter().map(waking));
    for p in &model.paths {
        let Some(g) = &p.gathering else { continue };
        let [low, high] = [0, 1].map(|n| {
            format!(
                "{} ns of crypto: {} packets a call of it, {:.2} calls",
                number(g.crypto[n]),
                number(g.burst[n]),
                g.calls[n]
            )
        });
        lines.push(format!(
            "{} {} at the highest rate, by what crypto takes for a packet alone: {low}; {high}",
            p.path.name(),
            p.way.name()
        ));
    }
    let f = &model.forwarding;
    lines.push(format!(
        "forwarding without a tunnel: a box adds {} ns to the {} of the hosts, at {} packets/s (half of the loads within {} ns)",
        number(f.ns),
        number(f.hosts_ns),
        number(f.pps),
        number(f.spread_ns)
    ));
    if let Some(gain) = Gain::of(&model.workers) {
        let of = |w: &WorkerCost| {
            let costs = w.ns.map(number).join(" and ");
            format!(
                "{} of them {} and {} kpps, {costs} ns out and in",
                w.workers,
                number(w.pps[0] / 1e3),
                number(w.pps[1] / 1e3)
            )
        };
        let all: Vec<String> = model.workers.iter().map(of).collect();
        lines.push(format!(
            "workers of one gateway alone, beside the tester: {}: two carry {:.2}{} times what one does, by their costs",
            all.join("; "),
            gain.times,
            give_or_take(Some(gain.within))
        ));
    }
    lines.extend(accounted(model));
    match &model.system {
        None => lines.extend(tunnels(model)),
        Some(system) => lines.push(format!(
            "{}: a packet costs each gateway half of what the machine took beyond plain forwarding, crypto included; its tunnels were \
             not measured",
            system.name
        )),
    }
    let added = |count: u32, ns: f64, within| format!("{count}: +{}{} ns", number(ns), give_or_take(within));
    let sas: Vec<String> = model.many_sas.iter().map(|m| added(m.sas, m.added, m.within)).collect();
    lines.push(format!("SAs in turn at random: {}", sas.join(", ")));
    let shares = |b: &BurstShare| {
        let of = |n: usize| format!("{} ({:.0} % of the base)", number(b.shared[n]), b.ratio[n] * 100.0);
        format!("{} at once: {} out, {} in", b.at_once, of(0), of(1))
    };
    let bursts: Vec<String> = model.bursts.iter().map(shares).collect();
    if !bursts.is_empty() {
        lines.push(format!("packets that share a call: {}", bursts.join("; ")));
    }
    for (n, way) in [(0, "out"), (1, "in")].into_iter().filter(|_| !model.flows.is_empty()) {
        let of = |f: &FlowCost| added(f.flows, f.added[n], Some(f.within[n]));
        let flows: Vec<String> = model.flows.iter().map(of).collect();
        lines.push(format!("flows, {way}: {}", flows.join(", ")));
    }
    if !model.held_back.is_empty() {
        lines.push(format!("kept back for --verify: {}", model.held_back.join(", ")));
    }
    lines
}

/// The part of a base that calls and wakings are, and what was left out of it.
fn waking(p: &PathCost) -> String {
    let left_out = [("bytes", p.per_byte), ("changes of size", p.per_change)];
    let left_out: Vec<&str> = left_out.iter().filter(|(_, ns)| *ns == 0.0).map(|(name, _)| *name).collect();
    let rest = if left_out.is_empty() {
        String::new()
    } else {
        format!("; {} cannot be told from the base, which has them", left_out.join(" and "))
    };
    let (path, way) = (p.path.name(), p.way.name());
    match p.waking {
        Some(w) => format!(
            "{path} {way}: a call or waking beyond those of a full batch takes {} (+-{}) ns of the base{rest}",
            number(w.value),
            number(w.within)
        ),
        None => format!("{path} {way}: calls and wakings cannot be told from the rest of the base{rest}"),
    }
}

/// Whether the parts of a packet's cost add up to what the whole machine took for it.
fn accounted(model: &Model) -> Option<String> {
    let f = &model.forwarding;
    let own = || {
        let plain = |c: &&Cell| c.offered == Some(f.pps) && !c.mix.merged;
        model.cells.iter().filter(plain).flat_map(|c| &c.seen).filter(|s| s.loss < 0.01)
    };
    let median = |of: fn(&Seen) -> f64| stats::median(&own().map(of).collect::<Vec<_>>());
    let (out, into, all) = (median(|s| s.out.ns)?, median(|s| s.into.ns)?, median(|s| s.machine_ns)?);
    let sum = f.hosts_ns + 2.0 * f.ns + out + into;
    Some(format!(
        "check: hosts {} + 2 x forwarding {} + out {} + in {} = {} of the {} ns that the whole machine took for a packet at {} a \
         second ({:.0} %)",
        number(f.hosts_ns),
        number(f.ns),
        number(out),
        number(into),
        number(sum),
        number(all),
        number(f.pps),
        sum / all * 100.0
    ))
}

/// Rekeying, and one more tunnel.
fn tunnels(model: &Model) -> [String; 2] {
    let rekeying = format!(
        "IKE ({}): {}{} us for a daemon to rekey, by {} rekeyings",
        model.handshake.what,
        number(model.handshake.rekey_us),
        give_or_take(model.handshake.rekey_within_us),
        model.handshake.samples
    );
    let t = &model.tunnel;
    let more = format!(
        "a tunnel of a gateway with {} of them: {} KiB, {}{} us until it is up; a gateway without: {} KiB",
        t.tunnels[1],
        number(t.kib),
        number(t.setup_us),
        give_or_take(t.setup_within_us),
        number(t.base_kib)
    );
    [rekeying, more]
}
