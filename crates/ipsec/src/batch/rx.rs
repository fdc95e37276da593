//! Packets on their way in: opened in place, and the writes that deliver them.

use std::ops::Range;
use std::sync::Arc;

use ironswan_wire::offload::Offload;

use super::inbound_jobs::InboundJobs;
use crate::stages::{BatchTimer, Stage, StageTimer, StageTimes, Stopwatch};
use crate::tap::{Tap, Wanted};

/// One write to the TUN device: `offload.emit()`, then the ranges `RxBatch::iov[iov]` of the
/// buffer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    /// The header for the device: segmentation and checksum of the packet.
    pub offload: Offload,
    /// Which ranges.
    pub iov: Range<u32>,
    /// Bytes of all ranges together.
    pub total: u32,
}

/// Opened packets: in place in the buffer that was passed to [`crate::Worker::inbound`], or in
/// `extra` where they had to be made (transport mode, IPComp).
#[derive(Default)]
pub struct RxBatch {
    /// The writes that deliver the packets, in this order.
    pub writes: Vec<Write>,
    /// Ranges, as [`Self::slice`] reads them: offset and length.
    pub iov: Vec<(u32, u32)>,
    /// Bytes that are not in the receive buffer.
    pub extra: Vec<u8>,
    /// The packets that are opened and not yet delivered.
    pub(crate) inbound: InboundJobs,
}

impl RxBatch {
    /// A range of [`Self::iov`] with an offset of at least this lies in `extra`, at the offset less
    /// this.
    pub const EXTRA: u32 = 1 << 31;
    /// Most bytes of `extra`: bounds the inflated packets of a whole batch, not only each one.
    pub const MAX_EXTRA: usize = 16 << 20;

    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Measures this batch from now until [`Self::times`].
    pub fn measure(&mut self, stopwatch: Stopwatch) {
        self.inbound.timer = Some(BatchTimer::start(stopwatch));
    }

    /// A stage of it has ended. Nothing happens unless the batch is measured.
    #[inline]
    pub fn lap(&mut self, stage: Stage) {
        if let Some(timer) = &mut self.inbound.timer {
            timer.lap(stage);
        }
    }

    /// Leaves out the time since the last stage: the batch has waited for others.
    #[inline]
    pub fn resume(&mut self) {
        if let Some(timer) = &mut self.inbound.timer {
            timer.resume();
        }
    }

    /// Ends the measurement.
    #[inline]
    pub fn times(&mut self) -> Option<StageTimes> {
        self.inbound.timer.take().map(|timer| timer.times)
    }

    /// Copies the packets of this batch that are wanted, from now until [`Self::take_tap`].
    pub fn tap(&mut self, wanted: Arc<Wanted>) {
        self.inbound.tap = Some(Box::new(Tap::new(wanted)));
    }

    /// Takes the copies; `None` when none were to be made.
    #[inline]
    pub fn take_tap(&mut self) -> Option<Box<Tap>> {
        self.inbound.tap.take()
    }

    /// Forgets the writes.
    pub fn clear(&mut self) {
        self.writes.clear();
        self.iov.clear();
        self.extra.clear();
    }

    /// The ranges of one write.
    pub fn ranges(&self, write: &Write) -> &[(u32, u32)] {
        self.iov.get(write.iov.start as usize..write.iov.end as usize).unwrap_or(&[])
    }

    /// The bytes of one range. `buf` is the receive buffer.
    #[inline]
    pub fn slice<'a>(&'a self, buf: &'a [u8], (offset, len): (u32, u32)) -> &'a [u8] {
        let (memory, offset) =
            if offset < Self::EXTRA { (buf, offset) } else { (&self.extra[..], offset - Self::EXTRA) };
        memory.get(offset as usize..).and_then(|rest| rest.get(..len as usize)).unwrap_or(&[])
    }

    /// The bytes of one write, copied together (for tests and slow paths).
    pub fn gather(&self, buf: &[u8], write: &Write) -> Vec<u8> {
        self.ranges(write).iter().flat_map(|range| self.slice(buf, *range)).copied().collect()
    }
}
