//! UDP sockets for IKE and for ESP in UDP (RFC 3948): wildcard address, one family each, every
//! datagram with our own address. On output the kernel cuts buffers into datagrams (`UDP_SEGMENT`),
//! on input it merges them (`UDP_GRO`).
//!
//! UDP checksums are sent: segmentation needs them, and a zero checksum defeats the peer's merging.
//! Received zero checksums are accepted, since RFC 3948 section 2.1 asks peers to send them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use ironswan_wire::helper::Request;

use crate::error::Error;
use crate::helper::client;
use crate::mmsg::{Outgoing, SendSlots};
use crate::{sockaddr, sockopt};

/// Largest UDP payload over IPv4 without options: 65,535 less both headers. More than this in one
/// send is refused.
pub const MAX_PAYLOAD: usize = 65_507;

/// linux/udp.h
const UDP_NO_CHECK6_RX: i32 = 102;
/// asm-generic/socket.h
const SO_MEMINFO: i32 = 55;

/// How to make a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UdpConfig {
    /// IPv6 only, or IPv4.
    pub ipv6: bool,
    /// Local port; 0 lets the kernel choose.
    pub port: u16,
    /// Mark on what is sent, so that it can be routed past what it carries; 0 for none.
    pub mark: u32,
    /// Let the kernel cut what is sent, where it can.
    pub gso: bool,
    /// Merge what is received, where the kernel can.
    pub gro: bool,
    /// Forbid fragmentation of what is sent. [`UdpSocket::send_fragmentable`] excepts single
    /// datagrams.
    pub dont_fragment: bool,
    /// Bytes of socket buffer, each way.
    pub buffer: u32,
    /// Share the port with other sockets that do (`SO_REUSEPORT`): the kernel gives each datagram
    /// of a flow to the same of them.
    pub shared: bool,
    /// How long a read that finds nothing polls the network card (`SO_BUSY_POLL`); zero does not.
    pub busy_poll: Duration,
}

impl UdpConfig {
    /// For a port that carries ESP in UDP: merged, unfragmented, with buffers for a burst.
    pub fn esp(ipv6: bool, port: u16, mark: u32) -> Self {
        Self { gso: true, gro: true, dont_fragment: true, buffer: 2 << 20, ..Self::ike(ipv6, port, mark) }
    }

    /// For a port that carries IKE only.
    pub fn ike(ipv6: bool, port: u16, mark: u32) -> Self {
        let (buffer, busy_poll) = (4 << 20, Duration::ZERO);
        Self {
            ipv6,
            port,
            mark,
            gso: false,
            gro: false,
            dont_fragment: false,
            buffer,
            shared: false,
            busy_poll,
        }
    }
}

/// A bound socket. It can be shared by threads.
#[derive(Debug)]
pub struct UdpSocket {
    fd: OwnedFd,
    config: UdpConfig,
    port: u16,
    max_segments: usize,
    merging: bool,
    /// Held while fragmentation is allowed or forbidden for one datagram, and while datagrams are
    /// sent for which it must not be.
    fragmenting: Mutex<()>,
}

