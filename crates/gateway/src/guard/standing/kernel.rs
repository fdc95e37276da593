//! Single rules and routes in the kernel: adopted from an earlier daemon, set, compared with the
//! record, removed.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::sync::Arc;

use ironswan_io::Error as IoError;
use ironswan_io::route::{Destination, PROTOCOL, Route, RouteKind, Rule, TABLE, UNREACHABLE_METRIC};

use super::StandingGuard;
use crate::diagnosis::of_kernel;
use crate::guard::plan::Way;
use crate::guard::{has_vrf, no_such_family, renewing, standing_route};
use crate::network::Kernel;

impl StandingGuard {
    /// Takes over the rules and routes of an earlier daemon. They stay until the first plan says
    /// otherwise; routes to a device are deleted, since that device went with its daemon.
    ///
    /// # Errors
    /// The kernel does not show its rules and routes, or refuses to delete one.
    pub fn adopt(&mut self, kernel: &mut dyn Kernel) -> Result<(), IoError> {
        // Rules and routes that cannot be shown may stand.
        self.adopted = true;
        let rules = kernel.rules()?;
        self.settings.vrf = has_vrf(&rules);
        for rule in rules {
            if rule.protocol == PROTOCOL && (rule.table == TABLE || rule.l3mdev) {
                self.rules.push(rule);
            }
        }
        for route in kernel.routes()?.into_iter().filter(|r| r.protocol == PROTOCOL) {
            match way_of(&route) {
                Some(known) => {
                    self.routes.insert(known);
                }
                None if route.kind != RouteKind::Other => kernel.delete_route(&route)?,
                None => {}
            }
        }
        self.adopted = !self.rules.is_empty() || !self.routes.is_empty();
        self.wanted += 1;
        Ok(())
    }

    /// Compares the record with the rules and routes that the kernel has. Missing ones leave the
    /// record, so that [`Self::close`] restores them. Returns what was missing, in words.
    pub fn compare(&mut self, rules: &[Rule], routes: &[Route]) -> Vec<String> {
        let vrf = has_vrf(rules);
        if vrf != self.settings.vrf {
            self.settings.vrf = vrf;
            self.wanted += 1;
        }
        let mut missing = Vec::new();
        // Rules of a family that the kernel does not have were never there.
        let seen = |ipv6: bool| rules.iter().any(|r| r.ipv6 == ipv6);
        self.rules.retain(|rule| {
            let there = rules.contains(rule) || !seen(rule.ipv6) && rule.ipv6;
            if !there {
                missing.push(format!("rule {rule}"));
            }
            there
        });
        let actual: BTreeSet<(Destination, Way)> = routes.iter().filter_map(way_of).collect();
        self.routes.retain(|known| {
            let there = actual.contains(known);
            if !there {
                missing.push(standing_route(known.0, known.1).to_string());
            }
            there
        });
        // Another program made a hole with our protocol number.
        for extra in actual.difference(&self.routes.clone()) {
            if self.ways.get(&extra.0) != Some(&extra.1) {
                self.routes.insert(*extra);
                missing.push(format!("no route {}", standing_route(extra.0, extra.1)));
            }
        }
        if !missing.is_empty() {
            self.wanted += 1;
        }
        missing
    }

    /// Removes every rule, route and program at the ingress: at the end with `guard = no`, and
    /// after a failed start where nothing stood before.
    pub fn clear(&mut self, kernel: &mut dyn Kernel) {
        for rule in std::mem::take(&mut self.rules) {
            if let Err(e) = kernel.delete_rule(&rule) {
                self.problems.say(of_kernel(&e));
            }
        }
        for (to, way) in std::mem::take(&mut self.routes) {
            if let Err(e) = kernel.delete_route(&standing_route(to, way)) {
                self.problems.say(of_kernel(&e));
            }
        }
        self.plan.ingress = Arc::default();
        if let Some(thread) = &self.ingress {
            thread.want(&self.plan.ingress);
            thread.settle();
        }
        self.ingress_kept();
    }

    /// Rules and routes of ours that the kernel has, as far as is known.
    pub(crate) fn in_kernel(&self) -> (Vec<Rule>, BTreeSet<(Destination, Way)>) {
        (self.rules.clone(), self.routes.clone())
    }

    /// Rules or routes of ours were in the kernel before this process.
    pub fn adopted(&self) -> bool {
        self.adopted
    }

    pub(super) fn add_rule(&mut self, kernel: &mut dyn Kernel, rule: Rule) {
        if self.rules.contains(&rule) {
            return;
        }
        let set = match kernel.add_rule(&rule) {
            // A kernel without IPv6 has no rules for it, and nothing to steer.
            Err(e) if rule.ipv6 && no_such_family(&e) => Ok(()),
            other => other,
        };
        if self.tried(format!("rule {rule}"), set) {
            self.rules.push(rule);
        }
    }

    pub(super) fn set_route(&mut self, kernel: &mut dyn Kernel, to: Destination, way: Way) {
        if self.routes.contains(&(to, way)) {
            return;
        }
        let route = standing_route(to, way);
        let set = match kernel.set_route(&route) {
            Err(e) if to.ip.is_ipv6() && no_such_family(&e) => Ok(()),
            other => other,
        };
        if self.tried(route.to_string(), set) {
            self.routes.insert((to, way));
            self.renew |= to.ip.is_ipv6();
        }
    }

    /// Makes every IPv6 socket look its route up again.
    pub(super) fn renew_ipv6(&mut self, kernel: &mut dyn Kernel) {
        let Some(rule) = renewing(&self.plan.rules) else { return };
        let renewed = match kernel.add_rule(&rule).and_then(|()| kernel.delete_rule(&rule)) {
            Err(e) if no_such_family(&e) => Ok(()),
            other => other.map(|_| ()),
        };
        if self.tried("renewing the routes of IPv6 sockets".to_owned(), renewed) {
            self.renew = false;
        } else {
            // The rule may stand. It is not the plan's, so the next pass removes it.
            self.rules.push(rule);
        }
    }

    pub(super) fn remove_route(&mut self, kernel: &mut dyn Kernel, to: Destination, way: Way) {
        let route = standing_route(to, way);
        let gone = kernel.delete_route(&route);
        if self.tried(route.to_string(), gone) {
            self.routes.remove(&(to, way));
        }
    }
}

/// The plan's word for a route that the kernel has. `None`: a route to a device, or another
/// program's.
fn way_of(route: &Route) -> Option<(Destination, Way)> {
    if route.protocol != PROTOCOL || route.table != TABLE {
        return None;
    }
    match (route.kind, route.metric) {
        (RouteKind::Unreachable, UNREACHABLE_METRIC) => Some((route.destination, Way::Tunnel)),
        (RouteKind::Throw, metric) if metric == default_metric(route.destination.ip) => {
            Some((route.destination, Way::Throw))
        }
        _ => None,
    }
}

/// The metric that the kernel gives to a route whose metric is set to 0.
pub(crate) fn default_metric(ip: IpAddr) -> u32 {
    if ip.is_ipv6() { 1024 } else { 0 }
}
