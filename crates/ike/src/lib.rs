//! IKEv2 (RFC 7296), sans-IO: both roles, PSK, CHILD_SAs and their rekeying.
//!
//! [`Endpoint`] holds every IKE_SA of a gateway. It is told what happened and asked what to do; it reads no clock, opens no
//! socket, and computes no key exchange itself: see `endpoint` for the order of calls.
#![forbid(unsafe_code)]

mod auth;
mod child;
pub mod config;
mod cookie;
pub mod counters;
pub mod endpoint;
pub mod event;
mod ipcomp;
mod keymat;
mod narrow;
mod natd;
mod negotiate;
mod sa;
mod task;
mod timer;
mod transport;
mod window;

pub use auth::psk::SharedKeys;
pub use endpoint::{CommandError, Endpoint, Options, STOPPING, Target};
