//! TCP like ttcp's: writes of a chosen size from hosts to hosts, and the bytes that arrive are
//! counted where they arrive. The threads are of this process, their sockets in the hosts'
//! namespaces and bound to the hosts' addresses.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddrV4, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, socket_with};

use crate::clock;
use crate::error::LabError;
use crate::interrupt;
use crate::topology::{Host, Path};

/// Load to send.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct TtcpLoad {
    /// Connections from each sender.
    pub connections: u32,
    /// Bytes of a write.
    pub write: usize,
    /// Each write leaves at once (TCP_NODELAY); otherwise the kernel joins small ones.
    pub nodelay: bool,
    /// Bits of payload per second over all connections; as much as goes when absent.
    pub rate: Option<f64>,
}

/// Counts at the end. Every byte that was sent has arrived, or the load would have failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TtcpCounts {
    /// Bytes given to the kernel.
    pub sent: u64,
    /// Bytes that arrived.
    pub received: u64,
    /// Writes.
    pub writes: u64,
}

/// First port of the receivers, one for each path.
const PORT: u16 = 5010;
/// A port where nobody listens, and how often it is tried.
const NOBODY: u16 = 9;
const TRIPS: usize = 5;
/// A blocked send or receive returns after this time, to look whether the measurement has ended.
const STOP_CHECK: Duration = Duration::from_millis(200);
/// For what is under way to arrive.
const DRAIN: Duration = Duration::from_secs(10);
/// Room of one read.
const ROOM: usize = 256 << 10;

/// A load at work; dropping it ends it.
#[derive(Debug)]
pub struct Ttcp {
    shared: Arc<Shared>,
    senders: Vec<JoinHandle<io::Result<()>>>,
    receivers: Vec<JoinHandle<io::Result<()>>>,
}

#[derive(Debug, Default)]
struct Shared {
    /// Senders stop writing.
    stop: AtomicBool,
    /// Receivers stop waiting.
    abandon: AtomicBool,
    sent: AtomicU64,
    writes: AtomicU64,
    received: AtomicU64,
}

impl Ttcp {
    /// Connects along every path and starts to send.
    pub fn start(paths: &[Path<'_>], load: TtcpLoad) -> Result<Self, LabError> {
        let failed = |e: io::Error| LabError::Measurement(format!("the TCP load: {e}"));
        if paths.is_empty() || load.connections == 0 || load.write == 0 {
            return Err(LabError::Usage("a TCP load needs a path, a connection and a byte to write".into()));
        }
        let mut ttcp = Self { shared: Arc::default(), senders: Vec::new(), receivers: Vec::new() };
        let mut streams = Vec::new();
        for (n, path) in paths.iter().enumerate() {
            let to = SocketAddrV4::new(path.to.address, PORT + n as u16);
            let listener = path.to.netns.inside(|| TcpListener::bind(to))?.map_err(failed)?;
            for _ in 0..load.connections {
                interrupt::check()?;
                let out = connected(path.from, to)?.map_err(|e| {
                    LabError::Measurement(format!("{} cannot connect to {to}: {e}", path.from.address))
                })?;
                let (inn, _) = listener.accept().map_err(failed)?;
                out.set_nodelay(load.nodelay).map_err(failed)?;
                out.set_write_timeout(Some(STOP_CHECK)).map_err(failed)?;
                inn.set_read_timeout(Some(STOP_CHECK)).map_err(failed)?;
                streams.push((out, inn));
            }
        }
        let rate = load.rate.map(|r| r / streams.len() as f64);
        for (out, inn) in streams {
            let (shared, theirs) = (ttcp.shared.clone(), ttcp.shared.clone());
            let thread = |name: &str| thread::Builder::new().name(name.into());
            let receiver = thread("lab-ttcp-r").spawn(move || receive(inn, &theirs));
            ttcp.receivers.push(receiver.map_err(failed)?);
            let sender = thread("lab-ttcp-s").spawn(move || send(out, load.write, rate, &shared));
            ttcp.senders.push(sender.map_err(failed)?);
        }
        Ok(ttcp)
    }

    /// Bytes that have arrived so far.
    pub fn received(&self) -> u64 {
        self.shared.received.load(Ordering::Relaxed)
    }

    /// Writes so far.
    pub fn writes(&self) -> u64 {
        self.shared.writes.load(Ordering::Relaxed)
    }

    /// Stops sending, waits until everything has arrived.
    pub fn finish(mut self) -> Result<TtcpCounts, LabError> {
        let failed = |e: io::Error| LabError::Measurement(format!("the TCP load: {e}"));
        self.shared.stop.store(true, Ordering::Release);
        for sender in self.senders.drain(..) {
            joined(sender).map_err(failed)?;
        }
        let receivers = &self.receivers;
        interrupt::wait_until(DRAIN, || Ok(receivers.iter().all(JoinHandle::is_finished)))?;
        self.shared.abandon.store(true, Ordering::Release);
        for receiver in self.receivers.drain(..) {
            joined(receiver).map_err(failed)?;
        }
        let counts = TtcpCounts {
            sent: self.shared.sent.load(Ordering::Acquire),
            received: self.shared.received.load(Ordering::Acquire),
            writes: self.shared.writes.load(Ordering::Acquire),
        };
        if counts.sent == counts.received {
            Ok(counts)
        } else {
            let missing = counts.sent - counts.received.min(counts.sent);
            Err(LabError::Measurement(format!(
                "{missing} of {} bytes did not arrive within 10 s",
                counts.sent
            )))
        }
    }
}

impl Drop for Ttcp {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Release);
        self.shared.abandon.store(true, Ordering::Release);
        for thread in self.senders.drain(..).chain(self.receivers.drain(..)) {
            let _ = thread.join();
        }
    }
}

