//! Several addresses of one peer, asked side by side: `remote_addrs` with more than one, or a name
//! that stands for several.
//!
//! ```text
//! 0 s  first address ─── silent ──────────────────────────────────▶ dropped without a word
//! 2 s    second address ─── IKE_SA_INIT, no authentication ───────▶ DELETE
//! 4 s      third address ─── IKE_SA_INIT ─── IKE_AUTH ────────────▶ wins
//! ```
//! The second peer is sent a DELETE in case that it holds the IKE_SA to be up.
//! Each address has an IKE_SA of its own, with an SPI and a nonce of its own and the first one's
//! key pair ("reuse of Diffie-Hellman exponentials", RFC 7296 section 2.12). Only an authenticated
//! answer wins, so that whoever answers first at one of the addresses gains nothing by it. What
//! waits for the tunnel (children, commands) is wherever an attempt is left. Which address is next,
//! and when, is chosen by `keying::choices::address`.

use std::collections::BTreeSet;
use std::time::Instant;

use super::Endpoint;
use super::todo::{Race, Todo};
use super::{Close, Roam};
use crate::event::{IkeId, IkeState, Level, Ticket};
use crate::sa::{Active, Attempt, IkeSa, Init};
use crate::task::{NewChild, Task};
use crate::timer::Timer;
use ironswan_keying::choices::address;
use ironswan_keying::limits::NEXT_ADDRESS;

/// Children and a command that wait for an attempt.
#[derive(Default)]
struct Wanted {
    children: Vec<NewChild>,
    ticket: Option<Ticket>,
}

impl Endpoint {
    /// The timer of [`Self::rival_later`] has fired.
    pub(super) fn rival_due(&mut self, now: Instant, sa: &mut IkeSa) {
        if sa.is_up() || sa.is_dead() || !matches!(sa.state(), IkeState::Created | IkeState::Connecting) {
            return;
        }
        let race = sa.attempt().race.and_then(|id| self.races.get(&id));
        let others = race.into_iter().flat_map(|race| &race.members).filter_map(|id| self.sas.get(id));
        if is_judged(sa) || others.into_iter().any(|other| is_judged(other)) {
            // With `unique = replace`, the peer would give up the one that is about to win.
            return self.on(now, sa, |cx, sa| cx.rival_later(sa));
        }
        if self.begin_rival(now, sa) {
            return;
        }
        let race = sa.attempt().race.and_then(|id| self.races.get(&id));
        if race.is_some_and(|race| !address::ends_round(race.last, sa.attempt().choices)) {
            self.on(now, sa, |cx, sa| cx.rival_later(sa));
        }
    }

    /// Asks the next address of the peer for what this attempt is for. False when it is not
    /// possible now.
    fn begin_rival(&mut self, now: Instant, sa: &mut IkeSa) -> bool {
        if sa.attempt().choices <= 1 {
            return false;
        }
        let race = self
            .races
            .entry(sa.attempt().race.unwrap_or(sa.id()))
            .or_insert_with(|| Race { members: BTreeSet::from([sa.id()]), last: sa.attempt().number });
        let own = sa.id();
        sa.attempt_mut().race.get_or_insert(own);
        let (asked, all, max) = (race.members.len(), self.sas.len(), self.limits.ike_sa_max);
        if !address::may_begin(race.last, sa.attempt().choices, asked, all, max) {
            return false;
        }
        race.last += 1;
        let attempt = race.last;
        let (id, spi) = self.aside(now, |cx| cx.new_ike());
        if let Some(race) = sa.attempt().race.and_then(|r| self.races.get_mut(&r)) {
            race.members.insert(id);
        }
        let children: Vec<NewChild> = children(sa)
            .map(|n| NewChild { packet: n.packet, ..NewChild::new(n.config.clone(), None, None) })
            .collect();
        // The pair is the first one's as long as that has not been asked for another.
        let init = sa.init().filter(|i| i.private.is_some()).map(|i| Init {
            ke: i.ke,
            private: i.private.clone(),
            public: i.public.clone(),
            proposals: i.proposals.clone(),
            ..Init::default()
        });
        let init = Box::new(init.unwrap_or_default());
        let local_port = self.options.ports.of(sa.conn());
        let (automatic, race) = (sa.attempt().automatic, sa.attempt().race);
        let attempt = Attempt { number: attempt, automatic, race, ..Attempt::default() };
        let (replaces, prefer) = (sa.roam().replaces, sa.roam().prefer);
        let roam = Roam { replaces, prefer, ..Roam::default() };
        let conn = sa.conn().clone();
        let mut rival = Box::new(IkeSa::initiate(id, conn, (spi, init), local_port, (attempt, roam), now));
        for child in children {
            rival.work_mut().push(Task::Child(Box::new(child)));
        }
        self.by_conn.entry(sa.conn().name.clone()).or_default().insert(id);
        self.on(now, &mut rival, |cx, sa| cx.choose_remote(sa, None));
        self.pump(now, &mut rival);
        self.settle(rival);
        true
    }

