//! Children that carry nothing for `inactivity` are closed. The packet engine is asked when a child
//! was used last, so that packets cost nothing for it.

use super::Context;
use crate::child::Child;
use crate::endpoint::Pending;
use crate::event::{ChildId, ChildState, Level, Request};
use crate::sa::IkeSa;
use crate::task::{DeleteChild, Task};
use crate::timer::Timer;
use ironswan_wire::sadb::Direction;
use std::time::Instant;

impl Context<'_> {
    /// Sets the timer to when a child that was used last at `since` will have been inactive for too
    /// long.
    pub(crate) fn watch_inactivity(&mut self, child: &Child, since: Instant) {
        let (timer, time) = (Timer::Inactivity(child.id()), child.config().inactivity);
        if time.is_zero() {
            self.shared.timers.cancel(timer);
        } else {
            self.shared.timers.set(timer, since + time);
        }
    }

    /// The timer has fired: asks the engine when the child was used last.
    pub(crate) fn ask_inactivity(&mut self, sa: &mut IkeSa, id: ChildId) {
        let Some(child) = sa.child(id) else { return };
        let remote = sa.remote().ip();
        let sas = [Direction::In, Direction::Out].map(|direction| child.sa_ref(direction, remote));
        self.ask(Pending::Inactivity(id), Request::Usage { sas: sas.into() });
    }

    /// The engine has said when a packet of the child passed last, in either direction.
    pub(crate) fn close_inactive(&mut self, sa: &mut IkeSa, id: ChildId, last_use: Option<Instant>) {
        let Some(child) = sa.child(id) else { return };
        let time = child.config().inactivity;
        let since = last_use.unwrap_or(child.installed()).max(child.installed());
        match child.state() {
            _ if time.is_zero() => {}
            _ if since + time > self.now => self.watch_inactivity(child, since),
            ChildState::Installed if child.redundant_to().is_none() => {
                let line =
                    format!("deleting CHILD_SA {} after {} s of inactivity", child.name(), time.as_secs());
                self.log(Level::Info, sa, line);
                sa.work_mut().push(Task::DeleteChild(DeleteChild::of(vec![id], None)));
            }
            // The rekeying that is under way may fail: look again later.
            ChildState::Rekeying => self.watch_inactivity(child, self.now),
            _ => {}
        }
    }
}
