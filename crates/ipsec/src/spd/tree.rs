//! Boxes in five dimensions, found by a point that they contain: a tree whose nodes are shared
//! between the snapshots that have them in common.
//!
//! A *cut* divides one dimension into up to 16 intervals and has a child for each; a box that lies
//! in more than one of them is kept aside in the `wide` child. A look-up goes into one interval,
//! and aside only if what is there ranks before what it has found. A *group* is for boxes that all
//! overlap, so that no cut tells them apart: children with the box around them, divided by where
//! their boxes begin or end, and asked in order of rank. A *leaf* is a list in order of rank.
//!
//! An edit goes down one path, copies its nodes if a snapshot shares them, and builds a part of the
//! tree anew when as much has changed in it as it had when it was built. Ranks and boxes around
//! children are bounds: a removal leaves them.

use std::sync::Arc;

use ironswan_wire::sadb::Action;

use super::build::build;
use super::policy::{Policy, Rank, UNSEEN};

/// Dimensions: remote address, local address, remote port, local port, protocol.
pub(super) const DIMS: usize = 5;
/// The first of the two that are ports.
const REMOTE_PORT: usize = 2;
const LOCAL_PORT: usize = 3;
const PROTOCOL: usize = 4;
/// Most children of a cut, without the one aside.
pub(super) const FAN: usize = 16;
/// Most children of a group.
pub(super) const GROUP: usize = 8;
/// Most items of a leaf.
pub(super) const LEAF: usize = 8;

/// One value of a dimension: wide enough for an address of the family.
pub(super) trait Coordinate: Copy + Ord + From<u32> {
    /// The largest.
    const MAX: Self;
}

impl Coordinate for u32 {
    const MAX: Self = u32::MAX;
}

impl Coordinate for u128 {
    const MAX: Self = u128::MAX;
}

/// A packet.
pub(super) type Point<A> = [A; DIMS];

/// From `lo` to `hi`, both included, in each dimension.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Area<A> {
    pub(super) lo: Point<A>,
    pub(super) hi: Point<A>,
}

impl<A: Coordinate> Area<A> {
    #[inline]
    fn contains(&self, p: &Point<A>) -> bool {
        // Without branches: which dimension says no is not predictable.
        let mut inside = true;
        for ((lo, hi), p) in self.lo.iter().zip(&self.hi).zip(p) {
            inside &= (lo <= p) & (p <= hi);
        }
        inside
    }

    fn overlaps(&self, other: &Self) -> bool {
        (0..DIMS).all(|d| self.lo[d] <= other.hi[d] && other.lo[d] <= self.hi[d])
    }

    pub(super) fn extend(&mut self, other: &Self) {
        for d in 0..DIMS {
            self.lo[d] = self.lo[d].min(other.lo[d]);
            self.hi[d] = self.hi[d].max(other.hi[d]);
        }
    }

    /// Coordinate `by` of twice as many as there are dimensions: where it begins, then where it
    /// ends.
    pub(super) fn coordinate(&self, by: usize) -> A {
        if by < DIMS { self.lo[by] } else { self.hi[by - DIMS] }
    }
}

/// The policies of one box.
#[derive(Clone)]
pub(super) struct Item<A> {
    pub(super) area: Area<A>,
    /// Rank and action of the first policy.
    pub(super) best: Rank,
    action: Action,
    /// In order of rank, never empty.
    policies: Arc<[Arc<Policy>]>,
}

impl<A> Item<A> {
    fn new(area: Area<A>, policies: Vec<Arc<Policy>>) -> Option<Self> {
        let first = policies.first()?;
        let (best, action) = (first.rank, first.policy.action);
        Some(Self { area, best, action, policies: policies.into() })
    }

    pub(super) fn policies(&self) -> &[Arc<Policy>] {
        &self.policies
    }

    /// True when it contains some ports, but not those that cannot be seen.
    fn looks_at_ports(&self) -> bool
    where
        A: Coordinate,
    {
        let unseen = A::from(UNSEEN);
        let (lo, hi) = (&self.area.lo, &self.area.hi);
        (hi[REMOTE_PORT] < unseen || hi[LOCAL_PORT] < unseen)
            && lo[REMOTE_PORT] <= unseen
            && lo[LOCAL_PORT] <= unseen
    }

