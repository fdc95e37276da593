//! Sentences and notifications of the entries of key exchange.

use std::fmt;

use ironswan_wire::iana::{NotifyType, ProtocolId};
use ironswan_wire::ike::payload::Notify;

use super::entry::{Words, say};
use super::key_exchange::{Forgery, KeyExchange, NotDone, Uncomputed, Unsent};
use super::negotiation::list_proposals;
use super::shown::shorten;

impl KeyExchange {
    /// No key pair could be made for a key exchange.
    pub fn no_key_pair() -> Self {
        Self::NotComputed { why: Uncomputed::KeyPair { method: None, why: String::new() } }
    }

    /// The peer has answered a protected request with this error.
    pub fn peer_error(kind: NotifyType) -> Self {
        Self::PeerError { kind, authentic: true, proposed: Vec::new(), selectors: None }
    }

    pub(super) fn notify(&self) -> Option<Notify> {
        let (kind, data) = match self {
            Self::NoSuchChild { protocol, spi } => {
                return Some(Notify::about(NotifyType::CHILD_SA_NOT_FOUND, *protocol, *spi));
            }
            // "SHOULD send an unauthenticated Notify message of type INVALID_MAJOR_VERSION ...
            // containing the highest (closest) version number it supports" (RFC 7296 section 2.5).
            Self::BadVersion { .. } => (NotifyType::INVALID_MAJOR_VERSION, vec![2]),
            Self::PeerError { .. }
            | Self::Forged { .. }
            | Self::NeverOffered { .. }
            | Self::PeerCannotRead { .. }
            | Self::PeerBusy
            | Self::RekeyRefused { .. }
            | Self::CannotSend { .. }
            | Self::MessageTooLong { .. }
            | Self::NotComputed { .. }
            | Self::PeerDeleted { .. }
            | Self::PeerRestarted
            | Self::PeerCrashed { .. }
            | Self::LifetimeOver { .. }
            | Self::ShortAuthLifetime { .. }
            | Self::NotDone { .. } => return None,
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
            Self::Forged { sign } => {
                say(sign.to_string(), "look for who can see and send on the way between the gateways")
            }
            Self::BadVersion { major, remote } => say(
                format!("received unsupported IKE version {major} from {remote}"),
                "let the peer use IKEv2 (version = 2)",
            ),
            Self::NoSuchChild { protocol, spi } => say(
                format!("the peer wants to rekey a CHILD_SA that does not exist ({protocol} SPI {spi:08x})"),
                "nothing: the peer makes a new one",
            ),
            Self::OutOfPlace { exchange } => {
                say(format!("the peer sends an {exchange} request, which has no place in this IKE_SA"), "")
            }
            Self::RekeyRefused { child, kind, ends, proposed } => {
                let what =
                    child.as_ref().map_or("the IKE_SA".to_owned(), |child| format!("CHILD_SA {child}"));
                let ends = ends.map_or("it goes on with its old keys".to_owned(), |ends| {
                    format!("it ends in {ends} s unless a rekeying succeeds before")
                });
                let remedy = match (*kind, child) {
                    (NotifyType::NO_PROPOSAL_CHOSEN | NotifyType::INVALID_KE_PAYLOAD, Some(_)) => {
                        "compare the key exchange (PFS) in esp_proposals of both sides: it is not used before the first \
                         rekeying"
                    }
                    (NotifyType::NO_PROPOSAL_CHOSEN | NotifyType::INVALID_KE_PAYLOAD, None) => {
                        "compare proposals of both sides"
                    }
                    _ => "the peer's log says why",
                };
                let details = match proposed.is_empty() {
                    true => Vec::new(),
                    false => vec![shorten(format!("proposed was {}", list_proposals(proposed)))],
                };
                say(format!("the peer refuses to rekey {what} ({kind}); {ends}"), remedy).with(details)
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
                let remedy = match (*kind, proposed.first().map(|proposal| proposal.protocol)) {
                    (NotifyType::NO_PROPOSAL_CHOSEN, Some(ProtocolId::IKE)) => {
                        "compare proposals of both sides, and see that the peer has a connection for our address; its log \
                         says which"
                    }
                    (NotifyType::NO_PROPOSAL_CHOSEN, Some(ProtocolId::AH)) => {
                        "compare ah_proposals of both sides; the peer's log says what differs"
                    }
                    (NotifyType::NO_PROPOSAL_CHOSEN, _) => {
                        "compare esp_proposals of both sides; the peer's log says what differs"
                    }
                    (NotifyType::TS_UNACCEPTABLE, _) => {
                        "compare local_ts here with remote_ts there, and the other way round"
                    }
                    _ => "the peer's log says why",
                };
                let details = details.into_iter().map(shorten).collect();
                say(format!("received {kind} notify error{doubt}"), remedy).with(details)
            }
            Self::PeerCannotRead { exchange: Some(exchange) } => {
                say(format!("the peer cannot read our {exchange} request (INVALID_SYNTAX)"), "")
            }
            Self::PeerCannotRead { exchange: None } => {
                say("the peer cannot read what we have sent (INVALID_SYNTAX)", "")
            }
            Self::MessageTooLong { limit } => say(
                format!("the fragments of a message of the peer have more than {limit} bytes together"),
                "let the peer send fewer or smaller certificates (send_cert = never, where its certificate is installed here)",
            ),
            Self::PeerBusy => say("the peer has answered TEMPORARY_FAILURE for minutes", ""),
            Self::CannotSend { why: Unsent::MessageIds } => say("message IDs are used up", ""),
            Self::CannotSend { why: Unsent::TooLong(exchange) } => say(
                format!("the {exchange} request does not fit into a message"),
                "configure fewer proposals, or fewer selectors for one child",
            ),
            Self::CannotSend { why: Unsent::AnswerTooLong(exchange) } => say(
                format!("the {exchange} response does not fit into a message"),
                "let the peer ask for fewer selectors in one child",
            ),
            Self::NotComputed { why } => say(why.to_string(), ""),
            Self::PeerDeleted { child: false } => say("the peer deleted the IKE_SA", ""),
            Self::PeerDeleted { child: true } => say("the peer deleted the CHILD_SA", ""),
            Self::PeerRestarted => say("the peer has lost the IKE_SA", ""),
            Self::PeerCrashed { remote } => say(
                format!("the peer has restarted without this IKE_SA, as its QCD token from {remote} proves"),
                "",
            ),
            Self::LifetimeOver { child: false } => {
                say("the lifetime of the IKE_SA was over and no other had taken over", "")
            }
            Self::LifetimeOver { child: true } => {
                say("its lifetime was over and it had not been rekeyed", "")
            }
            Self::ShortAuthLifetime { seconds, used } => say(
                format!(
                    "the peer wants a new authentication every {seconds} s, which is done every {used} s"
                ),
                "let the peer name a longer time (its reauth_time)",
            ),
            Self::NotDone { why } => say(why.to_string(), why.remedy()),
            Self::ChildLimit { holder, children, setting } => say(
                format!("{holder} has {children} CHILD_SAs already ({setting})"),
                format!("raise {setting}, or let the peer use fewer children"),
            ),
        }
    }
}

