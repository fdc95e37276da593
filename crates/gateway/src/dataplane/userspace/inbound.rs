//! The inbound lane: datagrams from the sockets to the TUN device, IKE to the control plane.

use std::io::IoSlice;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;

use ironswan_io::mmsg::{Received, RecvSlots};
use ironswan_ipsec::{Carrier, Datagram, Engine, RxBatch, Stage, StageTimes, Worker, demux};
use ironswan_wire::esp::UdpKind;

use super::lanes::{Lanes, lock};
use super::notice::WorkerNotice;
use super::packet_io::{Device, PacketIo};
use super::refused::Merging;
use super::sampling::Sampling;
use super::sockets::token;
use super::stats::WorkerStats;
use super::xdp;
use crate::dataplane::IkeDatagram;
use crate::dataplane::userspace::offloads::Slower;

/// Most buffers of one receive, each with room for the largest that the kernel merges. Slots are
/// not a power of two apart: the headers of small packets would all fall into the same cache sets.
pub(super) const SLOTS: usize = 64;
pub(super) const SLOT: usize = 65_536 + 320;
/// Receive fewer at a time while they are large, so that they are still in the cache when they are
/// opened.
const LARGE: usize = 16 * 1024;
const LARGE_SLOTS: usize = 8;
/// Another worker is called when as many receives in a row have filled their slots.
const BACKLOG: u32 = 2;
/// `writev` takes this many parts.
const MAX_PARTS: usize = 1024;
/// Parts that are kept on the stack: a merged write of 64 KB, of packets of 1,400 bytes, has at
/// most this many.
const FEW_PARTS: usize = 64;
/// Bytes of the non-ESP marker (RFC 3948 section 2.2).
const NON_ESP_MARKER: usize = 4;

/// A batch on its way.
pub(super) struct InBatch {
    buf: Vec<u8>,
    source: u64,
    received: Vec<Received>,
    datagrams: Vec<Datagram>,
    /// Datagrams to the encapsulation port that are not ESP, and all to the IKE port.
    others: Vec<(Datagram, UdpKind, Range<usize>)>,
    /// Raw packets without a header that makes sense, and datagrams that were cut.
    errors: u64,
    /// The packets had arrived before their SA ([`Engine::take_early`]); none was received now.
    early: bool,
    rx: RxBatch,
    now: Duration,
}

impl InBatch {
    /// `resident`: the page of each slot that every datagram touches is made resident now (256
    /// KiB): the first burst finds them, and a flood of small packets does not make the gateway
    /// grow.
    pub(super) fn new(resident: bool) -> Box<Self> {
        let mut buf = vec![0; SLOTS * SLOT];
        if resident {
            buf.chunks_mut(SLOT).for_each(|slot| slot[0] = std::hint::black_box(0));
        }
        Box::new(Self {
            buf,
            source: 0,
            received: Vec::with_capacity(SLOTS),
            datagrams: Vec::with_capacity(SLOTS),
            others: Vec::new(),
            errors: 0,
            early: false,
            rx: RxBatch::new(),
            now: Duration::ZERO,
        })
    }

    /// Sorts what was received into ESP and AH, IKE, and the rest.
    fn sort<I: PacketIo>(&mut self, io: &I) {
        let (kind, port) = (self.source & !token::V6, io.port(self.source));
        self.datagrams.clear();
        self.others.clear();
        self.errors = 0;
        for i in 0..self.received.len() {
            let mut r = self.received[i];
            if r.truncated || !io.prepare(self.source, &mut self.buf, &mut r) {
                self.errors += 1;
                continue;
            }
            if self.source >= token::XDP {
                self.datagrams.push(xdp::datagram(&r, port));
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
                token::NATT => {
                    let others = &mut self.others;
                    demux(&self.buf, &datagram, &mut self.datagrams, |kind, range| {
                        let skip = if kind == UdpKind::Ike { NON_ESP_MARKER } else { 0 };
                        others.push((datagram, kind, range.start + skip..range.end));
                    });
                }
                token::IKE => self.others.push((datagram, UdpKind::Ike, r.offset..r.offset + r.len)),
                _ => self.datagrams.push(datagram),
            }
        }
    }
}

/// State of receiving, under the lane's lock.
pub(super) struct InLane {
    slots: RecvSlots,
    /// Slots to use for the next receive.
    next_slots: usize,
    /// Receives in a row that filled their slots.
    full: u32,
    ticket: u64,
    sampling: Sampling,
    pub(super) stats: WorkerStats,
}

