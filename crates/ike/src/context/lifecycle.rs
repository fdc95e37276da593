//! The queue of tasks, establishment, and what goes on to the successor.

use super::{Context, Effect, Estate};
use crate::endpoint::todo::Todo;
use crate::endpoint::view;
use crate::event::{Event, IkeId, IkeState, Level, Ticket};
use crate::sa::IkeSa;
use crate::task::{
    NewChild, RekeyIke, Task, auth, create_child, delete, follow_up, intermediate, liveness, mobike,
    path_probe, qcd, rekey_ike, sa_init,
};
use crate::timer::Timer;
use ironswan_keying::Diagnosis;
use ironswan_keying::{ChildConfig, Report};
use std::sync::Arc;

impl Context<'_> {
    /// A task will not be done.
    pub(crate) fn fail_task(&mut self, task: Task, why: &Diagnosis) {
        let err = Err(why.clone());
        match task {
            Task::Init | Task::Intermediate(_) | Task::Mobike(_) | Task::Liveness | Task::QcdToken => {}
            Task::PathProbe(_) => {}
            Task::Auth(child) => {
                if let Some(child) = child {
                    self.abandon(&child);
                    self.done(child.ticket, err);
                }
            }
            Task::Child(child) => {
                self.abandon(&child);
                self.done(child.ticket, err);
            }
            Task::RekeyIke(task) => {
                self.shared.spis.free_ike(task.spi);
                self.done(task.ticket, err);
            }
            Task::FollowUp(follow) => self.fail_task(follow.into_task(), why),
            Task::DeleteChild(task) => self.done(task.ticket, Ok(())),
            Task::DeleteIke(task) => self.done(task.ticket, Ok(())),
        }
    }

    // ---- the queue ----

    /// Starts the next task, if the IKE_SA is free. False when there is nothing to start.
    pub(crate) fn start_next(&mut self, sa: &mut IkeSa) -> bool {
        if sa.is_dead() || sa.work().active().is_some() || sa.waiting().is_some() || self.owes_answer(sa) {
            return false;
        }
        let Some(task) = sa.work_mut().pop() else { return false };
        match task {
            Task::Init => sa_init::build(self, sa),
            Task::Intermediate(_) => intermediate::build(self, sa),
            Task::Auth(_) => auth::build(self, sa),
            // Until IKE_AUTH takes it.
            Task::Child(new) if !sa.is_up() => {
                sa.work_mut().push_first(Task::Child(new));
                return false;
            }
            Task::Child(new) => create_child::build(self, sa, new),
            Task::RekeyIke(task) => rekey_ike::build(self, sa, task),
            Task::FollowUp(follow) => follow_up::build(self, sa, follow),
            Task::DeleteChild(task) => delete::build_child(self, sa, task),
            Task::DeleteIke(task) => delete::build_ike(self, sa, task),
            Task::Mobike(task) => mobike::build(self, sa, task),
            Task::Liveness => liveness::build(self, sa),
            Task::QcdToken => qcd::build(self, sa),
            // Never queued: it waits for nothing.
            Task::PathProbe(_) => {}
        }
        true
    }

    // ---- establishment ----

    /// The peer is authenticated.
    pub(crate) fn establish(&mut self, sa: &mut IkeSa) {
        self.mix_ppk(sa);
        sa.establish(self.now);
        self.begin_authentication(sa);
        self.effect(Effect::Established);
        self.attempt_over(sa);
        let line = format!("IKE_SA {} established between {}", sa.name(), sa.ends());
        self.log(Level::Info, sa, line);
        self.set_ike_timers(sa);
        if sa.local().port() == self.ports().natt {
            self.shared.reached.note(sa.remote());
        }
        path_probe::begin(self, sa);
        self.emit(Event::IkeUp(sa.id()));
        self.report(Report::Up { conn: sa.conn().name.clone(), child: None });
        let ticket = sa.attempt_mut().ticket.take();
        self.done(ticket, Ok(()));
        if let Some(init) = sa.take_init() {
            self.disown(&init, sa.is_initiator());
        }
        self.shared.todo.push_back(Todo::Collapse(sa.id()));
    }

    /// Puts the post-quantum preshared key into the keys, if both sides use one.
    fn mix_ppk(&mut self, sa: &mut IkeSa) {
        let unused = sa.init_mut().and_then(|init| init.ppk.unused.take());
        if let Some(id) = sa.take_ppk() {
            sa_init::log_keys(self, sa);
            self.log(Level::Info, sa, format!("using PPK for PPK_ID '{id}'"));
        } else if let Some(unused) = unused {
            self.log(Level::Info, sa, unused.to_string());
        }
    }

    /// Rekeying, closing and liveness.
    pub(crate) fn set_ike_timers(&mut self, sa: &IkeSa) {
        let c = sa.conn();
        if !c.rekey_time.is_zero() {
            let at = self.less_jitter(c.rekey_time, c.rand_time);
            self.shared.timers.set(Timer::RekeyIke(sa.id()), self.now + at);
            self.log(Level::Debug, sa, format!("scheduling rekeying in {}s", at.as_secs()));
        }
        self.set_end(sa);
        liveness::rearm(self, sa);
        liveness::rearm_keepalive(self, sa);
    }

    /// Leaves everything that hangs on children to the IKE_SA that replaces this one.
    pub(crate) fn bequeath(&mut self, sa: &mut IkeSa, heir: IkeId) {
        let snapshot = Box::new(view::snapshot(&self.shared.timers, self.now, sa));
        let probing = std::mem::take(sa.probing_mut());
        let (children, tasks) = sa.hand_over(heir);
        let (rekey, over) = (Timer::RekeyIke(sa.id()), Timer::OverTime(sa.id()));
        let reauth = Timer::Reauth(sa.id());
        let (alive, keep) = (Timer::Liveness(sa.id()), Timer::Keepalive(sa.id()));
        for timer in [rekey, reauth, over, alive, keep, Timer::PathProbe(sa.id())] {
            self.shared.timers.cancel(timer);
        }
        let estate = Box::new(Estate { children, tasks, probing, snapshot });
        self.effect(Effect::Inherit { heir, estate });
    }
}

