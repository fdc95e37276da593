//! The packet engine of RFC 4301, without I/O: SAD, SPD; ESP, AH and IPComp, in tunnel and transport mode.
//!
//! One [`Engine`] is shared by all threads; each thread has a [`Worker`]. The key daemon feeds the engine with
//! [`ironswan_wire::sadb::Command`] and takes [`ironswan_wire::sadb::Up`] back.
//!
//! ```text
//! TUN read --> Worker::outbound --> TxBatch --> Worker::seal --> sendmsg with UDP_SEGMENT
//!              inner header, SPD, SA, MSS, sequence numbers, split, checksum
//! recvmsg with UDP_GRO --> demux --> Worker::inbound --> RxBatch --> writev to the TUN
//!              SPI, replay check, open, replay commit, trailer, inner header, selectors, merge
//! ```
//!
//! The engine owns no packet memory, works in place on what the caller lends, allocates nothing per packet in the steady
//! state, reads no clock and opens no socket.
//!
//! Not here: making fragments (a packet that does not fit its path leaves whole, and says whether it may be cut); of the path
//! MTU only what ESP and AH take from it ([`mtu`]).
#![forbid(unsafe_code)]

mod ah;
mod audit;
mod batch;
mod counters;
mod ecn;
mod engine;
mod flow;
mod fragment;
pub mod fuzz;
mod held;
mod ipcomp;
mod mss;
pub mod mtu;
mod pipeline;
mod reasm;
mod replay;
mod sa;
mod sad;
mod spd;
mod stages;
mod up;
mod worker;

pub use batch::{Carrier, Datagram, RxBatch, Send, TxBatch, TxConfig, Write, demux};
pub use counters::{Counters, DropReason, Traffic};
pub use engine::{ApplyError, Config, Engine, PolicyInfo, SaInfo};
pub use pipeline::{Frame, unmerge};
pub use replay::{Replay, ReplayError};
pub use stages::{Stage, StageTimes, Stages, Stopwatch};
pub use worker::Worker;
