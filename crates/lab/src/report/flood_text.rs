//! A flood experiment as text, from its record alone.

use super::accounting;
use super::doubts_text::warnings_text;
use super::flood::{FloodCell, FloodRow, FloodRun, FloodTrial};
use super::number::percent;
use super::text::{Table, wrap};
use crate::record::Record;

/// The report.
pub fn flood_text(run: &FloodRun, width: usize) -> String {
    let s = &run.settings;
    let mut out = wrap(&run.machine.one_line(), width, "", "  ");
    let about = format!(
        "UDP by our own generator, ESP {}, inner MTU {}; throughput decided by {} packets, to within {:.0} %; {} trial{} at \
         each multiple of the throughput at loss <= {}",
        s.esp_proposal,
        s.inner_mtu,
        s.packets,
        s.width * 100.0,
        s.repeats,
        if s.repeats == 1 { "" } else { "s" },
        percent(s.goals.first().copied().unwrap_or(0.0)),
    );
    out.push_str(&wrap(&about, width, "", "  "));
    for cell in &run.results.cells {
        out.push('\n');
        out.push_str(&cell_text(cell, run, width));
    }
    out.push('\n');
    let notes = [
        (
            "<= x %",
            "highest rate at which no more than x % was lost, thousands of packets a second; what the generator \
          could not send counts as lost",
        ),
        ("of wg", "the same over wireguard-go's"),
        ("peak", "the highest rate at which packets arrived in any trial"),
        (
            "2x",
            "share of the peak that still arrived with that many times the throughput offered; ~ where the generator \
          sent less than nine tenths of it",
        ),
    ];
    for (name, text) in notes {
        out.push_str(&wrap(text, width, &format!(" {name:<7} "), "         "));
    }
    out.push_str(&accounting::text(&Record::from(run), width));
    out.push_str(&warnings_text(&run.warnings, width));
    out
}

fn kpps(pps: f64) -> String {
    let k = pps / 1e3;
    if k >= 100.0 { format!("{k:.0}") } else { format!("{k:.1}") }
}

fn cell_text(cell: &FloodCell, run: &FloodRun, width: usize) -> String {
    let mut table = Table::default();
    let mut heading = vec!["kpps".to_string()];
    for goal in &run.settings.goals {
        heading.extend([format!("<={}", percent(*goal)), "of wg".to_string()]);
    }
    heading.push("peak".into());
    heading.extend(run.settings.multiples.iter().map(|m| format!("{m}x")));
    table.row(heading);
    for row in &cell.rows {
        table.row(row_text(row, &run.settings.goals, &run.settings.multiples));
    }
    let mut out = format!("{}\n{}", cell.key, table.render(" "));
    for row in &cell.rows {
        let own =
            run.trials.iter().filter(|t| t.cell == cell.key && t.dut == row.dut && t.multiple.is_some());
        // The hardest point, and of its repeats the first.
        let most = own.clone().filter_map(|t| t.multiple).fold(0.0, f64::max);
        if let Some(t) = own.clone().find(|t| t.multiple == Some(most)) {
            out.push_str(&wrap(&account_text(t, most), width, "  ", "    "));
        }
    }
    out
}

fn row_text(row: &FloodRow, goals: &[f64], multiples: &[f64]) -> Vec<String> {
    let dash = || "-".to_string();
    let mut cells = vec![row.dut.clone()];
    for goal in goals {
        let t = row.throughput.iter().find(|t| t.goal == *goal);
        cells.push(t.and_then(|t| t.pps).map_or_else(dash, kpps));
        cells.push(t.and_then(|t| t.of_wireguard_go).map_or_else(dash, |r| format!("{r:.1}")));
    }
    cells.push(kpps(row.peak_pps));
    let throughput = row.throughput.first().and_then(|t| t.pps);
    for multiple in multiples {
        cells.push(row.curve.iter().find(|p| p.multiple == *multiple).map_or_else(dash, |p| {
            let short = throughput.is_some_and(|t| p.sent_pps < 0.9 * t * multiple);
            format!("{}{:.0}%", if short { "~" } else { "" }, p.of_peak * 100.0)
        }));
    }
    cells
}

/// The account of one trial as text: the share of packets that was lost at each place.
fn account_text(t: &FloodTrial, multiple: f64) -> String {
    let a = &t.account;
    let share = |n: f64| format!("{:.1} %", 100.0 * n / a.sent.max(1) as f64);
    let mut places: Vec<String> =
        a.places.iter().map(|p| format!("{} {} ({})", p.place, p.packets, share(p.packets as f64))).collect();
    if a.unexplained != 0 {
        places.push(format!("without a counter {} ({})", a.unexplained, share(a.unexplained as f64)));
    }
    if places.is_empty() {
        places.push("nothing".into());
    }
    let mut text = format!(
        "{} at {multiple}x: sent {}, arrived {}, lost: {}",
        t.dut,
        a.sent,
        a.received,
        places.join(", ")
    );
    if t.sent.unsent > 0 {
        text.push_str(&format!("; the generator could not send {} more", t.sent.unsent));
    }
    let r = &t.received;
    if r.duplicates + r.reordered > 0 {
        text.push_str(&format!("; duplicates {}, reordered {}", r.duplicates, r.reordered));
    }
    if let Some(l) = r.latency {
        text.push_str(&format!("; latency p50 {:.0}, p99 {:.0} us", l.p50_us, l.p99_us));
    }
    text
}
