//! Two endpoints, one clock and a simulated network, in one thread and without waiting: what a
//! story needs to put IKE through loss, duplication, reordering, translation and collisions, and to
//! say what must hold at rest.
//!
//! [`World`] drives two [`Node`]s (policy, an `ike::Endpoint` and a model packet engine each) over
//! a [`Net`]. The same seed gives the same run. The crate is for tests only: it panics when an
//! invariant does not hold.

pub mod certificates;
pub mod clock;
pub mod config;
pub mod direct;
pub mod engine;
pub mod forge;
pub mod net;
pub mod node;
pub mod outdated;
pub mod remains;
pub mod scratch;
pub mod world;

pub use engine::{Engine, Sealed};
pub use forge::Forger;
pub use net::{Net, Packet, Seen, Verdict};
pub use node::{Node, WALL};
pub use world::{Clock, Esp, World};
