//! The decision about a packet that somebody describes, with the policy and the SA on which it
//! rests: for people who ask why a packet does not pass. It is made by the same functions as that
//! for packets, from the same snapshot; no packet is counted by it.
//!
//! Not here: fragments, and what only the packet itself shows (martian addresses, ICMP errors,
//! headers that transport mode cannot keep).

use std::sync::Arc;

use ironswan_wire::sadb::{Mode, PolicyAdd, ReqId};
use ironswan_wire::selector::PacketSelector;

use crate::counters::DropReason;
use crate::engine::{Engine, SaInfo};
use crate::flow::FlowKey;
use crate::pipeline::check_policy;
use crate::sa::{InSa, OutSa};
use crate::snapshot::Snapshot;
use crate::verdict::{Verdict, decide};

/// Limits the SAs that are named because they do not cover a packet.
const MAX_OTHERS: usize = 4;

/// The decision about one packet.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Decision {
    /// The policy that covers the packet first.
    pub policy: Option<PolicyAdd>,
    /// The SA that carries the packet, or that would if nothing were in the way.
    pub sa: Option<SaInfo>,
    /// The largest inner packet that fits the path of `sa`, in bytes; `None` when that is not
    /// known, and for packets that arrive.
    pub inner_max: Option<u32>,
    /// SAs of the policy that do not cover the packet; the newest first, at most four.
    pub others: Vec<SaInfo>,
    /// The reason for which the packet would be dropped. `None` with neither a reason nor an SA:
    /// a packet that leaves asks for an SA and waits for it; no SA could bring a packet that
    /// arrives.
    pub drop: Option<DropReason>,
}

impl Engine {
    /// The decision about a packet that leaves.
    pub fn decide_out(&self, packet: &PacketSelector) -> Decision {
        let snap = self.snapshot();
        let mut decision = Decision { policy: snap.spd.policy_out(packet).cloned(), ..Decision::default() };
        match decide(&snap, &FlowKey::of_selector(packet)) {
            Verdict::Sa(place) => match snap.places.get(place) {
                Some(sa) => decision.carried(sa, packet),
                None => decision.drop = Some(DropReason::OutNoStates),
            },
            Verdict::Acquire(_) => {}
            Verdict::AsFirstFragment(reason) | Verdict::Drop(reason) => {
                decision.drop = Some(reason);
                if let Some(reqid) = decision.policy.as_ref().and_then(|p| p.action.reqid()) {
                    let all = snap.outbound.get(reqid.0).map(|l| l.as_slice()).unwrap_or_default();
                    decision.others = all.iter().rev().take(MAX_OTHERS).map(|s| Self::out_info(s)).collect();
                }
            }
        }
        decision
    }

    /// The decision about a packet that comes out of an SA. Of several SAs that could bring it, the
    /// one that was used last is named.
    pub fn decide_in(&self, packet: &PacketSelector) -> Decision {
        let snap = self.snapshot();
        let policy = snap.spd.policy_in(packet);
        let reqid = policy.and_then(|p| p.action.reqid());
        let fit = snap.inbound.values().filter(|sa| sa.state.parameters.selectors.covers_in(packet));
        let first = snap.spd.lookup_in(packet);
        let mut fit: Vec<(&Arc<InSa>, Result<(), DropReason>)> =
            fit.map(|sa| (sa, check_policy(first, sa))).collect();
        // First those that may bring it, then the one that was used last.
        fit.sort_by_key(|(sa, may)| (may.is_err(), std::cmp::Reverse(sa.state.usage.stats().last_use)));
        let mut decision = Decision { policy: policy.cloned(), ..Decision::default() };
        match fit.first() {
            Some((sa, may)) => {
                let expired = sa.state.usage.hard_limit_reached(&sa.state.parameters.lifetime);
                decision.drop = may.err().or(expired.then_some(DropReason::InStateExpired));
                decision.sa = Some(Self::in_info(sa));
            }
            None => decision.others = others_in(&snap, reqid),
        }
        if decision.sa.is_none() && !decision.others.is_empty() {
            decision.drop = Some(DropReason::InStateMismatch);
        }
        decision
    }
}

impl Decision {
    /// This SA carries the packet, unless something of the SA is in the way.
    fn carried(&mut self, sa: &OutSa, packet: &PacketSelector) {
        let state = &*sa.state;
        let foreign = state.parameters.mode == Mode::Transport && !sa.is_between((packet.src, packet.dst));
        self.drop = if foreign {
            Some(DropReason::OutTransport)
        } else if state.is_used_up() {
            Some(DropReason::OutStateSeqError)
        } else if state.usage.hard_limit_reached(&state.parameters.lifetime) {
            Some(DropReason::OutStateExpired)
        } else {
            None
        };
        self.inner_max = sa.inner_max();
        self.sa = Some(Engine::out_info(sa));
    }
}

/// Inbound SAs of a policy.
fn others_in(snap: &Snapshot, reqid: Option<ReqId>) -> Vec<SaInfo> {
    let of = |sa: &&Arc<InSa>| Some(sa.state.reqid) == reqid;
    snap.inbound.values().filter(of).take(MAX_OTHERS).map(|sa| Engine::in_info(sa)).collect()
}
