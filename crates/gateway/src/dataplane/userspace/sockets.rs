//! Sockets of the data plane: UDP for IKE and for ESP in UDP, raw ones for ESP and AH, each for
//! both IP versions. Numbers their descriptors for the poller, and sends IKE messages.

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ironswan_ike::event::{Cut, Level};
use ironswan_io::Error as IoError;
use ironswan_io::poller::Waker;
use ironswan_io::raw::{RawSocket, WITH_HEADER};
use ironswan_io::tun::Tun;
use ironswan_io::udp::{UdpConfig, UdpSocket};
use ironswan_wire::ip::protocol;

use super::asked::Asked;
use super::config::WorkersConfig;
use super::xdp::Xdp;
use crate::observe::log;
use ironswan_config::tuning::Tuning;

/// A socket of each family. IPv6 may be missing from the kernel.
#[derive(Debug)]
pub(super) struct Pair<S> {
    v4: Option<S>,
    v6: Option<S>,
}

impl<S> Pair<S> {
    /// Opens both; that a family does not exist is no error as long as one does.
    pub(super) fn open(make: impl Fn(bool) -> Result<S, IoError>) -> Result<Self, IoError> {
        let optional = |r: Result<S, IoError>| match r {
            Ok(s) => Ok(Some(s)),
            Err(IoError::NoFamily { .. }) => Ok(None),
            Err(e) => Err(e),
        };
        let pair = Self { v4: optional(make(false))?, v6: optional(make(true))? };
        match pair.v4.is_none() && pair.v6.is_none() {
            true => Err(IoError::NoFamily { ipv6: false }),
            false => Ok(pair),
        }
    }

    pub(super) fn get(&self, ipv6: bool) -> Option<&S> {
        if ipv6 { self.v6.as_ref() } else { self.v4.as_ref() }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &S> {
        self.v4.iter().chain(&self.v6)
    }
}

/// All sockets, shared by the workers and those who send IKE messages.
#[derive(Debug)]
pub(super) struct Sockets {
    pub(super) natt: Pair<UdpSocket>,
    pub(super) ike: Pair<UdpSocket>,
    pub(super) raw: Pair<RawSocket>,
    /// AH is received here,
    pub(super) ah: Pair<RawSocket>,
    /// and sent here: what has its IP header already.
    pub(super) ip: Pair<RawSocket>,
    /// ESP past the kernel's stack, where that is asked for.
    pub(super) xdp: Arc<Xdp>,
    /// Let the kernel learn path MTUs from errors about AH.
    _errors: Vec<RawSocket>,
    /// IKE messages that found no buffer space.
    pub(super) ike_full: AtomicU64,
    /// Requests of IKE that were sent last.
    pub(super) asked: Asked,
}

impl Sockets {
    pub(super) fn open(config: &WorkersConfig) -> Result<Self, IoError> {
        let (mark, ike_port, natt_port) = (config.mark, config.ike_port, config.natt_port);
        let Tuning { socket_buffer: buffer, gso, gro, busy_poll, .. } = config.tuning;
        let esp = |ipv6| UdpConfig { buffer, gso, gro, busy_poll, ..UdpConfig::esp(ipv6, natt_port, mark) };
        let raw = |protocol| match config.raw_esp {
            true => Pair::open(|ipv6| RawSocket::open(ipv6, protocol, mark, buffer)),
            false => Ok(Pair { v4: None, v6: None }),
        };
        let ah = raw(protocol::AH)?;
        let inner = if ah.v6.is_some() { &[protocol::IPV4, protocol::IPV6][..] } else { &[] };
        let (xdp, unused) = Xdp::open(&config.tuning.xdp, natt_port, config.raw_esp);
        unused.iter().for_each(|unused| log::diagnosis(Level::Warn, None, unused));
        Ok(Self {
            natt: Pair::open(|ipv6| UdpSocket::bind(esp(ipv6)))?,
            ike: Pair::open(|ipv6| UdpSocket::bind(UdpConfig::ike(ipv6, ike_port, mark)))?,
            raw: raw(protocol::ESP)?,
            ah,
            ip: raw(WITH_HEADER)?,
            xdp: Arc::new(xdp),
            _errors: inner.iter().map(|p| RawSocket::for_errors(*p, mark)).collect::<Result<_, _>>()?,
            ike_full: AtomicU64::new(0),
            asked: Asked::new(natt_port),
        })
    }

