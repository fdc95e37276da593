//! The responder's side of making children: in CREATE_CHILD_SA (RFC 7296 sections 1.3.1, 1.3.3) and
//! in IKE_AUTH. The initiator's is in `create_child`, what is special about rekeying in
//! `rekey_child`.

use ironswan_crypto::kex;
use ironswan_wire::iana::{KeId, NotifyType};
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::{Ke, Nonce, Notify, find_notify};
use ironswan_wire::proposal::Proposal;
use ironswan_wire::sadb::{Mode, Spi};
use ironswan_wire::secret::Secret;
use ironswan_wire::selector::{Precedence, TrafficSelector};
use std::cmp::Reverse;
use std::sync::Arc;

use super::child_payloads::{ChildPayloads, check_nonce};
use super::exchange::Exchange;
use super::series::Agreement;
use super::state::{AgreedChild, child_name};
use super::{create_child, link, narrowed, rekey_child};
use crate::child::{Agreed, Child};
use crate::context::Context;
use crate::context::install::NewSas;
use crate::event::{ChildId, Completion, IkeState, Level};
use crate::negotiate::{self, ChildSuite, KeRule, NONCE_LEN, Selected};
use crate::sa::IkeSa;
use crate::{ipcomp, narrow, transport};
use ironswan_keying::diagnosis::{KeyExchange, Pair, Selectors as Reason, TransportFault, Uncomputed};
use ironswan_keying::{ChildConfig, ChildKind, Diagnosis};

/// The peer's CREATE_CHILD_SA for a child, while our part of the key exchange is computed.
struct AnswerChild(Box<Offered>, KeId);

impl Exchange for AnswerChild {
    fn resume(self: Box<Self>, cx: &mut Context<'_>, sa: &mut IkeSa, completion: Completion) {
        let Self(offered, method) = *self;
        match completion.response(method) {
            Ok((public, shared)) => respond(cx, sa, *offered, Some((method, public, shared))),
            Err(why) => cx.refuse_uncomputed(sa, why),
        }
    }

    fn name(&self) -> &'static str {
        child_name(self.0.rekey.is_some())
    }

    fn is_of_peer(&self) -> bool {
        true
    }
}

/// A child that the peer proposes, as far as it has been agreed on.
struct Offered {
    config: Arc<ChildConfig>,
    rekey: Option<ChildId>,
    agreed: Agreed,
    answer: Proposal,
    spi_out: Spi,
    ni: Vec<u8>,
    nr: Vec<u8>,
    peer_public: Vec<u8>,
}

/// A child that the peer's selectors can be for.
struct Candidate {
    config: Arc<ChildConfig>,
    mode: Mode,
    seen: transport::Seen,
}

/// What the peer proposes: its selectors as they came, and as they are meant when transport mode is
/// asked for.
struct Selectors<'a> {
    tsi: &'a [TrafficSelector],
    tsr: &'a [TrafficSelector],
    transport: Option<transport::Seen>,
    /// How many more pieces the peer gets.
    pieces: usize,
}

impl Selectors<'_> {
    /// Narrows to these, in transport mode if this is asked for, allowed and possible, else in
    /// tunnel mode. "If an entry is found but it does not allow transport mode, then the server MAY
    /// undo the address substitution and redo the SPD lookup using the original Traffic Selectors"
    /// (RFC 7296 section 2.23.1).
    fn narrow(
        &self,
        sa: &IkeSa,
        allowed: Mode,
        local: &[TrafficSelector],
        remote: &[TrafficSelector],
    ) -> Option<(Mode, transport::Seen)> {
        let narrow = |tsr: &[_], tsi: &[_], original| {
            let whole = local.len().saturating_mul(remote.len());
            let max = narrow::max_pairs(local.len(), remote.len()).min(whole.saturating_add(self.pieces));
            let (mut local, mut remote) = (narrow::narrow(local, tsr), narrow::narrow(remote, tsi));
            narrow::limit_pairs(&mut local, &mut remote, max);
            let some = !local.is_empty() && !remote.is_empty();
            some.then_some(transport::Seen { local, remote, original })
        };
        let transport = self.transport.as_ref().filter(|_| allowed == Mode::Transport);
        let seen = transport
            .and_then(|t| narrow(&t.local, &t.remote, t.original))
            .filter(|s| transport::host_to_host(sa, &s.local, &s.remote));
        match seen {
            Some(seen) => Some((Mode::Transport, seen)),
            None => narrow(self.tsr, self.tsi, None).map(|seen| (Mode::Tunnel, seen)),
        }
    }
}

