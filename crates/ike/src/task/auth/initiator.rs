//! IKE_AUTH as initiator.

use ironswan_wire::iana::{ExchangeType, NotifyType};
use ironswan_wire::id::{IdPattern, Identity};
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::{Auth, Delete, Id, Notify, notifies};

use super::super::exchange::Exchange;
use super::super::state::{AUTH_NAME, NewChild, Task};
use super::super::{create_child, mobike, qcd, restart};
use super::{
    done, expected_peer, is_fatal, no_proof, our_identity, our_octets, ppk_in_use, prover, resume_proof,
    their_octets, verifier,
};
use crate::auth::{Prover, Step, Verifier, certificate, ppk, rounds};
use crate::context::{Context, Effect};
use crate::endpoint::Close;
use crate::event::{Completion, Level};
use crate::negotiate::KeRule;
use crate::sa::{Active, IkeSa};
use ironswan_keying::diagnosis::{Authentication, KeyExchange, NotDone};
use ironswan_keying::{Auth as Method, Childless, Diagnosis};

/// Our IKE_AUTH request, while its AUTH is made. What is wanted waits in the queue.
struct Proving {
    prover: Box<dyn Prover>,
    without: WithoutPpk,
}

/// AUTH of our request as if there were no post-quantum preshared key (NO_PPK_AUTH).
enum WithoutPpk {
    /// There is no PPK, or we require it.
    Unneeded,
    /// This is the AUTH that is made; the other one, with this PPK, comes after it.
    First(ppk::Used),
    /// Made before.
    Made(Auth),
}

impl Exchange for Proving {
    fn resume(self: Box<Self>, cx: &mut Context<'_>, sa: &mut IkeSa, completion: Completion) {
        if let Completion::Failed { why } = completion {
            return cx.close(sa, Close::Failed(why));
        }
        match resume_proof(cx, &our_identity(sa, done(sa).0), &*self.prover, completion) {
            Ok(step) => proved(cx, sa, *self, step),
            Err(why) => fail(cx, sa, &why),
        }
    }

    fn name(&self) -> &'static str {
        AUTH_NAME
    }

    fn waits_for(&self) -> String {
        "waiting for our signature".to_owned()
    }
}

/// The response to our IKE_AUTH request, while its AUTH is judged. The request counts as in flight
/// until then: the peer has an IKE_SA, and we do not know whose it is.
struct Verifying {
    verifier: Box<dyn Verifier>,
    peer: Identity,
    auth: Auth,
    payloads: Vec<Payload>,
}

impl Exchange for Verifying {
    fn resume(mut self: Box<Self>, cx: &mut Context<'_>, sa: &mut IkeSa, completion: Completion) {
        if !sa.may_be_up_there() {
            // The attempt has been taken back meanwhile.
            return;
        }
        if let Completion::Failed { why } = completion {
            let child = conclude(sa);
            cx.say_deleted(sa);
            put_back(sa, child);
            return cx.close(sa, Close::Failed(why));
        }
        if !self.verifier.is_current(cx.policy()) {
            // A certificate of a CA that is not loaded any more lets nobody in.
            return process(cx, sa, self.payloads);
        }
        let step = self.verifier.resume(completion);
        verified(cx, sa, *self, step);
    }

    fn name(&self) -> &'static str {
        AUTH_NAME
    }

    fn waits_for(&self) -> String {
        self.verifier.waits_for().to_owned()
    }
}

// ---- the request ----

/// Makes AUTH, then the request.
pub(crate) fn build(cx: &mut Context<'_>, sa: &mut IkeSa) {
    let Some(prf) = sa.keys().map(|keys| keys.prf) else { return };
    let (round, _) = done(sa);
    if round >= rounds::of_ours(sa.conn()) {
        // Nothing is left to prove, and the peer goes on with its own proof in the response.
        return send_more(cx, sa, Vec::new());
    }
    // Further rounds go on with the PPK that the first one has settled.
    let ppk = match if round == 0 { ppk_of_request(cx, sa) } else { Ok(None) } {
        Ok(ppk) => ppk,
        Err(why) => return fail(cx, sa, &why),
    };
    match prover(cx, sa, prf, round, &expected_peer(sa, round)) {
        Ok(prover) => {
            let without = match ppk {
                // "if using PPKs for communication with this responder is optional for the
                // initiator ... then the initiator MUST include a NO_PPK_AUTH notification" (RFC
                // 8784 section 3).
                Some(used) if !sa.conn().ppk_required => WithoutPpk::First(used),
                used => {
                    if round == 0 {
                        use_ppk(sa, used);
                    }
                    WithoutPpk::Unneeded
                }
            };
            prove(cx, sa, Proving { prover, without });
        }
        Err(why) => fail(cx, sa, &why),
    }
}

