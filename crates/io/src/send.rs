//! Sending a batch, whatever the kernel says: which errors mean cut differently, wait, fragment, or
//! count and go on.
//!
//! Nothing leaves in fragments that could be smaller. Fragments are lost as one, defeat
//! segmentation and merging, cost the peer memory, and are what firewalls drop first. A datagram
//! larger than the path MTU is dropped and its peer reported; the routes into the tunnel are
//! lowered then, and the kernel tells the senders (RFC 4301 section 8.2). Only what the engine
//! calls fragmentable, since nobody would send it smaller, goes in fragments.
//!
//! The kernel refuses what is larger than its link (`IP_PMTUDISC_PROBE`). What is known of the path
//! behind that, from a route's `mtu` and from ICMP errors that quote an SPI of ours, stands in
//! [`KnownPaths`], and is compared here. What the kernel has learned from ICMP by itself does not
//! count, since it does not look at the SPI; it cuts by that only what leaves in fragments anyway.

use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use crate::fragment;
use crate::known::KnownPaths;
use crate::mmsg::{Outgoing, SendSlots};
use crate::path::RouteMtus;
use crate::raw::RawSocket;
use crate::segmentation::Unsegmentable;
use crate::udp::{UdpSocket, is_full, wait_writable};

/// Messages per system call.
const BATCH: usize = 64;
/// Limits how many peers with a path that became too narrow are reported at a time.
const MAX_NARROW: usize = 32;
/// Time that one wait for room in a full socket buffer may take, and the number of such waits for
/// one message.
const ROOM_TIMEOUT: Duration = Duration::from_millis(1);
const MAX_WAITS: u32 = 4;
/// Limits how often a call is repeated because its error may belong to an earlier packet.
const MAX_STALE_ERRORS: u32 = 3;

/// Counters of sent and lost datagrams.
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
    /// Datagrams dropped since they were larger than the path MTU. Their peer is reported.
    pub dropped_narrow: u64,
    /// Datagrams dropped since the address that they should leave from is not this machine's any
    /// more.
    pub dropped_source: u64,
    /// Datagrams dropped since no route leads to the peer, or its link is down.
    pub dropped_route: u64,
    /// Datagrams dropped since the kernel refused them for another reason (forbidden by a firewall
    /// rule).
    pub dropped_error: u64,
    /// Datagrams larger than the path MTU that left in fragments, since their inner packet cannot
    /// be asked to be smaller or may be carried so (`copy_df = no`).
    pub fragmented: u64,
    /// Messages that could not be segmented by the kernel and were sent in pieces.
    pub unsegmented: u64,
}

impl SendStats {
    /// Every counter with its name.
    pub fn named(&self) -> [(&'static str, u64); 11] {
        [
            ("send-calls", self.calls),
            ("send-messages", self.messages),
            ("send-datagrams", self.datagrams),
            ("send-waits", self.waits),
            ("send-dropped-full", self.dropped_full),
            ("send-dropped-narrow", self.dropped_narrow),
            ("send-dropped-source", self.dropped_source),
            ("send-dropped-route", self.dropped_route),
            ("send-dropped-error", self.dropped_error),
            ("send-fragmented", self.fragmented),
            ("send-unsegmented", self.unsegmented),
        ]
    }
}

/// Reason why a datagram was dropped; each has a counter in [`SendStats`].
#[derive(Clone, Copy, PartialEq, Eq)]
enum DropCause {
    Full,
    Narrow,
    Source,
    Route,
    Other,
}

impl DropCause {
    /// The reason for a loss, from the kernel's error for one datagram.
    fn of_error(m: &Outgoing, e: &io::Error) -> Self {
        match e.raw_os_error() {
            _ if is_full(e) => Self::Full,
            Some(libc::EMSGSIZE) => Self::Narrow,
            Some(libc::EADDRNOTAVAIL) => Self::Source,
            // Kernels and families differ in what a look-up of a route from an address that is not
            // ours gives.
            Some(libc::EINVAL | libc::ENETUNREACH) if !is_ours(m.local) => Self::Source,
            Some(libc::ENETUNREACH | libc::EHOSTUNREACH | libc::ENETDOWN) => Self::Route,
            _ => Self::Other,
        }
    }

