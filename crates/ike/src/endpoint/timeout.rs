//! Timers that fire, and notices of the packet engine.

use std::time::Instant;

use ironswan_wire::sadb::{Direction, RejectedPackets, SaRef, Up};

use super::{Close, Endpoint};
use crate::context::Context;
use crate::context::lifecycle::queue_rekey_ike;
use crate::event::{ChildId, IkeId, Level};
use crate::sa::IkeSa;
use crate::task::{DeleteChild, Task, delete, follow_up, liveness, path_probe};
use crate::timer::Timer;
use ironswan_keying::diagnosis::{Authentication, HalfOpenLimit};
use ironswan_keying::{Diagnosis, Report};

impl Endpoint {
    pub(super) fn fire(&mut self, now: Instant, timer: Timer) {
        match timer {
            Timer::Retransmit(id) => self.work_on(now, id, |cx, sa| cx.retransmit(sa)),
            Timer::HalfOpen(id) => self.with_sa(now, id, |ep, sa| ep.half_open_over(now, sa)),
            Timer::RekeyIke(id) => self.with_sa(now, id, |_, sa| {
                queue_rekey_ike(sa, None);
            }),
            Timer::Reauth(id) => self.work_on(now, id, |cx, sa| cx.reauthenticate(sa)),
            Timer::OverTime(id) => self.work_on(now, id, |cx, sa| cx.over_time(sa)),
            Timer::Flow(id) => self.work_on(now, id, |cx, sa| cx.ask_flow(sa)),
            Timer::Liveness(id) => self.work_on(now, id, liveness::check),
            Timer::Fragments(id) => self.work_on(now, id, |cx, sa| cx.expire_fragments(sa)),
            Timer::FollowUp(id) => self.work_on(now, id, follow_up::forget),
            Timer::PathProbe(id) => self.work_on(now, id, path_probe::due),
            Timer::Keepalive(id) => self.work_on(now, id, |cx, sa| liveness::ask_keepalive(cx, sa)),
            Timer::Retire(id) => self.work_on(now, id, |cx, sa| cx.delete_retired(sa)),
            Timer::AnswerDelete(id) => self.work_on(now, id, delete::answer_ike),
            Timer::Linger(id) => self.work_on(now, id, |cx, sa| cx.close(sa, Close::Replaced)),
            Timer::Rival(id) => self.with_sa(now, id, |ep, sa| ep.rival_due(now, sa)),
            Timer::Twin(id) => {
                self.collapse(now, id, true);
                self.run_todo(now);
            }
            Timer::RekeyChild(id) => self.with_child(now, id, |cx, sa| cx.rekey_child(sa, id)),
            Timer::LifeChild(id) => self.with_child(now, id, |cx, sa| cx.expire_child(sa, id)),
            Timer::Inactivity(id) => self.with_child(now, id, |cx, sa| cx.ask_inactivity(sa, id)),
            Timer::Redundant(id) => self.with_child(now, id, |_, sa| {
                sa.work_mut().push(Task::DeleteChild(DeleteChild::of(vec![id], None)));
            }),
            Timer::TakeUp(id) => self.with_child(now, id, |cx, sa| cx.activate(sa, id)),
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
        if let Some(home) = self.shared.spis.home(id) {
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
            self.shared.counters.half_open_expired += 1;
            let why: Diagnosis = Authentication::NotInTime { limit: HalfOpenLimit::Time }.into();
            let context = "deleting half open IKE_SA after timeout";
            self.on(now, sa, |cx, sa| cx.log_why(Level::Debug, sa, context, &why));
            self.close_ike(now, sa, Close::Failed(why));
        }
    }

    pub(super) fn engine(&mut self, now: Instant, up: Up) {
        match up {
            Up::Acquire { reqid, packet } => {
                let Some((conn, child)) = self.shared.spd.trap_of(reqid) else { return };
                self.report(Report::Acquired { conn, child, packet });
            }
            Up::Expire { sa, hard } => {
                let Some(id) = self.child_of(&sa) else { return };
                self.with_child(now, id, |cx, ike| {
                    if hard { cx.expire_child(ike, id) } else { cx.rekey_child(ike, id) }
                });
            }
            Up::FirstUse { spi } => {
                let Some(id) = self.shared.spis.inbound(spi) else { return };
                self.with_child(now, id, |cx, sa| cx.activate(sa, id));
            }
            Up::Rejected(packet) => self.rejected(&packet),
            Up::Moved { spi, remote } => {
                let Some(id) = self.shared.spis.inbound(spi) else { return };
                self.with_child(now, id, |cx, sa| cx.peer_at(sa, remote));
            }
        }
    }

    /// An auditable event of the engine: a line for it, under the connection's name if the SPI is
    /// one of ours.
    fn rejected(&mut self, p: &RejectedPackets) {
        let home = self.shared.spis.inbound(p.spi).and_then(|id| self.shared.spis.home(id));
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
            Direction::In => self.shared.spis.inbound(sa.spi),
            Direction::Out => self.shared.spis.outbound(sa),
        }
    }

    pub(crate) fn ids_of_sas(&self) -> Vec<IkeId> {
        self.sas.keys().copied().collect()
    }
}
