//! Text for people: standard output, tables, times, sizes.

use std::io::{ErrorKind, Write};
use std::sync::atomic::{AtomicBool, Ordering};

use ironswan_wire::printable::printable;

/// Nobody reads our standard output any more.
static UNREAD: AtomicBool = AtomicBool::new(false);

/// Writes to standard output. When nobody reads it any more (`ironswan up net | head -1`), a
/// command says nothing further and goes on: what it does and its exit status are not its reader's
/// to decide.
pub(crate) fn write(text: std::fmt::Arguments<'_>) {
    if UNREAD.load(Ordering::Relaxed) {
        return;
    }
    let mut out = std::io::stdout().lock();
    match out.write_fmt(text).and_then(|()| out.flush()) {
        Ok(()) => {}
        Err(e) if e.kind() == ErrorKind::BrokenPipe => UNREAD.store(true, Ordering::Relaxed),
        Err(e) => {
            complain(format_args!("ironswan: error: cannot write to standard output: {e}"));
            std::process::exit(1);
        }
    }
}

/// True when nobody reads our standard output any more.
pub(crate) fn unread() -> bool {
    UNREAD.load(Ordering::Relaxed)
}

/// A line to standard error; nothing when nobody reads it. Names in it may be anybody's.
pub(crate) fn complain(line: std::fmt::Arguments<'_>) {
    let line = line.to_string();
    let shown: Vec<_> = line.split('\n').map(printable).collect();
    let _ = writeln!(std::io::stderr(), "{}", shown.join("\n"));
}

/// A line to standard output.
macro_rules! say {
    ($($arg:tt)*) => { $crate::text::write(format_args!("{}\n", format_args!($($arg)*))) };
}

/// Text to standard output.
macro_rules! say_text {
    ($($arg:tt)*) => { $crate::text::write(format_args!($($arg)*)) };
}

/// Lines of a table with its columns aligned; the last column is not padded.
pub(crate) fn table(head: &[&str], rows: &[Vec<String>]) -> String {
    let mut widths: Vec<usize> = head.iter().map(|h| h.chars().count()).collect();
    for row in rows {
        for (w, cell) in widths.iter_mut().zip(row) {
            *w = (*w).max(cell.chars().count());
        }
    }
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let mut out = String::new();
        for (cell, w) in cells.zip(&widths) {
            out.push_str(cell);
            out.extend(std::iter::repeat_n(' ', w.saturating_sub(cell.chars().count()) + 2));
        }
        out.trim_end().to_owned() + "\n"
    };
    let mut out = line(&mut head.iter().copied());
    for row in rows {
        out.push_str(&line(&mut row.iter().map(String::as_str)));
    }
    out
}

/// Columns that text for people keeps to.
pub(crate) const COLUMNS: usize = 80;

/// A text behind a word, broken between words so that it keeps to [`COLUMNS`]; lines after the
/// first begin where the text began.
pub(crate) fn wrapped(word: &str, text: &str) -> String {
    let indent = word.chars().count();
    let (mut out, mut at, mut begins) = (word.to_owned(), indent, true);
    for piece in text.split_whitespace() {
        let length = piece.chars().count();
        if !begins && at + 1 + length > COLUMNS {
            out.push('\n');
            out.extend(std::iter::repeat_n(' ', indent));
            (at, begins) = (indent, true);
        }
        if !begins {
            out.push(' ');
            at += 1;
        }
        out.push_str(piece);
        (at, begins) = (at + length, false);
    }
    out.truncate(out.trim_end().len());
    out.push('\n');
    out
}

/// Cuts a text to so many characters.
pub(crate) fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    let kept: String = text.chars().take(most.saturating_sub(3)).collect();
    kept.trim_end().to_owned() + "..."
}

/// `42s`, `12m`, `3h05m`, `4d07h`.
pub(crate) fn duration(secs: u64) -> String {
    match secs {
        0..=119 => format!("{secs}s"),
        120..=7_199 => format!("{}m", secs / 60),
        7_200..=172_799 => format!("{}h{:02}m", secs / 3_600, secs / 60 % 60),
        _ => format!("{}d{:02}h", secs / 86_400, secs / 3_600 % 24),
    }
}

/// `999`, `12.3k`, `4.5M`: powers of 1000.
pub(crate) fn amount(n: u64) -> String {
    let units = ["", "k", "M", "G", "T", "P", "E"];
    let (mut x, mut unit) = (n as f64, 0);
    while x >= 999.95 && unit < units.len() - 1 {
        x /= 1000.0;
        unit += 1;
    }
    if unit == 0 { n.to_string() } else { format!("{x:.1}{}", units[unit]) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_text_is_broken_between_words_under_its_beginning() {
        assert_eq!(wrapped("  do    ", "this"), "  do    this\n");
        let text = wrapped("  do    ", &"word ".repeat(40));
        assert_eq!(text.lines().count(), 3);
        assert!(text.lines().all(|line| line.chars().count() <= COLUMNS), "{text}");
        assert!(text.lines().skip(1).all(|line| line.starts_with("        word")), "{text}");
        // A word that fits nowhere stays whole.
        assert!(wrapped("  at    ", &"x".repeat(100)).contains(&"x".repeat(100)));
        assert_eq!((cut("short", 5).as_str(), cut("longer text", 8).as_str()), ("short", "longe..."));
    }

    #[test]
    fn columns_align_and_amounts_are_short() {
        let t = table(&["A", "BB"], &[vec!["xxx".into(), "1".into()], vec!["y".into(), "22".into()]]);
        assert_eq!(t, "A    BB\nxxx  1\ny    22\n");
        assert_eq!(
            [amount(999), amount(1_000), amount(999_960), amount(u64::MAX)],
            ["999", "1.0k", "1.0M", "18.4E"]
        );
        assert_eq!(
            [duration(61), duration(3_600), duration(7_500), duration(200_000)],
            ["61s", "60m", "2h05m", "2d07h"]
        );
    }
}
