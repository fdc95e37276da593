//! Bytes and meaning, and the nouns that every crate shares.
//!
//! Nothing here holds state, reads a clock or does I/O. Parsers are total: any byte string gives a value or an
//! error, never a panic, and never allocates more than a small multiple of its input.
#![forbid(unsafe_code)]

pub mod algorithm;
pub mod esp;
pub mod iana;
pub mod id;
pub mod ike;
pub mod ip;
pub mod natt;
pub mod offload;
pub mod pcap;
pub mod proposal;
pub mod read;
pub mod requirement;
pub mod sadb;
pub mod secret;
pub mod selector;
pub mod vici;
