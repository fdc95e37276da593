//! Entries of the area key exchange: IKE_SA_INIT, CREATE_CHILD_SA, and the messages of every
//! exchange.

use ironswan_wire::iana::{ExchangeType, KeId, NotifyType, PrfId};
use ironswan_wire::ike::ParseError;
use ironswan_wire::ike::payload::Notify;
use ironswan_wire::proposal::Proposal;
use ironswan_wire::sadb::Spi;

use super::entry::{Words, entries, say};
use super::negotiation::{Nearest, list_proposals, shorten};
use super::selectors::Pair;

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

    /// A message of the peer cannot be parsed.
    Unreadable {
        /// Name of the message.
        message: String,
        /// Error of the parser.
        error: ParseError,
    } = "unreadable-message" by Bytes;
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

impl KeyExchange {
    /// The peer has answered a protected request with this error.
    pub fn peer_error(kind: NotifyType) -> Self {
        Self::PeerError { kind, authentic: true, proposed: Vec::new(), selectors: None }
    }

    pub(super) fn notify(&self) -> Option<Notify> {
        let (kind, data) = match self {
            Self::PeerError { .. } | Self::NeverOffered { .. } => return None,
            Self::NoProposal { .. } | Self::AhThroughNat => (NotifyType::NO_PROPOSAL_CHOSEN, Vec::new()),
            Self::OtherMethod { wanted, .. } => {
                (NotifyType::INVALID_KE_PAYLOAD, wanted.0.to_be_bytes().to_vec())
            }
            // The message can be read: that is no reason to end the IKE_SA.
            Self::BadSpi { spi: Some(_) } => (NotifyType::NO_PROPOSAL_CHOSEN, Vec::new()),
            Self::BadValue { .. }
            | Self::ShortNonce { .. }
            | Self::MissingPayload { .. }
            | Self::BadSpi { spi: None } => (NotifyType::INVALID_SYNTAX, Vec::new()),
            Self::Unreadable { error, .. } => (error.notify(), error.notify_data()),
            Self::OutOfPlace { .. } => (NotifyType::INVALID_SYNTAX, Vec::new()),
            Self::ChildLimit { .. } => (NotifyType::NO_ADDITIONAL_SAS, Vec::new()),
        };
        Some(Notify::new(kind, data))
    }

    pub(super) fn words(&self) -> Words {
        match self {
            Self::NoProposal { received, configured, nearest, unsupported } => {
                let why = match (nearest, unsupported) {
                    (Some(nearest), _) => nearest.to_string(),
                    (None, Some(both)) => format!("{both} is configured but not supported here"),
                    (None, None) => "no proposal for this protocol was received".to_owned(),
                };
                let mut details = vec![
                    format!("received proposals: {}", list_proposals(received)),
                    format!("configured proposals: {}", list_proposals(configured)),
                ];
                if let (Some(_), Some(both)) = (nearest, unsupported) {
                    details.push(format!("{both} is configured but not supported here"));
                }
                let details = details.into_iter().map(shorten).collect();
                let remedy = "configure an algorithm of each type that the other side has";
                say(shorten(format!("no acceptable proposal found: {why}")), remedy).with(details)
            }
            Self::AhThroughNat => say(
                "AH cannot pass a NAT (RFC 3948 encapsulates ESP only)",
                "configure ESP (esp_proposals), or remove the NAT or encap = yes",
            ),
            Self::OtherMethod { received: Some(received), wanted } => {
                say(format!("key exchange method {received} unacceptable, requesting {wanted}"), "")
            }
            Self::OtherMethod { received: None, wanted } => {
                say(format!("key exchange method {wanted} is required"), "")
            }
            Self::BadValue { method } => {
                say(format!("the peer's key exchange value for {method} is not acceptable"), "")
            }
            Self::ShortNonce { bytes, prf } => {
                say(format!("a nonce of {bytes} bytes is too short for {prf}"), "")
            }
            Self::MissingPayload { message, needs } => {
                say(format!("the peer's {message} lacks one of {needs}"), "")
            }
            Self::NeverOffered { answer } => {
                let list = list_proposals(answer);
                say(shorten(format!("the peer chose what was never offered: {list}")), "")
            }
            Self::BadSpi { spi: Some(spi) } => {
                say(format!("the peer proposes SPI {spi}, which another CHILD_SA of it has"), "")
            }
            Self::BadSpi { spi: None } => say("the peer proposes an SPI that cannot be used", ""),
            Self::Unreadable { message, error } => say(format!("received invalid {message}: {error}"), ""),
            Self::OutOfPlace { exchange } => {
                say(format!("the peer sends an {exchange} request, which has no place in this IKE_SA"), "")
            }
            Self::PeerError { kind, authentic, proposed, selectors } => {
                let doubt = if *authentic { "" } else { " (not authenticated)" };
                let details = match selectors {
                    Some(pair) => Some(format!(
                        "proposed were {} and traffic selectors {pair}",
                        list_proposals(proposed)
                    )),
                    None if proposed.is_empty() => None,
                    None => Some(format!("proposed was {}", list_proposals(proposed))),
                };
                let remedy = match *kind {
                    NotifyType::NO_PROPOSAL_CHOSEN => "compare the proposals of both sides",
                    NotifyType::TS_UNACCEPTABLE => "compare the traffic selectors of both sides",
                    _ => "the peer's log says why",
                };
                let details = details.into_iter().map(shorten).collect();
                say(format!("received {kind} notify error{doubt}"), remedy).with(details)
            }
            Self::ChildLimit { holder, children, setting } => say(
                format!("{holder} has {children} CHILD_SAs already ({setting})"),
                format!("raise {setting}, or let the peer use fewer children"),
            ),
        }
    }
}
