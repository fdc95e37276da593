//! ECN through tunnels (RFC 6040). Outbound is the "normal mode" of section 4.1: the inner field is
//! copied, which [`crate::Send::tos`] carries together with DSCP. Inbound is the table of section
//! 4.2.

use ironswan_wire::ip::{v4, v6};
use ironswan_wire::sadb::SaOptions;

/// The ECN field, in TOS or traffic class.
pub(crate) const ECN: u8 = 3;
const NOT_ECT: u8 = 0;
const ECT_1: u8 = 1;
const ECT_0: u8 = 2;
const CE: u8 = 3;

/// The inner ECN field after decapsulation; `None` when the packet has to be dropped.
#[inline]
pub(crate) fn decapsulate(inner: u8, outer: u8) -> Option<u8> {
    match (inner & ECN, outer & ECN) {
        // "If the inner ECN field is Not-ECT and the outer ECN field is CE, the decapsulator MUST
        // drop the packet."
        (NOT_ECT, CE) => None,
        (NOT_ECT, _) => Some(NOT_ECT),
        (ECT_0, ECT_1) => Some(ECT_1),
        (_, CE) => Some(CE),
        (inner, _) => Some(inner),
    }
}

/// Brings the ECN field of the inner packet up to date; false when it has to be dropped. `packet`
/// has a whole header.
#[inline]
pub(crate) fn apply(packet: &mut [u8], ipv6: bool, inner_tos: u8, outer_tos: u8) -> bool {
    let (inner, outer) = (inner_tos & ECN, outer_tos & ECN);
    if inner == outer || outer == NOT_ECT {
        return true;
    }
    let Some(ecn) = decapsulate(inner, outer) else { return false };
    if ecn != inner {
        set(packet, ipv6, inner_tos & !ECN | ecn);
    }
    true
}

/// The same for an SA with options of its own: whether congestion marks pass, and whether the inner
/// DSCP becomes the outer one (RFC 2983 section 3.1, the uniform model).
pub(crate) fn apply_options(
    packet: &mut [u8],
    ipv6: bool,
    inner: u8,
    outer: u8,
    options: &SaOptions,
) -> bool {
    let ecn = if options.copy_ecn { decapsulate(inner, outer) } else { Some(inner & ECN) };
    let Some(ecn) = ecn else { return false };
    let tos = if options.dscp_in { outer } else { inner } & !ECN | ecn;
    if tos != inner {
        set(packet, ipv6, tos);
    }
    true
}

fn set(packet: &mut [u8], ipv6: bool, tos: u8) {
    if ipv6 {
        v6::set_traffic_class(packet, tos);
    } else {
        v4::set_tos(packet, tos);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sixteen_combinations_of_rfc_6040_figure_4() {
        // Rows: inner Not-ECT, ECT(0), ECT(1), CE. Columns: outer Not-ECT, ECT(0), ECT(1), CE.
        let n = Some(NOT_ECT);
        let (e0, e1, ce) = (Some(ECT_0), Some(ECT_1), Some(CE));
        let table = [[n, n, n, None], [e0, e0, e1, ce], [e1, e1, e1, ce], [ce, ce, ce, ce]];
        let fields = [NOT_ECT, ECT_0, ECT_1, CE];
        for (row, inner) in table.iter().zip(fields) {
            for (want, outer) in row.iter().zip(fields) {
                assert_eq!(decapsulate(inner, outer), *want, "{inner} in {outer}");
                let mut v4p =
                    vec![0x45, 0xb8 | inner, 0, 20, 0, 0, 0, 0, 9, 17, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8];
                v4::set_checksum(&mut v4p);
                let mut v6p = vec![0x6b, 0x80 | inner << 4, 0, 0];
                assert_eq!(apply(&mut v4p, false, 0xb8 | inner, outer), want.is_some());
                assert_eq!(apply(&mut v6p, true, 0xb8 | inner, outer), want.is_some());
                if let Some(ecn) = want {
                    assert_eq!(v4p[1], 0xb8 | ecn);
                    assert!(v4::checksum_ok(&v4p));
                    assert_eq!(v6p[..2], [0x6b, 0x80 | ecn << 4]);
                }
            }
        }
    }
}
