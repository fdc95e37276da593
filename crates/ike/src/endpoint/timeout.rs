//! Timers that fire, and notices of the packet engine.

use std::time::Instant;

use ironswan_wire::sadb::{Direction, RejectedPackets, SaRef, Up};

use super::context::Context;
use super::lifecycle::{queue_rekey_ike, unborn};
use super::{Close, Endpoint};
use crate::event::{ChildId, ChildState, IkeId, IkeState, Level};
use crate::sa::IkeSa;
use crate::task::{DeleteChild, DeleteIke, NewChild, Task, liveness, restart};
use crate::timer::Timer;
use ironswan_keying::diagnosis::{Authentication, HalfOpenLimit, KeyExchange, Path, Unanswered};
use ironswan_keying::{ChildAction, Diagnosis, Report};

impl Endpoint {
    pub(super) fn fire(&mut self, now: Instant, timer: Timer) {
        match timer {
            Timer::Retransmit(id) => self.work_on(now, id, |cx, sa| cx.retransmit(sa)),
            Timer::HalfOpen(id) => self.with_sa(now, id, |ep, sa| ep.half_open_over(now, sa)),
            Timer::RekeyIke(id) => self.with_sa(now, id, |_, sa| {
                queue_rekey_ike(sa, None);
            }),
            Timer::OverTime(id) => self.work_on(now, id, |cx, sa| cx.over_time(sa)),
            Timer::Liveness(id) => self.work_on(now, id, liveness::check),
            Timer::Keepalive(id) => self.work_on(now, id, |cx, sa| liveness::keepalive(cx, sa)),
            Timer::Linger(id) => self.work_on(now, id, |cx, sa| cx.close(sa, Close::Replaced)),
            Timer::Rival(id) => self.with_sa(now, id, |ep, sa| ep.rival_due(now, sa)),
            Timer::Twin(id) => {
                self.collapse(now, id, true);
                self.run_todo(now);
            }
            Timer::RekeyChild(id) => self.with_child(now, id, |cx, sa| cx.rekey_child(sa, id)),
            Timer::LifeChild(id) => self.with_child(now, id, |cx, sa| cx.expire_child(sa, id)),
            Timer::Redundant(id) => self.with_child(now, id, |_, sa| {
                sa.work_mut().push(Task::DeleteChild(DeleteChild::of(vec![id], None)));
            }),
            Timer::OldInbound(id) => self.aside(now, |cx| cx.drop_old_inbound(id)),
            Timer::Paths => self.ask_lost_paths(now),
            Timer::Strangers => self.sum_up_strangers(),
            Timer::Tombs => self.expire_tombs(now),
        }
    }

