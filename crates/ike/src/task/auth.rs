//! IKE_AUTH (RFC 7296 section 1.2): identities, AUTH, and the first CHILD_SA.
//!
//! ```text
//! HDR, SK {IDi, [N(INITIAL_CONTACT)], [IDr,] AUTH, [SAi2, TSi, TSr]}  -->
//!                      <--  HDR, SK {IDr, AUTH, SAr2, TSi, TSr}
//!                      <--  HDR, SK {IDr, AUTH, N(NO_PROPOSAL_CHOSEN | TS_UNACCEPTABLE | ...)}   the IKE_SA stays
//!                      <--  HDR, SK {N(AUTHENTICATION_FAILED)}                                   it does not
//! ```

use std::time::Instant;

use ironswan_wire::iana::{AuthMethod, ExchangeType, NotifyType};
use ironswan_wire::id::{IdPattern, Identity};
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::{Auth, Delete, Id, Notify, find_notify, notifies};
use ironswan_wire::secret::Secret;

use super::create_child::{self, NewChild};
use super::{Task, answer_child, restart};
use crate::auth::{SignedOctets, psk};
use crate::endpoint::{About, Close, Endpoint};
use crate::event::{IkeState, Level};
use crate::negotiate::KeRule;
use crate::sa::IkeSa;
use ironswan_keying::Childless;

/// The PSK for this pair and its name, or the line that says there is none.
fn key(ep: &Endpoint, local: &Identity, remote: &Identity) -> Result<(Secret, String), String> {
    match ep.policy().shared_key(local, remote) {
        Some(k) => Ok((k.secret.clone(), k.name.clone())),
        None => Err(format!("no shared key found for '{local}' - '{remote}'")),
    }
}

/// AUTH of our side.
fn our_auth(sa: &IkeSa, psk: &Secret, id_body: &[u8]) -> Option<Payload> {
    let (keys, init) = (sa.keys.as_ref()?, sa.init.as_ref()?);
    let (message, nonce) = if sa.initiator { (&init.request, &init.nr) } else { (&init.response, &init.ni) };
    let octets = SignedOctets { message, nonce, sk_p: &keys.p_ours, id_body };
    let data = psk::auth(keys.prf, psk, &octets).expose().to_vec();
    Some(Payload::Auth(Auth { method: AuthMethod::PSK, data }))
}

/// Whether the peer's AUTH is right.
fn check_auth(sa: &IkeSa, psk: &Secret, id: &Id, auth: &Auth) -> bool {
    let (Some(keys), Some(init)) = (sa.keys.as_ref(), sa.init.as_ref()) else { return false };
    let (message, nonce) = if sa.initiator { (&init.response, &init.ni) } else { (&init.request, &init.nr) };
    let id_body = id.body();
    let signed = |message: &Vec<u8>| {
        let octets = SignedOctets { message, nonce, sk_p: &keys.p_theirs, id_body: &id_body };
        psk::verify(keys.prf, psk, &octets, &auth.data)
    };
    auth.method == AuthMethod::PSK && (signed(message) || (!init.twin.is_empty() && signed(&init.twin)))
}

/// "the only ones to cause the IKE SA to be deleted or not created, without a Delete payload", in IKE_AUTH "or in the
/// INFORMATIONAL exchange immediately following it" (RFC 7296 section 2.21.2).
pub(crate) fn is_fatal(kind: NotifyType) -> bool {
    matches!(
        kind,
        NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD
            | NotifyType::INVALID_SYNTAX
            | NotifyType::AUTHENTICATION_FAILED
    )
}

/// Whom we expect to meet, for finding the key before the peer has said who it is.
fn expected_peer(sa: &IkeSa) -> Identity {
    match &sa.conn.remote_id {
        IdPattern::Exact(id) => id.clone(),
        _ => Identity::from_addr(sa.remote.ip()),
    }
}

// ---- initiator ----

