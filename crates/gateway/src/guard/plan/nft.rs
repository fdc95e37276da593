//! The text of the nft table.
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
//!       ip6 daddr vmap @out6 -> goto o6_N     return: guarded; goto steer: not guarded; accept, goto skip: nothing protects it
//! in:   mirrored: ip saddr vmap @in4 -> goto i4_N ...
//! ```
//!
//! What returns from `out` or `in` is guarded, and nothing else does; so the guard trusts no mark.
//!
//! The maps name every address, also those that no policy covers (`accept`). The kernel replaces rules at once, but not what
//! maps hold: while a table takes another's place, a packet may find none of the elements, of the old map or of the new one,
//! in all chains that it meets. It returns then as if it were guarded: it is steered, so that table 220 routes it whatever its mark
//! would have been, and dropped behind that; with an `accept` behind the maps it would leave in clear. What has come out of a
//! tunnel, and what is forwarded into one, goes on, or each replacement would cost tunnels packets. Not where tunnels meet
//! ([`Cut::meets`]): what comes out of one may have to go into another, and what claims to be from one may not come in clear.
//!
//! A list is written up to three times: for packets that show ports (or type and code), for those that do not (later fragments,
//! and what is too short), and for IPv6 packets whose protocol the kernel reads differently from the engine (behind extension
//! headers and AH) or not at all. What cannot be seen closes: a PROTECT or DISCARD that might cover the packet does, a
//! hole that might not does not. ICMP errors are asked what they quote, last ([`quoted`]). Fragments are told apart before anything is loaded from behind the IP header: the kernel would
//! take the data of a later one for ports.

use std::fmt::Write;

use ironswan_wire::selector::AddrRange;

use super::cut::{self, Cut, List, MOBILITY, Outcome, Ports, Step, WITH_PORTS, WITH_TYPES, shows_ports};
use super::{Settings, TABLE, quoted};

/// ESP and AH: what the engine gets without UDP, and takes no packet from that has not its ICV.
const OUTER: &str = "{ 50, 51 }";
/// Extension headers and AH: the kernel looks through AH and past whatever extension headers it knows; the engine does not look
/// through AH.
const BEHIND: [u8; 4] = [0, 43, 51, 60];
/// A later fragment of AH over IPv6, of which the kernel knows no upper protocol: AH is an extension header to it.
const AH_FRAGMENT: &str = "ip6 nexthdr 44 frag nexthdr 51";

/// Which way packets of a chain go.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Flow {
    Out,
    In,
}

/// What a chain may ask of its packets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum View {
    /// Protocol, and ports where the protocol has them.
    Ports,
    /// Protocol.
    Protocol,
    /// Addresses.
    Addresses,
}

/// What removes the table, whether it is there or not.
pub(super) fn removal() -> String {
    format!("table inet {TABLE} {{}}\ndelete table inet {TABLE}\n")
}

/// The name of a list's chain.
pub(super) fn chain(flow: Flow, ipv6: bool, list: usize) -> String {
    let flow = if flow == Flow::Out { 'o' } else { 'i' };
    format!("{flow}{}_{list}", if ipv6 { 6 } else { 4 })
}

