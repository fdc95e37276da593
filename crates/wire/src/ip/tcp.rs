//! TCP header (RFC 9293): where things are, and the flags that segmentation and merging care about.
//!
//! ```text
//!  0-1 source port  2-3 destination port  4-7 sequence  8-11 acknowledgment
//!  12 data offset | reserved  13 flags  14-15 window  16-17 checksum  18-19 urgent  20.. options
//! ```

/// Header length without options.
pub const MIN_HEADER: usize = 20;
/// Offset of the checksum in the header.
pub const CHECKSUM: usize = 16;

/// FIN.
pub const FIN: u8 = 0x01;
/// SYN.
pub const SYN: u8 = 0x02;
/// RST.
pub const RST: u8 = 0x04;
/// PSH.
pub const PSH: u8 = 0x08;
/// ACK.
pub const ACK: u8 = 0x10;
/// URG.
pub const URG: u8 = 0x20;
/// ECN-Echo (RFC 3168).
pub const ECE: u8 = 0x40;
/// Congestion window reduced (RFC 3168).
pub const CWR: u8 = 0x80;

/// Length of the header that `segment` begins with; `None` when it is not all there.
#[inline]
pub fn header_len(segment: &[u8]) -> Option<usize> {
    let h = segment.first_chunk::<MIN_HEADER>()?;
    let len = usize::from(h[12] >> 4) * 4;
    (len >= MIN_HEADER && len <= segment.len()).then_some(len)
}

/// Sequence number of a header.
#[inline]
pub fn sequence(segment: &[u8]) -> Option<u32> {
    Some(u32::from_be_bytes(*segment.get(4..8)?.first_chunk()?))
}