pub(crate) fn build(ep: &mut Endpoint, now: Instant, sa: &mut IkeSa) {
    let expected = expected_peer(sa);
    let (psk, _) = match key(ep, &sa.local_id, &expected) {
        Ok(found) => found,
        Err(line) => {
            ep.log(Level::Error, sa, line.clone());
            return ep.close_ike(now, sa, Close::Failed(line));
        }
    };
    let id = Id::new(sa.local_id.clone());
    let Some(auth) = our_auth(sa, &psk, &id.body()) else { return };
    let mut payloads = vec![Payload::IdI(id)];
    // "This notification asserts that this IKE SA is the only IKE SA currently active between the authenticated
    // identities" (RFC 7296 section 2.4).
    if ep.is_initial_contact(sa) {
        payloads.push(Payload::Notify(Notify::new(NotifyType::INITIAL_CONTACT, [])));
    }
    if let IdPattern::Exact(id) = &sa.conn.remote_id {
        payloads.push(Payload::IdR(Id::new(id.clone())));
    }
    payloads.push(auth);
    let line = format!("authentication of '{}' (myself) with pre-shared key", sa.local_id);
    ep.log(Level::Info, sa, line);

    // RFC 6023: without the responder's CHILDLESS_IKEV2_SUPPORTED, it would not understand an IKE_AUTH without child.
    let offered = sa.init.as_ref().is_some_and(|init| init.childless);
    let (mut child, mut refused) = (None, Vec::new());
    let alone = match sa.conn.childless {
        Childless::Force => true,
        Childless::Prefer => offered,
        Childless::Allow | Childless::Never => false,
    };
    while child.is_none() && !alone {
        let first = sa.queue.iter().position(|t| matches!(t, Task::Child(n) if n.rekey.is_none()));
        let Some(Task::Child(mut new)) = first.and_then(|at| sa.queue.remove(at)) else { break };
        // The first child has the IKE_SA's own key exchange.
        match create_child::prepare(ep, sa, &mut new, KeRule::Ignore) {
            Ok(()) => child = Some(new),
            Err(why) => {
                let line = format!("establishing CHILD_SA {} failed: {why}", new.config.name);
                ep.log(Level::Error, sa, line);
                refused.push((new, why));
            }
        }
    }
    match (&child, refused.last()) {
        // Nobody asked for an IKE_SA without any child.
        (None, Some((_, why))) if sa.ticket.is_none() => {
            let why = (*why).to_owned();
            sa.queue.extend(refused.into_iter().map(|(new, _)| Task::Child(new)));
            return ep.close_ike(now, sa, Close::Failed(why));
        }
        (Some(new), _) => {
            let line = format!("establishing CHILD_SA {}{{{}}}", new.config.name, new.id.0);
            ep.log(Level::Info, sa, line);
            payloads.extend(create_child::sa_and_ts(new, Vec::new()));
        }
        _ => {}
    }
    for (new, why) in refused {
        ep.fail_task(Task::Child(new), why);
    }
    if child.is_none() && (!offered || sa.conn.childless == Childless::Never) {
        let why = match sa.conn.childless {
            Childless::Never => "an IKE_SA without CHILD_SA is not made with childless = never",
            _ => "the peer does not support IKE_SAs without CHILD_SA (RFC 6023)",
        };
        return ep.close_ike(now, sa, Close::Failed(why.to_owned()));
    }
    ep.send_request(now, sa, ExchangeType::IKE_AUTH, Task::Auth(child), &payloads);
    restart::hurry_auth(ep, now, sa);
}