impl InLane {
    pub(super) fn new() -> Self {
        Self {
            slots: RecvSlots::new(SLOTS),
            next_slots: LARGE_SLOTS,
            full: 0,
            ticket: 0,
            sampling: Sampling::default(),
            stats: WorkerStats::default(),
        }
    }

    /// Takes packets that arrived before their SA, which newer ones must not overtake. The ticket,
    /// unless there are none.
    fn take_early(&mut self, engine: &Engine, b: &mut InBatch) -> Option<u64> {
        b.early = engine.has_early();
        if !b.early {
            return None;
        }
        b.datagrams.clear();
        b.others.clear();
        engine.take_early(&mut b.buf, &mut b.datagrams);
        self.ticket += 1;
        Some(self.ticket - 1)
    }

    /// Receives once. The ticket, unless there was nothing, and whether there is more.
    fn receive<I: PacketIo>(&mut self, io: &I, b: &mut InBatch, source: u64) -> (Option<u64>, bool) {
        b.received.clear();
        b.source = source;
        let room = &mut b.buf[..self.next_slots * SLOT];
        if !io.receive(source, &mut self.slots, room, SLOT, &mut b.received) || b.received.is_empty() {
            self.full = 0;
            return (None, false);
        }
        let bytes: usize = b.received.iter().map(|r| r.len).sum();
        self.stats.receives += 1;
        self.stats.received += b.received.len() as u64;
        self.stats.received_bytes += bytes as u64;
        let more = b.received.len() >= self.next_slots;
        self.full = if more { self.full.saturating_add(1) } else { 0 };
        self.next_slots = if bytes > LARGE * b.received.len() { LARGE_SLOTS } else { SLOTS };
        self.ticket += 1;
        (Some(self.ticket - 1), more)
    }
}

/// State of delivering, used by one thread at a time.
pub(super) struct InExit<D> {
    device: Arc<D>,
    worker: Worker,
    merging: Merging,
    ike_sink: Box<dyn FnMut(IkeDatagram) -> bool + Send>,
    pub(super) stats: WorkerStats,
}

impl<D: Device> InExit<D> {
    pub(super) fn new(
        device: Arc<D>,
        engine: Arc<Engine>,
        ike_sink: Box<dyn FnMut(IkeDatagram) -> bool + Send>,
    ) -> Self {
        let mut worker = Worker::new(engine);
        let merging = Merging::new(device.offloads());
        merging.tell(&mut worker);
        Self { device, worker, merging, ike_sink, stats: WorkerStats::default() }
    }

    pub(super) fn replace_device(&mut self, device: Arc<D>) {
        self.merging = Merging::new(device.offloads());
        self.merging.tell(&mut self.worker);
        self.device = device;
    }

    pub(super) fn begin(&mut self, now: Duration) {
        self.worker.begin(now);
        if self.merging.is_due(now) {
            self.merging.tell(&mut self.worker);
        }
    }

    /// Delivers a batch: IKE to the control plane, packets to the device. What its stages took, if
    /// it was measured.
    fn deliver(&mut self, b: &mut InBatch, notice: impl FnMut(WorkerNotice)) -> Option<StageTimes> {
        b.rx.resume();
        self.begin(b.now);
        self.stats.receive_errors += std::mem::take(&mut b.errors);
        for (datagram, kind, range) in b.others.drain(..) {
            match kind {
                UdpKind::Ike => self.ike(&b.buf, &datagram, range),
                UdpKind::Keepalive => self.stats.keepalives += 1,
                _ => self.stats.malformed += 1,
            }
        }
        if !b.datagrams.is_empty() {
            self.worker.deliver(&mut b.buf, &mut b.rx);
            self.write(b, notice);
        }
        b.rx.lap(Stage::Send);
        let times = b.rx.times();
        if let Some(times) = &times {
            self.stats.stages.inbound.merge(times);
        }
        times
    }

