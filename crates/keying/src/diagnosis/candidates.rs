//! Connections that a peer could have belonged to, and why it does not.

use ironswan_wire::id::{IdPattern, Identity};

use super::shown::{displayed, shorten};

/// Limits how many connections are compared with what a peer says.
pub const CANDIDATES: usize = 8;

/// Part of a connection that does not fit what a peer says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Misfit {
    /// The connection has another identity of the peer.
    Peer,
    /// The connection has another identity of ours.
    Ours,
    /// The connection does not allow the algorithms that have been agreed on.
    Proposals,
    /// The connection asks the peer for another method of authentication, or number of rounds.
    Method,
    /// The connection fits as well, and comes behind.
    None,
}

/// A connection that a peer could have belonged to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Candidate {
    /// Its name.
    pub name: String,
    /// Our identity on it.
    pub ours: Identity,
    /// Identities of the peer that it takes.
    pub peer: IdPattern,
    /// Reason why it does not fit.
    pub misfit: Misfit,
}

impl std::fmt::Display for Candidate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let why = match self.misfit {
            Misfit::Peer => "another peer",
            Misfit::Ours => "another identity of ours",
            Misfit::Proposals => "other algorithms",
            Misfit::Method => "another method of authentication",
            Misfit::None => "fits as well",
        };
        write!(f, "{}: {}...{} ({why})", self.name, self.ours, self.peer)
    }
}

/// The connections, separated by commas.
pub(super) fn list_candidates(candidates: &[Candidate]) -> String {
    match candidates {
        [] => "none".to_owned(),
        some => shorten(some.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")),
    }
}

/// The remedy for a peer that belongs to none of these connections.
pub(super) fn candidates_remedy(candidates: &[Candidate]) -> &'static str {
    let first = candidates.iter().map(|c| c.misfit).min_by_key(|misfit| match misfit {
        Misfit::None => 0,
        Misfit::Proposals => 1,
        Misfit::Method => 2,
        Misfit::Ours => 3,
        Misfit::Peer => 4,
    });
    match first {
        None => "configure a connection with this peer as remote.id",
        Some(Misfit::None) => "give the connections other identities (remote.id), or addresses",
        Some(Misfit::Method) => "let remote.auth here and local.auth there be the same",
        Some(Misfit::Proposals) => "let `proposals` of the connection have what both sides agreed on",
        Some(Misfit::Ours) => "make local.id here and remote.id there the same, in type and letters",
        Some(Misfit::Peer) => "make remote.id here and local.id there the same, in type and letters",
    }
}

displayed!(Candidate);
