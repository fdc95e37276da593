//! IPComp in a negotiation (RFC 7296 section 2.22): IPCOMP_SUPPORTED, and our CPIs.
//!
//! ```text
//! notification data:  | CPI (2 bytes) | transform (1): 2 DEFLATE | attributes of the transform |
//! ```
//!
//! Each end says under which CPI it wants to receive. Compression itself is the packet engine's.

use ironswan_wire::iana::NotifyType;
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::{Notify, notifies};

use ironswan_keying::limits::IPCOMP_OFFERS;

/// The only transform here (RFC 2394).
const DEFLATE: u8 = 2;

/// CPIs that are negotiated: those below are for well-known algorithms or reserved, those above for
/// private use (RFC 3173 section 3.3).
pub(crate) const NEGOTIATED: std::ops::RangeInclusive<u16> = 256..=61_439;

/// The notification that says that we take packets compressed under this CPI.
pub(crate) fn payload(cpi: u16) -> Payload {
    let [high, low] = cpi.to_be_bytes();
    Payload::Notify(Notify::new(NotifyType::IPCOMP_SUPPORTED, [high, low, DEFLATE]))
}

/// The peer's CPI for deflate. Other transforms, and what makes no sense, are passed over: IPComp
/// is never needed.
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
