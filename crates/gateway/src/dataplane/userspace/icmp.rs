//! The thread that receives ICMP errors about narrow paths, apart from those that move packets. A
//! flood of forged ones costs this thread a system call for up to 32 and a look-up each
//! ([`Paths::judge`]); no packet and no IKE message waits for it.

use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use ironswan_ike::event::Level;
use ironswan_io::clock;
use ironswan_io::mmsg::RecvSlots;
use ironswan_io::poller::{Poller, Ready, Waker};
use ironswan_io::raw::RawSocket;
use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::Sources;

use super::sockets::Pair;
use crate::dataplane::userspace::paths::Paths;
use crate::diagnosis::{Diagnosed, cannot_wait, no_thread};
use crate::observe::log;

/// Bytes for each error. Routers quote up to 576 or 1,280 bytes in all; one that quotes more is not
/// whole, and refused.
const SLOT: usize = 2048;
/// Errors of one system call.
const SLOTS: usize = 32;
/// The control thread is told of narrower paths at most this often.
const PAUSE: Duration = Duration::from_millis(10);
/// The poller's number of the waker; those of the sockets follow.
const WAKE: u64 = 0;

/// The running thread. It ends when this is dropped.
#[derive(Debug)]
pub(super) struct Listener {
    end: Arc<(AtomicBool, Waker)>,
    thread: Option<JoinHandle<()>>,
}

impl Listener {
    /// Opens the sockets and starts the thread. `natt` are our ports for ESP in UDP, of IPv4 and
    /// IPv6; `narrowed` is told the peers to which the path has become narrower.
    pub(super) fn start(
        paths: Arc<Paths>,
        natt: [Option<u16>; 2],
        narrowed: impl Fn(Vec<IpAddr>) + Send + 'static,
    ) -> Result<Self, Diagnosis> {
        let sockets = Pair::open(RawSocket::for_too_big).diagnosed()?;
        let end = Arc::new((AtomicBool::new(false), Waker::new().diagnosed()?));
        let poller = Poller::new().diagnosed()?;
        poller.add(end.1.as_fd(), WAKE).diagnosed()?;
        for socket in sockets.iter() {
            poller.add(socket, WAKE + 1).diagnosed()?;
        }
        let ends = end.clone();
        let listen = move || run(&poller, &ends.0, &sockets, &paths, natt, narrowed);
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

fn run(
    poller: &Poller,
    end: &AtomicBool,
    sockets: &Pair<RawSocket>,
    paths: &Paths,
    natt: [Option<u16>; 2],
    narrowed: impl Fn(Vec<IpAddr>),
) {
    let (mut ready, mut slots) = (Ready::with_capacity(4), RecvSlots::new(SLOTS));
    let (mut buf, mut got) = (vec![0; SLOT * SLOTS], Vec::with_capacity(SLOTS));
    while !end.load(Ordering::Acquire) {
        if let Err(e) = poller.wait(&mut ready, None) {
            log::diagnosis(Level::Error, None, &cannot_wait(Sources::IcmpErrors, &e));
            return;
        }
        let mut peers = Vec::new();
        for socket in sockets.iter() {
            got.clear();
            // Nothing after all, or an error of the socket that has now been taken off it.
            let _ = slots.recv(socket.as_fd(), &mut buf, SLOT, 0, &mut got);
            for r in &mut got {
                let whole = !r.truncated;
                if !socket.strip(&buf, r) {
                    continue;
                }
                let Some(message) = buf.get(r.offset..r.offset + r.len) else { continue };
                let natt = natt[usize::from(socket.is_ipv6())];
                let peer = paths.judge(clock::now(), r.local, natt, message, whole);
                peers.extend(peer.filter(|peer| !peers.contains(peer)));
            }
        }
        if !peers.is_empty() {
            narrowed(peers);
            std::thread::sleep(PAUSE);
        }
    }
}
