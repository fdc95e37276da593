//! For people: what a calibration measured and fitted.

use super::model::{Cell, Model, Seen};
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
    lines.extend(suites.render(" ").lines().map(String::from));
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
                number(q.ns),
                format!("{:.2}", q.calls),
                number(q.burst),
                format!("{:.0} %", q.pps * q.ns / 1e7),
                once(number(p.per_byte)),
                once(number(p.per_change)),
                once(format!("{:.0} %", p.residual * 100.0)),
                once(p.cells.to_string()),
            ]);
        }
    }
    lines.extend(paths.render(" ").lines().map(String::from));
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
    lines.extend(accounted(model));
    lines.push(format!(
        "IKE ({}): {} us to set up, {} us to rekey, in memory",
        model.handshake.what,
        number(model.handshake.setup_us),
        number(model.handshake.rekey_us)
    ));
    let t = &model.tunnel;
    lines.push(format!(
        "a tunnel of a gateway with {} of them: {} KiB, {} us until it is up; a gateway without: {} KiB",
        t.tunnels[1],
        number(t.kib),
        number(t.setup_us),
        number(t.base_kib)
    ));
    let sas: Vec<String> =
        model.many_sas.iter().map(|m| format!("{}: +{} ns", m.sas, number(m.added))).collect();
    lines.push(format!("SAs in turn at random: {}", sas.join(", ")));
    lines.push(format!("kept back for --verify: {}", model.held_back.join(", ")));
    lines
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
