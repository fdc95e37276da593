//! One turn of each kind: frames from the TUN device out, datagrams from a socket in.

use std::io::{ErrorKind, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::sync::Arc;
use std::time::Duration;

use ironswan_io::mmsg::{Outgoing, Received, RecvSlots};
use ironswan_io::raw::HEAD;
use ironswan_io::send::{Outlet, Sender};
use ironswan_io::tun::{READ_SIZE, Tun, VNET_HEADER};
use ironswan_io::udp::UdpSocket;
use ironswan_ipsec::{Carrier, Datagram, Engine, Frame, RxBatch, TxBatch, TxConfig, Worker, demux};
use ironswan_wire::esp::UdpKind;
use ironswan_wire::offload::Offload;

use super::{IkeDatagram, Notice, Sockets, WorkerStats, token};

/// Frames that are read before the engine looks at them, unless they are large: then they are still in the cache when they
/// are sealed.
const BURST_FRAMES: usize = 64;
const BURST_BYTES: usize = 16 * 1024;
/// Most frames of one outbound turn, and the bytes after which it ends.
const TURN_FRAMES: u64 = 256;
const TURN_BYTES: u64 = 512 * 1024;
/// Bytes of the batch that is sealed at once.
const TX_CAPACITY: usize = 256 * 1024;
/// Most buffers of one receive, each with room for the largest that the kernel merges. Slots are not a power of two
/// apart: the headers of small packets would all fall into the same cache sets.
const SLOTS: usize = 64;
const SLOT: usize = 65_536 + 320;
/// Receive fewer at a time while they are large, so that they are still in the cache when they are opened.
const LARGE: usize = 16 * 1024;
const LARGE_SLOTS: usize = 8;
/// A peer's narrow path is reported no more often than this, and so many peers' in that time.
const NARROW_INTERVAL: Duration = Duration::from_millis(100);
const NARROW_PEERS: usize = 256;
/// `writev` takes this many parts.
const MAX_PARTS: usize = 1024;
/// As many parts as a merged 64 KB write of 1,400-byte packets has, kept on the stack.
const FEW_PARTS: usize = 64;

/// What the TUN device said last.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Device {
    HasMore,
    Empty,
    Gone,
}

/// A worker's state.
pub(super) struct Turns {
    tun: Tun,
    sockets: Arc<Sockets>,
    engine: Arc<Engine>,
    worker: Worker,
    ike_sink: Box<dyn FnMut(IkeDatagram) -> bool + Send>,
    notice_sink: Box<dyn FnMut(Notice) + Send>,
    /// What was read of the TUN device, and what of it is frames.
    read: Vec<u8>,
    frames: Vec<Frame>,
    tx: TxBatch,
    outgoing: Vec<Outgoing>,
    sender: Sender,
    slots: RecvSlots,
    rx_buf: Vec<u8>,
    received: Vec<Received>,
    datagrams: Vec<Datagram>,
    rx: RxBatch,
    /// Slots to use for the next receive.
    next_slots: usize,
    now: Duration,
    /// Peers whose narrow path was just reported, and when.
    narrow_reported: Vec<(IpAddr, Duration)>,
    stats: WorkerStats,
}

/// The receive slots, with the page of each that every datagram touches made resident now (256 KiB): the first burst
/// finds them, and a flood of small packets does not make the gateway grow.
fn receive_buffer() -> Vec<u8> {
    let mut buf = vec![0; SLOTS * SLOT];
    buf.chunks_mut(SLOT).for_each(|slot| slot[0] = std::hint::black_box(0));
    buf
}

