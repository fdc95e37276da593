//! Sources and destinations of packets: objects of the kernel, or memory. The loop over both is the
//! same ([`super::lanes`]).

use std::io::{self, IoSlice};
use std::os::fd::AsFd;
use std::sync::Arc;

use ironswan_io::mmsg::{Outgoing, Received, RecvSlots};
use ironswan_io::raw::HEAD;
use ironswan_io::send::{Outlet, Sender};
use ironswan_io::tun::{Offloads, Tun};
use ironswan_ipsec::Carrier;

use super::sockets::{Sockets, token};

/// A TUN device.
pub(super) trait Device: Send + Sync + 'static {
    /// Reads one frame with its virtio header, without blocking.
    fn read(&self, frame: &mut [u8]) -> io::Result<usize>;
    /// Writes one.
    fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize>;
    /// Offloads that the device takes.
    fn offloads(&self) -> Offloads;
}

impl Device for Tun {
    fn read(&self, frame: &mut [u8]) -> io::Result<usize> {
        Tun::read(self, frame)
    }

    fn write(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        Tun::write(self, parts)
    }

    fn offloads(&self) -> Offloads {
        Tun::offloads(self)
    }
}

/// The outer side. Another source of datagrams is another number of [`token`], and an arm in each
/// of these: what is received lies in the slots of `buf`, however it got there.
pub(super) trait PacketIo: Send + Sync + 'static {
    type Device: Device;

    /// Receives what `source` has, without blocking, into slots of `slot` bytes of `buf`. False
    /// when that is nothing.
    fn receive(
        &self,
        source: u64,
        slots: &mut RecvSlots,
        buf: &mut [u8],
        slot: usize,
        out: &mut Vec<Received>,
    ) -> bool;

    /// Makes what was received begin with ESP, or for AH with the outer IP header. False when it is
    /// neither.
    fn prepare(&self, source: u64, buf: &mut [u8], received: &mut Received) -> bool;

    /// The port at which `source` receives; 0 when it has none.
    fn port(&self, source: u64) -> u16;

    /// Sends.
    fn send(&self, sender: &mut Sender, carrier: Carrier, ipv6: bool, buf: &[u8], list: &[Outgoing]);

    /// Most datagrams of one send.
    fn max_segments(&self) -> u16;

    /// Between the stages of a batch. Here tests are slow.
    #[inline]
    fn pause(&self) {}
}

impl PacketIo for Arc<Sockets> {
    type Device = Tun;

    fn receive(
        &self,
        source: u64,
        slots: &mut RecvSlots,
        buf: &mut [u8],
        slot: usize,
        out: &mut Vec<Received>,
    ) -> bool {
        if let Some(source) = source.checked_sub(token::XDP) {
            return self.xdp.receive(source, buf, out);
        }
        let raw = self.raw_of(source);
        let fd = match (raw, self.udp_of(source)) {
            (Some(s), _) => s.as_fd(),
            (None, Some(s)) => s.as_fd(),
            (None, None) => return false,
        };
        let head = if source & !token::V6 == token::AH { HEAD } else { 0 };
        // An error here is "nothing after all", or an ICMP error that has now been taken off the
        // socket.
        match slots.recv(fd, buf, slot, head, out) {
            Ok(_) => true,
            Err(_) => {
                if let Some(s) = raw {
                    s.clear_errors();
                }
                false
            }
        }
    }

    fn prepare(&self, source: u64, buf: &mut [u8], received: &mut Received) -> bool {
        match (source & !token::V6, self.raw_of(source)) {
            (token::RAW, Some(s)) => s.strip(buf, received),
            (token::AH, Some(s)) => s.whole(buf, received),
            _ => true,
        }
    }

    fn port(&self, source: u64) -> u16 {
        match self.raw_of(source) {
            Some(_) => 0,
            None if source >= token::XDP => self.natt.iter().next().map_or(0, |s| s.port()),
            None => self.udp_of(source).map_or(0, |s| s.port()),
        }
    }

    fn send(&self, sender: &mut Sender, carrier: Carrier, ipv6: bool, buf: &[u8], list: &[Outgoing]) {
        let outlet = match carrier {
            Carrier::Udp => self.natt.get(ipv6).map(Outlet::Udp),
            Carrier::Esp => self.raw.get(ipv6).map(Outlet::Raw),
            Carrier::Ip => self.ip.get(ipv6).map(Outlet::Ip),
        };
        match outlet {
            Some(outlet) => sender.send(outlet, buf, list),
            None => sender.count_refused(list),
        }
    }

    fn max_segments(&self) -> u16 {
        let least = self.natt.iter().map(|s| s.max_segments()).min().unwrap_or(1);
        u16::try_from(least).unwrap_or(1)
    }
}