/// The children that the peer's selectors are for: those that hold its first selectors before
/// others, exactly configured ones before those that have to be narrowed, those of the mode that it
/// asks for before others, and then in the order of policies.
fn select_configs(sa: &IkeSa, asked: &Selectors<'_>) -> Vec<Candidate> {
    let mut found = Vec::new();
    let wanted = if asked.transport.is_some() { Mode::Transport } else { Mode::Tunnel };
    for config in sa.conn().children.iter().filter(|c| c.kind == ChildKind::Protect) {
        let ours = narrow::resolve(&config.local_ts, sa.local().ip());
        let theirs = narrow::resolve(&config.remote_ts, sa.remote().ip());
        let Some((mode, seen)) = asked.narrow(sa, config.mode, &ours, &theirs) else { continue };
        let exact = u8::from(seen.local == ours && seen.remote == theirs);
        let (tsi, tsr) = match &asked.transport {
            Some(t) if mode == Mode::Transport => (&t.remote[..], &t.local[..]),
            _ => (asked.tsi, asked.tsr),
        };
        let whole = u8::from(narrow::is_narrowed(tsr, &ours) && narrow::is_narrowed(tsi, &theirs));
        // "If the responder's policy allows it to accept the first selector of TSi and TSr, then
        // the responder MUST narrow the Traffic Selectors to a subset that includes the initiator's
        // first choices" (RFC 7296 section 2.9).
        let holds = |ts: &[TrafficSelector], by: &[TrafficSelector]| {
            ts.first().is_some_and(|first| by.iter().any(|have| first.is_subset_of(have)))
        };
        let first = holds(tsi, &seen.remote) && holds(tsr, &seen.local);
        // Of several the one that comes first in the order of policies: its packets are not
        // another's.
        let place = seen.local.first().zip(seen.remote.first()).map(|(l, r)| {
            let open = narrow::open_bits(&ours, l) + narrow::open_bits(&theirs, r);
            Reverse(Precedence::new(l, r, config.priority, open, true))
        });
        let score = (first, exact + whole, config.mode == wanted, place);
        found.push((score, Candidate { config: Arc::new(config.clone()), mode, seen }));
    }
    found.sort_by_key(|(score, _)| Reverse(*score));
    found.into_iter().map(|(_, f)| f).collect()
}

/// Refuses a child besides those that the peer has, when these are enough.
fn refuse_another(cx: &Context<'_>, sa: &IkeSa, rekey: Option<ChildId>) -> Result<(), Diagnosis> {
    // A rekeying replaces one: refusing it would end that.
    match (rekey, cx.has_too_many_children(sa)) {
        (None, Some(why)) => Err(why.into()),
        _ => Ok(()),
    }
}

