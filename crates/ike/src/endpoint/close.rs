//! The end of an IKE_SA, what the configuration says happens then, and trying again.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use super::Endpoint;
use super::initiate::{Kept, Start};
use super::lifecycle::{Todo, names_in_work, unborn};
use crate::event::{ChildId, Event, IkeId, IkeState, Level, Ticket};
use crate::sa::IkeSa;
use crate::task::Task;
use crate::task::create_child::NewChild;
use crate::task::delete::DeleteIke;
use crate::timer::Timer;
use ironswan_keying::limits::{RETRY_ROUTED, RETRY_SOON};
use ironswan_keying::{ChildAction, ChildConfig};

/// What those who wait for an IKE_SA are told when it is closed on purpose.
pub(super) const TERMINATED: &str = "the IKE_SA was terminated";

/// Another attempt that waits for its time.
pub(crate) struct Retry {
    pub conn: String,
    pub children: Vec<Option<String>>,
    pub attempt: u32,
    automatic: bool,
    pub ticket: Option<Ticket>,
    /// As in [`Start`].
    replaces: Option<IkeId>,
    prefer: Option<IpAddr>,
    kept: Option<Kept>,
    /// The one before had no route: made as soon as there may be one.
    no_route: bool,
}

/// Why an IKE_SA ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Close {
    /// The peer deleted it.
    ByPeer,
    /// We deleted it, as somebody wanted.
    ByUs,
    /// It was not established, and is not wanted any more, for this reason.
    LetGo(&'static str),
    /// We deleted it, as its lifetime was over.
    OverTime,
    /// It was established, and the peer is dead or misbehaves.
    Lost(String),
    /// It was established, and one side cannot read what the other has sent: both have dropped it (RFC 7296 section 2.21.3).
    Syntax(String),
    /// It was not established, and will not be.
    Failed(String),
    /// It was not established, and the peer does not answer.
    NoAnswer,
    /// It was not established, and there is no route to the peer.
    NoRoute(String),
    /// It was not established, and our address is another now.
    Rerouted(String),
    /// Another IKE_SA has taken over everything.
    Replaced,
    /// The peer has lost it and has come back (INITIAL_CONTACT).
    Forgotten,
}

