//! Why nothing was fetched from a server of the web: a closed list, and its bytes in messages of
//! the fetcher (`helper`).

use std::fmt;

/// Longest body that is fetched, in bytes.
pub const MAX_BODY: usize = 1 << 20;
/// Longest URI that is fetched, in bytes.
pub const MAX_URI: usize = 512;
/// Longest body that is sent, in bytes.
pub const MAX_SENT: usize = 1024;

/// Why there is no answer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum FetchFault {
    /// The name of the host has no address. The resolver's own words.
    NoAddress(String),
    /// The host leads to this machine, and a certificate names it.
    NotAllowed,
    /// No connection was made. The kernel's own words.
    Unreachable(String),
    /// The whole answer did not come in time.
    Silent {
        /// Time that it had, in milliseconds.
        milliseconds: u32,
    },
    /// The server's status is not 200: it may also point elsewhere.
    Status(u16),
    /// The header is longer than 16 KiB, or the body than [`MAX_BODY`].
    TooLong,
    /// The answer is none of HTTP.
    NotHttp,
    /// The connection ended before the answer did.
    Cut,
    /// Nobody was asked, for this reason of our own.
    NotAsked(String),
}

impl fmt::Display for FetchFault {
    /// A sentence without its full stop.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoAddress(why) => write!(f, "the host has no address: {why}"),
            Self::NotAllowed => f.write_str("the host leads to this machine, and a certificate names it"),
            Self::Unreachable(why) => write!(f, "no connection: {why}"),
            Self::Silent { milliseconds } => {
                let (seconds, tenths) = (milliseconds / 1000, milliseconds / 100 % 10);
                write!(f, "no complete answer within {seconds}.{tenths} s")
            }
            Self::Status(status @ 300..400) => {
                write!(f, "the server points elsewhere (status {status}), and no other place is asked")
            }
            Self::Status(status) => write!(f, "the server answers with status {status}"),
            Self::TooLong => {
                write!(f, "the answer is longer than {MAX_BODY} bytes, or its header than 16 KiB")
            }
            Self::NotHttp => f.write_str("the answer is none of HTTP"),
            Self::Cut => f.write_str("the connection ended in the middle of the answer"),
            Self::NotAsked(why) => write!(f, "not asked: {why}"),
        }
    }
}

impl FetchFault {
    /// The number of the kind, one number, and the words, as a message has them.
    pub(crate) fn parts(&self) -> (u8, u32, &str) {
        match self {
            Self::NoAddress(why) => (0, 0, why),
            Self::NotAllowed => (1, 0, ""),
            Self::Unreachable(why) => (2, 0, why),
            Self::Silent { milliseconds } => (3, *milliseconds, ""),
            Self::Status(status) => (4, u32::from(*status), ""),
            Self::TooLong => (5, 0, ""),
            Self::NotHttp => (6, 0, ""),
            Self::Cut => (7, 0, ""),
            Self::NotAsked(why) => (8, 0, why),
        }
    }

    /// The fault of these parts; `None` when there is none.
    pub(crate) fn of_parts(kind: u8, number: u32, words: String) -> Option<Self> {
        let len = words.len();
        let fault = match kind {
            0 => Self::NoAddress(words),
            1 => Self::NotAllowed,
            2 => Self::Unreachable(words),
            3 => Self::Silent { milliseconds: number },
            4 => Self::Status(u16::try_from(number).ok()?),
            5 => Self::TooLong,
            6 => Self::NotHttp,
            7 => Self::Cut,
            8 => Self::NotAsked(words),
            _ => return None,
        };
        // A number or words that belong to no such fault.
        let (_, same, text) = fault.parts();
        (same == number && text.len() == len).then_some(fault)
    }
}
