//! IKE_AUTH as responder. Only who has done the key exchange with us comes here, so no address is
//! forged.

use ironswan_wire::iana::{AuthMethod, NotifyType};
use ironswan_wire::id::{IdPattern, Identity};
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::{Auth, Id, find_notify};

use super::super::answer_child;
use super::super::exchange::Exchange;
use super::super::state::AUTH_NAME;
use super::super::{mobike, qcd};
use super::{
    done, expected_peer, no_proof, our_identity, our_octets, prover, resume_proof, their_octets, verifier,
};
use crate::auth::{Prover, Step, Verifier, certificate, ppk, rounds};
use crate::context::{Context, Effect};
use crate::endpoint::About;
use crate::endpoint::Close;
use crate::event::{Completion, IkeState, Level};
use crate::sa::{Asked, IkeSa};
use ironswan_crypto::prf::Prf;
use ironswan_keying::diagnosis::{Authentication, CANDIDATES, Candidate, KeyExchange, Misfit, NotDone};
use ironswan_keying::{Childless, Claim as ConnectionClaim, Diagnosis};

/// The peer's IKE_AUTH request on its way through the phases.
struct AnswerAuth {
    payloads: Vec<Payload>,
    /// What the peer proves in this round; `None`: it has nothing left to prove.
    claim: Option<Claim>,
    /// Our method in this round; `None`: we have nothing left to prove.
    prover: Option<Box<dyn Prover>>,
    /// The peer is verified and authorised, and AUTH of our side is made.
    proving: bool,
}

/// What the peer proves.
struct Claim {
    /// The peer, as it says.
    id: Id,
    auth: Auth,
    /// The line that says which connection was looked for. It is written when the peer is let in,
    /// for whoever fails is written about in one line, and not without end.
    looking: Option<String>,
    verifier: Box<dyn Verifier>,
}

impl Exchange for AnswerAuth {
    fn resume(mut self: Box<Self>, cx: &mut Context<'_>, sa: &mut IkeSa, completion: Completion) {
        if let Completion::Failed { why } = completion {
            // An honest peer asks again.
            return cx.close(sa, Close::Failed(why));
        }
        if !is_loaded(cx, sa) {
            // The connection has been changed or unloaded meanwhile. A key that is not configured
            // any more lets nobody in.
            return answer(cx, sa, &self.payloads);
        }
        if self.proving {
            let Some(prover) = &self.prover else { return };
            match resume_proof(cx, &our_identity(sa, done(sa).0), &**prover, completion) {
                Ok(step) => proved(cx, sa, *self, step),
                Err(why) => refuse(cx, sa, &why),
            }
        } else {
            let Some(claim) = &mut self.claim else { return };
            if !claim.verifier.is_current(cx.policy()) {
                // The same for certificates of a CA that is not loaded any more.
                return answer(cx, sa, &self.payloads);
            }
            let step = claim.verifier.resume(completion);
            verified(cx, sa, *self, step);
        }
    }

    fn name(&self) -> &'static str {
        AUTH_NAME
    }

    fn is_of_peer(&self) -> bool {
        true
    }
}

pub(crate) fn answer(cx: &mut Context<'_>, sa: &mut IkeSa, payloads: &[Payload]) {
    if done(sa) != (0, 0) && !is_loaded(cx, sa) {
        // The rounds before have been passed by a configuration that is gone.
        let peer = expected_peer(sa, done(sa).1);
        let why = no_peer(cx, sa, &peer, None);
        return refuse(cx, sa, &why.into());
    }
    match identify(cx, sa, payloads) {
        Ok(mut x) => match &mut x.claim {
            Some(claim) => {
                let step = claim.verifier.verify(their_octets(sa, &claim.id), &claim.auth);
                verified(cx, sa, x, step);
            }
            None => prove(cx, sa, x),
        },
        Err(why) => refuse(cx, sa, &why),
    }
}

/// True when the IKE_SA has its connection as it is loaded now.
fn is_loaded(cx: &Context<'_>, sa: &IkeSa) -> bool {
    let loaded = cx.policy().connection(&sa.conn().name);
    loaded.is_some_and(|conn| std::sync::Arc::ptr_eq(&conn, sa.conn()))
}

/// Payloads of a request that say who the peer is, and of whom it asks.
struct Read<'a> {
    idi: Option<&'a Id>,
    idr: Option<&'a Id>,
    auth: Option<&'a Auth>,
}