    /// True when datagram `b` of the same message as `a` would be refused as `a` was.
    fn applies_to(self, a: &Outgoing, b: &Outgoing) -> bool {
        match self {
            Self::Source | Self::Route => true,
            Self::Narrow => b.len >= a.len && b.len > b.fragmentable,
            Self::Full | Self::Other => false,
        }
    }
}

/// The socket that a batch leaves by.
#[derive(Clone, Copy, Debug)]
pub enum Outlet<'a> {
    /// The kernel adds UDP and IP headers.
    Udp(&'a UdpSocket),
    /// The kernel adds an IP header.
    Raw(&'a RawSocket),
    /// Packets have their IP header already.
    Ip(&'a RawSocket),
}

impl Outlet<'_> {
    fn fd(&self) -> BorrowedFd<'_> {
        match self {
            Self::Udp(s) => s.as_fd(),
            Self::Raw(s) | Self::Ip(s) => s.as_fd(),
        }
    }

    /// Locks out sends of fragmentable datagrams by other threads, which change an option of the
    /// socket.
    fn unfragmented(&self) -> MutexGuard<'_, ()> {
        match self {
            Self::Udp(s) => s.unfragmented(),
            Self::Raw(s) | Self::Ip(s) => s.unfragmented(),
        }
    }

    /// Limits the errors of one call that may belong to earlier packets: raw IPv6 sockets report
    /// ICMP errors.
    fn stale_errors(&self) -> u32 {
        match self {
            Self::Raw(s) if s.is_ipv6() => MAX_STALE_ERRORS,
            _ => 0,
        }
    }

    /// Bytes of the headers that the kernel adds.
    fn header(&self, ipv6: bool) -> usize {
        let ip = if ipv6 { 40 } else { 20 };
        match self {
            Self::Udp(_) => ip + 8,
            Self::Raw(_) => ip,
            Self::Ip(_) => 0,
        }
    }

    fn max_segments(&self) -> usize {
        match self {
            Self::Udp(s) => s.max_segments(),
            Self::Raw(_) | Self::Ip(_) => 1,
        }
    }

    fn send_fragmentable(&self, m: &Outgoing, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Udp(s) => s.send_fragmentable(m.local, m.remote, m.tos, bytes),
            Self::Raw(s) => s.send_fragmentable(m.local, m.remote.ip(), m.tos, bytes),
            // The sender cuts such packets itself.
            Self::Ip(_) => Err(io::Error::from_raw_os_error(libc::EMSGSIZE)),
        }
    }
}

/// Sends batches. Each thread has one, with the headers that a system call needs, and with the
/// peers that refuse segmented sends.
#[derive(Debug)]
pub struct Sender {
    slots: SendSlots,
    pieces: Vec<Outgoing>,
    unsegmentable: Unsegmentable,
    narrow: Vec<IpAddr>,
    paths: RouteMtus,
    known: Arc<KnownPaths>,
    /// Peer and MTU of the path that this call has looked up last: neighbours in a list often go to
    /// one peer.
    last: Option<(IpAddr, usize)>,
    fragments: Fragments,
    stats: SendStats,
}

/// How a message has to be sent.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SendMethod {
    /// By one send, unchanged.
    Whole,
    /// One datagram at a time: the kernel does not segment it, or not into so many datagrams.
    Pieces,
    /// In IP fragments for this path MTU.
    Fragments(usize),
    /// Larger than the path MTU.
    TooLong,
    /// Not at all, for this reason.
    None(DropCause),
}

/// Scratch memory and counter for cutting packets into IP fragments.
#[derive(Debug, Default)]
struct Fragments {
    buf: Vec<u8>,
    ranges: Vec<std::ops::Range<usize>>,
    list: Vec<Outgoing>,
    /// Secret hash key. The identification of an IPv6 packet is the hash of `cut`, so that nobody
    /// can predict the next one from the last (RFC 7739).
    names: RandomState,
    cut: u64,
}

impl Default for Sender {
    fn default() -> Self {
        Self::new()
    }
}

