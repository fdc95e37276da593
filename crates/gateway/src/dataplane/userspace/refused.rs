//! Merging of packets for the TUN device, and the way back when the device refuses a merged write:
//! the packets are written one by one and none is lost. When that happens again and again, packets
//! of that protocol are not merged for a while.

use std::io::{self, IoSlice};
use std::time::Duration;

use ironswan_io::tun::Offloads;
use ironswan_ipsec::{Worker, Write, unmerge};
use ironswan_wire::offload::{Gso, Offload};

use super::stats::WorkerStats;

/// Refusals in a row after which merging ends for [`PAUSE`]. One may be a single packet's fault.
const REFUSALS: u32 = 4;
const PAUSE: Duration = Duration::from_secs(60);

/// One protocol.
#[derive(Clone, Copy, Debug, Default)]
struct Protocol {
    /// The device takes it.
    granted: bool,
    /// In a row.
    refusals: u32,
    /// Not before.
    paused_until: Option<Duration>,
    told: bool,
}

/// Which protocols are merged now.
#[derive(Debug)]
pub(super) struct Merging {
    tcp: Protocol,
    udp: Protocol,
    changed: bool,
}

impl Merging {
    /// Merges the protocols for which the device has granted offload.
    pub(super) fn new(offloads: Offloads) -> Self {
        let protocol = |granted| Protocol { granted, ..Protocol::default() };
        Self { tcp: protocol(offloads.tso), udp: protocol(offloads.uso), changed: false }
    }

    /// Sets what the worker merges.
    pub(super) fn tell(&self, worker: &mut Worker) {
        let [tcp, udp] = self.merged();
        worker.set_merging(tcp, udp);
    }

    /// TCP, UDP.
    fn merged(&self) -> [bool; 2] {
        [self.tcp, self.udp].map(|p| p.granted && p.paused_until.is_none())
    }

    /// True when something may be tried again.
    pub(super) fn is_due(&mut self, now: Duration) -> bool {
        let over = |p: &mut Protocol| p.paused_until.take_if(|until| *until <= now).is_some();
        let (tcp, udp) = (over(&mut self.tcp), over(&mut self.udp));
        tcp || udp
    }

    /// True when the device refused to take a merged write, rather than to take anything.
    pub(super) fn is_refusal(write: &Write, e: &io::Error) -> bool {
        let code = e.raw_os_error();
        write.offload.gso != Gso::None
            && [rustix::io::Errno::INVAL, rustix::io::Errno::OPNOTSUPP, rustix::io::Errno::MSGSIZE]
                .iter()
                .any(|errno| code == Some(errno.raw_os_error()))
    }

    /// A write was taken.
    #[inline]
    pub(super) fn taken(&mut self, write: &Write) {
        match write.offload.gso {
            Gso::None => {}
            Gso::UdpL4 => self.udp.refusals = 0,
            Gso::TcpV4 | Gso::TcpV6 => self.tcp.refusals = 0,
        }
    }

    /// A merged write was refused: its packets go one by one. `whole` is all of it.
    #[cold]
    pub(super) fn refused(
        &mut self,
        now: Duration,
        write: &Write,
        whole: &mut [u8],
        stats: &mut WorkerStats,
        mut device: impl FnMut(&[IoSlice<'_>]) -> io::Result<usize>,
    ) {
        stats.tun_write_unmerged += 1;
        let udp = write.offload.gso == Gso::UdpL4;
        let protocol = if udp { &mut self.udp } else { &mut self.tcp };
        protocol.refusals += 1;
        if protocol.refusals >= REFUSALS {
            protocol.refusals = 0;
            protocol.paused_until = Some(now + PAUSE);
            self.changed = true;
        }
        let header = Offload::NONE.emit();
        let taken_apart = unmerge(whole, &write.offload, |packet| {
            match device(&[IoSlice::new(&header), IoSlice::new(packet)]) {
                Ok(n) => {
                    stats.tun_writes += 1;
                    stats.tun_write_bytes += n as u64;
                }
                Err(_) => stats.tun_write_errors += 1,
            }
        });
        stats.tun_write_errors += u64::from(!taken_apart);
    }

    /// True once when a protocol is not merged any more.
    #[inline]
    pub(super) fn has_changed(&mut self) -> bool {
        std::mem::take(&mut self.changed)
    }

    /// Protocols whose merging has stopped since the last call: UDP (true), TCP (false).
    pub(super) fn take_news(&mut self) -> impl Iterator<Item = bool> + use<> {
        [(&mut self.tcp, false), (&mut self.udp, true)]
            .map(|(p, udp)| {
                let new = p.paused_until.is_some() && !p.told;
                p.told |= new;
                new.then_some(udp)
            })
            .into_iter()
            .flatten()
    }
}

#[cfg(test)]
#[path = "refused_tests.rs"]
mod tests;