    /// True when it is for ports that cannot be seen, and no others.
    pub(super) fn is_opaque(&self) -> bool
    where
        A: Coordinate,
    {
        let unseen = A::from(UNSEEN);
        self.area.lo[REMOTE_PORT] == unseen || self.area.lo[LOCAL_PORT] == unseen
    }

    pub(super) fn found(&self) -> (Action, &[Arc<Policy>]) {
        (self.action, &self.policies)
    }
}

/// A tree that is not empty.
#[derive(Clone)]
pub(super) enum Node<A> {
    Leaf(Arc<[Item<A>]>),
    Cut(Arc<Cut<A>>),
    Group(Arc<Group<A>>),
}

/// A node that divides one dimension into intervals, with a child for each.
#[derive(Clone)]
pub(super) struct Cut<A> {
    pub(super) dim: usize,
    /// How many of `cuts` are used.
    pub(super) len: usize,
    /// First values of the second and following children.
    pub(super) cuts: [A; FAN - 1],
    pub(super) children: [Option<Node<A>>; FAN],
    /// Boxes that lie in more than one interval, and a bound of their best rank.
    pub(super) wide: Option<(Rank, Node<A>)>,
    pub(super) changes: ChangeCount,
}

/// A node for boxes that all overlap, with a child for each part of them.
#[derive(Clone)]
pub(super) struct Group<A> {
    /// The coordinate that divides.
    pub(super) by: usize,
    /// In order of rank.
    pub(super) members: Vec<Member<A>>,
    pub(super) changes: ChangeCount,
}

/// One child of a group.
#[derive(Clone)]
pub(super) struct Member<A> {
    /// The least rank, or less.
    pub(super) best: Rank,
    /// The box around all its boxes, or a larger one.
    pub(super) around: Area<A>,
    /// Least coordinate of its boxes. A box belongs to the member with the largest `from` that is
    /// not above its coordinate.
    pub(super) from: A,
    pub(super) node: Option<Node<A>>,
}

/// Changes since a part of the tree was built: tells when to build it anew.
#[derive(Clone, Copy)]
pub(super) struct ChangeCount {
    built: u32,
    changes: u32,
}

impl ChangeCount {
    pub(super) fn new(items: usize) -> Self {
        Self { built: items as u32, changes: 0 }
    }

    /// True when as much has changed as there was.
    fn count_change(&mut self) -> bool {
        self.changes += 1;
        self.changes > self.built
    }
}

impl<A: Coordinate> Cut<A> {
    /// The child for a value.
    #[inline]
    pub(super) fn child(&self, value: A) -> usize {
        let below: usize = self.cuts.iter().map(|cut| usize::from(*cut <= value)).sum();
        // Unused ones are the largest value, which a packet may have.
        below.min(self.len)
    }

    /// The child for a box; `None` when it belongs aside.
    pub(super) fn place(&self, area: &Area<A>) -> Option<usize> {
        let first = self.child(area.lo[self.dim]);
        (first == self.child(area.hi[self.dim])).then_some(first)
    }
}

impl<A: Coordinate> Node<A> {
    /// The item of lowest rank around a point.
    #[inline]
    pub(super) fn find(&self, p: &Point<A>) -> Option<&Item<A>> {
        let mut best = None;
        self.search(p, &mut best);
        best
    }

