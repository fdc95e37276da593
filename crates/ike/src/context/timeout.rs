//! Work of one IKE_SA when a timer fires.

use super::Context;
use super::lifecycle::unborn;
use crate::event::{ChildId, ChildState, IkeState, Level};
use crate::sa::IkeSa;
use crate::task::{DeleteChild, DeleteIke, NewChild, Task, path_probe, restart};
use crate::timer::Timer;
use ironswan_keying::Close;
use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::{Icmp, KeyExchange, Path, Unanswered};
use ironswan_keying::{ChildAction, Report};

impl Context<'_> {
    pub(crate) fn retransmit(&mut self, sa: &mut IkeSa) {
        if restart::unanswered(self, sa) {
            return;
        }
        if path_probe::give_way(self, sa) {
            return;
        }
        let (local, remote) = (sa.local(), sa.remote());
        path_probe::shrink(self, sa);
        let patient = path_probe::is_patient(sa);
        let Some(active) = sa.work_mut().active_mut() else { return };
        if active.tries < self.limits().retransmit_tries || patient {
            let tries = active.again(self.now).min(self.limits().retransmit_tries);
            active.tries = tries;
            let (mid, bytes) = (active.mid, active.bytes.clone());
            self.shared.counters.retransmits_out += 1;
            self.transmit_all(sa, (local, remote), &bytes);
            self.test_paths(sa, tries, &bytes);
            let delay = self.until_retransmit(sa, tries);
            self.shared.timers.set(Timer::Retransmit(sa.id()), self.now + delay);
            self.log(Level::Info, sa, format!("retransmit {tries} of request with message ID {mid}"));
            return;
        }
        let (tries, unsent, icmp) = (active.tries, active.unsent.take(), active.icmp);
        let Some(request) = sa.unanswered() else { return };
        self.shared.counters.timeouts += 1;
        match sa.state() {
            // Only the DELETE of what is gone anyway was not answered.
            IkeState::Rekeyed => return self.close(sa, Close::Replaced),
            IkeState::Deleting if sa.is_announced() => return self.close(sa, Close::ByUs),
            IkeState::Deleting => return self.close(sa, Close::Replaced),
            _ => {}
        }
        let context = format!("giving up after {tries} retransmits");
        if sa.is_up() {
            let why = unsent.unwrap_or_else(|| self.peer_dead(sa, request, icmp));
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
            let why = unsent.unwrap_or_else(|| self.silence(sa, request, icmp).into());
            self.log_why(Level::Error, sa, "establishing IKE_SA failed,", &why);
            self.close(sa, Close::NoAnswer(why));
        }
    }

    /// The most specific reason why an attempt of ours has no answer.
    pub(crate) fn silence(&self, sa: &IkeSa, request: Unanswered, icmp: Option<Icmp>) -> Path {
        // Only who is asked on the port for plain IKE can have been reached on the other.
        let plain = request.local.port() == self.ports().ike;
        let reached = self.shared.reached.at(request.remote.ip()).filter(|_| plain);
        Path::silence(&sa.conn().name, request, icmp, reached)
    }

    /// The reason why an IKE_SA ends whose peer does not answer any more.
    fn peer_dead(&self, sa: &IkeSa, request: Unanswered, icmp: Option<Icmp>) -> Diagnosis {
        let silent = self.now.saturating_duration_since(sa.signs().last_in).as_secs();
        Path::PeerDead { request, silent, icmp: icmp.map(Box::new) }.into()
    }

    /// The hard end of an IKE_SA that could not be rekeyed.
    pub(crate) fn over_time(&mut self, sa: &mut IkeSa) {
        if !sa.stands() {
            return;
        }
        let why = KeyExchange::LifetimeOver { child: false };
        self.log_why(Level::Warn, sa, "IKE_SA lifetime is over, deleting it", &why.into());
        sa.set_over_time();
        let again: Vec<(String, ChildAction)> = sa
            .children()
            .filter(|c| c.is_announced() && !self.has_heir(c))
            .map(|c| c.config())
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
        if child.may_be_rekeyed() && !queued && !sa.roam().retired {
            let new = NewChild::new(child.config().clone(), Some(id), None);
            sa.work_mut().push(Task::Child(Box::new(new)));
        }
    }

    /// A hard limit is reached: nothing is carried any more, whatever the IKE_SA is busy with.
    pub(crate) fn expire_child(&mut self, sa: &mut IkeSa, id: ChildId) {
        let Some(child) = sa.child(id) else { return };
        if child.state() == ChildState::Deleting {
            return;
        }
        let line = format!("CHILD_SA {} expired, closing it", child.name());
        // One that was rekeyed has a successor; one that was not is brought up again if it should
        // be up.
        let again = child.replaced_by().is_none().then(|| child.config().clone());
        match again {
            Some(_) => {
                self.log_why(Level::Warn, sa, &line, &KeyExchange::LifetimeOver { child: true }.into())
            }
            None => self.log(Level::Info, sa, line),
        }
        if let Some(heir) = child.replaced_by() {
            // Nothing is sent on the old one any more, whatever the peer has still to say about it.
            self.activate(sa, heir);
        }
        let mut delete = DeleteChild::of(vec![id], None);
        if sa.work().active().is_some() || sa.waiting().is_some() {
            // The peer is told when there is time, perhaps after minutes of retransmissions of a
            // rekeying.
            let gone = self.remove_child(sa, id);
            delete.spis.extend(gone.map(|c| (c.agreed().protocol, c.spi_in())));
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
