//! What an endpoint asks for and tells: datagrams to send, work to do outside, events, and views of
//! its SAs.

use ironswan_keying::diagnosis::{Entry, Icmp, KeyExchange, Unresolved};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::{Duration, Instant};

pub use crate::auth::claim::{CertificateClaim, Doubt};
use ironswan_crypto::sign::{Legacy, Scheme};
use ironswan_keying::{Diagnosis, Fetched, PrivateKey, Proven, PublicKey};
pub use ironswan_keying::{IkeId, Level, Ticket};
pub use ironswan_pki::Time;
use ironswan_pki::fetch::Fetch;
use ironswan_wire::iana::{KeId, ProtocolId};
use ironswan_wire::id::Identity;
use ironswan_wire::proposal::{Additional, EspSuite, IkeSuite};
use ironswan_wire::sadb::{Command, Mode, ReqId, SaRef, SaStats, Spi};
use ironswan_wire::secret::Secret;
use ironswan_wire::selector::TrafficSelector;

/// Identifies a CHILD_SA for its whole life (VICI `uniqueid`). A rekeyed CHILD_SA has a new one.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct ChildId(pub u64);

/// Whether a datagram may be fragmented on its way.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Cut {
    /// By any router over IPv4 (no DF), and by this machine where its link or what the kernel knows
    /// of the path is narrower.
    #[default]
    Allowed,
    /// Nowhere: with DF over IPv4. The datagram is lost where the path is narrower, whatever the
    /// kernel knows of the path.
    Forbidden,
}

/// One datagram to send. On port 4500 the non-ESP marker is already in front.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Transmit {
    /// From this address and port; an unspecified address leaves the choice to the routing table.
    pub local: SocketAddr,
    /// To.
    pub remote: SocketAddr,
    /// UDP payload.
    pub payload: Vec<u8>,
    /// DSCP of its IP header, 0 to 63.
    pub dscp: u8,
    /// Whether it may be fragmented.
    pub cut: Cut,
    /// The IKE_SA that sends it to where its peer is. `None`: an answer to somebody who is not
    /// authenticated, or whose request came from another address.
    pub ike: Option<IkeId>,
}

/// An ICMP error about a request of ours, as a data plane has received it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Undelivered {
    /// Our SPI in the request.
    pub spi: u64,
    /// Address and port to which the request went.
    pub remote: SocketAddr,
    /// The error.
    pub icmp: Icmp,
}

/// Ties a [`Request`] to its [`Completion`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct RequestId(pub u64);

/// Work that may be slow, or belongs to someone else; answered by `Endpoint::complete`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// Make a key pair. Completed by [`Completion::KeyPair`].
    GenerateKey {
        /// Group.
        ke: KeId,
        /// 32 bytes from the endpoint's random source, from which the private key is derived: same
        /// seed, same key.
        seed: Secret,
    },
    /// Compute a shared secret. Completed by [`Completion::SharedSecret`].
    Agree {
        /// Group.
        ke: KeId,
        /// Our private key, as [`Completion::KeyPair`] gave it.
        private: Secret,
        /// The peer's public value, as on the wire.
        peer_public: Vec<u8>,
    },
    /// Do the responder's part of a key exchange. Completed by [`Completion::Response`].
    Respond {
        /// Group.
        ke: KeId,
        /// 32 bytes from the endpoint's random source, as in [`Request::GenerateKey`].
        seed: Secret,
        /// The initiator's public value, as on the wire.
        peer_public: Vec<u8>,
    },
    /// Sign a message. Completed by [`Completion::Signature`].
    Sign {
        /// Our private key.
        key: PrivateKey,
        /// The algorithm.
        scheme: Scheme,
        /// Weak algorithms that the configuration names.
        legacy: Legacy,
        /// The octets that the signature covers.
        message: Vec<u8>,
    },
    /// Verify a signature. Completed by [`Completion::Verified`].
    Verify {
        /// Public keys of which one may have signed.
        keys: Vec<PublicKey>,
        /// The algorithm.
        scheme: Scheme,
        /// Weak algorithms that the configuration names.
        legacy: Legacy,
        /// Messages of which one may have been signed.
        messages: Vec<Vec<u8>>,
        /// The signature.
        signature: Vec<u8>,
    },
    /// Judge a peer that proves itself by certificates. Completed by [`Completion::Certified`].
    Certify(Box<CertificateClaim>),
    /// When SAs have been used (liveness: ESP that arrives counts as a sign of life; inactivity;
    /// NAT-keepalives, which ESP that leaves replaces).
    /// Completed by [`Completion::Usage`].
    Usage {
        /// The SAs.
        sas: Vec<SaRef>,
    },
    /// How many packets SAs have carried. Completed by [`Completion::Packets`].
    Packets {
        /// The SAs.
        sas: Vec<SaRef>,
    },
    /// Which of our addresses the routing table would send from. Completed by
    /// [`Completion::Route`]; where that cannot be known, by [`Completion::Failed`], which changes
    /// nothing for an IKE_SA that stands.
    Route {
        /// The peer.
        remote: IpAddr,
    },
    /// How large packets the path to the peer takes, as far as this machine knows. Completed by
    /// [`Completion::PathMtu`].
    PathMtu {
        /// Our address.
        local: IpAddr,
        /// The peer.
        remote: IpAddr,
    },
    /// Fetch revocation lists and responses of OCSP from servers of the web. Completed by
    /// [`Completion::Fetched`].
    Fetch {
        /// Things to fetch, all at the same time.
        wanted: Vec<Fetch>,
        /// Time after which the answer comes with all that has come by then.
        limit: Duration,
    },
    /// Look a DNS name up. Completed by [`Completion::Addresses`].
    Resolve {
        /// The name, as configured.
        name: String,
    },
}

