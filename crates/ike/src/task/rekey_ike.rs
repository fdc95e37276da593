//! Rekeying the IKE_SA (RFC 7296 sections 1.3.2, 2.8.2, 2.18, 2.25.2).
//!
//! ```text
//! HDR, SK {SA (with a new SPIi), Ni, KEi}  -->
//!                      <--  HDR, SK {SA (with a new SPIr), Nr, KEr, [N(ADDITIONAL_KEY_EXCHANGE)]}
//! ```
//!
//! The new IKE_SA inherits every child; the initiator of the rekeying deletes the old one. Both at
//! once: "the new IKE SA containing the lowest nonce SHOULD be deleted by the node that created it,
//! and the other surviving new IKE SA MUST inherit all the Child SAs". Until it is known which
//! survives, neither has them. With additional key exchanges (`follow_up`), the successor is made
//! after the last of them, and the initiator of the exchange with the lowest nonce "just stops the
//! rekeying process" (RFC 9370 section 2.2.4).

use ironswan_crypto::kex;
use ironswan_wire::iana::{ExchangeType, KeId, NotifyType};
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::{Ke, Nonce, find_notify, notifies};
use ironswan_wire::proposal::{IkeSuite, Proposal};
use ironswan_wire::secret::Secret;

use super::exchange::Exchange;
use super::link;
use super::qcd;
use super::rekey_child::has_lowest;
use super::sa_init::log_keys;
use super::series::{Agreement, FollowUp, Making};
use super::state::{AgreedIke, AnsweredIke, DeleteIke, IkeCollision, REKEY_IKE_NAME, RekeyIke, Task};
use crate::context::{Context, Effect};
use crate::event::{ChildState, Completion, IkeId, IkeState, KeyPair, Level, Request, SharedSecret};
use crate::keymat::{IkeKeys, SkeySeed};
use crate::negotiate::{self, KeRule, NONCE_LEN, Selected};
use crate::sa::{Active, IkeSa};
use crate::timer::Timer;
use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::{KeyExchange, NotDone, Uncomputed};
use ironswan_keying::limits::{KE_ROUNDS, PREDECESSORS, REDUNDANT_DELETE};

/// The peer's rekeying, as far as it has been agreed on.
struct OfferedIke {
    suite: IkeSuite,
    answer: Proposal,
    /// The peer's.
    spi: u64,
    ni: Vec<u8>,
    nr: Vec<u8>,
    peer_public: Vec<u8>,
    public: Vec<u8>,
}

/// Our rekeying, while something is computed for it.
enum Rekeying {
    /// The request needs a key pair.
    NeedsKeyPair(Box<RekeyIke>),
    /// The response is here, and the link to additional key exchanges in it.
    NeedsSharedSecret(Box<RekeyIke>, AnsweredIke, Option<Vec<u8>>),
}

impl Exchange for Rekeying {
    fn resume(self: Box<Self>, cx: &mut Context<'_>, sa: &mut IkeSa, completion: Completion) {
        match *self {
            Self::NeedsKeyPair(task) => have_key(cx, sa, task, completion.key_pair()),
            Self::NeedsSharedSecret(task, answered, link) => {
                let shared = completion.shared_secret(answered.suite.ke);
                have_shared(cx, sa, task, answered, link, shared);
            }
        }
    }

    fn name(&self) -> &'static str {
        REKEY_IKE_NAME
    }

    fn rekeys_ike(&self) -> bool {
        true
    }

    fn into_task(self: Box<Self>) -> Option<Task> {
        let (Self::NeedsKeyPair(task) | Self::NeedsSharedSecret(task, ..)) = *self;
        Some(Task::RekeyIke(task))
    }
}

/// The peer's rekeying, while something is computed for it.
enum AnswerRekeying {
    /// The response needs a key pair.
    NeedsKeyPair(Box<OfferedIke>),
    /// The keys of the new IKE_SA need a shared secret.
    NeedsSharedSecret(Box<OfferedIke>),
}

