//! The crate beside a real kernel, in network namespaces. Needs root.

mod common;
mod header;
mod kernel;
mod steering;
mod xdp;
mod xdp_rate;
