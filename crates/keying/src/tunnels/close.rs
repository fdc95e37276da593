//! How an IKE_SA or an attempt ends, and what follows from each way of ending.
//!
//! | end | listed as down | action for its children | tried again |
//! |---|---|---|---|
//! | `ByPeer` | yes | `close_action` | no |
//! | `ByUs`, `LetGo` | no more, unless it is made anew | none | no |
//! | `OverTime`, `Forgotten` | yes | none | no |
//! | `Lost` | yes | `dpd_action` | no |
//! | `Syntax` | yes | `dpd_action`, or else `close_action`; a start after a pause | no |
//! | `Failed` | yes | none | while tries are left, if it is automatic or tried without end |
//! | `NoAnswer` | yes | none | while tries are left |
//! | `NoRoute` | yes | none | if it is automatic or tried without end |
//! | `Rerouted` | as before | none | yes, as the same try |
//! | `Replaced` | as before | none | no |

use std::net::IpAddr;
use std::sync::Arc;

use super::IkeId;
use crate::diagnosis::{Diagnosis, KeyExchange, NotDone};
use crate::{ChildAction, ChildConfig, Connection};

/// Why an IKE_SA ends.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Close {
    /// The peer deleted it.
    ByPeer,
    /// We deleted it, because somebody asked for that.
    ByUs,
    /// The IKE_SA was not established, and nobody wants it any more.
    LetGo(NotDone),
    /// We deleted it, because its lifetime was over.
    OverTime,
    /// The IKE_SA was established, and the peer is dead or misbehaves.
    Lost(Diagnosis),
    /// The IKE_SA was established, and one side cannot read what the other has sent: both have
    /// dropped it.
    Syntax(Diagnosis),
    /// The IKE_SA was not established, and will not be.
    Failed(Diagnosis),
    /// The IKE_SA was not established, and the peer does not answer.
    NoAnswer(Diagnosis),
    /// The IKE_SA was not established, and there is no route to the peer.
    NoRoute(Diagnosis),
    /// The IKE_SA was not established, and our address is another now.
    Rerouted(Diagnosis),
    /// Another IKE_SA has taken over everything.
    Replaced,
    /// The peer has lost it and has come back.
    Forgotten,
}

impl Close {
    /// The reason, as everybody is told who has waited for the IKE_SA.
    pub fn reason(&self) -> Diagnosis {
        match self {
            Self::ByPeer => KeyExchange::PeerDeleted { child: false }.into(),
            Self::ByUs => NotDone::Terminated.into(),
            Self::LetGo(why) => why.clone().into(),
            Self::OverTime => KeyExchange::LifetimeOver { child: false }.into(),
            Self::Lost(why)
            | Self::Syntax(why)
            | Self::Failed(why)
            | Self::NoAnswer(why)
            | Self::NoRoute(why)
            | Self::Rerouted(why) => why.clone(),
            Self::Replaced => NotDone::Rekeyed.into(),
            Self::Forgotten => KeyExchange::PeerRestarted.into(),
        }
    }

    /// The peer could not be had at the address that was tried, so that another address may help.
    pub fn is_failure(&self) -> bool {
        matches!(self, Self::NoAnswer(_) | Self::Failed(_) | Self::NoRoute(_))
    }

    /// The action for a child that stood on the IKE_SA.
    pub(super) fn action(&self, child: &ChildConfig) -> ChildAction {
        match self {
            Self::ByPeer => child.close_action,
            Self::Lost(_) => child.dpd_action,
            // Neither a peer that closes nor a dead one: either of the two actions brings it back.
            Self::Syntax(_) if child.dpd_action == ChildAction::None => child.close_action,
            Self::Syntax(_) => child.dpd_action,
            _ => ChildAction::None,
        }
    }
}

/// Report of a protocol that an IKE_SA has ended.
#[derive(Clone, PartialEq, Debug)]
pub struct Ended {
    /// The IKE_SA.
    pub ike: IkeId,
    /// The connection as it was for this IKE_SA.
    pub conn: Arc<Connection>,
    /// How it has ended.
    pub end: Close,
    /// Children that stood on it, or that it owed us.
    pub lost: Vec<Arc<ChildConfig>>,
    /// The attempt, when it was one of ours that had not come up.
    pub tried: Option<Tried>,
}

/// An attempt of ours that has not come up.
#[derive(Clone, PartialEq, Debug)]
pub struct Tried {
    /// Children that it was for; `None` alone: only the IKE_SA.
    pub children: Vec<Option<String>>,
    /// Number of the try, from 1.
    pub number: u32,
    /// Number of addresses that the peer may have. Each of them once makes a try of `keyingtries`.
    pub addresses: u32,
    /// As in [`Start`](super::Start).
    pub automatic: bool,
    /// As in [`Start`](super::Start).
    pub prefer: Option<IpAddr>,
    /// As in [`Start`](super::Start).
    pub takes_over: Option<IkeId>,
    /// Another attempt for the same goes on, at another address of the peer.
    pub goes_on: bool,
}

impl Tried {
    /// Tries in all, 0 for any number. A child that is to be up always (`start_action` and
    /// `dpd_action` both start it) is tried without end whatever `keyingtries` says: that key
    /// bounds what happens on command.
    pub(super) fn tries(&self, conn: &Connection) -> u32 {
        let always = |c: &ChildConfig| {
            c.start_action.starts()
                && c.dpd_action.starts()
                && self.children.iter().any(|w| w.as_deref() == Some(c.name.as_str()))
        };
        match self.automatic && conn.children.iter().any(always) {
            true => 0,
            false => conn.keyingtries,
        }
    }

    /// Whether another attempt is made after this end.
    pub(super) fn again(&self, conn: &Connection, end: &Close) -> bool {
        let tries = self.tries(conn);
        let more = tries == 0 || self.number < tries.saturating_mul(self.addresses.max(1));
        match end {
            Close::NoAnswer(_) => more,
            // Asking again repeats an answer that says no: only when nobody waits for the answer.
            Close::Failed(_) => more && (self.automatic || tries == 0),
            // The peer has not been asked at all.
            Close::NoRoute(_) => self.automatic || tries == 0,
            Close::Rerouted(_) => true,
            _ => false,
        }
    }
}
