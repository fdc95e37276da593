//! What is done with a packet that leaves: the SPD's answer, and the SA of its policy (RFC 4301 section 5.1).

use ironswan_wire::sadb::Action;
use ironswan_wire::selector::PacketSelector;

use crate::counters::DropReason;
use crate::engine::Snapshot;
use crate::flow::Verdict;

/// Asks the SPD, and the SAD for the policy's SA.
pub(super) fn decide(snap: &Snapshot, packet: &PacketSelector) -> Verdict {
    match snap.spd.lookup_out(packet) {
        None => Verdict::Drop(DropReason::OutNoPolicy),
        Some(Action::Bypass) => Verdict::Drop(DropReason::OutPolBypass),
        Some(Action::Discard) => Verdict::Drop(DropReason::OutPolBlock),
        Some(Action::Protect(reqid)) => match snap.outbound.get(&reqid.0) {
            None => Verdict::Acquire(reqid),
            // The newest first: an older one is left only until its DELETE.
            Some(list) => match list.iter().rev().find(|sa| sa.state.selectors.covers_out(packet)) {
                Some(sa) => Verdict::Sa(sa.clone()),
                None => Verdict::Drop(DropReason::OutStateMismatch),
            },
        },
    }
}
