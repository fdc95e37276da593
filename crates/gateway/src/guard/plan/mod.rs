//! Steering and the guard: what the kernel is told so that a packet which policy protects goes into
//! the tunnel, leaves in clear never, and comes in clear never. Pure: policies in, a [`Plan`] out;
//! `guard` and `install` carry it out.
//!
//! ```text
//! nft (table inet ironswan)                       ip rule                     table 220
//!                                                 218 l3mdev (with VRFs)
//! prerouting, output:  set steer_mark, or mark    219 fwmark steer_mark       10.2.0.0/16 dev ipsec0
//! postrouting:         PROTECT leaves elsewhere   220 not fwmark mark         unreachable 10.2.0.0/16
//!                      than by ipsec0: drop           (not to 0.0.0.0/0)      throw 10.1.0.0/16
//! input, forward:      PROTECT comes from
//!                      elsewhere than ipsec0: drop
//!
//! ingress of every interface but ipsec0: a program drops the same as input and forward
//! ```
//!
//! `steer_mark` and `mark` are keys of `ironswan.conf` and fields of [`Settings`].
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `from_config` | policies and settings from the configuration |
//! | `ways` | destinations of table 220 |
//! | `cut/` | overlapping policies cut into disjoint intervals with short lists |
//! | `narrowed` | policies that peers narrowed: planned by destination alone |
//! | `nft/` | the text of the nft table |
//! | `quoted` | rules for ICMP errors, which go the way of the packet that they quote |
//! | `ingress` | the lists for the program at the ingress |
//!
//! Two ways lead into the tunnel, so that losing one is not a leak. Marks are exact: they know
//! source, protocol, port and holes. The rule without them catches every destination that some
//! policy protects; what no policy covers is exempted from it by a mark (the outer packets' own),
//! so that without nft such a packet is dropped at `ipsec0`, not sent in clear.

mod cut;
pub mod from_config;
mod ingress;
#[cfg(test)]
mod kernel_tests;
#[cfg(test)]
mod model_tests;
mod narrowed;
mod nft;
mod quoted;
#[cfg(test)]
mod tests;
mod ways;

use std::sync::Arc;

use ironswan_io::ingress::Filter;
use ironswan_io::route::{Destination, Rule};
use ironswan_wire::selector::{AddrRange, Precedence, TrafficSelector};

pub use narrowed::Narrowing;
use nft::Flow;

/// The table's name; its family is inet.
pub const TABLE: &str = "ironswan";

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

/// The kind of route that a destination has in table 220.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub enum Way {
    /// To the device. An unreachable route stands below, for when the device is gone.
    Tunnel,
    /// Back to the other tables: our own side inside a wider remote selector, and BYPASS of whole
    /// prefixes.
    Throw,
}

/// Everything that the kernel is told: table, lists for the ingress, rules and routes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Plan {
    /// The text of the whole table for `nft -f`, which replaces the former table atomically; its
    /// counters are 0. `None` without nft. If no policy protects anything, the text only removes
    /// the table.
    pub nft: Option<String>,
    /// Lists of the program that drops packets where they arrive, without nft's help; the addresses
    /// of this machine are added later. Empty without nft, because then there is no guard.
    pub ingress: Arc<Filter>,
    /// Rules, for each address family in which a policy protects something.
    pub rules: Vec<Rule>,
    /// Destinations of table 220, in order, each once.
    pub routes: Vec<(Destination, Way)>,
    /// Policies, or parts of them, that could not be expressed, with the remedy.
    pub warnings: Vec<String>,
    /// Routes and chains of each policy: first the policies in the order in which they were given,
    /// then the narrowed ones. A narrowed policy has the chains of the policy from which it was
    /// narrowed.
    pub serving: Vec<Serving>,
}

/// The routes and chains that serve one policy.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Serving {
    /// Destinations of the policy in table 220.
    pub routes: Vec<(Destination, Way)>,
    /// Chains of the table that recognize the policy's packets on their way out; at most the first
    /// few. Empty when other policies come first everywhere.
    pub chains: Vec<String>,
}

/// Policies that were negotiated, besides those of the configuration.
#[derive(Clone, Copy, Default)]
pub struct Brought<'a> {
    /// For each policy by its index: true when it was negotiated, and is not in the configuration.
    /// A missing entry means false.
    pub negotiated: &'a [bool],
    /// Policies that were narrowed from policies of the plan, which close all that these do
    /// ([`Narrowing`]).
    pub narrowed: &'a [Policy],
}

