//! Sending a batch, whatever the kernel says: which errors mean cut differently, wait, fragment, or count and go on.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::Duration;

use crate::mmsg::{Outgoing, SendSlots};
use crate::raw::RawSocket;
use crate::udp::{UdpSocket, wait_writable};

/// Messages per system call.
const BATCH: usize = 64;
/// Peers for which segmentation is known not to work that are remembered; past this it is off for all.
const REMEMBERED: usize = 256;
/// Peers with a path that became too narrow, reported at a time.
const NARROW: usize = 32;
/// How long a full socket buffer is waited for, and how often.
const PATIENCE: Duration = Duration::from_millis(1);
const ATTEMPTS: u32 = 4;

/// What happened to what was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct SendStats {
    /// `sendmmsg` calls.
    pub calls: u64,
    /// Messages taken, each one or more datagrams.
    pub messages: u64,
    /// Datagrams taken.
    pub datagrams: u64,
    /// Times that the socket buffer was full and waited for.
    pub waits: u64,
    /// Datagrams dropped since the buffer stayed full.
    pub dropped_full: u64,
    /// Datagrams dropped since the kernel refused them (no route, forbidden by a rule).
    pub dropped_error: u64,
    /// Datagrams larger than the path MTU, which left in fragments.
    pub fragmented: u64,
    /// Messages that could not be segmented by the kernel and were sent in pieces.
    pub unsegmented: u64,
}

/// A socket of either kind.
#[derive(Clone, Copy, Debug)]
pub enum Outlet<'a> {
    /// With UDP header.
    Udp(&'a UdpSocket),
    /// Without.
    Raw(&'a RawSocket),
}

impl Outlet<'_> {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Udp(s) => s.as_fd(),
            Self::Raw(s) => s.as_fd(),
        }
    }

    fn max_segments(&self) -> usize {
        match self {
            Self::Udp(s) => s.max_segments(),
            Self::Raw(_) => 1,
        }
    }

    fn send_fragmentable(&self, m: &Outgoing, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Udp(s) => s.send_fragmentable(m.local, m.remote, m.tos, bytes),
            Self::Raw(s) => s.send_fragmentable(m.local, m.remote.ip(), m.tos, bytes),
        }
    }
}

/// Sends batches. One per thread: it holds the headers lent to the kernel and what is known about peers.
#[derive(Debug)]
pub struct Sender {
    slots: SendSlots,
    pieces: Vec<Outgoing>,
    no_segmentation: Vec<IpAddr>,
    never_segment: bool,
    narrow: Vec<IpAddr>,
    stats: SendStats,
}

impl Default for Sender {
    fn default() -> Self {
        Self::new()
    }
}

impl Sender {
    /// Knows nothing yet.
    pub fn new() -> Self {
        Self {
            slots: SendSlots::new(BATCH),
            pieces: Vec::new(),
            no_segmentation: Vec::new(),
            never_segment: false,
            narrow: Vec::new(),
            stats: SendStats::default(),
        }
    }

    /// Counters since the start.
    pub fn stats(&self) -> SendStats {
        self.stats
    }

    /// The peers to which a packet was larger than the path MTU since the last call. The kernel's route look-up knows
    /// the new MTU.
    pub fn take_narrow(&mut self) -> Option<Vec<IpAddr>> {
        (!self.narrow.is_empty()).then(|| std::mem::take(&mut self.narrow))
    }

    /// Counts `list` as refused: there is no socket for it.
    pub fn refuse(&mut self, list: &[Outgoing]) {
        self.stats.dropped_error += list.iter().map(|m| m.datagrams() as u64).sum::<u64>();
    }

    /// Sends `list`, in order, from `buf`. Every datagram is either taken by the kernel or counted as dropped.
    pub fn send(&mut self, outlet: Outlet<'_>, buf: &[u8], list: &[Outgoing]) {
        let mut rest = list;
        while let Some(first) = rest.first() {
            if self.must_split(outlet, first) {
                self.send_pieces(outlet, buf, first);
                rest = &rest[1..];
                continue;
            }
            let run = rest.iter().position(|m| self.must_split(outlet, m)).unwrap_or(rest.len());
            match self.attempt(outlet, buf, &rest[..run]) {
                Ok(n) => rest = &rest[n.clamp(1, run)..],
                Err(e) => {
                    self.recover(outlet, buf, first, &e);
                    rest = &rest[1..];
                }
            }
        }
    }

