//! CREATE_CHILD_SA for children (RFC 7296 sections 1.3.1, 1.3.3), and the part of IKE_AUTH that
//! makes the first one. What is special about rekeying is in `rekey_child`.
//!
//! ```text
//! HDR, SK {[N(REKEY_SA),] [N(IPCOMP_SUPPORTED),] [N(USE_TRANSPORT_MODE),]
//!          SA, Ni, [KEi,] TSi, TSr}  -->
//!                      <--  HDR, SK {[N(IPCOMP_SUPPORTED),] [N(USE_TRANSPORT_MODE),]
//!                                    SA, Nr, [KEr,] TSi, TSr, [N(ADDITIONAL_KEY_EXCHANGE)]}
//!                      <--  HDR, SK {N(error)}
//! ```
//! With additional key exchanges (`follow_up`) the child is made after the last of them.

use ironswan_wire::iana::{ExchangeType, KeId, NotifyType};
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::{Ke, Nonce, Notify, find_notify, notifies};
use ironswan_wire::proposal::Proposal;
use ironswan_wire::sadb::{Command, Mode, Spi, Tfc};
use ironswan_wire::secret::Secret;
use ironswan_wire::selector::{AddrRange, TrafficSelector};

use super::child_payloads::{ChildPayloads, check_nonce};
use super::exchange::Exchange;
use super::link::{link, no_link};
use super::narrowed;
use super::rekey_child;
use super::series::{FollowUp, Making};
use super::state::{AnsweredChild, DeleteChild, NewChild, Task, child_name};
use crate::child::Agreed;
use crate::context::Context;
use crate::context::install::NewSas;
use crate::event::{ChildState, Completion, IkeState, KeyPair, Level, Request, SharedSecret};
use crate::negotiate::{self, ChildSuite, KeRule, NONCE_LEN};
use crate::sa::IkeSa;
use crate::{ipcomp, narrow, transport};
use ironswan_keying::diagnosis::{
    AnswerFault, KeyExchange, NotDone, Pair, Selectors, TransportFault, Uncomputed,
};
use ironswan_keying::limits::{KE_ROUNDS, SELECTORS_PER_SIDE};
use ironswan_keying::{ChildConfig, Diagnosis};

/// Our CREATE_CHILD_SA for a child, while something is computed for it.
enum CreateChild {
    /// The request needs a key pair.
    NeedsKeyPair(Box<NewChild>),
    /// The response is here, and the link to additional key exchanges in it.
    NeedsSharedSecret(Box<NewChild>, Box<AnsweredChild>, Option<Vec<u8>>),
}

impl Exchange for CreateChild {
    fn resume(self: Box<Self>, cx: &mut Context<'_>, sa: &mut IkeSa, completion: Completion) {
        match *self {
            Self::NeedsKeyPair(new) => have_key(cx, sa, new, completion.key_pair()),
            Self::NeedsSharedSecret(new, answer, link) => {
                let method = answer.agreed.suite.ke.unwrap_or(KeId::NONE);
                have_shared(cx, sa, new, answer, link, completion.shared_secret(method));
            }
        }
    }

    fn name(&self) -> &'static str {
        child_name(self.child().is_some_and(|n| n.rekey.is_some()))
    }

    fn child(&self) -> Option<&NewChild> {
        let (Self::NeedsKeyPair(new) | Self::NeedsSharedSecret(new, ..)) = self;
        Some(new)
    }

    fn child_mut(&mut self) -> Option<&mut NewChild> {
        let (Self::NeedsKeyPair(new) | Self::NeedsSharedSecret(new, ..)) = self;
        Some(new)
    }

    fn into_task(self: Box<Self>) -> Option<Task> {
        let (Self::NeedsKeyPair(new) | Self::NeedsSharedSecret(new, ..)) = *self;
        Some(Task::Child(new))
    }
}

// ---- initiator ----

/// What is proposed for a child, with this SPI of ours: nothing, when all of it is AH and a NAT is
/// between.
fn proposals(sa: &IkeSa, config: &ChildConfig, spi: Spi, rule: KeRule) -> Vec<Proposal> {
    let carried = negotiate::carried(sa.nat().encap());
    let all = config.proposals.iter().filter(|p| carried.contains(&p.protocol));
    negotiate::offer(all, &spi.0.to_be_bytes(), rule)
}

