//! Reader of DER (X.690): tag, length, value. Borrows everything, allocates nothing, and never
//! calls itself, so that deep nesting costs no stack.
//!
//! ```text
//! 30 82 01 0a  02 01 00 ...        tag 0x30, length 0x10a in two bytes, value
//! └─ element ────────────┘         `whole` is all of it, `value` the part behind the length
//! ```
//! A length must be in its shortest form, and definite. Tags of more than one byte are malformed:
//! no structure of RFC 5280 or 6960 has one. Not here: what an element means.

/// Tag of BOOLEAN.
pub const BOOLEAN: u8 = 0x01;
/// Tag of INTEGER.
pub const INTEGER: u8 = 0x02;
/// Tag of BIT STRING.
pub const BIT_STRING: u8 = 0x03;
/// Tag of OCTET STRING.
pub const OCTET_STRING: u8 = 0x04;
/// Tag of NULL.
pub const NULL: u8 = 0x05;
/// Tag of OBJECT IDENTIFIER.
pub const OID: u8 = 0x06;
/// Tag of ENUMERATED.
pub const ENUMERATED: u8 = 0x0a;
/// Tag of UTF8String.
pub const UTF8_STRING: u8 = 0x0c;
/// Tag of PrintableString.
pub const PRINTABLE_STRING: u8 = 0x13;
/// Tag of TeletexString.
pub const TELETEX_STRING: u8 = 0x14;
/// Tag of IA5String.
pub const IA5_STRING: u8 = 0x16;
/// Tag of UTCTime.
pub const UTC_TIME: u8 = 0x17;
/// Tag of GeneralizedTime.
pub const GENERALIZED_TIME: u8 = 0x18;
/// Tag of UniversalString.
pub const UNIVERSAL_STRING: u8 = 0x1c;
/// Tag of BMPString.
pub const BMP_STRING: u8 = 0x1e;
/// Tag of SEQUENCE.
pub const SEQUENCE: u8 = 0x30;
/// Tag of SET.
pub const SET: u8 = 0x31;

/// Tag of a context-specific element whose value is one of another type's.
pub const fn implicit(number: u8) -> u8 {
    0x80 | number
}

/// Tag of a context-specific element that contains other elements.
pub const fn explicit(number: u8) -> u8 {
    0xa0 | number
}

/// The bytes are no DER, or DER of something else.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Malformed;

/// Result of reading.
pub type Read<T> = Result<T, Malformed>;

/// One element.
#[derive(Clone, Copy, Debug)]
pub struct Element<'a> {
    /// Tag, of one byte.
    pub tag: u8,
    /// Bytes behind the length.
    pub value: &'a [u8],
    /// Tag, length and value.
    pub whole: &'a [u8],
}

/// Reads the elements of a byte string from front to back.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    /// Starts before the first element.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    /// True when no element is left.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Tag of the next element.
    pub fn peek(&self) -> Option<u8> {
        self.0.first().copied()
    }

    /// The next element, whatever its tag.
    pub fn element(&mut self) -> Read<Element<'a>> {
        let bytes = self.0;
        let (&tag, rest) = bytes.split_first().ok_or(Malformed)?;
        if tag & 0x1f == 0x1f {
            return Err(Malformed);
        }
        let (&first, rest) = rest.split_first().ok_or(Malformed)?;
        let (len, rest) = match first {
            0..=0x7f => (usize::from(first), rest),
            0x81..=0x84 => {
                let (digits, rest) = rest.split_at_checked(usize::from(first & 0x7f)).ok_or(Malformed)?;
                let len = digits.iter().fold(0usize, |len, &digit| len << 8 | usize::from(digit));
                if digits[0] == 0 || len < 0x80 {
                    return Err(Malformed);
                }
                (len, rest)
            }
            _ => return Err(Malformed),
        };
        let (value, rest) = rest.split_at_checked(len).ok_or(Malformed)?;
        self.0 = rest;
        Ok(Element { tag, value, whole: &bytes[..bytes.len() - rest.len()] })
    }

    /// The value of the next element, which has this tag.
    pub fn read(&mut self, tag: u8) -> Read<&'a [u8]> {
        let element = self.element()?;
        if element.tag == tag { Ok(element.value) } else { Err(Malformed) }
    }

    /// Tag, length and value of the next element, which has this tag.
    pub fn whole(&mut self, tag: u8) -> Read<&'a [u8]> {
        let element = self.element()?;
        if element.tag == tag { Ok(element.whole) } else { Err(Malformed) }
    }

    /// The value of the next element if it has this tag; otherwise nothing is read.
    pub fn optional(&mut self, tag: u8) -> Read<Option<&'a [u8]>> {
        if self.peek() == Some(tag) { self.read(tag).map(Some) } else { Ok(None) }
    }

    /// The elements inside the next element, which has this tag.
    pub fn inside(&mut self, tag: u8) -> Read<Reader<'a>> {
        self.read(tag).map(Reader)
    }

    /// A BOOLEAN whose default is FALSE. DER leaves a default out; a FALSE that is written is
    /// accepted, since many certificates have one.
    pub fn flag(&mut self, tag: u8) -> Read<bool> {
        match self.optional(tag)? {
            None | Some([0]) => Ok(false),
            Some([0xff]) => Ok(true),
            Some(_) => Err(Malformed),
        }
    }

    /// Checks that no element is left.
    pub fn end(self) -> Read<()> {
        if self.is_empty() { Ok(()) } else { Err(Malformed) }
    }
}

