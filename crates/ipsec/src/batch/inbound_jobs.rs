//! The packets of a batch between [`RxBatch::open`](super::RxBatch::open) and
//! [`Worker::deliver`](crate::Worker::deliver).

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ironswan_crypto::batch::{EspKey, Job};
use ironswan_crypto::icv::{IcvJob, IcvKey};

use crate::ah::Ah;
use crate::audit::RefusedCount;
use crate::counters::Tally;
use crate::late::LateJobs;
use crate::sa::InSa;
use crate::stages::BatchTimer;
use crate::tap::Tap;

/// The packets of a batch, and everything that opening has found out about them.
#[derive(Default)]
pub(crate) struct InboundJobs {
    /// One job per packet, in the order of arrival. The job of an AH packet is empty: `ah` has its
    /// ICV.
    pub(crate) jobs: Vec<Job>,
    /// TOS of the outer header, of each job.
    pub(crate) tos: Vec<u8>,
    /// State of the inner checksum of each job; empty when opening does not verify them.
    pub(crate) checksums: Vec<Checksum>,
    /// The SAs of this batch: `Job::key` is an index into it. One may be there more than once.
    pub(crate) sas: Vec<Arc<InSa>>,
    /// The jobs whose packet did not come from the address and port of their SA, in their order.
    /// Nearly always none.
    pub(crate) other_sources: Vec<OtherSource>,
    /// The jobs whose SA is not plain, in their order.
    pub(crate) outer: Vec<OuterHeader>,
    pub(crate) ah: AhJobs,
    pub(crate) keys: Vec<&'static EspKey>,
    pub(crate) icv_keys: Vec<&'static IcvKey>,
    /// Counts of opening, until a worker takes them.
    pub(crate) tally: Tally,
    /// Packets that opening refused, for the audit, until a worker takes them.
    pub(crate) refused: Vec<RefusedCount>,
    /// Opening verifies inner checksums.
    pub(crate) verify_checksums: bool,
    /// Present when this batch is measured.
    pub(crate) timer: Option<BatchTimer>,
    /// Packets that the replay check has refused and that are opened all the same.
    pub(crate) late: LateJobs,
    /// Present while a capture is on.
    pub(crate) tap: Option<Box<Tap>>,
}

impl InboundJobs {
    /// Forgets the packets of the last batch.
    pub(crate) fn clear(&mut self) {
        self.jobs.clear();
        self.tos.clear();
        self.checksums.clear();
        self.sas.clear();
        self.other_sources.clear();
        self.outer.clear();
        self.ah.jobs.clear();
        self.ah.heads.clear();
        self.late.clear();
    }
}

/// State of the TCP or UDP checksum of an inner packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Checksum {
    /// Nobody has verified it.
    Unknown,
    /// Verified, and right.
    Right,
    /// Verified, and wrong.
    Wrong,
}

/// A packet in UDP whose source is not the peer's address and port in its SA.
pub(crate) struct OtherSource {
    /// Index of its job.
    pub(crate) job: usize,
    pub(crate) remote: SocketAddr,
    /// The packet was authentic, and newer than all before it.
    pub(crate) newest: bool,
}

/// The outer header of a packet whose SA is not plain.
pub(crate) struct OuterHeader {
    /// Index of its job.
    pub(crate) job: usize,
    /// Our address.
    pub(crate) local: IpAddr,
    /// The peer's address.
    pub(crate) remote: IpAddr,
    /// The AH behind the outer header; `None` for ESP.
    pub(crate) ah: Option<Ah>,
}

/// The AH packets of a batch, whose ICVs are verified beside the ESP jobs.
#[derive(Default)]
pub(crate) struct AhJobs {
    /// One for each outer header with AH, in their order.
    pub(crate) jobs: Vec<IcvJob>,
    /// The headers in front of AH, mutable fields zeroed.
    pub(crate) heads: Vec<u8>,
}
