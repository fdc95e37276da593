//! Smaller parts of an IKE_SA, each of which one place of the endpoint or of policy works on:
//! roaming, an attempt, signs of life, the peer's request, and its renewal.

use std::net::IpAddr;
use std::time::Instant;

use ironswan_keying::diagnosis::Answered;
use ironswan_keying::tunnels::AttemptId;

use crate::event::{IkeId, Ticket};

/// State of one IKE_SA while addresses or routes change.
#[derive(Default)]
pub(crate) struct Roam {
    /// Ask the peer for a sign of life whatever `dpd_delay` says.
    pub probe: bool,
    /// This one, once it is up, takes over from that one.
    pub replaces: Option<IkeId>,
    /// The address of the peer to try first, if it has this one.
    pub prefer: Option<IpAddr>,
    /// Another one is on its way that will take over from this one.
    pub leaving: bool,
    /// That one is to another address of the peer, because there was no way to this one's.
    pub elsewhere: bool,
    /// Another one has taken over from this one, which is about to be deleted: nothing new begins
    /// on it.
    pub retired: bool,
    /// The command that waits for the one that takes over.
    pub ticket: Option<Ticket>,
    /// Our address has changed in the middle of IKE_AUTH: the peer may have this IKE_SA at an
    /// address that is not ours.
    pub misplaced: bool,
}

impl Roam {
    /// Another one has taken over. True when that was known before.
    pub(crate) fn leave(&mut self) -> bool {
        self.leaving = true;
        std::mem::replace(&mut self.retired, true)
    }
}

/// An attempt of policy, as far as it has come with this IKE_SA.
#[derive(Clone, Debug)]
pub(crate) struct Attempt {
    /// The attempt of policy that made it; `None` for a responder, and for attempts at further
    /// addresses.
    pub start: Option<AttemptId>,
    /// Number of this try of `keyingtries`, from 1.
    pub number: u32,
    /// Number of times that this attempt has begun again from the start, as somebody may have
    /// interfered.
    pub restarts: u32,
    /// Comes from an action and not from a command, so an error is a reason to try again.
    pub automatic: bool,
    /// Waits for the IKE_SA to be established (an initiation without child).
    pub ticket: Option<Ticket>,
    /// Number of addresses that the peer may have; the number of the attempt says which it is. 0
    /// until known.
    pub choices: u32,
    /// Other addresses of the peer are asked besides; by the first of the attempts.
    pub race: Option<IkeId>,
    /// The last exchange that the peer has answered.
    pub answered: Option<Answered>,
}

impl Default for Attempt {
    fn default() -> Self {
        Self {
            start: None,
            number: 1,
            restarts: 0,
            automatic: false,
            ticket: None,
            choices: 0,
            race: None,
            answered: None,
        }
    }
}

/// Signs of life of the peer, and what has been said about it.
#[derive(Debug)]
pub(crate) struct Signs {
    /// The last authenticated message from the peer.
    pub last_in: Instant,
    /// The last authenticated message of IKE from the peer, or when the IKE_SA was established.
    pub last_ike: Instant,
    /// Usage has been asked for and not answered.
    pub usage_asked: bool,
    /// The peer answers TEMPORARY_FAILURE: since when without anything else, and when last.
    pub busy_peer: Option<(Instant, Instant)>,
    /// The log has a line that the peer has too many children.
    pub told_full: bool,
    /// Series of additional key exchanges in a row that the peer has forgotten.
    pub forgotten: u32,
    /// It has been said that the peer refuses to rekey the IKE_SA.
    pub refused: bool,
}

/// The peer's IKE_AUTH request. Its time puts several IKE_SAs of one peer in the order in which the
/// peer has asked for them, however long each proof takes to be verified.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    pub at: Instant,
    /// The request has INITIAL_CONTACT.
    pub initial_contact: bool,
}

/// The end of the peer's authentication.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Renewal {
    /// We make the IKE_SA anew, when we can begin.
    pub soft: Instant,
    /// It is closed if nobody has made it anew.
    pub hard: Instant,
}
