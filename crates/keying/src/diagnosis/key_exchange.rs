//! Entries of the area key exchange: IKE_SA_INIT, CREATE_CHILD_SA, the messages of every exchange,
//! and the end of SAs.

use std::net::SocketAddr;

use ironswan_wire::iana::{ExchangeType, KeId, NotifyType, PrfId, ProtocolId};
use ironswan_wire::ike::ParseError;
use ironswan_wire::proposal::Proposal;
use ironswan_wire::sadb::Spi;

use super::entry::entries;
use super::negotiation::Nearest;
use super::selectors::Pair;
use super::shown::{displayed, in_the_sentence};

/// Reason why a message of ours cannot be sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unsent {
    /// All message IDs of the IKE_SA are used up.
    MessageIds,
    /// The request does not fit into a datagram.
    TooLong(ExchangeType),
    /// The response does not fit into a datagram.
    AnswerTooLong(ExchangeType),
}

/// Sign that somebody on the way sends messages of IKE_SA_INIT in the peer's name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Forgery {
    /// Two different responses have come.
    TwoResponses,
    /// Two different responses have come, and nobody answers to the keys of the first.
    NoAnswer,
    /// Two different responses have come, and the sender of the first is not the peer.
    NotThePeer,
    /// The peer refuses us after it has asked for a cookie.
    Cookie,
    /// No shared secret follows from the public value in the response.
    PublicValue,
}

/// Reason why a key or a signature has not been computed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Uncomputed {
    /// No key pair could be made.
    KeyPair {
        /// The method. `None`: another reason than the library's.
        method: Option<KeId>,
        /// The library's own words. Empty: not known.
        why: String,
    },
    /// The engine does not support the suite that both sides agreed on.
    Suite,
    /// Too many computations for strangers wait.
    TooMany,
    /// The thread was not started, for this reason.
    NotStarted(String),
    /// The thread has panicked.
    Panicked,
}

/// Reason why something that was asked for is not done.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum NotDone {
    /// An operator has ended the IKE_SA.
    Terminated,
    /// An operator has taken the attempt back before it has begun.
    Cancelled,
    /// The daemon ends.
    Stopping,
    /// A reload has changed the connection.
    Changed,
    /// A reload has removed the connection.
    Unloaded,
    /// A reload has removed the child.
    ChildRemoved,
    /// The IKE_SA has a successor.
    Rekeyed,
    /// The CHILD_SA has ended meanwhile.
    ChildGone,
    /// The IKE_SA is being closed.
    Closing,
    /// The IKE_SA is being replaced or closed.
    Replacing,
    /// No other IKE_SA has taken over.
    NotReplaced,
    /// The CHILD_SA is being rekeyed already.
    ChildRekeying,
    /// The IKE_SA is being rekeyed already.
    IkeRekeying,
    /// The IKE_SA is not established yet.
    NotEstablished,
    /// The IKE_SA is being initiated already.
    Initiating,
    /// No connection of this name is loaded.
    NotLoaded(String),
    /// The connection, or any connection, has no child of this name.
    NoChild(String),
    /// No SA matches a command.
    NoMatch {
        /// The command, as a verb.
        to: &'static str,
    },
    /// The child of this name is a shunt.
    Shunt(String),
    /// The connection names no address of the peer.
    NoAddress,
}

impl NotDone {
    /// A command names a connection or child that is not loaded.
    pub fn is_unknown_name(&self) -> bool {
        matches!(self, Self::NotLoaded(_) | Self::NoChild(_))
    }
}