/// The answer to a [`Request`].
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Completion {
    /// A key pair.
    KeyPair {
        /// Private key, opaque to the endpoint.
        private: Secret,
        /// Public value as on the wire.
        public: Vec<u8>,
    },
    /// The shared secret; `None` when the peer's value is not acceptable (RFC 6989, RFC 8031).
    SharedSecret(Option<Secret>),
    /// Our value as on the wire and the shared secret; `None` when the initiator's value is not
    /// acceptable.
    Response(Option<(Vec<u8>, Secret)>),
    /// The signature; `None` when the private key makes none by this algorithm.
    Signature(Option<Vec<u8>>),
    /// True when one of the keys has signed one of the messages.
    Verified(bool),
    /// The peer's certificate, or the reason why the peer is refused.
    Certified(Result<Proven, Doubt>),
    /// Answers of servers of the web.
    Fetched {
        /// One for each thing that was wanted, in the same order.
        answers: Vec<Fetched>,
        /// Time that passed until all were there.
        took: Duration,
    },
    /// The latest time an authenticated packet arrived on any of the SAs, or one left.
    Usage {
        /// `None`: never.
        last_use: Option<Instant>,
    },
    /// Packets of each SA, in the order of the request; 0 of one that is not there.
    Packets(Vec<u64>),
    /// The address to send from.
    Route {
        /// `None`: there is no route to the peer.
        local: Option<IpAddr>,
    },
    /// Size of packets on the path to a peer. `None`: not known, or what a measurement finds could
    /// not be used.
    PathMtu(Option<KnownPath>),
    /// It could not be done, whatever it was.
    Failed {
        /// Reason.
        why: Diagnosis,
    },
    /// Addresses of a name, in the resolver's order of preference, or the reason why they are not
    /// known.
    Addresses(Result<Vec<IpAddr>, Unresolved>),
}

/// Knowledge of this machine about the path to a peer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct KnownPath {
    /// Bytes of the largest IP packet by the routing table, the link and ICMP errors that are
    /// believed, but not by measurements.
    pub mtu: u32,
    /// The MTU of an ICMP error, believed or not.
    pub told: Option<u32>,
}

/// Result of the last measurement of the path from us to a peer. Nothing is known of the way back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PathMtu {
    /// Bytes of the largest IP packet that has passed.
    pub proven: u32,
    /// Bytes of the largest IP packet that we believed to pass.
    pub believed: u32,
    /// Packets of `believed` bytes do not pass.
    pub narrow: bool,
    /// Time since then.
    pub age: Duration,
}

/// Private key and public value, or the reason why there is no pair.
pub(crate) type KeyPair = Result<(Secret, Vec<u8>), Diagnosis>;
/// Shared secret of a key exchange, or the reason why there is none.
pub(crate) type SharedSecret = Result<Secret, Diagnosis>;

impl Completion {
    /// Private key and public value, if this is a key pair.
    pub(crate) fn key_pair(self) -> KeyPair {
        match self {
            Self::KeyPair { private, public } => Ok((private, public)),
            Self::Failed { why } => Err(why),
            _ => Err(KeyExchange::no_key_pair().into()),
        }
    }

    /// Our value and the shared secret by this method, if this is both and the peer's value was
    /// acceptable.
    pub(crate) fn response(self, method: KeId) -> Result<(Vec<u8>, Secret), Diagnosis> {
        match self {
            Self::Response(Some(both)) => Ok(both),
            Self::Response(None) => Err(KeyExchange::BadValue { method }.into()),
            Self::Failed { why } => Err(why),
            _ => Err(KeyExchange::no_key_pair().into()),
        }
    }

