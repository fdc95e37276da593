//! Whether an inner packet may come out of its SA: addresses, selectors, and whether the policy
//! that covers the packet first is the SA's own (RFC 4301 section 5.2, step 4). The answer is the
//! same for all packets of one flow, so it is found once for each flow. Most SAs are alone in their
//! selectors (`InState::is_alone_in`), and nothing has to be looked up for their packets.

use ironswan_wire::ip::{Fragment, IpInfo, icmp};
use ironswan_wire::sadb::{Action, ReqId};

use super::context::InboundContext;
use crate::counters::DropReason;
use crate::flow::FlowKey;
use crate::fragment::shows_ports;
use crate::sa::{InSa, OutSa};
use crate::snapshot::Snapshot;

/// The hash of the packet's flow, when it may come out of this SA.
// The key itself stays in registers: nothing that is called is given it.
#[inline(always)]
pub(super) fn accept<T>(
    context: &mut InboundContext<'_, T>,
    packet: &[u8],
    info: &IpInfo,
    sa: &InSa,
) -> Result<u16, DropReason> {
    let flow = FlowKey::new(info, packet).ok_or(DropReason::InInnerHdrError)?;
    if info.fragment != Fragment::No
        || !(covered_by_sa(context.snap, &flow, packet, info, sa)
            || context.accepted.contains(&flow, sa.state.spi.0))
    {
        ask_policy(context, packet, info, sa)?;
    }
    Ok(flow.hash16())
}

/// True when the SA's own memory shows that the packet may come out of it, as [`check_flow`] would
/// find for most packets. With many SAs or flows this is faster than looking up an earlier answer.
#[inline(always)]
fn covered_by_sa(snap: &Snapshot, flow: &FlowKey, packet: &[u8], info: &IpInfo, sa: &InSa) -> bool {
    let state = &*sa.state;
    state.covers_addresses(flow)
        && state.is_alone_in(&snap.spd)
        && !(state.may_let_martians_in(info.ipv6) && martian(packet, info.ipv6))
        && !icmp::is_icmp(info)
}

#[cold]
#[inline(never)]
fn ask_policy<T>(
    context: &mut InboundContext<'_, T>,
    packet: &[u8],
    info: &IpInfo,
    sa: &InSa,
) -> Result<(), DropReason> {
    let flow = FlowKey::new(info, packet).ok_or(DropReason::InInnerHdrError)?;
    let result = check_packet(context, &flow, packet, info, sa);
    // An SA is found as soon as it is there, and its own policies follow it: they may have come
    // within this round.
    if matches!(result, Err(DropReason::InTmplMismatch | DropReason::InPolBlock))
        && context.engine.generation() != context.snap.generation
    {
        let snap = context.engine.snapshot();
        let InboundContext { engine, now, .. } = *context;
        let (accepted, fragments) = (&mut *context.accepted, &mut *context.fragments);
        let mut again =
            InboundContext { snap: &snap, engine, accepted, fragments, now, timer: &mut *context.timer };
        return check_packet(&mut again, &flow, packet, info, sa);
    }
    result
}

fn check_packet<T>(
    context: &mut InboundContext<'_, T>,
    flow: &FlowKey,
    packet: &[u8],
    info: &IpInfo,
    sa: &InSa,
) -> Result<(), DropReason> {
    match info.fragment {
        Fragment::No => check_whole(context, flow, packet, info, sa),
        _ => check_fragment(context, flow, packet, info, sa),
    }
}

fn check_whole<T>(
    context: &mut InboundContext<'_, T>,
    flow: &FlowKey,
    packet: &[u8],
    info: &IpInfo,
    sa: &InSa,
) -> Result<(), DropReason> {
    if icmp::is_error(packet, info) {
        return check_icmp_error(context.snap, flow, packet, info, sa);
    }
    if !context.accepted.contains(flow, sa.state.spi.0) {
        check_flow(context.snap, flow, packet, info, sa)?;
        context.accepted.insert(flow, sa.state.spi.0);
    }
    Ok(())
}

/// Checks a fragment. One that shows its ports is checked as a whole packet is, and remembered. All
/// others need policies that ignore ports, or a first fragment that came out of an SA of the same
/// policy and that this SA may carry (RFC 4301 section 7.3).
fn check_fragment<T>(
    context: &mut InboundContext<'_, T>,
    flow: &FlowKey,
    packet: &[u8],
    info: &IpInfo,
    sa: &InSa,
) -> Result<(), DropReason> {
    let scope = sa.state.reqid.0;
    if shows_ports(packet, info) {
        check_whole(context, flow, packet, info, sa)?;
        context.fragments.remember(context.now, packet, info, scope, *flow);
        return Ok(());
    }
    match check_whole(context, &flow.without_ports(), packet, info, sa) {
        Err(DropReason::InStateMismatch) => {
            let first = context.fragments.flow(context.now, packet, info, scope);
            let first = first.ok_or(DropReason::InStateMismatch)?;
            check_whole(context, &first, packet, info, sa)
        }
        result => result,
    }
}

