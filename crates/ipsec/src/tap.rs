//! Copies of packets, for captures: inner and outer packets of one batch, with their SA and what
//! became of them.
//!
//! Who drives a batch gives it a [`Tap`] while a capture is on, and takes it back when the batch is
//! done. Without a tap, a batch is asked a few times whether it has one, and no packet pays
//! anything; packets that need the general path are asked once.
//!
//! ```text
//! out   planned, written ─▶ copy of the inner packet ─▶ sealed ─▶ copy of the outer packet
//! in    copy of the outer packet ─▶ opened ─▶ copy of the inner packet ─▶ delivered, or dropped
//! ```
//! Inner packets are copied as they are in the tunnel: decrypting the outer packet gives the same
//! bytes. Only for SAs that need the general path on arrival they are copied as delivered.
//!
//! Not here: queues, and the capture's file (`ironswan-gateway`). Fragments that are dropped while
//! they wait for others, and packets that waited for an SA in vain on their way in, have no copy:
//! the counters alone tell of them.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use ironswan_wire::ip;
use ironswan_wire::sadb::{Direction, ReqId, Spi};

use crate::batch::Carrier;
use crate::counters::DropReason;

/// Limits the copies of one batch.
const MAX_PACKETS: usize = 8_192;
/// Limits the bytes of the copies of one batch: an inner and an outer copy of a large batch.
const MAX_BYTES: usize = 4 << 20;
/// In the place of the index of a copy: there is none.
const NONE: u32 = u32::MAX;

/// The packets that captures want.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Packets of every policy, and those that belong to none.
    pub everything: bool,
    /// Packets of these policies, in ascending order.
    pub reqids: Vec<ReqId>,
    /// Of these only packets that are dropped.
    pub only_dropped: bool,
    /// Bytes of each packet that are copied.
    pub snaplen: usize,
    /// Reads the time of a copy, in nanoseconds since 1970-01-01 UTC.
    pub clock: fn() -> u64,
}

impl Wanted {
    /// True when a packet of this policy is wanted; `None`: of no known policy.
    pub fn wants(&self, reqid: Option<ReqId>) -> bool {
        self.everything || reqid.is_some_and(|reqid| self.reqids.binary_search(&reqid).is_ok())
    }
}

/// Side of the engine on which a packet was copied.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Layer {
    /// In clear, from its IP header on.
    Inner,
    /// Protected: what a UDP datagram or an IP packet carries, see [`Outer::carrier`].
    Outer,
}

/// What became of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Fate {
    /// It was sent, or delivered.
    Passed,
    /// A dummy packet (RFC 4303 section 2.6).
    Dummy,
    /// It was dropped.
    Dropped(DropReason),
}

/// The datagram around an outer packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outer {
    /// Our address and port.
    pub local: SocketAddr,
    /// The peer's address and port.
    pub remote: SocketAddr,
    /// Protocol around the packet.
    pub carrier: Carrier,
    /// TOS or traffic class.
    pub tos: u8,
}

/// A copy of a packet.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct TapPacket {
    /// By [`Wanted::clock`].
    pub time: u64,
    /// Inner or outer.
    pub layer: Layer,
    /// Way of the packet.
    pub direction: Direction,
    /// The policy that it belongs to, as far as it was known.
    pub reqid: Option<ReqId>,
    /// SPI; 0 when there is none, or it was not known yet.
    pub spi: Spi,
    /// Sequence number; of a packet that was not opened perhaps the low half alone.
    pub sequence: u64,
    /// What became of it.
    pub fate: Fate,
    /// The datagram, for [`Layer::Outer`].
    pub outer: Option<Outer>,
    /// Length of the packet, in bytes. The copy may be shorter.
    pub original_len: usize,
    /// Place of the bytes in the tap.
    range: Range<usize>,
}

/// The SA and the number of a packet.
#[derive(Clone, Copy)]
pub(crate) struct Name {
    pub(crate) direction: Direction,
    pub(crate) reqid: Option<ReqId>,
    pub(crate) spi: Spi,
    pub(crate) sequence: u64,
}

