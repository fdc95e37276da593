//! Orders of [`Tunnels`](super::Tunnels) to a key exchange protocol, and the names that both sides
//! use: no SA and no message, but connections, children and numbers of attempts.

use std::net::IpAddr;
use std::sync::Arc;

use ironswan_wire::selector::PacketSelector;

use crate::{Connection, Diagnosis, Level};

/// Names a command of an operator that takes time; whoever gave the command waits for its end.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Ticket(pub u64);

/// Identifies an IKE_SA for its whole life (VICI `uniqueid`). The protocol gives the number, and a
/// rekeyed IKE_SA has a new one; policy only hands it back.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct IkeId(pub u64);

/// Number of an attempt to bring something up.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct AttemptId(pub u64);

/// One attempt: what to bring up, for whom, and how.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Start {
    /// Number of this attempt.
    pub id: AttemptId,
    /// The connection's name.
    pub conn: String,
    /// Names of children; `None` alone: only an IKE_SA is wanted.
    pub children: Vec<Option<String>>,
    /// The command that waits for the result.
    pub ticket: Option<Ticket>,
    /// The packet that asks for the tunnel.
    pub packet: Option<PacketSelector>,
    /// Number of this try, from 1. Each address of the peer counts as one try.
    pub number: u32,
    /// An action wants this, not a command: nothing happens when it is up already, and an error is
    /// a reason to try again.
    pub automatic: bool,
    /// Loading the connection wants this (`start_action`).
    pub at_load: bool,
    /// Address of the peer to try first, if the peer has it.
    pub prefer: Option<IpAddr>,
    /// The new tunnel is to take over from this one, which stands: it does not wait for its turn.
    pub takes_over: Option<IkeId>,
    /// The IKE_SA of the attempt that this one repeats. A protocol may have kept things of it for
    /// this attempt.
    pub repeats: Option<IkeId>,
}

/// Order to a protocol.
#[derive(Clone, PartialEq, Debug)]
pub enum Order {
    /// Bring this up. The protocol reports `Begun`, and later `Up` or `Ended`; or `Refused` when it
    /// cannot even begin.
    Start(Start),
    /// An attempt that was to come will not be made: tell whoever waits why.
    Cancel {
        /// The IKE_SA of the attempt that it would have repeated.
        repeats: Option<IkeId>,
        /// The IKE_SA from which it was to take over.
        stays: Option<IkeId>,
        /// The command that waits for it.
        ticket: Option<Ticket>,
        /// The reason, without a full stop.
        why: Diagnosis,
    },
    /// An attempt of ours has ended, and no other will be made in its place.
    GivenUp {
        /// The IKE_SA of the attempt.
        ike: IkeId,
        /// The IKE_SA from which it was to take over.
        stays: Option<IkeId>,
    },
    /// Policy has taken over the addresses of a name that this IKE_SA has had looked up
    /// (`Resolved`): go on with it.
    GoOn(IkeId),
    /// A connection has changed. Its SAs go on where the peer has agreed to nothing else; children
    /// that we start are closed otherwise.
    Change {
        /// The connection as it was.
        old: Arc<Connection>,
        /// The connection as it is loaded now.
        new: Arc<Connection>,
    },
    /// A connection has been unloaded: end the children that its `start_action` has started.
    End(Arc<Connection>),
    /// Install the policies of a child that is not up, so that traffic brings it up; or those of a
    /// shunt.
    Trap {
        /// The connection.
        conn: Arc<Connection>,
        /// The child's name.
        child: String,
        /// Our address, which `dynamic` selectors mean.
        local: IpAddr,
        /// The peer's address, which `dynamic` selectors mean.
        remote: IpAddr,
    },
    /// Remove these policies.
    Untrap {
        /// The connection's name.
        conn: String,
        /// The child's name.
        child: String,
    },
    /// Look a DNS name up, and report `Resolved`.
    Resolve(String),
    /// Ask the routing table from which address of ours this peer is reached, and report
    /// `TrapRouted`.
    Route {
        /// The connection's name.
        conn: String,
        /// The child whose trap waits for the answer.
        child: String,
        /// The peer.
        remote: IpAddr,
    },
    /// A line for the log.
    Say {
        /// How much it matters.
        level: Level,
        /// The connection's name.
        conn: Option<String>,
        /// The IKE_SA.
        ike: Option<IkeId>,
        /// The line.
        text: String,
    },
    /// Lines for the log that say why something has failed.
    SayWhy {
        /// How much it matters.
        level: Level,
        /// The connection's name.
        conn: Option<String>,
        /// Text before the reason. May be empty.
        context: String,
        /// The reason.
        why: Diagnosis,
    },
}

impl Start {
    /// An attempt that an action or traffic asks for: the first try, which waits for its turn.
    pub fn automatic(id: AttemptId, conn: &str, children: Vec<Option<String>>) -> Self {
        Self {
            id,
            conn: conn.to_owned(),
            children,
            ticket: None,
            packet: None,
            number: 1,
            automatic: true,
            at_load: false,
            prefer: None,
            takes_over: None,
            repeats: None,
        }
    }
}
