//! Details of reading a configuration: files, syntax, inheritance. Texts are short and have no
//! control characters: whoever makes an entry has cut and escaped what it quotes.

use super::entry::{Words, say};
use super::shown::{displayed, in_the_sentence};

/// Reason why a file or folder cannot be read.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FileFault {
    /// The operating system's own words.
    System(String),
    /// Nothing has this name. The operating system's own words.
    Missing(String),
    /// A named pipe, device, socket or folder where a file is expected.
    NotRegular,
    /// The file is longer than a configuration file may be.
    TooLong {
        /// Its length in bytes. `None`: it was still growing.
        bytes: Option<u64>,
        /// The limit in bytes.
        max: u64,
    },
    /// All files together are longer than a configuration may be.
    AllTooLong {
        /// The limit in bytes.
        max: u64,
    },
}

impl std::fmt::Display for FileFault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::System(why) | Self::Missing(why) => f.write_str(why),
            Self::NotRegular => f.write_str("not a regular file"),
            Self::TooLong { bytes: Some(bytes), max } => {
                write!(f, "{bytes} bytes, more than the {max} that a configuration file may have")
            }
            Self::TooLong { bytes: None, max } => {
                write!(f, "more than the {max} bytes that a configuration file may have")
            }
            Self::AllTooLong { max } => write!(f, "all files together are longer than {max} bytes"),
        }
    }
}

/// Reason why an `include` is refused.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum IncludeFault {
    /// The file includes itself.
    Itself,
    /// Too many files inside each other.
    TooDeep {
        /// The limit.
        max: usize,
    },
    /// Too many files in all.
    TooMany {
        /// The limit.
        max: usize,
    },
    /// The text did not come from a file.
    NoFile,
    /// A folder that the pattern leads to cannot be looked at.
    Unseen {
        /// Path of the folder, escaped.
        path: String,
        /// Reason.
        why: FileFault,
    },
}

impl IncludeFault {
    pub(super) fn words(&self, file: &str) -> Words {
        match self {
            Self::Itself => say(format!("{file} includes itself"), "remove this include"),
            Self::TooDeep { max } => {
                say(format!("{file}: more than {max} files included inside each other"), "")
            }
            Self::TooMany { max } => say(format!("{file}: more than {max} files"), ""),
            Self::Unseen { path, why } => say(
                format!("include {file}: cannot look at {path}: {why}"),
                "make it readable for the daemon",
            ),
            Self::NoFile => say(format!("include {file}: not possible here"), ""),
        }
    }
}

/// Reason why a text cannot be parsed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum SyntaxFault {
    /// Bytes that are not UTF-8.
    NotUtf8,
    /// A NUL byte.
    Nul,
    /// A carriage return in the middle of a comment.
    CarriageReturn,
    /// Something that may be the rest of a secret stands behind the `}` of its section.
    BehindSecret,
    /// The same, directly behind the `}`.
    DirectlyBehindSecret,
    /// Among secrets, something that is neither a key nor a section.
    NoStatementAmongSecrets,
    /// A section without its `}`.
    NeverClosed {
        /// Name of the section.
        name: String,
        /// Line before which the `}` is missing, by the indentation.
        before: Option<u32>,
        /// Section that is open at the end of the file by the braces alone, and its line.
        open: Option<(String, u32)>,
    },
    /// A `}` and no section is open.
    ClosesNothing {
        /// Line of the `}` that is too many, by the indentation.
        superfluous: Option<u32>,
    },
    /// `include` without a name.
    IncludeNamesNone,
    /// A name that neither `=` nor `{` follows.
    NoValue {
        /// The name.
        name: String,
    },
    /// Too many sections inside each other.
    TooDeep {
        /// Name of the section.
        name: String,
        /// The limit.
        max: usize,
    },
    /// A section has the name of a key.
    KeyAlready {
        /// The name.
        name: String,
    },
    /// A key has the name of a section.
    SectionAlready {
        /// The name.
        name: String,
        /// Place where the section was opened.
        place: String,
    },
    /// A section inherits from too many others.
    TooManyReferences {
        /// Name of the section, if it has been read.
        name: Option<String>,
        /// The limit.
        max: usize,
    },
    /// Something stands where a name is expected.
    NameExpected {
        /// The first character, escaped.
        found: String,
    },
    /// A name that is too long.
    NameTooLong {
        /// Its beginning.
        name: String,
        /// The limit in bytes.
        max: usize,
    },
    /// A dot in a name.
    DotInName {
        /// The name up to the dot.
        name: String,
    },
    /// A character behind a name that cannot stand there.
    BehindName {
        /// The character.
        found: char,
        /// The name.
        name: String,
    },
    /// A control character, or a blank of Unicode, behind a name.
    OddBlank {
        /// The character is a control character.
        control: bool,
        /// The character, escaped.
        found: String,
        /// The name.
        name: String,
    },
    /// No name of a section behind `:`.
    ReferenceExpected,
    /// A control character in a value.
    ControlInValue {
        /// The character, escaped.
        found: String,
    },
    /// A quoted text without its closing quote.
    QuoteNeverClosed,
}

