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
//! One [`MessageKey`] per direction. It keeps the key as it was agreed on, and expands it for each
//! message: an IKE_SA sees few of these, and thousands of IKE_SAs wait at a gateway.
//!
//! Not here: where the fields lie, padding, and how an IV is chosen (AEAD and CTR: unique, a
//! counter; CBC: unpredictable, from the random generator).
//!
//! 3DES and AES-CTR are for old peers. No default names them: they are negotiated where a
//! connection names them.

use ironswan_wire::algorithm;
use ironswan_wire::iana::{EncrId, IntegId};
use ironswan_wire::secret::Secret;
use zeroize::Zeroize;

use crate::engine::aws_lc_sys::aes::{self, BlockKey, CbcKey};
use crate::engine::aws_lc_sys::des::{self, TripleDesKey};
use crate::engines::EngineId;
use crate::suite::{self, AEAD_IV_LEN, IntegKey, SaltedKey};
use crate::wipe::{self, KEY_SETUP_STACK};

/// The message is not authentic, or its parts have impossible lengths. Says no more on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct OpenError;

impl std::fmt::Display for OpenError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("integrity check failed")
    }
}

impl std::error::Error for OpenError {}

/// SK_e and SK_a of one direction.
pub struct MessageKey {
    suite: Suite,
    /// SK_e, with the salt of an AEAD or the nonce of AES-CTR behind it.
    encr: Secret,
    /// SK_a; empty with an AEAD.
    integ: Secret,
    iv_len: u8,
    icv_len: u8,
    block_len: u8,
}

/// Algorithms of one direction.
#[derive(Clone, Copy)]
struct Suite {
    encr: EncrId,
    key_bits: u16,
    integ: Option<IntegId>,
}

impl std::fmt::Debug for MessageKey {
    /// Says what it is, and nothing of the key.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MessageKey").finish_non_exhaustive()
    }
}

/// Keys of one direction, ready for use. They are put in where they stay, on the heap: keys that
/// are moved leave copies.
#[allow(clippy::large_enum_variant, reason = "there is one at a time")]
enum SuiteKeys {
    Aead { key: SaltedKey, icv_len: usize },
    Separate { cipher: Cipher, integ: IntegKey },
}

/// A cipher that needs an integrity algorithm beside it.
#[allow(clippy::large_enum_variant, reason = "there is one at a time")]
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

impl Suite {
    /// Expands the keys. `None` when the algorithms are not supported together, or a key has the
    /// wrong length. Leaves copies on the stack.
    fn expand(self, encr_key: &[u8], integ_key: &[u8]) -> Option<Box<SuiteKeys>> {
        let Self { encr, key_bits, integ } = self;
        let mut keys = Box::new(if encr.is_aead() {
            let key = SaltedKey::blank(EngineId::AwsLc, encr, key_bits)?;
            SuiteKeys::Aead { key, icv_len: algorithm::encr(encr)?.icv_len }
        } else {
            SuiteKeys::Separate { cipher: Cipher::blank(encr)?, integ: IntegKey::blank(integ?)? }
        });
        match &mut *keys {
            SuiteKeys::Aead { key, .. } => key.set(encr, key_bits, encr_key)?,
            SuiteKeys::Separate { cipher, integ: mac } => {
                cipher.set(encr_key)?;
                mac.set(integ?, integ_key)?;
            }
        }
        Some(keys)
    }
}

impl SuiteKeys {
    /// Lengths in bytes of the IV, of the ICV, and of the blocks that the text has to fill.
    fn lens(&self) -> [usize; 3] {
        match self {
            Self::Aead { icv_len, .. } => [AEAD_IV_LEN, *icv_len, 1],
            Self::Separate { cipher, integ } => [cipher.iv_len(), integ.icv_len(), cipher.block_len()],
        }
    }

