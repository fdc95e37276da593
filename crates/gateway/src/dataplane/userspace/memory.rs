//! The workers' loop over memory instead of the kernel, for tests and benches: frames that are
//! made, a wire that is a queue, and deliveries that are looked at. Everything between is what runs
//! in a gateway: lanes, locks, tickets, crew.

use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ironswan_crypto::engines::Engines;
use ironswan_crypto::rng::Seeded;
use ironswan_io::clock;
use ironswan_io::mmsg::{Outgoing, Received, RecvSlots};
use ironswan_io::send::Sender;
use ironswan_io::tun::Offloads;
use ironswan_ipsec::{Carrier, Config, Engine, StageTimes, Stages, Stopwatch};
use ironswan_wire::iana::{EncrId, ProtocolId};
use ironswan_wire::ip::checksum::{be16, fold, pseudo, sum};
use ironswan_wire::ip::v4;
use ironswan_wire::offload::Offload;
use ironswan_wire::proposal::EspSuite;
use ironswan_wire::sadb::{
    Action, Command, Direction, Entry, Lifetime, Mode, PolicyAdd, ReqId, SaAdd, SaOptions, Spi,
};
use ironswan_wire::secret::Secret;
use ironswan_wire::selector::{AddrRange, TrafficSelector};

use super::lanes::{Lanes, LanesConfig, lock};
use super::packet_io::{Device, PacketIo};
use super::sockets::token;

/// Bytes of an IPv4 and a UDP header.
const HEADERS: usize = 28;
/// Datagrams that the wire holds before its sender's device has nothing more to read.
const WIRE: usize = 512;

