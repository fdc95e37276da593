//! Entries: the policies of one family and the holes in them, in the order in which the engine's
//! SPD would ask them.

use std::collections::{BTreeSet, HashMap};

use ironswan_wire::selector::{AddrRange, Precedence};

use super::super::{Negotiated, Policy, Verdict};
use super::ranges::{inside, joined, link_scope, strictly_inside};
use super::step::{Outcome, Step};

/// A child has holes for its own sides only up to this many: each of its policies may have one for
/// each side.
const MAX_HOLES: usize = 1 << 16;

/// The kinds of entries, in the order in which a list asks them.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Class {
    /// A policy that lies wholly in link scope.
    PolicyInLinkScope,
    /// A hole for link scope in all other policies.
    LinkScopeHole,
    /// Any other policy, or a hole in one for an own side of its child.
    Policy,
    /// Destinations of table 220 without a policy of the plan.
    RoutedOnly,
}

/// The order of entries: the smaller one is asked first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Rank {
    pub(super) class: Class,
    pub(super) precedence: Option<Precedence>,
    /// Of two policies with equal precedence the engine takes the older; here the one that closes
    /// comes first.
    pub(super) outcome: (Verdict, bool),
    pub(super) policy: usize,
    /// A hole comes before the policy in which it is one.
    pub(super) itself: bool,
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) rank: Rank,
    pub(super) remote: AddrRange,
    pub(super) step: Step,
    pub(super) policy: Option<usize>,
    pub(super) routed: bool,
    /// Of a policy that the configuration does not say, or a hole in one.
    pub(super) negotiated: bool,
}

impl Entry {
    /// A hole of a policy for an own side of its child.
    pub(super) fn is_own_hole(&self) -> bool {
        self.rank.class == Class::Policy && !self.rank.itself
    }
}

/// The own side of each child by name: what is inside a wider remote selector of the same child.
pub(in super::super) fn own_sides(policies: &[Policy]) -> HashMap<(&str, bool), Vec<AddrRange>> {
    let mut own: HashMap<(&str, bool), Vec<AddrRange>> = HashMap::new();
    for p in policies.iter().filter(|p| has_own_side(p)) {
        own.entry((&p.name, p.local.range.is_ipv6())).or_default().push(p.local.range);
    }
    for ranges in own.values_mut() {
        ranges.sort_unstable();
        ranges.dedup();
    }
    own
}

/// True when the local addresses lie inside wider remote ones: then packets from local to local are
/// not meant.
pub(in super::super) fn has_own_side(p: &Policy) -> bool {
    p.verdict != Verdict::Bypass && strictly_inside(&p.local.range, &p.remote.range)
}

/// True for a policy that lies wholly in link scope. Link scope is a hole in all other policies.
pub(in super::super) fn in_link_scope(p: &Policy) -> bool {
    let link = link_scope(p.local.range.is_ipv6());
    link.iter().any(|l| inside(&p.local.range, l) || inside(&p.remote.range, l))
}

/// All entries of one family, first asked first; and the children whose own sides are too many for
/// holes.
pub(super) fn entries(
    policies: &[Policy],
    from_peers: &Negotiated<'_>,
    ipv6: bool,
    default_is_routed: bool,
) -> (Vec<Entry>, Vec<String>) {
    let own = holes(policies, from_peers, ipv6);
    let mut out = Vec::with_capacity(policies.len());
    for (i, p) in policies.iter().enumerate().filter(|(_, p)| p.remote.range.is_ipv6() == ipv6) {
        let negotiated = from_peers.is_negotiated(i);
        let sides = own.get(&*p.name).filter(|own| !(own.loaded_only && negotiated));
        let sides = sides.map(|own| own.sides.as_slice()).unwrap_or_default();
        let routed =
            p.verdict != Verdict::Bypass && (default_is_routed || p.remote.range != AddrRange::any(ipv6));
        out.extend(with_own_holes(i, p, sides, routed, negotiated));
    }
    out.extend(link_scope_holes(policies, ipv6));
    out.extend(destinations_of_narrowed(from_peers.narrowed, ipv6, default_is_routed));
    out.sort_by_key(|e| e.rank);
    let few = own.iter().filter(|(_, own)| own.loaded_only || own.sides.is_empty());
    let mut without_holes: Vec<String> = few.map(|(name, _)| (*name).to_owned()).collect();
    without_holes.sort_unstable();
    (out, without_holes)
}

