//! Helpers that several tests of this crate use.

use ironswan_wire::iana::IntegId;

use crate::block_mac::{BlockMac, BlockMacKey};
use crate::ccm::CcmKey;
use crate::engine::aws_lc_sys::aead::{Aead, AeadKey};
use crate::engine::aws_lc_sys::hmac::{Hash, HmacKey};
use crate::engine::aws_lc_sys::{aes, des};
#[cfg(ipsec_mb)]
use crate::engine::ipsec_mb::lanes::{Cipher, LaneKey, Mac};
#[cfg(target_arch = "x86_64")]
use crate::engine::{avx2, vaes};
use crate::engines::EngineId;
use crate::suite::{GmacKey, IntegKey};

/// Bytes of a hexadecimal string; blanks and line ends do not count.
pub(crate) fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text
        .bytes()
        .filter(|b| !b.is_ascii_whitespace())
        .map(|b| (b as char).to_digit(16).expect("a hexadecimal digit") as u8)
        .collect();
    assert!(digits.len().is_multiple_of(2), "an odd number of digits");
    digits.chunks(2).map(|d| d[0] << 4 | d[1]).collect()
}

/// `from, from + 1, ...`
pub(crate) fn count(from: u8, len: usize) -> Vec<u8> {
    (0..len).map(|i| from.wrapping_add(i as u8)).collect()
}

/// Some memory of this process: an address, and how many bytes.
pub(crate) type Place = (usize, usize);

/// Address and length of a value in memory.
pub(crate) fn place<T>(value: &T) -> Place {
    (std::ptr::from_ref(value).addr(), size_of::<T>())
}

/// Keys by value, as tests like them. What is not a test puts a key in where it stays.
macro_rules! by_value {
    ($($type:ty, ($($arg:ident: $of:ty),*), $blank:expr, $this:ident => $set:expr;)+) => {$(
        impl $type {
            pub(crate) fn new($($arg: $of),*) -> Option<Self> {
                let mut $this = $blank?;
                $set?;
                Some($this)
            }
        }
    )+};
}

by_value! {
    aes::CbcKey, (key: &[u8]), Some(Self::blank()), this => this.set(key);
    aes::BlockKey, (key: &[u8]), Some(Self::blank()), this => this.set(key);
    des::TripleDesKey, (key: &[u8]), Some(Self::blank()), this => this.set(key);
    AeadKey, (aead: Aead, key: &[u8], tag_len: usize), Some(Self::blank()), this => this.set(aead, key, tag_len);
    CcmKey, (key: &[u8], tag_len: usize), Self::blank(tag_len), this => this.set(key);
    BlockMacKey, (mac: BlockMac, key: &[u8]), Some(Self::blank()), this => this.set(mac, key);
    IntegKey, (id: IntegId, key: &[u8]), Self::blank(id), this => this.set(id, key);
    GmacKey, (keymat: &[u8]), Some(Self::blank(EngineId::AwsLc, keymat.len())), this => this.set(keymat);
}

#[cfg(target_arch = "x86_64")]
by_value! {
    vaes::GcmKey, (key: &[u8], tag_len: usize), Self::blank(tag_len), this => this.set(key);
    avx2::TripleDesKey, (key: &[u8]), Self::blank(), this => this.set(key);
}

#[cfg(ipsec_mb)]
impl LaneKey {
    pub(crate) fn new(cipher: Cipher, key: &[u8], hash: Mac, mac_key: &[u8]) -> Option<Self> {
        let mut this = Self::blank(cipher, hash, key.len())?;
        this.set(key, mac_key)?;
        Some(this)
    }
}

impl HmacKey {
    pub(crate) fn new(hash: Hash, key: &[u8]) -> Self {
        let mut this = Self::blank(hash);
        this.set(key);
        this
    }
}
