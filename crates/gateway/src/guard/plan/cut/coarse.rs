//! Coarse lists: they say less than the policies do, and close more. They stand in where so many
//! policies overlap that exact lists would be too long.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::net::IpAddr;

use ironswan_wire::selector::AddrRange;

use super::entries::{Class, Entry, Rank};
use super::{List, Outcome, Step, joined};

/// The entries with one in place of all negotiated ones whose remote addresses overlap in a chain,
/// where the chain has more than `few`. That one closes everything from the first to the last of
/// their local addresses, and has the place of the first of them: all entries before it stay as
/// they are, and none behind it is opened.
pub(super) fn gathered(entries: &[Entry], few: usize) -> Vec<Entry> {
    let guards = entries.iter().any(|e| e.step.outcome == Outcome::Guarded);
    let outcome = if guards { Outcome::Guarded } else { Outcome::Steered };
    let mut gone: HashSet<usize> = HashSet::new();
    let mut new: Vec<Entry> = Vec::new();
    for class in [Class::PolicyInLinkScope, Class::Policy] {
        let closes = |e: &&Entry| {
            e.negotiated && e.rank.class == class && e.rank.itself && e.step.outcome != Outcome::Passed
        };
        let mut all: Vec<&Entry> = entries.iter().filter(closes).collect();
        all.sort_unstable_by_key(|e| (e.remote, e.rank));
        for chain in overlapping(&all).into_iter().filter(|chain| chain.len() > few.max(1)) {
            gone.extend(chain.iter().filter_map(|e| e.policy));
            new.extend(in_place_of(chain, outcome));
        }
    }
    let stays = |e: &&Entry| {
        let of = if e.is_own_hole() { Some(e.rank.policy) } else { e.policy };
        of.is_none_or(|p| !gone.contains(&p))
    };
    let mut out: Vec<Entry> = entries.iter().filter(stays).cloned().collect();
    out.extend(new);
    out.sort_by_key(|e| e.rank);
    out
}

/// Splits entries, sorted by remote address, where one begins behind the end of all before it.
fn overlapping<'a, 'e>(sorted: &'a [&'e Entry]) -> Vec<&'a [&'e Entry]> {
    let mut chains = Vec::new();
    let mut rest = sorted;
    while let Some((first, more)) = rest.split_first() {
        let mut end = first.remote.end();
        let meeting = more.iter().take_while(|e| {
            let meets = e.remote.start() <= end;
            end = end.max(if meets { e.remote.end() } else { end });
            meets
        });
        let (chain, behind) = rest.split_at(1 + meeting.count());
        chains.push(chain);
        rest = behind;
    }
    chains
}

/// The one entry for a chain, and entries for the destinations that table 220 leads to the device,
/// as before.
fn in_place_of(chain: &[&Entry], outcome: Outcome) -> Vec<Entry> {
    let (Some(first), Some(end)) = (chain.first(), chain.iter().map(|e| e.remote.end()).max()) else {
        return Vec::new();
    };
    let locals = || chain.iter().map(|e| e.step.local);
    let first_local = locals().map(|l| l.start()).min();
    let last_local = locals().map(|l| l.end()).max();
    let (Some(a), Some(b), Some(rank)) = (first_local, last_local, chain.iter().map(|e| e.rank).min()) else {
        return Vec::new();
    };
    let local = AddrRange::new(a, b).unwrap_or(first.step.local);
    let closing = Entry {
        rank,
        remote: AddrRange::new(first.remote.start(), end).unwrap_or(first.remote),
        step: Step { outcome, ..Step::passing(local) },
        policy: None,
        routed: false,
        negotiated: true,
    };
    let routed = joined(chain.iter().filter(|e| e.routed).map(|e| e.remote).collect());
    let rank = Rank { class: Class::RoutedOnly, ..rank };
    let routed = routed.into_iter().map(|remote| Entry {
        rank,
        remote,
        step: Step::passing(AddrRange::any(remote.is_ipv6())),
        policy: None,
        routed: true,
        negotiated: true,
    });
    std::iter::once(closing).chain(routed).collect()
}

/// Entries that cover the current interval of a sweep, with running sums for [`Active::closed`]. To
/// look at all entries in each interval would cost their square.
#[derive(Default)]
pub(super) struct Active {
    pub(super) entries: BTreeSet<usize>,
    /// How many lead unmarked packets to the device.
    pub(super) routed: usize,
    /// Entries that close: those in link scope, and all other policies.
    closing: [Closing; 2],
    /// The holes for link scope.
    link: BTreeSet<usize>,
}

/// How many have which first and last local address, and how many are guarded.
#[derive(Default)]
struct Closing {
    starts: BTreeMap<IpAddr, usize>,
    ends: BTreeMap<IpAddr, usize>,
    guarded: usize,
}

impl Closing {
    fn count(&mut self, step: &Step, add: bool) {
        for (of, address) in [(&mut self.starts, step.local.start()), (&mut self.ends, step.local.end())] {
            let n = of.entry(address).or_default();
            *n = if add { *n + 1 } else { n.saturating_sub(1) };
            if *n == 0 {
                of.remove(&address);
            }
        }
        let guarded = usize::from(step.outcome == Outcome::Guarded);
        self.guarded = if add { self.guarded + guarded } else { self.guarded.saturating_sub(guarded) };
    }

    /// From the first to the last local address.
    fn step(&self) -> Option<Step> {
        let (first, _) = self.starts.first_key_value()?;
        let (last, _) = self.ends.last_key_value()?;
        let outcome = if self.guarded > 0 { Outcome::Guarded } else { Outcome::Steered };
        Some(Step { outcome, ..Step::passing(AddrRange::new(*first, *last)?) })
    }
}

impl Active {
    pub(super) fn count(&mut self, i: usize, e: &Entry, add: bool) {
        let routed = usize::from(e.routed);
        self.routed = if add { self.routed + routed } else { self.routed.saturating_sub(routed) };
        for set in [Some(&mut self.entries), (e.rank.class == Class::LinkScopeHole).then_some(&mut self.link)]
            .into_iter()
            .flatten()
        {
            if add {
                set.insert(i);
            } else {
                set.remove(&i);
            }
        }
        let [link, others] = &mut self.closing;
        match e.rank.class {
            _ if e.step.outcome == Outcome::Passed => {}
            Class::PolicyInLinkScope => link.count(&e.step, add),
            Class::Policy => others.count(&e.step, add),
            Class::LinkScopeHole | Class::RoutedOnly => {}
        }
    }

    /// A list that closes at least what the fine one would: from the first to the last local
    /// address that something closes, whatever the protocol and the ports, also what a policy lets
    /// pass and the own side. Only link scope stays open where the fine list leaves it open.
    pub(super) fn closed(&self, entries: &[Entry]) -> List {
        let [named, others] = &self.closing;
        let mut steps: Vec<Step> = named.step().into_iter().collect();
        for hole in self.link.iter().filter_map(|i| entries.get(*i)) {
            if !steps.contains(&hole.step) {
                steps.push(hole.step);
            }
        }
        steps.extend(others.step());
        List { routed: self.routed > 0, steps }
    }
}
