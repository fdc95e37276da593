//! The data plane: threads that move packets between the TUN device, the sockets and the packet engine.
//!
//! ```text
//! TUN ──read──▶ outbound ──▶ seal ──▶ UDP 4500 (UDP_SEGMENT), raw ESP, with IP header (AH)
//! TUN ◀─writev── inbound ◀── demux ◀── UDP 4500 (UDP_GRO), raw ESP, raw AH
//!                              └─ IKE ─▶ control plane ◀─ UDP 500
//! ```
//!
//! The first worker has one epoll loop, level-triggered: every descriptor that is ready gets one bounded turn a round, so
//! neither direction starves the other, and an idle gateway sleeps (an SA that sends dummy packets is never idle). When that
//! leaves a backlog, others help (`lanes`). The engine works in place on buffers that belong to a batch; memory that is
//! never used is never resident. Nothing is global.
//!
//! Not here: what a packet means (`ironswan-ipsec`), what a kernel object does (`ironswan-io`), the guard.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `crew` | the workers beside the first |
//! | `icmp` | the thread that receives ICMP errors |
//! | `inbound` | from the sockets to the TUN device |
//! | `install` | SADB messages to the engine, routes of the device to the kernel |
//! | `lanes` | a direction's lock, tickets and batches |
//! | `memory` | the loop over memory, for tests and benches |
//! | `napi` | which interfaces kernel threads poll |
//! | `offloads` | which offloads the kernel granted, and which it withdrew later |
//! | `order` | batches leave in the order of their tickets |
//! | `outbound` | from the TUN device to the sockets |
//! | `packet_io` | the kernel's objects, or memory |
//! | `paths` | which ICMP errors about a path are believed |
//! | `pool` | a fixed number of batches |
//! | `refused` | merged writes that the device refuses |
//! | `sampling` | which batches are measured |
//! | `scheduling` | processors and priority of the workers |
//! | `stats` | counters of the workers |
//! | `xdp` | ESP through `AF_XDP`, beside the sockets |

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Instant;

use ironswan_io::Error as IoError;
use ironswan_io::clock;
use ironswan_io::poller::{Poller, Ready, Waker};
use ironswan_io::raw::{RawSocket, WITH_HEADER};
use ironswan_io::tun::{Offloads as TunOffloads, Tun, TunConfig};
use ironswan_io::udp::{UdpConfig, UdpSocket};
use ironswan_io::xdp::XdpStats;
use ironswan_ipsec::{Engine, Stopwatch};
use ironswan_wire::ip::protocol;
use ironswan_wire::sadb::Up;

mod crew;
mod icmp;
mod inbound;
pub mod install;
mod lanes;
#[doc(hidden)]
pub mod memory;
pub mod napi;
pub mod offloads;
mod order;
mod outbound;
mod packet_io;
pub mod paths;
mod pool;
mod refused;
mod sampling;
mod scheduling;
mod stats;
#[cfg(test)]
mod tests;
mod xdp;

use crate::dataplane::userspace::offloads::{Offloads, Slower};
use crate::dataplane::userspace::paths::Paths;
use ironswan_config::tuning::Tuning;
use lanes::{Lanes, LanesConfig};
pub use stats::WorkerStats;
use xdp::Xdp;

/// What to make.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct DataPlaneConfig {
    /// The TUN device.
    pub device: TunConfig,
    /// Mark on the outer packets, by which rules keep them off table 220; 0 for none.
    pub mark: u32,
    /// Port of IKE without encapsulation.
    pub ike_port: u16,
    /// Port of IKE and ESP with UDP encapsulation.
    pub natt_port: u16,
    /// Also send and receive ESP without UDP, and AH.
    pub raw_esp: bool,
    /// What can be set beside.
    pub tuning: Tuning,
    /// When the clock of the engine was 0. Whoever applies commands to the engine counts from here too.
    pub epoch: Instant,
}

impl Default for DataPlaneConfig {
    fn default() -> Self {
        Self {
            device: TunConfig::default(),
            mark: 0x220,
            ike_port: 500,
            natt_port: 4500,
            raw_esp: true,
            tuning: Tuning::default(),
            epoch: clock::now(),
        }
    }
}

/// An IKE message as it came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct IkeDatagram {
    /// Our address and port.
    pub local: SocketAddr,
    /// The sender.
    pub remote: SocketAddr,
    /// The message, without non-ESP marker.
    pub payload: Vec<u8>,
}

