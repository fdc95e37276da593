//! Which connection a peer belongs to: by addresses when it speaks, by identities when it says who it is.

use std::net::IpAddr;
use std::sync::Arc;

use ironswan_wire::id::{IdPattern, Identity};
use ironswan_wire::proposal::IkeSuite;

use super::Endpoint;
use crate::config::{AddrSpec, Connection};
use crate::sa::IkeSa;

/// How precisely a list of addresses means this one; `None` when it does not.
fn fit(specs: &[AddrSpec], addr: IpAddr) -> Option<u8> {
    let score = |s: &AddrSpec| match s {
        AddrSpec::Any => 1,
        AddrSpec::Range(_) => 2,
        AddrSpec::Host(_) => 3,
    };
    if specs.is_empty() {
        return Some(1);
    }
    specs.iter().filter(|s| s.matches(addr)).map(score).max()
}

/// Our identity on this connection, when we are at `local`.
pub(crate) fn local_identity(conn: &Connection, local: IpAddr) -> Identity {
    conn.local_id.clone().unwrap_or_else(|| Identity::from_addr(local))
}

impl Endpoint {
    /// The connections that are configured for this pair of addresses, the most precise first.
    pub(crate) fn candidates(&self, local: IpAddr, remote: IpAddr) -> Vec<Arc<Connection>> {
        let mut found: Vec<_> = self
            .conns
            .values()
            .filter_map(|c| {
                let score = (fit(&c.remote_addrs, remote)?, fit(&c.local_addrs, local)?);
                Some((score, c.clone()))
            })
            .collect();
        // The sort is stable: among equals, by name.
        found.sort_by_key(|(score, _)| std::cmp::Reverse(*score));
        found.into_iter().map(|(_, c)| c).collect()
    }

    /// The best of the candidates for a peer that says it is `idi`, and perhaps that we are `idr`. `suite` has been
    /// agreed already, so the connection must allow it.
    pub(crate) fn select_by_identity(
        &self,
        local: IpAddr,
        remote: IpAddr,
        suite: &IkeSuite,
        idi: &Identity,
        idr: Option<&Identity>,
    ) -> Option<Arc<Connection>> {
        let mut best: Option<(u8, Arc<Connection>)> = None;
        for conn in self.candidates(local, remote) {
            if !allows(&conn, suite) || !conn.remote_id.matches(idi) {
                continue;
            }
            // "IDr ... the initiator ... specifies which of the responder's identities it wants to talk to"
            // (RFC 7296 section 2.15). Without one, any of ours.
            if let Some(idr) = idr
                && !IdPattern::Exact(local_identity(&conn, local)).matches(idr)
            {
                continue;
            }
            let score = match conn.remote_id {
                IdPattern::Any => 1,
                IdPattern::Suffix(..) => 2,
                IdPattern::Exact(_) => 3,
            };
            if best.as_ref().is_none_or(|(s, _)| score > *s) {
                best = Some((score, conn));
            }
        }
        best.map(|(_, c)| c)
    }

    /// The peer has said who it is, and belongs to another connection than its address suggested.
    pub(crate) fn move_to_conn(&mut self, sa: &mut IkeSa, conn: Arc<Connection>) {
        if let Some(set) = self.by_conn.get_mut(&sa.conn.name) {
            set.remove(&sa.id);
            if set.is_empty() {
                self.by_conn.remove(&sa.conn.name);
            }
        }
        self.by_conn.entry(conn.name.clone()).or_default().insert(sa.id);
        sa.local_id = local_identity(&conn, sa.local.ip());
        sa.conn = conn;
    }
}

/// True when one of the connection's proposals allows this suite.
fn allows(conn: &Connection, suite: &IkeSuite) -> bool {
    use ironswan_wire::proposal::Transform as T;
    conn.proposals.iter().any(|p| {
        let bits = suite.encr.has_key_length().then_some(suite.key_bits);
        p.transforms.contains(&T::Encr(suite.encr, bits))
            && p.transforms.contains(&T::Prf(suite.prf))
            && p.transforms.contains(&T::Ke(suite.ke))
            && suite.integ.is_none_or(|i| p.transforms.contains(&T::Integ(i)))
    })
}