/// Time and CPU time of one transfer.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Transferred {
    /// From the first write until the last byte had arrived, seconds.
    pub seconds: f64,
    /// Bytes that arrived, each as it was sent.
    pub bytes: u64,
}

/// Carries `data` along `path` over one connection, and compares what arrives with it. An error
/// when it takes longer than
/// `at_most`, when anything arrives changed, or with the error of `alive`, which is asked while
/// nothing arrives.
pub fn carry(
    path: &Path<'_>,
    data: &[u8],
    at_most: Duration,
    mut alive: impl FnMut() -> Result<(), LabError>,
) -> Result<Transferred, LabError> {
    let failed = |e: io::Error| LabError::Measurement(format!("the transfer: {e}"));
    let to = SocketAddrV4::new(path.to.address, PORT);
    let listener = path.to.netns.inside(|| TcpListener::bind(to))?.map_err(failed)?;
    let mut out = connected(path.from, to)?.map_err(failed)?;
    let (mut inn, _) = listener.accept().map_err(failed)?;
    out.set_write_timeout(Some(STOP_CHECK)).map_err(failed)?;
    inn.set_read_timeout(Some(STOP_CHECK)).map_err(failed)?;
    let start = clock::now();
    // When nothing gets through, the sender is not told that nobody receives any more.
    let stop = AtomicBool::new(false);
    let late =
        || stop.load(Ordering::Relaxed) || clock::now() - start > at_most || interrupt::check().is_err();
    let over =
        || io::Error::new(io::ErrorKind::TimedOut, format!("no end after {} s", at_most.as_secs_f64()));
    let mut ended = None;
    let arrived = thread::scope(|scope| {
        let sender = scope.spawn(|| {
            let mut at = 0;
            while at < data.len() {
                match out.write(&data[at..data.len().min(at + 65_536)]) {
                    Ok(n) => at += n,
                    Err(e) if again(&e) && !late() => {}
                    Err(e) if again(&e) => return Err(over()),
                    Err(e) => return Err(e),
                }
            }
            out.shutdown(Shutdown::Write)
        });
        let mut room = vec![0; ROOM];
        let mut at = 0;
        let received = loop {
            match inn.read(&mut room) {
                Ok(0) => break Ok(()),
                Ok(n) if data.get(at..at + n) == Some(&room[..n]) => at += n,
                Ok(_) => break Err(io::Error::other("what arrived is not what was sent")),
                Err(e) if again(&e) && !late() => {
                    ended = alive().err();
                    if ended.is_some() {
                        break Err(e);
                    }
                }
                Err(e) if again(&e) => break Err(over()),
                Err(e) => break Err(e),
            }
        };
        let seconds = (clock::now() - start).as_secs_f64();
        if received.is_err() {
            // So that the sender ends too.
            stop.store(true, Ordering::Relaxed);
            let _ = inn.shutdown(Shutdown::Both);
        }
        let sent = match sender.join() {
            Ok(sent) => sent,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        received.and(sent).map(|()| Transferred { seconds, bytes: at as u64 })
    });
    interrupt::check()?;
    ended.map_or(Ok(()), Err)?;
    arrived.map_err(failed)
}

/// The least of some round trips along a path on which nothing else is sent, seconds: of an attempt
/// to connect to a port where nobody listens, which the far host refuses at once. `None` when none
/// was refused.
pub fn round_trip(path: &Path<'_>) -> Result<Option<f64>, LabError> {
    let to = SocketAddrV4::new(path.to.address, NOBODY);
    let mut least: Option<f64> = None;
    for _ in 0..TRIPS {
        interrupt::check()?;
        let trip = path.from.netns.inside(|| {
            let start = clock::now();
            let refused = connect_from(path.from.address, to);
            let seconds = (clock::now() - start).as_secs_f64();
            refused.is_err_and(|e| e.kind() == io::ErrorKind::ConnectionRefused).then_some(seconds)
        })?;
        least = least.into_iter().chain(trip).reduce(f64::min);
    }
    Ok(least)
}

fn joined(thread: JoinHandle<io::Result<()>>) -> io::Result<()> {
    match thread.join() {
        Ok(result) => result,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

/// A connection from the host's own address.
fn connected(from: Host<'_>, to: SocketAddrV4) -> Result<io::Result<TcpStream>, LabError> {
    from.netns.inside(|| connect_from(from.address, to))
}

fn connect_from(address: Ipv4Addr, to: SocketAddrV4) -> io::Result<TcpStream> {
    let socket = socket_with(AddressFamily::INET, SocketType::STREAM, SocketFlags::CLOEXEC, None)?;
    bind(&socket, &SocketAddrV4::new(address, 0))?;
    // A path that carries nothing is given up after some seconds, not after two minutes.
    rustix::net::sockopt::set_tcp_user_timeout(&socket, 5000)?;
    connect(&socket, &to)?;
    rustix::net::sockopt::set_tcp_user_timeout(&socket, 0)?;
    Ok(TcpStream::from(socket))
}

fn send(mut stream: TcpStream, size: usize, rate: Option<f64>, shared: &Shared) -> io::Result<()> {
    let chunk: Vec<u8> = (0..size).map(|n| n as u8).collect();
    let start = clock::now();
    let (mut own, mut at) = (0u64, 0);
    while !shared.stop.load(Ordering::Relaxed) {
        if let Some(rate) = rate {
            let ahead = own as f64 * 8.0 / rate - (clock::now() - start).as_secs_f64();
            // Writes in bunches of a millisecond; never longer than it takes to notice the end.
            if ahead > 0.001 {
                thread::sleep(Duration::from_secs_f64(ahead.min(0.1)));
                continue;
            }
        }
        match stream.write(&chunk[at..]) {
            Ok(n) => {
                own += n as u64;
                shared.sent.fetch_add(n as u64, Ordering::Relaxed);
                shared.writes.fetch_add(1, Ordering::Relaxed);
                // The next write sends the rest of this one, so the bytes of the stream stay the
                // same.
                at = if at + n == size { 0 } else { at + n };
            }
            Err(e) if again(&e) => {}
            Err(e) => return Err(e),
        }
    }
    stream.shutdown(Shutdown::Write)
}

fn receive(mut stream: TcpStream, shared: &Shared) -> io::Result<()> {
    let mut room = vec![0; ROOM];
    while !shared.abandon.load(Ordering::Relaxed) {
        match stream.read(&mut room) {
            Ok(0) => return Ok(()),
            Ok(n) => {
                shared.received.fetch_add(n as u64, Ordering::Relaxed);
            }
            Err(e) if again(&e) => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn again(e: &io::Error) -> bool {
    matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut | io::ErrorKind::Interrupted)
}
