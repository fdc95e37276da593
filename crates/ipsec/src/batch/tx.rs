//! Packets on their way out: one buffer, and the sends that it consists of.

use std::net::SocketAddr;
use std::sync::Arc;

use ironswan_crypto::batch::{self, EspKey, Job};
use ironswan_crypto::icv::{self, IcvJob, IcvKey};
use ironswan_wire::offload::{Gso, Offload};

use super::datagram::Carrier;
use super::planned::PlannedFrame;
use super::{MAX_SUPER, recycle};
use crate::sa::OutSa;
use crate::stages::{BatchTimer, Stage, StageTimer, StageTimes, Stopwatch};
use crate::tap::{Tap, Wanted};

/// Upper bound of what is added to one packet. ESP: SPI and sequence number, IV, padding, trailer,
/// ICV, together 73. AH in tunnel mode: an IPv6 header, and AH with 32 bytes of ICV.
pub(crate) const MAX_OVERHEAD: usize = 40 + 48;
/// Upper bound of the headers of one segment, IPv6 extension headers included.
pub(crate) const MAX_HEADERS: usize = 256;
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

/// Consecutive packets to one destination. `buf[offset..offset + len]` is exactly what goes into
/// the UDP payload or the raw socket: every `segment_size` bytes one packet, only the last may be
/// shorter.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Send {
    /// Offset in [`TxBatch::buf`], in bytes.
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
    /// The protocol around the packets. More than one packet in a send is possible in UDP only.
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
    /// The sends, in this order. Complete after [`Self::seal`].
    pub sends: Vec<Send>,
    /// Bytes that are taken, by packets that are here or planned.
    pub(crate) used: usize,
    /// The frames that are planned and not yet here.
    pub(crate) plan: Vec<PlannedFrame>,
    pub(crate) jobs: Vec<Job>,
    /// The SAs of `jobs`.
    pub(crate) sas: Vec<Arc<OutSa>>,
    pub(crate) ah_jobs: Vec<IcvJob>,
    /// The SAs of `ah_jobs`.
    pub(crate) ah_sas: Vec<Arc<OutSa>>,
    /// The headers in front of AH as the ICVs of `ah_jobs` cover them.
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
    pub(crate) timer: Option<BatchTimer>,
    /// Present while a capture is on.
    pub(crate) tap: Option<Box<Tap>>,
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
            timer: None,
            tap: None,
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

    /// Forgets the sends.
    pub fn clear(&mut self) {
        self.sends.clear();
        self.plan.clear();
        self.used = 0;
        self.closed = false;
        self.reset_jobs();
    }

    /// The packets of a send.
    pub fn bytes(&self, send: &Send) -> &[u8] {
        &self.buf[send.offset as usize..(send.offset + send.len) as usize]
    }

    /// Seals everything in the batch that is not sealed yet. After it the sends are complete. Like
    /// [`Self::emit`], which comes before it, for several threads at a time.
    pub fn seal(&mut self) {
        debug_assert!(self.plan.is_empty(), "planned and not emitted");
        if self.tap.is_some() {
            self.copy_inner();
        }
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
            self.remove_unsealed();
        }
        self.lap(Stage::Crypto);
        if self.tap.is_some() {
            self.copy_outer();
        }
        self.reset_jobs();
    }

    /// Takes the packets that no engine has sealed, which is a defect of ours, out of the sends,
    /// and wipes what was to be encrypted.
    #[cold]
    fn remove_unsealed(&mut self) {
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

    /// Copies the packets of this batch that are wanted, from now until [`Self::take_tap`].
    pub fn tap(&mut self, wanted: Arc<Wanted>) {
        self.tap = Some(Box::new(Tap::new(wanted)));
    }

    /// Takes the copies; `None` when none were to be made.
    #[inline]
    pub fn take_tap(&mut self) -> Option<Box<Tap>> {
        self.tap.take()
    }

    /// Measures this batch from now until [`Self::times`].
    pub fn measure(&mut self, stopwatch: Stopwatch) {
        self.timer = Some(BatchTimer::start(stopwatch));
    }

    /// A stage of it has ended. Nothing happens unless the batch is measured.
    #[inline]
    pub fn lap(&mut self, stage: Stage) {
        if let Some(timer) = &mut self.timer {
            timer.lap(stage);
        }
    }

    /// Leaves out the time since the last stage: the batch has waited for others.
    #[inline]
    pub fn resume(&mut self) {
        if let Some(timer) = &mut self.timer {
            timer.resume();
        }
    }

    /// Ends the measurement.
    #[inline]
    pub fn times(&mut self) -> Option<StageTimes> {
        self.timer.take().map(|timer| timer.times)
    }

    /// Everything so far has been sealed: key indices start anew.
    fn reset_jobs(&mut self) {
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

/// The index of an SA in a list to whose end it is added unless it is there.
#[inline]
fn index_of(sas: &mut Vec<Arc<OutSa>>, sa: &Arc<OutSa>) -> u16 {
    if !sas.last().is_some_and(|last| Arc::ptr_eq(last, sa)) {
        sas.push(sa.clone());
    }
    (sas.len() - 1) as u16
}

#[cfg(test)]
#[path = "tx_tests.rs"]
mod tests;