impl Turns {
    pub(super) fn new(
        tun: Tun,
        sockets: Arc<Sockets>,
        engine: Arc<Engine>,
        ike_sink: Box<dyn FnMut(IkeDatagram) -> bool + Send>,
        notice_sink: Box<dyn FnMut(Notice) + Send>,
    ) -> Self {
        let max_segments = sockets.natt.iter().map(UdpSocket::max_segments).min().unwrap_or(1);
        let config = TxConfig {
            capacity: TX_CAPACITY,
            max_segments: u16::try_from(max_segments).unwrap_or(1),
            ..TxConfig::default()
        };
        Self {
            tun,
            sockets,
            worker: Worker::new(engine.clone()),
            engine,
            ike_sink,
            notice_sink,
            // Zeroed memory of this size comes from the kernel page by page as it is touched: what an idle or a small
            // gateway never uses is never resident.
            read: vec![0; BURST_BYTES + READ_SIZE],
            frames: Vec::with_capacity(BURST_FRAMES),
            tx: TxBatch::new(config),
            outgoing: Vec::new(),
            sender: Sender::new(),
            slots: RecvSlots::new(SLOTS),
            rx_buf: receive_buffer(),
            received: Vec::with_capacity(SLOTS),
            datagrams: Vec::with_capacity(SLOTS),
            rx: RxBatch::new(),
            next_slots: LARGE_SLOTS,
            now: Duration::ZERO,
            narrow_reported: Vec::new(),
            stats: WorkerStats::default(),
        }
    }

    pub(super) fn tun(&self) -> &Tun {
        &self.tun
    }

    /// Goes on with another device.
    pub(super) fn replace_tun(&mut self, tun: Tun) {
        self.tun = tun;
    }

    pub(super) fn stats(&self) -> WorkerStats {
        WorkerStats { send: self.sender.stats(), ..self.stats }
    }

    /// A round begins.
    pub(super) fn begin(&mut self, now: Duration) {
        self.stats.rounds += 1;
        self.now = now;
        self.worker.begin(now);
        // What waited for an SA leaves before new frames of its flow.
        while self.worker.release(&mut self.tx) {
            self.flush();
        }
        self.flush();
    }

    /// A round ends: what leaves by itself does, and what came up goes to the control plane. Says how long until something
    /// has to leave by itself again; `None` for never.
    pub(super) fn end(&mut self) -> Option<Duration> {
        let next = loop {
            match self.worker.dummies(&mut self.tx) {
                Some(at) if at <= self.now && !self.tx.is_empty() => self.flush(),
                next => break next,
            }
        };
        self.flush();
        let up = self.engine.take_up();
        if !up.is_empty() {
            (self.notice_sink)(Notice::Up(up));
        }
        if let Some(peers) = self.sender.take_narrow() {
            self.report_narrow(peers);
        }
        let next = next.into_iter().chain(self.worker.next_due()).min();
        next.map(|at| at.saturating_sub(self.now))
    }

    /// Tells at once of peers whose path has become narrow, of each again only after a while: every packet says so until
    /// the routes are lowered.
    #[cold]
    fn report_narrow(&mut self, mut peers: Vec<IpAddr>) {
        let now = self.now;
        self.narrow_reported.retain(|(_, at)| now.saturating_sub(*at) < NARROW_INTERVAL);
        let known = &mut self.narrow_reported;
        peers.retain(|peer| known.len() < NARROW_PEERS && !known.iter().any(|(known, _)| known == peer));
        known.extend(peers.iter().map(|peer| (*peer, now)));
        if !peers.is_empty() {
            (self.notice_sink)(Notice::NarrowPath(peers));
        }
    }

    /// Takes frames from the TUN device until it is empty or the turn is over. False when the device is gone.
    pub(super) fn outbound(&mut self) -> bool {
        let reads = self.stats.tun_reads + TURN_FRAMES;
        let bytes = self.stats.tun_read_bytes + TURN_BYTES;
        let mut device = Device::HasMore;
        while device == Device::HasMore && self.stats.tun_reads < reads && self.stats.tun_read_bytes < bytes {
            device = self.read_frames();
            let mut taken = 0;
            loop {
                taken += self.worker.outbound_burst(&mut self.read, &self.frames[taken..], &mut self.tx);
                if taken == self.frames.len() {
                    break;
                }
                // An empty batch takes the next frame, or drops and counts it.
                self.flush();
            }
        }
        self.flush();
        if device == Device::Gone {
            (self.notice_sink)(Notice::DeviceGone);
        }
        device != Device::Gone
    }

