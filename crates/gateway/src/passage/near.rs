//! The policy that comes nearest to covering a packet, and the selectors that do not fit.

use std::net::IpAddr;

use ironswan_keying::diagnosis::NearPolicy;
use ironswan_wire::selector::{PacketSelector, TrafficSelector};

use super::Direction;
use crate::guard::plan::{Policy, Verdict};

/// Weight of an address that does not fit. One address and everything else weigh less than both
/// addresses, of which nothing is near.
const ADDRESS: u32 = 8;
/// Weight of a protocol that does not fit.
const PROTOCOL: u32 = 3;
/// Weight of a port that does not fit.
const PORT: u32 = 1;

/// One side of a packet.
#[derive(Clone, Copy)]
struct Side {
    name: &'static str,
    ip: IpAddr,
    protocol: u8,
    port: Option<u16>,
}

/// Our side and the peer's side of a packet.
fn sides(packet: &PacketSelector, direction: Direction) -> [Side; 2] {
    let protocol = packet.protocol;
    let source = Side { name: "source", ip: packet.src, protocol, port: packet.src_port };
    let destination = Side { name: "destination", ip: packet.dst, protocol, port: packet.dst_port };
    match direction {
        Direction::Outbound => [source, destination],
        Direction::Inbound => [destination, source],
    }
}

/// True when a policy covers the packet in this direction.
pub(super) fn covers(p: &Policy, packet: &PacketSelector, direction: Direction) -> bool {
    let [ours, theirs] = sides(packet, direction);
    p.local.matches(ours.ip, ours.protocol, ours.port)
        && p.remote.matches(theirs.ip, theirs.protocol, theirs.port)
}

/// The nearest policy of either direction that protects, and its direction. Of several that are
/// equally near, the one that is asked first. Nobody would widen one that drops, or that passes in
/// clear, to let a packet through.
pub(super) fn nearest<'a>(
    policies: impl Iterator<Item = &'a Policy>,
    packet: &PacketSelector,
) -> Option<(Direction, NearPolicy)> {
    let mut best: Option<(u32, Direction, &Policy)> = None;
    let protects = |p: &&Policy| p.verdict == Verdict::Protect;
    for p in policies.filter(protects).filter(|p| p.local.range.is_ipv6() == packet.src.is_ipv6()) {
        for direction in [Direction::Outbound, Direction::Inbound] {
            let weight = misses(p, packet, direction).iter().map(|(weight, _)| weight).sum();
            let nearer = best.is_none_or(|(least, _, other)| {
                weight < least || weight == least && p.precedence() < other.precedence()
            });
            if weight < 2 * ADDRESS && nearer {
                best = Some((weight, direction, p));
            }
        }
    }
    let (_, direction, p) = best?;
    let misses = misses(p, packet, direction).into_iter().map(|(_, text)| text).collect();
    let selectors = format!("{} === {}", p.local, p.remote);
    Some((direction, NearPolicy { child: super::shown(&p.name), selectors, misses }))
}

/// Everything that does not fit, with its weight.
fn misses(p: &Policy, packet: &PacketSelector, direction: Direction) -> Vec<(u32, String)> {
    let mut out = Vec::new();
    let selectors = [(&p.local, "local_ts"), (&p.remote, "remote_ts")];
    for (side, (selector, key)) in sides(packet, direction).into_iter().zip(selectors) {
        if !selector.range.contains(side.ip) {
            out.push((ADDRESS, format!("its {} {} is not in {key} {}", side.name, side.ip, selector.range)));
        }
        if selector.protocol != 0 && selector.protocol != side.protocol {
            let text = format!("it is of protocol {}, and {key} has {}", side.protocol, selector.protocol);
            // Both sides usually name the same one.
            if !out.iter().any(|(weight, _)| *weight == PROTOCOL) {
                out.push((PROTOCOL, text));
            }
        } else if !port_fits(selector, &side) {
            out.push((PORT, port(selector, &side, key)));
        }
    }
    out
}

fn port_fits(selector: &TrafficSelector, side: &Side) -> bool {
    selector.any_port()
        || match side.port {
            None => selector.opaque_port(),
            Some(port) => selector.start_port <= port && port <= selector.end_port,
        }
}

fn port(selector: &TrafficSelector, side: &Side, key: &str) -> String {
    let has = match side.port {
        Some(port) => format!("its {} port is {port}", side.name),
        None => "it shows no ports".to_owned(),
    };
    let wants = match (selector.start_port, selector.end_port) {
        _ if selector.opaque_port() => "packets without ports".to_owned(),
        (first, last) if first == last => first.to_string(),
        (first, last) => format!("{first}-{last}"),
    };
    format!("{has}, and {key} has {wants}")
}
