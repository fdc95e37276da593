//! Decorrelation in one dimension: overlapping policies become disjoint intervals of the remote address, each with the list of
//! what is left to ask once the remote address is known.
//!
//! ```text
//! policies, first matched first      intervals of the remote address      lists
//! BYPASS   10.1/16 == 10.2.3/24      10.2.0.0  - 10.2.2.255    --+
//! PROTECT  10.1/16 == 10.2/16        10.2.3.0  - 10.2.3.255    --|->  pass 10.1/16; (protect 10.1/16: never asked)
//! PROTECT  10.1/16 == 10.3/16        10.2.4.0  - 10.3.255.255  --+->  protect 10.1/16
//! ```
//!
//! Equal lists are one list, and neighbours with one list are one interval, so that thousands of tunnels from one local network
//! cost one list. Besides the policies there are holes, for what no tunnel ever carries unless a policy names it: link scope,
//! and the own side of a child whose local selector lies inside its remote one.
//!
//! Policies that overlap each other in ever other ways have lists whose sum grows with their square, and peers choose selectors.
//! So the sum is bounded, and the work. Where it would be exceeded, first what peers negotiated becomes one policy for all of its
//! addresses that hang together ([`coarse::gathered`]): what is loaded stays as it is, and its holes stay open. When that is not enough,
//! everything between the addresses of an interval is closed whose list is too long ([`coarse::Active::closed`]).

use std::collections::{BTreeSet, HashMap, HashSet};
use std::net::IpAddr;

use ironswan_wire::selector::{AddrRange, Precedence, TrafficSelector};

use super::{Brought, Policy, Verdict};
use coarse::{Active, gathered};

mod coarse;

/// What happens to a packet that a step covers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) enum Outcome {
    /// Into the tunnel; elsewhere it is dropped.
    Guarded,
    /// Into the tunnel; the guard looks away.
    Steered,
    /// As if there were no policy.
    Passed,
}

/// A policy without its remote addresses.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) struct Step {
    pub(super) local: AddrRange,
    /// 0 for any.
    pub(super) protocol: u8,
    pub(super) local_ports: Ports,
    pub(super) remote_ports: Ports,
    pub(super) outcome: Outcome,
}

/// Ports of one side.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub(super) enum Ports {
    Any,
    /// Only what shows no ports.
    Opaque,
    /// First and last.
    Range(u16, u16),
}

pub(super) use ironswan_io::ingress::{MOBILITY, WITH_PORTS, WITH_TYPES};

/// True when packets of this protocol show something to compare with port ranges.
pub(super) fn shows_ports(protocol: u8) -> bool {
    WITH_PORTS.contains(&protocol) || WITH_TYPES.contains(&protocol) || protocol == MOBILITY
}

impl Ports {
    fn of(t: &TrafficSelector) -> Self {
        if t.any_port() {
            Self::Any
        } else if t.start_port > t.end_port {
            // 65535-0 is OPAQUE; any other inverted range matches nothing that shows ports either.
            Self::Opaque
        } else {
            Self::Range(t.start_port, t.end_port)
        }
    }
}

impl Step {
    /// `None` when no packet can be covered.
    fn of(policy: &Policy) -> Option<Self> {
        let (l, r) = (&policy.local, &policy.remote);
        if l.range.is_ipv6() != r.range.is_ipv6() {
            return None;
        }
        let protocol = match (l.protocol, r.protocol) {
            (0, p) | (p, 0) => p,
            (a, b) if a == b => a,
            _ => return None,
        };
        let (local_ports, remote_ports) = (Ports::of(l), Ports::of(r));
        let ranges = [local_ports, remote_ports].iter().any(|p| matches!(p, Ports::Range(..)));
        let opaque = [local_ports, remote_ports].contains(&Ports::Opaque);
        if ranges && (opaque || protocol != 0 && !shows_ports(protocol)) {
            return None;
        }
        let outcome = match policy.verdict {
            Verdict::Bypass => Outcome::Passed,
            Verdict::Protect | Verdict::Discard if policy.guard => Outcome::Guarded,
            Verdict::Protect | Verdict::Discard => Outcome::Steered,
        };
        Some(Self { local: l.range, protocol, local_ports, remote_ports, outcome })
    }

