//! Boxes and links made of network namespaces and veth pairs. Each topology is a file of its own; all share one
//! [`Owner`], whose names say which process made them, so that nothing outlives its maker for long:
//!
//! - a topology removes its namespaces, and every process inside them, when it is dropped (return, error, signal);
//! - what a killed process could not remove, the next run does ([`Owner::claim`]).

mod line;
mod netns;
mod owner;

pub use line::{Line, LineSpec, Mode, Node, address};
pub use netns::Netns;
pub use owner::{Owner, Swept, sweep};
