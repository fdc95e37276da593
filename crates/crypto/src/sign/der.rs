//! Elements of DER (X.690), as keys and signatures have them: low tags, definite lengths, integers
//! that are not negative.
//!
//! Every other encoding of the same value is refused, so that a key has one form.

/// Tag of SEQUENCE.
pub(super) const SEQUENCE: u8 = 0x30;
/// Tag of INTEGER.
pub(super) const INTEGER: u8 = 0x02;
/// Tag of BIT STRING.
pub(super) const BIT_STRING: u8 = 0x03;
/// Tag of OCTET STRING.
pub(super) const OCTET_STRING: u8 = 0x04;

/// One element of DER with this tag: its content, and the bytes behind it. Lengths above 65,535 are
/// refused: no key here is so long.
pub(super) fn element(tag: u8, der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (len, rest) = match der {
        [t, len @ 0..=0x7f, rest @ ..] if *t == tag => (usize::from(*len), rest),
        [t, 0x81, len @ 0x80..=0xff, rest @ ..] if *t == tag => (usize::from(*len), rest),
        [t, 0x82, high @ 1..=0xff, low, rest @ ..] if *t == tag => {
            (usize::from(u16::from_be_bytes([*high, *low])), rest)
        }
        _ => return None,
    };
    rest.split_at_checked(len)
}

/// The content of the only element in `der`.
pub(super) fn only(tag: u8, der: &[u8]) -> Option<&[u8]> {
    element(tag, der).filter(|(_, rest)| rest.is_empty()).map(|(content, _)| content)
}

/// An INTEGER that is not negative: its bytes in network order without leading zeros (none for
/// zero), and the bytes behind the element.
pub(super) fn unsigned(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (bytes, rest) = element(INTEGER, der)?;
    match bytes {
        [0] => Some((&[], rest)),
        [0, number @ ..] if number[0] >= 0x80 => Some((number, rest)),
        [1..=0x7f, ..] => Some((bytes, rest)),
        _ => None,
    }
}

/// The bytes of a BIT STRING whose number of bits is a multiple of eight, and the bytes behind it.
pub(super) fn whole_bits(der: &[u8]) -> Option<(&[u8], &[u8])> {
    let (bits, rest) = element(BIT_STRING, der)?;
    // The first byte counts the unused bits of the last one.
    let [0, bytes @ ..] = bits else { return None };
    Some((bytes, rest))
}

/// Writes one element, whose content is these parts one after another.
///
/// # Panics
/// When the content is longer than 65,535 bytes: no key or signature here is.
pub(super) fn write(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let mut out = Vec::with_capacity(4 + len);
    out.push(tag);
    match u16::try_from(len).expect("keys and signatures are shorter than 65,536 bytes").to_be_bytes() {
        [0, low @ 0..=0x7f] => out.push(low),
        [0, low] => out.extend([0x81, low]),
        [high, low] => out.extend([0x82, high, low]),
    }
    parts.iter().for_each(|part| out.extend_from_slice(part));
    out
}

/// Writes an INTEGER of these bytes in network order, which may begin with zeros.
pub(super) fn write_unsigned(bytes: &[u8]) -> Vec<u8> {
    let start = bytes.iter().position(|byte| *byte != 0).unwrap_or(bytes.len());
    match &bytes[start..] {
        number @ [1..=0x7f, ..] => write(INTEGER, &[number]),
        number => write(INTEGER, &[&[0], number]),
    }
}

/// Number of bits of a number in network order without leading zeros.
pub(super) fn bit_len(number: &[u8]) -> usize {
    number.first().map_or(0, |first| 8 * number.len() - first.leading_zeros() as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_one_encoding() {
        for (der, number) in [
            (&[2, 1, 0][..], &[][..]),
            (&[2, 1, 1], &[1]),
            (&[2, 1, 0x7f], &[0x7f]),
            (&[2, 2, 0, 0x80], &[0x80]),
            (&[2, 2, 1, 0], &[1, 0]),
        ] {
            assert_eq!(unsigned(der), Some((number, &[][..])));
            assert_eq!(write_unsigned(number), der);
            assert_eq!(write_unsigned(&[&[0, 0], number].concat()), der);
        }
        // No bytes, negative, a needless zero, a length in two bytes, of indefinite length, cut.
        for der in [
            &[2, 0][..],
            &[2, 1, 0x80],
            &[2, 2, 0, 0x7f],
            &[2, 2, 0, 0],
            &[2, 0x81, 1, 1],
            &[2, 0x80, 1, 0, 0],
            &[2, 2, 1],
            &[],
        ] {
            assert_eq!(unsigned(der), None, "{der:02x?}");
        }
    }

    #[test]
    fn lengths_are_written_in_the_shortest_form_and_read_in_no_other() {
        for len in [0, 1, 0x7f, 0x80, 0xff, 0x100, 0xffff] {
            let content = vec![7; len];
            let der = write(SEQUENCE, &[&content[..len / 2], &content[len / 2..]]);
            assert_eq!(only(SEQUENCE, &der), Some(&content[..]), "{len}");
            assert_eq!(only(SEQUENCE, &[&der[..], &[0]].concat()), None);
            assert_eq!(only(INTEGER, &der), None);
        }
        for der in [&[0x30, 0x81, 0x7f][..], &[0x30, 0x82, 0, 0x80], &[0x30, 0x83, 0, 1, 0]] {
            let der = [der, &[0; 0x200]].concat();
            assert_eq!(element(SEQUENCE, &der), None);
        }
    }

    #[test]
    fn bits_are_counted_from_the_first_one() {
        for (number, bits) in [(&[][..], 0), (&[1], 1), (&[0x80], 8), (&[1, 0], 9), (&[0xff, 0xff], 16)] {
            assert_eq!(bit_len(number), bits);
        }
    }
}
