//! Snapshots for people and for VICI.

use std::collections::BTreeMap;
use std::time::Instant;

use ironswan_wire::sadb::ReqId;

use super::Endpoint;
use crate::child::Child;
use crate::event::{ChildSaInfo, IkeSaInfo, IkeState};
use crate::sa::{IkeSa, Wait};
use crate::task::Task;
use crate::timer::{Timer, Timers};

impl Endpoint {
    /// Number of entries in every table that a peer, a command or time may fill, by name. Stored
    /// answers of IKE_SAs that are gone are not counted: time takes them out.
    pub(crate) fn sizes(&self) -> Vec<(&'static str, usize)> {
        let unloaded = |conn: &str| self.policy().connection(conn).is_none();
        let mut tables = vec![
            ("IKE_SAs", self.sas.len()),
            ("IKE_SAs by connection", self.by_conn.len()),
            ("IKE_SAs by identities", self.by_ids.len()),
            ("identities of peers", self.shared.peers.len()),
            ("races", self.races.len()),
            ("half-open IKE_SAs", self.half_open.count()),
            ("IKE_SA_INIT requests", self.half_open.requests()),
            ("addresses of half-open IKE_SAs", self.half_open.addresses()),
            ("own values under way", self.shared.own.len()),
            ("old inbound SAs", self.shared.old_inbound.len()),
            ("children that take over", self.shared.handovers.len()),
            ("policies", self.shared.spd.len()),
            ("things to do", self.shared.todo.len()),
            ("tickets", self.shared.tickets.len()),
            ("requests outside", self.shared.outbox.waiting()),
            ("requests kept for the next attempt", self.unanswered.len()),
            ("reports", self.shared.outbox.reports()),
            ("timers", self.shared.timers.len()),
            (
                "counters of unloaded connections",
                self.shared.by_connection.all().filter(|(c, _)| unloaded(c)).count(),
            ),
        ];
        tables.extend(self.shared.spis.tables());
        tables
    }

    /// The reqids of the CHILD_SAs that are there and of the traps, with connection and child:
    /// those of one connection, or of all.
    pub fn reqids(&self, conn: Option<&str>) -> BTreeMap<ReqId, (String, String)> {
        let mut all = self.shared.spd.traps_of(conn);
        for sa in self.sas.values().filter(|sa| conn.is_none_or(|conn| sa.conn().name == conn)) {
            let conn = &sa.conn().name;
            all.extend(sa.children().map(|c| (c.reqid(), (conn.clone(), c.config().name.clone()))));
        }
        all
    }

    pub(crate) fn snapshot(&self, now: Instant, sa: &IkeSa) -> IkeSaInfo {
        snapshot(&self.shared.timers, now, sa)
    }
}

/// A snapshot of an IKE_SA with its children.
pub(crate) fn snapshot(timers: &Timers, now: Instant, sa: &IkeSa) -> IkeSaInfo {
    let mut info = snapshot_without_children(timers, now, sa);
    info.children = sa.children().map(|c| child_snapshot(timers, now, c)).collect();
    info
}

/// A snapshot of an IKE_SA without its children.
pub(crate) fn snapshot_without_children(timers: &Timers, now: Instant, sa: &IkeSa) -> IkeSaInfo {
    let left = |timer| timers.get(timer).map(|at| at.saturating_duration_since(now));
    let mut tasks_active: Vec<_> = sa.work().active().into_iter().map(|a| a.task.name()).collect();
    let mut tasks_passive = Vec::new();
    // A response that is being judged belongs to the request in flight.
    let waits = |w: &&Wait| w.exchange.is_of_peer() || sa.work().active().is_none();
    if let Some(wait) = sa.waiting().filter(waits) {
        let tasks = if wait.exchange.is_of_peer() { &mut tasks_passive } else { &mut tasks_active };
        tasks.push(wait.exchange.name());
    }
    let state = match sa.state() {
        // An attempt that was let go was never rekeyed.
        IkeState::Rekeyed if !sa.is_up() => IkeState::Deleting,
        state => state,
    };
    IkeSaInfo {
        id: sa.id(),
        conn: sa.conn().name.clone(),
        state,
        initiator: sa.is_initiator(),
        spi_i: sa.spi_i(),
        spi_r: sa.spi_r(),
        local: sa.local(),
        remote: sa.remote(),
        local_id: Some(sa.local_id().clone()),
        remote_id: sa.remote_id().cloned(),
        suite: sa.suite(),
        ppk: sa.has_ppk(),
        nat_local: sa.nat().local,
        nat_remote: sa.nat().remote,
        nat_fake: sa.nat().fake,
        established: sa.established().map(|t| now.saturating_duration_since(t)),
        rekey_in: left(Timer::RekeyIke(sa.id())),
        path_mtu: sa.probing().found(now),
        tasks_queued: sa.work().queued().map(Task::name).collect(),
        tasks_active,
        tasks_passive,
        children: Vec::new(),
    }
}

/// A snapshot of a child.
pub(crate) fn child_snapshot(timers: &Timers, now: Instant, c: &Child) -> ChildSaInfo {
    let left = |timer| timers.get(timer).map(|at| at.saturating_duration_since(now));
    c.snapshot(now, left(Timer::RekeyChild(c.id())), left(Timer::LifeChild(c.id())))
}