impl Exchange for AnswerRekeying {
    fn resume(self: Box<Self>, cx: &mut Context<'_>, sa: &mut IkeSa, completion: Completion) {
        match *self {
            Self::NeedsKeyPair(o) => answer_have_key(cx, sa, o, completion.key_pair()),
            Self::NeedsSharedSecret(o) => {
                let shared = completion.shared_secret(o.suite.ke);
                answer_have_shared(cx, sa, *o, shared);
            }
        }
    }

    fn name(&self) -> &'static str {
        REKEY_IKE_NAME
    }

    fn is_of_peer(&self) -> bool {
        true
    }
}

/// What both sides have agreed on.
struct Made {
    id: IkeId,
    suite: IkeSuite,
    keys: IkeKeys,
    spis: (u64, u64),
    /// We are the initiator of the rekeying.
    initiator: bool,
}

/// The successor of `old`.
fn successor(cx: &mut Context<'_>, old: &IkeSa, new: Made) -> Box<IkeSa> {
    let Made { id, suite, keys, spis, initiator } = new;
    // It is `Created` until it has the children. "the new IKE SA ... message counters are reset to
    // zero" (RFC 7296 section 2.18 by way of 2.2).
    Box::new(IkeSa::succeed(old, (id, initiator), spis, (suite, keys), cx.now()))
}

/// Keys of the successor; `initiator` is our role in the rekeying.
fn derive(
    old: &IkeSa,
    suite: &IkeSuite,
    (shared, more): (&Secret, &[Secret]),
    (ni, nr): (&[u8], &[u8]),
    (spi_i, spi_r): (u64, u64),
    initiator: bool,
) -> Result<IkeKeys, Diagnosis> {
    let seed = old.keys().map(|keys| SkeySeed::rekeyed(keys, ni, nr, shared, more));
    let keys = seed.and_then(|seed| seed.expand(suite, ni, nr, spi_i, spi_r, initiator));
    keys.ok_or_else(|| KeyExchange::NotComputed { why: Uncomputed::Suite }.into())
}

// ---- initiator ----

pub(crate) fn build(cx: &mut Context<'_>, sa: &mut IkeSa, mut task: Box<RekeyIke>) {
    if sa.state() != IkeState::Established {
        return cx.done(task.ticket, Err(NotDone::Replacing.into()));
    }
    if !sa.follow_ups().is_empty() {
        // The peer is about to rekey it, or to make a child.
        let pause = cx.soon();
        cx.set_timer(Timer::RekeyIke(sa.id()), cx.now() + pause);
        return cx.done(task.ticket, Err(NotDone::Replacing.into()));
    }
    sa.set_state(IkeState::Rekeying);
    if task.spi == 0 {
        (task.new, task.spi) = cx.new_ike();
        task.nonce = cx.random(NONCE_LEN);
    }
    // The method in use leads: some peers cannot be sent back with INVALID_KE_PAYLOAD here.
    let in_use = sa.suite().map(|s| s.ke);
    offer(sa, &mut task, in_use);
    let line = format!("initiating IKE_SA {}[{}] rekeying", sa.conn().name, task.new.0);
    cx.log(Level::Info, sa, line);
    cx.wait_for_key(sa, task.ke, Rekeying::NeedsKeyPair(task));
}

/// Proposes what keeps the PRF, if the peer has not refused that, and else all. Which PRF makes the
/// keys of a successor with another one is a matter of RFC 7296 section 2.18, and strongSwan does
/// not follow it: but a peer that has agreed to a PRF once takes it again.
fn offer(sa: &IkeSa, task: &mut RekeyIke, first: Option<KeId>) {
    let (all, rule) = (&sa.conn().proposals, KeRule::Prefer(first));
    let same = sa.suite().filter(|_| !task.any_prf).map(|s| negotiate::keeping(all, s.prf));
    let proposals = same.as_ref().filter(|same| !same.is_empty()).unwrap_or(all);
    task.proposals = negotiate::offer(proposals, &task.spi.to_be_bytes(), rule);
    task.ke = negotiate::first_ke(&task.proposals).unwrap_or(KeId::NONE);
    // To propose the same again would be for nothing.
    task.any_prf = task.proposals == negotiate::offer(all, &task.spi.to_be_bytes(), rule);
}

