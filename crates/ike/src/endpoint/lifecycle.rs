//! The life of an IKE_SA: the queue of tasks, establishment, what goes on to its successor, and the
//! commands that wait for it. How one begins is in `orders` and `initiate`, how it ends in `close`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Endpoint;
use super::todo::Todo;
use crate::event::{Completion, Event, IkeId, IkeState, Level, RequestId, Ticket};
use crate::sa::IkeSa;
use crate::task::{NewChild, RekeyIke, Task, auth, create_child, delete, liveness, rekey_ike, sa_init};
use crate::timer::Timer;
use ironswan_keying::{ChildConfig, Report, jitter};

impl Endpoint {
    // ---- tickets ----

    /// A ticket for `n` things that will each be [`Self::done`].
    pub(crate) fn open_ticket(&mut self, n: usize) -> Ticket {
        let ticket = self.tickets.open(n);
        if n == 0 {
            self.emit(Event::Done { ticket, result: Ok(()) });
        }
        ticket
    }

    /// One of the ticket's things has ended.
    pub(crate) fn done(&mut self, ticket: Option<Ticket>, result: Result<(), String>) {
        if let Some(ticket) = ticket
            && let Some(result) = self.tickets.done(ticket, result)
        {
            self.emit(Event::Done { ticket, result });
        }
    }

    /// A task will not be done.
    pub(crate) fn fail_task(&mut self, task: Task, why: &str) {
        let err = Err(why.to_owned());
        match task {
            Task::Init | Task::Liveness => {}
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
                self.spis.free_ike(task.spi);
                self.done(task.ticket, err);
            }
            Task::DeleteChild(task) => self.done(task.ticket, Ok(())),
            Task::DeleteIke(task) => self.done(task.ticket, Ok(())),
        }
    }

    /// Gives back what a child that will not be has reserved.
    pub(crate) fn abandon(&mut self, child: &NewChild) {
        self.spis.free_inbound_of(child.spi_in, child.id);
        self.free_cpi(child.id, child.cpi_in);
    }

    // ---- the queue ----

    /// Starts the next task, if the IKE_SA is free.
    pub(crate) fn pump(&mut self, now: Instant, sa: &mut IkeSa) {
        while !sa.dead && sa.active.is_none() && sa.wait.is_none() {
            let Some(task) = sa.queue.pop_front() else { return };
            match task {
                Task::Init => sa_init::build(self, now, sa),
                Task::Auth(_) => auth::build(self, now, sa),
                // Until IKE_AUTH takes it.
                Task::Child(new) if !sa.is_up() => {
                    sa.queue.push_front(Task::Child(new));
                    return;
                }
                Task::Child(new) => create_child::build(self, now, sa, new),
                Task::RekeyIke(task) => rekey_ike::build(self, now, sa, task),
                Task::DeleteChild(task) => delete::build_child(self, now, sa, task),
                Task::DeleteIke(task) => delete::build_ike(self, now, sa, task),
                Task::Liveness => liveness::build(self, now, sa),
            }
        }
    }

    /// The answer that an exchange of this IKE_SA waited for has come.
    pub(crate) fn resume(&mut self, now: Instant, sa: &mut IkeSa, id: RequestId, completion: Completion) {
        let Some(wait) = sa.wait.take_if(|w| w.id == id) else { return };
        if wait.exchange.is_of_peer() {
            self.count_computing(sa, false);
        }
        wait.exchange.resume(self, now, sa, completion);
        self.drain_backlog(now, sa);
    }

    // ---- establishment ----

    /// The peer is authenticated.
    pub(crate) fn establish(&mut self, now: Instant, sa: &mut IkeSa) {
        sa.state = IkeState::Established;
        sa.established = Some(now);
        sa.last_in = now;
        sa.announced = true;
        self.leave_half_open(sa);
        self.attempt_over(sa);
        self.index_identities(sa);
        let line = format!("IKE_SA {} established between {}", sa.name(), sa.ends());
        self.log(Level::Info, sa, line);
        self.set_ike_timers(now, sa);
        self.emit(Event::IkeUp(sa.id));
        self.report(Report::Up { conn: sa.conn.name.clone(), child: None });
        let ticket = sa.ticket.take();
        self.done(ticket, Ok(()));
        if let Some(init) = sa.init.take() {
            self.disown(&init, sa.initiator);
        }
        self.todo.push_back(Todo::Collapse(sa.id));
    }

    pub(crate) fn leave_half_open(&mut self, sa: &mut IkeSa) {
        if sa.half_open.is_some() {
            self.half_open.close(sa.id);
            self.counters.half_open = self.half_open.count() as u64;
        }
    }

    /// Rekeying, closing and liveness.
    pub(crate) fn set_ike_timers(&mut self, now: Instant, sa: &IkeSa) {
        let c = &sa.conn;
        if !c.rekey_time.is_zero() {
            let at = self.less_jitter(c.rekey_time, c.rand_time);
            self.timers.set(Timer::RekeyIke(sa.id), now + at);
            self.timers.set(Timer::OverTime(sa.id), now + c.rekey_time + c.over_time);
            self.log(Level::Debug, sa, format!("scheduling rekeying in {}s", at.as_secs()));
        }
        liveness::rearm(self, sa);
        liveness::rearm_keepalive(self, now, sa);
    }

    /// Between 5 and 15 seconds: when to try a rekeying again that found the peer busy.
    pub(crate) fn soon(&mut self) -> Duration {
        jitter::busy_pause(&mut self.rng)
    }

    /// How long a request is retransmitted until the peer is given up.
    pub(crate) fn patience(&self) -> Duration {
        (0..=self.limits().retransmit_tries).map(|n| self.retransmit_delay(n)).sum()
    }

    /// The same for this IKE_SA. One that begins by itself may be one of hundreds that began at the
    /// same moment and get no answer: up to a tenth less, so that they do not all send at once for
    /// ever.
    pub(crate) fn until_retransmit(&mut self, sa: &IkeSa, n: u32) -> Duration {
        let delay = self.retransmit_delay(n);
        if sa.automatic && !sa.is_up() { self.less_jitter(delay, delay / 10) } else { delay }
    }

    /// How long to wait for an answer to the `n`th retransmission (0: the first transmission).
    pub(crate) fn retransmit_delay(&self, n: u32) -> Duration {
        let factor = self.limits().retransmit_base.max(1.0).powi(i32::try_from(n).unwrap_or(i32::MAX));
        Duration::try_from_secs_f64(self.limits().retransmit_timeout.as_secs_f64() * factor)
            .unwrap_or(Duration::from_secs(3_600))
            .min(Duration::from_secs(3_600))
    }

    /// Moves everything that hangs on children from an IKE_SA to the one that replaced it: "the new
    /// IKE SA inherits all of the original IKE SA's Child SAs" (RFC 7296 section 2.8).
    pub(crate) fn inherit(&mut self, now: Instant, old: &mut IkeSa, new: IkeId) {
        let Some(mut sa) = self.sas.remove(&new) else { return };
        let snapshot = Box::new(self.snapshot(now, old));
        sa.children.append(&mut old.children);
        for id in sa.children.keys() {
            self.spis.move_home(*id, new);
        }
        let queue = std::mem::take(&mut old.queue);
        for task in queue {
            match task {
                task if task.follows_children() || matches!(task, Task::DeleteIke(_)) => {
                    sa.queue.push_back(task)
                }
                Task::RekeyIke(task) => self.done(task.ticket, Ok(())),
                _ => {}
            }
        }
        old.successor = Some(new);
        sa.predecessor = Some(old.id);
        old.state = IkeState::Rekeyed;
        let (rekey, over) = (Timer::RekeyIke(old.id), Timer::OverTime(old.id));
        for timer in [rekey, over, Timer::Liveness(old.id), Timer::Keepalive(old.id)] {
            self.timers.cancel(timer);
        }
        sa.state = IkeState::Established;
        sa.announced = true;
        self.report(Report::Up { conn: sa.conn.name.clone(), child: None });
        self.timers.cancel(Timer::Linger(new));
        self.set_ike_timers(now, &sa);
        self.index_identities(&sa);
        let line = format!("IKE_SA {} rekeyed between {}", sa.name(), sa.ends());
        self.log(Level::Info, &sa, line);
        self.emit(Event::IkeRekeyed { old: snapshot, new });
        old.announced = false;
        self.report(Report::Gone { conn: old.conn.name.clone(), child: None });
        self.forget_identities(old);
        self.pump(now, &mut sa);
        self.settle(sa);
    }
}

