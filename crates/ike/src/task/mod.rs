//! The exchanges of an IKE_SA, one a file. Each has `build` (our request), `process` (the response
//! to it) and `answer` (the peer's request), as far as it applies. An exchange that needs work from
//! outside becomes an object, an [`Exchange`], which holds its state until that work is done and
//! then resumes.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `answer_child` | the same as responder |
//! | `answer_init` | IKE_SA_INIT as responder |
//! | `create_child` | CREATE_CHILD_SA for children, as initiator |
//! | `delete` | DELETE, and other INFORMATIONAL requests |
//! | `liveness` | an empty INFORMATIONAL to a silent peer |
//! | `rekey_child` | rekeying a CHILD_SA |
//! | `rekey_ike` | rekeying the IKE_SA |
//! | `restart` | answers to IKE_SA_INIT that may be forged |
//! | `sa_init` | IKE_SA_INIT as initiator |
//! | `auth/` | IKE_AUTH |

pub(crate) mod answer_child;
pub(crate) mod answer_init;
pub(crate) mod auth;
pub(crate) mod create_child;
pub(crate) mod delete;
pub(crate) mod liveness;
pub(crate) mod rekey_child;
pub(crate) mod rekey_ike;
pub(crate) mod restart;
pub(crate) mod sa_init;

use std::time::Instant;

use create_child::NewChild;
use delete::{DeleteChild, DeleteIke};
use rekey_ike::RekeyIke;

use crate::endpoint::Endpoint;
use crate::event::Completion;
use crate::sa::IkeSa;

/// An operation that we start. It waits in its IKE_SA's queue, then is the one request in flight.
pub(crate) enum Task {
    /// IKE_SA_INIT.
    Init,
    /// IKE_AUTH, with the first child.
    Auth(Option<Box<NewChild>>),
    /// CREATE_CHILD_SA: a new child, or the successor of one.
    Child(Box<NewChild>),
    /// CREATE_CHILD_SA: the successor of the IKE_SA.
    RekeyIke(Box<RekeyIke>),
    /// INFORMATIONAL with DELETE for children.
    DeleteChild(DeleteChild),
    /// INFORMATIONAL with DELETE for the IKE_SA.
    DeleteIke(DeleteIke),
    /// An empty INFORMATIONAL.
    Liveness,
}

/// Name of an exchange that makes a child, in VICI's `tasks-*` lists.
fn child_name(rekeys: bool) -> &'static str {
    if rekeys { "CHILD_REKEY" } else { "CHILD_CREATE" }
}

impl Task {
    /// Its name in VICI's `tasks-*` lists, which is charon's.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Self::Init => "IKE_INIT",
            Self::Auth(_) => auth::NAME,
            Self::Child(n) => child_name(n.rekey.is_some()),
            Self::RekeyIke(_) => rekey_ike::NAME,
            Self::DeleteChild(_) => "CHILD_DELETE",
            Self::DeleteIke(_) => "IKE_DELETE",
            Self::Liveness => "IKE_DPD",
        }
    }

    /// Concerns children: goes with them to the successor of the IKE_SA.
    pub(crate) fn follows_children(&self) -> bool {
        matches!(self, Self::Child(_) | Self::DeleteChild(_))
    }
}

/// An exchange that waits for work outside. The IKE_SA holds it meanwhile, and does nothing else,
/// so that messages are handled in the order they came.
pub(crate) trait Exchange: Send {
    /// Goes on with the answer.
    fn resume(self: Box<Self>, ep: &mut Endpoint, now: Instant, sa: &mut IkeSa, completion: Completion);

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