    fn passing(local: AddrRange) -> Self {
        let (local_ports, remote_ports) = (Ports::Any, Ports::Any);
        Self { local, protocol: 0, local_ports, remote_ports, outcome: Outcome::Passed }
    }

    /// True when ports are asked for.
    pub(super) fn asks_ports(&self) -> bool {
        self.local_ports != Ports::Any || self.remote_ports != Ports::Any
    }

    /// True when nothing but the local address is asked for.
    pub(super) fn addresses_only(&self) -> bool {
        self.protocol == 0 && !self.asks_ports()
    }
}

/// What is never protected because a policy happens to cover it, only because one lies wholly inside: it stays on the link.
pub(super) fn link_scope(ipv6: bool) -> Vec<AddrRange> {
    let of = |a: IpAddr, len| AddrRange::prefix(a, len);
    let found = if ipv6 {
        vec![of([0xfe80, 0, 0, 0, 0, 0, 0, 0].into(), 10), of([0xff00, 0, 0, 0, 0, 0, 0, 0].into(), 8)]
    } else {
        vec![
            of([169, 254, 0, 0].into(), 16),
            of([224, 0, 0, 0].into(), 4),
            of([255, 255, 255, 255].into(), 32),
        ]
    };
    found.into_iter().flatten().collect()
}

pub(super) fn inside(inner: &AddrRange, outer: &AddrRange) -> bool {
    outer.contains(inner.start()) && outer.contains(inner.end())
}

pub(super) fn strictly_inside(inner: &AddrRange, outer: &AddrRange) -> bool {
    inside(inner, outer) && inner != outer
}

/// Ranges of one family, joined where they overlap, in order.
pub(super) fn joined(mut ranges: Vec<AddrRange>) -> Vec<AddrRange> {
    ranges.sort_unstable();
    let mut out: Vec<AddrRange> = Vec::new();
    for range in ranges {
        match out.last_mut() {
            Some(last) if last.contains(range.start()) => {
                *last = AddrRange::new(last.start(), last.end().max(range.end())).unwrap_or(*last);
            }
            _ => out.push(range),
        }
    }
    out
}

fn bits(a: IpAddr) -> u128 {
    match a {
        IpAddr::V4(a) => u32::from(a).into(),
        IpAddr::V6(a) => a.into(),
    }
}

fn address(v: u128, ipv6: bool) -> IpAddr {
    // Only values that came from an address of this family, or lie between two of them, get here.
    if ipv6 { IpAddr::V6(v.into()) } else { IpAddr::V4((v as u32).into()) }
}

/// The addresses of a family between two ranges; `None` for a range: from its first address, to its last.
pub(super) fn between(left: Option<&AddrRange>, right: Option<&AddrRange>, ipv6: bool) -> Option<AddrRange> {
    let any = AddrRange::any(ipv6);
    let first = left.map_or(Some(bits(any.start())), |l| bits(l.end()).checked_add(1))?;
    let last = right.map_or(Some(bits(any.end())), |r| bits(r.start()).checked_sub(1))?;
    // Behind the last address of IPv4 begins no other.
    if first > last {
        return None;
    }
    AddrRange::new(address(first, ipv6), address(last, ipv6))
}

/// A list of steps, first asked first, and whether table 220 takes what they leave over.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(super) struct List {
    /// Unmarked packets to these destinations are led to the device by table 220: what passes must be marked.
    pub(super) routed: bool,
    pub(super) steps: Vec<Step>,
}

