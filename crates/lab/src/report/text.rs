//! Text for terminals: tables with aligned columns, paragraphs wrapped to the width. ASCII only.

use std::io;

use comfy_table::{CellAlignment, LineStyle, TableStyle};
use rustix::termios::tcgetwinsize;

/// Width of the terminal on standard output (or error), at most 120 and at least 40; 80 when there
/// is none.
pub(crate) fn terminal_width() -> usize {
    let columns = tcgetwinsize(io::stdout()).or_else(|_| tcgetwinsize(io::stderr())).map_or(0, |w| w.ws_col);
    if columns == 0 { 80 } else { usize::from(columns).clamp(40, 120) }
}

/// Breaks `text` at spaces into lines of at most `width`, the first indented by `first`, the others
/// by `rest`.
pub(crate) fn wrap(text: &str, width: usize, first: &str, rest: &str) -> String {
    let mut out = String::from(first);
    let mut column = first.len();
    let mut fresh = true;
    for word in text.split_whitespace() {
        if !fresh && column + 1 + word.chars().count() > width {
            out.push('\n');
            out.push_str(rest);
            column = rest.len();
            fresh = true;
        }
        if !fresh {
            out.push(' ');
            column += 1;
        }
        out.push_str(word);
        column += word.chars().count();
        fresh = false;
    }
    out.push('\n');
    out
}

/// Lines of a table: a rule below the heading, and nothing else.
const RULED: TableStyle = TableStyle::new().header_separator(LineStyle::none().fill('-'));
/// Blanks between two columns.
const GAP: u16 = 2;

/// A table whose first columns are left-aligned and the others right-aligned.
#[derive(Debug)]
pub(crate) struct Table {
    rows: Vec<Vec<String>>,
    left: usize,
}

impl Default for Table {
    fn default() -> Self {
        Self::with_names(1)
    }
}

impl Table {
    /// A table of which `left` columns are names.
    pub(crate) fn with_names(left: usize) -> Self {
        Self { rows: Vec::new(), left }
    }

    /// Adds a row; the first is the heading.
    pub(crate) fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Formats the table as lines, with a rule below the heading.
    pub(crate) fn render(&self, indent: &str) -> String {
        let Some((heading, rows)) = self.rows.split_first() else { return String::new() };
        let mut table = comfy_table::Table::new();
        table.load_style(RULED).set_header(heading).add_rows(rows);
        for (nth, column) in table.column_iter_mut().enumerate() {
            column.set_padding((if nth == 0 { 0 } else { GAP }, 0));
            if nth >= self.left {
                column.set_cell_alignment(CellAlignment::Right);
            }
        }
        table.lines().map(|line| format!("{indent}{}\n", line.trim_end())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_broken_at_spaces_within_the_width() {
        let text = wrap("one two three four", 9, "- ", "  ");
        assert_eq!(text, "- one two\n  three\n  four\n");
        assert_eq!(wrap("averyveryverylongword x", 5, "", ""), "averyveryverylongword\nx\n");
    }

    #[test]
    fn numbers_line_up_on_the_right() {
        let mut t = Table::default();
        t.row(["DUT", "Gb/s"]);
        t.row(["plain", "12.31"]);
        t.row(["ironswan", "6.0"]);
        assert_eq!(t.render(" "), " DUT        Gb/s\n ---------------\n plain     12.31\n ironswan    6.0\n");
    }
}
