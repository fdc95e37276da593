//! The only two entrances of packets: [`outbound`] and [`inbound`]. Same order of steps, mirrored.

mod decide;
mod inbound;
mod merge;
mod outbound;
mod split;

pub(crate) use inbound::Inbound;
