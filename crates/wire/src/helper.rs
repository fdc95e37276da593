//! Messages between the daemon, which has few privileges, and its helper, which has more.
//!
//! ```text
//! daemon ── Request, reply socket, descriptors ──▶ helper ── Reply, descriptors ──▶ reply socket
//! ```
//! Both sides read what the other one may have been made to send: every message is of a closed
//! list, its lengths are checked, and nothing may follow it. A message is one datagram of at most
//! [`MAX_MESSAGE`] bytes: a number for its kind, then its fields, big-endian. A path is text of any
//! bytes but 0, with its length in two bytes before it. Descriptors travel beside the bytes;
//! [`Request::descriptors`] and [`Reply::descriptors`] say how many belong to a message.

use std::fmt;

use crate::read::{LenError, Reader, Writer};

/// The longest message in bytes.
pub const MAX_MESSAGE: usize = 8192;
/// The longest path in bytes (`PATH_MAX` without its final 0).
pub const MAX_PATH: usize = 4095;
/// The longest name of an interface in bytes.
pub const MAX_NAME: usize = 15;
/// The most descriptors of a message, the reply socket among them.
pub const MAX_DESCRIPTORS: usize = 4;
/// The longest text of a reply that says why a request failed, in bytes.
pub const MAX_REASON: usize = 1024;

/// Runs of `nft` that the helper starts. The arguments of each are the helper's own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NftRun {
    /// Shows the version.
    Version,
    /// Carries out the script on standard input.
    Script,
    /// Lists the counters of the guard's table.
    Counters,
    /// Lists the names of all tables.
    Tables,
    /// Lists the rules of all tables.
    Ruleset,
    /// Lists the guard's table.
    Table,
}

/// All runs, by their number on the wire.
const NFT_RUNS: [NftRun; 6] =
    [NftRun::Version, NftRun::Script, NftRun::Counters, NftRun::Tables, NftRun::Ruleset, NftRun::Table];

/// A setting of the TUN device, with the one value that it gets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DeviceSetting {
    /// `rp_filter` becomes 0.
    ReversePath,
    /// `src_valid_mark` becomes 1.
    ValidMark,
}

/// A question or an order of the daemon.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Request {
    /// Opens a regular file for reading: [`Reply::Done`] with its descriptor.
    Open(Vec<u8>),
    /// Resolves a path: [`Reply::Path`].
    Canonical(Vec<u8>),
    /// Says whether there is something under this name: [`Reply::Flag`].
    Exists(Vec<u8>),
    /// Lists a folder: [`Reply::Flag`], whether there is one, with the descriptor of a file that
    /// holds its paths, each followed by a 0.
    List(Vec<u8>),
    /// Looks for the program `nft`: [`Reply::Path`], empty when there is none.
    FindNft,
    /// Runs the program that [`Request::FindNft`] has found, with three descriptors: standard
    /// input, output and error. Ends it after this many seconds. [`Reply::Ended`].
    RunNft {
        /// The run.
        run: NftRun,
        /// Seconds that it may take.
        seconds: u8,
    },
    /// Opens the TUN device of this name, or makes it: [`Reply::Done`] with its descriptor.
    OpenTun(Vec<u8>),
    /// Changes a setting of the TUN device of this name: [`Reply::Done`].
    SetDevice {
        /// Name of the device.
        name: Vec<u8>,
        /// The setting.
        setting: DeviceSetting,
    },
    /// Lets kernel threads poll an interface, or softirqs: [`Reply::Done`].
    SetThreaded {
        /// Name of the interface.
        name: Vec<u8>,
        /// Its index.
        index: u32,
        /// Its address in the link layer, at most 32 bytes.
        address: Vec<u8>,
        /// True for kernel threads.
        on: bool,
    },
}

/// The answer to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// The request has been carried out. The number of descriptors is 0 or 1.
    Done {
        /// A descriptor comes with it.
        descriptor: bool,
    },
    /// The answer is yes or no. The number of descriptors is 0 or 1.
    Flag {
        /// The answer.
        yes: bool,
        /// A descriptor comes with it.
        descriptor: bool,
    },
    /// A path, empty when there is none.
    Path(Vec<u8>),
    /// A program has ended, or could not be started.
    Ended {
        /// Its number.
        pid: u32,
        /// How it ended.
        end: ProgramEnd,
    },
    /// The request has failed.
    Failed {
        /// The kernel's error number; 0 when the kernel was not the one who refused.
        errno: u32,
        /// The reason in words; empty when the number says all.
        reason: String,
    },
    /// The path is not that of a regular file.
    NotRegular,
}

