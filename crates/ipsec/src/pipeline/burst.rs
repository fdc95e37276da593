//! Frames that were read, or datagrams that were received, together. Where flows and SAs are so
//! many that the processor's caches do not hold them, most of the time of a small packet is the
//! wait for memory: its entry in the flow cache, its place in the list of SAs, its SA, the SA's
//! state, each of which says where the next is. Here every step is made for all of them before the
//! next, so that they wait together.

use ironswan_crypto::prefetch;
use ironswan_wire::esp;
use ironswan_wire::ip::{self, Fragment};
use ironswan_wire::offload::Offload;

use crate::batch::{Carrier, Datagram, TxBatch, strides};
use crate::flow::FlowKey;
use crate::scratch::PrefetchScratch;
use crate::snapshot::Snapshot;
use crate::verdict::Verdict;
use crate::worker::Worker;

/// More SAs than the cache nearest to the processor holds.
const MANY_SAS: u32 = 256;
/// Most SAs that are asked for at a time.
const MAX_PREFETCHED: usize = 256;

/// A read of the TUN device, in the buffer of its burst.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Offset in the buffer, in bytes.
    pub start: usize,
    /// Bytes.
    pub len: usize,
    /// The device's header for this frame.
    pub offload: Offload,
}

impl Frame {
    /// The bytes of the frame in that buffer.
    #[inline]
    pub(super) fn of<'a>(&self, buf: &'a mut [u8]) -> Option<&'a mut [u8]> {
        buf.get_mut(self.start..)?.get_mut(..self.len)
    }
}

impl Worker {
    /// Takes frames of `buf` as [`Self::outbound`] does, in their order, and returns how many. When
    /// these are not all, `tx` is full: seal, send, clear, and call again with the others.
    #[must_use]
    pub fn outbound_burst(&mut self, buf: &mut [u8], frames: &[Frame], tx: &mut TxBatch) -> usize {
        self.prefetch_outbound(buf, frames);
        for (i, frame) in frames.iter().enumerate() {
            let bytes = frame.of(buf);
            if !self.outbound(bytes.unwrap_or_default(), &frame.offload, tx) {
                return i;
            }
        }
        frames.len()
    }

    /// Asks for the memory that these frames will need, where the processor's caches may not have
    /// it.
    #[inline]
    pub(super) fn prefetch_outbound(&mut self, buf: &[u8], frames: &[Frame]) {
        if frames.len() > 1 && (self.flows.is_large() || self.snap.places.len() > MANY_SAS) {
            self.prefetch_flows(buf, frames);
        }
    }

    /// Loads flows, SAs and their states. The result is a hint: nothing is decided here.
    #[inline(never)]
    fn prefetch_flows(&mut self, buf: &[u8], frames: &[Frame]) {
        let PrefetchScratch { keys, places } = &mut self.prefetch_scratch;
        keys.clear();
        places.clear();
        for frame in frames {
            let Some(bytes) = buf.get(frame.start..).and_then(|rest| rest.get(..frame.len)) else { continue };
            let Ok(info) = ip::parse(bytes) else { continue };
            if info.fragment == Fragment::No
                && let Some(key) = FlowKey::new(&info, bytes)
            {
                self.flows.prefetch(&key);
                keys.push(key);
            }
        }
        for key in keys.iter() {
            if let Verdict::Sa(place) = self.flows.get(&self.snap, key) {
                self.snap.places.prefetch(place);
                places.push(place);
            }
        }
        let sas = || places.iter().filter_map(|place| self.snap.places.get(*place));
        sas().for_each(|sa| prefetch(&**sa, 0..size_of_val(&**sa)));
        sas().for_each(|sa| sa.state.prefetch());
    }
}

/// Asks for the memory that the SAs of these datagrams will need. Nothing is decided here, and a
/// packet whose memory was not asked for only takes longer. AH is left out: it comes one packet at
/// a time.
#[inline]
pub(super) fn prefetch_inbound(snap: &Snapshot, buf: &[u8], datagrams: &[Datagram]) {
    if datagrams.len() > 1 && snap.inbound.len() > MANY_SAS as usize {
        prefetch_sas(snap, buf, datagrams);
    }
}

#[inline(never)]
fn prefetch_sas(snap: &Snapshot, buf: &[u8], datagrams: &[Datagram]) {
    let mut spis = [0; MAX_PREFETCHED];
    let mut free = spis.iter_mut();
    let mut last = 0;
    for range in datagrams.iter().filter(|d| d.carrier != Carrier::Ip).flat_map(strides) {
        let Some((spi, _)) = buf.get(range).and_then(esp::header) else { continue };
        if spi == last {
            continue;
        }
        last = spi;
        let Some(place) = free.next() else { break };
        snap.inbound.prefetch(spi);
        *place = spi;
    }
    // 0 is no SA's.
    let sas = || spis.iter().take_while(|spi| **spi != 0).filter_map(|spi| snap.inbound.get(*spi));
    sas().for_each(|sa| sa.prefetch());
    sas().for_each(|sa| sa.state.prefetch());
}
