//! Parts that the entries of every area are made from: fault, words, and the macro that makes the
//! enums of an area.

use std::fmt;

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
pub(super) struct Words {
    pub(super) sentence: String,
    pub(super) remedy: String,
    /// Lines of data that are too long for the sentence.
    pub(super) details: Vec<String>,
}

impl Words {
    /// Adds lines of data.
    pub(super) fn with(self, details: Vec<String>) -> Self {
        Self { details, ..self }
    }
}

impl fmt::Display for Words {
    /// `sentence; remedy`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.sentence)?;
        if self.remedy.is_empty() { Ok(()) } else { write!(f, "; {}", self.remedy) }
    }
}

pub(super) fn say(sentence: impl Into<String>, remedy: impl Into<String>) -> Words {
    Words { sentence: sentence.into(), remedy: remedy.into(), details: Vec::new() }
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

            fn row(self) -> (&'static str, $crate::diagnosis::entry::Fault, &'static str) {
                match self {
                    $(Self::$entry => {
                        ($name, $crate::diagnosis::entry::Fault::$fault, concat!($($doc),+).trim_ascii_start())
                    })+
                }
            }

            pub(super) fn name(self) -> &'static str {
                self.row().0
            }

            pub(super) fn fault(self) -> $crate::diagnosis::entry::Fault {
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

            /// Data by name, as text. What only the sentence can say is left out.
            pub(super) fn values(&self) -> Vec<(&'static str, String)> {
                #[allow(unused_imports, reason = "an area may have no entry with data")]
                use $crate::diagnosis::shown::Shown as _;
                match self {
                    $(Self::$entry $({ $($field),+ })? => {
                        let all: Vec<(&'static str, Option<String>)> =
                            vec![$($((stringify!($field), $field.shown())),+)?];
                        all.into_iter().filter_map(|(name, value)| Some((name, value?))).collect()
                    })+
                }
            }
        }
    };
}
pub(super) use entries;
