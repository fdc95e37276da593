//! Bytes and meaning, and the nouns that every crate shares.
//!
//! Nothing here holds state, reads a clock or does I/O. Parsers are total: any byte string gives a
//! value or an error, never a panic, and never allocates more than a small multiple of its input.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `read` | checked reader and writer of bytes |
//! | `ip/` | IP headers, ICMP and checksums |
//! | `esp` | header and trailer of ESP |
//! | `natt` | tells IKE from ESP on port 4500 |
//! | `offload` | virtio headers of the TUN device |
//! | `ike/` | IKEv2 messages: header, payloads, the sealed part |
//! | `vici` | VICI: frames, packets, sections |
//! | `iana` | numbers that IANA assigned for IKEv2, and their names |
//! | `algorithm` | lengths of every IPsec algorithm |
//! | `proposal` | proposals, and the suites that come of them |
//! | `requirement` | what RFCs 8221 and 8247 ask of each algorithm |
//! | `selector` | traffic selectors, and the order of policies |
//! | `id` | identities of peers |
//! | `der` | reader and writer of DER |
//! | `oid` | object identifiers |
//! | `name` | distinguished names |
//! | `name_text` | distinguished names as people write them |
//! | `sadb` | messages between a key daemon and a packet engine |
//! | `fetched` | why nothing was fetched from a server of the web |
//! | `helper` | messages between the daemon and its helper |
//! | `printable` | text of somebody else, fit to be shown |
//! | `secret` | bytes that are wiped on drop and print nothing |
//! | `pcap` | files of packets, as Wireshark reads them |
#![forbid(unsafe_code)]

pub mod algorithm;
pub mod der;
pub mod esp;
pub mod fetched;
pub mod helper;
pub mod iana;
pub mod id;
pub mod ike;
pub mod ip;
pub mod name;
pub mod name_text;
pub mod natt;
pub mod offload;
pub mod oid;
pub mod pcap;
pub mod printable;
pub mod proposal;
pub mod read;
pub mod requirement;
pub mod sadb;
pub mod secret;
pub mod selector;
pub mod vici;