/// While the key exchange was computed, the peer may have come up with other children on other
/// IKE_SAs: what was let in before counts for nothing then.
fn still_allowed(
    cx: &Context<'_>,
    sa: &IkeSa,
    config: &ChildConfig,
    rekey: Option<ChildId>,
    agreed: &Agreed,
) -> Result<(), Diagnosis> {
    refuse_another(cx, sa, rekey)?;
    let (local, remote) = (&agreed.local_ts, &agreed.remote_ts);
    let pairs = |l: &[TrafficSelector], r: &[TrafficSelector]| l.len().saturating_mul(r.len());
    let left = cx.pieces_left(sa);
    let fits = |whole: usize| pairs(local, remote) <= whole.saturating_add(left);
    let fits = match rekey.and_then(|id| sa.child(id)).map(|old| old.agreed()) {
        // The same pieces are the same policies.
        Some(old) if (&old.local_ts, &old.remote_ts) == (local, remote) => true,
        Some(old) => left > 0 && fits(pairs(&old.local_ts, &old.remote_ts)),
        None => {
            let ours = narrow::resolve(&config.local_ts, sa.local().ip());
            fits(pairs(&ours, &narrow::resolve(&config.remote_ts, sa.remote().ip())))
        }
    };
    let asked = || Pair { local: local.clone(), remote: remote.clone() };
    if fits { Ok(()) } else { Err(Reason::TooManyPieces { asked: asked() }.into()) }
}

/// No child of the peer's connection is for these selectors, or they are fewer than those of the
/// child that is rekeyed.
fn unacceptable(sa: &IkeSa, asked: &Selectors<'_>, rekey: Option<ChildId>) -> Diagnosis {
    let pair = |local: &[_], remote: &[_]| Pair { local: local.to_vec(), remote: remote.to_vec() };
    let wanted = pair(asked.tsr, asked.tsi);
    if let Some(old) = rekey.and_then(|id| sa.child(id)) {
        let in_use = pair(&old.agreed().local_ts, &old.agreed().remote_ts);
        return Reason::Narrows { asked: wanted, child: old.name(), in_use: Box::new(in_use) }.into();
    }
    let configured = sa.conn().children.iter().map(|c| {
        let local = narrow::resolve(&c.local_ts, sa.local().ip());
        (c.name.clone(), Pair { local, remote: narrow::resolve(&c.remote_ts, sa.remote().ip()) })
    });
    Reason::Unacceptable { asked: wanted, configured: configured.collect() }.into()
}

/// Chooses the selectors, and the children of the connection that they can be for, the best one
/// first. There is always one.
fn choose_selectors(
    sa: &IkeSa,
    asked: &Selectors<'_>,
    rekey: Option<ChildId>,
) -> Result<Vec<Candidate>, Diagnosis> {
    let candidates = match rekey.and_then(|id| sa.child(id)) {
        Some(old) => selectors_in_use(sa, asked, old).into_iter().collect(),
        None => select_configs(sa, asked),
    };
    if candidates.is_empty() {
        return Err(unacceptable(sa, asked, rekey));
    }
    Ok(candidates)
}

/// The child that is rekeyed, with its selectors, if the peer asks for all of them.
fn selectors_in_use(sa: &IkeSa, asked: &Selectors<'_>, old: &Child) -> Option<Candidate> {
    let (local, remote) = (&old.agreed().local_ts, &old.agreed().remote_ts);
    // "the new SA MUST NOT have narrower selectors than the original" (RFC 7296 section 2.9.2): a
    // proposal that holds the old selectors gives the old selectors, another one nothing.
    let (mode, seen) = asked
        .narrow(sa, old.config().mode, local, remote)
        .filter(|(_, seen)| narrow::covers(&seen.local, local) && narrow::covers(&seen.remote, remote))?;
    // The old ones may be there for as long as the peer likes; the same pieces are the same
    // policies.
    let same = |new: &[_], old: &[_]| new.iter().all(|ts| old.contains(ts));
    let fits = asked.pieces > 0 || same(&seen.local, local) && same(&seen.remote, remote);
    fits.then(|| Candidate { config: old.config().clone(), mode, seen })
}