impl Sender {
    /// A sender that knows no path MTUs.
    pub fn new() -> Self {
        Self::with_paths(Arc::default())
    }

    /// A sender that looks up path MTUs in `known`.
    pub fn with_paths(known: Arc<KnownPaths>) -> Self {
        Self {
            known,
            last: None,
            slots: SendSlots::new(BATCH),
            pieces: Vec::new(),
            unsegmentable: Unsegmentable::default(),
            narrow: Vec::new(),
            paths: RouteMtus::default(),
            fragments: Fragments::default(),
            stats: SendStats::default(),
        }
    }

    /// Counters since the start.
    pub fn stats(&self) -> SendStats {
        self.stats
    }

    /// The peers to which a packet was larger than the path MTU since the last call. The kernel's
    /// route look-up and [`KnownPaths`] know the new MTU.
    pub fn take_narrow(&mut self) -> Option<Vec<IpAddr>> {
        (!self.narrow.is_empty()).then(|| std::mem::take(&mut self.narrow))
    }

    /// Takes the next peer to which the kernel refuses segmented sends. Each is reported once: its
    /// packets go one by one, and segmentation is tried again rarely.
    pub fn take_unsegmentable(&mut self) -> Option<IpAddr> {
        self.unsegmentable.take_news()
    }

    /// Counts all of `list` as dropped, because there is no socket for it.
    pub fn count_refused(&mut self, list: &[Outgoing]) {
        self.stats.dropped_error += list.iter().map(|m| m.datagrams() as u64).sum::<u64>();
    }

    fn count_dropped(&mut self, why: DropCause, datagrams: usize) {
        let counter = match why {
            DropCause::Full => &mut self.stats.dropped_full,
            DropCause::Narrow => &mut self.stats.dropped_narrow,
            DropCause::Source => &mut self.stats.dropped_source,
            DropCause::Route => &mut self.stats.dropped_route,
            DropCause::Other => &mut self.stats.dropped_error,
        };
        *counter += datagrams as u64;
    }

    /// Sends `list`, in order, from `buf`. Every datagram is either taken by the kernel or counted
    /// as dropped.
    pub fn send(&mut self, outlet: Outlet<'_>, buf: &[u8], list: &[Outgoing]) {
        let mut rest = list;
        self.last = None;
        while let Some(first) = rest.first() {
            let run =
                rest.iter().position(|m| self.method(outlet, m) != SendMethod::Whole).unwrap_or(rest.len());
            if run == 0 {
                match self.method(outlet, first) {
                    SendMethod::Whole | SendMethod::Pieces => self.send_pieces(outlet, buf, first),
                    SendMethod::Fragments(mtu) => self.send_fragments(outlet, buf, first, mtu),
                    SendMethod::TooLong => {
                        self.report_too_long(outlet, buf, first);
                    }
                    SendMethod::None(why) => self.count_dropped(why, first.datagrams()),
                }
                rest = &rest[1..];
                continue;
            }
            match self.attempt(outlet, buf, &rest[..run]) {
                Ok(n) => rest = &rest[n.clamp(1, run)..],
                Err(e) => {
                    self.recover(outlet, buf, first, &e);
                    rest = &rest[1..];
                }
            }
        }
    }

    /// How to send `m`, by the path MTU and by what the kernel has refused before.
    fn method(&mut self, outlet: Outlet<'_>, m: &Outgoing) -> SendMethod {
        if let Outlet::Ip(socket) = outlet {
            // The kernel checks neither source nor MTU of packets that have their header.
            return match self.paths.get(socket.mark(), m.local, m.remote) {
                Ok(mtu) => match mtu.min(self.path_mtu(m.remote.ip())) {
                    mtu if m.len <= mtu => SendMethod::Whole,
                    mtu if m.len <= m.fragmentable => SendMethod::Fragments(mtu),
                    _ => SendMethod::TooLong,
                },
                Err(e) => SendMethod::None(DropCause::of_error(m, &e)),
            };
        }
        let unsegmented = m.is_segmented()
            && (m.datagrams() > outlet.max_segments() || self.unsegmentable.contains(m.remote.ip()));
        match self.fits(outlet, m) {
            true if unsegmented => SendMethod::Pieces,
            true => SendMethod::Whole,
            // The last datagram may be short enough.
            false if m.is_segmented() => SendMethod::Pieces,
            false => SendMethod::TooLong,
        }
    }

