//! The memory that the caller lends for one batch, and what the engine says about it.

use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;

use ironswan_crypto::batch::{self, EspKey, Job};
use ironswan_crypto::icv::{self, IcvJob, IcvKey};
use ironswan_wire::esp::{self, UdpKind};
use ironswan_wire::offload::{Gso, Offload};

use crate::pipeline::{Opening, Planned};
use crate::sa::OutSa;
use crate::stages::{Laps, Stage, StageTimes, Stopwatch, Watch};

/// Upper bound of what is added to one packet. ESP: SPI and sequence number, IV, padding, trailer,
/// ICV, together 73. AH in tunnel mode: an IPv6 header, and AH with 32 bytes of ICV.
pub(crate) const MAX_OVERHEAD: usize = 40 + 48;
/// Upper bound of the headers of one segment, IPv6 extension headers included.
pub(crate) const MAX_HEADERS: usize = 256;
/// Most bytes of what is sent or written as one and cut by the kernel. With the headers of IP, UDP
/// and the link it stays below a device's `gso_max_size`, 65,536: what reaches that is cut before
/// the driver sees it, packet by packet (`gso_features_check` in net/core/dev.c).
pub(crate) const MAX_SUPER: usize = 65_400;

/// More than [`TxBatch::has_room`] lets key indices become.
const NO_KEY: u16 = u16::MAX;

/// Sizes of a [`TxBatch`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TxConfig {
    /// Bytes of the send buffer. At least two super-packets with their encapsulation should fit:
    /// 256 KiB.
    pub capacity: usize,
    /// Segments of one send: 64 before Linux 6.9, 128 since; 1 switches segmented sends off.
    pub max_segments: u16,
    /// Bytes of one send of several packets.
    pub max_bytes: usize,
}

impl Default for TxConfig {
    fn default() -> Self {
        Self { capacity: 512 * 1024, max_segments: 64, max_bytes: MAX_SUPER }
    }
}

/// What a packet of a batch is carried in, and so what its bytes begin with.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Carrier {
    /// A UDP datagram on the NAT traversal port (RFC 3948), whose payload this is: ESP.
    #[default]
    Udp,
    /// An IP packet of protocol 50, whose payload this is. The kernel has the IP header.
    Esp,
    /// Nothing: it begins with its outer IP header. AH, which covers that header, and what has to
    /// keep its own header.
    Ip,
}

/// Consecutive packets to one destination. `buf[offset..offset + len]` is exactly what goes into
/// the UDP payload or the raw socket: every `segment_size` bytes one packet, only the last may be
/// shorter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Send {
    /// Where it begins in [`TxBatch::buf`].
    pub offset: u32,
    /// Bytes.
    pub len: u32,
    /// Bytes of each packet but the last, which may be shorter (`UDP_SEGMENT`). Equal to `len` for
    /// one packet.
    pub segment_size: u16,
    /// Packets.
    pub segments: u16,
    /// Our outer address and port.
    pub local: SocketAddr,
    /// The peer's outer address and port.
    pub remote: SocketAddr,
    /// What it is carried in. Only in UDP there is more than one packet in a send.
    pub carrier: Carrier,
    /// TOS or traffic class of the outer header: DSCP and ECN (RFC 4301 section 5.1.2, RFC 6040).
    /// With [`Carrier::Ip`] it is in the header already.
    pub tos: u8,
    /// Packets of up to this many of these bytes may leave in fragments when the path is too narrow
    /// for them, since nobody makes their inner packets smaller ([`crate::mtu`]), or since their SA
    /// or their own header allows it. All others must not. With [`Carrier::Ip`] the header's DF bit
    /// says the same.
    pub fragmentable: u16,
}