/// What the data plane tells the control plane.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Notice {
    /// From the engine.
    Up(Vec<Up>),
    /// The path to these peers has become narrower, or packets to them are larger than the path MTU
    /// and are dropped: ask the routing table and [`DataPlane::paths`] for the path MTU and lower
    /// the routes to the device, so that the kernel tells the senders.
    NarrowPath(Vec<IpAddr>),
    /// A worker has ended by a defect of ours: nothing can be relied on to be carried any more.
    Ended,
    /// The TUN device was deleted by someone; IKE goes on, packets do not until [`DataPlane::replace_device`].
    DeviceGone,
    /// The kernel refuses something that was faster; packets go the slower way. Once for each, not for each packet.
    Slower(Slower),
}

/// Why the data plane did not start. The message says what to do.
#[derive(Debug)]
#[non_exhaustive]
pub enum StartError {
    /// A kernel object could not be had.
    Io(IoError),
    /// The thread could not be started.
    Thread(std::io::Error),
}

impl std::fmt::Display for StartError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Io(e) => e.fmt(f),
            Self::Thread(e) => {
                write!(f, "a data plane thread could not be started: {e} (look at `ulimit -u`)")
            }
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(e) => Some(e),
            Self::Thread(e) => Some(e),
        }
    }
}

impl From<IoError> for StartError {
    fn from(e: IoError) -> Self {
        Self::Io(e)
    }
}

/// A socket of each family. IPv6 may be missing from the kernel.
#[derive(Debug)]
struct Pair<S> {
    v4: Option<S>,
    v6: Option<S>,
}

impl<S> Pair<S> {
    /// Opens both; that a family does not exist is no error as long as one does.
    fn open(make: impl Fn(bool) -> Result<S, IoError>) -> Result<Self, IoError> {
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

    fn get(&self, ipv6: bool) -> Option<&S> {
        if ipv6 { self.v6.as_ref() } else { self.v4.as_ref() }
    }

    fn iter(&self) -> impl Iterator<Item = &S> {
        self.v4.iter().chain(&self.v6)
    }
}

/// All sockets, shared by the workers and those who send IKE messages.
#[derive(Debug)]
struct Sockets {
    natt: Pair<UdpSocket>,
    ike: Pair<UdpSocket>,
    raw: Pair<RawSocket>,
    /// AH is received here,
    ah: Pair<RawSocket>,
    /// and sent here: what has its IP header already.
    ip: Pair<RawSocket>,
    /// ESP past the kernel's stack, where that is asked for.
    xdp: Arc<Xdp>,
    /// Let the kernel learn path MTUs from errors about AH.
    _errors: Vec<RawSocket>,
    /// IKE messages that found no buffer space.
    ike_full: AtomicU64,
}

impl Sockets {
    fn open(config: &DataPlaneConfig) -> Result<Self, IoError> {
        let (mark, ike_port, natt_port) = (config.mark, config.ike_port, config.natt_port);
        let Tuning { socket_buffer: buffer, gso, gro, busy_poll, .. } = config.tuning;
        let esp = |ipv6| UdpConfig { buffer, gso, gro, busy_poll, ..UdpConfig::esp(ipv6, natt_port, mark) };
        let raw = |protocol| match config.raw_esp {
            true => Pair::open(|ipv6| RawSocket::open(ipv6, protocol, mark, buffer)),
            false => Ok(Pair { v4: None, v6: None }),
        };
        let ah = raw(protocol::AH)?;
        let inner = if ah.v6.is_some() { &[protocol::IPV4, protocol::IPV6][..] } else { &[] };
        Ok(Self {
            natt: Pair::open(|ipv6| UdpSocket::bind(esp(ipv6)))?,
            ike: Pair::open(|ipv6| UdpSocket::bind(UdpConfig::ike(ipv6, ike_port, mark)))?,
            raw: raw(protocol::ESP)?,
            ah,
            ip: raw(WITH_HEADER)?,
            xdp: Arc::new(Xdp::open(&config.tuning.xdp, natt_port, config.raw_esp)),
            _errors: inner.iter().map(|p| RawSocket::for_errors(*p, mark)).collect::<Result<_, _>>()?,
            ike_full: AtomicU64::new(0),
        })
    }

