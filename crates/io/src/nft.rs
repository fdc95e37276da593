//! Notices of nftables: who has touched one table; and whether it stands, and its counters. Reading
//! and writing rules is the program `nft`'s; this is to know when to look again, whom to name, what
//! would take that program long, and to delete a table where that program cannot be run.
//!
//! ```text
//! nlmsghdr 16 | nfgenmsg: family 1, version 1, res_id 2 | attributes
//! attribute: length 2, type 2, value, padding to 4
//! type = 10 << 8 | NFT_MSG_*; attribute 1 is the table's name, in all messages but NEWGEN
//! NEWGEN ends a transaction: attribute 2 is the process (of the first PID namespace), 3 its name
//! ```
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `trace` | reports of the rules that a traced packet met |

mod trace;

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};

use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_NETFILTER};

use crate::error::Error;
use crate::route::{attribute, split, text};
use crate::sockopt;

pub use trace::{Step, StepKind, Trace, Traced};

/// `NFNL_SUBSYS_NFTABLES`.
const SUBSYSTEM: u16 = 10;
/// `NFT_MSG_NEWGEN`.
const NEWGEN: u16 = 15;
/// `NFT_MSG_NEWTABLE`, `NFT_MSG_GETTABLE`, `NFT_MSG_NEWOBJ`, `NFT_MSG_GETOBJ`.
const NEWTABLE: u16 = 0;
const GETTABLE: u16 = 1;
const NEWOBJ: u16 = 18;
const GETOBJ: u16 = 19;
/// `NFT_MSG_DELTABLE`.
const DELTABLE: u16 = 2;
/// `NFNL_MSG_BATCH_BEGIN`, `NFNL_MSG_BATCH_END`: nftables takes changes only between these two
/// messages.
const BATCH_BEGIN: u16 = 16;
const BATCH_END: u16 = 17;
/// `NLM_F_REQUEST`, `NLM_F_ACK`.
const REQUEST: u16 = 1;
const ACK: u16 = 4;
/// The answer to what cannot be answered.
const NLMSG_ERROR: u16 = libc::NLMSG_ERROR as u16;
/// `NFNLGRP_NFTABLES`.
const GROUP: u32 = 7;
/// `NFPROTO_INET`.
const INET: u8 = 1;
/// Receive buffer in bytes: replacing a table of 10,000 elements makes 20,000 notices.
const BUFFER: i32 = 8 << 20;
/// Time in milliseconds that we wait for the end of a transaction after its parts; the kernel sends
/// both under one lock.
const END_TIMEOUT_MS: i64 = 20;
/// Limits how many transactions one look reports; further ones are left out.
const MAX_CHANGES: usize = 16;

/// A transaction that changed the table, or the note that some may have been missed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct TableChange {
    /// The process as the first PID namespace knows it; `None` when the kernel did not tell.
    pub pid: Option<u32>,
    /// Name of the program (at most 15 bytes).
    pub name: Option<String>,
    /// The netlink port that it used: its process ID in its own PID namespace, for a program with
    /// one such socket.
    pub port: u32,
    /// Notices were lost, so nobody can be named; look again.
    pub lost: bool,
}

impl TableChange {
    /// True when the process `pid` made the change, whichever PID namespace that number is from.
    pub fn is_by(&self, pid: u32) -> bool {
        !self.lost && (self.pid == Some(pid) || self.port == pid)
    }
}

impl std::fmt::Display for TableChange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.name, self.pid) {
            (Some(name), Some(pid)) => write!(f, "`{name}` (process {pid})"),
            (None, Some(pid)) => write!(f, "process {pid}"),
            _ => f.write_str("an unknown process"),
        }
    }
}

/// Listens for changes of one table of the family `inet`. Can be waited for with a poller.
#[derive(Debug)]
pub struct NftWatch {
    socket: Socket,
    table: String,
    /// A transaction whose end has not come yet has touched the table.
    open: bool,
}