    /// Path MTU to `remote`; `usize::MAX` when none is known. Looked up once for neighbours of a
    /// list.
    fn path_mtu(&mut self, remote: IpAddr) -> usize {
        match self.last {
            Some((of, mtu)) if of == remote => mtu,
            _ => {
                let mtu = self.known.mtu(remote).map_or(usize::MAX, |mtu| mtu as usize);
                self.last = Some((remote, mtu));
                mtu
            }
        }
    }

    /// True when the datagrams of `m` are not larger than the known path MTU.
    fn fits(&mut self, outlet: Outlet<'_>, m: &Outgoing) -> bool {
        let largest = if m.is_segmented() { m.segment } else { m.len };
        largest + outlet.header(m.remote.is_ipv6()) <= self.path_mtu(m.remote.ip())
    }

    /// Sends `m` in fragments. AH covers the whole packet (RFC 4302 section 3.3.4).
    fn send_fragments(&mut self, outlet: Outlet<'_>, buf: &[u8], m: &Outgoing, mtu: usize) {
        let mut fragments = std::mem::take(&mut self.fragments);
        let Fragments { buf: pieces, ranges, list, names, cut } = &mut fragments;
        pieces.clear();
        ranges.clear();
        list.clear();
        *cut += 1;
        let id = names.hash_one(*cut) as u32;
        let packet = buf.get(m.offset..m.offset + m.len).unwrap_or(&[]);
        let mut sent = Err(io::Error::from_raw_os_error(libc::EMSGSIZE));
        if fragment::cut(packet, mtu, id, pieces, ranges) {
            list.extend(ranges.iter().map(|r| Outgoing { offset: r.start, len: r.len(), ..*m }));
            let before = self.stats;
            sent = self.send_all(outlet, pieces, list);
            // All these fragments are one datagram: count it once.
            self.stats = SendStats { calls: self.stats.calls, waits: self.stats.waits, ..before };
        }
        match sent {
            Ok(()) => {
                self.stats.fragmented += 1;
                self.stats.datagrams += 1;
                self.stats.messages += 1;
            }
            Err(e) => self.count_dropped(DropCause::of_error(m, &e), 1),
        }
        self.fragments = fragments;
    }

    /// Sends all of `list`, or up to the first that the kernel refuses.
    fn send_all(&mut self, outlet: Outlet<'_>, buf: &[u8], mut list: &[Outgoing]) -> io::Result<()> {
        while !list.is_empty() {
            let n = self.attempt(outlet, buf, list)?;
            list = &list[n.clamp(1, list.len())..];
        }
        Ok(())
    }

