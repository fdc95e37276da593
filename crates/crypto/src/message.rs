//! Protection of one IKE message: the SK payload (RFC 7296 section 3.14; AES-GCM and AES-CCM: RFC
//! 5282, ChaCha20-Poly1305: RFC 7634).
//!
//! ```text
//! IKE header | payloads in clear | SK header | IV | text: payloads, padding, pad length | ICV
//! `------------------ aad -------------------'
//!   AEAD: nonce = salt | IV, ICV over aad and text
//!   CBC:  ICV = MAC over aad | IV | ciphertext
//! ```
//!
//! One [`MessageKey`] per direction. Not here: where the fields lie, padding, and how an IV is
//! chosen (AEAD: unique, a counter; CBC: unpredictable, from the random generator).

use ironswan_wire::algorithm;
use ironswan_wire::iana::{EncrId, IntegId};

use crate::engine::aws_lc_sys::aes::{self, CbcKey};
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
    Cbc { cbc: CbcKey, integ: IntegKey },
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
            SuiteKeys::Cbc { cbc: CbcKey::blank(), integ: IntegKey::blank(integ?)? }
        });
        wipe::after::<KEY_SETUP_STACK, _>(|| match &mut *inner {
            SuiteKeys::Aead { key, .. } => key.set(encr, key_bits, encr_key),
            SuiteKeys::Cbc { cbc, integ: mac } => {
                cbc.set(encr_key)?;
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
            SuiteKeys::Cbc { cbc, integ } => [vec![crate::testing::place(cbc)], integ.places()].concat(),
        }
    }

    /// Length of the IV in bytes.
    pub fn iv_len(&self) -> usize {
        match &*self.0 {
            SuiteKeys::Aead { .. } => AEAD_IV_LEN,
            SuiteKeys::Cbc { .. } => aes::BLOCK_LEN,
        }
    }

    /// Length of the ICV in bytes.
    pub fn icv_len(&self) -> usize {
        match &*self.0 {
            SuiteKeys::Aead { icv_len, .. } => *icv_len,
            SuiteKeys::Cbc { integ, .. } => integ.icv_len(),
        }
    }

    /// The text must be padded to a multiple of this many bytes: 16 for CBC, 1 for an AEAD (which
    /// needs no padding, RFC 5282 section 3).
    pub fn block_len(&self) -> usize {
        match &*self.0 {
            SuiteKeys::Aead { .. } => 1,
            SuiteKeys::Cbc { .. } => aes::BLOCK_LEN,
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
            SuiteKeys::Cbc { cbc, integ } => {
                cbc.encrypt(iv.try_into().expect("an IV of iv_len bytes"), text);
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
            SuiteKeys::Cbc { cbc, integ } => {
                let Ok(chain) = iv.try_into() else { return false };
                if text.is_empty() || !text.len().is_multiple_of(aes::BLOCK_LEN) {
                    return false;
                }
                let authentic = integ.verify(&[aad, iv, text], icv);
                if authentic {
                    cbc.decrypt(chain, text);
                }
                authentic
            }
        });
        if opened { Ok(()) } else { Err(OpenError) }
    }
}

/// Length of SK_e in bytes, with the salt of an AEAD. `None` for what cannot protect an IKE message
/// here.
pub fn encr_key_len(encr: EncrId, key_bits: u16) -> Option<usize> {
    // RFC 8750 section 7: an IKE message has no sequence number to make an IV of.
    let explicit_iv = algorithm::encr(encr)?.iv_len > 0;
    let here = encr == EncrId::AES_CBC || suite::is_combined(encr) && explicit_iv;
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
