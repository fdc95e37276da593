//! UDP messages from hosts to hosts, as `ttcp -u` writes them: each message is one write, one
//! packet and, inside a tunnel, one ESP packet. The threads are of this process, their sockets in
//! the hosts' namespaces, so that hosts which are gateways themselves can send, too.
//!
//! Closed loop: at most [`MessageLoad::under_way`] messages are on their way at once, so that the
//! rate is the one that the path carries. A sender without such a limit fills the queues in front
//! of a gateway, takes the processor from it, and measures the drops.

use std::io;
use std::net::{SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::frame::{Family, MAX_PAYLOAD, MIN_PAYLOAD, Mark, Shape, pattern};
use super::receiver::{Arrivals, Counted, Receiver};
use crate::clock;
use crate::error::LabError;
use crate::interrupt;
use crate::topology::{Host, Path};

/// Load to send.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MessageLoad {
    /// Bytes of a message: the payload of its packet.
    pub size: usize,
    /// Most messages on their way at once, over all paths.
    pub under_way: u32,
    /// Distinguishes the packets of this load from those of any other; each path adds its number.
    pub tag: u32,
}

/// Counts at the end, over all paths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MessageCounts {
    /// Messages given to the kernel.
    pub sent: u64,
    /// Messages that arrived, each once and undamaged.
    pub received: u64,
    /// Messages that arrived again.
    pub duplicates: u64,
    /// Packets that were damaged, or not of this load.
    pub corrupt: u64,
}

/// First port of the receivers, one for each path.
const PORT: u16 = 5110;
/// A blocked send returns after this time, to look whether the load has ended.
const STOP_CHECK: Duration = Duration::from_millis(200);
/// Messages are taken for lost when this long none has arrived while as many as may be were under
/// way.
const GIVE_UP: Duration = Duration::from_millis(50);
/// Pause of a sender that may not send before something arrives.
const PAUSE: Duration = Duration::from_micros(50);
/// Messages of a sender between two looks at what has arrived.
const LOOK: u64 = 32;

/// A load at work; dropping it ends it.
#[derive(Debug)]
pub struct Messages {
    shared: Arc<Shared>,
    senders: Vec<JoinHandle<io::Result<()>>>,
    receivers: Vec<Receiver>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Senders stop writing.
    stop: AtomicBool,
    sent: AtomicU64,
}

/// One sender.
struct Sender {
    socket: UdpSocket,
    shape: Shape,
    window: Window,
    arrivals: Arrivals,
    epoch: Instant,
    shared: Arc<Shared>,
}

impl Messages {
    /// Starts to send along every path.
    pub fn start(paths: &[Path<'_>], load: MessageLoad) -> Result<Self, LabError> {
        let failed = |e: io::Error| LabError::Measurement(format!("the UDP load: {e}"));
        let fits = (MIN_PAYLOAD..=MAX_PAYLOAD).contains(&load.size);
        if paths.is_empty() || !fits || load.under_way == 0 {
            return Err(LabError::Usage(format!(
                "a UDP load needs a path, and messages of {MIN_PAYLOAD} to {MAX_PAYLOAD} bytes"
            )));
        }
        let epoch = clock::now();
        let most = (u64::from(load.under_way) / paths.len() as u64).max(1);
        let mut messages = Self { shared: Arc::default(), senders: Vec::new(), receivers: Vec::new() };
        let mut senders = Vec::new();
        for (path, n) in paths.iter().zip(0u16..) {
            interrupt::check()?;
            let tag = load.tag + u32::from(n);
            let shape = Shape { payload: load.size, mix: None, flows: 1, family: Family::V4, tag };
            let receiver = Receiver::start(path.to.netns, PORT + n, shape, epoch, None)?;
            let to = SocketAddrV4::new(path.to.address, PORT + n);
            let socket = connected(path.from, to)?.map_err(failed)?;
            let (arrivals, shared) = (receiver.arrivals(), messages.shared.clone());
            let window = Window::new(most, epoch);
            senders.push(Sender { socket, shape, window, arrivals, epoch, shared });
            messages.receivers.push(receiver);
        }
        for sender in senders {
            let thread = thread::Builder::new().name("lab-messages".into());
            messages.senders.push(thread.spawn(move || sender.run()).map_err(failed)?);
        }
        Ok(messages)
    }

    /// Messages that have arrived so far, each once.
    pub fn received(&self) -> u64 {
        self.receivers.iter().map(Receiver::unique).sum()
    }

    /// Messages written so far.
    pub fn sent(&self) -> u64 {
        self.shared.sent.load(Ordering::Relaxed)
    }

    /// Stops sending, and waits until no more messages arrive.
    pub fn finish(mut self) -> Result<MessageCounts, LabError> {
        self.shared.stop.store(true, Ordering::Release);
        for sender in self.senders.drain(..) {
            let ended = sender.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
            ended.map_err(|e| LabError::Measurement(format!("the UDP load: {e}")))?;
        }
        self.receivers.iter().for_each(Receiver::all_sent);
        let all: Vec<Counted> = self.receivers.drain(..).map(Receiver::finish).collect();
        let sum = |of: fn(&Counted) -> u64| -> u64 { all.iter().map(of).sum() };
        Ok(MessageCounts {
            sent: self.sent(),
            received: sum(|c| c.received.unique),
            duplicates: sum(|c| c.received.duplicates),
            corrupt: sum(|c| c.received.corrupt),
        })
    }
}

impl Drop for Messages {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        for sender in self.senders.drain(..) {
            let _ = sender.join();
        }
    }
}