    /// The raw socket of this number.
    pub(super) fn raw_of(&self, source: u64) -> Option<&RawSocket> {
        let ipv6 = source & token::V6 != 0;
        match source & !token::V6 {
            token::RAW => self.raw.get(ipv6),
            token::AH => self.ah.get(ipv6),
            _ => None,
        }
    }

    /// The UDP socket of this number.
    pub(super) fn udp_of(&self, source: u64) -> Option<&UdpSocket> {
        let ipv6 = source & token::V6 != 0;
        match source & !token::V6 {
            token::NATT => self.natt.get(ipv6),
            token::IKE => self.ike.get(ipv6),
            _ => None,
        }
    }
}

/// Sends IKE messages. Can be cloned and used from any thread.
#[derive(Clone, Debug)]
pub struct IkeSender {
    pub(super) sockets: Arc<Sockets>,
}

impl IkeSender {
    /// Sends one message from the port and address of `local` (an unspecified address leaves the
    /// choice to the routing table); `payload` has the non-ESP marker where one is due. Never
    /// waits: a message that finds no buffer space is dropped and counted, as one that is lost on
    /// its way, and comes again like it.
    ///
    /// # Errors
    /// The error of the kernel, and `NotConnected` when `local` has a port that is not ours or the
    /// family does not exist.
    pub fn send(
        &self,
        (local, remote): (SocketAddr, SocketAddr),
        dscp: u8,
        payload: &[u8],
        cut: Cut,
    ) -> std::io::Result<()> {
        let pairs = [&self.sockets.natt, &self.sockets.ike];
        let socket = pairs
            .into_iter()
            .filter_map(|p| p.get(remote.is_ipv6()))
            .find(|s| s.port() == local.port())
            .ok_or(std::io::ErrorKind::NotConnected)?;
        let from = if local.is_ipv6() == remote.is_ipv6() {
            local.ip()
        } else {
            match remote {
                SocketAddr::V4(_) => std::net::Ipv4Addr::UNSPECIFIED.into(),
                SocketAddr::V6(_) => std::net::Ipv6Addr::UNSPECIFIED.into(),
            }
        };
        self.sockets.asked.note(local.port(), remote, payload);
        let tos = dscp << 2;
        let sent = match cut {
            // RFC 7296 section 2 lets IP fragment IKE messages; only IKE fragmentation (RFC 7383)
            // avoids it.
            Cut::Allowed => socket.send_fragmentable_now(from, remote, tos, payload),
            Cut::Forbidden => socket.send_unfragmented_now(from, remote, tos, payload),
        };
        match sent {
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                self.sockets.ike_full.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            sent => sent,
        }
    }
}

/// The poller's numbers of the descriptors.
pub(super) mod token {
    pub(in crate::dataplane::userspace) const STOP: u64 = 0;
    pub(in crate::dataplane::userspace) const TUN: u64 = 1;
    pub(in crate::dataplane::userspace) const NATT: u64 = 2;
    pub(in crate::dataplane::userspace) const IKE: u64 = 4;
    pub(in crate::dataplane::userspace) const RAW: u64 = 6;
    pub(in crate::dataplane::userspace) const AH: u64 = 8;
    /// And more: what receives through `AF_XDP`.
    pub(in crate::dataplane::userspace) const XDP: u64 = 1 << 16;
    /// Added to a socket's number for IPv6.
    pub(in crate::dataplane::userspace) const V6: u64 = 1;
}

/// Every descriptor with its number.
pub(super) fn sources<'a>(
    tun: &'a Tun,
    sockets: &'a Sockets,
    waker: &'a Waker,
) -> impl Iterator<Item = (std::os::fd::BorrowedFd<'a>, u64)> {
    let udp = |pair: &'a Pair<UdpSocket>, token: u64| {
        pair.iter().map(move |s| (s.as_fd(), token + if s.is_ipv6() { token::V6 } else { 0 }))
    };
    let raw = |pair: &'a Pair<RawSocket>, token: u64| {
        pair.iter().map(move |s| (s.as_fd(), token + if s.is_ipv6() { token::V6 } else { 0 }))
    };
    [(waker.as_fd(), token::STOP), (tun.as_fd(), token::TUN)]
        .into_iter()
        .chain(udp(&sockets.natt, token::NATT))
        .chain(udp(&sockets.ike, token::IKE))
        .chain(raw(&sockets.raw, token::RAW))
        .chain(raw(&sockets.ah, token::AH))
}
