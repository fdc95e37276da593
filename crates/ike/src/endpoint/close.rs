//! The end of an IKE_SA: its children, its tasks, its place in every index. Policy says what
//! follows.

use ironswan_keying::diagnosis::{Diagnosis, NotDone, Path, ProbeRefusal};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Instant;

use ironswan_wire::iana::NotifyType;

use super::Endpoint;
use super::todo::Todo;
use super::unanswered::UnansweredInit;
use crate::context::lifecycle::{names_in_work, unborn};
use crate::event::{Event, IkeId, IkeState, Level};
use crate::sa::{Active, IkeSa, Init};
use crate::task::{DeleteIke, Task, path_probe};
use crate::timer::Timer;
use ironswan_keying::tunnels::{Close, Ended, Tried};
use ironswan_keying::{ChildAction, ChildConfig, Report};

impl Endpoint {
    /// Ends an IKE_SA, and reports its end to policy.
    pub(crate) fn close_ike(&mut self, now: Instant, sa: &mut IkeSa, how: Close) {
        if !sa.die() {
            self.closed(now, sa, how);
        }
    }

    /// An IKE_SA has been ended: takes it out of every index, and reports its end to policy.
    pub(super) fn closed(&mut self, now: Instant, sa: &mut IkeSa, how: Close) {
        let how = if how == Close::ByUs && sa.is_over_time() { Close::OverTime } else { how };
        let was_up = sa.is_up();
        let snapshot = sa.is_announced().then(|| Box::new(self.snapshot(now, sa)));
        if sa.is_announced() {
            self.report(Report::Gone { conn: sa.conn().name.clone(), child: None });
        }
        self.leave_indexes(now, sa);

        let reason = how.reason();
        if let (Close::Failed(why) | Close::NoRoute(why), false, true) = (&how, was_up, sa.is_initiator()) {
            self.log_end(sa, why);
        }

        let refused = self.ended_at_probe(now, sa, &how);
        self.forget_path(sa);
        let wanted = wanted(sa);
        // An established IKE_SA owes its children what the configuration says, whether they were
        // there yet or not.
        let unborn = if was_up && sa.is_announced() { unborn(sa) } else { Vec::new() };
        // Another address of the peer is asked besides, or now.
        let goes_on = self.leave_race(now, sa, &how);
        self.hand_over(now, sa);
        let mut lost = self.on(now, sa, |cx, sa| {
            cx.drop_tasks(sa, &reason);
            cx.drop_children(sa)
        });
        for config in unborn {
            if !lost.iter().any(|have| have.name == config.name) {
                lost.push(config);
            }
        }
        if let Some(info) = snapshot.filter(|_| how != Close::Replaced) {
            self.emit(Event::IkeDown(info));
        }
        let tried = (!was_up && sa.is_initiator()).then(|| tried(sa, wanted, goes_on));
        if goes_on {
            // The attempt that goes on takes everything over.
        } else if tried.is_some() {
            // Until policy has said whether the attempt is repeated.
            self.unanswered.extend(unanswered_init(sa).map(|init| (sa.id(), init)));
        } else if let Some(old) = sa.roam().replaces {
            self.shared.todo.push_back(Todo::Stay(old));
        }
        let again = if refused { with_nobody_to_start(sa, &how, &lost) } else { Vec::new() };
        self.report(Report::Ended(Ended { ike: sa.id(), conn: sa.conn().clone(), end: how, lost, tried }));
        for child in again {
            self.report(Report::Act { conn: sa.conn().name.clone(), child, action: ChildAction::Start });
        }
    }

    /// What this IKE_SA has measured of its path counts no more, unless another one to the same
    /// address has found the path narrow as well.
    fn forget_path(&mut self, sa: &mut IkeSa) {
        if let Some(remote) = sa.probing_mut().told.take()
            && !self.sas.values().any(|other| other.probing().told == Some(remote))
        {
            self.emit(Event::PathMtu { ike: sa.id(), remote, mtu: None });
        }
    }

    /// An established IKE_SA ends while a message of ours that measures the path is in flight. True
    /// when the peer has ended it because of that, for all that we know. The peer gets no such
    /// message any more then, nor when it has never answered one.
    fn ended_at_probe(&mut self, now: Instant, sa: &mut IkeSa, how: &Close) -> bool {
        if !matches!(sa.work().active(), Some(Active { task: Task::PathProbe(_), .. })) {
            return false;
        }
        // A peer that has answered such messages has another reason.
        let new = !sa.probing().answered;
        let refusal = match how {
            Close::Syntax(_) => ProbeRefusal::Error(NotifyType::INVALID_SYNTAX),
            Close::ByPeer if new => ProbeRefusal::Deleted,
            Close::Lost(Diagnosis::Path(Path::PeerDead { .. })) if new => ProbeRefusal::Silent,
            _ => return false,
        };
        // A silent peer may as well be dead, so its children do as `dpd_action` says.
        let surely = refusal != ProbeRefusal::Silent;
        self.on(now, sa, |cx, sa| path_probe::refused(cx, sa, refusal));
        surely
    }

    /// Children on another IKE_SA that are to take over send before those of this one end.
    fn hand_over(&mut self, now: Instant, sa: &IkeSa) {
        let heirs: Vec<_> = sa.children().filter_map(|c| self.shared.handovers.heir(c.id())).collect();
        for heir in heirs {
            self.with_child(now, heir, |cx, sa| cx.activate(sa, heir));
        }
    }

