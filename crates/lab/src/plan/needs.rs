//! What a link needs, for people: the answer in three lines, the reasons line by line with the
//! numbers in the formula, and the historical table.

use super::answer::{Limit, Need, Packet, Verdict, cores, need, tunnels_of_memory};
use super::ask::{Ask, Demand};
use super::calm::Trust;
use super::cost::{Cost, Widths};
use super::links::{FREESWAN_CYCLES, FREESWAN_MHZ, LINKS};
use super::model::{Model, Path};
use crate::error::LabError;
use crate::report::{Table, number};

/// The answer in three lines: enough or not, what runs out first, how sure.
pub fn summary(model: &Model, ask: &Ask, n: &Need, beyond: &[String]) -> Vec<String> {
    let have = cores(model, ask);
    let with = ask.safety / ask.share;
    let carries = n.headroom * n.link_mbps.max(n.back_mbps);
    let verdict = match n.verdict {
        Verdict::Enough => "enough",
        Verdict::NotEnough => "not enough",
        Verdict::CannotTell => "cannot tell",
    };
    let with_system = model.system.as_ref().map(|s| format!(" with {}", s.name)).unwrap_or_default();
    let verdict = format!("{verdict}{with_system}");
    let mhz = ask.ghz.map(|g| g * 1e3).or(model.machine.mhz);
    let mhz = mhz.map(|mhz| format!(" ({} MHz)", number(n.cores * mhz))).unwrap_or_default();
    let least = format!(
        "the least machine has {} processors {}{mhz}, and this one has {}",
        number(n.cores),
        model.class().words(),
        number(have)
    );
    let processors = format!(
        "processors: the load x {} (safety {} / share {}) takes {:.0} % of the highest rate, {} Mbit/s on the link",
        number(with),
        ask.safety,
        ask.share,
        with / n.headroom * 100.0,
        number(carries)
    );
    let memory = n
        .memory_used
        .map(|used| format!("memory: {} tunnels take {:.1} % of its share", ask.tunnels, used * 100.0));
    let (first, then) = match (n.first, memory) {
        (Limit::Processors, memory) => (processors, memory),
        (Limit::Memory, memory) => (memory.unwrap_or_default(), Some(processors)),
    };
    let then = then.map(|t| format!("; {t}")).unwrap_or_default();
    let sure = if beyond.is_empty() {
        "the load lies within what was measured".to_string()
    } else {
        format!("extrapolation: {}", beyond.join("; "))
    };
    vec![
        match model.trust() {
            Trust::None(why) if n.verdict == Verdict::CannotTell => {
                format!("{verdict}: {why}; by that model {least}")
            }
            _ => format!("{verdict}: {least}"),
        },
        format!(
            "first runs out {first}{then}; at the load itself {:.1} % of the machine is busy",
            n.busy_cores / have * 100.0
        ),
        format!(
            "sure to {:.0} %, by how the model misses its own measurements and by its intervals; {}{sure}",
            n.unsure * 100.0,
            // The first line says it otherwise.
            if matches!(model.trust(), Trust::None(_)) { String::new() } else { model.trust().text() + "; " }
        ),
    ]
}

/// Half of an interval, behind its number; nothing where one measurement alone says it.
pub(super) fn give_or_take(within: Option<f64>) -> String {
    within.filter(|w| *w > 0.0).map(|w| format!(" (+-{})", number(w))).unwrap_or_default()
}

fn parts(what: &str, cost: &Cost, within: &Widths, calls: f64, burst: f64) -> String {
    let names = [
        "for its way".into(),
        format!("for waiting: {calls:.2} calls and wakings, more than in a full batch"),
        "for bytes".into(),
        "for changes of size".into(),
        format!("crypto in bursts of {}", number(burst)),
        "for many SAs".into(),
        "for many flows".into(),
    ];
    let all = cost.parts().into_iter().zip(within.parts()).zip(names);
    let terms: Vec<String> = all
        .filter(|(((_, ns), _), _)| *ns > 0.0)
        .map(|(((_, ns), within), of)| format!("{}{} {of}", number(ns), give_or_take(within)))
        .collect();
    let (sum, total) = (terms.join(" + "), number(cost.total()));
    format!("  {what} = {sum} = {total}{} ns", give_or_take(within.total))
}

