//! Commands that are not over: how many parts of each have still to end.

use std::collections::BTreeMap;

use crate::event::Event;
use ironswan_keying::{Diagnosis, Ticket};

/// A command that is not over.
struct Waiting {
    remaining: usize,
    error: Option<Diagnosis>,
}

/// The commands that are not over, by ticket.
#[derive(Default)]
pub(crate) struct Tickets {
    waiting: BTreeMap<Ticket, Waiting>,
    last: u64,
}

impl Tickets {
    /// A ticket for a command of `parts` parts. With none the command is over already.
    pub(crate) fn open(&mut self, parts: usize) -> Ticket {
        self.last += 1;
        let ticket = Ticket(self.last);
        if parts > 0 {
            self.waiting.insert(ticket, Waiting { remaining: parts, error: None });
        }
        ticket
    }

    /// One part of a command has ended. Returns the event that tells the result of the command when
    /// this was the last part: the first error, if there was one.
    pub(crate) fn done(&mut self, ticket: Option<Ticket>, result: Result<(), Diagnosis>) -> Option<Event> {
        let ticket = ticket?;
        let waiting = self.waiting.get_mut(&ticket)?;
        waiting.remaining -= 1;
        if let Err(e) = result {
            waiting.error.get_or_insert(e);
        }
        if waiting.remaining > 0 {
            return None;
        }
        let over = self.waiting.remove(&ticket)?;
        Some(Event::Done { ticket, result: over.error.map_or(Ok(()), Err) })
    }

    /// Nobody is told of the end of this command.
    pub(crate) fn forget(&mut self, ticket: Ticket) {
        self.waiting.remove(&ticket);
    }

    /// Number of commands that are not over.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }
}