    fn ike(&mut self, buf: &[u8], datagram: &Datagram, range: Range<usize>) {
        let Some(payload) = buf.get(range) else {
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

    /// Writes what was opened to the device.
    fn write(&mut self, b: &InBatch, mut notice: impl FnMut(WorkerNotice)) {
        let (rx, buf) = (&b.rx, &b.buf[..]);
        for write in &rx.writes {
            let header = write.offload.emit();
            let ranges = rx.ranges(write);
            let part = |range: (u32, u32)| IoSlice::new(rx.slice(buf, range));
            let result = if ranges.len() < FEW_PARTS {
                let mut parts = [IoSlice::new(&header); FEW_PARTS];
                for (slot, range) in parts[1..].iter_mut().zip(ranges) {
                    *slot = part(*range);
                }
                self.device.write(&parts[..=ranges.len()])
            } else if ranges.len() < MAX_PARTS {
                let parts: Vec<_> =
                    std::iter::once(IoSlice::new(&header)).chain(ranges.iter().map(|r| part(*r))).collect();
                self.device.write(&parts)
            } else {
                let whole = rx.gather(buf, write);
                self.device.write(&[IoSlice::new(&header), IoSlice::new(&whole)])
            };
            match result {
                Ok(n) => {
                    self.stats.tun_writes += 1;
                    self.stats.tun_write_bytes += n as u64;
                    self.merging.taken(write);
                }
                Err(e) if Merging::is_refusal(write, &e) => {
                    let mut whole = rx.gather(buf, write);
                    let device = &self.device;
                    self.merging
                        .refused(b.now, write, &mut whole, &mut self.stats, |parts| device.write(parts));
                }
                Err(_) => self.stats.tun_write_errors += 1,
            }
        }
        if self.merging.has_changed() {
            self.merging.tell(&mut self.worker);
            for udp in self.merging.take_news() {
                notice(WorkerNotice::Slower(Slower::Merging { udp }));
            }
        }
    }
}

impl<I: PacketIo> Lanes<I> {
    /// The first worker's turn: what a source has, once.
    pub(super) fn turn_in(&self, source: u64, now: Duration) {
        let Some(b) = self.batch(&self.in_pool) else { return };
        let more = self.carry_in(b, source, now, self.batches).1;
        match more {
            true => self.in_more.store(source, Relaxed),
            // Not what another source has.
            false => _ = self.in_more.compare_exchange(source, 0, Relaxed, Relaxed),
        }
    }

    /// The first worker's turn with packets that arrived before their SA, when it has been told of
    /// an SA.
    pub(super) fn turn_early(&self, now: Duration) {
        if self.engine.has_early() {
            self.turn_in(token::NATT, now);
        }
    }

    /// One batch of another worker's. False when there was none.
    pub(super) fn assist_in(&self, source: u64, now: Duration) -> bool {
        let Some(b) = self.in_pool.take_spare() else { return false };
        let (worked, more) = self.carry_in(b, source, now, usize::MAX);
        if !more {
            _ = self.in_more.compare_exchange(source, 0, Relaxed, Relaxed);
        }
        worked
    }

    /// Receives a batch, opens it, and delivers it when it is its turn. Whether there was
    /// something, and whether there is more.
    fn carry_in(&self, mut b: Box<InBatch>, source: u64, now: Duration, most: usize) -> (bool, bool) {
        b.now = now;
        let (ticket, more, backlog) = {
            let mut lane = lock(&self.input);
            // IKE is not what is measured.
            let ike = source & !token::V6 == token::IKE;
            let measured = !ike && lane.sampling.is_due(now, &self.in_took);
            if measured {
                b.rx.measure(self.stopwatch);
            }
            let (ticket, more) = match lane.take_early(&self.engine, &mut b) {
                Some(ticket) => (Some(ticket), true),
                None => lane.receive(&self.io, &mut b, source),
            };
            if ticket.is_some() && !ike {
                lane.sampling.filled(now, measured);
            }
            (ticket, more, lane.full >= BACKLOG)
        };
        let Some(ticket) = ticket else {
            b.rx.times();
            self.in_pool.put(b);
            return (false, false);
        };
        b.rx.lap(Stage::Receive);
        if backlog {
            self.in_more.store(source, Relaxed);
            self.crew.call();
        }
        b.rx.clear();
        if let Some(wanted) = self.copies.wanted() {
            b.rx.tap(wanted);
        }
        if !b.early {
            b.sort(&self.io);
        }
        if !b.datagrams.is_empty() {
            b.rx.lap(Stage::Parse);
            b.rx.verify_checksums(self.crew.is_awake());
            let InBatch { rx, buf, datagrams, early, .. } = &mut *b;
            self.io.pause();
            match *early {
                true => rx.open_early(&self.engine, now, buf, datagrams),
                false => rx.open(&self.engine, now, buf, datagrams),
            }
        }
        self.io.pause();
        self.in_order.complete(ticket, b, most, |b| self.leave_in(b));
        (true, more)
    }

    /// Delivers a batch whose turn it is.
    pub(super) fn leave_in(&self, mut b: Box<InBatch>) {
        let mut exit = lock(&self.in_exit);
        let times = exit.deliver(&mut b, |notice| self.notice(notice));
        drop(exit);
        if let Some(times) = &times {
            self.in_took.is(times);
        }
        self.copies.put(b.rx.take_tap());
        self.in_pool.put(b);
    }
}
