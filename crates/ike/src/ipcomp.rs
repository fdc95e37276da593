//! IPComp in a negotiation (RFC 7296 section 2.22): IPCOMP_SUPPORTED, and our CPIs.
//!
//! ```text
//! notification data:  | CPI (2 bytes) | transform (1): 2 DEFLATE | attributes of the transform |
//! ```
//!
//! Each end says under which CPI it wants to receive. Compression itself is the packet engine's.

use std::collections::hash_map::Entry;

use ironswan_wire::iana::NotifyType;
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::{Notify, notifies};

use crate::endpoint::Endpoint;
use crate::event::ChildId;
use ironswan_keying::limits::{CPI_DRAWS, IPCOMP_OFFERS};

/// The only transform here (RFC 2394).
const DEFLATE: u8 = 2;

/// CPIs that are negotiated: those below are for well-known algorithms or reserved, those above for private use (RFC 3173
/// section 3.3).
const NEGOTIATED: std::ops::RangeInclusive<u16> = 256..=61_439;

/// What we send: that we take packets compressed under this CPI.
pub(crate) fn payload(cpi: u16) -> Payload {
    let [high, low] = cpi.to_be_bytes();
    Payload::Notify(Notify::new(NotifyType::IPCOMP_SUPPORTED, [high, low, DEFLATE]))
}

/// The peer's CPI for deflate. Other transforms, and what makes no sense, are passed over: IPComp is never needed.
pub(crate) fn accepted(payloads: &[Payload]) -> Option<u16> {
    let offers = notifies(payloads).filter(|n| n.kind == NotifyType::IPCOMP_SUPPORTED).take(IPCOMP_OFFERS);
    offers
        .filter_map(|n| match n.data.as_slice() {
            // Attributes may follow; deflate has none (RFC 2394 section 5).
            [high, low, DEFLATE, ..] => Some(u16::from_be_bytes([*high, *low])),
            _ => None,
        })
        .find(|cpi| NEGOTIATED.contains(cpi))
}

impl Endpoint {
    /// A CPI that is not in use, for what this child receives. `None` when hardly any is left: then it goes without
    /// IPComp. It is given back by [`Self::free_cpi`].
    pub(crate) fn new_cpi(&mut self, id: ChildId) -> Option<u16> {
        let count = u32::from(NEGOTIATED.end() - NEGOTIATED.start()) + 1;
        for _ in 0..CPI_DRAWS {
            // Below `count`, so it fits.
            let cpi = NEGOTIATED.start() + (self.rng.u32() % count) as u16;
            if let Entry::Vacant(free) = self.cpis.entry(cpi) {
                free.insert(id);
                return Some(cpi);
            }
        }
        None
    }

    /// Gives a CPI of this child back.
    pub(crate) fn free_cpi(&mut self, id: ChildId, cpi: Option<u16>) {
        if let Some(cpi) = cpi
            && self.cpis.get(&cpi) == Some(&id)
        {
            self.cpis.remove(&cpi);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer(data: &[u8]) -> Payload {
        Payload::Notify(Notify::new(NotifyType::IPCOMP_SUPPORTED, data))
    }

    #[test]
    fn what_we_send_we_accept() {
        assert_eq!(accepted(&[payload(0x1234)]), Some(0x1234));
    }

    #[test]
    fn deflate_is_chosen_and_nonsense_passed_over() {
        let lzs = offer(&[0x20, 0, 3]);
        assert_eq!(accepted(&[lzs.clone(), offer(&[0x30, 1, 2])]), Some(0x3001));
        assert_eq!(accepted(&[lzs]), None);
        for garbage in [&[][..], &[0x30], &[0x30, 1], &[0, 0, 2], &[0, 2, 2], &[0, 255, 2], &[0xf0, 0, 2]] {
            assert_eq!(accepted(&[offer(garbage)]), None, "{garbage:?}");
            assert_eq!(accepted(&[offer(garbage), offer(&[0x01, 0, 2])]), Some(256), "{garbage:?}");
        }
        assert_eq!(accepted(&[offer(&[0xef, 0xff, 2, 9, 9])]), Some(61_439), "with attributes");
        let many = [vec![offer(&[1, 1, 1]); IPCOMP_OFFERS], vec![payload(0x1234)]].concat();
        assert_eq!(accepted(&many), None, "bounded");
    }
}
