//! Makes the lists for the program at the ingress ([`ironswan_io::ingress`]) from the same cut as
//! the chains `in` of the table, so that the program decides alike when there is no table.
//!
//! The program sees packets before the kernel's NAT, and fragments before the kernel has put them
//! together. Of IPv6 extension headers it looks only through the fragment header. In all other
//! cases table and program decide alike (`model_tests` asks both).

use std::collections::HashSet;

use ironswan_io::ingress::{Family, Filter, List as Rows, Row};

use super::Settings;
use super::cut::{Cut, List, Outcome, Ports, Step, shows_ports};
use super::nft::{Flow, View, asks, outcome};

/// The lists of both families.
pub(super) fn filter(settings: &Settings, cuts: [&Cut; 2]) -> Filter {
    Filter { families: cuts.map(family), ports: settings.ports, ..Filter::default() }
}

fn family(cut: &Cut) -> Family {
    let mut family = Family::default();
    // Lists that have nothing to say about what comes in have no number here.
    let numbers: Vec<Option<usize>> = cut
        .lists
        .iter()
        .map(|list| {
            asks(list, Flow::In).then(|| {
                family.lists.push(rows(list));
                family.lists.len() - 1
            })
        })
        .collect();
    let number = |list: &usize| numbers.get(*list).copied().flatten();
    family.intervals =
        cut.intervals.iter().filter_map(|(range, list)| Some((*range, number(list)?))).collect();
    family
}

fn rows(list: &List) -> Rows {
    Rows {
        // Steps differ in what this view shows.
        ports: list.steps.iter().filter_map(|step| row(step, View::Ports)).collect(),
        protocol: each(list, |step| row(step, View::Protocol)),
        addresses: each(list, |step| row(step, View::Addresses)),
        fragments: each(list, fragment),
    }
}

/// The rows of all steps. A row is left out when an equal one stands before it: many steps differ
/// only in what this view does not show.
fn each(list: &List, of: impl Fn(&Step) -> Option<Row>) -> Vec<Row> {
    let mut seen = HashSet::new();
    list.steps.iter().filter_map(of).filter(|row| seen.insert(Row { drop: false, ..*row })).collect()
}

/// The row of a step for later fragments, which show no ports: a step that asks for ports of a
/// protocol covers the whole protocol.
///
/// A later fragment goes on where an earlier step may let the first fragment in, because both are
/// of one datagram. Any other later fragment is dropped: the kernel would put it together with
/// fragments that the engine has delivered, and does not ask where each came from. The table needs
/// no such row where connections are tracked, or for packets to this machine: there it sees whole
/// packets.
fn fragment(step: &Step) -> Option<Row> {
    let opaque = [step.local_ports, step.remote_ports].contains(&Ports::Opaque);
    if opaque || !step.asks_ports() {
        return row(step, View::Protocol);
    }
    let drop = outcome(step, Flow::In) == Outcome::Guarded;
    let protocol = Some(step.protocol).filter(|p| *p != 0);
    let shows = Some(true).filter(|_| protocol.is_none());
    Some(Row { local: step.local, protocol, shows, drop, ..Row::all(step.local.is_ipv6()) })
}

/// The row of a step for packets that show as much as `view` says; `None` when the step covers none
/// of them.
fn row(step: &Step, view: View) -> Option<Row> {
    let drop = outcome(step, Flow::In) == Outcome::Guarded;
    let row = Row { local: step.local, drop, ..Row::all(step.local.is_ipv6()) };
    let protocol = Some(step.protocol).filter(|p| *p != 0);
    let opaque = [step.local_ports, step.remote_ports].contains(&Ports::Opaque);
    match view {
        // A packet whose protocol is hidden may be of any: a step that drops covers it, a step that
        // lets packets through does not.
        View::Addresses => (drop || step.addresses_only()).then_some(row),
        View::Protocol if opaque || !step.asks_ports() => Some(Row { protocol, ..row }),
        View::Protocol => {
            drop.then_some(Row { protocol, shows: Some(true).filter(|_| protocol.is_none()), ..row })
        }
        View::Ports if !step.asks_ports() => Some(Row { protocol, ..row }),
        // The packet shows as much as ports would take: its protocol has none, or it is not
        // covered.
        View::Ports if opaque => match protocol {
            None => Some(Row { shows: Some(false), ..row }),
            Some(p) => (!shows_ports(p)).then_some(Row { protocol, ..row }),
        },
        View::Ports => Some(Row {
            protocol,
            shows: Some(true),
            source: ends(step.remote_ports),
            destination: ends(step.local_ports),
            ..row
        }),
    }
}

fn ends(ports: Ports) -> (u16, u16) {
    match ports {
        Ports::Range(first, last) => (first, last),
        Ports::Any | Ports::Opaque => (0, u16::MAX),
    }
}
