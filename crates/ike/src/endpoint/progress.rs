//! How far the protocol is with what policy wants: for the list of tunnels that are down.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use super::Endpoint;
use super::lifecycle::names_in_work;
use crate::event::{IkeId, IkeState};
use crate::sa::IkeSa;
use ironswan_keying::Down;

/// Every IKE_SA but the one that is worked on.
type Sas = BTreeMap<IkeId, Box<IkeSa>>;
type ByConn = BTreeMap<String, BTreeSet<IkeId>>;

fn of_conn<'a>(sas: &'a Sas, by_conn: &'a ByConn, conn: &str) -> impl Iterator<Item = &'a IkeSa> {
    by_conn.get(conn).into_iter().flatten().filter_map(|id| sas.get(id).map(|sa| &**sa))
}

/// The IKE_SA of ours that brings up this child (with `None`, this IKE_SA), or is about to.
pub(super) fn at_work<'a>(
    sas: &'a Sas,
    by_conn: &'a ByConn,
    conn: &str,
    child: Option<&str>,
) -> Option<&'a IkeSa> {
    let wants = |sa: &IkeSa| child.is_none_or(|name| names_in_work(sa).any(|n| n == name));
    of_conn(sas, by_conn, conn).filter(|sa| sa.initiator && !is_going(sa)).find(|sa| wants(sa))
}

impl Endpoint {
    /// Every tunnel that should be up and is not, by connection and child.
    pub fn down(&self, now: Instant) -> Vec<Down> {
        let progress =
            |conn: &str, child: Option<&str>| at_work(&self.sas, &self.by_conn, conn, child).map(progress);
        self.tunnels.down(now, progress)
    }

    /// What stands between now and this child (or with `None`, the IKE_SA) of one of these
    /// connections being up: how far the attempt under way is, or else why the last one ended.
    /// `None` when nothing is known.
    pub fn obstacle(
        &self,
        mut conns: impl Iterator<Item = impl AsRef<str>>,
        child: Option<&str>,
    ) -> Option<String> {
        conns.find_map(|conn| {
            let conn = conn.as_ref();
            let busy =
                |sa: &&IkeSa| sa.initiator && !is_going(sa) && (sa.active.is_some() || sa.wait.is_some());
            let under_way = of_conn(&self.sas, &self.by_conn, conn).find(busy).map(progress);
            under_way.or_else(|| self.tunnels.why_down(conn, child).map(str::to_owned))
        })
    }
}

/// Nothing new comes up on this one.
fn is_going(sa: &IkeSa) -> bool {
    matches!(sa.state, IkeState::Rekeyed | IkeState::Deleting)
}

/// How far the work of an IKE_SA of ours is: what it waits for.
fn progress(sa: &IkeSa) -> String {
    match (&sa.active, sa.wait.as_ref().map(|w| &w.exchange)) {
        (_, Some(exchange)) if !exchange.is_of_peer() => exchange.waits_for(),
        (Some(active), _) if active.tries == 0 => {
            format!("no answer yet from {} to {}", sa.remote, active.exchange)
        }
        (Some(active), _) => format!(
            "peer not responding: no answer from {} to {}, sent {} times",
            sa.remote,
            active.exchange,
            active.tries + 1
        ),
        (None, Some(exchange)) => exchange.waits_for(),
        (None, None) => "waiting to begin".to_owned(),
    }
}
