//! Destinations of table 220: routes that lead to the device, and routes that lead back to the
//! other tables below a wider one.

use std::collections::{BTreeMap, BTreeSet};

use ironswan_io::route::Destination;
use ironswan_wire::selector::AddrRange;

use super::cut::{has_own_side, inside, link_scope, own_sides, strictly_inside};
use super::{Policy, Settings, Verdict, Way};

/// Routes and what is wrong with them.
pub(super) struct Ways {
    pub(super) routes: BTreeMap<Destination, Way>,
    /// The destinations of each policy, then of what was narrowed.
    pub(super) of_policy: Vec<Vec<Destination>>,
    pub(super) warnings: Vec<String>,
}

/// How many warnings of one kind are worth reading.
const MAX_WARNINGS: usize = 20;
/// How many own sides are compared with all policies, for warnings alone.
const MAX_SIDES: usize = 100;

fn destinations(range: &AddrRange) -> impl Iterator<Item = Destination> {
    range.prefixes().into_iter().map(|(ip, prefix_len)| Destination { ip, prefix_len })
}

/// True when packets of the policy may not leave in clear.
fn closes(p: &Policy) -> bool {
    p.verdict != Verdict::Bypass
}

/// True when both selectors are of one family: other policies match no packet.
fn one_family(p: &Policy) -> bool {
    p.local.range.is_ipv6() == p.remote.range.is_ipv6()
}

/// True when the policy asks neither protocol nor ports.
fn plain(p: &Policy) -> bool {
    [&p.local, &p.remote].iter().all(|t| t.protocol == 0 && t.any_port())
}

/// Whether packets that pass by `hole` can be told from those of `p` by their destination alone.
fn exempts(hole: &Policy, p: &Policy) -> bool {
    inside(&p.local.range, &hole.local.range) && hole.precedence() <= p.precedence()
}

/// All destinations. `narrowed` policies get no warnings of their own: those of the policies from
/// which they were narrowed are enough.
pub(super) fn ways(settings: &Settings, policies: &[Policy], narrowed: &[Policy]) -> Ways {
    let mut routes = BTreeMap::new();
    let mut of_policy: Vec<Vec<Destination>> = Vec::with_capacity(policies.len());
    let mut warnings = Vec::new();
    for p in policies.iter().chain(narrowed) {
        let to: Vec<_> =
            if closes(p) && one_family(p) { destinations(&p.remote.range).collect() } else { Vec::new() };
        routes.extend(to.iter().map(|d| (*d, Way::Tunnel)));
        of_policy.push(to);
    }
    let closing: Vec<&Policy> = policies.iter().filter(|p| closes(p) && one_family(p)).collect();
    let narrowed = narrowed.iter().filter(|p| closes(p) && one_family(p));
    let all: Vec<&Policy> = closing.iter().copied().chain(narrowed).collect();
    let mut back = own_sides_and_link_scope(settings, &all);
    for (p, to) in policies.iter().zip(&mut of_policy).filter(|(p, _)| !closes(p) && one_family(p)) {
        match bypassed(settings, p, &closing) {
            Bypassed::AsPrefix => {
                back.insert(p.remote.range);
                to.extend(destinations(&p.remote.range));
            }
            Bypassed::Not(warning) => warnings.push(warning),
            Bypassed::Elsewhere => {}
        }
    }
    for d in back.iter().flat_map(destinations) {
        routes.entry(d).or_insert(Way::Throw);
    }
    closing.iter().for_each(|p| warnings.extend(warnings_about(settings, p)));
    other_own_sides(policies, &closing, &mut warnings);
    cap(&mut warnings);
    Ways { routes, of_policy, warnings }
}

