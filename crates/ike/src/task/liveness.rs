//! Liveness (RFC 7296 section 2.4): an empty INFORMATIONAL after `dpd_delay` without a sign of
//! life. ESP counts as one: "Receipt of a fresh cryptographically protected message on an IKE SA or
//! any of its Child SAs ensures liveness". And NAT-keepalives (RFC 3948 section 4).

use std::time::{Duration, Instant};

use ironswan_wire::iana::ExchangeType;
use ironswan_wire::sadb::{Direction, SaRef};

use super::mobike;
use super::state::Task;
use crate::context::Context;
use crate::endpoint::Pending;
use crate::event::{Level, Request};
use crate::sa::IkeSa;
use crate::timer::Timer;
use ironswan_keying::limits::PROBE_ANSWER;

/// Sets the timer for the next NAT-keepalive, if there is a NAT in front of us. A packet has just
/// gone to the peer.
pub(crate) fn rearm_keepalive(cx: &mut Context<'_>, sa: &IkeSa) {
    let after = cx.limits().keep_alive;
    if sa.nat().local && !sa.is_blocked() && !after.is_zero() {
        cx.set_timer(Timer::Keepalive(sa.id()), cx.now() + after);
    }
}

/// No IKE message has gone to the peer for a while: asks the engine when ESP went there last.
pub(crate) fn ask_keepalive(cx: &mut Context<'_>, sa: &IkeSa) {
    let remote = sa.remote().ip();
    let sas: Vec<SaRef> =
        sa.children().filter(|c| c.sends()).map(|c| c.sa_ref(Direction::Out, remote)).collect();
    match sas.is_empty() {
        true => keepalive(cx, sa, None),
        false => _ = cx.ask(Pending::Keepalive(sa.id()), Request::Usage { sas }),
    }
}

/// Keeps the mapping in the NAT in front of us, "if no other packet to the peer has been sent in M
/// seconds" (RFC 3948 section 4). M is `keep_alive`.
pub(crate) fn keepalive(cx: &mut Context<'_>, sa: &IkeSa, last_outbound: Option<Instant>) {
    let next = last_outbound.map(|at| at + cx.limits().keep_alive).filter(|next| *next > cx.now());
    match next {
        Some(next) => cx.set_timer(Timer::Keepalive(sa.id()), next),
        None if sa.stands() && !sa.is_blocked() && sa.local().port() == cx.ports().natt => {
            cx.transmit_keepalive(sa);
            rearm_keepalive(cx, sa);
        }
        None => {}
    }
}

/// How long the peer has to be silent at least before it is asked.
fn silence(delay: Duration) -> Duration {
    delay - delay / 10
}

/// Sets the timer to when the peer will have been silent for too long: never later than
/// `dpd_delay`, and up to a tenth of it earlier, so that thousands of peers who came up at once are
/// not asked at once for ever after.
pub(crate) fn rearm(cx: &mut Context<'_>, sa: &IkeSa) {
    let delay = sa.conn().dpd_delay;
    if !delay.is_zero() && !sa.is_blocked() {
        let at = sa.signs().last_in + cx.less_jitter(delay, delay / 10);
        cx.set_timer(Timer::Liveness(sa.id()), at);
    }
}

/// The timer has fired.
pub(crate) fn check(cx: &mut Context<'_>, sa: &mut IkeSa) {
    let delay = sa.conn().dpd_delay;
    if sa.is_blocked() || !sa.stands() {
        return;
    }
    if !sa.roam().probe {
        if delay.is_zero() {
            return;
        }
        if sa.signs().last_in + silence(delay) > cx.now() {
            return rearm(cx, sa);
        }
    }
    if !delay.is_zero() {
        cx.set_timer(Timer::Liveness(sa.id()), cx.now() + delay);
    }
    if sa.work().active().is_some() {
        // Its retransmissions will tell.
        return;
    }
    let remote = sa.remote().ip();
    let sas: Vec<SaRef> = sa.children().map(|c| c.sa_ref(Direction::In, remote)).collect();
    if sas.is_empty() || sa.signs().usage_asked {
        (sa.signs_mut().usage_asked, sa.roam_mut().probe) = (false, false);
        return queue(sa);
    }
    sa.signs_mut().usage_asked = true;
    cx.ask(Pending::Usage(sa.id()), Request::Usage { sas });
}

/// The engine has said when ESP arrived last.
pub(crate) fn judge(cx: &mut Context<'_>, sa: &mut IkeSa, last_inbound: Option<Instant>) {
    if !std::mem::take(&mut sa.signs_mut().usage_asked) {
        return;
    }
    let seen = last_inbound.unwrap_or(sa.signs().last_in).max(sa.signs().last_in);
    // After a change of addresses or routes, only what was heard since then counts.
    let enough =
        if std::mem::take(&mut sa.roam_mut().probe) { PROBE_ANSWER } else { silence(sa.conn().dpd_delay) };
    if seen + enough > cx.now() {
        sa.signs_mut().last_in = seen;
        rearm(cx, sa);
    } else {
        queue(sa);
    }
}

/// Asks for a sign of life next.
pub(crate) fn queue(sa: &mut IkeSa) {
    if !sa.work().queued().any(|t| matches!(t, Task::Liveness)) {
        sa.work_mut().push(Task::Liveness);
    }
}

pub(crate) fn build(cx: &mut Context<'_>, sa: &mut IkeSa) {
    if !sa.stands() {
        return;
    }
    cx.log(Level::Debug, sa, "sending DPD request");
    let payloads = mobike::probe(sa);
    cx.send_request(sa, ExchangeType::INFORMATIONAL, Task::Liveness, &payloads);
}