/// The post-quantum preshared key for our request, if the responder takes one.
fn ppk_of_request(cx: &Context<'_>, sa: &mut IkeSa) -> Result<Option<ppk::Used>, Diagnosis> {
    use_ppk(sa, None);
    let (Some(init), Some(keys)) = (sa.init(), sa.keys()) else { return Ok(None) };
    Ok(ppk::choose(cx.policy(), sa.conn(), &init.ppk, keys)?)
}

/// From now on AUTH takes this post-quantum preshared key into account, or none.
fn use_ppk(sa: &mut IkeSa, used: Option<ppk::Used>) {
    if let Some(init) = sa.init_mut() {
        init.ppk.used = used;
    }
}

/// Begins to make AUTH over the octets as they are now.
fn prove(cx: &mut Context<'_>, sa: &mut IkeSa, x: Proving) {
    let ours = our_identity(sa, done(sa).0);
    let Some(octets) = our_octets(sa, &Id::new(ours)) else { return };
    let step = x.prover.prove(octets);
    proved(cx, sa, x, step);
}

fn proved(cx: &mut Context<'_>, sa: &mut IkeSa, x: Proving, step: Step<Auth>) {
    match (step, x.without) {
        (Step::Done(auth), WithoutPpk::First(used)) => {
            use_ppk(sa, Some(used));
            prove(cx, sa, Proving { without: WithoutPpk::Made(auth), ..x });
        }
        (Step::Done(auth), WithoutPpk::Made(without)) => send(cx, sa, &*x.prover, auth, Some(without)),
        (Step::Done(auth), WithoutPpk::Unneeded) => send(cx, sa, &*x.prover, auth, None),
        (Step::Ask(request), without) => cx.wait_for(sa, request, Proving { without, ..x }),
        (Step::Failed(_) | Step::Refused(_), _) => {
            let why = Authentication::CannotSign { ours: our_identity(sa, done(sa).0) };
            fail(cx, sa, &why.into());
        }
    }
}

/// Ends the attempt, and says why.
fn fail(cx: &mut Context<'_>, sa: &mut IkeSa, why: &Diagnosis) {
    cx.log_why(Level::Error, sa, "", why);
    cx.close(sa, Close::Failed(why.clone()));
}

/// A child to ask for in IKE_AUTH, and those that cannot be proposed.
type FirstChild = (Option<Box<NewChild>>, Vec<(Box<NewChild>, Diagnosis)>);

/// The first child to ask for, and those before it that cannot be proposed, with the reasons.
/// `offered`: the responder takes an IKE_AUTH without child.
fn first_child(cx: &mut Context<'_>, sa: &mut IkeSa, offered: bool) -> FirstChild {
    let (mut child, mut refused) = (None, Vec::new());
    let alone = match sa.conn().childless {
        Childless::Force => true,
        Childless::Prefer => offered,
        Childless::Allow | Childless::Never => false,
    };
    while child.is_none() && !alone {
        let first = sa.work_mut().take_first(|t| matches!(t, Task::Child(n) if n.rekey.is_none()));
        let Some(Task::Child(mut new)) = first else { break };
        // The first child has the IKE_SA's own key exchange.
        match create_child::prepare(cx, sa, &mut new, KeRule::Ignore) {
            Ok(()) => child = Some(new),
            Err(why) => {
                let context = format!("establishing CHILD_SA {} failed", new.config.name);
                cx.log_why(Level::Error, sa, &context, &why);
                refused.push((new, why));
            }
        }
    }
    (child, refused)
}

