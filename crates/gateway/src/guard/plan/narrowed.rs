//! Policies that a peer narrowed from a loaded policy. A peer chooses how many of them there are,
//! so the plan does not cut them: the loaded policy closes all that they close.
//!
//! The plan needs only their destinations. Those lead to the device where otherwise a default route
//! would, and unmarked packets do not take the default route.

use std::collections::HashMap;

use ironswan_wire::selector::AddrRange;

use super::cut::{has_own_side, in_link_scope, joined, own_sides, strictly_inside};
use super::{Policy, Verdict};

/// The loaded policies by child, to find the one from which another was narrowed.
#[derive(Debug)]
pub struct Narrowing {
    of_child: HashMap<String, Vec<Policy>>,
    /// Own sides of all policies by child and family, joined where they overlap.
    own: HashMap<(String, bool), Vec<AddrRange>>,
}

impl Narrowing {
    /// `loaded` policies, and `all`: also those that the engine has.
    pub fn new(loaded: &[Policy], all: &[Policy]) -> Self {
        let mut of_child: HashMap<String, Vec<Policy>> = HashMap::new();
        for p in loaded.iter().filter(|p| p.verdict == Verdict::Protect) {
            of_child.entry(p.name.clone()).or_default().push(p.clone());
        }
        let own = own_sides(all);
        let own = own.into_iter().map(|((name, ipv6), sides)| ((name.to_owned(), ipv6), joined(sides)));
        Self { of_child, own: own.collect() }
    }

    /// The loaded policy of the same child that closes all that `p` does: `p` lies inside, has its
    /// place in the order, and nothing that is a hole in the loaded one is closed by `p`.
    pub fn outer(&self, p: &Policy) -> Option<&Policy> {
        let closes = |outer: &&Policy| {
            (outer.verdict, outer.precedence()) == (p.verdict, p.precedence())
                && p.guard <= outer.guard
                && p.local.is_subset_of(&outer.local)
                && p.remote.is_subset_of(&outer.remote)
                // A policy inside link scope stands before the hole for link scope, and one outside
                // it stands behind.
                && in_link_scope(p) <= in_link_scope(outer)
        };
        let outer = self.of_child.get(&p.name)?.iter().find(closes)?;
        self.has_the_holes(p).then_some(outer)
    }

    /// True when each own side of the child that meets the remote addresses of `p` is a hole in
    /// `p`, too.
    fn has_the_holes(&self, p: &Policy) -> bool {
        let remote = &p.remote.range;
        let Some(own) = self.own.get(&(p.name.clone(), remote.is_ipv6())) else { return true };
        let first = own.partition_point(|side| side.end() < remote.start());
        let end = own.partition_point(|side| side.start() <= remote.end());
        let mut met = own.get(first..end).unwrap_or_default().iter();
        // Of disjoint ones only the outermost can reach beyond.
        let outermost = [met.next(), met.next_back()];
        outermost.into_iter().flatten().all(|side| has_own_side(p) && strictly_inside(side, remote))
    }
}