impl Endpoint {
    /// Ends an IKE_SA: its children, its tasks, its place in every index; then what the configuration says happens.
    ///
    /// | how | listed as down | action for its children | an attempt is made again |
    /// |---|---|---|---|
    /// | `ByPeer` | yes | `close_action` | no |
    /// | `ByUs`, `LetGo` | no more, unless it is made anew | none | no |
    /// | `OverTime`, `Forgotten` | yes | none | no |
    /// | `Lost` | yes | `dpd_action` | no |
    /// | `Syntax` | yes | `dpd_action`, or else `close_action`; a start after a pause | no |
    /// | `Failed` | yes | none | while tries are left, if it is automatic or tried without end |
    /// | `NoAnswer` | yes | none | while tries are left |
    /// | `NoRoute` | yes | none | if it is automatic or tried without end |
    /// | `Rerouted` | as before | none | yes, as the same try |
    /// | `Replaced` | as before | none | no |
    pub(crate) fn close_ike(&mut self, now: Instant, sa: &mut IkeSa, how: Close) {
        if sa.dead {
            return;
        }
        sa.dead = true;
        let how = if how == Close::ByUs && sa.over_time { Close::OverTime } else { how };
        let was_up = sa.is_up();
        let snapshot = sa.announced.then(|| Box::new(self.snapshot(now, sa)));
        self.leave_half_open(sa);
        if let Some(init) = &sa.init {
            self.disown(init, sa.initiator);
        }
        self.pace.over(sa.id);
        if let Some((spi_i, remote)) = sa.half_open {
            self.half_open.forget(spi_i, remote);
        }
        for timer in Timer::of_ike(sa.id) {
            self.timers.cancel(timer);
        }
        self.by_spi.remove(&sa.our_spi());
        remove_from(&mut self.by_conn, &sa.conn.name, sa.id);
        self.forget_identities(sa);

        let reason = match &how {
            Close::ByPeer => "the peer deleted the IKE_SA".to_owned(),
            Close::ByUs => TERMINATED.to_owned(),
            Close::LetGo(why) => (*why).to_owned(),
            Close::OverTime => "the lifetime of the IKE_SA was over and it had not been rekeyed".to_owned(),
            Close::Lost(why)
            | Close::Syntax(why)
            | Close::Failed(why)
            | Close::NoRoute(why)
            | Close::Rerouted(why) => why.clone(),
            Close::NoAnswer => "establishing IKE_SA failed, peer not responding".to_owned(),
            Close::Replaced => "the IKE_SA was rekeyed".to_owned(),
            Close::Forgotten => "the peer has lost the IKE_SA".to_owned(),
        };
        if let (Close::Failed(why) | Close::NoRoute(why), false, true) = (&how, was_up, sa.initiator) {
            self.log(Level::Error, sa, format!("establishing IKE_SA failed: {why}"));
        }

        // What was wanted of an IKE_SA that did not come up, to be tried again.
        let wanted = wanted(sa);
        // One that was established owes its children what the configuration says, whether they were there yet or not.
        let unborn = if was_up && sa.announced { unborn(sa) } else { Vec::new() };
        // Another address of the peer is asked besides, or now.
        let goes_on = self.leave_race(now, sa, &how);
        let tasks = sa.active.take().map(|a| a.task).into_iter();
        let wait = sa.wait.take();
        if let Some(wait) = &wait {
            self.forget_request(wait.id);
            if wait.exchange.is_of_peer() {
                self.count_computing(sa, false);
            }
        }
        let waiting = wait.and_then(|w| w.exchange.into_task());
        let tasks: Vec<Task> = tasks.chain(waiting).chain(sa.queue.drain(..)).collect();
        for task in tasks {
            self.fail_task(task, &reason);
        }
        let ticket = sa.ticket.take();
        self.done(ticket, Err(reason.clone()));

        let ids: Vec<ChildId> = sa.children.keys().copied().collect();
        let mut again = Vec::new();
        for id in ids {
            let Some(child) = self.remove_child(now, sa, id) else { continue };
            if child.replaced_by.is_some() || !child.announced {
                continue;
            }
            again.push((child.config.name.clone(), action(&how, &child.config)));
        }
        for config in unborn {
            if !again.iter().any(|(name, _)| *name == config.name) {
                again.push((config.name.clone(), action(&how, &config)));
            }
        }
        let lost = again.iter().map(|(name, _)| Some(name.clone()));
        let failed = wanted.iter().filter(|_| sa.initiator && !was_up).cloned();
        for child in lost.chain(failed) {
            match &how {
                Close::ByUs | Close::LetGo(_) => self.unwanted(&sa.conn.name, &child),
                // The new one has, or is about to have, what this one had.
                Close::Replaced | Close::Rerouted(_) => {}
                _ => self.ended(now, &sa.conn.name, child.as_deref(), &reason),
            }
        }
        if let Some(info) = snapshot.filter(|_| how != Close::Replaced) {
            self.emit(Event::IkeDown(info));
        }
        let mut later = Vec::new();
        for (name, action) in again {
            match (&how, action) {
                // What could not be read may come again: not in a loop that takes no time.
                (Close::Syntax(_), ChildAction::Start) => later.push(Some(name)),
                _ => self.act(&sa.conn.name.clone(), &name, action),
            }
        }
        if !later.is_empty() && self.loaded.connections().contains_key(&sa.conn.name) {
            let pause = self.limits.retry_initial;
            let pause = self.less_jitter(pause, pause / 2);
            let line = format!("bringing it up again in {:.1}s", pause.as_secs_f64());
            self.log(Level::Info, sa, line);
            self.start_later(now, &sa.conn.name.clone(), later, None, pause);
        }
        if let Some(old) = sa.roam.replaces.filter(|_| was_up) {
            self.todo.push_back(Todo::Stay(old));
        }
        if was_up || !sa.initiator || goes_on {
            return;
        }
        let tries = self.tries(sa, &wanted);
        // Every address of the peer once makes a try.
        let more = tries == 0 || sa.attempt < tries.saturating_mul(sa.choices.max(1));
        let again = match how {
            Close::NoAnswer => more,
            // An answer that says no is repeated by asking again only when nobody waits for the answer.
            Close::Failed(_) => more && (sa.automatic || tries == 0),
            // The peer has not been asked at all.
            Close::NoRoute(_) => sa.automatic || tries == 0,
            Close::Rerouted(_) => true,
            _ => false,
        };
        if again {
            self.retry_later(now, sa, wanted, &how);
        } else if let Some(old) = sa.roam.replaces {
            self.todo.push_back(Todo::Stay(old));
        }
    }

