//! Checked reading from a byte slice and writing to a byte vector, big-endian, as every parser here
//! does it.
//!
//! A [`Reader`] never looks past its slice and says what it was reading when there was too little;
//! a [`Writer`] fills in length fields after the fact and says when something does not fit one. Not
//! here: any format.

/// Fewer bytes than a field needs.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct LenError {
    /// Bytes the field needs.
    pub needed: usize,
    /// Bytes that were left.
    pub available: usize,
    /// The field.
    pub what: &'static str,
}

impl std::fmt::Display for LenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} needs {} bytes, {} left", self.what, self.needed, self.available)
    }
}

impl std::error::Error for LenError {}

/// Reads a byte slice from front to back.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Offset of `bytes` in the outermost slice, so that errors name offsets a person can find in a
    /// capture.
    base: usize,
}

impl<'a> Reader<'a> {
    /// Starts at the first byte.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, at: 0, base: 0 }
    }

    /// Offset of the next byte in the slice that the outermost reader was made from.
    pub fn offset(&self) -> usize {
        self.base + self.at
    }

    /// Bytes not read yet.
    pub fn left(&self) -> usize {
        self.bytes.len() - self.at
    }

    /// True while there are bytes to read.
    pub fn any_left(&self) -> bool {
        self.left() > 0
    }

    /// The next `n` bytes.
    pub fn bytes(&mut self, n: usize, what: &'static str) -> Result<&'a [u8], LenError> {
        match self.bytes[self.at..].get(..n) {
            Some(taken) => {
                self.at += n;
                Ok(taken)
            }
            None => Err(LenError { needed: n, available: self.left(), what }),
        }
    }

    /// The next `N` bytes as an array.
    pub fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], LenError> {
        match self.bytes[self.at..].first_chunk::<N>() {
            Some(taken) => {
                self.at += N;
                Ok(*taken)
            }
            None => Err(LenError { needed: N, available: self.left(), what }),
        }
    }

    /// One byte.
    pub fn u8(&mut self, what: &'static str) -> Result<u8, LenError> {
        self.array::<1>(what).map(|[b]| b)
    }

    /// Two bytes.
    pub fn u16(&mut self, what: &'static str) -> Result<u16, LenError> {
        self.array(what).map(u16::from_be_bytes)
    }

    /// Four bytes.
    pub fn u32(&mut self, what: &'static str) -> Result<u32, LenError> {
        self.array(what).map(u32::from_be_bytes)
    }

    /// Eight bytes.
    pub fn u64(&mut self, what: &'static str) -> Result<u64, LenError> {
        self.array(what).map(u64::from_be_bytes)
    }

    /// Everything not read yet.
    pub fn rest(&mut self) -> &'a [u8] {
        let rest = &self.bytes[self.at..];
        self.at = self.bytes.len();
        rest
    }

    /// A reader over the next `n` bytes alone. Offsets go on counting from the outermost slice.
    pub fn sub(&mut self, n: usize, what: &'static str) -> Result<Reader<'a>, LenError> {
        let base = self.offset();
        Ok(Reader { bytes: self.bytes(n, what)?, at: 0, base })
    }
}

/// Something longer, or more of it, than its field on the wire can say: the fault of whoever asked
/// to emit it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct EmitError {
    /// Name of the field that does not fit.
    pub what: &'static str,
}

impl std::fmt::Display for EmitError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} does not fit its field on the wire", self.what)
    }
}

impl std::error::Error for EmitError {}

/// Appends to a byte vector.
#[derive(Debug)]
pub struct Writer<'a> {
    out: &'a mut Vec<u8>,
}

impl<'a> Writer<'a> {
    /// Appends behind what `out` already holds.
    pub fn new(out: &'a mut Vec<u8>) -> Self {
        Self { out }
    }

    /// Length of the whole vector.
    pub fn len(&self) -> usize {
        self.out.len()
    }

    /// True when the vector holds nothing.
    pub fn is_empty(&self) -> bool {
        self.out.is_empty()
    }

    /// One byte.
    pub fn u8(&mut self, v: u8) {
        self.out.push(v);
    }

    /// Two bytes.
    pub fn u16(&mut self, v: u16) {
        self.out.extend_from_slice(&v.to_be_bytes());
    }

    /// Four bytes.
    pub fn u32(&mut self, v: u32) {
        self.out.extend_from_slice(&v.to_be_bytes());
    }

    /// Eight bytes.
    pub fn u64(&mut self, v: u64) {
        self.out.extend_from_slice(&v.to_be_bytes());
    }

