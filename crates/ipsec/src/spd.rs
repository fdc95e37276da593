//! The SPD (RFC 4301 section 4.4.1): ordered policies, looked up by a packet's selectors.
//!
//! A policy is a box in five dimensions: remote and local address, remote and local port, protocol.
//! A packet is a point, and of all boxes around it the one of the lowest rank wins. The boxes are
//! kept in a [`tree`] for each family, in which a look-up takes a few steps however many policies
//! there are and whatever they differ in.
//!
//! Ports that cannot be seen are one more value beside the 65,536 that can: ANY contains it, OPAQUE
//! is it alone, and a range of ports does not contain it (RFC 4301 section 4.4.1.1).
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `policy` | one policy, and the order of policies |
//! | `tree` | the look-up tree over five selectors |
//! | `build` | makes the tree of its policies |

use std::net::IpAddr;
use std::sync::Arc;

use ironswan_wire::ip::ext;
use ironswan_wire::sadb::{Action, PolicyAdd, ReqId};
use ironswan_wire::selector::{AddrRange, PacketSelector, TrafficSelector};

mod build;
mod policy;
mod tree;

pub(crate) use policy::Policy;

use policy::{Rank, UNSEEN, same};
use tree::{Area, Coordinate, Item, Node, Point};

/// A snapshot of the SPD.
#[derive(Clone, Default)]
pub(crate) struct Spd {
    v4: Option<Node<u32>>,
    v6: Option<Node<u128>>,
    len: usize,
    /// Grows with each change, from 0, which is that of an SPD that never had a policy.
    version: u64,
}

/// Coordinate of no packet. A range with this as its bounds contains nothing.
const NO_COORDINATE: u32 = UNSEEN + 1;

fn ports(ts: &TrafficSelector) -> (u32, u32) {
    match (u32::from(ts.start_port), u32::from(ts.end_port)) {
        (0, 65_535) => (0, UNSEEN),
        (65_535, 0) => (UNSEEN, UNSEEN),
        (start, end) if start <= end => (start, end),
        _ => (NO_COORDINATE, NO_COORDINATE),
    }
}

fn area<A: Coordinate>(
    remote_ts: &TrafficSelector,
    local_ts: &TrafficSelector,
    of: impl Fn(&AddrRange) -> (A, A),
) -> Area<A> {
    let (remote, local) = (of(&remote_ts.range), of(&local_ts.range));
    let (remote_ports, local_ports) = (ports(remote_ts), ports(local_ts));
    // Both sides have to agree to the protocol; two that differ agree to none.
    let protocol = match (remote_ts.protocol, local_ts.protocol) {
        (0, 0) => (0, 255),
        (p, 0) | (0, p) => (u32::from(p), u32::from(p)),
        (p, q) if p == q => (u32::from(p), u32::from(p)),
        _ => (NO_COORDINATE, NO_COORDINATE),
    };
    let narrow = |v: (u32, u32)| (A::from(v.0), A::from(v.1));
    let sides = [remote, local, narrow(remote_ports), narrow(local_ports), narrow(protocol)];
    Area { lo: sides.map(|s| s.0), hi: sides.map(|s| s.1) }
}

/// A range of the other family contains no address of this one.
fn area_v4(remote: &TrafficSelector, local: &TrafficSelector) -> Area<u32> {
    area(remote, local, |range| match (range.start(), range.end()) {
        (IpAddr::V4(start), IpAddr::V4(end)) => (start.into(), end.into()),
        _ => (u32::MAX, 0),
    })
}

fn area_v6(remote: &TrafficSelector, local: &TrafficSelector) -> Area<u128> {
    area(remote, local, |range| match (range.start(), range.end()) {
        (IpAddr::V6(start), IpAddr::V6(end)) => (start.into(), end.into()),
        _ => (u128::MAX, 0),
    })
}

#[inline]
fn point<A: Coordinate>(
    remote: A,
    local: A,
    remote_port: Option<u16>,
    local_port: Option<u16>,
    protocol: u8,
) -> Point<A> {
    let port = |p: Option<u16>| A::from(p.map_or(UNSEEN, u32::from));
    [remote, local, port(remote_port), port(local_port), A::from(u32::from(protocol))]
}

/// Error: the answer depends on ports that cannot be seen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct DependsOnPorts;

