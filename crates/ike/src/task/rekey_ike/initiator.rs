//! Our rekeying of the IKE_SA, and what becomes of it when the peer rekeys at the same time.

use ironswan_wire::iana::{ExchangeType, KeId, NotifyType};
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::{Ke, Nonce, find_notify, notifies};
use ironswan_wire::secret::Secret;

use super::super::refused;
use super::{Made, derive, linger, successor};
use crate::context::{Context, Effect};
use crate::event::{Completion, IkeState, KeyPair, Level, Request, SharedSecret};
use crate::negotiate::{self, KeRule, NONCE_LEN};
use crate::sa::IkeSa;
use crate::task::exchange::Exchange;
use crate::task::link;
use crate::task::qcd;
use crate::task::rekey_child::has_lowest;
use crate::task::sa_init::log_keys;
use crate::task::series::{FollowUp, Making};
use crate::task::state::{AnsweredIke, DeleteIke, IkeCollision, REKEY_IKE_NAME, RekeyIke, Task};
use crate::timer::Timer;
use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::{KeyExchange, NotDone};
use ironswan_keying::limits::{KE_ROUNDS, REDUNDANT_DELETE};

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
pub(crate) fn finish(
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
    cx.count_ike_rekey(sa, true);
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

/// A new IKE_SA takes over, unless the peer's rekeying has made one.
fn renew(cx: &mut Context<'_>, sa: &mut IkeSa, task: &RekeyIke, why: &str) {
    if !task.collision.as_ref().is_some_and(|c| cx.others().stands(c.new)) {
        cx.renew(sa, why);
    }
}

/// The peer has rekeyed, and we have no keys of the successor. The old IKE_SA does not last: the
/// peer takes it for replaced.
pub(crate) fn unusable(cx: &mut Context<'_>, sa: &mut IkeSa, task: RekeyIke, why: &Diagnosis) {
    renew(cx, sa, &task, "the peer has rekeyed, and we have no keys");
    failed(cx, sa, task, why);
}

/// Our rekeying came to nothing. The peer's stands if there is one; else ours is tried again soon.
pub(crate) fn failed(cx: &mut Context<'_>, sa: &mut IkeSa, task: RekeyIke, why: &Diagnosis) {
    cx.free_ike_spi(task.spi);
    if collision(cx, sa, &task).is_some() {
        give_way(cx, sa, &task);
        return cx.obeyed(task.ticket);
    }
    let refused = refused::rekeying(cx, Timer::OverTime(sa.id()), None, &task.proposals, why);
    let why = refused.as_ref().unwrap_or(why);
    if sa.state() == IkeState::Rekeying {
        sa.set_state(IkeState::Established);
        sa.signs_mut().refused |= refused.is_some();
        let pause = cx.soon();
        cx.set_timer(Timer::RekeyIke(sa.id()), cx.now() + pause);
        let context = format!("IKE_SA rekeying failed, trying again in {} seconds", pause.as_secs());
        cx.log_why(Level::Warn, sa, &context, why);
    }
    cx.done(task.ticket, Err(why.clone()));
}
