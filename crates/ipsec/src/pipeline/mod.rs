//! The way of a packet: [`outbound`] for those that leave; [`open`] and [`deliver`], in the
//! mirrored order of steps, for those that arrive.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `outbound` | entrance of packets that leave |
//! | `open` | packets that arrive: SPI, replay check, decryption |
//! | `deliver` | packets that arrive: replay commit, policy, merging, in order |
//! | `context` | the state of a worker that inner packets are checked against |
//! | `audit` | the packets that audit events name |
//! | `release` | frames that wait for an SA: keeps and sends them |
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
//! | `tapped` | copies of packets for captures |

mod accept;
mod audit;
mod burst;
mod context;
mod decapsulate;
mod decide;
mod deliver;
mod dummies;
mod encapsulate;
mod general;
pub(crate) mod merge;
mod open;
mod outbound;
mod release;
mod split;
mod tapped;
mod transport;
mod transport_headers;
mod unmerge;

pub(crate) use accept::check_policy;
pub use burst::Frame;
pub use unmerge::unmerge;
