//! The only two entrances of packets: [`outbound`] and [`inbound`]. Same order of steps, mirrored.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `outbound` | entrance of packets that leave |
//! | `inbound` | entrance of packets that arrive |
//! | `general` | SAs that need another way than plain tunnel ESP |
//! | `transport` | IP header and checksum of a packet that came in transport mode |
//! | `transport_headers` | headers that stay in front of ESP or AH |
//! | `encapsulate` | how a packet that leaves is carried |
//! | `decapsulate` | from authentic bytes to the packet that is delivered |
//! | `decide` | a frame's flow and decision; asks for an SA where there is none |
//! | `accept` | whether an inner packet may come out of its SA |
//! | `burst` | memory asked for ahead of use, for many small packets |
//! | `split` | cuts frames into ESP packets |
//! | `merge` | merges delivered packets into few writes |
//! | `unmerge` | cuts a merged write that the device has refused |
//! | `dummies` | dummy packets |

mod accept;
mod burst;
mod decapsulate;
mod decide;
mod dummies;
mod encapsulate;
mod general;
mod inbound;
mod merge;
mod outbound;
mod split;
mod transport;
mod transport_headers;
mod unmerge;

pub(crate) use burst::Burst;
pub use burst::Frame;
pub(crate) use general::Outbound;
pub(crate) use inbound::{Inbound, Opening};
pub(crate) use split::Planned;
pub use unmerge::unmerge;
