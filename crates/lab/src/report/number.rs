//! Numbers as people read them. Pure.

use crate::stats::Summary;

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

/// A share as people write it: `0.5 %`, `0.001 %`.
pub(crate) fn percent(share: f64) -> String {
    format!("{} %", (share * 1e8).round() / 1e6)
}

/// `smallest - largest` of several repeats that are not all the same.
pub(super) fn extremes(s: &Summary) -> Option<String> {
    let (low, high) = (number(s.min), number(s.max));
    (s.n > 1 && low != high).then(|| format!("{low} to {high}"))
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