/// ESP packets on their way out. Owns one buffer of fixed size.
pub struct TxBatch {
    /// The packets. Fixed length; only what `sends` names is meaningful.
    pub buf: Vec<u8>,
    /// What to send, in this order. Complete after [`Self::seal`].
    pub sends: Vec<Send>,
    /// Bytes that are taken, by packets that are here or planned.
    pub(crate) used: usize,
    /// The frames that are planned and not yet here.
    pub(crate) plan: Vec<Planned>,
    pub(crate) jobs: Vec<Job>,
    /// The SAs of `jobs`.
    pub(crate) sas: Vec<Arc<OutSa>>,
    pub(crate) ah_jobs: Vec<IcvJob>,
    /// The SAs of `ah_jobs`.
    pub(crate) ah_sas: Vec<Arc<OutSa>>,
    /// What the ICVs of `ah_jobs` cover of the headers in front of AH.
    pub(crate) heads: Vec<u8>,
    config: TxConfig,
    /// The last of `sends` takes no more packets.
    closed: bool,
    /// Key index of its last packet: the same SA has the same path.
    last_key: u16,
    /// Packets that were taken out again, until a worker counts them.
    unsealed: u64,
    keys: Vec<&'static EspKey>,
    icv_keys: Vec<&'static IcvKey>,
    /// This batch is measured.
    pub(crate) laps: Option<Laps>,
}

impl TxBatch {
    /// An empty batch.
    pub fn new(config: TxConfig) -> Self {
        Self {
            buf: vec![0; config.capacity.min(u32::MAX as usize)],
            sends: Vec::with_capacity(64),
            used: 0,
            plan: Vec::new(),
            jobs: Vec::with_capacity(512),
            sas: Vec::with_capacity(64),
            ah_jobs: Vec::new(),
            ah_sas: Vec::new(),
            heads: Vec::new(),
            config,
            closed: false,
            last_key: NO_KEY,
            unsealed: 0,
            keys: Vec::new(),
            icv_keys: Vec::new(),
            laps: None,
        }
    }

    /// True when a frame of this length, cut as `offload` says, fits, unless its SA pads or puts
    /// fragments together. When not: seal, send, [`Self::clear`].
    pub fn has_room(&self, frame_len: usize, offload: &Offload) -> bool {
        self.needs(frame_len, offload) <= self.room()
            && self.sas.len().max(self.ah_sas.len()) < usize::from(u16::MAX) / 2
    }

    /// Upper bound of the bytes that a frame becomes.
    pub(crate) fn needs(&self, frame_len: usize, offload: &Offload) -> usize {
        let segments = match offload.gso {
            Gso::None => return frame_len + MAX_OVERHEAD,
            _ => frame_len / usize::from(offload.segment_size.max(1)) + 1,
        };
        frame_len + segments * (MAX_HEADERS.min(frame_len) + MAX_OVERHEAD)
    }

    /// True when nothing is to be sent.
    pub fn is_empty(&self) -> bool {
        self.sends.is_empty() && self.plan.is_empty()
    }

    /// Bytes that are free.
    pub fn room(&self) -> usize {
        self.buf.len().saturating_sub(self.used)
    }

    /// Bytes in use.
    pub fn used(&self) -> usize {
        self.used
    }

    /// Forgets what was sent.
    pub fn clear(&mut self) {
        self.sends.clear();
        self.plan.clear();
        self.used = 0;
        self.closed = false;
        self.sealed();
    }

    /// The packets of a send.
    pub fn bytes(&self, send: &Send) -> &[u8] {
        &self.buf[send.offset as usize..(send.offset + send.len) as usize]
    }

    /// Writes the packets of the frames that [`crate::Worker::plan`] has taken from `buf`. Needs
    /// nothing that threads share: several may do so at a time, each with its own batch.
    pub fn emit(&mut self, buf: &mut [u8]) {
        if self.plan.is_empty() {
            return;
        }
        let (mut plan, sas) = (std::mem::take(&mut self.plan), std::mem::take(&mut self.sas));
        for planned in &plan {
            if let (Some(frame), Some(sa)) = (planned.frame(buf), sas.get(planned.key())) {
                planned.emit(frame, sa, self);
            }
        }
        plan.clear();
        (self.plan, self.sas) = (plan, sas);
        self.lap(Stage::Encapsulation);
    }

