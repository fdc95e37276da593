//! The chains of the lists: one rule or a few for each step, written for packets that show more or
//! less.

use std::fmt::Write;

use ironswan_wire::selector::AddrRange;

use super::words::{Flow, View, asks, outcome, text};
use crate::guard::plan::cut::{List, MOBILITY, Outcome, Ports, Step, WITH_PORTS, WITH_TYPES, shows_ports};
use crate::guard::plan::quoted;

/// The chain of a list, and the chains to which it branches by what a packet shows.
pub(super) fn chains(t: &mut String, list: &List, name: &str, flow: Flow, ipv6: bool) {
    if !asks(list, flow) {
        return;
    }
    let branches = branches(list, ipv6);
    let pass = pass(list, flow);
    let errors = error_rule(t, list, name, flow, ipv6, pass);
    let rules = |view| {
        let mut all = rules(list, flow, ipv6, view);
        if let Some(errors) = errors.as_ref().filter(|_| view != View::Addresses)
            && all.last().is_some_and(|last| last == pass)
        {
            all.insert(all.len() - 1, format!("{} {errors}", quoted::dispatch(ipv6)));
        }
        all
    };
    let mut head: Vec<String> =
        branches.tests.iter().map(|(letter, test)| format!("{test} goto {name}{letter}")).collect();
    if branches.rest == View::Addresses {
        head.push(format!("goto {name}a"));
    } else {
        head.extend(rules(branches.rest));
    }
    one(t, name, &head);
    for (view, letter) in branches.chains {
        one(t, &format!("{name}{letter}"), &rules(view));
    }
}

/// The branches of a list's chain.
struct Branches {
    /// Tests in the order in which they are made, each with the letter of the chain where it leads.
    tests: Vec<(&'static str, &'static str)>,
    /// Chains with the view that each may ask for, each once.
    chains: Vec<(View, &'static str)>,
    /// View that may be asked for packets that meet no test.
    rest: View,
}

fn branches(list: &List, ipv6: bool) -> Branches {
    let ports = list.steps.iter().any(Step::asks_ports);
    let protocols = ports || list.steps.iter().any(|s| s.protocol != 0);
    // A load from behind the IP header succeeds only where the packet is long enough.
    let tests = match (protocols, ports) {
        (false, _) => vec![],
        (true, false) if !ipv6 => vec![],
        (true, false) => vec![(View::Protocol, "p", "meta l4proto 0-255")],
        (true, true) if !ipv6 => vec![(View::Ports, "s", "ip frag-off & 0x1fff == 0 @th,0,32 & 0 == 0")],
        (true, true) => vec![
            (View::Protocol, "p", "ip6 nexthdr 44 frag frag-off != 0 meta l4proto 0-255"),
            (View::Ports, "s", "@th,0,32 & 0 == 0"),
            (View::Protocol, "p", "meta l4proto 0-255"),
        ],
    };
    let rest = match (protocols, ipv6, ports) {
        (true, true, _) => View::Addresses,
        (_, _, true) => View::Protocol,
        _ => View::Ports,
    };
    let hidden = [
        (View::Addresses, "a", "ip6 nexthdr @behind"),
        (View::Addresses, "a", "ip6 nexthdr 44 frag nexthdr @behind"),
    ];
    let hidden = hidden.into_iter().filter(|_| rest == View::Addresses);
    let mut branches = Branches { tests: Vec::new(), chains: Vec::new(), rest };
    for (view, letter, test) in hidden.chain(tests) {
        branches.tests.push((letter, test));
        if !branches.chains.contains(&(view, letter)) {
            branches.chains.push((view, letter));
        }
    }
    branches
}

/// The end of the rule for ICMP errors that quote a protected packet, and the chain that it needs.
/// Such an error is told apart only when no step covers the error itself. `None` where there is
/// nothing to ask.
fn error_rule(t: &mut String, list: &List, name: &str, flow: Flow, ipv6: bool, pass: &str) -> Option<String> {
    if flow != Flow::Out || !quoted::asks(list) {
        return None;
    }
    match quoted::rules(list, ipv6, pass).as_slice() {
        [] => None,
        // A single question needs no chain: each chain is another object for the kernel, and there
        // may be thousands of lists.
        [only, end] if *end == pass => Some(only.clone()),
        all => {
            one(t, &format!("{name}e"), all);
            Some(format!("goto {name}e"))
        }
    }
}

/// The verdict for a packet that no step covers.
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

/// The rules of a list for packets that show this much. Behind the last one a packet returns:
/// guarded.
fn rules(list: &List, flow: Flow, ipv6: bool, view: View) -> Vec<String> {
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
            // A step behind may cover the packet, and guards it.
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

/// The conditions of a step besides the local address. There may be none, one, or several of which
/// each is enough. An empty text means no condition.
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
        // OPAQUE, and the packet shows as much as ports would take: its protocol has none, or it is
        // not covered.
        View::Ports if step.protocol == 0 => vec!["meta l4proto != @with_either".to_owned()],
        View::Ports if shows_ports(step.protocol) => vec![],
        View::Ports => vec![protocol],
    }
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
    // The low byte of a mobility header's port is 0. The byte is asked before the protocol, because
    // nft 1.0.6 dies of listing it after.
    let (first, last) = (u32::from(both.0).div_ceil(256), u32::from(both.1) / 256);
    if wanted(&MOBILITY) && first <= last {
        out.push(format!("@th,16,8 {} meta l4proto {MOBILITY}", span((first, last))));
    }
    out
}

fn span<T: PartialEq + std::fmt::Display>((first, last): (T, T)) -> String {
    if first == last { first.to_string() } else { format!("{first}-{last}") }
}
