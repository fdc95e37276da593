//! The only two entrances of packets: [`outbound`] and [`inbound`]. Same order of steps, mirrored.

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
pub(crate) use decide::decide;
pub(crate) use general::Outbound;
pub(crate) use inbound::{Inbound, Opening};
pub(crate) use split::Planned;
pub use unmerge::unmerge;
