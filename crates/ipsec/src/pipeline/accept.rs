//! Whether an inner packet may come out of its SA: addresses, selectors, DISCARD policies (RFC 4301 section 5.2, step 4). The
//! answer is the same for all packets of one flow, so it is asked for once for each.

use std::net::Ipv4Addr;

use ironswan_wire::ip::IpInfo;
use ironswan_wire::sadb::Action;

use crate::counters::DropReason;
use crate::engine::Snapshot;
use crate::flow::{Accepted, FlowKey};
use crate::sa::InSa;

/// The packet's flow, when it may come out of this SA.
#[inline]
pub(super) fn accept(
    snap: &Snapshot,
    accepted: &mut Accepted,
    packet: &[u8],
    info: &IpInfo,
    sa: &InSa,
) -> Result<FlowKey, DropReason> {
    let flow = FlowKey::new(info, packet).ok_or(DropReason::InInnerHdrError)?;
    if !accepted.has(&flow, sa.state.spi.0) {
        acceptable(snap, packet, info, sa)?;
        accepted.insert(&flow, sa.state.spi.0);
    }
    Ok(flow)
}

/// What is asked of the first packet of a flow.
fn acceptable(snap: &Snapshot, packet: &[u8], info: &IpInfo, sa: &InSa) -> Result<(), DropReason> {
    if martian(packet, info.ipv6) {
        return Err(DropReason::InInnerMartian);
    }
    let selector = info.selector(packet).ok_or(DropReason::InInnerHdrError)?;
    // "Match the packet against the inbound selectors identified by the SAD entry" (RFC 4301 section 5.2, step 4).
    if !sa.state.selectors.covers_in(&selector) {
        return Err(DropReason::InStateMismatch);
    }
    if snap.spd.has_discards()
        && snap.spd.lookup_in(&selector).is_some_and(|p| p.policy.action == Action::Discard)
    {
        return Err(DropReason::InPolBlock);
    }
    Ok(())
}

/// Addresses that no packet on a wire has, whatever the selectors say (RFC 1122 section 3.2.1.3, RFC 4291 section 2.5):
/// loopback on either side, an unspecified destination, multicast or broadcast as source.
#[inline]
fn martian(packet: &[u8], ipv6: bool) -> bool {
    if ipv6 {
        let Some(h) = packet.first_chunk::<40>() else { return true };
        let loopback = |a: &[u8]| a[..15].iter().all(|b| *b == 0) && a[15] <= 1;
        // Unspecified is a legal source (duplicate address detection), loopback is not.
        h[8] == 0xff
            || (h[24] == 0 && loopback(&h[24..40]))
            || (h[8] == 0 && loopback(&h[8..24]) && h[23] == 1)
    } else {
        let Some(h) = packet.first_chunk::<20>() else { return true };
        let src = Ipv4Addr::new(h[12], h[13], h[14], h[15]);
        h[12] == 127 || h[16] == 127 || h[12] & 0xf0 == 0xe0 || h[16] == 0 || src.is_broadcast()
    }
}
