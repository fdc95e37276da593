//! The experiment `line` as text, from its record alone.

use super::accounting;
use super::doubts_text::warnings_text;
use super::run::{Cell, Row, Run};
use super::text::{Table, wrap};
use crate::record::Record;
use crate::stats::Summary;

/// From this width on there is room for the secondary columns.
const WIDE: usize = 112;

/// The short report of the demonstration: tables, what their columns mean, one sentence of history,
/// warnings.
pub fn demo_text(run: &Run, width: usize) -> String {
    let mut out = String::new();
    for cell in &run.results.cells {
        out.push_str(&cell_text(cell, width));
        out.push('\n');
    }
    out.push_str(&explanation(run, width));
    let h = &run.history;
    let (low, high) = h.tunnel_gbps;
    let then = format!(
        "In 2001 the same experiment gave {low:.3}-{high:.3} Gb/s through the tunnel, {:.2} of plain ({}); plain was then \
         limited by the wire, here everything is limited by the processors.",
        h.ratio, h.source
    );
    out.push('\n');
    out.push_str(&wrap(&then, width, "", ""));
    out.push_str(&warnings_text(&run.warnings, width));
    out
}

/// The whole report: tables, the historical figures, what the columns mean, warnings.
pub fn line_text(run: &Run, width: usize) -> String {
    let mut out = String::new();
    let s = &run.settings;
    out.push_str(&wrap(&run.machine.one_line(), width, "", "  "));
    out.push_str(&wrap(
        &format!(
            "TCP{}, inner MTU {}, ESP {}, windows of {} s, {}",
            s.congestion.as_ref().map(|name| format!(" {name}")).unwrap_or_default(),
            s.inner_mtu,
            s.esp_proposal,
            s.duration,
            if s.repeats == 1 {
                "one trial each".to_string()
            } else {
                format!("medians of {} trials", s.repeats)
            }
        ),
        width,
        "",
        "  ",
    ));
    for cell in &run.results.cells {
        out.push('\n');
        out.push_str(&cell_text(cell, width));
    }
    out.push('\n');
    out.push_str(&explanation(run, width));
    if let Some(text) = then_and_now(run, width) {
        out.push('\n');
        out.push_str(&text);
    }
    out.push_str(&accounting::text(&Record::from(run), width));
    out.push_str(&warnings_text(&run.warnings, width));
    out
}

fn range(s: &Summary) -> String {
    if s.n < 2 {
        return "-".into();
    }
    let digits = digits(s.max);
    format!("{:.digits$}-{:.digits$}", s.min, s.max)
}

fn number(x: f64) -> String {
    format!("{x:.*}", digits(x))
}

/// About three significant digits.
fn digits(x: f64) -> usize {
    match x.abs() {
        x if x >= 100.0 => 0,
        x if x >= 20.0 => 1,
        x if x >= 0.1 || x == 0.0 => 2,
        _ => 3,
    }
}

fn optional(x: Option<f64>) -> String {
    x.map_or_else(|| "-".into(), number)
}

fn cell_text(cell: &Cell, width: usize) -> String {
    // Show as many columns as the width allows; names of systems may be long.
    let all =
        [Columns { spread: true, more: true }, Columns { spread: true, more: false }, Columns::default()];
    let tables = all.iter().filter(|c| !c.more || width >= WIDE).map(|c| table(cell, *c));
    let fits = |t: &String| t.lines().all(|l| l.chars().count() <= width);
    let mut table = String::new();
    for t in tables {
        table = t;
        if fits(&table) {
            break;
        }
    }
    let mut title = cell.key.to_string();
    if let Some(first) = title.get(..1).map(str::to_uppercase) {
        title.replace_range(..1, &first);
    }
    format!("{title}\n{table}")
}

/// Which columns of a table are shown beside those that always are.
#[derive(Clone, Copy, Default)]
struct Columns {
    /// The extremes of the repeats.
    spread: bool,
    /// Columns that only wide terminals have room for.
    more: bool,
}

fn table(cell: &Cell, columns: Columns) -> String {
    let mut table = Table::default();
    let mut heading = vec!["", "Gb/s", "min-max", "of plain", "ns/byte", "min-max", "added", "gateways"];
    heading.retain(|h| columns.spread || *h != "min-max");
    if columns.more {
        heading.extend(["cycles", "softirq", "B/buffer", "MiB"]);
    }
    table.row(heading);
    for row in &cell.rows {
        table.row(cells(row, columns));
    }
    table.render(" ")
}

