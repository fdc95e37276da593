//! Reports of nftables about packets that carry `nftrace`: each rule that such a packet met, and
//! the policy of each base chain that it left at the end.
//!
//! ```text
//! message NFT_MSG_TRACE, nfgenmsg: family of the table
//! attributes: table 1, chain 2, handle of the rule 3, type 4, verdict 5 (code 1), packet 6,
//!             interfaces: in 10, out 12; policy 16
//! type: policy 1, return 2, rule 3 (without a handle: the begin of a base chain)
//! ```
//! Numbers are big-endian. A packet keeps its number from hook to hook.
//!
//! Not here: the rules that let packets be traced, and the text of a rule that a report names by
//! its handle (both are the program `nft`'s).

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};

use super::SUBSYSTEM;
use crate::error::Error;
use crate::route::{attribute, split, text};
use crate::sockopt;

/// `NFT_MSG_TRACE`.
const TRACE: u16 = 17;
/// `NFNLGRP_NFTRACE`.
const GROUP: u32 = 9;
/// Receive buffer in bytes: a report has some 300 bytes, and a packet makes some tens.
const BUFFER: i32 = 1 << 20;

/// How a packet left a rule or a chain.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// Dropped.
    Drop,
    /// Accepted by this hook.
    Accept,
    /// Handed to a program in user space, which decides.
    Queue,
    /// Taken over by another part of the kernel.
    Stolen,
    /// Goes on to another rule.
    Goes,
}

/// The kind of a report.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum StepKind {
    /// A base chain ended, and its policy decided.
    Policy,
    /// A chain ended, and the one that had called it goes on.
    Return,
    /// A rule matched. Its handle.
    Rule(u64),
    /// The packet comes to a base chain. Only this report has the interfaces.
    Begin,
}

/// One report.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Traced {
    /// Number of the packet.
    pub packet: u32,
    /// Family of the table: `inet`, `ip`, `ip6`, `arp`, `bridge` or `netdev`.
    pub family: &'static str,
    /// Name of the table.
    pub table: String,
    /// Name of the chain.
    pub chain: String,
    /// The kind of the report.
    pub kind: StepKind,
    /// How the packet went on.
    pub step: Step,
    /// Index of the interface by which it came, where the hook knows one.
    pub came_by: Option<u32>,
    /// Index of the interface by which it is to leave, where the hook knows one.
    pub leaves_by: Option<u32>,
}

/// Listens to reports of the network namespace of the thread that opened it.
#[derive(Debug)]
pub struct Trace(Socket);

impl Trace {
    /// Begins to listen. Needs `CAP_NET_ADMIN`.
    ///
    /// # Errors
    /// When the kernel has no nftables, or that is not permitted.
    pub fn open() -> Result<Self, Error> {
        let open = || {
            let mut socket = Socket::new(NETLINK_NETFILTER)?;
            socket.bind(&SocketAddr::new(0, 0))?;
            socket.set_non_blocking(true)?;
            let _ = sockopt::set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, BUFFER);
            socket.add_membership(GROUP)?;
            Ok(socket)
        };
        open().map(Self).map_err(|e| Error::system("listening to traces of nftables", e))
    }

    /// Waits for reports, for `patience` at most, and returns those of one datagram. Empty: none
    /// came. `None`: reports were lost, because the buffer was full.
    ///
    /// # Errors
    /// The error that the kernel returned.
    pub fn next(&self, patience: Duration) -> Result<Option<Vec<Traced>>, Error> {
        let wait = rustix::event::Timespec {
            tv_sec: patience.as_secs() as i64,
            tv_nsec: patience.subsec_nanos().into(),
        };
        let fd = self.as_fd();
        let mut set = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
        match rustix::event::poll(&mut set, Some(&wait)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => return Ok(Some(Vec::new())),
            _ => {}
        }
        match self.0.recv_from_full() {
            Ok((bytes, _)) => Ok(Some(split(&bytes).filter_map(report).collect())),
            Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => Ok(None),
            Err(e) if matches!(e.kind(), io::ErrorKind::Interrupted | io::ErrorKind::WouldBlock) => {
                Ok(Some(Vec::new()))
            }
            Err(e) => Err(Error::system("reading traces of nftables", e)),
        }
    }
}

