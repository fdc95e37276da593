//! AES-GCM (SP 800-38D, RFC 4106) for x86-64 processors with AVX2, VAES and VPCLMULQDQ: two blocks
//! per instruction.
//!
//! ```text
//! lanes.rs    loads, stores and the bytes of a last block that is not full
//! aes.rs      key schedule and the rounds, on 1 to 8 pairs of blocks
//! ghash.rs    multiplication in GF(2^128), summed up before one reduction
//! key.rs      the key in memory
//! packet.rs   seal and open: groups of 16 blocks, one group's rounds woven into another's GHASH
//! ```
//!
//! Blocks are counted from counter 0, sixteen to a group, so that the low four bits of the counter
//! are constants. Of the first group counter 0 is not used, counter 1 masks the tag, and 2 to 15
//! are the first 14 blocks of text. So a packet of up to 224 bytes is one group: one pass of AES,
//! and one reduction, which takes in the additional data and the lengths.
//!
//! No look-up depends on a secret, nor does any branch: those here depend on lengths and the key's
//! size.

mod aes;
mod ghash;
mod key;
mod lanes;
mod packet;
#[cfg(test)]
mod tests;

use std::mem::offset_of;
use std::ops::Range;

use zeroize::Zeroize;

pub(crate) use key::GcmKey;
use key::NONCE_LEN;

/// The longest text of one nonce (SP 800-38D section 5.2.1.1): 2^32 - 2 blocks.
const MAX_TEXT: u64 = (1 << 36) - 32;

/// A text of so many blocks takes no more powers than [`FEW_POWERS`]: one for each, one for what is
/// authenticated beside it, one for the lengths.
const SHORT_BLOCKS: usize = 6;
const FEW_POWERS: usize = SHORT_BLOCKS + 2;

/// Whether this processor has what the code here is compiled for.
pub(crate) fn available() -> bool {
    std::arch::is_x86_feature_detected!("avx2")
        && std::arch::is_x86_feature_detected!("aes")
        && std::arch::is_x86_feature_detected!("pclmulqdq")
        && std::arch::is_x86_feature_detected!("vaes")
        && std::arch::is_x86_feature_detected!("vpclmulqdq")
}

impl GcmKey {
    /// For tags of 8, 12 or 16 bytes, without a key so far. `None` when the tag has another length,
    /// or the processor lacks the instructions.
    pub(crate) fn blank(tag_len: usize) -> Option<Self> {
        (matches!(tag_len, 8 | 12 | 16) && available()).then_some(Self {
            rounds: 0,
            tag_len: tag_len as u8,
            _unused: [0; 14],
            powers: [[0; 16]; 16],
            round_keys: [[0; 16]; 15],
        })
    }

    /// Prepares a key of 16, 24 or 32 bytes in place. `None` for another length.
    pub(crate) fn set(&mut self, key: &[u8]) -> Option<()> {
        matches!(key.len(), 16 | 24 | 32).then_some(())?;
        let mut h = [0; 16];
        // SAFETY: `blank` gives a key only where the processor has the features.
        unsafe {
            self.rounds = aes::expand(key, &mut self.round_keys);
            aes::block(self, &mut h);
            ghash::powers(&h, &mut self.powers);
        }
        h.zeroize();
        Some(())
    }

    /// How long a short text is, and which bytes of the key it needs. A longer one needs what is
    /// before these too.
    #[inline]
    pub(crate) fn hot(&self) -> (usize, Range<usize>) {
        let round_keys = offset_of!(Self, round_keys);
        let end = round_keys + 16 * (usize::from(self.rounds) + 1);
        (16 * SHORT_BLOCKS, round_keys - 16 * FEW_POWERS..end)
    }

    /// Encrypts `text` in place and writes the tag. Panics unless `tag` is as long as `blank` was
    /// told.
    #[inline]
    pub(crate) fn seal(&self, nonce: &[u8; NONCE_LEN], aad: &[u8], text: &mut [u8], tag: &mut [u8]) {
        assert!(
            tag.len() == usize::from(self.tag_len) && text.len() as u64 <= MAX_TEXT,
            "AEAD seal of {} bytes failed",
            text.len()
        );
        // SAFETY: `blank` gives a key only where the processor has the features.
        let full = unsafe { packet::seal(self, nonce, aad, text) };
        match tag.len() {
            16 => tag.copy_from_slice(&full),
            12 => tag.copy_from_slice(&full[..12]),
            _ => tag.copy_from_slice(&full[..8]),
        }
    }

    /// Verifies and decrypts `text` in place. On `false` the text is wiped. A tag of another length
    /// than `blank` was told is wrong.
    #[inline]
    #[must_use]
    pub(crate) fn open(&self, nonce: &[u8; NONCE_LEN], aad: &[u8], text: &mut [u8], tag: &[u8]) -> bool {
        let good = tag.len() == usize::from(self.tag_len) && text.len() as u64 <= MAX_TEXT && {
            // SAFETY: `blank` gives a key only where the processor has the features.
            let full = u128::from_le_bytes(unsafe { packet::open(self, nonce, aad, text) });
            // All bytes are compared in one word: how many agree does not show in the time.
            let (given, beyond) = match tag.len() {
                16 => (lanes::short(&tag[..15]) | u128::from(tag[15]) << 120, 0),
                len => (lanes::short(tag), 8 * (16 - len as u32)),
            };
            (full ^ given) << beyond == 0
        };
        if !good {
            text.fill(0);
        }
        good
    }
}

impl Drop for GcmKey {
    fn drop(&mut self) {
        self.powers.zeroize();
        self.round_keys.zeroize();
    }
}
