//! IKEv2 (RFC 7296), sans-IO: both roles, PSK, CHILD_SAs and their rekeying.
//!
//! [`Endpoint`] holds every IKE_SA of a gateway. It is told what happened and asked what to do; it
//! reads no clock, opens no socket, and computes no key exchange itself: see `endpoint` for the
//! order of calls.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `child` | one CHILD_SA |
//! | `cookie` | cookies for strangers |
//! | `compute` | the computations among an endpoint's requests |
//! | `context/` | the surroundings of one IKE_SA, and its work beside the exchanges |
//! | `counters` | counters |
//! | `event` | events and requests for the driver |
//! | `flow` | finds CHILD_SAs on which packets go out and none comes back |
//! | `init` | one IKE_SA while it is set up |
//! | `ipcomp` | CPIs of IPComp |
//! | `keymat` | keys of IKE_SAs and CHILD_SAs |
//! | `narrow` | narrows traffic selectors |
//! | `natd` | NAT detection |
//! | `negotiate` | chooses one of the peer's proposals |
//! | `qcd` | tokens of quick crash detection |
//! | `options` | settings of an endpoint |
//! | `sa/` | one IKE_SA |
//! | `search` | searches the largest packet that a path carries |
//! | `timer` | timers |
//! | `transport` | selectors of transport mode through a NAT |
//! | `window` | message IDs and retransmission |
//! | `auth/` | methods of authentication |
//! | `task/` | one file per exchange |
#![forbid(unsafe_code)]

mod auth;
mod child;
mod compute;
mod context;
mod cookie;
pub mod counters;
pub mod endpoint;
pub mod event;
mod flow;
mod init;
mod ipcomp;
mod keymat;
mod narrow;
mod natd;
mod negotiate;
mod options;
mod qcd;
mod sa;
mod search;
mod task;
mod timer;
mod transport;
mod window;

pub use endpoint::Endpoint;
pub use options::Options;
pub use qcd::SECRET_LEN as QCD_SECRET_LEN;
