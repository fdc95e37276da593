//! The end of an IKE_SA: its tasks, its children, and reports of both to policy.

use super::Context;
use crate::child::Child;
use crate::event::ChildId;
use crate::sa::IkeSa;
use crate::task::{NewChild, Task};
use ironswan_keying::diagnosis::Diagnosis;
use ironswan_keying::{ChildAction, ChildConfig, Report};
use std::sync::Arc;

impl Context<'_> {
    /// The tasks of an IKE_SA that ends will not be done: whoever waits for them is told why.
    pub(crate) fn drop_tasks(&mut self, sa: &mut IkeSa, why: &Diagnosis) {
        let tasks = sa.work_mut().take_active().map(|a| a.task).into_iter();
        let wait = sa.take_wait();
        if let Some(wait) = &wait {
            self.forget_request(wait.id);
            if wait.exchange.is_of_peer() {
                self.count_computing(sa, false);
            }
        }
        let waiting = wait.and_then(|w| w.exchange.into_task());
        let tasks: Vec<Task> = tasks.chain(waiting).chain(sa.work_mut().take_queue()).collect();
        for task in tasks {
            self.fail_task(task, why);
        }
        let tickets = [sa.attempt_mut().ticket.take(), sa.roam_mut().ticket.take()];
        for ticket in tickets {
            self.done(ticket, Err(why.clone()));
        }
    }

    /// Takes the children of an IKE_SA that ends out. Returns those that stood and have no
    /// successor.
    pub(crate) fn drop_children(&mut self, sa: &mut IkeSa) -> Vec<Arc<ChildConfig>> {
        let children = sa.children().map(|c| (c.id(), c.is_announced() && !self.has_heir(c)));
        let children: Vec<(ChildId, bool)> = children.collect();
        let gone = children.into_iter().filter_map(|(id, lost)| {
            let child = self.remove_child(sa, id)?;
            lost.then(|| child.config().clone())
        });
        gone.collect()
    }

    /// True when another child has taken over from this one, on this IKE_SA or another.
    pub(crate) fn has_heir(&self, child: &Child) -> bool {
        child.replaced_by().is_some() || self.shared.handovers.heir(child.id()).is_some()
    }

    /// The attempt that made this IKE_SA has come up or ended: the next one may begin.
    pub(crate) fn attempt_over(&mut self, sa: &IkeSa) {
        if let Some(id) = sa.attempt().start {
            self.report(Report::Over(id));
        }
    }

    // ---- reports of tasks to policy ----

    /// A child, or an attempt to bring it up, has ended.
    pub(crate) fn ended(&mut self, conn: &str, child: Option<&str>, why: &Diagnosis) {
        let (conn, child, why) = (conn.to_owned(), child.map(str::to_owned), why.clone());
        self.report(Report::Failed { conn, child, why });
    }

    /// Does what the configuration says for an event of a child (`close_action`, `dpd_action`).
    pub(crate) fn act(&mut self, conn: &str, child: &str, action: ChildAction) {
        self.report(Report::Act { conn: conn.to_owned(), child: child.to_owned(), action });
    }

    /// A new child found the peer busy: policy has it asked for once more, soon.
    pub(crate) fn child_later(&mut self, sa: &IkeSa, new: Box<NewChild>) {
        self.abandon(&new);
        let (conn, child) = (sa.conn().name.clone(), new.config.name.clone());
        self.report(Report::Busy { ike: sa.id(), conn, child, ticket: new.ticket });
    }
}