    /// Works on the IKE_SA of a child.
    pub(crate) fn with_child(
        &mut self,
        now: Instant,
        id: ChildId,
        work: impl FnOnce(&mut Context<'_>, &mut IkeSa),
    ) {
        if let Some(home) = self.spis.home(id) {
            self.work_on(now, home, work);
        }
    }

    fn half_open_over(&mut self, now: Instant, sa: &mut IkeSa) {
        if sa.is_up() {
            // Late copies of its IKE_SA_INIT request have had time to arrive.
            if let Some((spi_i, remote)) = sa.take_half_open() {
                self.half_open.forget(spi_i, remote);
            }
        } else {
            self.counters.half_open_expired += 1;
            let why: Diagnosis = Authentication::NotInTime { limit: HalfOpenLimit::Time }.into();
            let context = "deleting half open IKE_SA after timeout";
            self.on(now, sa, |cx, sa| cx.log_why(Level::Debug, sa, context, &why));
            self.close_ike(now, sa, Close::Failed(why));
        }
    }

    pub(super) fn engine(&mut self, now: Instant, up: Up) {
        match up {
            Up::Acquire { reqid, packet } => {
                let Some((conn, child)) = self.spd.trap_of(reqid) else { return };
                self.report(Report::Acquired { conn, child, packet });
            }
            Up::Expire { sa, hard } => {
                let Some(id) = self.child_of(&sa) else { return };
                self.with_child(now, id, |cx, ike| {
                    if hard { cx.expire_child(ike, id) } else { cx.rekey_child(ike, id) }
                });
            }
            Up::FirstUse { spi } => {
                let Some(id) = self.spis.inbound(spi) else { return };
                self.with_child(now, id, |cx, sa| cx.activate(sa, id));
            }
            Up::Rejected(packet) => self.rejected(&packet),
            Up::Moved { spi, remote } => {
                let Some(id) = self.spis.inbound(spi) else { return };
                self.with_child(now, id, |cx, sa| cx.peer_at(sa, remote));
            }
        }
    }

    /// An auditable event of the engine: a line for it, under the connection's name if the SPI is
    /// one of ours.
    fn rejected(&mut self, p: &RejectedPackets) {
        let home = self.spis.inbound(p.spi).and_then(|id| self.spis.home(id));
        let conn = home.and_then(|id| self.sas.get(&id)).map(|sa| sa.conn().name.clone());
        let more = match p.count {
            1 => String::new(),
            n => format!(" ({} more since the last such line)", n - 1),
        };
        let RejectedPackets { reason, sentence, spi, sequence, remote, local, .. } = p;
        let line = format!(
            "packet {remote} -> {local} with SPI {spi} and sequence number {sequence} dropped, {reason}: {sentence}{more}"
        );
        self.note(Level::Info, conn.as_deref(), line);
    }

    fn child_of(&self, sa: &SaRef) -> Option<ChildId> {
        match sa.direction {
            Direction::In => self.spis.inbound(sa.spi),
            Direction::Out => self.spis.outbound(sa),
        }
    }

    pub(crate) fn ids_of_sas(&self) -> Vec<IkeId> {
        self.sas.keys().copied().collect()
    }
}

impl Context<'_> {
    pub(super) fn retransmit(&mut self, sa: &mut IkeSa) {
        if restart::unanswered(self, sa) {
            return;
        }
        let (local, remote) = (sa.local(), sa.remote());
        let Some(active) = sa.work_mut().active_mut() else { return };
        if active.tries < self.limits().retransmit_tries {
            let (tries, mid, bytes) = (active.again(), active.mid, active.bytes.clone());
            self.counters.retransmits_out += 1;
            self.transmit_of(sa, local, remote, &bytes);
            let delay = self.until_retransmit(sa, tries);
            self.timers.set(Timer::Retransmit(sa.id()), self.now + delay);
            self.log(Level::Info, sa, format!("retransmit {tries} of request with message ID {mid}"));
            return;
        }
        let (tries, exchange, unsent) = (active.tries, active.exchange, active.unsent.take());
        let request = Unanswered { local, remote, exchange, sent: tries + 1 };
        self.counters.timeouts += 1;
        match sa.state() {
            // Only the DELETE of what is gone anyway was not answered.
            IkeState::Rekeyed => return self.close(sa, Close::Replaced),
            IkeState::Deleting if sa.is_announced() => return self.close(sa, Close::ByUs),
            IkeState::Deleting => return self.close(sa, Close::Replaced),
            _ => {}
        }
        let context = format!("giving up after {tries} retransmits");
        if sa.is_up() {
            let why = unsent.unwrap_or_else(|| Path::PeerDead { request }.into());
            self.log_why(Level::Error, sa, &context, &why);
            self.close(sa, Close::Lost(why));
            return;
        }
        self.log(Level::Error, sa, context);
        if let Some((_, why)) = sa.init_mut().and_then(|init| init.refusal.take()) {
            self.close(sa, Close::Failed(why));
        } else {
            if sa.may_be_up_there() {
                // Perhaps only the way back is closed: each attempt would leave another one there.
                self.say_deleted(sa);
            }
            let why = unsent.unwrap_or_else(|| Path::NoAnswer { request }.into());
            self.log_why(Level::Error, sa, "establishing IKE_SA failed,", &why);
            self.close(sa, Close::NoAnswer(why));
        }
    }

