//! Details of single values: values of keys, names, secrets, and dates of certificates.

use ironswan_pki::Time;

use super::entry::{Words, say};
use super::shown::in_the_sentence;

/// Reason why a value cannot be used. The value itself stands beside it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ValueFault {
    /// Not this kind of value: `an address`.
    Not(&'static str),
    /// No mode of a child.
    NotMode,
    /// Neither `yes` nor `no`.
    NotYesNo,
    /// No protocol has this name.
    NoProtocol {
        /// The nearest name that there is.
        near: Option<String>,
    },
    /// None of these words.
    NoneOf(String),
    /// Not a number up to this one.
    NotNumber(u64),
    /// Not a number between these two.
    NotBetween(String, String),
    /// A number or time outside of these two.
    Outside(&'static str, &'static str),
    /// More than this.
    Above(String),
    /// Less than this.
    Below(String),
    /// A sum that does not fit into a number.
    TooLarge,
    /// Zero where the value has to be more.
    Zero,
    /// Zero for the mark of the gateway's own packets.
    ZeroMark,
    /// Zero threads.
    ZeroThreads,
    /// A mark that is not one bit.
    NotOneBit,
    /// Characters that the name of the TUN device cannot have.
    BadDeviceName,
    /// A range of processors whose end is before its beginning.
    Backwards {
        /// Number that stands first.
        first: usize,
        /// Number that stands last.
        last: usize,
    },
    /// A time that needs its unit.
    NoUnit,
    /// A word behind `%` that is not known.
    NotKnown,
    /// A prefix length above this one.
    PrefixLength(u8),
    /// A range of addresses whose end is before its beginning, or in the other address family.
    RangeBackwards,
    /// A `[` without its `]`.
    NeverClosed,
    /// A selector without address.
    NoAddress,
    /// A range of ports whose end is before its beginning.
    PortsBackwards,
    /// A port of no protocol.
    PortWithoutProtocol(u16),
    /// An identity without a byte.
    EmptyIdentity,
    /// An identity with more bytes than this.
    LongIdentity(usize),
    /// A socket's path with more bytes than this.
    LongSocketPath(usize),
    /// A socket's path that does not begin with `/`.
    RelativeSocketPath,
    /// A hard limit that is lower than what one frame of the kernel may take.
    BelowFrame {
        /// The least value.
        least: u64,
        /// Name of the key of the soft limit.
        soft: &'static str,
    },
}

impl ValueFault {
    /// `write`: the remedy of the key, which goes before the one of the fault.
    pub(super) fn words(&self, written: &str, write: &str) -> Words {
        let (sentence, remedy) = match self {
            Self::Not(kind) => (format!("`{written}` is not {kind}"), String::new()),
            Self::NotMode => {
                (format!("`{written}` is no mode"), "set mode = tunnel, transport, pass or drop".to_owned())
            }
            Self::NotYesNo => (format!("`{written}` is neither yes nor no"), String::new()),
            Self::NoProtocol { near } => (
                format!("`{written}` is not a protocol"),
                near.as_ref().map_or("write its number".to_owned(), |n| format!("did you mean `{n}`?")),
            ),
            Self::NoneOf(words) => (format!("`{written}` is none of {words}"), String::new()),
            Self::NotNumber(max) => (format!("`{written}` is not a number up to {max}"), String::new()),
            Self::NotBetween(min, max) => {
                (format!("`{written}` is not a number between {min} and {max}"), String::new())
            }
            Self::Outside(min, max) => (format!("`{written}` is not between {min} and {max}"), String::new()),
            Self::Above(max) => (format!("`{written}` is more than {max}"), String::new()),
            Self::Below(min) => (format!("`{written}` is less than {min}"), String::new()),
            Self::TooLarge => (format!("`{written}` is too large"), String::new()),
            Self::Zero => ("must be more than 0".to_owned(), String::new()),
            Self::ZeroMark => (
                "0 would send the gateway's own packets into the tunnel".to_owned(),
                "write another number".to_owned(),
            ),
            Self::ZeroThreads => ("0 threads move nothing".to_owned(), "write auto, or 1 or more".to_owned()),
            Self::NotOneBit => (format!("`{written}` must be one bit, such as 0x10000000"), String::new()),
            Self::BadDeviceName => {
                (format!("`{written}` may have letters, digits and . _ - + @ only"), String::new())
            }
            Self::Backwards { first, last } => {
                (format!("`{written}` goes backwards"), format!("write {last}-{first}"))
            }
            Self::NoUnit => (format!("`{written}` has no unit"), String::new()),
            Self::NotKnown => (format!("`{written}` is not known"), String::new()),
            Self::PrefixLength(max) => {
                (format!("`{written}`: the prefix length is more than {max}"), String::new())
            }
            Self::RangeBackwards => (
                format!(
                    "`{written}`: the first address must not be behind the last, and both must be of one family"
                ),
                String::new(),
            ),
            Self::NeverClosed => (format!("`{written}`: the `[` is never closed"), String::new()),
            Self::NoAddress => (format!("`{written}`: an address is missing"), String::new()),
            Self::PortsBackwards => {
                (format!("`{written}`: the first port is behind the last"), String::new())
            }
            Self::PortWithoutProtocol(port) => {
                (format!("`{written}`: a port needs a protocol, such as tcp/{port}"), String::new())
            }
            Self::EmptyIdentity => (format!("`{written}` is an empty identity"), String::new()),
            Self::LongIdentity(max) => (format!("an identity longer than {max} bytes"), String::new()),
            Self::LongSocketPath(max) => {
                (format!("`{written}`: a socket's path has at most {max} bytes"), String::new())
            }
            Self::RelativeSocketPath => (format!("`{written}`: the path must begin with /"), String::new()),
            Self::BelowFrame { least, soft } => (
                format!(
                    "{written} is less than the kernel may hand over at once, which would end the CHILD_SA before it \
                     carries anything"
                ),
                format!("set at least {least}, or {soft} alone"),
            ),
        };
        say(sentence, if write.is_empty() { remedy } else { write.to_owned() })
    }
}

