//! The stations of a packet from the peer's side to ours.

use ironswan_io::Error as IoError;
use ironswan_io::route::{NextHop, RouteAnswer, RouteQuery};
use ironswan_ipsec::{Decision, DropReason};
use ironswan_keying::diagnosis::Packet;

use super::outbound::{described, forward, in_words, link, no_policy, of_reason, outside, with_sa};
use super::view::View;
use super::world::{Ask, World, refusal};
use super::{Direction, Passage, Station, shown};
use crate::guard::plan::Verdict;

/// Goes along the stations.
///
/// # Errors
/// The kernel gives no answer.
pub(super) fn walk(view: &View, world: &mut dyn World) -> Result<Passage, IoError> {
    let mut passage = Passage::new(Direction::Inbound);
    let clear = view.question.device.as_ref().is_some_and(|name| *name != view.settings.device);
    let protects = view.inbound.verdict() == Some(Verdict::Protect);
    let came_by = if clear || !protects {
        policy(view, &mut passage);
        in_clear(view, world, clear, &mut passage)
    } else {
        let decision = view.inbound.decision.clone().unwrap_or_default();
        outer(world, &decision, &mut passage);
        sa(view, &decision, &mut passage);
        policy(view, &mut passage);
        passage.passes(Station::Guard, format!("lets in what comes by {}", view.settings.device));
        view.device
    };
    deliver(view, world, came_by, &mut passage)?;
    passage.say_whether_in_clear(&view.settings.device);
    Ok(passage)
}

/// The interface by which the protected packet comes.
fn outer(world: &dyn World, decision: &Decision, passage: &mut Passage) {
    let Some(sa) = &decision.sa else {
        passage.unknown(Station::Outer, "not known before there is an SA");
        return;
    };
    let address = sa.local.ip();
    if address.is_unspecified() {
        passage.passes(Station::Outer, format!("the peer {} sends it to this machine", sa.remote.ip()));
        return;
    }
    let Some(own) = world.own(address) else {
        passage.stops(Station::Outer, Packet::AddressGone { address });
        return;
    };
    match world.link_at(own.link) {
        Some(l) if !l.up || !l.carrier => {
            passage.stops(Station::Outer, Packet::LinkDown { name: shown(&l.name), carrier: l.up });
        }
        _ => {
            let name = world.name_of(own.link);
            passage.passes(
                Station::Outer,
                format!("the peer {} sends it to {address}, dev {name}", sa.remote.ip()),
            );
        }
    }
}

/// The inbound SA.
fn sa(view: &View, decision: &Decision, passage: &mut Passage) {
    let side = &view.inbound;
    match (&decision.sa, decision.drop) {
        // Other reasons are the policy's.
        (Some(sa), Some(DropReason::InStateExpired)) => {
            passage.stops(Station::Sa, of_reason(side, sa, DropReason::InStateExpired));
        }
        (Some(sa), _) => {
            passage.passes(Station::Sa, in_words(sa));
        }
        (None, Some(_)) => {
            passage.stops(Station::Sa, outside(side, &decision.others));
        }
        (None, None) if side.narrowed.is_some() => {
            let agreed = side.narrowed.clone().unwrap_or_default();
            passage.stops(Station::Sa, Packet::OutsideSa { child: side.child(), agreed });
        }
        (None, None) => {
            let down = side.down.clone().unwrap_or_default();
            passage
                .stops(Station::Sa, Packet::NoSa { child: side.child(), why: down.why, write: down.remedy });
        }
    }
    if let Some(sa) = &decision.sa {
        with_sa(sa, passage);
    }
}

