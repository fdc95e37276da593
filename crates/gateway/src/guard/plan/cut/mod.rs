//! Decorrelation in one dimension: overlapping policies become disjoint intervals of the remote
//! address, each with the list of what is left to ask once the remote address is known.
//!
//! ```text
//! policies, first matched first      intervals of the remote address      lists
//! BYPASS   10.1/16 == 10.2.3/24      10.2.0.0  - 10.2.2.255    --+
//! PROTECT  10.1/16 == 10.2/16        10.2.3.0  - 10.2.3.255    --|->  pass 10.1/16
//! PROTECT  10.1/16 == 10.3/16        10.2.4.0  - 10.3.255.255  --+->  protect 10.1/16
//! ```
//! In the second interval PROTECT is never asked, because BYPASS has everything that it has.
//!
//! Equal lists are one list, and neighbours with one list are one interval, so that thousands of
//! tunnels from one local network cost one list. Besides the policies there are holes, for what no
//! tunnel ever carries unless a policy names it: link scope, and the own side of a child whose
//! local selector lies inside its remote one.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `step` | lists and their steps: policies without their remote addresses |
//! | `entries` | policies and holes in the order in which they are asked |
//! | `coarse` | lists that say less and close more, where exact ones would be too long |
//! | `ranges` | arithmetic of address ranges |
//!
//! Policies that overlap each other in ever other ways have lists whose sum grows with their
//! square, and peers choose selectors. So the sum is bounded, and the work. Where it would be
//! exceeded, first what peers negotiated becomes one policy for all of its addresses that hang
//! together ([`coarse::gathered`]): what is loaded stays as it is, and its holes stay open. When
//! that is not enough, everything between the addresses of an interval is closed whose list is too
//! long ([`coarse::Active::closed`]).

mod coarse;
mod entries;
mod ranges;
mod step;

use std::collections::{BTreeSet, HashMap, HashSet};

use ironswan_wire::selector::AddrRange;

use super::{Negotiated, Policy, Verdict};
use coarse::{Active, gathered};
use entries::{Class, Entry, entries};
pub(super) use entries::{has_own_side, in_link_scope, own_sides};
use ranges::{address, bits};
pub(super) use ranges::{between, inside, joined, link_scope, strictly_inside};
pub(super) use step::{List, MOBILITY, Outcome, Ports, Step, WITH_PORTS, WITH_TYPES, shows_ports};

/// One family's policies, cut.
#[derive(Clone, Debug, Default)]
pub(super) struct Cut {
    /// Disjoint, in order; where no policy reaches there is none. The number is of the list.
    pub(super) intervals: Vec<(AddrRange, usize)>,
    /// Each once.
    pub(super) lists: Vec<List>,
    /// By policy (its place in the argument): the lists in which it is asked; not more than a few
    /// are remembered.
    pub(super) serving: Vec<Vec<usize>>,
    /// Somewhere a list was too long, and more is closed there than the policies say.
    pub(super) closed: bool,
    /// Children that have more holes for own sides than there can be: some or all of them are
    /// closed.
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

    /// True when tunnels meet: what is one's local side is guarded as another's remote side, as
    /// between the peers of a hub.
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
/// All lists of a family have at most this many steps, and two more for each policy and hole: where
/// policies do not overlap each other in many ways, that is more than they need.
const MAX_STEPS: usize = 1 << 16;
/// How many steps one list may have. The first of these holds with which all lists together stay
/// below the bound, so that long lists are given up before short ones, which are those of others.
const MAX_LIST: [usize; 3] = [4096, 256, 16];
/// How many comparisons a sweep may take, and 256 more for each policy and hole, before another one
/// is tried that closes more.
const MAX_WORK: usize = 1 << 25;
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

/// Cuts the policies of one family. `default_is_routed`: unmarked packets follow a default route of
/// table 220, too.
pub(super) fn cut(
    policies: &[Policy],
    from_peers: &Negotiated<'_>,
    ipv6: bool,
    default_is_routed: bool,
) -> Cut {
    let (entries, without_holes) = entries(policies, from_peers, ipv6, default_is_routed);
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
    // Sorted first and last addresses of all entries. An interval begins where an entry begins, and
    // behind the end of one.
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
        let (list, told) = match fine(active_now, bounds.list, &mut work) {
            Some((mut list, told)) => {
                list.routed = active.routed > 0;
                (list, told)
            }
            None => {
                cut.closed = true;
                (active.closed(entries), ToldApart { coarsely: true, ..ToldApart::default() })
            }
        };
        interval(&mut cut, &mut known, (list, told), (at, to), ipv6);
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

/// The policies that a list tells apart: those for which it has steps.
#[derive(Default)]
struct ToldApart {
    policies: Vec<usize>,
    /// True when the list has steps for others, which it does not tell apart.
    coarsely: bool,
}

/// The list of what is active in an interval, without where unmarked packets are led, and the
/// policies that its steps tell apart; `None` when the list is longer than `max`.
fn fine<'a>(
    active: impl Iterator<Item = &'a Entry>,
    max: usize,
    work: &mut usize,
) -> Option<(List, ToldApart)> {
    let mut list = List::default();
    let mut told = ToldApart::default();
    // Local addresses for which everything is decided.
    let mut decided: Vec<AddrRange> = Vec::new();
    let mut seen: HashSet<Step> = HashSet::new();
    let mut hole_in = None;
    for e in active.filter(|e| e.rank.class != Class::RoutedOnly) {
        // A policy does not apply at all inside its own hole, not even to packets that hide whether
        // they fit.
        if e.is_own_hole() {
            hole_in = Some(e.rank.policy);
        } else if e.policy.is_some() && e.policy == hole_in {
            continue;
        }
        *work += 1 + decided.len();
        if decided.iter().any(|d| inside(&e.step.local, d)) {
            continue;
        }
        told.policies.extend(e.policy);
        told.coarsely |= e.rank.itself && e.policy.is_none();
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
    Some((list, told))
}

/// Adds the interval, with its list and the policies that the list tells apart.
fn interval(
    cut: &mut Cut,
    known: &mut HashMap<List, usize>,
    (mut list, told): (List, ToldApart),
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
    if told.coarsely {
        cut.coarse.insert(number);
    }
    for p in told.policies {
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
