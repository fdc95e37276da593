//! The data plane in user space: threads that move packets between the TUN device, the sockets and
//! the packet engine.
//!
//! ```text
//! TUN ──read──▶ outbound ──▶ seal ──▶ UDP 4500 (UDP_SEGMENT), raw ESP, with IP header (AH)
//! TUN ◀─writev── inbound ◀── demux ◀── UDP 4500 (UDP_GRO), raw ESP, raw AH
//!                              └─ IKE ─▶ control plane ◀─ UDP 500
//! ```
//!
//! The first worker has one epoll loop, level-triggered: every descriptor that is ready gets one
//! bounded turn a round, so neither direction starves the other, and an idle gateway sleeps (an SA
//! that sends dummy packets is never idle). When that leaves a backlog, others help (`lanes`). The
//! engine works in place on buffers that belong to a batch; memory that is never used is never
//! resident. Nothing is global.
//!
//! Not here: the meaning of a packet (`ironswan-ipsec`), the objects of the kernel (`ironswan-io`),
//! the guard.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `asked` | requests of IKE that were sent, and which ICMP errors are about them |
//! | `config` | settings of the workers |
//! | `crew` | the workers beside the first |
//! | `device` | the TUN device, and changes of it by other programs |
//! | `icmp` | the thread that receives ICMP errors |
//! | `ike_queue` | IKE messages on their way to the control thread |
//! | `inbound` | from the sockets to the TUN device |
//! | `install` | SADB messages to the engine, routes of the device to the kernel |
//! | `lanes` | a direction's lock, tickets and batches |
//! | `memory` | the loop over memory instead of the kernel; in tests alone |
//! | `memory_bench` | nanoseconds per packet of that loop, measured on request |
//! | `napi` | which interfaces kernel threads poll |
//! | `notice` | messages of the workers to the control plane |
//! | `offloads` | which offloads the kernel granted, and which it withdrew later |
//! | `order` | batches leave in the order of their tickets |
//! | `outbound` | from the TUN device to the sockets |
//! | `packet_io` | the kernel's objects, or memory |
//! | `paths` | which ICMP errors about a path are believed |
//! | `plane` | all of this behind the trait `DataPlane` |
//! | `pool` | a fixed number of batches |
//! | `refused` | merged writes that the device refuses |
//! | `report` | properties and counters by name |
//! | `sampling` | which batches are measured |
//! | `scheduling` | processors and priority of the workers |
//! | `sockets` | sockets and their numbers, and sending of IKE messages |
//! | `stats` | counters of the workers |
//! | `workers` | the threads, and the loop of the first |
//! | `xdp` | ESP through `AF_XDP`, beside the sockets |

mod asked;
mod config;
mod crew;
mod device;
#[cfg(test)]
pub(crate) mod diagnosis_tests;
mod icmp;
mod ike_queue;
mod inbound;
pub mod install;
mod lanes;
#[cfg(test)]
mod memory;
#[cfg(test)]
mod memory_bench;
pub mod napi;
mod notice;
pub mod offloads;
mod order;
mod outbound;
mod packet_io;
pub mod paths;
mod plane;
mod pool;
mod refused;
mod report;
mod sampling;
pub(crate) mod scheduling;
mod sockets;
mod stats;
#[cfg(test)]
mod tests;
mod workers;
mod xdp;

pub use config::WorkersConfig;
pub use notice::WorkerNotice;
pub use plane::UserSpace;
pub use stats::WorkerStats;
pub use workers::Workers;
