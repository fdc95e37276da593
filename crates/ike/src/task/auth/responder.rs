//! IKE_AUTH as responder. Only who has done the key exchange with us comes here, so no address is
//! forged.

use std::time::Instant;

use ironswan_wire::iana::NotifyType;
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::{Auth, Id, find_notify};

use super::super::answer_child;
use super::super::exchange::Exchange;
use super::super::state::AUTH_NAME;
use super::{our_octets, our_own, prover, their_octets, verifier};
use crate::auth::{Prover, Step, Verifier};
use crate::endpoint::{About, Close, Endpoint};
use crate::event::{Completion, IkeState, Level};
use crate::sa::IkeSa;
use ironswan_keying::Childless;

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
    fn resume(self: Box<Self>, ep: &mut Endpoint, now: Instant, sa: &mut IkeSa, completion: Completion) {
        if let Completion::Failed { error } = completion {
            // An honest peer asks again.
            return ep.close_ike(now, sa, Close::Failed(error));
        }
        if self.proving {
            let step = self.prover.resume(completion);
            proved(ep, now, sa, *self, step);
        } else {
            let step = self.verifier.resume(completion);
            verified(ep, now, sa, *self, step);
        }
    }

    fn name(&self) -> &'static str {
        AUTH_NAME
    }

    fn is_of_peer(&self) -> bool {
        true
    }
}

/// Why the peer gets no IKE_SA.
struct Refusal {
    kind: NotifyType,
    why: String,
    /// The peer has not proved who it is, or we lack what it takes.
    unproved: bool,
}

impl Refusal {
    fn new(kind: NotifyType, why: impl Into<String>) -> Self {
        Self { kind, why: why.into(), unproved: false }
    }

    fn unproved(why: impl Into<String>) -> Self {
        Self { unproved: true, ..Self::new(NotifyType::AUTHENTICATION_FAILED, why) }
    }
}

pub(crate) fn answer(ep: &mut Endpoint, now: Instant, sa: &mut IkeSa, payloads: &[Payload]) {
    match identify(ep, sa, payloads) {
        Ok(x) => {
            let step = x.verifier.verify(their_octets(sa, &x.id), &x.auth);
            verified(ep, now, sa, x, step);
        }
        Err(no) => refuse(ep, now, sa, no),
    }
}

/// Finds the connection that the peer belongs to, and the methods and keys of both sides.
fn identify(ep: &mut Endpoint, sa: &mut IkeSa, payloads: &[Payload]) -> Result<AnswerAuth, Refusal> {
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
    let (Some(idi), Some(suite)) = (idi, sa.suite) else {
        return Err(Refusal::new(NotifyType::INVALID_SYNTAX, "the IKE_AUTH request lacks IDi"));
    };
    // Requests "where the whole message is malformed ... MUST be rejected in their entirety, and
    // MUST only lead to an UNSUPPORTED_CRITICAL_PAYLOAD or INVALID_SYNTAX Notification sent as a
    // response" (RFC 7296 section 2.21.2).
    if !matches!(of_child, 0 | 3) {
        let why = "the IKE_AUTH request has a part of SA, TSi and TSr only";
        return Err(Refusal::new(NotifyType::INVALID_SYNTAX, why));
    }
    let peer = &idi.identity;
    let asked = idr.map(|p| &p.identity);
    let (local, remote) = (sa.local.ip(), sa.remote.ip());
    let looking = format!(
        "looking for peer configs matching {local}[{}]...{remote}[{peer}]",
        asked.map_or_else(|| "%any".to_owned(), ToString::to_string)
    );
    let Some(conn) = ep.select_by_identity(local, remote, &suite, auth.map(|a| a.method), peer, asked) else {
        let known: Vec<_> = ep
            .policy()
            .for_addresses(local, remote, 8)
            .iter()
            .map(|c| format!("{}: {}...{}", c.name, c.local_identity(local), c.remote_id))
            .collect();
        let why = format!(
            "no matching peer config found ({looking}); configured for these addresses: {}",
            known.join(", ")
        );
        return Err(Refusal::new(NotifyType::AUTHENTICATION_FAILED, why));
    };
    if !std::sync::Arc::ptr_eq(&conn, &sa.conn) {
        ep.move_to_conn(sa, conn);
    }
    if ep.claims_to_be_us(sa, peer) {
        return Err(Refusal::unproved(our_own(peer)));
    }
    let verifier = verifier(ep, sa, peer).map_err(Refusal::unproved)?;
    let Some(auth) = auth else {
        // "An initiator indicates a desire to use EAP by leaving out the AUTH payload" (RFC 7296
        // section 2.16).
        let why = format!("'{peer}' sends no AUTH, which asks for EAP, and EAP is not built");
        return Err(Refusal::unproved(why));
    };
    let prover = prover(ep, sa, peer).map_err(Refusal::unproved)?;
    Ok(AnswerAuth {
        payloads: payloads.to_vec(),
        id: idi.clone(),
        auth: auth.clone(),
        looking,
        with_child: of_child == 3,
        verifier,
        prover,
        proving: false,
    })
}