impl NftWatch {
    /// Starts to listen for changes of `table`, in the network namespace of the calling thread.
    /// Needs `CAP_NET_ADMIN`.
    ///
    /// # Errors
    /// When the kernel has no nftables, or that is not permitted.
    pub fn open(table: &str) -> Result<Self, Error> {
        let open = || {
            let mut socket = Socket::new(NETLINK_NETFILTER)?;
            socket.bind(&SocketAddr::new(0, 0))?;
            socket.set_non_blocking(true)?;
            let _ = sockopt::set(socket.as_fd(), libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, BUFFER);
            socket.add_membership(GROUP)?;
            Ok(socket)
        };
        open()
            .map(|socket| Self { socket, table: table.to_owned(), open: false })
            .map_err(|e| Error::system("listening to nftables", e))
    }

    /// Who has touched the table since the last look, oldest first; the same one twice in a row
    /// counts once. Waits 20 ms at most, and only when a transaction has begun to arrive.
    pub fn take(&mut self) -> Vec<TableChange> {
        let mut changes: Vec<TableChange> = Vec::new();
        let mut add = |t: TableChange| {
            if changes.last() != Some(&t) && changes.len() < MAX_CHANGES {
                changes.push(t);
            }
        };
        loop {
            match self.socket.recv_from_full() {
                Ok((bytes, _)) => {
                    split(&bytes).filter_map(|m| note(m, &self.table, &mut self.open)).for_each(&mut add)
                }
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => {
                    add(TableChange { lost: true, ..TableChange::default() })
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // The parts of a transaction are there and its end is not.
                Err(_) if self.open && self.wait() => {}
                Err(_) => break,
            }
        }
        if std::mem::take(&mut self.open) {
            add(TableChange::default());
        }
        changes
    }

    fn wait(&self) -> bool {
        let fd = self.as_fd();
        let mut set = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
        let timeout = rustix::event::Timespec { tv_sec: 0, tv_nsec: END_TIMEOUT_MS * 1_000_000 };
        matches!(rustix::event::poll(&mut set, Some(&timeout)), Ok(n) if n > 0)
    }
}

impl AsFd for NftWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for NftWatch {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}

/// True when a table of the family `inet` stands. Asks the kernel for that alone: the program `nft`
/// reads all rules first, which takes a second where there are many. In the network namespace of
/// the calling thread; needs `CAP_NET_ADMIN`.
///
/// # Errors
/// The error that the kernel returned.
pub fn has_table(table: &str) -> Result<bool, Error> {
    let found = ask((GETTABLE, NEWTABLE), &[(1, table.as_bytes())]);
    found.map(|f| f.is_some()).map_err(|e| Error::system("asking for an nftables table", e))
}

/// Deletes a table of the family `inet` with everything in it, without the program `nft`. Returns
/// false when no such table stands. In the network namespace of the calling thread; needs
/// `CAP_NET_ADMIN`.
///
/// # Errors
/// The error that the kernel returned, also when it has no nftables.
pub fn delete_table(table: &str) -> Result<bool, Error> {
    exchange(&delete_request(table), None)
        .map(|done| done.is_some())
        .map_err(|e| Error::system("deleting an nftables table", e))
}

/// Packets and bytes of a counter of a table of the family `inet`; `None` when there is no such
/// counter. Otherwise as [`has_table`].
///
/// # Errors
/// The error that the kernel returned.
pub fn counter(table: &str, name: &str) -> Result<Option<(u64, u64)>, Error> {
    let wanted = [(1, table.as_bytes()), (2, name.as_bytes())];
    let found =
        ask((GETOBJ, NEWOBJ), &wanted).map_err(|e| Error::system("asking for an nftables counter", e))?;
    Ok(found.and_then(|body| {
        let data = attribute(&body, 4)?;
        let number = |kind| Some(u64::from_be_bytes(*attribute(data, kind)?.first_chunk()?));
        Some((number(2)?, number(1)?))
    }))
}

/// One question about something that has a name, the attributes of the answer; `None`: there is no
/// such thing.
fn ask((question, answer): (u16, u16), names: &[(u16, &[u8])]) -> io::Result<Option<Vec<u8>>> {
    exchange(&request(question, names), Some(answer))
}

/// Sends a request, and returns the attributes of the `answer`. Without an `answer` an
/// acknowledgement ends the exchange, and the attributes are empty. `None` means that the kernel
/// does not know the name.
fn exchange(request: &[u8], answer: Option<u16>) -> io::Result<Option<Vec<u8>>> {
    let mut socket = Socket::new(NETLINK_NETFILTER)?;
    socket.bind_auto()?;
    socket.connect(&SocketAddr::new(0, 0))?;
    let limit = Some(std::time::Duration::from_secs(10));
    rustix::net::sockopt::set_socket_timeout(&socket, rustix::net::sockopt::Timeout::Recv, limit)?;
    socket.send(request, 0)?;
    loop {
        let (bytes, _) = match socket.recv_from_full() {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
            other => other?,
        };
        for message in split(&bytes) {
            let kind = message.get(4..).and_then(|m| m.first_chunk()).map(|k| u16::from_ne_bytes(*k));
            let code = message.get(16..).and_then(|m| m.first_chunk()).map(|c| i32::from_ne_bytes(*c));
            match (kind, code) {
                (Some(NLMSG_ERROR), Some(0)) if answer.is_none() => return Ok(Some(Vec::new())),
                (Some(NLMSG_ERROR), Some(code)) if -code == libc::ENOENT => return Ok(None),
                (Some(NLMSG_ERROR), Some(code)) => return Err(io::Error::from_raw_os_error(-code)),
                (Some(kind), _) if answer.is_some_and(|answer| kind == SUBSYSTEM << 8 | answer) => {
                    return Ok(message.get(20..).map(<[u8]>::to_vec));
                }
                _ => {}
            }
        }
    }
}

/// The batch that deletes a table of the family `inet`.
fn delete_request(table: &str) -> Vec<u8> {
    let mut change = request(DELTABLE, &[(1, table.as_bytes())]);
    change[6..8].copy_from_slice(&(REQUEST | ACK).to_ne_bytes());
    [batch_message(BATCH_BEGIN), change, batch_message(BATCH_END)].concat()
}

/// The first or the last message of a batch: a header, and an nfgenmsg whose res_id names nftables.
fn batch_message(kind: u16) -> Vec<u8> {
    let mut m = vec![0; 16];
    m.extend([0, 0]);
    m.extend(SUBSYSTEM.to_be_bytes());
    let len = m.len() as u32;
    m[..4].copy_from_slice(&len.to_ne_bytes());
    m[4..6].copy_from_slice(&kind.to_ne_bytes());
    m[6..8].copy_from_slice(&REQUEST.to_ne_bytes());
    m
}

/// A question about something of the family `inet`. If it asks for an object, that is a counter.
fn request(question: u16, names: &[(u16, &[u8])]) -> Vec<u8> {
    let mut m = vec![0; 16];
    m.extend([INET, 0, 0, 0]);
    let mut add = |kind: u16, value: &[u8]| {
        m.extend((4 + value.len() as u16).to_ne_bytes());
        m.extend(kind.to_ne_bytes());
        m.extend(value);
        m.resize(m.len().next_multiple_of(4), 0);
    };
    for (kind, name) in names {
        add(*kind, &[name, &b"\0"[..]].concat());
    }
    if question == GETOBJ {
        // NFTA_OBJ_TYPE, NFT_OBJECT_COUNTER.
        add(3, &1u32.to_be_bytes());
    }
    let len = m.len() as u32;
    m[..4].copy_from_slice(&len.to_ne_bytes());
    m[4..6].copy_from_slice(&(SUBSYSTEM << 8 | question).to_ne_bytes());
    m[6..8].copy_from_slice(&REQUEST.to_ne_bytes());
    m
}

/// Reads one notice. `open` says that the current transaction has touched `table`; its end gives
/// the [`TableChange`].
fn note(message: &[u8], table: &str, open: &mut bool) -> Option<TableChange> {
    let kind = u16::from_ne_bytes(*message.get(4..)?.first_chunk()?);
    let port = u32::from_ne_bytes(*message.get(12..)?.first_chunk()?);
    if kind >> 8 != SUBSYSTEM {
        return None;
    }
    let family = *message.get(16)?;
    let body = message.get(20..)?;
    if kind & 0xff != NEWGEN {
        *open |= family == INET && attribute(body, 1).is_some_and(|name| text(name) == table);
        return None;
    }
    if !std::mem::take(open) {
        return None;
    }
    let pid = attribute(body, 2).and_then(|v| Some(u32::from_be_bytes(*v.first_chunk()?)));
    let name = attribute(body, 3).map(text).filter(|n| !n.is_empty());
    Some(TableChange { pid, name, port, lost: false })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, family: u8, attributes: &[(u16, &[u8])]) -> Vec<u8> {
        let mut m = vec![0; 16];
        m.extend([family, 0, 0, 0]);
        for (kind, value) in attributes {
            m.extend((4 + value.len() as u16).to_ne_bytes());
            m.extend(kind.to_ne_bytes());
            m.extend(*value);
            m.resize(m.len().next_multiple_of(4), 0);
        }
        let len = m.len() as u32;
        m[..4].copy_from_slice(&len.to_ne_bytes());
        m[4..6].copy_from_slice(&(SUBSYSTEM << 8 | kind).to_ne_bytes());
        m[12..16].copy_from_slice(&77u32.to_ne_bytes());
        m
    }

