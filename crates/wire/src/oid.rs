//! Object identifiers, as the bytes of their DER value, and how people write them.

use std::fmt::Write as _;

/// An object identifier that was read or configured: the bytes of its DER value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Oid(Box<[u8]>);

impl Oid {
    /// Takes the value of an OBJECT IDENTIFIER.
    pub fn from_value(value: &[u8]) -> Self {
        Self(value.into())
    }

    /// Reads numbers with dots, such as `1.3.6.1.5.5.7.3.17`. `None` when the text is something
    /// else, or a number has more than 32 bits.
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('.').map(|number| {
            let digits = !number.is_empty() && number.bytes().all(|b| b.is_ascii_digit());
            digits.then(|| number.parse::<u32>().ok()).flatten().map(u64::from)
        });
        let (first, second) = (numbers.next()??, numbers.next()??);
        if first > 2 || (first < 2 && second > 39) {
            return None;
        }
        let mut value = Vec::new();
        push(&mut value, first * 40 + second);
        for number in numbers {
            push(&mut value, number?);
        }
        Some(Self(value.into()))
    }

    /// The bytes of the DER value.
    pub fn value(&self) -> &[u8] {
        &self.0
    }
}

impl std::fmt::Display for Oid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&dotted(&self.0))
    }
}

impl std::fmt::Debug for Oid {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Oid({self})")
    }
}

fn push(out: &mut Vec<u8>, number: u64) {
    let groups = (0..10).rev().map(|n| (number >> (7 * n)) as u8 & 0x7f);
    let digits: Vec<u8> = groups.skip_while(|&digit| digit == 0).collect();
    match digits.split_last() {
        None => out.push(0),
        Some((last, rest)) => {
            out.extend(rest.iter().map(|digit| digit | 0x80));
            out.push(*last);
        }
    }
}

/// Numbers with dots. Of a long identifier the beginning is shown, and a number of more than 64
/// bits as `?`.
pub fn dotted(value: &[u8]) -> String {
    let mut out = String::new();
    let mut number = Some(0u64);
    let mut count = 0;
    for &byte in value.iter().take(64) {
        number = number.filter(|n| *n < 1 << 56).map(|n| n << 7 | u64::from(byte & 0x7f));
        if byte & 0x80 != 0 {
            continue;
        }
        let written = match (count, number) {
            (0, Some(n)) => {
                let first = (n / 40).min(2);
                write!(out, "{first}.{}", n - first * 40)
            }
            (0, None) => write!(out, "?"),
            (_, Some(n)) => write!(out, ".{n}"),
            (_, None) => write!(out, ".?"),
        };
        debug_assert!(written.is_ok(), "a String takes everything");
        (number, count) = (Some(0), count + 1);
    }
    if value.len() > 64 {
        out.push_str("...");
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identifiers_are_written_as_they_were_read() {
        for text in ["2.5.29.32.0", "1.3.6.1.5.5.7.3.17", "1.2.840.113549.1.1.11", "2.999.4294967295", "0.0"]
        {
            assert_eq!(Oid::parse(text).unwrap().to_string(), text);
        }
        assert_eq!(Oid::parse("1.3.14.3.2.26").unwrap().value(), [0x2b, 0x0e, 3, 2, 0x1a]);
        for text in ["", "1", "3.1", "1.40", "1..2", "1.2.x", "1.2.4294967296", "1.2.", "+1.2"] {
            assert_eq!(Oid::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_hostile_identifier_is_shown_in_bounds() {
        assert_eq!(dotted(&[0x81; 100]), "...");
        assert!(dotted(&[1; 5000]).len() < 200);
        let mut long = vec![0x55];
        long.extend([0xff; 12]);
        long.push(1);
        assert_eq!(dotted(&long), "2.5.?");
    }
}
