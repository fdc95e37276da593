//! Entries of the area selectors: traffic selectors that two sides do not agree on.

use std::net::IpAddr;

use ironswan_wire::iana::NotifyType;
use ironswan_wire::ike::payload::Notify;
use ironswan_wire::selector::TrafficSelector;

use super::entry::{Words, entries, say};
use super::negotiation::list_selectors;
use super::shown::{Shown, cut, displayed, in_the_sentence, shorten};

/// Limits how many configured children one line names.
const CHILDREN: usize = 16;

/// Traffic selectors of both sides.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Pair {
    /// Our side.
    pub local: Vec<TrafficSelector>,
    /// The peer's side.
    pub remote: Vec<TrafficSelector>,
}

impl std::fmt::Display for Pair {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} === {}", list_selectors(&self.local), list_selectors(&self.remote))
    }
}

/// Reason why selectors in an answer cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AnswerFault {
    /// They are not inside of what was asked for.
    Outside,
    /// They are narrower than those of the CHILD_SA that is rekeyed.
    Narrower,
    /// They have more than one address on a side, in transport mode.
    NotHosts,
    /// They make too many pairs. Their number.
    Pairs(usize),
}

/// Reason why a CHILD_SA is in tunnel mode although one side wants transport mode.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TransportFault {
    /// The selectors are not the addresses of the two ends.
    NotHosts,
    /// The peer does not ask for transport mode.
    NotAsked,
    /// The peer does not agree to transport mode.
    Declined,
}

/// Reason why the policies of a child cannot be installed as a trap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TrapFault {
    /// The child has no policies.
    NoPolicies,
    /// The selectors depend on the peer's address, which is not known.
    NoRemote,
    /// The selectors depend on our address, and there is no route to the peer at this address.
    NoRoute(IpAddr),
}

entries! {
    /// Agreeing on the traffic that a CHILD_SA carries.
    Selectors, SelectorsEntry;

    /// No child is configured for any of the traffic that the peer asks for.
    Unacceptable {
        /// Selectors that the peer asks for.
        asked: Pair,
        /// Name and selectors of each configured child.
        configured: Vec<(String, Pair)>,
    } = "selectors-unacceptable" by NoAgreement;
    /// The peer rekeys a CHILD_SA and asks for less traffic than it carries.
    Narrows {
        /// Selectors that the peer asks for.
        asked: Pair,
        /// Name of the CHILD_SA.
        child: String,
        /// Selectors of the CHILD_SA.
        in_use: Box<Pair>,
    } = "rekeying-narrows" by Peer;
    /// Two hosts behind one NAT ask for transport mode with the same traffic.
    SameHost {
        /// Ends of the IKE_SA that has this traffic already.
        other: String,
        /// Selectors that the peer asks for.
        asked: Pair,
    } = "same-traffic-behind-nat" by Configuration;
    /// A CHILD_SA carries less traffic than its child is configured for, since the peer wants less.
    Narrowed {
        /// Name of the child.
        child: String,
        /// Selectors of the child as configured.
        configured: Box<Pair>,
        /// Selectors that whoever has begun has asked for.
        asked: Box<Pair>,
        /// Selectors of the CHILD_SA.
        agreed: Box<Pair>,
        /// We have asked; else the peer has.
        by_us: bool,
    } = "selectors-narrowed" by NoAgreement;
    /// The peer's answer to our selectors cannot be used.
    BadAnswer {
        /// Selectors of the answer.
        answered: Pair,
        /// Selectors that we have asked for.
        asked: Box<Pair>,
        /// Reason.
        fault: AnswerFault,
    } = "bad-selectors-in-answer" by Peer;
    /// The peer has cut selectors into as many pieces as it may on all of its IKE_SAs.
    TooManyPieces {
        /// Selectors that the peer asks for.
        asked: Pair,
    } = "too-many-pieces" by Peer;
    /// The policies of a child cannot be installed as a trap, so no packet brings it up.
    NoTrap {
        /// Name of the child.
        child: String,
        /// Reason.
        why: TrapFault,
    } = "trap-not-installed" by Configuration;
    /// A CHILD_SA is in tunnel mode although the child has `mode = transport`.
    NoTransport {
        /// Reason.
        why: TransportFault,
    } = "tunnel-mode-instead" by NoAgreement;
}