/// Names of the new children that are queued, asked for, or on their way.
pub(crate) fn names_in_work(sa: &IkeSa) -> impl Iterator<Item = &str> {
    children_in_work(sa).filter(|n| n.rekey.is_none()).map(|n| n.config.name.as_str())
}

/// Children that should be there and are not yet: new ones, and successors of such as have gone
/// meanwhile.
pub(crate) fn unborn(sa: &IkeSa) -> Vec<Arc<ChildConfig>> {
    let missing = |n: &&NewChild| n.rekey.is_none_or(|old| !sa.children.contains_key(&old));
    children_in_work(sa).filter(missing).map(|n| n.config.clone()).collect()
}

fn children_in_work(sa: &IkeSa) -> impl Iterator<Item = &NewChild> {
    let waiting = sa.wait.as_ref().and_then(|w| w.exchange.child());
    let active = sa.active.as_ref().map(|a| &a.task);
    active
        .into_iter()
        .chain(sa.queue.iter())
        .filter_map(|t| match t {
            Task::Child(n) | Task::Auth(Some(n)) => Some(&**n),
            _ => None,
        })
        .chain(waiting)
}

/// A rekeying of the IKE_SA that is queued or runs.
pub(crate) fn rekeys_ike(sa: &IkeSa) -> bool {
    let task = |t: &Task| matches!(t, Task::RekeyIke(_));
    sa.queue.iter().any(task)
        || sa.active.as_ref().is_some_and(|a| task(&a.task))
        || sa.wait.as_ref().is_some_and(|w| w.exchange.rekeys_ike())
}

/// Queues a rekeying of the IKE_SA, unless one is under way.
pub(crate) fn queue_rekey_ike(sa: &mut IkeSa, ticket: Option<Ticket>) -> bool {
    if rekeys_ike(sa) || sa.state != IkeState::Established {
        return false;
    }
    sa.queue.push_back(Task::RekeyIke(Box::new(RekeyIke::new(ticket))));
    true
}
