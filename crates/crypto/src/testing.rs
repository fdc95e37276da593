//! What the tests of this crate share.

/// Bytes of a hexadecimal string; blanks and line ends do not count.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .bytes()
        .filter(|b| !b.is_ascii_whitespace())
        .map(|b| (b as char).to_digit(16).expect("a hexadecimal digit") as u8)
        .collect();
    assert!(digits.len().is_multiple_of(2), "an odd number of digits");
    digits.chunks(2).map(|d| d[0] << 4 | d[1]).collect()
}

/// `from, from + 1, ...`
pub(crate) fn count(from: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| from.wrapping_add(i as u8)).collect()
}