    /// The shared secret by this method, if this is one and the peer's value was acceptable.
    pub(crate) fn shared_secret(self, method: KeId) -> SharedSecret {
        match self {
            Self::SharedSecret(Some(secret)) => Ok(secret),
            Self::SharedSecret(None) => Err(KeyExchange::BadValue { method }.into()),
            Self::Failed { why } => Err(why),
            _ => Err(KeyExchange::no_key_pair().into()),
        }
    }
}

/// What happened. Apply every event before sending what `poll_transmit` gives: an inbound SA must
/// stand before the peer learns of it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Event {
    /// For the packet engine.
    Sadb(Command),
    /// An IKE_SA is established.
    IkeUp(IkeId),
    /// An IKE_SA is gone. The snapshot is its last state.
    IkeDown(Box<IkeSaInfo>),
    /// An IKE_SA was replaced.
    IkeRekeyed {
        /// Old, as it was.
        old: Box<IkeSaInfo>,
        /// New.
        new: IkeId,
    },
    /// The addresses or ports of an established IKE_SA have changed.
    IkeMoved {
        /// As it was, without its children.
        old: Box<IkeSaInfo>,
        /// Our address and port now.
        local: SocketAddr,
        /// The peer's address and port now.
        remote: SocketAddr,
    },
    /// A CHILD_SA is installed.
    ChildUp {
        /// Its IKE_SA.
        ike: IkeId,
        /// The child.
        child: ChildId,
    },
    /// A CHILD_SA is gone. The snapshot is of its IKE_SA with this child only.
    ChildDown {
        /// IKE_SA, with only that child.
        ike: Box<IkeSaInfo>,
    },
    /// A CHILD_SA was replaced.
    ChildRekeyed {
        /// IKE_SA.
        ike: IkeId,
        /// The old child, as it was.
        old: Box<ChildSaInfo>,
        /// New.
        new: ChildId,
    },
    /// A line for the log. Where charon has an established phrase for the same event, it is that
    /// phrase.
    Log {
        /// How much it matters.
        level: Level,
        /// Connection's name, when one is known.
        conn: Option<String>,
        /// IKE_SA, when one is known.
        ike: Option<IkeId>,
        /// The line, without newline; bytes from the peer are escaped.
        text: String,
        /// The diagnosis that the line is about, when the line was made from one.
        why: Option<Arc<Diagnosis>>,
        /// The sender when nobody has authenticated it, and the line is about what it has sent.
        stranger: Option<IpAddr>,
    },
    /// An `initiate`, `terminate` or `rekey` of this ticket has ended; the error says why it
    /// failed.
    Done {
        /// As returned by the command.
        ticket: Ticket,
        /// Result.
        result: Result<(), Diagnosis>,
    },
    /// A condition that a line with this entry has told of tunnels that stand is over.
    Over {
        /// Connection's name.
        conn: String,
        /// Its IKE_SA.
        ike: IkeId,
        /// The entry.
        entry: Entry,
    },
    /// The path to a peer has been measured, or what was measured counts no more.
    PathMtu {
        /// The IKE_SA.
        ike: IkeId,
        /// The peer's address.
        remote: IpAddr,
        /// Bytes of the largest IP packet that passes; `None`: as many as are believed otherwise.
        mtu: Option<u32>,
    },
    /// The answer to this request is of no use any more. Who has not begun with it need not.
    Unwanted(RequestId),
    /// Keys, for the key log only. Sent only when the endpoint was told to.
    KeyLog(KeyLog),
}

/// Key material of one IKE_SA or CHILD_SA.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum KeyLog {
    /// An IKE_SA's keys (RFC 7296 section 2.14).
    Ike {
        /// The IKE_SA.
        ike: IkeId,
        /// Initiator's SPI.
        spi_i: u64,
        /// Responder's SPI.
        spi_r: u64,
        /// Suite.
        suite: IkeSuite,
        /// SK_d, SK_ai, SK_ar, SK_ei, SK_er, SK_pi, SK_pr.
        keys: Box<[Secret; 7]>,
    },
    /// One direction of a CHILD_SA.
    Child {
        /// Its IKE_SA.
        ike: IkeId,
        /// ESP or AH.
        protocol: ProtocolId,
        /// SPI on the wire.
        spi: Spi,
        /// Sender.
        src: SocketAddr,
        /// Receiver.
        dst: SocketAddr,
        /// Suite.
        suite: EspSuite,
        /// Encryption key (with salt).
        encr_key: Secret,
        /// Integrity key.
        integ_key: Secret,
    },
}

/// State of an IKE_SA, with VICI's names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "VICI's own words")]
pub enum IkeState {
    Created,
    Connecting,
    Established,
    Rekeying,
    Rekeyed,
    Deleting,
}