/// Chooses the first child that has one of the offered proposals. The error is of the child that
/// the selectors fit best.
fn choose_proposal(
    cx: &mut Context<'_>,
    sa: &IkeSa,
    candidates: Vec<Candidate>,
    offered: &[Proposal],
    rule: KeRule,
) -> Result<(Candidate, Selected<ChildSuite>), Diagnosis> {
    let (mut refusal, mut of_ah) = (None, false);
    let carried = negotiate::carried(sa.nat().encap());
    for candidate in candidates {
        match negotiate::select_child(&candidate.config.proposals, offered, carried, rule) {
            Ok(selected) => return Ok((candidate, selected)),
            Err(no) if refusal.is_none() => {
                (refusal, of_ah) = (Some(no), negotiate::any_ah(&candidate.config.proposals));
            }
            Err(_) => {}
        }
    }
    if sa.nat().encap() && (of_ah || negotiate::any_ah(offered)) {
        cx.log_why(Level::Error, sa, "", &KeyExchange::AhThroughNat.into());
    }
    Err(refusal.unwrap_or(KeyExchange::AhThroughNat).into())
}

/// The SPI that the peer has chosen for what we send: one that is not reserved, and that none of
/// its other children has.
fn outbound_spi(sa: &IkeSa, answer: &Proposal) -> Result<Spi, KeyExchange> {
    let spi = <[u8; 4]>::try_from(answer.spi.as_slice()).map(u32::from_be_bytes);
    let spi = spi.ok().filter(|s| *s > 255).map(Spi);
    spi.filter(|spi| !sa.sends_with(*spi)).ok_or(KeyExchange::BadSpi { spi })
}

/// The peer's public value, of the method that was chosen.
fn public_value(ke: Option<&Ke>, wanted: KeId) -> Result<Vec<u8>, KeyExchange> {
    match ke {
        Some(ke) if ke.group != wanted => Err(KeyExchange::OtherMethod { received: Some(ke.group), wanted }),
        Some(ke) if kex::public_len(wanted) == Some(ke.data.len()) => Ok(ke.data.clone()),
        Some(_) => Err(KeyExchange::BadValue { method: wanted }),
        None => Err(KeyExchange::OtherMethod { received: None, wanted }),
    }
}

/// Says when the mode is another one than the peer asks for, or than is configured.
fn explain_mode(cx: &mut Context<'_>, sa: &IkeSa, asks_transport: bool, config: &ChildConfig, mode: Mode) {
    match (asks_transport, config.mode, mode) {
        (true, Mode::Transport, Mode::Tunnel) => {
            let why = Reason::NoTransport { why: TransportFault::NotHosts };
            cx.log_why(Level::Warn, sa, "", &why.into());
        }
        (true, Mode::Tunnel, _) => {
            let line =
                format!("the peer asks for transport mode, CHILD_SA {} is for tunnel mode", config.name);
            cx.log(Level::Info, sa, line);
        }
        (false, Mode::Transport, _) => {
            let why = Reason::NoTransport { why: TransportFault::NotAsked };
            cx.log_why(Level::Warn, sa, "", &why.into());
        }
        _ => {}
    }
}

/// The peer's CPI, when both sides want IPComp.
fn choose_ipcomp(
    cx: &mut Context<'_>,
    sa: &IkeSa,
    config: &ChildConfig,
    payloads: &[Payload],
) -> Option<u16> {
    let cpi_out = ipcomp::accepted(payloads).filter(|_| config.ipcomp);
    if config.ipcomp && cpi_out.is_none() {
        cx.log(Level::Info, sa, "the peer does not offer IPComp, going without");
    }
    cpi_out
}