    /// Calls `sendmmsg`; calls it again after a signal, and after a short wait when the buffer is
    /// full.
    fn attempt(&mut self, outlet: Outlet<'_>, buf: &[u8], list: &[Outgoing]) -> io::Result<usize> {
        let ports = matches!(outlet, Outlet::Udp(_));
        let (mut tries, mut stale) = (0, 0);
        loop {
            self.stats.calls += 1;
            let held = outlet.unfragmented();
            let sent = self.slots.send(outlet.fd(), buf, list, ports);
            drop(held);
            match sent {
                Ok(n) => {
                    self.stats.messages += n as u64;
                    self.stats.datagrams += list[..n].iter().map(|m| m.datagrams() as u64).sum::<u64>();
                    if !self.unsegmentable.is_empty() {
                        self.note_segmented(&list[..n]);
                    }
                    return Ok(n);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                // The socket may report an ICMP error for an earlier packet here. Try again: this
                // one was not refused.
                Err(e) if stale < outlet.stale_errors() && !is_full(&e) => stale += 1,
                Err(e) if is_full(&e) && tries < MAX_WAITS => {
                    tries += 1;
                    self.stats.waits += 1;
                    wait_writable(outlet.fd(), ROOM_TIMEOUT);
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Notes that the kernel has accepted the segmented messages of `list`.
    #[cold]
    fn note_segmented(&mut self, list: &[Outgoing]) {
        for m in list.iter().filter(|m| m.is_segmented()) {
            self.unsegmentable.note_accepted(m.remote.ip());
        }
    }

    /// Sends `m`, which the kernel has refused with `e`, in another way. Returns the reason when it
    /// was dropped instead.
    fn recover(&mut self, outlet: Outlet<'_>, buf: &[u8], m: &Outgoing, e: &io::Error) -> Option<DropCause> {
        match e.raw_os_error() {
            // No checksum offload on the way out, so no segmentation: a property of the route.
            Some(libc::EIO) if m.is_segmented() => {
                self.unsegmentable.note_refused(m.remote.ip(), true);
                self.send_pieces(outlet, buf, m);
                None
            }
            // Segments are larger than the path MTU, which has just changed; or the socket cannot
            // segment.
            Some(code @ (libc::EMSGSIZE | libc::EINVAL | libc::EOPNOTSUPP)) if m.is_segmented() => {
                if code != libc::EMSGSIZE {
                    self.unsegmentable.note_refused(m.remote.ip(), false);
                }
                self.send_pieces(outlet, buf, m);
                None
            }
            Some(libc::EMSGSIZE) => self.report_too_long(outlet, buf, m),
            _ => {
                let why = DropCause::of_error(m, e);
                self.count_dropped(why, m.datagrams());
                Some(why)
            }
        }
    }

    /// Reports the peer of `m`, a datagram larger than link or path, and sends `m` in fragments
    /// where that is allowed. Returns the reason when it was dropped instead.
    fn report_too_long(&mut self, outlet: Outlet<'_>, buf: &[u8], m: &Outgoing) -> Option<DropCause> {
        if self.narrow.len() < MAX_NARROW && !self.narrow.contains(&m.remote.ip()) {
            self.narrow.push(m.remote.ip());
        }
        if m.len > m.fragmentable {
            self.count_dropped(DropCause::Narrow, 1);
            return Some(DropCause::Narrow);
        }
        let bytes = buf.get(m.offset..m.offset + m.len).unwrap_or(&[]);
        match outlet.send_fragmentable(m, bytes) {
            Ok(()) => {
                self.stats.fragmented += 1;
                self.stats.datagrams += 1;
                self.stats.messages += 1;
                None
            }
            Err(e) => {
                let why = DropCause::of_error(m, &e);
                self.count_dropped(why, 1);
                Some(why)
            }
        }
    }

    /// Sends the datagrams of `m` as messages of their own.
    fn send_pieces(&mut self, outlet: Outlet<'_>, buf: &[u8], m: &Outgoing) {
        if matches!(outlet, Outlet::Udp(_)) {
            self.stats.unsegmented += 1;
        }
        let mut pieces = std::mem::take(&mut self.pieces);
        pieces.clear();
        pieces.extend(m.split());
        self.unsegmentable.note_sent_in_pieces(m.remote.ip());
        let mut rest = &pieces[..];
        while let Some(first) = rest.first() {
            // All pieces go to one peer and all but the last have one size: all fit, or the last
            // alone does, or none.
            let fit = rest.iter().take_while(|m| self.fits(outlet, m)).count();
            let sent = match fit {
                0 => Err(io::Error::from_raw_os_error(libc::EMSGSIZE)),
                _ => self.attempt(outlet, buf, &rest[..fit]),
            };
            match sent {
                Ok(n) => rest = &rest[n.clamp(1, fit)..],
                Err(e) => {
                    rest = &rest[1..];
                    if let Some(why) = self.recover(outlet, buf, first, &e) {
                        let same = rest.iter().take_while(|m| why.applies_to(first, m)).count();
                        self.count_dropped(why, same);
                        rest = &rest[same..];
                    }
                }
            }
        }
        self.pieces = pieces;
    }
}

/// True when an address belongs to this machine: a socket can be bound to it.
#[cold]
fn is_ours(address: IpAddr) -> bool {
    address.is_unspecified() || std::net::UdpSocket::bind((address, 0)).is_ok()
}
