//! DPDK's cryptodev for the laboratory: ESP packets are put in the queue of a device, and asked for
//! later.
//!
//! ```text
//!   Requests::write    slots in memory of DPDK, a packet and an operation each    Packets::read
//!   Requests::submit ──> queue ──> device ──> Answers::poll       one thread each, or one for both
//! ```
//! The device is software: the driver `crypto_ipsec_mb`, that is Intel's multi-buffer library
//! behind a queue. It works in the thread that polls, and raises no interrupt. DPDK runs without
//! files, huge pages and devices of the machine, so nothing is left behind.
//!
//! Suites: AES-GCM with an ICV of 16 bytes (RFC 4106), and AES-CBC with HMAC-SHA2-256-128 (RFC
//! 3602, RFC 4868). With AES-GCM the sequence number is the IV. With AES-CBC the IV is the packet's
//! own.
//!
//! Only the laboratory imports this crate. Without the feature `dpdk`, and on processors other than
//! x86-64, [`start`] says how to build it in.
//!
//! # Files
//!
//! | file | holds |
//! |---|---|
//! | `dpdk/` | the device, through a shim in C |
//! | `absent` | the same types where DPDK is not built in |

#![deny(unsafe_code)]

#[cfg(dpdk)]
#[allow(unsafe_code)]
mod dpdk;
#[cfg(dpdk)]
pub use dpdk::{Answers, Packets, Requests, start};

#[cfg(not(dpdk))]
mod absent;
#[cfg(not(dpdk))]
pub use absent::{Answers, Packets, Requests, start};

use std::fmt;

/// The device that the laboratory uses: Intel's multi-buffer library.
pub const DEVICE: &str = "crypto_aesni_mb0";
/// Requests that may be with the device at once.
pub const MOST_UNDER_WAY: u32 = 2048;
/// Slots of a set of packets, at most.
pub const MOST_SLOTS: u32 = 16_384;
/// Answers that one call of [`Answers::poll`] gives at most.
pub const MOST_ANSWERS: usize = 32;

/// Length of SPI and sequence number.
const HEADER_LEN: usize = 8;
/// Length of the ICV of all suites.
const ICV_LEN: usize = 16;
/// Longest packet, from SPI to ICV.
const MOST_LEN: usize = 40_000;

/// Keys of an SA.
#[derive(Clone, Copy)]
pub enum Key<'a> {
    /// AES-GCM with an ICV of 16 bytes.
    Gcm {
        /// 16, 24 or 32 bytes.
        key: &'a [u8],
        /// The part of the nonce that is not in the packet.
        salt: [u8; 4],
    },
    /// AES-CBC with HMAC-SHA2-256-128.
    CbcSha256 {
        /// 16, 24 or 32 bytes.
        key: &'a [u8],
        /// 32 bytes.
        mac: &'a [u8],
    },
}

impl fmt::Debug for Key<'_> {
    /// Says what it is, and nothing of the key.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Gcm { .. } => "Gcm",
            Self::CbcSha256 { .. } => "CbcSha256",
        })
    }
}

#[cfg_attr(not(dpdk), allow(dead_code, reason = "asked by the device and by tests"))]
impl Key<'_> {
    /// Length of the IV in a packet.
    fn iv_len(&self) -> usize {
        match self {
            Self::Gcm { .. } => 8,
            Self::CbcSha256 { .. } => 16,
        }
    }

    /// The reason why no packet of this length can be sealed or opened with this key.
    fn refuses(&self, packet_len: usize) -> Option<String> {
        let (key, mac) = match self {
            Self::Gcm { key, .. } => (key, 32),
            Self::CbcSha256 { key, mac } => (key, mac.len()),
        };
        if ![16, 24, 32].contains(&key.len()) {
            return Some(format!("a key of AES has 16, 24 or 32 bytes, not {}", key.len()));
        }
        if mac != 32 {
            return Some(format!("a key of HMAC-SHA2-256 has 32 bytes, not {mac}"));
        }
        let fixed = HEADER_LEN + self.iv_len() + ICV_LEN;
        let text = packet_len.checked_sub(fixed).filter(|text| *text > 0 && packet_len <= MOST_LEN);
        let whole = match self {
            Self::Gcm { .. } => 1,
            Self::CbcSha256 { .. } => 16,
        };
        match text {
            None => Some(format!("a packet has {} to {MOST_LEN} bytes, not {packet_len}", fixed + 1)),
            Some(text) if !text.is_multiple_of(whole) => {
                Some(format!("a text of {text} bytes is not whole blocks of AES"))
            }
            Some(_) => None,
        }
    }
}

/// Which way a packet goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Encrypts, and makes the ICV.
    Seal,
    /// Compares the ICV, and decrypts.
    Open,
}

/// A request that has come back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(transparent)]
pub struct Answer(u32);

impl Answer {
    /// The slot of its packet.
    pub fn slot(self) -> u32 {
        self.0 >> 1
    }

    /// Sealed, or opened and authentic.
    pub fn ok(self) -> bool {
        self.0 & 1 == 1
    }

    /// As one number, for a queue between threads.
    pub fn to_bits(self) -> u32 {
        self.0
    }

    /// The other way round.
    pub fn from_bits(bits: u32) -> Self {
        Self(bits)
    }
}

/// The device cannot be had: what is in the way, and what to do about it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// What is in the way.
    pub lack: String,
    /// What supplies it.
    pub remedy: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.lack, self.remedy)
    }
}

impl std::error::Error for Fault {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_that_a_suite_does_not_have_are_refused_with_the_reason() {
        let long = [0; 33];
        let gcm = |n: usize| Key::Gcm { key: &long[..n], salt: [0; 4] };
        let cbc = |n: usize, m: usize| Key::CbcSha256 { key: &long[..n], mac: &long[..m] };
        for (key, len, said) in [
            (gcm(15), 96, "16, 24 or 32 bytes, not 15"),
            (gcm(16), 32, "33 to 40000 bytes, not 32"),
            (gcm(16), 40_001, "not 40001"),
            (cbc(16, 33), 104, "HMAC-SHA2-256 has 32 bytes, not 33"),
            (cbc(33, 32), 104, "not 33"),
            (cbc(16, 32), 103, "a text of 63 bytes is not whole blocks"),
            (cbc(16, 32), 40, "41 to 40000 bytes, not 40"),
        ] {
            let why = key.refuses(len).unwrap_or_default();
            assert!(why.contains(said), "{key:?} {len}: {why}");
        }
        assert_eq!(gcm(32).refuses(33), None);
        assert_eq!(cbc(24, 32).refuses(104), None);
    }

    #[test]
    fn an_answer_is_a_slot_and_a_result() {
        let answer = Answer::from_bits(MOST_SLOTS << 1 | 1);
        assert_eq!((answer.slot(), answer.ok(), answer.to_bits()), (MOST_SLOTS, true, 32_769));
        assert!(!Answer::from_bits(8).ok());
    }
}
