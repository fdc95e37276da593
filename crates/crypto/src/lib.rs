//! Algorithms and the engines (libraries) that provide them. Knows no packets beyond where the
//! bytes lie.
//!
//! | module | for | RFC |
//! |---|---|---|
//! | [`rng`] | random bytes, from the system or from a seed | |
//! | [`prf`] | PRFs and prf+ | 7296 section 2.13, 4868 |
//! | [`hash`] | SHA-1, for NAT detection | 7296 section 2.23 |
//! | [`kex`] | key exchange methods | 8031, 5903, 3526, 5114, 6989; FIPS 203 |
//! | [`sign`] | keys and signatures: RSA, ECDSA, Ed25519 | 8017, 4754, 8032; 7427, 8420 |
//! | [`container`] | key files under a passphrase | 5958, 7292 |
//! | [`message`] | the SK payload of one IKE message | 7296 section 3.14, 5282, 7634 |
//! | [`batch`] | many ESP packets at once | 4303, and those of the ciphers |
//! | [`icv`] | the ICVs of many AH packets at once | 4302, 4543 |
//! | [`engines`] | which library does which suite, by self-test | |
//! |  | integrity, in both | 2403, 2404, 4868, 3566, 4494 |
//! | [`sum`](mod@sum) | the Internet checksum | 1071 |
//! | [`selftest`] | known answers at start | |
//!
//! `unsafe` lives in `engine` only, in files named after the library.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `suite` | from transform IDs to keys of algorithms |
//! | `engine/` | the libraries and the code for one kind of processor |
//! | `block_mac` | AES-CMAC, AES-XCBC and other MACs of AES blocks |
//! | `ccm` | AES-CCM |
//! | `null` | an engine that protects nothing, for counting instructions |
//! | `wipe` | overwrites the stack that a call has used |
//! | `testing` | helpers that several tests share |
#![deny(unsafe_code)]

pub mod batch;
mod block_mac;
mod ccm;
pub mod container;
mod engine;
pub mod engines;
pub mod hash;
pub mod icv;
pub mod kex;
pub mod message;
#[cfg(feature = "null-engine")]
pub mod null;
pub mod prf;
pub mod rng;
pub mod selftest;
pub mod sign;
mod suite;
pub mod sum;
#[cfg(test)]
mod testing;
mod wipe;

pub use engine::prefetch::prefetch;