    /// The raw socket of this number.
    fn raw_of(&self, source: u64) -> Option<&RawSocket> {
        let ipv6 = source & token::V6 != 0;
        match source & !token::V6 {
            token::RAW => self.raw.get(ipv6),
            token::AH => self.ah.get(ipv6),
            _ => None,
        }
    }

    /// The UDP socket of this number.
    fn udp_of(&self, source: u64) -> Option<&UdpSocket> {
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
    sockets: Arc<Sockets>,
}

impl IkeSender {
    /// Sends one message from the port and address of `local` (an unspecified address leaves the choice to the routing
    /// table); `payload` has the non-ESP marker where one is due. Never waits: a message that finds no buffer space is dropped
    /// and counted, as one that is lost on its way, and comes again like it.
    ///
    /// # Errors
    /// What the kernel says, and `NotConnected` when `local` has a port that is not ours or the family does not exist.
    pub fn send(&self, local: SocketAddr, remote: SocketAddr, payload: &[u8]) -> std::io::Result<()> {
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
        // RFC 7296 section 2 lets IP fragment IKE messages; only IKE fragmentation (RFC 7383) avoids it.
        match socket.send_fragmentable_now(from, remote, 0, payload) {
            Err(e) if e.kind() == std::io::ErrorKind::WouldBlock => {
                self.sockets.ike_full.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            sent => sent,
        }
    }
}

/// The running data plane. Stops when dropped; the TUN device vanishes with it.
pub struct DataPlane {
    device_index: AtomicU32,
    /// What the TUN device leaves to us, and whether idle workers poll.
    tun_offloads: TunOffloads,
    busy_poll: bool,
    sockets: Arc<Sockets>,
    stop: Arc<Stop>,
    lanes: Arc<Lanes<Arc<Sockets>>>,
    threads: Vec<JoinHandle<()>>,
    /// Outbound SAs and their paths, and who hears of narrow ones.
    paths: Arc<Paths>,
    errors: Option<icmp::Listener>,
    /// Looks after what stands at the interfaces of `xdp`.
    attendant: Option<xdp::Attendant>,
}

impl std::fmt::Debug for DataPlane {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "DataPlane({} workers)", self.threads.len())
    }
}

/// How the first worker is told to end, or to go on with another device.
#[derive(Debug)]
struct Stop {
    flag: AtomicBool,
    waker: Waker,
    /// A device that is to take the place of the one that is gone.
    device: Mutex<Option<Tun>>,
}

/// Tells the control plane when a worker ends that was not asked to, by a panic: the order of batches waits for its for ever.
struct End {
    lanes: Arc<Lanes<Arc<Sockets>>>,
    stop: Arc<Stop>,
}

impl Drop for End {
    fn drop(&mut self) {
        if !self.stop.flag.load(Ordering::Acquire) {
            self.lanes.notice(Notice::Ended);
        }
    }
}

impl DataPlane {
    /// Makes device and sockets, and starts the threads.
    ///
    /// `ike_sink` gets every IKE message and returns false when it has no room for it; `notice_sink` gets the rest. Both
    /// are called on the data threads, by one at a time, and must not block.
    ///
    /// # Errors
    /// Whatever is missing, with the remedy. Nothing is left behind then.
    pub fn start(
        config: &DataPlaneConfig,
        engine: Arc<Engine>,
        ike_sink: impl FnMut(IkeDatagram) -> bool + Send + 'static,
        notice_sink: impl FnMut(Notice) + Send + 'static,
    ) -> Result<Self, StartError> {
        let sockets = Arc::new(Sockets::open(config)?);
        let tun = Arc::new(Tun::create(&config.device)?);
        let device_index = AtomicU32::new(tun.index());
        let stop =
            Arc::new(Stop { flag: AtomicBool::new(false), waker: Waker::new()?, device: Mutex::new(None) });
        let tun_offloads = tun.offloads();
        let poller = Poller::new()?;
        let busy_poll = poller.busy_poll(config.tuning.busy_poll);
        for (source, token) in sources(&tun, &sockets, &stop.waker) {
            poller.add(source, token)?;
        }
        sockets.xdp.each_source(|source, n| poller.add(source, token::XDP + n))?;
        let (epoch, tuning) = (config.epoch, &config.tuning);
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let workers = crew::workers(tuning, processors);
        let paths = Arc::new(Paths::default());
        let lanes_config = LanesConfig {
            workers,
            batch_bytes: tuning.batch_bytes,
            stopwatch: Stopwatch { read: clock::nanoseconds, cost: clock::cost() },
            known: paths.known().clone(),
        };
        let (ike_sink, notice_sink) = (Box::new(ike_sink), Box::new(notice_sink));
        let lanes = Lanes::new(sockets.clone(), tun.clone(), engine, &lanes_config, ike_sink, notice_sink);
        let lanes = Arc::new(lanes);
        let natt = [false, true].map(|ipv6| sockets.natt.get(ipv6).map(UdpSocket::port));
        let told = lanes.clone();
        let narrowed = move |peers| told.notice(Notice::NarrowPath(peers));
        let errors = Some(icmp::Listener::start(paths.clone(), natt, narrowed)?);
        let (threads, attendant) = (Vec::new(), xdp::Attendant::start(&sockets.xdp)?);
        let mut plane = Self {
            device_index,
            tun_offloads,
            busy_poll,
            sockets,
            stop,
            lanes,
            threads,
            paths,
            errors,
            attendant,
        };
        let (lanes, stop) = (plane.lanes.clone(), plane.stop.clone());
        scheduling::prefer_session(tuning.nice);
        plane.spawn(tuning, move || run(&poller, &lanes, tun, epoch, &stop))?;
        for _ in 1..workers {
            let lanes = plane.lanes.clone();
            let stop = plane.stop.clone();
            plane.spawn(tuning, move || {
                lanes.assist(|| clock::now().saturating_duration_since(epoch), || stop.waker.wake());
            })?;
        }
        Ok(plane)
    }