/// Reads a request. "where the whole message is malformed ... MUST be rejected in their entirety,
/// and MUST only lead to an UNSUPPORTED_CRITICAL_PAYLOAD or INVALID_SYNTAX Notification sent as a
/// response" (RFC 7296 section 2.21.2).
fn read(payloads: &[Payload], round: usize) -> Result<Read<'_>, Diagnosis> {
    let mut read = Read { idi: None, idr: None, auth: None };
    let mut of_child = 0;
    for p in payloads {
        match p {
            Payload::IdI(p) => read.idi = Some(p),
            Payload::IdR(p) => read.idr = Some(p),
            Payload::Auth(p) => read.auth = Some(p),
            // Each comes once at most.
            Payload::Sa(_) | Payload::TsI(_) | Payload::TsR(_) => of_child += 1,
            _ => {}
        }
    }
    match (of_child, round) {
        (0 | 3, 0) | (0, _) => Ok(read),
        _ => {
            let (message, needs) = ("IKE_AUTH request", "SA, TSi and TSr");
            Err(KeyExchange::MissingPayload { message, needs }.into())
        }
    }
}

/// Payloads of the peer's first request: the one that is answered, or one before it.
fn first_payloads<'a>(sa: &'a IkeSa, x: &'a AnswerAuth) -> &'a [Payload] {
    sa.init().and_then(|init| init.auth.first.as_ref()).map_or(&x.payloads, |first| &first.payloads)
}

/// True when the first request asks for a child.
fn asks_for_child(payloads: &[Payload]) -> bool {
    payloads.iter().any(|p| matches!(p, Payload::Sa(_)))
}

/// Finds the connection that the peer belongs to, and the methods and keys of both sides.
fn identify(cx: &mut Context<'_>, sa: &mut IkeSa, payloads: &[Payload]) -> Result<AnswerAuth, Diagnosis> {
    // Rounds of the peer and of ours go along with each other. The one that has fewer is silent in
    // the last of the other's.
    let (ours, theirs) = done(sa);
    let read = read(payloads, ours.max(theirs))?;
    let Some(prf) = sa.keys().map(|keys| keys.prf) else { return Err(NotDone::NotEstablished.into()) };
    let claim = match theirs > 0 && theirs >= rounds::of_theirs(sa.conn()) {
        false => Some(claim(cx, sa, prf, payloads, &read)?),
        true if read.auth.is_some() => {
            let configured = rounds::of_theirs(sa.conn());
            let peer = sa.remote_id().cloned().unwrap_or_else(|| expected_peer(sa, 0));
            return Err(Authentication::OtherRounds { peer, theirs: configured + 1, configured }.into());
        }
        true => None,
    };
    if theirs == 0 {
        sa.asked_for_certificate(certificate::asked(payloads));
        let initial_contact = find_notify(payloads, NotifyType::INITIAL_CONTACT).is_some();
        sa.ask(Asked { at: cx.now(), initial_contact });
    }
    let prover = match ours < rounds::of_ours(sa.conn()) {
        true => {
            let peer =
                claim.as_ref().map_or_else(|| expected_peer(sa, ours), |claim| claim.id.identity.clone());
            Some(prover(cx, sa, prf, ours, &peer)?)
        }
        false => None,
    };
    Ok(AnswerAuth { payloads: payloads.to_vec(), claim, prover, proving: false })
}

/// The peer's claim in this round, and how it is judged.
fn claim(
    cx: &mut Context<'_>,
    sa: &mut IkeSa,
    prf: &'static dyn Prf,
    payloads: &[Payload],
    read: &Read<'_>,
) -> Result<Claim, Diagnosis> {
    let (_, round) = done(sa);
    let Some(idi) = read.idi else {
        let message = "IKE_AUTH request";
        return Err(KeyExchange::MissingPayload { message, needs: "IDi" }.into());
    };
    let (peer, follows) = (&idi.identity, rounds::follows(payloads));
    let method = read.auth.map(|a| a.method);
    let looking = match round {
        0 => {
            let knows = find_notify(payloads, NotifyType::MULTIPLE_AUTH_SUPPORTED).is_some();
            if let Some(init) = sa.init_mut() {
                init.auth.initiator = knows;
            }
            let asked = read.idr.map(|p| &p.identity);
            Some(find_connection(cx, sa, (method, follows), peer, asked)?)
        }
        _ => {
            find_round(cx, sa, round, (method, follows), peer)?;
            None
        }
    };
    let knows = sa.init().is_some_and(|init| init.auth.initiator);
    if sa.conn().has_rounds() && !knows {
        return Err(Authentication::PeerLacksRounds.into());
    }
    let first = sa.remote_id().filter(|_| round > 0).unwrap_or(peer);
    rounds::judge(sa.conn(), first, round, follows)?;
    let verifier = verifier(cx, sa, prf, round, peer, payloads)?;
    let Some(auth) = read.auth else {
        // "An initiator indicates a desire to use EAP by leaving out the AUTH payload" (RFC 7296
        // section 2.16).
        return Err(Authentication::Eap { peer: peer.clone() }.into());
    };
    let auth = if round == 0 { judge_ppk(cx, sa, payloads, auth)? } else { auth.clone() };
    Ok(Claim { id: idi.clone(), auth, looking, verifier })
}