/// The whole table. `own` are destinations that table 220 leads back from below a default route to the device.
pub(super) fn table(settings: &Settings, cuts: [&Cut; 2], own: [&[AddrRange]; 2]) -> String {
    let mut t = removal();
    let closes = |flow| {
        cuts.iter()
            .any(|cut| cut.lists.iter().any(|l| l.steps.iter().any(|s| outcome(s, flow) == Outcome::Guarded)))
    };
    let routed = cuts.iter().any(|cut| cut.lists.iter().any(|l| l.routed || !l.steps.is_empty()));
    if !routed {
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
        if !ranges.is_empty() {
            let elements: Vec<String> = ranges.iter().map(text).collect();
            let _ = writeln!(
                t,
                "\tset own{n} {{ type {kind}; flags interval; elements = {{ {list} }} }}",
                n = number(ipv6),
                kind = kind(ipv6),
                list = elements.join(", ")
            );
        }
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
                chains(&mut t, list, &chain(flow, ipv6, i), flow, ipv6);
            }
        }
    }
    let meets = cuts.iter().any(|cut| cut.meets());
    for (flow, name, field) in [(Flow::Out, "out", "daddr"), (Flow::In, "in", "saddr")] {
        let _ = writeln!(t, "\tchain {name} {{");
        for (cut, ipv6) in cuts.into_iter().zip([false, true]) {
            if !asked(cut, flow) {
                let _ = writeln!(t, "\t\tmeta nfproto ipv{} accept", number(ipv6));
                continue;
            }
            if ipv6 {
                // Neighbours are found between global addresses, too; what a router has forwarded has less than 255.
                t.push_str("\t\ticmpv6 type 133-137 ip6 hoplimit 255 accept\n");
            }
            let ip = if ipv6 { "ip6" } else { "ip" };
            let _ = writeln!(t, "\t\t{ip} {field} vmap @{name}{}", number(ipv6));
        }
        // No `accept` behind them: see the head of this file. Before packets are routed, in prerouting, there is no `oif`.
        if !meets {
            let tunnelled = if flow == Flow::Out { "meta oif != 0 iifname" } else { "oifname" };
            let _ = writeln!(t, "\t\t{tunnelled} \"{}\" accept", settings.device);
        }
        t.push_str("\t}\n");
    }
    base(&mut t, settings, own.map(|o| !o.is_empty()), closes(Flow::Out), closes(Flow::In));
    t.push_str("}\n");
    t
}

/// The chains that the kernel enters.
fn base(t: &mut String, settings: &Settings, own: [bool; 2], guards_out: bool, guards_in: bool) {
    let Settings { device, mark, steer_mark, ports: [ike, natt], .. } = settings;
    let outer = format!("meta mark & {mark:#x} == {mark:#x}");
    // What a VRF receives comes from it, once its own interface has been left; what it sends goes by it first.
    let vrf =
        |way: &str| if settings.vrf { format!("\t\tmeta {way}kind \"vrf\" accept\n") } else { String::new() };
    let (from_vrf, to_vrf) = (vrf("iif"), vrf("oif"));
    let udp = format!("{{ {ike}, {natt} }}");
    let _ = write!(
        t,
        "\tchain prerouting {{\n\t\ttype filter hook prerouting priority -90; policy accept;\n\
         \t\tiif \"lo\" accept\n\
         \t\tmeta mark & {steer_mark:#x} != 0 meta mark set meta mark & {:#x}\n{from_vrf}",
        !steer_mark
    );
    for (has, ipv6) in own.into_iter().zip([false, true]) {
        if has {
            // A default route to the device is reached by this mark only: the look-up of the way back to the source needs it.
            let ip = if ipv6 { "ip6" } else { "ip" };
            let _ = writeln!(t, "\t\tiifname \"{device}\" {ip} daddr @own{} goto steer", number(ipv6));
        }
    }
    let _ = write!(
        t,
        "\t\tjump out\n\t\tgoto steer\n\t}}\n\
         \tchain output {{\n\t\ttype route hook output priority -90; policy accept;\n\
         \t\t{outer} meta l4proto {OUTER} accept\n\
         \t\t{outer} {AH_FRAGMENT} accept\n\
         \t\t{outer} udp sport {udp} accept\n\
         {to_vrf}\
         \t\toif \"lo\" accept\n\
         \t\tmeta mark & {steer_mark:#x} != 0 meta mark set meta mark & {:#x}\n\
         \t\tjump out\n\t\tgoto steer\n\t}}\n",
        !steer_mark
    );
    if guards_out {
        let _ = write!(
            t,
            "\tchain outer {{\n\t\tmeta iif != 0 return\n\t\tmeta l4proto {OUTER} accept\n\
             \t\t{AH_FRAGMENT} accept\n\
             \t\tudp sport {udp} accept\n\t}}\n"
        );
        // What most packets are is asked first: those for the device, then the outer ones. These come from no interface:
        // somebody else's mark on a forwarded packet excuses nothing.
        // Before and after source NAT: neither the address that it takes away nor the one that it gives is a way around.
        for (name, priority) in [("guard_out", 0), ("guard_out_nat", 300)] {
            let _ = write!(
                t,
                "\tchain {name} {{\n\t\ttype filter hook postrouting priority {priority}; policy accept;\n\
                 \t\toifname \"{device}\" accept\n\
                 {from_vrf}\
                 \t\t{outer} jump outer\n\
                 \t\toif \"lo\" accept\n\
                 \t\tjump out\n\t\tcounter name \"out_clear\" drop\n\t}}\n"
            );
        }
    }
    if guards_in {
        let _ = write!(
            t,
            "\tchain guard_input {{\n\t\ttype filter hook input priority 0; policy accept;\n\
             \t\tmeta l4proto {OUTER} accept\n\
             \t\t{AH_FRAGMENT} accept\n\
             \t\tudp dport {udp} accept\n\
             {from_vrf}\
             \t\tiif \"lo\" accept\n\t\tiifname \"{device}\" accept\n\
             \t\tip6 nexthdr 44 frag nexthdr 17 frag frag-off != 0 accept\n"
        );
        // IPv6 puts fragments together behind this hook, IPv4 before it. Large IKE messages come in fragments; later ones say
        // nothing without the first, which is asked for its port.
        // ICMP errors about our own outer packets (the path MTU!) come from any router: what they quote is ESP, AH, or UDP from
        // our ports, 8 bytes behind the ICMP header's begin.
        for (errors, protocol, sport) in
            [("icmp type { 3, 11, 12 }", 136, 224), ("icmpv6 type { 1, 2, 3, 4 }", 112, 384)]
        {
            let _ = write!(
                t,
                "\t\t{errors} @th,{protocol},8 {OUTER} accept\n\
                 \t\t{errors} @th,{protocol},8 17 @th,{sport},16 {udp} accept\n"
            );
        }
        let _ = write!(
            t,
            "\t\tjump in\n\t\tcounter name \"in_clear\" drop\n\t}}\n\
             \tchain guard_forward {{\n\t\ttype filter hook forward priority 0; policy accept;\n\
             \t\tiifname \"{device}\" accept\n{from_vrf}\t\tjump in\n\
             \t\tiif \"lo\" accept\n\t\tcounter name \"in_clear\" drop\n\t}}\n"
        );
    }
}

