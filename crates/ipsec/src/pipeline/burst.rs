//! Frames that were read together. Where flows and SAs are so many that the processor's caches do not hold them, most of the
//! time of a small packet is the wait for memory: its entry in the flow cache, its place in the list of SAs, its SA, the SA's
//! state, each of which says where the next is. Here every step is made for all frames before the next, so that they wait
//! together.

use ironswan_crypto::prefetch;
use ironswan_wire::ip::{self, Fragment};
use ironswan_wire::offload::Offload;

use crate::batch::TxBatch;
use crate::flow::{FlowKey, Verdict};
use crate::worker::Worker;

/// More SAs than the cache nearest to the processor holds.
const MANY_SAS: u32 = 256;

/// A read of the TUN device, in the buffer of its burst.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Frame {
    /// Where it begins.
    pub start: usize,
    /// Bytes.
    pub len: usize,
    /// What the device said about it.
    pub offload: Offload,
}

/// Scratch memory of [`Worker::outbound_burst`].
#[derive(Default)]
pub(crate) struct Burst {
    keys: Vec<FlowKey>,
    /// Of the SAs that will be needed.
    places: Vec<u32>,
}

impl Worker {
    /// Takes frames of `buf` as [`Self::outbound`] does, in their order, and returns how many. When these are not all, `tx` is
    /// full: seal, send, clear, and call again with the others.
    #[must_use]
    pub fn outbound_burst(&mut self, buf: &mut [u8], frames: &[Frame], tx: &mut TxBatch) -> usize {
        if frames.len() > 1 && (self.flows.is_large() || self.snap.places.len() > MANY_SAS) {
            self.foresee(buf, frames);
        }
        for (i, frame) in frames.iter().enumerate() {
            let bytes = buf.get_mut(frame.start..).and_then(|rest| rest.get_mut(..frame.len));
            if !self.outbound(bytes.unwrap_or_default(), &frame.offload, tx) {
                return i;
            }
        }
        frames.len()
    }

    /// Asks for the memory that these frames will need. What it finds out is a hint: nothing is decided here.
    #[inline(never)]
    fn foresee(&mut self, buf: &[u8], frames: &[Frame]) {
        let Burst { keys, places } = &mut self.burst;
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
        sas().for_each(|sa| prefetch(&**sa, size_of_val(&**sa)));
        sas().for_each(|sa| sa.state.prefetch());
    }
}
