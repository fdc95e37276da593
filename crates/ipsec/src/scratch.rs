//! Scratch memory of a worker: every batch uses it again, so that packets allocate nothing.

use std::time::Duration;

use crate::flow::FlowKey;
use crate::ipcomp::Compressor;
use crate::pipeline::merge::Merger;
use crate::reasm::Reassembler;

/// For asking ahead for the memory that frames will need.
#[derive(Default)]
pub(crate) struct PrefetchScratch {
    /// Flows of the frames.
    pub(crate) keys: Vec<FlowKey>,
    /// Places of their SAs.
    pub(crate) places: Vec<u32>,
}

/// For packets that leave by SAs that are not plain.
#[derive(Default)]
pub(crate) struct OutboundScratch {
    /// One segment of a super-packet.
    pub(crate) segment: Vec<u8>,
    pub(crate) compressor: Compressor,
    pub(crate) reassembler: Reassembler,
    pub(crate) ident: Identification,
    /// Time at which a dummy packet is due; `None` when no SA wants any (`pipeline::dummies`).
    pub(crate) dummies_due: Option<Duration>,
}

/// Numbers for IPv4 headers that need an identification.
#[derive(Default)]
pub(crate) struct Identification(u16);

impl Identification {
    /// The next number: not zero, which the kernel would replace, under the ICV of AH.
    pub(crate) fn next(&mut self) -> u16 {
        self.0 = self.0.checked_add(1).unwrap_or(1);
        self.0
    }
}

/// For the delivery of one batch after the other.
#[derive(Default)]
pub(crate) struct InboundScratch {
    /// Packets delivered by each SA of the batch and not yet added to its usage.
    pub(crate) delivered: Vec<Delivered>,
    pub(crate) compressor: Compressor,
    pub(crate) merger: Merger,
}

/// Packets that an SA has delivered and that its usage does not contain yet.
#[derive(Clone, Copy, Default)]
pub(crate) struct Delivered {
    pub(crate) packets: u64,
    pub(crate) bytes: u64,
}
