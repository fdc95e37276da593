//! How long an inner packet may be: what ESP and its outer headers add, to the byte.
//!
//! ```text
//! IP (20 or 40) | UDP 8 | SPI, sequence 8 | IV | inner | padding to a block | pad length, next header 2 | ICV
//! ```

use ironswan_wire::esp;
use ironswan_wire::iana::{EncrId, IntegId};
use ironswan_wire::proposal::EspSuite;

/// No sender of IPv6 has to make packets smaller than this: a narrower link must fragment by itself (RFC 8200 section 5).
pub const LEAST_V6: usize = 1280;
/// What every IPv4 host takes (RFC 791 section 3.1): smaller packets are not asked for.
pub const LEAST_V4: usize = 576;

/// The largest inner packet whose ESP packet, outer headers included, is not longer than `path` bytes; 0 when not even an
/// empty one fits. One byte more and it is longer.
pub fn inner_max(path: u32, outer_ipv6: bool, udp_encap: bool, suite: &EspSuite) -> u32 {
    let (iv, block) = match suite.encr {
        EncrId::AES_CBC => (16, 16),
        EncrId::NULL => (0, 4),
        // RFC 4106 section 3.1, RFC 7634 section 2.
        _ => (8, 4),
    };
    let icv = match suite.integ {
        Some(IntegId::HMAC_SHA1_96) => 12,
        Some(IntegId::HMAC_SHA2_384_192) => 24,
        Some(IntegId::HMAC_SHA2_512_256) => 32,
        // HMAC-SHA-256-128, and the AEADs.
        _ => 16,
    };
    let outer = if outer_ipv6 { 40 } else { 20 } + if udp_encap { 8 } else { 0 };
    let room = path.saturating_sub(outer + esp::HEADER as u32 + iv + icv);
    (room - room % block).saturating_sub(esp::TRAILER as u32)
}
