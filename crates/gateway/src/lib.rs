//! The daemon: what the crates `ike`, `ipsec` and `io` become when they run together.
//!
//! | module | does |
//! |---|---|
//! | [`config`] | reads `swanctl.conf` and `ironswan.conf`, checks them |
//! | [`worker`] | the data plane: packets between TUN, sockets and engine |
//! | [`driver`] | the control plane: the loop around `ike::Endpoint` |
//! | [`install`] | SADB messages to the engine, routes to the kernel |
//! | [`control`] | the VICI server |
//! | [`run`] | start, reload, end |
//! | [`keylog`], [`log`], [`notify`] | key tables, log lines, the service manager |

pub mod config;
pub mod control;
pub mod driver;
pub mod install;
pub mod keylog;
pub mod log;
pub mod notify;
pub mod run;
#[cfg(test)]
mod scratch;
pub mod worker;
