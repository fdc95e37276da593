//! How far the protocol is with what policy wants: for the list of tunnels that are down.

use super::Endpoint;
use crate::context::lifecycle::names_in_work;
use crate::event::IkeState;
use crate::sa::{Active, IkeSa};

impl Endpoint {
    /// How far the attempt of ours for this child (with `None`, the IKE_SA) of a connection is;
    /// `None` when there is none.
    pub(super) fn progress_with(&self, conn: &str, child: Option<&str>) -> Option<String> {
        let wants = |sa: &&IkeSa| child.is_none_or(|name| names_in_work(sa).any(|n| n == name));
        self.ours(conn).find(wants).map(progress)
    }

    /// How far any IKE_SA of ours of this connection is that waits for something.
    pub(super) fn waits(&self, conn: &str) -> Option<String> {
        self.ours(conn).find(|sa| sa.work().active().is_some() || sa.waiting().is_some()).map(progress)
    }

    /// The IKE_SAs of a connection that we have initiated, and on which something new may come up.
    fn ours(&self, conn: &str) -> impl Iterator<Item = &IkeSa> {
        let of_conn = self.by_conn.get(conn).into_iter().flatten().filter_map(|id| self.sas.get(id));
        of_conn.map(|sa| &**sa).filter(|sa| sa.is_initiator() && !is_going(sa))
    }
}

/// Nothing new comes up on this one.
fn is_going(sa: &IkeSa) -> bool {
    matches!(sa.state(), IkeState::Rekeyed | IkeState::Deleting)
}

/// How far the work of an IKE_SA of ours is: what it waits for.
fn progress(sa: &IkeSa) -> String {
    match (sa.work().active(), sa.waiting().map(|w| &w.exchange)) {
        (_, Some(exchange)) if !exchange.is_of_peer() => exchange.waits_for(),
        (Some(Active { unsent: Some(why), .. }), _) => why.to_string(),
        (Some(active), _) if active.tries == 0 => {
            format!("no answer yet from {} to {}", sa.remote(), active.exchange)
        }
        (Some(active), _) => format!(
            "peer not responding: no answer from {} to {}, sent {} times{}",
            sa.remote(),
            active.exchange,
            active.tries + 1,
            active.icmp.map_or(String::new(), |icmp| format!("; {icmp}"))
        ),
        (None, Some(exchange)) => exchange.waits_for(),
        (None, None) => "waiting to begin".to_owned(),
    }
}