    /// Starts the next worker.
    fn spawn(&mut self, tuning: &Tuning, work: impl FnOnce() + Send + 'static) -> Result<(), StartError> {
        let n = self.threads.len();
        let cpu = (!tuning.pin.is_empty()).then(|| tuning.pin[n % tuning.pin.len()]);
        let nice = tuning.nice;
        let end = End { lanes: self.lanes.clone(), stop: self.stop.clone() };
        let bound = move || {
            let _end = end;
            if let Some(cpu) = cpu {
                scheduling::bind(cpu);
            }
            scheduling::prefer(nice);
            work();
        };
        let thread = std::thread::Builder::new().name(format!("ipsec-data-{n}")).spawn(bound);
        self.threads.push(thread.map_err(StartError::Thread)?);
        Ok(())
    }

    /// The outbound SAs, which whoever applies commands to the engine keeps, and what is known of
    /// their paths.
    pub fn paths(&self) -> &Arc<Paths> {
        &self.paths
    }

    /// Index of the TUN device.
    pub fn device_index(&self) -> u32 {
        self.device_index.load(Ordering::Relaxed)
    }

    /// Makes a new TUN device in place of one that was deleted, and gives it to the worker, which goes on as if nothing
    /// had happened: SAs, sequence numbers and sockets are not touched. Returns the new index.
    ///
    /// # Errors
    /// What keeps the device from being made; the worker goes on without one.
    pub fn replace_device(&self, config: &TunConfig) -> Result<u32, IoError> {
        let tun = Tun::create(config)?;
        let index = tun.index();
        self.device_index.store(index, Ordering::Relaxed);
        *self.stop.device.lock().unwrap_or_else(PoisonError::into_inner) = Some(tun);
        self.stop.waker.wake();
        Ok(index)
    }

    /// For the control plane.
    pub fn ike_sender(&self) -> IkeSender {
        IkeSender { sockets: self.sockets.clone() }
    }

    /// Counters of all workers together.
    pub fn stats(&self) -> WorkerStats {
        self.lanes.stats()
    }

    /// IKE messages that were dropped since the send buffer was full.
    pub fn ike_dropped_full(&self) -> u64 {
        self.sockets.ike_full.load(Ordering::Relaxed)
    }

    /// Packets that the kernel dropped since our receive buffers were full.
    pub fn socket_drops(&self) -> u64 {
        let s = &self.sockets;
        let udp = s.natt.iter().chain(s.ike.iter()).map(UdpSocket::drops);
        udp.sum::<u64>() + s.raw.iter().chain(s.ah.iter()).map(RawSocket::drops).sum::<u64>()
    }

