//! Details of a negotiation: the nearest pair of proposals, and lists of what a peer has sent, cut
//! to a bounded length.

use super::shown::displayed;
use ironswan_wire::iana::TransformType;
use ironswan_wire::proposal::{Proposal, Transform};
use ironswan_wire::selector::TrafficSelector;

/// Limits how many proposals, selectors or transforms one list shows.
const SOME: usize = 16;

/// One type of transform in which two proposals have nothing in common.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Difference {
    /// Type of the transforms.
    pub kind: TransformType,
    /// Transforms of this type that the peer has proposed.
    pub received: Vec<Transform>,
    /// Transforms of this type that are configured. The peer would have to propose one of them.
    pub configured: Vec<Transform>,
}

impl std::fmt::Display for Difference {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (received, configured) = (transforms(&self.received), transforms(&self.configured));
        write!(f, "{}: received {received}, configured {configured}", self.kind)
    }
}

/// The two proposals that differ in the fewest types of transforms.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Nearest {
    /// The peer's proposal.
    pub received: Proposal,
    /// Our proposal.
    pub configured: Proposal,
    /// Types of transforms without a common one.
    pub differ: Vec<Difference>,
}

impl std::fmt::Display for Nearest {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let differ: Vec<_> = self.differ.iter().map(ToString::to_string).collect();
        let (received, configured) = (&self.received, &self.configured);
        write!(f, "received {received} and configured {configured} differ in {}", differ.join("; "))
    }
}

/// Transforms of one type, separated by `|`.
fn transforms(transforms: &[Transform]) -> String {
    match transforms {
        [] => "nothing".to_owned(),
        some => some.iter().take(SOME).map(ToString::to_string).collect::<Vec<_>>().join("|"),
    }
}

/// Proposals as charon lists them: the first ones, and the number of the others.
pub fn list_proposals(proposals: &[Proposal]) -> String {
    let mut text = proposals.iter().take(SOME).map(ToString::to_string).collect::<Vec<_>>().join(", ");
    if proposals.len() > SOME {
        text.push_str(&format!(", and {} more", proposals.len() - SOME));
    }
    text
}

/// Selectors as charon lists them, separated by spaces: the first ones, and the number of the
/// others.
pub fn list_selectors(ts: &[TrafficSelector]) -> String {
    let mut text = ts.iter().take(SOME).map(ToString::to_string).collect::<Vec<_>>().join(" ");
    if ts.len() > SOME {
        text.push_str(&format!(" and {} more", ts.len() - SOME));
    }
    text
}

displayed!(Nearest);

#[cfg(test)]
mod tests {
    use ironswan_wire::selector::AddrRange;

    use super::*;

    #[test]
    fn of_many_selectors_the_first_are_listed() {
        let net = |n: u8| {
            let range = AddrRange::prefix([10, 0, n, 0].into(), 24).unwrap();
            TrafficSelector::addresses(range)
        };
        let many: Vec<_> = (0..255).map(net).collect();
        let first = list_selectors(&many[..SOME]);
        assert!(first.starts_with("10.0.0.0/24 10.0.1.0/24 ") && first.ends_with(" 10.0.15.0/24"), "{first}");
        assert_eq!(list_selectors(&many), format!("{first} and 239 more"));
    }
}