    /// An attempt ends. If it has failed, the next address is asked at once, and another attempt
    /// takes what waits for it; true when there is one.
    pub(super) fn leave_race(&mut self, now: Instant, sa: &mut IkeSa, how: &Close) -> bool {
        let failed = how.is_failure();
        if sa.is_up()
            || !sa.is_initiator()
            || (sa.attempt().race.is_none() && (!failed || sa.attempt().choices <= 1))
        {
            return false;
        }
        if let Some(race) = sa.attempt().race.and_then(|id| self.races.get_mut(&id)) {
            // The next attempt gets the place of this one.
            race.members.remove(&sa.id());
        }
        let begun = failed && self.begin_rival(now, sa);
        let Some(id) = sa.attempt_mut().race.take() else { return false };
        let Some(race) = self.races.get_mut(&id) else { return false };
        race.members.remove(&sa.id());
        let more = !address::ends_round(race.last, sa.attempt().choices);
        let others: Vec<IkeId> = race.members.iter().copied().collect();
        self.own_race(id);
        // Whoever was to ask the next one may have been this one.
        if failed
            && !begun
            && more
            && let Some(other) = others.last()
        {
            self.shared.timers.set(Timer::Rival(*other), now + NEXT_ADDRESS);
        }
        if others.is_empty() {
            self.races.remove(&id);
            return false;
        }
        match how {
            // By command, or with the connection: all of them.
            Close::ByUs | Close::LetGo(_) => {
                self.shared.todo.extend(others.into_iter().map(Todo::GiveUp));
                false
            }
            _ if failed => {
                let wanted = self.take_wanted(sa);
                let attempt = sa.attempt().number;
                sa.roam_mut().replaces = None;
                let Some(mut heir) = self.sas.remove(&others[0]) else { return false };
                let number = heir.attempt().number.max(attempt);
                heir.attempt_mut().number = number;
                give(&mut heir, wanted);
                self.settle(heir);
                true
            }
            _ => false,
        }
    }

    /// The key pair of one that has let go of it is that of the others as well.
    pub(crate) fn own_race(&mut self, race: IkeId) {
        let members: Vec<IkeId> =
            self.races.get(&race).into_iter().flat_map(|r| &r.members).copied().collect();
        for id in members {
            let Some(sa) = self.sas.remove(&id) else { continue };
            if let Some(init) = sa.init() {
                self.shared.own.add(init, true);
            }
            self.sas.insert(id, sa);
        }
    }

    /// Takes what waits for an attempt out of it.
    fn take_wanted(&mut self, sa: &mut IkeSa) -> Wanted {
        let mut wanted = Wanted { ticket: sa.attempt_mut().ticket.take(), ..Wanted::default() };
        if let Some(Active { task: Task::Auth(child), .. }) = sa.work_mut().active_mut() {
            wanted.children.extend(child.take().map(|c| *c));
        }
        for task in sa.work_mut().take_queue() {
            match task {
                Task::Child(new) => wanted.children.push(*new),
                other => sa.work_mut().push(other),
            }
        }
        for child in &wanted.children {
            self.abandon(child);
        }
        wanted
    }

    /// This one's peer is authenticated. It takes over what waits for the others, and these go:
    /// without a word, or with a DELETE where the peer may have established them.
    pub(super) fn win_race(&mut self, now: Instant, sa: &mut IkeSa) {
        let Some(race) = sa.attempt_mut().race.take().and_then(|id| self.races.remove(&id)) else { return };
        self.shared.timers.cancel(Timer::Rival(sa.id()));
        let mut all = Wanted::default();
        for id in race.members.into_iter().filter(|id| *id != sa.id()) {
            self.with_sa(now, id, |ep, other| {
                let wanted = ep.take_wanted(other);
                all.children.extend(wanted.children);
                all.ticket = all.ticket.or(wanted.ticket);
                other.attempt_mut().race = None;
                *other.roam_mut() = Roam::default();
                ep.shared.timers.cancel(Timer::Rival(other.id()));
                let line =
                    format!("the peer has answered at another address, not going on at {}", other.remote());
                ep.log(Level::Info, other, line);
                match other.may_be_up_there() {
                    true => ep.take_back(other),
                    false => ep.close_ike(now, other, Close::Replaced),
                }
            });
        }
        give(sa, all);
    }
}

/// The peer has answered our IKE_AUTH, and its signature is being verified.
fn is_judged(sa: &IkeSa) -> bool {
    sa.may_be_up_there() && sa.waiting().is_some()
}

/// The children that an attempt is for.
fn children(sa: &IkeSa) -> impl Iterator<Item = &NewChild> {
    let first = match sa.work().active() {
        Some(Active { task: Task::Auth(Some(new)), .. }) => Some(&**new),
        _ => None,
    };
    let queued = sa.work().queued().filter_map(|t| if let Task::Child(n) = t { Some(&**n) } else { None });
    first.into_iter().chain(queued)
}

/// An attempt takes over what waits for another.
fn give(sa: &mut IkeSa, wanted: Wanted) {
    let attempt = sa.attempt_mut();
    attempt.ticket = attempt.ticket.or(wanted.ticket);
    for child in wanted.children {
        let same = |n: &NewChild| n.config.name == child.config.name;
        let have = sa.work_mut().tasks_mut().find_map(|task| match task {
            Task::Auth(Some(new)) | Task::Child(new) if same(new) => Some(&mut **new),
            _ => None,
        });
        match have {
            Some(new) if new.ticket.is_none() || child.ticket.is_none() => {
                new.ticket = new.ticket.or(child.ticket)
            }
            _ => {
                let packet = child.packet;
                let new = NewChild { packet, ..NewChild::new(child.config, None, child.ticket) };
                sa.work_mut().push(Task::Child(Box::new(new)));
            }
        }
    }
}