fn both(packet: &Packet) -> [String; 3] {
    [
        parts("out", &packet.out, &packet.within[0], packet.calls[0], packet.burst[0]),
        parts("in ", &packet.into, &packet.within[1], packet.calls[1], packet.burst[1]),
        format!(
            "  forwarding, what one box without a tunnel takes: {}{} ns each way",
            number(packet.forwarding_ns),
            give_or_take(Some(packet.forwarding_within))
        ),
    ]
}

/// The reasons, whose terms add up to the answer.
pub fn why(model: &Model, ask: &Ask, n: &Need) -> Vec<String> {
    let mut lines = vec![
        format!(
            "{} Mbit/s out, {} in, {} in {}{}, mix {} (mean {} bytes of IP)",
            number(n.link_mbps),
            number(n.back_mbps),
            ask.suite,
            if ask.path == Path::Udp { "UDP" } else { "raw ESP" },
            if ask.ipv6 { " over IPv6" } else { "" },
            ask.mix.name,
            number(ask.mix.bytes())
        ),
        format!(
            "packets: {} and {} Mbit/s / 8 / {} bytes on the link = {} a second out, {} in",
            number(n.link_mbps),
            number(n.back_mbps),
            number(n.outer_bytes),
            number(n.pps),
            number(n.back_pps)
        ),
        "cost of a packet at the highest rate without loss:".into(),
    ];
    lines.extend(both(&n.packet));
    lines.push(format!(
        "processors: {} x ({} + {f}) + {} x ({} + {f}) ns = {}",
        number(n.pps),
        number(n.packet.out.total()),
        number(n.back_pps),
        number(n.packet.into.total()),
        number(n.packet_cores),
        f = number(n.packet.forwarding_ns)
    ));
    let rekeying = format!(
        "rekeying: {} tunnels x {}{} us / {} s = {}",
        ask.tunnels,
        number(model.handshake.rekey_us),
        give_or_take(model.handshake.rekey_within_us),
        number(ask.rekey),
        number(n.keys.rekey_cores)
    );
    lines.push(match &model.system {
        None => rekeying,
        Some(system) => format!("rekeying: not measured of {}, and left out", system.name),
    });
    if let Some(storm) = ask.storm {
        lines.push(format!(
            "setup storm: {} tunnels x {}{} us in {} s = {} while it lasts",
            ask.tunnels,
            number(model.tunnel.setup_us),
            give_or_take(model.tunnel.setup_within_us),
            number(storm),
            number(n.keys.storm_cores)
        ));
    }
    if let Some(every) = ask.keepalive {
        lines.push(format!(
            "NAT keepalives: {} tunnels / {} s, each the way of a received packet = {}",
            ask.tunnels,
            number(every),
            number(n.keys.keepalive_cores)
        ));
    }
    lines.push(format!(
        "needed: {} / {:.2}, the share that can be busy without loss, x load times {} (safety {} / share {}) = {} processors as \
         each of the {} that were measured",
        number(n.bare_cores),
        n.busy_at_most,
        number(ask.safety / ask.share),
        ask.safety,
        ask.share,
        number(n.scaled_cores),
        model.machine.cpus
    ));
    lines.push(scaling(model, n));
    lines.push(format!(
        "busy at the load itself, where packets {}: {} processors",
        if ask.burst > 1 { format!("come {} at once", ask.burst) } else { "gather less".into() },
        number(n.busy_cores)
    ));
    lines.extend(both(&n.at_load));
    if let Some(most) = tunnels_of_memory(model, ask) {
        lines.push(format!(
            "memory: {} tunnels x {} KiB = {} MiB; share {} of this machine's holds {} tunnels",
            ask.tunnels,
            number(model.tunnel.kib),
            number(f64::from(ask.tunnels) * model.tunnel.kib / 1024.0),
            ask.share,
            number(most)
        ));
    }
    if let (Some(cycles), Some(bare), Some(safe)) = (n.cycles_per_byte, n.mhz_per_mbps, n.mhz_per_mbps_safe) {
        lines.push(format!(
            "cycles per byte and direction: {}; MHz for each Mbit/s: {}, with safety and share {}; FreeS/WAN's rule: {}, with \
             safety {} (3DES; of a link, without a word about directions)",
            number(cycles),
            number(bare),
            number(safe),
            FREESWAN_MHZ.1,
            FREESWAN_MHZ.0
        ));
        lines.push(published(cycles));
        lines.push(RULE.into());
    }
    lines.push(format!("what dominates: {}, {:.0} % of it", n.dominant.0, n.dominant.1 * 100.0));
    lines.push("not in it: interrupts of real network cards, a firewall's rules".into());
    lines
}

