//! IKEv2 (RFC 7296), sans-IO.
#![forbid(unsafe_code)]

pub mod config;
pub mod counters;
pub mod endpoint;
pub mod event;
mod narrow;
mod timer;
mod window;

pub use endpoint::{CommandError, Endpoint, Options, Target};