/// One family's policies, cut.
#[derive(Clone, Debug, Default)]
pub(super) struct Cut {
    /// Disjoint, in order; where no policy reaches there is none. The number is of the list.
    pub(super) intervals: Vec<(AddrRange, usize)>,
    /// Each once.
    pub(super) lists: Vec<List>,
    /// By policy (its place in the argument): the lists in which it is asked; not more than a few are remembered.
    pub(super) serving: Vec<Vec<usize>>,
    /// Somewhere a list was too long, and more is closed there than the policies say.
    pub(super) closed: bool,
    /// Children that have more holes for own sides than there can be: some or all of them are closed.
    pub(super) without_holes: Vec<String>,
    /// Lists that say of many policies at once what happens.
    coarse: BTreeSet<usize>,
}

impl Cut {
    /// Finds lists for policies that have not been told apart in some.
    fn serve_coarsely(&mut self, policies: &[Policy], ipv6: bool) {
        if self.coarse.is_empty() {
            return;
        }
        let closing = policies.iter().zip(&mut self.serving).filter(|(p, _)| {
            p.verdict != Verdict::Bypass && p.remote.range.is_ipv6() == ipv6 && Step::of(p).is_some()
        });
        for (p, serving) in closing {
            let remote = &p.remote.range;
            let first = self.intervals.partition_point(|(range, _)| range.end() < remote.start());
            let within =
                self.intervals.iter().skip(first).take_while(|(range, _)| range.start() <= remote.end());
            for (_, list) in within.take(REMEMBERED).filter(|(_, list)| self.coarse.contains(list)) {
                if serving.len() < REMEMBERED && !serving.contains(list) {
                    serving.push(*list);
                }
            }
        }
    }

    /// True when tunnels meet: what is one's local side is guarded as another's remote side, as between the peers of a hub.
    pub(super) fn meets(&self) -> bool {
        let guarded = |list: &List| list.steps.iter().any(|s| s.outcome == Outcome::Guarded);
        let steps = self.lists.iter().flat_map(|list| &list.steps);
        let local: BTreeSet<AddrRange> =
            steps.filter(|s| s.outcome != Outcome::Passed).map(|s| s.local).collect();
        local.iter().any(|local| {
            let first = self.intervals.partition_point(|(remote, _)| remote.end() < local.start());
            let mut overlapping =
                self.intervals[first..].iter().take_while(|(remote, _)| remote.start() <= local.end());
            overlapping.any(|(_, list)| guarded(&self.lists[*list]))
        })
    }
}

/// How many lists of one policy [`Cut::serving`] remembers.
const REMEMBERED: usize = 8;
/// All lists of a family have at most this many steps, and two more for each policy and hole: where policies do not overlap
/// each other in many ways, that is more than they need.
const MAX_STEPS: usize = 1 << 16;
/// How many steps one list may have. The first of these holds with which all lists together stay below the bound, so that
/// long lists are given up before short ones, which are those of others.
const MAX_LIST: [usize; 3] = [4096, 256, 16];
/// How many comparisons a sweep may take, and 256 more for each policy and hole, before another one is tried that closes more.
const MAX_WORK: usize = 1 << 25;
/// A child has holes for its own sides while these are not more: each of its policies may have one for each side.
const MAX_HOLES: usize = 1 << 16;

/// The order of what is asked. Smaller first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Rank {
    /// 0: a policy that lies wholly in link scope; 1: the hole for link scope; 2: other policies; 3: no policy, only
    /// destinations of table 220.
    class: u8,
    precedence: Option<Precedence>,
    /// Where the engine would take the older of two, what closes comes first.
    outcome: (Verdict, bool),
    policy: usize,
    /// A hole comes before the policy in which it is one.
    itself: bool,
}

#[derive(Clone, Debug)]
struct Entry {
    rank: Rank,
    remote: AddrRange,
    step: Step,
    policy: Option<usize>,
    routed: bool,
    /// Of a policy that the configuration does not say, or a hole in one.
    negotiated: bool,
}

impl Entry {
    /// A hole of a policy for an own side of its child.
    fn is_own_hole(&self) -> bool {
        self.rank.class == 2 && !self.rank.itself
    }
}