impl SyntaxFault {
    pub(super) fn words(&self) -> Words {
        match self {
            Self::NotUtf8 => say("bytes that are not UTF-8", "save the file as UTF-8 text"),
            Self::Nul => say("a NUL byte", "this is not a text file, or it is damaged"),
            Self::CarriageReturn => {
                say("a carriage return in the middle of a comment", "end lines with LF or CR LF")
            }
            Self::BehindSecret => say(
                "what stands behind the `}` on the line of a secret is not another section",
                "quote the secret if it is a part of it",
            ),
            Self::DirectlyBehindSecret => say(
                "something stands directly behind the `}` on the line of a secret",
                "put a blank behind the `}`, or quote the secret if it is a part of it",
            ),
            Self::NoStatementAmongSecrets => say(
                "among secrets, something that is neither `key = value` nor `name { ... }`",
                "write one of them, and quote a secret that goes over lines",
            ),
            Self::NeverClosed { name, before, open } => never_closed(name, *before, open.as_ref()),
            Self::ClosesNothing { superfluous: Some(line) } => say(
                "a `}` that closes nothing",
                format!("by the indentation the one of line {line} is too many"),
            ),
            Self::ClosesNothing { superfluous: None } => say("a `}` that closes nothing", "remove it"),
            Self::IncludeNamesNone => say("include names no file", ""),
            Self::NoValue { name } => say(
                format!("`{name}` is followed by neither `=` nor `{{`"),
                format!("write `{name} = value` or `{name} {{ ... }}`"),
            ),
            Self::TooDeep { name, max } => {
                say(format!("section `{name}`: more than {max} sections inside each other"), "")
            }
            Self::KeyAlready { name } => {
                say(format!("`{name}` is a key already, it cannot be a section too"), "")
            }
            Self::SectionAlready { name, place } => {
                say(format!("`{name}` is a section already, opened at {place}"), "")
            }
            Self::TooManyReferences { name: Some(name), max } => {
                say(format!("section `{name}`: more than {max} references"), "")
            }
            Self::TooManyReferences { name: None, max } => say(format!("more than {max} references"), ""),
            Self::NameExpected { found } => say(format!("`{found}` where a name is expected"), ""),
            Self::NameTooLong { name, max } => say(format!("a name longer than {max} bytes: `{name}`"), ""),
            Self::DotInName { name } => say(
                format!("a name must not contain `.`: `{name}.`"),
                "write nested sections, or `-` instead of the dot",
            ),
            Self::BehindName { found, name } => say(format!("`{found}` after the name `{name}`"), ""),
            Self::OddBlank { control, found, name } => {
                let what = if *control { "control character" } else { "blank that is not ASCII" };
                say(format!("a {what} ({found}) after `{name}`"), "")
            }
            Self::ReferenceExpected => say("the name of a section is expected after `:`", ""),
            Self::ControlInValue { found } => say(format!("a control character ({found}) in a value"), ""),
            Self::QuoteNeverClosed => say("a quoted text that is never closed", ""),
        }
    }
}