/// Moves the IKE_SA to the connection that the peer belongs to, and returns a line for the log.
/// `asked` is the identity of ours that the peer asks for.
fn find_connection(
    cx: &mut Context<'_>,
    sa: &mut IkeSa,
    (method, follows): (Option<AuthMethod>, bool),
    peer: &Identity,
    asked: Option<&Identity>,
) -> Result<String, Diagnosis> {
    let (local, remote) = (sa.local().ip(), sa.remote().ip());
    let looking = format!(
        "looking for peer configs matching {local}[{}]...{remote}[{peer}]",
        asked.map_or_else(|| "%any".to_owned(), ToString::to_string)
    );
    let found = sa
        .suite()
        .and_then(|suite| cx.select_by_identity(local, remote, &suite, (method, follows), peer, asked));
    let Some(conn) = found else { return Err(no_peer(cx, sa, peer, asked).into()) };
    if !std::sync::Arc::ptr_eq(&conn, sa.conn()) {
        cx.move_to_conn(sa, conn);
    }
    if cx.claims_to_be_us(sa, peer) {
        return Err(Authentication::OurIdentity { peer: peer.clone() }.into());
    }
    let chosen = cx.explain_choice(sa, (method, follows), &ConnectionClaim { local, remote, peer, asked });
    if let Some(init) = sa.init_mut() {
        init.auth.chosen = chosen.map(Box::new);
    }
    Ok(looking)
}

/// Moves the IKE_SA to a connection that the peer belongs to by its identity in a further round,
/// unless it belongs to the present one.
fn find_round(
    cx: &mut Context<'_>,
    sa: &mut IkeSa,
    round: usize,
    (method, follows): (Option<AuthMethod>, bool),
    peer: &Identity,
) -> Result<(), Diagnosis> {
    if !cx.fits_round(sa.conn(), (round, peer), (method, follows)) {
        let found =
            sa.suite().and_then(|suite| cx.select_by_round(sa, &suite, (round, peer), (method, follows)));
        if let Some(conn) = found {
            // What both sides have agreed on before is judged by this connection as well.
            cx.move_to_conn(sa, conn);
            if let Some(init) = sa.init() {
                ppk::is_enough(sa.conn(), &init.ppk)?;
            }
        }
    }
    let required = rounds::their_side(sa.conn(), round).1;
    if !required.matches(peer) {
        return Err(Authentication::OtherPeer { peer: peer.clone(), required: required.clone() }.into());
    }
    if cx.policy().claims_to_be_us(required, &our_identity(sa, round), peer) {
        return Err(Authentication::OurIdentity { peer: peer.clone() }.into());
    }
    Ok(())
}

/// Compares the request's post-quantum preshared key with ours, and returns the AUTH to be
/// verified.
fn judge_ppk(cx: &Context<'_>, sa: &mut IkeSa, payloads: &[Payload], auth: &Auth) -> Result<Auth, Diagnosis> {
    let (Some(init), Some(keys)) = (sa.init(), sa.keys()) else { return Ok(auth.clone()) };
    let (mut used, mut unused, mut proof) = (None, None, auth.clone());
    match ppk::judge_request(cx.policy(), sa.conn(), &init.ppk, keys, payloads)? {
        ppk::Judged::Standard => {}
        ppk::Judged::Used(ppk) => used = Some(ppk),
        ppk::Judged::Without(id, data) => {
            // "Authentication Method is still indicated in the AUTH payload" (RFC 8784 section 3).
            proof.data = data;
            unused = Some(ppk::Unused::Absent(id));
        }
    }
    if let Some(init) = sa.init_mut() {
        init.ppk.used = used;
        if unused.is_some() {
            init.ppk.unused = unused;
        }
    }
    Ok(proof)
}

