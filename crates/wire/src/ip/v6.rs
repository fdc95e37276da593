//! IPv6 header (RFC 8200).
//!
//! ```text
//!  0-3 version | traffic class | flow label  4-5 payload length  6 next header  7 hop limit
//!  8-23 source  24-39 destination
//! ```

use super::{IpError, IpInfo, ext};

/// Header length.
pub const HEADER: usize = 40;

/// Reads the header and the extension headers; `packet[0] >> 4` is known to be 6.
#[inline]
pub fn parse(packet: &[u8]) -> Result<IpInfo, IpError> {
    let h = packet.first_chunk::<HEADER>().ok_or(IpError::Truncated)?;
    let total_len = HEADER + usize::from(u16::from_be_bytes([h[4], h[5]]));
    let whole = packet.get(..total_len).ok_or(IpError::Truncated)?;
    let found = ext::walk(whole, HEADER, h[6])?;
    Ok(IpInfo {
        ipv6: true,
        tos: traffic_class(h),
        total_len,
        upper: found.upper,
        protocol: found.protocol,
        fragment: found.fragment,
    })
}

/// Traffic class of a header.
#[inline]
pub fn traffic_class(h: &[u8; HEADER]) -> u8 {
    h[0] << 4 | h[1] >> 4
}

/// Stores the traffic class.
#[inline]
pub fn set_traffic_class(header: &mut [u8], class: u8) {
    if let Some(h) = header.first_chunk_mut::<2>() {
        h[0] = h[0] & 0xf0 | class >> 4;
        h[1] = h[1] & 0x0f | class << 4;
    }
}
