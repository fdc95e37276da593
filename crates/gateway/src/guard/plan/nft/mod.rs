//! The text of the nft table: here the table itself, its maps and sets; in `base` the chains that
//! the kernel enters; in `lists` the chains of the lists.
//!
//! ```text
//! base chains        prerouting, output          postrouting (twice)       input, forward
//!                         |                            |                        |
//!                       jump out                    jump out                 jump in
//!                    accept | return             accept | return         accept | return
//!                             |                           |                        |
//!                         goto steer                 count, drop              count, drop
//!
//! out:  ip daddr vmap @out4 -> goto o4_N: the steps of list N, first asked first
//!       ip6 daddr vmap @out6 -> goto o6_N
//!       steps: return           the packet is guarded
//!              goto steer       it is not guarded
//!              accept, goto skip  nothing protects it
//! in:   mirrored: ip saddr vmap @in4 -> goto i4_N ...
//! ```
//!
//! A packet for which `out` or `in` returns is guarded, and no other packet is; so the guard trusts
//! no mark.
//!
//! The maps name every address, also addresses that no policy covers (`accept`). The kernel
//! replaces the rules of a table at once, but not the elements of maps. While one table replaces
//! another, a packet may find no element, neither of the old map nor of the new one, in all chains
//! that it meets. Then the chain returns, as for a guarded packet: the packet is steered, table 220
//! routes it whatever its mark would have been, and postrouting drops it. With an `accept` behind
//! the maps it would leave in clear.
//!
//! Packets that have come out of a tunnel, and packets that are forwarded into one, go on at that
//! moment; otherwise each replacement would cost tunnels packets. The exception is where tunnels
//! meet ([`Cut::meets`]): a packet out of one may have to go into another, and a packet that claims
//! to be from one may not come in clear.
//!
//! A list is written up to three times:
//! * for packets that show ports, or type and code;
//! * for packets that show none: later fragments, and packets that are too short;
//! * for IPv6 packets whose protocol the kernel reads differently from the engine (behind extension
//!   headers and AH), or not at all.
//!
//! A hidden part counts against the packet: a PROTECT or DISCARD policy that might cover it does,
//! and a hole that might not cover it does not. ICMP errors are asked for the packet that they
//! quote, last ([`quoted`]). Fragments are told apart before anything behind the IP header is
//! loaded, because the kernel would take the data of a later fragment for ports.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `words` | directions of packets, views of a packet, and addresses as nft writes them |
//! | `base` | the chains that the kernel enters |
//! | `lists` | the chains of the lists |

mod base;

mod lists;
mod words;

use std::fmt::Write;

use ironswan_wire::selector::AddrRange;

use super::cut::{self, Cut, MOBILITY, Outcome, WITH_PORTS, WITH_TYPES};
use super::{Settings, TABLE, quoted};
pub(super) use words::{Flow, View, asks, outcome};
use words::{kind, number, text};

/// Extension headers and AH: the kernel looks through AH and past whatever extension headers it
/// knows; the engine does not look through AH.
const BEHIND: [u8; 4] = [0, 43, 51, 60];

/// The text that removes the table, whether it stands or not.
pub(super) fn removal() -> String {
    format!("table inet {TABLE} {{}}\ndelete table inet {TABLE}\n")
}

/// The name of a list's chain.
pub(super) fn chain(flow: Flow, ipv6: bool, list: usize) -> String {
    let flow = if flow == Flow::Out { 'o' } else { 'i' };
    format!("{flow}{}_{list}", if ipv6 { 6 } else { 4 })
}

/// The whole table. `own` are destinations that table 220 leads back from below a default route to
/// the device.
pub(super) fn table(settings: &Settings, cuts: [&Cut; 2], own: [&[AddrRange]; 2]) -> String {
    let mut t = removal();
    if !cuts.iter().any(|cut| cut.lists.iter().any(|l| l.routed || !l.steps.is_empty())) {
        return t;
    }
    let _ = writeln!(t, "table inet {TABLE} {{");
    t.push_str("\tcounter out_clear {}\n\tcounter in_clear {}\n");
    for (cut, ipv6) in cuts.into_iter().zip([false, true]) {
        for flow in [Flow::Out, Flow::In] {
            map(&mut t, cut, flow, ipv6);
        }
    }
    for (ranges, ipv6) in own.into_iter().zip([false, true]) {
        own_set(&mut t, ranges, ipv6);
    }
    if cuts[0].lists.iter().any(quoted::asks) {
        let _ = writeln!(t, "\t{}", quoted::ERRORS);
    }
    if cuts.iter().any(|cut| cut.lists.iter().any(|l| l.steps.iter().any(|s| !s.addresses_only()))) {
        sets(&mut t);
    }
    let Settings { mark, steer_mark, .. } = settings;
    let _ = writeln!(t, "\tchain steer {{ meta mark set meta mark | {steer_mark:#x} accept; }}");
    let _ = writeln!(t, "\tchain skip {{ meta mark set meta mark | {mark:#x} accept; }}");
    for (cut, ipv6) in cuts.into_iter().zip([false, true]) {
        for (i, list) in cut.lists.iter().enumerate() {
            for flow in [Flow::Out, Flow::In] {
                lists::chains(&mut t, list, &chain(flow, ipv6, i), flow, ipv6);
            }
        }
    }
    for flow in [Flow::Out, Flow::In] {
        lookup(&mut t, settings, cuts, flow);
    }
    let closes = |flow| {
        cuts.iter()
            .any(|cut| cut.lists.iter().any(|l| l.steps.iter().any(|s| outcome(s, flow) == Outcome::Guarded)))
    };
    base::chains(&mut t, settings, own.map(|o| !o.is_empty()), closes(Flow::Out), closes(Flow::In));
    t.push_str("}\n");
    t
}

