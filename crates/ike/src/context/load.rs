//! A child follows the connection that is loaded now.

use super::Context;
use crate::event::{ChildId, ChildState, Level};
use crate::sa::IkeSa;
use crate::task::{DeleteChild, Task};
use ironswan_keying::{ChildAction, Report};
use std::sync::Arc;

impl Context<'_> {
    /// Compares a child with what is loaded under its name now: it takes over what concerns this
    /// end only, or is closed when the peer has agreed to something else and it is up to us to
    /// bring it up again. True when it is closed.
    pub(crate) fn catch_up(&mut self, sa: &mut IkeSa, id: ChildId) -> bool {
        let loaded = self.policy().connection(&sa.conn().name);
        let Some(conn) = loaded.filter(|c| Arc::ptr_eq(c, sa.conn())) else { return false };
        let Some(child) = sa.child_mut(id) else { return false };
        let loaded = conn.child(&child.config().name);
        if let Some(config) = loaded.filter(|c| child.config().is_same_to_peer(c)) {
            if *config != **child.config() {
                child.set_config(Arc::new(config.clone()));
                let now = self.now;
                if let Some(child) = sa.child(id) {
                    self.watch_inactivity(child, now);
                }
            }
            return false;
        }
        let (before, line) = (child.config().start_action, child.name());
        let ours = match loaded {
            Some(_) => before != ChildAction::None,
            None => before.starts(),
        };
        if !ours || child.state() == ChildState::Deleting || child.replaced_by().is_some() {
            return false;
        }
        self.log(Level::Info, sa, format!("configuration of CHILD_SA {line} has changed, closing it"));
        sa.work_mut().push(Task::DeleteChild(DeleteChild::of(vec![id], None)));
        if let Some(config) = loaded {
            self.report(Report::Changed { conn: conn.name.clone(), child: Arc::new(config.clone()) });
        }
        true
    }
}