impl std::fmt::Display for IkeState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Created => "CREATED",
            Self::Connecting => "CONNECTING",
            Self::Established => "ESTABLISHED",
            Self::Rekeying => "REKEYING",
            Self::Rekeyed => "REKEYED",
            Self::Deleting => "DELETING",
        })
    }
}

/// State of a CHILD_SA, with VICI's names.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[allow(missing_docs, reason = "VICI's own words")]
pub enum ChildState {
    Installing,
    Installed,
    Rekeying,
    Rekeyed,
    Deleting,
}

impl std::fmt::Display for ChildState {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Installing => "INSTALLING",
            Self::Installed => "INSTALLED",
            Self::Rekeying => "REKEYING",
            Self::Rekeyed => "REKEYED",
            Self::Deleting => "DELETING",
        })
    }
}

/// A snapshot of an IKE_SA. Times are ages and remaining times at the moment of the snapshot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IkeSaInfo {
    /// Unique id.
    pub id: IkeId,
    /// Connection's name; empty for a half-open responder that has not chosen one.
    pub conn: String,
    /// State.
    pub state: IkeState,
    /// We are the original initiator.
    pub initiator: bool,
    /// Initiator's SPI.
    pub spi_i: u64,
    /// Responder's SPI, 0 until known.
    pub spi_r: u64,
    /// Our address and port.
    pub local: SocketAddr,
    /// The peer's address and port.
    pub remote: SocketAddr,
    /// Our identity.
    pub local_id: Option<Identity>,
    /// The peer's identity, once it has been authenticated (or the one we expect).
    pub remote_id: Option<Identity>,
    /// Suite, once chosen.
    pub suite: Option<IkeSuite>,
    /// A post-quantum preshared key is in its keys (RFC 8784), or in those of an IKE_SA that it has
    /// replaced by rekeying.
    pub ppk: bool,
    /// A NAT is in front of us.
    pub nat_local: bool,
    /// A NAT is in front of the peer.
    pub nat_remote: bool,
    /// NAT was faked by `encap = yes`.
    pub nat_fake: bool,
    /// Age since established.
    pub established: Option<Duration>,
    /// Until rekeying.
    pub rekey_in: Option<Duration>,
    /// Size of packets that pass to the peer, once measured.
    pub path_mtu: Option<PathMtu>,
    /// Names of tasks that wait.
    pub tasks_queued: Vec<&'static str>,
    /// Names of tasks that we started and that run.
    pub tasks_active: Vec<&'static str>,
    /// Names of tasks that the peer started and that run.
    pub tasks_passive: Vec<&'static str>,
    /// Children.
    pub children: Vec<ChildSaInfo>,
}

/// A snapshot of a CHILD_SA.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ChildSaInfo {
    /// Unique id.
    pub id: ChildId,
    /// Child's name.
    pub name: String,
    /// Reqid.
    pub reqid: ReqId,
    /// State.
    pub state: ChildState,
    /// ESP or AH.
    pub protocol: ProtocolId,
    /// Mode.
    pub mode: Mode,
    /// UDP encapsulation.
    pub udp_encap: bool,
    /// Inbound SPI.
    pub spi_in: Spi,
    /// Outbound SPI.
    pub spi_out: Spi,
    /// IPComp: our CPI, under which the peer sends; `None` without IPComp.
    pub cpi_in: Option<u16>,
    /// IPComp: the peer's CPI, under which we send; `None` without IPComp.
    pub cpi_out: Option<u16>,
    /// Suite.
    pub suite: EspSuite,
    /// Additional key exchanges that have made its keys.
    pub additional: Additional,
    /// Our side's selectors as agreed.
    pub local_ts: Vec<TrafficSelector>,
    /// The peer's side's selectors as agreed.
    pub remote_ts: Vec<TrafficSelector>,
    /// Age since installed.
    pub installed: Duration,
    /// Until rekeying.
    pub rekey_in: Option<Duration>,
    /// Until it is closed.
    pub life_in: Option<Duration>,
    /// Filled by the driver from the engine: inbound and outbound.
    pub stats: Option<(SaStats, SaStats)>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_shows_neither_seed_nor_private_key() {
        let secret = || Secret::new(b"swordfish".to_vec());
        let ke = KeId::CURVE_25519;
        let shown = format!(
            "{:?} {:?}",
            Request::GenerateKey { ke, seed: secret() },
            Request::Agree { ke, private: secret(), peer_public: vec![1] }
        );
        assert_eq!(shown.matches("Secret(9 bytes)").count(), 2, "{shown}");
        assert!(!shown.contains("115, 119, 111"), "the bytes: {shown}");
    }
}
