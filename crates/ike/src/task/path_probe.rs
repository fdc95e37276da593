//! Measures how large packets the path to the peer carries, in the direction towards the peer: by
//! INFORMATIONAL requests that must not be fragmented, padded by a notification of a private status
//! type, which a peer ignores and answers (RFC 7296 section 3.10.1: "Notify payloads with status
//! types that are unrecognized MUST be ignored").
//!
//! ```text
//! HDR, SK {N(PATH_PROBE)}  with DF  -->
//!                             <--  HDR, SK {}      within 1 s: the path carries this size
//! after 1 s, without DF:
//! HDR, SKF {..}, HDR, SKF {..}      -->            if both ends have RFC 7383
//! the same HDR, SK {N(PATH_PROBE)}  -->            an answer from now on says nothing
//! ```
//! A probe goes out only when the IKE_SA has nothing else to do, and holds up what comes then for a
//! second at most. It must not end an IKE_SA, so it comes again until the peer answers, as every
//! request does, in both forms. A peer that has answered the first copy, whose answer was lost, is
//! owed the same bytes: "a retransmission MUST be bitwise identical" (RFC 7296 section 2.1). A path
//! may carry no fragments of IP either, and RFC 7383 section 2.4 lets the initiator send a message
//! whole first and in fragments when no response comes, under the same message ID. A peer that
//! takes no fragments of IKE gets an empty request of that ID as well when the same bytes stay
//! without answer, over IPv6 at once, as no router makes fragments: the notification says nothing,
//! so it can be left out (docs/rfc/deviations.md).
//!
//! Which sizes are tried is up to `search`.

use ironswan_keying::diagnosis::{Path, ProbeRefusal};
use ironswan_keying::limits::{
    PATH_PROBE_AGAIN, PATH_PROBE_BUSY, PATH_PROBE_MAX, PATH_PROBE_PERIOD, PATH_PROBE_PROMPT,
    PATH_PROBE_SPREAD, PATH_PROBE_WAIT,
};
use ironswan_wire::iana::{ExchangeType, NotifyType};
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::{Notify, notifies};
use std::time::Instant;

use super::liveness;
use super::state::{PathProbe, Task};
use crate::context::Context;
use crate::endpoint::Pending;
use crate::event::{Event, IkeState, KnownPath, Level, Request};
use crate::sa::{Active, Found, IkeSa};
use crate::search::{Search, Step};
use crate::timer::Timer;

// ---- when ----

/// The path to the peer is another one: measures it soon.
pub(crate) fn begin(cx: &mut Context<'_>, sa: &mut IkeSa) {
    if !sa.is_up() {
        return;
    }
    if !sa.conn().path_probe {
        sa.probing_mut().search = None;
        return cx.cancel_timer(Timer::PathProbe(sa.id()));
    }
    let elsewhere = sa.probing().told.is_some_and(|told| told != sa.remote().ip());
    if let Some(remote) = sa.probing_mut().told.take_if(|_| elsewhere) {
        cx.emit(Event::PathMtu { ike: sa.id(), remote, mtu: None });
        sa.probing_mut().found = None;
    }
    // Not at every move of a peer that moves all the time.
    let earliest = sa.probing().begun.map(|begun| begun + PATH_PROBE_AGAIN);
    let at = cx.probe_time().max(earliest.unwrap_or(cx.now()));
    sa.probing_mut().search = None;
    wait_until(cx, sa, at);
}

/// The IKE_SA has taken over from another one, with its measurements.
pub(crate) fn go_on(cx: &mut Context<'_>, sa: &mut IkeSa) {
    sa.probing_mut().asked = false;
    match sa.probing().next {
        Some(at) if sa.conn().path_probe && sa.probing().search.is_none() => wait_until(cx, sa, at),
        _ => begin(cx, sa),
    }
}

fn wait_until(cx: &mut Context<'_>, sa: &mut IkeSa, at: Instant) {
    sa.probing_mut().next = Some(at);
    cx.set_timer(Timer::PathProbe(sa.id()), at);
}

/// The timer has fired.
pub(crate) fn due(cx: &mut Context<'_>, sa: &mut IkeSa) {
    let refuses = sa.remote_id().is_some_and(|peer| cx.refuses_probes(peer));
    // A new way begins anew.
    if !sa.conn().path_probe || !sa.stands() || sa.is_blocked() || refuses || sa.probing().asked {
        return;
    }
    if !is_free(cx, sa) {
        return later(cx, sa);
    }
    match sa.probing().search {
        Some(_) => step(cx, sa),
        None => ask(cx, sa),
    }
}