impl UdpSocket {
    /// Binds the wildcard address.
    ///
    /// # Errors
    /// [`Error::PortInUse`], [`Error::NoFamily`], [`Error::Privilege`].
    pub fn bind(config: UdpConfig) -> Result<Self, Error> {
        let domain = if config.ipv6 { Domain::IPV6 } else { Domain::IPV4 };
        let socket = Socket::new(domain, Type::DGRAM.nonblocking().cloexec(), Some(Protocol::UDP)).map_err(
            |e| match e.raw_os_error() {
                Some(libc::EAFNOSUPPORT) => Error::NoFamily { ipv6: config.ipv6 },
                _ => Error::system("creating a UDP socket", e),
            },
        )?;
        if config.ipv6 {
            socket.set_only_v6(true).map_err(|e| Error::system("setting IPV6_V6ONLY", e))?;
        }
        let fd = OwnedFd::from(socket);
        common_options(fd.as_fd(), config.ipv6, config.mark, config.buffer)?;
        // Older kernels (before 5.0) have none; they deliver datagrams one by one.
        let merging = config.gro && sockopt::set(fd.as_fd(), libc::SOL_UDP, libc::UDP_GRO, 1).is_ok();
        sockopt::busy_poll(fd.as_fd(), config.busy_poll);
        if config.ipv6 {
            // The checksum is mandatory in IPv6 but for tunnels (RFC 6935); a peer may follow RFC
            // 3948 here too.
            let _ = sockopt::set(fd.as_fd(), libc::SOL_UDP, UDP_NO_CHECK6_RX, 1);
        }
        set_dont_fragment(fd.as_fd(), config.ipv6, config.dont_fragment)
            .map_err(|e| Error::system("setting IP_MTU_DISCOVER", e))?;
        if config.shared {
            sockopt::set(fd.as_fd(), libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)
                .map_err(|e| Error::system("setting SO_REUSEPORT", e))?;
        }
        bind_port(fd.as_fd(), config.ipv6, config.port).map_err(|e| match e.raw_os_error() {
            Some(libc::EADDRINUSE) => Error::PortInUse { port: config.port, ipv6: config.ipv6 },
            Some(libc::EADDRNOTAVAIL) if config.ipv6 => Error::NoFamily { ipv6: true },
            _ => Error::system("binding a UDP port", e),
        })?;
        let port = rustix::net::getsockname(&fd)
            .ok()
            .and_then(|a| SocketAddr::try_from(a).ok())
            .map_or(config.port, |a| a.port());
        let max_segments = if config.gso { probe_max_segments() } else { 1 };
        Ok(Self { fd, config, port, max_segments, merging, fragmenting: Mutex::new(()) })
    }

    /// Local port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// IPv6 or IPv4.
    pub fn is_ipv6(&self) -> bool {
        self.config.ipv6
    }

    /// How many datagrams the kernel cuts one send into at most: 1 (cannot, or is not to), 64 or
    /// 128.
    pub fn max_segments(&self) -> usize {
        self.max_segments
    }

    /// Whether the kernel merges what is received.
    pub fn is_merging(&self) -> bool {
        self.merging
    }

    /// Bytes of receive and send buffer that were granted.
    pub fn buffers(&self) -> [u32; 2] {
        sockopt::granted_buffers(self.fd.as_fd())
    }

    /// Whether what is sent must not be fragmented.
    pub fn dont_fragment(&self) -> bool {
        self.config.dont_fragment
    }

    /// Sends one datagram that may be fragmented on its way: an IKE message, or an ESP packet whose
    /// inner packet nobody makes smaller. An unspecified `local` leaves the source to the routing
    /// table. Waits a moment for buffer space.
    ///
    /// # Errors
    /// The error that the kernel returned.
    pub fn send_fragmentable(
        &self,
        local: IpAddr,
        remote: SocketAddr,
        tos: u8,
        payload: &[u8],
    ) -> io::Result<()> {
        let m = Outgoing::single(payload.len(), local, remote, tos);
        let _held = self.allowing();
        send_one(self.fd.as_fd(), self.config.ipv6, self.lock(), payload, m, true)
    }

    /// The same without waiting: for a thread that has other things to do and a sender that repeats
    /// what is lost.
    ///
    /// # Errors
    /// The error that the kernel returned; `WouldBlock` when there is no buffer space, or the
    /// device's queue is full.
    pub fn send_fragmentable_now(
        &self,
        local: IpAddr,
        remote: SocketAddr,
        tos: u8,
        payload: &[u8],
    ) -> io::Result<()> {
        let m = Outgoing::single(payload.len(), local, remote, tos);
        let _held = self.allowing();
        send_one_now(self.fd.as_fd(), self.config.ipv6, self.lock(), payload, m, true)
    }

    /// The same for a datagram that must not be fragmented: with DF over IPv4, whatever the kernel
    /// believes of the path.
    ///
    /// # Errors
    /// The same, and `EMSGSIZE` when the link is too narrow.
    pub fn send_unfragmented_now(
        &self,
        local: IpAddr,
        remote: SocketAddr,
        tos: u8,
        payload: &[u8],
    ) -> io::Result<()> {
        let m = Outgoing::single(payload.len(), local, remote, tos);
        let (fd, ipv6, forbids) = (self.fd.as_fd(), self.config.ipv6, self.config.dont_fragment);
        let _held = self.unfragmented();
        if !forbids {
            set_dont_fragment(fd, ipv6, true)?;
        }
        let sent = send_one_now(fd, ipv6, None, payload, m, true);
        if !forbids {
            set_dont_fragment(fd, ipv6, false)?;
        }
        sent
    }