    /// Reads frames until the device is empty, there is enough for a while, or a large one comes.
    fn read_frames(&mut self) -> Device {
        self.frames.clear();
        let mut at = 0;
        for _ in 0..BURST_FRAMES {
            let read = &mut self.read[at..at + READ_SIZE];
            let n = match self.tun.read(read) {
                Ok(n) => n,
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Device::Empty,
                // While it is down.
                Err(e) if e.raw_os_error() == Some(rustix::io::Errno::IO.raw_os_error()) => {
                    return Device::Empty;
                }
                // Anything else (EBADFD) means that it was deleted.
                Err(_) => return Device::Gone,
            };
            self.stats.tun_reads += 1;
            self.stats.tun_read_bytes += n as u64;
            // A frame that fills the buffer to the last byte was cut.
            let parsed = (n < READ_SIZE).then(|| Offload::parse(&read[..n]));
            if let Some(Ok(offload)) = parsed {
                self.frames.push(Frame { start: at + VNET_HEADER, len: n - VNET_HEADER, offload });
            } else {
                self.stats.tun_read_errors += 1;
            }
            at += n;
            if at > BURST_BYTES {
                break;
            }
        }
        Device::HasMore
    }

    /// Seals and sends the batch.
    fn flush(&mut self) {
        if self.tx.is_empty() {
            self.tx.clear();
            return;
        }
        self.stats.seals += 1;
        self.worker.seal(&mut self.tx);
        let mut sends = &self.tx.sends[..];
        while let Some(first) = sends.first() {
            // Runs for one socket, so that order is kept within an SA.
            let (carrier, ipv6) = (first.carrier, first.remote.is_ipv6());
            let same = |s: &ironswan_ipsec::Send| s.carrier == carrier && s.remote.is_ipv6() == ipv6;
            let run = sends.iter().position(|s| !same(s)).unwrap_or(sends.len());
            let outlet = match carrier {
                Carrier::Udp => self.sockets.natt.get(ipv6).map(Outlet::Udp),
                Carrier::Esp => self.sockets.raw.get(ipv6).map(Outlet::Raw),
                Carrier::Ip => self.sockets.ip.get(ipv6).map(Outlet::Ip),
            };
            self.outgoing.clear();
            self.outgoing.extend(sends[..run].iter().map(|s| Outgoing {
                offset: s.offset as usize,
                len: s.len as usize,
                segment: s.segment_size.into(),
                local: s.local.ip(),
                remote: s.remote,
                tos: s.tos,
                fragmentable: s.fragmentable.into(),
            }));
            match outlet {
                Some(outlet) => self.sender.send(outlet, &self.tx.buf, &self.outgoing),
                None => self.sender.refuse(&self.outgoing),
            }
            sends = &sends[run..];
        }
        self.tx.clear();
    }

