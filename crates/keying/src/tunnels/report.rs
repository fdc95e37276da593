//! Reports of a protocol to [`Tunnels`](super::Tunnels): no SA and no message, but connections,
//! children and numbers of IKE_SAs.

use std::net::IpAddr;
use std::sync::Arc;

use ironswan_wire::selector::PacketSelector;

use super::{AttemptId, Ended, IkeId, Start, Ticket};
use crate::diagnosis::Unresolved;
use crate::{ChildAction, ChildConfig, Diagnosis};

/// Report of a protocol. `conn` is a connection's name; a `child` of `None` is the IKE_SA alone.
/// Texts have no full stop.
#[derive(Clone, PartialEq, Debug)]
pub enum Report {
    /// An attempt begins for this child of it.
    Begun {
        /// The attempt.
        start: Start,
        /// One of its children.
        child: Option<String>,
    },
    /// An attempt could not even begin for this child of it.
    Refused {
        /// The attempt.
        start: Start,
        /// One of its children.
        child: Option<String>,
        /// The reason.
        why: Diagnosis,
    },
    /// An attempt has come up or ended: the next one may begin.
    Over(AttemptId),
    /// The tunnels on this IKE_SA are to move to a new one.
    TakeOver {
        /// The IKE_SA on which they stand.
        ike: IkeId,
        /// Connection.
        conn: String,
        /// The children that are to move.
        children: Vec<Option<String>>,
        /// Address of the peer to try first.
        prefer: Option<IpAddr>,
    },
    /// A packet asks for a child whose trap stands.
    Acquired {
        /// Connection.
        conn: String,
        /// Child.
        child: String,
        /// The packet.
        packet: PacketSelector,
    },
    /// A child stands on one SA more.
    Up {
        /// Connection.
        conn: String,
        /// Child.
        child: Option<String>,
    },
    /// A child that was reported as up stands on one SA less.
    Gone {
        /// Connection.
        conn: String,
        /// Child.
        child: Option<String>,
    },
    /// A child, or an attempt to bring it up, has failed or ended.
    Failed {
        /// Connection.
        conn: String,
        /// Child.
        child: Option<String>,
        /// The reason.
        why: Diagnosis,
    },
    /// The lifetime of a child was over before it had been rekeyed.
    Expired {
        /// Connection.
        conn: String,
        /// The child.
        child: Arc<ChildConfig>,
    },
    /// Somebody has closed a child here.
    Unwanted {
        /// Connection.
        conn: String,
        /// Child.
        child: Option<String>,
    },
    /// A new child found its peer busy.
    Busy {
        /// The IKE_SA that was to have it.
        ike: IkeId,
        /// Connection.
        conn: String,
        /// Child.
        child: String,
        /// The command that waits for the child.
        ticket: Option<Ticket>,
    },
    /// An event of a child for which the configuration names this action.
    Act {
        /// Connection.
        conn: String,
        /// Child.
        child: String,
        /// The action.
        action: ChildAction,
    },
    /// A child is being closed, because the peer has agreed to something else than is loaded now.
    Changed {
        /// Connection.
        conn: String,
        /// The child as it is loaded now.
        child: Arc<ChildConfig>,
    },
    /// An IKE_SA or an attempt has ended.
    Ended(Ended),
    /// The resolver has answered.
    Resolved {
        /// The DNS name.
        name: String,
        /// Its addresses, at least one; or the reason why the look-up has failed.
        addrs: Result<Vec<IpAddr>, Unresolved>,
        /// The IKE_SA that has asked, and waits for [`Order::GoOn`](super::Order::GoOn); `None`: an
        /// order has asked.
        ike: Option<IkeId>,
    },
    /// The routing table has answered [`Order::Route`](super::Order::Route).
    TrapRouted {
        /// Connection.
        conn: String,
        /// Child.
        child: String,
        /// Our address towards the peer; `None`: there is no route.
        local: Option<IpAddr>,
    },
}