impl AsFd for Trace {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// Reads one report.
fn report(message: &[u8]) -> Option<Traced> {
    let kind = u16::from_ne_bytes(*message.get(4..)?.first_chunk()?);
    if kind != SUBSYSTEM << 8 | TRACE {
        return None;
    }
    let family = family(*message.get(16)?)?;
    let body = message.get(20..)?;
    let number = |kind| attribute(body, kind).and_then(|v| Some(u32::from_be_bytes(*v.first_chunk()?)));
    let verdict = attribute(body, 5).and_then(|v| attribute(v, 1));
    let verdict = verdict.and_then(|v| Some(u32::from_be_bytes(*v.first_chunk()?)));
    let (kind, code) = match number(4)? {
        1 => (StepKind::Policy, number(16)?),
        2 => (StepKind::Return, verdict?),
        // A rule without a handle stands for the begin of the chain.
        3 => match attribute(body, 3) {
            Some(handle) => (StepKind::Rule(u64::from_be_bytes(*handle.first_chunk()?)), verdict?),
            None => (StepKind::Begin, verdict?),
        },
        _ => return None,
    };
    Some(Traced {
        packet: number(6)?,
        family,
        table: text(attribute(body, 1)?),
        chain: text(attribute(body, 2)?),
        kind,
        step: step(code),
        came_by: number(10),
        leaves_by: number(12),
    })
}

/// The word for `NFPROTO_*`.
fn family(number: u8) -> Option<&'static str> {
    Some(match number {
        1 => "inet",
        2 => "ip",
        3 => "arp",
        5 => "netdev",
        7 => "bridge",
        10 => "ip6",
        _ => return None,
    })
}

/// `NF_*`, whose upper bits hold a number of a queue or an error; and `NFT_*`, which are negative.
fn step(code: u32) -> Step {
    if code.cast_signed() < 0 {
        return Step::Goes;
    }
    match code & 0xff {
        0 => Step::Drop,
        1 => Step::Accept,
        2 => Step::Stolen,
        3 => Step::Queue,
        _ => Step::Goes,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(m: &mut Vec<u8>, kind: u16, value: &[u8]) {
        m.extend((4 + value.len() as u16).to_ne_bytes());
        m.extend(kind.to_ne_bytes());
        m.extend(value);
        m.resize(m.len().next_multiple_of(4), 0);
    }

    /// A report of a rule of `ip other`, chain `drops`, with this verdict.
    fn message(code: i32) -> Vec<u8> {
        let mut m = vec![0; 16];
        m[4..6].copy_from_slice(&(SUBSYSTEM << 8 | TRACE).to_ne_bytes());
        m.extend([2, 0, 0, 0]);
        let mut verdict = Vec::new();
        put(&mut verdict, 1, &code.to_be_bytes());
        for (kind, value) in [
            (1, &b"other\0"[..]),
            (2, b"dr\x1b[ops\0"),
            (3, &7u64.to_be_bytes()),
            (4, &3u32.to_be_bytes()),
            (6, &0x1234u32.to_be_bytes()),
            (10, &2u32.to_be_bytes()),
            (12, &5u32.to_be_bytes()),
        ] {
            put(&mut m, kind, value);
        }
        put(&mut m, 5 | 0x8000, &verdict);
        let len = (m.len() as u32).to_ne_bytes();
        m[..4].copy_from_slice(&len);
        m
    }

    #[test]
    fn a_rule_that_drops_is_reported_with_table_chain_and_handle() {
        let found = report(&message(0)).unwrap();
        assert_eq!((found.family, found.table.as_str(), found.packet), ("ip", "other", 0x1234));
        assert_eq!(found.chain, "dr?[ops", "no escape sequence comes through");
        assert_eq!((found.kind, found.step), (StepKind::Rule(7), Step::Drop));
        assert_eq!((found.came_by, found.leaves_by), (Some(2), Some(5)));
        for (code, step) in
            [(1, Step::Accept), (3 | 9 << 16, Step::Queue), (-1, Step::Goes), (-3, Step::Goes)]
        {
            assert_eq!(report(&message(code)).unwrap().step, step, "{code}");
        }
    }

    #[test]
    fn lengths_that_lie_and_other_messages_are_no_reports() {
        let whole = message(0);
        for n in 0..whole.len() {
            report(&whole[..n]);
        }
        for at in 16..whole.len() {
            let mut bad = whole.clone();
            bad[at] = 0xff;
            report(&bad);
        }
        let mut other = whole;
        other[4] = 3;
        assert_eq!(report(&other), None);
    }
}