    /// Seals everything in the batch that is not sealed yet. After it the sends are complete. Like
    /// [`Self::emit`], which comes before it, for several threads at a time.
    pub fn seal(&mut self) {
        debug_assert!(self.plan.is_empty(), "planned and not emitted");
        let mut keys = recycle(std::mem::take(&mut self.keys));
        keys.extend(self.sas.iter().filter_map(|sa| sa.state.key.esp()));
        batch::seal(&mut self.buf, &mut self.jobs, &keys);
        self.keys = recycle(keys);
        // Whatever an engine does, nothing leaves in clear.
        let mut whole = self.jobs.iter().all(|job| job.ok);
        if !self.ah_jobs.is_empty() {
            self.sign();
            whole &= self.ah_jobs.iter().all(|job| job.ok);
        }
        if !whole {
            self.withdraw();
        }
        self.lap(Stage::Crypto);
        self.sealed();
    }

    /// Takes the packets that no engine has sealed, which is a defect of ours, out of the sends,
    /// and wipes what was to be encrypted.
    #[cold]
    fn withdraw(&mut self) {
        let Self { buf, jobs, ah_jobs, sends, unsealed, .. } = self;
        for job in jobs.iter().filter(|job| !job.ok) {
            let packet = buf.get_mut(job.start as usize..);
            let len = packet.as_ref().map_or(0, |rest| rest.len().min(job.len as usize));
            packet.unwrap_or_default()[..len].fill(0xff);
        }
        let esp = jobs.iter().filter(|job| !job.ok).map(|job| job.start);
        let failed: Vec<u32> = esp.chain(ah_jobs.iter().filter(|job| !job.ok).map(|job| job.start)).collect();
        for send in std::mem::take(sends) {
            let end = send.offset + send.len;
            let mut run: Option<Send> = None;
            let mut at = send.offset;
            while at < end {
                let len = u32::from(send.segment_size.max(1)).min(end - at);
                if failed.iter().any(|start| (at..at + len).contains(start)) {
                    *unsealed += 1;
                    sends.extend(run.take());
                } else if let Some(run) = &mut run {
                    (run.len, run.segments) = (run.len + len, run.segments + 1);
                } else {
                    run = Some(Send { offset: at, len, segment_size: len as u16, segments: 1, ..send });
                }
                at += len;
            }
            sends.extend(run);
        }
        self.closed = true;
    }

    /// How many packets were not sealed since this was asked last.
    #[inline]
    pub(crate) fn take_unsealed(&mut self) -> u64 {
        std::mem::take(&mut self.unsealed)
    }

    /// Writes the ICVs of AH.
    #[cold]
    fn sign(&mut self) {
        let mut keys = recycle(std::mem::take(&mut self.icv_keys));
        keys.extend(self.ah_sas.iter().filter_map(|sa| sa.state.key.ah()));
        icv::sign(&self.heads, &mut self.buf, &mut self.ah_jobs, &keys);
        self.icv_keys = recycle(keys);
    }

    /// Measures this batch from now until [`Self::times`].
    pub fn measure(&mut self, stopwatch: Stopwatch) {
        self.laps = Some(Laps::start(stopwatch));
    }

    /// A stage of it has ended. Nothing happens unless the batch is measured.
    #[inline]
    pub fn lap(&mut self, stage: Stage) {
        if let Some(laps) = &mut self.laps {
            laps.lap(stage);
        }
    }

    /// What has passed since the last stage does not count: the batch has waited for others.
    #[inline]
    pub fn resume(&mut self) {
        if let Some(laps) = &mut self.laps {
            laps.resume();
        }
    }

