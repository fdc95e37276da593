//! The thread that receives ICMP errors, apart from those that move packets. What a narrow path is
//! believed for is judged by [`Paths::judge`], and what an error says about a request of IKE by
//! `Asked::judge`. A flood of forged ones costs this thread a system call for up to 32 and a
//! look-up each; no packet and no IKE message waits for it.

use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ironswan_ike::event::{Level, Undelivered};
use ironswan_io::clock;
use ironswan_io::mmsg::RecvSlots;
use ironswan_io::poller::{Poller, Ready, Waker};
use ironswan_io::raw::RawSocket;
use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::Sources;
use ironswan_wire::ip::icmp;

use super::notice::WorkerNotice;
use super::sockets::{Pair, Sockets};
use crate::dataplane::userspace::paths::Paths;
use crate::diagnosis::{Diagnosed, cannot_wait, no_thread};
use crate::observe::log;

/// Bytes for each error. Routers quote up to 576 or 1,280 bytes in all; one that quotes more is not
/// whole, and refused.
const SLOT: usize = 2048;
/// Errors of one system call.
const SLOTS: usize = 32;
/// The control thread is told of errors at most this often.
const PAUSE: Duration = Duration::from_millis(10);
/// The poller's number of the waker; those of the sockets follow.
const WAKE: u64 = 0;

/// Judges of errors.
pub(super) struct Judges {
    /// Judges those about narrow paths.
    pub(super) paths: Arc<Paths>,
    /// Our ports for ESP in UDP, of IPv4 and IPv6.
    pub(super) natt: [Option<u16>; 2],
    /// Hold what judges those about requests of IKE.
    pub(super) sent: Arc<Sockets>,
}

/// The running thread. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Listener {
    end: Arc<(AtomicBool, Waker)>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Opens the sockets and starts the thread. `tell` gets the notices of it: peers to which the
    /// path has become narrower, and errors about requests of IKE.
    pub(super) fn start(
        judges: Judges,
        tell: impl Fn(WorkerNotice) + Send + 'static,
    ) -> Result<Self, Diagnosis> {
        let sockets = Pair::open(RawSocket::for_icmp_errors).diagnosed()?;
        let end = Arc::new((AtomicBool::new(false), Waker::new().diagnosed()?));
        let poller = Poller::new().diagnosed()?;
        poller.add(end.1.as_fd(), WAKE).diagnosed()?;
        for socket in sockets.iter() {
            poller.add(socket, WAKE + 1).diagnosed()?;
        }
        let ends = end.clone();
        let listen = move || run(&poller, &ends.0, &sockets, &judges, tell);
        let thread = std::thread::Builder::new().name("ipsec-icmp".into()).spawn(listen);
        Ok(Self { end, thread: Some(thread.map_err(no_thread("receives ICMP errors"))?) })
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.end.0.store(true, Ordering::Release);
        self.end.1.wake();
        if let Some(thread) = self.thread.take() {
            // A panic has been printed by the panic hook.
            let _ = thread.join();
        }
    }
}

/// Errors of one round that are told.
#[derive(Default)]
struct Heard {
    narrow: Vec<IpAddr>,
    undelivered: Vec<Undelivered>,
}

impl Judges {
    /// Judges one error. `whole`: nothing of it is missing.
    fn judge(&self, local: IpAddr, from: IpAddr, message: &[u8], whole: bool, heard: &mut Heard) {
        let ipv6 = local.is_ipv6();
        if let Some(error) = icmp::undelivered(message, ipv6) {
            // The kernel has looked at the checksum of ICMPv6 only.
            let sound = ipv6 || whole && icmp::is_sound(message);
            heard.undelivered.extend(self.sent.asked.judge(local, from, &error, sound));
            return;
        }
        let natt = self.natt[usize::from(ipv6)];
        let peer = self.paths.judge(clock::now(), local, natt, message, whole);
        heard.narrow.extend(peer.filter(|peer| !heard.narrow.contains(peer)));
    }
}

fn run(
    poller: &Poller,
    end: &AtomicBool,
    sockets: &Pair<RawSocket>,
    judges: &Judges,
    tell: impl Fn(WorkerNotice),
) {
    let (mut ready, mut slots) = (Ready::with_capacity(4), RecvSlots::new(SLOTS));
    let (mut buf, mut got) = (vec![0; SLOT * SLOTS], Vec::with_capacity(SLOTS));
    while !end.load(Ordering::Acquire) {
        if let Err(e) = poller.wait(&mut ready, None) {
            log::diagnosis(Level::Error, None, &cannot_wait(Sources::IcmpErrors, &e));
            return;
        }
        let mut heard = Heard::default();
        for socket in sockets.iter() {
            got.clear();
            // Nothing after all, or an error of the socket that has now been taken off it.
            let _ = slots.recv(socket.as_fd(), &mut buf, SLOT, 0, &mut got);
            for r in &mut got {
                let whole = !r.truncated;
                if !socket.strip(&buf, r) {
                    continue;
                }
                if let Some(message) = buf.get(r.offset..r.offset + r.len) {
                    judges.judge(r.local, r.remote.ip(), message, whole, &mut heard);
                }
            }
        }
        let Heard { narrow, undelivered } = heard;
        let told = !narrow.is_empty() || !undelivered.is_empty();
        if !narrow.is_empty() {
            tell(WorkerNotice::NarrowPath(narrow));
        }
        if !undelivered.is_empty() {
            tell(WorkerNotice::Undelivered(undelivered));
        }
        if told {
            std::thread::sleep(PAUSE);
        }
    }
}
