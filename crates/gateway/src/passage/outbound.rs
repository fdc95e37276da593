//! The stations of a packet from our side to the peer's.

use std::net::IpAddr;

use ironswan_io::Error as IoError;
use ironswan_io::route::{NextHop, RouteAnswer, RouteQuery};
use ironswan_io::sysctl::ReversePath;
use ironswan_ipsec::{Decision, DropReason, SaInfo};
use ironswan_keying::diagnosis::{Packet, SaLimit};

use super::view::{Side, View, selectors};
use super::world::{Ask, World, refusal};
use super::{Direction, Passage, Station, shown};
use crate::guard::plan::Verdict;

/// The table of local addresses.
const LOCAL_TABLE: u32 = 255;

/// Goes along the stations.
///
/// # Errors
/// The kernel gives no answer.
pub(super) fn walk(view: &View, world: &mut dyn World) -> Result<Passage, IoError> {
    let mut passage = Passage::new(Direction::Outbound);
    let came_by = arrival(view, world, &mut passage)?;
    if let Some(link) = came_by {
        forward(view, world, link, &mut passage);
    }
    let verdict = policy(view, &mut passage);
    let way = route(view, world, came_by, &mut passage)?;
    guard(view, way, &mut passage);
    if verdict == Some(Verdict::Protect) {
        let decision = view.outbound.decision.clone().unwrap_or_default();
        sa(view, &decision, &mut passage);
        size(view, &decision, way, &mut passage);
        outer(view, world, &decision, &mut passage)?;
    }
    passage.say_whether_in_clear(&view.settings.device);
    Ok(passage)
}

/// The interface by which the packet comes; `None` for a packet of this machine, or when nobody
/// knows.
fn arrival(view: &View, world: &mut dyn World, passage: &mut Passage) -> Result<Option<u32>, IoError> {
    let question = &view.question;
    if let Some(name) = &question.device {
        return Ok(match world.links().iter().find(|l| l.name == *name).map(|l| l.index) {
            Some(index) => {
                link(world, index, format!("comes by {}", shown(name)), passage);
                Some(index)
            }
            None => {
                passage.unknown(Station::Link, format!("there is no interface {}", shown(name)));
                None
            }
        });
    }
    if let Some(own) = world.own(question.src).copied() {
        passage.passes(
            Station::Link,
            format!("this machine sends it: {} is an address of {}", question.src, world.name_of(own.link)),
        );
        passage.with("interface", world.name_of(own.link));
        return Ok(None);
    }
    // The mark of outer packets keeps the look-up out of table 220.
    let back = world.way(&RouteQuery::new(question.src, None, view.settings.mark))?;
    let RouteAnswer::Way { hop, .. } = back else {
        if let Some(lost) = world.lost_link(question.src) {
            passage.stops(Station::Link, lost);
            return Ok(None);
        }
        let text =
            format!("no route leads to its source {}, so that nobody knows where it comes in", question.src);
        passage.unknown(Station::Link, text);
        return Ok(None);
    };
    link(world, hop.link, format!("{} is reached by {}", question.src, world.name_of(hop.link)), passage);
    Ok(Some(hop.link))
}

/// A link, which must be up.
pub(super) fn link(world: &dyn World, index: u32, text: String, passage: &mut Passage) {
    match world.link_at(index) {
        Some(l) if !l.up || !l.carrier => {
            passage.stops(Station::Link, Packet::LinkDown { name: shown(&l.name), carrier: l.up });
        }
        _ => {
            passage.passes(Station::Link, text + ", which is up");
        }
    }
    passage.with("interface", world.name_of(index));
}

/// The kernel's setting for packets that come by this interface.
pub(super) fn forward(view: &View, world: &dyn World, came_by: u32, passage: &mut Passage) {
    let (ipv6, name) = (view.question.src.is_ipv6(), world.name_of(came_by));
    if world.forwards_from(ipv6, &name) {
        passage.passes(Station::Forward, format!("the kernel forwards what comes by {name}"));
        return;
    }
    let setting = match ipv6 {
        true => "net.ipv6.conf.all.forwarding".to_owned(),
        false if world.forwards(false) => format!("net.ipv4.conf.{name}.forwarding"),
        false => "net.ipv4.ip_forward".to_owned(),
    };
    passage.stops(Station::Forward, Packet::NotForwarded { setting });
}