/// What that is in processors, by what a second worker adds.
fn scaling(model: &Model, n: &Need) -> String {
    let Some(gain) = n.gain else {
        return format!(
            "workers: one and two were not measured, so all is taken to scale = {} processors",
            number(n.cores)
        );
    };
    format!(
        "workers: two carry {:.2}{} times what one does, so each doubling does: {} x ({} / {})^(1 / {:.3}) = {} processors \
         of this kind",
        gain.times,
        give_or_take(Some(gain.within)),
        model.machine.cpus,
        number(n.scaled_cores),
        model.machine.cpus,
        gain.times.log2(),
        number(n.cores)
    )
}

/// The published cycles for each byte beside ours.
fn published(ours: f64) -> String {
    let [ip, ipsec, sha1, des] = FREESWAN_CYCLES;
    format!(
        "cycles per byte published then: IP stack {ip}, IPsec without cryptography {ipsec}, with SHA-1 {sha1}, 3DES {des} more: {}; \
         ours, all of it: {}",
        sha1 + des,
        number(ours)
    )
}

/// Notes that a reader needs in order to compare.
const RULE: &str = "caveat: the rule gives the MHz for a link and does not say whether it was full one way or both ways; ours are for \
                    both directions full, so beside a rule for one direction they are up to twice as large";