/// The policy: of several SAs, that of the policy which covers the packet first may bring it.
fn policy(view: &View, passage: &mut Passage) {
    let side = &view.inbound;
    let decision = side.decision.as_ref();
    let refused = decision
        .and_then(|d| d.drop)
        .filter(|reason| matches!(reason, DropReason::InTmplMismatch | DropReason::InPolBlock));
    match (side.verdict(), refused, decision.and_then(|d| d.sa.as_ref())) {
        (None, ..) => no_policy(view, passage),
        (Some(Verdict::Discard), ..) => {
            passage.stops(Station::Policy, Packet::Discarded { child: side.child() });
        }
        (_, Some(reason), Some(sa)) => {
            passage.stops(Station::Policy, of_reason(side, sa, reason));
        }
        (Some(Verdict::Bypass), ..) => {
            passage.passes(Station::Policy, format!("{} lets it in in clear", described(side)));
        }
        (Some(Verdict::Protect), ..) => {
            passage.passes(Station::Policy, format!("{} lets it in from its SA", described(side)));
        }
    }
    passage.with("child", side.child());
}

/// A packet that does not come out of an SA. The interface by which it comes.
fn in_clear(view: &View, world: &mut dyn World, named: bool, passage: &mut Passage) -> Option<u32> {
    let side = &view.inbound;
    let index = view.question.device.as_ref();
    let index = index.and_then(|name| world.links().iter().find(|l| l.name == *name).map(|l| l.index));
    if named && side.is_guarded() && view.settings.nft {
        passage.stops(Station::Guard, Packet::Guarded { child: side.child(), arrives: true });
    } else {
        passage.passes(Station::Guard, "leaves it alone");
    }
    index.or(view.device.filter(|_| !named))
}

/// From the device to a host, or to this machine.
fn deliver(
    view: &View,
    world: &mut dyn World,
    came_by: Option<u32>,
    passage: &mut Passage,
) -> Result<(), IoError> {
    let packet = view.packet();
    let for_us = world.own(packet.dst).is_some();
    if let Some(link) = came_by.filter(|_| !for_us) {
        forward(view, world, link, passage);
    }
    let query = RouteQuery {
        to: packet.dst,
        from: Some(packet.src).filter(|_| came_by.is_some()),
        came_by,
        mark: 0,
        protocol: Some(packet.protocol),
        ports: if view.question.has_ports() { [packet.src_port, packet.dst_port] } else { [None; 2] },
    };
    match world.way(&query)? {
        RouteAnswer::Way { hop, table } if hop.local => {
            passage.passes(Station::Route, format!("table {table}: it is for this machine"));
        }
        RouteAnswer::Way { hop, table } => delivered(view, world, hop, table, passage),
        RouteAnswer::Refused(errno) if passage.obstacle.is_some() => {
            passage.unknown(Station::Route, format!("not asked: {}", refusal(errno)));
        }
        RouteAnswer::Refused(errno) => {
            let no_route =
                Packet::NoRoute { destination: packet.dst, why: refusal(errno), foreign: Vec::new() };
            let station = if world.lost_link(packet.dst).is_some() { Station::Link } else { Station::Route };
            passage.stops(station, world.lost_link(packet.dst).unwrap_or(no_route));
        }
    }
    Ok(())
}

/// To a host behind this machine.
fn delivered(view: &View, world: &dyn World, hop: NextHop, table: u32, passage: &mut Passage) {
    let name = world.name_of(hop.link);
    if Some(hop.link) == view.device {
        let (destination, why) = (view.question.dst, "its route leads back into the tunnel".to_owned());
        passage.stops(Station::Route, Packet::NoRoute { destination, why, foreign: Vec::new() });
        return;
    }
    let via = hop.gateway.map(|ip| format!(" via {ip}")).unwrap_or_default();
    passage.passes(Station::Route, format!("table {table}: dev {name}{via}"));
    passage.with("table", table).with("interface", &name);
    link(world, hop.link, format!("leaves by {name}"), passage);
    let largest = match hop.mtu {
        0 => world.link_at(hop.link).map_or(0, |l| l.mtu),
        mtu => mtu,
    };
    if let Some(length) = view.question.length.filter(|length| *length > largest && view.question.df) {
        passage.stops(Station::Size, Packet::TooBig { length, largest });
    }
}