/// No connection is for this peer: the connections for its address, and why each does not fit.
fn no_peer(cx: &Context<'_>, sa: &IkeSa, peer: &Identity, asked: Option<&Identity>) -> Authentication {
    let (local, remote) = (sa.local().ip(), sa.remote().ip());
    let candidates = cx.policy().for_addresses(local, remote, CANDIDATES).into_iter().map(|c| {
        let ours = c.local_identity(local);
        let is_asked = |asked: &Identity| IdPattern::Exact(ours.clone()).matches(asked);
        let misfit = match (c.remote_id.matches(peer), asked.is_none_or(is_asked)) {
            (false, _) => Misfit::Peer,
            (true, false) => Misfit::Ours,
            (true, true) => Misfit::Proposals,
        };
        Candidate { name: c.name.clone(), ours, peer: c.remote_id.clone(), misfit }
    });
    let candidates = candidates.collect();
    Authentication::NoPeer {
        local,
        asked: asked.cloned().map(Box::new),
        remote,
        peer: peer.clone(),
        candidates,
    }
}

fn verified(cx: &mut Context<'_>, sa: &mut IkeSa, x: AnswerAuth, step: Step<()>) {
    match (step, &x.claim) {
        (Step::Done(()), _) => prove(cx, sa, x),
        (Step::Ask(request), _) => cx.wait_for(sa, request, x),
        (Step::Refused(why), _) => refuse(cx, sa, &why),
        (Step::Failed(fault), Some(claim)) => {
            refuse(cx, sa, &no_proof(sa, done(sa).1, &claim.id.identity, &claim.auth, fault));
        }
        (Step::Failed(_), None) => {}
    }
}

/// The peer is who it says: looks whether it may have what it asks for, and makes AUTH of our side.
fn prove(cx: &mut Context<'_>, sa: &mut IkeSa, x: AnswerAuth) {
    let (ours, theirs) = done(sa);
    if let Some(claim) = &x.claim {
        if theirs == 0 {
            sa.set_remote_id(claim.id.identity.clone());
        }
        // The identity of any round can be what tells the peer's connection.
        if let Err(why) = authorise(sa, asks_for_child(first_payloads(sa, &x))) {
            return refuse(cx, sa, &why.into());
        }
    }
    let Some(prover) = &x.prover else { return go_on(cx, sa, x, None) };
    let Some(octets) = our_octets(sa, &Id::new(our_identity(sa, ours))) else { return };
    let step = prover.prove(octets);
    proved(cx, sa, AnswerAuth { proving: true, ..x }, step);
}

/// Compares the first request with `childless`, before other IKE_SAs are given up for this one.
fn authorise(sa: &IkeSa, with_child: bool) -> Result<(), Authentication> {
    match (sa.conn().childless, with_child) {
        (Childless::Never, false) | (Childless::Force, true) => Err(Authentication::Childless { with_child }),
        _ => Ok(()),
    }
}

fn proved(cx: &mut Context<'_>, sa: &mut IkeSa, x: AnswerAuth, step: Step<Auth>) {
    match step {
        Step::Done(auth) => go_on(cx, sa, x, Some(auth)),
        Step::Ask(request) => cx.wait_for(sa, request, x),
        Step::Failed(_) | Step::Refused(_) => {
            let why = Authentication::CannotSign { ours: our_identity(sa, done(sa).0) };
            refuse(cx, sa, &why.into());
        }
    }
}

/// AUTH of our side is made: answers this round, or after the last one asks whether the peer gets
/// the IKE_SA.
fn go_on(cx: &mut Context<'_>, sa: &mut IkeSa, x: AnswerAuth, auth: Option<Auth>) {
    let (ours, theirs) = done(sa);
    let (ours, theirs) = (ours + usize::from(auth.is_some()), theirs + usize::from(x.claim.is_some()));
    if ours < rounds::of_ours(sa.conn()) || theirs < rounds::of_theirs(sa.conn()) {
        let response = our_proof(sa, &x, auth);
        let lines = lines(sa, &x);
        if let Some(init) = sa.init_mut() {
            (init.auth.ours, init.auth.theirs) = (ours, theirs);
            let payloads = x.payloads;
            let first = init.auth.first.get_or_insert_with(|| rounds::First { payloads, lines: Vec::new() });
            first.lines.extend(lines);
        }
        return cx.respond(sa, &response);
    }
    if let Err(why) = mobike::admits_way(sa, first_payloads(sa, &x)) {
        return refuse(cx, sa, &why.into());
    }
    let Some(peer) = sa.remote_id().cloned() else { return };
    let initial_contact = sa.asked().is_some_and(|asked| asked.initial_contact);
    let then = Box::new(move |cx: &mut Context<'_>, sa: &mut IkeSa, admitted: Result<(), Diagnosis>| {
        match admitted {
            Ok(()) => establish(cx, sa, x, auth),
            // Who is refused keeps what it has.
            Err(why) => refuse(cx, sa, &why),
        }
    });
    cx.effect(Effect::Admit { peer, initial_contact, then });
}

