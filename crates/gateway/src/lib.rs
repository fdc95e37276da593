//! The daemon: what the crates `ike`, `ipsec` and `io` become when they run together.
//!
//! | module | does |
//! |---|---|
//! | [`worker`] | the data plane: packets between TUN, sockets and engine |
//! | [`driver`] | the control plane: the loop around `ike::Endpoint` |
//! | [`install`] | SADB messages to the engine, routes to the kernel |
//! | [`guard`] | the rules, routes, nft table and ingress filters that keep protected packets from travelling in clear |
//! | [`fitness`], [`offloads`] | what on this machine stands in the way, or makes packets slower |
//! | [`napi`] | which interfaces kernel threads poll |
//! | [`control`] | the VICI server |
//! | `pool`, `names` | threads for what blocks or takes long; name look-ups |
//! | [`run`], `reload` | start, end; reload by difference |
//! | [`keylog`], [`log`], [`notify`] | key tables, log lines, the service manager |
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `paths` | which ICMP errors about a path are believed |

pub mod control;
pub mod driver;
pub mod fitness;
pub mod guard;
pub mod install;
pub mod keylog;
pub mod log;
mod names;
pub mod napi;
pub mod notify;
pub mod offloads;
pub mod paths;
mod pool;
mod reload;
pub mod run;
pub mod worker;
