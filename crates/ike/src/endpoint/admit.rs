//! Asks [`Strangers`](super::strangers::Strangers) what an unauthenticated sender may cost, and
//! sets the timer of the summary.

use std::net::IpAddr;
use std::time::Instant;

use super::Endpoint;
use super::strangers::About;
use crate::event::Level;
use crate::timer::Timer;
use ironswan_keying::limits::STRANGER_SUMMARY;

impl Endpoint {
    /// A request of a stranger has been refused. `proved`: its address is its own.
    pub(crate) fn count_refusal(&mut self, now: Instant, from: IpAddr, proved: bool) {
        self.strangers.refused(now, &mut self.rng, from, proved);
    }

    /// Whether to read a request that has brought its cookie.
    pub(crate) fn may_compare(&mut self, now: Instant, from: IpAddr) -> bool {
        self.strangers.may_compare(now, &mut self.rng, from)
    }

    /// True while so many requests are refused that each must bring a cookie.
    pub(crate) fn refuses_many(&mut self, now: Instant) -> bool {
        self.strangers.refuses_many(now)
    }

    /// Whether to answer this address that something is refused.
    pub(crate) fn may_answer(&mut self, now: Instant, to: IpAddr) -> bool {
        self.strangers.may_answer(now, &mut self.rng, to)
    }

    /// Whether to answer a message of another version.
    pub(crate) fn may_answer_version(&mut self, now: Instant) -> bool {
        self.strangers.may_answer_version(now)
    }

    /// Whether to write about something that this address has done. A summary follows lines that
    /// are not written.
    pub(crate) fn may_write(&mut self, now: Instant, from: IpAddr, about: About) -> bool {
        let write = self.strangers.may_write(now, &mut self.rng, from, about);
        if !write && self.timers.get(Timer::Strangers).is_none() {
            self.timers.set(Timer::Strangers, now + STRANGER_SUMMARY);
        }
        write
    }

    /// Says how many lines have not been written.
    pub(super) fn sum_up_strangers(&mut self) {
        let [messages, authentications] = self.strangers.take_silent();
        let line = format!(
            "not written in the last {} s: lines about {messages} messages that are not authenticated and \
             {authentications} peers that failed to authenticate themselves",
            STRANGER_SUMMARY.as_secs()
        );
        self.note(Level::Warn, None, line);
    }
}