fn have_key(cx: &mut Context<'_>, sa: &mut IkeSa, mut task: Box<RekeyIke>, pair: KeyPair) {
    let (private, public) = match pair {
        Ok(pair) => pair,
        Err(why) => return failed(cx, sa, *task, &why),
    };
    (task.private, task.public) = (Some(private), public);
    let payloads = [
        Payload::Sa(task.proposals.clone()),
        Payload::Nonce(Nonce(task.nonce.clone())),
        Payload::Ke(Ke { group: task.ke, data: task.public.clone() }),
    ];
    cx.send_request(sa, ExchangeType::CREATE_CHILD_SA, Task::RekeyIke(task), &payloads);
}

/// The peer refuses: it is asked again with what it wants, or this was all. The task comes back if
/// it has not refused.
fn refused(
    cx: &mut Context<'_>,
    sa: &mut IkeSa,
    mut task: Box<RekeyIke>,
    payloads: &[Payload],
) -> Option<Box<RekeyIke>> {
    if let Some(n) = find_notify(payloads, NotifyType::INVALID_KE_PAYLOAD) {
        let wanted = <[u8; 2]>::try_from(n.data.as_slice()).map(|b| KeId(u16::from_be_bytes(b)));
        match wanted {
            Ok(ke) if ke != task.ke && negotiate::has_ke(&task.proposals, ke) && task.rounds < KE_ROUNDS => {
                task.rounds += 1;
                offer(sa, &mut task, Some(ke));
                cx.wait_for_key(sa, ke, Rekeying::NeedsKeyPair(task));
            }
            _ => failed(cx, sa, *task, &KeyExchange::peer_error(n.kind).into()),
        }
        return None;
    }
    if find_notify(payloads, NotifyType::NO_PROPOSAL_CHOSEN).is_some() && !task.any_prf {
        // Its configuration may have changed.
        cx.log(Level::Info, sa, "the peer does not take this PRF any more, proposing the others, too");
        task.any_prf = true;
        let ke = task.ke;
        offer(sa, &mut task, Some(ke));
        cx.wait_for_key(sa, task.ke, Rekeying::NeedsKeyPair(task));
        return None;
    }
    // As in `create_child`: with an error, nothing else counts.
    if let Some(n) = notifies(payloads).find(|n| n.kind.is_error()) {
        let why: Diagnosis = KeyExchange::peer_error(n.kind).into();
        cx.log_why(Level::Error, sa, "", &why);
        if n.kind == NotifyType::NO_ADDITIONAL_SAS {
            renew(cx, sa, &task, "the peer takes no rekeying");
        }
        failed(cx, sa, *task, &why);
        return None;
    }
    Some(task)
}

pub(crate) fn process(cx: &mut Context<'_>, sa: &mut IkeSa, task: Box<RekeyIke>, payloads: &[Payload]) {
    let Some(mut task) = refused(cx, sa, task, payloads) else { return };
    let (mut answer, mut nonce, mut ke) = (None, None, None);
    for p in payloads {
        match p {
            Payload::Sa(list) => answer = Some(list),
            Payload::Nonce(p) => nonce = Some(&p.0),
            Payload::Ke(p) => ke = Some(p),
            _ => {}
        }
    }
    let (Some(answer), Some(nonce), Some(ke)) = (answer, nonce, ke) else {
        let (message, needs) = ("response", "SA, nonce and KE");
        return unusable(cx, sa, *task, &KeyExchange::MissingPayload { message, needs }.into());
    };
    let chosen = negotiate::check_ike(&task.proposals, answer)
        .and_then(|(suite, spi)| Some((suite, u64::from_be_bytes(spi.try_into().ok()?))));
    match (chosen, task.private.take()) {
        (Some((suite, _)), _) if !negotiate::nonce_fits(suite.prf, nonce) => {
            let why = KeyExchange::ShortNonce { bytes: nonce.len(), prf: suite.prf };
            unusable(cx, sa, *task, &why.into());
        }
        (Some((suite, _)), _) if !suite.additional.is_none() && is_lost(cx, sa, &task, nonce) => {
            stop(cx, sa, &task);
        }
        (Some((suite, spi)), Some(private)) if spi != 0 && suite.ke == task.ke && ke.group == task.ke => {
            let peer_public = ke.data.clone();
            let link = link::link(payloads);
            let (nonce, token) = (nonce.clone(), qcd::of_successor(cx, payloads));
            let answered = AnsweredIke { suite, spi, nonce, token };
            cx.wait_for(
                sa,
                Request::Agree { ke: suite.ke, private, peer_public },
                Rekeying::NeedsSharedSecret(task, answered, link),
            );
        }
        _ => unusable(cx, sa, *task, &KeyExchange::NeverOffered { answer: answer.clone() }.into()),
    }
}