/// Lines for the log about what both sides have proved in a round.
fn lines(sa: &IkeSa, x: &AnswerAuth) -> Vec<(Level, String)> {
    let mut lines = Vec::new();
    if let Some(claim) = &x.claim {
        if let Some(looking) = &claim.looking {
            lines.push((Level::Info, looking.clone()));
            lines.push((Level::Info, format!("selected peer config '{}'", sa.conn().name)));
        }
        for doubt in claim.verifier.doubts() {
            let line = format!("the revocation status of a certificate is unknown: {doubt}");
            lines.push((Level::Warn, line));
        }
        if let Some(chain) = claim.verifier.chain() {
            lines.push((Level::Info, format!("using certificate chain {chain}")));
        }
        let (peer, name) = (&claim.id.identity, claim.verifier.name());
        lines.push((Level::Info, format!("authentication of '{peer}' with {name} successful")));
    }
    if let Some(prover) = &x.prover {
        let (ours, name) = (our_identity(sa, done(sa).0), prover.name());
        lines.push((Level::Info, format!("authentication of '{ours}' (myself) with {name}")));
    }
    lines
}

/// Payloads of the response that prove who we are, and what follows them.
fn our_proof(sa: &IkeSa, x: &AnswerAuth, auth: Option<Auth>) -> Vec<Payload> {
    let (round, theirs) = done(sa);
    let (Some(prover), Some(auth)) = (&x.prover, auth) else { return Vec::new() };
    let mut response = vec![Payload::IdR(Id::new(our_identity(sa, round)))];
    response.extend(certificate::payloads(prover.chain()));
    response.push(Payload::Auth(auth));
    if theirs == 0 && sa.init().is_some_and(|init| init.ppk.used.is_some()) {
        response.push(ppk::confirmation());
    }
    if round + 1 < rounds::of_ours(sa.conn()) {
        response.push(rounds::another());
    }
    response
}

/// Establishes the IKE_SA with its child, and responds.
fn establish(cx: &mut Context<'_>, sa: &mut IkeSa, x: AnswerAuth, auth: Option<Auth>) {
    let mut response = our_proof(sa, &x, auth);
    let last = lines(sa, &x);
    let first = sa.init_mut().and_then(|init| init.auth.first.take());
    let (payloads, lines) = first.map_or((x.payloads, Vec::new()), |first| (first.payloads, first.lines));
    for (level, line) in lines.into_iter().chain(last) {
        cx.log(level, sa, line);
    }
    response.extend(qcd::token(cx, sa));
    let nonces = sa.init().map(|i| (i.ni.clone(), i.nr.clone()));
    let chosen = sa.init_mut().and_then(|init| init.auth.chosen.take());
    cx.establish(sa);
    if let Some(chosen) = chosen {
        cx.log_why(Level::Info, sa, "", &(*chosen).into());
    }
    if let (true, Some((ni, nr))) = (asks_for_child(&payloads), nonces)
        && let Err(why) = answer_child::answer_first(cx, sa, &payloads, ni, nr, &mut response)
    {
        return cx.refuse_syntax(sa, why);
    }
    response.extend(cx.auth_lifetime(sa));
    mobike::agree(sa, &payloads);
    if sa.mobility().agreed {
        response.extend(mobike::offer(cx, sa));
    }
    cx.respond(sa, &response);
}

/// Says no, and forgets the IKE_SA.
fn refuse(cx: &mut Context<'_>, sa: &mut IkeSa, why: &Diagnosis) {
    let unproved = match why {
        Diagnosis::Authentication(why) => why.is_unproved(),
        Diagnosis::Configuration(_) => true,
        _ => false,
    };
    cx.counters().auth_failed += u64::from(unproved);
    // A key exchange is all that an attempt costs its sender.
    if cx.may_write(sa.remote().ip(), About::Authentication) {
        let context = format!("refused IKE_SA {} of {}", sa.name(), sa.remote());
        cx.log_why(Level::Error, sa, &context, why);
    }
    cx.respond_why(sa, why);
    cx.bury(sa);
    sa.set_state(IkeState::Deleting);
    cx.close(sa, Close::Failed(why.clone()));
}