    /// Ends the measurement.
    #[inline]
    pub fn times(&mut self) -> Option<StageTimes> {
        self.laps.take().map(|laps| laps.times)
    }

    /// Everything so far has been sealed: key indices start anew.
    fn sealed(&mut self) {
        self.jobs.clear();
        self.sas.clear();
        self.ah_jobs.clear();
        self.ah_sas.clear();
        self.heads.clear();
        self.last_key = NO_KEY;
    }

    /// The key index of an ESP SA for this batch.
    #[inline]
    pub(crate) fn key_of(&mut self, sa: &Arc<OutSa>) -> u16 {
        index_of(&mut self.sas, sa)
    }

    /// The key index of an AH SA for this batch.
    pub(crate) fn ah_key_of(&mut self, sa: &Arc<OutSa>) -> u16 {
        index_of(&mut self.ah_sas, sa)
    }

    /// Enters the packet of `len` bytes at `self.used`, which begins with its IP header.
    pub(crate) fn push_whole(&mut self, len: usize, sa: &OutSa, tos: u8, fragmentable: u16) {
        self.sends.push(Send {
            offset: self.used as u32,
            len: len as u32,
            segment_size: len as u16,
            segments: 1,
            local: sa.path.local,
            remote: sa.path.remote,
            carrier: Carrier::Ip,
            tos,
            fragmentable,
        });
        self.closed = true;
        self.last_key = NO_KEY;
    }

    /// Enters the ESP packet of `len` bytes at `at` into the sends: it joins the last one if it
    /// may.
    #[inline]
    pub(crate) fn push_send(
        &mut self,
        (at, len): (usize, usize),
        key: u16,
        sa: &OutSa,
        tos: u8,
        fragmentable: u16,
    ) {
        let path = &sa.path;
        if !self.closed
            && let Some(last) = self.sends.last_mut()
            && usize::from(last.segment_size) >= len
            && last.tos == tos
            && last.fragmentable == fragmentable
            && last.carrier == Carrier::Udp
            && path.udp_encap
            && last.segments < self.config.max_segments
            && (self.last_key == key || (last.remote == path.remote && last.local == path.local))
            && last.len as usize + len <= self.config.max_bytes
        {
            last.len += len as u32;
            last.segments += 1;
            self.last_key = key;
            // "Only the last shorter": after a shorter one the send is complete.
            self.closed = len < usize::from(last.segment_size);
            return;
        }
        self.sends.push(Send {
            offset: at as u32,
            len: len as u32,
            segment_size: len as u16,
            segments: 1,
            local: path.local,
            remote: path.remote,
            carrier: if path.udp_encap { Carrier::Udp } else { Carrier::Esp },
            tos,
            fragmentable,
        });
        self.closed = false;
        self.last_key = key;
    }
}

/// An empty list of keys of another lifetime that reuses the memory of the last one. (Collecting in
/// place keeps the allocation; were the library to stop doing so, the allocation test would tell.)
pub(crate) fn recycle<'a, Key>(mut keys: Vec<&Key>) -> Vec<&'a Key> {
    keys.clear();
    keys.into_iter().map_while(|_| None).collect()
}

/// The index of an SA in a list to whose end it is added unless it is there.
#[inline]
fn index_of(sas: &mut Vec<Arc<OutSa>>, sa: &Arc<OutSa>) -> u16 {
    if !sas.last().is_some_and(|last| Arc::ptr_eq(last, sa)) {
        sas.push(sa.clone());
    }
    (sas.len() - 1) as u16
}

