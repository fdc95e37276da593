//! The engine through its public interface.

mod bad_input;
mod common;
mod lifecycle;
mod oracle;
mod replay;
mod roundtrip;
mod split_merge;
