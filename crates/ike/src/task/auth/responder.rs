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
use super::{no_proof, our_octets, prover, resume_proof, their_octets, verifier};
use crate::auth::{Prover, Step, Verifier, certificate, ppk};
use crate::context::{Context, Effect};
use crate::endpoint::About;
use crate::endpoint::Close;
use crate::event::{Completion, IkeState, Level};
use crate::sa::{Asked, IkeSa};
use ironswan_keying::diagnosis::{Authentication, CANDIDATES, Candidate, KeyExchange, Misfit};
use ironswan_keying::{Childless, Diagnosis};

/// The peer's IKE_AUTH request on its way through the phases.
struct AnswerAuth {
    payloads: Vec<Payload>,
    /// The peer, as it says.
    id: Id,
    auth: Auth,
    /// The line that says which connection was looked for. It is written when the peer is let in,
    /// for whoever fails is written about in one line, and not without end.
    looking: String,
    /// The request has a child.
    with_child: bool,
    verifier: Box<dyn Verifier>,
    prover: Box<dyn Prover>,
    /// The peer is verified and authorised, and AUTH of our side is made.
    proving: bool,
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
            match resume_proof(cx, sa, &*self.prover, completion) {
                Ok(step) => proved(cx, sa, *self, step),
                Err(why) => refuse(cx, sa, &why),
            }
        } else {
            if !self.verifier.is_current(cx.policy()) {
                // The same for certificates of a CA that is not loaded any more.
                return answer(cx, sa, &self.payloads);
            }
            let step = self.verifier.resume(completion);
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
    match identify(cx, sa, payloads) {
        Ok(mut x) => {
            let step = x.verifier.verify(their_octets(sa, &x.id), &x.auth);
            verified(cx, sa, x, step);
        }
        Err(why) => refuse(cx, sa, &why),
    }
}

/// True when the IKE_SA has its connection as it is loaded now.
fn is_loaded(cx: &Context<'_>, sa: &IkeSa) -> bool {
    let loaded = cx.policy().connection(&sa.conn().name);
    loaded.is_some_and(|conn| std::sync::Arc::ptr_eq(&conn, sa.conn()))
}

/// Finds the connection that the peer belongs to, and the methods and keys of both sides.
fn identify(cx: &mut Context<'_>, sa: &mut IkeSa, payloads: &[Payload]) -> Result<AnswerAuth, Diagnosis> {
    let (mut idi, mut idr, mut auth, mut of_child) = (None, None, None, 0);
    for p in payloads {
        match p {
            Payload::IdI(p) => idi = Some(p),
            Payload::IdR(p) => idr = Some(p),
            Payload::Auth(p) => auth = Some(p),
            // Each comes once at most.
            Payload::Sa(_) | Payload::TsI(_) | Payload::TsR(_) => of_child += 1,
            _ => {}
        }
    }
    let message = "IKE_AUTH request";
    let prf = sa.keys().map(|keys| keys.prf);
    let (Some(idi), Some(prf)) = (idi, prf) else {
        return Err(KeyExchange::MissingPayload { message, needs: "IDi" }.into());
    };
    // Requests "where the whole message is malformed ... MUST be rejected in their entirety, and
    // MUST only lead to an UNSUPPORTED_CRITICAL_PAYLOAD or INVALID_SYNTAX Notification sent as a
    // response" (RFC 7296 section 2.21.2).
    if !matches!(of_child, 0 | 3) {
        return Err(KeyExchange::MissingPayload { message, needs: "SA, TSi and TSr" }.into());
    }
    let peer = &idi.identity;
    let looking = find_connection(cx, sa, auth.map(|a| a.method), peer, idr.map(|p| &p.identity))?;
    let verifier = verifier(cx, sa, prf, peer, payloads)?;
    let Some(auth) = auth else {
        // "An initiator indicates a desire to use EAP by leaving out the AUTH payload" (RFC 7296
        // section 2.16).
        return Err(Authentication::Eap { peer: peer.clone() }.into());
    };
    let auth = judge_ppk(cx, sa, payloads, auth)?;
    sa.asked_for_certificate(certificate::asked(payloads));
    let prover = prover(cx, sa, prf, peer)?;
    let initial_contact = find_notify(payloads, NotifyType::INITIAL_CONTACT).is_some();
    sa.ask(Asked { at: cx.now(), initial_contact });
    Ok(AnswerAuth {
        payloads: payloads.to_vec(),
        id: idi.clone(),
        auth,
        looking,
        with_child: of_child == 3,
        verifier,
        prover,
        proving: false,
    })
}

