//! A record as text for a terminal: question and answer, its tables, the historical figure beside
//! ours, the doubts, machine and settings. From the record alone.

use super::answer::answer;
use super::doubts_text::warnings_text;
use super::grid::{Grid, titled};
use super::text::{Table as Text, wrap};
use crate::record::{Record, View};

/// The report, `width` columns wide.
pub fn record_text(record: &Record, width: usize) -> String {
    let mut out =
        wrap(&format!("{} {}: {}", record.number, record.experiment, record.question), width, "", "  ");
    if let Some(answer) = answer(record) {
        out.push_str(&wrap(&answer, width, "", "  "));
    }
    out.push_str(&tables(record, width));
    out.push_str(&meanings(record, width));
    for h in &record.history {
        out.push('\n');
        out.push_str(&wrap(&h.source, width, "", "  "));
        out.push_str(&wrap(&h.then, width, "  then  ", "        "));
        out.push_str(&wrap(&h.now, width, "  now   ", "        "));
        if !h.caveat.is_empty() {
            out.push_str(&wrap(&h.caveat, width, "  but   ", "        "));
        }
    }
    out.push_str(&warnings_text(&record.warnings, width));
    out.push('\n');
    out.push_str(&wrap(&record.machine.one_line(), width, "", "  "));
    let settings: Vec<String> = record.settings.iter().map(|(k, v)| format!("{k}: {v}")).collect();
    if !settings.is_empty() {
        out.push_str(&wrap(&settings.join("; "), width, "", "  "));
    }
    out
}

/// The short report of the demonstration: tables, the meaning of their columns, the published
/// figure in a sentence, doubts.
pub(crate) fn demo_text(record: &Record, width: usize) -> String {
    let mut out = tables(record, width).trim_start_matches('\n').to_string();
    out.push_str(&meanings(record, width));
    for h in &record.history {
        out.push('\n');
        out.push_str(&wrap(
            &format!("The same experiment before ({}): {}. {}", h.source, h.then, h.caveat),
            width,
            "",
            "",
        ));
    }
    out.push_str(&warnings_text(&record.warnings, width));
    out
}

/// The tables, each below its title.
fn tables(record: &Record, width: usize) -> String {
    let mut out = String::new();
    for view in &record.views {
        let (title, grid) = match view {
            View::Table(table) => (titled(record, table), Grid::of(record, table)),
            View::Derived { title, names } => (title.clone(), Grid::derived(record, names)),
            View::Plot(_) => continue,
        };
        out.push('\n');
        out.push_str(&wrap(&title, width, "", "  "));
        out.push_str(&text_of(grid).render("  "));
    }
    out
}

/// The measures by their headings, with what each means.
fn meanings(record: &Record, width: usize) -> String {
    let mut out = String::from("\n");
    for measure in &record.measures {
        let text = format!("{} ({})", measure.what, measure.unit);
        out.push_str(&wrap(&text, width, &format!(" {:<10} ", measure.heading), "            "));
    }
    out
}

/// As text; the spread has room on the page only.
fn text_of(grid: Grid) -> Text {
    let mut text = Text::with_names(grid.names);
    text.row(grid.heading);
    grid.rows.into_iter().for_each(|row| text.row(row.into_iter().map(|cell| cell.text)));
    text
}
