//! Words of the table's text: directions, views of a packet, address families, ranges of addresses.

use ironswan_wire::selector::AddrRange;

use crate::guard::plan::cut::{List, Outcome, Step};

/// The direction of the packets of a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum Flow {
    /// Towards the peer's side.
    Out,
    /// From the peer's side.
    In,
}

/// How much of a packet the rules of a chain may read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(in super::super) enum View {
    /// Protocol, and ports where the protocol has them.
    Ports,
    /// Protocol.
    Protocol,
    /// Addresses.
    Addresses,
}

/// True when a list has anything to say about packets of this direction.
pub(in super::super) fn asks(list: &List, flow: Flow) -> bool {
    match flow {
        Flow::Out => true,
        Flow::In => list.steps.iter().any(|s| outcome(s, flow) == Outcome::Guarded),
    }
}

/// Inbound, what is not guarded passes.
pub(in super::super) fn outcome(step: &Step, flow: Flow) -> Outcome {
    match (step.outcome, flow) {
        (Outcome::Steered, Flow::In) => Outcome::Passed,
        (outcome, _) => outcome,
    }
}

/// The digit by which nft and our names tell address families apart.
pub(super) fn number(ipv6: bool) -> u8 {
    if ipv6 { 6 } else { 4 }
}

/// The type of an address in sets and maps of nft.
pub(super) fn kind(ipv6: bool) -> &'static str {
    if ipv6 { "ipv6_addr" } else { "ipv4_addr" }
}

/// A range of addresses as nft reads it.
pub(super) fn text(range: &AddrRange) -> String {
    match range.prefix_len() {
        Some(_) => range.to_string(),
        None => format!("{}-{}", range.start(), range.end()),
    }
}
