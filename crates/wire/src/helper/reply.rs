//! Answers to the daemon.

use std::net::IpAddr;

use super::fields::{address, ended, fitting, flag, put, put_address, reason, text};
use super::{MAX_ADDRESSES, MAX_PATH, MessageError};
use crate::fetched::FetchFault;
use crate::read::{Reader, Writer};

/// The answer to a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Reply {
    /// The request has been carried out.
    Done {
        /// The number of descriptors that come with it, at most 2.
        descriptors: u8,
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
    /// There is no document, for this reason.
    NotFetched(FetchFault),
    /// Addresses, at most [`MAX_ADDRESSES`].
    Addresses(Vec<IpAddr>),
    /// Numbers of packets and of their bytes; or one number, and 0.
    Count {
        /// Packets.
        packets: u64,
        /// Bytes.
        bytes: u64,
    },
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

impl Reply {
    /// The number of descriptors that travel with the reply.
    pub fn descriptors(&self) -> usize {
        match self {
            Self::Done { descriptors } => usize::from(*descriptors),
            Self::Flag { descriptor, .. } => usize::from(*descriptor),
            _ => 0,
        }
    }

    /// The bytes of the reply.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::new();
        let mut w = Writer::new(&mut out);
        match self {
            Self::Done { descriptors } => {
                w.u8(1);
                w.u8(*descriptors);
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
            Self::Addresses(addresses) => {
                w.u8(8);
                let addresses = &addresses[..addresses.len().min(MAX_ADDRESSES)];
                w.u8(addresses.len() as u8);
                addresses.iter().for_each(|a| put_address(&mut w, *a));
            }
            Self::NotFetched(fault) => {
                let (kind, number, words) = fault.parts();
                w.u8(9);
                w.u8(kind);
                w.u32(number);
                put(&mut w, fitting(words));
            }
            Self::Count { packets, bytes } => {
                w.u8(7);
                w.u64(*packets);
                w.u64(*bytes);
            }
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
            1 => match r.u8("descriptors")? {
                descriptors @ 0..=2 => Self::Done { descriptors },
                _ => return Err(MessageError::Value("descriptors")),
            },
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
            7 => Self::Count { packets: r.u64("packets")?, bytes: r.u64("bytes")? },
            8 => {
                let count = usize::from(r.u8("addresses")?);
                if count > MAX_ADDRESSES {
                    return Err(MessageError::Value("addresses"));
                }
                Self::Addresses((0..count).map(|_| address(&mut r)).collect::<Result<_, _>>()?)
            }
            9 => {
                let (kind, number) = (r.u8("kind of fault")?, r.u32("number of a fault")?);
                let fault = FetchFault::of_parts(kind, number, reason(&mut r)?);
                Self::NotFetched(fault.ok_or(MessageError::Value("fault of a fetch"))?)
            }
            _ => return Err(MessageError::Value("kind of reply")),
        };
        ended(&r)?;
        Ok(reply)
    }
}
