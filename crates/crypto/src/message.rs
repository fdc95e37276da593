//! Protection of one IKE message: the SK payload (RFC 7296 section 3.14; AES-GCM and AES-CCM: RFC
//! 5282, ChaCha20-Poly1305: RFC 7634, AES-CTR: RFC 5930).
//!
//! ```text
//! IKE header | payloads in clear | SK header | IV | text: payloads, padding, pad length | ICV
//! `------------------ aad -------------------'
//!   AEAD: nonce = salt | IV, ICV over aad and text
//!   CBC:  ICV = MAC over aad | IV | ciphertext
//!   CTR:  the same; counter block = nonce | IV | 1, the nonce is the end of SK_e
//! ```
//!
//! One [`MessageKey`] per direction. Not here: where the fields lie, padding, and how an IV is
//! chosen (AEAD and CTR: unique, a counter; CBC: unpredictable, from the random generator).
//!
//! 3DES and AES-CTR are for old peers. No default names them: they are negotiated where a
//! connection names them.

use ironswan_wire::algorithm;
use ironswan_wire::iana::{EncrId, IntegId};
use zeroize::Zeroize;

use crate::engine::aws_lc_sys::aes::{self, BlockKey, CbcKey};
use crate::engine::aws_lc_sys::des::{self, TripleDesKey};
use crate::engines::EngineId;
use crate::suite::{self, AEAD_IV_LEN, IntegKey, SaltedKey};
use crate::wipe::{self, KEY_SETUP_STACK, PACKET_STACK};

/// The message is not authentic, or its parts have impossible lengths. Says no more on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenError;

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("integrity check failed")
    }
}

impl std::error::Error for OpenError {}

/// SK_e and SK_a of one direction, ready for use. On the heap, where they were expanded: keys that
/// are moved leave copies.
pub struct MessageKey(Box<SuiteKeys>);

impl std::fmt::Debug for MessageKey {
    /// Says what it is, and nothing of the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MessageKey").finish_non_exhaustive()
    }
}

#[allow(clippy::large_enum_variant, reason = "two per IKE_SA, and no pointer to chase")]
enum SuiteKeys {
    Aead { key: SaltedKey, icv_len: usize },
    Separate { cipher: Cipher, integ: IntegKey },
}

/// A cipher that needs an integrity algorithm beside it.
#[allow(clippy::large_enum_variant, reason = "two per IKE_SA, and no pointer to chase")]
enum Cipher {
    Cbc(CbcKey),
    TripleDes(TripleDesKey),
    Ctr { key: BlockKey, nonce: [u8; CTR_NONCE_LEN] },
}

/// Length of the nonce at the end of the keying material of AES-CTR (RFC 3686 section 5.1).
const CTR_NONCE_LEN: usize = 4;
/// Length of AES-CTR's IV in the message (RFC 3686 section 3.1).
const CTR_IV_LEN: usize = 8;

impl Cipher {
    /// Of an algorithm, without a key so far.
    fn blank(encr: EncrId) -> Option<Self> {
        match encr {
            EncrId::AES_CBC => Some(Self::Cbc(CbcKey::blank())),
            EncrId::DES3 => Some(Self::TripleDes(TripleDesKey::blank())),
            EncrId::AES_CTR => Some(Self::Ctr { key: BlockKey::blank(), nonce: [0; CTR_NONCE_LEN] }),
            _ => None,
        }
    }

    /// Puts a key in place. `None` when it has the wrong length, or is one of 3DES that must not be
    /// used.
    fn set(&mut self, key: &[u8]) -> Option<()> {
        match self {
            Self::Cbc(this) => this.set(key),
            Self::TripleDes(this) => this.set(key),
            Self::Ctr { key: this, nonce } => {
                let (key, end) = key.split_last_chunk()?;
                *nonce = *end;
                this.set(key)
            }
        }
    }

    fn iv_len(&self) -> usize {
        match self {
            Self::Cbc(_) => aes::BLOCK_LEN,
            Self::TripleDes(_) => des::BLOCK_LEN,
            Self::Ctr { .. } => CTR_IV_LEN,
        }
    }

