//! The only two entrances of packets: [`outbound`] and [`inbound`]. Same order of steps, mirrored.

mod accept;
mod burst;
mod carry;
mod decide;
mod dummies;
mod general;
mod inbound;
mod kept;
mod merge;
mod opened;
mod outbound;
mod split;
mod transport;
mod unmerge;

pub(crate) use burst::Burst;
pub use burst::Frame;
pub(crate) use decide::decide;
pub(crate) use general::Outbound;
pub(crate) use inbound::{Inbound, Opening};
pub(crate) use split::Planned;
pub use unmerge::unmerge;