impl fmt::Display for Forgery {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TwoResponses => "received two different responses to IKE_SA_INIT",
            Self::NoAnswer => "nobody answers to the keys of the first of two responses",
            Self::NotThePeer => "two different responses came, and the first is not the peer's",
            Self::Cookie => "the request for a cookie may have been a forgery",
            Self::PublicValue => "the public value in the response is not acceptable",
        })
    }
}

impl fmt::Display for Uncomputed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::KeyPair { method: Some(method), why } => write!(f, "unable to make a {method} key: {why}"),
            Self::KeyPair { method: None, .. } => f.write_str("no key pair could be made"),
            Self::Suite => f.write_str("the suite agreed on is not supported"),
            Self::TooMany => f.write_str("too many computations for other peers wait"),
            Self::NotStarted(why) => write!(f, "a computation was not started: {why}"),
            Self::Panicked => f.write_str("a computation ended badly"),
        }
    }
}

impl NotDone {
    fn remedy(&self) -> &'static str {
        match self {
            Self::NoAddress => "name the peer's address in remote_addrs, or let the peer initiate",
            _ => "",
        }
    }
}

impl fmt::Display for NotDone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Terminated => "the IKE_SA was terminated",
            Self::Cancelled => "cancelled",
            Self::Stopping => "the daemon is stopping",
            Self::Changed => "the connection has been changed",
            Self::Unloaded => "the connection has been unloaded",
            Self::ChildRemoved => "the child is not configured any more",
            Self::Rekeyed => "the IKE_SA was rekeyed",
            Self::ChildGone => "the CHILD_SA is gone",
            Self::Closing => "the IKE_SA is being closed",
            Self::Replacing => "the IKE_SA is being replaced or closed already",
            Self::NotReplaced => "no other IKE_SA has taken over",
            Self::ChildRekeying => "CHILD_SA is being rekeyed already",
            Self::IkeRekeying => "IKE_SA is being rekeyed already",
            Self::NotEstablished => "IKE_SA is not established",
            Self::Initiating => "is being initiated already",
            Self::NoAddress => "unable to initiate to %any",
            Self::NotLoaded(conn) => {
                return write!(f, "IKE_SA config '{}' not found", conn.escape_debug());
            }
            Self::NoChild(child) => {
                return write!(f, "CHILD_SA config '{}' not found", child.escape_debug());
            }
            Self::NoMatch { to } => return write!(f, "no matching SAs to {to} found"),
            Self::Shunt(child) => {
                return write!(f, "'{}' is a shunt, there is nothing to negotiate", child.escape_debug());
            }
        })
    }
}

impl From<NotDone> for super::Diagnosis {
    fn from(why: NotDone) -> Self {
        KeyExchange::NotDone { why }.into()
    }
}