fn number(ipv6: bool) -> u8 {
    if ipv6 { 6 } else { 4 }
}

fn kind(ipv6: bool) -> &'static str {
    if ipv6 { "ipv6_addr" } else { "ipv4_addr" }
}

/// As nft takes it.
fn text(range: &AddrRange) -> String {
    match range.prefix_len() {
        Some(_) => range.to_string(),
        None => format!("{}-{}", range.start(), range.end()),
    }
}

/// True when a family has a map for this direction.
fn asked(cut: &Cut, flow: Flow) -> bool {
    cut.lists.iter().any(|list| asks(list, flow))
}

/// True when a list has anything to say about packets of this direction.
pub(super) fn asks(list: &List, flow: Flow) -> bool {
    match flow {
        Flow::Out => true,
        Flow::In => list.steps.iter().any(|s| outcome(s, flow) == Outcome::Guarded),
    }
}

/// Inbound, what is not guarded passes.
pub(super) fn outcome(step: &Step, flow: Flow) -> Outcome {
    match (step.outcome, flow) {
        (Outcome::Steered, Flow::In) => Outcome::Passed,
        (outcome, _) => outcome,
    }
}

/// Protocols that rules ask for, as sets of the table: to add one that belongs to a rule, the kernel looks through all others.
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

/// Where each remote address leads: the whole family, so that an address without an element is only one that a replacement of
/// the table hides for an instant.
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

