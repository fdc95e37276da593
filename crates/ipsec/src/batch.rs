//! The memory that the caller lends for one batch, and what the engine says about it.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `tx` | packets on their way out, and the sends that they leave in |
//! | `rx` | packets on their way in, and the writes that deliver them |
//! | `planned` | a frame whose packets are numbered and not yet written |
//! | `inbound_jobs` | packets that are opened and not yet delivered |
//! | `datagram` | receives, and how packets are carried between gateways |

mod datagram;
mod inbound_jobs;
mod planned;
mod rx;
mod tx;

pub(crate) use datagram::strides;
pub use datagram::{Carrier, Datagram, demux};
pub(crate) use inbound_jobs::{AhJobs, Checksum, InboundJobs, OtherSource, OuterHeader};
pub(crate) use planned::PlannedFrame;
pub use rx::{RxBatch, Write};
pub(crate) use tx::{MAX_HEADERS, MAX_OVERHEAD};
pub use tx::{Send, TxBatch, TxConfig};

/// Most bytes of what is sent or written as one and cut by the kernel. With the headers of IP, UDP
/// and the link it stays below a device's `gso_max_size`, 65,536: what reaches that is cut before
/// the driver sees it, packet by packet (`gso_features_check` in net/core/dev.c).
pub(crate) const MAX_SUPER: usize = 65_400;

/// An empty list of keys of another lifetime that reuses the memory of the last one. (Collecting in
/// place keeps the allocation; were the library to stop doing so, the allocation test would tell.)
pub(crate) fn recycle<'a, Key>(mut keys: Vec<&Key>) -> Vec<&'a Key> {
    keys.clear();
    keys.into_iter().map_while(|_| None).collect()
}
