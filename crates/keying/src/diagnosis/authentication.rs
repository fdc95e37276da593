//! Entries of the area authentication: who the peer is, who we are, and the proofs of both. Missing
//! keys are entries of configuration, where the check of a configuration finds them, too.

use std::net::IpAddr;

use ironswan_crypto::sign::{Hash, KeyKind, Scheme};
use ironswan_wire::iana::{AuthMethod, NotifyType};
use ironswan_wire::id::{IdPattern, Identity};
use ironswan_wire::ike::payload::Notify;

use super::candidates::{Candidate, candidates_remedy, list_candidates};
use super::certificate::{self, Untrusted};
use super::entry::{Words, entries, say};
use super::ppk::{self, PpkLack};
use super::shown::displayed;

/// Reason why AUTH of the peer proves nothing.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProofFault {
    /// The peer uses another method than this value of `remote.auth`.
    Method(String),
    /// The MAC is none of the shared key with this name.
    Mac(String),
    /// The signature is by none of so many configured public keys.
    Signature(usize),
    /// AUTH is too short for a signature. Its length in bytes.
    Short(usize),
    /// The signature is by an algorithm that is not built: its AlgorithmIdentifier in DER.
    Algorithm(Vec<u8>),
    /// The signature is by an algorithm that the configuration does not allow.
    Scheme {
        /// The algorithm.
        scheme: Scheme,
        /// Value of `remote.auth`.
        configured: String,
    },
    /// No configured public key is for the algorithm of the signature, and as long as `remote.auth`
    /// requires.
    Keys {
        /// The algorithm.
        scheme: Scheme,
        /// Kinds of the configured keys, each once.
        keys: Vec<KeyKind>,
        /// Value of `remote.auth`.
        configured: String,
    },
    /// The signature is not by the key of the peer's certificate.
    Certified,
    /// The key of the peer's certificate is not for the algorithm of the signature, or shorter than
    /// `remote.auth` requires.
    CertifiedKey {
        /// The algorithm.
        scheme: Scheme,
        /// Kind of the key.
        key: KeyKind,
        /// Value of `remote.auth`.
        configured: String,
    },
}

impl std::fmt::Display for ProofFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Method(configured) => write!(f, "remote.auth = {configured} is configured"),
            Self::Mac(key) => write!(f, "the MAC does not match shared key '{key}'"),
            Self::Signature(_) => f.write_str("the signature is not by a key of remote.pubkeys"),
            Self::Short(bytes) => write!(f, "AUTH of {bytes} bytes is too short for a signature"),
            Self::Algorithm(der) => {
                let hex: String = der.iter().take(32).map(|b| format!("{b:02x}")).collect();
                write!(f, "it signs by algorithm {hex} (DER), which is not built")
            }
            Self::Scheme { scheme, configured } => {
                write!(f, "it signs by {scheme}, which remote.auth = {configured} does not allow")
            }
            Self::Keys { scheme, keys, configured } => {
                write!(
                    f,
                    "it signs by {scheme}, and remote.pubkeys has {} with remote.auth = {configured}",
                    list(keys)
                )
            }
            Self::Certified => f.write_str("the signature is not by the key of the peer's certificate"),
            Self::CertifiedKey { scheme, key, configured } => {
                write!(
                    f,
                    "it signs by {scheme}, and its certificate has a key of {key} with remote.auth = {configured}"
                )
            }
        }
    }
}

/// A configured peer that a stranger may be, since it gives the address of that peer for its own
/// (NAT_DETECTION_SOURCE_IP). Anybody can write that.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Guess {
    /// A connection for that address.
    pub conn: String,
    /// The address.
    pub address: IpAddr,
}

impl std::fmt::Display for Guess {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} at {}", self.conn, self.address)
    }
}

impl Guess {
    fn detail(&self, remote: IpAddr) -> String {
        let Self { conn, address } = self;
        format!(
            "a guess, as the request says that it was sent from {address}, which anybody can write: it may be the peer \
             of {conn}, behind a NAT or with another outer address. If so, add {remote} to remote_addrs of {conn}"
        )
    }
}

/// Names with commas between, or "none".
fn list<T: std::fmt::Display>(of: &[T]) -> String {
    let names: Vec<String> = of.iter().map(ToString::to_string).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

/// Reason why a peer has no more time to authenticate.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HalfOpenLimit {
    /// The usual time is over.
    Time,
    /// The shorter time under load is over.
    UnderLoad,
    /// The half-open IKE_SA gave way to a peer from elsewhere.
    Displaced,
}

