//! Our own receiver: one thread with one UDP socket inside a host's namespace, which takes in everything that arrives for
//! its port until it is told that no more was sent and the way has been quiet for a while.
//!
//! A packet's time is that at which the kernel took it from the link: how long it then waits for this thread, which may
//! share a processor with what is measured, is no delay of the system under test.

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use ironswan_io::mmsg::RecvSlots;
use ironswan_io::udp::{UdpConfig, UdpSocket};
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::frame::Shape;
use super::tally::{Received, Tally};
use crate::clock;
use crate::error::LabError;
use crate::topology::{Cpus, Netns};

/// Messages of one call, and room for each: merged datagrams come in up to 64 KB.
const MESSAGES: usize = 32;
const ROOM: usize = 1 << 16;
/// After the last packet was sent: no longer than this, and shorter when nothing has come for [`QUIET`].
const DRAIN: Duration = Duration::from_secs(3);
const QUIET: Duration = Duration::from_millis(150);

/// A receiver at work.
#[derive(Debug)]
pub struct Receiver {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Counted>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// The generator has ended.
    over: AtomicBool,
    /// Sound packets so far.
    unique: AtomicU64,
}

/// What a receiver leaves.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Counted {
    /// By packets.
    pub received: Received,
    /// Packets that the kernel dropped since the receiver's own buffer was full.
    pub socket_drops: u64,
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
        let failed = |e: &dyn std::fmt::Display| LabError::Measurement(format!("the receiver: {e}"));
        // A second of large packets: what is lost here is the laboratory's fault.
        let config = UdpConfig { dont_fragment: false, buffer: 128 << 20, ..UdpConfig::esp(false, port, 0) };
        // A socket belongs to the namespace in which it was made, whoever uses it.
        let socket = netns.inside(|| UdpSocket::bind(config))?.map_err(|e| failed(&e))?;
        socket.stamp_arrivals().map_err(|e| failed(&e))?;
        let shared = Arc::new(Shared::default());
        let (theirs, cpus) = (shared.clone(), cpus.cloned());
        let thread = std::thread::Builder::new()
            .name("lab-receiver".into())
            .spawn(move || {
                if let Some(cpus) = &cpus {
                    // The caller has pinned threads to the same processors already; here it cannot fail differently.
                    let _ = cpus.pin_this_thread();
                }
                receive(&socket, shape, epoch, &theirs)
            })
            .map_err(|e| failed(&e))?;
        Ok(Self { shared, thread: Some(thread) })
    }

    /// Sound packets so far.
    pub fn unique(&self) -> u64 {
        self.shared.unique.load(Ordering::Relaxed)
    }

    /// Says that no more will be sent, waits until nothing comes any more, and returns what was counted.
    pub fn finish(mut self) -> Counted {
        self.shared.over.store(true, Ordering::Release);
        match self.thread.take().map(JoinHandle::join) {
            Some(Ok(counted)) => counted,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => Counted { received: Received::default(), socket_drops: 0 },
        }
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Release);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn receive(socket: &UdpSocket, shape: Shape, epoch: Instant, shared: &Shared) -> Counted {
    let mut tally = Tally::new(shape);
    let mut slots = RecvSlots::new(MESSAGES);
    let mut buffer = vec![0; MESSAGES * ROOM];
    let mut got = Vec::with_capacity(MESSAGES);
    let (mut ended, mut heard) = (None, clock::now());
    loop {
        got.clear();
        let n = slots.recv(socket.as_fd(), &mut buffer, ROOM, 0, &mut got).unwrap_or(0);
        // One after the other: a pause in between counts for the packets.
        let (today, now) = (clock::since_epoch(), clock::now());
        for (i, r) in got.iter().enumerate() {
            let waited = slots.arrived(i).map_or(Duration::ZERO, |at| today.saturating_sub(at));
            let time = now.saturating_duration_since(epoch).saturating_sub(waited).as_nanos() as u64;
            let bytes = &buffer[r.offset..r.offset + r.len];
            // An empty datagram has no chunks, and is none of ours.
            if bytes.is_empty() {
                tally.take(bytes, time);
            }
            bytes.chunks(r.segment.max(1)).for_each(|payload| tally.take(payload, time));
        }
        if n > 0 {
            heard = now;
            shared.unique.store(tally.unique(), Ordering::Relaxed);
        }
        if shared.over.load(Ordering::Acquire) {
            let since = *ended.get_or_insert(now);
            // Also while something arrives: what is sent for ever, or again and again, is waited for no longer.
            if now - since >= DRAIN || (now - heard >= QUIET && now - since >= QUIET) {
                break;
            }
        }
        if n > 0 {
            continue;
        }
        let timeout = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
        // Ready, late or interrupted: the next receive shows.
        let _ = poll(&mut [PollFd::new(socket, PollFlags::IN)], Some(&timeout));
    }
    Counted { received: tally.finish(), socket_drops: socket.drops() }
}