/// The own side of each child by name: what is inside a wider remote selector of the same child.
pub(super) fn own_sides(policies: &[Policy]) -> HashMap<(&str, bool), Vec<AddrRange>> {
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

/// True when local lies inside a wider remote: packets from local to local are not meant.
pub(super) fn has_own_side(p: &Policy) -> bool {
    p.verdict != Verdict::Bypass && strictly_inside(&p.local.range, &p.remote.range)
}

/// True for what lies wholly in link scope: it names what is a hole in all others.
pub(super) fn in_link_scope(p: &Policy) -> bool {
    let link = link_scope(p.local.range.is_ipv6());
    link.iter().any(|l| inside(&p.local.range, l) || inside(&p.remote.range, l))
}

/// Everything that is asked, in order.
fn entries(
    policies: &[Policy],
    brought: &Brought<'_>,
    ipv6: bool,
    default_is_routed: bool,
) -> (Vec<Entry>, Vec<String>) {
    let own = holes(policies, brought, ipv6);
    let link = link_scope(ipv6);
    let any = AddrRange::any(ipv6);
    let mut out = Vec::with_capacity(policies.len());
    let (mut local_holes, mut remote_holes) = (BTreeSet::<&AddrRange>::new(), BTreeSet::<&AddrRange>::new());
    for (i, p) in policies.iter().enumerate().filter(|(_, p)| p.remote.range.is_ipv6() == ipv6) {
        let Some(step) = Step::of(p) else { continue };
        let (local, remote) = (p.local.range, p.remote.range);
        let closes = p.verdict != Verdict::Bypass;
        let named = in_link_scope(p);
        if closes && !named {
            local_holes.extend(link.iter().filter(|l| l.intersect(&local).is_some()));
            remote_holes.extend(link.iter().filter(|l| l.intersect(&remote).is_some()));
        }
        let rank = Rank {
            class: if named { 0 } else { 2 },
            precedence: Some(p.precedence()),
            outcome: (p.verdict, !p.guard),
            policy: i,
            itself: true,
        };
        let negotiated = brought.is_negotiated(i);
        let sides = own.get(&*p.name).filter(|own| !(own.loaded_only && negotiated));
        for side in sides.into_iter().flat_map(|own| &own.sides) {
            if closes && has_own_side(p) && strictly_inside(side, &remote) {
                out.push(Entry {
                    rank: Rank { itself: false, ..rank },
                    remote: *side,
                    step: Step { outcome: Outcome::Passed, ..step },
                    policy: None,
                    routed: false,
                    negotiated,
                });
            }
        }
        let routed = closes && (default_is_routed || remote != any);
        out.push(Entry { rank, remote, step, policy: Some(i), routed, negotiated });
    }
    let rank =
        Rank { class: 1, precedence: None, outcome: (Verdict::Bypass, false), policy: 0, itself: false };
    let hole = |local: AddrRange, remote: AddrRange| Entry {
        rank,
        remote,
        step: Step::passing(local),
        policy: None,
        routed: false,
        negotiated: false,
    };
    out.extend(local_holes.into_iter().map(|l| hole(*l, any)));
    out.extend(remote_holes.into_iter().map(|r| hole(any, *r)));
    let routed = brought.narrowed.iter().filter(|p| p.verdict != Verdict::Bypass && Step::of(p).is_some());
    let routed = routed.map(|p| p.remote.range);
    let routed = routed.filter(|r| r.is_ipv6() == ipv6 && (default_is_routed || *r != any)).collect();
    out.extend(joined(routed).into_iter().map(|remote| Entry {
        rank: Rank { class: 3, ..rank },
        remote,
        step: Step::passing(any),
        policy: None,
        routed: true,
        negotiated: false,
    }));
    out.sort_by_key(|e| e.rank);
    let few = own.iter().filter(|(_, own)| own.loaded_only || own.sides.is_empty());
    let mut without_holes: Vec<String> = few.map(|(name, _)| (*name).to_owned()).collect();
    without_holes.sort_unstable();
    (out, without_holes)
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
fn holes<'a>(policies: &'a [Policy], brought: &Brought<'_>, ipv6: bool) -> HashMap<&'a str, Own> {
    let wide =
        || policies.iter().enumerate().filter(|(_, p)| p.local.range.is_ipv6() == ipv6 && has_own_side(p));
    let mut of_child: HashMap<&str, [(Vec<AddrRange>, usize); 2]> = HashMap::new();
    for (i, p) in wide() {
        let [loaded, all] = of_child.entry(&p.name).or_default();
        for (sides, count) in [(!brought.is_negotiated(i)).then_some(loaded), Some(all)].into_iter().flatten()
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

/// How much a sweep may come to.
#[derive(Clone, Copy)]
struct Bounds {
    /// The steps of one list; one that would be longer is closed.
    list: usize,
    /// The steps of all.
    all: usize,
    /// Comparisons.
    work: usize,
}

const UNBOUNDED: usize = usize::MAX;

/// Cuts the policies of one family. `default_is_routed`: unmarked packets follow a default route of table 220, too.
pub(super) fn cut(policies: &[Policy], brought: &Brought<'_>, ipv6: bool, default_is_routed: bool) -> Cut {
    let (entries, without_holes) = entries(policies, brought, ipv6, default_is_routed);
    let (all, work) = (MAX_STEPS + 2 * entries.len(), MAX_WORK + 256 * entries.len());
    let bounds = |list| Bounds { list, all, work };
    let fine = sweep(&entries, policies.len(), ipv6, bounds(MAX_LIST[0])).filter(|cut| !cut.closed);
    let coarser = || {
        // Of few policies that hang together lists stay shorter than the longest that there may be.
        let mut tries = MAX_LIST.iter().map(|max| (max / 2, *max)).chain([(0, MAX_LIST[0])]);
        tries.find_map(|(few, max)| {
            let mut cut = sweep(&gathered(&entries, few), policies.len(), ipv6, bounds(max))?;
            cut.closed = true;
            Some(cut)
        })
    };
    // A closed list has a few steps whatever lies in it.
    let closed = Bounds { list: 0, all: UNBOUNDED, work: UNBOUNDED };
    let cut = fine.or_else(coarser).or_else(|| sweep(&entries, policies.len(), ipv6, closed));
    let mut cut = Cut { without_holes, ..cut.unwrap_or_default() };
    cut.serve_coarsely(policies, ipv6);
    cut
}

/// Cuts within bounds; `None` when all lists together, or the work, would exceed them.
fn sweep(entries: &[Entry], policies: usize, ipv6: bool, bounds: Bounds) -> Option<Cut> {
    let mut cut = Cut { serving: vec![Vec::new(); policies], ..Cut::default() };
    // Where something begins, and behind where it ends; nothing is behind the last address.
    let mut begins: Vec<(u128, usize)> = Vec::with_capacity(entries.len());
    let mut ends: Vec<(u128, usize)> = Vec::with_capacity(entries.len());
    for (i, e) in entries.iter().enumerate() {
        begins.push((bits(e.remote.start()), i));
        ends.push((bits(e.remote.end()), i));
    }
    begins.sort_unstable();
    ends.sort_unstable();
    let last = bits(AddrRange::any(ipv6).end());
    let mut known: HashMap<List, usize> = HashMap::new();
    let mut active = Active::default();
    let (mut b, mut e) = (0, 0);
    let Some(mut at) = begins.first().map(|(at, _)| *at) else { return Some(cut) };
    let (mut steps, mut work) = (0, 0);
    loop {
        while let Some((_, i)) = begins.get(b).filter(|(start, _)| *start == at) {
            if let Some(entry) = entries.get(*i) {
                active.count(*i, entry, true);
            }
            b += 1;
        }
        // To the next beginning, or to the next end.
        let next_begin = begins.get(b).map_or(last, |(start, _)| start - 1);
        let next_end = ends.get(e).map_or(last, |(end, _)| *end);
        let to = next_begin.min(next_end);
        let lists = cut.lists.len();
        let active_now = active.entries.iter().filter_map(|i| entries.get(*i));
        let (list, asked) = match fine(active_now, bounds.list, &mut work) {
            Some((mut list, asked)) => {
                list.routed = active.routed > 0;
                (list, asked)
            }
            None => {
                cut.closed = true;
                (active.closed(entries), Asked { coarsely: true, ..Asked::default() })
            }
        };
        interval(&mut cut, &mut known, (list, asked), (at, to), ipv6);
        steps += cut.lists.get(lists).map_or(0, |new| new.steps.len());
        if steps > bounds.all || work > bounds.work {
            return None;
        }
        while let Some((_, i)) = ends.get(e).filter(|(end, _)| *end == to) {
            if let Some(entry) = entries.get(*i) {
                active.count(*i, entry, false);
            }
            e += 1;
        }
        if to >= last {
            return Some(cut);
        }
        at = to + 1;
    }
}

/// What a list asks.
#[derive(Default)]
struct Asked {
    policies: Vec<usize>,
    /// Others that it does not tell apart.
    coarsely: bool,
}

/// The list of what is active in an interval, without where unmarked packets are led, and what is asked; `None` when it is longer
/// than `max`.
fn fine<'a>(active: impl Iterator<Item = &'a Entry>, max: usize, work: &mut usize) -> Option<(List, Asked)> {
    let mut list = List::default();
    let mut asked = Asked::default();
    // Local addresses for which everything is decided.
    let mut decided: Vec<AddrRange> = Vec::new();
    let mut seen: HashSet<Step> = HashSet::new();
    let mut hole_in = None;
    for e in active.filter(|e| e.rank.class != 3) {
        // Where a policy has a hole it does not apply at all, not even to what does not show whether it fits.
        if e.is_own_hole() {
            hole_in = Some(e.rank.policy);
        } else if e.policy.is_some() && e.policy == hole_in {
            continue;
        }
        *work += 1 + decided.len();
        if decided.iter().any(|d| inside(&e.step.local, d)) {
            continue;
        }
        asked.policies.extend(e.policy);
        asked.coarsely |= e.rank.itself && e.policy.is_none();
        if seen.insert(e.step) {
            if list.steps.len() >= max {
                return None;
            }
            list.steps.push(e.step);
        }
        if e.step.addresses_only() {
            decided.push(e.step.local);
        }
    }
    Some((list, asked))
}

/// Adds the interval, with its list and the policies that are asked in it.
fn interval(
    cut: &mut Cut,
    known: &mut HashMap<List, usize>,
    (mut list, asked): (List, Asked),
    (from, to): (u128, u128),
    ipv6: bool,
) {
    // Behind the last step everything passes anyway.
    while list.steps.last().is_some_and(|s| s.outcome == Outcome::Passed) {
        list.steps.pop();
    }
    if list.steps.is_empty() && !list.routed {
        return;
    }
    let number = match known.get(&list) {
        Some(n) => *n,
        None => {
            cut.lists.push(list.clone());
            known.insert(list, cut.lists.len() - 1);
            cut.lists.len() - 1
        }
    };
    if asked.coarsely {
        cut.coarse.insert(number);
    }
    for p in asked.policies {
        if let Some(serving) = cut.serving.get_mut(p)
            && serving.len() < REMEMBERED
            && serving.last() != Some(&number)
            && !serving.contains(&number)
        {
            serving.push(number);
        }
    }
    let Some(range) = AddrRange::new(address(from, ipv6), address(to, ipv6)) else { return };
    if let Some((before, n)) = cut.intervals.last_mut()
        && *n == number
        && bits(before.end()).checked_add(1) == Some(from)
        && let Some(joined) = AddrRange::new(before.start(), range.end())
    {
        *before = joined;
        return;
    }
    cut.intervals.push((range, number));
}

#[cfg(test)]
mod tests;
