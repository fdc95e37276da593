//! Input of the plan: policies, those of them that were negotiated, and settings of the machine.

use ironswan_wire::selector::{Precedence, TrafficSelector};

/// How the kernel treats packets that a policy covers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Verdict {
    /// Into the tunnel, or nowhere.
    Protect,
    /// Nowhere. Goes to the device too, where it is dropped and counted.
    Discard,
    /// As if there were no policy.
    Bypass,
}

/// One policy, for both directions.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Policy {
    /// Name of the child, `connection.child`. The own sides of one child are no holes in another
    /// child's policies.
    pub name: String,
    /// How the kernel treats the policy's packets.
    pub verdict: Verdict,
    /// Our side.
    pub local: TrafficSelector,
    /// The peer's side.
    pub remote: TrafficSelector,
    /// Policies with a lower number are matched first. 0: the order follows from how specific the
    /// selectors are, as in the engine's SPD.
    pub priority: u32,
    /// For selectors that a peer narrowed: how many bits the selectors of the configuration leave
    /// open. 0: these are the selectors of the configuration.
    pub open: u32,
    /// True: clear packets that match are dropped, on the way out and in (PROTECT and DISCARD).
    /// False (`guard = no`): packets are only steered.
    pub guard: bool,
}

impl Policy {
    /// The policy's place in the order of the engine's SPD. Of equal policies the engine takes the
    /// older one.
    pub(crate) fn precedence(&self) -> Precedence {
        let protect = self.verdict == Verdict::Protect;
        Precedence::new(&self.local, &self.remote, self.priority, self.open, protect)
    }
}

/// The policy that comes first of those that are given, with what belongs to it. Of equal ones the
/// first.
pub fn first_covering<'a, T>(all: impl Iterator<Item = (&'a Policy, T)>) -> Option<(&'a Policy, T)> {
    all.min_by_key(|(p, _)| p.precedence())
}

/// Device, marks and ports: the input of the plan that is not policies.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Settings {
    /// The TUN device.
    pub device: String,
    /// Mark of the gateway's own outer packets (all of these bits). No rule steers packets with
    /// this mark; the table also sets it on packets that no policy covers.
    pub mark: u32,
    /// Mark (one bit) of packets that a policy covers.
    pub steer_mark: u32,
    /// UDP ports of IKE and of UDP encapsulation, which the guard lets in and out as it does ESP.
    pub ports: [u16; 2],
    /// True when there are VRFs. Packets in a VRF are left to the VRF's table, and no policy covers
    /// them.
    pub vrf: bool,
    /// False: there is no nft table. Routes and rules alone steer, so no policy can be finer than a
    /// destination prefix.
    pub nft: bool,
}

/// Policies that were negotiated, besides those of the configuration.
#[derive(Clone, Copy, Default)]
pub struct Negotiated<'a> {
    /// For each policy by its index: true when it was negotiated, and is not in the configuration.
    /// A missing entry means false.
    pub by_index: &'a [bool],
    /// Policies that were narrowed from policies of the plan, which close all that these do
    /// ([`Narrowing`](super::Narrowing)).
    pub narrowed: &'a [Policy],
}

impl Negotiated<'_> {
    /// True when the policy with this index was negotiated.
    pub(super) fn is_negotiated(&self, policy: usize) -> bool {
        self.by_index.get(policy).copied().unwrap_or(false)
    }
}
