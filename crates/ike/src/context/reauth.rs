//! Reauthentication: an IKE_SA is made anew with IKE_AUTH before the old one is deleted. Its time
//! comes from `reauth_time`, or from the responder (AUTH_LIFETIME, RFC 4478).
//!
//! ```text
//! initiator: soft time -> a new IKE_SA with all children -> 2 s later: DELETE of the old one
//! responder: AUTH_LIFETIME in the last IKE_AUTH response -> hard time: DELETE
//! ```

use super::Context;
use crate::event::Level;
use crate::sa::{IkeSa, Renewal};
use crate::timer::Timer;
use ironswan_keying::choices::{authentication, way};
use ironswan_keying::diagnosis::KeyExchange;
use ironswan_keying::limits::AUTH_LIFETIME_MIN;
use ironswan_wire::iana::NotifyType;
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::{Notify, find_notify};

impl Context<'_> {
    /// The peer has just been authenticated: its time begins.
    pub(crate) fn begin_authentication(&mut self, sa: &mut IkeSa) {
        let span = authentication::configured(sa.conn(), &mut self.shared.rng);
        let now = self.now;
        sa.set_renewal(span.map(|s| Renewal { soft: now + s.soft, hard: now + s.hard }));
    }

    /// Sets the timers that end an IKE_SA and that make it anew.
    pub(crate) fn set_end(&mut self, sa: &IkeSa) {
        let c = sa.conn();
        let rekeying = (!c.rekey_time.is_zero()).then(|| self.now + c.rekey_time + c.over_time);
        let renewal = sa.renewal();
        if let Some(end) = rekeying.into_iter().chain(renewal.map(|r| r.hard)).min() {
            self.shared.timers.set(Timer::OverTime(sa.id()), end);
        }
        // The other end is to begin where we cannot.
        let begins = way::can_take_over(self.settings.policy, &c.name);
        if let Some(renewal) = renewal.filter(|_| begins) {
            self.shared.timers.set(Timer::Reauth(sa.id()), renewal.soft);
            let left = renewal.soft.saturating_duration_since(self.now).as_secs();
            self.log(Level::Debug, sa, format!("scheduling reauthentication in {left}s"));
        }
    }

    /// The notification by which a responder tells the initiator to begin anew in time.
    pub(crate) fn auth_lifetime(&mut self, sa: &IkeSa) -> Option<Payload> {
        let seconds = authentication::to_name(sa.conn())?;
        self.log(Level::Info, sa, format!("sending AUTH_LIFETIME of {seconds}s"));
        Some(Payload::Notify(Notify::new(NotifyType::AUTH_LIFETIME, seconds.to_be_bytes())))
    }

    /// The responder that has authenticated us may have named the lifetime of that. A time that
    /// is later than the one that counts changes nothing.
    pub(crate) fn read_auth_lifetime(&mut self, sa: &mut IkeSa, payloads: &[Payload]) {
        let named = find_notify(payloads, NotifyType::AUTH_LIFETIME).filter(|_| sa.asked().is_none());
        let Some(seconds) = named.and_then(|n| <[u8; 4]>::try_from(n.data.as_slice()).ok()) else { return };
        let seconds = u32::from_be_bytes(seconds);
        let span = authentication::named(sa.conn(), seconds, &mut self.shared.rng);
        let (soft, hard) = (self.now + span.soft, self.now + span.hard);
        if u64::from(seconds) < AUTH_LIFETIME_MIN.as_secs() {
            let why = KeyExchange::ShortAuthLifetime { seconds, used: AUTH_LIFETIME_MIN.as_secs() };
            self.log_why(Level::Warn, sa, "", &why.into());
        }
        let line = match sa.renewal().is_some_and(|ours| ours.soft <= soft) {
            true => format!("received AUTH_LIFETIME of {seconds}s, reauthentication comes earlier already"),
            false => {
                sa.set_renewal(Some(Renewal { soft, hard }));
                self.set_end(sa);
                let left = span.soft.as_secs();
                format!("received AUTH_LIFETIME of {seconds}s, scheduling reauthentication in {left}s")
            }
        };
        self.log(Level::Info, sa, line);
    }

    /// The time of the authentication is over: another IKE_SA is to take over.
    pub(crate) fn reauthenticate(&mut self, sa: &mut IkeSa) {
        if sa.is_up() && sa.successor().is_none() {
            self.renew(sa, "reauthentication is due");
        }
    }

    /// No other IKE_SA has taken over: another attempt is made soon.
    pub(crate) fn reauthenticate_later(&mut self, sa: &IkeSa) {
        if sa.renewal().is_some_and(|renewal| renewal.soft <= self.now) {
            let pause = self.soon();
            let line = format!("reauthentication failed, trying again in {} seconds", pause.as_secs());
            self.log(Level::Warn, sa, line);
            self.shared.timers.set(Timer::Reauth(sa.id()), self.now + pause);
        }
    }
}