fn cells(row: &Row, columns: Columns) -> Vec<String> {
    let mut cells = vec![row.dut.clone(), number(row.gbps.median)];
    cells.extend(columns.spread.then(|| range(&row.gbps)));
    cells.push(optional(row.ratio.or((row.dut == "plain").then_some(1.0))));
    cells.push(number(row.machine_ns_per_byte.median));
    cells.extend(columns.spread.then(|| range(&row.machine_ns_per_byte)));
    cells.push(optional(row.added_ns_per_byte));
    cells.push(number(row.gateways_ns_per_byte.median));
    if columns.more {
        cells.extend([
            optional(row.added_cycles_per_byte),
            format!("{:.0} %", row.softirq_share.median * 100.0),
            format!("{:.0}", row.bytes_per_buffer.median),
            row.resident_kib.map_or_else(|| "-".into(), |k| format!("{:.0}", k as f64 / 1024.0)),
        ]);
    }
    cells
}

fn explanation(run: &Run, width: usize) -> String {
    let rows = || run.results.cells.iter().flat_map(|c| &c.rows);
    let softirq = rows().map(|r| r.softirq_share.median).fold(0.0, f64::max);
    let mut notes = vec![
        (
            "ns/byte",
            "busy time of the whole machine, hosts and kernel included, per byte of payload: the figure to \
                     compare"
                .to_string(),
        ),
        ("added", "the same, less that of plain forwarding in this run".to_string()),
        (
            "gateways",
            format!(
                "CPU time of the gateways' processes per byte; software interrupts of any box may be charged to them (up to \
             {:.0} % of the busy time was such)",
                softirq * 100.0
            ),
        ),
    ];
    if width >= WIDE {
        notes.push(("cycles", "the added cost in clock cycles of this machine".into()));
        notes.push(("B/buffer", "mean size in which packets reached the receiving host".into()));
        notes.push(("MiB", "largest resident size of a gateway's process".into()));
    }
    notes.iter().map(|(name, text)| wrap(text, width, &format!(" {name:<9} "), &" ".repeat(11))).collect()
}

/// The published figures beside those of the first cell that has a tunnel.
fn then_and_now(run: &Run, width: usize) -> Option<String> {
    // At an offered rate both carry the same, which is not what was compared then.
    let mut unlimited = run.results.cells.iter().filter(|c| c.key.rate_mbps.is_none());
    let (cell, tunnel) = unlimited.find_map(|c| {
        let tunnel = c.row("ironswan").or_else(|| c.rows.iter().find(|r| r.dut != "plain"))?;
        Some((c, tunnel))
    })?;
    let plain = cell.row("plain")?;
    let h = &run.history;
    let gbps = |(low, high): (f64, f64)| format!("{low:.3}-{high:.3}");
    let mut t = Table::default();
    t.row(["Then and now", "2001", &format!("now, {}", tunnel.dut)]);
    t.row(["plain, Gb/s".to_string(), gbps(h.plain_gbps), number(plain.gbps.median)]);
    t.row(["tunnel, Gb/s".to_string(), gbps(h.tunnel_gbps), number(tunnel.gbps.median)]);
    t.row(["tunnel of plain".to_string(), format!("{:.2}", h.ratio), optional(tunnel.ratio)]);
    if let Some(cycles) = tunnel.added_cycles_per_byte {
        t.row([
            "cycles per byte".to_string(),
            format!("{:.0} (one gateway)", h.cycles_per_byte),
            format!("{} (both, added)", number(cycles)),
        ]);
    }
    Some(format!("{}{}", t.render(" "), wrap(&format!("2001: {}. {}", h.source, h.caveat), width, " ", " ")))
}

#[cfg(test)]
mod tests {
    use super::super::sample;
    use super::*;

    #[test]
    fn medians_ratio_and_added_cost_are_those_of_the_trials() {
        let run = sample::run();
        let row = run.results.cells[0].row("ironswan").expect("a row");
        assert_eq!((row.gbps.median, row.ratio, row.added_ns_per_byte), (6.0, Some(0.6), Some(1.0)));
        assert_eq!(row.added_cycles_per_byte, Some(2.0));
        assert_eq!(row.resident_kib, Some(10_240));
        let plain = run.results.cells[0].row("plain").expect("a row");
        assert_eq!((plain.ratio, plain.added_ns_per_byte), (None, None));
    }

    #[test]
    fn the_text_has_our_figures_the_historical_ones_and_the_warnings() {
        let text = line_text(&sample::run(), 80);
        for part in [
            "Offload mode, 1 stream, a to b",
            " ironswan   6.00   5.00-7.00      0.60",
            "0.087-0.093",
            "limited by the 100 Mbit/s wire",
            "only 2 repeats",
        ] {
            assert!(text.contains(part), "{part:?} is not in\n{text}");
        }
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for width in [80, 111, 112, 120] {
            let both = line_text(&sample::run(), width) + &demo_text(&sample::run(), width);
            let mut long = sample::run();
            long.results.cells[0].rows[1].dut = "wireguard-go-tailscale".into();
            for line in both.lines().chain(line_text(&long, width).lines()) {
                assert!(line.chars().count() <= width, "{width}: {line}");
            }
        }
    }
}