/// The packet as the first selector of a side: "the initiator SHOULD include as the first Traffic
/// Selector in each of TSi and TSr a very specific Traffic Selector including the addresses in the
/// packet triggering the request" (RFC 7296 section 2.9).
fn led_by(
    wide: Vec<TrafficSelector>,
    addr: std::net::IpAddr,
    protocol: u8,
    port: Option<u16>,
) -> Vec<TrafficSelector> {
    let (start_port, end_port) = port.map_or((0, 65_535), |p| (p, p));
    let first = TrafficSelector { range: AddrRange::host(addr), protocol, start_port, end_port };
    // Their number is a byte on the wire.
    let room = wide.len() < SELECTORS_PER_SIDE;
    let inside = room && wide.iter().any(|w| first.is_subset_of(w)) && !wide.contains(&first);
    if inside { std::iter::once(first).chain(wide).collect() } else { wide }
}

/// Chooses id, SPI, CPI, nonce, proposals, mode and selectors. The error says why it cannot be
/// proposed.
pub(crate) fn prepare(
    cx: &mut Context<'_>,
    sa: &IkeSa,
    new: &mut NewChild,
    rule: KeRule,
) -> Result<(), Diagnosis> {
    new.proposals = proposals(sa, &new.config, new.spi_in, rule);
    if new.proposals.is_empty() {
        return Err(KeyExchange::AhThroughNat.into());
    }
    if new.id.0 == 0 {
        (new.id, new.spi_in) = cx.new_child();
        new.nonce = cx.random(NONCE_LEN);
        new.cpi_in = if new.config.ipcomp { cx.new_cpi(new.id) } else { None };
        new.proposals = proposals(sa, &new.config, new.spi_in, rule);
    }
    // "the responder MAY begin sending on an SA as soon as it sends its response" (RFC 7296 section
    // 2.8), before we have computed the keys.
    cx.sadb(Command::SpiReserve { spi: new.spi_in, remote: sa.remote().ip() });
    let wanted = match new.rekey.and_then(|id| sa.child(id)) {
        // "the Traffic Selectors ... SHOULD be those in use" is what keeps a rekeying from changing
        // what is protected. The mode in use is asked for again.
        Some(old) => {
            (new.local_ts, new.remote_ts) = (old.agreed().local_ts.clone(), old.agreed().remote_ts.clone());
            old.agreed().mode
        }
        None => {
            new.local_ts = narrow::resolve(&new.config.local_ts, sa.local().ip());
            new.remote_ts = narrow::resolve(&new.config.remote_ts, sa.remote().ip());
            new.config.mode
        }
    };
    new.mode = wanted;
    if wanted == Mode::Transport && !transport::host_to_host(sa, &new.local_ts, &new.remote_ts) {
        let why = Selectors::NoTransport { why: TransportFault::NotHosts };
        cx.log_why(Level::Warn, sa, "", &why.into());
        new.mode = Mode::Tunnel;
    }
    if let (Some(p), None) = (new.packet, new.rekey) {
        new.local_ts = led_by(std::mem::take(&mut new.local_ts), p.src, p.protocol, p.src_port);
        new.remote_ts = led_by(std::mem::take(&mut new.remote_ts), p.dst, p.protocol, p.dst_port);
    }
    Ok(())
}

/// What IKE_AUTH and CREATE_CHILD_SA say about a child. Nonce and KE, which only CREATE_CHILD_SA
/// has, stand between SA and TSi: "implementations SHOULD send the payloads defined in this
/// specification in the order shown in the figures" (RFC 7296 section 2.5).
pub(crate) fn sa_and_ts(new: &NewChild, nonce_and_ke: Vec<Payload>) -> Vec<Payload> {
    let mut out = Vec::new();
    out.extend(new.cpi_in.map(ipcomp::payload));
    if new.mode == Mode::Transport {
        out.push(Payload::Notify(Notify::new(NotifyType::USE_TRANSPORT_MODE, [])));
    }
    out.push(Payload::Sa(new.proposals.clone()));
    out.extend(nonce_and_ke);
    out.push(Payload::TsI(new.local_ts.clone()));
    out.push(Payload::TsR(new.remote_ts.clone()));
    out
}

