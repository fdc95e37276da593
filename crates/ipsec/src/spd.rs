//! The SPD (RFC 4301 section 4.4.1): ordered policies, looked up by a packet's selectors.
//!
//! Policies are found through the prefix of their remote side, longest first or not does not matter: of all that cover the
//! packet, the one of the lowest rank wins. One hash look-up for each prefix length in use; ranges that are not a prefix
//! are tried one after the other.

use std::cmp::Ordering;
use std::net::IpAddr;
use std::sync::Arc;

use ironswan_wire::sadb::{Action, PolicyAdd};
use ironswan_wire::selector::{PacketSelector, Precedence};

use crate::sad::CowMap;

/// The order of policies: the smaller is matched first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Rank {
    precedence: Precedence,
    /// Then the older first.
    serial: u64,
}

/// One policy, counted.
#[derive(Clone, Debug)]
pub(crate) struct Policy {
    pub(crate) policy: PolicyAdd,
    pub(crate) rank: Rank,
    pub(crate) count: u32,
}

fn same(a: &PolicyAdd, b: &PolicyAdd) -> bool {
    a.action == b.action && a.local == b.local && a.remote == b.remote && a.priority == b.priority
}

/// Remote side of one family: prefix length and first address.
type Prefix = (u8, u128);

/// A snapshot of the SPD.
#[derive(Clone, Default)]
pub(crate) struct Spd {
    /// By prefix of the remote selector; each list in order of rank.
    v4: Family,
    v6: Family,
    /// Some policy discards: inbound packets have to be looked up as well.
    discards: u32,
}

#[derive(Clone, Default)]
struct Family {
    by_prefix: CowMap<Prefix, Arc<Vec<Arc<Policy>>>>,
    /// Prefix lengths in use, and by how many lists.
    lengths: Vec<(u8, u32)>,
    /// Remote ranges that are not a prefix, in order of rank.
    ranges: Arc<Vec<Arc<Policy>>>,
}

fn bits(addr: IpAddr) -> u128 {
    match addr {
        IpAddr::V4(a) => u128::from(u32::from(a)),
        IpAddr::V6(a) => u128::from(a),
    }
}

impl Spd {
    fn family(&self, ipv6: bool) -> &Family {
        if ipv6 { &self.v6 } else { &self.v4 }
    }

    fn family_mut(&mut self, ipv6: bool) -> &mut Family {
        if ipv6 { &mut self.v6 } else { &mut self.v4 }
    }

    /// True when some policy is DISCARD.
    #[inline]
    pub(crate) fn has_discards(&self) -> bool {
        self.discards != 0
    }

    /// Adds a policy, or counts it once more. `serial` grows with each call.
    pub(crate) fn add(&mut self, policy: &PolicyAdd, serial: u64) {
        let rank = Rank {
            precedence: Precedence::new(
                &policy.local,
                &policy.remote,
                policy.priority,
                matches!(policy.action, Action::Protect(_)),
            ),
            serial,
        };
        let discard = policy.action == Action::Discard;
        let fresh = self.family_mut(policy.remote.range.is_ipv6()).edit(policy, |list| {
            if let Some(found) = list.iter_mut().find(|p| same(&p.policy, policy)) {
                Arc::make_mut(found).count += 1;
                return false;
            }
            let at = list.partition_point(|p| p.rank < rank);
            list.insert(at, Arc::new(Policy { policy: policy.clone(), rank, count: 1 }));
            true
        });
        if fresh && discard {
            self.discards += 1;
        }
    }

    /// Removes a policy once; false when it is not there.
    pub(crate) fn remove(&mut self, policy: &PolicyAdd) -> bool {
        let (mut found, mut gone) = (false, false);
        self.family_mut(policy.remote.range.is_ipv6()).edit(policy, |list| {
            if let Some(at) = list.iter().position(|p| same(&p.policy, policy)) {
                found = true;
                if list[at].count > 1 {
                    Arc::make_mut(&mut list[at]).count -= 1;
                } else {
                    list.remove(at);
                    gone = true;
                }
            }
        });
        if gone && policy.action == Action::Discard {
            self.discards -= 1;
        }
        found
    }

    /// The policy for a packet that leaves.
    pub(crate) fn lookup_out(&self, p: &PacketSelector) -> Option<&Policy> {
        self.family(p.dst.is_ipv6()).lookup(p.dst, |policy| {
            policy.remote.matches(p.dst, p.protocol, p.dst_port)
                && policy.local.matches(p.src, p.protocol, p.src_port)
        })
    }

    /// The policy for a packet that arrived.
    pub(crate) fn lookup_in(&self, p: &PacketSelector) -> Option<&Policy> {
        self.family(p.src.is_ipv6()).lookup(p.src, |policy| {
            policy.remote.matches(p.src, p.protocol, p.src_port)
                && policy.local.matches(p.dst, p.protocol, p.dst_port)
        })
    }

    /// All policies in the order of their rank, IPv4 before IPv6.
    pub(crate) fn all(&self) -> Vec<Arc<Policy>> {
        let mut out = Vec::new();
        for family in [&self.v4, &self.v6] {
            let mut all: Vec<_> = family
                .by_prefix
                .values()
                .flat_map(|l| l.iter())
                .chain(family.ranges.iter())
                .cloned()
                .collect();
            all.sort_by_key(|p| p.rank);
            out.append(&mut all);
        }
        out
    }
}

fn mask(addr: u128, len: u8, ipv6: bool) -> u128 {
    let host = u32::from(if ipv6 { 128 - len } else { 32 - len });
    if host >= 128 { 0 } else { addr >> host << host }
}

impl Family {
    /// Changes the list that holds, or would hold, `policy`.
    fn edit<T>(&mut self, policy: &PolicyAdd, change: impl FnOnce(&mut Vec<Arc<Policy>>) -> T) -> T {
        let range = &policy.remote.range;
        let Some(len) = range.prefix_len() else {
            return change(Arc::make_mut(&mut self.ranges));
        };
        let key = (len, bits(range.start()));
        let old = self.by_prefix.get(&key);
        let existed = old.is_some();
        let mut list = old.map(|l| l.to_vec()).unwrap_or_default();
        let result = change(&mut list);
        match (existed, list.is_empty()) {
            (_, false) => {
                self.by_prefix.insert(key, Arc::new(list));
                if !existed {
                    self.count_length(len, 1);
                }
            }
            (true, true) => {
                self.by_prefix.remove(&key);
                self.count_length(len, -1);
            }
            (false, true) => {}
        }
        result
    }

    fn count_length(&mut self, len: u8, change: i32) {
        match self.lengths.iter_mut().find(|(l, _)| *l == len) {
            Some((_, n)) => *n = n.saturating_add_signed(change),
            None => self.lengths.push((len, 1)),
        }
        self.lengths.retain(|(_, n)| *n != 0);
    }

    fn lookup(&self, remote: IpAddr, covers: impl Fn(&PolicyAdd) -> bool) -> Option<&Policy> {
        let addr = bits(remote);
        let mut best: Option<&Policy> = None;
        let lists = self
            .lengths
            .iter()
            .filter_map(|(len, _)| self.by_prefix.get(&(*len, mask(addr, *len, remote.is_ipv6()))))
            .chain(std::iter::once(&self.ranges));
        for list in lists {
            // The list is in order of rank: the first that covers is its best.
            for p in list.iter() {
                if best.is_some_and(|b| b.rank.cmp(&p.rank) == Ordering::Less) {
                    break;
                }
                if covers(&p.policy) {
                    best = Some(p);
                    break;
                }
            }
        }
        best
    }
}

#[cfg(test)]
mod tests;