/// The policy; its verdict.
fn policy(view: &View, passage: &mut Passage) -> Option<Verdict> {
    let side = &view.outbound;
    let verdict = side.verdict();
    match verdict {
        None => no_policy(view, passage),
        Some(Verdict::Discard) => {
            passage.stops(Station::Policy, Packet::Discarded { child: side.child() });
        }
        Some(Verdict::Bypass) => {
            passage.passes(Station::Policy, format!("{} lets it pass in clear", described(side)));
        }
        Some(Verdict::Protect) => {
            let how = match (side.is_installed(), &side.narrowed) {
                (true, _) => "",
                (false, None) => "; not installed",
                (false, Some(_)) => "; installed is less",
            };
            passage.passes(Station::Policy, format!("{} protects it{how}", described(side)));
        }
    }
    passage.with("child", side.child());
    verdict
}

pub(super) fn no_policy(view: &View, passage: &mut Passage) {
    let nearest = view.nearest.as_ref().map(|(_, near)| Box::new(near.clone()));
    passage.stops(
        Station::Policy,
        Packet::NoPolicy { packet: view.question.to_string(), nearest, clear: false },
    );
}

/// The child and its selectors.
pub(super) fn described(side: &Side) -> String {
    let decided = side.decision.as_ref().and_then(|d| d.policy.as_ref()).map(|p| (p.local, p.remote));
    let selectors = decided.or(side.planned.as_ref().map(|p| (p.policy.local, p.policy.remote)));
    let selectors = selectors.map(|(local, remote)| format!(" ({local} === {remote})"));
    format!("{}{}", side.child(), selectors.unwrap_or_default())
}

/// The mark that nft sets before the packet is routed.
fn mark(view: &View) -> u32 {
    match view.outbound.verdict() {
        _ if !view.settings.nft => 0,
        Some(Verdict::Protect | Verdict::Discard) => view.settings.steer_mark,
        _ if view.skips => view.settings.mark,
        _ => 0,
    }
}

/// Rules and routes. The interface by which the packet leaves.
fn route(
    view: &View,
    world: &mut dyn World,
    came_by: Option<u32>,
    passage: &mut Passage,
) -> Result<Option<NextHop>, IoError> {
    let packet = view.packet();
    let query = RouteQuery {
        to: packet.dst,
        from: Some(packet.src),
        came_by,
        mark: mark(view),
        protocol: Some(packet.protocol),
        ports: if view.question.has_ports() { [packet.src_port, packet.dst_port] } else { [None; 2] },
    };
    // A source that this machine does not have and that comes from nowhere cannot be asked about.
    let foreign_source = came_by.is_none() && world.own(packet.src).is_none();
    let query = if foreign_source { RouteQuery { from: None, ..query } } else { query };
    match world.way(&query)? {
        RouteAnswer::Way { hop, table } => {
            led(view, world, hop, table, passage);
            passage.with("table", table).with("interface", world.name_of(hop.link));
            Ok(Some(hop))
        }
        RouteAnswer::Refused(errno) => {
            refused(view, world, &query, errno, passage)?;
            Ok(None)
        }
    }
}

/// The kernel has a route.
fn led(view: &View, world: &mut dyn World, hop: NextHop, table: u32, passage: &mut Passage) {
    let name = world.name_of(hop.link);
    let steered = matches!(view.outbound.verdict(), Some(Verdict::Protect | Verdict::Discard));
    let to_device = Some(hop.link) == view.device && !hop.local;
    if !steered || to_device {
        let via = hop.gateway.map(|ip| format!(" via {ip}")).unwrap_or_default();
        let mtu = if hop.mtu == 0 { String::new() } else { format!(", mtu {}", hop.mtu) };
        let clear = if to_device { "" } else { ", in clear" };
        passage.passes(Station::Route, format!("table {table}: dev {name}{via}{mtu}{clear}"));
        return;
    }
    let foreign = foreign(view, world);
    passage.stops(
        Station::Route,
        Packet::Elsewhere {
            interface: if hop.local || table == LOCAL_TABLE { String::new() } else { name },
            table,
            device: view.settings.device.clone(),
            guarded: view.outbound.is_guarded() && view.settings.nft,
            foreign,
        },
    );
}

fn foreign(view: &View, world: &mut dyn World) -> Vec<String> {
    world.foreign(&view.settings).iter().map(|line| shown(line)).collect()
}