    fn block_len(&self) -> usize {
        match self {
            Self::Cbc(_) => aes::BLOCK_LEN,
            Self::TripleDes(_) => des::BLOCK_LEN,
            // A key stream has no blocks (RFC 3686 section 2.1): the text needs no padding.
            Self::Ctr { .. } => 1,
        }
    }

    #[cfg(test)]
    fn place(&self) -> crate::testing::Place {
        match self {
            Self::Cbc(key) => crate::testing::place(key),
            Self::TripleDes(key) => crate::testing::place(key),
            Self::Ctr { key, .. } => crate::testing::place(key),
        }
    }

    /// Encrypts or decrypts whole blocks in place. `None`, and nothing done, when `iv` or `text`
    /// has another length.
    fn apply(&self, iv: &[u8], text: &mut [u8], encrypt: bool) -> Option<()> {
        text.len().is_multiple_of(self.block_len()).then_some(())?;
        match self {
            Self::Cbc(key) if encrypt => key.encrypt(iv.try_into().ok()?, text),
            Self::Cbc(key) => key.decrypt(iv.try_into().ok()?, text),
            Self::TripleDes(key) if encrypt => key.encrypt(iv.try_into().ok()?, text),
            Self::TripleDes(key) => key.decrypt(iv.try_into().ok()?, text),
            Self::Ctr { key, nonce } => {
                // RFC 3686 section 4: nonce, IV, and a block counter that begins with one.
                let iv: &[u8; CTR_IV_LEN] = iv.try_into().ok()?;
                let mut counter = [0; aes::BLOCK_LEN];
                counter[..CTR_NONCE_LEN].copy_from_slice(nonce);
                counter[CTR_NONCE_LEN..CTR_NONCE_LEN + CTR_IV_LEN].copy_from_slice(iv);
                counter[aes::BLOCK_LEN - 1] = 1;
                key.counter_mode(&counter, text);
            }
        }
        Some(())
    }
}

impl Drop for Cipher {
    fn drop(&mut self) {
        if let Self::Ctr { nonce, .. } = self {
            nonce.zeroize();
        }
    }
}

impl MessageKey {
    /// Prepares the keys. For an AEAD the salt is the end of `encr_key` and `integ_key` is empty.
    /// `None` when the algorithms are not supported together or a key has the wrong length.
    pub fn new(
        encr: EncrId,
        key_bits: u16,
        integ: Option<IntegId>,
        encr_key: &[u8],
        integ_key: &[u8],
    ) -> Option<Self> {
        if encr_key.len() != encr_key_len(encr, key_bits)? {
            return None;
        }
        if encr.is_aead() {
            // RFC 5282 section 8: no integrity algorithm beside a combined-mode one; NONE may be
            // spelt out.
            let alone = integ.is_none_or(|id| id == IntegId::NONE) && integ_key.is_empty();
            alone.then_some(())?;
        }
        let mut inner = Box::new(if encr.is_aead() {
            let key = SaltedKey::blank(EngineId::AwsLc, encr, key_bits)?;
            SuiteKeys::Aead { key, icv_len: algorithm::encr(encr)?.icv_len }
        } else {
            SuiteKeys::Separate { cipher: Cipher::blank(encr)?, integ: IntegKey::blank(integ?)? }
        });
        wipe::after::<KEY_SETUP_STACK, _>(|| match &mut *inner {
            SuiteKeys::Aead { key, .. } => key.set(encr, key_bits, encr_key),
            SuiteKeys::Separate { cipher, integ: mac } => {
                cipher.set(encr_key)?;
                mac.set(integ?, integ_key)
            }
        })?;
        Some(Self(inner))
    }

    /// Addresses and lengths of the keys in memory, without the salt.
    #[cfg(test)]
    pub(crate) fn places(&self) -> Vec<crate::testing::Place> {
        match &*self.0 {
            SuiteKeys::Aead { key, .. } => vec![key.place()],
            SuiteKeys::Separate { cipher, integ } => [vec![cipher.place()], integ.places()].concat(),
        }
    }