/// How a program ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum ProgramEnd {
    /// It ended with status 0.
    Success,
    /// It ended with another status, or by a signal.
    Failure,
    /// It did not end in time, and was killed.
    TimedOut,
    /// It could not be started or waited for; the reason in words.
    Unknown {
        /// True when it was not started at all.
        started: bool,
        /// The reason in words.
        reason: String,
    },
}

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

/// Reads text of at most `max` bytes without a 0.
fn text(r: &mut Reader<'_>, max: usize, what: &'static str) -> Result<Vec<u8>, MessageError> {
    let len = usize::from(r.u16(what)?);
    let bytes = r.bytes(len, what)?;
    if len > max || bytes.contains(&0) {
        return Err(MessageError::Value(what));
    }
    Ok(bytes.to_vec())
}

/// Reads text that is not empty.
fn named(r: &mut Reader<'_>, max: usize, what: &'static str) -> Result<Vec<u8>, MessageError> {
    text(r, max, what).and_then(|t| if t.is_empty() { Err(MessageError::Value(what)) } else { Ok(t) })
}

fn reason(r: &mut Reader<'_>) -> Result<String, MessageError> {
    let bytes = text(r, MAX_REASON, "reason")?;
    String::from_utf8(bytes).map_err(|_| MessageError::Value("reason"))
}

fn flag(r: &mut Reader<'_>, what: &'static str) -> Result<bool, MessageError> {
    match r.u8(what)? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(MessageError::Value(what)),
    }
}

/// Text longer than its length field can say is cut: no caller has such text, and the other side
/// refuses what is cut.
fn put(w: &mut Writer<'_>, text: &[u8]) {
    let text = &text[..text.len().min(usize::from(u16::MAX))];
    w.u16(u16::try_from(text.len()).unwrap_or(u16::MAX));
    w.bytes(text);
}

/// The longest part of a reason that fits, whole characters only.
fn fitting(reason: &str) -> &[u8] {
    let mut end = reason.len().min(MAX_REASON);
    while !reason.is_char_boundary(end) {
        end -= 1;
    }
    &reason.as_bytes()[..end]
}

fn ended(r: &Reader<'_>) -> Result<(), MessageError> {
    if r.any_left() { Err(MessageError::Trailing(r.left())) } else { Ok(()) }
}

impl Request {
    /// The number of descriptors that travel with the request, without the reply socket.
    pub fn descriptors(&self) -> usize {
        match self {
            Self::RunNft { .. } => 3,
            _ => 0,
        }
    }