    /// The lock to hold while a datagram that may be fragmented is sent from a socket whose other
    /// datagrams must not be.
    fn lock(&self) -> Option<&Mutex<()>> {
        self.config.dont_fragment.then_some(&self.fragmenting)
    }

    /// Keeps others from forbidding fragmentation for a datagram of theirs, on a socket that allows
    /// it.
    fn allowing(&self) -> Option<MutexGuard<'_, ()>> {
        (!self.config.dont_fragment).then(|| self.unfragmented())
    }

    /// Keeps the socket's option of fragmentation as it is, as long as the guard is held.
    pub(crate) fn unfragmented(&self) -> MutexGuard<'_, ()> {
        hold(&self.fragmenting)
    }

    /// Datagrams that the kernel dropped because the receive buffer was full, since the socket was
    /// made.
    pub fn drops(&self) -> u64 {
        receive_drops(self.fd.as_fd())
    }
}

impl AsFd for UdpSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

/// Binds the wildcard address, by the helper where this process may not.
fn bind_port(fd: BorrowedFd<'_>, ipv6: bool, port: u16) -> io::Result<()> {
    let bound = rustix::net::bind(fd, &SocketAddr::new(sockaddr::any(ipv6), port));
    match (bound, client::get()) {
        // Ports below 1024 need CAP_NET_BIND_SERVICE.
        (Err(rustix::io::Errno::ACCESS), Some(helper)) => {
            helper.order_on(&Request::BindUdp { ipv6, port }, &[fd])
        }
        (bound, _) => Ok(bound?),
    }
}

/// For the helper: binds a UDP socket to a port of all addresses.
///
/// # Errors
/// The kernel refuses, or the descriptor is of no UDP socket.
pub fn serve_bind(fd: BorrowedFd<'_>, ipv6: bool, port: u16) -> io::Result<()> {
    let family = if ipv6 { rustix::net::AddressFamily::INET6 } else { rustix::net::AddressFamily::INET };
    let fits = rustix::net::sockopt::socket_domain(fd)? == family
        && rustix::net::sockopt::socket_type(fd)? == rustix::net::SocketType::DGRAM;
    if fits { bind_port(fd, ipv6, port) } else { Err(io::ErrorKind::InvalidInput.into()) }
}

