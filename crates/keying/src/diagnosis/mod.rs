//! The closed list of reasons why something failed or is doubtful, for the whole gateway.
//!
//! ```text
//! Diagnosis ─ area ─ entry { data } ─┬─ sentence   for people; of the area's file
//!                                    ├─ remedy     for people; may be empty
//!                                    ├─ details    lines of long data, for the log
//!                                    ├─ notify     the NOTIFY that answers the peer, if one does
//!                                    └─ Entry ─── name, area, fault, meaning; without data
//! ```
//! Names of entries are stable: logs, JSON, VICI and the manual use them.
//! `docs/manual/diagnoses.md` has a row for each entry, and `docs/manual/symptoms.md` has it under
//! what people see; both are made from the list. A new reason is a new entry in the file of its
//! area, and what to do about it in `advice`.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `advice/` | what the manual says to do about each entry, and its symptoms |
//! | `authentication` | entries of authentication: identities, proofs, connections of a peer |
//! | `candidates` | connections that a peer could have belonged to |
//! | `certificate` | sentences about certificates of the peer |
//! | `configuration` | entries of configuration: files, names of keys, values |
//! | `configuration_words` | their sentences and remedies |
//! | `data_plane` | entries of the data plane: SAs, device, offloads, `AF_XDP`, threads |
//! | `entry` | fault, words, and the macro that makes the enums of an area |
//! | `key_exchange` | entries of key exchange: proposals, key exchange values, messages |
//! | `key_exchange_words` | their sentences, remedies and notifications |
//! | `manual` | the pages of the manual that are made from the list |
//! | `negotiation` | details of a negotiation: the nearest proposals, lists |
//! | `packet` | entries of the way of one packet through this machine |
//! | `path` | entries of the path to the peer |
//! | `guard` | entries of the guard: nft, rules, table 220, ingress |
//! | `machine` | entries of this machine: kernel, capabilities, threads, sockets |
//! | `ppk` | sentences about post-quantum preshared keys |
//! | `proof` | details of proofs by public key: keys, CAs and statuses that are missing |
//! | `proposal` | reasons why a proposal cannot be used |
//! | `reach` | requests without an answer, and what ICMP says of them |
//! | `reading` | details of files, syntax and inheritance |
//! | `selectors` | entries of traffic selectors |
//! | `unwise` | values that contradict each other, or are probably not what is meant |
//! | `value` | details of values, names, secrets and dates |
//! | `shown` | fields of entries as text |
//! | `sides` | values of both sides beside each other, and keys of the configuration |
//! | `symptom` | what people see before they know a reason, and commands that find it |

mod advice;
mod authentication;
mod candidates;
mod certificate;
mod configuration;
mod configuration_words;
mod data_plane;
mod entry;
mod guard;
mod key_exchange;
mod key_exchange_words;
mod machine;
mod manual;
mod negotiation;
mod packet;
mod path;
mod ppk;
mod proof;
mod proposal;
mod reach;
mod reading;
mod selectors;
mod shown;
mod sides;
mod symptom;
mod unwise;
mod value;

use std::fmt;

pub use authentication::{Authentication, AuthenticationEntry, Guess, HalfOpenLimit, ProofFault};
pub use candidates::{CANDIDATES, Candidate, Misfit};
pub use certificate::Untrusted;
pub use configuration::{Configuration, ConfigurationEntry};
pub use data_plane::{DataPlane, DataPlaneEntry, DeviceChange, Offload, Sources};
pub use entry::Fault;
pub use guard::{Guard, GuardEntry};
pub use key_exchange::{Forgery, KeyExchange, KeyExchangeEntry, NotDone, Uncomputed, Unsent};
pub use machine::{Machine, MachineEntry, QcdSecretFault, SocketFault};
pub use manual::{diagnoses_page, symptoms_page};
pub use negotiation::{Difference, Nearest, list_proposals, list_selectors};
pub use packet::{NearPolicy, Packet, PacketEntry, SaLimit};
pub use path::{Carrier, Path, PathEntry, ProbeRefusal, SendFault, Unresolved};
pub use ppk::PpkLack;
pub use proof::{KeyLack, ProofLack, StatusLack};
pub use proposal::ProposalFault;
pub use reach::{Answered, Icmp, Unanswered, Unreachable};
pub use reading::{FileFault, IncludeFault, InheritFault, InheritLimit, RequestFault, SyntaxFault};
pub use selectors::{AnswerFault, Pair, Selectors, SelectorsEntry, TransportFault, TrapFault};
pub use sides::Side;
pub use symptom::Symptom;
pub use unwise::{Conflict, Unwise};
pub use value::{DateFault, NameFault, SecretFault, ValueFault};

use ironswan_wire::ike::payload::Notify;

use entry::Words;

/// Part of the gateway in which something failed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Area {
    /// Reading and understanding the configuration.
    Configuration,
    /// Agreeing on algorithms and keys.
    KeyExchange,
    /// Proving who both sides are.
    Authentication,
    /// Agreeing on the traffic that a CHILD_SA carries.
    Selectors,
    /// Reaching the peer.
    Path,
    /// The data plane, which holds SAs and policies and moves packets.
    DataPlane,
    /// The guard, which keeps protected packets from travelling in clear.
    Guard,
    /// The machine that the gateway runs on.
    Machine,
    /// The way of one packet through this machine.
    Packet,
}

