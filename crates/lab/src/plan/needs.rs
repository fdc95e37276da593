//! What a link needs, for people: the answer in three lines, the reasons line by line with the
//! numbers in the formula, and the historical table.

use super::answer::{Limit, Need, Packet, Verdict, cores, need, tunnels_of_memory};
use super::ask::{Ask, Demand};
use super::links::{FREESWAN_CYCLES, FREESWAN_MHZ, LINKS};
use super::model::{Cost, Model, Path};
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
    let mhz = ask.ghz.map(|g| g * 1e3).or(model.machine.mhz);
    let mhz = mhz.map(|mhz| format!(" ({} MHz)", number(n.cores * mhz))).unwrap_or_default();
    let least = format!(
        "the least machine has {} processors {}{mhz}, and this one has {}",
        number(n.cores),
        model.class(),
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
        format!("{verdict}: {least}"),
        format!(
            "first runs out {first}{then}; at the load itself {:.1} % of the machine is busy",
            n.busy_cores / have * 100.0
        ),
        format!("sure to {:.0} %, by how the model misses its own measurements; {sure}", n.unsure * 100.0),
    ]
}

fn parts(what: &str, cost: &Cost, calls: f64, burst: f64) -> String {
    let terms = [
        (cost.base, format!("for its way and {calls:.2} calls and wakings")),
        (cost.bytes, "for bytes".into()),
        (cost.crypto, format!("crypto in bursts of {}", number(burst))),
        (cost.sas, "for many SAs".into()),
    ];
    let terms: Vec<String> =
        terms.iter().filter(|(ns, _)| *ns > 0.0).map(|(ns, of)| format!("{} {of}", number(*ns))).collect();
    format!("  {what} = {} = {} ns", terms.join(" + "), number(cost.total()))
}

fn both(packet: &Packet) -> [String; 3] {
    [
        parts("out", &packet.out, packet.calls[0], packet.burst[0]),
        parts("in ", &packet.into, packet.calls[1], packet.burst[1]),
        format!(
            "  forwarding, what one box without a tunnel takes: {} ns each way",
            number(packet.forwarding_ns)
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
    lines.push(format!(
        "rekeying: {} tunnels x {} us / {} s = {}",
        ask.tunnels,
        number(model.handshake.rekey_us),
        number(ask.rekey),
        number(n.keys.rekey_cores)
    ));
    if let Some(storm) = ask.storm {
        lines.push(format!(
            "setup storm: {} tunnels x {} us in {} s = {} while it lasts",
            ask.tunnels,
            number(model.tunnel.setup_us),
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
        "needed: {} / {:.2}, the share that can be busy without loss, x load times {} (safety {} / share {}) = {} processors of \
         this kind",
        number(n.bare_cores),
        n.busy_at_most,
        number(ask.safety / ask.share),
        ask.safety,
        ask.share,
        number(n.cores)
    ));
    lines.push(format!(
        "busy at the load itself, where packets gather less: {} processors",
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
    let kind =
        format!("processors {}{}", model.class(), ghz.map_or(String::new(), |g| format!(", {g:.1} GHz")));
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
