//! IKE_AUTH (RFC 7296 section 1.2): identities, AUTH, and the first CHILD_SA.
//!
//! ```text
//! HDR, SK {IDi, [CERT+], [N(INITIAL_CONTACT)], [CERTREQ], [IDr,] AUTH, [SAi2, TSi, TSr]}  -->
//!                      <--  HDR, SK {IDr, [CERT+], AUTH, SAr2, TSi, TSr}
//!                      <--  HDR, SK {IDr, AUTH, N(NO_PROPOSAL_CHOSEN | TS_UNACCEPTABLE | ...)}
//!                      <--  HDR, SK {N(AUTHENTICATION_FAILED)}
//! ```
//! After the second kind of response the IKE_SA stands without a child; after the third it ends.
//! A side that proves itself in several rounds takes an exchange for each (`crate::auth::rounds`).
//!
//! Each side goes through phases. Proving and verifying may wait for work outside:
//!
//! | phase | initiator | responder |
//! |---|---|---|
//! | identify | the connection is known | which connection the peer belongs to |
//! | verify | AUTH of the response | AUTH of the request |
//! | authorise | may this peer have one more IKE_SA | may this peer ask for this |
//! | prove | AUTH of the request, before all others | AUTH of the response |
//! | establish | the IKE_SA, then its child | makes room, the IKE_SA, then its child |
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `initiator` | our request, and the response to it |
//! | `responder` | the peer's request |

mod initiator;
mod responder;

use ironswan_crypto::prf::Prf;
use ironswan_pki::ocsp::MAX_NONCE;
use ironswan_wire::iana::NotifyType;
use ironswan_wire::id::{IdPattern, Identity};
use ironswan_wire::ike::Payload;
use ironswan_wire::ike::payload::{Auth as AuthPayload, Id};

use crate::auth::certificate::{self, Certified};
use crate::auth::ppk;
use crate::auth::psk::Psk;
use crate::auth::rounds;
use crate::auth::signature::{Keys, Signer};
use crate::auth::{Prover, Step, Verifier, signed_octets};
use crate::context::Context;
use crate::event::Completion;
use crate::sa::{IkeSa, Init};
use ironswan_keying::diagnosis::{Authentication, Configuration, KeyLack, ProofFault};
use ironswan_keying::{Auth, Diagnosis, PrivateKey, SharedKey, Signatures, tried};

pub(crate) use initiator::{build, process};
pub(crate) use responder::answer;

/// "the only ones to cause the IKE SA to be deleted or not created, without a Delete payload", in
/// IKE_AUTH "or in the INFORMATIONAL exchange immediately following it" (RFC 7296 section 2.21.2).
pub(crate) fn is_fatal(kind: NotifyType) -> bool {
    matches!(
        kind,
        NotifyType::UNSUPPORTED_CRITICAL_PAYLOAD
            | NotifyType::INVALID_SYNTAX
            | NotifyType::AUTHENTICATION_FAILED
    )
}

/// Rounds that are done: ours, and those of the peer.
fn done(sa: &IkeSa) -> (usize, usize) {
    sa.init().map_or((0, 0), |init| (init.auth.ours, init.auth.theirs))
}

/// Our identity in a round, counted from 0. After the last round, that of the last.
fn our_identity(sa: &IkeSa, round: usize) -> Identity {
    let last = round.min(sa.conn().local_rounds.len());
    let here = sa.local().ip();
    match last.checked_sub(1).and_then(|n| sa.conn().local_rounds.get(n)) {
        Some(side) => side.id.clone().unwrap_or_else(|| Identity::from_addr(here)),
        None => sa.local_id().clone(),
    }
}

/// Whom we expect to meet in a round, for finding the key before the peer has said who it is: the
/// identity that is configured, else the one that the peer has proved before, else its address.
fn expected_peer(sa: &IkeSa, round: usize) -> Identity {
    match rounds::their_side(sa.conn(), round).1 {
        IdPattern::Exact(id) => id.clone(),
        _ if round > 0 => sa.remote_id().cloned().unwrap_or_else(|| Identity::from_addr(sa.remote().ip())),
        _ => Identity::from_addr(sa.remote().ip()),
    }
}

/// The PSK for this pair.
fn shared_key(
    cx: &Context<'_>,
    sa: &IkeSa,
    local: &Identity,
    remote: &Identity,
) -> Result<SharedKey, Diagnosis> {
    let key = cx.policy().shared_key(local, remote);
    let (local, remote, conn) = (local.to_string(), remote.to_string(), sa.conn().name.clone());
    key.ok_or_else(|| Configuration::NoKey { local, remote, conn }.into())
}

/// The method by which we prove who we are to this peer in a round. The error says what it lacks.
fn prover(
    cx: &Context<'_>,
    sa: &IkeSa,
    prf: &'static dyn Prf,
    round: usize,
    peer: &Identity,
) -> Result<Box<dyn Prover>, Diagnosis> {
    let ours = our_identity(sa, round);
    match rounds::our_method(sa.conn(), round) {
        Auth::Psk => Ok(Box::new(Psk::new(prf, shared_key(cx, sa, &ours, peer)?))),
        Auth::Pubkey { keys, rules } => {
            let Some(key) = cx.policy().private_key(keys, &ours) else {
                let why = if keys.is_empty() { KeyLack::Fingerprint } else { KeyLack::Named };
                return Err(no_private_key(&ours, why));
            };
            Ok(Box::new(signer(sa, &key, rules)?))
        }
        Auth::Certificate { trust, rules } => {
            let asked = sa.init().and_then(|init| init.peer_asks.as_deref());
            let found = cx.policy().our_certificate(trust, &ours, asked.unwrap_or_default());
            let (chain, key) = found?;
            let chain = if certificate::is_sent(sa.conn(), asked) { chain } else { Vec::new() };
            Ok(Box::new(signer(sa, &key, rules)?.with_chain(chain)))
        }
    }
}

