//! ESP through `AF_XDP`, beside the sockets: the interfaces that are named for it, and what happens
//! when one of them cannot, or goes. The sockets are there all the time, so going back to them is
//! doing nothing.
//!
//! The program at an interface has a list of our addresses. A thread of its own keeps it up to date
//! ([`Attendant`]), since a host may have thousands of them, which change with each container, and
//! no packet is to wait for the kernel's list.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use ironswan_ike::event::Level;
use ironswan_io::mmsg::Received;
use ironswan_io::poller::{Poller, Ready, Waker};
use ironswan_io::xdp::{GenericXdp, InterfaceState, SLOT, XdpAttachment, XdpConfig, XdpSocket, XdpStats};
use ironswan_ipsec::{Carrier, Datagram};
use ironswan_keying::Diagnosis;
use ironswan_keying::diagnosis::{DataPlane, Sources};

use crate::diagnosis::{Diagnosed, cannot_wait, no_thread};
use crate::observe::log;

/// One interface, as long as it is there.
#[derive(Debug)]
struct Interface {
    name: String,
    attached: Mutex<Option<XdpAttachment>>,
    /// By queue. `None` when the interface is gone.
    queues: Vec<Mutex<Option<XdpSocket>>>,
    /// Of sockets that are closed.
    past: Mutex<XdpStats>,
}

/// All of them; workers share it.
#[derive(Debug, Default)]
pub(super) struct Xdp {
    interfaces: Vec<Interface>,
}

/// Every queue has a number by which the first worker's poller knows it: interface, then queue.
const QUEUES: u64 = 1 << 8;

/// Most frames of one receive: two or three merged writes of 1,400-byte packets.
const FRAMES: usize = 128;

fn hold<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Xdp {
    /// Opens the interfaces of `names`. Returns also the reasons why some of them are left to the
    /// sockets.
    pub(super) fn open(names: &[String], natt_port: u16, raw_esp: bool) -> (Self, Vec<DataPlane>) {
        let (mut interfaces, mut unused) = (Vec::new(), Vec::new());
        for name in names {
            let config =
                XdpConfig { interface: name.clone(), natt_port, raw_esp, generic: GenericXdp::Hardware };
            match XdpAttachment::open(&config) {
                Ok((attachment, sockets)) => {
                    let (queues, generic) = (sockets.len(), attachment.is_generic());
                    tracing::info!(queues, generic, "ESP on {name} is received through AF_XDP");
                    interfaces.push(Interface {
                        name: name.clone(),
                        attached: Mutex::new(Some(attachment)),
                        queues: sockets.into_iter().map(|s| Mutex::new(Some(s))).collect(),
                        past: Mutex::default(),
                    });
                }
                Err(e) => {
                    unused.push(DataPlane::XdpUnused { interface: name.clone(), why: e.to_string() });
                }
            }
        }
        (Self { interfaces }, unused)
    }

    /// Calls `add` with the descriptor and the number of every queue.
    pub(super) fn each_source<E>(
        &self,
        mut add: impl FnMut(BorrowedFd<'_>, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        for (i, interface) in (0..).zip(&self.interfaces) {
            for (q, queue) in (0..).zip(&interface.queues) {
                if let Some(socket) = &*hold(queue) {
                    add(socket.as_fd(), i * QUEUES + q)?;
                }
            }
        }
        Ok(())
    }

    /// Takes the packets of the socket with number `source` into `buf`. False when there were none.
    pub(super) fn receive(&self, source: u64, buf: &mut [u8], out: &mut Vec<Received>) -> bool {
        let Some(interface) = self.interfaces.get((source / QUEUES) as usize) else { return false };
        let Some(queue) = interface.queues.get((source % QUEUES) as usize) else { return false };
        let room = buf.len().min(FRAMES * SLOT);
        hold(queue).as_mut().is_some_and(|socket| socket.recv(&mut buf[..room], SLOT, out) != 0)
    }

    /// Looks at all interfaces. Returns an entry for the first that is gone.
    #[cfg(test)]
    pub(super) fn lost(&self) -> Option<DataPlane> {
        self.interfaces.iter().find_map(Interface::look)
    }

    /// The names of interfaces that are in use.
    pub(super) fn names(&self) -> Vec<String> {
        let here = self.interfaces.iter().filter(|i| hold(&i.attached).is_some());
        here.map(|i| i.name.clone()).collect()
    }

    /// Counters of all sockets since the start.
    pub(super) fn stats(&self) -> XdpStats {
        let all = self.interfaces.iter().flat_map(|i| {
            let now = i.queues.iter().map(|q| hold(q).as_ref().map(XdpSocket::stats).unwrap_or_default());
            now.chain([*hold(&i.past)])
        });
        all.fold(XdpStats::default(), |a, b| a + b)
    }
}

