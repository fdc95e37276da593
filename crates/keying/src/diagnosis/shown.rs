//! Fields of entries as text, by name: for JSON and VICI.

use std::fmt::Display;
use std::path::PathBuf;

use ironswan_crypto::sign::{Hash, KeyFault, KeyKind};
use ironswan_pki::Rule;
use ironswan_pki::key_file::FileFault as CredentialFault;
use ironswan_wire::iana::{AuthMethod, ExchangeType, KeId, NotifyType, PrfId, ProtocolId};
use ironswan_wire::id::{IdPattern, Identity};
use ironswan_wire::ike::ParseError;
use ironswan_wire::proposal::Proposal;
use ironswan_wire::sadb::Spi;

/// Limits the bytes of a line that lists what a peer has sent; the rest is cut.
pub const MAX_LINE: usize = 1_000;

/// Cuts a line that a peer can make long.
pub(super) fn shorten(mut line: String) -> String {
    if line.len() > MAX_LINE {
        let at = (0..=MAX_LINE).rev().find(|at| line.is_char_boundary(*at)).unwrap_or(0);
        line.truncate(at);
        line.push_str(" ...");
    }
    line
}

/// The text of a value, cut to a bounded length.
pub(super) fn cut(value: impl Display) -> String {
    shorten(value.to_string())
}

/// A field of an entry, as text.
pub(super) trait Shown {
    /// `None`: there is no value, or the sentence alone says it.
    fn shown(&self) -> Option<String>;
}

/// Types of fields that are shown as they are displayed.
macro_rules! displayed {
    ($($ty:ty),+ $(,)?) => {
        $(impl $crate::diagnosis::shown::Shown for $ty {
            fn shown(&self) -> Option<String> {
                Some($crate::diagnosis::shown::cut(self))
            }
        })+
    };
}
pub(super) use displayed;

/// Types of fields that only the sentence puts into words.
macro_rules! in_the_sentence {
    ($($ty:ty),+ $(,)?) => {
        $(impl $crate::diagnosis::shown::Shown for $ty {
            fn shown(&self) -> Option<String> {
                None
            }
        })+
    };
}
pub(super) use in_the_sentence;

displayed!(
    u8,
    u16,
    u32,
    u64,
    usize,
    i8,
    String,
    &'static str,
    std::net::IpAddr,
    std::net::SocketAddr,
    AuthMethod,
    ExchangeType,
    KeId,
    NotifyType,
    PrfId,
    ProtocolId,
    Spi,
    Hash,
    KeyKind,
    KeyFault,
    IdPattern,
    Identity,
    ParseError,
    Proposal,
    Rule,
    CredentialFault,
);

impl Shown for bool {
    fn shown(&self) -> Option<String> {
        Some(if *self { "yes" } else { "no" }.to_owned())
    }
}

impl Shown for PathBuf {
    fn shown(&self) -> Option<String> {
        Some(cut(self.display()))
    }
}

impl<T: Shown> Shown for Option<T> {
    fn shown(&self) -> Option<String> {
        self.as_ref()?.shown()
    }
}

impl<T: Shown> Shown for Box<T> {
    fn shown(&self) -> Option<String> {
        (**self).shown()
    }
}

impl<T: Shown> Shown for Vec<T> {
    fn shown(&self) -> Option<String> {
        let all: Vec<String> = self.iter().filter_map(Shown::shown).collect();
        Some(shorten(all.join(", ")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_line_is_cut_between_characters() {
        let line = shorten("ä".repeat(MAX_LINE));
        assert!(line.len() <= MAX_LINE + 4 && line.ends_with("ä ..."), "{}", line.len());
        assert_eq!(shorten("short".to_owned()), "short");
    }
}
