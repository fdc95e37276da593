//! The life of an IKE_SA: the queue of tasks, establishment, what goes on to its successor, and the
//! commands that wait for it. How one begins is in `orders` and `initiate`, how it ends in `close`.

use ironswan_keying::Diagnosis;
use std::time::Instant;

use super::Endpoint;
use crate::event::{Completion, Event, RequestId, Ticket};
use crate::sa::IkeSa;
use crate::task::NewChild;

impl Endpoint {
    // ---- tickets ----

    /// A ticket for `n` things that will each be [`Self::done`].
    pub(crate) fn open_ticket(&mut self, n: usize) -> Ticket {
        let ticket = self.shared.tickets.open(n);
        if n == 0 {
            self.emit(Event::Done { ticket, result: Ok(()) });
        }
        ticket
    }

    /// One of the ticket's things has ended.
    pub(crate) fn done(&mut self, ticket: Option<Ticket>, result: Result<(), Diagnosis>) {
        self.shared.outbox.extend(self.shared.tickets.done(ticket, result));
    }

    /// Gives back the numbers that a child which will not be has reserved.
    pub(super) fn abandon(&mut self, child: &NewChild) {
        self.shared.free_reserved(child.id, child.spi_in, child.cpi_in);
    }

    /// The answer that an exchange of this IKE_SA waited for has come.
    pub(crate) fn resume(&mut self, now: Instant, sa: &mut IkeSa, id: RequestId, completion: Completion) {
        let Some(wait) = sa.take_wait_for(id) else { return };
        self.on(now, sa, |cx, sa| {
            if wait.exchange.is_of_peer() {
                cx.count_computing(sa, false);
            }
            wait.exchange.resume(cx, sa, completion);
        });
        self.drain_backlog(now, sa);
    }

    /// Starts the next tasks of an IKE_SA, if it is free.
    pub(crate) fn pump(&mut self, now: Instant, sa: &mut IkeSa) {
        while self.on(now, sa, |cx, sa| cx.start_next(sa)) {}
    }

    /// The IKE_SA is authenticated or gone: it is not half-open any more.
    pub(crate) fn leave_half_open(&mut self, sa: &mut IkeSa) {
        if sa.half_open().is_some() {
            self.half_open.close(sa.id());
            self.shared.counters.half_open = self.half_open.count() as u64;
        }
    }
}