impl std::fmt::Display for HalfOpenLimit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Time => "the peer did not authenticate in time",
            Self::UnderLoad => "the peer did not authenticate in time, which is short under load",
            Self::Displaced => "gave way to a peer from elsewhere, as too many were not authenticated",
        })
    }
}

entries! {
    /// Proving who both sides are.
    Authentication, AuthenticationEntry;

    // ---- connections ----

    /// No connection is configured for these addresses.
    NoConnection {
        /// Our address.
        local: IpAddr,
        /// The peer's address.
        remote: IpAddr,
        /// The configured peer that it may be.
        guess: Option<Box<Guess>>,
    } = "no-connection-for-addresses" by Configuration;
    /// No connection is configured for these addresses and identities.
    NoPeer {
        /// Our address.
        local: IpAddr,
        /// Identity of ours that the peer asks for. `None`: any.
        asked: Option<Box<Identity>>,
        /// The peer's address.
        remote: IpAddr,
        /// Identity that the peer claims.
        peer: Identity,
        /// Connections for these addresses, and why each does not fit.
        candidates: Vec<Candidate>,
    } = "no-connection-for-identities" by Configuration;

    /// A peer belongs to another connection than its addresses alone would mean, or to one of
    /// several that fit.
    Chosen {
        /// Name of the connection.
        conn: String,
        /// Identity of the peer.
        peer: Identity,
        /// The others, and why each was not chosen.
        candidates: Vec<Candidate>,
    } = "connection-chosen" by Configuration;

    // ---- identities and proofs ----

    /// The peer is another one than the connection names.
    OtherPeer {
        /// Identity that the peer claims.
        peer: Identity,
        /// Identity that is configured.
        required: IdPattern,
    } = "other-peer" by NoAgreement;
    /// The peer claims an identity that is our own.
    OurIdentity {
        /// The identity.
        peer: Identity,
    } = "peer-claims-our-identity" by Configuration;
    /// The peer has not proved who it is.
    NoProof {
        /// Identity that the peer claims.
        peer: Identity,
        /// Our identity, for which the key was looked up.
        ours: Identity,
        /// Method of the peer's proof.
        method: AuthMethod,
        /// Reason, with the name of the key that was tried.
        fault: Box<ProofFault>,
        /// Identifier of the post-quantum preshared key that the proof has to take into account.
        ppk: Option<Box<Identity>>,
    } = "authentication-failed" by NoAgreement;
    /// The peer sent more certificates than are looked at.
    TooManyCertificates {
        /// Identity that the peer claims.
        peer: Identity,
        /// Number of certificates.
        count: usize,
    } = "too-many-certificates" by Peer;
    /// The peer sent no certificate, and the configuration names none for it.
    NoCertificate {
        /// Identity that the peer claims.
        peer: Identity,
    } = "no-certificate" by NoAgreement;
    /// The peer's certificate does not speak for the identity that the peer claims.
    CertificateOfOther {
        /// Identity that the peer claims.
        peer: Identity,
        /// Subject of the certificate.
        subject: String,
        /// Other names of the certificate.
        names: Vec<String>,
    } = "certificate-of-other" by NoAgreement;
    /// The peer's certificate is none of those that the connection names.
    CertificateNotNamed {
        /// Identity that the peer claims.
        peer: Identity,
        /// Subject of the certificate.
        subject: String,
    } = "certificate-not-named" by Configuration;
    /// No CA of the configuration has issued the peer's certificate, nor a link that the peer sent.
    UnknownIssuer {
        /// The certificate.
        of: Box<Untrusted>,
    } = "unknown-issuer" by NoAgreement;
    /// The peer's chain has none of the CAs that the connection asks for.
    OtherAuthority {
        /// Identity that the peer claims.
        peer: Identity,
        /// Subjects of the chain.
        chain: String,
    } = "other-authority" by NoAgreement;
    /// A certificate of the peer's chain has expired.
    CertificateExpired {
        /// The certificate.
        of: Box<Untrusted>,
    } = "certificate-expired" by Peer;
    /// A certificate of the peer's chain is not valid yet.
    CertificateNotYetValid {
        /// The certificate.
        of: Box<Untrusted>,
    } = "certificate-not-yet-valid" by Peer;
    /// A certificate of the peer's chain has been revoked.
    CertificateRevoked {
        /// The certificate.
        of: Box<Untrusted>,
    } = "certificate-revoked" by Peer;
    /// The revocation status of a certificate of the peer's chain is unknown, and has to be known.
    NoStatus {
        /// The certificate.
        of: Box<Untrusted>,
    } = "certificate-status-unknown" by Configuration;
    /// A certificate of the peer's chain is used for something that it does not allow, or that a CA
    /// above it does not.
    CertificateNotAllowed {
        /// The certificate.
        of: Box<Untrusted>,
    } = "certificate-not-allowed" by Peer;
    /// A certificate of the peer's chain is malformed, weak, or not signed by its issuer.
    CertificateUnusable {
        /// The certificate.
        of: Box<Untrusted>,
    } = "certificate-unusable" by Peer;
    /// The search for a chain from the peer's certificate to a CA has reached a limit.
    ChainLimit {
        /// The certificate.
        of: Box<Untrusted>,
    } = "chain-limit" by Peer;
    /// The peer wants to authenticate by EAP, which is not built.
    Eap {
        /// Identity that the peer claims.
        peer: Identity,
    } = "peer-asks-for-eap" by NoAgreement;
    /// Our own private key makes no signature.
    CannotSign {
        /// Our identity.
        ours: Identity,
    } = "cannot-sign" by ThisMachine;
    /// The peer does not verify signatures that our key makes.
    NotVerified {
        /// Kind of our key.
        key: KeyKind,
        /// Value of our `local.auth`.
        configured: String,
        /// Hashes over which our key may sign.
        ours: Vec<Hash>,
        /// Hashes that the peer has announced. `None`: the peer has announced none.
        peer: Option<Vec<Hash>>,
    } = "peer-lacks-our-signatures" by NoAgreement;
    /// The peer has refused to authenticate us.
    Rejected {
        /// Our identity.
        ours: Identity,
        /// Identity that we expect the peer to have.
        expected: Identity,
        /// The key that we have used.
        key: String,
        /// Identifier of the post-quantum preshared key that we have used.
        ppk: Option<Box<Identity>>,
    } = "rejected-by-peer" by NoAgreement;

    // ---- several rounds (RFC 4739) ----

    /// The connection asks for several rounds of IKE_AUTH, and the peer does not know of any.
    PeerLacksRounds = "peer-lacks-rounds" by NoAgreement;
    /// The peer proves itself in another number of rounds than the connection asks for.
    OtherRounds {
        /// Identity that the peer has claimed in its first round.
        peer: Identity,
        /// Number of rounds of the peer. When it has more than the connection asks for, the first
        /// that is too many.
        theirs: usize,
        /// Number of rounds that the connection asks for.
        configured: usize,
    } = "other-number-of-rounds" by NoAgreement;

    // ---- post-quantum preshared keys ----

    /// A post-quantum preshared key is required, and the peer uses none.
    PeerLacksPpk {
        /// Sign of it.
        lack: PpkLack,
    } = "peer-lacks-ppk" by NoAgreement;
    /// A post-quantum preshared key is required, and the peer's is another one than ours.
    OtherPpk {
        /// Identifier of the peer's.
        theirs: Identity,
        /// Value of `ppk_id`.
        ours: Option<Box<Identity>>,
    } = "other-ppk" by NoAgreement;
    /// A post-quantum preshared key is required, and the peer's has another secret than ours.
    WrongPpk {
        /// Its identifier.
        id: Identity,
    } = "wrong-ppk" by NoAgreement;
    /// The peer requires a post-quantum preshared key that we do not have.
    PpkDemanded {
        /// Identifier of the peer's.
        theirs: Identity,
        /// Value of `ppk_id`.
        ours: Option<Box<Identity>>,
    } = "peer-demands-ppk" by NoAgreement;
    /// The peer has begun an IKE_SA and has not authenticated in time.
    NotInTime {
        /// How long the peer had.
        limit: HalfOpenLimit,
    } = "not-authenticated-in-time" by Peer;

    // ---- what an authenticated peer may have ----

    /// The peer asks for an IKE_SA with or without CHILD_SA, as the configuration does not allow.
    Childless {
        /// The peer asks for a CHILD_SA.
        with_child: bool,
    } = "childless-not-allowed" by NoAgreement;
    /// We would have to ask for an IKE_SA without CHILD_SA, which one side does not allow.
    ChildNeeded {
        /// The peer does not allow it; else our configuration does not.
        by_peer: bool,
    } = "child-needed" by NoAgreement;
    /// There is another IKE_SA with this peer, which is kept.
    KeptOther = "other-ike-sa-kept" by Configuration;
    /// There are as many IKE_SAs as there may be.
    IkeLimit {
        /// Identity of the peer that has as many. `None`: all peers together.
        peer: Option<Identity>,
        /// The limit.
        max: usize,
        /// The setting.
        setting: &'static str,
    } = "ike-sa-limit" by Configuration;
}