pub(crate) fn build(cx: &mut Context<'_>, sa: &mut IkeSa, mut new: Box<NewChild>) {
    if sa.state() != IkeState::Established {
        return cx.fail_task(Task::Child(new), &NotDone::Closing.into());
    }
    let stands = |c: &crate::child::Child| {
        c.config().name == new.config.name
            && matches!(c.state(), ChildState::Installed | ChildState::Rekeying)
    };
    if new.rekey.is_none() && sa.children().any(stands) {
        // Asked for more than once while the IKE_SA was on its way.
        return cx.done(new.ticket, Ok(()));
    }
    let mut in_use = None;
    if let Some(old) = new.rekey {
        if sa.follow_ups().rekey(old) {
            return rekey_child::put_off(cx, sa, new, old);
        }
        match sa.child_mut(old) {
            Some(old)
                if old.redundant_to().is_none()
                    && (old.state() == ChildState::Installed
                        || (old.state() == ChildState::Rekeying && new.id.0 != 0)) =>
            {
                old.begin_rekeying();
                in_use = old.agreed().suite.ke;
            }
            // The peer was faster.
            Some(old) if old.replaced_by().or(old.redundant_to()).is_some() => {
                return cx.done(new.ticket, Ok(()));
            }
            _ => return cx.fail_task(Task::Child(new), &NotDone::ChildGone.into()),
        }
    }
    let first = new.ke.or(in_use);
    if let Err(why) = prepare(cx, sa, &mut new, KeRule::Prefer(first)) {
        return fail(cx, sa, new, &why);
    }
    let verb = if new.rekey.is_some() { "rekeying" } else { "establishing" };
    let line = format!("{verb} CHILD_SA {}{{{}}}", new.config.name, new.id.0);
    cx.log(Level::Info, sa, line);
    new.ke = negotiate::first_ke(&new.proposals);
    match new.ke {
        Some(ke) => cx.wait_for_key(sa, ke, CreateChild::NeedsKeyPair(new)),
        None => send(cx, sa, new),
    }
}

fn have_key(cx: &mut Context<'_>, sa: &mut IkeSa, mut new: Box<NewChild>, pair: KeyPair) {
    match pair {
        Ok((private, public)) => {
            (new.private, new.public) = (Some(private), public);
            send(cx, sa, new);
        }
        Err(why) => fail(cx, sa, new, &why),
    }
}

fn send(cx: &mut Context<'_>, sa: &mut IkeSa, new: Box<NewChild>) {
    let mut payloads = Vec::new();
    if let Some(old) = new.rekey {
        let Some(old) = sa.child(old) else {
            return cx.fail_task(Task::Child(new), &NotDone::ChildGone.into());
        };
        // "The SPI field ... is that which the exchange initiator would expect in inbound packets"
        // (section 1.3.3).
        let protocol = old.agreed().protocol;
        payloads.push(Payload::Notify(Notify::about(NotifyType::REKEY_SA, protocol, old.spi_in().0)));
    }
    let ke = new.ke.map(|group| Payload::Ke(Ke { group, data: new.public.clone() }));
    let nonce = Payload::Nonce(Nonce(new.nonce.clone()));
    payloads.extend(sa_and_ts(&new, std::iter::once(nonce).chain(ke).collect()));
    cx.send_request(sa, ExchangeType::CREATE_CHILD_SA, Task::Child(new), &payloads);
}

/// Selectors that we ask for.
fn asked(new: &NewChild) -> Pair {
    Pair { local: new.local_ts.clone(), remote: new.remote_ts.clone() }
}

/// The peer has answered our proposal with this error.
fn peer_error(new: &NewChild, kind: NotifyType) -> KeyExchange {
    let (proposed, selectors) = (new.proposals.clone(), Some(asked(new)));
    KeyExchange::PeerError { kind, authentic: true, proposed, selectors }
}

/// The peer's answer with these selectors cannot be taken.
fn bad_selectors(new: &NewChild, p: &ChildPayloads<'_>, fault: AnswerFault) -> Selectors {
    let answered = Pair { local: p.tsi.to_vec(), remote: p.tsr.to_vec() };
    Selectors::BadAnswer { answered, asked: Box::new(asked(new)), fault }
}

/// The mode that the peer has agreed to, and its selectors as they are meant in it.
fn read_mode(
    sa: &IkeSa,
    new: &NewChild,
    p: &ChildPayloads<'_>,
    confirmed: bool,
) -> Result<(Mode, transport::Seen), Selectors> {
    if confirmed && new.mode == Mode::Transport {
        let seen = transport::read(sa, p.tsi, p.tsr);
        let seen = seen.ok_or_else(|| bad_selectors(new, p, AnswerFault::NotHosts))?;
        return Ok((Mode::Transport, seen));
    }
    let seen = transport::Seen { local: p.tsi.to_vec(), remote: p.tsr.to_vec(), original: None };
    Ok((Mode::Tunnel, seen))
}

