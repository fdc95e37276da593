//! An attempt at one address of the peer beside those at others.

use super::Context;
use crate::sa::IkeSa;
use crate::timer::Timer;
use ironswan_keying::choices::address;

impl Context<'_> {
    /// An attempt has its address: the next one has its turn in a while, if there is one in this
    /// round.
    pub(crate) fn rival_later(&mut self, sa: &IkeSa) {
        let pause = address::pause(
            &mut self.shared.rng,
            sa.attempt().number,
            sa.attempt().choices,
            sa.attempt().automatic,
        );
        if let Some(pause) = pause {
            self.shared.timers.set(Timer::Rival(sa.id()), self.now + pause);
        }
    }
}
