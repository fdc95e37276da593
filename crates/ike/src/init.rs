//! An IKE_SA while it is set up: what IKE_SA_INIT and IKE_AUTH need, and nothing after them.

use ironswan_crypto::sign::Hash;
use ironswan_keying::{Diagnosis, Fingerprint};
use std::net::SocketAddr;
use std::time::Instant;

use crate::auth::int_auth::IntAuth;
use crate::auth::ppk;
use crate::auth::rounds::Rounds;
use ironswan_wire::iana::KeId;
use ironswan_wire::ike::Payload;
use ironswan_wire::proposal::Proposal;
use ironswan_wire::secret::Secret;

/// Values of the first two exchanges. The peer's authentication ends their use.
#[derive(Default)]
pub(crate) struct Init {
    pub ni: Vec<u8>,
    pub nr: Vec<u8>,
    /// RealMessage1: the IKE_SA_INIT request.
    pub request: Vec<u8>,
    /// Responder: the same request as it came once more, with a cookie that is ours. Which of the
    /// two the initiator signs depends on the order in which our answers reach it.
    pub twin: Vec<u8>,
    /// RealMessage2: the response.
    pub response: Vec<u8>,
    pub ke: KeId,
    /// Taken when the shared secret is asked for: once is all that a half-open IKE_SA gets.
    /// Attempts at several addresses of one peer have a copy each (see `endpoint::race`).
    pub private: Option<Secret>,
    pub public: Vec<u8>,
    /// Initiator: between which addresses the request with this nonce has gone.
    pub sent: Option<(SocketAddr, SocketAddr)>,
    pub peer_public: Vec<u8>,
    /// Initiator: what was proposed. Responder: the chosen proposal.
    pub proposals: Vec<Proposal>,
    pub cookie: Option<Vec<u8>>,
    /// How often the responder has sent us back with COOKIE or INVALID_KE_PAYLOAD.
    pub rounds: u32,
    /// Responder: the request had NAT detection.
    pub natd: bool,
    /// Responder: when the response was last sent.
    pub answered: Option<Instant>,
    /// The responder offers CHILDLESS_IKEV2_SUPPORTED (RFC 6023).
    pub childless: bool,
    /// Both sides have announced that they take fragments (RFC 7383 section 2.3). Responder: from
    /// the request on.
    pub fragments: bool,
    /// Number of IKE_INTERMEDIATE exchanges that are done.
    pub intermediate: usize,
    /// What AUTH covers of them.
    pub int_auth: IntAuth,
    /// Post-quantum preshared key.
    pub ppk: ppk::Agreement,
    /// The last keys that the key log has got, while a post-quantum preshared key may change them.
    pub logged: Option<Box<[Secret; 7]>>,
    /// Hashes over which the peer verifies signatures; `None` when its IKE_SA_INIT message has no
    /// SIGNATURE_HASH_ALGORITHMS (RFC 7427 section 4).
    pub peer_hashes: Option<Vec<Hash>>,
    /// Keys of CAs in the peer's CERTREQ; `None`: the peer asks for no certificate.
    pub peer_asks: Option<Vec<Fingerprint>>,
    /// Responder: the hashes that our response announces, if the peer has announced any.
    pub our_hashes: Vec<Hash>,
    /// Responder: the CERTREQ of our response.
    pub our_certreq: Option<Payload>,
    /// Rounds of IKE_AUTH.
    pub auth: Rounds,
    /// Initiator: requests that were given up because of INVALID_KE_PAYLOAD, which anyone may have
    /// sent.
    pub earlier: Vec<Earlier>,
    /// Initiator: the first error that came as a response, and when. Anyone may have sent it.
    pub refusal: Option<(Instant, Diagnosis)>,
    /// Initiator: a cookie that is not returned at once, as the one before may have been a forgery.
    pub doubtful_cookie: Option<Vec<u8>>,
    /// Initiator: another response came that would have been as good as the one that was taken.
    pub contested: bool,
}

/// An IKE_SA_INIT request that another one has replaced. Its answer may still come.
pub(crate) struct Earlier {
    pub ke: KeId,
    pub private: Option<Secret>,
    pub public: Vec<u8>,
    pub request: Vec<u8>,
}
