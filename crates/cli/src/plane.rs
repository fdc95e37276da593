//! The data plane in `status` (workers, engines, what the kernel does for us) and in
//! `list counters` (where the time of a packet goes).

use ironswan_wire::vici::Section;

use crate::text::{amount, table as aligned};

/// The stages in the order of the path, as VICI names them.
const STAGES: [&str; 7] = ["receive", "parse", "policy", "sequence", "encapsulation", "crypto", "send"];

/// A block of lines from the answer to `stats`; nothing when the daemon does not say.
pub(crate) fn text(stats: &Section) -> String {
    let Some(p) = stats.section("data-plane") else { return String::new() };
    let list = |key: &str| {
        let items = p.get_list(key).unwrap_or_default();
        items.iter().map(|i| String::from_utf8_lossy(i).into_owned()).collect::<Vec<_>>().join(", ")
    };
    let or_dash = |text: String| if text.is_empty() { "-".to_owned() } else { text };
    let has = |key: &str| p.get_str(key) == Some("yes");
    let tun = match (has("tun-tso"), has("tun-uso")) {
        (true, true) => "TSO and USO",
        (true, false) => "TSO",
        (false, _) => "no offload",
    };
    let cut = match number(p, "udp-segments") {
        0 | 1 => "not cut".to_owned(),
        n => format!("cut (up to {n})"),
    };
    let merged = if has("udp-gro") { "merged" } else { "not merged" };
    let workers = number(p, "workers");
    let threaded = list("threaded-napi");
    let mut out = format!(
        "data plane: {workers} worker{}, engines {}\n  TUN: {tun}; UDP: {cut}, {merged}, buffers {} and {}; XDP: {}{}{}\n",
        if workers == 1 { "" } else { "s" },
        or_dash(list("engines")),
        amount(number(p, "receive-buffer")),
        amount(number(p, "send-buffer")),
        or_dash(list("xdp")),
        if has("busy-poll") { "; busy polling" } else { "" },
        if threaded.is_empty() { threaded } else { format!("; threaded NAPI: {threaded}") },
    );
    let slower = list("slower");
    if !slower.is_empty() {
        out += &format!("  refused by the kernel: {slower}\n");
    }
    out
}

/// Time of a packet by stage, a line for each direction. Empty for a direction without
/// measurements.
pub(crate) fn times(stages: &Section) -> String {
    let mut out = String::new();
    for (name, title) in [("outbound", "out"), ("inbound", "in")] {
        let times = stages.section(name).map(per_packet).filter(|t| !t.is_empty());
        out += &times.map(|t| format!("{title}: {t}\n")).unwrap_or_default();
    }
    out
}

/// The sums behind [`times`], of both directions.
pub(crate) fn table(stages: &Section) -> String {
    let keys = ["packets", "bytes"].iter().chain(&STAGES);
    let cell = |direction: &str, key: &str| {
        stages.section(direction).and_then(|s| s.get_str(key)).unwrap_or("-").to_owned()
    };
    let rows: Vec<_> =
        keys.map(|key| vec![format!("  {key}"), cell("outbound", key), cell("inbound", key)]).collect();
    aligned(&["stages, ns", "outbound", "inbound"], &rows)
}

/// Nanoseconds a packet, in all and by stage; nothing when nothing was measured.
fn per_packet(times: &Section) -> String {
    let packets = number(times, "packets");
    if packets == 0 {
        return String::new();
    }
    let stages: Vec<String> =
        STAGES.iter().map(|stage| format!("{stage} {}", rounded(number(times, stage), packets))).collect();
    let total = STAGES.iter().map(|stage| number(times, stage)).sum();
    format!(
        "{} ns a packet of {} bytes: {}",
        rounded(total, packets),
        rounded(number(times, "bytes"), packets),
        stages.join(", ")
    )
}

fn rounded(sum: u64, n: u64) -> u64 {
    sum.saturating_add(n / 2) / n
}

fn number(s: &Section, key: &str) -> u64 {
    s.get_str(key).and_then(|t| t.parse().ok()).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats() -> Section {
        let plane = Section::new()
            .with("workers", "2")
            .with("engines", ["aws-lc", "vaes"])
            .with("tun-tso", "yes")
            .with("tun-uso", "yes")
            .with("udp-segments", "128")
            .with("udp-gro", "yes")
            .with("receive-buffer", "8388608")
            .with("send-buffer", "8388608")
            .with("busy-poll", "no")
            .with("xdp", Vec::<String>::new())
            .with("threaded-napi", Vec::<String>::new())
            .with("slower", Vec::<String>::new());
        let mut out = Section::new().with("packets", "10").with("bytes", "14000");
        for (i, stage) in STAGES.iter().enumerate() {
            out.put(*stage, ((i + 1) * 100).to_string());
        }
        let nothing = Section::new().with("packets", "0").with("bytes", "0");
        Section::new()
            .with("data-plane", plane)
            .with("stages", Section::new().with("outbound", out).with("inbound", nothing))
    }

    #[test]
    fn workers_offloads_and_times_are_shown_and_what_was_not_measured_is_left_out() {
        assert_eq!(
            text(&stats()),
            "data plane: 2 workers, engines aws-lc, vaes\n  \
             TUN: TSO and USO; UDP: cut (up to 128), merged, buffers 8.4M and 8.4M; XDP: -\n"
        );
        assert_eq!(
            times(stats().section("stages").unwrap()),
            "out: 280 ns a packet of 1400 bytes: receive 10, parse 20, policy 30, sequence 40, encapsulation 50, crypto 60, \
             send 70\n"
        );
    }

    #[test]
    fn the_sums_of_both_directions_stand_side_by_side() {
        let got = table(stats().section("stages").unwrap());
        let lines: Vec<_> = got.lines().collect();
        assert_eq!(lines.len(), 10, "{got}");
        assert_eq!(lines[1].split_whitespace().collect::<Vec<_>>(), ["packets", "10", "0"]);
        assert_eq!(lines[9].split_whitespace().collect::<Vec<_>>(), ["send", "700", "-"]);
    }

    #[test]
    fn what_is_not_granted_and_what_was_refused_is_shown() {
        let plane = Section::new()
            .with("workers", "1")
            .with("udp-segments", "1")
            .with("threaded-napi", ["lan", "wan"]);
        let plane = plane.with("slower", ["merging of UDP"]);
        let got = text(&Section::new().with("data-plane", plane));
        assert!(
            got.starts_with("data plane: 1 worker, engines -\n  TUN: no offload; UDP: not cut, not merged"),
            "{got}"
        );
        assert!(got.contains("XDP: -; threaded NAPI: lan, wan\n"), "{got}");
        assert!(got.contains("refused by the kernel: merging of UDP\n"), "{got}");
        // A daemon of another version.
        assert_eq!(text(&Section::new()), "");
    }
}
