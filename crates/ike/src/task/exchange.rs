//! An exchange while it waits for work outside.

use super::state::{NewChild, Task};
use crate::context::Context;
use crate::event::Completion;
use crate::sa::IkeSa;

/// An exchange that waits for work outside. The IKE_SA holds it meanwhile, and does nothing else,
/// so that messages are handled in the order they came.
pub(crate) trait Exchange: Send {
    /// Goes on with the answer.
    fn resume(self: Box<Self>, cx: &mut Context<'_>, sa: &mut IkeSa, completion: Completion);

    /// Name of the exchange in VICI's `tasks-*` lists, as [`Task::name`] gives it.
    fn name(&self) -> &'static str;

    /// True when the peer has begun this exchange.
    fn is_of_peer(&self) -> bool {
        false
    }

    /// Names what the exchange waits for, for the line that says why a tunnel is not up yet.
    fn waits_for(&self) -> String {
        "waiting for the key exchange to be computed".to_owned()
    }

    /// True when this is our own rekeying of the IKE_SA.
    fn rekeys_ike(&self) -> bool {
        false
    }

    /// The child that we propose in this exchange.
    fn child(&self) -> Option<&NewChild> {
        None
    }

    /// The same, to be changed.
    fn child_mut(&mut self) -> Option<&mut NewChild> {
        None
    }

    /// Gives back the task of ours that this exchange does, when its IKE_SA ends. An exchange that
    /// the peer began has none: its reservations are given back with the IKE_SA.
    fn into_task(self: Box<Self>) -> Option<Task> {
        None
    }
}