/// Judges a proposed child.
fn consider(
    cx: &mut Context<'_>,
    sa: &mut IkeSa,
    payloads: &[Payload],
    rekey: Option<ChildId>,
    first: bool,
) -> Result<Box<Offered>, Diagnosis> {
    let message = if first { "IKE_AUTH request" } else { "CREATE_CHILD_SA request" };
    let ChildPayloads { proposals, tsi, tsr, nonce, ke } = ChildPayloads::read(payloads, message)?;
    if !first {
        check_nonce(sa, nonce)?;
    }
    refuse_another(cx, sa, rekey)?;
    let asks_transport = find_notify(payloads, NotifyType::USE_TRANSPORT_MODE).is_some();
    let transport = if asks_transport { transport::read(sa, tsr, tsi) } else { None };
    let asked = Selectors { tsi, tsr, transport, pieces: cx.pieces_left(sa) };
    let candidates = choose_selectors(sa, &asked, rekey)?;
    let rule = if first { KeRule::Ignore } else { KeRule::Prefer(ke.map(|k| k.group)) };
    let (Candidate { config, mode, seen }, Selected { suite, answer }) =
        choose_proposal(cx, sa, candidates, proposals, rule)?;
    let ChildSuite { esp: suite, additional } = suite;
    let spi_out = outbound_spi(sa, &answer)?;
    let peer_public = match suite.ke {
        Some(wanted) => public_value(ke, wanted)?,
        None => Vec::new(),
    };
    explain_mode(cx, sa, asks_transport, &config, mode);
    let agreed = Agreed {
        protocol: answer.protocol,
        suite,
        additional,
        mode,
        local_ts: seen.local,
        remote_ts: seen.remote,
        original: seen.original,
        cpi_in: None,
        cpi_out: choose_ipcomp(cx, sa, &config, payloads),
        tfc: create_child::takes_tfc(payloads),
    };
    if let Some(other) = cx.others().same_host(sa, &agreed) {
        let asked = Pair { local: agreed.local_ts, remote: agreed.remote_ts };
        return Err(Reason::SameHost { other, asked }.into());
    }
    if rekey.is_none() {
        let asked = Pair { local: tsr.to_vec(), remote: tsi.to_vec() };
        narrowed::explain(cx, sa, &config, asked, &agreed, false);
    }
    let (ni, nr) = (nonce.to_vec(), Vec::new());
    Ok(Box::new(Offered { config, rekey, agreed, answer, spi_out, ni, nr, peer_public }))
}

/// Reserves our numbers for what the peer proposes, and gives the payloads that agree to it.
fn reserve(
    cx: &mut Context<'_>,
    sa: &mut IkeSa,
    mut o: Offered,
    nonce_and_ke: Vec<Payload>,
) -> (AgreedChild, Vec<Payload>) {
    let (id, spi_in) = cx.new_child();
    let mut payloads = Vec::new();
    if o.agreed.cpi_out.is_some() {
        o.agreed.cpi_in = cx.new_cpi(id);
        o.agreed.cpi_out = o.agreed.cpi_out.filter(|_| o.agreed.cpi_in.is_some());
        payloads.extend(o.agreed.cpi_in.map(ipcomp::payload));
    }
    create_child::explain(cx, sa, &o.config, &o.agreed);
    if o.agreed.mode == Mode::Transport {
        payloads.push(Payload::Notify(Notify::new(NotifyType::USE_TRANSPORT_MODE, [])));
    }
    let answer = Proposal { spi: spi_in.0.to_be_bytes().to_vec(), ..o.answer };
    payloads.push(Payload::Sa(vec![answer]));
    payloads.extend(nonce_and_ke);
    payloads.push(Payload::TsI(o.agreed.remote_ts.clone()));
    payloads.push(Payload::TsR(o.agreed.local_ts.clone()));
    let Offered { config, rekey, agreed, spi_out, ni, nr, .. } = o;
    (AgreedChild { id, config, rekey, agreed, spi_in, spi_out, ni, nr }, payloads)
}

/// Installs a child that is agreed on. The error gives its numbers back.
fn install(
    cx: &mut Context<'_>,
    sa: &mut IkeSa,
    o: AgreedChild,
    secrets: (Option<&Secret>, &[Secret]),
) -> Result<(), Diagnosis> {
    let (protocol, suite) = (o.agreed.protocol, o.agreed.suite);
    let keys = sa.keys().and_then(|k| k.child(protocol, &suite, secrets, &o.ni, &o.nr));
    let Some(keys) = keys else {
        cx.release(&Agreement::Child(Box::new(o)));
        return Err(KeyExchange::NotComputed { why: Uncomputed::Suite }.into());
    };
    let reqid = o.rekey.and_then(|old| sa.child(old)).map(|c| c.reqid());
    cx.install(
        sa,
        NewSas {
            id: o.id,
            config: o.config,
            spi_in: o.spi_in,
            spi_out: o.spi_out,
            agreed: o.agreed,
            keys,
            initiator: false,
            reqid,
            hold_out: o.rekey.is_some(),
        },
    );
    Ok(())
}

