//! The longest inner packet that fits a path: the bytes that ESP or AH and the outer headers add.
//!
//! ```text
//! tunnel:     IP 20 or 40 | UDP 8 | SPI, sequence 8 | IV | inner packet | trailer | ICV
//! transport:  IP, the packet's own          ..           | its payload  | ..
//! AH:         IP | next header .. sequence 12 | IV, ICV, padding | inner packet, or payload
//!
//! trailer: padding to a block, pad length, next header; padding of AH: to 4 or 8 bytes
//! ```
//!
//! IPComp adds nothing: a packet that does not get shorter is sent without it.

use ironswan_wire::algorithm;
use ironswan_wire::esp;
use ironswan_wire::iana::ProtocolId;
use ironswan_wire::ip::{v4, v6};
use ironswan_wire::proposal::EspSuite;
use ironswan_wire::sadb::{Mode, SaAdd};

/// No sender of IPv6 has to make packets smaller than this: a narrower link must fragment by itself
/// (RFC 8200 section 5).
pub const MIN_MTU_V6: usize = 1280;
/// Length of a packet that every IPv4 host takes (RFC 791 section 3.1): no sender is asked for
/// smaller ones.
pub const MIN_MTU_V4: usize = 576;
/// AH up to the ICV (RFC 4302 section 2).
const AH_FIXED: usize = 12;
/// UDP around ESP (RFC 3948).
const UDP: usize = 8;

/// The properties of an SA that decide how many bytes it adds to a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Encapsulation {
    /// ESP or AH.
    pub protocol: ProtocolId,
    /// Tunnel or transport.
    pub mode: Mode,
    /// Algorithms.
    pub suite: EspSuite,
    /// Family of the outer header.
    pub outer_ipv6: bool,
    /// ESP in UDP.
    pub udp_encap: bool,
}

impl Encapsulation {
    /// The encapsulation of an SA.
    pub fn of(sa: &SaAdd) -> Self {
        Self {
            protocol: sa.protocol,
            mode: sa.mode,
            suite: sa.suite,
            outer_ipv6: sa.remote.is_ipv6(),
            udp_encap: sa.udp_encap,
        }
    }

    /// The largest inner packet whose outer packet is not longer than `path` bytes, headers
    /// included; 0 when not even an empty one fits. One byte more and it is longer. In transport
    /// mode the packet's own IP header counts, without options and extensions.
    pub fn inner_max(&self, path: u32) -> u32 {
        let ip = if self.outer_ipv6 { v6::HEADER } else { v4::MIN_HEADER };
        let kept = if self.mode == Mode::Transport { ip } else { 0 };
        let path = path as usize;
        let payload = if self.protocol == ProtocolId::AH {
            path.saturating_sub(ip + self.ah_len())
        } else {
            let (iv, icv, block) = self.esp_lens();
            let outer = ip + if self.udp_encap { UDP } else { 0 };
            let room = path.saturating_sub(outer + esp::HEADER + iv + icv);
            (room - room % block).saturating_sub(esp::TRAILER)
        };
        if payload == 0 { 0 } else { (payload + kept) as u32 }
    }

    /// Length of the whole AH: "the AH header ... must be a multiple of" 4 bytes with IPv4 and 8
    /// with IPv6 (RFC 4302 section 2.6).
    pub(crate) fn ah_len(&self) -> usize {
        let field = self.suite.integ.and_then(algorithm::integ).map_or(0, |s| s.iv_len + s.icv_len);
        (AH_FIXED + field).next_multiple_of(if self.outer_ipv6 { 8 } else { 4 })
    }

    /// IV, ICV and block.
    fn esp_lens(&self) -> (usize, usize, usize) {
        let integ = self.suite.integ.and_then(algorithm::integ).map_or(0, |s| s.icv_len);
        match algorithm::encr(self.suite.encr) {
            Some(e) => (e.iv_len, e.icv_len + integ, e.block_len),
            None => (0, integ, 4),
        }
    }
}