/// The copies of one batch.
pub struct Tap {
    wanted: Arc<Wanted>,
    packets: Vec<TapPacket>,
    bytes: Vec<u8>,
    /// Of inner and of outer packets.
    missed: [u64; 2],
    /// Indices of the copies of each job: outer and inner.
    of_job: Vec<[u32; 2]>,
}

impl Tap {
    /// An empty one.
    pub fn new(wanted: Arc<Wanted>) -> Self {
        Self { wanted, packets: Vec::new(), bytes: Vec::new(), missed: [0; 2], of_job: Vec::new() }
    }

    /// The copies, in the order in which they were made.
    pub fn packets(&self) -> &[TapPacket] {
        &self.packets
    }

    /// The bytes of a copy of this tap.
    pub fn bytes(&self, packet: &TapPacket) -> &[u8] {
        self.bytes.get(packet.range.clone()).unwrap_or_default()
    }

    /// Inner and outer packets that were wanted and did not fit.
    pub fn missed(&self) -> [u64; 2] {
        self.missed
    }

    /// Bytes of memory that it holds, about.
    pub fn size(&self) -> usize {
        self.bytes.capacity() + self.packets.capacity() * size_of::<TapPacket>()
    }

    /// True when there is nothing to tell: no copy, and none that is missing.
    pub fn is_empty(&self) -> bool {
        self.packets.is_empty() && self.missed == [0; 2]
    }

    /// The batch is over and every fate known: lets go of the copies that are not wanted after all.
    pub fn finish(&mut self) {
        self.of_job = Vec::new();
        if !self.wanted.only_dropped {
            return;
        }
        self.packets.retain(|packet| matches!(packet.fate, Fate::Dropped(_)));
        let all = std::mem::take(&mut self.bytes);
        for packet in &mut self.packets {
            let start = self.bytes.len();
            self.bytes.extend_from_slice(all.get(packet.range.clone()).unwrap_or_default());
            packet.range = start..self.bytes.len();
        }
        self.packets.shrink_to_fit();
    }

    pub(crate) fn wants(&self, reqid: Option<ReqId>) -> bool {
        self.wanted.wants(reqid)
    }

    /// Copies a packet, if it is wanted. Its index; `None` when there is no copy.
    fn copy(
        &mut self,
        name: Name,
        layer: Layer,
        fate: Fate,
        outer: Option<Outer>,
        bytes: &[u8],
    ) -> Option<u32> {
        if !self.wants(name.reqid) {
            return None;
        }
        let copied = &bytes[..bytes.len().min(self.wanted.snaplen)];
        if self.packets.len() >= MAX_PACKETS || self.bytes.len() + copied.len() > MAX_BYTES {
            self.missed[layer as usize] += 1;
            return None;
        }
        let start = self.bytes.len();
        self.bytes.extend_from_slice(copied);
        let Name { direction, reqid, spi, sequence } = name;
        self.packets.push(TapPacket {
            time: (self.wanted.clock)(),
            layer,
            direction,
            reqid,
            spi,
            sequence,
            fate,
            outer,
            original_len: bytes.len(),
            range: start..self.bytes.len(),
        });
        Some((self.packets.len() - 1) as u32)
    }

    /// Copies an inner packet, without what padding stands behind it. `job`: the one of the batch
    /// whose fate it shares.
    pub(crate) fn inner(&mut self, name: Name, fate: Fate, packet: &[u8], job: Option<usize>) {
        let len = ip::parse(packet).map_or(packet.len(), |info| info.total_len.min(packet.len()));
        let index = self.copy(name, Layer::Inner, fate, None, &packet[..len]);
        self.belongs(job, 1, index);
    }

    /// Copies an outer packet.
    pub(crate) fn outer(&mut self, name: Name, fate: Fate, outer: Outer, packet: &[u8], job: Option<usize>) {
        let index = self.copy(name, Layer::Outer, fate, Some(outer), packet);
        self.belongs(job, 0, index);
    }

