//! The helper: a process that keeps the privileges which the daemon gives up.
//!
//! ```text
//! daemon, any thread ── request, reply socket, descriptors ──▶ helper: one thread for each request
//!        ▲                                                             │
//!        └────────────── reply, descriptors: by the reply socket ──────┘
//! ```
//! A request that hangs, such as one for a file of a dead server, holds up its caller and its own
//! thread, and nothing else. Both processes end when the other one does: each sees the end of the
//! socket between them.
//!
//! A process without a helper ([`client::get`] is `None`) does everything itself: a command such as
//! `ironswan guard`, a test, and the helper.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `channel` | a socket for messages with descriptors |
//! | `client` | the daemon's end |
//! | `server` | the helper's end |

pub mod channel;
pub mod client;
pub mod server;

pub use channel::Channel;