impl Sender {
    fn run(mut self) -> io::Result<()> {
        let mut message = vec![0; MIN_PAYLOAD];
        message.extend_from_slice(&pattern()[..self.shape.payload - MIN_PAYLOAD]);
        let mut number = 0u32;
        while !self.shared.stop.load(Ordering::Relaxed) {
            let now = clock::now();
            let room = self.window.room(u64::from(number), self.arrivals.unique(), now);
            if room == 0 {
                thread::sleep(PAUSE);
                continue;
            }
            let time = (now - self.epoch).as_nanos() as u64;
            for _ in 0..room.min(LOOK) {
                self.shape.write(&Mark { number, time, flow: 0 }, &mut message);
                match self.socket.send(&message) {
                    Ok(_) => number = number.wrapping_add(1),
                    Err(e) if passing(&e) => {
                        thread::sleep(PAUSE);
                        break;
                    }
                    Err(e) => return Err(e),
                }
                self.shared.sent.fetch_add(1, Ordering::Relaxed);
            }
        }
        Ok(())
    }
}

/// The messages of one sender that may be on their way. Pure.
#[derive(Debug)]
struct Window {
    most: u64,
    /// Messages that were taken for lost.
    lost: u64,
    /// Messages that had arrived when that number changed last, and when that was.
    arrived: u64,
    changed: Instant,
}

impl Window {
    fn new(most: u64, now: Instant) -> Self {
        Self { most, lost: 0, arrived: 0, changed: now }
    }

    /// Messages that may be sent now, when `sent` have been and `arrived` of them have arrived.
    fn room(&mut self, sent: u64, arrived: u64, now: Instant) -> u64 {
        if arrived != self.arrived {
            (self.arrived, self.changed) = (arrived, now);
        }
        // A message that was taken for lost may arrive after all.
        self.lost = self.lost.min(sent.saturating_sub(arrived));
        let under_way = sent.saturating_sub(arrived + self.lost);
        if under_way < self.most {
            return self.most - under_way;
        }
        if now - self.changed < GIVE_UP {
            return 0;
        }
        self.lost = sent.saturating_sub(arrived);
        self.changed = now;
        self.most
    }
}

/// A socket from the host's own address.
fn connected(from: Host<'_>, to: SocketAddrV4) -> Result<io::Result<UdpSocket>, LabError> {
    from.netns.inside(|| {
        let socket = UdpSocket::bind(SocketAddrV4::new(from.address, 0))?;
        socket.set_write_timeout(Some(STOP_CHECK))?;
        socket.connect(to)?;
        Ok(socket)
    })
}

/// An error that passes: no room, or the news of an ICMP error for an earlier message. The message
/// was not sent.
fn passing(e: &io::Error) -> bool {
    use io::ErrorKind::{
        ConnectionRefused, HostUnreachable, Interrupted, NetworkUnreachable, TimedOut, WouldBlock,
    };
    e.raw_os_error() == Some(rustix::io::Errno::NOBUFS.raw_os_error())
        || [ConnectionRefused, HostUnreachable, Interrupted, NetworkUnreachable, TimedOut, WouldBlock]
            .contains(&e.kind())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_messages_are_under_way_than_may_be_and_lost_ones_are_given_up() {
        let start = clock::now();
        let at = |ms| start + Duration::from_millis(ms);
        let mut window = Window::new(10, start);
        assert_eq!(window.room(0, 0, at(0)), 10);
        assert_eq!(window.room(10, 0, at(1)), 0);
        assert_eq!(window.room(10, 4, at(40)), 4);
        // Nothing for long enough: the ten are taken for lost.
        assert_eq!(window.room(14, 4, at(80)), 0);
        assert_eq!(window.room(14, 4, at(90)), 10);
        assert_eq!((window.lost, window.room(24, 4, at(100))), (10, 0));
        // Three of them come after all, and all of the others.
        assert_eq!(window.room(24, 17, at(101)), 10);
        assert_eq!(window.room(34, 27, at(102)), 10);
    }
}