pub(crate) fn process(
    ep: &mut Endpoint,
    now: Instant,
    sa: &mut IkeSa,
    child: Option<Box<NewChild>>,
    payloads: &[Payload],
) {
    let (mut idr, mut auth) = (None, None);
    for p in payloads {
        match p {
            Payload::IdR(p) => idr = Some(p),
            Payload::Auth(p) => auth = Some(p),
            _ => {}
        }
    }
    let (Some(idr), Some(auth)) = (idr, auth) else {
        let kind = notifies(payloads).find(|n| n.kind.is_error()).map(|n| n.kind);
        let why = match kind {
            Some(kind) => format!("received {kind} notify error"),
            None => "the IKE_AUTH response lacks IDr or AUTH".to_owned(),
        };
        ep.log(Level::Error, sa, why.clone());
        if !kind.is_some_and(is_fatal) {
            // It may have established what it has not proved to be its own.
            ep.say_deleted(sa);
        }
        let refused = kind == Some(NotifyType::AUTHENTICATION_FAILED);
        let Some(child) = restart::doubted(ep, sa, child, refused) else { return };
        if refused {
            let expected = expected_peer(sa);
            let name = ep.policy().shared_key(&sa.local_id, &expected).map_or("", |k| &k.name).to_owned();
            let line = format!(
                "the peer did not accept '{}' (looking for '{expected}') with shared key '{name}'",
                sa.local_id
            );
            ep.log(Level::Error, sa, line);
        }
        put_back(sa, child);
        return ep.close_ike(now, sa, Close::Failed(why));
    };

    let peer = idr.identity.clone();
    let verdict = if !sa.conn.remote_id.matches(&peer) {
        Err(format!("the peer says it is '{peer}', '{}' is required", sa.conn.remote_id))
    } else if ep.claims_to_be_us(sa, &peer) {
        Err(our_own(&peer))
    } else {
        key(ep, &sa.local_id, &peer).and_then(|(psk, name)| {
            check_auth(sa, &psk, idr, auth).then_some(()).ok_or_else(|| {
                format!(
                    "authentication of '{peer}' with {} failed: the MAC does not match shared key '{name}'",
                    auth.method
                )
            })
        })
    };
    if let Err(why) = verdict {
        ep.counters.auth_failed += 1;
        ep.log(Level::Error, sa, why.clone());
        // The responder thinks that it is established. "SHOULD ... send a Notify AUTHENTICATION_FAILED in a separate
        // INFORMATIONAL exchange" (RFC 7296 section 2.21.2).
        ep.send_last_word(
            sa,
            &[
                Payload::Notify(Notify::new(NotifyType::AUTHENTICATION_FAILED, [])),
                Payload::Delete(Delete::ike_sa()),
            ],
        );
        let Some(child) = restart::doubted(ep, sa, child, false) else { return };
        put_back(sa, child);
        return ep.close_ike(now, sa, Close::Failed(why));
    }
    let line = format!("authentication of '{peer}' with pre-shared key successful");
    ep.log(Level::Info, sa, line);
    if let Some(kind) = notifies(payloads).map(|n| n.kind).find(|kind| is_fatal(*kind)) {
        // The peer is who it says, and has no IKE_SA all the same.
        let why = format!("received {kind} notify error");
        ep.log(Level::Error, sa, why.clone());
        put_back(sa, child);
        return ep.close_ike(now, sa, Close::Failed(why));
    }
    sa.remote_id = Some(peer.clone());
    let Some(leaving) = ep.check_unique(sa, &peer, false) else {
        let why = "an IKE_SA with this peer exists and is kept".to_owned();
        put_back(sa, child);
        ep.say_deleted(sa);
        return ep.close_ike(now, sa, Close::Failed(why));
    };
    ep.end_replaced(now, sa, &peer, leaving);
    let mut child = child;
    ep.win_race(now, sa, child.as_deref_mut());
    let nonces = sa.init.as_ref().map(|i| (i.ni.clone(), i.nr.clone()));
    ep.establish(now, sa);
    if let (Some(mut new), Some((ni, nr))) = (child, nonces) {
        new.nonce = ni;
        create_child::finish_first(ep, now, sa, new, payloads, &nr);
    }
}

/// The child of an IKE_AUTH that came to nothing waits again: for another address of the peer, or for the end of the attempt.
fn put_back(sa: &mut IkeSa, child: Option<Box<NewChild>>) {
    if let Some(child) = child {
        sa.queue.push_front(Task::Child(child));
    }
}

// ---- responder ----