/// The chain of a list, and what it branches into.
fn chains(t: &mut String, list: &List, name: &str, flow: Flow, ipv6: bool) {
    if !asks(list, flow) {
        return;
    }
    let ports = list.steps.iter().any(Step::asks_ports);
    let protocols = ports || list.steps.iter().any(|s| s.protocol != 0);
    let mut head = Vec::new();
    let mut branches = Vec::new();
    let views = match (protocols, ports) {
        (false, _) => vec![],
        (true, false) if !ipv6 => vec![],
        (true, false) => vec![(View::Protocol, "p", "meta l4proto 0-255")],
        // What can be loaded is there; when the packet ends before, it cannot.
        (true, true) if !ipv6 => vec![(View::Ports, "s", "ip frag-off & 0x1fff == 0 @th,0,32 & 0 == 0")],
        (true, true) => vec![
            (View::Protocol, "p", "ip6 nexthdr 44 frag frag-off != 0 meta l4proto 0-255"),
            (View::Ports, "s", "@th,0,32 & 0 == 0"),
            (View::Protocol, "p", "meta l4proto 0-255"),
        ],
    };
    let last = match (protocols, ipv6, ports) {
        (true, true, _) => View::Addresses,
        (_, _, true) => View::Protocol,
        _ => View::Ports,
    };
    if last == View::Addresses {
        head.push(format!("ip6 nexthdr @behind goto {name}a"));
        head.push(format!("ip6 nexthdr 44 frag nexthdr @behind goto {name}a"));
        branches.push((View::Addresses, "a"));
    }
    for (view, letter, test) in views {
        head.push(format!("{test} goto {name}{letter}"));
        if !branches.contains(&(view, letter)) {
            branches.push((view, letter));
        }
    }
    let pass = pass(list, flow);
    // An error that quotes what is protected is told apart only when nothing else covers it.
    let quoted =
        if flow == Flow::Out && quoted::asks(list) { quoted::rules(list, ipv6, pass) } else { vec![] };
    let errors = match quoted.as_slice() {
        [] => None,
        // One question needs no chain: each is another object for the kernel, and there may be thousands of lists.
        [only, end] if *end == pass => Some(only.clone()),
        all => {
            one(t, &format!("{name}e"), all);
            Some(format!("goto {name}e"))
        }
    };
    let rules = |view| {
        let mut all = rules(list, flow, ipv6, view);
        if let Some(errors) = errors.as_ref().filter(|_| view != View::Addresses)
            && all.last().is_some_and(|last| last == pass)
        {
            all.insert(all.len() - 1, format!("{} {errors}", quoted::dispatch(ipv6)));
        }
        all
    };
    let body = if last == View::Addresses { vec![format!("goto {name}a")] } else { rules(last) };
    one(t, name, &[head, body].concat());
    for (view, letter) in branches {
        one(t, &format!("{name}{letter}"), &rules(view));
    }
}

/// What happens to a packet that no step covers.
fn pass(list: &List, flow: Flow) -> &'static str {
    if flow == Flow::Out && list.routed { "goto skip" } else { "accept" }
}

fn one(t: &mut String, name: &str, rules: &[String]) {
    let _ = writeln!(t, "\tchain {name} {{");
    for r in rules {
        let _ = writeln!(t, "\t\t{r}");
    }
    t.push_str("\t}\n");
}