/// Names of the new children that are queued, asked for, or on their way.
pub(crate) fn names_in_work(sa: &IkeSa) -> impl Iterator<Item = &str> {
    children_in_work(sa).filter(|n| n.rekey.is_none()).map(|n| n.config.name.as_str())
}

/// Children that should be there and are not yet: new ones, and successors of such as have gone
/// meanwhile.
pub(crate) fn unborn(sa: &IkeSa) -> Vec<Arc<ChildConfig>> {
    let missing = |n: &&NewChild| n.rekey.is_none_or(|old| !sa.has_child(old));
    children_in_work(sa).filter(missing).map(|n| n.config.clone()).collect()
}

fn children_in_work(sa: &IkeSa) -> impl Iterator<Item = &NewChild> {
    let waiting = sa.waiting().and_then(|w| w.exchange.child());
    let active = sa.work().active().map(|a| &a.task);
    active
        .into_iter()
        .chain(sa.work().queued())
        .filter_map(|t| match t {
            Task::Child(n) | Task::Auth(Some(n)) => Some(&**n),
            Task::FollowUp(follow) => follow.child(),
            _ => None,
        })
        .chain(waiting)
}

/// A rekeying of the IKE_SA that is queued or runs.
pub(crate) fn rekeys_ike(sa: &IkeSa) -> bool {
    sa.work().queued().any(Task::rekeys_ike)
        || sa.work().active().is_some_and(|a| a.task.rekeys_ike())
        || sa.waiting().is_some_and(|w| w.exchange.rekeys_ike())
}

/// Queues a rekeying of the IKE_SA, unless one is under way.
pub(crate) fn queue_rekey_ike(sa: &mut IkeSa, ticket: Option<Ticket>) -> bool {
    if rekeys_ike(sa) || sa.state() != IkeState::Established || sa.roam().retired {
        return false;
    }
    sa.work_mut().push(Task::RekeyIke(Box::new(RekeyIke::new(ticket))));
    true
}