fn verified(ep: &mut Endpoint, now: Instant, sa: &mut IkeSa, x: AnswerAuth, step: Step<()>) {
    match step {
        Step::Done(()) => prove(ep, now, sa, x),
        Step::Ask(request) => ep.wait_for(sa, request, x),
        Step::Failed(why) => {
            let why = format!(
                "authentication of '{}' with {} failed: {why} (for '{}')",
                x.id.identity, x.auth.method, sa.local_id
            );
            refuse(ep, now, sa, Refusal::unproved(why));
        }
    }
}

/// The peer is who it says: looks whether it may have what it asks for, and makes AUTH of our side.
fn prove(ep: &mut Endpoint, now: Instant, sa: &mut IkeSa, x: AnswerAuth) {
    sa.remote_id = Some(x.id.identity.clone());
    if let Err(no) = authorise(sa, &x) {
        return refuse(ep, now, sa, no);
    }
    let Some(octets) = our_octets(sa, &Id::new(sa.local_id.clone())) else { return };
    let step = x.prover.prove(octets);
    proved(ep, now, sa, AnswerAuth { proving: true, ..x }, step);
}

/// Compares the request with `childless`, before other IKE_SAs are given up for this one.
fn authorise(sa: &IkeSa, x: &AnswerAuth) -> Result<(), Refusal> {
    let kind = match sa.conn.childless {
        // What a responder does that does not know RFC 6023: payloads are missing.
        Childless::Never if !x.with_child => NotifyType::INVALID_SYNTAX,
        Childless::Force if x.with_child => NotifyType::AUTHENTICATION_FAILED,
        _ => return Ok(()),
    };
    let what = if x.with_child { "with" } else { "without" };
    let why = format!("the peer asks for an IKE_SA {what} CHILD_SA, which `childless` does not allow");
    Err(Refusal::new(kind, why))
}

fn proved(ep: &mut Endpoint, now: Instant, sa: &mut IkeSa, x: AnswerAuth, step: Step<Auth>) {
    match step {
        Step::Done(auth) => establish(ep, now, sa, &x, auth),
        Step::Ask(request) => ep.wait_for(sa, request, x),
        Step::Failed(why) => {
            let why = format!("authentication of '{}' (myself) failed: {why}", sa.local_id);
            refuse(ep, now, sa, Refusal::new(NotifyType::AUTHENTICATION_FAILED, why));
        }
    }
}

/// Makes room for the IKE_SA, establishes it with its child, and responds.
fn establish(ep: &mut Endpoint, now: Instant, sa: &mut IkeSa, x: &AnswerAuth, auth: Auth) {
    let peer = &x.id.identity;
    let initial_contact = find_notify(&x.payloads, NotifyType::INITIAL_CONTACT).is_some();
    let Some(leaving) = ep.check_unique(sa, peer, initial_contact) else {
        let why = "an IKE_SA with this peer exists and is kept";
        return refuse(ep, now, sa, Refusal::new(NotifyType::AUTHENTICATION_FAILED, why));
    };
    // Nothing but AUTHENTICATION_FAILED says that there is to be no IKE_SA (RFC 7296 section
    // 2.21.2). Who is refused keeps what it has.
    if let Some(why) = ep.make_room(now, sa, peer, &leaving) {
        ep.counters.id_refused += 1;
        return refuse(ep, now, sa, Refusal::new(NotifyType::AUTHENTICATION_FAILED, why));
    }
    ep.end_replaced(now, sa, peer, leaving);
    ep.log(Level::Info, sa, x.looking.clone());
    let line = format!("selected peer config '{}'", sa.conn.name);
    ep.log(Level::Info, sa, line);
    let line = format!("authentication of '{peer}' with {} successful", x.verifier.name());
    ep.log(Level::Info, sa, line);
    let line = format!("authentication of '{}' (myself) with {}", sa.local_id, x.prover.name());
    ep.log(Level::Info, sa, line);
    let mut response = vec![Payload::IdR(Id::new(sa.local_id.clone())), Payload::Auth(auth)];
    let nonces = sa.init.as_ref().map(|i| (i.ni.clone(), i.nr.clone()));
    ep.establish(now, sa);
    if let (true, Some((ni, nr))) = (x.with_child, nonces)
        && let Err(why) = answer_child::answer_first(ep, now, sa, &x.payloads, ni, nr, &mut response)
    {
        return ep.refuse_syntax(now, sa, why);
    }
    ep.respond(sa, &response);
}

/// Says no, and forgets the IKE_SA.
fn refuse(ep: &mut Endpoint, now: Instant, sa: &mut IkeSa, no: Refusal) {
    ep.counters.auth_failed += u64::from(no.unproved);
    // A key exchange is all that an attempt costs its sender.
    if ep.may_write(now, sa.remote.ip(), About::Authentication) {
        let line = format!("refused IKE_SA {} of {}: {}", sa.name(), sa.remote, no.why);
        ep.log(Level::Error, sa, line);
    }
    ep.respond_notify(sa, no.kind, []);
    ep.bury(now, sa);
    sa.state = IkeState::Deleting;
    ep.close_ike(now, sa, Close::Failed(no.why));
}