/// Limits the nodes that a look-up without ports reads to find out whether ports matter.
const PORTS_SEARCH_STEPS: u32 = 256;

fn find_without_ports<A: Coordinate>(
    tree: Option<&Node<A>>,
    p: &Point<A>,
    known: bool,
) -> Result<Option<Action>, DependsOnPorts> {
    let Some(tree) = tree else { return Ok(None) };
    let found = tree.find(p);
    // "Carry non-initial fragments in a separate SA" (RFC 4301 section 7.2).
    let separate = found.is_some_and(Item::is_opaque);
    if !separate && tree.looks_at_ports(p, known, found.map(|i| i.best), &mut { PORTS_SEARCH_STEPS }) {
        return Err(DependsOnPorts);
    }
    Ok(found.map(|i| i.found().0))
}

/// Limits the nodes that are read, for all selectors of an SA together, to find out whether other
/// policies precede its own.
const OTHERS_SEARCH_STEPS: u32 = 256;
/// Limits the pairs of a local and a remote selector of one SA for which this is found out.
const MAX_PAIRS: usize = 64;

/// True when a policy that is not PROTECT by `reqid` covers some packet of `area` before all
/// policies that are. False also needs a policy of this reqid around the whole of it, unless no
/// other policy touches it.
fn is_preceded_by_others<A: Coordinate>(
    tree: Option<&Node<A>>,
    area: &Area<A>,
    reqid: ReqId,
    steps: &mut u32,
) -> bool {
    let Some(tree) = tree else { return false };
    let own = tree.rank_of(area, Action::Protect(reqid));
    tree.has_other(area, own, Action::Protect(reqid), steps)
}

impl Spd {
    /// Number of changes so far, which identifies a state of the SPD.
    #[inline(always)]
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// False when the policies of `reqid` cover all packets of these selectors before all other
    /// policies, so that no flow needs a look-up. True when another policy may cover some of them
    /// first: then each flow has to be looked up.
    pub(crate) fn is_preceded_by_others(
        &self,
        local: &[TrafficSelector],
        remote: &[TrafficSelector],
        reqid: ReqId,
    ) -> bool {
        // A peer chooses how many selectors it asks for.
        if local.len() * remote.len() > MAX_PAIRS {
            return true;
        }
        let mut steps = OTHERS_SEARCH_STEPS;
        let pairs = local.iter().flat_map(|l| remote.iter().map(move |r| (r, l)));
        pairs.into_iter().any(|(r, l)| match (r.range.is_ipv6(), l.range.is_ipv6()) {
            (false, false) => is_preceded_by_others(self.v4.as_ref(), &area_v4(r, l), reqid, &mut steps),
            (true, true) => is_preceded_by_others(self.v6.as_ref(), &area_v6(r, l), reqid, &mut steps),
            // No packet is of both families.
            _ => false,
        })
    }

    /// How many policies there are, however often they are counted.
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Adds a policy, or counts it once more. `serial` grows with each call.
    pub(crate) fn add(&mut self, policy: &PolicyAdd, serial: u64) {
        let rank = Rank::new(policy, serial);
        let mut fresh = false;
        self.edit(policy, |list| {
            if let Some(found) = list.iter_mut().find(|p| same(&p.policy, policy)) {
                Arc::make_mut(found).count += 1;
                return;
            }
            fresh = true;
            let at = list.partition_point(|p| p.rank < rank);
            list.insert(at, Arc::new(Policy { policy: policy.clone(), rank, count: 1 }));
        });
        self.len += usize::from(fresh);
        self.version += 1;
    }

    /// Removes a policy once; false when it is not there.
    pub(crate) fn remove(&mut self, policy: &PolicyAdd) -> bool {
        let (mut found, mut gone) = (false, false);
        self.edit(policy, |list| {
            let Some(at) = list.iter().position(|p| same(&p.policy, policy)) else { return };
            found = true;
            if list[at].count > 1 {
                Arc::make_mut(&mut list[at]).count -= 1;
            } else {
                list.remove(at);
                gone = true;
            }
        });
        self.len -= usize::from(gone);
        self.version += 1;
        found
    }