    /// What came through `AF_XDP`, and what was dropped there.
    pub fn xdp_stats(&self) -> XdpStats {
        self.sockets.xdp.stats()
    }

    /// Most datagrams that one send is cut into by the kernel.
    pub fn max_segments(&self) -> usize {
        self.sockets.natt.iter().map(UdpSocket::max_segments).min().unwrap_or(1)
    }

    /// Threads that move packets.
    pub fn workers(&self) -> usize {
        self.threads.len()
    }

    /// What the kernel agreed to.
    pub fn offloads(&self) -> Offloads {
        let s = &self.sockets;
        let buffers = s.natt.iter().map(UdpSocket::buffers).chain(s.raw.iter().map(RawSocket::buffers));
        Offloads {
            tun: self.tun_offloads,
            segments: self.max_segments(),
            gro: s.natt.iter().all(UdpSocket::is_merging),
            buffers: buffers.reduce(|a, b| [a[0].min(b[0]), a[1].min(b[1])]).unwrap_or_default(),
            busy_poll: self.busy_poll,
            xdp: s.xdp.names(),
        }
    }

    /// False when a worker has ended without being asked to: a bug, after which nothing is carried.
    pub fn is_running(&self) -> bool {
        !self.threads.is_empty() && self.threads.iter().all(|t| !t.is_finished())
    }

    /// Makes the worker look at the engine now, so that it lets go of what has been deleted and sends what waits for a new
    /// SA. A busy worker does so by itself; call it when an SA has come or gone.
    pub fn refresh(&self) {
        self.stop.waker.wake();
    }

    /// [`Self::refresh`] for whoever outlives a borrow.
    pub fn refresher(&self) -> impl Fn() + use<> {
        let stop = self.stop.clone();
        move || stop.waker.wake()
    }

    /// Ends the threads and removes the device. Packets in flight are lost; nothing leaves in clear.
    pub fn stop(mut self) {
        self.halt();
    }

    fn halt(&mut self) {
        self.stop.flag.store(true, Ordering::Release);
        self.stop.waker.wake();
        self.lanes.crew.end();
        (self.errors, self.attendant) = (None, None);
        for thread in self.threads.drain(..) {
            // A panic of a worker has been printed by the panic hook.
            let _ = thread.join();
        }
    }
}

impl Drop for DataPlane {
    fn drop(&mut self) {
        self.halt();
    }
}

/// What is ready, as the poller numbers it.
mod token {
    pub(super) const STOP: u64 = 0;
    pub(super) const TUN: u64 = 1;
    pub(super) const NATT: u64 = 2;
    pub(super) const IKE: u64 = 4;
    pub(super) const RAW: u64 = 6;
    pub(super) const AH: u64 = 8;
    /// And more: what receives through `AF_XDP`.
    pub(super) const XDP: u64 = 1 << 16;
    /// Added to a socket's number for IPv6.
    pub(super) const V6: u64 = 1;
}

/// Every descriptor with its number.
fn sources<'a>(
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

/// The first worker's loop.
fn run(poller: &Poller, lanes: &Lanes<Arc<Sockets>>, mut tun: Arc<Tun>, epoch: Instant, stop: &Stop) {
    let mut ready = Ready::with_capacity(16);
    let (mut due, mut seen) = (None, 0);
    while !stop.flag.load(Ordering::Acquire) {
        if let Err(e) = poller.wait(&mut ready, due) {
            tracing::error!("the data plane cannot wait for packets and ends: {e}");
            return;
        }
        let now = clock::now().saturating_duration_since(epoch);
        for &t in ready.tokens() {
            match t {
                token::STOP => {
                    stop.waker.clear();
                    let device = stop.device.lock().unwrap_or_else(PoisonError::into_inner).take();
                    if let Some(new) = device.map(Arc::new) {
                        // The old descriptor may still be there, if its device is not known to be gone yet.
                        poller.remove(&*tun);
                        if let Err(e) = poller.add(new.as_fd(), token::TUN) {
                            tracing::error!("the data plane cannot listen to its new device: {e}");
                        }
                        lanes.replace_device(new.clone());
                        tun = new;
                    }
                }
                token::TUN => {
                    if !lanes.turn_out(now) {
                        poller.remove(&*tun);
                    }
                }
                _ => lanes.turn_in(t, now),
            }
        }
        due = lanes.end_round(now, &mut seen);
    }
}
