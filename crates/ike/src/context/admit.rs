//! Limits on the cost of senders that nobody has authenticated, for one IKE_SA.

use super::Context;
use crate::endpoint::strangers::About;
use crate::event::Level;
use crate::timer::Timer;
use ironswan_keying::limits::STRANGER_SUMMARY;
use std::net::{IpAddr, SocketAddr};

impl Context<'_> {
    /// Whether to write about something that this address has done. A summary follows lines that
    /// are not written.
    pub(crate) fn may_write(&mut self, from: IpAddr, about: About) -> bool {
        let write = self.shared.strangers.may_write(self.now, &mut self.shared.rng, from, about);
        if !write && self.shared.timers.get(Timer::Strangers).is_none() {
            self.shared.timers.set(Timer::Strangers, self.now + STRANGER_SUMMARY);
        }
        write
    }

    /// Whether to compare a QCD token that has come from this address.
    pub(crate) fn may_verify_token(&mut self, from: IpAddr) -> bool {
        self.shared.strangers.may_verify_token(self.now, &mut self.shared.rng, from)
    }

    /// A message of our own has come back. An answer would keep whoever mirrors it going.
    pub(crate) fn reflected(&mut self, remote: SocketAddr) {
        self.shared.counters.reflected += 1;
        if self.may_write(remote.ip(), About::Message) {
            let line = format!("{remote} sends our own IKE_SA_INIT messages back to us, ignored");
            self.note(Level::Warn, None, line);
        }
    }
}