impl Authentication {
    /// True when the peer has not proved who it is, or we lack what it takes: the counter
    /// `auth-failed` counts these.
    pub fn is_unproved(&self) -> bool {
        matches!(
            self,
            Self::OurIdentity { .. }
                | Self::NoProof { .. }
                | Self::Eap { .. }
                | Self::NotVerified { .. }
                | Self::PeerLacksPpk { .. }
                | Self::OtherPpk { .. }
                | Self::WrongPpk { .. }
                | Self::PpkDemanded { .. }
                | Self::PeerLacksRounds
                | Self::OtherRounds { .. }
        ) || certificate::is_about_one(self)
    }

    pub(super) fn notify(&self) -> Option<Notify> {
        let kind = match self {
            Self::NoConnection { .. } => NotifyType::NO_PROPOSAL_CHOSEN,
            // What a responder does that does not know RFC 6023: payloads are missing.
            Self::Childless { with_child: false } => NotifyType::INVALID_SYNTAX,
            Self::Rejected { .. }
            | Self::NotInTime { .. }
            | Self::ChildNeeded { .. }
            | Self::Chosen { .. } => return None,
            // Nothing but AUTHENTICATION_FAILED says that there is to be no IKE_SA (RFC 7296
            // section 2.21.2).
            _ => NotifyType::AUTHENTICATION_FAILED,
        };
        Some(Notify::new(kind, []))
    }