    /// Bytes as they are.
    pub fn bytes(&mut self, v: &[u8]) {
        self.out.extend_from_slice(v);
    }

    /// `n` zero bytes.
    pub fn zeros(&mut self, n: usize) {
        self.out.resize(self.out.len() + n, 0);
    }

    /// A count or length in one byte.
    pub fn count8(&mut self, n: usize, what: &'static str) -> Result<(), EmitError> {
        self.u8(u8::try_from(n).map_err(|_| EmitError { what })?);
        Ok(())
    }

    /// A count or length in two bytes.
    pub fn count16(&mut self, n: usize, what: &'static str) -> Result<(), EmitError> {
        self.u16(u16::try_from(n).map_err(|_| EmitError { what })?);
        Ok(())
    }

    /// Two zero bytes whose value [`Writer::patch16`] fills in; returns where they are.
    pub fn reserve16(&mut self) -> usize {
        let at = self.out.len();
        self.u16(0);
        at
    }

    /// Four zero bytes whose value [`Writer::patch32`] fills in; returns where they are.
    pub fn reserve32(&mut self) -> usize {
        let at = self.out.len();
        self.u32(0);
        at
    }

    /// Writes the number of bytes since `from` into the hole at `at`.
    pub fn patch16(&mut self, at: usize, from: usize, what: &'static str) -> Result<(), EmitError> {
        let n = u16::try_from(self.out.len().saturating_sub(from)).map_err(|_| EmitError { what })?;
        self.patch(at, &n.to_be_bytes(), what)
    }

    /// Writes the number of bytes since `from` into the hole at `at`.
    pub fn patch32(&mut self, at: usize, from: usize, what: &'static str) -> Result<(), EmitError> {
        let n = u32::try_from(self.out.len().saturating_sub(from)).map_err(|_| EmitError { what })?;
        self.patch(at, &n.to_be_bytes(), what)
    }

    fn patch(&mut self, at: usize, v: &[u8], what: &'static str) -> Result<(), EmitError> {
        match self.out.get_mut(at..at.saturating_add(v.len())) {
            Some(hole) => {
                hole.copy_from_slice(v);
                Ok(())
            }
            None => Err(EmitError { what }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_big_endian_and_the_rest_is_the_rest() {
        let mut r = Reader::new(&[1, 0, 2, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 4, 5, 6]);
        assert_eq!(r.u8("a"), Ok(1));
        assert_eq!(r.u16("b"), Ok(2));
        assert_eq!(r.u32("c"), Ok(3));
        assert_eq!(r.u64("d"), Ok(4));
        assert!(r.any_left());
        assert_eq!(r.rest(), [5, 6]);
        assert!(!r.any_left());
        assert_eq!(r.rest(), [0u8; 0]);
    }

    #[test]
    fn a_short_read_says_what_and_takes_nothing() {
        let mut r = Reader::new(&[1, 2, 3]);
        assert_eq!(r.u32("spi"), Err(LenError { needed: 4, available: 3, what: "spi" }));
        assert_eq!(r.bytes(usize::MAX, "huge").unwrap_err().available, 3);
        assert_eq!(r.bytes(3, "all"), Ok(&[1u8, 2, 3][..]));
    }

    #[test]
    fn a_sub_reader_ends_where_told_and_keeps_counting_offsets() {
        let mut r = Reader::new(&[0, 1, 2, 3, 4]);
        r.u8("skip").unwrap();
        let mut s = r.sub(2, "part").unwrap();
        assert_eq!((s.offset(), s.left()), (1, 2));
        assert_eq!(s.u16("v"), Ok(0x0102));
        assert!(s.u8("past the part").is_err());
        assert_eq!(s.offset(), 3);
        assert_eq!(r.offset(), 3);
        assert!(r.sub(3, "too long").is_err());
    }

    #[test]
    fn lengths_are_filled_in_afterwards_and_must_fit() {
        let mut out = vec![9];
        let mut w = Writer::new(&mut out);
        let hole = w.reserve16();
        w.bytes(b"abc");
        w.patch16(hole, hole, "thing").unwrap();
        assert_eq!(out, [9, 0, 5, b'a', b'b', b'c']);

        let mut out = Vec::new();
        let mut w = Writer::new(&mut out);
        let hole = w.reserve16();
        w.zeros(65_534);
        assert_eq!(w.patch16(hole, hole, "thing"), Err(EmitError { what: "thing" }));
        assert_eq!(w.count8(256, "list"), Err(EmitError { what: "list" }));
        assert!(w.patch32(1 << 40, 0, "no such hole").is_err());
    }
}