    fn search<'a>(&'a self, p: &Point<A>, best: &mut Option<&'a Item<A>>) {
        let mut node = self;
        loop {
            match node {
                Self::Leaf(items) => {
                    for item in items.iter() {
                        if best.is_some_and(|b| b.best < item.best) {
                            return;
                        }
                        if item.area.contains(p) {
                            *best = Some(item);
                            return;
                        }
                    }
                    return;
                }
                Self::Cut(cut) => {
                    let child = &cut.children[cut.child(p[cut.dim])];
                    match (&cut.wide, child) {
                        (None, Some(child)) => {
                            node = child;
                            continue;
                        }
                        (None, None) => return,
                        (Some((rank, wide)), child) => {
                            if let Some(child) = child {
                                child.search(p, best);
                            }
                            if best.is_some_and(|b| b.best < *rank) {
                                return;
                            }
                            node = wide;
                        }
                    }
                }
                Self::Group(group) => {
                    for member in &group.members {
                        if best.is_some_and(|b| b.best < member.best) {
                            return;
                        }
                        if member.around.contains(p)
                            && let Some(node) = &member.node
                        {
                            node.search(p, best);
                        }
                    }
                    return;
                }
            }
        }
    }

    /// True when an item that ranks before `before` looks at ports that can be seen, and contains
    /// the point in all dimensions but ports, and protocol unless that is `known`. Also when it
    /// takes more than `steps` nodes to find out.
    pub(super) fn looks_at_ports(
        &self,
        p: &Point<A>,
        known: bool,
        before: Option<Rank>,
        steps: &mut u32,
    ) -> bool {
        let Some(left) = steps.checked_sub(1) else { return true };
        *steps = left;
        let first = |rank: Rank| before.is_none_or(|before| rank < before);
        let asked = |dim: usize| dim < REMOTE_PORT || dim == PROTOCOL && known;
        let around =
            |area: &Area<A>| (0..DIMS).all(|d| !asked(d) || area.lo[d] <= p[d] && p[d] <= area.hi[d]);
        match self {
            Self::Leaf(items) => {
                items.iter().take_while(|i| first(i.best)).any(|i| i.looks_at_ports() && around(&i.area))
            }
            Self::Cut(cut) => {
                let (from, to) = match asked(cut.dim) {
                    true => (cut.child(p[cut.dim]), cut.child(p[cut.dim])),
                    false => (0, cut.len),
                };
                let children = cut.children[from..=to].iter().flatten();
                let wide = cut.wide.iter().filter(|(rank, _)| first(*rank)).map(|(_, wide)| wide);
                wide.chain(children).any(|n| n.looks_at_ports(p, known, before, steps))
            }
            Self::Group(group) => group
                .members
                .iter()
                .take_while(|m| first(m.best))
                .filter(|m| around(&m.around))
                .flat_map(|m| &m.node)
                .any(|n| n.looks_at_ports(p, known, before, steps)),
        }
    }

    /// Rank of the first policy of exactly this box with this action.
    pub(super) fn rank_of(&self, area: &Area<A>, action: Action) -> Option<Rank> {
        let policies = self.get(area)?.policies.iter();
        policies.filter(|p| p.policy.action == action).map(|p| p.rank).min()
    }

    /// True when a policy that ranks before `before` and has another action than `own` meets the
    /// box. Also when it takes more than `steps` nodes to find out.
    pub(super) fn has_other(
        &self,
        area: &Area<A>,
        before: Option<Rank>,
        own: Action,
        steps: &mut u32,
    ) -> bool {
        let Some(left) = steps.checked_sub(1) else { return true };
        *steps = left;
        let first = |rank: Rank| before.is_none_or(|before| rank < before);
        match self {
            Self::Leaf(items) => {
                let other = |p: &Arc<Policy>| first(p.rank) && p.policy.action != own;
                let items = items.iter().take_while(|i| first(i.best));
                items.filter(|i| i.area.overlaps(area)).any(|i| i.policies.iter().any(other))
            }
            Self::Cut(cut) => {
                let (from, to) = (cut.child(area.lo[cut.dim]), cut.child(area.hi[cut.dim]));
                let children = cut.children[from..=to.max(from)].iter().flatten();
                let wide = cut.wide.iter().filter(|(rank, _)| first(*rank)).map(|(_, wide)| wide);
                wide.chain(children).any(|n| n.has_other(area, before, own, steps))
            }
            Self::Group(group) => group
                .members
                .iter()
                .take_while(|m| first(m.best))
                .filter(|m| m.around.overlaps(area))
                .flat_map(|m| &m.node)
                .any(|n| n.has_other(area, before, own, steps)),
        }
    }

    /// Calls `f` with every item.
    pub(super) fn each(&self, f: &mut impl FnMut(&Item<A>)) {
        match self {
            Self::Leaf(items) => items.iter().for_each(f),
            Self::Cut(cut) => {
                cut.children.iter().flatten().for_each(|n| n.each(f));
                cut.wide.iter().for_each(|(_, n)| n.each(f));
            }
            Self::Group(group) => group.members.iter().flat_map(|m| &m.node).for_each(|n| n.each(f)),
        }
    }

    /// Changes the policies of one box.
    pub(super) fn edit(root: &mut Option<Self>, area: &Area<A>, change: impl FnOnce(&mut Vec<Arc<Policy>>)) {
        let mut policies =
            root.as_ref().and_then(|n| n.get(area)).map(|i| i.policies.to_vec()).unwrap_or_default();
        change(&mut policies);
        Self::put(root, area, Item::new(*area, policies).as_ref());
    }

    /// The item of exactly this box.
    fn get(&self, area: &Area<A>) -> Option<&Item<A>> {
        match self {
            Self::Leaf(items) => items.iter().find(|i| i.area == *area),
            Self::Cut(cut) => match cut.place(area) {
                Some(child) => cut.children[child].as_ref()?.get(area),
                None => cut.wide.as_ref()?.1.get(area),
            },
            Self::Group(group) => group.members[group.place(area)].node.as_ref()?.get(area),
        }
    }

    /// Puts an item in place of the one with its box, or takes that away.
    fn put(node: &mut Option<Self>, area: &Area<A>, item: Option<&Item<A>>) {
        let old = match node {
            None => {
                *node = item.map(|item| Self::Leaf([item.clone()].into()));
                return;
            }
            Some(Self::Leaf(items)) => {
                let others = items.iter().filter(|i| i.area != *area);
                build(others.chain(item).cloned().collect())
            }
            Some(Self::Cut(cut)) => {
                let cut = Arc::make_mut(cut);
                match cut.place(area) {
                    Some(child) => Self::put(&mut cut.children[child], area, item),
                    None => {
                        let (rank, mut wide) =
                            cut.wide.take().map_or((None, None), |(r, n)| (Some(r), Some(n)));
                        Self::put(&mut wide, area, item);
                        let rank = rank.into_iter().chain(item.map(|i| i.best)).min();
                        cut.wide = rank.zip(wide);
                    }
                }
                if !cut.changes.count_change() {
                    return;
                }
                Self::rebuild(node)
            }
            Some(Self::Group(group)) => {
                let group = Arc::make_mut(group);
                let at = group.place(area);
                let member = &mut group.members[at];
                Self::put(&mut member.node, area, item);
                if let Some(item) = item {
                    member.around.extend(area);
                    member.best = member.best.min(item.best);
                    group.members.sort_by_key(|m| m.best);
                }
                if !group.changes.count_change() {
                    return;
                }
                Self::rebuild(node)
            }
        };
        *node = old;
    }

    fn rebuild(node: &Option<Self>) -> Option<Self> {
        let mut items = Vec::new();
        if let Some(node) = node {
            node.each(&mut |item| items.push(item.clone()));
        }
        build(items)
    }
}