    /// Ends an attempt of ours that nobody wants any more. A peer that may have established it is told until it answers;
    /// whoever waits for the attempt is told at once why it ends.
    pub(crate) fn let_go(&mut self, now: Instant, sa: &mut IkeSa, why: &'static str) {
        if sa.state == IkeState::Rekeyed {
            // Its DELETE is under way.
            return;
        }
        if sa.is_up() {
            return self.last_delete(now, sa);
        }
        let line = format!("deleting IKE_SA {} between {}", sa.name(), sa.ends());
        self.log(Level::Info, sa, line);
        if !sa.may_be_up_there() {
            return self.close_ike(now, sa, Close::LetGo(why));
        }
        self.leave_race(now, sa, &Close::LetGo(why));
        self.pace.over(sa.id);
        for child in wanted(sa) {
            self.unwanted(&sa.conn.name, &child);
        }
        let tasks = sa.active.take().map(|a| a.task).into_iter().chain(sa.queue.drain(..));
        for task in tasks.collect::<Vec<_>>() {
            self.fail_task(task, why);
        }
        let ticket = sa.ticket.take();
        self.done(ticket, Err(why.to_owned()));
        if let Some(old) = std::mem::take(&mut sa.roam).replaces {
            self.todo.push_back(Todo::Stay(old));
        }
        self.take_back(sa);
    }

    /// Our IKE_AUTH request, which the peer may have taken, counts no more: a DELETE follows it. A peer that has taken the
    /// IKE_AUTH takes the DELETE as the next request, and one that has not passes it over. The IKE_AUTH is not sent again:
    /// its INITIAL_CONTACT would not be true any more.
    pub(super) fn take_back(&mut self, sa: &mut IkeSa) {
        self.timers.cancel(Timer::Retransmit(sa.id));
        self.timers.cancel(Timer::Rival(sa.id));
        sa.active = None;
        sa.window.response_seen();
        sa.state = IkeState::Rekeyed;
        sa.queue = [Task::DeleteIke(DeleteIke::default())].into();
    }

    /// How many tries there are, 0 for any number. A child that is to be up always (`start_action` and `dpd_action` both
    /// start it) is tried without end whatever `keyingtries` says: that bounds what is done on command.
    fn tries(&self, sa: &IkeSa, wanted: &[Option<String>]) -> u32 {
        let always = |c: &ChildConfig| {
            c.start_action == ChildAction::Start
                && c.dpd_action == ChildAction::Start
                && wanted.iter().any(|w| w.as_deref() == Some(c.name.as_str()))
        };
        match sa.automatic && sa.conn.children.iter().any(always) {
            true => 0,
            false => sa.conn.keyingtries,
        }
    }

    /// `start_action`, `close_action`, `dpd_action`.
    pub(crate) fn act(&mut self, conn: &str, child: &str, action: ChildAction) {
        match action {
            ChildAction::None => {}
            ChildAction::Start => {
                let start = Start::automatic(conn.to_owned(), Some(child.to_owned()));
                self.todo.push_back(Todo::Start(start));
            }
            ChildAction::Trap => self.install_trap(conn, child),
        }
    }

    fn retry_later(&mut self, now: Instant, sa: &mut IkeSa, children: Vec<Option<String>>, how: &Close) {
        if !self.loaded.connections().contains_key(&sa.conn.name) {
            return;
        }
        let rounds = sa.attempt.saturating_sub(1) / sa.choices.max(1);
        let same_round = *how == Close::NoAnswer && !sa.attempt.is_multiple_of(sa.choices.max(1));
        let pause = match how {
            Close::Rerouted(_) => RETRY_SOON,
            // The next of the peer's addresses.
            _ if same_round => RETRY_SOON,
            _ => (self.limits.retry_initial * 2u32.pow(rounds.min(16))).min(self.limits.retry_max),
        };
        // Between half and all of it, so that the peers of a gateway that was away do not come back all at once.
        let half = pause / 2;
        let millis = u64::try_from(half.as_millis()).unwrap_or(u64::MAX);
        let pause = half + Duration::from_millis(self.random_below(millis.saturating_add(1)));
        let id = self.new_retry_id();
        let (attempt, tries) = match how {
            Close::Rerouted(_) => (sa.attempt, self.tries(sa, &children)),
            _ => (sa.attempt + 1, self.tries(sa, &children)),
        };
        let line = format!(
            "trying again in {:.1}s ({attempt}/{})",
            pause.as_secs_f64(),
            if tries == 0 {
                "forever".to_owned()
            } else {
                tries.saturating_mul(sa.choices.max(1)).to_string()
            }
        );
        self.log(Level::Info, sa, line);
        self.retries.insert(
            id,
            Retry {
                conn: sa.conn.name.clone(),
                children,
                attempt,
                automatic: sa.automatic,
                ticket: None,
                replaces: sa.roam.replaces,
                prefer: sa.roam.prefer,
                // Only what has not been answered: an answer is to this message, which must not change then. The key pair may be
                // that of the attempts at other addresses as well (see `race`). Not what went out with a cookie: a late answer
                // would be to another message than the one that is sent then.
                kept: sa
                    .init
                    .take_if(|i| i.private.is_some() && sa.spi_r == 0 && i.cookie.is_none())
                    .map(|init| Kept { spi_i: sa.spi_i, init }),
                no_route: matches!(how, Close::NoRoute(_)),
            },
        );
        self.timers.set(Timer::Retry(id), now + pause);
    }