/// The set of own destinations of one family, where there are any.
fn own_set(t: &mut String, ranges: &[AddrRange], ipv6: bool) {
    if ranges.is_empty() {
        return;
    }
    let elements: Vec<String> = ranges.iter().map(text).collect();
    let _ = writeln!(
        t,
        "\tset own{n} {{ type {kind}; flags interval; elements = {{ {list} }} }}",
        n = number(ipv6),
        kind = kind(ipv6),
        list = elements.join(", ")
    );
}

/// The chain `out` or `in`: looks the remote address up in the map of its family.
fn lookup(t: &mut String, settings: &Settings, cuts: [&Cut; 2], flow: Flow) {
    let (name, field) = if flow == Flow::Out { ("out", "daddr") } else { ("in", "saddr") };
    let _ = writeln!(t, "\tchain {name} {{");
    for (cut, ipv6) in cuts.into_iter().zip([false, true]) {
        if !asked(cut, flow) {
            let _ = writeln!(t, "\t\tmeta nfproto ipv{} accept", number(ipv6));
            continue;
        }
        if ipv6 {
            // Neighbour discovery also runs between global addresses. A message that a router has
            // forwarded has a hop limit below 255.
            t.push_str("\t\ticmpv6 type 133-137 ip6 hoplimit 255 accept\n");
        }
        let ip = if ipv6 { "ip6" } else { "ip" };
        let _ = writeln!(t, "\t\t{ip} {field} vmap @{name}{}", number(ipv6));
    }
    // No `accept` for other packets behind the maps: see the head of this file. In prerouting,
    // before routing, there is no `oif`.
    if !cuts.iter().any(|cut| cut.meets()) {
        let tunnelled = if flow == Flow::Out { "meta oif != 0 iifname" } else { "oifname" };
        let _ = writeln!(t, "\t\t{tunnelled} \"{}\" accept", settings.device);
    }
    t.push_str("\t}\n");
}

/// True when a family has a map for this direction.
fn asked(cut: &Cut, flow: Flow) -> bool {
    cut.lists.iter().any(|list| asks(list, flow))
}

/// Protocols that rules ask for, as sets of the table: to add one that belongs to a rule, the
/// kernel looks through all others.
fn sets(t: &mut String) {
    for (name, protocols) in [
        ("behind", &BEHIND[..]),
        ("with_ports", &WITH_PORTS[..]),
        ("with_types", &WITH_TYPES[..]),
        ("with_either", &all_with_ports()[..]),
    ] {
        let _ = writeln!(t, "\tset {name} {{ type inet_proto; elements = {{ {} }}; }}", list(protocols));
    }
}

/// Writes the map from remote addresses to chains. The map has elements for the whole address
/// family, so that a packet finds no element only for the moment of a replacement.
fn map(t: &mut String, cut: &Cut, flow: Flow, ipv6: bool) {
    if !asked(cut, flow) {
        return;
    }
    let name = if flow == Flow::Out { "out" } else { "in" };
    let (n, kind) = (number(ipv6), kind(ipv6));
    let _ = write!(t, "\tmap {name}{n} {{ type {kind} : verdict; flags interval; elements = {{");
    let mut comma = "";
    let mut element = |range: &AddrRange, verdict: std::fmt::Arguments<'_>| {
        let _ = write!(t, "{comma}\n\t\t{} : {verdict}", text(range));
        comma = ",";
    };
    let mut left = None;
    for (range, list) in &cut.intervals {
        if !cut.lists.get(*list).is_some_and(|l| asks(l, flow)) {
            continue;
        }
        if let Some(gap) = cut::between(left, Some(range), ipv6) {
            element(&gap, format_args!("accept"));
        }
        element(range, format_args!("goto {}", chain(flow, ipv6, *list)));
        left = Some(range);
    }
    if let Some(gap) = cut::between(left, None, ipv6) {
        element(&gap, format_args!("accept"));
    }
    t.push_str("\n\t} }\n");
}

fn all_with_ports() -> Vec<u8> {
    let mut all: Vec<u8> = WITH_PORTS.iter().chain(&WITH_TYPES).copied().chain([MOBILITY]).collect();
    all.sort_unstable();
    all
}

fn list(protocols: &[u8]) -> String {
    let all: Vec<String> = protocols.iter().map(u8::to_string).collect();
    all.join(", ")
}