    /// Takes what a socket has, once, and delivers it.
    pub(super) fn inbound(&mut self, ready: u64) {
        let ipv6 = ready & token::V6 != 0;
        let kind = ready & !token::V6;
        self.received.clear();
        let sockets = self.sockets.clone();
        let raw = match kind {
            token::RAW => sockets.raw.get(ipv6),
            token::AH => sockets.ah.get(ipv6),
            _ => None,
        };
        let udp = if kind == token::NATT { sockets.natt.get(ipv6) } else { sockets.ike.get(ipv6) };
        let (fd, port) = match (raw, udp) {
            (Some(s), _) => (s.as_fd(), 0),
            (None, Some(s)) => (s.as_fd(), s.port()),
            (None, None) => return,
        };
        let room = &mut self.rx_buf[..self.next_slots * SLOT];
        let head = if kind == token::AH { HEAD } else { 0 };
        // An error here is "nothing after all", or an ICMP error that has now been taken off the socket.
        if self.slots.recv(fd, room, SLOT, head, &mut self.received).is_err() {
            if let Some(s) = raw {
                s.clear_errors();
            }
            return;
        }
        let bytes: usize = self.received.iter().map(|r| r.len).sum();
        self.stats.receives += 1;
        self.stats.received += self.received.len() as u64;
        self.stats.received_bytes += bytes as u64;
        self.next_slots = if bytes > LARGE * self.received.len() { LARGE_SLOTS } else { SLOTS };
        self.datagrams.clear();
        for i in 0..self.received.len() {
            let mut r = self.received[i];
            let whole = match (kind, raw) {
                _ if r.truncated => false,
                (token::RAW, Some(s)) => s.strip(&self.rx_buf, &mut r),
                (token::AH, Some(s)) => s.whole(&mut self.rx_buf, &mut r),
                _ => true,
            };
            if !whole {
                self.stats.receive_errors += 1;
                continue;
            }
            let datagram = Datagram {
                offset: r.offset as u32,
                len: r.len as u32,
                segment_size: u16::try_from(r.segment).unwrap_or(0),
                local: SocketAddr::new(r.local, port),
                remote: r.remote,
                carrier: match kind {
                    token::NATT => Carrier::Udp,
                    token::AH => Carrier::Ip,
                    _ => Carrier::Esp,
                },
                tos: r.tos,
            };
            match kind {
                token::NATT => self.take_apart(&datagram),
                token::IKE => self.deliver_ike(&datagram, r.offset..r.offset + r.len),
                _ => self.datagrams.push(datagram),
            }
        }
        if !self.datagrams.is_empty() {
            self.rx.clear();
            self.worker.inbound(&mut self.rx_buf, &self.datagrams, &mut self.rx);
            self.write();
        }
    }

    /// Sorts a receive on the encapsulation port into ESP, which stays, IKE, which goes up, and keepalives.
    fn take_apart(&mut self, datagram: &Datagram) {
        let mut datagrams = std::mem::take(&mut self.datagrams);
        // Split from `self`, of which the closure needs the rest; nothing but ESP is rare.
        let mut others: Vec<(UdpKind, std::ops::Range<usize>)> = Vec::new();
        demux(&self.rx_buf, datagram, &mut datagrams, |kind, range| others.push((kind, range)));
        self.datagrams = datagrams;
        for (kind, range) in others {
            match kind {
                UdpKind::Ike => self.deliver_ike(datagram, range.start + NON_ESP_MARKER..range.end),
                UdpKind::Keepalive => self.stats.keepalives += 1,
                _ => self.stats.malformed += 1,
            }
        }
    }

    fn deliver_ike(&mut self, datagram: &Datagram, range: std::ops::Range<usize>) {
        let Some(payload) = self.rx_buf.get(range) else {
            self.stats.malformed += 1;
            return;
        };
        let message =
            IkeDatagram { local: datagram.local, remote: datagram.remote, payload: payload.to_vec() };
        match (self.ike_sink)(message) {
            true => self.stats.ike += 1,
            false => self.stats.ike_dropped += 1,
        }
    }

    /// Writes what was opened to the TUN device.
    fn write(&mut self) {
        for write in &self.rx.writes {
            let header = write.offload.emit();
            let ranges = self.rx.ranges(write);
            let part = |range: (u32, u32)| IoSlice::new(self.rx.slice(&self.rx_buf, range));
            let result = if ranges.len() < FEW_PARTS {
                let mut parts = [IoSlice::new(&header); FEW_PARTS];
                for (slot, range) in parts[1..].iter_mut().zip(ranges) {
                    *slot = part(*range);
                }
                self.tun.write(&parts[..=ranges.len()])
            } else if ranges.len() < MAX_PARTS {
                let parts: Vec<_> =
                    std::iter::once(IoSlice::new(&header)).chain(ranges.iter().map(|r| part(*r))).collect();
                self.tun.write(&parts)
            } else {
                let whole = self.rx.gather(&self.rx_buf, write);
                self.tun.write(&[IoSlice::new(&header), IoSlice::new(&whole)])
            };
            match result {
                Ok(n) => {
                    self.stats.tun_writes += 1;
                    self.stats.tun_write_bytes += n as u64;
                }
                Err(_) => self.stats.tun_write_errors += 1,
            }
        }
    }
}

/// Bytes of the non-ESP marker (RFC 3948 section 2.2).
const NON_ESP_MARKER: usize = 4;
