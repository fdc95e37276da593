//! Building a [`tree`](super::tree) from its items: which dimension to cut, and where.

use std::sync::Arc;

use super::tree::{Area, ChangeCount, Coordinate, Cut, DIMS, FAN, GROUP, Group, Item, LEAF, Member, Node};

/// Items looked at to choose a cut.
const SAMPLE: usize = 512;

/// A tree of these items, whose boxes are all different; `None` of none.
pub(super) fn build<A: Coordinate>(mut items: Vec<Item<A>>) -> Option<Node<A>> {
    if items.is_empty() {
        return None;
    }
    if items.len() <= LEAF {
        items.sort_by_key(|i| i.best);
        return Some(Node::Leaf(items.into()));
    }
    match choose(&items) {
        Some((dim, cuts)) => cut(items, dim, &cuts),
        None => Some(group(items)),
    }
}

/// The dimension that divides best and the first values of all children but one; `None` when none
/// divides well.
fn choose<A: Coordinate>(items: &[Item<A>]) -> Option<(usize, Vec<A>)> {
    let step = items.len().div_ceil(SAMPLE);
    let sample: Vec<&Area<A>> = items.iter().step_by(step).map(|i| &i.area).collect();
    // Leaves that are about half full.
    let fan = items.len().div_ceil(LEAF / 2).min(FAN);
    let plan = |dim: usize| {
        let cuts = cuts(&sample, dim, fan);
        // The longer way of a look-up: through the fullest child, and aside.
        let mut children = [0usize; FAN];
        let mut wide = 0usize;
        for area in &sample {
            let child = cuts.partition_point(|c| *c <= area.lo[dim]);
            if child == cuts.partition_point(|c| *c <= area.hi[dim]) {
                children[child] += 1;
            } else {
                wide += 1;
            }
        }
        let fullest = children.into_iter().max().unwrap_or(0);
        (wide + fullest, dim, cuts)
    };
    let (cost, dim, cuts) = (0..DIMS).map(plan).min_by_key(|(cost, ..)| *cost)?;
    (!cuts.is_empty() && cost * 4 <= sample.len() * 3).then_some((dim, cuts))
}

/// Values to cut at, which leave about as many boxes in each interval and few across.
fn cuts<A: Coordinate>(sample: &[&Area<A>], dim: usize, fan: usize) -> Vec<A> {
    let mut lo: Vec<A> = sample.iter().map(|a| a.lo[dim]).collect();
    let mut hi: Vec<A> = sample.iter().map(|a| a.hi[dim]).collect();
    lo.sort_unstable();
    hi.sort_unstable();
    let n = lo.len();
    let mut cuts: Vec<A> = Vec::with_capacity(fan);
    for k in 1..fan {
        // Around the k-th quantile, where a box begins that is not the first.
        let window = (2 * k - 1) * n / (2 * fan)..((2 * k + 1) * n / (2 * fan)).min(n);
        let middle = k * n / fan;
        let across = |i: usize| i - hi.partition_point(|h| *h < lo[i]).min(i);
        let at =
            window.filter(|i| *i > 0 && lo[i - 1] < lo[*i]).min_by_key(|i| (across(*i), i.abs_diff(middle)));
        if let Some(at) = at {
            cuts.push(lo[at]);
        }
    }
    cuts.dedup();
    cuts
}

fn cut<A: Coordinate>(items: Vec<Item<A>>, dim: usize, values: &[A]) -> Option<Node<A>> {
    let mut cuts = [A::MAX; FAN - 1];
    cuts[..values.len()].copy_from_slice(values);
    let changes = ChangeCount::new(items.len());
    let mut cut = Cut { dim, len: values.len(), cuts, children: [const { None }; FAN], wide: None, changes };
    let all = items.len();
    let mut children: [Vec<Item<A>>; FAN] = [const { Vec::new() }; FAN];
    let mut wide = Vec::new();
    for item in items {
        match cut.place(&item.area) {
            Some(child) => children[child].push(item),
            None => wide.push(item),
        }
    }
    // One part has all items, which the sample did not show.
    if wide.len() == all {
        return Some(group(wide));
    }
    if let Some(whole) = children.iter_mut().find(|c| c.len() == all) {
        return Some(group(std::mem::take(whole)));
    }
    for (child, items) in cut.children.iter_mut().zip(children) {
        *child = build(items);
    }
    let best = wide.iter().map(|i| i.best).min();
    cut.wide = best.zip(build(wide));
    Some(Node::Cut(Arc::new(cut)))
}

/// Divides by the coordinate that has the most values; there is one with two, since no two boxes
/// are the same.
fn group<A: Coordinate>(mut items: Vec<Item<A>>) -> Node<A> {
    let changes = ChangeCount::new(items.len());
    let values = |by: usize| {
        let mut values: Vec<A> = items.iter().map(|i| i.area.coordinate(by)).collect();
        values.sort_unstable();
        values.dedup();
        values.len()
    };
    let by = (0..2 * DIMS).max_by_key(|by| values(*by)).unwrap_or(0);
    items.sort_by_key(|i| i.area.coordinate(by));
    let share = items.len().div_ceil(GROUP.min(items.len().div_ceil(LEAF / 2)));
    let mut members: Vec<Member<A>> = Vec::with_capacity(GROUP);
    while !items.is_empty() {
        // Equal coordinates stay together: the coordinate says where an item is.
        let from = items[0].area.coordinate(by);
        let last = items[share.min(items.len()) - 1].area.coordinate(by);
        let end = items.partition_point(|i| i.area.coordinate(by) <= last);
        let rest = items.split_off(end);
        let mut around = items[0].area;
        items.iter().for_each(|i| around.extend(&i.area));
        if let Some(best) = items.iter().map(|i| i.best).min() {
            members.push(Member { best, around, from, node: build(std::mem::replace(&mut items, rest)) });
        }
    }
    members.sort_by_key(|m| m.best);
    Node::Group(Arc::new(Group { by, members, changes }))
}