    pub(super) fn words(&self) -> Words {
        match self {
            Self::NoConnection { local, remote, guess } => say(
                format!("no IKE config found for {local}...{remote}, sending NO_PROPOSAL_CHOSEN"),
                "configure a connection with these local_addrs and remote_addrs",
            )
            .with(guess.iter().map(|guess| guess.detail(*remote)).collect()),
            Self::NoPeer { local, asked, remote, peer, candidates } => {
                let asked = asked.as_ref().map_or_else(|| "%any".to_owned(), ToString::to_string);
                say(
                    format!(
                        "no matching peer config found (looking for peer configs matching \
                         {local}[{asked}]...{remote}[{peer}]); configured for these addresses: {}",
                        list_candidates(candidates)
                    ),
                    candidates_remedy(candidates),
                )
            }
            Self::Chosen { conn, peer, candidates } => say(
                format!("'{peer}' belongs to {conn}, and not to {}", list_candidates(candidates)),
                "nothing, if that is meant; else compare remote_addrs, remote.id, local.id and proposals of them",
            ),
            Self::OtherPeer { peer, required } => say(
                format!("the peer says it is '{peer}', '{required}' is required"),
                "make remote.id here and local.id there the same",
            ),
            Self::OurIdentity { peer } => say(
                format!("the peer says it is '{peer}', which is our own identity"),
                "if it is the peer's as well, name it as the remote id",
            ),
            Self::NoProof { peer, ours, method, fault, ppk } => say(
                format!(
                    "authentication of '{peer}' with {method} failed: {fault} (for '{ours}'{})",
                    ppk::beside(ppk.as_deref())
                ),
                match &**fault {
                    ProofFault::Mac(key) => format!("give both sides the same secret (here secrets.{key})"),
                    ProofFault::Signature(_) => "put the peer's public key into remote.pubkeys".to_owned(),
                    ProofFault::Method(_) => {
                        "let remote.auth here and local.auth there be the same".to_owned()
                    }
                    ProofFault::Algorithm(_) => {
                        "give the peer a key of RSA, ECDSA (P-256, P-384, P-521) or Ed25519".to_owned()
                    }
                    ProofFault::Scheme { .. } => {
                        "let remote.auth allow it, or let local.auth there be another one".to_owned()
                    }
                    ProofFault::Keys { .. } => {
                        "put the public key of the peer's that it signs with into remote.pubkeys".to_owned()
                    }
                    ProofFault::Certified => {
                        "let the peer sign by the private key of the certificate that it sends".to_owned()
                    }
                    ProofFault::CertifiedKey { .. } => {
                        "give the peer a certificate for a key that remote.auth allows".to_owned()
                    }
                    ProofFault::Short(_) => String::new(),
                },
            ),
            Self::TooManyCertificates { .. }
            | Self::NoCertificate { .. }
            | Self::CertificateOfOther { .. }
            | Self::CertificateNotNamed { .. }
            | Self::UnknownIssuer { .. }
            | Self::OtherAuthority { .. }
            | Self::CertificateExpired { .. }
            | Self::CertificateNotYetValid { .. }
            | Self::CertificateRevoked { .. }
            | Self::NoStatus { .. }
            | Self::CertificateNotAllowed { .. }
            | Self::CertificateUnusable { .. }
            | Self::ChainLimit { .. } => certificate::words(self),
            Self::Eap { peer } => say(
                format!("'{peer}' sends no AUTH, which asks for EAP, and EAP is not built"),
                "let the peer authenticate by a secret or a key",
            ),
            Self::CannotSign { ours } => say(
                format!("authentication of '{ours}' (myself) failed: our private key does not sign"),
                "load the private key again; a short key of RSA needs a shorter hash in local.auth",
            ),
            Self::NotVerified { key, configured, ours, peer: Some(peer) } => say(
                format!(
                    "the peer does not verify what our key of {key} signs with local.auth = {configured}: our hash \
                     algorithms are {}, those of its SIGNATURE_HASH_ALGORITHMS {}",
                    list(ours),
                    list(peer)
                ),
                "let both sides have a hash algorithm in common (Identity is that of Ed25519), use a key that is long \
                 enough, or a secret",
            ),
            Self::NotVerified { key, configured, peer: None, .. } => say(
                format!(
                    "the peer does not verify what our key of {key} signs with local.auth = {configured}: it has sent \
                     no SIGNATURE_HASH_ALGORITHMS (RFC 7427), and no older method fits"
                ),
                "let the peer allow signatures of RFC 7427, or use ECDSA or a secret; local.auth = rsa-sha1 allows the \
                 old method of RSA",
            ),
            Self::Rejected { ours, expected, key, ppk } => say(
                "received AUTHENTICATION_FAILED notify error",
                format!(
                    "compare auth, local.id, remote.id and {key} with the other side, whose log says why"
                ),
            )
            .with(vec![format!(
                "the peer did not accept '{ours}' (looking for '{expected}') with {key}{}",
                ppk::beside(ppk.as_deref())
            )]),
            Self::PeerLacksRounds => say(
                "the peer has not sent MULTIPLE_AUTH_SUPPORTED (RFC 4739), and the connection has several rounds",
                "keep one local and one remote section, or let the peer authenticate in several rounds",
            ),
            Self::OtherRounds { peer, theirs, configured } if theirs > configured => say(
                format!(
                    "'{peer}' begins round {theirs} of its authentication, and {configured} are configured"
                ),
                "add a remote section for each local section of the peer",
            ),
            Self::OtherRounds { peer, theirs, configured } => say(
                format!(
                    "'{peer}' ends its authentication after round {theirs}, and {configured} rounds are configured"
                ),
                "give the peer a local section for each remote section here",
            ),
            Self::PeerLacksPpk { lack } => ppk::lack(*lack),
            Self::OtherPpk { theirs, ours } => ppk::other(theirs, ours.as_deref()),
            Self::WrongPpk { id } => ppk::wrong(id),
            Self::PpkDemanded { theirs, ours } => ppk::demanded(theirs, ours.as_deref()),
            Self::NotInTime { limit } => say(limit.to_string(), "look for what keeps IKE_AUTH from arriving"),
            Self::Childless { with_child } => {
                let what = if *with_child { "with" } else { "without" };
                say(
                    format!("the peer asks for an IKE_SA {what} CHILD_SA, which `childless` does not allow"),
                    "childless = allow takes both",
                )
            }
            Self::ChildNeeded { by_peer: true } => {
                say("the peer does not support IKE_SAs without CHILD_SA (RFC 6023)", "initiate a child")
            }
            Self::ChildNeeded { by_peer: false } => say(
                "an IKE_SA without CHILD_SA is not made with childless = never",
                "initiate a child, or set childless = allow",
            ),
            Self::KeptOther => say(
                "an IKE_SA with this peer exists and is kept",
                "unique = replace lets the new one take over",
            ),
            Self::IkeLimit { peer: Some(peer), max, setting } => say(
                format!("'{peer}' has {max} IKE_SAs already ({setting})"),
                format!("raise {setting}, or let the peer end its old IKE_SAs"),
            ),
            Self::IkeLimit { peer: None, max, setting } => {
                say(format!("the limit of {max} IKE_SAs is reached"), format!("raise {setting}"))
            }
        }
    }
}

displayed!(Guess, ProofFault, HalfOpenLimit);
