//! VICI, strongSwan's control protocol, version 1: frames, packets, messages.
//!
//! ```text
//! frame:   | length (32 bits) | packet |
//! packet:  | type | name length, name (some types) | message |
//! message: elements: section start(name), section end, key value(name, value),
//!          list start(name), list item(value), list end;
//!          names have 8-bit lengths, values 16-bit lengths
//! ```
//!
//! Everything is big-endian. A message is a [`Section`], ordered as it came: clients match on the
//! order of keys. Not here: commands, events, what a key means, sockets.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `frame` | frames out of a stream of bytes |
//! | `packet` | requests, replies and events |
//! | `section` | messages: sections, keys, lists |

mod frame;
mod packet;
mod section;
#[cfg(test)]
mod tests;

pub use frame::FrameReader;
pub use packet::Packet;
pub use section::{Section, Value};

use crate::read::LenError;

/// The largest frame that is read or written, without its length field: the protocol allows 512
/// KiB.
pub const MAX_FRAME: usize = 512 * 1024;

/// Sections inside sections. No command needs more than five.
pub const MAX_DEPTH: usize = 16;

/// Why bytes are not VICI.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// A frame of this length: empty, or longer than [`MAX_FRAME`].
    FrameLength(u32),
    /// The bytes end inside a field.
    Short(LenError),
    /// An unknown packet type.
    PacketType(u8),
    /// An unknown element type.
    ElementType(u8),
    /// This number of bytes follows a packet that is complete.
    Trailing(usize),
    /// Sections and lists that do not close, close too often, or stand where they must not.
    Unbalanced(&'static str),
    /// Sections nested deeper than [`MAX_DEPTH`].
    TooDeep,
    /// A name that is not UTF-8.
    Name,
}

impl From<LenError> for Error {
    fn from(e: LenError) -> Self {
        Self::Short(e)
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::FrameLength(n) => write!(f, "frame of {n} bytes, 1 to {MAX_FRAME} allowed"),
            Self::Short(e) => write!(f, "{e}"),
            Self::PacketType(t) => write!(f, "unknown packet type {t}"),
            Self::ElementType(t) => write!(f, "unknown element type {t}"),
            Self::Trailing(n) => write!(f, "{n} bytes behind the packet"),
            Self::Unbalanced(what) => f.write_str(what),
            Self::TooDeep => write!(f, "sections nested deeper than {MAX_DEPTH}"),
            Self::Name => f.write_str("a name is not UTF-8"),
        }
    }
}

impl std::error::Error for Error {}
