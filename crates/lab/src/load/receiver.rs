//! Our own receiver: a thread with a socket, or several each with its own, inside a box's
//! namespace. It takes in everything that arrives for its UDP port, or everything that arrives on a
//! link, until it is told that no more was sent and the way has been quiet for a while.
//!
//! A packet's time is that at which the kernel took it from the link: how long it then waits for
//! this thread, which may share a processor with what is measured, is no delay of the system under
//! test.

use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ironswan_io::mmsg::{self, RecvSlots};
use ironswan_io::packet::PacketSocket;
use ironswan_io::udp::{UdpConfig, UdpSocket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::esp::{EspCounts, Opener};
use super::frame::{Family, Frames, Shape};
use super::tally::{Received, Tally};
use crate::clock;
use crate::error::LabError;
use crate::topology::{Cpus, Netns};

/// Limits the messages of one call, and the bytes of each: merged datagrams have up to 64 KB.
const MESSAGES: usize = 32;
const ROOM: usize = 1 << 16;
/// The same for frames of a link, which are never merged.
const FRAMES: usize = 64;
const FRAME: usize = 2048;
/// Receive buffer of a socket in bytes: one second of large packets. Packets lost for lack of room
/// are the laboratory's fault.
const BUFFER: u32 = 128 << 20;
/// Number of full calls in a row from which on we assume that more is waiting than can be received.
const BEHIND: u32 = 64;
/// The receiver stops when nothing has come for [`QUIET`] since the last packet was sent, and after
/// [`DRAIN`] at the latest. After a trial that was shorter than [`QUIET`] it waits for as long as
/// the trial took, but at least for [`SHORT`].
const DRAIN: Duration = Duration::from_secs(3);
const QUIET: Duration = Duration::from_millis(150);
const SHORT: Duration = Duration::from_millis(50);
/// While packets come closer together than [`SPARSE`], the thread sleeps this long and looks again,
/// instead of asking to be woken. A waking costs CPU time of whoever delivers the packet, and that
/// is the system under test. A network card that moderates its interrupts does the same for a host.
const MODERATION: Duration = Duration::from_micros(250);
const SPARSE: Duration = Duration::from_millis(2);

/// A receiver at work.
#[derive(Debug)]
pub struct Receiver {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<Part>>,
}

/// What one thread has counted.
enum Part {
    /// Of the datagrams at its socket, and how many of them the kernel dropped.
    Datagrams(Box<Tally>, u64),
    /// Of all frames of a link.
    Frames(Counted),
}

impl Counted {
    /// What all threads have counted together.
    fn together(parts: Vec<Part>) -> Self {
        let mut all: Option<Box<Tally>> = None;
        let mut socket_drops = 0;
        for part in parts {
            match part {
                Part::Frames(counted) => return counted,
                Part::Datagrams(tally, drops) => {
                    socket_drops += drops;
                    match &mut all {
                        Some(all) => all.merge(&tally),
                        None => all = Some(tally),
                    }
                }
            }
        }
        let received = all.map_or_else(Received::default, |tally| tally.finish());
        Self { received, socket_drops, esp: None }
    }
}

#[derive(Debug, Default)]
struct Shared {
    /// The generator has ended.
    over: AtomicBool,
    /// Sound packets so far.
    unique: AtomicU64,
}

/// Follows from another thread what a receiver has counted.
#[derive(Debug, Clone)]
pub(super) struct Arrivals(Arc<Shared>);

impl Arrivals {
    /// Sound packets so far.
    pub(super) fn unique(&self) -> u64 {
        self.0.unique.load(Ordering::Relaxed)
    }
}

/// Results of a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Counted {
    /// By packets.
    pub received: Received,
    /// Packets that the kernel dropped since the receiver's own buffer was full.
    pub socket_drops: u64,
    /// Counts of ESP packets, where the receiver is on the outer side of a gateway.
    pub esp: Option<EspCounts>,
}

impl Counted {
    /// Packets that arrived, each once, those that were not opened included.
    pub fn arrived(&self) -> u64 {
        self.received.unique + self.esp.map_or(0, |esp| esp.unopened)
    }
}

/// Socket of a receiver, and the tally that counts its packets.
trait Intake: Send + 'static {
    fn socket(&self) -> BorrowedFd<'_>;

    /// Takes in what a call has received, each with the time of its arrival, nanoseconds since the
    /// trial's epoch; `behind` says that more was waiting than could be taken in.
    fn take(&mut self, buffer: &mut [u8], got: &[(mmsg::Received, u64)], behind: bool);

    /// Packets of this trial so far, each once.
    fn unique(&self) -> u64;

    fn finish(self) -> Part;
}