fn have_shared(
    cx: &mut Context<'_>,
    sa: &mut IkeSa,
    task: Box<RekeyIke>,
    answered: AnsweredIke,
    link: Option<Vec<u8>>,
    shared: SharedSecret,
) {
    match shared {
        Ok(shared) if answered.suite.additional.is_none() => {
            finish(cx, sa, *task, answered, (&shared, &[]));
        }
        Ok(shared) => match link {
            Some(link) => {
                win_over(cx, sa, &task);
                let follow = FollowUp::new(Making::Ike(task, answered), link, shared);
                sa.work_mut().push_first(Task::FollowUp(Box::new(follow)));
            }
            None => failed(cx, sa, *task, &link::no_link().into()),
        },
        // Behind additional key exchanges the peer has no successor yet.
        Err(why) if !answered.suite.additional.is_none() => failed(cx, sa, *task, &why),
        Err(why) => unusable(cx, sa, *task, &why),
    }
}

/// All secrets are there: makes the successor.
pub(super) fn finish(
    cx: &mut Context<'_>,
    sa: &mut IkeSa,
    task: RekeyIke,
    mut answered: AnsweredIke,
    secrets: (&Secret, &[Secret]),
) {
    let spis = (task.spi, answered.spi);
    let nonces = (task.nonce.as_slice(), answered.nonce.as_slice());
    let keys = match derive(sa, &answered.suite, secrets, nonces, spis, true) {
        Ok(keys) => keys,
        Err(why) => return unusable(cx, sa, task, &why),
    };
    let id = task.new;
    let mut new = successor(cx, sa, Made { id, suite: answered.suite, keys, spis, initiator: true });
    if let Some(token) = answered.token.take() {
        new.set_token(token);
    }
    log_keys(cx, &mut new);
    cx.counters().ike_rekey_init += 1;
    if is_lost(cx, sa, &task, nonces.1) {
        // Ours is redundant, and we created it: we delete it. The peer deletes the old one.
        cx.log(Level::Info, sa, "IKE_SA rekey collision lost, deleting redundant IKE_SA");
        new.work_mut().push(Task::DeleteIke(DeleteIke::default()));
        new.set_state(IkeState::Rekeyed);
        cx.effect(Effect::Adopt(new));
        give_way(cx, sa, &task);
        return cx.obeyed(task.ticket);
    }
    win_over(cx, sa, &task);
    if let Some(theirs) = collision(cx, sa, &task).map(|c| c.new) {
        cx.log(Level::Info, sa, "IKE_SA rekey collision won, the peer deletes its redundant IKE_SA");
        cx.set_timer(Timer::Linger(theirs), cx.now() + REDUNDANT_DELETE);
    }
    cx.effect(Effect::Adopt(new));
    cx.bequeath(sa, id);
    sa.work_mut().push_first(Task::DeleteIke(DeleteIke::default()));
    cx.obeyed(task.ticket);
}

/// The peer's own rekeying, as far as it stands: a successor, or what additional key exchanges make
/// one of.
fn collision<'a>(cx: &Context<'_>, sa: &IkeSa, task: &'a RekeyIke) -> Option<&'a IkeCollision> {
    let stands = |c: &&IkeCollision| cx.others().stands(c.new) || sa.follow_ups().make_ike(c.new);
    task.collision.as_ref().filter(stands)
}

/// True when the peer's own rekeying is to stay, and not ours. `nonce`: of the response.
fn is_lost(cx: &Context<'_>, sa: &IkeSa, task: &RekeyIke, nonce: &[u8]) -> bool {
    collision(cx, sa, task).is_some_and(|c| has_lowest([&task.nonce, nonce], [&c.ni, &c.nr]))
}

