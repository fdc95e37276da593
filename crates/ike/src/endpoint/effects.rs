//! Lends an IKE_SA its surroundings, and carries out the effects of its exchanges.

use std::time::Instant;

use super::Endpoint;
use super::others::Neighbours;
use super::view::snapshot_without_children;
use crate::context::{Context, Effect, Effects, Estate, Settings};
use crate::event::{Event, IkeId, IkeSaInfo, Level};
use crate::sa::IkeSa;
use crate::task::{Task, path_probe, qcd};
use crate::timer::Timer;
use ironswan_keying::Report;
use ironswan_keying::diagnosis::{Entry, KeyExchangeEntry};

impl Endpoint {
    /// Works on one IKE_SA, which is out of the table meanwhile, and then starts what waits in its
    /// queue.
    pub(crate) fn with_sa(&mut self, now: Instant, id: IkeId, work: impl FnOnce(&mut Self, &mut IkeSa)) {
        let Some(mut sa) = self.sas.remove(&id) else { return };
        let (local, remote) = (sa.local(), sa.remote());
        let stood = sa.is_announced();
        work(self, &mut sa);
        self.pump(now, &mut sa);
        self.on(now, &mut sa, |cx, sa| cx.moved_on(sa));
        if stood && !sa.is_dead() && (sa.local(), sa.remote()) != (local, remote) {
            let old = IkeSaInfo { local, remote, ..snapshot_without_children(&self.shared.timers, now, &sa) };
            self.emit(Event::IkeMoved { old: Box::new(old), local: sa.local(), remote: sa.remote() });
        }
        self.settle(sa);
    }

    /// The same, for work that needs no more than the surroundings of the IKE_SA.
    pub(crate) fn work_on(
        &mut self,
        now: Instant,
        id: IkeId,
        work: impl FnOnce(&mut Context<'_>, &mut IkeSa),
    ) {
        self.with_sa(now, id, |ep, sa| ep.on(now, sa, work));
    }

    /// Lends an IKE_SA, which is out of the table, its surroundings, and carries out what its work
    /// has for effects.
    pub(crate) fn on<R>(
        &mut self,
        now: Instant,
        sa: &mut IkeSa,
        work: impl FnOnce(&mut Context<'_>, &mut IkeSa) -> R,
    ) -> R {
        let mut effects = Effects::new();
        let result = self.lend(now, &mut effects, |cx| work(cx, sa));
        while let Some(effect) = effects.pop_front() {
            self.carry_out(now, sa, effect);
        }
        result
    }

    /// Lends surroundings for work that concerns no IKE_SA in particular, and has no effects.
    pub(super) fn aside<R>(&mut self, now: Instant, work: impl FnOnce(&mut Context<'_>) -> R) -> R {
        let mut effects = Effects::new();
        let result = self.lend(now, &mut effects, work);
        debug_assert!(effects.is_empty(), "an effect without IKE_SA");
        result
    }

    fn lend<R>(
        &mut self,
        now: Instant,
        effects: &mut Effects,
        work: impl FnOnce(&mut Context<'_>) -> R,
    ) -> R {
        let others = Neighbours { sas: &self.sas, by_conn: &self.by_conn, by_ids: &self.by_ids };
        let settings = Settings {
            options: self.options,
            policy: &*self.policy,
            limits: &self.limits,
            addresses: &self.addresses,
        };
        work(&mut Context::new(now, settings, &others, effects, &mut self.shared))
    }

    fn carry_out(&mut self, now: Instant, sa: &mut IkeSa, effect: Effect) {
        match effect {
            Effect::Close(how) => self.closed(now, sa, how),
            Effect::Done(ticket) => self.done(Some(ticket), Ok(())),
            Effect::Admit { peer, initial_contact, then } => {
                let admitted = self.admit(now, sa, &peer, initial_contact);
                self.on(now, sa, |cx, sa| then(cx, sa, admitted));
            }
            Effect::Established => {
                self.leave_half_open(sa);
                self.index_identities(sa);
            }
            Effect::LeftConnection(before) => {
                super::close::remove_from(&mut self.by_conn, &before, sa.id());
                self.by_conn.entry(sa.conn().name.clone()).or_default().insert(sa.id());
                self.forget_counters(&before);
            }
            Effect::Adopt(mut new) => {
                self.by_conn.entry(new.conn().name.clone()).or_default().insert(new.id());
                self.pump(now, &mut new);
                self.settle(new);
            }
            Effect::Inherit { heir, estate } => self.inherit(now, sa, heir, *estate),
            Effect::Silenced { ike, child } => {
                let child = self.sas.get_mut(&ike).and_then(|sa| sa.child_mut(child));
                if let Some(child) = child {
                    child.stop_sending();
                }
            }
            Effect::KeepOwn { race } => self.own_race(race),
        }
    }

    /// Gives what a rekeyed IKE_SA has left to the one that replaced it: "the new IKE SA inherits
    /// all of the original IKE SA's Child SAs" (RFC 7296 section 2.8).
    fn inherit(&mut self, now: Instant, old: &mut IkeSa, heir: IkeId, estate: Estate) {
        let Some(mut sa) = self.sas.remove(&heir) else {
            // Nobody is there to take it.
            old.take_back(estate.children, estate.tasks);
            *old.probing_mut() = estate.probing;
            return;
        };
        for id in estate.children.keys() {
            self.shared.spis.move_home(*id, heir);
        }
        sa.take_children(estate.children);
        for task in estate.tasks {
            match task {
                task if task.follows_children() || matches!(task, Task::DeleteIke(_)) => {
                    sa.work_mut().push(task)
                }
                Task::RekeyIke(task) => self.done(task.ticket, Ok(())),
                _ => {}
            }
        }
        sa.take_over_from(old.id());
        *sa.roam_mut() = std::mem::take(old.roam_mut());
        *sa.probing_mut() = estate.probing;
        if let Some(at) = self.shared.timers.get(Timer::Retire(old.id())) {
            self.shared.timers.set(Timer::Retire(heir), at);
        }
        self.report(Report::Up { conn: sa.conn().name.clone(), child: None });
        self.shared.timers.cancel(Timer::Linger(heir));
        self.on(now, &mut sa, |cx, sa| {
            cx.set_ike_timers(sa);
            cx.watch_flow(sa);
            path_probe::go_on(cx, sa);
            qcd::announce(cx, sa);
        });
        self.index_identities(&sa);
        let line = format!("IKE_SA {} rekeyed between {}", sa.name(), sa.ends());
        self.log(Level::Info, &sa, line);
        self.emit(Event::IkeRekeyed { old: estate.snapshot, new: heir });
        self.report(Report::Gone { conn: old.conn().name.clone(), child: None });
        if std::mem::take(&mut old.signs_mut().refused) {
            let entry = Entry::KeyExchange(KeyExchangeEntry::RekeyRefused);
            self.emit(Event::Over { conn: sa.conn().name.clone(), ike: heir, entry });
        }
        self.forget_identities(old);
        self.pump(now, &mut sa);
        self.settle(sa);
    }
}