impl Interface {
    /// Addresses or interfaces have changed. Returns an entry when the interface is gone.
    #[cold]
    fn look(&self) -> Option<DataPlane> {
        let mut attached = hold(&self.attached);
        // The interface may be back by now, with the same name and number, and without our sockets.
        let unbound =
            || self.queues.iter().any(|queue| hold(queue).as_ref().is_some_and(XdpSocket::is_unbound));
        if attached.as_mut().is_some_and(|a| a.changed() == InterfaceState::Gone || unbound()) {
            *attached = None;
            for queue in &self.queues {
                if let Some(socket) = hold(queue).take() {
                    let mut past = hold(&self.past);
                    *past = *past + socket.stats();
                }
            }
            return Some(DataPlane::XdpLost { interface: self.name.clone() });
        }
        None
    }
}

/// Lists of addresses are asked for at most this often.
const PAUSE: Duration = Duration::from_millis(10);
/// The poller's number of the waker; those of the interfaces follow.
const WAKE: u64 = 0;

/// The thread that hears of changes of interfaces and addresses, and looks after the attachments.
/// The thread ends when this is dropped.
#[derive(Debug)]
pub(super) struct Attendant {
    end: Arc<(AtomicBool, Waker)>,
    thread: Option<JoinHandle<()>>,
}

impl Attendant {
    /// `None` when there is nothing to look after.
    pub(super) fn start(xdp: &Arc<Xdp>) -> Result<Option<Self>, Diagnosis> {
        if xdp.interfaces.is_empty() {
            return Ok(None);
        }
        let end = Arc::new((AtomicBool::new(false), Waker::new().diagnosed()?));
        let poller = Poller::new().diagnosed()?;
        poller.add(end.1.as_fd(), WAKE).diagnosed()?;
        for (i, interface) in (WAKE + 1..).zip(&xdp.interfaces) {
            if let Some(attachment) = &*hold(&interface.attached) {
                poller.add(attachment.as_fd(), i).diagnosed()?;
            }
        }
        let (ends, xdp) = (end.clone(), xdp.clone());
        let attend = move || {
            let mut ready = Ready::with_capacity(16);
            while !ends.0.load(Ordering::Acquire) {
                if let Err(e) = poller.wait(&mut ready, None) {
                    log::diagnosis(Level::Error, None, &cannot_wait(Sources::Addresses, &e));
                    return;
                }
                for token in ready.tokens() {
                    let interface = token.checked_sub(WAKE + 1).and_then(|i| xdp.interfaces.get(i as usize));
                    let lost = interface.and_then(Interface::look);
                    lost.into_iter().for_each(|lost| log::diagnosis(Level::Warn, None, &lost));
                }
                if !ends.0.load(Ordering::Acquire) {
                    std::thread::sleep(PAUSE);
                }
            }
        };
        let thread = std::thread::Builder::new().name("ipsec-xdp".into()).spawn(attend);
        Ok(Some(Self { end, thread: Some(thread.map_err(no_thread("looks after AF_XDP"))?) }))
    }
}

impl Drop for Attendant {
    fn drop(&mut self) {
        self.end.0.store(true, Ordering::Release);
        self.end.1.wake();
        if let Some(thread) = self.thread.take() {
            // A panic has been printed by the panic hook.
            let _ = thread.join();
        }
    }
}

/// A received packet as the engine wants it.
pub(super) fn datagram(r: &Received, natt_port: u16) -> Datagram {
    // Port 0 is that of ESP without UDP, and of nothing else.
    let (port, carrier) = if r.remote.port() == 0 { (0, Carrier::Esp) } else { (natt_port, Carrier::Udp) };
    Datagram {
        offset: r.offset as u32,
        len: r.len as u32,
        segment_size: u16::try_from(r.segment).unwrap_or(0),
        local: SocketAddr::new(r.local, port),
        remote: r.remote,
        carrier,
        tos: r.tos,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interface_that_is_not_there_is_left_out() {
        let (xdp, unused) = Xdp::open(&["nosuch0".into(), "nosuch1".into()], 4500, true);
        assert_eq!(unused.len(), 2);
        assert!(xdp.names().is_empty());
        xdp.each_source(|_, n| Err(n)).unwrap();
        assert!(!xdp.receive(3, &mut [0; 100], &mut Vec::new()));
        assert_eq!(xdp.stats(), XdpStats::default());
        assert!(Attendant::start(&Arc::new(xdp)).unwrap().is_none());
    }

    #[test]
    fn esp_without_udp_is_known_by_its_port() {
        let received = |remote: &str| Received {
            offset: 42,
            len: 100,
            segment: 100,
            local: "192.0.2.1".parse().unwrap(),
            remote: remote.parse().unwrap(),
            tos: 0xb8,
            truncated: false,
        };
        let udp = datagram(&received("192.0.2.2:61000"), 4500);
        assert_eq!((udp.local, udp.carrier), ("192.0.2.1:4500".parse().unwrap(), Carrier::Udp));
        assert_eq!((udp.offset, udp.len, udp.segment_size, udp.tos), (42, 100, 100, 0xb8));
        let esp = datagram(&received("192.0.2.2:0"), 4500);
        assert_eq!((esp.local, esp.carrier), ("192.0.2.1:0".parse().unwrap(), Carrier::Esp));
    }
}
