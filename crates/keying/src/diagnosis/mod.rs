//! The closed list of reasons why something failed or is doubtful, for the whole gateway.
//!
//! ```text
//! Diagnosis ─ area ─ entry { data } ─┬─ sentence   for people; of the area's file
//!                                    ├─ remedy     for people; may be empty
//!                                    ├─ notify     the NOTIFY that answers the peer, if one does
//!                                    └─ Entry ─── name (kebab-case), area, fault, meaning: without the data
//! ```
//! Names of entries are stable: logs, JSON, VICI and the manual use them. `docs/manual/troubleshooting.md`
//! has a row for each entry. A new reason is a new entry in the file of its area.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `configuration` | entries of configuration: files, names of keys, values |
//! | `configuration_words` | their sentences and remedies |
//! | `reading` | details of files, syntax and inheritance |
//! | `value` | details of values, secrets and proposals |

mod configuration;
mod configuration_words;
mod reading;
mod value;

use std::fmt;

pub use configuration::{Configuration, ConfigurationEntry};
pub use reading::{FileFault, IncludeFault, InheritFault, InheritLimit, SyntaxFault};
pub use value::{Conflict, NameFault, ProposalFault, SecretFault, Unwise, ValueFault};

use ironswan_wire::iana::NotifyType;

/// Part of the gateway in which something failed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Area {
    /// Reading and understanding the configuration.
    Configuration,
}

impl Area {
    /// The word for people.
    pub fn word(self) -> &'static str {
        match self {
            Self::Configuration => "configuration",
        }
    }
}

/// Party that has to change something.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Fault {
    /// Bytes that cannot be parsed, whoever sent them.
    Bytes,
    /// The peer does not do what the protocol demands.
    Peer,
    /// Both sides are consistent, and want different things.
    NoAgreement,
    /// Our configuration.
    Configuration,
    /// The machine that the gateway runs on, or the network around it.
    ThisMachine,
}

impl Fault {
    /// The words for people.
    pub fn word(self) -> &'static str {
        match self {
            Self::Bytes => "bytes",
            Self::Peer => "peer",
            Self::NoAgreement => "no agreement",
            Self::Configuration => "our configuration",
            Self::ThisMachine => "this machine",
        }
    }
}

/// A sentence and a remedy, without full stops. The remedy may be empty.
struct Words {
    sentence: String,
    remedy: String,
}

impl fmt::Display for Words {
    /// `sentence; remedy`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)?;
        if self.remedy.is_empty() { Ok(()) } else { write!(f, "; {}", self.remedy) }
    }
}

fn say(sentence: impl Into<String>, remedy: impl Into<String>) -> Words {
    Words { sentence: sentence.into(), remedy: remedy.into() }
}

/// Makes the entries of an area: an enum with their data, and one without.
macro_rules! entries {
    ($(#[$about:meta])* $area:ident, $entries:ident;
     $($(#[doc = $doc:literal])+ $entry:ident $({ $($(#[$of:meta])* $field:ident: $ty:ty),+ $(,)? })?
       = $name:literal by $fault:ident;)+) => {
        $(#[$about])*
        #[derive(Clone, PartialEq, Eq, Debug)]
        pub enum $area {
            $($(#[doc = $doc])+ $entry $({ $($(#[$of])* $field: $ty),+ })?,)+
        }

        $(#[$about])*
        /// Without their data.
        #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
        pub enum $entries {
            $($(#[doc = $doc])+ $entry,)+
        }

        impl $entries {
            /// Every entry of this area.
            pub const ALL: &[Self] = &[$(Self::$entry,)+];

            fn row(self) -> (&'static str, $crate::diagnosis::Fault, &'static str) {
                match self {
                    $(Self::$entry => {
                        ($name, $crate::diagnosis::Fault::$fault, concat!($($doc),+).trim_ascii_start())
                    })+
                }
            }

            pub(super) fn name(self) -> &'static str {
                self.row().0
            }

            pub(super) fn fault(self) -> $crate::diagnosis::Fault {
                self.row().1
            }

            pub(super) fn meaning(self) -> &'static str {
                self.row().2
            }
        }

        impl std::fmt::Display for $area {
            /// `sentence; remedy`.
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                self.words().fmt(f)
            }
        }

        impl $area {
            /// The entry without its data.
            pub fn entry(&self) -> $entries {
                match self {
                    $(Self::$entry { .. } => $entries::$entry,)+
                }
            }
        }
    };
}
use entries;

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

            fn words(&self) -> Words {
                match self {
                    $(Self::$area(reason) => reason.words(),)+
                }
            }

            /// The error notification that tells the peer (RFC 7296 section 3.10.1). `None`: the peer is
            /// not told.
            pub fn notify(&self) -> Option<NotifyType> {
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
}

impl Diagnosis {
    /// The sentence that says what is wrong, without a full stop.
    pub fn sentence(&self) -> String {
        self.words().sentence
    }

    /// The sentence that says what to do, without a full stop. Empty when the first sentence says all.
    pub fn remedy(&self) -> String {
        self.words().remedy
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