/// The entry of policy number `i`, and its holes for these own sides of its child. None when no
/// packet matches the policy.
fn with_own_holes(i: usize, p: &Policy, sides: &[AddrRange], routed: bool, negotiated: bool) -> Vec<Entry> {
    let Some(step) = Step::of(p) else { return Vec::new() };
    let remote = p.remote.range;
    let class = if in_link_scope(p) { Class::PolicyInLinkScope } else { Class::Policy };
    let outcome = (p.verdict, !p.guard);
    let rank = Rank { class, precedence: Some(p.precedence()), outcome, policy: i, itself: true };
    let mut out = Vec::new();
    if has_own_side(p) {
        out.extend(sides.iter().filter(|side| strictly_inside(side, &remote)).map(|side| Entry {
            rank: Rank { itself: false, ..rank },
            remote: *side,
            step: Step { outcome: Outcome::Passed, ..step },
            policy: None,
            routed: false,
            negotiated,
        }));
    }
    out.push(Entry { rank, remote, step, policy: Some(i), routed, negotiated });
    out
}

/// Holes for link scope, where a policy that is not wholly in link scope would close it.
fn link_scope_holes(policies: &[Policy], ipv6: bool) -> Vec<Entry> {
    let link = link_scope(ipv6);
    let any = AddrRange::any(ipv6);
    let (mut local, mut remote) = (BTreeSet::<&AddrRange>::new(), BTreeSet::<&AddrRange>::new());
    let closing = |p: &&Policy| {
        p.remote.range.is_ipv6() == ipv6
            && p.verdict != Verdict::Bypass
            && !in_link_scope(p)
            && Step::of(p).is_some()
    };
    for p in policies.iter().filter(closing) {
        local.extend(link.iter().filter(|l| l.intersect(&p.local.range).is_some()));
        remote.extend(link.iter().filter(|l| l.intersect(&p.remote.range).is_some()));
    }
    let local = local.into_iter().map(|l| passing(Class::LinkScopeHole, *l, any));
    local.chain(remote.into_iter().map(|r| passing(Class::LinkScopeHole, any, *r))).collect()
}

/// Destinations of narrowed policies, to which table 220 leads unmarked packets.
fn destinations_of_narrowed(narrowed: &[Policy], ipv6: bool, default_is_routed: bool) -> Vec<Entry> {
    let any = AddrRange::any(ipv6);
    let closing = narrowed.iter().filter(|p| p.verdict != Verdict::Bypass && Step::of(p).is_some());
    let ranges = closing.map(|p| p.remote.range);
    let routed = ranges.filter(|r| r.is_ipv6() == ipv6 && (default_is_routed || *r != any)).collect();
    let entry = |remote| Entry { routed: true, ..passing(Class::RoutedOnly, any, remote) };
    joined(routed).into_iter().map(entry).collect()
}

/// An entry that belongs to no policy and passes everything.
fn passing(class: Class, local: AddrRange, remote: AddrRange) -> Entry {
    let rank = Rank { class, precedence: None, outcome: (Verdict::Bypass, false), policy: 0, itself: false };
    Entry { rank, remote, step: Step::passing(local), policy: None, routed: false, negotiated: false }
}

/// Own sides that are holes in the policies of a child.
#[derive(Default)]
struct Own {
    /// Empty: there would be too many holes.
    sides: Vec<AddrRange>,
    /// There would be too many with those of negotiated policies, and in them.
    loaded_only: bool,
}

/// The own sides of one family by child.
fn holes<'a>(policies: &'a [Policy], from_peers: &Negotiated<'_>, ipv6: bool) -> HashMap<&'a str, Own> {
    let wide =
        || policies.iter().enumerate().filter(|(_, p)| p.local.range.is_ipv6() == ipv6 && has_own_side(p));
    let mut of_child: HashMap<&str, [(Vec<AddrRange>, usize); 2]> = HashMap::new();
    for (i, p) in wide() {
        let [loaded, all] = of_child.entry(&p.name).or_default();
        for (sides, count) in
            [(!from_peers.is_negotiated(i)).then_some(loaded), Some(all)].into_iter().flatten()
        {
            sides.push(p.local.range);
            *count += 1;
        }
    }
    let few = |(sides, count): (Vec<AddrRange>, usize)| {
        let sides: Vec<AddrRange> = sides.into_iter().collect::<BTreeSet<_>>().into_iter().collect();
        (sides.len().saturating_mul(count) <= MAX_HOLES).then_some(sides)
    };
    let of_child = of_child.into_iter().map(|(name, [loaded, all])| {
        let own = match few(all) {
            Some(sides) => Own { sides, loaded_only: false },
            None => Own { sides: few(loaded).unwrap_or_default(), loaded_only: true },
        };
        (name, own)
    });
    of_child.collect()
}
