//! Ciphers of ESP that need an integrity algorithm beside them, and their IVs.

use ironswan_wire::iana::EncrId;
use ironswan_wire::proposal::EspSuite;
use zeroize::{Zeroize, Zeroizing};

use crate::engine::aws_lc_sys::aes::{self, BlockKey, CbcKey};
use crate::engine::aws_lc_sys::des::{self, TripleDesKey};
use crate::rng::Rng;
use crate::suite;

/// A cipher that needs an integrity algorithm beside it. `ivs` makes unpredictable IVs of sequence
/// numbers.
#[allow(clippy::large_enum_variant, reason = "inline on purpose: one block of memory to fetch per packet")]
pub(super) enum Cipher {
    Null,
    AesCbc { key: CbcKey, ivs: BlockKey },
    TripleDesCbc { key: TripleDesKey, ivs: BlockKey },
    AesCtr { key: BlockKey, nonce: [u8; 4] },
}

impl Cipher {
    /// A cipher without keys so far; `None` for an algorithm that is not here.
    pub(super) fn blank(encr: EncrId) -> Option<Self> {
        match encr {
            EncrId::NULL => Some(Self::Null),
            EncrId::AES_CBC => Some(Self::AesCbc { key: CbcKey::blank(), ivs: BlockKey::blank() }),
            EncrId::DES3 => Some(Self::TripleDesCbc { key: TripleDesKey::blank(), ivs: BlockKey::blank() }),
            EncrId::AES_CTR => Some(Self::AesCtr { key: BlockKey::blank(), nonce: [0; 4] }),
            _ => None,
        }
    }

    /// Puts keys in place: that of the SA from `keymat`, and that of the IVs from `rng`. `None`
    /// when `keymat` has not the length of the algorithm.
    pub(super) fn set(&mut self, suite: &EspSuite, keymat: &[u8], rng: &mut dyn Rng) -> Option<()> {
        let (new_key, new_nonce) = suite::key_and_salt(suite.encr, suite.key_bits, keymat)?;
        let mut set_ivs = |ivs: &mut BlockKey| {
            let mut key = Zeroizing::new([0; 16]);
            rng.fill(&mut *key);
            ivs.set(&*key)
        };
        match self {
            Self::Null => Some(()),
            Self::AesCbc { key, ivs } => {
                key.set(new_key)?;
                set_ivs(ivs)
            }
            Self::TripleDesCbc { key, ivs } => {
                key.set(new_key)?;
                set_ivs(ivs)
            }
            Self::AesCtr { key, nonce } => {
                key.set(new_key)?;
                *nonce = new_nonce.try_into().ok()?;
                Some(())
            }
        }
    }

    /// Writes the IV, which has this algorithm's length.
    #[inline]
    pub(super) fn write_iv(&self, seq: &[u8; 8], iv: &mut [u8]) {
        match self {
            Self::Null => {}
            Self::AesCbc { ivs, .. } => iv.copy_from_slice(&unpredictable(ivs, seq)),
            Self::TripleDesCbc { ivs, .. } => {
                iv.copy_from_slice(&unpredictable(ivs, seq)[..des::BLOCK_LEN]);
            }
            Self::AesCtr { .. } => iv.copy_from_slice(seq),
        }
    }

    /// The IV of 3DES-CBC.
    #[cfg(target_arch = "x86_64")]
    pub(super) fn triple_des_iv(&self, seq: u64) -> Option<[u8; des::BLOCK_LEN]> {
        match self {
            Self::TripleDesCbc { ivs, .. } => unpredictable(ivs, &seq.to_be_bytes()).first_chunk().copied(),
            _ => None,
        }
    }

    /// Encrypts under the IV that [`Self::write_iv`] wrote. `None` when the IV has not the
    /// algorithm's length.
    #[inline]
    pub(super) fn encrypt(&self, iv: &[u8], text: &mut [u8]) -> Option<()> {
        match self {
            Self::Null => {}
            Self::AesCbc { key, .. } => key.encrypt(iv.try_into().ok()?, text),
            Self::TripleDesCbc { key, .. } => key.encrypt(iv.try_into().ok()?, text),
            Self::AesCtr { key, nonce } => key.counter_mode(&ctr_block(nonce, iv.try_into().ok()?), text),
        }
        Some(())
    }

    /// Decrypts under the IV of the packet. `None` when the IV has not the algorithm's length.
    #[inline]
    pub(super) fn decrypt(&self, iv: &[u8], text: &mut [u8]) -> Option<()> {
        match self {
            Self::Null => {}
            Self::AesCbc { key, .. } => key.decrypt(iv.try_into().ok()?, text),
            Self::TripleDesCbc { key, .. } => key.decrypt(iv.try_into().ok()?, text),
            Self::AesCtr { key, nonce } => key.counter_mode(&ctr_block(nonce, iv.try_into().ok()?), text),
        }
        Some(())
    }
}

impl Drop for Cipher {
    /// Keys wipe themselves; the nonce is keying material too.
    fn drop(&mut self) {
        if let Self::AesCtr { nonce, .. } = self {
            nonce.zeroize();
        }
    }
}

/// An IV that cannot be foretold without the key (RFC 3602 section 3, RFC 2451 section 3).
#[inline]
fn unpredictable(ivs: &BlockKey, seq: &[u8; 8]) -> [u8; aes::BLOCK_LEN] {
    let mut block = [0; aes::BLOCK_LEN];
    block[8..].copy_from_slice(seq);
    ivs.encrypt(&block)
}

/// RFC 3686 section 4: nonce, IV, and a block counter that begins at one.
#[inline]
pub(super) fn ctr_block(nonce: &[u8; 4], iv: &[u8; 8]) -> [u8; aes::BLOCK_LEN] {
    let mut block = [0; aes::BLOCK_LEN];
    block[..4].copy_from_slice(nonce);
    block[4..12].copy_from_slice(iv);
    block[15] = 1;
    block
}
