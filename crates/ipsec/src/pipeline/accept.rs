//! Whether an inner packet may come out of its SA: addresses, selectors, DISCARD policies (RFC 4301 section 5.2, step 4). The
//! answer is the same for all packets of one flow, so it is asked for once for each.

use std::net::Ipv4Addr;

use ironswan_wire::ip::{Fragment, IpInfo, icmp};
use ironswan_wire::sadb::Action;
use ironswan_wire::selector::PacketSelector;

use super::opened::Asked;
use crate::counters::DropReason;
use crate::engine::Snapshot;
use crate::flow::FlowKey;
use crate::fragment::shows_ports;
use crate::sa::InSa;

/// The hash of the packet's flow, when it may come out of this SA.
// The key itself stays in registers: nothing that is called is given it.
#[inline(always)]
pub(super) fn accept<W>(
    asked: &mut Asked<'_, W>,
    packet: &[u8],
    info: &IpInfo,
    sa: &InSa,
) -> Result<u16, DropReason> {
    let flow = FlowKey::new(info, packet).ok_or(DropReason::InInnerHdrError)?;
    if info.fragment != Fragment::No
        || !(covered(asked.snap, &flow, packet, info, sa) || asked.accepted.has(&flow, sa.state.spi.0))
    {
        unknown(asked, packet, info, sa)?;
    }
    Ok(flow.short())
}

/// True where no memory but the SA's own has to be asked: what [`acceptable`] would say of most packets. With many SAs or flows
/// that is faster than to look up what it has said.
#[inline(always)]
fn covered(snap: &Snapshot, flow: &FlowKey, packet: &[u8], info: &IpInfo, sa: &InSa) -> bool {
    let state = &*sa.state;
    state.covers_addresses(flow)
        && !snap.spd.has_discards()
        && !(state.may_let_martians_in(info.ipv6) && martian(packet, info.ipv6))
}

#[cold]
#[inline(never)]
fn unknown<W>(asked: &mut Asked<'_, W>, packet: &[u8], info: &IpInfo, sa: &InSa) -> Result<(), DropReason> {
    let flow = FlowKey::new(info, packet).ok_or(DropReason::InInnerHdrError)?;
    match info.fragment {
        Fragment::No => whole(asked, &flow, packet, info, sa),
        _ => fragment(asked, &flow, packet, info, sa),
    }
}

fn whole<W>(
    asked: &mut Asked<'_, W>,
    flow: &FlowKey,
    packet: &[u8],
    info: &IpInfo,
    sa: &InSa,
) -> Result<(), DropReason> {
    if !asked.accepted.has(flow, sa.state.spi.0) {
        match acceptable(asked.snap, flow, packet, info, sa) {
            // Every error quotes something else: nothing is remembered.
            Err(DropReason::InStateMismatch) => return by_quoted(asked.snap, packet, info, sa),
            result => result?,
        }
        asked.accepted.insert(flow, sa.state.spi.0);
    }
    Ok(())
}

/// A fragment: what shows its ports is asked as a whole packet is, and remembered; all others need no ports, or a first one
/// that came out of an SA of the same policy and that this SA may carry (RFC 4301 section 7.3).
fn fragment<W>(
    asked: &mut Asked<'_, W>,
    flow: &FlowKey,
    packet: &[u8],
    info: &IpInfo,
    sa: &InSa,
) -> Result<(), DropReason> {
    let scope = sa.state.reqid.0;
    if shows_ports(packet, info) {
        whole(asked, flow, packet, info, sa)?;
        asked.fragments.note(asked.now, packet, info, scope, *flow);
        return Ok(());
    }
    match whole(asked, &flow.hidden(), packet, info, sa) {
        Err(DropReason::InStateMismatch) => {
            let first = asked.fragments.flow(asked.now, packet, info, scope);
            let first = first.ok_or(DropReason::InStateMismatch)?;
            whole(asked, &first, packet, info, sa)
        }
        result => result,
    }
}

/// What is asked of the first packet of a flow.
fn acceptable(
    snap: &Snapshot,
    flow: &FlowKey,
    packet: &[u8],
    info: &IpInfo,
    sa: &InSa,
) -> Result<(), DropReason> {
    if martian(packet, info.ipv6) {
        return Err(DropReason::InInnerMartian);
    }
    let selector = flow.selector();
    // "Match the packet against the inbound selectors identified by the SAD entry" (RFC 4301 section 5.2, step 4).
    if !sa.state.selectors.covers_in(&selector) {
        return Err(DropReason::InStateMismatch);
    }
    if !snap.spd.has_discards() {
        return Ok(());
    }
    let action = match flow.is_hidden() {
        false => snap.spd.lookup_in(&selector).map(|p| p.policy.action),
        // Where it depends on the ports, its first fragment has to be known.
        true => snap.spd.lookup_in_hidden(&selector).map_err(|_| DropReason::InStateMismatch)?,
    };
    if action == Some(Action::Discard) { Err(DropReason::InPolBlock) } else { Ok(()) }
}

/// An ICMP error that the selectors do not cover: it is accepted when they cover the answer to what it quotes, since routers
/// on the peer's side speak with addresses of their own (RFC 4301 section 6.2).
#[cold]
fn by_quoted(snap: &Snapshot, packet: &[u8], info: &IpInfo, sa: &InSa) -> Result<(), DropReason> {
    let answer = icmp::quoted_answer(packet, info).filter(|answer| sa.state.selectors.covers_in(answer));
    let answer = answer.ok_or(DropReason::InStateMismatch)?;
    let discards = |s: &PacketSelector| {
        snap.spd.lookup_in(s).is_some_and(|found| found.policy.action == Action::Discard)
    };
    let blocked = discards(&answer) || info.selector(packet).is_none_or(|own| discards(&own));
    if blocked { Err(DropReason::InPolBlock) } else { Ok(()) }
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