/// Receives datagrams at a UDP port, and tallies them.
struct Port {
    socket: UdpSocket,
    tally: Box<Tally>,
}

/// Receives frames from a link, opens their ESP, and tallies the packets inside.
struct Link {
    socket: PacketSocket,
    opener: Opener,
}

/// Limits how long we try to bind a port that was closed just now: a program that another thread is
/// starting holds a copy of the closed socket until the program runs.
const BIND_TIMEOUT: Duration = Duration::from_secs(1);

/// Binds a UDP socket. While such a copy holds the port, tries again for [`BIND_TIMEOUT`].
fn bind(config: UdpConfig) -> Result<UdpSocket, ironswan_io::Error> {
    let began = clock::now();
    loop {
        match UdpSocket::bind(config) {
            Err(ironswan_io::Error::PortInUse { .. }) if clock::now() - began < BIND_TIMEOUT => {
                std::thread::sleep(Duration::from_millis(10));
            }
            other => return other,
        }
    }
}

impl Receiver {
    /// Listens on `port` inside `netns`, on the processors of `cpus`.
    pub fn start(
        netns: &Netns,
        port: u16,
        shape: Shape,
        epoch: Instant,
        cpus: Option<&Cpus>,
    ) -> Result<Self, LabError> {
        Self::start_many(netns, (port, 1), shape, epoch, cpus)
    }

    /// The same with so many threads, each with a socket of its own, among which the kernel divides
    /// the flows.
    pub fn start_many(
        netns: &Netns,
        (port, threads): (u16, u32),
        shape: Shape,
        epoch: Instant,
        cpus: Option<&Cpus>,
    ) -> Result<Self, LabError> {
        let esp = UdpConfig::esp(shape.family == Family::V6, port, 0);
        let config = UdpConfig { dont_fragment: false, buffer: BUFFER, shared: threads > 1, ..esp };
        // A socket belongs to the namespace in which it was made, whoever uses it.
        let one = |_| {
            let socket = netns.inside(|| bind(config))?.map_err(|e| failed(&e))?;
            mmsg::stamp_arrivals(socket.as_fd()).map_err(|e| failed(&e))?;
            Ok(Port { socket, tally: Box::new(Tally::new(shape)) })
        };
        let ports = (0..threads.max(1)).map(one).collect::<Result<Vec<_>, LabError>>()?;
        Self::spawn(ports, (MESSAGES, ROOM), epoch, cpus)
    }

    /// Takes every frame that arrives on `interface` inside `netns`, on the processors of `cpus`.
    pub fn tap(
        netns: &Netns,
        interface: &str,
        opener: Opener,
        epoch: Instant,
        cpus: Option<&Cpus>,
    ) -> Result<Self, LabError> {
        let socket = netns.inside(|| PacketSocket::listen(interface, 1, BUFFER))?.map_err(|e| failed(&e))?;
        mmsg::stamp_arrivals(socket.as_fd()).map_err(|e| failed(&e))?;
        let room = FRAME + opener.largest().saturating_sub(Frames::STRIDE);
        Self::spawn(vec![Link { socket, opener }], (FRAMES, room), epoch, cpus)
    }

    fn spawn(
        intakes: Vec<impl Intake>,
        room: (usize, usize),
        epoch: Instant,
        cpus: Option<&Cpus>,
    ) -> Result<Self, LabError> {
        // One that cannot start ends those before it.
        let mut receiver = Self { shared: Arc::new(Shared::default()), threads: Vec::new() };
        for intake in intakes {
            let (theirs, cpus) = (receiver.shared.clone(), cpus.cloned());
            let thread = std::thread::Builder::new()
                .name("lab-receiver".into())
                .spawn(move || {
                    if let Some(cpus) = &cpus {
                        // The caller has pinned threads to the same processors already; here it
                        // cannot fail differently.
                        let _ = cpus.pin_this_thread();
                    }
                    receive(intake, room, epoch, &theirs)
                })
                .map_err(|e| failed(&e))?;
            receiver.threads.push(thread);
        }
        Ok(receiver)
    }

    /// Sound packets so far.
    pub fn unique(&self) -> u64 {
        self.shared.unique.load(Ordering::Relaxed)
    }

    /// The same count for another thread.
    pub(super) fn arrivals(&self) -> Arrivals {
        Arrivals(self.shared.clone())
    }

    /// Tells the receiver that the generator has sent its last packet.
    pub fn all_sent(&self) {
        self.shared.over.store(true, Ordering::Release);
    }