impl Selectors {
    pub(super) fn notify(&self) -> Option<Notify> {
        let kind = match self {
            Self::BadAnswer { .. }
            | Self::NoTrap { .. }
            | Self::NoTransport { .. }
            | Self::Narrowed { .. } => return None,
            Self::Unacceptable { .. } | Self::Narrows { .. } | Self::SameHost { .. } => {
                NotifyType::TS_UNACCEPTABLE
            }
            // Asked for again, the CHILD_SA is narrowed to what is left.
            Self::TooManyPieces { .. } => NotifyType::TEMPORARY_FAILURE,
        };
        Some(Notify::new(kind, []))
    }

    pub(super) fn words(&self) -> Words {
        match self {
            Self::Unacceptable { asked, configured } => {
                let mut children = configured.iter().take(CHILDREN);
                let some: Vec<_> = children.by_ref().map(|(name, pair)| format!("{name}: {pair}")).collect();
                let remedy = "compare local_ts here with remote_ts there, and the other way round";
                say(format!("traffic selectors {asked} unacceptable"), remedy)
                    .with(vec![shorten(format!("configured are {}", some.join(", ")))])
            }
            Self::Narrows { asked, child, in_use } => {
                say(format!("traffic selectors {asked} unacceptable"), "")
                    .with(vec![format!("{child} has {in_use}, which a rekeying must not narrow")])
            }
            Self::Narrowed { child, configured, asked, agreed, by_us } => say(
                shorten(format!("CHILD_SA {child} carries {agreed} alone, configured is {configured}")),
                match by_us {
                    true => "nothing, if that is meant; else let local_ts there have remote_ts here, and the other way round",
                    false => "nothing, if the peer is to ask for less; else let it ask for all of local_ts and remote_ts",
                },
            )
            .with(vec![shorten(format!("{} asked for {asked}", if *by_us { "we" } else { "the peer" }))]),
            Self::SameHost { other, asked } => say(
                format!(
                    "{other} has transport mode with {asked} already: hosts behind one NAT need ports of their own \
                     (local_ts, remote_ts), or tunnel mode with addresses of their own (RFC 3948 section 5.2)"
                ),
                "",
            ),
            Self::BadAnswer { answered, asked, fault } => {
                let fault = match fault {
                    AnswerFault::Outside => format!("which are not inside {asked}"),
                    AnswerFault::Narrower => format!("which are narrower than {asked} in use"),
                    AnswerFault::NotHosts => "too many addresses for transport mode".to_owned(),
                    AnswerFault::Pairs(pairs) => format!("which are {pairs} pairs of {asked}"),
                };
                say(shorten(format!("the peer answered traffic selectors {answered}, {fault}")), "")
            }
            Self::TooManyPieces { asked } => {
                say(format!("the peer has no room for so many selectors any more: {asked}"), "")
            }
            Self::NoTrap { child, why } => why.words(child),
            Self::NoTransport { why: TransportFault::NotHosts } => say(
                "not using transport mode, not host-to-host",
                "let local_ts and remote_ts be dynamic, or the addresses of the two gateways",
            ),
            Self::NoTransport { why: TransportFault::NotAsked } => say(
                "the peer does not ask for transport mode, using tunnel mode",
                "give the child the same mode on both sides",
            ),
            Self::NoTransport { why: TransportFault::Declined } => say(
                "the peer does not agree to transport mode, using tunnel mode",
                "give the child the same mode on both sides",
            ),
        }
    }
}

impl TrapFault {
    fn words(self, child: &str) -> Words {
        match self {
            Self::NoPolicies => say(
                format!("no trap for {child}: it is configured without policies (policies = no)"),
                "take policies = no out, or start the child by another start_action",
            ),
            Self::NoRemote => say(
                format!("installing trap {child} failed, remote address unknown"),
                "name the peer in remote_addrs, or its networks in remote_ts",
            ),
            Self::NoRoute(remote) => say(
                format!("installing trap {child} failed, no route to the peer at {remote}"),
                "add a route, or name our address in local_addrs",
            ),
        }
    }
}

in_the_sentence!(AnswerFault, TransportFault, TrapFault);
displayed!(Pair);

impl Shown for (String, Pair) {
    fn shown(&self) -> Option<String> {
        Some(cut(format!("{}: {}", self.0, self.1)))
    }
}
