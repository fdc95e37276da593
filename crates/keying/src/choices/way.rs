//! Our own addresses and routes change: what an IKE_SA does then.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::time::Duration;

use crate::limits::ROAM_SILENCE;
use crate::{AddrSpec, Connection, Policy};

/// Our addresses.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Addresses(Option<BTreeSet<IpAddr>>);

impl Addresses {
    /// These are all addresses that are ours now.
    pub fn known(addresses: &[IpAddr]) -> Self {
        Self(Some(addresses.iter().copied().collect()))
    }

    /// All addresses that are ours; none when we have not been told.
    pub fn iter(&self) -> impl Iterator<Item = IpAddr> {
        self.0.iter().flatten().copied()
    }

    /// True when this address is ours, as far as we have been told: of the addresses that other
    /// machines can be reached from.
    pub fn has(&self, addr: IpAddr) -> bool {
        let special = match addr {
            IpAddr::V4(a) => a.is_unspecified() || a.is_loopback() || a.is_link_local(),
            IpAddr::V6(a) => a.is_unspecified() || a.is_loopback() || a.is_unicast_link_local(),
        };
        special || self.0.as_ref().is_none_or(|all| all.contains(&addr))
    }
}

/// The way of an IKE_SA to its peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// There is none: nothing is sent until there is one.
    None,
    /// The way is as before.
    Same,
    /// The way begins at this address of ours now.
    From {
        /// The address.
        to: IpAddr,
        /// The address before is ours still.
        there: bool,
    },
}

/// The way of an IKE_SA of connection `conn` whose own address is `ours`, when the routing table
/// would send from `route` (`None`: it has no route).
pub fn choose(
    policy: &dyn Policy,
    conn: &Connection,
    addresses: &Addresses,
    ours: IpAddr,
    route: Option<IpAddr>,
) -> Way {
    let there = addresses.has(ours) || route == Some(ours);
    let pinned = conn.local_addrs.contains(&AddrSpec::Host(ours));
    let allowed = |addr| policy.means(&conn.local_addrs, addr);
    let source = match route {
        None => None,
        Some(r) if there && (pinned || ours.is_unspecified() || r == ours || !allowed(r)) => Some(ours),
        Some(r) if allowed(r) => Some(r),
        // The table would take an address that this connection must not be at.
        Some(r) => own(policy, conn, addresses, r.is_ipv4()),
    };
    match source {
        None => Way::None,
        Some(addr) if addr == ours => Way::Same,
        Some(to) => Way::From { to, there },
    }
}

/// The address of ours that a connection names for this IP version, if it is ours now; `None`: the
/// routing table is asked.
pub fn own(policy: &dyn Policy, conn: &Connection, addresses: &Addresses, ipv4: bool) -> Option<IpAddr> {
    let named = policy.hosts(&conn.local_addrs);
    named.into_iter().find(|a| a.is_ipv4() == ipv4 && addresses.has(*a))
}

/// Another address of the peer than `here`, to which there is no way, as the connection is loaded
/// now; `None`: the IKE_SA waits for a way.
pub fn elsewhere(policy: &dyn Policy, conn: &str, here: IpAddr) -> Option<IpAddr> {
    let conn = policy.connection(conn)?;
    policy.hosts(&conn.remote_addrs).into_iter().find(|addr| *addr != here)
}

/// Whether a new IKE_SA of this connection can be begun from here, to take over from one.
pub fn can_take_over(policy: &dyn Policy, conn: &str) -> bool {
    policy.connection(conn).is_some_and(|conn| conn.has_reachable_peer())
}

/// Whether a peer that has been silent for this long is asked whether it lives, when something has
/// changed that leaves the way to it as it was.
pub fn asks_for_life(silent: Duration) -> bool {
    silent > ROAM_SILENCE
}
