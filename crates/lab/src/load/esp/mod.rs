//! The laboratory's own ESP (RFC 4303, in UDP: RFC 3948), for a tester on the outer side of one
//! gateway: it seals what the gateway is to open, and opens what the gateway has sealed.
//!
//! ```text
//!  Sealed: Ethernet | IPv4 | (UDP) | SPI, number | IV | generator's packet | padding | ICV
//!  Opener: the same backwards, each number once
//! ```
//! Keys and SPIs are those of a CHILD_SA that [`crate::peer`] has agreed on with the gateway. The
//! cryptography is that of aws-lc, packet by packet, whatever engine the gateway has. Not here:
//! sockets.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `seal` | packets for the gateway to open |
//! | `open` | checks packets that the gateway has sealed |
//! | `limits` | speed of the tester itself, without sockets |

mod limits;
mod open;
mod seal;
#[cfg(test)]
mod tests;

use std::net::SocketAddrV4;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

use ironswan_crypto::batch::EspKey;
use ironswan_crypto::rng::System;
use ironswan_wire::esp::{self, UdpKind};
use ironswan_wire::ip::{Fragment, protocol, udp, v4};
use ironswan_wire::proposal::EspSuite;

use crate::error::LabError;
use crate::peer::SaKeys;

pub use limits::{Limits, limits};
pub use open::{EspCounts, Inner, Opener};
pub use seal::Sealed;

const ETHERNET: usize = 14;

/// Between whom ESP travels, and how.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Outer {
    /// The tester; the port matters in UDP.
    pub local: SocketAddrV4,
    /// The gateway.
    pub remote: SocketAddrV4,
    /// Send ESP in UDP. Both forms are received (RFC 7296 section 2.23).
    pub udp: bool,
}

/// One direction of a CHILD_SA.
#[derive(Debug)]
pub struct Association {
    spi: u32,
    key: Box<EspKey>,
    outer: Outer,
    /// The next sequence number to be used; of an inbound SA the one behind the highest that came.
    next: AtomicU64,
}

impl Association {
    /// With these keys. An error for a suite that the tester has not.
    pub fn new(suite: &EspSuite, keys: &SaKeys, outer: Outer) -> Result<Self, LabError> {
        let key = EspKey::new(suite, keys.encr.expose(), keys.integ.expose(), &mut System);
        let key = key.ok_or_else(|| LabError::Measurement(format!("the tester has no {suite}")))?;
        Ok(Self { spi: keys.spi, key, outer, next: AtomicU64::new(1) })
    }

    /// Goes on behind the numbers of `earlier`, which has the same key: none is used twice with a
    /// key, wherever packets go.
    pub fn continues(&self, earlier: &Self) {
        self.next.fetch_max(earlier.next.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// True when more than half of the sequence numbers are used.
    pub fn is_half_used(&self) -> bool {
        self.next.load(Ordering::Relaxed) > u64::from(u32::MAX) / 2
    }

    /// The SPI.
    pub fn spi(&self) -> u32 {
        self.spi
    }

    /// The first of `count` sequence numbers that nobody else gets: none is ever used twice,
    /// whatever becomes of the packets. An error when they are used up (RFC 4303 section 3.3.3;
    /// with extended numbers as well, whose high half stays zero here).
    fn reserve(&self, count: usize) -> Result<u64, LabError> {
        let first = self.next.fetch_add(count as u64, Ordering::Relaxed);
        if first + count as u64 > u64::from(u32::MAX) {
            return Err(LabError::Measurement("the tester has used all sequence numbers of its SA".into()));
        }
        Ok(first)
    }
}

impl Outer {
    /// Bytes of the ESP packet in an Ethernet frame from the gateway; `None` when it holds none.
    fn find(&self, frame: &[u8]) -> Option<Range<usize>> {
        let packet = ipv4(frame)?;
        let info = v4::parse(packet).ok().filter(|i| i.fragment == Fragment::No)?;
        let from_gateway =
            packet[12..16] == self.remote.ip().octets() && packet[16..20] == self.local.ip().octets();
        let upper = from_gateway.then(|| &packet[info.upper..info.total_len])?;
        let start = match info.protocol {
            protocol::ESP => info.upper,
            protocol::UDP => {
                let ports = [self.remote.port().to_be_bytes(), self.local.port().to_be_bytes()].concat();
                let payload = upper.get(udp::HEADER..)?;
                let esp = upper.starts_with(&ports)
                    && udp::length(upper) == Some(upper.len())
                    && esp::udp_kind(payload) == UdpKind::Esp;
                esp.then_some(info.upper + udp::HEADER)?
            }
            _ => return None,
        };
        Some(ETHERNET + start..ETHERNET + info.total_len)
    }
}

/// The IPv4 packet in an Ethernet frame.
fn ipv4(frame: &[u8]) -> Option<&[u8]> {
    let (header, packet) = frame.split_first_chunk::<ETHERNET>()?;
    (header[12..] == [8, 0]).then_some(packet)
}
