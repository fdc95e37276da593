//! Copies of the packets of a batch, for captures ([`crate::tap`]). Nothing here runs without one.

use ironswan_wire::esp;
use ironswan_wire::ip::{self, protocol};
use ironswan_wire::sadb::{Action, Direction, ReqId, Spi};

use super::audit::header;
use super::decapsulate;
use super::merge::InnerPacket;
use crate::batch::{Datagram, InboundJobs, RxBatch, TxBatch, strides};
use crate::counters::DropReason;
use crate::flow::FlowKey;
use crate::sa::{InSa, OutSa};
use crate::tap::{Fate, Name, Outer, Tap};
use crate::worker::Worker;

/// The name of a packet that leaves.
pub(super) fn name_out(sa: &OutSa, sequence: u64) -> Name {
    let (spi, reqid) = (sa.state.spi, Some(sa.state.reqid));
    Name { direction: Direction::Out, reqid, spi, sequence }
}

fn name_in(sa: &InSa, sequence: u64) -> Name {
    let (spi, reqid) = (sa.state.spi, Some(sa.state.reqid));
    Name { direction: Direction::In, reqid, spi, sequence }
}

fn outer_of(datagram: &Datagram) -> Outer {
    let Datagram { local, remote, carrier, tos, .. } = *datagram;
    Outer { local, remote, carrier, tos }
}

impl Worker {
    /// Counts a frame that is dropped on its way out, and copies it if it is wanted. `reqid`: its
    /// policy; `None` when that has to be looked up.
    #[cold]
    #[inline(never)]
    pub(super) fn drop_frame(
        &mut self,
        reason: DropReason,
        reqid: Option<ReqId>,
        frame: &[u8],
        tx: &mut TxBatch,
    ) {
        self.tally.drop(reason);
        let Some(tap) = &mut tx.tap else { return };
        let reqid = reqid.or_else(|| self.policy_of(frame));
        let name = Name { direction: Direction::Out, reqid, spi: Spi(0), sequence: 0 };
        tap.inner(name, Fate::Dropped(reason), frame, None);
    }

    /// The PROTECT policy that covers a frame, as far as its own header says.
    fn policy_of(&self, frame: &[u8]) -> Option<ReqId> {
        let info = ip::parse(frame).ok()?;
        let key = FlowKey::new(&info, frame.get(..info.total_len)?)?;
        match self.snap.spd.lookup_out(&key.selector()) {
            Some(Action::Protect(reqid)) if !key.is_later_fragment() => Some(reqid),
            _ => None,
        }
    }
}

impl TxBatch {
    /// Copies the inner packets of plain SAs, which are written and not yet sealed. Those of other
    /// SAs have been copied when they were written.
    #[cold]
    pub(crate) fn copy_inner(&mut self) {
        let Some(tap) = &mut self.tap else { return };
        for (i, job) in self.jobs.iter().enumerate() {
            let Some(sa) = self.sas.get(usize::from(job.key)).filter(|sa| sa.state.plain) else { continue };
            let start = job.start as usize + esp::HEADER + sa.state.iv_len();
            let end = (job.start as usize + job.len as usize).saturating_sub(sa.state.icv_len());
            let Some(text) = self.buf.get(start..end) else { continue };
            let Ok((len, _)) = esp::parse_trailer(text) else { continue };
            tap.inner(name_out(sa, job.seq), Fate::Passed, &text[..len], Some(i));
        }
    }