impl Area {
    /// The word for people.
    pub fn word(self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
            Self::KeyExchange => "key exchange",
            Self::Authentication => "authentication",
            Self::Selectors => "selectors",
            Self::Path => "path",
            Self::DataPlane => "data plane",
            Self::Guard => "guard",
            Self::Machine => "this machine",
            Self::Packet => "packet",
        }
    }
}

/// Makes [`Diagnosis`] and [`Entry`] from the areas.
macro_rules! areas {
    ($($(#[doc = $doc:literal])+ $area:ident, $entries:ident;)+) => {
        /// Why something failed or is doubtful, with the data of the case.
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub enum Diagnosis {
            $($(#[doc = $doc])+ $area($area),)+
        }

        /// An entry of the list, without the data of a case.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum Entry {
            $($(#[doc = $doc])+ $area($entries),)+
        }

        impl Entry {
            /// Every entry, area by area.
            pub fn all() -> impl Iterator<Item = Self> {
                let all = std::iter::empty();
                $(let all = all.chain($entries::ALL.iter().map(|entry| Self::$area(*entry)));)+
                all
            }

            /// Stable short name: `unknown-key`.
            pub fn name(self) -> &'static str {
                match self {
                    $(Self::$area(entry) => entry.name(),)+
                }
            }

            /// Part of the gateway.
            pub fn area(self) -> Area {
                match self {
                    $(Self::$area(_) => Area::$area,)+
                }
            }

            /// Party that has to change something.
            pub fn fault(self) -> Fault {
                match self {
                    $(Self::$area(entry) => entry.fault(),)+
                }
            }

            /// One sentence that says what all cases of this entry have in common.
            pub fn meaning(self) -> &'static str {
                match self {
                    $(Self::$area(entry) => entry.meaning(),)+
                }
            }
        }

        impl Diagnosis {
            /// The entry without the data of this case.
            pub fn entry(&self) -> Entry {
                match self {
                    $(Self::$area(reason) => Entry::$area(reason.entry()),)+
                }
            }

            /// The data of this case by name, as text. What only the sentence can say is left out.
            pub fn values(&self) -> Vec<(&'static str, String)> {
                match self {
                    $(Self::$area(reason) => reason.values(),)+
                }
            }

            fn words(&self) -> Words {
                match self {
                    $(Self::$area(reason) => reason.words(),)+
                }
            }

            /// The error notification that tells the peer, with its data (RFC 7296 section 3.10.1).
            /// `None`: the peer is not told.
            pub fn notify(&self) -> Option<Notify> {
                match self {
                    $(Self::$area(reason) => reason.notify(),)+
                }
            }
        }

        $(impl From<$area> for Diagnosis {
            fn from(reason: $area) -> Self {
                Self::$area(reason)
            }
        })+
    };
}

areas! {
    /// Reading and understanding the configuration.
    Configuration, ConfigurationEntry;
    /// Agreeing on algorithms and keys.
    KeyExchange, KeyExchangeEntry;
    /// Proving who both sides are.
    Authentication, AuthenticationEntry;
    /// Agreeing on the traffic that a CHILD_SA carries.
    Selectors, SelectorsEntry;
    /// Reaching the peer.
    Path, PathEntry;
    /// The data plane, which holds SAs and policies and moves packets.
    DataPlane, DataPlaneEntry;
    /// The guard, which keeps protected packets from travelling in clear.
    Guard, GuardEntry;
    /// The machine that the gateway runs on: kernel, capabilities, threads, sockets.
    Machine, MachineEntry;
    /// The way of one packet through this machine.
    Packet, PacketEntry;
}

impl Entry {
    /// True for what says how a tunnel that is up is, and not why one is down: it stays true until
    /// the tunnel ends.
    pub fn is_condition(self) -> bool {
        matches!(
            self,
            Self::Selectors(SelectorsEntry::NoTransport)
                | Self::Selectors(SelectorsEntry::Narrowed)
                | Self::Path(PathEntry::Narrow | PathEntry::ProbeRefused)
                | Self::KeyExchange(KeyExchangeEntry::ShortAuthLifetime)
                | Self::Authentication(AuthenticationEntry::Chosen)
                | Self::Path(PathEntry::OneWay)
        )
    }
}

impl Diagnosis {
    /// The sentence that says what is wrong, without a full stop.
    pub fn sentence(&self) -> String {
        self.words().sentence
    }

    /// The sentence that says what to do, without a full stop. Empty when the first sentence says
    /// all.
    pub fn remedy(&self) -> String {
        self.words().remedy
    }

    /// Lines with data that is too long for the sentence, such as lists of proposals. The log has
    /// them below the sentence.
    pub fn details(&self) -> Vec<String> {
        self.words().details
    }
}

impl fmt::Display for Diagnosis {
    /// `sentence; remedy`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.words().fmt(f)
    }
}

impl std::error::Error for Diagnosis {}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn a_result_with_a_diagnosis_is_small() {
        assert!(size_of::<Diagnosis>() <= 120, "{} bytes", size_of::<Diagnosis>());
    }

    #[test]
    fn names_are_unique_and_in_kebab_case() {
        let mut names = BTreeSet::new();
        for entry in Entry::all() {
            let name = entry.name();
            assert!(names.insert(name), "{name} twice");
            assert!(name.bytes().all(|b| b.is_ascii_lowercase() || b == b'-'), "{name}");
            assert!(!name.starts_with('-') && !name.ends_with('-') && name.len() <= 40, "{name}");
            assert!(entry.meaning().ends_with('.') && !entry.meaning().contains('|'), "{name}");
        }
    }
}