    /// True when the kernel cannot be asked to cut `m`, or not into so many.
    fn must_split(&self, outlet: Outlet<'_>, m: &Outgoing) -> bool {
        m.is_segmented()
            && (m.datagrams() > outlet.max_segments()
                || self.never_segment
                || (!self.no_segmentation.is_empty() && self.no_segmentation.contains(&m.remote.ip())))
    }

    /// `sendmmsg`, again after a signal, and after a short wait when the buffer is full.
    fn attempt(&mut self, outlet: Outlet<'_>, buf: &[u8], list: &[Outgoing]) -> io::Result<usize> {
        let ports = matches!(outlet, Outlet::Udp(_));
        let mut tries = 0;
        loop {
            self.stats.calls += 1;
            match self.slots.send(outlet.fd(), buf, list, ports) {
                Ok(n) => {
                    self.stats.messages += n as u64;
                    self.stats.datagrams += list[..n].iter().map(|m| m.datagrams() as u64).sum::<u64>();
                    return Ok(n);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if is_full(&e) && tries < ATTEMPTS => {
                    tries += 1;
                    self.stats.waits += 1;
                    wait_writable(outlet.fd(), PATIENCE);
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// `m` was refused for `e`: do what can be done.
    fn recover(&mut self, outlet: Outlet<'_>, buf: &[u8], m: &Outgoing, e: &io::Error) {
        match e.raw_os_error() {
            // No checksum offload on the way out, so no segmentation: a property of the route.
            Some(libc::EIO) if m.is_segmented() => {
                if self.no_segmentation.len() < REMEMBERED {
                    self.no_segmentation.push(m.remote.ip());
                } else {
                    self.never_segment = true;
                }
                self.send_pieces(outlet, buf, m);
            }
            // Segments are larger than the path MTU, which has just changed; or the socket cannot segment.
            Some(libc::EMSGSIZE | libc::EINVAL | libc::EOPNOTSUPP) if m.is_segmented() => {
                self.send_pieces(outlet, buf, m);
            }
            Some(libc::EMSGSIZE) => {
                if self.narrow.len() < NARROW && !self.narrow.contains(&m.remote.ip()) {
                    self.narrow.push(m.remote.ip());
                }
                let bytes = buf.get(m.offset..m.offset + m.len).unwrap_or(&[]);
                match outlet.send_fragmentable(m, bytes) {
                    Ok(()) => {
                        self.stats.fragmented += 1;
                        self.stats.datagrams += 1;
                        self.stats.messages += 1;
                    }
                    Err(_) => self.stats.dropped_error += 1,
                }
            }
            _ if is_full(e) => self.stats.dropped_full += m.datagrams() as u64,
            _ => self.stats.dropped_error += m.datagrams() as u64,
        }
    }

    /// Sends `m` cut into as many datagrams as the kernel takes at a time, or one by one.
    fn send_pieces(&mut self, outlet: Outlet<'_>, buf: &[u8], m: &Outgoing) {
        if matches!(outlet, Outlet::Udp(_)) {
            self.stats.unsegmented += 1;
        }
        let mut pieces = std::mem::take(&mut self.pieces);
        pieces.clear();
        pieces.extend(m.split());
        let mut rest = &pieces[..];
        while let Some(first) = rest.first() {
            match self.attempt(outlet, buf, rest) {
                Ok(n) => rest = &rest[n.clamp(1, rest.len())..],
                Err(e) => {
                    self.recover(outlet, buf, first, &e);
                    rest = &rest[1..];
                }
            }
        }
        self.pieces = pieces;
    }
}

/// No room in the socket's buffer, or in the queue of the device.
fn is_full(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS))
}
