//! IKEv2 messages (RFC 7296 section 3, RFC 7383): header, payloads, and the layout of the encrypted
//! payload.
//!
//! ```text
//! datagram -> Message::parse -> header, clear payloads, perhaps SK or SKF last
//!                                  |  Message::sealed: where IV, text and ICV are
//!                                  v  (the caller opens the text in place)
//!             sealed::unpad -> payload::parse_chain(first inner type) -> payloads
//! ```
//!
//! Parsing is total and strict about what RFC 7296 fixes, and blind to what it says to ignore:
//! RESERVED bits, minor versions, unknown flags, the critical bit of payloads that are known. What
//! only makes sense with state (is this message id expected, may this exchange happen now, is a
//! payload missing) is judged in the crate `ike`; keys and ciphers are in `crypto`.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `header` | the IKE header |
//! | `message` | a whole message |
//! | `payload/` | payloads, one file each |
//! | `sealed` | layout of the encrypted payloads |
//! | `error` | faults of a message, by the notification that answers them |

pub mod error;
pub mod header;
pub mod message;
pub mod payload;
pub mod sealed;

pub use error::{Fault, ParseError};
pub use header::{Flags, HEADER_LEN, Header, Version};
pub use message::Message;
pub use payload::{GENERIC_LEN, MAX_PAYLOADS, Payload, Within, emit_chain, ends_sealed, parse_chain, walk};
pub use sealed::{Fragment, Geometry, Ranges, SealedDraft};