    /// Addresses and lengths of the keys in memory, without the salt.
    #[cfg(test)]
    fn places(&self) -> Vec<crate::testing::Place> {
        match self {
            Self::Aead { key, .. } => vec![key.place()],
            Self::Separate { cipher, integ } => [vec![cipher.place()], integ.places()].concat(),
        }
    }
}

/// Keys that a test keeps expanded, to know what they look like.
#[cfg(test)]
pub(crate) struct Expanded(Box<SuiteKeys>);

#[cfg(test)]
impl Expanded {
    /// Addresses and lengths of the keys in memory, without the salt.
    pub(crate) fn places(&self) -> Vec<crate::testing::Place> {
        self.0.places()
    }
}

impl MessageKey {
    /// Takes the keys over. For an AEAD the salt is the end of `encr_key` and `integ_key` is empty.
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
        let suite = Suite { encr, key_bits, integ };
        let lens = wipe::after::<KEY_SETUP_STACK, _>(|| Some(suite.expand(encr_key, integ_key)?.lens()))?;
        let [iv_len, icv_len, block_len] = lens.map(|len| u8::try_from(len).ok());
        Some(Self {
            suite,
            encr: encr_key.into(),
            integ: integ_key.into(),
            iv_len: iv_len?,
            icv_len: icv_len?,
            block_len: block_len?,
        })
    }

    /// Does this with the expanded keys, of which nothing is left afterwards.
    fn expanded<R>(&self, work: impl FnOnce(&SuiteKeys) -> R) -> R {
        wipe::after::<KEY_SETUP_STACK, _>(|| {
            let keys = self.suite.expand(self.encr.expose(), self.integ.expose());
            work(&keys.expect("it was expanded when it was made"))
        })
    }

    /// The same keys, expanded.
    #[cfg(test)]
    pub(crate) fn expand(&self) -> Expanded {
        let expand = || self.suite.expand(self.encr.expose(), self.integ.expose());
        Expanded(wipe::after::<KEY_SETUP_STACK, _>(expand).expect("it was expanded when it was made"))
    }

    /// Addresses and lengths of the keys in memory.
    #[cfg(test)]
    pub(crate) fn places(&self) -> Vec<crate::testing::Place> {
        let keys = [&self.encr, &self.integ].map(Secret::expose);
        keys.map(|key| (key.as_ptr().addr(), key.len())).into_iter().filter(|(_, len)| *len > 0).collect()
    }

    /// Length of the IV in bytes.
    pub fn iv_len(&self) -> usize {
        self.iv_len.into()
    }

    /// Length of the ICV in bytes.
    pub fn icv_len(&self) -> usize {
        self.icv_len.into()
    }

    /// The text must be padded to a multiple of this many bytes: the block for CBC, 1 for an AEAD
    /// (which needs no padding, RFC 5282 section 3) and for CTR.
    pub fn block_len(&self) -> usize {
        self.block_len.into()
    }

    /// Encrypts `text` in place and writes `icv`.
    ///
    /// # Panics
    /// When `iv`, `text` or `icv` have not the lengths that this key asks for: the caller laid the
    /// message out.
    pub fn seal(&self, aad: &[u8], iv: &[u8], text: &mut [u8], icv: &mut [u8]) {
        assert_eq!(icv.len(), self.icv_len(), "room for icv_len bytes");
        self.expanded(|keys| match keys {
            SuiteKeys::Aead { key, .. } => {
                key.seal(aad, iv.try_into().expect("an IV of iv_len bytes"), text, icv);
            }
            SuiteKeys::Separate { cipher, integ } => {
                cipher.apply(iv, text, true).expect("an IV of iv_len bytes, and whole blocks");
                integ.sign(&[aad, iv, text], icv);
            }
        });
    }

    /// Verifies, then decrypts `text` in place. Lengths come from the peer here: what does not fit
    /// is an error. After an error the text is unspecified.
    pub fn open(&self, aad: &[u8], iv: &[u8], text: &mut [u8], icv: &[u8]) -> Result<(), OpenError> {
        let opened = self.expanded(|keys| match keys {
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