pub(crate) fn answer(ep: &mut Endpoint, now: Instant, sa: &mut IkeSa, payloads: &[Payload]) {
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
        return refuse(ep, now, sa, NotifyType::INVALID_SYNTAX, "the IKE_AUTH request lacks IDi".to_owned());
    };
    // Requests "where the whole message is malformed ... MUST be rejected in their entirety, and MUST only lead to an
    // UNSUPPORTED_CRITICAL_PAYLOAD or INVALID_SYNTAX Notification sent as a response" (RFC 7296 section 2.21.2).
    if !matches!(of_child, 0 | 3) {
        let why = "the IKE_AUTH request has a part of SA, TSi and TSr only".to_owned();
        return refuse(ep, now, sa, NotifyType::INVALID_SYNTAX, why);
    }
    let peer = idi.identity.clone();
    let asked = idr.map(|p| &p.identity);
    let (local, remote) = (sa.local.ip(), sa.remote.ip());
    let looking = format!(
        "looking for peer configs matching {local}[{}]...{remote}[{peer}]",
        asked.map_or_else(|| "%any".to_owned(), ToString::to_string)
    );
    let Some(conn) = ep.select_by_identity(local, remote, &suite, &peer, asked) else {
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
        return refuse(ep, now, sa, NotifyType::AUTHENTICATION_FAILED, why);
    };
    if !std::sync::Arc::ptr_eq(&conn, &sa.conn) {
        ep.move_to_conn(sa, conn);
    }
    let known = match ep.claims_to_be_us(sa, &peer) {
        true => Err(our_own(&peer)),
        false => key(ep, &sa.local_id, &peer),
    };
    let verdict = known.and_then(|(psk, name)| {
        let right = auth.is_some_and(|auth| check_auth(sa, &psk, idi, auth));
        right.then_some(psk).ok_or_else(|| {
            let method = auth.map_or(AuthMethod(0), |a| a.method);
            format!(
                "authentication of '{peer}' with {method} failed: the MAC does not match shared key '{name}' \
                 (for '{}')",
                sa.local_id
            )
        })
    });
    let psk = match verdict {
        Ok(psk) => psk,
        Err(why) => {
            ep.counters.auth_failed += 1;
            return refuse(ep, now, sa, NotifyType::AUTHENTICATION_FAILED, why);
        }
    };
    sa.remote_id = Some(peer.clone());
    // Before others are given up for it.
    let unwanted = match sa.conn.childless {
        // What a responder does that does not know RFC 6023: payloads are missing.
        Childless::Never if of_child == 0 => Some(NotifyType::INVALID_SYNTAX),
        Childless::Force if of_child > 0 => Some(NotifyType::AUTHENTICATION_FAILED),
        _ => None,
    };
    if let Some(kind) = unwanted {
        let what = if of_child > 0 { "with" } else { "without" };
        let why = format!("the peer asks for an IKE_SA {what} CHILD_SA, which `childless` does not allow");
        return refuse(ep, now, sa, kind, why);
    }
    let initial_contact = find_notify(payloads, NotifyType::INITIAL_CONTACT).is_some();
    let Some(leaving) = ep.check_unique(sa, &peer, initial_contact) else {
        let why = "an IKE_SA with this peer exists and is kept".to_owned();
        return refuse(ep, now, sa, NotifyType::AUTHENTICATION_FAILED, why);
    };
    // Nothing but AUTHENTICATION_FAILED says that there is to be no IKE_SA (RFC 7296 section 2.21.2). Who is refused keeps what it
    // has.
    if let Some(why) = ep.make_room(now, sa, &peer, &leaving) {
        ep.counters.id_refused += 1;
        return refuse(ep, now, sa, NotifyType::AUTHENTICATION_FAILED, why);
    }
    ep.end_replaced(now, sa, &peer, leaving);
    // Only now, for who fails is written about in one line, and not without end.
    ep.log(Level::Info, sa, looking);
    let line = format!("selected peer config '{}'", sa.conn.name);
    ep.log(Level::Info, sa, line);
    let line = format!("authentication of '{peer}' with pre-shared key successful");
    ep.log(Level::Info, sa, line);
    let id = Id::new(sa.local_id.clone());
    let Some(auth) = our_auth(sa, &psk, &id.body()) else { return };
    let line = format!("authentication of '{}' (myself) with pre-shared key", sa.local_id);
    ep.log(Level::Info, sa, line);
    let mut response = vec![Payload::IdR(id), auth];
    let nonces = sa.init.as_ref().map(|i| (i.ni.clone(), i.nr.clone()));
    ep.establish(now, sa);
    if let (3, Some((ni, nr))) = (of_child, nonces)
        && !answer_child::answer_first(ep, now, sa, payloads, ni, nr, &mut response)
    {
        return ep.refuse_syntax(now, sa, "an IKE_AUTH request for a child that cannot be");
    }
    ep.respond(sa, &response);
}

fn our_own(peer: &Identity) -> String {
    format!(
        "the peer says it is '{peer}', which is our own identity; if it is the peer's as well, name it as the remote id"
    )
}

/// Says no, and forgets the IKE_SA. Only who has done the key exchange with us comes here, so this cannot be forged.
fn refuse(ep: &mut Endpoint, now: Instant, sa: &mut IkeSa, kind: NotifyType, why: String) {
    // A key exchange is all that an attempt costs its sender.
    if ep.may_write(now, sa.remote.ip(), About::Authentication) {
        let line = format!("refused IKE_SA {} of {}: {why}", sa.name(), sa.remote);
        ep.log(Level::Error, sa, line);
    }
    ep.respond_notify(sa, kind, []);
    ep.bury(now, sa);
    sa.state = IkeState::Deleting;
    ep.close_ike(now, sa, Close::Failed(why));
}
