//! Asks [`Strangers`](super::strangers::Strangers) what an unauthenticated sender may cost, and
//! sets the timer of the summary.

use std::net::{IpAddr, SocketAddr};
use std::time::Instant;

use super::Endpoint;
use super::context::Context;
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

impl Endpoint {
    /// Whether to write about something that this address has done.
    pub(super) fn may_write(&mut self, now: Instant, from: IpAddr, about: About) -> bool {
        self.aside(now, |cx| cx.may_write(from, about))
    }
}

impl Context<'_> {
    /// Whether to write about something that this address has done. A summary follows lines that
    /// are not written.
    pub(crate) fn may_write(&mut self, from: IpAddr, about: About) -> bool {
        let write = self.strangers.may_write(self.now, &mut self.rng, from, about);
        if !write && self.timers.get(Timer::Strangers).is_none() {
            self.timers.set(Timer::Strangers, self.now + STRANGER_SUMMARY);
        }
        write
    }

    /// A message of our own has come back. An answer would keep whoever mirrors it going.
    pub(crate) fn reflected(&mut self, remote: SocketAddr) {
        self.counters.reflected += 1;
        if self.may_write(remote.ip(), About::Message) {
            let line = format!("{remote} sends our own IKE_SA_INIT messages back to us, ignored");
            self.note(Level::Warn, None, line);
        }
    }
}
