//! Proving who one is (RFC 7296 section 2.15). One file per method.
//!
//! A method makes AUTH of our side ([`Prover`]) or judges that of the peer ([`Verifier`]). It knows
//! no exchange: IKE_AUTH (`task/auth`) gives it the octets that AUTH covers and does what its
//! [`Step`] asks for.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `certificate` | certificates of both sides, and AUTH by them |
//! | `claim` | a peer's certificates and AUTH as one computation |
//! | `int_auth` | the part of the octets that covers IKE_INTERMEDIATE |
//! | `ppk` | post-quantum preshared keys beside any method |
//! | `ppk_int` | the same in IKE_INTERMEDIATE |
//! | `psk` | AUTH with a pre-shared key |
//! | `rounds` | several rounds of IKE_AUTH |
//! | `signature` | AUTH with a signature and a raw public key |

pub(crate) mod certificate;
pub(crate) mod claim;
pub(crate) mod int_auth;
pub(crate) mod ppk;
pub(crate) mod ppk_int;
pub(crate) mod psk;
pub(crate) mod rounds;
pub(crate) mod signature;

use ironswan_crypto::prf::Prf;
use ironswan_keying::diagnosis::ProofFault;
use ironswan_keying::{Diagnosis, Policy, PublicKey};
use ironswan_pki::Certificate;
use ironswan_wire::ike::payload::Auth;
use ironswan_wire::secret::Secret;

use crate::event::{Completion, Request};

/// The octets that AUTH of one side covers (RFC 7296 section 2.15):
/// `RealMessage | Nonce | prf(SK_p, RestOfIDPayload)`.
///
/// * `message`: that side's IKE_SA_INIT message as sent, without the non-ESP marker.
/// * `nonce`: the other side's nonce, its data only.
/// * `sk_p`: SK_p of that side.
/// * `id_body`: that side's ID payload without the generic header, RESERVED as it came.
pub(crate) fn signed_octets(
    prf: &dyn Prf,
    message: &[u8],
    nonce: &[u8],
    sk_p: &Secret,
    id_body: &[u8],
) -> Vec<u8> {
    [message, nonce, prf.mac(sk_p.expose(), &[id_body]).expose()].concat()
}

/// How far a method has come. A method that needs further IKE_AUTH messages, as EAP does, adds a
/// step for them.
pub(crate) enum Step<T> {
    /// The method is through.
    Done(T),
    /// The method goes on with the answer to this request.
    Ask(Request),
    /// The peer is refused before its proof is looked at.
    Refused(Diagnosis),
    /// The proof is none. A [`Prover`] gives `None`: our private key does not sign.
    Failed(Option<ProofFault>),
}

/// A method of authentication that proves who we are.
pub(crate) trait Prover: Send {
    /// The method in lines of the log, in charon's words.
    fn name(&self) -> &'static str;

    /// Our public key, when the proof takes a private key, which may be unloaded meanwhile.
    fn key(&self) -> Option<&PublicKey> {
        None
    }

    /// Certificates that go to the peer: our own, and those above it.
    fn chain(&self) -> &[Certificate] {
        &[]
    }

    /// Begins to make AUTH over these octets.
    fn prove(&self, octets: Vec<u8>) -> Step<Auth>;

    /// Goes on with the answer to the request of the last step.
    fn resume(&self, _answer: Completion) -> Step<Auth> {
        Step::Failed(None)
    }
}

/// A method of authentication that judges the peer's proof.
pub(crate) trait Verifier: Send {
    /// The method in lines of the log, in charon's words. Known when a judgement has begun.
    fn name(&self) -> &'static str;

    /// The peer's chain of certificates, for the log, once it has been found.
    fn chain(&self) -> Option<&str> {
        None
    }

    /// Lines for the log about certificates of unknown status, which do not refuse the peer.
    fn doubts(&self) -> &[String] {
        &[]
    }

    /// Answer for which the method waits, in words for people.
    fn waits_for(&self) -> &'static str {
        "waiting for the peer's signature to be verified"
    }

    /// False when certificates have been loaded or unloaded since the judgement began.
    fn is_current(&self, _policy: &dyn Policy) -> bool {
        true
    }

    /// Begins to judge AUTH of the peer, which is right when it covers one of these: there are two
    /// when the responder cannot know which of two requests the initiator signs (see
    /// `init::Init::twin`).
    fn verify(&mut self, octets: Vec<Vec<u8>>, auth: &Auth) -> Step<()>;

    /// Goes on with the answer to the request of the last step.
    fn resume(&mut self, _answer: Completion) -> Step<()> {
        Step::Failed(None)
    }
}