/// Ours is not to go on: "because there is nothing to delete yet, the initiator of this exchange
/// just stops the rekeying process, and it MUST NOT initiate the IKE_FOLLOWUP_KE exchange"
/// (RFC 9370 section 2.2.4).
fn stop(cx: &mut Context<'_>, sa: &mut IkeSa, task: &RekeyIke) {
    cx.log(Level::Info, sa, "IKE_SA rekey collision lost, stopping ours");
    cx.free_ike_spi(task.spi);
    give_way(cx, sa, task);
    cx.obeyed(task.ticket);
}

/// The peer's rekeying takes the place of ours, which is over. Before its successor is made the old
/// IKE_SA goes on, and is rekeyed by us after all when the peer does not complete it.
fn give_way(cx: &mut Context<'_>, sa: &mut IkeSa, task: &RekeyIke) {
    let Some(theirs) = task.collision.as_ref().map(|c| c.new) else { return };
    if cx.others().stands(theirs) {
        cx.bequeath(sa, theirs);
        linger(cx, sa);
    } else if sa.state() == IkeState::Rekeying {
        sa.set_state(IkeState::Established);
        let pause = cx.soon();
        cx.set_timer(Timer::RekeyIke(sa.id()), cx.now() + pause);
    }
}

/// Ours stays. If additional key exchanges of the peer's own are not done, it stops them.
fn win_over(cx: &mut Context<'_>, sa: &mut IkeSa, task: &RekeyIke) {
    let Some(theirs) = task.collision.as_ref().map(|c| c.new) else { return };
    if let Some(awaited) = sa.follow_ups_mut().take(|a| a.makes_ike(theirs)) {
        cx.release(&awaited.agreement);
        cx.log(Level::Info, sa, "IKE_SA rekey collision won, the peer stops its own");
    }
}

/// The peer owes the DELETE of the old IKE_SA; it is not waited for longer than a peer retransmits.
fn linger(cx: &mut Context<'_>, sa: &IkeSa) {
    let span = cx.retransmission_span();
    cx.set_timer(Timer::Linger(sa.id()), cx.now() + span);
}

/// A new IKE_SA takes over, unless the peer's rekeying has made one.
fn renew(cx: &mut Context<'_>, sa: &mut IkeSa, task: &RekeyIke, why: &str) {
    if !task.collision.as_ref().is_some_and(|c| cx.others().stands(c.new)) {
        cx.renew(sa, why);
    }
}

/// The peer has rekeyed, and we have no keys of the successor. The old IKE_SA does not last: the
/// peer takes it for replaced.
pub(super) fn unusable(cx: &mut Context<'_>, sa: &mut IkeSa, task: RekeyIke, why: &Diagnosis) {
    renew(cx, sa, &task, "the peer has rekeyed, and we have no keys");
    failed(cx, sa, task, why);
}

/// Our rekeying came to nothing. The peer's stands if there is one; else ours is tried again soon.
pub(super) fn failed(cx: &mut Context<'_>, sa: &mut IkeSa, task: RekeyIke, why: &Diagnosis) {
    cx.free_ike_spi(task.spi);
    if collision(cx, sa, &task).is_some() {
        give_way(cx, sa, &task);
        return cx.obeyed(task.ticket);
    }
    if sa.state() == IkeState::Rekeying {
        sa.set_state(IkeState::Established);
        let pause = cx.soon();
        cx.set_timer(Timer::RekeyIke(sa.id()), cx.now() + pause);
        let context = format!("IKE_SA rekeying failed, trying again in {} seconds", pause.as_secs());
        cx.log_why(Level::Warn, sa, &context, why);
    }
    cx.done(task.ticket, Err(why.clone()));
}

// ---- responder ----

