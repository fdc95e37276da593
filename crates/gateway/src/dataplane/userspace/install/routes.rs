//! Routes to the device: which policies need one, its source address and its MTU.

use std::collections::{BTreeMap, HashSet};
use std::net::IpAddr;

use ironswan_io::clock;
use ironswan_io::route::{Address, Destination, PROTOCOL, Route, RouteKind, TABLE};
use ironswan_wire::sadb::{Action, PolicyAdd, ReqId};
use ironswan_wire::selector::AddrRange;

use super::path::UNKNOWN_PATH_MTU;
use super::{ADDRESSES, Installer};
use crate::guard::plan::Way;
use crate::guard::standing::default_metric;

/// Prefixes of one selector that are routed; a range may be cut into up to 254 of them, and a peer
/// chooses ranges.
const MAX_PREFIXES: usize = 512;
/// reqid under which we file the routes of DISCARD policies. Real SAs never have reqid 0.
const DISCARD: ReqId = ReqId(0);

/// A route, and the policies that need it. Everything here is counted, since a peer chooses how
/// many policies lead to one destination.
#[derive(Debug, Default)]
pub(super) struct Routed {
    users: BTreeMap<ReqId, User>,
    /// The route that stands in the kernel.
    pub(super) installed: Option<Route>,
}

#[cfg(test)]
impl Routed {
    /// Numbers of reqids, and of ranges for the source address.
    pub(super) fn counted(&self) -> (usize, usize) {
        (self.users.len(), self.users.values().map(|user| user.locals.len()).sum())
    }
}

/// One reqid's policies to a destination.
#[derive(Debug, Default)]
struct User {
    /// By the range in which the source address must be: how many of the policies say so, and when
    /// the last of them came.
    locals: BTreeMap<AddrRange, (usize, u64)>,
    /// When the last policy came.
    since: u64,
}

impl Installer {
    /// Counts a policy, and makes its routes so.
    pub(super) fn policy(&mut self, policy: &PolicyAdd, add: bool) {
        let reqid = match policy.action {
            Action::Protect(reqid) => reqid,
            // The device counts packets that are to be dropped.
            Action::Discard => DISCARD,
            Action::Bypass => return,
        };
        let prefixes = policy.remote.range.prefixes();
        for (ip, prefix_len) in prefixes.into_iter().take(MAX_PREFIXES) {
            let to = Destination { ip, prefix_len };
            match add {
                true => self.need(reqid, to, policy.local.range),
                false => self.release(reqid, to, policy.local.range),
            }
            self.settle(to);
        }
    }

    /// One more policy of the reqid leads to `to`.
    fn need(&mut self, reqid: ReqId, to: Destination, local: AddrRange) {
        self.added += 1;
        *self.inside.entry(reqid).or_default().entry(to).or_default() += 1;
        let user = self.routes.entry(to).or_default().users.entry(reqid).or_default();
        user.since = self.added;
        let (count, since) = user.locals.entry(local).or_default();
        (*count, *since) = (*count + 1, self.added);
    }

    /// One policy less.
    fn release(&mut self, reqid: ReqId, to: Destination, local: AddrRange) {
        if let Some(users) = self.routes.get_mut(&to).map(|r| &mut r.users)
            && let Some(user) = users.get_mut(&reqid)
        {
            uncount(&mut user.locals, &local, |(count, _)| count);
            if user.locals.is_empty() {
                users.remove(&reqid);
            }
        }
        let Some(inside) = self.inside.get_mut(&reqid) else { return };
        uncount(inside, &to, |count| count);
        if inside.is_empty() {
            self.inside.remove(&reqid);
            // SAs that are there may get other policies; when they go without, they take the entry
            // along.
            if self.outside.get(&reqid).is_some_and(|all| all.iter().all(|o| o.gone)) {
                self.outside.remove(&reqid);
                self.ask_again.remove(&reqid);
            }
        }
    }