/// Reason why the name of a connection or a child cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NameFault {
    /// Empty, or with blanks or control characters.
    NotAName,
    /// Longer than this, in bytes.
    Long(usize),
}

impl NameFault {
    pub(super) fn words(self, name: &str) -> Words {
        match self {
            Self::NotAName => {
                say(format!("`{name}` is not a name"), "write one without blanks and control characters")
            }
            Self::Long(max) => say(format!("the name `{name}` is longer than {max} bytes"), "shorten it"),
        }
    }
}

/// Reason why a secret cannot be used. The secret is never quoted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SecretFault {
    /// No byte.
    Empty,
    /// `0x` and something that is not hexadecimal.
    NotHexadecimal,
    /// `0s` and something that is not base64.
    NotBase64,
}

impl SecretFault {
    pub(super) fn words(self) -> Words {
        say(
            match self {
                Self::Empty => "the secret is empty",
                Self::NotHexadecimal => "0x is not followed by an even number of hexadecimal digits",
                Self::NotBase64 => {
                    "0s is not followed by base64, with = at its end to a multiple of four digits"
                }
            },
            "",
        )
    }
}

/// Dates of a certificate or revocation list that do not fit the time of now.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DateFault {
    /// The certificate has expired.
    Expired {
        /// Last second at which it was valid.
        since: Time,
    },
    /// The certificate expires soon.
    Soon {
        /// Last second at which it is valid.
        until: Time,
        /// Whole days until then.
        days: i64,
    },
    /// The certificate is not valid yet.
    NotYet {
        /// First second at which it will be valid.
        from: Time,
    },
    /// The next revocation list was due.
    Overdue {
        /// Time at which it was due.
        since: Time,
    },
}

impl DateFault {
    /// The sentence and the remedy. `of`: the certificate or list.
    pub(super) fn words(&self, of: &str) -> Words {
        const RENEW: &str = "issue a new one (`ironswan pki issue`) and put it in the place of this file";
        match self {
            Self::Expired { since } => say(format!("{of} has expired: it was valid until {since}"), RENEW),
            Self::Soon { until, days } => {
                let days = match days {
                    0 => "in less than a day".to_owned(),
                    1 => "in 1 day".to_owned(),
                    days => format!("in {days} days"),
                };
                say(format!("{of} expires {days}: it is valid until {until}"), RENEW)
            }
            Self::NotYet { from } => say(
                format!("{of} is not valid before {from}"),
                "wait, or compare the clocks of this machine and of the CA",
            ),
            Self::Overdue { since } => say(
                format!("{of} is old: the next one was due by {since}"),
                "sign a new one (`ironswan pki signcrl --lastcrl`) and put it in the place of this file",
            ),
        }
    }
}

in_the_sentence!(DateFault, NameFault, SecretFault, ValueFault);