/// The peer's request to rekey the IKE_SA.
pub(crate) fn answer(cx: &mut Context<'_>, sa: &mut IkeSa, payloads: &[Payload]) {
    if is_put_off(cx, sa) {
        return cx.respond_notify(sa, NotifyType::TEMPORARY_FAILURE, []);
    }
    let (mut offered, mut nonce, mut ke) = (None, None, None);
    for p in payloads {
        match p {
            Payload::Sa(list) => offered = Some(list),
            Payload::Nonce(p) => nonce = Some(&p.0),
            Payload::Ke(p) => ke = Some(p),
            _ => {}
        }
    }
    let (Some(offered), Some(nonce), Some(ke)) = (offered, nonce, ke) else {
        let (message, needs) = ("request to rekey the IKE_SA", "SA, nonce and KE");
        return cx.refuse_syntax(sa, KeyExchange::MissingPayload { message, needs });
    };
    let Some(selected) = choose_proposal(cx, sa, offered, nonce, ke) else { return };
    let suite = selected.suite;
    let spi = <[u8; 8]>::try_from(selected.answer.spi.as_slice()).map(u64::from_be_bytes).unwrap_or(0);
    if spi == 0 {
        return cx.refuse_syntax(sa, KeyExchange::BadSpi { spi: None });
    }
    if kex::public_len(suite.ke) != Some(ke.data.len()) {
        return cx.refuse_syntax(sa, KeyExchange::BadValue { method: suite.ke });
    }
    // It replaces one, so that no limit on their number is in its way: but not again before the
    // peer has deleted those before.
    if cx.others().predecessors(sa, PREDECESSORS) == PREDECESSORS {
        return cx.respond_notify(sa, NotifyType::TEMPORARY_FAILURE, []);
    }
    let offered = OfferedIke {
        suite,
        answer: selected.answer,
        spi,
        ni: nonce.clone(),
        nr: cx.random(NONCE_LEN),
        peer_public: ke.data.clone(),
        public: Vec::new(),
    };
    cx.wait_for_key(sa, suite.ke, AnswerRekeying::NeedsKeyPair(Box::new(offered)));
}

/// Whether the peer is to ask again later.
fn is_put_off(cx: &mut Context<'_>, sa: &IkeSa) -> bool {
    is_in_the_way(cx, sa)
        || match sa.work().active() {
            Some(Active { task: Task::RekeyIke(ours), .. }) => ours.collision.is_some(),
            // Ours has been agreed on, and only its keys are missing. "In this case, a
            // TEMPORARY_FAILURE notification MUST be sent" (RFC 9370 section 2.2.4).
            _ => sa.state() == IkeState::Rekeying,
        }
}

/// Whether the peer's series may go on to make this successor: something may have happened since
/// its CREATE_CHILD_SA.
pub(super) fn may_go_on(cx: &mut Context<'_>, sa: &IkeSa, agreed: IkeId) -> bool {
    !is_in_the_way(cx, sa)
        && match sa.work().active() {
            Some(Active { task: Task::RekeyIke(ours), .. }) => {
                ours.collision.as_ref().is_none_or(|c| c.new == agreed)
            }
            _ => sa.state() == IkeState::Established,
        }
}

/// Whether something else is under way that has to end before the IKE_SA is rekeyed.
fn is_in_the_way(cx: &mut Context<'_>, sa: &IkeSa) -> bool {
    // "If a peer receives a request to rekey the IKE SA, and it is currently, creating, rekeying,
    // or closing a Child SA of that IKE SA, it SHOULD reply with TEMPORARY_FAILURE", and so when
    // "it is currently trying to close" it (RFC 7296 sections 2.8.2, 2.25.2).
    let busy = sa.work().active().is_some_and(|a| a.task.follows_children())
        || sa.following_up().is_some()
        || sa.follow_ups().children().next().is_some()
        || sa.children().any(|c| c.state() == ChildState::Deleting);
    if busy || !sa.stands() || sa.roam().retired {
        return true;
    }
    if cx.computes_enough(sa) {
        cx.counters().kex_put_off += 1;
        return true;
    }
    false
}

/// Chooses a proposal that nonce and KE fit, or refuses the request.
fn choose_proposal(
    cx: &mut Context<'_>,
    sa: &mut IkeSa,
    offered: &[Proposal],
    nonce: &[u8],
    ke: &Ke,
) -> Option<Selected<IkeSuite>> {
    let (all, prf) = (&sa.conn().proposals, sa.suite().map(|s| s.prf));
    let selected = match negotiate::select_successor(all, offered, Some(ke.group), prf) {
        Ok(selected) => selected,
        Err(no) => {
            cx.counters().no_proposal += 1;
            let why = no.into();
            cx.log_why(Level::Error, sa, "not rekeying the IKE_SA", &why);
            cx.respond_why(sa, &why);
            return None;
        }
    };
    let suite = selected.suite;
    if !negotiate::nonce_fits(suite.prf, nonce) {
        cx.refuse_syntax(sa, KeyExchange::ShortNonce { bytes: nonce.len(), prf: suite.prf });
        return None;
    }
    if ke.group != suite.ke {
        let why = KeyExchange::OtherMethod { received: Some(ke.group), wanted: suite.ke }.into();
        cx.log_why(Level::Info, sa, "", &why);
        cx.respond_why(sa, &why);
        return None;
    }
    Some(selected)
}