type Written = Box<dyn Fn(&Offload, &[IoSlice<'_>]) + Send + Sync>;
type Sent = Box<dyn Fn(&[u8]) + Send + Sync>;

/// A device in memory: reads give prepared frames, and writes go to a function.
pub(super) struct MemoryDevice {
    /// Frames, each with its virtio header, that are read one after the other and again from the
    /// first.
    frames: Vec<Vec<u8>>,
    read: AtomicU64,
    limit: AtomicU64,
    /// The number of the frame is written into its payload: the counter of its flow.
    numbered: bool,
    wire: Option<Arc<Wire>>,
    /// Is shown every write.
    written: Option<Written>,
}

impl Device for MemoryDevice {
    fn read(&self, frame: &mut [u8]) -> io::Result<usize> {
        // Under the lane's lock: nobody else reads.
        let n = self.read.load(Relaxed);
        let full = self.wire.as_ref().is_some_and(|wire| wire.waiting.load(Relaxed) as usize >= WIRE);
        if n >= self.limit.load(Relaxed) || full {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        self.read.store(n + 1, Relaxed);
        let of = &self.frames[n as usize % self.frames.len()];
        let to = &mut frame[..of.len()];
        to.copy_from_slice(of);
        if self.numbered {
            let counter = (n / self.frames.len() as u64) as u32;
            to[10 + HEADERS..10 + HEADERS + 4].copy_from_slice(&counter.to_be_bytes());
            let packet = &mut to[10..];
            packet[4..6].copy_from_slice(&(counter as u16).to_be_bytes());
            v4::set_checksum(&mut packet[..20]);
            packet[26..28].fill(0);
            let len = (packet.len() - 20) as u16;
            let check = !fold(pseudo(&packet[12..20], 17) + be16(len) + sum(&packet[20..]));
            packet[26..28].copy_from_slice(&check.to_ne_bytes());
        }
        Ok(of.len())
    }

    fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        if let Some(written) = &self.written {
            let header = parts.first().and_then(|h| Offload::parse(h).ok());
            written(&header.ok_or(io::ErrorKind::InvalidInput)?, &parts[1..]);
        }
        Ok(parts.iter().map(|p| p.len()).sum())
    }

    fn offloads(&self) -> Offloads {
        Offloads { checksum: true, tso: true, uso: true }
    }
}

/// Datagrams on their way, each as a send left it: bytes, and the length of each packet.
#[derive(Default)]
pub(super) struct Wire {
    queue: Mutex<VecDeque<(Vec<u8>, usize)>>,
    waiting: AtomicU64,
}

/// The outer side.
pub(super) struct MemoryIo {
    outgoing: Option<Arc<Wire>>,
    incoming: Option<Arc<Wire>>,
    /// Instead of a wire to receive from: datagrams that are received one after the other, and how
    /// many were.
    sealed: Vec<(Vec<u8>, usize)>,
    received: AtomicU64,
    limit: u64,
    /// Is shown every packet that is sent.
    sent: Option<Sent>,
    /// Is called between the stages, for delays.
    pause: Option<Box<dyn Fn() + Send + Sync>>,
}

impl MemoryIo {
    fn new() -> Self {
        Self {
            outgoing: None,
            incoming: None,
            sealed: Vec::new(),
            received: AtomicU64::new(0),
            limit: 0,
            sent: None,
            pause: None,
        }
    }

    fn place(out: &mut Vec<Received>, buf: &mut [u8], slot: usize, (bytes, segment): (&[u8], usize)) {
        let offset = out.len() * slot;
        buf[offset..offset + bytes.len()].copy_from_slice(bytes);
        out.push(Received {
            offset,
            len: bytes.len(),
            segment,
            local: end(2).ip(),
            remote: end(1),
            tos: 0,
            truncated: false,
        });
    }
}

impl PacketIo for Arc<MemoryIo> {
    type Device = MemoryDevice;

    fn receive(
        &self,
        _: u64,
        _: &mut RecvSlots,
        buf: &mut [u8],
        slot: usize,
        out: &mut Vec<Received>,
    ) -> bool {
        for _ in 0..buf.len() / slot {
            if let Some(wire) = &self.incoming {
                let Some((bytes, segment)) = lock(&wire.queue).pop_front() else { break };
                wire.waiting.fetch_sub(1, Relaxed);
                MemoryIo::place(out, buf, slot, (&bytes, segment));
            } else {
                let n = self.received.load(Relaxed);
                if n >= self.limit {
                    break;
                }
                self.received.store(n + 1, Relaxed);
                let (bytes, segment) = &self.sealed[n as usize % self.sealed.len()];
                MemoryIo::place(out, buf, slot, (bytes, *segment));
            }
        }
        !out.is_empty()
    }

    fn prepare(&self, _: u64, _: &mut [u8], _: &mut Received) -> bool {
        true
    }

    fn port(&self, _: u64) -> u16 {
        4500
    }

    fn send(&self, _: &mut Sender, _: Carrier, _: bool, buf: &[u8], list: &[Outgoing]) {
        for m in list {
            let bytes = &buf[m.offset..m.offset + m.len];
            if let Some(sent) = &self.sent {
                bytes.chunks(m.segment).for_each(sent);
            }
            if let Some(wire) = &self.outgoing {
                lock(&wire.queue).push_back((bytes.to_vec(), m.segment));
                wire.waiting.fetch_add(1, Relaxed);
            }
        }
    }

    fn max_segments(&self) -> u16 {
        64
    }

    fn pause(&self) {
        if let Some(pause) = &self.pause {
            pause();
        }
    }
}

fn end(n: u8) -> SocketAddr {
    SocketAddr::from(([192, 0, 2, n], 4500))
}

fn net(n: u8) -> TrafficSelector {
    TrafficSelector::addresses(
        AddrRange::new([10, n, 0, 0].into(), [10, n, 255, 255].into()).expect("an ordered range"),
    )
}

/// The SA of this SPI from gateway 1 to gateway 2, as `me` has it.
fn sa(me: u8, spi: u32, replay_window: u32) -> Command {
    let suite = EspSuite { encr: EncrId::AES_GCM_16, key_bits: 128, integ: None, ke: None, esn: false };
    Command::SaAdd(Box::new(SaAdd {
        direction: if me == 1 { Direction::Out } else { Direction::In },
        protocol: ProtocolId::ESP,
        spi: Spi(spi),
        reqid: ReqId(1),
        local: end(me),
        remote: end(3 - me),
        udp_encap: true,
        mode: Mode::Tunnel,
        suite,
        options: SaOptions::default(),
        encr_key: Secret::new(vec![spi as u8; 20]),
        integ_key: Secret::default(),
        replay_window,
        local_ts: vec![net(me)],
        remote_ts: vec![net(3 - me)],
        lifetime: Lifetime::default(),
        notify_first_use: false,
    }))
}

fn apply(engine: &Engine, command: &Command) {
    engine.apply(Duration::ZERO, command).expect("a command of ours");
}

/// An engine of gateway `me` with one SA.
fn engine(me: u8) -> Arc<Engine> {
    let engine = Engine::new(
        Box::new(Seeded::new(me.into())),
        Config { engines: Engines::of_environment(), ..Config::default() },
    );
    let (local, remote) = (net(me), net(3 - me));
    let policy = PolicyAdd {
        name: "net".into(),
        action: Action::Protect(ReqId(1)),
        local,
        remote,
        priority: 0,
        entry: Entry::default(),
    };
    apply(&engine, &Command::PolicyAdd(policy));
    apply(&engine, &sa(me, 0x1000, 1 << 16));
    engine
}

/// A UDP packet of flow `flow` with so many bytes of payload, behind a virtio header.
fn frame(flow: u16, payload: usize) -> Vec<u8> {
    let udp = (8 + payload) as u16;
    let mut p = Offload::NONE.emit().to_vec();
    p.extend([0x45, 0, 0, 0, 0, 0, 0x40, 0, 63, 17, 0, 0, 10, 1, 0, 2, 10, 2, 0, 2]);
    p.extend(flow.to_be_bytes());
    p.extend(9u16.to_be_bytes());
    p.extend(udp.to_be_bytes());
    p.extend([0, 0]);
    p.extend((0..payload).map(|i| i as u8));
    let packet = &mut p[10..];
    packet[2..4].copy_from_slice(&(20 + udp).to_be_bytes());
    v4::set_checksum(&mut packet[..20]);
    let check = !fold(pseudo(&packet[12..20], 17) + be16(udp) + sum(&packet[20..]));
    packet[26..28].copy_from_slice(&check.to_ne_bytes());
    p
}

fn lanes(
    io: MemoryIo,
    device: MemoryDevice,
    engine: Arc<Engine>,
    workers: usize,
    stopwatch: Stopwatch,
) -> Arc<Lanes<Arc<MemoryIo>>> {
    let config = LanesConfig { workers, batch_bytes: 256 * 1024, stopwatch, known: Arc::default() };
    Arc::new(Lanes::new(
        Arc::new(io),
        Arc::new(device),
        engine,
        &config,
        Box::new(|_| true),
        Box::new(|_| {}),
    ))
}

fn device(frames: Vec<Vec<u8>>, limit: u64) -> MemoryDevice {
    MemoryDevice {
        frames,
        read: AtomicU64::new(0),
        limit: AtomicU64::new(limit),
        numbered: false,
        wire: None,
        written: None,
    }
}

fn stopwatch() -> Stopwatch {
    Stopwatch { read: clock::nanoseconds, cost: clock::reading_cost() }
}

/// Runs the lanes until `done`, and returns how long that took. The first worker's loop polls where
/// a gateway's would sleep.
fn drive(lanes: &[&Arc<Lanes<Arc<MemoryIo>>>], workers: usize, done: impl Fn() -> bool) -> Duration {
    let start = clock::now();
    let now = move || clock::now().saturating_duration_since(start);
    let stop = AtomicBool::new(false);
    std::thread::scope(|s| {
        for l in lanes {
            for _ in 1..workers {
                s.spawn(move || l.assist(now, || {}));
            }
        }
        // All asleep: the clock starts when they could be called.
        while workers > 1 && lanes.iter().any(|l| l.crew.is_awake()) {
            std::thread::yield_now();
        }
        let begin = clock::now();
        for l in &lanes[1..] {
            s.spawn(|| first(l, now, &|| stop.load(Relaxed)));
        }
        first(lanes[0], now, &done);
        let took = clock::now() - begin;
        stop.store(true, Relaxed);
        lanes.iter().for_each(|l| l.crew.end());
        took
    })
}

fn first(lanes: &Lanes<Arc<MemoryIo>>, now: impl Fn() -> Duration, done: &dyn Fn() -> bool) {
    let mut seen = 0;
    while !done() {
        let at = now();
        lanes.turn_out(at);
        lanes.turn_in(token::NATT, at);
        lanes.end_round(at, &mut seen);
    }
}

/// Runs these gateways side by side, each with so many workers, until all are done: how long that
/// took, and the stages of the measured batches of all.
fn run(
    gateways: &[Arc<Lanes<Arc<MemoryIo>>>],
    workers: usize,
    done: impl Fn() -> bool,
) -> (Duration, Stages) {
    let took = drive(&gateways.iter().collect::<Vec<_>>(), workers, done);
    let mut stages = Stages::default();
    gateways.iter().for_each(|lanes| stages.merge(&lanes.stats().stages));
    (took, stages)
}

/// Seals so many packets of one SA in each of this many gateways, with this many workers each: how
/// long that took, and the stages of the measured batches. Panics when they leave out of order.
pub(super) fn outbound(
    gateways: usize,
    workers: usize,
    payload: usize,
    packets: u64,
) -> (Duration, StageTimes) {
    let all: Vec<_> = (0..gateways)
        .map(|_| {
            let sent = Arc::new(AtomicU64::new(0));
            let mut io = MemoryIo::new();
            let seen = sent.clone();
            io.sent = Some(Box::new(move |packet| {
                let number = seen.fetch_add(1, Relaxed) + 1;
                assert_eq!(packet[4..8], (number as u32).to_be_bytes(), "the order of sequence numbers");
            }));
            let frames = (0..64).map(|_| frame(1, payload)).collect();
            (lanes(io, device(frames, packets), engine(1), workers, stopwatch()), sent)
        })
        .collect();
    let (lanes, sent): (Vec<_>, Vec<_>) = all.into_iter().unzip();
    let (took, stages) = run(&lanes, workers, || sent.iter().all(|sent| sent.load(Relaxed) >= packets));
    (took, stages.outbound)
}

/// Datagrams with so many packets of one SA, as a kernel merges them, for [`inbound`].
pub(super) fn sealed(payload: usize, packets: u64) -> Vec<(Vec<u8>, usize)> {
    let wire = Arc::new(Wire::default());
    let io = MemoryIo { outgoing: Some(wire.clone()), ..MemoryIo::new() };
    let frames = (0..64).map(|_| frame(1, payload)).collect();
    let lanes = lanes(io, device(frames, packets), engine(1), 1, stopwatch());
    drive(&[&lanes], 1, || lanes.engine.counters().traffic.out_sent >= packets);
    let queue = std::mem::take(&mut *lock(&wire.queue));
    queue.into()
}

/// Opens and delivers these in each of so many gateways, with this many workers each: how long that
/// took, and the stages of the measured batches. Ends only when none is missing.
pub(super) fn inbound(
    datagrams: Vec<Vec<(Vec<u8>, usize)>>,
    workers: usize,
    packets: u64,
) -> (Duration, StageTimes) {
    let lanes: Vec<_> = datagrams
        .into_iter()
        .map(|datagrams| {
            let mut io = MemoryIo::new();
            io.limit = datagrams.len() as u64;
            io.sealed = datagrams;
            lanes(io, device(vec![vec![0; 20]], 0), engine(2), workers, stopwatch())
        })
        .collect();
    let delivered = |lanes: &Arc<Lanes<Arc<MemoryIo>>>| {
        let t = lanes.engine.counters().traffic;
        t.in_writes + t.in_merged >= packets
    };
    let (took, stages) = run(&lanes, workers, || lanes.iter().all(delivered));
    (took, stages.inbound)
}

#[cfg(test)]
/// Deletes the SA of this SPI.
fn delete(engine: &Engine, me: u8, spi: u32) {
    let direction = if me == 1 { Direction::Out } else { Direction::In };
    let remote = end(3 - me).ip();
    apply(
        engine,
        &Command::SaDelete(ironswan_wire::sadb::SaRef { direction, spi: Spi(spi), reqid: ReqId(1), remote }),
    );
}

#[cfg(test)]
#[path = "memory_tests.rs"]
mod tests;