/// The child in an IKE_AUTH request: adds its part to the response, an error if need be. The error
/// says why the request cannot be read, and there is to be no IKE_SA.
pub(crate) fn answer_first(
    cx: &mut Context<'_>,
    sa: &mut IkeSa,
    payloads: &[Payload],
    ni: Vec<u8>,
    nr: Vec<u8>,
    response: &mut Vec<Payload>,
) -> Result<(), Diagnosis> {
    let made = consider(cx, sa, payloads, None, true).and_then(|mut o| {
        (o.ni, o.nr) = (ni, nr);
        let (agreed, more) = reserve(cx, sa, *o, Vec::new());
        let id = agreed.id;
        install(cx, sa, agreed, (None, &[])).map(|()| (id, more))
    });
    match made {
        Ok((id, more)) => {
            response.extend(more);
            cx.announce_child(sa, id);
            Ok(())
        }
        // "the UNSUPPORTED_CRITICAL_PAYLOAD, INVALID_SYNTAX, and AUTHENTICATION_FAILED
        // notifications are the only ones to cause the IKE SA to be deleted or not created, without
        // a Delete payload" (RFC 7296 section 2.21.2).
        Err(why) if is_fatal(&why) => Err(why),
        Err(why) => {
            say_why(cx, sa, &why);
            cx.log(Level::Error, sa, "failed to establish CHILD_SA, keeping IKE_SA");
            response.extend(why.notify().map(Payload::Notify));
            Ok(())
        }
    }
}

/// The peer is told INVALID_SYNTAX, and the IKE_SA ends.
fn is_fatal(why: &Diagnosis) -> bool {
    why.notify().is_some_and(|n| n.kind == NotifyType::INVALID_SYNTAX)
}

/// Counts a refusal, and says in the log why.
fn say_why(cx: &mut Context<'_>, sa: &mut IkeSa, why: &Diagnosis) {
    let level = match why {
        Diagnosis::KeyExchange(KeyExchange::NoProposal { .. } | KeyExchange::AhThroughNat) => {
            cx.counters().no_proposal += 1;
            Level::Error
        }
        Diagnosis::KeyExchange(KeyExchange::ChildLimit { .. }) => {
            // Once for each IKE_SA, however often it is asked for.
            if !std::mem::replace(&mut sa.signs_mut().told_full, true) {
                cx.log_why(Level::Warn, sa, "refusing another CHILD_SA", why);
            }
            return;
        }
        Diagnosis::KeyExchange(KeyExchange::OtherMethod { .. })
        | Diagnosis::Selectors(Reason::TooManyPieces { .. }) => Level::Info,
        Diagnosis::Selectors(_) => {
            cx.counters().ts_unacceptable += 1;
            Level::Error
        }
        _ => Level::Error,
    };
    cx.log_why(level, sa, "", why);
}