/// How this key of ours signs for the peer. The error: the peer does not verify what it signs.
fn signer(sa: &IkeSa, key: &PrivateKey, rules: &Signatures) -> Result<Signer, Diagnosis> {
    let peer = sa.init().and_then(|init| init.peer_hashes.as_deref());
    let refused = || Authentication::NotVerified {
        key: key.public().kind(),
        configured: rules.to_string(),
        ours: rules.hashes(key.public()),
        peer: peer.map(<[_]>::to_vec),
    };
    Signer::choose(key, rules, peer).ok_or_else(|| refused().into())
}

/// Our private key is not loaded.
fn no_private_key(local: &Identity, why: KeyLack) -> Diagnosis {
    Configuration::NoPrivateKey { local: local.to_string(), why }.into()
}

/// Goes on with the answer that a method of ours has waited for. The error is that its private key
/// has been unloaded meanwhile: its signature proves nothing any more.
fn resume_proof(
    cx: &Context<'_>,
    local: &Identity,
    prover: &dyn Prover,
    completion: Completion,
) -> Result<Step<AuthPayload>, Diagnosis> {
    let is_loaded = |key| cx.policy().private_key(std::slice::from_ref(key), local).is_some();
    if !prover.key().is_none_or(is_loaded) {
        return Err(no_private_key(local, KeyLack::Named));
    }
    Ok(prover.resume(completion))
}

/// The method by which this peer, who has sent these payloads, proves who it is in a round. The
/// error says what it lacks.
fn verifier(
    cx: &mut Context<'_>,
    sa: &IkeSa,
    prf: &'static dyn Prf,
    round: usize,
    peer: &Identity,
    payloads: &[Payload],
) -> Result<Box<dyn Verifier>, Diagnosis> {
    match rounds::their_side(sa.conn(), round).0 {
        Auth::Psk => Ok(Box::new(Psk::new(prf, shared_key(cx, sa, &our_identity(sa, round), peer)?))),
        Auth::Pubkey { keys, rules } => Ok(Box::new(Keys::new(tried(keys, peer).to_vec(), rules.clone()))),
        Auth::Certificate { trust, rules } => {
            let nonce = cx.random(MAX_NONCE).try_into().unwrap_or([0; MAX_NONCE]);
            Ok(Box::new(Certified::new(cx.policy(), trust, rules, peer, payloads, nonce)?))
        }
    }
}

/// The octets that AUTH of our side covers.
fn our_octets(sa: &IkeSa, id: &Id) -> Option<Vec<u8>> {
    let (keys, init) = (sa.keys()?, sa.init()?);
    let (message, nonce) =
        if sa.is_initiator() { (&init.request, &init.nr) } else { (&init.response, &init.ni) };
    let sk_p = init.ppk.used.as_ref().map_or(&keys.p_ours, ppk::Used::p_ours);
    let mut octets = signed_octets(keys.prf, message, nonce, sk_p, &id.body());
    octets.extend(intermediate_octets(init));
    Some(octets)
}

/// The octets that AUTH of the peer may cover.
fn their_octets(sa: &IkeSa, id: &Id) -> Vec<Vec<u8>> {
    let (Some(keys), Some(init)) = (sa.keys(), sa.init()) else { return Vec::new() };
    let (message, nonce) =
        if sa.is_initiator() { (&init.response, &init.ni) } else { (&init.request, &init.nr) };
    let sk_p = init.ppk.used.as_ref().map_or(&keys.p_theirs, ppk::Used::p_theirs);
    [message, &init.twin]
        .into_iter()
        .filter(|message| !message.is_empty())
        .map(|message| {
            let mut octets = signed_octets(keys.prf, message, nonce, sk_p, &id.body());
            octets.extend(intermediate_octets(init));
            octets
        })
        .collect()
}

/// The part of both sides' octets that covers IKE_INTERMEDIATE. The message ID of IKE_AUTH follows
/// theirs, the first of which is 1.
fn intermediate_octets(init: &Init) -> Vec<u8> {
    init.int_auth.octets(u32::try_from(init.intermediate).map_or(u32::MAX, |n| n + 1))
}

/// Identifier of the post-quantum preshared key that AUTH takes into account.
fn ppk_in_use(sa: &IkeSa) -> Option<Box<Identity>> {
    sa.init()?.ppk.in_use().map(|id| Box::new(id.clone()))
}

/// The peer has not proved who it is in this round.
fn no_proof(
    sa: &IkeSa,
    round: usize,
    peer: &Identity,
    auth: &AuthPayload,
    fault: Option<ProofFault>,
) -> Diagnosis {
    let fault = fault.unwrap_or(ProofFault::Short(auth.data.len()));
    let (peer, ours) = (peer.clone(), our_identity(sa, round));
    let ppk = ppk_in_use(sa);
    Authentication::NoProof { peer, ours, method: auth.method, fault: Box::new(fault), ppk }.into()
}