/// The historical table, remade.
pub fn links(model: &Model, ask: &Ask) -> Result<Vec<String>, LabError> {
    let mut table = Table::default();
    let ghz = ask.ghz.or(model.machine.mhz.map(|mhz| mhz / 1e3));
    let kind = format!(
        "processors {}{}",
        model.class().words(),
        ghz.map_or(String::new(), |g| format!(", {g:.1} GHz"))
    );
    table.row(
        ["link", "Mbit/s", "FreeS/WAN: MHz", "MHz, capacity", "with safety and share", &kind, ""]
            .map(String::from),
    );
    let have = cores(model, ask);
    for (name, mbps) in LINKS {
        let n = need(model, ask, Demand::full(mbps * 1e6))?;
        let mhz = |per: Option<f64>| per.map_or_else(|| "-".into(), |m| number(m * mbps));
        let beyond = if n.cores > have { "extrapolation" } else { "" };
        table.row([
            name.to_string(),
            number(mbps),
            number(mbps * FREESWAN_MHZ.0),
            mhz(n.mhz_per_mbps),
            mhz(n.mhz_per_mbps_safe),
            number(n.cores),
            beyond.to_string(),
        ]);
    }
    let mut lines = vec![format!(
        "links full of {} both ways, {}; FreeS/WAN's rule of thumb was Mbit/s x {} (3DES; {} without safety)",
        ask.mix.name, ask.suite, FREESWAN_MHZ.0, FREESWAN_MHZ.1
    )];
    lines.extend(table.render(" ").lines().map(String::from));
    lines.push(format!(
        "extrapolation: beyond the {} processors that were measured, as if everything scaled; DSL and cable are taken as 50 and 250 \
         Mbit/s each way",
        number(have)
    ));
    lines.push(RULE.into());
    if let Some(cycles) = need(model, ask, Demand::full(1e6))?.cycles_per_byte {
        lines.push(published(cycles));
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::super::answer::need;
    use super::super::mix::Mix;
    use super::super::sample;
    use super::*;

    /// Numbers of a line that stand before `until`, without intervals and with no commas.
    fn numbers(text: &str) -> Vec<f64> {
        let plain = text.replace(',', "");
        let words = plain.split([' ', '(', ')', '{', '}']).filter(|w| !w.starts_with("+-"));
        words.filter_map(|w| w.parse().ok()).collect()
    }

    #[test]
    fn the_printed_terms_add_up_to_the_printed_answer() {
        let mut model = sample::model();
        model.workers[1].ns = [2_500.0; 2];
        model.paths.iter_mut().for_each(|p| (p.per_change, p.per_change_within) = (150.0, Some(20.0)));
        for (suite, tunnels, burst) in [("aes128gcm16", 1, 1), ("3des-sha1", 5_000, 4)] {
            let ask = Ask {
                tunnels,
                burst,
                keepalive: Some(20.0),
                storm: Some(60.0),
                ..Ask::of(suite, Path::Udp, Mix::imix())
            };
            let n = need(&model, &ask, Demand { out: 2e9, into: 7e9 }).expect("an answer");
            let lines = why(&model, &ask, &n);
            let near = |a: f64, b: f64| (a / b - 1.0).abs() < 0.003;
            let mut totals = Vec::new();
            for line in lines.iter().filter(|l| l.starts_with("  out = ") || l.starts_with("  in  = ")) {
                let [_, terms, total] = line.split(" = ").collect::<Vec<_>>()[..] else { panic!("{line}") };
                let each: Vec<f64> = terms.split(" + ").map(|term| numbers(term)[0]).collect();
                let total = numbers(total)[0];
                assert!(each.len() >= 5 && near(each.iter().sum(), total), "{line}");
                assert!(line.matches("(+-").count() >= each.len(), "each has an interval: {line}");
                totals.push(total);
            }
            let [out, into, ..] = totals[..] else { panic!("{lines:?}") };
            let of = |start: &str| {
                let line = lines.iter().find(|l| l.starts_with(start));
                line.unwrap_or_else(|| panic!("{start} is not in {lines:?}"))
            };
            let answer = |line: &str| {
                let (_, last) = line.rsplit_once(" = ").expect("an answer");
                numbers(last)[0]
            };
            let packets = numbers(of("processors:"));
            let [pps, of_out, forwarding, back, of_in, ..] = packets[..] else { panic!("{packets:?}") };
            assert!(near(of_out, out) && near(of_in, into), "{packets:?} {totals:?}");
            let sum = (pps * (out + forwarding) + back * (into + forwarding)) / 1e9;
            assert!(near(sum, answer(of("processors:"))), "{sum}: {lines:?}");
            let more: f64 =
                ["rekeying:", "setup storm:", "NAT keepalives:"].iter().map(|l| answer(of(l))).sum();
            let needed = numbers(of("needed:"));
            assert!(near(sum + more, needed[0]), "{sum} + {more}: {needed:?}");
            assert!(near(needed[0] / needed[1] * 3.0, answer(of("needed:"))), "{needed:?}");
            let workers = of("workers:");
            let exponent: f64 = 1.0 / 1.6f64.log2();
            let processors = 2.0 * (answer(of("needed:")) / 2.0).powf(exponent);
            assert!(near(processors, answer(workers)), "{workers}");
            assert!(workers.contains("1.60 (+-0.0"), "{workers}");
        }
    }
}