    /// Does the same, waits until no more packets come, and returns the counts.
    pub fn finish(mut self) -> Counted {
        self.all_sent();
        let join = |thread: JoinHandle<Part>| match thread.join() {
            Ok(part) => part,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        Counted::together(std::mem::take(&mut self.threads).into_iter().map(join).collect())
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

fn failed(e: &dyn std::fmt::Display) -> LabError {
    LabError::Measurement(format!("the receiver: {e}"))
}

impl Intake for Port {
    fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn take(&mut self, buffer: &mut [u8], got: &[(mmsg::Received, u64)], _behind: bool) {
        for &(r, time) in got {
            let bytes = &buffer[r.offset..r.offset + r.len];
            // An empty datagram has no chunks, and is none of ours.
            if bytes.is_empty() {
                self.tally.take(bytes, time);
            }
            for payload in bytes.chunks(r.segment.max(1)) {
                self.tally.take(payload, time);
            }
        }
    }

    fn unique(&self) -> u64 {
        self.tally.unique()
    }

    fn finish(self) -> Part {
        Part::Datagrams(self.tally, self.socket.drops())
    }
}

impl Intake for Link {
    fn socket(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }

    fn take(&mut self, buffer: &mut [u8], got: &[(mmsg::Received, u64)], behind: bool) {
        self.opener.take(buffer, got.iter().map(|(r, time)| (r.offset..r.offset + r.len, *time)), behind);
    }

    fn unique(&self) -> u64 {
        self.opener.unique()
    }

    fn finish(self) -> Part {
        let socket_drops = self.socket.take_drops().into();
        let (received, esp) = self.opener.finish();
        Part::Frames(Counted { received, socket_drops, esp })
    }
}

/// Two readings of the clock count as simultaneous when they are closer together than this.
/// Otherwise both clocks are read again, [`LOOKS`] times at most.
const TOGETHER: Duration = Duration::from_micros(20);
const LOOKS: usize = 5;

/// Reads two clocks at the same moment: time since the Unix epoch, by which the kernel stamps
/// packets, and the laboratory's clock. If this thread were stopped between the two readings, its
/// packets would seem to have come later by that pause.
fn both_clocks() -> (Duration, Instant) {
    let look = || {
        let (before, today, now) = (clock::now(), clock::since_epoch(), clock::now());
        (now - before, today, now)
    };
    let mut best = look();
    for _ in 1..LOOKS {
        if best.0 <= TOGETHER {
            break;
        }
        let next = look();
        if next.0 < best.0 {
            best = next;
        }
    }
    (best.1, best.2)
}

fn receive(
    mut intake: impl Intake,
    (messages, room): (usize, usize),
    epoch: Instant,
    shared: &Shared,
) -> Part {
    let mut slots = RecvSlots::new(messages);
    let mut buffer = vec![0; messages * room];
    let (mut got, mut stamped) = (Vec::with_capacity(messages), Vec::with_capacity(messages));
    let began = clock::now();
    let (mut ended, mut heard, mut known) = (None, began, 0);
    let mut full = 0u32;
    let mut dense = false;
    loop {
        got.clear();
        let n = slots.recv(intake.socket(), &mut buffer, room, 0, &mut got).unwrap_or(0);
        let (today, now) = both_clocks();
        let since_epoch = now.saturating_duration_since(epoch);
        let time = |i| {
            let waited = slots.arrived(i).map_or(Duration::ZERO, |at| today.saturating_sub(at));
            since_epoch.saturating_sub(waited).as_nanos() as u64
        };
        stamped.clear();
        stamped.extend(got.iter().enumerate().map(|(i, r)| (*r, time(i))));
        full = if n == messages { full.saturating_add(1) } else { 0 };
        intake.take(&mut buffer, &stamped, full >= BEHIND);
        if n > 0 {
            dense = now - heard < SPARSE;
            heard = now;
            let unique = intake.unique();
            shared.unique.fetch_add(unique - known, Ordering::Relaxed);
            known = unique;
        }
        if shared.over.load(Ordering::Acquire) {
            let since = *ended.get_or_insert(now);
            // Also while something arrives: what is sent for ever, or again and again, is waited
            // for no longer.
            let quiet = (since - began).clamp(SHORT, QUIET);
            if now - since >= DRAIN || (now - heard >= quiet && now - since >= quiet) {
                break;
            }
        }
        if n > 0 {
            continue;
        }
        if dense && now - heard < SPARSE {
            std::thread::sleep(MODERATION);
            continue;
        }
        let timeout = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        // Ready, late or interrupted: the next receive shows.
        let _ = poll(&mut [PollFd::from_borrowed_fd(intake.socket(), PollFlags::IN)], Some(&timeout));
    }
    intake.finish()
}
