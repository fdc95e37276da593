//! IP packets as the packet path sees them: where the upper-layer header begins, and the selectors
//! of RFC 4301 section 4.4.1.1.
//!
//! [`parse`] accepts any byte string. It does not verify checksums (see [`checksum`]) and does not
//! reassemble.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `info` | result of parsing: offsets, protocol, ports and selectors of a packet |
//! | `v4` | IPv4 header |
//! | `v6` | IPv6 header |
//! | `ext` | IPv6 extension headers |
//! | `tcp` | TCP header, and the MSS option |
//! | `udp` | UDP header |
//! | `icmp` | the packet that an ICMP error quotes |
//! | `checksum` | checksums of IP, TCP, UDP and ICMP |

pub mod checksum;
pub mod ext;
pub mod icmp;
mod info;
pub mod tcp;
pub mod udp;
pub mod v4;
pub mod v6;

pub use info::{Fragment, IpError, IpInfo, protocol};

/// Reads the IP header and, for IPv6, the extension headers.
#[inline]
pub fn parse(packet: &[u8]) -> Result<IpInfo, IpError> {
    match packet.first().map(|b| b >> 4) {
        Some(4) => v4::parse(packet),
        Some(6) => v6::parse(packet),
        Some(_) => Err(IpError::Version),
        None => Err(IpError::Truncated),
    }
}

#[cfg(test)]
mod tests;