    /// Copies the sealed packets.
    #[cold]
    pub(crate) fn copy_outer(&mut self) {
        let Some(tap) = &mut self.tap else { return };
        for (i, _) in self.jobs.iter().enumerate().filter(|(_, job)| !job.ok) {
            tap.fate(i, Fate::Dropped(DropReason::OutStateProtoError));
        }
        tap.forget_jobs();
        // Packets were written one behind the other, and sends name them in the same order.
        let (mut esp, mut ah) = (self.jobs.iter().peekable(), self.ah_jobs.iter().peekable());
        for send in &self.sends {
            let end = send.offset + send.len;
            let mut at = send.offset;
            while at < end {
                let len = u32::from(send.segment_size.max(1)).min(end - at);
                let range = at..at + len;
                at += len;
                // Jobs whose packets were taken out of the sends.
                while esp.next_if(|job| job.start < range.start).is_some() {}
                while ah.next_if(|job| job.start < range.start).is_some() {}
                let of_esp = esp.next_if(|job| range.contains(&job.start));
                let of_ah = ah.next_if(|job| range.contains(&job.start));
                let named = match (of_esp, of_ah) {
                    (Some(job), _) => self.sas.get(usize::from(job.key)).map(|sa| (sa, job.seq)),
                    (None, Some(job)) => self.ah_sas.get(usize::from(job.key)).map(|sa| (sa, job.seq)),
                    // It was sealed before this batch was watched.
                    (None, None) => None,
                };
                let Some((sa, sequence)) = named else { continue };
                let outer =
                    Outer { local: send.local, remote: send.remote, carrier: send.carrier, tos: send.tos };
                let packet = self.buf.get(range.start as usize..range.end as usize).unwrap_or_default();
                tap.outer(name_out(sa, sequence), Fate::Passed, outer, packet, None);
            }
        }
    }
}

impl InboundJobs {
    /// Copies the packets that have an SA, before they are opened in place.
    #[cold]
    pub(crate) fn copy_arrived(&mut self, buf: &[u8], datagrams: &[Datagram]) {
        let Self { tap: Some(tap), jobs, sas, .. } = self else { return };
        let mut jobs = jobs.iter().enumerate().peekable();
        for datagram in datagrams {
            for range in strides(datagram) {
                let Some((i, job)) = jobs.next_if(|(_, job)| job.start as usize == range.start) else {
                    continue;
                };
                let (Some(sa), Some(packet)) = (sas.get(usize::from(job.key)), buf.get(range)) else {
                    continue;
                };
                tap.outer(name_in(sa, job.seq), Fate::Passed, outer_of(datagram), packet, Some(i));
            }
        }
    }

    /// Copies the inner packets of plain SAs that are authentic and new.
    #[cold]
    pub(crate) fn copy_opened(&mut self, buf: &[u8]) {
        let Self { tap: Some(tap), jobs, sas, .. } = self else { return };
        for (i, job) in jobs.iter().enumerate().filter(|(_, job)| job.ok) {
            let Some(sa) = sas.get(usize::from(job.key)).filter(|sa| sa.state.plain) else { continue };
            let Ok((start, len, next_header)) = decapsulate::text(buf, job, &sa.state) else { continue };
            if next_header == protocol::NONE {
                continue;
            }
            let packet = buf.get(start..start + len).unwrap_or_default();
            tap.inner(name_in(sa, job.seq), Fate::Passed, packet, Some(i));
        }
    }
}

/// Copies a packet that is refused before it is opened. `at`: the SA that was looked up last, which
/// is the packet's if the SPI says so.
#[cold]
pub(super) fn refused(
    tap: &mut Tap,
    at: Option<&InSa>,
    datagram: &Datagram,
    packet: &[u8],
    reason: DropReason,
) {
    let (spi, sequence) = header(datagram.carrier, packet).unwrap_or_default();
    let reqid = at.filter(|sa| sa.state.spi.0 == spi).map(|sa| sa.state.reqid);
    let name = Name { direction: Direction::In, reqid, spi: Spi(spi), sequence: sequence.into() };
    tap.outer(name, Fate::Dropped(reason), outer_of(datagram), packet, None);
}

/// Copies an inner packet of an SA that is not plain.
#[cold]
pub(super) fn delivered(
    tap: &mut Tap,
    (buf, extra): (&[u8], &[u8]),
    opened: &InnerPacket,
    sa: &InSa,
    (job, sequence): (usize, u64),
) {
    let (memory, at) = match opened.at.checked_sub(RxBatch::EXTRA) {
        Some(at) => (extra, at),
        None => (buf, opened.at),
    };
    let packet = memory.get(at as usize..).unwrap_or_default();
    let packet = packet.get(..opened.info.total_len).unwrap_or_default();
    tap.inner(name_in(sa, sequence), Fate::Passed, packet, Some(job));
}

/// Notes what has become of the packet of a job.
#[cold]
pub(super) fn fate(tap: &mut Option<Box<Tap>>, job: usize, fate: Fate) {
    if let Some(tap) = tap {
        tap.fate(job, fate);
    }
}
