//! IKEv2 (RFC 7296), sans-IO.
#![forbid(unsafe_code)]

pub mod config;
pub mod event;
