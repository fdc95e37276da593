//! Key bytes. Wiped when dropped, compared in constant time, never printed.

use zeroize::{Zeroize, ZeroizeOnDrop};

/// A secret byte string: zeroized on drop, no `Debug` of its content (ARCHITECTURE.md, invariant
/// 7).
#[derive(Clone, Default, Zeroize, ZeroizeOnDrop)]
pub struct Secret(Vec<u8>);

impl Secret {
    /// Takes the bytes over; the caller keeps no copy.
    pub fn new(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }

    /// Makes `len` bytes where they stay: `fill` writes them, over zeros.
    pub fn filled(len: usize, fill: impl FnOnce(&mut [u8])) -> Self {
        let mut this = Self(vec![0; len]);
        fill(&mut this.0);
        this
    }

    /// The bytes. Call it where a key is used, not to pass keys around.
    pub fn expose(&self) -> &[u8] {
        &self.0
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// True when there are no bytes (an AEAD has no integrity key).
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl From<&[u8]> for Secret {
    fn from(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }
}

impl From<Vec<u8>> for Secret {
    fn from(bytes: Vec<u8>) -> Self {
        Self(bytes)
    }
}

impl PartialEq for Secret {
    fn eq(&self, other: &Self) -> bool {
        ct_eq(&self.0, &other.0)
    }
}

impl Eq for Secret {}

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Secret({} bytes)", self.0.len())
    }
}

/// Compares two byte strings in time that depends on their lengths only.
pub fn ct_eq(a: &[u8], b: &[u8]) -> bool {
    if a.len() != b.len() {
        return false;
    }
    let diff = a.iter().zip(b).fold(0u8, |acc, (x, y)| acc | (x ^ y));
    std::hint::black_box(diff) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_shows_the_length_and_no_byte() {
        let s = Secret::new(b"swordfish".to_vec());
        assert_eq!(format!("{s:?}"), "Secret(9 bytes)");
    }

    #[test]
    fn equality_sees_every_byte_and_the_length() {
        assert!(ct_eq(b"abc", b"abc"));
        assert!(!ct_eq(b"abc", b"abd"));
        assert!(!ct_eq(b"abc", b"ab"));
    }
}