/// True when nothing else is in flight or waits.
fn is_free(cx: &Context<'_>, sa: &IkeSa) -> bool {
    let leaving = sa.roam().leaving || sa.roam().retired;
    sa.is_idle() && sa.state() == IkeState::Established && !cx.owes_answer(sa) && !leaving
}

fn later(cx: &mut Context<'_>, sa: &mut IkeSa) {
    wait_until(cx, sa, cx.now() + PATH_PROBE_BUSY);
}

/// Asks what is known of the path.
fn ask(cx: &mut Context<'_>, sa: &mut IkeSa) {
    sa.probing_mut().asked = true;
    let (local, remote) = (sa.local().ip(), sa.remote().ip());
    cx.ask(Pending::Probe(sa.id()), Request::PathMtu { local, remote });
}

/// The driver has said what is known of the path.
pub(crate) fn known(cx: &mut Context<'_>, sa: &mut IkeSa, known: Option<KnownPath>) {
    if !std::mem::take(&mut sa.probing_mut().asked) || !sa.stands() {
        return;
    }
    if let Some(Step::Narrow(found)) = sa.probing().search.as_ref().map(|search| search.next()) {
        return narrow(cx, sa, found, known.and_then(|known| known.told));
    }
    let Some(known) = known else { return again(cx, sa) };
    let believed = known.mtu.min(PATH_PROBE_MAX);
    let before = sa.probing().found.filter(|found| found.narrow).map(|found| found.proven);
    let natt = cx.ports().natt;
    let fit = |size| sa.probe_size(size, natt).map(|(_, bytes)| bytes);
    let search = Search::new(believed, sa.remote().is_ipv6(), before, fit);
    let probing = sa.probing_mut();
    (probing.search, probing.begun) = (Some(Box::new(search)), Some(cx.now()));
    step(cx, sa);
}

/// The next step of the search.
fn step(cx: &mut Context<'_>, sa: &mut IkeSa) {
    let Some(search) = &sa.probing().search else { return };
    match search.next() {
        Step::Probe(_) if !is_free(cx, sa) => later(cx, sa),
        Step::Probe(bytes) => send(cx, sa, bytes),
        Step::Wide(proven) => wide(cx, sa, proven),
        // An ICMP error may have come meanwhile.
        Step::Narrow(_) => ask(cx, sa),
        Step::Unknown => {
            cx.log(Level::Debug, sa, "the size of packets that the path carries cannot be measured now");
            again(cx, sa);
        }
    }
}

// ---- messages ----

fn padded(padding: usize) -> [Payload; 1] {
    [Payload::Notify(Notify::new(NotifyType::PATH_PROBE, vec![0; padding]))]
}

fn send(cx: &mut Context<'_>, sa: &mut IkeSa, bytes: u32) {
    let Some((padding, bytes)) = sa.probe_size(bytes, cx.ports().natt) else { return again(cx, sa) };
    cx.log(Level::Debug, sa, format!("sending a packet of {bytes} bytes to measure the path"));
    let probe = PathProbe { bytes, padding, sent: cx.now(), given_way: false };
    if !cx.send_uncut(sa, Task::PathProbe(probe), &padded(padding), PATH_PROBE_WAIT) {
        again(cx, sa);
    }
}

/// Sends a probe that has no answer yet again, in forms that pass a narrow path. False when no
/// probe is in flight that was sent once.
pub(crate) fn give_way(cx: &mut Context<'_>, sa: &mut IkeSa) -> bool {
    let Some(Active { task: Task::PathProbe(probe), mid, .. }) = sa.work_mut().active_mut() else {
        return false;
    };
    if std::mem::replace(&mut probe.given_way, true) {
        return false;
    }
    let (mid, padding) = (*mid, probe.padding);
    let header = sa.header(ExchangeType::INFORMATIONAL, false, mid);
    let fragments = cx.seal_small(sa, &header, &padded(padding));
    let Some(active) = sa.work_mut().active_mut() else { return false };
    active.bytes.splice(..0, fragments.into_iter().flatten());
    if sa.remote().is_ipv6() {
        shrink(cx, sa);
    }
    let bytes = sa.work().active().map(|active| active.bytes.clone()).unwrap_or_default();
    if !sa.is_blocked() {
        cx.counters().retransmits_out += 1;
        cx.transmit_all(sa, (sa.local(), sa.remote()), &bytes);
        let wait = cx.until_retransmit(sa, 0);
        cx.set_timer(Timer::Retransmit(sa.id()), cx.now() + wait);
    }
    true
}