/// Compares the peer's selectors with ours.
fn check_selectors(
    sa: &IkeSa,
    new: &NewChild,
    mode: Mode,
    seen: &transport::Seen,
) -> Result<(), AnswerFault> {
    let (local, remote) = match mode {
        // The ends, wherever they are by now.
        Mode::Transport => {
            (transport::at(&new.local_ts, sa.local().ip()), transport::at(&new.remote_ts, sa.remote().ip()))
        }
        Mode::Tunnel => (new.local_ts.clone(), new.remote_ts.clone()),
    };
    if !narrow::is_narrowed(&seen.local, &local) || !narrow::is_narrowed(&seen.remote, &remote) {
        return Err(AnswerFault::Outside);
    }
    let pairs = seen.local.len().saturating_mul(seen.remote.len());
    if pairs > narrow::max_pairs(local.len(), remote.len()) {
        return Err(AnswerFault::Pairs(pairs));
    }
    // "the new SA MUST NOT have narrower selectors than the original" (section 2.9.2).
    if new.rekey.is_some() && !(narrow::covers(&seen.local, &local) && narrow::covers(&seen.remote, &remote))
    {
        return Err(AnswerFault::Narrower);
    }
    Ok(())
}

/// The peer's public value, which has to be of our method.
fn public_value(new: &NewChild, ke: Option<&Ke>, wanted: KeId) -> Result<Vec<u8>, KeyExchange> {
    match ke {
        Some(ke) if ke.group == wanted && Some(wanted) == new.ke => Ok(ke.data.clone()),
        _ => Err(KeyExchange::BadValue { method: wanted }),
    }
}

/// Reads the response to a proposal of ours.
fn read_answer(
    sa: &IkeSa,
    new: &NewChild,
    payloads: &[Payload],
    rule: KeRule,
) -> Result<AnsweredChild, Diagnosis> {
    // Of an error that it does not know, whoever receives it "in a response MUST assume that the
    // corresponding request has failed entirely" (RFC 7296 section 3.10.1); one that is known says
    // so by itself. What else is in the response does not count then.
    if let Some(n) = notifies(payloads).find(|n| n.kind.is_error()) {
        return Err(peer_error(new, n.kind).into());
    }
    let p = ChildPayloads::read(payloads, "response")?;
    if rule != KeRule::Ignore {
        check_nonce(sa, p.nonce)?;
    }
    let Some((protocol, suite, spi_out)) = negotiate::check_child(&new.proposals, p.proposals, rule) else {
        return Err(KeyExchange::NeverOffered { answer: p.proposals.to_vec() }.into());
    };
    let spi_out = Spi(spi_out);
    if sa.sends_with(spi_out) {
        return Err(KeyExchange::BadSpi { spi: Some(spi_out) }.into());
    }
    let confirmed = find_notify(payloads, NotifyType::USE_TRANSPORT_MODE).is_some();
    let (mode, seen) = read_mode(sa, new, &p, confirmed)?;
    check_selectors(sa, new, mode, &seen).map_err(|fault| bad_selectors(new, &p, fault))?;
    let ChildSuite { esp: suite, additional } = suite;
    let peer_public = match (suite.ke, rule) {
        (Some(wanted), KeRule::Prefer(_)) => public_value(new, p.ke, wanted)?,
        _ => Vec::new(),
    };
    let cpi_out = new.cpi_in.and_then(|_| ipcomp::accepted(payloads));
    let agreed = Agreed {
        protocol,
        suite,
        additional,
        mode,
        local_ts: seen.local,
        remote_ts: seen.remote,
        original: seen.original,
        cpi_in: new.cpi_in.filter(|_| cpi_out.is_some()),
        cpi_out,
        tfc: takes_tfc(payloads),
    };
    Ok(AnsweredChild { agreed, spi_out, nonce: p.nonce.to_vec(), peer_public })
}

/// "The sending endpoint will not accept packets that contain Traffic Flow Confidentiality (TFC)
/// padding" (RFC 7296 section 1.3.1). Whole dummy packets are another thing, which a receiver "MUST
/// be prepared to discard" (RFC 4303 section 2.6).
pub(crate) fn takes_tfc(payloads: &[Payload]) -> bool {
    find_notify(payloads, NotifyType::ESP_TFC_PADDING_NOT_SUPPORTED).is_none()
}