    fn belongs(&mut self, job: Option<usize>, which: usize, index: Option<u32>) {
        let (Some(job), Some(index)) = (job, index) else { return };
        if self.of_job.len() <= job {
            self.of_job.resize(job + 1, [NONE; 2]);
        }
        self.of_job[job][which] = index;
    }

    /// Notes what has become of the packet of a job.
    pub(crate) fn fate(&mut self, job: usize, fate: Fate) {
        for index in self.of_job.get(job).copied().unwrap_or([NONE; 2]) {
            if let Some(packet) = self.packets.get_mut(index as usize) {
                packet.fate = fate;
            }
        }
    }

    /// The jobs of the batch start anew: their copies are as they are.
    pub(crate) fn forget_jobs(&mut self) {
        self.of_job.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted(everything: bool, snaplen: usize) -> Arc<Wanted> {
        let reqids = vec![ReqId(3), ReqId(9)];
        Arc::new(Wanted { everything, reqids, only_dropped: false, snaplen, clock: || 7 })
    }

    fn name(reqid: Option<u32>) -> Name {
        Name { direction: Direction::In, reqid: reqid.map(ReqId), spi: Spi(0x1000), sequence: 1 }
    }

    #[test]
    fn only_wanted_packets_are_copied_and_only_so_far() {
        let mut tap = Tap::new(wanted(false, 10));
        tap.inner(name(Some(3)), Fate::Passed, &[0; 30], Some(0));
        tap.inner(name(Some(4)), Fate::Passed, &[0; 30], Some(1));
        tap.inner(name(None), Fate::Passed, &[0; 30], None);
        assert_eq!(tap.packets().len(), 1);
        let packet = &tap.packets()[0];
        assert_eq!((packet.time, packet.original_len, tap.bytes(packet).len()), (7, 30, 10));
        let mut tap = Tap::new(wanted(true, 10));
        tap.inner(name(None), Fate::Passed, &[0; 30], None);
        assert_eq!(tap.packets().len(), 1);
    }

    #[test]
    fn a_fate_is_that_of_both_copies_of_its_job_and_of_no_other() {
        let mut tap = Tap::new(wanted(true, 100));
        for job in 0..3 {
            tap.inner(name(Some(3)), Fate::Passed, &[0; 30], Some(job));
        }
        tap.fate(1, Fate::Dropped(DropReason::InStateMismatch));
        tap.fate(77, Fate::Dummy);
        let fates: Vec<Fate> = tap.packets().iter().map(|p| p.fate).collect();
        assert_eq!(fates, [Fate::Passed, Fate::Dropped(DropReason::InStateMismatch), Fate::Passed]);
    }

    #[test]
    fn a_batch_has_a_bounded_number_of_copies_and_counts_the_rest() {
        let mut tap = Tap::new(wanted(true, usize::MAX));
        for _ in 0..100 {
            tap.inner(name(None), Fate::Passed, &[0; 65_535], None);
        }
        assert_eq!(tap.packets().len(), MAX_BYTES / 65_535);
        assert_eq!(tap.missed(), [100 - (MAX_BYTES / 65_535) as u64, 0]);
        let mut tap = Tap::new(wanted(true, 1));
        (0..MAX_PACKETS + 5).for_each(|_| tap.inner(name(None), Fate::Passed, &[0; 9], None));
        assert_eq!((tap.packets().len(), tap.missed()), (MAX_PACKETS, [5, 0]));
    }

    #[test]
    fn only_dropped_packets_are_kept_where_nothing_else_is_wanted() {
        let wanted = Wanted { only_dropped: true, ..(*wanted(true, 100)).clone() };
        let mut tap = Tap::new(Arc::new(wanted));
        for (n, job) in [(1, 0), (2, 1), (3, 2)] {
            tap.inner(name(None), Fate::Passed, &[n; 10], Some(job));
        }
        tap.fate(1, Fate::Dropped(DropReason::InPolBlock));
        tap.finish();
        assert_eq!(tap.packets().len(), 1);
        assert_eq!(tap.bytes(&tap.packets()[0]), [2; 10]);
    }
}
