//! Connections that a peer could have belonged to, and why it does not.

use ironswan_wire::id::{IdPattern, Identity};

use super::negotiation::shorten;

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