    fn end() -> Vec<u8> {
        message(NEWGEN, 0, &[(1, &[0, 0, 0, 9]), (2, &[0, 0, 1, 2]), (3, b"nft\0")])
    }

    #[test]
    fn the_end_of_a_transaction_names_who_touched_the_table() {
        let mut open = false;
        assert_eq!(note(&message(8, INET, &[(1, b"ironswan\0")]), "ironswan", &mut open), None);
        assert!(open);
        let touch = note(&end(), "ironswan", &mut open).unwrap();
        assert_eq!((touch.pid, touch.name.as_deref(), touch.port), (Some(0x102), Some("nft"), 77));
        assert!(touch.is_by(0x102) && touch.is_by(77) && !touch.is_by(1));
        assert_eq!(touch.to_string(), "`nft` (process 258)");
        assert!(!open && note(&end(), "ironswan", &mut open).is_none(), "the next transaction is another");
    }

    #[test]
    fn other_tables_and_families_do_not_count() {
        let mut open = false;
        for (family, name) in
            [(INET, &b"ironswan2\0"[..]), (INET, b"iron\0"), (2, b"ironswan\0"), (INET, b"")]
        {
            note(&message(6, family, &[(1, name)]), "ironswan", &mut open);
        }
        assert!(!open);
    }

