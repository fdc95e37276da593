//! Messages between the daemon, which has few privileges, its helper, which has more, and its
//! fetcher, which has none.
//!
//! ```text
//! daemon ── Request, reply socket, descriptors ──▶ helper ── Reply, descriptors ──▶ reply socket
//! ```
//! Both sides read what the other one may have been made to send: every message is of a closed
//! list, its lengths are checked, and nothing may follow it. A message is one datagram of at most
//! [`MAX_MESSAGE`] bytes: a number for its kind, then its fields, big-endian. A path is text of any
//! bytes but 0, with its length in two bytes before it. Descriptors travel beside the bytes;
//! [`Request::descriptors`] and [`Reply::descriptors`] say how many belong to a message.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `fields` | fields of messages |
//! | `reply` | answers, and how a program ended |
//! | `request` | questions and orders of the daemon |

mod fields;
mod reply;
mod request;

use std::fmt;

use crate::read::LenError;

pub use reply::{ProgramEnd, Reply};
pub use request::{DeviceSetting, NftRun, Request};

/// The longest message in bytes.
pub const MAX_MESSAGE: usize = 8192;
/// The longest path in bytes (`PATH_MAX` without its final 0).
pub const MAX_PATH: usize = 4095;
/// The longest name of an interface in bytes.
pub const MAX_NAME: usize = 15;
/// The most descriptors of a message, the reply socket among them.
pub const MAX_DESCRIPTORS: usize = 4;
/// The longest name of a host in bytes.
pub const MAX_HOST: usize = 255;
/// The most addresses of a reply.
pub const MAX_ADDRESSES: usize = 64;
/// The longest text of a reply that says why a request failed, in bytes.
pub const MAX_REASON: usize = 1024;

/// Bytes that are no message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MessageError {
    /// The message ends too early.
    Short(LenError),
    /// A field holds a value that it may not hold.
    Value(&'static str),
    /// Bytes follow the message.
    Trailing(usize),
}

impl fmt::Display for MessageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Short(e) => e.fmt(f),
            Self::Value(what) => write!(f, "the {what} of a message is not one that is allowed"),
            Self::Trailing(bytes) => write!(f, "{bytes} bytes follow a message"),
        }
    }
}

impl std::error::Error for MessageError {}

impl From<LenError> for MessageError {
    fn from(e: LenError) -> Self {
        Self::Short(e)
    }
}

#[cfg(test)]
mod tests;