impl<A: Coordinate> Group<A> {
    /// The member for a box: the last that begins not behind it, or the first of all.
    pub(super) fn place(&self, area: &Area<A>) -> usize {
        let at = area.coordinate(self.by);
        let not_behind = |m: &Member<A>| m.from <= at;
        let members = || self.members.iter().enumerate();
        let last = members().filter(|(_, m)| not_behind(m)).max_by_key(|(_, m)| m.from);
        last.or_else(|| members().min_by_key(|(_, m)| m.from)).map_or(0, |(i, _)| i)
    }
}

#[cfg(test)]
impl<A: Coordinate> Node<A> {
    /// Boxes compared to find the item of a point.
    pub(super) fn steps(&self, p: &Point<A>) -> usize {
        fn walk<'a, A: Coordinate>(node: &'a Node<A>, p: &Point<A>, best: &mut Option<&'a Item<A>>) -> usize {
            let mut n = 0;
            match node {
                Node::Leaf(items) => {
                    for item in items.iter().take_while(|i| best.is_none_or(|b| b.best > i.best)) {
                        n += 1;
                        if item.area.contains(p) {
                            *best = Some(item);
                            break;
                        }
                    }
                }
                Node::Cut(cut) => {
                    n += 1;
                    n += cut.children[cut.child(p[cut.dim])].as_ref().map_or(0, |c| walk(c, p, best));
                    if let Some((rank, wide)) = &cut.wide
                        && best.is_none_or(|b| b.best > *rank)
                    {
                        n += walk(wide, p, best);
                    }
                }
                Node::Group(group) => {
                    for m in &group.members {
                        n += 1;
                        if best.is_some_and(|b| b.best < m.best) {
                            break;
                        }
                        if let Some(node) = m.node.as_ref().filter(|_| m.around.contains(p)) {
                            n += walk(node, p, best);
                        }
                    }
                }
            }
            n
        }
        walk(self, p, &mut None)
    }
}
