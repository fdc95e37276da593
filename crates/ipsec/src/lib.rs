//! The packet engine of RFC 4301, without I/O: SAD, SPD; ESP, AH and IPComp, in tunnel and
//! transport mode.
//!
//! One [`Engine`] is shared by all threads; each thread has a [`Worker`]. The key daemon feeds the
//! engine with [`ironswan_wire::sadb::Command`] and takes [`ironswan_wire::sadb::Up`] back.
//!
//! ```text
//! TUN read --> Worker::outbound --> TxBatch --> Worker::seal --> sendmsg with UDP_SEGMENT
//!              inner header, SPD, SA, MSS, sequence numbers, split, checksum
//! recvmsg with UDP_GRO --> demux --> Worker::inbound --> RxBatch --> writev to the TUN
//!              SPI, replay check, open, replay commit, trailer, inner header, selectors, merge
//! ```
//!
//! The engine owns no packet memory, works in place on what the caller lends, allocates nothing per
//! packet in the steady state, reads no clock and opens no socket.
//!
//! Not here: making fragments (a packet that does not fit its path leaves whole, and says whether
//! it may be cut); of the path MTU only what ESP and AH take from it ([`mtu`]).
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `engine` | SAD, SPD and settings, shared by all threads |
//! | `worker` | one thread's view of the engine |
//! | `scratch` | scratch memory of a worker |
//! | `pipeline/` | the way of a packet, out and in |
//! | `spd` | policies, and the look-up of a packet |
//! | `sad` | maps and lists of the SAD that are cheap to copy with one change |
//! | `snapshot` | SAD and SPD at one moment |
//! | `sa` | one SA |
//! | `replay` | the replay window |
//! | `late` | packets that the replay check refuses, by how late they were |
//! | `flow` | flows: a packet's selectors packed, and those accepted on inbound SAs |
//! | `verdict` | the decision for a flow that leaves, and the cache of decisions |
//! | `decision` | the decision about one packet, and what it rests on, for people |
//! | `batch` | memory that a caller lends for one batch |
//! | `held` | packets that wait for an SA |
//! | `early` | packets that arrived before their SA |
//! | `up` | messages for the key daemon |
//! | `ah` | AH |
//! | `ipcomp` | IPComp |
//! | `fragment` | fragments, by RFC 4301 section 7 |
//! | `reasm` | puts fragments together in front of transport mode |
//! | `mtu` | bytes that ESP and AH take from a path MTU |
//! | `mss` | clamps the MSS of TCP |
//! | `ecn` | ECN and DSCP of tunnels |
//! | `counters` | counters, and the closed list of drop reasons |
//! | `stages` | time of a packet, by stage |
//! | `audit` | events of RFC 4301 section 9 |
//! | `tap` | copies of packets, for captures |
#![forbid(unsafe_code)]

pub mod ah;
mod audit;
mod batch;
mod counters;
mod decision;
mod early;
mod ecn;
mod engine;
mod flow;
mod fragment;
mod held;
mod ipcomp;
mod late;
mod mss;
pub mod mtu;
mod pipeline;
mod reasm;
mod replay;
mod sa;
mod sad;
mod scratch;
mod snapshot;
mod spd;
mod stages;
mod tap;
mod up;
mod verdict;
mod worker;

pub use batch::{Carrier, Datagram, RxBatch, Send, TxBatch, TxConfig, Write, demux};
pub use counters::{Counters, DropReason, Traffic};
pub use decision::Decision;
pub use engine::{ApplyError, Config, Engine, PolicyInfo, SaInfo};
pub use late::{Histogram, ReplayDrops, WindowNeeds};
pub use pipeline::{Frame, unmerge};
pub use replay::{Replay, ReplayError};
pub use stages::{Stage, StageTimes, Stages, Stopwatch};
pub use tap::{Fate, Layer, Outer, Tap, TapPacket, Wanted};
pub use worker::Worker;