    pub(crate) fn retry(&mut self, id: u64) {
        let Some(mut retry) = self.retries.remove(id) else { return };
        for child in retry.children {
            self.todo.push_back(Todo::Start(Start {
                conn: retry.conn.clone(),
                child,
                ticket: retry.ticket,
                packet: None,
                attempt: retry.attempt,
                automatic: retry.automatic,
                replaces: retry.replaces,
                prefer: retry.prefer,
                kept: retry.kept.take(),
                at_load: false,
            }));
        }
    }

    /// Routes have changed: attempts that had none are made soon.
    pub(super) fn retry_without_route(&mut self, now: Instant) {
        let ids: Vec<u64> = self.retries.iter().filter(|(_, r)| r.no_route).map(|(id, _)| id).collect();
        for id in ids {
            let pause = self.random_part(RETRY_ROUTED);
            self.timers.set(Timer::Retry(id), now + pause);
        }
    }

    /// Forgets attempts to come of a connection. How many there were.
    pub(crate) fn cancel_retries(&mut self, conn: &str) -> usize {
        self.pace.forget(conn);
        let ids: Vec<u64> = self.retries.of(conn).map(|(id, _)| id).collect();
        for id in &ids {
            self.cancel_retry(*id, "cancelled");
        }
        ids.len()
    }

    /// Forgets all attempts to come.
    pub(super) fn cancel_all_retries(&mut self) {
        self.pace.clear();
        let ids: Vec<u64> = self.retries.iter().map(|(id, _)| id).collect();
        for id in ids {
            self.cancel_retry(id, "cancelled");
        }
    }

    /// Forgets one attempt to come.
    pub(super) fn cancel_retry(&mut self, id: u64, why: &str) {
        if let Some(retry) = self.retries.remove(id) {
            self.done(retry.ticket, Err(why.to_owned()));
        }
        self.timers.cancel(Timer::Retry(id));
    }

    /// A new child that found the peer busy: once more, soon.
    pub(crate) fn child_later(&mut self, now: Instant, sa: &IkeSa, new: Box<NewChild>) {
        self.abandon(&new);
        let pause = self.soon();
        let line = format!(
            "the peer is busy, trying CHILD_SA {} again in {} seconds",
            new.config.name,
            pause.as_secs()
        );
        self.log(Level::Info, sa, line);
        self.start_later(now, &sa.conn.name, vec![Some(new.config.name.clone())], new.ticket, pause);
    }

    /// Brings these children of a connection up after a pause.
    fn start_later(
        &mut self,
        now: Instant,
        conn: &str,
        children: Vec<Option<String>>,
        ticket: Option<Ticket>,
        pause: Duration,
    ) {
        let id = self.new_retry_id();
        self.retries.insert(
            id,
            Retry {
                conn: conn.to_owned(),
                children,
                attempt: 1,
                automatic: true,
                ticket,
                replaces: None,
                prefer: None,
                kept: None,
                no_route: false,
            },
        );
        self.timers.set(Timer::Retry(id), now + pause);
    }
}

/// The children that an IKE_SA has not brought up yet; `None` alone when it is wanted without any.
fn wanted(sa: &IkeSa) -> Vec<Option<String>> {
    let names: Vec<_> = names_in_work(sa).map(|name| Some(name.to_owned())).collect();
    if names.is_empty() { vec![None] } else { names }
}

/// What the end of an IKE_SA means for a child of it.
fn action(how: &Close, config: &ChildConfig) -> ChildAction {
    match how {
        Close::ByPeer => config.close_action,
        Close::Lost(_) => config.dpd_action,
        // Neither a peer that closes nor a dead one: whichever of the two brings it back.
        Close::Syntax(_) if config.dpd_action == ChildAction::None => config.close_action,
        Close::Syntax(_) => config.dpd_action,
        _ => ChildAction::None,
    }
}

/// Takes an IKE_SA out of an index.
pub(crate) fn remove_from<K: Ord>(index: &mut BTreeMap<K, BTreeSet<IkeId>>, key: &K, id: IkeId) {
    if let Some(set) = index.get_mut(key) {
        set.remove(&id);
        if set.is_empty() {
            index.remove(key);
        }
    }
}