/// The one element that `bytes` hold, without its tag and length. It has this tag.
pub fn only(bytes: &[u8], tag: u8) -> Read<&[u8]> {
    let mut reader = Reader::new(bytes);
    let value = reader.read(tag)?;
    reader.end()?;
    Ok(value)
}

/// The value of an INTEGER in its shortest form, as it stands: two's complement.
pub fn integer(value: &[u8]) -> Read<&[u8]> {
    match value {
        [] => Err(Malformed),
        [0, next, ..] if next & 0x80 == 0 => Err(Malformed),
        [0xff, next, ..] if next & 0x80 != 0 => Err(Malformed),
        _ => Ok(value),
    }
}

/// The magnitude of an INTEGER that is not negative, without leading zeros.
pub fn unsigned(value: &[u8]) -> Read<&[u8]> {
    let value = integer(value)?;
    if value[0] & 0x80 != 0 {
        return Err(Malformed);
    }
    Ok(value.strip_prefix(&[0]).unwrap_or(value))
}

/// An INTEGER from 0 on. A larger one than 2^32 - 1 counts as that: no limit that it states is ever
/// reached.
pub fn small(value: &[u8]) -> Read<u32> {
    let digits = unsigned(value)?;
    if digits.len() > 4 {
        return Ok(u32::MAX);
    }
    Ok(digits.iter().fold(0, |n, &digit| n << 8 | u32::from(digit)))
}

/// The bytes of a BIT STRING that has whole bytes.
pub fn octets(value: &[u8]) -> Read<&[u8]> {
    value.strip_prefix(&[0]).ok_or(Malformed)
}

/// Up to 16 named bits of a BIT STRING: bit 0 of the standard is the highest of the result. Further
/// bits are left out.
pub fn named_bits(value: &[u8]) -> Read<u16> {
    let (&unused, bytes) = value.split_first().ok_or(Malformed)?;
    if unused > 7 || (bytes.is_empty() && unused != 0) {
        return Err(Malformed);
    }
    let byte = |n: usize| u16::from(bytes.get(n).copied().unwrap_or(0));
    let mask = u16::MAX << (16usize.saturating_sub(bytes.len() * 8) + usize::from(unused)).min(15);
    Ok((byte(0) << 8 | byte(1)) & if bytes.len() > 2 { u16::MAX } else { mask })
}

/// Writes one element.
pub fn emit(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let len: usize = parts.iter().map(|part| part.len()).sum();
    let mut out = Vec::with_capacity(len + 6);
    out.push(tag);
    if len < 0x80 {
        out.push(len as u8);
    } else {
        let digits = len.to_be_bytes();
        let skip = digits.iter().take_while(|&&digit| digit == 0).count();
        out.push(0x80 | (digits.len() - skip) as u8);
        out.extend_from_slice(&digits[skip..]);
    }
    for part in parts {
        out.extend_from_slice(part);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn lengths_have_one_form_only() {
        let read = |bytes: &[u8]| Reader::new(bytes).element().map(|e| e.value.len());
        assert_eq!(read(&[4, 1, 0]), Ok(1));
        for bad in [
            &[4, 0x80, 0, 0][..],
            &[4, 0x81, 1, 0],
            &[4, 0x82, 0, 0x80],
            &[4, 2, 0],
            &[0x1f, 1, 0],
            &[4],
            &[],
            &[4, 0xff, 0xff, 0xff, 0xff],
            &[4, 0x84, 0xff, 0xff, 0xff, 0xff],
        ] {
            assert_eq!(read(bad), Err(Malformed), "{bad:x?}");
        }
    }

    #[test]
    fn integers_have_one_form_only() {
        assert_eq!(integer(&[0xff]), Ok(&[0xff][..]));
        assert_eq!(unsigned(&[0xff]), Err(Malformed));
        assert_eq!(unsigned(&[0, 0xff]), Ok(&[0xff][..]));
        assert_eq!(unsigned(&[0]), Ok(&[][..]));
        for bad in [&[][..], &[0, 1], &[0xff, 0x80]] {
            assert_eq!(integer(bad), Err(Malformed), "{bad:x?}");
        }
        assert_eq!(small(&[1, 0, 0, 0, 0]), Ok(u32::MAX));
        assert_eq!(small(&[1, 0]), Ok(256));
    }

    #[test]
    fn named_bits_beyond_those_that_are_used_are_zero() {
        assert_eq!(named_bits(&[7, 0x80]), Ok(0x8000));
        assert_eq!(named_bits(&[1, 0x07]), Ok(0x0600));
        assert_eq!(named_bits(&[0]), Ok(0));
        assert_eq!(named_bits(&[7, 0xff, 0xff]), Ok(0xff80));
        assert_eq!(named_bits(&[0, 0xff, 0xff, 0xff]), Ok(0xffff));
        assert_eq!(named_bits(&[8, 0xff]), Err(Malformed));
        assert_eq!(named_bits(&[1]), Err(Malformed));
    }

    proptest! {
        #[test]
        fn an_element_that_was_written_is_read_back(tag in 0u8..0x1f, value: Vec<u8>, more: Vec<u8>) {
            let mut bytes = emit(tag, &[&value]);
            let len = bytes.len();
            bytes.extend_from_slice(&more);
            let element = Reader::new(&bytes).element().unwrap();
            prop_assert_eq!((element.tag, element.value, element.whole), (tag, &value[..], &bytes[..len]));
        }

        #[test]
        fn what_was_read_is_written_the_same(bytes: Vec<u8>) {
            if let Ok(element) = Reader::new(&bytes).element() {
                prop_assert_eq!(emit(element.tag, &[element.value]), element.whole);
            }
        }
    }
}
