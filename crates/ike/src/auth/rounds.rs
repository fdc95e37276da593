//! Several rounds of IKE_AUTH (RFC 4739): each side may prove more than one identity before the
//! IKE_SA is established.
//!
//! ```text
//!                         <--  IKE_SA_INIT: N(MULTIPLE_AUTH_SUPPORTED)
//! IDi, AUTH, SAi2, TSi, TSr, N(MULTIPLE_AUTH_SUPPORTED), N(ANOTHER_AUTH_FOLLOWS)  -->
//!                         <--  IDr, AUTH, N(ANOTHER_AUTH_FOLLOWS)
//! IDi, AUTH  -->
//!                         <--  IDr, AUTH, SAr2, TSi, TSr
//! ```
//! A side that has nothing left to prove sends a message without ID and AUTH. Both sides know from
//! their configuration how many rounds there are; nothing about them is negotiated. What concerns
//! the CHILD_SA is in the first request and in the last response.
//!
//! The first identities are those of the IKE_SA. The others have to be proved as well, and to fit
//! the same connection.

use ironswan_wire::iana::NotifyType;
use ironswan_wire::id::{IdPattern, Identity};
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::{Notify, find_notify};

use crate::event::{ChildId, Level};
use ironswan_keying::diagnosis::Authentication;
use ironswan_keying::{Auth, Connection};

/// Progress of both sides through their rounds.
#[derive(Default)]
pub(crate) struct Rounds {
    /// The responder announces in IKE_SA_INIT that it knows several rounds.
    pub responder: bool,
    /// Responder: the initiator has announced that it knows several rounds.
    pub initiator: bool,
    /// Number of rounds in which we have proved ourselves. An initiator counts its requests.
    pub ours: usize,
    /// Number of rounds in which the peer has.
    pub theirs: usize,
    /// Initiator: the child that the first request asks for.
    pub child: Option<ChildId>,
    /// Responder: the first of several requests.
    pub first: Option<First>,
    /// Responder: why the peer belongs to its connection, where that is not plain. It is said when
    /// the peer is let in.
    pub chosen: Option<Box<Authentication>>,
}

/// What a responder keeps of the first request until the last response.
pub(crate) struct First {
    pub payloads: Vec<Payload>,
    /// Lines for the log, which are written when the peer is let in.
    pub lines: Vec<(Level, String)>,
}

/// The first notification by which a side announces that it knows several rounds.
pub(crate) fn announcement() -> Payload {
    Payload::Notify(Notify::new(NotifyType::MULTIPLE_AUTH_SUPPORTED, []))
}

/// The notification that the sender proves itself in one more round.
pub(crate) fn another() -> Payload {
    Payload::Notify(Notify::new(NotifyType::ANOTHER_AUTH_FOLLOWS, []))
}

/// True when the sender proves itself in one more round.
pub(crate) fn follows(payloads: &[Payload]) -> bool {
    find_notify(payloads, NotifyType::ANOTHER_AUTH_FOLLOWS).is_some()
}

/// Number of rounds in which we prove ourselves.
pub(crate) fn of_ours(conn: &Connection) -> usize {
    1 + conn.local_rounds.len()
}

/// Number of rounds in which the peer has to prove itself.
pub(crate) fn of_theirs(conn: &Connection) -> usize {
    1 + conn.remote_rounds.len()
}

/// Our method in a round, counted from 0. After the last round, that of the last.
pub(crate) fn our_method(conn: &Connection, round: usize) -> &Auth {
    conn.local_sides().take(round + 1).last().map_or(&conn.local_auth, |(auth, _)| auth)
}

/// The peer's method in a round, counted from 0, and what we accept as its identity. After the last
/// round, those of the last.
pub(crate) fn their_side(conn: &Connection, round: usize) -> (&Auth, &IdPattern) {
    conn.remote_sides().take(round + 1).last().unwrap_or((&conn.remote_auth, &conn.remote_id))
}

/// Compares what the peer says of its next round with the configuration. `round`: the one that it
/// proves itself in now, counted from 0.
pub(crate) fn judge(
    conn: &Connection,
    peer: &Identity,
    round: usize,
    follows: bool,
) -> Result<(), Authentication> {
    let configured = of_theirs(conn);
    let theirs = round + 1 + usize::from(follows);
    match follows == (round + 1 < configured) {
        true => Ok(()),
        false => Err(Authentication::OtherRounds { peer: peer.clone(), theirs, configured }),
    }
}