    /// Changes the list of policies that have the selectors of `policy`.
    fn edit(&mut self, policy: &PolicyAdd, change: impl FnOnce(&mut Vec<Arc<Policy>>)) {
        if policy.remote.range.is_ipv6() {
            Node::edit(&mut self.v6, &area_v6(&policy.remote, &policy.local), change);
        } else {
            Node::edit(&mut self.v4, &area_v4(&policy.remote, &policy.local), change);
        }
    }

    /// The action for a packet that leaves; `None` when no policy covers it.
    #[inline]
    pub(crate) fn lookup_out(&self, p: &PacketSelector) -> Option<Action> {
        self.find(p.dst, p.src, p.dst_port, p.src_port, p.protocol).map(|(action, _)| action)
    }

    /// The action of the policy that covers a packet that arrived: the one that its answer would
    /// take.
    pub(crate) fn lookup_in(&self, p: &PacketSelector) -> Option<Action> {
        self.find(p.src, p.dst, p.src_port, p.dst_port, p.protocol).map(|(action, _)| action)
    }

    #[inline]
    fn find(
        &self,
        remote: IpAddr,
        local: IpAddr,
        remote_port: Option<u16>,
        local_port: Option<u16>,
        protocol: u8,
    ) -> Option<(Action, &[Arc<Policy>])> {
        match (remote, local) {
            (IpAddr::V4(r), IpAddr::V4(l)) => {
                let p = point(u32::from(r), u32::from(l), remote_port, local_port, protocol);
                self.v4.as_ref()?.find(&p).map(Item::found)
            }
            (IpAddr::V6(r), IpAddr::V6(l)) => {
                let p = point(u128::from(r), u128::from(l), remote_port, local_port, protocol);
                self.v6.as_ref()?.find(&p).map(Item::found)
            }
            _ => None,
        }
    }

    /// The policy that decides about a packet that leaves.
    pub(crate) fn policy_out(&self, p: &PacketSelector) -> Option<&PolicyAdd> {
        let (_, list) = self.find(p.dst, p.src, p.dst_port, p.src_port, p.protocol)?;
        list.first().map(|first| &first.policy)
    }

    /// The policy that decides about a packet that arrived.
    pub(crate) fn policy_in(&self, p: &PacketSelector) -> Option<&PolicyAdd> {
        let (_, list) = self.find(p.src, p.dst, p.src_port, p.dst_port, p.protocol)?;
        list.first().map(|first| &first.policy)
    }

    /// The action for later fragments that leave, whose ports cannot be seen. `Err` when it depends
    /// on the ports.
    pub(crate) fn lookup_out_hidden(&self, p: &PacketSelector) -> Result<Option<Action>, DependsOnPorts> {
        self.find_hidden(p.dst, p.src, p.protocol)
    }

    /// The same for packets that arrived.
    pub(crate) fn lookup_in_hidden(&self, p: &PacketSelector) -> Result<Option<Action>, DependsOnPorts> {
        self.find_hidden(p.src, p.dst, p.protocol)
    }

    fn find_hidden(
        &self,
        remote: IpAddr,
        local: IpAddr,
        protocol: u8,
    ) -> Result<Option<Action>, DependsOnPorts> {
        match (remote, local) {
            (IpAddr::V4(r), IpAddr::V4(l)) => {
                find_without_ports(self.v4.as_ref(), &point(r.into(), l.into(), None, None, protocol), true)
            }
            (IpAddr::V6(r), IpAddr::V6(l)) => {
                // The protocol is behind the headers that the first fragment has.
                let known = !matches!(protocol, ext::HOP_BY_HOP | ext::ROUTING | ext::DEST_OPTIONS);
                find_without_ports(self.v6.as_ref(), &point(r.into(), l.into(), None, None, protocol), known)
            }
            _ => Ok(None),
        }
    }

    /// All policies in the order of their rank, IPv4 before IPv6.
    pub(crate) fn all(&self) -> Vec<Arc<Policy>> {
        let (mut v4, mut v6) = (Vec::new(), Vec::new());
        if let Some(tree) = &self.v4 {
            tree.each(&mut |item| v4.extend_from_slice(item.policies()));
        }
        if let Some(tree) = &self.v6 {
            tree.each(&mut |item| v6.extend_from_slice(item.policies()));
        }
        v4.sort_by_key(|p| p.rank);
        v6.sort_by_key(|p| p.rank);
        v4.append(&mut v6);
        v4
    }
}

#[cfg(test)]
mod selectors_tests;
#[cfg(test)]
mod tests;