    #[test]
    fn lengths_that_lie_are_survived() {
        let whole = message(6, INET, &[(9, b"12345"), (1, b"ironswan\0")]);
        for n in 0..whole.len() {
            let mut open = false;
            note(&whole[..n], "ironswan", &mut open);
            assert!(!open || n >= whole.len() - 3, "{n}");
        }
        for at in 20..whole.len() {
            for value in [0, 1, 3, 4, 255] {
                let mut bad = whole.clone();
                bad[at] = value;
                note(&bad, "ironswan", &mut false);
            }
        }
        assert_eq!(attribute(&[0, 0, 0, 0], 1), None, "a length of 0 ends");
    }

    #[test]
    fn a_question_has_the_form_that_the_kernel_reads() {
        let m = request(GETOBJ, &[(1, b"ironswan"), (2, b"in_clear")]);
        assert_eq!((m.len() % 4, u32::from_ne_bytes(*m.first_chunk().unwrap()) as usize), (0, m.len()));
        assert_eq!(m[16], INET);
        assert_eq!(attribute(&m[20..], 1).map(text).as_deref(), Some("ironswan"));
        assert_eq!(attribute(&m[20..], 2).map(text).as_deref(), Some("in_clear"));
        assert_eq!(attribute(&m[20..], 3), Some(&[0, 0, 0, 1][..]));
    }
}