/// Checks the first packet of a flow: its addresses, the SA's selectors, and the policy that covers
/// it.
fn check_flow(
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
    // "Match the packet against the inbound selectors identified by the SAD entry" (RFC 4301
    // section 5.2, step 4).
    if !sa.state.parameters.selectors.covers_in(&selector) {
        return Err(DropReason::InStateMismatch);
    }
    if !sa.state.find_others(&snap.spd) {
        return Ok(());
    }
    let first = match flow.is_later_fragment() {
        false => snap.spd.lookup_in(&selector),
        // Where the answer depends on ports, the first fragment of the packet has to be known.
        true => snap.spd.lookup_in_hidden(&selector).map_err(|_| DropReason::InStateMismatch)?,
    };
    check_policy(first, sa)
}

/// Whether a packet may come out of an SA for the policy that covers its answer first: the SPD is
/// ordered (RFC 4301 section 4.4.1), and whose networks these are is what that policy says, not the
/// SA's selectors, which may be wider. Of an SA without policies (`policies = no`) everything may
/// that no policy covers.
pub(crate) fn check_policy(first: Option<Action>, sa: &InSa) -> Result<(), DropReason> {
    match first {
        None => Ok(()),
        Some(Action::Protect(reqid)) if reqid == sa.state.reqid => Ok(()),
        Some(Action::Discard) => Err(DropReason::InPolBlock),
        Some(Action::Protect(_) | Action::Bypass) => Err(DropReason::InTmplMismatch),
    }
}

/// An ICMP error is about the packet that it quotes, and each quotes another: nothing of it is
/// remembered. That packet's answer has to be one that may come out of an SA of this peer, or else
/// it could end or narrow the flows of others (RFC 4301 section 6.2).
///
/// An error that the selectors do not cover is accepted when they cover that answer, since routers
/// on the peer's side speak with addresses of their own. These may be anybody's: the error says
/// nothing that the peer could not say in its own name.
#[cold]
fn check_icmp_error(
    snap: &Snapshot,
    flow: &FlowKey,
    packet: &[u8],
    info: &IpInfo,
    sa: &InSa,
) -> Result<(), DropReason> {
    // Whoever puts the fragments together would believe what has not been looked at. No error is
    // longer than what passes everywhere (RFC 1812 section 4.3.2.3, RFC 4443 section 2.4).
    if info.fragment != Fragment::No {
        return Err(DropReason::InFragment);
    }
    let answer = icmp::quoted_answer(packet, info);
    match check_flow(snap, flow, packet, info, sa) {
        Err(DropReason::InStateMismatch) => {
            let answer = answer.filter(|answer| sa.state.parameters.selectors.covers_in(answer));
            check_policy(snap.spd.lookup_in(&answer.ok_or(DropReason::InStateMismatch)?), sa)?;
            let own = info.selector(packet).and_then(|own| snap.spd.lookup_in(&own));
            if own == Some(Action::Discard) { Err(DropReason::InPolBlock) } else { Ok(()) }
        }
        Ok(()) => answer.map_or(Ok(()), |answer| match snap.spd.lookup_in(&answer) {
            // A router behind one child may complain about another child's flow: both are the same
            // peer's.
            Some(Action::Protect(reqid)) if is_same_peer(snap, reqid, sa) => Ok(()),
            // A flow that no policy covers is in the SA's selectors, or else is one of ours with
            // somebody outside.
            None if !sa.state.parameters.selectors.covers_in(&answer) => Err(DropReason::InStateMismatch),
            first => check_policy(first, sa),
        }),
        refused => refused,
    }
}

/// True when a policy with this reqid has an SA to the peer that this SA comes from.
fn is_same_peer(snap: &Snapshot, reqid: ReqId, sa: &InSa) -> bool {
    let peer = sa.path.remote;
    let there = |out: &OutSa| (out.path.remote.ip(), out.path.remote.port()) == (peer.ip(), peer.port());
    snap.outbound.get(reqid.0).is_some_and(|list| list.iter().any(|out| there(out)))
}

/// Addresses that no packet between networks has, whatever the selectors say (RFC 1122 section
/// 3.2.1.3, RFC 6890, RFC 4291 section 2.5): loopback and unspecified on either side, 0.0.0.0/8
/// too, and as source multicast, what is reserved, broadcast.
#[inline]
fn martian(packet: &[u8], ipv6: bool) -> bool {
    if ipv6 {
        let Some(h) = packet.first_chunk::<40>() else { return true };
        // The unspecified address, or loopback.
        let none = |a: &[u8]| a[..15].iter().all(|b| *b == 0) && a[15] <= 1;
        h[8] == 0xff || (h[24] == 0 && none(&h[24..40])) || (h[8] == 0 && none(&h[8..24]))
    } else {
        let Some(h) = packet.first_chunk::<20>() else { return true };
        h[12] == 127 || h[16] == 127 || h[12] >= 224 || h[12] == 0 || h[16] == 0
    }
}
