//! The helper process, which `ironswan run` starts first: it keeps the privileges that the daemon
//! gives up, and carries out the few requests of [`ironswan_wire::helper`].
//!
//! ```text
//! ironswan run ── starts, socket on standard input ──▶ ironswan helper
//!      │  requests (ironswan_io::helper)                    │  files, nft, TUN device, settings
//!      └──── the end of one is the end of the other ────────┘
//!      │  names, lists, responses of OCSP                   │
//!      └──── starts, likewise ──▶ ironswan fetcher: resolver and web, with no privilege
//! ```
//! The helper reads nothing but requests: no configuration, and nothing from the network. It
//! ignores the signals that end the daemon, so that it is there for as long as the daemon is.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `fetch` | the fetcher's side: asks the resolver and servers of the web |
//! | `process` | the daemon's side: starts both, and sees them end |
//! | `files` | files of the configuration that the helper opens |
//! | `qcd_secret` | opens the secret of quick crash detection, and makes it once |
//! | `serve` | the helper's side: carries out requests |
//! | `folders` | which files the helper opens |

pub mod fetch;
pub(crate) mod files;
mod folders;
pub(crate) mod process;
mod qcd_secret;
pub mod serve;