    /// Makes the kernel's route to `to` what it should be now.
    pub(super) fn settle(&mut self, to: Destination) {
        let Some(routed) = self.routes.get(&to) else { return };
        let newest = routed.users.values().max_by_key(|user| user.since);
        let local = newest.and_then(|user| user.locals.iter().max_by_key(|(_, (_, since))| *since));
        let hole = self.is_hole(&to);
        let (Some((local, _)), false) = (local, hole) else {
            let installed = match newest {
                None => self.routes.remove(&to).and_then(|r| r.installed),
                Some(_) => self.routes.get_mut(&to).and_then(|r| r.installed.take()),
            };
            // A hole has the same metric, and has replaced the route in the kernel already.
            self.guard.change(|guard, kernel| {
                let route = installed.filter(|_| !hole);
                let gone = route.map_or(Ok(()), |route| kernel.delete_route(&route));
                guard.tried(format!("route to {to}"), gone);
            });
            return;
        };
        let (local, users) = (*local, routed.users.keys().copied().collect::<Vec<ReqId>>());
        let mtu = self.route_mtu_for(&users, to);
        let source = self.address_in(&local);
        let kind = RouteKind::Device(self.device);
        let mut route =
            Route { table: TABLE, destination: to, kind, metric: 0, source, mtu, protocol: PROTOCOL };
        if self.routes.get(&to).is_some_and(|r| r.installed.as_ref() == Some(&route)) {
            return;
        }
        let set = self.guard.change(|guard, kernel| {
            // Nowhere first, then the device.
            guard.set_unreachable_below(kernel, to);
            let mut set = kernel.set_route(&route);
            if set.is_err() && route.source.is_some() {
                // The address went away between the look and the route; without it the route still
                // carries what is forwarded.
                route.source = None;
                set = kernel.set_route(&route);
            }
            guard.tried(format!("route to {to}"), set)
        });
        if let Some(r) = self.routes.get_mut(&to) {
            r.installed = set.then_some(route);
        }
    }

    /// The MTU of the route to `to`: the least that one of these reqids needs; 0, which stands for
    /// the device's own, when none says.
    fn route_mtu_for(&mut self, users: &[ReqId], to: Destination) -> u32 {
        if users.iter().all(|r| *r == DISCARD) {
            return UNKNOWN_PATH_MTU - 100;
        }
        let mut mtu = 0;
        for reqid in users.iter().filter(|r| **r != DISCARD) {
            mtu = match (mtu, self.inner_mtu(*reqid, to.ip.is_ipv6())) {
                (known, 0) => known,
                (0, new) => new,
                (known, new) => known.min(new),
            };
        }
        mtu
    }

    /// True where the guard exempts a destination.
    fn is_hole(&self, to: &Destination) -> bool {
        self.guard.look(|guard| guard.way(to)) == Some(Way::Throw)
    }

    /// The guard has a new plan: settles the routes that became holes, that were holes, or that the
    /// kernel refused.
    pub fn guard_changed(&mut self) {
        let wrong = self.routes.iter().filter(|(to, r)| r.installed.is_some() == self.is_hole(to));
        let wrong: Vec<Destination> = wrong.map(|(to, _)| *to).collect();
        wrong.into_iter().for_each(|to| self.settle(to));
    }

    /// Sets again the routes that are not among `found`, the routes of table 220 in the kernel.
    /// Names them.
    pub fn restore(&mut self, found: &[Route]) -> Vec<String> {
        let found: HashSet<&Route> = found.iter().collect();
        let (mut missing, mut gone) = (Vec::new(), Vec::new());
        for (to, routed) in &mut self.routes {
            let Some(route) = &routed.installed else { continue };
            // The kernel reports the metric that it has given the route.
            let metric = default_metric(to.ip);
            if !found.contains(&Route { metric, ..route.clone() }) {
                missing.push(format!("route {route}"));
                routed.installed = None;
                gone.push(*to);
            }
        }
        gone.into_iter().for_each(|to| self.settle(to));
        missing
    }

    /// An address of this machine in the range: the source of packets that the gateway itself sends
    /// into the tunnel.
    fn address_in(&mut self, range: &AddrRange) -> Option<IpAddr> {
        // All of a family says nothing about which address is meant.
        if range.prefix_len() == Some(0) {
            return None;
        }
        let now = clock::now();
        if self.addresses.as_ref().is_none_or(|(at, _)| now.saturating_duration_since(*at) >= ADDRESSES) {
            let usable = |a: &Address| !a.tentative && !a.ip.is_loopback() && !a.ip.is_multicast();
            let all = self.guard.change(|_, kernel| kernel.addresses()).ok()?;
            let mut all: Vec<(IpAddr, usize)> =
                all.iter().enumerate().filter(|(_, a)| usable(a)).map(|(place, a)| (a.ip, place)).collect();
            all.sort_unstable();
            self.addresses = Some((now, all));
        }
        let (_, all) = self.addresses.as_ref()?;
        let from = all.partition_point(|(ip, _)| *ip < range.start());
        let inside = all.get(from..)?.iter().take_while(|(ip, _)| *ip <= range.end());
        // Of several, take the one that the kernel names first.
        inside.min_by_key(|(_, place)| *place).map(|(ip, _)| *ip)
    }
}

/// Counts a key down, and removes it from the map at 0.
fn uncount<K: Ord, V>(map: &mut BTreeMap<K, V>, key: &K, count: impl Fn(&mut V) -> &mut usize) {
    if let Some(value) = map.get_mut(key) {
        *count(value) -= 1;
        if *count(value) == 0 {
            map.remove(key);
        }
    }
}