fn answer_have_key(cx: &mut Context<'_>, sa: &mut IkeSa, mut o: Box<OfferedIke>, pair: KeyPair) {
    match pair {
        Ok((private, public)) => {
            o.public = public;
            let (ke, peer_public) = (o.suite.ke, o.peer_public.clone());
            cx.wait_for(
                sa,
                Request::Agree { ke, private, peer_public },
                AnswerRekeying::NeedsSharedSecret(o),
            );
        }
        Err(why) => cx.refuse_uncomputed(sa, why),
    }
}

fn answer_have_shared(cx: &mut Context<'_>, sa: &mut IkeSa, o: OfferedIke, shared: SharedSecret) {
    let shared = match shared {
        Ok(shared) => shared,
        Err(why) => return cx.refuse_uncomputed(sa, why),
    };
    let (id, spi) = cx.new_ike();
    let answer = Proposal { spi: spi.to_be_bytes().to_vec(), ..o.answer };
    let mut payloads = vec![
        Payload::Sa(vec![answer]),
        Payload::Nonce(Nonce(o.nr.clone())),
        Payload::Ke(Ke { group: o.suite.ke, data: o.public }),
    ];
    let agreed = AgreedIke { id, suite: o.suite, spis: (o.spi, spi), ni: o.ni, nr: o.nr };
    if o.suite.additional.is_none() {
        return conclude(cx, sa, &agreed, (&shared, &[]), &payloads);
    }
    collide(cx, sa, &agreed);
    payloads.push(link::await_first(cx, sa, Agreement::Ike(agreed), shared));
    cx.respond(sa, &payloads);
}

/// All secrets are there: makes the successor, and responds.
pub(super) fn conclude(
    cx: &mut Context<'_>,
    sa: &mut IkeSa,
    o: &AgreedIke,
    secrets: (&Secret, &[Secret]),
    payloads: &[Payload],
) {
    let (id, spis) = (o.id, o.spis);
    let keys = match derive(sa, &o.suite, secrets, (&o.ni, &o.nr), spis, false) {
        Ok(keys) => keys,
        Err(why) => {
            cx.free_ike_spi(spis.1);
            return cx.refuse_uncomputed(sa, why);
        }
    };
    let mut new = successor(cx, sa, Made { id, suite: o.suite, keys, spis, initiator: false });
    log_keys(cx, &mut new);
    let mut payloads = payloads.to_vec();
    payloads.extend(qcd::token(cx, &new));
    cx.effect(Effect::Adopt(new));
    cx.counters().ike_rekey_resp += 1;
    cx.respond(sa, &payloads);
    if collide(cx, sa, o) {
        // If the old one ends before it is settled which survives, nobody comes back to it.
        let at = cx.now() + cx.retransmission_span() + REDUNDANT_DELETE;
        return cx.set_timer(Timer::Linger(id), at);
    }
    cx.bequeath(sa, id);
    linger(cx, sa);
}

/// We have agreed to the peer's rekeying. True when ours is in flight: then it is settled with the
/// response to ours which of the two stays.
fn collide(cx: &mut Context<'_>, sa: &mut IkeSa, o: &AgreedIke) -> bool {
    let Some(Active { task: Task::RekeyIke(ours), .. }) = sa.work_mut().active_mut() else { return false };
    let theirs = IkeCollision { new: o.id, ni: o.ni.clone(), nr: o.nr.clone() };
    let before = ours.collision.replace(theirs);
    if before.is_none_or(|c| c.new != o.id) {
        cx.log(Level::Info, sa, "IKE_SA rekey collision detected");
    }
    true
}
