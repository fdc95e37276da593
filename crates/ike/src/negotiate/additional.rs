//! Additional key exchanges in a negotiation (RFC 9370 section 2.2.1): their methods are all
//! different, and IKE_INTERMEDIATE is announced with them.
//!
//! ```text
//! ADDKE1: A or B     A is taken for ADDKE1 -> nothing is left for ADDKE2
//! ADDKE2: A          so ADDKE1 has B
//! ```
//! To find out whether a choice leaves room for the others, the methods are placed one after the
//! other. A method that is in use moves on when the type that has it can have another one (a
//! bipartite matching by augmenting paths). Types that may be NONE need no method.

use std::borrow::Cow;

use ironswan_wire::iana::{KeId, TransformType};
use ironswan_wire::proposal::{Proposal, Transform};

use super::{KINDS, default, has, is_none, method};

/// True when some proposal has transforms of additional key exchanges: whoever sends them in
/// IKE_SA_INIT announces IKE_INTERMEDIATE, also when they say NONE (RFC 9370 section 2.2.1).
pub(crate) fn has_additional(proposals: &[Proposal]) -> bool {
    !proposals.iter().all(lacks_additional)
}

fn lacks_additional(p: &Proposal) -> bool {
    !p.transforms.iter().any(|t| matches!(t, Transform::AddKe(..)))
}

/// The proposals of an IKE_SA_INIT request that count. Without IKE_INTERMEDIATE "the peers MUST
/// treat any ADDKE Transform Types in the IKE_SA_INIT exchange messages as unknown transform types
/// and skip the proposals they appear in" (RFC 9370 section 2.2.1).
pub(crate) fn counting(offered: &[Proposal], intermediate: bool) -> Cow<'_, [Proposal]> {
    match intermediate || !has_additional(offered) {
        true => Cow::Borrowed(offered),
        false => offered.iter().filter(|p| lacks_additional(p)).cloned().collect(),
    }
}

/// True for a transform of an additional key exchange that cannot take place beside these: with a
/// method that is chosen already, as all have to be different (RFC 9370 section 2.2.1), or without
/// a first key exchange.
pub(super) fn is_barred<'a>(mut chosen: impl Iterator<Item = &'a Transform>, t: &Transform) -> bool {
    let bars = |id| move |c: &Transform| method(c) == Some(id) || *c == Transform::Ke(KeId::NONE);
    matches!(t, Transform::AddKe(..)) && method(t).is_some_and(|id| chosen.any(bars(id)))
}

/// Methods of the types that are left, by the place of the type.
struct Placing<'a, F> {
    ours: &'a Proposal,
    theirs: &'a Proposal,
    left: &'a [TransformType],
    so_far: F,
    placed: [Option<KeId>; KINDS],
}

impl<'a, F, I> Placing<'a, F>
where
    F: Fn() -> I,
    I: Iterator<Item = &'a Transform>,
{
    /// The transforms of both that can stand beside those that are chosen.
    fn common(&self, kind: TransformType) -> impl Iterator<Item = Transform> {
        let meant = default(kind).filter(|_| self.ours.of_type(kind).next().is_none());
        let all = self.ours.of_type(kind).copied().chain(meant);
        all.filter(move |t| has(self.theirs, kind, t) && !is_barred((self.so_far)(), t))
    }

    /// Gives the type at this place a method. `tried`: places that have been asked to move, one bit
    /// each.
    fn place(&mut self, at: usize, tried: &mut u16) -> bool {
        let Some(&kind) = self.left.get(at) else { return false };
        if self.common(kind).any(|t| is_none(&t)) {
            return true;
        }
        for nth in 0.. {
            let Some(id) = self.common(kind).filter_map(|t| method(&t)).nth(nth) else { break };
            let owner = self.placed.iter().position(|p| *p == Some(id));
            let moves = match owner {
                None => true,
                Some(owner) if *tried & 1 << owner != 0 => false,
                Some(owner) => {
                    *tried |= 1 << owner;
                    self.place(owner, tried)
                }
            };
            if moves {
                self.placed[at] = Some(id);
                return true;
            }
        }
        false
    }
}

/// True when each type of key exchange that is left can have a method beside those of `so_far`, all
/// of them different. Allocates nothing.
pub(super) fn leaves_room<'a, I: Iterator<Item = &'a Transform>>(
    ours: &'a Proposal,
    theirs: &'a Proposal,
    left: &'a [TransformType],
    so_far: impl Fn() -> I,
) -> bool {
    // The usual case, which is to cost little.
    if !ours.transforms.iter().any(|t| matches!(t, Transform::AddKe(..)) && !is_none(t)) {
        return true;
    }
    let mut placing = Placing { ours, theirs, left, so_far, placed: [None; KINDS] };
    (0..left.len().min(KINDS)).all(|at| placing.place(at, &mut (1 << at)))
}