/// Says what has been agreed on.
pub(crate) fn explain(cx: &mut Context<'_>, sa: &IkeSa, config: &ChildConfig, agreed: &Agreed) {
    cx.log(Level::Info, sa, format!("selected proposal: {}", agreed.proposal()));
    if !agreed.tfc && config.options.tfc != Tfc::None {
        cx.log(Level::Info, sa, "received ESP_TFC_PADDING_NOT_SUPPORTED, not using ESPv3 TFC padding");
    }
    if let (Some(ours), Some(theirs)) = (agreed.cpi_in, agreed.cpi_out) {
        cx.log(Level::Info, sa, format!("using IPCOMP_DEFLATE with CPIs {ours:04x}_i {theirs:04x}_o"));
    }
    if let Some(o) = agreed.original {
        let line =
            format!("transport mode through NAT, the peer's packets are from {} to {}", o.remote, o.local);
        cx.log(Level::Info, sa, line);
    }
}

pub(crate) fn process(cx: &mut Context<'_>, sa: &mut IkeSa, mut new: Box<NewChild>, payloads: &[Payload]) {
    if let Some(n) = find_notify(payloads, NotifyType::INVALID_KE_PAYLOAD) {
        let wanted = <[u8; 2]>::try_from(n.data.as_slice()).map(|b| KeId(u16::from_be_bytes(b)));
        if let Ok(ke) = wanted
            && Some(ke) != new.ke
            && negotiate::has_ke(&new.proposals, ke)
            && new.rounds < KE_ROUNDS
            && !new.old_gone
        {
            new.rounds += 1;
            let line = format!("peer didn't accept key exchange method, it requested {ke}");
            cx.log(Level::Info, sa, line);
            new.ke = Some(ke);
            new.proposals = proposals(sa, &new.config, new.spi_in, KeRule::Prefer(Some(ke)));
            return cx.wait_for_key(sa, ke, CreateChild::NeedsKeyPair(new));
        }
        let why: Diagnosis = peer_error(&new, n.kind).into();
        cx.log_why(Level::Error, sa, "", &why);
        return fail(cx, sa, new, &why);
    }
    match read_answer(sa, &new, payloads, KeRule::Prefer(None)) {
        Ok(answer) if !answer.agreed.additional.is_none() && rekey_child::is_lost(sa, &new, &answer) => {
            rekey_child::stop(cx, sa, new);
        }
        Ok(answer) => match (answer.agreed.suite.ke, new.private.take()) {
            (Some(ke), Some(private)) => {
                let link = link(payloads);
                let request = Request::Agree { ke, private, peer_public: answer.peer_public.clone() };
                cx.wait_for(sa, request, CreateChild::NeedsSharedSecret(new, Box::new(answer), link));
            }
            _ => finish(cx, sa, new, answer, (None, &[])),
        },
        Err(why) => {
            let error = notifies(payloads).find(|n| n.kind.is_error()).map(|n| n.kind);
            cx.log_why(Level::Error, sa, "", &why);
            match (new.rekey, error) {
                (Some(_), Some(kind)) => rekey_child::refused(cx, sa, new, kind, &why),
                (None, Some(NotifyType::TEMPORARY_FAILURE)) => {
                    // "MUST NOT immediately retry the operation; it MUST wait" (RFC 7296 section
                    // 2.25).
                    cx.child_later(sa, new);
                }
                (_, Some(_)) => fail(cx, sa, new, &why),
                // The peer has it, and we cannot use it.
                (_, None) => reject(cx, sa, new, &why),
            }
        }
    }
}

fn have_shared(
    cx: &mut Context<'_>,
    sa: &mut IkeSa,
    new: Box<NewChild>,
    answer: Box<AnsweredChild>,
    link: Option<Vec<u8>>,
    shared: SharedSecret,
) {
    let additional = answer.agreed.additional;
    match shared {
        Ok(shared) if additional.is_none() => finish(cx, sa, new, *answer, (Some(&shared), &[])),
        Ok(shared) => match link {
            Some(link) => {
                rekey_child::win_over(cx, sa, &new);
                let follow = FollowUp::new(Making::Child(new, answer), link, shared);
                sa.work_mut().push_first(Task::FollowUp(Box::new(follow)));
            }
            None => fail(cx, sa, new, &no_link().into()),
        },
        // Behind additional key exchanges the peer has none yet.
        Err(why) if !additional.is_none() => fail(cx, sa, new, &why),
        Err(why) => reject(cx, sa, new, &why),
    }
}