    /// The hard end of an IKE_SA that could not be rekeyed.
    pub(super) fn over_time(&mut self, sa: &mut IkeSa) {
        if !matches!(sa.state(), IkeState::Established | IkeState::Rekeying) {
            return;
        }
        let why = KeyExchange::LifetimeOver { child: false };
        self.log_why(Level::Warn, sa, "IKE_SA lifetime is over, deleting it", &why.into());
        sa.set_over_time();
        let again: Vec<(String, ChildAction)> = sa
            .children()
            .filter(|c| c.announced && c.replaced_by.is_none())
            .map(|c| &c.config)
            .chain(&unborn(sa))
            .map(|c| (c.name.clone(), c.start_action))
            .collect();
        if sa.work().active().is_some() || sa.waiting().is_some() {
            // There is no time to wait for the exchange under way.
            self.last_delete(sa);
        } else {
            sa.work_mut().push_first(Task::DeleteIke(DeleteIke::default()));
        }
        for (name, action) in again {
            self.act(&sa.conn().name.clone(), &name, action);
        }
    }

    /// Starts rekeying a child, unless that or its end is under way.
    pub(crate) fn rekey_child(&mut self, sa: &mut IkeSa, id: ChildId) {
        let Some(child) = sa.child(id) else { return };
        let queued = sa.work().queued().any(|t| matches!(t, Task::Child(n) if n.rekey == Some(id)));
        if child.state == ChildState::Installed && child.redundant_to.is_none() && !queued {
            let new = NewChild::new(child.config.clone(), Some(id), None);
            sa.work_mut().push(Task::Child(Box::new(new)));
        }
    }

    /// A hard limit is reached: nothing is carried any more, whatever the IKE_SA is busy with.
    pub(super) fn expire_child(&mut self, sa: &mut IkeSa, id: ChildId) {
        let Some(child) = sa.child(id) else { return };
        if child.state == ChildState::Deleting {
            return;
        }
        let line = format!("CHILD_SA {} expired, closing it", child.name());
        // One that was rekeyed has a successor; one that was not is brought up again if it should
        // be up.
        let again = child.replaced_by.is_none().then(|| child.config.clone());
        match again {
            Some(_) => {
                self.log_why(Level::Warn, sa, &line, &KeyExchange::LifetimeOver { child: true }.into())
            }
            None => self.log(Level::Info, sa, line),
        }
        if let Some(heir) = child.replaced_by {
            // Nothing is sent on the old one any more, whatever the peer has still to say about it.
            self.activate(sa, heir);
        }
        let mut delete = DeleteChild::of(vec![id], None);
        if sa.work().active().is_some() || sa.waiting().is_some() {
            // The peer is told when there is time, perhaps after minutes of retransmissions of a
            // rekeying.
            let gone = self.remove_child(sa, id);
            delete.spis.extend(gone.map(|c| (c.agreed.protocol, c.spi_in)));
        }
        sa.work_mut().push(Task::DeleteChild(delete));
        let conn = sa.conn().clone();
        if let Some(child) = sa.child_mut(id) {
            self.count_gone(&conn.name, child);
        }
        if let Some(config) = again {
            self.report(Report::Expired { conn: sa.conn().name.clone(), child: config });
        }
    }

    /// Drops the IKE_SA. A peer that has it, or may have it, is sent a DELETE, whose answer is not
    /// waited for.
    pub(crate) fn last_delete(&mut self, sa: &mut IkeSa) {
        if (sa.is_up() || sa.may_be_up_there()) && self.is_ours(sa.local().ip()) {
            self.say_deleted(sa);
        }
        let line = format!("deleting IKE_SA {} between {}", sa.name(), sa.ends());
        self.log(Level::Info, sa, line);
        self.close(sa, Close::ByUs);
    }
}