/// Moves the IKE_SA to the connection that the peer belongs to, and returns a line for the log.
/// `asked` is the identity of ours that the peer asks for.
fn find_connection(
    cx: &mut Context<'_>,
    sa: &mut IkeSa,
    method: Option<AuthMethod>,
    peer: &Identity,
    asked: Option<&Identity>,
) -> Result<String, Diagnosis> {
    let (local, remote) = (sa.local().ip(), sa.remote().ip());
    let looking = format!(
        "looking for peer configs matching {local}[{}]...{remote}[{peer}]",
        asked.map_or_else(|| "%any".to_owned(), ToString::to_string)
    );
    let found =
        sa.suite().and_then(|suite| cx.select_by_identity(local, remote, &suite, method, peer, asked));
    let Some(conn) = found else { return Err(no_peer(cx, sa, peer, asked).into()) };
    if !std::sync::Arc::ptr_eq(&conn, sa.conn()) {
        cx.move_to_conn(sa, conn);
    }
    if cx.claims_to_be_us(sa, peer) {
        return Err(Authentication::OurIdentity { peer: peer.clone() }.into());
    }
    Ok(looking)
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
    match step {
        Step::Done(()) => prove(cx, sa, x),
        Step::Ask(request) => cx.wait_for(sa, request, x),
        Step::Refused(why) => refuse(cx, sa, &why),
        Step::Failed(fault) => refuse(cx, sa, &no_proof(sa, &x.id.identity, &x.auth, fault)),
    }
}

/// The peer is who it says: looks whether it may have what it asks for, and makes AUTH of our side.
fn prove(cx: &mut Context<'_>, sa: &mut IkeSa, x: AnswerAuth) {
    sa.set_remote_id(x.id.identity.clone());
    if let Err(why) = authorise(sa, &x) {
        return refuse(cx, sa, &why.into());
    }
    let Some(octets) = our_octets(sa, &Id::new(sa.local_id().clone())) else { return };
    let step = x.prover.prove(octets);
    proved(cx, sa, AnswerAuth { proving: true, ..x }, step);
}

/// Compares the request with `childless`, before other IKE_SAs are given up for this one.
fn authorise(sa: &IkeSa, x: &AnswerAuth) -> Result<(), Authentication> {
    match (sa.conn().childless, x.with_child) {
        (Childless::Never, false) | (Childless::Force, true) => {
            Err(Authentication::Childless { with_child: x.with_child })
        }
        _ => Ok(()),
    }
}

fn proved(cx: &mut Context<'_>, sa: &mut IkeSa, x: AnswerAuth, step: Step<Auth>) {
    match step {
        Step::Done(auth) => ask(cx, sa, x, auth),
        Step::Ask(request) => cx.wait_for(sa, request, x),
        Step::Failed(_) | Step::Refused(_) => {
            let why = Authentication::CannotSign { ours: sa.local_id().clone() };
            refuse(cx, sa, &why.into());
        }
    }
}

/// AUTH of our side is made: asks whether the peer gets the IKE_SA.
fn ask(cx: &mut Context<'_>, sa: &IkeSa, x: AnswerAuth, auth: Auth) {
    let peer = x.id.identity.clone();
    let initial_contact = sa.asked().is_some_and(|asked| asked.initial_contact);
    let then = Box::new(move |cx: &mut Context<'_>, sa: &mut IkeSa, admitted: Result<(), Diagnosis>| {
        match admitted {
            Ok(()) => establish(cx, sa, &x, auth),
            // Who is refused keeps what it has.
            Err(why) => refuse(cx, sa, &why),
        }
    });
    cx.effect(Effect::Admit { peer, initial_contact, then });
}

/// Establishes the IKE_SA with its child, and responds.
fn establish(cx: &mut Context<'_>, sa: &mut IkeSa, x: &AnswerAuth, auth: Auth) {
    let peer = &x.id.identity;
    cx.log(Level::Info, sa, x.looking.clone());
    let line = format!("selected peer config '{}'", sa.conn().name);
    cx.log(Level::Info, sa, line);
    for doubt in x.verifier.doubts() {
        cx.log(Level::Warn, sa, format!("the revocation status of a certificate is unknown: {doubt}"));
    }
    if let Some(chain) = x.verifier.chain() {
        cx.log(Level::Info, sa, format!("using certificate chain {chain}"));
    }
    let line = format!("authentication of '{peer}' with {} successful", x.verifier.name());
    cx.log(Level::Info, sa, line);
    let line = format!("authentication of '{}' (myself) with {}", sa.local_id(), x.prover.name());
    cx.log(Level::Info, sa, line);
    let mut response = vec![Payload::IdR(Id::new(sa.local_id().clone()))];
    response.extend(certificate::payloads(x.prover.chain()));
    response.push(Payload::Auth(auth));
    if sa.init().is_some_and(|init| init.ppk.used.is_some()) {
        response.push(ppk::confirmation());
    }
    response.extend(qcd::token(cx, sa));
    let nonces = sa.init().map(|i| (i.ni.clone(), i.nr.clone()));
    cx.establish(sa);
    if let (true, Some((ni, nr))) = (x.with_child, nonces)
        && let Err(why) = answer_child::answer_first(cx, sa, &x.payloads, ni, nr, &mut response)
    {
        return cx.refuse_syntax(sa, why);
    }
    response.extend(cx.auth_lifetime(sa));
    mobike::agree(sa, &x.payloads);
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