/// Addresses that lead back to the other tables: own sides, and link scope inside wider remote
/// addresses.
fn own_sides_and_link_scope(settings: &Settings, closing: &[&Policy]) -> BTreeSet<AddrRange> {
    let mut back: BTreeSet<AddrRange> =
        closing.iter().filter(|p| has_own_side(p)).map(|p| p.local.range).collect();
    for ipv6 in [false, true] {
        for link in link_scope(ipv6) {
            // With nft a default route is reached by marked packets only, and link scope gets no
            // mark.
            let covers = |p: &&Policy| {
                strictly_inside(&link, &p.remote.range)
                    && (!settings.nft || p.remote.range != AddrRange::any(ipv6))
            };
            if closing.iter().copied().any(|p| covers(&p)) {
                back.insert(link);
            }
        }
    }
    back
}

/// The way of packets that a BYPASS policy lets pass.
enum Bypassed {
    /// A throw route for its whole remote addresses.
    AsPrefix,
    /// No route: no wider policy covers them, or the nft table tells them apart.
    Elsewhere,
    /// The packets cannot pass; the warning says why.
    Not(String),
}

fn bypassed(settings: &Settings, p: &Policy, closing: &[&Policy]) -> Bypassed {
    let range = &p.remote.range;
    let wider: Vec<&&Policy> = closing
        .iter()
        .filter(|c| c.remote.range.intersect(range).is_some() && !strictly_inside(&c.remote.range, range))
        .collect();
    if wider.is_empty() {
        return Bypassed::Elsewhere;
    }
    let whole = plain(p) && wider.iter().all(|c| exempts(p, c));
    if whole && wider.iter().any(|c| strictly_inside(range, &c.remote.range)) {
        return Bypassed::AsPrefix;
    }
    if settings.nft {
        return Bypassed::Elsewhere;
    }
    Bypassed::Not(format!(
        "{}: without nft only whole destinations can be let past the tunnel; {} === {} goes to {} and is dropped there \
         (guard = yes in ironswan.conf lets it pass)",
        p.name, p.local, p.remote, settings.device
    ))
}

/// Warnings about one policy that closes.
fn warnings_about(settings: &Settings, p: &Policy) -> Vec<String> {
    let mut warnings = Vec::new();
    if !settings.nft && !plain(p) {
        warnings.push(format!(
            "{}: without nft protocols and ports cannot be told apart; everything to {} goes to {} and what no policy covers \
             is dropped there (guard = yes in ironswan.conf lets it pass)",
            p.name, p.remote.range, settings.device
        ));
    }
    let any = AddrRange::any(p.local.range.is_ipv6());
    if p.verdict == Verdict::Protect && (p.local.range, p.remote.range) == (any, any) {
        warnings.push(format!(
            "{}: protects everything from everywhere, packets to this machine's own networks as well; name its own networks \
             in local_ts",
            p.name
        ));
    }
    warnings
}

/// Networks that one child calls its own and another one sends away.
fn other_own_sides(policies: &[Policy], closing: &[&Policy], warnings: &mut Vec<String>) {
    let own = own_sides(policies);
    let of = |name: &str, side: &AddrRange| {
        own.get(&(name, side.is_ipv6())).is_some_and(|sides| sides.binary_search(side).is_ok())
    };
    let mut sides: BTreeMap<AddrRange, &str> = BTreeMap::new();
    for p in closing.iter().filter(|p| has_own_side(p)) {
        sides.entry(p.local.range).or_insert(&p.name);
    }
    for p in closing.iter().filter(|p| has_own_side(p)) {
        for (side, name) in sides.iter().take(MAX_SIDES) {
            let other = strictly_inside(side, &p.remote.range) && !inside(side, &p.local.range);
            if other && !of(&p.name, side) {
                warnings.push(format!(
                    "{}: protects {side}, too, which is {name}'s own side: {} cannot reach it; a child with mode = pass \
                     for the two lets them talk in clear",
                    p.name, p.local.range
                ));
            }
            if warnings.len() > 4 * MAX_WARNINGS {
                return;
            }
        }
    }
}

fn cap(warnings: &mut Vec<String>) {
    if let Some(more) = warnings.len().checked_sub(MAX_WARNINGS).filter(|n| *n > 0) {
        warnings.truncate(MAX_WARNINGS);
        warnings.push(format!("steering: {more} more warnings of these kinds"));
    }
}