    /// The bytes of the request.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut w = Writer::new(&mut out);
        match self {
            Self::Open(path) => {
                w.u8(1);
                put(&mut w, path);
            }
            Self::Canonical(path) => {
                w.u8(2);
                put(&mut w, path);
            }
            Self::Exists(path) => {
                w.u8(3);
                put(&mut w, path);
            }
            Self::List(path) => {
                w.u8(4);
                put(&mut w, path);
            }
            Self::FindNft => w.u8(6),
            Self::RunNft { run, seconds } => {
                w.u8(7);
                w.u8(NFT_RUNS.iter().position(|r| r == run).map_or(u8::MAX, |n| n as u8));
                w.u8(*seconds);
            }
            Self::OpenTun(name) => {
                w.u8(8);
                put(&mut w, name);
            }
            Self::SetDevice { name, setting } => {
                w.u8(9);
                put(&mut w, name);
                w.u8(match setting {
                    DeviceSetting::ReversePath => 0,
                    DeviceSetting::ValidMark => 1,
                });
            }
            Self::SetThreaded { name, index, address, on } => {
                w.u8(10);
                put(&mut w, name);
                w.u32(*index);
                put(&mut w, address);
                w.u8(u8::from(*on));
            }
        }
        out
    }

    /// Reads a request.
    ///
    /// # Errors
    /// The field that is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        let mut r = Reader::new(bytes);
        let request = match r.u8("kind of request")? {
            1 => Self::Open(named(&mut r, MAX_PATH, "path")?),
            2 => Self::Canonical(named(&mut r, MAX_PATH, "path")?),
            3 => Self::Exists(named(&mut r, MAX_PATH, "path")?),
            4 => Self::List(named(&mut r, MAX_PATH, "path")?),
            6 => Self::FindNft,
            7 => {
                let number = usize::from(r.u8("run of nft")?);
                let run = *NFT_RUNS.get(number).ok_or(MessageError::Value("run of nft"))?;
                Self::RunNft { run, seconds: r.u8("seconds")? }
            }
            8 => Self::OpenTun(named(&mut r, MAX_NAME, "name")?),
            9 => {
                let name = named(&mut r, MAX_NAME, "name")?;
                let setting = match flag(&mut r, "setting")? {
                    false => DeviceSetting::ReversePath,
                    true => DeviceSetting::ValidMark,
                };
                Self::SetDevice { name, setting }
            }
            10 => {
                let name = named(&mut r, MAX_NAME, "name")?;
                let index = r.u32("index")?;
                let len = usize::from(r.u16("address")?);
                if len > 32 {
                    return Err(MessageError::Value("address"));
                }
                let address = r.bytes(len, "address")?.to_vec();
                Self::SetThreaded { name, index, address, on: flag(&mut r, "flag")? }
            }
            _ => return Err(MessageError::Value("kind of request")),
        };
        ended(&r)?;
        Ok(request)
    }
}

impl Reply {
    /// The number of descriptors that travel with the reply.
    pub fn descriptors(&self) -> usize {
        match self {
            Self::Done { descriptor } | Self::Flag { descriptor, .. } => usize::from(*descriptor),
            _ => 0,
        }
    }

    /// The bytes of the reply.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut w = Writer::new(&mut out);
        match self {
            Self::Done { descriptor } => {
                w.u8(1);
                w.u8(u8::from(*descriptor));
            }
            Self::Flag { yes, descriptor } => {
                w.u8(2);
                w.u8(u8::from(*yes));
                w.u8(u8::from(*descriptor));
            }
            Self::Path(path) => {
                w.u8(3);
                put(&mut w, path);
            }
            Self::Ended { pid, end } => {
                w.u8(4);
                w.u32(*pid);
                match end {
                    ProgramEnd::Success => w.u8(0),
                    ProgramEnd::Failure => w.u8(1),
                    ProgramEnd::TimedOut => w.u8(2),
                    ProgramEnd::Unknown { started, reason } => {
                        w.u8(3);
                        w.u8(u8::from(*started));
                        put(&mut w, fitting(reason));
                    }
                }
            }
            Self::Failed { errno, reason } => {
                w.u8(5);
                w.u32(*errno);
                put(&mut w, fitting(reason));
            }
            Self::NotRegular => w.u8(6),
        }
        out
    }

    /// Reads a reply.
    ///
    /// # Errors
    /// The field that is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Self, MessageError> {
        let mut r = Reader::new(bytes);
        let reply = match r.u8("kind of reply")? {
            1 => Self::Done { descriptor: flag(&mut r, "descriptor")? },
            2 => Self::Flag { yes: flag(&mut r, "answer")?, descriptor: flag(&mut r, "descriptor")? },
            3 => Self::Path(text(&mut r, MAX_PATH, "path")?),
            4 => {
                let pid = r.u32("process")?;
                let end = match r.u8("end")? {
                    0 => ProgramEnd::Success,
                    1 => ProgramEnd::Failure,
                    2 => ProgramEnd::TimedOut,
                    3 => ProgramEnd::Unknown { started: flag(&mut r, "started")?, reason: reason(&mut r)? },
                    _ => return Err(MessageError::Value("end")),
                };
                Self::Ended { pid, end }
            }
            5 => Self::Failed { errno: r.u32("error number")?, reason: reason(&mut r)? },
            6 => Self::NotRegular,
            _ => return Err(MessageError::Value("kind of reply")),
        };
        ended(&r)?;
        Ok(reply)
    }
}

#[cfg(test)]
#[path = "helper_tests.rs"]
mod tests;
