//! Notices of change: addresses that come and go (MOBIKE), routes and rules that someone flushes.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, RawFd};
use std::time::Duration;

use netlink_packet_core::{NetlinkMessage, NetlinkPayload};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use rustix::net::sockopt::set_socket_recv_buffer_size_force;

use super::netlink::split;
use super::{Route, TABLE};
use crate::error::Error;
use crate::ingress::tc;
use crate::sockopt;

/// Kinds of objects that have changed since the last look. The details have to be asked from
/// [`super::Netlink`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct NetworkChange {
    /// Interfaces.
    pub links: bool,
    /// Addresses.
    pub addresses: bool,
    /// Routes of tables other than 220.
    pub routes: bool,
    /// Rules.
    pub rules: bool,
    /// Routes of table 220. Most of these changes are our own.
    pub table: bool,
    /// The filters of [`crate::ingress`], and what holds them.
    pub filters: bool,
}

impl NetworkChange {
    /// Nothing.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Receive buffer in bytes: notices of some ten thousand routes may wait in it.
const BUFFER: usize = 8 << 20;

/// `RTM_NEWQDISC` to `RTM_GETTFILTER` (linux/rtnetlink.h).
const TRAFFIC_CONTROL: std::ops::RangeInclusive<u16> = 36..=46;
/// Interfaces and their addresses.
const LINKS: [u32; 3] = [libc::RTNLGRP_LINK, libc::RTNLGRP_IPV4_IFADDR, libc::RTNLGRP_IPV6_IFADDR];

/// Listens for changes. Can be waited for with a poller.
#[derive(Debug)]
pub struct Watch {
    socket: Socket,
    /// Netlink address of our own socket, whose changes of rules and of table 220 are not reported.
    own_routing_port: Option<u32>,
    /// Netlink address of our own socket, whose changes of filters are not reported.
    own_filters_port: Option<u32>,
}

impl Watch {
    /// Starts to listen.
    ///
    /// # Errors
    /// When the kernel has no rtnetlink, or no descriptors are left.
    pub fn open() -> Result<Self, Error> {
        let routing = [
            libc::RTNLGRP_IPV4_ROUTE,
            libc::RTNLGRP_IPV6_ROUTE,
            libc::RTNLGRP_IPV4_RULE,
            libc::RTNLGRP_IPV6_RULE,
            libc::RTNLGRP_TC,
        ];
        Self::listen(&[&LINKS[..], &routing[..]].concat())
    }

    /// Starts to listen to interfaces and addresses only.
    ///
    /// # Errors
    /// As [`Self::open`].
    pub fn links_and_addresses() -> Result<Self, Error> {
        Self::listen(&LINKS)
    }

    fn listen(groups: &[u32]) -> Result<Self, Error> {
        let open = || {
            let mut socket = Socket::new(NETLINK_ROUTE)?;
            socket.bind(&SocketAddr::new(0, 0))?;
            socket.set_non_blocking(true)?;
            for group in groups {
                socket.add_membership(*group)?;
            }
            // Without the privilege the usual size has to do: what is lost counts as everything.
            let _ = set_socket_recv_buffer_size_force(&socket, BUFFER);
            Ok(socket)
        };
        open()
            .map(|socket| Self { socket, own_routing_port: None, own_filters_port: None })
            .map_err(|source| Error::System { what: "listening to netlink", source })
    }

    /// Leaves out changes of rules and of routes of table 220 that our own socket makes. `port`:
    /// its netlink address ([`super::Netlink::port`]).
    #[must_use]
    pub fn ignore_own_routing(self, port: u32) -> Self {
        // Thousands of tunnels that come up would wake the listener thousands of times for nothing.
        // `note` leaves out notices that came before this filter was set.
        let _ = sockopt::filter(self.socket.as_fd(), &mut ignoring_filter(port));
        Self { own_routing_port: Some(port), ..self }
    }

    /// Leaves out changes of filters that our own socket makes. `port`: its netlink address
    /// ([`crate::ingress::Ingress::port`]).
    #[must_use]
    pub fn ignore_own_filters(self, port: u32) -> Self {
        Self { own_filters_port: Some(port), ..self }
    }