/// The kernel refuses the packet: by the check of the way back, by a route, or for lack of one.
fn refused(
    view: &View,
    world: &mut dyn World,
    query: &RouteQuery,
    errno: i32,
    passage: &mut Passage,
) -> Result<(), IoError> {
    // An obstacle that was named already is the reason.
    let forwarding_is_off = passage.obstacle.as_ref().is_some_and(|(at, _)| *at == Station::Forward);
    if forwarding_is_off {
        passage.unknown(Station::Route, format!("not asked: {}", refusal(errno)));
        return Ok(());
    }
    if let Some(why) = reverse_path(world, query)? {
        passage.stops(Station::Route, why);
        return Ok(());
    }
    let waits = view.outbound.verdict() == Some(Verdict::Protect) && !view.outbound.is_installed();
    if waits {
        let text = format!("leads nowhere until an SA covers it ({})", refusal(errno));
        passage.unknown(Station::Route, text);
        return Ok(());
    }
    let foreign = foreign(view, world);
    passage.stops(Station::Route, Packet::NoRoute { destination: query.to, why: refusal(errno), foreign });
    Ok(())
}

/// The check of the way back, when it is the reason: the same packet of this machine has a route.
fn reverse_path(world: &mut dyn World, query: &RouteQuery) -> Result<Option<Packet>, IoError> {
    let (Some(came_by), Some(source)) = (query.came_by, query.from.filter(IpAddr::is_ipv4)) else {
        return Ok(None);
    };
    let interface = world.name_of(came_by);
    let check = world.reverse_path(&interface);
    if check == ReversePath::Off {
        return Ok(None);
    }
    let without = world.way(&RouteQuery { came_by: None, from: None, ..*query })?;
    if matches!(without, RouteAnswer::Refused(_)) {
        return Ok(None);
    }
    // The kernel asks without a mark, unless src_valid_mark is set.
    let back = match world.way(&RouteQuery::new(source, None, 0))? {
        RouteAnswer::Way { hop, .. } if hop.link == came_by => return Ok(None),
        RouteAnswer::Way { .. } if check == ReversePath::Loose => return Ok(None),
        RouteAnswer::Way { hop, .. } => world.name_of(hop.link),
        RouteAnswer::Refused(_) => String::new(),
    };
    Ok(Some(Packet::ReversePath { interface, source, back }))
}

/// The guard on the way out.
fn guard(view: &View, way: Option<NextHop>, passage: &mut Passage) {
    let side = &view.outbound;
    let text = match (&side.planned, view.settings.nft) {
        (_, false) => "off (guard = no in ironswan.conf)".to_owned(),
        (Some(p), true) if side.is_guarded() => {
            let chains = p.chains.join(", ");
            format!("lets it out by {} only (nft table inet ironswan: {chains})", view.settings.device)
        }
        (Some(_), true) => "leaves it alone (guard = no in the child)".to_owned(),
        (None, true) => "leaves it alone".to_owned(),
    };
    let elsewhere = way.is_some_and(|hop| Some(hop.link) != view.device) && side.is_guarded();
    if elsewhere && view.settings.nft {
        passage.stops(Station::Guard, Packet::Guarded { child: side.child(), arrives: false });
    } else {
        passage.passes(Station::Guard, text);
    }
}

/// The outbound SA.
fn sa(view: &View, decision: &Decision, passage: &mut Passage) {
    let side = &view.outbound;
    match (&decision.sa, decision.drop) {
        (Some(sa), None) => {
            passage.passes(Station::Sa, in_words(sa));
        }
        (Some(sa), Some(reason)) => {
            passage.stops(Station::Sa, of_reason(side, sa, reason));
        }
        (None, Some(DropReason::OutStateMismatch)) => {
            passage.stops(Station::Sa, outside(side, &decision.others));
        }
        (None, _) => {
            no_sa(side, passage);
        }
    }
    if let Some(sa) = &decision.sa {
        with_sa(sa, passage);
    }
}

/// There is no SA for the packet: the peer has narrowed what it covers, a trap asks for one, or the
/// tunnel is down.
fn no_sa(side: &Side, passage: &mut Passage) {
    if let Some(agreed) = side.narrowed.clone() {
        passage.stops(Station::Sa, Packet::OutsideSa { child: side.child(), agreed });
        return;
    }
    let down = side.down.clone().unwrap_or_default();
    if down.trap && down.why.is_empty() {
        passage.passes(Station::Sa, "none yet: the first packet asks for one, and waits for it (trap)");
        return;
    }
    passage.stops(Station::Sa, Packet::NoSa { child: side.child(), why: down.why, write: down.remedy });
}

/// An SA and its counters.
pub(super) fn in_words(sa: &SaInfo) -> String {
    let mode = if sa.mode == ironswan_wire::sadb::Mode::Transport { "transport" } else { "tunnel" };
    let udp = if sa.udp_encap { " in UDP" } else { "" };
    format!(
        "SPI {}, {mode} mode{udp}, between {} and {}; {} packets, {} bytes so far",
        sa.sa.spi,
        sa.local.ip(),
        sa.remote.ip(),
        sa.stats.packets,
        sa.stats.bytes
    )
}

