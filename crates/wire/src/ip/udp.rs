//! UDP header (RFC 768).
//!
//! ```text
//!  0-1 source port  2-3 destination port  4-5 length, with header  6-7 checksum, 0: none (IPv4)
//! ```

/// Header length.
pub const HEADER: usize = 8;
/// Offset of the checksum in the header.
pub const CHECKSUM: usize = 6;

/// The length field; `None` when the header is not all there.
#[inline]
pub fn length(datagram: &[u8]) -> Option<usize> {
    let h = datagram.first_chunk::<HEADER>()?;
    Some(usize::from(u16::from_be_bytes([h[4], h[5]])))
}

/// A computed checksum of zero is sent as all ones (RFC 768).
#[inline]
pub fn no_zero(checksum: u16) -> u16 {
    if checksum == 0 { 0xffff } else { checksum }
}