    /// Takes an IKE_SA out of everything that finds it.
    fn leave_indexes(&mut self, now: Instant, sa: &mut IkeSa) {
        self.leave_half_open(sa);
        if let Some(init) = sa.init() {
            self.shared.own.remove(init, sa.is_initiator());
        }
        self.on(now, sa, |cx, sa| cx.attempt_over(sa));
        if let Some((spi_i, remote)) = sa.half_open() {
            self.half_open.forget(spi_i, remote);
        }
        for timer in Timer::of_ike(sa.id()) {
            self.shared.timers.cancel(timer);
        }
        self.shared.spis.free_ike(sa.our_spi());
        for awaited in sa.follow_ups_mut().take_all() {
            self.shared.release(&awaited.agreement);
        }
        remove_from(&mut self.by_conn, &sa.conn().name, sa.id());
        self.forget_identities(sa);
    }

    /// Ends an attempt of ours that nobody wants any more. A peer that may have established it is
    /// told until it answers; whoever waits for the attempt is told at once why it ends.
    pub(crate) fn let_go(&mut self, now: Instant, sa: &mut IkeSa, why: NotDone) {
        if sa.state() == IkeState::Rekeyed {
            // The DELETE is under way.
            return;
        }
        if sa.is_up() {
            return self.on(now, sa, |cx, sa| cx.last_delete(sa));
        }
        let line = format!("deleting IKE_SA {} between {}", sa.name(), sa.ends());
        self.log(Level::Info, sa, line);
        if !sa.may_be_up_there() {
            return self.close_ike(now, sa, Close::LetGo(why));
        }
        self.leave_race(now, sa, &Close::LetGo(why.clone()));
        let why = Diagnosis::from(why);
        self.on(now, sa, |cx, sa| cx.attempt_over(sa));
        for child in wanted(sa) {
            self.report(Report::Unwanted { conn: sa.conn().name.clone(), child });
        }
        let active = sa.work_mut().take_active().map(|a| a.task);
        let tasks = active.into_iter().chain(sa.work_mut().take_queue());
        let tasks = tasks.collect::<Vec<_>>();
        self.aside(now, |cx| tasks.into_iter().for_each(|task| cx.fail_task(task, &why)));
        let ticket = sa.attempt_mut().ticket.take();
        self.done(ticket, Err(why));
        if let Some(old) = std::mem::take(sa.roam_mut()).replaces {
            self.shared.todo.push_back(Todo::Stay(old));
        }
        self.take_back(sa);
    }

    /// Our IKE_AUTH request, which the peer may have taken, counts no more: a DELETE follows it. A
    /// peer that has taken the IKE_AUTH takes the DELETE as the next request, and one that has not
    /// passes it over. The IKE_AUTH is not sent again: its INITIAL_CONTACT would not be true any
    /// more.
    pub(super) fn take_back(&mut self, sa: &mut IkeSa) {
        self.shared.timers.cancel(Timer::Retransmit(sa.id()));
        self.shared.timers.cancel(Timer::Rival(sa.id()));
        sa.work_mut().answered();
        sa.set_state(IkeState::Rekeyed);
        sa.work_mut().take_queue();
        sa.work_mut().push(Task::DeleteIke(DeleteIke::default()));
    }
}

/// The request that the next attempt may use again: only one that nobody has answered, as an answer
/// is to this message, which must not change then. The key pair may be that of the attempts at
/// other addresses as well (see `race`). Not a request with a cookie: a late answer would be to
/// another message than the one that is sent then.
fn unanswered_init(sa: &mut IkeSa) -> Option<UnansweredInit> {
    let (spi_i, unanswered) = (sa.spi_i(), sa.spi_r() == 0);
    let again = |i: &Init| unanswered && i.private.is_some() && i.cookie.is_none();
    let init = if sa.init().is_some_and(again) { sa.take_init() } else { None }?;
    Some(UnansweredInit { spi_i, init })
}

/// Our attempt that has come to nothing, for policy to judge.
fn tried(sa: &IkeSa, children: Vec<Option<String>>, goes_on: bool) -> Tried {
    Tried {
        children,
        number: sa.attempt().number,
        addresses: sa.attempt().choices,
        automatic: sa.attempt().automatic,
        prefer: sa.roam().prefer,
        takes_over: sa.roam().replaces,
        goes_on,
    }
}

/// Names of the children of a tunnel that was well until we measured its path, and that nothing in
/// the configuration brings back after this end.
fn with_nobody_to_start(sa: &IkeSa, how: &Close, lost: &[Arc<ChildConfig>]) -> Vec<String> {
    let none = |child: &&Arc<ChildConfig>| match how {
        // It may have been somebody's wish.
        Close::ByPeer => child.close_action == ChildAction::None && child.start_action.starts(),
        Close::Lost(_) => child.dpd_action == ChildAction::None,
        _ => child.close_action == ChildAction::None && child.dpd_action == ChildAction::None,
    };
    let ours = sa.is_initiator() && sa.conn().has_reachable_peer();
    lost.iter().filter(|_| ours).filter(none).map(|child| child.name.clone()).collect()
}

/// The children that an IKE_SA has not brought up yet; `None` alone when it is wanted without any.
fn wanted(sa: &IkeSa) -> Vec<Option<String>> {
    let names: Vec<_> = names_in_work(sa).map(|name| Some(name.to_owned())).collect();
    if names.is_empty() { vec![None] } else { names }
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
