//! IPv4 header (RFC 791, ECN and DSCP as RFC 3168 and RFC 2474).
//!
//! ```text
//!  0 ver|ihl  1 tos  2-3 total length  4-5 id  6-7 flags|fragment offset
//!  8 ttl  9 protocol  10-11 checksum
//!  12-15 source  16-19 destination  20.. options
//! ```

use super::{Fragment, IpError, IpInfo, checksum};

/// Header length without options.
pub const MIN_HEADER: usize = 20;
/// "Don't fragment" in the 16 bits at offset 6.
pub const DF: u16 = 0x4000;
/// "More fragments" in the 16 bits at offset 6.
pub const MF: u16 = 0x2000;

/// Reads the header; `packet[0] >> 4` is known to be 4.
#[inline]
pub fn parse(packet: &[u8]) -> Result<IpInfo, IpError> {
    let h = packet.first_chunk::<MIN_HEADER>().ok_or(IpError::Truncated)?;
    let header = usize::from(h[0] & 0x0f) * 4;
    let total_len = usize::from(u16::from_be_bytes([h[2], h[3]]));
    if header < MIN_HEADER || total_len < header {
        return Err(IpError::HeaderLength);
    }
    if total_len > packet.len() {
        return Err(IpError::Truncated);
    }
    let frag = u16::from_be_bytes([h[6], h[7]]);
    let fragment = if frag & 0x1fff != 0 {
        Fragment::Later
    } else if frag & MF != 0 {
        Fragment::First
    } else {
        Fragment::No
    };
    Ok(IpInfo { ipv6: false, tos: h[1], total_len, upper: header, protocol: h[9], fragment })
}

/// True when the header checksum is right. `header` is exactly the header.
#[inline]
pub fn checksum_ok(header: &[u8]) -> bool {
    match header.first_chunk::<MIN_HEADER>() {
        // Of known length: no loop.
        Some(h) if header.len() == MIN_HEADER => checksum::fold(checksum::sum(h)) == 0xffff,
        _ => checksum::fold(checksum::sum(header)) == 0xffff,
    }
}

/// Computes and stores the header checksum. `header` is exactly the header, at least 20 bytes.
#[inline]
pub fn set_checksum(header: &mut [u8]) {
    if let Some(field) = header.get_mut(10..12) {
        field.fill(0);
    }
    let value = !checksum::fold(checksum::sum(header));
    if let Some(field) = header.get_mut(10..12) {
        field.copy_from_slice(&value.to_ne_bytes());
    }
}

/// Stores a total length and brings the checksum up to date incrementally (RFC 1624).
#[inline]
pub fn set_total_len(header: &mut [u8], total_len: u16) {
    if let Some(h) = header.first_chunk_mut::<MIN_HEADER>() {
        let old = [h[2], h[3]];
        let new = total_len.to_be_bytes();
        h[2..4].copy_from_slice(&new);
        let sum = checksum::update([h[10], h[11]], old, new);
        h[10..12].copy_from_slice(&sum);
    }
}

/// Stores the TOS byte and brings the checksum up to date incrementally (RFC 1624).
#[inline]
pub fn set_tos(header: &mut [u8], tos: u8) {
    if let Some(h) = header.first_chunk_mut::<MIN_HEADER>() {
        let old = [h[0], h[1]];
        let new = [h[0], tos];
        h[1] = tos;
        let sum = checksum::update([h[10], h[11]], old, new);
        h[10..12].copy_from_slice(&sum);
    }
}
