//! IPv6 extension headers (RFC 8200 section 4): the walk to the upper-layer header.
//!
//! AH and ESP count as upper-layer protocols here: the packet path never looks through them.

use super::{Fragment, IpError};

/// Hop-by-hop options.
pub const HOP_BY_HOP: u8 = 0;
/// Routing.
pub const ROUTING: u8 = 43;
const FRAGMENT: u8 = 44;
/// Destination options.
pub const DEST_OPTIONS: u8 = 60;

/// RFC 8200 section 4.1 lists six at most in one packet.
const MAX_HEADERS: usize = 8;

/// The upper-layer header behind the extension headers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UpperLayer {
    /// Offset of the upper-layer header in the packet.
    pub upper: usize,
    /// Protocol number of the upper-layer header.
    pub protocol: u8,
    /// Kind of fragment, by the fragment header if there is one.
    pub fragment: Fragment,
}

/// Walks from `at`, where a header of kind `next` begins, to the upper-layer header.
pub fn walk(packet: &[u8], mut at: usize, mut next: u8) -> Result<UpperLayer, IpError> {
    let mut fragment = Fragment::No;
    for _ in 0..MAX_HEADERS {
        match next {
            HOP_BY_HOP | ROUTING | DEST_OPTIONS => {
                let h = packet.get(at..).and_then(|p| p.first_chunk::<2>()).ok_or(IpError::Truncated)?;
                next = h[0];
                at += 8 + usize::from(h[1]) * 8;
                if at > packet.len() {
                    return Err(IpError::Truncated);
                }
            }
            FRAGMENT => {
                let h = packet.get(at..).and_then(|p| p.first_chunk::<8>()).ok_or(IpError::Truncated)?;
                next = h[0];
                at += 8;
                let bits = u16::from_be_bytes([h[2], h[3]]);
                if bits & 0xfff8 != 0 {
                    // The middle of a fragmented packet follows: there are no more headers to read.
                    return Ok(UpperLayer { upper: at, protocol: next, fragment: Fragment::Later });
                }
                if bits & 1 != 0 {
                    fragment = Fragment::First;
                }
            }
            _ => return Ok(UpperLayer { upper: at, protocol: next, fragment }),
        }
    }
    Err(IpError::Extensions)
}

/// Place of the fragment header of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FragmentHeader {
    /// Offset of its first byte in the packet.
    pub at: usize,
    /// Offset of the next header byte that announces it, which is in the header before it.
    pub announced_at: usize,
}

/// Finds the fragment header (8 bytes, RFC 8200 section 4.5) of an IPv6 packet. `None` when it has
/// none, or not all of it.
pub fn fragment_header(packet: &[u8]) -> Option<FragmentHeader> {
    let (mut at, mut announced_at) = (super::v6::HEADER, 6);
    for _ in 0..MAX_HEADERS {
        match *packet.get(announced_at)? {
            HOP_BY_HOP | ROUTING | DEST_OPTIONS => {
                announced_at = at;
                at += 8 + usize::from(*packet.get(at + 1)?) * 8;
            }
            FRAGMENT => {
                packet.get(at..at + 8)?;
                return Some(FragmentHeader { at, announced_at });
            }
            _ => return None,
        }
    }
    None
}