/// Sends the request. `without`: AUTH as if there were no post-quantum preshared key.
fn send(cx: &mut Context<'_>, sa: &mut IkeSa, prover: &dyn Prover, auth: Auth, without: Option<Auth>) {
    let (round, _) = done(sa);
    let ours = our_identity(sa, round);
    let line = format!("authentication of '{ours}' (myself) with {}", prover.name());
    let mut payloads = vec![Payload::IdI(Id::new(ours))];
    payloads.extend(certificate::payloads(prover.chain()));
    if round > 0 {
        cx.log(Level::Info, sa, line);
        payloads.push(Payload::Auth(auth));
        return send_more(cx, sa, payloads);
    }
    // "This notification asserts that this IKE SA is the only IKE SA currently active between the
    // authenticated identities" (RFC 7296 section 2.4).
    if cx.others().is_initial_contact(sa, cx.policy()) {
        payloads.push(Payload::Notify(Notify::new(NotifyType::INITIAL_CONTACT, [])));
    }
    payloads.extend(certificate::request(cx.policy(), sa.conn(), true));
    if let IdPattern::Exact(id) = &sa.conn().remote_id {
        payloads.push(Payload::IdR(Id::new(id.clone())));
    }
    payloads.push(Payload::Auth(auth));
    if let Some(used) = sa.init().and_then(|init| init.ppk.used.as_ref()) {
        payloads.extend(ppk::request(used, without));
    }
    if sa.conn().has_rounds() {
        payloads.push(rounds::announcement());
    }
    payloads.extend(after_auth(cx, sa));
    cx.log(Level::Info, sa, line);

    // RFC 6023: without the responder's CHILDLESS_IKEV2_SUPPORTED, it would not understand an
    // IKE_AUTH without child.
    let offered = sa.init().is_some_and(|init| init.childless);
    let (child, refused) = first_child(cx, sa, offered);
    match (&child, refused.last()) {
        // Nobody asked for an IKE_SA without any child.
        (None, Some((_, why))) if sa.attempt().ticket.is_none() => {
            let why = why.clone();
            for (new, _) in refused {
                sa.work_mut().push(Task::Child(new));
            }
            return cx.close(sa, Close::Failed(why));
        }
        (Some(new), _) => {
            let line = format!("establishing CHILD_SA {}{{{}}}", new.config.name, new.id.0);
            cx.log(Level::Info, sa, line);
            payloads.extend(create_child::sa_and_ts(new, Vec::new()));
        }
        _ => {}
    }
    for (new, why) in refused {
        cx.fail_task(Task::Child(new), &why);
    }
    if child.is_none() && (!offered || sa.conn().childless == Childless::Never) {
        let by_peer = sa.conn().childless != Childless::Never;
        return fail(cx, sa, &Authentication::ChildNeeded { by_peer }.into());
    }
    payloads.extend(mobike::offer(cx, sa));
    request(cx, sa, child, &payloads);
}

/// Payloads that follow AUTH: another round of ours is announced, or this is the last request. A
/// QCD token "should follow the AUTH payload and precede ... all payloads related to the Child SA"
/// (RFC 6290 section 4.2).
fn after_auth(cx: &mut Context<'_>, sa: &mut IkeSa) -> Option<Payload> {
    match done(sa).0 + 1 < rounds::of_ours(sa.conn()) {
        true => Some(rounds::another()),
        false => qcd::token(cx, sa),
    }
}

/// Sends a request after the first: AUTH of a further round, or nothing where only the peer has
/// rounds left.
fn send_more(cx: &mut Context<'_>, sa: &mut IkeSa, mut payloads: Vec<Payload>) {
    let asked = sa.init().and_then(|init| init.auth.child);
    let child = match asked {
        Some(id) => match sa.work_mut().take_first(|t| matches!(t, Task::Child(n) if n.id == id)) {
            Some(Task::Child(child)) => Some(child),
            // The peer would make it all the same.
            _ => return cx.close(sa, Close::Failed(NotDone::ChildRemoved.into())),
        },
        None => None,
    };
    if !payloads.is_empty() {
        payloads.extend(after_auth(cx, sa));
    }
    request(cx, sa, child, &payloads);
}

/// Sends a request of this round.
fn request(cx: &mut Context<'_>, sa: &mut IkeSa, child: Option<Box<NewChild>>, payloads: &[Payload]) {
    if let Some(init) = sa.init_mut() {
        init.auth.child = child.as_ref().map(|child| child.id);
        init.auth.ours += 1;
    }
    cx.send_request(sa, ExchangeType::IKE_AUTH, Task::Auth(child), payloads);
    restart::hurry_auth(cx, sa);
}

// ---- the response ----

