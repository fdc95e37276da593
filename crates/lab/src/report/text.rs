//! Text for terminals: tables with aligned columns, paragraphs wrapped to the width. ASCII only.

use std::io;

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
    /// One of which that many columns are names.
    pub(crate) fn with_names(left: usize) -> Self {
        Self { rows: Vec::new(), left }
    }

    /// Adds a row; the first is the heading.
    pub(crate) fn row<S: Into<String>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.rows.push(cells.into_iter().map(Into::into).collect());
    }

    /// Formats the table as lines, with a rule below the heading.
    pub(crate) fn render(&self, indent: &str) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let width = |c: usize| {
            self.rows.iter().filter_map(|r| r.get(c)).map(|s| s.chars().count()).max().unwrap_or(0)
        };
        let widths: Vec<usize> = (0..columns).map(width).collect();
        let mut out = String::new();
        for (i, row) in self.rows.iter().enumerate() {
            let mut line = String::from(indent);
            for (c, width) in widths.iter().enumerate() {
                let cell = row.get(c).map_or("", String::as_str);
                line.push_str(if c == 0 { "" } else { "  " });
                if c < self.left {
                    line.push_str(&format!("{cell:<width$}"));
                } else {
                    line.push_str(&format!("{cell:>width$}"));
                }
            }
            out.push_str(line.trim_end());
            out.push('\n');
            if i == 0 {
                let total = widths.iter().sum::<usize>() + 2 * columns.saturating_sub(1);
                out.push_str(&format!("{indent}{}\n", "-".repeat(total)));
            }
        }
        out
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