/// The peer's answer is a CHILD_SA that we will not have: it is told so.
pub(super) fn reject(cx: &mut Context<'_>, sa: &mut IkeSa, new: Box<NewChild>, why: &Diagnosis) {
    sa.work_mut().push_first(Task::DeleteChild(DeleteChild::of_unborn(&new)));
    fail(cx, sa, new, why);
}

pub(super) fn fail(cx: &mut Context<'_>, sa: &mut IkeSa, new: Box<NewChild>, why: &Diagnosis) {
    if new.rekey.is_some() {
        return rekey_child::failed(cx, sa, new, why);
    }
    cx.log_why(Level::Error, sa, &format!("establishing CHILD_SA {} failed", new.config.name), why);
    cx.ended(&sa.conn().name, Some(&new.config.name), why);
    cx.fail_task(Task::Child(new), why);
}

/// Everything is known on our side.
pub(super) fn finish(
    cx: &mut Context<'_>,
    sa: &mut IkeSa,
    new: Box<NewChild>,
    answer: AnsweredChild,
    secrets: (Option<&Secret>, &[Secret]),
) {
    let (protocol, suite) = (answer.agreed.protocol, answer.agreed.suite);
    let keys = sa.keys().and_then(|k| k.child(protocol, &suite, secrets, &new.nonce, &answer.nonce));
    let Some(keys) = keys else {
        return reject(cx, sa, new, &KeyExchange::NotComputed { why: Uncomputed::Suite }.into());
    };
    if new.mode == Mode::Transport && answer.agreed.mode == Mode::Tunnel {
        // "If the responder declines the request, the Child SA will be established in tunnel mode"
        // (section 1.3.1).
        let why = Selectors::NoTransport { why: TransportFault::Declined };
        cx.log_why(Level::Warn, sa, "", &why.into());
    }
    if new.cpi_in.is_some() && answer.agreed.cpi_in.is_none() {
        cx.log(Level::Info, sa, "the peer does not agree to IPComp, going without");
        cx.free_cpi(new.id, new.cpi_in);
    }
    explain(cx, sa, &new.config, &answer.agreed);
    if new.rekey.is_none() {
        narrowed::explain(cx, sa, &new.config, asked(&new), &answer.agreed, true);
    }
    if new.rekey.is_some() {
        return rekey_child::finish(cx, sa, new, answer, keys);
    }
    let (id, ticket) = (new.id, new.ticket);
    cx.install(sa, sas(&new, answer, keys, None));
    cx.announce_child(sa, id);
    cx.done(ticket, Ok(()));
}

/// What to install for a child of ours.
pub(crate) fn sas(
    new: &NewChild,
    answer: AnsweredChild,
    keys: crate::keymat::ChildKeys,
    reqid: Option<ironswan_wire::sadb::ReqId>,
) -> NewSas {
    NewSas {
        id: new.id,
        config: new.config.clone(),
        spi_in: new.spi_in,
        spi_out: answer.spi_out,
        agreed: answer.agreed,
        keys,
        initiator: true,
        reqid,
        hold_out: false,
    }
}

/// The child of IKE_AUTH, from its response. If it fails, the IKE_SA stays.
pub(crate) fn finish_first(
    cx: &mut Context<'_>,
    sa: &mut IkeSa,
    new: Box<NewChild>,
    payloads: &[Payload],
    nr: &[u8],
) {
    let read = read_answer(sa, &new, payloads, KeRule::Ignore);
    match read {
        Ok(mut answer) => {
            answer.nonce = nr.to_vec();
            finish(cx, sa, new, answer, (None, &[]));
        }
        Err(why) => {
            let told = notifies(payloads).any(|n| n.kind.is_error());
            cx.log_why(Level::Error, sa, "", &why);
            cx.log(Level::Error, sa, "failed to establish CHILD_SA, keeping IKE_SA");
            if !told {
                sa.work_mut().push_first(Task::DeleteChild(DeleteChild::of_unborn(&new)));
            }
            cx.ended(&sa.conn().name, Some(&new.config.name), &why);
            cx.fail_task(Task::Child(new), &why);
        }
    }
}
