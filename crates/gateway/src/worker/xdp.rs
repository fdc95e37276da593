//! ESP through `AF_XDP`, beside the sockets: the interfaces that are named for it, and what happens when one of them
//! cannot, or goes. The sockets are there all the time, so going back to them is doing nothing.

use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::{Mutex, MutexGuard, PoisonError};

use ironswan_io::mmsg::Received;
use ironswan_io::xdp::{Generic, SLOT, Standing, XdpAttachment, XdpConfig, XdpSocket, XdpStats};
use ironswan_ipsec::{Carrier, Datagram};

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

/// Every queue and every attachment has a number, by which the poller knows it: interface, then 0 for the attachment and
/// from 1 the queues.
const QUEUES: u64 = 1 << 8;

/// Most frames of one receive: two or three merged writes of 1,400-byte packets.
const FRAMES: usize = 128;

fn hold<T>(lock: &Mutex<T>) -> MutexGuard<'_, T> {
    lock.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Xdp {
    /// Opens the interfaces of `names`. Of those that cannot be opened it says why, and goes on without.
    pub(super) fn open(names: &[String], natt_port: u16, raw_esp: bool) -> Self {
        let mut interfaces = Vec::new();
        for name in names {
            let config =
                XdpConfig { interface: name.clone(), natt_port, raw_esp, generic: Generic::Hardware };
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
                Err(e) => tracing::warn!("data.xdp: {name} is left to the sockets: {e}"),
            }
        }
        Self { interfaces }
    }

    /// Calls `add` with the descriptor and the number of everything that is to be waited for.
    pub(super) fn each_source<E>(
        &self,
        mut add: impl FnMut(BorrowedFd<'_>, u64) -> Result<(), E>,
    ) -> Result<(), E> {
        for (i, interface) in (0..).zip(&self.interfaces) {
            if let Some(attachment) = &*hold(&interface.attached) {
                add(attachment.as_fd(), i * QUEUES)?;
            }
            for (q, queue) in (1..).zip(&interface.queues) {
                if let Some(socket) = &*hold(queue) {
                    add(socket.as_fd(), i * QUEUES + q)?;
                }
            }
        }
        Ok(())
    }

    /// Hears the news of an attachment. False when number `source` is none.
    pub(super) fn attend(&self, source: u64) -> bool {
        let attachment = source.is_multiple_of(QUEUES);
        if attachment && let Some(interface) = self.interfaces.get((source / QUEUES) as usize) {
            interface.look();
        }
        attachment
    }

    /// What is ready by number `source`: takes packets into `buf`. False when there were none.
    pub(super) fn receive(&self, source: u64, buf: &mut [u8], out: &mut Vec<Received>) -> bool {
        let Some(interface) = self.interfaces.get((source / QUEUES) as usize) else { return false };
        let Some(queue) = (source % QUEUES).checked_sub(1) else { return false };
        let Some(queue) = interface.queues.get(queue as usize) else { return false };
        let room = buf.len().min(FRAMES * SLOT);
        hold(queue).as_mut().is_some_and(|socket| socket.recv(&mut buf[..room], SLOT, out) != 0)
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
    /// Addresses or interfaces have changed.
    #[cold]
    fn look(&self) {
        let mut attached = hold(&self.attached);
        // It may be back by now, with the same name and number, and without our sockets.
        let unbound =
            || self.queues.iter().any(|queue| hold(queue).as_ref().is_some_and(XdpSocket::is_unbound));
        if attached.as_mut().is_some_and(|a| a.changed() == Standing::Gone || unbound()) {
            tracing::warn!(
                "the interface {} is gone, and AF_XDP with it: ESP is received through sockets from now on; once it is back, \
                 restart the daemon to have AF_XDP again",
                self.name
            );
            *attached = None;
            for queue in &self.queues {
                if let Some(socket) = hold(queue).take() {
                    let mut past = hold(&self.past);
                    *past = *past + socket.stats();
                }
            }
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
        let xdp = Xdp::open(&["nosuch0".into(), "nosuch1".into()], 4500, true);
        assert!(xdp.names().is_empty());
        xdp.each_source(|_, n| Err(n)).unwrap();
        assert!(!xdp.receive(3, &mut [0; 100], &mut Vec::new()));
        assert_eq!(xdp.stats(), XdpStats::default());
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