/// One receive: an ESP packet, or several of equal length that GRO merged.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Datagram {
    /// Where it begins in the buffer.
    pub offset: u32,
    /// Bytes.
    pub len: u32,
    /// Bytes of each packet but the last, which may be shorter; 0 for one packet.
    pub segment_size: u16,
    /// The address it was sent to.
    pub local: SocketAddr,
    /// The address it came from.
    pub remote: SocketAddr,
    /// What it came in. ESP is accepted in either form for every SA (RFC 7296 section 2.23). With
    /// [`Carrier::Ip`] it is AH, and begins with the outer IP header.
    pub carrier: Carrier,
    /// TOS or traffic class of the outer header, for ECN (RFC 6040).
    pub tos: u8,
}

/// One write to the TUN device: `offload.emit()`, then the ranges `RxBatch::iov[iov]` of the
/// buffer.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Write {
    /// What the device has to know.
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
    /// What to write, in this order.
    pub writes: Vec<Write>,
    /// Ranges, as [`Self::slice`] reads them: offset and length.
    pub iov: Vec<(u32, u32)>,
    /// Bytes that are not in the receive buffer.
    pub extra: Vec<u8>,
    /// What was opened and not yet delivered.
    pub(crate) opening: Opening,
}

impl RxBatch {
    /// A range of [`Self::iov`] whose offset is not below this is in `extra`, so many bytes further
    /// on.
    pub const EXTRA: u32 = 1 << 31;
    /// Most bytes of `extra`: what a few bytes inflate to is bounded for the batch, not for each
    /// packet only.
    pub const MAX_EXTRA: usize = 16 << 20;

    /// An empty batch.
    pub fn new() -> Self {
        Self::default()
    }

    /// Measures this batch from now until [`Self::times`].
    pub fn measure(&mut self, stopwatch: Stopwatch) {
        self.opening.laps = Some(Laps::start(stopwatch));
    }

    /// A stage of it has ended. Nothing happens unless the batch is measured.
    #[inline]
    pub fn lap(&mut self, stage: Stage) {
        if let Some(laps) = &mut self.opening.laps {
            laps.lap(stage);
        }
    }

    /// What has passed since the last stage does not count: the batch has waited for others.
    #[inline]
    pub fn resume(&mut self) {
        if let Some(laps) = &mut self.opening.laps {
            laps.resume();
        }
    }

    /// Ends the measurement.
    #[inline]
    pub fn times(&mut self) -> Option<StageTimes> {
        self.opening.laps.take().map(|laps| laps.times)
    }

    /// Forgets what was written.
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

/// Takes a receive on the NAT traversal port apart, since a buffer that GRO merged may mix IKE and
/// ESP (RFC 3948 section 2): runs of ESP are appended to `esp`, everything else goes to `other`
/// with its range in the buffer (an IKE range begins with the non-ESP marker).
pub fn demux(
    buf: &[u8],
    datagram: &Datagram,
    esp: &mut Vec<Datagram>,
    mut other: impl FnMut(UdpKind, Range<usize>),
) {
    let mut run: Option<Datagram> = None;
    for range in strides(datagram) {
        let kind = buf.get(range.clone()).map(esp::udp_kind);
        match (kind, &mut run) {
            (Some(UdpKind::Esp), Some(run)) => run.len += range.len() as u32,
            (Some(UdpKind::Esp), None) => {
                run = Some(Datagram { offset: range.start as u32, len: range.len() as u32, ..*datagram });
            }
            (kind, _) => {
                esp.extend(run.take());
                if let Some(kind) = kind {
                    other(kind, range);
                }
            }
        }
    }
    esp.extend(run);
}

/// The packets of a receive. An empty datagram is one empty packet.
pub(crate) fn strides(datagram: &Datagram) -> impl Iterator<Item = Range<usize>> + use<> {
    let start = datagram.offset as usize;
    let end = start + datagram.len as usize;
    let step = match datagram.segment_size {
        0 => datagram.len.max(1) as usize,
        n => usize::from(n),
    };
    let count = (datagram.len as usize).div_ceil(step).max(1);
    (0..count).map(move |i| {
        let at = start + i * step;
        at..(at + step).min(end)
    })
}

#[cfg(test)]
mod tests;