fn never_closed(name: &str, before: Option<u32>, open: Option<&(String, u32)>) -> Words {
    let Some(line) = before else {
        return say(format!("section `{name}` is never closed"), "add a `}`");
    };
    let last = open.map_or_else(String::new, |(name, line)| {
        format!(" (by the braces alone `{name}` of line {line} is open at the end of the file)")
    });
    say(
        format!("section `{name}` is never closed"),
        format!("by the indentation its `}}` is missing before line {line}{last}"),
    )
}

/// Reason why a section cannot inherit from another one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum InheritFault {
    /// The other section contains this one or inherits from it.
    Circle,
    /// The other section is a part of this one.
    Part,
    /// There is no such section.
    NoSection {
        /// The nearest name that there is.
        near: Option<String>,
    },
}

impl InheritFault {
    pub(super) fn words(&self, from: &str) -> Words {
        let why = match self {
            Self::Circle => "which contains or inherits from this section",
            Self::Part => "which is a part of this section",
            Self::NoSection { .. } => "which is no section",
        };
        let remedy = match self {
            Self::NoSection { near: Some(near) } => format!("did you mean `{near}`?"),
            _ => String::new(),
        };
        say(format!("inherits from `{from}`, {why}"), remedy)
    }
}

/// Limit of inheritance.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InheritLimit {
    /// Entries that inheriting may add.
    Entries {
        /// The limit; `None` when the work was too much before it was reached.
        max: Option<usize>,
    },
    /// References that lead from one section to the next.
    Chain,
    /// Sections that inheriting puts inside each other.
    Depth,
}

impl InheritLimit {
    pub(super) fn words(self) -> Words {
        match self {
            Self::Entries { max: None } => {
                say("inheriting makes too many entries", "let fewer sections inherit")
            }
            Self::Entries { max: Some(max) } => say(
                format!("inheriting makes too many entries, more than {max}"),
                "let fewer sections inherit",
            ),
            Self::Chain => say(
                "more than 64 references in a row begin here",
                "inherit from fewer sections, and not in a circle",
            ),
            Self::Depth => say(
                "inheriting puts more than 64 sections inside each other",
                "inherit from no section that contains this one",
            ),
        }
    }
}

/// Reason why a request by VICI cannot be understood. Names are escaped.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RequestFault {
    /// The key has no number.
    NotNumber(&'static str),
    /// The key has neither yes nor no.
    NotFlag(&'static str),
    /// No key says which SAs are meant.
    NoSelector,
    /// The value of this name is no text.
    NotText(String),
    /// The name is there twice.
    Twice(String),
    /// The bytes are no packet of VICI, for this reason.
    NotVici(String),
    /// Only a daemon sends such a packet.
    DaemonPacket,
}

impl RequestFault {
    pub(super) fn words(&self) -> Words {
        match self {
            Self::NotNumber(key) => say(format!("{key} is not a number"), ""),
            Self::NotFlag(key) => say(format!("{key} is neither yes nor no"), ""),
            Self::NoSelector => say("missing selector", "give ike, child, ike-id or child-id"),
            Self::NotText(name) => say(format!("{name}: is not text"), ""),
            Self::Twice(name) => say(format!("{name}: is there twice"), ""),
            Self::NotVici(why) => say(why.clone(), ""),
            Self::DaemonPacket => say("a packet that only a daemon sends", ""),
        }
    }
}

in_the_sentence!(IncludeFault, InheritFault, InheritLimit, RequestFault, SyntaxFault);
displayed!(FileFault);