/// The response to the request in flight.
pub(crate) fn process(cx: &mut Context<'_>, sa: &mut IkeSa, payloads: Vec<Payload>) {
    let (mut idr, mut auth) = (None, None);
    for p in &payloads {
        match p {
            Payload::IdR(p) => idr = Some(p.clone()),
            Payload::Auth(p) => auth = Some(p.clone()),
            _ => {}
        }
    }
    let prf = sa.keys().map(|keys| keys.prf);
    let (_, round) = done(sa);
    if round >= rounds::of_theirs(sa.conn()) {
        return passed(cx, sa, auth.is_some(), payloads);
    }
    let (Some(idr), Some(auth), Some(prf)) = (idr, auth, prf) else {
        return refused(cx, sa, &payloads);
    };
    let peer = idr.identity.clone();
    if round == 0
        && let Err(why) = settle_ppk(sa, &payloads)
    {
        return unproved(cx, sa, &why);
    }
    let required = rounds::their_side(sa.conn(), round).1.clone();
    let counted =
        rounds::judge(sa.conn(), sa.remote_id().unwrap_or(&peer), round, rounds::follows(&payloads));
    let verifier = if !required.matches(&peer) {
        Err(Authentication::OtherPeer { peer: peer.clone(), required }.into())
    } else if cx.policy().claims_to_be_us(&required, &our_identity(sa, round), &peer) {
        Err(Authentication::OurIdentity { peer: peer.clone() }.into())
    } else if let Err(why) = counted {
        Err(why.into())
    } else {
        verifier(cx, sa, prf, round, &peer, &payloads)
    };
    match verifier {
        Ok(mut verifier) => {
            let step = verifier.verify(their_octets(sa, &idr), &auth);
            verified(cx, sa, Verifying { verifier, peer, auth, payloads }, step);
        }
        Err(why) => unproved(cx, sa, &why),
    }
}

/// The peer has passed all its rounds before, and answers another one of ours.
fn passed(cx: &mut Context<'_>, sa: &mut IkeSa, more: bool, payloads: Vec<Payload>) {
    if notifies(&payloads).any(|n| is_fatal(n.kind)) {
        return refused(cx, sa, &payloads);
    }
    if more {
        let configured = rounds::of_theirs(sa.conn());
        let peer = sa.remote_id().cloned().unwrap_or_else(|| expected_peer(sa, 0));
        let why = Authentication::OtherRounds { peer, theirs: configured + 1, configured };
        return unproved(cx, sa, &why.into());
    }
    go_on(cx, sa, payloads);
}

/// Goes on without our post-quantum preshared key when the responder does not use it. The error: we
/// require it.
fn settle_ppk(sa: &mut IkeSa, payloads: &[Payload]) -> Result<(), Diagnosis> {
    let offered = sa.init().is_some_and(|init| init.ppk.used.is_some());
    if offered
        && !ppk::is_used(sa.conn(), payloads)?
        && let Some(init) = sa.init_mut()
    {
        init.ppk.unused = init.ppk.used.take().map(|used| ppk::Unused::Absent(used.into_parts().0));
    }
    Ok(())
}

/// The request is not in flight any more. Gives its child.
fn conclude(sa: &mut IkeSa) -> Option<Box<NewChild>> {
    match sa.work_mut().answered() {
        Some(Active { task: Task::Auth(child), .. }) => child,
        _ => None,
    }
}

/// The response does not authenticate anybody: the peer says no, or has nothing to say.
fn refused(cx: &mut Context<'_>, sa: &mut IkeSa, payloads: &[Payload]) {
    let child = conclude(sa);
    let kind = notifies(payloads).find(|n| n.kind.is_error()).map(|n| n.kind);
    let why: Diagnosis = match kind {
        Some(NotifyType::AUTHENTICATION_FAILED) => rejected(cx, sa).into(),
        Some(kind) => KeyExchange::peer_error(kind).into(),
        None => {
            let (message, needs) = ("IKE_AUTH response", "IDr and AUTH");
            KeyExchange::MissingPayload { message, needs }.into()
        }
    };
    cx.log_why(Level::Error, sa, "", &why);
    if !kind.is_some_and(is_fatal) {
        // It may have established what it has not proved to be its own.
        cx.say_deleted(sa);
    }
    let refused = kind == Some(NotifyType::AUTHENTICATION_FAILED);
    let Some(child) = restart::doubted(cx, sa, child, refused) else { return };
    put_back(sa, child);
    cx.close(sa, Close::Failed(why.clone()));
}

/// The peer does not accept our proof.
fn rejected(cx: &Context<'_>, sa: &IkeSa) -> Authentication {
    // The request in flight counts already.
    let round = done(sa).0.saturating_sub(1);
    let (expected, ours) = (expected_peer(sa, round), our_identity(sa, round));
    let key = match rounds::our_method(sa.conn(), round) {
        Method::Psk => {
            let key = cx.policy().shared_key(&ours, &expected);
            format!("shared key '{}'", key.map_or_else(String::new, |k| k.name))
        }
        Method::Pubkey { keys, .. } => {
            let key = cx.policy().private_key(keys, &ours);
            key.map_or_else(|| "our key".to_owned(), |key| format!("our {} key", key.public().kind()))
        }
        Method::Certificate { trust, .. } => {
            let found = cx.policy().our_certificate(trust, &ours, &[]);
            let own = found.as_ref().ok().and_then(|(chain, _)| chain.first());
            own.map_or_else(
                || "our certificate".to_owned(),
                |own| format!("our certificate \"{}\"", own.subject()),
            )
        }
    };
    Authentication::Rejected { ours, expected, key, ppk: ppk_in_use(sa) }
}