    /// Reads all waiting notices, and returns the kinds that have changed. Does not wait. When
    /// notices were lost, because the buffer was full, every kind counts as changed.
    pub fn take(&self) -> NetworkChange {
        let mut change = NetworkChange::default();
        loop {
            match self.socket.recv_from_full() {
                Ok((bytes, _)) => split(&bytes).for_each(|m| self.note(m, &mut change)),
                Err(e) if e.raw_os_error() == Some(libc::ENOBUFS) => {
                    change = NetworkChange {
                        links: true,
                        addresses: true,
                        routes: true,
                        rules: true,
                        table: true,
                        filters: true,
                    };
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(_) => return change,
            }
        }
    }

    /// Waits for a change, at most `timeout`.
    pub fn wait(&self, timeout: Duration) -> NetworkChange {
        let timeout = rustix::event::Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        let fd = self.as_fd();
        let mut set = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::IN)];
        let _ = rustix::event::poll(&mut set, Some(&timeout));
        self.take()
    }

    /// Adds the kind of one notice to `change`. The parser understands all kinds that matter here.
    fn note(&self, message: &[u8], change: &mut NetworkChange) {
        let kind = message.get(4..).and_then(|m| m.first_chunk()).map(|k| u16::from_ne_bytes(*k));
        if let Some(kind) = kind.filter(|k| TRAFFIC_CONTROL.contains(k)) {
            // The parser may not know all attributes of these notices.
            change.filters |= is_own_filter(message, kind, self.own_filters_port);
            return;
        }
        let Ok(message) = NetlinkMessage::<RouteNetlinkMessage>::deserialize(message) else { return };
        let known = self.own_routing_port == Some(message.header.port_number);
        let NetlinkPayload::InnerMessage(message) = message.payload else { return };
        match message {
            RouteNetlinkMessage::NewLink(_) | RouteNetlinkMessage::DelLink(_) => change.links = true,
            RouteNetlinkMessage::NewAddress(_) | RouteNetlinkMessage::DelAddress(_) => {
                change.addresses = true
            }
            RouteNetlinkMessage::NewRoute(m) | RouteNetlinkMessage::DelRoute(m) => {
                let ours = Route::from_message(&m).table == TABLE;
                change.table |= ours && !known;
                change.routes |= !ours;
            }
            RouteNetlinkMessage::NewRule(_) | RouteNetlinkMessage::DelRule(_) => change.rules |= !known,
            _ => {}
        }
    }
}

/// A socket filter that drops the notices of rules and of table 220 that the socket with this
/// address has caused.
fn ignoring_filter(port: u32) -> [libc::sock_filter; 11] {
    let load = |code: u16, at: u32| libc::sock_filter { code, jt: 0, jf: 0, k: at };
    let equal = |value: u32, yes: u8, no: u8| libc::sock_filter { code: 0x15, jt: yes, jf: no, k: value };
    let end = |bytes: u32| libc::sock_filter { code: 0x06, jt: 0, jf: 0, k: bytes };
    // Loads are of the network's order, the header is of this machine's.
    let kind = |kind: u16| u32::from(u16::from_be_bytes(kind.to_ne_bytes()));
    let (word, half, byte) = (0x20, 0x28, 0x30);
    [
        // nlmsg_pid, nlmsg_type, rtm_table.
        load(word, 12),
        equal(u32::from_be_bytes(port.to_ne_bytes()), 0, 7),
        load(half, 4),
        equal(kind(libc::RTM_NEWRULE), 6, 0),
        equal(kind(libc::RTM_DELRULE), 5, 0),
        equal(kind(libc::RTM_NEWROUTE), 1, 0),
        equal(kind(libc::RTM_DELROUTE), 0, 2),
        load(byte, 20),
        equal(TABLE, 1, 0),
        end(u32::MAX),
        end(0),
    ]
}

/// Whether a notice of traffic control is of our filter at some ingress, or of what holds it.
/// Shapers change queueing disciplines several times a second, which is nothing to look at.
fn is_own_filter(message: &[u8], kind: u16, own_port: Option<u32>) -> bool {
    let number = |at: usize| Some(u32::from_ne_bytes(*message.get(at..)?.first_chunk()?));
    // nlmsg_pid; then tcm_handle, tcm_parent, tcm_info behind 16 bytes of header.
    let (by, handle, parent, info) = (number(12), number(24), number(28), number(32));
    match kind {
        tc::NEW_FILTER | tc::DELETE_FILTER => {
            let preference = info.map(|i| i >> 16);
            // Who asks for an `ingress` may name it by any number of the handle.
            parent.is_some_and(|p| p >> 16 == tc::CLSACT_HANDLE >> 16 && p != tc::EGRESS)
                && preference == Some(tc::PREFERENCE.into())
                && (own_port.is_none() || by != own_port)
        }
        tc::DELETE_QDISC => handle == Some(tc::CLSACT_HANDLE) && (own_port.is_none() || by != own_port),
        _ => false,
    }
}

impl AsFd for Watch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

impl AsRawFd for Watch {
    fn as_raw_fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }
}
