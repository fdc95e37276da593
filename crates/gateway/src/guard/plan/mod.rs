//! Steering and the guard: what the kernel is told so that a packet which policy protects goes into
//! the tunnel, leaves in clear never, and comes in clear never. Pure: policies in, a [`Plan`] out;
//! `guard` and `install` carry it out.
//!
//! ```text
//! nft (table inet ironswan)                     ip rule                 table 220
//!                                               218 l3mdev (with VRFs)
//! prerouting, output:  set steer_mark, or mark  219 fwmark steer_mark   10.2.0.0/16 dev ipsec0
//! postrouting:         PROTECT leaves elsewhere 220 not fwmark mark     unreachable 10.2.0.0/16
//!                      than by ipsec0: drop         (not to 0.0.0.0/0)  throw 10.1.0.0/16
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
//! | `input` | policies, negotiated policies, settings |
//! | `output` | the plan: table, rules, routes, lists |
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
mod input;
#[cfg(test)]
mod kernel_tests;
#[cfg(test)]
mod model_tests;
mod narrowed;
mod nft;
mod output;
mod quoted;
#[cfg(test)]
mod tests;
mod ways;

use std::sync::Arc;

use ironswan_io::route::{Destination, Rule};
use ironswan_wire::selector::AddrRange;

pub use input::{Negotiated, Policy, Settings, Verdict, first_covering};
pub use narrowed::Narrowing;
use nft::Flow;
pub use output::{Plan, Serving, TABLE, Way};

/// Makes the plan of the policies of the configuration alone.
pub fn plan(settings: &Settings, policies: &[Policy]) -> Plan {
    plan_with(settings, policies, &Negotiated::default())
}

/// Makes the plan of the policies of the configuration and of those that were negotiated.
pub fn plan_with(settings: &Settings, policies: &[Policy], from_peers: &Negotiated<'_>) -> Plan {
    let ways = ways::ways(settings, policies, from_peers.narrowed);
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
        let cuts = [false, true].map(|ipv6| cut::cut(policies, from_peers, ipv6, false));
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
