//! Asks [`Strangers`](super::strangers::Strangers) what an unauthenticated sender may cost, and
//! sets the timer of the summary.

use std::net::IpAddr;
use std::time::Instant;

use super::Endpoint;
use super::strangers::About;
use crate::event::Level;
use ironswan_keying::limits::STRANGER_SUMMARY;

impl Endpoint {
    /// A request of a stranger has been refused. `proved`: its address is its own.
    pub(crate) fn count_refusal(&mut self, now: Instant, from: IpAddr, proved: bool) {
        self.shared.strangers.refused(now, &mut self.shared.rng, from, proved);
    }

    /// Whether to read a request that has brought its cookie.
    pub(crate) fn may_compare(&mut self, now: Instant, from: IpAddr) -> bool {
        self.shared.strangers.may_compare(now, &mut self.shared.rng, from)
    }

    /// True while so many requests are refused that each must bring a cookie.
    pub(crate) fn refuses_many(&mut self, now: Instant) -> bool {
        self.shared.strangers.refuses_many(now)
    }

    /// Whether to answer this address that something is refused.
    pub(crate) fn may_answer(&mut self, now: Instant, to: IpAddr) -> bool {
        self.shared.strangers.may_answer(now, &mut self.shared.rng, to)
    }

    /// Whether to answer a message of another version.
    pub(crate) fn may_answer_version(&mut self, now: Instant) -> bool {
        self.shared.strangers.may_answer_version(now)
    }

    /// Says how many lines have not been written.
    pub(super) fn sum_up_strangers(&mut self) {
        let [messages, authentications] = self.shared.strangers.take_silent();
        let line = format!(
            "not written in the last {} s: lines about {messages} messages that are not authenticated and \
             {authentications} peers that failed to authenticate themselves",
            STRANGER_SUMMARY.as_secs()
        );
        self.note(Level::Warn, None, line);
    }
}

impl Endpoint {
    /// Whether to write about something that this address has done.
    pub(super) fn may_write(&mut self, now: Instant, from: IpAddr, about: About) -> bool {
        self.aside(now, |cx| cx.may_write(from, about))
    }
}