/// A CREATE_CHILD_SA request for a child.
pub(crate) fn answer(cx: &mut Context<'_>, sa: &mut IkeSa, payloads: &[Payload]) {
    // "If a peer receives a request to [create or rekey a Child SA] when it is currently rekeying
    // [or closing] the IKE SA, it SHOULD reply with TEMPORARY_FAILURE" (RFC 7296 section 2.25.2).
    if sa.state() != IkeState::Established || sa.roam().retired {
        return cx.respond_notify(sa, NotifyType::TEMPORARY_FAILURE, []);
    }
    if payloads.iter().any(|p| matches!(p, Payload::Ke(_))) && cx.computes_enough(sa) {
        cx.counters().kex_put_off += 1;
        return cx.respond_notify(sa, NotifyType::TEMPORARY_FAILURE, []);
    }
    let mut rekey = None;
    if let Some(n) = find_notify(payloads, NotifyType::REKEY_SA) {
        match rekey_child::admit(cx, sa, n) {
            Ok(old) => rekey = Some(old),
            Err(notify) => return cx.respond(sa, &[Payload::Notify(notify)]),
        }
    }
    match consider(cx, sa, payloads, rekey, false) {
        Ok(mut o) => {
            o.nr = cx.random(NONCE_LEN);
            match o.agreed.suite.ke {
                Some(ke) => {
                    let peer_public = std::mem::take(&mut o.peer_public);
                    cx.wait_for_response(sa, ke, peer_public, AnswerChild(o, ke));
                }
                None => respond(cx, sa, *o, None),
            }
        }
        Err(r) => refuse(cx, sa, r),
    }
}

fn refuse(cx: &mut Context<'_>, sa: &mut IkeSa, why: Diagnosis) {
    if is_fatal(&why) {
        return cx.refuse_syntax(sa, why);
    }
    say_why(cx, sa, &why);
    cx.respond_why(sa, &why);
}

/// Agrees to what the peer proposes, with our part of the key exchange and its secret. Without
/// additional key exchanges the child is made now.
fn respond(cx: &mut Context<'_>, sa: &mut IkeSa, o: Offered, ke: Option<(KeId, Vec<u8>, Secret)>) {
    if let Err(why) = still_allowed(cx, sa, &o.config, o.rekey, &o.agreed) {
        return refuse(cx, sa, why);
    }
    let nonce = Payload::Nonce(Nonce(o.nr.clone()));
    let (ke, shared) = match ke {
        Some((group, data, shared)) => (Some(Payload::Ke(Ke { group, data })), Some(shared)),
        None => (None, None),
    };
    let (agreed, mut payloads) = reserve(cx, sa, o, std::iter::once(nonce).chain(ke).collect());
    match shared {
        Some(shared) if !agreed.agreed.additional.is_none() => {
            if let Some(old) = agreed.rekey {
                let (ni, nr) = (agreed.ni.clone(), agreed.nr.clone());
                rekey_child::answered(cx, sa, old, agreed.id, ni, nr);
            }
            payloads.push(link::await_first(cx, sa, Agreement::Child(Box::new(agreed)), shared));
            cx.respond(sa, &payloads);
        }
        shared => conclude(cx, sa, agreed, (shared.as_ref(), &[]), &payloads),
    }
}

/// All secrets are there: makes the child, and responds.
pub(super) fn conclude(
    cx: &mut Context<'_>,
    sa: &mut IkeSa,
    o: AgreedChild,
    secrets: (Option<&Secret>, &[Secret]),
    payloads: &[Payload],
) {
    let (id, rekey, ni, nr) = (o.id, o.rekey, o.ni.clone(), o.nr.clone());
    if let Err(why) = install(cx, sa, o, secrets) {
        return cx.refuse_uncomputed(sa, why);
    }
    match rekey {
        Some(old) => rekey_child::answered(cx, sa, old, id, ni, nr),
        None => cx.announce_child(sa, id),
    }
    cx.respond(sa, payloads);
}

/// Whether the peer's series may go on to make this child: something may have happened since its
/// CREATE_CHILD_SA.
pub(super) fn may_go_on(cx: &Context<'_>, sa: &IkeSa, o: &AgreedChild) -> bool {
    let old_stands = |old| sa.child(old).is_some_and(rekey_child::may_be_replaced);
    sa.state() == IkeState::Established
        && o.rekey.is_none_or(old_stands)
        && !sa.sends_with(o.spi_out)
        && still_allowed(cx, sa, &o.config, o.rekey, &o.agreed).is_ok()
}