pub(super) fn with_sa(sa: &SaInfo, passage: &mut Passage) {
    passage
        .with("spi", sa.sa.spi)
        .with("local", sa.local)
        .with("remote", sa.remote)
        .with("packets", sa.stats.packets)
        .with("bytes", sa.stats.bytes)
        .with("sequence", sa.sequence);
    for (name, limit) in
        [("limit-packets", sa.lifetime.hard_packets), ("limit-bytes", sa.lifetime.hard_bytes)]
    {
        if limit != 0 {
            passage.with(name, limit);
        }
    }
}

/// The SA that is there does not carry the packet.
pub(super) fn of_reason(side: &Side, sa: &SaInfo, reason: DropReason) -> Packet {
    let child = side.child();
    match reason {
        DropReason::OutTransport => {
            Packet::NotBetweenEnds { child, ends: format!("{} and {}", sa.local.ip(), sa.remote.ip()) }
        }
        DropReason::OutStateSeqError => Packet::Spent { child, limit: SaLimit::Sequence },
        DropReason::InTmplMismatch => Packet::OtherPolicy { child, spi: sa.sa.spi.to_string() },
        DropReason::InPolBlock => Packet::Discarded { child },
        _ => Packet::Spent { child, limit: SaLimit::Traffic },
    }
}

/// SAs of the policy do not cover the packet.
pub(super) fn outside(side: &Side, others: &[SaInfo]) -> Packet {
    let agreed = others.first().map(|sa| selectors(&sa.local_ts, &sa.remote_ts));
    Packet::OutsideSa { child: side.child(), agreed: agreed.unwrap_or_default() }
}

/// The length of the packet, and what fits.
fn size(view: &View, decision: &Decision, way: Option<NextHop>, passage: &mut Passage) {
    let Some(sa) = &decision.sa else {
        passage.unknown(Station::Size, "not known before there is an SA");
        return;
    };
    // The kernel's route has what fits; where somebody has changed it, the engine still knows.
    let of_route = way.filter(|hop| Some(hop.link) == view.device).map(|hop| hop.mtu).filter(|mtu| *mtu != 0);
    let of_engine = decision.inner_max.filter(|_| sa.options.copy_df);
    let Some(largest) = of_route.into_iter().chain(of_engine).min() else {
        passage.passes(Station::Size, "every length fits: outer packets may be fragmented");
        return;
    };
    match view.question.length {
        Some(length) if length > largest && view.question.df => {
            passage.stops(Station::Size, Packet::TooBig { length, largest });
        }
        Some(length) if length > largest => {
            passage.passes(Station::Size, format!("{length} bytes are fragmented; {largest} fit whole"));
        }
        _ => {
            passage.passes(Station::Size, format!("up to {largest} bytes fit, of a path of {}", sa.path_mtu));
        }
    }
    passage.with("largest", largest).with("path-mtu", sa.path_mtu);
}

/// The way of the protected packet to the peer.
fn outer(
    view: &View,
    world: &mut dyn World,
    decision: &Decision,
    passage: &mut Passage,
) -> Result<(), IoError> {
    let Some(sa) = &decision.sa else {
        passage.unknown(Station::Outer, "not known before there is an SA");
        return Ok(());
    };
    let (peer, local) = (sa.remote.ip(), Some(sa.local.ip()).filter(|ip| !ip.is_unspecified()));
    if let Some(address) = local.filter(|ip| world.own(*ip).is_none()) {
        passage.stops(Station::Outer, Packet::AddressGone { address });
        return Ok(());
    }
    match world.way(&RouteQuery::new(peer, local, view.settings.mark))? {
        RouteAnswer::Refused(errno) => {
            let no_way = Packet::NoWayToPeer { peer, why: refusal(errno) };
            passage.stops(Station::Outer, world.lost_link(peer).unwrap_or(no_way));
        }
        RouteAnswer::Way { hop, .. } => {
            let name = world.name_of(hop.link);
            match world.link_at(hop.link) {
                Some(l) if !l.up || !l.carrier => {
                    passage.stops(Station::Outer, Packet::LinkDown { name: shown(&l.name), carrier: l.up });
                }
                _ => {
                    let via = hop.gateway.map(|ip| format!(" via {ip}")).unwrap_or_default();
                    let port = match sa.udp_encap {
                        true => format!("UDP port {}", sa.remote.port()),
                        false => sa.protocol.to_string(),
                    };
                    let text = format!("{} > {peer} {port}, dev {name}{via}", sa.local.ip());
                    passage.passes(Station::Outer, text);
                }
            }
            passage.with("interface", name);
        }
    }
    Ok(())
}