/// The rules of a list for packets that show this much. Behind the last one a packet returns: guarded.
pub(super) fn rules(list: &List, flow: Flow, ipv6: bool, view: View) -> Vec<String> {
    let pass = pass(list, flow);
    if let ([only], Flow::In) = (list.steps.as_slice(), flow)
        && only.addresses_only()
        && only.outcome == Outcome::Guarded
        && only.local != AddrRange::any(ipv6)
    {
        // The usual tunnel: one rule says it, and there may be thousands of them.
        let ip = if ipv6 { "ip6" } else { "ip" };
        return vec![format!("{ip} daddr != {} {pass}", text(&only.local))];
    }
    let mut out = Vec::new();
    let mut decided = false;
    for (i, step) in list.steps.iter().enumerate() {
        let behind = list.steps.get(i + 1..).unwrap_or_default();
        let widened = match view {
            View::Ports => false,
            View::Protocol => step.asks_ports(),
            View::Addresses => !step.addresses_only(),
        };
        let then = match outcome(step, flow) {
            // It may be another's that is guarded.
            Outcome::Steered if widened && behind.iter().any(|s| s.outcome == Outcome::Guarded) => "return",
            Outcome::Guarded => "return",
            Outcome::Steered => "goto steer",
            Outcome::Passed => pass,
        };
        let address = if step.local == AddrRange::any(ipv6) {
            String::new()
        } else {
            let (ip, side) =
                (if ipv6 { "ip6" } else { "ip" }, if flow == Flow::Out { "saddr" } else { "daddr" });
            format!("{ip} {side} {} ", text(&step.local))
        };
        for condition in conditions(step, flow, view) {
            decided |= address.is_empty() && condition.is_empty();
            let space = if condition.is_empty() { "" } else { " " };
            out.push(format!("{address}{condition}{space}{then}"));
        }
        if decided {
            return out;
        }
    }
    out.push(pass.to_owned());
    out
}

/// What is asked besides the local address: none, one, or several of which each is enough. An empty text is no condition.
fn conditions(step: &Step, flow: Flow, view: View) -> Vec<String> {
    let closes = outcome(step, flow) != Outcome::Passed;
    let ranges =
        matches!(step.local_ports, Ports::Range(..)) || matches!(step.remote_ports, Ports::Range(..));
    let protocol = match step.protocol {
        0 => String::new(),
        p => format!("meta l4proto {p}"),
    };
    match view {
        View::Addresses if closes || step.addresses_only() => vec![String::new()],
        View::Addresses => vec![],
        View::Protocol if !ranges => vec![protocol],
        View::Protocol if !closes => vec![],
        View::Protocol if step.protocol != 0 => vec![protocol],
        View::Protocol => vec!["meta l4proto @with_either".to_owned()],
        View::Ports if ranges => on_ports(step, flow),
        View::Ports if !step.asks_ports() => vec![protocol],
        // OPAQUE, and the packet shows as much as ports would take: its protocol has none, or it is not covered.
        View::Ports if step.protocol == 0 => vec!["meta l4proto != @with_either".to_owned()],
        View::Ports if shows_ports(step.protocol) => vec![],
        View::Ports => vec![protocol],
    }
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

/// Port ranges, as each kind of protocol shows them.
fn on_ports(step: &Step, flow: Flow) -> Vec<String> {
    let ends = |p: Ports| match p {
        Ports::Range(a, b) => (a, b),
        Ports::Any | Ports::Opaque => (0, u16::MAX),
    };
    let (local, remote) = (ends(step.local_ports), ends(step.remote_ports));
    let both = (local.0.max(remote.0), local.1.min(remote.1));
    let wanted = |p: &u8| step.protocol == 0 || step.protocol == *p;
    let of = |set: &str| match step.protocol {
        0 => format!("meta l4proto @{set}"),
        one => format!("meta l4proto {one}"),
    };
    let mut out = Vec::new();
    if WITH_PORTS.iter().any(wanted) {
        let (source, destination) = if flow == Flow::Out { (local, remote) } else { (remote, local) };
        let mut c = of("with_ports");
        for (name, range) in [("sport", source), ("dport", destination)] {
            if range != (0, u16::MAX) {
                let _ = write!(c, " th {name} {}", span(range));
            }
        }
        out.push(c);
    }
    if WITH_TYPES.iter().any(wanted) && both.0 <= both.1 {
        out.push(format!("{} @th,0,16 {}", of("with_types"), span(both)));
    }
    // The low byte of a mobility header's port is 0. The byte is asked before the protocol, because nft 1.0.6 dies of listing
    // it after.
    let (first, last) = (u32::from(both.0).div_ceil(256), u32::from(both.1) / 256);
    if wanted(&MOBILITY) && first <= last {
        out.push(format!("@th,16,8 {} meta l4proto {MOBILITY}", span((first, last))));
    }
    out
}

fn span<T: PartialEq + std::fmt::Display>((first, last): (T, T)) -> String {
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}
