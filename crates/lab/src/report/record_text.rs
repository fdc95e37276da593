//! A record as text for a terminal: its tables, the historical figure beside ours, the doubts. From
//! the record alone.

use super::grid::{Grid, titled};
use super::line::warnings_text;
use super::text::{Table as Text, wrap};
use crate::record::{Record, View};

/// The report, `width` columns wide.
pub fn record_text(record: &Record, width: usize) -> String {
    let mut out =
        wrap(&format!("{} {}: {}", record.number, record.experiment, record.question), width, "", "  ");
    out.push_str(&wrap(&record.machine.one_line(), width, "", "  "));
    let settings: Vec<String> = record.settings.iter().map(|(k, v)| format!("{k}: {v}")).collect();
    if !settings.is_empty() {
        out.push_str(&wrap(&settings.join("; "), width, "", "  "));
    }
    for view in &record.views {
        match view {
            View::Table(table) => {
                out.push('\n');
                out.push_str(&wrap(&titled(record, table), width, "", "  "));
                out.push_str(&text_of(Grid::of(record, table)).render("  "));
            }
            View::Derived { title, names } => {
                out.push('\n');
                out.push_str(&wrap(title, width, "", "  "));
                out.push_str(&text_of(Grid::derived(record, names)).render("  "));
            }
            View::Plot(_) => {}
        }
    }
    out.push('\n');
    for measure in &record.measures {
        let text = format!("{} ({})", measure.what, measure.unit);
        out.push_str(&wrap(&text, width, &format!(" {:<10} ", measure.heading), "            "));
    }
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
    out
}

/// A number with three or four digits that count.
pub fn number(value: f64) -> String {
    let size = value.abs();
    if value == 0.0 {
        "0".into()
    } else if size >= 1e15 {
        format!("{value:.2e}")
    } else if size >= 1000.0 {
        grouped(value.round() as i64)
    } else if size >= 100.0 {
        format!("{value:.0}")
    } else if size >= 10.0 {
        format!("{value:.1}")
    } else if size >= 0.1 {
        format!("{value:.2}")
    } else if size >= 0.001 {
        format!("{value:.4}")
    } else {
        format!("{value:.2e}")
    }
}

/// Thousands apart.
fn grouped(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut out = String::from(if value < 0 { "-" } else { "" });
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

/// As text; the spread has room on the page only.
pub(super) fn text_of(grid: Grid) -> Text {
    let mut text = Text::with_names(grid.names);
    text.row(grid.heading);
    grid.rows.into_iter().for_each(|row| text.row(row.into_iter().map(|cell| cell.text)));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_keep_three_digits_and_large_ones_are_grouped() {
        for (value, text) in [
            (0.0, "0"),
            (0.000123, "1.23e-4"),
            (0.0123, "0.0123"),
            (0.5, "0.50"),
            (12.34, "12.3"),
            (-123.4, "-123"),
            (1234.4, "1,234"),
            (1_234_567.0, "1,234,567"),
        ] {
            assert_eq!(number(value), text);
        }
    }
}
