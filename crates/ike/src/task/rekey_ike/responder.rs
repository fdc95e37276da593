//! The peer's rekeying of the IKE_SA.

use ironswan_crypto::kex;
use ironswan_wire::iana::NotifyType;
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::{Ke, Nonce};
use ironswan_wire::proposal::{IkeSuite, Proposal};
use ironswan_wire::secret::Secret;

use super::{Made, derive, linger, successor};
use crate::context::{Context, Effect};
use crate::event::{ChildState, Completion, IkeId, IkeState, KeyPair, Level, Request, SharedSecret};
use crate::negotiate::{self, NONCE_LEN, Selected};
use crate::sa::{Active, IkeSa};
use crate::task::exchange::Exchange;
use crate::task::link;
use crate::task::qcd;
use crate::task::sa_init::log_keys;
use crate::task::series::Agreement;
use crate::task::state::{AgreedIke, IkeCollision, REKEY_IKE_NAME, Task};
use crate::timer::Timer;
use ironswan_keying::diagnosis::KeyExchange;
use ironswan_keying::limits::{PREDECESSORS, REDUNDANT_DELETE};

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
pub(crate) fn may_go_on(cx: &mut Context<'_>, sa: &IkeSa, agreed: IkeId) -> bool {
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
pub(crate) fn conclude(
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
    cx.count_ike_rekey(sa, false);
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