fn verified(cx: &mut Context<'_>, sa: &mut IkeSa, x: Verifying, step: Step<()>) {
    match step {
        Step::Done(()) => authorise(cx, sa, x),
        Step::Ask(request) => cx.wait_for(sa, request, x),
        Step::Refused(why) => unproved(cx, sa, &why),
        Step::Failed(fault) => {
            unproved(cx, sa, &no_proof(sa, done(sa).1, &x.peer, &x.auth, fault));
        }
    }
}

/// The peer has not proved to be whom we want.
fn unproved(cx: &mut Context<'_>, sa: &mut IkeSa, why: &Diagnosis) {
    let child = conclude(sa);
    cx.counters().auth_failed += 1;
    cx.log_why(Level::Error, sa, "", why);
    // The responder thinks that it is established. "SHOULD ... send a Notify AUTHENTICATION_FAILED
    // in a separate INFORMATIONAL exchange" (RFC 7296 section 2.21.2).
    cx.send_last_word(
        sa,
        &[
            Payload::Notify(Notify::new(NotifyType::AUTHENTICATION_FAILED, [])),
            Payload::Delete(Delete::ike_sa()),
        ],
    );
    let Some(child) = restart::doubted(cx, sa, child, false) else { return };
    put_back(sa, child);
    cx.close(sa, Close::Failed(why.clone()));
}

/// The peer is authenticated: asks whether it gets the IKE_SA.
fn authorise(cx: &mut Context<'_>, sa: &mut IkeSa, x: Verifying) {
    let peer = &x.peer;
    for doubt in x.verifier.doubts() {
        cx.log(Level::Warn, sa, format!("the revocation status of a certificate is unknown: {doubt}"));
    }
    if let Some(chain) = x.verifier.chain() {
        cx.log(Level::Info, sa, format!("using certificate chain {chain}"));
    }
    let line = format!("authentication of '{peer}' with {} successful", x.verifier.name());
    cx.log(Level::Info, sa, line);
    if let Some(kind) = notifies(&x.payloads).map(|n| n.kind).find(|kind| is_fatal(*kind)) {
        // The peer is who it says, and has no IKE_SA all the same.
        let child = conclude(sa);
        put_back(sa, child);
        return fail(cx, sa, &KeyExchange::peer_error(kind).into());
    }
    if done(sa).1 == 0 {
        sa.set_remote_id(peer.clone());
    }
    if let Some(init) = sa.init_mut() {
        init.auth.theirs += 1;
    }
    go_on(cx, sa, x.payloads);
}

/// The response is good: makes the request of the next round, or asks whether the peer gets the
/// IKE_SA.
fn go_on(cx: &mut Context<'_>, sa: &mut IkeSa, payloads: Vec<Payload>) {
    let (ours, theirs) = done(sa);
    if ours < rounds::of_ours(sa.conn()) || theirs < rounds::of_theirs(sa.conn()) {
        let child = conclude(sa);
        put_back(sa, child);
        return sa.work_mut().push_first(Task::Auth(None));
    }
    let Some(peer) = sa.remote_id().cloned() else { return };
    let then = Box::new(move |cx: &mut Context<'_>, sa: &mut IkeSa, admitted: Result<(), Diagnosis>| {
        establish(cx, sa, admitted, &payloads);
    });
    cx.effect(Effect::Admit { peer, initial_contact: false, then });
}

/// The endpoint has said whether the peer gets the IKE_SA: establishes it and its child.
fn establish(cx: &mut Context<'_>, sa: &mut IkeSa, admitted: Result<(), Diagnosis>, payloads: &[Payload]) {
    let child = conclude(sa);
    if let Err(why) = admitted {
        put_back(sa, child);
        cx.say_deleted(sa);
        return fail(cx, sa, &why);
    }
    let nonces = sa.init().map(|i| (i.ni.clone(), i.nr.clone()));
    cx.establish(sa);
    cx.read_auth_lifetime(sa, payloads);
    mobike::agree(sa, payloads);
    if let (Some(mut new), Some((ni, nr))) = (child, nonces) {
        new.nonce = ni;
        create_child::finish_first(cx, sa, new, payloads, &nr);
    }
}

/// The child of an IKE_AUTH that came to nothing waits again: for another address of the peer, or
/// for the end of the attempt.
fn put_back(sa: &mut IkeSa, child: Option<Box<NewChild>>) {
    if let Some(child) = child {
        sa.work_mut().push_first(Task::Child(child));
    }
}
