//! SAs, traps and shunts follow what is loaded: policy finds the difference.

use ironswan_keying::diagnosis::NotDone;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

use ironswan_wire::sadb::{Action, ReqId};

use super::Endpoint;
use super::spd::Narrowed;
use crate::context::install;
use crate::context::lifecycle::names_in_work;
use crate::event::{ChildId, Event, IkeState};
use crate::narrow;
use crate::sa::IkeSa;
use crate::task::{DeleteChild, DeleteIke, Task, liveness, path_probe};
use ironswan_keying::{ChildAction, ChildKind, Connection};

impl Endpoint {
    /// Removes the policies of a trap or shunt.
    pub(super) fn clear_trap(&mut self, conn: &str, child: &str) {
        for p in self.shared.spd.take_trap(conn, child).into_iter().flatten() {
            if let Some(command) = self.shared.spd.remove(&p) {
                self.emit(Event::Sadb(command));
            }
        }
    }

    /// Installs the policies of a trap or shunt, for these addresses of both ends.
    pub(super) fn set_trap(&mut self, conn: &Connection, child: &str, local: IpAddr, remote: IpAddr) {
        let Some(config) = conn.child(child) else { return };
        let selectors = Narrowed::whole((
            narrow::resolve(&config.local_ts, local),
            narrow::resolve(&config.remote_ts, remote),
        ));
        let (reqid, action) = match config.kind {
            ChildKind::Protect => {
                let reqid = self.shared.spd.reqid(&selectors, config.reqid);
                (reqid, Action::Protect(reqid))
            }
            ChildKind::Pass => (ReqId(0), Action::Bypass),
            ChildKind::Drop => (ReqId(0), Action::Discard),
        };
        let policies = install::policies(&self.shared.spd, &conn.name, config, action, &selectors);
        for p in &policies {
            if let Some(command) = self.shared.spd.add(p.clone()) {
                self.emit(Event::Sadb(command));
            }
        }
        self.shared.spd.set_trap((conn.name.clone(), config.name.clone()), reqid, selectors, policies);
    }

    /// An IKE_SA whose connection has changed in nothing that the peer has agreed to goes on under
    /// the new one.
    pub(super) fn adopt(&mut self, now: Instant, sa: &mut IkeSa, new: &Arc<Connection>) {
        let old = sa.adopt_conn(new.clone());
        if old.dpd_delay != new.dpd_delay && sa.is_up() {
            self.on(now, sa, |cx, sa| liveness::rearm(cx, sa));
        }
        if old.path_probe != new.path_probe {
            self.on(now, sa, path_probe::begin);
        }
        let had_work = names_in_work(sa).next().is_some();
        for mut task in sa.work_mut().take_queue() {
            if let Task::Child(n) = &mut task
                && n.rekey.is_none()
                && n.id == ChildId(0)
            {
                match new.child(&n.config.name) {
                    Some(config) => n.config = Arc::new(config.clone()),
                    None => {
                        self.aside(now, |cx| cx.fail_task(task, &NotDone::ChildRemoved.into()));
                        continue;
                    }
                }
            }
            sa.work_mut().push(task);
        }
        let ids: Vec<ChildId> = sa.children().map(|c| c.id()).collect();
        let closing = self.on(now, sa, |cx, sa| ids.iter().filter(|id| cx.catch_up(sa, **id)).count());
        // An IKE_SA is kept for its children, unless it never had any.
        let idle = names_in_work(sa).next().is_none();
        let more = new.children.iter().any(|c| c.start_action != ChildAction::None);
        if idle && !more && (closing > 0 || had_work) && closing == ids.len() {
            if sa.is_up() {
                sa.work_mut().push(Task::DeleteIke(DeleteIke::default()));
            } else if sa.attempt().automatic {
                self.give_up(now, sa, NotDone::Changed);
            }
        }
    }

    /// Ends an attempt of ours that has not come up.
    pub(super) fn give_up(&mut self, now: Instant, sa: &mut IkeSa, why: NotDone) {
        if sa.is_initiator() && matches!(sa.state(), IkeState::Created | IkeState::Connecting) {
            self.let_go(now, sa, why);
        }
    }
}

/// Closes the children of an established IKE_SA whose configured `start_action` is one of these;
/// with the last one the IKE_SA.
pub(super) fn close_begun(sa: &mut IkeSa, begun: impl Fn(ChildAction) -> bool) {
    let (close, keep): (Vec<_>, Vec<_>) = sa.children().partition(|c| begun(c.config().start_action));
    let close: Vec<_> = close.iter().map(|c| c.id()).collect();
    if close.is_empty() {
        return;
    }
    let task = match keep.is_empty() {
        true => Task::DeleteIke(DeleteIke::default()),
        false => Task::DeleteChild(DeleteChild::of(close, None)),
    };
    sa.work_mut().push(task);
}