/// Sets the options that UDP and raw sockets share: mark, buffers, and for each packet our address
/// and the TOS byte.
pub(crate) fn common_options(fd: BorrowedFd<'_>, ipv6: bool, mark: u32, buffer: u32) -> Result<(), Error> {
    let option =
        |what, level, name, value| sockopt::set(fd, level, name, value).map_err(|e| Error::system(what, e));
    if ipv6 {
        option("setting IPV6_RECVPKTINFO", libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?;
        option("setting IPV6_RECVTCLASS", libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS, 1)?;
    } else {
        option("setting IP_PKTINFO", libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?;
        option("setting IP_RECVTOS", libc::IPPROTO_IP, libc::IP_RECVTOS, 1)?;
    }
    if mark != 0 {
        option("setting SO_MARK on a socket", libc::SOL_SOCKET, libc::SO_MARK, mark.cast_signed())?;
    }
    sockopt::buffers(fd, i32::try_from(buffer).unwrap_or(i32::MAX))
        .map_err(|e| Error::system("setting socket buffers", e))
}

/// DF on (and nothing larger than the link's MTU; what the kernel has learned of the path does not
/// count, see [`crate::known`]), or off.
pub(crate) fn set_dont_fragment(fd: BorrowedFd<'_>, ipv6: bool, on: bool) -> io::Result<()> {
    if ipv6 {
        let value = if on { libc::IPV6_PMTUDISC_PROBE } else { libc::IPV6_PMTUDISC_DONT };
        sockopt::set(fd, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, value)
    } else {
        let value = if on { libc::IP_PMTUDISC_PROBE } else { libc::IP_PMTUDISC_DONT };
        sockopt::set(fd, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, value)
    }
}

pub(crate) fn hold<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

/// One datagram that may be fragmented, with a short wait for buffer space. `lock` is that of a
/// socket which forbids it otherwise: there is no such option for one datagram alone, and nobody
/// else's must slip out meanwhile.
pub(crate) fn send_one(
    fd: BorrowedFd<'_>,
    ipv6: bool,
    lock: Option<&Mutex<()>>,
    payload: &[u8],
    m: Outgoing,
    ports: bool,
) -> io::Result<()> {
    for _ in 0..4 {
        match try_one(fd, ipv6, lock, payload, m, ports) {
            Ok(()) => return Ok(()),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => wait_writable(fd, Duration::from_millis(5)),
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Err(io::ErrorKind::WouldBlock.into())
}

/// [`send_one`] without the wait.
fn send_one_now(
    fd: BorrowedFd<'_>,
    ipv6: bool,
    lock: Option<&Mutex<()>>,
    payload: &[u8],
    m: Outgoing,
    ports: bool,
) -> io::Result<()> {
    loop {
        match try_one(fd, ipv6, lock, payload, m, ports) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if is_full(&e) => return Err(io::ErrorKind::WouldBlock.into()),
            sent => return sent,
        }
    }
}

/// One attempt of either.
fn try_one(
    fd: BorrowedFd<'_>,
    ipv6: bool,
    lock: Option<&Mutex<()>>,
    payload: &[u8],
    m: Outgoing,
    ports: bool,
) -> io::Result<()> {
    let mut slots = SendSlots::new(1);
    let sent = match lock {
        None => slots.send(fd, payload, &[m], ports),
        Some(lock) => {
            let _held = hold(lock);
            set_dont_fragment(fd, ipv6, false)?;
            let sent = slots.send(fd, payload, &[m], ports);
            set_dont_fragment(fd, ipv6, true)?;
            sent
        }
    };
    sent.map(|_| ())
}

/// Waits until there is buffer space, or `at_most`.
pub(crate) fn wait_writable(fd: BorrowedFd<'_>, at_most: Duration) {
    let timeout = rustix::event::Timespec { tv_sec: 0, tv_nsec: i64::from(at_most.subsec_nanos()) };
    let mut set = [rustix::event::PollFd::new(&fd, rustix::event::PollFlags::OUT)];
    // Whether it became writable or not, the caller tries again and counts.
    let _ = rustix::event::poll(&mut set, Some(&timeout));
}

/// SO_MEMINFO: nine counters, the last one is drops. 0 where the kernel does not say (before 4.12).
pub(crate) fn receive_drops(fd: BorrowedFd<'_>) -> u64 {
    u64::from(sockopt::get_words::<9>(fd, libc::SOL_SOCKET, SO_MEMINFO).map_or(0, |w| w[8]))
}

/// Tries on a socket of its own, over loopback, what the kernel takes: UDP_MAX_SEGMENTS was 64
/// until Linux 6.9 and is 128 now. Where loopback cannot be used, only the option is tried, and the
/// lower limit taken.
fn probe_max_segments() -> usize {
    let Ok(socket) = std::net::UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)) else {
        let known = Socket::new(Domain::IPV4, Type::DGRAM, None)
            .is_ok_and(|s| sockopt::set(s.as_fd(), libc::SOL_UDP, libc::UDP_SEGMENT, 1).is_ok());
        return if known { 64 } else { 1 };
    };
    let Ok(remote) = socket.local_addr() else { return 1 };
    let mut slots = SendSlots::new(1);
    let mut takes = |n: usize| {
        let local = Ipv4Addr::UNSPECIFIED.into();
        let m = Outgoing { segment: 1, ..Outgoing::single(n, local, remote, 0) };
        slots.send(socket.as_fd(), &[0; 128], &[m], true)
    };
    let refused = |e: &io::Error| matches!(e.raw_os_error(), Some(libc::EINVAL | libc::EMSGSIZE));
    match takes(128) {
        Ok(_) => 128,
        Err(e) if refused(&e) && takes(64).is_err() => 1,
        // The old limit, or loopback is down in this namespace.
        Err(_) => 64,
    }
}

/// No room in the socket's buffer, or in the queue of the device.
pub(crate) fn is_full(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS))
}