    /// Length of the IV in bytes.
    pub fn iv_len(&self) -> usize {
        match &*self.0 {
            SuiteKeys::Aead { .. } => AEAD_IV_LEN,
            SuiteKeys::Separate { cipher, .. } => cipher.iv_len(),
        }
    }

    /// Length of the ICV in bytes.
    pub fn icv_len(&self) -> usize {
        match &*self.0 {
            SuiteKeys::Aead { icv_len, .. } => *icv_len,
            SuiteKeys::Separate { integ, .. } => integ.icv_len(),
        }
    }

    /// The text must be padded to a multiple of this many bytes: the block for CBC, 1 for an AEAD
    /// (which needs no padding, RFC 5282 section 3) and for CTR.
    pub fn block_len(&self) -> usize {
        match &*self.0 {
            SuiteKeys::Aead { .. } => 1,
            SuiteKeys::Separate { cipher, .. } => cipher.block_len(),
        }
    }

    /// Encrypts `text` in place and writes `icv`.
    ///
    /// # Panics
    /// When `iv`, `text` or `icv` have not the lengths that this key asks for: the caller laid the
    /// message out.
    pub fn seal(&self, aad: &[u8], iv: &[u8], text: &mut [u8], icv: &mut [u8]) {
        wipe::after::<PACKET_STACK, _>(|| match &*self.0 {
            SuiteKeys::Aead { key, icv_len } => {
                assert_eq!(icv.len(), *icv_len, "room for icv_len bytes");
                key.seal(aad, iv.try_into().expect("an IV of iv_len bytes"), text, icv);
            }
            SuiteKeys::Separate { cipher, integ } => {
                cipher.apply(iv, text, true).expect("an IV of iv_len bytes, and whole blocks");
                assert_eq!(icv.len(), integ.icv_len(), "room for icv_len bytes");
                integ.sign(&[aad, iv, text], icv);
            }
        });
    }

    /// Verifies, then decrypts `text` in place. Lengths come from the peer here: what does not fit
    /// is an error. After an error the text is unspecified.
    pub fn open(&self, aad: &[u8], iv: &[u8], text: &mut [u8], icv: &[u8]) -> Result<(), OpenError> {
        let opened = wipe::after::<PACKET_STACK, _>(|| match &*self.0 {
            SuiteKeys::Aead { key, .. } => iv.try_into().is_ok_and(|iv| key.open(aad, iv, text, icv)),
            SuiteKeys::Separate { cipher, integ } => {
                let fits = iv.len() == cipher.iv_len() && text.len().is_multiple_of(cipher.block_len());
                if text.is_empty() || !fits {
                    return false;
                }
                integ.verify(&[aad, iv, text], icv) && cipher.apply(iv, text, false).is_some()
            }
        });
        if opened { Ok(()) } else { Err(OpenError) }
    }
}

/// Length of SK_e in bytes, with the salt of an AEAD or the nonce of AES-CTR. `None` for algorithms
/// that are not negotiated for IKE.
pub fn encr_key_len(encr: EncrId, key_bits: u16) -> Option<usize> {
    // RFC 8750 section 7: an IKE message has no sequence number to make an IV of.
    let explicit_iv = algorithm::encr(encr)?.iv_len > 0;
    let separate = matches!(encr, EncrId::AES_CBC | EncrId::AES_CTR | EncrId::DES3);
    let here = separate || suite::is_combined(encr) && explicit_iv;
    here.then(|| algorithm::encr_keymat_len(encr, key_bits)).flatten()
}

/// Length of an integrity key in bytes (RFC 4868 section 2.1.1). `None` when unsupported.
pub fn integ_key_len(integ: IntegId) -> Option<usize> {
    suite::integ_key_len(integ)
}

/// Length of an ICV in bytes. `None` when unsupported.
pub fn icv_len(integ: IntegId) -> Option<usize> {
    suite::integ_key_len(integ).and(algorithm::integ(integ)).map(|shape| shape.icv_len)
}

#[cfg(test)]
mod tests;