impl Brought<'_> {
    fn is_negotiated(&self, policy: usize) -> bool {
        self.negotiated.get(policy).copied().unwrap_or(false)
    }
}

/// Makes the plan of the policies of the configuration alone.
pub fn plan(settings: &Settings, policies: &[Policy]) -> Plan {
    plan_with(settings, policies, &Brought::default())
}

/// Makes the plan of the policies of the configuration and of those that were negotiated.
pub fn plan_with(settings: &Settings, policies: &[Policy], brought: &Brought<'_>) -> Plan {
    let ways = ways::ways(settings, policies, brought.narrowed);
    let mut plan = Plan {
        routes: ways.routes.iter().map(|(d, w)| (*d, *w)).collect(),
        warnings: ways.warnings,
        serving: ways
            .of_policy
            .into_iter()
            .map(|to| Serving {
                routes: to.into_iter().filter_map(|d| ways.routes.get(&d).map(|w| (d, *w))).collect(),
                chains: Vec::new(),
            })
            .collect(),
        ..Plan::default()
    };
    for ipv6 in [false, true] {
        if plan.routes.iter().any(|(d, way)| d.ip.is_ipv6() == ipv6 && *way == Way::Tunnel) {
            if settings.vrf {
                plan.rules.push(Rule::vrf(ipv6));
            }
            if settings.nft {
                plan.rules.push(Rule::marked(ipv6, settings.steer_mark));
            }
            plan.rules.push(Rule::fallback(ipv6, settings.mark, settings.nft));
        }
    }
    if settings.nft {
        let cuts = [false, true].map(|ipv6| cut::cut(policies, brought, ipv6, false));
        for (cut, ipv6) in cuts.iter().zip([false, true]) {
            for (serving, lists) in plan.serving.iter_mut().zip(&cut.serving) {
                serving.chains.extend(lists.iter().map(|l| nft::chain(Flow::Out, ipv6, *l)));
            }
            for name in &cut.without_holes {
                plan.warnings.push(format!(
                    "{name}: has too many local networks inside its remote selectors; they cannot reach each other, nor this \
                     machine; let it have fewer selectors"
                ));
            }
            if cut.closed {
                plan.warnings.push(format!(
                    "steering: the IPv{} selectors overlap in too many ways to tell all of them apart; where they do, nothing \
                     travels in clear between the local and the remote addresses, perhaps not even what a child with mode = pass \
                     names; let children have fewer selectors that overlap",
                    if ipv6 { 6 } else { 4 }
                ));
            }
        }
        plan.ingress = Arc::new(ingress::filter(settings, [&cuts[0], &cuts[1]]));
        let own = [false, true].map(|ipv6| below_default(&plan.routes, ipv6));
        plan.nft = Some(nft::table(settings, [&cuts[0], &cuts[1]], [&own[0], &own[1]]));
    }
    plan
}

/// Ranges that table 220 leads back to the other tables although it has a default route to the
/// device. The ranges are disjoint.
fn below_default(routes: &[(Destination, Way)], ipv6: bool) -> Vec<AddrRange> {
    let of =
        |way: Way| routes.iter().filter(move |(d, w)| d.ip.is_ipv6() == ipv6 && *w == way).map(|(d, _)| d);
    if !of(Way::Tunnel).any(|d| d.prefix_len == 0) {
        return Vec::new();
    }
    // Not where a longer prefix leads into the tunnel again.
    let again = |range: &AddrRange, len: u8| {
        let first = routes.partition_point(|(d, _)| d.ip < range.start());
        routes
            .iter()
            .skip(first)
            .take_while(|(d, _)| range.contains(d.ip))
            .any(|(d, w)| *w == Way::Tunnel && d.prefix_len > len)
    };
    let mut out: Vec<AddrRange> = Vec::new();
    // In order of address, wider ones first: of nested prefixes the first one holds.
    for (range, len) in
        of(Way::Throw).filter_map(|d| Some((AddrRange::prefix(d.ip, d.prefix_len)?, d.prefix_len)))
    {
        if !out.last().is_some_and(|before| cut::inside(&range, before)) && !again(&range, len) {
            out.push(range);
        }
    }
    out
}