entries! {
    /// Agreeing on algorithms and keys.
    KeyExchange, KeyExchangeEntry;

    // ---- what the peer proposes ----

    /// The two sides have no proposal in common.
    NoProposal {
        /// The peer's proposals.
        received: Vec<Proposal>,
        /// Our proposals.
        configured: Vec<Proposal>,
        /// The nearest pair. `None`: the peer has proposed no protocol that we could use.
        nearest: Option<Box<Nearest>>,
        /// A proposal that both sides have and that this program does not support.
        unsupported: Option<Box<Proposal>>,
    } = "no-proposal" by NoAgreement;
    /// AH is configured, or proposed by the peer, and a NAT is between the two sides.
    AhThroughNat = "ah-through-nat" by Configuration;
    /// The peer has sent a value of another key exchange method than the one that fits both sides.
    OtherMethod {
        /// Method of the peer's value. `None`: the peer has sent no value.
        received: Option<KeId>,
        /// Method that fits both sides, which the peer is asked for.
        wanted: KeId,
    } = "other-key-exchange-method" by NoAgreement;
    /// The peer's key exchange value cannot be used.
    BadValue {
        /// Its method.
        method: KeId,
    } = "bad-key-exchange-value" by Peer;
    /// The peer's nonce is shorter than the PRF demands.
    ShortNonce {
        /// Length of the nonce in bytes.
        bytes: usize,
        /// The PRF of the IKE_SA.
        prf: PrfId,
    } = "short-nonce" by Peer;
    /// A message of the peer lacks payloads that it must have.
    MissingPayload {
        /// Name of the message.
        message: &'static str,
        /// Payloads of which one is missing.
        needs: &'static str,
    } = "missing-payload" by Peer;
    /// The peer has chosen algorithms that we have not offered.
    NeverOffered {
        /// The peer's choice.
        answer: Vec<Proposal>,
    } = "never-offered" by Peer;
    /// The peer has chosen an SPI that it must not use.
    BadSpi {
        /// The SPI of a CHILD_SA. `None`: its bytes are no SPI that may be used.
        spi: Option<Spi>,
    } = "bad-spi" by Peer;

    // ---- messages ----

    /// Somebody on the way to the peer may have forged a message of IKE_SA_INIT.
    Forged {
        /// Sign of it.
        sign: Forgery,
    } = "forged-response" by ThisMachine;
    /// The peer speaks a version of IKE that is not built.
    BadVersion {
        /// The major version.
        major: u8,
        /// The peer's address and port.
        remote: SocketAddr,
    } = "unsupported-ike-version" by Peer;
    /// The peer wants to rekey a CHILD_SA that does not exist here.
    NoSuchChild {
        /// ESP or AH.
        protocol: ProtocolId,
        /// SPI that the peer names.
        spi: u32,
    } = "no-such-child-sa" by Peer;

    /// A message of the peer cannot be parsed.
    Unreadable {
        /// Name of the message.
        message: String,
        /// Error of the parser.
        error: ParseError,
    } = "unreadable-message" by Bytes;
    /// The fragments of a message of the peer are more than is put together (10,000
    /// bytes).
    MessageTooLong {
        /// Bytes that a message may have.
        limit: usize,
    } = "message-too-long" by Bytes;
    /// The peer asks for an exchange that cannot come now, or that is not known.
    OutOfPlace {
        /// The exchange.
        exchange: ExchangeType,
    } = "message-out-of-place" by Peer;

    /// The peer has answered our request with an error.
    PeerError {
        /// The notification.
        kind: NotifyType,
        /// The answer is authenticated: nobody but the peer can have sent it.
        authentic: bool,
        /// Proposals of our request.
        proposed: Vec<Proposal>,
        /// Selectors of our request.
        selectors: Option<Pair>,
    } = "peer-error" by NoAgreement;

    /// The peer refuses to rekey an SA, which ends when its lifetime is over.
    RekeyRefused {
        /// Name of the CHILD_SA. `None`: the IKE_SA.
        child: Option<String>,
        /// The peer's notification.
        kind: NotifyType,
        /// Time until the SA ends, in seconds. `None`: it has no lifetime in time.
        ends: Option<u64>,
        /// Proposals of our request.
        proposed: Vec<Proposal>,
    } = "rekeying-refused" by NoAgreement;

    /// The peer cannot read a message of ours.
    PeerCannotRead {
        /// Exchange of our request. `None`: the peer does not say which message it means.
        exchange: Option<ExchangeType>,
    } = "peer-cannot-read" by Bytes;
    /// The peer has been busy for minutes.
    PeerBusy = "peer-always-busy" by Peer;
    /// A message of ours cannot be sent.
    CannotSend {
        /// Reason.
        why: Unsent,
    } = "cannot-send" by ThisMachine;
    /// A key or a signature has not been computed.
    NotComputed {
        /// Reason.
        why: Uncomputed,
    } = "not-computed" by ThisMachine;

    // ---- the end ----

    /// The peer has deleted an SA.
    PeerDeleted {
        /// A CHILD_SA; else the IKE_SA.
        child: bool,
    } = "peer-deleted" by Peer;
    /// The peer has lost the IKE_SA, and has come back.
    PeerRestarted = "peer-restarted" by Peer;
    /// The peer has proved by its QCD token that it has lost the IKE_SA (RFC 6290).
    PeerCrashed {
        /// Address and port from which the token came.
        remote: SocketAddr,
    } = "peer-crashed" by Peer;
    /// The lifetime of an SA is over, and no other has taken over before.
    LifetimeOver {
        /// A CHILD_SA; else the IKE_SA.
        child: bool,
    } = "lifetime-over" by NoAgreement;
    /// Something was not done, because of a command, a reload, or something else under way.
    NotDone {
        /// Reason.
        why: NotDone,
    } = "not-done" by Configuration;

    /// The responder names a lifetime of the authentication (RFC 4478) that is too short.
    ShortAuthLifetime {
        /// The lifetime in seconds.
        seconds: u32,
        /// The lifetime in seconds that is used instead.
        used: u64,
    } = "short-auth-lifetime" by Peer;

    // ---- limits ----

    /// The peer asks for more CHILD_SAs than it may have.
    ChildLimit {
        /// Whoever has as many: the IKE_SA, or the peer by its identity.
        holder: String,
        /// Number of its CHILD_SAs.
        children: usize,
        /// The setting that limits them.
        setting: &'static str,
    } = "child-sa-limit" by Configuration;
}

displayed!(Forgery, Uncomputed, NotDone);
in_the_sentence!(Unsent);