/// A probe has stayed without answer in all its forms so far: an empty request goes besides, unless
/// fragments of IKE do.
pub(crate) fn shrink(cx: &mut Context<'_>, sa: &mut IkeSa) {
    let Some(Active { task: Task::PathProbe(_), mid, bytes, .. }) = sa.work().active() else { return };
    if bytes.len() > 1 {
        return;
    }
    let header = sa.header(ExchangeType::INFORMATIONAL, false, *mid);
    let empty = cx.seal_whole(sa, &header, &[]);
    if let Some(active) = sa.work_mut().active_mut() {
        active.bytes.extend(empty.into_iter().flatten());
    }
}

/// True while a probe may be sent again without end: nothing else waits, and the connection asks
/// for no liveness checks, so that a silent peer is no reason to end the IKE_SA.
pub(crate) fn is_patient(sa: &IkeSa) -> bool {
    let probes = matches!(sa.work().active(), Some(Active { task: Task::PathProbe(_), .. }));
    probes && sa.stands() && sa.conn().dpd_delay.is_zero() && sa.work().queued().next().is_none()
}

/// The peer has answered.
pub(crate) fn process(cx: &mut Context<'_>, sa: &mut IkeSa, probe: &PathProbe, payloads: &[Payload]) {
    liveness::rearm(cx, sa);
    if let Some(kind) = notifies(payloads).map(|n| n.kind).find(|kind| kind.is_error()) {
        return refused(cx, sa, ProbeRefusal::Error(kind));
    }
    let took = cx.now().saturating_duration_since(probe.sent);
    let probing = sa.probing_mut();
    probing.answered = true;
    // Without a search the path has changed since.
    let Some(search) = &mut probing.search else { return };
    if probe.given_way {
        search.failed(probe.bytes);
    } else {
        search.answered(probe.bytes, took <= PATH_PROBE_PROMPT);
    }
    step(cx, sa);
}

/// The peer refuses probes: it is not sent any more of them.
pub(crate) fn refused(cx: &mut Context<'_>, sa: &mut IkeSa, how: ProbeRefusal) {
    sa.probing_mut().search = None;
    cx.cancel_timer(Timer::PathProbe(sa.id()));
    let Some(peer) = sa.remote_id().cloned() else { return };
    cx.remember_refusal(&peer);
    cx.log_why(Level::Warn, sa, "", &Path::ProbeRefused { peer, how }.into());
}

// ---- results ----

/// The search is over: the next one begins in an hour or so.
fn again(cx: &mut Context<'_>, sa: &mut IkeSa) {
    sa.probing_mut().search = None;
    let at = cx.now() + cx.less_jitter(PATH_PROBE_PERIOD, PATH_PROBE_SPREAD);
    wait_until(cx, sa, at);
}

/// The path carries what we believe, or as much of it as a probe can have.
fn wide(cx: &mut Context<'_>, sa: &mut IkeSa, proven: u32) {
    let before = keep(cx, sa, proven, false);
    let remote = sa.remote().ip();
    let line = format!("the path to {remote} carries packets of {proven} bytes");
    let level = if before.is_some_and(|b| b.narrow) { Level::Info } else { Level::Debug };
    cx.log(level, sa, line);
    sa.probing_mut().told = None;
    cx.emit(Event::PathMtu { ike: sa.id(), remote, mtu: None });
    again(cx, sa);
}

/// The path carries less than we believed. `told`: the MTU of an ICMP error about it.
fn narrow(cx: &mut Context<'_>, sa: &mut IkeSa, found: u32, told: Option<u32>) {
    let believed = sa.probing().search.as_ref().map_or(found, |search| search.believed);
    let before = keep(cx, sa, found, true);
    let (local, remote) = (sa.local().ip(), sa.remote().ip());
    if before.is_none_or(|b| !b.narrow || (b.proven, b.believed) != (found, believed)) {
        cx.log_why(Level::Warn, sa, "", &Path::Narrow { local, remote, believed, found, told }.into());
    }
    sa.probing_mut().told = Some(remote);
    cx.emit(Event::PathMtu { ike: sa.id(), remote, mtu: Some(found) });
    again(cx, sa);
}

/// Keeps a result. Returns the one before.
fn keep(cx: &Context<'_>, sa: &mut IkeSa, proven: u32, narrow: bool) -> Option<Found> {
    let at = cx.now();
    let probing = sa.probing_mut();
    let believed = probing.search.as_ref().map_or(proven, |search| search.believed);
    probing.found.replace(Found { proven, believed, narrow, at })
}
