//! One policy of the SPD, and the order in which policies are matched.

use ironswan_wire::sadb::{Action, PolicyAdd};
use ironswan_wire::selector::Precedence;

/// Coordinate of ports that cannot be seen: one more than the 65,536 values that can.
pub(super) const UNSEEN: u32 = 65_536;

/// The order of policies: the smaller is matched first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Rank {
    precedence: Precedence,
    /// Then the older entry of the configuration first.
    age: u64,
    /// Of what was narrowed from one entry, the more specific first.
    open: u32,
    /// Then the older first.
    serial: u64,
}

impl Rank {
    pub(super) fn new(p: &PolicyAdd, serial: u64) -> Self {
        let protect = matches!(p.action, Action::Protect(_));
        Self {
            precedence: Precedence::new(&p.local, &p.remote, p.priority, p.entry.open, protect),
            age: p.entry.age,
            open: p.local.open_bits() + p.remote.open_bits(),
            serial,
        }
    }
}

/// One policy, counted.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    pub(crate) policy: PolicyAdd,
    pub(super) rank: Rank,
    pub(crate) count: u32,
}

/// Equal but for the name.
pub(super) fn same(a: &PolicyAdd, b: &PolicyAdd) -> bool {
    (a.action, a.priority, a.entry) == (b.action, b.priority, b.entry)
        && (a.local, a.remote) == (b.local, b.remote)
}
